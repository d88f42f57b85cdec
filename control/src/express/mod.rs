//! The fast path in the kernel: the program of each port, told what the switch knows.
//!
//! [`Express`] is made before the ports are opened, [`Express::steering`] gives each one its
//! [`Steer`], [`Express::follow`] keeps table, outputs and counters in step while the switch runs.
//!
//! Units: bytes, VIDs, priorities.
//! Source: docs/express.md.

pub mod fabric;
mod follow;
mod mirror;
pub mod rules;
mod steer;
mod tally;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weft_dataplane::fdb::FdbKey;
use weft_dataplane::pipeline::{Core, PortLedger};
use weft_dataplane::port::netdev;
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::stats::WorkerStats;
use weft_dataplane::types::{PortId, PortSet};
use weft_dataplane::worker::Clock;
use weft_xdp::layout::{self, PORTS};
use weft_xdp::{Options, SharedState, Xdp, XdpError};

use fabric::Fabric;
use follow::Follower;
use mirror::Mirror;
pub use steer::Steer;
use tally::Tally;

/// Key of a station in the kernel.
#[must_use]
pub fn station_key(key: FdbKey) -> u64 {
    layout::fdb_key(key.vid().get(), key.addr().to_bits())
}

/// What is known of a port.
#[derive(Debug, Default)]
struct Place {
    /// The interface that the program is on, if it is.
    ifindex: Option<u32>,
    /// Whether frames are redirected to it.
    is_output: bool,
    /// Why no frame is express here, as input; as output.
    not_in: Option<String>,
    not_out: Option<String>,
}

/// What all threads share.
struct Shared {
    gates: Arc<SharedState>,
    state: Mutex<State>,
}

struct State {
    xdp: Xdp,
    ports: Vec<Place>,
    mirror: Mirror,
    fabric: Fabric,
    tally: Tally,
    /// What was counted when somebody only glanced at it.
    scratch: Box<WorkerStats>,
    /// The configuration in force, once there is one.
    snapshot: Option<Arc<Snapshot>>,
    /// How often a configuration was written for the kernel.
    written: u64,
    /// How many want to see every frame in user space.
    watchers: usize,
    /// Inputs that are blocked because of a loop.
    blocked: PortSet,
    /// What the kernel refused, as long as it does.
    fault: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fast path of one switch.
pub struct Express {
    shared: Arc<Shared>,
    follower: Option<Follower>,
}

impl Express {
    /// Makes the maps for a switch of `ports` ports, whose forwarding table has room for `stations`.
    ///
    /// # Errors
    /// No program in this build, no capability, or a kernel that is too old.
    pub fn new(ports: usize, stations: usize) -> Result<Self, XdpError> {
        let stations = u32::try_from(stations).unwrap_or(u32::MAX);
        let xdp = Xdp::load(&Options { stations })?;
        let state = State {
            ports: (0..ports.min(PORTS)).map(|_| Place::default()).collect(),
            mirror: Mirror::default(),
            fabric: Fabric::default(),
            tally: Tally::new(ports.min(PORTS)),
            scratch: Box::default(),
            snapshot: None,
            written: 0,
            watchers: 0,
            blocked: PortSet::EMPTY,
            fault: None,
            xdp,
        };
        let gates = state.xdp.shared().clone();
        Ok(Self { shared: Arc::new(Shared { gates, state: Mutex::new(state) }), follower: None })
    }

    /// The program of `port`, to be attached to `device` when that is opened.
    #[must_use]
    pub fn steering(&self, port: PortId, device: &str) -> Steer {
        Steer::new(port, device, self.shared.clone())
    }

    /// Puts the configuration of `core` in force and follows the switch from now on.
    ///
    /// # Errors
    /// The kernel refuses a map.
    pub fn follow(&mut self, core: &Arc<Core>, clock: Clock) -> Result<(), XdpError> {
        self.prepare(&core.snapshot.load_full())?.commit();
        let mut state = self.shared.lock();
        let State { xdp, fabric, .. } = &mut *state;
        fabric.follow(xdp, core)?;
        drop(state);
        self.follower = Some(Follower::start(self.shared.clone(), core.clone(), clock));
        Ok(())
    }

    /// Readies a configuration that is to follow; until it is committed, the old one is in force.
    ///
    /// # Errors
    /// The kernel refuses a map.
    pub fn prepare(&self, new: &Arc<Snapshot>) -> Result<Prepared<'_>, XdpError> {
        let mut state = self.shared.lock();
        state.write(new)?;
        Ok(Prepared { shared: &self.shared, new: new.clone(), written: state.written })
    }

    /// Has all frames come to user space as long as the answer lives.
    #[must_use]
    pub fn watch(&self) -> Watch {
        self.shared.watch(1);
        Watch(self.shared.clone())
    }

    /// Adds up what went past the pipeline, so that no frame is half counted.
    pub fn count(&self, core: &Core) {
        self.shared.lock().count(core);
    }

    /// Counters of `port` as they are, without waiting until no frame is half counted.
    #[must_use]
    pub fn glance(&self, core: &Core, port: PortId) -> PortLedger {
        let mut state = self.shared.lock();
        let State { xdp, scratch, .. } = &mut *state;
        let glanced = tally::glance(xdp, port, scratch);
        let ledger = PortLedger::read_with(core, port, scratch);
        if glanced.is_err() {
            state.note(glanced);
        }
        ledger
    }

    /// Why frames of (or to) each port are not express; `None` where they may be.
    #[must_use]
    pub fn reasons(&self) -> Vec<Option<String>> {
        let state = self.shared.lock();
        let watched =
            (state.watchers > 0).then(|| "a trace or a mirror must see all frames".to_owned());
        let of = |(index, place): (usize, &Place)| {
            let (not_in, not_out) = (place.not_in.as_ref(), place.not_out.as_ref());
            let snapshot = state.snapshot.as_ref().zip(PortId::new(index));
            let marks = snapshot.filter(|(snapshot, port)| snapshot.marks_alone(*port));
            let marks = marks.map(|_| MARKS_ALONE.to_owned());
            let drops = snapshot.filter(|(snapshot, port)| snapshot.drops_alone(*port));
            let drops = drops.map(|_| DROPS_ALONE.to_owned());
            let alone = marks.as_ref().or(drops.as_ref());
            let texts = [not_in, not_out, alone, watched.as_ref(), state.fault.as_ref()];
            let texts: Vec<&str> = texts.into_iter().flatten().map(String::as_str).collect();
            (!texts.is_empty()).then(|| texts.join("; "))
        };
        state.ports.iter().enumerate().map(of).collect()
    }

    /// Ends following; what was counted last is in `core`.
    pub fn end(&mut self, core: &Core) {
        self.follower = None;
        self.count(core);
        self.count(core); // both banks
    }
}

/// A configuration that the kernel has, and does not follow yet. It holds no lock: a worker that is
/// waited for may be in the middle of attaching a program.
pub struct Prepared<'a> {
    shared: &'a Shared,
    new: Arc<Snapshot>,
    /// [`State::written`] when it was written.
    written: u64,
}

impl Prepared<'_> {
    /// Puts it in force, whole.
    pub fn commit(self) {
        let mut state = self.shared.lock();
        if state.written != self.written {
            // A trace or a mirror came or went meanwhile, and wrote over it.
            let again = state.write(&self.new);
            state.note(again);
        }
        state.xdp.commit();
        state.snapshot = Some(self.new);
    }
}

/// Somebody who wants to see every frame.
pub struct Watch(Arc<Shared>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.watch(-1);
    }
}

impl Shared {
    fn watch(&self, by: isize) {
        let mut state = self.lock();
        state.watchers = state.watchers.saturating_add_signed(by);
        let Some(snapshot) = state.snapshot.clone() else { return };
        let written = state.write(&snapshot);
        if written.is_ok() {
            state.xdp.commit();
        }
        state.note(written);
    }
}

impl State {
    /// Writes what `snapshot` says to where it is not in force yet.
    fn write(&mut self, snapshot: &Snapshot) -> Result<(), XdpError> {
        self.written += 1;
        let mut ports = rules::ports(snapshot);
        for (rules, port) in ports.iter_mut().zip((0..).filter_map(PortId::new)) {
            if self.watchers > 0 || self.blocked.contains(port) {
                rules.express_pris = 0;
            }
        }
        self.xdp.prepare(&ports, &rules::members(snapshot))
    }

    /// Shuts inputs that are blocked now, and opens those that are so no longer.
    fn follow_blocks(&mut self, core: &Core) -> Result<(), XdpError> {
        let blocked = core.blocked();
        let Some(snapshot) = self.snapshot.clone().filter(|_| blocked != self.blocked) else {
            return Ok(());
        };
        let before = core::mem::replace(&mut self.blocked, blocked);
        let written = self.write(&snapshot);
        match written {
            Ok(()) => self.xdp.commit(),
            Err(_) => self.blocked = before, // to be tried again
        }
        written
    }

    fn count(&mut self, core: &Core) {
        let turned = self.tally.turn(&mut self.xdp, &core.fast.stats);
        if turned.is_err() {
            self.note(turned);
        }
    }

    /// Keeps what the kernel refused, to be shown, until all goes well.
    fn note(&mut self, done: Result<(), XdpError>) {
        self.fault = done.err().map(|error| {
            let cause = std::error::Error::source(&error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        });
    }

    /// Looks which outputs take redirected frames now.
    fn look_at_outputs(&mut self) {
        for (port, place) in (0_u8..).zip(&mut self.ports) {
            let takes = place.ifindex.map(|ifindex| {
                netdev::features(ifindex.cast_signed())
                    .is_ok_and(netdev::Features::takes_redirected)
            });
            let done = match (takes, place.ifindex) {
                (Some(true), Some(ifindex)) if !place.is_output => {
                    self.xdp.set_output(port, ifindex)
                }
                (None | Some(false), _) if place.is_output => self.xdp.unset_output(port),
                _ => Ok(()),
            };
            place.is_output = takes == Some(true) && done.is_ok();
            place.not_out = match takes {
                Some(true) | None => done.err().map(|error| error.to_string()),
                Some(false) => Some(NO_REDIRECT.to_owned()),
            };
        }
    }
}

/// Why frames to an output are queued even when nothing waits there.
const MARKS_ALONE: &str = "ECN may mark a frame that finds its queue empty: ecn_threshold_low is below \
                           a longest frame";

/// As [`MARKS_ALONE`].
const DROPS_ALONE: &str = "WRED may drop a frame that finds its queue empty: wred_threshold_low is below \
                           a longest frame";

/// Why an output takes no frames from the program.
const NO_REDIRECT: &str = "the interface does not accept redirected frames (a veth does when its far \
                           end has NAPI: `ethtool -K FAR-END gro on`, or a program of its own)";
