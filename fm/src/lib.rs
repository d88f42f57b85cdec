//! Fabric manager: discovers, numbers, routes, binds and monitors a PBR fabric.
//!
//! [`inventory`] is the result of a discovery, [`graph::Graph`] its switches and links. [`routes`] makes routing
//! tables, and [`proof`] checks them. [`bind`] and [`memory`] give devices and memory to hosts. [`service`] does all of
//! this and answers clients.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 section 7.7.12.
//!
//! Routes of a ring of four switches with a host at each, and a proof that no messages on them wait for each other in a
//! cycle:
//!
//! ```
//! use weft_fm::graph::generate;
//! use weft_fm::proof::{Proof, Traffic};
//! use weft_fm::routes::{Options, route};
//!
//! let graph = generate::ring(4, 1)?;
//! let routed = route(&graph, &Options::default(), None);
//! let tables = routed.whole().expect("every PID reaches every other");
//! let proof = Proof::find(&graph, tables, &Traffic::new(5, 6, 4))?;
//! proof.check(&graph, tables)?;
//! assert!(proof.hops_max >= 2, "the far side of the ring is two links away");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod aer;
pub mod bind;
pub mod cci;
pub mod cdat;
pub mod change;
pub mod discover;
pub mod edge;
pub mod gim;
pub mod graph;
pub mod ha;
pub mod hbr;
pub mod inventory;
pub mod ld_capacity;
pub mod lds;
pub mod media;
pub mod memory;
pub mod overview;
pub mod p2p;
pub mod picture;
pub mod plan;
pub mod port_reset;
pub mod proof;
pub mod rights;
pub mod routes;
pub mod rules;
pub mod segment_tables;
pub mod service;
pub mod store;
#[cfg(test)]
mod tests;
pub mod text;
pub mod topology;
pub mod trace;
