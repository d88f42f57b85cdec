//! The fabric manager as a service: one request at a time, and a look at the fabric in between.
//!
//! [`Fm`] owns the connection to the fabric and its knowledge of it; it answers a [`Request`] with a [`Response`].
//! [`Fm::start`] brings the fabric up, [`Fm::watch`] monitors it. [`run::Service`] has the threads and clients.
//!
//! A refused request has changed nothing, or the refusal says what is left. Changes are stored before they are
//! answered.
//!
//! Source: docs/spec/cxl-fabric.md "Start-up"; CXL 3.1 section 7.7.12.

mod access;
mod assign;
mod bind_by_name;
mod bindings;
pub mod board;
mod foreign;
mod gfd_notices;
mod gim;
pub mod ha;
mod journal;
pub mod ld_request;
mod lds;
mod listen;
mod named_answers;
mod news;
mod overview;
mod p2p;
pub(crate) mod pace;
mod partitions;
mod pid_mismatch;
mod query;
pub mod reconcile;
pub mod request;
mod restore;
pub mod run;
mod start;
pub mod status;
mod traffic;
mod unfinished;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_base::causes::with_causes;
use weft_parsers::cci::Uuid;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::fabric::{Hpa, Pid};
use weft_rpc::Refused;

use self::board::StatusBoard;
use self::journal::Journal;
pub use self::request::{Request, Response, Vector};
pub use self::start::StartError;
use self::status::{Counts, StartMode, Status};
use super::cci::{CciSession, Way};
use super::plan;
use crate::components::bind::Bridge;
use crate::components::edge::AccessBit;
use crate::components::grants::Grants;
use crate::components::media::Dmp;
use crate::discover::change::Running;
use crate::model::inventory::Inventory;
use crate::model::text::{bytes, parse_pid};
use crate::show::display_names::DisplayNames;
use crate::show::trace::{Edge, TraceContext, Via, trace};
use crate::state::desired::DesiredState;
use crate::state::names::{self, Names, Requester, way};
use crate::state::store::{State, Store, StoreError};

/// Configuration of a fabric manager.
pub struct Setup {
    /// Connection to the entry switch.
    pub fabric: CciSession,
    pub desired: DesiredState,
    pub mode: StartMode,
    /// Whether this one, as the secondary manager, takes over.
    pub take_over: bool,
    /// Store of the state; `None` if nothing is kept.
    pub store: Option<Store>,
    /// Waits until packets on old routes have left the fabric.
    pub drain: fn(),
}

/// The fabric manager: its knowledge of the fabric, and the connection to it.
pub struct Fm {
    fabric: CciSession,
    /// Sessions with hosts' GAEs, by the host's name.
    gaes: BTreeMap<String, CciSession>,
    desired: DesiredState,
    mode: StartMode,
    take_over: bool,
    options: plan::Options,
    running: Option<Running>,
    grants: Grants,
    /// Media partitions of GFDs, as read last.
    partitions: BTreeMap<Pid, Vec<Dmp>>,
    /// Path costs told to edges, by the bit that opens the path.
    told_costs: BTreeMap<AccessBit, PathCost>,
    /// Path costs told to the lower ends of virtual links.
    told_links: BTreeMap<Bridge, PathCost>,
    /// Components claimed anew, whose settings may not be restored yet.
    fresh: BTreeSet<Pid>,
    journal: Journal,
    board: Arc<StatusBoard>,
    errors: Vec<String>,
    monitor: watch::Monitor,
    /// Whether the entry switch left the last request unanswered.
    entry_silent: bool,
    /// Whether the entry switch has ever belonged to this manager.
    has_claimed: bool,
    /// Components that belonged to another manager in the last discovery, with that manager.
    owned: BTreeMap<Uuid, Uuid>,
    drain: fn(),
}

/// Result of a change.
enum Done {
    /// Lines for the answer and for events.
    Said(Vec<String>),
    /// An answer, with nothing to store.
    Answer(Box<Response>),
}

fn refuse(error: impl std::error::Error) -> Refused {
    Refused::because(with_causes(&error))
}

impl Fm {
    /// A manager that has not started yet.
    #[must_use]
    pub fn new(setup: Setup) -> Self {
        let Setup { fabric, desired, mode, take_over, store, drain } = setup;
        let board = Arc::new(StatusBoard::default());
        let manager = desired.manager();
        board.set(|status| {
            status.mode = mode;
            status.hosts_held = mode == StartMode::FmFirst;
            status.manager = crate::model::text::UuidText(manager.uuid).to_string();
            status.pid = manager.pid.bits();
        });
        Self {
            fabric,
            gaes: BTreeMap::new(),
            desired,
            mode,
            take_over,
            options: plan::Options::default(),
            running: None,
            grants: Grants::default(),
            partitions: BTreeMap::new(),
            told_costs: BTreeMap::new(),
            told_links: BTreeMap::new(),
            fresh: BTreeSet::new(),
            journal: Journal::new(store),
            board,
            errors: Vec::new(),
            monitor: watch::Monitor::default(),
            entry_silent: false,
            has_claimed: false,
            owned: BTreeMap::new(),
            drain,
        }
    }

    /// Makes it report on an existing board.
    #[must_use]
    pub fn on_board(self, board: Arc<StatusBoard>) -> Self {
        let now = self.board.status();
        board.set(|status| {
            // The board's own counts go on: a manager of a new term must not repeat event numbers.
            let (events, ha) = (status.events, status.ha.take());
            *status = Status { events, ha, ..now };
        });
        Self { board, ..self }
    }

    /// Adds a session with the GAE of a host.
    pub fn set_gae(&mut self, host: &str, gae: CciSession) {
        self.gaes.insert(host.to_owned(), gae);
    }

    /// The board with status and events, for other threads.
    #[must_use]
    pub fn board(&self) -> Arc<StatusBoard> {
        self.board.clone()
    }

    /// All that is known of the fabric, once it is up.
    #[must_use]
    pub fn state(&self) -> Option<State> {
        let running = self.running.as_ref()?;
        let (inventory, bindings) = (running.inventory.clone(), running.bindings.clone());
        Some(State { inventory, bindings, grants: self.grants.clone() })
    }

    /// Updates status and names on the board.
    fn show(&self) {
        let (mut errors, calls) = (self.errors.clone(), self.fabric.calls());
        errors.extend(self.ongoing_problems());
        errors.extend(self.monitor.errors());
        let counts = self.running.as_ref().map_or_else(Counts::default, |running| {
            let Inventory { switches, gfds, links, down, .. } = &running.inventory;
            Counts {
                switches: switches.len(),
                silent: switches.iter().filter(|switch| !switch.whole).count(),
                gfds: gfds.len(),
                hosts: names::hosts(&running.inventory).len(),
                links: links.len(),
                down: down.len(),
                bindings: running.bindings.local.len() + running.bindings.remote.len(),
                shares: self.grants.memory.shares.len(),
            }
        });
        self.board.name(self.called());
        self.board
            .set(|status| (status.errors, status.calls, status.counts) = (errors, calls, counts));
    }

    /// Names of the components.
    fn called(&self) -> DisplayNames {
        let running = self.running.as_ref();
        running.map_or_else(DisplayNames::default, |it| {
            DisplayNames::new(&self.desired, &it.inventory)
        })
    }

    fn save(&mut self) -> Result<(), StoreError> {
        let (Some(running), Some(state)) = (&self.running, self.state()) else { return Ok(()) };
        self.journal.save(&state, &running.plan.home)
    }

    /// Sets the store, before the manager starts.
    pub fn set_store(&mut self, store: Option<Store>) {
        self.journal.set_store(store);
    }

    /// Ends the manager, and returns its store for the next one.
    #[must_use]
    pub fn into_store(self) -> Option<Store> {
        self.journal.into_store()
    }

    fn up(&self) -> Result<&Running, Refused> {
        self.running.as_ref().ok_or_else(|| Refused::unavailable("the fabric is not up"))
    }

    fn names<T>(&self, of: impl FnOnce(Names<'_>) -> Result<T, String>) -> Result<T, Refused> {
        let names = Names::new(&self.desired, self.up()?);
        of(names).map_err(Refused::bad_request)
    }

    /// Carries out a request.
    ///
    /// # Errors
    /// The reason. Nothing has changed then, or the text says what is left.
    pub fn request(&mut self, request: &Request) -> Result<Response, Refused> {
        if self.mode == StartMode::Static && !request.is_read_only() {
            return Err(Refused::because(
                "the fabric is static: its switches have their tables from files",
            ));
        }
        let answer = match request {
            // A bridge has slashes in its name, a host none.
            Request::Bind { bridge, to } if !bridge.contains('/') => self.bind_by_name(bridge, to),
            _ if request.is_read_only() => self.query(request),
            _ => self.change(request),
        };
        self.show();
        // Put in here, once for all: plans and errors call switches by number.
        let called = self.called();
        let refused =
            |refused: Refused| Refused { message: called.with_names(&refused.message), ..refused };
        answer.map(|answer| called.answer(answer)).map_err(refused)
    }

    fn change(&mut self, request: &Request) -> Result<Response, Refused> {
        // Stored before the first step, so that the next manager can finish or undo it.
        self.journal.begin(request)?;
        let said = match self.carry_out(request) {
            Ok(Done::Said(said)) => said,
            Ok(Done::Answer(answer)) => return Ok(*answer),
            Err(refused) => return Err(self.journal.abandon(request, refused)),
        };
        for line in &said {
            self.board.record_event(line.clone());
        }
        // Before the answer: a client that was told "done" must find it done after a restart, too.
        self.save().map_err(|error| {
            Refused::because(format!(
                "the request was carried out, but could not be saved in the store: {}",
                with_causes(&error)
            ))
        })?;
        Ok(Response::Done(said))
    }

    fn carry_out(&mut self, request: &Request) -> Result<Done, Refused> {
        Ok(Done::Said(match request {
            Request::Cci { to, message } => {
                return self.cci(to, message).map(|answer| Done::Answer(Box::new(answer)));
            }
            Request::Discover => {
                self.up()?;
                self.rediscover().map_err(refuse)?;
                vec![format!("found {}", self.counted())]
            }
            Request::TakeOver => {
                self.take_over = true;
                self.start().map_err(refuse)?;
                vec![format!("took over {}", self.counted())]
            }
            Request::Bind { bridge, to } => {
                let binding = self.binding(bridge, to)?;
                let place = self.names(|names| names.bridge(bridge))?;
                self.bind(binding).map_err(refuse)?;
                let mut said = vec![format!("{bridge} shows {to}")];
                said.extend(self.reached_by_devices(place));
                said
            }
            Request::Unbind { bridge } => {
                let place = self.names(|names| names.bridge(bridge))?;
                self.unbind(place).map_err(refuse)?;
                vec![format!("{bridge} shows nothing")]
            }
            Request::ControlPort { port, reset } => vec![self.control_port(port, *reset)?],
            Request::GenerateAer { bridge, error, tlp } => {
                vec![self.generate_aer(bridge, error, tlp.as_deref())?]
            }
            Request::SetLd { device, ld, change } => {
                vec![self.set_ld(device, *ld, *change)?]
            }
            Request::SetLdCapacity { device, ld, change } => {
                vec![self.set_ld_capacity(device, *ld, change)?]
            }
            Request::SetAccess { host, vector, pid, on } => {
                vec![self.set_access(host, *vector, pid, *on)?]
            }
            Request::Assign { switch, target, instance, pid } => {
                let at = self.names(|names| names.switch(switch))?;
                let pid = pid.as_deref().map(parse_pid).transpose();
                let pid = pid.map_err(Refused::bad_request)?;
                vec![self.assign(at, *target, *instance, pid)?]
            }
            // Release, revoke and grant are requests of P2P or of memory by the kind of the name they have.
            request if self.is_p2p(request) => self.p2p_request(request)?,
            request => self.change_memory(request)?,
        }))
    }

    /// The tag of existing memory.
    fn tag_of(&self, name: &str) -> Result<Uuid, Refused> {
        self.up()?;
        let found = self.grants.tag_of(name);
        found.ok_or_else(|| Refused::because(format!("there is no memory {name:?}")))
    }

    fn cci(&mut self, to: &str, message: &str) -> Result<Response, Refused> {
        let way = way(to).map_err(Refused::bad_request)?;
        let way = self.of_entry(way);
        let bytes = bytes(message).map_err(Refused::bad_request)?;
        weft_parsers::cci::Header::cut(&bytes)
            .map_err(|error| Refused::bad_request(format!("expected a CCI message: {error}")))?;
        query::cci_answer(self.fabric.raw(way, &bytes)).map(Response::Cci)
    }

    /// Replaces the entry switch's own PID by the direct way: a switch refuses a Fabric Crawl Out to its own PID.
    fn of_entry(&self, way: Way) -> Way {
        let entry = self.running.as_ref().and_then(|running| running.inventory.switches.first());
        let is_entry = |pid: Pid| entry.is_some_and(|entry| entry.pid == pid);
        match way {
            Way::Pid(pid) if is_entry(pid) => Way::Entry,
            Way::Behind(pid, port) if is_entry(pid) => Way::Port(port),
            way => way,
        }
    }

    fn trace_of(&mut self, host: &str, hpa: u64, via: Via) -> Result<Response, Refused> {
        let (from, gae, edges, lds) = self.names(|names| {
            let from = names.requester(host)?;
            let gae = |one: Requester| names.gae(one.edge).map(str::to_owned);
            let host = |one: Requester| {
                let at = names.virtual_hierarchy(one.edge)?;
                let host = names.hosts().into_iter().find(|it| (it.switch, it.vcs) == at)?;
                Some(host.pid)
            };
            let all = names::requesters(names.inventory, names.bindings).into_iter();
            let edge = |at| Edge { at, gae: gae(at), host: host(at) };
            let lds = names::logical_devices(names.inventory, names.bindings).into_iter();
            let lds = lds.map(|(at, ld)| (edge(at), ld)).collect();
            Ok((from, gae(from), all.map(edge).collect(), lds))
        })?;
        let Some(running) = &self.running else { return Err(Refused::unavailable("not up")) };
        let (fabric, inventory) = (&mut self.fabric, &running.inventory);
        let Grants { memory, gim, p2p, .. } = &self.grants;
        let (edge, vppb) = (from.edge, from.vppb);
        if via == Via::CxlMem && vppb > 0 {
            let text = format!("{host} is a device: only hosts load and store by CXL.mem");
            return Err(Refused::bad_request(text));
        }
        let gaes = self.gaes.iter_mut().map(|(name, gae)| (name.clone(), gae)).collect();
        let asked =
            TraceContext { fabric, gaes, gae, edges, lds, vppb, inventory, memory, gim, p2p };
        Ok(Response::Trace(trace(asked, edge, Hpa(hpa), via)))
    }
}

/// Cost of an unknown path.
const NO_COST: PathCost = PathCost { latency_base: 0, latency: 0, bandwidth_base: 0, bandwidth: 0 };
