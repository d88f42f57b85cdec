//! Hosts, devices and HBR switches of one process, joined by pipes.
//!
//! [`Net`] owns them; [`Net::step`] lets 100 ns pass and polls each once.
//!
//! Units: bytes, nanoseconds.
#![expect(
    clippy::redundant_pub_crate,
    reason = "shared by several tests, of this crate and of weft-pbr-switch"
)]
#![allow(dead_code, clippy::allow_attributes, reason = "not every test uses all of it")]

use weft_cxl::cache::home::HomeSpec;
use weft_cxl::cxl_device::{CxlDevice, DeviceConfig, Event as DeviceEvent, FunctionConfig};
use weft_cxl::cxl_host::{CxlHost, Event, Exports, HostConfig, HostMemory};
use weft_cxl::gfd::memory::Memory;
use weft_cxl::hbr::{HbrConfig, HbrSwitch};
use weft_cxl::pci::component::PRIMARY;
use weft_cxl::pci::component::hdm::regs;
use weft_cxl::pci::cxl::device::{CONTROL, CONTROL_MEM};
use weft_cxl::pci::express::LnSystem;
use weft_cxl::pci::function::{BarKind, BarSpec, LnrSpec};
use weft_cxl::pci::regs::{dvsec, ext};
use weft_cxl::pci::{
    BridgeSpec, ByteEnables, FunctionSpec, HostSpec, Identity, Link, PortKind, Reg, SlotSpec,
};
use weft_cxl::requester::{Done, Failure, OpId};
use weft_cxl::tlp_end::{Carries, EndConfig};
use weft_dataplane::config::TlpConfig;
use weft_dataplane::pool::{Bufs, Pool};
use weft_dataplane::port::Port;
use weft_dataplane::port::pipe::{Pipe, PipeConfig, pipe};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::classes::PriMap;
use weft_parsers::MacAddr;
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::Mode;

/// Longest frame of a link.
pub(crate) const FRAME_LEN_MAX: usize = 4_400;
/// Where host memory begins, and how much it is.
pub(crate) const RAM: u64 = 0x10_0000;
pub(crate) const RAM_LEN: u64 = 64 << 20;

/// Where a port's other end is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Host(usize),
    Device(usize),
    Switch(usize, usize),
}

/// All that hangs together, and the ports that are still free.
pub(crate) struct Net {
    pub now: Instant,
    pub bufs: Bufs,
    pub hosts: Vec<(CxlHost, Option<Pipe>)>,
    pub devices: Vec<(CxlDevice, Option<Pipe>)>,
    pub switches: Vec<(HbrSwitch, Vec<Option<Pipe>>)>,
    macs: u8,
}

pub(crate) fn end(mac: u8, mode: Mode, payload_max: usize) -> EndConfig {
    EndConfig {
        mac: MacAddr([2, 0, 0, 0, 0, mac]),
        carries: Carries::Hbr(mode),
        tlp: TlpConfig::for_pris(8),
        classes: PriMap::eight(),
        payload_max,
    }
}

pub(crate) fn identity(device: u16) -> Identity {
    Identity { vendor: 0x1E98, device, revision: 1, class: 0x05_02_10, subsystem: (0x1E98, 0) }
}

pub(crate) fn host_config(mode: Mode) -> HostConfig {
    HostConfig {
        end: end(1, mode, 256),
        spec: HostSpec { retry_ns: 1_000, ..HostSpec::default() },
        root: BridgeSpec {
            identity: identity(0x0100),
            kind: PortKind::Root,
            port: 0,
            link: Link::default(),
            slot: Some(SlotSpec { number: 1, surprise: true, ..SlotSpec::default() }),
            serial: None,
            multi_function: false,
            ln: LnSystem::Cls64,
        },
        read_max: 512,
        uio_max: 512,
        in_flight_max: 64,
        timeout: Span::from_ns(50_000),
        uio_last_first: false,
        cache_lines: 0,
        home: HomeSpec { lines: 1_024, answer_max: Span::from_ms(1), secret: 1 },
        gim: false,
        lnc: None,
        hot_plug: true,
    }
}

/// A device with 1 MiB in BAR 0 (64 bits), I/O in BAR 2, and 64 KiB in BAR 3.
pub(crate) fn function(device: u16) -> FunctionConfig {
    let mut spec = FunctionSpec { identity: identity(device), ..FunctionSpec::default() };
    spec.bars[0] = Some(BarSpec { kind: BarKind::Mem64 { prefetch: true }, size: 1 << 20 });
    spec.bars[2] = Some(BarSpec { kind: BarKind::Io, size: 64 });
    spec.bars[3] = Some(BarSpec { kind: BarKind::Mem32 { prefetch: false }, size: 1 << 16 });
    spec.serial = Some(u64::from(device) << 32 | 1);
    spec.lnr = Some(LnrSpec { cls64: true, cls128: false, registrations: 4 });
    FunctionConfig { spec, ..FunctionConfig::default() }
}

/// As the software of a host does: the memory of function 0 is at `base`, and on.
pub(crate) fn decode_hdm(device: &mut CxlDevice, base: u64) {
    let bytes = device.hdm(0).unwrap().size();
    let hdm = PRIMARY + 0x10;
    let component = device.component_mut(0).unwrap();
    let mut set = |at: u16, bytes: &[u8]| component.write(hdm + u64::from(at), bytes);
    set(regs::CONTROL, &regs::CONTROL_ENABLE.to_le_bytes());
    set(regs::decoder(0) + regs::BASE, &base.to_le_bytes());
    set(regs::decoder(0) + regs::SIZE, &bytes.to_le_bytes());
    set(regs::decoder(0) + regs::DECODER, &(regs::COMMIT | regs::UIO).to_le_bytes());
    let space = device.function(0).unwrap().space();
    let is_it = |at: &u16| space.get16(*at) == ext::DVSEC && space.get16(at + dvsec::HEADER2) == 0;
    let next = |at: &u16| Some(space.get16(at + 2) >> 4).filter(|at| *at != 0);
    let at = core::iter::successors(Some(0x100), next).find(is_it).unwrap();
    let reg = Reg::at(at + CONTROL);
    device.manage_config(0, reg, Some((u32::from(CONTROL_MEM), ByteEnables::ALL))).unwrap();
}

pub(crate) fn device_config(mode: Mode, functions: Vec<FunctionConfig>) -> DeviceConfig {
    DeviceConfig {
        end: end(2, mode, 256),
        functions,
        uio_max: 512,
        in_flight_max: 32,
        timeout: Span::from_ns(50_000),
        uio_last_first: false,
        gim: false,
        busy: 0,
    }
}

pub(crate) fn memory() -> HostMemory {
    let mut memory = HostMemory::default();
    memory.add(Hpa(RAM), Memory::anonymous(RAM_LEN)).unwrap();
    memory
}

/// Bytes that differ from each other.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = weft_base::rng::Rng::new(seed);
    (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect()
}

impl Net {
    pub(crate) fn new() -> Self {
        Self {
            now: Instant::ZERO,
            bufs: Bufs::new(Pool::in_memory(8_192, FRAME_LEN_MAX).unwrap(), 64, 0),
            hosts: Vec::new(),
            devices: Vec::new(),
            switches: Vec::new(),
            macs: 0,
        }
    }

    fn mac(&mut self) -> MacAddr {
        self.macs += 1;
        MacAddr([2, 0, 0, 0, 1, self.macs])
    }

    pub(crate) fn host(&mut self, mut config: HostConfig) -> Place {
        config.end.mac = self.mac();
        self.hosts.push((CxlHost::new(config, memory()).unwrap(), None));
        Place::Host(self.hosts.len() - 1)
    }

    pub(crate) fn device(&mut self, mut config: DeviceConfig) -> Place {
        config.end.mac = self.mac();
        self.devices.push((CxlDevice::new(config).unwrap(), None));
        Place::Device(self.devices.len() - 1)
    }

    /// A switch with links of these modes, the upstream one first; its number.
    pub(crate) fn switch(&mut self, modes: &[Mode], surprise: bool) -> usize {
        let ends = modes.iter().map(|&mode| EndConfig { mac: self.mac(), ..end(0, mode, 256) });
        let ends = ends.collect::<Vec<_>>();
        let slot_first = 16 * u16::try_from(self.switches.len() + 1).unwrap();
        let config = HbrConfig { identity: identity(0x0200), ends, slot_first, surprise };
        let ports = modes.iter().map(|_| None).collect();
        self.switches.push((HbrSwitch::new(config).unwrap(), ports));
        self.switches.len() - 1
    }

    pub(crate) fn pipe(&mut self) -> (Pipe, Pipe) {
        let (mut a, mut b) = pipe(PipeConfig {
            names: ["a".to_owned(), "b".to_owned()],
            depth: 256,
            rate: LinkRate::gbps(100),
            frame_len_max: FRAME_LEN_MAX,
            wakes_reader: false,
        })
        .unwrap();
        a.start(&mut self.bufs).unwrap();
        b.start(&mut self.bufs).unwrap();
        (a, b)
    }

    fn put(&mut self, place: Place, port: Pipe) {
        match place {
            Place::Host(at) => self.hosts[at].1 = Some(port),
            Place::Device(at) => self.devices[at].1 = Some(port),
            Place::Switch(at, number) => self.switches[at].1[number] = Some(port),
        }
    }

    pub(crate) fn join(&mut self, a: Place, b: Place) {
        let (one, two) = self.pipe();
        self.put(a, one);
        self.put(b, two);
    }

    /// Pulls the cable at `place` out.
    pub(crate) fn part(&mut self, place: Place) {
        let port = match place {
            Place::Host(at) => self.hosts[at].1.as_ref(),
            Place::Device(at) => self.devices[at].1.as_ref(),
            Place::Switch(at, number) => self.switches[at].1[number].as_ref(),
        };
        port.unwrap().set_link(false);
    }

    pub(crate) fn step(&mut self) {
        self.step_with(&[]);
    }

    pub(crate) fn step_with(&mut self, exports: &[&dyn Exports]) {
        self.now += Span::from_ns(100);
        let (now, bufs) = (self.now, &mut self.bufs);
        for (at, (host, port)) in self.hosts.iter_mut().enumerate() {
            if let Some(port) = port {
                let exports = exports.get(at).copied().unwrap_or(&());
                host.poll_with(now, port, bufs, exports).unwrap();
            }
        }
        for (device, port) in &mut self.devices {
            if let Some(port) = port {
                device.poll(now, port, bufs).unwrap();
            }
        }
        let mut ends: Vec<Pipe> = Vec::new();
        for (switch, ports) in &mut self.switches {
            for port in ports.iter_mut().filter(|port| port.is_none()) {
                // a free port: its other end is nowhere
                let names = ["free".to_owned(), "nowhere".to_owned()];
                let rate = LinkRate::gbps(100);
                let (depth, frame_len_max, wakes_reader) = (1, FRAME_LEN_MAX, false);
                let (free, nowhere) =
                    pipe(PipeConfig { names, depth, rate, frame_len_max, wakes_reader }).unwrap();
                free.set_link(false);
                ends.push(nowhere);
                *port = Some(free);
            }
            let mut ports: Vec<&mut dyn Port> =
                ports.iter_mut().flatten().map(|port| port as &mut dyn Port).collect();
            switch.poll(now, &mut ports, bufs).unwrap();
        }
    }

    pub(crate) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Steps until host `at` tells of something that `pick` takes.
    pub(crate) fn until<T>(&mut self, at: usize, pick: impl Fn(Event) -> Option<T>) -> T {
        for _ in 0..200_000 {
            while let Some(event) = self.hosts[at].0.next_event() {
                if let Some(found) = pick(event) {
                    return found;
                }
            }
            self.step();
        }
        panic!("it did not happen");
    }

    pub(crate) fn enumerate(&mut self, at: usize) {
        self.step();
        while self.hosts[at].0.next_event().is_some() {}
        self.hosts[at].0.enumerate();
        self.until(at, |event| match event {
            Event::Enumerated(result) => Some(result),
            _ => None,
        })
        .unwrap();
    }

    pub(crate) fn wait(&mut self, at: usize, op: OpId) -> Result<Vec<u8>, Failure> {
        self.until(at, |event| match event {
            Event::Done(done) if done.op == op => Some(done),
            _ => None,
        })
        .result
    }

    pub(crate) fn read(&mut self, at: usize, addr: u64, len: usize) -> Result<Vec<u8>, Failure> {
        let op = self.hosts[at].0.read(Hpa(addr), len);
        self.wait(at, op)
    }

    pub(crate) fn device_until<T>(
        &mut self,
        at: usize,
        pick: impl Fn(DeviceEvent) -> Option<T>,
    ) -> T {
        for _ in 0..200_000 {
            while let Some(event) = self.devices[at].0.next_event() {
                if let Some(found) = pick(event) {
                    return found;
                }
            }
            self.step();
        }
        panic!("it did not happen");
    }

    pub(crate) fn device_wait(&mut self, at: usize, op: OpId) -> Done {
        self.device_until(at, |event| match event {
            DeviceEvent::Done { done, .. } if done.op == op => Some(done),
            _ => None,
        })
    }

    /// Where a BAR of the device with this Device ID was put.
    pub(crate) fn bar(&self, at: usize, device: u16, bar: u8) -> u64 {
        let tree = self.hosts[at].0.tree().unwrap();
        let node = tree.iter().find(|node| node.device == device).unwrap();
        node.bars.iter().find(|it| it.index == bar).unwrap().address.unwrap()
    }

    /// Chunks that are not given back.
    pub(crate) fn used(&self) -> u64 {
        self.bufs.used().get()
    }
}
