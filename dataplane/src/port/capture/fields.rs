//! Fields of a capture file: numbers in the byte order of a file or section, and options.
//!
//! Every getter returns `None` at the end of the bytes.
//!
//! Source: draft-ietf-opsawg-pcapng-05, 3.5 (options).

/// Byte order of a file or section.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub big: bool,
}

impl Order {
    /// The order in which `bytes` reads as `magic`.
    pub fn of(bytes: [u8; 4], magic: u32) -> Option<Self> {
        match (u32::from_le_bytes(bytes) == magic, u32::from_be_bytes(bytes) == magic) {
            (true, _) => Some(Self { big: false }),
            (_, true) => Some(Self { big: true }),
            _ => None,
        }
    }

    pub fn u16(self, bytes: [u8; 2]) -> u16 {
        if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    pub fn u32(self, bytes: [u8; 4]) -> u32 {
        if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    pub fn u64(self, bytes: [u8; 8]) -> u64 {
        if self.big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) }
    }
}

/// The rest of a block; every getter returns `None` at its end.
pub(super) struct Fields<'a> {
    pub rest: &'a [u8],
    pub order: Order,
}

impl<'a> Fields<'a> {
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(|b| self.order.u16(b))
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(|b| self.order.u32(b))
    }

    /// Takes `len` bytes and skips the padding to a multiple of four; missing padding is not an error.
    pub fn padded(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest.get(len.next_multiple_of(4) - len..).unwrap_or_default();
        Some(head)
    }

    /// Next option; `None` at the end mark, at the end of the block and at a cut-off option.
    pub fn option(&mut self) -> Option<(u16, &'a [u8])> {
        let code = self.u16()?;
        let len = self.u16()?;
        // A cut-off option ends the list without an error: the packet in front of it is whole.
        let value = self.padded(usize::from(len))?;
        (code != 0).then_some((code, value))
    }
}
