//! Every interleaving of small programs on one device and two or three hosts: one writer, no stale load, no deadlock.
//! Shape: [`World`] is all state and all messages under way; a step delivers one message or begins one access.
//! Source: docs/spec/cxl-fabric.md "Back-invalidate".
//!
//! S2M NDR of one host come in their order, all other messages in any.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};

use weft_parsers::cxl_mem::LINE;
use weft_parsers::fabric::Pid;

use super::super::cache::{Access, Bytes, Cache, Out};
use super::super::filter::{Asker, Effect, Filter, Want};
use super::super::{Hold, Snoop};

/// A part of a program: line, and the value that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Op {
    Load(u64),
    Store(u64, u8),
}
use Op::{Load, Store};

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
    Evict {
        line: u64,
    },
    Conflict {
        line: u64,
    },
    Answer {
        line: u64,
        left: Option<Hold>,
    },
    /// Of a host without cache.
    Plain(Op),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Ndr {
    Granted(u64, Option<Hold>),
    Written(u64),
    Known(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Down {
    Data(u64, u8),
    Snoop(u64, Snoop),
}

/// What a device carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum What {
    Read { host: usize, line: u64 },
    Plain { host: usize, op: Op },
}

#[derive(Clone, Debug, Hash)]
struct Host {
    /// None: without a cache.
    cache: Option<Cache<Op>>,
    program: VecDeque<Op>,
    under_way: usize,
    ndr: VecDeque<Ndr>,
}

#[derive(Clone, Debug, Hash)]
struct World {
    memory: [u8; 3],
    filter: Filter<What>,
    hosts: Vec<Host>,
    up: Vec<(usize, Up)>,
    down: Vec<(usize, Down)>,
    /// The value that was stored last.
    latest: [u8; 3],
    told: Told,
}

/// What happened so far; two worlds are one whatever it was.
#[derive(Clone, Debug, Default)]
struct Told(Vec<String>);

impl Hash for Told {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, Debug)]
enum Step {
    Begin(usize),
    Up(usize),
    Ndr(usize),
    Down(usize),
}

fn pid(host: usize) -> Pid {
    Pid::from_low_bits(u16::try_from(host).unwrap() + 1)
}

fn host_of(pid: Pid) -> usize {
    usize::from(pid.bits()) - 1
}

fn bytes(value: u8) -> Bytes {
    let mut bytes = [0; LINE];
    bytes[0] = value;
    bytes
}

impl World {
    /// Hosts with these programs and caches of so many lines (0: none), and a filter of `room` lines.
    fn new(programs: &[(usize, &[Op])], room: usize) -> Self {
        let host = |&(cache, program): &(usize, &[Op])| Host {
            cache: (cache > 0).then(|| Cache::new(cache)),
            program: program.iter().copied().collect(),
            under_way: 0,
            ndr: VecDeque::new(),
        };
        Self {
            memory: [0; 3],
            filter: Filter::new(room),
            hosts: programs.iter().map(host).collect(),
            up: Vec::new(),
            down: Vec::new(),
            latest: [0; 3],
            told: Told::default(),
        }
    }

    fn steps(&self) -> Vec<Step> {
        let begin = self.hosts.iter().enumerate().filter(|(_, host)| !host.program.is_empty());
        let ndr = self.hosts.iter().enumerate().filter(|(_, host)| !host.ndr.is_empty());
        let mut steps: Vec<Step> = begin.map(|(at, _)| Step::Begin(at)).collect();
        steps.extend(ndr.map(|(at, _)| Step::Ndr(at)));
        steps.extend((0..self.up.len()).map(Step::Up));
        steps.extend((0..self.down.len()).map(Step::Down));
        steps
    }

    fn step(&mut self, step: &Step) {
        self.told.0.push(self.name(step));
        match *step {
            Step::Begin(at) => {
                let op = self.hosts[at].program.pop_front().unwrap();
                self.hosts[at].under_way += 1;
                let Some(cache) = &mut self.hosts[at].cache else {
                    return self.up.push((at, Up::Plain(op)));
                };
                match op {
                    Load(line) => cache.access(line, Access { what: op, store: None }),
                    Store(line, value) => {
                        cache.access(line, Access { what: op, store: Some((bytes(value), 1)) });
                    }
                }
                self.cached(at);
            }
            Step::Up(nth) => {
                let (host, up) = self.up.swap_remove(nth);
                self.device(host, up);
            }
            Step::Ndr(at) => {
                let ndr = self.hosts[at].ndr.pop_front().unwrap();
                let Some(cache) = &mut self.hosts[at].cache else {
                    self.hosts[at].under_way -= 1;
                    return;
                };
                assert!(match ndr {
                    Ndr::Granted(line, hold) => cache.granted(line, hold),
                    Ndr::Written(line) => cache.written(line),
                    Ndr::Known(line) => cache.conflict_known(line),
                });
                self.cached(at);
            }
            Step::Down(nth) => {
                let (at, down) = self.down.swap_remove(nth);
                let cache = self.hosts[at].cache.as_mut().unwrap();
                match down {
                    Down::Data(line, value) => {
                        assert!(cache.data(line, &bytes(value), false, false));
                    }
                    Down::Snoop(line, how) => cache.snoop(line, how),
                }
                self.cached(at);
            }
        }
        self.up.sort_unstable();
        self.down.sort_unstable();
        self.one_writer();
    }

    fn name(&self, step: &Step) -> String {
        match *step {
            Step::Begin(at) => format!("{at} begins {:?}", self.hosts[at].program.front()),
            Step::Up(nth) => format!("device has {:?}", self.up[nth]),
            Step::Ndr(at) => format!("{at} has {:?}", self.hosts[at].ndr.front()),
            Step::Down(nth) => format!("{} has {:?}", self.down[nth].0, self.down[nth].1),
        }
    }

    fn device(&mut self, host: usize, up: Up) {
        let who = pid(host);
        match up {
            Up::Read { line, exclusive } => {
                let want = if exclusive { Want::Exclusive } else { Want::Shared };
                self.filter.ask(line, Asker::Cache(who), want, What::Read { host, line }).unwrap();
            }
            Up::WriteBack { line, value, left } => {
                assert_eq!(self.filter.hold_of(who, line), Some(Hold::Owned), "not the owner");
                self.memory[usize::try_from(line).unwrap()] = value;
                assert!(self.filter.leave(who, line, left));
                self.hosts[host].ndr.push_back(Ndr::Written(line));
            }
            Up::Evict { line } => {
                self.filter.leave(who, line, None);
                self.hosts[host].ndr.push_back(Ndr::Written(line));
            }
            Up::Conflict { line } => self.hosts[host].ndr.push_back(Ndr::Known(line)),
            Up::Answer { line, left } => self.filter.answered(who, line, left).unwrap(),
            Up::Plain(op) => {
                let (line, want) = match op {
                    Load(line) => (line, Want::Current),
                    Store(line, _) => (line, Want::Nobody),
                };
                self.filter.ask(line, Asker::Cache(who), want, What::Plain { host, op }).unwrap();
            }
        }
        while let Some(effect) = self.filter.next_effect() {
            match effect {
                Effect::Snoop { to, line, how } => {
                    self.down.push((host_of(to), Down::Snoop(line, how)));
                }
                Effect::Go { what: What::Read { host, line }, grant } => {
                    let value = self.memory[usize::try_from(line).unwrap()];
                    self.hosts[host].ndr.push_back(Ndr::Granted(line, grant));
                    self.down.push((host, Down::Data(line, value)));
                }
                Effect::Go { what: What::Plain { host, op }, .. } => {
                    match op {
                        Store(line, value) => {
                            let at = usize::try_from(line).unwrap();
                            (self.memory[at], self.latest[at]) = (value, value);
                        }
                        Load(line) => {
                            let at = usize::try_from(line).unwrap();
                            // An owner that was asked may have gone on to store since.
                            let owned = self.filter.holders(line).iter();
                            let owned = owned.clone().any(|(_, hold)| *hold == Hold::Owned);
                            assert!(owned || self.memory[at] == self.latest[at], "stale: {op:?}");
                        }
                    }
                    self.hosts[host].ndr.push_back(Ndr::Written(0));
                }
                Effect::Lost { .. } => panic!("all hosts answer"),
            }
        }
    }

    fn cached(&mut self, at: usize) {
        let host = &mut self.hosts[at];
        while let Some(out) = host.cache.as_mut().unwrap().next_out() {
            let up = match out {
                Out::Read { line, exclusive } => Up::Read { line, exclusive },
                Out::WriteBack { line, data, left } => Up::WriteBack { line, value: data[0], left },
                Out::Evict { line } => Up::Evict { line },
                Out::Conflict { line } => Up::Conflict { line },
                Out::Answer { line, left } => Up::Answer { line, left },
                Out::Through { .. } => panic!("the device keeps lines coherent"),
                Out::Done { what, result } => {
                    host.under_way -= 1;
                    let value = result.unwrap()[0];
                    match what {
                        Load(line) => {
                            let latest = self.latest[usize::try_from(line).unwrap()];
                            assert_eq!(value, latest, "stale: {what:?} of host {at}");
                        }
                        Store(line, stored) => {
                            assert_eq!(value, stored);
                            self.latest[usize::try_from(line).unwrap()] = stored;
                        }
                    }
                    continue;
                }
            };
            self.up.push((at, up));
        }
    }

    /// Who owns a line is alone with it.
    fn one_writer(&self) {
        for line in 0..3 {
            let held = |host: &Host| host.cache.as_ref()?.held(line).map(|(hold, _)| hold);
            let holds: Vec<Hold> = self.hosts.iter().filter_map(held).collect();
            let alone = holds.len() < 2 || holds.iter().all(|hold| *hold == Hold::Shared);
            assert!(alone, "line {line}: {holds:?} after {:#?}", self.told.0);
        }
    }

    fn is_over(&self) -> bool {
        self.hosts.iter().all(|host| host.under_way == 0) && self.filter.waiting() == 0
    }
}

/// Goes every way from `start`; returns how many states there are.
fn explore(start: World) -> usize {
    let (mut seen, mut open) = (BTreeSet::new(), vec![start]);
    while let Some(world) = open.pop() {
        let steps = world.steps();
        if steps.is_empty() {
            assert!(world.is_over(), "deadlock: {world:#?}");
        }
        for step in steps {
            let mut next = world.clone();
            next.step(&step);
            let mut hasher = DefaultHasher::new();
            next.hash(&mut hasher);
            if seen.insert(hasher.finish()) {
                open.push(next);
            }
        }
    }
    seen.len()
}

/// Two hosts that load and store the same lines, with caches and filters that hold all, and that hold one line.
#[test]
fn two_hosts_in_every_order() {
    let (a, b) = ([Load(0), Store(0, 1), Store(1, 2)], [Store(0, 3), Load(1), Load(0)]);
    let mut states = 0;
    for (cache, room) in [(2, 2), (1, 2), (2, 1), (1, 1)] {
        states += explore(World::new(&[(cache, &a), (cache, &b)], room));
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
        states += explore(World::new(&[(1, a), (1, b), (1, c)], room));
    }
    println!("{states} states");
    assert!(states > 5_000, "{states}");
}

/// A host without a cache stores and loads among two that have one.
#[test]
fn a_host_without_a_cache_in_every_order() {
    let (a, b, c) = ([Store(0, 1), Load(0)], [Load(0), Store(0, 2)], [Store(0, 3), Load(0)]);
    let states = explore(World::new(&[(1, &a), (1, &b), (0, &c)], 1));
    println!("{states} states");
    assert!(states > 1_000, "{states}");
}
