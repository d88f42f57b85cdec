//! Proof that no packet is lost, loops or waits for ever: a certificate that is checked without the code that made it.
//!
//! A [`Proof`] is an order of all channels. [`Proof::check`] follows the tables again and checks that every packet
//! waits only for channels that come later in the order than the one it holds.
//!
//! Source: docs/spec/cxl-fabric.md "Routes"; Dally and Seitz, IEEE Trans. Computers C-36(5), 1987.
//!
//! # The claim
//! A channel is one direction of a link in one priority: a lossless buffer of its own. A packet holds a channel and
//! waits for the next one in the same priority. At an endpoint it waits for nothing, unless its class is answered: then
//! it waits until the answer has a place in the channel into the fabric, in the answer's priority. Suppose that all
//! channels are in an order in which every wait goes forwards. Then the last channel that holds a packet waits for
//! nothing; that packet moves on, and so in turn do all others.
//!
//! Tables do not depend on priorities. So there is one order of priorities and one of links, and together they order
//! all channels: first by priority, then by link.
//!
//! # Assumptions
//! Endpoints always sink posted TLPs and completions, and all classes that [`Traffic`] calls not answered, whatever
//! else they wait for. Hierarchical TLPs share one FIFO with the requests among them, so endpoints must have room for
//! all outstanding requests, whose number tags bound. A fabric whose endpoints cannot promise this describes them so in
//! [`Traffic`], and the proof fails, as it should.

mod fault;
pub(crate) mod walk;

use std::collections::BTreeMap;
use std::fmt;

use weft_parsers::fabric::Pid;

pub use self::fault::{Channel, Fault};
pub use self::walk::Counts;
use self::walk::{ChannelId, Channels, Walk};
use crate::model::graph::{Graph, Per};
use crate::plan::tables::Tables;

/// A class of messages that share a FIFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Class {
    pub name: &'static str,
    /// Lossless priority of the class.
    pub pri: u8,
    /// Priority of the answers for which endpoints must have room before they take a message; `None` if they always
    /// take it.
    pub answered_in: Option<u8>,
}

/// The classes of messages in the fabric, and their priorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    pub classes: Vec<Class>,
}

impl Traffic {
    /// UIO requests, answered by UIO completions, and hierarchical TLPs, which endpoints always take.
    #[must_use]
    pub fn new(uio_req_pri: u8, uio_cpl_pri: u8, hierarchical_pri: u8) -> Self {
        let class = |name, pri, answered_in| Class { name, pri, answered_in };
        Self {
            classes: vec![
                class("hierarchical", hierarchical_pri, None),
                class("UIO requests", uio_req_pri, Some(uio_cpl_pri)),
                class("UIO completions", uio_cpl_pri, None),
            ],
        }
    }

    /// The priorities, each before that of its answers.
    ///
    /// # Errors
    /// No such order exists: requests wait for their own priority.
    pub fn order(&self) -> Result<Vec<u8>, Fault> {
        let mut answers: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        for class in &self.classes {
            answers.entry(class.pri).or_default().extend(class.answered_in);
            answers.entry(class.answered_in.unwrap_or(class.pri)).or_default();
        }
        // A topological sort; with 8 priorities the quadratic search costs nothing.
        let mut order = Vec::new();
        while order.len() < answers.len() {
            let waits = |pri: &u8| {
                answers.iter().any(|(from, to)| !order.contains(from) && to.contains(pri))
            };
            let next = answers.keys().find(|pri| !order.contains(pri) && !waits(pri));
            let Some(&next) = next else {
                let stuck = answers.iter().find(|(pri, to)| !order.contains(pri) && !to.is_empty());
                return Err(Fault::Answers(stuck.map_or(0, |(&pri, _)| pri)));
            };
            order.push(next);
        }
        Ok(order)
    }
}

/// Follows packets to all 4,095 PIDs, unassigned ones included: an entry for one of those is a fault, too.
fn walk<'a>(graph: &'a Graph, channels: &'a Channels, tables: &Tables) -> Result<Walk<'a>, Fault> {
    let mut walk = Walk::new(graph, channels);
    for to in (0_u16..).take(Pid::COUNT).map(Pid::from_low_bits) {
        walk.follow(tables, to)?;
    }
    Ok(walk)
}

/// Statistics of a check of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofStats {
    pub counts: Counts,
    /// Number of channels: directions of links.
    pub channels: usize,
    /// Number of pairs of channels in which packets of one wait for the other.
    pub waits: u64,
}

/// An order of all channels in which packets wait forwards only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Priorities, first to last.
    pub priorities: Vec<u8>,
    /// The channels within each priority, first to last.
    pub channels: Vec<Channel>,
    /// Most hops of any packet, whichever ports of groups it takes.
    pub hops_max: u32,
    traffic: Traffic,
}

impl Proof {
    /// Proves tables: finds an order of all channels in which packets wait forwards only.
    ///
    /// # Errors
    /// The tables lose packets, loop them, mislead them, or let them wait in a cycle.
    pub fn find(graph: &Graph, tables: &Tables, traffic: &Traffic) -> Result<Self, Fault> {
        let priorities = traffic.order()?;
        let channels = Channels::new(graph);
        let walk = walk(graph, &channels, tables)?;
        let order = walk.order()?;
        Ok(Self {
            priorities,
            channels: order.into_iter().map(|id| channels.list[id]).collect(),
            hops_max: walk.counts.hops_max,
            traffic: traffic.clone(),
        })
    }

    /// Checks the proof against the tables, and that every packet arrives within [`hops_max`](Self::hops_max) hops. It
    /// collects all waits anew, and sorts nothing.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self, graph: &Graph, tables: &Tables) -> Result<ProofStats, Fault> {
        self.check_priorities()?;
        let channels = Channels::new(graph);
        let walk = walk(graph, &channels, tables)?;
        // `places` refuses an order that lacks a channel or has one twice: both would hide a wait.
        let place = self.places(&channels)?;
        let mut waits = 0;
        for held in channels.list.keys() {
            for wanted in walk.wanted(held) {
                waits += 1;
                if place[held] >= place[wanted] {
                    let (held_at, wanted_at) = (place[held], place[wanted]);
                    let (held, wanted) = (channels.list[held], channels.list[wanted]);
                    return Err(Fault::Backwards { held, held_at, wanted, wanted_at });
                }
            }
        }
        if walk.counts.hops_max > self.hops_max {
            return Err(Fault::Hops { got: walk.counts.hops_max, bound: self.hops_max });
        }
        Ok(ProofStats { counts: walk.counts, channels: channels.list.len(), waits })
    }

    /// Checks that every class comes before its answers.
    fn check_priorities(&self) -> Result<(), Fault> {
        let place = |pri| self.priorities.iter().position(|&at| at == pri);
        for class in &self.traffic.classes {
            let here = place(class.pri).ok_or(Fault::Answers(class.pri))?;
            if let Some(answer) = class.answered_in
                && place(answer).is_none_or(|there| there <= here)
            {
                return Err(Fault::Answers(class.pri));
            }
        }
        Ok(())
    }

    /// The place of each channel in the order, in which each must stand exactly once.
    fn places(&self, channels: &Channels) -> Result<Per<ChannelId, usize>, Fault> {
        let by_name: BTreeMap<Channel, ChannelId> =
            channels.list.iter().map(|(id, &channel)| (channel, id)).collect();
        let mut place = Per::new(channels.list.len(), usize::MAX);
        for (at, channel) in self.channels.iter().enumerate() {
            match by_name.get(channel) {
                Some(&id) if place[id] == usize::MAX => place[id] = at,
                _ => return Err(Fault::Order(*channel)),
            }
        }
        let lacking = place.iter().find(|(_, at)| **at == usize::MAX).map(|(id, _)| id);
        lacking.map_or(Ok(place), |id| Err(Fault::Order(channels.list[id])))
    }
}

impl fmt::Display for Proof {
    /// The order: a line for common facts, and one for every eight channels.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "packets wait only for channels further down; none takes more than {} hops",
            self.hops_max
        )?;
        writeln!(f, "first by priority:")?;
        for pri in &self.priorities {
            for class in self.traffic.classes.iter().filter(|class| class.pri == *pri) {
                write!(f, "  {pri}: {}", class.name)?;
                match class.answered_in {
                    Some(answer) => writeln!(f, ", answered in {answer}")?,
                    None => writeln!(f, ", always taken by endpoints")?,
                }
            }
        }
        writeln!(f, "then by link ({} channels):", self.channels.len())?;
        for line in self.channels.chunks(8) {
            f.write_str(" ")?;
            for channel in line {
                write!(f, " {channel}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
