//! Pauses with their beginning and end, put together from the workers' logs.
//!
//! [`Pauses`] reads the logs again and again, and gives a [`PauseReport`] for each pause that has ended, and for each
//! that goes on. Times are nanoseconds since the switch started.
//!
//! Source: docs/spec/pipeline.md §9; docs/page.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use weft_dataplane::pipeline::Core;
use weft_dataplane::stats::{PauseEdge, PauseSide};
use weft_dataplane::time::Instant;
use weft_dataplane::types::{PortId, Pri};

/// A pause of one (port, priority).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseReport {
    /// Number in the order in which pauses were seen to begin.
    pub number: u64,
    pub port: String,
    pub pri: u8,
    /// `asked`: this switch, as input, asked its peer to pause. `obeyed`: the peer asked, and this output is held.
    pub side: String,
    /// Beginning; the first look, for a pause that went on then.
    pub from_ns: u64,
    /// End; `None` while it goes on.
    pub to_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    number: u64,
    from: Instant,
}

/// The place of a pause, and who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    port: PortId,
    pri: Pri,
    side: PauseSide,
}

/// Pauses so far.
#[derive(Debug, Default)]
pub struct Pauses {
    /// By worker, the number of edges of its log that have been read.
    known: Vec<u64>,
    open: BTreeMap<Key, Open>,
    ended: Vec<PauseReport>,
    /// Pauses that were seen to begin.
    begun: u64,
    /// Edges that were overwritten before they were read.
    lost: u64,
}

impl Pauses {
    /// Reads the new edges in the logs of `core` at `now`; the first call has the workers begin their logs.
    pub fn read(&mut self, core: &Core, now: Instant) {
        let (mut edges, lost_before) = (Vec::new(), self.lost);
        self.known.resize(core.stats.len(), 0);
        for (known, stats) in self.known.iter_mut().zip(&core.stats) {
            stats.pauses.begin();
            let (next, lost) = stats.pauses.since(*known, &mut edges);
            (*known, self.lost) = (next, self.lost + lost);
        }
        // The logs of the workers are read one after the other; the times put their edges in order.
        edges.sort_by_key(|edge| edge.at.as_ps());
        let snapshot = core.snapshot.load();
        let ports = &snapshot.config.ports;
        let name = |port: PortId| {
            ports.get(port.index()).map_or_else(|| port.get().to_string(), |port| port.name.clone())
        };
        for edge in &edges {
            self.follow(edge, &name);
        }
        // The levels show pauses whose edge is not in a log.
        for port in (0..ports.len()).filter_map(PortId::new) {
            for (side, pris) in
                [(PauseSide::Asked, core.xoff(port)), (PauseSide::Obeyed, core.paused(port))]
            {
                for pri in Pri::ALL {
                    let key = Key { port, pri, side };
                    if pris.contains(pri) {
                        // The pause began before the log did, or its edge comes with the next read.
                        self.begin(key, now);
                    } else if self.lost > lost_before {
                        // Its end may be among the edges that are lost.
                        self.open.remove(&key);
                    }
                }
            }
        }
    }

    fn begin(&mut self, key: Key, from: Instant) {
        self.open.entry(key).or_insert_with(|| {
            self.begun += 1;
            Open { number: self.begun, from }
        });
    }

    fn follow(&mut self, edge: &PauseEdge, name: &dyn Fn(PortId) -> String) {
        let key = Key { port: edge.port, pri: edge.pri, side: edge.side };
        if edge.begins {
            self.begin(key, edge.at);
        } else if let Some(open) = self.open.remove(&key) {
            // The beginning may be the time of a look, which can be later than the edge that ends it.
            let to = Some(edge.at.as_ns().max(open.from.as_ns()));
            self.ended.push(report(key, open, to, name));
        }
    }

    /// Takes the pauses that have ended since the last call, in the order of their ends.
    pub fn take_ended(&mut self) -> Vec<PauseReport> {
        core::mem::take(&mut self.ended)
    }

    #[must_use]
    pub fn open(&self, name: &dyn Fn(PortId) -> String) -> Vec<PauseReport> {
        self.open.iter().map(|(&key, &open)| report(key, open, None, name)).collect()
    }

    /// Edges that were lost, so that pauses are missing.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

fn report(
    Key { port, pri, side }: Key,
    open: Open,
    to_ns: Option<u64>,
    name: &dyn Fn(PortId) -> String,
) -> PauseReport {
    PauseReport {
        number: open.number,
        port: name(port),
        pri: pri.get(),
        side: match side {
            PauseSide::Asked => "asked",
            PauseSide::Obeyed => "obeyed",
        }
        .to_owned(),
        from_ns: open.from.as_ns(),
        to_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(at: u64, port: usize, side: PauseSide, begins: bool) -> PauseEdge {
        let (at, port) = (Instant::from_ns(at), PortId::new(port).unwrap());
        PauseEdge { at, port, pri: Pri::new(3).unwrap(), side, begins }
    }

    #[test]
    fn edges_become_pauses() {
        let name = |port: PortId| format!("p{}", port.get());
        let mut pauses = Pauses::default();
        let (asked, obeyed) = (PauseSide::Asked, PauseSide::Obeyed);
        for edge in [
            edge(5, 1, asked, false), // its begin was not seen
            edge(10, 1, asked, true),
            edge(11, 2, obeyed, true),
            edge(12, 1, asked, true), // its end was not seen
            edge(20, 1, asked, false),
        ] {
            pauses.follow(&edge, &name);
        }
        let want = |number, port: &str, side: &str, from_ns, to_ns| PauseReport {
            number,
            port: port.into(),
            pri: 3,
            side: side.into(),
            from_ns,
            to_ns,
        };
        assert_eq!(pauses.take_ended(), [want(1, "p1", "asked", 10, Some(20))]);
        assert_eq!(pauses.open(&name), [want(2, "p2", "obeyed", 11, None)]);
        assert_eq!(pauses.take_ended(), []);
    }
}
