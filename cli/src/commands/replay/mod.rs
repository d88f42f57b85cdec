//! `weft replay`: runs captures through the switch in virtual time.
//!
//! Writes a capture of each port, `result.json` and a summary, and compares them with expected captures if requested.
//!
//! Source: docs/spec/pipeline.md §13.

mod inputs;
mod record;

use std::cell::RefCell;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use weft_base::files::{self, Existing};
use weft_config::quantity::parse_time;
use weft_config::{Config, Timing};
use weft_control::page;
use weft_control::page::runs::{Looks, SwitchRun};
use weft_control::paths::Filter;
use weft_control::replay::compare::{Rules, compare};
use weft_control::replay::trace::Tracer;
use weft_control::replay::{
    Base, Conservation, Inputs, Job, JobError, Look, PortReport, Report, capture_name,
};
use weft_dataplane::pipeline::Core;
use weft_dataplane::port::capture::CaptureError;
use weft_dataplane::time::Instant;
use weft_views::results::write_file;

use self::inputs::AllGiven;
use super::{progress, write_json};
use crate::error::CliError;
use crate::settings::SettingsArgs;

/// Arguments of `weft replay`.
#[derive(Args, Debug)]
pub struct ReplayArgs {
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// Capture of the frames that arrive at a port: pcap or pcapng, also compressed by gzip or zstd
    ///
    /// FILE#INTERFACE selects one interface of a capture, by number or name. FILE can be a pipe; "-" is standard input.
    /// Without -c and --port the switch has the ports named by --in, plus a second one if that is only one.
    #[arg(long = "in", value_name = "PORT=FILE", required_unless_present_any = ["record", "in_all"])]
    pub input: Vec<String>,
    /// Capture of several interfaces: frames of interface 0 arrive at port p0, those of 1 at p1, and so on
    #[arg(long, value_name = "FILE")]
    pub in_all: Option<String>,
    /// Shorten gaps between frames to at most this, such as 1s
    #[arg(long, value_name = "DURATION", value_parser = gap)]
    pub max_gap: Option<u64>,
    /// Output folder for result.json and PORT.pcap of each port; created if missing, files in it are replaced
    #[arg(long, value_name = "DIR", required_unless_present = "record")]
    pub out: Option<PathBuf>,
    /// Repeat a run recorded by `weft run --record`, with the record's own configuration, and compare hashes
    /// and counters. Exit code 1 on a difference; --out is optional
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["input", "in_all", "max_gap", "config", "port", "set", "expect", "drop_runts"]
    )]
    pub record: Option<PathBuf>,
    /// Compare each output with DIR/PORT.pcap or .pcapng (also .gz or .zst); a port without a file must send nothing.
    /// Exit code 1 on a difference; the first one at each port is shown
    #[arg(long, value_name = "DIR")]
    pub expect: Option<PathBuf>,
    /// Compare timestamps, too
    #[arg(long, requires = "expect")]
    pub expect_times: bool,
    /// Drop frames under 60 bytes, as on a wire; by default they are taken as captured before padding
    #[arg(long)]
    pub drop_runts: bool,
    /// Write an HTML page that shows the run over time: throughput, queues, pauses, buffer, drops (docs/page.md)
    #[arg(long, value_name = "FILE")]
    pub page: Option<PathBuf>,
    /// Print result.json, too
    #[arg(long)]
    pub json: bool,
    /// Write every decision for each frame: as text to "-" (standard output), as pcapng with comments if the
    /// name ends with .pcapng, else as JSON lines
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Trace only frames that match: in=PORT, out=PORT, pri=N, format=NAME, drop or
    /// drop=REASON, joined by commas
    #[arg(long, value_name = "FILTER", requires = "trace")]
    pub trace_filter: Option<String>,
    /// Maximum number of frames to trace
    #[arg(short = 'n', long, value_name = "N", requires = "trace")]
    pub trace_count: Option<u64>,
}

/// Replays captures, or a record.
///
/// # Errors
/// A configuration or capture that is refused, or a difference from the expected output.
pub fn run(args: &ReplayArgs, out: &mut dyn Write) -> Result<(), CliError> {
    match (&args.record, &args.out) {
        (Some(record), _) => record::run(args, record, out),
        (None, Some(dir)) => run_captures(args, dir, out),
        (None, None) => Err(CliError::Usage("expected --out DIR".to_owned())),
    }
}

fn run_captures(args: &ReplayArgs, dir: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    let mut given = AllGiven::read(args)?;
    let mut sources = args.settings.sources()?;
    if sources.file.is_none() && sources.port.is_empty() {
        sources.port = given.made_ports();
    }
    let config = Config::resolve(&sources.settings()?, Timing::Virtual)?;
    for warning in &config.warnings {
        anstream::eprintln!("warning: {warning}");
    }
    let warnings = core::mem::take(&mut given.warnings);
    let by_port = given.by_port(&config)?;
    // Before the captures are opened: a folder that cannot be made must not cost a run.
    let text_trace = check_outputs(args, Some(dir))?;
    let inputs = Inputs::open(&by_port, args.max_gap).map_err(capture)?;
    inputs.warn(warnings);
    let base = inputs.base();
    let looks = PageLooks::new(&config.run.name);
    let bar = progress::spinner("frames read");
    // A block of its own: the tracer borrows `out`.
    let report = {
        let tracer = tracer(args, &config, base, &mut *out)?;
        let look = |now, core: &_, is_end| looks.look(now, core, is_end);
        let look: Option<Look<'_>> = args.page.as_ref().map(|_| &look as _);
        let drop_runts = args.drop_runts;
        let job = Job { config: &config, out: dir, drop_runts, look };
        weft_control::replay::run(&job, inputs, tracer, &|read| bar.set_position(read))
            .map_err(failed)?
    };
    bar.finish_and_clear();
    for warning in &report.warnings {
        anstream::eprintln!("warning: {warning}");
    }
    write_result(&dir.join("result.json"), &report)?;
    looks.write(args.page.as_deref(), "weft replay")?;
    if args.json {
        write_json(out, &report)?;
    } else if !text_trace {
        print(&report, out).map_err(CliError::Output)?;
    }
    // After all results are written: a difference is exit code 1, and they show its reason.
    match &args.expect {
        Some(want) => expect(args, dir, &config, want),
        None => Ok(()),
    }
}

/// Samples of the replayed switch for the page; after the last sample, the finished run.
struct PageLooks(RefCell<(Option<Looks>, Option<SwitchRun>)>);

impl PageLooks {
    fn new(name: &str) -> Self {
        Self(RefCell::new((Some(Looks::new(name)), None)))
    }

    fn look(&self, now: Instant, core: &Core, is_end: bool) {
        let (looks, run) = &mut *self.0.borrow_mut();
        if is_end {
            *run = looks.take().map(|looks| looks.finish(now, core));
        } else if let Some(looks) = looks {
            looks.look(now, core);
        }
    }

    /// Writes the page if `--page` is given.
    fn write(self, path: Option<&Path>, title: &str) -> Result<(), CliError> {
        let Some(path) = path else { return Ok(()) };
        let (_, run) = self.0.into_inner();
        let page = page::of_run("replay", title, run.as_slice());
        Ok(write_file(path, |out| out.write_all(page.as_bytes()))?)
    }
}

/// Makes the output folder. Returns whether the trace goes to standard output; `--json` is refused then.
fn check_outputs(args: &ReplayArgs, dir: Option<&Path>) -> Result<bool, CliError> {
    let text_trace = args.trace.as_deref() == Some(Path::new("-"));
    if args.json && text_trace {
        let message = "expected --trace FILE with --json, as both write to standard output";
        return Err(CliError::Usage(message.to_owned()));
    }
    if let Some(dir) = dir {
        std::fs::create_dir_all(dir).map_err(|source| CliError::File {
            verb: "make",
            path: dir.to_owned(),
            source,
        })?;
    }
    Ok(text_trace)
}

/// Turns a capture's error into a usage error (no such interface in the file) or one of the system.
fn capture(error: CaptureError) -> CliError {
    match error {
        CaptureError::NoInterface { .. } => CliError::Usage(error.to_string()),
        error => CliError::system("replay", error),
    }
}

fn gap(text: &str) -> Result<u64, String> {
    let ps = parse_time(text).filter(|ps| ps % 1_000 == 0).map(|ps| ps / 1_000);
    ps.ok_or_else(|| "expected a time of whole nanoseconds, such as 1s, 20ms or 500ns".to_owned())
}

fn failed(error: JobError) -> CliError {
    CliError::system("replay", error)
}

fn tracer<'a>(
    args: &ReplayArgs,
    config: &Config,
    base: Base,
    out: &'a mut dyn Write,
) -> Result<Option<Tracer<'a>>, CliError> {
    let Some(path) = &args.trace else { return Ok(None) };
    let ports: Vec<String> = config.switch.ports.iter().map(|port| port.name.clone()).collect();
    let number = |name: &str| {
        let index = ports.iter().position(|port| port == name);
        index.and_then(|index| u8::try_from(index).ok())
    };
    let filter = match &args.trace_filter {
        Some(text) => Some(
            Filter::parse(text, number)
                .map_err(|error| CliError::Usage(format!("--trace-filter: {error}")))?,
        ),
        None => None,
    };
    let sink = super::trace::sink(path, Existing::Result, &ports, base.ns(), out)?;
    Ok(Some(Tracer::new(sink, ports, filter, args.trace_count)))
}

fn write_result(path: &Path, report: &impl serde::Serialize) -> Result<(), CliError> {
    let write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(files::create(path, Existing::Result)?);
        serde_json::to_writer_pretty(&mut file, report)?;
        file.write_all(b"\n")?;
        file.flush()
    };
    write().map_err(|source| CliError::File { verb: "write", path: path.to_owned(), source })
}

fn print(report: &Report, out: &mut dyn Write) -> std::io::Result<()> {
    print_ports(&report.ports, &report.conservation, out)?;
    if report.xoff_overruns > 0 {
        writeln!(
            out,
            "{} frames came after XOFF: a capture does not obey PAUSE",
            report.xoff_overruns
        )?;
    }
    for violation in &report.violations {
        writeln!(out, "checker {}: {}", violation.checker, violation.saw)?;
    }
    writeln!(out, "trace hash {} over {} decisions", report.trace_hash, report.events)
}

/// Prints each port's counts, and the sum that shows that no frame is unaccounted for.
fn print_ports(
    ports: &[PortReport],
    sum: &Conservation,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    for port in ports {
        let (name, rx, captured) = (&port.name, port.rx_frames, port.captured);
        writeln!(out, "{name}: {rx} frames in, {captured} out")?;
        for (reason, count) in &port.drops {
            writeln!(out, "{name}: dropped {count} {reason}")?;
        }
    }
    writeln!(
        out,
        "rx {} + copies {} = tx {} + dropped {} + consumed {} + queued {}, unaccounted {}",
        sum.rx, sum.copies, sum.tx, sum.dropped, sum.consumed, sum.queued, sum.imbalance
    )
}

/// Compares every port's output with the expected capture.
fn expect(args: &ReplayArgs, dir: &Path, config: &Config, want: &Path) -> Result<(), CliError> {
    let wanted = wanted_captures(want, config)?;
    let (mut equal, mut differing) = (0, Vec::new());
    for (port, want) in config.switch.ports.iter().zip(&wanted) {
        let got = dir.join(capture_name(&port.name));
        let rules = Rules { parse: &port.parse, times: args.expect_times };
        let outcome = compare(&got, want.as_deref(), rules).map_err(capture)?;
        equal += outcome.equal;
        if let Some(first) = outcome.first {
            let (name, got, wanted) = (&port.name, outcome.got, outcome.wanted);
            anstream::eprint!("port {name}: {got} frames, expected {wanted}; {first}");
            differing.push(name.as_str());
        }
    }
    if differing.is_empty() {
        anstream::eprintln!("{equal} frames are as expected");
        return Ok(());
    }
    Err(CliError::Difference(format!("not as expected: port {}", differing.join(", "))))
}

/// The port to which a capture belongs by its file name; `None` for other files.
fn captured_port(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_string_lossy();
    let unpacked = [".gz", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
    let port = [".pcap", ".pcapng"].iter().find_map(|end| unpacked.strip_suffix(end))?;
    Some(port.to_owned())
}

/// The expected capture of each port. A capture of an unknown port is refused: ignored, it would pass silently.
fn wanted_captures(dir: &Path, config: &Config) -> Result<Vec<Option<PathBuf>>, CliError> {
    let error = |source| CliError::File { verb: "read", path: dir.to_owned(), source };
    let mut found = vec![None; config.switch.ports.len()];
    for entry in std::fs::read_dir(dir).map_err(error)? {
        let path = entry.map_err(error)?.path();
        let Some(name) = captured_port(&path) else { continue };
        let port = config.switch.ports.iter().position(|port| port.name == name);
        match port.and_then(|port| found.get_mut(port)) {
            Some(slot @ None) => *slot = Some(path),
            Some(Some(_)) => {
                let text =
                    format!("--expect: expected one capture of a port, found {}", path.display());
                return Err(CliError::Usage(text));
            }
            None => {
                let text =
                    format!("--expect: expected captures of ports, found {}", path.display());
                return Err(CliError::Usage(text));
            }
        }
    }
    // A wrong folder would otherwise pass for a switch that sends nothing.
    if found.iter().all(Option::is_none) {
        let text = format!("--expect: expected PORT.pcap in {}, found none", dir.display());
        return Err(CliError::Usage(text));
    }
    Ok(found)
}
