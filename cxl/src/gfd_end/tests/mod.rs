//! A device at the end of a pipe: each kind of request and refusal, byte for byte where the page has them.
//! [`Bench`] is a requester with PID 0A1 and the device 123, with 256 MiB of group 0 behind HPA 1 TiB.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §3.5 to §3.8, §4.6.

mod coherent;
mod lines;
mod quality;

use weft_hosts::classes::PriMap;

use super::*;
use crate::gfd::capacity::{Choice, NO_TAG};
use crate::gfd::dmp::{Dmp, Media, Region};
use crate::gfd::{Config, Decoder, Memory};
use weft_dataplane::config::TlpConfig;
use weft_dataplane::pool::Pool;
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::time::{LinkRate, Span};
use weft_parsers::MacAddr;
use weft_parsers::fabric::{Bdf, Dpa, Hpa, Interleave};
use weft_parsers::tlp::vdm::{RtPair, VdmOp};
use weft_parsers::tlp::{
    At, Body, DevLoad, Kind, Mode, PbrVdm, Pth, Routing, Status, Tlp, TlpRepr,
};

const MIB: u64 = 1 << 20;
const BASE: u64 = 1 << 40;
const HOST: Pid = Pid::from_low_bits(0x0A1);
const GFD: Pid = Pid::from_low_bits(0x123);

/// A received TLP, copied.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    pth: Pth,
    bytes: Vec<u8>,
}

impl Kept {
    fn tlp(&self) -> Tlp<'_> {
        Tlp::parse(Mode::Flit, &self.bytes).unwrap()
    }
}

struct Bench {
    gfd: GfdEnd,
    host: TlpEnd,
    ports: [Pipe; 2],
    bufs: Bufs,
    now: Instant,
    came: Vec<Kept>,
    lines: Vec<lines::Answer>,
}

fn end(n: u8) -> EndConfig {
    EndConfig {
        mac: MacAddr([2, 0, 0, 0, 0, n]),
        carries: Carries::Pbr,
        tlp: TlpConfig::for_pris(8),
        classes: PriMap::eight(),
        payload_max: 256,
    }
}

/// 256 MiB in blocks of 1 MiB, the first 16 of group 0, the next 16 of group 1, the rest of none; way 0 of
/// two ways of 4 KiB.
fn device(media: Media) -> Gfd {
    let mut gfd = Gfd::new(Config::full(GFD, LinkRate::gbps(8)), Memory::anonymous(256 * MIB));
    let (base, len) = (Dpa(0), 256 * MIB);
    gfd.set_dmps(&[Dmp { index: 0, base, decode_len: len, len, block: MIB, media }]).unwrap();
    let region = Region { id: 0, block: MIB, sanitize: false, base, decode_len: len, len };
    gfd.set_region(region).unwrap();
    for group in 0..2 {
        let choice = Choice::Contiguous { region: 0, len: 16 * MIB };
        gfd.add_capacity(Instant::ZERO, group, NO_TAG, choice, 0).unwrap();
    }
    while gfd.events().pop_fm().is_some() {}
    let decoder = Decoder {
        coherent: false,
        hpa_base: Hpa(BASE),
        dpa_base: base,
        dpa_len: 256 * MIB,
        interleave: Interleave::from_codes(1, 4).unwrap(),
        way: 0,
    };
    gfd.set_decoders(HOST, 0, &[Some(decoder)]).unwrap();
    gfd.set_sat(&[(HOST, 1 | 1 << 31)]).unwrap();
    gfd
}

impl Bench {
    fn of(gfd: Gfd, config: GfdEndConfig) -> Self {
        let names = ["gfd".to_owned(), "host".to_owned()];
        let rate = LinkRate::gbps(100);
        let pipe_config =
            PipeConfig { names, depth: 8, rate, frame_len_max: 4_400, wakes_reader: false };
        let (mut a, mut b) = pipe(pipe_config).unwrap();
        let mut bufs = Bufs::new(Pool::in_memory(512, 4_400).unwrap(), 16, 0);
        a.start(&mut bufs).unwrap();
        b.start(&mut bufs).unwrap();
        let gfd = GfdEnd::new(Device::new(gfd, 0), config, end(1));
        let host = TlpEnd::new(end(2));
        let mut bench = Self {
            gfd,
            host,
            ports: [a, b],
            bufs,
            now: Instant::ZERO,
            came: Vec::new(),
            lines: Vec::new(),
        };
        bench.step();
        bench.came.clear(); // partner information
        bench
    }

    fn new() -> Self {
        let completer = Bdf::new(2, 0, 0);
        Self::of(device(Media::default()), GfdEndConfig { completer, ..GfdEndConfig::default() })
    }

    /// Polls until no frame moves any more.
    fn step(&mut self) {
        let [near, far] = &mut self.ports;
        for _ in 0..64 {
            self.gfd.poll(self.now, near, &mut self.bufs).unwrap();
            let (came, lines) = (&mut self.came, &mut self.lines);
            let mut keep = |frame: crate::tlp_end::Frame<'_>, _: &mut _| match frame.content {
                Received::Tlp(Some(pth), tlp) => {
                    came.push(Kept { pth, bytes: tlp.bytes().to_vec() });
                }
                Received::Mem(Some(pth), message) => {
                    lines.push((pth, message.head, message.data.copied()));
                }
                _ => panic!("{frame:?}"),
            };
            let progress = self.host.poll(self.now, far, &mut self.bufs, &mut keep).unwrap();
            if progress.frames == 0 && !progress.blocked {
                break;
            }
        }
    }

    /// Sends a TLP with these PIDs; returns the TLPs that came back.
    fn ask_as(&mut self, pth: Pth, tlp: &TlpRepr<'_>) -> Vec<Kept> {
        self.host.outbox().send(Some(pth), tlp).unwrap();
        self.step();
        assert_eq!(self.bufs.used().get(), 0, "no chunk is left behind");
        std::mem::take(&mut self.came)
    }

    fn ask(&mut self, tlp: &TlpRepr<'_>) -> Vec<Kept> {
        self.ask_as(Pth { dsar: true, ..Pth::new(HOST, GFD) }, tlp)
    }

    /// Bytes of the device's memory, by its own address.
    fn memory(&self, dpa: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.gfd.gfd().memory().read(dpa, &mut bytes).unwrap();
        bytes
    }

    /// Type and trigger of each notification for the FM.
    fn told(&mut self) -> Vec<(u8, u8)> {
        std::iter::from_fn(|| self.gfd.pop_fm()).map(|payload| (payload[4], payload[5])).collect()
    }
}

fn request(kind: Kind, at: u64, dws: u16, first_be: u8, last_be: u8) -> TlpRepr<'static> {
    let body = Body::Address {
        addr: Hpa(at),
        wide: true,
        at: At::default(),
        no_write: false,
        length_dw: dws,
        first_be,
        last_be,
    };
    TlpRepr::new(Mode::Flit, kind, Bdf::new(1, 0, 0), 5, body)
}

fn plain(kind: Kind, at: u64, dws: u16) -> TlpRepr<'static> {
    request(kind, at, dws, 15, if dws > 1 { 15 } else { 0 })
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| u8::try_from((n * 7 + n / 251) % 255 + 1).unwrap()).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len() / 2)
        .map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).unwrap())
        .collect()
}

/// docs/spec/wire-formats.md §3.6: a write is completed, and a read returns its data in the example's bytes.
#[test]
fn uio_writes_and_reads() {
    let mut bench = Bench::new();
    let data = pattern(64);
    let came = bench.ask(&TlpRepr { payload: &data, ..plain(Kind::UioWrite, BASE + 0x40, 16) });
    let back = Pth::new(GFD, HOST);
    let bytes = hex("0C 00 00 00 02 00 00 05 01 00 00 00");
    assert_eq!(came, [Kept { pth: back, bytes }]);
    assert_eq!(bench.memory(0x40, 64), data);
    let came = bench.ask(&plain(Kind::UioRead, BASE + 0x40, 16));
    let bytes = [hex("48 00 00 10 02 00 00 05 01 00 00 00"), data.clone()].concat();
    assert_eq!(came, [Kept { pth: back, bytes }]);
    // The other way's granule begins at 4 KiB; behind it, this one's goes on.
    let came = bench.ask(&TlpRepr { payload: &data, ..plain(Kind::UioWrite, BASE + 0x2000, 16) });
    assert_eq!((came.len(), bench.memory(0x1000, 64)), (1, data));
    assert_eq!(bench.told(), []);
}

/// Data come in pieces that end at multiples of the payload's limit, UIO's in either order.
#[test]
fn long_reads_come_in_pieces() {
    for (order, kind) in [
        (Order::Forward, Kind::UioRead),
        (Order::Backward, Kind::UioRead),
        (Order::Forward, Kind::MemRead),
        (Order::Backward, Kind::MemRead),
    ] {
        let config = GfdEndConfig { order, ..GfdEndConfig::default() };
        let mut bench = Bench::of(device(Media::default()), config);
        let data = pattern(4_096);
        for (n, piece) in data.chunks(256).enumerate() {
            let at = BASE + n as u64 * 256;
            bench.ask(&TlpRepr { payload: piece, ..plain(Kind::UioWrite, at, 64) });
        }
        // 0x44.. to the end of the granule
        let came = bench.ask(&plain(kind, BASE + 0x44, 1_007));
        let mut got = vec![0; 4_028];
        let mut starts = Vec::new();
        let mut left = 4_028;
        for kept in &came {
            let tlp = kept.tlp();
            let at = if let Some((load, dw)) = tlp.uio_completion() {
                assert_eq!(load, DevLoad::Light);
                usize::from(dw) * 4
            } else {
                assert_eq!(usize::from(tlp.byte_count().unwrap()), left);
                let at = 4_028 - left;
                assert_eq!(usize::from(tlp.lower_address().unwrap()), (0x44 + at) & 0x7F);
                at
            };
            left -= tlp.payload().len();
            got[at..at + tlp.payload().len()].copy_from_slice(tlp.payload());
            starts.push(at);
            assert!(at == 0 || (0x44 + at) % 256 == 0, "{at}");
        }
        assert_eq!((left, &got[..]), (0, &data[0x44..]), "{order:?} {kind:?}");
        let backward = order == Order::Backward && kind == Kind::UioRead;
        assert!(starts.is_sorted_by(|a, b| (a < b) != backward), "{starts:?}");
        assert_eq!(starts.len(), 16);
    }
}

/// Only the bytes that are enabled are written; a write or read of none is completed and does nothing.
#[test]
fn byte_enables_and_nothing_at_all() {
    let mut bench = Bench::new();
    let data = [0xEE; 12];
    let write = |at, (first, last), dws: u16| {
        let len = usize::from(dws) * 4;
        TlpRepr { payload: &data[..len], ..request(Kind::UioWrite, at, dws, first, last) }
    };
    bench.ask(&write(BASE, (0b1100, 0b0001), 3));
    assert_eq!(bench.memory(0, 13), [0, 0, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0xEE, 0, 0, 0, 0]);
    bench.ask(&write(BASE + 0x10, (0b0101, 0), 1));
    assert_eq!(bench.memory(0x10, 4), [0xEE, 0, 0xEE, 0]);
    let came = bench.ask(&write(BASE + 0x20, (0, 0), 1));
    assert_eq!(
        (came[0].tlp().status(), bench.memory(0x20, 4)),
        (Some(Status::Success), vec![0; 4])
    );
    bench.ask(&write(BASE + 0x30, (15, 0), 1));
    let came = bench.ask(&request(Kind::UioRead, BASE + 0x30, 1, 0, 0));
    assert_eq!(came[0].tlp().payload(), [0; 4], "not what is there");
    let came = bench.ask(&request(Kind::MemRead, BASE + 0x30, 1, 0, 0));
    assert_eq!((came[0].tlp().payload(), came[0].tlp().byte_count()), (&[0; 4][..], Some(1)));
    let came = bench.ask(&request(Kind::MemRead, BASE + 0x30, 1, 0b1100, 0));
    let tlp = came[0].tlp();
    assert_eq!((tlp.payload(), tlp.byte_count()), (&[0xEE; 4][..], Some(2)));
    assert_eq!(tlp.lower_address(), Some(0x32));
    // no data of memory of another group
    let came = bench.ask(&request(Kind::UioRead, BASE + (64 * MIB), 1, 0, 0));
    assert_eq!(came[0].tlp().status(), Some(Status::UnsupportedRequest));
}

/// Each refusal: UR where an answer is due, a count, a notification for the FM and the host, memory as it was.
#[test]
fn refusals_are_answered_and_told() {
    #[rustfmt::skip] // columns: name, address behind the base, type, trigger
    let cases = [
        ("no map",         512 * MIB,         2, 0b0001),
        ("below the base", 64u64.wrapping_neg(), 2, 0b0001),
        ("no group",       2 * 32 * MIB,      2, 0b0100),
        ("not its group",  2 * 16 * MIB,      2, 0b1000),
    ];
    for (name, at, kind, trigger) in cases {
        let at = BASE.wrapping_add(at);
        for (request, head) in [(Kind::UioWrite, "0C 01 00 00"), (Kind::UioRead, "0D 01 00 00")] {
            let mut bench = Bench::new();
            let payload: &[u8] = if request == Kind::UioWrite { &[0x77; 64] } else { &[] };
            let came = bench.ask(&TlpRepr { payload, ..plain(request, at, 16) });
            let bytes = hex(&format!("{head} 02 00 00 05 01 00 00 00 00 00 00 01"));
            let ur = Kept { pth: Pth::new(GFD, HOST), bytes };
            assert!(came.contains(&ur), "{name}: {came:?}");
            // the GAM of docs/spec/wire-formats.md §3.8
            let gam = came.iter().find(|kept| **kept != ur).unwrap();
            let tlp = gam.tlp();
            let vdm = PbrVdm::parse(&tlp).unwrap();
            assert_eq!(gam.pth, Pth { dsar: true, ..Pth::new(GFD, HOST) }, "{name}");
            assert_eq!(tlp.kind(), Kind::Message { routing: Routing::Local, data: true });
            assert_eq!((vdm.op, vdm.payload.len()), (VdmOp::Gam, 32), "{name}");
            assert_eq!(vdm.payload[..3], [0x23, 0x01, kind], "{name}");
            assert_eq!(vdm.payload[0x10..0x18], at.to_le_bytes(), "{name}");
            assert_eq!((came.len(), bench.told()), (2, vec![(kind, trigger)]), "{name}");
            assert_eq!(bench.gfd.counts().0.refused, 1, "{name}");
            assert_eq!(bench.gfd.gfd().memory().taken(), 0, "{name}: nothing was written");
        }
    }
}

/// Of many like refusals one is notified, and the others are counted.
#[test]
fn refusals_that_are_not_told_are_counted() {
    let mut bench = Bench::new();
    let nowhere = plain(Kind::UioRead, BASE + (1 << 40), 16);
    for _ in 0..5 {
        bench.ask(&nowhere);
    }
    let told = u64::try_from(bench.told().len()).unwrap();
    let ((alike, hosts), lost) = bench.gfd.gfd().untold();
    assert_eq!((told + alike, lost), (5, (0, 0)), "{hosts}");
    assert!(alike > 0 && hosts > 0, "{told} told");
}

/// A request that continues into another device's granule is refused as a whole.
#[test]
fn what_crosses_a_turn_is_refused() {
    let mut gfd = device(Media::default());
    let one = gfd.decoders(HOST, 0, 1).unwrap().list[0].unwrap();
    let interleave = Interleave::from_codes(1, 0).unwrap();
    gfd.set_decoders(HOST, 0, &[Some(Decoder { interleave, ..one })]).unwrap();
    let mut bench = Bench::of(gfd, GfdEndConfig::default());
    let write = TlpRepr { payload: &[1; 64], ..plain(Kind::UioWrite, BASE + 0xE0, 16) };
    assert_eq!(bench.ask(&write)[0].tlp().status(), Some(Status::UnsupportedRequest));
    assert_eq!((bench.told(), bench.gfd.gfd().memory().taken()), (vec![(2, 1)], 0));
    let both = Decoder { dpa_base: Dpa(MIB), ..one };
    let gfd = bench.gfd.gfd_mut();
    gfd.set_decoders(HOST, 0, &[Some(one)]).unwrap();
    assert!(gfd.set_decoders(HOST, 1, &[Some(both)]).is_err(), "a second one for its addresses");
    let came = bench.ask(&plain(Kind::UioRead, BASE, 16));
    assert_eq!(came[0].tlp().status(), Some(Status::Success), "the first one is whole");
}

/// A refused posted write leaves a count and a notification; poisoned data is not written.
#[test]
fn posted_and_poisoned_writes() {
    let mut bench = Bench::new();
    let data = pattern(64);
    let write = |kind, at| TlpRepr { payload: &data, ..plain(kind, at, 16) };
    assert_eq!(bench.ask(&write(Kind::MemWrite, BASE)), []);
    assert_eq!(bench.memory(0, 64), data);
    let came = bench.ask(&write(Kind::MemWrite, BASE + 64 * MIB));
    assert_eq!((came.len(), bench.told()), (1, vec![(2, 0b0100)]), "the GAM alone");
    assert_eq!(bench.gfd.counts().0.refused_posted, 1);
    for kind in [Kind::UioWrite, Kind::MemWrite, Kind::DeferrableMemWrite] {
        let mut bench = Bench::new();
        let came = bench.ask(&TlpRepr { ep: true, ..write(kind, BASE) });
        let answers = came.iter().filter(|kept| kept.tlp().is_completion()).count();
        assert_eq!(answers, usize::from(kind != Kind::MemWrite), "{kind:?}");
        assert_eq!((bench.told(), bench.gfd.gfd().memory().taken()), (vec![(7, 0)], 0), "{kind:?}");
    }
    let came = bench.ask(&write(Kind::DeferrableMemWrite, BASE + 0x40));
    assert_eq!(came[0].bytes, hex("0A 00 00 00 02 00 00 05 01 00 00 04"));
    assert_eq!(bench.memory(0x40, 64), data);
}

#[test]
fn atomics_answer_with_what_was() {
    let mut bench = Bench::new();
    let (one, two) = (0x0102_0304_0506_0708_u64.to_le_bytes(), 0xFF_u64.to_le_bytes());
    let both = [one, two].concat();
    #[rustfmt::skip] // columns: kind, DWs, payload, what was, what is
    let cases = [
        (Kind::Swap,     2, &one[..],      [0; 8],  one),
        (Kind::FetchAdd, 1, &[0xF9, 0, 0, 0][..], [8, 7, 6, 5, 4, 3, 2, 1], [1, 8, 6, 5, 4, 3, 2, 1]),
        (Kind::Cas,      4, &both[..],     [1, 8, 6, 5, 4, 3, 2, 1], [1, 8, 6, 5, 4, 3, 2, 1]),
        (Kind::Swap,     2, &one[..],      [1, 8, 6, 5, 4, 3, 2, 1], one),
        (Kind::Cas,      4, &both[..],     one,     two),
    ];
    for (kind, dws, payload, was, is) in cases {
        let came = bench.ask(&TlpRepr { payload, ..plain_atomic(kind, BASE + 8, dws) });
        let tlp = came[0].tlp();
        let len = tlp.payload().len();
        assert_eq!((tlp.payload(), came.len()), (&was[..len], 1), "{kind:?}");
        assert_eq!(bench.memory(8, 8), is, "{kind:?}");
    }
    assert_eq!(bench.gfd.counts().0.atomics, 5);
    let read_only = Media { read_only: true, ..Media::default() };
    let mut bench = Bench::of(device(read_only), GfdEndConfig::default());
    let swap = TlpRepr { payload: &one, ..plain_atomic(Kind::Swap, BASE, 2) };
    assert_eq!(bench.ask(&swap)[0].tlp().status(), Some(Status::UnsupportedRequest));
    assert_eq!((bench.told(), bench.gfd.gfd().memory().taken()), (vec![(3, 0)], 0));
}

fn plain_atomic(kind: Kind, at: u64, dws: u16) -> TlpRepr<'static> {
    request(kind, at, dws, 15, if dws > 1 { 15 } else { 0 })
}

/// Requests for another PID, from PID FFF, or unexpected ones: a notification, and UR if there is a PID to answer to.
#[test]
fn unexpected_packets() {
    let read = plain(Kind::UioRead, BASE, 16);
    let completion = TlpRepr::new(
        Mode::Flit,
        Kind::UioWriteCompletion,
        Bdf::new(1, 0, 0),
        5,
        Body::UioCompletion {
            completer: Bdf::new(3, 0, 0),
            completer_segment: None,
            status: Status::Success,
            dev_load: DevLoad::Light,
            offset_dw: 0,
        },
    );
    let config = Body::Config { dest: Bdf::new(2, 0, 0), register: 0, first_be: 15 };
    let config =
        TlpRepr::new(Mode::Flit, Kind::CfgRead { type1: false }, Bdf::new(1, 0, 0), 5, config);
    let locked = plain(Kind::MemReadLocked, BASE, 16);
    let pid = Pid::from_low_bits;
    #[rustfmt::skip] // columns: name, SPID, DPID, request, answers, type
    let cases = [
        ("from nobody",     0xFFF, 0x123, read,       0, 4),
        ("for nobody",      0x0A1, 0xFFF, read,       1, 4),
        ("for another",     0x0A1, 0x124, read,       1, 4),
        ("no request",      0x0A1, 0x123, completion, 0, 4),
        ("no memory",       0x0A1, 0x123, config,     1, 3),
        ("locked",          0x0A1, 0x123, locked,     1, 3),
    ];
    for (name, spid, dpid, tlp, answers, kind) in cases {
        let mut bench = Bench::new();
        let came = bench.ask_as(Pth::new(pid(spid), pid(dpid)), &tlp);
        let answered: Vec<_> = came.iter().filter(|kept| kept.tlp().is_completion()).collect();
        assert_eq!((answered.len(), bench.told()), (answers, vec![(kind, 0)]), "{name}");
        for kept in answered {
            assert_eq!(kept.pth, Pth::new(GFD, HOST), "{name}");
            assert_eq!(kept.tlp().status(), Some(Status::UnsupportedRequest), "{name}");
        }
    }
    let mut bench = Bench::new();
    bench.gfd.gfd_mut().set_pid(Pid::NONE);
    assert_eq!(bench.ask_as(Pth::new(HOST, Pid::NONE), &read), [], "it cannot speak yet");
    let pair = RtPair { pid: HOST, cache_id: 1 }.emit();
    let payload = [pair, pair].concat();
    let mut bench = Bench::new();
    let came = bench.ask(&PbrVdm::new(VdmOp::RtUpdate, &payload).repr());
    assert_eq!((came.len(), bench.told()), (1, vec![(3, 0)]), "nobody takes messages: the GAM");
}

/// Answers to a requester with a limit wait until they are due, and hold up no other requester's.
#[test]
fn answers_wait_for_their_time() {
    let mut bench = Bench::new();
    let gfd = bench.gfd.gfd_mut();
    gfd.set_bandwidth_limits(usize::from(HOST.bits()), &[64]).unwrap(); // 2 Gbit/s
    let other = Pid::from_low_bits(0x0A2);
    let list = gfd.decoders(HOST, 0, 8).unwrap().list;
    gfd.set_decoders(other, 0, &list).unwrap();
    gfd.set_sat(&[(other, 1)]).unwrap();
    let read = plain(Kind::UioRead, BASE, 1_024);
    let count = |came: &[Kept]| came.iter().map(|kept| kept.tlp().payload().len()).sum::<usize>();
    let mut came: Vec<Kept> = (0..5).flat_map(|_| bench.ask(&read)).collect();
    assert_eq!(count(&came), 4 * 4_096, "a burst goes at once");
    let write = TlpRepr { payload: &[1; 64], ..plain(Kind::UioWrite, BASE, 16) };
    assert_eq!(bench.ask(&write), [], "written, and not said");
    assert_eq!(bench.memory(0, 64), [1; 64]);
    assert_eq!(count(&bench.ask_as(Pth::new(other, GFD), &read)), 4_096);
    bench.now = Instant::from_ns(16_383);
    bench.step();
    assert_eq!(bench.came, []);
    bench.now = Instant::from_ns(16_384);
    bench.step();
    came.append(&mut bench.came);
    assert_eq!(count(&came), 5 * 4_096);
    let (load, _) = came.last().unwrap().tlp().uio_completion().unwrap();
    assert_eq!(load, DevLoad::ModerateOverload);
    assert_eq!(came[16 * 4].tlp().payload()[0], 1, "as it was when it was sent");
    // rights removed while an answer waits
    assert_eq!(bench.ask(&read).len(), 0);
    bench.gfd.gfd_mut().set_sat(&[(HOST, 0)]).unwrap();
    bench.now += Span::from_ms(1);
    bench.step();
    let statuses: Vec<_> = bench.came.iter().map(|kept| kept.tlp().status().unwrap()).collect();
    assert_eq!(statuses, [Status::Success, Status::UnsupportedRequest], "the write, the read");
}

/// Partner information is sent when the link comes up, when the PID changes, and when requested.
#[test]
fn partners_tell_each_other() {
    let uuid = *b"0123456789abcdef";
    let config = GfdEndConfig { port: 7, uuid, ..GfdEndConfig::default() };
    let mut bench = Bench::of(device(Media::default()), config);
    let told = |came: &[Kept]| -> Vec<(u16, u8, u8, u8)> {
        let info = |kept: &Kept| {
            let tlp = kept.tlp();
            let vdm = PbrVdm::parse(&tlp).unwrap();
            let info = PartnerInfo::decode(vdm.payload).unwrap();
            assert_eq!(
                (vdm.op, info.uuid, kept.pth.dpid),
                (VdmOp::LinkPartnerInfo, uuid, Pid::NONE)
            );
            (info.pid.bits(), info.component_type, info.port, info.far_port)
        };
        came.iter().map(info).collect()
    };
    let mut info = PartnerInfo::new(HOST, PartnerInfo::SWITCH);
    info.port = 3;
    let payload = info.emit();
    let asks = PbrVdm::new(VdmOp::LinkPartnerInfo, &payload).repr();
    let nobody = Pth::new(Pid::NONE, Pid::NONE);
    assert_eq!(told(&bench.ask_as(nobody, &asks)), [(0x123, 1, 7, 3)]);
    assert_eq!(bench.ask_as(nobody, &asks), [], "it was just told");
    bench.now = Instant::from_ns(10_000_000);
    assert_eq!(told(&bench.ask_as(nobody, &asks)), [(0x123, 1, 7, 3)]);
    bench.gfd.set_pid(bench.now, Pid::from_low_bits(0x222));
    bench.step();
    assert_eq!(told(&std::mem::take(&mut bench.came)), [(0x222, 1, 7, 3)]);
    assert_eq!(bench.gfd.partner().map(|info| info.port), Some(3));
    bench.ports[1].set_link(false);
    bench.step();
    bench.ports[1].set_link(true);
    bench.step();
    assert_eq!(told(&bench.came), [(0x222, 1, 7, 0)]);
}
