//! The fabric manager against a fabric in memory.
//!
//! [`fake`] answers CCI as docs/spec/wire-formats.md §4 reads; one file a subject.

mod bind;
mod change;
mod discovery;
mod endpoint;
mod fake;
mod fake_edge;
mod fake_etcd;
mod fake_gfd;
mod gim;
mod ha;
mod ha_socket;
pub mod memory;
mod overview;
mod p2p;
mod plan;
mod regain;
mod replan;
mod service;
mod show;
mod socket;
mod socket_page;
mod store;
mod trace;
mod unfinished;
