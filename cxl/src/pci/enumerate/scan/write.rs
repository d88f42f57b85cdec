//! Writes the assigned bus numbers, addresses and windows of a function, and its enables.
//!
//! Source: PCI-to-PCI Bridge 1.2 §3.2.5; PCIe 6.0 §6.7, §7.5.

use weft_parsers::fabric::Bdf;

use super::Scanner;
use crate::pci::bridge::{Buses, Window, Windows};
use crate::pci::enumerate::wire::Done;
use crate::pci::function::BarKind;
use crate::pci::regs::{self, command, express, msi};
use crate::pci::space::{high32, low32};
use crate::pci::tree::{Below, Node, ProblemKind};

impl Scanner {
    /// Writes addresses and windows, and enables the function.
    pub(super) fn apply(&mut self, node: &Node) -> Done<()> {
        // A BAR without address must not decode the 0 in it: its enable stays off unless another BAR needs it.
        let mut enable = command::MASTER;
        for bar in &node.bars {
            let at = regs::BAR0 + 4 * u16::from(bar.index);
            let address = bar.address.unwrap_or(0);
            self.wire.write(node.bdf, at, low32(address))?;
            if matches!(bar.kind, BarKind::Mem64 { .. }) {
                self.wire.write(node.bdf, at + 4, high32(address))?;
            }
            enable |= match (bar.address, bar.kind) {
                (None, _) => 0,
                (_, BarKind::Io) => command::IO,
                _ => command::MEM,
            };
        }
        if let Some(below) = &node.below {
            self.windows(node.bdf, below)?;
            // Enables of a bridge gate its windows and its component registers; SERR lets error messages pass up.
            enable |= command::IO | command::MEM | command::SERR;
        }
        self.wire.write16(node.bdf, regs::COMMAND, enable)?;
        self.report_errors(node)?;
        // A bridge gets its MSI when everything below is known (`Job::EnableSlot`).
        if node.below.is_none() {
            self.enable_msi(node)?;
        }
        self.switch_on_ln(node)
    }

    fn windows(&mut self, bdf: Bdf, below: &Below) -> Done<()> {
        let Windows { io, mem, pref } = below.windows;
        // A window with its base above its limit is closed.
        let closed = |step: u64| Window { base: 0xFFF0_0000 & !(step - 1), limit: 0 };
        let io = io.unwrap_or(Window { base: 0xF000, limit: 0 });
        let mem = mem.unwrap_or_else(|| closed(0x10_0000));
        let pref = pref.unwrap_or_else(|| closed(0x10_0000));
        let halves =
            |window: Window| low32(window.base) >> 16 & 0xFFF0 | low32(window.limit) & 0xFFF0_0000;
        let io_low = low32(io.base) >> 8 & 0xF0 | low32(io.limit) & 0xF000;
        let io_high = low32(io.base) >> 16 | low32(io.limit) & 0xFFFF_0000;
        let [a, b, ..] = io_low.to_le_bytes();
        // 16 bits only: the upper half is secondary status, whose errors a 1 would clear.
        self.wire.write16(bdf, regs::IO_WINDOW, u16::from_le_bytes([a, b]))?;
        let mut kept = (self.wire.read(bdf, regs::IO_WINDOW)? ^ io_low) & 0xF0F0 == 0;
        let mut writes = vec![
            (regs::IO_UPPER, io_high, u32::MAX),
            (regs::MEM_WINDOW, halves(mem), 0xFFF0_FFF0),
            (regs::PREF_WINDOW, halves(pref), 0xFFF0_FFF0),
        ];
        // Of a 32-bit window the upper halves are read-only 0.
        if below.pref64 {
            writes.push((regs::PREF_UPPER, high32(pref.base), u32::MAX));
            writes.push((regs::PREF_UPPER + 4, high32(pref.limit), u32::MAX));
        }
        for (at, value, mask) in writes {
            self.wire.write(bdf, at, value)?;
            // Read back, as a broken bridge would send requests of its windows elsewhere.
            kept &= (self.wire.read(bdf, at)? ^ value) & mask == 0;
        }
        if !kept {
            self.problem(bdf, ProblemKind::Windows);
        }
        Ok(())
    }

    /// Enables error reporting of a function.
    fn report_errors(&mut self, node: &Node) -> Done<()> {
        let Some((_, at)) = node.express else { return Ok(()) };
        let at = at + express::DEV_CTL;
        let all = express::DEV_CTL_CORRECTABLE
            | express::DEV_CTL_NON_FATAL
            | express::DEV_CTL_FATAL
            | express::DEV_CTL_UNSUPPORTED;
        let control = self.wire.read16(node.bdf, at)?;
        self.wire.write16(node.bdf, at, control | all)
    }

    /// Sets a function's MSI up with its BDF as data; false if it has none, or the host takes none.
    fn enable_msi(&mut self, node: &Node) -> Done<bool> {
        let (Some(msi), Some(address)) = (node.msi, self.host.msi) else { return Ok(false) };
        self.wire.write(node.bdf, msi + msi::ADDRESS, low32(address))?;
        self.wire.write(node.bdf, msi + msi::ADDRESS + 4, high32(address))?;
        self.wire.write16(node.bdf, msi + msi::DATA, node.bdf.bits())?;
        // Enabled last: address and data are complete when the first message may be sent.
        self.wire.write16(node.bdf, msi + msi::CONTROL, msi::CONTROL_ENABLE)?;
        Ok(true)
    }

    /// Enables interrupts of a slot, after the MSI that carries them.
    pub(super) fn enable_slot_interrupts(&mut self, node: &Node) -> Done<()> {
        let slot = node.below.as_ref().and_then(|below| below.slot);
        let (Some(_), Some((_, at))) = (slot, node.express) else { return Ok(()) };
        if !self.enable_msi(node)? {
            return Ok(());
        }
        let events =
            express::SLOT_CTL_PRESENCE | express::SLOT_CTL_LINK | express::SLOT_CTL_INTERRUPT;
        self.wire.write16(node.bdf, at + express::SLOT_CTL, events)
    }

    pub(super) fn write_buses(&mut self, bdf: Bdf, buses: Buses) -> Done<()> {
        let Buses { primary, secondary, subordinate } = buses;
        let value = u32::from_le_bytes([primary, secondary, subordinate, 0]);
        self.wire.write(bdf, regs::BUSES, value)
    }
}
