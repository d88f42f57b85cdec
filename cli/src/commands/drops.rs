//! `weft drops`: explains drop counters, with remedies.
//!
//! Prints place, meaning and remedy of one counter, or all of docs/drops.md, which a test compares with [`page`].
//!
//! Source: `weft_dataplane::stats::DropReason`; docs/spec/pipeline.md §10.

use std::fmt::Write as _;
use std::io::Write;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::{Value, json};
use weft_dataplane::stats::{DropPlace, DropReason, DropWhere};

use super::write_json;
use crate::error::CliError;

const HEAD: &str = "# Drop counters

<!-- Made by `weft drops` from the reasons in dataplane/src/stats/reasons.rs; a test holds it against them. -->

Each frame that is dropped is counted once, with one reason, and at one port. `weft drops NAME` prints one row of this.

| where | how it looks |
|---|---|
| `weft show drops` | port, reason, frames; with `--json` `ports.PORT.REASON` and `total.REASON` |
| `weft show ports`, `weft show queues` | sums over all reasons: `dropped` of a port, `in dropped` of a port's priority |
| Prometheus | `weft_dropped_frames_total{port=\"PORT\",reason=\"REASON\"}`; `weft_queue_dropped_frames_total{port=\"PORT\",pri=\"N\"}` over all reasons |
| `result.json` of `weft replay` | `drops.REASON`, `ports[].drops.REASON`, `ports[].priorities[].drops.REASON` |
| `weft run`, `weft replay`, at the end | `PORT: dropped N REASON` |
| `weft trace drop=REASON` | the last line of the frame's path; not for frames that were dropped before or after the pipeline |

*in* is the port that received the frame; `rx_frames` counts it there, too. *out* is the port that was to send it. *pri*
means that its priority also counts it, in `priorities` and sums of queues; *pri?* only if its priority was already known.
*live* reasons occur only in switches on devices, *virtual* ones only in replay,
in models and on ports of kind `pcap`, *fabric* ones only on ports
that carry TLPs.

`kernel_rx` (`weft show drops`, `weft_port_kernel_rx_lost_total`) is not a drop of the switch: the kernel or the device
reports that it lost these frames before weft received them. Raise `rx_ring_frames` or `run.workers`; at a port with
lossless priorities the event `kernel_lost` says for how long the worker was away (docs/running.md).

| counter | counted at | meaning | what to do |
|---|---|---|---|
";

/// Arguments of `weft drops`.
#[derive(Args, Debug)]
pub struct DropsArgs {
    /// Name of the counter in `weft show drops`
    #[arg(value_name = "NAME", value_parser = names(), hide_possible_values = true)]
    name: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn names() -> PossibleValuesParser {
    DropReason::ALL.iter().map(|reason| reason.name()).collect::<Vec<_>>().into()
}

/// Prints one counter's explanation, or the whole page.
///
/// # Errors
/// Output that cannot be written.
pub fn run(args: &DropsArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let found = DropReason::ALL.iter().find(|reason| args.name.as_deref() == Some(reason.name()));
    if args.json {
        return match found {
            Some(&reason) => write_json(out, &json_of(reason)),
            None => {
                write_json(out, &DropReason::ALL.iter().copied().map(json_of).collect::<Value>())
            }
        };
    }
    let text = found.map_or_else(page, |&reason| of_one(reason));
    out.write_all(text.as_bytes()).map_err(CliError::Output)
}

/// The text of docs/drops.md.
#[must_use]
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    for &reason in DropReason::ALL {
        let cells = [
            format!("`{}`", reason.name()),
            counted_at(reason),
            reason.meaning().to_owned(),
            reason.remedy().to_owned(),
        ];
        // Markdown would end the cell at `|`, and read `<` as a tag.
        let cells = cells.map(|cell| cell.replace('|', "\\|").replace('<', "&lt;"));
        let _ = writeln!(page, "| {} |", cells.join(" | ")); // to a String: cannot fail
    }
    page
}

fn json_of(reason: DropReason) -> Value {
    json!({
        "name": reason.name(),
        "counted_at": counted_at(reason),
        "meaning": reason.meaning(),
        "remedy": reason.remedy(),
    })
}

fn of_one(reason: DropReason) -> String {
    let (name, at) = (reason.name(), counted_at(reason));
    format!("{name} ({at})\n{}\n\nWhat to do: {}\n", reason.meaning(), reason.remedy())
}

/// The place at which a reason is counted, and the kinds of switch that have it, in the page's words.
fn counted_at(reason: DropReason) -> String {
    let place = match reason.place() {
        DropPlace::Input => "in",
        DropPlace::InputPri => "in, pri",
        DropPlace::InputMaybePri => "in, pri?",
        DropPlace::Output => "out",
    };
    let by = match reason.at() {
        DropWhere::Any => "",
        DropWhere::Live => "; live",
        DropWhere::Virtual => "; virtual",
        DropWhere::Fabric => "; fabric",
    };
    format!("{place}{by}")
}
