//! `weft traffic --rclink`: an RC Link endpoint on an interface, with the state machine of virtual time.
//!
//! Flags make an [`EndpointSpec`], a loop polls the endpoint ([`Endpoint::poll`]), and a report concludes.
//!
//! Source: docs/rclink.md; docs/spec/model.md §4.

mod report;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_dataplane::batch::Batch;
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PriSet;
use weft_hosts::classes::PriMap;
use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_hosts::pace::Rate;
use weft_hosts::rclink::dcqcn::DcqcnSpec;
use weft_hosts::rclink::endpoint::{Endpoint, EndpointSpec, Message, Transport};
use weft_hosts::stamp::{ANNOUNCE, Stamp};
use weft_lab::clock::now;
use weft_lab::netdev::wait;
use weft_parsers::{AfhMode, Ecn, ParseConfig, Pcp, Vid};

use self::report::{Report, Tally};
use super::args::TrafficArgs;
use super::host::slow;
use super::{CHUNKS, SLEEP_MAX_NS, is_open, seconds};
use crate::commands::write_json;
use crate::error::CliError;

/// Most requests that the endpoint has at once, which bounds its memory.
const OPEN_MAX: usize = 4_096;
/// Length of a rate limiter's window (docs/rclink.md).
const WINDOW_NS: u64 = 65_536;

/// An endpoint, with the frame that announces it.
pub(super) struct Prepared {
    endpoint: Endpoint,
    hello: FrameSpec,
}

/// Makes the endpoint that the flags describe.
///
/// # Errors
/// Flags that contradict each other, or are impossible for an endpoint.
pub(super) fn prepare(args: &TrafficArgs) -> Result<Prepared, CliError> {
    // Requests are numbered with 32 bits over all stations (`Plan::give`).
    let all = args.to.len() as u64 * u64::from(args.rclink.requests);
    if u32::try_from(all).is_err() {
        return Err(usage(format!("expected at most {} requests in all, found {all}", u32::MAX)));
    }
    let spec = spec(args)?;
    let hello = spec.frame.announcement();
    let mut endpoint = Endpoint::new(spec).map_err(usage)?;
    endpoint.set_arrival_clock(now);
    Ok(Prepared { endpoint, hello })
}

/// Runs the endpoint at `port`.
///
/// # Errors
/// As for `weft traffic`, and requests that were given up.
pub(super) fn run(
    args: &TrafficArgs,
    Prepared { mut endpoint, hello }: Prepared,
    port: &mut dyn Port,
    stop: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let pool = Pool::map(CHUNKS, port.caps().frame_len_max)
        .map_err(|source| CliError::system("make room for frames", source))?;
    let mut bufs = Bufs::new(pool, CHUNKS / 4, 4);
    announce(&hello, port, &mut bufs);
    is_open(args)?;
    let mut tally = Tally::default();
    drive(args, &mut endpoint, &mut tally, port, &mut bufs, stop);
    endpoint.release(&mut bufs);
    port.release(&mut bufs);
    let report = Report::new(args, &endpoint, &tally);
    if args.json {
        write_json(out, &report)?;
    } else {
        report.print(out).map_err(CliError::Output)?;
    }
    verdict(args, &tally)
}

/// Fails unless all requests were acknowledged (LITE: sent), and all expected ones arrived in order.
fn verdict(args: &TrafficArgs, tally: &Tally) -> Result<(), CliError> {
    let wanted = args.to.len() as u64 * u64::from(args.rclink.requests);
    if tally.done < wanted {
        let (done, given_up) = (tally.done, tally.given_up);
        let text = if has_acks(args) {
            format!(
                "expected {wanted} requests to be acknowledged; {done} were, {given_up} frames were given up"
            )
        } else {
            format!("expected {wanted} requests to be sent; {done} were")
        };
        return Err(CliError::Difference(text));
    }
    match args.expect {
        Some(expected) if expected != tally.delivered || tally.disordered > 0 => {
            let text = format!(
                "expected {expected} requests, in order; {} came, {} of them not behind the one before",
                tally.delivered, tally.disordered
            );
            Err(CliError::Difference(text))
        }
        _ => Ok(()),
    }
}

/// Whether requests are acknowledged; in LITE they are not.
fn has_acks(args: &TrafficArgs) -> bool {
    args.format.first() != Some(&Kind::Lite) && !args.rclink.lite
}

fn usage(error: impl std::fmt::Display) -> CliError {
    CliError::Usage(format!("--rclink: {error}"))
}

/// The spec of the endpoint that the flags describe.
fn spec(args: &TrafficArgs) -> Result<EndpointSpec, CliError> {
    let kind = match args.format[..] {
        [] => Kind::Standard,
        [Kind::Ethernet] => {
            return Err(usage(
                "--format ethernet: expected standard, gen1, gen2 or lite; raw Ethernet has no endpoint: leave --rclink out",
            ));
        }
        [kind] => kind,
        _ => return Err(usage("expected one --format: an endpoint has one")),
    };
    let peers: Arc<[Station]> = (0..=255).map(Station::numbered).collect();
    let mut spec = EndpointSpec::new(args.station, peers, kind);
    spec.frame = frame(args, kind);
    spec.frame.check().map_err(usage)?;
    let port_mac = Station::numbered(args.station).mac;
    // A Lite link carries no other format, and no other link carries Lite.
    let afh = if kind == Kind::Lite { AfhMode::Lite } else { args.afh };
    let gen2_order = args.gen2_order;
    spec.parse = ParseConfig { afh, gen2_order, port_mac, ..ParseConfig::DEFAULT };
    spec.classes = if args.priorities == Some(8) { PriMap::eight() } else { PriMap::four() };
    let flags = &args.rclink;
    if flags.lite {
        spec.transport = Transport::Lite;
    } else if kind != Kind::Lite {
        spec.transport = Transport::Reliable { timeout: Span::from_ns(4_096 << flags.ack_timeout) };
    }
    spec.slots = flags.window;
    spec.request_vc = args.vc.unwrap_or(spec.request_vc);
    spec.ack_delay = Span::from_us(flags.ack_delay);
    spec.cnp_merge = Span::from_us(flags.cnp_merge);
    spec.rate = flags.limit.map(|limit| threshold(limit.0)).transpose()?;
    spec.dcqcn = flags.dcqcn.then_some(DcqcnSpec {
        additive: 320, // the same steps in longer windows
        hyper: 3_264,
        least: 82,
        ..DcqcnSpec::DEFAULT
    });
    // There is no `--config` here that says which priorities are lossless, so all are paused.
    spec.slow = args.slow.map(|rate| slow(args, rate, PriSet::from_bits(0xFF))).transpose()?;
    Ok(spec)
}

/// A frame of the endpoint, without its receiver.
fn frame(args: &TrafficArgs, kind: Kind) -> FrameSpec {
    let me = Station::numbered(args.station);
    let mut frame = FrameSpec::new(kind, me, me);
    frame.gen2_order = args.gen2_order;
    frame.ecn = if args.ecn { Ecn::Ect0 } else { Ecn::NotEct };
    match args.vlan {
        Some(vid) => frame.with_vlan(Pcp::from_low_bits(0), Vid::from_low_bits(vid)),
        None => frame,
    }
}

/// The limiter's window and its bytes in it, for `--limit`.
fn threshold(rate: Rate) -> Result<(Span, u32), CliError> {
    let Rate::FrameBps(bps) = rate else {
        return Err(CliError::Usage("--limit: expected N[k|M|G]bps".to_owned()));
    };
    let bytes = u128::from(bps) * u128::from(WINDOW_NS) / 8_000_000_000;
    let threshold = u32::try_from(bytes).unwrap_or(u32::MAX);
    if !(82..=weft_hosts::rclink::rate::THRESHOLD_MAX).contains(&threshold) {
        let text = format!("--limit: expected 10.01Mbps to 511.9Gbps, found {bps} bit/s");
        return Err(CliError::Usage(text));
    }
    Ok((Span::from_ns(WINDOW_NS), threshold))
}

/// Broadcasts a frame, so that the switch learns this station.
fn announce(hello: &FrameSpec, port: &mut dyn Port, bufs: &mut Bufs) {
    let at = now();
    let stamp = Stamp { stream: ANNOUNCE, seq: 0, sent: at };
    let Ok(frame) = hello.to_vec(&stamp, 0) else { return };
    let mut batch = Batch::new();
    batch.extend(bufs.alloc_from(&frame));
    port.tx(at, bufs, &mut batch);
    for desc in batch.drain(..) {
        bufs.free(desc); // no room: the first request does it
    }
}

/// The requests that are still to be sent.
struct Plan<'a> {
    to: &'a [u16],
    bytes: u64,
    next: u64,
    all: u64,
}

impl Plan<'_> {
    /// Gives the endpoint requests, one to each station in turn, up to [`OPEN_MAX`] at once; counts those that it
    /// refuses.
    fn give(&mut self, endpoint: &mut Endpoint, tally: &mut Tally) {
        while self.next < self.all && tally.open() < OPEN_MAX as u64 {
            let turn = usize::try_from(self.next % self.to.len() as u64).unwrap_or(0);
            let Some(&to) = self.to.get(turn) else { return };
            let id = u32::try_from(self.next).unwrap_or(u32::MAX);
            let message = Message { id, to, bytes: self.bytes };
            tally.given += 1;
            if endpoint.send(message).is_err() {
                tally.refused += 1;
            }
            self.next += 1;
        }
    }
}

/// Polls until all requests are done and the linger is over, the duration is over, or a signal arrives.
fn drive(
    args: &TrafficArgs,
    endpoint: &mut Endpoint,
    tally: &mut Tally,
    port: &mut dyn Port,
    bufs: &mut Bufs,
    stop: &AtomicBool,
) {
    let all = args.to.len() as u64 * u64::from(args.rclink.requests);
    let mut plan = Plan { to: &args.to, bytes: args.rclink.request_bytes, next: 0, all };
    let start = now();
    let begin = start + seconds(args.delay);
    let limit = args.duration.map(|duration| begin + seconds(duration));
    let mut over: Option<Instant> = None;
    while !stop.load(Ordering::Relaxed) {
        let at = now();
        if at >= begin {
            plan.give(endpoint, tally);
        }
        let Ok(progress) = endpoint.poll(at, port, bufs) else {
            wait(port, Span::from_ms(1)); // the device is away; it may come back
            continue;
        };
        for event in endpoint.events() {
            tally.take(&event);
        }
        if limit.is_some_and(|limit| at >= limit) {
            return;
        }
        // An endpoint that sends nothing runs until its duration or a signal ends it.
        let is_done = all > 0 && plan.next == all && endpoint.is_idle();
        if is_done && *over.get_or_insert(at + seconds(args.linger)) <= at {
            return;
        }
        // An idle poll may have completed requests, whose places can be filled at once.
        let has_more = plan.next < all && tally.open() < OPEN_MAX as u64 && at >= begin;
        if progress.sent + progress.received == 0 && !has_more {
            let next = progress.next.map_or(Span::from_ns(SLEEP_MAX_NS), |next| next.since(at));
            let next = if progress.blocked { Span::from_us(50) } else { next };
            wait(port, next.min(Span::from_ns(SLEEP_MAX_NS)));
        }
    }
}
