//! Virtual output queues: `voq[input][output][pri]`, up to 64 x 64 x 8, lock-free and FIFO.
//!
//! Shape: linked lists through an array of nodes (next 4 octets, descriptor 12), one stub each. An
//! [`VoqInput`] (the worker that owns the input) pushes, the one [`VoqDrain`] (the crossbar's owner)
//! pops. Occupancy is one word per (output, pri): bit i is input i.
//! Units: frames.
//! Source: Michael and Scott's queue reduced to one producer and one consumer; pipeline.md §5.
#![expect(clippy::cast_possible_truncation, reason = "the number of nodes is checked once")]

use core::mem::MaybeUninit;

use crate::desc::Desc;
use crate::free::{FreeCache, FreeList};
use crate::queues::{PerQueue, QueueId, QueueSet};
use crate::sync::{Arc, AtomicU32, AtomicU64, Ordering, UnsafeCell, fence};
use crate::types::{PORTS_MAX, PRIS_MAX, PortId, PortSet, Pri};

const NIL: u32 = u32::MAX;

#[repr(C, align(16))]
struct Node {
    next: AtomicU32,
    desc: UnsafeCell<MaybeUninit<Desc>>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node>() == 16, "four to a cache line");

struct Shared {
    nodes: Box<[Node]>,
    /// `occupied[output * PRIS_MAX + pri]`: inputs with a non-empty queue, perhaps a few too many.
    occupied: Box<[AtomicU64]>,
    /// Outputs that may have a bit in `occupied`; all that ever had one unless `solo`.
    outputs: AtomicU64,
    /// Whether producers and consumer share one thread.
    solo: bool,
}

// SAFETY: a node's descriptor is written by the producer before its Release store of the previous
// node's `next` and read by the consumer after its Acquire load of it; nodes come and go through a
// `FreeList`, which orders reuse.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    #[inline]
    fn word(&self, output: PortId, pri: Pri) -> &AtomicU64 {
        let index = output.index() * PRIS_MAX + pri.index();
        self.occupied.get(index).expect("an output of this switch")
    }
}

/// The producing end of all queues of one input.
pub struct VoqInput {
    shared: Arc<Shared>,
    input: PortId,
    tails: PerQueue<u32>,
    touched: QueueSet,
}

/// The consuming end of all queues.
pub struct VoqDrain {
    shared: Arc<Shared>,
    /// `heads[(output * PRIS_MAX + pri) * ports + input]`
    heads: Box<[u32]>,
    ports: usize,
}

/// All queues of a switch with `ports` ports and `pris` priorities, with room for `frames` frames.
///
/// `solo` says that one thread holds both ends, so that occupancy needs no locked instruction. The
/// list is that of the free nodes: each worker makes a [`FreeCache`] of it for push and pop; on one
/// thread both use the same, so that nodes stay warm.
///
/// # Panics
/// When there are more than 64 ports, 8 priorities or 2^31 frames.
#[must_use]
pub fn voqs(
    ports: usize,
    pris: usize,
    frames: usize,
    solo: bool,
) -> (Vec<VoqInput>, VoqDrain, std::sync::Arc<FreeList>) {
    assert!(ports <= PORTS_MAX && pris <= PRIS_MAX && frames < 1 << 31, "a switch's size");
    let stubs = ports * ports * pris;
    let total = stubs + frames;
    let nodes = (0..total)
        .map(|_| Node { next: AtomicU32::new(NIL), desc: UnsafeCell::new(MaybeUninit::uninit()) });
    let shared = Arc::new(Shared {
        nodes: nodes.collect(),
        occupied: (0..ports * PRIS_MAX).map(|_| AtomicU64::new(0)).collect(),
        outputs: AtomicU64::new(0),
        solo,
    });
    let stub = |input: usize, output: usize, pri: usize| {
        if input < ports && output < ports && pri < pris {
            ((input * ports + output) * pris + pri) as u32
        } else {
            NIL
        }
    };
    let inputs = (0..ports).filter_map(PortId::new).map(|input| VoqInput {
        shared: shared.clone(),
        input,
        tails: PerQueue::from_fn(|queue| {
            stub(input.index(), queue.output().index(), queue.pri().index())
        }),
        touched: QueueSet::EMPTY,
    });
    let inputs = inputs.collect();
    let heads = (0..ports * PRIS_MAX * ports)
        .map(|at| stub(at % ports, at / ports / PRIS_MAX, at / ports % PRIS_MAX))
        .collect();
    (
        inputs,
        VoqDrain { shared, heads, ports },
        std::sync::Arc::new(FreeList::new(stubs as u32, frames)),
    )
}

impl VoqInput {
    /// Appends `desc` to the queue of (`output`, `pri`); the crossbar may see it at once, and surely
    /// does after [`Self::publish`].
    ///
    /// # Errors
    /// The descriptor itself when there is no free node, or no such queue.
    #[inline]
    pub fn push(
        &mut self,
        nodes: &mut FreeCache,
        output: PortId,
        pri: Pri,
        desc: Desc,
    ) -> Result<(), Desc> {
        let queue = QueueId::new(output, pri);
        if self.tails[queue] == NIL {
            return Err(desc);
        }
        let Some(index) = nodes.take() else { return Err(desc) };
        append(&self.shared.nodes, &mut self.tails[queue], index, desc);
        self.touched.insert(queue);
        Ok(())
    }

    /// Appends frames, each to the queue beside it, in the free nodes `nodes`, of which there are as
    /// many; `touched` names these queues. As after [`Self::push`], [`Self::publish`] follows.
    ///
    /// # Panics
    /// When a queue does not exist.
    #[inline]
    pub fn push_all(
        &mut self,
        nodes: &[u32],
        touched: &QueueSet,
        frames: impl Iterator<Item = (Desc, QueueId)>,
    ) {
        let all = &*self.shared.nodes;
        for (&index, (desc, queue)) in nodes.iter().zip(frames) {
            append(all, &mut self.tails[queue], index, desc);
        }
        self.touched.unite(touched);
    }

    /// Whether this input has frames for (`output`, `pri`), as far as published and not yet settled.
    #[must_use]
    pub fn is_waiting(&self, output: PortId, pri: Pri) -> bool {
        PortSet::from_bits(self.shared.word(output, pri).load(Ordering::Relaxed))
            .contains(self.input)
    }

    /// Makes all that was pushed visible in the occupancy words, once per burst; `fed` hears of each
    /// (output, priority) that got frames.
    #[inline]
    pub fn publish(&mut self, mut fed: impl FnMut(PortId, Pri)) {
        if self.touched.is_empty() {
            return;
        }
        let bit = PortSet::only(self.input).bits();
        if !self.shared.solo {
            // Our `next` stores come before our loads of the words; pairs with the fence in
            // `Queue::settle`: one of both sides sees what the other did.
            fence(Ordering::SeqCst);
        }
        let mut touched = PortSet::EMPTY;
        for queue in core::mem::take(&mut self.touched).iter() {
            let (output, pri) = (queue.output(), queue.pri());
            fed(output, pri);
            touched.insert(output);
            let word = self.shared.word(output, pri);
            let now = word.load(Ordering::Relaxed);
            if now & bit == 0 {
                if self.shared.solo {
                    word.store(now | bit, Ordering::Relaxed);
                } else {
                    word.fetch_or(bit, Ordering::Release); // pairs with `VoqDrain::waiting`
                }
            }
        }
        let touched = touched.bits();
        let outputs = self.shared.outputs.load(Ordering::Relaxed);
        if self.shared.solo {
            self.shared.outputs.store(outputs | touched, Ordering::Relaxed);
        } else if outputs & touched != touched {
            self.shared.outputs.fetch_or(touched, Ordering::Release); // pairs with `outputs`
        }
    }
}

impl VoqDrain {
    /// Inputs that have frames for (`output`, `pri`); a few may turn out empty.
    #[inline]
    #[must_use]
    pub fn waiting(&self, output: PortId, pri: Pri) -> PortSet {
        PortSet::from_bits(self.shared.word(output, pri).load(Ordering::Acquire)) // with `publish`
    }

    /// Outputs for which [`Self::waiting`] may say something: all others have no frame.
    #[inline]
    #[must_use]
    pub fn outputs(&self) -> PortSet {
        PortSet::from_bits(self.shared.outputs.load(Ordering::Acquire)) // with `publish`
    }

    /// Notes that nothing waits for `output` at any priority.
    #[inline]
    pub fn retire(&self, output: PortId) {
        if self.shared.solo {
            let bit = PortSet::only(output).bits();
            let outputs = self.shared.outputs.load(Ordering::Relaxed);
            self.shared.outputs.store(outputs & !bit, Ordering::Relaxed);
        }
    }

    /// Where the head of a queue is kept.
    #[inline]
    const fn at(&self, input: PortId, output: PortId, pri: Pri) -> Option<usize> {
        let queue = output.index() * PRIS_MAX + pri.index();
        if input.index() < self.ports { Some(queue * self.ports + input.index()) } else { None }
    }

    /// One queue, to take frames off; `None` when there is no such queue.
    #[inline]
    pub fn queue(&mut self, input: PortId, output: PortId, pri: Pri) -> Option<Queue<'_>> {
        let at = self.at(input, output, pri)?;
        let head = self.heads.get_mut(at).filter(|head| **head != NIL)?;
        let shared = &*self.shared;
        let (nodes, at) = (&*shared.nodes, *head);
        let word = shared.word(output, pri);
        Some(Queue { nodes, word, input, solo: shared.solo, head, at, stub: node(nodes, at) })
    }
}

/// The consuming end of one queue, for a run of frames. [`Queue::settle`] follows.
pub struct Queue<'a> {
    nodes: &'a [Node],
    word: &'a AtomicU64,
    input: PortId,
    solo: bool,
    /// Where the index of the stub is kept, and the stub.
    head: &'a mut u32,
    at: u32,
    stub: &'a Node,
}

impl Queue<'_> {
    /// Takes the oldest frame; its node goes to `nodes`.
    #[inline]
    pub fn pop(&mut self, nodes: &mut FreeCache) -> Option<Desc> {
        let mut freed = NIL;
        let desc = self.pop_to(&mut freed)?;
        nodes.give(freed);
        Some(desc)
    }

    /// Takes the oldest frame; its node is noted in `freed`, to be given back.
    #[inline]
    pub fn pop_to(&mut self, freed: &mut u32) -> Option<Desc> {
        let next = self.stub.next.load(Ordering::Acquire); // pairs with `push`
        if next == NIL {
            return None;
        }
        let stub = node(self.nodes, next);
        let desc = stub.desc.with(|slot| {
            // SAFETY: the producer let go of the node with its Release store of the link.
            let slot = unsafe { &*slot };
            // SAFETY: it wrote the descriptor before, and `settle` moves the head past the node, so
            // it is read out once.
            unsafe { slot.assume_init_read() }
        });
        *freed = core::mem::replace(&mut self.at, next); // `next` is the stub from now on
        self.stub = stub;
        Some(desc)
    }

    /// Whether the queue has no frame.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stub.next.load(Ordering::Acquire) == NIL // pairs with `push`
    }

    /// Clears the queue's occupancy if it is empty, and says whether it did; call after taking from
    /// it. No frame that is pushed meanwhile is forgotten.
    #[inline]
    #[expect(clippy::must_use_candidate, reason = "most callers only end a run")]
    pub fn settle(&self) -> bool {
        if !self.is_empty() {
            return false;
        }
        let bit = PortSet::only(self.input).bits();
        if self.solo {
            self.word.store(self.word.load(Ordering::Relaxed) & !bit, Ordering::Relaxed);
            return true;
        }
        self.word.fetch_and(!bit, Ordering::AcqRel);
        fence(Ordering::SeqCst); // pairs with the fence in `VoqInput::publish`
        let empty = self.is_empty();
        if !empty {
            self.word.fetch_or(bit, Ordering::Release);
        }
        empty
    }
}

impl Drop for Queue<'_> {
    #[inline]
    fn drop(&mut self) {
        *self.head = self.at;
    }
}

/// Puts `desc` into the node `index`, which is free, and that behind the node `tail`.
#[inline]
fn append(nodes: &[Node], tail: &mut u32, index: u32, desc: Desc) {
    let own = node(nodes, index);
    own.next.store(NIL, Ordering::Relaxed); // published by the Release below
    own.desc.with_mut(|slot| {
        // SAFETY: the node came off the free list, so no list holds it and nobody reads it.
        let slot = unsafe { &mut *slot };
        slot.write(desc);
    });
    node(nodes, *tail).next.store(index, Ordering::Release); // pairs with `Queue::pop`
    *tail = index;
}

#[inline]
fn node(nodes: &[Node], index: u32) -> &Node {
    nodes.get(index as usize).expect("free lists hold indices of this array")
}

#[cfg(test)]
mod tests;
