//! A fabric of processes on veth pairs: `weft run` for each PBR switch, `weft endpoint` for each endpoint, and `weft fm
//! serve`.
//!
//! [`Processes::up`] starts a topology, and [`Processes::housekeeping`] takes down the links of processes that have
//! ended. Dropping it ends all processes and removes the pairs; the next start cleans up after a kill
//! ([`super::leftovers`]). Over several machines ([`hosts_file`]) each machine runs its parts by an [`agent`], which
//! gets orders from [`coordinator::Machines`].
//!
//! Source: docs/fabric.md; veth(4).

pub mod agent;
mod alive;
mod ask;
pub mod coordinator;
mod entry;
pub mod hosts_file;
mod lines;
mod links;
mod process;
mod protocol;
mod switch_config;

use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weft_base::{files, wait};
use weft_fm::service::status::{Phase, StartMode};
use weft_fm::service::{Request, Response};
use weft_fm::state::store::{Store, StoreError};
use weft_rpc::Refused;

pub use self::ask::{endpoint_socket, manager_socket, map};
use self::ask::{hosts, manager, part};
use self::entry::write_keys;
use self::hosts_file::{Here, HostsError};
use self::process::Process;
use super::desired_state::desired_state;
use super::dir_lock::{self, DirLock, DirLockError, make_own_dir};
use super::endpoint_spec::endpoint_spec;
use super::granted::Plan;
use super::host_bringup::{BringupError, Host, MemoryGrants};
use super::layout::{End, Layout, MANAGER, Part};
use super::managed::{self, UpError};
use super::static_init::StaticFabric;
use super::topology::Topology;
use super::topology_file::{self, FileError};
use crate::endpoint::{Answer, Command};

/// Longest time for a process to answer, and for the manager to bring the fabric up.
const START: Duration = Duration::from_secs(30);
/// Longest time for which a manager that is up may report errors: new links come up one after the other.
const SETTLES: Duration = Duration::from_secs(15);
/// Pause between two checks.
const LOOK: Duration = Duration::from_millis(20);

/// Reasons why the processes of a fabric do not come up.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The topology file cannot be read, or breaks a rule.
    #[error(transparent)]
    File(#[from] FileError),
    /// The directory belongs to another fabric.
    #[error(transparent)]
    Dir(#[from] DirLockError),
    /// The hosts file breaks a rule.
    #[error(transparent)]
    Hosts(#[from] HostsError),
    /// A machine does not answer, or reports an error.
    #[error("machine {name}: {said}")]
    Machine { name: String, said: String },
    /// A file or process cannot be made.
    #[error("{what}")]
    Io {
        /// The attempted action.
        what: String,
        source: std::io::Error,
    },
    /// A command of the system fails.
    #[error("{command}: {said}")]
    Refused {
        command: String,
        /// Its error output.
        said: String,
    },
    /// A process has ended, or does not answer.
    #[error("{name} {what}; see {}", .log.display())]
    Silent {
        name: String,
        /// Its failure, as a verb phrase.
        what: String,
        /// File with its messages.
        log: PathBuf,
    },
    /// The static set-up of the switches cannot be computed.
    #[error("compute the static configuration of the switches")]
    Tables(#[source] Box<UpError>),
    /// The manager's state cannot be saved.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The manager reports an error.
    #[error("the fabric manager: {0}")]
    Manager(String),
    /// A host does not come up.
    #[error(transparent)]
    Host(#[from] BringupError),
}

fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> ProcessError {
    let what = what.into();
    move |source| ProcessError::Io { what, source }
}

/// Writes a file that only the user can read, in place of one of an earlier run.
fn write(path: &Path, text: &str) -> Result<(), ProcessError> {
    let made = files::create_anew(path);
    made.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(io(format!("write {}", path.display())))
}

/// Settings of a fabric of processes.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Directory for files and sockets.
    pub dir: PathBuf,
    /// Prefix of interface names.
    pub prefix: String,
    /// Time limit for the answer to a TLP or command, in milliseconds.
    pub answer_ms: u32,
    /// Time between two polls of the manager, in milliseconds.
    pub pause_ms: u32,
    /// This machine's view; `None` for a fabric on one machine.
    pub here: Option<Here>,
}

/// A fabric with a process for each component.
pub struct Processes {
    setup: Setup,
    topology: Topology,
    layout: Layout,
    /// Set-up from the start, in a static fabric.
    static_fabric: Option<StaticFabric>,
    children: Vec<Process>,
    /// One end of each veth pair.
    pairs: Vec<String>,
    /// Keeps other fabrics out of the directory; dropped last, after all processes have ended.
    lock: Option<DirLock>,
}

impl Processes {
    /// Brings a topology up in the network namespace of this process.
    ///
    /// # Errors
    /// See [`ProcessError`]; nothing is left running then.
    pub fn up(text: &str, setup: Setup) -> Result<Self, ProcessError> {
        let mut up = Self::of(text, setup)?;
        up.take_dir()?;
        up.make_links()?;
        up.start_switches()?;
        up.start_endpoints()?;
        if up.topology.start == StartMode::Simultaneous {
            up.enumerate()?;
        }
        up.start_manager()?;
        up.enumerate()?;
        map(&up.setup.dir, &up.topology, &up.layout)?;
        Ok(up)
    }

    /// Reads a topology; starts and makes nothing yet.
    fn of(text: &str, setup: Setup) -> Result<Self, ProcessError> {
        let (topology, layout) = topology_file::read(text)?;
        // Absolute, as processes and scripts with these paths start elsewhere.
        let dir = std::path::absolute(&setup.dir);
        let dir = dir.map_err(io(format!("find {}", setup.dir.display())))?;
        let setup = Setup { dir, ..setup };
        let is_static = topology.start == StartMode::Static;
        let static_fabric = is_static.then(|| managed::static_fabric(&topology)).transpose();
        let static_fabric = static_fabric.map_err(|error| ProcessError::Tables(Box::new(error)))?;
        let (children, pairs) = (Vec::new(), Vec::new());
        Ok(Self { setup, topology, layout, static_fabric, children, pairs, lock: None })
    }

    /// Takes the directory, before anything is written there.
    fn take_dir(&mut self) -> Result<(), ProcessError> {
        let fabric = self.setup.here.as_ref().map(|here| here.fabric.clone());
        let fabric = fabric.unwrap_or_else(dir_lock::new_name);
        self.lock = Some(DirLock::take(&self.setup.dir, &fabric)?);
        // Folders of an earlier run may be links by now, or belong to others: check before they are used.
        let names = self.layout.parts().into_iter().map(|part| self.layout.name(part));
        for name in names.chain([MANAGER]) {
            let folder = self.setup.dir.join(name);
            if folder.symlink_metadata().is_ok() {
                make_own_dir(&folder)?;
            }
        }
        Ok(())
    }

    /// Whether a part runs on this machine.
    fn has(&self, part: &str) -> bool {
        self.setup.here.as_ref().is_none_or(|here| here.has(part))
    }

    /// Makes the hosts on this machine enumerate.
    fn enumerate(&self) -> Result<(), ProcessError> {
        let plan = Plan { topology: &self.topology, layout: &self.layout };
        self.hosts(|host| host.enumerate(plan))
    }

    /// Makes the hosts on this machine map the grants.
    fn map(&self, grants: &MemoryGrants) -> Result<(), ProcessError> {
        let plan = Plan { topology: &self.topology, layout: &self.layout };
        self.hosts(|host| host.map(plan, grants))
    }

    /// The topology that it was made from.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Makes the folder for files and sockets of a part.
    fn folder(&self, name: &str) -> Result<PathBuf, ProcessError> {
        let folder = self.setup.dir.join(name);
        make_own_dir(&folder)?;
        Ok(folder)
    }

    /// Starts a process for a part that drives `devices` and serves a socket.
    fn start(
        &mut self,
        name: &str,
        arguments: &[String],
        devices: Vec<String>,
        socket: &Path,
    ) -> Result<(), ProcessError> {
        let folder = self.folder(name)?;
        self.children.push(Process::start(name, &folder, arguments, devices, socket)?);
        Ok(())
    }

    /// Takes down the links of processes that have ended, as if they had lost power; returns messages about them.
    pub fn housekeeping(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        for process in &mut self.children {
            let Some(how) = process.has_ended() else { continue };
            process.devices.iter().for_each(|device| links::take_down(device));
            said.push(format!("{} has ended: {how}", process.name));
        }
        said
    }

    /// Waits until the last process accepts connections: its socket's file exists a moment earlier.
    fn listens(&mut self, socket: &Path) -> Result<(), ProcessError> {
        self.wait(|_| Ok(UnixStream::connect(socket).ok().map(drop)))
    }

    /// Waits until `done` returns a value, as long as the last process runs.
    fn wait<T>(
        &mut self,
        mut done: impl FnMut(&Self) -> Result<Option<T>, ProcessError>,
    ) -> Result<T, ProcessError> {
        for _ in 0..START.as_millis() / LOOK.as_millis() {
            if let Some(found) = done(self)? {
                return Ok(found);
            }
            if let Some(status) = self.children.last_mut().and_then(Process::exit_status) {
                return Err(self.silent(&format!("has ended: {status}")));
            }
            wait::pause(LOOK);
        }
        Err(self.silent("does not come up"))
    }

    /// The error for a failure of the last process.
    fn silent(&self, what: &str) -> ProcessError {
        let nobody = || ProcessError::Silent {
            name: String::new(),
            what: what.to_owned(),
            log: PathBuf::new(),
        };
        self.children.last().map_or_else(nobody, |last| last.silent(what))
    }

    fn start_switches(&mut self) -> Result<(), ProcessError> {
        for at in 0..self.layout.switches.len() {
            let Some(switch) = self.layout.switches.get(at) else { continue };
            let name = switch.name.clone();
            if !self.has(&name) {
                continue;
            }
            let folder = self.folder(&name)?;
            let (file, cci) = (folder.join("switch.toml"), folder.join("cci.sock"));
            // With TLS the commands are on TCP, so the management socket shows that the switch has started.
            let served = self.entry_keys(at);
            let socket = if served.is_some() { folder.join("mgmt.sock") } else { cci };
            if let Some((keys, _)) = &served {
                write_keys(&folder, keys)?;
            }
            let text = self.switch_config(at, &folder);
            write(&file, &text)?;
            let ports = self.layout.switches.get(at).map_or(0, |switch| switch.ports.len());
            let ports = (0..=u8::MAX).take(ports);
            let device = |port| self.device(End { part: Part::Switch(at), port });
            let devices = ports.map(device).collect();
            let arguments = ["run".to_owned(), "-c".to_owned(), file.display().to_string()];
            let address = served.map(|(_, address)| address);
            self.start(&name, &arguments, devices, &socket)?;
            self.listens(&socket)?;
            if let Some(address) = address {
                self.wait(|_| Ok(TcpStream::connect(address).ok().map(drop)))?;
            }
        }
        Ok(())
    }

    fn start_endpoints(&mut self) -> Result<(), ProcessError> {
        for part in self.layout.endpoints() {
            let name = self.layout.name(part).to_owned();
            if !self.has(&name) {
                continue;
            }
            let folder = self.folder(&name)?;
            let (file, socket) =
                (folder.join("endpoint.toml"), endpoint_socket(&self.setup.dir, &name));
            let device = |port| self.device(End { part, port });
            let port = |port| format!("af_packet:{}", device(port));
            let spec = endpoint_spec(&self.topology, &self.layout, part, &port);
            let Some(mut spec) = spec else { continue };
            spec.common_mut().answer_ms = Some(self.setup.answer_ms.into());
            write(&file, &spec.to_toml())?;
            let devices = (0..self.layout.link_count(part)).map(device).collect();
            let [file, at] = [&file, &socket].map(|path| path.display().to_string());
            let arguments = ["endpoint", spec.kind(), "--config", &file, "--socket", &at];
            self.start(&name, &arguments.map(ToOwned::to_owned), devices, &socket)?;
            self.listens(&socket)?;
        }
        Ok(())
    }

    fn manager_socket(&self) -> PathBuf {
        manager_socket(&self.setup.dir)
    }

    /// Starts the manager, and waits until the fabric is up.
    fn start_manager(&mut self) -> Result<(), ProcessError> {
        let Some(entry) = self.layout.switches.first().map(|switch| switch.name.clone()) else {
            return Ok(());
        };
        let folder = self.folder(MANAGER)?;
        let want = folder.join("want.toml");
        // Only GAEs of hosts on this machine: their sockets are local.
        let gae = |host: usize| {
            let name = self.layout.hosts.get(host).filter(|name| self.has(name))?;
            Some(format!("endpoint:{}", endpoint_socket(&self.setup.dir, name).display()))
        };
        let text = desired_state(&self.topology, &self.layout, &gae);
        write(&want, &text)?;
        let store = folder.join("fm.redb");
        if store.symlink_metadata().is_ok() {
            // It belongs to an earlier run, and so to another fabric.
            std::fs::remove_file(&store).map_err(io(format!("remove {}", store.display())))?;
        }
        if let Some(static_fabric) = &self.static_fabric {
            Store::open(&store)?.save(&static_fabric.state)?;
        }
        let mut arguments = vec!["fm".to_owned(), "serve".to_owned()];
        arguments.extend(self.way_to(&entry, &folder)?);
        let start = self.topology.start.to_string();
        let [answer_ms, pause_ms] =
            [self.setup.answer_ms, self.setup.pause_ms].map(|ms| ms.to_string());
        let path = |path: &Path| path.display().to_string();
        let (socket, want, store) = (path(&self.manager_socket()), path(&want), path(&store));
        let flags = [
            ["--socket", &socket],
            ["--want", &want],
            ["--store", &store],
            ["--start", &start],
            ["--pause", &pause_ms],
            ["--timeout", &answer_ms],
        ];
        arguments.extend(flags.into_iter().flatten().map(ToOwned::to_owned));
        let socket = self.manager_socket();
        self.start(MANAGER, &arguments, Vec::new(), &socket)?;
        self.listens(&socket)?;
        let mut errors = self.wait(|up| {
            Ok(match up.manager(&Request::Status)? {
                Response::Status(status) if status.phase == Phase::Up => Some(status.errors),
                _ => None,
            })
        })?;
        // A part whose link comes up late is found later, and gets its missing settings then.
        for _ in 0..SETTLES.as_millis() / LOOK.as_millis() {
            if errors.is_empty() {
                break;
            }
            wait::pause(LOOK);
            if let Response::Status(status) = self.manager(&Request::Status)?
                && status.phase == Phase::Up
            {
                errors = status.errors;
            }
        }
        match errors.into_iter().next() {
            None => Ok(()),
            Some(first) => Err(ProcessError::Manager(first)),
        }
    }

    /// Sends the fabric manager a request.
    ///
    /// # Errors
    /// The manager refuses, or is not there.
    pub fn manager(&self, request: &Request) -> Result<Response, ProcessError> {
        manager(&self.setup.dir, request)
    }

    /// Sends a part a command, by name.
    ///
    /// # Errors
    /// The part refuses, or is not there.
    pub fn ask(&self, name: &str, command: &Command) -> Result<Answer, Refused> {
        part(&self.setup.dir, name, command)
    }

    /// Calls `f` for each host on this machine.
    fn hosts(&self, f: impl Fn(&Host<'_>) -> Result<(), BringupError>) -> Result<(), ProcessError> {
        hosts(&self.setup.dir, &self.topology, |host| {
            let name = self.topology.hosts.get(host.at).map(|host| host.name.as_str());
            if name.is_some_and(|name| self.has(name)) { f(host) } else { Ok(()) }
        })
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // The manager first, so that it does not see the fabric go down.
        self.children.iter_mut().rev().for_each(Process::end);
        self.pairs.iter().for_each(|near| links::remove_pair(near));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn of(dir: &Path) -> Processes {
        let (dir, prefix) = (dir.to_owned(), "wfnone".to_owned());
        let setup = Setup { dir, prefix, answer_ms: 1_000, pause_ms: 200, here: None };
        let text = "switch = [{ name = \"sw\" }]\nhost = [{ name = \"h\", at = \"sw\" }]";
        Processes::of(text, setup).unwrap()
    }

    /// `run` restarts a part in any working directory, so that the path must be absolute.
    #[test]
    fn a_directory_is_named_from_the_root() {
        let up = of(Path::new("some/dir"));
        assert_eq!(up.setup.dir, std::env::current_dir().unwrap().join("some/dir"));
        assert!(!up.setup.dir.exists(), "nothing is made yet");
    }

    #[test]
    fn a_directory_is_taken_before_anything_is_made() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("fabric");
        let mut one = of(&dir);
        one.take_dir().unwrap();
        let refused = of(&dir).take_dir();
        assert!(matches!(refused, Err(ProcessError::Dir(DirLockError::Running(_)))));
        drop(one);
        of(&dir).take_dir().unwrap();
    }

    /// A user who may write to a part's folder could have put links there, and its owner could do so later.
    #[test]
    fn a_folder_of_others_is_refused_before_anything_is_written() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("fabric");
        let folder = dir.join("sw");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o777)).unwrap();
        let refused = of(&dir).take_dir();
        assert!(matches!(refused, Err(ProcessError::Dir(DirLockError::Open { .. }))));
        let refused = of(&dir).folder("sw");
        assert!(matches!(refused, Err(ProcessError::Dir(DirLockError::Open { .. }))));
        std::fs::remove_dir(&folder).unwrap();
        std::os::unix::fs::symlink(&dir, &folder).unwrap();
        assert!(of(&dir).take_dir().is_err());
    }
}
