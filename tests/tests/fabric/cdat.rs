//! CDATs of bound devices in a whole fabric: what hosts read of memory at their own edge, across switches, below HBR switches
//! and of logical devices, and what the whole way costs.
//!
//! Topologies in virtual time → `cdat` of hosts.
//!
//! Units: ns, MB/s, bytes.
//! Source: CXL 3.1 sections 7.7.12.4, 8.1.11; docs/spec/cxl-fabric.md "CDAT".

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{AccessFigures, CdatDevice, Command};
use weft_lab::endpoint::number::{Hex, Id, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{books, file, look, pass, up, up_text};

const MIB: u64 = 1 << 20;
/// Latency of a switch, as it tells it itself.
const SWITCH: u64 = 100;

fn cdat(fabric: &ManagedFabric, host: usize, bdf: Option<Id>) -> Vec<CdatDevice> {
    let timeout_ms = 60_000;
    match fabric.ask(Part::Host(host), &Command::Cdat { bdf, timeout_ms }) {
        Ok(Answer::Cdat { devices }) => devices,
        other => panic!("host {host}: {other:?}"),
    }
}

/// All that a host knows of the only device that it sees.
fn only(fabric: &ManagedFabric, host: usize) -> CdatDevice {
    let all = cdat(fabric, host, None);
    let [device] = <[CdatDevice; 1]>::try_from(all).unwrap();
    assert_eq!(device.errors, [""; 0]);
    device
}

/// Latency, the same of loads and stores, and bandwidth.
fn of(figures: AccessFigures) -> (u64, u64) {
    assert_eq!(figures.read_latency_ns, figures.write_latency_ns);
    assert_eq!(figures.read_bandwidth_mbps, figures.write_bandwidth_mbps);
    (figures.read_latency_ns.unwrap(), figures.read_bandwidth_mbps.unwrap())
}

fn switches(device: &CdatDevice) -> Vec<(u64, u64)> {
    device.switches.iter().map(|it| of(it.access)).collect()
}

/// At its own edge, across the fabric with an HBR switch below, and through HBR switches alone.
#[test]
fn hosts_read_what_memory_behind_switches_of_both_kinds_costs() {
    let slow = "at = \"hbr2\"\nkind = \"memory\"\nlatency_ns = 400\nbandwidth_mbps = 20000\n";
    let text = file("hdm").replace("at = \"hbr2\"\nkind = \"memory\"\n", slow);
    let fabric = up_text("hdm", &text);
    let own = only(&fabric, 1);
    let range = &own.ranges[0];
    assert_eq!((range.dpa, range.len), (0, 512 * MIB));
    assert!(range.hpa.is_some() && !range.non_volatile && !range.dynamic);
    assert_eq!(of(range.device), (150, 64_000));
    assert_eq!(of(range.path.unwrap()), (150 + SWITCH, 64_000));
    assert_eq!(switches(&own), [(SWITCH, 128_000)]);

    let far = only(&fabric, 0);
    // The host's edge; the one below the virtual link, with the fabric's link in between; the HBR switch.
    assert_eq!(switches(&far), [(SWITCH, 128_000), (SWITCH, 121_000), (SWITCH, 128_000)]);
    assert_eq!(of(far.ranges[0].path.unwrap()), (150 + 3 * SWITCH, 64_000));

    let below = cdat(&fabric, 2, None);
    let ways: Vec<_> = below.iter().map(|it| of(it.ranges[0].path.unwrap())).collect();
    assert_eq!(ways.len(), 2);
    assert!(ways.contains(&(150 + SWITCH, 64_000)), "{ways:?}");
    assert!(ways.contains(&(400 + 2 * SWITCH, 20_000)), "{ways:?}");
    let one = cdat(&fabric, 2, Some(below[0].bdf));
    assert_eq!(one, below[..1], "by its number");
    let unknown = Command::Cdat { bdf: Some("77:00.0".parse().unwrap()), timeout_ms: 1_000 };
    assert!(fabric.ask(Part::Host(2), &unknown).is_err());
    books(&fabric);
}

/// Each host reads the ranges of its own logical device: what the manager has dealt out, and the region of dynamic capacity.
#[test]
fn logical_devices_tell_of_their_own_memory() {
    let fabric = up("mld");
    for (host, want) in
        [(0, vec![(SWITCH, 128_000)]), (1, vec![(SWITCH, 128_000), (SWITCH, 121_000)])]
    {
        let device = only(&fabric, host);
        let ranges: Vec<_> =
            device.ranges.iter().map(|it| (it.dpa, it.len / MIB, it.dynamic)).collect();
        assert_eq!(ranges, [(0, 256, false), (1_024 * MIB, 512, true)], "host {host}");
        assert_eq!(switches(&device), want, "host {host}");
        let latency = 150 + want.len() as u64 * SWITCH;
        assert_eq!(of(device.ranges[0].path.unwrap()), (latency, 64_000));
    }
    books(&fabric);
}

const TRIANGLE: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }, { name = "sw2" }]
link = [{ ends = ["sw0", "sw1"] }, { ends = ["sw1", "sw2"] }, { ends = ["sw2", "sw0"] }]
host = [{ name = "h0", at = "sw0", bind = ["mem"] }]
device = [{ name = "mem", at = "sw1", kind = "memory", capacity_mib = 256, latency_ns = 200 }]
"#;

/// Address of the mailbox of the GAE beside the vUSP: of those that the host has found, the one further away.
fn gae_below(fabric: &ManagedFabric) -> Num {
    let Ok(Answer::Tree { tree, .. }) = fabric.ask(Part::Host(0), &Command::Tree {}) else {
        panic!()
    };
    let (mut found, mut left) = (Vec::new(), vec![&tree]);
    while let Some(node) = left.pop() {
        if node.get("class").and_then(Value::as_u64) == Some(0x0C_0B_00) {
            let at = node.pointer("/bars/0/address").and_then(Value::as_u64).unwrap();
            found.push((node["bdf"].as_str().unwrap().to_owned(), at));
        }
        let below = node.pointer("/below/nodes").or_else(|| node.get("nodes"));
        left.extend(below.and_then(Value::as_array).into_iter().flatten());
    }
    found.sort();
    assert_eq!(found.len(), 2, "{found:?}");
    Num(found[1].1)
}

/// The path of a virtual link is another one once a link is pulled: the manager tells the switch below, and the host reads it, by DOE
/// and by the GAE beside the vUSP.
#[test]
fn a_longer_path_of_a_virtual_link_costs_more() {
    let mut fabric = up_text("triangle", TRIANGLE);
    let block = Some(gae_below(&fabric));
    let by_gae = |fabric: &ManagedFabric| {
        let input = [&[0xFF, 0x0F][..], &[0; 10], &4_096_u64.to_le_bytes()].concat();
        let (opcode, timeout_ms) = (Num(0x0702), 30_000);
        let gae = Command::Gae { opcode, input: Hex(input), block, timeout_ms };
        let Answer::Response { code: 0, output, .. } = fabric.ask(Part::Host(0), &gae).unwrap()
        else {
            panic!("no CDAT")
        };
        // Behind total, count and header: SSLBIS of latency, whose first entry is of vPPB 1.
        let sslbis = &output.0[16 + 16..];
        assert_eq!((sslbis[0], sslbis[4], sslbis[18]), (5, 0, 1), "{sslbis:x?}");
        u64::from(u16::from_le_bytes([sslbis[20], sslbis[21]]))
    };
    let costs = |fabric: &ManagedFabric, path: u64| {
        let device = only(fabric, 0);
        assert_eq!(of(device.switches[1].access), (SWITCH + path, 121_000));
        assert_eq!(of(device.ranges[0].path.unwrap()), (200 + 2 * SWITCH + path, 64_000));
        assert_eq!(by_gae(fabric), SWITCH + path);
    };
    costs(&fabric, 0);
    let wire = {
        let parts = fabric.parts();
        let ends = [Part::Switch(0), Part::Switch(1)];
        let mut wires = parts.layout().wires.iter();
        wires.position(|wire| wire.iter().all(|end| ends.contains(&end.part))).unwrap()
    };
    fabric.parts().set_wire(wire, false);
    pass(&fabric, 20);
    look(&mut fabric);
    costs(&fabric, SWITCH);
    fabric.parts().set_wire(wire, true);
    pass(&fabric, 150);
    look(&mut fabric);
    costs(&fabric, 0);
    books(&fabric);
}
