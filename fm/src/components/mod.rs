//! What components are told beside their routing tables, and how it is undone when a part of it fails.
//!
//! Bindings of virtual bridges, access at edges, G-FAM and its decoders, memory of hosts (GIM) and devices (P2P), logical
//! devices and their capacity, media partitions, resets. Each file knows one kind of component or grant, sends its commands
//! by [`crate::cci`], and knows nothing of the manager that calls it.

pub mod aer;
pub mod bind;
pub mod cdat;
pub mod edge;
pub mod gim;
pub mod grants;
pub mod hbr;
pub mod ld_capacity;
pub mod lds;
pub mod media;
pub mod memory;
pub mod p2p;
pub mod port_reset;
pub mod rights;
pub mod window;
