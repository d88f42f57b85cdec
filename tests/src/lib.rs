//! What the conformance and end-to-end tests share.
//!
//! `fuzz` holds bodies of fuzz targets, `crowd` many switches
//! of a fabric, `netns` makes networks of kernel hosts, `fabric_up` whole fabrics of processes in them and
//! `fabric_here` of one process, `talk` has them talk, `stations` loads interfaces with frames.
//!
//! Units: as each module says.
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
