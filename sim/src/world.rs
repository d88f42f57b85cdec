//! A world: a switch with a station at each port, driven by jumps to the next instant at which something is due.
//!
//! A run depends only on the scenario and its seeds.
//!
//! Source: docs/spec/model.md §1; ARCHITECTURE.md "Time, errors, unsafe".

use weft_dataplane::pipeline::BuildError;
use weft_dataplane::port::wire::WireConfig;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::Event;
use weft_dataplane::types::PortId;

use crate::checkers::Watch;
use crate::engine::{CableError, Cables, Latency, Place, Schedule};
use crate::setup::Setup;
use crate::station::Station;
use crate::switch::{Switch, SwitchTiming};

/// The switch's number among the components; the station of port n is n + 1.
const SWITCH: usize = 0;

/// Why a world cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    /// The switch refuses its configuration.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A cable cannot be laid: there are more ports than a switch has.
    #[error(transparent)]
    Cable(#[from] CableError),
}

/// A switch with a station at each port.
pub struct World {
    /// The switch, component 0 of the schedule.
    pub switch: Switch,
    /// The stations, by port.
    pub stations: Vec<Station>,
    schedule: Schedule,
    /// Steps of the switch between two full looks of the checkers.
    pub look_every: u64,
}

impl World {
    /// A world of `setup`, with its configuration as `change` leaves it.
    ///
    /// # Errors
    /// The switch or a cable cannot be made.
    pub fn new(
        setup: &Setup,
        around: &SwitchTiming,
        change: impl FnOnce(&mut weft_dataplane::config::SwitchConfig),
    ) -> Result<Self, WorldError> {
        let mut config = setup.config();
        change(&mut config);
        let (maps, names) = (config.maps.clone(), config.ports.clone());
        let mut cables = Cables::new();
        let switch = cables.add(names.len(), around.of_switch());
        for (port, of_port) in (0..).map_while(PortId::new).zip(&names) {
            let station =
                Place { component: cables.add(1, Latency::default()), port: PortId::default() };
            cables.lay(Place { component: switch, port }, station, &around.cable(of_port.rate))?;
        }
        let (schedule, ends) = Schedule::new(cables);
        let mut ends = ends.into_iter();
        let of_switch = ends.next().unwrap_or_default().into_iter().flatten().collect();
        let switch = Switch::on(config, around, of_switch)?;
        let stations =
            ends.flatten().flatten().zip(names).enumerate().map(|(index, (end, port))| {
                let wire = WireConfig {
                    name: port.name,
                    rate: port.rate,
                    propagation: around.propagation,
                    latency: Span::ZERO,
                    overhead: around.overhead,
                    drop_runts: around.drop_runts,
                    cut_through: false,
                };
                // A seed of its own for each station, which no other station's random numbers move.
                Station::new(wire, end, maps.pcp_to_pri, setup.seed ^ (index as u64) << 32)
            });
        Ok(Self { switch, stations: stations.collect(), schedule, look_every: 1 })
    }

    /// Virtual time of the run.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.schedule.now()
    }

    /// Has all components step now, as one of them was changed from outside.
    pub fn poke(&mut self) {
        for component in 0..=self.stations.len() {
            self.schedule.wake(component);
        }
    }

    /// Plugs in or pulls the cable of port `index`.
    pub fn set_link(&mut self, index: usize, up: bool) {
        let now = self.now();
        if let Some(station) = self.stations.get_mut(index) {
            station.set_link(up, now);
        }
        self.poke();
    }

    /// The next instant at which a component is due.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.schedule.next()
    }

    /// Steps all components that are due next, if that is not after `end`; false if none is.
    pub fn advance<L: FnMut(Instant, &Event)>(
        &mut self,
        end: Instant,
        watch: &mut Watch<L>,
    ) -> bool {
        let Some(next) = self.next().filter(|&next| next <= end) else { return false };
        while let Some(component) = self.schedule.turn(next) {
            let next = if component == SWITCH {
                self.step(watch)
            } else {
                let now = self.now();
                self.stations.get_mut(component - 1).and_then(|station| {
                    station.poll(now);
                    station.next(now)
                })
            };
            self.schedule.stepped(component, next);
        }
        true
    }

    /// Steps the switch with its checkers; returns when it wants the next step.
    fn step<L: FnMut(Instant, &Event)>(&mut self, watch: &mut Watch<L>) -> Option<Instant> {
        let now = self.now();
        let arrived = self.schedule.arrived(SWITCH);
        let next = self.switch.step_at(now, arrived, watch).next;
        watch.checkers.follow(now, self.switch.core(), self.stations.len());
        // A full look goes through all buffers; long runs have it less often.
        if self.switch.steps().is_multiple_of(self.look_every.max(1)) {
            watch.checkers.look(now, self.switch.core());
        }
        next
    }

    /// Runs until `end`, where time then stands.
    pub fn run<L: FnMut(Instant, &Event)>(&mut self, end: Instant, watch: &mut Watch<L>) {
        while self.advance(end, watch) {}
        self.schedule.rest(end);
    }

    /// Runs until all streams are sent and all queues are empty, at most until `limit`; returns whether that was
    /// reached.
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
            // The switch may still be due at this instant, for example to send a RESUME.
            let switch = self.schedule.due(SWITCH);
            if idle && self.settled() && switch.is_none_or(|due| due > self.now()) {
                return true;
            }
            if !self.advance(limit, watch) {
                return false;
            }
        }
    }

    /// Whether no frame is on its way to the switch and no peer is paused by it.
    fn settled(&mut self) -> bool {
        let core = self.switch.core().clone();
        let held = |index| PortId::new(index).is_some_and(|port| !core.xoff(port).is_empty());
        let mut stations = self.stations.iter_mut().enumerate();
        stations.all(|(index, station)| !held(index) && station.end().in_flight() == 0)
    }
}
