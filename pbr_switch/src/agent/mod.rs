//! The functions that a switch itself has, on the far end of its CPU port: registers of its virtual
//! switches, messages, and CCI.
//!
//! [`Agent::receive`] takes in what the pipeline has no use for, [`Agent::tables`] is to be put in force then,
//! [`Agent::send`] brings out what follows; requests of connections by [`Agent::cci`], answers by
//! [`Agent::next_answer`].
//!
//! Units: bytes; time as a parameter.
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "The fabric manager"; docs/spec/wire-formats.md §3.8, §4.1,
//! §4.5; CXL 3.1 sections 7.7.2.6, 7.7.6.1, 7.7.12.2.
//!
//! What is answered may tell of tables that a request has changed: whoever drives an agent puts them in force between
//! taking in and sending, so that no answer is ahead of what it says.

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

/// Bursts that one [`Agent::receive`] takes in.
const BURSTS: usize = 4;
/// Rounds in which what one thing leads to is carried on, before the next poll goes on with it.
const ROUNDS_MAX: usize = 32;

/// Settings of the CPU port and of what is sent from it.
#[derive(Clone, Debug)]
pub struct AgentConfig {
    /// Layout of TLPs without PTH at each port that has them.
    pub modes: BTreeMap<PortId, Mode>,
    /// Priorities and OUI, as in the switch.
    pub tlp: TlpConfig,
    /// Priority of each PFC class, as in the switch.
    pub classes: PriMap,
    /// Longest payload of the port.
    pub payload_max: usize,
}

/// What an agent has done, and what it could not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct AgentCounts {
    /// TLPs that came.
    pub came: u64,
    /// Requests to registers that were answered.
    pub served: u64,
    /// Requests that nothing here has a use for: answered as unsupported, where an answer was due.
    pub unsupported: u64,
    /// Messages of the fabric and packets of tunnels.
    pub messages: u64,
    /// Messages that nobody here knows.
    pub unknown: u64,
    /// TLPs that end here by their kind.
    pub ended: u64,
    /// Completions that nobody waits for.
    pub unexpected: u64,
    /// Interrupts and error messages to hosts.
    pub told: u64,
    /// Messages for all below that have no form on a link there.
    pub untold: u64,
    /// TLPs of its own that could not be written, or have no way out.
    pub unsent: u64,
    /// Requests that were passed on to others.
    pub passed_on: u64,
    /// CCI messages that are no requests.
    pub ignored: u64,
    /// What came in by a port where nobody may send it: commands and other messages of hosts and devices.
    pub refused: u64,
    /// Announcements of link partners with a PID that is not their port's.
    pub foreign: u64,
    /// What the ends of a link say of it (protocol 4).
    pub control: u64,
    /// Resets of what is at a port, by the manager, a host, or because its host has gone.
    #[serde(default)]
    pub port_resets: u64,
    /// Messages about resets of a link that nobody may send there: dropped.
    #[serde(default)]
    pub foreign_resets: u64,
    /// Resets of logical devices.
    #[serde(default)]
    pub ld_resets: u64,
}

/// A TLP that came.
#[derive(Clone, Debug)]
struct Arrived {
    /// The port that it came in at.
    input: PortId,
    pth: Option<Pth>,
    mode: Mode,
    bytes: Vec<u8>,
}

/// Where a TLP came from, to be answered there.
#[derive(Clone, Copy, Debug)]
struct From {
    input: PortId,
    pth: Option<Pth>,
    /// The logical device that it came from.
    ld: Option<VendPrefixL0>,
}

/// A PBR switch with all that it does itself, at the far end of its CPU port.
pub struct Agent {
    switch: Switch,
    modes: BTreeMap<PortId, Mode>,
    end: TlpEnd,
    links: BTreeMap<PortId, LinkSide>,
    mlds: BTreeMap<PortId, MldSide>,
    virtuals: BTreeMap<(u8, u8), Virtual>,
    resets: BTreeMap<PortId, PortResets>,
    host_resets: HostResets,
    /// What resets follow from has changed.
    stale_resets: bool,
    /// Virtual switches that have been let out of reset, and of which not all is back below.
    recovering: BTreeSet<u8>,
    hosts: BTreeMap<u8, HostSide>,
    tunnel: Tunnel,
    tunnelled: Tunnelled,
    notices: Notices,
    /// To be handed out, those that were pending under their tickets.
    answers: VecDeque<(Option<Ticket>, Session, Vec<u8>)>,
    arrived: VecDeque<Arrived>,
    told_epoch: Option<u64>,
    counts: AgentCounts,
}

impl Agent {
    /// The agent of `switch`, with all links down.
    #[must_use]
    pub fn new(switch: Switch, config: AgentConfig) -> Self {
        let AgentConfig { modes, tlp, classes, payload_max } = config;
        let end =
            EndConfig { mac: CPU_PORT_MAC, carries: Carries::Both, tlp, classes, payload_max };
        let links = switch.ports.iter().filter_map(LinkSide::new).collect();
        let mlds = switch.ports.iter().filter_map(MldSide::new).collect();
        let resets = switch.ports.iter().filter_map(PortResets::new).collect();
        let host_resets = resets::of_hosts(&switch.ports);
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

    /// The switch as its commands see it.
    #[must_use]
    pub const fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Counts, and those of its port.
    #[must_use]
    pub const fn counts(&self) -> (AgentCounts, EndCounts) {
        (self.counts, self.end.counts())
    }

    /// Takes in what the port has; [`Self::tables`] may be others afterwards. Returns how many frames came.
    pub fn receive(&mut self, now: Instant, port: &mut dyn Port, bufs: &mut Bufs) -> usize {
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

    /// Sends what is due.
    ///
    /// # Errors
    /// The port's own.
    pub fn send(
        &mut self,
        now: Instant,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> Result<Progress, PortError> {
        self.end.flush(now, port, bufs)
    }

    /// [`Self::receive`] and [`Self::send`], with `publish` in between for tables that have changed.
    ///
    /// # Errors
    /// The port's own.
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

    /// When something is due that does not come in by the port.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        let links = self.links.values().filter_map(|link| link.partner.next_due());
        let virtuals = self.virtuals.values().filter_map(Virtual::next_due);
        let hosts = self.hosts.values().filter_map(HostSide::next_due);
        let own = [
            self.switch.next(),
            self.switch.cache_ids_due(),
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

    /// Carries out a CCI request of a connection; its answer comes by [`Self::next_answer`].
    pub fn cci(&mut self, now: Instant, session: Session, message: &[u8]) {
        let mut out = Vec::new();
        match serve(&mut self.switch, now, session, message, &mut out) {
            Served::Response => self.answers.push_back((None, session, out)),
            Served::Pending(_) => {}
            Served::Ignored => self.counts.ignored += 1,
        }
        self.settle(now);
    }

    /// Takes an answer to a request of [`Self::cci`]. The tables that it tells of are those of [`Self::tables`].
    pub fn next_answer(&mut self) -> Option<(Session, Vec<u8>)> {
        self.answers.pop_front().map(|(_, session, message)| (session, message))
    }

    /// Has the switch carry out what comes by a stream that keeps its own books; what was pending is told by
    /// [`Self::next_late`].
    pub fn command<R>(&mut self, now: Instant, command: impl FnOnce(&mut Switch) -> R) -> R {
        let done = command(&mut self.switch);
        self.settle(now);
        done
    }

    /// Takes an answer to a request of [`Self::command`] that was pending.
    pub fn next_late(&mut self) -> Option<Answer> {
        let at = self.answers.iter().position(|(ticket, _, _)| ticket.is_some())?;
        let (ticket, session, message) = self.answers.remove(at)?;
        ticket.map(|ticket| Answer { ticket, session, message })
    }

    /// Forgets a connection that has ended.
    pub fn forget(&mut self, session: Session) {
        self.switch.common_mut().forget(session);
        self.answers.retain(|(_, whose, _)| *whose != session);
    }

    /// Carries on what follows from what has happened, until nothing does.
    fn settle(&mut self, now: Instant) {
        self.switch.tick(now);
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
        self.notify(now);
        self.flush_tunnel(now);
    }

    /// Notes how many bytes have come in and gone out by a port, which Get Port Traffic (C510h) tells.
    pub fn count_traffic(&mut self, now: Instant, port: PortId, rx: u64, tx: u64) {
        self.switch.count_traffic(now, port, rx, tx);
    }

    /// Notes in the switch's event log how many accesses have been refused at a port by one rule.
    pub fn log_refusals(&mut self, now: Instant, port: PortId, rule: &str, count: u64) {
        self.switch.log_refusals(now, port, rule, count);
    }

    /// Takes in a message of the fabric, for tests; how many TLPs it has sent by that.
    #[cfg(test)]
    pub(crate) fn tells(&mut self, now: Instant, input: PortId, vdm: &Vdm) -> u64 {
        let before = self.end.outbox().len();
        self.message(now, input, vdm);
        let sent = self.end.outbox().len() - before;
        self.settle(now);
        sent as u64
    }

    /// Brings an answer to who has asked.
    fn answer(&mut self, answer: Answer) {
        match self.tunnelled.asked(answer.ticket) {
            Some(ticket) => {
                // Who asked by tunnel and has given it up is nobody's loss.
                if self.tunnel.respond(ticket, &answer.message).is_err() {
                    self.counts.unsent += 1;
                }
            }
            None => self.answers.push_back((Some(answer.ticket), answer.session, answer.message)),
        }
    }

    /// Takes a TLP in.
    fn take(&mut self, now: Instant, mut from: From, tlp: &Tlp<'_>) {
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
            // The pipeline lets nothing of that pass; it has its own tables, which may be older ones.
            self.counts.refused += 1;
            return;
        }
        // What a virtual link carries is of the host above it and the devices below it, not of the fabric.
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
            self.heard_by(pth);
        }
        match self.verdict(from, tlp) {
            Some((vcs, side, verdict)) => self.obey(now, vcs, side, from, tlp, verdict),
            None => self.refuse(from, tlp),
        }
    }

    /// What the tables say of a TLP that was handed over: in which virtual switch, on which side of it, and what is
    /// to become of it there. It is what the pipeline has found, unless the tables have changed since.
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

    /// Sends to the link of a port, as it stands.
    fn send_at(&mut self, port: PortId, pth: Option<Pth>, tlp: &TlpRepr<'_>) {
        self.emit(cpu_mac_of_port(port), pth, tlp);
    }

    /// Sends where the tables lead.
    fn send_by(&mut self, pth: Pth, tlp: &TlpRepr<'_>) {
        self.emit(CPU_PORT_MAC, Some(pth), tlp);
    }

    fn emit(&mut self, to: MacAddr, pth: Option<Pth>, tlp: &TlpRepr<'_>) {
        if self.end.outbox().send_to(to, pth, tlp).is_err() {
            self.counts.unsent += 1;
        }
    }

    /// Answers a request, by the way that it came.
    fn reply(&mut self, from: From, answer: &TlpRepr<'_>) {
        match from.pth {
            None => {
                let vend_prefix = from.ld.or(answer.vend_prefix);
                self.send_at(from.input, None, &TlpRepr { vend_prefix, ..*answer });
            }
            Some(pth) => {
                let (spid, dpid) = (pth.dpid, pth.spid);
                self.send_by(Pth { pif: false, dsar: !pth.dsar, spid, dpid, ..pth }, answer);
            }
        }
    }

    /// Says that nothing here has a use for a request.
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

    /// Sends by what a vPPB is bound to, down from it or up; false where there is no way.
    fn send_out(&mut self, binding: Binding, down: bool, tlp: &Tlp<'_>) -> bool {
        let mode = match binding {
            Binding::Port(port) | Binding::Ld { port, .. } => self.modes.get(&port).copied(),
            Binding::Fabric { .. } => Some(Mode::Flit),
            Binding::Unbound => None,
        };
        let Some(mode) = mode else { return false };
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
