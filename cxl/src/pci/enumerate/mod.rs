//! The host's software: finds what is there, gives it numbers and addresses, and switches it on.
//!
//! Shape: [`Enumerator::step`] asks for one access, [`Enumerator::answer`] is told how it went; at the
//! end there is a [`Tree`]. [`enumerate`] and its kin are that in a loop over a [`ConfigAccess`].
//! Units: bytes, nanoseconds.
//! Source: PCI-to-PCI Bridge 1.2 §3.2; PCIe 6.0 §2.3.1 (retry status), §6.7 (hot plug), §7.5.1.
//!
//! Nothing runs but within `step`, and the state between two steps is plain data. Broken functions are
//! left out, or used as far as possible, and [`Tree::problems`] says why.

pub mod assign;
mod scan;
mod wire;

use weft_parsers::fabric::Bdf;

use super::bridge::{Window, Windows};
use super::space::{ByteEnables, Reg};
use super::tree::Tree;
use scan::Scanner;

/// A way to configuration registers.
pub trait ConfigAccess {
    /// Reads a register; `None`, or all ones, where nothing answers.
    fn read(&mut self, bdf: Bdf, reg: Reg) -> Option<u32>;
    /// Writes a register, or some bytes of it.
    fn write(&mut self, bdf: Bdf, reg: Reg, value: u32, enables: ByteEnables);
    /// Lets `ns` pass, for a function that is not ready.
    fn wait(&mut self, ns: u64) {
        let _ = ns;
    }
}

/// What is kept free below each hot-plug slot, beyond what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// Bus numbers besides the slot's own.
    pub buses: u8,
    /// I/O ports, as far as there is room.
    pub io: u64,
    /// Bytes of memory below 4 GiB, as far as there is room.
    pub mem: u64,
    /// Bytes of prefetchable memory, as far as there is room.
    pub pref: u64,
}

/// What the host has to give away, and how patient it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Bus of its root ports.
    pub bus_first: u8,
    /// Last bus.
    pub bus_last: u8,
    /// Addresses of I/O, memory below 4 GiB, and prefetchable memory, which may be above.
    pub apertures: Windows,
    /// Kept for hot plug.
    pub reserve: Reserve,
    /// How often a function that is not ready is asked again.
    pub retries: u16,
    /// Pause between two such questions.
    pub retry_ns: u64,
    /// Accesses after which it gives up.
    pub accesses_max: u64,
    /// Where bridges send their interrupts, with their BDF as data; `None` for no hot plug.
    pub msi: Option<u64>,
}

impl Default for HostSpec {
    fn default() -> Self {
        Self {
            bus_first: 0,
            bus_last: 255,
            apertures: Windows {
                io: Some(Window { base: 0x1000, limit: 0xFFFF }),
                mem: Some(Window { base: 0x8000_0000, limit: 0xDFFF_FFFF }),
                pref: Some(Window { base: 0x40_0000_0000, limit: 0x7F_FFFF_FFFF }),
            },
            reserve: Reserve { buses: 2, io: 0x1000, mem: 2 << 20, pref: 2 << 20 },
            retries: 100,
            retry_ns: 10_000_000,
            accesses_max: 4_000_000,
            msi: Some(0xFEE0_0000),
        }
    }
}

/// Why there is no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnumerateError {
    /// A tree that does not end, or registers that answer anything.
    #[error("gave up after {max} accesses")]
    TooManyAccesses {
        /// Allowed.
        max: u64,
    },
    /// The function is not in the tree, or not a bridge with a bus below.
    #[error("{bdf} is no bridge with a bus below it")]
    NoBridge {
        /// Who.
        bdf: Bdf,
    },
}

/// An access, or a pause, that the enumerator asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read a register.
    Read {
        /// Whose.
        bdf: Bdf,
        /// Which.
        reg: Reg,
    },
    /// Write a register; the answer's value does not matter.
    Write {
        /// Whose.
        bdf: Bdf,
        /// Which.
        reg: Reg,
        /// Value.
        value: u32,
        /// Bytes of it.
        enables: ByteEnables,
    },
    /// Let time pass; the answer's value does not matter.
    Wait {
        /// How much.
        ns: u64,
    },
}

/// What comes next.
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
