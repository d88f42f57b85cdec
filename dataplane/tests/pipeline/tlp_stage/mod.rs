//! TLPs through the pipeline: frames in at ports of every role, what comes out byte for byte, and the books.
//!
//! A switch whose ports are lists of frames; tables set by hand; one step a case.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside", "Egress at an edge"; docs/spec/wire-formats.md §3.4
//! to §3.7a; CXL 3.1 sections 7.7.2.4, 7.7.3.3.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod cache;
mod down;
mod ld;
mod ln;
mod mem;
mod parts;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::memory;
use weft_base::rng::Rng;
use weft_dataplane::batch::Batch;
use weft_dataplane::config::{PortRole, TlpLink};
use weft_dataplane::pbr::tables::Assigned;
use weft_dataplane::pbr::{
    Access, Binding, Bridge, EdgePort, Fast, Ldst, Prefixes, Refusal, Role, Side, Tables, Vcs,
    Vppb, Window,
};
use weft_dataplane::pipeline::{
    CPU_PORT_MAC, Lane, Ledger, Switch, SwitchBuilder, cpu_mac_of_port,
};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::{Port, PortCaps, PortError};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Listen, NoTrace, Trace};
use weft_dataplane::types::PortId;
use weft_parsers::MacAddr;
use weft_parsers::fabric::{Bdf, DrtEntry, FastEntry, Hpa, Interleave, Pid, Target};
use weft_parsers::tlp::{Body, Kind, Mode, Pth, TlpRepr, VendPrefixL0};

use parts::{old_vcs, tables};

/// Frames that came out of a port, or are to go in.
type Desk = Arc<Mutex<VecDeque<Vec<u8>>>>;

/// A port of frames in memory.
struct Listed {
    caps: PortCaps,
    rx: Desk,
    tx: Desk,
    state: Arc<PortState>,
}

/// What a test does to a port.
#[derive(Default)]
struct PortState {
    is_down: AtomicBool,
    is_full: AtomicBool,
}

impl Port for Listed {
    fn caps(&self) -> &PortCaps {
        &self.caps
    }

    fn rx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let mut frames = self.rx.lock().unwrap();
        let count = frames.len().min(batch.remaining_capacity());
        batch.extend(frames.drain(..count).map(|frame| bufs.alloc_from(&frame).unwrap()));
        count
    }

    fn tx_room(&mut self, _now: Instant) -> usize {
        if self.state.is_full.load(Ordering::Relaxed) { 0 } else { 64 }
    }

    fn link_up(&self) -> bool {
        !self.state.is_down.load(Ordering::Relaxed)
    }

    fn tx(&mut self, _now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let count = batch.len();
        for desc in batch.drain(..) {
            self.tx.lock().unwrap().push_back(bufs.bytes(&desc).to_vec());
            bufs.free(desc);
        }
        count
    }

    fn service(&mut self, _now: Instant, _bufs: &mut Bufs) -> Result<(), PortError> {
        Ok(())
    }

    fn release(&mut self, _bufs: &mut Bufs) {}
}

/// Ports of the switch, by what hangs on them.
const HOST: usize = 0;
const DEVICE: usize = 1;
const GFD: usize = 2;
const FABRIC: usize = 3;
const AGENT: usize = 4;
const L2: usize = 5;
const OLD_HOST: usize = 6;
const OLD_DEVICE: usize = 7;
const PORTS: usize = 8;

const HOST_PID: u16 = 0x0A1;
const DEVICE_PID: u16 = 0x0B2;
const GFD_PID: u16 = 0x123;
const FAR_GFD: u16 = 0x124;
const FAR_HOST: u16 = 0x0C3;
/// Both ends of a virtual link from the host to a switch behind the fabric port.
const LINK_NEAR: u16 = 0x0A2;
const LINK_FAR: u16 = 0x0D4;

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn id(port: usize) -> PortId {
    PortId::new(port).unwrap()
}

struct Rig {
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
    rx: Vec<Desk>,
    tx: Vec<Desk>,
    states: Vec<Arc<PortState>>,
    now: Instant,
    /// With one, every frame takes the long way.
    trace: Option<Trace<Deaf>>,
}

/// Nobody hears.
struct Deaf;

impl Listen for Deaf {
    fn listen(&mut self, _now: Instant, _event: &Event) {}
}

fn role(port: usize) -> PortRole {
    let link = TlpLink::default();
    let old = TlpLink { mode: Mode::NonFlit, ..link };
    match port {
        HOST => PortRole::Usp(link),
        OLD_HOST => PortRole::Usp(old),
        DEVICE | GFD => PortRole::Dsp(link),
        OLD_DEVICE => PortRole::Dsp(old),
        FABRIC => PortRole::Fport(link),
        AGENT => PortRole::Cpu,
        _ => PortRole::L2,
    }
}

fn mac(port: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 0, u8::try_from(port).unwrap()])
}

/// Address of who is at the other end.
fn partner(port: usize) -> MacAddr {
    MacAddr([2, 0, 0, 0, 1, u8::try_from(port).unwrap()])
}

impl Rig {
    fn new() -> Self {
        let mut config = memory::config(PORTS, 8, 2_048, memory::CHUNK, 16);
        for (at, port) in config.ports.iter_mut().enumerate() {
            port.role = role(at);
            port.parse.port_mac = mac(at);
        }
        let pool = Pool::in_memory(4_096, memory::FRAME_LEN_MAX).unwrap();
        let desks = || (0..PORTS).map(|_| Desk::default()).collect::<Vec<_>>();
        let (rx, tx) = (desks(), desks());
        let states: Vec<_> = (0..PORTS).map(|_| Arc::<PortState>::default()).collect();
        let ports = rx.iter().zip(&tx).zip(&states).map(|((rx, tx), state)| {
            let (rx, tx, state) = (rx.clone(), tx.clone(), state.clone());
            Box::new(Listed { caps: memory::caps(), rx, tx, state }) as Box<dyn Port>
        });
        let builder = SwitchBuilder::new(ports.collect()).config(config).pool(pool);
        let Switch { core, mut lanes, .. } = builder.build().unwrap();
        let tlp_ports = core.snapshot.load().tlp_ports;
        core.tables.store(Arc::new(tables(tlp_ports)));
        let (lane, ports) = lanes.remove(0);
        let mut rig = Self { lane, ports, rx, tx, states, now: Instant::ZERO, trace: None };
        rig.step();
        rig
    }

    fn step(&mut self) {
        self.now = Instant::from_ns(self.now.as_ns() + 1_000);
        match &mut self.trace {
            Some(trace) => self.lane.step(self.now, &mut self.ports, trace),
            None => self.lane.step(self.now, &mut self.ports, &mut NoTrace),
        };
    }

    /// Puts a frame in at `port`; what came out, by port. The books are even.
    fn frame(&mut self, port: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        self.rx[port].lock().unwrap().push_back(frame.to_vec());
        self.step();
        self.out()
    }

    /// What came out, by port. The books are even, and nothing is queued.
    fn out(&self) -> Vec<(usize, Vec<u8>)> {
        let ledger = self.ledger();
        assert_eq!((ledger.imbalance(), ledger.queued), (0, 0));
        let out = self.tx.iter().enumerate();
        out.flat_map(|(at, tx)| {
            tx.lock().unwrap().drain(..).map(move |f| (at, f)).collect::<Vec<_>>()
        })
        .collect()
    }

    fn ledger(&self) -> Ledger {
        Ledger::read(self.lane.core())
    }

    fn drops(&self, port: usize, reason: DropReason) -> u64 {
        self.ledger().port[port].drops[reason as usize]
    }

    fn refused(&self, port: usize, refusal: Refusal) -> u64 {
        self.ledger().port[port].refused[refusal.index()]
    }
}

/// A frame of docs/spec/wire-formats.md §3.7a: `protocol` and what follows it.
fn wire(to: MacAddr, from: MacAddr, protocol: u8, tlp: &[u8]) -> Vec<u8> {
    let head = [0x88, 0xB7, 0x02, 0x57, 0x46, 0x00, protocol, 0x10];
    [&to.0[..], &from.0, &head, tlp].concat()
}

/// As a partner at `port` sends it.
fn from_partner(port: usize, protocol: u8, tlp: &[u8]) -> Vec<u8> {
    wire(mac(port), partner(port), protocol, tlp)
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len() / 2)
        .map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap())
        .collect()
}

/// A UIO read of 64 bytes, tag 5, by 01:00.0 (docs/spec/wire-formats.md §3.5, with an address of ours).
fn uio_read(address: u64) -> Vec<u8> {
    [hex("22 00 00 10 01 00 00 05"), address.to_be_bytes().to_vec()].concat()
}

fn pth(spid: u16, dpid: u16) -> Pth {
    Pth::new(pid(spid), pid(dpid))
}

const GFAM: u64 = 1 << 40;
const FAR_GFAM: u64 = GFAM + (1 << 36);
const GIM: u64 = GFAM + (2 << 36);
const NOWHERE: u64 = GFAM + (3 << 36);

/// CXL 3.1 section 7.7.2.4: the original address, the edge's PID as the source, to the GFD with its PTH.
#[test]
fn a_uio_read_of_gfam_goes_to_the_gfd_and_its_data_come_back() {
    let mut rig = Rig::new();
    let request = uio_read(GFAM + 0x40);
    let out = rig.frame(HOST, &from_partner(HOST, 2, &request));
    let header = Pth { dsar: true, ..pth(HOST_PID, GFD_PID) };
    let want = [&header.emit()[..], &request].concat();
    assert_eq!(out, [(GFD, wire(MacAddr::BROADCAST, mac(GFD), 1, &want))]);

    let answer = [hex("48 00 00 10 00 00 00 05 01 00 00 00"), vec![0xAB; 64]].concat();
    let back = [&pth(GFD_PID, HOST_PID).emit()[..], &answer].concat();
    let out = rig.frame(GFD, &from_partner(GFD, 1, &back));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &answer))]);
    let sent = &rig.ledger().port[HOST].pri;
    assert!(sent[4].tx_bytes > 0, "completions have a priority of their own");
}

/// The same TLP on a fabric link is that of docs/spec/wire-formats.md §3.7, with our PIDs; in transit nothing changes.
#[test]
fn a_request_crosses_fabric_links_as_it_is() {
    let mut rig = Rig::new();
    let request = uio_read(FAR_GFAM);
    let out = rig.frame(HOST, &from_partner(HOST, 2, &request));
    let header = Pth { dsar: true, ..pth(HOST_PID, FAR_GFD) };
    let pbr = [&header.emit()[..], &request].concat();
    assert_eq!(out, [(FABRIC, wire(MacAddr::BROADCAST, mac(FABRIC), 1, &pbr))]);

    let transit = [&Pth { pif: true, ..pth(0x777, GFD_PID) }.emit()[..], &request].concat();
    let out = rig.frame(FABRIC, &from_partner(FABRIC, 1, &transit));
    let kept =
        [&Pth { pif: true, dsar: true, ..pth(0x777, GFD_PID) }.emit()[..], &request].concat();
    assert_eq!(out, [(GFD, wire(MacAddr::BROADCAST, mac(GFD), 1, &kept))]);
}

/// CXL 3.1 section 7.7.3.3, flow one: PIF on the way out, the source as a prefix where it arrives.
#[test]
fn gim_sets_pif_and_the_far_edge_inserts_the_prefix() {
    let mut rig = Rig::new();
    let request = uio_read(GIM);
    let out = rig.frame(HOST, &from_partner(HOST, 2, &request));
    let header = Pth { pif: true, dsar: true, ..pth(HOST_PID, FAR_HOST) };
    let pbr = [&header.emit()[..], &request].concat();
    assert_eq!(out, [(FABRIC, wire(MacAddr::BROADCAST, mac(FABRIC), 1, &pbr))]);

    let came = [&Pth { pif: true, ..pth(FAR_HOST, HOST_PID) }.emit()[..], &request].concat();
    let out = rig.frame(FABRIC, &from_partner(FABRIC, 1, &came));
    let with = [&VendPrefixL0::from_pid(pid(FAR_HOST)).emit()[..], &request].concat();
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &with))]);

    // The answer carries the same PID, which is where it goes; no completion has a prefix when it leaves.
    let answer = hex("0C 00 00 00 00 00 00 05 01 00 00 00");
    let prefixed = [&VendPrefixL0::from_pid(pid(FAR_HOST)).emit()[..], &answer].concat();
    let out = rig.frame(HOST, &from_partner(HOST, 2, &prefixed));
    let header = Pth { dsar: true, ..pth(HOST_PID, FAR_HOST) };
    let want = [&header.emit()[..], &answer].concat();
    assert_eq!(out, [(FABRIC, wire(partner(FABRIC), mac(FABRIC), 1, &want))]);
}

/// A request that is refused comes back as a completion; what asks for none is dropped. Both are counted.
#[test]
fn refused_requests_are_answered_where_an_answer_is_due() {
    let mut rig = Rig::new();
    let ur = |tag: u8| hex(&format!("0D 01 00 00 01 00 00 {tag:02X} 01 00 00 00 00 00 00 01"));
    // FAST entry not valid
    let out = rig.frame(HOST, &from_partner(HOST, 2, &uio_read(NOWHERE)));
    assert_eq!(
        out,
        [(HOST, wire(partner(HOST), mac(HOST), 2, &ur(5)))],
        "UIORdCpl, UR, by 01:00.0"
    );
    assert_eq!(rig.refused(HOST, Refusal::NoFastEntry), 1);
    assert_eq!(rig.ledger().port[HOST].answered, 1);
    // plain memory writes to GIM: nobody waits
    let write = hex("60 00 00 01 01 00 00 00 00 00 01 20 00 00 00 00 DE AD BE EF");
    assert_eq!(rig.frame(HOST, &from_partner(HOST, 2, &write)), []);
    assert_eq!(rig.refused(HOST, Refusal::GimNeedsUio), 1);
    assert_eq!(rig.drops(HOST, DropReason::UnsupportedRequest), 1);
    // a prefix on a request at a port that may not use it there
    let prefixed = [&VendPrefixL0::from_pid(pid(FAR_HOST)).emit()[..], &uio_read(GIM)].concat();
    let out = rig.frame(HOST, &from_partner(HOST, 2, &prefixed));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &ur(5)))]);
    assert_eq!(rig.refused(HOST, Refusal::PrefixNotEnabled), 1);
    // a completion to a PID that VTV does not name
    let answer = hex("0C 00 00 00 00 00 00 05 01 00 00 00");
    let stray = [&VendPrefixL0::from_pid(pid(0x555)).emit()[..], &answer].concat();
    assert_eq!(rig.frame(HOST, &from_partner(HOST, 2, &stray)), []);
    assert_eq!(rig.drops(HOST, DropReason::UnexpectedCompletion), 1);
    // out of the fabric to where nothing leads: back with the PIDs exchanged
    let lost = [&pth(FAR_HOST, 0x999).emit()[..], &uio_read(0)].concat();
    let out = rig.frame(FABRIC, &from_partner(FABRIC, 1, &lost));
    let header = Pth { dsar: true, ..pth(0x999, FAR_HOST) };
    let back = hex("0D 01 00 00 00 00 00 05 01 00 00 00 00 00 00 01");
    let want = [&header.emit()[..], &back].concat();
    assert_eq!(out, [(FABRIC, wire(partner(FABRIC), mac(FABRIC), 1, &want))]);
    assert_eq!(rig.refused(FABRIC, Refusal::NoDrtEntry), 1);
}

/// PCIe 6.0 sections 2.2.4.1 and 2.2.4.2: by address and by id, Type 1 to Type 0 at the target's bus.
#[test]
fn hierarchical_requests_find_their_bridge() {
    let mut rig = Rig::new();
    let here = |rig: &mut Rig, tlp: &str| rig.frame(HOST, &from_partner(HOST, 2, &hex(tlp)));
    // CfgRd1 to 03:00.0 becomes CfgRd0 on the device's link
    let out = here(&mut rig, "05 01 00 01 00 00 00 01 03 00 00 00 00 00 00 0F");
    let want = hex("04 01 00 01 00 00 00 01 03 00 00 00 00 00 00 0F");
    assert_eq!(out, [(DEVICE, wire(MacAddr::BROADCAST, mac(DEVICE), 2, &want))]);
    // CfgRd1 to 05:00.0 lies beyond the virtual link, whose far end is 4: unchanged, hierarchical
    let far = "05 01 00 01 00 00 00 02 05 00 00 00 00 00 00 0F";
    let out = here(&mut rig, far);
    let header = Pth { hie: true, dsar: true, ..pth(LINK_NEAR, LINK_FAR) };
    let want = [&header.emit()[..], &hex(far)].concat();
    assert_eq!(out, [(FABRIC, wire(MacAddr::BROADCAST, mac(FABRIC), 1, &want))]);
    // CfgRd1 to 04:00.0 is for the far end itself: Type 0 on the virtual link
    let out = here(&mut rig, "05 01 00 01 00 00 00 02 04 00 00 00 00 00 00 0F");
    let type0 = hex("04 01 00 01 00 00 00 02 04 00 00 00 00 00 00 0F");
    let want = [&header.emit()[..], &type0].concat();
    assert_eq!(out, [(FABRIC, wire(MacAddr::BROADCAST, mac(FABRIC), 1, &want))]);
    // its completion comes back by the same two PIDs
    let answer = hex("4A 00 00 01 04 00 00 02 00 00 00 04 AA BB CC DD");
    let back = [&Pth { hie: true, ..pth(LINK_FAR, LINK_NEAR) }.emit()[..], &answer].concat();
    let out = rig.frame(FABRIC, &from_partner(FABRIC, 1, &back));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &answer))]);
    // the device writes to the host's memory, and another one's request for it goes down
    let dma = "40 00 00 01 03 00 00 00 00 10 00 00 01 02 03 04";
    let out = rig.frame(DEVICE, &from_partner(DEVICE, 2, &hex(dma)));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &hex(dma)))]);
    let out = here(&mut rig, "40 00 00 01 01 00 00 00 E0 00 01 00 01 02 03 04");
    assert_eq!(out[0].0, DEVICE);
    // a window without a device, and an address that nobody claims
    let read = |address: &str| format!("03 00 00 01 01 00 00 07 {address}");
    for (address, refusal) in [
        ("E0 20 00 00", Refusal::Unbound),
        ("10 00 00 00", Refusal::UpstreamClaimsNot),
        ("E0 30 00 00", Refusal::NobodyClaims),
    ] {
        let out = here(&mut rig, &read(address));
        // Cpl, UR in OHC-A5, by 01:00.0, byte count 4
        let want = hex("0A 01 00 00 01 00 00 07 01 00 00 04 00 00 00 01");
        assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &want))], "{address}");
        assert_eq!(rig.refused(HOST, refusal), 1, "{address}");
        // a write waits for no answer: it is dropped and counted
        let dropped = rig.drops(HOST, DropReason::UnsupportedRequest);
        let write = format!("40 00 00 01 01 00 00 00 {address} 01 02 03 04");
        assert_eq!(here(&mut rig, &write), [], "{address}");
        assert_eq!(rig.refused(HOST, refusal), 2, "{address}");
        assert_eq!(rig.drops(HOST, DropReason::UnsupportedRequest), dropped + 1, "{address}");
    }
}

/// Between two links of the old kind a TLP keeps its bytes, LN among them; from one of them to the fabric it
/// changes its header's layout.
#[test]
fn non_flit_links_keep_their_layout_and_translate_at_the_fabric() {
    let mut rig = Rig::new();
    let ln_read = hex("00 02 00 10 03 00 21 FF 10 00 00 00");
    let out = rig.frame(OLD_DEVICE, &from_partner(OLD_DEVICE, 3, &ln_read));
    assert_eq!(out, [(OLD_HOST, wire(MacAddr::BROADCAST, mac(OLD_HOST), 3, &ln_read))]);
    // a flit-mode frame has no business there
    let out = rig.frame(OLD_DEVICE, &from_partner(OLD_DEVICE, 2, &uio_read(0)));
    assert_eq!((out.len(), rig.drops(OLD_DEVICE, DropReason::NotTlp)), (0, 1));

    // With the device bound to the host on a flit-mode link, the layout changes on the way.
    let core = rig.lane.core().clone();
    let mut tables = (**core.tables.load()).clone();
    let up = Vppb { binding: Binding::Port(id(HOST)), ..*old_vcs().upstream() };
    tables.set_vcs(1, Some(Vcs::new(up, None, old_vcs().below()).unwrap())).unwrap();
    core.tables.store(Arc::new(tables));
    let out = rig.frame(OLD_DEVICE, &from_partner(OLD_DEVICE, 3, &ln_read));
    let flit = hex("03 00 00 10 03 00 00 21 10 00 00 00");
    assert_eq!(out, [(HOST, wire(MacAddr::BROADCAST, mac(HOST), 2, &flit))], "and LN is gone");
}

/// UIO has no form on a non-flit link: the requester hears of it.
#[test]
fn what_has_no_form_on_the_output_is_refused() {
    let mut rig = Rig::new();
    let core = rig.lane.core().clone();
    let mut tables = (**core.tables.load()).clone();
    tables.set_drt(usize::from(FAR_GFD), &[DrtEntry::Port(7)]).unwrap();
    core.tables.store(Arc::new(tables));
    let out = rig.frame(HOST, &from_partner(HOST, 2, &uio_read(FAR_GFAM)));
    let ur = hex("0D 01 00 00 01 00 00 05 01 00 00 00 00 00 00 01");
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &ur))]);
    assert_eq!(rig.refused(HOST, Refusal::NoForm), 1);
}

/// Configuration of the virtual switch itself, link control and what is for the switch goes to the CPU port.
#[test]
fn the_agent_is_told_of_the_input_and_names_the_output() {
    let mut rig = Rig::new();
    // CfgRd0 on the host's link is the upstream vPPB's
    let config = hex("04 01 00 01 00 00 00 01 01 00 00 00 00 00 00 0F");
    let out = rig.frame(HOST, &from_partner(HOST, 2, &config));
    assert_eq!(out, [(AGENT, wire(CPU_PORT_MAC, cpu_mac_of_port(id(HOST)), 2, &config))]);
    let control = vec![1, 2, 3, 4];
    let out = rig.frame(GFD, &from_partner(GFD, 4, &control));
    assert_eq!(out, [(AGENT, wire(CPU_PORT_MAC, cpu_mac_of_port(id(GFD)), 4, &control))]);
    for dpid in [0xFFF, 0x010] {
        let vdm = hex("34 00 00 00 00 00 00 7E 00 00 1E 98 00 00 00 90");
        let pbr = [&pth(0xFFF, dpid).emit()[..], &vdm].concat();
        let out = rig.frame(FABRIC, &from_partner(FABRIC, 1, &pbr));
        assert_eq!(out, [(AGENT, wire(CPU_PORT_MAC, cpu_mac_of_port(id(FABRIC)), 1, &pbr))]);
    }
    assert_eq!(rig.ledger().port[FABRIC].to_agent, 2);
    // its answer
    let answer = hex("4A 00 00 01 01 00 00 01 00 00 00 04 98 1E 00 01");
    let out = rig.frame(AGENT, &wire(cpu_mac_of_port(id(HOST)), CPU_PORT_MAC, 2, &answer));
    assert_eq!(out, [(HOST, wire(partner(HOST), mac(HOST), 2, &answer))]);
    // by its PTH
    let vdm = hex("34 00 00 00 00 00 00 7E 00 00 1E 98 00 00 04 80");
    let pbr = [&Pth { hie: true, ..pth(LINK_NEAR, LINK_FAR) }.emit()[..], &vdm].concat();
    let out = rig.frame(AGENT, &wire(CPU_PORT_MAC, MacAddr::ZERO, 1, &pbr));
    assert_eq!(out, [(FABRIC, wire(partner(FABRIC), mac(FABRIC), 1, &pbr))]);
}

/// TLPs keep to their ports, and Ethernet to its own.
#[test]
fn frames_of_another_kind_do_not_pass() {
    let mut rig = Rig::new();
    let mut arp = [&[0xFF; 6][..], &partner(L2).0, &[8, 6]].concat();
    arp.resize(60, 0);
    assert_eq!(rig.frame(L2, &arp), [], "no TLP port is flooded");
    let tlp = from_partner(L2, 2, &uio_read(GFAM));
    assert_eq!(rig.frame(L2, &tlp), [], "nor is a TLP routed that comes in by Ethernet");
    let frames = [
        ("Ethernet", HOST, arp.clone()),
        ("PBR at a host's port", HOST, from_partner(HOST, 1, &pth(1, 2).emit())),
        ("no PTH on a fabric link", FABRIC, from_partner(FABRIC, 2, &uio_read(GFAM))),
        ("no protocol", HOST, from_partner(HOST, 9, &uio_read(GFAM))),
        ("cut off", HOST, from_partner(HOST, 2, &uio_read(GFAM)[..9])),
        ("reserved type", HOST, from_partner(HOST, 2, &[0x1F; 16])),
        ("empty", HOST, from_partner(HOST, 2, &[])),
    ];
    for (name, port, frame) in frames {
        let before = rig.ledger().port[port].drops.iter().sum::<u64>();
        assert_eq!(rig.frame(port, &frame), [], "{name}");
        assert_eq!(rig.ledger().port[port].drops.iter().sum::<u64>(), before + 1, "{name}");
    }
    // longer than Max_Payload_Size
    let payload = vec![0; 1_024];
    let body = Body::Address {
        addr: Hpa(GFAM),
        wide: true,
        at: weft_parsers::tlp::At::default(),
        no_write: false,
        length_dw: 256,
        first_be: 15,
        last_be: 15,
    };
    let mut write = TlpRepr::new(Mode::Flit, Kind::UioWrite, Bdf::new(1, 0, 0), 1, body);
    write.payload = &payload;
    let mut bytes = [0; 1_200];
    let len = write.emit(&mut bytes).unwrap();
    let before = rig.drops(HOST, DropReason::Malformed);
    assert_eq!(rig.frame(HOST, &from_partner(HOST, 2, &bytes[..len])), []);
    assert_eq!(rig.drops(HOST, DropReason::Malformed), before + 1);
    assert_eq!(rig.refused(HOST, Refusal::NoVcs), 0);
}

/// A VLAN tag in front of a TLP is tolerated and left behind; padding is cut off.
#[test]
fn tags_and_padding_are_left_behind() {
    let mut rig = Rig::new();
    let request = uio_read(GFAM);
    let plain = from_partner(HOST, 2, &request);
    let mut tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    tagged.resize(64, 0xEE);
    let header = Pth { dsar: true, ..pth(HOST_PID, GFD_PID) };
    let want = [&header.emit()[..], &request].concat();
    let want = [(GFD, wire(MacAddr::BROADCAST, mac(GFD), 1, &want))];
    assert_eq!(rig.frame(HOST, &tagged), want);
    assert_eq!(rig.frame(HOST, &plain), want);
}

/// docs/spec/wire-formats.md §3.7: NOPs and reserved DWs before a PTH are passed over, and left behind; nothing else is
/// no TLP.
#[test]
fn nops_before_a_pth_are_passed_over() {
    let mut rig = Rig::new();
    let request = uio_read(GFAM);
    let header = Pth { dsar: true, ..pth(0x777, GFD_PID) }.emit();
    let pbr = [&header[..], &request].concat();
    let want = [(GFD, wire(MacAddr::BROADCAST, mac(GFD), 1, &pbr))];
    let fillers: [&[u8]; 4] = [&[], &[0; 4], &[0; 96], &[0, 0, 0, 0, 0x7F, 1, 2, 3, 0, 0, 0, 0]];
    for filler in fillers {
        let frame = from_partner(FABRIC, 1, &[filler, &pbr].concat());
        assert_eq!(rig.frame(FABRIC, &frame), want, "{filler:?}");
    }
    let before = rig.drops(FABRIC, DropReason::NotTlp);
    assert_eq!(rig.frame(FABRIC, &from_partner(FABRIC, 1, &[0; 64])), []);
    assert_eq!(rig.drops(FABRIC, DropReason::NotTlp), before + 1);
}

/// docs/spec/wire-formats.md §3.7a, byte 19: another version is none of ours; flags are not looked at, and sent as 0.
#[test]
fn the_version_counts_and_the_flags_do_not() {
    let mut rig = Rig::new();
    let plain = from_partner(HOST, 2, &uio_read(GFAM));
    assert_eq!(plain[19], 0x10);
    let out = rig.frame(HOST, &plain);
    assert_eq!((out.len(), out[0].1[19]), (1, 0x10));
    for byte in 0..=u8::MAX {
        let mut frame = plain.clone();
        frame[19] = byte;
        let before = rig.drops(HOST, DropReason::NotTlp);
        let is_ours = byte >> 4 == 1;
        assert_eq!(
            rig.frame(HOST, &frame),
            if is_ours { out.clone() } else { vec![] },
            "{byte:#x}"
        );
        let dropped = rig.drops(HOST, DropReason::NotTlp) - before;
        assert_eq!(dropped, u64::from(!is_ours), "{byte:#x}");
    }
}

/// A GFD speaks as itself only.
#[test]
fn a_gfd_cannot_speak_as_another() {
    let mut rig = Rig::new();
    let answer = hex("0C 00 00 00 00 00 00 05 01 00 00 00");
    let forged = [&pth(0x0BB, HOST_PID).emit()[..], &answer].concat();
    assert_eq!(rig.frame(GFD, &from_partner(GFD, 1, &forged)), []);
    assert_eq!(rig.refused(GFD, Refusal::ForeignSpid), 1);
    assert_eq!(rig.drops(GFD, DropReason::TlpRefused), 1);
}

/// Whatever stands before its PTH, and whoever it is for, a TLP with one is refused at a host's port, and at a GFD's in
/// another name; the switch's own functions hear nothing of it.
#[test]
fn a_pth_gives_nobody_a_name() {
    let mut rig = Rig::new();
    let claim = hex(
        "72 00 00 04 00 00 00 7F 00 00 1A B4 01 00 00 C9 07 00 01 00 00 01 07 15 00 00 00 00 00 00 00 00",
    );
    let info = [hex("74 00 00 10 00 00 00 7E 00 00 1E 98 00 00 00 90"), vec![0; 64]].concat();
    let answer = hex("0C 00 00 00 00 00 00 05 01 00 00 00");
    for (at, why) in [(HOST, Refusal::PthAtEdge), (GFD, Refusal::ForeignSpid)] {
        let mut sent = 0;
        for dpid in [0xFFF, HOST_PID, GFD_PID, FAR_HOST, FAR_GFD, 0x010, LINK_FAR] {
            for (tlp, is_info) in [(&claim, false), (&info, true), (&answer, false)] {
                if at == GFD && is_info && dpid == 0xFFF {
                    continue; // who its partner is, it may say
                }
                let pth = Pth { hie: dpid == LINK_FAR, ..pth(0x0BB, dpid) };
                let plain = from_partner(at, 1, &[&pth.emit()[..], tlp].concat());
                let late = from_partner(at, 1, &[&[0; 12], &pth.emit()[..], tlp].concat());
                let tagged = [&plain[..12], &[0x81, 0, 0xE0, 5], &plain[12..]].concat();
                for frame in [plain, late, tagged] {
                    assert_eq!(rig.frame(at, &frame), [], "{at} {dpid:x}");
                    sent += 1;
                    assert_eq!(rig.refused(at, why), sent, "{at} {dpid:x}");
                    assert_eq!(rig.drops(at, DropReason::TlpRefused), sent);
                }
            }
        }
        assert_eq!(rig.ledger().port[at].to_agent, 0);
    }
}

/// A well-formed TLP of any kind that takes the short way, or of some others.
fn drawn_tlp(rng: &mut Rng) -> Vec<u8> {
    const KINDS: [Kind; 9] = [
        Kind::UioRead,
        Kind::UioWrite,
        Kind::MemRead,
        Kind::MemWrite,
        Kind::Completion { locked: false, data: false },
        Kind::UioWriteCompletion,
        Kind::UioReadCompletion { data: true },
        Kind::FetchAdd,
        Kind::CfgRead { type1: true },
    ];
    let mut below = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
    let kind = KINDS[below(KINDS.len())];
    let segment = [0, GFAM, FAR_GFAM, GIM, NOWHERE, 0xE000_0000, 0xE010_0000][below(7)];
    let length_dw = if kind == Kind::FetchAdd { 1 } else { u16::try_from(1 + below(40)).unwrap() };
    let wide = kind.is_uio() || below(2) == 0 || segment > u64::from(u32::MAX);
    let (first_be, last_be) = match (below(8), length_dw) {
        (0, 1) => (3, 0),
        (_, 1) => (15, 0),
        _ => (15, 15),
    };
    let body = match kind {
        Kind::Completion { .. } => Body::Completion {
            completer: Bdf::new(3, 0, 0),
            completer_segment: None,
            status: weft_parsers::tlp::Status::Success,
            byte_count: 4,
            lower_address: 0,
        },
        Kind::UioWriteCompletion | Kind::UioReadCompletion { .. } => Body::UioCompletion {
            completer: Bdf::new(3, 0, 0),
            completer_segment: None,
            status: weft_parsers::tlp::Status::Success,
            dev_load: weft_parsers::tlp::DevLoad::Light,
            offset_dw: 0,
        },
        Kind::CfgRead { .. } => {
            let dest = Bdf::new(u8::try_from(1 + below(7)).unwrap(), 0, 0);
            Body::Config { dest, register: 0, first_be: 15 }
        }
        _ => Body::Address {
            addr: Hpa(segment + 64 * below(64) as u64),
            wide,
            at: weft_parsers::tlp::At::default(),
            no_write: false,
            length_dw,
            first_be,
            last_be,
        },
    };
    let payload = vec![u8::try_from(below(256)).unwrap(); usize::from(length_dw) * 4];
    let requester = Bdf::new(u8::try_from(1 + below(4)).unwrap(), 0, 0);
    let mut tlp =
        TlpRepr::new(Mode::Flit, kind, requester, u16::try_from(below(900)).unwrap(), body);
    tlp.tc = u8::try_from(below(8)).unwrap();
    if kind.has_data() {
        tlp.payload = &payload;
    }
    let mut bytes = vec![0; 512];
    let len = tlp.emit(&mut bytes).unwrap_or_default(); // or nothing, which is malformed
    bytes.truncate(len);
    bytes
}

/// A frame that any port could get, now and then damaged.
fn drawn(rng: &mut Rng) -> (usize, Vec<u8>) {
    const PIDS: [u16; 9] =
        [HOST_PID, DEVICE_PID, GFD_PID, FAR_GFD, FAR_HOST, LINK_NEAR, LINK_FAR, 0x999, 0xFFF];
    let bytes = drawn_tlp(rng);
    let mut below = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
    let port = [HOST, DEVICE, GFD, FABRIC, FABRIC][below(5)];
    let mut frame = if below(8) == 0 || matches!(port, GFD | FABRIC) {
        let pth = Pth {
            pif: below(4) == 0,
            dsar: below(2) == 0,
            hie: below(4) == 0,
            ..pth(PIDS[below(9)], PIDS[below(9)])
        };
        from_partner(port, 1, &[&pth.emit()[..], &bytes].concat())
    } else {
        from_partner(port, 2, &bytes)
    };
    match below(12) {
        0 => frame.truncate(12 + below(frame.len() - 12)),
        1 => frame.resize(frame.len() + below(30), 0),
        2 => {
            let at = 12 + below(30);
            if let Some(byte) = frame.get_mut(at) {
                *byte ^= 1 << below(8);
            }
        }
        _ => {}
    }
    (port, frame)
}

/// What the fast path takes goes where the full path would send it, byte for byte and count for count.
#[test]
fn the_short_way_comes_to_the_same_as_the_long_one() {
    let mut rng = Rng::new(4);
    let (mut short, mut long) = (Rig::new(), Rig::new());
    long.trace = Some(Trace::new(Deaf));
    let mut passed = 0;
    for n in 0..4_000 {
        let frames: Vec<_> = (0..=n % 5).map(|_| drawn(&mut rng)).collect();
        for rig in [&mut short, &mut long] {
            for (port, frame) in &frames {
                rig.rx[*port].lock().unwrap().push_back(frame.clone());
            }
            rig.step();
        }
        for (port, (ours, theirs)) in short.tx.iter().zip(&long.tx).enumerate() {
            let (mut ours, mut theirs) = (ours.lock().unwrap(), theirs.lock().unwrap());
            assert_eq!(
                ours.make_contiguous(),
                theirs.make_contiguous(),
                "port {port}: {frames:02x?}"
            );
            passed += ours.len();
            ours.clear();
            theirs.clear();
        }
    }
    let (short, long) = (short.ledger(), long.ledger());
    assert_eq!(short.imbalance(), 0);
    for (short, long) in short.port.iter().zip(&long.port) {
        assert_eq!(short, long);
    }
    assert!(passed > 4_000, "{passed} frames passed");
}
