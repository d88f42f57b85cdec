//! Faults of links: damaged frames and outages, set on the ends of cables as a plan says.
//!
//! Source: docs/spec/model.md §3.

use std::sync::Arc;

use weft_base::rng::Rng;
use weft_base::sync::AtomicU64;
use weft_dataplane::port::disturbance::{ErrorRate, Errors, Outages};
use weft_dataplane::port::wire::WireEnd;
use weft_dataplane::time::{Instant, Span};

use super::{NetworkError, Plan};
use crate::scenario::fault::Fault;
use crate::topology::Topology;

/// Sets the faults of links; returns for each link with outages the counter of frames lost to them.
pub(super) fn disturb(
    plan: &Plan<'_>,
    ends: &mut [Vec<Option<WireEnd>>],
) -> Result<Vec<Option<Arc<AtomicU64>>>, NetworkError> {
    let (links, hosts) = (plan.topology.links().len(), plan.topology.hosts().count());
    let mut outages: Vec<Vec<(Instant, Instant)>> = vec![Vec::new(); links];
    let mut seeds = Rng::new(plan.seed);
    for (fault, it) in plan.faults.iter().enumerate() {
        let (what, had, count) = match *it {
            Fault::BitError { link, .. }
            | Fault::FrameError { link, .. }
            | Fault::LinkDown { link, .. } => ("link", link, links),
            Fault::SlowReceiver { host, .. } | Fault::PauseStorm { host, .. } => {
                ("host", host.into(), hosts)
            }
        };
        if had >= count {
            return Err(NetworkError::Fault { fault, what, had, most: count.saturating_sub(1) });
        }
        match *it {
            Fault::LinkDown { link, from, until } => {
                // The latest instant that compares as after the start: instants wrap.
                let until = until.unwrap_or(Instant::from_ps(u64::MAX / 2));
                outages.get_mut(link).into_iter().for_each(|of| of.push((from, until)));
            }
            Fault::BitError { link, one_in_bits } => {
                damage(plan.topology, link, ends, ErrorRate::Bits(one_in_bits), &mut seeds);
            }
            Fault::FrameError { link, one_in } => {
                damage(plan.topology, link, ends, ErrorRate::Frames(one_in), &mut seeds);
            }
            Fault::SlowReceiver { .. } | Fault::PauseStorm { .. } => {}
        }
    }
    let mut all = vec![None; links];
    for ((spans, link), lost) in outages.into_iter().zip(plan.topology.links()).zip(&mut all) {
        if spans.is_empty() {
            continue;
        }
        let count = Arc::new(AtomicU64::new(0));
        let propagation = link.spec.map_or(Span::ZERO, |spec| spec.propagation);
        // Both ends count into one counter, as a frame is lost at its receiver.
        for (node, port) in link.ends {
            if let Some(end) = end(ends, node, port.index()) {
                end.set_outages(Outages::new(spans.clone(), propagation, count.clone()));
            }
        }
        *lost = Some(count);
    }
    Ok(all)
}

fn end(ends: &mut [Vec<Option<WireEnd>>], node: usize, port: usize) -> Option<&mut WireEnd> {
    ends.get_mut(node)?.get_mut(port)?.as_mut()
}

/// Damages frames on a link at random, with a seed of its own for each way.
fn damage(
    topology: &Topology,
    link: usize,
    ends: &mut [Vec<Option<WireEnd>>],
    rate: ErrorRate,
    seeds: &mut Rng,
) {
    // Seeds are drawn in the order of faults, so that one more at the end changes no other.
    for (node, port) in topology.links().get(link).into_iter().flat_map(|link| link.ends) {
        let errors = Errors::new(rate, seeds.next_u64());
        if let Some(end) = end(ends, node, port.index()) {
            end.set_errors(errors);
        }
    }
}
