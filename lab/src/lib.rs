//! CXL endpoints on ports, and whole fabrics of them: in this process, or a process for each part.
//!
//! Shape: [`endpoint`] plays a host, a device, a G-FAM device or an HBR switch on ports and answers commands;
//! [`fabric`] reads a topology file and brings up its switches, endpoints and fabric manager, joined to each other;
//! [`netdev`] opens network interfaces by name, [`clock`] reads the machine's clock.
//! Units: bytes, milliseconds, picoseconds (`dataplane::time`).
//! Source: docs/endpoint.md; docs/fabric.md; docs/spec/cxl-fabric.md.
#![forbid(unsafe_code)]

pub mod clock;
pub mod endpoint;
pub mod fabric;
pub mod netdev;
