//! Admission of functions to LN registrations: who may register, how many lines, and how many each has.
//!
//! Units: lines; requests; messages.
//! Source: PCIe 5.0 section 6.21.

use std::collections::BTreeMap;

use weft_parsers::fabric::Bdf;

/// Limit of lines for each function, and the number that is tracked for it.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// `None` until software sets limits: all functions may register.
    lines_max: Option<BTreeMap<Bdf, usize>>,
    held: BTreeMap<Bdf, usize>,
}

impl Limits {
    /// Sets the functions that may register, and the number of lines of each.
    pub(super) fn set(&mut self, lines_max: BTreeMap<Bdf, usize>) {
        self.lines_max = Some(lines_max);
    }

    /// Whether a function may register at all.
    pub(super) fn knows(&self, function: Bdf) -> bool {
        self.lines_max.as_ref().is_none_or(|all| all.contains_key(&function))
    }

    /// Whether a function may register another line.
    pub(super) fn may(&self, function: Bdf) -> bool {
        let Some(all) = &self.lines_max else { return true };
        all.get(&function).is_some_and(|max| self.held(function) < *max)
    }

    /// Number of lines for which a function is tracked individually.
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

/// Counts of an LN completer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LncCounts {
    /// Registrations accepted or renewed.
    pub registered: u64,
    /// Registrations declined, as software has not enabled the function or its limit is reached.
    pub declined: u64,
    /// Lines evicted for others.
    pub evicted: u64,
    /// Messages sent to one function.
    pub directed: u64,
    /// Messages sent to all functions below a root port.
    pub broadcast: u64,
    /// LN requests refused with CA, or reported as completer aborts.
    pub aborted: u64,
    /// Number of times that the messages for a port were replaced by one.
    pub collapsed: u64,
}
