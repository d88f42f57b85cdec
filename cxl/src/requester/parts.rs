//! One TLP of a request: as much as fits `Max_Payload_Size` or `Max_Read_Request_Size`, within 4 KiB; of UIO within `uio_max`.
//! ([`Operation`], bytes sent before) → [`Part`].
//!
//! Units: bytes, double words.
//! Source: PCIe 6.0 sections 2.2.5, 2.2.7.

use std::borrow::Cow;

use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::{At, Body, Kind};

use super::transaction::{Operation, RequesterSpec};

/// What goes into one TLP.
pub(super) struct Part<'a> {
    pub kind: Kind,
    pub body: Body,
    /// Whole double words: the operation's own where it has nothing else.
    pub payload: Cow<'a, [u8]>,
    /// Address of the first byte that counts, where that decides.
    pub addr: u64,
    /// Where in the request it begins, and how many bytes of it it is.
    pub at: usize,
    pub len: usize,
    pub last: bool,
}

/// Bytes that the answer to a request has.
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
    /// What follows the first `split` bytes.
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
        let most = most - usize::try_from(addr % most as u64).unwrap_or_default();
        let len = (whole - split).min(most);
        let [low, ..] = addr.to_le_bytes();
        let in_front = usize::from(low & 3);
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

/// Byte enables, first and last, of `len` bytes behind `in_front` ones, in `dws` double words.
fn enables(in_front: usize, len: usize, dws: usize) -> (u8, u8) {
    if len == 0 {
        return (0, 0);
    }
    let first = 0xF << in_front & 0xF;
    let past = dws * 4 - in_front - len;
    let last = 0xF >> past;
    if dws == 1 { (first & last, 0) } else { (first, last) }
}
