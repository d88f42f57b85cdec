//! Sources of a frame's priority: fields of its headers.
//!
//! [`PriSource`], and the choice between the sources that a port trusts and those that a frame
//! carries.
//!
//! Source: docs/spec/pipeline.md §2.

/// One row a source, in the order of their numbers: name and key in the configuration.
macro_rules! sources {
    ($($(#[$doc:meta])* $source:ident = $number:literal, $name:literal, $map_key:literal;)+) => {
        /// A field that can decide a frame's priority.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum PriSource {
            $($(#[$doc])* $source = $number,)+
        }

        impl PriSource {
            /// Every source, in the order of its number.
            pub const ALL: [Self; Self::COUNT] = [$(Self::$source),+];
            /// How many there are.
            pub const COUNT: usize = Self::NAMES.len();
            /// Their names in the configuration, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name in the configuration.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$source => $name,)+
                }
            }

            /// The key in the configuration of the map from this source's codes to priorities.
            #[must_use]
            pub const fn map_key(self) -> &'static str {
                match self {
                    $(Self::$source => $map_key,)+
                }
            }

            /// The source of this number in [`Self::ALL`].
            #[inline]
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$source),)+
                    _ => None,
                }
            }
        }
    };
}

sources! {
    /// PCP of the outer VLAN tag.
    Pcp = 0, "pcp", "pcp_to_pri";
    /// DSCP of IPv4 or IPv6.
    Dscp = 1, "dscp", "dscp_to_pri";
    /// Traffic Class of AFH.
    Tc = 2, "tc", "tc_to_pri";
    /// EXP of the top MPLS label: the Traffic Class of RFC 5462.
    Exp = 3, "exp", "exp_to_pri";
}

impl PriSource {
    /// How many sets of sources a frame can carry ([`crate::Head::carries`]).
    pub const SETS: usize = 1 << Self::COUNT;
    /// Size of a table with a row for each source by its number: a power of two, so that a mask keeps it in bounds.
    pub const SLOTS: usize = Self::COUNT.next_power_of_two();
    /// The highest number of codes that a source has: the size of a table that serves any.
    pub const CODES_MAX: usize = 64;
    /// Sources that a port trusts, in order, where its configuration does not list any.
    pub const DEFAULT_TRUST: [Self; 3] = [Self::Pcp, Self::Dscp, Self::Tc];

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
        assert_eq!(PriSource::from_number(u8::MAX), None);
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
