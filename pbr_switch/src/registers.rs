//! What a host reads and writes of its virtual switch: configuration space of the bridges and of the GAE, and the
//! GAE's mailbox behind BAR0; component registers of bridges.
//!
//! Accesses as `pbr::Vcs::route` has found their function in, values out; what a write does is in the tables
//! and the events afterwards. Component registers: `cache_routes`.
//!
//! Units: bytes; registers of 4.
//! Source: CXL 3.1 sections 7.7.2.6, 7.7.6.1; PCIe 6.0 section 2.2.4; CXL 3.1 sections 7.2.3, 8.2.8.4.

use std::sync::Arc;

use weft_cxl::cci::{Session, serve};
use weft_cxl::pci::component::{self, Component};
use weft_cxl::pci::mailbox::Command;
use weft_cxl::pci::{ByteEnables, Msi, Reg, regs};
use weft_cxl::vdm::rtupdate::CacheIds;
use weft_dataplane::pbr::{EdgePort, Fast, Function, Ldst};
use weft_dataplane::time::Instant;
use weft_parsers::cci::{Header, Opcode};
use weft_parsers::fabric::{Bdf, Hpa, Pid};

use super::switch::{Event, Switch};
use super::vcs::function_of;

/// Number of the vPPB as commands have it; `None` for the GAE.
const fn vppb_of(function: Function) -> Option<u8> {
    match function {
        Function::Upstream => Some(0),
        Function::Below(below) => Some(below + 1), // at most 254 are below
        Function::Gae => None,
    }
}

impl Switch {
    /// Reads a register of a function; `None` where there is no such function.
    #[must_use]
    pub fn config_read(&self, vcs: u8, function: Function, reg: Reg) -> Option<u32> {
        let state = self.vcs(vcs)?;
        match vppb_of(function) {
            Some(vppb) => Some(state.vppbs.get(usize::from(vppb))?.bridge.read(reg)),
            None => Some(state.gae.as_ref()?.function.read(reg)),
        }
    }

    //= PCIe 6.0 section 2.2.6.2: in flit mode a function learns its segment from configuration writes of type 0
    /// Notes the PCIe segment that a host's configuration writes name: edge ports put it into requests that leave its
    /// hierarchy.
    pub fn capture_segment(&mut self, vcs: u8, segment: u8) {
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        if state.segment != segment {
            state.segment = segment;
            self.touch(vcs);
            self.refresh();
        }
    }

    /// Writes a register of a function; whether there is such a function.
    pub fn config_write(
        &mut self,
        vcs: u8,
        function: Function,
        reg: Reg,
        value: u32,
        enables: ByteEnables,
    ) -> bool {
        let written = match vppb_of(function) {
            Some(vppb) => self.write_bridge(vcs, vppb, reg, value, enables),
            None => self.write_gae(vcs, reg, value, enables),
        };
        self.refresh();
        written.is_some()
    }

    fn write_bridge(
        &mut self,
        vcs: u8,
        vppb: u8,
        reg: Reg,
        value: u32,
        enables: ByteEnables,
    ) -> Option<()> {
        let effects = self.vppb_mut(vcs, vppb)?.bridge.write(reg, value, enables);
        if effects.buses || effects.windows || effects.master {
            self.touch(vcs);
        }
        self.note(vcs, vppb, effects);
        if vppb == 0 && effects.reset == Some(true) {
            self.reset_below(vcs);
        }
        Some(())
    }

    /// Reset of the bus below the upstream vPPB: the registers of the downstream ones are as after power-on, and what
    /// they are bound to stays.
    fn reset_below(&mut self, vcs: u8) {
        let state = self.vcses.get_mut(usize::from(vcs));
        for vppb in state.into_iter().flat_map(|state| state.vppbs.iter_mut().skip(1)) {
            vppb.reset();
        }
        self.withdraw_cache_ids(vcs);
        self.touch(vcs);
    }

    /// A GAE without a bridge beside it has the bus that configuration writes name: PCIe 6.0, section 2.2.6.2.
    pub fn capture_bus(&mut self, vcs: u8, bus: u8) {
        let Some(state) = self.vcses.get_mut(usize::from(vcs)) else { return };
        if !state.gae_is_alone() {
            return;
        }
        if let Some(upstream) = state.vppbs.first_mut() {
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
            gae.mailbox.reset();
        }
        if effects.decode || effects.reset {
            self.touch(vcs);
        }
        Some(())
    }

    /// Reset from above, or loss of the host: all registers of a virtual switch are as after power-on, and the next host
    /// has neither the domain validation secret nor the segment nor the `CacheID`s of the one before. What the FM has set stays, and what is
    /// bound stays bound.
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

    /// The host of a virtual switch is another one, or none: besides the registers, the tables that it has set are as after
    /// power-on, so that no device has a way by them any more.
    pub(super) fn forget_host(&mut self, vcs: u8) {
        let sizes = self.config.sizes;
        let made = (Fast::new(sizes.fast, sizes.fast_idt), Ldst::new(sizes.ldst, sizes.ldst_idt));
        if let (Ok(fast), Ok(ldst)) = made
            && let Some(state) = self.vcses.get_mut(usize::from(vcs))
        {
            for vppb in &mut state.vppbs {
                let role = vppb.tables.role;
                vppb.tables = EdgePort::new(role, Pid::NONE, fast.clone(), ldst.clone());
                vppb.tables.set_access(Arc::clone(&state.access));
                vppb.prefixes = None;
            }
        }
        self.reset_vcs(vcs);
    }

    /// Offset in the GAE's BAR0 of an address; `None` where it is not the GAE's.
    fn gae_offset(&self, vcs: u8, address: Hpa) -> Option<u64> {
        let (bar, offset) = self.vcs(vcs)?.gae.as_ref()?.function.bar_of(address)?;
        (bar == 0).then_some(offset)
    }

    /// The bridge whose component registers have all of these addresses, and where in them they begin.
    fn component_at(
        &mut self,
        vcs: u8,
        function: Function,
        address: Hpa,
        len: usize,
    ) -> Option<(&mut Component, u64)> {
        let vppb = self.vppb_mut(vcs, vppb_of(function)?)?;
        let window = vppb.registers()?;
        let offset = address.0.checked_sub(window.base)?;
        let fits = offset <= component::LEN && len as u64 <= component::LEN - offset;
        vppb.component.as_mut().filter(|_| fits).map(|component| (component, offset))
    }

    /// Reads registers of a function in memory; whether the address is its.
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

    /// Writes registers of a function in memory; whether the address is its. What it leads to has been done, or has begun,
    /// when this returns.
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
        component.write(offset, bytes);
        self.commit_cache_ids(vcs);
        true
    }

    /// Reads registers of the GAE in memory; whether the address is its.
    pub fn gae_read(&self, vcs: u8, address: Hpa, bytes: &mut [u8]) -> bool {
        let Some(offset) = self.gae_offset(vcs, address) else { return false };
        if let Some(gae) = self.vcs(vcs).and_then(|state| state.gae.as_ref()) {
            gae.mailbox.read(offset, bytes);
        }
        true
    }

    /// Writes registers of the GAE in memory; whether the address is its. A command that is rung for has been carried
    /// out when this returns.
    pub fn gae_write(&mut self, now: Instant, vcs: u8, address: Hpa, bytes: &[u8]) -> bool {
        let Some(offset) = self.gae_offset(vcs, address) else { return false };
        let Some(gae) = self.gae_mut(vcs) else { return false };
        let effects = gae.mailbox.write(offset, bytes);
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

    /// Carries out a command of the mailbox for its host; whether an interrupt is to be sent.
    fn mailbox_command(&mut self, now: Instant, vcs: u8, command: &Command) -> bool {
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
            // No command of a host is answered later or not at all.
            Err(_) => gae.mailbox.complete(weft_cxl::pci::mailbox::code::INTERNAL, 0, &[]),
        }
    }

    /// The routing id of a function of a virtual switch, as its host knows it.
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

    /// Where the interrupt of a function goes; `None` while it may not send one.
    #[must_use]
    pub fn msi_of(&self, vcs: u8, function: Function) -> Option<Msi> {
        let state = self.vcs(vcs)?;
        match vppb_of(function) {
            Some(vppb) => state.vppbs.get(usize::from(vppb))?.bridge.msi(),
            None => state.gae.as_ref()?.function.msi(),
        }
    }
}
