//! Frames of any format from a description: [`FrameSpec`].
//!
//! All header fields as plain values, a length policy, and per frame a [`Stamp`]; bytes out.
//! The payload begins with the stamp (see [`crate::stamp`]) and is checked byte by byte.
//!
//! Units: bytes without FCS.
//! Source: docs/spec/wire-formats.md §1.1 to §1.5, §2.1 to §2.3.

use core::net::{Ipv4Addr, Ipv6Addr};

use weft_dataplane::pool::FRAME_LEN_MAX;
use weft_dataplane::types::Pri;
use weft_parsers::frame::MAX_PAYLOAD_LEN;
use weft_parsers::{
    AddrKey, Dscp, Ecn, Format, Gen2Order, KeyWords, MacAddr, Pause, Pcp, Pfc, RhOpcode, Tci,
    TrafficClass, Vid, bth, crc, ether_type, ethernet, ipv4, ipv6, mac_control, rh, udp, vlan,
};

use crate::classes::PriMap;
use crate::sizes::Sizes;
use crate::stamp::{self, Stamp};

mod emit;
mod read;
mod template;
mod usual;

pub use read::{Flaw, Received, receive, receive_front, receive_mark};
pub use template::{Own, Template};
pub use usual::Usual;

/// EtherType of plain Ethernet frames: the loop test of Ethernet version 2, which hosts ignore.
pub const ETHER_TYPE_TEST: u16 = 0x9000;

/// The kinds of test frame that a host can build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// IPv4, UDP and RH. With a UDP port that is not Standard's it is other Ethernet with DSCP.
    Standard,
    /// AFH_GEN1.
    Gen1,
    /// `AFH_GEN2_16b`.
    Gen2,
    /// AFH_Lite.
    Lite,
    /// Plain Ethernet: the EtherType, then payload.
    Ethernet,
    /// RoCEv2 over IPv6: IPv6, UDP and BTH.
    Roce6,
    /// Priority-based flow control.
    Pfc,
    /// 802.3x PAUSE.
    Pause,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Standard,
        Self::Gen1,
        Self::Gen2,
        Self::Lite,
        Self::Ethernet,
        Self::Roce6,
        Self::Pfc,
        Self::Pause,
    ];

    /// Name used on the command line and in messages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Gen1 => "gen1",
            Self::Gen2 => "gen2",
            Self::Lite => "lite",
            Self::Ethernet => "ethernet",
            Self::Roce6 => "roce6",
            Self::Pfc => "pfc",
            Self::Pause => "pause",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether it is MAC Control: of one length, without payload, never paused.
    #[must_use]
    pub const fn is_control(self) -> bool {
        matches!(self, Self::Pfc | Self::Pause)
    }
}

/// A sender or receiver of frames, with its address in each address space (MAC, IPv4, IPv6, GEN2 id).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Station {
    /// Ethernet address; GEN1 uses all of it as destination, its low 40 bits as source.
    pub mac: MacAddr,
    /// Id of GEN2 and Lite.
    pub id: u16,
    /// IPv4 address.
    pub ip4: Ipv4Addr,
    /// IPv6 address.
    pub ip6: Ipv6Addr,
}

impl Station {
    /// Station `number`: 02:00:00:00:hh:ll, 10.0.h.l, `fd00::hhll` and the number itself as id.
    #[must_use]
    pub const fn numbered(number: u16) -> Self {
        let [high, low] = number.to_be_bytes();
        Self {
            mac: MacAddr([2, 0, 0, 0, high, low]),
            id: number,
            ip4: Ipv4Addr::new(10, 0, high, low),
            ip6: Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, number),
        }
    }

    /// Everybody: broadcast, and group 7 of the 16-bit ids.
    pub const ALL: Self = Self {
        mac: MacAddr::BROADCAST,
        id: 0x8007,
        ip4: Ipv4Addr::BROADCAST,
        ip6: Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1),
    };
}

/// Payload bits in the header of GEN2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadBits {
    /// The same in every frame: the destination half's and the source half's 24 bits.
    Fixed(u32, u32),
    /// Other ones in every frame; the receiver checks them.
    Varied,
}

/// RC Link header, or of RoCEv2 the fields of BTH that are named alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RhSpec {
    /// Opcode.
    pub opcode: RhOpcode,
    /// A request that wants an ACK at once.
    pub fack: bool,
    /// Pad count, 0..=3.
    pub pad: u8,
    /// Timestamp; sets the bit that says that it counts.
    pub timestamp: Option<u16>,
    /// Partition key.
    pub p_key: u8,
    /// Of an ACK; a request has the length there and a CNP 0.
    pub syndrome: u8,
    /// Packet sequence number; `None` for the low bits of the stream's.
    pub psn: Option<u16>,
    /// Destination queue pair.
    pub dest_qp: u16,
}

/// A frame as a description; every field has a default that makes a well-formed frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameSpec {
    /// What kind of frame.
    pub kind: Kind,
    /// Receiver.
    pub dst: Station,
    /// Sender; also the source of MAC Control frames.
    pub src: Station,
    /// Tag; not for Lite and MAC Control, which are refused with one.
    pub vlan: Option<Tci>,
    /// EtherType of the tag.
    pub tpid: u16,
    /// EtherType of GEN1 and GEN2 (default `MAC_TYPE1`) or of plain Ethernet ([`ETHER_TYPE_TEST`]).
    pub ether_type: u16,
    /// DSCP of IP.
    pub dscp: Dscp,
    /// ECN codepoint of IP.
    pub ecn: Ecn,
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// IPv4 identification.
    pub ip_id: u16,
    /// UDP source port.
    pub sport: u16,
    /// UDP destination port.
    pub dport: u16,
    /// Traffic Class of AFH.
    pub tc: TrafficClass,
    /// `Key_words` of GEN2 and Lite.
    pub key_words: KeyWords,
    /// Byte order of GEN2 and Lite.
    pub gen2_order: Gen2Order,
    /// Payload bits in the header of GEN2.
    pub payload_bits: PayloadBits,
    /// XPU id of Lite.
    pub xpu_id: u16,
    /// RC Link header.
    pub rh: RhSpec,
    /// Append an ICRC; not for Lite, plain Ethernet and MAC Control.
    pub icrc: bool,
    /// Begin the payload with a stamp; without one it is zeros, and may be empty.
    pub stamped: bool,
    /// Frame lengths.
    pub sizes: Sizes,
    /// Allow payloads above the format's largest, up to 9,728 bytes of frame.
    pub oversize: bool,
    /// What a PFC frame says.
    pub pfc: Pfc,
    /// What a PAUSE frame says.
    pub pause: Pause,
}

/// Why a [`FrameSpec`] describes no frame that can be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame length that the format cannot have.
    #[error("{kind} frame of {had} bytes: expected {min} to {max} (without FCS)")]
    Len {
        /// Kind of frame.
        kind: &'static str,
        /// Bytes asked for.
        had: usize,
        /// Fewest bytes.
        min: usize,
        /// Most bytes.
        max: usize,
    },
    /// A length policy without a length.
    #[error("{kind} frame sizes: expected a list that is not empty, or a range from low to high")]
    Sizes {
        /// Kind of frame.
        kind: &'static str,
    },
    /// A part that the format does not have.
    #[error("{kind} frame: cannot have {part}")]
    Part {
        /// Kind of frame.
        kind: &'static str,
        /// What it cannot have.
        part: &'static str,
    },
    /// No header field of the frame leads to the priority.
    #[error("{kind} frame: no field leads to priority {pri}; expected {hint}")]
    Pri {
        /// Kind of frame.
        kind: &'static str,
        /// Priority asked for.
        pri: u8,
        /// What would help.
        hint: &'static str,
    },
}

impl FrameSpec {
    /// A frame of `kind` from `src` to `dst` with defaults for all else: TYPE1 request, ECT(0),
    /// 256 bytes (60 of MAC Control).
    #[must_use]
    pub const fn new(kind: Kind, src: Station, dst: Station) -> Self {
        Self {
            kind,
            dst,
            src,
            vlan: None,
            tpid: ether_type::CTAG,
            ether_type: match kind {
                Kind::Ethernet => ETHER_TYPE_TEST,
                _ => ether_type::MAC_TYPE1,
            },
            dscp: Dscp::from_tos(0),
            ecn: Ecn::Ect0,
            ttl: 64,
            ip_id: 1,
            sport: 0xC000,
            dport: udp::PORT_ROCE,
            tc: TrafficClass::new(0, TrafficClass::FLOW_TYPE1_REQ),
            key_words: KeyWords::UNICAST,
            gen2_order: Gen2Order::Slap,
            payload_bits: PayloadBits::Varied,
            xpu_id: src.id,
            rh: RhSpec {
                opcode: RhOpcode::Send,
                fack: false,
                pad: 0,
                timestamp: None,
                p_key: 0,
                syndrome: rh::syndrome::ACK,
                psn: None,
                dest_qp: 0,
            },
            icrc: false,
            stamped: !kind.is_control(),
            sizes: Sizes::Fixed(if kind.is_control() { mac_control::FRAME_LEN } else { 256 }),
            oversize: false,
            pfc: Pfc { enable: 0, quanta: [0; 8] },
            pause: Pause { quanta: 0 },
        }
    }

    /// The same with a tag.
    #[must_use]
    pub fn with_vlan(self, pcp: Pcp, vid: Vid) -> Self {
        Self { vlan: Some(Tci::new(pcp, false, vid)), ..self }
    }

    /// The same with other lengths.
    #[must_use]
    pub fn with_sizes(self, sizes: Sizes) -> Self {
        Self { sizes, ..self }
    }

    /// The same with the header fields that lead to `pri`: the PCP if there is a tag, else DSCP or
    /// Traffic Class.
    ///
    /// # Errors
    /// [`FrameError::Pri`] when the frame has no field that leads there.
    pub fn with_pri(mut self, pri: Pri, map: &PriMap) -> Result<Self, FrameError> {
        let error = |hint| FrameError::Pri { kind: self.kind.name(), pri: pri.get(), hint };
        if let Some(tci) = self.vlan {
            let pcp = PriMap::first(&map.pcp, pri).ok_or(error("a PCP that is mapped to it"))?;
            self.vlan = Some(Tci::new(Pcp::from_low_bits(pcp), tci.dei(), tci.vid()));
            return Ok(self);
        }
        match self.kind {
            Kind::Standard | Kind::Roce6 => {
                let dscp = PriMap::first(&map.dscp, pri).ok_or(error("a tag"))?;
                self.dscp = Dscp::from_tos(dscp << 2);
            }
            Kind::Gen1 | Kind::Gen2 => {
                let index = PriMap::first(&map.tc, pri).ok_or(error("a tag"))?;
                self.tc = TrafficClass(index << 2);
            }
            Kind::Lite => {
                let index = PriMap::first(&map.tc, pri).ok_or(error("another priority"))?;
                self.tc = TrafficClass(index << 2);
            }
            Kind::Ethernet if pri != map.default_pri => return Err(error("a tag")),
            Kind::Ethernet | Kind::Pfc | Kind::Pause => {}
        }
        Ok(self)
    }

    /// Bytes in front of the payload.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        let tag = if self.vlan.is_some() { vlan::TAG_LEN } else { 0 };
        match self.kind {
            Kind::Standard => ethernet::LEN + tag + ipv4::LEN + udp::LEN + rh::LEN,
            Kind::Gen1 | Kind::Gen2 => ethernet::LEN + tag + rh::LEN,
            Kind::Lite => weft_parsers::afh::LEN,
            Kind::Ethernet => ethernet::LEN + tag,
            Kind::Roce6 => ethernet::LEN + tag + ipv6::LEN + udp::LEN + bth::LEN,
            Kind::Pfc | Kind::Pause => mac_control::FRAME_LEN,
        }
    }

    /// Bytes behind the payload.
    #[must_use]
    pub const fn trailer_len(&self) -> usize {
        if self.icrc { crc::LEN } else { 0 }
    }

    /// Whether a header carries the payload's length, so that the short stamp can be read.
    const fn tells_len(&self) -> bool {
        matches!(self.kind, Kind::Standard | Kind::Roce6)
    }

    /// Fewest bytes of a frame: headers, the stamp's shortest form, ICRC.
    #[must_use]
    pub const fn len_min(&self) -> usize {
        let stamp = match (self.stamped && !self.kind.is_control(), self.tells_len()) {
            (false, _) => 0,
            (true, true) => stamp::SHORT_LEN,
            (true, false) => stamp::LEN,
        };
        self.header_len() + stamp + self.trailer_len()
    }

    /// Most bytes of a frame: the format's largest payload, or 9,728 in all.
    #[must_use]
    pub const fn len_max(&self) -> usize {
        match self.kind {
            Kind::Pfc | Kind::Pause => mac_control::FRAME_LEN,
            Kind::Ethernet => FRAME_LEN_MAX,
            _ if self.oversize => FRAME_LEN_MAX,
            Kind::Roce6 => self.header_len() + 4096 + self.trailer_len(),
            Kind::Standard | Kind::Gen1 | Kind::Gen2 | Kind::Lite => {
                self.header_len() + MAX_PAYLOAD_LEN + self.trailer_len()
            }
        }
    }

    /// Length of frame `seq` of a sequence with `seed`.
    #[must_use]
    pub fn len_at(&self, seq: u64, seed: u64) -> usize {
        self.sizes.len_at(seq, seed, self.len_min(), self.len_max())
    }

    /// Checks that the format allows what the description asks for.
    ///
    /// # Errors
    /// What cannot be, and what was expected.
    pub fn check(&self) -> Result<(), FrameError> {
        let kind = self.kind.name();
        let bare = matches!(self.kind, Kind::Lite) || self.kind.is_control();
        if bare && self.vlan.is_some() {
            return Err(FrameError::Part { kind, part: "a tag" });
        }
        if (bare || self.kind == Kind::Ethernet) && self.icrc {
            return Err(FrameError::Part { kind, part: "an ICRC" });
        }
        let bounds = self.sizes.bounds(self.len_min(), self.len_max());
        let (low, high) = bounds.ok_or(FrameError::Sizes { kind })?;
        self.check_len(low)?;
        self.check_len(high)
    }

    fn check_len(&self, had: usize) -> Result<(), FrameError> {
        let (min, max) = (self.len_min(), self.len_max());
        if (min..=max).contains(&had) {
            Ok(())
        } else {
            Err(FrameError::Len { kind: self.kind.name(), had, min, max })
        }
    }

    /// Format that the switch sees, with default ports and Ethernet types.
    #[must_use]
    pub const fn format(&self) -> Format {
        match self.kind {
            Kind::Standard => Format::Standard,
            Kind::Gen1 => Format::AfhGen1,
            Kind::Gen2 => Format::AfhGen2,
            Kind::Lite => Format::AfhLite,
            Kind::Ethernet | Kind::Roce6 => Format::Other,
            Kind::Pfc | Kind::Pause => Format::MacControl,
        }
    }

    /// The sender as the switch learns it: its key and VLAN; `None` of MAC Control, which nobody
    /// learns from.
    #[must_use]
    pub const fn source_key(&self) -> Option<(AddrKey, u16)> {
        let vid = match self.vlan {
            Some(tci) => tci.vid().get(),
            None => 0,
        };
        match Self::key_of(self.kind, &self.src) {
            Some(key) => Some((key, vid)),
            None => None,
        }
    }

    /// The key by which the sender of frames of `kind` is learnt; `None` of MAC Control.
    #[inline]
    #[must_use]
    pub const fn key_of(kind: Kind, src: &Station) -> Option<AddrKey> {
        match kind {
            Kind::Standard | Kind::Ethernet | Kind::Roce6 => Some(AddrKey::ethernet(src.mac)),
            Kind::Gen1 => Some(AddrKey::gen1(src.mac.to_bits())),
            Kind::Gen2 | Kind::Lite => Some(AddrKey::id16(src.id)),
            Kind::Pfc | Kind::Pause => None,
        }
    }

    /// A frame that makes the sender known to the switch: to everybody, as short as can be.
    #[must_use]
    pub fn announcement(&self) -> Self {
        let mut spec = Self { dst: Station::ALL, stamped: true, ecn: Ecn::NotEct, ..self.clone() };
        if matches!(self.kind, Kind::Gen2 | Kind::Lite) {
            spec.key_words = KeyWords(self.key_words.0 | KeyWords::MULTICAST.0);
        }
        let whole = spec.header_len() + stamp::LEN + spec.trailer_len();
        spec.sizes = Sizes::Fixed(whole.max(ethernet::MIN_FRAME_LEN));
        spec
    }

    /// Builds the frame that fills `out` exactly.
    ///
    /// # Errors
    /// The length or a part is not what the format can have; `out` is as it was.
    pub fn emit(&self, stamp: &Stamp, out: &mut [u8]) -> Result<(), FrameError> {
        self.emit_front(stamp, out.len(), out)
    }

    /// As [`Self::emit`], a frame of `len` bytes of which `out` has all, or the front, down to its mark at least: the payload
    /// behind that and the ICRC are not written then.
    ///
    /// # Errors
    /// As [`Self::emit`].
    pub fn emit_front(&self, stamp: &Stamp, len: usize, out: &mut [u8]) -> Result<(), FrameError> {
        self.check_len(len)?;
        emit::emit(self, stamp, len, out).ok_or(FrameError::Len {
            kind: self.kind.name(),
            had: len,
            min: self.len_min(),
            max: self.len_max(),
        })
    }

    /// Builds frame `seq` of a sequence with `seed` into a new vector: for files and tests.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn to_vec(&self, stamp: &Stamp, seed: u64) -> Result<Vec<u8>, FrameError> {
        self.check()?;
        let mut out = vec![0; self.len_at(stamp.seq, seed)];
        self.emit(stamp, &mut out)?;
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
