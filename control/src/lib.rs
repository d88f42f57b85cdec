//! Control of a weft switch: command line, configuration, management socket, metrics and reports.
//!
//! Text (TOML, flags, JSON lines) in, plain settings and reports out; the binary `weft` is a
//! thin `main` over [`commands`].
//!
//! Units: as each parameter and field names them.
//! Source: docs/spec/pipeline.md §10 to §13; ARCHITECTURE.md "Control".
#![forbid(unsafe_code)]

pub mod cli;
pub mod commands;
pub mod config;
pub mod conform;
pub mod decode;
pub mod error;
pub mod events;
pub mod express;
pub mod http;
pub mod live;
pub mod log;
pub mod metrics;
pub mod mgmt;
pub mod page;
pub mod paths;
pub mod record;
pub mod replay;
pub mod report;
pub mod requests;
pub mod results;
pub mod sai;
pub mod scenario;
pub mod serve;
pub mod supervise;
pub mod tls;
pub mod views;
