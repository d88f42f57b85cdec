//! State of a switch, the inputs that change it, and the tables built from it.
//!
//! A change only marks the virtual switches and ports that it concerns; `refresh` rebuilds those, so [`Switch::tables`]
//! is consistent after each public call.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles", "Binding", "Dynamic change"; CXL 3.1 section 7.7.6.

mod bind;
mod commands;
mod component;
mod forward;
mod host_registers;
mod physical;
mod pids;
mod static_init;

use std::collections::VecDeque;

use weft_cxl::cci::Common;
use weft_cxl::pci::Link;
use weft_dataplane::pbr::Tables;
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_parsers::cci::Uuid;
use weft_parsers::cci::events::RefusalEvent;
use weft_parsers::cci::pbr::LinkPartner;
use weft_parsers::fabric::Pid;

use super::config::{ConfigError, SwitchConfig};
use super::event::Event;
use super::event_log::EventLogs;
use super::port::{Partner, Port};
use super::ports::Ports;
use super::routing::Routing;
use super::vcs::{Bound, VcsState};
use super::virtual_switches::VirtualSwitches;
use super::work::Work;

pub use forward::{FarRequest, Outgoing};

/// A PBR switch without its data path: its state, and the tables that follow from it.
///
/// Its parts carry out the commands that concern one of them alone. The commands here concern several, or none.
/// Two switches are equal when no command can tell them apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Switch {
    common: Common,
    config: SwitchConfig,
    ports: Ports,
    vcses: VirtualSwitches,
    routing: Routing,
    /// The bind or unbind in progress.
    work: Option<Work>,
    /// Its own domain validation secret.
    secret: Option<Uuid>,
    outgoing: VecDeque<Outgoing>,
    pub(super) logs: EventLogs,
}

impl Switch {
    /// Makes a switch as after power-on: no owner, links down, no PID assigned, no routes, downstream vPPBs unbound.
    /// Then applies the static set-up of its configuration, if any.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn new(config: SwitchConfig) -> Result<Self, ConfigError> {
        let ports = Ports::new(&config.ports)?;
        let vcses = VirtualSwitches::new(&config, &ports)?;
        let routing = Routing::new(&ports, config.groups)?;
        let mut switch = Self {
            common: Common::new(config.identity),
            config,
            ports,
            vcses,
            routing,
            work: None,
            secret: None,
            outgoing: VecDeque::new(),
            logs: EventLogs::default(),
        };
        // The static set-up below checks itself against these tables, so they must exist first.
        switch.refresh();
        if let Some(static_init) = switch.config.static_init.clone() {
            switch.start_static(&static_init)?;
        }
        Ok(switch)
    }

    /// The tables that the dataplane routes by.
    #[must_use]
    pub const fn tables(&self) -> &Tables {
        self.routing.tables()
    }

    /// Counter that changes whenever [`Switch::tables`] changes.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.routing.epoch()
    }

    /// Drains the events that the driver must act on.
    pub fn events(&mut self) -> impl Iterator<Item = Event> {
        self.vcses.events()
    }

    /// Drains the requests to components further out.
    pub fn outgoing(&mut self) -> impl Iterator<Item = Outgoing> {
        self.outgoing.drain(..)
    }

    /// Looks a port up by number.
    #[must_use]
    pub fn port(&self, port: PortId) -> Option<&Port> {
        self.ports.get(port)
    }

    /// Looks a virtual switch up by index.
    #[must_use]
    pub fn vcs(&self, vcs: u8) -> Option<&VcsState> {
        self.vcses.get(vcs)
    }

    /// The configuration it was built from.
    #[must_use]
    pub const fn config(&self) -> &SwitchConfig {
        &self.config
    }

    /// Reports a link that came up or went down. Bridges bound to the port follow, with a surprise link down if it went
    /// down.
    pub fn set_link(&mut self, port: PortId, link: Option<Link>) {
        let Some(state) = self.ports.get_mut(port) else { return };
        state.link = link;
        if link.is_none() {
            // The next partner may be another component: it must announce itself before it counts as anything.
            (state.partner, state.refused) = (Partner::Unknown, None);
            state.ppb.lose_link();
        } else {
            state.ppb.set_link(link);
        }
        self.vcses.touch_port(port);
        for at in self.vcses.bound_to(port) {
            // An LD's link comes up only when the device has reported its LDs: [`Self::set_partner`].
            let is_whole = self.vcses.bound_at(at) == Bound::Port(port);
            let shown = link.filter(|_| is_whole && !self.ports.is_resetting(port));
            self.vcses.show_link(at, shown, true);
        }
        self.refresh();
    }

    /// Records whether the manager holds PERST# of a port asserted.
    pub fn set_perst(&mut self, port: PortId, on: bool) {
        if let Some(state) = self.ports.get_mut(port) {
            state.perst = on;
        }
    }

    /// Reports that the device at a port is being reset (`on`) or has come out of reset. While it is in reset no TLP
    /// passes, and bridges bound to the port see a link down without error, as their software asked for it or was told
    /// otherwise.
    pub fn set_resetting(&mut self, port: PortId, on: bool) {
        let Some(state) = self.ports.get_mut(port) else { return };
        // Callers repeat the current state (`sync_resets` for each port): that must not rebuild tables.
        if core::mem::replace(&mut state.resetting, on) == on {
            return;
        }
        let link = state.link.filter(|_| !on);
        self.vcses.touch_port(port);
        for at in self.vcses.bound_to(port) {
            // The manager alone resets a whole MLD, and that takes down its link, which the LDs' bridges see instead.
            if self.vcses.bound_at(at) == Bound::Port(port) {
                self.vcses.show_link(at, link, false);
            }
            self.vcses.touch_only(at.vcs);
        }
        self.refresh();
    }

    /// Logs the state of a port after a change of its link or partner.
    pub fn log_port(&mut self, now: Instant, port: PortId) {
        if let Some(state) = self.ports.get(port) {
            self.logs.port(now, &state.state(None));
        }
    }

    /// Records the bytes received and sent by a port since the switch started.
    pub fn count_traffic(&mut self, now: Instant, port: PortId, rx: u64, tx: u64) {
        self.ports.count_traffic(now, port, rx, tx);
    }

    /// Logs that `count` accesses at a port were refused by one rule so far.
    pub fn log_refusals(&mut self, now: Instant, port: PortId, rule: &str, count: u64) {
        let pid = self.port(port).map_or(Pid::NONE, Port::pid);
        self.logs.refused(now, &RefusalEvent::new(port.get(), pid.bits(), rule, count));
    }

    /// Port by which static messages to a PID leave; `None` if the PID has no route, or all links of its route are
    /// down.
    #[must_use]
    pub fn static_port(&self, to: Pid) -> Option<PortId> {
        self.routing.static_port(to, self.ports.up())
    }

    /// Records the component at the other end of a port. The partner may announce different values with each message,
    /// so tables are rebuilt only if a value that they contain has changed.
    pub fn set_partner(&mut self, port: PortId, partner: Partner) {
        if let Some(state) = self.ports.get_mut(port) {
            // Exactly the parts of a partner that `edge` reads.
            let held = (state.is_gfd(), state.announced(), state.lds());
            state.partner = partner;
            let (lds, link) = (state.lds(), state.link);
            if held == (state.is_gfd(), state.announced(), lds) {
                return;
            }
            self.vcses.touch_port(port);
            let (_, _, had) = held;
            for at in self.vcses.bound_to(port).into_iter().filter(|_| lds != had) {
                if let Bound::Ld(_, ld) = self.vcses.bound_at(at) {
                    // The device reports its LDs after link up: only now is there a device behind the LD's vPPB.
                    self.vcses.show_link(at, link.filter(|_| ld < lds.into()), true);
                }
            }
            self.refresh();
        }
    }

    /// Records the last rejected announcement at a port; `None` once an announcement is accepted.
    pub fn set_refused(&mut self, port: PortId, told: Option<LinkPartner>) {
        if let Some(state) = self.ports.get_mut(port) {
            state.refused = told;
        }
    }

    pub(super) const fn ports(&self) -> &Ports {
        &self.ports
    }

    pub(super) const fn virtual_switches(&self) -> &VirtualSwitches {
        &self.vcses
    }

    #[cfg(test)]
    pub(super) const fn routing_mut(&mut self) -> &mut Routing {
        &mut self.routing
    }

    /// Changes virtual switches, and rebuilds the tables that follow from them.
    pub(super) fn change<R>(
        &mut self,
        change: impl FnOnce(&mut VirtualSwitches, &Ports) -> R,
    ) -> R {
        let done = change(&mut self.vcses, &self.ports);
        self.refresh();
        done
    }

    /// Rebuilds the tables that changes have made stale.
    pub(super) fn refresh(&mut self) {
        self.routing.rebuild(self.vcses.take_stale(), &self.ports, &self.vcses);
    }
}
