//! Running switches and the programs in the kernel, between namespaces: what does not measure the machine.
//!
//! A module for each subject; its tests run beside each other and beside other binaries.
//!
//! Units: as each module says.
//! Source: ARCHITECTURE.md "Layout of the tree".

mod auto;
mod away;
mod cache_ids;
mod calls;
mod endpoint;
mod fabric;
mod fabric_faults;
mod fabric_mem;
mod fabric_up;
mod gfam;
mod lab;
mod lag;
mod ln;
mod loops;
mod mtu;
mod p2p;
mod rclink;
mod record;
mod recovery;
mod resets;
mod several_managers;
mod switch;
mod tcp;
mod tunnels;
mod xdp;
mod xdp_fabric;
mod xdp_program;
