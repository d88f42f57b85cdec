//! Faults of routing tables that the proof finds.
//!
//! A [`Channel`] names the direction of a link that a fault is about.
//!
//! Source: docs/spec/cxl-fabric.md "Routes".

use std::fmt;

use weft_parsers::fabric::Pid;

use crate::model::graph::{PortRef, SwitchId};

/// One direction of a link. A packet holds a buffer of it while it waits for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// From an edge port into the fabric.
    In(PortRef),
    /// From one switch to another.
    Isl { from: PortRef, to: PortRef },
    /// Out of the fabric, at an edge port or into the switch itself.
    Out(PortRef),
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::In(at) => write!(f, "->{at}"),
            Self::Isl { from, to } => write!(f, "{from}->{to}"),
            Self::Out(at) => write!(f, "{at}->"),
        }
    }
}

/// Why tables cannot be used, or a proof does not hold for them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// Packets could wait for each other for ever: a deadlock.
    #[error("channels wait for each other in a cycle: {}", Circle(.0))]
    Circle(Vec<Channel>),
    /// A packet could return to a switch.
    #[error("packets to {to} can loop back to {at}")]
    Loop { to: Pid, at: SwitchId },
    /// A packet is dropped although links lead to its destination.
    #[error("packets to {to} are lost at {at}")]
    Lost { to: Pid, at: SwitchId },
    /// An entry for a destination that cannot be reached.
    #[error("{at} has an entry for {to}, which cannot be reached from there")]
    Stray { to: Pid, at: SwitchId },
    /// An entry names a port that leads nowhere, or to something else.
    #[error("packets to {to} leave by {at}, which does not lead there")]
    Misled { to: Pid, at: PortRef },
    /// A route names a routing group that does not exist.
    #[error("the entry of {at} for {to} names a routing group that does not exist")]
    NoGroup { to: Pid, at: SwitchId },
    /// A packet waits for a channel that does not come after the one it holds.
    #[error(
        "{held} has place {held_at} in the order of channels, but {wanted}, which its packets wait for, has place {wanted_at}"
    )]
    Backwards {
        /// Channel that the packet holds.
        held: Channel,
        /// Place of `held` in the order.
        held_at: usize,
        /// Channel that the packet waits for.
        wanted: Channel,
        /// Place of `wanted` in the order.
        wanted_at: usize,
    },
    /// The order does not have each channel exactly once.
    #[error("the order of channels lacks {0}, or has it twice")]
    Order(Channel),
    /// Requests and their answers share a priority, perhaps through others.
    #[error("messages of priority {0} wait for answers of priority {0}")]
    Answers(u8),
    /// A packet can take more hops than the proof promises.
    #[error("a packet can take {got} hops; the bound is {bound}")]
    Hops { got: u32, bound: u32 },
}

struct Circle<'a>(&'a [Channel]);

impl fmt::Display for Circle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, channel) in self.0.iter().enumerate() {
            write!(f, "{}{channel}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
