//! Identity of the managers of a group towards components: another UUID in each term.
//!
//! [`Lineage::at`] makes the UUID of a term from that of the wanted state; [`Lineage::term_of`] finds the term of a
//! UUID. Terms count from 1; 0 is the manager without others.
//!
//! A component knows its managers by UUID. The leader of a term registers the UUID of the next term as the secondary
//! manager, whoever will lead then. The next leader promotes itself, by which the sessions of the one before lose their
//! rights. No UUID is used in two terms, so a manager that wakes up late is never taken for the leader.
//!
//! Source: Claim Ownership, CXL 3.1 section 7.7.13.1; docs/spec/wire-formats.md §4.8; the mixing is that of
//! `SplitMix64` (Steele, Lea, Flood, OOPSLA 2014).

use weft_parsers::cci::Uuid;

/// Constant that makes the two halves of a UUID differ: that of `SplitMix64`, 2 to the power of 64 divided by the
/// golden ratio.
const SECOND: u64 = 0x9E37_79B9_7F4A_7C15;

/// Number of terms that etcd can have lost at most, so that a component that lies cannot use terms up.
const LATER_MAX: u64 = 1 << 32;

/// The UUIDs of the managers of a fabric, and the term of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lineage {
    /// UUID of the wanted state, that of term 0.
    pub base: Uuid,
    /// The present term, counted from 1; 0 is a manager without others.
    pub term: u64,
}

impl Lineage {
    #[must_use]
    pub const fn at(&self, term: u64) -> Uuid {
        if term == 0 {
            return self.base;
        }
        let first = mix(term);
        let mask = (first as u128) << 64 | mix(first ^ SECOND) as u128;
        (u128::from_be_bytes(self.base) ^ mask).to_be_bytes()
    }

    #[must_use]
    pub const fn now(&self) -> Uuid {
        self.at(self.term)
    }

    #[must_use]
    pub const fn next(&self) -> Uuid {
        self.at(self.term.saturating_add(1))
    }

    /// The term of a UUID, if it is the present one or an earlier one.
    #[must_use]
    pub fn term_of(&self, uuid: Uuid) -> Option<u64> {
        self.any_term_of(uuid).filter(|term| *term <= self.term)
    }

    /// The term of a UUID, if it is a later one within reason: then etcd has lost its count.
    #[must_use]
    pub fn later_term_of(&self, uuid: Uuid) -> Option<u64> {
        let last = self.term.saturating_add(LATER_MAX);
        self.any_term_of(uuid).filter(|term| *term > self.term && *term <= last)
    }

    fn any_term_of(&self, uuid: Uuid) -> Option<u64> {
        // `mix` can be inverted, so the term is read off the first half; the second one confirms it.
        let mask = (u128::from_be_bytes(self.base) ^ u128::from_be_bytes(uuid)).to_be_bytes();
        let (first, _) = mask.split_first_chunk::<8>()?;
        let term = unmix(u64::from_be_bytes(*first));
        (self.at(term) == uuid).then_some(term)
    }
}

/// The finaliser of `SplitMix64`, a bijection.
const fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

/// Inverse of [`mix`].
const fn unmix(x: u64) -> u64 {
    let x = (x ^ x >> 31 ^ x >> 62).wrapping_mul(0x3196_42B2_D24D_8EC3);
    let x = (x ^ x >> 27 ^ x >> 54).wrapping_mul(0x96DE_1B17_3F11_9089);
    x ^ x >> 30 ^ x >> 60
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_term_has_a_uuid_that_tells_it() {
        let base = [0xF1; 16];
        let of = |term| Lineage { base, term };
        let mut seen = BTreeSet::new();
        for term in (0..500).chain([1 << 40, u64::MAX - 1]) {
            let one = of(term);
            assert!(seen.insert(one.now()), "term {term}");
            assert_eq!(one.term_of(one.now()), Some(term));
            assert_eq!(one.term_of(base), Some(0));
            assert_eq!(one.term_of(one.next()), None, "a later term than {term}");
            assert_eq!(of(term + 1).term_of(one.next()), Some(term + 1));
            assert_eq!(one.later_term_of(one.next()), Some(term + 1));
            assert_eq!(one.later_term_of(one.now()), None);
        }
        let far = of(3 + LATER_MAX);
        assert_eq!(of(3).later_term_of(far.now()), Some(far.term));
        assert_eq!(of(3).later_term_of(far.next()), None, "no fabric comes to that");
        // A UUID with one wrong bit belongs to no term.
        let last = of(u64::MAX);
        for place in 0..16 {
            for bit in 0..8 {
                for term in [0, 7] {
                    let mut other = last.at(term);
                    other[place] ^= 1 << bit;
                    assert_eq!(last.term_of(other), None, "term {term}, byte {place} bit {bit}");
                }
            }
        }
    }
}
