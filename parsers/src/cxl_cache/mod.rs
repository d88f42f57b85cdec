//! CXL.cache messages on Ethernet links.
//!
//! [`CacheMessage`] reads and emits 16 bytes and the line that may follow. Class and opcode are one
//! byte, [`CacheOp`]. A device asks its host for lines of the host's memory (D2H), the host snoops the
//! device (H2D); which device is meant is its `CacheID`, which the switches set and route by, never
//! the device.
//!
//! Source: CXL 3.1 sections 3.2.4 and 3.2.5 (fields and codes); their places are proposed in
//! docs/spec/wire-formats.md §3.12.

use crate::bytes::{be16, be64, byte, cut, put};
use crate::cxl_mem::{LINE, Lease};
use crate::error::{Field, Layer, ParseError};
use crate::fabric::Hpa;
use crate::message_ops::message_ops;

/// Bytes of a message without data.
pub const HEAD_LEN: usize = 16;
/// Bytes of byte enables.
const ENABLES_LEN: usize = 8;
/// Bytes of the longest message.
pub const LEN_MAX: usize = HEAD_LEN + LINE + ENABLES_LEN;
/// Bits of an address that a message carries: 51:6.
const ADDR_MASK: u64 = (1 << 52) - LINE as u64;
/// Bits of a CQID or UQID, and of `RspData`.
const ID_MASK: u16 = 0xFFF;

message_ops! {
    /// Message of CXL.cache. Its number is the first byte on the wire: class in 7:5, opcode in 4:0.
    CacheOp {
        /// Reads the current value; the device keeps no copy.
        RdCurr = 0x21, "RdCurr";
        /// Reads a line to own it.
        RdOwn = 0x22, "RdOwn";
        /// Reads a line to share it.
        RdShared = 0x23, "RdShared";
        /// Reads a line in whatever state there is.
        RdAny = 0x24, "RdAny";
        /// Asks for ownership of a line without its data.
        RdOwnNoData = 0x25, "RdOwnNoData";
        /// Takes a line exclusively and writes it back at once.
        ItoMWr = 0x26, "ItoMWr";
        /// Writes a line to memory (`MemWr` in CXL 1.1).
        WrCur = 0x27, "WrCur";
        /// Flushes a line out of all caches.
        ClFlush = 0x28, "CLFlush";
        /// Offers an unmodified line that leaves the cache.
        CleanEvict = 0x29, "CleanEvict";
        /// Writes back a modified line that leaves the cache.
        DirtyEvict = 0x2A, "DirtyEvict";
        /// Says that an unmodified line leaves the cache.
        CleanEvictNoData = 0x2B, "CleanEvictNoData";
        /// Weakly ordered write of enabled bytes.
        WoWrInv = 0x2C, "WOWrInv";
        /// Weakly ordered write of a whole line.
        WoWrInvF = 0x2D, "WOWrInvF";
        /// Strongly ordered write of enabled bytes.
        WrInv = 0x2E, "WrInv";
        /// The device's cache holds nothing any more.
        CacheFlushed = 0x30, "CacheFlushed";
        /// The cache had the line shared, and keeps it so.
        RspSHitSE = 0x41, "RspSHitSE";
        /// The cache has not had the line.
        RspIHitI = 0x44, "RspIHitI";
        /// The cache had the line unmodified, and keeps nothing.
        RspIHitSE = 0x45, "RspIHitSE";
        /// The cache keeps the line as it was; memory is current.
        RspVHitV = 0x46, "RspVHitV";
        /// The modified line follows; the cache keeps a shared copy.
        RspSFwdM = 0x47, "RspSFwdM";
        /// The modified line follows; the cache keeps nothing.
        RspIFwdM = 0x4F, "RspIFwdM";
        /// The current line follows; the cache keeps it as it was.
        RspVFwdV = 0x56, "RspVFwdV";
        /// A line from device to host.
        DataToHost = 0x60, "D2H Data";
        /// Asks for a line, and leaves it shared.
        SnpData = 0x81, "SnpData";
        /// Asks for a line, and leaves nothing.
        SnpInv = 0x82, "SnpInv";
        /// Asks for a line's value.
        SnpCur = 0x83, "SnpCur";
        /// The device is to send the data of its write.
        WritePull = 0xA1, "WritePull";
        /// Globally observed: the state that is granted is in `RspData`.
        Go = 0xA4, "GO";
        /// Globally observed, and the device is to send its data.
        GoWritePull = 0xA5, "GO_WritePull";
        /// A weakly ordered write is globally observed.
        ExtCmp = 0xA6, "ExtCmp";
        /// Globally observed; the data is not wanted.
        GoWritePullDrop = 0xA8, "GO_WritePull_Drop";
        /// Locally observed, and the device is to send its data.
        FastGoWritePull = 0xAD, "Fast_GO_WritePull";
        /// The write failed; the device is to send its data, which is dropped.
        GoErrWritePull = 0xAF, "GO_ERR_WritePull";
        /// A line from host to device.
        DataToDevice = 0xC0, "H2D Data";
    }
}

/// Class of a message: direction and channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CacheClass {
    /// Request of a device.
    D2hReq = 1,
    /// Answer of a device to a snoop.
    D2hRsp = 2,
    /// Line of a device.
    D2hData = 3,
    /// Snoop of the host.
    H2dReq = 4,
    /// Answer of the host to a request.
    H2dRsp = 5,
    /// Line of the host.
    H2dData = 6,
}

impl CacheClass {
    /// Its name, as the standard spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::D2hReq => "D2H Req",
            Self::D2hRsp => "D2H Rsp",
            Self::D2hData => "D2H Data",
            Self::H2dReq => "H2D Req",
            Self::H2dRsp => "H2D Rsp",
            Self::H2dData => "H2D Data",
        }
    }

    /// Whether it goes from a device to its host.
    #[inline]
    #[must_use]
    pub const fn is_to_host(self) -> bool {
        matches!(self, Self::D2hReq | Self::D2hRsp | Self::D2hData)
    }

    /// Whether 64 bytes of data follow.
    #[inline]
    #[must_use]
    pub const fn has_data(self) -> bool {
        matches!(self, Self::D2hData | Self::H2dData)
    }

    /// Whether it names a line. A D2H Rsp names the line of its snoop, or 0, which is weft's own choice.
    #[inline]
    const fn has_addr(self) -> bool {
        matches!(self, Self::D2hReq | Self::D2hRsp | Self::H2dReq)
    }

    /// Whether it tells the device how long it may use its lines; weft's own.
    #[inline]
    const fn has_lease(self) -> bool {
        matches!(self, Self::H2dRsp | Self::H2dData)
    }
}

impl CacheOp {
    /// Class of the message, bits 7:5 of its number.
    #[inline]
    #[must_use]
    pub const fn class(self) -> CacheClass {
        match self as u8 >> 5 {
            1 => CacheClass::D2hReq,
            2 => CacheClass::D2hRsp,
            3 => CacheClass::D2hData,
            4 => CacheClass::H2dReq,
            5 => CacheClass::H2dRsp,
            _ => CacheClass::H2dData,
        }
    }

    /// Opcode within the class, as in the standard.
    #[inline]
    #[must_use]
    pub const fn opcode(self) -> u8 {
        self as u8 & 0x1F
    }
}

/// State of a line that a GO grants: codes of `RspData` (CXL 3.1, table "H2D Response MESI encodings").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum GoState {
    /// It may be read.
    Shared = 0b0001,
    /// It may be read and changed.
    Exclusive = 0b0010,
    /// The cache keeps no copy.
    Invalid = 0b0011,
    /// The request failed, and nothing is granted.
    Error = 0b0100,
    /// It may be read and changed, and is to be written back.
    Modified = 0b0110,
}

impl GoState {
    /// Reads the field; `None` of codes that the standard reserves.
    #[inline]
    #[must_use]
    pub const fn decode(bits: u16) -> Option<Self> {
        Some(match bits & 0xF {
            0b0001 => Self::Shared,
            0b0010 => Self::Exclusive,
            0b0011 => Self::Invalid,
            0b0100 => Self::Error,
            0b0110 => Self::Modified,
            _ => return None,
        })
    }
}

/// Fields of a message. Those that its class does not have are 0.
#[expect(clippy::struct_excessive_bools, reason = "each is a bit of the message")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheHead {
    /// Class and opcode, byte 0.
    pub op: CacheOp,
    /// Non-temporal: the line is not used again soon. Of a D2H Req.
    pub non_temporal: bool,
    /// The data is bad.
    pub poison: bool,
    /// The data is old, as a snoop took the line first. Of D2H Data.
    pub bogus: bool,
    /// The request failed, and the data is all ones. Of H2D Data.
    pub go_err: bool,
    /// Where the host found the line (`RSP_PRE`), 2 bits. Of an H2D Rsp.
    pub pre: u8,
    /// Which cache of the host's hierarchy, 4 bits.
    pub cache_id: u8,
    /// CQID of the device's request, or UQID of the host, 12 bits.
    pub id: u16,
    /// State that is granted, or UQID of a write pull, 12 bits. Of an H2D Rsp.
    pub rsp_data: u16,
    /// Address of the line, of classes that name one; bits 51:6.
    pub addr: Hpa,
    /// How long the device may use the line that it gets; of H2D Rsp and Data.
    pub lease: Lease,
}

impl CacheHead {
    /// A message with all other fields 0.
    #[must_use]
    pub const fn new(op: CacheOp, id: u16) -> Self {
        Self {
            op,
            non_temporal: false,
            poison: false,
            bogus: false,
            go_err: false,
            pre: 0,
            cache_id: 0,
            id,
            rsp_data: 0,
            addr: Hpa(0),
            lease: Lease::NONE,
        }
    }

    /// Reads the fields that the message's class has.
    #[inline]
    const fn decode(op: CacheOp, head: &[u8; HEAD_LEN]) -> Self {
        // a field that the class does not have reads as 0, whatever its bits are: they are reserved
        // there
        let (class, flags, ids) = (op.class(), byte::<1, _>(head), be16::<2, _>(head));
        Self {
            op,
            non_temporal: matches!(class, CacheClass::D2hReq) && flags & NT != 0,
            poison: class.has_data() && flags & POISON != 0,
            bogus: matches!(class, CacheClass::D2hData) && flags & BOGUS != 0,
            go_err: matches!(class, CacheClass::H2dData) && flags & GO_ERR != 0,
            pre: if matches!(class, CacheClass::H2dRsp) { flags & PRE } else { 0 },
            cache_id: byte::<2, _>(head) >> 4,
            id: ids & ID_MASK,
            rsp_data: if matches!(class, CacheClass::H2dRsp) {
                be16::<4, _>(head) & ID_MASK
            } else {
                0
            },
            addr: Hpa(if class.has_addr() { be64::<8, _>(head) & ADDR_MASK } else { 0 }),
            lease: if class.has_lease() {
                Lease { number: be64::<8, _>(head), term: be16::<6, _>(head) }
            } else {
                Lease::NONE
            },
        }
    }

    /// The bytes of the fields that the message's class has; the others are 0.
    #[inline]
    const fn emit(&self, has_enables: bool) -> [u8; HEAD_LEN] {
        let class = self.op.class();
        let mut flags = if has_enables { BEP } else { 0 };
        if matches!(class, CacheClass::D2hReq) && self.non_temporal {
            flags |= NT;
        }
        if class.has_data() && self.poison {
            flags |= POISON;
        }
        if matches!(class, CacheClass::D2hData) && self.bogus {
            flags |= BOGUS;
        }
        if matches!(class, CacheClass::H2dData) && self.go_err {
            flags |= GO_ERR;
        }
        let mut head = [0; HEAD_LEN];
        if matches!(class, CacheClass::H2dRsp) {
            flags |= self.pre & PRE;
            put::<4, 2, _>(&mut head, (self.rsp_data & ID_MASK).to_be_bytes());
        }
        put::<0, 2, _>(&mut head, [self.op as u8, flags]);
        let ids = ((self.cache_id & 0xF) as u16) << 12 | self.id & ID_MASK;
        put::<2, 2, _>(&mut head, ids.to_be_bytes());
        // bytes 8 to 15 hold a lease in answers to a device, and the address in a message that
        // names a line; no class has both
        let last = if class.has_lease() {
            put::<6, 2, _>(&mut head, self.lease.term.to_be_bytes());
            self.lease.number
        } else if class.has_addr() {
            self.addr.0 & ADDR_MASK
        } else {
            0
        };
        put::<8, 8, _>(&mut head, last.to_be_bytes());
        head
    }
}

const NT: u8 = 1 << 7;
const POISON: u8 = 1 << 6;
const BOGUS: u8 = 1 << 5;
const GO_ERR: u8 = 1 << 4;
/// Byte enables follow the data.
const BEP: u8 = 1 << 3;
const PRE: u8 = 3;

/// Puts a `CacheID`, 4 bits, into the message at the front of `bytes`; shorter ones stay as they are.
#[inline]
pub fn set_cache_id(bytes: &mut [u8], cache_id: u8) {
    if let Some(place) = bytes.first_chunk_mut::<HEAD_LEN>().and_then(|head| head.get_mut(2)) {
        // bits 3:0 of the byte belong to the CQID or UQID
        *place = cache_id << 4 | *place & 0xF;
    }
}

/// A message with its data.
#[derive(Clone, Copy, Debug)]
pub struct CacheMessage<'a> {
    /// Fields of the first 16 bytes.
    pub head: CacheHead,
    /// The line of 64 bytes; of classes with data only.
    pub data: Option<&'a [u8; LINE]>,
    /// Byte enables of D2H Data, bit 0 for the first byte of the line; without them all bytes count.
    pub enables: Option<u64>,
}

impl<'a> CacheMessage<'a> {
    /// A message without data.
    #[must_use]
    pub const fn of(head: CacheHead) -> Self {
        Self { head, data: None, enables: None }
    }

    /// Reads a message at the front of `bytes`; bytes behind it are padding.
    ///
    /// # Errors
    /// `bytes` ends too soon; an unknown class or opcode; byte enables on anything but D2H Data.
    #[inline]
    pub const fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (head, rest) = match cut::<HEAD_LEN>(bytes, Layer::CxlCache) {
            Ok(parts) => parts,
            Err(error) => return Err(error),
        };
        let Some(op) = CacheOp::decode(byte::<0, _>(head)) else {
            return Err(refused(Field::Opcode, byte::<0, _>(head)));
        };
        let has_enables = byte::<1, _>(head) & BEP != 0;
        // BEP tells the length: on any other class it is malformed, not ignored
        if has_enables && !matches!(op, CacheOp::DataToHost) {
            return Err(refused(Field::ByteEnables, byte::<1, _>(head)));
        }
        let mut message = Self::of(CacheHead::decode(op, head));
        if !op.class().has_data() {
            return Ok(message);
        }
        let Some((data, rest)) = rest.split_first_chunk() else {
            return Err(ParseError::short(Layer::CxlCache, HEAD_LEN + LINE, bytes.len()));
        };
        message.data = Some(data);
        if has_enables {
            let Some((enables, _)) = rest.split_first_chunk() else {
                return Err(ParseError::short(Layer::CxlCache, LEN_MAX, bytes.len()));
            };
            message.enables = Some(u64::from_le_bytes(*enables));
        }
        Ok(message)
    }

    /// Length of the message on the wire: 16, 80 or 88 bytes.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        match (self.head.op.class().has_data(), self.has_enables()) {
            (false, _) => HEAD_LEN,
            (true, false) => HEAD_LEN + LINE,
            (true, true) => LEN_MAX,
        }
    }

    /// Never: there is no message of no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    #[inline]
    const fn has_enables(&self) -> bool {
        self.enables.is_some() && matches!(self.head.op, CacheOp::DataToHost)
    }

    /// Writes the message at the front of `out`; returns its length. A class with data but no line sends
    /// zeros.
    ///
    /// # Errors
    /// [`ParseError::Short`] when there is no room.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, ParseError> {
        let (len, had) = (self.len(), out.len());
        let short = ParseError::short(Layer::CxlCache, len, had);
        let (head, rest) = out.split_first_chunk_mut().ok_or(short)?;
        *head = self.head.emit(self.has_enables());
        if self.head.op.class().has_data() {
            let (line, rest) = rest.split_first_chunk_mut().ok_or(short)?;
            // the class alone gives the receiver the length, so that a missing line is sent as
            // zeros
            *line = self.data.copied().unwrap_or([0; LINE]);
            if let Some(enables) = self.enables.filter(|_| self.has_enables()) {
                *rest.first_chunk_mut().ok_or(short)? = enables.to_le_bytes();
            }
        }
        Ok(len)
    }
}

const fn refused(field: Field, value: u8) -> ParseError {
    ParseError::Value { layer: Layer::CxlCache, field, value: value as u16 }
}

#[cfg(test)]
mod tests;
