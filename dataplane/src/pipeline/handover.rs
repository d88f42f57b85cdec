//! Hand-over between workers: frames on their way to the crossbar's owner, and from there to outputs that
//! other workers own.
//!
//! Shape: for each worker but the owner a ring up and a ring down, of [`Queued`]; what a queue at the far
//! end has let go is told back as a count. So the queues themselves, VOQs and egress queues, are each one
//! worker's own.
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame".

use weft_base::counters::PerThreadCounters;
use weft_base::ring::{Rx, Tx, ring};
use weft_base::sync::{Arc, Ordering};

use super::{Context, Lane, ToCrossbar};
use crate::batch::BURST;
use crate::desc::{Desc, PackedDesc};
use crate::port::Port;
use crate::queues::{QueueId, QueueSet};
use crate::stats::DropReason;
use crate::time::Instant;
use crate::trace::Tracer;
use crate::types::{PerPort, PerPri, PortId, PortSet, Pri};

/// A frame and the queue that it is meant for.
pub(super) struct Queued {
    pub desc: Desc,
    pub queue: QueueId,
}

const _: () = assert!(size_of::<Queued>() == 16, "four to a cache line");

/// A worker's way to the crossbar's owner.
pub(super) struct Uplink {
    frames: Tx<Queued>,
    /// Frames and copies that a burst can come to.
    most: usize,
}

/// Both ends of a way up, of a switch with so many ports.
pub(super) fn uplink(ports: usize) -> (Uplink, Rx<Queued>) {
    let most = BURST * ports;
    let (frames, far) = ring(2 * most);
    (Uplink { frames, most }, far)
}

impl Uplink {
    /// Whether a burst fits, whatever becomes of its frames.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.frames.room(self.most) >= self.most
    }

    /// Sends a frame up.
    ///
    /// # Errors
    /// The frame, when there is no room.
    #[inline]
    pub fn push(&mut self, desc: Desc, queue: QueueId) -> Result<(), Desc> {
        self.frames.push(Queued { desc, queue }).map_err(|back| back.desc)
    }

    /// Sends a burst's frames up, for which there is room, each to the queue beside it.
    #[inline]
    pub fn push_all(&mut self, frames: impl ExactSizeIterator<Item = (Desc, QueueId)>) {
        self.frames.push_all(frames.map(|(desc, queue)| Queued { desc, queue }));
    }
}

/// The crossbar's way to the egress queues of another worker.
pub(super) struct Far {
    frames: Tx<Queued>,
    taken: Arc<PerThreadCounters>,
}

/// Where the crossbar puts frames for one egress queue.
#[derive(Default)]
pub(super) enum Feed {
    /// There is no such queue.
    #[default]
    Nowhere,
    /// Into it.
    Here(Tx<Desc>),
    /// To the worker that has it.
    There {
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
    pub fn push(&mut self, ways: &mut [Far], id: QueueId, frames: &[PackedDesc]) {
        let count = frames.len();
        let frames = frames.iter().copied().map(PackedDesc::unpack);
        match self {
            Self::Here(queue) => queue.push_all(frames),
            Self::There { far, sent, .. } => {
                let far = ways.get_mut(*far).expect("a way for each worker");
                far.frames.push_all(frames.map(|desc| Queued { desc, queue: id }));
                *sent = sent.wrapping_add(u32::try_from(count).unwrap_or(0)); // a line's at most
            }
            Self::Nowhere => panic!("a queue that its owner has looked up"),
        }
    }

    /// Frames in the queue and on the way to it; never fewer than there are.
    ///
    /// # Panics
    /// Never: a way is made with the feeds that name it.
    #[inline]
    pub fn len(&mut self, ways: &[Far]) -> usize {
        match self {
            Self::Nowhere => usize::MAX,
            Self::Here(queue) => queue.len(),
            Self::There { far, at, sent } => {
                let far = ways.get(*far).expect("a way for each worker");
                let taken = far.taken.at(*at).load(Ordering::Acquire); // pairs with `report`
                sent.wrapping_sub(taken) as usize
            }
        }
    }
}

/// A worker's end of the way from the crossbar, and the inner ends of its egress queues.
pub(super) struct Downlink {
    frames: Rx<Queued>,
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
) -> (Far, Downlink) {
    let mut at = 0;
    let mut inner = PerPort::<PerPri<Option<Inner>>>::default();
    for &output in outputs {
        for pri in Pri::ALL {
            let Some(queue) = queues[output][pri].take() else { continue };
            inner[output][pri] = Some(Inner { queue, at, fed: 0 });
            feeds[output][pri] = Feed::There { far, at, sent: 0 };
            at += 1;
        }
    }
    let (tx, frames) = ring((at * capacity).max(1)); // all that may be under way
    let taken = Arc::new(PerThreadCounters::new(at));
    (
        Far { frames: tx, taken: taken.clone() },
        Downlink { frames, queues: inner, open: QueueSet::EMPTY, taken },
    )
}

impl Downlink {
    /// Puts what has come into the egress queues; returns their outputs.
    fn absorb<T: Tracer>(&mut self, ctx: &mut Context, now: Instant, tracer: &mut T) -> PortSet {
        let mut fed = PortSet::EMPTY;
        let Self { frames, queues, open, .. } = self;
        let most = frames.len();
        frames.pop_each(most, |Queued { desc, queue }| {
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
    fn report(&mut self) {
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

impl Lane {
    /// Whether a burst may be received: it always may where the crossbar is.
    #[inline]
    pub(super) fn has_room(&mut self) -> bool {
        match &mut self.ctx.to_crossbar {
            ToCrossbar::Local(_) => true,
            ToCrossbar::Remote(uplink) => uplink.has_room(),
        }
    }

    /// Takes over what the crossbar's owner has sent; returns the outputs.
    pub(super) fn absorb<T: Tracer>(&mut self, now: Instant, tracer: &mut T) -> PortSet {
        let Self { ctx, downlink, .. } = self;
        downlink.as_mut().map_or(PortSet::EMPTY, |downlink| downlink.absorb(ctx, now, tracer))
    }

    /// Tells the crossbar's owner what was taken off egress queues.
    #[inline]
    pub(super) fn report(&mut self) {
        if let Some(downlink) = &mut self.downlink {
            downlink.report();
        }
    }

    /// Sends what the crossbar's owner has sent meanwhile, between two bursts.
    pub(super) fn pass_down<T: Tracer>(
        &mut self,
        now: Instant,
        ports: &mut [Box<dyn Port>],
        tracer: &mut T,
    ) -> usize {
        let fed = self.absorb(now, tracer);
        if fed.is_empty() {
            return 0;
        }
        let mut sent = 0;
        for (index, port) in ports.iter_mut().enumerate() {
            if self.outputs.get(index).is_some_and(|output| fed.contains(output.port)) {
                sent += self.send(now, index, port.as_mut(), tracer);
            }
        }
        self.report();
        sent
    }
}
