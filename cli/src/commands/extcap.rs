//! `weft extcap`: offers ports of running switches to Wireshark as capture interfaces.
//!
//! Answers Wireshark's queries (interfaces, link types, options, a filter) with extcap sentences. A capture is one or
//! two traces of the switch, written to Wireshark's pipe as pcapng: each frame as the switch received it, with its path
//! as comment. A stamp, in ns since 1970, is the frame's receipt relative to the switch's start, added to the start's
//! time by the wall clock.
//!
//! Source: extcap(4) of Wireshark; docs/wireshark.md, "A running switch's ports".

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use weft_base::files::{self, Existing};
use weft_control::paths::{FILTER_HELP, ShownPath, Sink, TraceError};
use weft_control::report::{ShowResponse, ShowTopic, StatsSnapshot};
use weft_control::requests::{Request, next_path, sockets};
use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter};
use weft_rpc::{Client, ClientError};

use super::running::{read_answer, switch_error};
use crate::error::CliError;

/// Longest wait for a frame before the other trace is read and the pipe checked for Wireshark's departure.
const IDLE: Duration = Duration::from_millis(100);
/// Most frames that are written before the pipe is flushed and checked again.
const BURST: usize = 256;

/// Frames of a port to capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Frames {
    /// Frames received at the port, and frames forwarded to it
    #[default]
    Both,
    /// Frames received at the port
    In,
    /// Frames forwarded to the port, as they were received at other ports
    Out,
}

/// Arguments of `weft extcap`, by the names that Wireshark gives them.
#[derive(Args, Debug)]
#[command(after_help = format!(
    "Wireshark calls this through a script in its folder of extcap programs (docs/wireshark.md).\n\
     FILTER: {FILTER_HELP}"
))]
#[expect(clippy::struct_excessive_bools, reason = "Wireshark asks by flags")]
pub struct ExtcapArgs {
    /// List the interfaces, one for each port of each running switch
    #[arg(long)]
    extcap_interfaces: bool,
    /// Version of the calling Wireshark
    #[arg(long, value_name = "VERSION")]
    extcap_version: Option<String>,
    /// Interface to query or to capture at
    #[arg(long, value_name = "NAME")]
    extcap_interface: Option<String>,
    /// List the link types of the interface
    #[arg(long, requires = "extcap_interface")]
    extcap_dlts: bool,
    /// List the options of the interface
    #[arg(long, requires = "extcap_interface")]
    extcap_config: bool,
    /// Reload the values of this option
    #[arg(long, value_name = "OPTION")]
    extcap_reload_option: Option<String>,
    /// Frames to capture; without --capture, only check the filter
    #[arg(long, value_name = "FILTER", requires = "extcap_interface")]
    extcap_capture_filter: Option<String>,
    /// Capture until Wireshark closes the pipe, or the switch stops
    #[arg(long, requires = "extcap_interface", requires = "fifo")]
    capture: bool,
    /// Pipe or file to write the capture to
    #[arg(long, value_name = "FILE")]
    fifo: Option<PathBuf>,
    /// Frames of the port to capture
    #[arg(long, value_enum, default_value_t)]
    frames: Frames,
}

/// A port of a switch that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interface {
    switch: String,
    socket: PathBuf,
    port: String,
}

impl Interface {
    /// Name of the interface in Wireshark.
    fn value(&self) -> String {
        format!("weft:{}:{}", self.switch, self.port)
    }
}

/// Answers a query of Wireshark, or captures.
///
/// # Errors
/// No such interface, a switch that refuses, a pipe that cannot be written.
pub fn run(args: &ExtcapArgs, out: &mut dyn Write) -> Result<(), CliError> {
    if args.extcap_interfaces {
        return write_interfaces(&interfaces(), out).map_err(CliError::Output);
    }
    let Some(name) = &args.extcap_interface else {
        let message =
            "expected --extcap-interfaces or --extcap-interface NAME: Wireshark calls this";
        return Err(CliError::Usage(message.to_owned()));
    };
    if args.extcap_dlts {
        // Every interface has LINKTYPE_ETHERNET, so the switch need not be asked.
        let line = "dlt {number=1}{name=EN10MB}{display=Ethernet}";
        return writeln!(out, "{line}").map_err(CliError::Output);
    }
    if args.extcap_config {
        return write_options(out).map_err(CliError::Output);
    }
    let interface = find(name, interfaces())?;
    let user = args.extcap_capture_filter.as_deref().unwrap_or_default();
    let filters = filters(&interface.port, args.frames, user);
    let none =
        || format!("{user:?} leaves no frame of port {}: it names another one", interface.port);
    match &args.fifo {
        Some(_) if args.capture && filters.is_empty() => Err(CliError::Usage(none())),
        Some(fifo) if args.capture => capture(&interface, &filters, fifo),
        _ if filters.is_empty() => writeln!(out, "{}", none()).map_err(CliError::Output),
        _ => check(&interface, &filters, out),
    }
}

/// All ports of all switches that answer this user. Others are skipped silently, because Wireshark lists interfaces
/// often.
fn interfaces() -> Vec<Interface> {
    let mut found = Vec::new();
    for (switch, socket) in sockets() {
        let Ok(stats) = ask(&socket) else { continue };
        found.extend(stats.ports.into_iter().map(|port| Interface {
            switch: switch.clone(),
            socket: socket.clone(),
            port: port.name,
        }));
    }
    found
}

/// Asks a switch for all its counters, which include ports and uptime.
fn ask(socket: &Path) -> Result<StatsSnapshot, CliError> {
    let request = Request::Show { what: ShowTopic::All, restart_watermarks: false };
    let asked = Client::connect(socket).and_then(|mut client| client.request(&request));
    let answer = asked.map_err(switch_error)?;
    match read_answer(answer)? {
        ShowResponse::All(stats) => Ok(*stats),
        _ => Err(switch_error(ClientError::Answer("expected all counters".to_owned()))),
    }
}

fn find(name: &str, all: Vec<Interface>) -> Result<Interface, CliError> {
    let known: Vec<String> = all.iter().map(Interface::value).collect();
    all.into_iter().find(|one| one.value() == name).ok_or_else(|| {
        let hint = if known.is_empty() {
            "no running switch answers; it answers root and the user that runs it".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        CliError::Switch(format!("no interface {name:?}: {hint}"))
    })
}

/// Text for the braces of an extcap sentence, whose grammar has no escapes.
fn plain(text: &str) -> String {
    text.replace(['{', '}', '\n'], " ")
}

fn write_interfaces(all: &[Interface], out: &mut dyn Write) -> io::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    writeln!(out, "extcap {{version={version}}}{{display=weft}}")?;
    for one in all {
        let (value, switch, port) = (plain(&one.value()), plain(&one.switch), plain(&one.port));
        writeln!(out, "interface {{value={value}}}{{display=weft switch {switch}, port {port}}}")?;
    }
    Ok(())
}

fn write_options(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "arg {{number=0}}{{call=--frames}}{{display=Frames}}{{type=selector}}\
         {{tooltip=Frames that are forwarded to the port are shown as they came in elsewhere}}"
    )?;
    let texts = ["that come in and that leave", "that come in", "that leave"];
    for (frames, text) in Frames::value_variants().iter().zip(texts) {
        let Some(value) = frames.to_possible_value() else { continue };
        let is_default = *frames == Frames::default();
        let name = value.get_name();
        writeln!(out, "value {{arg=0}}{{value={name}}}{{display={text}}}{{default={is_default}}}")?;
    }
    Ok(())
}

/// Filters of the traces that together show the frames of `port` that the filter `user` selects, one trace for each
/// direction. A trace has one `in` and one `out` port, so a direction is left out if `user` names another port for it.
fn filters(port: &str, frames: Frames, user: &str) -> Vec<String> {
    let parts = || user.split(',').map(str::trim).filter(|part| !part.is_empty());
    let of = |key: &str| {
        let names_other = |part: &str| {
            part.split_once('=').is_some_and(|(found, value)| found == key && value != port)
        };
        let mut all: Vec<String> = parts().map(str::to_owned).collect();
        all.push(format!("{key}={port}"));
        (!parts().any(names_other)).then(|| all.join(","))
    };
    let (comes_in, leaves) = match frames {
        Frames::Both => (true, true),
        Frames::In => (true, false),
        Frames::Out => (false, true),
    };
    let wanted =
        [("in", comes_in), ("out", leaves)].into_iter().filter(|(_, is_wanted)| *is_wanted);
    wanted.filter_map(|(key, _)| of(key)).collect()
}

/// Starts a trace of `count` frames, with their bytes.
fn begin(socket: &Path, filter: &str, count: u64) -> Result<Client, ClientError> {
    let mut client = Client::connect(socket)?;
    client.request(&Request::Trace { filter: Some(filter.to_owned()), count, bytes: true })?;
    Ok(client)
}

/// Prints the error of a filter, and nothing if it is valid: Wireshark takes any output for an error.
fn check(interface: &Interface, filters: &[String], out: &mut dyn Write) -> Result<(), CliError> {
    for filter in filters {
        // A trace of no frames: the switch parses the filter and traces nothing.
        match begin(&interface.socket, filter, 0) {
            Ok(_) => {}
            Err(ClientError::Refused(refused)) => {
                return writeln!(out, "{}", refused.message).map_err(CliError::Output);
            }
            Err(error) => return Err(switch_error(error)),
        }
    }
    Ok(())
}

/// Nanoseconds since 1970, by the wall clock.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Realtime);
    let (s, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    s.saturating_mul(1_000_000_000).saturating_add(ns)
}

/// Whether the reader of `pipe` has closed it; never true for a file.
fn is_closed(pipe: &File) -> io::Result<bool> {
    let mut fds = [PollFd::new(pipe, PollFlags::empty())];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {
            let [fd] = fds;
            Ok(fd.revents().intersects(PollFlags::ERR | PollFlags::HUP))
        }
        Err(error) => Err(error.into()),
    }
}

/// Captures at `interface` until Wireshark closes the pipe, or the switch stops. Closing the connections ends the
/// traces.
fn capture(interface: &Interface, filters: &[String], fifo: &Path) -> Result<(), CliError> {
    let traces = filters
        .iter()
        .map(|filter| begin(&interface.socket, filter, u64::MAX).map_err(switch_error))
        .collect::<Result<Vec<_>, _>>()?;
    let stats = ask(&interface.socket)?;
    // Stamps of a trace count from the switch's start.
    let base_ns = now_ns().saturating_sub(stats.uptime_ns);
    let ports: Vec<String> = stats.ports.into_iter().map(|port| port.name).collect();
    let file = |source| CliError::File { verb: "write", path: fifo.to_owned(), source };
    let pipe = files::create(fifo, Existing::Refuse).map_err(file)?;
    // The writer takes one descriptor; the other one is polled for the reader's departure.
    let out = pipe.try_clone().map_err(file)?;
    let sink = CaptureWriter::new(fifo, io::BufWriter::new(out), CaptureFormat::PcapNg, 0)
        .map_err(TraceError::from)
        .and_then(|capture| Sink::capture(capture, &ports, base_ns));
    let written = sink.and_then(|sink| follow(traces, sink, &pipe));
    match written {
        // Wireshark ends a capture by closing the pipe.
        Err(error) if error.is_broken_pipe() => Ok(()),
        Err(TraceError::Write(source)) => Err(file(source)),
        Err(error) => Err(CliError::system("capture", error)),
        Ok(ended) => ended,
    }
}

/// Writes the frames of all traces until the pipe is closed or all traces have ended. The outer error is that of
/// writing, the inner one that of a trace.
fn follow(
    mut traces: Vec<Client>,
    mut sink: Sink<'_>,
    pipe: &File,
) -> Result<Result<(), CliError>, TraceError> {
    sink.flush()?; // Wireshark waits for the head
    while !traces.is_empty() {
        let mut wait = IDLE;
        let mut still = Vec::with_capacity(traces.len());
        for mut client in traces {
            match drain(&mut client, wait, &mut sink)? {
                Ok(true) => still.push(client),
                Ok(false) => {}
                Err(error) => return Ok(Err(switch_error(error))),
            }
            wait = Duration::ZERO; // one wait a round
        }
        traces = still;
        sink.flush()?;
        if is_closed(pipe)? {
            break;
        }
    }
    Ok(Ok(()))
}

/// Writes up to [`BURST`] frames of a trace, if one arrives within `wait`; returns whether the trace goes on.
fn drain(
    client: &mut Client,
    mut wait: Duration,
    sink: &mut Sink<'_>,
) -> Result<Result<bool, ClientError>, TraceError> {
    for _ in 0..BURST {
        let path: ShownPath = match client
            .has_line(wait)
            .and_then(|has| has.then(|| next_path(client)).transpose())
        {
            Ok(Some(Ok(path))) => path,
            Ok(Some(Err(_))) => return Ok(Ok(false)),
            Ok(None) => break,
            Err(error) => return Ok(Err(error)),
        };
        sink.path(&path)?;
        wait = Duration::ZERO;
    }
    Ok(Ok(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> Interface {
        Interface { switch: "s".to_owned(), socket: PathBuf::new(), port: name.to_owned() }
    }

    #[test]
    fn a_port_takes_one_trace_for_each_direction_that_the_filter_leaves() {
        #[rustfmt::skip] // columns: frames, filter of the user, filters of traces
        let cases: [(Frames, &str, &[&str]); 9] = [
            (Frames::Both, "",               &["in=p0", "out=p0"]),
            (Frames::In,   "",               &["in=p0"]),
            (Frames::Out,  "",               &["out=p0"]),
            (Frames::Both, "drop=dt, pri=3", &["drop=dt,pri=3,in=p0", "drop=dt,pri=3,out=p0"]),
            (Frames::Both, "in=p1",          &["in=p1,out=p0"]),
            (Frames::Both, "out=p1",         &["out=p1,in=p0"]),
            (Frames::Both, "in=p0",          &["in=p0,in=p0", "in=p0,out=p0"]),
            (Frames::In,   "in=p1",          &[]),
            (Frames::Both, "nonsense",       &["nonsense,in=p0", "nonsense,out=p0"]),
        ];
        for (frames, user, want) in cases {
            assert_eq!(filters("p0", frames, user), want, "{frames:?} {user:?}");
        }
    }

    #[test]
    fn sentences_are_as_wireshark_reads_them() {
        let mut out = Vec::new();
        write_interfaces(&[port("p0"), port("odd}{\n")], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("extcap {version="), "{text}");
        assert_eq!(lines[1], "interface {value=weft:s:p0}{display=weft switch s, port p0}");
        assert_eq!(lines[2], "interface {value=weft:s:odd   }{display=weft switch s, port odd   }");
        let mut out = Vec::new();
        write_options(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 4);
        assert_eq!(text.matches("{default=true}").count(), 1, "{text}");
        assert!(text.contains("value {arg=0}{value=both}"), "{text}");
    }

    #[test]
    fn an_interface_that_is_not_there_is_refused_with_those_that_are() {
        assert_eq!(find("weft:s:p0", vec![port("p0")]).unwrap(), port("p0"));
        let refused = |all| find("weft:s:p9", all).unwrap_err().to_string();
        assert!(refused(vec![port("p0")]).contains("there are weft:s:p0"));
        assert!(refused(vec![]).contains("no running switch answers"));
    }

    #[test]
    fn a_pipe_without_a_reader_is_closed_and_a_file_never_is() {
        let (reader, writer) = io::pipe().unwrap();
        let writer = File::from(std::os::fd::OwnedFd::from(writer));
        assert!(!is_closed(&writer).unwrap());
        drop(reader);
        assert!(is_closed(&writer).unwrap());
        assert!(!is_closed(&tempfile::tempfile().unwrap()).unwrap());
    }
}
