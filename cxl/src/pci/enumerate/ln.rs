//! What software sets on requesters of Lightweight Notification: one line size, and a limit.
//!
//! Capability register of an LNR -> the control register that software writes, or `None`.
//!
//! Units: sizes are exponents, 2^n lines.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use crate::ln::LineSize;
use crate::pci::regs::lnr;

/// What software sets on all LN requesters of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LnSettings {
    /// Line size on which all root ports agree.
    pub line: LineSize,
    /// Most lines that one function may register, an exponent.
    pub limit: u8,
}

impl LnSettings {
    /// The control register that switches a requester on; `None` where it does not have the line size.
    #[must_use]
    pub const fn control(self, capability: u16) -> Option<u16> {
        let (supported, cls) = match self.line {
            LineSize::B64 => (lnr::CAP_64, 0),
            LineSize::B128 => (lnr::CAP_128, lnr::CLS_128),
        };
        if capability & supported == 0 {
            return None;
        }
        Some(lnr::ENABLE | cls | (self.limit_of(capability) as u16) << lnr::LIMIT_SHIFT)
    }

    /// The limit of a requester, an exponent: what software allows, or its own maximum where that is less.
    #[must_use]
    pub const fn limit_of(self, capability: u16) -> u8 {
        let [max, _] = (capability & lnr::LIMIT).to_be_bytes();
        if max < self.limit { max } else { self.limit }
    }
}
