//! A port's rules applied to a frame: the switch functions that express frames need, a second time besides the
//! pipeline's; compiled for both sides.
//!
//! Source: docs/spec/pipeline.md §2 and §3; tests compare it with `dataplane::{classify, vlan}`.

#![expect(clippy::indexing_slicing, reason = "masked to the table's size")]

use weft_parsers::vlan::Tpids;
use weft_parsers::{AfhMode, Gen2Order, Head, MacAddr, ParseConfig, PriSource, Tci};

use crate::layout::{NO_VID, PortRules, tags};

impl PortRules {
    /// The parser's settings at this port.
    #[inline]
    #[must_use]
    pub const fn parse_config(&self) -> ParseConfig {
        ParseConfig {
            afh: match self.afh {
                0 => AfhMode::None,
                1 => AfhMode::Gen1,
                2 => AfhMode::Gen2,
                3 => AfhMode::Lite,
                _ => AfhMode::Auto,
            },
            gen2_order: match self.gen2_order {
                0 => Gen2Order::Slap,
                _ => Gen2Order::AsDocumented,
            },
            tpids: Tpids::from_lanes(self.tpids),
            mac_type1: self.mac_type1,
            mac_type2: self.mac_type2,
            udp_type1: self.udp_type1,
            udp_type2: self.udp_type2,
            port_mac: MacAddr(self.port_mac),
        }
    }

    /// Priority of a frame; the port's default without a head (malformed).
    #[inline]
    #[must_use]
    pub fn pri(&self, head: Option<&Head>) -> u8 {
        let Some(head) = head else { return self.default_pri & 7 };
        let by = self.by[head.carries() & (PriSource::SETS - 1)];
        let Some(source) = PriSource::from_number(by) else { return self.default_pri & 7 };
        // The masks change nothing, but let the kernel's verifier see that the indices are in bounds.
        let code = head.code(source) & (PriSource::CODES_MAX - 1);
        self.maps[by as usize & (PriSource::SLOTS - 1)][code] & 7
    }

    /// VLAN of a frame with the outer tag `tag`. Whether the port is a member is another question.
    #[inline]
    #[must_use]
    pub const fn vid(&self, tag: Option<Tci>) -> u16 {
        match tag {
            Some(tci) if tci.vid().get() != 0 => tci.vid().get(),
            _ => self.untagged,
        }
    }

    /// Whether this port, as an output, leaves the tag of a frame of VLAN `vid` unchanged.
    #[inline]
    #[must_use]
    pub const fn keeps_tag(&self, vid: u16, tag: Option<Tci>) -> bool {
        let native = self.untagged == vid && vid != NO_VID;
        match (self.tags, tag) {
            (tags::NEVER, tag) => tag.is_none(),
            (tags::ALL_BUT_NATIVE, None) => native,
            (tags::ALL_BUT_NATIVE, Some(tci)) => tci.vid().get() != 0 && !native,
            (_, Some(tci)) if tci.vid().get() != 0 => true,
            _ => native,
        }
    }

    /// Whether this port, as an output, may send frames of this format and length.
    #[inline]
    #[must_use]
    pub const fn takes(&self, head: &Head, len: usize) -> bool {
        self.carries >> (head.format() as u32 & 7) & 1 != 0 && len <= self.frame_len_max as usize
    }
}
