//! A PBR fabric in virtual time: switches joined to each other, and ends that read, write and answer.
//!
//! Shape: [`Plan`] → [`Fabric`]; each [`Seat`] sends UIO writes to others as fast as the wire and its window let it,
//! and answers those that come; [`Fabric::run`] jumps from instant to instant.
//! Units: picoseconds; frames.
//! Source: docs/spec/cxl-fabric.md "Inside", "Routes"; docs/spec/model.md.

use std::sync::Arc;

use weft_base::rng::Rng;
use weft_cxl::tlp_end::{Carries, EndConfig, Frame, Outbox, Received, TlpEnd};
use weft_dataplane::config::{PortRole, SwitchConfig, TlpConfig, TlpLink};
use weft_dataplane::pbr::{TableError, Tables};
use weft_dataplane::pipeline::{BuildError, Ledger};
use weft_dataplane::pool::{Bufs, Pool, PoolError};
use weft_dataplane::port::wire::{Wire, WireConfig, WireEnd, cable};
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::trace::NoTrace;
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::fabric::{Bdf, DrtEntry, Hpa, Pid, RgtEntry};
use weft_parsers::tlp::{At, Body, Completion, Kind, Mode, Pth, Status, TlpRepr};

use crate::setup::Setup;
use crate::switch::{Around, Switch};

/// Bytes of a write's payload.
const PAYLOAD: [u8; 128] = [0x5A; 128];
/// Chunks of the pool of a seat; what finds none waits.
const CHUNKS: usize = 2_048;

/// A port of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Which switch.
    pub switch: usize,
    /// Which of its ports.
    pub port: u8,
}

/// What a switch routes by.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// By DPID.
    pub drt: Vec<(Pid, DrtEntry)>,
    /// Groups.
    pub rgt: Vec<(u8, RgtEntry)>,
}

/// A fabric to be built.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What every switch is like; the number of ports is its own, and it has `buffer_bytes` for each.
    pub setup: Setup,
    /// Ports of each switch.
    pub ports: Vec<usize>,
    /// Cables between switches.
    pub links: Vec<(Place, Place)>,
    /// Seats: a PID and where it sits.
    pub seats: Vec<(Pid, Place)>,
    /// By switch.
    pub routes: Vec<Routes>,
    /// Writes that a seat has on the way at most.
    pub window: usize,
}

/// A fabric cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// A switch.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A seat's memory.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Routes that the tables cannot take.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A port that is not there, or that two cables want.
    #[error("port {port} of switch {switch} is not there, or taken", port = .0.port, switch = .0.switch)]
    Port(Place),
}

/// Who sits at an edge.
pub struct Seat {
    pid: Pid,
    end: TlpEnd,
    port: Wire,
    bufs: Bufs,
    at: Place,
    due: Option<Instant>,
    rng: Rng,
    /// Writes that were not answered yet.
    outstanding: usize,
    /// Writes answered with success, with anything else, and writes taken.
    pub answered: u64,
    /// See above.
    pub refused: u64,
    /// See above.
    pub taken: u64,
}

/// A fabric at work.
pub struct Fabric {
    switches: Vec<Switch>,
    seats: Vec<Seat>,
    /// By switch: switches and seats that see what it sends.
    near: Vec<(Vec<usize>, Vec<usize>)>,
    pids: Vec<Pid>,
    window: usize,
    now: Instant,
    /// Whether seats make new requests.
    pub sending: bool,
}

impl Fabric {
    /// Builds a fabric; nothing has moved yet.
    ///
    /// # Errors
    /// See [`FabricError`].
    pub fn new(plan: &Plan) -> Result<Self, FabricError> {
        let around = Around { drop_runts: false, ..Around::default() };
        let mut ends: Vec<Vec<Option<WireEnd>>> =
            plan.ports.iter().map(|&ports| (0..ports).map(|_| None).collect()).collect();
        let mut place = |at: Place, end: WireEnd| {
            let slot =
                ends.get_mut(at.switch).and_then(|ports| ports.get_mut(usize::from(at.port)));
            match slot {
                Some(slot @ None) => {
                    *slot = Some(end);
                    Ok(())
                }
                _ => Err(FabricError::Port(at)),
            }
        };
        let mut near = vec![(Vec::new(), Vec::new()); plan.ports.len()];
        for &(a, b) in &plan.links {
            let (end_a, end_b) = cable(around.cable_frames);
            place(a, end_a)?;
            place(b, end_b)?;
            for (one, other) in [(a, b), (b, a)] {
                if let Some((switches, _)) = near.get_mut(one.switch) {
                    switches.push(other.switch);
                }
            }
        }
        let mut seats = Vec::new();
        for (index, &(pid, at)) in plan.seats.iter().enumerate() {
            let (own, seat) = cable(around.cable_frames);
            place(at, own)?;
            if let Some((_, seats)) = near.get_mut(at.switch) {
                seats.push(index);
            }
            seats.push(Seat::new(plan, &around, (pid, at), seat)?);
        }
        let mut switches = Vec::new();
        for (index, ends) in ends.into_iter().enumerate() {
            switches.push(switch(plan, index, &around, ends)?);
        }
        Ok(Self {
            switches,
            seats,
            near,
            pids: plan.seats.iter().map(|&(pid, _)| pid).collect(),
            window: plan.window,
            now: Instant::ZERO,
            sending: true,
        })
    }

    /// The seats.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// Where the run has come to.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Writes on their way, or their answers.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.seats.iter().map(|seat| seat.outstanding).sum()
    }

    /// Writes that were answered.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.seats.iter().map(|seat| seat.answered).sum()
    }

    /// The books of each switch.
    #[must_use]
    pub fn ledgers(&self) -> Vec<Ledger> {
        self.switches.iter().map(|switch| Ledger::read(switch.core())).collect()
    }

    /// Has every seat look again: requests may be made from now on, or no more.
    pub fn set_sending(&mut self, sending: bool) {
        self.sending = sending;
        for seat in &mut self.seats {
            seat.due = Some(self.now);
        }
    }

    /// Runs until `end`, or until nothing is left to happen.
    ///
    /// # Errors
    /// Never: a wire does not fail.
    pub fn run(&mut self, end: Instant) -> Result<(), PortError> {
        loop {
            let switches = self.switches.iter().map(Switch::next);
            let seats = self.seats.iter().map(|seat| seat.due);
            let next = switches.chain(seats).fold(None, Instant::earlier);
            let Some(next) = next.filter(|&next| next <= end) else { break };
            self.now = next.max(self.now);
            self.at_once()?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// All that happens now.
    fn at_once(&mut self) -> Result<(), PortError> {
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        for seat in self.seats.iter_mut().filter(|seat| is_due(seat.due)) {
            let frames = seat.poll(now, self.sending.then_some((&*self.pids, self.window)))?;
            if frames > 0
                && let Some(switch) = self.switches.get_mut(seat.at.switch)
            {
                switch.poke(now);
            }
        }
        for index in 0..self.switches.len() {
            let Some(switch) = self.switches.get_mut(index) else { break };
            if !is_due(switch.next()) {
                continue;
            }
            let step = switch.step(now, &mut NoTrace);
            let Some((switches, seats)) = self.near.get(index).filter(|_| step.work > 0) else {
                continue;
            };
            for &seat in seats {
                if let Some(seat) = self.seats.get_mut(seat) {
                    seat.due = Some(now);
                }
            }
            for &other in switches {
                if let Some(other) = self.switches.get_mut(other) {
                    other.poke(now);
                }
            }
        }
        Ok(())
    }
}

/// Switch `index` of `plan`: all ports are fabric ports, as seats ask and answer with a PTH, which no edge lets through.
fn switch(
    plan: &Plan,
    index: usize,
    around: &Around,
    ends: Vec<Option<WireEnd>>,
) -> Result<Switch, FabricError> {
    let buffer_bytes = plan.setup.buffer_bytes * ends.len() as u64;
    let setup = Setup { ports: ends.len(), buffer_bytes, ..plan.setup.clone() };
    let mut config: SwitchConfig = setup.config();
    config.pfc.watchdog_detect = Span::ZERO; // what comes to a stand is to stay so
    for config in &mut config.ports {
        config.role = PortRole::Fport(TlpLink::default());
    }
    // a port without a cable hangs in the air
    let ends = ends.into_iter().map(|end| end.unwrap_or_else(|| cable(1).0)).collect();
    let switch = Switch::on(config, around, ends)?;
    let mut tables: Tables = (**switch.core().tables.load()).clone();
    if let Some(routes) = plan.routes.get(index) {
        for &(group, entry) in &routes.rgt {
            tables.set_rgt(usize::from(group), &[entry])?;
        }
        for &(pid, entry) in &routes.drt {
            tables.set_drt(pid.index(), &[entry])?;
        }
    }
    switch.core().tables.store(Arc::new(tables));
    Ok(switch)
}

impl Seat {
    fn new(
        plan: &Plan,
        around: &Around,
        (pid, at): (Pid, Place),
        end: WireEnd,
    ) -> Result<Self, FabricError> {
        let pris = plan.setup.pris;
        let wire = WireConfig {
            name: format!("seat {pid}"),
            rate: plan.setup.rate,
            propagation: around.propagation,
            latency: Span::ZERO,
            overhead: around.overhead,
            drop_runts: around.drop_runts,
        };
        let config = EndConfig {
            mac: MacAddr::from_bits(0x0257_4600_0000 | u64::from(pid.bits())),
            carries: Carries::Pbr,
            tlp: TlpConfig::for_pris(pris),
            classes: if pris <= 4 { PriMap::four() } else { PriMap::eight() },
            payload_max: 512,
        };
        Ok(Self {
            pid,
            end: TlpEnd::new(config),
            port: Wire::new(wire, plan.setup.frame_len_max, end),
            bufs: Bufs::new(Pool::in_memory(CHUNKS, plan.setup.frame_len_max)?, 16, 0),
            at,
            due: Some(Instant::ZERO),
            rng: Rng::new(plan.setup.seed ^ u64::from(pid.bits())),
            outstanding: 0,
            answered: 0,
            refused: 0,
            taken: 0,
        })
    }

    /// Its PID.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Takes in, answers, and makes requests to `others`; returns how many frames moved.
    fn poll(&mut self, now: Instant, others: Option<(&[Pid], usize)>) -> Result<usize, PortError> {
        let Self { pid, end, port, bufs, rng, outstanding, answered, refused, taken, .. } = self;
        if let Some((pids, window)) = others.filter(|(pids, _)| pids.len() > 1) {
            while *outstanding < window {
                let to = pick(rng, pids, *pid);
                let tag = u16::try_from(*outstanding).unwrap_or(0);
                let address = Hpa(rng.below(1 << 30) & !0xFFF);
                if end.outbox().send(Some(Pth::new(*pid, to)), &write(address, tag)).is_err() {
                    break;
                }
                *outstanding += 1;
            }
        }
        let mut handler = |frame: Frame<'_>, out: &mut Outbox| {
            let Received::Tlp(Some(pth), tlp) = frame.content else { return };
            if tlp.kind() == Kind::UioWrite {
                *taken += 1;
                let back = Pth::new(pth.dpid, pth.spid);
                if let Some(answer) = Completion::of(&tlp, Status::Success, Bdf::new(0, 0, 0)) {
                    let _ = out.send(Some(back), &answer); // a completion without data always fits
                }
            } else if tlp.is_completion() {
                *outstanding = outstanding.saturating_sub(1);
                match tlp.status() {
                    Some(Status::Success) | None => *answered += 1,
                    Some(_) => *refused += 1,
                }
            }
        };
        let progress = end.poll(now, port, bufs, &mut handler)?;
        self.due = self.port.next_arrival();
        if progress.blocked {
            self.due = Instant::earlier(self.due, self.port.idle_at());
            self.due = Instant::earlier(self.due, progress.next);
        }
        if progress.frames > 0 {
            self.due = Instant::earlier(self.due, Some(now)); // there may be more, or room
        }
        Ok(progress.frames)
    }
}

/// Any of `pids` but `own`.
fn pick(rng: &mut Rng, pids: &[Pid], own: Pid) -> Pid {
    loop {
        let at = usize::try_from(rng.below(pids.len() as u64)).unwrap_or(0);
        if let Some(&pid) = pids.get(at).filter(|&&pid| pid != own) {
            return pid;
        }
    }
}

/// A UIO write of 128 bytes.
fn write(addr: Hpa, tag: u16) -> TlpRepr<'static> {
    let body = Body::Address {
        addr,
        wide: true,
        at: At::default(),
        no_write: false,
        length_dw: 32,
        first_be: 0xF,
        last_be: 0xF,
    };
    let write = TlpRepr::new(Mode::Flit, Kind::UioWrite, Bdf::new(1, 0, 0), tag, body);
    TlpRepr { payload: &PAYLOAD, ..write }
}
