//! Registers of a virtual switch as its host sees them: configuration space of the bridges and of the GAE, the GAE's
//! mailbox behind BAR0, and component registers of bridges.
//!
//! The dataplane (`pbr::Vcs::route`) finds the function of an access; this file carries it out. Commits of component
//! registers are judged in `cache_ids`.
//!
//! Source: CXL 3.1 sections 7.2.3, 7.7.2.6, 7.7.6.1, 8.2.8.4; PCIe 6.0 section 2.2.4.

use std::sync::Arc;

use weft_cxl::pci::component;
use weft_cxl::pci::mailbox::MailboxEffects;
use weft_cxl::pci::{BridgeEffects, ByteEnables, Msi, Reg, regs};
use weft_dataplane::pbr::{EdgePort, Fast, Function, Ldst};
use weft_parsers::fabric::{Bdf, Hpa, Pid};

use super::{VcsState, function_of};
use crate::config::Sizes;

/// Number of the vPPB in commands; `None` for the GAE.
const fn vppb_of(function: Function) -> Option<u8> {
    match function {
        Function::Upstream => Some(0),
        Function::Below(below) => Some(below + 1), // at most 254 are below
        Function::Gae => None,
    }
}

/// Consequences of a register write outside of its virtual switch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    /// The bridge that was written, with the effects at it; `None` for the GAE.
    pub bridge: Option<(u8, BridgeEffects)>,
    /// The registers that route TLPs have changed.
    pub reroutes: bool,
}

impl VcsState {
    /// Reads a register of a function; `None` if there is no such function.
    #[must_use]
    pub fn config_read(&self, function: Function, reg: Reg) -> Option<u32> {
        match vppb_of(function) {
            Some(vppb) => Some(self.vppbs.get(usize::from(vppb))?.bridge.read(reg)),
            None => Some(self.gae.as_ref()?.function.read(reg)),
        }
    }

    /// Writes a register of a function; `None` if there is no such function.
    pub(crate) fn config_write(
        &mut self,
        function: Function,
        reg: Reg,
        value: u32,
        enables: ByteEnables,
    ) -> Option<Written> {
        let Some(vppb) = vppb_of(function) else {
            let gae = self.gae.as_mut()?;
            let effects = gae.function.write(reg, value, enables);
            if effects.reset {
                // The mailbox is behind the function's BAR: a reset ends a command that its host has begun there.
                gae.mailbox.reset();
            }
            return Some(Written { bridge: None, reroutes: effects.decode || effects.reset });
        };
        let effects = self.vppbs.get_mut(usize::from(vppb))?.bridge.write(reg, value, enables);
        // The registers that route TLPs, BAR 0 included; a write of any other leaves the tables as they are.
        let reroutes = effects.buses || effects.windows || effects.master;
        Some(Written { bridge: Some((vppb, effects)), reroutes })
    }

    /// Gives a GAE without a bridge the bus number that configuration writes name (PCIe 6.0, section 2.2.6.2); false if
    /// there is a bridge.
    pub(crate) fn capture_bus(&mut self, bus: u8) -> bool {
        if !self.gae_is_alone() {
            return false;
        }
        if let Some(upstream) = self.vppbs.first_mut() {
            // Byte 0 of the register is the primary bus, from which `id_of` takes the GAE's id.
            let enables = ByteEnables::from_low_bits(1);
            upstream.bridge.write(Reg::at(regs::BUSES), bus.into(), enables);
        }
        true
    }

    /// Resets the bus below the upstream vPPB: downstream bridges get their power-on registers and keep their bindings.
    pub(crate) fn reset_below(&mut self) {
        for vppb in self.vppbs.iter_mut().skip(1) {
            vppb.reset();
        }
        self.withdraw_cache_ids();
    }

    /// Resets all registers, after a reset from above or the loss of the host. The next host does not get the domain
    /// validation secret, the segment and the `CacheID`s of the last one. Settings of the FM and bindings stay.
    pub(crate) fn reset(&mut self) {
        (self.secret, self.segment) = (None, 0);
        self.cache_ids.reset(); // the host's edge forgets by itself
        if let Some(upstream) = self.vppbs.first_mut() {
            upstream.reset();
        }
        if let Some(gae) = &mut self.gae {
            gae.function.reset();
            gae.mailbox.reset();
        }
        self.reset_below();
    }

    /// Also clears the tables that the host has set, when a virtual switch loses its host or gets another: no device
    /// keeps a route through them.
    pub(crate) fn forget_host(&mut self, sizes: Sizes) {
        let made = (Fast::new(sizes.fast, sizes.fast_idt), Ldst::new(sizes.ldst, sizes.ldst_idt));
        // Sizes were accepted when the switch was made, so both tables can be made again.
        if let (Ok(fast), Ok(ldst)) = made {
            for vppb in &mut self.vppbs {
                let role = vppb.tables.role;
                vppb.tables = EdgePort::new(role, Pid::NONE, fast.clone(), ldst.clone());
                // Rights are the FM's and stay; the new tables must be checked against them like the old ones.
                vppb.tables.set_access(Arc::clone(&self.access));
                vppb.prefixes = None;
            }
        }
        self.reset();
    }

    /// Offset of an address in the GAE's BAR0; `None` if the address is not the GAE's.
    fn gae_offset(&self, address: Hpa) -> Option<u64> {
        let (bar, offset) = self.gae.as_ref()?.function.bar_of(address)?;
        (bar == 0).then_some(offset)
    }

    /// Number of the bridge whose component registers contain the whole access, and the offset of its first byte.
    fn component_at(&self, function: Function, address: Hpa, len: usize) -> Option<(usize, u64)> {
        let vppb = usize::from(vppb_of(function)?);
        let window = self.vppbs.get(vppb)?.registers()?;
        let offset = address.0.checked_sub(window.base)?;
        // An access that runs off the end is not split: none of it is this bridge's.
        let fits = offset <= component::LEN && len as u64 <= component::LEN - offset;
        fits.then_some((vppb, offset))
    }

    /// Reads registers of a function in memory; false if the address is not one of them.
    pub fn register_read(&self, function: Function, address: Hpa, bytes: &mut [u8]) -> bool {
        if function == Function::Gae {
            return self.gae_read(address, bytes);
        }
        let Some((vppb, offset)) = self.component_at(function, address, bytes.len()) else {
            return false;
        };
        let component = self.vppbs.get(vppb).and_then(|vppb| vppb.component.as_ref());
        component.map(|component| component.read(offset, bytes)).is_some()
    }

    /// Writes component registers of a bridge; false if the address is not one of them.
    pub(crate) fn component_write(
        &mut self,
        function: Function,
        address: Hpa,
        bytes: &[u8],
    ) -> bool {
        let Some((vppb, offset)) = self.component_at(function, address, bytes.len()) else {
            return false;
        };
        let component = self.vppbs.get_mut(vppb).and_then(|vppb| vppb.component.as_mut());
        component.map(|component| component.write(offset, bytes)).is_some()
    }

    /// Reads registers of the GAE in memory; false if the address is not the GAE's.
    pub fn gae_read(&self, address: Hpa, bytes: &mut [u8]) -> bool {
        let (Some(offset), Some(gae)) = (self.gae_offset(address), &self.gae) else { return false };
        gae.mailbox.read(offset, bytes);
        true
    }

    /// Writes registers of the GAE in memory; `None` if the address is not the GAE's.
    pub(crate) fn gae_write(&mut self, address: Hpa, bytes: &[u8]) -> Option<MailboxEffects> {
        let offset = self.gae_offset(address)?;
        Some(self.gae.as_mut()?.mailbox.write(offset, bytes))
    }

    /// Routing id of a function, in its host's numbering.
    #[must_use]
    pub fn id_of(&self, function: Function) -> Option<Bdf> {
        let upstream = self.vppbs.first()?.bridge.buses();
        Some(match function {
            Function::Upstream => Bdf::new(upstream.primary, 0, 0),
            Function::Gae => Bdf::new(upstream.primary, 0, self.gae_function()),
            Function::Below(below) => {
                let [device, number] = [function_of(below + 1) >> 3, function_of(below + 1) & 7];
                Bdf::new(upstream.secondary, device, number)
            }
        })
    }

    /// Address and data of a function's interrupt; `None` while it may not send one.
    #[must_use]
    pub fn msi_of(&self, function: Function) -> Option<Msi> {
        match vppb_of(function) {
            Some(vppb) => self.vppbs.get(usize::from(vppb))?.bridge.msi(),
            None => self.gae.as_ref()?.function.msi(),
        }
    }
}
