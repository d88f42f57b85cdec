//! The switching core of weft and the ports it runs on.
//!
//! Shape: frames and `now` in, decisions out. Blocks (time, types, pool, desc, batch) are
//! used by one-file switch functions (classify, fdb, vlan, lag, buffer, voq, islip, egress, ecn, pfc),
//! which `pipeline` puts in order; `worker` is the thread that drives it live, `weft-sim` drives it
//! in virtual time.
//! Units: time in picoseconds ([`time::Instant`]), sizes in bytes or cells, rates in bit/s, as named.
//! Source: docs/spec/pipeline.md §1 to §13; each module names its standard and clause.

pub mod batch;
pub mod bucket;
pub mod buffer;
pub mod classify;
pub mod config;
pub mod desc;
pub mod ecn;
pub mod egress;
pub mod fdb;
pub mod flows;
pub mod groups;
pub mod islip;
pub mod lag;
pub mod pbr;
pub mod pfc;
pub mod pipeline;
#[expect(unsafe_code, reason = "chunks of a mapping, reached through descriptors")]
pub mod pool;
pub mod port;
pub mod queues;
pub mod snapshot;
pub mod stats;
pub mod storm;
pub mod time;
pub mod trace;
pub mod types;
pub mod vlan;
pub mod voq;
#[expect(unsafe_code, reason = "ppoll")]
pub mod worker;
