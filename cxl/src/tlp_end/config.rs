//! What one end of a link is like, what comes in by it, and what it counts.
//!
//! [`EndConfig`] in; [`Frame`]s with what they hold; [`EndCounts`].
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

/// The kinds of TLP that a link carries: HBR of one mode, PBR, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carries {
    /// TLPs without PTH: between a switch and a host or device.
    Hbr(Mode),
    /// TLPs with PTH: between a switch and a GFD, or another switch.
    Pbr,
    /// Whatever stands in the frame: between a switch and its agent.
    Both,
}

/// What one end of a link is built from.
#[derive(Clone, Debug)]
pub struct EndConfig {
    /// Its address.
    pub mac: MacAddr,
    /// What the link carries.
    pub carries: Carries,
    /// Priorities and OUI, as in the switch at the other end.
    pub tlp: TlpConfig,
    /// Priority of each PFC class, as in the switch at the other end.
    pub classes: PriMap,
    /// `Max_Payload_Size`, bytes.
    pub payload_max: usize,
}

/// What a frame holds: a TLP, a CXL.mem message, or what its sender says of the link.
#[derive(Clone, Copy, Debug)]
pub enum Received<'a> {
    /// A TLP, with the PTH that it came with.
    Tlp(Option<Pth>, Tlp<'a>),
    /// A CXL.mem message, with the PTH that it came with.
    Mem(Option<Pth>, MemMessage<'a>),
    /// A CXL.cache message, on a link without PTH.
    Cache(CacheMessage<'a>),
    /// What the other end says of the link (protocol 4), at an end that does not obey it.
    Control(LinkReset),
    /// The upper end of the link resets what is here, or ends that; in between nothing else comes.
    Reset(Ordered),
}

/// A received frame with its addresses.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Destination.
    pub to: MacAddr,
    /// Source.
    pub from: MacAddr,
    /// What it carries.
    pub content: Received<'a>,
}

/// Counts of frames and TLPs at one end of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct EndCounts {
    /// TLPs and messages that came in.
    pub rx: u64,
    /// Frames that hold no TLP, or one of another kind than the link carries.
    pub foreign: u64,
    /// Malformed TLPs, and those longer than `Max_Payload_Size`.
    pub malformed: u64,
    /// TLPs and messages that the port took.
    pub tx: u64,
    /// TLPs that are longer than a chunk of the pool: dropped.
    pub too_long: u64,
    /// PFC frames.
    pub pfc_rx: u64,
    /// Resets by the upper end of the link.
    pub resets: u64,
    /// Frames that came while such a reset held: dropped.
    pub in_reset: u64,
}
