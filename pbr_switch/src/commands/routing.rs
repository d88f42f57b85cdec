//! Identify PBR Switch (5700h), and the routing tables: 5707h to 570Bh.
//!
//! A switch has one DRT and one RGT, which the DRT refers to.
//!
//! Source: docs/spec/wire-formats.md §4.5, §5.3; docs/spec/cxl-fabric.md "Inside: DRT".

use weft_cxl::cci::{Done, Reply};
use weft_parsers::cci::pbr::{
    GetTables, PbrSwitchIdentity, TableDescriptor, TableDescriptors, TableKind,
};
use weft_parsers::cci::tables::{Drt, Rgt, RoutingRange, SetDrt};
use weft_parsers::cci::{List, Response};
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::physical::mask;
use super::{DONE, NONE_SUCH, invalid, listed, whole};
use crate::switch::Switch;

/// Random and congestion avoiding. Advanced congestion avoidance would need queue depths of other switches, which no
/// message carries.
const MODES: u8 = 0b11;

impl Switch {
    pub(super) fn identify_pbr(&self, reply: &mut Reply) -> Done {
        // The support map of 5700h has 64 bits.
        let gaes = (0..64).zip(&self.vcses).filter(|(_, vcs)| vcs.gae.is_some());
        reply.send(&Response::IdentifyPbrSwitch(PbrSwitchIdentity {
            gae_map: gaes.fold(0, |map, (at, _)| map | 1_u64 << at),
            drts: 1,
            rgts: self.rgts(),
            modes: MODES,
        }))
    }

    fn rgts(&self) -> u8 {
        u8::from(self.tables.routes().groups() > 0)
    }

    pub(super) fn table_descriptors(&self, range: GetTables, reply: &mut Reply) -> Done {
        let ports = mask(self.ports.iter().map(|port| port.id.get()));
        let mut all = vec![TableDescriptor { kind: TableKind::Drt, index: 0, ports }];
        if self.rgts() > 0 {
            all.push(TableDescriptor { kind: TableKind::Rgt, index: 0, ports });
        }
        let span = listed(range.start.into(), range.count.into(), all.len())?;
        let tables = TableDescriptors {
            start: range.start,
            tables: List::of(all.get(span).unwrap_or_default()),
        };
        reply.send(&Response::GetTables(tables))
    }

    pub(super) fn get_drt(&self, range: RoutingRange, reply: &mut Reply) -> Done {
        if range.table != 0 {
            return Err(NONE_SUCH);
        }
        let span = whole(range.start.into(), range.count.into(), Pid::COUNT)?;
        let pids = (0..=0xFFF).map(Pid::from_low_bits).skip(span.start).take(span.len());
        let entries: Vec<DrtEntry> = pids.map(|pid| self.tables.routes().drt(pid)).collect();
        let (table, start) = (range.table, range.start);
        reply.send(&Response::GetDrt(Drt { table, start, rgt: 0, entries: List::of(&entries) }))
    }

    pub(crate) fn set_drt(&mut self, set: &SetDrt<'_>) -> Done {
        if set.table != 0 {
            return Err(NONE_SUCH);
        }
        let entries: Vec<DrtEntry> = set.entries.iter().collect();
        invalid(self.tables.set_drt(set.start.into(), &entries))?;
        // Routes belong to no virtual switch or port, so `refresh` would not notice them.
        self.changed();
        DONE
    }

    pub(super) fn get_rgt(&self, range: RoutingRange, reply: &mut Reply) -> Done {
        let routes = self.tables.routes();
        if range.table >= self.rgts() {
            return Err(NONE_SUCH);
        }
        let span = whole(range.start.into(), range.count.into(), routes.groups())?;
        let entries: Vec<RgtEntry> = span.filter_map(|at| routes.rgt(at)).collect();
        let (table, start) = (range.table, range.start);
        reply.send(&Response::GetRgt(Rgt { table, start, entries: List::of(&entries) }))
    }

    pub(crate) fn set_rgt(&mut self, set: &Rgt<'_>) -> Done {
        if set.table >= self.rgts() {
            return Err(NONE_SUCH);
        }
        let entries: Vec<RgtEntry> = set.entries.iter().collect();
        invalid(self.tables.set_rgt(set.start.into(), &entries))?;
        self.changed();
        DONE
    }
}
