//! Fabrics of switches in memory: discovery, routes, memory and faults, without interfaces.
//!
//! A module for each subject.
//!
//! Units: as each module says.
//! Source: ARCHITECTURE.md "Layout of the tree".

mod back_invalidate;
mod cache_ids;
mod cdat;
mod cxl_mem;
mod discovery;
mod faults;
mod figures;
mod gfam;
mod gim;
mod hdm;
mod intx;
mod links;
mod ln;
mod media;
mod mem_trace;
mod mld;
mod notices;
mod p2p;
mod p2p_ld;
mod resets;
mod routes;
mod service;
mod tlp_link;
mod traffic;
mod virtual_time;
