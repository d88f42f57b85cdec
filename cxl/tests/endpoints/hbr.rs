//! HBR switches between a host and its devices.
//!
//! A host, switches and devices joined by pipes; figures of the standard as tests of their own.
//!
//! Units: bytes, nanoseconds.
//! Source: PCIe 6.0 sections 2.2.4, 2.2.8, 6.7; docs/spec/wire-formats.md §3.4.

use crate::rig::{Net, Place, RAM, device_config, function, host_config, pattern};
use weft_cxl::completer::Target;
use weft_cxl::cxl_host::Event;
use weft_cxl::gfd::memory::Memory;
use weft_cxl::pci::{Reg, Tree};
use weft_cxl::requester::{Failure, Operation, Transaction};
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{Mode, Status};

const DEVICES: [u16; 3] = [0x0D01, 0x0D02, 0x0D03];

/// A host, a switch, and so many of the devices.
fn net(host: Mode, modes: [Mode; 3], count: usize, surprise: bool) -> Net {
    let mut net = Net::new();
    let top = net.host(host_config(host));
    let switch = net.switch(&[&[host][..], &modes].concat(), surprise);
    net.join(top, Place::Switch(switch, 0));
    for (at, device) in DEVICES.iter().enumerate().take(count) {
        let place = net.device(device_config(modes[at], vec![function(*device)]));
        net.join(place, Place::Switch(switch, at + 1));
    }
    net
}

fn ids(tree: &Tree) -> Vec<(Bdf, u16)> {
    tree.iter().map(|node| (node.bdf, node.device)).collect()
}

fn bytes(memory: &Memory, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(at, &mut bytes).unwrap();
    bytes
}

#[test]
fn the_host_sees_the_switch_and_three_devices() {
    for mode in [Mode::NonFlit, Mode::Flit] {
        let mut net = net(mode, [mode; 3], 3, true);
        net.enumerate(0);
        let tree = net.hosts[0].0.tree().unwrap();
        assert_eq!(tree.problems, [], "{tree}");
        let found = ids(tree);
        let buses: Vec<u8> = found.iter().map(|(bdf, _)| bdf.bus()).collect();
        let kinds: Vec<u16> = found.iter().map(|(_, device)| *device).collect();
        let [one, two, three] = DEVICES;
        assert_eq!(kinds, [0x100, 0x200, 0x200, one, 0x200, two, 0x200, three], "{tree}");
        assert_eq!((buses[0], buses[1], buses[2], buses[4], buses[6]), (0, 1, 2, 2, 2), "{tree}");
        for (at, device) in DEVICES.iter().enumerate() {
            let bar = net.bar(0, *device, 0);
            let data = pattern(at as u64, 3_000);
            net.hosts[0].0.write(Hpa(bar + 3), &data);
            assert!(net.read(0, bar + 3, data.len()) == Ok(data.clone()), "{mode:?} {at}");
            assert_eq!(bytes(net.devices[at].0.bar(0, 0).unwrap(), 3, data.len()), data);
        }
        let counts = net.switches[0].0.counts();
        let sum = counts.passed + counts.own + counts.ended + counts.refused + counts.dropped;
        assert_eq!(counts.came, sum + counts.no_form + counts.other, "{counts:?}");
        net.steps(4);
        assert_eq!(net.used(), 0);
    }
}

/// PCIe 6.0 section 2.2.4.1, TLP1: from the RC to EP1, by the windows of P-P1 and P-P2.
#[test]
fn figure_5_5_tlp1_goes_down_by_the_windows() {
    let mut net = net(Mode::Flit, [Mode::Flit; 3], 2, true);
    net.enumerate(0);
    let bar = net.bar(0, DEVICES[0], 0);
    net.hosts[0].0.write(Hpa(bar), &[1, 2, 3, 4]);
    net.steps(6);
    assert_eq!(bytes(net.devices[0].0.bar(0, 0).unwrap(), 0, 4), [1, 2, 3, 4]);
    // "otherwise as an unsupported request": beyond P-P1's windows
    let refused = Err(Failure::Status(Status::UnsupportedRequest));
    let before = net.switches[0].0.counts().refused;
    assert_eq!(net.read(0, 0x7F_0000_0000, 4), refused);
    assert_eq!(net.switches[0].0.counts().refused, before + 1);
    let port = u32::try_from(net.bar(0, DEVICES[0], 2)).unwrap();
    let op = net.hosts[0].0.submit(Operation::IoWrite { port, data: vec![5, 6] });
    assert_eq!(net.wait(0, op), Ok(vec![]));
    assert_eq!(bytes(net.devices[0].0.bar(0, 2).unwrap(), 0, 2), [5, 6]);
}

/// PCIe 6.0 section 2.2.4.1, TLP2: from EP2 to the RC; completions come back by id (2.2.4.2).
#[test]
fn figure_5_5_tlp2_goes_up_when_nobody_below_claims_it() {
    let mut net = net(Mode::Flit, [Mode::Flit; 3], 2, true);
    net.enumerate(0);
    let data = pattern(2, 4_000);
    let write = Operation::Write { addr: Hpa(RAM), data: data.clone() };
    net.devices[1].0.submit(0, write).unwrap();
    let op = net.devices[1].0.submit(0, Operation::Read { addr: Hpa(RAM), len: 4_000 }).unwrap();
    assert!(net.device_wait(1, op).result == Ok(data.clone()));
    let mut there = vec![0; 4_000];
    assert!(net.hosts[0].0.memory().read(RAM, &mut there) && there == data);
}

/// PCIe 6.0 section 2.2.4.1, TLP3: from EP2 to EP1, without the RC.
#[test]
fn figure_5_5_tlp3_goes_to_the_peer_that_claims_it() {
    let mut net = net(Mode::Flit, [Mode::Flit; 3], 2, true);
    net.enumerate(0);
    let bar = net.bar(0, DEVICES[0], 0);
    let before = net.hosts[0].0.counts().0.tlps.requests;
    let data = pattern(3, 2_000);
    let write = Operation::Write { addr: Hpa(bar + 8), data: data.clone() };
    net.devices[1].0.submit(0, write).unwrap();
    let op =
        net.devices[1].0.submit(0, Operation::Read { addr: Hpa(bar + 8), len: 2_000 }).unwrap();
    assert!(net.device_wait(1, op).result == Ok(data.clone()));
    assert_eq!(bytes(net.devices[0].0.bar(0, 0).unwrap(), 8, 2_000), data);
    assert_eq!(net.hosts[0].0.counts().0.tlps.requests, before, "the host saw nothing of it");
    // UIO between the two goes the same way
    let op =
        net.devices[1].0.submit(0, Operation::UioRead { addr: Hpa(bar + 8), len: 2_000 }).unwrap();
    assert!(net.device_wait(1, op).result == Ok(data));
    // into its own link's windows: nobody's
    let own = net.bar(0, DEVICES[1], 0);
    let op = net.devices[1].0.submit(0, Operation::Read { addr: Hpa(own), len: 4 }).unwrap();
    let refused = Err(Failure::Status(Status::UnsupportedRequest));
    assert_eq!(net.device_wait(1, op).result, refused);
}

/// PCIe 6.0 section 2.2.4.2: type 1 becomes type 0 at its bus; what is not there is unsupported.
#[test]
fn section_5_2_2_configuration_finds_its_bus() {
    let mut net = net(Mode::NonFlit, [Mode::NonFlit; 3], 2, true);
    net.enumerate(0);
    let found = ids(net.hosts[0].0.tree().unwrap());
    let second = found.iter().find(|(_, device)| *device == DEVICES[1]).unwrap().0;
    let reg = Reg::at(0);
    let vendor = |dest: Bdf| Operation::ConfigRead { dest, reg, type1: dest.bus() > 1 };
    let [high, low] = DEVICES[1].to_be_bytes();
    let op = net.hosts[0].0.submit(vendor(second));
    assert_eq!(net.wait(0, op), Ok(vec![0x98, 0x1E, low, high]));
    let refused = Err(Failure::Status(Status::UnsupportedRequest));
    for dest in [
        Bdf::new(second.bus(), 1, 0), // a link has one device
        Bdf::new(2, 9, 0),            // no such bridge on the bus within
        Bdf::new(0xF0, 0, 0),         // beyond the subordinate bus
        Bdf::new(1, 3, 0),            // type 0 crosses no bridge
    ] {
        let op = net.hosts[0].0.submit(vendor(dest));
        assert_eq!(net.wait(0, op), refused, "{dest}");
    }
}

/// PCIe 6.0 section 2.2.8: a broadcast reaches all below, and one `PME_TO_Ack` goes up when all have answered.
#[test]
fn section_5_2_3_one_answer_is_gathered_from_all() {
    let mut net = net(Mode::Flit, [Mode::Flit; 3], 3, true);
    net.enumerate(0);
    let held = net.devices[2].1.take();
    net.hosts[0].0.turn_off();
    net.steps(20);
    assert_eq!(net.hosts[0].0.next_event(), None, "one has not answered");
    net.devices[2].1 = held;
    net.until(0, |event| (event == Event::TurnedOff).then_some(()));
    net.steps(20);
    assert_eq!(net.hosts[0].0.next_event(), None, "one answer for all");
    let counts = net.switches[0].0.counts();
    assert_eq!(
        net.devices.iter().map(|it| it.0.counts().0.tlps.messages).collect::<Vec<_>>(),
        [1; 3]
    );
    assert!(counts.ended >= 3, "{counts:?}");
}

/// Links of both modes at one switch: headers change on the way, and what has no form is refused.
#[test]
fn modes_are_translated_between_links() {
    let mut net = net(Mode::Flit, [Mode::NonFlit, Mode::Flit, Mode::NonFlit], 3, true);
    net.enumerate(0);
    for (at, device) in DEVICES.iter().enumerate() {
        let bar = net.bar(0, *device, 0);
        let data = pattern(at as u64, 1_000);
        net.hosts[0].0.write(Hpa(bar + 1), &data);
        assert!(net.read(0, bar + 1, 1_000) == Ok(data.clone()), "{at}");
        let write = Operation::Write { addr: Hpa(RAM + 1), data: data.clone() };
        net.devices[at].0.submit(0, write).unwrap();
        let op = net.devices[at].0.submit(0, Operation::Read { addr: Hpa(RAM + 1), len: 1_000 });
        assert!(net.device_wait(at, op.unwrap()).result == Ok(data), "{at}");
    }
    let bar = net.bar(0, DEVICES[0], 0);
    let op = net.hosts[0].0.uio_read(Hpa(bar), 64, None);
    assert_eq!(net.wait(0, op), Err(Failure::Status(Status::UnsupportedRequest)));
    assert_eq!(net.switches[0].0.counts().no_form, 1);
}

#[test]
fn switches_below_switches() {
    let mut net = Net::new();
    let host = net.host(host_config(Mode::Flit));
    let top = net.switch(&[Mode::Flit; 3], true);
    let bottom = net.switch(&[Mode::Flit; 3], true);
    net.join(host, Place::Switch(top, 0));
    net.join(Place::Switch(top, 1), Place::Switch(bottom, 0));
    let places = [Place::Switch(bottom, 1), Place::Switch(bottom, 2), Place::Switch(top, 2)];
    for (device, place) in DEVICES.iter().zip(places) {
        let at = net.device(device_config(Mode::Flit, vec![function(*device)]));
        net.join(at, place);
    }
    net.enumerate(0);
    let tree = net.hosts[0].0.tree().unwrap();
    let kinds: Vec<u16> = ids(tree).iter().map(|(_, device)| *device).collect();
    let [one, two, three] = DEVICES;
    let want = [0x100, 0x200, 0x200, 0x200, 0x200, one, 0x200, two, 0x200, three];
    assert_eq!(kinds, want, "{tree}");
    assert_eq!(tree.problems, [], "{tree}");
    // from below one switch to below the other
    let bar = net.bar(0, three, 0);
    let data = pattern(1, 1_500);
    net.devices[0].0.submit(0, Operation::Write { addr: Hpa(bar), data: data.clone() }).unwrap();
    let op = net.devices[0].0.submit(0, Operation::Read { addr: Hpa(bar), len: 1_500 }).unwrap();
    assert!(net.device_wait(0, op).result == Ok(data));
    net.hosts[0].0.turn_off();
    net.until(0, |event| (event == Event::TurnedOff).then_some(()));
}

/// PCIe 6.0 section 6.7: what is put into a slot is found by the interrupt alone, and what goes is taken out.
#[test]
fn devices_come_and_go() {
    for surprise in [true, false] {
        let mut net = net(Mode::Flit, [Mode::Flit; 3], 1, surprise);
        net.enumerate(0);
        assert_eq!(net.hosts[0].0.tree().unwrap().iter().count(), 6);
        let late = net.device(device_config(Mode::Flit, vec![function(DEVICES[1])]));
        net.join(late, Place::Switch(0, 2));
        net.until(0, |event| matches!(event, Event::Enumerated(Ok(()))).then_some(()));
        net.steps(2_000);
        let tree = net.hosts[0].0.tree().unwrap();
        assert!(tree.iter().any(|node| node.device == DEVICES[1]), "{tree}");
        let bar = net.bar(0, DEVICES[1], 0);
        net.hosts[0].0.write(Hpa(bar), &[3; 16]);
        assert_eq!(net.read(0, bar, 16), Ok(vec![3; 16]));
        // and vanishes with a request under way
        net.part(Place::Switch(0, 2));
        let op = net.hosts[0].0.read(Hpa(bar), 16);
        let gone = net.wait(0, op);
        assert_eq!(gone, Err(Failure::Status(Status::UnsupportedRequest)), "{surprise}");
        net.steps(2_000);
        let tree = net.hosts[0].0.tree().unwrap();
        assert!(!tree.iter().any(|node| node.device == DEVICES[1]), "{tree}");
        assert_eq!(net.read(0, net.bar(0, DEVICES[0], 0), 4), Ok(vec![0; 4]));
        // a slot that does not allow it: an error goes to the root, once software listens
        let lost = net.switches[0].0.bridges()[2].errors() & 1 << 5 != 0;
        assert_eq!(lost, !surprise);
    }
}

/// What is put into a slot while the host enumerates for the first time, at whatever moment of that, is found.
#[test]
fn what_comes_while_the_host_enumerates_is_found() {
    for before in (0..2_400).step_by(60) {
        let mut net = net(Mode::Flit, [Mode::Flit; 3], 1, true);
        net.step();
        net.hosts[0].0.enumerate();
        net.steps(before);
        let late = net.device(device_config(Mode::Flit, vec![function(DEVICES[1])]));
        net.join(late, Place::Switch(0, 2));
        let mut quiet = 0;
        while quiet < 2_000 {
            net.step();
            quiet = if net.hosts[0].0.is_enumerating() { 0 } else { quiet + 1 };
        }
        let tree = net.hosts[0].0.tree().unwrap();
        assert!(tree.iter().any(|node| node.device == DEVICES[1]), "after {before}: {tree}");
    }
}

/// PCIe 5.0 section 2.2.10.1: a local prefix is of one link. What names a PID or an LD below a switch goes no further, so that no device
/// there speaks for the whole link above.
#[test]
fn a_local_prefix_goes_no_further() {
    let mut net = net(Mode::Flit, [Mode::Flit; 3], 2, true);
    net.enumerate(0);
    let before = net.switches[0].0.counts().refused;
    for bits in [0x0A1, 0xFFF] {
        let operation = Operation::UioRead { addr: Hpa(RAM), len: 64 };
        let to = Some(Pid::from_low_bits(bits));
        let op = net.devices[0].0.submit(0, Transaction { to, ..operation.into() }).unwrap();
        let done = net.device_wait(0, op);
        assert_eq!(done.result, Err(Failure::Status(Status::UnsupportedRequest)), "{bits:#x}");
    }
    assert_eq!(net.switches[0].0.counts().refused, before + 2);
}
