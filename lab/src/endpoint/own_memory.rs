//! Memory of an endpoint itself, as commands to store and peek reach it.
//!
//! Shape: [`OwnMemory`] is what [`super::slices`] works on, a slice at a time.
//! Units: bytes.
//! Source: docs/endpoint.md "Control socket".

use weft_rpc::Refused;

/// Memory of an endpoint that a command reaches past its links.
pub trait OwnMemory {
    /// Refuses a range that is not there, whole.
    ///
    /// # Errors
    /// What is missing.
    fn check(&self, at: u64, len: u64) -> Result<(), Refused>;

    /// Reads bytes.
    ///
    /// # Errors
    /// They are not there, poisoned, or the memory fails.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Refused>;

    /// Writes bytes.
    ///
    /// # Errors
    /// They are not there, or the memory fails.
    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Refused>;
}
