//! Tests of [`Requester`]: TLPs sent, and completions of any kind and in any order.

use weft_base::rng::Rng;
use weft_dataplane::time::Span;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::{Body, Completion, DevLoad, Status};

use super::*;

fn requester(mode: Mode) -> Requester {
    let timeout = Span::from_ns(1_000);
    let spec = RequesterSpec {
        mode,
        payload_max: 128,
        read_max: 256,
        uio_max: 4_096,
        in_flight_max: 4,
        timeout,
    };
    Requester::new(spec, Bdf::new(1, 0, 0))
}

/// All TLPs that a flush sends, as bytes.
fn sent(requester: &mut Requester, now: Instant) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    requester.flush(now, &mut |tlp| {
        let mut bytes = vec![0; 4_200];
        match tlp.emit(&mut bytes) {
            Ok(len) => {
                bytes.truncate(len);
                all.push(bytes);
                true
            }
            Err(_) => false,
        }
    });
    all
}

fn bytes(tlp: &TlpRepr<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 4_200];
    let len = tlp.emit(&mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

/// First address, length, `uio_max`, and the expected requests as address and length.
type Turns = (u64, usize, usize, Vec<(u64, usize)>);

/// UIO requests stay within granules of interleaved memory; memory requests need not.
#[test]
fn uio_requests_cross_no_multiple_of_theirs() {
    #[rustfmt::skip] // columns as of `Turns`
    let cases: [Turns; 4] = [
        (0x1000, 512,   256, vec![(0x1000, 256), (0x1100, 256)]),
        (0x10F0, 272,   256, vec![(0x10F0, 16), (0x1100, 256)]),
        (0x1000, 512, 4_096, vec![(0x1000, 512)]),
        (0x1100, 768,   512, vec![(0x1100, 256), (0x1200, 512)]),
    ];
    for (addr, len, uio_max, want) in cases {
        let timeout = Span::from_ns(1_000);
        let (payload_max, read_max, in_flight_max) = (512, 512, 64);
        let mode = Mode::Flit;
        let spec = RequesterSpec { mode, payload_max, read_max, uio_max, in_flight_max, timeout };
        for write in [false, true] {
            let mut requester = Requester::new(spec, Bdf::new(1, 0, 0));
            let (at, data) = (Hpa(addr), vec![0x55; len]);
            requester.submit(if write {
                Operation::UioWrite { addr: at, data }.into()
            } else {
                Operation::UioRead { addr: at, len }.into()
            });
            let place = |bytes: &Vec<u8>| {
                let tlp = Tlp::parse(mode, bytes).unwrap();
                (tlp.addr().unwrap().0, usize::from(tlp.length_dw()) * 4)
            };
            let found: Vec<_> = sent(&mut requester, Instant::ZERO).iter().map(place).collect();
            assert_eq!(found, want, "{addr:#x} {len} {uio_max} {write}");
        }
        let mut requester = Requester::new(spec, Bdf::new(1, 0, 0));
        requester.submit(Operation::Read { addr: Hpa(0x1000), len: 512 }.into());
        assert_eq!(sent(&mut requester, Instant::ZERO).len(), 1);
    }
}

#[test]
fn byte_enables_and_lengths_are_those_of_the_bytes() {
    #[rustfmt::skip] // columns: address, bytes, double words, first, last
    let cases = [
        (0x100, 4,   1, 0xF, 0x0),
        (0x101, 1,   1, 0x2, 0x0),
        (0x103, 1,   1, 0x8, 0x0),
        (0x102, 4,   2, 0xC, 0x3),
        (0x100, 8,   2, 0xF, 0xF),
        (0x101, 127, 32, 0xE, 0xF),
        (0x100, 0,   1, 0x0, 0x0),
    ];
    for (addr, len, dws, first, last) in cases {
        for mode in [Mode::NonFlit, Mode::Flit] {
            let mut requester = requester(mode);
            requester.submit(Operation::Write { addr: Hpa(addr), data: vec![0xAA; len] }.into());
            let all = sent(&mut requester, Instant::ZERO);
            let tlp = Tlp::parse(mode, &all[0]).unwrap();
            assert_eq!((all.len(), tlp.length_dw()), (1, dws), "{addr:#x} {len}");
            assert_eq!((tlp.first_be(), tlp.last_be()), (first, last), "{addr:#x} {len}");
            let done = requester.next_done().unwrap();
            assert_eq!(done.result, Ok(vec![]), "posted");
        }
    }
}

/// Requests wait for tags, and finish in the order of their answers.
#[test]
fn requests_wait_for_tags() {
    let mut requester = requester(Mode::NonFlit);
    let ops: Vec<_> = (0..6)
        .map(|n| requester.submit(Operation::Read { addr: Hpa(n * 64), len: 4 }.into()))
        .collect();
    let first = sent(&mut requester, Instant::ZERO);
    assert_eq!((first.len(), requester.in_flight(), requester.pending()), (4, 4, 6));
    for request in first.iter().rev() {
        let request = Tlp::parse(Mode::NonFlit, request).unwrap();
        let answer = Completion::with_data(&request, Bdf::default(), 0, &[1, 2, 3, 4]).unwrap();
        let answer = bytes(&answer);
        let answer = Tlp::parse(Mode::NonFlit, &answer).unwrap();
        assert!(requester.take(&answer));
        assert!(!requester.take(&answer), "a second answer is for nobody");
    }
    let done: Vec<_> = std::iter::from_fn(|| requester.next_done()).map(|done| done.op).collect();
    assert_eq!(done, [ops[3], ops[2], ops[1], ops[0]]);
    assert_eq!(sent(&mut requester, Instant::ZERO).len(), 2);
    assert_eq!(requester.expire(Instant::from_ns(999)), 0);
    assert_eq!(requester.expire(Instant::from_ns(1_000)), 2);
    let failed: Vec<_> = std::iter::from_fn(|| requester.next_done()).map(|it| it.result).collect();
    assert_eq!(failed, [Err(Failure::Timeout), Err(Failure::Timeout)]);
    let counts = requester.counts();
    assert_eq!((counts.sent, counts.answered, counts.timeouts, counts.unexpected), (6, 4, 2, 4));
}

/// docs/spec/wire-formats.md §3.6: chunks of a UIO read may come in any order, and each says its place.
#[test]
fn chunks_of_uio_come_in_any_order() {
    let mut rng = Rng::new(0x010);
    for round in 0..200 {
        let mut requester = requester(Mode::Flit);
        let (addr, len) = (0x1000 + rng.below(64), 1 + rng.below(200));
        let len = usize::try_from(len).unwrap();
        requester.submit(Operation::UioRead { addr: Hpa(addr), len }.into());
        let want: Vec<u8> = (0..len).map(|n| n.to_le_bytes()[0] ^ 0x5A).collect();
        let mut answers = Vec::new();
        for request in sent(&mut requester, Instant::ZERO) {
            let request = Tlp::parse(Mode::Flit, &request).unwrap();
            let Hpa(base) = request.addr().unwrap();
            let dws = usize::from(request.length_dw());
            let byte = |at: u64| {
                let at = (base + at).checked_sub(addr).and_then(|at| usize::try_from(at).ok());
                at.and_then(|at| want.get(at)).copied().unwrap_or(0xEE)
            };
            let data: Vec<u8> = (0..dws as u64 * 4).map(byte).collect();
            let mut from = 0;
            while from < dws {
                let until = from + 1 + usize::try_from(rng.below((dws - from) as u64)).unwrap();
                let place = usize::try_from(rng.below(answers.len() as u64 + 1)).unwrap();
                let from_dw = u16::try_from(from).unwrap();
                let part = &data[from * 4..until * 4];
                let answer = Completion::with_data(&request, Bdf::default(), from_dw, part);
                answers.insert(place, bytes(&answer.unwrap()));
                from = until;
            }
        }
        for answer in &answers {
            assert!(requester.take(&Tlp::parse(Mode::Flit, answer).unwrap()));
        }
        assert_eq!(requester.next_done().unwrap().result, Ok(want), "round {round}");
    }
}

/// Answers the one request in `sent` with RRS.
fn retry(requester: &mut Requester, sent: &[Vec<u8>]) {
    let [request] = sent else { panic!("{} requests", sent.len()) };
    let request = Tlp::parse(Mode::Flit, request).unwrap();
    let answer = Completion::of(&request, Status::RequestRetry, Bdf::default()).unwrap();
    assert!(requester.take(&Tlp::parse(Mode::Flit, &bytes(&answer)).unwrap()));
}

/// A requester with one tag and a time limit of 10 ms.
const ONE: RequesterSpec = RequesterSpec {
    mode: Mode::Flit,
    payload_max: 128,
    read_max: 256,
    uio_max: 4_096,
    in_flight_max: 1,
    timeout: Span::from_ms(10),
};

/// A UIO request completed with RRS is sent again unchanged, until its time is over.
#[test]
fn uio_requests_are_sent_again() {
    let at = |us| Instant::ZERO + Span::from_us(us);
    let data: Vec<u8> = (0..=255).collect();
    let operations = [
        Operation::UioRead { addr: Hpa(0x40), len: 64 },
        Operation::UioWrite { addr: Hpa(0x80), data: data[..100].to_vec() },
    ];
    for operation in operations {
        let mut requester = Requester::new(ONE, Bdf::new(1, 0, 0));
        requester.submit(operation.clone().into());
        let first = sent(&mut requester, at(0));
        retry(&mut requester, &first);
        assert_eq!(sent(&mut requester, at(10)), Vec::<Vec<u8>>::new(), "not at once");
        assert_eq!(requester.next_due(), Some(at(1_010)));
        let mut again = sent(&mut requester, at(1_010));
        assert_eq!(again.len(), 1);
        let tags = [&first, &again].map(|all| Tlp::parse(Mode::Flit, &all[0]).unwrap().tag());
        assert_ne!(tags[0], tags[1], "a late answer finds nobody");
        let same = |all: &[Vec<u8>]| {
            let tlp = Tlp::parse(Mode::Flit, &all[0]).unwrap();
            (tlp.repr().body, tlp.payload().to_vec(), tlp.kind())
        };
        assert_eq!(same(&first), same(&again));
        assert_eq!(requester.next_done(), None, "it is under way");
        // With RRS each time, it fails with RRS when its time is over.
        for round in 1..20 {
            retry(&mut requester, &again);
            sent(&mut requester, at(1_010 + 1_000 * (round - 1)));
            again = sent(&mut requester, at(1_010 + 1_000 * round));
            if again.is_empty() {
                break;
            }
        }
        let done = requester.next_done().unwrap();
        assert_eq!(done.result, Err(Failure::Status(Status::RequestRetry)));
        assert_eq!(requester.expire(at(0)), 0, "each has had an answer");
        let left = (requester.pending(), requester.in_flight(), requester.next_due());
        assert_eq!(left, (0, 0, None));
        let counts = requester.counts();
        assert_eq!((counts.sent, counts.answered, counts.retried), (10, 10, 10), "{counts:?}");
    }
}

/// Only the part of a large request that was completed with RRS is sent again, even if another part has its tag
/// now.
#[test]
fn a_part_is_sent_again_when_there_is_a_tag() {
    let at = |us| Instant::ZERO + Span::from_us(us);
    // RRS for the second of three parts: the data is complete in the end, and the third part was sent meanwhile.
    let mut requester =
        Requester::new(RequesterSpec { in_flight_max: 3, ..ONE }, Bdf::new(1, 0, 0));
    requester.submit(Operation::UioRead { addr: Hpa(0), len: 600 }.into());
    let parts = sent(&mut requester, at(0));
    assert_eq!(parts.len(), 3);
    let answer = |requester: &mut Requester, request: &[u8]| {
        let request = Tlp::parse(Mode::Flit, request).unwrap();
        let Body::Address { addr, length_dw, .. } = request.repr().body else { panic!() };
        let len = usize::from(length_dw) * 4;
        let data: Vec<u8> = (addr.0..).take(len).map(|at| at.to_le_bytes()[0]).collect();
        let answer = Completion::with_data(&request, Bdf::default(), 0, &data).unwrap();
        assert!(requester.take(&Tlp::parse(Mode::Flit, &bytes(&answer)).unwrap()));
    };
    answer(&mut requester, &parts[0]);
    retry(&mut requester, &parts[1..2]);
    answer(&mut requester, &parts[2]);
    for _ in 0..3 {
        requester.submit(Operation::UioRead { addr: Hpa(0x1000), len: 4 }.into());
    }
    let others = sent(&mut requester, at(0));
    assert_eq!(others.len(), 3);
    // With all tags in use it is sent as soon as one is free, and no timer is set before.
    assert_eq!(sent(&mut requester, at(1_000)), Vec::<Vec<u8>>::new());
    assert_eq!(requester.next_due(), Some(at(10_000)), "when the first one times out");
    answer(&mut requester, &others[0]);
    assert_eq!(requester.next_done().map(|done| done.result.is_ok()), Some(true));
    assert_eq!(requester.next_due(), Some(at(1_000)));
    let again = sent(&mut requester, at(1_000));
    answer(&mut requester, &again[0]);
    let want: Vec<u8> = (0_u64..600).map(|at| at.to_le_bytes()[0]).collect();
    assert_eq!(requester.next_done().unwrap().result, Ok(want));
}

#[test]
fn no_request_but_uio_is_sent_again() {
    let at = |us| Instant::ZERO + Span::from_us(us);
    for operation in [
        Operation::Read { addr: Hpa(0x40), len: 64 },
        Operation::ConfigRead {
            dest: Bdf::new(1, 0, 0),
            reg: crate::pci::Reg::at(0),
            type1: false,
        },
    ] {
        let mut requester = Requester::new(ONE, Bdf::new(1, 0, 0));
        requester.submit(operation.into());
        let first = sent(&mut requester, at(0));
        retry(&mut requester, &first);
        let result = requester.next_done().unwrap().result;
        assert_eq!(result, Err(Failure::Status(Status::RequestRetry)));
    }
}

#[test]
fn completions_that_do_not_fit_fail_their_request_only() {
    let answer = |request: &Tlp<'_>, byte_count, lower_address, len: usize| {
        let kind = Kind::Completion { locked: false, data: true };
        let body = Body::Completion {
            completer: Bdf::default(),
            completer_segment: None,
            status: Status::Success,
            byte_count,
            lower_address,
        };
        let payload = vec![0; len];
        let tlp = TlpRepr::new(Mode::Flit, kind, request.requester(), request.tag(), body);
        bytes(&TlpRepr { payload: &payload, ..tlp })
    };
    #[rustfmt::skip] // columns: name, byte count, lower address, bytes, result
    let cases = [
        ("it fits",             64, 0x40, 64, None),
        ("too few announced",   60, 0x40, 60, Some(Failure::Mismatch)),
        ("another address",     64, 0x44, 64, Some(Failure::Mismatch)),
        ("too many",            64, 0x40, 68, Some(Failure::Mismatch)),
    ];
    for (name, byte_count, lower, len, want) in cases {
        let mut requester = requester(Mode::Flit);
        requester.submit(Operation::Read { addr: Hpa(0x40), len: 64 }.into());
        let all = sent(&mut requester, Instant::ZERO);
        let request = Tlp::parse(Mode::Flit, &all[0]).unwrap();
        let bytes = answer(&request, byte_count, lower, len);
        requester.take(&Tlp::parse(Mode::Flit, &bytes).unwrap());
        assert_eq!(requester.next_done().unwrap().result.err(), want, "{name}");
    }
    // a chunk that came before, and one behind the end
    for offset in [0, 15] {
        let mut requester = requester(Mode::Flit);
        requester.submit(Operation::UioRead { addr: Hpa(0x40), len: 64 }.into());
        let all = sent(&mut requester, Instant::ZERO);
        let request = Tlp::parse(Mode::Flit, &all[0]).unwrap();
        let chunk = |offset_dw| {
            let kind = Kind::UioReadCompletion { data: true };
            let body = Body::UioCompletion {
                completer: Bdf::default(),
                completer_segment: None,
                status: Status::Success,
                dev_load: DevLoad::Light,
                offset_dw,
            };
            let tlp = TlpRepr::new(Mode::Flit, kind, request.requester(), request.tag(), body);
            bytes(&TlpRepr { payload: &[0; 8], ..tlp })
        };
        requester.take(&Tlp::parse(Mode::Flit, &chunk(0)).unwrap());
        requester.take(&Tlp::parse(Mode::Flit, &chunk(offset)).unwrap());
        assert_eq!(requester.next_done().unwrap().result, Err(Failure::Mismatch), "{offset}");
        assert_eq!(requester.counts().mismatched, 1);
    }
}
