//! The home agent alone: the answer to each request, and messages of hostile devices.

use std::hash::{DefaultHasher, Hash, Hasher};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_cache::{CacheHead, CacheMessage, CacheOp, GoState};
use weft_parsers::cxl_mem::LINE;
use weft_parsers::fabric::Hpa;

use super::super::Outgoing;
use super::super::home::{Admitted, HomeAgent, HomeCounts, HomeSpec, Local, Refused};
use crate::coherence::Hold;
use crate::coherence::cache::Bytes;
use crate::coherence::filter::FilterCounts;
use crate::completer::Target;

/// Memory of 16 lines from address 0 on.
struct Memory([u8; 16 * LINE]);

impl Memory {
    fn range(&self, addr: u64, len: usize) -> Option<core::ops::Range<usize>> {
        let from = usize::try_from(addr).ok()?;
        let end = from.checked_add(len)?;
        (end <= self.0.len()).then_some(from..end)
    }
}

impl Target for Memory {
    fn holds(&self, addr: u64, len: u64) -> bool {
        self.range(addr, usize::try_from(len).unwrap()).is_some()
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        let Some(range) = self.range(addr, into.len()) else { return false };
        into.copy_from_slice(&self.0[range]);
        true
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        let Some(range) = self.range(addr, data.len()) else { return false };
        self.0[range].copy_from_slice(data);
        true
    }
}

/// A home agent with its memory; devices are named by `CacheID`.
struct Bench {
    home: HomeAgent<u32>,
    memory: Memory,
    now: Instant,
}

const LIMIT: Span = Span::from_us(200);

impl Bench {
    fn new(lines: usize) -> Self {
        let home = HomeAgent::new(HomeSpec { lines, answer_max: LIMIT, secret: 7 });
        Self { home, memory: Memory([0; 16 * LINE]), now: Instant::ZERO }
    }

    /// Delivers a message of a device; returns whether it was taken, and the messages to devices.
    fn say(&mut self, message: &CacheMessage<'_>) -> (bool, Vec<Outgoing>) {
        let taken = self.home.take(message, &mut self.memory);
        (taken, self.out())
    }

    fn out(&mut self) -> Vec<Outgoing> {
        assert!(self.home.next_ready(self.now, &mut self.memory).is_none(), "nothing was asked");
        core::iter::from_fn(|| self.home.next_message()).collect()
    }

    fn ask(&mut self, cache_id: u8, op: CacheOp, cqid: u16, line: u64) -> Vec<Outgoing> {
        let head = CacheHead { cache_id, addr: at(line), ..CacheHead::new(op, cqid) };
        let (taken, out) = self.say(&CacheMessage::of(head));
        assert!(taken, "{head:?}");
        out
    }

    fn answer(&mut self, cache_id: u8, op: CacheOp, uqid: u16, line: u64) -> (bool, Vec<Outgoing>) {
        let head = CacheHead { cache_id, addr: at(line), ..CacheHead::new(op, uqid) };
        self.say(&CacheMessage::of(head))
    }

    fn data(&mut self, cache_id: u8, uqid: u16, data: &Bytes) -> (bool, Vec<Outgoing>) {
        self.part(cache_id, uqid, data, None)
    }

    fn part(
        &mut self,
        cache_id: u8,
        uqid: u16,
        data: &Bytes,
        enables: Option<u64>,
    ) -> (bool, Vec<Outgoing>) {
        let head = CacheHead { cache_id, ..CacheHead::new(CacheOp::DataToHost, uqid) };
        self.say(&CacheMessage { head, data: Some(data), enables })
    }

    fn line(&self, line: usize) -> &[u8] {
        &self.memory.0[line * LINE..(line + 1) * LINE]
    }

    fn counts(&self) -> HomeCounts {
        self.home.counts()
    }
}

const fn at(line: u64) -> Hpa {
    Hpa(line * LINE as u64)
}

fn hash_of(home: &HomeAgent<u32>) -> u64 {
    let mut hasher = DefaultHasher::new();
    home.hash(&mut hasher);
    hasher.finish()
}

/// Opcode, and `RspData` if the message has it.
type Said = (CacheOp, u16);

fn said(out: &[Outgoing]) -> Vec<Said> {
    out.iter().map(|it| (it.head.op, it.head.rsp_data)).collect()
}

const GO_E: Said = (CacheOp::Go, GoState::Exclusive as u16);
const GO_S: Said = (CacheOp::Go, GoState::Shared as u16);
const GO_I: Said = (CacheOp::Go, GoState::Invalid as u16);
const GO_ERROR: Said = (CacheOp::Go, GoState::Error as u16);
const DATA: Said = (CacheOp::DataToDevice, 0);

/// docs/spec/cxl-fabric.md "CXL.cache", the table of requests: the answer, and the device's hold afterwards, for a line
/// that no cache holds.
#[test]
fn each_request_has_its_answer() {
    use CacheOp::{
        CacheFlushed, ClFlush, CleanEvict, CleanEvictNoData, DirtyEvict, RdAny, RdCurr, RdOwn,
        RdOwnNoData, RdShared,
    };
    #[rustfmt::skip] // columns: request, answers, what is held then
    let cases: [(CacheOp, &[Said], Option<Hold>); 9] = [
        (RdCurr,           &[DATA],                              None),
        (RdShared,         &[GO_S, DATA],                        Some(Hold::Shared)),
        (RdAny,            &[GO_E, DATA],                        Some(Hold::Owned)),
        (RdOwn,            &[GO_E, DATA],                        Some(Hold::Owned)),
        (RdOwnNoData,      &[GO_E],                              Some(Hold::Owned)),
        (ClFlush,          &[GO_I],                              None),
        (CleanEvict,       &[(CacheOp::GoWritePullDrop, 0)],     None),
        (CleanEvictNoData, &[GO_I],                              None),
        (CacheFlushed,     &[GO_I],                              None),
    ];
    for (op, want, held) in cases {
        let mut bench = Bench::new(4);
        let out = bench.ask(3, op, 9, 1);
        assert_eq!(said(&out), want, "{op:?}");
        assert!(out.iter().all(|it| it.head.cache_id == 3 && it.head.id == 9), "{op:?}");
        assert_eq!(bench.home.hold_of(3, at(1)), held, "{op:?}");
        assert_eq!(bench.ask(3, op, 9, 1).len(), want.len(), "{op:?}: the CQID is free again");
    }
    // A cache that owns no line has nothing to write back.
    let mut bench = Bench::new(4);
    let out = bench.ask(3, DirtyEvict, 9, 1);
    assert_eq!(out[0].head.op, CacheOp::GoErrWritePull);
    assert_eq!(bench.data(3, out[0].head.rsp_data, &[5; LINE]), (true, vec![]));
    assert_eq!((bench.line(1), bench.counts().stale_writes), (&[0; LINE][..], 1));
}

/// Writes: the data is pulled, and memory has it once no other cache has the line.
#[test]
fn writes_pull_their_data() {
    #[rustfmt::skip] // columns: request, what pulls, answers behind the data
    let cases: [(CacheOp, CacheOp, &[Said]); 5] = [
        (CacheOp::ItoMWr,   CacheOp::GoWritePull,     &[]),
        (CacheOp::WrCur,    CacheOp::GoWritePull,     &[]),
        (CacheOp::WrInv,    CacheOp::WritePull,       &[GO_I]),
        (CacheOp::WoWrInv,  CacheOp::FastGoWritePull, &[(CacheOp::ExtCmp, 0)]),
        (CacheOp::WoWrInvF, CacheOp::FastGoWritePull, &[(CacheOp::ExtCmp, 0)]),
    ];
    for (op, pulls, want) in cases {
        let mut bench = Bench::new(4);
        let out = bench.ask(1, op, 4, 2);
        let [pull] = &out[..] else { panic!("{op:?}: {out:?}") };
        assert_eq!((pull.head.op, pull.head.id), (pulls, 4), "{op:?}");
        let (taken, out) = bench.data(1, pull.head.rsp_data, &[7; LINE]);
        assert_eq!((taken, said(&out)), (true, want.to_vec()), "{op:?}");
        assert_eq!(bench.line(2), [7; LINE], "{op:?}");
        assert_eq!(bench.home.hold_of(1, at(2)), None, "{op:?}");
    }
    // Only enabled bytes are written.
    let mut bench = Bench::new(4);
    let pull = bench.ask(1, CacheOp::WrInv, 4, 2)[0].head.rsp_data;
    let (_, out) = bench.part(1, pull, &[7; LINE], Some(0b101));
    assert_eq!(said(&out), [GO_I]);
    assert_eq!(&bench.line(2)[..4], [7, 0, 7, 0]);
}

/// Another cache is snooped first, as the table says, and the request waits for its answer and its data.
#[test]
fn others_are_asked_first() {
    #[rustfmt::skip] // columns: request, how the owner is asked, its answer, answers to who asked
    let cases: [(CacheOp, CacheOp, CacheOp, &[Said]); 4] = [
        (CacheOp::RdCurr,      CacheOp::SnpCur,  CacheOp::RspVFwdV, &[DATA]),
        (CacheOp::RdShared,    CacheOp::SnpData, CacheOp::RspSFwdM, &[GO_S, DATA]),
        (CacheOp::RdOwn,       CacheOp::SnpInv,  CacheOp::RspIFwdM, &[GO_E, DATA]),
        (CacheOp::RdOwnNoData, CacheOp::SnpInv,  CacheOp::RspIFwdM, &[GO_E]),
    ];
    for (op, snoop, rsp, want) in cases {
        let mut bench = Bench::new(4);
        bench.ask(0, CacheOp::RdOwn, 1, 5);
        let out = bench.ask(1, op, 2, 5);
        let [asked] = &out[..] else { panic!("{op:?}: {out:?}") };
        let head = asked.head;
        assert_eq!((head.op, head.cache_id, head.addr), (snoop, 0, at(5)), "{op:?}");
        assert_eq!(bench.answer(0, rsp, head.id, 5), (true, vec![]), "{op:?}: its data is to come");
        let (taken, out) = bench.data(0, head.id, &[8; LINE]);
        assert_eq!((taken, said(&out)), (true, want.to_vec()), "{op:?}");
        assert_eq!(bench.line(5), [8; LINE], "{op:?}");
        let data = out.iter().find_map(|it| it.data.as_deref());
        assert!(data.is_none_or(|data| *data == [8; LINE]), "{op:?}");
    }
}

/// No device can act for another one, and unexpected messages change nothing.
#[test]
fn hostile_devices_change_nothing_of_others() {
    let mut bench = Bench::new(4);
    bench.ask(0, CacheOp::RdOwn, 1, 5);
    let snoop = bench.ask(1, CacheOp::RdOwn, 2, 5)[0].head.id;
    let before = bench.home.clone();
    for cache_id in 1..16 {
        // Another device answers, or sends data, in its place.
        assert_eq!(bench.answer(cache_id, CacheOp::RspIHitI, snoop, 5), (false, vec![]));
        assert_eq!(bench.data(cache_id, snoop, &[6; LINE]), (false, vec![]));
    }
    for uqid in 0..1 << 12 {
        // Data before an answer announced it, and for pulls that were not made.
        assert_eq!(bench.data(0, uqid, &[6; LINE]), (false, vec![]), "{uqid}");
        assert_eq!(bench.data(2, uqid, &[6; LINE]), (false, vec![]), "{uqid}");
        if uqid != snoop {
            assert_eq!(bench.answer(0, CacheOp::RspIHitI, uqid, 5), (false, vec![]), "{uqid}");
        }
    }
    // The answer keeps too much, a sharer announces data, or the CQID is in use.
    assert_eq!(bench.answer(0, CacheOp::RspVHitV, snoop, 5), (false, vec![]));
    assert_eq!(bench.answer(0, CacheOp::RspSHitSE, snoop, 5), (false, vec![]));
    let again = CacheHead { cache_id: 1, addr: at(6), ..CacheHead::new(CacheOp::RdOwn, 2) };
    assert_eq!(bench.say(&CacheMessage::of(again)), (false, vec![]));
    // What only a host says.
    for op in [CacheOp::Go, CacheOp::SnpInv, CacheOp::DataToDevice] {
        assert_eq!(bench.answer(0, op, snoop, 5), (false, vec![]), "{op:?}");
    }
    assert_eq!(bench.line(5), [0; LINE]);
    assert_eq!(hash_of(&bench.home), hash_of(&before), "counts are not hashed");
    assert_eq!(said(&bench.answer(0, CacheOp::RspIHitSE, snoop, 5).1), [GO_E, DATA]);

    // A cache that shares a line has not changed it.
    let mut bench = Bench::new(4);
    bench.ask(0, CacheOp::RdShared, 1, 5);
    let snoop = bench.ask(1, CacheOp::RdOwn, 2, 5)[0].head.id;
    assert_eq!(bench.answer(0, CacheOp::RspIFwdM, snoop, 5), (false, vec![]));
    assert_eq!(bench.data(0, snoop, &[6; LINE]), (false, vec![]));
    let FilterCounts { wrong, unexpected, .. } = bench.counts().filter;
    assert_eq!((wrong, unexpected, bench.line(5)), (1, 2, &[0; LINE][..]));
}

/// No memory at the address: each request ends, and changes nothing.
#[test]
fn requests_for_no_memory_end() {
    for &op in CacheOp::ALL.iter().filter(|op| op.class() as u8 == 1) {
        let mut bench = Bench::new(4);
        let out = bench.ask(2, op, 3, 16);
        let want: &[CacheOp] = match op {
            CacheOp::RdCurr => &[CacheOp::DataToDevice],
            CacheOp::RdShared | CacheOp::RdAny | CacheOp::RdOwn => {
                &[CacheOp::Go, CacheOp::DataToDevice]
            }
            CacheOp::RdOwnNoData
            | CacheOp::ClFlush
            | CacheOp::CleanEvict
            | CacheOp::CleanEvictNoData
            | CacheOp::CacheFlushed => &[CacheOp::Go],
            _ => &[CacheOp::GoErrWritePull],
        };
        let ops: Vec<CacheOp> = out.iter().map(|it| it.head.op).collect();
        assert_eq!(ops, want, "{op:?}");
        for it in &out {
            let is_flushed = op == CacheOp::CacheFlushed;
            match it.head.op {
                CacheOp::Go if is_flushed => assert_eq!(said(&out), [GO_I]),
                CacheOp::Go => assert_eq!((it.head.op, it.head.rsp_data), GO_ERROR, "{op:?}"),
                CacheOp::DataToDevice => assert!(it.head.go_err, "{op:?}"),
                _ => {
                    let (taken, out) = bench.data(2, it.head.rsp_data, &[1; LINE]);
                    assert_eq!((taken, out), (true, vec![]), "{op:?}");
                }
            }
        }
        assert_eq!(bench.counts().lines, 0, "{op:?}");
        assert_eq!(bench.memory.0, [0; 16 * LINE], "{op:?}");
    }
}

/// A `CacheID` that is given to another device: the earlier holder is not snooped but waited for, then its line is
/// lost; answers of the new holder do not count for it.
#[test]
fn who_had_a_cache_id_before_is_not_asked_by_it() {
    let mut bench = Bench::new(4);
    bench.ask(0, CacheOp::RdOwn, 1, 5);
    bench.home.reassign(0);
    assert_eq!(bench.home.hold_of(0, at(5)), None, "the new device has nothing");
    assert_eq!(bench.ask(0, CacheOp::RdOwn, 1, 5), [], "it waits, and no cache is snooped");
    bench.home.mark_overdue(bench.now);
    bench.now += LIMIT;
    bench.home.expire(bench.now);
    let out = bench.out();
    assert_eq!(said(&out), [GO_E, DATA]);
    assert!(out[1].head.poison, "what the device before had changed is lost");
    assert_eq!((bench.counts().filter.lost, bench.counts().poisoned), (1, 1));
    // A write-back of the whole line ends its poison.
    let pull = bench.ask(0, CacheOp::DirtyEvict, 1, 5)[0].head.rsp_data;
    assert_eq!(bench.data(0, pull, &[3; LINE]), (true, vec![]));
    assert_eq!((bench.counts().poisoned, bench.line(5)), (0, &[3; LINE][..]));
}

/// Accesses of the host itself wait for caches, and are refused when too many wait.
#[test]
fn accesses_of_the_host_wait_up_to_a_bound() {
    let mut bench = Bench::new(4);
    bench.ask(0, CacheOp::RdOwn, 1, 5);
    for nth in 0..512 {
        let local = Local::new(5 * LINE as u64, 8, nth % 2 == 0, nth);
        assert_eq!(bench.home.admit(local), Admitted::Waits, "{nth}");
    }
    let local = Local::new(5 * LINE as u64, 8, false, 512);
    assert!(matches!(bench.home.admit(local), Admitted::Refused(_, Refused::Busy)));
    assert!(bench.home.next_ready(bench.now, &mut bench.memory).is_none());
    let snoop = bench.home.next_message().unwrap().head.id;
    assert!(bench.home.take(
        &CacheMessage::of(CacheHead { addr: at(5), ..CacheHead::new(CacheOp::RspIHitSE, snoop) }),
        &mut bench.memory
    ));
    for nth in 0..512 {
        let local = bench.home.next_ready(bench.now, &mut bench.memory).unwrap();
        assert_eq!(local.what, nth, "in the order in which they came");
        assert!(matches!(bench.home.admit(local), Admitted::Now(_)));
    }
}

/// Random messages of a device in any order: no panic, and the rest of the host goes on.
#[test]
fn any_messages_are_taken_or_refused() {
    let mut rng = weft_base::rng::Rng::new(20_261_129);
    let mut bench = Bench::new(3);
    let mut taken = 0_u32;
    for _ in 0..200_000 {
        let op = CacheOp::ALL[usize::try_from(rng.below(CacheOp::ALL.len() as u64)).unwrap()];
        let small = u16::try_from(rng.below(8)).unwrap();
        let id = if rng.below(2) == 0 { small } else { 2_048 + small };
        let head = CacheHead {
            cache_id: u8::try_from(rng.below(4)).unwrap(),
            addr: at(rng.below(5)),
            poison: rng.below(8) == 0,
            bogus: rng.below(8) == 0,
            ..CacheHead::new(op, id)
        };
        let data = [u8::try_from(rng.below(256)).unwrap(); LINE];
        let enables = (rng.below(2) == 0).then(|| rng.next_u64());
        let message = CacheMessage { head, data: op.class().has_data().then_some(&data), enables };
        taken += u32::from(bench.say(&message).0);
        if rng.below(50) == 0 {
            bench.now += Span::from_us(rng.below(300));
            bench.home.mark_overdue(bench.now);
            bench.home.expire(bench.now);
            bench.out();
            while bench.home.next_news().is_some() {}
        }
        if rng.below(2_000) == 0 {
            bench.home.reassign(u8::try_from(rng.below(4)).unwrap());
        }
    }
    assert!(taken > 10_000, "{taken}");
    // Once all devices are silent and timed out, the host has its memory alone: waiting requests get their lines one
    // after the other.
    for _ in 0..200 {
        for line in 0..5 {
            let local = Local::new(line * LINE as u64, LINE as u64, true, 0);
            _ = bench.home.admit(local);
        }
        bench.home.mark_overdue(bench.now);
        bench.now += LIMIT;
        bench.home.expire(bench.now);
        while bench.home.next_ready(bench.now, &mut bench.memory).is_some() {}
        while bench.home.next_message().is_some() {}
    }
    assert!(bench.home.is_clear(0, 5 * LINE as u64, true), "{:?}", bench.counts());
    assert_eq!(bench.counts().waiting, 0);
}
