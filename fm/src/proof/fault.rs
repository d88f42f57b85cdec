//! What is wrong with tables.
//!
//! [`Fault`]; [`Channel`], the part of it that names a link's direction.
//!
//! Source: docs/spec/cxl-fabric.md "Routes".

use std::fmt;

use weft_parsers::fabric::Pid;

use crate::graph::{PortRef, SwitchId};

/// One direction of a link: what a packet holds a buffer of while it waits for the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Channel {
    /// Into the fabric.
    In(PortRef),
    /// From one switch to another.
    Isl {
        /// Port it leaves by.
        from: PortRef,
        /// Port it comes in by.
        to: PortRef,
    },
    /// Out of the fabric.
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
    /// Packets could wait for each other for ever.
    #[error("channels wait for each other in a cycle: {}", Circle(.0))]
    Circle(Vec<Channel>),
    /// A packet could come back to where it was.
    #[error("packets to {to} can loop back to {at}")]
    Loop {
        /// Its destination.
        to: Pid,
        /// Where.
        at: SwitchId,
    },
    /// A packet that has a way is dropped.
    #[error("packets to {to} are lost at {at}")]
    Lost {
        /// Its destination.
        to: Pid,
        /// Where.
        at: SwitchId,
    },
    /// An entry for a destination that cannot be reached.
    #[error("{at} has an entry for {to}, which cannot be reached from there")]
    Stray {
        /// The destination.
        to: Pid,
        /// Where.
        at: SwitchId,
    },
    /// A port that leads nowhere, or to somebody else.
    #[error("packets to {to} leave by {at}, which does not lead there")]
    Misled {
        /// Its destination.
        to: Pid,
        /// Where.
        at: PortRef,
    },
    /// A route names a routing group that does not exist.
    #[error("the entry of {at} for {to} names a routing group that does not exist")]
    NoGroup {
        /// The destination.
        to: Pid,
        /// Where.
        at: SwitchId,
    },
    /// A packet waits for a channel that does not stand behind the one it holds.
    #[error(
        "{held} has place {held_at} in the order of channels, but {wanted}, which its packets wait for, has place {wanted_at}"
    )]
    Backwards {
        /// What it holds.
        held: Channel,
        /// Its place.
        held_at: usize,
        /// What it waits for.
        wanted: Channel,
        /// Its place.
        wanted_at: usize,
    },
    /// The order does not have each channel exactly once.
    #[error("the order of channels lacks {0}, or has it twice")]
    Order(Channel),
    /// Requests and what answers them share a priority, perhaps by way of others.
    #[error("messages of priority {0} wait for answers of priority {0}")]
    Answers(u8),
    /// More hops than were promised.
    #[error("a packet can take {got} hops; the bound is {bound}")]
    Hops {
        /// As counted.
        got: u32,
        /// As promised.
        bound: u32,
    },
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
