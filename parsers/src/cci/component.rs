//! Commands of every PBR component: 0700h to 0702h.
//!
//! Read CDAT returns a window of the table, so that a long CDAT is read in parts.
//!
//! Source: docs/spec/wire-formats.md §4.4; CXL 3.1 section 7.7.13.1 and following.

use super::layout::{codes, message, record};
use super::wire::Uuid;
use crate::fabric::Pid;

record! {
    /// Response of Identify PBR Component (0700h).
    struct PbrIdentity: 38 {
        /// PID of this component; `FFF` before one is assigned.
        0 => pid: Pid,
        /// PID of the primary fabric manager, or `FFF`.
        2 => primary: Pid,
        /// UUID of the primary fabric manager.
        4 => primary_uuid: Uuid,
        /// PID of the secondary fabric manager, or `FFF`.
        20 => secondary: Pid,
        /// UUID of the secondary fabric manager.
        22 => secondary_uuid: Uuid,
    }
}

codes! {
    /// Operation of Claim Ownership. A component refuses `FFF` as a PID in each.
    enum ClaimOp: Operation, 0xFF {
        /// Registers the primary fabric manager and assigns a PID.
        0 => RegisterPrimary,
        /// Registers the secondary fabric manager; only the primary may ask.
        1 => RegisterSecondary,
        /// Gives the component another PID; only the primary may ask.
        2 => UpdatePid,
        /// Makes the secondary fabric manager the primary one, and leaves no secondary. Only the
        /// secondary may ask.
        3 => PromoteSecondary,
    }
}

record! {
    /// Request of Claim Ownership (0701h).
    struct ClaimOwnership: 21 {
        /// Operation; byte 0, all 8 bits.
        0 => op: ClaimOp,
        /// The fabric manager's PID.
        1 => fm: Pid,
        /// The fabric manager's UUID.
        3 => fm_uuid: Uuid,
        /// PID that the component gets, with [`ClaimOp::RegisterPrimary`] and
        /// [`ClaimOp::UpdatePid`].
        19 => pid: Pid,
    }
}

record! {
    /// Response of Claim Ownership (0701h).
    struct Owners: 36 {
        /// PID of the primary fabric manager, or `FFF`.
        0 => primary: Pid,
        /// UUID of the primary fabric manager; of no meaning where `primary` is `FFF`.
        2 => primary_uuid: Uuid,
        /// PID of the secondary fabric manager, or `FFF`.
        18 => secondary: Pid,
        /// UUID of the secondary fabric manager; of no meaning where `secondary` is `FFF`.
        20 => secondary_uuid: Uuid,
    }
}

record! {
    /// Request of Read CDAT (0702h).
    struct ReadCdat: 20 {
        /// PID of the component whose CDAT is read; `FFF`, from a host: the virtual switch of its
        /// GAE.
        0 => target: Pid,
        /// Offset of the first byte in the CDAT.
        4 => start: u64,
        /// Bytes to return at most.
        12 => len: u64,
    }
}

message! {
    /// Response of Read CDAT (0702h).
    struct Cdat: 16 {
        /// Bytes of the whole CDAT.
        0 => total: u64,
    }
    /// The bytes from the requested offset on, as many as there are and fit.
    8 as u64 => data: [u8]
}
