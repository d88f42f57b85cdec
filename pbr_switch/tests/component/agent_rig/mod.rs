//! Two switches with their agents, joined by a pipe: a host and a device at the first, a device and a GFD at the
//! second.
//!
//! [`Fabric::step`] polls each part once. [`Fabric::ask`] sends requests of the fabric manager, and [`Fabric::command`]
//! those of the host's software.
#![expect(clippy::redundant_pub_crate, reason = "a module of a test")]
#![allow(dead_code, clippy::allow_attributes, reason = "not every test uses all of it")]

pub(crate) mod manager;

use std::sync::Arc;

use weft_cxl::cci::Session;
use weft_cxl::cxl_device::{DeviceConfig, Event as DeviceEvent, FunctionConfig, HdmConfig};
use weft_cxl::cxl_host::mailbox::{Response, blocks};
use weft_cxl::cxl_host::{Event, Export, HostConfig};
use weft_cxl::gfd::capacity::{Choice, NO_TAG};
use weft_cxl::gfd::dmp::{Dmp, Media, Region};
use weft_cxl::gfd::{Config, Gfd, Memory};
use weft_cxl::gfd_end::{Device, GfdEnd, GfdEndConfig};
use weft_cxl::in_band::Commands;
use weft_cxl::pci::enumerate::Reserve;
use weft_cxl::pci::{HostSpec, Link};
use weft_cxl::requester::{Done, Failure, OpId, Operation};
use weft_dataplane::config::{LiveSizes, PortRole, SwitchConfig, TlpConfig, TlpLink};
use weft_dataplane::pipeline::{Built, Core, Lane, Ledger, build};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::Pipe;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::PortId;
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::cci::mld::TunnelResponse;
use weft_parsers::cci::pbr::{CrawlOut, CrawlTarget};
use weft_parsers::cci::{Header, List, Payload, Request, ReturnCode};
use weft_parsers::fabric::{Dpa, Hpa, Pid};
use weft_parsers::tlp::Mode;
use weft_pbr_switch::{self as pbr_switch, Agent, AgentConfig, PortConfig, Role, VcsConfig};

use super::rig::{FRAME_LEN_MAX, Net, device_config, end, function, host_config};

pub(crate) const FM: Session = Session::Fm(1);
/// PCI device IDs of the devices at the first and the second switch.
pub(crate) const NEAR: u16 = 0x0D0A;
pub(crate) const FAR: u16 = 0x0D0B;
/// UUIDs of the switches, and of the GFD.
pub(crate) const UUIDS: [[u8; 16]; 2] = [[0x51; 16], [0x52; 16]];
pub(crate) const GFD_UUID: [u8; 16] = [0x6F; 16];
/// Roles of ports. First switch: host, device, other switch. Second switch: other switch, GFD, device; the device may
/// be replaced by a second host.
const ROLES: [[Role; 3]; 2] =
    [[Role::Usp, Role::Dsp, Role::Fabric], [Role::Fabric, Role::Dsp, Role::Dsp]];
pub(crate) const HOST: usize = 0;
pub(crate) const DEVICE: [usize; 2] = [1, 2];
pub(crate) const FABRIC: [usize; 2] = [2, 0];
pub(crate) const PEER: usize = 2;
pub(crate) const GFD: usize = 1;
/// Time that a bind takes.
const BIND_TIME: Span = Span::from_us(20);
/// Size of a block of the GFD's memory.
pub(crate) const BLOCK: u64 = 16 << 20;

pub(crate) fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

pub(crate) fn port(number: usize) -> PortId {
    PortId::new(number).unwrap()
}

/// A switch, its agent, and the switch's ends of the pipes.
pub(crate) struct Node {
    lane: Lane,
    core: Arc<Core>,
    pub ports: Vec<Box<dyn Port>>,
    up: Vec<bool>,
    pub agent: Agent,
    agent_port: Pipe,
    answers: Vec<Vec<u8>>,
    /// Number of times that new tables were published.
    pub published: u64,
}

pub(crate) struct Fabric {
    pub net: Net,
    /// Memory that each host exports.
    pub exports: [Export; 2],
    pub nodes: Vec<Node>,
    pub gfd: (GfdEnd, Pipe),
    /// Events of the first host, not taken yet.
    pub events: Vec<Event>,
    pub peer_events: Vec<Event>,
    /// The pipe between the switches.
    pub wire: weft_dataplane::port::pipe::LinkHandle,
    /// Messages of virtual links that arrived at the first switch before its end was bound.
    pub early: u64,
    moved: bool,
}

const fn roles(at: usize, peer: bool) -> [Role; 3] {
    match ROLES[at] {
        [first, second, _] if peer && at == 1 => [first, second, Role::Usp],
        all => all,
    }
}

fn lane(pool: &Arc<Pool>, at: usize, peer: bool) -> (Arc<Core>, Lane) {
    let mut config = SwitchConfig::live(&LiveSizes {
        names: (0..4).map(|port| format!("p{port}")).collect(),
        rate: LinkRate::gbps(100),
        pris: 8,
        cells: 1_024,
        cell_bytes: 4_800,
        headroom_cells: 4,
        frame_len_max: FRAME_LEN_MAX,
    });
    let link = TlpLink::default();
    let roles = roles(at, peer).map(|role| match role {
        Role::Usp => PortRole::Usp(link),
        Role::Dsp => PortRole::Dsp(link),
        Role::Fabric => PortRole::Fport(link),
    });
    let roles = roles.into_iter().chain([PortRole::Cpu]);
    for ((number, port), role) in (0..).zip(&mut config.ports).zip(roles) {
        port.role = role;
        port.parse.port_mac = MacAddr([2, 0, 0, 9, u8::try_from(at).unwrap(), number]);
    }
    let spread = vec![(0..4).map(port).collect::<Vec<_>>()];
    let Built { core, mut lanes } = build(config, pool, &spread).unwrap();
    (core, lanes.remove(0))
}

/// The agent of a switch. The first switch has the host's virtual switch; the second has one for its own host, or one
/// to be bound to the first host.
fn agent(at: usize, peer: bool) -> Agent {
    let mut config = pbr_switch::SwitchConfig::new(UUIDS[at], 7 + at as u64);
    config.bind_time = BIND_TIME;
    let ports = roles(at, peer).into_iter().enumerate();
    config.ports = ports.map(|(at, role)| PortConfig { port: port(at), role, pids: 1 }).collect();
    config.vcses = vec![match at {
        0 => VcsConfig { usp: Some(port(HOST)), vppbs: 2, gae: true },
        _ if peer => VcsConfig { usp: Some(port(PEER)), vppbs: 1, gae: true },
        _ => VcsConfig { usp: None, vppbs: 1, gae: false },
    }];
    let config = pbr_switch::Switch::new(config).unwrap();
    let modes = (0..3).map(|at| (port(at), Mode::Flit)).collect();
    let (tlp, classes) = (TlpConfig::for_pris(8), PriMap::eight());
    Agent::new(config, AgentConfig { modes, tlp, classes, payload_max: 512 })
}

/// A GFD with one block in group 0 and one in group 1. Its manager assigns its PID.
fn gfd(payload_max: usize) -> GfdEnd {
    let memory = 256 << 20;
    let mut gfd = Gfd::new(Config::full(Pid::NONE, LinkRate::gbps(100)), Memory::anonymous(memory));
    let (base, len, block, media) = (Dpa(0), memory, BLOCK, Media::default());
    gfd.set_dmps(&[Dmp { index: 0, base, decode_len: len, len, block, media }]).unwrap();
    gfd.set_region(Region { id: 0, block, sanitize: false, base, decode_len: len, len }).unwrap();
    for group in [0, 1] {
        let choice = Choice::Contiguous { region: 0, len: BLOCK };
        gfd.add_capacity(Instant::ZERO, group, NO_TAG, choice, 0).unwrap();
    }
    let config = GfdEndConfig { uuid: GFD_UUID, ..GfdEndConfig::default() };
    let mut end = GfdEnd::new(Device::new(gfd, 1), config, end(0x60, Mode::Flit, payload_max));
    end.set_in_band(Box::new(Commands::new(0)));
    end
}

impl Node {
    fn new(at: usize, pool: &Arc<Pool>, net: &mut Net, peer: bool) -> Self {
        let (core, lane) = lane(pool, at, peer);
        let (near, agent_port) = net.pipe();
        Self {
            lane,
            core,
            ports: vec![Box::new(near)],
            up: vec![false; 3],
            agent: agent(at, peer),
            agent_port,
            answers: Vec::new(),
            published: 0,
        }
    }

    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::read(&self.core)
    }

    fn publish(&mut self) {
        if let Some(tables) = self.agent.tables() {
            self.core.tables.store(Arc::new(tables));
            self.published += 1;
        }
    }

    /// Polls once. Publishes new tables before the agent sends, because its answers may tell that they are in force.
    fn step(&mut self, now: Instant, bufs: &mut Bufs) -> bool {
        let mut moved = self.lane.step(now, &mut self.ports, &mut NoTrace).work > 0;
        for (at, was_up) in self.up.iter_mut().enumerate() {
            let is_up = self.ports[at].link_up();
            if core::mem::replace(was_up, is_up) != is_up {
                self.agent.set_link(now, port(at), is_up.then(Link::default));
                moved = true;
            }
        }
        let sent = self.agent.counts().1.tx;
        moved |= self.agent.receive(now, &mut self.agent_port, bufs) > 0;
        assert_eq!(self.agent.counts().1.tx, sent, "no answer before the tables that it tells of");
        self.publish();
        moved |= self.agent.send(now, &mut self.agent_port, bufs).unwrap().frames > 0;
        while let Some((session, answer)) = self.agent.next_answer() {
            assert_eq!(session, FM);
            self.answers.push(answer);
        }
        moved
    }
}

impl Fabric {
    /// A fabric after power-on. Reads of the host request up to `read_max` bytes, which may exceed the payload of a
    /// TLP.
    pub(crate) fn new(payload_max: usize, read_max: usize) -> Self {
        let mut host = host_config(Mode::Flit);
        (host.end.payload_max, host.read_max) = (payload_max, read_max);
        let devices = [NEAR, FAR].map(|number| device_config(Mode::Flit, vec![function(number)]));
        Self::of(host, None, devices.into(), payload_max)
    }

    /// As [`Self::new`], but with a second host, which exports memory, in place of the far device. The near device has
    /// memory that the first host manages.
    pub(crate) fn with_peer(payload_max: usize, hdm: HdmConfig) -> Self {
        let mut host = host_config(Mode::Flit);
        host.end.payload_max = payload_max;
        let peer = HostConfig { gim: true, ..host.clone() };
        let near = FunctionConfig { hdm: Some(hdm), ..function(NEAR) };
        let devices = vec![device_config(Mode::Flit, vec![near])];
        Self::of(host, Some(peer), devices, payload_max)
    }

    fn of(
        mut host: HostConfig,
        peer: Option<HostConfig>,
        devices: Vec<DeviceConfig>,
        payload_max: usize,
    ) -> Self {
        let pool = Pool::in_memory(6_144, FRAME_LEN_MAX).unwrap();
        let mut net = Net::new();
        net.bufs = Bufs::new(pool.clone(), 64, 0);
        let reserve = Reserve { buses: 8, io: 0x1000, mem: 16 << 20, pref: 16 << 20 };
        host.spec = HostSpec { reserve, ..host.spec };
        let has_peer = peer.is_some();
        for mut host in core::iter::once(host).chain(peer) {
            host.timeout = Span::from_ms(20);
            net.host(host);
        }
        for mut config in devices {
            config.timeout = Span::from_ms(20);
            config.end.payload_max = payload_max;
            net.device(config);
        }
        let mut nodes = [0, 1].map(|at| Node::new(at, &pool, &mut net, has_peer));
        let made = [(); 5].map(|()| net.pipe());
        let [host, near, between, gfd_wire, far] = made;
        net.hosts[0].1 = Some(host.0);
        net.devices[0].1 = Some(near.0);
        match net.hosts.get_mut(1) {
            Some((_, pipe)) => *pipe = Some(far.0),
            None => net.devices[1].1 = Some(far.0),
        }
        let wire = between.0.link_handle();
        let own: [[Pipe; 3]; 2] = [[host.1, near.1, between.0], [between.1, gfd_wire.1, far.1]];
        for (node, pipes) in nodes.iter_mut().zip(own) {
            let agent = node.ports.remove(0);
            node.ports.extend(pipes.into_iter().map(|pipe| Box::new(pipe) as Box<dyn Port>));
            node.ports.push(agent);
        }
        let nodes = Vec::from(nodes);
        Self {
            net,
            exports: [Export { base: Hpa(0), len: 0, local: 0 }; 2],
            nodes,
            gfd: (gfd(payload_max), gfd_wire.0),
            events: Vec::new(),
            peer_events: Vec::new(),
            wire,
            early: 0,
            moved: true,
        }
    }

    /// Polls each part once. The time advances by 100 ns, or by 100 µs if nothing moved in the step before.
    pub(crate) fn step(&mut self) {
        self.net.now += if self.moved { Span::from_ns(100) } else { Span::from_us(100) };
        let now = self.net.now;
        self.moved = false;
        for node in &mut self.nodes {
            self.moved |= node.step(now, &mut self.net.bufs);
        }
        let Net { hosts, devices, bufs, .. } = &mut self.net;
        let events = [&mut self.events, &mut self.peer_events];
        for (((host, pipe), exports), events) in hosts.iter_mut().zip(&self.exports).zip(events) {
            let pipe = pipe.as_mut().unwrap();
            self.moved |= host.poll_with(now, pipe, bufs, exports).unwrap().frames > 0;
            events.extend(core::iter::from_fn(|| host.next_event()));
        }
        for (device, pipe) in devices {
            self.moved |= device.poll(now, pipe.as_mut().unwrap(), bufs).unwrap().frames > 0;
        }
        let (gfd, pipe) = &mut self.gfd;
        self.moved |= gfd.poll(now, pipe, bufs).unwrap().frames > 0;
    }

    /// Steps until `done` returns a value.
    pub(crate) fn until<T>(
        &mut self,
        what: &str,
        mut done: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        let start = self.net.now;
        loop {
            if let Some(answer) = done(self) {
                return answer;
            }
            assert!(self.net.now.since(start) < Span::from_ms(3_000), "{what} did not happen");
            self.step();
        }
    }

    /// Steps for this long.
    pub(crate) fn rest(&mut self, span: Span) {
        let end = self.net.now + span;
        while self.net.now < end {
            self.step();
        }
    }

    /// Waits for the host's first event that `pick` accepts; drops the events before it.
    pub(crate) fn event<T>(&mut self, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        self.until(what, |fabric| {
            let at = fabric.events.iter().position(|event| pick(event).is_some())?;
            pick(fabric.events.drain(..=at).next_back().as_ref()?)
        })
    }

    /// Sends a message of the manager to the first switch, and returns the answer.
    pub(crate) fn send(&mut self, message: &[u8]) -> Vec<u8> {
        let now = self.net.now;
        self.nodes[0].agent.cci(now, FM, message);
        self.nodes[0].publish();
        self.next_answer()
    }

    fn next_answer(&mut self) -> Vec<u8> {
        self.until("an answer", |fabric| {
            let answers = &mut fabric.nodes[0].answers;
            (!answers.is_empty()).then(|| answers.remove(0))
        })
    }

    /// Waits for the next answer of the first switch to the manager.
    pub(crate) fn answer(&mut self) -> (ReturnCode, Vec<u8>) {
        parsed(&self.next_answer())
    }

    /// Sends a request to a component through the targets of `way`.
    pub(crate) fn ask(
        &mut self,
        way: &[CrawlTarget],
        request: &Request<'_>,
    ) -> (ReturnCode, Vec<u8>) {
        let mut bytes = message(request);
        for &target in way.iter().rev() {
            let crawl = CrawlOut { target, message: List::of(&bytes) };
            bytes = message(&Request::CrawlOut(crawl));
        }
        let mut answer = self.send(&bytes);
        for _ in way {
            let (code, payload) = parsed(&answer);
            if code != ReturnCode::Success {
                return (code, payload);
            }
            let inner = TunnelResponse::parse(&payload).unwrap();
            answer = inner.message.bytes().to_vec();
        }
        parsed(&answer)
    }

    /// As [`Self::ask`]; the request must succeed. Returns the payload of the response.
    pub(crate) fn ok(&mut self, way: &[CrawlTarget], request: &Request<'_>) -> Vec<u8> {
        let (code, payload) = self.ask(way, request);
        assert_eq!(code, ReturnCode::Success, "{way:?} {request:?}");
        payload
    }

    /// Sends a command of the host's software through the mailbox of the GAE.
    pub(crate) fn command(&mut self, request: &Request<'_>) -> Response {
        let mut payload = vec![0; 4_096];
        let len = request.emit(&mut payload).unwrap();
        self.raw_command(request.opcode().0, &payload[..len])
    }

    pub(crate) fn raw_command(&mut self, opcode: u16, payload: &[u8]) -> Response {
        let all = blocks(self.net.hosts[0].0.tree().unwrap());
        let [(_, block)] = all[..] else { panic!("one GAE, not {all:?}") };
        let number = self.net.hosts[0].0.command(block, opcode, payload);
        let result = self.event("a response", |event| match event {
            Event::Response { number: other, result } if *other == number => Some(result.clone()),
            _ => None,
        });
        result.unwrap()
    }

    /// As [`Self::command`]; the command must succeed.
    pub(crate) fn done(&mut self, request: &Request<'_>) -> Vec<u8> {
        let Response { code, payload, .. } = self.command(request);
        assert_eq!(code, 0, "{request:?}");
        payload
    }

    pub(crate) fn finish(&mut self, op: OpId) -> Result<Vec<u8>, Failure> {
        self.event("an end", |event| match event {
            Event::Done(done) if done.op == op => Some(done.result.clone()),
            _ => None,
        })
    }

    /// Lets a device write or read, and waits for the end.
    pub(crate) fn dma(&mut self, device: usize, what: Operation) -> Result<Vec<u8>, Failure> {
        let op = self.net.devices[device].0.submit(0, what).unwrap();
        self.until("a device's end", |fabric| match fabric.net.devices[device].0.next_event() {
            Some(DeviceEvent::Done { done: Done { op: other, result, .. }, .. }) if other == op => {
                Some(result)
            }
            _ => None,
        })
    }

    pub(crate) fn enumerate(&mut self) {
        self.net.hosts[0].0.enumerate();
        self.event("an enumeration", |event| match event {
            Event::Enumerated(result) => Some(*result),
            _ => None,
        })
        .unwrap();
    }

    /// Whether the host's tree has a device with this PCI device ID.
    pub(crate) fn sees(&self, device: u16) -> bool {
        let host = &self.net.hosts[0].0;
        host.tree().is_some_and(|tree| tree.iter().any(|node| node.device == device))
    }

    /// Checks that counters balance, queues are empty, and no component has seen a stray message.
    pub(crate) fn check(&mut self) {
        self.rest(Span::from_ms(1));
        for (at, (node, early)) in self.nodes.iter().zip([self.early, 0]).enumerate() {
            let ledger = Ledger::read(&node.core);
            assert_eq!((ledger.imbalance(), ledger.queued), (0, 0), "switch {at}");
            let (counts, end) = node.agent.counts();
            let strange = (counts.unsent, counts.unknown, end.malformed, end.foreign);
            assert_eq!(strange, (0, early, 0, 0), "switch {at}: {counts:?} {end:?}");
        }
        let (counts, requests, end) = self.net.hosts[0].0.counts();
        assert_eq!((counts.tlps.unsent, requests.unexpected, end.malformed), (0, 0, 0));
    }
}

pub(crate) fn message(request: &Request<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 8_192];
    let len = request.emit_message(9, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

fn parsed(answer: &[u8]) -> (ReturnCode, Vec<u8>) {
    let (header, payload) = Header::parse(answer).unwrap();
    (header.return_code, payload.to_vec())
}

/// Address of a BAR of the device with this number, as the host has set it.
pub(crate) fn bar(fabric: &Fabric, number: u16, bar: u8) -> Hpa {
    Hpa(fabric.net.bar(0, number, bar))
}
