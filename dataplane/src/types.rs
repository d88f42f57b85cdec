//! Index types of the switch: ports and priorities, their sets, and arrays that they index.
//!
//! [`PortId`] 0..=63, [`PortSet`] u64; [`Pri`] 0..=7 (0 lowest), [`PriSet`] u8; [`QueueKey`] and
//! [`GroupKey`] of both; [`Alpha`], a fraction. Bit n of a set is member n.
//!
//! Source: docs/spec/pipeline.md, "Words"; ARCHITECTURE.md "Time, errors, unsafe".
#![expect(clippy::cast_possible_truncation, reason = "bounds are checked before each cast")]

use core::fmt;
use core::ops::{Index, IndexMut};

use zerocopy::FromZeros;

/// Most ports that a switch can have.
pub const PORTS_MAX: usize = 64;
/// Most switch-internal priorities; a switch has 4 or 8.
pub const PRIS_MAX: usize = 8;

/// A switch port, 0..=63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PortId(u8);

impl PortId {
    /// Port `index`; `None` from 64 on.
    #[inline]
    #[must_use]
    pub const fn new(index: usize) -> Option<Self> {
        if index < PORTS_MAX { Some(Self(index as u8)) } else { None }
    }

    /// The low six bits of `index` as a port: for values that were a port before.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(index: u8) -> Self {
        Self(index & 63)
    }

    /// This port as an array index.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// This port as a byte.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for PortId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port{}", self.0)
    }
}

/// A switch-internal priority, 0 (lowest) to 7.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Pri(u8);

impl Pri {
    /// All eight priorities, lowest first.
    pub const ALL: [Self; PRIS_MAX] =
        [Self(0), Self(1), Self(2), Self(3), Self(4), Self(5), Self(6), Self(7)];

    /// Priority `pri`; `None` above 7.
    #[inline]
    #[must_use]
    pub const fn new(pri: u8) -> Option<Self> {
        if pri < 8 { Some(Self(pri)) } else { None }
    }

    /// The low three bits of `pri` as a priority.
    #[inline]
    #[must_use]
    pub const fn from_low_bits(pri: u8) -> Self {
        Self(pri & 7)
    }

    /// This priority as an array index.
    #[inline]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// This priority as a byte.
    #[inline]
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for Pri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pri{}", self.0)
    }
}

/// A VOQ: frames of one priority from one input to one output. [`QueueId`](crate::queues::QueueId) leaves the input out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// Port that its frames came in by.
    pub input: PortId,
    /// Port that they leave by.
    pub output: PortId,
    /// Their priority inside the switch.
    pub pri: Pri,
}

/// An ingress priority group: frames of one priority from one input, which PFC pauses together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// Port that its frames came in by.
    pub input: PortId,
    /// Their priority inside the switch.
    pub pri: Pri,
}

/// A DT factor: any fraction, as parts of 2^-32.
///
/// The product with cells is floor(alpha x cells), exactly: for every fraction whose denominator is a power of two up to
/// 2^32, and for any other of up to 255 with fewer than 2^24 cells, which no buffer exceeds. Beyond, it is at most one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Alpha(u64);

impl Alpha {
    /// The factor 1: a queue may take as much as is free.
    pub const ONE: Self = Self(1 << Self::BITS);
    const BITS: u32 = 32;

    /// The factor `num / den`; `None` if it is 0, or 2^16 and above, or `den` is 0.
    #[must_use]
    pub const fn ratio(num: u64, den: u64) -> Option<Self> {
        if num == 0 || den == 0 {
            return None;
        }
        // Rounded up: with too small a factor, 1/3 of 3 cells would be none.
        let parts = ((num as u128) << Self::BITS).div_ceil(den as u128);
        if parts < 1 << (Self::BITS + 16) { Some(Self(parts as u64)) } else { None }
    }

    /// The factor 2 to the power of `shift`.
    ///
    /// # Panics
    /// When `shift` is not in -32..=15; meant for constants and tests.
    #[must_use]
    pub const fn shift(shift: i8) -> Self {
        assert!(-32 <= shift && shift < 16, "a shift of -32..=15");
        Self(1 << (Self::BITS as i8 + shift))
    }

    /// The factor as a number of parts of 2^-32.
    #[must_use]
    pub const fn parts(self) -> u64 {
        self.0
    }

    /// The product floor(alpha x `cells`), saturating.
    #[inline]
    #[must_use]
    pub const fn of(self, cells: u64) -> u64 {
        let product = (self.0 as u128 * cells as u128) >> Self::BITS;
        if product > u64::MAX as u128 { u64::MAX } else { product as u64 }
    }
}

impl Default for Alpha {
    fn default() -> Self {
        Self::ONE
    }
}

macro_rules! bit_set {
    ($(#[$doc:meta])* $name:ident, $word:ty, $item:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($word);

        impl $name {
            /// The set without any member.
            pub const EMPTY: Self = Self(0);

            /// The set whose member n is bit n.
            #[inline]
            #[must_use]
            pub const fn from_bits(bits: $word) -> Self {
                Self(bits)
            }

            /// Members 0 to `count - 1`.
            #[inline]
            #[must_use]
            pub const fn first(count: usize) -> Self {
                if count >= <$word>::BITS as usize { Self(<$word>::MAX) } else { Self((1 << count) - 1) }
            }

            /// The set whose only member is `item`.
            #[inline]
            #[must_use]
            pub const fn only(item: $item) -> Self {
                Self(1 << item.0)
            }

            /// The set as a word, with member n as bit n.
            #[inline]
            #[must_use]
            pub const fn bits(self) -> $word {
                self.0
            }

            /// Whether there is no member.
            #[inline]
            #[must_use]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Number of members of the set.
            #[inline]
            #[must_use]
            pub const fn len(self) -> usize {
                self.0.count_ones() as usize
            }

            /// Whether `item` is a member.
            #[inline]
            #[must_use]
            pub const fn contains(self, item: $item) -> bool {
                self.0 >> item.0 & 1 != 0
            }

            /// Adds `item` to the set.
            #[inline]
            pub const fn insert(&mut self, item: $item) {
                self.0 |= 1 << item.0;
            }

            /// Removes `item` from the set.
            #[inline]
            pub const fn remove(&mut self, item: $item) {
                self.0 &= !(1 << item.0);
            }

            /// Members that are in both sets.
            #[inline]
            #[must_use]
            pub const fn and(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }

            /// Members that are in either set.
            #[inline]
            #[must_use]
            pub const fn or(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Members that `other` lacks.
            #[inline]
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// The highest member, if there is any.
            #[inline]
            #[must_use]
            pub const fn highest(self) -> Option<$item> {
                match self.0.checked_ilog2() {
                    Some(bit) => Some(<$item>::from_low_bits(bit as u8)),
                    None => None,
                }
            }

            /// The lowest member, if there is any.
            #[inline]
            #[must_use]
            pub const fn lowest(self) -> Option<$item> {
                if self.0 == 0 {
                    return None;
                }
                Some(<$item>::from_low_bits(self.0.trailing_zeros() as u8))
            }

            /// The only member, if the set has exactly one.
            #[inline]
            #[must_use]
            pub const fn sole(self) -> Option<$item> {
                if self.0.is_power_of_two() { self.lowest() } else { None }
            }

            /// The first member at or after `from`, wrapping to the lowest.
            #[inline]
            #[must_use]
            pub const fn next_from(self, from: $item) -> Option<$item> {
                if self.0 == 0 {
                    return None;
                }
                // Rotated, `from` is bit 0, so the first set bit is the answer without a loop or a
                // branch.
                let turned = self.0.rotate_right(from.0 as u32).trailing_zeros();
                Some(<$item>::from_low_bits(((from.0 as u32 + turned) % <$word>::BITS) as u8))
            }

            /// All members, lowest first.
            #[inline]
            pub fn iter(self) -> impl Iterator<Item = $item> {
                let mut left = self.0;
                core::iter::from_fn(move || {
                    let bit = (left != 0).then(|| left.trailing_zeros())?;
                    left &= left - 1;
                    Some(<$item>::from_low_bits(bit as u8))
                })
            }

            /// All members, highest first.
            #[inline]
            pub fn iter_down(self) -> impl Iterator<Item = $item> {
                let mut left = self;
                core::iter::from_fn(move || {
                    let item = left.highest()?;
                    left.remove(item);
                    Some(item)
                })
            }
        }

        impl FromIterator<$item> for $name {
            fn from_iter<I: IntoIterator<Item = $item>>(items: I) -> Self {
                let mut set = Self::EMPTY;
                for item in items {
                    set.insert(item);
                }
                set
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_set().entries(self.iter().map(<$item>::get)).finish()
            }
        }
    };
}

bit_set!(
    /// A set of ports; bit n is port n.
    PortSet, u64, PortId
);
bit_set!(
    /// A set of priorities; bit n is priority n.
    PriSet, u8, Pri
);

/// One `T` for each priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, FromZeros)]
pub struct PerPri<T>(pub [T; PRIS_MAX]);

impl<T> Index<Pri> for PerPri<T> {
    type Output = T;
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a Pri is below 8 by construction")]
    fn index(&self, pri: Pri) -> &T {
        &self.0[pri.index()]
    }
}

impl<T> IndexMut<Pri> for PerPri<T> {
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a Pri is below 8 by construction")]
    fn index_mut(&mut self, pri: Pri) -> &mut T {
        &mut self.0[pri.index()]
    }
}

/// One `T` for each of the switch's ports.
///
/// Always backed by [`PORTS_MAX`] slots, so that an index by [`PortId`] needs no bounds check.
#[derive(Clone, Debug)]
pub struct PerPort<T>(Box<[T; PORTS_MAX]>);

impl<T> PerPort<T> {
    /// Computes each port's value by `make`.
    #[must_use]
    pub fn from_fn(mut make: impl FnMut(PortId) -> T) -> Self {
        let all: Vec<T> = (0..PORTS_MAX).map(|i| make(PortId(i as u8))).collect();
        match all.into_boxed_slice().try_into() {
            Ok(array) => Self(array),
            Err(_) => unreachable!("made of exactly PORTS_MAX"),
        }
    }

    /// Zeros for each port, on pages that become real when they are written.
    ///
    /// # Panics
    /// When there is no memory.
    #[must_use]
    pub(crate) fn zeroed() -> Self
    where
        T: FromZeros,
    {
        Self(<[T; PORTS_MAX]>::new_box_zeroed().expect("half a mebibyte at most"))
    }

    /// Ports with their values, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = (PortId, &T)> {
        self.0.iter().enumerate().map(|(i, t)| (PortId(i as u8), t))
    }
}

impl<T: Default> Default for PerPort<T> {
    fn default() -> Self {
        Self::from_fn(|_| T::default())
    }
}

impl<T> Index<PortId> for PerPort<T> {
    type Output = T;
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a PortId is below 64 by construction")]
    fn index(&self, port: PortId) -> &T {
        &self.0[port.index()]
    }
}

impl<T> IndexMut<PortId> for PerPort<T> {
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "a PortId is below 64 by construction")]
    fn index_mut(&mut self, port: PortId) -> &mut T {
        &mut self.0[port.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_find_members_going_round() {
        let set = PortSet::from_bits(1 << 3 | 1 << 40 | 1 << 63);
        #[rustfmt::skip] // columns: from, want
        let cases = [(0, 3), (3, 3), (4, 40), (40, 40), (41, 63), (63, 63)];
        for (from, want) in cases {
            let from = PortId::new(from).unwrap();
            assert_eq!(set.next_from(from), PortId::new(want), "{from:?}");
        }
        let low = PortSet::from_bits(1 << 3);
        assert_eq!(low.next_from(PortId::new(9).unwrap()), PortId::new(3));
        assert_eq!(PortSet::EMPTY.next_from(PortId::default()), None);
        assert_eq!(set.iter().map(PortId::get).collect::<Vec<_>>(), [3, 40, 63]);
        assert_eq!(set.iter_down().map(PortId::get).collect::<Vec<_>>(), [63, 40, 3]);
        assert_eq!(set.highest(), PortId::new(63));
        assert_eq!(PortSet::first(64).len(), 64);
        assert_eq!(PriSet::first(4).bits(), 0b1111);
        assert_eq!(PriSet::first(8).bits(), 0xFF);
        assert_eq!(PriSet::from_bits(0b101).next_from(Pri::from_low_bits(3)), Pri::new(0));
    }

    #[test]
    fn ids_refuse_what_is_out_of_range() {
        assert_eq!(PortId::new(64), None);
        assert_eq!(Pri::new(8), None);
    }

    /// A power of two multiplies as a shift does; others to the cell, whatever is free.
    #[test]
    fn alpha_multiplies_exactly() {
        for shift in -8_i8..8 {
            for cells in [0, 1, 7, 8, 9, 255, 131_071, (1 << 24) - 1, u64::from(u32::MAX)] {
                let by = shift.unsigned_abs();
                let want = if shift < 0 { cells >> by } else { cells << by };
                assert_eq!(Alpha::shift(shift).of(cells), want, "2^{shift} x {cells}");
            }
        }
        for (num, den) in (1..=255).flat_map(|den| [(1, den), (den - 1, den), (den + 1, den)]) {
            let Some(alpha) = Alpha::ratio(num, den) else { continue };
            for cells in (0..64).chain([den, 3 * den - 1, 16_776_960, (1 << 24) - 1]) {
                assert_eq!(alpha.of(cells), cells * num / den, "{num}/{den} x {cells}");
            }
        }
        assert_eq!(Alpha::ratio(3, 4), Alpha::ratio(750_000_000, 1_000_000_000));
        assert_eq!(Alpha::ratio(1, 8), Some(Alpha::shift(-3)));
        assert_eq!(Alpha::ratio(u64::MAX, u64::MAX), Some(Alpha::ONE));
        let refused = [(0, 1), (1, 0), (1 << 16, 1), (u64::MAX, 1)];
        assert_eq!(refused.map(|of: (u64, u64)| Alpha::ratio(of.0, of.1)), [None; 4]);
        assert_eq!(Alpha::shift(15).of(u64::MAX), u64::MAX);
    }
}
