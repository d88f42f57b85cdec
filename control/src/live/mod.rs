//! A running switch: its open ports, its workers on their cores, and the handle that control uses for both.
//!
//! [`Live::start`] builds one from a resolved [`weft_config::Config`]; [`Live::stop`] ends it and returns the final
//! counters.
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
    #[error("port {name}")]
    Open { name: String, source: Box<PortOpenError> },
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The configuration contradicts itself, or does not fit the ports and the pool.
    #[error(transparent)]
    Build(Box<weft_dataplane::pipeline::BuildError>),
    /// The kernel gives no eventfd to wake workers by.
    #[error(transparent)]
    WorkerGroup(#[from] WorkerGroupError),
    /// A worker did not come out of its step in time; nothing was changed.
    #[error(transparent)]
    Stuck(#[from] Stuck),
    /// The kernel gives no thread for a worker.
    #[error("start worker {worker}")]
    Thread { worker: usize, source: std::io::Error },
    /// A worker cannot have its processor or its priority.
    #[error(transparent)]
    Placement(#[from] placement::PlacementError),
    /// The kernel gives no thread for the pause guard.
    #[error("start the thread that pauses peers while a worker is away")]
    Guard(#[source] std::io::Error),
    #[error(transparent)]
    Snapshot(Box<SnapshotError>),
    #[error("begin the record")]
    Record(#[source] std::io::Error),
    /// The kernel refused the maps or programs of the fast path.
    #[error("fast path in the kernel")]
    Express(#[from] weft_xdp::XdpError),
    /// The configuration of the switch's own functions is refused.
    #[error("functions of a switch that routes TLPs")]
    Fabric(#[source] weft_pbr_switch::ConfigError),
    /// The kernel gives no thread or no eventfd for the agent.
    #[error("start the agent")]
    Agent(#[source] std::io::Error),
    #[error("serve CCI")]
    Cci(#[from] cci::CciError),
    #[error(transparent)]
    Mctp(#[from] MctpError),
    /// A record holds port input and changes by control; the agent's decisions are in neither, so a replay would
    /// differ.
    #[error(
        "a switch whose ports have roles cannot be recorded: what its agent does is in no record"
    )]
    NoRecord,
    #[error(transparent)]
    Static(#[from] weft_dataplane::fdb::StaticError),
}

impl LiveError {
    /// Wraps an error of opening the device of port `name`.
    fn open(name: impl Into<String>) -> impl FnOnce(PortOpenError) -> Self {
        let name = name.into();
        move |source| Self::Open { name, source: Box::new(source) }
    }
}

/// Time between two looks at whether the workers have ended, and how many looks may pass without progress: 2.5 s. A
/// worker that waits for a stuck one gives up within that time. The kernel takes some 60 ms to close a port, and
/// several times that on a busy machine; each port that is closed starts the count anew.
const HALT: Duration = Duration::from_millis(2);
/// Number of looks in a row without progress, see [`HALT`].
const HALTS: u32 = 1_250;

/// How many times a reload waits for all workers, 2 s each: on a busy machine a worker may be off its core for longer
/// than that.
const TRIES: u32 = 3;

/// How long workers and a device may take until a change of `tx_off` holds.
const IN_FORCE: Duration = Duration::from_secs(2);

/// A worker's thread; it ends with its ports.
type Thread = JoinHandle<Vec<Box<dyn Port>>>;

/// A running switch; dropping it stops the workers.
pub struct Live {
    core: Arc<Core>,
    group: Arc<WorkerGroup>,
    clock: Clock,
    threads: Mutex<Vec<Thread>>,
    /// Held while a configuration is applied, so that two reloads do not interleave.
    changing: Mutex<()>,
    recorder: Option<Recorder>,
    /// By port, in the order of the configuration.
    devices: Vec<devices::DeviceInfo>,
    express: Mutex<Option<Express>>,
    /// Why the switch has no fast path although the configuration wants one.
    no_express: Option<String>,
    fabric: Mutex<Option<Functions>>,
    /// Keeps peers paused while workers are away. `None` without `run.pause_guard`, or where no priority is lossless.
    guard: Mutex<Option<pause_guard::Guard>>,
    /// Problems of placement that do not stop the switch, such as a processor that is off line.
    warnings: Vec<String>,
}

/// The agent of a switch whose ports have roles, and the listeners for its managers.
struct Functions {
    agent: Arc<Agent>,
    cci: Option<cci::Server>,
    mctp: Option<cci::mctp::Server>,
}

impl Live {
    /// The devices that were opened, in the order of the configuration.
    #[must_use]
    pub fn devices(&self) -> &[devices::DeviceInfo] {
        &self.devices
    }

    /// Problems of placement that do not stop the switch, such as a processor that is off line.
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

    /// State of the fabric as this switch knows it; `None` where no port has a role.
    #[must_use]
    pub fn fabric(&self) -> Option<FabricReport> {
        // A worker that does not move leaves its counters inexact. They are reported all the same: nothing better is to
        // be had.
        self.fabric_with(|| self.ledger().unwrap_or_else(|_| Ledger::read(&self.core)))
    }

    /// Same as [`Self::fabric`], with the counters that `read` returns.
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
            agent.look(|functions, counts| FabricReport::new(functions, &names, counts, served));
        if let Some(server) = mctp {
            report.mctp_at = Some(server.at().to_string());
            report.mctp_guard = Some(server.guard().to_owned());
            report.mctp = server.report();
        }
        // Reading the counters may wait for a worker for seconds. The lock is released first, so that `halt`, which
        // takes it to end the agent, does not wait as well.
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

    /// Address and guard of the CCI listener; `None` where managers cannot connect.
    #[must_use]
    pub fn cci(&self) -> Option<String> {
        let functions = self.functions();
        let server = functions.as_ref()?.cci.as_ref()?;
        Some(format!("{} ({})", server.at(), server.guard()))
    }

    /// Address and guard of the listener for CCI over MCTP; `None` where managers cannot connect.
    #[must_use]
    pub fn mctp(&self) -> Option<String> {
        let functions = self.functions();
        let server = functions.as_ref()?.mctp.as_ref()?;
        Some(format!("{} ({})", server.at(), server.guard()))
    }

    /// Adds the frames that the kernel forwarded by itself to the counters.
    pub fn count_express(&self) {
        if let Some(express) = &*self.express() {
            express.count(&self.core);
        }
    }

    /// Counters of `port` without stopping the workers; frames that the kernel forwards meanwhile may be counted in
    /// part.
    #[must_use]
    pub fn glance(&self, port: PortId) -> PortLedger {
        let express = self.express();
        let glance = express.as_ref().map(|express| express.glance(&self.core, port));
        glance.unwrap_or_else(|| PortLedger::read(&self.core, port))
    }

    /// By port, the reason why the kernel does not forward its frames by itself; `None` where it does, and where the
    /// configuration does not ask for it.
    #[must_use]
    pub fn no_express(&self) -> Vec<Option<String>> {
        let reasons = self.express().as_ref().map(Express::reasons).unwrap_or_default();
        let of = |(index, device): (usize, &devices::DeviceInfo)| {
            // Only a port by `AF_XDP` runs the program that forwards; for other kinds the reason would be noise.
            let reason = reasons.get(index).cloned().flatten().or_else(|| self.no_express.clone());
            reason.filter(|_| device.kind == "af_xdp")
        };
        self.devices.iter().enumerate().map(of).collect()
    }

    /// Has the XDP programs pass all frames to user space until the returned guard is dropped.
    #[must_use]
    pub fn watch(&self) -> Option<Watch> {
        self.express().as_ref().map(Express::watch)
    }

    /// State that the workers share.
    #[must_use]
    pub const fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The workers.
    #[must_use]
    pub const fn workers(&self) -> &Arc<WorkerGroup> {
        &self.group
    }

    /// Passes of each worker's loop. A number that stands still means a worker that is stuck.
    pub fn beats(&self) -> impl Iterator<Item = u64> + '_ {
        self.core.stats.iter().map(|stats| stats.loops.get())
    }

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

    /// Puts `switch` in force while the switch runs, whole or not at all. `sources` are the texts that it was made
    /// from, if they have changed.
    ///
    /// # Errors
    /// `switch` contradicts itself, or would change something that needs a restart; or a worker did not answer in
    /// `TRIES` waits.
    pub fn reload(&self, switch: SwitchConfig, sources: Option<&Sources>) -> Result<(), LiveError> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let change = self.recorder.as_ref().map(|_| Change::config(&switch, sources));
        // The snapshot is compiled and the kernel's maps are prepared before the workers are held: frames wait in the
        // ports while they are.
        let new = successor(&self.core, switch)?;
        let express = self.express();
        let prepared = express.as_ref().map(|express| express.prepare(&new)).transpose()?;
        let mut tried = 1;
        // A failed `quiesce` releases the barrier. Workers that had reached it run on before the next try, so that
        // their ports do not overflow while one worker is late.
        let _quiesced = loop {
            match self.group.quiesce() {
                Ok(quiesced) => break quiesced,
                Err(_) if tried < TRIES && !self.group.is_stopping() => tried += 1,
                Err(stuck) => return Err(stuck.into()),
            }
        };
        // The record gets the change before it is applied, while no worker is in a step: a replay makes it between the
        // same two steps.
        if let Some(change) = &change {
            self.note(change);
        }
        take_over(&self.core, &new)?;
        // The workers are still held, so that they and the fast path go over to the new configuration together.
        if let Some(prepared) = prepared {
            prepared.commit();
        }
        Ok(())
    }

    /// Waits until the change of `tx_off` for `port` is in force: it sends (`on`), or its queues are held. In the
    /// second case also until its device has sent the frames that it had before, and so has the kernel's fast path.
    ///
    /// # Errors
    /// The change is not in force within 2 s.
    pub fn until_in_force(&self, port: PortId, on: bool) -> Result<(), String> {
        let is_so = || {
            // `tx_off` is read first: `Core::set_tx_off` stores `sending` before it, with Release, so that a gate seen
            // shut comes with the count that belongs to it.
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
            // The XDP program may have redirected frames while the gate was still open. They are sent before their
            // processor leaves its receive loop; this returns when all processors have left it (membarrier(2),
            // MEMBARRIER_CMD_GLOBAL).
            let waited = rustix::thread::membarrier(MembarrierCommand::Global);
            waited.map_err(|error| format!("wait for the kernel's part: {error}"))?;
        }
        Ok(())
    }

    /// Writes `change` to the record, if there is one. The workers must be quiesced, and the change made right after.
    ///
    /// # Panics
    /// Never: a change always serialises.
    pub fn note(&self, change: &Change) {
        if let Some(recorder) = &self.recorder {
            let text = serde_json::to_vec(change).expect("numbers and texts");
            recorder.change(&text);
        }
    }

    /// Ends the record of a switch that has stopped with these counters; `None` if the run was not recorded.
    ///
    /// # Panics
    /// Never: counters always serialise.
    #[must_use]
    pub fn end_record(&self, counters: &Ledger) -> Option<Summary> {
        let text = serde_json::to_vec(counters).expect("numbers");
        self.recorder.as_ref().map(|recorder| recorder.finish(&text))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Thread>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the managers' connections, the agent, the pause guard and the workers. A worker closes its ports as it
    /// ends; a worker that is stuck is left running, with its ports open.
    fn halt(&self) -> Result<(), Stuck> {
        let functions = self.functions().take();
        if let Some(functions) = &functions {
            functions.agent.stop();
        }
        drop(functions);
        // The pause guard goes first: to it a worker that ends looks like one that is away, and it would pause the
        // peers.
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
            // Closing many ports takes long but is progress: only `HALTS` looks in a row without a step mean a stuck
            // worker.
            if steps != threads::steps() {
                (steps, looks) = (threads::steps(), 0);
            }
        }
        Err(Stuck { workers: running.into_iter().map(|(worker, _)| worker).collect() })
    }

    /// Stops the workers, closes the ports, and returns the final counters, with the workers that did not stop. Ports
    /// and counters of those are left as they are.
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
