//! Journeys: what the latency of each frame is made of, where it waited and why.
//!
//! A [`HostLog`] at each host and a [`SwitchLog`] at each switch note what passes; [`parts`] puts it together, by
//! receiving host.
//!
//! Units: picoseconds.
//! Source: docs/spec/model.md §6 "Results".
//!
//! A frame is known by its message and its place in it. One that was sent again is left out: its ways cannot be told apart.

pub mod host;
pub mod switch;

use weft_dataplane::time::Span;

pub use self::host::HostLog;
pub use self::switch::SwitchLog;
use crate::results::network::LatencyParts;

/// A frame: its message, and which of its frames it is.
pub type Key = (u32, u32);

/// What a frame waited for at its sender, while it was its turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// PFC.
    pub pause: Span,
    /// Credit.
    pub credit: Span,
    /// The rate limit.
    pub rate: Span,
}

/// A frame through a switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// Until it was at the crossbar, while not paused.
    pub voq: Span,
    /// From then until it was sent, while not paused.
    pub egress: Span,
    /// While its output was paused.
    pub paused: Span,
    /// The switch's fixed latency, and the cable to where it was sent.
    pub wire: Span,
}

impl Hop {
    /// Those of another switch.
    fn add(&mut self, other: &Self) {
        self.voq = self.voq + other.voq;
        self.egress = self.egress + other.egress;
        self.paused = self.paused + other.paused;
        self.wire = self.wire + other.wire;
    }
}

/// The parts of latency by receiving host, of all logs of a network.
#[must_use]
pub fn parts(hosts: &[&HostLog], switches: &[&SwitchLog]) -> Vec<LatencyParts> {
    let mut hops: Vec<(Key, Hop)> =
        switches.iter().flat_map(|log| log.hops().iter().copied()).collect();
    hops.sort_unstable_by_key(|&(key, _)| key);
    let mut sent: Vec<(Key, Held, usize)> = Vec::new();
    for (host, log) in hosts.iter().enumerate() {
        sent.extend(log.sent().iter().map(|&(key, held)| (key, held, host)));
    }
    sent.sort_unstable_by_key(|&(key, ..)| key);
    let of_key = |key: Key| {
        let from = sent.partition_point(|&(other, ..)| other < key);
        let all = sent.get(from..).unwrap_or_default();
        let mut all = all.iter().take_while(|&&(other, ..)| other == key);
        let first = all.next()?;
        all.next().is_none().then_some(first)
    };
    let one = |to: &HostLog| {
        let mut sum = LatencyParts::default();
        for &(key, took) in to.taken() {
            let Some(&(_, held, from)) = of_key(key) else { continue };
            let Some(from) = hosts.get(from) else { continue };
            let mut way = Hop { wire: from.propagation, ..Hop::default() };
            let first = hops.partition_point(|&(other, _)| other < key);
            let passed = hops.get(first..).unwrap_or_default();
            for (_, hop) in passed.iter().take_while(|(other, _)| *other == key) {
                way.add(hop);
            }
            sum.add(&of_frame(took, held, &way, from.delay.send + to.delay.receive));
        }
        sum
    };
    hosts.iter().map(|to| one(to)).collect()
}

/// The parts of a frame that `took` so long from when it was sent until it was taken: what is no wait is being sent.
fn of_frame(took: Span, held: Held, way: &Hop, endpoint: Span) -> LatencyParts {
    let waited = [way.voq, way.egress, way.paused, way.wire, endpoint];
    let waited = waited.iter().map(|span| span.as_ps()).sum::<u64>();
    let held_ps = (held.pause + held.credit + held.rate).as_ps();
    LatencyParts {
        frames: 1,
        endpoint_ps: endpoint.as_ps(),
        serialisation_ps: took.as_ps().saturating_sub(waited),
        wire_ps: way.wire.as_ps(),
        voq_ps: way.voq.as_ps(),
        egress_ps: way.egress.as_ps(),
        paused_ps: (way.paused + held.pause).as_ps(),
        credit_ps: held.credit.as_ps(),
        rate_mask_ps: held.rate.as_ps(),
        total_ps: took.as_ps() + held_ps,
    }
}
