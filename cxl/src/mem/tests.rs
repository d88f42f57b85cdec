//! Loads and stores against a memory that answers in any order, and throttling against an overloaded device.

use super::*;
use std::collections::{BTreeMap, VecDeque};
use weft_base::rng::Rng;
use weft_dataplane::time::Span;
use weft_parsers::tlp::DevLoad;

const BASE: u64 = 1 << 40;

fn requester(most: usize) -> MemRequester {
    MemRequester::new(MemSpec { in_flight_max: most, timeout: Span::from_ms(1) })
}

fn load(addr: u64, len: usize) -> MemOperation {
    MemOperation::Load { addr: Hpa(addr), len }
}

fn store(addr: u64, data: Vec<u8>) -> MemOperation {
    MemOperation::Store { addr: Hpa(addr), data }
}

/// A sent message, copied.
#[derive(Clone, Debug)]
struct Sent {
    head: MemHead,
    data: Option<[u8; LINE]>,
    enables: Option<u64>,
}

fn flush(requester: &mut MemRequester, now: Instant) -> Vec<Sent> {
    let mut sent = Vec::new();
    requester.flush(now, &mut |message| {
        let MemMessage { head, data, enables } = *message;
        sent.push(Sent { head, data: data.copied(), enables });
    });
    sent
}

fn answer(op: MemOp, tag: u16, data: Option<&[u8; LINE]>) -> MemMessage<'_> {
    MemMessage { head: MemHead::new(op, tag), data, enables: None }
}

/// Carries a request out in lines of a map, and makes its answer.
fn serve(memory: &mut BTreeMap<u64, [u8; LINE]>, sent: &Sent) -> (MemOp, [u8; LINE]) {
    let line = memory.entry(sent.head.addr.0).or_insert([0; LINE]);
    if sent.head.op == MemOp::MemRd {
        return (MemOp::MemData, *line);
    }
    let (data, mask) = (sent.data.unwrap(), sent.enables.unwrap_or(u64::MAX));
    for (at, (place, byte)) in line.iter_mut().zip(data).enumerate() {
        if mask >> at & 1 == 1 {
            *place = byte;
        }
    }
    (MemOp::Cmp, data)
}

/// Ranges of any length at any address hold what a plain vector holds; answers come in any order.
#[test]
fn ranges_are_cut_into_lines_and_put_together_again() {
    let (mut requester, mut rng) = (requester(7), Rng::new(64));
    let (mut memory, mut want) = (BTreeMap::new(), vec![0_u8; 1 << 12]);
    for _ in 0..500 {
        let at = usize::try_from(rng.below(1 << 12)).unwrap();
        let len = usize::try_from(rng.below(300)).unwrap().min(want.len() - at);
        let addr = Hpa(BASE + at as u64);
        let stores = rng.chance(1, 2);
        let id = if stores {
            let data: Vec<u8> = (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
            want[at..at + len].copy_from_slice(&data);
            requester.submit(store(addr.0, data))
        } else {
            requester.submit(load(addr.0, len))
        };
        let mut waiting: Vec<Sent> = Vec::new();
        let done = loop {
            if let Some(done) = requester.next_done() {
                break done;
            }
            waiting.extend(flush(&mut requester, Instant::ZERO));
            assert!(waiting.len() <= 7 && requester.in_flight() == waiting.len());
            let pick = usize::try_from(rng.below(waiting.len() as u64)).unwrap();
            let sent = waiting.swap_remove(pick);
            assert_eq!(sent.head.addr.0 % 64, 0);
            let whole = sent.head.op == MemOp::MemWr && sent.enables.is_none();
            assert!(whole || sent.enables.is_some() == (sent.head.op == MemOp::MemWrPtl));
            let (op, line) = serve(&mut memory, &sent);
            assert!(requester.take(&answer(op, sent.head.tag, Some(&line))));
        };
        let loaded = if stores { Vec::new() } else { want[at..at + len].to_vec() };
        assert_eq!(done, MemDone { id, result: Ok(loaded) });
        assert!(waiting.is_empty());
    }
    assert_eq!((requester.pending(), requester.in_flight()), (0, 0));
}

#[test]
fn every_bad_end_has_its_name_and_nothing_is_left_behind() {
    let mut requester = requester(4);
    let line = [1; LINE];
    for addr in [(1 << 52) - 63, 1 << 52, u64::MAX] {
        let id = requester.submit(load(addr, 64));
        let failed = MemDone { id, result: Err(MemFailure::Address) };
        assert_eq!(requester.next_done(), Some(failed), "{addr:#x}");
    }
    let cases = [
        (MemOp::MemData, true, MemFailure::Poisoned),
        (MemOp::MemDataNxm, false, MemFailure::NoMemory),
        (MemOp::Cmp, false, MemFailure::Mismatch),
        (MemOp::CmpS, false, MemFailure::Mismatch),
    ];
    for (op, poison, want) in cases {
        let id = requester.submit(load(BASE, 128));
        let sent = flush(&mut requester, Instant::ZERO);
        let mut take = |tag| {
            let head = MemHead { poison, ..MemHead::new(op, tag) };
            requester.take(&MemMessage { head, data: Some(&line), enables: None })
        };
        assert!(take(sent[0].head.tag));
        assert!(!take(sent[0].head.tag), "twice");
        assert!(take(sent[1].head.tag));
        assert_eq!(requester.next_done(), Some(MemDone { id, result: Err(want) }));
    }
    // A request answers none of the host's, whatever its tag; nor does an answer with a tag that is not in use.
    requester.submit(load(BASE, 64));
    let tag = flush(&mut requester, Instant::ZERO)[0].head.tag;
    for (op, tag) in [(MemOp::MemWr, tag), (MemOp::BiSnpInv, tag), (MemOp::MemData, 0xFFFF)] {
        assert!(!requester.take(&answer(op, tag, Some(&line))), "{op:?}");
    }
    assert_eq!(requester.expire(Instant::ZERO), 0);
    let late = Instant::ZERO + Span::from_ms(1);
    assert_eq!((requester.next_due(), requester.expire(late)), (Some(late), 1));
    assert!(!requester.take(&answer(MemOp::MemData, tag, Some(&line))), "too late");
    assert_eq!(requester.next_done().unwrap().result, Err(MemFailure::Timeout));
    // A link that goes down ends all; numbers go on.
    let ids = [requester.submit(load(BASE, 640)), requester.submit(store(BASE, vec![1; 64]))];
    assert_eq!(flush(&mut requester, late).len(), 4);
    requester.give_up();
    for id in ids {
        let done = requester.next_done();
        assert_eq!(done, Some(MemDone { id, result: Err(MemFailure::GivenUp) }));
    }
    assert_eq!((requester.pending(), requester.in_flight()), (0, 0));
    let again = requester.submit(load(BASE, 64));
    assert!(again > ids[1]);
    assert_eq!(flush(&mut requester, late).len(), 1);
    let counts = requester.counts();
    assert_eq!((counts.timeouts, counts.given_up, counts.mismatched), (1, 4, 4));
}

/// All tags come round before one is used again.
#[test]
fn a_tag_rests_before_it_is_used_again() {
    let mut requester = requester(4);
    let mut tags = Vec::new();
    for _ in 0..8 {
        requester.submit(load(BASE, 64));
        let tag = flush(&mut requester, Instant::ZERO)[0].head.tag;
        tags.push(tag);
        assert!(requester.take(&answer(MemOp::MemData, tag, Some(&[0; LINE]))));
    }
    tags.sort_unstable();
    assert_eq!(tags, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// A device that serves one line a tick and reports its load by quarters of its queue, as [`crate::gfd`] does.
struct Slow {
    queue: VecDeque<(usize, u16)>,
    room: usize,
}

impl Slow {
    fn load(&self) -> DevLoad {
        match self.queue.len() * 4 / self.room {
            0 => DevLoad::Light,
            1 => DevLoad::Optimal,
            2 => DevLoad::ModerateOverload,
            _ => DevLoad::SevereOverload,
        }
    }
}

/// CXL 3.1 section 3.3.4: hosts that request far more than a device can serve settle at a rate that does not overload
/// it, and keep it busy; unthrottled, they fill its queue. (The rules do not share a device evenly: that takes limits.)
#[test]
fn throttling_converges_under_overload() {
    for hosts in [1, 2, 4, 8] {
        let mut all: Vec<MemRequester> = (0..hosts).map(|_| requester(256)).collect();
        let mut slow = Slow { queue: VecDeque::new(), room: 256 };
        let (mut served, mut idle, mut overloaded, mut longest) = (vec![0_u64; hosts], 0, 0, 0);
        let ticks = 60_000_u64;
        for tick in 0..ticks {
            let now = Instant::from_ns(tick);
            for (host, requester) in all.iter_mut().enumerate() {
                while requester.pending() < 512 {
                    requester.submit(load(BASE, 64));
                }
                while requester.next_done().is_some() {}
                slow.queue.extend(flush(requester, now).iter().map(|sent| (host, sent.head.tag)));
            }
            let late = tick > ticks / 2;
            if late {
                longest = longest.max(slow.queue.len());
                overloaded += u64::from(slow.load() as u8 >= 2);
            }
            let Some((host, tag)) = slow.queue.pop_front() else {
                idle += u64::from(late);
                continue;
            };
            let head = MemHead { load: slow.load(), ..MemHead::new(MemOp::MemData, tag) };
            all[host].take(&MemMessage { head, data: Some(&[0; LINE]), enables: None });
            served[host] += u64::from(late);
        }
        assert!(overloaded * 10 < ticks / 2, "{hosts} hosts: {overloaded} ticks in overload");
        assert!(idle * 100 < ticks / 2, "{hosts} hosts: {idle} ticks without work");
        assert!(longest < 256, "{hosts} hosts: {longest} waited");
        assert!(served.iter().all(|&served| served > 0), "{hosts} hosts: {served:?}");
    }
}

/// A load that fails at once is no obstacle to the next one, whichever comes first.
#[test]
fn one_that_fails_at_once_is_passed_over() {
    let mut requester = requester(4);
    for _ in 0..3 {
        requester.submit(load(1 << 52, 64));
        assert!(flush(&mut requester, Instant::ZERO).is_empty());
        assert!(requester.next_done().is_some());
        let ids =
            [load(BASE, 64), load(1 << 52, 64), load(1 << 52, 64)].map(|it| requester.submit(it));
        let sent = flush(&mut requester, Instant::ZERO);
        assert_eq!(sent.len(), 1);
        assert!(requester.take(&answer(MemOp::MemData, sent[0].head.tag, Some(&[0; LINE]))));
        let done: Vec<_> = std::iter::from_fn(|| requester.next_done()).collect();
        assert_eq!(done.len(), 3);
        assert!(done.iter().all(|done| done.result.is_ok() == (done.id == ids[0])), "{done:?}");
    }
}
