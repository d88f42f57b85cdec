//! A whole switch made of ports: the entry point for programs that use the library.
//!
//! [`SwitchBuilder`] takes ports and, if wanted, configuration, workers and pool. [`Switch`] is the
//! core, and for each worker a lane with its ports.
//!
//! Units: chunks, frames; lengths are bytes without FCS.
//! Source: ARCHITECTURE.md "The path of a frame"; docs/spec/pipeline.md §4.

use std::sync::Arc;

use super::build::{BuildError, Built, build, chunks_beside_buffer};
use super::lane::Lane;
use super::switch_core::Core;
use crate::config::{LiveSizes, SwitchConfig};
use crate::pool::Pool;
use crate::port::{Port, PortCaps};
use crate::time::{Instant, LinkRate};
use crate::trace::NoTrace;
use crate::types::PortId;

/// Priorities of a switch without a configuration.
const PRIS: usize = 4;
/// Cells of its buffer beside headroom: a base, and more for each port.
const CELLS: u32 = 2_048;
const CELLS_PER_PORT: u32 = 512;
/// Headroom of each lossless group, in cells.
const HEADROOM_CELLS: u32 = 64;

/// Puts a live switch together from its ports.
///
/// Defaults: the configuration of a live switch with four priorities, one worker for all ports, and a pool
/// with room for the buffer and all chunks that ports and workers hold.
///
/// ```
/// use weft_dataplane::pipeline::SwitchBuilder;
/// use weft_dataplane::port::null::{Null, NullConfig};
/// use weft_dataplane::port::Port;
/// use weft_dataplane::time::{Instant, LinkRate};
///
/// let port = |name: &str| -> Box<dyn Port> {
///     let name = name.to_owned();
///     let (rate, frame_len_max) = (LinkRate::gbps(100), 1_518);
///     let config =
///         NullConfig { name, rate, frame_len_max, templates: vec![], per_burst: 64, limit: None };
///     Box::new(Null::generator(config).expect("it may send nothing"))
/// };
/// let mut switch = SwitchBuilder::new(vec![port("left"), port("right")]).workers(2).build()?;
/// assert_eq!((switch.lanes.len(), switch.step(Instant::ZERO)), (2, 0));
/// # Ok::<(), weft_dataplane::pipeline::BuildError>(())
/// ```
pub struct SwitchBuilder {
    ports: Vec<Box<dyn Port>>,
    config: Option<SwitchConfig>,
    workers: usize,
    pool: Option<Arc<Pool>>,
}

impl SwitchBuilder {
    /// A switch with these ports; the first is port 0.
    #[must_use]
    pub const fn new(ports: Vec<Box<dyn Port>>) -> Self {
        Self { ports, config: None, workers: 1, pool: None }
    }

    /// Uses `config`, which must have as many ports as were passed in.
    #[must_use]
    pub fn config(self, config: SwitchConfig) -> Self {
        Self { config: Some(config), ..self }
    }

    /// Distributes the ports over `workers` in turn; at least one, and no more than there are
    /// ports.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// Keeps frames in `pool`; without it a pool of the size that the configuration needs is mapped.
    #[must_use]
    pub fn pool(self, pool: Arc<Pool>) -> Self {
        Self { pool: Some(pool), ..self }
    }

    /// Builds the switch and gives each port its memory.
    ///
    /// # Errors
    /// A configuration that contradicts itself or the number of ports, a pool that cannot be made, a
    /// port that does not start.
    pub fn build(self) -> Result<Switch, BuildError> {
        let Self { ports, config, workers, pool } = self;
        let config = config.unwrap_or_else(|| config_for(&ports));
        let count = config.ports.len();
        if ports.len() != count {
            return Err(BuildError::Ports { had: ports.len(), want: count });
        }
        if !(1..=count.max(1)).contains(&workers) {
            return Err(BuildError::Workers { had: workers, ports: count });
        }
        let pool = if let Some(pool) = pool {
            pool
        } else {
            let longest = config.ports.iter().map(|port| port.frame_len_max).max();
            // The buffer admits up to its cells whatever ports and workers hold, so their chunks
            // come on top.
            let beside = chunks_beside_buffer(count, workers, config.tx_ring_frames);
            let chunks = config.buffer.total_cells as usize + beside;
            Pool::map(chunks, longest.unwrap_or(0).max(64))?
        };
        let own = |worker| (worker..count).step_by(workers).filter_map(PortId::new).collect();
        let spread: Vec<Vec<PortId>> = (0..workers).map(own).collect();
        let Built { core, lanes } = build(config, &pool, &spread)?;
        let mut lanes: Vec<(Lane, Vec<Box<dyn Port>>)> =
            lanes.into_iter().map(|lane| (lane, Vec::new())).collect();
        for (index, mut port) in ports.into_iter().enumerate() {
            let Some((lane, own)) = lanes.get_mut(index % workers) else { continue };
            // By the lane's own handle: chunks that the port takes for its receive ring count as
            // this worker's.
            port.start(lane.bufs()).map_err(|error| BuildError::Port(Box::new(error)))?;
            own.push(port);
        }
        Ok(Switch { core, lanes, spread })
    }
}

/// The defaults of a live switch, with the rates and frame lengths that the ports report.
fn config_for(ports: &[Box<dyn Port>]) -> SwitchConfig {
    let caps = || ports.iter().map(Box::as_ref).map(Port::caps);
    let longest = caps().map(|caps| caps.frame_len_max).max().unwrap_or(0);
    let count = u32::try_from(ports.len()).unwrap_or(u32::MAX);
    let mut config = SwitchConfig::live(&LiveSizes {
        names: (0..ports.len()).map(|index| format!("p{index}")).collect(),
        rate: LinkRate::gbps(1),
        pris: PRIS,
        cells: CELLS.saturating_add(CELLS_PER_PORT.saturating_mul(count)),
        cell_bytes: u32::try_from(longest).unwrap_or(u32::MAX).max(64),
        headroom_cells: HEADROOM_CELLS,
        frame_len_max: longest,
    });
    for (port, PortCaps { rate, frame_len_max, .. }) in config.ports.iter_mut().zip(caps()) {
        (port.rate, port.frame_len_max) = (*rate, *frame_len_max);
    }
    config
}

/// A switch and its ports, ready to be driven.
pub struct Switch {
    /// State that the workers share: counters, FDB, configuration.
    pub core: Arc<Core>,
    /// By worker: its lane and its ports. The first lane owns the crossbar.
    pub lanes: Vec<(Lane, Vec<Box<dyn Port>>)>,
    /// By worker: the numbers of its ports.
    pub spread: Vec<Vec<PortId>>,
}

impl Switch {
    /// One step of every worker at `now`, in the calling thread; returns how many frames were
    /// moved. Live switches with several workers give each lane to a [`crate::worker::Worker`]
    /// instead.
    pub fn step(&mut self, now: Instant) -> usize {
        let step = |(lane, ports): &mut (Lane, Vec<Box<dyn Port>>)| {
            lane.step(now, ports, &mut NoTrace).work
        };
        self.lanes.iter_mut().map(step).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::null::{Null, NullConfig};

    fn ports(count: usize) -> Vec<Box<dyn Port>> {
        let port = |index| -> Box<dyn Port> {
            let config = NullConfig {
                name: format!("null{index}"),
                rate: LinkRate::gbps(10 * (index as u64 + 1)),
                frame_len_max: 1_518,
                templates: Vec::new(),
                per_burst: 1,
                limit: None,
            };
            Box::new(Null::generator(config).unwrap())
        };
        (0..count).map(port).collect()
    }

    #[test]
    fn ports_are_dealt_out_in_turn_and_told_apart_by_rate() {
        let switch = SwitchBuilder::new(ports(5)).workers(2).build().unwrap();
        let config = switch.core.snapshot.load().config.clone();
        for (own, (lane, ports)) in switch.spread.iter().zip(&switch.lanes) {
            assert_eq!(lane.ports().collect::<Vec<_>>(), *own);
            for (id, port) in own.iter().zip(ports) {
                assert_eq!(port.caps().rate, config.ports[id.index()].rate);
                assert_eq!(port.caps().rate, LinkRate::gbps(10 * (id.index() as u64 + 1)));
            }
        }
        assert_eq!(switch.spread.concat().len(), 5);
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let refused = |builder: SwitchBuilder| match builder.build() {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        let config = SwitchBuilder::new(ports(3)).build().unwrap();
        let config = config.core.snapshot.load().config.clone();
        let of = |count| SwitchBuilder::new(ports(count));
        assert_eq!(refused(of(2).config(config)), "2 ports: the configuration has 3");
        assert_eq!(refused(of(2).workers(0)), "0 workers: expected 1 to 2, the number of ports");
        assert_eq!(refused(of(2).workers(3)), "3 workers: expected 1 to 2, the number of ports");
        assert!(!refused(of(65)).is_empty(), "more ports than a switch has");
    }
}
