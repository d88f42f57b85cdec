//! CCI message header, categories and return codes.
//!
//! The header has 12 bytes, little-endian: category 4 bits, tag 8, opcode 16, length 21, background
//! 1, return code 16, vendor status 16. The payload follows.
//!
//! Source: docs/spec/wire-formats.md §4.1; CXL 3.1 section 7.6.3 and table 8-34.

use super::opcode::Opcode;
use crate::bytes::{byte, cut, cut_mut, put, window};
use crate::{Field, Layer, ParseError};

/// Bytes of the header.
pub const LEN: usize = 12;

/// Longest payload, 21 bits.
pub const PAYLOAD_MAX: usize = 0x1F_FFFF;

const BACKGROUND: u8 = 0x80;

/// Whether a CCI message is a request or a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Category {
    /// Sent by the requester, who waits for a response.
    #[default]
    Request = 0,
    /// Answers the request of the same tag.
    Response = 1,
    /// Tells of an event; it has no answer.
    Event = 2,
}

macro_rules! return_codes {
    ($($code:literal $variant:ident $name:literal)*) => {
        /// Return code of a CCI command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ReturnCode {
            $(
                #[doc = concat!($name, ".")]
                $variant,
            )*
            /// A code that CXL 3.1 does not know.
            Unknown(u16),
        }

        impl ReturnCode {
            /// The return code with this number.
            #[must_use]
            pub const fn from_bits(bits: u16) -> Self {
                match bits {
                    $($code => Self::$variant,)*
                    other => Self::Unknown(other),
                }
            }

            /// Number of the code, as in the header.
            #[must_use]
            pub const fn bits(self) -> u16 {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Unknown(other) => other,
                }
            }

            /// Name as in the standard.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                    Self::Unknown(_) => "Unknown",
                }
            }
        }
    };
}

return_codes! {
    0x00 Success "Success"
    0x01 BackgroundStarted "Background Command Started"
    0x02 InvalidInput "Invalid Input"
    0x03 Unsupported "Unsupported"
    0x04 InternalError "Internal Error"
    0x05 RetryRequired "Retry Required"
    0x06 Busy "Busy"
    0x07 MediaDisabled "Media Disabled"
    0x08 FwInProgress "FW Transfer in Progress"
    0x09 FwOutOfOrder "FW Transfer Out of Order"
    0x0A FwAuthenticationFailed "FW Authentication Failed"
    0x0B InvalidSlot "Invalid Slot"
    0x0C FwRolledBack "Activation Failed, FW Rolled Back"
    0x0D ColdResetRequired "Activation Failed, Cold Reset Required"
    0x0E InvalidHandle "Invalid Handle"
    0x0F InvalidPhysicalAddress "Invalid Physical Address"
    0x10 PoisonLimitReached "Inject Poison Limit Reached"
    0x11 MediaFailure "Permanent Media Failure"
    0x12 Aborted "Aborted"
    0x13 InvalidSecurityState "Invalid Security State"
    0x14 IncorrectPassphrase "Incorrect Passphrase"
    0x15 UnsupportedMailbox "Unsupported Mailbox or CCI"
    0x16 InvalidPayloadLength "Invalid Payload Length"
    0x17 InvalidLog "Invalid Log"
    0x18 Interrupted "Interrupted"
    0x19 UnsupportedFeatureVersion "Unsupported Feature Version"
    0x1A UnsupportedFeatureSelection "Unsupported Feature Selection Value"
    0x1B FeatureInProgress "Feature Transfer in Progress"
    0x1C FeatureOutOfOrder "Feature Transfer Out of Order"
    0x1D ResourcesExhausted "Resources Exhausted"
    0x1E InvalidExtentList "Invalid Extent List"
    0x1F TransferOutOfOrder "Transfer Out of Order"
    0x20 NotAbortable "Request Abort of Background Operation Not Supported"
}

/// Header of a CCI message; its length is that of the payload it is emitted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Request, response or event; byte 0, bits 3:0.
    pub category: Category,
    /// Number by which the requester matches the response with its request.
    pub tag: u8,
    /// Command that is requested or answered; bytes 3 and 4.
    pub opcode: Opcode,
    /// Byte 7, bit 7: the command runs on in the background.
    pub background: bool,
    /// Result; [`ReturnCode::Success`] in anything but a response.
    pub return_code: ReturnCode,
    /// Vendor-specific extended status; 0 in anything but a response.
    pub vendor_status: u16,
}

impl Header {
    /// Header of a request.
    #[must_use]
    pub const fn request(opcode: Opcode, tag: u8) -> Self {
        Self {
            category: Category::Request,
            tag,
            opcode,
            background: false,
            return_code: ReturnCode::Success,
            vendor_status: 0,
        }
    }

    /// Header of the response to a message with this one.
    ///
    /// The background flag follows the code: it is set with [`ReturnCode::BackgroundStarted`] only.
    #[must_use]
    pub const fn response(self, return_code: ReturnCode) -> Self {
        Self {
            category: Category::Response,
            background: matches!(return_code, ReturnCode::BackgroundStarted),
            return_code,
            vendor_status: 0,
            ..self
        }
    }

    /// Splits a message that ends where `message` does into its header and its payload.
    ///
    /// # Errors
    /// [`ParseError::Short`] when the header or the payload it names is not all there, a
    /// [`Field::Length`] when more follows, a [`Field::Category`] for a reserved category.
    pub fn parse(message: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let (header, len, rest) = Self::cut(message)?;
        if rest.len() < len {
            return Err(ParseError::short(Layer::Cci, LEN + len, message.len()));
        }
        if rest.len() > len {
            let value = u16::try_from(len).unwrap_or(u16::MAX);
            return Err(ParseError::Value { layer: Layer::Cci, field: Field::Length, value });
        }
        Ok((header, rest))
    }

    /// Reads the header at the front of `bytes`. Returns it, the length of its payload, and all
    /// that follows the header.
    ///
    /// # Errors
    /// As [`Header::parse`], except that the length may differ from the bytes that follow.
    pub fn cut(bytes: &[u8]) -> Result<(Self, usize, &[u8]), ParseError> {
        let (head, rest) = cut::<LEN>(bytes, Layer::Cci)?;
        let category = match byte::<0, _>(head) & 0xF {
            0 => Category::Request,
            1 => Category::Response,
            2 => Category::Event,
            other => {
                let value = u16::from(other);
                return Err(ParseError::Value { layer: Layer::Cci, field: Field::Category, value });
            }
        };
        let [low, mid, high] = *window::<5, 3, _>(head);
        let len = u32::from_le_bytes([low, mid, high & 0x1F, 0]);
        let header = Self {
            category,
            tag: byte::<1, _>(head),
            opcode: Opcode(u16::from_le_bytes(*window::<3, 2, _>(head))),
            background: high & BACKGROUND != 0,
            return_code: ReturnCode::from_bits(u16::from_le_bytes(*window::<8, 2, _>(head))),
            vendor_status: u16::from_le_bytes(*window::<10, 2, _>(head)),
        };
        // 21 bits fit in a `usize` on every target where a payload of that length could be in
        // memory
        Ok((header, usize::try_from(len).unwrap_or(usize::MAX), rest))
    }

    /// Writes the header of a message with `payload_len` bytes behind it to the front of `out`.
    ///
    /// `None` when it does not fit, or `payload_len` is above [`PAYLOAD_MAX`].
    pub fn emit(&self, payload_len: usize, out: &mut [u8]) -> Option<usize> {
        let (head, _) = cut_mut::<LEN>(out, Layer::Cci).ok()?;
        if payload_len > PAYLOAD_MAX {
            return None;
        }
        let [low, mid, high, _] = u32::try_from(payload_len).ok()?.to_le_bytes();
        let high = if self.background { high | BACKGROUND } else { high };
        put::<0, _, _>(head, [self.category as u8, self.tag, 0]);
        put::<3, _, _>(head, self.opcode.0.to_le_bytes());
        put::<5, _, _>(head, [low, mid, high]);
        put::<8, _, _>(head, self.return_code.bits().to_le_bytes());
        put::<10, _, _>(head, self.vendor_status.to_le_bytes());
        Some(LEN)
    }

    /// Writes a whole message, its payload by `payload`, and returns its length.
    ///
    /// `None` when it does not fit, or `payload` returns `None`.
    pub fn emit_with(
        &self,
        out: &mut [u8],
        payload: impl FnOnce(&mut [u8]) -> Option<usize>,
    ) -> Option<usize> {
        // payload first: its length goes into the header
        let len = payload(out.get_mut(LEN..)?)?;
        Some(self.emit(len, out)? + len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Rng, refuses_shorter_of};

    fn emitted(header: &Header, payload: &[u8], out: &mut [u8]) -> Option<usize> {
        header.emit_with(out, |place| {
            place.get_mut(..payload.len())?.copy_from_slice(payload);
            Some(payload.len())
        })
    }

    /// Examples of docs/spec/wire-formats.md §4.1.
    #[test]
    fn worked_headers_parse_and_emit() {
        let identify = Header::request(Opcode(0x5700), 1);
        let assign = Header::request(Opcode(0x5704), 2);
        #[rustfmt::skip] // columns: bytes, header
        let cases = [
            ([0, 1, 0, 0, 0x57, 0, 0, 0, 0, 0, 0, 0], identify),
            ([1, 2, 0, 4, 0x57, 0, 0, 0, 0, 0, 0, 0], assign.response(ReturnCode::Success)),
            ([1, 2, 0, 4, 0x57, 0, 0, 0, 2, 0, 0, 0], assign.response(ReturnCode::InvalidInput)),
        ];
        for (bytes, header) in cases {
            assert_eq!(Header::parse(&bytes), Ok((header, &[][..])));
            let mut out = [0xFF; LEN];
            assert_eq!(header.emit(0, &mut out), Some(LEN));
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn every_field_has_its_place() {
        let bytes =
            [0xF1, 0x22, 0x33, 0x44, 0x55, 3, 0, 0xE0, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE];
        let (header, payload) = Header::parse(&bytes).expect("reserved bits do not count");
        let want = Header {
            category: Category::Response,
            tag: 0x22,
            opcode: Opcode(0x5544),
            background: true,
            return_code: ReturnCode::Unknown(0x9988),
            vendor_status: 0xBBAA,
        };
        assert_eq!((header, payload), (want, &[0xCC, 0xDD, 0xEE][..]));
        let mut out = [0; 15];
        assert_eq!(emitted(&header, payload, &mut out), Some(15));
        let clean = [1, 0x22, 0, 0x44, 0x55, 3, 0, 0x80, 0x88, 0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE];
        assert_eq!(out, clean);
    }

    #[test]
    fn lengths_are_exact_and_categories_known() {
        let mut message = [0; 20];
        message[5] = 7;
        let refused = |bytes: &[u8]| Header::parse(bytes).err();
        for had in 0..19 {
            let need = if had < LEN { LEN } else { 19 };
            let want = ParseError::short(Layer::Cci, need, had);
            assert_eq!(refused(&message[..had]), Some(want), "{had}");
        }
        assert_eq!(refused(&message[..19]), None);
        let long = ParseError::Value { layer: Layer::Cci, field: Field::Length, value: 7 };
        assert_eq!(refused(&message), Some(long));
        refuses_shorter_of(&[0; LEN], Layer::Cci, refused);
        for category in 3..16 {
            let mut message = [0; LEN];
            message[0] = category;
            let value = u16::from(category);
            let want = ParseError::Value { layer: Layer::Cci, field: Field::Category, value };
            assert_eq!(refused(&message), Some(want));
        }
    }

    #[test]
    fn a_length_has_21_bits() {
        let header = Header::request(Opcode(0x5701), 9);
        let mut out = [0; LEN];
        assert_eq!(header.emit(0x12_3456, &mut out), Some(LEN));
        assert_eq!(out[5..8], [0x56, 0x34, 0x12]);
        assert_eq!(Header::cut(&out), Ok((header, 0x12_3456, &[][..])));
        assert_eq!(header.emit(PAYLOAD_MAX, &mut out), Some(LEN));
        assert_eq!(header.emit(PAYLOAD_MAX + 1, &mut out), None);
        assert_eq!(header.emit(0, &mut out[..11]), None);
    }

    #[test]
    fn return_codes_are_those_of_the_standard() {
        for bits in 0..=0x20 {
            let code = ReturnCode::from_bits(bits);
            assert_eq!(code.bits(), bits);
            assert_ne!(code, ReturnCode::Unknown(bits), "{bits:#x} has a name");
        }
        assert_eq!(ReturnCode::from_bits(0x21), ReturnCode::Unknown(0x21));
        #[rustfmt::skip] // columns: bits, code, name
        let cases = [
            (0x02, ReturnCode::InvalidInput, "Invalid Input"),
            (0x03, ReturnCode::Unsupported, "Unsupported"),
            (0x0F, ReturnCode::InvalidPhysicalAddress, "Invalid Physical Address"),
            (0x16, ReturnCode::InvalidPayloadLength, "Invalid Payload Length"),
            (0x1D, ReturnCode::ResourcesExhausted, "Resources Exhausted"),
            (0x7F, ReturnCode::Unknown(0x7F), "Unknown"),
        ];
        for (bits, code, name) in cases {
            assert_eq!((ReturnCode::from_bits(bits), code.name()), (code, name));
        }
    }

    #[test]
    fn random_messages_come_back() {
        let mut rng = Rng::new(41);
        for _ in 0..2_000 {
            let payload = rng.bytes::<40>();
            let payload = &payload[..usize::try_from(rng.below(41)).expect("small")];
            let header = Header {
                category: [Category::Request, Category::Response, Category::Event]
                    [usize::try_from(rng.below(3)).expect("small")],
                tag: rng.u8(),
                opcode: Opcode(rng.u16()),
                background: rng.bool(),
                return_code: ReturnCode::from_bits(rng.u16() >> 8),
                vendor_status: rng.u16(),
            };
            let mut out = [0xFF; LEN + 40];
            let len = emitted(&header, payload, &mut out).expect("fits");
            assert_eq!(Header::parse(&out[..len]), Ok((header, payload)));
        }
    }
}
