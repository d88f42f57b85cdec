//! Pipelines on ports in memory: decisions, the fast path, groups of links, TLPs, recorded runs, workers.
//!
//! A module for each subject, on the ports of `memory`.
//!
//! Units: as each module says.
//! Source: ARCHITECTURE.md "Layout of the tree".

#[path = "../memory/mod.rs"]
mod memory;

mod decisions;
mod fast_path;
mod lag;
mod loops;
mod record;
mod shared_pool;
mod tlp_stage;
mod workers;
