//! Builds and reads test frames of all formats.
//!
//! A [`FrameSpec`] holds all header fields as plain values and a length policy; with a [`Stamp`] for each frame it
//! gives bytes. The payload begins with the stamp (see [`crate::stamp`]), so that a receiver can check every byte.
//! Lengths are without FCS.
//!
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
    /// IPv4, UDP and RH. With a UDP port that is not Standard's, switches take it for plain Ethernet with a DSCP.
    Standard,
    /// AFH_GEN1: addresses of 48 and 40 bits, EtherType, RH.
    Gen1,
    /// `AFH_GEN2_16b`: 16-bit ids with payload bits between, EtherType, RH.
    Gen2,
    /// AFH_Lite: 16-bit ids, neither EtherType nor RH.
    Lite,
    /// Plain Ethernet: the EtherType, then payload.
    Ethernet,
    /// RoCEv2 over IPv6: IPv6, UDP and BTH.
    Roce6,
    /// Priority-based flow control (IEEE 802.1Q).
    Pfc,
    /// PAUSE of all classes (IEEE 802.3, Annex 31B).
    Pause,
}

impl Kind {
    /// Every kind, in the order of the variants.
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

    /// The kind with this name, if there is one.
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
    /// Id of GEN2 and Lite; bit 15 makes it a group.
    pub id: u16,
    /// Address in Standard frames.
    pub ip4: Ipv4Addr,
    /// Address in RoCEv2 frames over IPv6.
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

    /// All stations: broadcast, and group 7 of the 16-bit ids.
    pub const ALL: Self = Self {
        mac: MacAddr::BROADCAST,
        id: 0x8007,
        ip4: Ipv4Addr::BROADCAST,
        ip6: Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 1),
    };
}

/// Payload bits that the header of GEN2 carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadBits {
    /// The same in every frame: 24 bits of the destination half and 24 of the source half.
    Fixed(u32, u32),
    /// Different in every frame, made from its number; the receiver checks them.
    Varied,
}

/// Fields of the RC Link header; of RoCEv2 those that BTH has under the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RhSpec {
    /// Request, ACK or CNP.
    pub opcode: RhOpcode,
    /// FACK: the request wants an ACK at once.
    pub fack: bool,
    /// Pad count, 0..=3.
    pub pad: u8,
    /// Timestamp; `None` leaves the bit clear that declares it valid.
    pub timestamp: Option<u16>,
    /// Partition key, 8 bits here; not used in a BTH, which names the default partition.
    pub p_key: u8,
    /// AETH syndrome of an ACK. Requests carry their length in this field, CNPs 0.
    pub syndrome: u8,
    /// Packet sequence number; `None` for the low bits of the stream's own number.
    pub psn: Option<u16>,
    /// Destination queue pair, 13 bits.
    pub dest_qp: u16,
}

/// A frame as a description; every field has a default that makes a well-formed frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameSpec {
    /// Format, which decides which of the other fields are used.
    pub kind: Kind,
    /// Receiver, whose address in the frame's own space is used.
    pub dst: Station,
    /// Sender; also the source of MAC Control frames.
    pub src: Station,
    /// VLAN tag; Lite and MAC Control cannot have one.
    pub vlan: Option<Tci>,
    /// EtherType that announces the tag.
    pub tpid: u16,
    /// EtherType of GEN1 and GEN2 (default `MAC_TYPE1`) or of plain Ethernet ([`ETHER_TYPE_TEST`]).
    pub ether_type: u16,
    /// DSCP in the IP header.
    pub dscp: Dscp,
    /// ECN codepoint in the IP header.
    pub ecn: Ecn,
    /// Time to live of IPv4, hop limit of IPv6.
    pub ttl: u8,
    /// Identification field of IPv4.
    pub ip_id: u16,
    /// UDP source port, by which switches spread flows.
    pub sport: u16,
    /// UDP destination port; 4791 makes the frame Standard or RoCEv2.
    pub dport: u16,
    /// Traffic Class of the AFH formats.
    pub tc: TrafficClass,
    /// `Key_words` of GEN2 and Lite; its M bit marks a group.
    pub key_words: KeyWords,
    /// Byte order of GEN2 and Lite.
    pub gen2_order: Gen2Order,
    /// Payload bits in the header of GEN2.
    pub payload_bits: PayloadBits,
    /// XPU id of Lite, part of its source queue pair.
    pub xpu_id: u16,
    /// RC Link header, or BTH of RoCEv2.
    pub rh: RhSpec,
    /// Append an ICRC; not for Lite, plain Ethernet and MAC Control.
    pub icrc: bool,
    /// Begin the payload with a stamp; without one it is zeros, and may be empty.
    pub stamped: bool,
    /// Lengths of the stream's frames.
    pub sizes: Sizes,
    /// Allow payloads above the format's largest, up to 9,728 bytes of frame.
    pub oversize: bool,
    /// Content of a PFC frame: enabled classes and their quanta.
    pub pfc: Pfc,
    /// Content of a PAUSE frame: its quanta.
    pub pause: Pause,
}

/// Why a [`FrameSpec`] describes no frame that can be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A frame length that the format cannot have.
    #[error("{kind} frame of {had} bytes: expected {min} to {max} (without FCS)")]
    Len {
        /// Name of the frame's kind.
        kind: &'static str,
        /// Bytes asked for.
        had: usize,
        /// Fewest bytes that the format can have.
        min: usize,
        /// Most bytes that the format can have.
        max: usize,
    },
    /// The length policy gives no length at all.
    #[error("{kind} frame sizes: expected a list that is not empty, or a range from low to high")]
    Sizes {
        /// Name of the frame's kind.
        kind: &'static str,
    },
    /// The format cannot have a part that was asked for.
    #[error("{kind} frame: cannot have {part}")]
    Part {
        /// Name of the frame's kind.
        kind: &'static str,
        /// The part, with its article.
        part: &'static str,
    },
    /// No header field of the frame leads to the priority.
    #[error("{kind} frame: no field leads to priority {pri}; expected {hint}")]
    Pri {
        /// Name of the frame's kind.
        kind: &'static str,
        /// Priority asked for.
        pri: u8,
        /// A change that would help.
        hint: &'static str,
    },
}

impl FrameSpec {
    /// A frame of `kind` from `src` to `dst` with defaults for the other fields: TYPE1 request, ECT(0), 256 bytes (60
    /// of MAC Control).
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

    /// The same frame with a VLAN tag.
    #[must_use]
    pub fn with_vlan(self, pcp: Pcp, vid: Vid) -> Self {
        Self { vlan: Some(Tci::new(pcp, false, vid)), ..self }
    }

    /// The same frame with other lengths.
    #[must_use]
    pub fn with_sizes(self, sizes: Sizes) -> Self {
        Self { sizes, ..self }
    }

    /// The same frame with the header field that leads to `pri` under `map`: the PCP if there is a tag, else DSCP or
    /// Traffic Class.
    ///
    /// # Errors
    /// [`FrameError::Pri`] when the frame has no field that leads there.
    pub fn with_pri(mut self, pri: Pri, map: &PriMap) -> Result<Self, FrameError> {
        let error = |hint| FrameError::Pri { kind: self.kind.name(), pri: pri.get(), hint };
        // Switches trust the PCP first by default, so with a tag no other field matters.
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
        // Plain Ethernet without a tag gets the default priority; MAC Control has none.
        Ok(self)
    }

    /// Bytes of headers before the payload.
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

    /// Bytes after the payload: the ICRC, if any.
    #[must_use]
    pub const fn trailer_len(&self) -> usize {
        if self.icrc { crc::LEN } else { 0 }
    }

    /// Whether a header carries the payload's length, which a receiver needs to find the short stamp.
    const fn tells_len(&self) -> bool {
        matches!(self.kind, Kind::Standard | Kind::Roce6)
    }

    /// Fewest bytes of a frame: headers, the shortest stamp that is allowed, ICRC.
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
            // 4,096 is the largest path MTU of InfiniBand.
            Kind::Roce6 => self.header_len() + 4096 + self.trailer_len(),
            Kind::Standard | Kind::Gen1 | Kind::Gen2 | Kind::Lite => {
                self.header_len() + MAX_PAYLOAD_LEN + self.trailer_len()
            }
        }
    }

    /// Length of frame `seq` of a stream with `seed`.
    #[must_use]
    pub fn len_at(&self, seq: u64, seed: u64) -> usize {
        self.sizes.len_at(seq, seed, self.len_min(), self.len_max())
    }

    /// Checks that the format allows the description.
    ///
    /// # Errors
    /// The part or length that the format cannot have.
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

    /// Format that a switch with the default UDP port and EtherType values classifies the frame as.
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

    /// The entry that a switch learns from this frame: address and VLAN (0 without a tag); `None` for MAC Control, from
    /// which switches learn nothing.
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

    /// The address that a switch learns from frames of `kind` by `src`; `None` for MAC Control.
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

    /// A frame by which the switch learns the sender: to all stations, and as short as possible.
    #[must_use]
    pub fn announcement(&self) -> Self {
        let mut spec = Self { dst: Station::ALL, stamped: true, ecn: Ecn::NotEct, ..self.clone() };
        // In the 16-bit formats the M bit, and not the address alone, makes a switch flood the frame.
        if matches!(self.kind, Kind::Gen2 | Kind::Lite) {
            spec.key_words = KeyWords(self.key_words.0 | KeyWords::MULTICAST.0);
        }
        // Room for the whole mark, which receivers can read in any format.
        let whole = spec.header_len() + stamp::LEN + spec.trailer_len();
        spec.sizes = Sizes::Fixed(whole.max(ethernet::MIN_FRAME_LEN));
        spec
    }

    /// Builds the frame that fills `out` exactly.
    ///
    /// # Errors
    /// The format cannot have this length; `out` is unchanged.
    pub fn emit(&self, stamp: &Stamp, out: &mut [u8]) -> Result<(), FrameError> {
        self.emit_front(stamp, out.len(), out)
    }

    /// Like [`Self::emit`] for a frame of `len` bytes of which `out` holds all, or only the front, with its mark at
    /// least. A front has neither the payload after the mark nor the ICRC.
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

    /// Builds frame `seq` of a stream with `seed` in a new vector, for files and tests.
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
