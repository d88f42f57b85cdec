//! Where a DPID leads inside of a switch: the DPID routing table (DRT) and its routing groups (RGT).
//! DPID → [`Dispatch`]: this switch, a port, or a group of up to eight → the port.
//!
//! Units: queue depths in bytes.
//! Source: CXL 3.1 section 7.7.6.2; docs/spec/wire-formats.md §4.5 (5708h to 570Bh), §5.3; docs/spec/cxl-fabric.md
//! "Inside".

use std::sync::Arc;

use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry, RgtMode};

use super::error::TableError;
use super::refusal::Refusal;
use super::segments::range;
use crate::types::{PortId, PortSet};

const KIND: u16 = 3 << 8; // below it: port or group
const PORT: u16 = 1 << 8;
const GROUP: u16 = 2 << 8;
/// The PID is this switch's own.
const HERE: u16 = 1 << 15;
/// The PID belongs to a port of this switch.
const OURS: u16 = 1 << 14;

/// How a message may choose its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Always the same one, in order.
    Static,
    /// Any of its group.
    Dynamic,
}

/// What a PID that is assigned in this switch stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The switch itself, or the FM that it speaks for.
    Switch,
    /// One of its ports.
    Port,
}

/// Where a DPID leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Processed by this switch: its own PID, or `0xFFF`.
    Here,
    /// Out at a port.
    Port(PortId),
    /// To one of a group's ports.
    Group(u8),
}

/// What is known of the queues behind ports; asked for groups that avoid congestion only.
pub trait Load {
    /// Bytes that wait for a port.
    fn queued_bytes(&self, port: PortId) -> u64;

    /// Whether a port's queue is full: a message that prefers it should go elsewhere.
    fn is_full(&self, port: PortId) -> bool;
}

/// A group, compiled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(16))]
struct Group(RgtEntry);

/// DRT and RGT of one switch, and which PIDs are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    drt: Arc<[u16; Pid::COUNT]>,
    rgt: Arc<[Group]>,
    /// Ports that there are.
    ports: PortSet,
}

impl Routes {
    /// No entry valid, no PID its own; `groups` of them can be set, all of the first of `ports` alone.
    ///
    /// # Errors
    /// More than 256 groups.
    pub fn new(ports: PortSet, groups: usize) -> Result<Self, TableError> {
        if groups > 256 {
            return Err(TableError::Entries(groups));
        }
        let first = ports.lowest().map_or(0, PortId::get);
        let entry = RgtEntry { ports: [first, 0, 0, 0, 0, 0, 0, 0], ..RgtEntry::default() };
        let mut drt = [0; Pid::COUNT];
        if let Some(last) = drt.last_mut() {
            *last = HERE;
        }
        Ok(Self { drt: drt.into(), rgt: vec![Group(entry); groups].into(), ports })
    }

    /// Ports that there are.
    #[must_use]
    pub const fn ports(&self) -> PortSet {
        self.ports
    }

    /// Number of routing groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.rgt.len()
    }

    #[inline]
    fn word(&self, dpid: Pid) -> u16 {
        self.drt.get(dpid.index()).copied().unwrap_or(0)
    }

    /// Where `dpid` leads. Reads one cache line.
    ///
    /// # Errors
    /// [`Refusal::NoDrtEntry`].
    #[inline]
    pub fn lookup(&self, dpid: Pid) -> Result<Dispatch, Refusal> {
        let word = self.word(dpid);
        let [_, index] = word.to_be_bytes();
        if word & HERE != 0 {
            return Ok(Dispatch::Here);
        }
        match word & KIND {
            PORT => Ok(Dispatch::Port(PortId::from_low_bits(index))),
            GROUP => Ok(Dispatch::Group(index)),
            _ => Err(Refusal::NoDrtEntry),
        }
    }

    /// Whether `dpid` belongs to a port of this switch, so that a TLP with Hie set ends at one of its vPPBs.
    #[inline]
    #[must_use]
    pub fn is_ours(&self, dpid: Pid) -> bool {
        self.word(dpid) & OURS != 0
    }

    /// The port that a message of `flow` takes; `draw` is a random word, used by dynamic messages.
    ///
    /// Static messages take the group's first port or none: another one would overtake. Dynamic ones take none that
    /// is not in `up`.
    ///
    /// # Errors
    /// [`Refusal::RouteDown`], and [`Refusal::NoDrtEntry`] for a group that does not exist.
    #[inline]
    pub fn pick(
        &self,
        to: Dispatch,
        flow: Flow,
        up: PortSet,
        draw: u64,
        load: &impl Load,
    ) -> Result<Option<PortId>, Refusal> {
        match to {
            Dispatch::Here => Ok(None),
            Dispatch::Port(port) if up.contains(port) => Ok(Some(port)),
            Dispatch::Port(_) => Err(Refusal::RouteDown),
            Dispatch::Group(index) => {
                let Group(group) = self.rgt.get(usize::from(index)).ok_or(Refusal::NoDrtEntry)?;
                let picked = match flow {
                    Flow::Static => group.ports().first().copied().map(PortId::from_low_bits),
                    Flow::Dynamic => dynamic(group, up, draw, load),
                };
                picked.filter(|&port| up.contains(port)).map(Some).ok_or(Refusal::RouteDown)
            }
        }
    }

    /// Sets DRT entries from `start` on; all of them or none.
    ///
    /// # Errors
    /// A range beyond the table, a port or group that is not there, or an entry for PID `0xFFF`; nothing has changed.
    pub fn set_drt(&mut self, start: usize, entries: &[DrtEntry]) -> Result<(), TableError> {
        range(start, entries.len(), Pid::COUNT)?;
        for (at, &entry) in entries.iter().enumerate() {
            match entry {
                DrtEntry::Port(port) => self.port(port)?,
                DrtEntry::Group(group) if usize::from(group) >= self.rgt.len() => {
                    return Err(TableError::Group(group));
                }
                _ => {}
            }
            if entry != DrtEntry::Invalid && start + at == Pid::NONE.index() {
                return Err(TableError::NoPid);
            }
        }
        let drt = Arc::make_mut(&mut self.drt);
        for (word, &entry) in drt.iter_mut().skip(start).zip(entries) {
            let [kind, index] = entry.emit();
            *word = *word & (HERE | OURS) | u16::from_be_bytes([kind, index]);
        }
        Ok(())
    }

    /// The DRT entry of `dpid`.
    #[must_use]
    pub fn drt(&self, dpid: Pid) -> DrtEntry {
        let [kind, index] = self.word(dpid).to_be_bytes();
        DrtEntry::decode([kind & 3, index]).unwrap_or_default()
    }

    /// Sets groups from `start` on; all of them or none.
    ///
    /// # Errors
    /// A range beyond the table, a port that is not there, a last primary beyond the last port, or the mode that goes by
    /// what is known from further on: switches do not tell each other; nothing has changed.
    pub fn set_rgt(&mut self, start: usize, entries: &[RgtEntry]) -> Result<(), TableError> {
        range(start, entries.len(), self.rgt.len())?;
        for entry in entries {
            if entry.primary > entry.highest || entry.highest > 7 {
                let RgtEntry { primary, highest, .. } = *entry;
                return Err(TableError::Primary { primary, highest });
            }
            if entry.mode == RgtMode::AdvancedCongestionAvoiding {
                return Err(TableError::Mode);
            }
            entry.ports().iter().try_for_each(|&port| self.port(port))?;
        }
        let rgt = Arc::make_mut(&mut self.rgt);
        for (group, &entry) in rgt.iter_mut().skip(start).zip(entries) {
            *group = Group(entry);
        }
        Ok(())
    }

    /// A group; `None` beyond the table.
    #[must_use]
    pub fn rgt(&self, index: usize) -> Option<RgtEntry> {
        self.rgt.get(index).map(|group| group.0)
    }

    /// Makes `pid` one of this switch's own, or nobody's here.
    ///
    /// # Errors
    /// PID `0xFFF`.
    pub fn own(&mut self, pid: Pid, owner: Option<Owner>) -> Result<(), TableError> {
        if pid.is_none() {
            return Err(TableError::NoPid);
        }
        let flags = match owner {
            None => 0,
            Some(Owner::Switch) => HERE,
            Some(Owner::Port) => OURS,
        };
        if let Some(word) = Arc::make_mut(&mut self.drt).get_mut(pid.index()) {
            *word = *word & !(HERE | OURS) | flags;
        }
        Ok(())
    }

    fn port(&self, port: u8) -> Result<(), TableError> {
        match PortId::new(port.into()) {
            Some(id) if self.ports.contains(id) => Ok(()),
            _ => Err(TableError::Port(port)),
        }
    }
}

/// Ports of a group as a set, without those that are down.
#[inline]
fn members(ports: &[u8], up: PortSet) -> PortSet {
    ports.iter().map(|&port| PortId::from_low_bits(port)).collect::<PortSet>().and(up)
}

/// The port of a dynamic message: first primary or secondary by the mix, then one of them by the mode.
#[inline]
fn dynamic(group: &RgtEntry, up: PortSet, draw: u64, load: &impl Load) -> Option<PortId> {
    let (first, rest) = group.ports().split_at_checked(usize::from(group.primary) + 1)?;
    let primary = members(first, up);
    let secondary = members(rest, up).without(primary);
    let open = match group.mix {
        7 if primary.iter().any(|port| !load.is_full(port)) => {
            primary.iter().filter(|&port| !load.is_full(port)).collect()
        }
        7 => secondary,
        mix if draw & 7 < 7 - u64::from(mix & 7) => primary,
        _ => secondary,
    };
    // Where one kind has no port that is up, the other takes all.
    let open = match (open.is_empty(), primary.is_empty()) {
        (false, _) => open,
        (true, false) => primary,
        (true, true) => secondary,
    };
    let turn = nth(open, draw >> 3)?;
    if group.mode == RgtMode::Random {
        return Some(turn);
    }
    // Equals are taken in turns: the search begins at a random one.
    let after = |port: PortId| port.get().wrapping_sub(turn.get()) & 63;
    open.iter().min_by_key(|&port| (load.queued_bytes(port), after(port)))
}

/// A member of `set`, each as likely; `draw` counts with its low 32 bits.
#[inline]
fn nth(set: PortSet, draw: u64) -> Option<PortId> {
    let place = ((draw & 0xFFFF_FFFF) * set.len() as u64) >> 32;
    let mut left = set.bits();
    for _ in 0..place {
        left &= left.wrapping_sub(1);
    }
    PortSet::from_bits(left).lowest()
}

#[cfg(test)]
mod tests;
