//! `FetchAdd`, `Swap` and `CAS`: the answer is the old value, memory keeps the new one. Operands have 4 or 8 bytes,
//! those of CAS also 16, and are little-endian in memory and on the link.
//!
//! Source: PCIe 6.0 sections 2.2.7, 6.15.

use weft_dataplane::time::Instant;
use weft_parsers::tlp::{Kind, Tlp};

use super::jobs::{Content, KEPT_MAX};
use super::serve::GfdEndCore;
use crate::gfd::device::{Done, Request};
use crate::gfd::{Enables, Refusal};

impl GfdEndCore {
    /// Carries out an atomic. It is refused before anything is written.
    pub(super) fn atomic(
        &mut self,
        now: Instant,
        tlp: &Tlp<'_>,
        request: Request,
    ) -> Result<(Done, Content), Refusal> {
        let payload = tlp.payload();
        let len = usize::try_from(tlp.access_len()).unwrap_or(usize::MAX);
        let (first, second) = payload.split_at_checked(len).unwrap_or_default();
        let mut old = [0; KEPT_MAX];
        // Longer than 16 bytes: not an operand of any atomic.
        let place = old.get_mut(..len).ok_or(Refusal::Enables)?;
        let done = self.device.gfd.read(now, request, place)?;
        let was = value(place);
        let new = match tlp.kind() {
            Kind::FetchAdd => was.wrapping_add(value(first)),
            Kind::Cas if was == value(first) => value(second),
            Kind::Cas => was,
            _ => value(first),
        };
        // Also after a failed comparison: the write checks the requester's right to write, which each atomic needs.
        let new = new.to_le_bytes();
        let new = new.get(..len).unwrap_or_default();
        self.device.gfd.write(now, request, new, Enables::All)?;
        self.counts.atomics += 1;
        Ok((done, Content::Kept(old, len)))
    }
}

fn value(bytes: &[u8]) -> u128 {
    let mut all = [0; KEPT_MAX];
    if let Some(place) = all.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
    u128::from_le_bytes(all)
}
