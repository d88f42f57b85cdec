//! Numbers of switches, links and ports, and tables and sets indexed by them.
//!
//! [`Per`] is a vector that only its own key type can index, so that a table by switch cannot be read by link.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; ARCHITECTURE.md "Time, errors, unsafe";
//! docs/spec/wire-formats.md §4.5 (a port number is a byte).

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// A number that can index a [`Per`].
pub trait Key: Copy {
    fn index(self) -> usize;
    /// The key of the entry at `index`.
    ///
    /// # Panics
    /// When the key's width does not hold it.
    fn at(index: usize) -> Self;
}

/// A switch, as the FM numbers them: 0 upwards in order of discovery.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct SwitchId(pub u16);

/// A link between two switches, as the FM numbers them.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct LinkId(pub u32);

impl Key for SwitchId {
    #[inline]
    fn index(self) -> usize {
        usize::from(self.0)
    }

    #[inline]
    fn at(index: usize) -> Self {
        Self(u16::try_from(index).expect("a graph holds at most 1,024 switches"))
    }
}

impl Key for LinkId {
    #[inline]
    fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    fn at(index: usize) -> Self {
        Self(u32::try_from(index).expect("1,024 switches of 256 ports have 131,072 links at most"))
    }
}

impl fmt::Display for SwitchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// A port of a switch.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct PortRef {
    pub switch: SwitchId,
    pub port: u8,
}

impl PortRef {
    /// Port `port` of `switch`.
    #[must_use]
    pub const fn new(switch: SwitchId, port: u8) -> Self {
        Self { switch, port }
    }
}

impl fmt::Display for PortRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.switch, self.port)
    }
}

/// A table with one `T` for each id below a count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Per<K, T> {
    items: Vec<T>,
    key: PhantomData<K>,
}

impl<K, T> Default for Per<K, T> {
    fn default() -> Self {
        Self { items: Vec::new(), key: PhantomData }
    }
}

impl<K: Key, T> Per<K, T> {
    /// `count` times `item`.
    #[must_use]
    pub fn new(count: usize, item: T) -> Self
    where
        T: Clone,
    {
        Self { items: vec![item; count], key: PhantomData }
    }

    /// Appends `item`; its key is the next number.
    pub fn push(&mut self, item: T) -> K {
        self.items.push(item);
        K::at(self.items.len() - 1)
    }

    #[must_use]
    pub const fn len(&self) -> usize {
        self.items.len()
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The item of `key`; `None` when the key comes from another graph.
    #[must_use]
    pub fn find(&self, key: K) -> Option<&T> {
        self.items.get(key.index())
    }

    pub fn keys(&self) -> impl Iterator<Item = K> + use<K, T> {
        (0..self.items.len()).map(K::at)
    }

    /// All items, in the order of their keys.
    pub fn values(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.items.iter().enumerate().map(|(at, item)| (K::at(at), item))
    }

    pub fn fill(&mut self, item: T)
    where
        T: Clone,
    {
        self.items.fill(item);
    }
}

impl<K: Key, T> FromIterator<T> for Per<K, T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self { items: items.into_iter().collect(), key: PhantomData }
    }
}

impl<K: Key, T> Index<K> for Per<K, T> {
    type Output = T;

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "keys come from the graph that sized the table")]
    fn index(&self, key: K) -> &T {
        &self.items[key.index()]
    }
}

impl<K: Key, T> IndexMut<K> for Per<K, T> {
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "keys come from the graph that sized the table")]
    fn index_mut(&mut self, key: K) -> &mut T {
        &mut self.items[key.index()]
    }
}

/// A set of ports of one switch, a bit for each of the 256 port numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PortMask([u64; 4]);

impl PortMask {
    pub const EMPTY: Self = Self([0; 4]);

    #[inline]
    #[must_use]
    pub fn one(port: u8) -> Self {
        let mut mask = Self::EMPTY;
        mask.insert(port);
        mask
    }

    #[inline]
    pub fn insert(&mut self, port: u8) {
        if let Some(word) = self.0.get_mut(usize::from(port >> 6)) {
            *word |= 1 << (port & 63);
        }
    }

    #[inline]
    #[must_use]
    pub fn contains(self, port: u8) -> bool {
        self.0.get(usize::from(port >> 6)).is_some_and(|word| word & (1 << (port & 63)) != 0)
    }

    #[inline]
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let mut both = self;
        both.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
        both
    }

    #[inline]
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let mut both = self;
        both.0.iter_mut().zip(other.0).for_each(|(word, more)| *word &= more);
        both
    }

    #[inline]
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.0.iter().zip(other.0).any(|(word, more)| word & more != 0)
    }

    #[inline]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    #[inline]
    #[must_use]
    pub fn count(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    #[inline]
    #[must_use]
    pub fn first(self) -> Option<u8> {
        let (high, word) = (0_u8..).zip(self.0).find(|(_, word)| *word != 0)?;
        u8::try_from(word.trailing_zeros()).ok().map(|low| (high << 6) | low)
    }

    #[inline]
    pub fn remove(&mut self, port: u8) {
        if let Some(word) = self.0.get_mut(usize::from(port >> 6)) {
            *word &= !(1 << (port & 63));
        }
    }

    #[inline]
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0_u8..4).zip(self.0).flat_map(|(high, mut word)| {
            std::iter::from_fn(move || {
                let low = u8::try_from(word.trailing_zeros()).ok().filter(|&low| low < 64)?;
                // `word - 1` borrows through the zeros below the lowest set bit; the `and` clears that bit alone.
                word &= word - 1;
                Some((high << 6) | low)
            })
        })
    }
}

impl FromIterator<u8> for PortMask {
    fn from_iter<I: IntoIterator<Item = u8>>(ports: I) -> Self {
        let mut mask = Self::EMPTY;
        ports.into_iter().for_each(|port| mask.insert(port));
        mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_gives_its_ports_back_in_order() {
        let ports = [0, 1, 63, 64, 127, 128, 200, 255];
        let mask: PortMask = ports.into_iter().rev().collect();
        assert_eq!(mask.iter().collect::<Vec<_>>(), ports);
        assert_eq!((mask.count(), mask.contains(200), mask.contains(201)), (8, true, false));
        assert_eq!(mask.or(PortMask::one(201)).count(), 9);
        let mut rest = mask;
        for port in ports {
            assert_eq!(rest.first(), Some(port));
            rest.remove(port);
        }
        assert_eq!(rest.first(), None);
        assert!(PortMask::EMPTY.is_empty() && PortMask::EMPTY.iter().next().is_none());
    }
}
