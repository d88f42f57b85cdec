//! Follower: the thread that keeps the kernel in step with the switch.
//!
//! A look every few milliseconds, until it is dropped.
//!
//! Units: milliseconds.
//! Source: ARCHITECTURE.md "Control".

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

/// How often it looks for what was learnt.
const LOOK: Duration = Duration::from_millis(5);
/// How often outputs are asked whether they take redirected frames.
const OUTPUTS: Span = Span::from_ms(100);
/// How often ages are carried over.
const AGES: Span = Span::from_ms(500);
/// The share of time that comparing the whole table, or asking for all ages, may take: one in these.
const SHARE: u64 = 20;

/// The thread.
pub(super) struct Follower {
    stop: Option<Sender<()>>,
    /// It may end.
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
        let asked = Arc::new(AtomicBool::new(false));
        let may = asked.clone();
        let ends = Ends::when(move || may.load(Ordering::Acquire));
        let thread = threads::spawn(Role::Express, "weft-express", ends, run);
        Self { stop: Some(stop), asked, thread: thread.ok() } // without it no station is ever known
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.asked.store(true, Ordering::Release); // before it can see the end
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join()); // one that panicked has said so itself
        }
    }
}

/// How long to leave off after something that took so long.
const fn rest(span: Span) -> Span {
    Span::from_ns(span.as_ns() * SHARE)
}

/// When what is due.
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
        state.follow_blocks(core)?;
        state.mirror.learn(&mut state.xdp, &core.fdb)?;
        state.fabric.follow(&mut state.xdp, core)?;
        let Some(snapshot) = &state.snapshot else { return Ok(()) };
        if begun >= self.compare && state.mirror.is_outdated(&core.fdb, snapshot) {
            state.mirror.compare(&mut state.xdp, &core.fdb, snapshot, begun)?;
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
