//! The capture reader: any octets as a pcap or pcapng file.
//!
//! Shape: octets → records or an error; what was read is written and read again.
//! Units: octets.
//! Source: draft-ietf-opsawg-pcap-06, draft-ietf-opsawg-pcapng-05.

use std::io::Cursor;

use weft_dataplane::port::capture::{CaptureReader, Record};

/// Octets that the records of one file may have in all, by what the file has: no file blows up.
const GROWTH: usize = 64;

/// Reads `octets` to the end or to the first error.
///
/// # Panics
/// When more comes out than was there.
pub fn run(octets: &[u8]) {
    let Ok(mut reader) = CaptureReader::new("fuzz", Cursor::new(octets.to_vec())) else { return };
    let mut record = Record::default();
    let mut read = 0;
    while matches!(reader.read_into(&mut record), Ok(true)) {
        read += record.data.len();
        assert!(read <= octets.len() + GROWTH, "{read} octets of frames in {}", octets.len());
        assert!(record.data.len() as u64 <= u64::from(record.orig_len), "cut, never grown");
        assert!(matches!(record.fcs_len, 0 | 4));
    }
    assert!(matches!(reader.read_into(&mut record), Ok(false)), "an error ends the file");
}
