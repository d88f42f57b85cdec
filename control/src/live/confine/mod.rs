//! Gives up what the process of a running switch, host or endpoint does not need; the rest opens its devices again.
//!
//! [`enter`] or [`enter_on`] is called before any thread is made, [`Entered::seal`] when everything is open, and
//! [`Confined::report`] says what is in force. User, capabilities, `NO_NEW_PRIVS` and Landlock come first, as threads
//! inherit them; the filter of system calls comes last, for all threads.
//!
//! Source: capabilities(7), prctl(2), landlock(7), seccomp(2) (`SECCOMP_FILTER_FLAG_TSYNC`); docs/privileges.md.

mod calls;
mod capabilities;
mod paths;
mod status;
mod user;

use std::io;

use weft_config::choice::DeviceKind;
use weft_config::resolve::Config;

use super::pause_guard;
use super::placement::Raiser;
use crate::report::process::ProcessReport;

pub use calls::{CallsError, EXIT_CODE, filter_all_threads};
pub use capabilities::{keep_only, needed};
pub use rustix::thread::CapabilitySet;
pub use user::UserError;

#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// There are threads already, which would keep all rights.
    #[error("expected no thread but the first, found {0}")]
    Threads(usize),
    #[error("{call}")]
    Call { call: &'static str, source: io::Error },
    /// It cannot go on as `run.user`.
    #[error("run.user")]
    User(#[from] UserError),
    /// Landlock refused its rules.
    #[error("restrict files by Landlock")]
    Paths(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("filter system calls")]
    Calls(#[from] CallsError),
}

/// How much is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Everything but the rights to open the devices again.
    Full,
    /// Only what an executed program might gain. DPDK's drivers and threads need more, and how much depends on the
    /// driver.
    Dpdk,
    /// Nothing: `run.sandbox = false`.
    Off,
}

impl Profile {
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let has_dpdk = config.run.ports.iter().any(|port| port.kind == DeviceKind::Dpdk);
        match (config.run.sandbox, has_dpdk) {
            (false, _) => Self::Off,
            (true, true) => Self::Dpdk,
            (true, false) => Self::Full,
        }
    }

    /// Its name in `weft show process`, with the reason if it is not the full profile.
    #[must_use]
    pub const fn describe(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Full => ("on", None),
            Self::Dpdk => ("weak", Some("DPDK's drivers need more: only no_new_privs is set")),
            Self::Off => ("off", Some("run.sandbox is false")),
        }
    }
}

/// A process whose user, capabilities and files are restricted, but not yet its system calls.
#[must_use = "system calls are filtered by `seal`"]
pub struct Entered {
    profile: Profile,
    landlock: String,
    /// Has `CAP_SYS_NICE`, to give threads of the switch their priorities.
    raiser: Option<Raiser>,
}

#[derive(Clone, Debug, Default)]
pub struct Confined {
    sandbox: String,
    note: Option<String>,
    landlock: String,
}

fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> ConfineError {
    move |error| ConfineError::Call { call, source: error.into() }
}

/// Gives up all that the switch of `config` does not need. To be called before any thread is made: capabilities and
/// Landlock's rules belong to each thread, and new threads inherit them.
///
/// # Errors
/// See [`ConfineError`].
pub fn enter(config: &Config) -> Result<Entered, ConfineError> {
    let raises = config.run.priority.is_some() || pause_guard::is_wanted(config);
    enter_as(Profile::of(config), needed(config), raises, || {
        let become_user = |name: &String| user::become_user(name, &user::sockets(config));
        config.run.user.as_ref().map_or(Ok(()), become_user)
    })
}

/// As [`enter`], for a host or an endpoint on `ports` ([`weft_lab::netdev`]).
///
/// # Errors
/// See [`ConfineError`].
pub fn enter_on<'a>(ports: impl IntoIterator<Item = &'a str>) -> Result<Entered, ConfineError> {
    enter_as(Profile::Full, capabilities::of_ports(ports), false, || Ok(()))
}

/// With `raises`, a thread keeps `CAP_SYS_NICE` until the [`Raiser`] of [`Entered::raiser`] is dropped.
fn enter_as(
    profile: Profile,
    needed: CapabilitySet,
    raises: bool,
    become_user: impl FnOnce() -> Result<(), UserError>,
) -> Result<Entered, ConfineError> {
    let mut landlock = "none".to_owned();
    if profile != Profile::Off {
        let threads = status::threads().map_err(failed("look at the threads"))?.len();
        if threads != 1 {
            return Err(ConfineError::Threads(threads));
        }
        // Landlock demands it of a process without CAP_SYS_ADMIN. A switch with DPDK ports is restricted by this alone.
        rustix::thread::set_no_new_privs(true).map_err(failed("set no_new_privs"))?;
    }
    let begin = || Raiser::begin().map_err(failed("start the thread that raises priorities"));
    let mut raiser = None;
    if profile == Profile::Full {
        // Before the user changes: that takes CAP_SETPCAP out of the effective set.
        capabilities::empty_bounding_set();
        become_user()?;
        // `become_user` keeps the permitted capabilities, so that they can be dropped one by one here.
        let raise = if raises { CapabilitySet::SYS_NICE } else { CapabilitySet::empty() };
        capabilities::keep(needed | raise).map_err(failed("drop capabilities"))?;
        landlock = paths::restrict()?;
        // The raiser's thread inherits the user and Landlock's rules, and `CAP_SYS_NICE`, which this thread gives up
        // next.
        if raises {
            raiser = Some(begin()?); // with what this thread gives up now
            capabilities::keep(needed).map_err(failed("drop capabilities"))?;
        }
    }
    Ok(Entered { profile, landlock, raiser })
}

impl Entered {
    /// Takes the [`Raiser`]; `None` where the process needs none, or keeps the right itself. It must be dropped before
    /// [`Self::seal`], so that no thread has the right for longer.
    pub const fn raiser(&mut self) -> Option<Raiser> {
        self.raiser.take()
    }

    /// Filters the system calls of all threads, including those that DPDK or other libraries made.
    ///
    /// # Errors
    /// The kernel has no such filters, or a thread has one that is not ours.
    pub fn seal(self) -> Result<Confined, ConfineError> {
        if self.profile == Profile::Full {
            filter_all_threads()?;
        }
        let (sandbox, note) = self.profile.describe();
        let (sandbox, note) = (sandbox.to_owned(), note.map(str::to_owned));
        Ok(Confined { sandbox, note, landlock: self.landlock })
    }
}

impl Confined {
    /// What is in force now, as the kernel reports it for each thread.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn report(&self) -> io::Result<ProcessReport> {
        let report = status::report()?;
        let (sandbox, note) = (self.sandbox.clone(), self.note.clone());
        Ok(ProcessReport { sandbox, note, landlock: self.landlock.clone(), ..report })
    }
}
