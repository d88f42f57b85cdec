//! Copies under faults: delays, any order, splits, refusals, loss.
//! A seed drives all; data is compared with a model, and nothing is left in use.
//!
//! Units: bytes; nanoseconds.
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §3.6, §5.5.

use weft_base::rng::Rng;
use weft_dataplane::time::Span;

use super::super::testing::*;
use super::super::*;

fn index(addr: u64) -> usize {
    usize::try_from(addr - HOST).unwrap()
}

/// Copies whose ranges are apart, on one engine at once, from both hosts: the data is that of a model.
#[test]
fn data_is_equal_after_transfers_at_once() {
    for seed in 0..12 {
        let faults = Faults { delay_ns: 3_000, full: 5, ..Faults::default() };
        let mut fabric = Fabric::new(seed, faults);
        let (mut one, mut two) = (engine(0, |o| o.streams_max = 10), engine(1, |_| ()));
        connected(&fabric, [&mut one, &mut two]);
        let mut rng = Rng::new(seed);
        let mut want = [fabric.rams[0].host.clone(), fabric.rams[1].host.clone()];
        let mut requests = Vec::new();
        // 16 strips of 64 KiB in each memory; each transfer copies within strip n of both.
        for strip in 0..16u64 {
            let base = HOST + strip * 0x1_0000;
            let op = if rng.chance(1, 2) { Op::Read } else { Op::Write };
            let mut ops = Vec::new();
            let mut at = 0; // operations are apart from each other
            while at < 0xF000 && ops.len() < 5 {
                let len = 1 + rng.below(0x6000.min(0xFFFF - at));
                let (local, remote) = (base + at, base + (at + rng.below(64)).min(0x1_0000 - len));
                ops.push(TransferOpDesc { local, remote, len });
                at += len + 64;
            }
            for op_desc in &ops {
                let len = usize::try_from(op_desc.len).unwrap();
                let (l, r) = (index(op_desc.local), index(op_desc.remote));
                let (from, into, source, place) = match op {
                    Op::Read => (1, 0, r, l),
                    Op::Write => (0, 1, l, r),
                };
                let bytes = want[from][source..source + len].to_vec();
                want[into][place..place + len].copy_from_slice(&bytes);
            }
            let begun = one.transfer_async(fabric.now, PEER, op, &ops, None);
            requests.push(begun.unwrap_or_else(|error| panic!("seed {seed}: {error} {ops:?}")));
        }
        for _ in 0..20_000 {
            fabric.step([&mut one, &mut two]);
            assert!(one.usage().streams <= 8, "2 transfers of 4 streams fit into 10");
        }
        for request in requests {
            assert_eq!(one.status(request), Ok(Status::Completed), "seed {seed}");
        }
        assert!(want[0] == fabric.rams[0].host && want[1] == fabric.rams[1].host, "seed {seed}");
        let idle = Usage { registrations: 2, peers: 1, imports: 2, ..Usage::default() };
        assert_eq!((one.usage(), one.unexpected()), (idle, 0), "seed {seed}");
    }
}

/// With all faults, both ways: each transfer ends, completed ones have copied the right bytes, and nothing is left in
/// use.
#[test]
fn every_transfer_ends_and_nothing_is_left() {
    let (mut completed, mut failed, mut timeouts) = (0, 0, 0);
    for seed in 0..30 {
        let faults = Faults {
            delay_ns: 5_000,
            full: 4,
            unsupported: 60,
            aborted: 60,
            lost: 60,
            poisoned: 80,
            doubled: 60,
        };
        let mut fabric = Fabric::new(seed, faults);
        let set = |options: &mut Options| options.completion_timeout = Span::from_ns(40_000);
        let (mut one, mut two) = (engine(0, set), engine(1, set));
        connected(&fabric, [&mut one, &mut two]);
        let mut rng = Rng::new(seed);
        let mut open = Vec::new();
        for step in 0..6_000 {
            fabric.step([&mut one, &mut two]);
            if step < 4_000 && rng.chance(1, 20) {
                // Host 0 writes from its host to the other's device memory; host 1 reads the same way.
                let len = 1 + rng.below(40_000);
                let (host, device) =
                    (HOST + rng.below(SIZE - len), DEVICE + rng.below(SIZE / 2 - len));
                let timeout = Some(Span::from_ns(1_000 + rng.below(90_000)));
                let ops = [TransferOpDesc { local: host, remote: device, len }];
                let engine = if rng.chance(1, 2) { &mut one } else { &mut two };
                let op = if rng.chance(1, 2) { Op::Read } else { Op::Write };
                let begun = engine.transfer_async(fabric.now, PEER, op, &ops, timeout);
                let is_one = std::ptr::eq(engine, &raw const one);
                open.push((is_one, begun.unwrap()));
            }
        }
        for (is_one, request) in open {
            let engine = if is_one { &mut one } else { &mut two };
            match engine.status(request).unwrap() {
                Status::Completed => completed += 1,
                Status::Failed(_) => failed += 1,
                Status::Timeout => timeouts += 1,
                Status::Waiting => panic!("seed {seed}: {request:?} never ended"),
            }
        }
        let idle = Usage { registrations: 2, peers: 1, imports: 2, ..Usage::default() };
        assert_eq!((one.usage(), two.usage()), (idle, idle), "seed {seed}");
    }
    assert!(completed > 100 && failed > 100 && timeouts > 100, "{completed} {failed} {timeouts}");
}

/// A single lane of one request at a time and many lanes bring the same data: chunks and order do not matter.
#[test]
fn data_does_not_depend_on_streams_or_request_length() {
    for (streams, depth, longest) in [(1, 1, 4_096), (1, 1, 64), (4, 16, 256), (32, 2, 4_096)] {
        let mut fabric = Fabric::new(9, Faults { delay_ns: 900, ..Faults::default() });
        let set = |options: &mut Options| {
            options.streams_per_transfer = streams;
            options.stream_depth = depth;
            options.request_len_max = longest;
        };
        let (mut one, mut two) = (engine(0, set), engine(1, set));
        connected(&fabric, [&mut one, &mut two]);
        let ops = [TransferOpDesc { local: HOST + 3, remote: HOST + 0x1_0FF5, len: 30_011 }];
        let second = Some(Span::from_ms(1_000));
        let now = fabric.now;
        let done = one.transfer_sync(now, PEER, Op::Read, &ops, second, &mut |one| {
            fabric.step([one, &mut two]);
            Ok(fabric.now)
        });
        assert_eq!(done, Ok(()));
        let (a, b) = (&fabric.rams[0].host, &fabric.rams[1].host);
        assert!(a[3..3 + 30_011] == b[0x1_0FF5..0x1_0FF5 + 30_011], "{streams} {depth} {longest}");
        let used: std::collections::BTreeSet<_> =
            fabric.wires[0].log.iter().map(|request| request.stream).collect();
        assert_eq!(used.len(), streams.min(fabric.wires[0].log.len()), "dealt over all streams");
    }
}

/// Both ends by requests: bytes read at one end are written at the other, even if requests are split, late, refused or
/// lost, and nothing is left in use.
#[test]
fn pieces_whose_both_ends_are_reached_by_requests_are_copied() {
    let (mut completed, mut failed) = (0, 0);
    for seed in 0..30 {
        let odd = seed % 2 == 1;
        let one_in = |count: u64| if odd { count } else { 0 };
        let faults = Faults {
            delay_ns: 3_000,
            full: 5,
            unsupported: one_in(90),
            aborted: one_in(90),
            lost: one_in(90),
            poisoned: one_in(90),
            doubled: one_in(20),
        };
        let mut fabric = Fabric::new(seed, faults);
        let set = |options: &mut Options| options.completion_timeout = Span::from_ns(40_000);
        let (mut one, mut two) = (engine(0, set), engine(1, set));
        let own = MemDesc { addr: FABRIC[0], len: SIZE };
        one.register(own, MemKind::Fabric, &fabric.rams[0]).unwrap();
        connected(&fabric, [&mut one, &mut two]);
        let mut rng = Rng::new(seed);
        for op in [Op::Read, Op::Write] {
            let len = 1 + rng.below(30_000);
            let (at, to) = (rng.below(SIZE / 2 - len), rng.below(SIZE / 2 - len));
            let ops = [TransferOpDesc { local: FABRIC[0] + at, remote: DEVICE + to, len }];
            let range =
                |from: u64| usize::try_from(from).unwrap()..usize::try_from(from + len).unwrap();
            let source = match op {
                Op::Read => fabric.rams[1].device[range(to)].to_vec(),
                Op::Write => fabric.rams[0].device[range(at)].to_vec(),
            };
            let req = one.transfer_async(fabric.now, PEER, op, &ops, None).unwrap();
            for _ in 0..3_000 {
                fabric.step([&mut one, &mut two]);
            }
            let status = one.status(req).unwrap();
            let into = match op {
                Op::Read => &fabric.rams[0].device[range(at)],
                Op::Write => &fabric.rams[1].device[range(to)],
            };
            match status {
                Status::Completed => assert!(into == source, "seed {seed} {op:?}"),
                Status::Failed(_) if odd => {}
                other => panic!("seed {seed} {op:?}: {other:?}"),
            }
            let count = if status == Status::Completed { &mut completed } else { &mut failed };
            *count += 1;
        }
        let idle = Usage { registrations: 3, peers: 1, imports: 2, ..Usage::default() };
        assert_eq!(one.usage(), idle, "seed {seed}");
    }
    assert!(completed >= 30 && failed > 5, "{completed} {failed}");
}
