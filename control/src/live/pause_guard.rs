//! The thread that keeps peers paused while a worker is away.
//!
//! [`Guard::start`] runs a [`PauseGuard`], which has the rules, over the ports that are interfaces. It looks every few
//! milliseconds while lossless frames come.
//!
//! Source: docs/spec/pipeline.md §9.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use weft_base::threads::{self, Ends, Role, ThreadId};
use weft_base::wait;
use weft_config::choice::DeviceIs;
use weft_config::resolve::{Config, RunPort};
use weft_dataplane::config::PortConfig;
use weft_dataplane::pipeline::Core;
use weft_dataplane::port::af_packet::Beside;
use weft_dataplane::port::{Port, PortOpenError};
use weft_dataplane::types::{PortId, PortSet};
use weft_dataplane::worker::{Clock, GuardedPort, PauseGuard};

/// Owns the thread; dropping it ends the thread.
pub struct Guard {
    stop: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
    thread: ThreadId,
}

/// By port, the way out for PAUSE frames beside the worker's own; `None` where the peer cannot be paused.
pub type Ways = Vec<Option<(GuardedPort, Beside)>>;

/// Whether the peer of a port is to be paused while its worker is away.
fn is_guarded(config: &Config, port: &PortConfig, run: &RunPort) -> bool {
    let pfc = &config.switch.pfc;
    let is_lossless = pfc.enabled && port.pfc && !pfc.lossless.is_empty();
    config.run.pause_guard && is_lossless && run.kind.device() == DeviceIs::Interface
}

/// Whether the switch of `config` has a port to guard.
pub fn is_wanted(config: &Config) -> bool {
    let mut each = config.switch.ports.iter().zip(&config.run.ports);
    each.any(|(port, run)| is_guarded(config, port, run))
}

/// Opens a way out beside each port whose peer can be paused and which is an interface. All are `None` without
/// `run.pause_guard`, or where no priority is lossless.
///
/// # Errors
/// The first interface that is refused, with the port's name.
pub fn open(
    config: &Config,
    ports: &[Box<dyn Port>],
) -> Result<Ways, (String, Box<PortOpenError>)> {
    let each = config
        .switch
        .ports
        .iter()
        .zip(&config.run.ports)
        .zip(ports)
        .zip(PortSet::first(ports.len()).iter());
    each.map(|(((port, run), opened), id)| {
        // A port that cannot tell how full its receive ring is gives the guard nothing to decide by.
        let gauge = is_guarded(config, port, run).then(|| opened.rx_gauge()).flatten();
        let open = |gauge| {
            let guarded = GuardedPort { port: id, gauge, ring_frames: run.rx_ring_frames };
            // The rings of the port have one writer, its worker: the guard needs a socket of its own.
            Ok((guarded, Beside::open(&run.device)?))
        };
        gauge.map(open).transpose().map_err(|error| (run.name.clone(), Box::new(error)))
    })
    .collect()
}

impl Guard {
    /// Guards the workers of `core`, whose ports `spread` lists, by way of `ways`. `None` where there is no way out.
    ///
    /// # Errors
    /// The kernel gives no thread.
    pub fn start(
        core: &Arc<Core>,
        clock: Clock,
        spread: &[Vec<PortId>],
        ways: Ways,
    ) -> io::Result<Option<Self>> {
        // No thread for a switch that has nothing to guard.
        if ways.iter().all(Option::is_none) {
            return Ok(None);
        }
        let (mut ports, mut outs): (Vec<_>, Vec<_>) = ways.into_iter().map(Option::unzip).unzip();
        let mut of = |own: &Vec<PortId>| -> Vec<GuardedPort> {
            own.iter().filter_map(|port| ports.get_mut(port.index())?.take()).collect()
        };
        let mut guard = PauseGuard::new(core.clone(), spread.iter().map(&mut of).collect());
        let stop = Arc::new(AtomicBool::new(false));
        let (asked, over) = (stop.clone(), stop.clone());
        let ends = Ends::when(move || asked.load(Ordering::Acquire));
        let run = move || {
            // Pairs with the Release store of `drop`.
            while !over.load(Ordering::Acquire) {
                let span = guard.look(clock.now(), |port, frame| {
                    outs.get_mut(port.index())
                        .and_then(Option::as_mut)
                        .is_some_and(|out| out.send(frame))
                });
                wait::pause(Duration::from_nanos(span.as_ns()));
            }
        };
        let (handle, thread) = threads::spawn_with_id(Role::Device, "weft-pause", ends, run)?;
        Ok(Some(Self { stop, handle: Some(handle), thread }))
    }

    /// Id of its thread, for [`super::placement::Placement::prefer`].
    pub const fn thread(&self) -> ThreadId {
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
