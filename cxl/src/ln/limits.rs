//! Who may register lines at a completer, how many each, and how many it has.
//!
//! [`Limits`] by function; [`LncCounts`].
//!
//! Units: lines; requests; messages.
//! Source: PCIe 5.0 section 6.21.

use std::collections::BTreeMap;

use weft_parsers::fabric::Bdf;

/// Lines that each function may register, and those that are known to be its own.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// `None`: software has set none, and everybody may.
    lines_max: Option<BTreeMap<Bdf, usize>>,
    held: BTreeMap<Bdf, usize>,
}

impl Limits {
    /// Only these functions may register, so many lines each.
    pub(super) fn set(&mut self, lines_max: BTreeMap<Bdf, usize>) {
        self.lines_max = Some(lines_max);
    }

    /// Whether a function is one of those that may.
    pub(super) fn knows(&self, function: Bdf) -> bool {
        self.lines_max.as_ref().is_none_or(|all| all.contains_key(&function))
    }

    /// Whether a function may register another line.
    pub(super) fn may(&self, function: Bdf) -> bool {
        let Some(all) = &self.lines_max else { return true };
        all.get(&function).is_some_and(|max| self.held(function) < *max)
    }

    /// Lines that a function is known one by one to have registered.
    pub(super) fn held(&self, function: Bdf) -> usize {
        self.held.get(&function).copied().unwrap_or_default()
    }

    pub(super) fn count(&mut self, function: Bdf) {
        *self.held.entry(function).or_default() += 1;
    }

    pub(super) fn uncount(&mut self, function: Bdf) {
        if let Some(held) = self.held.get_mut(&function) {
            *held = held.saturating_sub(1);
            if *held == 0 {
                self.held.remove(&function);
            }
        }
    }
}

/// What a completer has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LncCounts {
    /// Registrations that were taken, or renewed.
    pub registered: u64,
    /// Registrations that were declined: of functions that software has not switched on, or above their limit.
    pub declined: u64,
    /// Lines that made way for others.
    pub evicted: u64,
    /// Messages to one function.
    pub directed: u64,
    /// Messages to all below a root port.
    pub broadcast: u64,
    /// LN requests that were answered or reported as completer aborts.
    pub aborted: u64,
    /// How often the messages for a port were too many, and became one.
    pub collapsed: u64,
}
