//! Static entries of the forwarding database, which control sets and no frame changes.
//!
//! Control always passes the whole list; only differences to the last one are applied.
//!
//! Source: IEEE 802.1Q clause 8.8.1; docs/spec/pipeline.md §3.

use super::api::{StaticEntry, StaticError};
use super::entry::{Tick, Value};
use super::{Fdb, Writer};
use crate::time::Instant;

impl Fdb {
    /// Makes `entries` the static entries: adds, replaces and removes those that differ.
    ///
    /// A learned entry of the same address is replaced.
    ///
    /// # Errors
    /// See [`StaticError`]. The former static entries are then in force; learned ones may have been removed.
    pub fn set_static(&self, entries: &[StaticEntry]) -> Result<(), StaticError> {
        let mut new = entries.to_vec();
        new.sort_unstable_by_key(|entry| entry.key);
        new.dedup();
        let twice = new.windows(2).find_map(|w| match w {
            [a, b] if a.key == b.key => Some(a.key),
            _ => None,
        });
        if let Some(key) = twice {
            return Err(StaticError::Twice(key));
        }
        if new.len() > self.capacity {
            return Err(StaticError::TooMany { given: new.len(), capacity: self.capacity });
        }
        let mut writer = self.writer();
        let old = core::mem::take(&mut writer.statics);
        let done = self.swap_statics(&mut writer, &old, &new);
        if done.is_err() {
            // The old entries fitted the table together before, so there is room for them.
            let _ = self.swap_statics(&mut writer, &new, &old);
        }
        writer.statics = if done.is_ok() { new } else { old };
        done
    }

    fn swap_statics(
        &self,
        writer: &mut Writer,
        old: &[StaticEntry],
        new: &[StaticEntry],
    ) -> Result<(), StaticError> {
        // Removals first: they may free the places that new entries need.
        for gone in old.iter().filter(|e| new.binary_search_by_key(&e.key, |n| n.key).is_err()) {
            if let Some((entry, value)) = self.table.find(gone.key)
                && value.is_static()
            {
                self.remove(writer, entry, value);
            }
        }
        for &StaticEntry { key, port, .. } in new {
            if let Some((entry, value)) = self.table.find(key) {
                // A learned entry that becomes static leaves the count of its port's `max_learned`.
                if !value.is_static() {
                    self.count_learned(value.port(), -1);
                }
                entry.set(value.with_port(port).with_static(true));
                self.outdate();
                continue;
            }
            let value = Value::new(writer.next_version(), port, Tick::at(Instant::ZERO), true);
            // Configuration comes before learning: learned entries give way, one by one. Ends at the latest when none
            // is left in the key's buckets.
            while !self.table.place(key, value) {
                let victim = self.table.victim(key);
                let (entry, _, value) = victim.ok_or(StaticError::NoPlace(key))?;
                self.remove(writer, entry, value);
            }
            writer.used += 1;
        }
        Ok(())
    }
}
