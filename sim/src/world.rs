//! World: a switch, its stations and what befalls them, driven by jumps to the earliest next instant.
//!
//! Shape: [`World::run`] until an instant or until nothing is left to do; a run depends on the
//! scenario and its seeds only.
//! Units: picoseconds.
//! Source: docs/spec/model.md §1; ARCHITECTURE.md "Time, errors, unsafe".

use weft_dataplane::pipeline::BuildError;
use weft_dataplane::port::wire::WireConfig;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::PortId;

use crate::checkers::Watch;
use crate::setup::Setup;
use crate::station::Station;
use crate::switch::{Around, Switch};

/// A switch with a station at each port.
pub struct World {
    /// The switch.
    pub switch: Switch,
    /// The stations, by port.
    pub stations: Vec<Station>,
    now: Instant,
    /// Each station's next instant.
    due: Vec<Option<Instant>>,
    /// Steps between full looks of the checkers.
    pub look_every: u64,
}

impl World {
    /// A world of `setup`, with its configuration changed by `change`.
    ///
    /// # Errors
    /// As [`Switch::new`].
    pub fn new(
        setup: &Setup,
        around: &Around,
        change: impl FnOnce(&mut weft_dataplane::config::SwitchConfig),
    ) -> Result<Self, BuildError> {
        let mut config = setup.config();
        change(&mut config);
        let (maps, names) = (config.maps.clone(), config.ports.clone());
        let (switch, ends) = Switch::new(config, around)?;
        let stations: Vec<Station> = ends
            .into_iter()
            .zip(names)
            .enumerate()
            .map(|(index, (end, port))| {
                let wire = WireConfig {
                    name: port.name,
                    rate: port.rate,
                    propagation: around.propagation,
                    latency: Span::ZERO,
                    overhead: around.overhead,
                    drop_runts: around.drop_runts,
                };
                Station::new(wire, end, maps.pcp_to_pri, setup.seed ^ (index as u64) << 32)
            })
            .collect();
        let due = vec![Some(Instant::ZERO); stations.len()];
        Ok(Self { switch, stations, now: Instant::ZERO, due, look_every: 1 })
    }

    /// Where the run has come to.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Tells that station `index` or the switch was changed from outside.
    pub fn poke(&mut self) {
        self.due.fill(Some(self.now));
        self.switch.poke(self.now);
    }

    /// Plugs the cable of port `index` in or pulls it.
    pub fn set_link(&mut self, index: usize, up: bool) {
        if let Some(station) = self.stations.get_mut(index) {
            station.set_link(up, self.now);
        }
        self.poke();
    }

    /// The next instant at which something happens.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.due.iter().copied().fold(self.switch.next(), Instant::earlier)
    }

    /// One jump to the next instant, if it is not after `end`; false when there is none.
    pub fn advance<L: FnMut(Instant, &Event)>(
        &mut self,
        end: Instant,
        watch: &mut Watch<L>,
    ) -> bool {
        let Some(next) = self.next().filter(|&next| next <= end) else { return false };
        self.now = next.max(self.now);
        let now = self.now;
        for (station, due) in self.stations.iter_mut().zip(&mut self.due) {
            if due.is_some_and(|due| due <= now) {
                if let Some(at) = station.poll(now) {
                    self.switch.expect(at);
                }
                *due = station.next(now);
            }
        }
        if self.switch.next().is_some_and(|next| next <= now) {
            let step = self.switch.step(now, watch);
            if step.work > 0 {
                for (station, due) in self.stations.iter_mut().zip(&mut self.due) {
                    *due = Instant::earlier(*due, station.end().next_arrival());
                }
            }
            watch.checkers.follow(now, self.switch.core(), self.stations.len());
            if self.switch.steps().is_multiple_of(self.look_every.max(1)) {
                watch.checkers.look(now, self.switch.core());
            }
        }
        true
    }

    /// Runs until `end`.
    pub fn run<L: FnMut(Instant, &Event)>(&mut self, end: Instant, watch: &mut Watch<L>) {
        while self.advance(end, watch) {}
        self.now = self.now.max(end);
    }

    /// Runs until all streams are sent and all queues are empty, at most until `limit`; true if it
    /// came to that.
    pub fn drain<L: FnMut(Instant, &Event)>(
        &mut self,
        limit: Instant,
        watch: &mut Watch<L>,
    ) -> bool {
        loop {
            let idle = watch.checkers.copies_live() == 0
                && self
                    .stations
                    .iter_mut()
                    .all(|s| s.is_done() && s.end().next_arrival().is_none());
            if idle && self.settled() && self.switch.next().is_none_or(|next| next > self.now) {
                return true;
            }
            if !self.advance(limit, watch) {
                return false;
            }
        }
    }

    /// Whether nothing is in flight towards the switch and it holds no peer back.
    fn settled(&mut self) -> bool {
        let core = self.switch.core().clone();
        let held = |index| PortId::new(index).is_some_and(|port| !core.xoff(port).is_empty());
        let mut stations = self.stations.iter_mut().enumerate();
        stations.all(|(index, station)| !held(index) && station.end().in_flight() == 0)
    }
}
