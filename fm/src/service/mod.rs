//! The fabric manager as a service: one request at a time, and a look at the fabric in between.
//!
//! [`Fm`] owns the connection to the fabric and its knowledge of it; it answers a [`Request`] with a [`Response`].
//! [`Fm::start`] brings the fabric up, [`Fm::watch`] monitors it. [`run::Service`] has the threads and clients.
//!
//! | part of it | has |
//! |---|---|
//! | `Session` | connections to the entry switch and to hosts |
//! | [`Running`] | what was discovered, routes, bindings; present once the fabric is up |
//! | [`Grants`] | memory of all kinds, and access bits set by command |
//! | `Partitions`, `PathCosts` | what GFDs were last read to have, and what edges were last told |
//! | `Journal` | the store, and a change that was begun |
//! | `Monitor` | what was found by earlier looks, so that nothing is reported twice |
//! | [`StatusBoard`] | status and events, for other threads |
//!
//! `BindingRequests`, `LdRequests`, `MemoryRequests`, `Query`, `Restoration` and `Settlement` borrow those parts of a
//! fabric that is up that their subject needs.
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
mod costs;
mod foreign;
mod gfd_notices;
mod gim;
pub mod ha;
mod journal;
pub mod ld_request;
mod lds;
mod listen;
mod memory;
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
mod session;
mod start;
pub mod status;
mod traffic;
mod unfinished;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weft_base::causes::with_causes;
use weft_parsers::fabric::Pid;
use weft_rpc::Refused;

use self::bindings::{BindingRequests, reached_by_devices};
use self::board::StatusBoard;
use self::costs::PathCosts;
use self::journal::Journal;
use self::lds::LdRequests;
use self::memory::MemoryRequests;
use self::partitions::Partitions;
use self::query::Query;
pub use self::request::{Request, Response, Vector};
use self::restore::ForeignOwners;
use self::session::Session;
pub use self::start::StartError;
use self::status::{Counts, StartMode, Status};
use self::watch::Monitor;
use super::cci::CciSession;
use super::plan;
use crate::components::bind::BindError;
use crate::components::grants::Grants;
use crate::discover::change::Running;
use crate::model::inventory::{Inventory, Target, TargetKind};
use crate::model::text::parse_pid;
use crate::show::display_names::DisplayNames;
use crate::state::desired::DesiredState;
use crate::state::names::{self, Binding, Names};
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
    session: Session,
    desired: DesiredState,
    mode: StartMode,
    take_over: bool,
    options: plan::Options,
    /// The fabric, once it is up.
    running: Option<Running>,
    grants: Grants,
    partitions: Partitions,
    costs: PathCosts,
    /// Components claimed anew, whose settings may not be restored yet.
    fresh: BTreeSet<Pid>,
    owners: ForeignOwners,
    journal: Journal,
    board: Arc<StatusBoard>,
    /// Problems found by the last discovery and since.
    errors: Vec<String>,
    monitor: Monitor,
    /// Whether the entry switch left the last request unanswered.
    entry_silent: bool,
    /// Whether the entry switch has ever belonged to this manager.
    has_claimed: bool,
}

/// Result of a change.
enum Done {
    /// Lines for the answer and for events.
    Said(Vec<String>),
    /// An answer, with nothing to store.
    Answer(Box<Response>),
}

fn not_up() -> Refused {
    Refused::unavailable("the fabric is not up")
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
            session: Session { cci: fabric, gaes: BTreeMap::new(), drain },
            desired,
            mode,
            take_over,
            options: plan::Options::default(),
            running: None,
            grants: Grants::default(),
            partitions: Partitions::default(),
            costs: PathCosts::default(),
            fresh: BTreeSet::new(),
            owners: ForeignOwners::default(),
            journal: Journal::new(store),
            board,
            errors: Vec::new(),
            monitor: Monitor::default(),
            entry_silent: false,
            has_claimed: false,
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
        self.session.gaes.insert(host.to_owned(), gae);
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
        let (mut errors, calls) = (self.errors.clone(), self.session.cci.calls());
        let running = self.running.as_ref();
        errors.extend(running.iter().flat_map(|running| self.owners.ongoing_problems(running)));
        errors.extend(self.monitor.errors());
        let counts = running.map_or_else(Counts::default, |running| {
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
        self.running.as_ref().ok_or_else(not_up)
    }

    /// Requests about bridges, once the fabric is up.
    fn binding_requests(&mut self) -> Result<BindingRequests<'_>, Refused> {
        let running = self.running.as_mut().ok_or_else(not_up)?;
        Ok(BindingRequests { cci: &mut self.session.cci, desired: &self.desired, running })
    }

    /// Requests about logical devices, once the fabric is up.
    fn ld_requests(&mut self) -> Result<LdRequests<'_>, Refused> {
        let running = self.running.as_mut().ok_or_else(not_up)?;
        let (cci, desired) = (&mut self.session.cci, &self.desired);
        Ok(LdRequests { cci, desired, running, board: &self.board })
    }

    /// Requests about memory, once the fabric is up.
    fn memory_requests(&mut self) -> Result<MemoryRequests<'_>, Refused> {
        let running = self.running.as_mut().ok_or_else(not_up)?;
        Ok(MemoryRequests {
            cci: &mut self.session.cci,
            desired: &self.desired,
            running,
            grants: &mut self.grants,
            costs: &mut self.costs,
            partitions: &self.partitions,
            board: &self.board,
            errors: &mut self.errors,
        })
    }

    /// Answers a query; status and events are known before the fabric is up.
    fn query(&mut self, request: &Request) -> Result<Response, Refused> {
        match request {
            Request::Status => return Ok(Response::Status(self.board.status())),
            Request::Events { after } => return Ok(Response::Events(self.board.events(*after))),
            _ => {}
        }
        let running = self.running.as_mut().ok_or_else(not_up)?;
        let mut query = Query {
            cci: &mut self.session.cci,
            gaes: &mut self.session.gaes,
            desired: &self.desired,
            running,
            grants: &self.grants,
            partitions: &self.partitions,
            traffic: &self.monitor.traffic,
            board: &self.board,
            is_static: self.mode == StartMode::Static,
        };
        query.answer(request)
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
                let inventory = self.running.as_ref().map(|running| &running.inventory);
                let answer = self.session.send_raw(inventory, to, message)?;
                return Ok(Done::Answer(Box::new(Response::Cci(answer))));
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
                self.binding_requests()?.bind(binding).map_err(refuse)?;
                let mut said = vec![format!("{bridge} shows {to}")];
                if let Some(running) = &self.running {
                    said.extend(reached_by_devices(&self.desired, running, &self.grants, place));
                }
                said
            }
            Request::Unbind { bridge } => {
                let place = self.names(|names| names.bridge(bridge))?;
                self.binding_requests()?.unbind(place).map_err(refuse)?;
                vec![format!("{bridge} shows nothing")]
            }
            Request::ControlPort { port, reset } => {
                vec![self.binding_requests()?.control_port(port, *reset)?]
            }
            Request::GenerateAer { bridge, error, tlp } => {
                vec![self.binding_requests()?.generate_aer(bridge, error, tlp.as_deref())?]
            }
            Request::SetLd { device, ld, change } => {
                vec![self.ld_requests()?.set(device, *ld, *change)?]
            }
            Request::SetLdCapacity { device, ld, change } => {
                vec![self.ld_requests()?.set_capacity(device, *ld, change)?]
            }
            Request::SetAccess { host, vector, pid, on } => {
                vec![self.memory_requests()?.set_access(host, *vector, pid, *on)?]
            }
            Request::Assign { switch, target, instance, pid } => {
                let at = self.names(|names| names.switch(switch))?;
                let pid = pid.as_deref().map(parse_pid).transpose();
                let pid = pid.map_err(Refused::bad_request)?;
                vec![self.assign(at, *target, *instance, pid)?]
            }
            request => self.memory_requests()?.change(request)?,
        }))
    }

    /// The binding that a command asks for. If the switch below has no PID left for another virtual link, a fabric port
    /// without one gets it.
    fn binding(&mut self, bridge: &str, to: &str) -> Result<Binding, Refused> {
        let binding = self.names(|names| names.binding(bridge, to))?;
        let Binding::Remote(link) = binding else { return Ok(binding) };
        let Running { inventory, bindings, .. } = self.up()?;
        let below = link.below.bridge.switch;
        let free = |target: &&Target| target.kind == TargetKind::Fabric && target.pid.is_none();
        let free = inventory.targets(below).iter().find(free).map(|t| (t.id, t.instance));
        let checked = bindings.check_remote(inventory, &link);
        // A new PID takes an entry in the tables of all switches, so it is assigned only where a link needs it.
        let (Err(BindError::PidsTaken { .. }), Some((target, instance))) = (checked, free) else {
            return Ok(binding); // what is wrong with it is said when it is made
        };
        let text = self.assign(below, target, instance, None)?;
        self.board.record_event(text);
        self.names(|names| names.binding(bridge, to))
    }

    /// Shows a host a device. Each step is a change of its own; if one fails, those before it are undone.
    fn bind_by_name(&mut self, host: &str, device: &str) -> Result<Response, Refused> {
        let steps = self.names(|names| names.steps(host, device))?;
        let mut said = Vec::new();
        for (done, step) in steps.iter().enumerate() {
            let request = Request::Bind { bridge: step.bridge.clone(), to: step.to.clone() };
            match self.change(&request) {
                Ok(Response::Done(lines)) => said.extend(lines),
                Ok(_) => {}
                Err(refused) => {
                    let mut left = Vec::new();
                    // In reverse order, so that the host's own bridge goes before the device behind it.
                    for step in steps.iter().take(done).rev() {
                        let back = Request::Unbind { bridge: step.bridge.clone() };
                        if let Err(why) = self.change(&back) {
                            left.push(format!(
                                "; {} still shows {device}: {}",
                                step.bridge, why.message
                            ));
                        }
                    }
                    let message = refused.message + &left.concat();
                    return Err(Refused { message, ..refused });
                }
            }
        }
        Ok(Response::Done(said))
    }
}
