//! Changes of access rights at edges that must be made together: rights of requests, and of their completions.
//!
//! [`change`] turns one set of [`Rights`] into another, or restores the first. To allow, it sets the rights of
//! completions first; to revoke, it clears those of requests first, and those of completions once no completion is
//! under way.
//!
//! Source: docs/spec/cxl-fabric.md "Dynamic change"; docs/spec/wire-formats.md §4.5 (5716h), §4.6 (5902h, 5904h).

use std::collections::BTreeSet;

use super::edge::{AccessBit, EdgeContext, set};
use crate::cci::CallError;

/// Attempts to restore one right: a component that is busy or was unreachable once gets three more.
const UNDO_TRIES: u32 = 4;

/// Access bits by direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Bits that let requests pass.
    pub there: BTreeSet<AccessBit>,
    /// Bits that let completions pass.
    pub back: BTreeSet<AccessBit>,
}

/// Why rights are not changed.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// A step failed; all before it were undone.
    #[error("{failed}; undone")]
    Undone { failed: String, source: Box<CallError> },
    /// A step failed, and some before it could not be undone.
    #[error("{failed}; left: {}", .left.join("; "))]
    Left { failed: String, left: Vec<String>, source: Box<CallError> },
}

impl Rights {
    #[must_use]
    pub fn all(&self) -> BTreeSet<AccessBit> {
        self.there.union(&self.back).copied().collect()
    }
}

/// Turns `old` into `new`, or restores `old`.
///
/// # Errors
/// See [`RightsError`].
pub fn change(means: &mut EdgeContext<'_>, old: &Rights, new: &Rights) -> Result<(), RightsError> {
    // Differences are taken over both directions together: one bit may serve requests of one share and completions of
    // another, and is neither set twice nor cleared while `new` has it.
    let (had, has) = (old.all(), new.all());
    let on = |set: &BTreeSet<AccessBit>| -> Vec<(AccessBit, bool)> {
        set.difference(&had).map(|bit| (*bit, true)).collect()
    };
    let off = |set: &BTreeSet<AccessBit>| -> Vec<(AccessBit, bool)> {
        set.difference(&has).map(|bit| (*bit, false)).collect()
    };
    // This order leaves no moment in which a request may pass whose completion may not.
    let stages = [on(&new.back), on(&new.there), off(&old.there), off(&old.back)];
    let mut done: Vec<(AccessBit, bool)> = Vec::new();
    for (number, stage) in stages.into_iter().enumerate() {
        if number == 3 && !stage.is_empty() {
            // The requests are refused from here on; completions of those under way must still get back.
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
    // In reverse order, so that the rule above holds on the way back, too.
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
