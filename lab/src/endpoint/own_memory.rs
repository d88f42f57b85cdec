//! An endpoint's own memory, as the commands store and peek reach it.
//!
//! [`super::slices`] works on [`OwnMemory`] slice by slice.
//!
//! Source: docs/endpoint.md "Control socket".

use weft_cxl::cxl_host::{CpuAccess, CpuStep};
use weft_rpc::Refused;

/// Memory that a command reaches inside the endpoint, without its links.
pub trait OwnMemory {
    /// Refuses a range that is not there as a whole.
    ///
    /// # Errors
    /// The missing part.
    fn check(&self, at: u64, len: u64) -> Result<(), Refused>;

    /// Fills `into` from address `at` on.
    ///
    /// # Errors
    /// The bytes are missing or poisoned, or the memory fails.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Refused>;

    /// Writes `data` from address `at` on.
    ///
    /// # Errors
    /// The bytes are missing, or the memory fails.
    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), Refused>;

    /// Reads as many bytes from the front as are available at once. Lines of a host's memory may be in caches of
    /// devices, which must be snooped: then the first bytes wait.
    ///
    /// # Errors
    /// Like [`Self::read`].
    fn load(&mut self, at: u64, into: &mut [u8]) -> Result<CpuStep, Refused> {
        self.read(at, into).map(|()| CpuStep::Done(into.len()))
    }

    /// Writes as many bytes from the front as possible at once, like [`Self::load`].
    ///
    /// # Errors
    /// Like [`Self::write`].
    fn store(&mut self, at: u64, data: &[u8]) -> Result<CpuStep, Refused> {
        self.write(at, data).map(|()| CpuStep::Done(data.len()))
    }

    /// Result of an access that waited; `None` while it waits.
    fn ended(&mut self, _: CpuAccess) -> Option<Result<Vec<u8>, Refused>> {
        None
    }
}
