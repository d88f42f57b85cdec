//! PBR switches as components: what a manager commands, what a host finds through them, and what is refused.
//!
//! One binary; a module for each subject, [`rig`] and [`agent_rig`] for what they share.
//!
//! Units: bytes, nanoseconds.
//! Source: each module's own.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod agent_fabric;
mod agent_rig;
mod check_cci;
mod guarded;
mod notices;
mod protection;
#[path = "../../../cxl/tests/endpoints/rig/mod.rs"]
mod rig;
