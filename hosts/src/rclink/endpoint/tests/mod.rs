//! Two endpoints, and a way between them that loses frames or that a third party writes to.

use std::sync::Arc;

use weft_base::rng::Rng;
use weft_dataplane::pool::Pool;
use weft_dataplane::port::flaw::Flaw;
use weft_dataplane::port::wire::{Wire, WireConfig, WireEnd, cable};
use weft_dataplane::time::LinkRate;
use weft_dataplane::types::PriSet;
use weft_parsers::{Ecn, Pcp, RhOpcode, Tci, Vid, rh};

use super::*;
use crate::frames::{Kind, Station};
use crate::pfc::SlowSpec;
use crate::rclink::credits::{CreditError, CreditSpec};
use crate::rclink::dcqcn::DcqcnSpec;
use crate::rclink::rate::RateError;
use crate::stamp::Stamp;

mod credits;
mod loss;
mod pause;
mod short;
mod turns;
mod types;

const RATE: LinkRate = LinkRate::gbps(400);
const WAY: Span = Span::from_ns(50);

/// An endpoint on a wire.
struct End {
    endpoint: Endpoint,
    port: Wire,
    bufs: Bufs,
    due: Option<Instant>,
    events: Vec<Event>,
    /// Whether it is polled as at a wire, with fronts of frames.
    is_short: bool,
}

impl End {
    fn new(spec: EndpointSpec, end: WireEnd, rate: LinkRate, delay: Span) -> Self {
        let mut config = WireConfig::new("e", rate);
        config.propagation = WAY + delay;
        config.latency = delay;
        Self {
            endpoint: Endpoint::new(spec).unwrap(),
            port: Wire::new(config, 1_518, end),
            bufs: Bufs::new(Pool::in_memory(64, 1_518).unwrap(), 1, 0),
            due: Some(Instant::ZERO),
            events: Vec::new(),
            is_short: false,
        }
    }

    fn poll(&mut self, now: Instant) {
        self.due = if self.is_short {
            self.endpoint.poll_wire(now, &mut self.port, true)
        } else {
            self.endpoint.poll(now, &mut self.port, &mut self.bufs).unwrap().next
        };
        self.events.extend(self.endpoint.events());
    }
}

/// A frame as the endpoint sends them to `to`.
fn frame_to(endpoint: &Endpoint, to: u16) -> FrameSpec {
    let mut frame = endpoint.request.spec().clone();
    frame.dst = *endpoint.peers.station(to).unwrap();
    frame
}

/// Two endpoints, with the middle that passes on their frames or drops them.
struct Pair {
    ends: [End; 2],
    middle: [WireEnd; 2],
    /// Time from the middle to the other end.
    way: Span,
    /// Counts of credits on their way, by the endpoint that sent them, and the time they take.
    credits: [VecDeque<(Instant, CreditUpdate)>; 2],
    credit_way: Span,
    now: Instant,
}

impl Pair {
    fn new(specs: [EndpointSpec; 2]) -> Self {
        Self::over(specs, RATE, WAY, Span::ZERO)
    }

    /// Endpoints with a latency of `delay` each way for each frame, `WAY` and `way` apart.
    fn over(specs: [EndpointSpec; 2], rate: LinkRate, way: Span, delay: Span) -> Self {
        let (a, middle_a) = cable(1_024);
        let (b, middle_b) = cable(1_024);
        let [spec_a, spec_b] = specs;
        let ends = [End::new(spec_a, a, rate, delay), End::new(spec_b, b, rate, delay)];
        let middle = [middle_a, middle_b];
        let (credits, credit_way, now) = Default::default();
        Self { ends, middle, way, credits, credit_way, now }
    }

    /// Endpoints 0 and 1 with frames of `kind`, changed by `change`.
    fn of(kind: Kind, change: impl Fn(&mut EndpointSpec)) -> Self {
        Self::new([0, 1].map(|number| {
            let mut spec = EndpointSpec::new(
                number,
                [Station::numbered(1), Station::numbered(2)].into(),
                kind,
            );
            spec.frame_events = true;
            change(&mut spec);
            spec
        }))
    }

    fn send(&mut self, from: usize, id: u32, bytes: u64) {
        let to = u16::try_from(1 - from).unwrap();
        self.ends[from].endpoint.send(Message { id, to, bytes }).unwrap();
        self.ends[from].due = Some(self.now);
    }

    /// Runs until no endpoint has anything to do, or until `limit`; `passes` decides about each frame, by its sender.
    fn run(&mut self, limit: Instant, mut passes: impl FnMut(usize, &[u8]) -> bool) {
        loop {
            let mut next = None;
            for end in &self.ends {
                next = Instant::earlier(next, end.due);
            }
            for end in &mut self.middle {
                next = Instant::earlier(next, end.next_arrival());
            }
            for said in &self.credits {
                next = Instant::earlier(next, said.front().map(|&(at, _)| at));
            }
            let Some(next) = next.filter(|&next| next <= limit) else { return };
            self.now = next.max(self.now);
            for from in 0..2 {
                while let Some(frame) = self.middle[from].receive(self.now) {
                    if passes(from, frame.bytes()) {
                        let at = frame.at + self.way;
                        let to = &mut self.middle[1 - from];
                        assert!(to.send_front(at, Flaw::None, frame.bytes(), frame.len()));
                        let end = &mut self.ends[1 - from];
                        end.due = Instant::earlier(end.due, end.port.next_arrival());
                    }
                }
                while self.credits[from].front().is_some_and(|&(at, _)| at <= self.now) {
                    let (_, update) = self.credits[from].pop_front().unwrap();
                    let end = &mut self.ends[1 - from];
                    end.endpoint.credits_in(u16::try_from(from).unwrap(), update);
                    end.due = Some(self.now);
                }
            }
            for (end, said) in self.ends.iter_mut().zip(&mut self.credits) {
                if end.due.is_some_and(|due| due <= self.now) {
                    end.poll(self.now);
                    while let Some((_, update)) = end.endpoint.credits_out() {
                        said.push_back((self.now + self.credit_way, update));
                    }
                }
            }
        }
    }

    /// Frames of messages that end `at` has taken, in order: message, index, bytes.
    fn taken(&self, at: usize) -> Vec<(u32, u32, usize)> {
        let frames = self.ends[at].events.iter().filter_map(|event| match *event {
            Event::Received { id, index, bytes, .. } => Some((id, index, bytes)),
            _ => None,
        });
        frames.collect()
    }

    /// Messages that end `at` has taken completely, in order: message, bytes.
    fn delivered(&self, at: usize) -> Vec<(u32, u64)> {
        let messages = self.ends[at].events.iter().filter_map(|event| match *event {
            Event::Delivered { id, bytes, .. } => Some((id, bytes)),
            _ => None,
        });
        messages.collect()
    }

    fn sent(&self, at: usize) -> Vec<u32> {
        let sent = self.ends[at].events.iter();
        sent.filter_map(|event| match *event {
            Event::Sent { id, .. } => Some(id),
            _ => None,
        })
        .collect()
    }
}

/// A limit that is never reached.
const LATE: Instant = Instant::from_ns(1_000_000_000);

/// Changes the description of an endpoint.
type Change = fn(&mut EndpointSpec);

fn tag(spec: &mut EndpointSpec) {
    spec.frame.vlan = Some(Tci::new(Pcp::from_low_bits(0), false, Vid::from_low_bits(7)));
}

#[test]
fn messages_arrive_in_frames_of_every_format() {
    #[rustfmt::skip] // columns: name, kind, what is changed
    let cases: [(&str, Kind, Change); 9] = [
        ("standard",       Kind::Standard, |_| ()),
        ("standard, VLAN", Kind::Standard, tag),
        ("standard, ICRC", Kind::Standard, |spec| spec.frame.icrc = true),
        ("GEN1",           Kind::Gen1,     |_| ()),
        ("GEN1, VLAN",     Kind::Gen1,     tag),
        ("GEN1, ICRC",     Kind::Gen1,     |spec| spec.frame.icrc = true),
        ("GEN2",           Kind::Gen2,     |_| ()),
        ("GEN2, VLAN",     Kind::Gen2,     tag),
        ("Lite",           Kind::Lite,     |spec| spec.parse.afh = weft_parsers::AfhMode::Lite),
    ];
    for (name, kind, change) in cases {
        let mut pair = Pair::of(kind, change);
        pair.send(0, 7, 10_000);
        pair.send(0, 8, 1);
        pair.send(1, 7, 1_344);
        pair.run(LATE, |_, _| true);
        let mut want: Vec<_> = (0..7).map(|index| (7, index, 1_344)).collect();
        // A frame of one byte is lengthened to hold its mark, and to the shortest frame.
        let spec = &pair.ends[0].endpoint.spec.frame;
        let shortest = 60_usize.saturating_sub(spec.header_len() + spec.trailer_len());
        want.extend([(7, 7, 592), (8, 0, shortest.max(24))]);
        assert_eq!(pair.taken(1), want, "{name}");
        assert_eq!(pair.taken(0), [(7, 0, 1_344)], "{name}");
        assert_eq!((pair.sent(0), pair.sent(1)), (vec![7, 8], vec![7]), "{name}");
        let one = shortest.max(24) as u64;
        assert_eq!(pair.delivered(1), [(7, 10_000), (8, one)], "{name}");
        assert_eq!(pair.delivered(0), [(7, 1_344)], "{name}");
        for end in &pair.ends {
            let stats = end.endpoint.stats();
            assert!(end.endpoint.is_idle(), "{name}");
            assert_eq!((stats.resent, stats.foreign, stats.lost), (0, 0, 0), "{name}");
        }
    }
}

/// The first frame arrives after its wire time and twice the way; the others follow it without a gap.
#[test]
fn frames_leave_at_line_rate() {
    let mut pair = Pair::of(Kind::Standard, |_| ());
    pair.send(0, 0, 1_344 * 100);
    pair.run(LATE, |_, _| true);
    let arrivals = pair.ends[1].events.iter().filter_map(|event| match *event {
        Event::Received { at, .. } => Some(at.as_ps()),
        _ => None,
    });
    let want = (0..100).map(|index| 28_360 * (index + 1) + 100_000); // 1,394 bytes and 24
    assert!(arrivals.eq(want));
}

/// A message is one event when all of it has come, however many frames it has; the event says when its first frame was
/// sent.
#[test]
fn a_message_is_told_once_with_its_times() {
    for kind in [Kind::Standard, Kind::Lite] {
        let mut pair = Pair::of(kind, |spec| {
            spec.frame_events = false;
            if kind == Kind::Lite {
                spec.parse.afh = weft_parsers::AfhMode::Lite;
            }
        });
        let frame = RATE.frame_time(if kind == Kind::Lite { 1_356 } else { 1_394 }).as_ps();
        pair.send(0, 4, 13_440);
        pair.send(0, 5, 1_344);
        pair.run(LATE, |_, _| true);
        let told = |id, bytes, first: u64, frames: u64| Event::Delivered {
            from: 0,
            id,
            bytes,
            first: Instant::from_ps(first * frame),
            at: Instant::from_ps(frames * frame + 100_000),
        };
        let (first, second) = (told(4, 13_440, 0, 10), told(5, 1_344, 10, 11));
        assert_eq!(pair.ends[1].events, [first, second], "{kind:?}");
        let receiver = &pair.ends[1].endpoint;
        let latency = receiver.latency();
        assert_eq!(latency.count(), 11);
        assert_eq!(
            (latency.min().as_ps(), latency.max().as_ps()),
            (frame + 100_000, frame + 100_000)
        );
        assert_eq!(receiver.last_taken(), Some(Instant::from_ps(11 * frame + 100_000)));
        assert_eq!((receiver.first_sent(), receiver.peers_met()), (None, 1));
        assert_eq!(pair.ends[0].endpoint.first_sent(), Some(Instant::ZERO));
    }
}

/// The latency of a frame that was sent again counts from when it was sent first.
#[test]
fn a_frame_that_is_sent_again_is_late() {
    let mut pair = Pair::of(Kind::Standard, |_| ());
    pair.send(0, 0, 1_344);
    let mut count = 0;
    pair.run(LATE, |_, _| {
        count += 1;
        count > 1
    });
    let latency = pair.ends[1].endpoint.latency().min();
    assert_eq!(latency.as_ps(), 1_048_576_000 + 28_360 + 100_000, "the timer, and the way");
    assert!(matches!(
        pair.ends[1].events[..],
        [Event::Delivered { first: Instant::ZERO, bytes: 1_344, .. }, Event::Received { .. }]
    ));
}

/// A message of which a frame is lost for good is not delivered.
#[test]
fn a_lite_message_with_a_loss_is_not_delivered() {
    for (lost, count) in [(0, 1), (3, 1), (9, 1)] {
        let mut pair = Pair::of(Kind::Lite, |spec| spec.parse.afh = weft_parsers::AfhMode::Lite);
        for id in 0..3 {
            pair.send(0, id, 13_440);
        }
        let mut frames = 0;
        pair.run(LATE, |_, _| {
            frames += 1;
            frames - 1 != 10 + lost
        });
        assert_eq!(pair.delivered(1), [(0, 13_440), (2, 13_440)], "{lost}");
        assert_eq!(pair.ends[1].endpoint.stats().lost, count, "{lost}");
    }
}

/// All messages arrive, once and in order, over a way that loses one frame in a hundred each way.
#[test]
fn what_is_lost_is_sent_again() {
    for kind in [Kind::Standard, Kind::Gen1, Kind::Gen2] {
        let mut pair = Pair::of(kind, |_| ());
        for id in 0..20 {
            pair.send(0, id, 134_400);
            pair.send(1, id, 134_400);
        }
        let mut rng = Rng::new(3);
        pair.run(LATE, |_, _| !rng.chance(1, 100));
        for end in 0..2 {
            let want: Vec<_> =
                (0..20).flat_map(|id| (0..100).map(move |index| (id, index, 1_344))).collect();
            assert_eq!(pair.taken(end), want, "{kind:?}");
            assert_eq!(pair.sent(end), (0..20).collect::<Vec<_>>(), "{kind:?}");
            let stats = pair.ends[end].endpoint.stats();
            assert!(stats.resent > 0 && stats.naks_rx > 0, "{kind:?} {stats:?}");
            assert!(pair.ends[end].endpoint.is_idle());
        }
    }
}

#[test]
fn lite_frames_that_are_lost_are_counted() {
    let mut pair = Pair::of(Kind::Lite, |spec| spec.parse.afh = weft_parsers::AfhMode::Lite);
    pair.send(0, 0, 1_344 * 1_000);
    let mut count = 0;
    pair.run(LATE, |_, _| {
        count += 1;
        count % 100 != 50
    });
    let stats = pair.ends[1].endpoint.stats();
    assert_eq!((stats.rx_frames, stats.lost), (990, 10));
}

/// The highest index that a message can have is one like any other, whichever endpoint sends it.
#[test]
fn a_lite_frame_of_the_last_place_is_taken() {
    let mut pair = Pair::of(Kind::Lite, |spec| spec.parse.afh = weft_parsers::AfhMode::Lite);
    let spec = frame_to(&pair.ends[0].endpoint, 1);
    let stamp = Stamp { stream: 0, seq: u64::MAX, sent: Instant::ZERO };
    let frame = spec.to_vec(&stamp, 0).unwrap();
    for ns in [100, 200] {
        let at = Instant::from_ns(ns);
        assert!(pair.middle[1].send(at, Flaw::None, &frame));
        pair.ends[1].due = Instant::earlier(pair.ends[1].due, Some(at));
    }
    pair.run(LATE, |_, _| true);
    assert_eq!(pair.taken(1), [(u32::MAX, u32::MAX >> 1, 244); 2]);
}

#[test]
fn frames_with_ce_are_answered_by_cnps_that_are_merged() {
    let mut pair = Pair::of(Kind::Standard, |spec| spec.frame.ecn = Ecn::Ce);
    pair.send(0, 0, 1_344 * 4_000); // 113.4 us
    pair.run(LATE, |_, _| true);
    let congested: Vec<_> = pair.ends[0]
        .events
        .iter()
        .filter_map(|event| match *event {
            Event::Congested { to, at } => Some((to, at)),
            _ => None,
        })
        .collect();
    assert_eq!(congested.len(), 3, "one each 50 us: {congested:?}");
    assert!(congested.iter().all(|&(to, _)| to == 1));
    let (sender, receiver) = (pair.ends[0].endpoint.stats(), pair.ends[1].endpoint.stats());
    assert_eq!(receiver.marked, 4_000);
    assert_eq!(receiver.cnps_tx, sender.cnps_rx);
    assert_eq!(sender.cnps_merged, sender.cnps_rx - 3);
}

#[test]
fn a_rate_holds_to_a_frame() {
    let mut pair =
        Pair::of(Kind::Standard, |spec| spec.rate = Some((Span::from_ns(4_096), 51_200))); // 100 Gb/s
    pair.send(0, 0, 1_344 * 10_000);
    let end = Instant::from_ns(4_096 * 100 - 1);
    pair.run(end, |_, _| true);
    let sent = pair.ends[0].endpoint.stats().tx_frames * 1_394;
    assert!((5_120_000..5_120_000 + 1_394).contains(&sent), "{sent} bytes in 100 windows");
}

/// A receiver at half the line's rate stops the sender in time, and takes all frames.
#[test]
fn a_slow_receiver_stops_the_sender_and_loses_nothing() {
    for kind in [Kind::Standard, Kind::Lite] {
        let mut pair = Pair::of(kind, |spec| {
            if kind == Kind::Lite {
                spec.parse.afh = weft_parsers::AfhMode::Lite;
            }
            spec.slow = Some(SlowSpec {
                drain: LinkRate::gbps(200),
                xoff_bytes: 60_000,
                xon_bytes: 20_000,
                capacity_bytes: 80_000,
                lossless: PriSet::from_bits(0xFF),
                quanta: 0xFFFF,
            });
        });
        pair.send(0, 0, 1_344 * 5_000);
        pair.run(LATE, |_, _| true);
        assert_eq!(pair.taken(1).len(), 5_000, "{kind:?}");
        let (sender, receiver) = (pair.ends[0].endpoint.stats(), pair.ends[1].endpoint.stats());
        assert_eq!((receiver.overruns, receiver.lost, sender.resent), (0, 0, 0), "{kind:?}");
        assert!(receiver.pfc_tx > 1 && receiver.pfc_tx == sender.pfc_rx, "{kind:?}");
        let paused = pair.ends[0].endpoint.paused(pair.now);
        assert!(paused > Span::from_us(50), "{kind:?}: {paused:?}");
        assert!(pair.ends[1].endpoint.watermark() > 60_000, "{kind:?}");
    }
}

/// Without an answer the queue pair fails after the timeout and seven more tries, and reports that once.
#[test]
fn who_is_not_there_fails() {
    let mut pair = Pair::of(Kind::Standard, |_| ());
    pair.send(0, 1, 1_344 * 1_000);
    pair.run(LATE, |_, _| false);
    let failed: Vec<_> =
        pair.ends[0].events.iter().filter(|event| matches!(event, Event::Failed { .. })).collect();
    assert!(matches!(failed[..], [Event::Failed { to: 1, frames: 512, .. }]), "{failed:?}");
    let stats = pair.ends[0].endpoint.stats();
    assert_eq!((stats.timeouts, stats.tx_frames), (8, 512 * 8));
    assert!(pair.ends[0].endpoint.is_idle());
    assert_eq!(pair.sent(0), [] as [u32; 0]);
    let more = Message { id: 2, to: 1, bytes: 1 };
    assert_eq!(pair.ends[0].endpoint.send(more), Err(more), "it stays failed");
}

/// A third endpoint cannot acknowledge, stop or send for endpoint 1, whatever queue pair it names.
#[test]
fn whose_a_frame_is_is_decided_by_where_it_comes_from() {
    let peers: Arc<[_]> = (1..=3).map(Station::numbered).collect();
    let spec = |number| EndpointSpec::new(number, peers.clone(), Kind::Standard);
    let mut pair = Pair::new([spec(0), spec(1)]);
    pair.send(0, 0, 1_344);
    pair.run(LATE.min(Instant::from_ns(100)), |_, _| false); // it was sent, and is lost
    let forge = |opcode, syndrome, src: Station, dest_qp| {
        let mut frame = FrameSpec::new(Kind::Standard, src, Station::numbered(1));
        frame.rh.opcode = opcode;
        frame.rh.syndrome = syndrome;
        frame.rh.psn = Some(0);
        frame.rh.dest_qp = dest_qp;
        frame.to_vec(&Stamp { stream: dest_qp, seq: 0, sent: Instant::ZERO }, 0).unwrap()
    };
    let third = Station::numbered(3);
    #[rustfmt::skip] // columns: name, opcode, syndrome, source, queue pair
    let cases = [
        ("ACK",               RhOpcode::Ack,      rh::syndrome::ACK,          third,                1),
        ("NAK",               RhOpcode::Ack,      rh::syndrome::NAK_SEQUENCE, third,                1),
        ("CNP",               RhOpcode::Cnp,      0,                          third,                1),
        ("request",           RhOpcode::Send,     0,                          third,                1),
        ("its own number",    RhOpcode::Ack,      rh::syndrome::ACK,          Station::numbered(1), 0),
        ("no such endpoint",  RhOpcode::Ack,      rh::syndrome::ACK,          third,                3),
        ("beyond all",        RhOpcode::Ack,      rh::syndrome::ACK,          third,                8_191),
        ("no such opcode",    RhOpcode::Reserved, 0,                          Station::numbered(2), 1),
    ];
    for (count, (name, opcode, syndrome, src, qp)) in (1..).zip(cases) {
        let frame = forge(opcode, syndrome, src, qp);
        let now = pair.now + Span::from_ns(10);
        assert!(pair.middle[0].send(now, Flaw::None, &frame), "{name}");
        pair.ends[0].due = Some(now);
        pair.run(now, |_, _| false);
        let stats = pair.ends[0].endpoint.stats();
        assert_eq!(stats.foreign, count, "{name}");
        assert_eq!((stats.acks_rx, stats.naks_rx, stats.cnps_rx, stats.rx_frames), (0, 0, 0, 0));
        assert!(!pair.ends[0].endpoint.is_idle(), "{name}");
        assert_eq!(pair.ends[0].endpoint.peers_met(), 1, "{name}: nobody gets a state so");
    }
    // The same from endpoint 1 itself counts.
    let now = pair.now + Span::from_ns(10);
    let frame = forge(RhOpcode::Ack, rh::syndrome::ACK, Station::numbered(2), 1);
    assert!(pair.middle[0].send(now, Flaw::None, &frame));
    pair.ends[0].due = Some(now);
    pair.run(now, |_, _| false);
    assert_eq!(pair.sent(0), [0]);
}

/// Random bytes and frames with flipped bits are counted; the real frames arrive all the same.
#[test]
fn rubbish_changes_nothing() {
    for kind in [Kind::Standard, Kind::Gen1, Kind::Gen2] {
        let mut pair = Pair::of(kind, |_| ());
        pair.send(0, 0, 1_344 * 2_000);
        let mut rng = Rng::new(1);
        for _ in 0..3_000 {
            let end = pair.now + Span::from_ns(100);
            pair.run(end, |_, _| true);
            pair.now = end;
            let at = usize::from(rng.chance(1, 2));
            let len = 60 + usize::try_from(rng.below(200)).unwrap();
            let mut frame: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            if rng.chance(1, 2) {
                let spec = frame_to(&pair.ends[1 - at].endpoint, u16::try_from(at).unwrap());
                let stamp = Stamp { stream: 0, seq: rng.next_u64(), sent: Instant::ZERO };
                frame = spec.to_vec(&stamp, 0).unwrap();
                let place = usize::try_from(rng.below(frame.len() as u64)).unwrap();
                frame[place] ^= 1 << rng.below(8);
                // A frame whose header is as before is one of the other end, and may act.
                frame[usize::from(rng.chance(1, 2))] ^= 0x40;
            }
            let in_at = pair.middle[at].in_flight();
            assert!(in_at < 1_000);
            assert!(pair.middle[at].send(end + WAY, Flaw::None, &frame));
            pair.ends[at].due = Instant::earlier(pair.ends[at].due, Some(end + WAY));
            pair.run(end + WAY, |_, _| true);
        }
        pair.run(LATE, |_, _| true);
        let want: Vec<_> = (0..2_000).map(|index| (0, index, 1_344)).collect();
        assert_eq!(pair.taken(1), want, "{kind:?}");
        assert_eq!(pair.sent(0), [0], "{kind:?}");
    }
}

/// Bytes on the heap of an endpoint, without those that all share and those that the caller gave it.
fn bytes(endpoint: &Endpoint) -> usize {
    size_of::<Endpoint>()
        + endpoint.peers.heap_bytes()
        + endpoint.slots.heap_bytes()
        + endpoint.latency.heap_bytes()
        + endpoint.backlog.heap_bytes()
        + endpoint.writing.capacity() * size_of::<u16>()
        + (endpoint.acks.capacity() + endpoint.cnps.capacity()) * size_of::<(u16, Instant)>()
        + endpoint.masked.capacity() * size_of::<(Instant, u16)>()
        + endpoint.outbox.as_ref().map_or(0, |outbox| outbox.heap_bytes())
}

/// One of 1,024 endpoints takes an eighth of 100 KB, and a tenth of a KB more for each other endpoint that it has met
/// and has a message for, most of it only while the message is under way.
#[test]
fn an_endpoint_among_many_is_small() {
    let peers: Arc<[_]> = (0..QPS).map(Station::numbered).collect();
    for (count, most) in [(1, 13_000), (256, 55_000), (1_023, 115_000)] {
        let specs = [0, 1].map(|number| EndpointSpec::new(number, peers.clone(), Kind::Standard));
        let mut pair = Pair::new(specs);
        for to in 1..=count {
            let message = Message { id: to.into(), to, bytes: 134_400 };
            pair.ends[0].endpoint.send(message).unwrap();
        }
        pair.ends[0].due = Some(Instant::ZERO);
        pair.run(Instant::from_ns(100_000), |_, _| true);
        assert_eq!(pair.ends[0].endpoint.peers_met(), usize::from(count));
        let bytes = bytes(&pair.ends[0].endpoint);
        println!("{count} peers: {bytes} bytes");
        assert!(bytes <= most, "{count} peers: {bytes} bytes");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let peers: Arc<[_]> = [Station::numbered(1), Station::numbered(2)].into();
    let base = |kind| EndpointSpec::new(0, peers.clone(), kind);
    let number = |number, peers| EndpointError::Number { number, peers };
    #[rustfmt::skip] // columns: name, endpoint, error
    let cases = [
        ("no such number",   EndpointSpec::new(2, peers.clone(), Kind::Standard), number(2, 2)),
        ("too many",         EndpointSpec::new(0, vec![Station::numbered(1); 1_025].into(), Kind::Standard), number(0, 1_025)),
        ("no payload",       EndpointSpec { payload_max: 23, ..base(Kind::Standard) }, EndpointError::Payload(23)),
        ("long payload",     EndpointSpec { payload_max: 1_345, ..base(Kind::Gen1) }, EndpointError::Payload(1_345)),
        ("no slots",         EndpointSpec { slots: 0, ..base(Kind::Gen1) }, EndpointError::Slots(0)),
        ("too many slots",   EndpointSpec { slots: 513, ..base(Kind::Gen1) }, EndpointError::Slots(513)),
        ("credits",          EndpointSpec { credits: Some(CreditSpec::new(10)), ..base(Kind::Gen1) },
         CreditError::Limit { had: 10, least: 11, frame_len_max: 1_370 }.into()),
        ("one VC",           EndpointSpec { credits: Some(CreditSpec::new(99)), ack_vc: 3, ..base(Kind::Gen1) },
         EndpointError::SharedVc(3)),
        ("no bank",          EndpointSpec { banks: 0, ..base(Kind::Gen1) }, EndpointError::Banks { banks: 0, vc: 3 }),
        ("five banks",       EndpointSpec { banks: 5, ..base(Kind::Gen1) }, EndpointError::Banks { banks: 5, vc: 3 }),
        ("banks below 0",    EndpointSpec { banks: 2, request_vc: 0, ..base(Kind::Gen1) }, EndpointError::Banks { banks: 2, vc: 0 }),
        ("turns of one",     EndpointSpec { bank_turns: true, ..base(Kind::Gen1) }, EndpointError::Turns),
        ("dcqcn of nothing", EndpointSpec { dcqcn: Some(DcqcnSpec::DEFAULT), ..base(Kind::Gen1) }, EndpointError::NoRate),
        ("RNR code",         EndpointSpec { rnr: Some(32), ..base(Kind::Gen1) }, EndpointError::Rnr(32)),
        ("RNR with credits", EndpointSpec { rnr: Some(1), credits: Some(CreditSpec::new(99)), ..base(Kind::Gen1) },
         EndpointError::RnrWith("credits")),
        ("RNR with LITE",    EndpointSpec { rnr: Some(1), ..base(Kind::Lite) }, EndpointError::RnrWith("the LITE transport")),
        ("no such VC",       EndpointSpec { ack_vc: 8, ..base(Kind::Gen1) }, EndpointError::Vc(8)),
        ("rate",             EndpointSpec { rate: Some((Span::from_ns(65_537), 1)), ..base(Kind::Gen1) }, RateError::Window(Span::from_ns(65_537)).into()),
    ];
    for (name, spec, error) in cases {
        assert_eq!(Endpoint::new(spec).err(), Some(error), "{name}");
    }
    for (kind, transport) in [
        (Kind::Lite, Transport::RELIABLE),
        (Kind::Standard, Transport::Raw),
        (Kind::Ethernet, Transport::RELIABLE),
        (Kind::Pfc, Transport::Lite),
    ] {
        let spec = EndpointSpec { transport, ..base(kind) };
        assert!(
            matches!(Endpoint::new(spec).err(), Some(EndpointError::Format { .. })),
            "{kind:?}"
        );
    }
    let mut endpoint = Endpoint::new(base(Kind::Standard)).unwrap();
    let message = Message { id: 1, to: 1, bytes: 5 };
    endpoint.send(message).unwrap();
    for refused in [
        message,
        Message { id: 2, to: 0, ..message },
        Message { id: 2, to: 2, ..message },
        Message { id: 2, bytes: 0, ..message },
    ] {
        assert_eq!(endpoint.send(refused), Err(refused));
    }
}
