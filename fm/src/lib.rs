//! Fabric manager: discovers, numbers, routes and binds a PBR fabric.
//!
//! Shape: commands of CCI to components; plans as plain values.
//! Units: none.
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; CXL 3.1 section 7.7.12.
#![forbid(unsafe_code)]

pub mod bind;
pub mod cci;
pub mod cdat;
pub mod change;
pub mod discover;
pub mod edge;
pub mod gim;
pub mod graph;
pub mod inventory;
pub mod memory;
pub mod plan;
pub mod proof;
pub mod routes;
pub mod rules;
pub mod service;
pub mod store;
#[cfg(test)]
mod tests;
pub mod text;
pub mod topology;
pub mod trace;
