//! `weft endpoint ctl … ln`: lines of host memory that a device keeps copies of, and the watchers at a host.
//!
//! Makes a [`Command`] of the arguments, and prints [`LnReport`], [`LnrFunction`]s and [`LncReport`] as text.
//!
//! Source: docs/endpoint.md "Lightweight Notification".

use std::io::{self, Write};

use clap::{Args, Subcommand};
use weft_lab::endpoint::Command;
use weft_lab::endpoint::ln_report::{LnAccess, LnOutcome, LnReport, LncReport, LnrFunction};
use weft_lab::endpoint::number::{Hex, Num};

#[derive(Debug, Subcommand)]
pub(super) enum Ln {
    /// Device: read a line of the host's memory and keep a copy; the host notifies the device of its next change
    Read(Line),
    /// Device: ask whether the host accepts registrations for a page
    Probe(Line),
    /// Device: write within a line, and register the line with the host
    Write {
        #[command(flatten)]
        line: Line,
        /// Bytes to write (hexadecimal)
        #[arg(long)]
        data: Hex,
    },
    /// Device: deregister a line and discard its copy
    Drop(Line),
    /// Device: show the local copy of a line, without a request to the host
    Copy(Line),
    /// Device: show its requesters and lines; host: show the watched lines and their watchers
    Status,
}

/// A line of the host's memory.
#[derive(Args, Debug)]
pub(super) struct Line {
    /// Any address in the line
    addr: Num,
    /// Function number of the device
    #[arg(long, default_value_t = 0)]
    function: u8,
}

impl Line {
    fn access(&self, data: Option<&Hex>, timeout_ms: u64) -> LnAccess {
        let Self { addr, function } = *self;
        LnAccess { addr, data: data.cloned(), function, timeout_ms: Some(timeout_ms) }
    }
}

/// The command of the arguments.
pub(super) fn command(what: &Ln, timeout_ms: u64) -> Command {
    let plain = |line: &Line| line.access(None, timeout_ms);
    match what {
        Ln::Read(line) => Command::LnRead(plain(line)),
        Ln::Probe(line) => Command::LnProbe(plain(line)),
        Ln::Write { line, data } => Command::LnWrite(line.access(Some(data), timeout_ms)),
        Ln::Drop(line) => Command::LnDrop(plain(line)),
        Ln::Copy(line) => Command::LnCopy(plain(line)),
        Ln::Status => Command::LnStatus {},
    }
}

const fn word(outcome: LnOutcome) -> &'static str {
    match outcome {
        LnOutcome::Cached => "read, a copy is kept",
        LnOutcome::Once => "read, no copy is kept",
        LnOutcome::Failed => "failed",
        LnOutcome::Takes => "the host registers lines here",
        LnOutcome::Declines => "the host registers no lines here",
        LnOutcome::Written => "written",
        LnOutcome::Dropped => "given back",
        LnOutcome::Copy => "copy",
        LnOutcome::NoCopy => "no copy",
    }
}

/// A report in one line.
pub(super) fn summary(report: &LnReport) -> String {
    let why = report.failure.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let kept = match (report.outcome, report.copy) {
        (LnOutcome::Written, true) => ", a copy is kept",
        (LnOutcome::Written, false) => ", no copy is kept",
        _ => "",
    };
    format!("line {:#x}: {}{why}{kept}", report.line, word(report.outcome))
}

/// Prints the result of a request for a line.
pub(super) fn report(report: &LnReport, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", summary(report))?;
    report.data.as_ref().map_or(Ok(()), |data| writeln!(out, "{data}"))
}

/// Prints the requesters of a device.
pub(super) fn requesters(functions: &[LnrFunction], out: &mut dyn Write) -> io::Result<()> {
    for it in functions {
        let LnrFunction { function, id, line, limit, registered, copies, under_way, .. } = it;
        if !it.on {
            let sizes: Vec<String> = it.sizes.iter().map(ToString::to_string).collect();
            let sizes = sizes.join(" or ");
            writeln!(
                out,
                "function {function} ({id}): off; lines of {sizes} bytes, up to {}",
                it.lines_max
            )?;
            continue;
        }
        writeln!(
            out,
            "function {function} ({id}): on, lines of {line} bytes, {registered} of {limit} registered, \
             {copies} with a copy, {under_way} under way"
        )?;
        for (what, count) in [
            ("malformed messages", it.malformed),
            ("messages for another function", it.misrouted),
            ("unexpected completions", it.unexpected),
        ] {
            if count > 0 {
                writeln!(out, "  {count} {what}")?;
            }
        }
        for line in &it.lines {
            writeln!(out, "  {:#x}{}", line.addr, if line.copy { " copy" } else { "" })?;
        }
        more(it.registered, it.lines.len(), out)?;
    }
    Ok(())
}

/// Prints a host's watched lines, each with its watchers.
pub(super) fn completer(it: &LncReport, out: &mut dyn Write) -> io::Result<()> {
    let LncReport { line, lines_max, watchers_max, watched, pending, .. } = it;
    writeln!(
        out,
        "lines of {line} bytes: {watched} of {lines_max} watched, a broadcast beyond {watchers_max} watchers, \
         {pending} messages wait"
    )?;
    for requester in &it.requesters {
        let id = &requester.id;
        match requester.limit {
            Some(limit) => {
                writeln!(out, "requester {id}: {} of {limit} lines", requester.watches)?;
            }
            None => writeln!(out, "requester {id}: off, it has no lines of {line} bytes")?,
        }
    }
    for line in &it.lines {
        let by = if line.broadcast { "broadcast".to_owned() } else { line.watchers.join(" ") };
        writeln!(out, "  {:#x} {by}", line.addr)?;
    }
    more(*watched, it.lines.len(), out)?;
    let counts = it.counts.as_object().into_iter().flatten();
    for (name, count) in counts.filter(|(_, count)| count.as_u64() != Some(0)) {
        writeln!(out, "{name} {count}")?;
    }
    Ok(())
}

fn more(all: usize, listed: usize, out: &mut dyn Write) -> io::Result<()> {
    match all.saturating_sub(listed) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}
