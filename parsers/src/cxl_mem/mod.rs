//! CXL.mem messages on Ethernet links.
//!
//! [`MemMessage`] reads and emits 16 bytes, and the line of 64 bytes that may follow; class and
//! opcode are one byte, [`MemOp`].
//!
//! Source: CXL 3.1 sections 3.3.5 to 3.3.10 (fields and codes); their places are proposed in
//! docs/spec/wire-formats.md §3.9.

use crate::bytes::{be16, be64, byte, cut, put};
use crate::error::{Field, Layer, ParseError};
use crate::fabric::Hpa;
use crate::message_ops::message_ops;
use crate::tlp::DevLoad;

/// Bytes of a message without data.
pub const HEAD_LEN: usize = 16;
/// Bytes of a line.
pub const LINE: usize = 64;
/// Bytes of byte enables.
const ENABLES_LEN: usize = 8;
/// Bytes of the longest message.
pub const LEN_MAX: usize = HEAD_LEN + LINE + ENABLES_LEN;
/// Bits of an address that a message carries: 51:6.
const ADDR_MASK: u64 = (1 << 52) - LINE as u64;

message_ops! {
    /// Message of CXL.mem. Its number is the first byte on the wire: class in 7:4, opcode in 3:0.
    MemOp {
        /// Gives up a line; no data.
        MemInv = 0x10, "MemInv";
        /// Reads a line, and its state in metadata.
        MemRd = 0x11, "MemRd";
        /// Reads a line, and takes whatever state there is.
        MemRdData = 0x12, "MemRdData";
        /// A device's own access, forwarded.
        MemRdFwd = 0x13, "MemRdFwd";
        /// A device's own access, forwarded.
        MemWrFwd = 0x14, "MemWrFwd";
        /// A hint that a read follows; it has no response.
        MemSpecRd = 0x18, "MemSpecRd";
        /// As `MemInv`, of a line that is not used soon.
        MemInvNT = 0x19, "MemInvNT";
        /// A clean line leaves a cache.
        MemClnEvct = 0x1A, "MemClnEvct";
        /// Writes all 64 bytes of a line.
        MemWr = 0x21, "MemWr";
        /// Writes the bytes of a line that are enabled.
        MemWrPtl = 0x22, "MemWrPtl";
        /// A snoop met a request.
        BiConflict = 0x24, "BIConflict";
        /// The request is done; no copy is granted.
        Cmp = 0x30, "Cmp";
        /// The request is done; a shared copy is granted.
        CmpS = 0x31, "Cmp-S";
        /// The request is done; an exclusive copy is granted.
        CmpE = 0x32, "Cmp-E";
        /// The request is done; a modified copy is granted.
        CmpM = 0x33, "Cmp-M";
        /// The conflict is known.
        BiConflictAck = 0x34, "BI-ConflictAck";
        /// The line that was read.
        MemData = 0x40, "MemData";
        /// There is no such memory.
        MemDataNxm = 0x41, "MemData-NXM";
        /// Asks for a line's value.
        BiSnpCur = 0x50, "BISnpCur";
        /// Asks for a line, and leaves it shared.
        BiSnpData = 0x51, "BISnpData";
        /// Asks for a line, and leaves nothing.
        BiSnpInv = 0x52, "BISnpInv";
        /// As `BISnpCur`, of a block.
        BiSnpCurBlk = 0x54, "BISnpCurBlk";
        /// As `BISnpData`, of a block.
        BiSnpDataBlk = 0x55, "BISnpDataBlk";
        /// As `BISnpInv`, of a block.
        BiSnpInvBlk = 0x56, "BISnpInvBlk";
        /// The host has no copy left.
        BiRspI = 0x60, "BIRspI";
        /// The host keeps a shared copy.
        BiRspS = 0x61, "BIRspS";
        /// The host keeps an exclusive copy.
        BiRspE = 0x62, "BIRspE";
        /// Invalid, all of a block.
        BiRspIBlk = 0x64, "BIRspIBlk";
        /// Shared, all of a block.
        BiRspSBlk = 0x65, "BIRspSBlk";
        /// Exclusive, all of a block.
        BiRspEBlk = 0x66, "BIRspEBlk";
    }
}

/// Class of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MemClass {
    /// M2S Req: request without data.
    Req = 1,
    /// M2S `RwD`: request with data.
    RwD = 2,
    /// S2M NDR: response without data.
    Ndr = 3,
    /// S2M DRS: response with data.
    Drs = 4,
    /// S2M `BISnp`: back-invalidate snoop of a device.
    BiSnp = 5,
    /// M2S `BIRsp`: the host's response to a snoop.
    BiRsp = 6,
}

impl MemClass {
    /// Its name, as the standard spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Req => "M2S Req",
            Self::RwD => "M2S RwD",
            Self::Ndr => "S2M NDR",
            Self::Drs => "S2M DRS",
            Self::BiSnp => "S2M BISnp",
            Self::BiRsp => "M2S BIRsp",
        }
    }

    /// Whether 64 bytes of data follow.
    #[inline]
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::RwD | Self::Drs)
    }

    /// Whether the class has a bit for bad data.
    #[inline]
    #[must_use]
    pub const fn has_poison(self) -> bool {
        self.has_data() || matches!(self, Self::Ndr)
    }

    /// Whether it is a request, which names a line.
    #[inline]
    #[must_use]
    pub const fn is_request(self) -> bool {
        matches!(self, Self::Req | Self::RwD)
    }

    /// Whether it is the response to a request.
    #[inline]
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self, Self::Ndr | Self::Drs)
    }
}

impl MemOp {
    /// Class of the message, bits 7:4 of its number.
    #[inline]
    #[must_use]
    pub const fn class(self) -> MemClass {
        match self as u8 >> 4 {
            1 => MemClass::Req,
            2 => MemClass::RwD,
            3 => MemClass::Ndr,
            4 => MemClass::Drs,
            5 => MemClass::BiSnp,
            _ => MemClass::BiRsp,
        }
    }

    /// Whether it is about a block of lines.
    #[inline]
    #[must_use]
    pub const fn is_block(self) -> bool {
        matches!(self.class(), MemClass::BiSnp | MemClass::BiRsp) && self as u8 & 4 != 0
    }

    /// Length of the message on the wire: 16, 80 or 88 bytes.
    #[inline]
    #[must_use]
    pub const fn message_len(self) -> usize {
        match (self.class().has_data(), self.has_enables()) {
            (false, _) => HEAD_LEN,
            (true, false) => HEAD_LEN + LINE,
            (true, true) => LEN_MAX,
        }
    }

    /// Whether byte enables follow the data.
    #[inline]
    const fn has_enables(self) -> bool {
        matches!(self, Self::MemWrPtl)
    }

    /// The message whose first 16 bytes are `head`; refuses a BEP bit that does not fit the opcode.
    #[inline]
    const fn of(head: &[u8; HEAD_LEN]) -> Result<Self, ParseError> {
        let Some(op) = Self::decode(byte::<0, _>(head)) else {
            return Err(refused(Field::Opcode, byte::<0, _>(head)));
        };
        // the opcode alone gives `message_len`, by which `fast_mem` finds the end without reading
        // BEP
        if (byte::<2, _>(head) & BEP != 0) != op.has_enables() {
            return Err(refused(Field::ByteEnables, byte::<2, _>(head)));
        }
        Ok(op)
    }

    /// Response with which a request is refused: data of all ones where it wants data, else `Cmp`.
    /// `None` for a message that has no response.
    #[inline]
    #[must_use]
    pub const fn refusal(self) -> Option<Self> {
        match self {
            Self::MemRd | Self::MemRdData | Self::MemRdFwd => Some(Self::MemDataNxm),
            // a hint; the host waits for no response
            Self::MemSpecRd => None,
            _ if self.class().is_request() => Some(Self::Cmp),
            _ => None,
        }
    }
}

/// Kind of metadata that a message carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum MetaField {
    /// State of the line in hosts' caches.
    State = 0b00,
    /// EMS, extended metadata; not offered here.
    Extended = 0b01,
    /// Code 10, which the standard reserves.
    Reserved = 0b10,
    /// The message carries no metadata.
    #[default]
    NoOp = 0b11,
}

impl MetaField {
    #[inline]
    const fn from_low_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::State,
            1 => Self::Extended,
            2 => Self::Reserved,
            _ => Self::NoOp,
        }
    }
}

/// Lease in a response: how long the host that asked may use the device's lines that it holds.
/// weft's own.
///
/// All lines that were granted with one number may be used as long as the longest term of a
/// response with that number lasts, from when its request was sent. A line whose number no response
/// names any more has been given up by the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Lease {
    /// Number of the lease; 0 for none: the line in the response may be used once.
    pub number: u64,
    /// Duration in units of [`Self::UNIT_US`].
    pub term: u16,
}

impl Lease {
    /// Microseconds of a unit of its term.
    pub const UNIT_US: u64 = 100;
    /// No lease: a device that is not coherent sends this.
    pub const NONE: Self = Self { number: 0, term: 0 };
}

/// Fields of a message. Those that its class does not have are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemHead {
    /// Class and opcode, byte 0.
    pub op: MemOp,
    /// Snoop of other caches: 0 none, 1 `SnpData`, 2 `SnpCur`, 3 `SnpInv`; bits 7:5.
    pub snoop: u8,
    /// Kind of metadata.
    pub meta: MetaField,
    /// State of the line with [`MetaField::State`]: 0 invalid, 2 any, 3 shared.
    pub meta_value: u8,
    /// The data is bad. Of an NDR: the line that the host wrote back was not its own any more, and nothing was written.
    pub poison: bool,
    /// Traffic class, 2 bits.
    pub tc: u8,
    /// Load of the device that responds.
    pub load: DevLoad,
    /// Logical device, 4 bits; only on a link without PTH.
    pub ld: u8,
    /// Tag, or `BITag` of 12 bits.
    pub tag: u16,
    /// `BI-ID`, 12 bits; only on a link without PTH.
    pub bi_id: u16,
    /// Address of a line; of a `BIRsp`, that of the snoop, or 0 if it does not say.
    pub addr: Hpa,
    /// How long the host may use the line; of a response.
    pub lease: Lease,
}

impl MemHead {
    /// A message with all other fields 0, and no metadata where there may be some.
    #[must_use]
    pub const fn new(op: MemOp, tag: u16) -> Self {
        Self {
            op,
            snoop: 0,
            meta: MetaField::NoOp,
            meta_value: 0,
            poison: false,
            tc: 0,
            load: DevLoad::Light,
            ld: 0,
            tag,
            bi_id: 0,
            addr: Hpa(0),
            lease: Lease::NONE,
        }
    }

    /// Reads the fields that the message's class has.
    #[inline]
    const fn decode(op: MemOp, head: &[u8; HEAD_LEN]) -> Self {
        let (class, bits, more) = (op.class(), byte::<1, _>(head), byte::<2, _>(head));
        let (asks, is_bi) =
            (class.is_request(), matches!(class, MemClass::BiSnp | MemClass::BiRsp));
        // bytes 8 to 15 of a response hold the number of its lease
        let addr = match class {
            MemClass::Ndr | MemClass::Drs => 0,
            _ => be64::<8, _>(head) & ADDR_MASK,
        };
        Self {
            op,
            // a field that the class does not have reads as 0, whatever its bits are: they are
            // reserved there
            snoop: if asks { bits >> 5 } else { 0 },
            meta: if is_bi { MetaField::NoOp } else { MetaField::from_low_bits(bits >> 3) },
            meta_value: if is_bi { 0 } else { bits >> 1 & 3 },
            poison: class.has_poison() && bits & 1 != 0,
            tc: if asks { more >> 6 } else { 0 },
            load: if class.is_response() {
                DevLoad::from_low_bits(more >> 4)
            } else {
                DevLoad::Light
            },
            ld: if is_bi { 0 } else { byte::<3, _>(head) >> 4 },
            tag: if is_bi { be16::<4, _>(head) & 0xFFF } else { be16::<4, _>(head) },
            bi_id: if is_bi { be16::<6, _>(head) & 0xFFF } else { 0 },
            addr: Hpa(addr),
            lease: if class.is_response() {
                Lease { number: be64::<8, _>(head), term: be16::<6, _>(head) }
            } else {
                Lease::NONE
            },
        }
    }

    /// The bytes of the fields that the message's class has; the others are 0.
    #[inline]
    #[must_use]
    pub const fn emit(&self) -> [u8; HEAD_LEN] {
        let class = self.op.class();
        let is_bi = matches!(class, MemClass::BiSnp | MemClass::BiRsp);
        let (mut bits, mut more) = (0, 0);
        if !is_bi {
            bits |= (self.meta as u8) << 3 | (self.meta_value & 3) << 1;
        }
        if class.is_request() {
            bits |= (self.snoop & 7) << 5;
            more |= (self.tc & 3) << 6;
        }
        if class.has_poison() {
            bits |= self.poison as u8;
        }
        if class.is_response() {
            more |= (self.load as u8) << 4;
        }
        if self.op.has_enables() {
            more |= BEP;
        }
        let addr = match class {
            MemClass::Ndr | MemClass::Drs => self.lease.number,
            _ => self.addr.0 & ADDR_MASK,
        };
        let mut head = [0; HEAD_LEN];
        put::<0, 4, _>(
            &mut head,
            [self.op as u8, bits, more, if is_bi { 0 } else { (self.ld & 0xF) << 4 }],
        );
        let tag = if is_bi { self.tag & 0xFFF } else { self.tag };
        put::<4, 2, _>(&mut head, tag.to_be_bytes());
        // bytes 6 and 7 serve snoops and responses, and are reserved in requests
        let id_or_term = match class {
            MemClass::BiSnp | MemClass::BiRsp => self.bi_id & 0xFFF,
            MemClass::Ndr | MemClass::Drs => self.lease.term,
            MemClass::Req | MemClass::RwD => 0,
        };
        put::<6, 2, _>(&mut head, id_or_term.to_be_bytes());
        put::<8, 8, _>(&mut head, addr.to_be_bytes());
        head
    }
}

/// Byte enables follow the data.
const BEP: u8 = 1 << 3;

/// Puts `bi_id`, 12 bits, into bytes 6 and 7 of the message at the front of `bytes`; shorter ones stay as they are.
#[inline]
pub fn set_bi_id(bytes: &mut [u8], bi_id: u16) {
    if let Some(head) = bytes.first_chunk_mut::<HEAD_LEN>() {
        put::<6, 2, _>(head, (bi_id & 0xFFF).to_be_bytes());
    }
}

/// Puts `ld`, 4 bits, into the message at the front of `bytes`; shorter ones stay as they are.
#[inline]
pub fn set_ld(bytes: &mut [u8], ld: u8) {
    if let Some(place) = bytes.first_chunk_mut::<HEAD_LEN>().and_then(|head| head.get_mut(3)) {
        // bits 3:0 of the byte are reserved, and stay as the sender has set them
        *place = ld << 4 | *place & 0xF;
    }
}

/// The fields that decide where a message goes: opcode, address and length. `None` where
/// [`MemMessage::parse`] would refuse the header.
#[inline]
#[must_use]
pub const fn fast_mem(head: &[u8; HEAD_LEN]) -> Option<(MemOp, Hpa, usize)> {
    match MemOp::of(head) {
        Ok(op) => Some((op, Hpa(be64::<8, _>(head) & ADDR_MASK), op.message_len())),
        Err(_) => None,
    }
}

/// A message with its data.
#[derive(Clone, Copy, Debug)]
pub struct MemMessage<'a> {
    /// Fields of the first 16 bytes.
    pub head: MemHead,
    /// The line of 64 bytes; of classes with data only.
    pub data: Option<&'a [u8; LINE]>,
    /// Which bytes of the line count, bit 0 for the first.
    pub enables: Option<u64>,
}

impl<'a> MemMessage<'a> {
    /// Reads a message at the front of `bytes`; bytes behind it are padding.
    ///
    /// # Errors
    /// `bytes` ends too soon; an unknown class or opcode; a BEP bit that does not fit the opcode.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (head, rest) = match cut::<HEAD_LEN>(bytes, Layer::CxlMem) {
            Ok(parts) => parts,
            Err(error) => return Err(error),
        };
        let op = match MemOp::of(head) {
            Ok(op) => op,
            Err(error) => return Err(error),
        };
        let mut message = Self { head: MemHead::decode(op, head), data: None, enables: None };
        if !op.class().has_data() {
            return Ok(message);
        }
        let Some((data, rest)) = rest.split_first_chunk() else {
            return Err(ParseError::short(Layer::CxlMem, HEAD_LEN + LINE, bytes.len()));
        };
        message.data = Some(data);
        if op.has_enables() {
            let Some((enables, _)) = rest.split_first_chunk() else {
                return Err(ParseError::short(Layer::CxlMem, LEN_MAX, bytes.len()));
            };
            message.enables = Some(u64::from_le_bytes(*enables));
        }
        Ok(message)
    }

    /// Length of the message on the wire.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.head.op.message_len()
    }

    /// Never: there is no message of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Writes the message at the front of `out`; returns its length. A class with data but no
    /// line sends zeros; a `MemWrPtl` without enables writes no byte.
    ///
    /// # Errors
    /// [`ParseError::Short`] when there is no room.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, ParseError> {
        let op = self.head.op;
        let len = op.message_len();
        let had = out.len();
        let short = ParseError::short(Layer::CxlMem, len, had);
        let (head, rest) = out.split_first_chunk_mut().ok_or(short)?;
        *head = self.head.emit();
        if op.class().has_data() {
            // the opcode alone gives the receiver the length, so that a missing line is sent as
            // zeros
            let (line, rest) = rest.split_first_chunk_mut().ok_or(short)?;
            *line = self.data.copied().unwrap_or([0; LINE]);
            if op.has_enables() {
                *rest.first_chunk_mut().ok_or(short)? = self.enables.unwrap_or(0).to_le_bytes();
            }
        }
        Ok(len)
    }
}

const fn refused(field: Field, value: u8) -> ParseError {
    ParseError::Value { layer: Layer::CxlMem, field, value: value as u16 }
}

#[cfg(test)]
mod tests;
