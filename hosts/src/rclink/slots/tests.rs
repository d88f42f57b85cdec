//! Slots under ACKs, NAKs, timeouts and masks, and with a receiver over a way that loses frames.

use weft_base::rng::Rng;

use super::*;
use crate::rclink::queue_pair::{RxQp, RxVerdict};

const TIMEOUT: Span = Span::from_us(100);

fn request(qp: u16, tag: u64) -> Request {
    Request { qp, vc: u8::try_from(qp % 8).unwrap(), len: 1_344, tag }
}

fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

/// Tags of all frames that are granted, in order.
fn grants(slots: &mut Slots, now: Instant) -> Vec<u64> {
    core::iter::from_fn(|| slots.grant(now, 0xFF)).map(|granted| granted.request.tag).collect()
}

fn acked(slots: &mut Slots, qp: u16, psn: u16) -> Vec<u64> {
    let mut tags = Vec::new();
    slots.ack(at(0), qp, psn, |request| tags.push(request.tag));
    tags
}

#[test]
fn the_oldest_that_may_go_goes_first() {
    let mut slots = Slots::new(Some(TIMEOUT), false);
    for (tag, qp) in [(0, 1), (1, 2), (2, 1), (3, 3)] {
        slots.write(request(qp, tag)).unwrap();
    }
    let first = slots.grant(at(0), !0b10).unwrap();
    assert_eq!((first.request.tag, first.psn, first.resent), (1, 0, false), "VC 1 is closed");
    slots.mask(3, Mask::Rate, true);
    assert_eq!(grants(&mut slots, at(1)), [0, 2], "3 is masked");
    slots.write(request(3, 4)).unwrap();
    assert_eq!(grants(&mut slots, at(2)), [] as [u64; 0]);
    slots.mask(3, Mask::Credit, true);
    slots.mask(3, Mask::Rate, false);
    assert_eq!(grants(&mut slots, at(2)), [] as [u64; 0], "it waits for credits as well");
    slots.mask(3, Mask::Credit, false);
    assert_eq!(grants(&mut slots, at(3)), [3, 4]);
    assert_eq!(slots.used(), 5);
}

#[test]
fn banks_take_turns_if_they_are_told_to() {
    let mut slots = Slots::new(Some(TIMEOUT), true);
    for (tag, qp) in [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)] {
        slots.write(request(qp, tag)).unwrap();
    }
    assert_eq!(grants(&mut slots, at(0)), [0, 3, 1, 4, 2]);
}

#[test]
fn acks_are_cumulative_and_what_was_not_sent_is_not_acknowledged() {
    let mut slots = Slots::new(Some(TIMEOUT), false);
    for tag in 0..4 {
        slots.write(request(7, tag)).unwrap();
    }
    assert_eq!(acked(&mut slots, 7, 0), [] as [u64; 0], "nothing was sent");
    for _ in 0..3 {
        slots.grant(at(0), 0xFF).unwrap();
    }
    assert_eq!(acked(&mut slots, 8, 0), [] as [u64; 0], "another queue pair");
    assert_eq!(acked(&mut slots, 7, 3), [] as [u64; 0], "not sent yet");
    assert_eq!(acked(&mut slots, 7, 1), [0, 1]);
    assert_eq!(acked(&mut slots, 7, 1), [] as [u64; 0], "again");
    assert_eq!(acked(&mut slots, 7, 4_095), [] as [u64; 0], "older");
    assert_eq!(slots.used(), 2);
}

#[test]
fn a_nak_sends_again_from_there_in_the_order_of_age() {
    let mut slots = Slots::new(Some(TIMEOUT), false);
    for (tag, qp) in [(0, 1), (1, 9), (2, 1), (3, 1)] {
        slots.write(request(qp, tag)).unwrap(); // 1 and 9 share a VC
    }
    assert_eq!(grants(&mut slots, at(0)), [0, 1, 2, 3]);
    for (tag, qp) in [(4, 9), (5, 1)] {
        slots.write(request(qp, tag)).unwrap();
    }
    assert_eq!(slots.nak(at(1), 1, 9, Reason::Missing, |_| ()), None, "of no frame");
    let mut done = Vec::new();
    let back = slots.nak(at(1), 1, 1, Reason::Missing, |request| done.push(request.tag));
    assert_eq!((done, back), (vec![0], Some(WentBack::Frames(2))));
    assert_eq!(grants(&mut slots, at(1)), [2, 3, 4, 5]);
    // A frame that was to be sent again and is acknowledged after all is not sent.
    assert_eq!(slots.nak(at(1), 1, 1, Reason::Missing, |_| ()), Some(WentBack::Frames(3)));
    assert_eq!(acked(&mut slots, 1, 1), [2]);
    assert_eq!(grants(&mut slots, at(2)), [3, 5]);
}

#[test]
fn what_is_never_acknowledged_is_sent_seven_times_more_and_then_given_up() {
    let mut slots = Slots::new(Some(TIMEOUT), false);
    slots.write(request(1, 0)).unwrap();
    slots.write(request(2, 1)).unwrap();
    let mut now = at(0);
    for round in 0..=RETRIES_MAX {
        assert!(grants(&mut slots, now).contains(&0), "{round}");
        acked(&mut slots, 2, 0);
        assert_eq!(slots.next_timeout(), Some(now + TIMEOUT));
        assert_eq!(slots.expire(now + TIMEOUT - Span::from_ps(1)), None);
        now += TIMEOUT;
        let want = if round < RETRIES_MAX { WentBack::Frames(1) } else { WentBack::Fatal(1) };
        assert_eq!(slots.expire(now), Some((1, want)));
    }
    assert!(slots.is_fatal(1) && !slots.is_fatal(2));
    assert_eq!(slots.write(request(1, 9)), Err(request(1, 9)));
    assert_eq!((slots.used(), slots.next_timeout()), (0, None));
    slots.write(request(2, 2)).unwrap();
    assert_eq!(grants(&mut slots, now), [2]);
}

#[test]
fn without_acks_a_slot_is_empty_at_once() {
    let mut slots = Slots::new(None, false);
    for tag in 0..SLOTS as u64 {
        slots.write(request(1, tag)).unwrap();
    }
    assert!(!slots.has_room());
    assert!(slots.write(request(1, 0)).is_err());
    assert_eq!(grants(&mut slots, at(0)).len(), SLOTS);
    assert_eq!((slots.used(), slots.next_timeout()), (0, None));
}

/// The timer is that of the oldest frame: it begins when the frame is sent, and again when all before it are
/// acknowledged.
#[test]
fn each_ack_of_something_new_starts_the_timer_again() {
    let mut slots = Slots::new(Some(TIMEOUT), false);
    for tag in 0..3 {
        slots.write(request(1, tag)).unwrap();
    }
    slots.write(request(2, 3)).unwrap();
    assert_eq!(grants(&mut slots, at(0)), [0, 1, 2, 3]);
    slots.ack(at(60_000), 1, 0, |_| ());
    assert_eq!(slots.next_timeout(), Some(at(100_000)), "of the other queue pair");
    assert_eq!(slots.expire(at(100_000)), Some((2, WentBack::Frames(1))));
    slots.ack(at(120_000), 1, 0, |_| ());
    assert_eq!(slots.next_timeout(), Some(at(160_000)), "it was acknowledged before");
    slots.ack(at(159_999), 1, 1, |_| ());
    assert_eq!(slots.expire(at(259_998)), None);
    assert_eq!(slots.expire(at(259_999)), Some((1, WentBack::Frames(1))));
    assert_eq!(slots.next_timeout(), None, "both are to be sent again");
}

/// With TYPE2 each frame has its own timer, whatever has been acknowledged since.
#[test]
fn frames_that_are_not_sent_again_have_their_own_time() {
    let mut slots = Slots::new(Some(TIMEOUT), false);
    slots.limit_flying(16, Local { credits: 2_048, each: 128, overhead: 50, longest: 1_400 });
    let sent = [(0, 1), (10_000, 2), (20_000, 1), (30_000, 2)];
    for (tag, (ns, qp)) in (0..).zip(sent) {
        slots.write(request(qp, tag)).unwrap();
        assert_eq!(grants(&mut slots, at(ns)), [tag]);
    }
    slots.ack(at(90_000), 1, 0, |_| ());
    for (ns, qp, psn) in [(110_000, 2, 0), (120_000, 1, 1), (130_000, 2, 1)] {
        assert_eq!(slots.overdue(at(ns - 1)), None, "{ns} ns");
        assert_eq!(slots.overdue(at(ns)), Some((qp, psn)), "{ns} ns");
        slots.ack(at(ns), qp, psn, |_| ());
    }
    assert_eq!((slots.used(), slots.timer()), (0, None));
}

/// Model of frames that wait for an ACK in four queue pairs, each on its own virtual channel: PSN, and how long the
/// timer has run. Only the oldest one's counts.
#[derive(Default)]
struct Waiting([VecDeque<(u16, Span)>; 4]);

impl Waiting {
    /// Grants all frames that are ready.
    fn grant(&mut self, slots: &mut Slots, now: Instant, stopped: u8) {
        while let Some(granted) = slots.grant(now, !stopped) {
            self.0[usize::from(granted.request.qp)].push_back((granted.psn, Span::ZERO));
        }
    }

    /// Acknowledges the oldest frame of `qp`: the timer of the next one begins.
    fn ack(&mut self, slots: &mut Slots, now: Instant, qp: u16) {
        if let Some((psn, _)) = self.0[usize::from(qp)].pop_front() {
            slots.ack(now, qp, psn, |_| ());
        }
        if let Some((_, ran)) = self.0[usize::from(qp)].front_mut() {
            *ran = Span::ZERO;
        }
    }

    /// Number of timers that run.
    fn running(&mut self, stopped: u8) -> impl Iterator<Item = &mut Span> {
        let open = (0..4).zip(&mut self.0).filter(move |(vc, _)| stopped >> vc & 1 == 0);
        open.filter_map(|(_, frames)| frames.front_mut().map(|(_, ran)| ran))
    }

    /// Time until the first timer ends, if one runs.
    fn left(&mut self, stopped: u8) -> Option<Span> {
        let longest = self.running(stopped).max()?.as_ps();
        Some(Span::from_ps(TIMEOUT.as_ps().saturating_sub(longest)))
    }
}

/// The timers of each virtual channel run and stop separately: compared with a count, for each frame, of the time for
/// which its timer has run.
#[test]
fn timers_run_while_their_vc_is_not_stopped() {
    for seed in 0..20 {
        let (mut slots, mut rng) = (Slots::new(Some(TIMEOUT), false), Rng::new(seed));
        let mut waiting = Waiting::default();
        let (mut now, mut stopped, mut ended) = (at(0), 0_u8, 0_u64);
        for step in 0..5_000 {
            let case = format!("seed {seed}, step {step}");
            let qp = u16::try_from(rng.below(4)).unwrap();
            if rng.chance(1, 8) && slots.write(request(qp, step)).is_ok() {
                waiting.grant(&mut slots, now, stopped);
            }
            if rng.chance(1, 20) {
                stopped ^= 1 << qp;
                slots.stop_timers(now, stopped);
                waiting.grant(&mut slots, now, stopped);
            }
            if rng.chance(1, 20) {
                waiting.ack(&mut slots, now, qp);
            }
            let due = waiting.left(stopped).map(|left| now + left);
            assert_eq!(slots.next_timeout(), due, "{case}");
            assert!(due.is_none_or(|due| slots.timer().is_some_and(|at| at <= due)), "{case}");
            let gone = Span::from_ns(rng.below(4_000));
            now += gone;
            waiting.running(stopped).for_each(|ran| *ran = *ran + gone);
            while waiting.left(stopped) == Some(Span::ZERO) {
                let (qp, _) = slots.expire(now).unwrap_or_else(|| panic!("{case}: none is due"));
                let frames = core::mem::take(&mut waiting.0[usize::from(qp)]);
                assert!(frames.front().is_some_and(|(_, ran)| *ran >= TIMEOUT), "{case}");
                ended += 1;
                waiting.grant(&mut slots, now, stopped);
                waiting.ack(&mut slots, now, qp); // else it fails after seven
            }
            assert_eq!(slots.expire(now), None, "{case}");
        }
        assert!(ended > 20, "seed {seed}: {ended} timers ended");
    }
}

/// Frames of two queue pairs all arrive, once and in order, over a way that loses one in fifty each way.
#[test]
fn everything_arrives_in_order_over_a_way_that_loses() {
    const COUNT: u64 = 20_000;
    let (mut slots, mut rng) = (Slots::new(Some(Span::from_us(20)), false), Rng::new(5));
    let mut receivers = [RxQp::default(), RxQp::default()];
    let mut arrived = [Vec::new(), Vec::new()];
    let (mut written, mut resent) = ([0_u64; 2], 0_u64);
    // On the way: arrival, queue pair, PSN and tag of frames; the same and ACK or NAK of answers.
    let mut there: VecDeque<(Instant, u16, u16, u64)> = VecDeque::new();
    let mut back: VecDeque<(Instant, u16, u16, bool)> = VecDeque::new();
    let way = Span::from_ns(1_000);
    let mut now = at(0);
    while arrived.iter().any(|tags| (tags.len() as u64) < COUNT) {
        for (qp, written) in (0..).zip(&mut written) {
            if *written < COUNT && slots.has_room() {
                slots.write(request(qp, *written)).unwrap();
                *written += 1;
            }
        }
        if let Some(granted) = slots.grant(now, 0xFF) {
            resent += u64::from(granted.resent);
            if !rng.chance(1, 50) {
                let Request { qp, tag, .. } = granted.request;
                there.push_back((now + way, qp, granted.psn, tag));
            }
        }
        while let Some(&(_, qp, psn, tag)) = there.front().filter(|&&(at, ..)| at <= now) {
            there.pop_front();
            let receiver = &mut receivers[usize::from(qp)];
            let answer = match receiver.receive(psn) {
                RxVerdict::Accept => {
                    arrived[usize::from(qp)].push(tag);
                    Some((receiver.acknowledged(), true))
                }
                RxVerdict::Duplicate => Some((receiver.acknowledged(), true)),
                RxVerdict::Gap { nak: true } => Some((receiver.expected(), false)),
                RxVerdict::Gap { nak: false } => None,
            };
            if let Some((psn, is_ack)) = answer.filter(|_| !rng.chance(1, 50)) {
                back.push_back((now + way, qp, psn, is_ack));
            }
        }
        while let Some(&(_, qp, psn, is_ack)) = back.front().filter(|&&(at, ..)| at <= now) {
            back.pop_front();
            if is_ack {
                slots.ack(now, qp, psn, |_| ());
            } else {
                let _ = slots.nak(now, qp, psn, Reason::Missing, |_| ());
            }
        }
        while let Some((qp, what)) = slots.expire(now) {
            assert!(matches!(what, WentBack::Frames(_)), "{qp}: {what:?}");
        }
        now += Span::from_ns(28);
    }
    for tags in &arrived {
        assert!(tags.iter().copied().eq(0..COUNT), "all, once and in order");
    }
    assert!(resent > COUNT / 10, "{resent} frames were sent again");
}
