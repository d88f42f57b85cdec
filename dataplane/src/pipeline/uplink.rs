//! Uplink: frames on their way from a worker to the one that owns the crossbar.
//!
//! For each worker but the owner a ring of [`QueuedDesc`].
//!
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame".

use weft_base::ring::{Rx, Tx, ring};

use crate::batch::BURST;
use crate::desc::Desc;
use crate::queues::QueueId;

/// A frame and the queue that it is meant for.
pub(super) struct QueuedDesc {
    pub desc: Desc,
    pub queue: QueueId,
}

const _: () = assert!(size_of::<QueuedDesc>() == 16, "four to a cache line");

/// A worker's way to the crossbar's owner.
pub(super) struct Uplink {
    frames: Tx<QueuedDesc>,
    /// Frames and copies that a burst can come to.
    most: usize,
}

/// Both ends of a way up, of a switch with so many ports.
pub(super) fn uplink(ports: usize) -> (Uplink, Rx<QueuedDesc>) {
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
        self.frames.push(QueuedDesc { desc, queue }).map_err(|back| back.desc)
    }

    /// Sends a burst's frames up, for which there is room, each to the queue beside it.
    #[inline]
    pub fn push_all(&mut self, frames: impl ExactSizeIterator<Item = (Desc, QueueId)>) {
        self.frames.push_all(frames.map(|(desc, queue)| QueuedDesc { desc, queue }));
    }
}
