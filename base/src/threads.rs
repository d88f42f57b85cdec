//! Threads that must not end unnoticed: who runs, and who has ended without being asked.
//!
//! [`spawn`] in place of `std::thread::Builder`; [`lost`] is the first thread that panicked, ended
//! unasked, or is gone without a trace. The owner of the process asks for it now and then, and ends
//! the process.
//!
//! Source: gettid(2), tgkill(2), `_exit(2)`; docs/running.md "Exit codes".

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};

use crate::slice;

/// Task of a thread; each has an exit code of its own, so that a supervisor's log tells which one
/// ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Role {
    /// A worker: drives ports.
    Worker = 20,
    /// Keeps the fast path in the kernel in step.
    Express = 21,
    /// A PBR switch's own functions.
    Agent = 22,
    /// Takes or serves connections of fabric managers.
    Cci = 23,
    /// Takes or serves connections of the management socket.
    Management = 24,
    /// Takes or serves connections of the metrics server.
    Metrics = 25,
    /// Does slow work for a port: writes a mirror's file, closes sockets.
    Device = 26,
    /// Looks for events, or writes them to the log.
    Events = 27,
    /// Reads a configuration again.
    Reload = 28,
    /// The fabric manager's service.
    Manager = 29,
    /// Drives a whole fabric in one process.
    Fabric = 30,
    /// Waits for signals and looks after all others.
    Main = 31,
    /// Takes or serves connections of the SAI service.
    Sai = 32,
}

impl Role {
    /// Every role, in the order of definition.
    pub const ALL: [Self; 13] = [
        Self::Worker,
        Self::Express,
        Self::Agent,
        Self::Cci,
        Self::Management,
        Self::Metrics,
        Self::Device,
        Self::Events,
        Self::Reload,
        Self::Manager,
        Self::Fabric,
        Self::Main,
        Self::Sai,
    ];

    /// Whether such a thread never sleeps while there is work for it; all others wait for a client
    /// or an event, and answer.
    const fn polls(self) -> bool {
        matches!(self, Self::Worker | Self::Fabric)
    }

    /// Exit code of a process that ends because such a thread has.
    #[must_use]
    pub const fn exit_code(self) -> u8 {
        self as u8
    }
}

/// When a thread may end.
pub enum Ends {
    /// At any time: it serves one client, or does one piece of work. It must not panic.
    Freely,
    /// Only when this returns true.
    WhenAsked(Box<dyn Fn() -> bool + Send>),
}

impl Ends {
    /// Only when `is_asked` says so.
    pub fn when(is_asked: impl Fn() -> bool + Send + 'static) -> Self {
        Self::WhenAsked(Box::new(is_asked))
    }

    fn may(&self) -> bool {
        match self {
            Self::Freely => true,
            Self::WhenAsked(is_asked) => is_asked(),
        }
    }
}

/// A thread that ended without being asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Task of the thread, which gives the exit code.
    pub role: Role,
    /// Name of the thread, as in `ps -T`.
    pub name: String,
    /// End of a sentence that begins with the name, such as "has panicked: ...".
    pub how: String,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "thread {} {}", self.name, self.how)
    }
}

/// A thread that runs.
struct Running {
    number: u64,
    role: Role,
    name: String,
    id: ThreadId,
}

struct Register {
    next: u64,
    running: Vec<Running>,
    lost: Option<Lost>,
}

static REGISTER: Mutex<Register> =
    Mutex::new(Register { next: 0, running: Vec::new(), lost: None });

fn register() -> MutexGuard<'static, Register> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Register {
    fn enter(&mut self, role: Role, name: &str) -> u64 {
        let number = self.next;
        self.next += 1;
        self.running.push(Running { number, role, name: name.to_owned(), id: ThreadId::own() });
        number
    }

    fn leave(&mut self, number: u64, how: Option<&str>) {
        let Some(at) = self.running.iter().position(|thread| thread.number == number) else {
            return;
        };
        let Running { role, name, .. } = self.running.swap_remove(at);
        if let Some(how) = how {
            self.lose(Lost { role, name, how: how.to_owned() });
        }
    }

    fn lose(&mut self, lost: Lost) {
        self.lost.get_or_insert(lost); // later ones are consequences of the first
    }
}

/// Starts a thread whose end is watched: [`lost`] reports it when it panics, ends before `ends`
/// allows it, or is gone.
///
/// Returns once the thread runs. The standard library maps a signal stack at the start of a thread
/// and aborts the process where that fails: this way a caller that has found room for a thread
/// knows that the thread has taken it.
///
/// # Errors
/// The kernel gives no thread.
pub fn spawn<T: Send + 'static>(
    role: Role,
    name: impl Into<String>,
    ends: Ends,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    spawn_with_id(role, name, ends, run).map(|(thread, _)| thread)
}

/// As [`spawn`], with the thread's kernel id.
///
/// # Errors
/// As for [`spawn`].
pub fn spawn_with_id<T: Send + 'static>(
    role: Role,
    name: impl Into<String>,
    ends: Ends,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<(JoinHandle<T>, ThreadId)> {
    let name = name.into();
    let own = name.clone();
    let (begin, begun) = mpsc::sync_channel(1);
    let thread = Builder::new().name(name).spawn(move || {
        let number = register().enter(role, &own);
        let _ = begin.send(ThreadId::own()); // the caller waits for it
        if !role.polls() {
            slice::shorten();
        }
        let ended = catch_unwind(AssertUnwindSafe(run));
        let how = match &ended {
            Ok(_) if ends.may() => None,
            Ok(_) => Some("has ended unexpectedly".to_owned()),
            Err(panic) => Some(format!("has panicked: {}", message(panic.as_ref()))),
        };
        register().leave(number, how.as_deref());
        match ended {
            Ok(value) => value,
            Err(panic) => resume_unwind(panic), // for the thread that joins it
        }
    })?;
    Ok((thread, begun.recv().map_err(io::Error::other)?))
}

/// Watches the calling thread until the process ends.
pub fn enter(role: Role, name: &str) {
    register().enter(role, name);
}

/// Message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// Steps that the end of the process has taken.
static STEPS: AtomicU64 = AtomicU64::new(0);

/// Counts a step of the end of the process, such as a port that the kernel has closed, which may
/// take its time: the supervisor gives the end more time after each.
pub fn step() {
    STEPS.fetch_add(1, Ordering::Relaxed); // a count
}

/// Drops a thing that the kernel may take its time to close; that is a [`step`].
pub fn close<T>(thing: T) {
    drop(thing);
    step();
}

/// Number of calls of [`step`]; while it stands still, the end makes no progress.
#[must_use]
pub fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}

/// The first thread that ended without being asked.
#[must_use]
pub fn lost() -> Option<Lost> {
    let mut register = register();
    if register.lost.is_none() {
        // a thread that ended in a system call of its own never reached `leave`: only the kernel
        // knows
        let gone = register.running.iter().find(|thread| !thread.id.runs());
        let gone = gone.map(|Running { role, name, .. }| Lost {
            role: *role,
            name: name.clone(),
            how: "has ended without a report".to_owned(),
        });
        if let Some(gone) = gone {
            register.lose(gone);
        }
    }
    register.lost.clone()
}

/// Ends the process at once: no thread is unwound or waited for, and nothing is written.
pub fn end_process(code: u8) -> ! {
    // SAFETY: plain call, which does not return.
    unsafe { libc::_exit(code.into()) }
}

/// The kernel's id of a thread of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadId(pub(crate) libc::pid_t);

impl ThreadId {
    /// Id of the calling thread.
    #[must_use]
    pub fn own() -> Self {
        // SAFETY: plain call, which cannot fail.
        Self(unsafe { libc::gettid() })
    }

    /// The id in rustix's type.
    #[must_use]
    pub const fn pid(self) -> Option<rustix::thread::Pid> {
        rustix::thread::Pid::from_raw(self.0)
    }

    /// Whether there is such a thread of this process; of the main thread also after its end.
    fn runs(self) -> bool {
        self.signal(0)
    }

    fn signal(self, signal: libc::c_int) -> bool {
        let process = std::process::id();
        // SAFETY: plain call with numbers; one that names no thread of ours is refused.
        unsafe { libc::syscall(libc::SYS_tgkill, process, self.0, signal) == 0 }
    }
}

/// Ends of threads for tests, at any place: faults that no code of ours has.
///
/// Only in builds with `debug_assertions`, and only for a process that asks for it.
#[cfg(debug_assertions)]
pub mod hook {
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::register;

    /// Fault that a test gives a thread: it ends untold, or hangs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Fault {
        /// It ends as by `exit(2)` of its own: no unwinding, no drop, no report.
        Exit,
        /// It hangs for good.
        Stall,
        /// It hangs for some time, as if the scheduler ran others, and goes on.
        Away {
            /// Milliseconds until it goes on.
            ms: u32,
        },
    }

    static AWAY_MS: AtomicI64 = AtomicI64::new(0);

    extern "C" fn away(_signal: libc::c_int) {
        let ms = AWAY_MS.load(Ordering::Relaxed);
        let mut left = libc::timespec { tv_sec: ms / 1_000, tv_nsec: ms % 1_000 * 1_000_000 };
        loop {
            let rest = &raw mut left;
            // SAFETY: both point to a live struct; the call is allowed in a handler.
            if unsafe { libc::nanosleep(rest, rest) } == 0 {
                return;
            }
        }
    }

    extern "C" fn exit(_signal: libc::c_int) {
        // SAFETY: ends the calling thread. What it had on its stack is never looked at again, and never freed.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }

    extern "C" fn stall(_signal: libc::c_int) {
        loop {
            // SAFETY: plain call, allowed in a handler.
            unsafe { libc::pause() };
        }
    }

    /// Makes the thread called `name` end so; false when there is none.
    #[must_use]
    pub fn end(name: &str, fault: Fault) -> bool {
        let handler: extern "C" fn(libc::c_int) = match fault {
            Fault::Exit => exit,
            Fault::Stall => stall,
            Fault::Away { ms } => {
                AWAY_MS.store(ms.into(), Ordering::Relaxed); // the signal comes after it
                away
            }
        };
        let found = register().running.iter().find(|thread| thread.name == name).map(|t| t.id);
        let Some(id) = found else { return false };
        // SAFETY: the handler is a function of the right kind that may run at any place; SIGUSR2 is nobody else's.
        unsafe { libc::signal(libc::SIGUSR2, handler as *const () as libc::sighandler_t) };
        id.signal(libc::SIGUSR2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The loss, if any, that a thread leaves in a register of its own once it has ended.
    fn after(ends: Ends, run: impl FnOnce() + Send + 'static, name: &str) -> Option<Lost> {
        register().lost = None;
        drop(spawn(Role::Device, name, ends, run).unwrap().join());
        let lost = lost();
        register().lost = None;
        lost.filter(|lost| lost.name == name)
    }

    #[test]
    fn who_ends_unasked_or_panics_is_lost_and_nobody_else() {
        let how = |lost: Option<Lost>| lost.map(|lost| lost.how);
        assert_eq!(how(after(Ends::Freely, || {}, "free")), None);
        assert_eq!(how(after(Ends::when(|| true), || {}, "asked")), None);
        let unasked = how(after(Ends::when(|| false), || {}, "unasked"));
        assert_eq!(unasked.as_deref(), Some("has ended unexpectedly"));
        let locked = std::sync::Arc::new(Mutex::new(0));
        let held = locked.clone();
        let panics = move || {
            let _held = held.lock().unwrap();
            panic!("no {}", "good");
        };
        let panicked = how(after(Ends::Freely, panics, "panics"));
        assert_eq!(panicked.as_deref(), Some("has panicked: no good"));
        assert!(locked.is_poisoned());
        // One that ends as by exit(2) of its own leaves no trace; it is missed.
        let gone = std::thread::Builder::new().spawn(|| enter(Role::Device, "gone"));
        gone.unwrap().join().unwrap();
        let lost = loop {
            if let Some(lost) = lost() {
                break lost; // the kernel may take a moment after the join
            }
        };
        assert_eq!((lost.name.as_str(), lost.how.as_str()), ("gone", "has ended without a report"));
        let mut register = register();
        register.lost = None;
        register.running.retain(|thread| thread.name != "gone");
    }

    /// It is in the register, which it enters itself, before its caller goes on.
    #[test]
    fn a_thread_that_was_started_runs() {
        for _ in 0..200 {
            let (end, over) = mpsc::channel::<()>();
            let run = move || over.recv().unwrap_or(());
            let thread = spawn(Role::Device, "begun", Ends::Freely, run).unwrap();
            assert!(register().running.iter().any(|thread| thread.name == "begun"));
            drop(end);
            thread.join().unwrap();
        }
    }

    #[test]
    fn roles_have_codes_of_their_own_beside_those_of_commands() {
        for (index, role) in Role::ALL.iter().enumerate() {
            assert_eq!(usize::from(role.exit_code()), 20 + index, "{role:?}");
        }
    }
}
