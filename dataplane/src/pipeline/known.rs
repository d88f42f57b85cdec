//! Known flows: the short way of a burst, without parsing, looking up or asking frame by frame.
//!
//! Shape: a burst → a route for each frame whose flow is known → all at once into VOQs, if none of them
//! could be refused or cross XOFF. The long way ([`super::ingress`]) comes to the same.
//! Units: cells.
//! Source: docs/spec/pipeline.md §1 to §4.

use weft_parsers::{HEAD_LEN, flow_key};

use super::ingress::{Fate, InputLane, Note};
use super::{Context, Way};
use crate::batch::{BURST, Batch};
use crate::desc::{Desc, Flag};
use crate::fdb::Fdb;
use crate::flows::{FlowCache, Inputs, NO_KEY, Verdict, key_of};
use crate::queues::{Demand, QueueId};
use crate::stats::PortStats;
use crate::time::Instant;
use crate::types::{PortId, PortSet, PriSet};

/// The route of a frame whose flow is not known.
pub(super) const UNKNOWN: u16 = u16::MAX;

/// Frames of a burst, by their place in it.
#[derive(Clone, Copy)]
pub(super) struct Places(pub u64);

impl Places {
    pub fn first(count: usize) -> Self {
        Self(PortSet::first(count).bits())
    }

    /// Places, lowest first.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = usize> {
        PortSet::from_bits(self.0).iter().map(PortId::index)
    }
}

impl Context {
    /// Classifies frames of flows that are known and notes where they go; returns the others.
    #[inline(never)] // each loop on its own keeps its state in registers
    pub(super) fn recall(
        &self,
        now: Instant,
        input: PortId,
        batch: &mut Batch,
        routes: &mut [u16; BURST],
        flows: &mut FlowCache,
    ) -> Places {
        let snapshot = &*self.snapshot;
        let Some(config) = snapshot.config.ports.get(input.index()) else {
            routes.fill(UNKNOWN);
            return Places::first(batch.len());
        };
        flows.begin(Inputs {
            epoch: snapshot.epoch,
            fdb: self.core.fdb.version(),
            tick: Fdb::stamp(now),
            up: self.core.forwarding().bits(),
        });
        let mut keys = [NO_KEY; BURST];
        for (desc, slot) in batch.iter().zip(&mut keys) {
            if let Some(found) = flow_key(self.bufs.head(desc), desc.len(), &config.parse) {
                *slot = key_of(input, found);
            }
        }
        let stats = &self.stats.port[input];
        let most = snapshot.frame_len_safe;
        let of_burst = keys.get(..batch.len()).unwrap_or_default();
        if let Some((&first, others)) = of_burst.split_first()
            && others.last().is_none_or(|&last| last == first)
            && of_burst.as_flattened().starts_with(others.as_flattened())
            && let Some(known) = flows.get(first)
            && batch.iter().all(|desc| desc.len() <= most)
        {
            repeat(stats, batch, routes, known);
            return Places(0);
        }
        let (mut alike, mut unknown) = (Alike::default(), 0_u64);
        let mut bit = 1;
        for ((desc, route), &key) in batch.iter_mut().zip(routes).zip(&keys) {
            let len = desc.len();
            if let Some(known) = flows.get(key).filter(|_| len <= most) {
                desc.repeat(known.facts, known.vid);
                alike.count(stats, len, known.facts.format_index());
                *route = known.queue.get();
            } else {
                unknown |= bit;
                *route = UNKNOWN;
            }
            bit <<= 1;
        }
        alike.settle(stats);
        Places(unknown)
    }

    /// Notes the queues of frames that were forwarded to one each; whether that is all.
    pub(super) fn route(
        &self,
        (batch, which): (&mut [Desc], Places),
        notes: &[Note; BURST],
        routes: &mut [u16; BURST],
    ) -> bool {
        for place in which.iter() {
            let (Some(desc), Some(note)) = (batch.get_mut(place), notes.get(place)) else { break };
            let Fate::Forward(outputs) = note.fate else { return false };
            let Some((route, output)) = routes.get_mut(place).zip(outputs.sole()) else {
                return false;
            };
            *route = QueueId::new(output, desc.pri()).get();
            desc.set(Flag::Pg, self.snapshot.is_lossless(desc.input(), desc.pri()));
        }
        true
    }

    /// Keeps what was decided for the next frames of the flow: its source is known, and so is its one
    /// destination.
    pub(super) fn remember(&self, flows: &mut FlowCache, desc: &Desc, note: &Note) {
        let Some(config) = self.snapshot.config.ports.get(desc.input().index()) else { return };
        let found = flow_key(self.bufs.head(desc), desc.len(), &config.parse);
        if let (Some(found), Fate::Forward(outputs)) = (found, note.fate)
            && let Some(output) = outputs.sole()
        {
            let is_lossless = self.snapshot.is_lossless(desc.input(), desc.pri());
            let facts = if is_lossless { desc.facts().charged_to_group() } else { desc.facts() };
            let queue = QueueId::new(output, desc.pri());
            let verdict = Verdict { queue, vid: note.vid.get(), facts };
            flows.put(key_of(desc.input(), found), verdict);
        }
    }
}

/// Classifies frames of one flow that is known, and notes where they go.
#[inline(never)] // as `recall`
fn repeat(stats: &PortStats, batch: &mut Batch, routes: &mut [u16; BURST], known: Verdict) {
    let mut alike = Alike::default();
    for (desc, route) in batch.iter_mut().zip(routes) {
        desc.repeat(known.facts, known.vid);
        alike.count(stats, desc.len(), known.facts.format_index());
        *route = known.queue.get();
    }
    alike.settle(stats);
}

impl InputLane {
    /// Queues a burst of frames, all to known queues; false, and nothing done, if they must be looked at
    /// one by one.
    #[inline(never)] // as `recall`
    pub(super) fn enqueue_all(
        &mut self,
        ctx: &mut Context,
        batch: &mut Batch,
        routes: &[u16; BURST],
        demand: &mut Demand,
    ) -> bool {
        let Context { core, snapshot, stats, lease, way, .. } = ctx;
        if !snapshot.thresholds.admit_bursts() {
            return false;
        }
        let count = batch.len();
        let (first, others) = (routes[0], routes.get(..count).unwrap_or_default());
        if others.iter().fold(0, |sum, route| sum | (route ^ first)) == 0 {
            // All to one queue: nothing to be added up in memory, frame after frame.
            let cells = batch.iter().map(|desc| snapshot.cells(desc.len())).sum();
            demand.add_alike(QueueId::from_low_bits(first), count, cells);
        } else {
            for (desc, &route) in batch.iter().zip(routes) {
                demand.add(QueueId::from_low_bits(route), snapshot.cells(desc.len()));
            }
        }
        let lossless =
            if snapshot.pfc_ports.contains(self.port) { snapshot.lossless } else { PriSet::EMPTY };
        let groups = (self.port, lossless);
        let has_room = match way {
            Way::Here(voqs) => voqs.has_room(count),
            Way::There(_) => true, // or it would not have been received
        };
        let granted =
            has_room && core.buffer.admit_all(lease, &snapshot.thresholds, groups, demand);
        if granted {
            for pri in lossless.iter() {
                let used = core.buffer.group_used(self.port, pri);
                stats.port[self.port].pri[pri].pg_watermark.raise(u64::from(used));
            }
            for queue in demand.queues().iter() {
                self.enqueued[queue.pri()] += demand.frames_of(queue);
                self.catching.queue(queue.output(), queue.pri());
            }
            let queues = routes.iter().map(|&route| QueueId::from_low_bits(route));
            let frames = batch.drain(..).zip(queues);
            match way {
                Way::Here(voqs) => voqs.push_all(self.port, demand.queues(), frames),
                Way::There(uplink) => uplink.push_all(frames),
            }
            self.touched.unite(demand.queues());
        }
        demand.clear();
        granted
    }
}

/// Frames in a row that are of one length and format, counted together.
#[derive(Default)]
pub(super) struct Alike {
    len: usize,
    format: usize,
    frames: u64,
}

impl Alike {
    #[inline]
    pub fn count(&mut self, stats: &PortStats, len: usize, format: usize) {
        if (len, format) != (self.len, self.format) {
            self.settle(stats);
            (self.len, self.format) = (len, format);
        }
        self.frames += 1;
    }

    #[inline]
    pub fn settle(&mut self, stats: &PortStats) {
        let frames = core::mem::take(&mut self.frames);
        if let Some(bin) = stats.rx_size.get(size_bin(self.len)) {
            bin.add(frames);
        }
        if let Some(counter) = stats.rx_format.get(self.format) {
            counter.add(frames);
        }
        stats.rx_bytes.add(frames * self.len as u64);
    }
}

/// The bin of a frame of `len` bytes without FCS.
#[inline]
fn size_bin(len: usize) -> usize {
    // Bins double from 64 on, but for the last two bounds: 1,023 and 1,518.
    let with_fcs = len + 4;
    match with_fcs {
        ..=64 => 0,
        65..=1_023 => with_fcs.ilog2() as usize - 5,
        1_024..=1_518 => 5,
        _ => 6,
    }
}

const _: () = assert!(HEAD_LEN == 64, "the first cache line of a frame");

#[cfg(test)]
mod tests {
    use super::size_bin;
    use crate::stats::SIZE_BINS;

    #[test]
    fn a_frame_is_in_the_first_bin_that_holds_it() {
        for len in 14..=9_300 {
            let want = SIZE_BINS.iter().position(|&bound| len + 4 <= bound);
            assert_eq!(Some(size_bin(len)), want, "{len}");
        }
    }
}
