//! Starting a switch: devices opened, lanes built over them, a thread for each worker.
//!
//! [`Live::start`] turns a resolved [`Config`] into a [`Live`]; when it fails, nothing is left behind.
//!
//! Source: docs/spec/pipeline.md §11, §13.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, Mutex};

use weft_base::threads::{self, Ends, Role, ThreadId};
use weft_config::Sources;
use weft_config::choice::{self, DeviceKind};
use weft_config::resolve::{Config, RunConfig};
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::{Built, Lane};
use weft_dataplane::pool::Pool;
use weft_dataplane::port::Port;
use weft_dataplane::port::record::{Recorded, Recorder};
use weft_dataplane::port::tee::{MirrorSlot, Tee};
use weft_dataplane::types::PortId;
use weft_dataplane::worker::{Clock, Poll, Worker, WorkerGroup};

use super::agent::Agent;
use super::build::{assemble, chunks, pool, spread};
use super::pause_guard::{self, Guard};
use super::placement::{Placement, Raiser};
use super::{Functions, Live, LiveError, Thread, cci, devices};
use crate::express::Express;
use crate::record::Header;

/// A record to be written of the run.
pub struct NewRecord {
    /// Open and empty.
    pub file: std::fs::File,
    /// The texts of the configuration and where they came from, for the record's header.
    pub sources: Sources,
    /// Called when the file takes no more.
    pub on_failure: Box<dyn FnMut(&std::io::Error) + Send>,
}

impl Live {
    /// Opens all ports of `config` and starts its workers; `mirrors` has a slot for each port. `raiser` sets the
    /// priorities that the calling thread may no longer set itself.
    ///
    /// # Errors
    /// See [`LiveError`]; nothing is left behind.
    pub fn start(
        config: &Config,
        mirrors: &[MirrorSlot],
        record: Option<NewRecord>,
        raiser: Option<Raiser>,
    ) -> Result<Self, LiveError> {
        let mut placement = Placement::new(&config.run, raiser)?;
        if config.fabric.is_some() && record.is_some() {
            return Err(LiveError::NoRecord);
        }
        let mut switch = config.switch.clone();
        // A new key for each start: a neighbour that could foresee it could forge the probes by which the switch finds
        // loops.
        switch.forward.probe_key = secret();
        // A run is a function of its record only with one worker: the record has no order between steps of two.
        let workers = if record.is_some() { 1 } else { config.run.workers };
        let spread = spread(switch.ports.len(), workers);
        let count = chunks(&switch, spread.len()) + devices::chunks(config);
        // The pool is sized before any device is open, so it has room for the most chunks that each kind may hold.
        let pool = pool(&config.run, count)?;
        let express = fast_path(config, record.is_some());
        let (express, no_express) = match express {
            Some(Ok(express)) => (Some(express), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let (ports, info, far) = devices::open_all(config, &mut switch, &pool, express.as_ref())?;
        // A replay knows only the frames that ports returned and took: frames that the guard sends beside them would
        // not be in the record.
        let ways =
            if record.is_some() { Ok(Vec::new()) } else { pause_guard::open(config, &ports) };
        let ways = ways.map_err(|(name, error)| LiveError::open(name)(*error))?;
        let recorder = record.map(|record| begin(record, &switch, &pool)).transpose()?;
        // The slot is how control sets a mirror later, while a worker owns the port.
        let tee = |(port, slot): (Box<dyn Port>, &MirrorSlot)| -> Box<dyn Port> {
            Box::new(Tee::new(port, slot.clone()))
        };
        let ports = ports.into_iter().zip(mirrors).map(tee).collect();
        let mut live = Self::drive(&mut placement, switch, ports, &pool, recorder.as_ref())?;
        (live.devices, live.no_express) = (info, no_express);
        let guard = Guard::start(&live.core, live.clock, &spread, ways);
        let guard = guard.map_err(LiveError::Guard)?;
        // By way of `placement`, whose raiser has `CAP_SYS_NICE` where this thread has given it up.
        if let Some(thread) = guard.as_ref().map(Guard::thread) {
            placement.prefer(thread);
        }
        (live.guard, live.warnings) = (Mutex::new(guard), placement.warnings);
        // The workers run before managers can connect: a command's tables are to be in force when it is answered.
        if let Some((fabric, far)) = config.fabric.as_ref().zip(far) {
            let agent = Arc::new(Agent::start(fabric, &live.core, live.clock, far)?);
            let cci = fabric.cci.as_ref().map(|cci| cci::Server::start(cci, agent.clone()));
            let uuid = fabric.switch.uuid;
            let mctp = fabric.mctp.as_ref();
            let mctp = mctp.map(|mctp| cci::mctp::Server::start(mctp, uuid, agent.clone()));
            let (cci, mctp) = (cci.transpose()?, mctp.transpose()?);
            live.fabric = Mutex::new(Some(Functions { agent, cci, mctp }));
        }
        // The XDP programs were attached with the devices; they forward from here on, by the tables of `core`.
        if let Some(mut express) = express {
            if let Err(error) = express.follow(&live.core, live.clock) {
                live.no_express = Some(error.to_string());
            }
            live.express = Mutex::new(Some(express));
        }
        Ok(live)
    }

    /// Starts workers over `ports`, which are in the order of `switch.ports` and were opened for `pool`. A recorded run
    /// has one worker.
    fn drive(
        placement: &mut Placement<'_>,
        switch: SwitchConfig,
        ports: Vec<Box<dyn Port>>,
        pool: &Arc<Pool>,
        recorder: Option<&Recorder>,
    ) -> Result<Self, LiveError> {
        let run = placement.run;
        let spread = spread(ports.len(), if recorder.is_some() { 1 } else { run.workers });
        let Built { core, mut lanes } = assemble(switch, pool, &spread)?;
        let live = Self {
            core,
            group: WorkerGroup::new(&spread)?,
            clock: Clock::start(),
            threads: Mutex::default(),
            changing: Mutex::new(()),
            recorder: recorder.cloned(),
            devices: Vec::new(),
            express: Mutex::new(None),
            no_express: None,
            fabric: Mutex::new(None),
            guard: Mutex::new(None),
            warnings: Vec::new(),
        };
        let mut ports = deal(ports, &spread, recorder);
        // All ports start before any worker runs: a port that is refused then ends the start before a frame is
        // forwarded.
        for ((lane, own), numbers) in lanes.iter_mut().zip(&mut ports).zip(&spread) {
            start_ports(run, lane, own, numbers)?;
        }
        for (index, (lane, own)) in lanes.into_iter().zip(ports).enumerate() {
            // On a failure `live` is dropped, which stops the workers that already run.
            let started = live.spawn_worker(run, index, lane, own);
            let (handle, thread) =
                started.map_err(|source| LiveError::Thread { worker: index, source })?;
            live.lock().push(handle);
            placement.place(index, thread)?;
        }
        Ok(live)
    }

    /// Starts the thread of worker `index` over `ports`; returns its handle and its id.
    fn spawn_worker(
        &self,
        run: &RunConfig,
        index: usize,
        lane: Lane,
        ports: Vec<Box<dyn Port>>,
    ) -> io::Result<(Thread, ThreadId)> {
        let poll = match run.poll {
            choice::Poll::Busy => Poll::Busy,
            choice::Poll::Adaptive => Poll::Adaptive,
        };
        let mut worker = Worker::new(index, lane, ports, self.clock, self.group.clone(), poll);
        if let Some(recorder) = &self.recorder {
            worker = worker.recorded(recorder.clone());
        }
        let group = self.group.clone();
        let ends = Ends::when(move || group.is_stopping());
        threads::spawn_with_id(Role::Worker, format!("weft-worker{index}"), ends, || worker.run())
    }
}

/// Deals the ports out to workers as `spread` says; with a `recorder`, each is wrapped so that its input is recorded.
fn deal(
    ports: Vec<Box<dyn Port>>,
    spread: &[Vec<PortId>],
    recorder: Option<&Recorder>,
) -> Vec<Vec<Box<dyn Port>>> {
    let wrap = |(index, port): (usize, Box<dyn Port>)| -> Box<dyn Port> {
        match recorder {
            Some(recorder) => Box::new(Recorded::new(port, index, recorder.clone())),
            None => port,
        }
    };
    let mut ports: Vec<Option<Box<dyn Port>>> =
        ports.into_iter().enumerate().map(wrap).map(Some).collect();
    let mut of = |own: &Vec<PortId>| {
        own.iter().filter_map(|port| ports.get_mut(port.index())?.take()).collect()
    };
    spread.iter().map(&mut of).collect()
}

/// Has a worker's ports take the buffers that they receive into from its lane.
fn start_ports(
    run: &RunConfig,
    lane: &mut Lane,
    ports: &mut [Box<dyn Port>],
    numbers: &[PortId],
) -> Result<(), LiveError> {
    for (port, number) in ports.iter_mut().zip(numbers) {
        let name = run.ports.get(number.index()).map_or("", |port| port.name.as_str());
        port.start(lane.bufs()).map_err(LiveError::open(name))?;
    }
    Ok(())
}

/// The fast path, where some port can have one and the configuration wants it. `None` while a run is recorded, as the
/// frames that the kernel forwards would be in no record.
fn fast_path(config: &Config, is_recorded: bool) -> Option<Result<Express, String>> {
    let ports = &config.run.ports;
    let can = ports.iter().any(|run| matches!(run.kind, DeviceKind::Auto | DeviceKind::AfXdp));
    let wanted = config.run.express && can && !is_recorded;
    let stations = config.switch.forward.fdb_capacity;
    wanted.then(|| Express::new(ports.len(), stations).map_err(|error| error.to_string()))
}

/// A key that neighbours cannot foresee. The standard library seeds the keys of its hash tables from the kernel's
/// random numbers.
fn secret() -> [u64; 2] {
    let keys = RandomState::new();
    [keys.hash_one(0), keys.hash_one(1)]
}

/// Begins the record of a switch whose devices are open.
fn begin(record: NewRecord, switch: &SwitchConfig, pool: &Pool) -> Result<Recorder, LiveError> {
    let header = Header { chunks: Some(pool.count()), ..Header::new(record.sources, switch) };
    let header = serde_json::to_vec(&header).expect("texts");
    let out = Box::new(record.file);
    Recorder::start(out, &header, switch.ports.len(), record.on_failure).map_err(LiveError::Record)
}
