//! CCI messages in a stream of bytes, such as a TCP connection.
//!
//! In front of each CCI message stand the length of all that follows (16 bits, little-endian) and
//! the MCTP message type (8 bits). [`decode`] takes the bytes received so far and says whether they
//! hold a whole message; it keeps no state.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; MCTP message types of DSP0234 and DSP0281.

use super::header;
use crate::bytes::{cut, cut_mut, put};
use crate::{Field, Layer, ParseError};

/// Bytes before the CCI message: length and type.
pub const HEAD_LEN: usize = 3;

/// Longest CCI message that the length can tell.
pub const MESSAGE_MAX: usize = u16::MAX as usize - 1;

/// Bytes that the longest message takes in the stream: as much as a receiver needs to hold.
pub const STREAM_MAX: usize = HEAD_LEN + MESSAGE_MAX;

/// MCTP message type, the byte in front of a CCI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// FM-API: for switches and components reached through them.
    FmApi = 7,
    /// CCI of a type 3 device or another component.
    Cci = 8,
}

/// State of a stream of CCI messages: a whole message at the front, or part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The message is not whole yet: at least `more` bytes are missing.
    NeedMore {
        /// Bytes still to be received, never 0.
        more: usize,
    },
    /// A whole message at the front of the stream.
    Message {
        /// MCTP message type.
        kind: MessageType,
        /// Header and payload of a CCI message; the header is there, the rest is not looked at.
        message: &'a [u8],
        /// Bytes behind the message: the start of the next one.
        rest: &'a [u8],
    },
}

/// Cuts the message off the front of `stream`.
///
/// ```
/// use weft_parsers::cci::mctp::{Decoded, decode};
/// let bytes = [13, 0, 7, 0, 1, 0, 0, 0x57, 0, 0, 0, 0, 0, 0, 0, 99];
/// assert_eq!(decode(&bytes[..9]), Ok(Decoded::NeedMore { more: 6 }));
/// let Ok(Decoded::Message { message, rest, .. }) = decode(&bytes) else { panic!() };
/// assert_eq!((message.len(), rest), (12, &[99][..]));
/// ```
///
/// # Errors
/// [`ParseError::Value`] as soon as it can be seen: the [`Field::Length`] is below a type and a CCI
/// header, or the [`Field::MsgType`] is neither. The stream is out of step then; nothing tells where the
/// next message starts.
pub fn decode(stream: &[u8]) -> Result<Decoded<'_>, ParseError> {
    // a bad length or type is refused before the rest has come, so that a peer that speaks another
    // protocol is not waited for
    let refused = |field, value| ParseError::Value { layer: Layer::Mctp, field, value };
    let Ok((head, behind)) = cut::<2>(stream, Layer::Mctp) else {
        // the shortest message, as its length is not known yet
        return Ok(Decoded::NeedMore { more: HEAD_LEN + header::LEN - stream.len() });
    };
    let len = u16::from_le_bytes(*head);
    let need = usize::from(len);
    if need < 1 + header::LEN {
        return Err(refused(Field::Length, len));
    }
    let kind = match behind.first() {
        None => return Ok(Decoded::NeedMore { more: need }),
        Some(7) => MessageType::FmApi,
        Some(8) => MessageType::Cci,
        Some(&other) => return Err(refused(Field::MsgType, u16::from(other))),
    };
    let Some((whole, rest)) = behind.split_at_checked(need) else {
        return Ok(Decoded::NeedMore { more: need - behind.len() });
    };
    Ok(Decoded::Message { kind, message: whole.get(1..).unwrap_or_default(), rest })
}

/// Puts length and type before a message that `message` writes, and returns the length of all.
///
/// `None` when it does not fit in `out` or in [`MESSAGE_MAX`], or `message` returns `None`.
pub fn emit_with(
    kind: MessageType,
    out: &mut [u8],
    message: impl FnOnce(&mut [u8]) -> Option<usize>,
) -> Option<usize> {
    let (head, place) = cut_mut::<HEAD_LEN>(out, Layer::Mctp).ok()?;
    let len = message(place)?;
    let behind = u16::try_from(len.checked_add(1)?).ok()?;
    if len < header::LEN {
        return None;
    }
    put::<0, _, _>(head, behind.to_le_bytes());
    put::<2, _, _>(head, [kind as u8]);
    Some(HEAD_LEN + len)
}

/// Puts length and type before `message`, and returns the length of all; `None` as [`emit_with`].
pub fn emit(kind: MessageType, message: &[u8], out: &mut [u8]) -> Option<usize> {
    emit_with(kind, out, |place| {
        place.get_mut(..message.len())?.copy_from_slice(message);
        Some(message.len())
    })
}
