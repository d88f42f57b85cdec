//! A running switch: ports opened, workers on their cores, and a hand on all of them.
//!
//! A resolved [`weft_config::Config`] → [`Live`], until [`Live::stop`] gives the final counters.
//!
//! Source: ARCHITECTURE.md "The path of a frame"; ARCHITECTURE.md "Control"; docs/spec/pipeline.md §11.

pub mod agent;
pub mod backend;
mod build;
pub mod cci;
pub mod confine;
pub mod devices;
mod mtu;
mod pairs;
mod pause_guard;
pub mod placement;
mod refusals;
mod sai;
mod start;
mod trace;
pub mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::thread::MembarrierCommand;
use weft_base::{threads, wait};
use weft_config::Sources;
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::{Core, Ledger, PortLedger};
use weft_dataplane::pool::PoolError;
use weft_dataplane::port::record::{Recorder, Summary};
use weft_dataplane::port::{Port, PortOpenError};
use weft_dataplane::snapshot::SnapshotError;
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_dataplane::worker::{Clock, Stuck, WorkerGroup, WorkerGroupError};

use crate::express::{Express, Watch};
use crate::record::Change;
use crate::report::fabric::{FabricReport, Served, refusals};

use agent::Agent;
use cci::mctp::MctpError;

pub use build::{assemble, chunks, pool, spread, successor, take_over};
pub use start::NewRecord;

/// Why a switch cannot be started or changed.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A device cannot be opened.
    #[error("port {name}")]
    Open {
        /// The port.
        name: String,
        /// Why.
        source: Box<PortOpenError>,
    },
    /// The pool cannot be made.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The parts do not fit together.
    #[error(transparent)]
    Build(Box<weft_dataplane::pipeline::BuildError>),
    /// Workers cannot be woken.
    #[error(transparent)]
    WorkerGroup(#[from] WorkerGroupError),
    /// A worker does not answer; nothing was changed.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// No thread could be started.
    #[error("start worker {worker}")]
    Thread {
        /// Which one.
        worker: usize,
        /// The kernel's answer.
        source: std::io::Error,
    },
    /// Workers cannot run where, or as early as they are to.
    #[error(transparent)]
    Placement(#[from] placement::PlacementError),
    /// No thread that looks after workers.
    #[error("start the thread that pauses peers while a worker is away")]
    Guard(#[source] std::io::Error),
    /// A new configuration was refused.
    #[error(transparent)]
    Snapshot(Box<SnapshotError>),
    /// The record cannot be begun.
    #[error("begin the record")]
    Record(#[source] std::io::Error),
    /// The kernel refused the configuration of its part.
    #[error("fast path in the kernel")]
    Express(#[from] weft_xdp::XdpError),
    /// There is no such switch.
    #[error("functions of a switch that routes TLPs")]
    Fabric(#[source] weft_pbr_switch::ConfigError),
    /// No thread, or no eventfd.
    #[error("start the agent")]
    Agent(#[source] std::io::Error),
    /// Managers cannot connect.
    #[error("serve CCI")]
    Cci(#[from] cci::CciError),
    /// Managers that speak MCTP cannot connect.
    #[error(transparent)]
    Mctp(#[from] MctpError),
    /// A record does not hold what the agent does.
    #[error(
        "a switch whose ports have roles cannot be recorded: what its agent does is in no record"
    )]
    NoRecord,
    /// A static entry was refused.
    #[error(transparent)]
    Static(#[from] weft_dataplane::fdb::StaticError),
}

impl LiveError {
    /// What a refusal by the device of port `name` is.
    fn open(name: impl Into<String>) -> impl FnOnce(PortOpenError) -> Self {
        let name = name.into();
        move |source| Self::Open { name, source: Box::new(source) }
    }
}

/// How often it is looked whether workers have stopped, and how many times after each step of one: 2.5 s, in which one that
/// waits for another one gives up. The kernel takes some 60 ms to close a port, and several times that beside busy neighbours.
const HALT: Duration = Duration::from_millis(2);
/// See [`HALT`].
const HALTS: u32 = 1_250;

/// How many times a change waits for all workers, 2 s each: on a busy machine one may be away for longer than one wait.
const TRIES: u32 = 3;

/// How long workers and a device may take to hold a port's queues.
const IN_FORCE: Duration = Duration::from_secs(2);

/// A worker's thread; it ends with its ports.
type Thread = JoinHandle<Vec<Box<dyn Port>>>;

/// A running switch.
pub struct Live {
    core: Arc<Core>,
    group: Arc<WorkerGroup>,
    clock: Clock,
    threads: Mutex<Vec<Thread>>,
    /// Serialises changes.
    changing: Mutex<()>,
    recorder: Option<Recorder>,
    /// What was opened for each port.
    devices: Vec<devices::DeviceInfo>,
    express: Mutex<Option<Express>>,
    /// Why there is no fast path at all, if it was asked for.
    no_express: Option<String>,
    fabric: Mutex<Option<Functions>>,
    /// Keeps peers paused while workers are away; none without `run.pause_guard`, or where nothing is lossless.
    guard: Mutex<Option<pause_guard::Guard>>,
    /// What is doubtful about where workers run.
    warnings: Vec<String>,
}

/// What a switch that routes TLPs has beside workers.
struct Functions {
    agent: Arc<Agent>,
    cci: Option<cci::Server>,
    mctp: Option<cci::mctp::Server>,
}

impl Live {
    /// What was opened for each port, in the order of the configuration.
    #[must_use]
    pub fn devices(&self) -> &[devices::DeviceInfo] {
        &self.devices
    }

    /// What is doubtful about where workers run.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn express(&self) -> MutexGuard<'_, Option<Express>> {
        self.express.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn functions(&self) -> MutexGuard<'_, Option<Functions>> {
        self.fabric.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the fabric looks like from here; none where no port has a role.
    #[must_use]
    pub fn fabric(&self) -> Option<FabricReport> {
        // Counters of a worker that does not move are not exact, and all that there is.
        self.fabric_with(|| self.ledger().unwrap_or_else(|_| Ledger::read(&self.core)))
    }

    /// As [`Self::fabric`], with counters as `read` reads them.
    pub(super) fn fabric_with(&self, read: impl FnOnce() -> Ledger) -> Option<FabricReport> {
        let functions = self.functions();
        let Functions { agent, cci, mctp } = functions.as_ref()?;
        let config = self.core.snapshot.load();
        let names = |id: PortId| {
            config.config.ports.get(id.index()).map_or(String::new(), |port| port.name.clone())
        };
        let served = cci.as_ref().map(|server| Served {
            at: server.at().to_owned(),
            guard: server.guard().to_owned(),
            counts: server.counts(),
        });
        let mut report =
            agent.look(|switch, counts| FabricReport::new(switch, &names, counts, served));
        if let Some(server) = mctp {
            report.mctp_at = Some(server.at().to_string());
            report.mctp_guard = Some(server.guard().to_owned());
            report.mctp = server.report();
        }
        drop(functions);
        let ledger = read();
        for port in &report.ports {
            let counted = ledger.port.get(usize::from(port.port));
            let refused = counted.map(|port| refusals(&port.refused)).unwrap_or_default();
            if !refused.is_empty() {
                report.refused.insert(port.name.clone(), refused);
            }
        }
        Some(report)
    }

    /// Where managers connect, if they can.
    #[must_use]
    pub fn cci(&self) -> Option<String> {
        let functions = self.functions();
        let server = functions.as_ref()?.cci.as_ref()?;
        Some(format!("{} ({})", server.at(), server.guard()))
    }

    /// Where managers connect that speak MCTP, if they can.
    #[must_use]
    pub fn mctp(&self) -> Option<String> {
        let functions = self.functions();
        let server = functions.as_ref()?.mctp.as_ref()?;
        Some(format!("{} ({})", server.at(), server.guard()))
    }

    /// Adds up what the kernel has sent on by itself.
    pub fn count_express(&self) {
        if let Some(express) = &*self.express() {
            express.count(&self.core);
        }
    }

    /// Counters of `port` as they are: what the kernel sends on meanwhile may be counted in part. Nothing is waited for.
    #[must_use]
    pub fn glance(&self, port: PortId) -> PortLedger {
        let express = self.express();
        let glance = express.as_ref().map(|express| express.glance(&self.core, port));
        glance.unwrap_or_else(|| PortLedger::read(&self.core, port))
    }

    /// Why frames of (or to) each port are not sent on by the kernel; `None` where they may be, and
    /// where that is not wanted.
    #[must_use]
    pub fn no_express(&self) -> Vec<Option<String>> {
        let reasons = self.express().as_ref().map(Express::reasons).unwrap_or_default();
        let of = |(index, device): (usize, &devices::DeviceInfo)| {
            let reason = reasons.get(index).cloned().flatten().or_else(|| self.no_express.clone());
            reason.filter(|_| device.kind == "af_xdp")
        };
        self.devices.iter().enumerate().map(of).collect()
    }

    /// Has all frames come to user space as long as the answer lives.
    #[must_use]
    pub fn watch(&self) -> Option<Watch> {
        self.express().as_ref().map(Express::watch)
    }

    /// What the workers share.
    #[must_use]
    pub const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The workers.
    #[must_use]
    pub const fn workers(&self) -> &Arc<WorkerGroup> {
        &self.group
    }

    /// Passes of each worker's loop: a number that stands still is a worker that does.
    pub fn beats(&self) -> impl Iterator<Item = u64> + '_ {
        self.core.stats.iter().map(|stats| stats.loops.get())
    }

    /// The time on the switch's clock.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// All counters at one moment, so that they add up.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn ledger(&self) -> Result<Ledger, Stuck> {
        self.group.with_quiesced(|| Ledger::read(&self.core))
    }

    /// Takes `switch` over while the switch runs, whole or not at all; it was made from `sources`, if
    /// they are new.
    ///
    /// # Errors
    /// What contradicts itself, or can only change with a restart; a worker that does not answer, though it was waited for
    /// `TRIES` times.
    pub fn reload(&self, switch: SwitchConfig, sources: Option<&Sources>) -> Result<(), LiveError> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let change = self.recorder.as_ref().map(|_| Change::config(&switch, sources));
        let new = successor(&self.core, switch)?;
        let express = self.express();
        let prepared = express.as_ref().map(|express| express.prepare(&new)).transpose()?;
        let mut tried = 1;
        // Between two tries the workers that have waited for the late one go on.
        let _quiesced = loop {
            match self.group.quiesce() {
                Ok(quiesced) => break quiesced,
                Err(_) if tried < TRIES && !self.group.is_stopping() => tried += 1,
                Err(stuck) => return Err(stuck.into()),
            }
        };
        if let Some(change) = &change {
            self.note(change);
        }
        take_over(&self.core, &new)?;
        if let Some(prepared) = prepared {
            prepared.commit();
        }
        Ok(())
    }

    /// Waits until it is in force in all workers that `port` sends, or that its queues are held; in the second case also until
    /// what its device, and the kernel by itself, had taken before has left.
    ///
    /// # Errors
    /// What does not come to be so within 2 s.
    pub fn until_in_force(&self, port: PortId, on: bool) -> Result<(), String> {
        let is_so = || {
            let is_told = self.core.tx_off().contains(port) != on;
            (is_told && (on || self.core.sending(port) == 0)).then_some(())
        };
        if wait::try_until(IN_FORCE, is_so).is_none() {
            return Err(match self.core.sending(port) {
                u64::MAX => {
                    "its worker does not answer; it will be in force when it does".to_owned()
                }
                left => format!(
                    "its queues are held, but its device has not sent {left} frames that it had before"
                ),
            });
        }
        if !on {
            // Frames that the XDP program has passed on while the gate was open are sent before their processor leaves its
            // receive loop; this returns when all have left it (membarrier(2), MEMBARRIER_CMD_GLOBAL).
            let waited = rustix::thread::membarrier(MembarrierCommand::Global);
            waited.map_err(|error| format!("wait for the kernel's part: {error}"))?;
        }
        Ok(())
    }

    /// Has `change`, which is about to be made, in the record; the workers are quiesced.
    ///
    /// # Panics
    /// Never: all of it can be written as JSON.
    pub fn note(&self, change: &Change) {
        if let Some(recorder) = &self.recorder {
            let text = serde_json::to_vec(change).expect("numbers and texts");
            recorder.change(&text);
        }
    }

    /// Ends the record of a switch that has stopped with these counters; none if none was written.
    ///
    /// # Panics
    /// Never: all of it can be written as JSON.
    #[must_use]
    pub fn end_record(&self, counters: &Ledger) -> Option<Summary> {
        let text = serde_json::to_vec(counters).expect("numbers");
        self.recorder.as_ref().map(|recorder| recorder.finish(&text))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends connections of managers, the workers and the agent, and closes the ports, but for those of workers that are
    /// stuck, and are left alone.
    fn halt(&self) -> Result<(), Stuck> {
        let functions = self.functions().take();
        if let Some(functions) = &functions {
            functions.agent.stop();
        }
        drop(functions);
        // Workers that end are not away.
        drop(self.guard.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.group.stop();
        let mut running: Vec<_> = self.lock().drain(..).enumerate().collect();
        let (mut steps, mut looks) = (threads::steps(), 0);
        while looks < HALTS {
            looks += 1;
            let (over, more): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(_, worker)| worker.is_finished());
            for (_, worker) in over {
                drop(worker.join()); // a worker that panicked has said so itself
            }
            running = more;
            if running.is_empty() {
                return Ok(());
            }
            wait::pause(HALT);
            if steps != threads::steps() {
                (steps, looks) = (threads::steps(), 0);
            }
        }
        Err(Stuck { workers: running.into_iter().map(|(worker, _)| worker).collect() })
    }

    /// Stops the workers, closes the ports, and returns the final counters; and the workers that do not stop, whose ports
    /// and counters are as they are.
    #[must_use]
    pub fn stop(&self) -> (Ledger, Option<Stuck>) {
        let halted = self.halt();
        if halted.is_ok()
            && let Some(express) = &mut *self.express()
        {
            express.end(&self.core); // a worker that is stuck may have its lock
        }
        (Ledger::read(&self.core), halted.err())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        drop(self.halt()); // who is stuck goes with the process
    }
}
