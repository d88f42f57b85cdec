//! The parts of a transaction, of one TLP each.
//!
//! A part fits `Max_Payload_Size` or `Max_Read_Request_Size`, for UIO `uio_max` as well, and crosses no multiple of
//! that size.
//!
//! Source: PCIe 6.0 sections 2.2.5, 2.2.7.

use std::borrow::Cow;

use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::{At, Body, Kind};

use super::transaction::{Operation, RequesterSpec};

/// The contents of one TLP.
pub(super) struct Part<'a> {
    pub kind: Kind,
    pub body: Body,
    /// Payload in whole double words; borrowed from the operation unless it has to be padded.
    pub payload: Cow<'a, [u8]>,
    /// Address of the first byte; 0 for configuration requests.
    pub addr: u64,
    /// Position in the transaction, and number of bytes.
    pub at: usize,
    pub len: usize,
    pub last: bool,
}

/// Number of bytes that a read returns; 0 for other operations.
pub(super) const fn answer_len(operation: &Operation) -> usize {
    match operation {
        Operation::Read { len, .. }
        | Operation::IoRead { len, .. }
        | Operation::UioRead { len, .. } => *len,
        Operation::ConfigRead { .. } => 4,
        _ => 0,
    }
}

impl<'a> Part<'a> {
    /// The part behind the first `split` bytes.
    pub(super) fn next(operation: &'a Operation, split: usize, spec: &RequesterSpec) -> Self {
        let none: &[u8] = &[];
        let (kind, addr, whole, data, most) = match operation {
            Operation::Read { addr, len } => (Kind::MemRead, addr.0, *len, none, spec.read_max),
            Operation::Write { addr, data } => {
                (Kind::MemWrite, addr.0, data.len(), data.as_slice(), spec.payload_max)
            }
            Operation::IoRead { port, len } => (Kind::IoRead, u64::from(*port), *len, none, 4),
            Operation::IoWrite { port, data } => {
                (Kind::IoWrite, u64::from(*port), data.len(), data.as_slice(), 4)
            }
            Operation::UioRead { addr, len } => {
                (Kind::UioRead, addr.0, *len, none, spec.read_max.min(spec.uio_max))
            }
            Operation::UioWrite { addr, data } => {
                let most = spec.payload_max.min(spec.uio_max);
                (Kind::UioWrite, addr.0, data.len(), data.as_slice(), most)
            }
            Operation::ConfigRead { dest, reg, type1 } => {
                let body = Body::Config { dest: *dest, register: reg.offset(), first_be: 0xF };
                let kind = Kind::CfgRead { type1: *type1 };
                return Self {
                    kind,
                    body,
                    payload: Cow::default(),
                    addr: 0,
                    at: 0,
                    len: 4,
                    last: true,
                };
            }
            Operation::ConfigWrite { dest, reg, type1, value, enables } => {
                let (register, first_be) = (reg.offset(), enables.bits());
                let body = Body::Config { dest: *dest, register, first_be };
                let (kind, payload) =
                    (Kind::CfgWrite { type1: *type1 }, Cow::Owned(value.to_le_bytes().to_vec()));
                return Self { kind, body, payload, addr: 0, at: 0, len: 0, last: true };
            }
        };
        let addr = addr.wrapping_add(split as u64);
        // Sizes divide 4 KiB, so a request that crosses no multiple of its size crosses no 4 KiB boundary (2.2.7).
        let most = most - usize::try_from(addr % most as u64).unwrap_or_default();
        let len = (whole - split).min(most);
        let [low, ..] = addr.to_le_bytes();
        let in_front = usize::from(low & 3);
        // A request of zero length has one double word with no byte enabled (2.2.5).
        let dws = (in_front + len).div_ceil(4).max(1);
        let from = data.get(split..split + len).unwrap_or_default();
        let payload = if !kind.has_data() || from.len() == dws * 4 {
            Cow::Borrowed(from)
        } else {
            let mut payload = vec![0; dws * 4];
            if let Some(place) = payload.get_mut(in_front..in_front + from.len()) {
                place.copy_from_slice(from);
            }
            Cow::Owned(payload)
        };
        let (first_be, last_be) = enables(in_front, len, dws);
        // Memory below 4 GiB must have the 3-DW header (2.2.4.1); UIO has only the one with 64 bits.
        let wide = !kind.is_io() && (addr >> 32 != 0 || kind.is_uio());
        let body = Body::Address {
            addr: Hpa(addr & !3),
            wide,
            at: At::Untranslated,
            no_write: false,
            length_dw: u16::try_from(dws).unwrap_or(u16::MAX),
            first_be,
            last_be,
        };
        Self { kind, body, payload, addr, at: split, len, last: split + len == whole }
    }
}

/// First and last byte enables for `len` bytes that start `in_front` bytes into `dws` double words.
fn enables(in_front: usize, len: usize, dws: usize) -> (u8, u8) {
    if len == 0 {
        return (0, 0);
    }
    let first = 0xF << in_front & 0xF;
    let past = dws * 4 - in_front - len;
    let last = 0xF >> past;
    // With one double word both conditions apply to First BE, and Last BE must be 0 (2.2.5).
    if dws == 1 { (first & last, 0) } else { (first, last) }
}
