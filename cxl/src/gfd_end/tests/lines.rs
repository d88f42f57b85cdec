//! CXL.mem at a device: effect and answer of each request, and refusals.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.mem"; docs/spec/wire-formats.md §3.9, §4.6.

use super::*;
use weft_base::rng::Rng;
use weft_parsers::cxl_mem::{LINE, MemHead, MemMessage, MemOp};

/// A CXL.mem message that came back.
pub(super) type Answer = (Pth, MemHead, Option<[u8; LINE]>);

const TAG: u16 = 0xBEEF;

fn asks(op: MemOp, at: u64) -> MemHead {
    MemHead { addr: Hpa(at), ..MemHead::new(op, TAG) }
}

impl Bench {
    pub(super) fn mem_as(
        &mut self,
        pth: Pth,
        head: MemHead,
        data: &[u8; LINE],
        mask: u64,
    ) -> Vec<Answer> {
        let message = MemMessage { head, data: Some(data), enables: Some(mask) };
        self.host.outbox().send_mem(Some(pth), &message).unwrap();
        self.step();
        assert_eq!(self.bufs.used().get(), 0, "no chunk is left behind");
        let is_notice = |kept: Kept| matches!(kept.tlp().kind(), Kind::Message { .. });
        assert!(self.came.drain(..).all(is_notice), "no completion answers");
        std::mem::take(&mut self.lines)
    }

    fn mem(&mut self, head: MemHead, data: &[u8; LINE]) -> Vec<Answer> {
        self.mem_as(Pth { dsar: true, ..Pth::new(HOST, GFD) }, head, data, 0xFF00)
    }
}

fn answer(op: MemOp, line: Option<[u8; LINE]>) -> Vec<Answer> {
    vec![(Pth::new(GFD, HOST), MemHead::new(op, TAG), line)]
}

#[test]
fn lines_are_written_whole_or_in_part_and_read() {
    let (mut bench, line) = (Bench::new(), [0xA5; LINE]);
    let zeros = [0; LINE];
    assert_eq!(bench.mem(asks(MemOp::MemWr, BASE + 0x40), &line), answer(MemOp::Cmp, None));
    assert_eq!(bench.memory(0x40, 64), line);
    let done = bench.mem(asks(MemOp::MemWrPtl, BASE + 0x80), &line);
    assert_eq!(done, answer(MemOp::Cmp, None));
    let mut part = zeros;
    part[8..16].fill(0xA5);
    assert_eq!(bench.memory(0x80, 64), part, "enabled bytes alone");
    for (at, want) in [(0x40, line), (0x80, part), (0xC0, zeros)] {
        for op in [MemOp::MemRd, MemOp::MemRdData] {
            let got = bench.mem(asks(op, BASE + at), &zeros);
            assert_eq!(got, answer(MemOp::MemData, Some(want)), "{op:?} {at:#x}");
        }
    }
    // The other way's granule begins at 4 KiB; behind it, this one's goes on.
    assert_eq!(bench.mem(asks(MemOp::MemWr, BASE + 0x2000), &line), answer(MemOp::Cmp, None));
    assert_eq!(bench.memory(0x1000, 64), line);
    for op in [MemOp::MemInv, MemOp::MemInvNT, MemOp::MemClnEvct] {
        assert_eq!(bench.mem(asks(op, BASE), &line), answer(MemOp::Cmp, None), "{op:?}");
    }
    assert_eq!(bench.mem(asks(MemOp::MemSpecRd, BASE), &line), [], "a hint");
    assert_eq!(bench.memory(0, 64), zeros);
    assert_eq!(bench.told(), []);
    let counts = bench.gfd.counts().0;
    assert_eq!((counts.reads, counts.writes, counts.refused), (6, 3, 0));
}

/// Memory of another group or of none, or a foreign PID: the answer has ones or is a bare Cmp, memory is unchanged, and
/// the FM is notified.
#[test]
fn who_may_not_gets_ones_or_an_end() {
    let (mut bench, line, ones) = (Bench::new(), [7; LINE], Some([0xFF; LINE]));
    #[rustfmt::skip] // columns: address, type and trigger of the notification
    let cases = [
        (BASE + (40 << 20),     (2, 1 << 3)), // group 1
        (BASE + (100 << 20),    (2, 1 << 2)), // of no group
        (BASE - 0x40,           (2, 1)),      // before the decoder
    ];
    for (at, told) in cases {
        bench.now += Span::from_ms(2); // one notice a millisecond for each kind
        assert_eq!(bench.mem(asks(MemOp::MemRd, at), &line), answer(MemOp::MemDataNxm, ones));
        assert_eq!(bench.told(), [told], "{at:#x}");
        bench.now += Span::from_ms(2);
        assert_eq!(bench.mem(asks(MemOp::MemWr, at), &line), answer(MemOp::Cmp, None));
        assert_eq!(bench.told(), [told], "{at:#x}");
    }
    let other = Pid::from_low_bits(0x0A2);
    let stranger = bench.mem_as(Pth::new(other, GFD), asks(MemOp::MemRd, BASE), &line, 0);
    assert_eq!(stranger, [(Pth::new(GFD, other), MemHead::new(MemOp::MemDataNxm, TAG), ones)]);
    // For another device, from PID FFF, an answer, a snoop: none is carried out.
    bench.now += Span::from_ms(2);
    bench.told();
    let elsewhere = Pth::new(HOST, Pid::from_low_bits(0x124));
    let answered = bench.mem_as(elsewhere, asks(MemOp::MemWr, BASE), &line, 0);
    assert_eq!(answered, answer(MemOp::Cmp, None));
    assert_eq!(bench.mem_as(Pth::new(Pid::NONE, GFD), asks(MemOp::MemWr, BASE), &line, 0), []);
    for op in [MemOp::MemData, MemOp::Cmp, MemOp::BiSnpInv, MemOp::BiRspI] {
        assert_eq!(bench.mem(asks(op, BASE), &line), [], "{op:?}");
    }
    for op in [MemOp::MemRdFwd, MemOp::MemWrFwd, MemOp::BiConflict] {
        let (op_back, data) =
            if op == MemOp::MemRdFwd { (MemOp::MemDataNxm, ones) } else { (MemOp::Cmp, None) };
        assert_eq!(bench.mem(asks(op, BASE), &line), answer(op_back, data), "{op:?}");
    }
    assert!(bench.gfd.gfd().memory().read(0, &mut [0; 64]).is_ok());
    assert_eq!(bench.memory(0, 1 << 16), vec![0; 1 << 16], "nothing was written");
    let counts = bench.gfd.counts().0;
    assert_eq!((counts.unexpected, counts.unrecognised), (6, 3));
}

/// A poisoned line is read as poisoned by CXL.mem, aborts other reads, and is good once it is written again.
#[test]
fn poison_stays_in_its_line() {
    let (mut bench, line) = (Bench::new(), [0x11; LINE]);
    bench.mem(asks(MemOp::MemWr, BASE), &line);
    let bad = MemHead { poison: true, ..asks(MemOp::MemWr, BASE + 0x40) };
    assert_eq!(bench.mem(bad, &line), answer(MemOp::Cmp, None));
    let read = bench.mem(asks(MemOp::MemRd, BASE + 0x40), &line);
    assert!(read[0].1.poison && read[0].1.op == MemOp::MemData, "{read:?}");
    assert_eq!(bench.mem(asks(MemOp::MemRd, BASE), &line), answer(MemOp::MemData, Some(line)));
    let came = bench.ask(&plain(Kind::UioRead, BASE, 32));
    assert_eq!(came[0].tlp().status(), Some(Status::CompleterAbort));
    for mask in [0xFF00, u64::MAX] {
        let way = Pth { dsar: true, ..Pth::new(HOST, GFD) };
        bench.mem_as(way, asks(MemOp::MemWrPtl, BASE + 0x40), &line, mask);
        let read = bench.mem(asks(MemOp::MemRd, BASE + 0x40), &line);
        assert!(read[0].1.poison, "a part is not all: {mask:x}");
    }
    bench.mem(asks(MemOp::MemWr, BASE + 0x40), &line);
    let good = bench.mem(asks(MemOp::MemRd, BASE + 0x40), &line);
    assert_eq!(good, answer(MemOp::MemData, Some(line)));
    // A host cannot poison memory that it has no right to.
    bench.mem(MemHead { addr: Hpa(BASE + (40 << 20)), ..bad }, &line);
    assert!(!bench.gfd.gfd().memory().is_poisoned(0, 256 << 20));
    let many = 5_000; // more lines than a list of bounded length could have
    for number in 0..many {
        let addr = Hpa(BASE + (1 << 20) + ((number / 64) << 14) + number % 64 * 64); // one way of four
        let done = bench.mem(MemHead { addr, ..bad }, &line);
        assert_eq!(done, answer(MemOp::Cmp, None));
        assert!(
            bench.mem(MemHead { addr, ..asks(MemOp::MemRd, 0) }, &line)[0].1.poison,
            "{number}"
        );
    }
}

/// A requester with a limit gets its lines later, with a higher load; others are not held up.
#[test]
fn a_limit_delays_lines_and_tells_load() {
    let (mut bench, line) = (Bench::new(), [0; LINE]);
    bench.gfd.gfd_mut().set_bandwidth_limits(HOST.index(), &[1]).unwrap();
    let mut loads = Vec::new();
    for _ in 0..400 {
        let message = MemMessage { head: asks(MemOp::MemRd, BASE), data: None, enables: None };
        bench.host.outbox().send_mem(Some(Pth::new(HOST, GFD)), &message).unwrap();
        bench.step();
        loads.extend(bench.lines.drain(..).map(|(_, head, _)| head.load));
    }
    assert_eq!(loads.len(), 256, "16 KiB at once");
    assert!(loads.iter().all(|&load| load == DevLoad::Light));
    bench.now += Span::from_ms(500);
    let late = bench.mem(asks(MemOp::MemSpecRd, BASE), &line);
    assert_eq!(late.len(), 144);
    assert!(late.iter().all(|(_, head, _)| head.load as u8 >= 2), "they were told to slow down");
}

/// A requester far beyond its limit fills no more than its share of the places, and others are served as before: their
/// answers come at once and report light load.
#[test]
fn a_flood_beyond_its_limit_leaves_room_for_others() {
    let (mut bench, line) = (Bench::new(), [0; LINE]);
    let [second, other] = [0x0A2, 0x0A3].map(Pid::from_low_bits);
    let gfd = bench.gfd.gfd_mut();
    let list = gfd.decoders(HOST, 0, 8).unwrap().list;
    for host in [HOST, second, other] {
        gfd.set_decoders(host, 0, &list).unwrap();
        gfd.set_sat(&[(host, 1)]).unwrap();
        gfd.set_bandwidth_limits(host.index(), &[1]).unwrap();
    }
    let write = TlpRepr { payload: &[1; 64], ..plain(Kind::UioWrite, BASE, 16) };
    for _ in 0..9_000 {
        for host in [HOST, second] {
            bench.mem_as(Pth::new(host, GFD), asks(MemOp::MemRd, BASE), &line, 0);
            bench.ask_as(Pth::new(host, GFD), &write);
        }
    }
    let overrun = bench.gfd.counts().0.overrun;
    assert!(overrun > 20_000, "{overrun}");
    for k in 0..200 {
        let came = bench.mem_as(Pth::new(other, GFD), asks(MemOp::MemRd, BASE), &line, 0);
        assert_eq!(came.len(), 1, "{k}");
        assert_eq!(came[0].1.load, DevLoad::Light, "{k}");
    }
    for _ in 0..200 {
        // beyond its burst it waits
        bench.mem_as(Pth::new(other, GFD), asks(MemOp::MemRd, BASE), &line, 0);
        bench.ask_as(Pth::new(other, GFD), &write);
    }
    assert_eq!(bench.gfd.counts().0.overrun, overrun, "the other has places of its own");
    bench.now += Span::from_ms(900);
    (0..400).for_each(|_| bench.step());
    let of_other = bench.lines.iter().filter(|(pth, ..)| pth.dpid == other).count();
    assert_eq!(
        of_other,
        200 - 28,
        "all are answered: of 16 KiB were left 28 lines read and written"
    );
}

/// Random messages: each request is answered at most once, no chunk is lost, and memory of others stays as it is.
#[test]
fn any_messages_leave_others_memory_alone() {
    let (mut bench, mut rng) = (Bench::new(), Rng::new(0x5EED));
    let mut answers = 0;
    for _ in 0..20_000 {
        let op = MemOp::ALL[usize::try_from(rng.below(MemOp::ALL.len() as u64)).unwrap()];
        let pids = [HOST, GFD, Pid::NONE, Pid::from_low_bits(0x0A2)];
        let mut pid = || pids[usize::try_from(rng.below(4)).unwrap()];
        let pth = Pth::new(pid(), pid());
        let at = BASE + rng.below(1 << 29);
        let head = MemHead { poison: rng.below(4) == 0, ..asks(op, at) };
        let line = [rng.next_u64().to_le_bytes()[0]; LINE];
        let came = bench.mem_as(pth, head, &line, rng.next_u64());
        assert!(came.len() <= 1, "{op:?}");
        answers += came.len();
        bench.now += Span::from_us(1);
    }
    assert!(answers > 1_000, "{answers}");
    let beyond = bench.memory(16 << 20, 8 << 20);
    assert!(beyond.iter().all(|&byte| byte == 0), "group 1's memory was written");
}
