//! One completer and several requesters, with chance in everything that the rules leave open.
//!
//! A seed drives reads, writes, CPU writes, delays and the order of messages and completions.
//!
//! Units: lines of 64 bytes; steps.
//! Source: PCIe 5.0 section 6.21; PCIe's order of posted and non-posted requests.

use std::collections::BTreeMap;

use weft_base::rng::Rng;
use weft_dataplane::time::{Instant, Span};

use super::super::lnc::AddressType;
use super::super::registers::Supported;
use super::*;

const BASE: u64 = 0x10_0000;
/// The first 64 lines take registrations, the rest does not.
const LINES: u64 = 80;

fn below(rng: &mut Rng, bound: usize) -> usize {
    usize::try_from(rng.below(bound as u64)).unwrap()
}

enum Down {
    Message(LnMessage),
    Completion(Ticket, bool, Option<Vec<u8>>),
}

enum Up {
    Ln(LnrRequest),
    PlainWrite(Hpa, Vec<u8>),
}

impl Up {
    fn is_posted(&self) -> bool {
        !matches!(self, Self::Ln(LnrRequest::Read { .. } | LnrRequest::Probe { .. }))
    }
}

struct Device {
    origin: Origin,
    lnr: Lnr,
    up: Vec<Up>,
    down: Vec<Down>,
}

struct World {
    rng: Rng,
    now: Instant,
    lnc: Lnc,
    memory: BTreeMap<u64, u8>,
    devices: Vec<Device>,
    /// Numbers of correct copies after all messages, and of delivered messages, which show that the test tests
    /// something.
    checked: usize,
    delivered: usize,
    /// How often a copy was out of date while its message was on the way.
    stale_meanwhile: usize,
    /// The completer tracks all watchers of each line individually.
    knows_each: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let mut regions = Regions::new();
        regions.add(Hpa(BASE), 0x1000).unwrap();
        let watchers_max = below(&mut rng, 7);
        let lnc = Lnc::new(LncSpec {
            line: LineSize::B64,
            lines_max: [3, 20, 100][below(&mut rng, 3)],
            watchers_max,
            translated: false,
            regions,
            broadcast_gap: Span::from_ns([0, 50][below(&mut rng, 2)]),
            pending_max: [2, 8, 1_000][below(&mut rng, 3)],
        });
        let device = |index: u8| {
            let requester = Bdf::new(index + 1, 0, 0);
            let registers = LnrRegisters::new(Supported::Both, 8);
            let mut lnr = Lnr::new(requester, registers, false);
            lnr.write_control(u16::from(index) << 8 | 1);
            let origin = Origin { port: RootPort(index % 2), requester };
            Device { origin, lnr, up: Vec::new(), down: Vec::new() }
        };
        let devices = (0..5).map(device).collect();
        let (memory, now) = (BTreeMap::new(), Instant::ZERO);
        let (checked, delivered, stale_meanwhile) = (0, 0, 0);
        let knows_each = watchers_max >= 5;
        Self { rng, now, lnc, memory, devices, checked, delivered, stale_meanwhile, knows_each }
    }

    fn read_memory(&self, addr: Hpa) -> Vec<u8> {
        (addr.0..addr.0 + 64).map(|addr| self.memory.get(&addr).copied().unwrap_or(0)).collect()
    }

    /// Some bytes within a line, aligned to double words.
    fn some_write(&mut self) -> (Hpa, Vec<u8>) {
        let line = BASE + 64 * self.rng.below(LINES);
        let (start, len) = match self.rng.below(2) {
            0 => (0, 64),
            _ => (4 * self.rng.below(8), 4 * (1 + below(&mut self.rng, 8))),
        };
        let byte = self.rng.next_u64().to_le_bytes()[0];
        (Hpa(line + start), vec![byte; len])
    }

    /// One random action of a device or a CPU.
    fn act(&mut self) {
        let index = below(&mut self.rng, self.devices.len());
        let (addr, data) = self.some_write();
        let mut requests = Vec::new();
        let device = &mut self.devices[index];
        match self.rng.below(12) {
            0..5 => drop(device.lnr.ln_read(addr, &mut requests)),
            5..7 => drop(device.lnr.ln_write(addr, &data, &mut requests)),
            7 => drop(device.lnr.probe(addr, &mut requests)),
            8 => drop(device.lnr.deregister(addr, &mut requests)),
            9 => {
                device.lnr.on_own_write(addr, data.len() as u64);
                device.up.push(Up::PlainWrite(addr, data));
            }
            10 if self.rng.chance(1, 20) => self.lnc.deregister_function(device.origin),
            11 if self.rng.chance(1, 20) => self.lnc.deregister_port(device.origin.port),
            _ => {
                self.lnc.on_update(addr, data.len() as u64);
                self.memory.extend((addr.0..).zip(data));
            }
        }
        self.devices[index].up.extend(requests.into_iter().map(Up::Ln));
    }

    /// The host takes one request of a device: posted ones in order, and a read not before earlier posted ones.
    fn host_step(&mut self, index: usize) {
        let up = &mut self.devices[index].up;
        if up.is_empty() {
            return;
        }
        let first_posted = up.iter().position(Up::is_posted);
        let pick = match first_posted {
            Some(at) if at == 0 || self.rng.chance(1, 2) => at,
            at => below(&mut self.rng, at.unwrap_or(up.len())),
        };
        let request = up.remove(pick);
        let from = self.devices[index].origin;
        let of = |ln: bool, addr: Hpa, len: usize| MemRequest {
            from,
            flit: false,
            ln,
            addr,
            dwords: u16::try_from(len / 4).unwrap().max(1),
            first_be: if len == 0 { 0 } else { 0xF },
            last_be: if len > 4 { 0xF } else { 0 },
            at: AddressType::Untranslated,
        };
        let memory = &mut self.memory;
        let (ticket, line, len) = match request {
            Up::PlainWrite(addr, data) => {
                let answer = self.lnc.on_write(&of(false, addr, data.len()), || {
                    memory.extend((addr.0..).zip(data.iter().copied()));
                    Access::Done
                });
                return assert_eq!(answer, WriteAnswer::Done);
            }
            Up::Ln(LnrRequest::Write { addr, data }) => {
                let answer = self.lnc.on_write(&of(true, addr, data.len()), || {
                    memory.extend((addr.0..).zip(data.iter().copied()));
                    Access::Done
                });
                return assert_eq!(answer, WriteAnswer::Done);
            }
            Up::Ln(LnrRequest::Deregister { line }) => {
                self.lnc.on_write(&of(true, line.addr(), 0), || panic!("nothing to write"));
                return;
            }
            Up::Ln(LnrRequest::Probe { ticket, line }) => (ticket, line, 0),
            Up::Ln(LnrRequest::Read { ticket, line }) => (ticket, line, 64),
        };
        let fails = len > 0 && self.rng.chance(1, 50);
        let access = || if fails { Access::Failed } else { Access::Done };
        let answer = self.lnc.on_read(&of(true, line.addr(), len), access);
        let mut data = self.read_memory(line.addr());
        data.truncate(len);
        let down = match answer {
            ReadAnswer::Complete { ln } => Down::Completion(ticket, ln, Some(data)),
            _ => Down::Completion(ticket, false, None),
        };
        self.devices[index].down.push(down);
    }

    /// A device receives one message or completion, in any order.
    fn device_step(&mut self, index: usize) {
        let device = &mut self.devices[index];
        if device.down.is_empty() {
            return;
        }
        let pick = below(&mut self.rng, device.down.len());
        match device.down.swap_remove(pick) {
            Down::Message(message) => {
                device.lnr.on_message(&message);
                self.delivered += 1;
            }
            Down::Completion(ticket, ln, data) => {
                let data = data.as_deref().map_or(CplData::Failed, CplData::Good);
                assert_ne!(device.lnr.on_completion(ticket, ln, data), Outcome::Unknown);
            }
        }
    }

    fn messages(&mut self) {
        while let Some((port, message)) = self.lnc.next_message(self.now) {
            for device in self.devices.iter_mut().filter(|device| device.origin.port == port) {
                if matches!(message.to, Route::Directed(to) if to != device.origin.requester) {
                    continue;
                }
                device.down.push(Down::Message(message));
            }
        }
    }

    fn step(&mut self) {
        self.now += Span::from_ns(1);
        match self.rng.below(3) {
            0 => self.act(),
            1 => {
                let index = below(&mut self.rng, self.devices.len());
                self.host_step(index);
            }
            _ => {
                let index = below(&mut self.rng, self.devices.len());
                self.device_step(index);
            }
        }
        if self.rng.chance(1, 4) {
            self.messages();
        }
        let stale = self.devices.iter().flat_map(|device| device.lnr.copies());
        self.stale_meanwhile +=
            stale.filter(|(line, copy)| self.read_memory(line.addr()) != *copy).count();
    }

    /// Delivers everything; then no copy may be out of date.
    fn settle(&mut self) {
        let mut rounds = 0;
        loop {
            for index in 0..self.devices.len() {
                while !self.devices[index].up.is_empty() {
                    self.host_step(index);
                }
                self.messages();
                while !self.devices[index].down.is_empty() {
                    self.device_step(index);
                }
            }
            self.now += Span::from_ns(50);
            let idle = self.devices.iter().all(|device| device.down.is_empty());
            if idle && self.lnc.pending() == 0 {
                break;
            }
            rounds += 1;
            assert!(rounds < 1_000, "messages never end");
        }
        let mut checked = 0;
        for device in &self.devices {
            let me = device.origin;
            for (line, copy) in device.lnr.copies() {
                assert_eq!(copy, self.read_memory(line.addr()), "{} at {me:?}", line.addr());
                assert!(self.lnc.watches(me, line.addr()), "a copy that would never be told");
                checked += 1;
            }
            let lines = (0..LINES).map(|line| Hpa(BASE + 64 * line));
            let registered = lines.clone().filter(|addr| device.lnr.may_be_registered(*addr));
            let limit = device.lnr.registers().limit_lines();
            assert!(registered.count() <= limit, "more than {limit} at {me:?}");
            if self.knows_each {
                for addr in lines.filter(|addr| self.lnc.watches(me, *addr)) {
                    assert!(device.lnr.may_be_registered(addr), "{addr} at {me:?} is not counted");
                }
            }
        }
        self.checked += checked;
    }
}

/// Once all messages have come, no copy is out of date, and each is still watched.
#[test]
fn no_copy_is_stale_once_all_messages_have_come() {
    let (mut checked, mut delivered, mut stale) = (0, 0, 0);
    for seed in 0..60 {
        let mut world = World::new(seed);
        for round in 0..40 {
            for _ in 0..100 {
                world.step();
            }
            let context = std::panic::AssertUnwindSafe(&mut world);
            let settled = std::panic::catch_unwind(move || { context }.settle());
            assert!(settled.is_ok(), "seed {seed}, round {round}");
        }
        checked += world.checked;
        delivered += world.delivered;
        stale += world.stale_meanwhile;
    }
    assert!(checked > 5_000 && delivered > 5_000 && stale > 1_000, "{checked} {delivered} {stale}");
}
