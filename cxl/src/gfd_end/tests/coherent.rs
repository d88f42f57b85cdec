//! A coherent device: which hosts it snoops, requests that wait for them, and hosts that lie, are silent or have no
//! right.
//!
//! Source: docs/spec/cxl-fabric.md "Back-invalidate"; docs/spec/wire-formats.md §3.9.

use super::lines::Answer;
use super::*;
use weft_base::rng::Rng;
use weft_parsers::cxl_mem::{LINE, Lease, MemHead, MemMessage, MemOp, MetaField};

const OTHER: Pid = Pid::from_low_bits(0x0A2);
/// Address at which the other host has the same memory.
const OTHER_BASE: u64 = 2 << 40;
const LIMIT: Span = Span::from_ms(5);

fn bench(lines: usize) -> Bench {
    let mut gfd = device(Media::default());
    let mut decoder = gfd.gdt().get(HOST)[0].unwrap();
    decoder.hpa_base = Hpa(OTHER_BASE);
    gfd.set_decoders(OTHER, 0, &[Some(decoder)]).unwrap();
    gfd.set_sat(&[(OTHER, 1 | 1 << 31)]).unwrap();
    let coherent = Some(CoherentConfig { lines, answer_max: LIMIT, secret: 1 });
    Bench::of(gfd, GfdEndConfig { coherent, ..GfdEndConfig::default() })
}

/// A request of a host with a cache, at an address of that host.
fn ask(op: MemOp, Wanted { meta_value, snoop }: Wanted, addr: u64, tag: u16) -> MemHead {
    let meta = MetaField::State;
    MemHead { addr: Hpa(addr), meta, meta_value, snoop, ..MemHead::new(op, tag) }
}

/// `MetaValue` and `SnpType` of a request: how its host wants to hold the line.
#[derive(Clone, Copy)]
struct Wanted {
    meta_value: u8,
    snoop: u8,
}

const SHARED: Wanted = Wanted { meta_value: 0b11, snoop: 1 };
const EXCLUSIVE: Wanted = Wanted { meta_value: 0b10, snoop: 3 };
const GIVES_UP: Wanted = Wanted { meta_value: 0, snoop: 0 };

fn send(bench: &mut Bench, who: Pid, head: MemHead, byte: u8) -> Vec<(Pid, MemHead, Option<u8>)> {
    let came = bench.mem_as(Pth::new(who, GFD), head, &[byte; LINE], 0xFF);
    let short = |(pth, head, line): Answer| {
        assert_eq!(pth.spid, GFD);
        (pth.dpid, head, line.map(|line| line[0]))
    };
    came.into_iter().map(short).collect()
}

fn read(bench: &mut Bench, who: Pid, at: u64, how: Wanted) -> Vec<(Pid, MemHead, Option<u8>)> {
    send(bench, who, ask(MemOp::MemRd, how, at, 1), 0)
}

fn ops(came: &[(Pid, MemHead, Option<u8>)]) -> Vec<(Pid, MemOp)> {
    came.iter().map(|(to, head, _)| (*to, head.op)).collect()
}

fn answer(bench: &mut Bench, who: Pid, op: MemOp, tag: u16) -> Vec<(Pid, MemHead, Option<u8>)> {
    send(bench, who, MemHead::new(op, tag), 0)
}

/// The only reader owns the line; another host's read waits until it has written back, and finds the new value. The
/// snoop has the owner's own address, and a forged answer does not count.
#[test]
fn a_conflicting_read_waits_for_the_owners_write_back() {
    let mut bench = bench(16);
    let came = read(&mut bench, HOST, BASE, SHARED);
    assert_eq!(ops(&came), [(HOST, MemOp::CmpE), (HOST, MemOp::MemData)]);
    assert_eq!((came[1].1.meta, came[1].1.meta_value), (MetaField::State, 0b10));
    let snoop = read(&mut bench, OTHER, OTHER_BASE, EXCLUSIVE);
    assert_eq!(ops(&snoop), [(HOST, MemOp::BiSnpInv)], "nobody is answered yet");
    assert_eq!(snoop[0].1.addr, Hpa(BASE));
    let tag = snoop[0].1.tag;
    for forged in [(OTHER, tag), (HOST, tag ^ 1)] {
        assert_eq!(answer(&mut bench, forged.0, MemOp::BiRspI, forged.1), []);
    }
    assert_eq!(bench.gfd.counts().0.unexpected, 2);
    let wrote = send(&mut bench, HOST, ask(MemOp::MemWr, GIVES_UP, BASE, 2), 9);
    assert_eq!(
        ops(&wrote),
        [(HOST, MemOp::Cmp)],
        "it does not wait for the read that waits for it"
    );
    let came = answer(&mut bench, HOST, MemOp::BiRspI, tag);
    assert_eq!(ops(&came), [(OTHER, MemOp::CmpE), (OTHER, MemOp::MemData)]);
    assert_eq!(came[1].2, Some(9));
    // The other way round, to share it.
    let snoop = read(&mut bench, HOST, BASE, SHARED);
    assert_eq!(ops(&snoop), [(OTHER, MemOp::BiSnpData)]);
    assert_eq!(snoop[0].1.addr, Hpa(OTHER_BASE));
    let came = answer(&mut bench, OTHER, MemOp::BiRspS, snoop[0].1.tag);
    assert_eq!(ops(&came), [(HOST, MemOp::CmpS), (HOST, MemOp::MemData)]);
    assert_eq!(bench.gfd.holders(Dpa(0)).len(), 2);
    let counts = bench.gfd.coherence().unwrap();
    assert_eq!((counts.filter.snoops, counts.waiting, counts.stale_writes), (2, 0, 0));
}

/// Another host's read and the owner's eviction come in one burst: the snoop for the read leaves before the answer to
/// the eviction, so that no host is snooped for a line after the device has confirmed that it gave it up.
#[test]
fn a_snoop_is_not_overtaken_by_what_came_after_its_cause() {
    let mut bench = bench(16);
    read(&mut bench, HOST, BASE, EXCLUSIVE);
    let wants =
        MemMessage { head: ask(MemOp::MemRd, EXCLUSIVE, OTHER_BASE, 1), data: None, enables: None };
    bench.host.outbox().send_mem(Some(Pth::new(OTHER, GFD)), &wants).unwrap();
    let came = send(&mut bench, HOST, ask(MemOp::MemClnEvct, GIVES_UP, BASE, 2), 0);
    assert_eq!(ops(&came), [(HOST, MemOp::BiSnpInv), (HOST, MemOp::Cmp)]);
    let came = answer(&mut bench, HOST, MemOp::BiRspI, came[0].1.tag);
    assert_eq!(ops(&came), [(OTHER, MemOp::CmpE), (OTHER, MemOp::MemData)]);
}

/// Hosts without a cache and UIO read owners' values, and take lines from them to write.
#[test]
fn plain_accesses_and_uio_are_coherent_too() {
    let mut bench = bench(16);
    read(&mut bench, HOST, BASE, EXCLUSIVE);
    let plain = MemHead { addr: Hpa(OTHER_BASE), ..MemHead::new(MemOp::MemRd, 5) };
    let snoop = send(&mut bench, OTHER, plain, 0);
    assert_eq!(ops(&snoop), [(HOST, MemOp::BiSnpCur)]);
    let keeps = Wanted { meta_value: 0b10, snoop: 0 };
    send(&mut bench, HOST, ask(MemOp::MemWr, keeps, BASE, 2), 7);
    let came = answer(&mut bench, HOST, MemOp::BiRspE, snoop[0].1.tag);
    assert_eq!(ops(&came), [(OTHER, MemOp::MemData)], "without metadata, without Cmp");
    assert_eq!((came[0].2, came[0].1.meta), (Some(7), MetaField::NoOp));
    let uio = |kind| plain_tlp(kind, OTHER_BASE);
    let to = Pth { dsar: true, ..Pth::new(OTHER, GFD) };
    for (kind, how) in [(Kind::UioRead, MemOp::BiSnpCur), (Kind::UioWrite, MemOp::BiSnpInv)] {
        read(&mut bench, HOST, BASE, EXCLUSIVE);
        let came = bench.ask_as(to, &uio(kind));
        assert_eq!(came.len(), 0, "{kind:?} waits");
        let snoop = std::mem::take(&mut bench.lines);
        assert_eq!(snoop[0].1.op, how);
        // A read of the value alone leaves the line with its owner.
        let left = if kind == Kind::UioRead { MemOp::BiRspE } else { MemOp::BiRspI };
        let message = message_of(left, snoop[0].1.tag);
        bench.host.outbox().send_mem(Some(Pth::new(HOST, GFD)), &message).unwrap();
        bench.step();
        let came = std::mem::take(&mut bench.came);
        assert_eq!(came[0].tlp().status(), Some(Status::Success), "{kind:?}");
    }
    assert_eq!(bench.memory(0, 8), [0x5A; 8]);
    assert_eq!(bench.gfd.holders(Dpa(0)), []);
    assert_eq!(bench.gfd.coherence().unwrap().waiting, 0);
}

fn plain_tlp(kind: Kind, at: u64) -> TlpRepr<'static> {
    let tlp = plain(kind, at, 2);
    if kind == Kind::UioWrite { TlpRepr { payload: &[0x5A; 8], ..tlp } } else { tlp }
}

fn message_of(op: MemOp, tag: u16) -> weft_parsers::cxl_mem::MemMessage<'static> {
    let head = MemHead::new(op, tag);
    weft_parsers::cxl_mem::MemMessage { head, data: None, enables: None }
}

/// Half of a snoop's time limit passes; then the device is polled.
fn half_passes(bench: &mut Bench) {
    bench.now += Span::from_ps(LIMIT.as_ps() / 2);
    bench.step();
}

/// An owner never answers: its line is poisoned, waiting requests go on, the FM is notified, and its later write-back
/// is refused with Poison = 1.
#[test]
fn an_owner_that_never_answers_loses_the_line() {
    let mut bench = bench(16);
    read(&mut bench, HOST, BASE, EXCLUSIVE);
    let snoop = read(&mut bench, OTHER, OTHER_BASE, EXCLUSIVE);
    assert_eq!(ops(&snoop), [(HOST, MemOp::BiSnpInv)]);
    bench.told();
    half_passes(&mut bench);
    assert!(bench.lines.is_empty());
    half_passes(&mut bench);
    let came = std::mem::take(&mut bench.lines);
    assert_eq!(came.iter().map(|it| it.1.op).collect::<Vec<_>>(), [MemOp::CmpE, MemOp::MemData]);
    assert!(came[1].1.poison && came[1].0.dpid == OTHER);
    assert_eq!(bench.told().len(), 1, "a failure, by the silent host");
    let silent = CoherenceNews::Silent { who: HOST, dpa: Dpa(0) };
    assert_eq!(
        (bench.gfd.next_coherence_news(), bench.gfd.next_coherence_news()),
        (Some(silent), None)
    );
    let late = send(&mut bench, HOST, ask(MemOp::MemWr, GIVES_UP, BASE, 2), 9);
    assert_eq!((ops(&late), late[0].1.poison), (vec![(HOST, MemOp::Cmp)], true));
    assert_eq!(answer(&mut bench, HOST, MemOp::BiRspE, snoop[0].1.tag), []);
    assert_eq!(answer(&mut bench, HOST, MemOp::BiRspI, snoop[0].1.tag), [], "twice");
    assert!(bench.gfd.gfd().memory().is_poisoned(0, 64), "the late write ends nothing");
    let counts = bench.gfd.coherence().unwrap();
    assert_eq!((counts.stale_writes, counts.filter.silent, counts.filter.lost), (1, 1, 1));
    assert_eq!((counts.late, bench.gfd.counts().0.unexpected), (1, 1));
    let answers = CoherenceNews::Answers { who: HOST };
    assert_eq!(bench.gfd.next_coherence_news(), Some(answers));
    // Its new owner writes it, and it is good again.
    send(&mut bench, OTHER, ask(MemOp::MemWr, GIVES_UP, OTHER_BASE, 2), 4);
    assert_eq!(read(&mut bench, HOST, BASE, SHARED)[1].2, Some(4));
    // An answer that keeps too much does not count.
    let snoop = read(&mut bench, OTHER, OTHER_BASE, EXCLUSIVE);
    assert_eq!(answer(&mut bench, HOST, MemOp::BiRspE, snoop[0].1.tag), []);
    half_passes(&mut bench);
    assert!(bench.lines.is_empty());
    half_passes(&mut bench);
    let came = std::mem::take(&mut bench.lines);
    assert!(came.iter().any(|(pth, head, _)| pth.dpid == OTHER && head.poison), "{came:?}");
    assert_eq!(bench.gfd.coherence().unwrap().filter.wrong, 1);
}

/// Each response to a host with a cache names its lease: one number for all lines, with a term below half of a snoop's
/// time limit. While a snoop is overdue there is none, and after the device has given up on the host it has another
/// number.
#[test]
fn responses_name_the_lease_of_their_host() {
    let mut bench = bench(16);
    let lease = |came: &[(Pid, MemHead, Option<u8>)], to: Pid| -> Lease {
        let of = came.iter().filter(|(who, ..)| *who == to).map(|(_, head, _)| head.lease);
        let all: Vec<Lease> = of.collect();
        assert!(!all.is_empty() && all.iter().all(|one| *one == all[0]), "{all:?}");
        all[0]
    };
    let first = lease(&read(&mut bench, HOST, BASE, EXCLUSIVE), HOST);
    assert!(first.number != 0 && first.term == 24, "{first:?}: 2.4 of 2.5 ms");
    assert_eq!(lease(&read(&mut bench, HOST, BASE + 0x80, SHARED), HOST), first);
    let evict = ask(MemOp::MemClnEvct, GIVES_UP, BASE + 0x80, 3);
    assert_eq!(lease(&send(&mut bench, HOST, evict, 0), HOST), first);
    let conflict = MemHead { addr: Hpa(BASE), ..MemHead::new(MemOp::BiConflict, 77) };
    assert_eq!(lease(&send(&mut bench, HOST, conflict, 0), HOST), first);
    let others = lease(&read(&mut bench, OTHER, OTHER_BASE + 0x80, SHARED), OTHER);
    assert!(others.number != first.number && others.number != 0);
    // Without metadata the host keeps no copy, and gets no lease.
    let plain = MemHead { addr: Hpa(OTHER_BASE + 0x40), ..MemHead::new(MemOp::MemRd, 5) };
    assert_eq!(lease(&send(&mut bench, OTHER, plain, 0), OTHER), Lease::NONE);
    let snoop = read(&mut bench, OTHER, OTHER_BASE, SHARED);
    assert_eq!(ops(&snoop), [(HOST, MemOp::BiSnpData)]);
    assert_eq!(lease(&read(&mut bench, HOST, BASE + 0x100, SHARED), HOST), first, "not overdue");
    half_passes(&mut bench);
    assert_eq!(lease(&read(&mut bench, HOST, BASE + 0x140, SHARED), HOST), Lease::NONE);
    // Overdue, but answered in time.
    answer(&mut bench, HOST, MemOp::BiRspS, snoop[0].1.tag);
    assert_eq!(lease(&read(&mut bench, HOST, BASE + 0x180, SHARED), HOST), first);
    let snoop = read(&mut bench, OTHER, OTHER_BASE, EXCLUSIVE);
    assert_eq!(ops(&snoop), [(HOST, MemOp::BiSnpInv)]);
    half_passes(&mut bench);
    half_passes(&mut bench);
    let last = lease(&read(&mut bench, HOST, BASE + 0x1C0, SHARED), HOST);
    assert!(last.number != first.number && last.number != 0, "{last:?}");
}

/// A device that was stopped reads its clock late, and gives hosts the other half of their time from then on.
#[test]
fn a_device_that_was_away_waits_for_what_has_come_meanwhile() {
    let mut bench = bench(16);
    read(&mut bench, HOST, BASE, EXCLUSIVE);
    let snoop = read(&mut bench, OTHER, OTHER_BASE, EXCLUSIVE);
    bench.now += Span::from_ps(10 * LIMIT.as_ps());
    let came = answer(&mut bench, HOST, MemOp::BiRspI, snoop[0].1.tag);
    assert_eq!(ops(&came), [(OTHER, MemOp::CmpE), (OTHER, MemOp::MemData)]);
    assert!(!came[1].1.poison);
    assert_eq!(bench.gfd.coherence().unwrap().filter.silent, 0);
}

/// A reset drops waiting requests, and hosts keep their copies.
#[test]
fn a_reset_forgets_no_holder() {
    let mut bench = bench(16);
    read(&mut bench, HOST, BASE, EXCLUSIVE);
    let snoop = read(&mut bench, OTHER, OTHER_BASE, EXCLUSIVE);
    let initial = bench.gfd.core.device.settings();
    bench.gfd.core.reset(&initial);
    assert_eq!(bench.gfd.holders(Dpa(0)), [(HOST, Hold::Owned)]);
    assert_eq!(bench.gfd.coherence().unwrap().waiting, 0);
    // An answer to a snoop from before the reset does not count.
    answer(&mut bench, HOST, MemOp::BiRspI, snoop[0].1.tag);
    assert_eq!(bench.gfd.holders(Dpa(0)), [(HOST, Hold::Owned)]);
}

/// A conflict is acknowledged behind earlier grants; a full filter evicts lines; a host without a decoder is not
/// snooped.
#[test]
fn conflicts_evictions_and_lost_decoders() {
    let mut bench = bench(1);
    read(&mut bench, HOST, BASE, SHARED);
    let conflict = MemHead { addr: Hpa(BASE), ..MemHead::new(MemOp::BiConflict, 77) };
    let came = send(&mut bench, HOST, conflict, 0);
    assert_eq!((ops(&came), came[0].1.tag), (vec![(HOST, MemOp::BiConflictAck)], 77));
    let snoop = read(&mut bench, HOST, BASE + 0x40, SHARED);
    assert_eq!(ops(&snoop), [(HOST, MemOp::BiSnpInv)]);
    let came = answer(&mut bench, HOST, MemOp::BiRspI, snoop[0].1.tag);
    assert_eq!(ops(&came), [(HOST, MemOp::CmpE), (HOST, MemOp::MemData)]);
    let came = send(&mut bench, HOST, ask(MemOp::MemClnEvct, GIVES_UP, BASE + 0x40, 3), 0);
    assert_eq!(ops(&came), [(HOST, MemOp::Cmp)]);
    assert_eq!(bench.gfd.coherence().unwrap().lines, 0);
    read(&mut bench, HOST, BASE, EXCLUSIVE);
    bench.gfd.gfd_mut().set_decoders(HOST, 0, &[None]).unwrap();
    assert_eq!(read(&mut bench, OTHER, OTHER_BASE, SHARED), [], "its lease may not be over");
    half_passes(&mut bench);
    let came = std::mem::take(&mut bench.lines);
    let ops: Vec<_> = came.iter().map(|(pth, head, _)| (pth.dpid, head.op)).collect();
    assert_eq!(ops, [(OTHER, MemOp::CmpE), (OTHER, MemOp::MemData)]);
    assert!(came[1].1.poison, "nobody knows what it has changed");
}

/// Random messages from random senders: each is answered at most once or counted, no request waits for ever, and memory
/// without a group stays as it is.
#[test]
fn any_messages_of_back_invalidate_leave_nothing_waiting() {
    any_messages(100_000);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_a_million_messages_of_back_invalidate() {
    any_messages(1_000_000);
}

fn any_messages(count: u32) {
    let (mut bench, mut rng) = (bench(8), Rng::new(0xB1B1));
    let (mut snoops, mut tags) = (0, Vec::new());
    for _ in 0..count {
        let pick = |rng: &mut Rng, most: u64| usize::try_from(rng.below(most)).unwrap();
        let who =
            [(HOST, BASE), (OTHER, OTHER_BASE), (Pid::NONE, BASE), (GFD, 0)][pick(&mut rng, 4)];
        let op = MemOp::ALL[pick(&mut rng, MemOp::ALL.len() as u64)];
        let tag = if rng.chance(1, 2) { tags.pop() } else { None };
        let tag = tag.unwrap_or_else(|| u16::try_from(rng.below(1 << 16)).unwrap());
        let how = Wanted {
            meta_value: u8::try_from(rng.below(4)).unwrap(),
            snoop: u8::try_from(rng.below(8)).unwrap(),
        };
        let mut head = ask(op, how, who.1 + rng.below(16) * 64, tag);
        head.poison = rng.chance(1, 8);
        if rng.chance(1, 4) {
            head.meta = MetaField::NoOp;
        }
        for (_, head, _) in send(&mut bench, who.0, head, 1) {
            if matches!(head.op, MemOp::BiSnpCur | MemOp::BiSnpData | MemOp::BiSnpInv) {
                snoops += 1;
                tags.push(head.tag);
            }
        }
        tags.truncate(16);
        bench.now += Span::from_us(rng.below(200));
        while bench.gfd.pop_fm().is_some() {}
    }
    // Each waiting request may have to wait for another host.
    for _ in 0..10_000 {
        bench.now += LIMIT;
        bench.step();
        bench.lines.clear();
        bench.came.clear();
        if bench.gfd.coherence().unwrap().waiting == 0 {
            break;
        }
    }
    let counts = bench.gfd.coherence().unwrap();
    assert!(counts.filter.silent > 0 && counts.stale_writes > 0 && snoops > 500, "{counts:?}");
    assert_eq!(counts.waiting, 0, "{counts:?}");
    assert!(counts.lines <= 8);
    assert!(bench.memory(16 * MIB, 1 << 20).iter().all(|&byte| byte == 0));
}
