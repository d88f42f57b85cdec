//! Parked: a frame that is not whole yet: cut-through, in virtual time.
//!
//! [`Parked`], of an input.
//!
//! Units: [`Instant`].
//! Source: docs/spec/model.md §2.

use super::burst::{CACHE_MISS, FrameMeta, Verdict};
use crate::desc::Desc;
use crate::queues::QueueId;
use crate::time::Instant;
use crate::types::{PortId, QueueKey};

/// A frame of which it is known where it goes, and which is not whole yet.
pub(super) struct Parked {
    pub desc: Desc,
    /// Its queue, if its flow is known; else `meta` says more.
    pub route: u16,
    pub meta: FrameMeta,
    /// When it is whole, and through the parser.
    pub until: Instant,
    /// Whether it may still go on before that.
    pub is_new: bool,
}

impl Parked {
    /// The one VOQ of `input`, by which it came in, that the frame goes to.
    pub fn voq(&self, input: PortId) -> Option<QueueKey> {
        let output = match self.meta.verdict {
            _ if self.route != CACHE_MISS => QueueId::from_low_bits(self.route).output(),
            Verdict::Forward(outputs) => outputs.sole()?,
            Verdict::Drop(_) | Verdict::Consume | Verdict::Hold => return None,
        };
        Some(QueueKey { input, output, pri: self.desc.pri() })
    }
}
