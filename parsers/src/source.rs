//! What can decide a frame's priority.
//! Shape: [`PriSource`], and which of a list decides by what a frame carries.
//! Units: none.
//! Source: docs/spec/pipeline.md §2.

/// A field that can decide a frame's priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PriSource {
    /// VLAN PCP.
    Pcp,
    /// DSCP of IPv4 or IPv6.
    Dscp,
    /// Traffic Class of AFH.
    Tc,
    /// EXP of the top MPLS label: the Traffic Class of RFC 5462.
    Exp,
}

impl PriSource {
    /// How many there are.
    pub const COUNT: usize = 4;
    /// Every source, in the order of its number.
    pub const ALL: [Self; Self::COUNT] = [Self::Pcp, Self::Dscp, Self::Tc, Self::Exp];
    /// How many sets of sources a frame can carry ([`crate::Head::carries`]).
    pub const SETS: usize = 1 << Self::COUNT;
    /// The highest number of codes that a source has: the size of a table that serves any.
    pub const CODES_MAX: usize = 64;
    /// What a port trusts that says nothing of it.
    pub const DEFAULT_TRUST: [Self; 3] = [Self::Pcp, Self::Dscp, Self::Tc];

    /// The name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pcp => "pcp",
            Self::Dscp => "dscp",
            Self::Tc => "tc",
            Self::Exp => "exp",
        }
    }

    /// The key in the configuration of the map from this source's codes to priorities.
    #[must_use]
    pub const fn map_key(self) -> &'static str {
        match self {
            Self::Pcp => "pcp_to_pri",
            Self::Dscp => "dscp_to_pri",
            Self::Tc => "tc_to_pri",
            Self::Exp => "exp_to_pri",
        }
    }

    /// The source of this number in [`Self::ALL`].
    #[inline]
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Pcp),
            1 => Some(Self::Dscp),
            2 => Some(Self::Tc),
            3 => Some(Self::Exp),
            _ => None,
        }
    }

    /// This source in a set.
    #[inline]
    #[must_use]
    pub const fn bit(self) -> usize {
        1 << self as usize
    }

    /// The first of `trust` that is in the set `carried`: the one that decides.
    #[must_use]
    pub fn deciding(trust: &[Self], carried: usize) -> Option<Self> {
        trust.iter().copied().find(|source| carried & source.bit() != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_found_by_its_number() {
        for (number, source) in PriSource::ALL.into_iter().enumerate() {
            assert_eq!(source as usize, number);
            assert_eq!(PriSource::from_number(source as u8), Some(source));
            assert_eq!(source.map_key().strip_suffix("_to_pri"), Some(source.name()));
        }
        assert_eq!(PriSource::from_number(4), None);
    }

    #[test]
    fn the_first_that_is_carried_decides() {
        let trust = [PriSource::Exp, PriSource::Pcp];
        let deciding = |carried| PriSource::deciding(&trust, carried);
        assert_eq!(deciding(PriSource::Pcp.bit() | PriSource::Exp.bit()), Some(PriSource::Exp));
        assert_eq!(deciding(PriSource::Pcp.bit() | PriSource::Tc.bit()), Some(PriSource::Pcp));
        assert_eq!(deciding(PriSource::Tc.bit()), None);
    }
}
