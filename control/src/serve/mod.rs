//! Serves clients over sockets: a thread for each client, and bounds for all that clients may use.
//!
//! A [`Listener`] becomes a [`Server`], which hands each [`Client`] to a [`Protocol`]; [`Limits`] hold for all clients
//! of a server.
//!
//! Source: ARCHITECTURE.md "Control".
//!
//! Threads of clients wait without a time limit in `read` and `write`. The acceptor checks the deadlines of all clients
//! and closes the connections that missed theirs, which ends the wait. So one place knows all time limits, whatever a
//! protocol does in between.

mod accept;
pub mod dir;
pub mod memory;
pub mod stream;
mod table;
pub mod tcp;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weft_base::eventfd::EventFd;
use weft_base::memory::try_room_with_reserve;
use weft_base::threads::{self, Ends, Role};
use weft_dataplane::worker::Clock;

use crate::events::{self, Kind};

use self::accept::Reserve;
pub use self::accept::raise_descriptor_limit;
pub use self::dir::SocketError;
pub use self::memory::{Account, NoShare, Share};
pub use self::stream::{Listener, Stream};
use self::table::Table;
pub use self::table::{Full, Limits, Phase, Trust};
pub use self::tcp::{TcpError, TcpServer};

/// Wait while clients that were sent away have not ended yet.
const CROWDED: Duration = Duration::from_millis(2);

/// Memory that a client's thread takes: its stack.
const THREAD: usize = 2 << 20;

/// A protocol that clients speak.
pub trait Protocol: Send + Sync + 'static {
    /// Role of its threads, which decides the exit code when one ends unasked.
    fn role(&self) -> Role;

    /// Name of the acceptor's thread; those of clients get a suffix.
    fn name(&self) -> &'static str;

    /// How far to trust a client that has just connected.
    ///
    /// # Errors
    /// The client is sent away, and gets these bytes as its answer.
    fn trust(&self, stream: &Stream) -> Result<Trust, Vec<u8>>;

    /// Answer for a client for which there is no place.
    fn full(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Answer for a client for which there is no memory; `why` says so in detail.
    fn short(&self, _why: &str) -> Vec<u8> {
        self.full()
    }

    /// Serves a client until it goes, or a read or write fails.
    fn serve(&self, client: &Client);
}

/// Counters of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub open: u64,
    pub accepted: u64,
    /// Clients that were refused: no place, no right, no descriptors, no memory.
    pub refused: u64,
    /// Clients that had to go to make room for others.
    pub evicted: u64,
    /// Clients that were sent away for a missed deadline.
    pub overdue: u64,
}

#[derive(Default)]
struct Counters {
    accepted: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
    overdue: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed); // a count, and nothing hangs on it
}

struct Inside {
    table: Table,
    streams: BTreeMap<u64, Arc<Stream>>,
    threads: BTreeMap<u64, JoinHandle<()>>,
}

struct Shared {
    protocol: Arc<dyn Protocol>,
    clock: Clock,
    stop: AtomicBool,
    wakeup: EventFd,
    counters: Counters,
    unread: Arc<Account>,
    inside: Mutex<Inside>,
}

impl Shared {
    /// Counts a client that was refused, and posts an event with the reason.
    fn refuse(&self, why: &str) {
        add(&self.counters.refused, 1);
        events::post(Kind::ClientRefused, subject(self.protocol.role()), why);
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inside {
    fn close(&self, number: u64) {
        if let Some(stream) = self.streams.get(&number) {
            stream.close();
        }
    }
}

/// A client, for the thread that serves it.
pub struct Client {
    stream: Arc<Stream>,
    number: u64,
    shared: Arc<Shared>,
}

impl Client {
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    fn set(&self, phase: Phase) {
        let now = self.shared.clock.now();
        self.shared.lock().table.set(self.number, now, phase);
    }

    /// To be called while nothing of the next request has come: [`Limits::idle`] begins.
    pub fn idle(&self) {
        self.set(Phase::Idle);
    }

    /// Part of a request has come: all of it has to come within [`Limits::request`] of the first byte.
    pub fn asking(&self) {
        self.set(Phase::Asking);
    }

    /// A whole request has come: the client is not sent away before it is carried out.
    pub fn working(&self) {
        self.set(Phase::Working);
    }

    /// Sends an answer, which the client has to take whole within [`Limits::answer`].
    ///
    /// # Errors
    /// The client did not take it.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.answering(|mut stream| stream.write_all(bytes))
    }

    /// Sends an answer by `write`, with the time limit of [`send`](Self::send).
    ///
    /// # Errors
    /// Those of `write`.
    pub fn answering<R>(&self, write: impl FnOnce(&Stream) -> R) -> R {
        self.set(Phase::Answering);
        let done = write(&self.stream);
        self.set(Phase::Working);
        done
    }

    /// Takes a share of the memory for answers that clients have not read.
    ///
    /// # Errors
    /// Such answers use too much already.
    pub fn hold(&self, bytes: usize) -> Result<Share, NoShare> {
        self.shared.unread.take(bytes)
    }

    /// The client has shown who it is; another may be sent away to make room for it.
    ///
    /// # Errors
    /// There is no place for a client of that trust.
    pub fn raise(&self, trust: Trust) -> Result<(), Full> {
        let mut inside = self.shared.lock();
        if let Some(victim) = inside.table.raise(self.number, self.shared.clock.now(), trust)? {
            inside.close(victim);
            add(&self.shared.counters.evicted, 1);
        }
        Ok(())
    }

    /// Whether the server ends; a client's thread is to return then.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.shared.stop.load(Ordering::Acquire) // pairs with `drop` of the server
    }
}

impl Read for &Client {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        (&*self.stream).read(bytes)
    }
}

/// Name of the service in events.
const fn subject(role: Role) -> &'static str {
    match role {
        Role::Cci => "cci",
        Role::Metrics => "metrics",
        Role::Sai => "sai",
        _ => "management",
    }
}

/// A listener with its clients; dropping it ends all connections.
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the clients that connect to `listener`.
    ///
    /// # Errors
    /// The kernel gives no thread or no eventfd.
    pub fn start(
        listener: Listener,
        limits: Limits,
        protocol: Arc<dyn Protocol>,
    ) -> io::Result<Self> {
        let (name, wakeup) = (protocol.name(), EventFd::new()?);
        let inside = Inside {
            table: Table::new(limits),
            streams: BTreeMap::new(),
            threads: BTreeMap::new(),
        };
        let shared = Arc::new(Shared {
            protocol,
            clock: Clock::start(),
            stop: AtomicBool::new(false),
            wakeup,
            counters: Counters::default(),
            unread: Arc::new(Account::new(limits.unread)),
            inside: Mutex::new(inside),
        });
        let own = shared.clone();
        let asked = shared.clone();
        let ends = Ends::when(move || asked.stop.load(Ordering::Acquire)); // pairs with `drop`
        let acceptor =
            threads::spawn(shared.protocol.role(), name, ends, move || accept(&listener, &own))?;
        Ok(Self { shared, acceptor: Some(acceptor) })
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        let Counters { accepted, refused, evicted, overdue } = &self.shared.counters;
        let [accepted, refused, evicted, overdue] =
            [accepted, refused, evicted, overdue].map(|count| count.load(Ordering::Relaxed));
        let open = self.shared.lock().table.len() as u64;
        Counts { open, accepted, refused, evicted, overdue }
    }

    /// Bytes of answers that clients have not read.
    #[must_use]
    pub fn unread(&self) -> usize {
        self.shared.unread.used()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release); // pairs with `accept` and `Client::is_over`
        self.shared.wakeup.notify();
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join(); // a panic has been printed
        }
        // Taken out under the lock, and joined without it: a client's thread takes it at its end.
        let (streams, threads) = {
            let mut inside = self.shared.lock();
            (std::mem::take(&mut inside.streams), std::mem::take(&mut inside.threads))
        };
        // Closing ends the waits in `read` and `write`; only then can the threads be joined.
        for stream in streams.values() {
            stream.close();
        }
        for thread in threads.into_values() {
            let _ = thread.join(); // a panic has been printed
        }
    }
}

/// Waits for input on one of `fds`, at most for `time`; returns which have some.
pub(crate) fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], time: Option<Duration>) -> [bool; N] {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = time.and_then(|time| Timespec::try_from(time).ok());
    let _ = poll(&mut fds, timeout.as_ref()); // an interrupted wait only comes back sooner
    fds.map(|fd| !fd.revents().is_empty())
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    // When no descriptor is left, a client is told so by being closed: the reserve makes that possible.
    let mut reserve = Reserve::new();
    while !shared.stop.load(Ordering::Acquire) {
        // Deadlines and the wait are computed under one lock, and the wait is outside of it.
        let (time, is_crowded) = {
            let now = shared.clock.now();
            let mut inside = shared.lock();
            for number in inside.table.overdue(now) {
                inside.close(number);
                add(&shared.counters.overdue, 1);
            }
            (inside.table.next_look(now), inside.table.is_crowded())
        };
        // Nothing is accepted until threads have ended: clients that come faster than they end would pile up threads.
        if is_crowded {
            wait([shared.wakeup.as_fd()], Some(CROWDED)); // who comes waits until others have gone
            continue;
        }
        let [has_come, _] = wait([listener.as_fd(), shared.wakeup.as_fd()], time);
        if !has_come {
            continue;
        }
        match reserve.accept(|| listener.accept()) {
            Ok(stream) => admit(stream, shared),
            Err(error) => {
                // Errors of one connection, or of none: the client has gone, or a signal came in between.
                use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
                if !matches!(error.kind(), ConnectionAborted | Interrupted | WouldBlock) {
                    shared.refuse(&error.to_string());
                }
            }
        }
    }
}

fn admit(stream: Stream, shared: &Arc<Shared>) {
    let refuse = |stream: &Stream, words: &[u8], why: &str| {
        stream.last_words(words);
        shared.refuse(why);
    };
    let trust = match shared.protocol.trust(&stream) {
        Ok(trust) => trust,
        Err(words) => return refuse(&stream, &words, "the client has no right to connect"),
    };
    // Room for the client's thread is checked here. Memory for requests is checked when they are carried out.
    if let Err(why) = try_room_with_reserve(THREAD) {
        let why = format!("{why} for a client");
        return refuse(&stream, &shared.protocol.short(&why), &why);
    }
    // Locked until the thread is in `threads`: one that ended at once would otherwise be removed before it is entered.
    let mut inside = shared.lock();
    let (number, evicted) = match inside.table.admit(shared.clock.now(), trust) {
        Ok(admitted) => admitted,
        Err(Full) => return refuse(&stream, &shared.protocol.full(), "too many connections"),
    };
    // Closed only: the client's thread takes itself out of the table when it ends.
    if let Some(victim) = evicted {
        inside.close(victim);
        add(&shared.counters.evicted, 1);
    }
    let stream = Arc::new(stream);
    let client = Client { stream: stream.clone(), number, shared: shared.clone() };
    let (role, name) = (shared.protocol.role(), format!("{}-client", shared.protocol.name()));
    let spawned = threads::spawn(role, &name, Ends::Freely, move || {
        // Dropped also when `serve` panics: the place must not stay taken.
        let gone = Gone(&client);
        client.shared.protocol.serve(&client);
        drop(gone);
    });
    match spawned {
        Ok(thread) => {
            add(&shared.counters.accepted, 1);
            inside.streams.insert(number, stream);
            inside.threads.insert(number, thread);
        }
        Err(error) => {
            inside.table.remove(number);
            let why = format!("no thread for a client, for want of memory or threads: {error}");
            refuse(&stream, &shared.protocol.short(&why), &why);
        }
    }
}

/// Takes a client out of table and lists when its thread ends, for whatever reason.
struct Gone<'a>(&'a Client);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let Client { stream, number, shared } = self.0;
        // First, without the lock: the peer learns of the end even while another thread holds it.
        stream.close();
        let mut inside = shared.lock();
        inside.table.remove(*number);
        inside.streams.remove(number);
        inside.threads.remove(number);
    }
}

#[cfg(test)]
mod tests;
