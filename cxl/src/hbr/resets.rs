//! Resets at an HBR switch: a reset from above resets all of it, one by a bridge the link below that bridge.
//!
//! Which links are held in reset follows from the upstream link and the bridges; [`ResetOrders`] sends the orders on
//! each downstream link.
//!
//! Source: PCIe 6.0 section 6.6.1 (a switch passes a reset on); docs/spec/wire-formats.md §3.7b.

use weft_parsers::tlp::{LinkReset, ResetWord};

use super::cache::CacheRoutes;
use super::{Event, HbrSwitch, Transit};
use crate::pci::{Bridge, Component, Link};
use crate::vdm::link_reset::Ordered;
use crate::vdm::reset::Reset;

/// A received frame that is routed or resets the switch.
pub(super) enum Came {
    Tlp(Transit),
    /// A reset, or its end, ordered by the upper end of the upstream link.
    Reset(Ordered),
    /// A control message of the other end of a downstream link.
    Control(usize, LinkReset),
}

impl HbrSwitch {
    /// The upper end of the upstream link resets the switch or is gone (`on`), or this is over.
    pub(super) fn reset_from_above(&mut self, on: bool) {
        if let Some(bridge) = self.bridges.first_mut() {
            bridge.reset();
        }
        self.component.reset();
        self.cache_routes = CacheRoutes::default();
        // Requests under way are lost with the reset; a late answer must not go up to the next host.
        self.asked.forget(0);
        self.wires.reset();
        (self.bus, self.segment) = (0, 0);
        self.held = on;
        self.reset_below(on);
        self.renew();
    }

    /// Software begins or ends a reset below a bridge.
    pub(super) fn reset_by_bridge(&mut self, at: usize, on: bool) {
        if at == 0 {
            self.reset_below(on);
        } else {
            self.hold_ports();
        }
        self.renew();
    }

    /// Begins or ends a reset of everything below the upstream bridge.
    fn reset_below(&mut self, on: bool) {
        if on {
            self.bridges.iter_mut().skip(1).for_each(Bridge::reset);
            self.decoders.iter_mut().for_each(Component::reset);
        }
        self.hold_ports();
    }

    /// Holds the downstream links in reset that should be, and releases the others.
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
                // `set_link`, not `lose_link`: a link that software resets goes down without an error.
                effects.push((at, bridge.set_link(None)));
            }
        }
        // Behind the loop, which borrows the bridges.
        for (at, effects) in effects {
            self.asked.forget(at);
            self.react(at, &effects);
        }
    }

    /// Takes a control message of a link's other end: only that of a downstream link's end that has carried out an
    /// order counts.
    pub(super) fn answered(&mut self, at: usize, message: LinkReset) {
        if message.word != ResetWord::Done || at == 0 {
            self.counts.foreign_resets += 1;
            return;
        }
        if self.resets.get_mut(at).is_some_and(|it| it.receive(self.now, message)) {
            self.reset_over(at);
        }
    }

    /// The other end of a link is out of reset, or does not answer resets.
    fn reset_over(&mut self, at: usize) {
        if self.up.get(at).copied().unwrap_or_default()
            && let Some(bridge) = self.bridges.get_mut(at)
        {
            let effects = bridge.set_link(Some(Link::default()));
            self.react(at, &effects);
            self.renew();
        }
    }

    /// Sends reset orders that are due.
    pub(super) fn say_resets(&mut self) {
        let mut over = Vec::new();
        for (at, (end, resets)) in self.ends.iter_mut().zip(&mut self.resets).enumerate() {
            while let Some(order) = resets.poll(self.now) {
                end.outbox().control_partner(order);
            }
            // A device that knows no resets never answers; after the last try its link counts as up again.
            over.extend(resets.take_given_up().then_some(at));
        }
        for at in over {
            self.reset_over(at);
        }
    }
}
