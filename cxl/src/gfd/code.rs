//! Return codes of commands, as far as this device returns them. A command is `Result<Answer, ReturnCode>`, where `Ok`
//! is Success.
//!
//! Source: docs/spec/wire-formats.md §4.1.

/// Why a command was refused; its number is the one on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum ReturnCode {
    /// Success. Listed for its number; no method returns it as an error.
    #[error("success")]
    Success = 0,
    /// A field has a value that is never valid, or not in the present state.
    #[error("invalid input")]
    InvalidInput = 2,
    /// The device does not offer this.
    #[error("unsupported")]
    Unsupported = 3,
    /// The memory behind the device failed.
    #[error("internal error")]
    InternalError = 4,
    /// The event handle is unknown.
    #[error("invalid handle")]
    InvalidHandle = 0xE,
    /// An address lies outside the range of the command.
    #[error("invalid physical address")]
    InvalidPhysicalAddress = 0xF,
    /// No room: free blocks, extents or tags have run out.
    #[error("resources exhausted")]
    ResourcesExhausted = 0x1D,
    /// A list of extents is empty, misaligned or overlaps itself, or names memory that is not allocated.
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
