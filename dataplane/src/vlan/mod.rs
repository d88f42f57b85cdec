//! VLANs: the VLAN of a frame, the ports that are members, and changes of the tag.
//!
//! [`VlanTable`] is compiled once from a [`PortMode`] for each port and is part of the snapshot.
//!
//! Units: VIDs 0..=4095, of which 1..=4094 are VLANs.
//! Source: IEEE 802.1Q clauses 6.9 and 8.6.2; docs/spec/pipeline.md §3.

mod tag;

pub use tag::{Extent, TagOp};

use crate::types::{PORTS_MAX, PerPort, PortId, PortSet};
use core::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weft_parsers::{Tci, Vid};

const VIDS: usize = 4096;

/// A set of VIDs, as 4,096 bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VidSet(Box<[u64; VIDS / 64]>);

impl Default for VidSet {
    fn default() -> Self {
        Self(Box::new([0; VIDS / 64]))
    }
}

impl VidSet {
    /// All VLANs, 1..=4094.
    #[must_use]
    pub fn all() -> Self {
        Self::from_iter([1..=4094])
    }

    /// Adds `vid` to the set.
    pub fn insert(&mut self, vid: Vid) {
        if let Some(word) = self.0.get_mut(usize::from(vid.get() / 64)) {
            *word |= 1 << (vid.get() % 64);
        }
    }

    /// Whether the set has `vid`.
    #[must_use]
    pub fn contains(&self, vid: Vid) -> bool {
        self.0
            .get(usize::from(vid.get() / 64))
            .is_some_and(|word| word >> (vid.get() % 64) & 1 != 0)
    }

    /// The VIDs of the set, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = Vid> + '_ {
        (0..4096).map(Vid::from_low_bits).filter(|&vid| self.contains(vid))
    }
}

impl FromIterator<RangeInclusive<u16>> for VidSet {
    /// Numbers above 4095 are cut to their low twelve bits; the caller refuses them before.
    fn from_iter<I: IntoIterator<Item = RangeInclusive<u16>>>(ranges: I) -> Self {
        let mut set = Self::default();
        for vid in ranges.into_iter().flatten() {
            set.insert(Vid::from_low_bits(vid));
        }
        set
    }
}

/// How a port treats VLAN tags: transparent, access or trunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortMode {
    /// Takes part in every VLAN and leaves tags as they are.
    ///
    /// Only a frame that came without a VID in another VLAN than this port's gets one on the way out,
    /// since it would change VLAN otherwise.
    Transparent {
        /// VLAN of frames without a VID.
        pvid: Vid,
    },
    /// Member of one VLAN, whose frames it sends untagged.
    Access {
        /// That VLAN; frames tagged with it are accepted, too.
        pvid: Vid,
    },
    /// Member of several VLANs, whose frames it sends tagged.
    Trunk {
        /// VLANs whose tagged frames are accepted and sent.
        allowed: VidSet,
        /// VLAN that is untagged here; the port is a member whether `allowed` has it or not. If `None`,
        /// frames without a VID are dropped.
        native: Option<Vid>,
    },
}

impl Default for PortMode {
    fn default() -> Self {
        Self::Transparent { pvid: Vid::from_low_bits(1) }
    }
}

/// How a frame came in: untagged, priority-tagged, or with a VLAN's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// It had no tag.
    Untagged,
    /// Its tag had VID 0, which carries a priority but no VLAN.
    PriorityTagged,
    /// Its tag had the VID of its VLAN.
    Tagged,
}

impl Arrival {
    /// The arrival of a frame with this outer tag, if it has one.
    #[inline]
    #[must_use]
    pub const fn of(tag: Option<Tci>) -> Self {
        match tag {
            None => Self::Untagged,
            Some(tci) if tci.vid().get() == 0 => Self::PriorityTagged,
            Some(_) => Self::Tagged,
        }
    }
}

/// A reason for which VLAN rules refuse a frame at its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VlanFiltered {
    /// The port is not a member of the tag's VLAN.
    NotMember,
    /// The frame has no VID, and the port (a trunk without native VLAN) has no VLAN for such frames.
    NoNative,
}

/// A reason why a VLAN table cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VlanError {
    /// VID 0 or 4095 is used as a VLAN; IEEE 802.1Q reserves both.
    #[error("{port:?}: VID {vid} is reserved, expected 1..=4094")]
    Reserved {
        /// The port whose mode names it.
        port: PortId,
        /// The VID, 0 or 4095.
        vid: u16,
    },
    /// A port has two modes.
    #[error("{0:?} is given twice")]
    PortTwice(PortId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tags {
    AsArrived,
    Never,
    AllButNative,
}

/// The part of the table that belongs to one port.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// VLAN of frames without a VID; `None` if they are dropped.
    untagged: Option<Vid>,
    tags: Tags,
}

/// The VLANs of a switch, compiled: every lookup is one array access.
#[derive(Clone, Debug)]
pub struct VlanTable {
    /// By VID. Tables that are equal share one array, as most switches of a network are configured
    /// alike.
    members: Arc<[PortSet]>,
    rules: PerPort<Rule>,
}

/// The members that were compiled last, as long as any switch uses them.
static LAST: Mutex<Weak<[PortSet]>> = Mutex::new(Weak::<[PortSet; 0]>::new());

impl VlanTable {
    /// Compiles the modes of the ports that exist; ports that are not named are in no VLAN.
    ///
    /// # Errors
    /// See [`VlanError`].
    pub fn build<'a>(
        ports: impl IntoIterator<Item = (PortId, &'a PortMode)>,
    ) -> Result<Self, VlanError> {
        let mut table = Self {
            members: vec![PortSet::EMPTY; VIDS].into(),
            rules: PerPort::from_fn(|_| Rule { untagged: None, tags: Tags::Never }),
        };
        let mut seen = PortSet::EMPTY;
        // Bounded by one more than can differ: a port that is named twice is found by then.
        for (port, mode) in ports.into_iter().take(PORTS_MAX + 1) {
            if seen.contains(port) {
                return Err(VlanError::PortTwice(port));
            }
            seen.insert(port);
            table.add(port, mode)?;
        }
        table.share();
        Ok(table)
    }

    /// Uses the members of the table that was compiled last, if they are equal.
    fn share(&mut self) {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        match last.upgrade().filter(|last| *last == self.members) {
            Some(same) => self.members = same,
            // Weak, so that the last table of all is freed with its switch.
            None => *last = Arc::downgrade(&self.members),
        }
    }

    fn add(&mut self, port: PortId, mode: &PortMode) -> Result<(), VlanError> {
        let vlan = |vid: Vid| match vid.get() {
            1..=4094 => Ok(vid),
            vid => Err(VlanError::Reserved { port, vid }),
        };
        let (untagged, tags) = match mode {
            PortMode::Transparent { pvid } => {
                // A member of all VIDs, also of those that no other port uses.
                for set in Arc::make_mut(&mut self.members) {
                    set.insert(port);
                }
                (Some(vlan(*pvid)?), Tags::AsArrived)
            }
            PortMode::Access { pvid } => (Some(vlan(*pvid)?), Tags::Never),
            PortMode::Trunk { allowed, native } => {
                for vid in allowed.iter() {
                    self.join(vlan(vid)?, port);
                }
                (native.map(vlan).transpose()?, Tags::AllButNative)
            }
        };
        if let Some(vid) = untagged {
            self.join(vid, port);
        }
        self.rules[port] = Rule { untagged, tags };
        Ok(())
    }

    fn join(&mut self, vid: Vid, port: PortId) {
        if let Some(set) = Arc::make_mut(&mut self.members).get_mut(usize::from(vid.get())) {
            set.insert(port);
        }
    }

    /// The VLAN of a frame that came in by `port` with the outer tag `tag`.
    ///
    /// # Errors
    /// [`VlanFiltered`] when the port does not accept such frames.
    #[inline]
    pub fn ingress(&self, port: PortId, tag: Option<Tci>) -> Result<Vid, VlanFiltered> {
        match tag {
            Some(tci) if tci.vid().get() != 0 => {
                let member = self.members(tci.vid()).contains(port);
                if member { Ok(tci.vid()) } else { Err(VlanFiltered::NotMember) }
            }
            _ => self.rules[port].untagged.ok_or(VlanFiltered::NoNative),
        }
    }

    /// Ports that send frames of VLAN `vid`.
    #[inline]
    #[must_use]
    pub fn members(&self, vid: Vid) -> PortSet {
        self.members.get(usize::from(vid.get())).copied().unwrap_or_default()
    }

    /// The change that `port` makes to the tag of a frame of VLAN `vid` that came in as `arrival`.
    #[inline]
    #[must_use]
    pub fn egress(&self, port: PortId, vid: Vid, arrival: Arrival) -> TagOp {
        let Rule { untagged, tags } = self.rules[port];
        let native = untagged == Some(vid);
        match (tags, arrival) {
            (Tags::AsArrived, Arrival::Tagged) => TagOp::Keep,
            // Without a VID the neighbour puts the frame into this port's VLAN, which is the right
            // one. In any other VLAN, below, it needs a tag, or it would change VLAN on the way.
            (Tags::AsArrived, _) if native => TagOp::Keep,
            (Tags::AllButNative, Arrival::Tagged) if !native => TagOp::Keep,
            (Tags::AsArrived, Arrival::Untagged) => TagOp::Insert,
            (Tags::AsArrived, Arrival::PriorityTagged) => TagOp::Rewrite,
            (Tags::AllButNative, Arrival::Untagged) if !native => TagOp::Insert,
            (Tags::AllButNative, Arrival::PriorityTagged) if !native => TagOp::Rewrite,
            (Tags::Never | Tags::AllButNative, Arrival::Untagged) => TagOp::Keep,
            (Tags::Never | Tags::AllButNative, _) => TagOp::Strip,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Arrival::{PriorityTagged, Tagged, Untagged};
    use TagOp::{Insert, Keep, Rewrite, Strip};

    fn vid(vid: u16) -> Vid {
        Vid::new(vid).unwrap()
    }

    fn port(index: usize) -> PortId {
        PortId::new(index).unwrap()
    }

    /// A tag with PCP 5 and DEI set, to see that they do not matter.
    #[expect(clippy::unnecessary_wraps, reason = "the tables hold tags or none")]
    fn tag(vid: u16) -> Option<Tci> {
        Some(Tci(5 << 13 | 1 << 12 | vid))
    }

    /// Ports 0 and 1 transparent in VLAN 1 and 7, 2 access 7, 3 trunk 7 and 9 to 11 native 5,
    /// 4 trunk 1 and 9 with no native; port 5 is none.
    fn table() -> VlanTable {
        let modes = [
            PortMode::default(),
            PortMode::Transparent { pvid: vid(7) },
            PortMode::Access { pvid: vid(7) },
            PortMode::Trunk { allowed: VidSet::from_iter([7..=7, 9..=11]), native: Some(vid(5)) },
            PortMode::Trunk { allowed: VidSet::from_iter([1..=1, 9..=9]), native: None },
        ];
        let modes: Vec<_> = modes.into_iter().enumerate().map(|(p, m)| (port(p), m)).collect();
        VlanTable::build(modes.iter().map(|(p, m)| (*p, m))).unwrap()
    }

    #[test]
    fn ingress_takes_what_each_mode_takes() {
        use VlanFiltered::{NoNative, NotMember};
        #[rustfmt::skip] // columns: name, port, tag, want
        let cases = [
            ("transparent untagged",       0, None,      Ok(1)),
            ("transparent priority",       0, tag(0),    Ok(1)),
            ("transparent own",            0, tag(1),    Ok(1)),
            ("transparent any",            0, tag(4094), Ok(4094)),
            ("transparent reserved",       0, tag(4095), Ok(4095)),
            ("transparent 7 untagged",     1, None,      Ok(7)),
            ("transparent 7 priority",     1, tag(0),    Ok(7)),
            ("access untagged",            2, None,      Ok(7)),
            ("access priority",            2, tag(0),    Ok(7)),
            ("access own tag",             2, tag(7),    Ok(7)),
            ("access below",               2, tag(6),    Err(NotMember)),
            ("access above",               2, tag(8),    Err(NotMember)),
            ("trunk untagged is native",   3, None,      Ok(5)),
            ("trunk priority is native",   3, tag(0),    Ok(5)),
            ("trunk tagged native",        3, tag(5),    Ok(5)),
            ("trunk below the range",      3, tag(8),    Err(NotMember)),
            ("trunk first of the range",   3, tag(9),    Ok(9)),
            ("trunk last of the range",    3, tag(11),   Ok(11)),
            ("trunk above the range",      3, tag(12),   Err(NotMember)),
            ("trunk reserved",             3, tag(4095), Err(NotMember)),
            ("no native untagged",         4, None,      Err(NoNative)),
            ("no native priority",         4, tag(0),    Err(NoNative)),
            ("no native tagged",           4, tag(9),    Ok(9)),
            ("no such port untagged",      5, None,      Err(NoNative)),
            ("no such port tagged",        5, tag(7),    Err(NotMember)),
        ];
        let table = table();
        for (name, p, tag, want) in cases {
            assert_eq!(table.ingress(port(p), tag).map(Vid::get), want, "{name}");
        }
    }

    #[test]
    fn members_are_those_that_send_a_vlan() {
        #[rustfmt::skip] // columns: vid, ports
        let cases = [
            (1,    0b01_0011),
            (2,    0b00_0011),
            (5,    0b00_1011),
            (7,    0b00_1111),
            (8,    0b00_0011),
            (9,    0b01_1011),
            (11,   0b00_1011),
            (12,   0b00_0011),
            (4095, 0b00_0011),
        ];
        let table = table();
        for (v, want) in cases {
            assert_eq!(table.members(vid(v)), PortSet::from_bits(want), "VLAN {v}");
        }
    }

    /// Every mode of output, VLAN of its own or not, and way of arrival.
    #[test]
    fn egress_leaves_the_tag_that_each_mode_sends() {
        #[rustfmt::skip] // columns: name, port, vid, untagged, priority-tagged, tagged
        let cases = [
            ("transparent, own VLAN",    0, 1,  Keep,   Keep,    Keep),
            ("transparent, other VLAN",  0, 7,  Insert, Rewrite, Keep),
            ("transparent 7, own VLAN",  1, 7,  Keep,   Keep,    Keep),
            ("transparent 7, VLAN 1",    1, 1,  Insert, Rewrite, Keep),
            ("access",                   2, 7,  Keep,   Strip,   Strip),
            ("trunk, native",            3, 5,  Keep,   Strip,   Strip),
            ("trunk, tagged",            3, 7,  Insert, Rewrite, Keep),
            ("trunk without a native",   4, 9,  Insert, Rewrite, Keep),
            ("trunk without, VLAN 1",    4, 1,  Insert, Rewrite, Keep),
        ];
        let table = table();
        for (name, p, v, untagged, priority, tagged) in cases {
            let ops = [Untagged, PriorityTagged, Tagged];
            let have = ops.map(|arrival| table.egress(port(p), vid(v), arrival));
            assert_eq!(have, [untagged, priority, tagged], "{name}");
        }
    }

    #[test]
    fn arrival_follows_the_tag() {
        assert_eq!(Arrival::of(None), Untagged);
        assert_eq!(Arrival::of(tag(0)), PriorityTagged);
        assert_eq!(Arrival::of(tag(1)), Tagged);
    }

    #[test]
    fn reserved_vids_and_repeated_ports_are_refused() {
        let trunk = |allowed, native| PortMode::Trunk { allowed, native };
        let reserved = |vid| Some(VlanError::Reserved { port: port(3), vid });
        #[rustfmt::skip] // columns: name, mode, error
        let cases = [
            ("pvid 0",            PortMode::Access { pvid: vid(0) },                   reserved(0)),
            ("pvid 1",            PortMode::Access { pvid: vid(1) },                   None),
            ("pvid 4094",         PortMode::Transparent { pvid: vid(4094) },           None),
            ("pvid 4095",         PortMode::Transparent { pvid: vid(4095) },           reserved(4095)),
            ("native 0",          trunk(VidSet::default(), Some(vid(0))),              reserved(0)),
            ("allowed 0",         trunk(VidSet::from_iter([0..=3]), None),             reserved(0)),
            ("allowed 4095",      trunk(VidSet::from_iter([4090..=4095]), None),       reserved(4095)),
            ("all",               trunk(VidSet::all(), Some(vid(1))),                  None),
            ("nothing",           trunk(VidSet::default(), None),                      None),
        ];
        for (name, mode, error) in cases {
            assert_eq!(VlanTable::build([(port(3), &mode)]).err(), error, "{name}");
        }
        let mode = PortMode::default();
        let twice = VlanTable::build([(port(1), &mode), (port(2), &mode), (port(1), &mode)]);
        assert_eq!(twice.err(), Some(VlanError::PortTwice(port(1))));
        assert_eq!(VidSet::all().iter().count(), 4094);
    }
}
