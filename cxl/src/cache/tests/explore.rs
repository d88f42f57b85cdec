//! Every interleaving of small programs on one host and one or two devices with caches: no stale load, no store lost
//! unreported, no deadlock, and the MESI rules hold. Also with a device that is stopped at any point, and with a
//! message that is lost or comes twice.
//!
//! [`World`] is the state of host and devices, and the messages between them. A step delivers the next message of a
//! channel, begins one access or lets half of a snoop's time pass, which is a tick. The channels are D2H and H2D of
//! each device; messages in them stay in order, as the page says (docs/spec/cxl-fabric.md "CXL.cache").
//!
//! A load may find any value that its line held since the load began. A line that the host has given up is poisoned.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_cache::CacheClass;
use weft_parsers::cxl_mem::LINE;
use weft_parsers::fabric::Hpa;

use super::super::Outgoing;
use super::super::agent::{CacheAgent, CacheSpec};
use super::super::home::{Admitted, HomeAgent, HomeNews, HomeSpec, Local};
use crate::coherence::cache::{Access, Bytes};
use crate::coherence::tests::worlds::Op::{self, Load, Store, Whole};
use crate::coherence::tests::worlds::{self, GIVEN_UP, POISON, Part, Told, at, bytes, explore};
use crate::coherence::{Failure, Hold};
use crate::completer::Target;

const LINES: usize = 2;
/// Half of a snoop's time limit; a term is 63/64 of it.
const TICK: Span = Span::from_us(6_400);
/// Index of the host among the components that run programs; devices follow.
const HOST: usize = 0;

#[derive(Clone, Debug, Hash)]
struct Memory {
    lines: [Bytes; LINES],
    /// Lines and the values written to them, until [`World`] records them.
    written: Vec<(u64, u8)>,
}

/// Index of the line that begins at an address.
fn line_at(addr: u64) -> Option<usize> {
    let line = usize::try_from(addr / LINE as u64).unwrap();
    (addr.is_multiple_of(LINE as u64) && line < LINES).then_some(line)
}

impl Target for Memory {
    fn holds(&self, addr: u64, len: u64) -> bool {
        len == LINE as u64 && line_at(addr).is_some()
    }

    fn read(&self, addr: u64, into: &mut [u8]) -> bool {
        line_at(addr).map(|line| into.copy_from_slice(&self.lines[line])).is_some()
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        self.written.push((addr / LINE as u64, data[0]));
        line_at(addr).map(|line| self.lines[line].copy_from_slice(data)).is_some()
    }
}

#[derive(Clone, Debug, Hash)]
struct Device {
    agent: CacheAgent<Part>,
    d2h: VecDeque<Outgoing>,
    h2d: VecDeque<Outgoing>,
    /// Last reading of its clock.
    now: Instant,
}

/// Component that may be stopped at any point, even between reading its clock and acting on it; the others read their
/// clocks at each tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stopped {
    Neither,
    Devices,
    Host,
}

/// Faults beside the programs: number of ticks, and of snoops or answers that are lost or doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Faults {
    stopped: Stopped,
    ticks: u8,
    lost: u8,
    doubled: u8,
}

const NONE: Faults = Faults { stopped: Stopped::Neither, ticks: 0, lost: 0, doubled: 0 };

#[derive(Clone, Debug, Hash)]
struct World {
    now: Instant,
    left: Faults,
    may_fail: bool,
    memory: Memory,
    home: HomeAgent<Part>,
    home_now: Instant,
    devices: Vec<Device>,
    programs: Vec<VecDeque<Part>>,
    under_way: usize,
    /// Value stored last, or [`POISON`].
    latest: [u8; LINES],
    /// Accesses under way, with the values that their lines have held meanwhile.
    seen: BTreeMap<(usize, Part), BTreeSet<u8>>,
    told: Told<String>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize),
    ToHost(usize),
    ToDevice(usize),
    Tick,
    DeviceLooks(usize),
    HomeLooks,
    GiveUp,
    LoseToHost(usize),
    LoseToDevice(usize),
    DoubleToHost(usize),
    DoubleToDevice(usize),
}

const fn addr(line: u64) -> u64 {
    line * LINE as u64
}

impl worlds::World for World {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let devices = || self.devices.iter().enumerate();
        let mut steps: Vec<Step> = Vec::new();
        let programs = self.programs.iter().enumerate();
        steps.extend(programs.filter(|(_, it)| !it.is_empty()).map(|it| Step::Begin(it.0)));
        steps.extend(devices().filter(|(_, it)| !it.d2h.is_empty()).map(|it| Step::ToHost(it.0)));
        steps.extend(devices().filter(|(_, it)| !it.h2d.is_empty()).map(|it| Step::ToDevice(it.0)));
        if self.home.next_due().is_some_and(|due| due <= self.home_now) {
            steps.push(Step::GiveUp);
        }
        steps.extend(
            devices().filter(|(_, it)| it.now != self.now).map(|it| Step::DeviceLooks(it.0)),
        );
        steps.extend((self.home_now != self.now).then_some(Step::HomeLooks));
        // Only time ends waits for lost messages and stopped components.
        if self.left.ticks > 0 || steps.is_empty() && !self.is_over() {
            steps.push(Step::Tick);
        }
        // Only snoops and their answers are lost: a lossless link loses no requests, and coherence faults are about the
        // former.
        let answers = |it: &&Outgoing| it.head.op.class() == CacheClass::D2hRsp;
        let snoops = |it: &&Outgoing| it.head.op.class() == CacheClass::H2dReq;
        let ups = || devices().filter(|(_, it)| it.d2h.front().as_ref().is_some_and(answers));
        let downs = || devices().filter(|(_, it)| it.h2d.front().as_ref().is_some_and(snoops));
        if self.left.lost > 0 {
            steps.extend(ups().map(|it| Step::LoseToHost(it.0)));
            steps.extend(downs().map(|it| Step::LoseToDevice(it.0)));
        }
        if self.left.doubled > 0 {
            steps.extend(ups().map(|it| Step::DoubleToHost(it.0)));
            steps.extend(downs().map(|it| Step::DoubleToDevice(it.0)));
        }
        steps
    }

    fn step(&mut self, step: Step) {
        let moved = match step {
            Step::ToHost(nth) => self.devices[nth].d2h.front().map(|it| it.head.op),
            Step::ToDevice(nth) => self.devices[nth].h2d.front().map(|it| it.head.op),
            _ => None,
        };
        self.told = self.told.and(format!("{step:?} {moved:?}"));
        match step {
            Step::Begin(who) => self.begin(who),
            Step::ToHost(nth) => {
                let mut message = self.devices[nth].d2h.pop_front().unwrap();
                message.head.cache_id = u8::try_from(nth).unwrap(); // as the switch does
                let taken = self.home.take(&message.message(), &mut self.memory);
                self.observe();
                assert!(taken || self.may_fail, "{message:?} after {:?}", self.told);
                self.settle();
            }
            Step::ToDevice(nth) => {
                let message = self.devices[nth].h2d.pop_front().unwrap();
                let taken = self.devices[nth].agent.take(&message.message());
                assert!(taken || self.may_fail, "{message:?} after {:?}", self.told);
                self.sent(nth);
            }
            Step::Tick => {
                self.left.ticks = self.left.ticks.saturating_sub(1);
                self.now += TICK;
                if self.left.stopped != Stopped::Devices {
                    (0..self.devices.len()).for_each(|nth| self.look(nth));
                }
                if self.left.stopped != Stopped::Host {
                    self.home_looks();
                }
                assert!(
                    self.now.since(Instant::ZERO).as_ps() < 20 * TICK.as_ps(),
                    "{:?}",
                    self.told
                );
            }
            Step::DeviceLooks(nth) => self.look(nth),
            Step::HomeLooks => self.home_looks(),
            Step::GiveUp => {
                self.home.expire(self.home_now);
                self.observe();
                self.settle();
            }
            Step::LoseToHost(nth) => {
                self.left.lost -= 1;
                self.devices[nth].d2h.pop_front();
            }
            Step::LoseToDevice(nth) => {
                self.left.lost -= 1;
                self.devices[nth].h2d.pop_front();
            }
            Step::DoubleToHost(nth) => {
                self.left.doubled -= 1;
                let again = self.devices[nth].d2h[0].clone();
                self.devices[nth].d2h.push_back(again);
            }
            Step::DoubleToDevice(nth) => {
                self.left.doubled -= 1;
                let again = self.devices[nth].h2d[0].clone();
                self.devices[nth].h2d.push_back(again);
            }
        }
        self.no_device_has_more_than_the_filter();
    }

    fn is_over(&self) -> bool {
        self.under_way == 0 && self.home.counts().waiting == 0
    }
}

impl World {
    /// A host and devices with these programs; caches of `cache` lines, and a filter of `room` lines.
    fn new(host: &[Op], devices: &[&[Op]], cache: usize, room: usize, faults: Faults) -> Self {
        let program =
            |ops: &[Op]| (0..).zip(ops).map(|(nth, &op)| Part { op, nth }).collect::<VecDeque<_>>();
        let spec = CacheSpec {
            lines: cache,
            in_flight_max: 4,
            timeout: Span::from_ps(100 * TICK.as_ps()),
        };
        let device = || Device {
            agent: CacheAgent::new(spec),
            d2h: VecDeque::new(),
            h2d: VecDeque::new(),
            now: Instant::ZERO,
        };
        let answer_max = Span::from_ps(2 * TICK.as_ps());
        let programs = core::iter::once(program(host)).chain(devices.iter().map(|it| program(it)));
        Self {
            now: Instant::ZERO,
            left: faults,
            may_fail: faults != NONE,
            memory: Memory { lines: [[0; LINE]; LINES], written: Vec::new() },
            home: HomeAgent::new(HomeSpec { lines: room, answer_max, secret: 1 }),
            home_now: Instant::ZERO,
            devices: devices.iter().map(|_| device()).collect(),
            programs: programs.collect(),
            under_way: 0,
            latest: [0; LINES],
            seen: BTreeMap::new(),
            told: Told::default(),
        }
    }

    fn look(&mut self, nth: usize) {
        self.devices[nth].now = self.now;
        self.devices[nth].agent.set_now(self.now);
    }

    fn home_looks(&mut self) {
        self.home_now = self.now;
        self.home.mark_overdue(self.now);
    }

    fn begin(&mut self, who: usize) {
        let part = self.programs[who].pop_front().unwrap();
        self.under_way += 1;
        self.seen.insert((who, part), BTreeSet::from([self.latest[at(part.op.line())]]));
        if who == HOST {
            let writes = !matches!(part.op, Load(_));
            self.admit(Local::new(addr(part.op.line()), Self::len_of(part.op), writes, part));
            return self.settle();
        }
        let nth = who - 1;
        self.look(nth); // the clock is read after the access has come
        let store = match part.op {
            Load(_) => None,
            Store(_, value) => Some((bytes(value), 1)),
            Whole(_, value) => Some((bytes(value), u64::MAX)),
        };
        self.devices[nth].agent.access(addr(part.op.line()), Access { what: part, store });
        self.sent(nth);
    }

    const fn len_of(op: Op) -> u64 {
        if matches!(op, Whole(..)) { LINE as u64 } else { 1 }
    }

    fn admit(&mut self, local: Local<Part>) {
        match self.home.admit(local) {
            Admitted::Now(local) => self.at_host(local.what),
            Admitted::Waits => {}
            Admitted::Refused(local, why) => {
                assert!(self.may_fail, "{why:?} after {:?}", self.told);
                self.done(HOST, local.what, Err(Failure::Poisoned));
            }
        }
    }

    /// The host carries out an access of its own.
    fn at_host(&mut self, part: Part) {
        let line = part.op.line();
        match part.op {
            Load(_) => {
                let value = self.memory.lines[at(line)];
                self.done(HOST, part, Ok(value));
            }
            Store(_, value) | Whole(_, value) => {
                self.memory.lines[at(line)] = bytes(value);
                self.is_now(line, value);
                self.done(HOST, part, Ok(bytes(value)));
            }
        }
    }

    fn is_poisoned(&self, line: u64) -> bool {
        self.home.is_poisoned(Hpa(addr(line)))
    }

    /// Records lines that the host has given up or written.
    fn observe(&mut self) {
        while let Some(news) = self.home.next_news() {
            assert!(self.may_fail, "{news:?}: all devices answer");
            if let HomeNews::Lost { line, .. } = news {
                self.is_now(line.0 / LINE as u64, GIVEN_UP);
                self.is_now(line.0 / LINE as u64, POISON);
            }
        }
        for (line, value) in core::mem::take(&mut self.memory.written) {
            // Each store has its own value. A value written while its store is under way went past the cache; one
            // stored in a cache is written back later.
            let goes_on = self.seen.keys().any(|(who, part)| match part.op {
                Store(of, stored) | Whole(of, stored) => {
                    *who != HOST && (of, stored) == (line, value)
                }
                Load(_) => false,
            });
            if goes_on && !self.is_poisoned(line) {
                self.is_now(line, value);
            }
        }
    }

    /// Carries out accesses that caches let go, and sends the host's messages.
    fn settle(&mut self) {
        loop {
            let ready = self.home.next_ready(self.home_now, &mut self.memory);
            self.observe();
            let Some(local) = ready else { break };
            self.admit(local);
        }
        while let Some(message) = self.home.next_message() {
            self.devices[usize::from(message.head.cache_id)].h2d.push_back(message);
        }
    }

    fn hold_of(&self, nth: usize, line: u64) -> Option<Hold> {
        self.home.hold_of(u8::try_from(nth).unwrap(), Hpa(addr(line)))
    }

    /// Sets the value of a line.
    fn is_now(&mut self, line: u64, value: u8) {
        self.latest[at(line)] = value;
        for ((_, part), seen) in &mut self.seen {
            if part.op.line() == line {
                seen.insert(value);
            }
        }
    }

    /// Takes the messages and results of a device.
    fn sent(&mut self, nth: usize) {
        let now = self.devices[nth].now;
        loop {
            while let Some((part, result)) = self.devices[nth].agent.next_done() {
                self.done(nth + 1, part, result);
            }
            let Some(message) = self.devices[nth].agent.next_message(now) else { break };
            self.devices[nth].d2h.push_back(message);
        }
        if !self.may_fail {
            assert_eq!(self.devices[nth].agent.next_lost(), None, "{:?}", self.told);
        }
    }

    fn done(&mut self, who: usize, part: Part, result: Result<Bytes, Failure>) {
        self.under_way -= 1;
        let seen = self.seen.remove(&(who, part)).unwrap();
        let value = match result {
            Ok(bytes) => bytes[0],
            Err(why) => {
                assert!(why == Failure::Poisoned && self.may_fail, "{why:?}");
                POISON
            }
        };
        let told = &self.told;
        let line = part.op.line();
        match part.op {
            _ if value == POISON => {
                assert!(seen.contains(&POISON), "not poisoned: {part:?} of {who} after {told:?}");
            }
            Load(_) => {
                let is_there = seen.contains(&value);
                assert!(is_there, "stale: {part:?} of {who}, {value} of {seen:?} after {told:?}");
                // An owner may have stored again since the host snooped it for the value.
                let latest = self.latest[at(line)];
                let is_exact = self.may_fail || who == HOST || value == latest;
                assert!(is_exact, "{value} for {latest}, {told:?}");
            }
            Store(_, stored) | Whole(_, stored) if who != HOST => {
                let nth = who - 1;
                if self.hold_of(nth, line) == Some(Hold::Owned) {
                    self.is_now(line, stored);
                } else if !seen.contains(&stored) {
                    // The access counts as done when the device read its clock, before the host gave up the line.
                    assert!(seen.contains(&GIVEN_UP), "lost: {part:?} of {who}, {told:?}");
                    for ((_, part), seen) in &mut self.seen {
                        if part.op.line() == line && seen.contains(&GIVEN_UP) {
                            seen.insert(stored);
                        }
                    }
                }
            }
            Store(..) | Whole(..) => {}
        }
    }

    /// The filter knows every copy that a device may use, and an owner is the only holder.
    fn no_device_has_more_than_the_filter(&mut self) {
        for line in 0..LINES as u64 {
            let mut holders = Vec::new();
            for nth in 0..self.devices.len() {
                let known = self.hold_of(nth, line);
                let mut agent = self.devices[nth].agent.clone();
                agent.set_now(self.now); // although it has not read its clock
                let had = agent.usable(addr(line)).map(|(hold, _)| hold);
                let told = &self.told;
                assert!(had <= known, "{nth} has {had:?} of {line}, not {known:?}: {told:?}");
                holders.extend(had);
            }
            let owners = holders.iter().filter(|hold| **hold == Hold::Owned).count();
            assert!(owners == 0 || holders.len() == 1, "{holders:?} of {line}: {:?}", self.told);
        }
    }
}

/// One device and its host load and store the same two lines, with a cache and a filter that hold both, or one.
#[test]
fn one_device_in_every_order() {
    let (host, device) = (
        [Load(0), Store(0, 1), Store(1, 2), Load(0)],
        [Store(0, 3), Load(1), Store(1, 4), Load(0)],
    );
    let mut states = 0;
    for (cache, room) in [(2, 2), (1, 2), (2, 1), (1, 1)] {
        states += explore(World::new(&host, &[&device], cache, room, NONE));
    }
    println!("{states} states");
    assert!(states > 3_000, "{states}");
}

/// Two devices and their host at two lines.
#[test]
fn two_devices_in_every_order() {
    let host = [Store(0, 1)];
    let (a, b) = ([Store(0, 2), Load(1)], [Load(0), Store(1, 3), Store(0, 4)]);
    let mut states = 0;
    for (cache, room) in [(2, 2), (1, 2), (2, 1), (1, 1)] {
        states += explore(World::new(&host, &[&a, &b], cache, room, NONE));
    }
    println!("{states} states");
    assert!(states > 50_000, "{states}");
}

/// Name, program of the host, programs of the devices, and faults.
type Case<'a> = (&'a str, &'a [Op], &'a [&'a [Op]], Faults);

/// Explores each case; together they must have more states than `least`.
fn explore_all(cases: &[Case<'_>], least: usize) {
    let mut states = 0;
    for (name, host, devices, faults) in cases {
        let found = explore(World::new(host, devices, 1, 1, *faults));
        println!("{name}, {faults:?}: {found} states");
        states += found;
    }
    assert!(states > least, "{states}");
}

const fn faults(stopped: Stopped, lost: u8, doubled: u8) -> Faults {
    Faults { stopped, ticks: 2, lost, doubled }
}

const STORE: &[Op] = &[Store(0, 1)];
const STORE_LOAD: &[Op] = &[Store(0, 1), Load(0)];
const STORES: &[Op] = &[Store(0, 1), Store(1, 2)];
const LOAD: &[Op] = &[Load(0)];
const LOAD_WHOLE: &[Op] = &[Load(0), Whole(0, 3)];
const WHOLE: &[Op] = &[Whole(0, 4)];

/// A device or the host is stopped at any point, for longer than the time limit of a snoop.
#[test]
fn whoever_is_stopped_anywhere() {
    let cases: [Case<'_>; 4] = [
        ("a device", LOAD_WHOLE, &[STORE_LOAD], faults(Stopped::Devices, 0, 0)),
        ("one place", LOAD, &[STORES], faults(Stopped::Devices, 0, 0)),
        ("two devices", LOAD, &[STORE, LOAD], faults(Stopped::Devices, 0, 0)),
        ("the host", LOAD_WHOLE, &[STORE_LOAD], faults(Stopped::Host, 0, 0)),
    ];
    explore_all(&cases, 30_000);
}

/// Any one snoop or answer is lost.
#[test]
fn a_lost_snoop_or_answer_in_every_order() {
    let cases: [Case<'_>; 2] = [
        ("a device", LOAD_WHOLE, &[STORE_LOAD], faults(Stopped::Neither, 1, 0)),
        ("two devices", LOAD, &[STORE, WHOLE], faults(Stopped::Neither, 1, 0)),
    ];
    explore_all(&cases, 3_000);
}

/// Any one snoop or answer comes twice, the second time behind all messages sent since.
#[test]
fn a_doubled_snoop_or_answer_in_every_order() {
    let cases: [Case<'_>; 2] = [
        ("a device", LOAD_WHOLE, &[STORE_LOAD], faults(Stopped::Neither, 0, 1)),
        ("two devices", LOAD, &[STORE, LOAD], faults(Stopped::Neither, 0, 1)),
    ];
    explore_all(&cases, 3_000);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_devices_stopped_lost_and_doubled() {
    let cases: [Case<'_>; 4] = [
        ("two devices", LOAD, &[STORE_LOAD, WHOLE], faults(Stopped::Devices, 0, 0)),
        ("a device", LOAD_WHOLE, &[STORE_LOAD], faults(Stopped::Devices, 1, 0)),
        ("a device", LOAD_WHOLE, &[STORE_LOAD], faults(Stopped::Devices, 0, 1)),
        ("two devices", WHOLE, &[STORE, LOAD], faults(Stopped::Host, 1, 0)),
    ];
    explore_all(&cases, 500_000);
}
