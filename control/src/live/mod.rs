//! A running switch: ports opened, workers on their cores, and a hand on all of them.
//!
//! Shape: a resolved [`Config`] → [`Live`], until [`Live::stop`] gives the final counters.
//! Units: none of its own.
//! Source: ARCHITECTURE.md "The path of a frame"; ARCHITECTURE.md "Control"; docs/spec/pipeline.md §11.

pub mod agent;
pub mod backend;
pub mod cci;
pub mod confine;
pub mod devices;
mod trace;
pub mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_base::threads::{self, Ends, Role};
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::{Built, Core, Ledger, Timing, build, chunks_beside_buffer};
use weft_dataplane::pool::{Pool, PoolError};
use weft_dataplane::port::record::{Recorded, Recorder, Summary};
use weft_dataplane::port::tee::{MirrorSlot, Tee};
use weft_dataplane::port::{Port, PortOpenError};
use weft_dataplane::snapshot::{Snapshot, SnapshotError};
use weft_dataplane::time::Instant;
use weft_dataplane::types::PortId;
use weft_dataplane::worker::{Clock, Poll, Stuck, Worker, WorkerGroup, WorkerGroupError};

use crate::config::Sources;
use crate::config::choice::{self, DeviceKind};
use crate::config::resolve::{Config, RunConfig};
use crate::express::{Express, Watch};
use crate::record::{Change, Header};
use crate::report::fabric::{FabricReport, Served, refusals};

use agent::Agent;

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
    /// A record does not hold what the agent does.
    #[error(
        "a switch whose ports have roles cannot be recorded: what its agent does is in no record"
    )]
    NoRecord,
    /// A static entry was refused.
    #[error(transparent)]
    Static(#[from] weft_dataplane::fdb::StaticError),
}

/// How often it is looked whether workers have stopped, and how many times: in all 1.5 s, in which one that waits for
/// another one gives up.
const HALT: Duration = Duration::from_millis(2);
/// See [`HALT`].
const HALTS: u32 = 750;

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
}

/// What a switch that routes TLPs has beside workers.
struct Functions {
    agent: Arc<Agent>,
    cci: Option<cci::Server>,
}

/// A record that is to be written.
pub struct NewRecord {
    /// Where to.
    pub file: std::fs::File,
    /// What the configuration was made from.
    pub sources: Sources,
    /// Told at once when the file takes no more.
    pub on_failure: Box<dyn FnMut(&std::io::Error) + Send>,
}

/// Ports of each of `workers` workers: round robin, no worker without a port.
#[must_use]
pub fn spread(ports: usize, workers: usize) -> Vec<Vec<PortId>> {
    let workers = workers.clamp(1, ports.max(1));
    let of = |worker| (worker..ports).step_by(workers).filter_map(PortId::new).collect();
    (0..workers).map(of).collect()
}

/// Chunks that a switch needs, those aside that its devices take.
#[must_use]
pub fn chunks(switch: &SwitchConfig, workers: usize) -> usize {
    let beside = chunks_beside_buffer(switch.ports.len(), workers, switch.tx_ring_frames);
    let cells = usize::try_from(switch.buffer.total_cells).unwrap_or(usize::MAX);
    cells.saturating_add(beside)
}

/// A pool of `count` chunks that suit the devices of `run`.
///
/// # Errors
/// No memory.
pub fn pool(run: &RunConfig, count: usize) -> Result<Arc<Pool>, PoolError> {
    let frame_len_max = run.frame_len_max.max(64);
    if run.ports.iter().any(|port| matches!(port.kind, DeviceKind::Auto | DeviceKind::AfXdp)) {
        return Pool::map_umem(count, frame_len_max);
    }
    Pool::map(count, frame_len_max)
}

/// Builds a switch over `pool` whose ports are spread over workers as `spread` says.
///
/// # Errors
/// Parts that do not fit together.
pub fn assemble(
    switch: SwitchConfig,
    pool: &Arc<Pool>,
    spread: &[Vec<PortId>],
) -> Result<Built, LiveError> {
    build(switch, pool, spread, Timing::Live).map_err(|e| LiveError::Build(Box::new(e)))
}

/// Compiles what is to follow the configuration that is in force.
///
/// # Errors
/// What contradicts itself, or can only change with a restart.
pub fn successor(core: &Core, mut switch: SwitchConfig) -> Result<Arc<Snapshot>, LiveError> {
    let old = core.snapshot.load_full();
    for (port, old) in switch.ports.iter_mut().zip(&old.config.ports) {
        if port.parse.port_mac == weft_parsers::MacAddr::ZERO {
            port.parse.port_mac = old.parse.port_mac; // the device's, found at start
        }
    }
    let new = old.succeed(switch).map_err(|e| LiveError::Snapshot(Box::new(e)))?;
    Ok(Arc::new(new))
}

/// Puts `new` in force, whole or not at all; no worker may be in a step meanwhile.
///
/// # Errors
/// A static entry for which there is no room.
pub fn take_over(core: &Core, new: &Arc<Snapshot>) -> Result<(), LiveError> {
    let forward = &new.config.forward;
    core.fdb.set_static(&forward.static_entries)?;
    core.fdb.set_ageing(forward.ageing);
    weft_dataplane::pipeline::limit_learning(&core.fdb, new);
    core.snapshot.store(new.clone());
    Ok(())
}

impl Live {
    /// Opens all ports of `config` and starts its workers; `mirrors` has a slot for each port.
    ///
    /// # Errors
    /// See [`LiveError`]; nothing is left behind.
    pub fn start(
        config: &Config,
        mirrors: &[MirrorSlot],
        record: Option<NewRecord>,
    ) -> Result<Self, LiveError> {
        if config.fabric.is_some() && record.is_some() {
            return Err(LiveError::NoRecord);
        }
        let mut switch = config.switch.clone();
        let workers = if record.is_some() { 1 } else { config.run.workers };
        let spread = spread(switch.ports.len(), workers);
        let count = chunks(&switch, spread.len()) + devices::chunks(config);
        let pool = pool(&config.run, count)?;
        let express = fast_path(config, record.is_some());
        let (express, no_express) = match express {
            Some(Ok(express)) => (Some(express), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let (ports, facts, far) = devices::open_all(config, &mut switch, &pool, express.as_ref())?;
        let recorder = record.map(|record| begin(record, &switch, &pool)).transpose()?;
        let tee = |(port, slot): (Box<dyn Port>, &MirrorSlot)| -> Box<dyn Port> {
            Box::new(Tee::new(port, slot.clone()))
        };
        let ports = ports.into_iter().zip(mirrors).map(tee).collect();
        let mut live = Self::drive(&config.run, switch, (ports, &pool), recorder.as_ref())?;
        (live.devices, live.no_express) = (facts, no_express);
        if let Some((fabric, far)) = config.fabric.as_ref().zip(far) {
            let agent = Arc::new(Agent::start(fabric, &live.core, live.clock, far)?);
            let cci = fabric.cci.as_ref().map(|cci| cci::Server::start(cci, agent.clone()));
            live.fabric = Mutex::new(Some(Functions { agent, cci: cci.transpose()? }));
        }
        if let Some(mut express) = express {
            if let Err(error) = express.follow(&live.core, live.clock) {
                live.no_express = Some(error.to_string());
            }
            live.express = Mutex::new(Some(express));
        }
        Ok(live)
    }

    /// What was opened for each port, in the order of the configuration.
    #[must_use]
    pub fn devices(&self) -> &[devices::DeviceInfo] {
        &self.devices
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
        let functions = self.functions();
        let Functions { agent, cci } = functions.as_ref()?;
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
        drop(functions);
        // Counters of a worker that does not move are not exact, and all that there is.
        let ledger = self.ledger().unwrap_or_else(|_| Ledger::read(&self.core));
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

    /// Adds up what the kernel has sent on by itself.
    pub fn count_express(&self) {
        if let Some(express) = &*self.express() {
            express.count(&self.core);
        }
    }

    /// Why frames of (or to) each port are not sent on by the kernel; `None` where they may be, and
    /// where that is not wanted.
    #[must_use]
    pub fn no_express(&self) -> Vec<Option<String>> {
        let reasons = self.express().as_ref().map(Express::reasons).unwrap_or_default();
        let of = |(index, facts): (usize, &devices::DeviceInfo)| {
            let reason = reasons.get(index).cloned().flatten().or_else(|| self.no_express.clone());
            reason.filter(|_| facts.kind == "af_xdp")
        };
        self.devices.iter().enumerate().map(of).collect()
    }

    /// Has all frames come to user space as long as the answer lives.
    #[must_use]
    pub fn watch(&self) -> Option<Watch> {
        self.express().as_ref().map(Express::watch)
    }

    /// Starts workers over `ports`, which are in the order of `switch.ports`, and the pool that they
    /// were opened for; one, if the run is recorded.
    ///
    /// # Errors
    /// See [`LiveError`].
    pub fn drive(
        run: &RunConfig,
        switch: SwitchConfig,
        (ports, pool): (Vec<Box<dyn Port>>, &Arc<Pool>),
        recorder: Option<&Recorder>,
    ) -> Result<Self, LiveError> {
        let spread = spread(ports.len(), if recorder.is_some() { 1 } else { run.workers });
        let Built { core, mut lanes } = assemble(switch, pool, &spread)?;
        let group = WorkerGroup::new(&spread)?;
        let clock = Clock::start();
        let poll = match run.poll {
            choice::Poll::Busy => Poll::Busy,
            choice::Poll::Adaptive => Poll::Adaptive,
        };
        let wrap = |(index, port): (usize, Box<dyn Port>)| -> Box<dyn Port> {
            match recorder {
                Some(recorder) => Box::new(Recorded::new(port, index, recorder.clone())),
                None => port,
            }
        };
        let ports = ports.into_iter().enumerate().map(wrap);
        let mut slots: Vec<Option<Box<dyn Port>>> = ports.map(Some).collect();
        for (lane, own) in lanes.iter_mut().zip(&spread) {
            for port in own {
                let Some(Some(slot)) = slots.get_mut(port.index()) else { continue };
                slot.start(lane.bufs()).map_err(|source| LiveError::Open {
                    name: run.ports.get(port.index()).map_or_else(String::new, |p| p.name.clone()),
                    source: Box::new(source),
                })?;
            }
        }
        let live = Self {
            core,
            group: group.clone(),
            clock,
            threads: Mutex::default(),
            changing: Mutex::new(()),
            recorder: recorder.cloned(),
            devices: Vec::new(),
            express: Mutex::new(None),
            no_express: None,
            fabric: Mutex::new(None),
        };
        for (index, (lane, own)) in lanes.into_iter().zip(&spread).enumerate() {
            let own: Vec<_> =
                own.iter().filter_map(|port| slots.get_mut(port.index())?.take()).collect();
            let mut worker = Worker::new(index, lane, own, clock, group.clone(), poll);
            if let Some(recorder) = recorder {
                worker = worker.recorded(recorder.clone());
            }
            let core = core_for(&run.cores, index);
            let asked = group.clone();
            let ends = Ends::when(move || asked.is_stopping());
            let started =
                threads::spawn(Role::Worker, format!("weft-worker{index}"), ends, move || {
                    if let Some(core) = core {
                        core_affinity::set_for_current(core);
                    }
                    worker.run()
                });
            match started {
                Ok(handle) => live.lock().push(handle),
                Err(source) => {
                    drop(live.halt()); // who is stuck goes with the process
                    return Err(LiveError::Thread { worker: index, source });
                }
            }
        }
        Ok(live)
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
    /// What contradicts itself, or can only change with a restart.
    pub fn reload(&self, switch: SwitchConfig, sources: Option<&Sources>) -> Result<(), LiveError> {
        let _turn = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let change = self.recorder.as_ref().map(|_| Change::config(&switch, sources));
        let new = successor(&self.core, switch)?;
        let express = self.express();
        let prepared = express.as_ref().map(|express| express.prepare(&new)).transpose()?;
        self.group.with_quiesced(|| {
            if let Some(change) = &change {
                self.note(change);
            }
            take_over(&self.core, &new)?;
            if let Some(prepared) = prepared {
                prepared.commit();
            }
            Ok(())
        })?
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
        self.group.stop();
        let mut running: Vec<_> = self.lock().drain(..).enumerate().collect();
        for _ in 0..HALTS {
            let (over, more): (Vec<_>, Vec<_>) =
                running.into_iter().partition(|(_, worker)| worker.is_finished());
            for (_, worker) in over {
                drop(worker.join()); // a worker that panicked has said so itself
            }
            running = more;
            if running.is_empty() {
                return Ok(());
            }
            std::thread::park_timeout(HALT);
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

/// The fast path of a switch whose ports can have one, if it is wanted: not while all is recorded.
fn fast_path(config: &Config, is_recorded: bool) -> Option<Result<Express, String>> {
    let ports = &config.run.ports;
    let can = ports.iter().any(|run| matches!(run.kind, DeviceKind::Auto | DeviceKind::AfXdp));
    let wanted = config.run.express && can && !is_recorded;
    let stations = config.switch.forward.fdb_capacity;
    wanted.then(|| Express::new(ports.len(), stations).map_err(|error| error.to_string()))
}

/// Begins a record of a switch whose devices are open.
fn begin(record: NewRecord, switch: &SwitchConfig, pool: &Pool) -> Result<Recorder, LiveError> {
    let header = Header { chunks: Some(pool.count()), ..Header::new(record.sources, switch) };
    let header = serde_json::to_vec(&header).expect("texts");
    let out = Box::new(record.file);
    Recorder::start(out, &header, switch.ports.len(), record.on_failure).map_err(LiveError::Record)
}

/// The core of worker `index`: as configured, else the last ones first, away from the interrupts
/// that usually land on core 0; none when there are more workers than cores.
pub(crate) fn core_for(configured: &[usize], index: usize) -> Option<core_affinity::CoreId> {
    if !configured.is_empty() {
        return configured.get(index).map(|&id| core_affinity::CoreId { id });
    }
    core_affinity::get_core_ids()?.into_iter().rev().nth(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_one_worker_and_no_worker_is_without() {
        for (ports, workers) in [(1, 1), (1, 4), (5, 2), (16, 3), (64, 8), (2, 0)] {
            let spread = spread(ports, workers);
            let mut all: Vec<_> = spread.iter().flatten().map(|p| p.index()).collect();
            all.sort_unstable();
            assert_eq!(all, (0..ports).collect::<Vec<_>>(), "{ports} {workers}");
            assert!(spread.iter().all(|own| !own.is_empty()), "{ports} {workers}");
        }
    }
}
