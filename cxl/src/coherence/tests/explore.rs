//! Every interleaving of small programs on one device and two or three hosts: no stale load, no store lost unreported,
//! no deadlock. Also with snoops and answers that come late, twice or not at all, and with hosts and devices that look
//! at their clocks late.
//!
//! [`World`] is all state and all messages under way; a step delivers one message, begins one access or lets a tick
//! pass, which is half of a snoop's time limit, and longer than a lease.
//!
//! S2M NDR to one host stay in their order; all other messages are delivered in any order. A load may find any value
//! that its line held since the load began. A line that the device has given up is poisoned, and that is its value
//! then.
//!
//! Source: docs/spec/cxl-fabric.md "Back-invalidate", "A host that does not answer".

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_mem::{LINE, Lease};
use weft_parsers::fabric::{Hpa, Pid};

use super::super::cache::{Access, Bytes, Cache, Out};
use super::super::filter::{Asker, Effect, Filter, Want};
use super::super::snoops::{NotAsked, Snoops};
use super::super::{Failure, Hold, Snoop};
use super::worlds::Op::{self, Load, Store, Whole};
use super::worlds::{self, GIVEN_UP, POISON, Part, Told, at, bytes, explore};

const LINES: usize = 3;
/// Half of a snoop's time limit; a term is 63/64 of it.
const TICK: Span = Span::from_us(6_400);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Up {
    Read {
        line: u64,
        exclusive: bool,
    },
    WriteBack {
        line: u64,
        value: u8,
        left: Option<Hold>,
    },
    Through {
        line: u64,
        value: u8,
        whole: bool,
    },
    Evict {
        line: u64,
    },
    Conflict {
        line: u64,
    },
    Answer {
        tag: u16,
        line: u64,
        left: Option<Hold>,
    },
    /// An access of a host without cache.
    Plain(Op),
}

/// The answer to a request that was sent at `sent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Ndr {
    what: Done,
    lease: Lease,
    sent: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Done {
    Granted(u64, Option<Hold>),
    Written(u64, bool),
    Known(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Down {
    Data(u64, u8),
    Snoop(u64, Snoop, u16),
}

/// A request that the device carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Read { host: usize, line: u64, sent: Instant },
    Write { host: usize, line: u64, value: u8, whole: bool, sent: Instant },
    Plain { host: usize, op: Op },
}

#[derive(Clone, Debug, Hash)]
struct Host {
    /// `None`: the host has no cache.
    cache: Option<Cache<Part>>,
    program: VecDeque<Part>,
    under_way: usize,
    ndr: VecDeque<Ndr>,
    /// Last reading of its clock.
    now: Instant,
    /// Open snoops by line, as [`crate::mem::cached::CachedRequester`] keeps them.
    snooped: BTreeMap<u64, Vec<u16>>,
    /// Lines that it is writing past its cache; the device confirms each write.
    through: BTreeSet<u64>,
}

/// Component that may be stopped at any point, even between reading its clock and acting on it; the others read their
/// clocks at each tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stopped {
    Neither,
    Host,
    Device,
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
    memory: [u8; LINES],
    filter: Filter<What>,
    snoops: Snoops,
    device_now: Instant,
    hosts: Vec<Host>,
    up: Vec<(usize, Up, Instant)>,
    down: Vec<(usize, Down)>,
    /// Value stored last, or [`POISON`].
    latest: [u8; LINES],
    /// Accesses under way, with the values that their lines have held meanwhile.
    seen: BTreeMap<(usize, Part), BTreeSet<u8>>,
    told: Told<Happened>,
}

/// A step, with its subject.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "it is shown where something is wrong")]
enum Happened {
    Begins(usize, Option<Part>),
    DeviceHas((usize, Up, Instant)),
    HostHas(usize, Option<Ndr>),
    HostGets((usize, Down)),
    Lost(Option<(usize, Up, Instant)>, Option<(usize, Down)>),
    Doubled(Option<(usize, Up, Instant)>, Option<(usize, Down)>),
    Other(Step),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize),
    Up(usize),
    Ndr(usize),
    Down(usize),
    /// A tick passes.
    Tick,
    /// A host reads its clock; the device reads its clock and marks overdue snoops; the device gives up on hosts.
    Look(usize),
    DeviceLooks,
    GiveUp,
    LoseUp(usize),
    LoseDown(usize),
    DoubleUp(usize),
    DoubleDown(usize),
}

fn pid(host: usize) -> Pid {
    Pid::from_low_bits(u16::try_from(host).unwrap() + 1)
}

fn host_of(pid: Pid) -> usize {
    usize::from(pid.bits()) - 1
}

/// Address of a line, the same at all hosts.
const fn addr_of(line: u64) -> Hpa {
    Hpa((line + 1) * LINE as u64)
}

impl worlds::World for World {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let hosts = || self.hosts.iter().enumerate();
        let mut steps: Vec<Step> = Vec::new();
        steps.extend(hosts().filter(|(_, it)| !it.program.is_empty()).map(|it| Step::Begin(it.0)));
        steps.extend(hosts().filter(|(_, it)| !it.ndr.is_empty()).map(|it| Step::Ndr(it.0)));
        steps.extend((0..self.up.len()).map(Step::Up));
        steps.extend((0..self.down.len()).map(Step::Down));
        if self.snoops.next_due().is_some_and(|due| due <= self.device_now) {
            steps.push(Step::GiveUp);
        }
        steps.extend(hosts().filter(|(_, it)| it.now != self.now).map(|it| Step::Look(it.0)));
        steps.extend((self.device_now != self.now).then_some(Step::DeviceLooks));
        // Only time ends waits for lost messages and stopped components.
        if self.left.ticks > 0 || steps.is_empty() && !self.is_over() {
            steps.push(Step::Tick);
        }
        let is_answer = |up: &Up| matches!(up, Up::Answer { .. });
        let is_snoop = |down: &Down| matches!(down, Down::Snoop(..));
        let ups = (0..).zip(&self.up).filter(|(_, it)| is_answer(&it.1)).map(|it| it.0);
        let downs = (0..).zip(&self.down).filter(|(_, it)| is_snoop(&it.1)).map(|it| it.0);
        if self.left.lost > 0 {
            steps.extend(ups.clone().map(Step::LoseUp));
            steps.extend(downs.clone().map(Step::LoseDown));
        }
        if self.left.doubled > 0 {
            steps.extend(ups.map(Step::DoubleUp));
            steps.extend(downs.map(Step::DoubleDown));
        }
        steps
    }

    fn step(&mut self, step: Step) {
        self.told = self.told.and(self.happens(step));
        match step {
            Step::Begin(at) => self.begin(at),
            Step::Up(nth) => {
                let (host, up, sent) = self.up.swap_remove(nth);
                self.device(host, up, sent);
            }
            Step::Ndr(at) => self.ndr(at),
            Step::Down(nth) => {
                let (at, down) = self.down.swap_remove(nth);
                let cache = self.hosts[at].cache.as_mut().unwrap();
                match down {
                    Down::Data(line, value) => {
                        let poison = value == POISON;
                        assert!(cache.data(line, &bytes(value), poison, false));
                    }
                    Down::Snoop(line, how, tag) => {
                        self.hosts[at].snooped.entry(line).or_default().push(tag);
                        self.hosts[at].cache.as_mut().unwrap().snoop(line, how);
                    }
                }
                self.cached(at);
            }
            Step::Tick => {
                self.left.ticks = self.left.ticks.saturating_sub(1);
                self.now += TICK;
                for at in usize::from(self.left.stopped == Stopped::Host)..self.hosts.len() {
                    self.look(at);
                }
                if self.left.stopped != Stopped::Device {
                    self.device_looks();
                }
                assert!(self.now.since(Instant::ZERO).as_ps() < 20 * TICK.as_ps(), "{self:#?}");
            }
            Step::Look(at) => self.look(at),
            Step::DeviceLooks => self.device_looks(),
            Step::GiveUp => {
                while let Some((who, line)) = self.snoops.give_up(self.device_now) {
                    self.filter.silent(who, line);
                }
                self.settle();
            }
            Step::LoseUp(nth) => {
                self.left.lost -= 1;
                self.up.swap_remove(nth);
            }
            Step::LoseDown(nth) => {
                self.left.lost -= 1;
                self.down.swap_remove(nth);
            }
            Step::DoubleUp(nth) => {
                self.left.doubled -= 1;
                self.up.push(self.up[nth]);
            }
            Step::DoubleDown(nth) => {
                self.left.doubled -= 1;
                self.down.push(self.down[nth]);
            }
        }
        self.up.sort_unstable();
        self.down.sort_unstable();
        self.no_host_has_more_than_the_filter();
    }

    fn is_over(&self) -> bool {
        self.hosts.iter().all(|host| host.under_way == 0) && self.filter.waiting() == 0
    }
}

impl World {
    /// Hosts with programs and caches of the given numbers of lines (0: no cache), and a filter of `room` lines.
    fn new(programs: &[(usize, &[Op])], room: usize, faults: Faults) -> Self {
        let host = |&(cache, program): &(usize, &[Op])| Host {
            cache: (cache > 0).then(|| Cache::new(cache)),
            program: (0..).zip(program).map(|(nth, &op)| Part { op, nth }).collect(),
            under_way: 0,
            ndr: VecDeque::new(),
            now: Instant::ZERO,
            snooped: BTreeMap::new(),
            through: BTreeSet::new(),
        };
        let limit = Span::from_ps(2 * TICK.as_ps());
        Self {
            now: Instant::ZERO,
            left: faults,
            may_fail: faults != NONE,
            memory: [0; LINES],
            filter: Filter::new(room),
            snoops: Snoops::new(limit, 16, 1),
            device_now: Instant::ZERO,
            hosts: programs.iter().map(host).collect(),
            up: Vec::new(),
            down: Vec::new(),
            latest: [0; LINES],
            seen: BTreeMap::new(),
            told: Told::default(),
        }
    }

    fn happens(&self, step: Step) -> Happened {
        match step {
            Step::Begin(at) => Happened::Begins(at, self.hosts[at].program.front().copied()),
            Step::Up(nth) => Happened::DeviceHas(self.up[nth]),
            Step::Ndr(at) => Happened::HostHas(at, self.hosts[at].ndr.front().copied()),
            Step::Down(nth) => Happened::HostGets(self.down[nth]),
            Step::LoseUp(nth) => Happened::Lost(Some(self.up[nth]), None),
            Step::LoseDown(nth) => Happened::Lost(None, Some(self.down[nth])),
            Step::DoubleUp(nth) => Happened::Doubled(Some(self.up[nth]), None),
            Step::DoubleDown(nth) => Happened::Doubled(None, Some(self.down[nth])),
            _ => Happened::Other(step),
        }
    }

    fn look(&mut self, at: usize) {
        let now = self.now;
        self.hosts[at].now = now;
        if let Some(cache) = &mut self.hosts[at].cache {
            cache.leases().set_now(now);
        }
    }

    fn device_looks(&mut self) {
        self.device_now = self.now;
        self.snoops.mark_overdue(self.now);
    }

    fn begin(&mut self, host: usize) {
        let part = self.hosts[host].program.pop_front().unwrap();
        let op = part.op;
        self.hosts[host].under_way += 1;
        if self.hosts[host].cache.is_none() {
            return self.up.push((host, Up::Plain(op), self.now));
        }
        self.seen.insert((host, part), BTreeSet::from([self.latest[at(op.line())]]));
        self.look(host); // the clock is read after the access has come
        let store = match op {
            Load(_) => None,
            Store(_, value) => Some((bytes(value), 1)),
            Whole(_, value) => Some((bytes(value), u64::MAX)),
        };
        let cache = self.hosts[host].cache.as_mut().unwrap();
        cache.access(op.line(), Access { what: part, store });
        self.cached(host);
    }

    fn ndr(&mut self, at: usize) {
        let Ndr { what, lease, sent } = self.hosts[at].ndr.pop_front().unwrap();
        let Some(cache) = &mut self.hosts[at].cache else {
            self.hosts[at].under_way -= 1;
            return;
        };
        cache.leases().renew(lease, sent);
        assert!(match what {
            Done::Granted(line, hold) => cache.granted(line, hold, lease.number),
            Done::Written(line, refused) => cache.written(line, refused),
            Done::Known(line) => cache.conflict_known(line),
        });
        self.cached(at);
    }

    fn answer(&mut self, host: usize, what: Done, sent: Instant) {
        let is_cached = self.hosts[host].cache.is_some();
        let lease = if is_cached { self.snoops.lease(pid(host)) } else { Lease::NONE };
        self.hosts[host].ndr.push_back(Ndr { what, lease, sent });
    }

    fn device(&mut self, host: usize, up: Up, sent: Instant) {
        let who = pid(host);
        let mut ask = |line, want, what| {
            self.filter.ask(line, Asker::Cache(who), want, what).unwrap();
        };
        match up {
            Up::Read { line, exclusive } => {
                let want = if exclusive { Want::Exclusive } else { Want::Shared };
                ask(line, want, What::Read { host, line, sent });
            }
            Up::Through { line, value, whole } => {
                ask(line, Want::NoCopy, What::Write { host, line, value, whole, sent });
            }
            Up::Plain(op) => {
                let want = if matches!(op, Load(_)) { Want::Current } else { Want::NoCopy };
                ask(op.line(), want, What::Plain { host, op });
            }
            Up::WriteBack { line, value, left } => {
                let owns = self.filter.hold_of(who, line) == Some(Hold::Owned);
                assert!(owns || self.may_fail, "not the owner");
                if owns {
                    self.memory[at(line)] = value;
                    assert!(self.filter.leave(who, line, left));
                }
                self.answer(host, Done::Written(line, !owns), sent);
            }
            Up::Evict { line } => {
                self.filter.leave(who, line, None);
                self.answer(host, Done::Written(line, false), sent);
            }
            Up::Conflict { line } => self.answer(host, Done::Known(line), sent),
            Up::Answer { tag, line, left } => match self.snoops.asked(who, tag, addr_of(line)) {
                Ok(line) => {
                    let done = self.filter.answered(who, line, left);
                    assert!(done.is_ok() || self.may_fail, "{done:?}");
                    if done.is_ok() {
                        self.snoops.answered(tag);
                    }
                }
                Err(why) => assert!(self.may_fail || why == NotAsked::Late, "{why:?}"),
            },
        }
        self.settle();
    }

    /// Carries out requests that the filter lets go.
    fn settle(&mut self) {
        while let Some(effect) = self.filter.next_effect() {
            match effect {
                Effect::Snoop { to, line, how } => {
                    let tag = self.snoops.ask(self.device_now, to, line, addr_of(line)).unwrap();
                    self.down.push((host_of(to), Down::Snoop(line, how, tag)));
                }
                Effect::Go { what: What::Read { host, line, sent }, grant } => {
                    self.answer(host, Done::Granted(line, grant), sent);
                    self.down.push((host, Down::Data(line, self.memory[at(line)])));
                }
                Effect::Go { what: What::Write { host, line, value, whole, sent }, .. } => {
                    self.store(line, value, whole);
                    self.answer(host, Done::Written(line, false), sent);
                }
                Effect::Go { what: What::Plain { host, op }, .. } => {
                    match op {
                        Store(line, value) => self.store(line, value, false),
                        Whole(line, value) => self.store(line, value, true),
                        Load(line) => {
                            // An owner may have stored again since it was snooped for the value.
                            let owned = self.filter.holders(line).iter();
                            let owned = owned.clone().any(|(_, hold)| *hold == Hold::Owned);
                            let is_latest = self.memory[at(line)] == self.latest[at(line)];
                            assert!(owned || is_latest, "stale: {op:?} after {:?}", self.told);
                        }
                    }
                    self.answer(host, Done::Written(0, false), self.now);
                }
                Effect::Lost { line, .. } => {
                    assert!(self.may_fail, "all hosts answer");
                    self.memory[at(line)] = POISON;
                    self.is_now(line, GIVEN_UP);
                    self.is_now(line, POISON);
                }
            }
        }
    }

    /// The device stores.
    fn store(&mut self, line: u64, value: u8, whole: bool) {
        if whole || self.memory[at(line)] != POISON {
            self.memory[at(line)] = value;
            self.is_now(line, value);
        }
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

    fn cached(&mut self, at: usize) {
        while let Some(out) = self.hosts[at].cache.as_mut().unwrap().next_out() {
            let host = &mut self.hosts[at];
            let up = match out {
                Out::Read { line, exclusive } => Up::Read { line, exclusive },
                Out::WriteBack { line, data, left } => Up::WriteBack { line, value: data[0], left },
                Out::Evict { line } => Up::Evict { line },
                Out::Conflict { line } => Up::Conflict { line },
                Out::Through { line, data, mask } => {
                    assert!(self.may_fail, "the device keeps lines coherent");
                    host.through.insert(line);
                    Up::Through { line, value: data[0], whole: mask == u64::MAX }
                }
                Out::Answer { line, left } => {
                    for tag in host.snooped.remove(&line).unwrap_or_default() {
                        self.up.push((at, Up::Answer { tag, line, left }, host.now));
                    }
                    continue;
                }
                Out::Unanswered { line } => {
                    host.snooped.remove(&line);
                    continue;
                }
                Out::Done { what, result } => {
                    host.under_way -= 1;
                    self.done(at, what, result);
                    continue;
                }
            };
            let sent = host.now;
            self.up.push((at, up, sent));
        }
    }

    fn done(&mut self, host: usize, part: Part, result: Result<Bytes, Failure>) {
        let seen = self.seen.remove(&(host, part)).unwrap();
        let value = match result {
            Ok(bytes) => bytes[0],
            Err(why) => {
                assert!(why == Failure::Poisoned && self.may_fail, "{why:?}");
                POISON
            }
        };
        let told = &self.told;
        match part.op {
            _ if value == POISON => {
                assert!(seen.contains(&POISON), "not poisoned: {part:?} of {host} after {told:?}");
            }
            Load(line) => {
                let is_there = seen.contains(&value);
                assert!(is_there, "stale: {part:?} of {host}, {value} of {seen:?} after {told:?}");
                let latest = self.latest[at(line)];
                assert!(self.may_fail || value == latest, "{value} for {latest}, {told:?}");
            }
            Store(line, _) | Whole(line, _) if self.hosts[host].through.remove(&line) => {}
            Store(line, stored) | Whole(line, stored) => {
                assert!(value == stored, "{part:?} of {host}");
                if self.filter.hold_of(pid(host), line) == Some(Hold::Owned) {
                    self.is_now(line, stored);
                } else {
                    // The access counts as done when the host read its clock, before the device gave up the line.
                    assert!(seen.contains(&GIVEN_UP), "lost: {part:?} of {host}, {told:?}");
                    for ((_, part), seen) in &mut self.seen {
                        if part.op.line() == line && seen.contains(&GIVEN_UP) {
                            seen.insert(stored);
                        }
                    }
                }
            }
        }
    }

    /// The filter knows every copy that a host may use, and an owner is the only holder.
    fn no_host_has_more_than_the_filter(&mut self) {
        let now = self.now;
        for (number, host) in self.hosts.iter_mut().enumerate() {
            let Some(cache) = &host.cache else { continue };
            let mut cache = cache.clone();
            cache.leases().set_now(now); // although it has not read its clock
            for line in 0..LINES as u64 {
                let known = self.filter.hold_of(pid(number), line);
                let had = cache.usable(line).map(|(hold, _)| hold);
                let told = &self.told;
                assert!(had <= known, "{number} has {had:?} of {line}, not {known:?}: {told:?}");
            }
        }
    }
}

/// Two hosts load and store the same lines, with caches and filters of all lines, and of one line.
#[test]
fn two_hosts_in_every_order() {
    let (a, b) = ([Load(0), Store(0, 1), Store(1, 2)], [Store(0, 3), Load(1), Load(0)]);
    let mut states = 0;
    for (cache, room) in [(2, 2), (1, 2), (2, 1), (1, 1)] {
        states += explore(World::new(&[(cache, &a), (cache, &b)], room, NONE));
    }
    println!("{states} states");
    assert!(states > 5_000, "{states}");
}

/// Three hosts at two lines; places for one line in each cache, for one or two in the filter.
#[test]
fn three_hosts_in_every_order() {
    let programs = [[Store(0, 1), Load(1)], [Load(0), Store(1, 2)], [Store(0, 3), Load(0)]];
    let mut states = 0;
    for room in [1, 2] {
        let [a, b, c] = &programs;
        states += explore(World::new(&[(1, a), (1, b), (1, c)], room, NONE));
    }
    println!("{states} states");
    assert!(states > 5_000, "{states}");
}

/// A host without a cache stores and loads among two that have one.
#[test]
fn a_host_without_a_cache_in_every_order() {
    let (a, b, c) = ([Store(0, 1), Load(0)], [Load(0), Store(0, 2)], [Store(0, 3), Load(0)]);
    let states = explore(World::new(&[(1, &a), (1, &b), (0, &c)], 1, NONE));
    println!("{states} states");
    assert!(states > 1_000, "{states}");
}

/// Name, programs of the hosts with their cache lines, and faults.
type Case<'a> = (&'a str, &'a [(usize, &'a [Op])], Faults);

/// Explores each case; together they must have more states than `least`.
fn explore_all(cases: &[Case<'_>], least: usize) {
    let mut states = 0;
    for (name, programs, faults) in cases {
        let found = explore(World::new(programs, 1, *faults));
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
const LOAD_STORE: &[Op] = &[Load(0), Store(0, 2)];
const LOAD_WHOLE: &[Op] = &[Load(0), Whole(0, 3)];
const WHOLE: &[Op] = &[Whole(0, 3)];

/// A host or the device is stopped at any point, for longer than the time limit of a snoop.
#[test]
fn a_host_or_the_device_is_stopped_anywhere() {
    let cases: [Case<'_>; 4] = [
        ("two caches", &[(1, STORE_LOAD), (1, LOAD_WHOLE)], faults(Stopped::Host, 0, 0)),
        ("a cache and none", &[(1, STORE_LOAD), (0, LOAD_WHOLE)], faults(Stopped::Host, 0, 0)),
        ("one place", &[(1, STORES), (1, LOAD)], faults(Stopped::Host, 0, 0)),
        ("two caches", &[(1, STORE_LOAD), (1, WHOLE)], faults(Stopped::Device, 0, 0)),
    ];
    explore_all(&cases, 300_000);
}

/// Any one snoop or answer is lost.
#[test]
fn a_lost_snoop_or_answer_in_every_order() {
    let cases: [Case<'_>; 3] = [
        ("two caches", &[(1, STORE_LOAD), (1, WHOLE)], faults(Stopped::Neither, 1, 0)),
        ("a cache and none", &[(1, STORE_LOAD), (0, LOAD_WHOLE)], faults(Stopped::Neither, 1, 0)),
        ("three", &[(1, STORE), (1, LOAD), (0, WHOLE)], faults(Stopped::Neither, 1, 0)),
    ];
    explore_all(&cases, 100_000);
}

/// Any one snoop or answer comes twice, the second time as late as possible.
#[test]
fn a_doubled_snoop_or_answer_in_every_order() {
    let cases: [Case<'_>; 2] = [
        ("two caches", &[(1, STORE_LOAD), (1, LOAD)], faults(Stopped::Neither, 0, 1)),
        ("a cache and none", &[(1, STORE), (0, LOAD_WHOLE)], faults(Stopped::Neither, 0, 1)),
    ];
    explore_all(&cases, 50_000);
}

#[test]
#[ignore = "soak: run by `make soak`"]
fn soak_stopped_lost_and_doubled_together() {
    let (host, device) = (Stopped::Host, Stopped::Device);
    let longer = Faults { ticks: 3, ..faults(host, 0, 0) };
    let cases: [Case<'_>; 7] = [
        ("two caches", &[(1, STORE_LOAD), (1, LOAD_WHOLE)], longer),
        ("two caches", &[(1, STORE_LOAD), (1, LOAD_STORE)], faults(host, 1, 0)),
        ("two caches", &[(1, STORE_LOAD), (1, LOAD_STORE)], faults(device, 0, 0)),
        ("two caches", &[(1, STORE_LOAD), (1, WHOLE)], faults(device, 1, 1)),
        ("a cache and none", &[(1, STORE_LOAD), (0, LOAD_STORE)], faults(host, 0, 1)),
        ("three", &[(1, STORE), (1, LOAD), (1, WHOLE)], faults(host, 0, 0)),
        ("three", &[(1, STORE), (1, LOAD), (0, WHOLE)], faults(device, 1, 0)),
    ];
    explore_all(&cases, 1_000_000);
}
