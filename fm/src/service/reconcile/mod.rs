//! What a fabric shows of bindings and memory, whoever made them, and what the FM remembers of them.
//!
//! What was kept is carried over to a new inventory ([`merge`]); switches and GFDs are read, and what was
//! believed is held against that ([`reconcile`] -> [`Reconciled`]).
//!
//! Source: docs/spec/cxl-fabric.md "State".
//!
//! The fabric is what counts: where it differs from what was kept, the difference is told. Only of what does not answer
//! now the FM goes on believing what it knew.

mod compare;
mod merge;
mod read;

use std::collections::BTreeSet;

use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;

pub use self::compare::Reconciled;
use self::compare::compare;
pub use self::merge::{merge, same_entry};
use crate::cci::{CallError, Fabric};
use crate::graph::PortRef;
use crate::inventory::{Inventory, Partner};
use crate::store::State;

/// Reads what the fabric shows, and holds what was `believed` against it. Of memory that is `wanted`, GFDs may have
/// forgotten their part; what a component of `fresh` has lost of GIM is set again.
///
/// # Errors
/// A component does not answer that should.
pub fn reconcile(
    fabric: &mut Fabric,
    believed: &State,
    fresh: &BTreeSet<Pid>,
    wanted: &dyn Fn(&Uuid, &[Pid]) -> bool,
) -> Result<Reconciled, CallError> {
    let inventory = &believed.inventory;
    let (bindings, mut said) = read::bindings(fabric, inventory, &believed.bindings)?;
    let (memory, odd) = read::memory(fabric, inventory, &bindings)?;
    said.extend(odd);
    let mut now = compare(believed, (bindings, memory), wanted);
    let (gim, odd) = read::gim(fabric, inventory, believed.gim.clone(), fresh)?;
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
