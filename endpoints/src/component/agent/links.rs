//! Links: who is at their other ends, and virtual links over several of them.
//!
//! Shape: a port's link comes and goes ([`Agent::set_link`]); messages in and out; what the switch shows its hosts
//! follows.
//! Units: time as a parameter.
//! Source: wire-formats.md 3.8, 4.8; fabric.md "Binding"; seed 000 section 7.7.6.1.

use weft_dataplane::pbr::{Dispatch, Flow, Load};
use weft_dataplane::time::Instant;
use weft_dataplane::types::{PortId, PortSet};
use weft_parsers::cci::pbr::{LinkPartner, PidAndKind};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::vdm::PartnerInfo;
use weft_parsers::tlp::{Pth, VdmOp};

use super::Agent;
use crate::cci::Component;
use crate::component::config::Role;
use crate::component::port::{self, Partner as Known};
use crate::pci::Link;
use crate::vdm::Vdm;
use crate::vdm::mctp::Peer;
use crate::vdm::partner::{FarEnd, Partner};
use crate::vdm::reset::{Binding, LinkCounts, LinkEvent, Reset, VirtualDsp, VirtualUsp};

/// Virtual channels with standard flow control: VC0; with that of UIO: VC3.
const VCS: u8 = 1;
/// As in a GFD: see its messages.
const UIO_VCS: u8 = 1 << 3;

/// What is asked of the other end of a link.
#[derive(Clone, Debug)]
pub(super) struct LinkSide {
    pub partner: Partner,
    far: FarEnd,
}

impl LinkSide {
    /// Of a port that another component with PBR may be at; a host's has none.
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

#[derive(Clone, Debug)]
enum VirtualEnd {
    Dsp(VirtualDsp),
    Usp(VirtualUsp),
}

impl Virtual {
    /// When it is due.
    pub fn next_due(&self) -> Option<Instant> {
        match &self.end {
            VirtualEnd::Dsp(end) => end.next_due(),
            VirtualEnd::Usp(end) => end.next_due(),
        }
    }
}

/// No queue is looked at: static messages do not choose.
struct NoLoad;

impl Load for NoLoad {
    fn queued_octets(&self, _: PortId) -> u64 {
        0
    }

    fn is_full(&self, _: PortId) -> bool {
        false
    }
}

impl Agent {
    /// What an end of a virtual link has sent and refused; `None` where the vPPB has none.
    #[must_use]
    pub fn link_counts(&self, vcs: u8, vppb: u8) -> Option<LinkCounts> {
        self.virtuals.get(&(vcs, vppb)).map(|link| match &link.end {
            VirtualEnd::Dsp(end) => end.counts(),
            VirtualEnd::Usp(end) => end.counts(),
        })
    }

    /// The link of a port came up or went down.
    pub fn set_link(&mut self, now: Instant, port: PortId, link: Option<Link>) {
        let Some(state) = self.switch.port(port) else { return };
        if state.link == link {
            return;
        }
        let (role, was_up) = (state.role, state.link.is_some());
        self.switch.set_link(port, link);
        if role == Role::Usp && link.is_some() {
            self.switch.set_partner(port, Known::Host);
        }
        if let Some(side) = self.links.get_mut(&port)
            && was_up != link.is_some()
        {
            side.far = FarEnd::Unknown;
            if link.is_some() {
                side.partner.link_up(now);
            } else {
                side.partner.link_down();
                self.tunnel.forget(Peer::Port(port.get()));
            }
        }
        if role == Role::Usp && link.is_none() {
            self.host_lost(port);
        }
        self.settle(now);
    }

    /// A port by its number.
    pub(super) fn port_of(&self, number: u8) -> Option<PortId> {
        self.switch.ports.iter().map(|port| port.id).find(|port| port.get() == number)
    }

    /// Takes in a message of the fabric.
    pub(super) fn message(&mut self, now: Instant, input: PortId, vdm: &Vdm) {
        self.counts.messages += 1;
        match vdm.op {
            VdmOp::LinkPartnerInfo => {
                if let Some(side) = self.links.get_mut(&input) {
                    side.partner.receive(now, vdm);
                } else {
                    self.counts.unknown += 1;
                }
            }
            VdmOp::LinkUp | VdmOp::AssertReset | VdmOp::AssertPerst | VdmOp::DeassertReset => {
                self.virtual_message(now, vdm);
            }
            _ => self.host_message(now, vdm),
        }
    }

    fn virtual_message(&mut self, now: Instant, vdm: &Vdm) {
        // By its ends: the tables have no link that is down.
        let found = self.virtuals.iter_mut().find(|(_, link)| link.ends.matches(vdm));
        let Some((&at, link)) = found else {
            self.counts.unknown += 1;
            return;
        };
        let event = match &mut link.end {
            VirtualEnd::Dsp(end) => end.receive(vdm),
            VirtualEnd::Usp(end) => end.receive(now, vdm),
        };
        if let Some(event) = event {
            self.link_event(now, at, event);
        }
    }

    /// A TLP came by a virtual link, and is none of its messages: who is at the other end has heard Link Up.
    pub(super) fn heard_by(&mut self, pth: Pth) {
        let comes_by =
            |link: &&mut Virtual| pth.hie && (pth.spid, pth.dpid) == (link.ends.far, link.ends.own);
        if let Some(Virtual { end: VirtualEnd::Usp(end), .. }) =
            self.virtuals.values_mut().find(comes_by)
        {
            end.heard();
        }
    }

    fn link_event(&mut self, now: Instant, (vcs, vppb): (u8, u8), event: LinkEvent) {
        match event {
            LinkEvent::Up => self.switch.set_path(vcs, vppb, true),
            LinkEvent::SurpriseDown | LinkEvent::NoAnswer => {
                self.switch.set_path(vcs, vppb, false);
                if vppb == 0 {
                    self.reset_below(vcs); // as any loss of the link above
                }
            }
            LinkEvent::Asserted(_) => self.reset_below(vcs),
            LinkEvent::Deasserted => {
                if let Some(Virtual { end: VirtualEnd::Usp(end), .. }) =
                    self.virtuals.get_mut(&(vcs, vppb))
                {
                    end.ready(now);
                }
            }
        }
    }

    /// A virtual switch without a host's port is reset from above.
    fn reset_below(&mut self, vcs: u8) {
        self.switch.reset_vcs(vcs);
        self.counts.untold += 1; // what hangs on local ports below is not told
    }

    /// A virtual link was bound or unbound.
    pub(super) fn bound(&mut self, now: Instant, at: (u8, u8), on: bool, ends: Binding) {
        if !on {
            self.virtuals.remove(&at);
            return;
        }
        let end = if at.1 == 0 {
            let mut end = VirtualUsp::bind(ends);
            end.ready(now);
            VirtualEnd::Usp(end)
        } else {
            VirtualEnd::Dsp(VirtualDsp::bind(now, ends, None))
        };
        self.virtuals.insert(at, Virtual { end, ends, way: true });
    }

    /// The host resets what is below a vPPB, or ends that; whether the vPPB has a virtual link to tell it by.
    pub(super) fn reset_link(&mut self, now: Instant, at: (u8, u8), on: bool) -> bool {
        match self.virtuals.get_mut(&at) {
            Some(Virtual { end: VirtualEnd::Dsp(end), .. }) => {
                if on {
                    end.assert(now, Reset::Hot);
                } else {
                    end.deassert(now);
                }
                true
            }
            _ => false,
        }
    }

    /// Whether static messages to a PID find their way out of this switch.
    fn has_way(&self, far: Pid) -> bool {
        let up: PortSet =
            self.switch.ports.iter().filter(|port| port.link.is_some()).map(|p| p.id).collect();
        let tables = self.switch.tables();
        match tables.routes().lookup(far) {
            Ok(Dispatch::Here) => true,
            Ok(to) => tables.pick(to, Flow::Static, up, 0, &NoLoad).is_ok(),
            Err(_) => false,
        }
    }

    /// Sends what links have to say, and acts on what has become of them; whether there was any.
    pub(super) fn poll_links(&mut self, now: Instant) -> bool {
        let mut any = self.tell_partners(now);
        let places: Vec<(u8, u8)> = self.virtuals.keys().copied().collect();
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
            (own.port, own.uuid) = (port.get(), self.switch.config.uuid);
            (own.vcs, own.uio_vcs) = (VCS, UIO_VCS);
            (own.primary_fm, own.secondary_fm) = (owners.primary_uuid, owners.secondary_uuid);
            side.partner.set_own(now, own);
            while let Some(vdm) = side.partner.poll(now) {
                sent.push((port, vdm));
            }
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
        for (port, far) in changed {
            let kind = |info: &PartnerInfo| match info.component_type {
                PartnerInfo::GFD => PidAndKind::GFD,
                _ => PidAndKind::SWITCH,
            };
            let known = match far {
                FarEnd::Unknown => Known::Unknown,
                FarEnd::HostOrDevice => Known::Device { lds: 0 },
                FarEnd::Switch(info) | FarEnd::Gfd(info) => Known::Pbr(LinkPartner {
                    port: port.get(),
                    far_port: info.port,
                    far: PidAndKind { pid: info.pid, kind: kind(&info) },
                    uuid: info.uuid,
                    standard_vcs: info.vcs,
                    uio_vcs: info.uio_vcs,
                    primary_uuid: info.primary_fm,
                    secondary_uuid: info.secondary_fm,
                }),
            };
            self.switch.set_partner(port, known);
        }
        any
    }

    fn poll_virtual(&mut self, now: Instant, at: (u8, u8)) -> bool {
        let Some(far) = self.virtuals.get(&at).map(|link| link.ends.far) else { return false };
        let way = self.has_way(far);
        let Some(link) = self.virtuals.get_mut(&at) else { return false };
        let changed = core::mem::replace(&mut link.way, way) != way;
        let mut event = None;
        match (&mut link.end, changed, way) {
            (VirtualEnd::Dsp(end), true, true) => end.path_back(now),
            (VirtualEnd::Dsp(end), true, false) => event = end.path_lost(),
            (VirtualEnd::Usp(end), true, true) => {
                end.path_back();
                end.ready(now);
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
