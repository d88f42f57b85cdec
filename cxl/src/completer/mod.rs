//! A completer: serves requests from memory, and splits its completions where PCIe requires it.
//!
//! [`CompleterSpec::serve`] executes a request on a [`Target`], sends the completions, and returns [`Served`].
//!
//! Units: bytes.
//! Source: PCIe 6.0 sections 2.2.7, 2.3.1.1 (read completion boundary), 2.7.2 (poisoned), 6.15 (atomics);
//! docs/spec/wire-formats.md §3.1, §3.6; CXL 3.1 section 7.7.3.3 (the prefix of a completion).

use core::ops::Range;

use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::{At, Completion, Kind, Status, Tlp, TlpRepr};

/// Read completion boundary in bytes: all completions of a read but the last one end at a multiple of it.
const RCB: u64 = 64;

/// Memory on which a completer executes requests.
pub trait Target {
    /// Whether all `len` bytes from `addr` on exist.
    fn holds(&self, addr: u64, len: u64) -> bool;
    /// Fills `into` from `addr` on; false if the memory cannot be read.
    fn read(&self, addr: u64, into: &mut [u8]) -> bool;
    /// Writes `data` from `addr` on; false if the memory cannot be written.
    fn write(&mut self, addr: u64, data: &[u8]) -> bool;
    /// Whether `len` bytes from `addr` on can be read now. If not, they will be soon, and the caller need not do
    /// anything for that.
    fn ready(&mut self, _addr: u64, _len: u64) -> bool {
        true
    }
}

/// Result of a request at a completer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Executed, and completed if a completion was due.
    Done,
    /// No such memory, or no such operation: completed with UR if a completion was due.
    Unsupported,
    /// Completed with CA if a completion was due.
    Aborted,
    /// A poisoned write: nothing was written, and it was completed with UR if a completion was due.
    Poisoned,
}

/// Limits and order of a completer's completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleterSpec {
    /// Largest payload of a completion in bytes, a power of two, 64..=4096.
    pub payload_max: usize,
    /// Send the chunks of a UIO read in reverse, an order that UIO allows.
    pub uio_last_first: bool,
}

/// Receives each completion to send.
pub type Send<'a> = dyn FnMut(&TlpRepr<'_>) + 'a;

impl CompleterSpec {
    /// Executes a memory or I/O request as the function `completer`.
    pub fn serve(
        &self,
        request: &Tlp<'_>,
        completer: Bdf,
        target: &mut dyn Target,
        send: &mut Send<'_>,
    ) -> Served {
        let Hpa(addr) = request.addr().unwrap_or_default();
        self.serve_at(request, addr, completer, target, send)
    }

    /// As [`Self::serve`], with `addr` as the request's address in `target`.
    pub fn serve_at(
        &self,
        request: &Tlp<'_>,
        addr: u64,
        completer: Bdf,
        target: &mut dyn Target,
        send: &mut Send<'_>,
    ) -> Served {
        let kind = request.kind();
        let bytes = request.access_len();
        // Addresses are untranslated or translated (AT 00, 10); the other two are no accesses to memory.
        let reserved = matches!(request.at(), At::TranslationRequest | At::Reserved);
        let is_ours = (kind.is_memory() || kind.is_io()) && kind != Kind::MemReadLocked;
        if !is_ours || reserved || !target.holds(addr, bytes) {
            self.refuse(request, Status::UnsupportedRequest, completer, send);
            return Served::Unsupported;
        }
        // Poisoned data is not written; the request is handled as unsupported (2.7.2).
        if request.ep() && kind.has_data() {
            self.refuse(request, Status::UnsupportedRequest, completer, send);
            return Served::Poisoned;
        }
        let done = match kind {
            Kind::MemRead | Kind::IoRead | Kind::UioRead => match load(request, addr, target) {
                Some(data) => {
                    self.answer(request, completer, &data, false, send);
                    return Served::Done;
                }
                None => false,
            },
            _ if kind.is_atomic() => match atomic(request, addr, target) {
                Some(old) => {
                    self.answer(request, completer, &old, false, send);
                    return Served::Done;
                }
                None => false,
            },
            _ => store(request, addr, target),
        };
        let status = if done { Status::Success } else { Status::CompleterAbort };
        self.refuse(request, status, completer, send);
        if done { Served::Done } else { Served::Aborted }
    }

    //= CXL 3.1 section 7.7.3.3: the completion of a request with a prefix carries the same PID in one
    /// Sends a completion with `status` and no data, if one is due.
    pub fn refuse(&self, request: &Tlp<'_>, status: Status, completer: Bdf, send: &mut Send<'_>) {
        if let Some(answer) = Completion::of(request, status, completer) {
            send(&TlpRepr { vend_prefix: prefix(request), ..answer });
        }
    }

    /// Completes a read with `data` in whole double words; `ln` is the LN bit of the completions.
    pub fn answer(
        &self,
        request: &Tlp<'_>,
        completer: Bdf,
        data: &[u8],
        ln: bool,
        send: &mut Send<'_>,
    ) {
        let Hpa(addr) = request.addr().unwrap_or_default();
        let mut chunks = Vec::new();
        let mut from = 0;
        while from < data.len() {
            let start = addr.wrapping_add(from as u64);
            // Each chunk but the last ends at a multiple of the RCB: the first one is shortened by its
            // misalignment.
            let past = start.wrapping_add(self.payload_max as u64) % RCB;
            let most = self.payload_max - usize::try_from(past).unwrap_or_default();
            let end = (from + most).min(data.len());
            chunks.push((from, end));
            from = end;
        }
        if self.uio_last_first && request.is_uio() {
            chunks.reverse();
        }
        for (from, end) in chunks {
            let (at, data) = (u16::try_from(from / 4), data.get(from..end).unwrap_or_default());
            let answer = Completion::with_data(request, completer, at.unwrap_or(u16::MAX), data);
            if let Some(answer) = answer {
                send(&TlpRepr { vend_prefix: prefix(request), ln, ..answer });
            }
        }
    }
}

/// The prefix for the completion of `request`.
fn prefix(request: &Tlp<'_>) -> Option<weft_parsers::tlp::VendPrefixL0> {
    // Only UIO requests are routed by the prefix; on others a switch refuses it.
    request.vend_prefix().filter(|_| request.is_uio())
}

/// Offset of the first enabled byte from the request's address, and number of bytes up to the last enabled one. For
/// a read of zero length, which enables none, all of its double word.
pub(crate) fn enabled_range(request: &Tlp<'_>) -> (u64, u64) {
    let len = request.access_len();
    let (first, last) = (request.first_be(), request.last_be());
    // Atomics access their whole operand.
    if request.kind().is_atomic() || (first == 0 && last == 0) {
        return (0, len);
    }
    let begin = first.trailing_zeros().min(4);
    let end = if len > 4 { last } else { first };
    let behind = end.leading_zeros() - 4; // of four bits
    let begin = u64::from(begin);
    (begin, (len - u64::from(behind)).saturating_sub(begin))
}

/// Clears bytes that the read does not enable, as they may belong to memory that the requester may not read.
pub(crate) fn clear_disabled(request: &Tlp<'_>, data: &mut [u8]) {
    let len = data.len();
    let (first, last) = (request.first_be(), request.last_be());
    if first == 0xF && (last == 0xF || len <= 4) {
        return;
    }
    let mut from = 0;
    for run in runs(len, first, last) {
        data.get_mut(from..run.start).unwrap_or_default().fill(0);
        from = run.end;
    }
    data.get_mut(from..).unwrap_or_default().fill(0);
}

/// The double words that a read requests, with 0 for bytes not enabled; for a read of zero length one of zeros.
pub fn load(request: &Tlp<'_>, addr: u64, target: &dyn Target) -> Option<Vec<u8>> {
    let mut data = vec![0; usize::from(request.length_dw()) * 4];
    // A read of zero length is a flush (2.2.5): it reads no byte, so unreadable memory does not fail it.
    if request.first_be() == 0 && request.last_be() == 0 {
        return Some(data);
    }
    if !target.read(addr, &mut data) {
        return None;
    }
    clear_disabled(request, &mut data);
    Some(data)
}

/// Writes the enabled bytes of a request; false if a write fails.
pub fn store(request: &Tlp<'_>, addr: u64, target: &mut dyn Target) -> bool {
    let data = request.payload();
    enabled_runs(request).all(|run| {
        let from = addr.wrapping_add(run.start as u64);
        target.write(from, data.get(run).unwrap_or_default())
    })
}

/// Runs of enabled bytes in the payload of a request.
pub(crate) fn enabled_runs(request: &Tlp<'_>) -> impl Iterator<Item = Range<usize>> {
    runs(request.payload().len(), request.first_be(), request.last_be())
}

/// Runs of enabled bytes among `len` bytes of double words.
fn runs(len: usize, first_be: u8, last_be: u8) -> impl Iterator<Item = Range<usize>> {
    let last = len / 4 - usize::from(len > 0);
    let enabled = move |at: &usize| {
        let bits = match at / 4 {
            // Before the last one: with a single double word First BE alone applies.
            0 => first_be,
            dw if dw == last => last_be,
            _ => 0xF,
        };
        bits >> (at % 4) & 1 != 0
    };
    let mut next = 0;
    core::iter::from_fn(move || {
        let from = (next..len).find(enabled)?;
        next = (from..len).find(|at| !enabled(at)).unwrap_or(len);
        Some(from..next)
    })
}

/// Executes an atomic operation, whose operands are little-endian; returns the old value.
fn atomic(request: &Tlp<'_>, addr: u64, target: &mut dyn Target) -> Option<Vec<u8>> {
    let payload = request.payload();
    let len = usize::try_from(request.access_len()).ok()?;
    let (first, second) = payload.split_at_checked(len)?;
    let mut old = vec![0; len];
    if !target.holds(addr, len as u64) || !target.read(addr, &mut old) {
        return None;
    }
    let new = match request.kind() {
        Kind::FetchAdd => {
            let mut carry = 0;
            let sums = old.iter().zip(first).map(|(a, b)| {
                let [low, high] = (u16::from(*a) + u16::from(*b) + carry).to_le_bytes();
                carry = u16::from(high);
                low
            });
            sums.collect()
        }
        Kind::Cas if old != first => old.clone(),
        Kind::Cas => second.to_vec(),
        _ => first.to_vec(),
    };
    target.write(addr, &new).then_some(old)
}

#[cfg(test)]
mod tests;
