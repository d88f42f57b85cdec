//! PBR switches as components: commands of a manager, enumeration and access by a host, and refusals.
//!
//! One binary with a module for each subject. They share [`rig`] and [`agent_rig`].
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod agent_fabric;
mod agent_rig;
mod check_cci;
mod guarded;
mod notices;
mod protection;
#[path = "../../../cxl/tests/endpoints/rig/mod.rs"]
mod rig;
