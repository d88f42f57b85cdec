//! Parse: reads the headers of a burst, and classifies its frames.
//!
//! Each frame gets its [`FrameMeta`] with a first [`Verdict`], and priority and VLAN in its
//! descriptor.
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §1, §2.

use weft_parsers::{Format, Head, parse_head};

use super::burst::{BurstView, CountRun, FrameMeta, Verdict, trace_rx};
use super::context::Context;
use crate::batch::BURST;
use crate::config::PriSource;
use crate::fdb::FdbKey;
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::{Event, Tracer};
use crate::types::{PortId, PortSet};

/// Counts a received burst.
#[inline]
pub(super) fn count_burst(ctx: &Context, input: PortId, count: usize) {
    ctx.stats.port[input].rx_frames.add(count as u64);
    ctx.stats.frames.add(count as u64);
    ctx.stats.bursts.add(1);
}

/// Parses and classifies frames of the burst.
#[inline(never)] // as `lookup_burst`
pub(super) fn parse_burst<T: Tracer>(
    ctx: &mut Context,
    now: Instant,
    input: PortId,
    BurstView { batch, which }: BurstView<'_>,
    metas: &mut [FrameMeta; BURST],
    tracer: &mut T,
) {
    let snapshot = &*ctx.snapshot;
    let Some(config) = snapshot.config.ports.get(input.index()) else { return };
    let Some(classifier) = snapshot.classifiers.get(input.index()) else { return };
    let (stats, fdb) = (&ctx.stats.port[input], &ctx.core.fdb);
    let mut run = CountRun::default();
    let mut to_groups = 0;
    for place in which.iter() {
        let Some((desc, meta)) = batch.get_mut(place).zip(metas.get_mut(place)) else { break };
        let len = desc.len();
        if T::ON {
            trace_rx(&mut ctx.bufs, now, input, desc, tracer);
        }
        let Ok(head) = parse_head(ctx.bufs.head(desc), len, &config.parse) else {
            run.count(stats, len, Format::Other as usize);
            meta.verdict = Verdict::Drop(DropReason::Malformed);
            // A malformed frame has no field to trust, but its drop is counted by priority,
            // too: the default one.
            let (pri, _) = classifier.pri(&Head::EMPTY);
            desc.classify(input, Format::Other, pri, false, false);
            continue;
        };
        let format = head.format();
        run.count(stats, len, format as usize);
        meta.verdict = if len > config.frame_len_max {
            Verdict::Drop(DropReason::TooLong)
        } else if format == Format::MacControl {
            Verdict::Consume
        } else {
            match snapshot.vlan.ingress(input, head.tci()) {
                Ok(vid) => {
                    meta.vid = vid;
                    desc.set_vid(vid.get());
                    // Keys are hashed here and their buckets prefetched, so that the lookups of
                    // the next pass find them in the cache.
                    meta.dst = fdb.probe(FdbKey::new(vid, head.dst()));
                    meta.src = fdb.probe(FdbKey::new(vid, head.src()));
                    Verdict::Forward(PortSet::EMPTY)
                }
                Err(_) => Verdict::Drop(DropReason::VlanFiltered),
            }
        };
        meta.head = head;
        // Also of frames that are dropped: drops are counted by priority.
        let (pri, by) = classifier.pri(&head);
        desc.classify(input, format, pri, head.tagged(), snapshot.may_mark(&head));
        if head.group() && format != Format::MacControl {
            desc.set_for_group();
            to_groups += 1;
        }
        let filtered = Verdict::Drop(DropReason::VlanFiltered); // it was classified, too
        if T::ON && (matches!(meta.verdict, Verdict::Forward(_)) || meta.verdict == filtered) {
            let event = Event::Classify {
                frame: ctx.bufs.trace_id(desc),
                format: format.name(),
                pri: pri.get(),
                by: by.map_or("default", PriSource::name),
                vid: head.tci().map_or(0, |tci| tci.vid().get()),
            };
            tracer.event(now, event);
        }
    }
    run.flush(stats);
    stats.rx_group_frames.add(to_groups);
}
