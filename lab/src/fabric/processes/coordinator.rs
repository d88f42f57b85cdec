//! Coordinates a fabric over several machines: which machine runs which part, and in which order.
//!
//! [`Machines::up`] takes a topology and a hosts file; [`Machines::housekeeping`] keeps links alike at both ends;
//! dropping it ends the fabric.
//!
//! Source: docs/fabric.md "Over several machines"; ssh(1).

use std::collections::{BTreeMap, VecDeque};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command as Run, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use weft_base::files::{self, OpenedBy};
use weft_base::wait;
use weft_dataplane::time::Span;
use weft_fm::service::status::StartMode;
use weft_fm::service::{Request, Response};
use weft_rpc::Refused;

use super::alive::{Beat, Heard};
use super::hosts_file::{Here, HostsFile, Keys, Machine, WireHere};
use super::lines::{Lines, Next, write_line};
use super::protocol::{Event, Order, Reply, Setup as SetupOrder};
use super::{LOOK, ProcessError, Setup, io};
use crate::clock;
use crate::endpoint::{Answer, Command};
use crate::fabric::dir_lock;
use crate::fabric::direct_access::requester_ids;
use crate::fabric::granted::Plan;
use crate::fabric::host_bringup::MemoryGrants;
use crate::fabric::layout::{Layout, MANAGER};
use crate::fabric::topology::Topology;
use crate::fabric::topology_file;

/// Longest time for an order: hosts of a large fabric enumerate one after the other.
const ORDER: Span = Span::from_ms(600_000);
/// Wait for an answer between two checks that its machine is alive.
const LISTEN: Duration = Duration::from_secs(1);
/// Longest time for a machine to end its parts.
const END: Duration = Duration::from_secs(30);

/// Events that may come before an answer.
const EVENTS_MAX: usize = 10_000;

/// ssh must not ask questions, which no terminal would answer, and must end when its connection is cut off, even while
/// it blocks on a line.
const SSH_OPTIONS: [&str; 4] =
    ["BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=5", "ServerAliveCountMax=3"];

/// Arguments of `weft` at each machine.
const AGENT: [&str; 2] = ["fabric", "agent"];
/// Longest file of `weft tls init`.
const KEY_LEN_MAX: u64 = 1 << 20;

/// A fabric over several machines.
pub struct Machines {
    agents: Vec<Agent>,
    hosts: HostsFile,
    topology: Topology,
    layout: Layout,
    /// Last state of each end, by wire and machine.
    ends: BTreeMap<(usize, usize), bool>,
}

impl Machines {
    /// Brings a topology up. `setup` has the settings that a machine's entry leaves out.
    ///
    /// # Errors
    /// See [`ProcessError`]; nothing is left running then, except at a machine that can no longer be reached.
    pub fn up(text: &str, hosts: HostsFile, setup: &Setup) -> Result<Self, ProcessError> {
        let mut up = Self::reach(text, hosts, setup)?;
        for order in [Order::Links, Order::Switches, Order::Endpoints] {
            up.all(&order)?;
        }
        if up.topology.start == StartMode::Simultaneous {
            up.all(&Order::Enumerate)?;
        }
        if let Some(at) = up.hosts.of(MANAGER) {
            up.call(at, &Order::Manager)?;
        }
        up.all(&Order::Enumerate)?;
        up.map()?;
        Ok(up)
    }

    /// Connects to the machines of a fabric, and starts nothing there.
    ///
    /// # Errors
    /// A file that breaks a rule, or a machine that does not answer.
    pub fn reach(text: &str, mut hosts: HostsFile, setup: &Setup) -> Result<Self, ProcessError> {
        let (topology, layout) = topology_file::read(text)?;
        hosts.check(&layout)?;
        let entry = layout.switches.first().map(|switch| switch.name.clone());
        let apart = entry.filter(|entry| hosts.is_apart(entry));
        let keys = |name: &str| hosts.tls.as_deref().map(|dir| read_keys(dir, name)).transpose();
        let (switch_keys, manager_keys) = match &apart {
            Some(_) => (keys("switch")?, keys("primary")?),
            None => (None, None),
        };
        // All connections are started before the first answer is awaited, so that slow ones overlap.
        let mut agents = Vec::new();
        for machine in &hosts.machines {
            agents.push(Agent::start(machine)?);
        }
        let ends = BTreeMap::new();
        let fabric = dir_lock::new_name();
        let mut up = Self { agents, hosts, topology, layout, ends };
        for (at, machine) in up.hosts.machines.iter().enumerate() {
            let is_entry = apart.as_ref().is_some_and(|entry| machine.parts.contains(entry));
            let is_manager = machine.parts.iter().any(|part| part == MANAGER);
            let here = Here {
                // The directory of keys is known here only; machines get the keys themselves.
                hosts: HostsFile { tls: None, ..up.hosts.clone() },
                at,
                fabric: fabric.clone(),
                // A machine gets a key only if its own part needs it.
                switch_keys: switch_keys.clone().filter(|_| is_entry),
                manager_keys: manager_keys.clone().filter(|_| is_manager),
            };
            let order = Order::Setup(Box::new(SetupOrder {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                topology: text.to_owned(),
                dir: machine.dir.clone().unwrap_or_else(|| setup.dir.clone()),
                prefix: setup.prefix.clone(),
                answer_ms: setup.answer_ms,
                pause_ms: setup.pause_ms,
                here,
            }));
            if let Some(agent) = up.agents.get_mut(at) {
                agent.send(&order)?;
            }
        }
        up.agents.iter_mut().try_for_each(Agent::done)?;
        Ok(up)
    }

    /// The topology that it was made from.
    #[must_use]
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Makes all hosts map the memory that the manager has given.
    ///
    /// # Errors
    /// A machine or part does not answer, or refuses.
    pub fn map(&mut self) -> Result<(), ProcessError> {
        let Some(at) = self.hosts.of(MANAGER) else { return Ok(()) };
        let pause = || wait::pause(LOOK);
        let mut grants = MemoryGrants::settled(|request| self.manager(at, request), pause)?;
        let (topology, layout) = (self.topology.clone(), self.layout.clone());
        let plan = Plan { topology: &topology, layout: &layout };
        grants.ids = requester_ids(plan, &grants, |at, command| {
            let host = topology.hosts.get(at).map(|host| host.name.as_str());
            self.ask(host.unwrap_or_default(), command)
        });
        // Checked before, reported after: hosts map everything that they can.
        let mapped = grants.all_mapped(plan);
        self.all(&Order::Map { grants })?;
        Ok(mapped?)
    }

    fn manager(&mut self, at: usize, request: &Request) -> Result<Response, ProcessError> {
        let agent = self.agents.get_mut(at);
        let Some(agent) = agent else { return Err(ProcessError::Manager("nowhere".to_owned())) };
        match agent.call(&Order::AskManager { request: request.clone() })? {
            Reply::Manager(response) => Ok(*response),
            other => Err(agent.unexpected(&other)),
        }
    }

    /// Sends a part a command, by name.
    ///
    /// # Errors
    /// The part refuses, or is not there.
    pub fn ask(&mut self, name: &str, command: &Command) -> Result<Answer, Refused> {
        let away = || Refused::unavailable(format!("{name} is on no machine"));
        let at = self.hosts.of(name).ok_or_else(away)?;
        let agent = self.agents.get_mut(at).ok_or_else(away)?;
        let order = Order::Ask { name: name.to_owned(), command: command.clone() };
        match agent.call(&order) {
            Ok(Reply::Answer(answer)) => Ok(*answer),
            Ok(Reply::Refused(refused)) => Err(refused),
            Ok(other) => Err(Refused::unavailable(agent.unexpected(&other).to_string())),
            Err(error) => Err(Refused::unavailable(error.to_string())),
        }
    }

    /// Makes both ends of each wire between machines go up and down together; returns the events since the last call.
    ///
    /// # Errors
    /// A machine is lost.
    pub fn housekeeping(&mut self) -> Result<Vec<String>, ProcessError> {
        let mut said = Vec::new();
        for at in 0..self.agents.len() {
            let Some(agent) = self.agents.get_mut(at) else { continue };
            agent.listen()?;
            while let Some(event) = self.agents.get_mut(at).and_then(|a| a.events.pop_front()) {
                match event {
                    Event::Ended(text) => {
                        let name = self.agents.get(at).map_or("", |agent| agent.name.as_str());
                        said.push(format!("machine {name}: {text}"));
                    }
                    Event::Link { wire, is_up } => self.link_changed(at, wire, is_up)?,
                }
            }
        }
        Ok(said)
    }

    /// Passes a change of one end on to the other, whose kernel does not see it.
    fn link_changed(&mut self, at: usize, wire: usize, is_up: bool) -> Result<(), ProcessError> {
        // A machine's word about wires of other machines does not count.
        let Some(ends) = self.layout.wires.get(wire) else { return Ok(()) };
        let machine = |here| Here {
            hosts: self.hosts.clone(),
            at: here,
            fabric: String::new(),
            switch_keys: None,
            manager_keys: None,
        };
        let has_end = |here| matches!(machine(here).wire(&self.layout, ends), WireHere::One(..));
        let Some(other) = (0..self.agents.len()).find(|here| *here != at && has_end(*here)) else {
            return Ok(());
        };
        if !has_end(at) || self.ends.insert((wire, at), is_up) == Some(is_up) {
            return Ok(());
        }
        self.call(other, &Order::Carrier { wire, is_on: is_up })
    }

    /// Sends all machines an order at once, and waits until all have carried it out.
    fn all(&mut self, order: &Order) -> Result<(), ProcessError> {
        self.agents.iter_mut().try_for_each(|agent| agent.send(order))?;
        self.agents.iter_mut().try_for_each(Agent::done)
    }

    fn call(&mut self, at: usize, order: &Order) -> Result<(), ProcessError> {
        let Some(agent) = self.agents.get_mut(at) else { return Ok(()) };
        agent.send(order)?;
        agent.done()
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        // The manager first, so that it does not see the fabric go down.
        let first = self.hosts.of(MANAGER).unwrap_or(0);
        if let Some(agent) = self.agents.get_mut(first) {
            agent.end();
        }
        // All inputs are closed before the first machine is awaited, so that they end their parts in parallel.
        self.agents.iter().for_each(Agent::close);
        self.agents.iter_mut().for_each(Agent::end);
    }
}

fn locked(input: &Input) -> MutexGuard<'_, Option<ChildStdin>> {
    input.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes an order in one piece.
fn write_to(input: &Input, order: &Order) -> std::io::Result<()> {
    match locked(input).as_mut() {
        Some(pipe) => write_line(pipe, order),
        None => Err(std::io::ErrorKind::BrokenPipe.into()),
    }
}

/// Reads the files of `weft tls init` for a switch or a primary.
fn read_keys(dir: &Path, name: &str) -> Result<Keys, ProcessError> {
    let read = |file: String| {
        let path = dir.join(file);
        files::read_text(&path, OpenedBy::Service, KEY_LEN_MAX)
            .map_err(io(format!("read {}", path.display())))
    };
    let (ca, cert) = (read("ca.pem".to_owned())?, read(format!("{name}.pem"))?);
    Ok(Keys { ca, cert, key: read(format!("{name}.key"))? })
}

/// Input of an agent; `None` once it was closed to end the agent.
type Input = Arc<Mutex<Option<ChildStdin>>>;

/// The agent of one machine, seen from here.
struct Agent {
    name: String,
    child: Child,
    input: Input,
    /// Tells it that the coordinator is alive, also while this process waits.
    _beat: Beat,
    heard: Heard,
    lines: Lines<ChildStdout>,
    events: VecDeque<Event>,
}

impl Agent {
    fn start(machine: &Machine) -> Result<Self, ProcessError> {
        // On this machine the agent is this very program; elsewhere `weft` is looked up there.
        let here = std::env::current_exe().map_err(io("find the program of this process"))?;
        let here = here.display().to_string();
        let mut words: Vec<String> = machine.run.clone();
        if let Some(ssh) = &machine.ssh {
            words.extend(["ssh", "-T"].map(ToOwned::to_owned));
            words.extend(
                SSH_OPTIONS.iter().flat_map(|option| ["-o".to_owned(), (*option).to_owned()]),
            );
            words.push(ssh.clone());
        }
        let there = if machine.ssh.is_some() { "weft".to_owned() } else { here };
        words.push(machine.weft.clone().unwrap_or(there));
        words.extend(AGENT.map(ToOwned::to_owned));
        let (program, arguments) = words.split_first().map_or(("", &[][..]), |(a, b)| (a, b));
        let child = Run::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Signals of the terminal go to this process alone, which must end the fabric in order.
            .process_group(0)
            .spawn();
        let name = machine.name.clone();
        let mut child = child.map_err(io(format!("start {program} for machine {name}")))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let Some(output) = output else {
            return Err(ProcessError::Machine { name, said: "has no output".to_owned() });
        };
        let input = Arc::new(Mutex::new(input));
        let beaten = Arc::clone(&input);
        let beat =
            Beat::start(move || write_to(&beaten, &Order::Alive)).map_err(io("start a thread"))?;
        let (lines, events) = (Lines::new(output), VecDeque::new());
        Ok(Self { name, child, input, _beat: beat, heard: Heard::default(), lines, events })
    }

    fn error(&self, said: impl Into<String>) -> ProcessError {
        ProcessError::Machine { name: self.name.clone(), said: said.into() }
    }

    fn unexpected(&self, reply: &Reply) -> ProcessError {
        match reply {
            Reply::Failed(said) => self.error(said.clone()),
            Reply::Refused(refused) => self.error(refused.to_string()),
            _ => self.error("its answer is to another order"),
        }
    }

    fn send(&mut self, order: &Order) -> Result<(), ProcessError> {
        write_to(&self.input, order).map_err(|_| self.error("does not run (any more)"))
    }

    fn close(&self) {
        *locked(&self.input) = None;
    }

    fn read(&mut self, timeout: Duration) -> Result<Option<Reply>, ProcessError> {
        match self.lines.next(timeout) {
            Ok(Next::Line(line)) => {
                self.heard.now();
                serde_json::from_slice(&line).map(Some).map_err(|error| {
                    let said =
                        String::from_utf8_lossy(line.get(..80).unwrap_or(&line)).into_owned();
                    self.error(format!("its answer is not understood ({error}): {said}"))
                })
            }
            Ok(Next::Nothing) if self.heard.is_lost() => Err(self.error(Heard::lost())),
            Ok(Next::Nothing) => Ok(None),
            Ok(Next::Closed) => Err(self.error("has ended")),
            Err(error) => Err(self.error(error.to_string())),
        }
    }

    /// Waits for the answer to the order that was sent last.
    fn reply(&mut self) -> Result<Reply, ProcessError> {
        let (mut events, begun) = (0, clock::now());
        while events < EVENTS_MAX {
            match self.read(LISTEN)? {
                Some(Reply::Event(event)) => {
                    self.events.push_back(event);
                    events += 1;
                }
                // Signs of life do not extend the time for the order.
                Some(Reply::Alive) | None if clock::now().since(begun) < ORDER => {}
                Some(Reply::Alive) | None => return Err(self.error("does not answer")),
                Some(reply) => return Ok(reply),
            }
        }
        Err(self.error("tells of more and more instead of an answer"))
    }

    fn call(&mut self, order: &Order) -> Result<Reply, ProcessError> {
        self.send(order)?;
        self.reply()
    }

    fn done(&mut self) -> Result<(), ProcessError> {
        match self.reply()? {
            Reply::Done => Ok(()),
            other => Err(self.unexpected(&other)),
        }
    }

    /// Receives unsolicited reports of the machine.
    fn listen(&mut self) -> Result<(), ProcessError> {
        for _ in 0..EVENTS_MAX {
            let Some(reply) = self.read(Duration::ZERO)? else { break };
            match reply {
                Reply::Alive => {}
                Reply::Event(event) => self.events.push_back(event),
                other => return Err(self.unexpected(&other)),
            }
        }
        Ok(())
    }

    /// Ends the agent, which ends its parts when its orders end.
    fn end(&mut self) {
        self.close();
        for _ in 0..END.as_millis() / LOOK.as_millis() {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            wait::pause(LOOK);
        }
        // Killed after its time: this process must not wait for ever.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
