//! A fabric of processes: `weft run` for each PBR switch, `weft endpoint` for all else, `weft fm serve`, on veth pairs.
//!
//! Shape: [`Processes::up`] of a topology; [`Processes::housekeeping`] takes down the links of what has ended; dropping it ends
//! all, and removes the pairs; what is killed is cleaned up after by the next one ([`leftovers`]).
//! Units: none.
//! Source: docs/fabric.md; veth(4).

use std::fmt::Write as _;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Run, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;
use serde::de::DeserializeOwned;
use weft_fm::service::status::{Phase, StartMode};
use weft_fm::service::{Request, Response};
use weft_fm::store::{Store, StoreError};
use weft_fm::text::UuidText;
use weft_rpc::{Client, ClientError, Refused};

use super::desired_state::desired_state;
use super::endpoint_spec::endpoint_spec;
use super::host_bringup::{BringupError, Host, MemoryGrants};
use super::layout::{End, Layout, LayoutError, Part, PortRole, uuid};
use super::leftovers;
use super::managed::{self, UpError};
use super::static_init::{StaticFabric, sections};
use super::topology::Topology;
use crate::endpoint::{Answer, Command};

/// How long a process may take to answer, and the manager to bring all about.
const START: Duration = Duration::from_secs(30);
/// Between two looks whether it does.
const LOOK: Duration = Duration::from_millis(20);
/// How long a process may take to end.
const END: Duration = Duration::from_secs(5);
/// Longest time for one answer.
const ANSWER: Duration = Duration::from_secs(60);
/// Longest payload of all links.
const MAX_PAYLOAD: u16 = 512;

/// Why the processes of a fabric do not come up.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The file is none.
    #[error("{0}")]
    File(String),
    /// It says what cannot be.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A file or process cannot be made.
    #[error("{what}")]
    Io {
        /// What was tried.
        what: String,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// A command of the system refuses.
    #[error("{command}: {said}")]
    Refused {
        /// What was tried.
        command: String,
        /// What it said.
        said: String,
    },
    /// A process ends, or does not answer.
    #[error("{name} {what}; see {}", .log.display())]
    Silent {
        /// Which.
        name: String,
        /// What it does.
        what: String,
        /// What it has said.
        log: PathBuf,
    },
    /// What switches are set up with from the start cannot be worked out.
    #[error("work out what switches are set up with")]
    Tables(#[source] Box<UpError>),
    /// What the manager is to know cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The manager does not bring it about.
    #[error("the fabric manager: {0}")]
    Manager(String),
    /// A host is not ready.
    #[error(transparent)]
    Host(#[from] BringupError),
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ProcessError {
    let what = what.into();
    move |source| ProcessError::Io { what, source }
}

/// Where a fabric of processes is made, and how.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Files and sockets are below it.
    pub dir: PathBuf,
    /// Names of interfaces begin with it.
    pub prefix: String,
    /// How long an answer to a TLP or to a command may take, in milliseconds.
    pub answer_ms: u32,
}

/// A process of ours.
struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    /// Interfaces that it drives.
    devices: Vec<String>,
    ended: bool,
    /// The one that was started in its place and runs.
    again: Option<Pid>,
}

/// A fabric with a process for each component.
pub struct Processes {
    setup: Setup,
    topology: Topology,
    layout: Layout,
    /// What there is from the start.
    static_fabric: Option<StaticFabric>,
    children: Vec<Process>,
    /// One end of each veth pair.
    pairs: Vec<String>,
}

impl Processes {
    /// Brings a topology up in the network namespace of this process.
    ///
    /// # Errors
    /// See [`ProcessError`]; nothing is left running then.
    pub fn up(text: &str, setup: Setup) -> Result<Self, ProcessError> {
        let topology =
            Topology::parse(text).map_err(|error| ProcessError::File(error.to_string()))?;
        let layout = Layout::new(&topology)?;
        let is_static = topology.start == StartMode::Static;
        let static_fabric = is_static.then(|| managed::static_fabric(&topology)).transpose();
        let static_fabric = static_fabric.map_err(|error| ProcessError::Tables(Box::new(error)))?;
        let (children, pairs) = (Vec::new(), Vec::new());
        let mut up = Self { setup, topology, layout, static_fabric, children, pairs };
        up.make_links()?;
        up.start_switches()?;
        up.start_endpoints()?;
        if up.topology.start == StartMode::Simultaneous {
            up.hosts(|host| host.enumerate(&up.topology))?;
        }
        up.start_manager()?;
        up.hosts(|host| host.enumerate(&up.topology))?;
        map(&up.setup.dir, &up.topology, &up.layout)?;
        Ok(up)
    }

    /// The topology that it was made of.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The folder of a part, with its files and sockets.
    fn folder(&self, name: &str) -> Result<PathBuf, ProcessError> {
        let folder = self.setup.dir.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(io(format!("make {}", folder.display())))?;
        Ok(folder)
    }

    /// The interface at an end.
    fn device(&self, end: End) -> String {
        let at = self.layout.wires.iter().position(|wire| wire.contains(&end));
        let wire = at.and_then(|at| Some((at, self.layout.wires.get(at)?)));
        wire.map_or_else(String::new, |(at, [near, _])| {
            let side = if *near == end { 'a' } else { 'b' };
            format!("{}{at}{side}", self.setup.prefix)
        })
    }

    /// Makes a veth pair for each wire.
    fn make_links(&mut self) -> Result<(), ProcessError> {
        self.remove_stale_pairs()?;
        let mark = leftovers::pair_alias();
        for at in 0..self.layout.wires.len() {
            let prefix = &self.setup.prefix;
            let (near, far) = (format!("{prefix}{at}a"), format!("{prefix}{at}b"));
            ip(&["link", "add", &near, "type", "veth", "peer", "name", &far])?;
            self.pairs.push(near.clone());
            ip(&["link", "set", &near, "alias", &mark])?;
            for device in [&near, &far] {
                // So that no kernel says anything by itself; where there is no IPv6 there is nothing to turn off.
                let _ = ip(&["link", "set", device, "addrgenmode", "none"]);
                ip(&["link", "set", device, "up"])?;
            }
        }
        Ok(())
    }

    /// Removes the pairs of a fabric that was killed.
    fn remove_stale_pairs(&self) -> Result<(), ProcessError> {
        let prefix = &self.setup.prefix;
        let links = Run::new("ip").args(["-j", "link", "show", "type", "veth"]).output();
        let listed = links.map_err(io("run ip (iproute2)"))?.stdout;
        let listed = if listed.trim_ascii().is_empty() { b"[]".to_vec() } else { listed };
        let gone = leftovers::stale_pairs(&listed, prefix);
        let gone = gone
            .map_err(|said| ProcessError::Refused { command: "look for pairs".to_owned(), said })?;
        for near in gone {
            ip(&["link", "del", &near])?;
        }
        Ok(())
    }

    /// Starts a process that drives some interfaces and serves a socket; its `run` does the same again.
    fn start(
        &mut self,
        name: &str,
        arguments: &[String],
        (devices, socket): (Vec<String>, &Path),
    ) -> Result<(), ProcessError> {
        let folder = self.folder(name)?;
        let log = folder.join("log");
        let file = File::create(&log).map_err(io(format!("make {}", log.display())))?;
        let program = std::env::current_exe().map_err(io("find the program of this process"))?;
        let run = folder.join("run");
        let pid = folder.join("pid");
        let again = RestartScript { devices: &devices, pid: &pid, log: &log, socket };
        std::fs::write(&run, again.script(&program, arguments))
            .map_err(io(format!("write {}", run.display())))?;
        leftovers::remove_stale(socket); // else it would seem that the new one listens already
        let child = Run::new(program)
            .args(arguments)
            .env(leftovers::PARENT, std::process::id().to_string())
            // What the service manager wants to be told, it is told by this process.
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(io(format!("start {name}")))?;
        std::fs::write(&pid, format!("{}\n", child.id()))
            .map_err(io(format!("write {}", pid.display())))?;
        let name = name.to_owned();
        let (ended, again) = (false, None);
        self.children.push(Process { name, child, log, devices, ended, again });
        Ok(())
    }

    /// Takes down the links of processes that have ended, as those of what has lost its power; which they are.
    ///
    /// A part that was started again by its `run` is looked at by the number that this has written, as often as it ends.
    pub fn housekeeping(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for process in &mut self.children {
            let how = if process.ended {
                let number = process.log.with_file_name("pid");
                let now = runs(&number);
                let ended = process.again.is_some() && now.is_none();
                process.again = now;
                ended.then(|| "it had been started again".to_owned())
            } else {
                let ended = process.child.try_wait().ok().flatten();
                process.ended = ended.is_some();
                ended.map(|status| status.to_string())
            };
            let Some(how) = how else { continue };
            for device in &process.devices {
                let _ = ip(&["link", "set", device, "down"]); // it may be gone with its namespace
            }
            said.push(format!("{} has ended: {how}", process.name));
        }
        said
    }

    /// Waits until the last process has made a socket.
    fn listens(&mut self, socket: &Path) -> Result<(), ProcessError> {
        self.wait(|_| Ok(socket.exists().then_some(())))
    }

    /// Waits until `done` has something, while the last process runs.
    fn wait<T>(
        &mut self,
        mut done: impl FnMut(&Self) -> Result<Option<T>, ProcessError>,
    ) -> Result<T, ProcessError> {
        for _ in 0..START.as_millis() / LOOK.as_millis() {
            if let Some(found) = done(self)? {
                return Ok(found);
            }
            let ended = self.children.last_mut().map(|last| last.child.try_wait());
            if let Some(Ok(Some(status))) = ended {
                return Err(self.silent(&format!("has ended: {status}")));
            }
            std::thread::park_timeout(LOOK);
        }
        Err(self.silent("does not come up"))
    }

    fn silent(&self, what: &str) -> ProcessError {
        let last = self.children.last();
        ProcessError::Silent {
            name: last.map_or_else(String::new, |last| last.name.clone()),
            what: what.to_owned(),
            log: last.map_or_else(PathBuf::new, |last| last.log.clone()),
        }
    }

    fn start_switches(&mut self) -> Result<(), ProcessError> {
        for at in 0..self.layout.switches.len() {
            let Some(switch) = self.layout.switches.get(at) else { continue };
            let name = switch.name.clone();
            let folder = self.folder(&name)?;
            let (file, cci) = (folder.join("switch.toml"), folder.join("cci.sock"));
            let text = self.switch(at, &folder);
            std::fs::write(&file, text).map_err(io(format!("write {}", file.display())))?;
            let ports = self.layout.switches.get(at).map_or(0, |switch| switch.ports.len());
            let ports = (0..=u8::MAX).take(ports);
            let device = |port| self.device(End { part: Part::Switch(at), port });
            let devices = ports.map(device).collect();
            let arguments = ["run".to_owned(), "-c".to_owned(), file.display().to_string()];
            self.start(&name, &arguments, (devices, &cci))?;
            self.listens(&cci)?;
        }
        Ok(())
    }

    /// The configuration of a switch.
    fn switch(&self, at: usize, folder: &Path) -> String {
        let mut text = String::new();
        let Some(switch) = self.layout.switches.get(at) else { return text };
        let named = UuidText(uuid(switch.serial));
        let path = |name: &str| folder.join(name).display().to_string();
        let (socket, cci) = (path("mgmt.sock"), path("cci.sock"));
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "[switch]\nname = {:?}\nnum_priorities = 8\n[run]\nsocket = {socket:?}\n\
             [fabric]\nuuid = \"{named}\"\nserial = {}\ncci = {cci:?}\nthreads = 4\n",
            switch.name, switch.serial
        );
        let fixed =
            self.static_fabric.as_ref().and_then(|static_fabric| static_fabric.switches.get(at));
        if let Some(fixed) = fixed {
            let _ = writeln!(text, "pid = {}", fixed.pid.bits());
        }
        for (number, port) in (0..=u8::MAX).zip(&switch.ports) {
            let role = match port.role {
                PortRole::Usp => "usp",
                PortRole::Dsp => "dsp",
                PortRole::Fabric => "fport",
            };
            let device = self.device(End { part: Part::Switch(at), port: number });
            let _ = write!(
                text,
                "[[port]]\nname = \"p{number}\"\nkind = \"af_packet\"\ndevice = {device:?}\n\
                 role = {role:?}\nmax_payload = {MAX_PAYLOAD}\n"
            );
        }
        for vcs in &switch.vcses {
            let _ = writeln!(text, "[[vcs]]\nvppbs = {}", vcs.vppbs.len());
            let _ = match vcs.usp {
                Some(port) => writeln!(text, "usp = \"p{port}\"\ngae = true"),
                None => writeln!(text, "gae = false"),
            };
        }
        if let Some(fixed) = fixed {
            text += &sections(fixed);
        }
        text
    }

    fn start_endpoints(&mut self) -> Result<(), ProcessError> {
        for part in self.layout.endpoints() {
            let name = self.layout.name(part).to_owned();
            let folder = self.folder(&name)?;
            let (file, socket) = (folder.join("endpoint.toml"), folder.join("endpoint.sock"));
            let device = |port| self.device(End { part, port });
            let port = |port| format!("af_packet:{}", device(port));
            let spec = endpoint_spec(&self.topology, &self.layout, part, &port);
            let Some(mut spec) = spec else { continue };
            spec.common_mut().answer_ms = Some(self.setup.answer_ms.into());
            std::fs::write(&file, spec.to_toml())
                .map_err(io(format!("write {}", file.display())))?;
            let devices = (0..self.layout.link_count(part)).map(device).collect();
            let [file, at] = [&file, &socket].map(|path| path.display().to_string());
            let arguments = ["endpoint", spec.kind(), "--config", &file, "--socket", &at];
            self.start(&name, &arguments.map(ToOwned::to_owned), (devices, &socket))?;
            self.listens(&socket)?;
        }
        Ok(())
    }

    fn manager_socket(&self) -> PathBuf {
        manager_socket(&self.setup.dir)
    }

    /// Starts the manager, and waits until it has brought all about.
    fn start_manager(&mut self) -> Result<(), ProcessError> {
        let Some(entry) = self.layout.switches.first().map(|switch| switch.name.clone()) else {
            return Ok(());
        };
        let folder = self.folder("fm")?;
        let want = folder.join("want.toml");
        let text = desired_state(&self.topology, &self.layout, &|_| None);
        std::fs::write(&want, text).map_err(io(format!("write {}", want.display())))?;
        let store = folder.join("fm.redb");
        if store.exists() {
            // It is of another fabric: that of an earlier run.
            std::fs::remove_file(&store).map_err(io(format!("remove {}", store.display())))?;
        }
        let cci = self.setup.dir.join(entry).join("cci.sock");
        if let Some(static_fabric) = &self.static_fabric {
            Store::open(&store)?.save(&static_fabric.state)?;
        }
        let start = match self.topology.start {
            StartMode::FmFirst => "fm-first",
            StartMode::Simultaneous => "simultaneous",
            StartMode::Static => "static",
        };
        let arguments = [
            "fm".to_owned(),
            "serve".to_owned(),
            "--entry".to_owned(),
            format!("unix:{}", cci.display()),
            "--socket".to_owned(),
            self.manager_socket().display().to_string(),
            "--want".to_owned(),
            want.display().to_string(),
            "--store".to_owned(),
            store.display().to_string(),
            "--start".to_owned(),
            start.to_owned(),
            "--pause".to_owned(),
            "200".to_owned(),
            "--timeout".to_owned(),
            self.setup.answer_ms.to_string(),
        ];
        let socket = self.manager_socket();
        self.start("fm", &arguments, (Vec::new(), &socket))?;
        self.listens(&socket)?;
        let status = self.wait(|up| {
            Ok(match up.manager(&Request::Status)? {
                Response::Status(status) if status.phase == Phase::Up => Some(status),
                _ => None,
            })
        })?;
        match status.trouble.first() {
            None => Ok(()),
            Some(trouble) => Err(ProcessError::Manager(trouble.clone())),
        }
    }

    /// Gives the fabric manager a request.
    ///
    /// # Errors
    /// It refuses, or is not there.
    pub fn manager(&self, request: &Request) -> Result<Response, ProcessError> {
        manager(&self.setup.dir, request)
    }

    /// Gives a part a command, by its name.
    ///
    /// # Errors
    /// It refuses, or is not there.
    pub fn ask(&self, name: &str, command: &Command) -> Result<Answer, Refused> {
        part(&self.setup.dir, name, command)
    }

    fn hosts(&self, f: impl Fn(&Host<'_>) -> Result<(), BringupError>) -> Result<(), ProcessError> {
        hosts(&self.setup.dir, &self.topology, f)
    }
}

fn manager_socket(dir: &Path) -> PathBuf {
    dir.join("fm").join("fm.sock")
}

fn manager(dir: &Path, request: &Request) -> Result<Response, ProcessError> {
    ask(&manager_socket(dir), request).map_err(|error| ProcessError::Manager(error.to_string()))
}

fn part(dir: &Path, name: &str, command: &Command) -> Result<Answer, Refused> {
    let socket = dir.join(name).join("endpoint.sock");
    ask(&socket, command).map_err(|error| match error {
        ClientError::Refused(refused) => refused,
        other => Refused::unavailable(other.to_string()),
    })
}

fn hosts(
    dir: &Path,
    topology: &Topology,
    f: impl Fn(&Host<'_>) -> Result<(), BringupError>,
) -> Result<(), ProcessError> {
    for (at, host) in topology.hosts.iter().enumerate() {
        let ask = |command: &Command| part(dir, &host.name, command);
        f(&Host { at, ask: &ask, pause: &|| std::thread::park_timeout(LOOK) })?;
    }
    Ok(())
}

/// Has the hosts of a fabric that is up at `dir`, in one process or several, map the memory that its manager has given.
///
/// # Errors
/// Somebody is not there or refuses.
pub fn map(dir: &Path, topology: &Topology, layout: &Layout) -> Result<(), ProcessError> {
    let given = MemoryGrants::by(|request| manager(dir, request))?;
    hosts(dir, topology, |host| host.map((topology, layout), &given))
}

/// Asks who listens at `socket`.
fn ask<T: DeserializeOwned>(socket: &Path, request: &impl Serialize) -> Result<T, ClientError> {
    let value = Client::connect_for(socket, ANSWER)?.request(request)?;
    Ok(serde_json::from_value(value).map_err(std::io::Error::other)?)
}

/// How a process is started again.
struct RestartScript<'a> {
    devices: &'a [String],
    /// Where its number and what it says are written, and where it listens.
    pid: &'a Path,
    log: &'a Path,
    socket: &'a Path,
}

impl RestartScript<'_> {
    /// A shell script that runs the program, and takes its interfaces up once it listens: an end of a link that is up is
    /// there.
    fn script(&self, program: &Path, arguments: &[String]) -> String {
        let quoted = |word: &str| format!("'{}'", word.replace('\'', "'\\''"));
        let path = |path: &Path| quoted(&path.display().to_string());
        let (pid, log, socket) = (path(self.pid), path(self.log), path(self.socket));
        let words = arguments.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
        let mut text = "#!/bin/sh\n".to_owned();
        // Writing to a text cannot fail.
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
        let _ = writeln!(text, "echo $$ > {pid}");
        let _ = writeln!(text, "exec {} {words} 2>> {log}", path(program));
        text
    }
}

/// The process whose number is in a file, if it runs: one that nobody has waited for does not.
fn runs(number: &Path) -> Option<Pid> {
    let text = std::fs::read_to_string(number).ok()?;
    let pid = Pid::from_raw(text.trim().parse().ok()?)?;
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The state stands behind the name, which may have any character in it.
    let (_, rest) = stat.rsplit_once(')')?;
    (!rest.trim_start().starts_with(['Z', 'X'])).then_some(pid)
}

fn ip(arguments: &[&str]) -> Result<(), ProcessError> {
    let done = Run::new("ip").args(arguments).output().map_err(io("run ip (iproute2)"))?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    Err(ProcessError::Refused { command: format!("ip {}", arguments.join(" ")), said })
}

impl Drop for Processes {
    fn drop(&mut self) {
        // The manager first, so that it does not see the fabric go.
        for process in self.children.iter_mut().rev().filter(|process| !process.ended) {
            if let Some(pid) = i32::try_from(process.child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM); // it may have ended by itself
            }
            for _ in 0..END.as_millis() / LOOK.as_millis() {
                if !matches!(process.child.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::park_timeout(LOOK);
            }
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        for near in &self.pairs {
            let _ = ip(&["link", "del", near]); // it may be gone with its namespace
        }
    }
}
