//! Priority flow control: pauses received, pauses sent, and the watchdog over received ones.
//!
//! [`PauseRx`] per output, [`PauseTx`] per input, [`Watchdog`] per output; [`PfcFrame`] is the
//! content of a frame on the wire, classes 0..=7 as bits 0..=7.
//!
//! Units: pause quanta of 512 bit times; picoseconds inside.
//! Source: IEEE 802.1Q clause 36; IEEE 802.3 Annex 31B.2 and 31D; docs/spec/pipeline.md §2 and §9.

mod rx;
mod tx;
mod watchdog;

pub use rx::PauseRx;
pub use tx::PauseTx;
pub use watchdog::{Watchdog, WatchdogEvents};

use crate::types::{PerPri, Pri, PriSet};

/// Classes on the wire, as many as a PCP has values; the switch may have fewer priorities.
pub const CLASSES: usize = 8;

/// The contents of a priority-based flow control (PFC) frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PfcFrame {
    /// Classes that the frame is about; the others are left as they are.
    pub enable: u8,
    /// Pause of each class in quanta; 0 resumes.
    pub quanta: [u16; CLASSES],
}

/// Why `pri_to_pfc` cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// One class for two priorities: a PAUSE for one would stop the other.
    #[error("PFC class {class} stands for priorities {} and {}", low.get(), high.get())]
    Shared {
        /// The lowest class that both priorities name.
        class: u8,
        /// The lower of the two priorities.
        low: Pri,
        /// The higher of the two priorities.
        high: Pri,
    },
    /// A lossless priority without a class: no PAUSE could name it.
    #[error("priority {} is lossless, but has no PFC class", .0.get())]
    NoClass(Pri),
}

/// Classes that our PAUSE for each priority names by default: every PCP that maps to the priority.
#[must_use]
pub fn default_classes(pcp_to_pri: &[Pri; CLASSES]) -> PerPri<u8> {
    let mut classes = PerPri([0; 8]);
    for (class, &pri) in (0..).zip(pcp_to_pri) {
        classes[pri] |= 1 << class;
    }
    classes
}

/// Checks that class sets are disjoint and that each priority of `lossless` has one.
///
/// # Errors
/// See [`ClassError`].
pub fn check_classes(pri_to_pfc: &PerPri<u8>, lossless: PriSet) -> Result<(), ClassError> {
    for high in Pri::ALL {
        for low in Pri::ALL.into_iter().take(high.index()) {
            let shared = pri_to_pfc[low] & pri_to_pfc[high];
            if shared != 0 {
                return Err(ClassError::Shared { class: lowest(shared), low, high });
            }
        }
        if lossless.contains(high) && pri_to_pfc[high] == 0 {
            return Err(ClassError::NoClass(high));
        }
    }
    Ok(())
}

const fn lowest(classes: u8) -> u8 {
    Pri::from_low_bits(classes.trailing_zeros().to_le_bytes()[0]).get()
}

/// Class numbers in a set.
fn classes(set: u8) -> impl Iterator<Item = Pri> {
    PriSet::from_bits(set).iter()
}

#[cfg(test)]
mod tests;
