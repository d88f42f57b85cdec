//! Opcode of a command: 16 bits, command set above command.
//!
//! The table in `commands` names and lists them.
//!
//! Source: docs/spec/wire-formats.md §4.1; CXL 3.1 section 8.2.9.

use core::fmt;

/// Opcode of a CCI command: command set and command.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Opcode(pub u16);

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04X}h {}", self.0, self.name().unwrap_or("unknown"))
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#06x})", self.0)
    }
}
