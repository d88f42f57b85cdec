//! Enumeration by the host's software: finds bridges and functions, assigns numbers and addresses, enables them.
//!
//! The caller carries out the access that [`Enumerator::step`] asks for and passes its result to
//! [`Enumerator::answer`]; at the end there is a [`Tree`]. [`enumerate`] is that loop over a [`ConfigAccess`].
//!
//! Units: bytes, nanoseconds.
//! Source: PCI-to-PCI Bridge 1.2 §3.2; PCIe 6.0 §2.3.1 (retry status), §6.7 (hot plug), §7.5.1.
//!
//! Work happens in `step` alone, and the state between two steps is plain data. Broken functions are left out, or
//! used as far as possible, and [`Tree::problems`] says why.

pub mod assign;
mod ln;
mod scan;
mod spec;
mod wire;

use weft_parsers::fabric::{Bdf, Hpa};

use super::bridge::Window;
use super::space::{ByteEnables, Reg};
use super::tree::Tree;
pub use ln::LnSettings;
use scan::Scanner;
pub use scan::cache_id::CacheIdFailure;
pub use scan::cdat::{CdatFailure, CdatRead};
pub use spec::{EnumerateError, HostSpec, Request, Reserve};

/// Access to configuration registers, and to registers in memory.
pub trait ConfigAccess {
    /// Reads a register; `None`, or all ones, if nothing answers.
    fn read(&mut self, bdf: Bdf, reg: Reg) -> Option<u32>;
    /// Writes the enabled bytes of a register.
    fn write(&mut self, bdf: Bdf, reg: Reg, value: u32, enables: ByteEnables);
    /// Reads a register in memory; `None` if nothing answers.
    fn load(&mut self, addr: Hpa) -> Option<u32> {
        let _ = addr;
        None
    }
    /// Writes a register in memory.
    fn store(&mut self, addr: Hpa, value: u32) {
        let _ = (addr, value);
    }
    /// Waits for `ns` nanoseconds, for a function that is not ready.
    fn wait(&mut self, ns: u64) {
        let _ = ns;
    }
}

/// The next step of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Carry out this request, and call [`Enumerator::answer`].
    Do(Request),
    /// Finished: see [`Enumerator::result`].
    Done,
}

/// Enumeration as a state machine.
#[derive(Clone, Debug)]
pub struct Enumerator {
    scanner: Scanner,
    outcome: Option<Result<Tree, EnumerateError>>,
}

impl Enumerator {
    const fn start(scanner: Scanner) -> Self {
        Self { scanner, outcome: None }
    }

    /// Enumerates the whole hierarchy.
    #[must_use]
    pub fn all(host: HostSpec) -> Self {
        Self::start(Scanner::all(host))
    }

    /// Enumerates again below the bridge at `bdf`, within its bus numbers and windows.
    #[must_use]
    pub fn rescan(host: HostSpec, tree: Tree, bdf: Bdf) -> Self {
        Self::start(Scanner::rescan(host, tree, bdf))
    }

    /// Services an interrupt of the slot at `bdf`: removes nodes that have left, and enumerates new ones.
    #[must_use]
    pub fn service(host: HostSpec, tree: Tree, bdf: Bdf) -> Self {
        Self::start(Scanner::service(host, tree, bdf))
    }

    /// Gives the device at `bdf` a `CacheID`, or takes it away; the result is [`Self::cache_id_result`].
    #[must_use]
    pub fn cache_id(host: HostSpec, tree: Tree, bdf: Bdf, cache_id: Option<u8>) -> Self {
        Self::start(Scanner::cache_id(host, tree, bdf, cache_id))
    }

    /// Result of [`Self::cache_id`]; `None` before its end, and for other enumerations.
    #[must_use]
    pub const fn cache_id_result(&self) -> Option<Result<(), CacheIdFailure>> {
        self.scanner.cache_id
    }

    /// `CacheID`s that were given to a device or taken from one: they do not reach the cache that had them before.
    pub fn moved_cache_ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.scanner.moved_cache_ids.iter().copied()
    }

    /// Reads the CDATs of these functions; the result is [`Self::cdats`].
    #[must_use]
    pub fn cdat(host: HostSpec, tree: Tree, functions: &[Bdf]) -> Self {
        Self::start(Scanner::cdat(host, tree, functions))
    }

    /// CDATs that were read, or the failure of each.
    #[must_use]
    pub fn cdats(&self) -> &[CdatRead] {
        &self.scanner.cdats
    }

    /// Reserves `memory`, the host's own, so that no device memory is placed there.
    #[must_use]
    pub fn beside(mut self, memory: Vec<Window>) -> Self {
        self.scanner.memory = memory;
        self
    }

    /// The next request; the same one until it is answered.
    pub fn step(&mut self) -> Step {
        // With a request outstanding the job would only stop at it again.
        if self.outcome.is_none() && self.scanner.wire.request().is_none() {
            self.outcome = self.scanner.advance();
        }
        self.scanner.wire.request().map_or(Step::Done, Step::Do)
    }

    /// Passes in the result of the request: a register's value, or `None` if nothing answered.
    pub fn answer(&mut self, value: Option<u32>) {
        self.scanner.wire.answer(value);
    }

    /// The tree or an error, once the enumeration is finished.
    #[must_use]
    pub const fn result(&self) -> Option<&Result<Tree, EnumerateError>> {
        self.outcome.as_ref()
    }

    /// Number of accesses and pauses so far.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.scanner.wire.count()
    }

    /// Runs to the end, with all accesses through `access`.
    ///
    /// # Errors
    /// See [`EnumerateError`].
    pub fn run(mut self, access: &mut impl ConfigAccess) -> Result<Tree, EnumerateError> {
        while let Step::Do(request) = self.step() {
            let value = match request {
                Request::Read { bdf, reg } => access.read(bdf, reg),
                Request::Write { bdf, reg, value, enables } => {
                    access.write(bdf, reg, value, enables);
                    None
                }
                Request::Load { addr } => access.load(addr),
                Request::Store { addr, value } => {
                    access.store(addr, value);
                    None
                }
                Request::Wait { ns } => {
                    access.wait(ns);
                    None
                }
            };
            self.answer(value);
        }
        // The loop ends with `Step::Done`, and that comes with an outcome.
        self.outcome.unwrap_or_else(|| Ok(Tree::default()))
    }
}

/// Enumerates the whole hierarchy, with all accesses through `access`.
///
/// # Errors
/// See [`EnumerateError`].
pub fn enumerate(host: HostSpec, access: &mut impl ConfigAccess) -> Result<Tree, EnumerateError> {
    Enumerator::all(host).run(access)
}

#[cfg(test)]
mod tests;
