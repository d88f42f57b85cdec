//! Imports a capture as messages of one host.
//!
//! Each frame becomes a message of its length at its time, counted from that of the first frame.
//!
//! Source: docs/spec/model.md §3.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use weft_dataplane::port::capture::{CaptureReader, Choice, Record};
use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::time::Instant;
use weft_sim::scenario::flow::Flow;

use super::{FLOWS_MAX, Imported};
use crate::quantity::TIME_PS_MAX;
use crate::scenario::problem;
use crate::{Place, Problem};

/// Hosts by destination address: each new address gets the next host that is not the sender.
struct Receivers<I> {
    known: BTreeMap<[u8; 6], u16>,
    others: I,
}

impl<I: Iterator<Item = u16>> Receivers<I> {
    fn host(&mut self, dst: [u8; 6]) -> Option<u16> {
        match self.known.entry(dst) {
            Entry::Occupied(known) => Some(*known.get()),
            Entry::Vacant(new) => self.others.next().map(|host| *new.insert(host)),
        }
    }
}

/// Reads frames of the interfaces of `choice` in a capture as messages of host `from`. All go to host `to`; without
/// it each destination address is another host, in the order in which the addresses appear. Frames that were damaged
/// on their way to the capture are left out, as their addresses may be wrong.
///
/// # Errors
/// The file is no capture, or damaged; it has more destinations than there are hosts, or lasts longer than a run can.
pub fn capture(
    file: &str,
    bytes: Vec<u8>,
    choice: Choice,
    from: u16,
    to: Option<u16>,
    hosts: usize,
) -> Result<Imported<Vec<Flow>>, Problem> {
    let refuse = |what: &dyn std::fmt::Display| {
        problem(Place::WholeFile(file.to_owned()), "", what.to_string())
    };
    let damaged = |error: &dyn std::fmt::Display| {
        refuse(&format_args!("expected a capture, pcap or pcapng: {error}"))
    };
    let reader = CaptureReader::new(file, std::io::Cursor::new(bytes));
    let mut reader = reader.map_err(|error| damaged(&error))?.only(choice);
    // A host does not send to itself.
    let others = (0..).take(hosts).filter(|&host| host != from);
    let mut receivers = Receivers { known: BTreeMap::new(), others };
    let (mut record, mut flows, mut first) = (Record::default(), Vec::new(), None);
    let (mut frame, mut left_out) = (0_u64, 0_u64);
    while reader.read_into(&mut record).map_err(|error| damaged(&error))? {
        frame += 1;
        if flows.len() == FLOWS_MAX {
            return Err(damaged(&format_args!("expected at most {FLOWS_MAX} frames, found more")));
        }
        if matches!(record.flaw(), Flaw::Fcs | Flaw::Runt) {
            left_out += 1;
            continue;
        }
        let first = *first.get_or_insert(record.ts_ns);
        // Stamps of a capture need not be in order: an earlier one counts as the first.
        let after_ns = record.ts_ns.saturating_sub(first);
        if after_ns > TIME_PS_MAX / 1_000 {
            return Err(refuse(&format_args!(
                "expected frames within 100 days, found frame {frame} {after_ns} ns after the first one"
            )));
        }
        let to = match (to, record.data.first_chunk()) {
            (Some(to), _) => to,
            (None, Some(dst)) => receivers.host(*dst).ok_or_else(|| {
                refuse(&format_args!("expected at most {} destination addresses, one for each host beside the sender, found more: name a receiver in `to`", hosts.saturating_sub(1)))
            })?,
            (None, None) => {
                return Err(refuse(&format_args!("expected a destination address in frame {frame}, found {} bytes: name a receiver in `to`", record.data.len())));
            }
        };
        // The length on the wire, also of a frame that the capture cut off.
        let bytes = u64::from(record.orig_len).max(1);
        flows.push(Flow { start: Instant::from_ns(after_ns), ..Flow::new(from, to, bytes) });
    }
    let mut warnings: Vec<Problem> =
        reader.warnings().iter().map(|warning| refuse(warning)).collect();
    if left_out > 0 {
        warnings.push(refuse(&format_args!(
            "{left_out} of {frame} frames were damaged when they were captured, and are left out"
        )));
    }
    Ok(Imported { what: flows, warnings })
}
