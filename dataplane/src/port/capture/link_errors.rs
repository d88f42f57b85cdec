//! Link errors that a pcapng capture reports for a frame (the upper half of `epb_flags`), and their effect on a port
//! that receives it.
//!
//! Source: draft-ietf-opsawg-pcapng-05, 4.3.1 (`epb_flags`).

/// Errors that the device saw when it received a frame: bits 16 to 31 of `epb_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkErrors(u16);

/// Bits of [`LinkErrors`] and their names. Bits 16 to 23 of `epb_flags` have no meaning.
const NAMES: [(u16, &str); 8] = [
    (CRC, "crc"),
    (TOO_LONG, "too_long"),
    (TOO_SHORT, "too_short"),
    (1 << 11, "interframe_gap"),
    (UNALIGNED, "unaligned"),
    (START_DELIMITER, "start_delimiter"),
    (1 << 14, "preamble"),
    (SYMBOL, "symbol"),
];
const CRC: u16 = 1 << 8;
const TOO_LONG: u16 = 1 << 9;
const TOO_SHORT: u16 = 1 << 10;
const UNALIGNED: u16 = 1 << 12;
const START_DELIMITER: u16 = 1 << 13;
const SYMBOL: u16 = 1 << 15;

impl LinkErrors {
    /// Takes the errors out of `epb_flags`.
    #[must_use]
    pub const fn from_epb_flags(flags: u32) -> Self {
        let [_, _, low, high] = flags.to_le_bytes();
        Self(u16::from_le_bytes([low, high]))
    }

    /// Names of the errors, lowest bit first.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }

    /// Whether the frame's bytes may differ from those that were sent.
    ///
    /// A short gap and a damaged preamble do not count: they come before the frame, and a receiver takes a frame from
    /// its start delimiter on. Nor does a frame that the device found too long: the port's own `max_frame` decides
    /// that.
    #[must_use]
    pub const fn is_damaged(self) -> bool {
        self.0 & (CRC | UNALIGNED | START_DELIMITER | SYMBOL) != 0
    }

    /// Whether the frame was under 64 bytes on the wire. Without this error, a capture cannot tell such a frame from
    /// one that was captured before it was padded.
    #[must_use]
    pub const fn is_runt(self) -> bool {
        self.0 & TOO_SHORT != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bit_is_told_by_name_and_by_what_a_port_makes_of_it() {
        #[rustfmt::skip] // columns: bit of epb_flags, name, damaged, runt
        let cases = [
            (16, None,                    false, false),
            (23, None,                    false, false),
            (24, Some("crc"),             true,  false),
            (25, Some("too_long"),        false, false),
            (26, Some("too_short"),       false, true),
            (27, Some("interframe_gap"),  false, false),
            (28, Some("unaligned"),       true,  false),
            (29, Some("start_delimiter"), true,  false),
            (30, Some("preamble"),        false, false),
            (31, Some("symbol"),          true,  false),
        ];
        for (bit, name, damaged, runt) in cases {
            let errors = LinkErrors::from_epb_flags(1 << bit | 0xFFFF);
            assert_eq!(errors.names().next(), name, "{bit}");
            assert_eq!((errors.is_damaged(), errors.is_runt()), (damaged, runt), "{bit}");
        }
    }
}
