//! A fabric of small buffers without loss: does it come to a stand?
//!
//! Graph, tables, priorities, places a buffer -> [`Sim::run`]: every endpoint sends to random others as fast as it
//! can, requests are answered, then sending ends and all must drain.
//!
//! Units: cycles; a packet a cycle and channel.
//! Source: docs/spec/cxl-fabric.md "Routes"; credit flow control: a packet moves only when its next buffer has a place.

use std::collections::{BTreeMap, VecDeque};

use weft_base::rng::Rng;
use weft_fm::model::graph::{Graph, PortRef};
use weft_fm::plan::proof::Traffic;
use weft_fm::plan::tables::Tables;
use weft_parsers::fabric::{DrtEntry, Pid};

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimEnd {
    /// Everything that was sent arrived.
    Drained { delivered: usize },
    /// Nothing can move any more.
    Stuck { waiting: usize },
    /// Something still moves: the run was too short.
    Moving,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    from: Pid,
    to: Pid,
    class: usize,
    answer: bool,
}

/// Buffers by the port that takes (from a link or from an endpoint) and the priority.
pub struct Sim<'a> {
    graph: &'a Graph,
    tables: &'a Tables,
    traffic: &'a Traffic,
    places: usize,
    buffers: BTreeMap<(PortRef, u8), VecDeque<Packet>>,
    /// What left the fabric and waits at its endpoint, by port and priority.
    out: BTreeMap<(PortRef, u8), VecDeque<Packet>>,
    delivered: usize,
}

impl<'a> Sim<'a> {
    pub fn new(graph: &'a Graph, tables: &'a Tables, traffic: &'a Traffic, places: usize) -> Self {
        let (buffers, out) = (BTreeMap::new(), BTreeMap::new());
        Self { graph, tables, traffic, places, buffers, out, delivered: 0 }
    }

    fn room(&self, at: PortRef, pri: u8) -> bool {
        self.buffers.get(&(at, pri)).map_or(0, VecDeque::len) < self.places
    }

    fn waiting(&self) -> usize {
        self.buffers.values().chain(self.out.values()).map(VecDeque::len).sum()
    }

    /// Saturates for `cycles`, then lets all drain.
    pub fn run(mut self, rng: &mut Rng, cycles: usize) -> SimEnd {
        for _ in 0..cycles {
            let sent = self.send(rng);
            if !self.step(rng) && !sent {
                break;
            }
        }
        for _ in 0..1_000_000 {
            if self.waiting() == 0 {
                return SimEnd::Drained { delivered: self.delivered };
            }
            if !self.step(rng) {
                return SimEnd::Stuck { waiting: self.waiting() };
            }
        }
        SimEnd::Moving
    }

    /// Each endpoint puts a packet of each class in, if there is room; whether any did.
    fn send(&mut self, rng: &mut Rng) -> bool {
        let ends: Vec<_> = self.graph.endpoints().collect();
        let answers: Vec<u8> = self.traffic.classes.iter().filter_map(|c| c.answered_in).collect();
        let mut any = false;
        for end in &ends {
            let to = ends[usize::try_from(rng.below(ends.len() as u64)).unwrap()].pid;
            for (class, what) in self.traffic.classes.iter().enumerate() {
                // Answers come of requests only.
                let is_answer = what.answered_in.is_none() && answers.contains(&what.pri);
                if !is_answer && self.room(end.at, what.pri) {
                    let packet = Packet { from: end.pid, to, class, answer: false };
                    self.buffers.entry((end.at, what.pri)).or_default().push_back(packet);
                    any = true;
                }
            }
        }
        any
    }

    /// A cycle: endpoints take what they can, then each channel passes at most one packet on. Whether anything moved.
    fn step(&mut self, rng: &mut Rng) -> bool {
        let mut moved = self.take();
        let mut keys: Vec<(PortRef, u8)> = self.buffers.keys().copied().collect();
        let turn = usize::try_from(rng.below(keys.len().max(1) as u64)).unwrap();
        keys.rotate_left(turn);
        // The worst that an arbiter can do: what comes into the fabric goes first.
        keys.sort_by_key(|(at, _)| self.graph.far(*at).is_some());
        let mut busy = std::collections::BTreeSet::new();
        for key in keys {
            let (at, pri) = key;
            let Some(&packet) = self.buffers[&key].front() else { continue };
            let mut ways = self.ways(at, packet.to);
            if !packet.answer {
                let turn = usize::try_from(rng.below(ways.len() as u64)).unwrap();
                ways.rotate_left(turn);
            }
            for port in ways {
                let port = PortRef::new(at.switch, port);
                if busy.contains(&(port, pri)) {
                    continue;
                }
                let next = match self.graph.far(port) {
                    Some(far) if self.room(far, pri) => self.buffers.entry((far, pri)).or_default(),
                    None if self.out.get(&(port, pri)).map_or(0, VecDeque::len) < self.places => {
                        self.out.entry((port, pri)).or_default()
                    }
                    _ => continue,
                };
                next.push_back(packet);
                self.buffers.get_mut(&key).unwrap().pop_front();
                busy.insert((port, pri));
                moved = true;
                break;
            }
        }
        moved
    }

    fn ways(&self, at: PortRef, to: Pid) -> Vec<u8> {
        let tables = self.tables.get(at.switch).unwrap();
        match tables.drt(to) {
            DrtEntry::Port(port) => vec![port],
            DrtEntry::Group(index) => tables.rgt(index).unwrap().ports().to_vec(),
            DrtEntry::Invalid => panic!("no entry for {to} at {at}"),
        }
    }

    /// Endpoints take packets; a request only when its answer has a place. Whether any was taken.
    fn take(&mut self) -> bool {
        let mut moved = false;
        let keys: Vec<(PortRef, u8)> = self.out.keys().copied().collect();
        for key in keys {
            let Some(&packet) = self.out[&key].front() else { continue };
            let answered = self.traffic.classes[packet.class].answered_in;
            if let Some(pri) = answered.filter(|_| !packet.answer) {
                if !self.room(key.0, pri) {
                    continue;
                }
                let answer =
                    Packet { from: packet.to, to: packet.from, class: packet.class, answer: true };
                self.buffers.entry((key.0, pri)).or_default().push_back(answer);
            }
            self.out.get_mut(&key).unwrap().pop_front();
            self.delivered += 1;
            moved = true;
        }
        moved
    }
}
