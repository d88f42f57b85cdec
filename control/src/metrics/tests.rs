//! The metrics server: its answers, and clients that are slow, too many, or sent by another site's page.
//!
//! Heads of requests in, responses out; connections over TCP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use weft_base::wait::{self, LONG};

use super::*;
use crate::http::HEAD_LEN_MAX;
use crate::requests::testing::Recorder;

fn pages() -> Pages {
    let backend: Arc<dyn Backend> = Arc::new(Recorder::default());
    let feed = Feed::new(backend.clone());
    let guard = Guard::new("127.0.0.1:9464".parse().unwrap());
    Pages { backend, feed, page: page::live(), guard }
}

fn whole(response: Response) -> String {
    match response {
        Response::Whole(bytes) => String::from_utf8(bytes).unwrap(),
        Response::Events(head) => format!("events: {}", String::from_utf8(head).unwrap()),
    }
}

#[test]
fn requests_are_answered_by_method_and_path() {
    #[rustfmt::skip] // columns: head, whether that is all, wanted start and part
    let cases = [
        ("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", false, Some(("HTTP/1.1 200 OK", "weft_info{"))),
        ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", false, Some(("HTTP/1.1 200 OK", "weft_info{"))),
        ("GET / HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 200 OK", "<!DOCTYPE html>"))),
        ("GET /api/state HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 200 OK", "{\"number\":1,"))),
        ("GET /api/events HTTP/1.1\r\n\r\n", false, Some(("events: HTTP/1.1 200 OK", "text/event-stream"))),
        ("GET /x HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 404 Not Found", "there are /, /metrics,"))),
        ("GET //api/state HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 404 ", ""))),
        ("GET /api/../metrics HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 404 ", ""))),
        ("POST /metrics HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 405 ", "Allow: GET, HEAD\r\n"))),
        ("POST / HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 405 ", "Allow: GET, HEAD\r\n"))),
        ("OPTIONS /api/state HTTP/1.1\r\n\r\n", false, Some(("HTTP/1.1 405 ", "Allow: GET, HEAD\r\n"))),
        ("GET / HTTP/1.1\r\nHost: rebind.example\r\n\r\n", false, Some(("HTTP/1.1 403 ", "localhost"))),
        ("GET /metrics HTTP/1.1\r\nHost: collector.example\r\n\r\n", false, Some(("HTTP/1.1 200 OK", "weft_info{"))),
        ("GET /api/state HTTP/1.1\r\nHost: rebind.example\r\n\r\n", false, Some(("HTTP/1.1 403 ", "localhost"))),
        ("GET /api/events HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n\r\n", false, Some(("HTTP/1.1 403 ", "elsewhere"))),
        ("GET / HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\n\r\n", false, Some(("HTTP/1.1 200 ", "<!DOCTYPE html>"))),
        ("GET /metrics HTTP/1.1\r\nHost", false, None),
        ("GET /metrics HTTP/1.1\r\nHost", true, Some(("HTTP/1.1 400 ", ""))),
        ("\0\0\0\0", false, Some(("HTTP/1.1 400 ", ""))),
    ];
    let pages = pages();
    for (head, is_all, want) in cases {
        match (pages.respond(head.as_bytes(), is_all).map(whole), want) {
            (None, None) => {}
            (Some(got), Some((start, part))) => {
                assert!(got.starts_with(start) && got.contains(part), "{head:?}: {got}");
                assert!(got.contains("X-Content-Type-Options: nosniff\r\n"), "{head:?}: {got}");
                assert!(!got.contains("Access-Control"), "{head:?}: no other page may read it");
            }
            (got, _) => panic!("{head:?}: {got:?}"),
        }
    }
    let long = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(HEAD_LEN_MAX));
    assert!(pages.respond(long.as_bytes(), false).map(whole).unwrap().starts_with("HTTP/1.1 431 "));
}

#[test]
fn a_head_is_that_of_the_same_request_by_get() {
    let pages = pages();
    for path in PATHS.into_iter().chain(["/x"]) {
        let get = |method: &str| {
            let head = format!("{method} {path} HTTP/1.1\r\n\r\n");
            whole(pages.respond(head.as_bytes(), false).unwrap())
        };
        let head = get("HEAD");
        assert!(head.ends_with("\r\n\r\n") && head.matches("\r\n\r\n").count() == 1, "{head}");
        if path != "/api/events" {
            let (status, _) = head.split_once("\r\n").unwrap();
            assert!(get("GET").starts_with(status), "{path}");
        }
    }
}

/// All places are taken by heads that never end, and Prometheus is answered all the same.
#[test]
fn slow_clients_do_not_keep_prometheus_out() {
    let any = "127.0.0.1:0".parse().unwrap();
    let server = start(any, Arc::new(Recorder::default())).unwrap();
    let slow: Vec<_> = (0..3 * LIMITS.clients)
        .map(|_| {
            let mut stream = TcpStream::connect(server.addr()).unwrap();
            stream.write_all(b"GET /metr").unwrap();
            stream
        })
        .collect();
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    assert!(page.contains("\nweft_unaccounted_frames 0\n"), "{page}");
    drop(slow);
}

#[test]
fn prometheus_reads_over_tcp() {
    let any = "127.0.0.1:0".parse().unwrap();
    let server = start(any, Arc::new(Recorder::default())).unwrap();
    let addr = server.addr();
    for _ in 0..2 * LIMITS.clients {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.write_all(b"GET /metr").unwrap();
        stream.write_all(b"ics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        assert!(page.contains("\nweft_unaccounted_frames 0\n"), "{page}");
    }
    drop(server);
    assert!(TcpStream::connect(addr).is_err(), "nobody listens any more");
}

/// A client that has asked for events, and has the head of the response.
fn viewer(addr: SocketAddr) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    BufReader::new(stream)
}

/// The next event: its number and its state.
fn event(from: &mut BufReader<TcpStream>) -> (u64, Value) {
    let (mut number, mut line) = (0, String::new());
    loop {
        line.clear();
        assert!(from.read_line(&mut line).unwrap() > 0, "it goes on for ever");
        if let Some(id) = line.strip_prefix("id: ") {
            number = id.trim().parse().unwrap();
        } else if let Some(data) = line.strip_prefix("data: ") {
            return (number, serde_json::from_str(data).unwrap());
        }
    }
}

#[test]
fn events_are_sent_to_eight_and_the_ninth_is_told_so() {
    let any = "127.0.0.1:0".parse().unwrap();
    let backend = Arc::new(Recorder::default());
    let server = start(any, backend.clone()).unwrap();
    let mut all: Vec<_> = (0..VIEWERS).map(|_| viewer(server.addr())).collect();
    let first: Vec<u64> = all.iter_mut().map(|viewer| event(viewer).0).collect();
    let mut ninth = String::new();
    viewer(server.addr()).read_to_string(&mut ninth).unwrap();
    assert!(ninth.starts_with("HTTP/1.1 503 "), "{ninth}");
    assert!(ninth.contains("8 clients are sent events already"), "{ninth}");
    // Others have places of their own.
    let mut stream = TcpStream::connect(server.addr()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    assert!(metrics.starts_with("HTTP/1.1 200 "), "{metrics}");
    // Each goes on, with numbers that grow, and all have one read.
    let mut last = 0;
    for (viewer, first) in all.iter_mut().zip(first) {
        let (number, state) = event(viewer);
        assert!(number > first);
        assert_eq!(state["number"], number);
        assert_eq!(state["viewers"]["open"], VIEWERS);
        last = last.max(number);
    }
    let reads = || backend.0.lock().unwrap().iter().filter(|text| *text == "stats false").count();
    assert!((reads() as u64) < last + 3 * VIEWERS as u64, "{} reads, {last} numbers", reads());
    // A place that is left is free again.
    all.pop();
    wait::until(LONG, "a place", || {
        let mut again = viewer(server.addr());
        let mut line = String::new();
        again.read_line(&mut line).ok()?;
        line.starts_with("HTTP/1.1 200 ").then_some(())
    });
    drop(all);
    // Without a viewer nothing is read.
    wait::until(LONG, "all are gone", || (server.counts().open == 0).then_some(()));
    let before = reads();
    wait::pause(3 * crate::page::feed::EVERY);
    assert_eq!(reads(), before);
}

#[test]
fn a_viewer_that_does_not_read_is_sent_away_and_counted_and_others_go_on() {
    let any = "127.0.0.1:0".parse().unwrap();
    let large = Recorder(std::sync::Mutex::default(), 20_000); // so that it is soon noticed
    let server = start(any, Arc::new(large)).unwrap();
    let (slow, mut other) = (viewer(server.addr()), viewer(server.addr()));
    wait::until(LONG, "the slow one is counted", || {
        let (_, state) = event(&mut other);
        (state["viewers"]["slow"] == 1).then_some(())
    });
    let (before, _) = event(&mut other);
    assert!(event(&mut other).0 > before);
    drop(slow);
}

/// A server that ends does not wait for its viewers.
#[test]
fn the_end_of_the_server_is_the_end_of_events() {
    let any = "127.0.0.1:0".parse().unwrap();
    let server = start(any, Arc::new(Recorder::default())).unwrap();
    let mut viewer = viewer(server.addr());
    event(&mut viewer);
    drop(server);
    let mut rest = Vec::new();
    let _ = viewer.read_to_end(&mut rest); // it ends, whichever way
}
