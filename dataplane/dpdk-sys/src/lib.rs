//! Bindings to the system's DPDK, and a shim for what its headers have as inline functions only.
//!
//! C's own names; empty without the feature `bindings`.
//!
//! Units: as DPDK's documentation says.
//! Source: DPDK 22.11 or later, through `libdpdk.pc`; `shim.h`.

#[cfg(feature = "bindings")]
#[allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unnecessary_transmutes,
    clippy::all,
    clippy::pedantic,
    reason = "generated"
)]
mod bindings {
    include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
}

#[cfg(feature = "bindings")]
pub use bindings::*;
