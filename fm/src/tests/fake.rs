//! Fake switches and GFDs: tables, owners and links in memory, without a dataplane.
//!
//! [`Fake`] stands behind a transport. It parses requests, emits answers, and follows routes hop by hop both ways.
//!
//! Source: docs/spec/wire-formats.md §4.1 to §4.8.
//!
//! Most of these tests could use the switch of `weft-pbr-switch`, but that needs the dataplane, and tests of fm are
//! built without it. `tests/tests/fabric` has the manager with real switches. Fake components can also fail as no real
//! one does: they go away, answer nonsense, fail in the background, or lose requests and answers by chance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use weft_base::rng::Rng;
use weft_parsers::cci::component::{ClaimOp, ClaimOwnership, Owners, PbrIdentity};
use weft_parsers::cci::gae::PrefixFlags;
use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::pbr::{self, AssignOp, CrawlTarget, LinkPartner, PathCost, PidAndKind};
use weft_parsers::cci::pbr::{PidTarget, PidTargetKind};
use weft_parsers::cci::tables;
use weft_parsers::cci::{Header, List, Request, Response, ReturnCode, Uuid, mld, nest, switch};
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::fake_edge::on_edge;
use super::fake_gfd::GfdState;
use crate::cci::{CciSession, Gate, InProcess, RetryPolicy, TransportError};
use crate::model::graph::{Graph, Key, PortUse, SwitchId};

pub type Reply = Result<Vec<u8>, ReturnCode>;

/// State that switches and GFDs have in common.
#[derive(Clone, Debug)]
pub struct Base {
    pub uuid: Uuid,
    pub pid: Pid,
    pub primary: Option<(Pid, Uuid)>,
    pub secondary: Option<(Pid, Uuid)>,
    /// Other senders that claimed with the UUID of the primary manager; they may register a secondary.
    pub known: BTreeSet<Uuid>,
    /// Whether it is silent.
    pub gone: bool,
    /// Whether its answers are no CCI messages.
    pub garbage: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Nobody,
    Host,
    Device,
    Node(usize, u8),
}

#[derive(Clone, Copy, Debug)]
pub struct FakePort {
    pub config: u8,
    pub end: End,
    pub up: bool,
}

#[derive(Clone, Debug, Default)]
pub struct FakeVcs {
    pub usp: u8,
    pub vppbs: Vec<(u8, u8, u8, Pid, Option<PathCost>)>, // status, port, ld, PID, cost
    pub gmv: BTreeSet<Pid>,
    pub vtv: BTreeSet<Pid>,
    pub prefix: PrefixFlags,
    pub lav: BTreeSet<Pid>,
    pub secret: Option<Uuid>,
    /// Answer to a question about the secret, in place of it.
    pub secret_refusal: Option<ReturnCode>,
}

#[derive(Clone, Debug, Default)]
pub struct SwitchState {
    pub ports: BTreeMap<u8, FakePort>,
    pub drt: BTreeMap<Pid, DrtEntry>,
    pub rgt: BTreeMap<u8, RgtEntry>,
    pub targets: Vec<(u16, PidTargetKind, u8, u8, u8, Pid)>,
    pub vcss: Vec<FakeVcs>,
    /// Time of the counts in ns, and bytes in and out by port; `None`: the switch does not support the command.
    pub traffic: Option<(u64, BTreeMap<u8, [u64; 2]>)>,
    /// Opcode of the background operation, polls until it ends, and its return code.
    pub background: Option<(u16, u32, ReturnCode)>,
    /// Whether the next background operation fails.
    pub fail_background: bool,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Switch(SwitchState),
    Gfd(GfdState),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub base: Base,
    pub kind: Kind,
}

/// When transports fail: the dice, and how many calls in a thousand.
pub struct Faults {
    pub rng: Rng,
    pub per_mille: u64,
}

pub type After = Box<dyn FnMut(&mut Vec<Node>, u64) + Send>;

pub struct Fake {
    pub nodes: Vec<Node>,
    pub faults: Option<Faults>,
    pub entry: usize,
    /// Commands that changed something.
    pub sets: u64,
    /// Commands without an answer.
    pub unanswered: u64,
    /// Called with all components and `sets` after each command carried out; tests break things half-way with it.
    pub after: Option<After>,
}

pub fn uuid(kind: u8, number: usize) -> Uuid {
    let mut uuid = [kind; 16];
    uuid[8..].copy_from_slice(&(number as u64).to_be_bytes());
    uuid
}

pub fn reply(response: &Response<'_>) -> Reply {
    let mut out = vec![0; 60_000];
    let len = response.emit(&mut out).ok_or(ReturnCode::InternalError)?;
    out.truncate(len);
    Ok(out)
}

impl Fake {
    /// Switches and links of `graph`; a host at each of its edge ports.
    pub fn of(graph: &Graph) -> Self {
        let mut nodes = Vec::new();
        for id in graph.switches() {
            let mut state = SwitchState::default();
            for (number, what) in graph.ports(id) {
                let (config, end) = match what {
                    PortUse::Isl { far, .. } => (5, End::Node(far.switch.index(), far.port)),
                    PortUse::Edge => (4, End::Host),
                    _ => continue,
                };
                state.ports.insert(number, FakePort { config, end, up: true });
            }
            nodes.push(node(uuid(0x50, id.index()), Kind::Switch(state)));
        }
        let mut fake = Self { nodes, faults: None, entry: 0, sets: 0, unanswered: 0, after: None };
        fake.edges();
        fake
    }

    /// Adds a device or GFD at a new port of a switch; returns the port.
    pub fn add(&mut self, at: SwitchId, gfd: Option<GfdState>) -> u8 {
        let place = self.nodes.len();
        let end = if gfd.is_some() { End::Node(place, 0) } else { End::Device };
        let ports = &mut self.switch(at.index()).ports;
        let port = ports.last_key_value().map_or(0, |(port, _)| port + 1);
        ports.insert(port, FakePort { config: 3, end, up: true });
        if let Some(state) = gfd {
            self.nodes.push(node(uuid(0x6F, place), Kind::Gfd(state)));
        }
        self.edges();
        port
    }

    /// Makes targets and virtual switches of the ports.
    fn edges(&mut self) {
        for node in &mut self.nodes {
            let Kind::Switch(state) = &mut node.kind else { continue };
            state.targets.clear();
            state.vcss.clear();
            let none = (0, 255, 255, Pid::NONE, None);
            for (&number, port) in &state.ports {
                let vcs = u8::try_from(state.vcss.len()).unwrap();
                let (kind, instances) = match port.config {
                    4 => (PidTargetKind::HostEdge, 2),
                    3 => (PidTargetKind::DownstreamEdge, 1),
                    _ => (PidTargetKind::FabricPort, 2),
                };
                for instance in 0..instances {
                    let id = u16::from(number);
                    state.targets.push((id, kind, instance, vcs, number, Pid::NONE));
                }
                if port.config == 4 {
                    state.vcss.push(FakeVcs {
                        usp: number,
                        vppbs: vec![none; 5],
                        ..FakeVcs::default()
                    });
                }
            }
            for _ in 0..2 {
                state.vcss.push(FakeVcs { usp: 255, vppbs: vec![none; 3], ..FakeVcs::default() });
            }
        }
    }

    pub fn switch(&mut self, at: usize) -> &mut SwitchState {
        match &mut self.nodes[at].kind {
            Kind::Switch(state) => state,
            Kind::Gfd(_) => panic!("node {at} is a GFD"),
        }
    }

    pub fn gfd(&mut self, at: usize) -> &mut GfdState {
        match &mut self.nodes[at].kind {
            Kind::Gfd(state) => state,
            Kind::Switch(_) => panic!("node {at} is a switch"),
        }
    }

    /// Takes a link down, at both ends.
    pub fn cut(&mut self, at: usize, port: u8) {
        let end = self.switch(at).ports[&port].end;
        self.switch(at).ports.get_mut(&port).unwrap().up = false;
        if let End::Node(far, far_port) = end
            && let Kind::Switch(state) = &mut self.nodes[far].kind
        {
            state.ports.get_mut(&far_port).unwrap().up = false;
        }
    }

    /// Answer of the component at `at` to a request of `sender`; `None` if nothing comes back.
    fn request(&mut self, at: usize, sender: Uuid, message: &[u8]) -> Option<Vec<u8>> {
        let node = &self.nodes[at];
        if node.base.gone {
            return None;
        }
        let (header, payload) = Header::parse(message).ok()?;
        if node.base.garbage {
            return Some(vec![7; 11]);
        }
        let outcome = match Request::parse(header.opcode, payload) {
            Err(error) => Err(error.return_code()),
            Ok(request) if !self.may(at, sender, &request) => Err(ReturnCode::Unsupported),
            Ok(Request::CrawlOut(crawl)) => {
                let layers = nest::tunnels(message).unwrap_or(9);
                if layers > 2 {
                    Err(ReturnCode::Unsupported)
                } else {
                    self.crawl(at, sender, &crawl)?
                }
            }
            Ok(request) => {
                let outcome = self.carry_out(at, sender, &request);
                if let Some(mut after) = self.after.take() {
                    after(&mut self.nodes, self.sets);
                    self.after = Some(after);
                }
                outcome
            }
        };
        let (code, payload) = match outcome {
            Ok(payload) if payload == BACKGROUND => (ReturnCode::BackgroundStarted, Vec::new()),
            Ok(payload) => (ReturnCode::Success, payload),
            Err(code) => (code, Vec::new()),
        };
        let mut out = vec![0; 12 + payload.len()];
        header.response(code).emit_with(&mut out, |place| {
            place.get_mut(..payload.len())?.copy_from_slice(&payload);
            Some(payload.len())
        })?;
        Some(out)
    }

    /// Only the primary manager may send everything; others may identify a component and claim it.
    fn may(&self, at: usize, sender: Uuid, request: &Request<'_>) -> bool {
        let open = matches!(
            request,
            Request::Identify | Request::IdentifyPbrComponent | Request::ClaimOwnership(_)
        );
        open || self.nodes[at].base.primary.is_some_and(|(_, uuid)| uuid == sender)
    }

    fn crawl(&mut self, at: usize, sender: Uuid, crawl: &pbr::CrawlOut<'_>) -> Option<Reply> {
        let far = match crawl.target {
            CrawlTarget::Port(port) => self.across(at, port),
            CrawlTarget::Pid(pid) => self.follow(at, pid),
        };
        let Some(far) = far else { return Some(Err(ReturnCode::InvalidInput)) };
        let message = crawl.message.bytes().to_vec();
        let answer = self.request(far, sender, &message)?;
        if matches!(crawl.target, CrawlTarget::Pid(_)) {
            // The answer goes to the PID of the switch that asked.
            let back = self.nodes[at].base.pid;
            let from = match self.nodes[far].kind {
                Kind::Switch(_) => far,
                Kind::Gfd(_) => self.host_of(far)?,
            };
            if self.follow(from, back) != Some(at) {
                return None;
            }
        }
        Some(reply(&Response::CrawlOut(mld::TunnelResponse { message: List::of(&answer) })))
    }

    /// Component at the other end of a port.
    fn across(&self, at: usize, port: u8) -> Option<usize> {
        across(&self.nodes, at, port)
    }

    fn host_of(&self, gfd: usize) -> Option<usize> {
        self.nodes.iter().position(|node| match &node.kind {
            Kind::Switch(state) => state.ports.values().any(|p| p.end == End::Node(gfd, 0) && p.up),
            Kind::Gfd(_) => false,
        })
    }

    /// Follows a PID from a switch; `None` if the tables do not lead to it.
    pub fn follow(&self, from: usize, to: Pid) -> Option<usize> {
        follow(&self.nodes, from, to)
    }

    fn carry_out(&mut self, at: usize, sender: Uuid, request: &Request<'_>) -> Reply {
        let partners = self.partners(at);
        let node = &mut self.nodes[at];
        let sets = matches!(
            request,
            Request::SetDrt(_)
                | Request::SetRgt(_)
                | Request::AssignPids(_)
                | Request::BindPid(_)
                | Request::BindVppb(_)
                | Request::UnbindVppb(_)
                | Request::ConfigureAccess(_)
                | Request::SetPrefix(_)
                | Request::ClaimOwnership(_)
                | Request::DcAdd(_)
                | Request::DcRelease(_)
                | Request::SetSat(_)
                | Request::SetGdt(_)
                | Request::SetFast(_)
                | Request::SetFastSegments(_)
                | Request::SetIdt(_)
        );
        self.sets += u64::from(sets);
        match (request, &mut node.kind) {
            (Request::Identify, kind) => {
                let component = if matches!(kind, Kind::Switch(_)) { 0 } else { 4 };
                let identity = Identity {
                    vendor: 0x1E98,
                    device: 1,
                    subsystem_vendor: 0,
                    subsystem: 0,
                    serial: at as u64 + 1_000,
                    message_max_log2: 15,
                    component,
                };
                reply(&Response::Identify(identity))
            }
            (Request::IdentifyPbrComponent, _) => {
                let none = (Pid::NONE, [0; 16]);
                let (primary, primary_uuid) = node.base.primary.unwrap_or(none);
                let (secondary, secondary_uuid) = node.base.secondary.unwrap_or(none);
                let pid = node.base.pid;
                let identity =
                    PbrIdentity { pid, primary, primary_uuid, secondary, secondary_uuid };
                reply(&Response::IdentifyPbrComponent(identity))
            }
            (Request::ClaimOwnership(claim), _) => claim_ownership(&mut node.base, sender, claim),
            (_, Kind::Switch(state)) => on_switch(state, &partners, request),
            (_, Kind::Gfd(state)) => state.carry_out(request),
        }
    }

    fn partners(&self, at: usize) -> Vec<LinkPartner> {
        let Kind::Switch(state) = &self.nodes[at].kind else { return Vec::new() };
        let partner = |(&port, what): (&u8, &FakePort)| {
            let none = PidAndKind { pid: Pid::NONE, kind: 0 };
            let mut partner = LinkPartner {
                port,
                far_port: 0,
                far: none,
                uuid: [0; 16],
                standard_vcs: 0,
                uio_vcs: 0,
                primary_uuid: [0; 16],
                secondary_uuid: [0; 16],
            };
            if let End::Node(far, far_port) = what.end
                && what.up
            {
                let node = &self.nodes[far];
                let kind = u8::from(matches!(node.kind, Kind::Gfd(_)));
                partner.far = PidAndKind { pid: node.base.pid, kind };
                (partner.far_port, partner.uuid) = (far_port, node.base.uuid);
            }
            partner
        };
        state.ports.iter().map(partner).collect()
    }
}

fn across(nodes: &[Node], at: usize, port: u8) -> Option<usize> {
    let Kind::Switch(state) = &nodes.get(at)?.kind else { return None };
    let port = state.ports.get(&port)?;
    match port.end {
        End::Node(far, _) if port.up => Some(far),
        _ => None,
    }
}

/// Follows a PID from a switch through the present tables; `None` if they do not lead to it.
pub fn follow(nodes: &[Node], from: usize, to: Pid) -> Option<usize> {
    let mut at = from;
    for _ in 0..=nodes.len() {
        if nodes[at].base.gone {
            return None;
        }
        if nodes[at].base.pid == to {
            return Some(at);
        }
        let Kind::Switch(state) = &nodes[at].kind else { return None };
        let port = match state.drt.get(&to)? {
            DrtEntry::Invalid => return None,
            DrtEntry::Port(port) => *port,
            DrtEntry::Group(group) => *state.rgt.get(group)?.ports().first()?,
        };
        let at_edge =
            state.ports.get(&port).is_some_and(|p| matches!(p.end, End::Host | End::Device));
        if at_edge && state.targets.iter().any(|t| t.5 == to && t.4 == port) {
            return Some(at);
        }
        at = across(nodes, at, port)?;
    }
    None
}

/// Stands for "Background Command Started".
pub const BACKGROUND: &[u8] = b"background";

fn node(uuid: Uuid, kind: Kind) -> Node {
    let (primary, secondary, known) = (None, None, BTreeSet::new());
    let pid = Pid::NONE;
    let base = Base { uuid, pid, primary, secondary, known, gone: false, garbage: false };
    Node { base, kind }
}

fn claim_ownership(base: &mut Base, sender: Uuid, claim: &ClaimOwnership) -> Reply {
    let primary = base.primary.map(|(_, uuid)| uuid);
    let secondary = base.secondary.map(|(_, uuid)| uuid);
    let fm = (claim.fm, claim.fm_uuid);
    if claim.fm.is_none() || claim.pid.is_none() {
        return Err(ReturnCode::InvalidInput);
    }
    match claim.op {
        ClaimOp::RegisterPrimary if primary.is_none() => {
            (base.primary, base.pid) = (Some(fm), claim.pid);
        }
        ClaimOp::RegisterSecondary if secondary.is_none() => {
            if primary != Some(sender) && !base.known.contains(&sender) {
                return Err(ReturnCode::InvalidInput);
            }
            base.secondary = Some(fm);
        }
        ClaimOp::UpdatePid if primary == Some(claim.fm_uuid) => {
            base.pid = claim.pid;
            if primary != Some(sender) {
                base.known.insert(sender);
            }
        }
        ClaimOp::PromoteSecondary if secondary == Some(claim.fm_uuid) => {
            (base.primary, base.secondary) = (base.secondary.take(), None);
            base.known.clear();
            if claim.fm_uuid != sender {
                base.known.insert(sender);
            }
        }
        _ => return Err(ReturnCode::InvalidInput),
    }
    let none = (Pid::NONE, [0; 16]);
    let (primary, primary_uuid) = base.primary.unwrap_or(none);
    let (secondary, secondary_uuid) = base.secondary.unwrap_or(none);
    reply(&Response::ClaimOwnership(Owners { primary, primary_uuid, secondary, secondary_uuid }))
}

fn mask(ports: impl IntoIterator<Item = u8>) -> [u8; 32] {
    let mut mask = [0; 32];
    ports.into_iter().for_each(|port| mask[usize::from(port / 8)] |= 1 << (port % 8));
    mask
}

#[expect(clippy::too_many_lines, reason = "one arm a command")]
fn on_switch(state: &mut SwitchState, partners: &[LinkPartner], request: &Request<'_>) -> Reply {
    let invalid = ReturnCode::InvalidInput;
    match request {
        Request::IdentifySwitch => reply(&Response::IdentifySwitch(switch::SwitchIdentity {
            ingress_port: 0,
            ports: u8::try_from(state.ports.len()).unwrap_or(255),
            vcss: u8::try_from(state.vcss.len()).unwrap(),
            active_ports: mask(state.ports.keys().copied()),
            active_vcss: mask((0..state.vcss.len()).map(|vcs| u8::try_from(vcs).unwrap())),
            vppbs: 0,
            active_vppbs: 0,
            decoders: 1,
        })),
        Request::IdentifyPbrSwitch => reply(&Response::IdentifyPbrSwitch(pbr::PbrSwitchIdentity {
            gae_map: 0,
            drts: 1,
            rgts: 1,
            modes: 3,
        })),
        Request::GetPortState(list) => {
            let one = |number| {
                let port = state.ports.get(&number).ok_or(invalid)?;
                let partner_type = match port.end {
                    End::Device => 4,
                    End::Node(..) => 6,
                    _ => 0,
                };
                Ok(switch::PortState {
                    port: number,
                    config_state: port.config,
                    partner_version: 3,
                    partner_type,
                    versions: 7,
                    width_max: 16,
                    width: 16,
                    speeds: 0x3F,
                    speed_max: 6,
                    speed: 6,
                    ltssm: if port.up && port.end != End::Nobody { 4 } else { 0 },
                    first_lane: 0,
                    link_state: 0,
                    lds: 0,
                })
            };
            let ports = list.ports.iter().map(one).collect::<Result<Vec<_>, _>>()?;
            reply(&Response::GetPortState(switch::PortStates { ports: List::of(&ports) }))
        }
        Request::GetPortTraffic(list) => {
            let (at_ns, counts) = state.traffic.as_ref().ok_or(ReturnCode::Unsupported)?;
            let one = |port| {
                let [rx, tx] = counts.get(&port).copied().unwrap_or_default();
                switch::PortTraffic { port, rx, tx }
            };
            let ports: Vec<_> = list.ports.iter().map(one).collect();
            let told = switch::PortsTraffic { at_ns: *at_ns, ports: List::of(&ports) };
            reply(&Response::GetPortTraffic(told))
        }
        Request::GetLinkPartners(list) => {
            let of = |number| partners.iter().find(|p| p.port == number).copied().ok_or(invalid);
            let told = list.ports.iter().map(of).collect::<Result<Vec<_>, _>>()?;
            reply(&Response::GetLinkPartners(pbr::LinkPartners { partners: List::of(&told) }))
        }
        Request::GetPidTargets(range) => {
            let target =
                |&(id, kind, instance, vcs, port, pid): &(u16, PidTargetKind, u8, u8, u8, Pid)| {
                    PidTarget { id, kind, instance, vcs, port, pid }
                };
            let all: Vec<_> = state.targets.iter().map(target).collect();
            let total = u16::try_from(all.len()).unwrap();
            let part = all.get(usize::from(range.start)..).ok_or(invalid)?;
            // Short pages, so that the FM has to read several.
            let part = &part[..part.len().min(usize::from(range.count)).min(7)];
            reply(&Response::GetPidTargets(pbr::PidTargets { total, targets: List::of(part) }))
        }
        Request::AssignPids(assign) => {
            let mut targets = state.targets.clone();
            for one in assign.assignments.iter() {
                let taken = targets
                    .iter()
                    .any(|t| t.5 == one.pid && (t.0, t.2) != (one.target, one.instance));
                let target = targets.iter_mut().find(|t| (t.0, t.2) == (one.target, one.instance));
                let target = target.ok_or(invalid)?;
                match assign.op {
                    AssignOp::Assign if taken || one.pid.is_none() => return Err(invalid),
                    AssignOp::Assign => target.5 = one.pid,
                    AssignOp::Clear => target.5 = Pid::NONE,
                }
            }
            state.targets = targets;
            Ok(Vec::new())
        }
        Request::GetDrt(range) => {
            let all: Vec<DrtEntry> = (range.start..)
                .take(usize::from(range.count))
                .map(|pid| state.drt.get(&Pid::from_low_bits(pid)).copied().unwrap_or_default())
                .collect();
            let (table, start) = (range.table, range.start);
            reply(&Response::GetDrt(tables::Drt { table, start, rgt: 0, entries: List::of(&all) }))
        }
        Request::SetDrt(set) => {
            if usize::from(set.start) + set.entries.len() > Pid::COUNT || set.table != 0 {
                return Err(invalid);
            }
            for (pid, entry) in (set.start..).zip(set.entries.iter()) {
                if let DrtEntry::Port(port) = entry
                    && !state.ports.contains_key(&port)
                {
                    return Err(invalid);
                }
                state.drt.insert(Pid::from_low_bits(pid), entry);
            }
            Ok(Vec::new())
        }
        Request::GetRgt(range) => {
            let none = RgtEntry::decode([0; 12]).map_err(|_| invalid)?;
            let of = |index: u16| {
                let index = u8::try_from(index).map_err(|_| invalid)?;
                Ok(state.rgt.get(&index).copied().unwrap_or(none))
            };
            let all = (range.start..)
                .take(usize::from(range.count))
                .map(of)
                .collect::<Result<Vec<_>, _>>()?;
            let (table, start) = (range.table, range.start);
            reply(&Response::GetRgt(tables::Rgt { table, start, entries: List::of(&all) }))
        }
        Request::SetRgt(set) => {
            for (index, entry) in (set.start..).zip(set.entries.iter()) {
                let index = u8::try_from(index).map_err(|_| invalid)?;
                if entry.ports().iter().any(|port| !state.ports.contains_key(port)) {
                    return Err(invalid);
                }
                state.rgt.insert(index, entry);
            }
            Ok(Vec::new())
        }
        _ => on_edge(state, request),
    }
}

/// A fake fabric that several managers can use at the same time.
#[derive(Clone)]
pub struct Shared(pub Arc<Mutex<Fake>>);

impl Shared {
    pub fn new(fake: Fake) -> Self {
        Self(Arc::new(Mutex::new(fake)))
    }

    pub fn with<T>(&self, run: impl FnOnce(&mut Fake) -> T) -> T {
        run(&mut self.0.lock().unwrap())
    }

    /// Access to the fabric for a manager of this UUID.
    pub fn fabric(&self, manager: Uuid) -> CciSession {
        let shared = self.clone();
        let call = move |message: &[u8]| shared.with(|fake| answer(fake, manager, message));
        CciSession::new(Box::new(InProcess(call)), RetryPolicy::quick())
    }

    /// Like [`fabric`](Self::fabric), but each command passes a gate first.
    pub fn gated(&self, manager: Uuid, gate: Gate) -> CciSession {
        let shared = self.clone();
        let call = move |message: &[u8]| {
            if !(gate.0)() {
                return Err(TransportError::Ended);
            }
            shared.with(|fake| answer(fake, manager, message))
        };
        CciSession::new(Box::new(InProcess(call)), RetryPolicy::quick())
    }
}

fn answer(fake: &mut Fake, manager: Uuid, message: &[u8]) -> Result<Vec<u8>, TransportError> {
    let lost = |fake: &mut Fake| {
        fake.faults.as_mut().is_some_and(|faults| faults.rng.chance(faults.per_mille, 1_000))
    };
    let gone = || TransportError::Timeout(1);
    if lost(fake) {
        return Err(gone());
    }
    let entry = fake.entry;
    let answer = fake.request(entry, manager, message);
    fake.unanswered += u64::from(answer.is_none());
    let answer = answer.ok_or_else(gone)?;
    if lost(fake) { Err(gone()) } else { Ok(answer) }
}
