//! Whole super-frames: those whose frames would all leave at once and unchanged pass from port to port in one piece.
//!
//! The conditions are those of the kernel's fast path (docs/express.md): a known flow of a lossy priority, no change of
//! tag, and nothing that queues, limits, marks or mirrors frames at the output. Any other super-frame is received as
//! frames.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §11.

use weft_parsers::{HEAD_LEN, Tci, Vid};

use super::Lane;
use crate::flows::CachedVerdict;
use crate::pipeline::burst::CountRun;
use crate::pipeline::context::Context;
use crate::pipeline::flow_cache::lookup_head;
use crate::pipeline::output_lane::count_alike;
use crate::pipeline::parse::count_burst;
use crate::port::{Port, Segments};
use crate::stats::Counter;
use crate::time::Instant;
use crate::trace::{Part, Tracer};
use crate::types::PortId;
use crate::vlan::{Arrival, TagOp};

/// Super-frames of one port that pass in a step, so that other ports get their turn in time.
const MOST: usize = 4;

impl Lane {
    /// Passes on the super-frames that come first at the port at place `index`, as long as they need not be split;
    /// returns how many frames they stand for.
    #[inline]
    pub(in crate::pipeline) fn pass_whole<T: Tracer>(
        &mut self,
        now: Instant,
        index: usize,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> usize {
        // A trace shows each frame's path in full.
        if T::ON {
            return 0;
        }
        let passed = (0..MOST).map_while(|_| self.pass_one(now, index, ports)).sum();
        if passed > 0 {
            tracer.part(Part::Transmit);
        }
        passed
    }

    fn pass_one(
        &mut self,
        now: Instant,
        index: usize,
        ports: &mut [Box<dyn Port>],
    ) -> Option<usize> {
        let frame = ports.get_mut(index)?.super_frames()?.front()?;
        let segments = frame.segments();
        let (place, known) = self.way(now, index, frame.head()?, segments)?;
        let [from, to] = ports.get_disjoint_mut([index, place]).ok()?;
        let from = from.super_frames()?;
        if !to.super_frames()?.send(now, &from.front()?) {
            return None;
        }
        from.pop();
        let input = self.inputs.get(index)?.port;
        count(&self.ctx, input, known, segments);
        Some(segments.count)
    }

    /// Place of the output and the cached decision for frames that begin with `head`, if all of them would leave at once
    /// and unchanged.
    fn way(
        &mut self,
        now: Instant,
        index: usize,
        head: &[u8; HEAD_LEN],
        segments: Segments,
    ) -> Option<(usize, CachedVerdict)> {
        let Self { ctx, inputs, outputs, flows, .. } = self;
        let (lane, core, snapshot) = (inputs.get(index)?, &ctx.core, &*ctx.snapshot);
        let input = lane.port;
        // Samples, by which loops are noticed, are taken of bursts of frames.
        let is_sampled = lane.repeats.is_due(now) && snapshot.probed.contains(input);
        if is_sampled || snapshot.tlp_ports.contains(input) || core.blocked().contains(input) {
            return None;
        }
        let known = lookup_head(ctx, now, input, head, segments.len, flows)?;
        let (output, pri) = (known.queue.output(), known.queue.pri());
        let tci = known.meta.is_tagged().then(|| Tci(u16::from_be_bytes([head[14], head[15]])));
        let op = snapshot.vlan.egress(output, Vid::from_low_bits(known.vid), Arrival::of(tci));
        if op != TagOp::Keep || snapshot.is_lossless(input, pri) {
            return None;
        }
        // A queue that is empty now would hold all of them for a moment.
        let cells = |len: usize| u64::from(snapshot.cells(len));
        let (most, last) = (segments.count as u64 - 1, cells(segments.last_len));
        let depth =
            (most * cells(segments.len) + last) * u64::from(snapshot.config.buffer.cell_bytes);
        let profiles = [snapshot.ecn, snapshot.wred[pri]];
        if profiles.into_iter().flatten().any(|profile| profile.may_mark(depth)) {
            return None;
        }
        let place = outputs.iter().position(|lane| lane.port == output)?;
        let gate = outputs.get(place)?.gate(core, snapshot.unshaped[output]);
        gate.contains(pri).then_some((place, known))
    }
}

/// Counts the frames of a super-frame that passed, as if each had gone through empty queues.
fn count(ctx: &Context, input: PortId, known: CachedVerdict, segments: Segments) {
    let (output, pri) = (known.queue.output(), known.queue.pri());
    let (from, to) = (&ctx.stats.port[input], &ctx.stats.port[output]);
    let Segments { count, len, last_len } = segments;
    count_burst(ctx, input, count);
    let mut run = CountRun::default();
    run.count_alike(from, len, known.meta.format_index(), count - 1);
    run.count(from, last_len, known.meta.format_index());
    run.flush(from);
    let frames = count as u64;
    from.pri[pri].enqueued.add(frames);
    to.pri[pri].dequeued.add(frames);
    to.tx_frames.add(frames);
    count_alike(to, known.meta.frame_stats(), frames, segments.bytes() as u64, Counter::add);
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use weft_base::rng::Rng;

    use super::*;
    use crate::config::{EcnConfig, MirrorConfig, SwitchConfig, WredConfig};
    use crate::pipeline::{Ledger, Switch, SwitchBuilder};
    use crate::port::super_frames::testing::{Memory, State, tcp};
    use crate::time::{LinkRate, Span};
    use crate::trace::{Event, Listen, Trace};
    use crate::types::{PortSet, Pri, PriSet};
    use crate::vlan::{PortMode, VidSet};

    /// VLAN 5, and a priority that is lossy by default.
    const TAG: [u8; 4] = [0x81, 0x00, 0xE0, 0x05];

    /// A switch between station 1 at port 0 and station 2 at port 1; port 2 has none.
    struct Bench {
        switch: Switch,
        ports: Vec<Arc<Mutex<State>>>,
        now: Instant,
    }

    impl Bench {
        fn new(change: impl FnOnce(&mut SwitchConfig)) -> Self {
            let made =
                || (0..3).map(|n| Memory::new(&format!("m{n}"))).unzip::<_, _, Vec<_>, Vec<_>>();
            let boxed = |ports: Vec<Memory>| -> Vec<Box<dyn Port>> {
                ports.into_iter().map(|port| Box::new(port) as Box<dyn Port>).collect()
            };
            let config = SwitchBuilder::new(boxed(made().0)).build().unwrap();
            let mut config = config.core.snapshot.load().config.clone();
            change(&mut config);
            let (memories, ports) = made();
            let switch = SwitchBuilder::new(boxed(memories)).config(config).build().unwrap();
            let mut bench = Self { switch, ports, now: Instant::ZERO };
            // Both stations become known, and the flow between them: a sample is taken of the next burst only 10 ms
            // later.
            for tag in [None, Some(TAG)] {
                for n in 0..4 {
                    bench.port(1).arrives(tcp(2, 1, n, 100, tag));
                    bench.step(1);
                    bench.port(0).arrives(tcp(1, 2, n, 100, tag));
                    bench.step(1);
                }
            }
            for port in &bench.ports {
                port.lock().unwrap().sent.clear();
            }
            bench
        }

        fn port(&self, index: usize) -> std::sync::MutexGuard<'_, State> {
            self.ports[index].lock().unwrap()
        }

        fn step(&mut self, count: usize) {
            for _ in 0..count {
                self.now += Span::from_us(1);
                self.switch.step(self.now);
            }
        }

        /// TCP sequence numbers of the untagged frames that left by port 1.
        fn sequences(&self) -> Vec<u32> {
            let number = |frame: &Vec<u8>| u32::from_be_bytes(*frame[38..].first_chunk().unwrap());
            self.port(1).sent.iter().map(number).collect()
        }

        /// Sends a super-frame of ten frames from station 1 to station 2, and a frame behind it; how many left whole.
        fn pass(&mut self, tag: Option<[u8; 4]>) -> usize {
            self.port(0).arrives(tcp(1, 2, 0, 14_000, tag));
            self.port(0).arrives(tcp(1, 2, 14_000, 100, tag));
            self.step(3);
            self.port(1).whole
        }
    }

    fn ledger(bench: &Bench) -> Ledger {
        let mut ledger = Ledger::read(&bench.switch.core);
        assert_eq!((ledger.imbalance(), ledger.queued, ledger.dropped), (0, 0, 0));
        // Only frames that were queued are in these.
        ledger.shared_watermark = 0;
        for queue in ledger.port.iter_mut().flat_map(|port| &mut port.pri) {
            (queue.depth_watermark, queue.pg_watermark) = (0, 0);
        }
        ledger
    }

    #[test]
    fn whole_or_split_the_same_frames_leave_and_are_counted() {
        let mut rng = Rng::new(7);
        for round in 0..50 {
            let seed = rng.next_u64();
            let [whole, split] = [true, false].map(|has_whole| {
                let mut bench = Bench::new(|_| {});
                for port in &bench.ports {
                    port.lock().unwrap().has_whole = has_whole;
                }
                let mut rng = Rng::new(seed);
                let mut draw = |bound| usize::try_from(rng.below(bound)).unwrap();
                let mut sequence = 0;
                for _ in 0..30 {
                    let len = [1, 700, 1_460, 1_461, 2_896, 2_897, 40_000, 64_000][draw(8)];
                    let tag = (draw(4) == 0).then_some(TAG);
                    let (from, to) = if draw(3) == 0 { (2, 1) } else { (1, 2) };
                    bench.port(usize::from(from) - 1).arrives(tcp(from, to, sequence, len, tag));
                    sequence += u32::try_from(len).unwrap();
                    bench.step(draw(2));
                }
                bench.step(60);
                let whole = bench.port(0).whole + bench.port(1).whole;
                assert_eq!(whole > 0, has_whole, "round {round}");
                // By priority: a super-frame does not wait for frames of another one.
                let is_tagged = |frame: &Vec<u8>| frame[12..14] == TAG[..2];
                let sent = [0, 1, 2].map(|n| {
                    let sent = bench.port(n).sent.clone();
                    sent.into_iter().partition::<Vec<_>, _>(is_tagged)
                });
                (sent, ledger(&bench))
            });
            assert!(whole.0 == split.0, "round {round}: frames, and their order");
            assert_eq!(whole.1, split.1, "round {round}");
        }
    }

    #[test]
    fn what_queues_limits_marks_or_copies_frames_gets_them_one_by_one() {
        type Change = fn(&mut SwitchConfig);
        const PRI: Pri = Pri::ALL[0];
        const SLOW: Option<LinkRate> = Some(LinkRate::gbps(1));
        fn marks(config: &mut SwitchConfig, low_bytes: u64) {
            config.ecn = EcnConfig { enabled: true, low_bytes, high_bytes: 90_000, ..config.ecn };
        }
        fn drops(config: &mut SwitchConfig, low_bytes: u64) {
            let profile = WredConfig { low_bytes, high_bytes: 90_000, max_percent: 1 };
            config.wred[PRI] = Some(profile);
        }
        #[rustfmt::skip] // columns: name, change of the configuration, left whole
        let cases: [(_, Change, _); 10] = [
            ("as it is",       |_| {}, 1),
            ("a rate",         |c| c.ports[1].egress.port_max_rate = SLOW, 0),
            ("one of the pri", |c| c.ports[1].egress.pri_max_rate[PRI] = SLOW, 0),
            ("another port's", |c| c.ports[2].egress.port_max_rate = SLOW, 1),
            ("a mirror",       |c| {
                c.mirror = Some(MirrorConfig { from: PortSet::first(2), to: PortId::new(2).unwrap() });
            }, 0),
            ("lossless",       |c| (c.pfc.enabled, c.pfc.lossless) = (true, PriSet::only(PRI)), 0),
            ("marks",          |c| marks(c, 10_000), 0),
            ("deeper marks",   |c| marks(c, 20_000), 1),
            ("drops",          |c| drops(c, 10_000), 0),
            ("deeper drops",   |c| drops(c, 20_000), 1),
        ];
        for (name, change, want) in cases {
            let mut bench = Bench::new(change);
            assert_eq!(bench.pass(None), want, "{name}");
            for _ in 0..40 {
                bench.now += Span::from_us(1_000); // for what a rate holds back
                bench.step(1);
            }
            assert_eq!(bench.sequences().len(), 11, "{name}");
            assert!(bench.sequences().is_sorted(), "{name}: {:?}", bench.sequences());
        }
    }

    #[test]
    fn a_tag_that_is_taken_off_is_taken_off_each_frame() {
        for (untagged, whole) in [(5, 0), (6, 1)] {
            let mut bench = Bench::new(|config| {
                let native = Some(Vid::from_low_bits(untagged));
                config.ports[1].vlan = PortMode::Trunk { allowed: VidSet::all(), native };
            });
            assert_eq!(bench.pass(Some(TAG)), whole, "{untagged}");
            let sent = &bench.port(1).sent;
            assert_eq!(sent.len(), 11, "{untagged}");
            assert!(
                sent.iter().all(|frame| (frame[12..14] == TAG[..2]) == (whole == 1)),
                "{untagged}"
            );
        }
    }

    #[test]
    fn behind_frames_that_wait_it_waits_too() {
        let mut bench = Bench::new(|_| {});
        bench.port(1).is_full = true;
        assert_eq!(bench.pass(None), 0, "the output takes nothing");
        assert_eq!(bench.port(1).sent.len(), 0);
        bench.port(1).is_full = false;
        bench.port(0).arrives(tcp(1, 2, 20_000, 14_000, None));
        bench.step(1);
        bench.port(0).arrives(tcp(1, 2, 40_000, 14_000, None));
        bench.step(10);
        assert_eq!(bench.port(1).whole, 1, "the one that came when they had left");
        assert_eq!(bench.sequences().len(), 11 + 2 * 10);
        assert!(bench.sequences().is_sorted(), "{:?}", bench.sequences());
    }

    #[test]
    fn an_unknown_station_and_a_blocked_port_get_no_super_frame() {
        let mut bench = Bench::new(|_| {});
        bench.port(0).arrives(tcp(1, 9, 0, 14_000, None));
        bench.step(2);
        for n in [1, 2] {
            let port = bench.port(n);
            assert_eq!((port.whole, port.sent.len()), (0, 10), "port {n}");
        }
    }

    #[test]
    fn a_trace_shows_each_frame() {
        struct Count(usize);
        impl Listen for Count {
            fn listen(&mut self, _now: Instant, event: &Event) {
                self.0 += usize::from(matches!(event, Event::Tx { .. }));
            }
        }
        let mut bench = Bench::new(|_| {});
        bench.port(0).arrives(tcp(1, 2, 0, 14_000, None));
        let mut trace = Trace::new(Count(0));
        let (lane, ports) = &mut bench.switch.lanes[0];
        for n in 0..3 {
            lane.step(bench.now + Span::from_us(n), ports, &mut trace);
        }
        assert_eq!((trace.listener().0, bench.port(1).whole), (10, 0));
    }
}
