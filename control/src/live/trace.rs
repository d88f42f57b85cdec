//! Traces of a running switch: its workers tell, one client is told.
//!
//! Shape: events of all workers → [`Paths`] → those that are wanted, in a queue → [`Stream`].
//! Units: as the events say.
//! Source: issue 2, "`weft trace`"; pipeline.md §13.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::json;
use weft_dataplane::time::Instant;
use weft_dataplane::trace::{Event, Listen};
use weft_dataplane::worker::Crew;

use crate::express::Watch;
use crate::mgmt::{TraceStream, Traced};
use crate::paths::{Filter, Path, Paths, ShownPath};

/// Paths that wait for a trace's client; more are lost to it.
const PATHS_MAX: usize = 4_096;

/// Has all of `crew` tell the paths of frames that `filter` wants, with their octets or without;
/// `ports` are the names of the switch's ports.
#[must_use]
pub fn begin(crew: &Crew, filter: Filter, count: u64, octets: bool, ports: Vec<String>) -> Stream {
    let (send, receive) = sync_channel(PATHS_MAX);
    let trace = Trace { paths: Mutex::default(), filter, octets, is_over: AtomicBool::new(false) };
    let trace = Arc::new(trace);
    for worker in 0..crew.len() {
        crew.trace(worker, Box::new(Follower { trace: trace.clone(), send: send.clone() }));
    }
    Stream { trace, receive, left: count, ports, watch: None }
}

/// What all who take part share: a frame may come in at one worker and leave by another.
struct Trace {
    paths: Mutex<Paths>,
    filter: Filter,
    /// Whether frames' octets are wanted.
    octets: bool,
    /// Nobody is there any more to be told.
    is_over: AtomicBool,
}

impl Trace {
    fn paths(&self) -> MutexGuard<'_, Paths> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Follows frames in a worker and sends wanted paths to the client, until that is gone.
struct Follower {
    trace: Arc<Trace>,
    send: SyncSender<Path>,
}

impl Listen for Follower {
    fn listen(&mut self, now: Instant, event: &Event) {
        let path = self.trace.paths().feed(now, event);
        if let Some(path) = path.filter(|path| self.trace.filter.wants(path)) {
            // A full queue loses the path: the switch does not wait for a client.
            drop(self.send.try_send(path));
        }
    }

    fn octets(&mut self, frame: u64, octets: &[u8]) {
        if self.trace.octets {
            self.trace.paths().keep(frame, octets);
        }
    }

    fn has_enough(&self) -> bool {
        self.trace.is_over.load(Ordering::Relaxed) // nothing else depends on it
    }
}

/// Paths for one client; the workers are left alone once it is dropped.
pub struct Stream {
    trace: Arc<Trace>,
    receive: Receiver<Path>,
    left: u64,
    ports: Vec<String>,
    /// Has all frames come to the workers.
    watch: Option<Watch>,
}

impl Stream {
    /// Keeps `watch` as long as somebody is told.
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

    fn follow(filter: &str) -> (Follower, Stream) {
        let (send, receive) = sync_channel(1);
        let filter = Filter::parse(filter, |_| None).unwrap();
        let is_over = AtomicBool::new(false);
        let trace = Arc::new(Trace { paths: Mutex::default(), filter, octets: false, is_over });
        let follower = Follower { trace: trace.clone(), send };
        (follower, Stream { trace, receive, left: 2, ports: Vec::new(), watch: None })
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
