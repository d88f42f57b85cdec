//! The way to a host's GAE by its endpoint, against a control socket in a thread.
//!
//! The thread reads lines of JSON and answers each.
//!
//! Units: milliseconds.
//! Source: docs/endpoint.md "Control socket".

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use weft_parsers::cci::{Category, Header, Opcode, ReturnCode, header};

use crate::cci::{Endpoint, GaePeer, Gate, Peer, Transport, TransportError};

/// Reads a command, and answers it.
fn answer(stream: &mut BufReader<UnixStream>, said: &str) -> Value {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    writeln!(stream.get_mut(), "{said}").unwrap();
    serde_json::from_str(&line).unwrap()
}

fn request(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0; header::LEN];
    Header::request(Opcode::GET_FAST_CAPS, tag).emit(payload.len(), &mut out).unwrap();
    out.extend_from_slice(payload);
    out
}

#[test]
fn a_hosts_mailbox_answers_by_its_control_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoint.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (gone, is_gone) = std::sync::mpsc::channel();
    let other = std::thread::spawn(move || {
        let accept = || BufReader::new(listener.accept().unwrap().0);
        let mut first = accept();
        let asked = answer(
            &mut first,
            r#"{"ok":{"response":{"code":0,"name":"Success","vendor":3,"output":"0aFF"}}}"#,
        );
        let want = json!({"cmd": "gae", "opcode": Opcode::GET_FAST_CAPS.0, "input": "01020304", "timeout_ms": 300});
        assert_eq!(asked, want);
        answer(
            &mut first,
            r#"{"ok":{"response":{"code":2,"name":"Invalid Input","vendor":0,"output":""}}}"#,
        );
        drop(first); // the endpoint restarts
        gone.send(()).unwrap();
        let mut second = accept();
        answer(
            &mut second,
            r#"{"error":{"code":"failed","message":"no mailbox is known: enumerate first"}}"#,
        );
        for wrong in [
            r#"{"ok":"done"}"#,
            r#"{"ok":{"response":{"code":0,"name":"","vendor":0,"output":"0g"}}}"#,
            r#"{"ok":{"response":{"code":70000,"name":"","vendor":0,"output":""}}}"#,
            "nothing",
        ] {
            answer(&mut accept(), wrong);
            gone.send(()).unwrap();
        }
        accept() // which never answers
    });
    let mut endpoint = Endpoint::new(path.clone(), Duration::from_millis(300));
    let got = endpoint.call(&request(7, &[1, 2, 3, 4])).unwrap();
    let (head, payload) = Header::parse(&got).unwrap();
    let asked = (head.category, head.tag, head.opcode);
    assert_eq!(asked, (Category::Response, 7, Opcode::GET_FAST_CAPS));
    assert_eq!(
        (head.return_code, head.vendor_status, payload),
        (ReturnCode::Success, 3, &[10, 255][..])
    );
    let refused = endpoint.call(&request(8, &[])).unwrap();
    assert_eq!(Header::parse(&refused).unwrap().0.return_code, ReturnCode::InvalidInput);
    is_gone.recv().unwrap(); // an earlier request could still go to the first connection
    let told = endpoint.call(&request(9, &[])).unwrap_err();
    assert!(
        told.to_string().ends_with("endpoint.sock: no mailbox is known: enumerate first"),
        "{told}"
    );
    for wrong in 0..4 {
        let told = endpoint.call(&request(wrong, &[])).unwrap_err();
        assert!(
            matches!(&told, TransportError::Gone(why) if why.contains("not understood")),
            "{told}"
        );
        is_gone.recv().unwrap();
    }
    assert!(matches!(endpoint.call(&request(1, &[])), Err(TransportError::Timeout(_))));
    drop(other.join().unwrap());
    assert!(
        matches!(endpoint.call(&request(1, &[])), Err(TransportError::Io { .. })),
        "nobody listens"
    );
    let shut = Some(Gate(Arc::new(|| false)));
    let mut shut = Endpoint::new(path, Duration::from_millis(300)).with_gate(shut);
    assert!(matches!(shut.call(&request(1, &[])), Err(TransportError::Ended)));
}

#[test]
fn a_gae_is_at_an_endpoint_or_where_a_switch_may_be() {
    let read = |text: &str| text.parse::<GaePeer>();
    assert_eq!(read("endpoint:/run/h0"), Ok(GaePeer::Endpoint("/run/h0".into())));
    assert_eq!(read("unix:/run/h0"), Ok(GaePeer::Cci(Peer::Unix("/run/h0".into()))));
    for text in ["endpoint:", "endpoint", "/run/h0", "", "udp:1"] {
        let told = read(text).unwrap_err().to_string();
        assert_eq!(
            told,
            format!("expected endpoint:PATH, unix:PATH or tcp:HOST:PORT, found {text:?}")
        );
    }
    assert!("endpoint:/run/h0".parse::<Peer>().is_err(), "a switch is at no endpoint");
}
