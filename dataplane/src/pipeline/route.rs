//! Forward: the outputs of a frame, and the source addresses that are to be learnt.
//!
//! A [`Router`] serves one burst of one port; it turns a frame's [`FrameMeta`] into its
//! [`Verdict`].
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §3.

use arrayvec::ArrayVec;
use weft_parsers::Head;

use super::burst::{FrameMeta, Verdict};
use super::switch_core::Core;
use crate::batch::BURST;
use crate::fdb::{Source, SourceState};
use crate::snapshot::Snapshot;
use crate::stats::DropReason;
use crate::storm::{StormGuard, StormKind};
use crate::time::Instant;
use crate::types::{PortId, PortSet};
use crate::vlan::Arrival;

/// Name of the lookup that found the outputs, for traces.
pub(super) type LookupKind = &'static str;

/// State by which the outputs of one burst's frames are decided.
///
/// `SPREAD` is false where no LAG and no station with several ports is configured: then no output
/// is chosen by hash.
pub(super) struct Router<'a, const SPREAD: bool> {
    pub core: &'a Core,
    pub snapshot: &'a Snapshot,
    pub storm: &'a mut StormGuard,
    pub now: Instant,
    pub input: PortId,
    /// The port under which stations of this input are learnt (the leader of its LAG), and the ports that
    /// its frames never go back to: itself, or all members of its LAG.
    pub home: PortId,
    pub own: PortSet,
    /// Links that are up and not blocked, and those of them that take flows, in LAGs and to stations
    /// behind several ports.
    pub up: PortSet,
    pub joined_lags: PortSet,
    pub joined_spreads: PortSet,
    /// Whether the last frame's output was chosen by a hash of its flow.
    pub chosen: bool,
}

impl<const SPREAD: bool> Router<'_, SPREAD> {
    /// Notes a source address that is to be learnt at the end of the burst; `frame` computes the
    /// frame's digest. True if there is nothing to learn.
    #[inline]
    pub fn source(
        &self,
        meta: &FrameMeta,
        frame: impl Fn() -> u64,
        learn: &mut ArrayVec<Source, BURST>,
    ) -> bool {
        if !meta.head.source_valid() {
            return true;
        }
        let state = self.core.fdb.touch_at(meta.src, self.home, self.now);
        if let SourceState::Unknown | SourceState::OnOtherPort(_) = state {
            let key = meta.src.key();
            // A burst is often of one station: its address is noted once. Others that repeat are
            // found when they are learnt.
            if learn.last().is_none_or(|last| last.key != key) {
                let _ = learn.try_push(Source { key, frame: frame() }); // as many as a burst has frames
            }
            return false;
        }
        true
    }

    /// The outputs of a frame, and how they were found; `hash` computes the hash of its flow.
    #[inline]
    pub fn destination(
        &mut self,
        meta: &FrameMeta,
        len: usize,
        hash: impl Fn() -> u64 + Copy,
    ) -> (Verdict, LookupKind) {
        self.chosen = false;
        let members = self.snapshot.vlan.members(meta.vid);
        let found = if meta.head.individual() {
            self.lookup(meta)
        } else if meta.head.reserved_group() && !self.lets_through(&meta.head) {
            return (Verdict::Drop(DropReason::ReservedGroup), "");
        } else {
            None
        };
        let (wanted, by) = match found {
            Some((port, by)) => match self.station(meta, port, by, hash) {
                Some(port) => (PortSet::only(port).and(members), by),
                None => return (Verdict::Drop(DropReason::SamePort), ""),
            },
            None => match self.flood(meta, len) {
                Ok((outputs, by)) => (outputs.and(members), by),
                Err(reason) => return (Verdict::Drop(reason), ""),
            },
        };
        (self.narrow(wanted, meta, len, hash), by)
    }

    /// Whether the configuration has a reserved group forwarded. PAUSE's own address never is, as
    /// PAUSE of one link would pause senders of another.
    #[cold]
    fn lets_through(&self, head: &Head) -> bool {
        const PAUSE: u16 = 1 << 1;
        let bits = self.snapshot.config.forward.reserved_groups & !PAUSE;
        bits >> head.reserved_number() & 1 != 0
    }

    /// The port that leads to a known station; `None` if the frame came from there.
    #[inline]
    fn station(
        &mut self,
        meta: &FrameMeta,
        port: PortId,
        by: LookupKind,
        hash: impl Fn() -> u64,
    ) -> Option<PortId> {
        if SPREAD
            && by == "static"
            && let Some(ports) = self.snapshot.links.station(meta.vid, meta.head.dst())
        {
            self.chosen = true;
            let carriers = self.snapshot.carriers.get(meta.head.format() as usize);
            let able = carriers.copied().unwrap_or_default();
            let able = able.and(self.up).and(self.snapshot.vlan.members(meta.vid));
            // A static station behind several ports may be behind the input, too, to which nothing
            // returns.
            let others = ports.without(PortSet::only(self.home));
            return self.snapshot.links.pick_port(others, hash(), self.joined_spreads, able);
        }
        Some(port).filter(|&port| port != self.home)
    }

    #[inline]
    fn lookup(&self, meta: &FrameMeta) -> Option<(PortId, LookupKind)> {
        let hit = self.core.fdb.lookup_at(meta.dst)?;
        Some((hit.port, if hit.is_static { "static" } else { "fdb" }))
    }

    /// The outputs of a frame without a known single destination, if its storm limit admits it.
    #[inline(never)] // rare
    fn flood(&mut self, meta: &FrameMeta, len: usize) -> Result<(PortSet, LookupKind), DropReason> {
        let head = &meta.head;
        let (kind, reason) = if head.broadcast() {
            (StormKind::Broadcast, DropReason::StormBroadcast)
        } else if head.group() || head.reserved_group() {
            (StormKind::Multicast, DropReason::StormMulticast)
        } else if !self.snapshot.config.forward.flood_unknown {
            return Err(DropReason::UnknownUnicast);
        } else {
            (StormKind::UnknownUnicast, DropReason::StormUnknown)
        };
        // Counted once a frame, before the VLAN and the group say how many copies it becomes: the
        // limit is on what comes in.
        if !self.storm.allow(kind, len, self.now) {
            return Err(reason);
        }
        Ok(match kind {
            StormKind::Broadcast => (self.snapshot.ports, "broadcast"),
            StormKind::UnknownUnicast => (self.snapshot.ports, "flood"),
            StormKind::Multicast => match self.snapshot.groups.lookup(meta.vid, head.dst()) {
                Some(ports) => (ports, "group"),
                None => (self.snapshot.ports, "flood"),
            },
        })
    }

    /// Removes outputs that are down, cannot carry the format or the length, and the input; keeps
    /// one link of each LAG. Each step that leaves none has a drop reason of its own.
    #[inline]
    fn narrow(
        &mut self,
        wanted: PortSet,
        meta: &FrameMeta,
        len: usize,
        hash: impl Fn() -> u64,
    ) -> Verdict {
        let (snapshot, input) = (self.snapshot, self.input);
        let wanted = if SPREAD { snapshot.links.expand(wanted) } else { wanted };
        let wanted = wanted.without(self.own);
        if wanted.is_empty() {
            return Verdict::Drop(DropReason::NoOutput);
        }
        let up = wanted.and(self.up);
        if up.is_empty() {
            let is_up = !wanted.and(self.core.up()).is_empty();
            return Verdict::Drop(if is_up {
                DropReason::LoopBlocked
            } else {
                DropReason::PortDown
            });
        }
        let carriers = snapshot.carriers.get(meta.head.format() as usize);
        let mut outputs = up.and(carriers.copied().unwrap_or_default());
        if outputs.is_empty() {
            return Verdict::Drop(DropReason::FormatFiltered);
        }
        // The longest frame that fits every port, whatever tag is added: shorter ones need no look
        // at each port.
        if len > snapshot.frame_len_safe {
            outputs = outputs.iter().filter(|&port| self.fits(port, meta, len)).collect();
            if outputs.is_empty() {
                return Verdict::Drop(DropReason::TooLong);
            }
        }
        if SPREAD {
            let (left, chosen) = snapshot.links.pick_members(outputs, hash, self.joined_lags);
            outputs = left;
            self.chosen |= chosen;
        }
        // After all filters: a mirror shows the frames that are forwarded, of any VLAN.
        if let Some(mirror) = snapshot.config.mirror
            && !outputs.or(PortSet::only(input)).and(mirror.from).is_empty()
            && mirror.to != input
            && self.up.contains(mirror.to)
            && (len <= snapshot.frame_len_safe || self.fits(mirror.to, meta, len))
        {
            outputs.insert(mirror.to);
        }
        Verdict::Forward(outputs)
    }

    /// Whether `output` may send a frame that came in with `len` bytes. The length that counts is
    /// the one on the wire: with a tag that is added, without one that is removed.
    #[inline(never)] // rare
    fn fits(&self, output: PortId, meta: &FrameMeta, len: usize) -> bool {
        let arrival = Arrival::of(meta.head.tci());
        let op = self.snapshot.vlan.egress(output, meta.vid, arrival);
        let port = self.snapshot.config.ports.get(output.index());
        port.is_some_and(|port| op.len_after(len) <= port.frame_len_max)
    }
}
