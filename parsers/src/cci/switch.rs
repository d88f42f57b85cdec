//! Physical switch commands 5100h to 5107h, and Get Port Traffic (C510h, weft's own).
//!
//! [`PortState`] has 16 bytes a port, [`PortTraffic`] 24.
//!
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 section 7.6.7.1.

use super::layout::{codes, message, record};
use super::wire::{Wire, front, put_front};
use crate::ParseError;

record! {
    /// Response of Identify Switch Device (5100h).
    struct SwitchIdentity: 73 {
        /// Port that the request came in by.
        0 => ingress_port: u8,
        /// Number of physical ports.
        2 => ports: u8,
        /// Number of virtual CXL switches.
        3 => vcss: u8,
        /// Bit per port that is enabled; port 0 is bit 0 of byte 0.
        4 => active_ports: [u8; 32],
        /// Bit per VCS that is enabled; VCS 0 is bit 0 of byte 0.
        36 => active_vcss: [u8; 32],
        /// Number of vPPBs of all virtual switches.
        68 => vppbs: u16,
        /// Number of vPPBs that are bound.
        70 => active_vppbs: u16,
        /// HDM decoders of each upstream switch port.
        72 => decoders: u8,
    }
}

message! {
    /// Request of Get Physical Port State (5101h), and of Get PBR Link Partner Info (5702h).
    struct PortList: 1 {}
    /// Numbers of the ports to report.
    0 as u8 => ports: [u8]
}

/// Flag of a port's link state: PERST# is asserted (CXL 3.1 table 7-19).
pub const LINK_STATE_PERST: u16 = 1 << 1;

record! {
    /// State of a physical port; codes as in CXL 3.1 table 7-19.
    struct PortState: 16 {
        /// Number of the physical port.
        0 => port: u8,
        /// 0 disabled, 1 bind in progress, 2 unbind in progress, 3 DSP, 4 USP, 5 fabric port, F invalid.
        1 => config_state: u8,
        /// Code of the CXL version that the partner negotiated.
        2 => partner_version: u8,
        /// Code of the partner's device type.
        4 => partner_type: u8,
        /// CXL versions that the port supports, one bit each.
        5 => versions: u8,
        /// Lanes of the widest supported link.
        6 => width_max: u8,
        /// Lanes in use.
        7 => width: u8,
        /// Supported link speeds, one bit each.
        8 => speeds: u8,
        /// Code of the fastest supported speed.
        9 => speed_max: u8,
        /// Code of the speed in use.
        10 => speed: u8,
        /// LTSSM state of the link.
        11 => ltssm: u8,
        /// Number of the lowest lane in use.
        12 => first_lane: u8,
        /// Link flags; [`LINK_STATE_PERST`].
        13 => link_state: u16,
        /// Logical devices of the partner; 0 when it is not an MLD.
        15 => lds: u8,
    }
}

message! {
    /// Response of Get Physical Port State (5101h).
    struct PortStates: 4 {}
    /// One for each port that was asked for.
    0 as u8 => ports: [PortState]
}

record! {
    /// Traffic of a port since its switch was started.
    struct PortTraffic: 24 {
        /// Number of the physical port.
        0 => port: u8,
        /// Bytes of received frames, without FCS.
        8 => rx: u64,
        /// Bytes of sent frames, without FCS and without padding to 60 bytes.
        16 => tx: u64,
    }
}

message! {
    /// Response of Get Port Traffic (C510h).
    struct PortsTraffic: 16 {
        /// When the counts were taken: ns of a clock of the switch that never goes back.
        0 => at_ns: u64,
    }
    /// One for each port that was asked for.
    8 as u8 => ports: [PortTraffic]
}

codes! {
    /// Operation of Physical Port Control.
    enum PortOp: Operation, 0xFF {
        /// Asserts PERST# until it is deasserted.
        0 => AssertPerst,
        /// Ends the assertion of PERST#.
        1 => DeassertPerst,
        /// Hot-resets the link below the port's bridge.
        2 => ResetPpb,
    }
}

record! {
    /// Request of Physical Port Control (5102h).
    struct PortControl: 2 {
        /// Number of the physical port.
        0 => port: u8,
        /// Reset to begin or end.
        1 => op: PortOp,
    }
}

/// Register of a configuration space, byte enables and direction: 3 bytes of 5103h and 5301h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigAccess {
    /// Register in words of 4 bytes, 12 bits: extended register above the register.
    pub register: u16,
    /// First DW byte enables, 4 bits.
    pub first_be: u8,
    /// Writes instead of reading.
    pub write: bool,
}

impl Wire for ConfigAccess {
    const LEN: usize = 3;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [low, mid, high] = front(bytes)?;
        let register = u16::from_le_bytes([low, mid & 0xF]);
        Ok(Self { register, first_be: mid >> 4, write: high & 0x80 != 0 })
    }

    fn write(&self, bytes: &mut [u8]) {
        let [low, high] = self.register.to_le_bytes();
        let mid = (high & 0xF) | (self.first_be << 4);
        put_front(bytes, [low, mid, u8::from(self.write) << 7]);
    }
}

record! {
    /// Request of Send PPB CXL.io Configuration Request (5103h).
    struct PpbConfig: 8 {
        /// Number of the physical port.
        0 => port: u8,
        /// Register, byte enables and direction.
        1 => access: ConfigAccess,
        /// Data to write; ignored for a read.
        4 => data: u32,
    }
}
