//! Resets at an HBR switch: from above of all of it, by a bridge of what is below that one.
//! What holds follows from the link upstream and the bridges; [`ResetOrders`] tell each link downstream.
//!
//! Units: ports.
//! Source: PCIe 6.0 section 6.6.1 (a switch passes a reset on); docs/spec/wire-formats.md §3.7b.

use weft_parsers::tlp::{LinkReset, ResetWord};

use super::cache::CacheRoutes;
use super::{Event, HbrSwitch, Transit};
use crate::pci::{Bridge, Component, Link};
use crate::vdm::link_reset::Ordered;
use crate::vdm::reset::Reset;

/// What came by one of its links.
pub(super) enum Came {
    Tlp(Transit),
    /// The upper end of the link upstream resets it.
    Reset(Ordered),
    /// What is at the other end of a link downstream says of it.
    Control(usize, LinkReset),
}

impl HbrSwitch {
    /// The upper end of the link upstream resets the switch, or is gone; or that is over.
    pub(super) fn reset_from_above(&mut self, on: bool) {
        if let Some(bridge) = self.bridges.first_mut() {
            bridge.reset();
        }
        self.component.reset();
        self.cache_routes = CacheRoutes::default();
        self.asked.forget(0);
        self.wires.reset();
        (self.bus, self.segment) = (0, 0);
        self.held = on;
        self.reset_below(on);
        self.renew();
    }

    /// Software resets what is below a bridge, or ends that.
    pub(super) fn reset_by_bridge(&mut self, at: usize, on: bool) {
        if at == 0 {
            self.reset_below(on);
        } else {
            self.hold_ports();
        }
        self.renew();
    }

    /// All below the upstream bridge is reset, or no more.
    fn reset_below(&mut self, on: bool) {
        if on {
            self.bridges.iter_mut().skip(1).for_each(Bridge::reset);
            self.decoders.iter_mut().for_each(Component::reset);
        }
        self.hold_ports();
    }

    /// Holds the links downstream in reset that are to be, and lets the others go.
    fn hold_ports(&mut self) {
        let all = self.held || self.bridges.first().is_some_and(Bridge::is_resetting);
        let mut effects = Vec::new();
        for (at, (bridge, resets)) in self.bridges.iter_mut().zip(&mut self.resets).enumerate() {
            let Some(port) = at.checked_sub(1) else { continue };
            let on = all || bridge.is_resetting();
            if resets.is_holding() == on {
                continue;
            }
            resets.hold(self.now, on.then_some(Reset::Hot));
            self.events.push(Event::Reset { port, on });
            if on {
                effects.push((at, bridge.set_link(None)));
            }
        }
        for (at, effects) in effects {
            self.asked.forget(at);
            self.react(at, &effects);
        }
    }

    /// What is at the other end of a link says of it: only that it has carried out an order means anything.
    pub(super) fn answered(&mut self, at: usize, message: LinkReset) {
        if message.word != ResetWord::Done || at == 0 {
            self.counts.foreign_resets += 1;
            return;
        }
        if self.resets.get_mut(at).is_some_and(|it| it.receive(self.now, message)) {
            self.reset_over(at);
        }
    }

    /// What is at the other end of a link is out of reset, or knows none.
    fn reset_over(&mut self, at: usize) {
        if self.up.get(at).copied().unwrap_or_default()
            && let Some(bridge) = self.bridges.get_mut(at)
        {
            let effects = bridge.set_link(Some(Link::default()));
            self.react(at, &effects);
            self.renew();
        }
    }

    /// Sends the orders that are due.
    pub(super) fn say_resets(&mut self) {
        let mut over = Vec::new();
        for (at, (end, resets)) in self.ends.iter_mut().zip(&mut self.resets).enumerate() {
            while let Some(order) = resets.poll(self.now) {
                end.outbox().control_partner(order);
            }
            over.extend(resets.take_given_up().then_some(at));
        }
        for at in over {
            self.reset_over(at);
        }
    }
}
