//! `weft trace`: the path of frames through a running switch, stage by stage.
//!
//! Writes the paths of frames that match a filter: as text or JSON lines in order of time, or as pcapng with comments.
//! Text has seconds since the switch's start and nanoseconds since the frame's receipt, pcapng nanoseconds since the
//! start, JSON picoseconds since the start.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use weft_base::files::{self, Existing};
use weft_control::paths::{FILTER_HELP, Lines, Sink, TraceError};
use weft_control::report::{ShowResponse, ShowTopic};
use weft_control::requests::{Request, next_path};
use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter};
use weft_rpc::{Client, ClientError};

use super::running::{SwitchArgs, read_answer, switch_error};
use crate::error::CliError;

/// How long a line waits for earlier ones. Lines of frames that spend more time in the switch come out of order.
const HOLD: Duration = Duration::from_millis(200);

/// Arguments of `weft trace`.
#[derive(Args, Debug)]
#[command(after_help = format!("FILTER: {FILTER_HELP}"))]
pub struct TraceArgs {
    /// Frames to follow; all by default
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Number of frames to follow
    #[arg(short = 'n', long, default_value_t = 1)]
    count: u64,
    /// Print JSON, one object per line, with the values behind each decision
    #[arg(long)]
    json: bool,
    /// Destination: text to "-" (standard output); pcapng if the name ends with .pcapng, with the frames as
    /// received, their paths as comments, and timestamps since the switch's start; else JSON lines
    #[arg(long, value_name = "FILE", default_value = "-", conflicts_with = "json")]
    out: PathBuf,
    /// Replace an existing file
    #[arg(long)]
    overwrite: bool,
    #[command(flatten)]
    switch: SwitchArgs,
}

/// Follows frames until `count` were seen, or the switch stops.
///
/// # Errors
/// No switch answers, it refuses the filter, or a file cannot be written.
pub fn run(args: &TraceArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let mut client = args.switch.connect()?;
    // The switch sends the frames' bytes only where pcapng needs them.
    let bytes = !args.json && is_capture(&args.out);
    let ports = if bytes { ports(&mut client)? } else { Vec::new() };
    let request = Request::Trace { filter: args.filter.clone(), count: args.count, bytes };
    client.request(&request).map_err(switch_error)?;
    // After the switch has accepted the filter: a refused one must not replace a file.
    let existing = Existing::replace_if(args.overwrite);
    let mut sink =
        if args.json { Sink::json(out) } else { sink(&args.out, existing, &ports, 0, out)? };
    let write = |error| failed(&args.out, error);
    if sink.takes_stages() {
        return in_order(&mut client, &mut sink, write);
    }
    while let Ok(path) = next_path(&mut client).map_err(switch_error)? {
        // Flushed for each frame: an interrupted trace has all frames until then.
        sink.path(&path).and_then(|()| sink.flush()).map_err(write)?;
    }
    Ok(())
}

/// Writes the lines of all paths in order of time. Frames overlap in the switch and are reported as they leave it. An
/// interrupted trace has all lines but those of the last [`HOLD`].
fn in_order(
    client: &mut Client,
    sink: &mut Sink<'_>,
    failed: impl Fn(TraceError) -> CliError,
) -> Result<(), CliError> {
    let hold_ps = u64::try_from(HOLD.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000);
    let mut lines = Lines::default();
    loop {
        let told = match client.has_line(HOLD) {
            Ok(true) => next_path(client).map(Some),
            // Silence for `HOLD` settles all lines that wait.
            Ok(false) => Ok(None), // whatever still comes is late
            Err(error) => Err(error),
        };
        let (written, ended) = match told {
            Ok(Some(Ok(path))) => {
                lines.add(path);
                (lines.write_settled(hold_ps, sink), None)
            }
            Ok(None) => (lines.write_before(None, sink), None),
            Ok(Some(Err(_))) => (lines.write_before(None, sink), Some(Ok(()))),
            Err(error) => (lines.write_before(None, sink), Some(Err(switch_error(error)))),
        };
        written.and_then(|()| sink.flush()).map_err(&failed)?;
        if let Some(ended) = ended {
            return ended;
        }
    }
}

/// Asks the switch for the names of its ports.
fn ports(client: &mut Client) -> Result<Vec<String>, CliError> {
    let request = Request::Show { what: ShowTopic::Ports, restart_watermarks: false };
    let answer = client.request(&request).map_err(switch_error)?;
    match read_answer(answer)? {
        ShowResponse::Ports(ports) => Ok(ports.into_iter().map(|port| port.name).collect()),
        _ => Err(switch_error(ClientError::Answer("expected ports".to_owned()))),
    }
}

fn is_capture(path: &Path) -> bool {
    CaptureFormat::for_path(path) == CaptureFormat::PcapNg
}

/// The sink for `path`: text to `out` for "-", pcapng if the name ends with .pcapng, else JSON lines. A stamp of pcapng
/// is `base_ns` plus the time of receipt.
pub(super) fn sink<'a>(
    path: &Path,
    existing: Existing,
    ports: &[String],
    base_ns: u64,
    out: &'a mut dyn Write,
) -> Result<Sink<'a>, CliError> {
    if path == Path::new("-") {
        return Ok(Sink::text(out));
    }
    if is_capture(path) {
        let made = CaptureWriter::create_as(path, existing, CaptureFormat::PcapNg, 0);
        return made
            .map_err(TraceError::from)
            .and_then(|capture| Sink::capture(capture, ports, base_ns))
            .map_err(|error| failed(path, error));
    }
    match files::create(path, existing) {
        Ok(file) => Ok(Sink::json(BufWriter::new(file))),
        Err(error) => Err(failed(path, error.into())),
    }
}

fn failed(path: &Path, error: TraceError) -> CliError {
    match error {
        TraceError::Write(source) if path == Path::new("-") => CliError::Output(source),
        TraceError::Write(source) => {
            CliError::File { verb: "write", path: path.to_owned(), source }
        }
        error @ TraceError::Capture(_) => CliError::system("trace", error),
    }
}
