//! Ports of the kernel: AF_XDP, packet sockets and taps between namespaces.
//!
//! A module for each kind, on the networks of `kernel`.
//!
//! Units: as each module says.
//! Source: ARCHITECTURE.md "Layout of the tree".
#![expect(clippy::unwrap_used, reason = "a test fails that way")]

#[path = "../headers/mod.rs"]
mod headers;
#[path = "../kernel/mod.rs"]
mod kernel;
#[path = "../kernel/links.rs"]
#[expect(unsafe_code, reason = "bpf(2)")]
mod links;

mod af_xdp;
mod ports;
mod tunnels;
