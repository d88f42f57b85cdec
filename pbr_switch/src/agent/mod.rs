//! The functions that a switch has itself, at the far end of its CPU port: registers of its virtual switches, messages,
//! and CCI.
//!
//! [`Agent::receive`] handles TLPs that the pipeline hands over, and [`Agent::send`] sends the results. [`Agent::cci`]
//! carries out requests of connections, whose answers come from [`Agent::next_answer`]. An answer may refer to tables
//! that its request has changed: the driver must put [`Agent::tables`] in force between receiving and sending, so that
//! no answer arrives before its effect.
//!
//! Times are parameters; the agent reads no clock.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "The fabric manager"; docs/spec/wire-formats.md §3.8, §4.1,
//! §4.5; CXL 3.1 sections 7.7.2.6, 7.7.6.1, 7.7.12.2.

mod hosts;
mod links;
mod mld;
mod notices;
mod resets;
mod tunnels;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_cxl::cci::{Answer, Component, Served, Session, Ticket, serve};
use weft_cxl::tlp_end::{Carries, EndConfig, EndCounts, Progress, Received, TlpEnd};
use weft_cxl::vdm::Vdm;
use weft_cxl::vdm::link_reset::ResetReceiver;
use weft_cxl::vdm::mctp::Tunnel;
use weft_cxl::vdm::proxy::Stale;
use weft_dataplane::config::TlpConfig;
use weft_dataplane::pbr::source::admit;
use weft_dataplane::pbr::tables::Arrival;
use weft_dataplane::pbr::{Binding, EdgePort, Request, Side, Tables, Verdict};
use weft_dataplane::pipeline::{CPU_PORT_MAC, cpu_mac_of_port, port_of_cpu_mac};
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::convert::{flit_repr, non_flit_repr};
use weft_parsers::tlp::{MctpPacket, Mode, PbrVdm, Pth, Status, Tlp, TlpRepr, VendPrefixL0};

use super::switch::Switch;
use hosts::HostSide;
use links::{LinkSide, Virtual};
use mld::MldSide;
use notices::Notices;
use resets::{HostResets, PortResets};
use tunnels::Tunnelled;

/// Bursts that one [`Agent::receive`] reads from the port.
const BURSTS: usize = 4;
/// Bound on the rounds of `settle`; anything left continues at the next poll.
const ROUNDS_MAX: usize = 32;

/// Settings of the CPU port and of TLPs sent from it.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Flit or non-flit mode of each port whose TLPs have no PTH.
    pub modes: BTreeMap<PortId, Mode>,
    /// Priorities and OUI of TLPs, the same as the switch's.
    pub tlp: TlpConfig,
    /// Priority of each PFC class, the same as the switch's.
    pub classes: PriMap,
    /// Longest frame payload that the port carries, in bytes.
    pub payload_max: usize,
}

/// Counts of the agent's work and of its failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AgentCounts {
    /// TLPs received at the CPU port.
    pub came: u64,
    /// Register requests that were answered.
    pub served: u64,
    /// Requests without a function here; answered Unsupported Request if an answer is due.
    pub unsupported: u64,
    /// Messages of the fabric, and packets of tunnels.
    pub messages: u64,
    /// Messages that the agent has no handler for.
    pub unknown: u64,
    /// TLPs that end here by their kind.
    pub ended: u64,
    /// Completions without a request.
    pub unexpected: u64,
    /// Interrupts and error messages sent to hosts.
    pub told: u64,
    /// Broadcast messages that a link below has no form for.
    pub untold: u64,
    /// Own TLPs that could not be written or routed.
    pub unsent: u64,
    /// Requests passed on to other components.
    pub passed_on: u64,
    /// CCI messages that are not requests.
    pub ignored: u64,
    /// Commands and other messages of hosts and devices, which may not send them.
    pub refused: u64,
    /// Announcements of link partners with a PID that is not their port's.
    pub foreign: u64,
    /// Messages of a link's end about the link (protocol 4).
    pub control: u64,
    /// Resets of devices at ports: by the manager, by a host, or after loss of a host.
    #[serde(default)]
    pub port_resets: u64,
    /// Link reset messages from a port that may not send them; dropped.
    #[serde(default)]
    pub foreign_resets: u64,
    /// Resets of logical devices.
    #[serde(default)]
    pub ld_resets: u64,
    /// Messages of GFDs that were dropped because they belong to no active command of a host.
    #[serde(default)]
    pub stale: u64,
}

/// A received TLP, copied out of its buffer.
#[derive(Clone, Debug)]
struct Arrived {
    /// The port where it entered the switch, not the CPU port.
    input: PortId,
    pth: Option<Pth>,
    mode: Mode,
    bytes: Vec<u8>,
}

/// Return address of a TLP.
#[derive(Clone, Copy, Debug)]
struct From {
    input: PortId,
    pth: Option<Pth>,
    /// The logical device that sent it.
    ld: Option<VendPrefixL0>,
}

/// A PBR switch with its own functions, at the far end of its CPU port.
pub struct Agent {
    switch: Switch,
    modes: BTreeMap<PortId, Mode>,
    end: TlpEnd,
    links: BTreeMap<PortId, LinkSide>,
    mlds: BTreeMap<PortId, MldSide>,
    virtuals: BTreeMap<Vppb, Virtual>,
    resets: BTreeMap<PortId, PortResets>,
    host_resets: HostResets,
    /// The inputs of `sync_resets` have changed.
    stale_resets: bool,
    /// Virtual switches out of reset whose devices have not all come back yet.
    recovering: BTreeSet<u8>,
    hosts: BTreeMap<u8, HostSide>,
    tunnel: Tunnel,
    tunnelled: Tunnelled,
    notices: Notices,
    /// Answers to hand out; those of pending requests have a ticket.
    answers: VecDeque<(Option<Ticket>, Session, Vec<u8>)>,
    arrived: VecDeque<Arrived>,
    told_epoch: Option<u64>,
    counts: AgentCounts,
}

impl Agent {
    /// Makes the agent of `switch`, with all links down.
    #[must_use]
    pub fn new(switch: Switch, config: AgentConfig) -> Self {
        let AgentConfig { modes, tlp, classes, payload_max } = config;
        let end =
            EndConfig { mac: CPU_PORT_MAC, carries: Carries::Both, tlp, classes, payload_max };
        let links = switch.ports().all().iter().filter_map(LinkSide::new).collect();
        let mlds = switch.ports().all().iter().filter_map(MldSide::new).collect();
        let resets = switch.ports().all().iter().filter_map(PortResets::new).collect();
        let host_resets = resets::of_hosts(switch.ports().all());
        let tunnel = Tunnel::new(switch.common().ownership.pid());
        Self {
            switch,
            modes,
            end: TlpEnd::new(end),
            links,
            mlds,
            virtuals: BTreeMap::new(),
            resets,
            host_resets,
            stale_resets: false,
            recovering: BTreeSet::new(),
            hosts: BTreeMap::new(),
            tunnel,
            tunnelled: Tunnelled::default(),
            notices: Notices::default(),
            answers: VecDeque::new(),
            arrived: VecDeque::new(),
            told_epoch: None,
            counts: AgentCounts::default(),
        }
    }

    /// The switch's state.
    #[must_use]
    pub const fn switch(&self) -> &Switch {
        &self.switch
    }

    /// The last messages of GFDs that belonged to no active command, by virtual switch, oldest first.
    pub fn stale_log(&self) -> impl Iterator<Item = (u8, &Stale)> {
        self.hosts.iter().flat_map(|(vcs, side)| side.stale_log().map(|one| (*vcs, one)))
    }

    /// Counts of the agent, and of its port.
    #[must_use]
    pub const fn counts(&self) -> (AgentCounts, EndCounts) {
        (self.counts, self.end.counts())
    }

    /// Handles the frames that the port has; returns their number. [`Self::tables`] may have changed on return.
    pub fn receive(&mut self, now: Instant, port: &mut dyn Port, bufs: &mut Bufs) -> usize {
        // TLPs are copied and handled after the loop: their handlers need the whole agent, and the end is borrowed
        // here.
        let Self { end, arrived, counts, .. } = self;
        let mut said = Vec::new();
        let frames = end.receive(now, port, bufs, BURSTS, &mut |frame, _| match frame.content {
            Received::Tlp(pth, tlp) => {
                counts.came += 1;
                let bytes = tlp.bytes().get(..tlp.len()).unwrap_or_default().to_vec();
                let mode = tlp.mode();
                match port_of_cpu_mac(frame.from) {
                    Some(input) => arrived.push_back(Arrived { input, pth, mode, bytes }),
                    None => counts.unknown += 1, // the switch says where a frame came from
                }
            }
            Received::Control(message) => {
                counts.control += 1;
                said.extend(port_of_cpu_mac(frame.from).map(|input| (input, message)));
            }
            Received::Reset(_) => {} // of no end that is above
            // A switch has neither memory nor cache: it sends itself none.
            Received::Mem(..) | Received::Cache(_) => counts.unknown += 1,
        });
        while let Some(one) = self.arrived.pop_front() {
            match Tlp::parse(one.mode, &one.bytes) {
                Ok(tlp) => self.take(now, From { input: one.input, pth: one.pth, ld: None }, &tlp),
                Err(_) => self.counts.unknown += 1, // it was read before
            }
        }
        for (input, message) in said {
            self.link_said(now, input, message);
        }
        self.settle(now);
        frames
    }

    /// Takes the tables for the dataplane, if they have changed since this was asked last.
    pub fn tables(&mut self) -> Option<Tables> {
        let epoch = self.switch.epoch();
        let changed = self.told_epoch.replace(epoch) != Some(epoch);
        changed.then(|| self.switch.tables().clone())
    }

    /// Sends the frames that are due.
    ///
    /// # Errors
    /// Errors of `port`.
    pub fn send(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        self.end.flush(now, port, bufs)
    }

    /// Calls [`Self::receive`], then `publish` if the tables have changed, then [`Self::send`].
    ///
    /// # Errors
    /// Errors of `port`.
    pub fn poll(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
        publish: &mut dyn FnMut(Tables),
    ) -> Result<Progress, PortError> {
        let came = self.receive(now, port, bufs);
        if let Some(tables) = self.tables() {
            publish(tables);
        }
        let progress = self.send(now, port, bufs)?;
        let next = Instant::earlier(progress.next, self.next_due());
        Ok(Progress { frames: progress.frames + came, next, ..progress })
    }

    /// Time of the next action that does not follow from a received frame.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let links = self.links.values().filter_map(|link| link.partner.next_due());
        let virtuals = self.virtuals.values().filter_map(Virtual::next_due);
        let hosts = self.hosts.values().filter_map(HostSide::next_due);
        let own = [
            self.switch.next(),
            self.switch.virtual_switches().cache_ids_due(),
            self.tunnel.next_due(),
            self.notices.next_due(),
        ];
        let own = own.into_iter().flatten();
        let mlds = self.mlds.values().filter_map(MldSide::next_due);
        let resets = self.resets.values().filter_map(PortResets::next_due);
        let above = self.host_resets.values().filter_map(ResetReceiver::next_due);
        let all = links.chain(mlds).chain(virtuals).chain(hosts);
        all.chain(resets).chain(above).chain(own).min()
    }

    /// Carries out a CCI request of a connection; the answer comes from [`Self::next_answer`].
    pub fn cci(&mut self, now: Instant, session: Session, message: &[u8]) {
        let mut out = Vec::new();
        match serve(&mut self.switch, now, session, message, &mut out) {
            Served::Response => self.answers.push_back((None, session, out)),
            Served::Pending(_) => {}
            Served::Ignored => self.counts.ignored += 1,
        }
        self.settle(now);
    }

    /// Takes the next answer to a request of [`Self::cci`]. The tables that it refers to are those of [`Self::tables`].
    pub fn next_answer(&mut self) -> Option<(Session, Vec<u8>)> {
        self.answers.pop_front().map(|(_, session, message)| (session, message))
    }

    /// Lets a stream that keeps its own requests run a command; answers to pending ones come from [`Self::next_late`].
    pub fn command<R>(&mut self, now: Instant, command: impl FnOnce(&mut Switch) -> R) -> R {
        let done = command(&mut self.switch);
        self.settle(now);
        done
    }

    /// Takes the next answer to a pending request of [`Self::command`].
    pub fn next_late(&mut self) -> Option<Answer> {
        let at = self.answers.iter().position(|(ticket, _, _)| ticket.is_some())?;
        let (ticket, session, message) = self.answers.remove(at)?;
        ticket.map(|ticket| Answer { ticket, session, message })
    }

    /// Forgets a connection that has ended, and its answers.
    pub fn forget(&mut self, session: Session) {
        self.switch.common_mut().forget(session);
        self.answers.retain(|(_, whose, _)| *whose != session);
    }

    /// Carries on until no action leads to another one, or `ROUNDS_MAX` rounds have passed.
    fn settle(&mut self, now: Instant) {
        self.switch.tick(now);
        // The bound keeps two parts that trigger each other from holding the thread for ever.
        for _ in 0..ROUNDS_MAX {
            let mut moved = self.pass_on(now);
            moved |= self.serve_tunnels(now);
            moved |= self.act(now);
            moved |= self.poll_wires();
            moved |= self.poll_resets(now);
            moved |= self.poll_links(now);
            moved |= self.poll_mlds(now);
            moved |= self.poll_hosts(now);
            if !moved {
                break;
            }
        }
        // Notifications once at the end, so that several causes of one call share a batch.
        self.notify(now);
        self.flush_tunnel(now);
    }

    /// Records the bytes received and sent by a port, for Get Port Traffic (C510h).
    pub fn count_traffic(&mut self, now: Instant, port: PortId, rx: u64, tx: u64) {
        self.switch.count_traffic(now, port, rx, tx);
    }

    /// Logs in the switch's event log how many accesses were refused at a port by one rule.
    pub fn log_refusals(&mut self, now: Instant, port: PortId, rule: &str, count: u64) {
        self.switch.log_refusals(now, port, rule, count);
    }

    /// Handles a message of the fabric, for tests; returns the number of TLPs that it sent.
    #[cfg(test)]
    pub(crate) fn tells(&mut self, now: Instant, input: PortId, vdm: &Vdm) -> u64 {
        let before = self.end.outbox().len();
        self.message(now, input, vdm);
        let sent = self.end.outbox().len() - before;
        self.settle(now);
        sent as u64
    }

    /// Delivers an answer to its requester: by the tunnel, or to a connection.
    fn answer(&mut self, answer: Answer) {
        match self.tunnelled.asked(answer.ticket) {
            Some(ticket) => {
                // A requester behind a tunnel that has given up only counts as unsent.
                if self.tunnel.respond(ticket, &answer.message).is_err() {
                    self.counts.unsent += 1;
                }
            }
            None => self.answers.push_back((Some(answer.ticket), answer.session, answer.message)),
        }
    }

    /// Handles one TLP: MLD message, tunnel packet, fabric message, or TLP of a virtual switch.
    fn take(&mut self, now: Instant, mut from: From, tlp: &Tlp<'_>) {
        // Before the tables: LD FFFFh belongs to no host, and its TLPs to no virtual switch.
        if from.pth.is_none() && mld::is_management(tlp) {
            return self.ld_message(now, from.input, tlp);
        }
        if from.pth.is_none()
            && self.switch.tables().edge(from.input).is_some_and(EdgePort::has_lds)
        {
            from.ld = tlp.vend_prefix();
        }
        if let (Some(pth), Some(edge)) = (from.pth, self.switch.tables().edge(from.input))
            && admit(edge, pth, tlp).is_err()
        {
            // The pipeline drops these already, but by its own tables, which may be older ones.
            self.counts.refused += 1;
            return;
        }
        // A virtual link carries TLPs between its host and its devices; these do not speak CCI to the fabric.
        if let (Some(pth), Ok(packet)) = (from.pth.filter(|pth| !pth.hie), MctpPacket::parse(tlp)) {
            self.counts.messages += 1;
            let port = from.input.get();
            return self.tunnel.receive(now, port, pth, &packet);
        }
        if let Some(pth) = from.pth
            && PbrVdm::parse(tlp).is_ok()
        {
            return match Vdm::parse(pth, tlp) {
                Ok(vdm) => self.message(now, from.input, &vdm),
                Err(_) => self.counts.unknown += 1,
            };
        }
        if let Some(pth) = from.pth {
            // Everything that is left with a PTH is traffic of a virtual link.
            self.heard_by(pth);
        }
        match self.verdict(from, tlp) {
            Some((vcs, side, verdict)) => self.obey(now, vcs, side, from, tlp, verdict),
            None => self.refuse(from, tlp),
        }
    }

    /// Applies the tables to a TLP from the pipeline: its virtual switch, the side of it that the TLP came to, and the
    /// verdict. The pipeline's verdict was the same unless the tables have changed since.
    fn verdict(&self, from: From, tlp: &Tlp<'_>) -> Option<(u8, Side, Verdict)> {
        let tables = self.switch.tables();
        let has_lds = tables.edge(from.input).is_some_and(EdgePort::has_lds);
        let request = Request::of(tlp, has_lds && from.pth.is_none(), tlp.ln())?;
        match from.pth {
            None => {
                let (vcs, side) = tables.edge(from.input)?.part(request.ld)?.vcs?;
                Some((vcs, side, tables.ingress(from.input, &request)))
            }
            Some(pth) => match tables.forward(pth.spid, pth.dpid, pth.hie).ok()? {
                Arrival::Vcs(vcs, side) => {
                    Some((vcs, side, tables.hierarchical(vcs, side, &request)))
                }
                Arrival::Here | Arrival::Out(_) => None,
            },
        }
    }

    /// Sends to the link of a port without a route lookup.
    fn send_at(&mut self, port: PortId, pth: Option<Pth>, tlp: &TlpRepr<'_>) {
        self.emit(cpu_mac_of_port(port), pth, tlp);
    }

    /// Sends along the route to the PTH's DPID.
    fn send_by(&mut self, pth: Pth, tlp: &TlpRepr<'_>) {
        self.emit(CPU_PORT_MAC, Some(pth), tlp);
    }

    fn emit(&mut self, to: MacAddr, pth: Option<Pth>, tlp: &TlpRepr<'_>) {
        if self.end.outbox().send_to(to, pth, tlp).is_err() {
            self.counts.unsent += 1;
        }
    }

    /// Answers a request along the path it came by.
    fn reply(&mut self, from: From, answer: &TlpRepr<'_>) {
        match from.pth {
            None => {
                let vend_prefix = from.ld.or(answer.vend_prefix);
                self.send_at(from.input, None, &TlpRepr { vend_prefix, ..*answer });
            }
            Some(pth) => {
                // Back along the virtual link: ends swapped, and DSAR tells the direction, up or down the hierarchy.
                let (spid, dpid) = (pth.dpid, pth.spid);
                self.send_by(Pth { pif: false, dsar: !pth.dsar, spid, dpid, ..pth }, answer);
            }
        }
    }

    /// Refuses a request: Unsupported Request if it wants a completion.
    fn refuse(&mut self, from: From, tlp: &Tlp<'_>) {
        if tlp.is_completion() {
            self.counts.unexpected += 1;
            return;
        }
        self.counts.unsupported += 1;
        let completer = Bdf::from_bits(0);
        let answer = weft_parsers::tlp::Completion::of(tlp, Status::UnsupportedRequest, completer);
        if let Some(answer) = answer {
            self.reply(from, &answer);
        }
    }

    /// Sends along the binding of a vPPB, `down` or up from it; false if there is no way.
    fn send_out(&mut self, binding: Binding, down: bool, tlp: &Tlp<'_>) -> bool {
        let mode = match binding {
            Binding::Port(port) | Binding::Ld { port, .. } => self.modes.get(&port).copied(),
            Binding::Fabric { .. } => Some(Mode::Flit),
            Binding::Unbound => None,
        };
        let Some(mode) = mode else { return false };
        // Each link has the mode it came up with; a TLP that has no form in the other mode is not sent.
        let repr = match (tlp.mode(), mode) {
            (Mode::NonFlit, Mode::Flit) => flit_repr(tlp).ok(),
            (Mode::Flit, Mode::NonFlit) => non_flit_repr(tlp).ok(),
            _ => Some(tlp.repr()),
        };
        let Some(repr) = repr else { return false };
        self.send_bound(binding, down, &repr);
        true
    }

    fn send_bound(&mut self, binding: Binding, down: bool, repr: &TlpRepr<'_>) {
        match binding {
            Binding::Port(port) => self.send_at(port, None, repr),
            Binding::Fabric { spid, dpid } => {
                let pth = Pth { pif: false, dsar: down, hie: true, ..Pth::new(spid, dpid) };
                self.send_by(pth, repr);
            }
            Binding::Ld { port, ld } => {
                let vend_prefix = Some(VendPrefixL0::from_ld_id(ld));
                self.send_at(port, None, &TlpRepr { vend_prefix, ..*repr });
            }
            Binding::Unbound => self.counts.unsent += 1,
        }
    }
}
