//! Transfers between all pairs of ends: memory of a host, G-FAM, memory behind the BAR of a device, and HDM. Tests are
//! numbered like the checks of docs/fabric-memory.md, "Pairs of ends".
//!
//! The fabric of `pcaps/fabric/fabric-memory-devices.toml` in virtual time. One of [`ENDS`] is at h0, the other at h1.
//!
//! Source: docs/fabric-memory.md; docs/spec/cxl-fabric.md "Fabric memory transfers".
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_dataplane::time::Span;
use weft_fm::service::Request;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Command, OwnRange};
use weft_lab::endpoint::fabric_mem::{MemCommand, MemStatus, MemTransfer};
use weft_lab::endpoint::number::Num;
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;

use crate::rig::*;

/// Length registered of each end, and length of a transfer.
const AREA: u64 = 4 * MIB;
const LEN: u64 = 48 << 10;

/// Kind of memory in which a transfer begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Host,
    Fabric,
    Bar,
    Hdm,
}

const ENDS: [End; 4] = [End::Host, End::Fabric, End::Bar, End::Hdm];

/// Devices of each host in the file.
const ACCELERATORS: [Part; 2] = [Part::Device(0), Part::Device(1)];
const MEMORIES: [Part; 2] = [Part::Device(2), Part::Device(3)];

fn host(side: usize) -> Part {
    [H0, H1][side]
}

fn nodes(tree: &Value) -> Vec<&Value> {
    let mut left: Vec<&Value> = tree["nodes"].as_array().into_iter().flatten().collect();
    let mut all = Vec::new();
    while let Some(node) = left.pop() {
        left.extend(node["below"]["nodes"].as_array().into_iter().flatten());
        all.push(node);
    }
    all
}

/// A fabric whose hosts have registered an area of each end, with h0 connected to h1.
struct Ends {
    fabric: ManagedFabric,
    peer: u32,
    /// First address of each end, at h0 and at h1.
    at: [[u64; 4]; 2],
    handles: [[u64; 4]; 2],
}

/// An end at h0 or h1.
#[derive(Clone, Copy, Debug)]
struct Place {
    end: End,
    side: usize,
}

impl Ends {
    fn up() -> Self {
        let fabric = up("fabric-memory-devices");
        let mut at = [[0; 4]; 2];
        let mut handles = [[0; 4]; 2];
        for side in 0..2 {
            at[side] = addresses(&fabric, side);
            for (end, kind) in ENDS.into_iter().zip(["host", "fabric", "device", "device"]) {
                // Each host registers the other's part of G-FAM, too.
                let (base, len) = if end == End::Fabric {
                    (POOL, 2 * AREA)
                } else {
                    (at[side][end as usize], AREA)
                };
                let range = register(&fabric, host(side), base, len);
                assert_eq!(range.kind, kind, "{end:?}");
                handles[side][end as usize] = range.handle;
            }
        }
        let peer = connect(&fabric, H0, WINDOWS[1]);
        Self { fabric, peer, at, handles }
    }

    fn addr(&self, place: Place) -> u64 {
        self.at[place.side][place.end as usize]
    }

    /// Stores or compares `LEN` bytes on behalf of the owner: the host's CPU, the device, or a host for G-FAM.
    fn own(&self, place: Place, from: u64, seed: u64, write: bool) -> bool {
        let whose = match place.end {
            End::Host => (host(place.side), self.addr(place) + from, None),
            End::Bar => (ACCELERATORS[place.side], from, Some(0)),
            End::Hdm => (MEMORIES[place.side], from, None),
            End::Fabric => {
                let range = range(self.addr(place) + from, LEN, seed);
                return access(&self.fabric, host(place.side), range, write).ok;
            }
        };
        let (part, addr, bar) = whose;
        let (addr, len, seed) = (Num(addr), Some(Num(LEN)), Some(seed));
        let own = OwnRange { addr, len, seed, bar, ..OwnRange::default() };
        let command = if write { Command::Store(own) } else { Command::Peek(own) };
        transfer(&self.fabric, part, &command).ok
    }

    fn put(&self, place: Place, from: u64, seed: u64) {
        assert!(self.own(place, from, seed, true), "{place:?}");
    }

    fn has(&self, place: Place, from: u64, seed: u64) -> bool {
        self.own(place, from, seed, false)
    }

    /// A transfer of pieces, each as offset at the local end, offset at the remote end, and length.
    fn plan(&self, pair: [Place; 2], list: &[(u64, u64, u64)]) -> MemTransfer {
        let [local, remote] = pair.map(|place| self.addr(place));
        let list: Vec<(u64, u64, u64)> =
            list.iter().map(|(own, other, len)| (local + own, remote + other, *len)).collect();
        plan(self.peer, &list)
    }

    fn completes(&self, command: MemCommand) {
        let name = format!("{command:?}");
        let report = moved(&self.fabric, H0, command);
        assert_eq!(report.status, MemStatus::Completed, "{name}: {report:?}");
    }
}

/// First addresses of a host's ends, in the order of [`ENDS`].
fn addresses(fabric: &ManagedFabric, side: usize) -> [u64; 4] {
    let Ok(Answer::Tree { tree, .. }) = fabric.ask(host(side), &Command::Tree {}) else {
        panic!("no tree")
    };
    let device = |id: usize| {
        let id = 0x0D00 + id as u64;
        let all = nodes(&tree);
        let found = all.iter().find(|node| node["device"] == id);
        (*found.unwrap_or_else(|| panic!("no {id:#x}: {tree}"))).clone()
    };
    let bar = device(side)["bars"][0]["address"].as_u64().unwrap();
    let hdm = device(2 + side)["hdm"][0]["base"].as_u64().unwrap();
    [OWN, POOL + AREA * side as u64, bar, hdm]
}

fn pairs() -> impl Iterator<Item = [Place; 2]> {
    let local = ENDS.map(|end| Place { end, side: 0 });
    let remote = ENDS.map(|end| Place { end, side: 1 });
    local.into_iter().flat_map(move |local| remote.map(|remote| [local, remote]))
}

/// Checks 1 and 2: WRITE and READ move bytes from one end to the other.
#[test]
fn check_1_and_2_every_pair_of_ends_is_written_and_read() {
    let ends = Ends::up();
    for (seed, pair) in (1..).step_by(4).zip(pairs()) {
        let [local, remote] = pair;
        ends.put(local, 0, seed);
        ends.put(remote, 0, seed + 1);
        ends.completes(MemCommand::Write(ends.plan(pair, &[(0, 0, LEN)])));
        assert!(ends.has(remote, 0, seed) && ends.has(local, 0, seed), "written: {pair:?}");
        ends.put(remote, MIB, seed + 2);
        ends.completes(MemCommand::Read(ends.plan(pair, &[(2 * MIB, MIB, LEN)])));
        assert!(ends.has(local, 2 * MIB, seed + 2) && ends.has(remote, MIB, seed + 2), "{pair:?}");
        idle(&ends.fabric, H0);
    }
    books(&ends.fabric);
}

/// Check 3: pieces of any address and length in one transfer leave the bytes beside them alone.
#[test]
fn check_3_pieces_of_any_alignment_leave_their_neighbours_alone() {
    let ends = Ends::up();
    for (seed, pair) in (100..).step_by(4).zip(pairs()) {
        let [local, remote] = pair;
        ends.put(local, 0, seed);
        ends.put(remote, 0, seed);
        ends.put(local, MIB, seed + 1);
        // Both ends have the same pattern. The first transfer spoils odd pieces of it, and the second restores exactly
        // these.
        let pieces = [(1, MIB + 1, 1), (3, MIB + 3, 4_094), (5_001, MIB + 5_001, 20_007)];
        let spoil: Vec<_> = pieces.iter().map(|(at, from, len)| (*from, *at, *len)).collect();
        let back: Vec<_> = pieces.iter().map(|(at, _, len)| (*at, *at, *len)).collect();
        ends.completes(MemCommand::Write(ends.plan(pair, &spoil)));
        assert!(!ends.has(remote, 0, seed), "{pair:?}");
        ends.completes(MemCommand::Write(ends.plan(pair, &back)));
        assert!(ends.has(remote, 0, seed), "only these pieces were written: {pair:?}");
        ends.put(local, 0, seed + 2);
        ends.put(remote, 0, seed + 2);
        ends.put(remote, MIB, seed + 1);
        let reads: Vec<_> = pieces.iter().map(|(at, from, len)| (*at, *from, *len)).collect();
        ends.completes(MemCommand::Read(ends.plan(pair, &reads)));
        assert!(!ends.has(local, 0, seed + 2), "{pair:?}");
        ends.completes(MemCommand::Read(ends.plan(pair, &back)));
        assert!(ends.has(local, 0, seed + 2), "only these pieces were read: {pair:?}");
    }
}

/// Check 4 is a range one byte too long at either end, and check 5 one that is not registered. Both move nothing.
#[test]
fn check_4_and_5_ranges_beyond_what_is_registered_are_refused() {
    let ends = Ends::up();
    let fabric = &ends.fabric;
    for (seed, pair) in (200..).zip(pairs()) {
        let [local, remote] = pair;
        // Of G-FAM, the parts of both hosts are registered.
        let end = |place: Place| match place.end {
            End::Fabric => 2 * AREA - AREA * place.side as u64,
            _ => AREA,
        };
        let (own, other) = (end(local), end(remote));
        ends.put(remote, 0, seed);
        for (list, want) in [
            ([(own - LEN + 1, 0, LEN)], "operation 0: local range"),
            ([(own, 0, 1)], "operation 0: local range"),
            ([(0, other - LEN + 1, LEN)], "operation 0: remote range"),
            ([(0, other, 1)], "operation 0: remote range"),
        ] {
            for command in [
                MemCommand::Write(ends.plan(pair, &list)),
                MemCommand::Read(ends.plan(pair, &list)),
            ] {
                let said = refusal(fabric, H0, command);
                assert!(said.contains(want), "{pair:?} {list:?}: {said}");
            }
        }
        assert!(ends.has(remote, 0, seed), "{pair:?}");
    }
    // Requests that bypass the engine are refused beyond the last import, which is memory of a device.
    for (from, ok) in [(AREA - 64, true), (AREA, false)] {
        let imports = &list(fabric, H0).peers[0].imports;
        let of_host = imports.iter().filter(|it| it.hpa >= WINDOWS[1]);
        let hpa = of_host.map(|it| it.hpa).max().unwrap();
        let written = access(fabric, H0, range(hpa + from, 64, 3), true);
        assert_eq!(written.ok, ok, "{from:#x}: {written:?}");
    }
    for (end, side) in ENDS.into_iter().flat_map(|end| [(end, 0), (end, 1)]) {
        let handle = ends.handles[side][end as usize];
        done(fabric, host(side), MemCommand::Deregister { handle });
        let other =
            Place { end: if end == End::Host { End::Bar } else { End::Host }, side: 1 - side };
        let this = Place { end, side };
        let pair = if side == 0 { [this, other] } else { [other, this] };
        let command = MemCommand::Write(ends.plan(pair, &[(0, 0, 64)]));
        match (side, end) {
            (0, _) => {
                let said = refusal(fabric, H0, command);
                assert!(said.contains("operation 0: local range"), "{pair:?}: {said}");
            }
            (_, End::Fabric) => ends.completes(command), // both hosts were granted it, so it needs no registration
            _ => {
                let report = moved(fabric, H0, command);
                let reason = report.reason.as_deref().unwrap_or_default();
                assert!(reason.contains("unsupported request"), "{pair:?}: {report:?}");
            }
        }
        let (base, len) = (ends.addr(this), AREA);
        let (base, len) = if end == End::Fabric { (POOL, 2 * AREA) } else { (base, len) };
        register(fabric, host(side), base, len);
    }
}

/// Check 6: the status of a transfer without waiting is `Waiting`, then `Completed`, which can be read once.
#[test]
fn check_6_the_status_of_every_pair_is_told_once() {
    let ends = Ends::up();
    for (seed, pair) in (300..).zip(pairs()) {
        ends.put(pair[0], 0, seed);
        let begun = MemTransfer { wait: false, ..ends.plan(pair, &[(0, 0, LEN)]) };
        let transfer = moved(&ends.fabric, H0, MemCommand::Write(begun)).transfer;
        let status = || moved(&ends.fabric, H0, MemCommand::Status { transfer }).status;
        assert_eq!(status(), MemStatus::Waiting, "{pair:?}");
        ends.fabric.parts().until(Span::from_ms(50), |_| false);
        assert_eq!(status(), MemStatus::Completed, "{pair:?}");
        let said = refusal(&ends.fabric, H0, MemCommand::Status { transfer });
        assert!(said.contains("its result was read already"), "{pair:?}: {said}");
        assert!(ends.has(pair[1], 0, seed), "{pair:?}");
    }
}

/// Check 7: concurrent transfers of all pairs, with a separate part of each end, put each byte in its place.
#[test]
fn check_7_all_pairs_at_once_do_not_mix() {
    let ends = Ends::up();
    let mut begun = Vec::new();
    for (n, pair) in (0..).zip(pairs()) {
        let (at, is_write) = (0x1_0000 * n, n % 2 == 0);
        ends.put(pair[usize::from(!is_write)], at, 400 + n);
        let plan = MemTransfer { wait: false, ..ends.plan(pair, &[(at, at, LEN)]) };
        let command = if is_write { MemCommand::Write(plan) } else { MemCommand::Read(plan) };
        begun.push((n, pair, command));
    }
    let numbers: Vec<u64> = begun
        .iter()
        .map(|(_, _, command)| moved(&ends.fabric, H0, command.clone()).transfer)
        .collect();
    let running = list(&ends.fabric, H0).transfers.len();
    assert_eq!(running, numbers.len(), "all of them run");
    ends.fabric.parts().until(Span::from_ms(200), |_| false);
    for (transfer, (n, pair, _)) in numbers.into_iter().zip(begun) {
        let report = moved(&ends.fabric, H0, MemCommand::Status { transfer });
        assert_eq!(report.status, MemStatus::Completed, "{pair:?}: {report:?}");
        let at = 0x1_0000 * n;
        assert!(ends.has(pair[0], at, 400 + n) && ends.has(pair[1], at, 400 + n), "{pair:?}");
    }
    idle(&ends.fabric, H0);
    books(&ends.fabric);
}

/// Check 8: a device is unbound during transfers. They fail with a reason, later ones are refused, and a device that is
/// bound there afterwards cannot be reached.
#[test]
fn check_8_an_end_that_is_taken_away_is_reached_by_nobody() {
    for end in [End::Bar, End::Hdm] {
        for side in 0..2 {
            taken_away(Place { end, side });
        }
    }
}

fn taken_away(gone: Place) {
    let mut ends = Ends::up();
    let Place { end, side } = gone;
    let vppb = if end == End::Bar { 1 } else { 2 };
    let bridge = format!("{}/0/{vppb}", ["entry", "sw1"][side]);
    let port = {
        let state = ends.fabric.fm().state().unwrap();
        let mut local = state.bindings.local.iter().filter(|it| it.bridge.vppb == vppb);
        local.nth(side).unwrap().port
    };
    let others = |ends: &Ends| {
        ENDS.map(|other| Place { end: other, side: 1 - side })
            .into_iter()
            .map(|other| if side == 0 { [gone, other] } else { [other, gone] })
            .map(|pair| (pair, ends.plan(pair, &[(0, 0, LEN), (MIB, MIB, LEN)])))
            .collect::<Vec<_>>()
    };
    let plans = others(&ends);
    let begun: Vec<u64> = plans
        .iter()
        .map(|(_, plan)| MemTransfer { wait: false, ..plan.clone() })
        .map(|plan| moved(&ends.fabric, H0, MemCommand::Write(plan)).transfer)
        .collect();
    ends.fabric.fm().request(&Request::Unbind { bridge: bridge.clone() }).unwrap();
    ends.fabric.parts().until(Span::from_ms(100), |_| false);
    for transfer in begun {
        let report = moved(&ends.fabric, H0, MemCommand::Status { transfer });
        assert!(report.status != MemStatus::Waiting, "{gone:?}: {report:?}");
    }
    let refused = |ends: &Ends, when: &str| {
        for (pair, plan) in &plans {
            let command = MemCommand::Write(plan.clone());
            if side == 0 {
                let said = refusal(&ends.fabric, H0, command);
                let want = format!("of handle {} is gone", ends.handles[0][end as usize]);
                assert!(said.contains("local range") && said.contains(&want), "{when}: {said}");
            } else {
                let report = moved(&ends.fabric, H0, command);
                let reason = report.reason.as_deref().unwrap_or_default();
                assert!(reason.contains("unsupported request"), "{when} {pair:?}: {report:?}");
            }
        }
    };
    refused(&ends, "unbound");
    let handle = ends.handles[side][end as usize];
    let all = list(&ends.fabric, host(side)).registrations;
    assert!(!all.iter().any(|it| it.handle == handle), "{gone:?}: {all:?}");
    ends.fabric.fm().request(&Request::Bind { bridge, to: format!("port:{port}") }).unwrap();
    ends.fabric.parts().until(Span::from_ms(100), |_| false);
    assert_eq!(addresses(&ends.fabric, side)[end as usize], ends.addr(gone), "where it was");
    refused(&ends, "bound again");
    // After a new registration, peers that connect later can use the end.
    register(&ends.fabric, host(side), ends.addr(gone), AREA);
    done(&ends.fabric, H0, MemCommand::Disconnect { peer: ends.peer });
    ends.fabric.parts().until(Span::from_ms(700), |_| false);
    ends.peer = connect(&ends.fabric, H0, WINDOWS[1]);
    for (pair, _) in &plans {
        ends.put(pair[0], 0, 9);
        ends.completes(MemCommand::Write(ends.plan(*pair, &[(0, 0, LEN)])));
        assert!(ends.has(pair[1], 0, 9), "{pair:?}");
    }
    // Requests that the device did not answer end with their time limit.
    let is_idle = |fabric: &ManagedFabric| list(fabric, H0).requests == 0;
    until(&ends.fabric, "nothing is under way", is_idle);
    idle(&ends.fabric, H0);
}

/// A device begins transfers itself: from its own memory to another host's (D2RH) and back (RH2D), to and from another
/// host's device (D2D), and with G-FAM. Its own host has no part in them, except that it binds the device.
#[test]
fn a_device_begins_transfers_of_its_own() {
    let mut ends = Ends::up();
    let npu = ACCELERATORS[0];
    let bar = ends.addr(Place { end: End::Bar, side: 0 });
    let fabric = &ends.fabric;
    assert_eq!(register(fabric, npu, bar, AREA).kind, "device");
    assert_eq!(register(fabric, npu, POOL, 2 * AREA).kind, "fabric");
    for (addr, len, want) in [
        (bar + AREA - 1, 2, "overlaps handle 1"),
        (bar + 32 * MIB, 64, "expected memory of the device"),
        (OWN, 64, "expected memory of the device"),
    ] {
        let command = MemCommand::Register { addr: Num(addr), len: Num(len) };
        assert!(refusal(fabric, npu, command).contains(want), "{addr:#x}");
    }
    let window = MemCommand::Window { base: Num(WINDOWS[0]), len: Num(MIB), from: vec![] };
    assert!(refusal(fabric, npu, window).contains("a device has no window"));
    // Its own host has not opened the window to it.
    assert!(refusal(fabric, npu, connect_to(WINDOWS[0])).contains("refused (UR)"));
    let peer = connect(fabric, npu, WINDOWS[1]);
    let own = Place { end: End::Bar, side: 0 };
    for (seed, end) in (500..).step_by(4).zip(ENDS) {
        let remote = Place { end, side: 1 };
        let there = ends.addr(remote);
        ends.put(own, 0, seed);
        let write = plan(peer, &[(bar, there, LEN)]);
        let report = moved(fabric, npu, MemCommand::Write(write));
        assert_eq!(report.status, MemStatus::Completed, "{end:?}: {report:?}");
        assert!(ends.has(remote, 0, seed), "{end:?}");
        ends.put(remote, MIB, seed + 1);
        let read =
            plan(peer, &[(bar + MIB + 1, there + MIB + 1, 5), (bar + 2 * MIB, there + MIB, LEN)]);
        let report = moved(fabric, npu, MemCommand::Read(read));
        assert_eq!(report.status, MemStatus::Completed, "{end:?}: {report:?}");
        assert!(ends.has(own, 2 * MIB, seed + 1), "{end:?}");
        // With G-FAM as the local end, the device reads that and writes the data to the remote end.
        ends.put(Place { end: End::Fabric, side: 0 }, MIB, seed + 2);
        let from = ends.addr(Place { end: End::Fabric, side: 0 }) + MIB;
        let report =
            moved(fabric, npu, MemCommand::Write(plan(peer, &[(from, there + 3 * MIB, LEN)])));
        assert_eq!(report.status, MemStatus::Completed, "{end:?}: {report:?}");
        assert!(ends.has(remote, 3 * MIB, seed + 2), "{end:?}");
    }
    let beyond = plan(peer, &[(bar, ends.addr(Place { end: End::Host, side: 1 }) + AREA, 64)]);
    let said = refusal(fabric, npu, MemCommand::Write(beyond.clone()));
    assert!(said.contains("remote range"), "{said}");
    let peers = list(fabric, H1).peers;
    assert_eq!(peers.len(), 2, "its host and it are two: {peers:?}");
    idle(fabric, npu);
    books(fabric);
    // A device that is unbound is reset, and loses its connections and registrations.
    let bridge = "entry/0/1".to_owned();
    let begun = MemTransfer { wait: false, ..plan(peer, &[(bar, OWN, AREA)]) };
    let transfer = moved(fabric, npu, MemCommand::Write(begun)).transfer;
    ends.fabric.fm().request(&Request::Unbind { bridge }).unwrap();
    let fabric = &ends.fabric;
    fabric.parts().until(Span::from_ms(100), |_| false);
    let report = moved(fabric, npu, MemCommand::Status { transfer });
    assert_eq!(report.status, MemStatus::Failed, "{report:?}");
    let left = list(fabric, npu);
    assert_eq!((left.registrations.len(), left.peers.len(), left.streams), (0, 0, 0), "{left:?}");
    assert!(refusal(fabric, npu, MemCommand::Write(beyond)).contains("is not connected"));
    assert!(refusal(fabric, npu, connect_to(WINDOWS[1])).contains("may not send requests"));
    until(fabric, "h1 has heard", |fabric| list(fabric, H1).peers.len() == 1);
}
