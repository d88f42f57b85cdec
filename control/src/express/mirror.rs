//! The kernel's forwarding table: its contents, and how it follows the FDB.
//!
//! Events are followed as they come; the whole table is compared when some may be missing; and stations that the kernel
//! has seen are refreshed in the FDB. Ages are counted in ticks, one for each refresh.
//!
//! Source: docs/spec/pipeline.md §3; docs/express.md.

use std::collections::BTreeMap;

use weft_dataplane::fdb::{Fdb, FdbKey, LearnKind};
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_xdp::layout::NO_PORT;
use weft_xdp::{Xdp, XdpError};

use super::station_key;

/// A station as it was written to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    port: PortId,
    is_static: bool,
}

/// Stations in the kernel's table.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    stations: BTreeMap<FdbKey, Held>,
    /// [`stamp`] as of the last comparison of the whole table.
    compared: Option<(u64, u64, u64)>,
}

impl Mirror {
    /// Follows the events since the last call.
    pub(super) fn learn(&mut self, xdp: &mut Xdp, fdb: &Fdb) -> Result<(), XdpError> {
        while let Some(event) = fdb.pop_event() {
            match event.kind {
                LearnKind::New | LearnKind::Moved { .. } => {
                    self.put(xdp, event.key, Held { port: event.port, is_static: false })?;
                }
                LearnKind::Aged => self.remove(xdp, event.key),
            }
        }
        Ok(())
    }

    /// Whether the FDB may have changed without an event, or events were lost.
    pub(super) fn is_outdated(&self, fdb: &Fdb, snapshot: &Snapshot) -> bool {
        self.compared != Some(stamp(fdb, snapshot))
    }

    /// Compares the whole table, and makes the kernel's the same.
    pub(super) fn compare(
        &mut self,
        xdp: &mut Xdp,
        fdb: &Fdb,
        snapshot: &Snapshot,
        now: Instant,
    ) -> Result<(), XdpError> {
        // Read before the table is: a change during the comparison leads to another one.
        let stamp = stamp(fdb, snapshot);
        // The pipeline spreads flows to stations behind several ports: the kernel has one port for each.
        let spread = |key: FdbKey| {
            let entries = &snapshot.config.forward.static_entries;
            entries.iter().any(|entry| entry.key == key && !entry.spread.is_empty())
        };
        let mut table = BTreeMap::new();
        for entry in fdb.iter(now) {
            if !(entry.is_static && spread(entry.key)) {
                let held = Held { port: entry.port, is_static: entry.is_static };
                table.insert(entry.key, held);
            }
        }
        // Stations that are gone make room first for those that are new.
        let gone: Vec<FdbKey> =
            self.stations.keys().filter(|key| !table.contains_key(key)).copied().collect();
        for key in gone {
            self.remove(xdp, key);
        }
        for (key, held) in table {
            if self.stations.get(&key) != Some(&held) {
                self.put(xdp, key, held)?;
            }
        }
        self.compared = Some(stamp);
        Ok(())
    }

    /// Refreshes stations whose frames the kernel has seen since the last call, and puts back those that it marked as
    /// moved.
    pub(super) fn refresh(
        &mut self,
        xdp: &mut Xdp,
        fdb: &Fdb,
        now: Instant,
    ) -> Result<(), XdpError> {
        let tick = xdp.shared().control().tick;
        let mut moved = Vec::new();
        for (&key, held) in &self.stations {
            let Some(station) = xdp.station(station_key(key)) else { continue };
            if station.port == NO_PORT {
                moved.push((key, *held));
            } else if station.last_seen == tick && !held.is_static {
                // Seen in this tick: the station has sent since the last refresh. A static one does not age.
                fdb.touch(key, held.port, now);
            }
        }
        // The FDB has not learned the move yet, or never will, as the entry is static. An event for a real move comes
        // later.
        for (key, held) in moved {
            self.put(xdp, key, held)?;
        }
        xdp.set_tick(tick.wrapping_add(1));
        Ok(())
    }

    fn put(&mut self, xdp: &mut Xdp, key: FdbKey, held: Held) -> Result<(), XdpError> {
        // False where the kernel's table has no room: the pipeline then forwards for this station.
        if xdp.put_station(station_key(key), held.port.get(), held.is_static)? {
            self.stations.insert(key, held);
        }
        Ok(())
    }

    fn remove(&mut self, xdp: &mut Xdp, key: FdbKey) {
        if self.stations.remove(&key).is_some() {
            xdp.remove_station(station_key(key));
        }
    }
}

/// A value that differs when the FDB's answers may differ.
fn stamp(fdb: &Fdb, snapshot: &Snapshot) -> (u64, u64, u64) {
    (fdb.version(), fdb.counters().events_lost, snapshot.epoch)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use weft_dataplane::fdb::{FdbConfig, StaticEntry};
    use weft_dataplane::port::af_xdp::Program;
    use weft_parsers::{AddrKey, MacAddr, Vid};
    use weft_xdp::{Checksum, Options, Trial};

    use super::*;
    use crate::express::rules;
    use weft_config::resolve::{Config, Timing};
    use weft_config::settings::Settings;

    /// A switch of two ports in the kernel, and its configuration; `None` where the kernel refuses, which is printed.
    fn switch(test: &str, stations: u32) -> Option<(Xdp, Snapshot)> {
        if let Some(why) = Trial::refused() {
            eprintln!("SKIPPED {test}: {why}");
            return None;
        }
        let settings = Settings::read(test, "[[port]]\nname = \"p0\"\n[[port]]\nname = \"p1\"\n");
        let config = Config::resolve(&settings.unwrap(), Timing::Virtual).unwrap();
        let snapshot = Snapshot::compile(config.switch, 0).unwrap();
        let mut xdp = Xdp::load(&Options { stations }).unwrap();
        xdp.prepare(&rules::ports(&snapshot), &rules::members(&snapshot)).unwrap();
        xdp.commit();
        Some((xdp, snapshot))
    }

    const fn mac(number: u8) -> MacAddr {
        MacAddr([2, 0, 0, 0, 0, number])
    }

    fn entry(number: u8) -> StaticEntry {
        let key = FdbKey::new(Vid::new(1).unwrap(), AddrKey::ethernet(mac(number)));
        StaticEntry::new(key, PortId::new(0).unwrap())
    }

    /// A program that read a station before it was made static may note only then that it has moved.
    #[test]
    fn a_static_station_that_is_said_to_have_moved_is_put_back() {
        let Some((mut xdp, snapshot)) = switch("a_static_station_is_put_back", 8) else { return };
        let (fdb, now, station) = (Fdb::new(FdbConfig::default()), Instant::from_ns(0), entry(1));
        fdb.set_static(&[station]).unwrap();
        let mut mirror = Mirror::default();
        mirror.compare(&mut xdp, &fdb, &snapshot, now).unwrap();
        let key = station_key(station.key);
        assert!(xdp.put_station(key, 0, false).unwrap(), "as the program saw it");
        let program = Program::load(&xdp.program(1, None, Checksum::Unseen), None).unwrap();
        let frame = [&mac(2).0[..], &mac(1).0, &[0x12, 0x34], &[0; 50]].concat();
        Trial::run(program.as_fd(), &frame).unwrap();
        assert_eq!(xdp.station(key).map(|station| station.port), Some(NO_PORT));
        mirror.refresh(&mut xdp, &fdb, now).unwrap();
        let held = xdp.station(key).map(|station| (station.port, station.fixed));
        assert_eq!(held, Some((0, 1)));
    }

    /// A station without room in the kernel is no fault, and is entered when there is room.
    #[test]
    fn a_station_without_room_waits_for_it() {
        let Some((mut xdp, snapshot)) = switch("a_station_without_room", 2) else { return };
        let (fdb, now) = (Fdb::new(FdbConfig::default()), Instant::from_ns(0));
        let entries: Vec<StaticEntry> = (1..=9).map(entry).collect();
        fdb.set_static(&entries).unwrap();
        let mut mirror = Mirror::default();
        mirror.compare(&mut xdp, &fdb, &snapshot, now).unwrap();
        let known = |xdp: &Xdp, entry: &StaticEntry| xdp.station(station_key(entry.key)).is_some();
        let out = entries.iter().find(|entry| !known(&xdp, entry)).expect("nine in eight places");
        assert_eq!((mirror.stations.len(), xdp.stations().count()), (8, 8));
        mirror.refresh(&mut xdp, &fdb, now).unwrap();
        let gone = entries.iter().find(|entry| entry.key != out.key).unwrap();
        let rest: Vec<StaticEntry> =
            entries.iter().copied().filter(|entry| entry.key != gone.key).collect();
        fdb.set_static(&rest).unwrap();
        assert!(mirror.is_outdated(&fdb, &snapshot));
        mirror.compare(&mut xdp, &fdb, &snapshot, now).unwrap();
        assert!(rest.iter().all(|entry| known(&xdp, entry)) && !known(&xdp, gone));
    }
}
