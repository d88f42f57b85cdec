//! Parked: frames whose last bits are not in yet (cut-through), at most one an input.
//!
//! Units: [`Instant`].
//! Source: docs/spec/model.md §2.

use crate::desc::Desc;
use crate::pipeline::burst::{CACHE_MISS, FrameMeta, Verdict};
use crate::queues::QueueId;
use crate::time::Instant;
use crate::types::{PortId, PortSet, QueueKey};

/// A frame of one input that is decided about, but whose last bit is not in yet.
pub(super) struct Parked {
    pub desc: Desc,
    /// Its queue, if its flow is known; else `CACHE_MISS`, and `meta` has the verdict.
    pub route: u16,
    pub meta: FrameMeta,
    /// When its last bit is in and parsed.
    pub until: Instant,
    /// Whether it may still be cut through: only in the step in which it was parked.
    pub is_new: bool,
}

impl Parked {
    /// The VOQ of `input` that the frame goes to, if it is a single one.
    pub fn voq(&self, input: PortId) -> Option<QueueKey> {
        let output = match self.meta.verdict {
            _ if self.route != CACHE_MISS => QueueId::from_low_bits(self.route).output(),
            Verdict::Forward(outputs) => outputs.sole()?,
            Verdict::Drop(_) | Verdict::Consume | Verdict::Hold => return None,
        };
        Some(QueueKey { input, output, pri: self.desc.pri() })
    }
}

/// The parked frames of a switch, by input.
pub(super) struct ParkedFrames {
    frames: Vec<Option<Box<Parked>>>,
    /// Inputs that have one: most steps of most switches find none.
    inputs: PortSet,
}

impl ParkedFrames {
    pub fn new(ports: usize) -> Self {
        Self { frames: (0..ports).map(|_| None).collect(), inputs: PortSet::EMPTY }
    }

    /// Inputs that have one.
    #[inline]
    pub const fn inputs(&self) -> PortSet {
        self.inputs
    }

    /// Parks a frame of `input`, which has none.
    pub fn put(&mut self, input: PortId, parked: Box<Parked>) {
        if let Some(slot) = self.frames.get_mut(input.index()) {
            *slot = Some(parked);
            self.inputs.insert(input);
        }
    }

    /// Takes the frame of `input` out, if it has one for which `is_wanted` is true.
    pub fn take_if(
        &mut self,
        input: PortId,
        is_wanted: impl FnOnce(&Parked) -> bool,
    ) -> Option<Box<Parked>> {
        let slot = self.frames.get_mut(input.index())?;
        let parked = slot.take_if(|parked| is_wanted(parked))?;
        self.inputs.remove(input);
        Some(parked)
    }

    /// When the last bit of the frame of `input` is in.
    #[inline]
    pub fn until(&self, input: PortId) -> Option<Instant> {
        if !self.inputs.contains(input) {
            return None;
        }
        self.frames.get(input.index())?.as_ref().map(|parked| parked.until)
    }
}
