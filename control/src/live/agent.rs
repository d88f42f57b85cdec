//! The thread of a switch's own functions: it carries out managers' commands and publishes the tables that TLPs are
//! routed by.
//!
//! [`Agent`] drives a [`pbr_switch::Agent`] at the far end of the CPU port's pipe. Changed tables are in force after
//! each turn, and after each command before its response is sent.
//! Source: docs/spec/cxl-fabric.md "Tables of an edge and who may write them", "Dynamic change"; docs/spec/pipeline.md
//! §11.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_base::eventfd::EventFd;
use weft_base::threads::{self, Ends, Role};
use weft_config::resolve::FabricConfig;
use weft_cxl::cci::{Answer, Component, Rank, Session, StreamError, StreamServer, Ticket};
use weft_cxl::pci::Link;
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::Core;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::Pipe;
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_dataplane::types::{PortId, PortSet};
use weft_dataplane::worker::Clock;
use weft_hosts::classes::PriMap;
use weft_pbr_switch as pbr_switch;

use super::LiveError;
use super::refusals::RefusalWatch;
use crate::report::fabric::AgentCounts;

/// Free chunks that the thread keeps for itself, so that it rarely goes to the shared pool.
pub const CACHE: usize = 64;
/// Longest time between two looks at the links.
const LOOK: Span = Span::from_ms(10);
/// How soon sending is tried again when the pipe was full.
const BLOCKED: Span = Span::from_us(50);
/// Bytes of late answers that may wait for one connection. Beyond that they are dropped, and the connection is to be
/// closed.
const LATE_MAX: usize = 256 * 1024;
/// Notifications that may wait for one connection. Later ones are dropped: those that wait already tell the manager to
/// look.
const NOTICES_MAX: usize = 64;
/// Longest payload in bytes that any link may have.
const PAYLOAD_MAX: usize = 4_096;

/// Names a connection of a manager; a session may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId(u64);

/// One connection of a manager.
struct Peer {
    session: Session,
    wakeup: Arc<EventFd>,
    /// Requests whose answers are still to come.
    tickets: BTreeSet<Ticket>,
    late: Vec<Answer>,
    /// Bytes of the messages in `late`.
    bytes: usize,
    /// There were more than [`LATE_MAX`]; the late answers are gone.
    is_lost: bool,
    /// Notifications of events that wait; `None` until the connection listens.
    notices: Option<VecDeque<Vec<u8>>>,
}

struct State {
    agent: pbr_switch::Agent,
    port: Pipe,
    bufs: Bufs,
    /// Links that the functions have been told are up.
    up: PortSet,
    peers: BTreeMap<PeerId, Peer>,
    next_peer: u64,
    sessions: u32,
    counts: AgentCounts,
    refusals: RefusalWatch,
}

struct Shared {
    core: Arc<Core>,
    clock: Clock,
    rates: Vec<(PortId, LinkRate)>,
    stop: AtomicBool,
    wakeup: EventFd,
    state: Mutex<State>,
}

/// The agent of a running switch: its state and its thread.
pub struct Agent {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Agent {
    /// Starts the thread at the end `port` of the pipe, and puts the first tables in force before it returns.
    ///
    /// # Errors
    /// The configuration is no such switch, or the kernel gives no thread.
    pub fn start(
        fabric: &FabricConfig,
        core: &Arc<Core>,
        clock: Clock,
        mut port: Pipe,
    ) -> Result<Self, LiveError> {
        let switch = pbr_switch::Switch::new(fabric.switch.clone()).map_err(LiveError::Fabric)?;
        let mut bufs = Bufs::new(core.pool.clone(), CACHE, 0);
        core.count_chunks(&bufs);
        port.start(&mut bufs).map_err(LiveError::open(weft_config::resolve::CPU_PORT))?;
        // The thread sleeps on a copy of the descriptor, as `port` itself goes behind the lock.
        let wake = port.wait_fd().map(|fd| fd.try_clone_to_owned()).transpose();
        let wake = wake.map_err(LiveError::Agent)?;
        let config = core.snapshot.load();
        let agent = pbr_switch::Agent::new(switch, agent_config(&config.config));
        let rate = |id: PortId| config.config.ports.get(id.index()).map(|port| (id, port.rate));
        let state = State {
            agent,
            port,
            bufs,
            up: PortSet::EMPTY,
            peers: BTreeMap::new(),
            next_peer: 0,
            sessions: 0,
            counts: AgentCounts::default(),
            refusals: RefusalWatch::default(),
        };
        let shared = Arc::new(Shared {
            core: core.clone(),
            clock,
            rates: fabric.switch.ports.iter().filter_map(|port| rate(port.port)).collect(),
            stop: AtomicBool::new(false),
            wakeup: EventFd::new().map_err(LiveError::Agent)?,
            state: Mutex::new(state),
        });
        // The first turn is made here: the tables are in force before a manager can connect.
        shared.lock().turn(&shared);
        let own = shared.clone();
        let asked = shared.clone();
        let ends = Ends::when(move || asked.stop.load(Ordering::Acquire));
        let thread =
            threads::spawn(Role::Agent, "weft-agent", ends, move || own.run(wake.as_ref()))
                .map_err(LiveError::Agent)?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// A session that no other connection has.
    #[must_use]
    pub fn new_session(&self) -> Session {
        let mut state = self.shared.lock();
        let session = Session::Fm(state.sessions);
        state.sessions = state.sessions.wrapping_add(1);
        session
    }

    /// Lets `session` command the switch as long as no manager has claimed it.
    pub fn stand_in(&self, session: Session) {
        let mut state = self.shared.lock();
        let now = self.shared.clock.now();
        state.agent.command(now, |switch| switch.common_mut().ownership.set_stand_in(session));
    }

    /// Registers a connection of `session`; `wakeup` is notified when [`Self::late`] or [`Self::notices`] has something
    /// for it.
    #[must_use]
    pub fn connect(&self, session: Session, wakeup: Arc<EventFd>) -> PeerId {
        let mut state = self.shared.lock();
        let id = PeerId(state.next_peer);
        state.next_peer += 1;
        let (late, tickets) = (Vec::new(), BTreeSet::new());
        let (bytes, is_lost, notices) = (0, false, None);
        let peer = Peer { session, wakeup, tickets, late, bytes, is_lost, notices };
        state.peers.insert(id, peer);
        id
    }

    /// Carries out the requests that `bytes` complete, until `most` bytes stand in `out`. The tables that follow are in
    /// force when this returns. Returns whether requests are left, for a next call without bytes.
    ///
    /// # Errors
    /// The stream is out of step. Answers to earlier requests stand in `out`.
    pub fn receive(
        &self,
        peer: PeerId,
        server: &mut StreamServer,
        bytes: &[u8],
        most: usize,
        out: &mut Vec<u8>,
    ) -> Result<bool, StreamError> {
        self.carry_out(peer, |switch, now| {
            let done = server.receive_some(switch, now, bytes, most, out);
            (done, server.tickets())
        })
    }

    /// Has the switch carry out the requests of a connection by `run`, which also returns the tickets of the answers
    /// that the connection still waits for. The tables that follow are in force when this returns.
    pub fn carry_out<R>(
        &self,
        peer: PeerId,
        run: impl FnOnce(&mut dyn Component, Instant) -> (R, BTreeSet<Ticket>),
    ) -> R {
        let mut state = self.shared.lock();
        let now = self.shared.clock.now();
        let (done, tickets) = state.agent.command(now, |switch| run(switch, now));
        // Before `turn`, which may already have the answers: it hands each to the connection that holds its ticket.
        if let Some(peer) = state.peers.get_mut(&peer) {
            peer.tickets = tickets;
        }
        state.turn(&self.shared);
        drop(state);
        self.shared.wakeup.notify(); // something else may be due first now
        done
    }

    /// Takes the answers that came late for a connection; `None` where there were too many and some are lost.
    #[must_use]
    pub fn late(&self, peer: PeerId) -> Option<Vec<Answer>> {
        let mut state = self.shared.lock();
        let peer = state.peers.get_mut(&peer).filter(|peer| !peer.is_lost)?;
        peer.bytes = 0;
        Some(std::mem::take(&mut peer.late))
    }

    /// Has a connection collect notifications of events while its manager is the primary one: [`Self::notices`].
    pub fn listen(&self, peer: PeerId) {
        if let Some(peer) = self.shared.lock().peers.get_mut(&peer) {
            peer.notices = Some(VecDeque::new());
        }
    }

    #[must_use]
    pub fn notices(&self, peer: PeerId) -> VecDeque<Vec<u8>> {
        let mut state = self.shared.lock();
        let peer = state.peers.get_mut(&peer);
        peer.and_then(|peer| peer.notices.as_mut()).map(std::mem::take).unwrap_or_default()
    }

    /// Ends a connection. With the last one of its session, the session's claim on the switch ends too.
    pub fn forget(&self, peer: PeerId) {
        let mut state = self.shared.lock();
        let Some(Peer { session, .. }) = state.peers.remove(&peer) else { return };
        // Managers over MCTP open several connections for one session: it ends with the last of them.
        if state.peers.values().all(|other| other.session != session) {
            state.agent.forget(session);
        }
    }

    #[must_use]
    pub fn now(&self) -> Instant {
        self.shared.clock.now()
    }

    /// Calls `look` with the switch's agent and its counters.
    pub fn look<R>(&self, look: impl FnOnce(&pbr_switch::Agent, AgentCounts) -> R) -> R {
        let state = self.shared.lock();
        look(&state.agent, state.counts)
    }

    /// Ends the thread; chunks in the pipe go back to the pool.
    pub fn stop(&self) {
        // The flag before the wake-up, or the thread could sleep through it.
        self.shared.stop.store(true, Ordering::Release); // pairs with `run`
        self.shared.wakeup.notify();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            drop(thread.join()); // a panic has been printed
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, wake: Option<&OwnedFd>) {
        while !self.stop.load(Ordering::Acquire) {
            self.wakeup.drain();
            let (busy, next) = self.lock().turn(self);
            if !busy {
                self.wait(wake, next);
            }
        }
        // Only here, where no turn follows that could send: the chunks in the pipe go back to the pool.
        let state = &mut *self.lock();
        state.port.release(&mut state.bufs);
        state.bufs.settle();
    }

    /// Sleeps until a frame or a command comes, something is due, or links are to be looked at.
    fn wait(&self, wake: Option<&OwnedFd>, next: Option<Instant>) {
        let now = self.clock.now().as_ns();
        let due = next.map_or(u64::MAX, |next| next.as_ns().saturating_sub(now));
        // Links change without waking this thread, so a look is due every `LOOK` in any case.
        let ns = i64::try_from(due.min(LOOK.as_ns())).unwrap_or(i64::MAX);
        let timeout = Timespec { tv_sec: 0, tv_nsec: ns };
        let fds = wake.into_iter().map(AsFd::as_fd).chain([self.wakeup.as_fd()]);
        let mut fds: Vec<PollFd<'_>> =
            fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Some(&timeout)); // an interrupted wait only comes back sooner
    }
}

impl State {
    /// Does all that is to be done now. Returns whether frames moved, and when something is due next.
    fn turn(&mut self, shared: &Shared) -> (bool, Option<Instant>) {
        let now = shared.clock.now();
        self.counts.turns += 1;
        self.follow_links(shared, now);
        let ports = shared.rates.iter().map(|(port, _)| *port);
        self.refusals.look(now, &shared.core, ports, &mut self.agent);
        let came = self.agent.receive(now, &mut self.port, &mut self.bufs);
        // Before `send`: answers that leave by the pipe tell of tables that are in force.
        self.publish(&shared.core);
        // A pipe in memory cannot fail; `blocked` alone says that it is full.
        let sent = self.agent.send(now, &mut self.port, &mut self.bufs);
        let (frames, blocked) = sent.map_or((0, false), |sent| (sent.frames, sent.blocked));
        self.bufs.settle();
        self.counts.functions = self.agent.counts().0;
        self.answer();
        self.notify();
        let soon = blocked.then(|| now + BLOCKED);
        (came + frames > 0, Instant::earlier(soon, self.agent.next_due()))
    }

    /// Tells the switch's functions which links went up or down since the last look.
    fn follow_links(&mut self, shared: &Shared, now: Instant) {
        let up = shared.core.up();
        if up == self.up {
            return;
        }
        for &(port, rate) in &shared.rates {
            let is_up = up.contains(port);
            if is_up != self.up.contains(port) {
                self.agent.set_link(now, port, is_up.then(|| link_of(rate)));
                self.counts.links += 1;
            }
        }
        self.up = up;
    }

    fn publish(&mut self, core: &Core) {
        if let Some(tables) = self.agent.tables() {
            core.tables.store(Arc::new(tables));
            self.counts.published += 1;
        }
    }

    /// Hands notifications of events to the connections of the primary fabric manager.
    fn notify(&mut self) {
        while let Some(notice) = self.agent.next_notice() {
            let ownership = &self.agent.switch().common().ownership;
            for peer in self.peers.values_mut() {
                let is_primary = ownership.rank(peer.session) == Rank::Primary;
                let Some(notices) = peer.notices.as_mut().filter(|_| is_primary) else { continue };
                if notices.len() < NOTICES_MAX {
                    notices.push_back(notice.clone());
                    peer.wakeup.notify();
                }
            }
        }
    }

    /// Hands late answers to the connections that wait for them.
    fn answer(&mut self) {
        while let Some(answer) = self.agent.next_late() {
            // A session may have several connections: the ticket says which of them asked.
            let asked = |peer: &Peer| {
                peer.session == answer.session && peer.tickets.contains(&answer.ticket)
            };
            let Some(peer) = self.peers.values_mut().find(|peer| asked(peer)) else { continue };
            peer.tickets.remove(&answer.ticket);
            peer.bytes += answer.message.len();
            // The connection must not go on with answers missing: it loses all of them, and its thread closes it.
            if peer.bytes > LATE_MAX {
                (peer.late, peer.is_lost) = (Vec::new(), true);
            }
            if !peer.is_lost {
                peer.late.push(answer);
            }
            // In both cases: a connection that lost answers is closed by its thread once that is awake.
            peer.wakeup.notify();
        }
    }
}

/// Configuration of the agent that follows from the switch's.
fn agent_config(config: &SwitchConfig) -> pbr_switch::AgentConfig {
    let links = config.ports.iter().enumerate();
    let modes = links.filter_map(|(at, port)| Some((PortId::new(at)?, port.role.link()?.mode)));
    pbr_switch::AgentConfig {
        modes: modes.collect(),
        tlp: config.tlp.clone(),
        classes: if config.pris == 4 { PriMap::four() } else { PriMap::eight() },
        payload_max: PAYLOAD_MAX,
    }
}

/// The PCIe link that stands for an Ethernet link of `rate`: x16 at the slowest speed that carries it.
fn link_of(rate: LinkRate) -> Link {
    const LANES: u64 = 16;
    // Lane rates of PCIe 1.0 to 6.0; a rate beyond the last is shown as the last.
    const GTS: [u64; 6] = [2_500, 5_000, 8_000, 16_000, 32_000, 64_000]; // Mbit/s of a lane
    let mbps = rate.as_bps() / 1_000_000;
    let slower = GTS.iter().take_while(|&&lane| lane * LANES < mbps).count().min(GTS.len() - 1);
    // PCIe numbers its speeds from 1 (2.5 GT/s), as the Link Status register does.
    Link { speed: u8::try_from(slower + 1).unwrap_or(6), width: 16 }
}
