//! A fabric in this process, with its manager.
//!
//! [`ManagedFabric::up`] starts the parts; the manager brings about the wanted state of the file, and hosts enumerate
//! and map their memory.
//!
//! Source: docs/spec/cxl-fabric.md "Start-up".

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_base::eventfd::EventFd;
use weft_base::wait;
use weft_cxl::cci::Session;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_fm::cci::{self, QUICK, RetryPolicy, Transport, TransportError};
use weft_fm::service::status::StartMode;
use weft_fm::service::{Fm, Setup, StartError};
use weft_fm::state::desired::{DesiredState, DesiredStateError};
use weft_fm::state::store::{Store, StoreError};
use weft_pbr_switch::StaticInit;
use weft_pbr_switch::port::Partner;
use weft_rpc::Refused;

use super::desired_state::desired_state;
use super::direct_access::requester_ids;
use super::granted::Plan;
use super::host_bringup::{BringupError, Host, MemoryGrants};
use super::in_process::{InProcessError, InProcessFabric, virtual_clock};
use super::layout::{Layout, LayoutError, Part, Switch};
use super::static_init::StaticFabric;
use super::topology::Topology;
use super::topology_file::{self, FileError};
use crate::endpoint::{Answer, Command};

/// Time limit of the manager for one answer.
const ANSWER: Span = Span::from_ms(2_000);
/// Polls of the manager before it gives up on a background operation.
const POLLS: u32 = 16_384;
/// The manager's session at the entry switch.
const FM: Session = Session::Fm(1);
/// Pause before a busy host is asked again.
const LOOK: Span = Span::from_ms(2);
/// Least time for links to settle before the manager looks.
const PARTNERS: Span = Span::from_ms(150);
/// Longest wait for all ends of links to identify each other on a busy machine; the fabric then comes up without the
/// missing ones.
const PARTNERS_MAX: Span = Span::from_ms(20_000);

/// Reasons why a fabric does not come up.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The file cannot be read, or breaks a rule.
    #[error(transparent)]
    File(#[from] FileError),
    /// The topology breaks a rule.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A part cannot be made.
    #[error(transparent)]
    Parts(#[from] InProcessError),
    /// The manager rejects the wanted state.
    #[error(transparent)]
    DesiredState(#[from] DesiredStateError),
    /// The manager fails to bring the fabric up.
    #[error("the fabric manager")]
    Start(#[source] Box<StartError>),
    /// The manager's state cannot be saved.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A static fabric would be incomplete, without a manager to repair it later.
    #[error("set up the static fabric: {0}")]
    Incomplete(String),
    /// The manager has no state, although it brought the fabric up.
    #[error("the fabric manager has no state of the fabric")]
    Stateless,
    /// A host does not come up.
    #[error(transparent)]
    Host(#[from] BringupError),
    /// The manager does not list the memory.
    #[error("the fabric manager: {0}")]
    Memory(Refused),
}

/// A fabric in this process that several threads step. A thread that needs the parts announces that before it locks, so
/// that the thread that steps all the time lets go of the lock.
#[derive(Clone)]
pub struct SharedFabric {
    parts: Arc<Mutex<InProcessFabric>>,
    wanted: Arc<AtomicUsize>,
}

/// Pause of the stepping thread while others want the parts.
const LET_GO: Duration = Duration::from_micros(50);

impl SharedFabric {
    fn new(parts: InProcessFabric) -> Self {
        Self { parts: Arc::new(Mutex::new(parts)), wanted: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, InProcessFabric> {
        self.wanted.fetch_add(1, Ordering::Relaxed); // a hint, which orders nothing
        // Announced before the lock: a mutex alone is not fair, and the stepping thread would take it again at once.
        let parts = lock(&self.parts);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        parts
    }

    /// Calls `f` with the parts, whose time stands still meanwhile.
    pub fn with<R>(&self, f: impl FnOnce(&mut InProcessFabric) -> R) -> R {
        f(&mut self.lock())
    }

    /// Sends a command to an endpoint and waits for the answer.
    ///
    /// # Errors
    /// Like [`InProcessFabric::ask`].
    pub fn ask(&self, part: Part, command: &Command) -> Result<Answer, Refused> {
        self.with(|parts| parts.ask(part, command))
    }

    /// Steps the parts once, unless another thread wants them; true if anything moved.
    #[must_use]
    pub fn step(&self, moved: bool) -> bool {
        if self.wanted.load(Ordering::Relaxed) > 0 {
            wait::pause(LET_GO);
            return true;
        }
        lock(&self.parts).step(moved)
    }
}

/// A fabric in this process, with its manager.
pub struct ManagedFabric {
    shared: SharedFabric,
    fm: Fm,
    topology: Topology,
}

/// The clock of a fabric. Its argument tells whether the last step moved anything.
pub type Clock = Box<dyn FnMut(bool) -> Instant + Send>;

fn lock(parts: &Mutex<InProcessFabric>) -> MutexGuard<'_, InProcessFabric> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether all switches know the partners at their ports: other switches and GFDs, and the number of a device's logical
/// devices.
fn partners_known(topology: &Topology, parts: &InProcessFabric) -> bool {
    let known = |(at, switch): (usize, &Switch)| {
        let state = |port: u8| parts.agent(at)?.switch().port(PortId::new(port.into())?);
        (0_u8..).zip(&switch.ports).all(|(number, port)| match port.far.part {
            Part::Switch(_) | Part::Gfd(_) => {
                state(number).is_some_and(|port| matches!(port.partner, Partner::Pbr(_)))
            }
            Part::Device(device) => {
                let lds = topology.devices.get(device).and_then(|device| device.lds);
                lds.is_none() || state(number).is_some_and(|port| port.lds() > 0)
            }
            Part::Host(_) | Part::Hbr(_) => true,
        })
    };
    parts.layout().switches.iter().enumerate().all(known)
}

/// A transport to a switch under a session.
fn way(shared: &SharedFabric, switch: usize, session: Session) -> cci::CciSession {
    let bell = (session == FM).then(|| shared.with(|parts| parts.bell()));
    let entry = Entry { shared: shared.clone(), switch, session, quick: false, bell };
    // Each poll steps the parts, so it needs no pause.
    cci::CciSession::new(Box::new(entry), RetryPolicy { polls: POLLS, ..RetryPolicy::quick() })
}

/// One session at a switch of the parts.
struct Entry {
    shared: SharedFabric,
    switch: usize,
    session: Session,
    quick: bool,
    /// Wakes the manager; `None` for a host's GAE, which gets no notifications by this transport.
    bell: Option<Arc<EventFd>>,
}

impl Transport for Entry {
    fn call(&mut self, request: &[u8]) -> Result<Vec<u8>, TransportError> {
        let quick = Span::from_us(u64::try_from(QUICK.as_micros()).unwrap_or(u64::MAX));
        let span = if self.quick { quick } else { ANSWER };
        self.shared.with(|parts| parts.call(self.switch, self.session, request, span))
    }

    fn set_impatient(&mut self, on: bool) {
        self.quick = on;
    }

    fn event(&mut self) -> Option<Vec<u8>> {
        self.bell.as_ref()?;
        self.shared.with(|parts| parts.take_notice(self.switch))
    }

    fn readable(&self) -> Option<OwnedFd> {
        self.bell.as_ref().and_then(|bell| bell.as_fd().try_clone_to_owned().ok())
    }
}

impl ManagedFabric {
    /// Brings a topology up.
    ///
    /// # Errors
    /// See [`UpError`].
    pub fn up(text: &str, clock: Clock) -> Result<Self, UpError> {
        let (topology, layout) = topology_file::read(text)?;
        if topology.start != StartMode::Static {
            let store = Some(Store::in_memory()?);
            return Self::start(topology, layout, &[], clock, store);
        }
        let StaticFabric { switches, state } = static_fabric(&topology)?;
        let store = Store::in_memory()?;
        store.save(&state)?;
        Self::start(topology, layout, &switches, clock, Some(store))
    }

    /// Brings up a fabric whose switches have the set-up `fixed`; `store` has the manager's state.
    ///
    /// # Errors
    /// See [`UpError`].
    fn start(
        topology: Topology,
        layout: Layout,
        fixed: &[StaticInit],
        clock: Clock,
        store: Option<Store>,
    ) -> Result<Self, UpError> {
        let want = DesiredState::parse(&desired_state(&topology, &layout, &|_| None))?;
        let mut parts = InProcessFabric::new(&topology, layout, fixed, clock)?;
        // At least this long, and then until the partners are known: a manager that looks too early finds no
        // neighbours.
        parts.until(PARTNERS, |_| false);
        parts.until(PARTNERS_MAX, |parts| partners_known(&topology, parts));
        let mode = topology.start;
        let shared = SharedFabric::new(parts);
        let fabric = way(&shared, 0, FM);
        let setup = Setup { fabric, desired: want, mode, take_over: false, store, drain: || {} };
        let mut up = Self { fm: Fm::new(setup), shared, topology };
        up.open_gaes();
        // In this mode hosts come up on an empty hierarchy; bindings then arrive as hot-adds.
        if mode == StartMode::Simultaneous {
            up.enumerate()?;
        }
        up.fm.start().map_err(|error| UpError::Start(Box::new(error)))?;
        up.enumerate()?;
        up.map()?;
        Ok(up)
    }

    /// Gives the manager access to hosts' GAEs, with the hosts' own rights.
    fn open_gaes(&mut self) {
        let parts = self.shared.lock();
        let mut all = Vec::new();
        for (at, switch) in parts.layout().switches.iter().enumerate() {
            for (vcs, owner) in (0_u8..).zip(&switch.vcses) {
                if owner.usp.is_some() {
                    all.push((at, vcs, parts.layout().name(Part::Host(owner.host)).to_owned()));
                }
            }
        }
        drop(parts);
        for (at, vcs, name) in all {
            self.fm.set_gae(&name, way(&self.shared, at, Session::Host { vcs }));
        }
    }

    /// Stops the manager and starts another one on its saved state.
    ///
    /// # Errors
    /// The wanted state is rejected, or the new manager does not start.
    pub fn restart_manager(&mut self, meanwhile: impl FnOnce(&Self)) -> Result<(), UpError> {
        let layout = self.parts().layout().clone();
        let want = DesiredState::parse(&desired_state(&self.topology, &layout, &|_| None))?;
        let mode = self.topology.start;
        let fabric = way(&self.shared, 0, FM);
        let setup =
            |store| Setup { fabric, desired: want, mode, take_over: false, store, drain: || {} };
        // Without a store at first: the old manager keeps it until `meanwhile` has run.
        let old = std::mem::replace(&mut self.fm, Fm::new(setup(None)));
        meanwhile(self);
        self.fm.set_store(old.into_store());
        self.open_gaes();
        self.fm.start().map_err(|error| UpError::Start(Box::new(error)))
    }

    /// Brings up all hosts: they enumerate, and map the memory that they were given.
    ///
    /// # Errors
    /// Like [`Self::map`].
    pub fn bring_up_hosts(&mut self) -> Result<(), UpError> {
        self.enumerate()?;
        self.map()
    }

    /// All parts. Time stands still while the guard is held.
    pub fn parts(&self) -> MutexGuard<'_, InProcessFabric> {
        self.shared.lock()
    }

    /// Splits it into the parts, the manager and the topology.
    #[must_use]
    pub fn into_parts(self) -> (SharedFabric, Fm, Topology) {
        (self.shared, self.fm, self.topology)
    }

    /// The fabric manager.
    pub const fn fm(&mut self) -> &mut Fm {
        &mut self.fm
    }

    /// The topology that it was made from.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Sends a command to an endpoint.
    ///
    /// # Errors
    /// There is no such endpoint, or it refuses.
    pub fn ask(&self, part: Part, command: &Command) -> Result<Answer, Refused> {
        self.shared.ask(part, command)
    }

    /// Calls `f` for each host.
    fn hosts(&self, f: impl Fn(&Host<'_>) -> Result<(), BringupError>) -> Result<(), UpError> {
        for at in 0..self.topology.hosts.len() {
            let ask = |command: &Command| self.ask(Part::Host(at), command);
            let pause = || {
                self.parts().until(LOOK, |_| false);
            };
            f(&Host { at, ask: &ask, pause: &pause })?;
        }
        Ok(())
    }

    /// Makes all hosts enumerate.
    fn enumerate(&self) -> Result<(), UpError> {
        let layout = self.parts().layout().clone();
        let plan = Plan { topology: &self.topology, layout: &layout };
        self.hosts(|host| host.enumerate(plan))
    }

    /// Makes all hosts map the memory that they were given.
    ///
    /// # Errors
    /// The manager does not list the memory, or a host fails to map it.
    pub fn map(&mut self) -> Result<(), UpError> {
        let layout = self.parts().layout().clone();
        let fm = &mut self.fm;
        if self.topology.hosts.iter().any(|host| host.domain.is_some()) {
            fm.watch(); // hosts may have told their domains just now
        }
        let mut given = MemoryGrants::by(|request| fm.request(request)).map_err(UpError::Memory)?;
        let ask = |host: usize, command: &Command| self.ask(Part::Host(host), command);
        let plan = Plan { topology: &self.topology, layout: &layout };
        given.ids = requester_ids(plan, &given, ask);
        self.hosts(|host| host.map(plan, &given))?;
        Ok(given.all_mapped(plan)?)
    }
}

/// Lets a manager number, route and bind a fabric once, in this process and in virtual time. The resulting state of the
/// switches is the set-up of a static fabric.
///
/// # Errors
/// See [`UpError`]. Anything that a manager would only list as an error is one here, because nothing could repair it
/// later.
pub fn static_fabric(topology: &Topology) -> Result<StaticFabric, UpError> {
    let managed = Topology { start: StartMode::FmFirst, ..topology.clone() };
    let layout = Layout::new(&managed)?;
    let mut fabric = ManagedFabric::start(managed, layout, &[], virtual_clock(), None)?;
    if let Some(errors) = fabric.fm().board().status().errors.into_iter().next() {
        return Err(UpError::Incomplete(errors));
    }
    let state = fabric.fm().state().ok_or(UpError::Stateless)?;
    let parts = fabric.parts();
    let switches = (0..parts.layout().switches.len())
        .filter_map(|at| Some(StaticInit::of(parts.agent(at)?.switch())))
        .collect();
    Ok(StaticFabric { switches, state })
}
