//! A fabric in this process, with its manager.
//!
//! [`ManagedFabric::up`] of a topology: the manager brings about what the file says, hosts enumerate and map what they
//! were given.
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
use weft_fm::service::desired::{DesiredState, DesiredStateError};
use weft_fm::service::status::StartMode;
use weft_fm::service::{Fm, Setup, StartError};
use weft_fm::store::{Store, StoreError};
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

/// How long the FM waits for an answer.
const ANSWER: Span = Span::from_ms(2_000);
/// How often the FM asks whether a background operation is done.
const POLLS: u32 = 16_384;
/// The FM's session at the entry switch.
const FM: Session = Session::Fm(1);
/// How long a host that is looking already is left to that.
const LOOK: Span = Span::from_ms(2);
/// How long links have at least before the manager looks.
const PARTNERS: Span = Span::from_ms(150);
/// How long the ends of all links may take to tell each other who they are, on a machine that is busy: a fabric comes up
/// without those that have not.
const PARTNERS_MAX: Span = Span::from_ms(20_000);

/// Why a fabric does not come up.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The file is none, or says what cannot be.
    #[error(transparent)]
    File(#[from] FileError),
    /// It says what cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A part cannot be made.
    #[error(transparent)]
    Parts(#[from] InProcessError),
    /// What it wants cannot be said.
    #[error(transparent)]
    DesiredState(#[from] DesiredStateError),
    /// The manager does not bring it about.
    #[error("the fabric manager")]
    Start(#[source] Box<StartError>),
    /// What the manager knows cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A fabric without a manager would lack something from the start.
    #[error("set up the static fabric: {0}")]
    Incomplete(String),
    /// The manager knows nothing, although it has brought the fabric up.
    #[error("the fabric manager has no state of the fabric")]
    Stateless,
    /// A host is not ready.
    #[error(transparent)]
    Host(#[from] BringupError),
    /// The manager does not say who has which memory.
    #[error("the fabric manager: {0}")]
    Memory(Refused),
}

/// A fabric in this process that several threads move on.
///
/// Whoever wants it says so before it waits, so that the thread that moves it on all the time lets go.
#[derive(Clone)]
pub struct SharedFabric {
    parts: Arc<Mutex<InProcessFabric>>,
    wanted: Arc<AtomicUsize>,
}

/// How long the moving thread leaves the parts to those who want it.
const LET_GO: Duration = Duration::from_micros(50);

impl SharedFabric {
    fn new(parts: InProcessFabric) -> Self {
        Self { parts: Arc::new(Mutex::new(parts)), wanted: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, InProcessFabric> {
        self.wanted.fetch_add(1, Ordering::Relaxed); // a hint, which orders nothing
        let parts = lock(&self.parts);
        self.wanted.fetch_sub(1, Ordering::Relaxed);
        parts
    }

    /// Calls `f` with the parts, whose time stands still meanwhile.
    pub fn with<R>(&self, f: impl FnOnce(&mut InProcessFabric) -> R) -> R {
        f(&mut self.lock())
    }

    /// Gives an endpoint a command and waits for the answer.
    ///
    /// # Errors
    /// As [`InProcessFabric::ask`].
    pub fn ask(&self, part: Part, command: &Command) -> Result<Answer, Refused> {
        self.with(|parts| parts.ask(part, command))
    }

    /// Moves the parts on by a step, unless somebody else wants it; whether anything moved.
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

/// The clock of a fabric: told whether the last step moved anything.
pub type Clock = Box<dyn FnMut(bool) -> Instant + Send>;

fn lock(parts: &Mutex<InProcessFabric>) -> MutexGuard<'_, InProcessFabric> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether all switches know who is at their ports: other switches and GFDs, and how many logical devices a device has.
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

/// A way to switch `switch` as `session`.
fn way(shared: &SharedFabric, switch: usize, session: Session) -> cci::Fabric {
    let bell = (session == FM).then(|| shared.with(|parts| parts.bell()));
    let entry = Entry { shared: shared.clone(), switch, session, quick: false, bell };
    // Each poll steps the parts, so that none has to wait.
    cci::Fabric::new(Box::new(entry), RetryPolicy { polls: POLLS, ..RetryPolicy::quick() })
}

/// A switch of the parts, as a session has it.
struct Entry {
    shared: SharedFabric,
    switch: usize,
    session: Session,
    quick: bool,
    /// What wakes the manager; a host's GAE is notified of nothing by this way.
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

    /// Brings up a fabric whose switches have `fixed`, with what its manager knows of it.
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
        parts.until(PARTNERS, |_| false);
        parts.until(PARTNERS_MAX, |parts| partners_known(&topology, parts));
        let mode = topology.start;
        let shared = SharedFabric::new(parts);
        let fabric = way(&shared, 0, FM);
        let setup = Setup { fabric, desired: want, mode, take_over: false, store, drain: || {} };
        let mut up = Self { fm: Fm::new(setup), shared, topology };
        up.open_gaes();
        if mode == StartMode::Simultaneous {
            up.enumerate()?;
        }
        up.fm.start().map_err(|error| UpError::Start(Box::new(error)))?;
        up.enumerate()?;
        up.map()?;
        Ok(up)
    }

    /// Lets the FM ask hosts' GAEs, as the hosts themselves would.
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

    /// Ends the manager, and starts another one on what it kept.
    ///
    /// # Errors
    /// The file wants what cannot be said, or the new one cannot be started.
    pub fn restart_manager(&mut self, meanwhile: impl FnOnce(&Self)) -> Result<(), UpError> {
        let layout = self.parts().layout().clone();
        let want = DesiredState::parse(&desired_state(&self.topology, &layout, &|_| None))?;
        let mode = self.topology.start;
        let fabric = way(&self.shared, 0, FM);
        let setup =
            |store| Setup { fabric, desired: want, mode, take_over: false, store, drain: || {} };
        let old = std::mem::replace(&mut self.fm, Fm::new(setup(None)));
        meanwhile(self);
        self.fm.set_store(old.into_store());
        self.open_gaes();
        self.fm.start().map_err(|error| UpError::Start(Box::new(error)))
    }

    /// Brings up all hosts: they find what is below them, and map the memory that they have been given.
    ///
    /// # Errors
    /// As [`Self::map`].
    pub fn bring_up_hosts(&mut self) -> Result<(), UpError> {
        self.enumerate()?;
        self.map()
    }

    /// All parts; whoever holds them keeps time from passing.
    pub fn parts(&self) -> MutexGuard<'_, InProcessFabric> {
        self.shared.lock()
    }

    /// The parts, the manager, and what the file says.
    #[must_use]
    pub fn into_parts(self) -> (SharedFabric, Fm, Topology) {
        (self.shared, self.fm, self.topology)
    }

    /// The manager.
    pub const fn fm(&mut self) -> &mut Fm {
        &mut self.fm
    }

    /// The topology that it was made of.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Gives a command to what is called `name`.
    ///
    /// # Errors
    /// There is none, or it refuses.
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

    /// All hosts find what is below them.
    fn enumerate(&self) -> Result<(), UpError> {
        let layout = self.parts().layout().clone();
        let plan = Plan { topology: &self.topology, layout: &layout };
        self.hosts(|host| host.enumerate(plan))
    }

    /// Has all hosts map the memory that they have been given.
    ///
    /// # Errors
    /// The manager does not say what, or a host cannot.
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

/// Has a manager number, route and bind a fabric once, in this process and in virtual time: what its switches have then is
/// what they are set up with where no manager is.
///
/// # Errors
/// See [`UpError`]; also what a manager would list as errors, as nothing could repair it later.
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
