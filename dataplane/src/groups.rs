//! Static multicast groups: the ports to which the frames of a group go.
//!
//! A lookup takes VID and group address and gives a [`PortSet`]; the table is two sorted arrays,
//! and part of the snapshot.
//!
//! Source: docs/spec/pipeline.md §3.

use crate::types::PortSet;
use weft_parsers::{AddrKey, AddrSpace, Vid};

/// I/G bit of a 48-bit address.
const GROUP_BIT: u64 = 1 << 40;

/// A multicast group: its address and the ports that its frames go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    /// VLAN whose frames it concerns.
    pub vid: Vid,
    /// Group address, or a 16-bit id.
    pub addr: AddrKey,
    /// Ports that its frames go to; if empty, the frames are dropped.
    pub ports: PortSet,
}

/// A reason why a table of multicast groups cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The same group is listed twice.
    #[error("group {addr} of VLAN {} is given twice", vid.get())]
    Twice {
        /// VLAN of the group.
        vid: Vid,
        /// Address of the group.
        addr: AddrKey,
    },
    /// The address is that of a station, not of a group.
    #[error("{0} is no group address: its I/G bit is 0")]
    NotGroup(AddrKey),
}

/// The multicast groups of a switch, compiled for lookup.
#[derive(Clone, Debug, Default)]
pub struct GroupTable {
    /// VID in bits 61:50, address key below; ascending.
    keys: Box<[u64]>,
    ports: Box<[PortSet]>,
}

impl GroupTable {
    /// Compiles `groups`.
    ///
    /// # Errors
    /// See [`GroupError`].
    pub fn build(groups: &[Group]) -> Result<Self, GroupError> {
        let mut sorted = groups.to_vec();
        sorted.sort_unstable_by_key(|group| word(group.vid, group.addr));
        for group in &sorted {
            // In frames of 16-bit ids a bit outside of the address says group (the M bit of `Key_words`).
            let is_id = group.addr.space() == AddrSpace::Id16;
            if !is_id && group.addr.address() & GROUP_BIT == 0 {
                return Err(GroupError::NotGroup(group.addr));
            }
        }
        for pair in sorted.windows(2) {
            if let [a, b] = pair
                && (a.vid, a.addr) == (b.vid, b.addr)
            {
                return Err(GroupError::Twice { vid: a.vid, addr: a.addr });
            }
        }
        let keys = sorted.iter().map(|group| word(group.vid, group.addr)).collect();
        Ok(Self { keys, ports: sorted.iter().map(|group| group.ports).collect() })
    }

    /// Ports of a group; `None` when it is not listed and floods its VLAN.
    ///
    /// Takes at most log2(groups) + 1 comparisons.
    #[inline]
    #[must_use]
    pub fn lookup(&self, vid: Vid, addr: AddrKey) -> Option<PortSet> {
        let at = self.keys.binary_search(&word(vid, addr)).ok()?;
        self.ports.get(at).copied()
    }
}

const fn word(vid: Vid, addr: AddrKey) -> u64 {
    (vid.get() as u64) << 50 | addr.to_bits()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn group(vid: u16, space: AddrSpace, address: u64, ports: u64) -> Group {
        let addr = AddrKey::new(space, address);
        Group { vid: Vid::new(vid).unwrap(), addr, ports: PortSet::from_bits(ports) }
    }

    #[test]
    fn groups_are_found_by_vlan_space_and_address() {
        use AddrSpace::{Ethernet, Gen1, Id16};
        let given = [
            group(2, Ethernet, GROUP_BIT | 7, 0b1),
            group(1, Ethernet, GROUP_BIT | 7, 0b10),
            group(1, Gen1, GROUP_BIT | 7, 0b100),
            group(1, Id16, 7, 0b1000),
            group(1, Id16, 8, 0),
            group(4095, Ethernet, (1 << 48) - 1, 1 << 63),
        ];
        let table = GroupTable::build(&given).unwrap();
        for g in given {
            assert_eq!(table.lookup(g.vid, g.addr), Some(g.ports), "{g:?}");
        }
        let others = [group(3, Ethernet, GROUP_BIT | 7, 0), group(1, Ethernet, GROUP_BIT | 8, 0)];
        for g in others {
            assert_eq!(table.lookup(g.vid, g.addr), None, "{g:?}");
        }
        assert_eq!(GroupTable::default().lookup(given[0].vid, given[0].addr), None);
    }

    #[test]
    fn wrong_lists_are_refused() {
        let station = group(1, AddrSpace::Ethernet, 7, 1);
        assert_eq!(GroupTable::build(&[station]).err(), Some(GroupError::NotGroup(station.addr)));
        let a = group(1, AddrSpace::Id16, 7, 1);
        let b = group(1, AddrSpace::Id16, 7, 2);
        let twice = GroupError::Twice { vid: a.vid, addr: a.addr };
        assert_eq!(GroupTable::build(&[a, group(2, AddrSpace::Id16, 7, 1), b]).err(), Some(twice));
    }

    #[test]
    fn behaves_as_a_map_does() {
        let mut map = BTreeMap::new();
        let mut x = 1_u64;
        for n in 0..500 {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let vid = Vid::from_low_bits((x >> 60 & 0xF) as u16);
            map.insert((vid, AddrKey::id16((x >> 40 & 0xFF) as u16)), PortSet::from_bits(n));
        }
        let list: Vec<_> =
            map.iter().map(|(&(vid, addr), &ports)| Group { vid, addr, ports }).collect();
        let table = GroupTable::build(&list).unwrap();
        for vid in (0..17).map(Vid::from_low_bits) {
            for addr in (0..257).map(AddrKey::id16) {
                assert_eq!(table.lookup(vid, addr), map.get(&(vid, addr)).copied());
            }
        }
    }
}
