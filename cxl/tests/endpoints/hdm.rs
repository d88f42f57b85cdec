//! Memory that hosts manage: placed and decoded by the host's software, directly and through HBR switches.
//!
//! A host, switches and memory devices joined by pipes; loads and stores by CXL.mem, and what is refused.
//!
//! Units: bytes, nanoseconds.
//! Source: CXL 3.1 sections 8.2.4.20, 9.13; docs/spec/cxl-fabric.md "HDM decoders", "CXL.mem through HBR switches".

use crate::rig::{Net, Place, RAM, device_config, function, host_config, pattern};
use weft_cxl::cdat::Figures;
use weft_cxl::cxl_device::{FunctionConfig, HdmConfig, HdmMemory};
use weft_cxl::mem::MemOperation;
use weft_cxl::pci::component::hdm::{UNIT, regs};
use weft_cxl::pci::component::{LEN, PRIMARY};
use weft_cxl::pci::cxl::device::{CONTROL, CONTROL_MEM};
use weft_cxl::pci::tree::{Decoded, LeadsTo, Node, ProblemKind};
use weft_cxl::pci::{ByteEnables, Reg, Tree};
use weft_cxl::requester::{Failure, Operation};
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::pipe::Pipe;
use weft_parsers::cxl_mem::{MemHead, MemMessage, MemOp};
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::Mode;

const KINDS: [u16; 3] = [0x0D01, 0x0D02, 0x0D03];
/// Where memory without a place of its own is put first.
const FIRST: u64 = 0x80_0000_0000;

fn memory(device: u16, base: Option<u64>, bytes: u64) -> FunctionConfig {
    let (base, memory) = (base.map(Hpa), HdmMemory::Own(bytes));
    let hdm = HdmConfig { base, memory, figures: Figures::MEMORY };
    FunctionConfig { hdm: Some(hdm), ..function(device) }
}

/// A host with memory devices below an HBR switch, which has a port more.
fn below_switch(mode: Mode, all: Vec<FunctionConfig>) -> Net {
    let mut net = Net::new();
    let host = net.host(host_config(mode));
    let switch = net.switch(&vec![mode; all.len() + 2], true);
    net.join(host, Place::Switch(switch, 0));
    for (at, function) in all.into_iter().enumerate() {
        let device = net.device(device_config(mode, vec![function]));
        net.join(device, Place::Switch(switch, at + 1));
    }
    net
}

fn load(net: &mut Net, addr: u64, len: usize) -> Result<Vec<u8>, Failure> {
    let op = net.hosts[0].0.mem(MemOperation::Load { addr: Hpa(addr), len });
    net.wait(0, op)
}

fn store(net: &mut Net, addr: u64, data: &[u8]) {
    let op = net.hosts[0].0.mem(MemOperation::Store { addr: Hpa(addr), data: data.to_vec() });
    assert_eq!(net.wait(0, op), Ok(vec![]));
}

fn node(tree: &Tree, device: u16) -> &Node {
    tree.iter().find(|node| node.device == device).unwrap()
}

/// Where the memory of a device was placed, if its decoder was committed.
fn placed(net: &Net, device: u16) -> Option<u64> {
    let tree = net.hosts[0].0.tree().unwrap();
    let found = node(tree, device).decoders.iter().find(|decoder| decoder.committed);
    found.map(|decoder| decoder.hpa.base)
}

/// What the memory of a device has.
fn peek(net: &mut Net, device: usize, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    net.devices[device].0.hdm(0).unwrap().read(at, &mut bytes).unwrap();
    bytes
}

/// Loads and stores reach the memory of a device, at its first and last bytes.
fn works(net: &mut Net, device: usize, base: u64, bytes: u64, seed: u64) {
    for (at, len) in [(0, 300), (0x1001, 777), (bytes - 64, 64)] {
        let data = pattern(seed + at, len);
        store(net, base + at, &data);
        assert!(peek(net, device, at, len) == data, "{device} at {at:#x}");
        assert!(load(net, base + at, len) == Ok(data), "{device} at {at:#x}");
    }
}

/// A load is refused, and a store changes nothing in any device.
fn nothing(net: &mut Net, addr: u64) {
    let memories = |net: &mut Net| -> Vec<Vec<u8>> {
        (0..net.devices.len()).map(|at| peek(net, at, 0, 4_096)).collect()
    };
    let before = memories(net);
    assert_eq!(load(net, addr, 64), Err(Failure::NoMemory), "{addr:#x}");
    store(net, addr, &pattern(addr, 64));
    assert!(memories(net) == before, "{addr:#x}");
}

#[test]
fn the_host_places_memory_and_has_it_decoded() {
    for mode in [Mode::NonFlit, Mode::Flit] {
        let all = vec![
            memory(KINDS[0], None, 2 * UNIT),
            memory(KINDS[1], Some(1 << 40), UNIT),
            memory(KINDS[2], None, UNIT),
        ];
        let mut net = below_switch(mode, all);
        net.step();
        for addr in [FIRST, 1 << 40, 0, RAM] {
            nothing(&mut net, addr);
        }
        net.enumerate(0);
        let tree = net.hosts[0].0.tree().unwrap();
        assert_eq!(tree.problems, [], "{tree}");
        assert_eq!(placed(&net, KINDS[2]), Some(FIRST), "the smaller one first");
        assert_eq!(placed(&net, KINDS[0]), Some(FIRST + UNIT));
        assert_eq!(placed(&net, KINDS[1]), Some(1 << 40));
        let switch = tree.iter().find(|node| node.decoders.len() == 3).unwrap();
        let ports: Vec<LeadsTo> = switch.decoders.iter().map(|it| it.to).collect();
        assert_eq!(ports, [3, 1, 2].map(|number| LeadsTo::Port { number }), "{tree}");
        assert!(tree.to_string().contains("HDM 8000000000-800fffffff port 3 committed"), "{tree}");
        assert!(tree.to_string().contains("HDM 10000000000-1000fffffff dpa 0 committed"), "{tree}");
        works(&mut net, 0, FIRST + UNIT, 2 * UNIT, 1);
        works(&mut net, 1, 1 << 40, UNIT, 2);
        works(&mut net, 2, FIRST, UNIT, 3);
        for addr in [FIRST - 64, FIRST + 3 * UNIT, (1 << 40) + UNIT, RAM] {
            nothing(&mut net, addr);
        }
        let counts = net.switches[0].0.counts();
        assert_eq!(counts.mem.no_hdm_decoder, 16, "{counts:?}");
        let sum = counts.passed + counts.own + counts.ended + counts.refused + counts.dropped;
        assert_eq!(counts.came, sum + counts.no_form + counts.other, "{counts:?}");
        net.steps(4);
        assert_eq!(net.used(), 0);
    }
}

/// Directly at the root port there is no switch to decode: the device's own decoder alone decides.
#[test]
fn a_device_at_the_root_port_decodes_by_itself() {
    let mut net = Net::new();
    let host = net.host(host_config(Mode::Flit));
    let device = net.device(device_config(Mode::Flit, vec![memory(KINDS[0], None, UNIT)]));
    net.join(host, device);
    net.step();
    nothing(&mut net, FIRST);
    assert_eq!(net.devices[0].0.counts().0.mem_refused, 2, "it refuses itself");
    net.enumerate(0);
    works(&mut net, 0, FIRST, UNIT, 1);
    nothing(&mut net, FIRST + UNIT);
    // UIO of the host's own domain goes by the same decoder.
    let data = pattern(9, 512);
    let op = net.hosts[0].0.uio_write(Hpa(FIRST + 0x40), &data, None);
    assert_eq!(net.wait(0, op), Ok(vec![]));
    assert!(peek(&mut net, 0, 0x40, 512) == data);
    let op = net.hosts[0].0.uio_read(Hpa(FIRST + UNIT - 64), 128, None);
    assert!(net.wait(0, op).is_err(), "across its end");
}

/// A link that goes down resets a device: nothing is there until the host has set its decoders again, and the memory has its
/// bytes. A function level reset changes neither.
#[test]
fn a_reset_ends_what_was_decoded_and_keeps_the_bytes() {
    let all = vec![memory(KINDS[0], None, UNIT), memory(KINDS[1], None, UNIT)];
    let mut net = below_switch(Mode::Flit, all);
    net.enumerate(0);
    let (one, two) = (placed(&net, KINDS[0]).unwrap(), placed(&net, KINDS[1]).unwrap());
    works(&mut net, 0, one, UNIT, 1);
    works(&mut net, 1, two, UNIT, 2);
    // FLR: Device Control of the PCI Express capability.
    let tree = net.hosts[0].0.tree().unwrap();
    let (bdf, at) = (node(tree, KINDS[0]).bdf, node(tree, KINDS[0]).express.unwrap().1);
    let (reg, enables) = (Reg::at(at + 8), ByteEnables::of(at + 8, 2));
    let flr = Operation::ConfigWrite { dest: bdf, reg, type1: true, value: 1 << 15, enables };
    let op = net.hosts[0].0.submit(flr);
    assert_eq!(net.wait(0, op), Ok(vec![]));
    works(&mut net, 0, one, UNIT, 3);
    // Mem_Enable off, in the DVSEC for CXL devices: committed or not, nothing answers; on again, it does.
    let control = node(net.hosts[0].0.tree().unwrap(), KINDS[0]).memory.unwrap().control + CONTROL;
    let enable = |net: &mut Net, value| {
        let (reg, enables) = (Reg::at(control), ByteEnables::of(control, 2));
        let write = Operation::ConfigWrite { dest: bdf, reg, type1: true, value, enables };
        let op = net.hosts[0].0.submit(write);
        assert_eq!(net.wait(0, op), Ok(vec![]));
    };
    enable(&mut net, 0);
    nothing(&mut net, one);
    enable(&mut net, u32::from(CONTROL_MEM));
    works(&mut net, 0, one, UNIT, 6);
    let data = peek(&mut net, 0, 0, 64);
    net.devices[0].0.hot_reset();
    assert_eq!(net.devices[0].0.component(0).unwrap().hdm().unwrap().list(), []);
    nothing(&mut net, one);
    works(&mut net, 1, two, UNIT, 4);
    net.enumerate(0);
    assert_eq!(placed(&net, KINDS[0]), Some(one), "the same place again");
    assert!(load(&mut net, one, 64) == Ok(data));
    works(&mut net, 1, two, UNIT, 5);
}

/// What comes into a slot later gets a place behind the others, whose decoders stay as they are all the while; what is gone
/// leaves its place.
#[test]
fn a_device_that_comes_later_gets_its_place() {
    let mut net = below_switch(Mode::Flit, vec![memory(KINDS[0], None, UNIT)]);
    net.enumerate(0);
    works(&mut net, 0, FIRST, UNIT, 1);
    let late = net.device(device_config(Mode::Flit, vec![memory(KINDS[1], None, UNIT)]));
    net.join(late, Place::Switch(0, 2));
    settle(&mut net);
    assert_eq!((placed(&net, KINDS[0]), placed(&net, KINDS[1])), (Some(FIRST), Some(FIRST + UNIT)));
    works(&mut net, 0, FIRST, UNIT, 2);
    works(&mut net, 1, FIRST + UNIT, UNIT, 3);
    let refused = net.switches[0].0.counts().mem.no_hdm_decoder;
    net.part(Place::Device(0));
    settle(&mut net);
    assert_eq!(net.switches[0].0.component().hdm().unwrap().list().len(), 1);
    nothing(&mut net, FIRST);
    assert!(net.switches[0].0.counts().mem.no_hdm_decoder > refused, "the switch knows it no more");
    works(&mut net, 1, FIRST + UNIT, UNIT, 4);
}

/// Steps until the host has looked at all slots that changed.
fn settle(net: &mut Net) {
    let mut quiet = 0;
    while quiet < 2_000 {
        net.step();
        quiet = if net.hosts[0].0.is_enumerating() { 0 } else { quiet + 1 };
    }
}

/// What a device says of where it is to be is not believed where something else is; others are not in its way.
#[test]
fn a_place_that_something_has_is_refused() {
    #[rustfmt::skip] // columns: name, where the second device is to be
    let cases = [
        ("another's memory",    1 << 40),
        ("the host's memory",   0),
        ("devices' BARs",       0x40_0000_0000),
        ("devices' registers",  0x8000_0000),
        ("interrupts",          0xF000_0000),
    ];
    for (name, base) in cases {
        let mut first = memory(KINDS[0], Some(1 << 40), UNIT);
        // `Some(0)` is no place to a device: what lies in the host's memory is told by the unit above it.
        let base = if base == 0 { 2 * UNIT } else { base };
        let second = memory(KINDS[1], Some(base), UNIT);
        first.spec.serial = None;
        let mut net = below_switch(Mode::Flit, vec![first, second, memory(KINDS[2], None, UNIT)]);
        if base == 2 * UNIT {
            let mut config = host_config(Mode::Flit);
            config.end.mac = weft_parsers::MacAddr([2, 0, 0, 0, 1, 0x7F]);
            let mut memory = crate::rig::memory();
            let more = weft_cxl::gfd::memory::Memory::anonymous(UNIT);
            memory.add(Hpa(2 * UNIT + 4_096), more).unwrap();
            net.hosts[0].0 = weft_cxl::cxl_host::CxlHost::new(config, memory).unwrap();
        }
        net.enumerate(0);
        let tree = net.hosts[0].0.tree().unwrap();
        let kinds: Vec<ProblemKind> = tree.problems.iter().map(|it| it.kind).collect();
        assert_eq!(
            kinds,
            [ProblemKind::NoPlace { wanted: Some(base), size: UNIT }],
            "{name}: {tree}"
        );
        assert_eq!(placed(&net, KINDS[1]), None, "{name}");
        works(&mut net, 0, 1 << 40, UNIT, 1);
        works(&mut net, 2, FIRST, UNIT, 2);
    }
}

/// A device cannot take more than there is: it gets no place, and others do.
#[test]
fn too_much_memory_is_in_nobody_elses_way() {
    let huge = memory(KINDS[0], None, 1 << 40);
    let mut net = below_switch(Mode::Flit, vec![huge, memory(KINDS[1], None, UNIT)]);
    net.enumerate(0);
    let tree = net.hosts[0].0.tree().unwrap();
    let kinds: Vec<ProblemKind> = tree.problems.iter().map(|it| it.kind).collect();
    assert_eq!(kinds, [ProblemKind::NoPlace { wanted: None, size: 1 << 40 }], "{tree}");
    works(&mut net, 1, FIRST, UNIT, 1);
}

/// The end of a link that a test speaks by itself.
struct Bare {
    end: weft_cxl::tlp_end::TlpEnd,
    port: Pipe,
}

impl Bare {
    fn new(net: &mut Net, place: (usize, usize)) -> Self {
        let (near, far) = net.pipe();
        net.switches[place.0].1[place.1] = Some(far);
        let end = weft_cxl::tlp_end::TlpEnd::new(crate::rig::end(0x55, Mode::Flit, 256));
        Self { end, port: near }
    }

    fn say(&mut self, net: &mut Net, head: MemHead, data: Option<&[u8; 64]>) {
        let message = MemMessage { head, data, enables: None };
        self.end.outbox().send_mem(None, &message).unwrap();
        self.poll(net);
    }

    /// CXL.mem messages that came.
    fn poll(&mut self, net: &mut Net) -> Vec<MemHead> {
        let (now, bufs): (_, &mut Bufs) = (net.now, &mut net.bufs);
        let mut came = Vec::new();
        let polled = self.end.poll(now, &mut self.port, bufs, &mut |frame, _| {
            if let weft_cxl::tlp_end::Received::Mem(None, message) = frame.content {
                came.push(message.head);
            }
        });
        polled.unwrap();
        came
    }
}

/// A hostile device below a switch answers for another one, asks, and snoops: nothing of that gets anywhere. Tags that it was
/// never asked by are another's.
#[test]
fn no_device_speaks_for_another_one() {
    let mut net = below_switch(Mode::Flit, vec![memory(KINDS[0], None, UNIT)]);
    let mut hostile = Bare::new(&mut net, (0, 2));
    net.enumerate(0);
    works(&mut net, 0, FIRST, UNIT, 1);
    let before = net.switches[0].0.counts().mem;
    // The host waits for a line of the honest device, by some tag: all of them are answered by the hostile one first.
    let want = pattern(2, 64);
    store(&mut net, FIRST, &want);
    let op = net.hosts[0].0.mem(MemOperation::Load { addr: Hpa(FIRST), len: 64 });
    for tag in 0..256 {
        hostile.say(&mut net, MemHead::new(MemOp::MemData, tag), Some(&[0xEE; 64]));
    }
    assert!(net.wait(0, op) == Ok(want.clone()));
    net.steps(10);
    for head in [MemHead::new(MemOp::Cmp, 0), MemHead::new(MemOp::MemDataNxm, 1)] {
        hostile.say(&mut net, head, Some(&[0xEE; 64]));
    }
    let line = MemHead { addr: Hpa(FIRST), ..MemHead::new(MemOp::MemWr, 0) };
    hostile.say(&mut net, line, Some(&[0xEE; 64]));
    hostile.say(&mut net, MemHead { addr: Hpa(FIRST), ..MemHead::new(MemOp::MemRd, 0) }, None);
    hostile.say(&mut net, MemHead { addr: Hpa(FIRST), ..MemHead::new(MemOp::BiSnpInv, 0) }, None);
    net.steps(10);
    assert_eq!(hostile.poll(&mut net), [], "nobody answers it");
    let after = net.switches[0].0.counts().mem;
    assert_eq!(after.unexpected - before.unexpected, 258, "{after:?}");
    assert_eq!((after.wrong_direction, after.no_back_invalidate), (2, 1), "{after:?}");
    assert!(load(&mut net, FIRST, 64) == Ok(want), "nothing was written");
    // It cannot reach the registers of the switch either, wherever it writes to.
    let decoders = net.switches[0].0.component().clone();
    let bar = u64::from(net.switches[0].0.bridges()[0].read(Reg::at(0x10)) & !0xFFFF);
    assert!(bar != 0);
    let (mode, kind) = (Mode::Flit, weft_parsers::tlp::Kind::MemWrite);
    for at in [bar + PRIMARY + 0x10 + u64::from(regs::decoder(0) + regs::DECODER), bar + LEN - 4] {
        let body = weft_parsers::tlp::Body::Address {
            addr: Hpa(at),
            wide: false,
            at: weft_parsers::tlp::At::Untranslated,
            no_write: false,
            length_dw: 1,
            first_be: 0xF,
            last_be: 0,
        };
        let me = weft_parsers::fabric::Bdf::new(4, 0, 0);
        let tlp = weft_parsers::tlp::TlpRepr::new(mode, kind, me, 0, body);
        let tlp = weft_parsers::tlp::TlpRepr { payload: &[0; 4], ..tlp };
        hostile.end.outbox().send(None, &tlp).unwrap();
        hostile.poll(&mut net);
        net.steps(10);
    }
    assert!(*net.switches[0].0.component() == decoders);
}

/// UIO goes down by the decoders of a switch, also between two below it, and back by id; a completion for another segment goes up,
/// whoever below the switch has that id.
#[test]
fn uio_goes_by_the_decoders_of_a_switch_and_back_by_id() {
    for segment in [None, Some(7)] {
        let mut net =
            below_switch(Mode::Flit, vec![memory(KINDS[0], None, UNIT), function(KINDS[1])]);
        if let Some(segment) = segment {
            let (host, link) = net.hosts.remove(0);
            net.hosts.insert(0, (host.in_segment(segment), link));
        }
        let mut bare = Bare::new(&mut net, (0, 3));
        net.enumerate(0);
        let data = pattern(5, 2_000);
        let op = net.hosts[0].0.uio_write(Hpa(FIRST + 0x40), &data, None);
        assert_eq!(net.wait(0, op), Ok(vec![]));
        assert!(peek(&mut net, 0, 0x40, 2_000) == data);
        let op = net.hosts[0].0.uio_read(Hpa(FIRST + 0x40), 2_000, None);
        assert!(net.wait(0, op) == Ok(data.clone()));
        let asked = net.hosts[0].0.counts().0.tlps.requests;
        let other = pattern(6, 2_000);
        let ask = |net: &mut Net, operation| {
            let op = net.devices[1].0.submit(0, operation).unwrap();
            net.device_wait(1, op).result
        };
        let write = Operation::UioWrite { addr: Hpa(FIRST + 0x4000), data: other.clone() };
        assert_eq!(ask(&mut net, write), Ok(vec![]));
        let read = |at, len| Operation::UioRead { addr: Hpa(at), len };
        assert!(ask(&mut net, read(FIRST + 0x4000, 2_000)) == Ok(other.clone()));
        assert!(peek(&mut net, 0, 0x4000, 2_000) == other);
        assert_eq!(net.hosts[0].0.counts().0.tlps.requests, asked, "between the two alone");
        // Not by a bridge that is no bus master, and not behind the memory.
        let refused = Err(Failure::Status(weft_parsers::tlp::Status::UnsupportedRequest));
        assert_eq!(ask(&mut net, read(FIRST + UNIT, 64)), refused);
        let tree = net.hosts[0].0.tree().unwrap();
        let leads = |node: &&Node| node.nodes().iter().any(|below| below.device == KINDS[1]);
        let bridge = tree.iter().find(leads).unwrap().bdf;
        let id = node(tree, KINDS[1]).bdf;
        for (value, ok) in [(2, false), (6, true)] {
            let (reg, enables) = (Reg::at(4), ByteEnables::of(4, 2));
            let write = Operation::ConfigWrite { dest: bridge, reg, type1: true, value, enables };
            let op = net.hosts[0].0.submit(write);
            assert_eq!(net.wait(0, op), Ok(vec![]));
            assert_eq!(ask(&mut net, read(FIRST, 64)).is_ok(), ok, "command {value}");
        }
        let op = net.hosts[0].0.uio_read(Hpa(FIRST + UNIT), 64, None);
        assert_eq!(net.wait(0, op), refused);
        // A completion that names the peer's id: of this segment it is the peer's, of another one somebody's above.
        let counts =
            |net: &Net| (net.devices[1].0.counts().1.unexpected, net.switches[0].0.counts());
        for (named, is_peers) in [(segment, true), (None, true), (Some(9), false)] {
            let before = counts(&net);
            let body = weft_parsers::tlp::Body::UioCompletion {
                completer: weft_parsers::fabric::Bdf::new(5, 0, 0),
                completer_segment: named,
                status: weft_parsers::tlp::Status::Success,
                dev_load: weft_parsers::tlp::DevLoad::Light,
                offset_dw: 0,
            };
            let kind = weft_parsers::tlp::Kind::UioWriteCompletion;
            let tlp = weft_parsers::tlp::TlpRepr::new(Mode::Flit, kind, id, 0x1FF, body);
            let tlp = weft_parsers::tlp::TlpRepr { dest_segment: named, ..tlp };
            bare.end.outbox().send(None, &tlp).unwrap();
            bare.poll(&mut net);
            net.steps(10);
            let after = counts(&net);
            assert_eq!(after.1.passed, before.1.passed + 1, "{named:?}");
            assert_eq!(after.0 - before.0, u64::from(is_peers), "{named:?}");
        }
    }
}

/// A late answer by a device that was asked before is none to the one that is asked now by the same tag.
#[test]
fn an_answer_that_comes_too_late_is_dropped() {
    let all = vec![memory(KINDS[0], None, UNIT), memory(KINDS[1], None, UNIT)];
    let mut net = below_switch(Mode::Flit, all);
    net.enumerate(0);
    // The links of the host and of the second device are taken over, and stay up all the while.
    let mut above = Bare::new(&mut net, (0, 0));
    let mut below = Bare::new(&mut net, (0, 2));
    let ask = |addr| MemHead { addr: Hpa(addr), ..MemHead::new(MemOp::MemRd, 7) };
    above.say(&mut net, ask(FIRST + UNIT), None);
    net.steps(4);
    assert_eq!(below.poll(&mut net), [ask(FIRST + UNIT)], "it is asked, and does not answer");
    above.say(&mut net, ask(FIRST), None);
    net.steps(4);
    let answer = MemHead::new(MemOp::MemData, 7);
    assert_eq!(above.poll(&mut net), [answer], "by the first device");
    below.say(&mut net, answer, Some(&[0xEE; 64]));
    net.steps(4);
    assert_eq!((above.poll(&mut net), net.switches[0].0.counts().mem.unexpected), (vec![], 1));
    // In time it is taken; a link that was down meanwhile is not remembered.
    above.say(&mut net, ask(FIRST + UNIT), None);
    net.steps(4);
    below.say(&mut net, answer, Some(&[1; 64]));
    net.steps(4);
    assert_eq!(above.poll(&mut net), [answer]);
    above.say(&mut net, ask(FIRST + UNIT), None);
    net.steps(4);
    below.port.set_link(false);
    net.step();
    below.port.set_link(true);
    net.step();
    below.say(&mut net, answer, Some(&[1; 64]));
    net.steps(4);
    assert_eq!((above.poll(&mut net), net.switches[0].0.counts().mem.unexpected), (vec![], 2));
}

/// Any messages from both sides: each is passed, refused or dropped for one reason, and nothing goes down that no decoder has.
#[test]
fn any_message_is_passed_refused_or_dropped() {
    let all = vec![memory(KINDS[0], None, UNIT), memory(KINDS[1], None, UNIT)];
    let mut net = below_switch(Mode::Flit, all);
    net.enumerate(0);
    let mut above = Bare::new(&mut net, (0, 0));
    let mut below = Bare::new(&mut net, (0, 2));
    let before = net.switches[0].0.counts();
    let mut rng = weft_base::rng::Rng::new(0x004D_454D);
    let (mut answered, mut went_down) = (0, 0);
    for _ in 0..20_000 {
        let op = MemOp::ALL[usize::try_from(rng.below(MemOp::ALL.len() as u64)).unwrap()];
        let tag = u16::try_from(rng.below(8)).unwrap();
        let addr = Hpa(FIRST - UNIT + rng.below(4 * UNIT) / 64 * 64);
        let head = MemHead { addr, ..MemHead::new(op, tag) };
        let line = op.class().has_data().then_some(&[7; 64]);
        if rng.below(2) == 0 {
            above.say(&mut net, head, line);
        } else {
            below.say(&mut net, head, line);
        }
        net.step();
        for came in below.poll(&mut net) {
            went_down += 1;
            assert!((FIRST + UNIT..FIRST + 2 * UNIT).contains(&came.addr.0), "{came:?}");
        }
        answered += above.poll(&mut net).len();
    }
    net.steps(20);
    answered += above.poll(&mut net).len();
    let after = net.switches[0].0.counts();
    let (mem, was) = (after.mem, before.mem);
    assert_eq!(
        after.passed - before.passed,
        mem.requests - was.requests + mem.answers - was.answers
    );
    let dropped = mem.unexpected + mem.wrong_direction + mem.no_back_invalidate;
    let refused = mem.no_hdm_decoder + mem.no_link;
    let judged = after.refused + after.dropped - before.refused - before.dropped;
    assert_eq!(judged, dropped + refused, "{after:?}");
    assert!(went_down > 500 && answered > 500, "{after:?}");
    let all = after.passed + after.own + after.ended + after.refused + after.dropped;
    assert_eq!(after.came, all + after.no_form + after.other, "{after:?}");
}

fn decoded(base: u64, to: LeadsTo) -> Decoded {
    let hpa = weft_cxl::pci::bridge::Window { base, limit: base + UNIT - 1 };
    Decoded { hpa, to, committed: true, reached: None }
}

/// Two levels of switches: each leads to the next, and the host sees what each was given.
#[test]
fn switches_below_switches_lead_on() {
    let mut net = Net::new();
    let host = net.host(host_config(Mode::Flit));
    let [top, low] = [3, 3].map(|count| net.switch(&vec![Mode::Flit; count], true));
    net.join(host, Place::Switch(top, 0));
    net.join(Place::Switch(top, 2), Place::Switch(low, 0));
    for (at, place) in [(0, Place::Switch(top, 1)), (1, Place::Switch(low, 2))] {
        let device = net.device(device_config(Mode::Flit, vec![memory(KINDS[at], None, UNIT)]));
        net.join(device, place);
    }
    net.enumerate(0);
    let tree = net.hosts[0].0.tree().unwrap();
    assert_eq!(tree.problems, [], "{tree}");
    let port = |number| LeadsTo::Port { number };
    let switches: Vec<&[Decoded]> = tree
        .iter()
        .filter(|it| it.device == 0x200 && !it.decoders.is_empty())
        .map(|it| &it.decoders[..])
        .collect();
    let want = [
        vec![decoded(FIRST, port(1)), decoded(FIRST + UNIT, port(2))],
        vec![decoded(FIRST + UNIT, port(2))],
    ];
    assert_eq!(switches, want, "{tree}");
    works(&mut net, 0, FIRST, UNIT, 1);
    works(&mut net, 1, FIRST + UNIT, UNIT, 2);
}

/// More devices than a switch has decoders: the last one in order of address is not reached, and the host says so.
#[test]
fn a_switch_without_enough_decoders_is_a_problem() {
    let mut net = Net::new();
    let host = net.host(host_config(Mode::Flit));
    let top = net.switch(&[Mode::Flit; 4], true);
    net.join(host, Place::Switch(top, 0));
    for low in 0..3_u16 {
        let switch = net.switch(&[Mode::Flit; 12], true);
        net.join(Place::Switch(top, usize::from(low) + 1), Place::Switch(switch, 0));
        for at in 0..11 {
            let function = memory(0x0E00 + 11 * low + at, None, UNIT);
            let device = net.device(device_config(Mode::Flit, vec![function]));
            net.join(device, Place::Switch(switch, usize::from(at) + 1));
        }
    }
    net.enumerate(0);
    let tree = net.hosts[0].0.tree().unwrap();
    let problems = tree.problems.iter().map(|it| it.kind).filter(|kind| kind.is_of_memory());
    assert_eq!(problems.collect::<Vec<_>>(), [ProblemKind::Decoders], "{tree}");
    let top = tree.iter().find(|node| node.device == 0x200).unwrap();
    let committed: Vec<bool> = top.decoders.iter().map(|it| it.committed).collect();
    assert_eq!(committed, [[true; 32].as_slice(), &[false]].concat(), "{tree}");
    works(&mut net, 31, FIRST + 31 * UNIT, UNIT, 1);
    nothing(&mut net, FIRST + 32 * UNIT);
}
