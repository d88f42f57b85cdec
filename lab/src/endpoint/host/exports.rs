//! Access of others to a host's memory.
//!
//! [`Exported`] has the exported ranges; `Reached` adds those that fabric memory transfers show.
//!
//! Source: docs/endpoint.md, docs/fabric-memory.md; CXL 3.1 section 7.7.3.

use weft_cxl::completer::Target;
use weft_cxl::cxl_host::{Exports, HostMemory};
use weft_parsers::fabric::{Hpa, Pid};

use super::fabric_mem::FabricMem;
use crate::endpoint::command::Export;

/// Ranges of the host's memory that others may access.
#[derive(Clone, Debug, Default)]
pub struct Exported(Vec<Export>);

impl Exported {
    /// Checks `ranges` against the host's `memory`.
    ///
    /// # Errors
    /// One of them is not in the memory as a whole.
    pub fn of(ranges: Vec<Export>, memory: &HostMemory) -> Result<Self, String> {
        let is_there = |it: &&Export| it.len.0 > 0 && memory.holds(it.local.0, it.len.0);
        match ranges.iter().find(|range| !is_there(range)) {
            None => Ok(Self(ranges)),
            Some(range) => {
                let (len, local) = (range.len.0, range.local.0);
                Err(format!(
                    "expected a range of the host's memory, found {len:#x} bytes at {local:#x}"
                ))
            }
        }
    }

    /// The ranges as they were given.
    pub(super) fn ranges(&self) -> &[Export] {
        &self.0
    }
}

impl Exports for Exported {
    fn local(&self, from: Pid, addr: Hpa, len: u64) -> Option<u64> {
        self.0.iter().find_map(|range| {
            let offset = addr.0.checked_sub(range.base.0)?;
            let fits = offset.checked_add(len)? <= range.len.0;
            // The PID is that of the request's prefix, which the requester's edge has set.
            let may = range.from.is_empty() || range.from.contains(&from.bits());
            (fits && may).then_some(range.local.0.checked_add(offset)?)
        })
    }
}

/// All memory that others may access: within the window of fabric memory by its engine's rules, elsewhere the exports.
pub(super) struct Reached<'a> {
    pub exported: &'a Exported,
    pub fabric_mem: Option<&'a FabricMem>,
}

impl Exports for Reached<'_> {
    fn local(&self, from: Pid, addr: Hpa, len: u64) -> Option<u64> {
        match self.fabric_mem.filter(|it| it.shows(addr)) {
            Some(fabric_mem) => fabric_mem.serve(from, addr, len),
            None => self.exported.local(from, addr, len),
        }
    }
}
