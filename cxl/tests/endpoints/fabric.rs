//! Hosts and devices at the edge ports of a switch of the fabric, whose tables are set by hand.
//!
//! The switch's own pipeline, one lane; hosts A and B, an accelerator and a memory device, on pipes.
//!
//! Units: bytes, nanoseconds.
//! Source: CXL 3.1 sections 7.7.3.3 (GIM) and 7.7.9 (UIO to HDM); docs/spec/cxl-fabric.md "Fabric memory transfers";
//! docs/spec/cxl-fabric.md.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::rig::{
    FRAME_LEN_MAX, Net, Place, RAM, RAM_LEN, decode_hdm, device_config, function, host_config,
    pattern,
};
use weft_cxl::completer::Target;
use weft_cxl::cxl_device::HdmConfig;
use weft_cxl::cxl_host::{Export, Exports};
use weft_cxl::fabric_mem::{
    self, Engine, EngineSpec, MemDesc, MemKind, Op, Options, PeerId, Segment, Status,
    TransferOpDesc,
};
use weft_cxl::requester::{Failure, Operation, Transaction};
use weft_dataplane::config::{LiveSizes, PortRole, SwitchConfig, TlpLink};
use weft_dataplane::pbr::tables::Assigned;
use weft_dataplane::pbr::{
    Access, Binding, Bridge, EdgePort, Fast, Ldst, Prefixes, Refusal, Role, Side, Tables, Vcs,
    Vppb, Window,
};
use weft_dataplane::pipeline::{Built, Lane, Ledger, build};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::time::{LinkRate, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::MacAddr;
use weft_parsers::fabric::{
    Bdf, DrtEntry, FastEntry, Hpa, Interleave, LdstEntry, Pid, ReRouterEntry, Target as TableTarget,
};
use weft_parsers::tlp::{Mode, Status as CplStatus};

const A: usize = 0;
const B: usize = 1;
const ACCELERATOR: usize = 2;
const MEMORY: usize = 3;
const PORTS: usize = 4;
const PIDS: [u16; PORTS] = [0x0A1, 0x0B2, 0x0C3, 0x0D4];

/// Segments of 64 GB from here on: host A's memory, then host B's.
const FABRIC: u64 = 1 << 40;
const SEGMENT: u64 = 1 << 36;
/// Memory of the memory device, in its host's addresses.
const HDM: u64 = 2 << 40;
const HDM_LEN: u64 = 1 << 28;
/// Id of the accelerator in the hierarchy of host A.
const ACCELERATOR_ID: Bdf = Bdf::new(3, 0, 0);

fn pid(port: usize) -> Pid {
    Pid::from_low_bits(PIDS[port])
}

fn id(port: usize) -> PortId {
    PortId::new(port).unwrap()
}

/// A virtual switch of a host on bus 0, with one device at the port below.
fn vcs(up: usize, down: Option<usize>) -> Vcs {
    let bridge = |primary, secondary, subordinate| Bridge {
        command: Bridge::ALL_ON,
        primary,
        secondary,
        subordinate,
        memory: Window::memory(0xE000, 0xE000),
        ..Bridge::default()
    };
    let upstream =
        Vppb { bridge: bridge(1, 2, 3), binding: Binding::Port(id(up)), ..Vppb::default() };
    let below = down.map(|port| Vppb {
        bridge: bridge(2, 3, 3),
        binding: Binding::Port(id(port)),
        ..Vppb::default()
    });
    Vcs::new(upstream, None, &below.into_iter().collect::<Vec<_>>()).unwrap()
}

fn tables(ports: PortSet, prefixes: [u8; 2]) -> Tables {
    let mut tables = Tables::new(ports, 4).unwrap();
    let edge = |port: usize, role, vcs| {
        let (fast, ldst) = (Fast::new(16, 16).unwrap(), Ldst::new(16, 16).unwrap());
        let mut edge = EdgePort::new(role, pid(port), fast, ldst);
        edge.vcs = Some(vcs);
        edge.segment = 0x5A;
        let mut access = Access::default();
        for target in [A, B, ACCELERATOR, MEMORY] {
            access.vtv.allow(pid(target)).unwrap();
        }
        access.lav.allow(pid(ACCELERATOR)).unwrap();
        access.lav.allow(pid(MEMORY)).unwrap();
        edge.set_access(access.into());
        edge
    };
    for (port, vcs) in [(A, 0), (B, 1)] {
        let mut host = edge(port, Role::Usp, (vcs, Side::Above));
        host.prefixes = Prefixes::from_bits(prefixes[port]);
        host.configure_fast(0, Hpa(FABRIC), Hpa(FABRIC + 8 * SEGMENT)).unwrap();
        let gim = |port| {
            let target = TableTarget::Direct(pid(port));
            Some(FastEntry { gim: true, interleave: Interleave::NONE, target })
        };
        host.set_fast(0, &[gim(A), gim(B)]).unwrap();
        tables.set_edge(id(port), Some(host)).unwrap();
    }
    let mut accelerator = edge(ACCELERATOR, Role::Dsp, (0, Side::Below(0)));
    accelerator.configure_ldst(0, Hpa(HDM), Hpa(HDM + 8 * SEGMENT)).unwrap();
    let target = TableTarget::Direct(pid(MEMORY));
    let entry = LdstEntry { segment: true, interleave: Interleave::NONE, target };
    accelerator.set_ldst(0, &[Some(entry)]).unwrap();
    accelerator.prefixes = Prefixes::from_bits(2);
    accelerator.configure_fast(0, Hpa(FABRIC), Hpa(FABRIC + 8 * SEGMENT)).unwrap();
    let to_b = TableTarget::Direct(pid(B));
    let gim = FastEntry { gim: true, interleave: Interleave::NONE, target: to_b };
    accelerator.set_fast(1, &[Some(gim)]).unwrap();
    tables.set_edge(id(ACCELERATOR), Some(accelerator)).unwrap();
    let mut memory = edge(MEMORY, Role::Dsp, (1, Side::Below(0)));
    let back =
        ReRouterEntry { dpid: pid(ACCELERATOR), segment: Some(0x5A), requester: ACCELERATOR_ID };
    memory.set_rerouter(0, &[Some(back)]).unwrap();
    memory.prefixes = Prefixes::from_bits(1);
    tables.set_edge(id(MEMORY), Some(memory)).unwrap();
    tables.set_vcs(0, Some(vcs(A, Some(ACCELERATOR)))).unwrap();
    tables.set_vcs(1, Some(vcs(B, Some(MEMORY)))).unwrap();
    for (port, pid) in (0..).zip(PIDS) {
        tables.set_drt(usize::from(pid), &[DrtEntry::Port(port)]).unwrap();
    }
    tables.assign(Pid::from_low_bits(0x010), Assigned::Switch).unwrap();
    tables
}

struct Fabric {
    net: Net,
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
}

impl Fabric {
    /// `prefixes` as the FM has set them at hosts A and B: bit 0 on requests that go out and completions that
    /// come in, bit 1 on requests that come in.
    fn new(prefixes: [u8; 2]) -> Self {
        let mut config = SwitchConfig::live(&LiveSizes {
            names: (0..PORTS).map(|port| format!("p{port}")).collect(),
            rate: LinkRate::gbps(100),
            pris: 8,
            cells: 4_096,
            cell_bytes: 4_800,
            headroom_cells: 16,
            frame_len_max: FRAME_LEN_MAX,
        });
        for (at, port) in config.ports.iter_mut().enumerate() {
            let link = TlpLink::default();
            port.role = if at == A || at == B { PortRole::Usp(link) } else { PortRole::Dsp(link) };
            port.parse.port_mac = MacAddr([2, 0, 0, 0, 9, u8::try_from(at).unwrap()]);
        }
        let pool = Pool::in_memory(8_192, FRAME_LEN_MAX).unwrap();
        let spread = vec![(0..PORTS).map(id).collect::<Vec<_>>()];
        let Built { core, mut lanes } = build(config, &pool, &spread).unwrap();
        let ports = core.snapshot.load().tlp_ports;
        core.tables.store(Arc::new(tables(ports, prefixes)));
        let mut net = Net::new();
        net.bufs = Bufs::new(pool, 64, 0);
        let mut places = Vec::new();
        for _ in [A, B] {
            let mut config = host_config(Mode::Flit);
            config.gim = true;
            config.uio_last_first = true;
            places.push(net.host(config));
        }
        let accelerator = function(0x0ACC);
        let mut memory = function(0x03E3);
        memory.hdm = Some(HdmConfig::at(Hpa(HDM), HDM_LEN));
        for function in [accelerator, memory] {
            let mut config = device_config(Mode::Flit, vec![function]);
            config.uio_last_first = true;
            config.gim = true;
            places.push(net.device(config));
        }
        let mut ports: Vec<Box<dyn Port>> = Vec::new();
        for place in places {
            let (near, far) = net.pipe();
            match place {
                Place::Host(at) => net.hosts[at].1 = Some(near),
                Place::Device(at) => net.devices[at].1 = Some(near),
                Place::Switch(..) => unreachable!("there is none"),
            }
            ports.push(Box::new(far));
        }
        let mut this = Self { net, lane: lanes.remove(0), ports };
        this.step(&[]); // its link comes up, which resets a device
        decode_hdm(&mut this.net.devices[MEMORY - 2].0, HDM);
        this
    }

    fn step(&mut self, exports: &[&dyn Exports]) {
        self.net.step_with(exports);
        self.lane.step(self.net.now, &mut self.ports, &mut NoTrace);
    }

    fn steps(&mut self, exports: &[&dyn Exports], count: usize) {
        for _ in 0..count {
            self.step(exports);
        }
    }

    /// Books of the switch are even, and nothing waits in it.
    fn check(&self) {
        let ledger = Ledger::read(self.lane.core());
        assert_eq!((ledger.imbalance(), ledger.queued), (0, 0));
    }

    fn refused(&self, port: usize, refusal: Refusal) -> u64 {
        Ledger::read(self.lane.core()).port[port].refused[refusal.index()]
    }

    /// The end of what host `at` asked.
    fn end(
        &mut self,
        at: usize,
        exports: &[&dyn Exports],
        op: weft_cxl::requester::OpId,
    ) -> Result<Vec<u8>, Failure> {
        use weft_cxl::cxl_host::Event;
        for _ in 0..20_000 {
            while let Some(event) = self.net.hosts[at].0.next_event() {
                match event {
                    Event::Done(done) if done.op == op => return done.result,
                    _ => {}
                }
            }
            self.step(exports);
        }
        panic!("no end");
    }
}

impl Fabric {
    /// Gives the accelerator its id, and the right to send, as host A's software does.
    fn wake(&mut self) {
        let reg = weft_cxl::pci::Reg::at(4);
        let enables = weft_cxl::pci::ByteEnables::of(4, 2);
        let what =
            Operation::ConfigWrite { dest: ACCELERATOR_ID, reg, type1: true, value: 7, enables };
        let op = self.net.hosts[A].0.submit(what);
        assert_eq!(self.end(A, &[], op), Ok(vec![]));
    }

    /// The end of what the accelerator is to ask.
    fn ask_of_accelerator(
        &mut self,
        exports: &[&dyn Exports],
        ask: impl Into<Transaction>,
    ) -> Result<Vec<u8>, Failure> {
        use weft_cxl::cxl_device::Event;
        let accelerator = ACCELERATOR - 2;
        let op = self.net.devices[accelerator].0.submit(0, ask).unwrap();
        for _ in 0..20_000 {
            while let Some(event) = self.net.devices[accelerator].0.next_event() {
                match event {
                    Event::Done { done, .. } if done.op == op => return done.result,
                    _ => {}
                }
            }
            self.step(exports);
        }
        panic!("no end");
    }
}

/// What host B shows: the start of its segment is the start of its memory.
fn exports() -> [Export; 2] {
    [A, B].map(|host| Export {
        base: Hpa(FABRIC + host as u64 * SEGMENT),
        len: RAM_LEN,
        local: RAM,
    })
}

fn transfer(fabric: &mut Fabric, exports: [Export; 2], addr: u64, to: Option<Pid>) {
    let exports: [&dyn Exports; 2] = [&exports[0], &exports[1]];
    let data = pattern(7, 10_000);
    let op = fabric.net.hosts[A].0.uio_write(Hpa(addr + 0x1001), &data, to);
    assert_eq!(fabric.end(A, &exports, op), Ok(vec![]));
    let mut bytes = vec![0; data.len()];
    assert!(fabric.net.hosts[B].0.memory().read(RAM + 0x1001, &mut bytes));
    assert!(bytes == data, "what was written is there");
    let op = fabric.net.hosts[A].0.uio_read(Hpa(addr + 0x1001), data.len(), to);
    assert!(fabric.end(A, &exports, op) == Ok(data), "and is read, last chunks first");
    fabric.steps(&exports, 4);
    fabric.check();
    let (counts, requests, _) = fabric.net.hosts[A].0.counts();
    assert_eq!((counts.tlps.unsent, requests.unexpected, requests.timeouts), (0, 0, 0));
    assert_eq!(requests.sent, requests.answered);
}

/// CXL 3.1 section 7.7.3.3, figure 7-40: by FAST; B's completions carry the prefix that the requests came with.
#[test]
fn figure_7_40_gim_by_fast() {
    transfer(&mut Fabric::new([0, 1]), exports(), FABRIC + SEGMENT, None);
}

/// CXL 3.1 section 7.7.3.3, figure 7-41: A names B's port itself, and the decoder is passed by.
#[test]
fn figure_7_41_gim_by_the_requesters_prefix() {
    // segments of FAST that are A's own and nobody's, and an address that FAST does not have
    for base in [FABRIC, FABRIC + 5 * SEGMENT, 1 << 50] {
        let mut exports = exports();
        exports[B].base = Hpa(base);
        transfer(&mut Fabric::new([2, 1]), exports, base, Some(pid(B)));
    }
    // the same without the prefix's right is refused, though FAST would lead there
    let base = FABRIC + SEGMENT;
    let mut fabric = Fabric::new([0, 1]);
    let op = fabric.net.hosts[A].0.uio_read(Hpa(base), 64, Some(pid(B)));
    let refused = Err(Failure::Status(CplStatus::UnsupportedRequest));
    assert_eq!(fabric.end(A, &[], op), refused);
    assert_eq!(fabric.refused(A, Refusal::PrefixNotEnabled), 1);
}

/// CXL 3.1 section 7.7.3.3: the same flows from a device to a host, from a host to a device, between devices.
#[test]
fn section_7_7_3_3_gim_from_and_to_devices() {
    let exports = exports();
    let exports: [&dyn Exports; 2] = [&exports[0], &exports[1]];
    let mut fabric = Fabric::new([2, 1]);
    fabric.wake();
    let asks = |to, at: u64, data: &[u8]| {
        let write = Operation::UioWrite { addr: Hpa(at), data: data.to_vec() };
        let read = Operation::UioRead { addr: Hpa(at), len: data.len() };
        [write, read].map(|what| Transaction { to, ..what.into() })
    };
    // to host B, by FAST and by prefix
    for (seed, to) in [(1, None), (2, Some(pid(B)))] {
        let data = pattern(seed, 5_000);
        let [write, read] = asks(to, FABRIC + SEGMENT + 0x1001, &data);
        assert_eq!(fabric.ask_of_accelerator(&exports, write), Ok(vec![]), "{to:?}");
        assert!(fabric.ask_of_accelerator(&exports, read) == Ok(data.clone()), "{to:?}");
        let mut bytes = vec![0; data.len()];
        assert!(fabric.net.hosts[B].0.memory().read(RAM + 0x1001, &mut bytes));
        assert!(bytes == data, "{to:?}");
    }
    // to the memory device, by prefix, from the accelerator and from host A
    for seed in [3, 4] {
        let data = pattern(seed, 5_000);
        for (ask, want) in
            asks(Some(pid(MEMORY)), HDM + 0x201, &data).into_iter().zip([vec![], data.clone()])
        {
            let got = if seed == 3 {
                fabric.ask_of_accelerator(&exports, ask)
            } else {
                let op = fabric.net.hosts[A].0.submit(ask);
                fabric.end(A, &exports, op)
            };
            assert!(got == Ok(want), "{seed}: {got:?}");
        }
        let mut bytes = vec![0; data.len()];
        fabric.net.devices[MEMORY - 2].0.hdm(0).unwrap().read(0x201, &mut bytes).unwrap();
        assert!(bytes == data, "{seed}");
    }
    fabric.check();
}

/// CXL 3.1 section 7.7.3.3: where B's port may insert no prefix, and where B shows nothing.
#[test]
fn gim_that_is_not_allowed_is_unsupported() {
    let refused = Err(Failure::Status(CplStatus::UnsupportedRequest));
    let (shown, hidden) = (exports(), ());
    let shown: [&dyn Exports; 2] = [&shown[0], &shown[1]];
    let hidden: [&dyn Exports; 2] = [&hidden, &hidden];
    for (prefix, exports, served) in [(0, shown, 0), (1, hidden, 1)] {
        let mut fabric = Fabric::new([0, prefix]);
        let op = fabric.net.hosts[A].0.uio_read(Hpa(FABRIC + SEGMENT), 64, None);
        assert_eq!(fabric.end(A, &exports, op), refused, "prefix {prefix}");
        assert_eq!(fabric.net.hosts[B].0.counts().0.tlps.unsupported, served, "prefix {prefix}");
        fabric.check();
    }
    // plain memory requests reach no GIM
    let mut fabric = Fabric::new([0, 1]);
    let op = fabric.net.hosts[A].0.read(Hpa(FABRIC + SEGMENT), 64);
    assert_eq!(fabric.end(A, &shown, op), refused);
}

/// CXL 3.1 section 7.7.9: the accelerator's UIO goes by LDST to the memory device of another hierarchy, with
/// its segment; completions name that segment, and the re-router sends them straight back.
#[test]
fn section_7_7_9_accelerator_reaches_a_memory_device_by_ldst() {
    let mut fabric = Fabric::new([0, 0]);
    fabric.wake();
    let accelerator = ACCELERATOR - 2;
    assert_eq!(fabric.net.devices[accelerator].0.id(0), Ok(ACCELERATOR_ID));
    let data = pattern(5, 6_000);
    let end = |fabric: &mut Fabric, operation: Operation| fabric.ask_of_accelerator(&[], operation);
    let write = Operation::UioWrite { addr: Hpa(HDM + 0x101), data: data.clone() };
    assert_eq!(end(&mut fabric, write), Ok(vec![]));
    let read = Operation::UioRead { addr: Hpa(HDM + 0x101), len: data.len() };
    assert!(end(&mut fabric, read) == Ok(data.clone()));
    let mut bytes = vec![0; data.len()];
    fabric.net.devices[MEMORY - 2].0.hdm(0).unwrap().read(0x101, &mut bytes).unwrap();
    assert!(bytes == data);
    // beyond the device's memory: UR comes back the same way
    let read = Operation::UioRead { addr: Hpa(HDM + HDM_LEN), len: 4 };
    let refused = Err(Failure::Status(CplStatus::UnsupportedRequest));
    assert_eq!(end(&mut fabric, read), refused);
    fabric.check();
    let hosts = [A, B].map(|host| fabric.net.hosts[host].0.counts().0.tlps.requests);
    assert_eq!(hosts, [0, 0], "no host took part");
}

/// What an engine shows to its peers, in its segment of the fabric.
struct Shown<'a>(&'a Engine, u64);

impl Exports for Shown<'_> {
    fn local(&self, from: Pid, addr: Hpa, len: u64) -> Option<u64> {
        self.0.serve(from, addr.0.checked_sub(self.1)?, len)
    }
}

/// docs/spec/cxl-fabric.md "Fabric memory transfers": two engines move memory both ways over GIM, and refuse what is not registered.
#[test]
fn fabric_memory_moves_between_two_hosts() {
    const PEER: PeerId = PeerId(7);
    const LEN: u64 = 300_000;
    let segments: BTreeMap<_, _> = [A, B]
        .map(|host| {
            let base = Hpa(FABRIC + host as u64 * SEGMENT);
            (pid(host), Segment { base, len: SEGMENT })
        })
        .into();
    let engine = |host: usize| {
        let options = Options { enabled: true, ..Options::default() };
        let place = fabric_mem::Place { pid: pid(host), offset: 0 };
        let window = fabric_mem::Window { place, len: 1 << 30 };
        Engine::new(EngineSpec { options, window, segments: segments.clone() }).unwrap()
    };
    let mut fabric = Fabric::new([1, 1]);
    let (mut one, mut two) = (engine(A), engine(B));
    for (host, engine) in [(A, &mut one), (B, &mut two)] {
        let data = pattern(host as u64, usize::try_from(LEN).unwrap());
        assert!(fabric.net.hosts[host].0.store(Hpa(RAM), &data));
        let memory = fabric.net.hosts[host].0.memory();
        engine.register(MemDesc { addr: RAM, len: LEN }, MemKind::Host, memory).unwrap();
        engine.register(MemDesc { addr: 2 * RAM, len: LEN }, MemKind::Host, memory).unwrap();
    }
    let hello = one.connect(PEER).unwrap();
    let welcome = two.receive(PEER, &hello).unwrap().unwrap();
    assert_eq!(one.receive(PEER, &welcome), Ok(None));
    for op in [Op::Read, Op::Write] {
        let (local, remote) = if op == Op::Read { (2 * RAM, RAM) } else { (RAM, 2 * RAM) };
        let desc = TransferOpDesc { local, remote, len: LEN };
        let req = one.transfer_async(fabric.net.now, PEER, op, &[desc], None).unwrap();
        let mut status = Status::Waiting;
        for _ in 0..100_000 {
            for (host, engine) in [(A, &mut one), (B, &mut two)] {
                let (mut port, mut memory) = fabric.net.hosts[host].0.uio(64);
                engine.poll(fabric.net.now, &mut port, &mut memory).unwrap();
            }
            let shown = [Shown(&one, FABRIC), Shown(&two, FABRIC + SEGMENT)];
            fabric.step(&[&shown[0], &shown[1]]);
            status = one.status(req).unwrap();
            if status != Status::Waiting {
                break;
            }
        }
        assert_eq!(status, Status::Completed, "{op:?}");
    }
    let read = |host: usize, addr| {
        let mut bytes = vec![0; usize::try_from(LEN).unwrap()];
        assert!(Target::read(fabric.net.hosts[host].0.memory(), addr, &mut bytes));
        bytes
    };
    assert!(read(A, 2 * RAM) == read(B, RAM), "read");
    assert!(read(B, 2 * RAM) == read(A, RAM), "written");
    fabric.net.now += Span::from_ns(1);
    fabric.check();
}
