//! Reconciliation of the manager's state with the fabric, whoever changed it.
//!
//! [`merge`] carries the stored state over to a new inventory. [`reconcile`] reads switches and GFDs, compares them
//! with the believed state, and returns [`Reconciled`].
//!
//! The fabric takes precedence: differences from the stored state are reported. Only for components that do not answer
//! the manager keeps its belief.
//!
//! Source: docs/spec/cxl-fabric.md "State".

mod compare;
mod merge;
mod read;

use std::collections::BTreeSet;

use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

pub use self::compare::Reconciled;
use self::compare::compare;
pub use self::merge::{merge, same_entry};
use crate::cci::{CallError, CciSession};
use crate::model::graph::PortRef;
use crate::model::inventory::{Inventory, Partner};
use crate::state::store::State;

/// Reads the fabric and compares it with `believed`. GFDs may have lost their part of `wanted` memory; GIM rights lost
/// by a component of `fresh` are restored later.
///
/// # Errors
/// A component that was reachable does not answer.
pub fn reconcile(
    fabric: &mut CciSession,
    believed: &State,
    fresh: &BTreeSet<Pid>,
    wanted: &dyn Fn(&Uuid, &[Pid]) -> bool,
) -> Result<Reconciled, CallError> {
    let inventory = &believed.inventory;
    // Bindings first: they say which devices are requesters, whose decoders are read next.
    let (bindings, mut said) = read::bindings(fabric, inventory, &believed.bindings)?;
    let (memory, odd) = read::memory(fabric, inventory, &bindings)?;
    said.extend(odd);
    let mut now = compare(believed, (bindings, memory), wanted);
    let (gim, odd) = read::gim(fabric, inventory, believed.grants.gim.clone(), fresh)?;
    said.extend(odd);
    said.append(&mut now.said);
    Ok(Reconciled { gim, said, ..now })
}

/// Whether a GFD at a port can be asked now.
#[must_use]
pub fn is_there(inventory: &Inventory, at: PortRef) -> bool {
    let switch = inventory.switch(at.switch).filter(|switch| switch.whole);
    let port = switch.and_then(|switch| switch.port(at.port));
    port.is_some_and(|port| port.up && matches!(port.partner, Partner::Gfd(_)))
}
