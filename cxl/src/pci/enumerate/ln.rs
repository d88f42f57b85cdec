//! Software's settings for requesters of Lightweight Notification: one line size, and a limit.
//!
//! Computes the control register for a requester from its capability register. Limits are exponents: 2^n lines.
//!
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use crate::ln::LineSize;
use crate::pci::regs::lnr;

/// Settings that software applies to all LN requesters of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LnSettings {
    /// Line size that all root ports support.
    pub line: LineSize,
    /// Limit of registered lines for one function, as an exponent.
    pub limit: u8,
}

impl LnSettings {
    /// Control register that enables a requester; `None` if it does not support the line size.
    #[must_use]
    pub const fn control(self, capability: u16) -> Option<u16> {
        let (supported, cls) = match self.line {
            LineSize::B64 => (lnr::CAP_64, 0),
            LineSize::B128 => (lnr::CAP_128, lnr::CLS_128),
        };
        // One system has one line size (6.21), so a requester without it stays off rather than use another.
        if capability & supported == 0 {
            return None;
        }
        Some(lnr::ENABLE | cls | (self.limit_of(capability) as u16) << lnr::LIMIT_SHIFT)
    }

    /// Limit of a requester, as an exponent: the smaller of software's limit and its own maximum.
    #[must_use]
    pub const fn limit_of(self, capability: u16) -> u8 {
        let [max, _] = (capability & lnr::LIMIT).to_be_bytes();
        if max < self.limit { max } else { self.limit }
    }
}
