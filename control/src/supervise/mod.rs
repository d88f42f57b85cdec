//! Supervision of a process that serves: no thread ends unnoticed, no signal is missed, no stop lasts for ever.
//!
//! [`Supervisor::begin`] comes before all else. [`Supervisor::wait`] runs in the main thread until a signal asks for a
//! stop. A thread of its own looks after the main thread, and ends the process when a stop takes too long. Time is
//! counted in looks, ten a second: while the process is suspended none goes by, so that it is not taken for stuck
//! afterwards.
//!
//! Source: signal(7), systemd.service(5); docs/running.md "Exit codes", "Signals".

mod notify;

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use weft_base::memory;
use weft_base::threads::{self, Ends, Role};
use weft_base::wait;
use weft_dataplane::time::{Instant, Span};

use crate::exit::ExitCode;
use crate::log::{Level, Log, say_in_time};
use weft_lab::clock;

pub use notify::Notifier;

/// Time between two looks, of both threads.
const LOOK: Duration = Duration::from_millis(100);
/// Looks in which the main thread does not move, after which it counts as lost: 3 s.
const MAIN_MISSED: u32 = 30;
/// How long a stop may take without progress, such as a port that is closed. SIGTERM is to be done in 5 s if something
/// is stuck.
const STOP_STEP_MAX: Span = Span::from_ms(4_000);
/// How long a stop may take in all: `TimeoutStopSec` of the unit is 10 s.
const STOP_MAX: Span = Span::from_ms(9_000);
/// Looks in which a worker does not move, after which the service manager is no longer told that all is well.
pub const WELL_MISSED: u32 = 5;

/// State that the main thread and the watching one share.
#[derive(Default)]
struct Shared {
    /// The signal that asked for the stop; 0 before.
    stop: Arc<AtomicUsize>,
    /// Looks of the main thread; they are checked while `waits` is set.
    beat: AtomicU64,
    waits: AtomicBool,
}

/// Supervises a process that serves.
pub struct Supervisor {
    shared: Arc<Shared>,
    /// Readable after a signal.
    wake: UnixStream,
    reload: Arc<AtomicBool>,
    log: Log,
    notifier: Notifier,
}

/// A `look` for [`Supervisor::wait`] of a process that has no configuration to read again and no workers.
pub fn no_reload(notifier: &mut Notifier, is_hup: bool) -> bool {
    if is_hup {
        notifier.reloading();
        notifier.ready();
    }
    true
}

/// Why a process cannot be supervised.
#[derive(Debug, thiserror::Error)]
#[error("{tried}")]
pub struct BeginError {
    pub tried: &'static str,
    pub source: io::Error,
}

impl Supervisor {
    /// Takes signals from now on, and starts the thread that watches this one. Errors later on go to `log`.
    ///
    /// # Errors
    /// The kernel refuses signals, or gives no thread.
    pub fn begin(log: Log) -> Result<Self, BeginError> {
        let failed = |tried: &'static str| move |source: io::Error| BeginError { tried, source };
        memory::share_one_arena(); // before there are threads
        let shared = Arc::new(Shared::default());
        let reload = Arc::new(AtomicBool::new(false));
        let (wake, ring) = UnixStream::pair().map_err(failed("wait for signals"))?;
        // `rest` empties the socket until nothing is left: it must not wait.
        wake.set_nonblocking(true).map_err(failed("wait for signals"))?;
        signals(&shared.stop, &reload, &ring).map_err(failed("wait for signals"))?;
        threads::enter(Role::Main, "weft-main");
        let own = shared.clone();
        // The thread ends with the process only: output that is written at the very end may block for ever, too.
        threads::spawn(Role::Events, "weft-watch", Ends::when(|| false), move || watch(&own, log))
            .map_err(failed("start a thread"))?;
        Ok(Self { shared, wake, reload, log, notifier: Notifier::from_env() })
    }

    /// For a process whose main thread does not wait here: tells the service manager that it is up. Threads are
    /// watched, and a stop that takes too long is aborted, all the same.
    pub fn is_up(&mut self) {
        self.notifier.ready();
    }

    /// Waits until a signal asks for a stop, and returns its name. `look` is called ten times a second and told whether
    /// SIGHUP has come. It returns whether the service manager may be told that all is well, and must not take long.
    ///
    /// Does not return when a thread has ended unasked: then the process ends.
    pub fn wait(&mut self, mut look: impl FnMut(&mut Notifier, bool) -> bool) -> &'static str {
        self.notifier.ready();
        self.shared.waits.store(true, Ordering::Release); // pairs with `watch`
        let signal = loop {
            // A main thread that hangs in `look` stops counting here, and `watch` ends the process.
            self.shared.beat.fetch_add(1, Ordering::Relaxed); // a count
            if let Some(lost) = threads::lost() {
                end(lost.role.exit_code(), &lost.to_string(), self.log);
            }
            let signal = self.shared.stop.load(Ordering::Acquire);
            if signal != 0 {
                break signal;
            }
            // Cleared before the configuration is read: a SIGHUP during the reading leads to another one.
            let is_hup = self.reload.swap(false, Ordering::AcqRel);
            if look(&mut self.notifier, is_hup) {
                self.notifier.is_well(clock::now());
            }
            self.notifier.flush();
            self.rest();
        };
        // From here on the main thread stops the switch, which takes as long as it takes: `watch` holds the stop's own
        // limits.
        self.shared.waits.store(false, Ordering::Release);
        let signal = i32::try_from(signal).unwrap_or(SIGTERM);
        let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
        self.notifier.stopping(&format!("stopping on {name}"));
        name
    }

    /// Sleeps until a signal comes or the next look is due.
    fn rest(&mut self) {
        let timeout = Timespec::try_from(LOOK).ok();
        let mut fds = [PollFd::new(&self.wake, PollFlags::IN)];
        let _ = poll(&mut fds, timeout.as_ref()); // an interrupted wait only comes back sooner
        // Signals may have written many bytes; all of them are for the one look that follows.
        let mut rings = [0; 64];
        while self.wake.read(&mut rings).is_ok_and(|count| count > 0) {} // until nothing is there
    }
}

/// Has signals set flags, and wake the reader of `ring`.
fn signals(stop: &Arc<AtomicUsize>, reload: &Arc<AtomicBool>, ring: &UnixStream) -> io::Result<()> {
    for (signal, value) in [(SIGINT, 2), (SIGTERM, 15)] {
        // The flag is registered before the pipe: a reader that the byte wakes finds it set.
        signal_hook::flag::register_usize(signal, stop.clone(), value)?;
        signal_hook::low_level::pipe::register(signal, ring.try_clone()?)?;
    }
    signal_hook::flag::register(SIGHUP, reload.clone())?;
    signal_hook::low_level::pipe::register(SIGHUP, ring.try_clone()?)?;
    // Ignored: its default action would end the process.
    signal_hook::flag::register(SIGUSR1, Arc::default())?;
    Ok(())
}

/// Watches the main thread, and aborts a stop that takes too long. It takes no lock but that of the register of
/// threads: a thread that is stuck may hold any other.
fn watch(shared: &Shared, log: Log) -> ! {
    let (mut seen, mut missed) = (0, 0);
    let mut stop = None;
    loop {
        wait::pause(LOOK);
        #[cfg(debug_assertions)]
        hook();
        // Also looked at by the main thread; but that may be stuck, or not be in `wait`.
        if let Some(lost) = threads::lost() {
            end(lost.role.exit_code(), &lost.to_string(), log);
        }
        let beat = shared.beat.load(Ordering::Relaxed);
        // Pairs with the Release stores of `wait`. Outside of it the main thread has work of any length.
        let waits = shared.waits.load(Ordering::Acquire);
        missed = if waits && beat == seen { missed + 1 } else { 0 };
        seen = beat;
        if missed >= MAIN_MISSED {
            end(Role::Main.exit_code(), "thread weft-main has ended, or is stuck", log);
        }
        if shared.stop.load(Ordering::Acquire) != 0 {
            let now = clock::now();
            let stop = stop.get_or_insert_with(|| Stop::begin(now));
            if let Some(why) = stop.late(now, threads::steps()) {
                end(ExitCode::Late as u8, why, log);
            }
        }
    }
}

/// Progress of a stop.
struct Stop {
    steps: u64,
    deadline: Instant,
    last: Instant,
}

impl Stop {
    fn begin(now: Instant) -> Self {
        Self { steps: threads::steps(), deadline: now + STOP_STEP_MAX, last: now + STOP_MAX }
    }

    /// The reason to abort the stop, if it has taken too long.
    fn late(&mut self, now: Instant, steps: u64) -> Option<&'static str> {
        // A stop of many ports is long but moves on; one that is stuck makes no step.
        if steps != self.steps {
            (self.steps, self.deadline) = (steps, now + STOP_STEP_MAX);
        }
        if self.last <= now {
            Some(
                "the stop took longer than 9 s and was aborted; output that was not written is lost",
            )
        } else if self.deadline <= now {
            Some(
                "the stop took longer than 4 s without a step further and was aborted; output that was not written is lost",
            )
        } else {
            None
        }
    }
}

/// Ends the process, with a line that says why, if that can be written in time.
fn end(code: u8, why: &str, log: Log) -> ! {
    let text = format!("{why}; the process ends, exit code {code}");
    say_in_time(&log.line(Level::Error, "ended", &text));
    // Sent without waiting: a service manager that does not read must not hold up the end.
    Notifier::from_env().stopping(why);
    threads::end_process(code)
}

/// How the heartbeats of workers move, as seen by one thread.
#[derive(Clone, Debug, Default)]
pub struct Heartbeats {
    /// By worker, its number of passes at the last look, and the looks at which that was the same.
    seen: Vec<(u64, u32)>,
}

impl Heartbeats {
    /// Takes the passes of all workers; returns, by worker, the number of looks for which each has stood still.
    pub fn look(&mut self, beats: impl Iterator<Item = u64>) -> impl Iterator<Item = u32> + '_ {
        for (at, beat) in beats.enumerate() {
            match self.seen.get_mut(at) {
                Some((seen, missed)) if *seen == beat => *missed += 1,
                Some(slot) => *slot = (beat, 0),
                None => self.seen.push((beat, 0)),
            }
        }
        self.seen.iter().map(|(_, missed)| *missed)
    }
}

/// Ends or stalls a thread for a test: `WEFT_TEST_HOOK` names a file that holds `exit NAME`, `stall NAME`, `away NAME`
/// (300 ms) or `pause NAME` (4 s). The file is removed when that is done. Not in a release build.
#[cfg(debug_assertions)]
fn hook() {
    use weft_base::files::{self, OpenedBy};
    use weft_base::threads::hook::{Fault, end};
    let Some(path) = std::env::var_os("WEFT_TEST_HOOK") else { return };
    let Ok(text) = files::read_text(&path, OpenedBy::Service, 256) else { return };
    let fault = match text.split_once(' ') {
        Some(("exit", name)) => Some((name, Fault::Exit)),
        Some(("stall", name)) => Some((name, Fault::Stall)),
        Some(("away", name)) => Some((name, Fault::Away { ms: 300 })),
        // Longer than control waits once for a worker, and shorter than it does again and again.
        Some(("pause", name)) => Some((name, Fault::Away { ms: 4_000 })),
        _ => None,
    };
    let Some((name, fault)) = fault else { return };
    // The file goes first: the thread that is to end may be this one.
    let _ = std::fs::remove_file(&path);
    if !end(name.trim_end(), fault) {
        // Tells the test that no thread has this name.
        let _ = std::fs::write(path, "none");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_counts_looks_at_which_a_worker_stood_still() {
        let mut heartbeats = Heartbeats::default();
        let mut look = |beats: [u64; 2]| heartbeats.look(beats.into_iter()).collect::<Vec<_>>();
        assert_eq!(look([5, 5]), [0, 0], "the first look knows nothing");
        assert_eq!(look([5, 6]), [1, 0]);
        assert_eq!(look([5, 6]), [2, 1]);
        assert_eq!(look([0, 6]), [0, 2]);
    }

    #[test]
    fn a_stop_may_take_longer_while_it_goes_on_but_not_for_ever() {
        let at = |ms| Instant::from_ns(ms * 1_000_000);
        let begin = || Stop { steps: 0, ..Stop::begin(at(0)) };
        let mut stands = begin();
        assert_eq!(stands.late(at(3_999), 0), None);
        assert!(stands.late(at(4_000), 0).is_some_and(|why| why.contains("4 s without a step")));
        let mut goes_on = begin();
        for steps in 0..9 {
            assert_eq!(goes_on.late(at(steps * 1_000), steps), None, "{steps}");
        }
        assert!(goes_on.late(at(9_000), 9).is_some_and(|why| why.contains("longer than 9 s")));
        let mut stands_again = begin();
        assert_eq!(stands_again.late(at(3_000), 1), None);
        assert_eq!(stands_again.late(at(6_999), 1), None);
        assert!(stands_again.late(at(7_000), 1).is_some());
    }
}
