//! Access rights by block: group tables of the partitions, and group vectors of the requesters.
//!
//! A DPA leads to its partition (1 to 4) and block, and so to the block's groups; the RPID leads to its `GrpAccVec`. An
//! access is allowed if the two sets have a group in common.
//!
//! A block has a set of groups, not one number: capacity that "enable shared access" gave to a second group (command
//! 4907, policy 3) belongs to both. Without that command the set has one bit.
//!
//! Source: docs/spec/wire-formats.md §5.2, conflict C9; CXL 3.1 section 7.7.2.5.

use weft_parsers::fabric::{Dpa, Pid};

/// Most groups of a device.
pub const GROUPS: u16 = 64;
/// Most media partitions of a device.
pub const DMPS: usize = 4;
/// Most blocks of a partition, so that its table takes 512 KiB at most.
pub const BLOCKS_MAX: u64 = 1 << 16;

/// A memory group, 0..=63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GrpId(u8);

impl GrpId {
    /// Group `number`; `None` for 64 and more.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "below 64")]
    pub const fn new(number: u16) -> Option<Self> {
        if number < GROUPS { Some(Self(number as u8)) } else { None }
    }

    #[must_use]
    pub const fn number(self) -> u16 {
        self.0 as u16
    }

    /// Its index in a table.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Its bit in a set of groups.
    #[must_use]
    pub const fn bit(self) -> u64 {
        1 << self.0
    }

    /// The lowest group of a set; `None` if it is empty.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "at most 64")]
    pub const fn lowest(groups: u64) -> Option<Self> {
        Self::new(groups.trailing_zeros() as u16)
    }
}

/// Why an access to a device address is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The address lies in no partition, or its block belongs to no group.
    #[error("the block belongs to no group")]
    NoGroup,
    /// The requester is in none of the block's groups.
    #[error("the requester may not use group {}", .0.number())]
    Group(GrpId),
    /// A write to a read-only partition.
    #[error("the partition can only be read")]
    ReadOnly,
}

/// The part of a partition's description that a check needs.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    base: u64,
    len: u64, // 0: not there
    shift: u32,
    read_only: bool,
}

/// Group tables of all partitions.
#[derive(Clone, Debug, Default)]
pub struct Mgt {
    windows: [Window; DMPS],
    blocks: [Vec<u64>; DMPS],
}

impl Mgt {
    /// Places partition `index` at `base`, with `len >> shift` blocks that belong to no group.
    ///
    /// The caller has checked the rules of docs/spec/wire-formats.md for partitions; one of too many blocks is cut.
    pub fn place(&mut self, index: usize, base: Dpa, len: u64, shift: u32, read_only: bool) {
        let blocks = (len >> shift).min(BLOCKS_MAX);
        if let (Some(window), Some(table)) =
            (self.windows.get_mut(index), self.blocks.get_mut(index))
        {
            *window = Window { base: base.0, len: blocks << shift, shift, read_only };
            *table = vec![0; usize::try_from(blocks).unwrap_or(0)];
        }
    }

    /// Groups of the block of `dpa`, bytes from `dpa` to the block's end, and whether it is read-only. An address
    /// outside all partitions has no groups.
    #[inline]
    fn find(&self, dpa: u64) -> (u64, u64, bool) {
        for (window, table) in self.windows.iter().zip(&self.blocks) {
            // Wraps to a large number below the base, so one comparison checks both ends.
            let off = dpa.wrapping_sub(window.base);
            if off < window.len {
                let block = usize::try_from(off >> window.shift).unwrap_or(usize::MAX);
                let groups = table.get(block).copied().unwrap_or(0);
                let room = (1_u64 << window.shift) - (off & ((1 << window.shift) - 1));
                return (groups, room, window.read_only);
            }
        }
        (0, 1, false)
    }

    /// Groups of the block of `dpa`, one bit each.
    #[must_use]
    pub fn groups(&self, dpa: Dpa) -> u64 {
        self.find(dpa.0).0
    }

    /// Sets the groups of the blocks of `start..start + len`, which lie in one partition.
    pub fn set(&mut self, start: u64, len: u64, groups: u64) {
        for (window, table) in self.windows.iter().zip(&mut self.blocks) {
            let off = start.wrapping_sub(window.base);
            if off < window.len {
                let first = usize::try_from(off >> window.shift).unwrap_or(usize::MAX);
                let count = usize::try_from(len >> window.shift).unwrap_or(0);
                table.iter_mut().skip(first).take(count).for_each(|block| *block = groups);
            }
        }
    }

    /// Every block's groups, for comparisons.
    #[cfg(test)]
    pub(super) const fn blocks(&self) -> &[Vec<u64>; DMPS] {
        &self.blocks
    }
}

/// Groups of each requester, and whether its host wants notifications.
#[derive(Clone, Debug)]
pub struct Sat {
    groups: Vec<u64>,
    notify: Vec<bool>,
}

impl Default for Sat {
    fn default() -> Self {
        Self { groups: vec![0; Pid::COUNT], notify: vec![false; Pid::COUNT] }
    }
}

impl Sat {
    /// Groups that `rpid` may access, one bit each.
    #[inline]
    #[must_use]
    pub fn groups(&self, rpid: Pid) -> u64 {
        self.groups.get(rpid.index()).copied().unwrap_or(0)
    }

    /// Whether `rpid` has its Notify bit set.
    #[must_use]
    pub fn notify(&self, rpid: Pid) -> bool {
        self.notify.get(rpid.index()).copied().unwrap_or(false)
    }

    /// Sets the groups that `rpid` may access.
    pub fn set_groups(&mut self, rpid: Pid, groups: u64) {
        if let Some(place) = self.groups.get_mut(rpid.index()) {
            *place = groups;
        }
    }

    /// Sets whether `rpid` is notified.
    pub fn set_notify(&mut self, rpid: Pid, notify: bool) {
        if let Some(place) = self.notify.get_mut(rpid.index()) {
            *place = notify;
        }
    }
}

/// Checks an access of `rpid` at `dpa`; returns the number of bytes from there on that the answer holds for.
///
/// # Errors
/// [`Denied`]: the block has no group, none of the requester's, or is read-only.
#[inline]
pub fn check(mgt: &Mgt, sat: &Sat, rpid: Pid, dpa: Dpa, writes: bool) -> Result<u64, Denied> {
    let (groups, room, read_only) = mgt.find(dpa.0);
    if groups & sat.groups(rpid) != 0 {
        if writes && read_only { Err(Denied::ReadOnly) } else { Ok(room) }
    } else {
        Err(GrpId::lowest(groups).map_or(Denied::NoGroup, Denied::Group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RPID: Pid = Pid::from_low_bits(7);

    #[test]
    fn each_answer_on_its_own() {
        let (mut mgt, mut sat) = (Mgt::default(), Sat::default());
        mgt.place(1, Dpa(0x10_0000), 0x10_0000, 12, false);
        mgt.place(3, Dpa(0x20_0000), 0x10_0000, 16, true);
        mgt.set(0x10_1000, 0x2000, GrpId::new(5).unwrap().bit());
        mgt.set(0x20_0000, 0x1_0000, GrpId::new(63).unwrap().bit());
        sat.set_groups(RPID, 1 << 63);
        let five = Denied::Group(GrpId::new(5).unwrap());
        #[rustfmt::skip] // columns: name, dpa, writes, want
        let cases = [
            ("before every DMP", 0x0F_FFFF, false, Err(Denied::NoGroup)),
            ("undefined block",  0x10_0FFF, false, Err(Denied::NoGroup)),
            ("first of group 5", 0x10_1000, false, Err(five)),
            ("last of group 5",  0x10_2FFF, true,  Err(five)),
            ("behind group 5",   0x10_3000, false, Err(Denied::NoGroup)),
            ("group 63",         0x20_0040, false, Ok(0xFFC0)),
            ("read only",        0x20_0040, true,  Err(Denied::ReadOnly)),
            ("behind group 63",  0x21_0000, false, Err(Denied::NoGroup)),
            ("after every DMP",  0x30_0000, false, Err(Denied::NoGroup)),
        ];
        for (name, dpa, writes, want) in cases {
            assert_eq!(check(&mgt, &sat, RPID, Dpa(dpa), writes), want, "{name}");
        }
        sat.set_groups(RPID, 1 << 5);
        assert_eq!(check(&mgt, &sat, RPID, Dpa(0x10_1FFF), true), Ok(1));
        sat.set_groups(RPID, 0);
        assert_eq!(check(&mgt, &sat, RPID, Dpa(0x10_1FFF), true), Err(five));
    }

    #[test]
    fn the_last_requester_and_group_count_too() {
        let (mut mgt, mut sat) = (Mgt::default(), Sat::default());
        mgt.place(0, Dpa(0), 0x1000, 12, false);
        mgt.set(0, 0x1000, 1);
        let last = Pid::from_low_bits(0xFFE);
        sat.set_groups(last, 1);
        assert_eq!(check(&mgt, &sat, last, Dpa(0), true), Ok(0x1000));
        assert!(check(&mgt, &sat, Pid::from_low_bits(0xFFD), Dpa(0), true).is_err());
        assert_eq!((GrpId::new(64), GrpId::lowest(0)), (None, None));
    }
}
