//! Memory of an endpoint itself, as commands to store and peek reach it.
//!
//! [`OwnMemory`] is what [`super::slices`] works on, a slice at a time.
//!
//! Units: bytes.
//! Source: docs/endpoint.md "Control socket".

use weft_cxl::cxl_host::{CpuAccess, CpuStep};
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

    /// Reads as many bytes from the front as can be read at once. Memory of a host may be in caches of devices, which are asked
    /// for it: then the first bytes wait.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn load(&mut self, at: u64, into: &mut [u8]) -> Result<CpuStep, Refused> {
        self.read(at, into).map(|()| CpuStep::Done(into.len()))
    }

    /// Writes as many bytes from the front as can be written at once, as [`Self::load`].
    ///
    /// # Errors
    /// As [`Self::write`].
    fn store(&mut self, at: u64, data: &[u8]) -> Result<CpuStep, Refused> {
        self.write(at, data).map(|()| CpuStep::Done(data.len()))
    }

    /// What came of bytes that waited; `None` while they do.
    fn ended(&mut self, _: CpuAccess) -> Option<Result<Vec<u8>, Refused>> {
        None
    }
}
