//! Getters of fields that only some kinds of TLPs have.
//!
//! Ids, tag, byte enables, address, message, completion, OHC; `None` where a TLP of its kind has no
//! such field.
//!
//! Source: PCIe 5.0 and 6.0 section 2.2; docs/spec/wire-formats.md §3.2 to §3.6.

use super::{CODE_VDM_TYPE0, CODE_VDM_TYPE1, Tlp};
use crate::fabric::{Bdf, Hpa};
use crate::tlp::fields::{AddressSpace, DevLoad, Implicit, Pasid, Route, Status};
use crate::tlp::kind::{Kind, Mode, Routing};
use crate::tlp::layout::{bit, bits8, flit, high16, low16, non_flit};
use crate::tlp::ohc::{self, OhcA1, OhcA5};
use crate::tlp::prefix::VendPrefixL0;
use crate::tlp::uio::UioDw2;

impl Tlp<'_> {
    /// Function that made the request; a completion goes to it.
    #[inline]
    #[must_use]
    pub const fn requester(&self) -> Bdf {
        let [_, dw1, dw2, _] = self.dw;
        Bdf::from_bits(high16(if self.is_completion() { dw2 } else { dw1 }))
    }

    /// Function that completes the request, of a completion.
    #[inline]
    #[must_use]
    pub const fn completer(&self) -> Option<Bdf> {
        let [_, dw1, ..] = self.dw;
        if self.is_completion() { Some(Bdf::from_bits(high16(dw1))) } else { None }
    }

    /// Tag: 10 bits, in flit mode 14. 0 where the header has no tag: in flit-mode messages and NOPs,
    /// and in a write whose tag byte carries a hint.
    #[inline]
    #[must_use]
    pub const fn tag(&self) -> u16 {
        let [dw0, dw1, dw2, _] = self.dw;
        match (self.mode, self.kind) {
            (Mode::Flit, Kind::Message { .. } | Kind::Nop) => 0,
            (Mode::Flit, _) => low16(dw1) & 0x3FFF,
            // the steering tag stands where the tag would be; a write needs none, as it has no
            // completion
            (Mode::NonFlit, Kind::MemWrite) if self.th() => 0,
            (Mode::NonFlit, _) => {
                let low = bits8(if self.is_completion() { dw2 } else { dw1 }, 8);
                (bit(dw0, non_flit::T9) as u16) << 9
                    | (bit(dw0, non_flit::T8) as u16) << 8
                    | low as u16
            }
        }
    }

    /// `LastBE` and `FirstBE` in effect, as one byte: all ones where the header has none.
    #[inline]
    pub(in crate::tlp) const fn byte_enables(&self) -> u8 {
        let [_, dw1, ..] = self.dw;
        let all = if self.length_dw() > 1 { 0xFF } else { 0x0F };
        if self.kind.is_atomic()
            || !(self.kind.is_memory() || self.kind.is_io() || self.kind.is_config())
        {
            return all;
        }
        match (self.mode, self.ohc) {
            // a read with hints has its steering tag in the place of the byte enables
            (Mode::NonFlit, _) if self.th() && self.is_non_posted() => all,
            (Mode::NonFlit, _) => bits8(dw1, 0),
            (Mode::Flit, [Some(a), ..]) => bits8(a, 0),
            (Mode::Flit, _) => all,
        }
    }

    /// Byte enables of the first DW, bit 0 its first byte.
    #[inline]
    #[must_use]
    pub const fn first_be(&self) -> u8 {
        self.byte_enables() & 0xF
    }

    /// Byte enables of the last DW; 0 if there is but one.
    #[inline]
    #[must_use]
    pub const fn last_be(&self) -> u8 {
        self.byte_enables() >> 4
    }

    /// Address of a memory or I/O request, or of a message routed by it: the first DW's first byte.
    #[inline]
    #[must_use]
    pub const fn addr(&self) -> Option<Hpa> {
        let [_, _, dw2, dw3] = self.dw;
        match self.kind {
            Kind::Message { routing: Routing::Address, .. } => {}
            kind if kind.is_memory() || kind.is_io() => {}
            _ => return None,
        }
        Some(if self.wide {
            Hpa((dw2 as u64) << 32 | (dw3 & !3) as u64)
        } else {
            Hpa((dw2 & !3) as u64)
        })
    }

    /// Whether the header has room for a 64-bit address; messages always have.
    #[inline]
    #[must_use]
    pub const fn is_wide(&self) -> bool {
        self.wide
    }

    /// The field that it is routed by.
    #[inline]
    #[must_use]
    pub const fn route(&self) -> Route {
        let [_, _, dw2, _] = self.dw;
        if let Some(addr) = self.addr() {
            let space = if self.kind.is_io() { AddressSpace::Io } else { AddressSpace::Memory };
            return Route::Address { space, addr, wide: self.wide };
        }
        match self.kind {
            Kind::Message { routing: Routing::ToRoot, .. } => Route::Implicit(Implicit::ToRoot),
            Kind::Message { routing: Routing::Broadcast, .. } => {
                Route::Implicit(Implicit::Broadcast)
            }
            Kind::Message { routing: Routing::Gather, .. } => Route::Implicit(Implicit::Gather),
            Kind::Message { routing: Routing::Local, .. } | Kind::Nop => {
                Route::Implicit(Implicit::Local)
            }
            _ => Route::Id(Bdf::from_bits(high16(dw2))),
        }
    }

    /// Register of a configuration request, byte offset 0..=4092.
    #[inline]
    #[must_use]
    pub const fn register(&self) -> Option<u16> {
        let [_, _, dw2, _] = self.dw;
        if self.kind.is_config() { Some(low16(dw2) & 0xFFC) } else { None }
    }

    /// Status of a completion.
    #[inline]
    #[must_use]
    pub const fn status(&self) -> Option<Status> {
        let [_, dw1, ..] = self.dw;
        if !self.is_completion() {
            return None;
        }
        Some(match (self.mode, self.ohc) {
            (Mode::NonFlit, _) => Status::from_low_bits(bits8(dw1, 13)),
            (Mode::Flit, [Some(a5), ..]) => OhcA5::decode(a5).status,
            // without an OHC-A5 a completion is successful
            (Mode::Flit, _) => Status::Success,
        })
    }

    /// Bytes that are still to come, with this completion's, 1..=4096. UIO has no such count.
    #[inline]
    #[must_use]
    pub const fn byte_count(&self) -> Option<u16> {
        let [_, dw1, dw2, _] = self.dw;
        if !matches!(self.kind, Kind::Completion { .. }) {
            return None;
        }
        let dw = match self.mode {
            Mode::NonFlit => dw1,
            Mode::Flit => dw2,
        };
        Some(match low16(dw) & 0xFFF {
            // 12 bits: 0 stands for 4,096
            0 => 4_096,
            count => count,
        })
    }

    /// Low 7 bits of the address of the first byte that a completion returns.
    #[inline]
    #[must_use]
    pub const fn lower_address(&self) -> Option<u8> {
        let [_, dw1, dw2, _] = self.dw;
        if !matches!(self.kind, Kind::Completion { .. }) {
            return None;
        }
        Some(match self.mode {
            Mode::NonFlit => bits8(dw2, 0) & 0x7F,
            Mode::Flit => {
                let low = match self.ohc {
                    [Some(a5), ..] => OhcA5::decode(a5).lower_address,
                    _ => 0,
                };
                (bit(dw1, flit::LA6) as u8) << 6 | (bits8(dw2, 12) & 0xF) << 2 | low
            }
        })
    }

    /// Load of the completer and the first DW's place in the request, of a UIO completion.
    #[inline]
    #[must_use]
    pub const fn uio_completion(&self) -> Option<(DevLoad, u16)> {
        let [_, _, dw2, _] = self.dw;
        if !self.kind.is_uio_completion() {
            return None;
        }
        let UioDw2 { dev_load, offset_dw, .. } = UioDw2::decode(dw2);
        Some((dev_load, offset_dw))
    }

    /// Code of a message.
    #[inline]
    #[must_use]
    pub const fn message_code(&self) -> Option<u8> {
        let [_, dw1, ..] = self.dw;
        if matches!(self.kind, Kind::Message { .. }) { Some(bits8(dw1, 0)) } else { None }
    }

    /// The two DWs of a message behind the one with its code.
    #[inline]
    #[must_use]
    pub const fn message_dws(&self) -> Option<(u32, u32)> {
        let [_, _, dw2, dw3] = self.dw;
        if matches!(self.kind, Kind::Message { .. }) { Some((dw2, dw3)) } else { None }
    }

    /// Vendor ID of a vendor-defined message.
    #[inline]
    #[must_use]
    pub const fn vendor_id(&self) -> Option<u16> {
        let [_, _, dw2, _] = self.dw;
        match self.message_code() {
            Some(CODE_VDM_TYPE0 | CODE_VDM_TYPE1) => Some(low16(dw2)),
            _ => None,
        }
    }

    /// The first vendor-defined local prefix 0: LD-ID or PID, as the port has it.
    #[inline]
    #[must_use]
    pub const fn vend_prefix(&self) -> Option<VendPrefixL0> {
        self.prefixes.vend
    }

    /// Process address space of a request or message.
    #[inline]
    #[must_use]
    pub const fn pasid(&self) -> Option<Pasid> {
        match (self.mode, self.ohc) {
            (Mode::NonFlit, _) => self.prefixes.pasid,
            (Mode::Flit, [Some(a), ..]) => match self.kind {
                Kind::Message { .. } => ohc::decode_a4_pasid(a),
                kind if kind.is_memory() => OhcA1::decode(a).pasid,
                _ => None,
            },
            (Mode::Flit, _) => None,
        }
    }

    /// Segment that a configuration request, message or completion goes to.
    #[inline]
    #[must_use]
    pub const fn dest_segment(&self) -> Option<u8> {
        match self.ohc {
            [Some(a), ..] if !(self.kind.is_memory() || self.kind.is_io()) => ohc::dest_segment(a),
            _ => None,
        }
    }

    /// Segment of the completer, where a completion names one.
    #[inline]
    #[must_use]
    pub const fn completer_segment(&self) -> Option<u8> {
        match self.ohc {
            [Some(a), ..] if self.is_completion() && bit(a, 15) => Some(bits8(a, 16)),
            _ => None,
        }
    }

    /// Segment of the requester, where an OHC-C names one.
    #[inline]
    #[must_use]
    pub const fn requester_segment(&self) -> Option<u8> {
        match self.ohc {
            [_, _, Some(c)] => ohc::requester_segment(c),
            _ => None,
        }
    }

    /// OHC-A, B and C as they stand.
    #[inline]
    #[must_use]
    pub const fn ohc(&self) -> [Option<u32>; 3] {
        self.ohc
    }

    /// The OHC bits of a flit-mode header: A, B, C, and two of E.
    #[inline]
    pub(in crate::tlp) const fn ohc_bits(&self) -> u8 {
        let [dw0, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => 0,
            Mode::Flit => bits8(dw0, flit::OHC) & 0x1F,
        }
    }

    /// TS of a flit-mode header, 3 bits.
    #[inline]
    pub(in crate::tlp) const fn trailer_bits(&self) -> u8 {
        let [dw0, ..] = self.dw;
        match self.mode {
            Mode::NonFlit => 0,
            Mode::Flit => bits8(dw0, flit::TS) & 7,
        }
    }

    /// Address of a TLP that has one, else 0.
    #[inline]
    pub(in crate::tlp) const fn address_or_zero(&self) -> u64 {
        match self.addr() {
            Some(Hpa(addr)) => addr,
            None => 0,
        }
    }
}
