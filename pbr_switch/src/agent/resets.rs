//! Resets of devices at downstream ports: by the manager (5102h), by a host through its vPPBs, and after loss of a
//! host.
//!
//! The manager's orders and the bridges bound to a port decide whether it is held in reset. [`ResetOrders`] tells the
//! device, and bridges see the link down until the device has answered.
//!
//! Source: docs/spec/cxl-fabric.md "Resets"; docs/spec/wire-formats.md §3.7b; PCIe 6.0 section 6.6.1; CXL 3.1 section
//! 7.6.7.1.3.

use std::collections::BTreeMap;

use weft_cxl::pci::Link;
use weft_cxl::vdm::link_reset::{Ordered, ResetOrders, ResetReceiver};
use weft_cxl::vdm::reset::{LinkState, Reset};
use weft_dataplane::pipeline::cpu_mac_of_port;
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::switch::PortOp;
use weft_parsers::tlp::{LinkReset, ResetWord};

use super::Agent;
use super::links::VirtualEnd;
use crate::config::Role;
use crate::port::Port;
use crate::vcs::Bound;

/// Reset state of one downstream port.
#[derive(Clone, Debug, Default)]
pub(super) struct PortResets {
    orders: ResetOrders,
    /// Reset that the manager holds asserted (PERST#).
    managed: Option<Reset>,
    /// The manager's reset is in progress: until its end the port's link is down for all observers.
    hides: bool,
    /// The actual link, also while it is hidden.
    link: Option<Link>,
}

impl PortResets {
    /// For a port that may lead to a device.
    pub fn new(port: &Port) -> Option<(PortId, Self)> {
        (port.role == Role::Dsp).then(|| (port.id, Self::default()))
    }

    /// Time of the next order or time limit.
    pub const fn next_due(&self) -> Option<Instant> {
        self.orders.next_due()
    }
}

/// Receivers of link resets at host ports, which the host's root port orders.
pub(super) type HostResets = BTreeMap<PortId, ResetReceiver>;

/// One receiver for each host port.
pub(super) fn of_hosts(ports: &[Port]) -> HostResets {
    let hosts = ports.iter().filter(|port| port.role == Role::Usp);
    hosts.map(|port| (port.id, ResetReceiver::default())).collect()
}

impl Agent {
    /// Records the actual link of a port; returns the link state to show.
    pub(super) fn link_seen(
        &mut self,
        now: Instant,
        port: PortId,
        link: Option<Link>,
    ) -> Option<Link> {
        let Some(resets) = self.resets.get_mut(&port) else { return link };
        let was_up = resets.link.is_some();
        resets.link = link;
        match (was_up, link.is_some()) {
            (false, true) => resets.orders.link_up(now),
            (true, false) => resets.orders.link_down(),
            _ => {}
        }
        // With the link down nothing can be held open: a hidden link may show again once orders are open.
        let is_open = resets.orders.is_open();
        resets.hides &= !is_open;
        let shown = link.filter(|_| !resets.hides);
        self.switch.set_resetting(port, !is_open);
        shown
    }

    /// Carries out Physical Port Control (5102h) of the manager.
    pub(super) fn control_port(&mut self, now: Instant, port: PortId, op: PortOp) {
        let Some(resets) = self.resets.get_mut(&port) else { return };
        match op {
            PortOp::AssertPerst => resets.managed = Some(Reset::Fundamental),
            PortOp::DeassertPerst => resets.managed = None,
            PortOp::ResetPpb => resets.orders.pulse(now),
        }
        let is_held = resets.managed.is_some();
        // Asserted PERST# shows in 5101h until it is deasserted, before the device answers.
        self.switch.set_perst(port, is_held);
        self.sync_resets(now);
        // The manager's resets are a surprise link down for the host, unlike those that its own software requests.
        if op != PortOp::DeassertPerst
            && let Some(resets) = self.resets.get_mut(&port)
        {
            self.counts.port_resets += 1;
            resets.hides = true;
            self.show_port(now, port, None);
        }
    }

    /// Resets the device at a port once, because its host has changed or gone.
    pub(super) fn reset_port(&mut self, now: Instant, port: PortId) {
        if let Some(resets) = self.resets.get_mut(&port) {
            self.counts.port_resets += 1;
            resets.orders.pulse(now);
        }
        self.stale_resets = true;
    }

    /// Resets all devices below one vPPB, or below all of a virtual switch.
    pub(super) fn reset_devices(&mut self, now: Instant, vcs: u8, vppb: Option<u8>) {
        self.lose_wires(vcs, vppb);
        let Some(state) = self.switch.vcs(vcs) else { return };
        let all = (0..=u8::MAX).zip(state.vppbs.iter().map(|vppb| vppb.bound)).skip(1);
        let all: Vec<(u8, Bound)> =
            all.filter(|(at, _)| vppb.is_none_or(|vppb| vppb == *at)).collect();
        for (at, bound) in all {
            match bound {
                Bound::Port(port) => self.reset_port(now, port),
                Bound::Ld(port, ld) => {
                    // A pulse: an LD is reset once, and shows no link down meanwhile.
                    self.reset_ld(port, ld, true);
                    self.reset_ld(port, ld, false);
                }
                Bound::Pid(_) => self.assert_far(now, Vppb { vcs, vppb: at }),
                Bound::No => {}
            }
        }
        self.stale_resets = true;
    }

    /// Whether the devices below a vPPB are held in reset by software or from above.
    fn is_held(&self, at: Vppb) -> bool {
        let Some(state) = self.switch.vcs(at.vcs) else { return false };
        let is_set = |at: u8| {
            let vppb = state.vppbs.get(usize::from(at));
            vppb.is_some_and(|vppb| vppb.bridge.is_resetting())
        };
        let upstream = Vppb { vppb: 0, ..at };
        let from_above = self.virtuals.get(&upstream).is_some_and(|link| match link.end() {
            VirtualEnd::Usp(end) => matches!(end.state(), LinkState::Reset(_)),
            VirtualEnd::Dsp(_) => false,
        });
        let by_host = state.usp.and_then(|usp| self.host_resets.get(&usp));
        let by_host = by_host.is_some_and(ResetReceiver::is_held);
        from_above || by_host || is_set(0) || is_set(at.vppb)
    }

    /// Makes each port and each virtual link hold the reset that now applies to it.
    fn sync_resets(&mut self, now: Instant) {
        self.stale_resets = false;
        let ports: Vec<PortId> = self.resets.keys().copied().collect();
        for port in ports {
            let bound = self.switch.virtual_switches().bound_to(port).into_iter();
            let mut whole =
                // LDs are reset one by one; only a whole binding holds the device.
                bound.filter(|&at| self.switch.virtual_switches().bound_at(at) == Bound::Port(port));
            let is_held = whole.any(|at| self.is_held(at));
            let by_host = is_held.then_some(Reset::Hot);
            let Some(resets) = self.resets.get_mut(&port) else { continue };
            // The stronger of both: PERST# of the manager is a fundamental reset, the host's a hot one.
            resets.orders.hold(now, resets.managed.max(by_host));
            let is_open = resets.orders.is_open();
            self.switch.set_resetting(port, !is_open);
        }
        let far: Vec<Vppb> = self.virtuals.keys().copied().filter(|at| at.vppb > 0).collect();
        for at in far {
            if self.is_held(at) {
                self.assert_far(now, at);
            } else {
                self.deassert_far(now, at);
            }
        }
    }

    /// Handles a reset message of a link's end. A host may reset its own virtual switch by it. From a downstream port
    /// only the acknowledgement of an order counts.
    pub(super) fn link_said(&mut self, now: Instant, port: PortId, message: LinkReset) {
        // Hosts' ports first: they are the only ones with a receiver, so a device can never order a reset.
        let by_host = self.host_resets.get_mut(&port).and_then(|it| it.receive(now, message));
        if let Some((ordered, answer)) = by_host {
            self.host_ordered(now, port, ordered);
            self.end.outbox().control(cpu_mac_of_port(port), answer);
            return;
        }
        let known = message.word == ResetWord::Done;
        let Some(resets) = self.resets.get_mut(&port).filter(|_| known) else {
            self.counts.foreign_resets += 1;
            return;
        };
        if resets.orders.receive(now, message) {
            self.reset_over(now, port);
        }
    }

    /// The device at a port is out of reset, or does not know resets: shows its link again.
    fn reset_over(&mut self, now: Instant, port: PortId) {
        let Some(resets) = self.resets.get_mut(&port) else { return };
        let shown = core::mem::take(&mut resets.hides).then_some(resets.link);
        self.switch.set_resetting(port, false);
        if let Some(link) = shown {
            self.show_port(now, port, link);
        }
    }

    /// Carries out a reset that a host's root port begins or ends.
    fn host_ordered(&mut self, now: Instant, port: PortId, ordered: Option<Ordered>) {
        if ordered == Some(Ordered::Begins) {
            self.host_lost(now, port);
        }
        self.stale_resets |= ordered.is_some();
    }

    /// Sends the reset orders that are due, and lets virtual links come up that waited for devices; true if there were
    /// any.
    pub(super) fn poll_resets(&mut self, now: Instant) -> bool {
        let hosts: Vec<PortId> = self.host_resets.keys().copied().collect();
        for port in hosts {
            let is_up = self.switch.port(port).is_some_and(|port| port.link.is_some());
            let over = self.host_resets.get_mut(&port).and_then(|it| it.tick(now, is_up));
            self.host_ordered(now, port, over);
        }
        let mut any = self.stale_resets;
        // Before `poll` below, so that a new order is sent in the same round.
        if any {
            self.sync_resets(now);
        }
        let mut over = Vec::new();
        for (&port, resets) in &mut self.resets {
            while let Some(order) = resets.orders.poll(now) {
                any = true;
                self.end.outbox().control(cpu_mac_of_port(port), order);
            }
            over.extend(resets.orders.take_given_up().then_some(port));
        }
        any |= !over.is_empty();
        for port in over {
            self.reset_over(now, port);
        }
        any | self.let_up(now)
    }

    /// Lets virtual links come up whose devices are all back; true if there were any.
    fn let_up(&mut self, now: Instant) -> bool {
        let waiting = self.recovering.iter().copied();
        let back: Vec<u8> = waiting.filter(|&vcs| self.is_recovered(vcs)).collect();
        for &vcs in &back {
            self.recovering.remove(&vcs);
            self.ready(now, vcs);
        }
        !back.is_empty()
    }

    /// Whether all devices at local ports below a virtual switch are out of reset, gone, or do not answer.
    fn is_recovered(&self, vcs: u8) -> bool {
        let state = self.switch.vcs(vcs);
        let bound = state.into_iter().flat_map(|state| &state.vppbs).map(|vppb| vppb.bound);
        // A silent or unplugged device must not keep the host from the others.
        bound.filter_map(|bound| self.resets.get(&bound.port()?)).all(|resets| {
            let orders = &resets.orders;
            orders.is_open() || resets.link.is_none() || orders.is_unanswered()
        })
    }
}

#[cfg(test)]
mod tests {
    use weft_cxl::pci::{ByteEnables, Reg, regs};
    use weft_cxl::vdm::Vdm;
    use weft_cxl::vdm::reset::Binding as Ends;
    use weft_dataplane::config::TlpConfig;
    use weft_dataplane::pbr::{Binding, Function};
    use weft_dataplane::time::Span;
    use weft_hosts::classes::PriMap;
    use weft_parsers::cci::List;
    use weft_parsers::cci::switch::LINK_STATE_PERST;
    use weft_parsers::cci::tables::SetDrt;
    use weft_parsers::fabric::{DrtEntry, Pid};
    use weft_parsers::tlp::VdmOp;

    use super::*;
    use crate::agent::AgentConfig;
    use crate::config::{PortConfig, SwitchConfig, VcsConfig};
    use crate::switch::Switch;
    use crate::work::Work;

    /// Ports of devices: one below virtual switch 0, which has a host port, and one below virtual switch 1, which has a
    /// vUSP.
    const NEAR: usize = 1;
    const FAR: usize = 2;
    const UPSTREAM: u8 = 0;
    const VUSP: u8 = 1;

    fn at(number: usize) -> PortId {
        PortId::new(number).unwrap()
    }

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + Span::from_ms(ms)
    }

    /// A host at port 0, devices at 1 and 2, another switch at 3. All links are up, and both devices are bound.
    fn agent() -> Agent {
        let mut config = SwitchConfig::new([0x51; 16], 7);
        let roles = [Role::Usp, Role::Dsp, Role::Dsp, Role::Fabric].into_iter().enumerate();
        config.ports =
            roles.map(|(port, role)| PortConfig { port: at(port), role, pids: 1 }).collect();
        config.vcses = vec![
            VcsConfig { usp: Some(at(0)), vppbs: 1, gae: false },
            VcsConfig { usp: None, vppbs: 1, gae: false },
        ];
        let (modes, tlp) = (BTreeMap::new(), TlpConfig::for_pris(8));
        let config_of_agent =
            AgentConfig { modes, tlp, classes: PriMap::eight(), payload_max: 512 };
        let mut agent = Agent::new(Switch::new(config).unwrap(), config_of_agent);
        for port in 0..4 {
            agent.set_link(ms(0), at(port), Some(Link::default()));
        }
        for (vcs, port) in [(0, NEAR), (1, FAR)] {
            let work = Work::Bind { vcs, vppb: 1, port: at(port), ld: None };
            agent.switch.do_now(&work).unwrap();
        }
        agent.settle(ms(0));
        assert!(is_open(&agent, NEAR) && is_open(&agent, FAR));
        agent
    }

    /// Whether TLPs pass to a device. The vPPB must show its link exactly then.
    fn is_open(agent: &Agent, port: usize) -> bool {
        let vcs = u8::from(port == FAR);
        let state = agent.switch.vcs(vcs).unwrap();
        let tables = agent.switch.tables().vcs(vcs).unwrap();
        let is_bound = tables.bound().any(|(_, binding)| binding == Binding::Port(at(port)));
        let is_of_host = agent.switch.tables().edge(at(port)).unwrap().vcs.is_some();
        assert_eq!((state.vppbs[1].bridge.link().is_some(), is_of_host), (is_bound, is_bound));
        is_bound
    }

    /// The device reports every reset as done, with all numbers.
    fn answers(agent: &mut Agent, now: Instant, port: usize) {
        for number in 0..=u8::MAX {
            agent.link_said(now, at(port), LinkReset { word: ResetWord::Done, number });
            agent.settle(now);
        }
    }

    /// Software writes the bridge control of a vPPB.
    fn control(agent: &mut Agent, now: Instant, vcs: u8, function: Function, on: bool) {
        let value = if on { u32::from(regs::bridge_control::RESET) << 16 } else { 0 };
        let enables = ByteEnables::from_low_bits(0b0100);
        let reg = Reg::at(regs::BRIDGE_CONTROL);
        assert!(agent.switch.config_write(vcs, function, reg, value, enables));
        agent.settle(now);
    }

    fn orders(agent: &mut Agent, now: Instant, port: usize, op: PortOp) {
        agent.control_port(now, at(port), op);
        agent.settle(now);
    }

    //= docs/spec/cxl-fabric.md "Resets": the vPPB's, or the upstream one's, and nobody else's device
    #[test]
    fn a_secondary_bus_reset_holds_what_is_below_until_it_ends() {
        for function in [Function::Below(0), Function::Upstream] {
            let mut agent = agent();
            control(&mut agent, ms(1), UPSTREAM, function, true);
            assert!(!is_open(&agent, NEAR) && is_open(&agent, FAR), "{function:?}");
            answers(&mut agent, ms(2), NEAR);
            assert!(!is_open(&agent, NEAR), "{function:?}: it holds");
            control(&mut agent, ms(3), UPSTREAM, function, false);
            assert!(!is_open(&agent, NEAR), "{function:?}: until the device has said so");
            answers(&mut agent, ms(4), NEAR);
            assert!(is_open(&agent, NEAR), "{function:?}");
            // The manager sees the link up all the time.
            assert!(agent.switch.port(at(NEAR)).unwrap().link.is_some());
            assert_eq!(agent.counts.port_resets, 1, "{function:?}");
        }
    }

    /// A reset that begins and ends between two polls resets the device, too.
    #[test]
    fn a_short_secondary_bus_reset_is_not_lost() {
        let mut agent = agent();
        let (reg, enables) = (Reg::at(regs::BRIDGE_CONTROL), ByteEnables::from_low_bits(0b0100));
        for value in [u32::from(regs::bridge_control::RESET) << 16, 0] {
            agent.switch.config_write(UPSTREAM, Function::Below(0), reg, value, enables);
        }
        agent.settle(ms(1));
        assert!(!is_open(&agent, NEAR));
        answers(&mut agent, ms(2), NEAR);
        assert!(is_open(&agent, NEAR));
    }

    //= docs/spec/cxl-fabric.md "Resets": loss of the host, and an unbind
    #[test]
    fn a_device_whose_host_has_gone_begins_anew() {
        let mut lost = agent();
        lost.set_link(ms(1), at(0), None);
        assert!(!is_open(&lost, NEAR) && is_open(&lost, FAR));
        answers(&mut lost, ms(2), NEAR);
        assert!(is_open(&lost, NEAR));
        let mut unbound = agent();
        let option = weft_parsers::cci::vcs::UnbindOption::Managed;
        unbound.switch.do_now(&Work::Unbind { vcs: 0, vppb: 1, option }).unwrap();
        unbound.settle(ms(1));
        assert!(unbound.switch.port(at(NEAR)).unwrap().resetting);
        let work = Work::Bind { vcs: 0, vppb: 1, port: at(NEAR), ld: None };
        unbound.switch.do_now(&work).unwrap();
        assert!(!is_open(&unbound, NEAR), "for the next host neither, before it is out of reset");
        answers(&mut unbound, ms(2), NEAR);
        assert!(is_open(&unbound, NEAR));
    }

    //= docs/spec/cxl-fabric.md "Resets": by a virtual link; Link Up waits for the devices
    #[test]
    fn a_vusp_resets_its_devices_and_says_link_up_when_they_are_back() {
        let mut agent = agent();
        let [own, far] = [0x30, 0x40].map(Pid::from_low_bits);
        let entries = List::of(&[DrtEntry::Port(3)]);
        let way = SetDrt { table: 0, start: far.bits(), entries };
        assert!(agent.switch.routing_mut().set_drt(&way).is_ok());
        agent.bound(ms(1), Vppb { vcs: VUSP, vppb: 0 }, true, Ends { own, far });
        agent.settle(ms(1));
        let says = |agent: &mut Agent, now, op| {
            let mut vdm = Vdm::new(far, own, op);
            vdm.pth.hie = true;
            agent.message(now, at(3), &vdm);
            agent.settle(now);
        };
        let state = |agent: &Agent| match agent.virtuals[&Vppb { vcs: VUSP, vppb: 0 }].end() {
            VirtualEnd::Usp(end) => end.state(),
            VirtualEnd::Dsp(_) => panic!("another end"),
        };
        says(&mut agent, ms(2), VdmOp::AssertReset);
        assert!(!is_open(&agent, FAR) && is_open(&agent, NEAR));
        answers(&mut agent, ms(3), FAR);
        assert_eq!((is_open(&agent, FAR), state(&agent)), (false, LinkState::Reset(Reset::Hot)));
        says(&mut agent, ms(4), VdmOp::DeassertReset);
        assert_eq!((is_open(&agent, FAR), state(&agent)), (false, LinkState::Down));
        answers(&mut agent, ms(5), FAR);
        assert_eq!((is_open(&agent, FAR), state(&agent)), (true, LinkState::Up));
        // A device that never answers delays Link Up by no more than its first tries take.
        says(&mut agent, ms(10), VdmOp::AssertReset);
        says(&mut agent, ms(11), VdmOp::DeassertReset);
        for after in 11..200 {
            agent.settle(ms(after));
        }
        assert_eq!((is_open(&agent, FAR), state(&agent)), (false, LinkState::Up));
        // Without the virtual link the devices have no host.
        answers(&mut agent, ms(300), FAR);
        agent.bound(ms(301), Vppb { vcs: VUSP, vppb: 0 }, false, Ends { own, far });
        agent.settle(ms(301));
        assert!(!is_open(&agent, FAR));
    }

    //= docs/spec/cxl-fabric.md "Resets": 5102h
    #[test]
    fn the_manager_resets_a_device_and_its_link_is_down_for_everybody() {
        let mut agent = agent();
        let link = |agent: &Agent| agent.switch.port(at(NEAR)).unwrap().link.is_some();
        orders(&mut agent, ms(1), NEAR, PortOp::ResetPpb);
        assert_eq!((is_open(&agent, NEAR), link(&agent)), (false, false));
        answers(&mut agent, ms(2), NEAR);
        assert_eq!((is_open(&agent, NEAR), link(&agent)), (true, true));
        let told = |agent: &Agent| agent.switch.port(at(NEAR)).unwrap().state(None).link_state;
        assert_eq!(told(&agent), 0);
        orders(&mut agent, ms(3), NEAR, PortOp::AssertPerst);
        answers(&mut agent, ms(4), NEAR);
        // Neither a reset by the host nor a link that goes down and up ends the manager's reset.
        control(&mut agent, ms(5), UPSTREAM, Function::Below(0), true);
        control(&mut agent, ms(6), UPSTREAM, Function::Below(0), false);
        answers(&mut agent, ms(7), NEAR);
        agent.set_link(ms(8), at(NEAR), None);
        agent.set_link(ms(9), at(NEAR), Some(Link::default()));
        answers(&mut agent, ms(10), NEAR);
        assert_eq!((is_open(&agent, NEAR), link(&agent)), (false, false));
        assert_eq!(told(&agent), LINK_STATE_PERST);
        orders(&mut agent, ms(11), NEAR, PortOp::DeassertPerst);
        assert_eq!(told(&agent), 0);
        assert_eq!((is_open(&agent, NEAR), link(&agent)), (false, false));
        answers(&mut agent, ms(12), NEAR);
        assert_eq!((is_open(&agent, NEAR), link(&agent)), (true, true));
    }

    //= docs/spec/cxl-fabric.md "Resets": nobody below, and no switch, resets anything; a host its own virtual switch
    #[test]
    fn resets_that_come_in_are_dropped_and_counted() {
        let mut agent = agent();
        let mut want = 0;
        for port in 1..4 {
            for word in [ResetWord::AssertHot, ResetWord::AssertPerst, ResetWord::Deassert] {
                agent.link_said(ms(1), at(port), LinkReset { word, number: 1 });
                want += 1;
            }
        }
        for port in [0, 3] {
            let done = LinkReset { word: ResetWord::Done, number: 1 };
            agent.link_said(ms(1), at(port), done);
            want += 1;
        }
        agent.settle(ms(1));
        assert_eq!((agent.counts.foreign_resets, agent.counts.port_resets), (want, 0));
        assert!(is_open(&agent, NEAR) && is_open(&agent, FAR));
        let host = |agent: &mut Agent, now, word| {
            agent.link_said(now, at(0), LinkReset { word, number: 7 });
            agent.settle(now);
        };
        host(&mut agent, ms(1), ResetWord::AssertHot);
        answers(&mut agent, ms(1), NEAR);
        assert!(!is_open(&agent, NEAR) && is_open(&agent, FAR), "of its own virtual switch");
        host(&mut agent, ms(1), ResetWord::Deassert);
        answers(&mut agent, ms(1), NEAR);
        assert!(is_open(&agent, NEAR));
        // An answer to no request does not end a reset either.
        orders(&mut agent, ms(2), NEAR, PortOp::AssertPerst);
        answers(&mut agent, ms(3), FAR);
        answers(&mut agent, ms(3), NEAR);
        assert!(!is_open(&agent, NEAR));
    }
}
