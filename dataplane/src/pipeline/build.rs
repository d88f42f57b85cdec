//! Building a switch: the shared core and one lane for each worker.
//!
//! It takes a configuration and the ports of each worker, and makes the [`Core`] and the [`Lane`]s.
//!
//! Units: chunks, frames.
//! Source: ARCHITECTURE.md "The path of a frame"; docs/spec/pipeline.md §4.

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use weft_base::ring::{Rx, ring};
use weft_base::rng::Rng;
use weft_base::sync::{AtomicU8, AtomicU64};
use weft_parsers::MacAddr;

use super::context::{Context, ToCrossbar};
use super::crossbar::{Crossbar, Links};
use super::downlink::{Downlink, Feed, downlink};
use super::input_lane::InputLane;
use super::lane::Lane;
use super::output_lane::OutputLane;
use super::scratch::Scratch;
use super::switch_core::{Blocks, Core, FastCore, Pauses, Probes};
use super::timing::Timing;
use super::uplink::uplink;
use crate::buffer::{Buffer, Lease};
use crate::config::SwitchConfig;
use crate::desc::Desc;
use crate::fdb::{Fdb, FdbConfig, StaticError};
use crate::flows::FlowCache;
use crate::lag::Joined;
use crate::pbr::{TableError, Tables};
use crate::pool::{Bufs, Pool, PoolError};
use crate::snapshot::{Snapshot, SnapshotError};
use crate::stats::WorkerStats;
use crate::types::{PerPort, PerPri, PortId, PortSet, Pri};
use crate::voq::Voqs;

/// A reason why a switch cannot be built.
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
    /// The tables for TLPs cannot be made.
    #[error(transparent)]
    Tables(#[from] TableError),
    /// The number of ports is not that of the configuration.
    #[error("{had} ports: the configuration has {want}")]
    Ports {
        /// Number of ports that were passed in.
        had: usize,
        /// Number of ports in the configuration.
        want: usize,
    },
    /// Too few workers, or too many.
    #[error("{had} workers: expected 1 to {ports}, the number of ports")]
    Workers {
        /// Number of workers that was asked for.
        had: usize,
        /// Number of ports of the switch, which is the maximum.
        ports: usize,
    },
    /// A port does not start.
    #[error(transparent)]
    Port(#[from] Box<crate::port::PortOpenError>),
    /// A port belongs to no worker or to several.
    #[error("each port belongs to one worker, but {0:?} does not")]
    Spread(PortId),
}

/// A switch that was built: its core, and a lane for each worker.
pub struct Built {
    /// State that all workers share.
    pub core: Arc<Core>,
    /// One lane for each worker; the first owns the crossbar.
    pub lanes: Vec<Lane>,
}

/// Chunks for each port that a worker reserves for control frames.
const RESERVE_PER_PORT: usize = 4;
/// Routing groups of a switch that routes TLPs.
const GROUPS: usize = 256;
/// Free chunks that each of several workers keeps at hand.
const CACHE: usize = 512;
// Held TLPs are not charged to the buffer, so their chunks come out of these.
const _: () = assert!(super::held::FRAMES_MAX <= CACHE, "there are chunks for what is held");
/// Free chunks that a lone worker keeps at hand.
const SOLO_CACHE: usize = 4_096;

/// Chunks that a pool needs beside those of the buffer: receive bursts, transmit rings, worker
/// caches and reserves.
#[must_use]
pub fn chunks_beside_buffer(ports: usize, workers: usize, tx_ring_frames: usize) -> usize {
    ports * (2 * crate::batch::BURST + 2 * tx_ring_frames + RESERVE_PER_PORT)
        + workers * (CACHE + 2 * crate::batch::BURST)
}

/// Builds a live switch of `config` over `pool`; `spread[worker]` are the ports that a worker owns.
/// For virtual time there is [`super::VirtualTimeLane::new`].
///
/// # Errors
/// See [`BuildError`].
pub fn build(
    config: SwitchConfig,
    pool: &Arc<Pool>,
    spread: &[Vec<PortId>],
) -> Result<Built, BuildError> {
    build_for(Timing::Live, config, pool, spread)
}

/// [`build`] with tables and pools of the sizes that suit `timing`.
pub(super) fn build_for(
    timing: Timing,
    config: SwitchConfig,
    pool: &Arc<Pool>,
    spread: &[Vec<PortId>],
) -> Result<Built, BuildError> {
    let snapshot = Arc::new(Snapshot::compile(config, 0)?);
    check_spread(&snapshot, spread)?;
    let single_worker = spread.len() == 1;
    // A lone worker keeps many free chunks, as the chunk that was freed last is taken next, while it is
    // still in the cache. Through the shared list, which is a queue, the whole pool would go round. But it
    // must leave some: the far end of a pipe takes chunks there, which come back to this worker, and
    // would have none in the end.
    let keep = |shared| match timing {
        _ if !single_worker => shared,
        Timing::Live => SOLO_CACHE.min(pool.count() - pool.count() / 8),
        Timing::Virtual => usize::MAX,
    };
    let bufs: Vec<Bufs> = spread
        .iter()
        .map(|own| Bufs::new(pool.clone(), keep(CACHE), own.len() * RESERVE_PER_PORT))
        .collect();
    let core = new_core(&snapshot, pool, &bufs, timing)?;
    let voqs = match timing {
        Timing::Live => Voqs::new,
        // A network may have many switches, and a page fault delays no frame of virtual time.
        Timing::Virtual => Voqs::growing,
    };
    // Pools that grow are those of networks in virtual time: many switches with few flows each.
    let new_flows = if pool.grows() { FlowCache::few } else { FlowCache::new };
    // Twice the chunks of the pool, as a replicated frame takes a place for each copy.
    let voqs = voqs(snapshot.config.ports.len(), snapshot.config.pris, 2 * pool.count());
    let Wiring { mut queues, feeds, links, ways, downlinks } = wire(&snapshot, spread, voqs);
    let mut crossbar = Some(Crossbar::new(feeds, links, &snapshot));
    let mut lanes = Vec::with_capacity(spread.len());
    let ends = ways.into_iter().zip(downlinks);
    for (worker, ((own, bufs), (to_crossbar, downlink))) in
        spread.iter().zip(bufs).zip(ends).enumerate()
    {
        let ctx = Context {
            core: core.clone(),
            snapshot: snapshot.clone(),
            stats: core.stats.get(worker).cloned().unwrap_or_default(),
            bufs,
            to_crossbar,
            lease: Lease::new(worker, own.iter().copied().collect()),
            // A sequence of its own for each worker, so that workers don't decide in step.
            rng: Rng::new(snapshot.config.seed.wrapping_add(worker as u64)),
            joined_lags: Joined::new(),
            joined_spreads: Joined::new(),
            over_xoff: PortSet::EMPTY,
            paused_or_storming: own.iter().copied().collect(),
            has_released: true,
            crossbar_dirty: true,
            held: super::held::Held::default(),
        };
        lanes.push(Lane {
            ctx,
            inputs: own.iter().map(|&port| InputLane::new(port, &snapshot)).collect(),
            outputs: own
                .iter()
                .map(|&port| OutputLane::new(port, core::mem::take(&mut queues[port]), &snapshot))
                .collect(),
            crossbar: crossbar.take(),
            downlink,
            scratch: Box::new(Scratch::new()),
            flows: new_flows(),
            has_fast_path: None,
            probing: false,
        });
    }
    Ok(Built { core, lanes })
}

/// Checks that each port belongs to exactly one worker.
fn check_spread(snapshot: &Snapshot, spread: &[Vec<PortId>]) -> Result<(), BuildError> {
    let is_once = |port: &PortId| spread.iter().flatten().filter(|&p| p == port).count() == 1;
    match snapshot.ports.iter().find(|port| !is_once(port)) {
        Some(port) => Err(BuildError::Spread(port)),
        None => Ok(()),
    }
}

/// The state that workers share; `bufs` are their handles of the pool.
fn new_core(
    snapshot: &Arc<Snapshot>,
    pool: &Arc<Pool>,
    bufs: &[Bufs],
    timing: Timing,
) -> Result<Arc<Core>, BuildError> {
    let new_stats = match timing {
        // Pages are touched now: a page fault must not delay the first frame of a priority.
        Timing::Live => WorkerStats::default,
        Timing::Virtual => WorkerStats::growing,
    };
    Ok(Arc::new(Core {
        pool: pool.clone(),
        fdb: new_fdb(snapshot, timing)?,
        buffer: Buffer::new(snapshot.config.ports.len(), snapshot.config.pris, bufs.len()),
        snapshot: ArcSwap::new(snapshot.clone()),
        stats: bufs.iter().map(|_| Arc::new(new_stats())).collect(),
        chunks_used: Mutex::new(bufs.iter().map(Bufs::used).collect()),
        up: AtomicU64::new(0),
        blocks: Blocks::new(),
        probes: Probes::new(snapshot.config.forward.probe_key),
        paused: PerPort::from_fn(|_| AtomicU8::new(0)),
        storming: PerPort::from_fn(|_| AtomicU8::new(0)),
        storms: AtomicU64::new(0),
        tx_off: AtomicU64::new(0),
        sending: PerPort::from_fn(|_| AtomicU64::new(0)),
        xoff: PerPort::from_fn(|_| AtomicU8::new(0)),
        pauses: Pauses::new(),
        congested: PerPri(Pri::ALL.map(|_| AtomicU64::new(0))),
        tables: ArcSwap::from_pointee(Tables::new(snapshot.tlp_ports, GROUPS)?),
        partners: PerPort::from_fn(|_| AtomicU64::new(MacAddr::BROADCAST.to_bits())),
        fast: FastCore::new(new_stats()),
        last_error: PerPort::from_fn(|_| Mutex::new(None)),
    }))
}

type Ends<T> = PerPort<PerPri<Option<T>>>;

/// Connections from inputs to VOQs, and from the crossbar to outputs.
struct Wiring {
    /// The consuming end of each egress queue.
    queues: Ends<Rx<Desc>>,
    feeds: PerPort<PerPri<Feed>>,
    links: Links,
    /// By worker: the way to the crossbar. The first has the crossbar and all VOQs.
    ways: Vec<ToCrossbar>,
    downlinks: Vec<Option<Downlink>>,
}

fn wire(snapshot: &Snapshot, spread: &[Vec<PortId>], voqs: Voqs) -> Wiring {
    let capacity = snapshot.config.crossbar.egress_queue_frames.max(1);
    let (mut txs, mut queues) = (Ends::default(), Ends::default());
    for port in snapshot.ports.iter() {
        for pri in snapshot.pris.iter() {
            let (tx, rx) = ring(capacity);
            txs[port][pri] = Some(tx);
            queues[port][pri] = Some(rx);
        }
    }
    let mut feeds = PerPort::<PerPri<Feed>>::default();
    let mut links = Links::default();
    let (mut ways, mut downlinks) = (vec![ToCrossbar::Local(Box::new(voqs))], vec![None]);
    // All workers but the first, which owns the crossbar: their queues are fed over downlinks.
    // Queues that are left after this are the first worker's.
    for own in spread.iter().skip(1) {
        let (up, from) = uplink(snapshot.config.ports.len());
        let (far, down) = downlink(links.ways.len(), own, &mut txs, &mut feeds, capacity);
        links.from.push(from);
        links.ways.push(far);
        ways.push(ToCrossbar::Remote(up));
        downlinks.push(Some(down));
    }
    for &port in spread.first().into_iter().flatten() {
        for pri in Pri::ALL {
            feeds[port][pri] = txs[port][pri].take().map_or(Feed::Absent, Feed::Local);
        }
    }
    Wiring { queues, feeds, links, ways, downlinks }
}

fn new_fdb(snapshot: &Snapshot, timing: Timing) -> Result<Fdb, StaticError> {
    let events = match timing {
        Timing::Live => FdbConfig::default().events,
        Timing::Virtual => 1, // nothing reads them
    };
    let forward = &snapshot.config.forward;
    let fdb = Fdb::new(FdbConfig {
        events,
        capacity: forward.fdb_capacity,
        seed: snapshot.config.seed,
        ageing: forward.ageing,
    });
    fdb.set_static(&forward.static_entries)?;
    limit_learning(&fdb, snapshot);
    Ok(fdb)
}

/// Sets how many stations each port may learn, and for how long stations that move too often are
/// held. A LAG may learn as many as its ports together.
pub fn limit_learning(fdb: &Fdb, snapshot: &Snapshot) {
    fdb.set_sticky(snapshot.config.forward.sticky);
    for port in snapshot.ports.iter() {
        let of =
            |port: PortId| snapshot.config.ports.get(port.index()).map_or(0, |p| p.learned_max);
        let members = snapshot.links.members(port).iter();
        fdb.set_learned_max(port, members.map(of).fold(0, u32::saturating_add));
    }
}
