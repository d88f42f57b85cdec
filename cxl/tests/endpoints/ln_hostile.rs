//! Lightweight Notification beside a hostile neighbour: below an HBR switch, a victim and a bare end that sends anything.
//!
//! A host whose software switches requesters on, two devices, and TLPs made by hand.
//!
//! Units: bytes.
//! Source: PCIe 5.0 section 6.21; PCIe 6.0 section 6.12.1.1.

use crate::rig::{Net, Place, RAM, device_config, end, function, host_config, pattern};
use weft_cxl::cxl_device::Event;
use weft_cxl::ln::{LineSize, LncCounts, LncSpec, Outcome, Regions};
use weft_cxl::pci::LnSettings;
use weft_cxl::pci::function::LnrSpec;
use weft_cxl::requester::{Operation, Transaction};
use weft_cxl::tlp_end::TlpEnd;
use weft_dataplane::port::pipe::Pipe;
use weft_dataplane::time::Span;
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::ln::{LnMessage, Reason, deregister, read, write};
use weft_parsers::tlp::{Mode, TlpRepr};

const LINE: u64 = RAM + 0x4000;
/// Lines that the host's software allows each function.
const LIMIT: u64 = 4;

/// Devices 0 and 1, and a bare end, below a switch; device 1 has only lines of `other` sizes.
struct Rig {
    net: Net,
    evil: (TlpEnd, Pipe),
}

impl Rig {
    fn new(cls128_only: bool) -> Self {
        let mut regions = Regions::new();
        regions.add(Hpa(RAM), 0x10_0000).unwrap();
        let mut net = Net::new();
        let mut config = host_config(Mode::NonFlit);
        config.spec.ln = Some(LnSettings { line: LineSize::B64, limit: 2 });
        config.lnc = Some(LncSpec {
            line: LineSize::B64,
            lines_max: 64,
            watchers_max: 4,
            translated: false,
            regions,
            broadcast_gap: Span::ZERO,
            pending_max: 64,
        });
        let host = net.host(config);
        let switch = net.switch(&[Mode::NonFlit; 4], true);
        net.join(host, Place::Switch(switch, 0));
        for at in 0..2_u16 {
            let mut function = function(0x0D01 + at);
            let cls64 = at == 0 || !cls128_only;
            function.spec.lnr = Some(LnrSpec { cls64, cls128: !cls64, registrations: 4 });
            let device = net.device(device_config(Mode::NonFlit, vec![function]));
            net.join(device, Place::Switch(switch, 1 + usize::from(at)));
        }
        let (near, far) = net.pipe();
        net.switches[switch].1[3] = Some(near);
        let evil = (TlpEnd::new(end(9, Mode::NonFlit, 256)), far);
        net.enumerate(0);
        let mut rig = Self { net, evil };
        rig.steps(32);
        rig
    }

    fn steps(&mut self, count: usize) {
        for _ in 0..count {
            let (end, port) = &mut self.evil;
            end.poll(self.net.now, port, &mut self.net.bufs, &mut |_, _| {}).unwrap();
            self.net.step();
        }
    }

    /// The bare end sends this.
    fn send(&mut self, tlp: &TlpRepr<'_>) {
        self.evil.0.outbox().send(None, tlp).unwrap();
        self.steps(16);
    }

    fn id(&self, at: usize) -> Bdf {
        self.net.devices[at].0.id(0).unwrap()
    }

    /// The device reads a line as its requester does.
    fn read(&mut self, at: usize, addr: u64) -> Outcome {
        let ask = self.net.devices[at].0.ask_ln(0, |lnr, out| lnr.ln_read(Hpa(addr), out));
        let ticket = ask.unwrap();
        self.net.device_until(at, |event| match event {
            Event::Ln { ticket: other, outcome, .. } if other == ticket => Some(outcome),
            _ => None,
        })
    }

    /// The device sends a request past its requester, which counts nothing; whether it is registered.
    fn raw_read(&mut self, at: usize, addr: u64) -> bool {
        let read = Operation::Read { addr: Hpa(addr), len: 64 };
        let ask = Transaction { ln: true, ..read.into() };
        let op = self.net.devices[at].0.submit(0, ask).unwrap();
        let done = self.net.device_wait(at, op);
        assert_eq!(done.result.map(|bytes| bytes.len()), Ok(64), "memory is read in any case");
        done.ln
    }

    fn held(&mut self, at: usize) -> usize {
        let id = self.id(at);
        self.net.hosts[0].0.lnc().unwrap().held(id)
    }

    fn counts(&mut self) -> LncCounts {
        self.net.hosts[0].0.lnc().unwrap().counts()
    }

    fn copy(&self, at: usize, addr: u64) -> Option<Vec<u8>> {
        self.net.devices[at].0.lnr(0).unwrap().copy(Hpa(addr)).map(<[u8]>::to_vec)
    }

    /// The host writes the line, and the victim must know it.
    fn no_copy_is_stale(&mut self, name: &str) {
        self.net.hosts[0].0.store(Hpa(LINE), &pattern(99, 64));
        self.steps(16);
        assert_eq!(self.copy(0, LINE), None, "{name}: its copy is stale");
    }
}

/// A device that does not keep to its limit registers nothing beyond it, and takes no line from another.
#[test]
fn beyond_its_limit_a_device_registers_nothing_and_others_keep_theirs() {
    let mut rig = Rig::new(false);
    assert_eq!(rig.read(1, LINE), Outcome::Cached);
    let registered = (0..200).filter(|at| rig.raw_read(0, LINE + 0x1000 + 64 * at)).count();
    assert_eq!((registered as u64, rig.held(0) as u64), (LIMIT, LIMIT));
    assert_eq!((rig.held(1), rig.counts().evicted, rig.counts().declined), (1, 0, 200 - LIMIT));
    // A write has no completion: that it is not registered is said by a message.
    let before = rig.net.devices[0].0.counts().0.tlps.messages;
    let data = vec![7; 64];
    let write = Operation::Write { addr: Hpa(LINE + 0x8000), data };
    rig.net.devices[0].0.submit(0, Transaction { ln: true, ..write.into() }).unwrap();
    rig.steps(16);
    assert_eq!(rig.net.devices[0].0.counts().0.tlps.messages, before + 1);
    // One that keeps to it is never declined.
    for at in 0..20 {
        assert_eq!(rig.read(1, LINE + 64 * at), Outcome::Cached, "{at}");
    }
    assert_eq!(rig.held(1) as u64, LIMIT);
}

/// Who has no lines of the system stays off: it registers nothing, whatever it sends.
#[test]
fn a_requester_that_is_off_registers_nothing() {
    let mut rig = Rig::new(true);
    assert!(rig.net.devices[1].0.ask_ln(0, |lnr, out| lnr.ln_read(Hpa(LINE), out)).is_err());
    assert!(!rig.raw_read(1, LINE));
    assert_eq!((rig.held(1), rig.counts().declined, rig.counts().registered), (0, 1, 0));
}

/// LN Messages come from the root: a switch drops them from below, so that nobody takes copies from another.
#[test]
fn messages_from_below_reach_nobody() {
    let mut rig = Rig::new(false);
    assert_eq!(rig.read(0, LINE), Outcome::Cached);
    let victim = rig.id(0);
    let sender = Bdf::new(victim.bus() + 2, 0, 0);
    let host = Bdf::new(0, 0, 0);
    let before = rig.net.switches[0].0.counts().dropped;
    let mut sent = 0;
    for dest in [Some(victim), Some(host), None] {
        for reason in [Reason::Updated, Reason::Evicted, Reason::EvictedAll] {
            let message = LnMessage { dest, reason, line: Hpa(LINE) };
            let payload = message.payload();
            rig.send(&message.repr(sender, &payload));
            sent += 1;
            assert!(rig.copy(0, LINE).is_some(), "{dest:?} {reason:?}");
        }
    }
    assert_eq!(rig.net.switches[0].0.counts().dropped - before, sent);
    assert_eq!(rig.net.devices[0].0.counts().0.tlps.messages, 0);
    rig.no_copy_is_stale("after messages");
}

/// Makes a request in the name of a function, of this data.
type Forge = fn(Bdf, &[u8]) -> TlpRepr<'_>;

/// Whoever could register, write or deregister in another's name would leave that one with a stale copy.
#[test]
fn a_forged_requester_id_leaves_no_copy_stale() {
    let data = pattern(3, 64);
    let cases: [(&str, Forge); 3] = [
        ("deregistered", |victim, _| deregister(victim, Hpa(LINE))),
        ("written", |victim, data| write(victim, Hpa(LINE), data).unwrap()),
        ("read", |victim, _| read(victim, 9, Hpa(LINE + 64), 16)),
    ];
    for (name, forge) in cases {
        let mut rig = Rig::new(false);
        assert_eq!(rig.read(0, LINE), Outcome::Cached);
        let victim = rig.id(0);
        rig.send(&forge(victim, &data));
        assert_eq!(rig.held(0), 1, "{name}: nothing is done in its name");
        let kept = rig.copy(0, LINE).unwrap();
        let mut memory = vec![0; 64];
        let host = &rig.net.hosts[0].0;
        assert!(weft_cxl::completer::Target::read(host.memory(), LINE, &mut memory));
        assert_eq!(kept, memory, "{name}: the copy is what memory holds");
        rig.no_copy_is_stale(name);
    }
}
