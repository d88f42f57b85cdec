//! The capture reader: any bytes as a pcap or pcapng file, packed or not.
//!
//! Bytes are read to records or an error. An error ends the file, and no record is larger than its
//! file allows.
//!
//! Source: draft-ietf-opsawg-pcap-06, draft-ietf-opsawg-pcapng-05.

use std::io::Cursor;

use weft_dataplane::port::capture::{CaptureReader, Record};
use weft_dataplane::port::flaw::Flaw;

/// Bytes that the records of a file may have beyond those of the file itself. Only a packed file
/// may grow more; no more than [`UNPACKED`] of it are read.
const GROWTH: usize = 64;
const UNPACKED: usize = 1 << 20;

/// Reads `bytes` to the end or to the first error.
///
/// # Panics
/// The records are larger than the file allows.
pub fn run(bytes: &[u8]) {
    let Ok(mut reader) = CaptureReader::new("fuzz", Cursor::new(bytes.to_vec())) else { return };
    // magic numbers of gzip, zstd and zstd's skippable frames
    let is_packed = matches!(bytes, [0x1F, 0x8B, ..] | [0x28, 0xB5, ..] | [0x50..=0x5F, 0x2A, ..]);
    let mut record = Record::default();
    let mut read = 0;
    while matches!(reader.read_into(&mut record), Ok(true)) {
        read += record.data.len();
        if is_packed && read > UNPACKED {
            return;
        }
        let most = if is_packed { UNPACKED } else { bytes.len() + GROWTH };
        assert!(read <= most, "{read} bytes of frames in {}", bytes.len());
        assert!(record.data.len() as u64 <= u64::from(record.orig_len), "cut, never grown");
        let flaw = record.flaw();
        assert!(!record.is_truncated() || flaw == Flaw::Truncated, "{flaw:?} of a cut frame");
    }
    // after an error there is no place at which a record could begin
    assert!(matches!(reader.read_into(&mut record), Ok(false)), "an error ends the file");
    assert!(reader.warnings().iter().all(|said| said.starts_with("fuzz: ")));
}
