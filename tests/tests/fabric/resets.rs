//! Resets in a whole fabric: by a host through its bridges, and by the manager at a port.
//!
//! Devices at the host's switch, at another one and below an HBR switch, and a GFD → each is reset in turn; the host finds it
//! again with its memory, and nobody else has been reset.
//!
//! Units: bytes; virtual milliseconds.
//! Source: docs/spec/cxl-fabric.md "Resets"; PCIe 6.0 section 6.6.1; CXL 3.1 section 7.6.7.1.3.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_fm::components::port_reset::PortReset;
use weft_fm::service::Request;
use weft_fm::service::request::TopologyFormat;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Access, Command, OwnRange};
use weft_lab::endpoint::number::{Id, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_parsers::fabric::Bdf;
use weft_tests::fabric_here::{bars, books, look, pass, range, transfer, up, up_text};

const HOST: Part = Part::Host(0);
/// Devices by number: at the host's switch, at another one, below the HBR switch.
const NEAR: usize = 0;
const FAR: usize = 1;
const BELOW: usize = 2;
const LEN: u64 = 1 << 12;
const HPA: u64 = 0x100_0000_0000;
const TIMEOUT_MS: u64 = 60_000;
const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [{ name = "h0", at = "sw0", bind = ["near", "far", "hbr0"] }]
device = [{ name = "near", at = "sw0" }, { name = "far", at = "sw1" }, { name = "below", at = "hbr0" }]
hbr = [{ name = "hbr0", at = "sw0" }]
gfd = [{ name = "g", at = "sw1" }]

[[memory]]
name = "pool"
hosts = ["h0"]
gfds = ["g"]
len = 0x10000000
hpa = 0x10000000000
"#;

fn status(fabric: &ManagedFabric, part: Part) -> Value {
    let Ok(Answer::Status(status)) = fabric.ask(part, &Command::Status {}) else {
        panic!("{part:?} has no status")
    };
    serde_json::to_value(status).unwrap()
}

/// How often each device, and the GFD, has been reset by its link; and how often the HBR switch.
fn resets(fabric: &ManagedFabric) -> [u64; 5] {
    let of = |part, at: &str| status(fabric, part).pointer(at).and_then(Value::as_u64).unwrap();
    let link = "/counts/link/resets";
    let device = |at| of(Part::Device(at), link);
    let hbr = of(Part::Hbr(0), "/counts/links/0/resets");
    [device(NEAR), device(FAR), device(BELOW), of(Part::Gfd(0), link), hbr]
}

/// The host's tree, as text.
fn tree(fabric: &ManagedFabric) -> String {
    match fabric.ask(HOST, &Command::Tree {}) {
        Ok(Answer::Tree { text, .. }) => text,
        other => panic!("{other:?}"),
    }
}

/// The devices' place in the tree by their memory: the bridges above each and where its BAR is, by whose memory has the pattern.
struct Seen {
    /// Of each device: address of BAR 0, and the ids of the bridges above it, the nearest first.
    devices: Vec<(u64, Vec<Bdf>)>,
}

fn walk(node: &Value, above: &mut Vec<Bdf>, found: &mut Vec<(u64, Vec<Bdf>)>) {
    match node {
        Value::Array(all) => all.iter().for_each(|one| walk(one, above, found)),
        Value::Object(map) => {
            let bdf =
                map.get("bdf").and_then(Value::as_str).and_then(|text| text.parse::<Id>().ok());
            let id = map.get("device").and_then(Value::as_u64);
            let is_device = id.is_some_and(|id| (0x0D00..0x0E00).contains(&id));
            if let Some(address) = node.pointer("/bars/0/address").and_then(Value::as_u64)
                && is_device
            {
                found.push((address, above.iter().rev().copied().collect()));
            }
            above.extend(bdf.map(|id| id.0));
            map.values().for_each(|one| walk(one, above, found));
            above.truncate(above.len() - usize::from(bdf.is_some()));
        }
        _ => {}
    }
}

impl Seen {
    fn of(fabric: &ManagedFabric) -> Self {
        let Ok(Answer::Tree { tree, .. }) = fabric.ask(HOST, &Command::Tree {}) else {
            panic!("no tree")
        };
        let mut found = Vec::new();
        walk(&tree, &mut Vec::new(), &mut found);
        assert_eq!(found.len(), 3, "{tree}");
        // Whose is which is what its memory shows.
        let mut devices = vec![(0, Vec::new()); 3];
        for (seed, one) in (100..).zip(found) {
            let write = transfer(fabric, HOST, &Command::Write(range(one.0, LEN, seed)));
            assert!(write.ok, "{write:?}");
            let at = (0..3).find(|&at| holds(fabric, at, seed)).unwrap();
            devices[at] = one;
        }
        Self { devices }
    }

    fn bar(&self, device: usize) -> u64 {
        self.devices[device].0
    }

    /// The bridge so many levels above a device.
    fn above(&self, device: usize, level: usize) -> Bdf {
        self.devices[device].1[level]
    }
}

/// Whether the memory of a device has a pattern.
fn holds(fabric: &ManagedFabric, device: usize, seed: u64) -> bool {
    let (addr, len, seed, bar) = (Num(0), Some(Num(LEN)), Some(seed), Some(0));
    let place = OwnRange { addr, len, seed, bar, ..OwnRange::default() };
    transfer(fabric, Part::Device(device), &Command::Peek(place)).ok
}

fn write(fabric: &ManagedFabric, seen: &Seen, device: usize, seed: u64) {
    let done = transfer(fabric, HOST, &Command::Write(range(seen.bar(device), LEN, seed)));
    assert!(done.ok && holds(fabric, device, seed), "device {device}: {done:?}");
}

/// Whether the host reads a pattern in the memory of a device.
fn reads(fabric: &ManagedFabric, seen: &Seen, device: usize, seed: u64) -> bool {
    transfer(fabric, HOST, &Command::Read(range(seen.bar(device), LEN, seed))).ok
}

fn reset(fabric: &ManagedFabric, bdf: Bdf) {
    let (bdf, timeout_ms) = (Id(bdf), TIMEOUT_MS);
    let done = fabric.ask(HOST, &Command::Reset { bdf, timeout_ms });
    assert!(matches!(done, Ok(Answer::Tree { .. })), "{done:?}");
}

fn manager(fabric: &mut ManagedFabric, port: &str, reset: PortReset) {
    let port = port.to_owned();
    fabric.fm().request(&Request::ControlPort { port, reset }).unwrap();
}

/// What the manager says where it refuses that.
fn refusal(fabric: &mut ManagedFabric, port: &str, reset: PortReset) -> String {
    let port = port.to_owned();
    fabric.fm().request(&Request::ControlPort { port, reset }).unwrap_err().message
}

fn drawn(fabric: &mut ManagedFabric, drawn: TopologyFormat) -> String {
    let topology = fabric.fm().request(&Request::Topology { drawn }).unwrap();
    serde_json::to_string(&topology).unwrap()
}

/// A port that is held in reset is told in each form of the topology and in the status, and named where it is reset once.
fn is_shown_as_held(fabric: &mut ManagedFabric, port: &str) {
    for form in [TopologyFormat::Text, TopologyFormat::Dot, TopologyFormat::Svg] {
        let text = drawn(fabric, form);
        assert!(text.contains(&format!("{port} held in reset, PERST# is asserted")), "{text}");
    }
    assert!(drawn(fabric, TopologyFormat::Data).contains("\"perst\":true"));
    let errors = fabric.fm().board().status().errors;
    assert!(errors.iter().any(|error| error.contains("PERST# is asserted, until")), "{errors:?}");
    let refused = refusal(fabric, port, PortReset::Reset);
    assert!(refused.contains("held in reset, as PERST# is asserted"), "{refused}");
}

/// Waits until the host sees what it saw.
fn sees(fabric: &mut ManagedFabric, want: &str) {
    for _ in 0..100 {
        look(fabric);
        if tree(fabric) == want {
            return;
        }
    }
    panic!("it sees\n{}instead of\n{want}", tree(fabric));
}

//= docs/spec/cxl-fabric.md "Resets": secondary bus resets
#[test]
fn a_host_resets_what_is_below_each_of_its_bridges_and_nothing_else() {
    let fabric = up_text("resets", TOPOLOGY);
    let (seen, want) = (Seen::of(&fabric), tree(&fabric));
    for device in [NEAR, FAR, BELOW] {
        write(&fabric, &seen, device, 7);
    }
    assert_eq!(resets(&fabric), [0; 5]);
    // Columns: whose bridge, levels above it, how often each of all has been reset then.
    let cases = [
        ("the vPPB of a device at the host's switch", NEAR, 0, [1, 0, 0, 0, 0]),
        ("the vPPB at the other switch", FAR, 0, [1, 1, 0, 0, 0]),
        ("the upstream bridge of the virtual switch there", FAR, 1, [1, 2, 0, 0, 0]),
        ("the vDSP whose vUSP that is", FAR, 2, [1, 3, 0, 0, 0]),
        ("a port of the HBR switch", BELOW, 0, [1, 3, 1, 0, 0]),
        ("the upstream port of the HBR switch", BELOW, 1, [1, 3, 2, 0, 0]),
        ("the vPPB of the HBR switch", BELOW, 2, [1, 3, 3, 0, 1]),
        ("the upstream vPPB of the host's switch", NEAR, 1, [2, 4, 4, 0, 2]),
    ];
    for (name, device, level, then) in cases {
        reset(&fabric, seen.above(device, level));
        assert_eq!(resets(&fabric), then, "{name}");
        assert_eq!(tree(&fabric), want, "{name}");
        for device in [NEAR, FAR, BELOW] {
            assert!(reads(&fabric, &seen, device, 7), "{name}: memory of device {device}");
        }
    }
    // The root port itself.
    reset(&fabric, Bdf::new(0, 0, 0));
    assert_eq!(tree(&fabric), want);
    books(&fabric);
}

//= docs/spec/cxl-fabric.md "Resets": what was under way, and the time until the device is back
#[test]
fn traffic_goes_on_when_the_device_is_back() {
    let fabric = up_text("resets", TOPOLOGY);
    let seen = Seen::of(&fabric);
    let access = Access { timeout_ms: TIMEOUT_MS, ..range(seen.bar(FAR), 1 << 16, 1) };
    let load = Command::LoadStart { access, rounds: 0, pause_ms: 0 };
    assert!(fabric.ask(HOST, &load).is_ok());
    pass(&fabric, 2);
    reset(&fabric, seen.above(FAR, 0));
    let answered = |fabric: &ManagedFabric| match fabric.ask(HOST, &Command::LoadStatus {}) {
        Ok(Answer::Load(report)) => (report.answered, report.wrong),
        other => panic!("{other:?}"),
    };
    let then = answered(&fabric);
    let goes_on = (0..2_000).any(|_| {
        pass(&fabric, 2);
        answered(&fabric).0 > then.0 + 64
    });
    assert!(goes_on && answered(&fabric).1 == 0, "{then:?} {:?}", answered(&fabric));
    assert!(fabric.ask(HOST, &Command::LoadStop {}).is_ok());
}

//= docs/spec/cxl-fabric.md "Resets": 5102h
#[test]
fn the_manager_resets_what_is_at_a_port_and_the_host_finds_it_again() {
    let mut fabric = up_text("resets", TOPOLOGY);
    let (seen, want) = (Seen::of(&fabric), tree(&fabric));
    for device in [NEAR, FAR, BELOW] {
        write(&fabric, &seen, device, 9);
    }
    manager(&mut fabric, "sw0/port:1", PortReset::Reset);
    sees(&mut fabric, &want);
    assert_eq!(resets(&fabric)[NEAR] + resets(&fabric)[4], 1, "{:?}", resets(&fabric));
    for device in [NEAR, FAR, BELOW] {
        assert!(reads(&fabric, &seen, device, 9), "device {device}");
    }
    manager(&mut fabric, "far", PortReset::AssertPerst);
    look(&mut fabric);
    let held = tree(&fabric);
    assert_ne!(held, want, "the device is gone for the host");
    is_shown_as_held(&mut fabric, "far");
    fabric.fm().request(&Request::Discover).unwrap();
    is_shown_as_held(&mut fabric, "far");
    pass(&fabric, 10_000);
    assert!(!reads(&fabric, &seen, FAR, 9), "nothing answers");
    assert!(reads(&fabric, &seen, NEAR, 9));
    assert_eq!(tree(&fabric), held, "for as long as it is asserted");
    manager(&mut fabric, "far", PortReset::DeassertPerst);
    sees(&mut fabric, &want);
    let refused = refusal(&mut fabric, "far", PortReset::DeassertPerst);
    assert!(refused.contains("PERST# is not asserted at far"), "{refused}");
    assert!(!drawn(&mut fabric, TopologyFormat::Text).contains("PERST#"));
    assert_eq!(fabric.fm().board().status().errors, Vec::<String>::new());
    assert!(reads(&fabric, &seen, FAR, 9));
    assert_eq!(resets(&fabric)[FAR], 1);
    books(&fabric);
}

/// All logical devices of one at once: each host finds its own again, with its memory.
#[test]
fn a_device_with_logical_devices_is_reset_whole() {
    let mut fabric = up("mld");
    let hosts: Vec<Part> = (0..2).map(Part::Host).collect();
    let seen = |fabric: &ManagedFabric| -> Vec<Vec<u64>> {
        hosts.iter().map(|&host| bars(fabric, host, &[0x0D00])).collect()
    };
    let before = seen(&fabric);
    let link = |fabric: &ManagedFabric| {
        status(fabric, Part::Device(0)).pointer("/counts/link/resets").and_then(Value::as_u64)
    };
    for (seed, (&host, bars)) in (1..).zip(hosts.iter().zip(&before)) {
        let write = transfer(&fabric, host, &Command::Write(range(bars[0], LEN, seed)));
        assert!(write.ok, "{write:?}");
    }
    manager(&mut fabric, "mld0", PortReset::Reset);
    let back = (0..100).any(|_| {
        look(&mut fabric);
        seen(&fabric) == before
            && (1..).zip(hosts.iter().zip(&before)).all(|(seed, (&host, bars))| {
                transfer(&fabric, host, &Command::Read(range(bars[0], LEN, seed))).ok
            })
    });
    assert!(back, "{before:?} {:?}", seen(&fabric));
    assert_eq!(link(&fabric), Some(1));
    let status = fabric.fm().board().status();
    assert!(status.errors.is_empty(), "{status:?}");
}

/// It loses what the manager has set, and gets it again.
#[test]
fn a_gfd_that_is_reset_is_set_up_again() {
    let mut fabric = up_text("resets", TOPOLOGY);
    let uio = |seed| Access { ..range(HPA, LEN, seed) };
    assert!(transfer(&fabric, HOST, &Command::Write(uio(3))).ok);
    let set_up = |fabric: &ManagedFabric| {
        let detail = status(fabric, Part::Gfd(0))["detail"].take();
        (detail["pid"].clone(), detail["requesters"].as_array().unwrap().len())
    };
    let before = set_up(&fabric);
    assert_eq!(before.1, 1);
    manager(&mut fabric, "g", PortReset::Reset);
    pass(&fabric, 5);
    assert_eq!(set_up(&fabric), (Value::from("fff"), 0), "it has lost what the manager had set");
    let mut back = false;
    for _ in 0..100 {
        look(&mut fabric);
        back = back || transfer(&fabric, HOST, &Command::Read(uio(3))).ok;
        if back && fabric.fm().board().status().errors.is_empty() {
            break;
        }
    }
    let status = fabric.fm().board().status();
    assert_eq!((back, &status.errors[..]), (true, &[][..]), "{status:?}");
    assert_eq!(resets(&fabric)[3], 1);
    assert_eq!(set_up(&fabric), before);
    let done = transfer(&fabric, HOST, &Command::Write(uio(4)));
    assert!(done.ok && transfer(&fabric, HOST, &Command::Read(uio(4))).ok, "{done:?}");
}

/// Who asks what is held in reset by way of the fabric is told at once, by UIO and by CXL.mem, and is served afterwards.
#[test]
fn requests_from_edge_to_edge_for_what_is_held_in_reset_are_refused() {
    let mut fabric = up_text("resets", TOPOLOGY);
    let uio = range(HPA, LEN, 3);
    assert!(transfer(&fabric, HOST, &Command::Write(uio.clone())).ok);
    manager(&mut fabric, "g", PortReset::AssertPerst);
    pass(&fabric, 10_000);
    let of_gfd = |fabric: &ManagedFabric| {
        status(fabric, Part::Gfd(0))
            .pointer("/counts/link/in_reset")
            .and_then(Value::as_u64)
            .unwrap()
    };
    let before = of_gfd(&fabric);
    let read = transfer(&fabric, HOST, &Command::Read(uio.clone()));
    let told: Vec<&str> = read.failures.keys().map(String::as_str).collect();
    assert_eq!((read.ok, &told[..]), (false, &["UR"][..]), "{read:?}");
    let line =
        Access { via: weft_lab::endpoint::command::Via::CxlMem, len: Some(Num(64)), ..uio.clone() };
    let load = transfer(&fabric, HOST, &Command::Read(line));
    assert!(!load.ok && !load.failures.contains_key("timeout"), "{load:?}");
    assert_eq!(of_gfd(&fabric), before, "nothing of it got there");
    manager(&mut fabric, "g", PortReset::DeassertPerst);
    let back = (0..100).any(|_| {
        look(&mut fabric);
        transfer(&fabric, HOST, &Command::Read(uio.clone())).ok
    });
    assert!(back, "{:?}", fabric.fm().board().status());
    books(&fabric);
}
