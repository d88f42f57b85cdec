//! Who answers requests: memory behind it is read and written, completions are split where they must be.
//!
//! (request, [`Target`]) → completions, [`Served`].
//!
//! Units: bytes.
//! Source: PCIe 6.0 sections 2.2.7, 2.3.1.1 (read completion boundary), 2.7.2 (poisoned), 6.15 (atomics);
//! docs/spec/wire-formats.md §3.1, §3.6; CXL 3.1 section 7.7.3.3 (the prefix of a completion).

use core::ops::Range;

use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::{At, Completion, Kind, Status, Tlp, TlpRepr};

/// Completions of a read end at a multiple of this, but for the last one.
const RCB: u64 = 64;

/// Memory that a completer serves requests from.
pub trait Target {
    /// Whether all `len` bytes from `addr` on are there.
    fn holds(&self, addr: u64, len: u64) -> bool;
    /// Fills `into`; false when it cannot be read.
    fn read(&self, addr: u64, into: &mut [u8]) -> bool;
    /// Writes `data`; false when it cannot be written.
    fn write(&mut self, addr: u64, data: &[u8]) -> bool;
    /// Whether `len` bytes from `addr` on can be read now; if not, they will be soon, and nothing else has to be done for that.
    fn ready(&mut self, _addr: u64, _len: u64) -> bool {
        true
    }
}

/// How a completer answered a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// Done, and answered if an answer was due.
    Done,
    /// Nothing is there, or nothing that does this: answered with UR if an answer was due.
    Unsupported,
    /// Answered with CA if an answer was due.
    Aborted,
    /// A write whose data are marked as bad: nothing was written, answered with UR if an answer was due.
    Poisoned,
}

/// How a completer splits and orders its completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleterSpec {
    /// Most bytes of a completion, a power of two, 64..=4096.
    pub payload_max: usize,
    /// Chunks of a UIO read leave the last one first, as they may.
    pub uio_last_first: bool,
}

/// Where completions go.
pub type Send<'a> = dyn FnMut(&TlpRepr<'_>) + 'a;

impl CompleterSpec {
    /// Serves a request of memory or I/O as `completer`.
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

    /// As [`Self::serve`], where the request's address is another one in `target`.
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
        let reserved = matches!(request.at(), At::TranslationRequest | At::Reserved);
        let is_ours = (kind.is_memory() || kind.is_io()) && kind != Kind::MemReadLocked;
        if !is_ours || reserved || !target.holds(addr, bytes) {
            self.refuse(request, Status::UnsupportedRequest, completer, send);
            return Served::Unsupported;
        }
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
    /// Answers with a status alone, if an answer is due.
    pub fn refuse(&self, request: &Tlp<'_>, status: Status, completer: Bdf, send: &mut Send<'_>) {
        if let Some(answer) = Completion::of(request, status, completer) {
            send(&TlpRepr { vend_prefix: prefix(request), ..answer });
        }
    }

    /// Answers a read with `data`, whole double words; `ln` is the bit of that name.
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

/// The prefix that the answer to `request` carries.
fn prefix(request: &Tlp<'_>) -> Option<weft_parsers::tlp::VendPrefixL0> {
    request.vend_prefix().filter(|_| request.is_uio())
}

/// Where the bytes begin that a request enables, counted from its address, and how many there are up to the last one. Of a
/// read of zero length, which enables none, all of its double word.
pub(crate) fn enabled_range(request: &Tlp<'_>) -> (u64, u64) {
    let len = request.access_len();
    let (first, last) = (request.first_be(), request.last_be());
    if request.kind().is_atomic() || (first == 0 && last == 0) {
        return (0, len);
    }
    let begin = first.trailing_zeros().min(4);
    let end = if len > 4 { last } else { first };
    let behind = end.leading_zeros() - 4; // of four bits
    let begin = u64::from(begin);
    (begin, (len - u64::from(behind)).saturating_sub(begin))
}

/// Clears the bytes of a read that are not enabled: they may be of memory that who asks may not read.
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

/// The whole double words that a read asks for, with 0 for bytes that are not enabled; of a read of zero length one, of zeros.
pub fn load(request: &Tlp<'_>, addr: u64, target: &dyn Target) -> Option<Vec<u8>> {
    let mut data = vec![0; usize::from(request.length_dw()) * 4];
    if request.first_be() == 0 && request.last_be() == 0 {
        return Some(data);
    }
    if !target.read(addr, &mut data) {
        return None;
    }
    clear_disabled(request, &mut data);
    Some(data)
}

/// Writes the bytes of a request that are enabled; false when that fails.
pub fn store(request: &Tlp<'_>, addr: u64, target: &mut dyn Target) -> bool {
    let data = request.payload();
    enabled_runs(request).all(|run| {
        let from = addr.wrapping_add(run.start as u64);
        target.write(from, data.get(run).unwrap_or_default())
    })
}

/// Where in the payload of a request the bytes are that are enabled, side by side.
pub(crate) fn enabled_runs(request: &Tlp<'_>) -> impl Iterator<Item = Range<usize>> {
    runs(request.payload().len(), request.first_be(), request.last_be())
}

/// Which of `len` bytes in double words are enabled, side by side.
fn runs(len: usize, first_be: u8, last_be: u8) -> impl Iterator<Item = Range<usize>> {
    let last = len / 4 - usize::from(len > 0);
    let enabled = move |at: &usize| {
        let bits = match at / 4 {
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

/// Executes an atomic operation; returns what was there. Operands are little-endian.
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
