//! Configuration of one end of a link, the frames that it receives, and its counts.
//!
//! Units: bytes without FCS, frames.
//! Source: docs/spec/wire-formats.md §3.7a.

use weft_dataplane::config::TlpConfig;
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::cxl_cache::CacheMessage;
use weft_parsers::cxl_mem::MemMessage;
use weft_parsers::tlp::{LinkReset, Mode, Pth, Tlp};

use crate::vdm::link_reset::Ordered;

/// Kinds of TLPs that a link carries: HBR of one mode, PBR, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// TLPs without PTH: between a switch and a host or device.
    Hbr(Mode),
    /// TLPs with PTH: between a switch and a GFD, or another switch.
    Pbr,
    /// Both kinds, as each frame says: between a switch and its agent.
    Both,
}

/// Configuration of one end of a link.
#[derive(Clone, Debug)]
pub struct EndConfig {
    /// MAC address of this end.
    pub mac: MacAddr,
    /// Kind of TLPs on the link.
    pub carries: Carries,
    /// Priorities and OUI, as in the switch at the other end.
    pub tlp: TlpConfig,
    /// Priority of each PFC class, as in the switch at the other end.
    pub classes: PriMap,
    /// `Max_Payload_Size` in bytes, for received TLPs.
    pub payload_max: usize,
}

/// Content of a received frame.
#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// A TLP, with its PTH if the link has them.
    Tlp(Option<Pth>, Tlp<'a>),
    /// A CXL.mem message, with its PTH if the link has them.
    Mem(Option<Pth>, MemMessage<'a>),
    /// A CXL.cache message, on a link without PTH.
    Cache(CacheMessage<'a>),
    /// Link control (protocol 4), at an upper end.
    Control(LinkReset),
    /// The upper end of the link begins or ends a reset of this end; nothing else is received in between.
    Reset(Ordered),
}

/// A received frame with its destination and source address.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    pub to: MacAddr,
    pub from: MacAddr,
    pub content: Received<'a>,
}

/// Counts of frames and TLPs at one end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EndCounts {
    /// TLPs and messages received.
    pub rx: u64,
    /// Frames that hold no TLP, or one of a kind that the link does not carry.
    pub foreign: u64,
    /// Malformed TLPs, and those longer than `Max_Payload_Size`.
    pub malformed: u64,
    /// TLPs and messages accepted by the port.
    pub tx: u64,
    /// TLPs longer than a chunk of the pool, which were dropped.
    pub too_long: u64,
    /// PFC frames received.
    pub pfc_rx: u64,
    /// Resets by the upper end of the link.
    pub resets: u64,
    /// Frames received during such a reset, which were dropped.
    pub in_reset: u64,
}
