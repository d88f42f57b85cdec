//! A fabric whose protection is set up by commands, and requests that test it.
//!
//! [`Guarded`] is built on [`Fabric`]. A [`Probe`] is an access that is tried as each kind of [`How`], and [`Told`] is
//! the effect of its refusal.
//!
//! Source: docs/spec/wire-formats.md §4.5 to §4.7; docs/spec/cxl-fabric.md "Tables of an edge and who may write them".
#![expect(clippy::redundant_pub_crate, reason = "a module of a test")]

mod tables;

use std::collections::BTreeMap;

use weft_cxl::completer::Target as _;
use weft_cxl::cxl_device::HdmConfig;
use weft_cxl::cxl_host::Export;
use weft_cxl::cxl_host::mailbox::{Ring, blocks};
use weft_cxl::pci::{ByteEnables, Reg};
use weft_cxl::requester::{Failure, Operation, Transaction};
use weft_dataplane::pbr::Refusal;
use weft_dataplane::stats::DropReason;
use weft_dataplane::time::Span;
use weft_parsers::cci::gae::{AccessOp, PrefixFlags};
use weft_parsers::cci::gfd_access::SAT_NOTIFY;
use weft_parsers::cci::notify::{FmNotification, HostNotification, events, flags, kind};
use weft_parsers::cci::tables::LdstAccess;
use weft_parsers::cci::{Bits, Payload};
use weft_parsers::fabric::{Dpa, Hpa};
use weft_parsers::tlp::Status;

use super::agent_rig::manager::{GFD_PID, HOST_EDGE, SECOND};
use super::agent_rig::{BLOCK, DEVICE, FABRIC, Fabric, NEAR, PEER, pid};
use super::rig::{RAM, pattern};
pub(crate) use tables::{Order, decoder, gfam, gim, ldfam, no_decoders};

/// PIDs of the second host's edge and of the near device's port.
pub(crate) const PEER_EDGE: u16 = 0x0A2;
pub(crate) const NEAR_EDGE: u16 = 0x0B1;
/// First address of the host's window. Its segments lead to the GFD, to the GFD interleaved, and to the second host.
pub(crate) const WINDOW: u64 = 1 << 40;
pub(crate) const SEGMENT: u64 = 64 << 30;
const SHARED: u64 = WINDOW + 2 * SEGMENT;
/// First address of the near device's memory.
pub(crate) const LD_WINDOW: u64 = 1 << 42;
/// Length of the near device's memory in use, and of the second host's exported memory, which begins at [`EXPORTED`].
const SOME: u64 = 1 << 20;
const EXPORTED: u64 = RAM + SOME;
pub(crate) const OFF: PrefixFlags = PrefixFlags { out: false, into: false };
/// Bytes that a request reads or writes.
const LEN: usize = 64;

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Posted,
    Read,
    UioWrite,
    UioRead,
}

pub(crate) const PLAIN: &[How] = &[How::Posted, How::Read];
pub(crate) const UIO: &[How] = &[How::UioWrite, How::UioRead];
pub(crate) const ALL: &[How] = &[How::Posted, How::Read, How::UioWrite, How::UioRead];

/// The memory that a request really reaches, with the offset in it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Gfd(u64),
    Peer(u64),
    Near(u64),
}

/// An access to memory: its address, and its expected target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    pub at: u64,
    /// PID for a prefix; `None` without a prefix.
    pub to: Option<u16>,
    pub place: Place,
    /// Kinds of request that reach the place; [`Self::plain`] is the refusal of plain ones that never do.
    pub kinds: &'static [How],
    pub plain: Option<Refusal>,
}

const fn at_gfd(at: u64, dpa: u64) -> Probe {
    Probe { at, to: None, place: Place::Gfd(dpa), kinds: ALL, plain: None }
}

pub(crate) const DIRECT: Probe = at_gfd(WINDOW + 0x1000, 0x1000);
/// Both ways of the interleaved segment lead to the same GFD.
pub(crate) const DEALT: Probe = at_gfd(WINDOW + SEGMENT + 0x2100, 0x2100);
pub(crate) const OTHER_GROUP: Probe = at_gfd(WINDOW + BLOCK + 0x40, BLOCK + 0x40);
pub(crate) const GIM: Probe = Probe {
    at: SHARED + 0x3000,
    to: None,
    place: Place::Peer(0x3000),
    kinds: UIO,
    plain: Some(Refusal::GimNeedsUio),
};
pub(crate) const PREFIXED: Probe = Probe {
    at: SHARED + 0x4000,
    to: Some(PEER_EDGE),
    place: Place::Peer(0x4000),
    kinds: UIO,
    plain: Some(Refusal::PrefixNeedsUio),
};
pub(crate) const LDFAM: Probe = Probe {
    at: LD_WINDOW + 0x5000,
    to: None,
    place: Place::Near(0x5000),
    kinds: UIO,
    plain: Some(Refusal::UpstreamClaimsNot),
};

/// Effect of a refusal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Told {
    /// A port of a switch counts it, and answers requests that need an answer.
    Edge { switch: usize, port: usize, refusal: Refusal },
    /// The GFD counts and answers it, and notifies the FM. It notifies the host, too, if `host` is set.
    Device { trigger: u8, dpa: Option<Dpa>, group: Option<u16>, host: bool },
}

impl Told {
    /// Names of the counters that the refusal increases by 1; all others must not change.
    fn changes(&self, how: How) -> Vec<(String, u64)> {
        let names = match (*self, how) {
            (Self::Edge { switch, port, refusal }, _) => {
                let end = match how {
                    How::Posted => format!("dropped {}", DropReason::UnsupportedRequest.name()),
                    _ => "answered".to_owned(),
                };
                let refused = format!("refused {}", refusal.name());
                [end, refused].map(|it| format!("switch {switch} port {port} {it}")).to_vec()
            }
            (Self::Device { host, .. }, _) => {
                let refused = if how == How::Posted { "gfd refused_posted" } else { "gfd refused" };
                let host = ["gfd gam", "host interrupts", "switch 0 told"].iter().filter(|_| host);
                let mut names: Vec<_> =
                    host.chain(&[refused]).map(|&name| name.to_owned()).collect();
                names.sort();
                names
            }
        };
        names.into_iter().map(|name| (name, 1)).collect()
    }

    /// Checks the notifications that a refused request at address `at` causes.
    fn check(&self, at: u64, told: &Notices, name: &str) {
        let Self::Device { trigger, dpa, group, host } = *self else {
            assert_eq!((&told.fm[..], &told.host[..]), (&[][..], &[][..]), "{name}: nobody tells");
            return;
        };
        let [fm] = told.fm[..] else { panic!("{name}: one for the FM, not {:?}", told.fm) };
        let dpa_flag = if dpa.is_some() { flags::DPA } else { 0 };
        let group_flag = if group.is_some() { flags::GROUP } else { 0 };
        let common = flags::REQUEST | flags::HPA | dpa_flag;
        let want = FmNotification {
            pid: pid(GFD_PID),
            events: events::WARNING,
            kind: kind::ACCESS_ERROR,
            trigger,
            rpid: pid(HOST_EDGE),
            dpa: dpa.unwrap_or_default(),
            hpa: Hpa(at),
            group: group.unwrap_or_default(),
            opcode: Bits::from_low_bits(0),
            flags: common | group_flag,
            event: fm.event,
            timestamp_ns: fm.timestamp_ns,
        };
        assert_eq!(fm, want, "{name}");
        let span = told.since_ns..=told.until_ns;
        assert!(fm.event != 0 && span.contains(&fm.timestamp_ns), "{name}: {span:?} {fm:?}");
        let want = HostNotification {
            pid: pid(GFD_PID),
            kind: kind::ACCESS_ERROR,
            opcode: Bits::from_low_bits(0),
            flags: common,
            rpid: pid(HOST_EDGE),
            dpa: dpa.unwrap_or_default(),
            hpa: Hpa(at),
            timestamp_ns: fm.timestamp_ns,
        };
        let want: Vec<_> = Some(want).filter(|_| host).into_iter().collect();
        assert_eq!(told.host, want, "{name}: in the host's ring");
    }
}

/// Notifications of the GFD, and the bounds of the times at which it may have sent them.
struct Notices {
    fm: Vec<FmNotification>,
    host: Vec<HostNotification>,
    since_ns: u64,
    until_ns: u64,
}

pub(crate) struct Guarded {
    fabric: Fabric,
    ring: Ring,
    seed: u64,
}

impl core::ops::Deref for Guarded {
    type Target = Fabric;
    fn deref(&self) -> &Fabric {
        &self.fabric
    }
}

impl core::ops::DerefMut for Guarded {
    fn deref_mut(&mut self) -> &mut Fabric {
        &mut self.fabric
    }
}

/// A fabric that is claimed, bound, enumerated, and set up so that every probe succeeds.
pub(crate) fn up() -> Guarded {
    let mut fabric = Fabric::with_peer(256, HdmConfig::at(Hpa(LD_WINDOW), 1 << 28));
    fabric.exports[1] = Export { base: Hpa(SHARED), len: SOME, local: EXPORTED };
    fabric.crawl();
    fabric.assign(&[], DEVICE[0], NEAR_EDGE);
    fabric.assign(&SECOND, PEER, PEER_EDGE);
    fabric.route(&[], NEAR_EDGE, DEVICE[0]);
    fabric.route(&SECOND, NEAR_EDGE, FABRIC[1]);
    fabric.route(&[], PEER_EDGE, FABRIC[0]);
    fabric.route(&SECOND, PEER_EDGE, PEER);
    fabric.enumerate();
    fabric.bind_near();
    fabric.wait_for(NEAR, true);
    let ring = Ring::new(Hpa(RAM + 0x8000));
    let mut guarded = Guarded { fabric, ring, seed: 0 };
    guarded.turn_interrupts_on();
    let set = guarded.raw_command(Ring::SET, &ring.set(true));
    assert_eq!(set.code, 0);
    guarded.allow_gfd(AccessOp::EnableGmv);
    guarded.access(&[], PEER_EDGE, AccessOp::EnableVtv);
    guarded.access(&SECOND, HOST_EDGE, AccessOp::EnableVtv);
    guarded.lav(NEAR_EDGE, LdstAccess::Enable);
    guarded.prefixes(&[], PrefixFlags { out: false, into: true });
    guarded.prefixes(&SECOND, PrefixFlags { out: true, into: false });
    guarded.set_window(PrefixFlags { out: false, into: true });
    guarded.put_idt([GFD_PID; 2].map(pid));
    guarded.put_fast(0, Some(gfam()));
    guarded.put_fast(1, Some(tables::dealt()));
    guarded.put_fast(2, Some(gim()));
    guarded.put_ldst(Some(ldfam()));
    guarded.put_decoder(0, Some(decoder(WINDOW, 0)));
    guarded.put_decoder(1, Some(decoder(WINDOW + SEGMENT, 0)));
    guarded.put_sat(1 | SAT_NOTIFY);
    guarded
}

impl Guarded {
    /// Turns on the interrupts of the GAE to the host.
    fn turn_interrupts_on(&mut self) {
        let tree = self.net.hosts[0].0.tree().unwrap();
        let [(dest, _)] = blocks(tree)[..] else { panic!("one GAE") };
        let msi = tree.get(dest).unwrap().msi.unwrap();
        let writes = [
            (msi + 4, 0xFEE0_0000, 0xF),
            (msi + 8, 0, 0xF),
            (msi + 12, 0x47, 3),
            (msi, 1 << 16, 12),
        ];
        for (at, value, enables) in writes {
            let (reg, enables) = (Reg::at(at), ByteEnables::from_low_bits(enables));
            let what = Operation::ConfigWrite { dest, reg, type1: false, value, enables };
            let op = self.net.hosts[0].0.submit(what);
            assert_eq!(self.finish(op), Ok(vec![]));
        }
    }

    /// Sends a request, and waits until all its effects are over.
    pub(crate) fn send(&mut self, probe: &Probe, how: How, seed: u64) -> Result<Vec<u8>, Failure> {
        let (addr, data) = (Hpa(probe.at), pattern(seed, LEN));
        let what = match how {
            How::Posted => Operation::Write { addr, data },
            How::Read => Operation::Read { addr, len: LEN },
            How::UioWrite => Operation::UioWrite { addr, data },
            How::UioRead => Operation::UioRead { addr, len: LEN },
        };
        let ask = Transaction { to: probe.to.map(pid), ..what.into() };
        let op = self.net.hosts[0].0.submit(ask);
        let result = self.finish(op);
        self.rest(Span::from_ms(2)); // longer than the GFD suppresses equal notifications
        result
    }

    /// All counters that a request may change, by name.
    pub(crate) fn books(&self) -> BTreeMap<String, u64> {
        let mut books = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            for (port, ledger) in node.ledger().port.iter().enumerate() {
                let mut put = |what: &str, name: &str, value| {
                    books.insert(format!("switch {at} port {port} {what}{name}"), value);
                };
                for &refusal in Refusal::ALL {
                    put("refused ", refusal.name(), ledger.refused[refusal.index()]);
                }
                for &reason in DropReason::ALL {
                    put("dropped ", reason.name(), ledger.drops[reason as usize]);
                }
                put("answered", "", ledger.answered);
            }
            let (counts, _) = node.agent.counts();
            for (name, value) in [
                ("told", counts.told),
                ("unknown", counts.unknown),
                ("unsupported", counts.unsupported),
                ("unexpected", counts.unexpected),
                ("unsent", counts.unsent),
            ] {
                books.insert(format!("switch {at} {name}"), value);
            }
        }
        let mut put = |name: &str, value| books.insert(name.to_owned(), value);
        let (gfd, _) = self.gfd.0.counts();
        put("gfd reads", gfd.reads);
        put("gfd writes", gfd.writes);
        put("gfd atomics", gfd.atomics);
        put("gfd refused", gfd.refused);
        put("gfd refused_posted", gfd.refused_posted);
        put("gfd unrecognised", gfd.unrecognised);
        put("gfd unexpected", gfd.unexpected);
        put("gfd gam", gfd.gam);
        let hosts = &self.net.hosts;
        let [host, peer] = [0, 1].map(|at| hosts[at].0.counts());
        put("host interrupts", host.0.interrupts);
        put("host unsupported", host.0.tlps.unsupported);
        put("host messages", host.0.tlps.messages);
        put("host timeouts", host.1.timeouts);
        put("host unexpected", host.1.unexpected);
        put("host mismatched", host.1.mismatched);
        put("peer requests", peer.0.tlps.requests);
        put("peer served", peer.0.tlps.served);
        put("peer messages", peer.0.tlps.messages);
        put("peer unexpected", peer.1.unexpected);
        let (near, ..) = self.net.devices[0].0.counts();
        put("near requests", near.tlps.requests);
        put("near served", near.tlps.served);
        put("near messages", near.tlps.messages);
        books
    }

    /// Counters that have increased since `before`, with the increase.
    pub(crate) fn changes(&self, before: &BTreeMap<String, u64>) -> Vec<(String, u64)> {
        let changes = self.books().into_iter().zip(before);
        let changes = changes.map(|((name, now), (_, then))| (name, now - then));
        changes.filter(|&(_, by)| by > 0).collect()
    }

    /// Takes the notifications since the last call.
    fn notices(&mut self) -> Notices {
        let until_ns = self.net.now.as_ns();
        let fm = core::iter::from_fn(|| self.fabric.gfd.0.pop_fm());
        let fm = fm.map(|bytes| FmNotification::parse(&bytes).unwrap()).collect();
        let answer = self.raw_command(Ring::GET, &[]).payload;
        let taken = self.ring.take(&answer, self.fabric.net.hosts[0].0.memory()).unwrap();
        assert!(!taken.overflow);
        let entries = taken.entries.iter();
        let host = entries.map(|bytes| HostNotification::parse(bytes).unwrap()).collect();
        let set = self.ring.set(false);
        assert_eq!(self.raw_command(Ring::SET, &set).code, 0);
        Notices { fm, host, since_ns: 0, until_ns }
    }

    /// Reads the memory at the place of a probe.
    fn bytes(&mut self, place: Place, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        match place {
            Place::Gfd(dpa) => self.gfd.0.gfd().memory().read(dpa, &mut bytes).unwrap(),
            Place::Peer(at) => {
                assert!(self.net.hosts[1].0.memory().read(EXPORTED + at, &mut bytes));
            }
            Place::Near(at) => self.net.devices[0].0.hdm(0).unwrap().read(at, &mut bytes).unwrap(),
        }
        bytes
    }

    /// Copies all memory that a request of the tests might reach: the first part of each block, and the whole memory of
    /// the others.
    fn memories(&mut self) -> Vec<Vec<u8>> {
        let len = usize::try_from(SOME).unwrap();
        let places = [0, BLOCK, 2 * BLOCK].map(Place::Gfd).into_iter();
        let places: Vec<_> = places.chain([Place::Peer(0), Place::Near(0)]).collect();
        places.into_iter().map(|place| self.bytes(place, len)).collect()
    }

    /// Checks that writes of each kind arrive, that reads of each kind return the data, and that no notification is
    /// sent.
    pub(crate) fn works(&mut self, probe: &Probe) {
        self.notices();
        let before = self.books();
        let of = |all: [How; 2]| all.into_iter().filter(|how| probe.kinds.contains(how));
        for write in of([How::Posted, How::UioWrite]) {
            self.seed += 1;
            let seed = self.seed;
            let name = format!("{probe:?} {write:?}");
            assert_eq!(self.send(probe, write, seed), Ok(vec![]), "{name}");
            assert!(self.bytes(probe.place, LEN) == pattern(seed, LEN), "{name}: it is there");
            for read in of([How::Read, How::UioRead]) {
                let got = self.send(probe, read, 0);
                assert!(got == Ok(pattern(seed, LEN)), "{name}, {read:?}: {got:?}");
            }
        }
        let is_work = |name: &str| ["reads", "writes", "requests", "served"].contains(&name);
        let mut changes = self.changes(&before);
        changes.retain(|(name, _)| !is_work(name.rsplit(' ').next().unwrap()));
        assert_eq!(changes, [], "{probe:?}");
        let Notices { fm, host, .. } = self.notices();
        assert_eq!((&fm[..], &host[..]), (&[][..], &[][..]), "{probe:?}");
    }

    /// Checks that requests of these kinds are refused, answered and notified of as they must be, and write nothing.
    pub(crate) fn refused(&mut self, probe: &Probe, kinds: &[How], told: &Told) {
        let memories = self.memories();
        for &how in kinds {
            self.seed += 1;
            let (name, seed) = (format!("{probe:?} {how:?} {told:?}"), self.seed);
            self.notices();
            let (before, since_ns) = (self.books(), self.net.now.as_ns());
            let answer = self.send(probe, how, seed);
            let want = match how {
                How::Posted => Ok(vec![]), // a posted write has no answer
                _ => Err(Failure::Status(Status::UnsupportedRequest)),
            };
            assert_eq!(answer, want, "{name}");
            assert_eq!(self.changes(&before), told.changes(how), "{name}");
            let notices = Notices { since_ns, ..self.notices() };
            told.check(probe.at, &notices, &name);
        }
        assert!(self.memories() == memories, "{probe:?} {told:?}: something is written");
    }

    /// Checks that plain requests are refused where they can never reach the place.
    pub(crate) fn never(&mut self, probe: &Probe) {
        if let Some(refusal) = probe.plain {
            self.refused(probe, PLAIN, &Told::Edge { switch: 0, port: 0, refusal });
        }
    }
}
