//! The thread that keeps the kernel's maps in step with the switch: a look every few milliseconds.
//!
//! Source: ARCHITECTURE.md "Control"; docs/express.md.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_base::threads::{self, Ends, Role};
use weft_dataplane::pipeline::Core;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::worker::Clock;
use weft_xdp::XdpError;

use super::{Shared, State};

/// Time between two looks: a learned station is in the kernel's table after so long at most.
const LOOK: Duration = Duration::from_millis(5);
/// Time between two questions whether outputs take redirected frames.
const OUTPUTS: Span = Span::from_ms(100);
/// Time between two refreshes of the ages of stations.
const AGES: Span = Span::from_ms(500);
/// A long round may take one in so many parts of the time: comparing the whole table, or asking for all ages.
const SHARE: u64 = 20;

/// Owns the thread; dropping it ends the thread.
pub(super) struct Follower {
    stop: Option<Sender<()>>,
    /// Tells the register of threads that the thread may end.
    asked: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Follower {
    pub(super) fn start(shared: Arc<Shared>, core: Arc<Core>, clock: Clock) -> Self {
        let (stop, stopped) = mpsc::channel();
        let run = move || {
            let mut rounds = Rounds::begin(clock.now());
            while stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                rounds.look(&shared, &core, clock);
            }
        };
        // The thread sleeps on the channel, whose end wakes it; the flag is for `Ends`, which must not wait.
        let asked = Arc::new(AtomicBool::new(false));
        let may = asked.clone();
        let ends = Ends::when(move || may.load(Ordering::Acquire));
        let thread = threads::spawn(Role::Express, "weft-express", ends, run);
        // Without the thread no station gets into the kernel's table, and the pipeline forwards every frame.
        Self { stop: Some(stop), asked, thread: thread.ok() }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        // Before the thread can see the end of the channel, or it would count as lost.
        self.asked.store(true, Ordering::Release);
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join()); // one that panicked has said so itself
        }
    }
}

/// Pause after a round that took `span`.
const fn rest(span: Span) -> Span {
    Span::from_ns(span.as_ns() * SHARE)
}

/// When the long rounds are due next.
struct Rounds {
    compare: Instant,
    outputs: Instant,
    ages: Instant,
}

impl Rounds {
    fn begin(now: Instant) -> Self {
        Self { compare: now, outputs: now, ages: now + AGES }
    }

    fn look(&mut self, shared: &Shared, core: &Core, clock: Clock) {
        // Held for the whole look, so that a reload and this look do not mix their writes.
        let mut state = shared.lock();
        let looked = self.try_look(&mut state, core, clock);
        state.note(looked);
    }

    fn try_look(&mut self, state: &mut State, core: &Core, clock: Clock) -> Result<(), XdpError> {
        let begun = clock.now();
        if begun >= self.outputs {
            state.look_at_outputs();
            self.outputs = begun + OUTPUTS;
        }
        // Blocked ports first: until then the kernel goes on forwarding in the loop.
        state.follow_blocks(core)?;
        state.mirror.learn(&mut state.xdp, &core.fdb)?;
        state.fabric.follow(&mut state.xdp, core)?;
        let Some(snapshot) = &state.snapshot else { return Ok(()) };
        // Events are followed at each look; the table is compared only when some may be missing.
        if begun >= self.compare && state.mirror.is_outdated(&core.fdb, snapshot) {
            state.mirror.compare(&mut state.xdp, &core.fdb, snapshot, begun)?;
            // Rests in proportion to the time that it took: with a large table the lock is free most of the time.
            self.compare = begun + rest(clock.now().since(begun));
        }
        if begun >= self.ages {
            let asked = clock.now();
            state.mirror.refresh(&mut state.xdp, &core.fdb, asked)?;
            self.ages = begun + AGES.max(rest(clock.now().since(asked)));
        }
        Ok(())
    }
}
