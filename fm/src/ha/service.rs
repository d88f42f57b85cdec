//! One of several fabric managers: stands by until it leads, and again when it does no more.
//!
//! [`HaService`] has a thread that takes part in elections and keeps the lease, and one that makes the [`Fm`] of a term
//! and looks after the fabric; [`LineHandler`] answers clients, and names the leader where that is another one.
//!
//! Units: as [`Duration`] says.
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
use super::identity::Lineage;
use super::permit::clock;
use super::rival::{OtherGroup, Rival, Seen, term_apart};
use super::store::SharedStore;
use crate::cci::Gate;
use crate::service::board::StatusBoard;
use crate::service::desired::{DesiredState, DesiredStateError, Secondary};
use crate::service::pace::{Bell, Pace, Waits, Woken};
use crate::service::run::{in_json, line_of};
use crate::service::status::{Counts, HaStatus, Phase};
use crate::service::{Fm, Request, Response};
use crate::store::{Store, StoreError};

/// Looks for a leader, in the time of a lease.
const LOOKS: u32 = 15;
/// Times of a lease that a leader may be without its entry switch, and that it leaves to others then.
const AWAY: u32 = 2;
/// Twentieths of a lease that are left when it is renewed; at its beginning 18 are.
const RENEWED_AT: u32 = 13;

/// What the manager of a term is made from.
pub struct Term {
    /// What is wanted, with the UUIDs of the term.
    pub desired: DesiredState,
    /// The state that is shared.
    pub store: Store,
    /// What each way to a component has to ask before it sends.
    pub gate: Gate,
}

/// Makes the manager of a term.
pub type Make = Box<dyn Fn(Term) -> Result<Fm, String> + Send + Sync>;

/// How one of several managers is set up.
pub struct Setup {
    /// The way to etcd.
    pub post: Arc<dyn Post>,
    /// Where what is shared is.
    pub address: Address,
    /// What the manager is called.
    pub name: String,
    /// How long its lease lasts.
    pub ttl: Duration,
    /// The text of the wanted state; that of etcd where there is one.
    pub wanted: Option<String>,
    /// It replaces that of etcd.
    pub replace: bool,
    /// Makes the manager of a term.
    pub make: Make,
}

/// Why there is no manager in a term.
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
    /// A term that has ended, and whose lease etcd may keep for others still.
    spent: Mutex<Option<Arc<Lead>>>,
    changed: Condvar,
    /// Wakes who looks after the fabric.
    bell: Bell,
    manager: Mutex<Option<(Arc<Lead>, Fm)>>,
    /// Since when the leader has no entry switch, and until when it stands aside; nanoseconds of [`clock`], 0 for neither.
    away: AtomicU64,
    aside: AtomicU64,
    other: OtherGroup,
    stopping: AtomicBool,
    resigning: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One of several managers, with its threads; dropping it ends them, and lets another one lead.
pub struct HaService {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
    elector: Option<JoinHandle<()>>,
}

impl HaService {
    /// Begins to stand by, and looks after the fabric every `pause` when it leads.
    ///
    /// # Errors
    /// There is no thread, or no descriptor.
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

    /// The handler of clients' request lines.
    #[must_use]
    pub fn handler(&self) -> Arc<dyn LineHandler> {
        Arc::new(ClientHandler(self.shared.clone()))
    }
}

impl Drop for HaService {
    /// What is being done is done first; then the lease is given up.
    fn drop(&mut self) {
        for (flag, thread) in
            [(&self.shared.stopping, &mut self.keeper), (&self.shared.resigning, &mut self.elector)]
        {
            flag.store(true, Ordering::SeqCst);
            drop(locked(&self.shared.lead)); // whoever is about to wait has seen it
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

    /// Waits, as who takes part in elections, until something has changed, and no longer than `span`.
    fn wait(&self, span: Duration, was: Option<u64>) {
        let lead = locked(&self.lead);
        let term = lead.as_ref().map(|lead| lead.term);
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

    /// Takes part in elections, and keeps the lease of a term that was won.
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
        let is_idle = locked(&self.manager).is_none();
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
        let (known, failed) = leader.map_or_else(|error| (None, Err(error)), |name| (name, Ok(())));
        self.tell(|ha| ha.leader = known);
        failed?;
        let is_aside = clock() < self.aside.load(Ordering::SeqCst);
        let rival = if is_free { self.candidate.rival()? } else { None };
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

    /// Makes the manager of each term, and looks after the fabric with it.
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

    /// Deals with an entry switch that was led in a later term, which etcd does not know. Who had claimed the switch in its own
    /// term was deposed by another group. Else etcd may have lost its data, unless the term moves while a lease passes.
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

    /// Leaves the fabric to another group, and says so to all of this one. It is tried again where etcd does not answer.
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

    /// Says, where this manager stands by, that another group leads, or no more.
    fn show_rival(&self, rival: Option<Rival>) {
        let is_new = self.other.know(rival);
        if let Some(rival) = rival.filter(|_| is_new) {
            self.board.record_change(format!("stands by: {rival}"));
        }
    }

    /// Ends a term because there was a later one, which etcd has lost: the next one is behind that.
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

    /// Ends a term; `why` is an event.
    fn end(&self, lead: &Lead, why: String) {
        self.board.record_event(why);
        lead.permit.end();
        self.changed.notify_all();
    }

    /// Says that it stands by.
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
        self.replace.store(false, Ordering::SeqCst);
        self.tell(|ha| ha.note = note.map(str::to_owned));
        let own = self.wanted.as_ref().filter(|_| replaces);
        let text = own.or(kept.as_ref()).map_or("", String::as_str);
        let mut desired = DesiredState::parse(text)?;
        desired.fm.entry_serial = store.load_entry()?;
        if desired.fm.secondary.is_some() {
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

    /// That another manager has to be asked.
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

/// The thread that looks after the fabric, between two looks of a term.
struct InTerm<'a> {
    shared: &'a Shared,
    term: Option<u64>,
}

impl Waits for InTerm<'_> {
    fn wait(&mut self, span: Duration, listens: bool) -> Woken {
        let Self { shared, term } = self;
        shared.bell.set(span);
        loop {
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
