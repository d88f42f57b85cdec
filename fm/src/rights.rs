//! Rights at edges that belong together: those of requests on their way, and those of completions on their way back.
//!
//! [`Rights`] that there were, [`Rights`] that there are to be -> [`change`]: all of it, or what was is put back.
//!
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; docs/spec/wire-formats.md §4.5 (5716h), §4.6 (5902h, 5904h).
//!
//! To allow, the way back comes first; to revoke, the way there goes first, and the way back when nothing is on it any more.

use std::collections::BTreeSet;

use super::cci::CallError;
use super::edge::{AccessBit, EdgeContext, set};

/// Tries of putting back what was there.
const UNDO_TRIES: u32 = 4;

/// Bits by what they are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// For requests.
    pub there: BTreeSet<AccessBit>,
    /// For completions.
    pub back: BTreeSet<AccessBit>,
}

/// Why rights are not changed.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// A step failed; all before it were undone.
    #[error("{failed}; undone")]
    Undone {
        /// The step.
        failed: String,
        /// What happened.
        source: Box<CallError>,
    },
    /// A step failed, and some before it could not be undone.
    #[error("{failed}; left: {}", .left.join("; "))]
    Left {
        /// The step.
        failed: String,
        /// What was not undone.
        left: Vec<String>,
        /// What happened.
        source: Box<CallError>,
    },
}

impl Rights {
    /// All of them.
    #[must_use]
    pub fn all(&self) -> BTreeSet<AccessBit> {
        self.there.union(&self.back).copied().collect()
    }
}

/// Brings about `new` where there was `old`, or puts back what was.
///
/// # Errors
/// See [`RightsError`].
pub fn change(means: &mut EdgeContext<'_>, old: &Rights, new: &Rights) -> Result<(), RightsError> {
    let (had, has) = (old.all(), new.all());
    let on = |set: &BTreeSet<AccessBit>| -> Vec<(AccessBit, bool)> {
        set.difference(&had).map(|bit| (*bit, true)).collect()
    };
    let off = |set: &BTreeSet<AccessBit>| -> Vec<(AccessBit, bool)> {
        set.difference(&has).map(|bit| (*bit, false)).collect()
    };
    let stages = [on(&new.back), on(&new.there), off(&old.there), off(&old.back)];
    let mut done: Vec<(AccessBit, bool)> = Vec::new();
    for (number, stage) in stages.into_iter().enumerate() {
        if number == 3 && !stage.is_empty() {
            (means.drain)();
        }
        for (bit, value) in stage {
            // From here on it may have come about, whatever is answered.
            done.push((bit, value));
            if let Err(source) = set(means, bit, value) {
                return Err(undo(means, done, source));
            }
        }
    }
    Ok(())
}

fn undo(
    means: &mut EdgeContext<'_>,
    mut done: Vec<(AccessBit, bool)>,
    source: CallError,
) -> RightsError {
    let said = |(bit, value): (AccessBit, bool)| {
        format!("{bit} {}", if value { "set" } else { "cleared" })
    };
    let failed = done.last().copied().map(said).unwrap_or_default();
    let (mut left, source) = (Vec::new(), Box::new(source));
    while let Some((bit, value)) = done.pop() {
        let mut tries = (0..UNDO_TRIES).map(|_| set(means, bit, !value));
        if !tries.any(|tried| tried.is_ok()) {
            left.push(said((bit, value)));
        }
    }
    if left.is_empty() {
        RightsError::Undone { failed, source }
    } else {
        RightsError::Left { failed, left, source }
    }
}
