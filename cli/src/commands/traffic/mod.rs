//! `weft traffic`: a host on an interface, which sends streams, checks those that arrive, and obeys PFC.
//!
//! Flags describe the host, a loop polls it ([`Host::poll`]), and a report concludes. With `--rclink` or `--tcp` the
//! host is an RC Link endpoint or a TCP host.
//!
//! Source: docs/spec/pipeline.md §9.

mod args;
mod host;
mod rclink;
mod tcp;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use weft_control::live::confine;
use weft_dataplane::pool::{Bufs, FRAME_LEN_MAX, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::time::{LinkRate, Span};
use weft_hosts::host::Host;
use weft_hosts::stamp;
use weft_lab::clock::now;
use weft_lab::netdev::{open, wait};

use self::host::spec;
use crate::error::CliError;

pub use self::args::TrafficArgs;

/// Chunks of a host's pool: bursts both ways, and a slow receiver's backlog.
const CHUNKS: usize = 4_096;
/// Silence after which a port counts as empty.
const QUIET: Span = Span::from_ms(50);
/// Longest time for emptying a port.
const EMPTY_MAX: Span = Span::from_ms(2_000);
/// Longest sleep of an idle host.
const SLEEP_MAX_NS: u64 = 5_000_000;

/// The kind of host at the port.
enum Player {
    Host(Box<Host>),
    Endpoint(Box<rclink::Prepared>),
    Tcp(Box<weft_hosts::tcp::TcpHost>),
}

/// Runs the host.
///
/// # Errors
/// Flags that contradict each other, a device that cannot be opened, an expectation that failed.
pub fn run(args: &TrafficArgs, out: &mut dyn Write) -> Result<(), CliError> {
    if let Some(path) = args.ready.as_deref().filter(|path| path.symlink_metadata().is_ok()) {
        let text = format!("--ready {}: the file exists already; remove it first", path.display());
        return Err(CliError::Usage(text));
    }
    // Before the device is opened: contradictory flags need no rights.
    let player = if args.tcp.tcp {
        Player::Tcp(Box::new(tcp::prepare(args)?))
    } else if args.rclink.rclink {
        Player::Endpoint(Box::new(rclink::prepare(args)?))
    } else {
        let host = Host::new(spec(args)?).map_err(|error| CliError::Usage(error.to_string()))?;
        Player::Host(Box::new(host))
    };
    let give_up = "give up what the host does not need";
    let entered = confine::enter_on([args.device.as_str()])
        .map_err(|source| CliError::system(give_up, source))?;
    let mut port = open(&args.device, LinkRate::gbps(args.gbps), FRAME_LEN_MAX)?;
    // The device is open: from here on the host needs no system calls but those of files, memory and its port.
    let _confined = entered.seal().map_err(|source| CliError::system(give_up, source))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|source| CliError::system("wait for signals", source))?;
    }
    let mut host = match player {
        Player::Endpoint(endpoint) => {
            return rclink::run(args, *endpoint, port.as_mut(), &stop, out);
        }
        Player::Tcp(host) => return tcp::run(args, *host, port.as_mut(), &stop, out),
        Player::Host(host) => host,
    };
    let pool = Pool::map(CHUNKS, port.caps().frame_len_max)
        .map_err(|source| CliError::system("make room for frames", source))?;
    let mut bufs = Bufs::new(pool, CHUNKS / 4, 4);
    host.announce();
    drive(args, &mut host, port.as_mut(), &mut bufs, &stop)?;
    // Frames in flight when the signal arrived still count as received.
    if stop.load(Ordering::Relaxed) {
        empty(&mut host, port.as_mut(), &mut bufs);
    }
    let report = host.report(now(), &port.counters());
    host.release(&mut bufs);
    port.release(&mut bufs);
    if args.json {
        super::write_json(out, &report)?;
    } else {
        print(&report, out).map_err(CliError::Output)?;
    }
    let Some(expected) = args.expect else { return Ok(()) };
    let sum = |of: fn(&weft_hosts::report::RxStreamReport) -> u64| {
        report.rx_streams.iter().map(of).sum::<u64>()
    };
    let unique = sum(|s| s.unique);
    let flawed = sum(|s| s.lost + s.reordered + s.duplicates + s.corrupt);
    if unique == expected && flawed == 0 {
        return Ok(());
    }
    let found = format!(
        "expected {expected} frames, complete and in order; {unique} arrived, {flawed} of them with an error"
    );
    Err(CliError::Difference(found))
}

/// Polls until all frames are sent and the linger is over, or a signal arrives.
fn drive(
    args: &TrafficArgs,
    host: &mut Host,
    port: &mut dyn Port,
    bufs: &mut Bufs,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let linger = seconds(args.linger);
    let sends = !args.to.is_empty();
    let (mut over, mut told) = (None, false);
    while !stop.load(Ordering::Relaxed) {
        let at = now();
        let Ok(progress) = host.poll(at, port, bufs) else {
            wait(port, Span::from_ms(1)); // the device is away; it may come back
            continue;
        };
        // Not before the announcement has left: a script that waits for `--ready` may have others send at once.
        if !told && !progress.blocked {
            told = true;
            is_open(args)?;
        }
        if sends && host.is_done() && !progress.blocked {
            let end = *over.get_or_insert(at + linger);
            if end <= at {
                break;
            }
        // A host that only receives ends after `--duration`; without it, by a signal.
        } else if !sends && args.duration.is_some() {
            let end = *over.get_or_insert(at + seconds(args.duration.unwrap_or(0.0)) + linger);
            if end <= at {
                break;
            }
        }
        if progress.sent + progress.received == 0 {
            let until = progress.next.map_or(Span::from_ns(SLEEP_MAX_NS), |next| next.since(at));
            let until = if progress.blocked { Span::from_us(50) } else { until };
            wait(port, until.min(Span::from_ns(SLEEP_MAX_NS)));
        }
    }
    Ok(())
}

/// Reports that the port is open: frames to it are received from now on.
fn is_open(args: &TrafficArgs) -> Result<(), CliError> {
    let say = || anstream::eprintln!("port {} is open", args.device);
    let Some(path) = &args.ready else {
        say();
        return Ok(());
    };
    // `create_new` doesn't follow a symbolic link, nor truncate another's file.
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = made.and_then(|mut file| writeln!(file, "{}", std::process::id()));
    written.map_err(|source| CliError::File { verb: "make", path: path.clone(), source })?;
    say();
    Ok(())
}

/// Stops sending, and receives frames that are queued or in flight, until none arrives for [`QUIET`], or [`EMPTY_MAX`]
/// is over.
fn empty(host: &mut Host, port: &mut dyn Port, bufs: &mut Bufs) {
    host.stop();
    let begun = now();
    let mut last = begun;
    loop {
        let at = now();
        let received = host.poll(at, port, bufs).map_or(0, |progress| progress.received);
        if received > 0 {
            last = at;
        }
        if at.since(last) >= QUIET || at.since(begun) >= EMPTY_MAX {
            return;
        }
        if received == 0 {
            wait(port, Span::from_ms(1));
        }
    }
}

#[expect(clippy::float_arithmetic, reason = "seconds of the command line")]
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn seconds(seconds: f64) -> Span {
    Span::from_us((seconds.max(0.0) * 1e6) as u64)
}

fn print(report: &weft_hosts::report::Report, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(out, "sent {} frames, received {}", report.tx.frames, report.rx.frames)?;
    for stream in &report.tx_streams {
        let pri = stream.pri.map_or("-".to_owned(), |pri| pri.to_string());
        let (id, kind, frames) = (stream.stream, stream.kind, stream.count.frames);
        writeln!(out, "sent     stream {id:5} {kind} pri {pri}: {frames} frames")?;
    }
    for stream in &report.rx_streams {
        writeln!(
            out,
            "received stream {:5}: {} frames, lost {}, reordered {}, duplicates {}, corrupt {}",
            stream.stream,
            stream.unique,
            stream.lost,
            stream.reordered,
            stream.duplicates,
            stream.corrupt
        )?;
    }
    let (timed, came) = (report.latency.frames, report.rx_streams.iter().map(|s| s.count.frames));
    let came: u64 = came.sum();
    let reason = if came == 0 {
        "no frame of a stream came".to_owned()
    } else {
        format!("none of {came} frames has room for a send time ({} bytes of payload)", stamp::LEN)
    };
    let of =
        if timed == 0 || timed == came { "" } else { &format!(" (of {timed} of {came} frames)") };
    let latency = report.latency.in_words(&reason);
    writeln!(out, "latency ns: {latency}{of}; PFC frames received {}", report.control.pfc_rx)
}
