//! A function with a type 0 header: an endpoint, or the GAE of a switch.
//!
//! Built from a [`FunctionSpec`] and driven by reads and writes of registers. A write returns [`FunctionEffects`]
//! for its owner to act on; [`Function::bar_of`] finds the BAR that decodes an address.
//!
//! Source: PCIe 6.0 §7.5.1.2; docs/spec/wire-formats.md §3.3 (LNR); CXL 3.1 §8.1.
//!
//! A BAR at address 0, or at its own sizing pattern, decodes nothing: software is between sizing it and placing it.

use weft_parsers::fabric::Hpa;

use super::aer::{Aer, ErrorMessage, Uncorrectable};
use super::cxl::{self, CxlSpec, RegisterBlock};
use super::doe::Doe;
use super::express::{self, Express, ExpressSpec, Identity, Link, LnSystem, Msi, PortKind};
use super::intx::Pin;
use super::regs::{self, command, ext, lnr as lnr_regs, msi as msi_regs};
use super::space::{ByteEnables, Reg, Space, SpaceError, high32, low32};

/// Number of BARs in a type 0 header.
pub const BAR_COUNT: usize = 6;

/// Address space that a BAR decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BarKind {
    /// I/O ports, 32-bit addresses.
    Io,
    /// Memory below 4 GiB.
    Mem32 {
        /// Reads have no side effects, and writes may be merged.
        prefetch: bool,
    },
    /// Memory anywhere; takes this BAR and the next.
    Mem64 {
        /// Reads have no side effects, and writes may be merged.
        prefetch: bool,
    },
}

impl BarKind {
    /// The low bits of the register, which tell software the kind.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::Io => 1,
            Self::Mem32 { prefetch } => (prefetch as u32) << 3,
            Self::Mem64 { prefetch } => (prefetch as u32) << 3 | 4,
        }
    }
}

/// Specification of a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarSpec {
    /// Address space and prefetchability.
    pub kind: BarKind,
    /// Size in bytes: a power of two, 4..=256 for I/O, at least 16 for memory.
    pub size: u64,
}

/// Contents of the LNR capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LnrSpec {
    /// Supports lines of 64 bytes.
    pub cls64: bool,
    /// Supports lines of 128 bytes.
    pub cls128: bool,
    /// At most 2 to the power of this lines are registered, 0..=31.
    pub registrations: u8,
}

/// Settings of the LNR by its control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LnrControl {
    /// The requester may register lines.
    pub enabled: bool,
    /// Bytes of a line, 64 or 128.
    pub line: u16,
    /// Number of lines that the requester may register at once.
    pub limit: u32,
}

/// Specification of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionSpec {
    /// Vendor, device and class.
    pub identity: Identity,
    /// BARs by number; behind one of 64 bits is `None`.
    pub bars: [Option<BarSpec>; BAR_COUNT],
    /// Device serial number; `None` leaves its capability out.
    pub serial: Option<u64>,
    /// The device has more functions than this one.
    pub multi_function: bool,
    /// Lightweight Notification requester; `None` leaves its capability out.
    pub lnr: Option<LnrSpec>,
    /// DVSEC for CXL devices; `None` for a function without CXL.
    pub cxl: Option<CxlSpec>,
    /// Register blocks in its BARs, listed by the register locator.
    pub blocks: Vec<RegisterBlock>,
    /// Interrupt Pin: 1 to 4 for A to D, 0 for a function without INTx.
    pub pin: u8,
    /// Whether it has a DOE mailbox, by which software reads its CDAT.
    pub doe: bool,
    /// Highest speed and width of its link.
    pub link: Link,
}

/// Why a function cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FunctionError {
    /// Size of a BAR is not a power of two, or out of range.
    #[error("BAR {bar} cannot be of {size:#x} bytes")]
    BarSize {
        /// BAR number, 0..=5.
        bar: usize,
        /// Requested size in bytes.
        size: u64,
    },
    /// A 64-bit BAR is the last one, or has another BAR in its upper half.
    #[error("BAR {bar} has no room for its upper half")]
    BarUpper {
        /// BAR number, 0..=5.
        bar: usize,
    },
    /// LNR without a line size, or with more than 2^31 registrations.
    #[error("an LN requester has lines of 64 or 128 bytes and at most 2^31 registrations")]
    Lnr,
    /// The capabilities do not fit into the space.
    #[error(transparent)]
    Space(#[from] SpaceError),
}

/// Reason why a function may not assert INTx.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoIntx {
    /// Its Interrupt Pin register is 0.
    #[error("has no interrupt pin")]
    Pin,
    /// Software has set Interrupt Disable.
    #[error("may not assert INTx: software has set Interrupt Disable (Command, bit 10)")]
    Disabled,
    /// Software has enabled MSI instead.
    #[error(
        "may not assert INTx: software has enabled its MSI, and a function uses one of the two: clear MSI Enable first"
    )]
    Msi,
}

/// Effects of a configuration write, for the function's owner to act on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, each acted on by itself")]
pub struct FunctionEffects {
    /// Decoded addresses changed: BARs, or their enables.
    pub decode: bool,
    /// Bus Master Enable changed.
    pub master: bool,
    /// Software reset the function (FLR): the owner drops requests and other state.
    pub reset: bool,
    /// LNR settings changed; if the LNR was disabled, the owner drops its local copies.
    pub lnr: bool,
}

/// The configuration space of a PCIe function (header of type 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    space: Space,
    initial: Space,
    bars: [Option<BarSpec>; BAR_COUNT],
    express: Express,
    aer: Aer,
    msi: u16,
    lnr: Option<(u16, LnrSpec)>,
    /// Offset of the DVSEC for CXL devices.
    cxl: Option<u16>,
    doe: Option<Doe>,
    link: Option<Link>,
}

impl Function {
    /// The function after power-on, with its link up.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn new(spec: &FunctionSpec) -> Result<Self, FunctionError> {
        let mut space = Space::new();
        spec.identity.emit(&mut space, 0, spec.multi_function);
        let (vendor, device) = spec.identity.subsystem;
        space.set16(regs::SUBSYSTEM, vendor);
        space.set16(regs::SUBSYSTEM + 2, device);
        space.set8(regs::INTERRUPT_PIN, spec.pin);
        let mut upper = false;
        for (bar, slot) in spec.bars.iter().enumerate() {
            if let Some(slot) = slot {
                if upper {
                    return Err(FunctionError::BarUpper { bar: bar - 1 });
                }
                put_bar(&mut space, bar, *slot)?;
            }
            upper = slot.is_some_and(|slot| matches!(slot.kind, BarKind::Mem64 { .. }));
        }
        if upper {
            return Err(FunctionError::BarUpper { bar: BAR_COUNT - 1 });
        }
        let express = ExpressSpec {
            kind: PortKind::Endpoint,
            link: spec.link,
            payload: 2,
            port: 0,
            flr: true,
            ln: LnSystem::None,
        };
        let express = express::add_express(&mut space, &express)?;
        let msi = express::add_msi(&mut space)?;
        let aer = Aer::add(&mut space, false)?;
        if let Some(serial) = spec.serial {
            express::add_serial(&mut space, serial)?;
        }
        let lnr = match spec.lnr {
            Some(lnr) => Some((add_lnr(&mut space, lnr)?, lnr)),
            None => None,
        };
        let cxl = match &spec.cxl {
            Some(cxl) => Some(cxl::add_device(&mut space, cxl)?),
            None => None,
        };
        if !spec.blocks.is_empty() {
            cxl::add_locator(&mut space, &spec.blocks)?;
        }
        let doe = spec.doe.then(|| Doe::add(&mut space)).transpose()?;
        // Every reset restores this state; capabilities are added once and never change place.
        let (initial, bars) = (space.clone(), spec.bars);
        let mut function =
            Self { space, initial, bars, express, aer, msi, lnr, cxl, doe, link: None };
        function.set_link(Some(spec.link));
        Ok(function)
    }

    /// Value of a register as software reads it.
    #[must_use]
    pub fn read(&self, reg: Reg) -> u32 {
        self.space.read(reg)
    }

    /// Applies a write by software.
    pub fn write(&mut self, reg: Reg, value: u32, enables: ByteEnables) -> FunctionEffects {
        let before = self.lnr_control();
        let written = self.space.write(reg, value, enables);
        if self.express.starts_flr(&self.space, &written) {
            self.function_reset();
            // Everything may have changed; the owner looks at all of it rather than compare with the state before.
            return FunctionEffects { decode: true, master: true, reset: true, lnr: true };
        }
        if let Some(doe) = &mut self.doe {
            doe.written(&mut self.space, &written);
        }
        // After the write, so that one write can set size and limit and enable the LNR.
        self.guard_lnr();
        let bars = regs::BAR0..regs::BAR0 + 24;
        let command = written.changed16(regs::COMMAND);
        FunctionEffects {
            // A write of the value that the BAR has would only make the owner compute its decoding again.
            decode: (bars.contains(&reg.offset()) && written.old != written.new)
                || command & (command::IO | command::MEM) != 0,
            master: command & command::MASTER != 0,
            reset: false,
            lnr: before != self.lnr_control(),
        }
    }

    //= CXL 3.1 section 9.5: a function level reset does not change what controls CXL.mem
    fn function_reset(&mut self) {
        let kept = self.cxl.map(|at| {
            let reg = |register| at + register;
            cxl::device::STICKY.map(|register| (reg(register), self.space.get32(reg(register))))
        });
        self.reset();
        for (at, value) in kept.iter().flatten() {
            self.space.set32(*at, *value);
        }
    }

    /// Whether software has enabled CXL.mem (`Mem_Enable`).
    #[must_use]
    pub fn mem_enabled(&self) -> bool {
        let control = self.cxl.map(|at| self.space.get16(at + cxl::device::CONTROL));
        control.is_some_and(|control| control & cxl::device::CONTROL_MEM != 0)
    }

    /// Whether software has enabled CXL.cache (`Cache_Enable`).
    #[must_use]
    pub fn cache_enabled(&self) -> bool {
        let control = self.cxl.map(|at| self.space.get16(at + cxl::device::CONTROL));
        control.is_some_and(|control| control & cxl::device::CONTROL_CACHE != 0)
    }

    /// Restores the state after power-on, as by a hot reset from above; the link stays up.
    pub fn reset(&mut self) {
        self.space.clone_from(&self.initial);
        if let Some(doe) = &mut self.doe {
            doe.reset();
        }
        // The initial space was taken before the link came up.
        self.set_link(self.link);
    }

    /// Sets the structures of its CDAT; ignored by a function without a DOE mailbox.
    pub fn set_cdat(&mut self, structures: Vec<Vec<u8>>) {
        if let Some(doe) = &mut self.doe {
            doe.set_table(structures);
        }
    }

    /// Records the link and shows it in Link Status.
    pub fn set_link(&mut self, link: Option<Link>) {
        self.link = link;
        self.express.set_link(&mut self.space, link);
    }

    /// The memory BAR that decodes `address`, and the offset in it.
    #[must_use]
    pub fn bar_of(&self, address: Hpa) -> Option<(u8, u64)> {
        self.decode(command::MEM, false, address.0)
    }

    /// The I/O BAR that decodes `port`, and the offset in it.
    #[must_use]
    pub fn io_bar_of(&self, port: u32) -> Option<(u8, u64)> {
        self.decode(command::IO, true, port.into())
    }

    fn decode(&self, enable: u16, io: bool, address: u64) -> Option<(u8, u64)> {
        if self.space.get16(regs::COMMAND) & enable == 0 {
            return None;
        }
        let of_kind = (0u8..).zip(&self.bars).filter_map(|(bar, slot)| Some((bar, (*slot)?)));
        of_kind.filter(|(_, slot)| (slot.kind == BarKind::Io) == io).find_map(|(bar, slot)| {
            let at = regs::BAR0 + 4 * u16::from(bar);
            let (base, all) = match slot.kind {
                BarKind::Io => (u64::from(self.space.get32(at) & !3), 0xFFFF_FFFF),
                BarKind::Mem32 { .. } => (u64::from(self.space.get32(at) & !15), 0xFFFF_FFFF),
                BarKind::Mem64 { .. } => (self.space.get64(at) & !15, u64::MAX),
            };
            // Software that sizes a BAR while decoding is on must not make it claim the top of the address space.
            let sizing = all & !(slot.size - 1);
            let offset = address.checked_sub(base)?;
            (base != 0 && base != sizing && offset < slot.size).then_some((bar, offset))
        })
    }

    /// Whether software lets it send requests (Bus Master Enable).
    #[must_use]
    pub fn is_master(&self) -> bool {
        self.space.get16(regs::COMMAND) & command::MASTER != 0
    }

    /// Address and data of its MSI; `None` while it may not send one.
    #[must_use]
    pub fn msi(&self) -> Option<Msi> {
        express::msi_target(&self.space, self.msi)
    }

    /// Pin of its INTx.
    ///
    /// # Errors
    /// It has no pin, or software has disabled INTx or enabled MSI.
    pub fn intx(&self) -> Result<Pin, NoIntx> {
        let pin = Pin::from_register(self.space.get8(regs::INTERRUPT_PIN)).ok_or(NoIntx::Pin)?;
        if self.space.get16(regs::COMMAND) & command::INTX_OFF != 0 {
            return Err(NoIntx::Disabled);
        }
        //= PCIe 6.0 section 6.1.4: a function whose MSI is enabled does not use INTx
        let control = self.space.get16(self.msi + msi_regs::CONTROL);
        if control & msi_regs::CONTROL_ENABLE != 0 { Err(NoIntx::Msi) } else { Ok(pin) }
    }

    /// Sets Interrupt Status, which shows a wanted INTx even while the function may not assert it.
    pub fn set_intx_status(&mut self, on: bool) {
        self.space.set_bits16(regs::STATUS, regs::status::INTX, on);
    }

    /// Largest payload that it may send, and largest read that it may request, both in bytes.
    #[must_use]
    pub fn sizes_max(&self) -> (usize, usize) {
        (self.express.payload_max(&self.space), self.express.read_request_max(&self.space))
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

    /// Settings of the LN requester; `None` for a function without one.
    #[must_use]
    pub fn lnr_control(&self) -> Option<LnrControl> {
        let (at, spec) = self.lnr?;
        let control = self.space.get16(at + lnr_regs::CONTROL);
        let limit = (control & lnr_regs::LIMIT) >> lnr_regs::LIMIT_SHIFT;
        Some(LnrControl {
            enabled: control & lnr_regs::ENABLE != 0,
            line: if control & lnr_regs::CLS_128 == 0 { 64 } else { 128 },
            // Software may write a larger exponent than the capability offers; only the offered one counts.
            limit: 1 << limit.min(spec.registrations.into()),
        })
    }

    //= PCIe 5.0 section 6.21: line size and limit are set while the LNR is off, or as it goes on
    fn guard_lnr(&mut self) {
        if let Some((at, spec)) = self.lnr {
            let on = self.space.get16(at + lnr_regs::CONTROL) & lnr_regs::ENABLE != 0;
            self.space.allow16(at + lnr_regs::CONTROL, lnr_writable(spec, on));
        }
    }

    /// The whole space, for dumps and for registers that this module does not interpret.
    #[must_use]
    pub const fn space(&self) -> &Space {
        &self.space
    }
}

fn put_bar(space: &mut Space, bar: usize, spec: BarSpec) -> Result<(), FunctionError> {
    let (least, most) = match spec.kind {
        BarKind::Io => (4, 256),
        BarKind::Mem32 { .. } => (16, 1 << 31),
        BarKind::Mem64 { .. } => (16, 1 << 63),
    };
    if !spec.size.is_power_of_two() || spec.size < least || spec.size > most {
        return Err(FunctionError::BarSize { bar, size: spec.size });
    }
    let at = u16::try_from(bar).map_or(regs::BAR0, |bar| regs::BAR0 + 4 * bar);
    let mask = !(spec.size - 1);
    // The kind in the low bits stays read-only; the address bits below the size read 0, which is how software sizes
    // the BAR.
    space.set32(at, spec.kind.bits());
    space.allow32(at, low32(mask));
    if matches!(spec.kind, BarKind::Mem64 { .. }) {
        space.allow32(at + 4, high32(mask));
    }
    Ok(())
}

fn add_lnr(space: &mut Space, spec: LnrSpec) -> Result<u16, FunctionError> {
    if !(spec.cls64 || spec.cls128) || spec.registrations > 31 {
        return Err(FunctionError::Lnr);
    }
    let at = space.add_ext(ext::LNR, 1, lnr_regs::LEN)?;
    let sizes = if spec.cls64 { lnr_regs::CAP_64 } else { 0 }
        | if spec.cls128 { lnr_regs::CAP_128 } else { 0 };
    let lines = u16::from(spec.registrations) << lnr_regs::LIMIT_SHIFT;
    space.set16(at + lnr_regs::CAP, sizes | lines);
    // Control starts with the only or smaller line size and the capability's own limit, so that enabling it alone
    // is enough.
    let cls = if spec.cls64 { 0 } else { lnr_regs::CLS_128 };
    space.set16(at + lnr_regs::CONTROL, cls | lines);
    space.allow16(at + lnr_regs::CONTROL, lnr_writable(spec, false));
    Ok(at)
}

/// Bits of LNR control that software may write while it is `on` or off.
const fn lnr_writable(spec: LnrSpec, on: bool) -> u16 {
    // With one line size there is nothing to choose, so CLS is read-only.
    let cls = if spec.cls64 && spec.cls128 { lnr_regs::CLS_128 } else { 0 };
    lnr_regs::ENABLE | if on { 0 } else { lnr_regs::LIMIT | cls }
}

#[cfg(test)]
mod tests;
