//! The socket transport against a listener in a thread.
//!
//! The thread follows a script for the other end.
//!
//! Units: milliseconds.
//! Source: docs/spec/cxl-fabric.md "The fabric manager".

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use weft_base::wait::{LONG, until};
use weft_parsers::cci::mctp::{self, Decoded, MessageType};
use weft_parsers::cci::{Category, Header, Opcode, ReturnCode};

use crate::cci::{Peer, Socket, Transport, TransportError};

fn read_one(stream: &mut (impl Read + Write)) -> Option<Header> {
    let mut got = Vec::new();
    loop {
        if let Ok(Decoded::Message { message, .. }) = mctp::decode(&got) {
            return Some(Header::parse(message).unwrap().0);
        }
        let mut byte = [0];
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        got.extend(byte);
    }
}

fn send(stream: &mut (impl Read + Write), header: Header, in_pieces: bool) {
    let mut message = [0; 12];
    header.emit(0, &mut message).unwrap();
    let mut out = [0; 15];
    mctp::emit(MessageType::FmApi, &message, &mut out).unwrap();
    let size = if in_pieces { 4 } else { 15 };
    for piece in out.chunks(size) {
        stream.write_all(piece).unwrap();
        stream.flush().unwrap();
    }
}

fn request(tag: u8) -> Vec<u8> {
    let mut out = vec![0; 12];
    Header::request(Opcode::IDENTIFY_PBR_SWITCH, tag).emit(0, &mut out).unwrap();
    out
}

#[test]
fn answers_in_pieces_events_and_stale_answers_are_told_apart() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let header = read_one(&mut stream).unwrap();
        let event = Header { category: Category::Event, ..Header::request(Opcode::EVENT, 0) };
        send(&mut stream, event, false);
        send(&mut stream, Header { tag: 99, ..header.response(ReturnCode::Success) }, true);
        send(&mut stream, header.response(ReturnCode::Busy), true);
        // The second request stays without an answer; the third one comes over a new connection.
        assert!(read_one(&mut stream).is_some());
        let (mut second, _) = listener.accept().unwrap();
        let header = read_one(&mut second).unwrap();
        send(&mut second, header.response(ReturnCode::Success), false);
    });
    let mut tcp = Socket::new(Peer::Tcp(peer), MessageType::FmApi, Duration::from_millis(300));
    let code = |answer: Vec<u8>| Header::parse(&answer).unwrap().0.return_code;
    assert_eq!(code(tcp.call(&request(1)).unwrap()), ReturnCode::Busy);
    assert!(tcp.event().is_some() && tcp.event().is_none());
    assert!(matches!(tcp.call(&request(2)), Err(TransportError::Timeout(300))));
    assert_eq!(code(tcp.call(&request(3)).unwrap()), ReturnCode::Success);
    other.join().unwrap();
}

/// The socket takes in notifications between two requests, and sees the end of the connection.
#[test]
fn events_between_requests_are_taken_in_without_waiting() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap();
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let header = read_one(&mut stream).unwrap();
        send(&mut stream, header.response(ReturnCode::Success), false);
        let event = Header { category: Category::Event, ..Header::request(Opcode::EVENT, 0) };
        send(&mut stream, event, true);
        send(&mut stream, header.response(ReturnCode::Busy), false); // an answer without a request
        send(&mut stream, event, false);
        assert!(gone.recv().is_err(), "until the test is done");
    });
    let mut tcp = Socket::new(Peer::Tcp(peer), MessageType::FmApi, Duration::from_secs(30));
    assert!(tcp.readable().is_none(), "there is no connection yet");
    tcp.take_in();
    assert!(tcp.call(&request(1)).is_ok());
    let mut events = 0;
    until(LONG, "two notifications", || {
        tcp.take_in();
        events += core::iter::from_fn(|| tcp.event()).count();
        (events == 2).then_some(())
    });
    assert!(tcp.readable().is_some());
    drop(go);
    other.join().unwrap();
    until(LONG, "the end", || {
        tcp.take_in();
        tcp.readable().is_none().then_some(())
    });
}

#[test]
fn who_does_not_listen_is_an_error() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let peer = listener.local_addr().unwrap();
    drop(listener);
    let mut tcp = Socket::new(Peer::Tcp(peer), MessageType::FmApi, Duration::from_millis(300));
    assert!(matches!(tcp.call(&request(1)), Err(TransportError::Io { what: "connect to", .. })));
}

#[test]
fn a_component_that_was_started_again_is_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cci.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (closed, was_closed) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        for code in [ReturnCode::Busy, ReturnCode::Success] {
            let (mut stream, _) = listener.accept().unwrap();
            let header = read_one(&mut stream).unwrap();
            send(&mut stream, header.response(code), false);
            drop(stream);
            closed.send(()).unwrap();
        }
    });
    let peer: Peer = format!("unix:{}", path.display()).parse().unwrap();
    let mut socket = Socket::new(peer, MessageType::FmApi, Duration::from_secs(2));
    let code = |answer: Vec<u8>| Header::parse(&answer).unwrap().0.return_code;
    assert_eq!(code(socket.call(&request(1)).unwrap()), ReturnCode::Busy);
    was_closed.recv().unwrap();
    // The former connection is closed: nothing is sent over it.
    assert_eq!(code(socket.call(&request(2)).unwrap()), ReturnCode::Success);
    other.join().unwrap();
}

#[test]
fn peers_are_named_by_kind_and_place() {
    let tcp: Peer = "tcp:127.0.0.1:7000".parse().unwrap();
    assert_eq!(tcp, Peer::Tcp("127.0.0.1:7000".parse().unwrap()));
    assert_eq!("unix:/run/x".parse::<Peer>().unwrap().to_string(), "/run/x");
    for text in ["", "unix:", "tcp:", "tcp:127.0.0.1", "udp:127.0.0.1:1", "/run/x", "127.0.0.1:1"] {
        let refused = text.parse::<Peer>().unwrap_err().to_string();
        assert!(refused.starts_with("expected tcp:HOST:PORT or unix:PATH"), "{refused}");
    }
}
