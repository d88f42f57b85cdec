//! The way of requests from the entry switch to a component, through up to two tunnels.
//!
//! Source: docs/spec/wire-formats.md §4.1, §4.5 (5701h).

use std::fmt;

use weft_parsers::fabric::Pid;

/// The tunnels that a component's requests go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The entry switch itself.
    Entry,
    /// The component behind a port of the entry switch.
    Port(u8),
    /// A component by its PID.
    Pid(Pid),
    /// The component behind a port of the switch with a PID.
    Behind(Pid, u8),
}

impl Way {
    /// The way to the component behind a port of the switch that `self` leads to; `None` if two tunnels do not reach
    /// it.
    #[must_use]
    pub const fn behind(self, port: u8) -> Option<Self> {
        match self {
            Self::Entry => Some(Self::Port(port)),
            Self::Pid(pid) => Some(Self::Behind(pid, port)),
            Self::Port(_) | Self::Behind(..) => None,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry => f.write_str("the entry switch"),
            Self::Port(port) => write!(f, "the component behind port {port} of the entry switch"),
            Self::Pid(pid) => write!(f, "PID {pid}"),
            Self::Behind(pid, port) => write!(f, "the component behind port {port} of PID {pid}"),
        }
    }
}
