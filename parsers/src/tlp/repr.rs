//! A TLP as plain fields, to build one or to change one.
//!
//! [`TlpRepr`] has the fields of every TLP, and a [`Body`] by the layout of its header; `emit`
//! writes bytes that parse to the same fields, or refuses. BDFs, tags and addresses are in host
//! order.
//!
//! Source: docs/spec/wire-formats.md §3.1 to §3.6.

use core::fmt;

use super::fields::{At, Attr, DevLoad, Pasid, Status};
use super::kind::{Kind, Mode};
use super::layout::{bits8, flit, halves, non_flit};
use super::ohc::{self, OhcA1, OhcA5};
use super::prefix::{self, VendPrefixL0};
use super::uio::UioDw2;
use super::view::Tlp;
use crate::bytes::be32;
use crate::error::ParseError;
use crate::fabric::{Bdf, Hpa};

/// The part of a header that depends on the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// Memory, atomic, UIO and I/O requests.
    Address {
        /// First byte of the first DW.
        addr: Hpa,
        /// The header has 64 bits for it; always so with UIO, never with I/O.
        wide: bool,
        /// Address type; memory only.
        at: At,
        /// NW of a translation request.
        no_write: bool,
        /// DWs asked for, or DWs of the payload; 1..=1024.
        length_dw: u16,
        /// Byte enables of the first DW; `0xF` with atomics.
        first_be: u8,
        /// Byte enables of the last DW; 0 if there is but one; `0xF` with atomics of more.
        last_be: u8,
    },
    /// Configuration requests, one DW.
    Config {
        /// Function whose register is accessed.
        dest: Bdf,
        /// Register: byte offset 0..=4092, a multiple of 4.
        register: u16,
        /// Byte enables of the one DW.
        first_be: u8,
    },
    /// Completions of all but UIO.
    Completion {
        /// Function that completes the request.
        completer: Bdf,
        /// Segment of the completer; flit mode, and only beside a destination segment.
        completer_segment: Option<u8>,
        /// Status of the completion.
        status: Status,
        /// Bytes still to come, with this completion's; 1..=4096.
        byte_count: u16,
        /// Low 7 bits of the first byte's address.
        lower_address: u8,
    },
    /// Completions of UIO requests.
    UioCompletion {
        /// Function that completes the request.
        completer: Bdf,
        /// Segment of the completer; only beside a destination segment.
        completer_segment: Option<u8>,
        /// Status of the completion.
        status: Status,
        /// Load of the completer.
        dev_load: DevLoad,
        /// First DW of the payload, counted from the request's address; 0..=1023.
        offset_dw: u16,
    },
    /// Messages of every routing.
    Message {
        /// Message code, such as 0x7F.
        code: u8,
        /// By routing: address bits 63:32, or BDF and Vendor ID.
        dw2: u32,
        /// By routing: address bits 31:0, or the vendor's own field.
        dw3: u32,
    },
    /// A `NOP`, one DW.
    Nop,
}

/// A TLP as plain fields. Fields that only the link needs (other local prefixes, hints, IDE,
/// trailer) are not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlpRepr<'a> {
    /// Header layout of the link.
    pub mode: Mode,
    /// Request or completion, and of which kind.
    pub kind: Kind,
    /// Vendor-defined local prefix 0.
    pub vend_prefix: Option<VendPrefixL0>,
    /// Traffic Class, 0..=7.
    pub tc: u8,
    /// Attributes; none with UIO.
    pub attr: Attr,
    /// Lightweight Notification; see [`Tlp::ln`].
    pub ln: bool,
    /// The payload is poisoned.
    pub ep: bool,
    /// Process address space; none in completions.
    pub pasid: Option<Pasid>,
    /// Segment of the requester; flit mode.
    pub requester_segment: Option<u8>,
    /// Segment it goes to; flit mode, and not of memory or I/O requests.
    pub dest_segment: Option<u8>,
    /// Function that made the request.
    pub requester: Bdf,
    /// Tag: 10 bits, in flit mode 14; flit-mode messages have no place for it.
    pub tag: u16,
    /// The rest of the header.
    pub body: Body,
    /// The payload, whole DWs; empty if the kind has none.
    pub payload: &'a [u8],
}

/// Why a TLP cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The buffer is too small.
    Room {
        /// Bytes that the TLP takes.
        need: usize,
        /// Bytes that the buffer has.
        had: usize,
    },
    /// Kind, body and payload do not belong together.
    Body,
    /// The mode has no such TLP.
    Kind,
    /// The mode has no place for a field, or the field does not fit its place.
    Field,
    /// The bytes written do not parse as a TLP.
    Malformed(ParseError),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Room { need, had } => write!(f, "TLP needs {need} bytes, the buffer has {had}"),
            Self::Body => f.write_str("TLP kind, header and payload do not belong together"),
            Self::Kind => f.write_str("the mode has no TLP of this kind"),
            Self::Field => {
                f.write_str("a field of the TLP has no place or does not fit in this mode")
            }
            Self::Malformed(error) => write!(f, "malformed TLP: {error}"),
        }
    }
}

impl core::error::Error for EmitError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            _ => None,
        }
    }
}

impl<'a> Tlp<'a> {
    /// All fields, to change and emit; [`TlpRepr`] lists those that it leaves behind.
    #[must_use]
    pub fn repr(&self) -> TlpRepr<'a> {
        TlpRepr {
            mode: self.mode(),
            kind: self.kind(),
            vend_prefix: self.vend_prefix(),
            tc: self.tc(),
            attr: self.attr(),
            ln: self.ln(),
            ep: self.ep(),
            pasid: self.pasid(),
            requester_segment: self.requester_segment(),
            dest_segment: self.dest_segment(),
            requester: self.requester(),
            tag: self.tag(),
            body: self.body(),
            payload: self.payload(),
        }
    }

    fn body(&self) -> Body {
        let completer = self.completer().unwrap_or_default();
        let completer_segment = self.completer_segment();
        let status = self.status().unwrap_or_default();
        match self.kind() {
            Kind::Nop => Body::Nop,
            Kind::CfgRead { .. } | Kind::CfgWrite { .. } => Body::Config {
                dest: match self.route() {
                    super::fields::Route::Id(dest) => dest,
                    _ => Bdf::default(),
                },
                register: self.register().unwrap_or_default(),
                first_be: self.first_be(),
            },
            Kind::Completion { .. } => Body::Completion {
                completer,
                completer_segment,
                status,
                byte_count: self.byte_count().unwrap_or_default(),
                lower_address: self.lower_address().unwrap_or_default(),
            },
            Kind::UioReadCompletion { .. } | Kind::UioWriteCompletion => {
                let (dev_load, offset_dw) = self.uio_completion().unwrap_or_default();
                Body::UioCompletion { completer, completer_segment, status, dev_load, offset_dw }
            }
            Kind::Message { .. } => {
                let (dw2, dw3) = self.message_dws().unwrap_or_default();
                Body::Message { code: self.message_code().unwrap_or_default(), dw2, dw3 }
            }
            _ => Body::Address {
                addr: self.addr().unwrap_or_default(),
                wide: self.is_wide(),
                at: self.at(),
                no_write: self.no_write(),
                length_dw: self.length_dw(),
                first_be: self.first_be(),
                last_be: self.last_be(),
            },
        }
    }
}

/// Header DWs on their way out.
#[derive(Clone, Copy, Debug, Default)]
struct Header {
    dw: [u32; 4],
    dws: usize,
    /// OHC-A and OHC-C.
    ohc: [Option<u32>; 2],
}

/// Longest header that [`TlpRepr::emit_head`] writes: two prefixes, four DWs, two OHCs.
pub const HEAD_LEN_MAX: usize = 8 * 4;

impl TlpRepr<'_> {
    /// A TLP of Traffic Class 0 with nothing that may be left out.
    #[must_use]
    pub const fn new(mode: Mode, kind: Kind, requester: Bdf, tag: u16, body: Body) -> Self {
        Self {
            mode,
            kind,
            vend_prefix: None,
            tc: 0,
            attr: Attr::from_low_bits(0),
            ln: false,
            ep: false,
            pasid: None,
            requester_segment: None,
            dest_segment: None,
            requester,
            tag,
            body,
            payload: &[],
        }
    }

    /// Writes the TLP at the front of `out`; returns its length in bytes.
    ///
    /// # Errors
    /// `out` is too small, or there is no well-formed TLP with these fields: then `out` holds nothing of use.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let payload_len = self.payload.len();
        let at = self.emit_head(payload_len, out).map_err(|error| match error {
            EmitError::Room { need, had } => EmitError::Room { need: need + payload_len, had },
            other => other,
        })?;
        let (need, had) = (at + payload_len, out.len());
        let out = out.get_mut(..need).ok_or(EmitError::Room { need, had })?;
        let payload = out.get_mut(at..).unwrap_or_default();
        payload.copy_from_slice(self.payload);
        // a reader of the bytes must find these fields: combinations without a place are refused
        // here, in one rule instead of one for each field
        self.read_back(out)?;
        Ok(need)
    }

    /// Reads back the header that [`Self::emit_head`] has written, with the payload behind it. Of
    /// the payload, only the place is looked at.
    ///
    /// # Errors
    /// `bytes` are no well-formed TLP, or not one with these fields.
    pub fn read_back(&self, bytes: &[u8]) -> Result<(), EmitError> {
        let tlp = Tlp::parse(self.mode, bytes).map_err(EmitError::Malformed)?;
        let lens = |tlp: usize, payload: &[u8]| (tlp, payload.len());
        let head = |repr: TlpRepr<'_>| -> TlpRepr<'static> { TlpRepr { payload: &[], ..repr } };
        let is_same = lens(tlp.len(), tlp.payload()) == lens(bytes.len(), self.payload)
            && head(tlp.repr()) == head(*self);
        if is_same { Ok(()) } else { Err(EmitError::Field) }
    }

    /// Writes the header alone, and returns its length: for callers that copy a payload of
    /// `payload_len` bytes from its source straight to its place behind the header. It lets some
    /// combinations of fields pass that [`Self::emit`] refuses, as only `emit` reads the TLP back.
    ///
    /// # Errors
    /// As far as the header tells; `out` has no room for the header.
    pub fn emit_head(&self, payload_len: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let header = self.header(payload_len)?;
        let pasid = match self.mode {
            Mode::NonFlit => self.pasid.map(prefix::emit_pasid),
            Mode::Flit => None,
        };
        let local = self.vend_prefix.map(|prefix| u32::from_be_bytes(prefix.emit()));
        let (need, had) = (self.head_len(&header), out.len());
        let head = out.get_mut(..need).ok_or(EmitError::Room { need, had })?;
        let mut places = head.as_chunks_mut::<4>().0.iter_mut();
        let mut put = |dw: u32| {
            if let Some(bytes) = places.next() {
                *bytes = dw.to_be_bytes();
            }
        };
        // One after the other: a loop over a chain of them is not unrolled.
        local.into_iter().for_each(&mut put);
        pasid.into_iter().for_each(&mut put);
        header.dw.iter().take(header.dws).copied().for_each(&mut put);
        header.ohc.iter().flatten().copied().for_each(&mut put);
        Ok(need)
    }

    /// Bytes that [`Self::emit`] writes.
    ///
    /// # Errors
    /// As of `emit`, as far as the header tells.
    pub fn emit_len(&self) -> Result<usize, EmitError> {
        let header = self.header(self.payload.len())?;
        Ok(self.head_len(&header) + self.payload.len())
    }

    /// Bytes in front of the payload.
    fn head_len(&self, header: &Header) -> usize {
        let in_front = usize::from(self.vend_prefix.is_some())
            + usize::from(self.pasid.is_some() && self.mode == Mode::NonFlit);
        (in_front + header.dws + header.ohc.iter().flatten().count()) * 4
    }

    fn header(&self, payload_len: usize) -> Result<Header, EmitError> {
        let wide = matches!(self.body, Body::Address { wide: true, .. } | Body::Message { .. });
        let first = self.kind.byte(self.mode, wide).ok_or(EmitError::Kind)?;
        // a kind with data needs a payload, any other must have none
        if self.kind.has_data() == (payload_len == 0) || !payload_len.is_multiple_of(4) {
            return Err(EmitError::Body);
        }
        let mut header = Header { dws: self.kind.base_len(wide) / 4, ..Header::default() };
        let length = match self.body {
            Body::Address { length_dw, .. } => usize::from(length_dw),
            Body::Config { .. } => 1,
            _ => payload_len / 4,
        };
        if self.kind.has_data() && length * 4 != payload_len || length > 1_024 {
            return Err(EmitError::Body);
        }
        // a Length of 0 stands for 1,024 DWs
        let length = u32::try_from(length % 1_024).unwrap_or_default();
        let dw0 = u32::from(first) << 24 | length;
        match self.mode {
            Mode::NonFlit => self.non_flit(&mut header, dw0)?,
            Mode::Flit => self.flit(&mut header, dw0),
        }
        Ok(header)
    }

    fn non_flit(&self, header: &mut Header, dw0: u32) -> Result<(), EmitError> {
        let (attr, tag) = (self.attr.bits(), self.tag);
        let mut dw0 = dw0
            | u32::from(tag >> 9 & 1) << non_flit::T9
            | u32::from(self.tc & 7) << non_flit::TC
            | u32::from(tag >> 8 & 1) << non_flit::T8
            | u32::from(attr >> 2) << non_flit::ATTR2
            | u32::from(self.ln) << non_flit::LN
            | u32::from(self.ep) << non_flit::EP
            | u32::from(attr & 3) << non_flit::ATTR;
        let tag8 = (tag & 0xFF) << 8;
        let request = |low: u32| halves(self.requester.bits(), tag8) | low;
        let rest = match self.body {
            Body::Address { addr, wide, at, no_write, first_be, last_be, .. } => {
                // non-flit mode has AT in DW0, flit mode in the low bits of the address
                dw0 |= (at as u32) << non_flit::AT;
                // atomics have no byte enables: the field is reserved
                let enables =
                    if self.kind.is_atomic() { 0 } else { ohc::byte_enables(last_be, first_be) };
                let (high, low) = address(addr);
                // NW takes the lowest bit of the address, of a translation request only
                let low = low | u32::from(no_write);
                let tail = if wide { [high, low] } else { [low, 0] };
                [request(enables), tail[0], tail[1]]
            }
            Body::Config { dest, register, first_be } => {
                [request(ohc::byte_enables(0, first_be)), config(dest, register), 0]
            }
            Body::Completion { completer, status, byte_count, lower_address, .. } => {
                let low = (status as u16) << 13 | byte_count & 0xFFF;
                let to = halves(self.requester.bits(), tag8 | u16::from(lower_address & 0x7F));
                [halves(completer.bits(), low), to, 0]
            }
            Body::Message { code, dw2, dw3 } => [request(u32::from(code)), dw2, dw3],
            // both kinds exist in flit mode only
            Body::UioCompletion { .. } | Body::Nop => return Err(EmitError::Body),
        };
        header.dw = [dw0, rest[0], rest[1], rest[2]];
        Ok(())
    }

    fn flit(&self, header: &mut Header, dw0: u32) {
        let [a, c] = [self.ohc_a(), self.requester_segment.map(ohc::emit_c)];
        let present = u8::from(a.is_some()) * flit::OHC_A + u8::from(c.is_some()) * flit::OHC_C;
        let dw0 = dw0
            | u32::from(self.tc & 7) << flit::TC
            | u32::from(present) << flit::OHC
            | u32::from(self.attr.bits()) << flit::ATTR;
        let second = |id: Bdf, low: u16| {
            halves(id.bits(), low | u16::from(self.ep) << flit::EP | self.tag & 0x3FFF)
        };
        let requester = self.requester;
        let rest = match self.body {
            Body::Address { addr, wide, at, .. } => {
                let (high, low) = address(addr);
                let low = low | at as u32;
                let tail = if wide { [high, low] } else { [low, 0] };
                [second(requester, 0), tail[0], tail[1]]
            }
            Body::Config { dest, register, .. } => {
                [second(requester, 0), config(dest, register), 0]
            }
            Body::Completion { completer, byte_count, lower_address, .. } => {
                let la = u16::from(lower_address);
                let low = (la >> 2 & 0xF) << 12 | byte_count & 0xFFF;
                let high = (la >> 6 & 1) << flit::LA6;
                [second(completer, high), halves(requester.bits(), low), 0]
            }
            Body::UioCompletion { completer, dev_load, offset_dw, .. } => {
                let dw2 = UioDw2 { requester, dev_load, offset_dw }.emit();
                [second(completer, 0), dw2, 0]
            }
            Body::Message { code, dw2, dw3 } => [second(requester, u16::from(code)), dw2, dw3],
            Body::Nop => {
                header.dw = [u32::from(bits8(dw0, 24)) << 24, 0, 0, 0];
                return;
            }
        };
        header.dw = [dw0, rest[0], rest[1], rest[2]];
        header.ohc = [a, c];
    }

    /// OHC-A, where the kind demands it or there is something to say.
    fn ohc_a(&self) -> Option<u32> {
        match self.body {
            Body::Address { first_be, last_be, .. } if self.kind.is_io() => {
                Some(ohc::byte_enables(last_be, first_be))
            }
            Body::Address { no_write, length_dw, first_be, last_be, .. } => {
                // without an OHC-A1 all bytes are enabled
                let all = if length_dw > 1 { (0xF, 0xF) } else { (0xF, 0) };
                let plain = (first_be, last_be) == all && self.pasid.is_none() && !no_write;
                let a1 = OhcA1 { no_write, pasid: self.pasid, last_be, first_be };
                if plain { None } else { Some(a1.emit()) }
            }
            Body::Config { first_be, .. } => {
                Some(ohc::with_dest_segment(self.dest_segment) | ohc::byte_enables(0, first_be))
            }
            Body::Message { .. } => {
                let plain = self.dest_segment.is_none() && self.pasid.is_none();
                if plain { None } else { Some(ohc::emit_a4(self.dest_segment, self.pasid)) }
            }
            Body::Completion { status, completer_segment, lower_address, .. } => {
                self.ohc_a5(status, completer_segment, lower_address & 3)
            }
            Body::UioCompletion { status, completer_segment, .. } => {
                self.ohc_a5(status, completer_segment, 0)
            }
            Body::Nop => None,
        }
    }

    fn ohc_a5(&self, status: Status, segment: Option<u8>, lower_address: u8) -> Option<u32> {
        let a5 = OhcA5 {
            dest_segment: self.dest_segment,
            completer_segment: segment.unwrap_or_default(),
            lower_address,
            status,
        };
        // success, aligned, within one segment: nothing to say
        if a5 == OhcA5::default() { None } else { Some(a5.emit()) }
    }
}

/// The halves of an address, the low one without its last two bits.
const fn address(Hpa(addr): Hpa) -> (u32, u32) {
    let bytes = addr.to_be_bytes();
    let (high, low) = (be32::<0, _>(&bytes), be32::<4, _>(&bytes));
    (high, low & !3)
}

/// DW2 of a configuration request.
const fn config(dest: Bdf, register: u16) -> u32 {
    halves(dest.bits(), register & 0xFFC)
}
