//! Room for frames on cables, which is there from the start.
//!
//! Shape: [`Room::take`] for each cable, before it is laid.
//! Units: frames, of both ways.
//! Source: docs/spec/model.md §1 "Threads" (how many frames a cable holds).

use weft_dataplane::time::Span;

use super::NetworkError;
use crate::engine::{CableSpec, Latency};
use crate::topology::{NodeId, Topology};

/// Frames that all cables of a network hold together at most: some gigabytes.
const FRAMES_MAX: u64 = 1 << 26;

/// What cables hold so far.
#[derive(Debug, Default)]
pub(super) struct Room(u64);

impl Room {
    /// Adds a cable between two nodes that take so much for each frame.
    ///
    /// # Errors
    /// [`NetworkError::Room`].
    pub fn take(
        &mut self,
        topology: &Topology,
        ends: [NodeId; 2],
        spec: &CableSpec,
        latencies: [Latency; 2],
    ) -> Result<(), NetworkError> {
        self.add(spec, latencies).map_err(|frames| {
            let name = |node: NodeId| topology.nodes().get(node).map(|node| node.name.clone());
            let [a, b] = ends.map(|node| name(node).unwrap_or_default());
            NetworkError::Room { a, b, frames, most: FRAMES_MAX }
        })
    }

    /// Adds a cable; how many frames it holds, if that is too many.
    fn add(&mut self, spec: &CableSpec, [a, b]: [Latency; 2]) -> Result<(), u64> {
        let greater = (a.send + b.receive).max(b.send + a.receive);
        let ps = |span: Span| u128::from(span.as_ps());
        let least = ps(spec.delay()).saturating_sub(ps(spec.propagation)).max(1);
        let way = (2 * (ps(spec.propagation) + ps(greater)) + least).div_ceil(least) + 2;
        let frames = u64::try_from(2 * way).unwrap_or(u64::MAX);
        self.0 = self.0.saturating_add(frames);
        if self.0 > FRAMES_MAX { Err(frames) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use weft_dataplane::time::LinkRate;

    use super::*;

    #[test]
    fn cables_hold_what_is_on_them() {
        // 14 bytes at 100 Gb/s take 84 bytes' time, 6.72 ns.
        let spec = |propagation| {
            let (rate, overhead) = (LinkRate::gbps(100), true);
            CableSpec { rate, propagation, overhead }
        };
        let none = [Latency::default(); 2];
        let mut room = Room::default();
        assert_eq!(room.add(&spec(Span::from_ps(67_200)), none), Ok(()));
        assert_eq!(room.0, 2 * (21 + 2));
        // 100 days each way.
        let far = spec(Span::from_us(8_640_000_000_000));
        let frames = 2 * 8_640_000_000_000_000_000_u64.div_ceil(3_360) + 6;
        assert_eq!(room.add(&far, none), Err(frames));
        let slow = Latency { receive: Span::from_us(1_000_000), ..Latency::default() };
        assert!(Room::default().add(&spec(Span::ZERO), [slow, slow]).is_err());
    }
}
