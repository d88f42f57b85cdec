//! Where workers run and at which priority: processors and scheduling policies, set once at the start.
//!
//! A raised priority takes `CAP_SYS_NICE`, which a running switch does not keep. So a thread is made before the
//! capability is given up ([`Raiser::begin`]); it sets priorities for the others on request, and ends before the switch
//! is up. A processor that the machine does not have is refused. One that exists but cannot be had gives a warning.
//!
//! Processors are numbered as Linux numbers them.
//! Source: sched(7), capabilities(7); docs/privileges.md.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use weft_base::priority::{self, Priority};
use weft_base::processors::{self, Processors, Reach};
use weft_base::threads::{self, Ends, Role, ThreadId};
use weft_config::resolve::RunConfig;

/// Why workers cannot run as configured.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The configuration names a processor that the machine does not have.
    #[error("{key}: expected processors of this machine ({present}), found {core}")]
    Absent {
        /// Parameter of the configuration that names it.
        key: &'static str,
        core: usize,
        present: Processors,
    },
    /// The process may not have the configured priority.
    #[error(
        "run.priority = {}: needs CAP_SYS_NICE, or {}; a higher nice value needs nothing", said(*priority), limit(*priority)
    )]
    Priority { priority: Priority, source: io::Error },
}

fn said(priority: Priority) -> String {
    match priority {
        Priority::Nice(nice) => nice.to_string(),
        Priority::RoundRobin => "\"rr\"".to_owned(),
    }
}

/// The resource limit that would permit `priority` without the capability.
fn limit(priority: Priority) -> String {
    match priority {
        Priority::Nice(nice) => format!("a limit of nice values (`ulimit -e {}`)", 20 - nice),
        Priority::RoundRobin => "a limit of real-time priorities (`ulimit -r 1`)".to_owned(),
    }
}

/// A request to the thread of a [`Raiser`], with the channel for its answer.
type Ask = (ThreadId, Priority, Sender<io::Result<()>>);

/// Sets priorities of threads, with the capabilities that its own thread was made with.
pub struct Raiser {
    ask: Option<Sender<Ask>>,
    thread: Option<JoinHandle<()>>,
}

impl Raiser {
    /// Starts the thread, which keeps the capabilities that the calling thread has now.
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

/// The placement of a switch's workers, with the problems found on the way.
pub struct Placement<'a> {
    pub run: &'a RunConfig,
    raiser: Option<Raiser>,
    /// Problems that do not stop the start, such as a processor that is off line.
    pub warnings: Vec<String>,
}

impl<'a> Placement<'a> {
    /// Checks the processors of `run`; `raiser` sets the priorities that this process may no longer set itself.
    ///
    /// # Errors
    /// A processor that the machine does not have.
    pub fn new(run: &'a RunConfig, raiser: Option<Raiser>) -> Result<Self, PlacementError> {
        let unusable = unusable("run.cores", run.cores.iter().take(run.workers))?;
        let warnings =
            unusable.into_iter().map(|why| format!("{why}: its worker is bound to none")).collect();
        Ok(Self { run, raiser, warnings })
    }

    /// Binds worker `index`, which is `thread`, to its processor and gives it its priority. Without configured
    /// processors the last ones are taken first, away from the interrupts that usually land on processor 0; with more
    /// workers than processors a worker may be bound to none.
    ///
    /// # Errors
    /// The priority is not permitted.
    pub fn place(&mut self, index: usize, thread: ThreadId) -> Result<(), PlacementError> {
        if let Some(core) = core_for(&self.run.cores, index)
            && let Err(error) = processors::bind(thread.pid(), core)
            // `new` has warned of configured processors that cannot be had; a second warning would only repeat it.
            && self.run.cores.is_empty()
        {
            self.warnings.push(format!("worker {index} is not bound to processor {core}: {error}"));
        }
        let Some(priority) = self.run.priority else { return Ok(()) };
        self.raise(thread, priority).map_err(|source| PlacementError::Priority { priority, source })
    }

    /// Runs `thread`, which sleeps nearly always, ahead of all threads of the normal policy, where that is permitted.
    pub fn prefer(&self, thread: ThreadId) {
        // Without the priority the thread still works in all but the busiest moments, so a refusal is no error.
        drop(self.raise(thread, Priority::RoundRobin));
    }

    fn raise(&self, thread: ThreadId, priority: Priority) -> io::Result<()> {
        match &self.raiser {
            Some(raiser) => raiser.set(thread, priority),
            None => priority::set(thread, priority),
        }
    }
}

/// Warnings for those of `cores` that the machine has but this process cannot use.
///
/// # Errors
/// The machine does not have one of them.
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
        // Without a list of processors from the kernel the error could not name them; the warning below stands in for
        // it.
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

/// Refuses processors for a measurement that cannot be used, or that are named twice.
///
/// # Errors
/// The reason, as text for the user.
pub fn refuse_unusable(key: &'static str, cores: &[usize]) -> Result<(), String> {
    if let Some(core) = processors::repeated(cores) {
        return Err(format!("{key}: expected each processor once, found {core} twice"));
    }
    let unusable = unusable(key, cores.iter()).map_err(|error| error.to_string())?;
    unusable.into_iter().next().map_or(Ok(()), Err)
}

/// Processor of worker `index`: as configured, else counted from the last. `None` if there are too few.
#[must_use]
pub fn core_for(configured: &[usize], index: usize) -> Option<usize> {
    if !configured.is_empty() {
        return configured.get(index).copied();
    }
    Processors::allowed().ok()?.from_last(index)
}
