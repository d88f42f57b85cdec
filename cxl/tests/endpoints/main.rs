//! Endpoints on links of TLPs: hosts, devices, HBR switches and G-FAM devices, with and without switches between.
//!
//! One binary; a module for each subject, [`rig`] for what they share.
//!
//! Units: bytes, nanoseconds.
//! Source: each module's own.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails that way")]

mod cache_ids;
mod cdat;
mod cxl_cache;
mod fabric;
mod gfd_fabric;
mod hbr;
mod hdm;
mod links;
mod ln;
mod ln_hostile;
mod ln_link;
mod mailbox;
mod mld;
mod random;
mod rig;
