//! Checks of the engine's promises; their comments number them 1, 2 and 4 to 9. Two engines and the fabric between
//! them.
//!
//! Units: bytes; nanoseconds.
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers".

use std::sync::Mutex;

use weft_dataplane::time::Span;
use weft_parsers::fabric::Hpa;

use super::super::testing::*;
use super::super::*;

fn pair(faults: Faults) -> (Fabric, Engine, Engine) {
    let fabric = Fabric::new(5, faults);
    let (mut one, mut two) = (engine(0, |_| ()), engine(1, |_| ()));
    connected(&fabric, [&mut one, &mut two]);
    (fabric, one, two)
}

/// `len` bytes from the start of host memory to the start of the peer's.
fn ops(len: u64) -> [TransferOpDesc; 1] {
    [TransferOpDesc { local: HOST, remote: HOST, len }]
}

fn begin(fabric: &Fabric, one: &mut Engine, op: Op, len: u64) -> TransferReq {
    one.transfer_async(fabric.now, PEER, op, &ops(len), None).unwrap()
}

fn steps(fabric: &mut Fabric, one: &mut Engine, two: &mut Engine, count: usize) {
    for _ in 0..count {
        fabric.step([&mut *one, &mut *two]);
    }
}

/// Segments of devices follow those of hosts: that of host 1's device is the fourth.
const PEER_DEVICE: Hpa = Hpa((1 << 40) + (3 << 36));

const IDLE: Usage =
    Usage { registrations: 2, peers: 1, imports: 2, transfers: 0, streams: 0, tags: 0 };

/// Check 1: the mode and the buffer pool exclude each other; other values are checked too.
#[test]
fn check_1_options_that_conflict_are_refused() {
    let on = ("enable_use_fabric_mem", "1");
    let conflict = Some(Error::OptionConflict);
    assert_eq!(Options::parse([on, ("buffer_pool", "4:8")]).err(), conflict);
    assert_eq!(Options::parse([("buffer_pool", "4:8"), on]).err(), conflict);
    assert!(Options::parse([on, ("buffer_pool", "0:0")]).unwrap().enabled, "0:0 is no pool");
    let pool = Options::parse([("enable_use_fabric_mem", "0"), ("buffer_pool", "4:8")]);
    assert!(!pool.unwrap().enabled);
    assert!(!Options::parse([]).unwrap().enabled, "off by default");
    assert_eq!(Options::default().streams_per_transfer, 4);
    for (key, value) in [
        ("enable_use_fabric_mem", "yes"),
        ("buffer_pool", "4"),
        ("buffer_pool", "4:x"),
        ("request_len_max", "8192"),
        ("request_len_max", "100"),
        ("request_len_max", "32"),
        ("streams_per_transfer", "0"),
        ("streams_per_transfer", "33"),
        ("stream_depth", "-1"),
        ("transfer_timeout_us", "0"),
        ("completion_timeout_us", "99999999999999999999"),
        ("completion_timeout_us", "9999999999999999999"),
        ("bogus", "1"),
    ] {
        let Err(Error::Option { key: named, .. }) = Options::parse([on, (key, value)]) else {
            panic!("{key} = {value} was taken");
        };
        assert_eq!(named, key);
    }
}

/// "Off by default": every call returns that, and so it does after finalize.
#[test]
fn switched_off_every_call_says_so() {
    let mut fabric = Fabric::new(1, Faults::default());
    let mut off = engine(0, |options| options.enabled = false);
    let mut finalized = engine(0, |_| ());
    assert_eq!(finalized.finalize(), Ok(vec![]));
    let req = TransferReq(1);
    let mem = MemDesc { addr: HOST, len: 64 };
    for (engine, want) in [(&mut off, Error::Disabled), (&mut finalized, Error::Finalized)] {
        let now = fabric.now;
        let ram = &mut fabric.rams[0];
        let error = || Some(want.clone());
        assert_eq!(engine.register(mem, MemKind::Host, ram).err(), error());
        assert_eq!(engine.deregister(Handle(1)).err(), error());
        assert_eq!(engine.shares().err(), error());
        assert_eq!(engine.connect(PEER).err(), error());
        assert_eq!(engine.receive(PEER, &Message::Goodbye).err(), error());
        assert_eq!(engine.disconnect(PEER).err(), error());
        assert_eq!(engine.peer_lost(PEER).err(), error());
        let begun = engine.transfer_async(now, PEER, Op::Read, &ops(1), None);
        assert_eq!(begun.err(), error());
        let mut drive = |_: &mut Engine| Ok(now);
        let done = engine.transfer_sync(now, PEER, Op::Read, &ops(1), None, &mut drive);
        assert_eq!(done.err(), error());
        assert_eq!(engine.status(req).err(), error());
        assert_eq!(engine.poll(now, &mut fabric.wires[0], ram).err(), error());
        assert_eq!(engine.finalize().err(), error());
        assert_eq!(engine.serve(pid(1), 0, 1), None);
    }
}

/// Check 2: memory is registered as its real kind; device memory needs a place on the fabric.
#[test]
fn check_2_memory_is_of_the_kind_that_is_named() {
    let ram = &Fabric::new(1, Faults::default()).rams[0];
    let mut one = engine(0, |_| ());
    #[rustfmt::skip] // columns: name, address, len, kind, error
    let cases = [
        ("host as device", HOST,              64,   MemKind::Device, Some("kind")),
        ("device as host", DEVICE,            64,   MemKind::Host,   Some("kind")),
        ("host as fabric", HOST,              64,   MemKind::Fabric, Some("kind")),
        ("fabric",         FABRIC[0],         64,   MemKind::Fabric, None),
        ("no memory",      0,                 64,   MemKind::Host,   Some("kind")),
        ("half memory",    HOST + SIZE - 32,  64,   MemKind::Host,   Some("kind")),
        ("no place",       DEVICE + SIZE / 2, 64,   MemKind::Device, Some("place")),
        ("device",         DEVICE + 64,       64,   MemKind::Device, None),
        ("host",           HOST,              SIZE, MemKind::Host,   None),
    ];
    for (name, addr, len, kind, want) in cases {
        let got = match one.register(MemDesc { addr, len }, kind, ram) {
            Ok(_) => None,
            Err(Error::Kind { .. }) => Some("kind"),
            Err(Error::NoPlace { .. }) => Some("place"),
            Err(other) => panic!("{name}: {other}"),
        };
        assert_eq!(got, want, "{name}");
    }
    let places: Vec<Place> = one.shares().unwrap().iter().map(|share| share.place).collect();
    assert_eq!((places[0].pid, places[0].offset), (pid(0), 0x10_0000), "host: in the window");
    assert_eq!(places[1].offset, 64, "device: its own place");
}

/// Check 4: ranges lie within registrations; neither empty, nor overflowing, nor overlapping.
#[test]
fn check_4_ranges_lie_within_registrations() {
    let (fabric, mut one, _two) = pair(Faults::default());
    let begin = |one: &mut Engine, ops: &[TransferOpDesc], op| {
        one.transfer_async(fabric.now, PEER, op, ops, None).err()
    };
    let desc = |local, remote, len| TransferOpDesc { local, remote, len };
    #[rustfmt::skip] // columns: name, local, remote, len, error
    let cases = [
        ("zero length",       HOST,            HOST,            0,        Some(Error::Extent { addr: HOST, len: 0 })),
        ("local overflow",    u64::MAX,        HOST,            2,        Some(Error::Extent { addr: u64::MAX, len: 2 })),
        ("remote overflow",   HOST,            u64::MAX,        2,        Some(Error::Extent { addr: u64::MAX, len: 2 })),
        ("local before",      HOST - 1,        HOST,            2,        Some(Error::Local { index: 0, addr: HOST - 1 })),
        ("local behind",      HOST + SIZE - 1, HOST,            2,        Some(Error::Local { index: 0, addr: HOST + SIZE - 1 })),
        ("local nowhere",     5,               HOST,            2,        Some(Error::Local { index: 0, addr: 5 })),
        ("remote before",     HOST,            HOST - 1,        2,        Some(Error::Remote { index: 0, addr: HOST - 1 })),
        ("remote behind",     HOST,            HOST + SIZE - 1, 2,        Some(Error::Remote { index: 0, addr: HOST + SIZE - 1 })),
        ("not shared",        HOST,            DEVICE + SIZE/2, 2,        Some(Error::Remote { index: 0, addr: DEVICE + SIZE/2 })),
        ("first and last",    HOST,            HOST + SIZE - 1, 1,        None),
        ("all of it",         HOST,            HOST,            SIZE,     None),
    ];
    for (name, local, remote, len, want) in cases {
        assert_eq!(begin(&mut one, &[desc(local, remote, len)], Op::Read), want, "{name}");
    }
    assert_eq!(begin(&mut one, &[], Op::Read), Some(Error::Empty));
    let second = [desc(HOST, HOST, 8), desc(HOST + 8, 5, 8)];
    assert_eq!(begin(&mut one, &second, Op::Read), Some(Error::Remote { index: 1, addr: 5 }));
    // Two operations that overlap where they write.
    let common = [desc(HOST, HOST + 64, 8), desc(HOST + 7, HOST, 8)];
    let apart = Some(Error::Destinations { first: 0, second: 1 });
    assert_eq!(begin(&mut one, &common, Op::Read), apart);
    assert_eq!(begin(&mut one, &common, Op::Write), None, "a common source is no harm");
    let common = common.map(|d| desc(d.remote, d.local, d.len));
    assert_eq!(begin(&mut one, &common, Op::Write), apart);
    assert_eq!(one.usage().transfers, 3, "what was refused left nothing");
    // Registrations themselves.
    let ram = &fabric.rams[0];
    let mut other = engine(0, |_| ());
    let mut add = |addr, len| other.register(MemDesc { addr, len }, MemKind::Host, ram).err();
    assert_eq!(add(HOST, 0), Some(Error::Extent { addr: HOST, len: 0 }));
    assert_eq!(add(u64::MAX, 2), Some(Error::Extent { addr: u64::MAX, len: 2 }));
    assert_eq!(add(HOST + 16, 16), None);
    for (addr, len) in [(HOST + 16, 16), (HOST, 17), (HOST + 31, 1), (HOST, 64), (HOST + 20, 4)] {
        assert!(matches!(add(addr, len), Some(Error::Overlap { .. })), "{addr:#x} {len}");
    }
    assert_eq!((add(HOST, 16), add(HOST + 32, 16)), (None, None), "neighbours do not overlap");
}

/// Check 4, from the other side: invalid shares are not mapped at all.
#[test]
fn check_4_shares_of_a_peer_are_checked() {
    let mut one = engine(0, |options| options.shares_max = 2);
    let share = |addr, len, offset, pid| Share {
        mem: MemDesc { addr, len },
        kind: MemKind::Host,
        place: Place { pid, offset },
    };
    let good = share(HOST, 64, 0, pid(1));
    let unknown = weft_parsers::fabric::Pid::from_low_bits(0x999);
    #[rustfmt::skip] // columns: name, shares
    let cases = [
        ("empty",            vec![share(HOST, 0, 0, pid(1))]),
        ("overflow",         vec![share(u64::MAX, 2, 0, pid(1))]),
        ("overlap",          vec![good, share(HOST + 63, 1, 64, pid(1))]),
        ("behind segment",   vec![share(HOST, 2, (1 << 36) - 1, pid(1))]),
        ("offset overflow",  vec![share(HOST, 2, u64::MAX, pid(1))]),
        ("no segment",       vec![share(HOST, 2, 0, unknown)]),
        ("too many",         vec![good, share(0, 1, 0, pid(1)), share(1, 1, 0, pid(1))]),
    ];
    for (name, shares) in cases {
        let error = one.receive(PEER, &Message::Hello { pid: pid(1), shares }).unwrap_err();
        assert!(matches!(error, Error::BadShare { .. } | Error::NoSegment(_)), "{name}: {error}");
        assert_eq!(one.usage(), Usage::default(), "{name}");
    }
    let hello = Message::Hello { pid: pid(1), shares: vec![good] };
    assert!(one.receive(PEER, &hello).unwrap().is_some());
    assert_eq!(one.receive(PEER, &hello), Err(Error::Connected(PEER)));
    assert_eq!(one.connect(PEER), Err(Error::Connected(PEER)));
    let stranger = one.receive(PeerId(9), &Message::Welcome { pid: pid(1), shares: vec![] });
    assert_eq!(stranger, Err(Error::NotConnected(PeerId(9))));
}

/// Check 5: streams go back after success, failure, timeout and disconnection.
#[test]
fn check_5_streams_go_back() {
    type End = fn(&mut Fabric, &mut Engine);
    let cases: [(&str, Faults, End, Status, usize); 6] = [
        ("success", Faults::default(), |_, _| (), Status::Completed, 1),
        (
            "unsupported",
            Faults { unsupported: 1, ..Faults::default() },
            |_, _| (),
            Status::Failed(Reason::Unsupported(PEER_DEVICE)),
            1,
        ),
        (
            "aborted",
            Faults { aborted: 1, ..Faults::default() },
            |_, _| (),
            Status::Failed(Reason::Aborted(PEER_DEVICE)),
            1,
        ),
        ("timeout", Faults::default(), |fabric, _| fabric.wires[0].held = true, Status::Timeout, 1),
        (
            "disconnection",
            Faults::default(),
            |fabric, one| {
                fabric.wires[0].held = true;
                one.disconnect(PEER).unwrap();
            },
            Status::Failed(Reason::Disconnected),
            0,
        ),
        (
            "memory",
            Faults::default(),
            |fabric, _| fabric.rams[0].broken = Some(HOST + 5_000),
            Status::Failed(Reason::Memory(HOST + 4_096)),
            1,
        ),
    ];
    for (name, faults, end, want, peers) in cases {
        let (mut fabric, mut one, mut two) = pair(faults);
        let desc = [TransferOpDesc { local: HOST, remote: DEVICE, len: 20_000 }];
        let timeout = Some(Span::from_ns(10_000));
        let begun = one.transfer_async(fabric.now, PEER, Op::Write, &desc, timeout).unwrap();
        assert_eq!(one.usage().streams, 0, "{name}: taken with the first poll");
        if name != "memory" {
            one.poll(fabric.now, &mut fabric.wires[0], &mut fabric.rams[0]).unwrap();
            assert_eq!((one.usage().streams, one.usage().tags), (4, 5), "{name}");
        }
        end(&mut fabric, &mut one);
        steps(&mut fabric, &mut one, &mut two, 110);
        assert_eq!(one.usage().streams, 0, "{name}");
        assert_eq!(one.status(begun), Ok(want), "{name}");
        fabric.now += Span::from_ms(60);
        steps(&mut fabric, &mut one, &mut two, 2);
        let usage = one.usage();
        assert_eq!((usage.tags, usage.transfers, usage.peers), (0, 0, peers), "{name}");
    }
}

/// Check 5: transfers that find no streams wait for their turn, in order.
#[test]
fn check_5_transfers_wait_for_streams_in_order() {
    let mut fabric = Fabric::new(5, Faults::default());
    let (mut one, mut two) = (engine(0, |o| o.streams_max = 4), engine(1, |_| ()));
    connected(&fabric, [&mut one, &mut two]);
    let requests = [1, 2, 3].map(|_| begin(&fabric, &mut one, Op::Read, 600_000));
    let mut order = Vec::new();
    for _ in 0..200 {
        fabric.step([&mut one, &mut two]);
        assert!(one.usage().streams <= 4);
        for (index, request) in requests.iter().enumerate() {
            if one.status(*request) == Ok(Status::Completed) {
                order.push(index);
            }
        }
    }
    assert_eq!(order, [0, 1, 2]);
}

/// Check 6: a status follows its transfer; its end is returned once, and then forgotten.
#[test]
fn check_6_a_status_is_right_and_told_once() {
    let (mut fabric, mut one, mut two) = pair(Faults { delay_ns: 500, ..Faults::default() });
    let read = begin(&fabric, &mut one, Op::Read, 50_000);
    let write = one
        .transfer_async(
            fabric.now,
            PEER,
            Op::Write,
            &[TransferOpDesc { local: HOST + 0x8_0000, remote: HOST + 0x8_0000, len: 9 }],
            None,
        )
        .unwrap();
    assert_eq!((one.status(read), one.status(write)), (Ok(Status::Waiting), Ok(Status::Waiting)));
    fabric.step([&mut one, &mut two]);
    assert_eq!(one.status(read), Ok(Status::Waiting), "asking changes nothing");
    steps(&mut fabric, &mut one, &mut two, 100);
    for req in [read, write] {
        assert_eq!(one.status(req), Ok(Status::Completed));
        assert_eq!(one.status(req), Err(Error::UnknownRequest(req)));
    }
    assert_eq!(one.usage(), IDLE);
    assert!(fabric.rams[0].host[..50_000] == fabric.rams[1].host[..50_000]);
    // Results that are never read are bounded.
    let mut few = engine(0, |options| options.transfers_max = 2);
    let mut peer = engine(1, |_| ());
    connected(&fabric, [&mut few, &mut peer]);
    begin(&fabric, &mut few, Op::Read, 1);
    begin(&fabric, &mut few, Op::Read, 1);
    steps(&mut fabric, &mut few, &mut peer, 100);
    let third = few.transfer_async(fabric.now, PEER, Op::Read, &ops(1), None);
    assert_eq!(third, Err(Error::TooMany(2)));
}

/// Check 6: completions after a transfer's end change nothing: its buffer may be in other use.
#[test]
fn check_6_data_that_is_late_is_dropped() {
    let (mut fabric, mut one, mut two) = pair(Faults::default());
    let timeout = Some(Span::from_ns(1_000));
    let req = one.transfer_async(fabric.now, PEER, Op::Read, &ops(8_192), timeout).unwrap();
    fabric.wires[0].held = true;
    steps(&mut fabric, &mut one, &mut two, 20);
    assert_eq!(one.status(req), Ok(Status::Timeout));
    assert_eq!(one.usage().tags, 2, "their completions may still come");
    let before = fabric.rams[0].host.clone();
    fabric.wires[0].held = false;
    steps(&mut fabric, &mut one, &mut two, 20);
    assert!(before == fabric.rams[0].host);
    assert_eq!((one.usage(), one.unexpected()), (IDLE, 0));
}

/// Check 6: a request that is never completed is lost: the transfer fails, and nothing is sent again.
#[test]
fn check_6_a_lost_request_fails_its_transfer_and_is_not_sent_again() {
    let (mut fabric, mut one, mut two) = pair(Faults { lost: 1, ..Faults::default() });
    let req = begin(&fabric, &mut one, Op::Read, 4_096);
    let next = one.poll(fabric.now, &mut fabric.wires[0], &mut fabric.rams[0]).unwrap();
    assert_eq!(next, Some(fabric.now + Span::from_ms(50)));
    steps(&mut fabric, &mut one, &mut two, 10);
    fabric.now = next.unwrap();
    steps(&mut fabric, &mut one, &mut two, 1);
    let status = one.status(req).unwrap();
    assert!(matches!(status, Status::Failed(Reason::Lost(_))), "{status:?}");
    assert_eq!((one.usage(), fabric.wires[0].log.len()), (IDLE, 1));
}

/// Check 6: completions that do not fit their request fail the transfer; those of no request are counted.
#[test]
fn check_6_completions_that_do_not_fit_are_told() {
    let data = |offset, len, bad| OwnAnswer::Data(offset, vec![1; len], bad);
    let cases = [
        ("wrong kind", vec![OwnAnswer::Written], "malformed"),
        ("behind the end", vec![data(1, 4_096, false)], "malformed"),
        ("empty", vec![data(0, 0, false)], "malformed"),
        ("twice", vec![data(0, 64, false), data(60, 64, false)], "malformed"),
        ("bad data", vec![data(0, 4_096, true)], "poisoned"),
        ("too much", vec![data(0, 4_096, false), data(0, 4_096, false)], "unexpected"),
    ];
    for (name, answers, want) in cases {
        let (mut fabric, mut one, mut two) = pair(Faults::default());
        fabric.wires[0].held = true;
        let req = begin(&fabric, &mut one, Op::Read, 4_096);
        steps(&mut fabric, &mut one, &mut two, 1);
        let tag = fabric.wires[0].log[0].tag;
        fabric.wires[0].back.extend(answers.into_iter().map(|answer| (fabric.now, tag, answer)));
        steps(&mut fabric, &mut one, &mut two, 1);
        let got = match one.status(req).unwrap() {
            Status::Failed(Reason::Malformed(_)) => "malformed",
            Status::Failed(Reason::Poisoned(_)) => "poisoned",
            Status::Completed if one.unexpected() == 1 => "unexpected",
            other => panic!("{name}: {other:?}"),
        };
        assert_eq!(got, want, "{name}");
    }
}

/// Check 7: imports are freed on both sides when either disconnects; a new connection maps them again.
#[test]
fn check_7_imports_are_freed_on_disconnection() {
    let (mut fabric, mut one, mut two) = pair(Faults::default());
    let goodbye = one.disconnect(PEER).unwrap();
    assert_eq!(two.receive(PEER, &goodbye), Ok(None));
    let none = Usage { registrations: 2, ..Usage::default() };
    assert_eq!((one.usage(), two.usage()), (none, none));
    assert_eq!(one.disconnect(PEER), Err(Error::NotConnected(PEER)));
    let begun = one.transfer_async(fabric.now, PEER, Op::Read, &ops(1), None);
    assert_eq!(begun, Err(Error::NotConnected(PEER)));
    connect(&mut two, &mut one);
    assert_eq!((one.usage(), two.usage()), (IDLE, IDLE));
    let req = begin(&fabric, &mut one, Op::Read, 100);
    steps(&mut fabric, &mut one, &mut two, 5);
    assert_eq!(one.status(req), Ok(Status::Completed));
    assert_eq!(one.finalize(), Ok(vec![PEER]));
    assert_eq!(one.usage(), Usage::default());
}

/// Check 7: both ends may connect at once.
#[test]
fn check_7_both_may_connect_at_once() {
    let (mut one, mut two) = (engine(0, |_| ()), engine(1, |_| ()));
    let hellos = (one.connect(PEER).unwrap(), two.connect(PEER).unwrap());
    let to_one = two.receive(PEER, &hellos.0).unwrap().unwrap();
    let to_two = one.receive(PEER, &hellos.1).unwrap().unwrap();
    assert_eq!((one.receive(PEER, &to_one), two.receive(PEER, &to_two)), (Ok(None), Ok(None)));
    assert!(one.is_connected(PEER) && two.is_connected(PEER));
}

/// Check 7: memory in use by a transfer is not deregistered.
#[test]
fn check_7_memory_in_use_is_not_deregistered() {
    let (mut fabric, mut one, mut two) = pair(Faults::default());
    one.disconnect(PEER).unwrap();
    two.receive(PEER, &Message::Goodbye).unwrap();
    let (ram, mem) = (&fabric.rams[0], MemDesc { addr: DEVICE + SIZE / 2 - 1, len: 1 });
    assert!(one.register(mem, MemKind::Device, ram).is_err(), "it overlaps");
    let mut fresh = engine(0, |_| ());
    let mem = MemDesc { addr: HOST, len: 4_096 };
    let handle = fresh.register(mem, MemKind::Host, ram).unwrap();
    connect(&mut fresh, &mut two);
    let requests = [1, 2].map(|_| begin(&fabric, &mut fresh, Op::Write, 100));
    assert_eq!(fresh.deregister(handle), Err(Error::Busy { handle, transfers: 2 }));
    steps(&mut fabric, &mut fresh, &mut two, 5);
    assert_eq!(fresh.deregister(handle), Ok(()), "at their end, asked for or not");
    assert_eq!(fresh.deregister(handle), Err(Error::UnknownHandle(handle)));
    for request in requests {
        assert_eq!(fresh.status(request), Ok(Status::Completed));
    }
    // The other side: a request to memory that was deregistered is refused.
    let req = two.transfer_async(fabric.now, PEER, Op::Read, &ops(64), None).unwrap();
    steps(&mut fabric, &mut fresh, &mut two, 5);
    let status = two.status(req).unwrap();
    assert!(matches!(status, Status::Failed(Reason::Unsupported(_))), "{status:?}");
}

/// Check 8: an engine behind a lock, used from several threads at once.
#[test]
fn check_8_threads_share_an_engine() {
    let (fabric, one, two) = pair(Faults { delay_ns: 2_000, full: 5, ..Faults::default() });
    let shared = Mutex::new((fabric, one, two));
    let per_thread = 20;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let shared = &shared;
            scope.spawn(move || {
                for turn in 0..per_thread {
                    let at = HOST + thread * 0x4_0000 + turn * 0x2000;
                    let desc = [TransferOpDesc { local: at, remote: at, len: 0x1FFF }];
                    let op = if turn % 2 == 0 { Op::Read } else { Op::Write };
                    let mut guard = shared.lock().unwrap();
                    let (fabric, one, _) = &mut *guard;
                    let req = one.transfer_async(fabric.now, PEER, op, &desc, None).unwrap();
                    drop(guard);
                    for round in 0.. {
                        assert!(round < 100_000, "the transfer does not end");
                        let mut guard = shared.lock().unwrap();
                        let (fabric, one, two) = &mut *guard;
                        match one.status(req).unwrap() {
                            Status::Waiting => fabric.step([one, two]),
                            status => {
                                assert_eq!(status, Status::Completed);
                                break;
                            }
                        }
                    }
                }
            });
        }
    });
    let (mut fabric, one, _) = shared.into_inner().unwrap();
    assert_eq!(one.usage(), IDLE);
    for thread in 0..4u64 {
        let at = HOST + thread * 0x4_0000;
        for turn in 0..per_thread {
            let mine = fabric.rams[0].at(at + turn * 0x2000, 0x1FFF).unwrap().to_vec();
            let theirs = fabric.rams[1].at(at + turn * 0x2000, 0x1FFF).unwrap();
            assert!(mine == *theirs, "thread {thread}, turn {turn}");
        }
    }
}

/// Check 9: when a peer vanishes, its imports and transfers are freed and failed; other peers go on.
#[test]
fn check_9_a_vanished_peer_leaves_nothing() {
    let (mut fabric, mut one, mut two) = pair(Faults::default());
    let other = PeerId(8);
    one.receive(other, &Message::Hello { pid: pid(1), shares: two.shares().unwrap() }).unwrap();
    fabric.wires[0].held = true;
    let lost = [1, 2, 3].map(|_| begin(&fabric, &mut one, Op::Write, 300_000));
    let stays = one.transfer_async(fabric.now, other, Op::Read, &ops(64), None).unwrap();
    steps(&mut fabric, &mut one, &mut two, 3);
    assert_eq!((one.usage().streams, one.usage().imports), (16, 4));
    one.peer_lost(PEER).unwrap();
    assert_eq!((one.usage().streams, one.usage().imports), (4, 2));
    for req in lost {
        assert_eq!(one.status(req), Ok(Status::Failed(Reason::PeerLost)));
    }
    assert_eq!(one.peer_lost(PEER), Err(Error::NotConnected(PEER)));
    fabric.wires[0].held = false;
    steps(&mut fabric, &mut one, &mut two, 20);
    assert_eq!(one.status(stays), Ok(Status::Completed));
    assert_eq!(one.usage(), IDLE, "tags came back with their completions");
}

/// A synchronous transfer returns its end; one whose time stands still, or whose drive fails, ends too.
#[test]
fn a_synchronous_transfer_always_ends() {
    let (mut fabric, mut one, mut two) = pair(Faults::default());
    let now = fabric.now;
    let short = Some(Span::from_ns(500));
    let sync = |one: &mut Engine, drive: &mut dyn FnMut(&mut Engine) -> _| {
        one.transfer_sync(now, PEER, Op::Read, &ops(4_000), short, drive)
    };
    assert_eq!(sync(&mut one, &mut |_| Ok(now)), Err(Error::Timeout), "time stands still");
    assert_eq!(sync(&mut one, &mut |_| Ok(now + Span::from_ns(500))), Err(Error::Timeout));
    assert_eq!(sync(&mut one, &mut |_| Err(Error::Finalized)), Err(Error::Finalized));
    assert_eq!(one.usage(), IDLE);
    let done = sync(&mut one, &mut |one| {
        fabric.step([one, &mut two]);
        Ok(fabric.now)
    });
    assert_eq!((done, one.usage()), (Ok(()), IDLE));
}

/// If requests reach both ends, these may be the same memory: a transfer must not write bytes that it reads.
#[test]
fn check_4_a_transfer_does_not_read_what_it_writes() {
    let (fabric, mut one, _two) = pair(Faults::default());
    let ram = &fabric.rams[0];
    // The peer's device memory has the same address here, like G-FAM that both were granted.
    one.register(MemDesc { addr: FABRIC[1], len: SIZE }, MemKind::Fabric, ram).unwrap();
    let desc = |at, to, len| TransferOpDesc { local: FABRIC[1] + at, remote: DEVICE + to, len };
    for (ops, want) in [
        (&[desc(0, 0, 64)][..], Some((0, 0))),
        (&[desc(0, 63, 64)][..], Some((0, 0))),
        (&[desc(0, 64, 64), desc(128, 192, 64)][..], None),
        (&[desc(0, 64, 64), desc(127, 192, 64)][..], Some((1, 0))),
    ] {
        let begun = one.transfer_async(fabric.now, PEER, Op::Write, ops, None);
        let said = begun.err().map(|error| match error {
            Error::Overwritten { reads, writes } => (reads, writes),
            other => panic!("{ops:?}: {other}"),
        });
        assert_eq!(said, want, "{ops:?}");
    }
}

/// When the memory of a registration goes away, its transfers fail with its handle, they leave no state behind, and
/// peers no longer reach the memory.
#[test]
fn a_registration_that_is_revoked_ends_its_transfers() {
    let (mut fabric, mut one, mut two) = pair(Faults { delay_ns: 9_000, ..Faults::default() });
    let req = begin(&fabric, &mut one, Op::Write, SIZE);
    steps(&mut fabric, &mut one, &mut two, 3);
    let (handle, _) = one.registrations().next().unwrap();
    assert_eq!(one.revoke(handle), Ok(()));
    assert_eq!(one.status(req), Ok(Status::Failed(Reason::Revoked(handle))));
    steps(&mut fabric, &mut one, &mut two, 200);
    assert_eq!(one.usage(), Usage { registrations: 1, ..IDLE });
    assert_eq!(one.serve(pid(1), 0x10_0000, 8), None, "the peer does not reach it any more");
    assert_eq!(one.revoke(handle), Err(Error::UnknownHandle(handle)));
}
