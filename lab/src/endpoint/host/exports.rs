//! What others reach of a host's memory.
//!
//! [`Exported`], ranges of its memory; `Reached`, these and what transfers of fabric memory show.
//!
//! Units: bytes.
//! Source: docs/endpoint.md, docs/fabric-memory.md; CXL 3.1 section 7.7.3.

use weft_cxl::completer::Target;
use weft_cxl::cxl_host::{Exports, HostMemory};
use weft_parsers::fabric::{Hpa, Pid};

use super::fabric_mem::FabricMem;
use crate::endpoint::command::Export;

/// Ranges of memory that others reach.
#[derive(Clone, Debug, Default)]
pub struct Exported(Vec<Export>);

impl Exported {
    /// These ranges of a host with `memory`.
    ///
    /// # Errors
    /// What one of them would show is not there.
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

    /// All of them.
    pub(super) fn ranges(&self) -> &[Export] {
        &self.0
    }
}

impl Exports for Exported {
    fn local(&self, from: Pid, addr: Hpa, len: u64) -> Option<u64> {
        self.0.iter().find_map(|range| {
            let offset = addr.0.checked_sub(range.base.0)?;
            let fits = offset.checked_add(len)? <= range.len.0;
            let may = range.from.is_empty() || range.from.contains(&from.bits());
            (fits && may).then_some(range.local.0.checked_add(offset)?)
        })
    }
}

/// All that others reach: in the window of fabric memory what its engine says, elsewhere what is exported.
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
