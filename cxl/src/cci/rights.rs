//! What a connection may become at most, by who is at the other end: observer, secondary or primary fabric manager.
//!
//! [`Right`] of a stream; a request in, what it is refused with out.
//!
//! Source: docs/spec/wire-formats.md §4.4: who may not claim is refused as Unsupported, an operation of another's as
//! Invalid Input.

use weft_parsers::cci::component::ClaimOp;
use weft_parsers::cci::{Opcode, Request, ReturnCode};

/// The most that a connection may become: observer, secondary or primary fabric manager.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// It looks at what everybody is told, and claims nothing: PIDs and UUIDs of fabric managers are not told to it.
    Observer,
    /// It may promote itself when it is the secondary fabric manager, and is the primary one from then on.
    Secondary,
    /// It may claim the component.
    #[default]
    Primary,
}

impl Right {
    /// Whether a request goes beyond it, where the component's primary fabric manager has the right `primary_right`.
    ///
    /// # Errors
    /// What it is refused with.
    pub fn allows(
        self,
        primary_right: Self,
        opcode: Opcode,
        payload: &[u8],
    ) -> Result<(), ReturnCode> {
        if opcode != Opcode::CLAIM_OWNERSHIP || self == Self::Primary {
            return Ok(());
        }
        if self == Self::Observer {
            return Err(ReturnCode::Unsupported);
        }
        match Request::parse(opcode, payload) {
            Ok(Request::ClaimOwnership(claim)) => match claim.op {
                ClaimOp::RegisterPrimary => Err(ReturnCode::InvalidInput),
                // Making itself known is the primary's, and that is another one unless it has been promoted.
                ClaimOp::UpdatePid if primary_right > self => Err(ReturnCode::InvalidInput),
                ClaimOp::UpdatePid | ClaimOp::RegisterSecondary | ClaimOp::PromoteSecondary => {
                    Ok(())
                }
            },
            _ => Ok(()), // it is refused for what it is
        }
    }
}
