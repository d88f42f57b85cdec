//! Where workers run, and how early they are let in: processors and priorities, once, at the start.
//!
//! A priority takes a capability that a switch does not keep. So a thread is made before it is given up ([`Raiser::begin`]),
//! which does for others what they may not do themselves, and ends before the switch is up.
//!
//! [`RunConfig`] → a processor for each worker, or a refusal; threads → what holds for them, or a warning.
//!
//! Units: numbers of processors as Linux has them.
//! Source: sched(7), capabilities(7); docs/privileges.md.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use weft_base::priority::{self, Priority};
use weft_base::processors::{self, Processors, Reach};
use weft_base::threads::{self, Ends, Role, ThreadId};
use weft_config::resolve::RunConfig;

/// Why workers cannot run as they are to.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// There is no such processor.
    #[error("{key}: expected processors of this machine ({present}), found {core}")]
    Absent {
        /// The key that names it.
        key: &'static str,
        /// Its number.
        core: usize,
        /// Those that there are.
        present: Processors,
    },
    /// Not everybody may be let in so early.
    #[error(
        "run.priority = {}: needs CAP_SYS_NICE, or {}; a higher nice value needs nothing", said(*priority), limit(*priority)
    )]
    Priority {
        /// What was asked for.
        priority: Priority,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn said(priority: Priority) -> String {
    match priority {
        Priority::Nice(nice) => nice.to_string(),
        Priority::RoundRobin => "\"rr\"".to_owned(),
    }
}

/// The limit that permits it.
fn limit(priority: Priority) -> String {
    match priority {
        Priority::Nice(nice) => format!("a limit of nice values (`ulimit -e {}`)", 20 - nice),
        Priority::RoundRobin => "a limit of real-time priorities (`ulimit -r 1`)".to_owned(),
    }
}

/// A question to the thread of a [`Raiser`], and where its answer goes.
type Ask = (ThreadId, Priority, Sender<io::Result<()>>);

/// Gives threads priorities, with the rights of the time at which it was made.
pub struct Raiser {
    ask: Option<Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
}

impl Raiser {
    /// Starts the thread, which has the capabilities that the calling one has now.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn begin() -> io::Result<Self> {
        weft_base::memory::share_one_arena(); // it is the first thread
        let (ask, asked): (Sender<Ask>, Receiver<Ask>) = channel();
        let thread = threads::spawn(Role::Device, "weft-raise", Ends::Freely, move || {
            for (thread, priority, answer) in asked {
                drop(answer.send(priority::set(thread, priority)));
            }
        })?;
        Ok(Self { ask: Some(ask), thread: Some(thread) })
    }

    /// Gives `thread` a priority.
    ///
    /// # Errors
    /// The kernel's answer.
    pub fn set(&self, thread: ThreadId, priority: Priority) -> io::Result<()> {
        let (answer, answered) = channel();
        let gone = || io::Error::other("the thread that raises priorities is gone");
        let ask = self.ask.as_ref().ok_or_else(gone)?;
        ask.send((thread, priority, answer)).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

impl Drop for Raiser {
    fn drop(&mut self) {
        drop(self.ask.take()); // it ends
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Where workers run, and what is to be known of it.
pub struct Placement<'a> {
    /// What is configured.
    pub run: &'a RunConfig,
    raiser: Option<Raiser>,
    /// What is allowed but doubtful.
    pub warnings: Vec<String>,
}

impl<'a> Placement<'a> {
    /// That of the workers of `run`; `raiser` does what this process may not do any more.
    ///
    /// # Errors
    /// A processor that the machine does not have.
    pub fn new(run: &'a RunConfig, raiser: Option<Raiser>) -> Result<Self, PlacementError> {
        let unusable = unusable("run.cores", run.cores.iter().take(run.workers))?;
        let warnings =
            unusable.into_iter().map(|why| format!("{why}: its worker is bound to none")).collect();
        Ok(Self { run, raiser, warnings })
    }

    /// Binds worker `index`, which is `thread`, to its processor: as configured, else the last ones first, away from the
    /// interrupts that usually land on processor 0, or none where there are more workers than processors. Gives it its priority.
    ///
    /// # Errors
    /// The priority is not permitted.
    pub fn place(&mut self, index: usize, thread: ThreadId) -> Result<(), PlacementError> {
        if let Some(core) = core_for(&self.run.cores, index)
            && let Err(error) = processors::bind(thread.pid(), core)
            // What is configured and cannot be had was told before.
            && self.run.cores.is_empty()
        {
            self.warnings.push(format!("worker {index} is not bound to processor {core}: {error}"));
        }
        let Some(priority) = self.run.priority else { return Ok(()) };
        self.raise(thread, priority).map_err(|source| PlacementError::Priority { priority, source })
    }

    /// Has a thread that hardly ever runs come before all of the normal policy, where that is permitted.
    pub fn prefer(&self, thread: ThreadId) {
        // As it is, it works in all but the busiest moments.
        drop(self.raise(thread, Priority::RoundRobin));
    }

    fn raise(&self, thread: ThreadId, priority: Priority) -> io::Result<()> {
        match &self.raiser {
            Some(raiser) => raiser.set(thread, priority),
            None => priority::set(thread, priority),
        }
    }
}

/// What is wrong with those of `cores` that cannot be had here, though the machine has them.
///
/// # Errors
/// The machine does not have one.
fn unusable<'a>(
    key: &'static str,
    cores: impl Iterator<Item = &'a usize>,
) -> Result<Vec<String>, PlacementError> {
    let mut all = Vec::new();
    for &core in cores {
        let reach = processors::reach(core);
        if reach == Reach::Usable {
            continue;
        }
        if reach == Reach::Absent
            && let Some(present) = Processors::present()
        {
            return Err(PlacementError::Absent { key, core, present });
        }
        let allowed = Processors::allowed().map(|allowed| format!(" ({allowed})"));
        all.push(format!(
            "{key}: processor {core} is off line, or not among those that this process may use{}",
            allowed.unwrap_or_default()
        ));
    }
    Ok(all)
}

/// Refuses processors for a measurement that cannot be had, or are named twice.
///
/// # Errors
/// What is wrong.
pub fn refuse_unusable(key: &'static str, cores: &[usize]) -> Result<(), String> {
    if let Some(core) = processors::repeated(cores) {
        return Err(format!("{key}: expected each processor once, found {core} twice"));
    }
    let unusable = unusable(key, cores.iter()).map_err(|error| error.to_string())?;
    unusable.into_iter().next().map_or(Ok(()), Err)
}

/// The processor of worker `index`, if it has one to itself.
#[must_use]
pub fn core_for(configured: &[usize], index: usize) -> Option<usize> {
    if !configured.is_empty() {
        return configured.get(index).copied();
    }
    Processors::allowed().ok()?.from_last(index)
}
