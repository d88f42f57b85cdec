//! Service of one of several fabric managers: stands by until it leads, and again when its term ends.
//!
//! [`HaService`] has two threads: one takes part in elections and keeps the lease, the other makes the [`Fm`] of a term
//! and monitors the fabric. A [`LineHandler`] answers clients, and names the leader if that is another manager.
//!
//! Source: docs/fm.md "Several managers".

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::Value;
use weft_base::causes::with_causes;
use weft_base::threads::{self, Ends, Role};
use weft_rpc::{Answer, LineHandler, Refused, parse};

use super::address::Address;
use super::election::{Candidate, Lead};
use super::etcd::{EtcdError, Post};
use super::permit::clock;
use super::rival::{OtherGroup, Rival, Seen, term_apart};
use super::store::SharedStore;
use crate::cci::Gate;
use crate::model::lineage::Lineage;
use crate::service::board::StatusBoard;
use crate::service::pace::{Bell, Pace, Waits, Woken};
use crate::service::run::{in_json, line_of};
use crate::service::status::{Counts, HaStatus, Phase};
use crate::service::{Fm, Request, Response};
use crate::state::desired::{DesiredState, DesiredStateError, Secondary};
use crate::state::store::{Store, StoreError};

/// Number of times that etcd is asked for the leader within a lease.
const LOOKS: u32 = 15;
/// Leases that a leader may be without its entry switch, and that it then stands aside for.
const AWAY: u32 = 2;
/// A lease is renewed with this many twentieths left; it begins with 18.
const RENEWED_AT: u32 = 13;

/// Parts that the manager of a term is made from.
pub struct Term {
    /// Wanted state, with the UUIDs of the term.
    pub desired: DesiredState,
    pub store: Store,
    /// Check before each command to a component.
    pub gate: Gate,
}

/// Makes the manager of a term.
pub type Make = Box<dyn Fn(Term) -> Result<Fm, String> + Send + Sync>;

/// Configuration of one of several managers.
pub struct Setup {
    pub post: Arc<dyn Post>,
    /// Address of the shared state.
    pub address: Address,
    /// Name of the manager.
    pub name: String,
    /// Duration of its lease.
    pub ttl: Duration,
    /// Text of the wanted state; etcd's takes precedence.
    pub wanted: Option<String>,
    /// Whether `wanted` replaces that of etcd.
    pub replace: bool,
    pub make: Make,
}

/// Why a term has no manager.
#[derive(Debug, thiserror::Error)]
enum TermError {
    #[error("the store")]
    Store(#[from] StoreError),
    #[error("the wanted state that the managers share")]
    Wanted(#[from] DesiredStateError),
    #[error(
        "the wanted state has fm.secondary: with several managers the next leader is registered instead, take it out"
    )]
    Secondary,
    #[error("{0}")]
    Make(String),
}

struct Shared {
    candidate: Candidate<Arc<dyn Post>>,
    post: Arc<dyn Post>,
    address: Address,
    wanted: Option<String>,
    replace: AtomicBool,
    make: Make,
    board: Arc<StatusBoard>,
    lead: Mutex<Option<Arc<Lead>>>,
    /// A term that has ended, whose lease etcd may still keep.
    spent: Mutex<Option<Arc<Lead>>>,
    changed: Condvar,
    /// Wakes the thread that monitors the fabric.
    bell: Bell,
    manager: Mutex<Option<(Arc<Lead>, Fm)>>,
    /// When the leader lost its entry switch, and until when it stands aside; nanoseconds of [`clock`], 0 for neither.
    away: AtomicU64,
    aside: AtomicU64,
    other: OtherGroup,
    stopping: AtomicBool,
    resigning: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of several managers, with its threads. Dropping it ends them, and lets another manager lead.
pub struct HaService {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
    elector: Option<JoinHandle<()>>,
}

impl HaService {
    /// Begins to stand by; monitors the fabric every `pause` while it leads.
    ///
    /// # Errors
    /// A thread or descriptor could not be made.
    pub fn start(setup: Setup, pause: Duration) -> std::io::Result<Self> {
        let Setup { post, address, name, ttl, wanted, replace, make } = setup;
        let candidate = Candidate::new(post.clone(), address.clone(), &name, ttl, clock);
        let board = Arc::new(StatusBoard::default());
        let name = candidate.name().to_owned();
        board.set(|status| {
            status.phase = Phase::Standby;
            "looks for a leader".clone_into(&mut status.step);
            status.ha = Some(HaStatus { name, ..HaStatus::default() });
        });
        let shared = Arc::new(Shared {
            candidate,
            post,
            address,
            wanted,
            replace: AtomicBool::new(replace),
            make,
            board,
            lead: Mutex::new(None),
            spent: Mutex::new(None),
            changed: Condvar::new(),
            bell: Bell::new()?,
            manager: Mutex::new(None),
            away: AtomicU64::new(0),
            aside: AtomicU64::new(0),
            other: OtherGroup::default(),
            stopping: AtomicBool::new(false),
            resigning: AtomicBool::new(false),
        });
        let mut service = Self { shared: shared.clone(), keeper: None, elector: None };
        let (mine, asked) = (shared.clone(), shared.clone());
        let ends = Ends::when(move || asked.resigning.load(Ordering::SeqCst));
        let elector = move || mine.elect();
        service.elector = Some(threads::spawn(Role::Manager, "weft-fm-lease", ends, elector)?);
        let asked = shared.clone();
        let ends = Ends::when(move || asked.stopping.load(Ordering::SeqCst));
        let keeper = move || shared.keep(pause);
        service.keeper = Some(threads::spawn(Role::Manager, "weft-fm", ends, keeper)?);
        Ok(service)
    }

    #[must_use]
    pub fn handler(&self) -> Arc<dyn LineHandler> {
        Arc::new(ClientHandler(self.shared.clone()))
    }
}

impl Drop for HaService {
    /// Finishes the request under way, then gives the lease up.
    fn drop(&mut self) {
        for (flag, thread) in
            // The keeper first: it may still send commands, for which the lease is needed.
            [
                (&self.shared.stopping, &mut self.keeper),
                (&self.shared.resigning, &mut self.elector),
            ]
        {
            flag.store(true, Ordering::SeqCst);
            drop(locked(&self.shared.lead)); // a thread about to wait holds this lock, and has seen the flag
            self.shared.changed.notify_all();
            self.shared.bell.ring();
            if let Some(thread) = thread.take() {
                let _ = thread.join(); // a panic has been printed
            }
        }
    }
}

impl Shared {
    fn lead(&self) -> Option<Arc<Lead>> {
        locked(&self.lead).clone()
    }

    /// Waits in the election thread until something changes, at most for `span`.
    fn wait(&self, span: Duration, was: Option<u64>) {
        let lead = locked(&self.lead);
        let term = lead.as_ref().map(|lead| lead.term);
        // Checked under the lock of `lead`: a change before this is not missed.
        if term == was && !self.resigning.load(Ordering::SeqCst) {
            drop(self.changed.wait_timeout(lead, span));
        }
    }

    fn tell(&self, change: impl FnOnce(&mut HaStatus)) {
        self.board.set(|status| change(status.ha.get_or_insert_default()));
    }

    fn set_lead(&self, lead: Option<Arc<Lead>>) {
        *locked(&self.lead) = lead;
        self.changed.notify_all();
        self.bell.ring();
    }

    /// Election thread: takes part in elections, and keeps the lease of a term that was won.
    fn elect(&self) {
        while !self.resigning.load(Ordering::SeqCst) {
            let lead = self.lead();
            let outcome = match &lead {
                Some(lead) => self.hold(lead),
                None => self.stand_by(),
            };
            let said = outcome.err().map(|error| with_causes(&error));
            self.tell(|ha| ha.store_error = said);
            let looks = self.candidate.ttl() / LOOKS;
            let span = match &lead {
                Some(lead) if lead.permit.holds() => looks,
                // The term has ended: stand by without delay, so that a free fabric gets a leader soon.
                Some(_) => Duration::ZERO,
                None => looks,
            };
            self.wait(span, lead.map(|lead| lead.term));
        }
        if let Some(lead) = self.lead() {
            let _ = self.candidate.resign(&lead); // the lease ends by itself otherwise
        }
    }

    fn stand_by(&self) -> Result<(), EtcdError> {
        // The manager of an earlier term may still finish a command; until then this one does not stand.
        let is_idle = locked(&self.manager).is_none();
        // Its lease must go first, or etcd would keep the key of a leader that leads no more.
        let spent = locked(&self.spent).take_if(|_| is_idle);
        if let Some(lead) = spent
            && let Err(error) = self.candidate.resign(&lead)
        {
            *locked(&self.spent) = Some(lead);
            self.tell(|ha| ha.leader = None);
            return Err(error);
        }
        let leader = self.candidate.leader();
        let is_free = matches!(leader, Ok(None));
        // Its own term has ended, and its lease is not given back yet.
        let is_own = matches!(&leader, Ok(Some(name)) if name == self.candidate.name());
        let (known, failed) = leader.map_or_else(|error| (None, Err(error)), |name| (name, Ok(())));
        self.tell(|ha| ha.leader = known);
        failed?;
        let is_aside = clock() < self.aside.load(Ordering::SeqCst);
        // The note matters only where no manager leads, and costs two requests. While the key is its own, what it knows
        // holds: forgotten here, it would be told anew at the next look, and a client asked in between would not hear
        // of the other group.
        let rival = match (is_free, is_own) {
            (true, _) => self.candidate.rival()?,
            (false, true) => self.other.rival(),
            (false, false) => None,
        };
        let takes_over = rival.is_some() && self.other.taking_over.load(Ordering::SeqCst);
        self.show_rival(rival);
        let may_lead = rival.is_none() || takes_over;
        if !is_free || !may_lead || !is_idle || is_aside || self.stopping.load(Ordering::SeqCst) {
            return Ok(());
        }
        if let Some(lead) = self.candidate.campaign()? {
            if takes_over && let Err(error) = self.candidate.forget_rival(&lead) {
                let _ = self.candidate.resign(&lead); // the lease ends by itself otherwise
                return Err(error);
            }
            self.show_rival(None);
            let (term, name) = (lead.term, self.candidate.name().to_owned());
            self.tell(|ha| (ha.term, ha.leader) = (term, Some(name)));
            self.board.record_event(format!("this fabric manager leads, in term {term}"));
            self.away.store(0, Ordering::SeqCst);
            self.set_lead(Some(Arc::new(lead)));
        }
        Ok(())
    }

    /// Renews the lease in good time.
    fn hold(&self, lead: &Arc<Lead>) -> Result<(), EtcdError> {
        let is_due = lead.permit.left() <= self.candidate.ttl() * RENEWED_AT / 20;
        let outcome = if is_due { self.candidate.keep(lead) } else { Ok(true) };
        if !lead.permit.holds() {
            // Kept, so that its lease is revoked before this manager stands again.
            *locked(&self.spent) = Some(lead.clone());
            self.set_lead(None);
            self.tell(|ha| ha.leader = None);
            let term = lead.term;
            self.board.record_event(if lead.permit.was_unanswered() {
                format!(
                    "term {term} has ended: etcd has kept its lease, but did not confirm what was written or read: stands by \
                     until it does"
                )
            } else {
                format!("the lease of term {term} has ended: stands by")
            });
        }
        outcome.map(drop)
    }

    /// Keeper thread: makes the manager of each term, and monitors the fabric with it.
    fn keep(&self, pause: Duration) {
        let mut pace = Pace::new(pause);
        while !self.stopping.load(Ordering::SeqCst) {
            let lead = self.lead();
            let was = lead.as_ref().map(|lead| lead.term);
            self.drive(lead.filter(|lead| lead.permit.holds()));
            pace.rest(&mut InTerm { shared: self, term: was });
        }
        *locked(&self.manager) = None;
    }

    fn drive(&self, lead: Option<Arc<Lead>>) {
        let mut slot = locked(&self.manager);
        let term = lead.as_ref().map(|lead| lead.term);
        // The manager of an earlier term is dropped before the next one is made: it has the old UUIDs and gate.
        if slot.as_ref().is_some_and(|(of, _)| Some(of.term) != term) {
            *slot = None;
        }
        let Some(lead) = lead else { return self.rest() };
        if slot.is_none() {
            self.board.set(|status| status.phase = Phase::Starting);
            match self.manager(&lead) {
                Ok(fm) => *slot = Some((lead.clone(), fm.on_board(self.board.clone()))),
                Err(error) => {
                    let why = Some(with_causes(&error));
                    self.board.set(|status| (status.phase, status.failed) = (Phase::Failed, why));
                    // The failure may be this machine's alone: another manager may succeed.
                    if matches!(error, TermError::Make(_)) {
                        self.stand_aside(&lead, false);
                    }
                    return;
                }
            }
        }
        let Some((lead, fm)) = &mut *slot else { return };
        match self.board.status().phase {
            Phase::Starting | Phase::Failed => {
                if let Err(error) = fm.start() {
                    self.board.record_change(format!("start-up: {}", with_causes(&error)));
                    if let Some(later) = fm.later_term(&error) {
                        self.meet(lead, fm.has_claimed(), later);
                    }
                } else {
                    self.other.taking_over.store(false, Ordering::SeqCst);
                }
            }
            Phase::Up => fm.watch(),
            Phase::Standby => {}
        }
        let has_entry = fm.has_entry();
        self.stand_aside(lead, has_entry);
    }

    /// Leaves the lead to others when the entry switch has not answered for some time: they may have another way.
    fn stand_aside(&self, lead: &Lead, has_entry: bool) {
        let (now, span) = (clock().max(1), self.candidate.ttl() * AWAY);
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        if has_entry {
            return self.away.store(0, Ordering::SeqCst);
        }
        let since = self.away.load(Ordering::SeqCst);
        if since == 0 {
            self.away.store(now, Ordering::SeqCst);
        } else if now.saturating_sub(since) >= span {
            self.away.store(0, Ordering::SeqCst);
            self.aside.store(now.saturating_add(span), Ordering::SeqCst);
            let note = "its entry switch did not answer: the lead was left to another manager";
            self.tell(|ha| ha.note = Some(note.to_owned()));
            self.end(lead, format!("term {}: {note}", lead.term));
        }
    }

    /// Handles an entry switch that was led in a later term, unknown to etcd. If this manager had claimed the switch in
    /// its own term, another group deposed it. Otherwise etcd may have lost its data, unless the term moves while a
    /// lease passes.
    fn meet(&self, lead: &Lead, was_ours: bool, later: u64) {
        let takes_over = self.other.taking_over.load(Ordering::SeqCst);
        match self.other.looks.look(lead.term, later, clock(), self.candidate.ttl()) {
            _ if was_ours => self.give_way(lead, later),
            _ if takes_over => self.lead_later(lead, later),
            Seen::Moves => self.give_way(lead, later),
            Seen::Still => self.lead_later(lead, later),
            Seen::Waits => {}
        }
    }

    /// Leaves the fabric to another group, and tells all of this one. It is repeated if etcd does not answer.
    fn give_way(&self, lead: &Lead, later: u64) {
        let rival = Rival { term: later };
        match self.candidate.note_rival(lead, rival) {
            Ok(()) => {
                self.other.taking_over.store(false, Ordering::SeqCst);
                self.show_rival(Some(rival));
                self.end(lead, format!("term {} ends: {rival}", lead.term));
            }
            Err(EtcdError::Deposed) => {
                let term = lead.term;
                self.end(
                    lead,
                    format!("term {term} ends: it is no more that of the leader in etcd"),
                );
            }
            Err(error) => {
                let said = with_causes(&error);
                self.board
                    .record_change(format!("another group leads, and etcd was not told: {said}"));
            }
        }
    }

    /// Reports, where this manager stands by, that another group leads, or no longer does.
    fn show_rival(&self, rival: Option<Rival>) {
        let is_new = self.other.know(rival);
        if let Some(rival) = rival.filter(|_| is_new) {
            self.board.record_change(format!("stands by: {rival}"));
        }
    }

    /// Ends a term because there was a later one, which etcd has lost; the next term comes after that.
    fn lead_later(&self, lead: &Lead, later: u64) {
        self.candidate.has_seen(term_apart(later));
        let term = lead.term;
        self.end(
            lead,
            format!(
                "the entry switch was led in term {later}, which etcd has lost: term {term} ends, and a later one begins"
            ),
        );
    }

    /// Ends a term; `why` becomes an event.
    fn end(&self, lead: &Lead, why: String) {
        self.board.record_event(why);
        lead.permit.end();
        // Wakes the election thread, which records the end and stands by.
        self.changed.notify_all();
    }

    /// Reports that this manager stands by.
    fn rest(&self) {
        self.board.set(|status| {
            status.phase = Phase::Standby;
            "stands by".clone_into(&mut status.step);
            (status.counts, status.failed) = (Counts::default(), None);
            status.errors = self.other.rival().iter().map(ToString::to_string).collect();
        });
    }

    /// Makes the manager of a term.
    fn manager(&self, lead: &Arc<Lead>) -> Result<Fm, TermError> {
        let shared = SharedStore::new(self.post.clone(), self.address.clone(), lead.clone());
        let store = Store::on(shared);
        let kept = store.load_wanted()?;
        let differs = |own: &&String| kept.as_ref() != Some(own);
        let new = self.wanted.as_ref().filter(differs);
        let replaces = kept.is_none() || self.replace.load(Ordering::SeqCst);
        let note = match new {
            Some(own) if replaces => {
                store.save_wanted(own)?;
                if kept.is_some() {
                    let text = "the file of --want has replaced the wanted state in etcd";
                    self.board.record_event(text);
                }
                None
            }
            Some(_) => Some(
                "the file of --want is not used: etcd has another wanted state, which --replace-want replaces",
            ),
            None => None,
        };
        // Once for each process: a later term must not undo what another manager has put there since.
        self.replace.store(false, Ordering::SeqCst);
        self.tell(|ha| ha.note = note.map(str::to_owned));
        let own = self.wanted.as_ref().filter(|_| replaces);
        let text = own.or(kept.as_ref()).map_or("", String::as_str);
        let mut desired = DesiredState::parse(text)?;
        desired.fm.entry_serial = store.load_entry()?;
        if desired.fm.secondary.is_some() {
            // The secondary manager at components is the next term; another one could not be registered.
            return Err(TermError::Secondary);
        }
        let manager = desired.manager();
        let lineage = Lineage { base: manager.uuid, term: lead.term };
        desired.fm.uuid = Some(lineage.now());
        desired.fm.secondary = Some(Secondary { uuid: lineage.next(), pid: manager.pid });
        desired.fm.lineage = Some(lineage);
        let asked = lead.clone();
        let gate = Gate(Arc::new(move || asked.permit.holds()));
        (self.make)(Term { desired, store, gate }).map_err(TermError::Make)
    }

    /// Refusal that names the leader.
    fn elsewhere(&self) -> Refused {
        let leader = self.board.status().ha.and_then(|ha| ha.leader);
        let leader = leader.filter(|name| name != self.candidate.name());
        if let (None, Some(rival)) = (&leader, self.other.rival()) {
            return Refused::unavailable(format!("this fabric manager stands by: {rival}"));
        }
        Refused::unavailable(match leader {
            Some(leader) => format!("this fabric manager stands by; {leader:?} leads"),
            None => "this fabric manager stands by, and none leads now".to_owned(),
        })
    }

    /// Takes the fabric over from another group, at the next look.
    fn take_over(&self) -> Vec<String> {
        self.other.taking_over.store(true, Ordering::SeqCst);
        self.board.record_event("a client lets this fabric manager take over from another group");
        self.changed.notify_all();
        vec!["stands for election, and takes the fabric over from the other group".to_owned()]
    }

    fn request(&self, request: &Request) -> Result<Response, Refused> {
        let mut slot = locked(&self.manager);
        let Some((lead, fm)) = slot.as_mut().filter(|(lead, _)| lead.permit.holds()) else {
            return Err(self.elsewhere());
        };
        let outcome = fm.request(request);
        // A change that has succeeded is reported even if the term ended meanwhile; a query may be outdated by then.
        match outcome {
            Ok(response) if lead.permit.holds() || !request.is_read_only() => Ok(response),
            Err(refused) if lead.permit.holds() => Err(refused),
            Ok(_) => Err(self.elsewhere()),
            Err(Refused { message, .. }) => Err(Refused::unavailable(format!(
                "this fabric manager led until its term ended; what it had begun is finished or undone by the next one: \
                 {message}"
            ))),
        }
    }
}

/// The keeper thread between two looks of a term.
struct InTerm<'a> {
    shared: &'a Shared,
    term: Option<u64>,
}

impl Waits for InTerm<'_> {
    fn wait(&mut self, span: Duration, listens: bool) -> Woken {
        let Self { shared, term } = self;
        shared.bell.set(span);
        loop {
            // A change of term ends the rest at once: the new term's manager must be made.
            let now = shared.lead().map(|lead| lead.term);
            if now != *term || shared.stopping.load(Ordering::SeqCst) {
                return Woken::Stop;
            }
            let mut readable = None;
            if let Some((_, fm)) = locked(&shared.manager).as_mut().filter(|_| listens) {
                let ControlFlow::Continue(until) = fm.look_out() else { return Woken::Notified };
                readable = until;
            }
            if shared.bell.wait(readable.as_ref().map(AsFd::as_fd)) {
                return Woken::Time;
            }
        }
    }
}

struct ClientHandler(Arc<Shared>);

impl ClientHandler {
    fn dispatch(&self, line: &[u8]) -> Result<Value, Refused> {
        let request: Request = parse(line)?;
        let status = self.0.board.status();
        let response = match &request {
            Request::Status => Response::Status(status),
            Request::Events { after } => Response::Events(self.0.board.events(*after)),
            Request::TakeOver if self.0.other.rival().is_some() => {
                Response::Done(self.0.take_over())
            }
            // `status` and `events` are answered at any time; all else only by the leader.
            _ if status.phase == Phase::Standby => return Err(self.0.elsewhere()),
            Request::TakeOver => {
                return Err(Refused::because(
                    "the fabric managers elect who leads: end this one, and another one takes over",
                ));
            }
            _ if status.phase == Phase::Starting => {
                let step = status.step;
                return Err(Refused::unavailable(format!("start-up is in progress: {step}")));
            }
            _ => {
                let response = self.0.request(&request);
                self.0.bell.ring(); // a notification may have come with the answers to it
                response?
            }
        };
        in_json(&response)
    }
}

impl LineHandler for ClientHandler {
    fn answer(&self, line: &[u8]) -> Answer {
        line_of(self.dispatch(line))
    }
}
