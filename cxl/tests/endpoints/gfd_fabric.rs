//! Hosts, switches and G-FAM devices in one thread: interleaved memory, and each level of protection by itself.
//!
//! [`Fabric`]: two hosts at a root switch, leaf switches with the devices below it, pipes between; all are
//! stepped in turn until nothing moves.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "GFD (endpoint)"; docs/spec/wire-formats.md §5.1, §5.2.

use std::sync::Arc;

use weft_cxl::gfd::capacity::{Choice, NO_TAG};
use weft_cxl::gfd::dmp::{Dmp, Media, Region};
use weft_cxl::gfd::{Config, Decoder, Gfd, Memory};
use weft_cxl::gfd_end::{Device, GfdEnd, GfdEndConfig};
use weft_cxl::tlp_end::{Carries, EndConfig, Received, TlpEnd};
use weft_dataplane::config::{LiveSizes, PortRole, SwitchConfig, TlpConfig, TlpLink};
use weft_dataplane::pbr::{Access, EdgePort, Fast, Ldst, Prefixes, Refusal, Role, Tables};
use weft_dataplane::pipeline::{Built, Lane, Ledger, build};
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::{Instant, LinkRate};
use weft_dataplane::trace::NoTrace;
use weft_dataplane::types::PortId;
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::fabric::{
    Bdf, Dpa, DrtEntry, FastEntry, Hpa, Interleave, LdstEntry, Pid, Target,
};
use weft_parsers::tlp::{At, Body, Kind, Mode, Status, Tlp, TlpRepr, VendPrefixL0};

const FRAME_LEN_MAX: usize = 1_518;
const PAYLOAD_MAX: usize = 512;
const RATE: LinkRate = LinkRate::gbps(100);
/// Devices at one leaf.
const LEAF: usize = 52;
const HOSTS: [u16; 2] = [0x0A1, 0x0A2];
const FIRST_GFD: u16 = 0x400;
/// Where the fabric's window begins, segments of 64 GiB: interleaved, direct to the first device, GIM, LD-FAM.
const BASE: u64 = 1 << 40;
const SEGMENT: u64 = 64 << 30;
const DIRECT: u64 = BASE + SEGMENT;
const GIM: u64 = BASE + 2 * SEGMENT;
const NOWHERE: u64 = BASE + 3 * SEGMENT;
const LDFAM: u64 = 1 << 42;
const MEMORY: u64 = 256 << 20;
const BLOCK: u64 = 16 << 20;
/// Requests on their way.
const WINDOW: usize = 64;

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn gfd_pid(k: usize) -> Pid {
    pid(FIRST_GFD + u16::try_from(k).unwrap())
}

fn port(number: usize) -> PortId {
    PortId::new(number).unwrap()
}

/// A switch and its ends of the pipes.
struct Switch {
    lane: Lane,
    ports: Vec<Box<dyn Port>>,
}

/// A host's root port, and what came there.
struct Host {
    end: TlpEnd,
    port: Pipe,
    came: Vec<Vec<u8>>,
}

struct Fabric {
    switches: Vec<Switch>,
    hosts: Vec<Host>,
    gfds: Vec<(GfdEnd, Pipe)>,
    bufs: Bufs,
    now: Instant,
    /// Bytes of each device.
    memory: u64,
}

fn end(last: usize, carries: Carries) -> EndConfig {
    let [.., high, low] = last.to_be_bytes();
    EndConfig {
        mac: MacAddr([2, 0, 0, 1, high, low]),
        carries,
        tlp: TlpConfig::for_pris(8),
        classes: PriMap::eight(),
        payload_max: PAYLOAD_MAX,
    }
}

fn wire(bufs: &mut Bufs) -> (Pipe, Pipe) {
    let names = ["a".to_owned(), "b".to_owned()];
    let config = PipeConfig {
        names,
        depth: 256,
        rate: RATE,
        frame_len_max: FRAME_LEN_MAX,
        wakes_reader: false,
    };
    let (mut a, mut b) = pipe(config).unwrap();
    a.start(bufs).unwrap();
    b.start(bufs).unwrap();
    (a, b)
}

/// A switch with ports of these roles, and empty tables.
fn switch(pool: &Arc<Pool>, roles: &[PortRole]) -> Lane {
    let mut config = SwitchConfig::live(&LiveSizes {
        names: (0..roles.len()).map(|n| format!("p{n}")).collect(),
        rate: RATE,
        pris: 8,
        cells: 4_096,
        cell_bytes: 1_728,
        headroom_cells: 4,
        frame_len_max: FRAME_LEN_MAX,
    });
    for (n, (config, role)) in config.ports.iter_mut().zip(roles).enumerate() {
        config.role = *role;
        config.parse.port_mac = MacAddr([2, 0, 0, 0, 0, u8::try_from(n).unwrap()]);
    }
    let all = vec![(0..roles.len()).map(port).collect::<Vec<_>>()];
    let Built { mut lanes, .. } = build(config, pool, &all).unwrap();
    lanes.remove(0)
}

fn edge(role: Role, pid: Pid) -> EdgePort {
    EdgePort::new(role, pid, Fast::new(16, 4_096).unwrap(), Ldst::new(16, 16).unwrap())
}

/// The edge of a host that may reach `count` devices, and the second host.
fn host_edge(own: Pid, count: usize) -> EdgePort {
    let mut edge = edge(Role::Usp, own);
    let mut access = Access::default();
    for k in 0..count {
        access.gmv.allow(gfd_pid(k)).unwrap();
    }
    access.vtv.allow(pid(HOSTS[1])).unwrap();
    access.lav.allow(pid(HOSTS[1])).unwrap();
    edge.set_access(access.into());
    edge.configure_fast(0, Hpa(BASE), Hpa(BASE + 8 * SEGMENT)).unwrap();
    edge.configure_ldst(0, Hpa(LDFAM), Hpa(LDFAM + 2 * SEGMENT)).unwrap();
    let (interleave, target) = (Interleave::NONE, Target::Direct(gfd_pid(0)));
    let gfam = FastEntry { gim: false, interleave, target };
    let target = Target::Direct(pid(HOSTS[1]));
    let gim = FastEntry { gim: true, interleave, target };
    edge.set_fast(1, &[Some(gfam), Some(gim)]).unwrap();
    edge.set_ldst(0, &[Some(LdstEntry { segment: false, interleave, target })]).unwrap();
    edge
}

/// Tables of a leaf with `here` devices from number `first` on, and the root behind port 0.
fn leaf_tables(lane: &Lane, first: usize, here: usize) -> Tables {
    let mut tables = Tables::new(lane.core().snapshot.load().tlp_ports, 1).unwrap();
    for n in 0..here {
        let own = gfd_pid(first + n);
        tables.set_edge(port(n + 1), Some(edge(Role::Gfd, own))).unwrap();
        let to = DrtEntry::Port(u8::try_from(n + 1).unwrap());
        tables.set_drt(own.index(), &[to]).unwrap();
    }
    for host in HOSTS {
        tables.set_drt(usize::from(host), &[DrtEntry::Port(0)]).unwrap();
    }
    tables
}

/// All memory is group 0's but the second block; both hosts may use groups 0, and want to be told.
fn device(k: usize, memory: u64) -> GfdEnd {
    let mut gfd = Gfd::new(Config::full(gfd_pid(k), RATE), Memory::anonymous(memory));
    let (base, len, block, media) = (Dpa(0), memory, BLOCK, Media::default());
    gfd.set_dmps(&[Dmp { index: 0, base, decode_len: len, len, block, media }]).unwrap();
    gfd.set_region(Region { id: 0, block, sanitize: false, base, decode_len: len, len }).unwrap();
    for (group, blocks) in [(0, 1), (1, 1), (0, memory / BLOCK - 3)] {
        let choice = Choice::Contiguous { region: 0, len: blocks * BLOCK };
        gfd.add_capacity(Instant::ZERO, group, NO_TAG, choice, 0).unwrap();
    }
    while gfd.events().pop_fm().is_some() {}
    for host in HOSTS {
        gfd.set_sat(&[(pid(host), 1 | 1 << 31)]).unwrap();
    }
    GfdEnd::new(Device::new(gfd, k as u64), GfdEndConfig::default(), end(k, Carries::Pbr))
}

impl Fabric {
    /// Two hosts and `count` devices, at a root and as many leaves as it takes.
    fn new(count: usize) -> Self {
        Self::of(count, MEMORY)
    }

    /// As [`Fabric::new`], with so much memory in each device.
    fn of(count: usize, memory: u64) -> Self {
        let leaves = count.div_ceil(LEAF).max(2);
        let per_leaf = count.div_ceil(leaves);
        let pool = Pool::in_memory(65_536, FRAME_LEN_MAX).unwrap();
        let mut bufs = Bufs::new(pool.clone(), 64, 0);
        let link = TlpLink::default();
        let (mut hosts, mut root_ports) = (Vec::new(), Vec::<Box<dyn Port>>::new());
        for n in 0..HOSTS.len() {
            let (near, far) = wire(&mut bufs);
            root_ports.push(Box::new(near));
            let end = TlpEnd::new(end(0x1000 + n, Carries::Hbr(Mode::Flit)));
            hosts.push(Host { end, port: far, came: Vec::new() });
        }
        let roles: Vec<PortRole> = (0..HOSTS.len())
            .map(|_| PortRole::Usp(link))
            .chain((0..leaves).map(|_| PortRole::Fport(link)))
            .collect();
        let mut switches = vec![Switch { lane: switch(&pool, &roles), ports: Vec::new() }];
        let mut gfds = Vec::new();
        for leaf in 0..leaves {
            let here = per_leaf.min(count - leaf * per_leaf);
            let (up, down) = wire(&mut bufs);
            root_ports.push(Box::new(up));
            let mut ports: Vec<Box<dyn Port>> = vec![Box::new(down)];
            for _ in 0..here {
                let (near, far) = wire(&mut bufs);
                ports.push(Box::new(near));
                gfds.push((device(gfds.len(), memory), far));
            }
            let roles: Vec<PortRole> = core::iter::once(PortRole::Fport(link))
                .chain((0..here).map(|_| PortRole::Dsp(link)))
                .collect();
            let lane = switch(&pool, &roles);
            let tables = leaf_tables(&lane, leaf * per_leaf, here);
            lane.core().tables.store(Arc::new(tables));
            switches.push(Switch { lane, ports });
        }
        switches[0].ports = root_ports;
        let mut fabric = Self { switches, hosts, gfds, bufs, now: Instant::ZERO, memory };
        fabric.root(|tables| {
            for (n, host) in HOSTS.into_iter().enumerate() {
                tables.set_edge(port(n), Some(host_edge(pid(host), count))).unwrap();
                let to = DrtEntry::Port(u8::try_from(n).unwrap());
                tables.set_drt(usize::from(host), &[to]).unwrap();
            }
            for k in 0..count {
                let to = DrtEntry::Port(u8::try_from(HOSTS.len() + k / per_leaf).unwrap());
                tables.set_drt(gfd_pid(k).index(), &[to]).unwrap();
            }
        });
        fabric.settle();
        for host in &mut fabric.hosts {
            host.came.clear();
        }
        fabric
    }

    /// Changes the tables of the root.
    fn root(&mut self, change: impl FnOnce(&mut Tables)) {
        let core = self.switches[0].lane.core().clone();
        let mut tables = if core.tables.load().edge(port(0)).is_some() {
            (**core.tables.load()).clone()
        } else {
            Tables::new(core.snapshot.load().tlp_ports, 1).unwrap()
        };
        change(&mut tables);
        core.tables.store(Arc::new(tables));
    }

    /// Changes the edge of the first host.
    fn edge(&mut self, change: impl FnOnce(&mut EdgePort)) {
        self.root(|tables| {
            let mut edge = tables.edge(port(0)).unwrap().clone();
            change(&mut edge);
            tables.set_edge(port(0), Some(edge)).unwrap();
        });
    }

    /// What the first host may reach, changed.
    fn access(&mut self, change: impl FnOnce(&mut Access)) {
        self.edge(|edge| {
            let mut access = edge.access().clone();
            change(&mut access);
            edge.set_access(access.into());
        });
    }

    /// One turn of all; whether anything moved.
    fn turn(&mut self) -> bool {
        self.now = Instant::from_ns(self.now.as_ns() + 100);
        let now = self.now;
        let mut moved = false;
        for Switch { lane, ports } in &mut self.switches {
            lane.step(now, ports, &mut NoTrace);
        }
        for (gfd, port) in &mut self.gfds {
            moved |= gfd.poll(now, port, &mut self.bufs).unwrap().frames > 0;
        }
        for Host { end, port, came } in &mut self.hosts {
            let progress = end.poll(now, port, &mut self.bufs, &mut |frame, _| {
                let Received::Tlp(None, tlp) = frame.content else { panic!("{frame:?}") };
                came.push(tlp.bytes().to_vec());
            });
            moved |= progress.unwrap().frames > 0;
        }
        moved
    }

    fn settle(&mut self) {
        let mut quiet = 0;
        while quiet < 8 {
            quiet = if self.turn() { 0 } else { quiet + 1 };
        }
    }

    /// Deals `DIRECT`'s neighbour, the first segment, out over all devices; both hosts' decoders go with it.
    fn interleave(&mut self, granularity: u8) -> Interleave {
        let count = self.gfds.len();
        let ways = u8::try_from(count.trailing_zeros()).unwrap();
        let interleave = Interleave::from_codes(ways, granularity).unwrap();
        let pids: Vec<Pid> = (0..count).map(gfd_pid).collect();
        self.root(|tables| {
            for n in 0..HOSTS.len() {
                let mut edge = tables.edge(port(n)).unwrap().clone();
                edge.set_fast_idt(0, &pids).unwrap();
                let target = Target::Interleaved(0);
                edge.set_fast(0, &[Some(FastEntry { gim: false, interleave, target })]).unwrap();
                tables.set_edge(port(n), Some(edge)).unwrap();
            }
        });
        for (k, (gfd, _)) in self.gfds.iter_mut().enumerate() {
            let decoder = Decoder {
                coherent: false,
                hpa_base: Hpa(BASE),
                dpa_base: Dpa(0),
                dpa_len: self.memory,
                interleave,
                way: u8::try_from(k).unwrap(),
            };
            for host in HOSTS {
                gfd.gfd_mut().set_decoders(pid(host), 0, &[Some(decoder)]).unwrap();
            }
        }
        interleave
    }

    /// Sends what `next` gives, a window at a time, and hands each completion to `each`; until all is answered.
    fn train(
        &mut self,
        host: usize,
        requests: &[(u64, usize)],
        data: Option<&[u8]>,
        mut each: impl FnMut(usize, &[u8]),
    ) {
        let mut slots: [Option<(usize, usize)>; WINDOW] = [None; WINDOW]; // request, bytes that are still to come
        let starts: Vec<usize> = requests
            .iter()
            .scan(0, |sum, (_, len)| Some(core::mem::replace(sum, *sum + len)))
            .collect();
        let (mut next, mut done, mut idle) = (0, 0, 0);
        while done < requests.len() {
            for (tag, slot) in slots.iter_mut().enumerate() {
                if slot.is_some() || next == requests.len() {
                    continue;
                }
                let (at, len) = requests[next];
                let tag = u16::try_from(tag).unwrap();
                let payload = data.map_or(&[][..], |data| &data[starts[next]..starts[next] + len]);
                let kind = if data.is_some() { Kind::UioWrite } else { Kind::UioRead };
                let request = TlpRepr { tag, payload, ..request(kind, at, len) };
                self.hosts[host].end.outbox().send(None, &request).unwrap();
                *slot = Some((next, len));
                next += 1;
            }
            idle = if self.turn() { 0 } else { idle + 1 };
            assert!(idle < 1_000, "nothing moves, {done} of {} done", requests.len());
            for bytes in core::mem::take(&mut self.hosts[host].came) {
                let tlp = Tlp::parse(Mode::Flit, &bytes).unwrap();
                assert_eq!(tlp.status(), Some(Status::Success), "{tlp:?}");
                let slot = &mut slots[usize::from(tlp.tag())];
                let (number, left) = slot.unwrap();
                let (_, dw) = tlp.uio_completion().unwrap();
                each(starts[number] + usize::from(dw) * 4, tlp.payload());
                let came = if data.is_some() { left } else { tlp.payload().len() };
                *slot = (left > came).then_some((number, left - came));
                done += usize::from(left == came);
            }
        }
    }

    /// Books of all switches are even, and nothing waits.
    fn check(&self) {
        let books = self.switches.iter().map(|switch| Ledger::read(switch.lane.core()));
        for (n, ledger) in books.enumerate() {
            assert_eq!((ledger.imbalance(), ledger.queued), (0, 0), "switch {n}");
        }
    }

    /// Sends one request; the completions that came back, without notifications.
    fn ask(&mut self, request: &TlpRepr<'_>) -> Vec<Vec<u8>> {
        self.hosts[0].end.outbox().send(None, request).unwrap();
        self.settle();
        core::mem::take(&mut self.hosts[0].came)
    }

    fn refused(&self, refusal: Refusal) -> u64 {
        Ledger::read(self.switches[0].lane.core()).port[0].refused[refusal.index()]
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        Ledger::read(self.switches[0].lane.core()).port[0].drops[reason as usize]
    }

    /// Writes carried out, by device.
    fn writes(&self) -> Vec<u64> {
        self.gfds.iter().map(|(gfd, _)| gfd.counts().0.writes).collect()
    }
}

fn request(kind: Kind, at: u64, len: usize) -> TlpRepr<'static> {
    let length_dw = u16::try_from(len / 4).unwrap();
    let body = Body::Address {
        addr: Hpa(at),
        wide: true,
        at: At::default(),
        no_write: false,
        length_dw,
        first_be: 15,
        last_be: if length_dw > 1 { 15 } else { 0 },
    };
    TlpRepr::new(Mode::Flit, kind, Bdf::new(1, 0, 0), 5, body)
}

/// `len` bytes at `at`, in requests of at most 512 that cross no multiple of `unit`.
fn cut(at: u64, len: usize, unit: usize) -> Vec<(u64, usize)> {
    let (mut requests, mut done) = (Vec::new(), 0);
    let unit = unit.min(PAYLOAD_MAX);
    while done < len {
        let from = at + done as u64;
        let room = unit - usize::try_from(from).unwrap() % unit;
        requests.push((from, room.min(len - done)));
        done += room.min(len - done);
    }
    requests
}

/// One byte of the pattern of a run, so that no two places and runs are alike by chance.
fn byte(seed: u64, n: u64) -> u8 {
    let mixed = (n / 4 + (seed << 40)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed.to_be_bytes()[usize::try_from(n % 4).unwrap()]
}

/// Writes by one host and reads by the other, `stripes` turns of each device, from within the first turn on.
fn written_by_one_and_read_by_the_other(count: usize, stripes: usize, granularities: &[u8]) {
    let mut fabric = Fabric::new(count);
    for &granularity in granularities {
        let unit = 256 << granularity;
        write_and_read(&mut fabric, granularity, BASE + 64, unit * count * stripes);
    }
    fabric.check();
}

/// Writes `len` bytes at `at` by one host, and reads them by the other.
fn write_and_read(fabric: &mut Fabric, granularity: u8, at: u64, len: usize) {
    let count = fabric.gfds.len();
    let interleave = fabric.interleave(granularity);
    let unit = usize::try_from(interleave.granularity()).unwrap();
    let data: Vec<u8> = (0..len as u64).map(|n| byte(granularity.into(), n)).collect();
    let requests = cut(at, len, unit);
    let mut want = fabric.writes();
    for (at, _) in &requests {
        want[usize::try_from((at >> (8 + granularity)) % count as u64).unwrap()] += 1;
    }
    fabric.train(0, &requests, Some(&data), |_, _| {});
    assert_eq!(fabric.writes(), want, "each device has its turns, granularity {granularity}");
    let mut got = vec![0; len];
    fabric.train(1, &requests, None, |at, bytes| {
        got[at..at + bytes.len()].copy_from_slice(bytes);
    });
    assert!(got == data, "{count} ways, granularity {granularity}: not what was written");
}

const ALL: [u8; 7] = [0, 1, 2, 3, 4, 5, 6];

#[test]
fn two_ways_of_every_granularity() {
    written_by_one_and_read_by_the_other(2, 5, &ALL);
}

#[test]
fn four_ways_of_every_granularity() {
    written_by_one_and_read_by_the_other(4, 5, &ALL);
}

/// 16 MiB and more with every granularity, each in a fabric of its own.
#[test]
fn sixteen_mib_over_256_devices_of_every_granularity() {
    for granularity in ALL {
        let unit = 256 << granularity;
        written_by_one_and_read_by_the_other(256, (16 << 20) / 256 / unit + 1, &[granularity]);
    }
}

/// 1 GiB over four ways of 4 KiB, behind the block that is another group's.
#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_of_one_gib_over_four_ways() {
    const GIB: usize = 1 << 30;
    let mut fabric = Fabric::of(4, 2 * MEMORY);
    write_and_read(&mut fabric, 4, BASE + 4 * 2 * BLOCK, GIB);
    fabric.check();
    println!("1 GiB written by one host, read by the other; writes {:?}", fabric.writes());
}

/// A fabric of four devices where one byte of each is written, to be asked for what is refused.
fn guarded() -> Fabric {
    let mut fabric = Fabric::new(4);
    fabric.interleave(0);
    let first = Decoder {
        coherent: false,
        hpa_base: Hpa(DIRECT),
        dpa_base: Dpa(0),
        dpa_len: 64 << 20,
        interleave: Interleave::NONE,
        way: 0,
    };
    fabric.gfds[0].0.gfd_mut().set_decoders(pid(HOSTS[0]), 1, &[Some(first)]).unwrap();
    fabric
}

/// What is to come of a request that one level refuses.
enum Told {
    /// The edge counts this, and no device hears of it.
    Edge(Refusal),
    /// The first device tells of this type and trigger.
    Device(u8, u8),
}

/// A name, what is changed, the address of the requests, and what is to come of them.
type Level = (&'static str, fn(&mut Fabric), u64, Told);

const LEVELS: [Level; 8] = [
    ("no FAST entry", |_| {}, NOWHERE, Told::Edge(Refusal::NoFastEntry)),
    (
        "not in GMV",
        |fabric| fabric.access(|access| access.gmv.forbid(gfd_pid(0))),
        DIRECT,
        Told::Edge(Refusal::NotInGmv),
    ),
    (
        "an IDT entry not in GMV",
        |fabric| fabric.access(|access| access.gmv.forbid(gfd_pid(0))),
        BASE,
        Told::Edge(Refusal::NotInGmv),
    ),
    ("no decoder", |_| {}, DIRECT + (64 << 20), Told::Device(2, 1)),
    ("SAT", |_| {}, DIRECT + BLOCK, Told::Device(2, 8)),
    (
        "SAT of all groups",
        |fabric| {
            let gfd = fabric.gfds[0].0.gfd_mut();
            gfd.set_sat(&[(pid(HOSTS[0]), 1 << 31)]).unwrap();
        },
        DIRECT,
        Told::Device(2, 8),
    ),
    (
        "GIM not in VTV",
        |fabric| fabric.access(|access| access.vtv.forbid(pid(HOSTS[1]))),
        GIM,
        Told::Edge(Refusal::GimNotInVtv),
    ),
    (
        "LAV",
        |fabric| fabric.access(|access| access.lav.forbid(pid(HOSTS[1]))),
        LDFAM,
        Told::Edge(Refusal::LavClear),
    ),
];

/// Each level refuses by itself: UR to the host, one count or notification, and nothing written anywhere.
#[test]
fn every_level_of_protection_refuses_by_itself() {
    for (name, change, at, told) in LEVELS {
        for kind in [Kind::UioWrite, Kind::UioRead] {
            let mut fabric = guarded();
            let len = 64;
            let payload: &[u8] = if kind == Kind::UioWrite { &[0x77; 64] } else { &[] };
            let request = TlpRepr { payload, ..request(kind, at, len) };
            change(&mut fabric);
            let answers = fabric.ask(&request);
            assert_eq!(answers.len(), 1, "{name}");
            let answer = Tlp::parse(Mode::Flit, &answers[0]).unwrap();
            assert_eq!(
                (answer.status(), answer.tag()),
                (Some(Status::UnsupportedRequest), 5),
                "{name}"
            );
            assert!(answer.kind().is_uio_completion() && answer.payload().is_empty(), "{name}");
            let events: Vec<_> = core::iter::from_fn(|| fabric.gfds[0].0.pop_fm()).collect();
            match told {
                Told::Edge(refusal) => {
                    assert_eq!((fabric.refused(refusal), events.len()), (1, 0), "{name}");
                    let ledger = Ledger::read(fabric.switches[0].lane.core());
                    assert_eq!(ledger.port[0].answered, 1, "{name}");
                }
                Told::Device(event, trigger) => {
                    assert_eq!(events.len(), 1, "{name}");
                    assert_eq!((events[0][4], events[0][5]), (event, trigger), "{name}");
                    assert_eq!(events[0][6..8], HOSTS[0].to_le_bytes(), "{name}: RPID");
                    assert_eq!(events[0][0x10..0x18], at.to_le_bytes(), "{name}: HPA");
                    assert_eq!(fabric.gfds[0].0.counts().0.gam, 1, "{name}: its host is told");
                }
            }
            assert!(fabric.writes().iter().all(|&writes| writes == 0), "{name}");
        }
    }
}

/// The same requests with nothing changed go through, so that it is the change that refuses them.
#[test]
fn what_is_allowed_goes_through() {
    let mut fabric = guarded();
    for at in [BASE, BASE + 0x300, DIRECT, DIRECT + 2 * BLOCK] {
        let write = TlpRepr { payload: &[0x77; 64], ..request(Kind::UioWrite, at, 64) };
        let answers = fabric.ask(&write);
        let answer = Tlp::parse(Mode::Flit, &answers[0]).unwrap();
        assert_eq!(answer.status(), Some(Status::Success), "{at:#x}");
        let answers = fabric.ask(&request(Kind::UioRead, at, 64));
        assert_eq!(Tlp::parse(Mode::Flit, &answers[0]).unwrap().payload(), [0x77; 64], "{at:#x}");
    }
    // GIM and LD-FAM end at the other host, as requests with their address
    for at in [GIM, LDFAM] {
        fabric.edge(|edge| edge.prefixes = Prefixes::from_bits(3));
        fabric.root(|tables| {
            let mut edge = tables.edge(port(1)).unwrap().clone();
            edge.prefixes = Prefixes::from_bits(3);
            tables.set_edge(port(1), Some(edge)).unwrap();
        });
        assert_eq!(fabric.ask(&request(Kind::UioRead, at, 64)), Vec::<Vec<u8>>::new());
        let came = core::mem::take(&mut fabric.hosts[1].came);
        let request = Tlp::parse(Mode::Flit, &came[0]).unwrap();
        assert_eq!(request.addr(), Some(Hpa(at)));
        // PIF = 1 of GIM brings the source's PID; PIF = 0 brings none, though the port may
        let prefix = request.vend_prefix().map(VendPrefixL0::pid);
        assert_eq!(prefix, (at == GIM).then_some(pid(HOSTS[0])), "{at:#x}");
    }
}

/// A prefix where it is not enabled, or that names one not in VTV: UR to a request, nothing to a completion.
#[test]
fn prefixes_are_refused_where_they_may_not_be() {
    let vend_prefix = Some(VendPrefixL0::from_pid(pid(HOSTS[1])));
    let completion = TlpRepr::new(
        Mode::Flit,
        Kind::UioWriteCompletion,
        Bdf::new(1, 0, 0),
        5,
        Body::UioCompletion {
            completer: Bdf::new(2, 0, 0),
            completer_segment: None,
            status: Status::Success,
            dev_load: weft_parsers::tlp::DevLoad::Light,
            offset_dw: 0,
        },
    );
    for (bits, refusal) in [(0, Refusal::PrefixNotEnabled), (3, Refusal::PrefixNotInVtv)] {
        let mut fabric = guarded();
        fabric.edge(|edge| edge.prefixes = Prefixes::from_bits(bits));
        if refusal == Refusal::PrefixNotInVtv {
            fabric.access(|access| access.vtv.forbid(pid(HOSTS[1])));
        }
        let write =
            TlpRepr { vend_prefix, payload: &[1; 64], ..request(Kind::UioWrite, DIRECT, 64) };
        let answers = fabric.ask(&write);
        let answer = Tlp::parse(Mode::Flit, &answers[0]).unwrap();
        assert_eq!(answer.status(), Some(Status::UnsupportedRequest), "{refusal:?}");
        assert_eq!(fabric.refused(refusal), 1);
        assert_eq!(fabric.ask(&TlpRepr { vend_prefix, ..completion }), Vec::<Vec<u8>>::new());
        assert_eq!(fabric.dropped(DropReason::UnexpectedCompletion), 1, "{refusal:?}");
        assert!(fabric.hosts[1].came.is_empty() && fabric.writes().iter().all(|&n| n == 0));
    }
}

/// Posted writes that a level refuses are counted and gone, in the switch and in the device.
#[test]
fn posted_writes_are_counted_and_dropped() {
    let mut fabric = guarded();
    let write = |at| TlpRepr { payload: &[1; 64], ..request(Kind::MemWrite, at, 64) };
    assert_eq!(fabric.ask(&write(NOWHERE)), Vec::<Vec<u8>>::new());
    assert_eq!(fabric.refused(Refusal::NoFastEntry), 1);
    assert_eq!(fabric.dropped(DropReason::UnsupportedRequest), 1);
    assert_eq!(fabric.ask(&write(DIRECT + BLOCK)), Vec::<Vec<u8>>::new());
    assert_eq!(fabric.gfds[0].0.counts().0.refused_posted, 1);
    let event = fabric.gfds[0].0.pop_fm().unwrap();
    assert_eq!((event[4], event[5]), (2, 8));
    assert!(fabric.writes().iter().all(|&writes| writes == 0));
    assert_eq!(fabric.ask(&write(DIRECT)), Vec::<Vec<u8>>::new());
    assert_eq!(fabric.writes(), [1, 0, 0, 0]);
}
