//! Answers to requests: status alone, or data.
//!
//! A parsed request in, a [`TlpRepr`] of its completion out; `None` for a request that has no
//! completion. Byte count and lower address are in bytes, places in a request in DW.
//!
//! Source: PCIe 6.0 section 2.3.1.1, table 2-39; docs/spec/wire-formats.md §3.4, §3.6.

use super::fields::{DevLoad, Status};
use super::kind::{Kind, Mode};
use super::repr::{Body, TlpRepr};
use super::view::Tlp;
use crate::fabric::{Bdf, Hpa};

/// Makes completions of a completer in segment 0 with light load; the caller may change both fields
/// in the result.
#[derive(Clone, Copy, Debug)]
pub struct Completion;

impl Completion {
    /// Answers `request` with a status and no data. `None` if it wants no completion.
    #[must_use]
    pub fn of(request: &Tlp<'_>, status: Status, completer: Bdf) -> Option<TlpRepr<'static>> {
        if !request.wants_completion() {
            return None;
        }
        let locked = matches!(request.kind(), Kind::MemReadLocked);
        let completer_segment = completer_segment(request);
        let uio = uio_body(request, status, completer, 0);
        let (kind, body) = match request.kind() {
            Kind::UioRead => (Kind::UioReadCompletion { data: false }, uio),
            Kind::UioWrite => (Kind::UioWriteCompletion, uio),
            _ => (
                Kind::Completion { locked, data: false },
                Body::Completion {
                    completer,
                    completer_segment,
                    status,
                    byte_count: byte_count(request),
                    lower_address: lower_address(request),
                },
            ),
        };
        Some(answer(request, kind, body))
    }

    /// Answers a read or atomic with `data`, which starts `from_dw` DWs behind the request's address.
    /// `None` if the request wants no data, or `data` is empty or goes beyond the answer.
    #[must_use]
    pub fn with_data<'a>(
        request: &Tlp<'_>,
        completer: Bdf,
        from_dw: u16,
        data: &'a [u8],
    ) -> Option<TlpRepr<'a>> {
        // data beyond the request is refused: the requester has no room for it
        let end = usize::from(from_dw) * 4 + data.len();
        if !wants_data(request.kind()) || data.is_empty() || end > answer_bytes(request) {
            return None;
        }
        let locked = matches!(request.kind(), Kind::MemReadLocked);
        let (kind, body) = if let Kind::UioRead = request.kind() {
            let body = uio_body(request, Status::Success, completer, from_dw);
            (Kind::UioReadCompletion { data: true }, body)
        } else {
            let whole = u32::from(byte_count(request));
            let low = lower_address(request);
            // the first DW counts from its first byte that was asked for
            let done = (u32::from(from_dw) * 4).saturating_sub(u32::from(low % 4));
            let count = u16::try_from(whole.checked_sub(done).filter(|&left| left > 0)?).ok()?;
            let first = u32::from(low) + done;
            let [.., first] = first.to_be_bytes();
            let body = Body::Completion {
                completer,
                completer_segment: completer_segment(request),
                status: Status::Success,
                byte_count: count,
                lower_address: first & 0x7F,
            };
            (Kind::Completion { locked, data: true }, body)
        };
        Some(TlpRepr { payload: data, ..answer(request, kind, body) })
    }
}

/// Whether a successful answer carries data.
const fn wants_data(kind: Kind) -> bool {
    kind.is_atomic()
        || matches!(
            kind,
            Kind::MemRead
                | Kind::MemReadLocked
                | Kind::IoRead
                | Kind::CfgRead { .. }
                | Kind::UioRead
        )
}

/// Bytes of whole DWs that all completions with data return together.
const fn answer_bytes(request: &Tlp<'_>) -> usize {
    let bytes = request.length_dw() as usize * 4;
    match request.kind() {
        Kind::Cas => bytes / 2,
        _ => bytes,
    }
}

const fn uio_body(request: &Tlp<'_>, status: Status, completer: Bdf, offset_dw: u16) -> Body {
    let completer_segment = completer_segment(request);
    Body::UioCompletion {
        completer,
        completer_segment,
        status,
        dev_load: DevLoad::Light,
        offset_dw,
    }
}

/// Segment 0, where the request names its own and so the completion must name both.
const fn completer_segment(request: &Tlp<'_>) -> Option<u8> {
    match request.requester_segment() {
        Some(_) => Some(0),
        None => None,
    }
}

/// A completion with the fields that it takes over from its request.
fn answer(request: &Tlp<'_>, kind: Kind, body: Body) -> TlpRepr<'static> {
    TlpRepr {
        tc: request.tc(),
        attr: request.attr(),
        dest_segment: match request.mode() {
            Mode::Flit => request.requester_segment(),
            Mode::NonFlit => None,
        },
        ..TlpRepr::new(request.mode(), kind, request.requester(), request.tag(), body)
    }
}

/// Bytes that the first completion of `request` announces, 1..=4096: of a memory read from its first
/// to its last enabled byte, at least 1; of an atomic its operand; of all else 4.
#[must_use]
pub fn byte_count(request: &Tlp<'_>) -> u16 {
    let length = request.length_dw() * 4;
    match request.kind() {
        Kind::Cas => length / 2,
        Kind::FetchAdd | Kind::Swap => length,
        Kind::MemRead | Kind::MemReadLocked | Kind::UioRead => {
            // disabled bytes in front of the first enabled one, and behind the last, do not count
            // (table 2-39)
            let (first, last) = (request.first_be(), request.last_be());
            let in_front = u16::from(skipped_in_front(first));
            let behind = if length == 4 { first } else { last };
            // a zero-length read: its completion has one DW and announces one byte
            if behind == 0 {
                return 1;
            }
            let [.., behind] = (behind.leading_zeros() - 4).to_be_bytes();
            length.saturating_sub(in_front + u16::from(behind)).max(1)
        }
        _ => 4,
    }
}

/// Low 7 bits of the first enabled byte's address of a memory read; 0 of all else.
#[must_use]
pub fn lower_address(request: &Tlp<'_>) -> u8 {
    match request.kind() {
        Kind::MemRead | Kind::MemReadLocked => {
            let Hpa(addr) = request.addr().unwrap_or_default();
            let [.., low] = addr.to_be_bytes();
            low & 0x7C | skipped_in_front(request.first_be())
        }
        _ => 0,
    }
}

/// Bytes of the first DW in front of the first enabled one; 0 if none is.
const fn skipped_in_front(first_be: u8) -> u8 {
    match first_be & 0xF {
        0 => 0,
        bits if bits & 1 != 0 => 0,
        bits if bits & 2 != 0 => 1,
        bits if bits & 4 != 0 => 2,
        _ => 3,
    }
}
