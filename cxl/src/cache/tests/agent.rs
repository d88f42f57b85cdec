//! The cache agent alone, with a host that answers as a test wants: what no exploration reaches, as requests never time
//! out there.

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_cache::{CacheHead, CacheMessage, CacheOp, GoState};
use weft_parsers::cxl_mem::{LINE, Lease};
use weft_parsers::fabric::Hpa;

use super::super::Outgoing;
use super::super::agent::{CacheAgent, CacheSpec};
use crate::coherence::cache::Access;

/// Long enough for all that a test does.
const LEASE: Lease = Lease { number: 1, term: u16::MAX };
const TIMEOUT: Span = Span::from_us(100);
const ADDR: u64 = 3 * LINE as u64;

struct Bench {
    agent: CacheAgent<u32>,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        let spec = CacheSpec { lines: 4, in_flight_max: 4, timeout: TIMEOUT };
        Self { agent: CacheAgent::new(spec), now: Instant::ZERO }
    }

    fn sent(&mut self) -> Vec<Outgoing> {
        core::iter::from_fn(|| self.agent.next_message(self.now)).collect()
    }

    /// The one message that is sent, which has to be `op`; its CQID or UQID.
    fn one(&mut self, op: CacheOp) -> u16 {
        let sent = self.sent();
        assert_eq!(sent.iter().map(|it| it.head.op).collect::<Vec<_>>(), [op]);
        sent[0].head.id
    }

    fn say(&mut self, head: CacheHead, data: Option<&[u8; LINE]>) {
        let head = CacheHead { addr: Hpa(ADDR), lease: LEASE, ..head };
        assert!(self.agent.take(&CacheMessage { head, data, enables: None }), "{head:?}");
    }

    /// Reads the line to own it, from a host whose memory is `value`, and stores `stored`.
    fn store(&mut self, value: u8, stored: u8) {
        let store = Some(([stored; LINE], 1));
        self.agent.access(ADDR, Access { what: 0, store });
        let cqid = self.one(CacheOp::RdOwn);
        let go = CacheHead::new(CacheOp::Go, cqid);
        self.say(CacheHead { rsp_data: GoState::Exclusive as u16, ..go }, None);
        self.say(CacheHead::new(CacheOp::DataToDevice, cqid), Some(&[value; LINE]));
        assert!(self.agent.next_done().is_some_and(|(_, result)| result.is_ok()));
    }

    /// Gives up all lines; the CQID of the `DirtyEvict`.
    fn write_back(&mut self) -> u16 {
        self.agent.flush();
        self.one(CacheOp::DirtyEvict)
    }

    fn snoop(&mut self, uqid: u16) {
        self.say(CacheHead::new(CacheOp::SnpInv, uqid), None);
    }
}

/// A snoop that waited for a write-back goes unanswered when that fails. It must not take what comes after it for its
/// own: a later write-back would never be sent, and its stores would be lost without a word.
#[test]
fn a_snoop_of_a_failed_write_back_hides_no_later_one() {
    let mut bench = Bench::new();
    bench.store(7, 8);
    bench.write_back();
    bench.snoop(40);
    assert_eq!(bench.sent(), [], "the answer waits for the write-back");
    bench.now += TIMEOUT;
    assert_eq!((bench.agent.expire(bench.now), bench.agent.next_lost()), (1, Some(ADDR)));
    // With the line lost, the flush has nothing left to write.
    let flushed = bench.one(CacheOp::CacheFlushed);
    bench.say(CacheHead::new(CacheOp::Go, flushed), None);
    // The host has given the snoop up, and grants the line anew.
    bench.store(7, 9);
    let cqid = bench.write_back();
    let pull = CacheHead::new(CacheOp::GoWritePull, cqid);
    bench.say(CacheHead { rsp_data: 41, ..pull }, None);
    let data = bench.agent.next_message(bench.now).unwrap();
    assert_eq!((data.head.op, data.head.id, data.data.unwrap()[0]), (CacheOp::DataToHost, 41, 9));
    // The next snoop has one answer, its own.
    bench.snoop(42);
    let answers: Vec<_> = bench.sent().iter().map(|it| (it.head.op, it.head.id)).collect();
    assert!(answers.contains(&(CacheOp::RspIHitI, 42)), "{answers:?}");
    assert!(!answers.iter().any(|&(_, id)| id == 40), "{answers:?}");
}
