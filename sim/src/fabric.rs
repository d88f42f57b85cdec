//! A PBR fabric in virtual time: switches connected to each other, and seats at their edges that write and answer.
//!
//! A [`Plan`] is built into a [`Fabric`]. Each [`Seat`] sends UIO writes to others as fast as the wire and its window
//! allow, and answers those that it receives.
//!
//! Source: docs/spec/cxl-fabric.md "Inside", "Routes"; docs/spec/model.md.

use std::sync::Arc;

use weft_base::rng::Rng;
use weft_cxl::tlp_end::{Carries, EndConfig, Frame, Outbox, Progress, Received, TlpEnd};
use weft_dataplane::config::{PortRole, SwitchConfig, TlpConfig, TlpLink};
use weft_dataplane::pbr::{TableError, Tables};
use weft_dataplane::pipeline::{BuildError, Ledger};
use weft_dataplane::pool::{Bufs, Pool, PoolError};
use weft_dataplane::port::wire::{Wire, WireConfig, WireEnd, cable};
use weft_dataplane::port::{Port, PortError};
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::fabric::{Bdf, DrtEntry, Hpa, Pid, RgtEntry};
use weft_parsers::tlp::{At, Body, Completion, Kind, Mode, Pth, Status, TlpRepr};

use crate::engine::{CableError, Cables, Latency, Place, Schedule};
use crate::nodes::{Edge, Node, Nodes};
use crate::setup::Setup;
use crate::switch::{Switch, SwitchTiming};

/// Payload of each write.
const PAYLOAD: [u8; 128] = [0x5A; 128];
/// Chunks of a seat's pool; a frame that finds none waits.
const CHUNKS: usize = 2_048;

/// Routing tables of a switch.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// DRT entries, by DPID.
    pub drt: Vec<(Pid, DrtEntry)>,
    /// RGT entries, by number of the group.
    pub rgt: Vec<(u8, RgtEntry)>,
}

/// Description of a fabric.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Every switch; the number of ports is its own, and `buffer_bytes` counts for each port.
    pub setup: Setup,
    /// Number of ports of each switch.
    pub ports: Vec<usize>,
    /// Cables between switches; components are switches.
    pub links: Vec<(Place, Place)>,
    /// PID and place of each seat.
    pub seats: Vec<(Pid, Place)>,
    /// Routing tables of each switch.
    pub routes: Vec<Routes>,
    /// Most writes of a seat that may wait for their answers.
    pub window: usize,
    /// `Max_Payload_Size` of all links, in bytes.
    pub payload_max: u16,
}

/// Why a fabric cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// A switch refuses its configuration.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The pool of a seat cannot be mapped.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// Routes do not fit the tables.
    #[error(transparent)]
    Table(#[from] TableError),
    /// A cable cannot be laid; places are those of the [`Plan`].
    #[error(transparent)]
    Cable(#[from] CableError),
}

/// An end of the fabric, which writes to others and answers them.
pub struct Seat {
    pid: Pid,
    /// PIDs of all seats, its own included.
    pids: Arc<[Pid]>,
    window: usize,
    /// Whether it sends new writes.
    sending: bool,
    link: Link,
    rng: Rng,
    /// Writes sent and not answered yet.
    outstanding: usize,
    /// Writes that were answered with success.
    pub answered: u64,
    /// Writes that were answered with another status.
    pub refused: u64,
    /// Writes received from others.
    pub taken: u64,
}

/// A fabric that is built, and runs.
pub struct Fabric {
    /// Switches first, then seats.
    nodes: Nodes<Seat>,
    switches: usize,
}

impl Fabric {
    /// Builds a fabric, in which nothing has moved yet.
    ///
    /// # Errors
    /// The first part that cannot be built.
    pub fn new(plan: &Plan) -> Result<Self, FabricError> {
        let around = around();
        let pids: Arc<[Pid]> = plan.seats.iter().map(|&(pid, _)| pid).collect();
        let nodes =
            nodes(plan, &around, |pid, end| Seat::new(plan, &around, pid, pids.clone(), end))?;
        Ok(Self { nodes, switches: plan.ports.len() })
    }

    /// All seats, in the order of the plan.
    pub fn seats(&self) -> impl Iterator<Item = &Seat> {
        self.nodes.edges()
    }

    /// Virtual time of the run.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.nodes.now()
    }

    /// Writes that are not answered yet, of all seats.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.seats().map(|seat| seat.outstanding).sum()
    }

    /// Writes answered with success, of all seats.
    #[must_use]
    pub fn answered(&self) -> u64 {
        self.seats().map(|seat| seat.answered).sum()
    }

    /// The ledger of each switch.
    #[must_use]
    pub fn ledgers(&self) -> Vec<Ledger> {
        self.nodes.ledgers()
    }

    /// Lets every seat send new writes from now on, or stops them.
    pub fn set_sending(&mut self, sending: bool) {
        for seat in self.switches..self.nodes.len() {
            if let Some(seat) = self.nodes.change(seat) {
                seat.sending = sending;
            }
        }
    }

    /// Runs until `end`, or until nothing is left to do, on `threads` threads.
    ///
    /// # Errors
    /// Never: a wire in virtual time does not fail.
    pub fn run(&mut self, end: Instant, threads: usize) -> Result<(), &PortError> {
        self.nodes.run(end, threads)
    }
}

/// Conditions around every switch of a fabric.
pub(crate) fn around() -> SwitchTiming {
    // TLPs may be shorter than the least Ethernet frame.
    SwitchTiming { drop_runts: false, ..SwitchTiming::default() }
}

/// The switches of `plan`, and the components at their edges, which `seat` makes.
pub(crate) fn nodes<E: Edge, X: From<FabricError>>(
    plan: &Plan,
    around: &SwitchTiming,
    mut seat: impl FnMut(Pid, WireEnd) -> Result<E, X>,
) -> Result<Nodes<E>, X> {
    // Switches before seats: `Fabric` finds its seats by that.
    let mut cables = Cables::new();
    for &ports in &plan.ports {
        cables.add(ports, around.of_switch());
    }
    for &(a, b) in &plan.links {
        cables.lay(a, b, &around.cable(plan.setup.rate)).map_err(FabricError::from)?;
    }
    for &(_, at) in &plan.seats {
        let seat = Place { component: cables.add(1, Latency::default()), port: PortId::default() };
        cables.lay(at, seat, &around.cable(plan.setup.rate)).map_err(FabricError::from)?;
    }
    let (schedule, ends) = Schedule::new(cables);
    let mut ends = ends.into_iter();
    let mut nodes = Vec::new();
    for (index, ends) in ends.by_ref().take(plan.ports.len()).enumerate() {
        nodes.push(Node::from(switch(plan, index, around, ends)?));
    }
    for (end, &(pid, _)) in ends.flatten().flatten().zip(&plan.seats) {
        nodes.push(Node::edge(seat(pid, end)?));
    }
    Ok(Nodes::new(nodes, schedule))
}

/// Switch `index` of `plan`. All its ports are fabric ports, as seats send with a PTH, which an edge port would not let
/// through.
fn switch(
    plan: &Plan,
    index: usize,
    around: &SwitchTiming,
    ends: Vec<Option<WireEnd>>,
) -> Result<Switch, FabricError> {
    let buffer_bytes = plan.setup.buffer_bytes * ends.len() as u64;
    let setup = Setup { ports: ends.len(), buffer_bytes, ..plan.setup.clone() };
    let mut config: SwitchConfig = setup.config();
    config.pfc.watchdog_detect = Span::ZERO; // a deadlock must stay one, to be seen
    for config in &mut config.ports {
        let payload_max = plan.payload_max;
        config.role = PortRole::Fport(TlpLink { payload_max, ..TlpLink::default() });
    }
    // A port without a link gets the end of a cable that leads nowhere.
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

/// One end of a link with PTH, with its wire and its pool.
pub(crate) struct Link {
    pub end: TlpEnd,
    pub port: Wire,
    pub bufs: Bufs,
}

/// The link of the seat with this PID.
pub(crate) fn link(
    plan: &Plan,
    around: &SwitchTiming,
    pid: Pid,
    end: WireEnd,
) -> Result<Link, FabricError> {
    let pris = plan.setup.pris;
    let wire = WireConfig {
        name: format!("seat {pid}"),
        rate: plan.setup.rate,
        propagation: around.propagation,
        latency: Span::ZERO,
        overhead: around.overhead,
        drop_runts: around.drop_runts,
        cut_through: false,
    };
    let config = EndConfig {
        // Locally administered, and unique by the PID.
        mac: MacAddr::from_bits(0x0257_4600_0000 | u64::from(pid.bits())),
        carries: Carries::Pbr,
        tlp: TlpConfig::for_pris(pris),
        classes: if pris <= 4 { PriMap::four() } else { PriMap::eight() },
        payload_max: plan.payload_max.into(),
    };
    let bufs = Bufs::new(Pool::in_memory(CHUNKS, plan.setup.frame_len_max)?, 16, 0);
    let port = Wire::new(wire, plan.setup.frame_len_max, end);
    Ok(Link { end: TlpEnd::new(config), port, bufs })
}

/// When an end of a link has something to do next.
pub(crate) fn due(progress: Progress, port: &mut Wire, now: Instant) -> Option<Instant> {
    if progress.frames > 0 {
        return Some(now); // there may be more, or room
    }
    let mut due = port.next_arrival();
    if progress.blocked {
        due = Instant::earlier(due, port.idle_at());
        due = Instant::earlier(due, progress.next);
    }
    due
}

impl Seat {
    fn new(
        plan: &Plan,
        around: &SwitchTiming,
        pid: Pid,
        pids: Arc<[Pid]>,
        end: WireEnd,
    ) -> Result<Self, FabricError> {
        Ok(Self {
            pid,
            pids,
            window: plan.window,
            sending: true,
            link: link(plan, around, pid, end)?,
            rng: Rng::new(plan.setup.seed ^ u64::from(pid.bits())),
            outstanding: 0,
            answered: 0,
            refused: 0,
            taken: 0,
        })
    }

    /// The seat's own PID.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }
}

impl Edge for Seat {
    /// Receives, answers, and sends new writes; returns when there is more to do.
    fn step(&mut self, now: Instant) -> Result<Option<Instant>, PortError> {
        let Self { pid, pids, link, rng, outstanding, answered, refused, taken, .. } = self;
        let Link { end, port, bufs } = link;
        if self.sending && pids.len() > 1 {
            while *outstanding < self.window {
                let to = pick(rng, pids, *pid);
                let tag = u16::try_from(*outstanding).unwrap_or(0);
                // Aligned to 4 KiB, a boundary that no request may cross (PCIe).
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
        Ok(due(progress, port, now))
    }
}

/// One of `pids` other than `own`, at random.
fn pick(rng: &mut Rng, pids: &[Pid], own: Pid) -> Pid {
    // Ends: a seat calls this only if there are others.
    loop {
        let at = usize::try_from(rng.below(pids.len() as u64)).unwrap_or(0);
        if let Some(&pid) = pids.get(at).filter(|&&pid| pid != own) {
            return pid;
        }
    }
}

/// A UIO write with 128 bytes of data.
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
