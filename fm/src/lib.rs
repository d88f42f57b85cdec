//! Fabric manager: discovers, numbers, routes, binds and monitors a PBR fabric.
//!
//! | folder | holds |
//! |---|---|
//! | [`model`] | what a fabric consists of: [`model::inventory`] and, of its switches and links, [`model::graph`] |
//! | [`plan`] | routing tables and their proof; asks no component |
//! | [`cci`] | commands to components: transports, and what of them is read and written together |
//! | [`components`] | bindings, memory, rights, logical devices: what components are told beside routing tables |
//! | [`discover`] | what is there, and what of it has changed since |
//! | [`state`] | what is wanted and remembered, and names for it |
//! | [`show`] | a fabric for people |
//! | [`service`] | the manager, which does all of this and answers clients; several of them, in [`service::ha`] |
//!
//! Each uses those above it, and none below.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 section 7.7.12.
//!
//! Routes of a ring of four switches with a host at each, and a proof that no messages on them wait for each other in a
//! cycle:
//!
//! ```
//! use weft_fm::model::graph::generate;
//! use weft_fm::plan::proof::{Proof, Traffic};
//! use weft_fm::plan::routes::{Options, route};
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

pub mod cci;
pub mod components;
pub mod discover;
pub mod model;
pub mod plan;
pub mod service;
pub mod show;
pub mod state;
#[cfg(test)]
mod tests;
