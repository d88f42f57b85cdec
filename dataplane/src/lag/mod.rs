//! Flows over several links: link aggregation without LACP, and static stations behind several ports.
//!
//! ([`Lag`]s, stations with their ports) → [`Links`]: whom a port stands for, and which of several
//! ports a flow takes; [`Joined`] is the links that take flows now. A LAG is named by its lowest port.
//!
//! Times are [`Instant`]s.
//! Source: IEEE 802.1AX-2020 clauses 6.2.3 (distribution) and 6.2.4 (collection); Thaler and Ravishankar,
//! "Using Name-Based Mappings to Increase Hit Rates", IEEE/ACM Transactions on Networking 6(1), 1998
//! (highest random weight: a link that goes moves its own flows only).

use crate::time::{Instant, Span};
use crate::types::{PerPort, PortId, PortSet};
use weft_parsers::{AddrKey, Vid};

/// A link aggregation group (LAG): ports that together are one link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// Its name in every output.
    pub name: String,
    /// Its members, two at least.
    pub ports: PortSet,
}

/// Why link aggregation groups cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LagError {
    /// Fewer than two members.
    #[error("LAG {0} has fewer than two ports")]
    Few(String),
    /// A port that does not exist.
    #[error("LAG {lag} names {port:?}, which does not exist")]
    Unknown {
        /// The LAG.
        lag: String,
        /// The port.
        port: PortId,
    },
    /// A port in two LAGs.
    #[error("LAGs {0} and {1} share a port")]
    Shared(String, String),
    /// Members differ where they must not.
    #[error("ports of LAG {lag} differ in {what}")]
    Unlike {
        /// The LAG.
        lag: String,
        /// In what.
        what: &'static str,
    },
    /// A static entry names a member that is not the first.
    #[error("a static entry names {port:?}, which is in LAG {lag}: name that or its first port")]
    Member {
        /// The LAG.
        lag: String,
        /// The port.
        port: PortId,
    },
    /// A static entry over a port that does not exist.
    #[error("a static entry names {0:?}, which does not exist")]
    NoPort(PortId),
}

/// LAGs and spread stations, compiled.
#[derive(Clone, Debug)]
pub struct Links {
    /// By port: all of its LAG; itself when it is in none.
    members: PerPort<PortSet>,
    /// Members of LAGs.
    lags: Groups,
    lagged: PortSet,
    /// All links to spread stations.
    spreads: Groups,
    /// Spread stations: VID in bits 61:50, address key below; ascending. Their ports stand for LAGs.
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

    /// Whether any flow has a choice.
    #[inline]
    #[must_use]
    pub const fn is_any(&self) -> bool {
        !self.lags.sets.is_empty() || !self.keys.is_empty()
    }

    /// The port that `port` is known by: the lowest of its LAG.
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

    /// `ports`, with all of each LAG that is touched.
    #[must_use]
    pub fn expand(&self, ports: PortSet) -> PortSet {
        let touched = self.lags.sets.iter().filter(|lag| !lag.and(ports).is_empty());
        touched.fold(ports, |all, &lag| all.or(lag))
    }

    /// LAGs, as sets of links that a flow may take.
    #[must_use]
    pub const fn lags(&self) -> &Groups {
        &self.lags
    }

    /// The same of spread stations.
    #[must_use]
    pub const fn spreads(&self) -> &Groups {
        &self.spreads
    }

    /// Ports that the flows to a static station are spread over; `None` if it is behind one.
    #[must_use]
    pub fn station(&self, vid: Vid, addr: AddrKey) -> Option<PortSet> {
        let at = self.keys.binary_search(&word(vid, addr)).ok()?;
        self.ports.get(at).copied()
    }

    /// The one of `ports` that a flow takes to a spread station, each standing for its LAG: of those that
    /// `joined` has a link of, else of those that `able` has one of, else of all.
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
        // Turned, so that the choice within a LAG is another one.
        let hash = hash.rotate_left(32);
        [with(joined.and(able)), with(able), ports]
            .into_iter()
            .find_map(|ports| highest_weight(ports, hash ^ self.seed))
    }

    /// Picks one member of each LAG among `outputs` by the hash of the flow, and drops the others; also whether there
    /// was a LAG. A member that is in `joined` is preferred.
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
    /// By link: others that are in a set with it.
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

/// A static entry may name ports outside of LAGs, and first ports of them.
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

/// A weight that depends on all of both (the mixer of `SplitMix64`).
const fn weight(hash: u64, port: PortId) -> u64 {
    let x = hash ^ (port.get() as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Links that take flows: those that are up, but one that came up only when no frame waits at a link whose
/// flows it will take, so that none is overtaken; at the latest after [`Joined::WAIT`]. Where no link of a
/// set is left, all that are up take over at once: frames at those that went down are gone.
#[derive(Clone, Debug)]
pub struct Joined {
    links: PortSet,
    up: PortSet,
    /// Links that came up, and since when they wait.
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
    /// The longest that a link waits: others that never run empty need its help.
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

    /// Takes out links that are not in `up`: before the frames of a step.
    pub fn keep(&mut self, up: PortSet, groups: &Groups) {
        if up == self.up {
            return;
        }
        self.up = up;
        let left = self.links.and(up);
        let empty = groups.sets.iter().filter(|set| set.and(left).is_empty());
        self.links = empty.fold(left, |links, set| links.or(set.and(up)));
        self.waiting = self.waiting.and(up).without(self.links);
    }

    /// Whether any link is not taken in that is up, or was when last asked: else [`Self::admit`] does nothing.
    #[inline]
    #[must_use]
    pub const fn waits(&self) -> bool {
        self.due.is_some() || !self.up.without(self.links).is_empty()
    }

    /// Takes in links that are up and may: after the frames of a step.
    pub fn admit(&mut self, now: Instant, groups: &Groups, is_empty: impl Fn(PortId) -> bool) {
        self.due = None;
        for port in self.up.without(self.links).iter() {
            if !self.waiting.contains(port) {
                self.waiting.insert(port);
                self.since[port] = now;
            }
            let latest = self.since[port] + Self::WAIT;
            if latest <= now || groups.partners[port].iter().all(&is_empty) {
                self.links.insert(port);
                self.waiting.remove(port);
            } else {
                self.due = Instant::earlier(self.due, Some(latest));
            }
        }
    }

    /// When a link is taken in even if others still have frames.
    #[must_use]
    pub const fn next(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests;
