//! Errors: why there is no fast path in the kernel.
//!
//! Source: ARCHITECTURE.md "Time, errors, unsafe".

use std::io;

use aya::maps::MapError;
use aya::maps::xdp::XdpMapError;
use aya::programs::ProgramError;

/// The program was not built into this weft, for this reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not built: {0}")]
pub struct Unavailable(pub &'static str);

/// Why the XDP program or its maps cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// This build has no program.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The kernel refused the object or its maps.
    #[error("load the XDP program")]
    Load(#[from] Box<aya::EbpfError>),
    /// A program that the verifier refuses, or that is of the wrong kind.
    #[error("program {name}")]
    Program { name: &'static str, source: Box<ProgramError> },
    /// The object lacks this program or map.
    #[error("the object has no {0}")]
    Missing(&'static str),
    /// A map refused a value.
    #[error("map {name}")]
    Map { name: &'static str, source: Box<MapError> },
    /// The interface cannot be an output.
    #[error("redirect to interface {ifindex}")]
    Output { ifindex: u32, source: Box<XdpMapError> },
    /// A map cannot be mapped into memory.
    #[error("mmap of map {name}")]
    Mmap { name: &'static str, source: io::Error },
    /// A number is out of range.
    #[error("{what} is {had}, must be {want}")]
    Range {
        /// Name of the number.
        what: &'static str,
        had: u64,
        /// The range that is possible.
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
