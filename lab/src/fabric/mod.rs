//! A whole fabric brought up: switches, hosts, devices, GFDs and their manager.
//!
//! Shape: a topology file -> [`topology::Topology`] -> [`layout::Layout`], what each component is made of.
//! Units: none.
//! Source: docs/spec/cxl-fabric.md; CXL 3.1 sections 7.7.1, 7.7.5, 7.7.6.

pub mod embedded;
pub mod fixed;
pub mod layout;
pub mod left;
pub mod processes;
pub mod settle;
pub mod software;
pub mod topology;
pub mod want;
pub mod world;
