//! Lightweight Notification on one link, TLP by TLP: what order a host and a device keep, and what counts as an update.
//!
//! [`Link`]: a host or a device, and a bare end of TLPs that says what it wants and notes what comes.
//!
//! Units: bytes, nanoseconds.
//! Source: PCIe 5.0 sections 2.4.1 (ordering), 6.21.

use crate::rig::{Net, RAM, device_config, function, host_config, memory, pattern};
use weft_cxl::cxl_device::CxlDevice;
use weft_cxl::cxl_host::CxlHost;
use weft_cxl::ln::{LineSize, LncSpec, Regions};
use weft_cxl::pci::Reg;
use weft_cxl::requester::Operation;
use weft_cxl::tlp_end::{Received, TlpEnd};
use weft_dataplane::batch::Batch;
use weft_dataplane::config::TlpConfig;
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::Pipe;
use weft_dataplane::time::Span;
use weft_hosts::classes::PriMap;
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::ln::{LnMessage, Reason};
use weft_parsers::tlp::{At, Body, Kind, Mode, Routing, Status, Tlp, TlpRepr};
use weft_parsers::{MacAddr, Pfc};

/// Where registrations are taken.
const WATCHED: u64 = RAM + 0x4000;
/// Addresses of the other end, below what TLPs of 32 bits reach.
const THERE: u64 = 0x8000_0000;
const OTHER: Bdf = Bdf::new(1, 0, 0);
const LINE: usize = 64;

/// What is tested, at the near end of the link.
enum Near {
    Host(Box<CxlHost>),
    Device(Box<CxlDevice>),
}

struct Link {
    near: Near,
    port: Pipe,
    far: (TlpEnd, Pipe),
    net: Net,
    /// TLPs that came to the bare end.
    came: Vec<Vec<u8>>,
}

fn lnc() -> LncSpec {
    let mut regions = Regions::new();
    regions.add(Hpa(WATCHED), 0x2000).unwrap();
    LncSpec {
        line: LineSize::B64,
        lines_max: 16,
        watchers_max: 4,
        translated: false,
        regions,
        broadcast_gap: Span::ZERO,
        pending_max: 64,
    }
}

impl Link {
    fn new(near: Near) -> Self {
        let mut net = Net::new();
        let (port, far) = net.pipe();
        let end = TlpEnd::new(crate::rig::end(9, Mode::NonFlit, 256));
        let mut link = Self { near, port, far: (end, far), net, came: Vec::new() };
        link.steps(4);
        link.came.clear();
        link
    }

    fn host() -> Self {
        let mut config = host_config(Mode::NonFlit);
        config.lnc = Some(lnc());
        Self::new(Near::Host(Box::new(CxlHost::new(config, memory()).unwrap())))
    }

    /// A device that software has given its id, the right to send, and LN for lines of 64 bytes.
    fn device() -> Self {
        let config = device_config(Mode::NonFlit, vec![function(0x0D01)]);
        let mut link = Self::new(Near::Device(Box::new(CxlDevice::new(config).unwrap())));
        let mut at = 0x100;
        let read = |link: &Self, at| {
            let Near::Device(device) = &link.near else { panic!("a host") };
            device.function(0).unwrap().read(Reg::at(at))
        };
        while read(&link, at) & 0xFFFF != 0x001C {
            at = u16::try_from(read(&link, at) >> 20).unwrap();
            assert_ne!(at, 0, "it has an LN requester");
        }
        for (register, value) in [(4, 6_u32), (at + 4, 0x0401 << 16)] {
            let kind = Kind::CfgWrite { type1: false };
            let first_be = if register == 4 { 3 } else { 12 };
            let body = Body::Config { dest: OTHER, register, first_be };
            let bytes = value.to_le_bytes();
            let write = TlpRepr::new(Mode::NonFlit, kind, Bdf::new(0, 0, 0), 1, body);
            link.ask(&TlpRepr { payload: &bytes, ..write });
        }
        link.steps(4);
        link.came.clear();
        link
    }

    fn near_host(&mut self) -> &mut CxlHost {
        let Near::Host(host) = &mut self.near else { panic!("a device") };
        host
    }

    fn near_device(&mut self) -> &mut CxlDevice {
        let Near::Device(device) = &mut self.near else { panic!("a host") };
        device
    }

    /// Puts a TLP into the bare end's way out.
    fn ask(&mut self, tlp: &TlpRepr<'_>) {
        self.far.0.outbox().send(None, tlp).unwrap();
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.net.now += Span::from_ns(100);
            let (now, bufs) = (self.net.now, &mut self.net.bufs);
            let (end, port) = &mut self.far;
            let came = &mut self.came;
            end.poll(now, port, bufs, &mut |frame, _| {
                let Received::Tlp(None, tlp) = frame.content else { panic!("{frame:?}") };
                came.push(tlp.bytes()[..tlp.len()].to_vec());
            })
            .unwrap();
            match &mut self.near {
                Near::Host(host) => host.poll(now, &mut self.port, bufs).unwrap(),
                Near::Device(device) => device.poll(now, &mut self.port, bufs).unwrap(),
            };
        }
    }

    /// Pauses the near end's priority of Traffic Class 0 for about 20 microseconds.
    fn pause(&mut self) {
        let pri = TlpConfig::for_pris(8).tc_to_pri[0];
        let class = (0..8_u8).find(|&c| PriMap::eight().pcp[usize::from(c)] == pri).unwrap();
        let pfc = Pfc { enable: 0, quanta: [0; 8] }.with(class, 4_000);
        let mut frame = [0; weft_parsers::mac_control::FRAME_LEN];
        pfc.emit(MacAddr([2, 0, 0, 0, 0, 9]), &mut frame);
        let desc = self.net.bufs.alloc_from(&frame).unwrap();
        let mut batch: Batch = core::iter::once(desc).collect();
        self.far.1.tx(self.net.now, &mut self.net.bufs, &mut batch);
        self.steps(2);
    }

    /// What came: kind, tag of a completion or address of a request, LN bit; nothing of it while the pause lasted.
    fn order(&mut self) -> Vec<(Kind, u64, bool)> {
        assert_eq!(self.came, Vec::<Vec<u8>>::new(), "nothing passes what is paused");
        self.steps(250);
        let came = core::mem::take(&mut self.came);
        let one = |bytes: &Vec<u8>| {
            let tlp = Tlp::parse(Mode::NonFlit, bytes).unwrap();
            let place = tlp.addr().map_or_else(|| tlp.tag().into(), |addr| addr.0);
            (tlp.kind(), place, tlp.ln())
        };
        came.iter().map(one).collect()
    }
}

fn request(kind: Kind, tag: u16, addr: u64, len: usize, ln: bool) -> TlpRepr<'static> {
    let length_dw = u16::try_from(len / 4).unwrap();
    let body = Body::Address {
        addr: Hpa(addr),
        wide: false,
        at: At::Untranslated,
        no_write: false,
        length_dw,
        first_be: 0xF,
        last_be: if length_dw > 1 { 0xF } else { 0 },
    };
    TlpRepr { ln, ..TlpRepr::new(Mode::NonFlit, kind, OTHER, tag, body) }
}

const COMPLETION: Kind = Kind::Completion { locked: false, data: true };
const MESSAGE: Kind = Kind::Message { routing: Routing::Id, data: true };

/// PCIe 5.0 section 6.21: completions with LN pass no posted request, and keep the order that they have without it;
/// writes and reads with LN find memory as those before them have left it.
#[test]
fn section_3_3_3_a_host_keeps_the_order_of_completions_and_of_memory() {
    let bytes = [1, 2, 3, 4].map(|seed| pattern(seed, LINE));
    for ln in [false, true] {
        let mut link = Link::host();
        link.pause();
        link.near_host().write(Hpa(THERE), &[1; 4]);
        link.steps(2);
        let write = |at, n: usize| TlpRepr {
            payload: &bytes[n],
            ..request(Kind::MemWrite, 0, WATCHED + at, LINE, ln)
        };
        let plain = |at, n: usize| TlpRepr { ln: false, ..write(at, n) };
        let read = |tag, at, ln| request(Kind::MemRead, tag, WATCHED + at, LINE, ln);
        link.ask(&plain(0, 0));
        link.ask(&read(1, 0, ln)); // behind a plain write
        link.ask(&write(64, 1));
        link.ask(&read(2, 64, false)); // behind a write with LN
        link.ask(&write(128, 2));
        link.ask(&plain(128, 3));
        link.ask(&read(3, 128, ln)); // behind both, the plain one last
        link.steps(2);
        link.near_host().write(Hpa(THERE + 4), &[2; 4]);
        link.steps(2);
        link.ask(&read(4, 128, ln));
        link.steps(2);
        let came = {
            assert_eq!(link.came, Vec::<Vec<u8>>::new(), "nothing passes what is paused");
            link.steps(250);
            core::mem::take(&mut link.came)
        };
        let tlps: Vec<Tlp<'_>> =
            came.iter().map(|bytes| Tlp::parse(Mode::NonFlit, bytes).unwrap()).collect();
        // a message of the plain write to a line that is watched has its place among the posted; it is another test's
        let order: Vec<_> = tlps.iter().filter(|tlp| tlp.kind() != MESSAGE).collect();
        let told: Vec<_> = order
            .iter()
            .map(|tlp| {
                (tlp.kind(), tlp.addr().map_or(u64::from(tlp.tag()), |addr| addr.0), tlp.ln())
            })
            .collect();
        let want = [
            (Kind::MemWrite, THERE, false),
            (COMPLETION, 1, ln),
            (COMPLETION, 2, false),
            (COMPLETION, 3, ln),
            (Kind::MemWrite, THERE + 4, false),
            (COMPLETION, 4, ln),
        ];
        assert_eq!(told, want, "LN {ln}");
        let data = order.iter().filter(|tlp| tlp.kind() == COMPLETION).map(|tlp| tlp.payload());
        let want = [0, 1, 3, 3].map(|n| &bytes[n][..]);
        assert_eq!(data.collect::<Vec<_>>(), want, "LN {ln}");
        assert_eq!(tlps.len() - order.len(), usize::from(ln), "the plain write is told of");
    }
}

/// PCIe 5.0 section 6.21: reads and writes with LN leave in the order of those without, behind what is paused.
#[test]
fn section_3_3_3_a_device_keeps_the_order_of_its_requests() {
    for ln in [false, true] {
        let mut link = Link::device();
        link.pause();
        for n in 0..4 {
            let (line, beyond) = (THERE + 64 * n, THERE + 0x1000 + 64 * n);
            let (data, device) = (vec![7; LINE], link.near_device());
            device.submit(0, Operation::Write { addr: Hpa(beyond), data: data.clone() }).unwrap();
            if ln {
                device.ask_ln(0, |lnr, out| lnr.ln_write(Hpa(line), &data, out)).unwrap();
                device.ask_ln(0, |lnr, out| lnr.ln_read(Hpa(line), out)).unwrap();
            } else {
                device.submit(0, Operation::Write { addr: Hpa(line), data }).unwrap();
                device.submit(0, Operation::Read { addr: Hpa(line), len: LINE }).unwrap();
            }
            device.submit(0, Operation::Read { addr: Hpa(beyond), len: LINE }).unwrap();
            link.steps(1);
        }
        let want = (0..4).flat_map(|n| {
            let (line, beyond) = (THERE + 64 * n, THERE + 0x1000 + 64 * n);
            [
                (Kind::MemWrite, beyond, false),
                (Kind::MemWrite, line, ln),
                (Kind::MemRead, line, ln),
                (Kind::MemRead, beyond, false),
            ]
        });
        assert_eq!(link.order(), want.collect::<Vec<_>>(), "LN {ln}");
    }
}

/// PCIe 5.0 section 6.21: whatever a device changes a watched line by is an update; what only looks like one is none.
#[test]
fn section_4_1_every_request_that_writes_is_an_update() {
    let line = WATCHED + 0x80;
    let data = [0; 4];
    for (kind, payload, told) in [
        (Kind::MemWrite, &data[..], true),
        (Kind::FetchAdd, &data, true),
        (Kind::Swap, &data, true),
        (Kind::Cas, &[0; 8], true),
        (Kind::DeferrableMemWrite, &data, true),
        (Kind::MemRead, &[], false),
    ] {
        let mut link = Link::host();
        link.ask(&request(Kind::MemRead, 1, line, LINE, true));
        link.ask(&request(Kind::MemRead, 1, line + 64, LINE, true));
        link.steps(4);
        link.came.clear();
        let len = payload.len().max(4);
        // the last bytes of the line: the next one stays as it is
        link.ask(&TlpRepr { payload, ..request(kind, 2, line + 60, len, false) });
        link.steps(6);
        let messages: Vec<_> = link
            .came
            .iter()
            .filter_map(|bytes| {
                LnMessage::parse(&Tlp::parse(Mode::NonFlit, bytes).unwrap()).unwrap()
            })
            .collect();
        let want = LnMessage { dest: Some(OTHER), reason: Reason::Updated, line: Hpa(line) };
        let want: Vec<_> = Some(want).filter(|_| told).into_iter().collect();
        assert_eq!(messages, want, "{kind:?}");
        let answers = link.came.len() - messages.len();
        assert_eq!(answers, usize::from(kind != Kind::MemWrite), "{kind:?}");
    }
}

/// PCIe 5.0 section 6.21: bytes of a message on the wire, class and attributes among them.
#[test]
fn section_4_2_a_message_is_a_vendor_defined_one_of_class_0() {
    let mut link = Link::host();
    link.ask(&request(Kind::MemRead, 1, WATCHED + 0x40, LINE, true));
    link.steps(4);
    link.came.clear();
    assert!(link.near_host().store(Hpa(WATCHED + 0x7F), &[1]));
    link.steps(4);
    let [message] = &link.came[..] else { panic!("{:?}", link.came) };
    #[rustfmt::skip]
    let want = [
        0x72, 0, 0, 2, // MsgD by ID; TC 0, LN 0, attributes 0; two double words
        0, 0, 0, 0x7F, // the root port; Vendor_Defined Type 1
        1, 0, 0, 1, // to 01:00.0; PCI-SIG
        0, 0, 0, 0, // subtype 0, NR 00
        0, 0, 0, 0, 0, 0x10, 0x40, 0x40,
    ];
    assert_eq!(message[..], want);
}

/// An address that asks for translation, or of a reserved type, is answered as a host without LN does: UR.
#[test]
fn plain_reads_of_other_address_types_are_unsupported() {
    for at in [At::TranslationRequest, At::Reserved] {
        let mut link = Link::host();
        let read = request(Kind::MemRead, 1, WATCHED, LINE, false);
        let Body::Address { addr, wide, no_write, length_dw, first_be, last_be, .. } = read.body
        else {
            panic!("{read:?}")
        };
        let body = Body::Address { addr, wide, at, no_write, length_dw, first_be, last_be };
        link.ask(&TlpRepr { body, ..read });
        link.steps(4);
        let answer = Tlp::parse(Mode::NonFlit, &link.came[0]).unwrap();
        assert_eq!(answer.status(), Some(Status::UnsupportedRequest), "{at:?}");
    }
}
