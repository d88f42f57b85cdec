//! Routing inside of a switch: the DPID routing table (DRT) and its routing groups (RGT).
//!
//! A DPID leads to this switch, to a port, or to a group of up to eight ports, from which one is picked.
//!
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
/// Flag of an entry: the PID is this switch's own.
const HERE: u16 = 1 << 15;
/// Flag of an entry: the PID belongs to a port of this switch.
const OURS: u16 = 1 << 14;

/// Freedom of a message in choosing its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Always the same route, which keeps messages in order.
    Static,
    /// Any port of a group; messages may overtake each other.
    Dynamic,
}

/// Owner of a PID that is assigned in this switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The switch itself, or the fabric manager that it speaks for.
    Switch,
    /// One of the switch's ports.
    Port,
}

/// Result of looking up a DPID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// This switch processes it: the DPID is its own PID, or `0xFFF`.
    Here,
    /// It leaves by this port.
    Port(PortId),
    /// It leaves by one port of this group.
    Group(u8),
}

/// State of the queues behind ports; used for groups that avoid congestion.
pub trait Load {
    /// Bytes that wait for a port.
    fn queued_bytes(&self, port: PortId) -> u64;

    /// Whether a port's queue is full, so that a message should prefer another port.
    fn is_full(&self, port: PortId) -> bool;
}

/// A routing group, aligned to stay within a cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(16))]
struct Group(RgtEntry);

/// DRT and RGT of one switch, and the PIDs that are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    drt: Arc<[u16; Pid::COUNT]>,
    rgt: Arc<[Group]>,
    /// Ports of the switch.
    ports: PortSet,
}

impl Routes {
    /// Tables without a valid entry or own PID. `groups` routing groups can be set; each has only the first of `ports`
    /// so far.
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
            // DPID FFFh always means the switch itself (docs/spec/cxl-fabric.md, "Inside: DRT").
            *last = HERE;
        }
        Ok(Self { drt: drt.into(), rgt: vec![Group(entry); groups].into(), ports })
    }

    /// Ports of the switch.
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

    /// Looks up `dpid`. Reads one cache line.
    ///
    /// # Errors
    /// [`Refusal::NoDrtEntry`].
    #[inline]
    pub fn lookup(&self, dpid: Pid) -> Result<Dispatch, Refusal> {
        let word = self.word(dpid);
        let [_, index] = word.to_be_bytes();
        // Before the entry itself: a PID of the switch is processed here, whatever the DRT says.
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

    /// Picks the port for a message of `flow`; `draw` is a random word for dynamic messages.
    ///
    /// Static messages take the group's first port or none, since by another port they would overtake each other.
    /// Dynamic ones only take ports that are `up`.
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
    /// A range beyond the table, a port or group that does not exist, or an entry for PID `0xFFF`; nothing has changed
    /// then.
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
            // Ownership comes from PID assignment, not from Set DRT, and stays.
            *word = *word & (HERE | OURS) | u16::from_be_bytes([kind, index]);
        }
        Ok(())
    }

    /// DRT entry of `dpid`.
    #[must_use]
    pub fn drt(&self, dpid: Pid) -> DrtEntry {
        let [kind, index] = self.word(dpid).to_be_bytes();
        DrtEntry::decode([kind & 3, index]).unwrap_or_default()
    }

    /// Sets groups from `start` on; all of them or none.
    ///
    /// # Errors
    /// A range beyond the table, a port that does not exist, a last primary port beyond the last port, or the mode
    /// "advanced congestion-avoiding", which needs queue depths of other switches; nothing has changed then.
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

    /// Routing group `index`; `None` beyond the table.
    #[must_use]
    pub fn rgt(&self, index: usize) -> Option<RgtEntry> {
        self.rgt.get(index).map(|group| group.0)
    }

    /// Makes `pid` one of this switch's own, or with `None` removes it.
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

/// Ports of a group that are up, as a set.
#[inline]
fn members(ports: &[u8], up: PortSet) -> PortSet {
    ports.iter().map(|&port| PortId::from_low_bits(port)).collect::<PortSet>().and(up)
}

/// Picks the port of a dynamic message: primary or secondary ports by the mix, then one of them by the mode.
#[inline]
fn dynamic(group: &RgtEntry, up: PortSet, draw: u64, load: &impl Load) -> Option<PortId> {
    let (first, rest) = group.ports().split_at_checked(usize::from(group.primary) + 1)?;
    let primary = members(first, up);
    let secondary = members(rest, up).without(primary);
    let open = match group.mix {
        // Mix 7 prefers primary ports and overflows to secondary ones; mix 0 to 6 is 7 to 1 eighths primary
        // (docs/spec/wire-formats.md, 4.5).
        7 if primary.iter().any(|port| !load.is_full(port)) => {
            primary.iter().filter(|&port| !load.is_full(port)).collect()
        }
        7 => secondary,
        mix if draw & 7 < 7 - u64::from(mix & 7) => primary,
        _ => secondary,
    };
    // If no port of one kind is up, the other kind takes all messages.
    let open = match (open.is_empty(), primary.is_empty()) {
        (false, _) => open,
        (true, false) => primary,
        (true, true) => secondary,
    };
    // The low three bits were used for the mix.
    let turn = nth(open, draw >> 3)?;
    if group.mode == RgtMode::Random {
        return Some(turn);
    }
    // Ports with equal queues take turns: the search starts at a random one.
    let after = |port: PortId| port.get().wrapping_sub(turn.get()) & 63;
    open.iter().min_by_key(|&port| (load.queued_bytes(port), after(port)))
}

/// A member of `set`, each equally likely; uses the low 32 bits of `draw`.
#[inline]
fn nth(set: PortSet, draw: u64) -> Option<PortId> {
    // A multiplication instead of a remainder: no division, and the bias is below 2^-26.
    let place = ((draw & 0xFFFF_FFFF) * set.len() as u64) >> 32;
    let mut left = set.bits();
    for _ in 0..place {
        left &= left.wrapping_sub(1);
    }
    PortSet::from_bits(left).lowest()
}

#[cfg(test)]
mod tests;
