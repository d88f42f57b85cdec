//! Traces of a running switch: its workers report events, each client gets the paths of the frames that it wants.
//!
//! The events of all workers are joined into [`Paths`]; those that the client wants wait in a queue for its [`Stream`].
//! Source: docs/spec/pipeline.md §13.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde_json::json;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Listen};
use weft_dataplane::worker::WorkerGroup;

use crate::express::Watch;
use crate::paths::{Filter, Path, Paths, ShownPath};
use crate::requests::{TraceStream, Traced};
use crate::serve::{Account, NoShare, Share};

/// Paths that may wait for a trace's client; more are lost to it.
const PATHS_MAX: usize = 4_096;
/// Bytes of memory that waiting paths may take.
const WAITING_MAX: usize = 1 << 20;
/// Bytes of memory that paths may take while frames are still on their way.
const OPEN_MAX: usize = 2 << 20;
/// Share of memory that a trace takes: the two above, the queue itself, and a path on its way to the client.
const TRACE_SIZE: usize = 4 << 20;
/// Bytes of memory that all traces of a switch may use.
const TRACES_SIZE: usize = 8 * TRACE_SIZE;

/// The paths that a client asked for.
#[derive(Debug)]
pub struct Wanted {
    pub filter: Filter,
    /// Paths after which the trace ends.
    pub count: u64,
    /// Whether paths come with the frames' bytes.
    pub bytes: bool,
}

/// All traces of a switch: the memory that they may use, and the clients that get paths.
pub struct Traces {
    memory: Arc<Account>,
    told: Mutex<Vec<Weak<Told>>>,
}

impl Default for Traces {
    fn default() -> Self {
        Self { memory: Arc::new(Account::new(TRACES_SIZE)), told: Mutex::default() }
    }
}

impl Traces {
    /// Begins a trace of the `wanted` paths in all workers of `group`, beside those of other clients; `ports` are the
    /// names of the switch's ports.
    ///
    /// # Errors
    /// Other traces use all of the memory.
    pub fn begin(
        &self,
        group: &WorkerGroup,
        wanted: Wanted,
        ports: Vec<String>,
    ) -> Result<Stream, NoShare> {
        // The whole share is taken at the start: workers add to paths, and an allocation that failed there would end
        // the switch.
        let share = self.memory.promise(TRACE_SIZE)?;
        let Wanted { filter, count, bytes } = wanted;
        let (send, receive) = sync_channel(PATHS_MAX);
        let paths = Mutex::new(Paths::within(OPEN_MAX));
        let (is_over, waiting) = (AtomicBool::new(false), AtomicUsize::new(0));
        let trace = Arc::new(Trace { paths, filter, bytes, is_over, waiting });
        let told = Arc::new(Told { trace: trace.clone(), send });
        // A worker has one listener for all clients: a new one takes over the clients of the old one, which it
        // replaces.
        let mut all = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.upgrade().is_some_and(|other| !other.is_over()));
        all.push(Arc::downgrade(&told));
        let all: Vec<Arc<Told>> = all.iter().filter_map(Weak::upgrade).collect();
        for worker in 0..group.len() {
            group.trace(worker, Box::new(Follower { all: all.clone() }));
        }
        Ok(Stream { trace, receive, left: count, ports, watch: None, _share: Some(share) })
    }
}

/// State that workers and client share: a frame may come in at one worker and leave by another.
struct Trace {
    paths: Mutex<Paths>,
    filter: Filter,
    /// Whether frames' bytes are to be kept.
    bytes: bool,
    /// The client has gone.
    is_over: AtomicBool,
    /// Bytes of memory of paths in the queue.
    waiting: AtomicUsize,
}

impl Trace {
    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client, as long as some worker has it on its list. Workers hold the only senders, so a client learns of their end.
struct Told {
    trace: Arc<Trace>,
    send: SyncSender<Path>,
}

impl Told {
    /// Whether the client has gone.
    fn is_over(&self) -> bool {
        self.trace.is_over.load(Ordering::Relaxed) // nothing else depends on it
    }

    fn listen(&self, now: Instant, event: &Event) {
        let path = self.trace.paths().feed(now, event);
        if let Some(path) = path.filter(|path| self.trace.filter.wants(path)) {
            // A full queue loses the path: a worker does not wait for a client.
            let (waiting, size) = (&self.trace.waiting, path.size());
            let before = waiting.fetch_add(size, Ordering::Relaxed); // a count
            // Bounded in bytes as well as in paths: with `bytes` a path holds its frame, up to some 9 KiB.
            if before + size > WAITING_MAX || self.send.try_send(path).is_err() {
                waiting.fetch_sub(size, Ordering::Relaxed); // a count
            }
        }
    }
}

/// The listener of one worker. It passes events on to all clients, until all of them have gone.
struct Follower {
    all: Vec<Arc<Told>>,
}

impl Follower {
    fn there(&self) -> impl Iterator<Item = &Told> {
        self.all.iter().map(Arc::as_ref).filter(|told| !told.is_over())
    }
}

impl Listen for Follower {
    fn listen(&mut self, now: Instant, event: &Event) {
        self.there().for_each(|told| told.listen(now, event));
    }

    fn bytes(&mut self, frame: u64, bytes: &[u8]) {
        for told in self.there().filter(|told| told.trace.bytes) {
            told.trace.paths().keep(frame, bytes);
        }
    }

    fn has_enough(&self) -> bool {
        self.there().next().is_none()
    }
}

/// Paths for one client. Once it is dropped, the workers stop tracing for it.
pub struct Stream {
    trace: Arc<Trace>,
    receive: Receiver<Path>,
    left: u64,
    ports: Vec<String>,
    /// Has all frames come to the workers while it lives.
    watch: Option<Watch>,
    /// Held for its `Drop`: the share of memory that all traces may use.
    _share: Option<Share>,
}

impl Stream {
    /// Keeps `watch` as long as the client is there.
    #[must_use]
    pub fn with(mut self, watch: Option<Watch>) -> Self {
        self.watch = watch;
        self
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.trace.is_over.store(true, Ordering::Relaxed); // nothing else depends on it
    }
}

impl TraceStream for Stream {
    fn next(&mut self, wait: Duration) -> Traced {
        if self.left == 0 {
            return Traced::Ended(json!({ "reason": "enough frames" }));
        }
        match self.receive.recv_timeout(wait) {
            Ok(path) => {
                self.left -= 1;
                self.trace.waiting.fetch_sub(path.size(), Ordering::Relaxed); // a count
                Traced::Path(ShownPath::new(path, &self.ports))
            }
            Err(RecvTimeoutError::Timeout) => Traced::Nothing,
            Err(RecvTimeoutError::Disconnected) => {
                Traced::Ended(json!({ "reason": "the switch stopped" }))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follower(trace: Arc<Trace>, send: SyncSender<Path>) -> Follower {
        Follower { all: vec![Arc::new(Told { trace, send })] }
    }

    fn follow(filter: &str) -> (Follower, Stream) {
        let (send, receive) = sync_channel(1);
        let trace = trace(filter, false);
        (follower(trace.clone(), send), stream(trace, receive))
    }

    fn stream(trace: Arc<Trace>, receive: Receiver<Path>) -> Stream {
        Stream { trace, receive, left: 2, ports: Vec::new(), watch: None, _share: None }
    }

    fn trace(filter: &str, bytes: bool) -> Arc<Trace> {
        Arc::new(Trace {
            paths: Mutex::default(),
            filter: Filter::parse(filter, |_| None).unwrap(),
            bytes,
            is_over: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Frame `number` comes in and is dropped.
    fn drop_one(follower: &mut Follower, frame: u64) {
        let rx = Event::Rx { frame, port: 0, len: 60, digest: 0 };
        for event in [rx, Event::Drop { frame, port: 0, reason: "dt" }] {
            follower.listen(Instant::ZERO, &event);
        }
    }

    #[test]
    fn a_worker_is_left_alone_once_the_client_has_gone() {
        for filter in ["", "drop=pool"] {
            let (mut follower, stream) = follow(filter);
            drop_one(&mut follower, 1);
            assert!(!follower.has_enough(), "{filter:?}");
            drop(stream);
            drop_one(&mut follower, 2); // wanted or not
            assert!(follower.has_enough(), "{filter:?}");
        }
    }

    /// Traces that are never read, as many as clients may be: those beyond the cap are refused, and room comes back.
    #[test]
    fn traces_take_no_more_memory_in_all_than_they_may() {
        use weft_config::Settings;
        use weft_config::resolve::{Config, Timing};
        use weft_dataplane::port::tee::MirrorSlot;
        let text = "[[port]]\nname = 'a'\nkind = 'null'\n[[port]]\nname = 'b'\nkind = 'null'\n";
        let config = Config::resolve(&Settings::read("f", text).unwrap(), Timing::Live).unwrap();
        let live = crate::live::Live::start(
            &config,
            &[MirrorSlot::default(), MirrorSlot::default()],
            None,
            None,
        )
        .unwrap();
        let all = Traces::default();
        let begin = || {
            let wanted = Wanted { filter: Filter::default(), count: 1, bytes: true };
            all.begin(live.workers(), wanted, Vec::new())
        };
        let mut traces: Vec<_> = (0..32).filter_map(|_| begin().ok()).collect();
        assert_eq!((traces.len(), all.memory.used()), (8, TRACES_SIZE));
        let refused = begin().map(drop).unwrap_err().to_string();
        assert!(refused.contains("bytes that clients may use are in use"), "{refused}");
        traces.pop();
        begin().unwrap();
        // No trace has ended another one: all wait for frames.
        let waits = |trace: &mut Stream| trace.next(Duration::ZERO) == Traced::Nothing;
        assert!(traces.iter_mut().all(waits));
    }

    /// A follower of two clients tells both, and goes on for the one that is left.
    #[test]
    fn two_clients_are_told_of_the_same_frames() {
        let (mut first, mut one) = follow("");
        let (second, mut other) = follow("drop=dt");
        first.all.extend(second.all);
        let mut follower = first;
        drop_one(&mut follower, 1);
        for stream in [&mut one, &mut other] {
            assert!(matches!(stream.next(Duration::ZERO), Traced::Path(path) if path.frame == 1));
        }
        drop(one);
        drop_one(&mut follower, 2);
        assert!(!follower.has_enough());
        assert!(matches!(other.next(Duration::ZERO), Traced::Path(path) if path.frame == 2));
        drop(other);
        assert!(follower.has_enough());
    }

    #[test]
    fn paths_that_nobody_takes_use_no_more_memory_than_they_may() {
        let (send, receive) = sync_channel(PATHS_MAX);
        let trace = trace("", true);
        let mut stream = stream(trace.clone(), receive);
        let mut follower = follower(trace.clone(), send);
        for frame in 1..=1_000 {
            follower.listen(Instant::ZERO, &Event::Rx { frame, port: 0, len: 60, digest: 0 });
            follower.bytes(frame, &[0; 9_000]);
            follower.listen(Instant::ZERO, &Event::Drop { frame, port: 0, reason: "dt" });
        }
        let waiting = trace.waiting.load(Ordering::Relaxed);
        assert!((WAITING_MAX - 20_000..=WAITING_MAX).contains(&waiting), "{waiting} bytes");
        stream.left = u64::MAX;
        let told =
            (0..1_000).take_while(|_| stream.next(Duration::ZERO) != Traced::Nothing).count();
        assert!((50..200).contains(&told), "{told} paths");
        assert_eq!(trace.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_slow_client_loses_paths_and_is_told_of_the_end() {
        let (mut follower, mut stream) = follow("");
        assert_eq!(stream.next(Duration::ZERO), Traced::Nothing);
        for frame in 1..=3 {
            drop_one(&mut follower, frame); // the queue has room for one
        }
        let Traced::Path(first) = stream.next(Duration::ZERO) else { panic!("no path") };
        assert_eq!(first.frame, 1);
        drop(follower);
        let end = json!({ "reason": "the switch stopped" });
        assert_eq!(stream.next(Duration::ZERO), Traced::Ended(end));
    }
}
