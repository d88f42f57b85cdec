//! What the process of a running switch, host or endpoint may still do: the least that opens its devices again.
//!
//! [`enter`] or [`enter_on`] before any thread is made, [`Entered::seal`] when everything is open, and
//! [`Confined::report`] for whoever asks what is in force. Steps: user, capabilities, `NO_NEW_PRIVS`
//! and Landlock first, as threads inherit them; the filter of system calls last, for all threads.
//!
//! Source: capabilities(7), prctl(2), landlock(7), seccomp(2) (`SECCOMP_FILTER_FLAG_TSYNC`);
//! docs/privileges.md.

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

/// Why a process cannot give up what it does not need.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// There are threads already, which would keep everything.
    #[error("expected no thread but the first, found {0}")]
    Threads(usize),
    /// A call failed.
    #[error("{call}")]
    Call {
        /// What was tried.
        call: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// It cannot go on as `run.user`.
    #[error("run.user")]
    User(#[from] UserError),
    /// Landlock refused.
    #[error("restrict files by Landlock")]
    Paths(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// There is no filter of system calls.
    #[error("filter system calls")]
    Calls(#[from] CallsError),
}

/// How much is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// All but what devices need to be opened again.
    Full,
    /// Only what a program that is executed might gain: DPDK's drivers and its threads need more, and
    /// what exactly depends on the driver.
    Dpdk,
    /// Nothing: `run.sandbox = false`.
    Off,
}

impl Profile {
    /// That of a configuration.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let has_dpdk = config.run.ports.iter().any(|port| port.kind == DeviceKind::Dpdk);
        match (config.run.sandbox, has_dpdk) {
            (false, _) => Self::Off,
            (true, true) => Self::Dpdk,
            (true, false) => Self::Full,
        }
    }

    /// What `weft show process` calls it, and why it is not the whole.
    #[must_use]
    pub const fn describe(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Full => ("on", None),
            Self::Dpdk => ("weak", Some("DPDK's drivers need more: only no_new_privs is set")),
            Self::Off => ("off", Some("run.sandbox is false")),
        }
    }
}

/// A process whose user, capabilities and files are restricted; not yet its system calls.
#[must_use = "system calls are filtered by `seal`"]
pub struct Entered {
    profile: Profile,
    landlock: String,
    /// Has the right to give threads of the switch their priorities.
    raiser: Option<Raiser>,
}

/// A process that is restricted.
#[derive(Clone, Debug, Default)]
pub struct Confined {
    sandbox: String,
    note: Option<String>,
    landlock: String,
}

fn failed<E: Into<io::Error>>(call: &'static str) -> impl FnOnce(E) -> ConfineError {
    move |error| ConfineError::Call { call, source: error.into() }
}

/// Gives up all that the switch of `config` does not need; to be called before any thread is made,
/// as capabilities and Landlock's rules are each thread's own and inherited.
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

/// `raises`: the capability to give threads of the switch their priorities stays until [`Entered::raiser`] is dropped.
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
        rustix::thread::set_no_new_privs(true).map_err(failed("set no_new_privs"))?;
    }
    let begin = || Raiser::begin().map_err(failed("start the thread that raises priorities"));
    let mut raiser = None;
    if profile == Profile::Full {
        capabilities::empty_bounding_set();
        become_user()?;
        let raise = if raises { CapabilitySet::SYS_NICE } else { CapabilitySet::empty() };
        capabilities::keep(needed | raise).map_err(failed("drop capabilities"))?;
        landlock = paths::restrict()?;
        if raises {
            raiser = Some(begin()?); // with what this thread gives up now
            capabilities::keep(needed).map_err(failed("drop capabilities"))?;
        }
    }
    Ok(Entered { profile, landlock, raiser })
}

impl Entered {
    /// What gives threads their priorities, until it is dropped: before [`Self::seal`], so that no thread has the right for
    /// longer. None where the process keeps it.
    pub const fn raiser(&mut self) -> Option<Raiser> {
        self.raiser.take()
    }

    /// Filters the system calls of all threads, those that DPDK or others made included.
    ///
    /// # Errors
    /// The kernel has no filters, or a thread has one that is not ours.
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
    /// What is in force now, as the kernel tells it of each thread.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn report(&self) -> io::Result<ProcessReport> {
        let report = status::report()?;
        let (sandbox, note) = (self.sandbox.clone(), self.note.clone());
        Ok(ProcessReport { sandbox, note, landlock: self.landlock.clone(), ..report })
    }
}
