//! Values of TLP fields that have names.
//!
//! Enums and newtypes over the bits; both modes share them.
//!
//! Source: PCIe 6.0 sections 2.2.6 to 2.2.9, 2.2.10.2, 2.2.1.2; docs/spec/wire-formats.md §3.1, §3.5, §3.6.

use crate::fabric::{Bdf, Hpa};

/// Attributes, 3 bits: IDO, RO, NS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attr(u8);

impl Attr {
    /// NS: no snoop, bit 0.
    pub const NS: Self = Self(1);
    /// RO: relaxed ordering, bit 1.
    pub const RO: Self = Self(2);
    /// IDO: ID-based ordering, bit 2.
    pub const IDO: Self = Self(4);

    /// The low 3 bits of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// The attributes as 3 bits: IDO, RO, NS.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// AT: address type of a memory request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum At {
    /// 00: not translated, or the requester does not know.
    #[default]
    Untranslated,
    /// 01: asks for a translation.
    TranslationRequest,
    /// 10: translated by the IOMMU (ATS).
    Translated,
    /// 11: reserved by the standard.
    Reserved,
}

impl At {
    /// From the low 2 bits of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Untranslated,
            1 => Self::TranslationRequest,
            2 => Self::Translated,
            _ => Self::Reserved,
        }
    }
}

/// Status of a completion, 3 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// SC: successful completion.
    #[default]
    Success = 0,
    /// UR: the request is unsupported.
    UnsupportedRequest = 1,
    /// RRS (CRS): ask again.
    RequestRetry = 2,
    /// CA: the completer aborts the request.
    CompleterAbort = 4,
}

impl Status {
    /// From the low 3 bits of `bits`; a reserved value counts as UR (PCIe 6.0 section 2.2.9.1).
    #[inline]
    #[must_use]
    pub const fn from_low_bits(bits: u8) -> Self {
        match bits & 7 {
            0 => Self::Success,
            2 => Self::RequestRetry,
            4 => Self::CompleterAbort,
            _ => Self::UnsupportedRequest,
        }
    }
}

/// Process address space of a request or message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pasid {
    /// PASID, 20 bits.
    pub pasid: u32,
    /// PMR: privileged mode requested.
    pub privileged: bool,
    /// ER: execute requested; messages of flit mode have no such bit.
    pub execute: bool,
}

/// `DevLoad` of a UIO completion (CDL).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum DevLoad {
    /// 00: light load.
    #[default]
    Light,
    /// 01: optimal load.
    Optimal,
    /// 10: moderate overload.
    ModerateOverload,
    /// 11: severe overload.
    SevereOverload,
}

impl DevLoad {
    /// From the low 2 bits of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Light,
            1 => Self::Optimal,
            2 => Self::ModerateOverload,
            _ => Self::SevereOverload,
        }
    }
}

/// Address space of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// I/O, 32 bits.
    Io,
    /// Memory, 32 or 64 bits.
    Memory,
}

/// Direction of a TLP that is routed by neither address nor id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Implicit {
    /// Up, to the root complex.
    ToRoot,
    /// Down to every port.
    Broadcast,
    /// Ends at the receiver.
    Local,
    /// Up, once after every active downstream port has answered.
    Gather,
}

/// The field that a TLP is routed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// By an address, through the windows of bridges.
    Address {
        /// Address space of the address.
        space: AddressSpace,
        /// First byte of the first DW.
        addr: Hpa,
        /// The header has room for 64 bits.
        wide: bool,
    },
    /// A routing id: configuration requests, completions, messages by id.
    Id(Bdf),
    /// By the message's type alone.
    Implicit(Implicit),
}
