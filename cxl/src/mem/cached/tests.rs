//! A cache with a device that sends random messages: every load and store ends, and all state stays within bounds.

use super::*;
use weft_base::rng::Rng;
use weft_dataplane::time::Span;
use weft_parsers::cxl_mem::Lease;
use weft_parsers::tlp::DevLoad;

const BASE: u64 = 1 << 40;
const LINES: u64 = 16;
const ROOM: usize = 4;
const TIMEOUT: Span = Span::from_ms(1);

/// A host with a cache of four lines, and the messages it has sent.
struct Host {
    requester: CachedRequester,
    now: Instant,
    /// The last requests.
    sent: Vec<MemHead>,
    /// Length in bytes of each open load; 0 for a store.
    open: BTreeMap<MemId, usize>,
    ended: [u64; 2],
    answers: u64,
}

impl Host {
    fn new() -> Self {
        let spec = MemSpec { in_flight_max: 8, timeout: TIMEOUT };
        Self {
            requester: CachedRequester::new(spec, ROOM),
            now: Instant::ZERO,
            sent: Vec::new(),
            open: BTreeMap::new(),
            ended: [0; 2],
            answers: 0,
        }
    }

    fn submit(&mut self, rng: &mut Rng) {
        let addr = Hpa(BASE + rng.below(LINES * 64));
        let len = usize::try_from(rng.below(150)).unwrap();
        let (what, len) = if rng.chance(1, 2) {
            (MemOperation::Load { addr, len }, len)
        } else {
            (MemOperation::Store { addr, data: vec![7; len] }, 0)
        };
        self.open.insert(self.requester.submit(what), len);
    }

    fn turn(&mut self, span: Span) {
        self.now += span;
        self.requester.expire(self.now);
        let Self { requester, sent, answers, .. } = self;
        requester.flush(self.now, &mut |message| match message.head.op.class() {
            MemClass::BiRsp => *answers += 1,
            _ => sent.push(message.head),
        });
        let old = self.sent.len().saturating_sub(16);
        self.sent.drain(..old);
        while let Some(done) = self.requester.next_done() {
            let len = self.open.remove(&done.id).expect("each ends once");
            match done.result {
                Ok(data) => {
                    assert_eq!(data.len(), len);
                    self.ended[0] += 1;
                }
                Err(_) => self.ended[1] += 1,
            }
        }
        assert_eq!(self.requester.pending(), self.open.len());
        let (lines, room) = self.requester.cache().1;
        assert!(lines <= room && room == ROOM, "{lines} lines");
    }
}

/// The fitting answer to a request.
const fn answers(request: MemOp) -> &'static [MemOp] {
    match request {
        MemOp::MemRd => &[MemOp::CmpE, MemOp::MemData],
        MemOp::BiConflict => &[MemOp::BiConflictAck],
        _ => &[MemOp::Cmp],
    }
}

/// A random message: with a tag under way or any other, for a line that the host knows or any other.
fn any(rng: &mut Rng, sent: &[MemHead]) -> (MemHead, [u8; LINE]) {
    let pick = |rng: &mut Rng, most: usize| usize::try_from(rng.below(most as u64)).unwrap();
    // Mostly valid messages of a device, so that requests are under way, and end.
    let op = if rng.chance(3, 4) {
        const SAID: [MemOp; 9] = [
            MemOp::Cmp,
            MemOp::CmpS,
            MemOp::CmpE,
            MemOp::BiConflictAck,
            MemOp::MemData,
            MemOp::MemData,
            MemOp::BiSnpCur,
            MemOp::BiSnpData,
            MemOp::BiSnpInv,
        ];
        SAID[pick(rng, SAID.len())]
    } else {
        MemOp::ALL[pick(rng, MemOp::ALL.len())]
    };
    let known = rng.chance(3, 4) && !sent.is_empty();
    let tag = if known {
        sent[pick(rng, sent.len())].tag
    } else {
        u16::try_from(rng.below(1 << 16)).unwrap()
    };
    let meta = if rng.chance(1, 8) { MetaField::NoOp } else { MetaField::State };
    let load = [DevLoad::Light, DevLoad::SevereOverload][pick(rng, 2)];
    let head = MemHead {
        addr: Hpa(BASE + rng.below(2 * LINES) * 64),
        bi_id: u16::try_from(rng.below(4)).unwrap(),
        poison: rng.chance(1, 16),
        meta,
        load,
        lease: Lease { number: rng.below(4), term: u16::try_from(rng.below(20)).unwrap() },
        ..MemHead::new(op, tag)
    };
    (head, [rng.next_u64().to_le_bytes()[0]; LINE])
}

fn whatever_comes(count: u32) {
    let (mut host, mut rng) = (Host::new(), Rng::new(0xCAC4E));
    let mut snoops = 0;
    for _ in 0..count {
        if host.open.len() < 8 && rng.chance(1, 3) {
            host.submit(&mut rng);
        }
        if let Some(request) = host.sent.pop_if(|_| rng.chance(7, 8)) {
            for &op in answers(request.op) {
                let lease = Lease { number: 1 + rng.below(8), term: 3 };
                let meta = MetaField::State;
                let head = MemHead { meta, lease, ..MemHead::new(op, request.tag) };
                host.requester.take(&MemMessage { head, data: Some(&[1; LINE]), enables: None });
            }
        }
        let (head, data) = any(&mut rng, &host.sent);
        snoops += u64::from(Snoop::of(head.op).is_some());
        host.requester.take(&MemMessage { head, data: Some(&data), enables: None });
        host.turn(Span::from_us(rng.below(40)));
        if rng.chance(1, 50_000) {
            host.requester.give_up();
        }
    }
    for _ in 0..1_000 {
        host.turn(TIMEOUT);
    }
    let (counts, cache) = (host.requester.counts(), host.requester.cache().0);
    assert!(host.open.is_empty(), "{} never end: {counts:?}", host.open.len());
    assert_eq!(counts.sent, counts.answered + counts.timeouts + counts.given_up);
    assert!(host.answers <= snoops, "{} answers to {snoops} snoops", host.answers);
    assert!(host.ended.iter().all(|&each| each > 100), "{:?}", host.ended);
    assert!(counts.unexpected > 100 && counts.mismatched > 100 && counts.timeouts > 100);
    let lines = [cache.written_back, cache.evicted, cache.lapsed, cache.lost];
    let each = [&[cache.hits, cache.conflicts][..], &lines].concat();
    assert!(each.iter().all(|&each| each > 10), "{cache:?}");
}

#[test]
fn whatever_a_device_says_every_load_and_store_ends() {
    whatever_comes(100_000);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_a_million_messages_to_a_cache() {
    whatever_comes(1_000_000);
}
