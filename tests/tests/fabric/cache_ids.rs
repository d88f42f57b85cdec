//! `CacheID`s in a whole fabric: a host commits them at its own switch and at others, and its edge is told.
//!
//! Two hosts and devices at three switches → commands of the hosts → the tables of the hosts' edges.
//!
//! Units: bytes; virtual milliseconds.
//! Source: docs/spec/cxl-fabric.md; docs/endpoint.md; CXL 3.1 section 7.7.12.5.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_dataplane::types::PortId;
use weft_fm::service::Request;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange, Via};
use weft_lab::endpoint::number::{Hex, Id, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_parsers::fabric::Bdf;
use weft_pbr_switch::Bound;
use weft_tests::fabric_here::{books, look, pass, range, transfer, up_text};

const HOSTS: [Part; 2] = [Part::Host(0), Part::Host(1)];
/// Devices by number: two of the first host at the second switch, one of the second host there, one of the first host at
/// the third switch, and one at its own.
const A: usize = 0;
const B: usize = 1;
const OTHERS: usize = 2;
const D: usize = 3;
const NEAR: usize = 4;
const TIMEOUT_MS: u64 = 60_000;
const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }, { name = "sw2" }]
link = [{ ends = ["sw0", "sw1"] }, { ends = ["sw1", "sw2"] }]
host = [{ name = "h0", at = "sw0", bind = ["a", "b", "d", "near"] }, { name = "h1", at = "sw2", bind = ["c"] }]
device = [
    { name = "a", at = "sw1" },
    { name = "b", at = "sw1" },
    { name = "c", at = "sw1" },
    { name = "d", at = "sw2" },
    { name = "near", at = "sw0" },
]
"#;

fn tree(fabric: &ManagedFabric, host: usize) -> Value {
    match fabric.ask(HOSTS[host], &Command::Tree {}) {
        Ok(Answer::Tree { tree, .. }) => tree,
        other => panic!("{other:?}"),
    }
}

/// Addresses of BAR 0 of the devices of a host, with their ids and the bridges above each, the nearest first.
fn walk(node: &Value, above: &mut Vec<Value>, found: &mut Vec<(u64, Bdf, Vec<Value>)>) {
    match node {
        Value::Array(all) => all.iter().for_each(|one| walk(one, above, found)),
        Value::Object(map) => {
            let bdf = map.get("bdf").and_then(Value::as_str).and_then(|it| it.parse::<Id>().ok());
            let id = map.get("device").and_then(Value::as_u64);
            let is_device = id.is_some_and(|id| (0x0D00..0x0E00).contains(&id));
            if let (Some(bdf), true) = (bdf, is_device) {
                let bar = node.pointer("/bars/0/address").and_then(Value::as_u64).unwrap();
                found.push((bar, bdf.0, above.iter().rev().cloned().collect()));
            }
            above.extend(bdf.map(|_| node.clone()));
            map.values().for_each(|one| walk(one, above, found));
            above.truncate(above.len() - usize::from(bdf.is_some()));
        }
        _ => {}
    }
}

/// Where a host sees a device, by whose memory changes when it writes there: its id, and the bridges above it.
fn seen(fabric: &ManagedFabric, host: usize, device: usize) -> (Bdf, Vec<Value>) {
    let mut found = Vec::new();
    walk(&tree(fabric, host), &mut Vec::new(), &mut found);
    let mine = found.into_iter().find(|(bar, ..)| {
        let seed = 1_000 + *bar;
        assert!(transfer(fabric, HOSTS[host], &Command::Write(range(*bar, 64, seed))).ok);
        let (addr, len, bar) = (Num(0), Some(Num(64)), Some(0));
        let place = OwnRange { addr, len, seed: Some(seed), bar, ..OwnRange::default() };
        transfer(fabric, Part::Device(device), &Command::Peek(place)).ok
    });
    mine.map(|(_, bdf, above)| (bdf, above)).unwrap()
}

/// The host gives a device a `CacheID`, or takes it back; what is said where that is refused.
fn give(fabric: &ManagedFabric, host: usize, bdf: Bdf, id: Option<u8>) -> Result<(), String> {
    let command = Command::CacheId { bdf: Id(bdf), id, timeout_ms: TIMEOUT_MS };
    match fabric.ask(HOSTS[host], &command) {
        Ok(Answer::Tree { .. }) => Ok(()),
        Ok(other) => panic!("{other:?}"),
        Err(refused) => Err(refused.to_string()),
    }
}

/// PID of the port that a device is at.
fn pid_of(fabric: &ManagedFabric, device: usize) -> u16 {
    let parts = fabric.parts();
    let mut all = parts.layout().switches.iter().enumerate().flat_map(|(switch, it)| {
        it.ports.iter().enumerate().map(move |(port, it)| (switch, port, it.far.part))
    });
    let (switch, port, _) = all.find(|it| it.2 == Part::Device(device)).unwrap();
    let state = parts.agent(switch).unwrap().switch();
    state.port(PortId::new(port).unwrap()).unwrap().pid().bits()
}

/// What the edge of a host has been told: `CacheID` and port.
fn told(fabric: &ManagedFabric, host: usize) -> Vec<(u8, u16)> {
    let parts = fabric.parts();
    let switch = [0, 2][host];
    let at = parts.layout().switches[switch].vcses.iter().position(|vcs| vcs.host == host).unwrap();
    let agent = parts.agent(switch).unwrap();
    let state = agent.switch().vcs(at.try_into().unwrap()).unwrap();
    state.cache_ids.iter().map(|(id, port, _)| (id, port.bits())).collect()
}

/// What the first host's edge has in force of its own: `CacheID` and port.
fn own(fabric: &ManagedFabric) -> Vec<(u8, u16)> {
    let parts = fabric.parts();
    let at = parts.layout().switches[0].vcses.iter().position(|vcs| vcs.host == 0).unwrap();
    let state = parts.agent(0).unwrap().switch().vcs(at.try_into().unwrap()).unwrap();
    state.own_cache_ids().map(|(id, port, _)| (id, port.bits())).collect()
}

/// What the host's tree shows of the virtual switch above a device.
fn shown(fabric: &ManagedFabric, host: usize, device: usize) -> Vec<(u64, u64)> {
    let (_, above) = seen(fabric, host, device);
    let ids = above[1]["cache_ids"].as_array().unwrap().clone();
    let of = |it: &Value, key: &str| it[key].as_u64().unwrap();
    ids.iter().map(|it| (of(it, "cache_id"), of(it, "port"))).collect()
}

//= CXL 3.1 section 7.7.12.5: commit at the downstream edge, table at the host's
#[test]
fn a_host_gives_devices_cache_ids_and_its_edge_is_told() {
    let fabric = up_text("cache_ids", TOPOLOGY);
    let [a, b, d, near] = [A, B, D, NEAR].map(|device| seen(&fabric, 0, device).0);
    let others = seen(&fabric, 1, OTHERS).0;
    let pid = |device| pid_of(&fabric, device);
    assert_eq!(give(&fabric, 0, a, Some(4)), Ok(()));
    assert_eq!(told(&fabric, 0), [(4, pid(A))]);
    assert_eq!(give(&fabric, 0, b, Some(15)), Ok(()));
    assert_eq!(told(&fabric, 0), [(4, pid(A)), (15, pid(B))]);
    // Another one in place of the first; the same twice.
    for _ in 0..2 {
        assert_eq!(give(&fabric, 0, a, Some(0)), Ok(()));
        assert_eq!(told(&fabric, 0), [(0, pid(A)), (15, pid(B))]);
    }
    let ids: Vec<u64> = shown(&fabric, 0, A).into_iter().map(|it| it.0).collect();
    assert_eq!(ids, [0, 15]);
    // At the third switch, with what is free and what is not: nothing has changed then, here and there.
    assert_eq!(give(&fabric, 0, d, Some(7)), Ok(()));
    let all = vec![(0, pid(A)), (7, pid(D)), (15, pid(B))];
    assert_eq!(told(&fabric, 0), all);
    let refused = give(&fabric, 0, d, Some(15)).unwrap_err();
    assert!(refused.contains("has CacheID 15: clear that first"), "{refused}");
    let refused = give(&fabric, 0, b, Some(0)).unwrap_err();
    assert!(refused.contains("clear that of the device there first"), "{refused}");
    assert_eq!(told(&fabric, 0), all);
    assert_eq!(shown(&fabric, 0, D).len(), 1);
    // At the host's own switch nobody has to be told, and what other edges have told is taken.
    assert_eq!(give(&fabric, 0, near, Some(9)), Ok(()));
    assert_eq!((own(&fabric), told(&fabric, 0)), (vec![(9, pid(NEAR))], all.clone()));
    for (bdf, id) in [(near, 7), (a, 9)] {
        let refused = give(&fabric, 0, bdf, Some(id)).unwrap_err();
        assert!(refused.contains(&format!("has CacheID {id}: clear that first")), "{refused}");
    }
    assert_eq!((own(&fabric), told(&fabric, 0)), (vec![(9, pid(NEAR))], all.clone()));
    assert_eq!(give(&fabric, 0, near, None), Ok(()));
    assert_eq!(own(&fabric), []);
    let cases = [
        (Bdf::new(9, 9, 9), "enumerate first"),
        (Bdf::new(0, 0, 0), "00:00.0 is a bridge"),
        (Bdf::new(1, 0, 0), "01:00.0 is a bridge"),
    ];
    for (bdf, why) in cases {
        let refused = give(&fabric, 0, bdf, Some(1)).unwrap_err();
        assert!(refused.contains(why), "{refused}");
    }
    // Another host's are its own.
    assert_eq!(give(&fabric, 1, others, Some(0)), Ok(()));
    assert_eq!((told(&fabric, 1), told(&fabric, 0)), (vec![(0, pid(OTHERS))], all));
    assert_eq!(give(&fabric, 0, a, None), Ok(()));
    assert_eq!(give(&fabric, 0, b, Some(0)), Ok(()), "it is free now");
    assert_eq!(told(&fabric, 0), [(0, pid(B)), (7, pid(D))]);
    books(&fabric);
}

/// The bridge at a switch that a device is bound to, as the manager names it, and the device's port.
fn bridge_of(fabric: &ManagedFabric, switch: usize, device: usize) -> (String, String) {
    let parts = fabric.parts();
    let ports = &parts.layout().switches[switch].ports;
    let port = ports.iter().position(|it| it.far.part == Part::Device(device)).unwrap();
    let bound = Bound::Port(PortId::new(port).unwrap());
    let state = parts.agent(switch).unwrap().switch();
    let (vcs, vppb) = (0..16)
        .find_map(|vcs| {
            let vppbs = &state.vcs(vcs)?.vppbs;
            vppbs.iter().position(|vppb| vppb.bound == bound).map(|vppb| (vcs, vppb))
        })
        .unwrap();
    (format!("sw{switch}/{vcs}/{vppb}"), format!("port:{port}"))
}

/// A fabric in which the first host has given its devices 4, 5 and 7.
fn with_ids() -> (ManagedFabric, [Bdf; 3]) {
    let fabric = up_text("cache_ids", TOPOLOGY);
    let all = [A, B, D].map(|device| seen(&fabric, 0, device).0);
    for (bdf, id) in all.into_iter().zip([4, 5, 7]) {
        assert_eq!(give(&fabric, 0, bdf, Some(id)), Ok(()));
    }
    let want = [(4, A), (5, B), (7, D)].map(|(id, device)| (id, pid_of(&fabric, device)));
    assert_eq!(told(&fabric, 0), want);
    (fabric, all)
}

fn bdf_of(node: &Value) -> Id {
    node["bdf"].as_str().unwrap().parse().unwrap()
}

//= docs/spec/cxl-fabric.md "CacheID": what is taken back, and what is forgotten
#[test]
fn what_is_unbound_or_reset_has_no_cache_id_any_more() {
    let (mut fabric, [a, ..]) = with_ids();
    let (pid_b, pid_d) = (pid_of(&fabric, B), pid_of(&fabric, D));
    let (bridge, to) = bridge_of(&fabric, 1, A);
    fabric.fm().request(&Request::Unbind { bridge: bridge.clone() }).unwrap();
    look(&mut fabric);
    assert_eq!(told(&fabric, 0), [(5, pid_b), (7, pid_d)]);
    let ids = |fabric: &ManagedFabric, device| {
        shown(fabric, 0, device).into_iter().map(|it| it.0).collect::<Vec<_>>()
    };
    assert_eq!(ids(&fabric, B), [5], "the host's software has heard of it");
    fabric.fm().request(&Request::Bind { bridge, to }).unwrap();
    look(&mut fabric);
    assert_eq!(told(&fabric, 0), [(5, pid_b), (7, pid_d)], "it comes without");
    assert_eq!(give(&fabric, 0, a, Some(4)), Ok(()));
    assert_eq!(told(&fabric, 0).len(), 3);
    // The bus below the vUSP, then below the vDSP: the other switch is another matter.
    let timeout_ms = TIMEOUT_MS;
    for level in [1, 2] {
        let above = seen(&fabric, 0, B).1;
        let bdf = bdf_of(&above[level]);
        assert!(fabric.ask(HOSTS[0], &Command::Reset { bdf, timeout_ms }).is_ok());
        assert_eq!(told(&fabric, 0), [(7, pid_d)], "{level}");
        assert_eq!((ids(&fabric, B), ids(&fabric, D)), (vec![], vec![7]), "{level}");
        let b = seen(&fabric, 0, B).0;
        assert_eq!(give(&fabric, 0, b, Some(5)), Ok(()));
        assert_eq!(told(&fabric, 0), [(5, pid_b), (7, pid_d)]);
    }
    let wires = fabric.parts().wires_of(Part::Host(0));
    for up in [false, true] {
        for &wire in &wires {
            fabric.parts().set_wire(wire, up);
        }
        look(&mut fabric);
        assert_eq!(told(&fabric, 0), [], "the host has gone");
    }
    books(&fabric);
}

/// docs/security.md: nobody below reaches the registers, and another host's are others.
#[test]
fn nobody_else_commits_anything() {
    let (fabric, _) = with_ids();
    let before = (told(&fabric, 0), told(&fabric, 1));
    let above = seen(&fabric, 0, A).1;
    let block = |node: &Value| node.pointer("/bars/0/address").and_then(Value::as_u64).unwrap();
    let (decoder, table) = (block(&above[0]) + 0x1014, block(&above[1]) + 0x1014);
    let neighbour = block(&seen(&fabric, 0, B).1[0]) + 0x1014;
    for (by, addr) in [(A, decoder), (A, table), (A, neighbour), (OTHERS, table)] {
        let data = Some(Hex(vec![0; 4]));
        let (addr, timeout_ms, via) = (Num(addr), TIMEOUT_MS, Via::Plain);
        let access = Access { addr, data, timeout_ms, via, ..Access::default() };
        let write = fabric.ask(Part::Device(by), &Command::DmaWrite(access.clone()));
        assert!(matches!(&write, Ok(Answer::Transfer(it)) if !it.ok), "{by}: {write:?}");
        let read = Access { len: Some(Num(4)), data: None, ..access };
        let read = transfer(&fabric, Part::Device(by), &Command::DmaRead(read));
        assert!(read.failures.contains_key("UR"), "{by}: {read:?}");
    }
    // The other host at the same addresses: its own, or nothing.
    for addr in [decoder, table] {
        let data = Some(Hex(vec![0; 4]));
        let access = Access { addr: Num(addr), data, timeout_ms: TIMEOUT_MS, ..Access::default() };
        assert!(fabric.ask(HOSTS[1], &Command::Write(access)).is_ok());
    }
    pass(&fabric, 200);
    assert_eq!((told(&fabric, 0), told(&fabric, 1)), before);
    let ids: Vec<u64> = shown(&fabric, 0, A).into_iter().map(|it| it.0).collect();
    assert_eq!(ids, [4, 5]);
    books(&fabric);
}

/// A hot-added virtual link has its registers, those of its bridges and a memory device's in what is kept free behind a slot.
#[test]
fn registers_of_what_comes_later_find_room() {
    let topology = r#"
start = "simultaneous"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [{ name = "h0", at = "sw0", bind = ["a"] }]
device = [{ name = "a", at = "sw1", kind = "memory", capacity_mib = 256 }]
"#;
    let fabric = up_text("later", topology);
    let tree = tree(&fabric, 0);
    assert_eq!(tree["problems"], Value::Array(Vec::new()));
    let (a, above) = seen(&fabric, 0, A);
    assert!(above[1].pointer("/bars/0/address").is_some_and(Value::is_u64), "{above:?}");
    assert_eq!(give(&fabric, 0, a, Some(4)), Ok(()));
    assert_eq!(told(&fabric, 0), [(4, pid_of(&fabric, A))]);
}
