//! Compares captures that came out with captures that were expected.
//!
//! Two captures → [`Outcome`]: how many frames are equal, and the first [`Difference`].
//!
//! Source: docs/spec/pipeline.md §13.

use core::fmt::{self, Write};
use std::path::Path;

use weft_dataplane::port::capture::{CaptureError, CaptureReader, Record};
use weft_dataplane::port::flaw::Flaw;
use weft_parsers::ParseConfig;

use crate::decode::{decode, field_spans};

/// Options of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// How the port parses frames, to name their fields.
    pub parse: &'a ParseConfig,
    /// Whether timestamps must be equal, too.
    pub times: bool,
}

/// Result of comparing two captures.
#[derive(Debug)]
pub struct Outcome {
    /// Equal frames, up to the first difference.
    pub equal: u64,
    /// Frames in the capture that came out.
    pub got: u64,
    /// Frames in the expected capture.
    pub wanted: u64,
    pub first: Option<Difference>,
}

/// The first place where two captures differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Number of the frame, from 1.
    pub frame: u64,
    pub what: DifferenceKind,
}

/// How a frame differs. With two frames, the first came out and the second was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The capture that came out has ended.
    Missing(ShownFrame),
    /// The expected capture has ended.
    Extra(ShownFrame),
    /// Other bytes; with the first byte that differs, and the fields that do.
    Bytes(ShownFrame, ShownFrame, usize, Vec<&'static str>),
    /// The expected frame was damaged when it was captured, so the frame that was sent is not known.
    Damaged(ShownFrame),
    /// Another timestamp.
    Stamp(ShownFrame, ShownFrame),
}

/// A frame in the form in which differences show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFrame {
    pub ts_ns: u64,
    /// The decoded frame, as `weft decode` prints it.
    pub line: String,
    pub bytes: Vec<u8>,
}

impl ShownFrame {
    fn new(record: &Record, rules: Rules<'_>) -> Self {
        let line = decode(&record.data, rules.parse).to_string();
        Self { ts_ns: record.ts_ns, line, bytes: record.data.clone() }
    }
}

/// Compares the capture at `got` with the one at `want`; without `want` every frame is a difference.
///
/// # Errors
/// A capture that cannot be read.
pub fn compare(got: &Path, want: Option<&Path>, rules: Rules<'_>) -> Result<Outcome, CaptureError> {
    let mut got = CaptureReader::open(got)?;
    let mut want = want.map(CaptureReader::open).transpose()?;
    let (mut here, mut there) = (Record::default(), Record::default());
    let mut outcome = Outcome { equal: 0, got: 0, wanted: 0, first: None };
    loop {
        let came = got.read_into(&mut here)?;
        let wanted = match &mut want {
            Some(want) => want.read_into(&mut there)?,
            None => false,
        };
        outcome.got += u64::from(came);
        outcome.wanted += u64::from(wanted);
        if !came && !wanted {
            // A capture that is cut off may have lost the very frame that differs.
            return want.and_then(CaptureReader::into_cut).map_or(Ok(outcome), Err);
        }
        if outcome.first.is_some() {
            // From here on frames are only counted.
            continue;
        }
        let what = match (came, wanted) {
            (true, false) => Some(DifferenceKind::Extra(ShownFrame::new(&here, rules))),
            (false, _) => Some(DifferenceKind::Missing(ShownFrame::new(&there, rules))),
            (true, true) => differ(&here, &there, rules),
        };
        match what {
            Some(what) => {
                let frame = outcome.got.max(outcome.wanted);
                outcome.first = Some(Difference { frame, what });
            }
            None => outcome.equal += 1,
        }
    }
}

fn differ(got: &Record, want: &Record, rules: Rules<'_>) -> Option<DifferenceKind> {
    let shown = || (ShownFrame::new(got, rules), ShownFrame::new(want, rules));
    if got.data != want.data || got.orig_len != want.orig_len {
        let (got, want) = shown();
        let at = first_difference(&got.bytes, &want.bytes);
        let names = field_names(&got.bytes, &want.bytes, rules.parse);
        return Some(DifferenceKind::Bytes(got, want, at, names));
    }
    // A capture says of such a frame which bytes came, not which were sent: equal bytes prove nothing.
    if want.flaw() != Flaw::None {
        return Some(DifferenceKind::Damaged(ShownFrame::new(want, rules)));
    }
    if rules.times && got.ts_ns != want.ts_ns {
        let (got, want) = shown();
        return Some(DifferenceKind::Stamp(got, want));
    }
    None
}

/// First byte that differs, or that only one frame has.
fn first_difference(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len().min(b.len()))
}

/// Names of the fields of `want` that differ, in order and each once; `length` last.
fn field_names(got: &[u8], want: &[u8], parse: &ParseConfig) -> Vec<&'static str> {
    let mut names = Vec::new();
    for field in field_spans(want, parse) {
        let range = field.start..field.end;
        // A field may be split over several spans, which follow each other.
        if got.get(range.clone()) != want.get(range) && names.last() != Some(&field.name) {
            names.push(field.name);
        }
    }
    if got.len() != want.len() {
        names.push("length");
    }
    names
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frame = self.frame;
        match &self.what {
            DifferenceKind::Missing(want) => {
                writeln!(f, "frame {frame} is missing; expected")?;
                show(f, want, &[])
            }
            DifferenceKind::Extra(got) => {
                writeln!(f, "frame {frame} was not expected; got")?;
                show(f, got, &[])
            }
            DifferenceKind::Bytes(got, want, at, names) => {
                writeln!(f, "frame {frame} differs from byte {at} on, in {}", names.join(", "))?;
                f.write_str("got\n")?;
                show(f, got, &want.bytes)?;
                f.write_str("expected\n")?;
                show(f, want, &got.bytes)
            }
            DifferenceKind::Damaged(want) => {
                writeln!(f, "frame {frame} is wanted with a wrong FCS or an error of its link")?;
                show(f, want, &[])
            }
            DifferenceKind::Stamp(got, want) => writeln!(
                f,
                "frame {frame} is stamped {} ns, expected {} ns\n  {}",
                got.ts_ns, want.ts_ns, got.line
            ),
        }
    }
}

/// Writes a frame's line and bytes. Rows that differ from `other`, unless it is empty, begin with `>`.
fn show(f: &mut fmt::Formatter<'_>, frame: &ShownFrame, other: &[u8]) -> fmt::Result {
    writeln!(f, "  {}", frame.line)?;
    f.write_str(&hexdump(&frame.bytes, other))
}

/// Hex dump, sixteen bytes a row; see [`show`].
fn hexdump(bytes: &[u8], other: &[u8]) -> String {
    const ROW: usize = 16;
    let mut text = String::new();
    for (row, part) in bytes.chunks(ROW).enumerate() {
        let at = row * ROW;
        let same = other.is_empty() || other.get(at..at + part.len()) == Some(part);
        let _ = write!(text, "{} {at:04x} ", if same { ' ' } else { '>' }); // a String takes all
        for byte in part {
            let _ = write!(text, " {byte:02x}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::port::capture::{CaptureFormat, CaptureWriter};

    /// Stamp and bytes.
    type Stamped = (u64, Vec<u8>);
    /// Name, frames that came, frames that were wanted, whether stamps count, text of the difference.
    type Case<'a> = (&'a str, &'a [Stamped], &'a [Stamped], bool, &'a str);

    fn write(path: &Path, frames: &[Stamped]) {
        let mut capture = CaptureWriter::create(path, CaptureFormat::Pcap, 0).unwrap();
        for (ts_ns, frame) in frames {
            capture.write(*ts_ns, frame, None).unwrap();
        }
        capture.finish().unwrap();
    }

    fn frame(bytes: &[(usize, u8)]) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..16].copy_from_slice(&[0x81, 0, 0x60, 0x64]);
        for (at, byte) in bytes {
            frame[*at] = *byte;
        }
        frame
    }

    #[test]
    fn the_first_difference_is_told_with_field_names() {
        let (a, b) = (frame(&[]), frame(&[(14, 0x80), (59, 1)]));
        let long = vec![0; 61];
        #[rustfmt::skip] // columns: name, got, wanted, times, text of the difference
        let cases: &[Case<'_>] = &[
            ("equal",   &[(1, a.clone())], &[(1, a.clone())], true, ""),
            ("stamps do not count", &[(1, a.clone())], &[(2, a.clone())], false, ""),
            ("stamps count", &[(1, a.clone())], &[(2, a.clone())], true, "frame 1 is stamped 1 ns, expected 2 ns"),
            ("bytes",  &[(1, a.clone()), (2, a.clone())], &[(1, a.clone()), (2, b.clone())], false,
             "frame 2 differs from byte 14 on, in vlan.tci, payload\ngot\n"),
            ("length",  &[(1, vec![0; 60])], &[(1, long)], false, "frame 1 differs from byte 60 on, in payload, length"),
            ("missing", &[(1, a.clone())], &[(1, a.clone()), (2, b.clone())], false, "frame 2 is missing; expected\n"),
            ("extra",   &[(1, a.clone()), (2, b.clone())], &[(1, a.clone())], false, "frame 2 was not expected; got\n"),
        ];
        let dir = tempfile::tempdir().unwrap();
        let [got_path, want_path] = ["got", "want"].map(|name| dir.path().join(name));
        for (name, got, want, times, text) in cases {
            write(&got_path, got);
            write(&want_path, want);
            let rules = Rules { parse: &ParseConfig::DEFAULT, times: *times };
            let outcome = compare(&got_path, Some(&want_path), rules).unwrap();
            let said = outcome.first.map(|first| first.to_string()).unwrap_or_default();
            assert!(said.starts_with(text) && said.is_empty() == text.is_empty(), "{name}: {said}");
            assert_eq!(
                (outcome.got, outcome.wanted),
                (got.len() as u64, want.len() as u64),
                "{name}"
            );
        }
        let rules = Rules { parse: &ParseConfig::DEFAULT, times: false };
        let outcome = compare(&got_path, None, rules).unwrap();
        assert!(matches!(
            outcome.first,
            Some(Difference { frame: 1, what: DifferenceKind::Extra(_) })
        ));
    }

    #[test]
    fn rows_that_differ_are_marked() {
        let text = hexdump(&[7; 20], &[&[7; 16][..], &[8; 4]].concat());
        assert_eq!(text, format!("  0000 {}\n> 0010  07 07 07 07\n", " 07".repeat(16)));
    }
}
