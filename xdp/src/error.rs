//! Why there is no fast path.
//!
//! [`Unavailable`] from the build, [`XdpError`] from the kernel, each with what was tried.
//!
//! Source: ARCHITECTURE.md "Time, errors, unsafe".

use std::io;

use aya::maps::MapError;
use aya::maps::xdp::XdpMapError;
use aya::programs::ProgramError;

/// The program could not be built when weft was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not built: {0}")]
pub struct Unavailable(pub &'static str);

/// Why the XDP program or its maps cannot be used: the call that the kernel refused.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// There is no program.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The object or its maps.
    #[error("load the XDP program")]
    Load(#[from] Box<aya::EbpfError>),
    /// A program that the object should have, or that the verifier refuses.
    #[error("program {name}")]
    Program {
        /// Its name.
        name: &'static str,
        /// The kernel's answer.
        source: Box<ProgramError>,
    },
    /// A program or map that the object should have.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// A map refused a value.
    #[error("map {name}")]
    Map {
        /// Its name.
        name: &'static str,
        /// The kernel's answer.
        source: Box<MapError>,
    },
    /// An interface that cannot be an output.
    #[error("redirect to interface {ifindex}")]
    Output {
        /// Its index.
        ifindex: u32,
        /// The kernel's answer.
        source: Box<XdpMapError>,
    },
    /// A map that cannot be seen in memory.
    #[error("mmap of map {name}")]
    Mmap {
        /// Its name.
        name: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A number out of range.
    #[error("{what} is {had}, must be {want}")]
    Range {
        /// Of what.
        what: &'static str,
        /// Its value.
        had: u64,
        /// What is possible.
        want: &'static str,
    },
}

impl XdpError {
    pub(crate) fn map(name: &'static str) -> impl FnOnce(MapError) -> Self {
        move |source| Self::Map { name, source: Box::new(source) }
    }

    pub(crate) fn program(name: &'static str) -> impl FnOnce(ProgramError) -> Self {
        move |source| Self::Program { name, source: Box::new(source) }
    }
}
