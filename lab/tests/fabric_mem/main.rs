//! Transfers of fabric memory in whole fabrics of one process, by the commands of hosts and devices.
//!
//! `hosts`: memory of hosts and G-FAM, and all that is refused; `devices`: all pairs of ends.
//!
//! Units: bytes.
//! Source: docs/fabric-memory.md; docs/spec/cxl-fabric.md "Fabric memory transfers".

mod devices;
mod hosts;
mod rig;
