//! `weft endpoint ctl HOST cdat`: what the way to a component costs, as the host's GAE tells it (0702h).
//!
//! Shape: PID -> [`Command::Gae`] -> a row for each range of the host's window that leads there.
//! Units: bytes, ns, MB/s.
//! Source: CDAT 1.03 (DSMAS, DSLBIS); CXL 3.1 section 7.7.12.4; docs/spec/wire-formats.md §4.4.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use weft_lab::endpoint::command::Command;
use weft_lab::endpoint::number::{Hex, Num};
use weft_parsers::cci::component::{Cdat, ReadCdat};
use weft_parsers::cci::{Opcode, Payload, Request};
use weft_parsers::fabric::Pid;

/// Bytes that are asked for: more than a mailbox holds.
const MOST: u64 = 1 << 20;
const HEAD: usize = 16;
const DSMAS: u8 = 0;
const DSLBIS: u8 = 1;
const LATENCY: u8 = 0;
const BANDWIDTH: u8 = 3;

/// A range of a host's window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    base: u64,
    len: u64,
    latency_ns: u64,
    bandwidth_mbps: u64,
}

/// What a table says, and whether the mailbox had room for all of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Table {
    cdat: Vec<Row>,
    whole: bool,
}

/// The command for the mailbox.
pub(super) fn command(pid: Pid, block: Option<Num>, timeout_ms: u64) -> Command {
    let request = Request::ReadCdat(ReadCdat { target: pid, start: 0, len: MOST });
    let mut input = [0; 64];
    let len = request.emit(&mut input).unwrap_or_default(); // it has 20 bytes
    let input = Hex(input.get(..len).unwrap_or_default().to_vec());
    Command::Gae { opcode: Num(Opcode::READ_CDAT.0.into()), input, block, timeout_ms }
}

/// Reads the answer; none where it is no CDAT.
pub(super) fn read(output: &[u8]) -> Option<Table> {
    let answer = Cdat::parse(output).ok()?;
    let bytes = answer.data.bytes();
    let whole = usize::try_from(answer.total).is_ok_and(|total| total <= bytes.len());
    let mut rows: BTreeMap<u8, Row> = BTreeMap::new();
    let mut rest = bytes.get(HEAD..)?;
    while let Some((&[kind, _, low, high], _)) = rest.split_first_chunk() {
        let len = usize::from(u16::from_le_bytes([low, high]));
        let Some((one, behind)) = rest.split_at_checked(len).filter(|_| len > 4) else { break };
        structure(kind, one, &mut rows);
        rest = behind;
    }
    Some(Table { cdat: rows.into_values().collect(), whole })
}

/// Takes one structure in.
fn structure(kind: u8, one: &[u8], rows: &mut BTreeMap<u8, Row>) {
    let word = |at: usize| {
        let bytes = one.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let byte = |at: usize| one.get(at).copied().unwrap_or_default();
    let row = rows.entry(byte(4)).or_default();
    match (kind, byte(6)) {
        (DSMAS, _) => (row.base, row.len) = (word(8), word(16)),
        (DSLBIS, what) => {
            let value = word(8).saturating_mul(u64::from(u16::from_le_bytes([byte(16), byte(17)])));
            match what {
                LATENCY => row.latency_ns = value / 1_000,
                BANDWIDTH => row.bandwidth_mbps = value,
                _ => {}
            }
        }
        _ => {}
    }
}

/// Prints it for people.
pub(super) fn print(table: &Table, out: &mut dyn Write) -> io::Result<()> {
    if table.cdat.is_empty() {
        writeln!(out, "no range of the host's window leads there")?;
    }
    for Row { base, len, latency_ns, bandwidth_mbps } in &table.cdat {
        let rate = if *bandwidth_mbps == 0 {
            "not bounded by a link".to_owned()
        } else {
            format!("{bandwidth_mbps} MB/s")
        };
        writeln!(out, "{base:#x} {len:#x} bytes: {latency_ns} ns, {rate}")?;
    }
    if table.whole {
        Ok(())
    } else {
        writeln!(out, "and further ranges, for which the mailbox has no room")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of one range, by hand.
    fn bytes() -> Vec<u8> {
        let mut all = vec![88, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        all.extend([0, 0, 24, 0, 3, 0, 0, 0]);
        all.extend(0x100_0000_0000_u64.to_le_bytes());
        all.extend(0x10_0000_0000_u64.to_le_bytes());
        for (kind, unit, value) in [(0, 1_000_u64, 205_u16), (3, 100, 1_210)] {
            all.extend([1, 0, 24, 0, 3, 0, kind, 0]);
            all.extend(unit.to_le_bytes());
            all.extend(value.to_le_bytes());
            all.extend([0; 6]);
        }
        all
    }

    fn output(total: u64, data: &[u8]) -> Vec<u8> {
        [&total.to_le_bytes()[..], &(data.len() as u64).to_le_bytes(), data].concat()
    }

    #[test]
    fn a_range_has_its_latency_and_bandwidth() {
        let row = Row { base: 1 << 40, len: 1 << 36, latency_ns: 205, bandwidth_mbps: 121_000 };
        let table = read(&output(88, &bytes())).unwrap();
        assert_eq!(table, Table { cdat: vec![row], whole: true });
        let mut text = Vec::new();
        print(&table, &mut text).unwrap();
        assert_eq!(text, b"0x10000000000 0x1000000000 bytes: 205 ns, 121000 MB/s\n");
    }

    /// Whatever a switch says: what is cut off is said, and nothing is read beyond the end.
    #[test]
    fn what_is_no_table_is_none() {
        let whole = bytes();
        for len in 0..whole.len() {
            let table = read(&output(88, &whole[..len]));
            assert!(table.is_none_or(|table| !table.whole), "{len}");
        }
        assert_eq!(read(&[]), None);
        let mut endless = whole;
        endless[18] = 0; // a structure of no length
        assert_eq!(read(&output(88, &endless)).map(|table| table.cdat.len()), Some(0));
    }

    #[test]
    fn a_request_has_the_bytes_of_the_page() {
        let Command::Gae { opcode, input, .. } = command(Pid::from_low_bits(0x51), None, 1) else {
            panic!();
        };
        assert_eq!((opcode.0, input.0.len()), (0x0702, 20));
        assert_eq!(input.0[..4], [0x51, 0, 0, 0]);
    }
}
