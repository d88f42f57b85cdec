//! Uplink: frames on their way from a worker to the one that owns the crossbar.
//!
//! Each worker but the owner has a ring of [`QueuedDesc`].
//!
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame".

use weft_base::ring::{Rx, Tx, ring};

use crate::batch::BURST;
use crate::desc::Desc;
use crate::queues::QueueId;

/// An admitted frame and the queue that it goes to.
pub(super) struct QueuedDesc {
    pub desc: Desc,
    pub queue: QueueId,
}

const _: () = assert!(size_of::<QueuedDesc>() == 16, "four to a cache line");

/// A worker's way to the crossbar's owner.
pub(super) struct Uplink {
    frames: Tx<QueuedDesc>,
    /// Frames that a burst can become: every frame may be copied to every port.
    most: usize,
}

/// Both ends of an uplink in a switch of `ports` ports.
pub(super) fn uplink(ports: usize) -> (Uplink, Rx<QueuedDesc>) {
    let most = BURST * ports;
    // Two bursts in the worst case: the worker receives one while the owner takes the other.
    let (frames, far) = ring(2 * most);
    (Uplink { frames, most }, far)
}

impl Uplink {
    /// Whether a whole burst fits, however often its frames are copied. Asked before frames are
    /// received, so that an admitted frame is never refused here.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.frames.room(self.most) >= self.most
    }

    /// Sends a frame up to the crossbar's owner.
    ///
    /// # Errors
    /// The frame, when there is no room.
    #[inline]
    pub fn push(&mut self, desc: Desc, queue: QueueId) -> Result<(), Desc> {
        self.frames.push(QueuedDesc { desc, queue }).map_err(|back| back.desc)
    }

    /// Sends a burst up, for which there is room, each frame with the queue beside it.
    #[inline]
    pub fn push_all(&mut self, frames: impl ExactSizeIterator<Item = (Desc, QueueId)>) {
        self.frames.push_all(frames.map(|(desc, queue)| QueuedDesc { desc, queue }));
    }
}
