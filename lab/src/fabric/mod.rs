//! Brings up a whole fabric: switches, hosts, devices, GFDs and their manager.
//!
//! A topology file is read into a [`topology::Topology`], and [`layout::Layout`] works out the parts of each component.
//!
//! Source: docs/spec/cxl-fabric.md; CXL 3.1 sections 7.7.1, 7.7.5, 7.7.6.

pub mod desired_state;
pub mod dir_lock;
pub mod direct_access;
pub mod endpoint_spec;
pub mod fast_tables;
mod granted;
pub mod host_bringup;
mod host_tree;
pub mod in_process;
pub mod layout;
pub mod ldst_tables;
pub mod leftovers;
pub mod managed;
pub mod proc_stat;
pub mod processes;
pub mod static_init;
pub mod topology;
pub mod topology_file;
