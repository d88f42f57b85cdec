//! `weft replay --record`: repeats a recorded run and compares hashes and counters with it.
//!
//! Also writes captures and `result.json` if `--out` is given.
//!
//! Source: docs/spec/pipeline.md §13.

use std::io::Write;
use std::path::Path;

use weft_base::files::{self, OpenedBy};
use weft_control::replay::{Base, Look};
use weft_control::rerun::{Job, Record, RecordReport, ReplayError};

use super::{PageLooks, ReplayArgs, check_outputs, print_ports, tracer, write_result};
use crate::commands::{progress, write_json};
use crate::error::CliError;

/// Replays the record at `path`.
///
/// # Errors
/// A record that cannot be read; a difference between the two runs.
pub fn run(args: &ReplayArgs, path: &Path, out: &mut dyn Write) -> Result<(), CliError> {
    let failed = |problem: ReplayError| CliError::System {
        what: format!("replay record {}", path.display()),
        source: Box::new(problem),
    };
    let file = files::open(path, OpenedBy::Command).map_err(|source| CliError::File {
        verb: "read",
        path: path.to_owned(),
        source,
    })?;
    let record = Record::open(file).map_err(failed)?;
    let (ours, theirs) = (env!("CARGO_PKG_VERSION"), &record.header().weft);
    // Another version may decide differently, so a difference need not be a fault.
    if theirs != ours {
        anstream::eprintln!("warning: recorded by weft {theirs}, replayed by weft {ours}");
    }
    let text_trace = check_outputs(args, args.out.as_deref())?;
    let looks = PageLooks::new(&record.config().run.name);
    let bar = progress::spinner("steps");
    // A block of its own: the tracer borrows `out`.
    let report = {
        let tracer = tracer(args, record.config(), Base::ZERO, &mut *out)?;
        let look = |now, core: &_, is_end| looks.look(now, core, is_end);
        let look: Option<Look<'_>> = args.page.as_ref().map(|_| &look as _);
        let job = Job { out: args.out.as_deref(), look };
        weft_control::rerun::replay(record, &job, tracer, &|steps| bar.set_position(steps))
            .map_err(failed)?
    };
    bar.finish_and_clear();
    if let Some(dir) = &args.out {
        write_result(&dir.join("result.json"), &report)?;
    }
    looks.write(args.page.as_deref(), &format!("weft replay: {}", path.display()))?;
    if args.json {
        write_json(out, &report)?;
    } else if !text_trace {
        print(&report, out).map_err(CliError::Output)?;
    }
    out.flush().map_err(CliError::Output)?; // before what follows on standard error
    conclude(&report)
}

fn print(report: &RecordReport, out: &mut dyn Write) -> std::io::Result<()> {
    print_ports(&report.ports, &report.conservation, out)?;
    writeln!(out, "{} steps, {} decisions", report.steps, report.events)?;
    if let Some(recorded) = &report.recorded {
        writeln!(out, "recorded: trace hash {}, sent {}", recorded.trace_hash, recorded.sent_hash)?;
    }
    writeln!(out, "replayed: trace hash {}, sent {}", report.trace_hash, report.sent_hash)
}

/// Reports the comparison on standard error, and returns its failure.
fn conclude(report: &RecordReport) -> Result<(), CliError> {
    if let Some(at) = report.cut_at {
        anstream::eprintln!(
            "warning: the record is truncated: the entry at byte {at} is incomplete"
        );
    }
    if let Some(divergence) = &report.divergence {
        return Err(CliError::Difference(format!("differs from the record: {divergence}")));
    }
    if !report.is_equal() {
        return Err(CliError::Difference(report.differences.join("\n")));
    }
    if report.is_complete() {
        anstream::eprintln!("hashes and counters equal those recorded");
    } else {
        anstream::eprintln!(
            "warning: the record has no end: {} complete steps equal those recorded, later ones \
             are unknown",
            report.steps
        );
    }
    Ok(())
}
