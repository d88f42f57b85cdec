//! The host's software: finds what is there, gives it numbers and addresses, and switches it on.
//!
//! [`Enumerator::step`] asks for one access, [`Enumerator::answer`] is told how it went; at the
//! end there is a [`Tree`]. [`enumerate`] and its kin are that in a loop over a [`ConfigAccess`].
//!
//! Units: bytes, nanoseconds.
//! Source: PCI-to-PCI Bridge 1.2 §3.2; PCIe 6.0 §2.3.1 (retry status), §6.7 (hot plug), §7.5.1.
//!
//! Nothing runs but within `step`, and the state between two steps is plain data. Broken functions are
//! left out, or used as far as possible, and [`Tree::problems`] says why.

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

/// A way to configuration registers.
pub trait ConfigAccess {
    /// Reads a register; `None`, or all ones, where nothing answers.
    fn read(&mut self, bdf: Bdf, reg: Reg) -> Option<u32>;
    /// Writes a register, or some bytes of it.
    fn write(&mut self, bdf: Bdf, reg: Reg, value: u32, enables: ByteEnables);
    /// Reads a register in memory; `None` where nothing answers.
    fn load(&mut self, addr: Hpa) -> Option<u32> {
        let _ = addr;
        None
    }
    /// Writes a register in memory.
    fn store(&mut self, addr: Hpa, value: u32) {
        let _ = (addr, value);
    }
    /// Lets `ns` pass, for a function that is not ready.
    fn wait(&mut self, ns: u64) {
        let _ = ns;
    }
}

/// The next step of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do this, and tell [`Enumerator::answer`].
    Do(Request),
    /// It is finished: [`Enumerator::result`].
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

    /// Enumerates everything.
    #[must_use]
    pub fn all(host: HostSpec) -> Self {
        Self::start(Scanner::all(host))
    }

    /// Enumerates anew what is below the bridge at `bdf`, within its bus numbers and windows.
    #[must_use]
    pub fn rescan(host: HostSpec, tree: Tree, bdf: Bdf) -> Self {
        Self::start(Scanner::rescan(host, tree, bdf))
    }

    /// Answers an interrupt of the slot at `bdf`: takes out what is gone, enumerates what has come.
    #[must_use]
    pub fn service(host: HostSpec, tree: Tree, bdf: Bdf) -> Self {
        Self::start(Scanner::service(host, tree, bdf))
    }

    /// Gives the device at `bdf` a `CacheID`, or takes it back: [`Self::cache_id_result`].
    #[must_use]
    pub fn cache_id(host: HostSpec, tree: Tree, bdf: Bdf, cache_id: Option<u8>) -> Self {
        Self::start(Scanner::cache_id(host, tree, bdf, cache_id))
    }

    /// How that ended; `None` before, and of another enumeration.
    #[must_use]
    pub const fn cache_id_result(&self) -> Option<Result<(), CacheIdFailure>> {
        self.scanner.cache_id
    }

    /// `CacheID`s that were given to a device or taken from one: who had them before is not reached by them any more.
    pub fn moved_cache_ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.scanner.moved_cache_ids.iter().copied()
    }

    /// Reads the CDATs of these functions: [`Self::cdats`].
    #[must_use]
    pub fn cdat(host: HostSpec, tree: Tree, functions: &[Bdf]) -> Self {
        Self::start(Scanner::cdat(host, tree, functions))
    }

    /// CDATs that were read, or why not.
    #[must_use]
    pub fn cdats(&self) -> &[CdatRead] {
        &self.scanner.cdats
    }

    /// Places no memory of devices where the host has memory of its own.
    #[must_use]
    pub fn beside(mut self, memory: Vec<Window>) -> Self {
        self.scanner.memory = memory;
        self
    }

    /// What is to be done; the same again until it is answered.
    pub fn step(&mut self) -> Step {
        if self.outcome.is_none() && self.scanner.wire.request().is_none() {
            self.outcome = self.scanner.advance();
        }
        self.scanner.wire.request().map_or(Step::Done, Step::Do)
    }

    /// Tells what the request has brought: a register's value, or `None` where nothing answered.
    pub fn answer(&mut self, value: Option<u32>) {
        self.scanner.wire.answer(value);
    }

    /// The tree, once it is finished.
    #[must_use]
    pub const fn result(&self) -> Option<&Result<Tree, EnumerateError>> {
        self.outcome.as_ref()
    }

    /// Accesses and pauses so far.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.scanner.wire.count()
    }

    /// Runs to the end over `access`.
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
        self.outcome.unwrap_or_else(|| Ok(Tree::default()))
    }
}

/// Enumerates everything over `access`.
///
/// # Errors
/// See [`EnumerateError`].
pub fn enumerate(host: HostSpec, access: &mut impl ConfigAccess) -> Result<Tree, EnumerateError> {
    Enumerator::all(host).run(access)
}

#[cfg(test)]
mod tests;
