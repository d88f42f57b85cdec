//! The capture reader: any bytes as a pcap or pcapng file.
//!
//! Shape: bytes → records or an error; what was read is written and read again.
//! Units: bytes.
//! Source: draft-ietf-opsawg-pcap-06, draft-ietf-opsawg-pcapng-05.

use std::io::Cursor;

use weft_dataplane::port::capture::{CaptureReader, Record};
use weft_dataplane::port::wire::Flaw;

/// Bytes that the records of one file may have in all, by what the file has: no file blows up.
const GROWTH: usize = 64;

/// Reads `bytes` to the end or to the first error.
///
/// # Panics
/// When more comes out than was there.
pub fn run(bytes: &[u8]) {
    let Ok(mut reader) = CaptureReader::new("fuzz", Cursor::new(bytes.to_vec())) else { return };
    let mut record = Record::default();
    let mut read = 0;
    while matches!(reader.read_into(&mut record), Ok(true)) {
        read += record.data.len();
        assert!(read <= bytes.len() + GROWTH, "{read} bytes of frames in {}", bytes.len());
        assert!(record.data.len() as u64 <= u64::from(record.orig_len), "cut, never grown");
        let flaw = record.flaw();
        assert!(!record.is_truncated() || flaw == Flaw::Truncated, "{flaw:?} of a cut frame");
    }
    assert!(matches!(reader.read_into(&mut record), Ok(false)), "an error ends the file");
}
