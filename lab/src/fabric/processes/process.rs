//! One process of a fabric, with a script in its folder that starts it again.
//!
//! [`Process::start`] starts it, [`Process::has_ended`] reports each end once, and [`Process::end`] stops it.
//!
//! Source: docs/fabric.md.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Run, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use weft_base::files::{self, OpenedBy};
use weft_base::wait;

use super::{LOOK, ProcessError, io, write};
use crate::fabric::leftovers;
use crate::fabric::proc_stat::has_exited;

/// Longest time for a process to end.
const END: Duration = Duration::from_secs(5);
/// Longest file with a process id.
const PID_LEN_MAX: u64 = 64;

/// A process of this program that runs a part of the fabric.
pub(super) struct Process {
    pub name: String,
    child: Child,
    log: PathBuf,
    /// Interfaces that it drives.
    pub devices: Vec<String>,
    ended: bool,
    /// Process id of a restarted one, while it runs.
    again: Option<u32>,
}

impl Process {
    /// Starts a process that drives `devices` and serves a socket; the script `run` in its folder starts it again.
    pub fn start(
        name: &str,
        folder: &Path,
        arguments: &[String],
        devices: Vec<String>,
        socket: &Path,
    ) -> Result<Self, ProcessError> {
        let log = folder.join("log");
        let file = files::create_anew(&log).map_err(io(format!("make {}", log.display())))?;
        let program = std::env::current_exe().map_err(io("find the program of this process"))?;
        let run = folder.join("run");
        let pid = folder.join("pid");
        let again = RestartScript { devices: &devices, pid: &pid, log: &log, socket };
        write(&run, &again.script(&program, arguments))?;
        leftovers::remove_stale(socket); // else it would seem that the new one listens already
        let child = Run::new(program)
            .args(arguments)
            .env(leftovers::PARENT, std::process::id().to_string())
            // The service manager listens to this process only.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(io(format!("start {name}")))?;
        write(&pid, &format!("{}\n", child.id()))?;
        let name = name.to_owned();
        Ok(Self { name, child, log, devices, ended: false, again: None })
    }

    /// Exit status, if it has ended since the last call.
    ///
    /// A part that was restarted by its `run` is followed by the process id that the script wrote, and reported each
    /// time it ends.
    pub fn has_ended(&mut self) -> Option<String> {
        if self.ended {
            let number = self.log.with_file_name("pid");
            let now = running(&number);
            let ended = self.again.is_some() && now.is_none();
            self.again = now;
            return ended.then(|| "after a restart".to_owned());
        }
        let ended = self.exit_status();
        self.ended = ended.is_some();
        ended.map(|status| status.to_string())
    }

    /// Exit status, once it has ended.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// The error for a failure of this process.
    pub fn silent(&self, what: &str) -> ProcessError {
        ProcessError::Silent {
            name: self.name.clone(),
            what: what.to_owned(),
            log: self.log.clone(),
        }
    }

    /// Ends it: asks first, and kills it after a time limit.
    pub fn end(&mut self) {
        if self.ended {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM); // it may have ended by itself
        }
        for _ in 0..END.as_millis() / LOOK.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            wait::pause(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Contents of the script that starts a process again.
struct RestartScript<'a> {
    devices: &'a [String],
    /// Files for process id and messages, and its socket.
    pid: &'a Path,
    log: &'a Path,
    socket: &'a Path,
}

impl RestartScript<'_> {
    /// A shell script that runs the program, and sets its interfaces up once it listens: an end that is up counts as
    /// alive.
    fn script(&self, program: &Path, arguments: &[String]) -> String {
        let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
        let path = |path: &Path| quoted(&path.display().to_string());
        let (pid, log, socket) = (path(self.pid), path(self.log), path(self.socket));
        let words = arguments.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let mut text = "#!/bin/sh\n".to_owned();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "rm -f {socket}");
        if !self.devices.is_empty() {
            let _ = writeln!(text, "(");
            let _ = writeln!(
                text,
                "for i in $(seq 500); do [ -S {socket} ] && break; sleep 0.02; done"
            );
            for device in self.devices {
                let _ = writeln!(text, "ip link set {device} up");
            }
            let _ = writeln!(text, ") &");
        }
        // `exec` keeps the process id, so this is the program's.
        let _ = writeln!(text, "echo $$ > {pid}");
        let _ = writeln!(text, "exec {} {words} 2>> {log}", path(program));
        text
    }
}

/// The process whose id is in a file, if it runs.
fn running(pid_file: &Path) -> Option<u32> {
    let pid =
        files::read_text(pid_file, OpenedBy::Service, PID_LEN_MAX).ok()?.trim().parse().ok()?;
    (!has_exited(pid)).then_some(pid)
}
