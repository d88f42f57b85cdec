//! The switching core of weft and the ports it runs on.
//!
//! Shape: frames and `now` in, decisions out. Blocks ([`time`], [`types`], [`sync`], [`ring`], [`pool`],
//! [`desc`], [`batch`]) are used by one-file switch functions ([`classify`] … [`pfc`]), which
//! [`pipeline`] puts in order; [`worker`] is the thread that drives it live, `weft-sim` in virtual time.
//! Units: time in picoseconds ([`time::Instant`]), sizes in bytes or cells, rates in bit/s, as named.
//! Source: design pages pipeline.md §1 to §13; each module names its standard and clause.

pub mod batch;
pub mod config;
pub mod fdb;
pub mod groups;
pub mod pfc;
pub mod port;
pub mod storm;
pub mod sync;
pub mod time;
pub mod types;
pub mod vlan;
