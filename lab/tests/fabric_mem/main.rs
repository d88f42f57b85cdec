//! Transfers of fabric memory in whole fabrics of one process, by the commands of hosts and devices.
//!
//! `hosts` tests memory of hosts and G-FAM, and all refusals; `devices` tests all pairs of ends.
//!
//! Source: docs/fabric-memory.md; docs/spec/cxl-fabric.md "Fabric memory transfers".

mod devices;
mod hosts;
mod rig;
