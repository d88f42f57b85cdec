//! Flows over several links: LAGs without LACP, and static stations behind several ports.
//!
//! [`Links`] is compiled from [`Lag`]s and from stations with their ports. It gives the port that a
//! port stands for, and the one of several ports that a flow takes; [`Joined`] is the set of links
//! that take flows now. A LAG is named by its lowest port.
//!
//! Times are [`Instant`]s.
//! Source: IEEE 802.1AX-2020 clauses 6.2.3 (distribution) and 6.2.4 (collection); Thaler and
//! Ravishankar, "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on
//! Networking 6(1), 1998 (highest random weight: a link that goes moves its own flows only).

use crate::time::{Instant, Span};
use crate::types::{PerPort, PortId, PortSet};
use weft_parsers::{AddrKey, Vid};

/// A link aggregation group (LAG): ports that together are one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Its name in every output.
    pub name: String,
    /// Its member ports, at least two.
    pub ports: PortSet,
}

/// A reason why link aggregation groups cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LagError {
    /// The LAG has fewer than two members.
    #[error("LAG {0} has fewer than two ports")]
    Few(String),
    /// The LAG has a port that does not exist.
    #[error("LAG {lag} names {port:?}, which does not exist")]
    Unknown {
        /// Name of the LAG.
        lag: String,
        /// Number of the port that the switch does not have.
        port: PortId,
    },
    /// One port is in two LAGs.
    #[error("LAGs {0} and {1} share a port")]
    Shared(String, String),
    /// Members differ in a setting that must be the same for all.
    #[error("ports of LAG {lag} differ in {what}")]
    Unlike {
        /// Name of the LAG.
        lag: String,
        /// The setting, by its name in the configuration.
        what: &'static str,
    },
    /// A static entry names a member that is not the first.
    #[error("a static entry names {port:?}, which is in LAG {lag}: name that or its first port")]
    Member {
        /// Name of the LAG.
        lag: String,
        /// The member that is named.
        port: PortId,
    },
    /// A static entry names a port that does not exist.
    #[error("a static entry names {0:?}, which does not exist")]
    NoPort(PortId),
}

/// LAGs and stations behind several ports, compiled for lookup.
#[derive(Clone, Debug)]
pub struct Links {
    /// By port: all members of its LAG; only the port itself if it is in none.
    members: PerPort<PortSet>,
    /// LAGs, as sets of their members.
    lags: Groups,
    /// Ports that are in any LAG.
    lagged: PortSet,
    /// Stations behind several ports, as sets of all links that lead there.
    spreads: Groups,
    /// Stations behind several ports: VID in bits 61:50, address key below; ascending. A port in `ports`
    /// may stand for its LAG.
    keys: Box<[u64]>,
    ports: Box<[PortSet]>,
    seed: u64,
}

impl Links {
    /// Compiles `lags` among `ports`, and `stations` with their ports.
    ///
    /// # Errors
    /// See [`LagError`].
    pub fn build(
        lags: &[Lag],
        stations: impl Iterator<Item = (Vid, AddrKey, PortSet)>,
        ports: PortSet,
        seed: u64,
    ) -> Result<Self, LagError> {
        let mut members = PerPort::from_fn(PortSet::only);
        for (at, lag) in lags.iter().enumerate() {
            if lag.ports.len() < 2 {
                return Err(LagError::Few(lag.name.clone()));
            }
            if let Some(port) = lag.ports.without(ports).lowest() {
                return Err(LagError::Unknown { lag: lag.name.clone(), port });
            }
            let before = lags.iter().take(at);
            if let Some(other) = before.into_iter().find(|o| !o.ports.and(lag.ports).is_empty()) {
                return Err(LagError::Shared(other.name.clone(), lag.name.clone()));
            }
            for port in lag.ports.iter() {
                members[port] = lag.ports;
            }
        }
        let mut sorted: Vec<(u64, PortSet)> = Vec::new();
        let mut spreads: Vec<PortSet> = Vec::new();
        for (vid, addr, spread) in stations {
            for port in spread.iter() {
                check_names(lags, ports, port)?;
            }
            if spread.len() > 1 {
                sorted.push((word(vid, addr), spread));
                spreads.push(spread.iter().flat_map(|port| members[port].iter()).collect());
            }
        }
        sorted.sort_unstable_by_key(|&(key, _)| key);
        // Stations behind the same links share a set: links join by set, not by station.
        spreads.sort_unstable_by_key(|set| set.bits());
        spreads.dedup();
        Ok(Self {
            members,
            lags: Groups::new(lags.iter().map(|lag| lag.ports).collect()),
            spreads: Groups::new(spreads),
            lagged: lags.iter().fold(PortSet::EMPTY, |all, lag| all.or(lag.ports)),
            keys: sorted.iter().map(|&(key, _)| key).collect(),
            ports: sorted.iter().map(|&(_, spread)| spread).collect(),
            seed,
        })
    }

    /// Whether any flow has a choice of links.
    #[inline]
    #[must_use]
    pub const fn is_any(&self) -> bool {
        !self.lags.sets.is_empty() || !self.keys.is_empty()
    }

    /// The port that stands for `port`: the lowest member of its LAG.
    #[inline]
    #[must_use]
    pub fn leader(&self, port: PortId) -> PortId {
        self.members[port].lowest().unwrap_or(port)
    }

    /// All ports of the LAG of `port`, or just that one.
    #[inline]
    #[must_use]
    pub fn members(&self, port: PortId) -> PortSet {
        self.members[port]
    }

    /// `ports`, and all members of each LAG of which they have one.
    #[must_use]
    pub fn expand(&self, ports: PortSet) -> PortSet {
        let touched = self.lags.sets.iter().filter(|lag| !lag.and(ports).is_empty());
        touched.fold(ports, |all, &lag| all.or(lag))
    }

    /// LAGs as sets of links, of which a flow takes one.
    #[must_use]
    pub const fn lags(&self) -> &Groups {
        &self.lags
    }

    /// Stations behind several ports as sets of links, of which a flow takes one.
    #[must_use]
    pub const fn spreads(&self) -> &Groups {
        &self.spreads
    }

    /// Ports over which the flows to a static station are spread; `None` if it is behind one port.
    #[must_use]
    pub fn station(&self, vid: Vid, addr: AddrKey) -> Option<PortSet> {
        let at = self.keys.binary_search(&word(vid, addr)).ok()?;
        self.ports.get(at).copied()
    }

    /// The one of `ports` that a flow takes to a station behind several ports. Each port stands for
    /// its LAG. Ports with a link in `joined` are preferred, then ports with a link in `able`, then
    /// any.
    #[must_use]
    pub fn pick_port(
        &self,
        ports: PortSet,
        hash: u64,
        joined: PortSet,
        able: PortSet,
    ) -> Option<PortId> {
        let with = |links: PortSet| -> PortSet {
            ports.iter().filter(|&port| !self.members[port].and(links).is_empty()).collect()
        };
        // Rotated, so that the choice within a LAG (`pick_members`) is independent of this one.
        let hash = hash.rotate_left(32);
        [with(joined.and(able)), with(able), ports]
            .into_iter()
            .find_map(|ports| highest_weight(ports, hash ^ self.seed))
    }

    /// Picks one member of each LAG among `outputs` by the hash of the flow, and removes the
    /// others; also returns whether there was a LAG. A member that is in `joined` is preferred.
    #[must_use]
    pub fn pick_members(
        &self,
        outputs: PortSet,
        hash: impl Fn() -> u64,
        joined: PortSet,
    ) -> (PortSet, bool) {
        if outputs.and(self.lagged).is_empty() {
            return (outputs, false);
        }
        let hash = hash() ^ self.seed;
        let mut left = outputs.without(self.lagged);
        for lag in &self.lags.sets {
            let of = lag.and(outputs);
            // If no member has joined yet, any that is up: a frame without a link would be lost.
            let chosen = highest_weight(of.and(joined), hash).or_else(|| highest_weight(of, hash));
            left = left.or(chosen.map_or(PortSet::EMPTY, PortSet::only));
        }
        (left, true)
    }
}

/// Sets of links; a flow takes one of a set.
#[derive(Clone, Debug)]
pub struct Groups {
    sets: Box<[PortSet]>,
    /// By link: the other links that share a set with it.
    partners: PerPort<PortSet>,
}

impl Groups {
    fn new(sets: Vec<PortSet>) -> Self {
        let partners = PerPort::from_fn(|port| {
            let of = sets.iter().filter(|set| set.contains(port));
            of.fold(PortSet::EMPTY, |all, &set| all.or(set)).without(PortSet::only(port))
        });
        Self { sets: sets.into(), partners }
    }
}

/// Checks that a static entry names a port outside of LAGs, or the first port of one.
fn check_names(lags: &[Lag], ports: PortSet, port: PortId) -> Result<(), LagError> {
    if !ports.contains(port) {
        return Err(LagError::NoPort(port));
    }
    let wrong = |lag: &&Lag| lag.ports.contains(port) && lag.ports.lowest() != Some(port);
    match lags.iter().find(wrong) {
        Some(lag) => Err(LagError::Member { lag: lag.name.clone(), port }),
        None => Ok(()),
    }
}

const fn word(vid: Vid, addr: AddrKey) -> u64 {
    (vid.get() as u64) << 50 | addr.to_bits()
}

/// The port of `ports` with the highest weight for `hash`.
fn highest_weight(ports: PortSet, hash: u64) -> Option<PortId> {
    ports.iter().max_by_key(|&port| weight(hash, port))
}

/// A weight that depends on all bits of `hash` and on `port` (the mixer of `SplitMix64`).
const fn weight(hash: u64, port: PortId) -> u64 {
    let x = hash ^ (port.get() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Links that take flows: those that are up. A link that came up joins only when no frame waits at
/// a link whose flows it will take over, so that no frame is overtaken, or at the latest after
/// [`Joined::WAIT`]. If no link of a set is left, all that are up join at once: the frames at those
/// that went down are lost anyway.
#[derive(Clone, Debug)]
pub struct Joined {
    links: PortSet,
    up: PortSet,
    /// Links that came up and wait to join, and since when.
    waiting: PortSet,
    since: PerPort<Instant>,
    due: Option<Instant>,
}

impl Default for Joined {
    fn default() -> Self {
        Self::new()
    }
}

impl Joined {
    /// The longest that a link waits: links that never run empty need its help.
    pub const WAIT: Span = Span::from_ms(100);

    /// All links that are up when first asked.
    #[must_use]
    pub fn new() -> Self {
        Self {
            links: PortSet::from_bits(u64::MAX),
            up: PortSet::from_bits(u64::MAX),
            waiting: PortSet::EMPTY,
            since: PerPort::from_fn(|_| Instant::ZERO),
            due: None,
        }
    }

    /// Links that take flows.
    #[inline]
    #[must_use]
    pub const fn links(&self) -> PortSet {
        self.links
    }

    /// Removes links that are not in `up`; called before the frames of a step.
    pub fn keep(&mut self, up: PortSet, groups: &Groups) {
        if up == self.up {
            return;
        }
        self.up = up;
        let left = self.links.and(up);
        // A set whose last link went down: its flows have no other link, so those that wait join at
        // once.
        let empty = groups.sets.iter().filter(|set| set.and(left).is_empty());
        self.links = empty.fold(left, |links, set| links.or(set.and(up)));
        self.waiting = self.waiting.and(up).without(self.links);
    }

    /// Whether a link that is up has not joined, now or at the last [`Self::admit`], which
    /// otherwise has nothing to do.
    #[inline]
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.due.is_some() || !self.up.without(self.links).is_empty()
    }

    /// Lets links join that are up and may; called after the frames of a step.
    pub fn admit(&mut self, now: Instant, groups: &Groups, is_empty: impl Fn(PortId) -> bool) {
        self.due = None;
        for port in self.up.without(self.links).iter() {
            if !self.waiting.contains(port) {
                self.waiting.insert(port);
                self.since[port] = now;
            }
            let latest = self.since[port] + Self::WAIT;
            // Frames of flows that this link takes over wait at its partners, and nowhere else.
            if latest <= now || groups.partners[port].iter().all(&is_empty) {
                self.links.insert(port);
                self.waiting.remove(port);
            } else {
                self.due = Instant::earlier(self.due, Some(latest));
            }
        }
    }

    /// When a waiting link joins even if others still have frames.
    #[must_use]
    pub const fn next(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests;
