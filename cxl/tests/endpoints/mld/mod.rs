//! A device with logical devices (LDs) behind one link: each takes what has its prefix, and nothing of the others.
//!
//! What a switch sends, TLP by TLP, with a prefix or without; what comes back, and what is counted.
//!
//! Units: bytes.
//! Source: CXL 3.1 sections 2.5, 7.6.7.3, 7.6.7.4; docs/spec/wire-formats.md §3.2 "LD-ID form", §4.3a.

mod shared;

use crate::rig::{FRAME_LEN_MAX, decode_hdm, device_config, end, identity};
use weft_base::rng::Rng;
use weft_cxl::cdat::Figures;
use weft_cxl::cxl_device::{CxlDevice, FunctionConfig, HdmConfig, HdmMemory};
use weft_cxl::mld::{FM_LD, GRANULE, Mld, MldConfig, MldError};
use weft_cxl::pci::FunctionSpec;
use weft_cxl::pci::function::{BarKind, BarSpec};
use weft_cxl::tlp_end::{Received, TlpEnd};
use weft_cxl::vdm::mctp::{Event, Peer, Tunnel};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_parsers::cci::dcd::{
    AddPolicy, Extent, GetExtents, InitiateAdd, InitiateRelease, ReleaseFlags, ReleasePolicy,
};
use weft_parsers::cci::generic::Identity as Who;
use weft_parsers::cci::gfd::GetTags;
use weft_parsers::cci::host_dc::{HostRange, SetRegion};
use weft_parsers::cci::ld::{LdAllocation, SetLdAllocations};
use weft_parsers::cci::mctp::MessageType;
use weft_parsers::cci::{Header, List, Opcode, Request, Response, ReturnCode};
use weft_parsers::cxl_mem::{MemHead, MemMessage, MemOp};
use weft_parsers::fabric::{Bdf, Dpa, Hpa, Pid};
use weft_parsers::tlp::{
    At, Body, DevLoad, Kind, MctpPacket, Mode, PbrVdm, Pth, Status, Tlp, TlpRepr, VdmOp,
    VendPrefixL0,
};

const LDS: usize = 3;
const BAR: u64 = 0x40_0000_0000;

/// A TLP that came back: LD-ID, status of a completion, payload.
type Back = (Option<u16>, Option<Status>, Vec<u8>);

struct Bench {
    now: Instant,
    bufs: Bufs,
    mld: Mld,
    lds: Vec<CxlDevice>,
    ports: (Pipe, Pipe),
    switch: TlpEnd,
    back: Vec<Back>,
    /// CXL.mem messages that came back, with the first byte of their line.
    lines: Vec<(MemHead, Option<u8>)>,
    /// Loads that completions of UIO told, by LD.
    loads: Vec<(u16, DevLoad)>,
    tunnel: Tunnel,
}

fn config(lds: usize, capacity: u64) -> MldConfig {
    with_dynamic(lds, capacity, 0)
}

fn with_dynamic(lds: usize, capacity: u64, dynamic: u64) -> MldConfig {
    let identity = Who {
        vendor: 0x1E98,
        device: 0x0D00,
        subsystem_vendor: 0,
        subsystem: 0,
        serial: 0x100,
        message_max_log2: 0,
        component: 3,
    };
    let rate = LinkRate::gbps(10);
    MldConfig { end: end(2, Mode::Flit, 256), lds, capacity, dynamic, rate, identity }
}

impl Bench {
    fn new() -> Self {
        Self::with(config(LDS, 4 * GRANULE))
    }

    fn with(config: MldConfig) -> Self {
        let capacity = config.capacity;
        let mld = Mld::new(config).unwrap();
        let one = |_| {
            let mut spec = FunctionSpec { identity: identity(0x0D00), ..FunctionSpec::default() };
            let kind = BarKind::Mem64 { prefetch: true };
            spec.bars[0] = Some(BarSpec { kind, size: Mld::bar_size(capacity) });
            let memory = HdmMemory::Bar(0);
            let hdm = Some(HdmConfig { base: None, memory, figures: Figures::MEMORY });
            let function = FunctionConfig { spec, hdm, ..FunctionConfig::default() };
            CxlDevice::new(device_config(Mode::Flit, vec![function])).unwrap().logical()
        };
        let mut lds: Vec<CxlDevice> = (0..LDS).map(one).collect();
        mld.begin(&mut lds);
        let mut bufs = Bufs::new(Pool::in_memory(1_024, FRAME_LEN_MAX).unwrap(), 64, 0);
        let mut ports = pipe(PipeConfig {
            names: ["switch".to_owned(), "device".to_owned()],
            depth: 256,
            rate: LinkRate::gbps(100),
            frame_len_max: FRAME_LEN_MAX,
            wakes_reader: false,
        })
        .unwrap();
        ports.0.start(&mut bufs).unwrap();
        ports.1.start(&mut bufs).unwrap();
        let switch = TlpEnd::new(end(1, Mode::Flit, 256));
        let (back, loads, tunnel) = (Vec::new(), Vec::new(), Tunnel::new(Pid::NONE));
        let (now, lines) = (Instant::ZERO, Vec::new());
        Self { now, bufs, mld, lds, ports, switch, back, lines, loads, tunnel }
    }

    fn step(&mut self) {
        for _ in 0..6 {
            self.now += Span::from_ns(100);
            let Self { now, bufs, mld, lds, ports, switch, back, lines, loads, tunnel } = self;
            let took = &mut |frame: weft_cxl::tlp_end::Frame<'_>, _: &mut _| {
                let tlp = match frame.content {
                    Received::Tlp(None, tlp) => tlp,
                    Received::Mem(None, message) => {
                        lines.push((message.head, message.data.map(|line| line[0])));
                        return;
                    }
                    _ => panic!("{frame:?}"),
                };
                let ld = tlp.vend_prefix().map(VendPrefixL0::ld_id);
                if let (Some(ld), Some((load, _))) = (ld, tlp.uio_completion()) {
                    loads.push((ld, load));
                }
                match MctpPacket::parse(&tlp) {
                    Ok(packet) => {
                        assert_eq!(ld, Some(FM_LD), "management is of LD FFFFh");
                        tunnel.receive(*now, 7, Pth::new(Pid::NONE, Pid::NONE), &packet);
                    }
                    Err(_) => back.push((ld, tlp.status(), tlp.payload().to_vec())),
                }
            };
            switch.poll(*now, &mut ports.0, bufs, took).unwrap();
            mld.poll(*now, lds, &mut ports.1, bufs).unwrap();
        }
    }

    fn send(&mut self, ld: Option<u16>, repr: &TlpRepr<'_>) -> Vec<Back> {
        let vend_prefix = ld.map(VendPrefixL0::from_ld_id);
        self.switch.outbox().send(None, &TlpRepr { vend_prefix, ..*repr }).unwrap();
        self.step();
        core::mem::take(&mut self.back)
    }

    /// Writes a register of an LD, as the switch does for its host.
    fn write_config(&mut self, ld: u16, register: u16, value: u32) {
        let kind = Kind::CfgWrite { type1: false };
        let body = Body::Config { dest: Bdf::new(3, 0, 0), register, first_be: 0xF };
        let payload = &value.to_le_bytes();
        let repr =
            TlpRepr { payload, ..TlpRepr::new(Mode::Flit, kind, Bdf::from_bits(0), 1, body) };
        assert_eq!(self.send(Some(ld), &repr), [(Some(ld), Some(Status::Success), vec![])]);
    }

    /// Gives an LD the address [`BAR`] and switches its memory on.
    fn place(&mut self, ld: u16) {
        let [low, high] = [BAR & 0xFFFF_FFFF, BAR >> 32].map(|half| u32::try_from(half).unwrap());
        self.write_config(ld, 0x10, low);
        self.write_config(ld, 0x14, high);
        self.write_config(ld, 0x04, 0x6);
    }

    fn memory(&mut self, ld: Option<u16>, addr: u64, write: Option<&[u8]>) -> Vec<Back> {
        let kind = if write.is_some() { Kind::MemWrite } else { Kind::MemRead };
        let body = Body::Address {
            addr: Hpa(addr),
            wide: true,
            at: At::Untranslated,
            no_write: false,
            length_dw: 1,
            first_be: 0xF,
            last_be: 0,
        };
        let repr = TlpRepr::new(Mode::Flit, kind, Bdf::from_bits(0), 2, body);
        self.send(ld, &TlpRepr { payload: write.unwrap_or_default(), ..repr })
    }

    /// Sends CXL.mem messages to an LD, of lines full of `byte`; what comes back.
    fn mem(&mut self, ld: u8, op: MemOp, addr: u64, byte: u8) -> Vec<(MemHead, Option<u8>)> {
        let head = MemHead { ld, addr: Hpa(addr), ..MemHead::new(op, 7) };
        let line = [byte; 64];
        let data = op.class().has_data().then_some(&line);
        let message = MemMessage { head, data, enables: None };
        self.switch.outbox().send_mem(None, &message).unwrap();
        self.step();
        core::mem::take(&mut self.lines)
    }

    /// Asks LD `FFFFh`; the return code and the payload.
    fn manage(&mut self, request: &Request<'_>) -> (ReturnCode, Vec<u8>) {
        let mut message = [0; 512];
        let len = request.emit_message(0, &mut message).unwrap();
        let (peer, kind, timeout) = (Peer::Port(7), MessageType::FmApi, Span::from_ms(1));
        self.tunnel.request(self.now, peer, kind, &message[..len], timeout).unwrap();
        while let Some(sent) = self.tunnel.poll(self.now) {
            let vend_prefix = Some(VendPrefixL0::from_ld_id(FM_LD));
            let repr = TlpRepr { vend_prefix, ..sent.repr() };
            self.switch.outbox().send(None, &repr).unwrap();
        }
        self.step();
        let event = loop {
            match self.tunnel.pop_event() {
                Some(Event::Notice { .. }) => {} // that it is there
                event => break event,
            }
        };
        match event {
            Some(Event::Response(_, message)) => {
                let (header, payload) = Header::parse(&message).unwrap();
                (header.return_code, payload.to_vec())
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Each LD has its own registers, address and memory; the answer has the prefix of the request.
#[test]
fn each_ld_takes_what_has_its_prefix() {
    let mut bench = Bench::new();
    for ld in [0, 2] {
        bench.place(ld);
    }
    assert_eq!(bench.memory(Some(0), BAR + 8, Some(&[1, 2, 3, 4])), []);
    let read = |bench: &mut Bench, ld| bench.memory(Some(ld), BAR + 8, None);
    assert_eq!(read(&mut bench, 0), [(Some(0), Some(Status::Success), vec![1, 2, 3, 4])]);
    assert_eq!(read(&mut bench, 2), [(Some(2), Some(Status::Success), vec![0; 4])], "another");
    // LD 1 has the same registers, and its memory is off.
    assert_eq!(read(&mut bench, 1), [(Some(1), Some(Status::UnsupportedRequest), vec![])]);
    // The BAR is of all memory, and what is not the LD's is refused.
    let beyond = bench.memory(Some(0), BAR + GRANULE, None);
    assert_eq!(beyond, [(Some(0), Some(Status::UnsupportedRequest), vec![])]);
}

/// Without a prefix, with the LD-ID of nobody, and for LD `FFFFh` without a request: refused and counted, and no LD hears.
#[test]
fn what_names_no_ld_is_refused_and_counted() {
    let mut bench = Bench::new();
    for ld in 0..3 {
        bench.place(ld);
    }
    let served =
        |bench: &Bench| -> u64 { bench.lds.iter().map(|ld| ld.counts().0.tlps.requests).sum() };
    let before = served(&bench);
    let refused = |ld| vec![(ld, Some(Status::UnsupportedRequest), vec![])];
    for (ld, name) in [
        (None, "no prefix"),
        (Some(3), "LD 3"),
        (Some(0xFFFE), "LD FFFEh"),
        (Some(FM_LD), "LD FFFFh"),
    ] {
        assert_eq!(bench.memory(ld, BAR, None), refused(ld), "{name}");
        assert_eq!(bench.memory(ld, BAR, Some(&[0xEE; 4])), [], "{name}: nobody answers a write");
    }
    let (counts, _) = bench.mld.counts();
    assert_eq!(
        (counts.no_prefix, counts.unknown_ld, counts.not_management),
        (2, 4, 2),
        "{counts:?}"
    );
    assert_eq!(served(&bench), before);
    for ld in 0..3 {
        assert_eq!(bench.memory(Some(ld), BAR, None)[0].2, [0; 4], "LD {ld}");
    }
}

/// The message of its switch resets one LD: registers are as after power-on, memory stays, and the others go on.
#[test]
fn a_reset_is_of_one_ld() {
    let mut bench = Bench::new();
    for ld in 0..2 {
        bench.place(ld);
        bench.memory(Some(ld), BAR, Some(&[5, 6, 7, 8]));
    }
    let vdm = PbrVdm { op: VdmOp::AssertReset, seq_len: 0, cmd_seq: 0, seq_num: 0, payload: &[] };
    assert_eq!(bench.send(Some(0), &vdm.repr()), []);
    assert_eq!(bench.mld.counts().0.resets, 1);
    assert_eq!(bench.memory(Some(0), BAR, None)[0].1, Some(Status::UnsupportedRequest));
    assert_eq!(bench.memory(Some(1), BAR, None)[0].2, [5, 6, 7, 8]);
    bench.place(0);
    assert_eq!(bench.memory(Some(0), BAR, None)[0].2, [5, 6, 7, 8], "memory keeps its bytes");
    // Poison of one LD's memory is that LD's alone.
    bench.lds[0].bar_mut(0, 0).unwrap().poison(0).unwrap();
    assert_eq!(bench.memory(Some(0), BAR, None)[0].1, Some(Status::CompleterAbort));
    assert_eq!(bench.memory(Some(1), BAR, None)[0].2, [5, 6, 7, 8]);
}

/// The manager takes memory only from an LD whose host has it off; what is taken is gone, and nobody finds it.
#[test]
fn memory_that_is_taken_is_gone() {
    let mut bench = Bench::new();
    let set = |bench: &mut Bench, start, list: &[u64]| {
        let list: Vec<_> = list.iter().map(|&range1| LdAllocation { range1, range2: 0 }).collect();
        let set = SetLdAllocations { start, allocations: List::of(&list) };
        bench.manage(&Request::SetLdAllocations(set)).0
    };
    bench.place(0);
    bench.memory(Some(0), BAR + GRANULE - 4, Some(&[9; 4]));
    assert_eq!(set(&mut bench, 0, &[0]), ReturnCode::Busy, "its memory is on");
    assert_eq!(set(&mut bench, 0, &[2]), ReturnCode::Success, "more harms nobody");
    assert_eq!(set(&mut bench, 0, &[1]), ReturnCode::Busy);
    bench.write_config(0, 0x04, 0);
    assert_eq!(set(&mut bench, 0, &[1]), ReturnCode::Success);
    let wrong: [(&str, u8, &[u64]); 4] = [
        ("no such LD", 3, &[1]),
        ("one too many", 2, &[1, 1]),
        ("too much", 0, &[3]),
        ("overflow", 0, &[u64::MAX]),
    ];
    for (name, start, list) in wrong {
        assert_eq!(set(&mut bench, start, list), ReturnCode::InvalidInput, "{name}");
        assert_eq!(bench.mld.memory_of(0), GRANULE, "{name} changes nothing");
    }
    assert_eq!(set(&mut bench, 0, &[0, 2]), ReturnCode::Success);
    assert_eq!([0, 1, 2].map(|ld| bench.mld.memory_of(ld)), [0, 2 * GRANULE, GRANULE]);
    assert_eq!(set(&mut bench, 1, &[0]), ReturnCode::Success);
    assert_eq!(set(&mut bench, 0, &[1]), ReturnCode::Success);
    bench.place(0);
    assert_eq!(bench.memory(Some(0), BAR + GRANULE - 4, None)[0].2, [0; 4], "zeros");
}

/// What there can be: 1 to 16 LDs, whole units of memory, a link in flit mode.
#[test]
fn a_device_that_cannot_be_is_refused() {
    let refused = |config| Mld::new(config).err().map(|error| error.to_string());
    assert_eq!(refused(config(0, GRANULE)), Some(MldError::Lds(0).to_string()));
    assert_eq!(refused(config(17, GRANULE)), Some(MldError::Lds(17).to_string()));
    assert!(refused(config(16, GRANULE)).is_none(), "an LD may have nothing");
    for capacity in [0, GRANULE - 1, GRANULE + 4_096] {
        assert_eq!(refused(config(1, capacity)), Some(MldError::Capacity(capacity).to_string()));
    }
    for dynamic in [GRANULE - 1, 3 * GRANULE, u64::MAX] {
        let config = with_dynamic(2, 2 * GRANULE, dynamic);
        assert_eq!(refused(config), Some(MldError::Dynamic(dynamic).to_string()));
    }
    assert!(refused(with_dynamic(2, 2 * GRANULE, 2 * GRANULE)).is_none(), "all may be dynamic");
    let other = MldConfig { end: end(2, Mode::NonFlit, 256), ..config(1, GRANULE) };
    assert_eq!(refused(other), Some(MldError::Link.to_string()));
}

/// Whatever comes, with whatever prefix, it goes on: nothing panics, and an LD that nobody names stays as it is.
#[test]
fn random_tlps_reach_nobody_else() {
    let mut bench = Bench::new();
    let mut rng = Rng::new(0x31D);
    bench.place(2);
    bench.memory(Some(2), BAR, Some(&[1, 2, 3, 4]));
    for _ in 0..4_000 {
        let mut bytes: Vec<u8> = (0..40).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
        bytes[0] = [0x03, 0x20, 0x40, 0x60, 0x04, 0x44, 0x4A, 0x34, 0x74, 0x72, 0x22, 0x61]
            [usize::try_from(rng.below(12)).unwrap()];
        let Ok(tlp) = Tlp::parse(Mode::Flit, &bytes) else { continue };
        let ld = [None, Some(0), Some(1), Some(3), Some(FM_LD), Some(0x0200)]
            [usize::try_from(rng.below(6)).unwrap()];
        let repr = TlpRepr { vend_prefix: ld.map(VendPrefixL0::from_ld_id), ..tlp.repr() };
        if bench.switch.outbox().send(None, &repr).is_ok() {
            bench.step();
        }
        bench.back.clear();
    }
    assert_eq!(bench.memory(Some(2), BAR, None)[0].2, [1, 2, 3, 4]);
    let (counts, _) = bench.mld.counts();
    assert!(
        counts.no_prefix > 0 && counts.unknown_ld > 0 && counts.not_management > 0,
        "{counts:?}"
    );
    assert!(bench.ports.0.link_up());
}

/// 5403h to 5409h and 5501h at the device: what is set is told, what cannot be is refused; with a limit an LD waits for its turn, hears of
/// it by the load in its answers, and another is served as before.
#[test]
fn load_is_told_and_bandwidth_is_shared() {
    use weft_parsers::cci::gfd_access::QosControl;
    use weft_parsers::cci::ld::{LdFractions, LdPage};

    let mut bench = Bench::new();
    let control = QosControl {
        control: 1,
        moderate_percent: 1,
        severe_percent: 90,
        interval: 8,
        compare_basis: 0,
        completion_interval: 64,
    };
    let set = |bench: &mut Bench, control| bench.manage(&Request::SetLdQosControl(control)).0;
    assert_eq!(set(&mut bench, control), ReturnCode::Success);
    let bad = QosControl { severe_percent: 101, ..control };
    assert_eq!(set(&mut bench, bad), ReturnCode::InvalidInput);
    let told = bench.manage(&Request::GetLdQosControl);
    assert_eq!(told, (ReturnCode::Success, vec![1, 1, 90, 8, 0, 0, 64]));
    assert_eq!(bench.manage(&Request::GetLdQosStatus).1, [0], "nobody waits");
    let head = bench.manage(&Request::GetHeadInfo(LdPage { start: 0, limit: 9 }));
    assert_eq!((head.0, head.1[0], head.1.len()), (ReturnCode::Success, 1, 4 + 9));
    let none = bench.manage(&Request::GetHeadInfo(LdPage { start: 1, limit: 1 }));
    assert_eq!(none.0, ReturnCode::InvalidInput, "it has one head");
    for ld in 0..2 {
        bench.place(ld);
    }
    let limit = LdFractions { start: 0, fractions: List::of(&[1]) };
    assert_eq!(bench.manage(&Request::SetLdLimit(limit)).0, ReturnCode::Success);
    // LD 0 wants far more than 1/256 of 10 Gbit/s: most of it waits, and LD 1 is answered at once.
    let body = |addr| Body::Address {
        addr: Hpa(addr),
        wide: true,
        at: At::Untranslated,
        no_write: false,
        length_dw: 64,
        first_be: 0xF,
        last_be: 0xF,
    };
    let read = |tag, ld, kind| {
        let vend_prefix = Some(VendPrefixL0::from_ld_id(ld));
        TlpRepr { vend_prefix, ..TlpRepr::new(Mode::Flit, kind, Bdf::from_bits(0), tag, body(BAR)) }
    };
    for tag in 0..400 {
        bench.switch.outbox().send(None, &read(tag, 0, Kind::UioRead)).unwrap();
    }
    for _ in 0..20 {
        bench.step();
    }
    let answered = bench.back.iter().filter(|(ld, ..)| *ld == Some(0)).count();
    let waiting = bench.mld.counts().0.waiting;
    assert!(
        waiting > 200 && (399..=400).contains(&(answered as u64 + waiting)),
        "{answered} {waiting}"
    );
    assert!(bench.manage(&Request::GetLdQosStatus).1[0] > 0, "and the manager is told");
    bench.back.clear();
    bench.switch.outbox().send(None, &read(500, 1, Kind::UioRead)).unwrap();
    bench.step();
    let others = bench.back.iter().filter(|(ld, ..)| *ld == Some(1)).count();
    assert_eq!(others, 1, "LD 1 does not wait for LD 0");
    let told = |ld: u16| bench.loads.iter().filter(move |(of, _)| *of == ld).map(|(_, load)| *load);
    assert!(told(0).any(|load| load == DevLoad::SevereOverload), "LD 0 hears of its own");
    assert!(told(1).all(|load| load != DevLoad::SevereOverload), "and LD 1 of the device's");
}

/// 1 GiB of which half is dynamic: a region from 512 MiB on.
const REGION: u64 = 2 * GRANULE;
const BLOCK: u64 = 2 << 20;

fn dynamic_bench() -> Bench {
    Bench::with(with_dynamic(LDS, 4 * GRANULE, 2 * GRANULE))
}

impl Bench {
    /// 5604h; `len` 0 where the extents say it.
    fn add(&mut self, host: u16, what: (AddPolicy, u8, u64, u8), extents: &[Extent]) -> ReturnCode {
        let (policy, region, len, tag) = what;
        let (tag, extents) = ([tag; 16], List::of(extents));
        let add = InitiateAdd { host, policy, region, len, tag, extents };
        self.manage(&Request::InitiateAdd(add)).0
    }

    /// 5605h, of extents where there are some, else of a tag.
    fn take(&mut self, host: u16, forced: bool, len: u64, tag: u8, of: &[Extent]) -> ReturnCode {
        let by_tag = of.is_empty();
        let policy = if by_tag { ReleasePolicy::Tag } else { ReleasePolicy::Prescriptive };
        let flags = ReleaseFlags { policy, forced, sanitize: false };
        let (tag, extents) = ([tag; 16], List::of(of));
        let release = InitiateRelease { host, flags, len, tag, extents };
        self.manage(&Request::InitiateRelease(release)).0
    }

    /// 5603h: start and length of each.
    fn extents(&mut self, host: u16) -> Vec<(u64, u64)> {
        let get = GetExtents { owner: host, count: 64, start: 0 };
        let (code, payload) = self.manage(&Request::GetExtents(get));
        assert_eq!(code, ReturnCode::Success, "LD {host}");
        let Ok(Response::GetExtents(list)) = Response::parse(Opcode::GET_EXTENTS, &payload) else {
            panic!("{payload:02x?}")
        };
        list.extents.iter().map(|extent| (extent.start.0, extent.len)).collect()
    }

    fn status(&mut self, ld: u16, at: u64) -> Option<Status> {
        self.memory(Some(ld), BAR + at, None)[0].1
    }
}

fn at(start: u64, len: u64) -> Extent {
    Extent { start: Dpa(start), len, tag: [0; 16], shared_seq: 0 }
}

/// 5604h and 5605h: an LD reaches what was added to it and no byte beside it; another LD reaches none of it, and what it has is
/// not touched. What is taken is refused as an access outside of any group of a GFD is, and zero when it comes again.
#[test]
fn dynamic_capacity_is_reached_by_its_own_ld_alone() {
    let mut bench = dynamic_bench();
    let (done, refused) = (Some(Status::Success), Some(Status::UnsupportedRequest));
    for ld in 0..2 {
        bench.place(ld);
        assert_eq!(bench.status(ld, REGION), refused, "nothing was added to LD {ld}");
    }
    assert_eq!(bench.mld.memory_of(0), 0, "512 MiB are not enough for three");
    assert_eq!(bench.add(0, (AddPolicy::Contiguous, 0, 2 * BLOCK, 1), &[]), ReturnCode::Success);
    assert_eq!(bench.add(1, (AddPolicy::Free, 0, BLOCK, 2), &[]), ReturnCode::Success);
    assert_eq!(bench.extents(0), [(REGION, 2 * BLOCK)]);
    assert_eq!(bench.extents(1), [(REGION + 2 * BLOCK, BLOCK)]);
    #[rustfmt::skip] // columns: place, LD 0, LD 1
    let cases = [
        (REGION - 4,             refused, refused),
        (REGION,                 done,    refused),
        (REGION + 2 * BLOCK - 4, done,    refused),
        (REGION + 2 * BLOCK,     refused, done),
        (REGION + 3 * BLOCK - 4, refused, done),
        (REGION + 3 * BLOCK,     refused, refused),
    ];
    for (place, first, second) in cases {
        assert_eq!([bench.status(0, place), bench.status(1, place)], [first, second], "{place:x}");
    }
    // A write of one is not seen by the other, and one that is refused is not kept for later.
    bench.memory(Some(0), BAR + REGION, Some(&[1, 2, 3, 4]));
    bench.memory(Some(1), BAR + REGION + 2 * BLOCK, Some(&[5, 6, 7, 8]));
    bench.memory(Some(1), BAR + REGION, Some(&[0xEE; 4]));
    assert_eq!(bench.memory(Some(0), BAR + REGION, None)[0].2, [1, 2, 3, 4]);
    // Its host has its memory on: only by force.
    assert_eq!(bench.take(0, false, 0, 1, &[]), ReturnCode::Busy);
    assert_eq!(bench.status(0, REGION), done, "nothing was taken");
    assert_eq!(bench.take(0, true, 0, 1, &[]), ReturnCode::Success);
    assert_eq!((bench.status(0, REGION), bench.extents(0)), (refused, vec![]));
    assert_eq!(bench.memory(Some(1), BAR + REGION + 2 * BLOCK, None)[0].2, [5, 6, 7, 8]);
    // What LD 0 had goes to LD 1, and back to LD 0: zeros for both.
    assert_eq!(
        bench.add(1, (AddPolicy::Prescriptive, 0, 0, 0), &[at(REGION, BLOCK)]),
        ReturnCode::Success
    );
    assert_eq!(bench.memory(Some(1), BAR + REGION, None)[0].2, [0; 4], "nothing of LD 0");
    bench.write_config(1, 0x04, 0);
    assert_eq!(bench.take(1, false, 0, 0, &[at(REGION, BLOCK)]), ReturnCode::Success, "it is off");
    assert_eq!(
        bench.add(0, (AddPolicy::Prescriptive, 0, BLOCK, 0), &[at(REGION, BLOCK)]),
        ReturnCode::Success
    );
    assert_eq!(bench.memory(Some(0), BAR + REGION, None)[0].2, [0; 4], "nothing of what it was");
    // A reset of an LD leaves what it has.
    let vdm = PbrVdm { op: VdmOp::AssertReset, seq_len: 0, cmd_seq: 0, seq_num: 0, payload: &[] };
    bench.send(Some(0), &vdm.repr());
    assert_eq!(bench.extents(0), [(REGION, BLOCK)]);
}

/// Name, LD, policy, region, bytes, tag, extents, return code.
type Add<'a> = (&'a str, u16, AddPolicy, u8, u64, u8, &'a [Extent], ReturnCode);
/// Name, LD, bytes, tag, extents, return code.
type Release<'a> = (&'a str, u16, u64, u8, &'a [Extent], ReturnCode);

/// Each thing that cannot be is refused by its code, and nothing has changed.
#[test]
fn what_cannot_be_added_or_released_changes_nothing() {
    use AddPolicy::{Contiguous, EnableShared, Free, Prescriptive};
    let mut bench = dynamic_bench();
    assert_eq!(bench.add(0, (Contiguous, 0, 4 * BLOCK, 1), &[]), ReturnCode::Success);
    assert_eq!(bench.add(1, (Contiguous, 0, BLOCK, 2), &[]), ReturnCode::Success);
    let all = 2 * GRANULE;
    let (bad, none, list) =
        (ReturnCode::InvalidInput, ReturnCode::ResourcesExhausted, ReturnCode::InvalidExtentList);
    let own = at(REGION, BLOCK);
    #[rustfmt::skip] // columns: name, LD, policy, region, bytes, tag, extents, code
    let adds: [Add<'_>; 20] = [
        ("no such LD",        3, Free, 0, BLOCK, 0, &[], bad),
        ("LD FFFFh",          0xFFFF, Free, 0, BLOCK, 0, &[], bad),
        ("LD 63",             63, Free, 0, BLOCK, 0, &[], bad),
        ("no such region",    2, Free, 1, BLOCK, 0, &[], bad),
        ("region 255",        2, Prescriptive, 255, 0, 0, &[at(REGION + 8 * BLOCK, BLOCK)], bad),
        ("nothing",           2, Free, 0, 0, 0, &[], bad),
        ("part of a block",   2, Free, 0, BLOCK / 2, 0, &[], bad),
        ("beyond the memory", 2, Free, 0, all - 4 * BLOCK, 0, &[], none),
        ("far beyond",        2, Contiguous, 0, u64::MAX - BLOCK + 1, 0, &[], none),
        ("overlap, its own",  0, Prescriptive, 0, 0, 0, &[own], none),
        ("overlap, another's", 2, Prescriptive, 0, 0, 0, &[at(REGION + 3 * BLOCK, 2 * BLOCK)], none),
        ("overlap, itself",   2, Prescriptive, 0, 0, 0, &[at(REGION + 8 * BLOCK, BLOCK); 2], list),
        ("before the region", 2, Prescriptive, 0, 0, 0, &[at(0, BLOCK)], ReturnCode::InvalidPhysicalAddress),
        ("behind the region", 2, Prescriptive, 0, 0, 0, &[at(REGION + all, BLOCK)], ReturnCode::InvalidPhysicalAddress),
        ("another length",    2, Prescriptive, 0, 2 * BLOCK, 0, &[at(REGION + 8 * BLOCK, BLOCK)], bad),
        ("beside extents",    2, Free, 0, 2 * BLOCK, 0, &[at(REGION + 8 * BLOCK, BLOCK)], bad),
        ("another's tag",     2, Free, 0, BLOCK, 1, &[], bad),
        ("shared, nobody's",  2, EnableShared, 0, 0, 9, &[], bad),
        ("shared, no tag",    2, EnableShared, 0, 0, 0, &[], bad),
        ("shared, its own",   0, EnableShared, 0, 0, 1, &[], bad),
    ];
    for (name, ld, policy, region, len, tag, extents, code) in adds {
        assert_eq!(bench.add(ld, (policy, region, len, tag), extents), code, "{name}");
    }
    #[rustfmt::skip] // columns: name, LD, bytes, tag, extents, code
    let releases: [Release<'_>; 9] = [
        ("no such LD",          3, 0, 1, &[], bad),
        ("another's tag",       1, 0, 1, &[], bad),
        ("nobody's tag",        0, 0, 9, &[], bad),
        ("more than it has",    0, 5 * BLOCK, 1, &[], bad),
        ("not of that tag",     0, 0, 2, &[own], bad),
        ("another's extent",    1, 0, 0, &[own], list),
        ("an LD with nothing",  2, 0, 0, &[own], list),
        ("was not added",       0, 0, 0, &[at(REGION + 9 * BLOCK, BLOCK)], list),
        ("half another's",      0, 0, 0, &[at(REGION + 3 * BLOCK, 2 * BLOCK)], list),
    ];
    for (name, ld, len, tag, extents, code) in releases {
        for forced in [false, true] {
            let said = bench.take(ld, forced, len, tag, extents);
            assert_eq!(said, code, "{name}, forced: {forced}");
        }
    }
    let has = [0, 1, 2].map(|ld| bench.extents(ld));
    assert_eq!(has, [vec![(REGION, 4 * BLOCK)], vec![(REGION + 4 * BLOCK, BLOCK)], vec![]]);
    // All of it, and not a block more, whoever asks.
    assert_eq!(bench.add(2, (Free, 0, all - 5 * BLOCK, 3), &[]), ReturnCode::Success);
    for ld in 0..3 {
        assert_eq!(bench.add(ld, (Free, 0, BLOCK, 0), &[]), none, "LD {ld}");
    }
    // A part of a tag goes from its end, and free blocks are found around what is in use.
    assert_eq!(bench.take(0, false, BLOCK, 1, &[]), ReturnCode::Success);
    assert_eq!(bench.take(1, false, 0, 2, &[]), ReturnCode::Success);
    assert_eq!(bench.add(2, (Contiguous, 0, 2 * BLOCK, 3), &[]), ReturnCode::Success);
    assert_eq!(bench.extents(2)[0], (REGION + 3 * BLOCK, 2 * BLOCK));
}

/// 5600h to 5602h and 5608h by bytes; blocks are of another size only while nothing is in use.
#[test]
fn dynamic_capacity_is_told_and_its_blocks_are_set() {
    let mut bench = dynamic_bench();
    // 3 LDs, a region, four ways to add and two to release, 512 MiB, blocks of 8 KiB to 512 MiB.
    let mut want = vec![3, 1, 0, 0, 15, 0, 0, 0, 3, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    want.extend(((1_u64 << 30) - (1 << 13)).to_le_bytes());
    want.resize(84, 0);
    assert_eq!(bench.manage(&Request::GetDcdInfo), (ReturnCode::Success, want));
    let get = |host, start| Request::GetHostDcRegions(HostRange { host, count: 8, start });
    let region = |bench: &mut Bench| {
        let (code, payload) = bench.manage(&get(2, 0));
        assert_eq!((code, payload.len()), (ReturnCode::Success, 4 + 40 + 16));
        payload
    };
    let told = region(&mut bench);
    assert_eq!(told[..4], [2, 0, 1, 1], "LD 2, one region");
    assert_eq!(told[4..12], REGION.to_le_bytes());
    assert_eq!(told[12..20], [2, 0, 0, 0, 0, 0, 0, 0], "512 MiB are decoded");
    assert_eq!(
        (&told[20..28], &told[28..36]),
        (&(2 * GRANULE).to_le_bytes()[..], &BLOCK.to_le_bytes()[..])
    );
    for (host, start) in [(3, 0), (0, 1), (0, 255)] {
        assert_eq!(bench.manage(&get(host, start)).0, ReturnCode::InvalidInput, "{host} {start}");
    }
    let set = |bench: &mut Bench, region, block| {
        let set = SetRegion { region, block, sanitize: true };
        bench.manage(&Request::SetHostDcRegion(set)).0
    };
    for (region, block) in [(1, BLOCK), (0, 4096), (0, 4 * GRANULE), (0, BLOCK + 1), (0, 0)] {
        assert_eq!(set(&mut bench, region, block), ReturnCode::InvalidInput, "{region} {block}");
    }
    assert_eq!(set(&mut bench, 0, GRANULE), ReturnCode::Success);
    assert_eq!(region(&mut bench)[28..41], [0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(bench.add(0, (AddPolicy::Free, 0, BLOCK, 0), &[]), ReturnCode::InvalidInput);
    assert_eq!(bench.add(1, (AddPolicy::Free, 0, GRANULE, 7), &[]), ReturnCode::Success);
    assert_eq!(set(&mut bench, 0, BLOCK), ReturnCode::Busy, "it is in use");
    let tags =
        |bench: &mut Bench, start, max| bench.manage(&Request::ListTags(GetTags { start, max }));
    let (code, payload) = tags(&mut bench, 0, 9);
    assert_eq!((code, payload.len()), (ReturnCode::Success, 16 + 84));
    assert_eq!(payload[4..16], [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0], "one tag; holders count");
    assert_eq!(
        (&payload[16..32], &payload[32..38]),
        (&[7; 16][..], &[0, 0, 0, 0, 2, 0][..]),
        "LD 1"
    );
    assert_eq!(tags(&mut bench, 2, 1).0, ReturnCode::InvalidInput, "behind the end");
    // A device without dynamic capacity adds none.
    let mut bench = Bench::new();
    let (code, payload) = bench.manage(&Request::GetDcdInfo);
    assert_eq!((code, payload[1], &payload[12..28]), (ReturnCode::Success, 0, &[0; 16][..]));
    assert_eq!(bench.add(0, (AddPolicy::Free, 0, BLOCK, 0), &[]), ReturnCode::InvalidInput);
    assert_eq!(bench.manage(&get(0, 0)).0, ReturnCode::InvalidInput);
    assert_eq!(bench.extents(0), []);
}

/// Memory that 5402h deals out and dynamic capacity are apart: neither takes from the other.
#[test]
fn fixed_and_dynamic_memory_are_apart() {
    let mut bench = dynamic_bench();
    let set = |bench: &mut Bench, list: &[u64]| {
        let list: Vec<_> = list.iter().map(|&range1| LdAllocation { range1, range2: 0 }).collect();
        let set = SetLdAllocations { start: 0, allocations: List::of(&list) };
        bench.manage(&Request::SetLdAllocations(set)).0
    };
    assert_eq!(bench.manage(&Request::GetLdInfo).1[..8], (2 * GRANULE).to_le_bytes());
    assert_eq!(bench.add(0, (AddPolicy::Free, 0, BLOCK, 0), &[]), ReturnCode::Success);
    assert_eq!(set(&mut bench, &[3]), ReturnCode::InvalidInput, "the rest is dynamic");
    assert_eq!(set(&mut bench, &[2]), ReturnCode::Success);
    bench.place(0);
    for place in [0, REGION - 4, REGION, REGION + BLOCK - 4] {
        bench.memory(Some(0), BAR + place, Some(&[9; 4]));
        assert_eq!(bench.memory(Some(0), BAR + place, None)[0].2, [9; 4], "{place:x}");
    }
    bench.write_config(0, 0x04, 0);
    assert_eq!(set(&mut bench, &[0]), ReturnCode::Success);
    bench.write_config(0, 0x04, 0x6);
    assert_eq!(bench.status(0, 0), Some(Status::UnsupportedRequest));
    assert_eq!(bench.memory(Some(0), BAR + REGION, None)[0].2, [9; 4], "that one stays");
}

/// CXL.mem messages name their LD: each has its own decoders and memory, at the same address as another's if its host likes. What an
/// LD does not have, what no LD is asked for, and what is beyond its memory is refused.
#[test]
fn cxl_mem_is_of_the_ld_that_it_names() {
    const AT: u64 = 1 << 40;
    let mut bench = Bench::new();
    bench.step();
    let answer = |op, ld| MemHead { ld, ..MemHead::new(op, 7) };
    let nothing = |ld| vec![(answer(MemOp::MemDataNxm, ld), Some(0xFF))];
    for ld in 0..4 {
        assert_eq!(bench.mem(ld, MemOp::MemRd, AT, 0), nothing(ld), "no decoder, or no LD");
    }
    for ld in [0, 2] {
        decode_hdm(&mut bench.lds[usize::from(ld)], AT);
        assert_eq!(
            bench.mem(ld, MemOp::MemWr, AT + 64, 0xA0 + ld),
            [(answer(MemOp::Cmp, ld), None)]
        );
    }
    for (ld, want) in [(0, Some(0xA0)), (2, Some(0xA2))] {
        let read = bench.mem(ld, MemOp::MemRd, AT + 64, 0);
        assert_eq!(read, [(answer(MemOp::MemData, ld), want)]);
        let mut bytes = [0];
        bench.lds[usize::from(ld)].bar(0, 0).unwrap().read(64, &mut bytes).unwrap();
        assert_eq!(Some(bytes[0]), want, "what is behind its BAR, too");
    }
    assert_eq!(bench.mem(1, MemOp::MemRd, AT + 64, 0), nothing(1), "it has no decoder");
    let own = bench.mld.memory_of(0);
    assert_eq!(bench.mem(0, MemOp::MemRd, AT + own, 0), nothing(0), "not its memory");
    assert_eq!(
        bench.mem(0, MemOp::MemRd, AT + own - 64, 0),
        [(answer(MemOp::MemData, 0), Some(0))]
    );
    assert_eq!(bench.mem(9, MemOp::MemWr, AT, 1), [(answer(MemOp::Cmp, 9), None)]);
    assert_eq!(bench.mem(9, MemOp::Cmp, AT, 1), [], "nobody answers an answer");
    assert_eq!(bench.mld.counts().0.unknown_ld, 3);
    // A reset of one LD ends what it decodes, and no other's.
    let reset = PbrVdm { op: VdmOp::AssertReset, seq_len: 0, cmd_seq: 0, seq_num: 0, payload: &[] };
    assert_eq!(bench.send(Some(0), &reset.repr()), []);
    assert_eq!(bench.mem(0, MemOp::MemRd, AT + 64, 0), nothing(0));
    assert_eq!(bench.mem(2, MemOp::MemRd, AT + 64, 0), [(answer(MemOp::MemData, 2), Some(0xA2))]);
}

/// Loads and stores of an LD wait for its turn as its TLPs do, and another's are served as before.
#[test]
fn cxl_mem_of_an_ld_keeps_to_its_limit() {
    use weft_parsers::cci::ld::LdFractions;

    const AT: u64 = 1 << 40;
    let mut bench = Bench::new();
    bench.step();
    for ld in [0, 1] {
        decode_hdm(&mut bench.lds[ld], AT);
    }
    let limit = LdFractions { start: 0, fractions: List::of(&[1]) };
    assert_eq!(bench.manage(&Request::SetLdLimit(limit)).0, ReturnCode::Success);
    for tag in 0..1_000 {
        let head = MemHead { addr: Hpa(AT), ..MemHead::new(MemOp::MemRd, tag) };
        bench
            .switch
            .outbox()
            .send_mem(None, &MemMessage { head, data: None, enables: None })
            .unwrap();
    }
    for _ in 0..40 {
        bench.step();
    }
    let first = core::mem::take(&mut bench.lines);
    assert!((1..900).contains(&first.len()), "bursts of 16 KiB, then its limit: {}", first.len());
    let last = first.last().map(|(head, _)| head.load);
    assert_eq!(last, Some(DevLoad::SevereOverload), "and it is told");
    assert!(bench.mld.counts().0.waiting > 0);
    let other = bench.mem(1, MemOp::MemRd, AT, 0);
    assert!(other.iter().any(|(head, _)| head.ld == 1), "it does not wait: {other:?}");
}
