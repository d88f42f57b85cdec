//! MLD port commands 5300h to 5302h: tunnelled messages, and requests to a logical device.
//!
//! [`TunnelRequest`] and [`TunnelResponse`] wrap a CCI message; [`LdMemRequest`] moves up to 4,096
//! bytes.
//!
//! Source: docs/spec/wire-formats.md §4.1, §4.3; CXL 3.1 section 7.6.7.3.

use super::layout::{codes, message, record};
use super::switch::ConfigAccess;
use super::wire::{Payload, Wire, exact, front, get, put_front, refused, room, set};
use crate::{Field, ParseError};

codes! {
    /// Receiver of a tunnelled message.
    enum TunnelTarget: Kind, 0xF {
        /// The port or LD with the id of the request.
        0 => PortOrLd,
        /// The LD pool (LD `0xFFFF`) behind the port.
        1 => LdPool,
    }
}

message! {
    /// Request of Tunnel Management Command (5300h).
    struct TunnelRequest: 4 {
        /// Number of the port (to a switch) or LD (to an MLD).
        0 => id: u8,
        /// Kind of receiver; bits 3:0.
        1 => target: TunnelTarget,
    }
    /// The CCI message, perhaps with its MCTP message type in front.
    2 as u16 => message: [u8]
}

message! {
    /// Response of Tunnel Management Command (5300h) and of Fabric Crawl Out (5701h).
    struct TunnelResponse: 4 {}
    /// The CCI message that answers, with its MCTP message type in front if the request had it.
    0 as u16 => message: [u8]
}

record! {
    /// Request of Send LD CXL.io Configuration Request (5301h).
    struct LdConfig: 12 {
        /// Physical port that the MLD is behind.
        0 => port: u8,
        /// Register, byte enables and direction.
        1 => access: ConfigAccess,
        /// LD-ID of the logical device.
        4 => ld: u16,
        /// Data to write; ignored for a read.
        8 => data: u32,
    }
}

/// Byte enables of a memory cycle, and whether it writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemAccess {
    /// First DW byte enables, 4 bits.
    pub first_be: u8,
    /// Last DW byte enables, 4 bits.
    pub last_be: u8,
    /// Writes instead of reading.
    pub write: bool,
}

impl Wire for MemAccess {
    const LEN: usize = 3;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [_, mid, high] = front(bytes)?;
        Ok(Self { first_be: mid >> 4, last_be: high & 0xF, write: high & 0x80 != 0 })
    }

    fn write(&self, bytes: &mut [u8]) {
        let high = (self.last_be & 0xF) | (u8::from(self.write) << 7);
        put_front(bytes, [0, self.first_be << 4, high]);
    }
}

/// Request of Send LD CXL.io Memory Request (5302h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LdMemRequest<'a> {
    /// Physical port that the MLD is behind.
    pub port: u8,
    /// Byte enables and direction.
    pub access: MemAccess,
    /// LD-ID of the logical device.
    pub ld: u16,
    /// Bytes to read or write, 0..=4,096.
    pub len: u16,
    /// Offset in bytes from the start of the LD's BAR 0.
    pub offset: u64,
    /// Data to write, `len` bytes; empty for a read.
    pub data: &'a [u8],
}

impl LdMemRequest<'_> {
    /// Bytes before the data.
    const HEAD: usize = 16;
    /// Most bytes of a request.
    pub const LEN_MAX: u16 = 4_096;

    /// Length of the data behind the head: only writes have some.
    fn data_len(&self) -> usize {
        if self.access.write { usize::from(self.len) } else { 0 }
    }
}

impl<'a> Payload<'a> for LdMemRequest<'a> {
    fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        // the last field also finds that the head is whole
        let offset = get(payload, 8)?;
        let request = Self {
            port: get(payload, 0)?,
            access: get(payload, 1)?,
            ld: get(payload, 4)?,
            len: get(payload, 6)?,
            offset,
            data: payload.get(Self::HEAD..).unwrap_or_default(),
        };
        exact(payload, Self::HEAD + request.data_len())?;
        if request.len > Self::LEN_MAX {
            return Err(refused(Field::Size, request.len));
        }
        Ok(request)
    }

    fn emit(&self, out: &mut [u8]) -> Option<usize> {
        if self.data.len() != self.data_len() || self.len > Self::LEN_MAX {
            return None;
        }
        let end = Self::HEAD + self.data.len();
        let place = room(out, end)?;
        set(place, 0, &self.port);
        set(place, 1, &self.access);
        set(place, 4, &self.ld);
        set(place, 6, &self.len);
        set(place, 8, &self.offset);
        place.get_mut(Self::HEAD..)?.copy_from_slice(self.data);
        Some(end)
    }
}

message! {
    /// Response of Send LD CXL.io Memory Request (5302h).
    struct LdMemResponse: 4 {}
    /// Data that was read; empty for a write.
    0 as u16 => data: [u8]
}
