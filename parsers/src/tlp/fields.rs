//! Values of TLP fields that have names.
//! Enums and newtypes over the bits; both modes share them.
//!
//! Source: PCIe 6.0 sections 2.2.6 to 2.2.9, 2.2.10.2, 2.2.1.2; docs/spec/wire-formats.md §3.1, §3.5, §3.6.

use crate::fabric::{Bdf, Hpa};

/// Attributes, 3 bits: IDO, RO, NS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Attr(u8);

impl Attr {
    /// No snoop.
    pub const NS: Self = Self(1);
    /// Relaxed ordering.
    pub const RO: Self = Self(2);
    /// Ordering by id.
    pub const IDO: Self = Self(4);

    /// The low 3 bits of `bits`.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(bits: u8) -> Self {
        Self(bits & 7)
    }

    /// The 3 bits.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }
}

/// Address type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum At {
    /// 00: not translated yet, or nobody knows.
    #[default]
    Untranslated,
    /// 01: asks for a translation.
    TranslationRequest,
    /// 10: translated.
    Translated,
    /// 11.
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

/// Completion status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// SC: done.
    #[default]
    Success = 0,
    /// UR: unsupported request.
    UnsupportedRequest = 1,
    /// RRS (CRS): ask again.
    RequestRetry = 2,
    /// CA: completer abort.
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
    /// 20 bits.
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
    /// 00.
    #[default]
    Light,
    /// 01.
    Optimal,
    /// 10.
    ModerateOverload,
    /// 11.
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

/// Which address space a request names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// I/O, 32 bits.
    Io,
    /// Memory.
    Memory,
}

/// Where a TLP goes that names neither address nor id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Implicit {
    /// Up.
    ToRoot,
    /// Down to every port.
    Broadcast,
    /// It ends here.
    Local,
    /// Up, once after every active downstream port has answered.
    Gather,
}

/// What decides where a TLP goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// An address.
    Address {
        /// Of which space.
        space: AddressSpace,
        /// First byte of the first DW.
        addr: Hpa,
        /// The header has room for 64 bits.
        wide: bool,
    },
    /// A routing id: configuration requests, completions, messages by id.
    Id(Bdf),
    /// Neither.
    Implicit(Implicit),
}
