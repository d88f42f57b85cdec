//! Kinds of TLPs: header mode, kind, routing of messages and class of flow control.
//!
//! First byte of the header <-> ([`Kind`], 4-DW address or not), one table for each [`Mode`].
//!
//! Source: PCIe 5.0 table 2-3, PCIe 6.0 table 2-5; docs/spec/wire-formats.md §3.1, §3.5.

/// Which of the two header layouts a link uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// PCIe 5.0 and before: Fmt and Type, TLP prefixes.
    NonFlit,
    /// PCIe 6.0: 8-bit Type, orthogonal header content (OHC).
    Flit,
}

/// How a message is routed: `r[2:0]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Routing {
    /// 000: up to the root complex.
    ToRoot,
    /// 001: by address, as a memory request.
    Address,
    /// 010: by the destination's routing id.
    Id,
    /// 011: from the root complex down to every port.
    Broadcast,
    /// 100: ends at the receiver.
    Local,
    /// 101: gathered, then up to the root complex.
    Gather,
}

impl Routing {
    const ALL: [Self; 6] =
        [Self::ToRoot, Self::Address, Self::Id, Self::Broadcast, Self::Local, Self::Gather];

    const fn decode(bits: u8) -> Option<Self> {
        let [to_root, address, id, broadcast, local, gather] = Self::ALL;
        Some(match bits {
            0 => to_root,
            1 => address,
            2 => id,
            3 => broadcast,
            4 => local,
            5 => gather,
            _ => return None,
        })
    }
}

/// Class of flow-control credits that a TLP takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flow {
    /// Posted requests: memory writes, messages and UIO writes.
    Posted,
    /// Non-posted requests: reads, atomics, I/O and configuration.
    NonPosted,
    /// Completions of all kinds.
    Completion,
}

/// Kind of a TLP: a request, or the completion of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `NOP`; flit mode only, one DW.
    Nop,
    /// Memory read (`MRd`).
    MemRead,
    /// Locked memory read (`MRdLk`).
    MemReadLocked,
    /// Memory write (`MWr`).
    MemWrite,
    /// `DMWr`: a memory write that is completed.
    DeferrableMemWrite,
    /// I/O read (`IORd`).
    IoRead,
    /// I/O write (`IOWr`).
    IoWrite,
    /// Configuration read (`CfgRd0`, `CfgRd1`).
    CfgRead {
        /// On its way to a bus behind the next bridge.
        type1: bool,
    },
    /// Configuration write (`CfgWr0`, `CfgWr1`).
    CfgWrite {
        /// On its way to a bus behind the next bridge.
        type1: bool,
    },
    /// `Cpl`, `CplD`, `CplLk`, `CplDLk`.
    Completion {
        /// It completes a locked read (`MRdLk`).
        locked: bool,
        /// A payload follows (`CplD`, `CplDLk`).
        data: bool,
    },
    /// Message without or with data (`Msg`, `MsgD`).
    Message {
        /// How it is routed.
        routing: Routing,
        /// A payload follows (`MsgD`).
        data: bool,
    },
    /// Atomic add (`FetchAdd`), of 4 or 8 bytes.
    FetchAdd,
    /// Atomic exchange (`Swap`), of 4 or 8 bytes.
    Swap,
    /// Atomic compare and swap (`CAS`), of 4, 8 or 16 bytes.
    Cas,
    /// `UIOMRd`; flit mode only, as all UIO.
    UioRead,
    /// UIO memory write (`UIOMWr`); it is completed.
    UioWrite,
    /// Completion of a UIO read (`UIORdCpl`, `UIORdCplD`).
    UioReadCompletion {
        /// A payload follows (`UIORdCplD`).
        data: bool,
    },
    /// Completion of a UIO write (`UIOWrCpl`).
    UioWriteCompletion,
}

impl Kind {
    /// Reads the first byte of a header; also whether its address has 64 bits. `None` if reserved.
    #[must_use]
    pub const fn decode(mode: Mode, byte: u8) -> Option<(Self, bool)> {
        match mode {
            Mode::NonFlit => Self::decode_non_flit(byte),
            Mode::Flit => Self::decode_flit(byte),
        }
    }

    const fn decode_non_flit(byte: u8) -> Option<(Self, bool)> {
        Some(match byte {
            0x00 => (Self::MemRead, false),
            0x20 => (Self::MemRead, true),
            _ => return Self::decode_both(byte),
        })
    }

    const fn decode_flit(byte: u8) -> Option<(Self, bool)> {
        Some(match byte {
            // 00 is the NOP, so that a 32-bit read has another code than in non-flit mode
            0x00 => (Self::Nop, false),
            0x03 => (Self::MemRead, false),
            // UIO has no form in non-flit mode, where these codes are reserved
            0x0C => (Self::UioWriteCompletion, false),
            0x0D => (Self::UioReadCompletion { data: false }, false),
            0x20 => (Self::MemRead, true),
            0x22 => (Self::UioRead, true),
            0x48 => (Self::UioReadCompletion { data: true }, false),
            0x61 => (Self::UioWrite, true),
            _ => return Self::decode_both(byte),
        })
    }

    /// The types that have one code in both modes.
    const fn decode_both(byte: u8) -> Option<(Self, bool)> {
        Some(match byte {
            0x01 => (Self::MemReadLocked, false),
            0x21 => (Self::MemReadLocked, true),
            0x40 => (Self::MemWrite, false),
            0x60 => (Self::MemWrite, true),
            0x5B => (Self::DeferrableMemWrite, false),
            0x7B => (Self::DeferrableMemWrite, true),
            0x02 => (Self::IoRead, false),
            0x42 => (Self::IoWrite, false),
            0x04 | 0x05 => (Self::CfgRead { type1: byte & 1 == 1 }, false),
            0x44 | 0x45 => (Self::CfgWrite { type1: byte & 1 == 1 }, false),
            0x0A | 0x0B | 0x4A | 0x4B => {
                (Self::Completion { locked: byte & 1 == 1, data: byte & 0x40 != 0 }, false)
            }
            0x4C => (Self::FetchAdd, false),
            0x6C => (Self::FetchAdd, true),
            0x4D => (Self::Swap, false),
            0x6D => (Self::Swap, true),
            0x4E => (Self::Cas, false),
            0x6E => (Self::Cas, true),
            0x30..=0x37 | 0x70..=0x77 => match Routing::decode(byte & 7) {
                Some(routing) => (Self::Message { routing, data: byte & 0x40 != 0 }, true),
                None => return None,
            },
            _ => return None,
        })
    }

    /// First byte of the header; `wide` asks for a 64-bit address where there is a choice.
    /// `None` when `mode` has no such TLP.
    #[must_use]
    pub const fn byte(self, mode: Mode, wide: bool) -> Option<u8> {
        // bit 5 of the byte tells a 4-DW header in both modes
        let four = if wide { 0x20 } else { 0 };
        Some(match self {
            Self::MemRead => match mode {
                Mode::Flit if !wide => 0x03,
                _ => four,
            },
            Self::MemReadLocked => 0x01 | four,
            Self::MemWrite => 0x40 | four,
            Self::DeferrableMemWrite => 0x5B | four,
            Self::IoRead => 0x02,
            Self::IoWrite => 0x42,
            Self::CfgRead { type1 } => 0x04 | type1 as u8,
            Self::CfgWrite { type1 } => 0x44 | type1 as u8,
            Self::Completion { locked, data } => 0x0A | locked as u8 | (data as u8) << 6,
            Self::Message { routing, data } => 0x30 | routing as u8 | (data as u8) << 6,
            Self::FetchAdd => 0x4C | four,
            Self::Swap => 0x4D | four,
            Self::Cas => 0x4E | four,
            _ => match mode {
                Mode::NonFlit => return None,
                Mode::Flit => match self {
                    Self::UioRead => 0x22,
                    Self::UioWrite => 0x61,
                    Self::UioReadCompletion { data: false } => 0x0D,
                    Self::UioReadCompletion { data: true } => 0x48,
                    Self::UioWriteCompletion => 0x0C,
                    _ => 0x00,
                },
            },
        })
    }

    /// Bytes of the base header: one DW for `NOP`, else three or four.
    #[inline]
    #[must_use]
    pub const fn base_len(self, wide: bool) -> usize {
        match self {
            Self::Nop => 4,
            _ if wide => 16,
            _ => 12,
        }
    }

    /// Whether a payload follows the header.
    #[inline]
    #[must_use]
    pub const fn has_data(self) -> bool {
        match self {
            Self::MemWrite
            | Self::DeferrableMemWrite
            | Self::IoWrite
            | Self::CfgWrite { .. }
            | Self::FetchAdd
            | Self::Swap
            | Self::Cas
            | Self::UioWrite => true,
            Self::Completion { data, .. }
            | Self::Message { data, .. }
            | Self::UioReadCompletion { data } => data,
            _ => false,
        }
    }

    /// Which credits it takes. `UIOMWr` takes posted ones and is completed all the same.
    #[inline]
    #[must_use]
    pub const fn flow(self) -> Flow {
        match self {
            Self::MemWrite | Self::Message { .. } | Self::UioWrite | Self::Nop => Flow::Posted,
            Self::Completion { .. } | Self::UioReadCompletion { .. } | Self::UioWriteCompletion => {
                Flow::Completion
            }
            _ => Flow::NonPosted,
        }
    }

    /// Whether the requester waits for a completion: non-posted requests and `UIOMWr`.
    #[inline]
    #[must_use]
    pub const fn wants_completion(self) -> bool {
        matches!(self.flow(), Flow::NonPosted) || matches!(self, Self::UioWrite)
    }

    /// Whether it is a UIO request or completion.
    #[inline]
    #[must_use]
    pub const fn is_uio(self) -> bool {
        self.is_uio_request() || self.is_uio_completion()
    }

    /// Whether it is a UIO read or write (`UIOMRd`, `UIOMWr`).
    #[inline]
    #[must_use]
    pub const fn is_uio_request(self) -> bool {
        matches!(self, Self::UioRead | Self::UioWrite)
    }

    /// Whether it is a UIO completion (`UIORdCpl`, `UIORdCplD`, `UIOWrCpl`).
    #[inline]
    #[must_use]
    pub const fn is_uio_completion(self) -> bool {
        matches!(self, Self::UioReadCompletion { .. } | Self::UioWriteCompletion)
    }

    /// Whether it is routed by a memory address: reads, writes, atomics and UIO requests.
    #[inline]
    #[must_use]
    pub const fn is_memory(self) -> bool {
        self.is_uio_request()
            || self.is_atomic()
            || matches!(
                self,
                Self::MemRead | Self::MemReadLocked | Self::MemWrite | Self::DeferrableMemWrite
            )
    }

    /// Whether it is atomic (`FetchAdd`, `Swap`, `CAS`).
    #[inline]
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::Swap | Self::Cas)
    }

    /// Whether it is an I/O request (`IORd`, `IOWr`).
    #[inline]
    #[must_use]
    pub const fn is_io(self) -> bool {
        matches!(self, Self::IoRead | Self::IoWrite)
    }

    /// `CfgRd0`, `CfgRd1`, `CfgWr0`, `CfgWr1`.
    #[inline]
    #[must_use]
    pub const fn is_config(self) -> bool {
        matches!(self, Self::CfgRead { .. } | Self::CfgWrite { .. })
    }
}
