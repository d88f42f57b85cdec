//! Two hosts with a device each, and a fabric with faults between them: the port and memory of these tests.
//! [`Fabric::step`] lets 100 ns pass: requests arrive, completions come back, engines are polled.
//!
//! Units: bytes; nanoseconds.
//! Source: docs/spec/wire-formats.md §3.6 (chunks in any order), §5.1 (segments).

use std::collections::BTreeMap;

use weft_base::rng::Rng;
use weft_dataplane::time::{Instant, Span};
use weft_parsers::fabric::{Hpa, Pid};

use super::*;
use crate::completer::Target;

/// First address of host memory in each host.
pub const HOST: u64 = 0x10_0000;
/// First address of device memory.
pub const DEVICE: u64 = 0x4000_0000;
/// Bytes of host memory, and of device memory.
pub const SIZE: u64 = 1 << 20;
/// Addresses by which requests reach the devices' memory, at either host: the devices' segments.
pub const FABRIC: [u64; 2] = [(1 << 40) + 2 * SEGMENT, (1 << 40) + 3 * SEGMENT];

/// Memory of a host and its device.
pub struct Ram {
    pub host: Vec<u8>,
    pub device: Vec<u8>,
    device_pid: Pid,
    /// An address that cannot be accessed.
    pub broken: Option<u64>,
}

impl Ram {
    fn part(addr: u64, len: u64) -> Option<(MemKind, usize)> {
        let within = |base: u64| {
            let offset = addr.checked_sub(base)?;
            (offset.checked_add(len)? <= SIZE).then(|| usize::try_from(offset).unwrap())
        };
        let host = within(HOST).map(|offset| (MemKind::Host, offset));
        let device = || within(DEVICE).map(|offset| (MemKind::Device, offset));
        let fabric = || FABRIC.into_iter().find_map(within).map(|offset| (MemKind::Fabric, offset));
        host.or_else(device).or_else(fabric)
    }

    /// The bytes at an address.
    pub fn at(&mut self, addr: u64, len: usize) -> Option<&mut [u8]> {
        let (kind, offset) = Self::part(addr, len as u64)?;
        let memory = match kind {
            MemKind::Host => &mut self.host,
            MemKind::Device => &mut self.device,
            MemKind::Fabric => return None, // only requests reach it
        };
        memory.get_mut(offset..offset + len)
    }
}

impl Memory for Ram {
    fn kind(&self, addr: u64, len: u64) -> Option<MemKind> {
        Self::part(addr, len).map(|(kind, _)| kind)
    }

    fn place(&self, addr: u64, _: u64) -> Option<Place> {
        let to = FABRIC.iter().position(|base| (*base..*base + SIZE).contains(&addr));
        if let Some(host) = to {
            return Some(Place { pid: device_pid(host), offset: addr - FABRIC[host] });
        }
        let on_fabric = addr < DEVICE + SIZE / 2; // the other half is not on the fabric
        on_fabric.then(|| Place { pid: self.device_pid, offset: addr - DEVICE })
    }

    fn by_requests(&self, addr: u64) -> bool {
        addr >= FABRIC[0]
    }
}

impl Target for Ram {
    fn holds(&self, addr: u64, len: u64) -> bool {
        Self::part(addr, len).is_some()
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        let Some((kind, offset)) = Self::part(addr, into.len() as u64) else { return false };
        let memory = match kind {
            MemKind::Host => &self.host,
            MemKind::Device => &self.device,
            MemKind::Fabric => return false,
        };
        into.copy_from_slice(&memory[offset..offset + into.len()]);
        self.broken.is_none_or(|at| !(addr..addr + into.len() as u64).contains(&at))
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        let broken = self.broken.is_some_and(|at| (addr..addr + data.len() as u64).contains(&at));
        match self.at(addr, data.len()).filter(|_| !broken) {
            Some(place) => place.copy_from_slice(data),
            None => return false,
        }
        true
    }
}

#[derive(Clone, Debug)]
pub enum OwnBody {
    Read(u64),
    Write(Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct OwnRequest {
    pub tag: Tag,
    pub stream: StreamId,
    pub addr: Hpa,
    pub body: OwnBody,
}

#[derive(Clone, Debug)]
pub enum OwnAnswer {
    Data(u64, Vec<u8>, bool),
    Written,
    Unsupported,
    Aborted,
}

/// Faults to inject, each with odds of one in its number; 0: never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub delay_ns: u64,
    pub full: u64,
    pub unsupported: u64,
    pub aborted: u64,
    pub lost: u64,
    pub poisoned: u64,
    pub doubled: u64,
}

/// One host's way to the fabric.
pub struct Wire {
    pub sent: Vec<(Instant, OwnRequest)>,
    pub back: Vec<(Instant, Tag, OwnAnswer)>,
    /// Every request that was accepted.
    pub log: Vec<OwnRequest>,
    pub faults: Faults,
    /// Whether requests are lost on the way.
    pub held: bool,
    rng: Rng,
}

impl Wire {
    fn hit(&mut self, one_in: u64) -> bool {
        one_in > 0 && self.rng.chance(1, one_in)
    }

    fn later(&mut self, now: Instant) -> Instant {
        now + Span::from_ns(self.rng.below(self.faults.delay_ns + 1))
    }
}

impl UioPort for Wire {
    fn submit(
        &mut self,
        now: Instant,
        request: Request,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<(), NotTaken> {
        if self.hit(self.faults.full) {
            return Err(NotTaken::Full);
        }
        let body = match request.body {
            Body::Read(len) => OwnBody::Read(len as u64),
            Body::Write(len) => {
                let mut data = vec![0xEE; len];
                if !fill(&mut data) {
                    return Err(NotTaken::Unfilled);
                }
                OwnBody::Write(data)
            }
        };
        let Request { tag, stream, addr, .. } = request;
        let own = OwnRequest { tag, stream, addr, body };
        self.log.push(own.clone());
        let at = self.later(now);
        self.sent.push((at, own));
        Ok(())
    }

    fn poll(&mut self, now: Instant, each: &mut dyn FnMut(Completion<'_>)) {
        let (due, rest) = self.back.drain(..).partition(|(at, ..)| *at <= now);
        self.back = rest;
        let due: Vec<(Instant, Tag, OwnAnswer)> = due;
        for (_, tag, answer) in &due {
            let answer = match answer {
                OwnAnswer::Data(offset, data, poisoned) => {
                    Answer::Data { offset: *offset, data, poisoned: *poisoned }
                }
                OwnAnswer::Written => Answer::Written,
                OwnAnswer::Unsupported => Answer::Unsupported,
                OwnAnswer::Aborted => Answer::Aborted,
            };
            each(Completion { tag: *tag, answer });
        }
    }
}

/// Port id of host 0 or 1.
pub fn pid(host: usize) -> Pid {
    Pid::from_low_bits(0x10 + u16::try_from(host).unwrap())
}

fn device_pid(host: usize) -> Pid {
    Pid::from_low_bits(0x20 + u16::try_from(host).unwrap())
}

const SEGMENT: u64 = 1 << 36;

/// The segments that both hosts know: hosts, then devices, from 1 TiB on.
pub fn segments() -> BTreeMap<Pid, Segment> {
    let pids = [pid(0), pid(1), device_pid(0), device_pid(1)];
    let bases = (0u64..).map(|n| Segment { base: Hpa((1 << 40) + n * SEGMENT), len: SEGMENT });
    pids.into_iter().zip(bases).collect()
}

/// An engine of host 0 or 1, on, with changes to its options.
pub fn engine(host: usize, change: impl FnOnce(&mut Options)) -> Engine {
    let mut options = Options { enabled: true, ..Options::default() };
    change(&mut options);
    let place = Place { pid: pid(host), offset: 0x10_0000 };
    let window = Window { place, len: 2 * SIZE };
    Engine::new(EngineSpec { options, window, segments: segments() }).unwrap()
}

/// The fabric between the engines, and their memories.
pub struct Fabric {
    pub now: Instant,
    pub rams: [Ram; 2],
    pub wires: [Wire; 2],
    rng: Rng,
}

impl Fabric {
    /// Memory is random, and different in each host.
    pub fn new(seed: u64, faults: Faults) -> Self {
        let mut rng = Rng::new(seed);
        let mut bytes =
            || -> Vec<u8> { (0..SIZE / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect() };
        let rams = [0, 1].map(|host| Ram {
            host: bytes(),
            device: bytes(),
            device_pid: device_pid(host),
            broken: None,
        });
        let wires = [1, 2].map(|n| Wire {
            sent: Vec::new(),
            back: Vec::new(),
            log: Vec::new(),
            faults,
            held: false,
            rng: Rng::new(seed.wrapping_mul(3) + n),
        });
        Self { now: Instant::ZERO, rams, wires, rng }
    }

    /// Lets 100 ns pass.
    pub fn step(&mut self, engines: [&mut Engine; 2]) {
        self.now += Span::from_ns(100);
        for host in 0..2 {
            if !self.wires[host].held {
                let due = self.wires[host].sent.iter().filter(|(at, _)| *at <= self.now).count();
                self.wires[host].sent.sort_by_key(|(at, _)| *at);
                let due: Vec<_> = self.wires[host].sent.drain(..due).collect();
                for (_, request) in due {
                    self.arrive(host, &request, [&*engines[0], &*engines[1]]);
                }
            }
        }
        for (host, engine) in engines.into_iter().enumerate() {
            let polled = engine.poll(self.now, &mut self.wires[host], &mut self.rams[host]);
            assert!(polled.is_ok() || engine.usage() == Usage::default());
        }
    }

    fn arrive(&mut self, from: usize, request: &OwnRequest, engines: [&Engine; 2]) {
        let len = match &request.body {
            OwnBody::Read(len) => *len,
            OwnBody::Write(data) => data.len() as u64,
        };
        assert!(len > 0 && request.addr.0 % 4_096 + len <= 4_096, "{request:?} crosses 4 KiB");
        let wire = &mut self.wires[from];
        if wire.hit(wire.faults.lost) {
            return;
        }
        let offset = request.addr.0 - (1 << 40);
        let (segment, offset) = (offset / SEGMENT, offset % SEGMENT);
        let place = match segment {
            0 => engines[0].serve(pid(from), offset, len).map(|addr| (0, addr)),
            1 => engines[1].serve(pid(from), offset, len).map(|addr| (1, addr)),
            2 => Some((0, DEVICE + offset)),
            _ => Some((1, DEVICE + offset)),
        };
        let answers = if wire.hit(wire.faults.unsupported) {
            vec![OwnAnswer::Unsupported]
        } else if wire.hit(wire.faults.aborted) {
            vec![OwnAnswer::Aborted]
        } else {
            match (place, &request.body) {
                (None, _) => vec![OwnAnswer::Unsupported],
                (Some((host, addr)), OwnBody::Read(_)) => {
                    let mut bytes = vec![0; usize::try_from(len).unwrap()];
                    assert!(self.rams[host].read(addr, &mut bytes));
                    self.split(from, &bytes)
                }
                (Some((host, addr)), OwnBody::Write(data)) => {
                    self.rams[host].at(addr, data.len()).unwrap().copy_from_slice(data);
                    vec![OwnAnswer::Written]
                }
            }
        };
        for answer in answers {
            let wire = &mut self.wires[from];
            let copies = if wire.hit(wire.faults.doubled) { 2 } else { 1 };
            for _ in 0..copies {
                let at = wire.later(self.now);
                wire.back.push((at, request.tag, answer.clone()));
            }
        }
    }

    /// Completions of one read, of any number and in any order.
    fn split(&mut self, from: usize, bytes: &[u8]) -> Vec<OwnAnswer> {
        let mut parts = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let most = (bytes.len() - at) as u64;
            let len = if self.rng.chance(1, 2) { most } else { 1 + self.rng.below(most) };
            let end = at + usize::try_from(len).unwrap();
            let wire = &mut self.wires[from];
            let poisoned = wire.hit(wire.faults.poisoned);
            let place = usize::try_from(self.rng.below(parts.len() as u64 + 1)).unwrap();
            parts.insert(place, OwnAnswer::Data(at as u64, bytes[at..end].to_vec(), poisoned));
            at = end;
        }
        parts
    }
}

/// Registers all memory of both hosts that can be, and connects them: each is the other's peer 7.
pub fn connected(fabric: &Fabric, engines: [&mut Engine; 2]) {
    let [one, two] = engines;
    for (engine, ram) in [&mut *one, &mut *two].into_iter().zip(&fabric.rams) {
        engine.register(MemDesc { addr: HOST, len: SIZE }, MemKind::Host, ram).unwrap();
        let device = MemDesc { addr: DEVICE, len: SIZE / 2 };
        engine.register(device, MemKind::Device, ram).unwrap();
    }
    connect(one, two);
}

/// Number of each engine as a peer of the other.
pub const PEER: PeerId = PeerId(7);

/// Exchanges the messages of a connection.
pub fn connect(one: &mut Engine, two: &mut Engine) {
    let hello = one.connect(PEER).unwrap();
    let welcome = two.receive(PEER, &hello).unwrap().unwrap();
    assert_eq!(one.receive(PEER, &welcome), Ok(None));
    assert!(one.is_connected(PEER) && two.is_connected(PEER));
}
