//! Admission of LN requesters at the host: functions that its software has switched on may register lines, up to their
//! limits. The result of an enumeration becomes the argument of [`Lnc::admit`].
//!
//! Function numbers may change in an enumeration, and LN Messages go by number. So an enumeration of everything ends
//! all registrations with a message, and no function may register until it is done.
//!
//! Source: PCIe 5.0 section 6.21.

use std::collections::BTreeMap;

use weft_parsers::fabric::Bdf;

use super::ln::PORT;
use super::software::{LookedAt, Software};
use crate::ln::Lnc;
use crate::pci::{LnSettings, ProblemKind, Tree};

/// An enumeration of everything begins: no function may register until it has ended.
pub(super) fn suspend(lnc: &mut Lnc, software: &Software) {
    if software.ln().is_none() {
        return;
    }
    if lnc.lines() > 0 {
        lnc.deregister_port(PORT);
    }
    lnc.admit(BTreeMap::new());
}

/// An enumeration has ended: sets the functions that may register from now on.
pub(super) fn admit(lnc: &mut Lnc, software: &Software, looked_at: LookedAt) {
    let (Some(settings), Some(tree)) = (software.ln(), software.tree()) else { return };
    if let LookedAt::Behind(bridge) = looked_at
        && let Some(below) = tree.get(bridge).and_then(|node| node.below.as_ref())
    {
        // Functions on other buses kept their numbers, and so their registrations.
        lnc.renew(below.buses.secondary..=below.buses.subordinate);
    }
    let limits = requesters(tree, settings).filter_map(|(function, limit)| {
        Some((function, 1usize.checked_shl(u32::from(limit?)).unwrap_or(usize::MAX)))
    });
    lnc.admit(limits.collect());
}

/// The LN requesters of a tree, each with its limit (an exponent); `None` for one that stays off.
pub(super) fn requesters(
    tree: &Tree,
    settings: LnSettings,
) -> impl Iterator<Item = (Bdf, Option<u8>)> {
    let refused = |function: Bdf| {
        let is_it = |kind: ProblemKind| matches!(kind, ProblemKind::LineSize(_));
        tree.problems.iter().any(|problem| problem.bdf == function && is_it(problem.kind))
    };
    tree.iter().filter(|node| node.lnr.is_some()).map(move |node| {
        let limit = settings.limit_of(node.lnr_capability);
        (node.bdf, (!refused(node.bdf)).then_some(limit))
    })
}
