//! The stored form of routing tables, kept over a restart of the manager.
//!
//! [`StoredRoutes`] are lists of numbers; entries that lead nowhere are left out.
//!
//! Source: docs/spec/wire-formats.md §4.5 (5704h, 5708h): entries stand as on the wire.

use serde::{Deserialize, Serialize};
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry};

use super::{Order, Routed, SwitchTables, Tables};
use crate::plan::tables::pid_at;

#[derive(Debug, Serialize, Deserialize)]
pub struct StoredRoutes {
    /// Rank and root of each switch.
    order: Vec<(u32, u16)>,
    switches: Vec<StoredSwitch>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StoredSwitch {
    drt: Vec<(u16, [u8; 2])>,
    rgt: Vec<(u8, [u8; 12])>,
}

impl StoredRoutes {
    /// The stored form of `routed`.
    #[must_use]
    pub fn of(routed: &Routed) -> Self {
        let of = |tables: &SwitchTables| {
            let entries = (0..Pid::COUNT).map(|at| (pid_at(at), tables.drt(pid_at(at))));
            let valid = entries.filter(|(_, entry)| *entry != DrtEntry::Invalid);
            StoredSwitch {
                drt: valid.map(|(pid, entry)| (pid.bits(), entry.emit())).collect(),
                rgt: tables.groups().map(|(at, group)| (at, group.emit())).collect(),
            }
        };
        let switches = routed.tables.all().map(of).collect();
        Self { order: routed.order.ranks().collect(), switches }
    }

    /// The tables; `None` if the stored numbers make no sense.
    #[must_use]
    pub fn routed(&self) -> Option<Routed> {
        let count = self.switches.len();
        let order = Order::of_ranks(&self.order).filter(|_| self.order.len() == count)?;
        let mut tables = Tables::default();
        for kept in &self.switches {
            let mut made = SwitchTables::default();
            for &(pid, entry) in &kept.drt {
                made.set_drt(Pid::assignable(pid)?, DrtEntry::decode(entry).ok()?);
            }
            for &(at, group) in &kept.rgt {
                made.set_rgt(at, Some(RgtEntry::decode(group).ok()?));
            }
            tables.push(made);
        }
        // Partition and shortage are not kept: the routes are made anew from these tables, and with them both.
        Some(Routed { tables, order, partition: None, short: 0 })
    }
}
