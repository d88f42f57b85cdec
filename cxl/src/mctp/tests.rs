//! A component as an MCTP endpoint: good messages, damaged ones, and bounds.

use weft_base::rng::Rng;
use weft_dataplane::time::{LinkRate, Span};
use weft_parsers::cci::{Category, Opcode, Request, ReturnCode};
use weft_parsers::fabric::Pid;
use weft_parsers::mctp::PACKET_LEN;

use super::assembly::{ASSEMBLIES_MAX, BYTES_MAX, MESSAGE_MAX, MESSAGE_TIME};
use super::datagrams::{Datagrams, Origin};
use super::*;
use crate::gfd::{Config, Gfd, Memory};
use crate::gfd_end::Device;

const UUID: Uuid = [0x5E; 16];
const HEAD: Transport =
    Transport { dest: 8, source: 9, first: true, last: true, seq: 0, owner: true, tag: 5 };
const NOW: Instant = Instant::ZERO;

fn device() -> Device {
    Device::new(
        Gfd::new(Config::full(Pid::NONE, LinkRate::gbps(100)), Memory::anonymous(1 << 30)),
        1,
    )
}

fn connection() -> Connection {
    Connection::new(Session::Fm(1), Right::Primary, UUID)
}

fn bytes(head: Transport, kind: u8, body: &[u8]) -> Vec<u8> {
    packets(head, kind, body).flatten().collect()
}

fn request(request: &Request<'_>, tag: u8) -> Vec<u8> {
    let mut out = vec![0; 300];
    let len = request.emit_message(tag, &mut out).unwrap();
    out.truncate(len);
    out
}

/// Header, type and body with padding of each message in `out`.
fn messages(out: &[u8]) -> Vec<(Transport, u8, Vec<u8>)> {
    assert_eq!(out.len() % PACKET_LEN, 0);
    let mut all: Vec<(Transport, u8, Vec<u8>)> = Vec::new();
    for packet in out.chunks(PACKET_LEN) {
        let Packet { head, payload } = Packet::parse(packet.try_into().unwrap()).unwrap();
        if head.first {
            all.push((head, payload[0], payload[1..].to_vec()));
        } else {
            all.last_mut().unwrap().2.extend(payload);
        }
    }
    all
}

fn code(body: &[u8]) -> ReturnCode {
    let (header, _, _) = Header::cut(body).unwrap();
    assert_eq!(header.category, Category::Response);
    header.return_code
}

#[test]
fn requests_are_answered_with_their_tags_however_they_are_cut() {
    let mut all = bytes(HEAD, 7, &request(&Request::Identify, 1));
    all.extend(bytes(
        Transport { tag: 3, source: 77, ..HEAD },
        8,
        &request(&Request::IdentifySwitch, 2),
    ));
    all.extend(bytes(Transport { tag: 1, ..HEAD }, 0, &[0x81, 5]));
    for step in [1, 7, 68, 69, all.len()] {
        let (mut device, mut connection, mut out) = (device(), connection(), Vec::new());
        for part in all.chunks(step) {
            assert!(!connection.receive(&mut device, NOW, part, usize::MAX, &mut out));
        }
        let got = messages(&out);
        let heads: Vec<_> =
            got.iter().map(|(head, kind, _)| (head.tag, head.dest, *kind)).collect();
        assert_eq!(heads, [(5, 9, 7), (3, 77, 8), (1, 9, 0)], "{step}");
        assert!(got.iter().all(|(head, ..)| !head.owner && head.source == 8), "{step}");
        assert_eq!(
            (code(&got[0].2), code(&got[1].2)),
            (ReturnCode::Success, ReturnCode::Unsupported)
        );
        assert_eq!(got[2].2[..6], [1, 5, 0, 2, 7, 8]);
        assert!(!connection.is_half() && connection.was_asked());
        let counts = connection.take_counts();
        assert_eq!(
            (counts.packets, counts.requests, counts.control, counts.dropped()),
            (3, 2, 1, 0)
        );
        assert!(!connection.was_asked());
    }
}

/// Name, request, and first bytes of the response, if there is one.
type Exchange = (&'static str, &'static [u8], Option<&'static [u8]>);

/// Control messages: completion codes, and an EID that is kept.
#[test]
fn control_messages_are_answered_by_the_book() {
    let mut control = Control::new(UUID);
    #[rustfmt::skip] // columns: name, request, answer's begin
    let cases: [Exchange; 15] = [
        ("EID before one is set", &[0x80, 2],              Some(&[0, 2, 0, 0, 0, 0])),
        ("UUID",                  &[0x9F, 3],              Some(&[0x1F, 3, 0, 0x5E])),
        ("null EID",              &[0x80, 1, 0, 0],        Some(&[0, 1, 2])),
        ("broadcast",             &[0x80, 1, 0, 255],      Some(&[0, 1, 2])),
        ("reset",                 &[0x80, 1, 2, 9],        Some(&[0, 1, 2])),
        ("set",                   &[0x81, 1, 0, 20],       Some(&[1, 1, 0, 0, 20, 0])),
        ("force",                 &[0x82, 1, 0xFD, 21],    Some(&[2, 1, 0, 0, 21, 0])),
        ("EID",                   &[0x80, 2],              Some(&[0, 2, 0, 21, 0, 0])),
        ("base versions",         &[0x80, 4, 0xFF],        Some(&[0, 4, 0, 4, 0xF1, 0xF0, 0xFF, 0])),
        ("versions of CCI",       &[0x80, 4, 8],           Some(&[0, 4, 0, 1, 0xF1, 0xF0, 0xF0, 0])),
        ("versions of others",    &[0x80, 4, 1],           Some(&[0, 4, 0x80])),
        ("unknown",               &[0x80, 6, 0],           Some(&[0, 6, 5])),
        ("too short",             &[0x80, 1, 0],           Some(&[0, 1, 3])),
        ("a response",            &[0x00, 2],              None),
        ("a datagram",            &[0xC0, 2],              None),
    ];
    for (name, body, want) in cases {
        let got = control.answer(body);
        let begin = got.as_ref().map(|got| &got[..want.map_or(0, <[u8]>::len).min(got.len())]);
        assert_eq!(begin, want, "{name}");
    }
    assert_eq!(control.answer(&[&[0x80, 2][..], &[0; 62]].concat()).unwrap()[2], INVALID_LENGTH);
    assert_eq!(
        [21, 0, 255, 20, 8].map(|dest| control.is_called(dest)),
        [true, true, true, false, false]
    );
}

const INVALID_LENGTH: u8 = 3;

type Count = fn(&MctpCounts) -> u64;

#[test]
fn what_ends_an_assembly_is_counted() {
    let long = request(&Request::Identify, 1).into_iter().chain([0; 180]).collect::<Vec<_>>();
    let parts: Vec<[u8; PACKET_LEN]> = packets(HEAD, 7, &long).collect();
    assert_eq!(parts.len(), 4);
    let of = |order: &[usize]| order.iter().flat_map(|&at| parts[at]).collect::<Vec<u8>>();
    let flood: Vec<u8> = (0..=u8::MAX)
        .flat_map(|source| {
            let head = Transport { source, last: false, ..HEAD };
            let mut packet = [0; PACKET_LEN];
            packet[..4].copy_from_slice(&head.emit());
            packet
        })
        .collect();
    #[rustfmt::skip] // columns: name, bytes, count, how many
    let cases: [(&str, Vec<u8>, Count, u64); 9] = [
        ("no beginning",      of(&[1, 2]),             |c| c.orphans, 2),
        ("a part is lost",    of(&[0, 1, 3]),          |c| c.out_of_order, 1),
        ("a part comes twice", of(&[0, 0]),            |c| c.restarted, 1),
        ("in another order",  of(&[0, 2, 1]),          |c| c.out_of_order, 1),
        ("version 2",         { let mut all = of(&[0]); all[0] = 2; all }, |c| c.version, 1),
        ("unknown type",      bytes(HEAD, 0x70, &[1]), |c| c.unknown_type, 1),
        ("an answer",         bytes(Transport { owner: false, ..HEAD }, 7, &long), |c| c.no_request, 1),
        ("no header",         bytes(HEAD, 7, &[]),     |c| c.requests, 1),
        ("too many at once",  flood,                   |c| c.no_room, 256 - ASSEMBLIES_MAX as u64),
    ];
    for (name, bytes, count, want) in cases {
        let (mut device, mut connection, mut out) = (device(), connection(), Vec::new());
        connection.receive(&mut device, NOW, &bytes, usize::MAX, &mut out);
        if name != "no header" {
            assert!(out.is_empty() && connection.is_half(), "{name}");
        }
        assert_eq!(count(&connection.take_counts()), want, "{name}");
        // The next message is carried out nevertheless.
        let good = self::bytes(Transport { tag: 7, ..HEAD }, 7, &request(&Request::Identify, 2));
        out.clear();
        connection.receive(&mut device, NOW, &good, usize::MAX, &mut out);
        assert_eq!(code(&messages(&out)[0].2), ReturnCode::Success, "{name}");
    }
}

#[test]
fn half_messages_are_bounded_in_time_and_bytes() {
    let (mut device, mut connection, mut out) = (device(), connection(), Vec::new());
    let part = |source: u8, seq: usize, first: bool| {
        let head =
            Transport { source, first, last: false, seq: u8::try_from(seq & 3).unwrap(), ..HEAD };
        let mut packet = [0; PACKET_LEN];
        packet[..4].copy_from_slice(&head.emit());
        packet
    };
    // As long as a message may be, and one packet more.
    for seq in 0..=MESSAGE_MAX / UNIT {
        connection.receive(&mut device, NOW, &part(1, seq, seq == 0), usize::MAX, &mut out);
    }
    assert_eq!(connection.take_counts().too_long, 1);
    for source in 0..20 {
        for seq in 0..500 {
            connection.receive(
                &mut device,
                NOW,
                &part(source, seq, seq == 0),
                usize::MAX,
                &mut out,
            );
            assert!(connection.assembler.held() <= BYTES_MAX);
        }
    }
    assert!(connection.take_counts().no_room > 0 && out.is_empty());
    assert_eq!(connection.next_due(), Some(NOW + MESSAGE_TIME));
    connection.expire(NOW + MESSAGE_TIME - Span::from_ns(1));
    assert!(connection.assembler.held() > 0);
    connection.expire(NOW + MESSAGE_TIME);
    assert_eq!((connection.assembler.held(), connection.next_due()), (0, None));
    assert!(connection.is_half(), "something was dropped, and nothing whole has come since");
    assert!(connection.take_counts().timed_out > 0);
}

/// The length in the header is checked against the number of packets.
#[test]
fn lengths_that_do_not_fit_are_refused() {
    for (told, sent) in [(200, 3), (0, 100), (0x1F_FFFF, 0), (1, 1)] {
        let mut message = vec![0; header::LEN + sent];
        Header::request(Opcode::IDENTIFY, 1).emit(told, &mut message).unwrap();
        let (mut device, mut connection, mut out) = (device(), connection(), Vec::new());
        let all = bytes(HEAD, 7, &message);
        connection.receive(&mut device, NOW, &all, usize::MAX, &mut out);
        assert_eq!(code(&messages(&out)[0].2), ReturnCode::InvalidPayloadLength, "{told} {sent}");
    }
}

#[test]
fn answers_that_are_not_taken_stop_requests() {
    let one = bytes(HEAD, 7, &request(&Request::Identify, 1));
    let (mut device, mut connection, mut out) = (device(), connection(), Vec::new());
    assert!(connection.receive(&mut device, NOW, &one.repeat(10), 100, &mut out));
    assert_eq!(messages(&out).len(), 2);
    let mut rounds = 1;
    while connection.receive(&mut device, NOW, &[], 100 + out.len(), &mut out) {
        rounds += 1;
    }
    assert_eq!((messages(&out).len(), rounds), (10, 4));
}

#[test]
fn whole_messages_are_answered_by_sender_type_and_tag() {
    let (mut device, mut all) = (device(), Datagrams::new(Session::Fm(1), Right::Primary));
    let good = request(&Request::Identify, 1);
    let mut ask = |all: &mut Datagrams, kind, owner, body: &[u8]| {
        all.receive(&mut device, NOW, Origin { sender: (1, 9), kind, tag: 5 }, owner, body)
    };
    for kind in [7, 8] {
        let response = ask(&mut all, kind, true, &good).expect("at once");
        assert_eq!(code(&response), ReturnCode::Success, "{kind}");
    }
    let extra = [&good[..], &[0]].concat(); // the kernel pads nothing
    let refused = ask(&mut all, 7, true, &extra).expect("at once");
    assert_eq!(code(&refused), ReturnCode::InvalidPayloadLength);
    let mut answer = good.clone();
    answer[0] |= 1;
    for (kind, owner, body) in [
        (0, true, &good[..]),
        (0x87, true, &good),
        (7, false, &good),
        (7, true, &answer),
        (7, true, &good[..11]),
    ] {
        assert_eq!(ask(&mut all, kind, owner, body), None, "{kind} {owner} {body:?}");
    }
    all.too_long();
    let counts = all.take_counts();
    assert_eq!((counts.requests, counts.unknown_type, counts.no_request), (3, 2, 3));
    assert_eq!((counts.too_long, counts.dropped(), all.tickets().len()), (1, 6, 0));
}

/// Seeded mutations of good messages: no panic, responses in whole packets, and buffers within their bounds.
fn mutate(rounds: u64) {
    let good = [
        bytes(HEAD, 7, &request(&Request::Identify, 1)),
        bytes(HEAD, 8, &request(&Request::GetSupportedLogs, 2)),
        bytes(HEAD, 0, &[0x81, 1, 0, 12]),
        bytes(HEAD, 0, &[0x82, 4, 0xFF]),
        bytes(HEAD, 7, &[&request(&Request::IdentifyGfd, 3)[..], &[0; 150]].concat()),
    ];
    let (mut device, mut connection) = (device(), connection());
    let (mut rng, mut answered, mut dropped, mut now) = (Rng::new(0x3C7), 0_u64, 0_u64, NOW);
    for round in 0..rounds {
        let at = |rng: &mut Rng, len: usize| usize::try_from(rng.below(len as u64)).unwrap();
        let mut bytes = good[at(&mut rng, good.len())].clone();
        for _ in 0..rng.below(4) {
            let place = match rng.below(3) {
                0 => at(&mut rng, 4), // the transport header of the first packet
                1 => at(&mut rng, 20),
                _ => at(&mut rng, bytes.len()),
            };
            bytes[place] = match rng.below(3) {
                0 => u8::try_from(rng.below(256)).unwrap(),
                1 => bytes[place] ^ 1 << rng.below(8),
                _ => [0, 1, 7, 8, 0x7F, 0x80, 0xC8, 0xFF][at(&mut rng, 8)],
            };
        }
        // Sometimes a packet is lost or repeated, or a byte, after which nothing fits until the connection ends.
        match rng.below(40) {
            0 => drop(bytes.drain(..PACKET_LEN)),
            1 => bytes.extend_from_within(..PACKET_LEN),
            2 => drop(bytes.pop()),
            _ => {}
        }
        let mut out = Vec::new();
        now += Span::from_ms(rng.below(50));
        connection.receive(&mut device, now, &bytes, usize::MAX, &mut out);
        assert!(out.len() <= 40 * PACKET_LEN, "round {round}: {} bytes", out.len());
        messages(&out);
        assert!(connection.assembler.held() <= BYTES_MAX && connection.bytes.len() < PACKET_LEN);
        if rng.below(200) == 0 || !bytes.len().is_multiple_of(PACKET_LEN) {
            connection = self::connection();
        }
        let counts = connection.take_counts();
        answered += counts.requests + counts.control;
        dropped += counts.dropped();
        assert!(device.common_mut().answers().next().is_none(), "round {round}: none is awaited");
    }
    assert!(
        answered > rounds / 10 && dropped > rounds / 10,
        "{answered} answered, {dropped} dropped"
    );
}

#[test]
fn mutated_messages_are_answered_or_dropped() {
    mutate(20_000);
}

#[test]
#[ignore = "soak: a million messages"]
fn soak_a_million_mutated_mctp_messages() {
    mutate(1_000_000);
}
