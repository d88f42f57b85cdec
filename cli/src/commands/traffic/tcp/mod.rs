//! `weft traffic --tcp`: a TCP host on an interface, with the stack of virtual time.
//!
//! Flags make a [`TcpHostSpec`], a loop polls the host ([`TcpHost::poll`]), and a report concludes.
//!
//! Source: docs/tcp.md; docs/spec/model.md §7.

mod report;

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::time::{Instant, Span};
use weft_hosts::classes::PriMap;
use weft_hosts::frames::Station;
use weft_hosts::tcp::{
    Amount, ConnectionKey, ConnectionSpec, HEADERS_LEN, TcpHost, TcpHostSpec, Transfer,
};
use weft_lab::clock::now;
use weft_lab::netdev::wait;
use weft_parsers::Dscp;

use self::report::{Connections, Report};
use super::args::TrafficArgs;
use super::{CHUNKS, SLEEP_MAX_NS, is_open, seconds};
use crate::commands::write_json;
use crate::error::CliError;

/// First local port and number of ports for connections that this host begins: the dynamic ones (RFC 6335).
const PORTS: (u16, u16) = (49_152, 16_384);

/// Makes the host that the flags describe.
///
/// # Errors
/// Flags that contradict each other, or are impossible for a host.
pub(super) fn prepare(args: &TrafficArgs) -> Result<TcpHost, CliError> {
    let flags = &args.tcp;
    if flags.connect.is_none() && flags.listen.is_none() {
        return Err(usage("expected --connect ADDRESS:PORT or --listen PORT"));
    }
    let station = Station::numbered(args.station);
    let (ip, prefix_len) = flags.ip.unwrap_or((station.ip4, 16));
    let mac = flags.mac.unwrap_or(station.mac);
    if mac.is_group() {
        return Err(usage(format!("--mac {mac}: expected the address of one host")));
    }
    let at = now();
    let spec = TcpHostSpec {
        mac,
        ip,
        prefix_len,
        gateway: flags.gateway,
        directory: None,
        origin: at,
        whole: true,
        classes: PriMap::eight(),
        // From the clock, so that initial sequence numbers and ports differ from those of the run before.
        seed: at.as_ps(),
    };
    let mut host = TcpHost::new(spec).map_err(usage)?;
    host.announce();
    Ok(host)
}

fn usage(error: impl std::fmt::Display) -> CliError {
    CliError::Usage(format!("--tcp: {error}"))
}

/// Parameters of all connections.
fn connection(args: &TrafficArgs) -> ConnectionSpec {
    let flags = &args.tcp;
    ConnectionSpec {
        congestion: flags.congestion,
        mss: flags.mss,
        dscp: Dscp::from_tos(flags.dscp << 2),
        receive_buffer: flags.buffer,
        send_buffer: flags.buffer,
        rto_min: Span::from_ms(flags.rto_min),
        ack_delay: Span::ZERO,
        give_up: Some(Span::from_ms(1_000 * flags.give_up)),
    }
}

/// The data of each connection that begins at `start`.
fn transfer(args: &TrafficArgs, start: Instant) -> Transfer {
    let flags = &args.tcp;
    let lasts = args.duration.map(|duration| Amount::Until(start + seconds(duration)));
    let seed = (!flags.any_data).then_some(flags.seed);
    Transfer { send: flags.send.map(Amount::Bytes).or(lasts), expect: None, seed }
}

/// Has the host listen, or begin its connections.
fn begin(args: &TrafficArgs, host: &mut TcpHost, start: Instant) -> Result<(), CliError> {
    let (flags, spec, transfer) = (&args.tcp, connection(args), transfer(args, start));
    if let Some(port) = flags.listen {
        return host.listen(port, flags.connections, 0, &spec, transfer).map_err(usage);
    }
    let Some(to) = flags.connect else { return Ok(()) };
    let (first, count) = PORTS;
    // From another port than the run before: a peer may still have its connections in TIME-WAIT.
    let offset = u16::try_from(start.as_ps() / 1_000_000 % u64::from(count)).unwrap_or(0);
    for id in 0..flags.connections {
        let place = u16::try_from(id).unwrap_or(0).wrapping_add(offset) % count;
        let key = ConnectionKey { port: first + place, peer: *to.ip(), peer_port: to.port() };
        host.connect(start, id, key, &spec, transfer).map_err(usage)?;
    }
    Ok(())
}

/// Runs the host at `port`.
///
/// # Errors
/// As for `weft traffic`, and connections that failed or brought other data than expected.
pub(super) fn run(
    args: &TrafficArgs,
    mut host: TcpHost,
    port: &mut dyn Port,
    stop: &AtomicBool,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let (frame_len, most) = (args.tcp.mss + HEADERS_LEN, port.caps().frame_len_max);
    if frame_len > most {
        let device = &args.device;
        return Err(usage(format!(
            "--mss {}: expected at most {}, as {device} sends frames of up to {most} bytes",
            args.tcp.mss,
            most.saturating_sub(HEADERS_LEN)
        )));
    }
    let pool = Pool::map(CHUNKS, port.caps().frame_len_max)
        .map_err(|source| CliError::system("make room for frames", source))?;
    let mut bufs = Bufs::new(pool, CHUNKS / 4, 4);
    let mut connections = Connections::default();
    // Its error is returned only after host and port have given their chunks back.
    let driven = drive(args, &mut host, &mut connections, port, &mut bufs, stop);
    host.release(&mut bufs);
    port.release(&mut bufs);
    driven?;
    let report = Report::new(args, &host, connections);
    if args.json {
        write_json(out, &report)?;
    } else {
        report.print(out).map_err(CliError::Output)?;
    }
    report.verdict(args)
}

/// Polls until all connections are over, or a signal arrives.
fn drive(
    args: &TrafficArgs,
    host: &mut TcpHost,
    connections: &mut Connections,
    port: &mut dyn Port,
    bufs: &mut Bufs,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let begins = now() + seconds(args.delay);
    let (mut begun, mut told) = (false, false);
    while !stop.load(Ordering::Relaxed) {
        let at = now();
        // `--delay` is for connections that this host begins: a listener must be ready as soon as its port is.
        if !begun && (at >= begins || args.tcp.listen.is_some()) {
            begin(args, host, at)?;
            begun = true;
        }
        let Ok(progress) = host.poll(at, port, bufs) else {
            wait(port, Span::from_ms(1)); // the device is away; it may come back
            continue;
        };
        for event in host.drain_events() {
            connections.take(&event);
        }
        if !told && !progress.blocked {
            told = true;
            is_open(args)?;
        }
        if begun && connections.closed() >= u64::from(args.tcp.connections) && host.is_idle() {
            return Ok(());
        }
        if progress.sent + progress.received == 0 {
            let next = progress.next.map_or(Span::from_ns(SLEEP_MAX_NS), |next| next.since(at));
            let next = if progress.blocked { Span::from_us(50) } else { next };
            let next = if begun { next } else { next.min(begins.since(at)) };
            wait(port, next.min(Span::from_ns(SLEEP_MAX_NS)));
        }
    }
    Ok(())
}
