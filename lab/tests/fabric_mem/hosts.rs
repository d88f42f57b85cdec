//! Transfers of fabric memory between hosts: GIM, G-FAM, and all refusals. Checks have the numbers 1, 2 and 4 to 9.
//!
//! The fabric of `pcaps/fabric/fabric-memory.toml` runs in virtual time.
//!
//! Source: docs/fabric-memory.md; docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §5.5.

use weft_dataplane::time::Span;
use weft_lab::endpoint::HostSpec;
use weft_lab::endpoint::command::{Access, Command};
use weft_lab::endpoint::fabric_mem::{MemCommand, MemStatus, MemTransfer, MemTransferReport};
use weft_lab::endpoint::number::{Hex, Num};
use weft_lab::endpoint::spec::Spec;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;

use crate::rig::*;

/// Memory that the peer shows (GIM) is written and read in pieces of odd addresses and lengths, and the bytes beside
/// them stay.
#[test]
fn memory_of_a_peer_is_written_and_read() {
    let fabric = up("fabric-memory");
    let peer = pair(&fabric);
    store(&fabric, H0, OWN, MIB, 1);
    let whole = moved(&fabric, H0, MemCommand::Write(plan(peer, &[(OWN, OWN, MIB)])));
    assert_eq!((whole.status, whole.bytes), (MemStatus::Completed, MIB), "{whole:?}");
    assert!(has(&fabric, H1, OWN, MIB, 1));
    store(&fabric, H1, OWN + 0x333, 10_007, 2);
    let list = [(OWN + 0x8_0001, OWN + 0x333, 10_007), (OWN + 0x9_0000, OWN + MIB - 1, 1)];
    let read = moved(&fabric, H0, MemCommand::Read(plan(peer, &list)));
    assert_eq!((read.status, read.bytes), (MemStatus::Completed, 10_008));
    assert!(has(&fabric, H0, OWN + 0x8_0001, 10_007, 2));
    assert!(has(&fabric, H0, OWN, 0x8_0000, 1), "what is before it is as it was");
    idle(&fabric, H0);
    books(&fabric);
}

/// Two hosts connect through a mailbox in G-FAM that both were granted. One writes and the other reads, and one
/// connection serves both directions.
#[test]
fn memory_that_both_were_granted_is_a_place_to_meet() {
    let fabric = up("fabric-memory");
    for host in [H0, H1] {
        register(&fabric, host, OWN, MIB);
        assert_eq!(register(&fabric, host, POOL, 4 * MIB).kind, "fabric");
    }
    let mailbox = POOL + 4 * MIB - 8_192;
    asked(&fabric, H1, MemCommand::Listen { mailbox: Num(mailbox) });
    let peer = connect(&fabric, H0, mailbox);
    let [mine] = &list(&fabric, H0).peers[..] else { panic!("one peer") };
    assert_eq!((mine.imports.len(), mine.imports[0].hpa), (1, POOL), "no host memory: {mine:?}");
    store(&fabric, H0, OWN, MIB, 7);
    let cache = [(OWN, POOL, MIB)];
    let written = moved(&fabric, H0, MemCommand::Write(plan(peer, &cache)));
    assert_eq!(written.status, MemStatus::Completed, "{written:?}");
    until(&fabric, "h1 knows", |fabric| list(fabric, H1).peers[0].state == "connected");
    let read = moved(&fabric, H1, MemCommand::Read(plan(1, &cache)));
    assert_eq!(read.status, MemStatus::Completed, "{read:?}");
    assert!(has(&fabric, H1, OWN, MIB, 7));
    // The mailbox lies in the shared memory, but transfers must not touch it.
    for (at, len) in [(mailbox, 8_192), (mailbox - 8, 16), (mailbox + 8_184, 8)] {
        let over = [(OWN, at, len)];
        for command in [MemCommand::Write(plan(peer, &over)), MemCommand::Read(plan(peer, &over))] {
            let said = refusal(&fabric, H0, command);
            assert!(said.contains("operation 0: the remote range covers the mailbox"), "{said}");
        }
    }
    let beside = moved(&fabric, H0, MemCommand::Write(plan(peer, &[(OWN, mailbox - 8, 8)])));
    assert_eq!(beside.status, MemStatus::Completed, "{beside:?}");
    assert_eq!(list(&fabric, H0).peers[0].state, "connected");
    books(&fabric);
}

/// Check 1: options that exclude each other or are out of range are refused, and so are commands of a feature that is
/// off.
#[test]
fn check_1_options_are_refused_by_name() {
    let built = |on: bool, options: &[&str]| {
        let spec = HostSpec {
            fabric_window: Some("0x10000000000:1GiB".to_owned()),
            enable_use_fabric_mem: on,
            fabric_mem: options.iter().map(ToString::to_string).collect(),
            ..HostSpec::default()
        };
        spec.endpoint(&[]).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(built(true, &["streams_per_transfer=8", "buffer_pool=0:0"]), Ok(()));
    for (on, option, want) in [
        (true, "buffer_pool=4:8", "enable_use_fabric_mem and buffer_pool exclude each other"),
        (true, "streams_per_transfer=0", "streams_per_transfer"),
        (true, "speed=9", "no such option"),
        (true, "speed", "KEY=VALUE"),
        (true, "peer_timeout_us=5", "peer_timeout_us"),
        (false, "stream_depth=4", "without effect: set enable_use_fabric_mem"),
    ] {
        let error = built(on, &[option]).expect_err(option);
        assert!(error.contains(want), "{option}: {error}");
    }
    let spec = HostSpec { enable_use_fabric_mem: true, ..HostSpec::default() };
    assert!(spec.endpoint(&[]).err().unwrap().to_string().contains("fabric_window"));
    let plain = up("fig-7-40");
    assert!(
        refusal(&plain, H0, MemCommand::List {}).contains("start it with enable_use_fabric_mem")
    );
}

/// Check 2: a registration is existing memory of one kind, and registered only once.
#[test]
fn check_2_memory_of_another_kind_is_not_registered() {
    let fabric = up("fabric-memory");
    register(&fabric, H0, OWN, MIB);
    for (name, addr, len, want) in [
        ("none", 0, 0x1000, "expected memory of the host"),
        ("behind its memory", OWN + 64 * MIB - 1, 2, "expected memory of the host"),
        ("before the window", POOL - 1, 2, "expected memory of the host"),
        ("the mailboxes", 1 << 60, 0x1000, "expected memory of the host"),
        ("empty", OWN + MIB, 0, "is empty"),
        ("beyond 64 bits", u64::MAX, 2, "beyond 64 bits"),
        ("twice", OWN + MIB - 1, 2, "overlaps handle 1"),
        ("more than the window", OWN + MIB, 63 * MIB, "left in the window"),
    ] {
        let command = MemCommand::Register { addr: Num(addr), len: Num(len) };
        let said = refusal(&fabric, H0, command);
        assert!(said.contains(want), "{name}: {said}");
    }
    assert_eq!(list(&fabric, H0).registrations.len(), 1);
}

/// Check 4: ranges of a transfer lie within registrations of both sides, and do not overlap where they are written.
#[test]
fn check_4_ranges_that_are_not_registered_are_refused() {
    let fabric = up("fabric-memory");
    let peer = pair(&fabric);
    store(&fabric, H1, OWN + MIB, 4_096, 5);
    for (name, list, want) in [
        ("no operation", &[][..], "no operation"),
        ("nothing", &[(OWN, OWN, 0)][..], "is empty"),
        ("own, one too many", &[(OWN + 1, OWN, MIB)][..], "operation 0: local range"),
        (
            "own, not registered",
            &[(OWN, OWN, 8), (OWN + MIB, OWN, 8)][..],
            "operation 1: local range",
        ),
        ("the peer's, one too many", &[(OWN, OWN + 1, MIB)][..], "operation 0: remote range"),
        ("the peer's, not registered", &[(OWN, OWN + MIB, 8)][..], "operation 0: remote range"),
        ("by its place", &[(OWN, WINDOWS[1] + 8_192, 8)][..], "operation 0: remote range"),
        ("fabric memory, not registered", &[(POOL, OWN, 8)][..], "operation 0: local range"),
        ("the same bytes", &[(OWN, OWN, 8), (OWN + 64, OWN + 7, 8)][..], "write to the same bytes"),
    ] {
        let said = refusal(&fabric, H0, MemCommand::Write(plan(peer, list)));
        assert!(said.contains(want), "{name}: {said}");
    }
    assert!(
        refusal(&fabric, H0, MemCommand::Read(plan(9, &[(OWN, OWN, 8)])))
            .contains("peer 9 is not connected")
    );
    // Requests that bypass the engine reach registered memory while connected; the owner refuses others.
    for (offset, wanted) in [(8_192, true), (8_192 + MIB - 64, true), (8_192 + MIB, false)] {
        let report = access(&fabric, H0, range(WINDOWS[1] + offset, 64, 0), true);
        assert_eq!(report.ok, wanted, "{offset:#x}: {report:?}");
    }
    idle(&fabric, H0);
}

/// Check 5: however a transfer ends, its streams return, and transfers that wait for streams get them.
#[test]
fn check_5_streams_come_back() {
    let fabric = up("fabric-memory");
    let peer = pair(&fabric);
    // Every other transfer ends at once, and a millisecond is enough for some of the rest.
    let late = MemTransfer { wait: false, ..plan(peer, &[(OWN, OWN, MIB)]) };
    let begun: Vec<u64> = (0..20)
        .map(|at| {
            let one = MemTransfer { timeout_ms: at % 2, ..late.clone() };
            moved(&fabric, H0, MemCommand::Read(one)).transfer
        })
        .collect();
    let over = |it: &MemTransferReport| it.status != MemStatus::Waiting;
    until(&fabric, "all end", |fabric| list(fabric, H0).transfers.iter().all(over));
    let ends = begun.iter().map(|&it| moved(&fabric, H0, MemCommand::Status { transfer: it }));
    assert!(ends.filter(|it| it.status == MemStatus::Timeout).count() >= 10);
    until(&fabric, "requests are over", |fabric| list(fabric, H0).requests == 0);
    idle(&fabric, H0);
    // The peer deregisters the memory, so that it refuses those who have imported it.
    done(&fabric, H1, MemCommand::Deregister { handle: 1 });
    for _ in 0..20 {
        let report = moved(&fabric, H0, MemCommand::Read(plan(peer, &[(OWN, OWN, 0x8000)])));
        let reason = report.reason.unwrap_or_default();
        assert!(report.status == MemStatus::Failed && reason.contains("unsupported"), "{reason}");
    }
    register(&fabric, H1, OWN, MIB);
    // 12 transfers of 4 streams each exceed the 32 streams.
    let each = 0x1_0000;
    let begun: Vec<u64> = (0..12)
        .map(|at| {
            let one = plan(peer, &[(OWN + at * each, OWN + at * each, each)]);
            moved(&fabric, H0, MemCommand::Write(MemTransfer { wait: false, ..one })).transfer
        })
        .collect();
    for transfer in begun {
        until(&fabric, "it ends", |fabric| {
            let all = list(fabric, H0).transfers;
            all.iter().any(|it| it.transfer == transfer && it.status == MemStatus::Completed)
        });
        moved(&fabric, H0, MemCommand::Status { transfer });
    }
    idle(&fabric, H0);
}

/// Check 6: the status of a transfer without waiting is `Waiting`, then `Completed`, `Failed` or `Timeout`, which can
/// be read once.
#[test]
fn check_6_a_status_is_right_and_its_end_is_told_once() {
    let fabric = up("fabric-memory");
    let peer = pair(&fabric);
    let later = |command: fn(MemTransfer) -> MemCommand, timeout_ms, remote| {
        let all = MemTransfer { wait: false, timeout_ms, ..plan(peer, &[(OWN, remote, MIB)]) };
        moved(&fabric, H0, command(all))
    };
    let first = later(MemCommand::Write, 10_000, OWN);
    assert_eq!(first.status, MemStatus::Waiting);
    let status = |transfer| moved(&fabric, H0, MemCommand::Status { transfer });
    assert_eq!(status(first.transfer).status, MemStatus::Waiting);
    assert_eq!(status(first.transfer).status, MemStatus::Waiting, "it is told as often as asked");
    let ends = |transfer: u64| {
        until(&fabric, "it ends", |fabric| {
            let is =
                |it: &MemTransferReport| it.transfer == transfer && it.status != MemStatus::Waiting;
            list(fabric, H0).transfers.iter().any(is)
        });
        status(transfer)
    };
    let end = ends(first.transfer);
    assert!(end.status == MemStatus::Completed && end.ns > 0, "{end:?}");
    let unknown = |transfer| refusal(&fabric, H0, MemCommand::Status { transfer });
    assert!(unknown(first.transfer).contains("its result was read already"));
    assert!(unknown(99_999_999).contains("never begun"));
    let second = later(MemCommand::Read, 0, OWN);
    assert_eq!(ends(second.transfer).status, MemStatus::Timeout);
    done(&fabric, H1, MemCommand::Deregister { handle: 1 });
    let third = later(MemCommand::Read, 10_000, OWN);
    assert_eq!(ends(third.transfer).status, MemStatus::Failed);
    idle(&fabric, H0);
}

/// Check 7: a connection that ends removes the imports of both sides and fails its transfers. A new connection works.
#[test]
fn check_7_disconnecting_frees_what_was_imported() {
    let fabric = up("fabric-memory");
    let peer = pair(&fabric);
    assert_eq!(list(&fabric, H0).peers[0].imports.len(), 1);
    let reached =
        |fabric: &ManagedFabric| access(fabric, H0, range(WINDOWS[1] + 8_192, 64, 3), true).ok;
    assert!(reached(&fabric));
    let running = MemTransfer { wait: false, ..plan(peer, &[(OWN, OWN, MIB)]) };
    let running = moved(&fabric, H0, MemCommand::Write(running)).transfer;
    done(&fabric, H0, MemCommand::Disconnect { peer });
    let end = moved(&fabric, H0, MemCommand::Status { transfer: running });
    let failed = (MemStatus::Failed, Some("disconnected".to_owned()));
    assert_eq!((end.status, end.reason), failed);
    until(&fabric, "both are free", |fabric| {
        [H0, H1].iter().all(|host| list(fabric, *host).peers.is_empty())
    });
    until(&fabric, "requests are over", |fabric| list(fabric, H0).requests == 0);
    assert!(!reached(&fabric), "who is not connected is refused at the owner");
    let gone = refusal(&fabric, H0, MemCommand::Write(plan(peer, &[(OWN, OWN, 8)])));
    assert!(gone.contains("is not connected"), "{gone}");
    assert!(refusal(&fabric, H0, MemCommand::Disconnect { peer }).contains("is not connected"));
    // Without a window no peer can access or connect.
    let window = |len| MemCommand::Window { base: Num(WINDOWS[1]), len: Num(len), from: vec![] };
    done(&fabric, H1, window(0));
    assert!(refusal(&fabric, H0, connect_to(WINDOWS[1])).contains("refused (UR)"));
    done(&fabric, H1, window(64 * MIB));
    let again = connect(&fabric, H0, WINDOWS[1]);
    let report = moved(&fabric, H0, MemCommand::Write(plan(again, &[(OWN, OWN, MIB)])));
    assert_eq!(report.status, MemStatus::Completed);
    // The other side may end the connection as well.
    let peers = list(&fabric, H1).peers;
    done(&fabric, H1, MemCommand::Disconnect { peer: peers[0].peer });
    until(&fabric, "it is told", |fabric| list(fabric, H0).peers.is_empty());
    idle(&fabric, H0);
}

/// Check 8: concurrent transfers of both hosts, with other commands between them, put each byte in its place.
#[test]
fn check_8_transfers_at_once_do_not_mix() {
    let fabric = up("fabric-memory");
    let [to, back] = {
        let to = pair(&fabric);
        [to, connect(&fabric, H1, WINDOWS[0])]
    };
    let part = 0x8000;
    let mut begun = Vec::new();
    for at in 0..8 {
        let (own, seed) = (OWN + at * part, 100 + at);
        store(&fabric, H0, own, part, seed);
        store(&fabric, H1, own + 8 * part, part, seed + 50);
        // h0 and h1 write separate parts, while h0 reads a part of h1 that no transfer writes.
        let later =
            |peer, list: &[(u64, u64, u64)]| MemTransfer { wait: false, ..plan(peer, list) };
        let there = own + 16 * part;
        let write = MemCommand::Write(later(to, &[(own, there, part)]));
        let read = MemCommand::Read(later(to, &[(own + 24 * part, own + 8 * part, part)]));
        begun.push((H0, moved(&fabric, H0, write).transfer));
        begun.push((H0, moved(&fabric, H0, read).transfer));
        let other = MemCommand::Write(later(back, &[(own + 8 * part, there, part)]));
        begun.push((H1, moved(&fabric, H1, other).transfer));
    }
    for (host, transfer) in begun {
        until(&fabric, "it ends", |fabric| {
            let all = list(fabric, host).transfers;
            all.iter().any(|it| it.transfer == transfer && it.status != MemStatus::Waiting)
        });
        let end = moved(&fabric, host, MemCommand::Status { transfer });
        assert_eq!(end.status, MemStatus::Completed, "{host:?} {end:?}");
    }
    for at in 0..8 {
        let (own, seed) = (OWN + at * part, 100 + at);
        assert!(has(&fabric, H1, own + 16 * part, part, seed), "part {at} of h0 is at h1");
        assert!(has(&fabric, H0, own + 16 * part, part, seed + 50), "part {at} of h1 is at h0");
        assert!(has(&fabric, H0, own + 24 * part, part, seed + 50), "part {at} was read");
    }
    idle(&fabric, H0);
    idle(&fabric, H1);
}

/// Check 9: a peer that vanishes leaves no import, stream or transfer, on whichever side it was. Once it has returned,
/// it can be connected again.
#[test]
fn check_9_a_vanished_peer_leaves_nothing() {
    let fabric = up("fabric-memory");
    let peer = pair(&fabric);
    until(&fabric, "h1 knows", |fabric| list(fabric, H1).peers.len() == 1);
    let running = MemTransfer { wait: false, timeout_ms: 60_000, ..plan(peer, &[(OWN, OWN, MIB)]) };
    let running = moved(&fabric, H0, MemCommand::Write(running)).transfer;
    fabric.parts().stop(H1).unwrap();
    until(&fabric, "the peer is gone", |fabric| list(fabric, H0).peers.is_empty());
    let end = moved(&fabric, H0, MemCommand::Status { transfer: running });
    assert_eq!(end.status, MemStatus::Failed, "{end:?}");
    until(&fabric, "requests are over", |fabric| list(fabric, H0).requests == 0);
    idle(&fabric, H0);
    let refused = refusal(&fabric, H0, connect_to(WINDOWS[1]));
    assert!(
        refused.contains("does not connect") || refused.contains("not connected in time"),
        "{refused}"
    );
    assert!(list(&fabric, H0).peers.is_empty());
}

/// The same for the side that had connected: its access is closed.
#[test]
fn check_9_who_connected_and_vanished_reaches_nothing() {
    let fabric = up("fabric-memory");
    pair(&fabric);
    until(&fabric, "h1 knows", |fabric| list(fabric, H1).peers.len() == 1);
    fabric.parts().stop(H0).unwrap();
    until(&fabric, "the peer is gone", |fabric| list(fabric, H1).peers.is_empty());
    idle(&fabric, H1);
    done(&fabric, H1, MemCommand::Deregister { handle: 1 });
}

/// `finalize` ends everything, notifies the peers, and refuses all later commands.
#[test]
fn finalizing_tells_the_peers_and_refuses_the_rest() {
    let fabric = up("fabric-memory");
    pair(&fabric);
    done(&fabric, H1, MemCommand::Finalize {});
    until(&fabric, "h0 is told", |fabric| list(fabric, H0).peers.is_empty());
    let commands = [
        MemCommand::Register { addr: Num(OWN), len: Num(64) },
        MemCommand::Deregister { handle: 1 },
        connect_to(WINDOWS[0]),
        MemCommand::Write(plan(1, &[(OWN, OWN, 8)])),
        MemCommand::Status { transfer: 1 },
        MemCommand::Finalize {},
    ];
    for command in commands {
        let said = refusal(&fabric, H1, command.clone());
        assert!(said.contains("finalized"), "{command:?}: {said}");
    }
    assert!(!access(&fabric, H0, range(WINDOWS[1], 64, 0), false).ok, "the mailbox is closed");
}

/// A half with a head and a share, as in docs/spec/wire-formats.md §5.5, but built by hand with a separate CRC.
fn forged(says: u8, session: u64, beat: u64, share: Option<(u64, u64, u64, u64)>) -> Vec<u8> {
    let mut body = Vec::new();
    if let Some((addr, len, hpa, kind)) = share {
        body.extend([addr, len, hpa, kind].iter().flat_map(|part| part.to_le_bytes()));
    }
    let crc = !body.iter().fold(!0_u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (0xEDB8_8320 & 0_u32.wrapping_sub(crc & 1))
        })
    });
    let mut half = [b"WFMB".as_slice(), &[1, says, u8::from(share.is_some()), 0]].concat();
    half.extend([session, beat].iter().flat_map(|part| part.to_le_bytes()));
    half.extend(crc.to_le_bytes());
    half.resize(64, 0);
    half.extend(body);
    half
}

fn write(fabric: &ManagedFabric, host: Part, addr: u64, data: Vec<u8>) -> bool {
    let access =
        Access { addr: Num(addr), data: Some(Hex(data)), timeout_ms: 1_000, ..Access::default() };
    transfer(fabric, host, &Command::Write(access)).ok
}

/// A hostile neighbour. A host without permission reaches no byte of the window. A host with permission gains nothing
/// by a share that it does not own or that is another's. Invalid halves are ignored.
#[test]
fn a_peer_gets_nothing_by_what_it_says() {
    let third = "[[host]]\nname = \"h2\"\nat = \"sw0\"\nenable_use_fabric_mem = true\n\
        [[memory]]\nname = \"third\"\nhosts = [\"h2\"]\ngfds = [\"g\"]\nlen = \"64MiB\"\ngranularity = 4096\nhpa = \"0x11000000000\"\n";
    let text = file("fabric-memory").replace("[[gfd]]", &format!("{third}\n[[gfd]]"));
    let fabric = up_text("three hosts", &text);
    register(&fabric, H1, OWN, MIB);
    for host in [H0, Part::Host(2)] {
        let registered = access(&fabric, host, range(WINDOWS[1] + 8_192, 64, 0), true);
        assert!(!registered.ok, "nobody is connected: {host:?} {registered:?}");
    }
    assert!(!write(&fabric, Part::Host(2), WINDOWS[1], forged(1, 5, 1, None)), "h2 may not");
    assert!(refusal(&fabric, Part::Host(2), connect_to(WINDOWS[1])).contains("refused (UR)"));
    // h0 writes rubbish to its own slot, then a hello with memory of others: G-FAM that h1 has not registered, and h1's
    // own.
    for rubbish in [vec![0xFF; 256], forged(7, 5, 1, None), forged(1, 5, 1, None)[..63].to_vec()] {
        assert!(write(&fabric, H0, WINDOWS[1], rubbish));
        fabric.parts().until(Span::from_ms(100), |_| false);
        assert!(list(&fabric, H1).peers.is_empty());
    }
    for (session, share) in [(6, (POOL, MIB, POOL, 1)), (7, (OWN, MIB, WINDOWS[0] + 8_192, 0))] {
        for beat in 1..=2 {
            assert!(write(&fabric, H0, WINDOWS[1], forged(1, session, beat, Some(share))));
            fabric.parts().until(Span::from_ms(600), |_| false);
        }
        let peers = list(&fabric, H1).peers;
        let [peer] = &peers[..] else { panic!("session {session}: {peers:?}") };
        assert!(peer.imports.is_empty(), "{peer:?}");
        let said = refusal(&fabric, H1, MemCommand::Write(plan(peer.peer, &[(OWN, share.0, 64)])));
        assert!(said.contains("remote range"), "{said}");
    }
    // h0 falls silent, and after ten seconds it has no access.
    assert!(access(&fabric, H0, range(WINDOWS[1] + 8_192, 64, 0), true).ok);
    until(&fabric, "it is taken for gone", |fabric| list(fabric, H1).peers.is_empty());
    assert!(!access(&fabric, H0, range(WINDOWS[1] + 8_192, 64, 0), true).ok);
}

/// Commands with impossible addresses, and connections without a peer, are refused.
#[test]
fn places_that_cannot_be_are_refused() {
    let fabric = up("fabric-memory");
    let window = |base, len| MemCommand::Window { base: Num(base), len: Num(len), from: vec![] };
    let listen = |mailbox| MemCommand::Listen { mailbox: Num(mailbox) };
    for (command, want) in [
        (window(WINDOWS[0] + 1, MIB), "at a multiple of 4096"),
        (window(WINDOWS[0], 8_192), "more than 8192 bytes"),
        (window(WINDOWS[1] - 4_096, MIB), "one segment of 64 GiB"),
        (listen(POOL), "register the fabric memory"),
        (listen(OWN), "bytes of the fabric window"),
        (connect_to(POOL + 8), "at a multiple of 4096"),
        (connect_to(WINDOWS[0] + (40 << 36)), "refused (UR)"),
        (connect_to(POOL), "nobody answers in the mailbox"),
    ] {
        let said = refusal(&fabric, H0, command.clone());
        assert!(said.contains(want), "{command:?}: {said}");
    }
    register(&fabric, H0, OWN, 64);
    assert!(
        refusal(&fabric, H0, window(WINDOWS[0], MIB))
            .contains("while memory that it shows is registered")
    );
    assert!(list(&fabric, H0).peers.is_empty());
}
