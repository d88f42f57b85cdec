//! The slot behind a port: presence, link changes and surprise removal, as software sees them.
//!
//! The owner reports events by [`Bridge::set_present`], [`Bridge::set_link`] and [`Bridge::lose_link`]; each
//! returns effects, with an interrupt if software has enabled one.
//!
//! Source: PCIe 6.0 §6.7.3 (events), §7.5.3.9 to 11 (registers), §3.2.1 (surprise down); CXL 3.1 section 7.7.6.1 (a
//! link lost within the fabric is a surprise link down at the vPPB).

use super::{Bridge, BridgeEffects};
use crate::pci::aer::Uncorrectable;
use crate::pci::express::{Express, Link};
use crate::pci::regs::express as r;
use crate::pci::space::{Space, Written};

/// Events in Slot Status, cleared by a 1.
const EVENTS: u16 = r::SLOT_STA_PRESENCE | r::SLOT_STA_COMPLETED | r::SLOT_STA_LINK;

/// A slot whose contents may change while the host runs (hot plug).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotSpec {
    /// Physical slot number, 13 bits.
    pub number: u16,
    /// Software is told when a slot command completes; else no command takes time.
    pub completes: bool,
    /// Software can switch the slot's power.
    pub power: bool,
    /// Removal without notice is allowed, and then no error.
    pub surprise: bool,
}

impl SlotSpec {
    pub(super) fn emit(self, space: &mut Space, express: Express) {
        let cap = express.reg(r::CAP);
        space.set16(cap, space.get16(cap) | r::CAP_SLOT);
        let when = |on: bool, bit: u32| if on { bit } else { 0 };
        let bits = r::SLOT_CAP_HOT_PLUG
            | when(self.power, r::SLOT_CAP_POWER)
            | when(self.surprise, r::SLOT_CAP_SURPRISE)
            | when(!self.completes, r::SLOT_CAP_NO_COMPLETED);
        space.set32(express.reg(r::SLOT_CAP), bits | u32::from(self.number) << 19);
        // Only offered features get writable controls, so that software finds the others hardwired to 0.
        let control = r::SLOT_CTL_PRESENCE
            | r::SLOT_CTL_INTERRUPT
            | r::SLOT_CTL_LINK
            | if self.completes { r::SLOT_CTL_COMPLETED } else { 0 }
            | if self.power { r::SLOT_CTL_POWER_OFF } else { 0 };
        space.allow16(express.reg(r::SLOT_CTL), control);
        space.clear_by_one16(express.reg(r::SLOT_STA), EVENTS);
    }
}

impl Bridge {
    /// Whether the slot is occupied, or something is bound to the port.
    #[must_use]
    pub const fn is_present(&self) -> bool {
        self.present
    }

    /// Records that the slot was filled or emptied.
    pub fn set_present(&mut self, present: bool) -> BridgeEffects {
        let changed = self.present != present;
        self.present = present;
        self.show_presence();
        self.raise(if changed { r::SLOT_STA_PRESENCE } else { 0 })
    }

    /// Records that the link came up, changed, or went down in an orderly way.
    pub fn set_link(&mut self, link: Option<Link>) -> BridgeEffects {
        let changed = self.link.is_some() != link.is_some();
        self.link = link;
        self.express.set_link(&mut self.space, link);
        // A change of speed is no Data Link Layer State Changed event: that one follows DLL Link Active (6.7.3.3).
        self.raise(if changed && self.kind.is_above_link() { r::SLOT_STA_LINK } else { 0 })
    }

    //= CXL 3.1 section 7.7.6.1: loss of any link under a virtual link is a surprise link down
    /// Records the loss of the link. This is also an error (surprise down), unless software had reset or disabled
    /// the link, or the slot allows surprise removal.
    pub fn lose_link(&mut self) -> BridgeEffects {
        let was_up = self.link.is_some();
        let mut effects = self.set_link(None);
        // No surprise down (3.2.1): a slot that allows removal without notice, and a link that software took down.
        let allowed = self.slot.is_some_and(|slot| slot.surprise)
            || self.is_resetting()
            || self.is_link_disabled()
            || !self.kind.is_above_link();
        if was_up && !allowed {
            // As a posted request: nobody answers a link that is gone, so the error is not advisory.
            effects.message = self.report(Uncorrectable::SurpriseDown, true, [0; 4]);
        }
        effects
    }

    /// Copies presence into Slot Status; a port without slot has no such bit.
    pub(super) fn show_presence(&mut self) {
        if self.slot.is_some() {
            let at = self.express.reg(r::SLOT_STA);
            self.space.set_bits16(at, r::SLOT_STA_PRESENT, self.present);
        }
    }

    fn raise(&mut self, events: u16) -> BridgeEffects {
        // Compared before and after: an event that comes while another enabled one is pending sends no second
        // message.
        let wanted = self.wants_interrupt();
        if self.slot.is_some() {
            self.space.set_bits16(self.express.reg(r::SLOT_STA), events, true);
        }
        let interrupt = !wanted && self.wants_interrupt();
        BridgeEffects { interrupt, ..BridgeEffects::default() }
    }

    /// Completes a slot command, which is any write to Slot Control, at once.
    pub(super) fn complete_command(&mut self, written: &Written) {
        let is_command = written.touches(self.express.reg(r::SLOT_CTL), 2);
        // Even a write that changes nothing is a command (6.7.3.2): software waits for its completion.
        if is_command && self.slot.is_some_and(|slot| slot.completes) {
            let at = self.express.reg(r::SLOT_STA);
            self.space.set_bits16(at, r::SLOT_STA_COMPLETED, true);
        }
    }

    //= PCIe 6.0 section 6.7.3.4: a message is sent when the first enabled event comes
    /// Whether an enabled event is pending.
    #[must_use]
    pub fn wants_interrupt(&self) -> bool {
        let control = self.space.get16(self.express.reg(r::SLOT_CTL));
        let events = self.space.get16(self.express.reg(r::SLOT_STA)) & EVENTS;
        let enabled = |enable: u16, event: u16| control & enable != 0 && events & event != 0;
        control & r::SLOT_CTL_INTERRUPT != 0
            && (enabled(r::SLOT_CTL_PRESENCE, r::SLOT_STA_PRESENCE)
                || enabled(r::SLOT_CTL_COMPLETED, r::SLOT_STA_COMPLETED)
                || enabled(r::SLOT_CTL_LINK, r::SLOT_STA_LINK))
    }
}
