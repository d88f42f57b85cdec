//! Parked: in virtual time, a frame whose last bit is not in yet (cut-through).
//!
//! Units: [`Instant`].
//! Source: docs/spec/model.md §2.

use super::burst::{CACHE_MISS, FrameMeta, Verdict};
use crate::desc::Desc;
use crate::queues::QueueId;
use crate::time::Instant;
use crate::types::{PortId, QueueKey};

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
