//! A bridge with a type 1 header: root port, or upstream or downstream port (vPPB) of a switch.
//!
//! Built from a [`BridgeSpec`] and driven by reads and writes of registers. A write or a link event returns
//! [`BridgeEffects`] for the owner to act on; switches route by [`Bridge::windows`] and [`Bridge::bus_route`].
//! Windows have a granularity of 4 KiB (I/O) and 1 MiB (memory).
//!
//! Source: PCIe 6.0 §2.2.4, §7.5.1.3; docs/spec/wire-formats.md §3.4; docs/spec/cxl-fabric.md (virtual switch).

pub mod slot;

use weft_parsers::fabric::Bdf;

use super::aer::{Aer, ErrorMessage, Uncorrectable};
use super::component;
use super::cxl::{self, BlockId, RegisterBlock};
use super::doe::Doe;
use super::express::{self, Express, ExpressSpec, Identity, Link, LnSystem, Msi, PortKind};
use super::function::BarKind;
use super::regs::{
    self, aer as aer_regs, bridge_control, command, express as express_regs, status,
};
use super::space::{ByteEnables, Reg, Space, SpaceError, Written};
use crate::cdat::Table;
pub use slot::SlotSpec;

/// Address bits of BAR 0 if that holds component registers.
const COMPONENT_MASK: u32 = !0xFFFF;
const _: () = assert!(component::LEN == 1 << 16, "a BAR of 64 KiB");

/// Specification of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BridgeSpec {
    /// Vendor and device; the class is overwritten by that of a PCI-to-PCI bridge.
    pub identity: Identity,
    /// Root, upstream or downstream port; an endpoint is refused.
    pub kind: PortKind,
    /// Port number in Link Capabilities.
    pub port: u8,
    /// Highest speed and width of the link.
    pub link: Link,
    /// Slot behind the port; root and downstream ports only.
    pub slot: Option<SlotSpec>,
    /// Device serial number; `None` leaves its capability out.
    pub serial: Option<u64>,
    /// The device has more functions than this one.
    pub multi_function: bool,
    /// LN system that a root port offers.
    pub ln: LnSystem,
}

/// Why a bridge cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BridgeError {
    /// The kind is an endpoint, or an upstream port was given a slot.
    #[error(
        "a bridge is a root, upstream or downstream port, and a slot is behind the first or last"
    )]
    Kind,
    /// The capabilities do not fit into the space.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// Addresses from `base` to `limit`, both inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Window {
    /// First address of the window.
    pub base: u64,
    /// Last address of the window.
    pub limit: u64,
}

impl Window {
    /// Whether `address` is in the window.
    #[must_use]
    pub const fn contains(self, address: u64) -> bool {
        self.base <= address && address <= self.limit
    }

    /// The window from `base` to `limit`; `None` if the base is above the limit, which is how software closes a
    /// window.
    fn open(base: u64, limit: u64) -> Option<Self> {
        (base <= limit).then_some(Self { base, limit })
    }
}

/// Address ranges that a bridge forwards downstream; `None` is a closed window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// Window of I/O ports.
    pub io: Option<Window>,
    /// Window of memory below 4 GiB.
    pub mem: Option<Window>,
    /// Window of prefetchable memory, up to 64 bits.
    pub pref: Option<Window>,
}

/// Bus numbers of a bridge, set by software.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Buses {
    /// Bus above the bridge.
    pub primary: u8,
    /// Bus directly below; 0 until software has assigned one.
    pub secondary: u8,
    /// Highest bus number below.
    pub subordinate: u8,
}

/// Position of a bus relative to a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusRoute {
    /// Directly below: a Type 1 configuration request becomes Type 0.
    Secondary,
    /// Further below: forwarded unchanged.
    Below,
    /// Not below the bridge.
    Elsewhere,
}

/// Effects of a configuration write or a link event, for the bridge's owner to act on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each acted on by itself")]
pub struct BridgeEffects {
    /// Bus numbers were changed.
    pub buses: bool,
    /// Windows, the address of component registers, or their enables, changed.
    pub windows: bool,
    /// Bus Master Enable changed: whether requests may pass upstream.
    pub master: bool,
    /// Secondary Bus Reset was set (true) or cleared.
    pub reset: Option<bool>,
    /// Link Disable was set (true) or cleared.
    pub link_disabled: Option<bool>,
    /// Slot power was switched on (true) or off.
    pub power: Option<bool>,
    /// Hot-plug interrupts were enabled (true) or disabled.
    pub hot_plug: Option<bool>,
    /// Send an interrupt to [`Bridge::msi`].
    pub interrupt: bool,
    /// Error message to send to the root.
    pub message: Option<ErrorMessage>,
}

/// The configuration space of a PCIe bridge (header of type 1): root port, upstream or downstream port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    space: Space,
    initial: Space,
    kind: PortKind,
    express: Express,
    aer: Aer,
    msi: u16,
    slot: Option<SlotSpec>,
    doe: Option<Doe>,
    link: Option<Link>,
    present: bool,
}

impl Bridge {
    /// The bridge after power-on: no bus numbers, windows closed by the enables, link down, slot empty.
    ///
    /// # Errors
    /// See [`BridgeError`].
    pub fn new(spec: &BridgeSpec) -> Result<Self, BridgeError> {
        if spec.kind == PortKind::Endpoint || (spec.slot.is_some() && !spec.kind.is_above_link()) {
            return Err(BridgeError::Kind);
        }
        let mut space = Space::new();
        Identity { class: 0x06_04_00, ..spec.identity }.emit(&mut space, 1, spec.multi_function);
        // Secondary latency timer, the fourth byte, does not exist in PCIe and reads 0.
        space.allow32(regs::BUSES, 0x00FF_FFFF);
        // I/O of 32 bits, prefetchable memory of 64 bits.
        space.set16(regs::IO_WINDOW, 0x0101);
        space.allow16(regs::IO_WINDOW, 0xF0F0);
        space.allow32(regs::IO_UPPER, u32::MAX);
        space.clear_by_one16(regs::SECONDARY_STATUS, status::ERRORS);
        space.allow32(regs::MEM_WINDOW, 0xFFF0_FFF0);
        space.set32(regs::PREF_WINDOW, 0x0001_0001);
        space.allow32(regs::PREF_WINDOW, 0xFFF0_FFF0);
        space.allow32(regs::PREF_UPPER, u32::MAX);
        space.allow32(regs::PREF_UPPER + 4, u32::MAX);
        space.allow16(regs::BRIDGE_CONTROL, bridge_control::WRITABLE);
        let express = ExpressSpec {
            kind: spec.kind,
            link: spec.link,
            payload: 2,
            port: spec.port,
            flr: false,
            ln: spec.ln,
        };
        let express = express::add_express(&mut space, &express)?;
        if let Some(slot) = &spec.slot {
            slot.emit(&mut space, express);
        }
        let msi = express::add_msi(&mut space)?;
        let aer = Aer::add(&mut space, spec.kind == PortKind::Root)?;
        if let Some(serial) = spec.serial {
            express::add_serial(&mut space, serial)?;
        }
        // Every reset restores this state.
        let (initial, kind, slot) = (space.clone(), spec.kind, spec.slot);
        let doe = None;
        Ok(Self { space, initial, kind, express, aer, msi, slot, doe, link: None, present: false })
    }

    /// Adds component registers ([`super::component`]) in BAR 0, named by a register locator.
    ///
    /// # Errors
    /// No room is left for the locator.
    pub fn with_component(mut self) -> Result<Self, BridgeError> {
        self.space.set32(regs::BAR0, BarKind::Mem32 { prefetch: false }.bits());
        self.space.allow32(regs::BAR0, COMPONENT_MASK);
        let block = RegisterBlock { bar: 0, id: BlockId::Component as u8, offset: 0 };
        cxl::add_locator(&mut self.space, &[block])?;
        // They belong to the state after power-on.
        self.initial.clone_from(&self.space);
        Ok(self)
    }

    /// Adds a DOE mailbox, by which software reads the CDAT of the bridge's switch: [`Self::set_cdat`].
    ///
    /// # Errors
    /// No room is left for it.
    pub fn with_doe(mut self) -> Result<Self, BridgeError> {
        self.doe = Some(Doe::add(&mut self.space)?);
        self.initial.clone_from(&self.space);
        Ok(self)
    }

    /// Sets the structures of its switch's CDAT; ignored by a bridge without a DOE mailbox.
    pub fn set_cdat(&mut self, structures: Vec<Vec<u8>>) {
        if let Some(doe) = &mut self.doe {
            doe.set_table(structures);
        }
    }

    /// CDAT of its switch; `None` for a bridge without DOE mailbox, or before one was set.
    #[must_use]
    pub fn cdat(&self) -> Option<&Table> {
        self.doe.as_ref().and_then(Doe::table)
    }

    /// Addresses of its component registers; `None` while BAR 0 is unset or being sized, or memory is disabled.
    #[must_use]
    pub fn component_window(&self) -> Option<Window> {
        let on = self.space.get16(regs::COMMAND) & command::MEM != 0;
        // Without component registers BAR 0 is read-only 0.
        let there = !self.space.read_only(Reg::at(regs::BAR0)) != 0;
        let base = self.space.get32(regs::BAR0) & COMPONENT_MASK;
        let placed = base != 0 && base != COMPONENT_MASK;
        let base = u64::from(base);
        (on && there && placed).then_some(Window { base, limit: base + (component::LEN - 1) })
    }

    /// Value of a register as software reads it.
    #[must_use]
    pub fn read(&self, reg: Reg) -> u32 {
        self.space.read(reg)
    }

    /// Applies a write by software.
    pub fn write(&mut self, reg: Reg, value: u32, enables: ByteEnables) -> BridgeEffects {
        let wanted = self.wants_interrupt();
        let written = self.space.write(reg, value, enables);
        if let Some(doe) = &mut self.doe {
            doe.written(&mut self.space, &written);
        }
        self.complete_command(&written);
        let mut effects = self.effects(&written);
        // Enabling an interrupt while its event is pending sends the message, too (6.7.3.4).
        effects.interrupt = !wanted && self.wants_interrupt();
        effects
    }

    fn effects(&self, written: &Written) -> BridgeEffects {
        let changed = written.old != written.new;
        let offset = written.reg.offset();
        let command = written.changed16(regs::COMMAND);
        let windows = [
            regs::BAR0,
            regs::IO_WINDOW,
            regs::MEM_WINDOW,
            regs::PREF_WINDOW,
            regs::PREF_UPPER,
            regs::PREF_UPPER + 4,
            regs::IO_UPPER,
        ];
        let in_window = |at: &u16| *at == offset;
        // Secondary status is the upper half of the I/O window's double word; clearing its errors moves no window.
        let io_status = if offset == regs::IO_WINDOW { 0xFFFF } else { u32::MAX };
        let toggled = |at: u16, bit: u16| {
            let on = self.space.get16(at) & bit != 0;
            (written.changed16(at) & bit != 0).then_some(on)
        };
        let slot_control = self.express.reg(express_regs::SLOT_CTL);
        BridgeEffects {
            buses: offset == regs::BUSES && changed,
            windows: (windows.iter().any(in_window)
                && (written.old ^ written.new) & io_status != 0)
                || command & (command::IO | command::MEM) != 0,
            master: command & command::MASTER != 0,
            reset: toggled(regs::BRIDGE_CONTROL, bridge_control::RESET),
            link_disabled: toggled(
                self.express.reg(express_regs::LINK_CTL),
                express_regs::LINK_CTL_DISABLE,
            ),
            power: toggled(slot_control, express_regs::SLOT_CTL_POWER_OFF).map(|off| !off),
            hot_plug: toggled(slot_control, express_regs::SLOT_CTL_INTERRUPT),
            interrupt: false,
            message: None,
        }
    }

    /// Restores the state after power-on, as by a reset from above; link below and slot contents stay.
    pub fn reset(&mut self) {
        self.space.clone_from(&self.initial);
        if let Some(doe) = &mut self.doe {
            doe.reset();
        }
        self.express.set_link(&mut self.space, self.link);
        self.show_presence();
    }

    /// Bus numbers that software has assigned.
    #[must_use]
    pub fn buses(&self) -> Buses {
        Buses {
            primary: self.space.get8(regs::BUSES),
            secondary: self.space.get8(regs::BUSES + 1),
            subordinate: self.space.get8(regs::BUSES + 2),
        }
    }

    //= PCIe 6.0 section 2.2.4.2: the secondary bus by type 0, buses up to the subordinate unchanged
    /// Position of `bus` relative to this bridge.
    #[must_use]
    pub fn bus_route(&self, bus: u8) -> BusRoute {
        let Buses { secondary, subordinate, .. } = self.buses();
        match bus {
            // After power-on all three numbers are 0, and bus 0 is above the bridge.
            _ if secondary == 0 => BusRoute::Elsewhere,
            _ if bus == secondary => BusRoute::Secondary,
            _ if secondary < bus && bus <= subordinate => BusRoute::Below,
            _ => BusRoute::Elsewhere,
        }
    }

    //= PCIe 6.0 section 2.2.4.1: downstream what base and limit include
    /// Enabled windows at this moment.
    #[must_use]
    pub fn windows(&self) -> Windows {
        let space = &self.space;
        let command = space.get16(regs::COMMAND);
        let io_at = |low: u16, high: u16| {
            u64::from(space.get8(low) & 0xF0) << 8 | u64::from(space.get16(high)) << 16
        };
        let mem_at = |low: u16| u64::from(space.get16(low) & 0xFFF0) << 16;
        let pref_at = |low: u16, high: u16| mem_at(low) | u64::from(space.get32(high)) << 32;
        let io = Window::open(
            io_at(regs::IO_WINDOW, regs::IO_UPPER),
            // Limits have no bits below the granularity: those are taken as ones.
            io_at(regs::IO_WINDOW + 1, regs::IO_UPPER + 2) | 0xFFF,
        );
        let mem = Window::open(mem_at(regs::MEM_WINDOW), mem_at(regs::MEM_WINDOW + 2) | 0xF_FFFF);
        let pref = Window::open(
            pref_at(regs::PREF_WINDOW, regs::PREF_UPPER),
            pref_at(regs::PREF_WINDOW + 2, regs::PREF_UPPER + 4) | 0xF_FFFF,
        );
        let mem_on = command & command::MEM != 0;
        Windows {
            io: io.filter(|_| command & command::IO != 0),
            mem: mem.filter(|_| mem_on),
            pref: pref.filter(|_| mem_on),
        }
    }

    /// Whether requests from below may pass upstream (Bus Master Enable).
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.space.get16(regs::COMMAND) & command::MASTER != 0
    }

    /// Whether software holds the secondary bus in reset.
    #[must_use]
    pub fn is_resetting(&self) -> bool {
        self.space.get16(regs::BRIDGE_CONTROL) & bridge_control::RESET != 0
    }

    /// Whether software has disabled the link.
    #[must_use]
    pub fn is_link_disabled(&self) -> bool {
        let control = self.space.get16(self.express.reg(express_regs::LINK_CTL));
        control & express_regs::LINK_CTL_DISABLE != 0
    }

    /// State of the link; `None` while it is down.
    #[must_use]
    pub const fn link(&self) -> Option<Link> {
        self.link
    }

    /// Kind of port: root, upstream or downstream.
    #[must_use]
    pub const fn kind(&self) -> PortKind {
        self.kind
    }

    /// Address and data of its MSI; `None` while it may not send one.
    #[must_use]
    pub fn msi(&self) -> Option<Msi> {
        express::msi_target(&self.space, self.msi)
    }

    /// Records an error; see [`Aer::report`].
    #[must_use = "the message must be sent"]
    pub fn report(
        &mut self,
        error: Uncorrectable,
        posted: bool,
        header: [u32; 4],
    ) -> Option<ErrorMessage> {
        self.aer.report(&mut self.space, self.express, error, posted, header)
    }

    /// Uncorrectable errors that have been detected and not cleared, by [`Uncorrectable::bit`].
    #[must_use]
    pub fn errors(&self) -> u32 {
        self.aer.status(&self.space)
    }

    /// Records an error message from `source` (root ports only); returns whether to interrupt.
    pub fn receive_error(&mut self, source: Bdf, message: ErrorMessage) -> bool {
        if self.kind != PortKind::Root {
            return false;
        }
        let at = self.aer.at;
        let old = self.space.get32(at + aer_regs::ROOT_STATUS);
        // Bits of Root Error Status (7.8.4.10): ERR_COR received, ERR_FATAL/NONFATAL received, and which of the
        // two.
        let (seen, enable) = match message {
            ErrorMessage::Correctable => (0b000_0001, 0b001),
            ErrorMessage::NonFatal => (0b010_0100, 0b010),
            ErrorMessage::Fatal => (0b100_0100, 0b100),
        };
        let first = old & seen & 0b101 == 0;
        // A second error before software has cleared the first sets the Multiple bit above, and keeps the first
        // source.
        let more = if first { 0 } else { (seen & 0b101) << 1 };
        // First Uncorrectable Fatal: whether the error in Error Source Identification was fatal.
        let fatal_first = if first && message == ErrorMessage::Fatal { 0b1_0000 } else { 0 };
        self.space.set32(at + aer_regs::ROOT_STATUS, old | seen | more | fatal_first);
        if first {
            // Correctable errors have the lower half of Error Source Identification, others the upper.
            let high = if message == ErrorMessage::Correctable { 0 } else { 2 };
            self.space.set16(at + aer_regs::SOURCE + high, source.bits());
        }
        self.space.get32(at + aer_regs::ROOT_COMMAND) & enable != 0
    }

    /// The whole space, for dumps and for registers that this module does not interpret.
    #[must_use]
    pub const fn space(&self) -> &Space {
        &self.space
    }
}

#[cfg(test)]
mod tests;
