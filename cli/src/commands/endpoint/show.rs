//! Prints an endpoint's [`Answer`] as text.
//!
//! Source: docs/endpoint.md.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::Value;

use super::ln;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{LoadReport, Status, TransferReport};

fn failures(all: &BTreeMap<String, u64>) -> String {
    let each: Vec<String> = all.iter().map(|(how, count)| format!("{how} {count}")).collect();
    if each.is_empty() { String::new() } else { format!(" ({})", each.join(", ")) }
}

fn transfer(report: &TransferReport, out: &mut dyn Write) -> io::Result<()> {
    if let Some(data) = &report.data {
        return writeln!(out, "{data}").and_then(|()| refusals(report, out));
    }
    let TransferReport { written, read, requests, ns, .. } = report;
    writeln!(out, "written {written}, read {read} bytes by {requests} requests in {ns} ns")?;
    refusals(report, out)
}

fn refusals(report: &TransferReport, out: &mut dyn Write) -> io::Result<()> {
    if let Some(at) = report.first_failed {
        let how = failures(&report.failures);
        writeln!(out, "failed {}{how}, the first at {at:#x}", report.failed)?;
    }
    if let Some(at) = report.first_mismatch {
        writeln!(out, "{} bytes differ, the first at {at:#x}", report.mismatched)?;
    }
    if report.timed_out {
        writeln!(out, "not all was done in time")?;
    }
    Ok(())
}

fn load(report: &LoadReport, out: &mut dyn Write) -> io::Result<()> {
    load_as(report, if report.running { "running" } else { "ended" }, out)
}

/// Prints a load that was told to stop, which it does when its round is over.
pub(super) fn load_stopped(report: &LoadReport, out: &mut dyn Write) -> io::Result<()> {
    load_as(report, if report.running { "ends after this round" } else { "ended" }, out)
}

fn load_as(report: &LoadReport, state: &str, out: &mut dyn Write) -> io::Result<()> {
    let LoadReport { done, failed, mismatched, bytes, failures: how, .. } = report;
    let LoadReport { requests, answered, wrong, posted, unanswered, under_way, .. } = report;
    let how = failures(how);
    writeln!(
        out,
        "{state}: {done} rounds done, {failed} failed{how}, {mismatched} bytes differ, {bytes} moved"
    )?;
    writeln!(
        out,
        "{requests} requests: {answered} answered well, {wrong} wrong, {posted} posted, {unanswered} not in the round's time, {under_way} under way"
    )
}

fn status(status: &Status, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} {}", status.kind, status.name)?;
    for (number, link) in status.links.iter().enumerate() {
        let state = if link.up { "up" } else { "down" };
        writeln!(out, "link {number}: {} {state}", link.device)?;
    }
    fields("", &status.counts, out)?;
    fields("", &status.detail, out)
}

/// Prints a JSON value's non-zero numbers and its texts, a line each, with dotted names.
fn fields(name: &str, value: &Value, out: &mut dyn Write) -> io::Result<()> {
    match value {
        Value::Object(all) => all.iter().try_for_each(|(key, value)| {
            let dot = if name.is_empty() { "" } else { "." };
            fields(&format!("{name}{dot}{key}"), value, out)
        }),
        Value::Array(all) => all
            .iter()
            .enumerate()
            .try_for_each(|(at, value)| fields(&format!("{name}[{at}]"), value, out)),
        Value::Null => Ok(()),
        value if value.as_u64() == Some(0) => Ok(()),
        Value::String(text) => writeln!(out, "{name} {text}"),
        value => writeln!(out, "{name} {value}"),
    }
}

/// Prints an answer as text.
pub(super) fn print(answer: &Answer, out: &mut dyn Write) -> io::Result<()> {
    match answer {
        Answer::Done => writeln!(out, "done"),
        Answer::Status(it) => status(it, out),
        Answer::Events { events, lost } => {
            if *lost > 0 {
                writeln!(out, "{lost} events were lost")?;
            }
            events.iter().try_for_each(|event| {
                writeln!(out, "{} {} {}: {}", event.number, event.at_ns, event.kind, event.text)
            })
        }
        Answer::Tree { text, .. } if text.is_empty() => writeln!(out, "nothing was enumerated yet"),
        Answer::Tree { text, .. } => write!(out, "{text}"),
        Answer::Cdat { devices } => super::cdat::print_devices(devices, out),
        Answer::Register { value } => writeln!(out, "{value:#010x}"),
        Answer::Transfer(report) => transfer(report, out),
        Answer::Load(report) => load(report, out),
        Answer::Ln(report) => ln::report(report, out),
        Answer::LnRequesters { functions } => ln::requesters(functions, out),
        Answer::LnCompleter(report) => ln::completer(report, out),
        Answer::Mem(answer) => super::mem::print(answer, out),
        Answer::Response { code, name, vendor, output } => {
            writeln!(out, "{name} ({code:#06x}), vendor status {vendor:#06x}")?;
            if output.0.is_empty() { Ok(()) } else { writeln!(out, "{output}") }
        }
        Answer::Ring { entries, overflow } => {
            if *overflow {
                writeln!(out, "others found no room")?;
            }
            entries.iter().try_for_each(|entry| writeln!(out, "{entry}"))
        }
    }
}
