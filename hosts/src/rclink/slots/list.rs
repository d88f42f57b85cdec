//! Doubly linked lists of slots, by indices in the slots themselves, so that they take no memory of their own.
//!
//! [`List`] has the ends; each slot has a [`Links`] for each list that it may be in.

/// The index that stands for no slot.
pub(super) const NONE: u16 = u16::MAX;

/// Neighbours of a slot in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Links {
    before: u16,
    after: u16,
}

impl Links {
    /// Links of a slot that is in no list.
    pub const NONE: Self = Self { before: NONE, after: NONE };
}

/// The ends of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List {
    first: u16,
    last: u16,
}

impl List {
    /// A list without slots.
    pub const EMPTY: Self = Self { first: NONE, last: NONE };

    /// Index of the first slot.
    #[inline]
    pub const fn first(self) -> Option<u16> {
        if self.first == NONE { None } else { Some(self.first) }
    }

    /// Index of the slot after `index`.
    #[inline]
    pub fn after<T>(slots: &[T], index: u16, links: impl Fn(&T) -> Links) -> Option<u16> {
        let slot = slots.get(usize::from(index))?;
        Some(links(slot).after).filter(|&after| after != NONE)
    }

    /// Appends slot `index`.
    #[inline]
    pub fn push<T>(&mut self, slots: &mut [T], index: u16, links: impl Fn(&mut T) -> &mut Links) {
        if let Some(slot) = slots.get_mut(usize::from(index)) {
            *links(slot) = Links { before: self.last, after: NONE };
        }
        match slots.get_mut(usize::from(self.last)) {
            Some(slot) => links(slot).after = index,
            None => self.first = index,
        }
        self.last = index;
    }

    /// Removes slot `index`, which must be in this list.
    #[inline]
    pub fn remove<T>(&mut self, slots: &mut [T], index: u16, links: impl Fn(&mut T) -> &mut Links) {
        let Some(slot) = slots.get_mut(usize::from(index)) else { return };
        let Links { before, after } = core::mem::replace(links(slot), Links::NONE);
        match slots.get_mut(usize::from(before)) {
            Some(slot) => links(slot).after = after,
            None => self.first = after,
        }
        match slots.get_mut(usize::from(after)) {
            Some(slot) => links(slot).before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use weft_base::rng::Rng;

    use super::*;

    /// Against a deque, with slots pushed and taken out at random.
    #[test]
    fn a_list_is_what_a_deque_is() {
        let (mut slots, mut list) = ([Links::NONE; 32], List::EMPTY);
        let (mut model, mut rng) = (VecDeque::new(), Rng::new(4));
        for _ in 0..10_000 {
            let index = u16::try_from(rng.below(32)).unwrap();
            if let Some(place) = model.iter().position(|&other| other == index) {
                model.remove(place);
                list.remove(&mut slots, index, |links| links);
            } else {
                model.push_back(index);
                list.push(&mut slots, index, |links| links);
            }
            let next = |&index: &u16| List::after(&slots, index, |links| *links);
            let had = core::iter::successors(list.first(), next);
            assert!(had.eq(model.iter().copied()));
        }
    }
}
