//! Tests of [`CompleterSpec`]: atomics, byte enables, boundaries.

use weft_parsers::tlp::{Body, Mode};

use super::*;

struct Bytes(Vec<u8>);

impl Target for Bytes {
    fn holds(&self, addr: u64, len: u64) -> bool {
        addr.checked_add(len).is_some_and(|end| end <= self.0.len() as u64)
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        let at = usize::try_from(addr).unwrap();
        into.copy_from_slice(&self.0[at..at + into.len()]);
        true
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        let at = usize::try_from(addr).unwrap();
        self.0[at..at + data.len()].copy_from_slice(data);
        true
    }
}

struct Answer {
    payload: Vec<u8>,
    byte_count: u16,
    lower: u8,
    status: Status,
}

fn serve(
    target: &mut Bytes,
    kind: Kind,
    addr: u64,
    enables: (u8, u8),
    payload: &[u8],
    dws: u16,
) -> (Served, Vec<Answer>) {
    let body = Body::Address {
        addr: Hpa(addr),
        wide: true,
        at: At::Untranslated,
        no_write: false,
        length_dw: dws,
        first_be: enables.0,
        last_be: enables.1,
    };
    let tlp = TlpRepr::new(Mode::Flit, kind, Bdf::new(1, 0, 0), 7, body);
    let mut bytes = vec![0; 4_200];
    let len = TlpRepr { payload, ..tlp }.emit(&mut bytes).unwrap();
    let request = Tlp::parse(Mode::Flit, &bytes[..len]).unwrap();
    let mut answers = Vec::new();
    let spec = CompleterSpec { payload_max: 256, uio_last_first: false };
    let served = spec.serve(&request, Bdf::new(2, 0, 0), target, &mut |answer| {
        let Body::Completion { byte_count, lower_address, status, .. } = answer.body else {
            panic!("{answer:?}");
        };
        let payload = answer.payload.to_vec();
        answers.push(Answer { payload, byte_count, lower: lower_address, status });
    });
    (served, answers)
}

//= PCIe 6.0 section 2.3.1.1: completions end at the boundary, counts and addresses follow
#[test]
fn completions_end_at_the_boundary() {
    let mut target = Bytes((0..=255).cycle().take(4_096).collect());
    let (served, answers) = serve(&mut target, Kind::MemRead, 0x34, (0xE, 0x7), &[], 200);
    assert_eq!(served, Served::Done);
    let ends: Vec<_> =
        answers.iter().map(|it| (it.payload.len(), it.byte_count, it.lower)).collect();
    // 0x35 to 0x353: to 0x100, 0x200, 0x300, and the rest
    assert_eq!(ends, [(0xCC, 798, 0x35), (0x100, 595, 0), (0x100, 339, 0), (0x54, 83, 0)]);
    let all: Vec<u8> = answers.into_iter().flat_map(|it| it.payload).collect();
    let mut want = target.0[0x34..0x34 + 800].to_vec();
    (want[0], want[799]) = (0, 0); // not enabled
    assert_eq!(all, want);
}

#[test]
fn only_enabled_bytes_are_written() {
    #[rustfmt::skip] // columns: first, last, double words, want
    let cases: [(u8, u8, u16, &[u8]); 4] = [
        (0x5, 0x0, 1, &[1, 0, 3, 0]),
        (0x8, 0x1, 2, &[0, 0, 0, 4, 5, 0, 0, 0]),
        (0xC, 0x3, 3, &[0, 0, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0]),
        (0x0, 0x0, 1, &[0, 0, 0, 0]),
    ];
    for (first, last, dws, want) in cases {
        let mut target = Bytes(vec![0; 64]);
        let payload: Vec<u8> = (1..=12).take(usize::from(dws) * 4).collect();
        let (served, answers) = serve(&mut target, Kind::MemWrite, 8, (first, last), &payload, dws);
        assert_eq!((served, answers.len()), (Served::Done, 0));
        assert_eq!(target.0[8..8 + want.len()], *want, "{first:x} {last:x}");
    }
}

#[test]
fn atomics_answer_what_was_there() {
    let mut target = Bytes(vec![0; 64]);
    target.0[8..12].copy_from_slice(&0xFFFF_FFFEu32.to_le_bytes());
    let mut run = |kind, payload: &[u8], dws, enables| {
        let (served, mut answers) = serve(&mut target, kind, 8, enables, payload, dws);
        assert_eq!(served, Served::Done, "{kind:?}");
        let old = answers.pop().unwrap().payload;
        (old, target.0[8..16].to_vec())
    };
    let (old, new) = run(Kind::FetchAdd, &3u32.to_le_bytes(), 1, (0xF, 0));
    assert_eq!((old, new), (vec![0xFE, 0xFF, 0xFF, 0xFF], vec![1, 0, 0, 0, 0, 0, 0, 0]));
    let (old, new) = run(Kind::Swap, &[9, 8, 7, 6], 1, (0xF, 0));
    assert_eq!((old, new), (vec![1, 0, 0, 0], vec![9, 8, 7, 6, 0, 0, 0, 0]));
    let (old, new) = run(Kind::Cas, &[9, 8, 7, 5, 1, 1, 1, 1], 2, (0xF, 0xF));
    assert_eq!((old, new), (vec![9, 8, 7, 6], vec![9, 8, 7, 6, 0, 0, 0, 0]), "not equal");
    let (_, new) = run(Kind::Cas, &[9, 8, 7, 6, 1, 2, 3, 4], 2, (0xF, 0xF));
    assert_eq!(new, [1, 2, 3, 4, 0, 0, 0, 0]);
}

//= PCIe 6.0 section 2.2.7: one operand is what is at the address
/// At the end of memory and of a page, every atomic of every operand size is executed if its operand fits.
#[test]
fn atomics_reach_the_last_operand_of_memory() {
    let sizes: [(Kind, &[usize], usize); 3] =
        [(Kind::FetchAdd, &[4, 8], 1), (Kind::Swap, &[4, 8], 1), (Kind::Cas, &[4, 8, 16], 2)];
    for (kind, operands, per) in sizes {
        for &operand in operands {
            let mut target = Bytes(vec![0; 4_096]);
            let mut payload = vec![0; operand * per];
            payload[operand * (per - 1)] = 7;
            let dws = u16::try_from(payload.len() / 4).unwrap();
            let enables = (0xF, if dws > 1 { 0xF } else { 0 });
            let mut run = |at: usize| serve(&mut target, kind, at as u64, enables, &payload, dws);
            let (served, answers) = run(4_096 - operand);
            assert_eq!(served, Served::Done, "{kind:?} of {operand}");
            assert_eq!(answers[0].payload, vec![0; operand], "{kind:?} of {operand}");
            assert_eq!(usize::from(answers[0].byte_count), operand, "{kind:?} of {operand}");
            assert_eq!(run(4_096).0, Served::Unsupported, "{kind:?} of {operand}");
            assert_eq!(target.0[4_096 - operand], 7, "{kind:?} of {operand}");
        }
    }
}

#[test]
fn what_is_not_there_is_unsupported() {
    let mut target = Bytes(vec![0; 64]);
    for (addr, dws) in [(64, 1), (60, 2), (1 << 63, 2)] {
        let last = if dws > 1 { 0xF } else { 0 };
        let (served, answers) = serve(&mut target, Kind::MemRead, addr, (0xF, last), &[], dws);
        assert_eq!(served, Served::Unsupported);
        assert_eq!(answers[0].status, Status::UnsupportedRequest);
    }
    let (served, answers) = serve(&mut target, Kind::MemReadLocked, 0, (0xF, 0), &[], 1);
    assert_eq!((served, answers.len()), (Served::Unsupported, 1));
}

/// Bytes that a read does not enable are 0 in its completion; for a read of zero length all bytes.
#[test]
fn only_enabled_bytes_are_read() {
    #[rustfmt::skip] // columns: double words, first and last enables, bytes of the answer
    let cases: [(u16, (u8, u8), &[u8]); 6] = [
        (1, (0b1111, 0),      &[1, 2, 3, 4]),
        (1, (0b0110, 0),      &[0, 2, 3, 0]),
        (1, (0b1000, 0),      &[0, 0, 0, 4]),
        (1, (0b0000, 0),      &[0, 0, 0, 0]),
        (2, (0b1100, 0b0011), &[0, 0, 3, 4, 5, 6, 0, 0]),
        (3, (0b1000, 0b0001), &[0, 0, 0, 4, 5, 6, 7, 8, 9, 0, 0, 0]),
    ];
    for (dws, enables, want) in cases {
        let mut target = Bytes((1..=16).collect());
        let (served, answers) = serve(&mut target, Kind::MemRead, 0, enables, &[], dws);
        assert_eq!(served, Served::Done);
        let [answer] = &answers[..] else { panic!("{} answers", answers.len()) };
        assert_eq!(answer.payload, want, "{dws} {enables:?}");
    }
}

/// The range from the first to the last enabled byte decides whether the request may access the memory.
#[test]
fn a_request_reaches_from_its_first_enabled_byte_to_its_last() {
    #[rustfmt::skip] // columns: double words, first and last enables, first byte, bytes
    let cases = [
        (1, (0b1111, 0),      0, 4),
        (1, (0b0001, 0),      0, 1),
        (1, (0b1000, 0),      3, 1),
        (1, (0b1001, 0),      0, 4),
        (1, (0b0000, 0),      0, 4),
        (2, (0b1000, 0b0001), 3, 2),
        (4, (0b1100, 0b0111), 2, 13),
    ];
    for (dws, enables, begin, len) in cases {
        let body = Body::Address {
            addr: Hpa(0x1000),
            wide: true,
            at: At::Untranslated,
            no_write: false,
            length_dw: dws,
            first_be: enables.0,
            last_be: enables.1,
        };
        let mut bytes = [0; 64];
        let tlp = TlpRepr::new(Mode::Flit, Kind::UioRead, Bdf::new(1, 0, 0), 7, body);
        let emitted = tlp.emit(&mut bytes).unwrap();
        let request = Tlp::parse(Mode::Flit, &bytes[..emitted]).unwrap();
        assert_eq!(enabled_range(&request), (begin, len), "{dws} {enables:?}");
    }
}
