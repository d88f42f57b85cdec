//! Commands of a GFD, 490Ch to 4914h: who may access what (SAT), quality of service, and the decoders (GDT).
//!
//! SAT entry 4 bytes (6 with its RPID), [`QosControl`] 7, [`GdtEntry`] 32 bytes.
//!
//! Units: bytes; percent and 256ths where the field says so.
//! Source: docs/spec/wire-formats.md §4.7, §5.2; CXL 3.1 section 8.2.9.9.10.

use super::layout::{message, record};
use super::wire::{Wire, get, refused, set};
use crate::fabric::{Dpa, Hpa, Interleave, Pid};
use crate::{Field, ParseError};

record! {
    /// Request of Get SAT Entries (490Ch).
    struct SatRange: 6 {
        /// Entries.
        2 => count: u16,
        /// First requester.
        4 => start: Pid,
    }
}

/// Bit of a group access vector: the requester is notified of changes.
pub const SAT_NOTIFY: u32 = 1 << 31;

message! {
    /// Response of Get SAT Entries (490Ch).
    struct SatEntries: 6 {
        /// First requester.
        4 => start: Pid,
    }
    /// Group access vectors: bit n for group n, and [`SAT_NOTIFY`].
    2 as u16 => vectors: [u32]
}

record! {
    /// What a requester may access.
    struct SatUpdate: 6 {
        /// The requester.
        0 => rpid: Pid,
        /// Bit n for group n, and [`SAT_NOTIFY`].
        2 => vector: u32,
    }
}

message! {
    /// Request of Set SAT Entries (490Dh).
    struct SetSat: 2 {}
    /// The entries.
    0 as u16 => updates: [SatUpdate]
}

record! {
    /// Response of 490Eh, request and response of 490Fh.
    struct QosControl: 7 {
        /// Bit 0 egress congestion counts, bit 1 temporary throughput reduction counts.
        0 => control: u8,
        /// Moderate congestion from here, percent.
        1 => moderate_percent: u8,
        /// Severe congestion from here, percent.
        2 => severe_percent: u8,
        /// Backpressure is sampled every n times 8 ns.
        3 => interval: u8,
        /// Estimated requests against completions count from here.
        4 => compare_basis: u16,
        /// Completions are collected for n times 64 ns.
        6 => completion_interval: u8,
    }
}

record! {
    /// Request of 4911h.
    struct LimitRange: 4 {
        /// Requesters.
        0 => count: u16,
        /// First requester.
        2 => start: Pid,
    }
}

message! {
    /// Response of 4911h, request and response of 4912h.
    struct Limits: 4 {
        /// First requester.
        2 => start: Pid,
    }
    /// 256ths of the bandwidth; 0 for no limit.
    0 as u16 => fractions: [u8]
}

record! {
    /// Request of Get GDT Configuration (4913h).
    struct GdtRange: 6 {
        /// The requester.
        0 => rpid: Pid,
        /// Decoders.
        4 => count: u8,
        /// First decoder.
        5 => start: u8,
    }
}

/// What a decoder that is valid takes, and where it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdtDecoder {
    /// The host and the device keep it coherent (HDM-DB).
    pub coherent: bool,
    /// First address for the host.
    pub hpa: Hpa,
    /// First address in the device.
    pub dpa: Dpa,
    /// Bytes in the device.
    pub dpa_len: u64,
    /// How the range is dealt out.
    pub interleave: Interleave,
    /// Which of the ways this device is, below [`Interleave::ways`].
    pub way: u8,
}

/// A decoder of a requester: `None` when it is not valid; then nothing else of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GdtEntry {
    /// Which decoder, 0..=7.
    pub index: u8,
    /// What it takes.
    pub decoder: Option<GdtDecoder>,
}

impl Wire for GdtEntry {
    const LEN: usize = 32;

    /// Reserved interleave codes and a way that there is not are refused in a valid entry.
    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [index, valid, coherent]: [u8; 3] = get(bytes, 0)?;
        // the last bytes also find that the entry is whole
        let [ways, granularity, way, _]: [u8; 4] = get(bytes, 28)?;
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
        /// The requester.
        0 => rpid: Pid,
        /// First decoder.
        4 => start: u8,
        /// Decoders there are.
        6 => total: u8,
    }
    /// Those that were asked for.
    5 as u8 => entries: [GdtEntry]
}

message! {
    /// Request of Set GDT Configuration (4914h).
    struct SetGdt: 6 {
        /// The requester.
        0 => rpid: Pid,
        /// First decoder.
        5 => start: u8,
    }
    /// The decoders.
    4 as u8 => entries: [GdtEntry]
}
