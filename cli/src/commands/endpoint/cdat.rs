//! `weft endpoint ctl HOST cdat`: latency and bandwidth of memory, as the host sees it.
//!
//! For a device, or all below the host, [`Command::Cdat`] reads the tables by DOE, of the device and of the switches on
//! the way. For a component's PID the host's GAE tells them (0702h, by [`Command::Gae`]): a row for each range of the
//! host's window that leads there. Latencies are in ns, bandwidths in MB/s.
//!
//! Source: CDAT 1.03 (DSMAS, DSLBIS); CXL 3.1 section 7.7.12.4; docs/spec/wire-formats.md §3.13, §4.4.

use std::io::{self, Write};
use std::str::FromStr;

use serde::Serialize;
use weft_cxl::cdat::HEAD;
use weft_cxl::cdat::read::Contents;
use weft_lab::endpoint::command::{AccessFigures, CdatDevice, CdatRange, Command};
use weft_lab::endpoint::number::{Hex, Id, Num};
use weft_parsers::cci::component::{Cdat, ReadCdat};
use weft_parsers::cci::{Opcode, Payload, Request};
use weft_parsers::fabric::Pid;

use crate::error::CliError;

/// Requested length in bytes: more than a mailbox holds, so the answer is as long as possible.
const MOST: u64 = 1 << 20;

/// The owner of the requested CDAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A component of the fabric.
    Pid(Pid),
    /// A device that the host has enumerated.
    Device(Id),
}

impl FromStr for Of {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains(':') {
            return text.parse().map(Self::Device);
        }
        crate::commands::pid(text).map(Self::Pid)
    }
}

/// A range of the host's window; a bandwidth of 0 means that no link bounds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    base: u64,
    len: u64,
    latency_ns: u64,
    bandwidth_mbps: u64,
}

/// The rows of a table, and whether the mailbox had room for all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Table {
    cdat: Vec<Row>,
    whole: bool,
}

/// The command that asks for the CDAT of `of`, or of all devices below the host.
pub(super) fn ask(
    of: Option<Of>,
    block: Option<Num>,
    timeout_ms: u64,
) -> Result<Command, CliError> {
    Ok(match of {
        Some(Of::Pid(pid)) => command(pid, block, timeout_ms),
        _ if block.is_some() => {
            return Err(CliError::Usage("--block is for the CDAT of a PID".to_owned()));
        }
        Some(Of::Device(bdf)) => Command::Cdat { bdf: Some(bdf), timeout_ms },
        None => Command::Cdat { bdf: None, timeout_ms },
    })
}

/// Shows the mailbox's answer; if the command was refused, `output` is `None` and `name` the reason.
pub(super) fn show(
    pid: Pid,
    name: &str,
    output: Option<&[u8]>,
    json: bool,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let table = output.and_then(read).ok_or_else(|| {
        CliError::Switch(format!("there is no CDAT of {pid} for this host: {name}"))
    })?;
    if json {
        return crate::commands::write_json(out, &table);
    }
    print(&table, out).map_err(CliError::Output)
}

/// The command that the host sends through its mailbox.
fn command(pid: Pid, block: Option<Num>, timeout_ms: u64) -> Command {
    let request = Request::ReadCdat(ReadCdat { target: pid, start: 0, len: MOST });
    let mut input = [0; 64];
    let len = request.emit(&mut input).unwrap_or_default(); // it has 20 bytes
    let input = Hex(input.get(..len).unwrap_or_default().to_vec());
    Command::Gae { opcode: Num(Opcode::READ_CDAT.0.into()), input, block, timeout_ms }
}

/// Reads the answer; `None` if it is no CDAT.
fn read(output: &[u8]) -> Option<Table> {
    let answer = Cdat::parse(output).ok()?;
    let bytes = answer.data.bytes();
    // `total` is the table's length; the data ends where the mailbox did.
    let whole = usize::try_from(answer.total).is_ok_and(|total| total <= bytes.len());
    bytes.get(..HEAD)?;
    let found = Contents::of_table(bytes);
    let rows = found.ranges.values().map(|range| Row {
        base: range.base,
        len: range.len,
        latency_ns: range.access.read_latency_ps.unwrap_or(0) / 1_000,
        bandwidth_mbps: range.access.read_bandwidth_mbps.unwrap_or(0),
    });
    Some(Table { cdat: rows.collect(), whole })
}

fn figures(it: &AccessFigures) -> String {
    let number = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
    let pair = |read: Option<u64>, write: Option<u64>, unit: &str| {
        if read == write {
            return format!("{} {unit}", number(read));
        }
        format!("{} {unit} to load, {} {unit} to store", number(read), number(write))
    };
    let latency = pair(it.read_latency_ns, it.write_latency_ns, "ns");
    format!("{latency}, {}", pair(it.read_bandwidth_mbps, it.write_bandwidth_mbps, "MB/s"))
}

/// Prints the tables of devices and of the switches above them.
pub(super) fn print_devices(devices: &[CdatDevice], out: &mut dyn Write) -> io::Result<()> {
    if devices.is_empty() {
        writeln!(out, "no device that the host has enumerated has a CDAT")?;
    }
    for CdatDevice { bdf, ranges, switches, errors } in devices {
        writeln!(out, "{}", bdf.0)?;
        for CdatRange { dpa, len, hpa, non_volatile, dynamic, device, path } in ranges {
            let kind = match (non_volatile, dynamic) {
                (false, false) => "",
                (true, false) => ", non-volatile",
                (false, true) => ", dynamic capacity",
                (true, true) => ", non-volatile, dynamic capacity",
            };
            let at = hpa.map_or("not decoded".to_owned(), |hpa| format!("at {hpa:#x}"));
            writeln!(out, "  dpa {dpa:#x}, {len:#x} bytes, {at}{kind}")?;
            writeln!(out, "    device: {}", figures(device))?;
            match path {
                Some(path) => writeln!(out, "    whole way: {}", figures(path))?,
                None => writeln!(out, "    whole way: not known")?,
            }
        }
        for switch in switches {
            let (bdf, port) = (switch.bdf.0, switch.port);
            writeln!(out, "  switch {bdf}, port {port}: {}", figures(&switch.access))?;
        }
        errors.iter().try_for_each(|error| writeln!(out, "  {error}"))?;
    }
    Ok(())
}

/// Prints a table as text.
fn print(table: &Table, out: &mut dyn Write) -> io::Result<()> {
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

    /// Tables of any content: a truncated one is reported, and nothing is read beyond its end.
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

    #[test]
    fn a_device_is_told_from_a_pid_by_its_colon() {
        assert_eq!("05:00.0".parse(), Ok(Of::Device("05:00.0".parse().unwrap())));
        assert_eq!("051".parse(), Ok(Of::Pid(Pid::from_low_bits(0x51))));
        for text in ["05:00", "fff", "x", ""] {
            assert!(text.parse::<Of>().is_err(), "{text}");
        }
    }

    #[test]
    fn devices_are_shown_with_what_is_not_known() {
        let all = |ns, mbps| AccessFigures {
            read_latency_ns: Some(ns),
            write_latency_ns: Some(ns),
            read_bandwidth_mbps: Some(mbps),
            write_bandwidth_mbps: None,
        };
        let range = CdatRange {
            len: 0x1000_0000,
            hpa: Some(1 << 39),
            device: all(150, 64_000),
            path: Some(all(250, 64_000)),
            ..CdatRange::default()
        };
        let unknown = CdatRange { hpa: None, dynamic: true, path: None, ..range.clone() };
        let device = CdatDevice {
            bdf: "05:00.0".parse().unwrap(),
            ranges: vec![range, unknown],
            switches: Vec::new(),
            errors: vec!["03:00.0: why".to_owned()],
        };
        let mut text = Vec::new();
        print_devices(&[device], &mut text).unwrap();
        let want = "05:00.0\n  dpa 0x0, 0x10000000 bytes, at 0x8000000000\n    \
                    device: 150 ns, 64000 MB/s to load, ? MB/s to store\n    \
                    whole way: 250 ns, 64000 MB/s to load, ? MB/s to store\n  \
                    dpa 0x0, 0x10000000 bytes, not decoded, dynamic capacity\n    \
                    device: 150 ns, 64000 MB/s to load, ? MB/s to store\n    \
                    whole way: not known\n  03:00.0: why\n";
        assert_eq!(String::from_utf8(text).unwrap(), want);
        let mut text = Vec::new();
        print_devices(&[], &mut text).unwrap();
        assert_eq!(text, b"no device that the host has enumerated has a CDAT\n");
    }
}
