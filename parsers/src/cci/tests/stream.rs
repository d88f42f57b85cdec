//! Whole messages, messages in a stream, messages in messages.

use super::hex;
use crate::cci::mctp::{self, Decoded, MessageType};
use crate::cci::mld::TunnelTarget;
use crate::cci::nest::{self, Hop, TUNNELS_MAX};
use crate::cci::pbr::CrawlTarget;
use crate::cci::{Header, List, Opcode, Request, RequestError, Response, tables};
use crate::fabric::{DrtEntry, Pid};
use crate::{Field, Layer, ParseError};

/// Every message that docs/spec/wire-formats.md §4 spells out, from bytes to fields and back.
#[test]
fn worked_messages_parse_and_emit() {
    let cases = [
        ("00 01 00 00 57 00 00 00 00 00 00 00", "Identify PBR Switch"),
        (
            "00 04 00 01 07 15 00 00 00 00 00 00 | 00 01 00 10 11 12 13 14 15 16 17 18 19 1A 1B 1C 1D 1E 1F 10 00",
            "Claim Ownership",
        ),
        (
            "00 02 00 04 57 09 00 00 00 00 00 00 | 00 00 01 00 10 00 01 00 00",
            "Configure PID Assignment",
        ),
        ("00 03 00 09 57 08 00 00 00 00 00 00 | 00 00 01 00 23 01 01 05", "Set DRT"),
        (
            "00 05 00 06 58 0E 00 00 00 00 00 00 | 00 00 01 00 02 00 | 01 02 04 00 40 00 00 00",
            "Set FAST Segment Entries",
        ),
    ];
    for (text, name) in cases {
        let bytes = hex(text);
        let (header, payload) = Header::parse(&bytes).expect(name);
        assert_eq!(header.opcode.name(), Some(name));
        let request = Request::parse(header.opcode, payload).expect(name);
        let mut out = [0xFF; 64];
        let len = request.emit_message(header.tag, &mut out).expect(name);
        assert_eq!(out[..len], bytes[..], "{name}");
        assert_eq!(request.emit_message(header.tag, &mut out[..len - 1]), None);
    }
    let answer = hex("01 02 00 04 57 00 00 00 00 00 00 00");
    let (header, payload) = Header::parse(&answer).expect("a response");
    assert_eq!(Response::parse(header.opcode, payload), Ok(Response::AssignPids));
    let mut out = [0xFF; 12];
    assert_eq!(Response::AssignPids.emit_message(2, &mut out), Some(12));
    assert_eq!(out[..], answer[..]);
}

/// Two messages in one stream, at every place where the first bytes may end.
#[test]
fn a_stream_is_cut_into_messages_wherever_it_ends() {
    let set = tables::SetDrt { table: 0, start: 0x123, entries: List::of(&[DrtEntry::Port(5)]) };
    let mut stream = [0; 64];
    let first = mctp::emit_with(MessageType::FmApi, &mut stream, |out| {
        Request::SetDrt(set).emit_message(3, out)
    });
    assert_eq!(first, Some(23));
    let wire = hex("1500 07 | 00 03 00 09 57 08 00 00 00 00 00 00 | 00 00 01 00 23 01 01 05");
    assert_eq!(stream[..23], wire[..]);
    let message = hex("00 01 00 00 49 00 00 00 00 00 00 00");
    assert_eq!(mctp::emit(MessageType::Cci, &message, &mut stream[23..]), Some(15));
    for had in 0..23 {
        let decoded = mctp::decode(&stream[..had]);
        let Ok(Decoded::NeedMore { more }) = decoded else { panic!("{had}: {decoded:?}") };
        let want = if had < 2 { 15 - had } else { 23 - had };
        assert_eq!(more, want, "{had}");
    }
    let decoded = mctp::decode(&stream[..38]);
    let Ok(Decoded::Message { kind, message: whole, rest }) = decoded else { panic!("whole") };
    assert_eq!((kind, whole, rest.len()), (MessageType::FmApi, &wire[3..], 15));
    let decoded = mctp::decode(rest);
    assert_eq!(
        decoded,
        Ok(Decoded::Message { kind: MessageType::Cci, message: &message, rest: &[] })
    );
}

#[test]
fn a_stream_out_of_step_is_seen_at_once() {
    let refused = |field, value| Err(ParseError::Value { layer: Layer::Mctp, field, value });
    for len in 0..13 {
        assert_eq!(mctp::decode(&[len, 0]), refused(Field::Length, u16::from(len)));
    }
    assert_eq!(mctp::decode(&[13, 0]), Ok(Decoded::NeedMore { more: 13 }));
    for kind in (0..=255).filter(|kind| ![7, 8].contains(kind)) {
        assert_eq!(mctp::decode(&[13, 0, kind]), refused(Field::MsgType, u16::from(kind)));
    }
    assert_eq!(mctp::decode(&[0xFF, 0xFF, 8]), Ok(Decoded::NeedMore { more: 65_534 }));
}

#[test]
fn messages_beyond_the_stream_are_not_emitted() {
    let mut out = [0; 32];
    assert_eq!(mctp::emit(MessageType::Cci, &[0; 11], &mut out), None, "no header");
    assert_eq!(mctp::emit(MessageType::Cci, &[0; 12], &mut out[..14]), None, "no room");
    assert_eq!(mctp::emit(MessageType::Cci, &[0; 12], &mut out[..15]), Some(15));
    let says = |len| move |_: &mut [u8]| Some(len);
    let longest = mctp::emit_with(MessageType::Cci, &mut out, says(mctp::MESSAGE_MAX));
    assert_eq!((longest, &out[..2]), (Some(mctp::STREAM_MAX), &[0xFF, 0xFF][..]));
    assert_eq!(mctp::emit_with(MessageType::Cci, &mut out, says(mctp::MESSAGE_MAX + 1)), None);
}

/// Crawl to a port, then tunnel to an LD: the hops outermost first.
#[test]
fn layers_are_walked_inwards() {
    let innermost = hex("00 09 00 01 00 00 00 00 00 00 00 00");
    let (mut one, mut two, mut three) = ([0; 64], [0; 64], [0; 96]);
    let tunnel = Hop::Tunnel { id: 4, target: TunnelTarget::PortOrLd };
    let crawl = Hop::Crawl(CrawlTarget::Port(7));
    let pid = Hop::Crawl(CrawlTarget::Pid(Pid::from_low_bits(0x123)));
    let len = tunnel.emit_message(1, &innermost, &mut one).expect("fits");
    let one = &one[..len];
    assert_eq!(
        *one,
        *hex(
            "00 01 00 00 53 10 00 00 00 00 00 00 | 04 00 0C00 | 00 09 00 01 00 00 00 00 00 00 00 00"
        )
    );
    let len = crawl.emit_message(2, one, &mut two).expect("fits");
    let two = &two[..len];
    let len = pid.emit_message(3, two, &mut three).expect("fits");
    let three = &three[..len];

    let hops = |message| nest::layers(message).map(|layer| layer.expect("right").hop);
    assert!(hops(two).eq([Some(crawl), Some(tunnel), None]));
    let tags = nest::layers(three).map(|layer| layer.expect("right").header.tag);
    assert!(tags.eq([3, 2, 1, 9]));
    let last = nest::layers(two).last().expect("some").expect("right");
    assert_eq!((last.header.opcode, last.payload), (Opcode::IDENTIFY, &[][..]));

    let counts = [&innermost[..], one, two, three].map(nest::tunnels);
    assert_eq!(counts, [Ok(0), Ok(1), Ok(2), Ok(3)]);
    assert_eq!(TUNNELS_MAX, 2, "three are too many");
}

/// Some managers put the MCTP message type in front of a message in a 5300h tunnel, in each layer or in some.
#[test]
fn a_tunnelled_message_may_have_its_type_in_front() {
    const IDENTIFY: &str = "00 09 00 01 00 00 00 00 00 00 00 00";
    for (tunnel, want) in [
        (
            "00 01 00 00 53 10 00 00 00 00 00 00 | 04 00 0C00 | 00 09 00 01 00 00 00 00 00 00 00 00",
            None,
        ),
        (
            "00 01 00 00 53 11 00 00 00 00 00 00 | 04 00 0D00 | 07 00 09 00 01 00 00 00 00 00 00 00 00",
            Some(MessageType::FmApi),
        ),
        (
            "00 01 00 00 53 11 00 00 00 00 00 00 | 04 00 0D00 | 08 00 09 00 01 00 00 00 00 00 00 00 00",
            Some(MessageType::Cci),
        ),
    ] {
        let message = hex(tunnel);
        let opcodes = nest::layers(&message).map(|layer| layer.expect("right").header.opcode);
        assert!(opcodes.eq([Opcode::TUNNEL, Opcode::IDENTIFY]), "{tunnel}");
        assert_eq!(nest::split_type(&message[16..]), (want, &hex(IDENTIFY)[..]), "{tunnel}");
    }
    for other in ["00", "01", "02", "06", "09", "18", "F8"] {
        assert_eq!(nest::split_type(&hex(other)).0, None, "{other}");
    }
    assert_eq!(nest::split_type(&[]), (None, &[][..]));
    let alone = hex("00 01 00 00 53 05 00 00 00 00 00 00 | 04 00 0100 | 08");
    assert!(nest::tunnels(&alone).is_err(), "a type and no message");
    let crawl = hex(
        "00 01 00 01 57 13 00 00 00 00 00 00 | 0700 00 00 0D00 | 08 00 09 00 01 00 00 00 00 00 00 00 00",
    );
    assert!(nest::tunnels(&crawl).is_err(), "5701h has none");
}

#[test]
fn layers_end_at_an_error_and_at_a_response() {
    let cut =
        hex("00 01 00 00 53 10 00 00 00 00 00 00 | 04 00 0C00 | 00 09 00 01 00 00 00 00 00 00 00");
    assert!(matches!(nest::tunnels(&cut), Err(RequestError::PayloadLength(_))));
    let inner = hex("00 01 00 00 53 05 00 00 00 00 00 00 | 04 00 0100 | 00");
    let mut layers = nest::layers(&inner);
    assert!(layers.next().is_some_and(|layer| layer.is_ok()));
    assert!(layers.next().is_some_and(|layer| layer.is_err()), "an inner message of one byte");
    assert!(layers.next().is_none());
    let response = hex("01 01 00 00 53 04 00 00 00 00 00 00 | 0000 0000");
    assert_eq!(nest::tunnels(&response), Ok(0), "a response carries no request");
    let kind = hex("00 01 00 01 57 06 00 00 00 00 00 00 | 0000 05 00 0000");
    assert!(matches!(nest::tunnels(&kind), Err(RequestError::Input(_))));
}
