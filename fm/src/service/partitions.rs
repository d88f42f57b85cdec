//! Media partitions of GFDs: sets wanted ones, and keeps the present ones for answers.
//!
//! Source: docs/fm.md "What is wanted"; CXL 3.1 section 7.7.2.3.

use std::collections::BTreeMap;

use weft_base::causes::with_causes;
use weft_parsers::fabric::Pid;

use super::board::StatusBoard;
use super::reconcile::is_there;
use super::request::DmpRow;
use crate::cci::CciSession;
use crate::components::media::{self, Dmp, Media};
use crate::components::memory::{Memory, Part};
use crate::model::inventory::Inventory;
use crate::state::desired::DesiredState;

/// Media partitions of GFDs, as read last.
#[derive(Debug, Default)]
pub(super) struct Partitions(BTreeMap<Pid, Vec<Dmp>>);

impl Partitions {
    /// Sets the wanted partitions of GFDs, before any of their memory is given; returns errors.
    pub fn set(
        &mut self,
        cci: &mut CciSession,
        inventory: &Inventory,
        desired: &DesiredState,
        board: &StatusBoard,
    ) -> Vec<String> {
        let gfds: Vec<_> =
            inventory.gfds.iter().filter(|gfd| is_there(inventory, gfd.at)).copied().collect();
        let mut errors = Vec::new();
        for gfd in gfds {
            let named = desired.gfds.iter().find(|named| named.uuid == gfd.uuid);
            if let Some(wanted) = named.and_then(|named| named.partitions.as_deref()) {
                match media::set(cci, gfd.pid, wanted) {
                    Ok(true) => {
                        let text = media::list(wanted);
                        board.record_event(format!("GFD {} has partitions {text}", gfd.pid));
                    }
                    Ok(false) => {}
                    Err(error) => errors.push(format!("GFD {}: {}", gfd.pid, with_causes(&error))),
                }
            }
            match media::dmps(cci, gfd.pid) {
                Ok(dmps) => drop(self.0.insert(gfd.pid, dmps)),
                // A GFD without this command has no kinds of memory; requests that name one are refused.
                Err(error) if error.is_refusal() => drop(self.0.remove(&gfd.pid)),
                Err(error) => errors.push(format!("GFD {}: {}", gfd.pid, error.with_causes())),
            }
        }
        errors
    }

    /// Kind of memory of a part of a share, if its GFD tells.
    pub fn media_of(&self, part: &Part) -> Option<Media> {
        let mut dmps = self.0.get(&part.gfd)?.iter();
        dmps.find(|dmp| part.dpa.wrapping_sub(dmp.dpa) < dmp.size).map(|dmp| dmp.media)
    }

    /// Rows of all partitions, with the bytes in use.
    pub fn rows(&self, memory: &Memory) -> Vec<DmpRow> {
        let parts = || {
            memory.shares.iter().flat_map(|share| {
                let ways = u64::try_from(share.parts.len().max(1)).unwrap_or(u64::MAX);
                share.parts.iter().map(move |part| (part, share.len / ways))
            })
        };
        let row = |(gfd, dmp): (Pid, &Dmp)| {
            let own = |part: &Part| part.gfd == gfd && part.dpa.wrapping_sub(dmp.dpa) < dmp.size;
            let used = parts().filter(|(part, _)| own(part)).map(|(_, len)| len).sum();
            DmpRow { gfd: gfd.bits(), dmp: *dmp, used }
        };
        let all = self.0.iter().flat_map(|(gfd, dmps)| dmps.iter().map(|dmp| (*gfd, dmp)));
        all.map(row).collect()
    }
}
