//! Runs the jobs of a sweep, each as a process of its own.
//!
//! A thread for each process that may run at once takes jobs off a queue and runs `weft sim run`.
//!
//! Source: docs/sweep.md.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use weft_base::files::{self, OpenedBy};
use weft_base::wait::pause;
use weft_sim::results::{Ending, Results, SCHEMA};

use super::plan::{Job, result_path};
use crate::error::CliError;

/// Longest part of a failed job's standard error that is reported, in characters.
const SAID_MAX: usize = 2_000;

/// Interval at which a process is polled.
const LOOK: Duration = Duration::from_millis(2);

/// Runs jobs with a binary and a scenario, into a folder.
pub struct Runner<'a> {
    /// The `weft` binary, normally this process's own.
    pub weft: PathBuf,
    /// The scenario file that each job reads.
    pub file: &'a Path,
    /// Folder of the sweep's results.
    pub out: &'a Path,
    /// Number of processes that run at once.
    pub at_once: usize,
    /// Set by a signal: no further job begins.
    pub stop: &'a AtomicBool,
    /// Set by SIGINT: running jobs end, too.
    pub end: &'a AtomicBool,
}

/// Why a job has no results.
pub type Failure = String;

/// Results of a finished job.
///
/// # Errors
/// The results are missing, incomplete, or of another schema.
pub fn finished(out: &Path, job: &Job) -> Result<Results, Failure> {
    let path = result_path(out, job);
    let bytes = files::read(&path, OpenedBy::Command, u64::MAX)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    let results: Results =
        serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
    if results.schema != SCHEMA {
        return Err(format!("{}: schema {}, expected {SCHEMA}", path.display(), results.schema));
    }
    if results.ending == Ending::Interrupted {
        return Err("it was interrupted".to_owned());
    }
    Ok(results)
}

impl Runner<'_> {
    /// Arguments of a job's process, without `--json`.
    #[must_use]
    pub fn args(&self, job: &Job) -> Vec<String> {
        let mut args = vec!["sim".to_owned(), "run".to_owned(), self.file.display().to_string()];
        for set in &job.set {
            args.extend(["--set".to_owned(), set.clone()]);
        }
        args
    }

    /// Runs `jobs`; calls `each` as every one ends.
    ///
    /// # Errors
    /// The folder of results cannot be created.
    pub fn run(
        &self,
        jobs: Vec<&Job>,
        mut each: impl FnMut(&Job, Result<(), Failure>),
    ) -> Result<(), CliError> {
        let folder = self.out.join("jobs");
        fs::create_dir_all(&folder).map_err(|source| CliError::File {
            verb: "create",
            path: folder,
            source,
        })?;
        let threads = self.at_once.min(jobs.len());
        let queue = Mutex::new(VecDeque::from(jobs));
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..threads {
                let (tell, queue) = (tell.clone(), &queue);
                scope.spawn(move || {
                    while !self.stop.load(Ordering::Relaxed) {
                        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                        let Some(job) = next else { break };
                        if tell.send((job, self.one(job))).is_err() {
                            break;
                        }
                    }
                });
            }
            // `told` ends when the last sender is gone, and the threads have theirs.
            drop(tell);
            for (job, outcome) in told {
                each(job, outcome);
            }
        });
        Ok(())
    }

    /// Runs one job. Its results get their final name when they are complete.
    fn one(&self, job: &Job) -> Result<(), Failure> {
        let path = result_path(self.out, job);
        // With this process's id, as another sweep may run the same job into the same folder.
        let beside = path.with_extension(format!("{}.part", std::process::id()));
        let ran = Command::new(&self.weft)
            .args(self.args(job))
            .arg("--json")
            .arg(&beside)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .and_then(|child| self.wait(child))
            .map_err(|error| format!("cannot start {}: {error}", self.weft.display()));
        let outcome = ran.and_then(|ran| {
            let had = fs::rename(&beside, &path);
            let results =
                had.map_err(|error| error.to_string()).and_then(|()| finished(self.out, job));
            // Exit code 1 with complete results: an expectation was not met, which the job's row shows.
            match results {
                Ok(_) if matches!(ran.status.code(), Some(0 | 1)) => Ok(()),
                Ok(_) => Err(said(&ran, None)),
                Err(why) => Err(said(&ran, Some(&why))),
            }
        });
        // Results of a failed job would count as finished, and the job would not run again.
        if outcome.is_err() {
            for path in [&beside, &path] {
                drop(fs::remove_file(path)); // it may not be there
            }
        }
        outcome
    }
}

impl Runner<'_> {
    /// Waits for a process and passes SIGINT on to it: a terminal sends it to the whole process group, `kill` does not.
    fn wait(&self, mut child: Child) -> io::Result<Output> {
        let mut stderr = child.stderr.take();
        let mut said = Vec::new();
        let status = thread::scope(|scope| {
            // Read while the process runs: with its pipe full it would never end.
            let reader = scope.spawn(|| stderr.as_mut().map(|it| it.read_to_end(&mut said)));
            let mut is_told = false;
            let status = loop {
                if let Some(status) = child.try_wait()? {
                    break status;
                }
                if !is_told && self.end.load(Ordering::Relaxed) {
                    is_told = true;
                    // The process id cannot be reused before `try_wait` has reaped it.
                    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                    pid.map(|pid| kill_process(pid, Signal::INT)).transpose()?;
                }
                pause(LOOK);
            };
            drop(reader.join());
            io::Result::Ok(status)
        })?;
        Ok(Output { status, stdout: Vec::new(), stderr: said })
    }
}

/// The exit status of a failed process, with its standard error or else `why`.
fn said(ran: &Output, why: Option<&str>) -> Failure {
    let text = String::from_utf8_lossy(&ran.stderr);
    let text: String = text.trim().chars().take(SAID_MAX).collect();
    match why {
        _ if !text.is_empty() => format!("{}: {text}", ran.status),
        Some(why) => format!("{}: {why}", ran.status),
        None => ran.status.to_string(),
    }
}
