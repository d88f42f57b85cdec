//! Managers that speak MCTP to a running switch: time limits and places, fencing, and messages that are damaged.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};

use weft_base::rng::Rng;
use weft_base::wait::{LONG, until};
use weft_config::places::Listen;
use weft_config::resolve::{CciConfig, CciGuard};
use weft_fm::cci::{Mctp, Peer, Socket, Transport};
use weft_parsers::cci::component::ClaimOp;
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::{Header, Request, ReturnCode};
use weft_parsers::mctp::{PACKET_LEN, Transport as Head, packets};

use super::super::tests::{ask, claim, live, message};
use super::*;
use crate::live::Live;

const UUID: Uuid = [7; 16];

fn server(live: &Live, owner: CciOwner, limits: Limits) -> Server {
    let agent = live.functions().as_ref().unwrap().agent.clone();
    let place = MctpPlace::Tcp("127.0.0.1:0".parse().unwrap());
    let config = MctpConfig { place, owner };
    Server::start_within(&config, UUID, agent, limits).unwrap()
}

fn addr(server: &Server) -> SocketAddr {
    match server.at() {
        MctpPlace::Tcp(addr) => addr,
        MctpPlace::Kernel(network) => panic!("{network:?}"),
    }
}

fn manager(server: &Server) -> Mctp {
    Mctp::new(addr(server), LONG)
}

fn call(manager: &mut Mctp, request: &Request<'_>) -> ReturnCode {
    let answer = manager.call(&message(request)).unwrap();
    Header::parse(&answer).unwrap().0.return_code
}

/// Packets of a request.
fn framed(request: &Request<'_>) -> Vec<u8> {
    let head = Head { dest: 0, source: 9, first: true, last: true, seq: 0, owner: true, tag: 1 };
    packets(head, MessageType::FmApi as u8, &message(request)).flatten().collect()
}

#[test]
fn who_comes_first_owns_by_all_connections_until_a_manager_claims() {
    let (live, dir) = (live(), tempfile::tempdir().unwrap());
    let mctp = server(&live, CciOwner::First, LIMITS);
    let path = dir.path().join("cci").join("cci.sock");
    let place = CciConfig { place: Listen::Unix(path.clone()), guard: CciGuard::OwnUser };
    let agent = live.functions().as_ref().unwrap().agent.clone();
    let _cci = super::super::Server::start(&place, agent).unwrap();
    let (mut one, mut other) = (manager(&mctp), manager(&mctp));
    let mut elsewhere = Socket::new(Peer::Unix(path), MessageType::FmApi, LONG);
    assert_eq!(call(&mut one, &Request::IdentifySwitch), ReturnCode::Success);
    assert_eq!(call(&mut other, &Request::IdentifySwitch), ReturnCode::Success);
    assert_eq!(ask(&mut elsewhere, &Request::IdentifySwitch).0, ReturnCode::Unsupported);
    assert_eq!(call(&mut one, &claim(ClaimOp::RegisterPrimary, 1)), ReturnCode::Unsupported);
    assert_eq!(ask(&mut elsewhere, &claim(ClaimOp::RegisterPrimary, 1)).0, ReturnCode::Success);
    let mut late = manager(&mctp);
    for fenced in [&mut one, &mut other, &mut late] {
        assert_eq!(call(fenced, &Request::IdentifySwitch), ReturnCode::Unsupported);
        assert_eq!(call(fenced, &claim(ClaimOp::UpdatePid, 1)), ReturnCode::Unsupported);
        assert_eq!(call(fenced, &Request::Identify), ReturnCode::Success);
    }
}

#[test]
fn silence_and_halves_are_sent_away_and_others_go_on() {
    let limits =
        Limits { request: Duration::from_millis(300), idle: Duration::from_mins(1), ..LIMITS };
    let live = live();
    let server = server(&live, CciOwner::First, limits);
    let mut works = manager(&server);
    assert_eq!(call(&mut works, &Request::Identify), ReturnCode::Success);
    let half: Vec<TcpStream> = [0, 3, PACKET_LEN]
        .into_iter()
        .map(|len| {
            let mut stream = TcpStream::connect(addr(&server)).unwrap();
            let long = Request::GetSupportedLogs;
            let mut bytes = framed(&long);
            bytes[3] &= !0x40; // the end of the message does not come
            stream.write_all(&bytes[..len]).unwrap();
            stream
        })
        .collect();
    until(LONG, "all three are sent away", || (server.report().overdue >= 3).then_some(()));
    assert_eq!(call(&mut works, &Request::Identify), ReturnCode::Success, "the first connection");
    assert_eq!(server.report().accepted, 4);
    drop(half);
}

/// Bytes that the process has in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Seeded mutations of good packets, by connections that end now and then, while another manager goes on; the
/// memory in use does not grow, where nothing else runs in the process.
fn mutate(rounds: u64, is_alone: bool) {
    let live = live();
    let server = server(&live, CciOwner::First, LIMITS);
    let mut works = manager(&server);
    assert_eq!(call(&mut works, &Request::Identify), ReturnCode::Success);
    let good: Vec<Vec<u8>> = [
        Request::Identify,
        Request::IdentifySwitch,
        Request::GetSupportedLogs,
        Request::BackgroundStatus,
        claim(ClaimOp::UpdatePid, 1),
    ]
    .iter()
    .map(framed)
    .collect();
    let mut rng = Rng::new(0x3C8);
    let mut at = |bound: usize| usize::try_from(rng.below(bound as u64)).unwrap();
    let (mut sent, mut held) = (0, 0);
    while sent < rounds {
        let mut stream = TcpStream::connect(addr(&server)).unwrap();
        let mut bytes = Vec::new();
        let count = 1 + at(2_000) as u64;
        for _ in 0..count {
            let mut one = good[at(good.len())].clone();
            for _ in 0..at(4) {
                let bound = if at(2) == 0 { 20 } else { one.len() };
                let place = at(bound);
                one[place] = u8::try_from(at(256)).unwrap();
            }
            bytes.extend(one);
        }
        sent += count;
        // Answers are read beside, or neither end would go on.
        let mut reader = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(io::copy(&mut reader, &mut io::sink())));
            stream.write_all(&bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        assert_eq!(call(&mut works, &Request::Identify), ReturnCode::Success, "after {sent}");
        let now = resident_bytes();
        if held == 0 && sent > rounds / 10 {
            held = now; // all that is kept for reuse is there
        }
        let is_steady = !is_alone || held == 0 || now < held + (64 << 20);
        assert!(is_steady, "{held} bytes grew to {now}");
    }
    until(LONG, "only one is left", || (server.report().open == 1).then_some(()));
    let messages = server.report().messages;
    assert!(messages.requests > rounds / 10 && messages.dropped() > rounds / 10, "{messages:?}");
    assert!(messages.packets >= sent, "all have come: {messages:?}");
}

#[test]
fn mutated_packets_do_not_disturb_others() {
    mutate(10_000, false);
}

#[test]
#[ignore = "soak: a million messages"]
fn soak_a_million_mutated_packets() {
    mutate(1_000_000, true);
}
