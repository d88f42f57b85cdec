//! Downlink: frames on their way from the crossbar to outputs that other workers own.
//!
//! For each worker but the crossbar's owner a ring of [`QueuedDesc`]; what an egress queue at the far
//! end has let go is told back as a count. So the queues themselves are each one worker's own.
//!
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame".

use weft_base::counters::PerThreadCounters;
use weft_base::ring::{Rx, Tx, ring};
use weft_base::sync::{Arc, Ordering};

use super::context::Context;
use super::uplink::QueuedDesc;
use crate::desc::{Desc, PackedDesc};
use crate::queues::{QueueId, QueueSet};
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PerPort, PerPri, PortId, PortSet, Pri};

/// The sending end of a downlink: the crossbar's way to the egress queues of another worker.
pub(super) struct DownlinkTx {
    frames: Tx<QueuedDesc>,
    taken: Arc<PerThreadCounters>,
}

/// Where the crossbar puts frames for one egress queue.
#[derive(Default)]
pub(super) enum Feed {
    /// There is no such queue.
    #[default]
    Absent,
    /// Into it.
    Local(Tx<Desc>),
    /// To the worker that has it.
    Remote {
        /// Which way.
        far: usize,
        /// Its place among that worker's.
        at: usize,
        /// Frames sent, wrapping.
        sent: u32,
    },
}

impl Feed {
    /// Puts frames, for which there is room, into the queue, or on the way to it.
    ///
    /// # Panics
    /// When there is no such queue.
    #[inline]
    pub fn push(&mut self, ways: &mut [DownlinkTx], id: QueueId, frames: &[PackedDesc]) {
        let count = frames.len();
        let frames = frames.iter().copied().map(PackedDesc::unpack);
        match self {
            Self::Local(queue) => queue.push_all(frames),
            Self::Remote { far, sent, .. } => {
                let far = ways.get_mut(*far).expect("a way for each worker");
                far.frames.push_all(frames.map(|desc| QueuedDesc { desc, queue: id }));
                *sent = sent.wrapping_add(u32::try_from(count).unwrap_or(0)); // a line's at most
            }
            Self::Absent => panic!("a queue that its owner has looked up"),
        }
    }

    /// Frames in the queue and on the way to it; never fewer than there are.
    ///
    /// # Panics
    /// Never: a way is made with the feeds that name it.
    #[inline]
    pub fn len(&mut self, ways: &[DownlinkTx]) -> usize {
        match self {
            Self::Absent => usize::MAX,
            Self::Local(queue) => queue.len(),
            Self::Remote { far, at, sent } => {
                let far = ways.get(*far).expect("a way for each worker");
                let taken = far.taken.at(*at).load(Ordering::Acquire); // pairs with `report`
                sent.wrapping_sub(taken) as usize
            }
        }
    }
}

/// A worker's end of the way from the crossbar, and the inner ends of its egress queues.
pub(super) struct Downlink {
    frames: Rx<QueuedDesc>,
    queues: PerPort<PerPri<Option<Inner>>>,
    /// Queues whose frames have not all been told back as taken.
    open: QueueSet,
    taken: Arc<PerThreadCounters>,
}

struct Inner {
    queue: Tx<Desc>,
    at: usize,
    fed: u32,
}

/// Both ends of the way to the egress queues of `outputs`, whose inner ends are `queues`; `feeds` learn that
/// theirs is way `far`.
pub(super) fn downlink(
    far: usize,
    outputs: &[PortId],
    queues: &mut PerPort<PerPri<Option<Tx<Desc>>>>,
    feeds: &mut PerPort<PerPri<Feed>>,
    capacity: usize,
) -> (DownlinkTx, Downlink) {
    let mut at = 0;
    let mut inner = PerPort::<PerPri<Option<Inner>>>::default();
    for &output in outputs {
        for pri in Pri::ALL {
            let Some(queue) = queues[output][pri].take() else { continue };
            inner[output][pri] = Some(Inner { queue, at, fed: 0 });
            feeds[output][pri] = Feed::Remote { far, at, sent: 0 };
            at += 1;
        }
    }
    let (tx, frames) = ring((at * capacity).max(1)); // all that may be under way
    let taken = Arc::new(PerThreadCounters::new(at));
    (
        DownlinkTx { frames: tx, taken: taken.clone() },
        Downlink { frames, queues: inner, open: QueueSet::EMPTY, taken },
    )
}

impl Downlink {
    /// Puts what has come into the egress queues; returns their outputs.
    pub(super) fn absorb<T: Tracer>(
        &mut self,
        ctx: &mut Context,
        now: Instant,
        tracer: &mut T,
    ) -> PortSet {
        let mut fed = PortSet::EMPTY;
        let Self { frames, queues, open, .. } = self;
        let most = frames.len();
        frames.pop_each(most, |QueuedDesc { desc, queue }| {
            let (output, pri) = (queue.output(), queue.pri());
            fed.insert(output);
            open.insert(queue);
            let inner = queues[output][pri].as_mut();
            let pushed = match inner {
                Some(inner) => {
                    inner.fed = inner.fed.wrapping_add(1);
                    inner.queue.push(desc)
                }
                None => Err(desc),
            };
            if let Err(desc) = pushed {
                // Not to be had: the crossbar sends no more than the queue holds.
                ctx.purge(now, desc, output, DropReason::Pool, tracer);
            }
        });
        fed
    }

    /// Tells the crossbar what has been taken off the queues.
    pub(super) fn report(&mut self) {
        let mut open = QueueSet::EMPTY;
        for queue in self.open.iter() {
            let Some(inner) = self.queues[queue.output()][queue.pri()].as_mut() else { continue };
            let waiting = inner.queue.len();
            let taken = inner.fed.wrapping_sub(u32::try_from(waiting).unwrap_or(u32::MAX));
            self.taken.at(inner.at).store(taken, Ordering::Release); // pairs with `Feed::len`
            if waiting > 0 {
                open.insert(queue);
            }
        }
        self.open = open;
    }
}
