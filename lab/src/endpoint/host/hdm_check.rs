//! Checks by loads whether committed HDM in a tree can be reached.
//!
//! After an enumeration it loads the first line of each such memory, and adds the results to the tree. Decoders of
//! devices and HBR switches are the host's own and prove nothing about the switch in between: at a PBR edge LDST and
//! LAV decide, which the host may lack. Only an answer proves the whole path.
//!
//! Source: docs/endpoint.md "Control socket"; docs/spec/cxl-fabric.md "HDM decoders".

use std::collections::BTreeMap;

use serde_json::Value;
use weft_cxl::cxl_host::CxlHost;
use weft_cxl::mem::MemOperation;
use weft_cxl::pci::Tree;
use weft_cxl::pci::tree::LeadsTo;
use weft_cxl::requester::{Done, Failure, OpId};
use weft_parsers::fabric::{Bdf, Hpa};

use crate::endpoint::command::Answer;
use crate::endpoint::tree::tree_json;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A tree that waits for its loads.
#[derive(Debug, Default)]
pub(super) struct HdmCheck {
    loads: BTreeMap<OpId, Bdf>,
    reached: BTreeMap<Bdf, bool>,
}

impl HdmCheck {
    /// Loads the first line of each committed range.
    pub(super) fn begin(host: &mut CxlHost) -> Self {
        let memory = |tree: &Tree| -> Vec<(Bdf, u64)> {
            let nodes = tree.iter().filter_map(|node| {
                let is_own = |to| matches!(to, LeadsTo::Memory { .. });
                // One line is enough: each device has one decoder, and weft's software sets no second one.
                let own = node.decoders.iter().find(|it| it.committed && is_own(it.to))?;
                Some((node.bdf, own.hpa.base))
            });
            nodes.collect()
        };
        let all = host.tree().map(memory).unwrap_or_default();
        let load = |(bdf, base)| (host.mem(MemOperation::Load { addr: Hpa(base), len: LINE }), bdf);
        Self { loads: all.into_iter().map(load).collect(), reached: BTreeMap::new() }
    }

    /// Handles the end of a load; false if the load was another's.
    pub(super) fn take(&mut self, done: &Done) -> bool {
        let Some(bdf) = self.loads.remove(&done.op) else { return false };
        // A poisoned line was reached. A load that was given up proves nothing, as the link went down.
        let reached = match done.result {
            Ok(_) | Err(Failure::Poisoned) => Some(true),
            Err(Failure::NoMemory | Failure::Timeout) => Some(false),
            Err(_) => None,
        };
        self.reached.extend(reached.map(|reached| (bdf, reached)));
        true
    }

    /// Whether all loads have ended.
    pub(super) fn is_done(&self) -> bool {
        self.loads.is_empty()
    }

    /// The tree with the results of the loads.
    pub(super) fn answer(&self, host: &CxlHost) -> Answer {
        let mut tree = host.tree().cloned();
        for (bdf, reached) in &self.reached {
            // An enumeration meanwhile may have given the bus number to another function.
            let node = tree.as_mut().and_then(|tree| tree.get_mut(*bdf));
            for decoder in node.into_iter().flat_map(|node| &mut node.decoders) {
                decoder.reached = Some(*reached);
            }
        }
        Answer::Tree {
            tree: tree.as_ref().map_or(Value::Null, tree_json),
            text: tree.as_ref().map(ToString::to_string).unwrap_or_default(),
        }
    }
}
