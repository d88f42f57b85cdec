//! The agent's dealings with hosts and their virtual switches: registers, interrupts, messages for the whole hierarchy,
//! forwarded commands and notifications.
//!
//! Input is a TLP with its verdict, or an [`Event`] of the switch; output are TLPs to hosts.
//!
//! Source: CXL 3.1 sections 7.7.2.6, 7.7.2.7, 7.7.6.1; PCIe 6.0 section 2.2.4; docs/spec/wire-formats.md §3.8, §4.6,
//! §5.4.

use std::collections::BTreeMap;

use weft_cxl::completer::CompleterSpec;
use weft_cxl::cxl_host::code;
use weft_cxl::pci::intx::{Message, Wires};
use weft_cxl::pci::{BridgeEffects, ByteEnables, Reg};
use weft_cxl::vdm::Vdm;
use weft_cxl::vdm::proxy::Stale;
use weft_cxl::vdm::proxy::edge::{EdgeOut, HostWrite, ProxyThreads, THREADS_MAX};
use weft_cxl::vdm::reset::Binding;
use weft_dataplane::pbr::{Function, Gather, Side, Verdict};
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_parsers::cci::gae::ProxyCommand;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{At, Body, Completion, Kind, Mode, Routing, Status, Tlp, TlpRepr, VdmOp};

use super::{Agent, From};
use crate::event::Event;
use crate::port::Port;
use crate::vcs::{VcsState, function_of};
use crate::virtual_switches::VirtualSwitches;

/// Payload of a completion in bytes: the least `Max_Payload_Size` of PCIe.
const READ_PART: usize = 128;

/// The agent's state of one virtual switch.
#[derive(Clone, Debug)]
pub(super) struct HostSide {
    gather: Gather,
    proxies: Option<(Pid, ProxyThreads)>,
    /// Sequence number of the command in flight to each GFD, as the switch assigned it.
    seqs: BTreeMap<Pid, u8>,
    /// INTx levels of all ports below.
    wires: Wires,
}

impl HostSide {
    fn new() -> Self {
        let (gather, seqs, wires) = (Gather::default(), BTreeMap::new(), Wires::default());
        Self { gather, proxies: None, seqs, wires }
    }

    /// The last messages of GFDs that belonged to no active command, oldest first.
    pub fn stale_log(&self) -> impl Iterator<Item = &Stale> {
        self.proxies.iter().flat_map(|(_, proxies)| proxies.stale_log())
    }

    /// Time of the next retry or time limit of a forwarded command.
    pub fn next_due(&self) -> Option<Instant> {
        self.proxies.as_ref().and_then(|(_, proxies)| proxies.next_due())
    }
}

impl Agent {
    fn host(&mut self, vcs: u8) -> &mut HostSide {
        self.hosts.entry(vcs).or_insert_with(HostSide::new)
    }

    /// Resets the virtual switches of a port whose host is gone, and all devices below them.
    pub(super) fn host_lost(&mut self, now: Instant, port: PortId) {
        let of = |vcs: &u8| self.switch.vcs(*vcs).is_some_and(|state| state.usp == Some(port));
        let lost: Vec<u8> = self.switch.virtual_switches().numbers().filter(of).collect();
        for vcs in lost {
            // The switch first: `reset_devices` then finds the bridges without the host's settings.
            self.switch.change(|vcses, _| vcses.reset(vcs));
            self.reset_devices(now, vcs, None);
            self.hosts.remove(&vcs);
        }
    }

    /// Carries out the verdict of the tables on a TLP.
    pub(super) fn obey(
        &mut self,
        now: Instant,
        vcs: u8,
        side: Side,
        from: From,
        tlp: &Tlp<'_>,
        verdict: Verdict,
    ) {
        match verdict {
            Verdict::Internal(function) if tlp.kind().is_config() => {
                self.configure(vcs, function, from, tlp);
            }
            Verdict::Internal(Function::Gae) if tlp.is_completion() => {
                self.read_back(now, vcs, tlp);
            }
            // The component registers belong to the host: a device below (`Side::Below`) does not reach them.
            Verdict::Internal(function) if function == Function::Gae || side == Side::Above => {
                self.memory(now, vcs, function, from, tlp);
            }
            Verdict::Broadcast => self.broadcast(vcs, tlp),
            Verdict::Gather => {
                // PME_TO_Ack goes up once, when the last of the ports below has answered.
                self.counts.ended += 1;
                if let Side::Below(vppb) = side
                    && self.host(vcs).gather.answer(vppb)
                {
                    self.gathered(vcs);
                }
            }
            Verdict::Here => {
                self.counts.ended += 1;
                if let (Side::Below(vppb), Some(message)) = (side, Message::of(tlp)) {
                    // A bridge maps a pin by the device number of the port below on the bus within (PCIe 6.0, 2.2.8.1).
                    let at = vppb.saturating_add(1);
                    let device = function_of(at) >> 3;
                    self.host(vcs).wires.receive(at.into(), device, message);
                }
            }
            _ => self.refuse(from, tlp),
        }
    }

    /// Carries out a configuration request to a function of a virtual switch.
    fn configure(&mut self, vcs: u8, function: Function, from: From, tlp: &Tlp<'_>) {
        let weft_parsers::tlp::Route::Id(me) = tlp.route() else {
            return self.refuse(from, tlp);
        };
        let reg = Reg::at(tlp.register().unwrap_or_default());
        let bytes: [u8; 4];
        let (there, answer) = if let Some(&value) = tlp.payload().first_chunk() {
            let enables = ByteEnables::from_low_bits(tlp.first_be());
            // Writes alone: a read does not tell a function its segment or bus (PCIe 6.0, 2.2.6.2).
            if let Some(segment) = tlp.dest_segment() {
                self.switch.change(|vcses, _| vcses.capture_segment(vcs, segment));
            }
            if function == Function::Gae {
                self.switch.change(|vcses, _| vcses.capture_bus(vcs, me.bus()));
            }
            let value = u32::from_le_bytes(value);
            let there = self.switch.config_write(vcs, function, reg, value, enables);
            (there, Completion::of(tlp, Status::Success, me))
        } else {
            let value = self.switch.vcs(vcs).and_then(|state| state.config_read(function, reg));
            bytes = value.unwrap_or_default().to_le_bytes();
            (value.is_some(), Completion::with_data(tlp, me, 0, &bytes))
        };
        match answer {
            Some(answer) if there => {
                self.counts.served += 1;
                self.reply(from, &answer);
            }
            _ => self.refuse(from, tlp),
        }
    }

    /// Carries out a memory request to the registers of a GAE or a bridge.
    fn memory(&mut self, now: Instant, vcs: u8, function: Function, from: From, tlp: &Tlp<'_>) {
        let Some(addr) = tlp.addr() else { return self.refuse(from, tlp) };
        let me = self.id_of(vcs, function);
        match tlp.kind() {
            Kind::MemRead => {
                let mut bytes = vec![0; usize::from(tlp.length_dw()) * 4];
                let state = self.switch.vcs(vcs);
                if !state.is_some_and(|state| state.register_read(function, addr, &mut bytes)) {
                    return self.refuse(from, tlp);
                }
                self.counts.served += 1;
                // Every receiver on the way accepts this size, whatever its Max_Payload_Size is set to.
                let completer = CompleterSpec { payload_max: READ_PART, uio_last_first: false };
                completer.answer(tlp, me, &bytes, false, &mut |answer| self.reply(from, answer));
            }
            Kind::MemWrite => {
                let (skip, bytes) = enabled(tlp);
                let at = Hpa(addr.0 + skip as u64);
                if self.switch.register_write(now, vcs, function, at, bytes) {
                    self.counts.served += 1;
                } else {
                    // A posted request gets no completion, so a write that hits no register is only counted.
                    self.counts.unsupported += 1;
                }
            }
            _ => self.refuse(from, tlp),
        }
    }

    /// Forwards a message from the root to all ports below.
    fn broadcast(&mut self, vcs: u8, tlp: &Tlp<'_>) {
        let Some(state) = self.switch.tables().vcs(vcs).cloned() else { return };
        let is_turn_off = tlp.message_code() == Some(code::PME_TURN_OFF);
        // With nothing below that could acknowledge, the switch answers at once.
        if is_turn_off && self.host(vcs).gather.start(&state) {
            self.gathered(vcs);
        }
        for (_, binding) in state.bound() {
            if !self.send_out(binding, true, tlp) {
                self.counts.untold += 1;
            }
        }
    }

    /// Sends one `PME_TO_Ack` upstream after all ports below have answered.
    fn gathered(&mut self, vcs: u8) {
        let kind = Kind::Message { routing: Routing::Gather, data: false };
        let body = Body::Message { code: code::PME_TO_ACK, dw2: 0, dw3: 0 };
        self.up(vcs, Function::Upstream, kind, body, &[]);
    }

    /// Routing id of a function, 00:00.0 if there is none.
    fn id_of(&self, vcs: u8, function: Function) -> Bdf {
        let id = self.switch.vcs(vcs).and_then(|state| state.id_of(function));
        id.unwrap_or(Bdf::from_bits(0))
    }

    /// Sends a TLP of a function of a virtual switch to the root.
    fn up(&mut self, vcs: u8, function: Function, kind: Kind, body: Body, payload: &[u8]) {
        let id = self.id_of(vcs, function);
        self.up_with(vcs, |mode| TlpRepr { payload, ..TlpRepr::new(mode, kind, id, 0, body) });
    }

    fn up_with<'a>(&mut self, vcs: u8, make: impl FnOnce(Mode) -> TlpRepr<'a>) {
        let binding = self.switch.tables().vcs(vcs).map(|state| state.upstream().binding);
        let mode = match binding {
            Some(weft_dataplane::pbr::Binding::Port(port)) => self.modes.get(&port).copied(),
            // Links between switches are always in flit mode, so a vUSP has no mode of its own.
            Some(_) => Some(Mode::Flit),
            None => None,
        };
        match (binding, mode) {
            (Some(binding), Some(mode)) => self.send_bound(binding, false, &make(mode)),
            _ => self.counts.unsent += 1,
        }
    }

    /// Acts on the events of the switch; true if there were any.
    pub(super) fn act(&mut self, now: Instant) -> bool {
        // Collected first: acting on an event may queue further ones, for the next round of `settle`.
        let all: Vec<Event> = self.switch.events().collect();
        let any = !all.is_empty();
        for event in all {
            match event {
                Event::Bridge { vcs, vppb, effects } => {
                    self.bridge(now, Vppb { vcs, vppb }, &effects);
                }
                Event::PidBinding { vcs, vppb, bound, own, far } => {
                    self.bound(now, Vppb { vcs, vppb }, bound, Binding { own, far });
                }
                Event::AccessChanged { vcs } | Event::GaeInterrupt { vcs } => {
                    self.interrupt(vcs, Function::Gae);
                }
                Event::Proxy { vcs, pid, seq, request, len, response, response_max } => {
                    let command = ProxyCommand { pid, request, len, response, response_max };
                    self.begin_proxy(now, vcs, seq, &command);
                }
                Event::CancelProxy { vcs, pid, .. } => self.cancel_proxy(vcs, pid),
                Event::LdReset { port, ld } => self.reset_ld(port, ld, true),
                Event::PortReset { port } => self.reset_port(now, port),
                Event::PortControl { port, op } => self.control_port(now, port, op),
            }
        }
        any
    }

    fn bridge(&mut self, now: Instant, at: Vppb, effects: &BridgeEffects) {
        let Vppb { vcs, vppb } = at;
        let function = match vppb.checked_sub(1) {
            Some(below) => Function::Below(below),
            // A GAE without a switch keeps its bus number in a bridge that its host does not see.
            None if self.switch.vcs(vcs).is_some_and(VcsState::gae_is_alone) => return,
            None => Function::Upstream,
        };
        if let Some(message) = effects.message {
            let kind = Kind::Message { routing: Routing::ToRoot, data: false };
            let body = Body::Message { code: message.code(), dw2: 0, dw3: 0 };
            self.counts.told += 1;
            self.up(vcs, function, kind, body, &[]);
        }
        if effects.interrupt {
            self.interrupt(vcs, function);
        }
        if let Some(on) = effects.reset {
            // The begin is a pulse, so a bit that is set and cleared at once resets all the same; `sync_resets` holds
            // it.
            if on {
                self.reset_devices(now, vcs, (vppb > 0).then_some(vppb));
            }
            self.stale_resets = true;
        }
    }

    fn interrupt(&mut self, vcs: u8, function: Function) {
        let state = self.switch.vcs(vcs);
        let Some(msi) = state.and_then(|state| state.msi_of(function)) else { return };
        let body = Body::Address {
            addr: Hpa(msi.address),
            // Addresses below 4 GiB must use the format with 3 DWs (PCIe 6.0, 2.2.4.1).
            wide: msi.address >> 32 != 0,
            at: At::Untranslated,
            no_write: false,
            length_dw: 1,
            first_be: 0xF,
            last_be: 0,
        };
        self.counts.told += 1;
        self.up(vcs, function, Kind::MemWrite, body, &u32::from(msi.data).to_le_bytes());
    }

    /// PID of the port that leads to a virtual switch's host; `FFF` for a vUSP.
    fn host_pid(&self, vcs: u8) -> Pid {
        let usp = self.switch.vcs(vcs).and_then(|state| state.usp);
        usp.and_then(|port| self.switch.port(port)).map_or(Pid::NONE, Port::pid)
    }

    fn begin_proxy(&mut self, now: Instant, vcs: u8, seq: u8, command: &ProxyCommand) {
        let own = self.host_pid(vcs);
        let threads = u8::try_from(self.switch.config().threads).unwrap_or(THREADS_MAX);
        let side = self.host(vcs);
        // Another PID of the port makes a new requester: answers to the old one no longer come here.
        if side.proxies.as_ref().is_none_or(|(pid, _)| *pid != own) {
            side.proxies = Some((own, ProxyThreads::new(own, threads)));
        }
        // `true`: the command has checked that the GFD is in the GMV.
        let started = side.proxies.as_mut().map(|(_, proxies)| proxies.start(now, command, true));
        if matches!(started, Some(Ok(_))) {
            side.seqs.insert(command.pid, seq);
        } else {
            // Refused at once, such as for want of a thread: the switch and the host must not wait for it.
            self.switch.change(|vcses, _| vcses.proxy_ended(vcs, command.pid, seq));
        }
    }

    fn cancel_proxy(&mut self, vcs: u8, pid: Pid) {
        let side = self.host(vcs);
        side.seqs.remove(&pid);
        if let Some((_, proxies)) = &mut side.proxies
            && let Some(seq) = proxies.running(pid)
        {
            let cancelled = proxies.cancel(pid, seq);
            debug_assert!(cancelled.is_ok(), "it runs");
        }
    }

    /// The virtual switch whose host is at the port with this PID.
    fn vcs_of_host(&self, pid: Pid) -> Option<u8> {
        let mut all = self.switch.virtual_switches().numbers().filter(|_| !pid.is_none());
        // FFFh is the PID of every virtual switch without a host port, and must not match one of these.
        all.find(|&vcs| self.host_pid(vcs) == pid)
    }

    /// Handles a message addressed to a host's edge.
    pub(super) fn host_message(&mut self, now: Instant, vdm: &Vdm) {
        let Some(vcs) = self.vcs_of_host(vdm.pth.dpid) else {
            self.counts.unknown += 1;
            return;
        };
        match vdm.op {
            VdmOp::Gam => {
                let Ok(entry) = <[u8; 32]>::try_from(vdm.payload.as_slice()) else {
                    self.counts.unknown += 1;
                    return;
                };
                // A target outside of the host's GMV may not write into the host's memory.
                let state = self.switch.vcs(vcs);
                let is_allowed = state.is_some_and(|it| it.access.gmv.contains(vdm.pth.spid));
                self.counts.refused += u64::from(!is_allowed);
                let post = |vcses: &mut VirtualSwitches| vcses.get_mut(vcs)?.gam.post(entry);
                if is_allowed && let Some(post) = self.switch.change(|vcses, _| post(vcses)) {
                    self.write_host(vcs, &HostWrite::new(post.hpa, &post.payload));
                    self.interrupt(vcs, Function::Gae);
                }
            }
            VdmOp::UcPull | VdmOp::UcRsp | VdmOp::UcRspLast | VdmOp::UcRspFail => {
                let allowed = self
                    .switch
                    .vcs(vcs)
                    .is_some_and(|state| state.access.gmv.contains(vdm.pth.spid));
                // The check is passed on rather than made here: the state machine ends the command of a target that
                // lost its bit.
                match &mut self.host(vcs).proxies {
                    Some((_, proxies)) => {
                        let before = proxies.stale();
                        proxies.receive(now, vdm, allowed);
                        self.counts.stale += proxies.stale() - before;
                    }
                    None => self.counts.unknown += 1,
                }
            }
            VdmOp::RtUpdate => {
                let answer = self.switch.change(|vcses, _| vcses.receive_cache_ids(vcs, vdm));
                if let Some(answer) = answer {
                    self.send_by(answer.pth, &answer.message().repr());
                }
            }
            _ => self.counts.unknown += 1,
        }
    }

    fn write_host(&mut self, vcs: u8, write: &HostWrite) {
        let id = self.id_of(vcs, Function::Gae);
        self.up_with(vcs, |mode| write.repr(mode, id));
    }

    /// Handles a completion of a read of the host's memory.
    fn read_back(&mut self, now: Instant, vcs: u8, tlp: &Tlp<'_>) {
        let Some((_, proxies)) = &mut self.host(vcs).proxies else {
            self.counts.unexpected += 1;
            return;
        };
        match tlp.status() {
            Some(Status::Success) => proxies.read_data(now, tlp.tag(), tlp.payload()),
            _ => proxies.read_failed(tlp.tag()),
        }
    }

    /// Sends the changes of the INTx levels of each virtual switch; true if there were any. A port without a link
    /// asserts nothing.
    pub(super) fn poll_wires(&mut self) -> bool {
        let mut said = Vec::new();
        for (vcs, side) in &mut self.hosts {
            let state = self.switch.vcs(*vcs);
            let vppb = |at| state.and_then(|state| state.vppbs.get(at));
            side.wires.retain(|at| vppb(at).is_some_and(|it| it.bridge.link().is_some()));
            said.extend(side.wires.changes().into_iter().map(|message| (*vcs, message)));
        }
        for (vcs, message) in &said {
            self.counts.told += 1;
            self.up(*vcs, Function::Upstream, Message::KIND, message.body(), &[]);
        }
        !said.is_empty()
    }

    /// Clears the INTx levels below a vPPB after a reset, or below all of them.
    pub(super) fn lose_wires(&mut self, vcs: u8, vppb: Option<u8>) {
        if let Some(side) = self.hosts.get_mut(&vcs) {
            side.wires.retain(|at| vppb.is_some_and(|vppb| usize::from(vppb) != at));
        }
    }

    /// Advances forwarded commands, and sends `CacheID` updates to hosts' edges; true if there was anything to do.
    pub(super) fn poll_hosts(&mut self, now: Instant) -> bool {
        let mut any = false;
        for vdm in self.switch.change(|vcses, ports| vcses.poll_cache_ids(now, ports)) {
            any = true;
            self.send_by(vdm.pth, &vdm.message().repr());
        }
        // The loop needs `self` to send, so the keys are copied.
        let places: Vec<u8> = self.hosts.keys().copied().collect();
        for vcs in places {
            while let Some(out) = self.next_of(now, vcs) {
                any = true;
                match out {
                    EdgeOut::Vdm(vdm) => self.send_by(vdm.pth, &vdm.message().repr()),
                    EdgeOut::Read(read) => {
                        let id = self.id_of(vcs, Function::Gae);
                        self.up_with(vcs, |mode| read.repr(mode, id));
                    }
                    EdgeOut::Write(write) => self.write_host(vcs, &write),
                    EdgeOut::Ended { pid, .. } => {
                        if let Some(seq) = self.host(vcs).seqs.remove(&pid) {
                            self.switch.change(|vcses, _| vcses.proxy_ended(vcs, pid, seq));
                        }
                    }
                }
            }
        }
        any
    }

    fn next_of(&mut self, now: Instant, vcs: u8) -> Option<EdgeOut> {
        self.hosts.get_mut(&vcs)?.proxies.as_mut()?.1.poll(now)
    }
}

/// The bytes between the first and the last enabled byte of a write, and the offset of the first one. Disabled bytes in
/// between are written as well, because registers are written in one piece.
fn enabled<'a>(tlp: &Tlp<'a>) -> (usize, &'a [u8]) {
    let payload = tlp.payload();
    let skip = usize::try_from(tlp.first_be().trailing_zeros()).unwrap_or(0).min(3);
    // A request of one DW has no last byte enables (PCIe 6.0, 2.2.5).
    let last = if tlp.length_dw() == 1 { tlp.first_be() } else { tlp.last_be() };
    let behind = usize::try_from((last << 4).leading_zeros()).unwrap_or(0).min(4);
    let end = payload.len().saturating_sub(behind);
    (skip, payload.get(skip..end).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use weft_cxl::pci::Link;
    use weft_dataplane::config::TlpConfig;
    use weft_hosts::classes::PriMap;
    use weft_parsers::cci::List;
    use weft_parsers::cci::pbr::{AssignOp, AssignPids, PidAssignment};

    use super::*;
    use crate::agent::AgentConfig;
    use crate::config::{PortConfig, Role, SwitchConfig, VcsConfig};
    use crate::switch::Switch;

    const HOST: Pid = Pid::from_low_bits(0x30);
    const GFD: Pid = Pid::from_low_bits(0x41);
    const NOW: Instant = Instant::ZERO;

    /// A switch with a host at port 0, which may reach the GFD.
    fn agent() -> Agent {
        let port = PortId::new(0).unwrap();
        let mut config = SwitchConfig::new([0x51; 16], 7);
        config.ports = vec![PortConfig { port, role: Role::Usp, pids: 1 }];
        config.vcses = vec![VcsConfig { usp: Some(port), vppbs: 1, gae: true }];
        let (modes, tlp) = (BTreeMap::new(), TlpConfig::for_pris(8));
        let config_of_agent =
            AgentConfig { modes, tlp, classes: PriMap::eight(), payload_max: 512 };
        let mut agent = Agent::new(Switch::new(config).unwrap(), config_of_agent);
        agent.set_link(NOW, port, Some(Link::default()));
        agent.command(NOW, |switch| {
            let list = [PidAssignment { pid: HOST, target: 0, instance: 0 }];
            let assign = AssignPids { op: AssignOp::Assign, assignments: List::of(&list) };
            switch.assign_pids(&assign).unwrap();
            let mut access = (*switch.vcs(0).unwrap().access).clone();
            access.gmv.allow(GFD).unwrap();
            switch.change(|vcses, _| vcses.get_mut(0).unwrap().access = access.into());
        });
        agent
    }

    fn answer(agent: &mut Agent, cmd_seq: u8) {
        let mut vdm = Vdm::new(GFD, HOST, VdmOp::UcRspLast).with_payload(&[1; 4]);
        vdm.cmd_seq = cmd_seq;
        agent.host_message(NOW, &vdm);
    }

    //= docs/spec/wire-formats.md §3.8: a stale CmdSeq is dropped, counted and logged
    #[test]
    fn messages_of_no_active_command_are_counted_and_logged() {
        let mut agent = agent();
        let (request, response) = (Hpa(0x1000), Hpa(0x2000));
        let command = ProxyCommand { pid: GFD, request, len: 64, response, response_max: 64 };
        agent.begin_proxy(NOW, 0, 0, &command);
        let active = agent.host(0).proxies.as_ref().unwrap().1.running(GFD).unwrap();
        for n in 1..=3 {
            answer(&mut agent, active + n);
        }
        assert_eq!(agent.counts().0.stale, 3);
        let log: Vec<String> =
            agent.stale_log().map(|(vcs, one)| format!("{vcs}: {one}")).collect();
        let last = active + 3;
        let want =
            format!("0: UcRspLast with CmdSeq {last} from PID 041: CmdSeq {active} is active");
        assert_eq!((log.len(), log.last()), (3, Some(&want)));
        // Counts outlast the PID that the threads were of; the log does not.
        agent.host(0).proxies = None;
        assert_eq!((agent.counts().0.stale, agent.stale_log().count()), (3, 0));
    }

    /// Offset of the first enabled byte, and the enabled bytes, of a write of `len` bytes.
    fn written(len: usize, first_be: u8, last_be: u8) -> (usize, Vec<u8>) {
        let payload: Vec<u8> = (0..=u8::MAX).take(len).collect();
        let body = Body::Address {
            addr: Hpa(0x1000),
            wide: false,
            at: At::Untranslated,
            no_write: false,
            length_dw: u16::try_from(len / 4).unwrap(),
            first_be,
            last_be,
        };
        let repr = TlpRepr::new(Mode::Flit, Kind::MemWrite, Bdf::from_bits(8), 0, body);
        let mut bytes = [0; 128];
        let len = TlpRepr { payload: &payload, ..repr }.emit(&mut bytes).unwrap();
        let tlp = Tlp::parse(Mode::Flit, &bytes[..len]).unwrap();
        let (skip, bytes) = enabled(&tlp);
        (skip, bytes.to_vec())
    }

    #[test]
    fn writes_write_the_bytes_that_are_enabled() {
        #[rustfmt::skip] // columns: name, bytes, first, last, skipped, end of the last enabled byte
        let cases = [
            ("whole DW",         4,  0b1111, 0b0000, 0, 4),
            ("first byte",      4,  0b0001, 0b0000, 0, 1),
            ("last byte",       4,  0b1000, 0b0000, 3, 4),
            ("middle",           4,  0b0110, 0b0000, 1, 3),
            ("two DWs",          8,  0b1111, 0b1111, 0, 8),
            ("ends of two",      8,  0b1000, 0b0001, 3, 5),
            ("three and a half", 16, 0b1111, 0b0011, 0, 14),
            ("none at all",      4,  0b0000, 0b0000, 3, 0),
        ];
        for (name, len, first, last, skip, end) in cases {
            let want = (0..end).skip(skip).collect();
            assert_eq!(written(len, first, last), (skip, want), "{name}");
        }
    }
}
