//! Distribution of `CacheID`s from a downstream edge to the host's edge: `RTUpdate`, its Ack and Nak.
//!
//! [`RtSender::commit`] sends an `RTUpdate` of up to 16 pairs; [`CacheIds::receive`] answers it by Ack or Nak,
//! which ends it as an [`Answer`].
//!
//! Units: picoseconds.
//! Source: docs/spec/wire-formats.md §3.8; CXL 3.1 section 7.7.12.5. Neither says which updates are refused, nor
//! that an update replaces the one before it from the same edge: those rules are ours.

use std::collections::BTreeMap;

use arrayvec::ArrayVec;
use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::VdmOp;
use weft_parsers::tlp::vdm::RtPair;

use super::reset::Binding;
use super::{Due, Retry, Vdm};

/// Number of `CacheID`s, which have 4 bits.
pub const CACHE_IDS: usize = 16;

/// A message from one end of a virtual link to the other, hierarchical as all of these.
fn between(own: Pid, far: Pid, op: VdmOp) -> Vdm {
    let mut vdm = Vdm::new(own, far, op);
    vdm.pth.hie = true;
    vdm
}

/// Result of a routing update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The host's edge has accepted it.
    Ack,
    /// The host's edge has refused it.
    Nak,
    /// No try was answered.
    None,
}

/// Sender of routing updates (`RTUpdate`): the downstream edge of one binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RtSender {
    own: Pid,
    host: Pid,
    pairs: ArrayVec<RtPair, { RtPair::COUNT_MAX }>,
    retry: Retry,
    unexpected: u64,
}

impl RtSender {
    /// A sender from the edge's PID to that of the host's edge.
    #[must_use]
    pub fn new(own: Pid, host: Pid) -> Self {
        Self { own, host, pairs: ArrayVec::new(), retry: Retry::default(), unexpected: 0 }
    }

    /// Sends `pairs` until they are answered, as the host has committed its routing table. A commit before that
    /// answer replaces the first one, and may be ended by the first one's answer: answers have no number.
    ///
    /// Returns `false`, and sends nothing, for more than [`RtPair::COUNT_MAX`] pairs.
    pub fn commit(&mut self, now: Instant, pairs: &[RtPair]) -> bool {
        let Ok(pairs) = ArrayVec::try_from(pairs) else { return false };
        self.pairs = pairs;
        self.retry.start(now);
        true
    }

    /// Receives a message; returns the answer to the update under way.
    pub fn receive(&mut self, vdm: &Vdm) -> Option<Answer> {
        let ours = Binding { own: self.own, far: self.host }.matches(vdm);
        let answer = match vdm.op {
            VdmOp::RtUpdateAck if ours => Answer::Ack,
            VdmOp::RtUpdateNak if ours => Answer::Nak,
            _ => {
                self.unexpected += 1;
                return None;
            }
        };
        // The answer to an update that was sent several times may come several times.
        if !self.retry.is_running() {
            self.unexpected += 1;
            return None;
        }
        self.retry.stop();
        Some(answer)
    }

    /// A message that is due, or the result that there was no answer; call it until it returns `None`.
    pub fn poll(&mut self, now: Instant) -> Option<Result<Vdm, Answer>> {
        match self.retry.tick(now) {
            Due::Nothing => None,
            Due::Send => Some(Ok(self.message())),
            Due::GaveUp => Some(Err(Answer::None)),
        }
    }

    /// Time of the next poll; `None` without an update under way.
    #[must_use]
    pub const fn next_due(&self) -> Option<Instant> {
        self.retry.at
    }

    /// Messages that are no answer, or came without an update under way.
    #[must_use]
    pub const fn unexpected(&self) -> u64 {
        self.unexpected
    }

    /// All pairs, padded to whole DWs (at least one) by discard pairs, whose PID is `FFFh`.
    fn message(&self) -> Vdm {
        // An update that takes back every CacheID has no pair, but needs a payload of at least one DW.
        let count = self.pairs.len().next_multiple_of(2).max(2);
        let nothing = RtPair { pid: Pid::NONE, cache_id: 0 };
        let filled = self.pairs.iter().copied().chain(core::iter::repeat(nothing)).take(count);
        let payload: ArrayVec<u8, { RtPair::COUNT_MAX * RtPair::LEN }> =
            filled.flat_map(RtPair::emit).collect();
        between(self.own, self.host, VdmOp::RtUpdate).with_payload(&payload)
    }
}

/// The routing table of a host's edge: the port of each `CacheID`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheIds {
    /// By `CacheID`: the downstream edge that announced it, and the port.
    ports: BTreeMap<u8, (Pid, Pid)>,
    refused: u64,
}

impl CacheIds {
    /// Port of a `CacheID`; `None` if no edge has announced it.
    #[must_use]
    pub fn port(&self, cache_id: u8) -> Option<Pid> {
        self.ports.get(&cache_id).map(|(_, port)| *port)
    }

    /// All entries: `CacheID`, port, and the downstream edge that announced them.
    pub fn iter(&self) -> impl Iterator<Item = (u8, Pid, Pid)> {
        self.ports.iter().map(|(id, (edge, port))| (*id, *port, *edge))
    }

    /// Messages of another kind, without a virtual link, or without a PID to answer.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Processes an update and returns the answer. An accepted update replaces everything that its sender has
    /// announced before. It is refused as a whole (Nak) if `bound` is false (no binding has this pair of PIDs), if
    /// it gives one `CacheID` to two ports, or if a `CacheID` belongs to a port of another edge. The same update
    /// twice changes nothing.
    pub fn receive(&mut self, vdm: &Vdm, bound: bool) -> Option<Vdm> {
        let edge = vdm.pth.spid;
        let is_named = !edge.is_none() && !vdm.pth.dpid.is_none();
        // An answer to PID FFFh would go to the link partner, and not to the sender.
        if vdm.op != VdmOp::RtUpdate || !vdm.pth.hie || !is_named {
            self.refused += 1;
            return None;
        }
        let accepted = bound && self.replace(edge, &vdm.payload);
        let op = if accepted { VdmOp::RtUpdateAck } else { VdmOp::RtUpdateNak };
        Some(between(vdm.pth.dpid, edge, op))
    }

    /// Removes all entries of an edge, as its binding has ended.
    pub fn forget(&mut self, edge: Pid) {
        self.ports.retain(|_, (told_by, _)| *told_by != edge);
    }

    fn replace(&mut self, edge: Pid, payload: &[u8]) -> bool {
        // On a copy, so that a refused update leaves the table as it was.
        let mut fresh = self.ports.clone();
        fresh.retain(|_, (told_by, _)| *told_by != edge);
        for RtPair { pid, cache_id } in RtPair::all(payload) {
            let had = fresh.insert(cache_id, (edge, pid));
            // The same pair twice is harmless; another port, or another edge, is a conflict.
            if had.is_some_and(|had| had != (edge, pid)) {
                return false;
            }
        }
        self.ports = fresh;
        true
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers that make tests short")]
mod tests {
    use weft_base::rng::Rng;

    use super::super::testing::{Wire, ms, pid, vdm_of, wire_of};
    use super::super::{TRIES_MAX, Vdm};
    use super::*;

    const EDGE: Pid = Pid::from_low_bits(0x020);
    const HOST: Pid = Pid::from_low_bits(0x010);

    fn pair(port: u16, cache_id: u8) -> RtPair {
        RtPair { pid: pid(port), cache_id }
    }

    fn update(pairs: &[RtPair]) -> Vdm {
        let mut sender = RtSender::new(EDGE, HOST);
        assert!(sender.commit(ms(0), pairs));
        sender.poll(ms(0)).unwrap().unwrap()
    }

    #[test]
    fn updates_and_answers_stand_on_the_wire_as_the_page_has_them() {
        let bytes = wire_of(&update(&[pair(0x123, 0xA), pair(0x456, 0), pair(0x0FF, 0xF)]));
        #[rustfmt::skip]
        let want = [
            0xC6, 0x02, 0x00, 0x10, 0x74, 0, 0, 2, 0, 0, 0, 0x7E, 0, 0, 0x1E, 0x98, 0, 0, 0x10, 0xA1,
            0x23, 0xA1, 0x56, 0x04, 0xFF, 0xF0, 0xFF, 0x0F,
        ];
        assert_eq!(bytes, want);
        let mut table = CacheIds::default();
        let answer = table.receive(&vdm_of(&bytes), true).unwrap();
        let want = [0xC6, 0x01, 0x00, 0x20, 0x34, 0, 0, 0, 0, 0, 0, 0x7E, 0, 0, 0x1E, 0x98, 0, 0];
        assert_eq!(wire_of(&answer), [&want[..], &[0x12, 0xA1]].concat());
        let ports = [0xA, 0, 0xF, 1].map(|id| table.port(id));
        assert_eq!(ports, [Some(pid(0x123)), Some(pid(0x456)), Some(pid(0x0FF)), None]);
        let answer = table.receive(&vdm_of(&bytes), false).unwrap();
        assert_eq!(wire_of(&answer), [&want[..], &[0x13, 0xA1]].concat());
    }

    #[test]
    fn sizes_go_from_one_to_eight_dws() {
        let all: Vec<_> = (0..16).map(|k| pair(0x100 + u16::from(k), k)).collect();
        for count in 0..=16 {
            let vdm = vdm_of(&wire_of(&update(&all[..count])));
            assert_eq!(vdm.payload.len(), 4 * count.div_ceil(2).max(1));
            let mut table = CacheIds::default();
            assert_eq!(table.receive(&vdm, true).unwrap().op, VdmOp::RtUpdateAck);
            assert_eq!((0..16).filter(|&id| table.port(id).is_some()).count(), count);
        }
        let more = [all.clone(), vec![pair(1, 1)]].concat();
        assert!(!RtSender::new(EDGE, HOST).commit(ms(0), &more));
    }

    #[test]
    fn an_update_is_taken_whole_or_not_at_all() {
        let mut table = CacheIds::default();
        let mut other = update(&[pair(0x200, 7)]);
        other.pth.spid = pid(0x030);
        table.receive(&other, true).unwrap();
        table.receive(&update(&[pair(0x100, 1), pair(0x101, 2)]), true).unwrap();
        let before = table.clone();
        #[rustfmt::skip] // columns: name, pairs
        let cases: [(&str, &[RtPair]); 2] = [
            ("one id for two ports",    &[pair(0x100, 3), pair(0x101, 3)]),
            ("id of another edge's",    &[pair(0x100, 3), pair(0x101, 7)]),
        ];
        for (name, pairs) in cases {
            let answer = table.receive(&update(pairs), true).unwrap();
            assert_eq!((answer.op, &table), (VdmOp::RtUpdateNak, &before), "{name}");
        }
        let next = update(&[pair(0x100, 2), pair(0x100, 2)]);
        for _ in 0..2 {
            assert_eq!(table.receive(&next, true).unwrap().op, VdmOp::RtUpdateAck);
            let ports = [1, 2, 7].map(|id| table.port(id));
            assert_eq!(ports, [None, Some(pid(0x100)), Some(pid(0x200))]);
        }
        table.forget(pid(0x030));
        assert_eq!(table.port(7), None);
        assert_eq!(table.receive(&between(EDGE, HOST, VdmOp::RtUpdateAck), true), None);
        let mut by_route = next;
        by_route.pth.hie = false;
        assert_eq!((table.receive(&by_route, true), table.refused()), (None, 2));
    }

    #[test]
    fn without_an_answer_it_is_told_so() {
        let mut sender = RtSender::new(EDGE, HOST);
        sender.commit(ms(0), &[pair(1, 1)]);
        for k in 0..u64::from(TRIES_MAX) {
            assert!(matches!(sender.poll(ms(10 * k)), Some(Ok(_))));
            assert_eq!(sender.poll(ms(10 * k)), None);
        }
        assert_eq!(sender.next_due(), Some(ms(100)));
        assert_eq!((sender.poll(ms(100)), sender.next_due()), (Some(Err(Answer::None)), None));
        let late = between(HOST, EDGE, VdmOp::RtUpdateAck);
        assert_eq!((sender.receive(&late), sender.unexpected()), (None, 1));
        sender.commit(ms(200), &[pair(1, 1)]);
        let foreign = Vdm::new(pid(9), EDGE, VdmOp::RtUpdateAck);
        assert_eq!((sender.receive(&foreign), sender.unexpected()), (None, 2));
        let by_route = Vdm::new(HOST, EDGE, VdmOp::RtUpdateNak);
        assert_eq!((sender.receive(&by_route), sender.unexpected()), (None, 3));
        let nak = between(HOST, EDGE, VdmOp::RtUpdateNak);
        assert_eq!(sender.receive(&nak), Some(Answer::Nak));
    }

    /// Over a wire that loses, doubles and delays messages, an Ack means that the table has the committed pairs.
    #[test]
    fn an_ack_means_that_the_table_is_right() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed);
            let mut wires = [0, 1].map(|k| Wire::new(seed * 2 + k, 300, 200, 4_000_000));
            let (mut sender, mut table) = (RtSender::new(EDGE, HOST), CacheIds::default());
            let (mut committed, mut acks) = (Vec::new(), 0);
            for t in 0..2_000 {
                if t % 200 == 0 {
                    committed = (0..rng.below(17) as u8)
                        .map(|id| pair(rng.below(4_095) as u16, id))
                        .collect();
                    assert!(sender.commit(ms(t), &committed));
                }
                while let Some(Ok(vdm)) = sender.poll(ms(t)) {
                    wires[0].send(ms(t), &vdm);
                }
                while let Some(vdm) = wires[0].recv(ms(t)) {
                    let answer = table.receive(&vdm, true).unwrap();
                    wires[1].send(ms(t), &answer);
                }
                while let Some(vdm) = wires[1].recv(ms(t)) {
                    if sender.receive(&vdm) == Some(Answer::Ack) {
                        acks += 1;
                        let told: Vec<_> = (0..16)
                            .filter_map(|id| table.port(id).map(|p| pair(p.bits(), id)))
                            .collect();
                        assert_eq!(told, committed, "seed {seed}");
                    }
                }
            }
            assert!(acks >= 8, "seed {seed}: {acks}");
        }
    }
}
