//! Common parts of the explorations of all orders: programs of loads and stores, the history of a world, and the
//! search.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use weft_parsers::cxl_mem::LINE;

use super::super::cache::Bytes;

/// A step of a program: the line, and the value stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Op {
    Load(u64),
    Store(u64, u8),
    /// A store of the whole line, which ends its poison.
    Whole(u64, u8),
}

impl Op {
    pub(crate) const fn line(self) -> u64 {
        match self {
            Self::Load(line) | Self::Store(line, _) | Self::Whole(line, _) => line,
        }
    }
}

/// An access, with its index in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Part {
    pub op: Op,
    pub nth: usize,
}

/// Value of a line that is poisoned.
pub(crate) const POISON: u8 = 0xFF;
/// Marks that the line was given up while an access was under way.
pub(crate) const GIVEN_UP: u8 = 0xFE;

/// Bytes of a line whose first byte is `value`.
pub(crate) fn bytes(value: u8) -> Bytes {
    let mut bytes = [0; LINE];
    bytes[0] = value;
    bytes
}

/// A line as an index.
pub(crate) fn at(line: u64) -> usize {
    usize::try_from(line).unwrap()
}

/// Steps so far, the last one first. Worlds with different histories are equal.
#[derive(Clone)]
pub(crate) struct Told<H>(Option<Rc<(Self, H)>>);

impl<H> Default for Told<H> {
    fn default() -> Self {
        Self(None)
    }
}

impl<H> Told<H> {
    /// This history with `next` added.
    pub(crate) fn and(&self, next: H) -> Self
    where
        H: Clone,
    {
        Self(Some(Rc::new((self.clone(), next))))
    }
}

impl<H> Hash for Told<H> {
    fn hash<S: Hasher>(&self, _: &mut S) {}
}

impl<H: fmt::Debug> fmt::Debug for Told<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(last) = &self.0 else { return Ok(()) };
        last.0.fmt(f)?;
        writeln!(f, "{:?}", last.1)
    }
}

/// State of all components and all messages under way.
pub(crate) trait World: Clone + Hash + fmt::Debug {
    /// A step.
    type Step: Copy;

    /// All steps that are possible next.
    fn steps(&self) -> Vec<Self::Step>;

    /// Carries out a step.
    ///
    /// # Panics
    /// The state after the step breaks a rule.
    fn step(&mut self, step: Self::Step);

    /// Whether all programs have ended.
    fn is_over(&self) -> bool;
}

/// Explores every sequence of steps from `start`; returns the number of states.
///
/// # Panics
/// A step does, or no step is possible although programs have not ended.
pub(crate) fn explore<W: World>(start: W) -> usize {
    let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(world) = open.pop() {
        let steps = world.steps();
        if steps.is_empty() {
            assert!(world.is_over(), "deadlock: {world:#?}");
        }
        for step in steps {
            let mut next = world.clone();
            next.step(step);
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                open.push(next);
            }
        }
    }
    seen.len()
}
