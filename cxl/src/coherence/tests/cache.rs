//! The host's half alone: hits, write-backs, snoops that meet requests, and requests that fail.
//!
//! Source: docs/spec/cxl-fabric.md "Back-invalidate".

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_mem::Lease;

use super::super::cache::{Access, Bytes, Cache, Out};
use super::super::{Failure, Hold, Snoop};
use Hold::{Owned, Shared};

const LINE: u64 = 0x40;
/// A lease of a millisecond.
const LEASE: u64 = 7;

fn bytes(value: u8) -> Bytes {
    [value; 64]
}

fn load(what: u32) -> Access<u32> {
    Access { what, store: None }
}

fn store(what: u32, value: u8) -> Access<u32> {
    Access { what, store: Some((bytes(value), 1)) }
}

fn out(cache: &mut Cache<u32>) -> Vec<Out<u32>> {
    std::iter::from_fn(|| cache.next_out()).collect()
}

fn done(what: u32, result: Result<Bytes, Failure>) -> Out<u32> {
    Out::Done { what, result }
}

/// An empty cache that has a lease.
fn leased(room: usize) -> Cache<u32> {
    let mut cache = Cache::new(room);
    renew(&mut cache, LEASE, Instant::ZERO);
    cache
}

/// Takes a response that names lease `number`, to a request that was sent at `sent`.
fn renew(cache: &mut Cache<u32>, number: u64, sent: Instant) {
    cache.leases().renew(Lease { number, term: 10 }, sent);
}

/// A cache with a line that was read and granted as `hold`.
fn held(hold: Hold, room: usize) -> Cache<u32> {
    let mut cache = leased(room);
    cache.access(LINE, load(0));
    assert!(cache.granted(LINE, Some(hold), LEASE) && cache.data(LINE, &bytes(7), false, false));
    assert_eq!(out(&mut cache).last(), Some(&done(0, Ok(bytes(7)))));
    cache
}

fn stored(value: u8) -> Bytes {
    let mut line = bytes(7);
    line[0] = value;
    line
}

#[test]
fn what_is_held_is_used_without_a_message() {
    let mut cache = held(Owned, 2);
    cache.access(LINE, store(1, 9));
    cache.access(LINE, load(2));
    let line = stored(9);
    assert_eq!(out(&mut cache), [done(1, Ok(line)), done(2, Ok(line))]);
    assert_eq!((cache.counts().hits, cache.counts().misses), (2, 1));
    let mut cache = held(Shared, 2);
    cache.access(LINE, load(1));
    cache.access(LINE, store(2, 9));
    let read = Out::Read { line: LINE, exclusive: true };
    assert_eq!(out(&mut cache), [done(1, Ok(bytes(7))), read], "a shared copy is not for stores");
}

/// Each snoop in each state: the data written back, and the state kept.
#[test]
fn each_snoop_finds_each_state() {
    for (how, clean, shared) in [
        (Snoop::Current, Some(Owned), Some(Shared)),
        (Snoop::Data, Some(Shared), Some(Shared)),
        (Snoop::Invalidate, None, None),
    ] {
        let mut cache = held(Owned, 2);
        cache.snoop(LINE, how);
        assert_eq!(out(&mut cache), [Out::Answer { line: LINE, left: clean }], "{how:?}, E");
        let mut cache = held(Shared, 2);
        cache.snoop(LINE, how);
        assert_eq!(out(&mut cache), [Out::Answer { line: LINE, left: shared }], "{how:?}, S");
        let mut cache = held(Owned, 2);
        cache.access(LINE, store(1, 9));
        out(&mut cache);
        cache.snoop(LINE, how);
        let back = Out::WriteBack { line: LINE, data: stored(9), left: clean };
        assert_eq!(out(&mut cache), [back], "{how:?}, M: nothing is said before it is written");
        assert!(cache.written(LINE, false));
        assert_eq!(out(&mut cache), [Out::Answer { line: LINE, left: clean }], "{how:?}, M");
        let mut cache: Cache<u32> = Cache::new(2);
        cache.snoop(LINE, how);
        assert_eq!(out(&mut cache), [Out::Answer { line: LINE, left: None }], "{how:?}, I");
    }
}

/// A snoop meets a read: an acknowledgement before `Cmp` means that the snoop was first, one behind it that the read
/// was.
#[test]
fn a_conflict_is_settled_by_the_order_of_cmp_and_acknowledgement() {
    let start = || {
        let mut cache = held(Shared, 2);
        cache.access(LINE, store(1, 9));
        cache.snoop(LINE, Snoop::Invalidate);
        let read = Out::Read { line: LINE, exclusive: true };
        assert_eq!(out(&mut cache), [read, Out::Conflict { line: LINE }]);
        cache
    };
    let none = Out::Answer { line: LINE, left: None };
    let mut first = start();
    assert!(first.conflict_known(LINE));
    assert_eq!(out(&mut first), std::slice::from_ref(&none));
    assert!(first.granted(LINE, Some(Owned), LEASE) && first.data(LINE, &bytes(8), false, false));
    assert_eq!(out(&mut first).len(), 1, "the store is done on what the snooper left");
    let mut late = start();
    assert!(late.granted(LINE, Some(Owned), LEASE) && late.conflict_known(LINE));
    assert_eq!(out(&mut late), []);
    assert!(late.data(LINE, &bytes(7), false, false));
    let back = Out::WriteBack { line: LINE, data: stored(9), left: None };
    assert_eq!(out(&mut late), [done(1, Ok(stored(9))), back]);
    assert!(late.written(LINE, false));
    assert_eq!(out(&mut late), [none]);
    assert!(!late.conflict_known(LINE), "once");
}

/// A full cache writes changed lines back and sends evictions of clean ones. A write-back without `Cmp` is lost, and
/// the snoop that waits for it is not answered.
#[test]
fn lines_give_up_their_places_and_nothing_is_hidden() {
    let mut cache = held(Owned, 1);
    cache.access(0x80, load(1));
    assert_eq!(out(&mut cache), [Out::Evict { line: LINE }]);
    assert!(cache.written(LINE, false));
    assert_eq!(out(&mut cache), [Out::Read { line: 0x80, exclusive: false }]);
    let mut cache = held(Owned, 1);
    cache.access(LINE, store(1, 9));
    cache.access(0x80, load(2));
    let back = Out::WriteBack { line: LINE, data: stored(9), left: None };
    assert_eq!(out(&mut cache), [done(1, Ok(stored(9))), back]);
    cache.snoop(LINE, Snoop::Invalidate);
    assert_eq!(out(&mut cache), [], "it waits for the write-back");
    cache.failed(LINE, Failure::Timeout);
    let read = Out::Read { line: 0x80, exclusive: false };
    assert_eq!(out(&mut cache), [Out::Unanswered { line: LINE }, read]);
    assert_eq!((cache.counts().lost, cache.used()), (1, (1, 1)));
}

/// A line is used while its lease lasts. After that a clean line is read again; a changed one is written back first,
/// and lost if the device refuses it.
#[test]
fn what_is_held_is_used_while_its_lease_lasts() {
    let read = |exclusive| Out::Read { line: LINE, exclusive };
    let ms = |ms| Instant::ZERO + Span::from_ms(ms);
    for (refused, renewed) in [(false, false), (true, false), (false, true)] {
        let mut cache = held(Owned, 2);
        cache.access(LINE, store(1, 9));
        out(&mut cache);
        cache.leases().set_now(ms(1));
        if renewed {
            renew(&mut cache, LEASE, ms(1)); // by the answer to any request
        }
        cache.access(LINE, load(2));
        if renewed {
            assert_eq!(out(&mut cache), [done(2, Ok(stored(9)))]);
            continue;
        }
        assert_eq!(cache.usable(LINE), None);
        let back = Out::WriteBack { line: LINE, data: stored(9), left: None };
        assert_eq!(out(&mut cache), [back]);
        assert!(cache.written(LINE, refused));
        assert_eq!(out(&mut cache), [read(false)]);
        assert_eq!(
            (cache.counts().lost, cache.next_lost()),
            (refused.into(), refused.then_some(LINE))
        );
        assert_eq!(cache.counts().lapsed, 1);
    }
    for hold in [Owned, Shared] {
        let mut cache = held(hold, 2);
        cache.leases().set_now(ms(1));
        cache.access(LINE, load(1));
        assert_eq!((out(&mut cache), cache.held(LINE)), (vec![read(false)], None));
        // A snoop meets the read; the cache keeps no copy meanwhile.
        cache.snoop(LINE, Snoop::Current);
        assert!(cache.conflict_known(LINE));
        let answer = Out::Answer { line: LINE, left: None };
        assert_eq!(out(&mut cache), [Out::Conflict { line: LINE }, answer]);
        // A lease with another number does not renew the old one.
        renew(&mut cache, LEASE + 1, ms(1));
        assert!(cache.granted(LINE, Some(Shared), LEASE + 1));
        assert!(cache.data(LINE, &bytes(8), false, false));
        assert_eq!(out(&mut cache), [done(1, Ok(bytes(8)))]);
        assert!(cache.usable(LINE).is_some());
    }
}

/// Data without a lease is used by the accesses that waited when it was requested: loads get it, a store goes past the
/// cache, and a snoop meanwhile is answered at once.
#[test]
fn without_a_lease_a_line_is_used_once() {
    let mut cache = Cache::new(2);
    let read = |exclusive| Out::Read { line: LINE, exclusive };
    cache.access(LINE, load(1));
    cache.access(LINE, load(2));
    assert_eq!(out(&mut cache), [read(false)]);
    assert!(cache.granted(LINE, Some(Owned), 0) && cache.data(LINE, &bytes(7), false, false));
    assert_eq!(out(&mut cache), [done(1, Ok(bytes(7))), read(false)]);
    assert!(cache.granted(LINE, Some(Owned), 0));
    cache.access(LINE, store(3, 9));
    assert!(cache.data(LINE, &bytes(7), false, false));
    assert_eq!(out(&mut cache), [done(2, Ok(bytes(7))), read(true)]);
    cache.snoop(LINE, Snoop::Invalidate);
    assert!(cache.granted(LINE, Some(Owned), 0) && cache.data(LINE, &bytes(7), false, false));
    let through = Out::Through { line: LINE, data: bytes(9), mask: 1 };
    assert_eq!(out(&mut cache), [Out::Conflict { line: LINE }, through]);
    let answer = Out::Answer { line: LINE, left: None };
    assert!(cache.conflict_known(LINE));
    assert_eq!(out(&mut cache), std::slice::from_ref(&answer), "the write may wait for it");
    cache.snoop(LINE, Snoop::Data);
    assert_eq!(out(&mut cache), [answer]);
    assert!(cache.written(LINE, false));
    assert_eq!((out(&mut cache), cache.used().0), (vec![done(3, Ok(bytes(7)))], 0));
    // Poison fails only the accesses that waited; a store of the whole line ends it all the same.
    cache.access(LINE, load(4));
    cache.access(LINE, Access { what: 5, store: Some((bytes(5), u64::MAX)) });
    out(&mut cache);
    assert!(cache.granted(LINE, Some(Owned), 0) && cache.data(LINE, &bytes(0), true, false));
    let failed = done(4, Err(Failure::Poisoned));
    assert_eq!(out(&mut cache), [failed, read(true)]);
    assert!(cache.granted(LINE, Some(Owned), 0) && cache.data(LINE, &bytes(0), true, false));
    assert_eq!(out(&mut cache), [Out::Through { line: LINE, data: bytes(5), mask: u64::MAX }]);
}

/// Two snoops of one line, as the device has given up on the host for the first: each has a conflict of its own, and
/// both are answered by the stricter one.
#[test]
fn a_second_snoop_has_a_conflict_of_its_own() {
    let mut cache = leased(2);
    cache.access(LINE, store(1, 9));
    out(&mut cache);
    cache.snoop(LINE, Snoop::Invalidate);
    cache.snoop(LINE, Snoop::Data);
    let conflict = Out::Conflict { line: LINE };
    assert_eq!(out(&mut cache), [conflict.clone(), conflict]);
    assert!(cache.conflict_known(LINE));
    assert_eq!(out(&mut cache), [], "it says nothing of the second");
    assert!(cache.granted(LINE, Some(Owned), LEASE));
    assert!(cache.conflict_known(LINE) && cache.data(LINE, &bytes(7), false, false));
    let back = Out::WriteBack { line: LINE, data: stored(9), left: None };
    assert_eq!(out(&mut cache), [done(1, Ok(stored(9))), back]);
    assert!(cache.written(LINE, false));
    assert_eq!(out(&mut cache), [Out::Answer { line: LINE, left: None }]);
}

/// When the link goes down, requests under way are lost, and held lines stay while their leases last.
#[test]
fn lines_outlast_their_link() {
    let mut cache = leased(4);
    for (line, what) in [(LINE, 1), (0x80, 2)] {
        cache.access(line, store(what, 9));
        cache.granted(line, Some(Owned), LEASE);
        cache.data(line, &bytes(7), false, false);
    }
    cache.snoop(0x80, Snoop::Invalidate);
    cache.access(0xC0, load(3));
    cache.link_down();
    assert_eq!((cache.used().0, cache.usable(LINE)), (1, Some((Owned, &stored(9)))));
    assert_eq!((cache.counts().lost, cache.next_lost()), (1, Some(0x80)));
    assert_eq!(out(&mut cache), []);
    cache.access(LINE, load(4));
    assert_eq!(out(&mut cache), [done(4, Ok(stored(9)))]);
}

/// Also while an earlier loss of the same line has not been fetched.
#[test]
fn each_loss_of_a_line_is_reported() {
    let mut cache = leased(4);
    for losses in 1..=2 {
        cache.access(LINE, store(0, 9));
        let (hold, data) = (Some(Hold::Owned), bytes(7));
        assert!(cache.granted(LINE, hold, LEASE) && cache.data(LINE, &data, false, false));
        cache.clear();
        assert_eq!(cache.counts().lost, losses);
    }
    assert_eq!([(); 3].map(|()| cache.next_lost()), [Some(LINE), Some(LINE), None]);
}

#[test]
fn bad_answers_end_accesses_and_poison_ends_with_a_whole_line() {
    for (end, want) in [(false, Failure::NoMemory), (true, Failure::Poisoned)] {
        let mut cache = leased(2);
        cache.access(LINE, load(1));
        cache.access(LINE, store(2, 3));
        if end {
            cache.granted(LINE, Some(Owned), LEASE);
            cache.data(LINE, &bytes(0), true, false);
        } else {
            cache.failed(LINE, Failure::NoMemory);
        }
        let failed = |what| done(what, Err(want));
        assert_eq!(out(&mut cache)[1..], [failed(1), failed(2)]);
        assert_eq!(cache.used().0, 0);
    }
    let mut cache = leased(2);
    cache.access(LINE, Access { what: 1, store: Some((bytes(5), u64::MAX)) });
    cache.granted(LINE, Some(Owned), LEASE);
    cache.data(LINE, &bytes(0), true, false);
    assert_eq!(out(&mut cache)[1..], [done(1, Ok(bytes(5)))]);
    // Answers that match no request change nothing.
    let mut cache = held(Shared, 2);
    assert!(!cache.granted(LINE, Some(Owned), LEASE) && !cache.data(LINE, &bytes(1), false, false));
    assert!(
        !cache.written(LINE, false) && !cache.written(0x80, false) && !cache.conflict_known(LINE)
    );
    assert_eq!(cache.held(LINE), Some((Shared, &bytes(7))));
}

/// Data from a device without back-invalidate is used once: each load reads, each store writes.
#[test]
fn nothing_is_kept_that_nobody_tracks() {
    let mut cache = Cache::new(2);
    let read = |exclusive| Out::Read { line: LINE, exclusive };
    cache.access(LINE, load(1));
    cache.access(LINE, store(2, 9));
    cache.access(LINE, load(3));
    out(&mut cache);
    assert!(cache.data(LINE, &bytes(7), false, true));
    // An access that came after the read was sent may expect a newer value.
    assert_eq!(out(&mut cache), [done(1, Ok(bytes(7))), read(true)]);
    assert!(cache.data(LINE, &bytes(7), false, true));
    let through = Out::Through { line: LINE, data: bytes(9), mask: 1 };
    assert_eq!(out(&mut cache), [through]);
    assert!(cache.written(LINE, false));
    assert_eq!(out(&mut cache), [done(2, Ok(bytes(7))), read(false)]);
    assert!(cache.data(LINE, &stored(9), false, true));
    assert_eq!(out(&mut cache), [done(3, Ok(stored(9)))]);
    assert_eq!(cache.used().0, 0);
}
