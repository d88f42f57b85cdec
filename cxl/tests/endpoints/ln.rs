//! Lightweight Notification on the wire: a host with a completer, devices with requesters, an HBR switch between.
//!
//! Non-flit links; the device's calls, the host's stores, and what each then holds.
//!
//! Units: bytes.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use crate::rig::{Net, Place, RAM, device_config, function, host_config, pattern};
use weft_cxl::cxl_device::{Event, Refusal};
use weft_cxl::ln::lnr::Refused;
use weft_cxl::ln::{LineSize, LncSpec, Origin, Outcome, Regions, RootPort};
use weft_cxl::pci::{ByteEnables, Reg};
use weft_cxl::requester::{Failure, Operation, Transaction};
use weft_dataplane::time::Span;
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::{Mode, Status};

const DEVICES: [u16; 2] = [0x0D01, 0x0D02];
/// Where registrations are taken.
const WATCHED: u64 = RAM + 0x4000;
const WATCHED_LEN: u64 = 0x2000;

/// Two devices behind a switch, with LN switched on by the host's software.
fn net(mode: Mode, lines_max: usize, watchers_max: usize) -> Net {
    let mut regions = Regions::new();
    regions.add(Hpa(WATCHED), WATCHED_LEN).unwrap();
    let mut net = Net::new();
    let mut config = host_config(mode);
    config.lnc = Some(LncSpec {
        line: LineSize::B64,
        lines_max,
        watchers_max,
        translated: false,
        regions,
        broadcast_gap: Span::ZERO,
        pending_max: 64,
    });
    let host = net.host(config);
    let switch = net.switch(&[mode; 3], true);
    net.join(host, Place::Switch(switch, 0));
    for (at, device) in DEVICES.iter().enumerate() {
        let device = net.device(device_config(mode, vec![function(*device)]));
        net.join(device, Place::Switch(switch, at + 1));
    }
    net.enumerate(0);
    control(&mut net, 0, 0x0401);
    control(&mut net, 1, 0x0401);
    net
}

fn id(net: &Net, at: usize) -> Bdf {
    net.devices[at].0.id(0).unwrap()
}

/// Writes LNR control of a device.
fn control(net: &mut Net, at: usize, value: u32) {
    let dest = id(net, at);
    let lnr = net.hosts[0].0.tree().unwrap().get(dest).unwrap().lnr.unwrap();
    let (reg, enables) = (Reg::at(lnr + 4), ByteEnables::of(lnr + 6, 2));
    let what = Operation::ConfigWrite { dest, reg, type1: true, value: value << 16, enables };
    let op = net.hosts[0].0.submit(what);
    net.wait(0, op).unwrap();
}

fn read(net: &mut Net, at: usize, addr: u64) -> Outcome {
    let ticket = net.devices[at].0.ask_ln(0, |lnr, out| lnr.ln_read(Hpa(addr), out)).unwrap();
    outcome(net, at, ticket)
}

fn outcome(net: &mut Net, at: usize, ticket: weft_cxl::ln::Ticket) -> Outcome {
    net.device_until(at, |event| match event {
        Event::Ln { ticket: other, outcome, .. } if other == ticket => Some(outcome),
        _ => None,
    })
}

fn copy(net: &Net, at: usize, addr: u64) -> Option<Vec<u8>> {
    net.devices[at].0.lnr(0).unwrap().copy(Hpa(addr)).map(<[u8]>::to_vec)
}

fn watches(net: &mut Net, at: usize, addr: u64) -> bool {
    let origin = Origin { port: RootPort(0), requester: id(net, at) };
    net.hosts[0].0.lnc().unwrap().watches(origin, Hpa(addr))
}

fn messages(net: &Net) -> [u64; 2] {
    [0, 1].map(|at| net.devices[at].0.counts().0.tlps.messages)
}

/// PCIe 5.0 section 6.21: read, update, message, and the copy is gone; one notification for one registration.
#[test]
fn section_3_2_1_an_ln_read_is_told_of_the_update_once() {
    let mut net = net(Mode::NonFlit, 16, 4);
    let line = pattern(1, 64);
    assert!(net.hosts[0].0.store(Hpa(WATCHED), &line));
    assert_eq!(read(&mut net, 0, WATCHED + 8), Outcome::Cached);
    assert_eq!(copy(&net, 0, WATCHED), Some(line));
    net.hosts[0].0.store(Hpa(WATCHED + 63), &[1]);
    net.steps(8);
    assert_eq!((copy(&net, 0, WATCHED), messages(&net)), (None, [1, 0]), "directed, to it alone");
    net.hosts[0].0.store(Hpa(WATCHED + 63), &[2]);
    net.steps(8);
    assert_eq!(messages(&net), [1, 0], "once");
}

/// PCIe 5.0 section 6.21: a write registers too, and another device's write is an update.
#[test]
fn section_3_2_2_an_ln_write_registers_and_others_writes_notify() {
    let mut net = net(Mode::NonFlit, 16, 4);
    assert_eq!(read(&mut net, 0, WATCHED), Outcome::Cached);
    let data = pattern(2, 64);
    net.devices[0].0.ask_ln(0, |lnr, out| lnr.ln_write(Hpa(WATCHED), &data, out)).unwrap();
    net.steps(8);
    assert!(watches(&mut net, 0, WATCHED));
    assert_eq!((copy(&net, 0, WATCHED), messages(&net)), (Some(data), [0, 0]));
    net.devices[1].0.submit(0, Operation::Write { addr: Hpa(WATCHED + 4), data: vec![1] }).unwrap();
    net.steps(12);
    assert_eq!((copy(&net, 0, WATCHED), messages(&net)), (None, [1, 0]));
}

/// PCIe 5.0 section 6.21: a device's plain write makes its own copy too old at once, not when it is told.
#[test]
fn section_3_2_a_devices_plain_write_takes_its_own_copy() {
    let mut net = net(Mode::NonFlit, 16, 4);
    for line in [WATCHED, WATCHED + 64, WATCHED + 128] {
        assert_eq!(read(&mut net, 0, line), Outcome::Cached);
    }
    let write = Operation::Write { addr: Hpa(WATCHED + 60), data: vec![7; 8] };
    net.devices[0].0.submit(0, write).unwrap();
    let copies = [0, 64, 128].map(|line| copy(&net, 0, WATCHED + line).is_some());
    assert_eq!(copies, [false, false, true]);
    net.steps(12);
    assert_eq!(messages(&net), [2, 0], "the completer cannot know, and tells it");
    assert_eq!(read(&mut net, 0, WATCHED), Outcome::Cached);
    assert_eq!(copy(&net, 0, WATCHED).unwrap()[60..], [7; 4]);
}

/// PCIe 5.0 section 6.21: the LN bit of a completion says whether the region takes registrations.
#[test]
fn section_3_4_the_ln_bit_of_completions_tells_where_registrations_are_taken() {
    let mut net = net(Mode::NonFlit, 16, 4);
    assert_eq!(read(&mut net, 0, RAM), Outcome::Once);
    assert!(!watches(&mut net, 0, RAM));
    for (ln, addr, want) in [(true, WATCHED, true), (false, WATCHED, false), (true, RAM, false)] {
        let ask = Transaction { ln, ..Operation::Read { addr: Hpa(addr), len: 64 }.into() };
        let op = net.devices[0].0.submit(0, ask).unwrap();
        assert_eq!(net.device_wait(0, op).ln, want, "{ln} {addr:#x}");
    }
}

/// PCIe 5.0 section 6.21: a read of zero length probes, a write of zero length deregisters.
#[test]
fn section_3_3_2_probe_and_deregister() {
    let mut net = net(Mode::NonFlit, 16, 4);
    for (addr, takes) in [(WATCHED, true), (RAM, false)] {
        let ticket = net.devices[0].0.ask_ln(0, |lnr, out| lnr.probe(Hpa(addr), out)).unwrap();
        assert_eq!(outcome(&mut net, 0, ticket), Outcome::Probed(takes));
        assert!(!watches(&mut net, 0, addr), "a probe registers nothing");
    }
    assert_eq!(read(&mut net, 0, WATCHED), Outcome::Cached);
    net.devices[0].0.ask_ln(0, |lnr, out| lnr.deregister(Hpa(WATCHED), out)).unwrap();
    net.steps(8);
    assert!(!watches(&mut net, 0, WATCHED));
    net.hosts[0].0.store(Hpa(WATCHED), &[1]);
    net.steps(8);
    assert_eq!(messages(&net), [0, 0]);
}

/// PCIe 5.0 section 6.21: what crosses a line is a completer abort, and neither read nor registered.
#[test]
fn section_3_4_crossing_a_line_is_a_completer_abort() {
    let mut net = net(Mode::NonFlit, 16, 4);
    let ask =
        Transaction { ln: true, ..Operation::Read { addr: Hpa(WATCHED + 32), len: 64 }.into() };
    let op = net.devices[0].0.submit(0, ask).unwrap();
    let aborted = Err(Failure::Status(Status::CompleterAbort));
    assert_eq!(net.device_wait(0, op).result, aborted);
    let data = vec![7; 64];
    let ask = Transaction { ln: true, ..Operation::Write { addr: Hpa(WATCHED + 32), data }.into() };
    net.devices[0].0.submit(0, ask).unwrap();
    net.steps(8);
    assert_eq!(net.hosts[0].0.counts().0.tlps.aborted, 2);
    assert_eq!(net.hosts[0].0.lnc().unwrap().lines(), 0);
    let op =
        net.devices[0].0.submit(0, Operation::Read { addr: Hpa(WATCHED + 32), len: 64 }).unwrap();
    assert_eq!(net.device_wait(0, op).result, Ok(vec![0; 64]), "nothing of it was written");
}

/// PCIe 5.0 section 6.21: directed up to the limit of watchers, broadcast beyond it.
#[test]
fn section_3_3_1_broadcast_beyond_the_limit_of_watchers() {
    for (watchers_max, readers, want) in
        [(2, 2, [1, 1]), (1, 1, [1, 0]), (1, 2, [1, 1]), (0, 1, [1, 1])]
    {
        let mut net = net(Mode::NonFlit, 16, watchers_max);
        for at in 0..readers {
            assert_eq!(read(&mut net, at, WATCHED), Outcome::Cached);
        }
        net.hosts[0].0.store(Hpa(WATCHED), &[1]);
        net.steps(10);
        assert_eq!(messages(&net), want, "{watchers_max} {readers}");
        assert_eq!([copy(&net, 0, WATCHED), copy(&net, 1, WATCHED)], [None, None]);
    }
}

/// PCIe 5.0 section 6.21: a completer without room evicts the oldest line, and says so.
#[test]
fn section_3_3_1_the_oldest_line_is_evicted() {
    let mut net = net(Mode::NonFlit, 2, 4);
    for line in 0..3 {
        assert_eq!(read(&mut net, 0, WATCHED + line * 64), Outcome::Cached);
    }
    net.steps(8);
    let copies = [0, 1, 2].map(|line| copy(&net, 0, WATCHED + line * 64).is_some());
    assert_eq!((copies, messages(&net)), ([false, true, true], [1, 0]));
}

/// PCIe 5.0 section 6.21: an LN Message passes no posted request that went before it.
#[test]
fn section_3_3_3_a_message_is_ordered_as_a_posted_request() {
    let mut net = net(Mode::NonFlit, 16, 4);
    assert_eq!(read(&mut net, 0, WATCHED), Outcome::Cached);
    let bar = net.bar(0, DEVICES[0], 0);
    let data = pattern(4, 60_000);
    net.hosts[0].0.write(Hpa(bar), &data);
    net.hosts[0].0.store(Hpa(WATCHED), &[1]);
    for _ in 0..1_000 {
        let mut last = [0; 1];
        net.devices[0].0.bar(0, 0).unwrap().read(59_999, &mut last).unwrap();
        if messages(&net) == [1, 0] {
            assert_eq!(last[0], data[59_999], "the last write is there before the message");
            return;
        }
        net.step();
    }
    panic!("no message");
}

/// PCIe 5.0 section 6.21: LN off clears the copies; in flit mode there is none.
#[test]
fn section_5_2_ln_off_clears_and_flit_mode_has_none() {
    let mut net = net(Mode::NonFlit, 16, 4);
    assert_eq!(read(&mut net, 0, WATCHED), Outcome::Cached);
    control(&mut net, 0, 0x0400);
    assert_eq!(copy(&net, 0, WATCHED), None);
    let off = net.devices[0].0.ask_ln(0, |lnr, out| lnr.ln_read(Hpa(WATCHED), out));
    assert_eq!(off, Err(Refusal::Ln(Refused::Off)));
    let mut net = self::net(Mode::Flit, 16, 4);
    assert!(net.hosts[0].0.lnc().is_none());
    let off = net.devices[0].0.ask_ln(0, |lnr, out| lnr.ln_read(Hpa(WATCHED), out));
    assert_eq!(off, Err(Refusal::Ln(Refused::Off)));
}
