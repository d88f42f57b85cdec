//! Wire views, emitters and the classification of a frame's first 64 bytes.
//!
//! Bytes in, a view (`&[u8; LEN]` cut off once) or a [`Head`] out; plain `...Repr` structs `emit`.
//! Every getter returns host order; lengths never include the FCS.
//!
//! Source: docs/spec/wire-formats.md, which cites the standard of each layout.
//!
//! No std, no alloc, no unsafe, no dependency, no panic on any input: the XDP program compiles the
//! same code. [`parse_head`] is the one function that the dataplane calls per frame; the views are
//! for callers that want single fields (decoder, generator, endpoints, tests).
#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![no_std]
#![forbid(unsafe_code)]

pub mod addr;
pub mod afh;
pub mod bth;
mod bytes;
pub mod cc_update;
pub mod cci;
pub mod checksum;
pub mod classify;
pub mod crc;
pub mod cxl_cache;
pub mod cxl_mem;
pub mod ecn;
pub mod encap;
pub mod error;
pub mod ethernet;
pub mod fabric;
pub mod flow;
pub mod flow_hash;
pub mod frame;
pub mod head;
pub mod ipv4;
pub mod ipv6;
pub mod loop_probe;
pub mod mac_control;
pub mod mctp;
mod message_ops;
pub mod mpls;
pub mod partial;
pub mod rh;
pub mod source;
pub mod tlp;
pub mod types;
pub mod udp;
pub mod vlan;

#[cfg(test)]
mod testing;

pub use addr::{AddrKey, AddrSpace, MacAddr};
pub use afh::{Gen2Order, KeyWords, TrafficClass};
pub use classify::{HEAD_LEN, ParseConfig, parse_head};
pub use ecn::{ecn_of, mark_ce};
pub use error::{Field, Layer, ParseError};
pub use flow::{FlowKey, choice_words, flow_key};
pub use flow_hash::flow_hash;
pub use head::Head;
pub use mac_control::{Pause, Pfc};
pub use rh::RhOpcode;
pub use source::PriSource;
pub use types::{AfhMode, Dscp, Ecn, Exp, Format, IpVersion, Pcp, Tci, Vid, ether_type, ip_proto};
