//! The fast path in the kernel: an XDP program on each port, with maps that follow the switch's state.
//!
//! [`Express`] is made before the ports are opened, [`Express::steering`] gives each port its [`Steer`], and
//! [`Express::follow`] keeps table, outputs and counters in step while the switch runs.
//!
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

/// Key of a station in the kernel's table.
#[must_use]
pub fn station_key(key: FdbKey) -> u64 {
    layout::fdb_key(key.vid().get(), key.addr().to_bits())
}

/// State of one port.
#[derive(Debug, Default)]
struct Place {
    /// The interface that the program is attached to.
    ifindex: Option<u32>,
    /// Whether other ports' programs redirect frames to it.
    is_output: bool,
    /// Why the kernel forwards no frames from here (`not_in`), or to here (`not_out`); `None` where it does.
    not_in: Option<String>,
    not_out: Option<String>,
}

/// State that workers, the follower and control share. The gates stand outside the lock, so that a worker that sets one
/// never waits for the follower.
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
    /// Counters of one port for [`Express::glance`], so that a glance does not touch those of the core.
    scratch: Box<WorkerStats>,
    snapshot: Option<Arc<Snapshot>>,
    /// Number of times that a configuration was written to the maps; tells [`Prepared`] whether another write came in
    /// between.
    written: u64,
    /// Traces, and mirrors into files, that must see every frame in user space.
    watchers: usize,
    /// Inputs that the switch has blocked because of a loop.
    blocked: PortSet,
    /// Last refusal by the kernel; `None` once all goes well.
    fault: Option<String>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Express {
    shared: Arc<Shared>,
    follower: Option<Follower>,
}

impl Express {
    /// Makes the maps for a switch of `ports` ports, whose FDB has room for `stations`.
    ///
    /// # Errors
    /// The build has no program, the process no capability, or the kernel is too old.
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

    /// Steering for `port`, which attaches the program to `device` when that is opened.
    #[must_use]
    pub fn steering(&self, port: PortId, device: &str) -> Steer {
        Steer::new(port, device, self.shared.clone())
    }

    /// Puts the configuration of `core` in force, and follows the switch from now on.
    ///
    /// # Errors
    /// The kernel refuses a map.
    pub fn follow(&mut self, core: &Arc<Core>, clock: Clock) -> Result<(), XdpError> {
        self.prepare(&core.snapshot.load_full())?.commit();
        // The tables of TLPs are written at once: until the follower's first look programs would route by empty ones.
        let mut state = self.shared.lock();
        let State { xdp, fabric, .. } = &mut *state;
        fabric.follow(xdp, core)?;
        drop(state);
        self.follower = Some(Follower::start(self.shared.clone(), core.clone(), clock));
        Ok(())
    }

    /// Writes the maps for a configuration that is to follow; until it is committed, the old one is in force.
    ///
    /// # Errors
    /// The kernel refuses a map.
    pub fn prepare(&self, new: &Arc<Snapshot>) -> Result<Prepared<'_>, XdpError> {
        let mut state = self.shared.lock();
        state.write(new)?;
        Ok(Prepared { shared: &self.shared, new: new.clone(), written: state.written })
    }

    /// Has all frames come to user space until the answer is dropped.
    #[must_use]
    pub fn watch(&self) -> Watch {
        self.shared.watch(1);
        Watch(self.shared.clone())
    }

    /// Adds the frames that the kernel forwarded to the counters of `core`. Waits until no frame is counted in part.
    pub fn count(&self, core: &Core) {
        self.shared.lock().count(core);
    }

    /// Counters of `port` now, without waiting: a frame may be counted in part.
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

    /// By port, why frames from or to it are not forwarded by the kernel; `None` where they may be.
    #[must_use]
    pub fn reasons(&self) -> Vec<Option<String>> {
        let state = self.shared.lock();
        let watched =
            (state.watchers > 0).then(|| "a trace or a mirror must see all frames".to_owned());
        let of = |(index, place): (usize, &Place)| {
            // These two follow from the configuration alone: the gate of such an output never opens.
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

    /// Stops following; the last counts are in `core` then.
    pub fn end(&mut self, core: &Core) {
        // The follower ends first: its thread counts, too.
        self.follower = None;
        self.count(core);
        self.count(core); // both banks
    }
}

/// A configuration that is in the kernel's maps and not in force yet. It holds no lock meanwhile: the worker that a
/// reload waits for may hold it, to attach a program.
pub struct Prepared<'a> {
    shared: &'a Shared,
    new: Arc<Snapshot>,
    /// [`State::written`] after the write.
    written: u64,
}

impl Prepared<'_> {
    /// Puts it in force, whole.
    pub fn commit(self) {
        let mut state = self.shared.lock();
        if state.written != self.written {
            // A trace or a mirror began or ended meanwhile, and wrote the old configuration into the same maps.
            let again = state.write(&self.new);
            state.note(again);
        }
        state.xdp.commit();
        state.snapshot = Some(self.new);
    }
}

/// Has every frame come to user space while it lives.
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
        // Before `follow` there is no configuration to rewrite: the first one takes the watchers into account.
        let Some(snapshot) = state.snapshot.clone() else { return };
        let written = state.write(&snapshot);
        if written.is_ok() {
            state.xdp.commit();
        }
        state.note(written);
    }
}

impl State {
    /// Writes the rules of `snapshot` to the bank of the maps that is not in force.
    fn write(&mut self, snapshot: &Snapshot) -> Result<(), XdpError> {
        // Counted even if the write fails: the bank may be half written then.
        self.written += 1;
        let mut ports = rules::ports(snapshot);
        for (rules, port) in ports.iter_mut().zip((0..).filter_map(PortId::new)) {
            // Without express priorities the program passes every frame to the socket.
            if self.watchers > 0 || self.blocked.contains(port) {
                rules.express_pris = 0;
            }
        }
        self.xdp.prepare(&ports, &rules::members(snapshot))
    }

    /// Has programs pass all frames of blocked inputs to the pipeline, which drops them; undoes it when they are open
    /// again.
    fn follow_blocks(&mut self, core: &Core) -> Result<(), XdpError> {
        let blocked = core.blocked();
        let Some(snapshot) = self.snapshot.clone().filter(|_| blocked != self.blocked) else {
            return Ok(());
        };
        let before = core::mem::replace(&mut self.blocked, blocked);
        let written = self.write(&snapshot);
        match written {
            Ok(()) => self.xdp.commit(),
            // The follower's next look tries again, as the sets still differ.
            Err(_) => self.blocked = before,
        }
        written
    }

    fn count(&mut self, core: &Core) {
        let turned = self.tally.turn(&mut self.xdp, &core.fast.stats);
        if turned.is_err() {
            self.note(turned);
        }
    }

    /// Keeps a refusal by the kernel for reports, until all goes well.
    fn note(&mut self, done: Result<(), XdpError>) {
        self.fault = done.err().map(|error| {
            let cause = std::error::Error::source(&error);
            cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
        });
    }

    /// Asks which interfaces take redirected frames now, and adds and removes outputs accordingly.
    fn look_at_outputs(&mut self) {
        // Asked again and again: the far end of a veth may turn NAPI off at any time, and every frame to it would be
        // lost.
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

/// Reason for an output whose frames must all be queued: some that find it empty are marked.
const MARKS_ALONE: &str = "ECN may mark a frame that finds its queue empty: ecn_threshold_low is below \
                           a longest frame";

/// Likewise, where some are dropped.
const DROPS_ALONE: &str = "WRED may drop a frame that finds its queue empty: wred_threshold_low is below \
                           a longest frame";

/// Reason for an output whose interface takes no redirected frames.
const NO_REDIRECT: &str = "the interface does not accept redirected frames (a veth does when its far \
                           end has NAPI: `ethtool -K FAR-END gro on`, or a program of its own)";
