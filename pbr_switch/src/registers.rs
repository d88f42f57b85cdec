//! Registers of a virtual switch as its host sees them: configuration space of the bridges and of the GAE, the GAE's
//! mailbox behind BAR0, and component registers of bridges.
//!
//! The dataplane (`pbr::Vcs::route`) finds the function of an access; this file carries it out. The effects of a write
//! show in the tables and events afterwards. Commits of component registers are judged in `cache_routes`.
//!
//! Source: CXL 3.1 sections 7.2.3, 7.7.2.6, 7.7.6.1, 8.2.8.4; PCIe 6.0 section 2.2.4.

use std::sync::Arc;

use weft_cxl::cci::{Session, serve};
use weft_cxl::pci::component::{self, Component};
use weft_cxl::pci::mailbox::Command;
use weft_cxl::pci::{ByteEnables, Msi, Reg, regs};
use weft_cxl::vdm::rtupdate::CacheIds;
use weft_dataplane::pbr::{EdgePort, Fast, Function, Ldst};
use weft_dataplane::time::Instant;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::{Header, Opcode};
use weft_parsers::fabric::{Bdf, Hpa, Pid};

use super::switch::{Event, Switch};
use super::vcs::function_of;

/// Number of the vPPB in commands; `None` for the GAE.
const fn vppb_of(function: Function) -> Option<u8> {
    match function {
        Function::Upstream => Some(0),
        Function::Below(below) => Some(below + 1), // at most 254 are below
        Function::Gae => None,
    }
}

impl Switch {
    /// Reads a register of a function; `None` if there is no such function.
    #[must_use]
    pub fn config_read(&self, vcs: u8, function: Function, reg: Reg) -> Option<u32> {
        let state = self.vcs(vcs)?;
        match vppb_of(function) {
            Some(vppb) => Some(state.vppbs.get(usize::from(vppb))?.bridge.read(reg)),
            None => Some(state.gae.as_ref()?.function.read(reg)),
        }
    }

    //= PCIe 6.0 section 2.2.6.2: in flit mode a function learns its segment from configuration writes of type 0
    /// Records the PCIe segment in a host's configuration writes. Edge ports insert it into requests that leave its
    /// hierarchy.
    pub fn capture_segment(&mut self, vcs: u8, segment: u8) {
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        if state.segment != segment {
            state.segment = segment;
            self.touch(vcs);
            self.refresh();
        }
    }

    /// Writes a register of a function; false if there is no such function.
    pub fn config_write(
        &mut self,
        vcs: u8,
        function: Function,
        reg: Reg,
        value: u32,
        enables: ByteEnables,
    ) -> bool {
        let written = match vppb_of(function) {
            Some(vppb) => self.write_bridge(Vppb { vcs, vppb }, reg, value, enables),
            None => self.write_gae(vcs, reg, value, enables),
        };
        self.refresh();
        written.is_some()
    }

    fn write_bridge(&mut self, at: Vppb, reg: Reg, value: u32, enables: ByteEnables) -> Option<()> {
        let effects = self.vppb_mut(at)?.bridge.write(reg, value, enables);
        // The registers that route TLPs, BAR 0 included; a write of any other leaves the tables as they are.
        if effects.buses || effects.windows || effects.master {
            self.touch(at.vcs);
        }
        self.note(at, effects);
        // `reset` reports the change of Secondary Bus Reset, so a bit that stays set resets once.
        if at.vppb == 0 && effects.reset == Some(true) {
            self.reset_below(at.vcs);
        }
        Some(())
    }

    /// Resets the bus below the upstream vPPB: downstream bridges get their power-on registers and keep their bindings.
    fn reset_below(&mut self, vcs: u8) {
        let state = self.vcses.get_mut(usize::from(vcs));
        for vppb in state.into_iter().flat_map(|state| state.vppbs.iter_mut().skip(1)) {
            vppb.reset();
        }
        self.withdraw_cache_ids(vcs);
        self.touch(vcs);
    }

    /// Gives a GAE without a bridge the bus number that configuration writes name (PCIe 6.0, section 2.2.6.2).
    pub fn capture_bus(&mut self, vcs: u8, bus: u8) {
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        if !state.gae_is_alone() {
            return;
        }
        if let Some(upstream) = state.vppbs.first_mut() {
            // Byte 0 of the register is the primary bus, from which `id_of` takes the GAE's id.
            let enables = ByteEnables::from_low_bits(1);
            upstream.bridge.write(Reg::at(regs::BUSES), bus.into(), enables);
        }
        self.touch(vcs);
        self.refresh();
    }

    fn write_gae(&mut self, vcs: u8, reg: Reg, value: u32, enables: ByteEnables) -> Option<()> {
        let gae = self.vcses.get_mut(usize::from(vcs))?.gae.as_mut()?;
        let effects = gae.function.write(reg, value, enables);
        if effects.reset {
            // The mailbox is behind the function's BAR: a reset ends a command that its host has begun there.
            gae.mailbox.reset();
        }
        if effects.decode || effects.reset {
            self.touch(vcs);
        }
        Some(())
    }

    /// Resets all registers of a virtual switch, after a reset from above or the loss of the host. The next host does
    /// not get the domain validation secret, the segment and the `CacheID`s of the last one. Settings of the FM and
    /// bindings stay.
    pub fn reset_vcs(&mut self, vcs: u8) {
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        (state.secret, state.segment) = (None, 0);
        state.cache_ids = CacheIds::default();
        state.cache_routes.reset(); // the host's edge forgets by itself
        if let Some(upstream) = state.vppbs.first_mut() {
            upstream.reset();
        }
        if let Some(gae) = &mut state.gae {
            gae.function.reset();
            gae.mailbox.reset();
        }
        self.reset_below(vcs);
        self.refresh();
    }

    /// Also clears the tables that the host has set, when a virtual switch loses its host or gets another: no device
    /// keeps a route through them.
    pub(super) fn forget_host(&mut self, vcs: u8) {
        let sizes = self.config.sizes;
        let made = (Fast::new(sizes.fast, sizes.fast_idt), Ldst::new(sizes.ldst, sizes.ldst_idt));
        // Sizes were accepted when the switch was made, so both tables can be made again.
        if let (Ok(fast), Ok(ldst)) = made
            && let Some(state) = self.vcses.get_mut(usize::from(vcs))
        {
            for vppb in &mut state.vppbs {
                let role = vppb.tables.role;
                vppb.tables = EdgePort::new(role, Pid::NONE, fast.clone(), ldst.clone());
                // Rights are the FM's and stay; the new tables must be checked against them like the old ones.
                vppb.tables.set_access(Arc::clone(&state.access));
                vppb.prefixes = None;
            }
        }
        self.reset_vcs(vcs);
    }

    /// Offset of an address in the GAE's BAR0; `None` if the address is not the GAE's.
    fn gae_offset(&self, vcs: u8, address: Hpa) -> Option<u64> {
        let (bar, offset) = self.vcs(vcs)?.gae.as_ref()?.function.bar_of(address)?;
        (bar == 0).then_some(offset)
    }

    /// The bridge whose component registers contain the whole access, and the offset of its first byte.
    fn component_at(
        &mut self,
        vcs: u8,
        function: Function,
        address: Hpa,
        len: usize,
    ) -> Option<(&mut Component, u64)> {
        let vppb = self.vppb_mut(Vppb { vcs, vppb: vppb_of(function)? })?;
        let window = vppb.registers()?;
        let offset = address.0.checked_sub(window.base)?;
        // An access that runs off the end is not split: none of it is this bridge's.
        let fits = offset <= component::LEN && len as u64 <= component::LEN - offset;
        vppb.component.as_mut().filter(|_| fits).map(|component| (component, offset))
    }

    /// Reads registers of a function in memory; false if the address is not one of them.
    pub fn register_read(
        &mut self,
        vcs: u8,
        function: Function,
        address: Hpa,
        bytes: &mut [u8],
    ) -> bool {
        if function == Function::Gae {
            return self.gae_read(vcs, address, bytes);
        }
        let found = self.component_at(vcs, function, address, bytes.len());
        found.map(|(component, offset)| component.read(offset, bytes)).is_some()
    }

    /// Writes registers of a function in memory; false if the address is not one of them. A commit that the write
    /// requests has been judged, or has begun, on return.
    pub fn register_write(
        &mut self,
        now: Instant,
        vcs: u8,
        function: Function,
        address: Hpa,
        bytes: &[u8],
    ) -> bool {
        if function == Function::Gae {
            return self.gae_write(now, vcs, address, bytes);
        }
        let Some((component, offset)) = self.component_at(vcs, function, address, bytes.len())
        else {
            return false;
        };
        // The write may have set a Commit bit; without one the call below finds nothing to do.
        component.write(offset, bytes);
        self.commit_cache_ids(vcs);
        true
    }

    /// Reads registers of the GAE in memory; false if the address is not the GAE's.
    pub fn gae_read(&self, vcs: u8, address: Hpa, bytes: &mut [u8]) -> bool {
        let Some(offset) = self.gae_offset(vcs, address) else { return false };
        if let Some(gae) = self.vcs(vcs).and_then(|state| state.gae.as_ref()) {
            gae.mailbox.read(offset, bytes);
        }
        true
    }

    /// Writes registers of the GAE in memory; false if the address is not the GAE's. A command whose doorbell is rung
    /// has been carried out on return.
    pub fn gae_write(&mut self, now: Instant, vcs: u8, address: Hpa, bytes: &[u8]) -> bool {
        let Some(offset) = self.gae_offset(vcs, address) else { return false };
        let Some(gae) = self.gae_mut(vcs) else { return false };
        let effects = gae.mailbox.write(offset, bytes);
        // One interrupt for both causes: the register write itself, and the end of the command it rang for.
        let mut interrupt = effects.interrupt;
        if let Some(command) = effects.command {
            interrupt |= self.mailbox_command(now, vcs, &command);
        }
        if interrupt {
            self.events.push_back(Event::GaeInterrupt { vcs });
        }
        true
    }

    fn gae_mut(&mut self, vcs: u8) -> Option<&mut super::vcs::GaeState> {
        self.vcses.get_mut(usize::from(vcs))?.gae.as_mut()
    }

    /// Carries out a command of the mailbox for its host; true if an interrupt must be sent.
    fn mailbox_command(&mut self, now: Instant, vcs: u8, command: &Command) -> bool {
        // `serve` takes whole messages, so that a host's command passes the same checks as a manager's.
        let mut message = vec![0; weft_parsers::cci::header::LEN];
        let header = Header::request(Opcode(command.opcode), 0);
        let written = header.emit(command.payload.len(), &mut message);
        debug_assert!(written.is_some(), "a mailbox is smaller than a payload may be");
        message.extend_from_slice(&command.payload);
        let mut out = Vec::new();
        serve(self, now, Session::Host { vcs }, &message, &mut out);
        let Some(gae) = self.gae_mut(vcs) else { return false };
        match Header::parse(&out) {
            Ok((header, payload)) => {
                gae.mailbox.complete(header.return_code.bits(), header.vendor_status, payload)
            }
            // Commands of hosts are all answered at once; a pending or ignored one would leave the doorbell set for
            // ever.
            Err(_) => gae.mailbox.complete(weft_cxl::pci::mailbox::code::INTERNAL, 0, &[]),
        }
    }

    /// Routing id of a function of a virtual switch, in its host's numbering.
    #[must_use]
    pub fn id_of(&self, vcs: u8, function: Function) -> Option<Bdf> {
        let state = self.vcs(vcs)?;
        let upstream = state.vppbs.first()?.bridge.buses();
        Some(match function {
            Function::Upstream => Bdf::new(upstream.primary, 0, 0),
            Function::Gae => Bdf::new(upstream.primary, 0, state.gae_function()),
            Function::Below(below) => {
                let [device, number] = [function_of(below + 1) >> 3, function_of(below + 1) & 7];
                Bdf::new(upstream.secondary, device, number)
            }
        })
    }

    /// Address and data of a function's interrupt; `None` while it may not send one.
    #[must_use]
    pub fn msi_of(&self, vcs: u8, function: Function) -> Option<Msi> {
        let state = self.vcs(vcs)?;
        match vppb_of(function) {
            Some(vppb) => state.vppbs.get(usize::from(vppb))?.bridge.msi(),
            None => state.gae.as_ref()?.function.msi(),
        }
    }
}
