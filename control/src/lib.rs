//! Control of a weft switch: the thread beside the workers, which answers requests and watches over them.
//!
//! [`live`] starts ports and workers from a resolved configuration (`weft-config`); [`mgmt`], [`metrics`] and [`sai`] serve
//! clients, whose requests all come to [`requests`]; [`supervise`] ends the process in time. The command line is in `weft`.
//!
//! Source: docs/spec/pipeline.md §10 to §13; ARCHITECTURE.md "Control".
#![forbid(unsafe_code)]

pub mod conform;
pub mod decode;
pub mod events;
pub mod exit;
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
pub mod rerun;
pub mod sai;
pub mod sai_client;
pub mod serve;
pub mod supervise;
pub mod tls;
