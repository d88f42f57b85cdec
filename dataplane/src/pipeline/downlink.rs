//! Downlink: frames on their way from the crossbar to outputs that other workers own.
//!
//! Each worker but the crossbar's owner has a ring of [`QueuedDesc`]. Departures from the egress
//! queues at its far end are reported back as counters, so that each queue is read and written by
//! one worker.
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

/// The way on which the crossbar sends frames to one egress queue.
#[derive(Default)]
pub(super) enum Feed {
    /// There is no such queue.
    #[default]
    Absent,
    /// The queue's own ring: the crossbar's owner has the output, too.
    Local(Tx<Desc>),
    /// Over the downlink of the worker that has the output.
    Remote {
        /// Index of the downlink.
        far: usize,
        /// Index of the queue's counter of departures there.
        at: usize,
        /// Frames sent so far, wrapping.
        sent: u32,
    },
}

impl Feed {
    /// Sends frames, for which there is room, to the queue.
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
    /// Never: a downlink is made with the feeds that name it.
    #[inline]
    pub fn len(&mut self, ways: &[DownlinkTx]) -> usize {
        match self {
            Self::Absent => usize::MAX,
            Self::Local(queue) => queue.len(),
            Self::Remote { far, at, sent } => {
                let far = ways.get(*far).expect("a way for each worker");
                // Pairs with the Release store in `report`: frames that are counted as taken have
                // left the ring before, so that `push_all` finds room in it.
                let taken = far.taken.at(*at).load(Ordering::Acquire);
                sent.wrapping_sub(taken) as usize
            }
        }
    }
}

/// A worker's end of the way from the crossbar, with the producing ends of its egress queues.
pub(super) struct Downlink {
    frames: Rx<QueuedDesc>,
    queues: PerPort<PerPri<Option<Inner>>>,
    /// Queues whose frames have not all been reported as departed.
    open: QueueSet,
    taken: Arc<PerThreadCounters>,
}

struct Inner {
    queue: Tx<Desc>,
    at: usize,
    fed: u32,
}

/// Both ends of the downlink to the egress queues of `outputs`, whose producing ends are `queues`.
/// `feeds` of these queues become `Remote` with index `far`.
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
    // Room for the capacity of all its queues: the crossbar sends no more than that, so its `push_all`
    // never fails.
    let (tx, frames) = ring((at * capacity).max(1));
    let taken = Arc::new(PerThreadCounters::new(at));
    (
        DownlinkTx { frames: tx, taken: taken.clone() },
        Downlink { frames, queues: inner, open: QueueSet::EMPTY, taken },
    )
}

impl Downlink {
    /// Puts frames that came down into their egress queues; returns their outputs.
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
                // Cannot happen, as the crossbar sends no more than the queue holds, but a frame must
                // not be lost uncounted.
                ctx.purge(now, desc, output, DropReason::Pool, tracer);
            }
        });
        fed
    }

    /// Whether the crossbar has sent frames since the last [`Self::absorb`].
    pub(super) fn has_arrivals(&mut self) -> bool {
        !self.frames.is_empty()
    }

    /// Reports departures from the queues to the crossbar.
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
