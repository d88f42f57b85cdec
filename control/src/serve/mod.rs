//! Serving clients over sockets: a thread a client, bounds for all that a client may use.
//!
//! [`Listener`] -> [`Server`], which hands each [`Client`] to a [`Protocol`]; [`Limits`] hold for all of them.
//!
//! Units: bytes; [`Duration`]s.
//! Source: ARCHITECTURE.md "Control".
//!
//! Threads of clients wait without a time limit in `read` and `write`: the acceptor looks whose time is over, and closes
//! the connection, which ends the wait. So one place knows all time limits, whatever a protocol does in between.

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

/// How long it waits while clients that were sent away have not ended yet.
const CROWDED: Duration = Duration::from_millis(2);

/// Memory of a thread: its stack.
const THREAD: usize = 2 << 20;

/// What is spoken with clients.
pub trait Protocol: Send + Sync + 'static {
    /// What its threads are for.
    fn role(&self) -> Role;

    /// What its threads are called.
    fn name(&self) -> &'static str;

    /// How far a client is trusted that has come.
    ///
    /// # Errors
    /// It is sent away, with these bytes as its answer.
    fn trust(&self, stream: &Stream) -> Result<Trust, Vec<u8>>;

    /// What a client is told for which there is no place.
    fn full(&self) -> Vec<u8> {
        Vec::new()
    }

    /// What a client is told for which there is no memory, as `why` says.
    fn short(&self, _why: &str) -> Vec<u8> {
        self.full()
    }

    /// Serves a client until it goes, or a read or write fails.
    fn serve(&self, client: &Client);
}

/// What clients have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clients now.
    pub open: u64,
    /// Clients since the start.
    pub accepted: u64,
    /// Clients that were refused: no place, not allowed, no descriptors.
    pub refused: u64,
    /// Clients that had to go for others.
    pub evicted: u64,
    /// Clients that were sent away as their time was over.
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
    /// Counts a client that was refused, and says why.
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

/// A client, as the thread that serves it sees it.
pub struct Client {
    stream: Arc<Stream>,
    number: u64,
    shared: Arc<Shared>,
}

impl Client {
    /// Its connection.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    fn set(&self, phase: Phase) {
        let now = self.shared.clock.now();
        self.shared.lock().table.set(self.number, now, phase);
    }

    /// Waits for bytes of a request of which nothing has come yet: [`Limits::idle`] begins.
    pub fn idle(&self) {
        self.set(Phase::Idle);
    }

    /// A part of a request has come: it has to be whole within [`Limits::request`] of its first byte.
    pub fn asking(&self) {
        self.set(Phase::Asking);
    }

    /// A whole request has come: it is not sent away until it has been carried out.
    pub fn working(&self) {
        self.set(Phase::Working);
    }

    /// Sends an answer, which has to be taken whole within [`Limits::answer`].
    ///
    /// # Errors
    /// It was not.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.answering(|mut stream| stream.write_all(bytes))
    }

    /// Sends an answer by `write`, as [`send`](Self::send) does.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn answering<R>(&self, write: impl FnOnce(&Stream) -> R) -> R {
        self.set(Phase::Answering);
        let done = write(&self.stream);
        self.set(Phase::Working);
        done
    }

    /// Takes a share of what answers that are not read may use in all.
    ///
    /// # Errors
    /// They use too much already.
    pub fn hold(&self, bytes: usize) -> Result<Share, NoShare> {
        self.shared.unread.take(bytes)
    }

    /// It has said who it is; another may have to go for it.
    ///
    /// # Errors
    /// There is no place for it.
    pub fn raise(&self, trust: Trust) -> Result<(), Full> {
        let mut inside = self.shared.lock();
        if let Some(victim) = inside.table.raise(self.number, self.shared.clock.now(), trust)? {
            inside.close(victim);
            add(&self.shared.counters.evicted, 1);
        }
        Ok(())
    }

    /// Whether all clients are to go.
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

/// What events say of who serves.
const fn subject(role: Role) -> &'static str {
    match role {
        Role::Cci => "cci",
        Role::Metrics => "metrics",
        Role::Sai => "sai",
        _ => "management",
    }
}

/// A place where clients are served; dropping it ends all connections.
pub struct Server {
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves those who connect to `listener`.
    ///
    /// # Errors
    /// There is no thread, or no descriptor for it.
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

    /// What clients have done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let Counters { accepted, refused, evicted, overdue } = &self.shared.counters;
        let [accepted, refused, evicted, overdue] =
            [accepted, refused, evicted, overdue].map(|count| count.load(Ordering::Relaxed));
        let open = self.shared.lock().table.len() as u64;
        Counts { open, accepted, refused, evicted, overdue }
    }

    /// Bytes of answers that clients have not taken.
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
        let (streams, threads) = {
            let mut inside = self.shared.lock();
            (std::mem::take(&mut inside.streams), std::mem::take(&mut inside.threads))
        };
        for stream in streams.values() {
            stream.close();
        }
        for thread in threads.into_values() {
            let _ = thread.join(); // a panic has been printed
        }
    }
}

/// Waits for one of `fds`, at most for `time`; tells which are there.
pub(crate) fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], time: Option<Duration>) -> [bool; N] {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    let timeout = time.and_then(|time| Timespec::try_from(time).ok());
    let _ = poll(&mut fds, timeout.as_ref()); // an interrupted wait only comes back sooner
    fds.map(|fd| !fd.revents().is_empty())
}

fn accept(listener: &Listener, shared: &Arc<Shared>) {
    // With no descriptor left, who comes is told so by being closed.
    let mut reserve = Reserve::new();
    while !shared.stop.load(Ordering::Acquire) {
        let (time, is_crowded) = {
            let now = shared.clock.now();
            let mut inside = shared.lock();
            for number in inside.table.overdue(now) {
                inside.close(number);
                add(&shared.counters.overdue, 1);
            }
            (inside.table.next_look(now), inside.table.is_crowded())
        };
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
    // What a client asks for is tried when it asks; its thread, and small things, are not.
    if let Err(why) = try_room_with_reserve(THREAD) {
        let why = format!("{why} for a client");
        return refuse(&stream, &shared.protocol.short(&why), &why);
    }
    let mut inside = shared.lock();
    let (number, evicted) = match inside.table.admit(shared.clock.now(), trust) {
        Ok(admitted) => admitted,
        Err(Full) => return refuse(&stream, &shared.protocol.full(), "too many connections"),
    };
    if let Some(victim) = evicted {
        inside.close(victim);
        add(&shared.counters.evicted, 1);
    }
    let stream = Arc::new(stream);
    let client = Client { stream: stream.clone(), number, shared: shared.clone() };
    let (role, name) = (shared.protocol.role(), format!("{}-client", shared.protocol.name()));
    let spawned = threads::spawn(role, &name, Ends::Freely, move || {
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

/// Takes a client out of the books, however its thread ends.
struct Gone<'a>(&'a Client);

impl Drop for Gone<'_> {
    fn drop(&mut self) {
        let Client { stream, number, shared } = self.0;
        stream.close();
        let mut inside = shared.lock();
        inside.table.remove(*number);
        inside.streams.remove(number);
        inside.threads.remove(number);
    }
}

#[cfg(test)]
mod tests;
