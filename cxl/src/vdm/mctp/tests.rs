//! Tunnels: assembly with each of its errors, requests and their responses, and two ends over a bad wire.

use std::collections::BTreeMap;

use weft_base::rng::Rng;
use weft_parsers::cci::{Opcode, ReturnCode};
use weft_parsers::tlp::PbrTlp;

use super::*;
use crate::vdm::testing::{Wire, bytes, ms, pid};

const TIMEOUT: Span = Span::from_ms(500);

fn request(len: usize, tag: u8) -> Vec<u8> {
    let mut message: Vec<u8> = (0..12 + len).map(|k| k as u8 ^ tag).collect();
    Header::request(Opcode(0x5700), tag).emit(len, &mut message).unwrap();
    message
}

/// The response to `request`, with `extra` bytes more.
fn response(request: &[u8], extra: usize) -> Vec<u8> {
    let (header, payload) = Header::parse(request).unwrap();
    let mut message = vec![0; 12];
    message.extend(payload.iter().map(|byte| !byte));
    message.resize(request.len() + extra, 0xEE);
    header.response(ReturnCode::Success).emit(request.len() + extra - 12, &mut message).unwrap();
    message
}

fn drain(tunnel: &mut Tunnel, now: Instant) -> Vec<Sent> {
    core::iter::from_fn(|| tunnel.poll(now)).take(100_000).collect()
}

fn wire_of(sent: &Sent) -> Vec<u8> {
    bytes(sent.pth, &sent.repr())
}

/// Bytes from a wire at a port.
fn receive(tunnel: &mut Tunnel, now: Instant, port: u8, bytes: &[u8]) {
    let pbr = PbrTlp::parse(bytes).unwrap().unwrap();
    tunnel.receive(now, port, pbr.pth(), &MctpPacket::parse(pbr.tlp()).unwrap());
}

#[test]
fn packets_stand_on_the_wire_as_dsp0238_has_them() {
    let mut tunnel = Tunnel::new(pid(0x0A1));
    let message = request(60, 0); // 73 bytes with the type: 64 and 9
    tunnel.request(ms(0), Peer::Pid(pid(0x123)), MessageType::FmApi, &message, TIMEOUT).unwrap();
    let sent = drain(&mut tunnel, ms(0));
    assert_eq!(sent.len(), 2);
    #[rustfmt::skip]
    let head = [
        0xC2, 0x0A, 0x11, 0x23, 0x72, 0, 0, 0x10, 0, 0, 0, 0x7F, 0, 0, 0x1A, 0xB4, 0x01, 0, 0, 0x89, 7,
    ];
    assert_eq!(wire_of(&sent[0]), [&head[..], &message[..63]].concat());
    #[rustfmt::skip]
    let head = [
        0xC2, 0x0A, 0x11, 0x23, 0x72, 0, 0, 0x03, 0, 0, 0, 0x7F, 0, 0, 0x1A, 0xB4, 0x01, 0, 0, 0x59,
    ];
    assert_eq!(wire_of(&sent[1]), [&head[..], &message[63..], &[0; 3]].concat());
    tunnel.request(ms(0), Peer::Port(3), MessageType::Cci, &request(0, 1), TIMEOUT).unwrap();
    let sent = drain(&mut tunnel, ms(0));
    assert_eq!(
        (sent[0].peer, &wire_of(&sent[0])[..4]),
        (Peer::Port(3), &[0xC2, 0x0A, 0x1F, 0xFF][..])
    );
    assert_eq!(wire_of(&sent[0])[19..21], [0xCA, 8]);
}

/// Packets with another sender's SPID by another port neither join its message nor end it.
#[test]
fn a_message_comes_whole_by_one_port() {
    let (mut a, mut b) = (Tunnel::new(pid(1)), Tunnel::new(pid(2)));
    let message = request(60, 0);
    a.request(ms(0), Peer::Pid(pid(2)), MessageType::FmApi, &message, TIMEOUT).unwrap();
    let [first, last] = <[Sent; 2]>::try_from(drain(&mut a, ms(0))).unwrap();
    receive(&mut b, ms(1), 7, &wire_of(&first));
    receive(&mut b, ms(1), 8, &wire_of(&first));
    receive(&mut b, ms(1), 9, &wire_of(&last));
    assert_eq!((b.pop_event(), b.counts().1.orphans), (None, 1), "halves of two ports");
    receive(&mut b, ms(1), 7, &wire_of(&last));
    let Some(Event::Request { ticket, message: whole, .. }) = b.pop_event() else { panic!() };
    assert_eq!((b.asker(ticket), whole), (Some((7, pid(1))), message));
    // Another request with the same tag and SPID, by another port.
    let mut forger = Tunnel::new(pid(1));
    forger.request(ms(1), Peer::Pid(pid(2)), MessageType::FmApi, &request(0, 5), TIMEOUT).unwrap();
    for sent in &drain(&mut forger, ms(1)) {
        receive(&mut b, ms(1), 8, &wire_of(sent));
    }
    let Some(Event::Request { ticket: other, .. }) = b.pop_event() else { panic!() };
    assert_eq!((b.asker(ticket), b.asker(other)), (Some((7, pid(1))), Some((8, pid(1)))));
}

#[test]
fn partners_without_a_pid_are_answered_by_their_port() {
    let (mut a, mut b) = (Tunnel::new(pid(1)), Tunnel::new(Pid::NONE));
    let message = request(200, 9);
    let id = a.request(ms(0), Peer::Port(4), MessageType::FmApi, &message, TIMEOUT).unwrap();
    for sent in &drain(&mut a, ms(0)) {
        receive(&mut b, ms(0), 7, &wire_of(sent));
    }
    let Some(Event::Request { from, ticket, kind, message: got }) = b.pop_event() else { panic!() };
    assert_eq!((from, kind, &got), (Peer::Port(7), MessageType::FmApi, &message));
    let answer = response(&message, 5);
    assert_eq!(b.respond(ticket, &message), Err(TunnelError::Form));
    b.respond(ticket, &answer).unwrap();
    assert_eq!(b.respond(ticket, &answer), Err(TunnelError::Gone));
    for sent in drain(&mut b, ms(1)) {
        assert_eq!(
            (sent.peer, sent.pth.spid, sent.pth.dpid),
            (Peer::Port(7), Pid::NONE, Pid::NONE)
        );
        receive(&mut a, ms(1), 4, &wire_of(&sent));
    }
    assert_eq!((a.pop_event(), a.next_due()), (Some(Event::Response(id, answer)), None));
}

/// Order of arrival of a message's three packets; whether it completes, and the count of the failure.
#[test]
fn every_assembly_of_three_packets() {
    let mut a = Tunnel::new(pid(1));
    a.request(ms(0), Peer::Pid(pid(2)), MessageType::Cci, &request(150, 3), TIMEOUT).unwrap();
    let packets: Vec<_> = drain(&mut a, ms(0)).iter().map(wire_of).collect();
    assert_eq!(packets.len(), 3);
    #[rustfmt::skip] // columns: name, packets, whole, counts: orphans, out of order, restarted
    let cases: [(&str, &[usize], usize, [u64; 3]); 10] = [
        ("in order",          &[0, 1, 2],             1, [0, 0, 0]),
        ("first lost",        &[1, 2],                0, [2, 0, 0]),
        ("second lost",       &[0, 2],                0, [0, 1, 0]),
        ("last lost",         &[0, 1],                0, [0, 0, 0]),
        ("second twice",      &[0, 1, 1, 2],          0, [1, 1, 0]),
        ("first twice",       &[0, 0, 1, 2],          1, [0, 0, 1]),
        ("last twice",        &[0, 1, 2, 2],          1, [1, 0, 0]),
        ("swapped",           &[0, 2, 1],             0, [1, 1, 0]),
        ("begun anew",        &[0, 1, 0, 1, 2],       1, [0, 0, 1]),
        ("twice as a whole",  &[0, 1, 2, 0, 1, 2],    1, [0, 0, 0]),
    ];
    for (name, order, whole, [orphans, out_of_order, restarted]) in cases {
        let mut b = Tunnel::new(pid(2));
        for &k in order {
            receive(&mut b, ms(0), 0, &packets[k]);
        }
        let events: Vec<_> = core::iter::from_fn(|| b.pop_event()).collect();
        assert_eq!(events.len(), whole, "{name}");
        let want = AssemblyCounts { orphans, out_of_order, restarted, ..AssemblyCounts::default() };
        assert_eq!(b.counts().1, want, "{name}");
        assert_eq!(b.counts().0.twice, u64::from(name == "twice as a whole"), "{name}");
    }
}

#[test]
fn messages_of_several_tags_come_interleaved() {
    let (mut a, mut b) = (Tunnel::new(pid(1)), Tunnel::new(pid(2)));
    let peer = Peer::Pid(pid(2));
    let ids: Vec<_> = (0..8)
        .map(|k| a.request(ms(0), peer, MessageType::Cci, &request(300, k), TIMEOUT).unwrap())
        .collect();
    let ninth = a.request(ms(0), peer, MessageType::Cci, &request(0, 9), TIMEOUT);
    assert_eq!(ninth, Err(TunnelError::Busy), "a peer has eight tags");
    a.request(ms(0), Peer::Port(1), MessageType::Cci, &request(0, 9), TIMEOUT).unwrap();
    let sent = drain(&mut a, ms(0));
    assert_ne!(sent[0].tag, sent[1].tag, "messages take turns");
    for sent in sent.iter().filter(|sent| sent.peer == peer) {
        receive(&mut b, ms(0), 0, &wire_of(sent));
    }
    let mut asked = Vec::new();
    while let Some(Event::Request { ticket, message, .. }) = b.pop_event() {
        asked.push((ticket, message));
    }
    assert_eq!(asked.len(), 8);
    for (ticket, message) in asked.iter().rev() {
        b.respond(*ticket, &response(message, 0)).unwrap();
    }
    for sent in &drain(&mut b, ms(0)) {
        receive(&mut a, ms(0), 0, &wire_of(sent));
    }
    let mut done = BTreeMap::new();
    while let Some(Event::Response(id, message)) = a.pop_event() {
        done.insert(id, message);
    }
    for (k, id) in ids.iter().enumerate() {
        assert_eq!(done[id], response(&request(300, k as u8), 0), "each gets its own");
    }
}

/// A packet written by hand.
fn packet(first: bool, last: bool, seq: u8, payload: &[u8]) -> MctpPacket<'_> {
    let (dest, source) = (EID_NULL, EID_NULL);
    MctpPacket { dest, source, first, last, seq, owner: true, tag: 0, pad: 0, payload }
}

#[test]
fn units_are_alike_and_messages_not_too_long() {
    let pth = Pth::new(pid(1), pid(2));
    let mut b = Tunnel::new(pid(2));
    b.receive(ms(0), 0, pth, &packet(true, false, 0, &[8; 64]));
    b.receive(ms(0), 0, pth, &packet(false, false, 1, &[8; 60]));
    b.receive(ms(0), 0, pth, &packet(true, false, 0, &[8; 32]));
    b.receive(ms(0), 0, pth, &packet(false, true, 1, &[8; 36]));
    b.receive(ms(0), 0, pth, &packet(true, true, 0, &[]));
    assert_eq!(b.counts().1.unit, 3);
    b.receive(ms(0), 0, pth, &packet(true, false, 0, &[8; 64]));
    for k in 1..=2_000_u16 {
        b.receive(ms(0), 0, pth, &packet(false, false, k.to_le_bytes()[0] & 3, &[8; 64]));
    }
    assert_eq!((b.counts().1.too_long, b.pop_event()), (1, None));
    // The longest message passes.
    let mut a = Tunnel::new(pid(1));
    let longest = request(MESSAGE_MAX - 12, 1);
    let peer = Peer::Pid(pid(2));
    a.request(ms(0), peer, MessageType::Cci, &longest, TIMEOUT).unwrap();
    for sent in &drain(&mut a, ms(0)) {
        receive(&mut b, ms(0), 0, &wire_of(sent));
    }
    assert!(matches!(b.pop_event(), Some(Event::Request { message, .. }) if message == longest));
    let longer = request(MESSAGE_MAX - 11, 1);
    let refused = a.request(ms(0), peer, MessageType::Cci, &longer, TIMEOUT);
    assert_eq!(refused, Err(TunnelError::TooLong(MESSAGE_MAX + 1)));
}

#[test]
fn what_is_no_message_for_us_is_counted() {
    let mut b = Tunnel::new(pid(2));
    let good = [&[7][..], &request(3, 0), &[0; 0]].concat();
    let mut bodies = [vec![6; 16], vec![7; 4], good.clone(), good.clone()];
    bodies[2].extend([0; 4]);
    bodies[3].truncate(12);
    let pth = Pth::new(pid(1), pid(2));
    for (k, body) in bodies.iter().enumerate() {
        b.receive(ms(0), 0, pth, &packet(true, true, 0, body));
        assert_eq!((b.counts().0.malformed, b.pop_event()), (k as u64 + 1, None));
    }
    b.receive(ms(0), 0, Pth::new(pid(1), pid(3)), &packet(true, true, 0, &good));
    b.receive(ms(0), 0, Pth::new(Pid::NONE, pid(2)), &packet(true, true, 0, &good));
    b.receive(ms(0), 0, pth, &MctpPacket { dest: 9, ..packet(true, true, 0, &good) });
    assert_eq!((b.counts().0.misdirected, b.pop_event()), (3, None));
    // A response without a request, and one with another opcode.
    let mut a = Tunnel::new(pid(2));
    let id =
        a.request(ms(0), Peer::Pid(pid(1)), MessageType::Cci, &request(0, 5), TIMEOUT).unwrap();
    let tag = drain(&mut a, ms(0))[0].tag;
    for (asked, tag) in [(request(0, 6), tag), (request(0, 5), tag ^ 1)] {
        let body = [&[8][..], &response(&asked, 0)].concat();
        let packet = MctpPacket { owner: false, tag, ..packet(true, true, 0, &body) };
        a.receive(ms(0), 0, pth, &packet);
        assert_eq!(a.pop_event(), None);
    }
    assert_eq!(a.counts().0.unexpected, 2);
    assert_eq!((a.poll(ms(499)), a.pop_event()), (None, None));
    assert_eq!(a.next_due(), Some(ms(500)));
    a.poll(ms(500));
    assert_eq!(a.pop_event(), Some(Event::Failed(id, Failure::TimedOut)));
}

#[test]
fn a_message_whose_packets_stop_is_given_up() {
    let mut b = Tunnel::new(pid(2));
    let pth = Pth::new(pid(1), pid(2));
    b.receive(ms(0), 0, pth, &packet(true, false, 3, &[8; 64]));
    assert_eq!(b.next_due(), Some(Instant::ZERO + assembly::PACKET_GAP));
    b.poll(Instant::ZERO + assembly::PACKET_GAP);
    assert_eq!((b.counts().1.timed_out, b.next_due()), (1, None));
    for k in 0..100 {
        let pth = Pth::new(pid(10 + k), pid(2));
        b.receive(ms(200), 0, pth, &packet(true, false, 3, &[8; 64]));
    }
    assert_eq!(b.counts().1.no_room, 100 - assembly::ASSEMBLIES_MAX as u64);
}

#[test]
fn a_peer_that_goes_takes_its_requests_with_it() {
    let mut a = Tunnel::new(pid(1));
    let gone = a.request(ms(0), Peer::Port(1), MessageType::Cci, &request(99, 0), TIMEOUT).unwrap();
    let stays = a.request(ms(0), Peer::Port(2), MessageType::Cci, &request(0, 0), TIMEOUT).unwrap();
    a.forget(Peer::Port(1));
    assert_eq!(a.pop_event(), Some(Event::Failed(gone, Failure::Gone)));
    assert_eq!(drain(&mut a, ms(0)).len(), 1);
    a.poll(ms(500));
    assert_eq!(a.pop_event(), Some(Event::Failed(stays, Failure::TimedOut)));
    assert_eq!(a.pop_event(), None);
}

#[test]
fn who_asks_without_end_is_bounded() {
    let mut b = Tunnel::new(pid(2));
    let mut a = Tunnel::new(pid(1));
    for k in 0..1_000 {
        let peer = Peer::Pid(pid(100 + k / 8));
        let _ = a.request(ms(0), peer, MessageType::Cci, &request(0, 0), TIMEOUT);
        let body = [&[8][..], &request(0, k as u8)].concat();
        let mut packet = packet(true, true, 0, &body);
        packet.tag = k as u8 & 7;
        b.receive(ms(0), 0, Pth::new(pid(k / 8), pid(2)), &packet);
    }
    assert_eq!((a.pending.len(), drain(&mut a, ms(0)).len()), (PENDING_MAX, PENDING_MAX));
    assert_eq!((b.serving.len(), b.events.len()), (SERVING_MAX, SERVING_MAX));
    assert_eq!(b.counts().0.no_room, 1_000 - SERVING_MAX as u64);
    b.poll(Instant::ZERO + SERVING_TIME);
    assert_eq!((b.serving.len(), b.next_due()), (0, None));
}

/// One manager and three components over wires that lose, double and delay packets: each request ends exactly once,
/// with its own response or an error; without losses with its response.
#[test]
fn every_request_ends_once() {
    for seed in 0..60 {
        let bad = if seed % 2 == 0 { 0 } else { 15 };
        let mut rng = Rng::new(seed);
        let mut fm = Tunnel::new(pid(1));
        let mut ends: Vec<_> = (0..3).map(|k| Tunnel::new(pid(10 + k))).collect();
        let mut wires: Vec<_> =
            (0..6).map(|k| Wire::new(seed * 6 + k, bad, bad, 8_000_000)).collect();
        let mut open = BTreeMap::new();
        let (mut answered, mut failed) = (0, 0);
        for t in 0..4_000 {
            let now = ms(t);
            let k = rng.below(3) as usize;
            let message = request(rng.below(400) as usize, rng.next_u64() as u8);
            if t < 3_000 && rng.chance(1, 4) {
                let peer = if k == 0 { Peer::Port(0) } else { Peer::Pid(pid(10 + k as u16)) };
                if let Ok(id) = fm.request(now, peer, MessageType::Cci, &message, TIMEOUT) {
                    open.insert(id, response(&message, 70));
                }
            }
            for sent in drain(&mut fm, now) {
                let k = match sent.peer {
                    Peer::Port(port) => usize::from(port),
                    Peer::Pid(pid) => usize::from(pid.bits()) - 10,
                };
                wires[k].send_bytes(now, &wire_of(&sent));
            }
            for (k, end) in ends.iter_mut().enumerate() {
                while let Some(bytes) = wires[k].recv_bytes(now) {
                    receive(end, now, 5, &bytes);
                }
                while let Some(Event::Request { ticket, message, .. }) = end.pop_event() {
                    end.respond(ticket, &response(&message, 70)).unwrap();
                }
                for sent in drain(end, now) {
                    wires[3 + k].send_bytes(now, &wire_of(&sent));
                }
                while let Some(bytes) = wires[3 + k].recv_bytes(now) {
                    receive(&mut fm, now, k as u8, &bytes);
                }
            }
            while let Some(event) = fm.pop_event() {
                match event {
                    Event::Response(id, message) => {
                        assert_eq!(open.remove(&id), Some(message), "seed {seed}");
                        answered += 1;
                    }
                    Event::Failed(id, Failure::TimedOut) => {
                        assert!(open.remove(&id).is_some(), "seed {seed}");
                        failed += 1;
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
        assert!(open.is_empty() && answered > 200, "seed {seed}: {answered}");
        assert_eq!(failed > 0, bad > 0, "seed {seed}: {failed} of {answered}");
        assert!(fm.assembler.next_due().is_none() && fm.next_due().is_none(), "seed {seed}");
    }
}
