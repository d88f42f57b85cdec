//! The binary `weft` and its configuration, command by command.
//!
//! One binary; a module for each subject, [`process`] and [`frames`] for what they share.
//!
//! Source: each module's own.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod captures;
mod check_cci;
mod cli;
mod config_mutations;
mod fabric;
mod fabric_memory;
mod fm;
mod frames;
#[path = "../common/process.rs"]
mod process;
mod record;
mod replay;
mod results;
mod scenario_keys;
mod settings;
mod sim;
mod sim_memory;
mod sweep;
mod trace;
