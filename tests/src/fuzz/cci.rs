//! CCI messages: a stream of them, each read as far as it is valid and written again.
//!
//! Bytes → messages of the stream → header → request or response → the same bytes, except reserved
//! bits.
//!
//! Source: docs/spec/wire-formats.md §4; docs/spec/cxl-fabric.md "The fabric manager".

use weft_base::rng::Rng;
use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::{
    Category, Header, Opcode, Request, RequestError, Response, ReturnCode, nest,
};
use weft_parsers::{Field, Layer, ParseError};

/// Counts of a stream's messages, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Read and written again.
    pub read: usize,
    /// Refused: the payload's length is wrong.
    pub length: usize,
    /// Refused: a reserved code.
    pub input: usize,
    /// Refused: no such command.
    pub unsupported: usize,
    /// Refused: the header is wrong, or the stream is out of step.
    pub header: usize,
}

impl Outcome {
    /// Messages that were refused for any reason.
    #[must_use]
    pub const fn refused(&self) -> usize {
        self.length + self.input + self.unsupported + self.header
    }
}

/// Reads `bytes` as a stream, and checks each message.
///
/// # Panics
/// A message is written differently from its bytes, or an error does not fit them.
pub fn run(bytes: &[u8]) {
    let outcome = stream(bytes);
    let messages = outcome.read + outcome.refused();
    assert!(messages <= bytes.len(), "a message has bytes: {outcome:?}");
}

/// As [`run`], and returns the counts.
///
/// # Panics
/// As [`run`].
#[must_use]
pub fn stream(bytes: &[u8]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rest = bytes;
    loop {
        match mctp::decode(rest) {
            Ok(Decoded::NeedMore { more }) => {
                assert!(more > 0 && rest.len() + more <= mctp::STREAM_MAX);
                break;
            }
            Ok(Decoded::Message { kind, message, rest: behind }) => {
                // filled with ones, so that a byte that is not written shows
                let mut out = vec![0xFF; mctp::STREAM_MAX];
                let len = mctp::emit(kind, message, &mut out).expect("it came in a stream");
                assert_eq!(out[..len], rest[..rest.len() - behind.len()], "framing comes back");
                message_of(message, &mut outcome);
                rest = behind;
            }
            Err(error) => {
                assert_eq!(error.layer(), Layer::Mctp);
                outcome.header += 1;
                break;
            }
        }
    }
    outcome
}

/// Whether `out` is `bytes` with some bits cleared: reserved ones, which are written as 0.
fn is_less(out: &[u8], bytes: &[u8]) -> bool {
    out.len() == bytes.len() && out.iter().zip(bytes).all(|(out, byte)| out & !byte == 0)
}

/// One message, read and written again.
fn message_of(message: &[u8], outcome: &mut Outcome) {
    let (header, payload) = match Header::parse(message) {
        Ok(parts) => parts,
        Err(error) => {
            assert_eq!(error.layer(), Layer::Cci);
            outcome.header += 1;
            return;
        }
    };
    if let Ok(count) = nest::tunnels(message) {
        // deeper nests are counted to one beyond the limit
        assert!(count <= nest::TUNNELS_MAX + 1);
    }
    let mut out = vec![0xFF; message.len()];
    let (result, written) = if header.category == Category::Response {
        let read = Response::parse(header.opcode, payload);
        let written = read.map(|response| {
            assert_eq!(response.opcode(), header.opcode);
            let len = header.emit_with(&mut out, |place| response.emit(place));
            let again = Response::parse(header.opcode, out.get(12..).unwrap_or_default());
            assert_eq!(again, Ok(response), "what is written says the same");
            len
        });
        (read.err(), written)
    } else {
        let read = Request::parse(header.opcode, payload);
        let written = read.map(|request| {
            assert_eq!(request.opcode(), header.opcode);
            let len = header.emit_with(&mut out, |place| request.emit(place));
            let again = Request::parse(header.opcode, out.get(12..).unwrap_or_default());
            assert_eq!(again, Ok(request), "what is written says the same");
            len
        });
        (read.err(), written)
    };
    match result {
        None => {
            assert_eq!(written, Ok(Some(message.len())), "as long as it was");
            assert!(is_less(&out, message), "{header:?}: {out:02x?} of {message:02x?}");
            outcome.read += 1;
        }
        Some(error) => count_refusal(error, header.opcode, outcome),
    }
}

/// Counts a refusal, after checking that the bytes give a reason for it.
fn count_refusal(error: RequestError, opcode: Opcode, outcome: &mut Outcome) {
    let known = Opcode::LAID_OUT.contains(&opcode);
    match error {
        RequestError::Unsupported(of) => {
            assert!(!known && of == opcode);
            outcome.unsupported += 1;
        }
        RequestError::PayloadLength(ParseError::Short { need, had, .. }) => {
            // a need beyond 65,535 is reported as 65,535
            assert!(known && (need > had || had == u16::MAX));
            outcome.length += 1;
        }
        RequestError::PayloadLength(ParseError::Value { field, .. }) => {
            assert!(known && field == Field::Length);
            outcome.length += 1;
        }
        RequestError::Input(_) => {
            assert!(known);
            outcome.input += 1;
        }
    }
}

/// A valid message of every command, asked and answered, without list entries and with one where a
/// count in the first 32 bytes makes room for it. Found by trying, so that a new command is in at once.
#[must_use]
pub fn valid() -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    for &opcode in Opcode::LAID_OUT {
        for header in
            [Header::request(opcode, 1), Header::request(opcode, 1).response(ReturnCode::Success)]
        {
            let is_read = |payload: &[u8]| match header.category {
                Category::Response => Response::parse(opcode, payload).is_ok(),
                _ => Request::parse(opcode, payload).is_ok(),
            };
            for payload in payloads(is_read) {
                messages.push(framed(&header, &payload));
            }
        }
    }
    messages
}

/// Payloads that `is_read` takes: the shortest one of zeros, and those that a count makes longer.
fn payloads(is_read: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    const GROWTH_MAX: usize = 160; // an event record has 128 bytes
    let zeros = |len| vec![0; len];
    // zeros are valid codes in every command, so that some length is taken
    let shortest = (0..256).map(zeros).find(|payload| is_read(payload)).expect("zeros are valid");
    let mut found = vec![shortest.clone()];
    for at in 0..shortest.len().min(32) {
        for count in [1, 2] {
            let longer = (shortest.len() + 1..shortest.len() + GROWTH_MAX).map(|len| {
                let mut payload = vec![0; len];
                payload[at] = count;
                payload
            });
            found.extend(longer.into_iter().find(|payload| is_read(payload)));
        }
    }
    found
}

/// A message as it stands in a stream.
fn framed(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; mctp::HEAD_LEN + 12 + payload.len()];
    let len = mctp::emit_with(MessageType::FmApi, &mut out, |place| {
        header.emit_with(place, |place| {
            place.get_mut(..payload.len())?.copy_from_slice(payload);
            Some(payload.len())
        })
    });
    assert_eq!(len, Some(out.len()));
    out
}

/// A message with some bytes of its payload drawn anew; every other one damaged anywhere as well.
///
/// # Panics
/// When `whole` is no message, or longer than a stream allows.
#[must_use]
pub fn damaged(whole: &[u8], rng: &mut Rng) -> Vec<u8> {
    const PAYLOAD: usize = mctp::HEAD_LEN + 12;
    let mut bytes = whole.to_vec();
    let draw =
        |rng: &mut Rng, bound: usize| usize::try_from(rng.below(bound as u64)).unwrap_or_default();
    if bytes.len() > PAYLOAD {
        for _ in 0..rng.below(6) {
            let at = PAYLOAD + draw(rng, whole.len() - PAYLOAD);
            [bytes[at], ..] = rng.next_u64().to_le_bytes();
        }
    }
    match rng.below(8) {
        0 => bytes.truncate(draw(rng, whole.len())),
        1 => bytes.insert(draw(rng, whole.len()), 0),
        2 => bytes[draw(rng, whole.len())] ^= 1 << rng.below(8),
        // Longer or shorter, with the lengths made right again.
        3 => {
            let end = bytes.len() - 1;
            if rng.below(2) == 0 || end < PAYLOAD {
                bytes.push(0);
            } else {
                bytes.truncate(end);
            }
            let of = |len: usize| u16::try_from(len).expect("short").to_le_bytes();
            let (stream, payload) = (of(bytes.len() - 2), of(bytes.len() - PAYLOAD));
            bytes[..2].copy_from_slice(&stream);
            bytes[8..10].copy_from_slice(&payload);
        }
        _ => {}
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_valid_request_and_response() {
        let all = valid();
        assert!(all.len() > 3 * Opcode::LAID_OUT.len(), "{} messages", all.len());
        let stream_of_all = all.concat();
        let outcome = stream(&stream_of_all);
        assert_eq!(outcome, Outcome { read: all.len(), ..Outcome::default() });
    }

    #[test]
    fn what_follows_a_stream_out_of_step_is_not_read() {
        let mut bytes = valid().swap_remove(0);
        bytes.extend([5, 0, 7, 0]);
        assert_eq!(stream(&bytes), Outcome { read: 1, header: 1, ..Outcome::default() });
    }
}
