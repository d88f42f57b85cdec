//! The parts of a switch: ports spread over workers, a pool, lanes, and the snapshot that succeeds the one in force.
//!
//! [`assemble`] makes a [`Built`] from a [`SwitchConfig`], and [`successor`] the [`Snapshot`] that takes over. A live
//! switch and the replay of a record use the same functions.
//!
//! Source: docs/spec/pipeline.md §11.

use std::sync::Arc;

use weft_config::choice::DeviceKind;
use weft_config::resolve::RunConfig;
use weft_dataplane::config::SwitchConfig;
use weft_dataplane::pipeline::{Built, Core, build, chunks_beside_buffer};
use weft_dataplane::pool::{Pool, PoolError, Sharing};
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::types::PortId;

use super::LiveError;

/// Deals ports out to `workers` workers, round robin. With fewer ports than workers there are fewer workers: each has a
/// port.
#[must_use]
pub fn spread(ports: usize, workers: usize) -> Vec<Vec<PortId>> {
    let workers = workers.clamp(1, ports.max(1));
    let of = |worker| (worker..ports).step_by(workers).filter_map(PortId::new).collect();
    (0..workers).map(of).collect()
}

/// Chunks that a switch needs, without those that its devices hold.
#[must_use]
pub fn chunks(switch: &SwitchConfig, workers: usize) -> usize {
    let beside = chunks_beside_buffer(switch.ports.len(), workers, switch.tx_ring_frames);
    let cells = usize::try_from(switch.buffer.total_cells).unwrap_or(usize::MAX);
    cells.saturating_add(beside)
}

/// A pool of `count` chunks in memory that the kinds of device in `run` can share.
///
/// # Errors
/// The kernel gives no memory.
pub fn pool(run: &RunConfig, count: usize) -> Result<Arc<Pool>, PoolError> {
    let has = |kinds: &[DeviceKind]| run.ports.iter().any(|port| kinds.contains(&port.kind));
    let sharing = Sharing {
        umem: has(&[DeviceKind::Auto, DeviceKind::AfXdp]),
        dma: has(&[DeviceKind::Dpdk]),
    };
    Pool::map_shared(count, run.frame_len_max.max(64), sharing)
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
    build(switch, pool, spread).map_err(|e| LiveError::Build(Box::new(e)))
}

/// Compiles `switch` as the successor of the configuration in force.
///
/// # Errors
/// `switch` contradicts itself, or changes something that needs a restart.
pub fn successor(core: &Core, mut switch: SwitchConfig) -> Result<Arc<Snapshot>, LiveError> {
    let old = core.snapshot.load_full();
    for (port, old) in switch.ports.iter_mut().zip(&old.config.ports) {
        if port.parse.port_mac == weft_parsers::MacAddr::ZERO {
            // A configuration gives zero where it names no address. The device's own was found when it was opened, and
            // only then.
            port.parse.port_mac = old.parse.port_mac; // the device's, found at start
        }
    }
    let new = old.succeed(switch).map_err(|e| LiveError::Snapshot(Box::new(e)))?;
    Ok(Arc::new(new))
}

/// Puts `new` in force, whole or not at all. No worker may be in a step meanwhile.
///
/// # Errors
/// A static entry for which there is no room.
pub fn take_over(core: &Core, new: &Arc<Snapshot>) -> Result<(), LiveError> {
    let forward = &new.config.forward;
    // The only call that can fail stands first: after it nothing needs to be undone.
    core.fdb.set_static(&forward.static_entries)?;
    core.fdb.set_ageing(forward.ageing);
    weft_dataplane::pipeline::limit_learning(&core.fdb, new);
    // Last: a worker that sees the new snapshot sees the FDB that belongs to it.
    core.snapshot.store(new.clone());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_config::resolve::{Config, Timing};
    use weft_config::settings::Settings;

    /// An IOMMU of 39 bits would refuse the addresses that the kernel chooses.
    #[test]
    fn a_pool_lies_low_for_dpdk_devices() {
        let text = "[[port]]\nname = \"p0\"\nkind = \"dpdk\"\ndevice = \"0000:00:08.0\"\n\
                    [[port]]\nname = \"p1\"\nkind = \"tap\"\ndevice = \"t1\"\n";
        let settings = Settings::read("t.toml", text).unwrap();
        let config = Config::resolve(&settings, Timing::Live).unwrap();
        let pool = pool(&config.run, 8).unwrap();
        let memory = pool.memory();
        let end = memory.as_ptr().cast::<u8>() as usize + memory.len();
        assert!(end <= 1 << 38, "{end:#x}");
    }

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
