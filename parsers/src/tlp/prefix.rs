//! TLP prefixes, and the two readings of `VendPrefixL0`.
//!
//! A prefix has 4 bytes, the first `100` and a type: bit 4 of it tells end-end from local.
//!
//! Source: PCIe 6.0 section 2.2.10; CXL 3.1 sections 2.4, 7.7.6.2; docs/spec/wire-formats.md §3.2
//! (the place of the PID is proposed there).

use super::fields::Pasid;
use super::kind::Mode;
use super::layout::bit;
use crate::fabric::Pid;

/// Bytes of a prefix.
pub const LEN: usize = 4;
/// First byte of the vendor-defined local prefix 0.
pub const VEND_L0: u8 = 0x8E;
/// First byte of the prefix with a PASID.
pub const PASID: u8 = 0x91;

/// Scope of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    Local,
    EndEnd,
    Reserved,
}

/// Scope of the prefix that starts with `byte`; `None` if `byte` starts a header.
#[inline]
pub(super) const fn scope(mode: Mode, byte: u8) -> Option<Scope> {
    // both modes share the vendor's local prefixes; MR-IOV and end-end prefixes are non-flit, 8Dh
    // is flit
    match (mode, byte) {
        (Mode::NonFlit, 0x80) | (Mode::Flit, 0x8D) | (_, VEND_L0 | 0x8F) => Some(Scope::Local),
        (Mode::NonFlit, 0x90 | PASID | 0x9E | 0x9F) => Some(Scope::EndEnd),
        (_, 0x80..=0x9F) => Some(Scope::Reserved),
        _ => None,
    }
}

/// Vendor-defined local prefix 0: an LD-ID on a link to a multi-logical device, a PID on another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VendPrefixL0([u8; 3]);

impl VendPrefixL0 {
    /// LD-ID of the device that the fabric manager owns.
    pub const LD_FM_OWNED: u16 = 0xFFFF;

    /// From the three bytes behind the first.
    #[inline]
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 3]) -> Self {
        Self(bytes)
    }

    /// Names a logical device.
    #[inline]
    #[must_use]
    pub const fn from_ld_id(ld_id: u16) -> Self {
        let [high, low] = ld_id.to_be_bytes();
        Self([high, low, 0])
    }

    /// Names a port: the target on the way in, the source on the way out.
    #[inline]
    #[must_use]
    pub const fn from_pid(pid: Pid) -> Self {
        Self::from_ld_id(pid.bits() << 4)
    }

    /// Read as on a link to a multi-logical device.
    #[inline]
    #[must_use]
    pub const fn ld_id(self) -> u16 {
        let [high, low, _] = self.0;
        u16::from_be_bytes([high, low])
    }

    /// Read as on a host's or device's link that speaks of ports.
    #[inline]
    #[must_use]
    pub const fn pid(self) -> Pid {
        Pid::from_low_bits(self.ld_id() >> 4)
    }

    /// The prefix as its 4 bytes.
    #[inline]
    #[must_use]
    pub const fn emit(self) -> [u8; LEN] {
        let [first, second, third] = self.0;
        [VEND_L0, first, second, third]
    }
}

/// Reads the prefix with a PASID: PMR bit 23, ER bit 22, PASID bits 19:0.
pub(super) const fn decode_pasid(dw: u32) -> Pasid {
    Pasid { pasid: dw & 0xF_FFFF, privileged: bit(dw, 23), execute: bit(dw, 22) }
}

/// The prefix that [`decode_pasid`] reads.
pub(super) const fn emit_pasid(pasid: Pasid) -> u32 {
    (PASID as u32) << 24
        | (pasid.privileged as u32) << 23
        | (pasid.execute as u32) << 22
        | pasid.pasid & 0xF_FFFF
}
