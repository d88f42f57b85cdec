//! Parts that the conformance and end-to-end tests share.
//!
//! `fuzz` holds bodies of fuzz targets, `crowd` many switches of a fabric. `netns` makes networks
//! of kernel hosts, `talk` makes these exchange traffic, `stations` loads interfaces with frames.
//! `fabric_up` brings whole fabrics up as processes, `fabric_here` in one process, and
//! `fabric_tables` lists all tables.
//!
//! Source: ARCHITECTURE.md "Layout of the tree".
#![expect(clippy::indexing_slicing, reason = "a test fails that way")]

pub mod crowd;
pub mod fabric_here;
pub mod fabric_tables;
pub mod fabric_up;
pub mod fuzz;
pub mod netns;
#[expect(unsafe_code, reason = "packet sockets: bursts in one system call")]
pub mod stations;
pub mod talk;
