//! Flow cache in the pipeline: known flows bypass parsing and table lookups.
//!
//! Each frame of a burst whose flow is cached gets its queue, and the burst goes into VOQs at once
//! if none of it could be refused or cross XOFF. The full path ([`super::ingress`]) gives the same
//! result.
//!
//! Units: cells.
//! Source: docs/spec/pipeline.md §1 to §4.

use weft_parsers::{HEAD_LEN, ParseConfig, choice_words, flow_key};

use super::burst::{BurstMask, BurstView, CACHE_MISS, CountRun, FrameMeta, Verdict};
use super::context::Context;
use crate::batch::{BURST, Batch};
use crate::desc::{Desc, Flag};
use crate::fdb::Fdb;
use crate::flows::{CachedVerdict, FlowCache, Inputs, NO_KEY, key_of};
use crate::queues::QueueId;
use crate::stats::PortStats;
use crate::time::Instant;
use crate::types::PortId;

/// [`lookup_burst`] for one frame: the queue that it goes to, if its flow is known.
#[inline]
pub(super) fn lookup_one(
    ctx: &Context,
    now: Instant,
    input: PortId,
    desc: &mut Desc,
    flows: &mut FlowCache,
) -> Option<QueueId> {
    let snapshot = &*ctx.snapshot;
    let config = snapshot.config.ports.get(input.index())?;
    begin(ctx, now, flows);
    let len = desc.len();
    let (head, parse) = (ctx.bufs.head(desc), &config.parse);
    let known = if flows.is_few() {
        find::<true>(ctx, input, head, len, parse, flows)
    } else {
        find::<false>(ctx, input, head, len, parse, flows)
    };
    // A longer frame may not fit its output: the full path decides, and drops it by that
    // reason.
    let known = known.filter(|_| len <= snapshot.frame_len_safe)?;
    desc.apply(known.meta, known.vid);
    let mut run = CountRun::default();
    let stats = &ctx.stats.port[input];
    run.count(stats, len, known.meta.format_index());
    run.flush(stats);
    Some(known.queue)
}

/// The cached decision for frames of up to `len` bytes that begin with `head` and came in by `input` of a live switch.
pub(super) fn lookup_head(
    ctx: &Context,
    now: Instant,
    input: PortId,
    head: &[u8; HEAD_LEN],
    len: usize,
    flows: &mut FlowCache,
) -> Option<CachedVerdict> {
    let config = ctx.snapshot.config.ports.get(input.index())?;
    begin(ctx, now, flows);
    find::<false>(ctx, input, head, len, &config.parse, flows)
        .filter(|_| len <= ctx.snapshot.frame_len_safe)
}

/// The cached decision for a frame that came in by `input`, parsed as its port's `config` says.
#[inline]
fn find<const FEW: bool>(
    ctx: &Context,
    input: PortId,
    head: &[u8; HEAD_LEN],
    len: usize,
    config: &ParseConfig,
    flows: &mut FlowCache,
) -> Option<CachedVerdict> {
    let found = flow_key(head, len, config)?;
    let key = key_of(input, found);
    if !ctx.snapshot.links.is_any() {
        return flows.lookup::<FEW>(key);
    }
    flows.lookup_spread::<FEW>(input, key, || choice_words(head, found, config))
}

/// Empties the cache if any of its inputs has changed since it was filled.
#[inline]
fn begin(ctx: &Context, now: Instant, flows: &mut FlowCache) {
    // Everything that a cached decision depends on. The tick is among them because a cached
    // frame does not touch its source's entry in the FDB: without a new look each tick, the
    // station would age.
    flows.begin(Inputs {
        epoch: ctx.snapshot.epoch,
        fdb: ctx.core.fdb.version(),
        tick: Fdb::stamp(now),
        up: ctx.core.forwarding().bits(),
        joined: [ctx.joined_lags.links().bits(), ctx.joined_spreads.links().bits()],
    });
}

/// Classifies frames of known flows and sets the queues that they go to; returns the other
/// frames.
#[inline(never)] // each loop on its own keeps its state in registers
pub(super) fn lookup_burst(
    ctx: &Context,
    now: Instant,
    input: PortId,
    batch: &mut Batch,
    routes: &mut [u16; BURST],
    flows: &mut FlowCache,
) -> BurstMask {
    let snapshot = &*ctx.snapshot;
    let Some(config) = snapshot.config.ports.get(input.index()) else {
        routes.fill(CACHE_MISS);
        return BurstMask::first(batch.len());
    };
    begin(ctx, now, flows);
    if snapshot.links.is_any() {
        return lookup_spread(ctx, input, &config.parse, batch, routes, flows);
    }
    // All keys first and then all lookups: each loop keeps its state in registers.
    let mut keys = [NO_KEY; BURST];
    for (desc, slot) in batch.iter().zip(&mut keys) {
        if let Some(found) = flow_key(ctx.bufs.head(desc), desc.len(), &config.parse) {
            *slot = key_of(input, found);
        }
    }
    let stats = &ctx.stats.port[input];
    let most = snapshot.frame_len_safe;
    let of_burst = keys.get(..batch.len()).unwrap_or_default();
    // A burst of one flow, as between two routers, needs one lookup. Compared shifted by one
    // key: if each equals the next, all are the same.
    if let Some((&first, others)) = of_burst.split_first()
        && others.last().is_none_or(|&last| last == first)
        && of_burst.as_flattened().starts_with(others.as_flattened())
        && let Some(known) = flows.lookup::<false>(first)
        && batch.iter().all(|desc| desc.len() <= most)
    {
        apply(stats, batch, routes, known);
        return BurstMask(0);
    }
    let mut keys = keys.iter();
    apply_each(stats, most, batch, routes, |_| flows.lookup::<false>(*keys.next()?))
}

/// [`lookup_burst`] where links may have been chosen by hash.
#[inline(never)] // as `lookup_burst`
fn lookup_spread(
    ctx: &Context,
    input: PortId,
    config: &ParseConfig,
    batch: &mut Batch,
    routes: &mut [u16; BURST],
    flows: &mut FlowCache,
) -> BurstMask {
    let (stats, most) = (&ctx.stats.port[input], ctx.snapshot.frame_len_safe);
    apply_each(stats, most, batch, routes, |desc| {
        find::<false>(ctx, input, ctx.bufs.head(desc), desc.len(), config, flows)
    })
}

/// Sets the queues of frames that go to one output each; false if some frame does not.
pub(super) fn route_burst(
    ctx: &Context,
    BurstView { batch, which }: BurstView<'_>,
    metas: &[FrameMeta; BURST],
    routes: &mut [u16; BURST],
) -> bool {
    for place in which.iter() {
        let (Some(desc), Some(meta)) = (batch.get_mut(place), metas.get(place)) else { break };
        let Verdict::Forward(outputs) = meta.verdict else { return false };
        let Some((route, output)) = routes.get_mut(place).zip(outputs.sole()) else {
            return false;
        };
        *route = QueueId::new(output, desc.pri()).get();
        // As the flow cache does for its frames: `enqueue_burst` charges by priority and
        // doesn't set it.
        desc.set(Flag::Pg, ctx.snapshot.is_lossless(desc.input(), desc.pri()));
    }
    true
}

/// Caches a decision for the next frames of the flow. Its source is known, and so is its one
/// destination, which was `chosen` among several links or is the only one.
pub(super) fn insert_flow(
    ctx: &Context,
    flows: &mut FlowCache,
    desc: &Desc,
    meta: &FrameMeta,
    chosen: bool,
) {
    let Some(config) = ctx.snapshot.config.ports.get(desc.input().index()) else { return };
    let head = ctx.bufs.head(desc);
    let found = flow_key(head, desc.len(), &config.parse);
    if let (Some(found), Verdict::Forward(outputs)) = (found, meta.verdict)
        && let Some(output) = outputs.sole()
    {
        let is_lossless = ctx.snapshot.is_lossless(desc.input(), desc.pri());
        let kept = if is_lossless { desc.meta().charged_to_group() } else { desc.meta() };
        let queue = QueueId::new(output, desc.pri());
        let cached = CachedVerdict { queue, vid: meta.vid.get(), meta: kept };
        let key = key_of(desc.input(), found);
        if !chosen {
            flows.insert(key, cached);
        // The key says less than the hash that has chosen the link: the words hold the rest.
        } else if let Some(words) = choice_words(head, found, &config.parse) {
            flows.insert_choice(key, words, cached);
        }
    }
}

/// Classifies frames of one known flow, and sets the queue that they go to.
#[inline(never)] // as `lookup_burst`
fn apply(stats: &PortStats, batch: &mut Batch, routes: &mut [u16; BURST], known: CachedVerdict) {
    let mut run = CountRun::default();
    for (desc, route) in batch.iter_mut().zip(routes) {
        desc.apply(known.meta, known.vid);
        run.count(stats, desc.len(), known.meta.format_index());
        *route = known.queue.get();
    }
    run.flush(stats);
}

/// Classifies frames whose flows are `known` and that are not longer than `most`, and sets the
/// queues that they go to; returns the other frames.
#[inline]
fn apply_each(
    stats: &PortStats,
    most: usize,
    batch: &mut Batch,
    routes: &mut [u16; BURST],
    mut known: impl FnMut(&Desc) -> Option<CachedVerdict>,
) -> BurstMask {
    let (mut run, mut unknown, mut bit) = (CountRun::default(), 0_u64, 1);
    for (desc, route) in batch.iter_mut().zip(routes) {
        let len = desc.len();
        if let Some(known) = known(desc).filter(|_| len <= most) {
            desc.apply(known.meta, known.vid);
            run.count(stats, len, known.meta.format_index());
            *route = known.queue.get();
        } else {
            unknown |= bit;
            *route = CACHE_MISS;
        }
        bit <<= 1;
    }
    run.flush(stats);
    BurstMask(unknown)
}

const _: () = assert!(HEAD_LEN == 64, "the first cache line of a frame");
