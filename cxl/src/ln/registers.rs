//! The LN Requester extended capability of a function.
//!
//! It has 8 bytes: header (16-bit id 001Ch, 4-bit version, 12-bit next), capability and control of 16 bits each,
//! all little-endian.
//!
//! Units: sizes are exponents, 2^n lines; line size 0 is 64 bytes, 1 is 128.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use super::LineSize;

const ENABLE: u16 = 1;
const CLS: u16 = 1 << 1;
const EXPONENT: u16 = 0x1F;

/// Effect of a write to the control register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlChange {
    /// LN stays enabled or disabled.
    None,
    /// LN was disabled and is enabled now.
    Enabled,
    /// LN was enabled and is disabled now: the requester drops its state.
    Disabled,
}

/// The capability and control registers of an LN requester.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LnrRegisters {
    supported: Supported,
    max: u8,
    enabled: bool,
    line: LineSize,
    limit: u8,
    /// Writes that tried to change line size or limit while LN was enabled.
    refused_writes: u64,
}

/// Line sizes that a requester supports, at least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supported {
    /// One size; its control bit is hardwired.
    Only(LineSize),
    /// Both line sizes.
    Both,
}

impl LnrRegisters {
    /// Length of the capability in bytes.
    pub const LEN: usize = 8;
    /// Id of the extended capability.
    pub const ID: u16 = 0x001C;

    /// Registers with LN disabled. `max` is the largest limit of lines as an exponent, 5 bits; the limit starts
    /// there.
    #[must_use]
    pub const fn new(supported: Supported, max: u8) -> Self {
        let line = match supported {
            Supported::Only(line) => line,
            Supported::Both => LineSize::B64,
        };
        let max = max & 0x1F;
        Self { supported, max, enabled: false, line, limit: max, refused_writes: 0 }
    }

    /// Whether LN is enabled.
    #[must_use]
    pub const fn enabled(&self) -> bool {
        self.enabled
    }

    /// Line size selected by the control register.
    #[must_use]
    pub const fn line(&self) -> LineSize {
        self.line
    }

    /// Limit of registered lines, as set by software.
    #[must_use]
    pub const fn limit_lines(&self) -> usize {
        1 << self.limit
    }

    /// Number of writes that tried to change line size or limit while LN was enabled.
    #[must_use]
    pub const fn refused_writes(&self) -> u64 {
        self.refused_writes
    }

    /// Value of the capability register.
    #[must_use]
    pub const fn capability(&self) -> u16 {
        let sizes = match self.supported {
            Supported::Only(LineSize::B64) => 1,
            Supported::Only(LineSize::B128) => 2,
            Supported::Both => 3,
        };
        sizes | ((self.max as u16) << 8)
    }

    /// Value of the control register.
    #[must_use]
    pub const fn control(&self) -> u16 {
        let cls = match self.line {
            LineSize::B64 => 0,
            LineSize::B128 => CLS,
        };
        self.enabled as u16 | cls | ((self.limit as u16) << 8)
    }

    /// The 8 bytes as in configuration space; `next` is the offset of the next capability.
    #[must_use]
    pub const fn bytes(&self, next: u16) -> [u8; Self::LEN] {
        let [h0, h1] = Self::ID.to_le_bytes();
        // Version 1 in bits 3:0, offset of the next capability in bits 15:4.
        let [h2, h3] = (1 | (next << 4)).to_le_bytes();
        let [c0, c1] = self.capability().to_le_bytes();
        let [k0, k1] = self.control().to_le_bytes();
        [h0, h1, h2, h3, c0, c1, k0, k1]
    }

    /// Writes the control register. While LN is enabled, line size and limit do not change (the standard leaves the
    /// effect undefined); otherwise one write may set them and the enable bit together. A limit above the
    /// capability's maximum is set to the maximum; an unsupported line size leaves the hardwired one.
    pub fn write_control(&mut self, value: u16) -> ControlChange {
        let enable = value & ENABLE != 0;
        if self.enabled {
            // The enable bit alone may change, so it is no refused write.
            if (value ^ self.control()) & !ENABLE & (CLS | (EXPONENT << 8)) != 0 {
                self.refused_writes += 1;
            }
        } else {
            let [limit, _] = (value & (EXPONENT << 8)).to_be_bytes();
            self.limit = limit.min(self.max);
            if self.supported == Supported::Both {
                self.line = if value & CLS == 0 { LineSize::B64 } else { LineSize::B128 };
            }
        }
        let before = core::mem::replace(&mut self.enabled, enable);
        match (before, enable) {
            (false, true) => ControlChange::Enabled,
            (true, false) => ControlChange::Disabled,
            _ => ControlChange::None,
        }
    }
}
