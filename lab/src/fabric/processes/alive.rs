//! Both ends of a pipe tell each other that they are alive, because the connection below it, such as ssh(1), may be cut
//! off without an end of file.
//!
//! [`Beat::start`] sends a line every second; [`Heard`] knows whether the other end has been silent for too long.
//!
//! Source: docs/fabric.md "Over several machines".

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use weft_dataplane::time::{Instant, Span};

use crate::clock;

/// Time between two signs of life.
const EVERY: Duration = Duration::from_secs(1);
/// Silence after which the other end counts as lost.
const LOST: Span = Span::from_ms(15_000);

/// Sends signs of life until it is dropped, or until sending fails.
#[derive(Debug)]
pub(super) struct Beat {
    /// Dropping it wakes and ends the thread.
    _until: Sender<()>,
}

impl Beat {
    /// Calls `say` every second in a thread of its own, because other work of this end may take long.
    ///
    /// # Errors
    /// The kernel refuses a thread.
    pub fn start(mut say: impl FnMut() -> io::Result<()> + Send + 'static) -> io::Result<Self> {
        let (until, ended) = mpsc::channel::<()>();
        let beat = move || {
            while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
                if say().is_err() {
                    return; // the reader of the pipe sees its end itself
                }
            }
        };
        thread::Builder::new().name("alive".to_owned()).spawn(beat)?;
        Ok(Self { _until: until })
    }
}

/// Time of the last line from the other end.
#[derive(Debug, Default)]
pub(super) struct Heard {
    last: Option<Instant>,
}

impl Heard {
    /// Records a line from the other end, or the end of a time without listening.
    pub fn now(&mut self) {
        self.last = Some(clock::now());
    }

    /// Whether the other end has been silent for too long. Never before its first line, because connecting may take
    /// long.
    pub fn is_lost(&self) -> bool {
        self.is_lost_at(clock::now())
    }

    /// Text of a loss, for messages.
    pub fn lost() -> String {
        format!("is lost: nothing came from it for {} s", LOST.as_ns() / 1_000_000_000)
    }

    fn is_lost_at(&self, now: Instant) -> bool {
        self.last.is_some_and(|last| now.since(last) >= LOST)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Weak};

    use weft_base::wait;

    use super::*;

    #[test]
    fn who_was_heard_once_is_lost_when_silent_for_too_long() {
        let mut heard = Heard::default();
        assert!(!heard.is_lost_at(Instant::from_ps(u64::MAX)), "not heard yet");
        heard.last = Some(Instant::from_ns(1_000_000_000));
        assert!(!heard.is_lost_at(Instant::from_ns(15_999_999_999)));
        assert!(heard.is_lost_at(Instant::from_ns(16_000_000_000)));
        heard.now();
        assert!(!heard.is_lost());
    }

    #[test]
    fn a_beat_ends_with_what_it_is_for_and_with_its_pipe() {
        let count = Arc::new(AtomicU32::new(0));
        let (said, left) = (Arc::clone(&count), Arc::downgrade(&count));
        let beat = Beat::start(move || {
            said.fetch_add(1, Ordering::Relaxed);
            Ok(())
        });
        drop(count);
        let now = |left: &Weak<AtomicU32>| left.upgrade().map(|at| at.load(Ordering::Relaxed));
        wait::until(wait::LONG, "two beats", || (now(&left) >= Some(2)).then_some(()));
        drop(beat);
        wait::until(wait::LONG, "its end", || now(&left).is_none().then_some(()));

        let kept = Arc::new(());
        let (mine, left) = (Arc::clone(&kept), Arc::downgrade(&kept));
        drop(kept);
        let _beat = Beat::start(move || {
            let _ = &mine;
            Err(io::ErrorKind::BrokenPipe.into())
        });
        wait::until(wait::LONG, "its end", || left.upgrade().is_none().then_some(()));
    }
}
