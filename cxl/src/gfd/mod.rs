//! G-FAM device: decoders, protection, dynamic capacity and the memory behind them.
//!
//! [`Gfd`] is plain state; requests and commands in, answers and [`events`] out; time is a parameter. A request passes
//! [`decode`] (HPA to DPA), [`protect`] (DPA to group, requester to groups) and [`memory`]; [`access`] joins the three.
//! [`capacity`] decides which memory belongs to which group, and alone writes the group tables. [`commands`] are those
//! of docs/spec/wire-formats.md §4.7, as methods of [`Gfd`] with plain structs. [`gam`] is the far end of a
//! notification: the ring in a host's memory, kept by the host's edge.
//!
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)"; CXL 3.1 section 7.7.2.

pub mod access;
pub mod capacity;
mod chunk;
pub mod code;
pub mod commands;
pub mod decode;
pub mod device;
pub mod dmp;
pub mod events;
pub mod extent_lists;
pub mod gam;
pub mod memory;
mod poison;
pub mod protect;
pub mod qos;
mod remains;

#[cfg(test)]
mod tests;

pub use access::{Enables, Refusal};
pub use code::ReturnCode;
pub use decode::Decoder;
pub use device::{Config, Gfd};
pub use memory::Memory;
pub use protect::GrpId;
