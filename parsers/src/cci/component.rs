//! Commands of every PBR component: 0700h to 0702h.
//!
//! [`PbrIdentity`] 38, [`ClaimOwnership`] 21, [`Owners`] 36 bytes; CDAT read in parts.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §4.4; CXL 3.1 section 7.7.13.1 and following.

use super::layout::{codes, message, record};
use super::wire::Uuid;
use crate::fabric::Pid;

record! {
    /// Response of Identify PBR Component (0700h).
    struct PbrIdentity: 38 {
        /// Own PID, or `FFF`.
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
    /// What Claim Ownership is to do.
    enum ClaimOp: Operation, 0xFF {
        /// Registers the primary fabric manager and assigns a PID.
        0 => RegisterPrimary,
        /// Registers the secondary one.
        1 => RegisterSecondary,
        /// Gives the component another PID.
        2 => UpdatePid,
        /// Makes the secondary fabric manager the primary one.
        3 => PromoteSecondary,
    }
}

record! {
    /// Request of Claim Ownership (0701h).
    struct ClaimOwnership: 21 {
        /// What to do.
        0 => op: ClaimOp,
        /// The fabric manager's PID.
        1 => fm: Pid,
        /// The fabric manager's UUID.
        3 => fm_uuid: Uuid,
        /// What the component is to be called.
        19 => pid: Pid,
    }
}

record! {
    /// Response of Claim Ownership (0701h).
    struct Owners: 36 {
        /// PID of the primary fabric manager, or `FFF`.
        0 => primary: Pid,
        /// Its UUID.
        2 => primary_uuid: Uuid,
        /// PID of the secondary fabric manager, or `FFF`.
        18 => secondary: Pid,
        /// Its UUID.
        20 => secondary_uuid: Uuid,
    }
}

record! {
    /// Request of Read CDAT (0702h).
    struct ReadCdat: 20 {
        /// Of which component.
        0 => target: Pid,
        /// First byte.
        4 => start: u64,
        /// Bytes.
        12 => len: u64,
    }
}

message! {
    /// Response of Read CDAT (0702h).
    struct Cdat: 16 {
        /// Bytes of the whole CDAT.
        0 => total: u64,
    }
    /// The part that was asked for.
    8 as u64 => data: [u8]
}
