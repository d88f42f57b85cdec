//! Return codes of commands, as far as this device gives them.
//! [`ReturnCode`]; a command is `Result<Answer, ReturnCode>`, where `Ok` is Success.
//!
//! Source: docs/spec/wire-formats.md §4.1.

/// Why a command was refused; its number is the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum ReturnCode {
    /// Done. Stands here for its number; no method returns it as an error.
    #[error("success")]
    Success = 0,
    /// A field has a value that it may not have, now or ever.
    #[error("invalid input")]
    InvalidInput = 2,
    /// The device does not do that.
    #[error("unsupported")]
    Unsupported = 3,
    /// The memory behind the device failed.
    #[error("internal error")]
    InternalError = 4,
    /// No such event handle.
    #[error("invalid handle")]
    InvalidHandle = 0xE,
    /// An address is outside of what the command speaks of.
    #[error("invalid physical address")]
    InvalidPhysicalAddress = 0xF,
    /// No room: free blocks, extents or tags have run out.
    #[error("resources exhausted")]
    ResourcesExhausted = 0x1D,
    /// A list of extents is empty, misaligned, overlaps itself or names what is not there.
    #[error("invalid extent list")]
    InvalidExtentList = 0x1E,
}

impl ReturnCode {
    /// Number on the wire.
    #[must_use]
    pub const fn number(self) -> u16 {
        self as u16
    }
}
