//! `weft traffic`: a host on an interface: sends streams, checks those that arrive, honours PFC.
//!
//! Shape: flags → [`HostSpec`] → a loop over [`Host::poll`]; at the end a report. Streams are
//! numbered station × 256 + index, so that hosts with different stations never share one.
//! Units: bit/s, frames/s, seconds, bytes without FCS.
//! Source: docs/spec/pipeline.md §9.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{Pri, PriSet};
use weft_hosts::classes::PriMap;
use weft_hosts::frames::{FrameSpec, Kind, Station};
use weft_hosts::host::{Host, HostSpec};
use weft_hosts::pace::Rate;
use weft_hosts::pfc::SlowSpec;
use weft_hosts::stream::tx::StreamSpec;
use weft_lab::clock::now;
use weft_lab::netdev::{open, wait};
use weft_parsers::{AfhMode, Ecn, Gen2Order, ParseConfig, Pcp, Vid};
use weft_rpc::renamed::Place;

use super::frames::{RateArg, SizesArg, check_len, data_kind, kind_of, on_vc};
use crate::config::SettingsArgs;
use crate::config::TrafficConfig;
use crate::config::resolve::traffic_of;
use crate::error::CliError;

/// Longest frame.
const FRAME_LEN_MAX: usize = 9_216;
/// Chunks for a host: bursts both ways and what waits.
const CHUNKS: usize = 4_096;
/// How long nothing comes to a port that is empty.
const QUIET: Span = Span::from_ms(50);
/// How long emptying a port may take.
const EMPTY_MAX: Span = Span::from_ms(2_000);
/// What waits at a slow receiver at most.
const SLOW_CAPACITY_BYTES: usize = 16 << 20;
/// How long an idle host sleeps at most.
const SLEEP_MAX_NS: u64 = 5_000_000;

/// Arguments of `weft traffic`.
#[derive(Args, Debug)]
pub struct TrafficArgs {
    /// Interface, or `tap:NAME`
    #[arg(value_name = "[KIND:]DEVICE")]
    device: String,
    /// Number of this host: its addresses are made of it (02:00:00:00:HH:LL, 10.0.H.L, id)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=255))]
    station: u16,
    /// Send to this station; may be given several times
    #[arg(long = "to", value_name = "STATION", value_parser = clap::value_parser!(u16).range(1..=255))]
    to: Vec<u16>,
    /// Formats to send: standard, `roce_v2`, gen1, gen2, lite, ethernet; default `traffic.pkt_format`
    #[arg(long, value_delimiter = ',', value_parser = data_kind)]
    format: Vec<Kind>,
    /// Priorities to send, 0 the lowest, a stream for each; `all` for those that the format can ask
    /// for (AFH without a tag has no Traffic Class for priority 1 of 4)
    #[arg(long, value_delimiter = ',', default_value = "0", value_parser = pri)]
    pri: Vec<PriArg>,
    /// Virtual channel to send on: of the Traffic Class, and of the PCP by `traffic.vc_pcp_mapping`
    #[arg(long, value_name = "VC", conflicts_with = "pri")]
    vc: Option<u8>,
    /// Priorities of the switch, 4 or 8; default `switch.num_priorities`
    #[arg(long, value_parser = priorities)]
    priorities: Option<u8>,
    /// Bytes of a frame: N, N-M, N,M,..., or imix
    #[arg(long, default_value = "64")]
    size: SizesArg,
    /// Rate of each stream: N[k|M|G]bps, N[k|M]fps, or max
    #[arg(long, default_value = "1000fps")]
    rate: RateArg,
    /// Frames of each stream; without end unless --duration is given
    #[arg(long)]
    count: Option<u64>,
    /// Seconds to send for
    #[arg(long)]
    duration: Option<f64>,
    /// Seconds to go on receiving after the last frame was sent
    #[arg(long, default_value_t = 1.0)]
    linger: f64,
    /// Seconds to wait before the first frame, after the announcement
    #[arg(long, default_value_t = 0.5)]
    delay: f64,
    /// Tag frames with this VLAN; the PCP decides the priority then
    #[arg(long, value_parser = clap::value_parser!(u16).range(0..=4094))]
    vlan: Option<u16>,
    /// Mark IP frames as ECN-capable
    #[arg(long)]
    ecn: bool,
    /// AFH mode of the link: none, gen1, gen2, lite, auto
    #[arg(long, default_value = "auto", value_parser = afh)]
    afh: AfhMode,
    /// Byte order of GEN2 and Lite: slap, `as_documented`
    #[arg(long, default_value = "slap", value_parser = order)]
    gen2_order: Gen2Order,
    /// Rate of the link in Gbit/s, for pause quanta
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=800))]
    gbps: u64,
    /// Do not obey PFC
    #[arg(long)]
    ignore_pfc: bool,
    /// Receive slowly: drain at this rate and send PFC for the lossless priorities of the switch
    #[arg(long, value_name = "RATE")]
    slow: Option<RateArg>,
    /// Bytes waiting at which a slow receiver sends PAUSE
    #[arg(long, value_name = "BYTES", requires = "slow", default_value_t = 64 << 10)]
    slow_xoff: usize,
    /// Bytes waiting at which it sends RESUME
    #[arg(long, value_name = "BYTES", requires = "slow", default_value_t = 32 << 10)]
    slow_xon: usize,
    /// Fail (exit code 1) unless that many frames of streams arrived, whole and in order
    #[arg(long, value_name = "FRAMES")]
    expect: Option<u64>,
    /// Make this file, which must not be there, once the port is open and the announcement is sent; standard error says
    /// so, too
    #[arg(long, value_name = "FILE")]
    ready: Option<PathBuf>,
    /// Report as JSON
    #[arg(long)]
    json: bool,
    /// Configuration file, TOML; its `[traffic]` says what no flag does, and `[classify]`,
    /// `[pfc]` and `port_defaults.trust` how the switch sorts
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// One parameter, over the file: see `weft config defaults`
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
}

/// A priority on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PriArg {
    All,
    One(Pri),
}

fn pri(text: &str) -> Result<PriArg, String> {
    if text == "all" {
        return Ok(PriArg::All);
    }
    let pri = text.parse().ok().and_then(Pri::new);
    pri.map(PriArg::One).ok_or_else(|| "expected 0 to 7, or all".to_owned())
}

fn priorities(text: &str) -> Result<u8, String> {
    match text {
        "4" => Ok(4),
        "8" => Ok(8),
        _ => Err("expected 4 or 8".to_owned()),
    }
}

fn afh(text: &str) -> Result<AfhMode, String> {
    let all = [AfhMode::None, AfhMode::Gen1, AfhMode::Gen2, AfhMode::Lite, AfhMode::Auto];
    let found = all.into_iter().find(|mode| mode.name() == text);
    found.ok_or_else(|| "expected none, gen1, gen2, lite or auto".to_owned())
}

fn order(text: &str) -> Result<Gen2Order, String> {
    let all = [Gen2Order::Slap, Gen2Order::AsDocumented];
    let found = all.into_iter().find(|order| order.name() == text);
    found.ok_or_else(|| "expected slap or as_documented".to_owned())
}

/// Plays the host.
///
/// # Errors
/// Flags that contradict each other, a device that cannot be opened, an expectation that failed.
pub fn run(args: &TrafficArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut host = Host::new(spec(args)?).map_err(|error| CliError::Usage(error.to_string()))?;
    if let Some(path) = args.ready.as_deref().filter(|path| path.symlink_metadata().is_ok()) {
        let text = format!("--ready {}: it is there already, and says nothing", path.display());
        return Err(CliError::Usage(text));
    }
    let mut port = open(&args.device, LinkRate::gbps(args.gbps), FRAME_LEN_MAX)?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .map_err(|source| CliError::system("wait for signals", source))?;
    }
    let pool = Pool::map(CHUNKS, port.caps().frame_len_max)
        .map_err(|source| CliError::system("make room for frames", source))?;
    let mut bufs = Bufs::new(pool, CHUNKS / 4, 4);
    host.announce();
    drive(args, &mut host, port.as_mut(), &mut bufs, &stop)?;
    if stop.load(Ordering::Relaxed) {
        empty(&mut host, port.as_mut(), &mut bufs);
    }
    let report = host.report(now(), &port.counters());
    host.release(&mut bufs);
    port.release(&mut bufs);
    if args.json {
        super::write_json_at(Place::Traffic, out, &report)?;
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
        "expected {expected} frames, whole and in order; {unique} came, {flawed} with a fault"
    );
    Err(CliError::Difference(found))
}

/// Polls until all is sent and the linger is over, or a signal says stop.
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
        if !told && !progress.blocked {
            told = true;
            is_open(args)?;
        }
        if sends && host.is_done() && !progress.blocked {
            let end = *over.get_or_insert(at + linger);
            if end <= at {
                break;
            }
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

/// Says that the port is open: what is sent to it from now on is heard.
fn is_open(args: &TrafficArgs) -> Result<(), CliError> {
    let say = || anstream::eprintln!("port {} is open", args.device);
    let Some(path) = &args.ready else {
        say();
        return Ok(());
    };
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let written = made.and_then(|mut file| writeln!(file, "{}", std::process::id()));
    written.map_err(|source| CliError::File { verb: "make", path: path.clone(), source })?;
    say();
    Ok(())
}

/// Takes what has come to the port, and is on its way to it, and sends no more: until nothing comes for [`QUIET`], or
/// [`EMPTY_MAX`] is over.
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

/// What the configuration says of the host, and of the switch at the other end.
struct Given {
    /// Whether a configuration was given; else flags and their defaults are all.
    is_configured: bool,
    config: TrafficConfig,
    classes: PriMap,
    pris: usize,
    lossless: PriSet,
}

impl Given {
    fn read(args: &TrafficArgs) -> Result<Self, CliError> {
        let is_configured = args.config.is_some() || !args.set.is_empty();
        let of =
            SettingsArgs { config: args.config.clone(), port: Vec::new(), set: args.set.clone() };
        let mut settings = of.load()?;
        if let Some(count) = args.priorities {
            settings.set(&format!("switch.num_priorities={count}"), "--priorities")?;
        }
        let (config, sorts) = traffic_of(&settings)?;
        let classes = match (is_configured, sorts.pris) {
            (true, _) => PriMap::of_port(&sorts.maps, &sorts.trust, Pri::default()),
            (false, 8) => PriMap::eight(),
            (false, _) => PriMap::four(),
        };
        let (pris, lossless) = (sorts.pris, sorts.lossless);
        Ok(Self { is_configured, config, classes, pris, lossless })
    }
}

/// The host that the flags describe.
fn spec(args: &TrafficArgs) -> Result<HostSpec, CliError> {
    let given = Given::read(args)?;
    let me = Station::numbered(args.station);
    let mut spec = HostSpec::new(format!("station{}", args.station), me.mac);
    spec.parse = ParseConfig {
        afh: args.afh,
        gen2_order: args.gen2_order,
        port_mac: me.mac,
        ..ParseConfig::DEFAULT
    };
    spec.classes = given.classes;
    spec.rate = Some(LinkRate::gbps(args.gbps));
    spec.honour_pfc = !args.ignore_pfc && given.config.obeys_pfc;
    spec.slow = args.slow.map(|rate| slow(args, rate, given.lossless)).transpose()?;
    let start = now() + seconds(args.delay);
    let configured = [kind_of(given.config.format)];
    for &kind in if args.format.is_empty() { &configured[..] } else { &args.format } {
        spec.stations.push(frame(args, &given, kind, me, Station::ALL));
        for &to in &args.to {
            let base = frame(args, &given, kind, me, Station::numbered(to));
            if given.is_configured {
                check_len(&base, given.config.frame_len_max)?;
            }
            for frame in at_priorities(args, &given, &base)? {
                let stream = stream(args, frame, spec.streams.len(), start)?;
                spec.streams.push(stream);
            }
        }
    }
    Ok(spec)
}

/// `base` at each priority that is asked for.
fn at_priorities(
    args: &TrafficArgs,
    given: &Given,
    base: &FrameSpec,
) -> Result<Vec<FrameSpec>, CliError> {
    if let Some(vc) = args.vc {
        return Ok(vec![on_vc(base.clone(), vc, &given.config)?]);
    }
    let map = &given.classes;
    let existing = || Pri::ALL.into_iter().take(given.pris);
    let mut frames = Vec::new();
    for &wanted in &args.pri {
        match wanted {
            PriArg::All => {
                frames.extend(existing().filter_map(|pri| base.clone().with_pri(pri, map).ok()));
            }
            PriArg::One(pri) => {
                if !existing().any(|p| p == pri) {
                    let text = format!("--pri {}: the switch has {}", pri.get(), given.pris);
                    return Err(CliError::Usage(text));
                }
                let frame = base.clone().with_pri(pri, map);
                frames.push(frame.map_err(|error| CliError::Usage(error.to_string()))?);
            }
        }
    }
    Ok(frames)
}

/// A frame of `kind`, before its priority.
fn frame(args: &TrafficArgs, given: &Given, kind: Kind, me: Station, to: Station) -> FrameSpec {
    let mut frame = FrameSpec::new(kind, me, to).with_sizes(args.size.0.clone());
    frame.gen2_order = args.gen2_order;
    let is_ect = args.ecn || given.is_configured && given.config.ecn;
    frame.ecn = if is_ect { Ecn::Ect0 } else { Ecn::NotEct };
    let tagged = given.config.vlan && kind != Kind::Lite;
    if let Some(vid) = args.vlan.or(tagged.then_some(1)) {
        frame = frame.with_vlan(Pcp::from_low_bits(0), Vid::from_low_bits(vid));
    }
    frame
}

fn stream(
    args: &TrafficArgs,
    frame: FrameSpec,
    index: usize,
    start: Instant,
) -> Result<StreamSpec, CliError> {
    let index = u16::try_from(index).ok().filter(|&index| index < 256).ok_or_else(|| {
        CliError::Usage("expected at most 256 streams: formats x priorities x --to".to_owned())
    })?;
    frame.check().map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(StreamSpec {
        rate: args.rate.0,
        start,
        count: args.count,
        duration: args.duration.map(seconds),
        lag_max: Some(Span::from_ms(10)),
        ..StreamSpec::new(args.station << 8 | index, frame)
    })
}

/// A receiver that drains at a rate and pauses the lossless priorities.
fn slow(args: &TrafficArgs, rate: RateArg, lossless: PriSet) -> Result<SlowSpec, CliError> {
    let drain = match rate.0 {
        Rate::FrameBps(bps) | Rate::WireBps(bps) => LinkRate::bps(bps),
        _ => None,
    };
    let drain = drain.ok_or_else(|| CliError::Usage("--slow: expected N[k|M|G]bps".to_owned()))?;
    let (xon, xoff) = (args.slow_xon, args.slow_xoff);
    if xon > xoff || xoff > SLOW_CAPACITY_BYTES {
        let message = format!(
            "--slow-xon, --slow-xoff: expected XON <= XOFF <= {SLOW_CAPACITY_BYTES} bytes, found {xon} and {xoff}"
        );
        return Err(CliError::Usage(message));
    }
    Ok(SlowSpec {
        drain,
        xoff_bytes: xoff,
        xon_bytes: xon,
        capacity_bytes: SLOW_CAPACITY_BYTES,
        lossless,
        quanta: 0xFFFF,
    })
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
    let l = &report.latency;
    writeln!(
        out,
        "latency ns: min {} p50 {} p99 {} p99.9 {} max {}; PFC frames received {}",
        l.min_ps / 1_000,
        l.p50_ps / 1_000,
        l.p99_ps / 1_000,
        l.p999_ps / 1_000,
        l.max_ps / 1_000,
        report.control.pfc_rx
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: TrafficArgs,
    }

    /// The host of a command line.
    fn host(flags: &[&str]) -> Result<HostSpec, CliError> {
        let line = ["traffic", "tap:t0", "--to", "2"].iter().chain(flags);
        spec(&<Line as clap::Parser>::try_parse_from(line).unwrap().args)
    }

    #[test]
    fn a_host_is_what_its_configuration_says() {
        let frame = |flags: &[&str]| host(flags).unwrap().streams[0].frame.clone();
        let plain = frame(&[]);
        assert_eq!((plain.kind, plain.ecn, plain.vlan), (Kind::Standard, Ecn::NotEct, None));
        assert!(host(&[]).unwrap().honour_pfc);
        assert!(!host(&["--set", "traffic.flow_control_mode=none"]).unwrap().honour_pfc);
        assert_eq!(frame(&["--set", "traffic.pkt_format=gen1"]).kind, Kind::Gen1);
        assert_eq!(frame(&["--set", "traffic.lite_mode=true"]).kind, Kind::Lite);
        let both = ["--set", "traffic.pkt_format=gen1", "--format", "ethernet"];
        assert_eq!(frame(&both).kind, Kind::Ethernet, "a flag lies over it");
        let tagged = frame(&["--set", "traffic.vlan_enabled=true", "--vc", "5"]);
        assert_eq!(tagged.vlan.map(|tci| (tci.pcp().get(), tci.vid().get())), Some((5, 1)));
        assert_eq!(tagged.ecn, Ecn::Ect0, "Standard is ECN-capable unless it is said");
        assert_eq!(frame(&["--set", "traffic.ecn_capable=false"]).ecn, Ecn::NotEct);
        #[rustfmt::skip] // columns: flags, part of the refusal
        let refused: [(&[&str], &str); 4] = [
            (&["--vc", "1"], "a standard frame without one has no place for it"),
            (&["--set", "traffic.max_frame_size=100", "--size", "101"], "at most traffic.max_frame_size, 100"),
            (&["--set", "traffic.flow_control_mode=cbfc"], "take \"none\""),
            (&["--slow", "1Gbps", "--slow-xon", "70000"], "expected XON <= XOFF"),
        ];
        for (flags, part) in refused {
            let told = host(flags).map(|_| ()).unwrap_err().to_string();
            assert!(told.contains(part), "{flags:?}: {told}");
        }
    }

    #[test]
    fn a_slow_receiver_pauses_what_the_switch_must_not_lose() {
        let slow = |flags: &[&str]| {
            let all = [&["--slow", "1Gbps"][..], flags].concat();
            let slow = host(&all).unwrap().slow.unwrap();
            (slow.lossless.bits(), slow.xon_bytes, slow.xoff_bytes)
        };
        assert_eq!(slow(&[]), (0b0110, 32 << 10, 64 << 10));
        assert_eq!(slow(&["--priorities", "8"]).0, 0b1_1110);
        assert_eq!(slow(&["--set", "switch.num_priorities=8"]).0, 0b1_1110);
        assert_eq!(slow(&["--set", "pfc.pfc_priorities=[0]"]).0, 1);
        assert_eq!(slow(&["--set", "pfc.pfc_enabled=false"]).0, 0);
        assert_eq!(slow(&["--slow-xoff", "9000", "--slow-xon", "4000"]), (0b0110, 4_000, 9_000));
    }
}
