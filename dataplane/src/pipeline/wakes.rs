//! Wakes: which ports of a lane have something to do of their own accord, in virtual time.
//!
//! Shape: a port and when it is due → the ports that are due, and when the first is.
//! Units: [`Instant`].
//! Source: docs/spec/model.md §1.

use crate::time::Instant;
use crate::types::{PerPort, PortId, PortSet};

/// When each port of a lane is due, by place in the lane.
#[derive(Default)]
pub(super) struct Wakes {
    ports: PortSet,
    at: PerPort<Instant>,
}

impl Wakes {
    /// Sets when `port` is due, if ever.
    #[inline]
    pub fn set(&mut self, port: PortId, at: Option<Instant>) {
        if let Some(at) = at {
            self.at[port] = at;
            self.ports.insert(port);
        } else {
            self.ports.remove(port);
        }
    }

    /// Has `port` due at `at`, unless it is before.
    #[inline]
    pub fn bring_forward(&mut self, port: PortId, at: Instant) {
        if !self.ports.contains(port) || at < self.at[port] {
            self.set(port, Some(at));
        }
    }

    /// Ports that are due by `now`.
    #[inline]
    pub fn due(&self, now: Instant) -> PortSet {
        self.ports.iter().filter(|&port| self.at[port] <= now).collect()
    }

    /// When the first port is due.
    #[inline]
    pub fn first(&self) -> Option<Instant> {
        self.ports.iter().map(|port| self.at[port]).min()
    }
}
