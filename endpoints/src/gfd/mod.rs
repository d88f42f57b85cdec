//! G-FAM device: decoders, protection, dynamic capacity and the memory behind them.
//! Shape: [`Gfd`] is plain state; requests and commands in, answers and [`events`] out.
//! Units: octets; time as a parameter.
//! Source: fabric.md, "GFD (endpoint)"; CXL 3.1 section 7.7.2.

pub mod capacity;
pub mod code;
pub mod decode;
pub mod dmp;
pub mod events;
pub mod gam;
pub mod memory;
pub mod protect;
pub mod qos;
