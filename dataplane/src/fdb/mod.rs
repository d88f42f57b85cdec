//! Forwarding database: maps a VLAN, address space and address to the port that the station is behind.
//!
//! Every worker looks up a [`FdbKey`] without a lock, and any worker may learn. Ages are kept in ticks of 0.55 s, so an
//! entry lives 300.0 to 300.8 s by default.
//!
//! Source: IEEE 802.1Q clause 8.8; docs/spec/pipeline.md §3.

mod ageing;
mod api;
mod entry;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod moves;
mod statics;
mod table;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use api::{
    AGEING, CAPACITY, FdbConfig, FdbCounters, FdbEntry, Hit, LOOP_BLOCK, LearnEvent, LearnKind,
    Learned, STICKY, Source, SourceState, StaticEntry, StaticError,
};
pub use entry::FdbKey;
pub use moves::{LoopAlarm, MOVES_MAX};
pub use table::Probe;
use weft_base::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};

use crate::time::{Instant, Span};
use crate::types::{PerPort, PortId, PortSet};
use ageing::Due;
use crossbeam_queue::ArrayQueue;
use entry::{Entry, Tick, Value};
use moves::{MOVERS, MoveLog, Origins};
use table::Table;

#[derive(Debug, Default)]
struct Counters {
    learned: AtomicU64,
    moved: AtomicU64,
    aged: AtomicU64,
    port_limit: AtomicU64,
    full: AtomicU64,
    busy: AtomicU64,
    events_lost: AtomicU64,
    loop_alarms: AtomicU64,
    held: AtomicU64,
}

#[derive(Debug)]
struct PortState {
    learned: AtomicU32,
    learned_max: AtomicU32,
}

/// State that only the holder of the lock touches.
#[derive(Debug)]
struct Writer {
    /// Entries in the table, static ones included.
    used: usize,
    version: u32,
    /// Sorted by key.
    statics: Vec<StaticEntry>,
    moves: MoveLog,
    origins: Origins,
    /// Bucket at which the ageing sweep continues.
    sweep_at: usize,
    /// Oldest stamp that this sweep has left in the table, or that was learned meanwhile.
    oldest: Option<Tick>,
}

/// The forwarding database, shared by all workers and control.
///
/// [`Fdb::lookup`], [`Fdb::touch`] and [`Fdb::iter`] never wait. [`Fdb::learn`] and [`Fdb::age`] give up while another
/// thread writes. Control's own calls wait for the lock.
#[derive(Debug)]
pub struct Fdb {
    table: Table,
    capacity: usize,
    /// Lifetime of an entry in ticks; 0 for no limit.
    life: AtomicU32,
    /// How long an address that moved too often is held at its port, in ps; 0 to not hold it.
    sticky_ps: AtomicU64,
    due: AtomicU64,
    ports: PerPort<PortState>,
    /// Ports of the loop alarm in force, as a [`PortSet`].
    alarm_ports: AtomicU64,
    counters: Counters,
    /// Number of changes that may have made an earlier answer wrong.
    version: AtomicU64,
    events: ArrayQueue<LearnEvent>,
    /// Stations that moved, for event messages: the first few, until control takes them.
    movers: ArrayQueue<(FdbKey, PortId, PortId)>,
    writer: Mutex<Writer>,
}

impl Fdb {
    /// An empty table. This and [`Fdb::set_static`] are the only calls that allocate.
    #[must_use]
    pub fn new(config: FdbConfig) -> Self {
        let port =
            |_| PortState { learned: AtomicU32::new(0), learned_max: AtomicU32::new(u32::MAX) };
        Self {
            table: Table::new(config.capacity, config.seed),
            capacity: config.capacity,
            life: AtomicU32::new(Tick::cover(config.ageing)),
            sticky_ps: AtomicU64::new(0),
            due: AtomicU64::new(Due::Never.word()),
            ports: PerPort::from_fn(port),
            alarm_ports: AtomicU64::new(0),
            counters: Counters::default(),
            version: AtomicU64::new(0),
            events: ArrayQueue::new(config.events.max(1)),
            movers: ArrayQueue::new(MOVERS),
            writer: Mutex::new(Writer {
                used: 0,
                version: 0,
                statics: Vec::new(),
                moves: MoveLog::new(),
                origins: Origins::new(),
                sweep_at: 0,
                oldest: None,
            }),
        }
    }

    /// Computes the buckets of `key` and prefetches the first one.
    #[inline]
    #[must_use]
    pub fn probe(&self, key: FdbKey) -> Probe {
        let probe = self.table.probe(key);
        self.table.prefetch(probe);
        probe
    }

    /// Port of `key`. Age plays no part: an entry is used until [`Fdb::age`] removes it.
    #[inline]
    #[must_use]
    pub fn lookup(&self, key: FdbKey) -> Option<Hit> {
        self.lookup_at(self.table.probe(key))
    }

    /// Like [`Fdb::lookup`], for a key whose probe was made for the whole burst.
    #[inline]
    #[must_use]
    pub fn lookup_at(&self, probe: Probe) -> Option<Hit> {
        let (_, value) = self.table.find_at(probe)?;
        Some(Hit { port: value.port(), is_static: value.is_static() })
    }

    /// Checks the source of a frame that came in by `port`, and refreshes its age if it is known.
    ///
    /// The caller passes no group address, and queues a [`Fdb::learn`] for `Unknown` and `OnOtherPort`.
    #[inline]
    pub fn touch(&self, key: FdbKey, port: PortId, now: Instant) -> SourceState {
        self.touch_at(self.table.probe(key), port, now)
    }

    /// Like [`Fdb::touch`], for a key whose probe was made for the whole burst.
    #[inline]
    pub fn touch_at(&self, probe: Probe, port: PortId, now: Instant) -> SourceState {
        let Some((entry, value)) = self.table.find_at(probe) else { return SourceState::Unknown };
        if value.is_static() {
            return SourceState::Static;
        }
        if value.port() != port {
            return SourceState::OnOtherPort(value.port());
        }
        let tick = Tick::at(now);
        // At most one write per tick: otherwise all workers would fight for the cache line of a busy station.
        if value.tick() != tick {
            entry.refresh(value, tick);
        }
        SourceState::Known
    }

    /// Changes when an entry moves, is removed or becomes static, but not when one is added. An answer that was found
    /// after reading this is still right as long as the version is the same.
    #[inline]
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire) // pairs with `outdate`
    }

    /// Age stamp of a frame at `now`, as a number: [`Fdb::touch`] writes to an entry once per stamp.
    #[inline]
    #[must_use]
    pub const fn stamp(now: Instant) -> u32 {
        Tick::at(now).bits()
    }

    /// Marks earlier answers as possibly wrong. Called after the change, so that a reader of the new version sees it.
    fn outdate(&self) {
        self.version.fetch_add(1, Ordering::Release); // pairs with `version`
    }

    /// Learns that `key` is behind `port`, at the end of a burst.
    pub fn learn(&self, key: FdbKey, port: PortId, now: Instant) -> Learned {
        match self.try_writer() {
            Some(mut writer) => self.learn_locked(&mut writer, key, port, now),
            None => self.learn_later(),
        }
    }

    /// Like [`Fdb::learn`], from a frame with a digest. Also returns another port by which the same frame came in
    /// recently, if any: the frame goes round a loop, or its host sends it by both ports.
    pub fn learn_from(
        &self,
        source: Source,
        port: PortId,
        now: Instant,
    ) -> (Learned, Option<PortId>) {
        let Some(mut writer) = self.try_writer() else { return (self.learn_later(), None) };
        let other = writer.origins.note(source.key, source.frame, port);
        (self.learn_locked(&mut writer, source.key, port, now), other)
    }

    fn learn_later(&self) -> Learned {
        add(&self.counters.busy, 1);
        Learned::Busy
    }

    fn learn_locked(
        &self,
        writer: &mut Writer,
        key: FdbKey,
        port: PortId,
        now: Instant,
    ) -> Learned {
        let found = self.table.find(key);
        match found {
            Some((_, value)) if value.is_static() => Learned::Static,
            Some((entry, value)) if value.port() == port => {
                entry.refresh(value, Tick::at(now));
                Learned::Known
            }
            // Before the port's limit: a held station does not move, so it takes no place on the new port.
            Some(_) if writer.moves.is_held(key, now) => {
                add(&self.counters.held, 1);
                Learned::Held
            }
            _ if self.at_limit(port) => {
                add(&self.counters.port_limit, 1);
                Learned::PortLimit
            }
            Some((entry, value)) => self.relearn(writer, entry, value, key, port, now),
            None => self.learn_new(writer, key, port, Tick::at(now)),
        }
    }

    fn relearn(
        &self,
        writer: &mut Writer,
        entry: &Entry,
        value: Value,
        key: FdbKey,
        port: PortId,
        now: Instant,
    ) -> Learned {
        // A move is noted even if the station then stays: the alarm counts attempts.
        let from = value.port();
        let noted = writer.moves.note(key, from, port, now);
        add(&self.counters.loop_alarms, u64::from(noted.crossed));
        self.publish_alarm(writer, now);
        let sticky = Span::from_ps(self.sticky_ps.load(Ordering::Relaxed)); // a number on its own
        let stays = noted.excess && sticky > Span::ZERO;
        if stays {
            writer.moves.hold(key, now + sticky);
        }
        // Back to the port where it was before it began to move, not to the last one: with a loop, the last one is
        // arbitrary.
        let to = if stays { noted.home } else { port };
        if to != from {
            entry.set(value.with_port(to).with_tick(Tick::at(now)));
            self.outdate();
            self.count_learned(from, -1);
            self.count_learned(to, 1);
            add(&self.counters.moved, 1);
            self.tell(key, to, LearnKind::Moved { from });
            let _ = self.movers.push((key, from, to)); // full: messages about the first ones suffice
        }
        if noted.excess {
            let home = noted.home;
            return Learned::Looping { home, other: if port == home { from } else { port } };
        }
        Learned::Moved { from }
    }

    fn learn_new(&self, writer: &mut Writer, key: FdbKey, port: PortId, tick: Tick) -> Learned {
        let value = Value::new(writer.next_version(), port, tick, false);
        if writer.used >= self.capacity || !self.table.place(key, value) {
            add(&self.counters.full, 1);
            return Learned::Full;
        }
        writer.used += 1;
        writer.note_stamp(tick);
        let life = self.life.load(Ordering::Relaxed); // changed under our lock only
        // If a sweep is due, it is earlier than this entry's end, and finds the next time by itself.
        if life != 0 && self.due() == Due::Never {
            self.set_due(Due::At(tick.plus(life)));
        }
        self.count_learned(port, 1);
        add(&self.counters.learned, 1);
        self.tell(key, port, LearnKind::New);
        Learned::New
    }

    /// Sets how long an address that moved too often is held at its former port; zero to not hold it.
    pub fn set_sticky(&self, span: Span) {
        self.sticky_ps.store(span.as_ps(), Ordering::Relaxed); // a number on its own
    }

    /// Sets how many addresses can be learned on `port`. If there are more, they stay until they age out.
    pub fn set_learned_max(&self, port: PortId, count: u32) {
        self.ports[port].learned_max.store(count, Ordering::Relaxed); // a number on its own
    }

    /// Number of addresses learned on `port`.
    #[must_use]
    pub fn learned(&self, port: PortId) -> u32 {
        self.ports[port].learned.load(Ordering::Relaxed) // a number on its own
    }

    /// Number of entries, static ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writer().used
    }

    /// Whether the table has no entry.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes one entry, learned or static; `false` if there is none.
    pub fn del(&self, key: FdbKey) -> bool {
        let mut writer = self.writer();
        let Some((entry, value)) = self.table.find(key) else { return false };
        if value.is_static() {
            writer.statics.retain(|e| e.key != key);
        }
        self.remove(&mut writer, entry, value);
        true
    }

    /// Removes the entries learned on `port`; returns how many.
    pub fn flush_port(&self, port: PortId) -> usize {
        self.flush(|at| at == port)
    }

    /// Removes the entries learned on ports between which stations have moved recently, except for `home`; returns how
    /// many.
    pub fn flush_movers(&self, home: PortId) -> usize {
        let ports = self.writer().moves.ports();
        self.flush(|at| at != home && ports.contains(at))
    }

    /// Removes all learned entries; returns how many.
    pub fn flush_all(&self) -> usize {
        self.flush(|_| true)
    }

    fn flush(&self, gone: impl Fn(PortId) -> bool) -> usize {
        let mut writer = self.writer();
        let mut removed = 0;
        for entry in self.table.buckets().iter().flat_map(table::Bucket::entries) {
            if let Some((_, value)) = entry.both()
                && !value.is_static()
                && gone(value.port())
            {
                self.remove(&mut writer, entry, value);
                removed += 1;
            }
        }
        removed
    }

    /// All entries, in arbitrary order; entries that others write meanwhile may be missing.
    pub fn iter(&self, now: Instant) -> impl Iterator<Item = FdbEntry> + '_ {
        let tick = Tick::at(now);
        self.table.buckets().iter().flat_map(table::Bucket::entries).filter_map(move |entry| {
            let (key, value) = entry.both()?;
            let is_static = value.is_static();
            let ticks = if is_static { 0 } else { tick.since(value.tick()) };
            Some(FdbEntry { key, port: value.port(), is_static, age: Tick::span(ticks) })
        })
    }

    /// Takes the next event; for control.
    pub fn pop_event(&self) -> Option<LearnEvent> {
        self.events.pop()
    }

    /// Takes the next station that moved, with its old and new port. In a flood of moves only the first are kept; all
    /// are counted.
    pub fn pop_move(&self) -> Option<(FdbKey, PortId, PortId)> {
        self.movers.pop()
    }

    /// Counters since the switch was started.
    #[must_use]
    pub fn counters(&self) -> FdbCounters {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed); // numbers on their own
        let c = &self.counters;
        FdbCounters {
            learned: get(&c.learned),
            moved: get(&c.moved),
            aged: get(&c.aged),
            port_limit: get(&c.port_limit),
            full: get(&c.full),
            busy: get(&c.busy),
            events_lost: get(&c.events_lost),
            loop_alarms: get(&c.loop_alarms),
            held: get(&c.held),
        }
    }

    /// Ports between which an address moves too often; a level, not an event.
    ///
    /// Becomes empty with the first [`Fdb::loop_alarm`] 10 s after the last such move.
    #[must_use]
    pub fn loop_ports(&self) -> PortSet {
        PortSet::from_bits(self.alarm_ports.load(Ordering::Relaxed)) // a word on its own
    }

    /// The last loop alarm, even if it is over.
    #[must_use]
    pub fn last_loop(&self) -> Option<LoopAlarm> {
        self.writer().moves.last()
    }

    /// The loop alarm while it is in force; for control.
    pub fn loop_alarm(&self, now: Instant) -> Option<LoopAlarm> {
        self.publish_alarm(&mut self.writer(), now)
    }

    fn publish_alarm(&self, writer: &mut Writer, now: Instant) -> Option<LoopAlarm> {
        let alarm = writer.moves.state(now);
        let ports = alarm.map_or(PortSet::EMPTY, |alarm| alarm.ports);
        self.alarm_ports.store(ports.bits(), Ordering::Relaxed); // a word on its own
        alarm
    }

    fn remove(&self, writer: &mut Writer, entry: &Entry, value: Value) {
        entry.clear();
        self.outdate();
        writer.used = writer.used.saturating_sub(1);
        if !value.is_static() {
            self.count_learned(value.port(), -1);
        }
    }

    fn at_limit(&self, port: PortId) -> bool {
        self.learned(port) >= self.ports[port].learned_max.load(Ordering::Relaxed) // a number
    }

    /// Adds to a count that only the holder of the lock changes.
    fn count_learned(&self, port: PortId, by: i32) {
        // Load and store instead of an atomic addition: the lock makes this thread the only writer.
        let count = self.learned(port).saturating_add_signed(by);
        self.ports[port].learned.store(count, Ordering::Relaxed); // a number on its own
    }

    fn tell(&self, key: FdbKey, port: PortId, kind: LearnKind) {
        if self.events.push(LearnEvent { key, port, kind }).is_err() {
            add(&self.counters.events_lost, 1);
        }
    }

    fn try_writer(&self) -> Option<MutexGuard<'_, Writer>> {
        self.writer.try_lock().ok()
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().expect("nothing panics while it holds the lock")
    }
}

impl Writer {
    fn next_version(&mut self) -> u32 {
        self.version = self.version.wrapping_add(1);
        self.version
    }

    fn note_stamp(&mut self, stamp: Tick) {
        self.oldest = match self.oldest {
            Some(oldest) if oldest.start() <= stamp.start() => Some(oldest),
            _ => Some(stamp),
        };
    }
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed); // a number on its own
}
