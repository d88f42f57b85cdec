//! Messages in a stream of octets.

use super::*;
use crate::cci::{StreamError, StreamServer};
use weft_parsers::cci::List;
use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::mld::{TunnelRequest, TunnelTarget};

fn framed(kind: MessageType, message: &[u8]) -> Vec<u8> {
    let mut octets = vec![0; mctp::HEAD_LEN + message.len()];
    assert_eq!(mctp::emit(kind, message, &mut octets), Some(octets.len()));
    octets
}

/// Type, tag and code of each response.
fn responses(mut octets: &[u8]) -> Vec<(MessageType, u8, ReturnCode)> {
    let mut all = Vec::new();
    while let Ok(Decoded::Message { kind, message, rest }) = mctp::decode(octets) {
        let (header, _) = Header::parse(message).unwrap();
        all.push((kind, header.tag, header.return_code));
        octets = rest;
    }
    assert!(octets.is_empty());
    all
}

#[test]
fn messages_are_answered_however_they_are_cut() {
    let mut all = framed(MessageType::FmApi, &message(&Request::Identify, 1));
    all.extend(framed(MessageType::Cci, &message(&Request::GetSvState, 2)));
    let mut event = message(&Request::Identify, 3);
    event[0] = 2;
    all.extend(framed(MessageType::Cci, &event));
    all.extend(framed(MessageType::FmApi, &message(&Request::IdentifyGfd, 4)));
    let want = [
        (MessageType::FmApi, 1, ReturnCode::Success),
        (MessageType::Cci, 2, ReturnCode::Success),
        (MessageType::FmApi, 4, ReturnCode::Unsupported),
    ];
    for step in 1..=all.len() {
        let (mut toy, mut server, mut out) = (Toy::owned(), StreamServer::new(FIRST), Vec::new());
        for part in all.chunks(step) {
            server.receive(&mut toy, Instant::ZERO, part, &mut out).unwrap();
        }
        assert_eq!(responses(&out), want, "{step}");
        assert_eq!((server.ignored(), server.buffered()), (1, 0), "{step}");
    }
}

#[test]
fn a_stream_out_of_step_ends_after_what_came_before() {
    let (mut toy, mut server, mut out) = (Toy::new(), StreamServer::new(FIRST), Vec::new());
    let mut all = framed(MessageType::FmApi, &message(&Request::Identify, 1));
    all.extend([20, 0, 9]);
    let error = server.receive(&mut toy, Instant::ZERO, &all, &mut out);
    assert!(matches!(error, Err(StreamError::OutOfStep(_))), "{error:?}");
    assert_eq!(responses(&out), [(MessageType::FmApi, 1, ReturnCode::Success)]);
}

#[test]
fn one_request_of_a_tag_waits_and_is_answered_where_it_came_from() {
    let (mut toy, mut server) = (Toy::owned(), StreamServer::new(FIRST));
    let mut other = StreamServer::new(SECOND);
    let inner = message(&Request::Identify, 0x11);
    let tunnel = TunnelRequest { id: 1, target: TunnelTarget::PortOrLd, message: List::of(&inner) };
    let ask = framed(MessageType::Cci, &message(&Request::Tunnel(tunnel), 5));
    let mut out = Vec::new();
    server.receive(&mut toy, Instant::ZERO, &ask, &mut out).unwrap();
    assert!(out.is_empty());
    server.receive(&mut toy, Instant::ZERO, &ask, &mut out).unwrap();
    let free = framed(MessageType::Cci, &message(&Request::Identify, 6));
    server.receive(&mut toy, Instant::ZERO, &free, &mut out).unwrap();
    let kind = MessageType::Cci;
    assert_eq!(responses(&out), [(kind, 5, ReturnCode::Busy), (kind, 6, ReturnCode::Success)]);
    out.clear();
    toy.tick(Instant::from_ns(LATE.as_ns()));
    let answers: Vec<_> = toy.common.answers().collect();
    assert_eq!(answers.len(), 1);
    assert!(!other.resolve(&answers[0], &mut out) && out.is_empty());
    assert!(server.resolve(&answers[0], &mut out));
    assert!(!server.resolve(&answers[0], &mut out), "once");
    assert_eq!(responses(&out), [(kind, 5, ReturnCode::RetryRequired)]);
}
