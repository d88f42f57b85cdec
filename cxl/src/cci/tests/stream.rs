//! CCI messages in a byte stream.

use super::*;
use crate::cci::requests::WAITING_MAX;
use crate::cci::{Right, StreamError, StreamServer};
use weft_parsers::cci::List;
use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::mld::{TunnelRequest, TunnelTarget};

fn framed(kind: MessageType, message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; mctp::HEAD_LEN + message.len()];
    assert_eq!(mctp::emit(kind, message, &mut bytes), Some(bytes.len()));
    bytes
}

/// Type, tag and code of each response.
fn responses(mut bytes: &[u8]) -> Vec<(MessageType, u8, ReturnCode)> {
    let mut all = Vec::new();
    while let Ok(Decoded::Message { kind, message, rest }) = mctp::decode(bytes) {
        let (header, _) = Header::parse(message).unwrap();
        all.push((kind, header.tag, header.return_code));
        bytes = rest;
    }
    assert!(bytes.is_empty());
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

/// A client that sends many requests and reads no responses has only a bounded number carried out.
#[test]
fn requests_are_carried_out_until_answers_have_piled_up() {
    const MOST: usize = 200;
    let one = framed(MessageType::FmApi, &message(&Request::GetSupportedLogs, 1));
    let (mut toy, mut server, mut out) = (Toy::owned(), StreamServer::new(FIRST), Vec::new());
    let (mut answered, mut longest, mut bytes) = (0, 0, one.repeat(1_000));
    loop {
        let is_left = server.receive_some(&mut toy, Instant::ZERO, &bytes, MOST, &mut out).unwrap();
        bytes.clear();
        longest = longest.max(out.len());
        answered += responses(&out).len();
        if !is_left {
            break;
        }
        assert!(out.len() >= MOST, "{} bytes", out.len());
        out.clear();
    }
    assert_eq!((answered, server.buffered()), (1_000, 0));
    assert!(longest < MOST + 100, "{longest} bytes at a time");
}

#[test]
fn one_connection_does_not_take_all_places_for_what_waits() {
    let (mut toy, mut server, mut out) = (Toy::owned(), StreamServer::new(FIRST), Vec::new());
    let inner = message(&Request::Identify, 0x11);
    for tag in 0..=u8::try_from(WAITING_MAX).unwrap() {
        let message_ = List::of(&inner);
        let tunnel = TunnelRequest { id: 1, target: TunnelTarget::PortOrLd, message: message_ };
        let ask = framed(MessageType::Cci, &message(&Request::Tunnel(tunnel), tag));
        server.receive(&mut toy, Instant::ZERO, &ask, &mut out).unwrap();
    }
    let last = u8::try_from(WAITING_MAX).unwrap();
    assert_eq!(responses(&out), [(MessageType::Cci, last, ReturnCode::Busy)]);
}

/// Claims that each right allows: without an owner, with a primary, and after a promotion.
#[test]
fn a_connection_does_what_its_right_allows() {
    use ReturnCode::{InvalidInput, Success, Unsupported};
    const OPS: [ClaimOp; 4] = [
        ClaimOp::RegisterPrimary,
        ClaimOp::UpdatePid,
        ClaimOp::RegisterSecondary,
        ClaimOp::PromoteSecondary,
    ];
    let claim = |op, fm: u8| {
        let (pid, fm_uuid) = (pid(0x10), [fm; 16]);
        Request::ClaimOwnership(ClaimOwnership { op, fm: super::pid(fm.into()), fm_uuid, pid })
    };
    let code = |toy: &mut Toy, server: &mut StreamServer, request: &Request<'_>| {
        let mut out = Vec::new();
        let bytes = framed(MessageType::FmApi, &message(request, 1));
        server.receive(toy, Instant::ZERO, &bytes, &mut out).unwrap();
        responses(&out)[0].2
    };
    // The component has no owner.
    for (right, want) in [
        (Right::Observer, Unsupported),
        (Right::Secondary, InvalidInput),
        (Right::Primary, Success),
    ] {
        let (mut toy, mut server) = (Toy::new(), StreamServer::new(FIRST).with_right(right));
        assert_eq!(code(&mut toy, &mut server, &claim(OPS[0], 1)), want, "{right:?}");
        let sets = code(&mut toy, &mut server, &Request::SetSv([7; 16]));
        assert_eq!((sets == Success, toy.value == 7), (want == Success, want == Success));
    }
    // The component has a primary and a secondary.
    let owned = || {
        let (mut toy, mut primary) = (Toy::new(), StreamServer::new(FIRST));
        assert_eq!(code(&mut toy, &mut primary, &claim(OPS[0], 1)), Success);
        assert_eq!(code(&mut toy, &mut primary, &claim(OPS[2], 2)), Success);
        toy
    };
    #[rustfmt::skip] // columns: right, operation, whose name, code
    let cases = [
        (Right::Observer,  OPS[1], 1, Unsupported),
        (Right::Observer,  OPS[2], 3, Unsupported),
        (Right::Observer,  OPS[3], 2, Unsupported),
        (Right::Secondary, OPS[0], 2, InvalidInput),
        (Right::Secondary, OPS[1], 1, InvalidInput), // in the primary's name
        (Right::Secondary, OPS[2], 3, InvalidInput),
        (Right::Secondary, OPS[3], 2, Success),
        (Right::Primary,   OPS[1], 1, Success),
    ];
    for (right, op, name, want) in cases {
        let (mut toy, mut server) = (owned(), StreamServer::new(SECOND).with_right(right));
        let before = toy.common.ownership.clone();
        assert_eq!(code(&mut toy, &mut server, &claim(op, name)), want, "{right:?} {op:?}");
        let changed = toy.common.ownership != before;
        assert_eq!(changed, want == Success, "{right:?} {op:?}");
    }
    // After its promotion it is the primary, by each of its connections, until another one claims the component.
    let mut toy = owned();
    let mut server = StreamServer::new(SECOND).with_right(Right::Secondary);
    assert_eq!(code(&mut toy, &mut server, &Request::SetSv([7; 16])), Unsupported);
    assert_eq!(code(&mut toy, &mut server, &claim(OPS[3], 2)), Success);
    assert_eq!(code(&mut toy, &mut server, &Request::SetSv([7; 16])), Success);
    let mut again = StreamServer::new(Session::Fm(9)).with_right(Right::Secondary);
    assert_eq!(code(&mut toy, &mut again, &claim(OPS[1], 2)), Success);
    assert_eq!(code(&mut toy, &mut again, &Request::SetSv([8; 16])), Success);
}

#[test]
fn an_observer_is_not_told_who_manages() {
    let mut toy = Toy::owned();
    for (right, told) in
        [(Right::Observer, false), (Right::Secondary, true), (Right::Primary, true)]
    {
        let mut server = StreamServer::new(SECOND).with_right(right);
        let mut out = Vec::new();
        let ask = framed(MessageType::FmApi, &message(&Request::IdentifyPbrComponent, 1));
        server.receive(&mut toy, Instant::ZERO, &ask, &mut out).unwrap();
        let Ok(Decoded::Message { message, .. }) = mctp::decode(&out) else { panic!() };
        let (_, payload) = Header::parse(message).unwrap();
        let nobody = [[0xFF, 0x0F, 0xFF, 0x0F].as_slice(), &[0; 16], &[0xFF, 0x0F], &[0; 16]];
        assert_eq!(payload != nobody.concat(), told, "{right:?}: {payload:02x?}");
    }
}
