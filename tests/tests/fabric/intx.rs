//! Legacy interrupts (INTx) in a whole fabric: through virtual switches of both ends of a virtual link and an HBR switch, shared,
//! and of devices that go.
//!
//! Source: PCIe 6.0 section 2.2.8.1; docs/spec/cxl-fabric.md "INTx".

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

use serde_json::Value;
use weft_fm::service::Request;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::Command;
use weft_lab::endpoint::number::{Id, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{books, pass, up_text};

/// Two devices at the second switch of h0, one at its own, and one below an HBR switch there.
const TOPOLOGY: &str = r#"
switch = [{ name = "sw0" }, { name = "sw1" }]
link = [{ ends = ["sw0", "sw1"] }]
host = [{ name = "h0", at = "sw0", bind = ["a", "b", "near", "hbr"] }]
hbr = [{ name = "hbr", at = "sw0" }]
device = [
    { name = "a", at = "sw1" },
    { name = "b", at = "sw1" },
    { name = "near", at = "sw0" },
    { name = "below", at = "hbr" },
]
"#;

/// Pins that the host sees asserted.
fn seen(fabric: &ManagedFabric) -> String {
    pass(fabric, 5);
    match fabric.ask(Part::Host(0), &Command::Status {}) {
        Ok(Answer::Status(status)) => status.detail["intx"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

fn set(fabric: &ManagedFabric, device: usize, on: bool) -> Result<(), String> {
    let command = Command::Intx { on, function: 0, ld: None };
    match fabric.ask(Part::Device(device), &command) {
        Ok(Answer::Done) => Ok(()),
        Ok(other) => panic!("{other:?}"),
        Err(refused) => Err(refused.to_string()),
    }
}

/// Ids of the devices that the host has found.
fn devices(fabric: &ManagedFabric) -> Vec<Id> {
    let Ok(Answer::Tree { tree, .. }) = fabric.ask(Part::Host(0), &Command::Tree {}) else {
        panic!()
    };
    let (mut found, mut left) = (Vec::new(), vec![&tree]);
    while let Some(node) = left.pop() {
        let id = node.get("device").and_then(Value::as_u64);
        if id.is_some_and(|id| (0x0D00..0x0E00).contains(&id)) {
            found.push(node["bdf"].as_str().unwrap().parse().unwrap());
        }
        let below = node.pointer("/below/nodes").or_else(|| node.get("nodes"));
        left.extend(below.and_then(Value::as_array).into_iter().flatten());
    }
    found
}

fn write(fabric: &ManagedFabric, bdf: Id, reg: u16, value: u64, enables: u8) {
    let command = Command::ConfigWrite { bdf, reg, value: Num(value), enables };
    assert!(matches!(fabric.ask(Part::Host(0), &command), Ok(Answer::Done)));
}

fn read(fabric: &ManagedFabric, bdf: Id, reg: u16) -> u64 {
    match fabric.ask(Part::Host(0), &Command::ConfigRead { bdf, reg }) {
        Ok(Answer::Register { value }) => value,
        other => panic!("{other:?}"),
    }
}

/// The fabric, with MSI of all devices switched off.
fn by_pins() -> ManagedFabric {
    let fabric = up_text("intx", TOPOLOGY);
    assert!(set(&fabric, 0, true).unwrap_err().contains("MSI"));
    let all = devices(&fabric);
    assert_eq!(all.len(), 4);
    for bdf in all {
        let mut at = u16::try_from(read(&fabric, bdf, 0x34) & 0xFC).unwrap();
        while read(&fabric, bdf, at) & 0xFF != 5 {
            at = u16::try_from(read(&fabric, bdf, at) >> 8 & 0xFC).unwrap();
        }
        write(&fabric, bdf, at, 0, 0b0100);
    }
    fabric
}

/// What one device alone makes the host see.
fn pin_of(fabric: &ManagedFabric, device: usize) -> String {
    set(fabric, device, true).unwrap();
    let pins = seen(fabric);
    set(fabric, device, false).unwrap();
    assert_eq!((pins.len(), seen(fabric)), (1, String::new()), "device {device}");
    pins
}

/// Each bridge maps the pin by its number, a pin that two assert is deasserted by the last one, and who goes deasserts.
#[test]
fn levels_are_mapped_collapsed_and_end_with_who_asserted_them() {
    let mut fabric = by_pins();
    let pins: Vec<String> = (0..4).map(|device| pin_of(&fabric, device)).collect();
    assert_ne!(pins[0], pins[1], "two vPPBs of one virtual switch, side by side");
    // Two devices whose pins become the same one above: only the last of them deasserts it.
    let pair = (0..4).flat_map(|a| (a + 1..4).map(move |b| (a, b)));
    let (one, two) = pair.into_iter().find(|(a, b)| pins[*a] == pins[*b]).unwrap_or((0, 0));
    set(&fabric, one, true).unwrap();
    set(&fabric, two, true).unwrap();
    assert_eq!(seen(&fabric), pins[one]);
    set(&fabric, one, false).unwrap();
    assert_eq!(seen(&fabric), if one == two { "" } else { &pins[one] });
    set(&fabric, two, false).unwrap();
    assert_eq!(seen(&fabric), "");

    // Unbound while they are asserted: what is at the host's own switch, and the virtual link to the other one.
    for device in 0..4 {
        set(&fabric, device, true).unwrap();
    }
    assert!(!seen(&fabric).is_empty());
    for vppb in 1..=3 {
        fabric.fm().request(&Request::Unbind { bridge: format!("entry/0/{vppb}") }).unwrap();
    }
    assert_eq!(seen(&fabric), "");
    books(&fabric);
}

/// Interrupt Disable ends the level, and lets it come back; status tells of it in between; a link that goes down ends it.
#[test]
fn software_switches_a_pin_off() {
    let fabric = by_pins();
    let all = devices(&fabric);
    set(&fabric, 3, true).unwrap();
    let pin = seen(&fabric);
    assert_eq!(pin.len(), 1);
    let status = |bdf| read(&fabric, bdf, 4) >> 16 & 8;
    let bdf = all.into_iter().find(|bdf| status(*bdf) != 0).unwrap();
    let command = read(&fabric, bdf, 4) & 0xFFFF;
    write(&fabric, bdf, 4, command | 1 << 10, 0b0011);
    assert_eq!((seen(&fabric), status(bdf)), (String::new(), 8));
    assert!(set(&fabric, 3, true).unwrap_err().contains("Interrupt Disable"));
    write(&fabric, bdf, 4, command, 0b0011);
    assert_eq!(seen(&fabric), pin);
    let wire = {
        let parts = fabric.parts();
        let mut wires = parts.layout().wires.iter();
        wires.position(|wire| wire.iter().any(|end| end.part == Part::Device(3))).unwrap()
    };
    fabric.parts().set_wire(wire, false);
    assert_eq!(seen(&fabric), "");
    books(&fabric);
}
