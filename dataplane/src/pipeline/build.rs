//! Building a switch: the shared core and one lane per worker.
//!
//! Shape: a configuration, a spread of ports over workers → [`Core`], [`Lane`]s.
//! Units: chunks, frames.
//! Source: architecture.md, "Data's way through"; pipeline.md §4.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::crossbar::Crossbar;
use super::egress::OutputLane;
use super::fast::FastCore;
use super::ingress::{InputLane, Scratch};
use super::{Context, Core, Lane, Timing};
use crate::buffer::{Buffer, Lease};
use crate::config::SwitchConfig;
use crate::fdb::{Fdb, FdbConfig, StaticError};
use crate::flows::FlowCache;
use crate::free::FreeCache;
use crate::lag::Joined;
use crate::pool::{Bufs, Pool, PoolError};
use crate::ring::ring;
use crate::rng::Rng;
use crate::snapshot::{Snapshot, SnapshotError};
use crate::stats::WorkerStats;
use crate::sync::{AtomicU8, AtomicU64};
use crate::types::{PerPort, PerPri, PortId, Pri};
use crate::voq::voqs;

/// Why a switch cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The pool cannot be made.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A static FDB entry cannot be set.
    #[error(transparent)]
    Static(#[from] StaticError),
    /// A port belongs to no worker or to several.
    #[error("each port belongs to one worker, but {0:?} does not")]
    Spread(PortId),
}

/// A switch, ready to be driven.
pub struct Built {
    /// What the workers share.
    pub core: Arc<Core>,
    /// One per worker; the first owns the crossbar.
    pub lanes: Vec<Lane>,
}

/// Control frames' reserve of each worker, in chunks a port.
const RESERVE_PER_PORT: usize = 4;
/// Free chunks that a worker keeps at hand.
const CACHE: usize = 512;

/// Chunks that a pool needs beside those that the buffer may fill: receive bursts, what the ports
/// hold for transmit, worker caches and reserves.
#[must_use]
pub fn chunks_beside_buffer(ports: usize, workers: usize, tx_ring_frames: usize) -> usize {
    ports * (2 * crate::batch::BURST + 2 * tx_ring_frames + RESERVE_PER_PORT)
        + workers * (CACHE + 2 * crate::batch::BURST)
}

/// Builds a switch of `config` over `pool`; `spread` says which ports each worker owns.
///
/// # Errors
/// See [`BuildError`].
pub fn build(
    config: SwitchConfig,
    pool: &Arc<Pool>,
    spread: &[Vec<PortId>],
    timing: Timing,
) -> Result<Built, BuildError> {
    let snapshot = Arc::new(Snapshot::compile(config, 0)?);
    let ports = snapshot.config.ports.len();
    for port in (0..ports).filter_map(PortId::new) {
        if spread.iter().flatten().filter(|&&p| p == port).count() != 1 {
            return Err(BuildError::Spread(port));
        }
    }
    let solo = spread.len() == 1;
    // Alone, a worker keeps all that is free: the last given back is taken next, still warm. Through
    // the shared list, which is a queue, the whole pool would go round.
    let keep = |shared| if solo { usize::MAX } else { shared };
    let fdb = new_fdb(&snapshot, ports)?;
    let stats: Vec<Arc<WorkerStats>> = spread.iter().map(|_| Arc::default()).collect();
    let mut bufs: Vec<Bufs> = spread
        .iter()
        .map(|own| Bufs::new(pool.clone(), keep(CACHE), own.len() * RESERVE_PER_PORT))
        .collect();
    let core = Arc::new(Core {
        pool: pool.clone(),
        fdb,
        buffer: Buffer::new(ports, snapshot.config.pris, solo),
        snapshot: ArcSwap::new(snapshot.clone()),
        stats: stats.clone(),
        chunks_used: bufs.iter().map(Bufs::used).collect(),
        up: AtomicU64::new(0),
        paused: PerPort::from_fn(|_| AtomicU8::new(0)),
        storming: PerPort::from_fn(|_| AtomicU8::new(0)),
        storms: AtomicU64::new(0),
        xoff: PerPort::from_fn(|_| AtomicU8::new(0)),
        congested: PerPri(Pri::ALL.map(|_| AtomicU64::new(0))),
        fast: FastCore::new(),
    });
    // A frame in a VOQ takes a node; replicated ones take one per copy.
    let (inputs, drain, nodes) = voqs(ports, snapshot.config.pris, 2 * pool.count(), solo);
    let mut inputs: Vec<Option<_>> = inputs.into_iter().map(Some).collect();
    let (mut txs, mut rxs) = egress_queues(&snapshot);
    let mut crossbar = Some(Crossbar::new(drain, core::mem::take(&mut txs), &snapshot, timing));
    let mut lanes = Vec::with_capacity(spread.len());
    for ((worker, own), stats) in spread.iter().enumerate().zip(stats) {
        let taken =
            own.iter().filter_map(|&port| Some((port, inputs.get_mut(port.index())?.take()?)));
        let ctx = Context {
            core: core.clone(),
            snapshot: snapshot.clone(),
            stats,
            bufs: bufs.remove(0),
            nodes: FreeCache::new(nodes.clone(), keep(2 * CACHE)),
            lease: Lease::default(),
            rng: Rng::new(snapshot.config.seed.wrapping_add(worker as u64)),
            joined_lags: Joined::new(),
            joined_spreads: Joined::new(),
        };
        lanes.push(Lane {
            ctx,
            inputs: taken.map(|(port, voq)| InputLane::new(port, voq, &snapshot)).collect(),
            outputs: own
                .iter()
                .map(|&port| OutputLane::new(port, core::mem::take(&mut rxs[port]), &snapshot))
                .collect(),
            crossbar: crossbar.take(),
            scratch: Box::new(Scratch::new()),
            flows: FlowCache::new(),
            timing,
            solo,
            has_fast_path: None,
        });
    }
    Ok(Built { core, lanes })
}

type Ends<T> = PerPort<PerPri<Option<T>>>;

/// Both ends of every egress queue.
fn egress_queues(
    snapshot: &Snapshot,
) -> (Ends<crate::ring::Tx<crate::desc::Desc>>, Ends<crate::ring::Rx<crate::desc::Desc>>) {
    let (mut txs, mut rxs) = (Ends::default(), Ends::default());
    for port in snapshot.ports.iter() {
        for pri in snapshot.pris.iter() {
            let (tx, rx) = ring(snapshot.config.crossbar.egress_queue_frames.max(1));
            txs[port][pri] = Some(tx);
            rxs[port][pri] = Some(rx);
        }
    }
    (txs, rxs)
}

fn new_fdb(snapshot: &Snapshot, ports: usize) -> Result<Fdb, StaticError> {
    let forward = &snapshot.config.forward;
    let fdb = Fdb::new(FdbConfig {
        capacity: forward.fdb_capacity,
        seed: snapshot.config.seed,
        ageing: forward.ageing,
        ..FdbConfig::default()
    });
    fdb.set_static(&forward.static_entries)?;
    for port in (0..ports).filter_map(PortId::new) {
        let limit = snapshot.config.ports.get(port.index()).map_or(0, |p| p.learned_max);
        fdb.set_learned_max(port, limit);
    }
    Ok(fdb)
}
