//! Limit of a connection's rights by the identity of its peer: observer, secondary or primary manager.
//!
//! Source: docs/spec/wire-formats.md §4.4: who may not claim is refused as Unsupported, an operation of another's as
//! Invalid Input.

use weft_parsers::cci::component::ClaimOp;
use weft_parsers::cci::{Opcode, Request, ReturnCode};

/// The most that a connection may become.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Uses the commands that need no rank, and claims nothing; PIDs and UUIDs of fabric managers are hidden from
    /// it.
    Observer,
    /// May promote itself if it is the secondary fabric manager, and is the primary from then on.
    Secondary,
    /// May claim the component.
    #[default]
    Primary,
}

impl Right {
    /// Checks whether the right covers a request, at a component whose primary fabric manager has `primary_right`.
    ///
    /// # Errors
    /// The return code of the refusal.
    pub fn allows(
        self,
        primary_right: Self,
        opcode: Opcode,
        payload: &[u8],
    ) -> Result<(), ReturnCode> {
        // Claim Ownership alone changes rights; all others depend on the rank that it gave.
        if opcode != Opcode::CLAIM_OWNERSHIP || self == Self::Primary {
            return Ok(());
        }
        if self == Self::Observer {
            return Err(ReturnCode::Unsupported);
        }
        match Request::parse(opcode, payload) {
            Ok(Request::ClaimOwnership(claim)) => match claim.op {
                ClaimOp::RegisterPrimary => Err(ReturnCode::InvalidInput),
                // Only the primary makes itself known, and that is another manager unless this one has been
                // promoted.
                ClaimOp::UpdatePid if primary_right > self => Err(ReturnCode::InvalidInput),
                ClaimOp::UpdatePid | ClaimOp::RegisterSecondary | ClaimOp::PromoteSecondary => {
                    Ok(())
                }
            },
            _ => Ok(()), // malformed: `serve` refuses it with the right code
        }
    }
}
