//! Links: detection of link partners, and virtual links that run over several links.
//!
//! [`Agent::set_link`] reports each change of a port's link. Messages to and from the other ends follow, and the link
//! states that the switch shows to its hosts.
//!
//! Source: docs/spec/wire-formats.md §3.8, §4.8; docs/spec/cxl-fabric.md "Binding"; CXL 3.1 section 7.7.6.1.

use weft_cxl::cci::Component;
use weft_cxl::pci::Link;
use weft_cxl::vdm::Vdm;
use weft_cxl::vdm::mctp::Peer;
use weft_cxl::vdm::partner::{FarEnd, Partner};
use weft_cxl::vdm::reset::{
    Binding, LinkCounts, LinkEvent, LinkState, Reset, VirtualDsp, VirtualUsp,
};
use weft_dataplane::pbr::Dispatch;
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind, Vppb};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::vdm::PartnerInfo;
use weft_parsers::tlp::{Pth, VdmOp};

use super::Agent;
use super::mld::MldSide;
use crate::config::Role;
use crate::port::{self, Partner as Known};

/// Virtual channels that are announced: VC0 with standard flow control.
const VCS: u8 = 1;
/// And VC3 with that of UIO, the same that a GFD announces.
const UIO_VCS: u8 = 1 << 3;

/// Detection of the partner at the other end of a link.
#[derive(Clone, Debug)]
pub(super) struct LinkSide {
    pub partner: Partner,
    far: FarEnd,
}

impl LinkSide {
    /// For a port that may lead to another PBR component; a host's port has none.
    pub fn new(port: &port::Port) -> Option<(PortId, Self)> {
        let mut own = PartnerInfo::new(Pid::NONE, PartnerInfo::SWITCH);
        own.port = port.id.get();
        let side = Self { partner: Partner::new(own), far: FarEnd::Unknown };
        (port.role != Role::Usp).then_some((port.id, side))
    }
}

/// One end of a virtual link.
#[derive(Clone, Debug)]
pub(super) struct Virtual {
    end: VirtualEnd,
    ends: Binding,
    way: bool,
}

/// Which end this switch has.
#[derive(Clone, Debug)]
pub(super) enum VirtualEnd {
    Dsp(VirtualDsp),
    Usp(VirtualUsp),
}

impl Virtual {
    /// The state machine of this end.
    pub const fn end(&self) -> &VirtualEnd {
        &self.end
    }

    /// Time of the next message or time limit.
    pub fn next_due(&self) -> Option<Instant> {
        match &self.end {
            VirtualEnd::Dsp(end) => end.next_due(),
            VirtualEnd::Usp(end) => end.next_due(),
        }
    }
}

/// An announcement in the form that managers get (5702h).
fn told(port: PortId, info: &PartnerInfo) -> LinkPartner {
    let kind = match info.component_type {
        PartnerInfo::GFD => PidAndKind::GFD,
        _ => PidAndKind::SWITCH,
    };
    LinkPartner {
        port: port.get(),
        far_port: info.port,
        far: PidAndKind { pid: info.pid, kind },
        uuid: info.uuid,
        standard_vcs: info.vcs,
        uio_vcs: info.uio_vcs,
        primary_uuid: info.primary_fm,
        secondary_uuid: info.secondary_fm,
    }
}

/// Whether a partner at a downstream edge may announce itself this way: with a PID of the port, or without a PID. While
/// the port has no PID, a GFD keeps the PID it had before, which serves only to tell the manager. No partner changes
/// its identity while the link is up.
fn may_call_itself(port: &port::Port, far: FarEnd, spid: Pid, info: &PartnerInfo) -> bool {
    let who = |info: &PartnerInfo| (info.component_type, info.uuid);
    let (is_new, is_same) = match far {
        FarEnd::Unknown | FarEnd::HostOrDevice => (true, true),
        FarEnd::Switch(was) | FarEnd::Gfd(was) => (false, who(&was) == who(info)),
    };
    // The first announcement fixes the early PID; a GFD must not try one PID after another.
    let is_known = matches!(far, FarEnd::Gfd(was) if was.pid == info.pid);
    let is_early =
        port.pid().is_none() && info.component_type == PartnerInfo::GFD && (is_new || is_known);
    let names = info.pid.is_none() || port.has_pid(info.pid) || is_early;
    is_same && names && (spid.is_none() || spid == info.pid)
}

impl Agent {
    /// Counts of messages that this end of a virtual link sent and refused; `None` if the vPPB has none.
    #[must_use]
    pub fn link_counts(&self, at: Vppb) -> Option<LinkCounts> {
        self.virtuals.get(&at).map(|link| match &link.end {
            VirtualEnd::Dsp(end) => end.counts(),
            VirtualEnd::Usp(end) => end.counts(),
        })
    }

    /// Reports that the link of a port came up or went down.
    pub fn set_link(&mut self, now: Instant, port: PortId, link: Option<Link>) {
        let shown = self.link_seen(now, port, link);
        self.show_port(now, port, shown);
        self.settle(now);
    }

    /// Makes a link state of a port take effect in all parts of the switch.
    pub(super) fn show_port(&mut self, now: Instant, port: PortId, link: Option<Link>) {
        let Some(state) = self.switch.port(port) else { return };
        if state.link == link {
            return;
        }
        let (role, was_up) = (state.role, state.link.is_some());
        if link.is_none() {
            // Requests over that link get no answer any more: fail them now instead of after their time limit.
            for peer in self.tunnel.asked() {
                if let Peer::Pid(pid) = peer
                    && self.switch.static_port(pid) == Some(port)
                {
                    self.tunnel.forget(peer);
                }
            }
        }
        // After the loop above, which needs the routes as they were with the link up.
        self.switch.set_link(port, link);
        if role == Role::Usp && link.is_some() {
            self.switch.set_partner(port, Known::Host);
        }
        if let Some(side) = self.links.get_mut(&port)
            && was_up != link.is_some()
        {
            // A new link may lead to another component.
            side.far = FarEnd::Unknown;
            if link.is_some() {
                side.partner.link_up(now);
            } else {
                side.partner.link_down();
                self.tunnel.forget(Peer::Port(port.get()));
            }
        }
        if was_up != link.is_some()
            && let Some(side) = self.mlds.get_mut(&port)
        {
            side.set_link();
            self.drop_ld_requests(port);
        }
        // The component behind the port next has not claimed anything; the manager must claim again through it.
        if link.is_none() {
            self.switch.common_mut().ownership.forget_way(port.get());
        }
        if role == Role::Usp && link.is_none() {
            self.host_lost(now, port);
        }
        self.switch.log_port(now, port);
    }

    /// Looks a port up by its number in a message.
    pub(super) fn port_of(&self, number: u8) -> Option<PortId> {
        self.switch.ports().all().iter().map(|port| port.id).find(|port| port.get() == number)
    }

    /// Handles a message of the fabric.
    pub(super) fn message(&mut self, now: Instant, input: PortId, vdm: &Vdm) {
        self.counts.messages += 1;
        match vdm.op {
            VdmOp::LinkPartnerInfo => self.announced(now, input, vdm),
            VdmOp::LinkUp | VdmOp::AssertReset | VdmOp::AssertPerst | VdmOp::DeassertReset => {
                self.virtual_message(now, vdm);
            }
            VdmOp::RtUpdateAck | VdmOp::RtUpdateNak => {
                let known = self.switch.change(|vcses, _| vcses.answered_cache_ids(vdm));
                self.counts.unknown += u64::from(!known);
            }
            _ => self.host_message(now, vdm),
        }
    }

    /// Handles an announcement of a link partner. At an edge it gives no rights: a GFD has the PIDs that the fabric
    /// manager assigned to its port, and an announcement with another PID is rejected.
    fn announced(&mut self, now: Instant, input: PortId, vdm: &Vdm) {
        let (Some(side), Some(port)) = (self.links.get_mut(&input), self.switch.port(input)) else {
            self.counts.unknown += 1;
            return;
        };
        if port.role == Role::Dsp
            && let Ok(info) = PartnerInfo::decode(&vdm.payload)
        {
            let taken = may_call_itself(port, side.partner.far_end(), vdm.pth.spid, &info);
            self.counts.foreign += u64::from(!taken);
            self.switch.set_refused(input, (!taken).then(|| told(input, &info)));
            if !taken {
                return;
            }
        }
        side.partner.receive(now, vdm);
    }

    fn virtual_message(&mut self, now: Instant, vdm: &Vdm) {
        // Found by its ends, as the tables do not contain virtual links that are down.
        let found = self.virtuals.iter_mut().find(|(_, link)| link.ends.matches(vdm));
        let Some((&at, link)) = found else {
            self.counts.unknown += 1;
            return;
        };
        let event = match &mut link.end {
            VirtualEnd::Dsp(end) => end.receive(vdm),
            VirtualEnd::Usp(end) => {
                if vdm.op == VdmOp::DeassertReset && end.state() == LinkState::Up {
                    // that end has lost the link, and forgotten
                    self.switch.change(|vcses, _| vcses.repeat_cache_ids(at.vcs));
                }
                end.receive(now, vdm)
            }
        };
        if let Some(event) = event {
            self.link_event(now, at, event);
        }
    }

    /// Notes a TLP that arrived by a virtual link and is not a message of the link: the other end has received Link Up.
    pub(super) fn heard_by(&mut self, pth: Pth) {
        let comes_by =
            |link: &&mut Virtual| pth.hie && (pth.spid, pth.dpid) == (link.ends.far, link.ends.own);
        if let Some(Virtual { end: VirtualEnd::Usp(end), .. }) =
            self.virtuals.values_mut().find(comes_by)
        {
            end.heard();
        }
    }

    fn set_path(&mut self, at: Vppb, is_up: bool) {
        self.switch.change(|vcses, _| vcses.set_path(at, is_up));
    }

    fn link_event(&mut self, now: Instant, at: Vppb, event: LinkEvent) {
        match event {
            LinkEvent::Up => self.set_path(at, true),
            // The far end restarted between two messages: the host must see the loss before it sees the link again.
            LinkEvent::Anew => {
                self.set_path(at, false);
                self.set_path(at, true);
            }
            LinkEvent::SurpriseDown | LinkEvent::NoAnswer => {
                self.set_path(at, false);
                if at.vppb == 0 {
                    self.reset_below(now, at.vcs); // as any loss of the link above
                }
            }
            LinkEvent::Asserted(_) => self.reset_below(now, at.vcs),
            LinkEvent::Deasserted => {
                // Link Up must wait until the devices below are out of reset, too.
                self.stale_resets = true;
                self.recovering.insert(at.vcs);
            }
        }
    }

    /// Resets a virtual switch without a host port from above, with all devices below it.
    fn reset_below(&mut self, now: Instant, vcs: u8) {
        self.switch.change(|vcses, _| vcses.reset(vcs));
        self.reset_devices(now, vcs, None);
    }

    /// All devices below a virtual switch are back: its vUSP sends Link Up.
    pub(super) fn ready(&mut self, now: Instant, vcs: u8) {
        let upstream = Vppb { vcs, vppb: 0 };
        if let Some(Virtual { end: VirtualEnd::Usp(end), .. }) = self.virtuals.get_mut(&upstream) {
            end.ready(now);
        }
    }

    /// Starts or ends the state machine of a virtual link that was bound or unbound.
    pub(super) fn bound(&mut self, now: Instant, at: Vppb, on: bool, ends: Binding) {
        if !on {
            self.virtuals.remove(&at);
            self.switch.change(|vcses, _| vcses.forget_cache_ids(at.vcs, ends.far));
            if at.vppb == 0 {
                self.reset_devices(now, at.vcs, None); // their host has gone
            }
            return;
        }
        // Without a path yet, nothing is lost: the devices below wait for the first one.
        let way = at.vppb > 0 || self.has_way(ends.far);
        let end = if at.vppb == 0 {
            let mut end = VirtualUsp::bind(ends);
            if !way {
                end.path_lost();
            }
            self.recovering.insert(at.vcs);
            VirtualEnd::Usp(end)
        } else {
            VirtualEnd::Dsp(VirtualDsp::bind(now, ends, None))
        };
        self.virtuals.insert(at, Virtual { end, ends, way });
    }

    /// Asserts a reset at the other end of a virtual link; it holds until [`Self::deassert_far`].
    pub(super) fn assert_far(&mut self, now: Instant, at: Vppb) {
        if let Some(Virtual { end: VirtualEnd::Dsp(end), .. }) = self.virtuals.get_mut(&at)
            // `sync_resets` repeats this while a reset holds: only the first call counts.
            && !matches!(end.state(), LinkState::Reset(_))
        {
            end.assert(now, Reset::Hot);
            self.switch.change(|vcses, _| vcses.reset_path(at));
        }
    }

    /// Ends a reset of [`Self::assert_far`].
    pub(super) fn deassert_far(&mut self, now: Instant, at: Vppb) {
        if let Some(Virtual { end: VirtualEnd::Dsp(end), .. }) = self.virtuals.get_mut(&at)
            && matches!(end.state(), LinkState::Reset(_))
        {
            end.deassert(now);
        }
    }

    /// Whether this switch has a path for static messages to a PID.
    fn has_way(&self, far: Pid) -> bool {
        let is_here = self.switch.tables().routes().lookup(far) == Ok(Dispatch::Here);
        is_here || self.switch.static_port(far).is_some()
    }

    /// Sends the messages of links that are due, and acts on their events; true if there were any.
    pub(super) fn poll_links(&mut self, now: Instant) -> bool {
        let mut any = self.tell_partners(now);
        let places: Vec<Vppb> = self.virtuals.keys().copied().collect();
        for at in places {
            any |= self.poll_virtual(now, at);
        }
        any
    }

    fn tell_partners(&mut self, now: Instant) -> bool {
        let ownership = &self.switch.common().ownership;
        let (owners, pid) = (ownership.owners(), ownership.pid());
        let (mut sent, mut changed) = (Vec::new(), Vec::new());
        for (&port, side) in &mut self.links {
            let mut own = PartnerInfo::new(pid, PartnerInfo::SWITCH);
            (own.port, own.uuid) = (port.get(), self.switch.config().uuid);
            (own.vcs, own.uio_vcs) = (VCS, UIO_VCS);
            let is_edge = self.switch.port(port).is_none_or(|port| port.role != Role::Fabric);
            // A partner at an edge needs neither this PID nor the UUIDs of managers, and could only send in their name.
            if is_edge {
                own.pid = Pid::NONE;
            } else {
                (own.primary_fm, own.secondary_fm) = (owners.primary_uuid, owners.secondary_uuid);
            }
            side.partner.set_own(now, own);
            while let Some(vdm) = side.partner.poll(now) {
                sent.push((port, vdm));
            }
            // `far_end` also changes by time limit, when a partner stays silent.
            let far = side.partner.far_end();
            if far != side.far {
                side.far = far;
                changed.push((port, far));
            }
        }
        let any = !sent.is_empty() || !changed.is_empty();
        for (port, vdm) in sent {
            self.send_at(port, Some(vdm.pth), &vdm.message().repr());
        }
        // After the loop above, which borrows the links.
        for (port, far) in changed {
            let known = match far {
                FarEnd::Unknown => Known::Unknown,
                FarEnd::HostOrDevice => {
                    Known::Device { lds: self.mlds.get(&port).map_or(0, MldSide::lds) }
                }
                FarEnd::Switch(info) | FarEnd::Gfd(info) => Known::Pbr(told(port, &info)),
            };
            self.switch.set_partner(port, known);
            if known != Known::Unknown {
                self.switch.log_port(now, port);
            }
        }
        any
    }

    fn poll_virtual(&mut self, now: Instant, at: Vppb) -> bool {
        let Some(far) = self.virtuals.get(&at).map(|link| link.ends.far) else { return false };
        let way = self.has_way(far);
        let Some(link) = self.virtuals.get_mut(&at) else { return false };
        // A path may come and go without a message: by a link of this switch, or a new route.
        let changed = core::mem::replace(&mut link.way, way) != way;
        let mut event = None;
        match (&mut link.end, changed, way) {
            (VirtualEnd::Dsp(end), true, true) => end.path_back(now),
            (VirtualEnd::Dsp(end), true, false) => event = end.path_lost(),
            (VirtualEnd::Usp(end), true, true) => {
                end.path_back();
                self.recovering.insert(at.vcs); // the loss has reset the devices below
                event = Some(LinkEvent::Up);
            }
            (VirtualEnd::Usp(end), true, false) => event = end.path_lost(),
            _ => {}
        }
        let mut sent = Vec::new();
        loop {
            match &mut link.end {
                VirtualEnd::Dsp(end) => match end.poll(now) {
                    Some(Ok(vdm)) => sent.push(vdm),
                    Some(Err(other)) => event = event.or(Some(other)),
                    None => break,
                },
                VirtualEnd::Usp(end) => match end.poll(now) {
                    Some(vdm) => sent.push(vdm),
                    None => break,
                },
            }
        }
        let any = changed || !sent.is_empty() || event.is_some();
        for vdm in sent {
            self.send_by(vdm.pth, &vdm.message().repr());
        }
        if let Some(event) = event {
            self.link_event(now, at, event);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use weft_hosts::classes::PriMap;

    use super::*;
    use crate::agent::{AgentConfig, From};
    use crate::config::{PortConfig, SwitchConfig, VcsConfig};
    use crate::switch::Switch;
    use std::collections::BTreeMap;
    use weft_dataplane::config::TlpConfig;
    use weft_dataplane::pbr;
    use weft_parsers::cci::pbr::{AssignOp, AssignPids, PidAssignment};
    use weft_parsers::cci::{List, Request};
    use weft_parsers::fabric::Bdf;
    use weft_parsers::tlp::{MctpPacket, Mode, Tlp};

    const DSP: usize = 1;
    const UUID: [u8; 16] = [0x6F; 16];

    fn pid(bits: u16) -> Pid {
        Pid::from_low_bits(bits)
    }

    fn at(number: usize) -> PortId {
        PortId::new(number).unwrap()
    }

    /// A switch with a host port, a downstream port and a fabric port; all links are up.
    fn agent() -> Agent {
        let mut config = SwitchConfig::new([0x51; 16], 7);
        let roles = [Role::Usp, Role::Dsp, Role::Fabric].into_iter().enumerate();
        config.ports =
            roles.map(|(port, role)| PortConfig { port: at(port), role, pids: 2 }).collect();
        config.vcses = vec![VcsConfig { usp: Some(at(0)), vppbs: 1, gae: true }];
        let (modes, tlp) = (BTreeMap::new(), TlpConfig::for_pris(8));
        let config_of_agent =
            AgentConfig { modes, tlp, classes: PriMap::eight(), payload_max: 512 };
        let mut agent = Agent::new(Switch::new(config).unwrap(), config_of_agent);
        for port in 0..3 {
            agent.set_link(Instant::ZERO, at(port), Some(Link::default()));
        }
        agent
    }

    fn give(agent: &mut Agent, bits: u16) {
        give_to(agent, 1, bits);
    }

    fn give_to(agent: &mut Agent, target: u16, bits: u16) {
        let list = [PidAssignment { pid: pid(bits), target, instance: 0 }];
        let (op, assignments) = (AssignOp::Assign, List::of(&list));
        let given = agent.switch.assign_pids(&AssignPids { op, assignments });
        assert!(given.is_ok());
        agent.switch.refresh();
    }

    /// Announces a partner at the downstream port. Returns the role of the port after it, and the number of refused
    /// announcements.
    fn says(agent: &mut Agent, kind: u8, name: u16, spid: u16, uuid: [u8; 16]) -> (pbr::Role, u64) {
        let mut info = PartnerInfo::new(pid(name), kind);
        info.uuid = uuid;
        let vdm = Vdm::new(pid(spid), Pid::NONE, VdmOp::LinkPartnerInfo);
        agent.message(Instant::ZERO, at(DSP), &vdm.with_payload(&info.emit()));
        agent.settle(Instant::ZERO);
        let edge = agent.switch.tables().edge(at(DSP)).expect("an edge");
        (edge.role, agent.counts.foreign)
    }

    fn speaks_as(agent: &Agent, bits: u16) -> bool {
        agent.switch.tables().edge(at(DSP)).expect("an edge").has_pid(pid(bits))
    }

    /// docs/security.md: a port speaks only as the PID that the fabric manager gave it, whatever its partner announces.
    #[test]
    fn nobody_gets_a_name_by_announcing_it() {
        use pbr::Role::{Dsp, Gfd};
        const GFD: u8 = PartnerInfo::GFD;
        const SWITCH: u8 = PartnerInfo::SWITCH;
        let mut agent = agent();
        // A GFD may keep its PID while its switch has not been told of it yet. The announcement reaches the manager.
        assert_eq!(says(&mut agent, GFD, 0x30, 0x30, UUID), (Gfd, 0));
        assert!(!speaks_as(&agent, 0x30), "nobody has given that PID to the port");
        assert_eq!(agent.switch.tables().edge(at(DSP)).unwrap().announced, pid(0x30));
        assert_eq!(says(&mut agent, GFD, 0x31, 0x31, UUID), (Gfd, 1), "and now another one");
        give(&mut agent, 0x30);
        assert!(speaks_as(&agent, 0x30));
        #[rustfmt::skip] // columns: announcement, kind, PID, SPID, UUID, whether it is accepted
        let cases = [
            ("its own",              GFD,    0x30,  0x30,  UUID, true),
            ("no PID",               GFD,    0xFFF, 0xFFF, UUID, true),
            ("its own, without one", GFD,    0x30,  0xFFF, UUID, true),
            ("a host's",             GFD,    0xA1,  0xA1,  UUID, false),
            ("the manager's",        GFD,    0x01,  0xFFF, UUID, false),
            ("in another's name",    GFD,    0x30,  0x01,  UUID, false),
            ("as a switch",          SWITCH, 0x30,  0x30,  UUID, false),
            ("as somebody else",     GFD,    0x30,  0x30,  [1; 16], false),
        ];
        let epoch = agent.switch.epoch();
        for (name, kind, bits, spid, uuid, taken) in cases {
            let had = agent.counts.foreign;
            let want = (Gfd, had + u64::from(!taken));
            assert_eq!(says(&mut agent, kind, bits, spid, uuid), want, "{name}");
            let refused = agent.switch.port(at(DSP)).unwrap().refused.map(|told| told.far.pid);
            assert_eq!(refused, (!taken).then_some(pid(bits)), "{name}");
            assert!(speaks_as(&agent, 0x30) && !speaks_as(&agent, 0xA1) && !speaks_as(&agent, 1));
        }
        assert_eq!(agent.switch.epoch(), epoch, "no table was made anew for any of that");
        // The link was down, so the partner may be another component and must prove itself again.
        agent.set_link(Instant::ZERO, at(DSP), None);
        agent.set_link(Instant::ZERO, at(DSP), Some(Link::default()));
        let had = agent.counts.foreign;
        assert_eq!(says(&mut agent, GFD, 0xA1, 0xA1, UUID), (Dsp, had + 1));
        assert_eq!(says(&mut agent, SWITCH, 0x01, 0x01, UUID), (Dsp, had + 2));
        assert_eq!(says(&mut agent, GFD, 0x30, 0x30, UUID), (Gfd, had + 2));
    }

    /// A GFD notifies only those hosts that may access it.
    #[test]
    fn a_host_hears_nothing_of_what_it_may_not_reach() {
        let mut agent = agent();
        give_to(&mut agent, 0, 0xA1);
        give(&mut agent, 0x30);
        let notice = Vdm::new(pid(0x30), pid(0xA1), VdmOp::Gam).with_payload(&[1; 32]);
        agent.message(Instant::ZERO, at(DSP), &notice);
        assert_eq!((agent.counts.refused, agent.counts.unknown), (1, 0));
        let mut access = (*agent.switch.vcs(0).unwrap().access).clone();
        access.gmv.allow(pid(0x30)).unwrap();
        agent.switch.change(|vcses, _| vcses.get_mut(0).unwrap().access = access.into());
        agent.message(Instant::ZERO, at(DSP), &notice);
        assert_eq!((agent.counts.refused, agent.counts.unknown), (1, 0), "it may reach that one");
    }

    /// The agent drops the messages that the pipeline would have dropped, and a command among them gets no answer.
    #[test]
    fn nobody_at_an_edge_commands() {
        let mut agent = agent();
        give(&mut agent, 0x30);
        says(&mut agent, PartnerInfo::GFD, 0x30, 0x30, UUID);
        while agent.tunnel.poll(Instant::ZERO).is_some() {}
        let mut message = [0; 64];
        let len = Request::IdentifyPbrComponent.emit_message(1, &mut message).unwrap();
        let mut body = [&[7], &message[..len]].concat();
        body.resize(16, 0);
        let (first, last) = (true, true);
        let (dest, source, seq, owner, tag, pad) = (0, 0, 0, true, 1, 0);
        let packet = MctpPacket { dest, source, first, last, seq, owner, tag, pad, payload: &body };
        let repr = packet.repr(Mode::Flit, Bdf::from_bits(0), Bdf::from_bits(0));
        let mut bytes = [0; 128];
        let len = repr.emit(&mut bytes).unwrap();
        let tlp = Tlp::parse(Mode::Flit, &bytes[..len]).unwrap();
        for (place, port) in [0, DSP].into_iter().enumerate() {
            for (spid, dpid) in [(0x30, 0xFFF), (0x30, 0x10), (0x01, 0xFFF), (0xFFF, 0xFFF)] {
                let pth = Some(Pth::new(pid(spid), pid(dpid)));
                let had = agent.counts;
                agent.take(Instant::ZERO, From { input: at(port), pth, ld: None }, &tlp);
                agent.settle(Instant::ZERO);
                assert_eq!(agent.counts.refused, had.refused + 1, "{place} {spid:x} {dpid:x}");
                assert_eq!(agent.counts.messages, had.messages);
            }
        }
        let asked = agent.tunnel.counts().0;
        assert_eq!((asked.misdirected, asked.no_room), (0, 0));
        // Behind a link between switches the sender may give commands, although it is not the manager.
        let pth = Some(Pth::new(pid(1), Pid::NONE));
        agent.take(Instant::ZERO, From { input: at(2), pth, ld: None }, &tlp);
        assert!(agent.serve_tunnels(Instant::ZERO), "it is served");
        assert!(agent.tunnel.poll(Instant::ZERO).is_some(), "and answered");
    }
}
