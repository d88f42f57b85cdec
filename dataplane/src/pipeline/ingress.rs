//! Ingress: receive, parse, classify, forward, admit, enqueue, learn, for one burst of one port.
//!
//! Shape: passes over the whole burst; a frame's [`Fate`] is decided first and carried out last.
//! Units: cells.
//! Source: pipeline.md §1 to §4, §9.

use weft_parsers::{Ecn, Format, HEAD_LEN, Head, Vid, parse_head};

use super::Lane;
use super::route::Router;
use crate::batch::{BURST, Batch};
use crate::buffer::Verdict;
use crate::config::{PfcMode, Trust};
use crate::desc::{Desc, Flag};
use crate::fdb::{FdbKey, Learned, Probe};
use crate::pfc::PauseTx;
use crate::port::Port;
use crate::snapshot::Snapshot;
use crate::stats::DropReason;
use crate::storm::StormGuard;
use crate::sync::Ordering;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet, Pri, PriSet};
use crate::voq::VoqInput;

/// What one worker keeps for a port as input.
pub(super) struct InputLane {
    pub port: PortId,
    pub voq: VoqInput,
    storm: StormGuard,
    pub pause: PauseTx,
    /// Lossless priorities whose group has crossed XOFF.
    pub xoff: PriSet,
    seen: crate::port::PortCounters,
}

impl InputLane {
    pub fn new(port: PortId, voq: VoqInput, snapshot: &Snapshot) -> Self {
        Self {
            port,
            voq,
            storm: StormGuard::new(storm_limits(snapshot, port)),
            pause: PauseTx::new(),
            xoff: PriSet::EMPTY,
            seen: crate::port::PortCounters::default(),
        }
    }

    pub fn reconfigure(&mut self, old: &Snapshot, new: &Snapshot) {
        let limits = storm_limits(new, self.port);
        if limits != storm_limits(old, self.port) {
            self.storm = StormGuard::new(limits);
        }
        self.pause.remap();
    }

    pub fn link_down(&mut self) {
        self.pause.link_down();
    }

    pub fn next(&self, now: Instant) -> Option<Instant> {
        self.pause.next(now)
    }
}

fn storm_limits(snapshot: &Snapshot, port: PortId) -> crate::storm::StormLimits {
    snapshot.config.ports.get(port.index()).map(|p| p.storm).unwrap_or_default()
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Forward(PortSet),
    Drop(DropReason),
    Consume,
}

/// What is known of each frame of a burst.
#[derive(Clone, Copy)]
pub(super) struct Note {
    pub head: Head,
    pub vid: Vid,
    /// Keys of the FDB, while the fate is to be forwarded.
    pub dst: Probe,
    pub src: Probe,
    pri: Pri,
    fate: Fate,
}

/// Memory of a burst, made once.
pub(super) struct Scratch {
    notes: [Note; BURST],
    learn: arrayvec::ArrayVec<FdbKey, BURST>,
}

impl Scratch {
    pub fn new() -> Self {
        let note = Note {
            head: Head::EMPTY,
            pri: Pri::from_low_bits(0),
            vid: Vid::from_low_bits(0),
            dst: Probe::EMPTY,
            src: Probe::EMPTY,
            fate: Fate::Consume,
        };
        Self { notes: [note; BURST], learn: arrayvec::ArrayVec::new() }
    }
}

impl Lane {
    /// One burst of one port; returns how many frames it was.
    pub(super) fn receive<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        port: &mut dyn Port,
        tracer: &mut T,
    ) -> usize {
        let mut batch = Batch::new();
        if port.rx(now, &mut self.bufs, &mut batch) == 0 {
            return 0;
        }
        let Some(input) = self.inputs.get(index).map(|lane| lane.port) else { return 0 };
        self.parse(now, input, &mut batch, tracer);
        self.forward(now, index, &batch, tracer);
        let count = batch.len();
        for (i, desc) in batch.drain(..).enumerate() {
            self.dispose(now, index, i, desc, tracer);
        }
        if let Some(lane) = self.inputs.get_mut(index) {
            lane.voq.publish();
        }
        self.learn(now, input, tracer);
        count
    }

    /// Parses and classifies the burst.
    fn parse<T: Tracer>(&mut self, now: Instant, input: PortId, batch: &mut Batch, tracer: &mut T) {
        let snapshot = &self.snapshot;
        let Some(config) = snapshot.config.ports.get(input.index()) else { return };
        let Some(classifier) = snapshot.classifiers.get(input.index()) else { return };
        let (stats, fdb) = (&self.stats.port[input], &self.core.fdb);
        let mut bytes = 0;
        for (desc, note) in batch.iter_mut().zip(&mut self.scratch.notes) {
            let len = desc.len();
            bytes += len as u64;
            if let Some(bin) = stats.rx_size.get(size_bin(len)) {
                bin.add(1);
            }
            if T::ON {
                let digest =
                    self.bufs.head(desc).first_chunk().map_or(0, |d| u64::from_be_bytes(*d));
                let frame = tracer.number();
                let len = u16::try_from(len).unwrap_or(u16::MAX);
                tracer.event(now, Event::Rx { frame, port: input.get(), len, digest });
                self.bufs.set_trace_id(desc, frame);
            }
            let parsed = parse_head(self.bufs.head(desc), len, &config.parse);
            let malformed = parsed.is_err();
            let head = parsed.unwrap_or(Head::EMPTY);
            let format = head.format();
            note.fate = if malformed {
                Fate::Drop(DropReason::Malformed)
            } else if len > config.frame_len_max {
                Fate::Drop(DropReason::TooLong)
            } else if format == Format::MacControl {
                Fate::Consume
            } else {
                match snapshot.vlan.ingress(input, head.tci()) {
                    Ok(vid) => {
                        note.vid = vid;
                        note.dst = fdb.probe(FdbKey::new(vid, head.dst()));
                        note.src = fdb.probe(FdbKey::new(vid, head.src()));
                        Fate::Forward(PortSet::EMPTY)
                    }
                    Err(_) => Fate::Drop(DropReason::VlanFiltered),
                }
            };
            note.head = head;
            if let Some(counter) = stats.rx_format.get(format as usize) {
                counter.add(1);
            }
            let (pri, by) = classifier.pri(&head);
            note.pri = pri;
            let markable = head.ecn_markable() && head.ecn().is_some_and(Ecn::is_ect);
            desc.classify(input, format, pri, (head.tagged(), markable));
            let filtered = Fate::Drop(DropReason::VlanFiltered); // it was classified, too
            if T::ON && (matches!(note.fate, Fate::Forward(_)) || note.fate == filtered) {
                let event = Event::Classify {
                    frame: self.bufs.trace_id(desc),
                    format: format.name(),
                    pri: pri.get(),
                    by: by.map_or("default", Trust::name),
                    vid: head.tci().map_or(0, |tci| tci.vid().get()),
                };
                tracer.event(now, event);
            }
        }
        stats.rx_frames.add(batch.len() as u64);
        stats.rx_bytes.add(bytes);
        self.stats.frames.add(batch.len() as u64);
    }

    /// Decides where the frames of the burst go.
    fn forward<T: Tracer>(&mut self, now: Instant, index: usize, batch: &[Desc], tracer: &mut T) {
        let Some(lane) = self.inputs.get_mut(index) else { return };
        let Scratch { notes, learn } = &mut *self.scratch;
        let mut router = Router {
            core: &self.core,
            snapshot: &self.snapshot,
            storm: &mut lane.storm,
            now,
            input: lane.port,
            up: self.core.up(),
        };
        for (desc, note) in batch.iter().zip(notes) {
            if !matches!(note.fate, Fate::Forward(_)) {
                continue;
            }
            router.source(note, learn);
            let (fate, by) = router.destination(note, desc.len());
            note.fate = fate;
            if T::ON
                && let Fate::Forward(outputs) = fate
            {
                let frame = self.bufs.trace_id(desc);
                tracer.event(now, Event::Forward { frame, by, outputs: outputs.bits() });
            }
        }
    }

    /// Carries out what was decided for frame `i`.
    #[inline]
    fn dispose<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        i: usize,
        mut desc: Desc,
        tracer: &mut T,
    ) {
        let Some(note) = self.scratch.notes.get(i) else { return };
        match note.fate {
            Fate::Drop(reason) => self.end(now, desc, reason, tracer),
            Fate::Consume => {
                let head = note.head;
                self.consume(now, index, &head, desc, tracer);
            }
            Fate::Forward(outputs) => {
                desc.set_vid(note.vid.get());
                if self.snapshot.is_lossless(desc.input(), note.pri) {
                    self.enqueue_lossless(now, index, outputs, desc, tracer);
                } else {
                    self.enqueue_lossy(now, index, outputs, desc, tracer);
                }
            }
        }
    }

    /// Queues a lossy frame: each copy is charged to its own VOQ.
    fn enqueue_lossy<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        outputs: PortSet,
        mut desc: Desc,
        tracer: &mut T,
    ) {
        let cells = self.snapshot.cells(desc.len());
        let (input, pri) = (desc.input(), desc.pri());
        let mut left = outputs;
        while let Some(output) = left.iter().next() {
            left.remove(output);
            let copy = if left.is_empty() {
                None
            } else {
                self.stats.port[input].copies.add(1);
                Some(self.bufs.share(&mut desc))
            };
            let queue = (input, output, pri);
            let admission = self.core.buffer.admit_voq(
                &mut self.lease,
                &self.snapshot.thresholds,
                queue,
                cells,
            );
            if T::ON {
                self.trace_admission(now, &desc, output, cells, admission, tracer);
            }
            match admission.verdict {
                Verdict::Drop(reason) => self.end(now, desc, reason, tracer),
                _ => self.push(now, index, output, desc, tracer),
            }
            match copy {
                Some(next) => desc = next,
                None => return,
            }
        }
        self.end(now, desc, DropReason::NoOutput, tracer); // a set that was checked not to be empty
    }

    /// Queues a lossless frame: charged once to its ingress group, until its last copy leaves.
    fn enqueue_lossless<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        outputs: PortSet,
        mut desc: Desc,
        tracer: &mut T,
    ) {
        let cells = self.snapshot.cells(desc.len());
        let (input, pri) = (desc.input(), desc.pri());
        let group = (input, pri);
        let admission =
            self.core.buffer.admit_group(&mut self.lease, &self.snapshot.thresholds, group, cells);
        let first = outputs.iter().next().unwrap_or_default();
        if T::ON {
            self.trace_admission(now, &desc, first, cells, admission, tracer);
        }
        if let Verdict::Drop(reason) = admission.verdict {
            self.cross_xoff(now, index, pri, admission.limit, tracer);
            let more = outputs.len().saturating_sub(1);
            self.stats.port[input].copies.add(more as u64);
            for _ in 0..more {
                self.stats.count_drop_pri(input, pri, reason);
                if T::ON {
                    let frame = self.bufs.trace_id(&desc);
                    tracer.event(
                        now,
                        Event::Drop { frame, port: input.get(), reason: reason.name() },
                    );
                }
            }
            return self.end(now, desc, reason, tracer);
        }
        desc.set(Flag::Pg, true);
        let stats = &self.stats.port[input].pri[pri];
        stats.pg_watermark.raise(u64::from(admission.used + cells));
        if admission.verdict == Verdict::Headroom {
            let used = self.core.buffer.headroom_used(input, pri);
            stats.headroom_watermark.raise(u64::from(used));
            self.cross_xoff(now, index, pri, admission.limit, tracer);
        }
        let mut left = outputs;
        while let Some(output) = left.iter().next() {
            left.remove(output);
            let copy = if left.is_empty() {
                None
            } else {
                self.stats.port[input].copies.add(1);
                Some(self.bufs.share(&mut desc))
            };
            self.core.buffer.deepen(output, pri, cells);
            self.push(now, index, output, desc, tracer);
            match copy {
                Some(next) => desc = next,
                None => return,
            }
        }
        self.end(now, desc, DropReason::NoOutput, tracer);
    }

    fn trace_admission<T: Tracer>(
        &self,
        now: Instant,
        desc: &Desc,
        output: PortId,
        cells: u32,
        admission: crate::buffer::Admission,
        tracer: &mut T,
    ) {
        let verdict = match admission.verdict {
            Verdict::Queue => "queue",
            Verdict::Headroom => "in_headroom",
            Verdict::Drop(reason) => reason.name(),
        };
        let event = Event::Admit {
            frame: self.bufs.trace_id(desc),
            input: desc.input().get(),
            output: output.get(),
            pri: desc.pri().get(),
            verdict,
            cells,
            used: admission.used,
            limit: admission.limit,
            shared_used: self.core.buffer.shared_used(),
        };
        tracer.event(now, event);
    }

    /// Puts a charged frame into its VOQ.
    #[inline]
    fn push<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        output: PortId,
        desc: Desc,
        tracer: &mut T,
    ) {
        let (input, pri) = (desc.input(), desc.pri());
        let Some(lane) = self.inputs.get_mut(index) else { return };
        if let Err(desc) = lane.voq.push(&mut self.nodes, output, pri, desc) {
            return self.discard(now, desc, output, DropReason::Pool, tracer);
        }
        let depth = u64::from(self.core.buffer.depth(output, pri));
        self.stats.port[output].pri[pri].depth_watermark.raise(depth);
        self.stats.port[input].pri[pri].enqueued.add(1);
        if let PfcMode::EgressQueue { xoff_bytes, .. } = self.snapshot.config.pfc.mode
            && depth * u64::from(self.snapshot.config.buffer.cell_bytes) > xoff_bytes
        {
            let bit = PortSet::only(output).bits();
            self.core.congested[pri].fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Notes that a group is above XOFF.
    fn cross_xoff<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        pri: Pri,
        limit: u32,
        tracer: &mut T,
    ) {
        let Some(lane) = self.inputs.get_mut(index) else { return };
        if lane.xoff.contains(pri) {
            return;
        }
        lane.xoff.insert(pri);
        self.stats.port[lane.port].pri[pri].xoff.add(1);
        if self.snapshot.config.pfc.mode == PfcMode::IngressPg {
            lane.pause.set(pri, true);
            self.core.xoff[lane.port].fetch_or(1 << pri.get(), Ordering::Relaxed);
        }
        if T::ON {
            let used = self.core.buffer.group_used(lane.port, pri)
                + self.core.buffer.headroom_used(lane.port, pri);
            let port = lane.port.get();
            tracer.event(now, Event::Group { port, pri: pri.get(), xoff: true, used, limit });
        }
    }

    /// Releases groups that have reached XON, and in `egress-queue` mode follows the queues.
    pub(super) fn groups<T: Tracer>(&mut self, now: Instant, tracer: &mut T) {
        for lane in &mut self.inputs {
            for pri in lane.xoff.iter() {
                let buffer = &self.core.buffer;
                let limit = buffer.group_limit(&self.lease, &self.snapshot.thresholds, pri);
                let head = buffer.headroom_used(lane.port, pri);
                let used = buffer.group_used(lane.port, pri) + head;
                if used > self.snapshot.thresholds.xon(limit) {
                    continue;
                }
                lane.xoff.remove(pri);
                self.stats.port[lane.port].pri[pri].xon.add(1);
                if self.snapshot.config.pfc.mode == PfcMode::IngressPg {
                    lane.pause.set(pri, false);
                    self.core.xoff[lane.port].fetch_and(!(1 << pri.get()), Ordering::Relaxed);
                }
                if T::ON {
                    let port = lane.port.get();
                    let pri = pri.get();
                    tracer.event(now, Event::Group { port, pri, xoff: false, used, limit });
                }
            }
            if matches!(self.snapshot.config.pfc.mode, PfcMode::EgressQueue { .. }) {
                for pri in self.snapshot.lossless.iter() {
                    let hot = PortSet::from_bits(self.core.congested[pri].load(Ordering::Relaxed));
                    let on = self.snapshot.pfc_ports.contains(lane.port)
                        && hot.iter().any(|output| lane.voq.is_waiting(output, pri));
                    lane.pause.set(pri, on);
                    let word = &self.core.xoff[lane.port];
                    let bits = word.load(Ordering::Relaxed);
                    let bit = 1 << pri.get();
                    word.store(if on { bits | bit } else { bits & !bit }, Ordering::Relaxed);
                }
            }
        }
    }

    /// Learns what the burst brought; seen from the next one on.
    fn learn<T: Tracer>(&mut self, now: Instant, input: PortId, tracer: &mut T) {
        for key in core::mem::take(&mut self.scratch.learn) {
            let outcome = self.core.fdb.learn(key, input, now);
            let name = match outcome {
                Learned::New => "new",
                Learned::Moved { .. } => "moved",
                Learned::Known => "known",
                Learned::PortLimit => "port_limit",
                Learned::Full => "full",
                Learned::Static => "static",
                Learned::Busy => "busy",
            };
            match outcome {
                Learned::Moved { .. } => self.stats.port[input].fdb_moves.add(1),
                Learned::Busy => self.stats.learn_busy.add(1),
                _ => {}
            }
            if T::ON {
                let event =
                    Event::Learn { key: key.addr().to_bits(), port: input.get(), outcome: name };
                tracer.event(now, event);
            }
        }
    }

    /// Books what a port counted beside the frames that it delivered and took.
    pub(super) fn settle_port(&mut self, index: usize, port: &mut dyn Port) {
        let Some(lane) = self.inputs.get_mut(index) else { return };
        let now = port.counters();
        if now == lane.seen {
            return;
        }
        let stats = &self.stats.port[lane.port];
        for (slot, &(reason, total)) in now.rx_dropped.iter().enumerate() {
            let before = lane.seen.rx_dropped.get(slot).map_or(0, |&(_, total)| total);
            let Some(reason) = reason else { continue };
            for _ in before..total {
                stats.rx_frames.add(1);
                self.stats.count_drop(lane.port, reason);
            }
        }
        for _ in lane.seen.tx_failed..now.tx_failed {
            stats.tx_frames.sub(1);
            stats.late_drops.add(1);
            self.stats.count_drop(lane.port, DropReason::TxError);
        }
        stats.kernel_rx.set(now.kernel_rx);
        lane.seen = now;
    }
}

/// The bin of a frame of `len` octets without FCS.
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
