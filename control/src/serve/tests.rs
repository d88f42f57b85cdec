//! Clients that are slow, silent, greedy or too many, against a protocol of one line.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};

use weft_base::wait::{self, LONG};

use super::*;

/// Answers each line, a number, with so many bytes; a client that sends `owner` becomes one.
struct Lines;

impl Protocol for Lines {
    fn role(&self) -> Role {
        Role::Management
    }

    fn name(&self) -> &'static str {
        "weft-test"
    }

    fn trust(&self, _stream: &Stream) -> Result<Trust, Vec<u8>> {
        Ok(Trust::User)
    }

    fn full(&self) -> Vec<u8> {
        b"full\n".to_vec()
    }

    fn serve(&self, client: &Client) {
        let mut reader = BufReader::new(client);
        let mut line = Vec::new();
        loop {
            client.idle();
            let Ok(available) = reader.fill_buf() else { return };
            if available.is_empty() {
                return;
            }
            client.asking();
            line.clear();
            if reader.read_until(b'\n', &mut line).is_err() || !line.ends_with(b"\n") {
                return;
            }
            client.working();
            let text = String::from_utf8_lossy(&line);
            if text.trim() == "owner" {
                let _ = client.raise(Trust::Owner);
            }
            let bytes = text.trim().parse().unwrap_or(3);
            let sent = match client.hold(bytes) {
                Ok(_held) => client.send(&vec![b'x'; bytes]),
                Err(_) => client.send(b"no\n"),
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

const LIMITS: Limits = Limits {
    clients: 8,
    unknown: 0,
    idle: Duration::from_hours(1),
    request: Duration::from_hours(1),
    answer: Duration::from_hours(1),
    unread: 32 << 20,
};

fn served(limits: Limits) -> (Server, SocketAddr) {
    let listener = Listener::tcp("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.addr().unwrap();
    (Server::start(listener, limits, Arc::new(Lines)).unwrap(), addr)
}

fn connect(addr: SocketAddr, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(first).unwrap();
    stream
}

fn ask(stream: &mut TcpStream, line: &[u8]) -> io::Result<Vec<u8>> {
    stream.write_all(line)?;
    let mut answer = vec![0; 3];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

/// Waits until the server has these counts.
#[track_caller]
fn until(server: &Server, is_so: impl Fn(Counts) -> bool) {
    wait::until(LONG, "counts as wanted", || is_so(server.counts()).then_some(()));
}

#[test]
fn slow_clients_in_all_places_do_not_keep_others_out() {
    let (server, addr) = served(LIMITS);
    let slow: Vec<_> = (0..100).map(|_| connect(addr, b"1")).collect();
    until(&server, |counts| counts.accepted == 100);
    assert_eq!(ask(&mut connect(addr, b""), b"3\n").unwrap(), b"xxx");
    let Counts { open, evicted, refused, .. } = server.counts();
    assert!(open <= 8 && evicted >= 93 && refused == 0, "{:?}", server.counts());
    drop(slow);
}

#[test]
fn a_place_is_kept_for_an_owner_and_owners_do_not_go_for_others() {
    let (server, addr) = served(LIMITS);
    let mut owner = connect(addr, b"");
    assert_eq!(ask(&mut owner, b"owner\n").unwrap(), b"xxx");
    let crowd: Vec<_> = (0..100).map(|_| connect(addr, b"")).collect();
    until(&server, |counts| counts.accepted == 101);
    assert_eq!(ask(&mut owner, b"3\n").unwrap(), b"xxx");
    drop(crowd);
}

#[test]
fn whoever_is_slower_than_its_time_is_sent_away() {
    let short = Duration::from_millis(100);
    #[rustfmt::skip] // columns: name, limits, first bytes
    let cases = [
        ("idle", Limits { idle: short, ..LIMITS }, b"".as_slice()),
        ("half a request", Limits { request: short, ..LIMITS }, b"1"),
        ("an answer that is not taken", Limits { answer: short, ..LIMITS }, b"30000000\n"),
    ];
    for (name, limits, first) in cases {
        let (server, addr) = served(limits);
        let client = connect(addr, first);
        until(&server, |counts| counts.overdue == 1);
        until(&server, |counts| counts.open == 0);
        drop((client, name));
    }
}

/// Byte by byte is as slow as not at all.
#[test]
fn a_request_has_its_time_as_a_whole() {
    let (server, addr) = served(Limits { request: Duration::from_millis(200), ..LIMITS });
    let client = connect(addr, b"");
    until(&server, |counts| {
        let _ = (&client).write_all(b"1"); // it is closed at last
        counts.overdue == 1
    });
}

#[test]
fn answers_that_nobody_reads_are_bounded_in_all() {
    let (server, addr) = served(LIMITS);
    let greedy: Vec<_> = (0..6).map(|_| connect(addr, b"10000000\n")).collect();
    until(&server, |counts| counts.accepted == 6);
    wait::until(LONG, "three answers wait", || (server.unread() >= 30_000_000).then_some(()));
    assert_eq!(ask(&mut connect(addr, b""), b"10000000\n").unwrap(), b"no\n");
    assert!(server.unread() <= LIMITS.unread);
    drop(server); // ends all that wait
    drop(greedy);
}
