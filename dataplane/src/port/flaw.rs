//! Damage of a frame that a cable or a capture shows before its contents are read.

use crate::stats::DropReason;

/// Damage of a frame on a cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// The frame is whole and right.
    #[default]
    None,
    /// Its FCS does not match.
    Fcs,
    /// The capture that it comes from has only its front.
    Truncated,
    /// The capture that it comes from reports under 64 bytes on the wire.
    Runt,
}

impl Flaw {
    /// Reason for which a port drops a frame with this flaw, before it looks at the contents.
    #[must_use]
    pub const fn reason(self) -> Option<DropReason> {
        match self {
            Self::None => None,
            Self::Fcs => Some(DropReason::Fcs),
            Self::Truncated => Some(DropReason::Truncated),
            Self::Runt => Some(DropReason::Runt),
        }
    }
}
