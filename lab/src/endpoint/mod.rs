//! CXL endpoints on ports of any kind: hosts, devices, G-FAM devices and HBR switches.
//!
//! A specification ([`spec`]) makes an [`Endpoint`], which a [`Runner`] drives on its ports. The runner takes
//! [`Command`]s and gives [`Answer`]s, in the same process or as lines of JSON over a socket.
//!
//! Source: docs/endpoint.md; docs/spec/cxl-fabric.md; docs/spec/wire-formats.md §3.7a.

pub mod api;
pub mod command;
pub mod device;
pub mod event_log;
pub mod fabric_mem;
pub mod gfd;
pub mod hbr;
pub mod host;
mod kinds;
pub mod ln;
pub mod ln_report;
pub mod number;
pub mod own_memory;
pub mod runner;
pub mod slices;
pub mod spec;
pub mod time_limit;
pub mod transfer;
mod tree;

pub use api::Endpoint;
pub use command::{Answer, Command};
pub use device::spec::DeviceSpec;
pub use gfd::spec::GfdSpec;
pub use hbr::HbrSpec;
pub use host::spec::HostSpec;
pub use runner::{Runner, RunnerError, RunnerHandle};

kinds::endpoint_kinds! {
    /// Act as a host: a root port, memory, and the software that uses both
    Host(HostSpec),
    /// Act as a device with BARs and DMA
    Device(DeviceSpec),
    /// Act as a G-FAM device
    Gfd(GfdSpec),
    /// Act as an HBR switch, whose first port is the upstream port
    Hbr(HbrSpec),
}

#[cfg(test)]
mod tests;
