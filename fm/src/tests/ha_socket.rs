//! An etcd that misbehaves, over a socket: whatever it sends, the manager has an error or an answer in time.
//!
//! A listener that answers each request in another wrong way -> [`Http`] and [`Etcd`].
//!
//! Units: bytes; milliseconds.
//! Source: RFC 9112.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use weft_base::rng::Rng;
use weft_base::wait::pause;

use super::fake_etcd::FakeEtcd;
use super::ha::mutate;
use crate::service::ha::answer::ANSWER_MAX;
use crate::service::ha::election::Candidate;
use crate::service::ha::etcd::{Etcd, EtcdError, Post};
use crate::service::ha::http::Http;
use crate::service::ha::permit::clock;

const TIMEOUT: Duration = Duration::from_millis(300);

/// How it misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Well,
    Mutated,
    CutOff,
    Silent,
    Slow,
    EndlessBody,
    EndlessChunks,
    EndlessHead,
    Redirected,
    WrongLength,
}

/// Reads a request: its path and body.
fn request(stream: &mut TcpStream) -> Option<(String, String)> {
    let (mut bytes, mut piece) = (Vec::new(), [0; 4_096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let len = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            if body.len() >= len.unwrap_or(0_usize) {
                let path = head.split_whitespace().nth(1)?.to_owned();
                return Some((path, body.to_owned()));
            }
        }
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(got) => bytes.extend_from_slice(&piece[..got]),
        }
    }
}

/// Answers one connection; counts what it could send.
fn serve(mut stream: TcpStream, etcd: &FakeEtcd, way: Way, rng: &mut Rng, sent: &AtomicU64) {
    drop(stream.set_read_timeout(Some(TIMEOUT)));
    drop(stream.set_write_timeout(Some(TIMEOUT)));
    let Some((path, body)) = request(&mut stream) else { return };
    let answer = etcd.answer(&path, &body);
    let head = |len: usize| {
        format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n")
    };
    let mut whole = head(answer.len()).into_bytes();
    whole.extend_from_slice(&answer);
    let mut send = |bytes: &[u8]| {
        let done = stream.write_all(bytes);
        sent.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        done.is_ok()
    };
    match way {
        Way::Well => drop(send(&whole)),
        Way::Mutated => {
            mutate(rng, &mut whole);
            send(&whole);
        }
        Way::CutOff => {
            let len = usize::try_from(rng.below(whole.len() as u64)).unwrap();
            send(&whole[..len]);
        }
        Way::Silent => pause(2 * TIMEOUT),
        Way::Slow => {
            let _ = whole.iter().all(|byte| {
                pause(Duration::from_millis(20));
                send(&[*byte])
            });
        }
        Way::EndlessBody => {
            if send(head(1 << 40).as_bytes()) {
                let piece = vec![b' '; 65_536];
                while send(&piece) {}
            }
        }
        Way::EndlessChunks => {
            if send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") {
                let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000));
                while send(chunk.as_bytes()) {}
            }
        }
        Way::EndlessHead => {
            if send(b"HTTP/1.1 200 OK\r\n") {
                while send(format!("X: {}\r\n", "y".repeat(1_000)).as_bytes()) {}
            }
        }
        Way::Redirected => {
            send(
                b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            );
        }
        Way::WrongLength => {
            send(head(answer.len() * 2).as_bytes());
            send(&answer);
        }
    }
}

/// 400 requests: those that are answered well are right, all others are errors, each within its time, of bounded size.
#[test]
fn whatever_etcd_sends_ends_in_time_and_within_bounds() {
    let etcd = Arc::new(FakeEtcd::default());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("etcd://{}/weft", listener.local_addr().unwrap());
    let address: crate::service::ha::address::Address = address.parse().unwrap();
    let http = Arc::new(Http::new(&address, TIMEOUT, None).unwrap());
    let (sent, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let way = Arc::new(std::sync::Mutex::new(Way::Well));
    let (mine, counted, ended, how) = (etcd.clone(), sent.clone(), over.clone(), way.clone());
    let server = std::thread::spawn(move || {
        let mut rng = Rng::new(5);
        for stream in listener.incoming().map_while(Result::ok) {
            if ended.load(Ordering::SeqCst) {
                break;
            }
            let way = *how.lock().unwrap();
            serve(stream, &mine, way, &mut rng, &counted);
        }
    });
    let candidate =
        Candidate::new(http.clone(), address.clone(), "one", Duration::from_secs(2), clock);
    let quick = [Way::Mutated, Way::CutOff, Way::Redirected, Way::WrongLength];
    let late = [Way::Silent, Way::Slow, Way::EndlessBody, Way::EndlessChunks, Way::EndlessHead];
    let ways = (0..376).map(|at| quick[at % 4]).chain((0..10).map(|at| late[at % 5]));
    for (at, one) in ways.chain([Way::Well]).enumerate() {
        *way.lock().unwrap() = one;
        let before = sent.load(Ordering::SeqCst);
        #[expect(clippy::disallowed_methods, reason = "a time limit is tested")]
        let begun = Instant::now();
        let outcome = Etcd(http.clone()).get("weft/none");
        let took = begun.elapsed();
        match one {
            Way::Well => assert!(matches!(outcome, Ok(None)), "{at}: {outcome:?}"),
            Way::Mutated => {}
            _ => assert!(outcome.is_err(), "{at} {one:?}: {outcome:?}"),
        }
        // A member is tried twice; what a busy machine adds is not the client's.
        assert!(took < 2 * TIMEOUT + Duration::from_secs(5), "{at} {one:?}: {took:?}");
        let received = sent.load(Ordering::SeqCst) - before;
        let most = 2 * (ANSWER_MAX as u64 + (8 << 20)); // with what the kernel takes
        assert!(received < most, "{at} {one:?}: {received} bytes");
        if at % 16 == 0 {
            let lead = candidate.campaign();
            assert!(
                one == Way::Mutated || one == Way::Well || !matches!(lead, Ok(Some(_))),
                "{one:?}"
            );
            etcd.state.lock().unwrap().depose();
        }
    }
    *way.lock().unwrap() = Way::Well;
    let lead = candidate.campaign().unwrap().unwrap();
    assert!(candidate.keep(&lead).unwrap());
    over.store(true, Ordering::SeqCst);
    drop(TcpStream::connect(address.members()[0].as_str()));
    server.join().unwrap();
    let gone = http.post("/v3/kv/range", "{}").unwrap_err();
    assert!(matches!(gone, EtcdError::Silent { .. }), "{gone:?}");
}
