//! Journeys of frames: the parts of each frame's latency, where it waited and why.
//!
//! A [`HostLog`] at each host and a [`SwitchLog`] at each switch record what passes; [`parts`] combines them by
//! receiving host. A frame is identified by its message and its index in it. Frames that were sent again are left out,
//! as their journeys cannot be told apart.
//!
//! Source: docs/spec/model.md §6 "Results".

pub mod host;
pub mod switch;

use weft_dataplane::time::Span;

pub use self::host::HostLog;
pub use self::switch::SwitchLog;
use crate::results::network::LatencyParts;

/// Identity of a frame: the id of its message and its index in it.
pub type Key = (u32, u32);

/// Waits of a frame at its sender, while it was next in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Time for which PFC paused its priority.
    pub pause: Span,
    /// Time without credit on its virtual channel.
    pub credit: Span,
    /// Time for which its rate was used up.
    pub rate: Span,
}

/// Times of a frame at one switch, or at several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hop {
    /// From its admission to the crossbar, pauses excluded.
    pub voq: Span,
    /// From the crossbar until it was sent, pauses excluded.
    pub egress: Span,
    /// Time for which its output was paused.
    pub paused: Span,
    /// Fixed latency of the switch, and propagation on the cable behind it.
    pub wire: Span,
}

impl Hop {
    /// Adds the times at another switch.
    fn add(&mut self, other: &Self) {
        self.voq = self.voq + other.voq;
        self.egress = self.egress + other.egress;
        self.paused = self.paused + other.paused;
        self.wire = self.wire + other.wire;
    }
}

/// Sums of the parts of latency by receiving host, from all logs of a network.
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
        // A second entry means that the frame was sent again.
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

/// Parts of the latency of a frame that was taken `took` after it was sent. Time that is no wait, cable or fixed
/// latency is serialisation.
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
