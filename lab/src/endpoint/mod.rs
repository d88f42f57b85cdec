//! The CXL endpoints as stations: hosts, devices, G-FAM devices and HBR switches, on ports of any kind.
//!
//! Shape: [`spec`] → a [`Unit`] → a [`Station`] on its ports; [`Command`]s in, [`Answer`]s out, in the process or by
//! lines of JSON over a socket.
//! Units: bytes, milliseconds.
//! Source: docs/endpoint.md; docs/spec/cxl-fabric.md; docs/spec/wire-formats.md §3.7a.

pub mod command;
pub mod device;
pub mod gfd;
pub mod hbr;
pub mod host;
pub mod number;
pub mod spec;
pub mod station;
pub mod transfer;
mod tree;
pub mod unit;

pub use command::{Answer, Command};
pub use station::{Handle, Station, StationError};
pub use unit::Unit;

#[cfg(test)]
mod tests;
