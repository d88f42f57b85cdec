//! Tests of [`TlpEnd`]: two ends back to back over a pipe.

use super::*;
use weft_dataplane::config::TlpConfig;
use weft_dataplane::pool::Pool;
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::time::{LinkRate, Span};
use weft_hosts::classes::PriMap;
use weft_parsers::fabric::{Bdf, Hpa, Pid};
use weft_parsers::tlp::{At, Body, Completion, Kind, Status};

struct Pair {
    ends: [TlpEnd; 2],
    ports: [Pipe; 2],
    bufs: Bufs,
}

fn pair(carries: [Carries; 2], depth: usize) -> Pair {
    let names = ["a".to_owned(), "b".to_owned()];
    let config = PipeConfig {
        names,
        depth,
        rate: LinkRate::gbps(100),
        frame_len_max: 4_400,
        wakes_reader: false,
    };
    let (mut a, mut b) = pipe(config).unwrap();
    let mut bufs = Bufs::new(Pool::in_memory(512, 4_400).unwrap(), 16, 0);
    a.start(&mut bufs).unwrap();
    b.start(&mut bufs).unwrap();
    let end = |n: u8, carries| {
        TlpEnd::new(EndConfig {
            mac: MacAddr([2, 0, 0, 0, 0, n]),
            carries,
            tlp: TlpConfig::for_pris(8),
            classes: PriMap::eight(),
            payload_max: 512,
        })
    };
    let [first, second] = carries;
    Pair { ends: [end(1, first), end(2, second)], ports: [a, b], bufs }
}

impl Pair {
    fn poll(
        &mut self,
        which: usize,
        now: Instant,
        handler: &mut dyn FnMut(Frame<'_>, &mut Outbox),
    ) -> Progress {
        self.ends[which].poll(now, &mut self.ports[which], &mut self.bufs, handler).unwrap()
    }
}

fn body(length_dw: u16) -> Body {
    Body::Address {
        addr: Hpa(0x1000),
        wide: true,
        at: At::default(),
        no_write: false,
        length_dw,
        first_be: 15,
        last_be: if length_dw > 1 { 15 } else { 0 },
    }
}

fn read(tag: u16) -> TlpRepr<'static> {
    TlpRepr::new(Mode::Flit, Kind::UioRead, Bdf::new(1, 0, 0), tag, body(16))
}

/// Requests in one direction, completions in the other, in order, with and without PTH.
#[test]
fn answers_of_a_handler_go_back_in_order() {
    let pth = Pth::new(Pid::from_low_bits(1), Pid::from_low_bits(2));
    for (carries, pth) in [(Carries::Hbr(Mode::Flit), None), (Carries::Pbr, Some(pth))] {
        let mut pair = pair([carries; 2], 8);
        for tag in 0..100 {
            pair.ends[0].outbox().send(pth, &read(tag)).unwrap();
        }
        let mut tags = Vec::new();
        for n in 0..40 {
            pair.poll(0, Instant::from_ns(n), &mut |frame, _| {
                let Received::Tlp(came_with, tlp) = frame.content else { panic!("{frame:?}") };
                assert_eq!((came_with, frame.from), (pth, MacAddr([2, 0, 0, 0, 0, 2])));
                assert_eq!(tlp.kind(), Kind::UioReadCompletion { data: true });
                tags.push(tlp.tag());
            });
            pair.poll(1, Instant::from_ns(n), &mut |frame, out| {
                let Received::Tlp(came_with, tlp) = frame.content else { panic!("{frame:?}") };
                let answer = Completion::with_data(&tlp, Bdf::new(2, 0, 0), 0, &[7; 64]).unwrap();
                out.send(came_with, &answer).unwrap();
            });
        }
        assert_eq!(tags, (0..100).collect::<Vec<_>>());
        assert_eq!((pair.ends[0].waiting(), pair.ends[1].waiting()), (0, 0));
        assert_eq!((pair.ends[0].counts().tx, pair.ends[0].counts().rx), (100, 100));
        assert_eq!(pair.bufs.used().get(), 0);
    }
}

/// A TLP written directly into its chunk equals the outbox's frame; a failed one leaves nothing.
#[test]
fn placed_and_sent_are_alike() {
    let pth = Pth::new(Pid::from_low_bits(1), Pid::from_low_bits(2));
    let mut pair = pair([Carries::Pbr; 2], 8);
    let payload: Vec<u8> = (0..128).collect();
    let write = TlpRepr::new(Mode::Flit, Kind::UioWrite, Bdf::new(1, 0, 0), 9, body(32));
    let whole = TlpRepr { payload: &payload, ..write };
    pair.ends[0].outbox().send(Some(pth), &whole).unwrap();
    let Pair { ends: [end, _], bufs, .. } = &mut pair;
    let fill = |place: &mut [u8]| {
        place.copy_from_slice(&payload);
        true
    };
    end.place(bufs, Some(pth), &write, 128, fill).unwrap();
    let unfilled = end.place(bufs, Some(pth), &write, 128, |_| false);
    assert_eq!(unfilled, Err(PlaceError::Unfilled));
    assert_eq!(
        end.place(bufs, None, &write, 128, |_| true),
        Err(SendError::Pth("with PTH").into())
    );
    let long = TlpRepr { body: body(1_024), ..write };
    let room = end.place(bufs, Some(pth), &long, 8_192, fill);
    assert!(room.is_err(), "{room:?}");
    let mut frames = Vec::new();
    for _ in 0..2 {
        pair.poll(0, Instant::ZERO, &mut |frame, _| panic!("{frame:?}"));
    }
    pair.poll(1, Instant::ZERO, &mut |frame, _| {
        let Received::Tlp(pth, tlp) = frame.content else { panic!("{frame:?}") };
        frames.push((pth, frame.from, tlp.bytes().to_vec()));
    });
    assert_eq!(frames.len(), 2);
    assert_eq!(frames[0], frames[1]);
    assert_eq!(pair.bufs.used().get(), 0);
}

/// A pause stops its own priority, and nothing is lost while the port has no room.
#[test]
fn a_pause_stops_requests_and_not_completions() {
    let mut pair = pair([Carries::Hbr(Mode::Flit); 2], 8);
    let config = TlpConfig::for_pris(8);
    let class = (0..8u8).find(|&c| PriMap::eight().pcp[usize::from(c)] == config.uio_req_pri);
    let pfc = Pfc { enable: 0, quanta: [0; 8] }.with(class.unwrap(), 1_000);
    let mut frame = [0; weft_parsers::mac_control::FRAME_LEN];
    pfc.emit(MacAddr([2, 0, 0, 0, 0, 2]), &mut frame);
    let desc = pair.bufs.alloc_from(&frame).unwrap();
    let mut batch: Batch = core::iter::once(desc).collect();
    pair.ports[1].tx(Instant::ZERO, &mut pair.bufs, &mut batch);
    pair.ends[0].outbox().send(None, &read(1)).unwrap();
    let uio = TlpRepr::new(Mode::Flit, Kind::UioRead, Bdf::new(1, 0, 0), 2, body(16));
    let mut bytes = [0; 64];
    let len = uio.emit(&mut bytes).unwrap();
    let request = Tlp::parse(Mode::Flit, &bytes[..len]).unwrap();
    let answer = Completion::of(&request, Status::Success, Bdf::new(2, 0, 0)).unwrap();
    pair.ends[0].outbox().send(None, &answer).unwrap();
    let progress = pair.poll(0, Instant::ZERO, &mut |_, _| panic!("nothing came"));
    let end = Instant::ZERO + LinkRate::gbps(100).quanta(1_000);
    assert_eq!((progress.blocked, progress.next), (true, Some(end)));
    let mut kinds = Vec::new();
    let mut note = |frame: Frame<'_>, _: &mut Outbox| {
        if let Received::Tlp(_, tlp) = frame.content {
            kinds.push(tlp.kind());
        }
    };
    pair.poll(1, Instant::ZERO, &mut note);
    pair.poll(0, end - Span::from_ps(1), &mut |_, _| {});
    pair.poll(1, end, &mut note);
    pair.poll(0, end, &mut |_, _| {});
    pair.poll(1, end, &mut note);
    assert_eq!(kinds, [Kind::UioReadCompletion { data: false }, Kind::UioRead]);
}

/// Frames that do not belong on the link are counted and dropped.
#[test]
fn foreign_and_malformed_frames_are_counted() {
    let mut pair = pair([Carries::Hbr(Mode::NonFlit), Carries::Both], 64);
    let macs = [0; 12];
    let link = |protocol: u8| [0x88, 0xB7, 2, 0x57, 0x46, 0, protocol, 0x10];
    let frames: [(&[u8], &[u8]); 5] = [
        (&[0x08, 0x00], &[0; 60]),
        (&link(2), &[0x22; 32]),
        (&link(3), &[0xFF; 32]),
        (&link(3), &[0x20]),
        (&[], &[]),
    ];
    for (head, tlp) in frames {
        let desc = pair.bufs.alloc_from(&[&macs[..], head, tlp].concat()).unwrap();
        let mut batch: Batch = core::iter::once(desc).collect();
        pair.ports[1].tx(Instant::ZERO, &mut pair.bufs, &mut batch);
    }
    pair.poll(0, Instant::ZERO, &mut |frame, _| panic!("{frame:?}"));
    let counts = pair.ends[0].counts();
    assert_eq!((counts.rx, counts.foreign, counts.malformed), (0, 3, 2));
    let with_pth = Pth::new(Pid::NONE, Pid::NONE);
    let refused = pair.ends[0].outbox().send(Some(with_pth), &read(1));
    assert_eq!(refused, Err(SendError::Pth("without PTH")));
    let uio_in_old_mode = TlpRepr { mode: Mode::NonFlit, ..read(1) };
    assert!(matches!(pair.ends[0].outbox().send(None, &uio_in_old_mode), Err(SendError::Emit(_))));
    assert!(pair.ends[0].outbox().is_empty());
}

/// An exhausted pool delays TLPs; all are sent later, in order.
#[test]
fn what_finds_no_chunk_waits() {
    let mut pair = pair([Carries::Hbr(Mode::Flit); 2], 8);
    let mut held: Vec<Desc> = core::iter::from_fn(|| pair.bufs.alloc()).collect();
    for tag in 0..20 {
        pair.ends[0].outbox().send(None, &read(tag)).unwrap();
    }
    let mut tags = Vec::new();
    for n in 0..60 {
        let progress = pair.poll(0, Instant::from_ns(n), &mut |_, _| {});
        assert_eq!(progress.blocked, pair.ends[0].waiting() > 0, "{n}");
        if let Some(desc) = held.pop().filter(|_| n % 3 == 0) {
            pair.bufs.free(desc);
        }
        pair.poll(1, Instant::from_ns(n), &mut |frame, _| {
            let Received::Tlp(_, tlp) = frame.content else { panic!("{frame:?}") };
            tags.push(tlp.tag());
        });
    }
    assert_eq!(tags, (0..20).collect::<Vec<_>>());
}

//= docs/spec/wire-formats.md §3.7b: in reset all but orders is dropped, and nothing of before is sent
#[test]
fn a_lower_end_in_reset_takes_orders_alone() {
    use weft_parsers::tlp::ResetWord;
    let mut pair = pair([Carries::Hbr(Mode::Flit); 2], 8);
    let [upper, lower] = pair.ends;
    pair.ends = [upper, lower.lower()];
    let order = |pair: &mut Pair, word, number| {
        pair.ends[0].outbox().control_partner(LinkReset { word, number });
        pair.poll(0, Instant::ZERO, &mut |frame, _| panic!("{frame:?}"));
    };
    // Frames received by an end, as text.
    let come = |pair: &mut Pair, which, now| {
        let mut all = Vec::new();
        pair.poll(which, now, &mut |frame, _| {
            all.push(match frame.content {
                Received::Tlp(_, tlp) => format!("tlp {}", tlp.tag()),
                Received::Control(message) => format!("{:?} {}", message.word, message.number),
                Received::Reset(ordered) => format!("{ordered:?}"),
                Received::Mem(..) | Received::Cache(_) => panic!("{frame:?}"),
            });
        });
        all
    };
    pair.ends[1].outbox().send(None, &read(1)).unwrap();
    order(&mut pair, ResetWord::AssertHot, 5);
    assert_eq!(come(&mut pair, 1, Instant::ZERO), ["Begins"]);
    assert_eq!(come(&mut pair, 0, Instant::ZERO), ["Done 5"], "and nothing of before");
    pair.ends[0].outbox().send(None, &read(2)).unwrap();
    assert_eq!(come(&mut pair, 0, Instant::ZERO), [""; 0]);
    order(&mut pair, ResetWord::AssertHot, 5);
    assert_eq!(come(&mut pair, 1, Instant::ZERO), [""; 0], "it is in reset already");
    assert_eq!(come(&mut pair, 0, Instant::ZERO), ["Done 5"]);
    assert_eq!((pair.ends[1].counts().resets, pair.ends[1].counts().in_reset), (1, 1));
    order(&mut pair, ResetWord::Deassert, 6);
    assert_eq!(come(&mut pair, 1, Instant::ZERO), ["Ends"]);
    pair.ends[0].outbox().send(None, &read(3)).unwrap();
    assert_eq!(come(&mut pair, 0, Instant::ZERO), ["Done 6"]);
    assert_eq!(come(&mut pair, 1, Instant::ZERO), ["tlp 3"]);
    // The reset is not repeated, so it ends by itself.
    order(&mut pair, ResetWord::AssertPerst, 7);
    assert_eq!(come(&mut pair, 1, Instant::ZERO), ["Begins"]);
    let later = Instant::ZERO + Span::from_ms(3_000);
    assert_eq!(come(&mut pair, 1, later), ["Ends"]);
    assert_eq!(pair.ends[1].counts().resets, 2);
    // The upper end obeys no resets.
    pair.ends[1].outbox().control_partner(LinkReset { word: ResetWord::AssertHot, number: 1 });
    assert_eq!(come(&mut pair, 1, later), [""; 0]);
    assert_eq!(come(&mut pair, 0, later), ["Done 7", "AssertHot 1"], "its owner's to drop");
    assert!(!pair.ends[0].is_in_reset());
}
