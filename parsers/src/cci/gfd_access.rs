//! Commands of a GFD, 490Ch to 4914h: access (SAT), quality of service, decoders (GDT).
//!
//! Fractions of bandwidth are in 256ths, thresholds of congestion in percent.
//!
//! Source: docs/spec/wire-formats.md §4.7, §5.2; CXL 3.1 section 8.2.9.9.10.

use super::layout::{message, record};
use super::wire::{Wire, get, refused, set};
use crate::fabric::{Dpa, Hpa, Interleave, Pid};
use crate::{Field, ParseError};

record! {
    /// Request of Get SAT Entries (490Ch).
    struct SatRange: 6 {
        /// SAT entries to return at most.
        2 => count: u16,
        /// RPID of the first entry.
        4 => start: Pid,
    }
}

/// Bit 31 of a group access vector: the requester is notified of changes and denials.
pub const SAT_NOTIFY: u32 = 1 << 31;

message! {
    /// Response of Get SAT Entries (490Ch).
    struct SatEntries: 6 {
        /// RPID of the first entry; entry n is of RPID `start` + n.
        4 => start: Pid,
    }
    /// Group access vectors: bit n for group n, and [`SAT_NOTIFY`].
    2 as u16 => vectors: [u32]
}

record! {
    /// A requester and the groups that it may access.
    struct SatUpdate: 6 {
        /// RPID of the requester.
        0 => rpid: Pid,
        /// Bit n for group n, and [`SAT_NOTIFY`].
        2 => vector: u32,
    }
}

message! {
    /// Request of Set SAT Entries (490Dh).
    struct SetSat: 2 {}
    /// Entries to write, in any order.
    0 as u16 => updates: [SatUpdate]
}

record! {
    /// Response of 490Eh, request and response of 490Fh.
    struct QosControl: 7 {
        /// Bit 0 egress congestion counts, bit 1 temporary throughput reduction counts.
        0 => control: u8,
        /// Backpressure in percent from which congestion is moderate.
        1 => moderate_percent: u8,
        /// Backpressure in percent from which congestion is severe.
        2 => severe_percent: u8,
        /// Interval between samples of backpressure, in units of 8 ns.
        3 => interval: u8,
        /// `ReqCmpBasis`: estimated most requests and recent responses of the whole device, to which the limits refer.
        4 => compare_basis: u16,
        /// Interval over which completions are counted, in units of 64 ns.
        6 => completion_interval: u8,
    }
}

record! {
    /// Request of `Get GFD QoS BW Limit` (4911h).
    struct LimitRange: 4 {
        /// Requesters to report at most.
        0 => count: u16,
        /// RPID of the first requester.
        2 => start: Pid,
    }
}

message! {
    /// Response of `Get GFD QoS BW Limit` (4911h), request and response of its Set (4912h).
    struct Limits: 4 {
        /// RPID of the first requester.
        2 => start: Pid,
    }
    /// Limit of each requester in 256ths of the bandwidth; 0 for no limit.
    0 as u16 => fractions: [u8]
}

record! {
    /// Request of Get GDT Configuration (4913h).
    struct GdtRange: 6 {
        /// RPID of the requester.
        0 => rpid: Pid,
        /// Decoders to return at most.
        4 => count: u8,
        /// Index of the first decoder, 0..=7.
        5 => start: u8,
    }
}

/// Range of addresses that a valid decoder takes, and the memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdtDecoder {
    /// Byte 2, bit 0: host and device keep the range coherent (HDM-DB).
    pub coherent: bool,
    /// HPA of the first byte.
    pub hpa: Hpa,
    /// DPA of the first byte.
    pub dpa: Dpa,
    /// Bytes of the range that lie in this device.
    pub dpa_len: u64,
    /// Ways and granularity of the interleaving.
    pub interleave: Interleave,
    /// Which of the ways this device is, below [`Interleave::ways`].
    pub way: u8,
}

/// A decoder of a requester. One that is not valid has no other field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdtEntry {
    /// Index of the decoder, 0..=7.
    pub index: u8,
    /// Its range; `None` when its valid bit is 0.
    pub decoder: Option<GdtDecoder>,
}

impl Wire for GdtEntry {
    const LEN: usize = 32;

    /// Refuses reserved interleave codes, and a way beyond the ways, but only in a valid entry.
    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [index, valid, coherent]: [u8; 3] = get(bytes, 0)?;
        // the last bytes also find that the entry is whole
        let [ways, granularity, way, _]: [u8; 4] = get(bytes, 28)?;
        // bytes of an invalid entry may be anything, reserved codes too
        if valid & 1 == 0 {
            return Ok(Self { index, decoder: None });
        }
        let codes = u16::from_be_bytes([ways, granularity]);
        let interleave =
            Interleave::from_codes(ways, granularity).ok_or(refused(Field::Interleave, codes))?;
        if u16::from(way) >= interleave.ways() {
            return Err(refused(Field::Interleave, u16::from(way)));
        }
        let decoder = GdtDecoder {
            coherent: coherent & 1 == 1,
            hpa: get(bytes, 4)?,
            dpa: get(bytes, 12)?,
            dpa_len: get(bytes, 20)?,
            interleave,
            way,
        };
        Ok(Self { index, decoder: Some(decoder) })
    }

    fn write(&self, bytes: &mut [u8]) {
        // an invalid entry leaves the zeros that the caller has put there
        set(bytes, 0, &self.index);
        if let Some(decoder) = &self.decoder {
            set(bytes, 1, &[1, u8::from(decoder.coherent)]);
            set(bytes, 4, &decoder.hpa);
            set(bytes, 12, &decoder.dpa);
            set(bytes, 20, &decoder.dpa_len);
            let (ways, granularity) =
                (decoder.interleave.ways_code(), decoder.interleave.granularity_code());
            set(bytes, 28, &[ways, granularity, decoder.way]);
        }
    }
}

message! {
    /// Response of Get GDT Configuration (4913h).
    struct Gdt: 8 {
        /// RPID of the requester.
        0 => rpid: Pid,
        /// Index of the first decoder of the list.
        4 => start: u8,
        /// Number of decoders that a requester has.
        6 => total: u8,
    }
    /// Decoders from `start` on.
    5 as u8 => entries: [GdtEntry]
}

message! {
    /// Request of Set GDT Configuration (4914h).
    struct SetGdt: 6 {
        /// RPID of the requester.
        0 => rpid: Pid,
        /// Index of the first decoder to set.
        5 => start: u8,
    }
    /// New decoders; each has its own index too.
    4 as u8 => entries: [GdtEntry]
}
