//! A host enumerates its virtual switch, whose tables follow its writes, and sends commands to its GAE.

use super::*;
use weft_dataplane::pbr::{Function, Hop, Route, Side};
use weft_parsers::cci::vcs::BindVppb;
use weft_parsers::fabric::{Bdf, Hpa};

use weft_cxl::pci::bridge::{Bridge, BridgeSpec, BusRoute};
use weft_cxl::pci::enumerate::{ConfigAccess, HostSpec, enumerate};
use weft_cxl::pci::express::LnSystem;
use weft_cxl::pci::mailbox::{ID_MAILBOX, MAILBOX_AT, capabilities};
use weft_cxl::pci::{ByteEnables, Identity, Msi, PortKind, Reg, Tree, regs};

/// A host: a root port on bus 0, with virtual switch 0 below.
struct Host {
    bench: Bench,
    root: Bridge,
}

impl Host {
    fn new() -> Self {
        let identity = Identity { vendor: 0x1E98, device: 1, ..Identity::default() };
        let mut root = Bridge::new(&BridgeSpec {
            identity,
            kind: PortKind::Root,
            port: 0,
            link: Link::default(),
            slot: None,
            serial: None,
            multi_function: false,
            ln: LnSystem::None,
        })
        .expect("a root port");
        root.set_link(Some(Link::default()));
        Self { bench: Bench::new(), root }
    }

    /// The function that the tables route a configuration request to.
    fn function(&self, bdf: Bdf) -> Option<Function> {
        let route = match self.root.bus_route(bdf.bus()) {
            BusRoute::Secondary => Route::Config0(bdf),
            BusRoute::Below => Route::Config1(bdf),
            BusRoute::Elsewhere => return None,
        };
        match self.bench.switch.tables().vcs(0)?.route(Side::Above, route) {
            Ok(Hop::Internal(function)) => Some(function),
            _ => None,
        }
    }

    fn enumerate(&mut self) -> Tree {
        enumerate(HostSpec::default(), self).expect("it ends")
    }

    fn poke(&mut self, at: u64, bytes: &[u8]) {
        let now = self.bench.now;
        assert!(self.bench.switch.gae_write(now, 0, Hpa(at), bytes), "{at:#x} is the GAE's");
    }

    fn peek<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0xEE; N];
        assert!(
            self.bench.switch.vcs(0).unwrap().gae_read(Hpa(at), &mut bytes),
            "{at:#x} is the GAE's"
        );
        bytes
    }

    /// Sends a command through the mailbox at `at`, and returns the return code and output.
    fn command(&mut self, at: u64, opcode: u16, payload: &[u8]) -> (u16, Vec<u8>) {
        self.poke(at + 0x20, payload);
        let len = u64::try_from(payload.len()).expect("short");
        self.poke(at + 0x08, &(u64::from(opcode) | len << 16).to_le_bytes());
        self.poke(at + 0x04, &[3]); // ask for an interrupt at the end
        assert_eq!(self.peek::<1>(at + 0x04), [2], "done");
        let status = u64::from_le_bytes(self.peek(at + 0x10));
        let command = u64::from_le_bytes(self.peek(at + 0x08));
        let len = usize::try_from(command >> 16 & 0x1F_FFFF).expect("short");
        let output: [u8; 2_048] = self.peek(at + 0x20);
        (u16::try_from(status >> 32 & 0xFFFF).expect("16 bits"), output[..len].to_vec())
    }
}

impl ConfigAccess for Host {
    fn read(&mut self, bdf: Bdf, reg: Reg) -> Option<u32> {
        if bdf.bus() == 0 {
            return (bdf.bits() == 0).then(|| self.root.read(reg));
        }
        let function = self.function(bdf)?;
        self.bench.switch.vcs(0)?.config_read(function, reg)
    }

    fn write(&mut self, bdf: Bdf, reg: Reg, value: u32, enables: ByteEnables) {
        if bdf.bits() == 0 {
            self.root.write(reg, value, enables);
        } else if let Some(function) = self.function(bdf) {
            assert!(self.bench.switch.config_write(0, function, reg, value, enables));
        }
    }
}

const GAE: Bdf = Bdf::new(1, 0, 1);

fn gae_bar(tree: &Tree) -> u64 {
    tree.get(GAE).expect("a GAE").bars[0].address.expect("assigned")
}

#[test]
fn a_host_finds_its_bridges_and_the_gae_and_gives_them_addresses() {
    let mut host = Host::new();
    let tree = host.enumerate();
    assert_eq!(tree.problems, []);
    let found: Vec<_> =
        tree.iter().map(|node| (node.bdf.bus(), node.bdf.device(), node.bdf.function())).collect();
    let want = [(0, 0, 0), (1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 2, 0), (2, 3, 0), (1, 0, 1)];
    assert!(want.iter().all(|it| found.contains(it)) && found.len() == want.len(), "{found:?}");
    let base = gae_bar(&tree);
    let vcs = host.bench.switch.tables().vcs(0).expect("there");
    let route = |address| vcs.route(Side::Above, Route::Memory(Hpa(address)));
    assert_eq!(route(base), Ok(Hop::Internal(Function::Gae)));
    assert_eq!(route(base + vcs::GAE_BAR - 1), Ok(Hop::Internal(Function::Gae)));
    assert_ne!(route(base + vcs::GAE_BAR), Ok(Hop::Internal(Function::Gae)));
    for (vppb, function) in [(0, Function::Upstream), (4, Function::Below(3))] {
        let bdf = host.bench.switch.vcs(0).unwrap().id_of(function).expect("there");
        assert_eq!(host.function(bdf), Some(function), "{vppb}");
    }
    assert_eq!(host.bench.switch.vcs(0).unwrap().id_of(Function::Gae), Some(GAE));
}

#[test]
fn a_host_commands_its_gae_by_the_mailbox() {
    let mut host = Host::new();
    let base = gae_bar(&host.enumerate());
    let block: [u8; 0x40] = host.peek(base);
    let mailbox = capabilities(&block).into_iter().find(|it| it.id == ID_MAILBOX);
    let at = base + u64::from(mailbox.expect("a mailbox").offset);
    assert_eq!(at, base + u64::from(MAILBOX_AT));
    host.bench.events();
    let (code, identity) = host.command(at, 0x5800, &[0, 9]);
    assert_eq!((code, identity.len(), identity[7]), (0, 8 + 5 * 4, 5));
    assert_eq!(host.bench.events(), [Event::GaeInterrupt { vcs: 0 }]);
    let window = [&[0, 0, 0, 0][..], &(1_u64 << 40).to_le_bytes(), &(2_u64 << 40).to_le_bytes()];
    assert_eq!(host.command(at, 0x5804, &window.concat()), (0, vec![]));
    let fast = host.bench.switch.tables().edge(port(0)).expect("an edge").fast().clone();
    assert_eq!(fast.segments().config(), (0, Hpa(1 << 40), Hpa(2 << 40)));
    #[rustfmt::skip] // columns: name, opcode, payload, code
    let cases = [
        ("too short", 0x5804, &[0; 19][..], 0x16),
        ("the FM's", 0x5201, &[0, 1, 1, 0, 0xFF, 0xFF][..], 3),
        ("nobody's", 0x57FF, &[][..], 3),
        ("no such vPPB", 0x5803, &[9, 0, 0, 0][..], 2),
    ];
    for (name, opcode, payload, code) in cases {
        assert_eq!(host.command(at, opcode, payload), (code, vec![]), "{name}");
    }
    let fast_after = host.bench.switch.tables().edge(port(0)).expect("an edge").fast().clone();
    assert!(fast == fast_after);
    let mut bytes = [0; 4];
    assert!(!host.bench.switch.vcs(0).unwrap().gae_read(Hpa(base - 1), &mut bytes), "not its");
    assert!(!host.bench.switch.vcs(1).unwrap().gae_read(Hpa(base), &mut bytes), "it has none");
}

/// A bind is a hot-add: it changes the slot's status, and interrupts the host if that has asked for it.
#[test]
fn a_bind_is_a_hot_add_with_an_interrupt_and_a_lost_link_a_message() {
    let mut host = Host::new();
    host.enumerate();
    host.bench.up(1);
    host.bench.events();
    let bind = Request::BindVppb(BindVppb { vcs: 0, vppb: 2, port: 1, ld: 0xFFFF });
    assert_eq!(host.bench.background(&bind), ReturnCode::Success);
    let interrupts = |events: Vec<Event>| {
        let hit = |it: &&Event| matches!(it, Event::Bridge { vcs: 0, vppb: 2, effects } if effects.interrupt);
        events.iter().filter(hit).count()
    };
    assert_eq!(interrupts(host.bench.events()), 1, "presence and link in one");
    let function = Function::Below(1);
    let bdf = host.bench.switch.vcs(0).unwrap().id_of(function).expect("there");
    let want = Msi { address: 0xFEE0_0000, data: bdf.bits() };
    assert_eq!(host.bench.switch.vcs(0).unwrap().msi_of(function), Some(want));
    host.bench.switch.set_link(port(1), None);
    assert!(!host.bench.events().is_empty());
    assert_eq!(host.bench.switch.vcs(0).expect("there").vppbs[2].bridge.link(), None);
}

#[test]
fn a_reset_of_the_bus_below_clears_bridges_and_tables_and_keeps_bindings() {
    let mut host = Host::new();
    host.bench.assign(0, 0, 0x20);
    assert_eq!(host.bench.background(&bind(0, 1, 0x99)), ReturnCode::Success);
    host.enumerate();
    let numbers = |host: &Host| {
        let vcs = host.bench.switch.tables().vcs(0).expect("there");
        (vcs.upstream().bridge.secondary, vcs.below()[0].bridge.secondary, vcs.below()[0].binding)
    };
    let (upstream, below, binding) = numbers(&host);
    assert!(upstream == 2 && below > 2);
    let upstream = Bdf::new(1, 0, 0);
    let reg = Reg::at(regs::BRIDGE_CONTROL);
    ConfigAccess::write(&mut host, upstream, reg, 0x40 << 16, ByteEnables::of(2, 2));
    assert_eq!(numbers(&host), (2, 0, binding));
    let epoch = host.bench.switch.epoch();
    host.bench.switch.change(|vcses, _| vcses.reset(0));
    assert_ne!(host.bench.switch.epoch(), epoch);
    assert_eq!(numbers(&host), (0, 0, binding));
    let gae = host.bench.switch.tables().vcs(0).expect("there").gae().expect("one").bar;
    assert!(!gae.contains(0));
}

/// All edge ports of a host's virtual switch have its segment, until the host goes away. Ports of others do not.
#[test]
fn the_segment_of_a_host_is_that_of_its_edge_ports() {
    let mut bench = Bench::new();
    let bind = BindVppb { vcs: 0, vppb: 1, port: 1, ld: 0xFFFF };
    assert_eq!(bench.background(&Request::BindVppb(bind)), ReturnCode::Success);
    let segments = |bench: &Bench| {
        [0, 1, 2].map(|at| bench.switch.tables().edge(port(at)).expect("an edge").segment)
    };
    let epoch = bench.switch.epoch();
    bench.switch.change(|vcses, _| vcses.capture_segment(0, 0x5A));
    bench.switch.change(|vcses, _| vcses.capture_segment(1, 0x77));
    bench.switch.change(|vcses, _| vcses.capture_segment(9, 0x77));
    assert_eq!(segments(&bench), [0x5A, 0x5A, 0]);
    assert_ne!(bench.switch.epoch(), epoch, "the dataplane is told");
    bench.switch.change(|vcses, _| vcses.reset(0));
    assert_eq!(segments(&bench), [0, 0, 0]);
}

#[test]
fn what_is_not_there_is_not_read_or_written() {
    let mut bench = Bench::new();
    let (reg, all) = (Reg::at(0), ByteEnables::ALL);
    for (vcs, function) in [(2, Function::Upstream), (0, Function::Below(4)), (1, Function::Gae)] {
        let state = bench.switch.vcs(vcs);
        assert_eq!(state.and_then(|state| state.config_read(function, reg)), None);
        assert_eq!(state.and_then(|state| state.msi_of(function)), None);
        assert!(!bench.switch.config_write(vcs, function, reg, 1, all));
    }
    assert_eq!(
        bench.switch.vcs(1).unwrap().config_read(Function::Below(1), reg),
        Some(0x5747_1E98)
    );
}
