//! The thread that keeps peers paused while a worker is away.
//!
//! Shape: [`Guard::start`] over the ports that are interfaces; a look every few milliseconds while lossless frames come.
//! Units: none of its own.
//! Source: docs/spec/pipeline.md §9; [`PauseGuard`] has the rules.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use weft_base::priority::Thread;
use weft_base::threads::{self, Ends, Role};
use weft_base::wait;
use weft_dataplane::config::PortConfig;
use weft_dataplane::pipeline::Core;
use weft_dataplane::port::af_packet::Beside;
use weft_dataplane::port::{Port, PortOpenError, RxGauge};
use weft_dataplane::types::PortId;
use weft_dataplane::worker::{Clock, GuardedPort, PauseGuard};

use crate::config::choice::DeviceIs;
use crate::config::resolve::{Config, RunPort};

/// The thread; dropping it ends it.
pub struct Guard {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
    thread: Option<Thread>,
}

/// What is known of a port whose peer can be paused, and a way out beside it.
pub struct Way {
    out: Beside,
    gauge: RxGauge,
    ring_frames: usize,
}

/// Ways out beside the ports of a switch, by port.
pub type Ways = Vec<Option<Way>>;

/// Whether the peer of a port is paused while its worker is away.
fn is_guarded(config: &Config, port: &PortConfig, run: &RunPort) -> bool {
    let pfc = &config.switch.pfc;
    let is_lossless = pfc.enabled && port.pfc && !pfc.lossless.is_empty();
    config.run.pause_guard && is_lossless && run.kind.device() == DeviceIs::Interface
}

/// Whether a switch of `config` has a port to guard.
pub fn is_wanted(config: &Config) -> bool {
    let mut each = config.switch.ports.iter().zip(&config.run.ports);
    each.any(|(port, run)| is_guarded(config, port, run))
}

/// Opens a way out beside each of `ports` whose peer can be paused and is at an interface; none without `run.pause_guard`,
/// or where no priority is lossless.
///
/// # Errors
/// The first interface that is refused, with the port's name.
pub fn open(
    config: &Config,
    ports: &[Box<dyn Port>],
) -> Result<Ways, (String, Box<PortOpenError>)> {
    let each = config.switch.ports.iter().zip(&config.run.ports).zip(ports);
    each.map(|((port, run), opened)| {
        let gauge = is_guarded(config, port, run).then(|| opened.rx_gauge()).flatten();
        let open = |gauge| {
            let out = Beside::open(&run.device)?;
            Ok(Way { out, gauge, ring_frames: run.rx_ring_frames })
        };
        gauge.map(open).transpose().map_err(|error| (run.name.clone(), Box::new(error)))
    })
    .collect()
}

impl Guard {
    /// Guards the workers of `core`, which have the ports of `spread`, by `ways`; none where there is no way out.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(
        core: &Arc<Core>,
        clock: Clock,
        spread: &[Vec<PortId>],
        mut ways: Ways,
    ) -> io::Result<Option<Self>> {
        if ways.iter().all(Option::is_none) {
            return Ok(None);
        }
        let guarded = |port: &PortId| {
            let way = ways.get(port.index())?.as_ref()?;
            let (gauge, ring_frames) = (way.gauge.clone(), way.ring_frames);
            Some(GuardedPort { port: *port, gauge, ring_frames })
        };
        let ports: Vec<Vec<GuardedPort>> =
            spread.iter().map(|own| own.iter().filter_map(guarded).collect()).collect();
        let mut guard = PauseGuard::new(core.clone(), &ports);
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, over) = (stop.clone(), stop.clone());
        let ends = Ends::when(move || asked.load(Ordering::Acquire));
        let (tell, told) = channel();
        let handle = threads::spawn(Role::Device, "weft-pause", ends, move || {
            let _ = tell.send(Thread::own()); // who asks is gone
            while !over.load(Ordering::Acquire) {
                let span = guard.look(clock.now(), |port, frame| {
                    ways.get_mut(port.index())
                        .and_then(Option::as_mut)
                        .is_some_and(|way| way.out.send(frame))
                });
                wait::pause(Duration::from_nanos(span.as_ns()));
            }
        })?;
        Ok(Some(Self { stop, handle: Some(handle), thread: told.recv().ok() }))
    }

    /// Its thread.
    pub const fn thread(&self) -> Option<Thread> {
        self.thread
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release); // pairs with the thread
        if let Some(handle) = self.handle.take() {
            drop(handle.join()); // one that panicked has said so itself
        }
    }
}
