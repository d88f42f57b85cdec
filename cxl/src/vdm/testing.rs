//! A wire between two machines in tests, which delays, drops or repeats messages at random by a seed.
//!
//! Messages stay in order, as on one path of the fabric.
//!
//! Units: delays in nanoseconds, chances in thousandths.

use std::collections::VecDeque;

use weft_base::rng::Rng;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::{PbrTlp, Pth, TlpRepr, pth};

use super::Vdm;

pub(super) fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

pub(super) const fn ms(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

/// Bytes of a TLP on a PBR link.
pub(super) fn bytes(pth: Pth, tlp: &TlpRepr<'_>) -> Vec<u8> {
    let mut out = vec![0; 256];
    let len = pth::emit_pbr(pth, tlp, &mut out).expect("a machine sends what can be sent");
    out.truncate(len);
    out
}

pub(super) fn wire_of(vdm: &Vdm) -> Vec<u8> {
    bytes(vdm.pth, &vdm.message().repr())
}

pub(super) fn vdm_of(bytes: &[u8]) -> Vdm {
    let pbr = PbrTlp::parse(bytes).unwrap().expect("a TLP");
    assert_eq!(pbr.len(), bytes.len());
    Vdm::parse(pbr.pth(), pbr.tlp()).unwrap()
}

/// One direction of a wire between two machines.
pub(super) struct Wire {
    rng: Rng,
    pub drop: u64,
    pub twice: u64,
    pub delay_max_ns: u64,
    queue: VecDeque<(Instant, Vec<u8>)>,
    last: Instant,
    pub dropped: u64,
}

impl Wire {
    pub fn new(seed: u64, drop: u64, twice: u64, delay_max_ns: u64) -> Self {
        let (rng, queue) = (Rng::new(seed), VecDeque::new());
        Self { rng, drop, twice, delay_max_ns, queue, last: Instant::ZERO, dropped: 0 }
    }

    pub fn send_bytes(&mut self, now: Instant, bytes: &[u8]) {
        let copies = if self.rng.chance(self.drop, 1_000) {
            self.dropped += 1;
            0
        } else {
            1 + usize::from(self.rng.chance(self.twice, 1_000))
        };
        for _ in 0..copies {
            let at = now + Span::from_ns(1 + self.rng.below(self.delay_max_ns));
            self.last = self.last.max(at);
            self.queue.push_back((self.last, bytes.to_vec()));
        }
    }

    pub fn send(&mut self, now: Instant, vdm: &Vdm) {
        self.send_bytes(now, &wire_of(vdm));
    }

    pub fn recv_bytes(&mut self, now: Instant) -> Option<Vec<u8>> {
        self.queue.pop_front_if(|(at, _)| *at <= now).map(|(_, bytes)| bytes)
    }

    pub fn recv(&mut self, now: Instant) -> Option<Vdm> {
        self.recv_bytes(now).map(|bytes| vdm_of(&bytes))
    }

    pub fn next(&self) -> Option<Instant> {
        self.queue.front().map(|(at, _)| *at)
    }
}
