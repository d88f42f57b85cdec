//! How requests get from the entry switch to a component: through up to two tunnels.
//!
//! [`Way`], a plain value.
//!
//! Units: PIDs of 12 bits.
//! Source: docs/spec/wire-formats.md §4.1, §4.5 (5701h).

use std::fmt;

use weft_parsers::fabric::Pid;

/// The way to a component from the entry switch: which tunnels its requests go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// The entry switch itself.
    Entry,
    /// Whoever is behind a port of the entry switch.
    Port(u8),
    /// A component that has a PID.
    Pid(Pid),
    /// Whoever is behind a port of a switch that has a PID.
    Behind(Pid, u8),
}

impl Way {
    /// The way to whoever is behind a port of the switch that this leads to; none where two tunnels do not reach.
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
