//! The command line of weft: the tree of commands, their code and their exit codes.
//!
//! The binary `weft` is a thin `main` over [`cli::Cli::run`]; the running switch is `weft-control`, its configuration
//! `weft-config`, pages and plots are `weft-views`.
#![forbid(unsafe_code)]

pub mod cli;
pub mod commands;
pub mod conform;
pub mod error;
pub mod interfaces;
pub mod settings;
