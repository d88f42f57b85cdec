//! `CacheID`s below HBR switches: given by the host's software, at every switch on the way, and CXL.cache routed by them.
//!
//! A host, switches and devices joined by pipes; then ends of links that a test speaks by itself.
//!
//! Units: bytes, nanoseconds.
//! Source: CXL 3.1 sections 8.1.3, 8.2.4.28, 8.2.4.29; docs/spec/cxl-fabric.md "CXL.cache".

use crate::rig::{Net, Place, device_config, end, function, host_config};
use weft_cxl::cxl_device::FunctionConfig;
use weft_cxl::cxl_host::{Event, HostConfig};
use weft_cxl::pci::cxl::{CxlKind, CxlSpec};
use weft_cxl::pci::enumerate::CacheIdFailure;
use weft_cxl::pci::tree::{Node, Problem, ProblemKind};
use weft_cxl::pci::{PortKind, Reg};
use weft_cxl::tlp_end::{Received, TlpEnd};
use weft_dataplane::port::pipe::Pipe;
use weft_parsers::cxl_cache::{CacheHead, CacheMessage, CacheOp};
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::Mode;

/// An accelerator with a cache of its host's memory.
fn cache(device: u16) -> FunctionConfig {
    let mut function = function(device);
    function.spec.bars[2] = None; // there is not enough I/O space for many
    function.spec.cxl = Some(CxlSpec { kind: CxlKind::Type1, memory: 0, base: 0 });
    function
}

fn add(net: &mut Net, function: FunctionConfig, at: Place) {
    let device = net.device(device_config(Mode::Flit, vec![function]));
    net.join(device, at);
}

fn without_hot_plug() -> HostConfig {
    HostConfig { hot_plug: false, ..host_config(Mode::Flit) }
}

/// A host, a switch with device 1 at its port 1 and a switch at its port 2, which has devices 2 and 3 at its ports 1 and 3.
fn two_switches() -> Net {
    let mut net = Net::new();
    let host = net.host(without_hot_plug());
    let (outer, inner) = (net.switch(&[Mode::Flit; 4], true), net.switch(&[Mode::Flit; 4], true));
    net.join(host, Place::Switch(outer, 0));
    net.join(Place::Switch(outer, 2), Place::Switch(inner, 0));
    add(&mut net, cache(0x0D01), Place::Switch(outer, 1));
    add(&mut net, cache(0x0D02), Place::Switch(inner, 1));
    add(&mut net, cache(0x0D03), Place::Switch(inner, 3));
    net
}

fn bdf(net: &Net, device: u16) -> Bdf {
    let tree = net.hosts[0].0.tree().unwrap();
    tree.iter().find(|node| node.device == device).unwrap().bdf
}

/// What the tree says of each switch, the outer one first.
fn tables(net: &Net) -> Vec<Vec<(u8, u8)>> {
    let tree = net.hosts[0].0.tree().unwrap();
    let switches = tree.iter().filter(|node| node.kind() == Some(PortKind::Upstream));
    let of = |node: &Node| node.cache_ids.iter().map(|it| (it.cache_id, it.port)).collect();
    switches.map(of).collect()
}

/// Whether the host has switched the cache of a device on: `Cache_Enable` in its DVSEC.
fn is_on(net: &Net, device: usize) -> bool {
    let space = net.devices[device].0.function(0).unwrap().space();
    let tree = net.hosts[0].0.tree().unwrap();
    let at = tree.iter().find_map(|node| node.cache_control).unwrap(); // all are made alike
    space.get16(at + 0x0A) & 1 != 0 && space.get16(at + 0x0C) & 1 != 0
}

fn problems(net: &Net) -> Vec<Problem> {
    net.hosts[0].0.tree().unwrap().problems.clone()
}

fn give(net: &mut Net, device: u16, id: Option<u8>) -> Result<(), CacheIdFailure> {
    let bdf = bdf(net, device);
    assert!(net.hosts[0].0.set_cache_id(bdf, id));
    net.until(0, |event| match event {
        Event::CacheId { result, .. } => Some(result),
        _ => None,
    })
}

//= docs/spec/cxl-fabric.md "CacheID": at each switch on the way, by itself and by command
#[test]
fn software_gives_cache_ids_at_every_switch_on_the_way() {
    let mut net = two_switches();
    for round in 0..2 {
        net.enumerate(0);
        assert_eq!(tables(&net), [vec![(0, 1), (1, 2), (2, 2)], vec![(1, 1), (2, 3)]], "{round}");
        assert!((0..3).all(|device| is_on(&net, device)), "{round}");
        assert_eq!(problems(&net), []);
    }
    // Others, in place of those; what is another's is refused, and changes nothing.
    assert_eq!(give(&mut net, 0x0D02, Some(15)), Ok(()));
    assert_eq!(tables(&net), [vec![(0, 1), (2, 2), (15, 2)], vec![(2, 3), (15, 1)]]);
    let taken = |cache_id, port| Err(CacheIdFailure::Taken { cache_id, port });
    assert_eq!(give(&mut net, 0x0D02, Some(0)), taken(0, 1));
    assert_eq!(give(&mut net, 0x0D02, Some(2)), taken(2, 3));
    assert_eq!(give(&mut net, 0x0D01, Some(15)), taken(15, 2));
    assert_eq!(tables(&net), [vec![(0, 1), (2, 2), (15, 2)], vec![(2, 3), (15, 1)]]);
    assert!((0..3).all(|device| is_on(&net, device)));
    // Taken back, it is off; the next enumeration gives it the lowest that is free.
    assert_eq!(give(&mut net, 0x0D02, None), Ok(()));
    assert_eq!(tables(&net), [vec![(0, 1), (2, 2)], vec![(2, 3)]]);
    assert!(!is_on(&net, 1) && is_on(&net, 2));
    net.enumerate(0);
    assert_eq!(tables(&net), [vec![(0, 1), (1, 2), (2, 2)], vec![(1, 1), (2, 3)]]);
    assert!(is_on(&net, 1));
    // A device that is gone takes its CacheID with it, at both switches, and another port may have it.
    net.part(Place::Device(1));
    net.enumerate(0);
    assert_eq!(tables(&net), [vec![(0, 1), (2, 2)], vec![(2, 3)]]);
    assert_eq!(give(&mut net, 0x0D03, Some(1)), Ok(()));
    assert_eq!(tables(&net), [vec![(0, 1), (1, 2)], vec![(1, 3)]]);
    // So does a whole switch.
    net.part(Place::Switch(1, 0));
    net.enumerate(0);
    assert_eq!(tables(&net), [vec![(0, 1)]]);
    let root = Bdf::new(0, 0, 0);
    assert!(net.hosts[0].0.set_cache_id(root, Some(1)));
    let refused = net.until(0, |event| match event {
        Event::CacheId { result, .. } => Some(result),
        _ => None,
    });
    assert_eq!(refused, Err(CacheIdFailure::Bridge(root)));
}

/// There are 16 `CacheID`s: the 17th device gets none, and its cache stays off. One at a root port needs none: its is 0.
#[test]
fn who_gets_no_cache_id_stays_off() {
    let mut net = Net::new();
    let host = net.host(without_hot_plug());
    let switch = net.switch(&[Mode::Flit; 18], true);
    net.join(host, Place::Switch(switch, 0));
    for port in 1..=17 {
        add(&mut net, cache(0x0D00 + port), Place::Switch(switch, port.into()));
    }
    net.enumerate(0);
    assert_eq!(tables(&net), [(0..16).map(|id| (id, id + 1)).collect::<Vec<_>>()]);
    let of = |bdf| vec![Problem { bdf, kind: ProblemKind::NoCacheId }];
    assert_eq!(problems(&net), of(bdf(&net, 0x0D11)));
    assert!((0..16).all(|device| is_on(&net, device)) && !is_on(&net, 16));
    assert!(net.hosts[0].0.tree().unwrap().to_string().contains("gets no CacheID"));
    assert_eq!(give(&mut net, 0x0D01, None), Ok(()));
    assert_eq!(give(&mut net, 0x0D11, Some(0)), Ok(()));
    assert_eq!((problems(&net), is_on(&net, 0), is_on(&net, 16)), (vec![], false, true));
    net.enumerate(0);
    assert_eq!(problems(&net), of(bdf(&net, 0x0D01)));

    let mut net = Net::new();
    let host = net.host(without_hot_plug());
    add(&mut net, cache(0x0D01), host);
    net.enumerate(0);
    assert_eq!((problems(&net), is_on(&net, 0)), (vec![], true));
    let device = bdf(&net, 0x0D01);
    assert_eq!(give(&mut net, 0x0D01, Some(0)), Err(CacheIdFailure::NoRegisters(device)));
}

/// The end of a link that a test speaks by itself.
struct Bare {
    end: TlpEnd,
    port: Pipe,
}

impl Bare {
    fn new(net: &mut Net, switch: usize, port: usize) -> Self {
        let (near, far) = net.pipe();
        net.switches[switch].1[port] = Some(far);
        Self { end: TlpEnd::new(end(0x55, Mode::Flit, 256)), port: near }
    }

    fn say(&mut self, net: &mut Net, head: CacheHead) {
        let data = [head.id.to_le_bytes()[0]; 64];
        let message = CacheMessage { head, data: Some(&data), enables: None };
        self.end.outbox().send_cache(&message).unwrap();
        self.poll(net);
    }

    /// CXL.cache messages that came; lines are those of [`Self::say`].
    fn poll(&mut self, net: &mut Net) -> Vec<CacheHead> {
        let mut came = Vec::new();
        let polled = self.end.poll(net.now, &mut self.port, &mut net.bufs, &mut |frame, _| {
            if let Received::Cache(message) = frame.content {
                let line = [message.head.id.to_le_bytes()[0]; 64];
                assert_eq!(message.data, message.head.op.class().has_data().then_some(&line));
                came.push(message.head);
            }
        });
        polled.unwrap();
        came
    }
}

fn head(op: CacheOp, cache_id: u8, id: u16) -> CacheHead {
    let addr = Hpa(if matches!(op, CacheOp::RdOwn | CacheOp::SnpInv) { 0x1040 } else { 0 });
    CacheHead { cache_id, addr, ..CacheHead::new(op, id) }
}

/// The switches of [`two_switches`] as the host has set them up, with ends of the test in place of the host, of device 1 and of
/// device 3, whose `CacheID`s are 0 and 2.
fn spoken() -> (Net, [Bare; 3]) {
    let mut net = two_switches();
    net.enumerate(0);
    let ends = [(0, 0), (0, 1), (1, 3)].map(|(switch, port)| Bare::new(&mut net, switch, port));
    (net, ends)
}

//= docs/spec/cxl-fabric.md "CXL.cache" Routing: through HBR switches
#[test]
fn messages_go_by_cache_id_through_switches_and_keep_their_order() {
    let (mut net, [mut host, mut one, mut three]) = spoken();
    for told in [0, 1, 2, 15] {
        for (device, own) in [(&mut one, 0), (&mut three, 2)] {
            for (n, op) in (0..).zip([CacheOp::RdOwn, CacheOp::RspIFwdM, CacheOp::DataToHost]) {
                device.say(&mut net, head(op, told, n));
            }
            net.steps(10);
            let want = (0..).zip([CacheOp::RdOwn, CacheOp::RspIFwdM, CacheOp::DataToHost]);
            let want: Vec<CacheHead> = want.map(|(n, op)| head(op, own, n)).collect();
            assert_eq!(host.poll(&mut net), want, "{told}");
        }
    }
    for (n, op) in (0..).zip([CacheOp::Go, CacheOp::DataToDevice, CacheOp::SnpInv]) {
        host.say(&mut net, head(op, 0, n));
        host.say(&mut net, head(op, 2, n));
    }
    net.steps(10);
    for (device, own) in [(&mut one, 0), (&mut three, 2)] {
        let want = (0..).zip([CacheOp::Go, CacheOp::DataToDevice, CacheOp::SnpInv]);
        let want: Vec<CacheHead> = want.map(|(n, op)| head(op, own, n)).collect();
        assert_eq!(device.poll(&mut net), want);
    }
    let counts = [0, 1].map(|switch| net.switches[switch].0.counts());
    let passed = counts.map(|it| (it.cache.to_host, it.cache.to_device));
    assert_eq!(passed, [(24, 6), (12, 3)]);
    for counts in counts {
        let sum = counts.passed + counts.own + counts.ended + counts.refused + counts.dropped;
        assert_eq!(counts.came, sum + counts.no_form + counts.other, "{counts:?}");
    }
}

//= docs/spec/cxl-fabric.md "CXL.cache" Routing: what a switch drops
#[test]
fn no_device_speaks_for_another_cache_through_a_switch() {
    let (mut net, [mut host, mut one, mut three]) = spoken();
    let mut inner = Bare::new(&mut net, 0, 2); // a hostile switch, which forwards what it likes
    let mut free = Bare::new(&mut net, 0, 3); // no device, so no CacheID
    for cache_id in 0..16 {
        inner.say(&mut net, head(CacheOp::RdOwn, cache_id, cache_id.into()));
        free.say(&mut net, head(CacheOp::RdOwn, cache_id, cache_id.into()));
    }
    net.steps(10);
    let came: Vec<u8> = host.poll(&mut net).iter().map(|head| head.cache_id).collect();
    assert_eq!(came, [1, 2], "those of devices below it");
    assert_eq!(net.switches[0].0.counts().cache.no_cache_id, 14 + 16);
    // For nobody; and each direction the other way.
    for cache_id in 3..16 {
        host.say(&mut net, head(CacheOp::SnpInv, cache_id, 1));
    }
    for op in [CacheOp::RdOwn, CacheOp::RspIHitI, CacheOp::DataToHost] {
        host.say(&mut net, head(op, 0, 1));
    }
    for op in [CacheOp::SnpInv, CacheOp::Go, CacheOp::DataToDevice] {
        one.say(&mut net, head(op, 2, 1));
        three.say(&mut net, head(op, 2, 1));
    }
    net.steps(10);
    let counts = net.switches[0].0.counts().cache;
    assert_eq!((counts.no_cache_id, counts.wrong_direction), (30 + 13, 6), "{counts:?}");
    assert_eq!(net.switches[1].0.counts().cache.wrong_direction, 3);
    for end in [&mut host, &mut one, &mut three, &mut inner, &mut free] {
        assert_eq!(end.poll(&mut net), [], "nobody gets any of that, or an answer");
    }
    // A link that is down, and a reset from above.
    one.port.set_link(false);
    host.say(&mut net, head(CacheOp::SnpInv, 0, 1));
    net.steps(10);
    assert_eq!(net.switches[0].0.counts().cache.no_link, 1);
    host.port.set_link(false);
    net.steps(2);
    host.port.set_link(true);
    one.port.set_link(true);
    net.steps(2);
    host.say(&mut net, head(CacheOp::SnpInv, 0, 1));
    one.say(&mut net, head(CacheOp::RdOwn, 0, 1));
    net.steps(10);
    let after = net.switches[0].0.counts().cache;
    assert_eq!((after.to_host, after.to_device), (2, 0), "registers are as after power-on");
    assert!(after.no_cache_id + after.no_link >= 43 + 1 + 2, "{after:?}");
}

/// Nobody below a switch reaches the registers of its ports, which are the host's.
#[test]
fn registers_of_downstream_ports_are_the_hosts() {
    let (mut net, [_, mut one, _]) = spoken();
    let bar = |net: &Net, at: usize| net.switches[0].0.bridges()[at].read(Reg::at(0x10)) & !0xFFFF;
    for at in 0..4 {
        let body = weft_parsers::tlp::Body::Address {
            addr: Hpa(u64::from(bar(&net, at)) + 0x1014),
            wide: false,
            at: weft_parsers::tlp::At::Untranslated,
            no_write: false,
            length_dw: 1,
            first_be: 0xF,
            last_be: 0,
        };
        assert_ne!(bar(&net, at), 0, "{at}");
        let kind = weft_parsers::tlp::Kind::MemWrite;
        let me = Bdf::new(3, 0, 0);
        let tlp = weft_parsers::tlp::TlpRepr::new(Mode::Flit, kind, me, 0, body);
        let tlp = weft_parsers::tlp::TlpRepr { payload: &[0; 4], ..tlp };
        one.end.outbox().send(None, &tlp).unwrap();
        one.poll(&mut net);
        net.steps(10);
    }
    let own = net.switches[0].0.counts().own;
    one.say(&mut net, head(CacheOp::RdOwn, 9, 1));
    net.steps(10);
    let counts = net.switches[0].0.counts();
    assert_eq!((counts.cache.to_host, counts.own), (1, own), "it is as it was");
}
