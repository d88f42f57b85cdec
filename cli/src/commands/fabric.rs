//! `weft fabric`: checks, brings up and maps fabrics of a topology file.
//!
//! `up` runs all parts in this process, or each in its own, here or on several machines; each part has a socket.
//!
//! Source: docs/fabric.md.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use weft_base::files::{self, OpenedBy};
use weft_base::threads::{self, Ends, Role};
use weft_base::wait;
use weft_control::log::Log;
use weft_control::mgmt::Server;
use weft_control::supervise::{Supervisor, no_reload};
use weft_fm::service::run::Service;

use super::write_json;
use crate::error::CliError;
use weft_lab::endpoint::{Answer, Command};
use weft_lab::fabric::dir_lock::{self, DirLock};
use weft_lab::fabric::in_process::InProcessFabric;
use weft_lab::fabric::layout::{Layout, Part, Switch, Vcs, VppbBinding};
use weft_lab::fabric::managed::{ManagedFabric, SharedFabric, UpError};
use weft_lab::fabric::processes::coordinator::Machines;
use weft_lab::fabric::processes::hosts_file::{HostsError, HostsFile};
use weft_lab::fabric::processes::{self, ProcessError, Processes, Setup, agent};
use weft_lab::fabric::topology::Topology;
use weft_lab::fabric::topology_file::{self, FileError};
use weft_rpc::Refused;

/// Largest topology file in bytes; a thousand switches take less than 1 MiB.
const FILE_MAX: u64 = 16 << 20;
/// Interval at which the manager polls a fabric in this process.
const PAUSE: Duration = Duration::from_millis(200);
/// Interval at which ended processes and signals are noticed.
const HOUSEKEEPING: Duration = Duration::from_millis(20);
/// Pause of the fabric's thread when no part had anything to do.
const REST: Duration = Duration::from_micros(200);

#[derive(Debug, Subcommand)]
pub enum FabricCommand {
    /// Check a topology file and print its parts
    Check {
        /// Topology file, TOML
        file: PathBuf,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Have the hosts of a running fabric map exactly the memory, GIM and P2P that its manager grants them now
    Map {
        /// Topology file of the running fabric
        file: PathBuf,
        /// Directory of the fabric's sockets
        #[arg(long, value_name = "DIR", default_value = "/run/weft/fabric")]
        dir: PathBuf,
        /// Machines that the fabric runs on, TOML
        #[arg(long, value_name = "FILE")]
        hosts: Option<PathBuf>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Bring up a topology: switches, hosts, devices, GFDs and their manager
    Up(UpArgs),
    /// Run by `up --hosts` on each machine: carry out the commands from standard input
    #[command(hide = true)]
    Agent,
}

/// Arguments of `weft fabric up`.
#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("parts").args(["processes", "hosts"]))]
pub struct UpArgs {
    /// Topology file, TOML
    file: PathBuf,
    /// Directory for sockets: DIR/fm/fm.sock for `weft fm --socket`, DIR/NAME/endpoint.sock for `weft endpoint ctl`
    #[arg(long, value_name = "DIR", default_value = "/run/weft/fabric")]
    dir: PathBuf,
    /// Bring the fabric up, print the devices that each host sees, and exit
    #[arg(long)]
    once: bool,
    /// Run each part in its own process, connected by veth pairs in this network namespace (needs root)
    #[arg(long)]
    processes: bool,
    /// Run each part in its own process, on the machines of this file (TOML), connected by VXLAN
    #[arg(long, value_name = "FILE", conflicts_with = "processes")]
    hosts: Option<PathBuf>,
    /// Prefix of interface names
    #[arg(long, default_value = "wf", value_parser = prefix, requires = "parts")]
    prefix: String,
    /// Time limit for the answer to a TLP or a command in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 10_000, requires = "parts", value_parser = clap::value_parser!(u32).range(1..=600_000))]
    answer_ms: u32,
    /// Longest time between two polls of the fabric by its manager, in milliseconds; a notification from a switch
    /// causes one at once
    #[arg(long, value_name = "MS", default_value_t = 200, requires = "parts", value_parser = clap::value_parser!(u32).range(10..=3_600_000))]
    pause: u32,
}

/// Parses `--prefix`. An interface's name has at most 15 bytes, which must also hold the wire's number and its end.
fn prefix(text: &str) -> Result<String, String> {
    let good = (1..=8).contains(&text.len()) && text.bytes().all(|c| c.is_ascii_alphanumeric());
    good.then(|| text.to_owned()).ok_or_else(|| "expected 1 to 8 letters and digits".to_owned())
}

/// Runs `weft fabric`.
///
/// # Errors
/// A file that cannot be read or is wrong, a fabric that does not come up, or sockets that cannot be made.
pub fn run(command: &FabricCommand, out: &mut dyn Write) -> Result<(), CliError> {
    match command {
        FabricCommand::Check { file, json } => check(file, *json, out),
        FabricCommand::Map { file, dir, hosts, json: false } => map(file, dir, hosts.as_deref()),
        FabricCommand::Map { file, dir, hosts, json: true } => {
            map(file, dir, hosts.as_deref())?;
            write_json(out, &json!({ "mapped": file }))
        }
        FabricCommand::Up(args) if args.processes || args.hosts.is_some() => {
            up_processes(args, out)
        }
        FabricCommand::Up(args) => up(args, out),
        FabricCommand::Agent => {
            serve_orders().map_err(|source| CliError::system("do what standard input says", source))
        }
    }
}

fn read(file: &Path) -> Result<String, CliError> {
    let error = |source| CliError::File { verb: "read", path: file.to_owned(), source };
    files::read_text(file, OpenedBy::Command, FILE_MAX).map_err(error)
}

fn laid_out(file: &Path) -> Result<(Topology, Layout), CliError> {
    topology_file::read(&read(file)?).map_err(|error| of_topology(error, file))
}

/// An error in the topology `file`.
fn of_topology(error: FileError, file: &Path) -> CliError {
    match error {
        FileError::Text(mistakes) => CliError::refused(file, mistakes),
        other => CliError::wrong(file, &other),
    }
}

/// An error in the `file` of `--hosts`.
fn of_hosts(error: HostsError, file: &Path) -> CliError {
    match error {
        HostsError::Text(mistakes) => CliError::refused(file, mistakes),
        other => CliError::wrong(file, &other),
    }
}

fn map(file: &Path, dir: &Path, hosts: Option<&Path>) -> Result<(), CliError> {
    let Some(hosts_file) = hosts else {
        let (topology, layout) = laid_out(file)?;
        return processes::map(dir, &topology, &layout)
            .map_err(|source| CliError::system("map memory", source));
    };
    let text = read(file)?;
    // `reach` starts nothing, so prefix and limits are not used.
    let (dir, prefix, answer_ms, pause_ms) = (dir.to_owned(), "wf".to_owned(), 10_000, 200);
    let setup = Setup { dir, prefix, answer_ms, pause_ms, here: None };
    let reached = Machines::reach(&text, hosts_of(hosts_file)?, &setup);
    let done = reached.and_then(|mut machines| machines.map());
    done.map_err(|error| of_files(error, file, Some(hosts_file), "map memory"))
}

/// Serves the orders on standard input, past the buffer of `Stdin`: the descriptor is polled, and a buffered order
/// would not wake the poll.
fn serve_orders() -> std::io::Result<()> {
    let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    agent::serve(input, output)
}

/// Reads the file of `--hosts`: the machines, and the parts that each runs.
fn hosts_of(file: &Path) -> Result<HostsFile, CliError> {
    HostsFile::parse(&read(file)?).map_err(|error| of_hosts(error, file))
}

/// Names the faulty file in an error of the topology or of `--hosts`; other errors are the system's.
fn of_files(
    error: ProcessError,
    file: &Path,
    hosts: Option<&Path>,
    what: &'static str,
) -> CliError {
    match (error, hosts) {
        (ProcessError::File(error), _) => of_topology(error, file),
        (ProcessError::Hosts(error), Some(hosts)) => of_hosts(error, hosts),
        (error, _) => CliError::system(what, error),
    }
}

fn check(file: &Path, is_json: bool, out: &mut dyn Write) -> Result<(), CliError> {
    let (topology, layout) = laid_out(file)?;
    if is_json {
        return write_json(out, &parts(&topology, &layout));
    }
    show(&topology, &layout, out).map_err(CliError::Output)
}

/// The name of the part behind each vPPB of a virtual switch, or `nothing`.
fn bindings<'a>(
    layout: &'a Layout,
    switch: &'a Switch,
    vcs: &'a Vcs,
) -> impl Iterator<Item = String> + 'a {
    let far =
        move |port: u8| switch.ports.get(usize::from(port)).map_or("", |port| port.name.as_str());
    vcs.vppbs.iter().map(move |shown| match shown {
        VppbBinding::Port(port) => far(*port).to_owned(),
        VppbBinding::Ld(port, ld) => format!("{}.{ld}", far(*port)),
        VppbBinding::Below { switch, .. } => layout.name(Part::Switch(*switch)).to_owned(),
        VppbBinding::Spare => "nothing".to_owned(),
    })
}

/// The parts of a fabric as JSON; `show` prints the same as text.
fn parts(topology: &Topology, layout: &Layout) -> Value {
    let virtual_switch = |switch: &Switch, vcs: &Vcs| {
        let vppbs: Vec<String> = bindings(layout, switch, vcs).collect();
        json!({ "host": layout.name(Part::Host(vcs.host)), "vppbs": vppbs })
    };
    let switch = |switch: &Switch| {
        let ports: Vec<&str> = switch.ports.iter().map(|port| port.name.as_str()).collect();
        let vcses: Vec<Value> =
            switch.vcses.iter().map(|vcs| virtual_switch(switch, vcs)).collect();
        json!({ "name": switch.name, "ports_to": ports, "virtual_switches": vcses })
    };
    let names = |count: usize, part: fn(usize) -> Part| -> Vec<&str> {
        (0..count).map(|at| layout.name(part(at))).collect()
    };
    json!({
        "about": topology.about,
        "switches": layout.switches.iter().map(switch).collect::<Vec<_>>(),
        "hosts": names(layout.hosts.len(), Part::Host),
        "devices": names(layout.devices.len(), Part::Device),
        "hbr_switches": names(layout.hbrs.len(), Part::Hbr),
        "gfds": names(layout.gfds.len(), Part::Gfd),
        "links": layout.wires.len(),
    })
}

fn show(topology: &Topology, layout: &Layout, out: &mut dyn Write) -> std::io::Result<()> {
    if !topology.about.is_empty() {
        writeln!(out, "{}", topology.about)?;
    }
    for switch in &layout.switches {
        let ports: Vec<&str> = switch.ports.iter().map(|port| port.name.as_str()).collect();
        writeln!(out, "{}: ports to {}", switch.name, ports.join(", "))?;
        for (number, vcs) in switch.vcses.iter().enumerate() {
            let owner = layout.name(Part::Host(vcs.host));
            let shown: Vec<String> = bindings(layout, switch, vcs).collect();
            let list = if shown.is_empty() { "nothing".to_owned() } else { shown.join(", ") };
            writeln!(out, "  virtual switch {number} of {owner}: {list}")?;
        }
    }
    let (switches, hosts, devices) =
        (layout.switches.len(), layout.hosts.len(), layout.devices.len());
    let (hbrs, gfds, wires) = (layout.hbrs.len(), layout.gfds.len(), layout.wires.len());
    writeln!(
        out,
        "{switches} switches, {hosts} hosts, {devices} devices, {hbrs} HBR switches, {gfds} GFDs, {wires} links"
    )
}

/// A fabric of processes, on this machine or on several.
enum Parts {
    Here(Box<Processes>),
    Machines(Box<Machines>),
}

impl Parts {
    fn up(args: &UpArgs) -> Result<Self, CliError> {
        let text = read(&args.file)?;
        let (dir, prefix) = (args.dir.clone(), args.prefix.clone());
        let (answer_ms, pause_ms) = (args.answer_ms, args.pause);
        let setup = Setup { dir, prefix, answer_ms, pause_ms, here: None };
        let up = match &args.hosts {
            Some(file) => {
                Machines::up(&text, hosts_of(file)?, &setup).map(|up| Self::Machines(Box::new(up)))
            }
            None => Processes::up(&text, setup).map(|up| Self::Here(Box::new(up))),
        };
        up.map_err(|error| {
            of_files(error, &args.file, args.hosts.as_deref(), "bring the fabric up")
        })
    }

    const fn topology(&self) -> &Topology {
        match self {
            Self::Here(up) => up.topology(),
            Self::Machines(up) => up.topology(),
        }
    }

    fn ask(&mut self, name: &str, command: &Command) -> Result<Answer, Refused> {
        match self {
            Self::Here(up) => up.ask(name, command),
            Self::Machines(up) => up.ask(name, command),
        }
    }

    fn housekeeping(&mut self) -> Result<Vec<String>, CliError> {
        match self {
            Self::Here(up) => Ok(up.housekeeping()),
            Self::Machines(up) => {
                up.housekeeping().map_err(|source| CliError::system("keep the fabric up", source))
            }
        }
    }
}

fn up_processes(args: &UpArgs, out: &mut dyn Write) -> Result<(), CliError> {
    // Before the parts start: by default a signal ends the process without `Drop`, and interfaces would be left behind.
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|source| CliError::system("wait for signals", source))?;
    let mut up = Parts::up(args)?;
    for host in up.topology().hosts.clone() {
        // A host that doesn't answer here is no reason to take the fabric down again.
        if let Ok(Answer::Tree { text, .. }) = up.ask(&host.name, &Command::Tree {}) {
            writeln!(out, "{} sees\n{text}", host.name).map_err(CliError::Output)?;
        }
    }
    if args.once {
        return Ok(());
    }
    writeln!(out, "fabric is up at {}", args.dir.display()).map_err(CliError::Output)?;
    out.flush().map_err(CliError::Output)?;
    while signals.pending().next().is_none() {
        for line in up.housekeeping()? {
            anstream::eprintln!("{line}; its links are down");
        }
        wait::pause(HOUSEKEEPING);
    }
    Ok(())
}

fn up(args: &UpArgs, out: &mut dyn Write) -> Result<(), CliError> {
    let text = read(&args.file)?;
    let mut supervisor = Supervisor::begin(Log::default())?;
    // `--once` opens no sockets, so another fabric may use the directory.
    let own = || DirLock::take(&args.dir, &dir_lock::new_name());
    let _lock = (!args.once)
        .then(own)
        .transpose()
        .map_err(|source| CliError::system("bring the fabric up", source))?;
    let fabric = ManagedFabric::up(&text, Box::new(|_| weft_lab::clock::now()));
    let fabric = fabric.map_err(|error| match error {
        UpError::File(error) => of_topology(error, &args.file),
        UpError::Layout(_) | UpError::DesiredState(_) => CliError::wrong(&args.file, &error),
        other => CliError::system("bring the fabric up", other),
    })?;
    let (shared, fm, topology) = fabric.into_parts();
    for (at, host) in topology.hosts.iter().enumerate() {
        if let Ok(Answer::Tree { text, .. }) = shared.ask(Part::Host(at), &Command::Tree {}) {
            writeln!(out, "{} sees\n{text}", host.name).map_err(CliError::Output)?;
        }
    }
    // The desired state may not be met yet. `up` keeps running, as the manager retries; `--once` fails.
    let errors = fm.board().status().errors;
    for error in &errors {
        writeln!(out, "error: {error}").map_err(CliError::Output)?;
    }
    if args.once {
        return match errors.first() {
            None => Ok(()),
            Some(first) => {
                Err(CliError::Difference(format!("not all is as the file says: {first}")))
            }
        };
    }
    let servers = serve(&shared, &args.dir)?;
    let service =
        Service::start(fm, PAUSE).map_err(|source| CliError::system("start a thread", source))?;
    let manager = Server::start(&processes::manager_socket(&args.dir), service.handler())
        .map_err(|source| CliError::system("serve the manager's socket", source))?;
    let stop = Arc::new(AtomicBool::new(false));
    let (parts, over) = (shared.clone(), stop.clone());
    let asked = stop.clone();
    let ends = Ends::when(move || asked.load(Ordering::Acquire));
    let driver = threads::spawn(Role::Fabric, "weft-fabric", ends, move || drive(&parts, &over))
        .map_err(|source| CliError::system("start a thread", source))?;
    writeln!(out, "fabric is up at {}", args.dir.display()).map_err(CliError::Output)?;
    out.flush().map_err(CliError::Output)?;
    let signal = supervisor.wait(no_reload);
    anstream::eprintln!("stopping on {signal}");
    // Servers end when their clients have their answers, and a transfer may take minutes: refuse all that is in flight.
    shared.with(InProcessFabric::end_commands);
    drop((servers, manager, service));
    stop.store(true, Ordering::Release); // pairs with `drive`
    let _ = driver.join(); // a panic has been printed
    shared.with(|parts| books(parts, out)).map_err(CliError::Output)
}

/// Prints the frame ledger of each switch.
fn books(parts: &InProcessFabric, out: &mut dyn Write) -> std::io::Result<()> {
    for (at, switch) in parts.layout().switches.iter().enumerate() {
        let Some(ledger) = parts.ledger(at) else { continue };
        writeln!(
            out,
            "{}: rx {} tx {} dropped {}, unaccounted {}",
            switch.name,
            ledger.rx,
            ledger.tx,
            ledger.dropped,
            ledger.imbalance()
        )?;
    }
    Ok(())
}

/// Serves a socket for each part except PBR switches, which the manager controls.
fn serve(shared: &SharedFabric, dir: &Path) -> Result<Vec<Server>, CliError> {
    let handles = shared.with(|parts| parts.handles());
    let mut servers = Vec::new();
    for (name, handle) in handles {
        let path = processes::endpoint_socket(dir, &name);
        let server = Server::start(&path, Arc::new(handle));
        servers.push(server.map_err(|source| CliError::system("serve a socket", source))?);
    }
    Ok(servers)
}

fn drive(shared: &SharedFabric, stop: &AtomicBool) {
    let mut moved = true;
    while !stop.load(Ordering::Acquire) {
        moved = shared.step(moved);
        if !moved {
            wait::pause(REST);
        }
    }
}
