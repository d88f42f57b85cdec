//! The parts that every PCI Express function has: capability, link, MSI, serial number.
//!
//! [`add_express`] and its siblings add a capability to a [`Space`] and return its offset; [`Express`] holds that
//! offset and names the registers.
//!
//! Link speeds are classes 1 to 6 (2.5 to 64 GT/s), widths are lanes.
//!
//! Source: PCIe 6.0 §7.5.3, §7.7.1, §7.9.3; docs/spec/wire-formats.md §3.3 (LN system CLS).

use super::regs::{self, cap, express as r, ext, msi};
use super::space::{Space, SpaceError, Written};

/// Device/Port Type of the PCI Express capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PortKind {
    /// Endpoint: the only kind with a type 0 header.
    Endpoint,
    /// Root port of a root complex.
    Root,
    /// Upstream port of a switch.
    Upstream,
    /// Downstream port of a switch.
    Downstream,
}

impl PortKind {
    /// From the register's 4 bits; `None` for kinds that are not modelled.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Endpoint),
            4 => Some(Self::Root),
            5 => Some(Self::Upstream),
            6 => Some(Self::Downstream),
            _ => None,
        }
    }

    /// The register's 4 bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::Endpoint => 0,
            Self::Root => 4,
            Self::Upstream => 5,
            Self::Downstream => 6,
        }
    }

    /// Whether its link leads away from the host (root and downstream ports).
    #[must_use]
    pub const fn is_above_link(self) -> bool {
        matches!(self, Self::Root | Self::Downstream)
    }
}

/// Vendor, device and class of a function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID, 1..=fffeh.
    pub vendor: u16,
    /// Device ID, chosen by the vendor.
    pub device: u16,
    /// Revision, chosen by the vendor.
    pub revision: u8,
    /// Class code: base class, sub-class, programming interface; 24 bits.
    pub class: u32,
    /// Subsystem vendor and subsystem id. A type 1 header has neither.
    pub subsystem: (u16, u16),
}

impl Identity {
    /// Writes the registers that headers of type 0 and 1 share, and makes command and status writable.
    pub fn emit(&self, space: &mut Space, header_type: u8, multi_function: bool) {
        space.set16(regs::VENDOR, self.vendor);
        space.set16(regs::DEVICE, self.device);
        space.set32(regs::REVISION, self.class << 8 | u32::from(self.revision));
        space.set8(regs::HEADER_TYPE, header_type | u8::from(multi_function) << 7);
        space.allow16(regs::COMMAND, regs::command::WRITABLE);
        space.clear_by_one16(regs::STATUS, regs::status::ERRORS);
        // Cache line size and interrupt line mean nothing to hardware, but software may write them.
        space.allow16(regs::CACHE_LINE, 0x00FF);
        space.allow16(regs::INTERRUPT_LINE, 0x00FF);
    }
}

/// Speed and width of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Speed class, 1 (2.5 GT/s) to 6 (64 GT/s).
    pub speed: u8,
    /// Lanes, 1 to 32.
    pub width: u8,
}

impl Link {
    fn bits(self) -> u16 {
        u16::from(self.speed & 0xF) | u16::from(self.width & 0x3F) << 4
    }
}

impl Default for Link {
    /// 64 GT/s, 16 lanes.
    fn default() -> Self {
        Self { speed: 6, width: 16 }
    }
}

/// Cache line size of the LN system, as a root port tells it to software (`DevCap2[15:14]`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LnSystem {
    /// The root port has no LN completer.
    #[default]
    None,
    /// Lines of 64 bytes.
    Cls64,
    /// Lines of 128 bytes.
    Cls128,
}

impl LnSystem {
    const fn bits(self) -> u32 {
        let code = match self {
            Self::None => 0,
            Self::Cls64 => 1,
            Self::Cls128 => 2,
        };
        // LN System CLS is in bits 15:14 of Device Capabilities 2.
        code << 14
    }
}

/// Contents of the PCI Express capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpressSpec {
    /// Device/Port Type, which decides which registers exist.
    pub kind: PortKind,
    /// Highest speed and width of the link.
    pub link: Link,
    /// `Max_Payload_Size` supported, 0 (128 bytes) to 5 (4096).
    pub payload: u8,
    /// Port number in Link Capabilities; 0 for an endpoint.
    pub port: u8,
    /// Whether the function offers function level reset; for endpoints.
    pub flr: bool,
    /// LN system that a root port offers; ignored for other kinds.
    pub ln: LnSystem,
}

/// Address and data of a message-signalled interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Msi {
    /// Memory address, a multiple of 4.
    pub address: u64,
    /// Lower 16 bits of the double word written; the upper are 0.
    pub data: u16,
}

/// The PCI Express capability of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Express {
    /// Offset of the capability.
    pub at: u16,
}

impl Express {
    /// Offset of `register` (of `regs::express`) in the space.
    #[must_use]
    pub const fn reg(self, register: u16) -> u16 {
        self.at + register
    }

    /// Shows the link in Link Status: speed and width, or 0 while it is down. A root or downstream port also shows
    /// Data Link Layer Link Active, if its capability offers that.
    pub fn set_link(self, space: &mut Space, link: Option<Link>) {
        let at = self.reg(r::LINK_STA);
        space.set16(at, (space.get16(at) & !0x03FF) | link.map_or(0, Link::bits));
        let says = space.get32(self.reg(r::LINK_CAP)) & r::LINK_CAP_ACTIVE != 0;
        space.set_bits16(at, r::LINK_STA_ACTIVE, link.is_some() && says);
    }

    /// Whether `written` started a function level reset.
    #[must_use]
    pub fn starts_flr(self, space: &Space, written: &Written) -> bool {
        // Without FLR in its capability the bit is reserved, and writing it does nothing.
        let able = space.get32(self.reg(r::DEV_CAP)) & r::DEV_CAP_FLR != 0;
        able && written.value16(self.reg(r::DEV_CTL)) & r::DEV_CTL_FLR != 0
    }

    /// Largest payload that software lets the function send, bytes.
    #[must_use]
    pub fn payload_max(self, space: &Space) -> usize {
        // Codes 6 and 7 are reserved (7.5.3.4); taken as the largest size.
        128 << (space.get16(self.reg(r::DEV_CTL)) >> 5 & 7).min(5)
    }

    /// Largest read that software lets the function request, bytes.
    #[must_use]
    pub fn read_request_max(self, space: &Space) -> usize {
        128 << (space.get16(self.reg(r::DEV_CTL)) >> 12 & 7).min(5)
    }
}

/// Adds the PCI Express capability, version 2; the link is down.
///
/// # Errors
/// No room is left.
pub fn add_express(space: &mut Space, spec: &ExpressSpec) -> Result<Express, SpaceError> {
    // Version 2 of the capability, which has the registers from Device Capabilities 2 on.
    let at = space.add(cap::EXPRESS, r::LEN)?;
    let express = Express { at };
    space.set16(at + r::CAP, 2 | u16::from(spec.kind.bits()) << 4);
    let flr = if spec.flr { r::DEV_CAP_FLR } else { 0 };
    let payload = u32::from(spec.payload.min(5));
    space.set32(at + r::DEV_CAP, payload | r::DEV_CAP_EXT_TAG | r::DEV_CAP_ROLE_BASED | flr);
    // Reset values of 7.5.3.4: relaxed ordering and no snoop on, read requests of 512 bytes. Writable are error
    // reporting, relaxed ordering, payload, extended tags, no snoop and read request.
    space.set16(at + r::DEV_CTL, 0x2810);
    space.allow16(at + r::DEV_CTL, 0x79FF);
    space.clear_by_one16(at + r::DEV_STA, 0x000F);
    // A port above a link has to tell software when the link comes and goes (7.5.3.6); hot plug relies on it.
    let active =
        if spec.kind.is_above_link() { r::LINK_CAP_ACTIVE | r::LINK_CAP_SURPRISE_DOWN } else { 0 };
    let port = u32::from(spec.port) << 24;
    space.set32(at + r::LINK_CAP, u32::from(spec.link.bits()) | active | port);
    // Only a port above a link can disable and retrain it; common clock and extended synch exist at both ends.
    let own = if spec.kind.is_above_link() { r::LINK_CTL_DISABLE } else { 0 };
    space.allow16(at + r::LINK_CTL, 0x00C0 | own);
    space.set32(
        // Completion timeout ranges A to D and disable are offered, which Device Control 2 then selects.
        at + r::DEV_CAP2,
        0x1F | if spec.kind == PortKind::Root { spec.ln.bits() } else { 0 },
    );
    space.allow16(at + r::DEV_CTL2, 0x001F);
    // Supported speeds are a bit for each class up to the highest, from bit 1 on (7.5.3.18).
    let speeds = (1u32 << spec.link.speed.min(6)) - 1;
    space.set32(at + r::LINK_CAP2, speeds << 1);
    space.set16(at + r::LINK_CTL2, u16::from(spec.link.speed & 0xF));
    space.allow16(at + r::LINK_CTL2, 0x000F);
    if spec.kind == PortKind::Root {
        // System error on errors, PME interrupt.
        space.allow16(at + r::ROOT_CTL, 0x000F);
    }
    Ok(express)
}

/// Adds an MSI capability with one message and a 64-bit address.
///
/// # Errors
/// No room is left.
pub fn add_msi(space: &mut Space) -> Result<u16, SpaceError> {
    let at = space.add(cap::MSI, msi::LEN)?;
    space.set16(at + msi::CONTROL, msi::CONTROL_64);
    space.allow16(at + msi::CONTROL, msi::CONTROL_ENABLE);
    space.allow32(at + msi::ADDRESS, !3);
    space.allow32(at + msi::ADDRESS + 4, u32::MAX);
    space.allow16(at + msi::DATA, u16::MAX);
    Ok(at)
}

/// Address and data of the MSI capability at `at`; `None` while MSI is disabled, or the function is no bus master.
#[must_use]
pub fn msi_target(space: &Space, at: u16) -> Option<Msi> {
    let on = space.get16(at + msi::CONTROL) & msi::CONTROL_ENABLE != 0;
    // An MSI is a memory write, so Bus Master Enable gates it (7.5.1.1.3).
    let master = space.get16(regs::COMMAND) & regs::command::MASTER != 0;
    let address = space.get64(at + msi::ADDRESS);
    (on && master).then(|| Msi { address, data: space.get16(at + msi::DATA) })
}

/// Adds a device serial number.
///
/// # Errors
/// No room is left.
pub fn add_serial(space: &mut Space, serial: u64) -> Result<u16, SpaceError> {
    let at = space.add_ext(ext::SERIAL, 1, 12)?;
    space.set64(at + 4, serial);
    Ok(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::space::{ByteEnables, Reg};

    fn spec(kind: PortKind) -> ExpressSpec {
        let link = Link { speed: 5, width: 8 };
        ExpressSpec { kind, link, payload: 2, port: 3, flr: true, ln: LnSystem::Cls128 }
    }

    #[test]
    fn the_capability_says_what_the_function_is() {
        #[rustfmt::skip] // columns: kind, capability, link capabilities, device capabilities 2
        let cases = [
            (PortKind::Endpoint,   0x0002, 0x0300_0085, 0x0000_001F),
            (PortKind::Root,       0x0042, 0x0318_0085, 0x0000_801F),
            (PortKind::Upstream,   0x0052, 0x0300_0085, 0x0000_001F),
            (PortKind::Downstream, 0x0062, 0x0318_0085, 0x0000_001F),
        ];
        for (kind, want_cap, want_link, want_cap2) in cases {
            let mut space = Space::new();
            let express = add_express(&mut space, &spec(kind)).unwrap();
            let get = |register| space.get32(express.reg(register));
            assert_eq!(get(0) >> 16, want_cap, "{kind:?}");
            assert_eq!(get(r::LINK_CAP), want_link, "{kind:?}");
            assert_eq!(get(r::DEV_CAP2), want_cap2, "{kind:?}");
            assert_eq!(get(r::LINK_CAP2), 0x3E, "{kind:?}");
            assert_eq!(PortKind::from_bits(kind.bits()), Some(kind));
        }
    }

    #[test]
    fn link_state_is_told_by_those_who_can() {
        for (kind, up) in [(PortKind::Downstream, 0x2085), (PortKind::Upstream, 0x0085)] {
            let mut space = Space::new();
            let express = add_express(&mut space, &spec(kind)).unwrap();
            express.set_link(&mut space, Some(Link { speed: 5, width: 8 }));
            assert_eq!(space.get16(express.reg(r::LINK_STA)), up, "{kind:?}");
            express.set_link(&mut space, None);
            assert_eq!(space.get16(express.reg(r::LINK_STA)), 0, "{kind:?}");
        }
    }

    #[test]
    fn an_interrupt_goes_where_software_says() {
        let mut space = Space::new();
        space.allow16(regs::COMMAND, regs::command::WRITABLE);
        let at = add_msi(&mut space).unwrap();
        let writes =
            [(at + 4, 0xFEE0_1003), (at + 8, 2), (at + 12, 0xFFFF_0041), (at, 0x0001_0000)];
        for (offset, value) in writes {
            assert_eq!(msi_target(&space, at), None);
            space.write(Reg::at(offset), value, ByteEnables::ALL);
        }
        assert_eq!(msi_target(&space, at), None, "no bus master");
        space.write(Reg::at(regs::COMMAND), 0x4, ByteEnables::ALL);
        assert_eq!(msi_target(&space, at), Some(Msi { address: 0x2_FEE0_1000, data: 0x41 }));
    }

    #[test]
    fn sizes_of_requests_follow_device_control() {
        let mut space = Space::new();
        let express = add_express(&mut space, &spec(PortKind::Endpoint)).unwrap();
        assert_eq!((express.payload_max(&space), express.read_request_max(&space)), (128, 512));
        space.write(Reg::at(express.reg(r::DEV_CTL)), 0x5040, ByteEnables::ALL);
        assert_eq!((express.payload_max(&space), express.read_request_max(&space)), (512, 4096));
    }
}
