//! A host and a device on one link: enumeration, registers, memory, DMA, what goes wrong.
//!
//! Both over a pipe; each test in both header layouts where that makes a difference.
//!
//! Units: bytes, nanoseconds.
//! Source: PCIe 6.0 chapter 2; docs/spec/wire-formats.md §3.1, §3.5.

use crate::rig::{Net, RAM, RAM_LEN, device_config, function, host_config, pattern};
use weft_base::rng::Rng;
use weft_cxl::completer::Target;
use weft_cxl::cxl_device::{Event as DeviceEvent, Refusal};
use weft_cxl::cxl_host::Event;
use weft_cxl::pci::{ByteEnables, ErrorMessage, Reg};
use weft_cxl::requester::{Failure, Operation};
use weft_dataplane::time::Span;
use weft_parsers::fabric::{Bdf, Hpa};
use weft_parsers::tlp::{Mode, Status};

const MODES: [Mode; 2] = [Mode::NonFlit, Mode::Flit];
const DEVICE: u16 = 0x0D01;
const BDF: Bdf = Bdf::new(1, 0, 0);

fn net(mode: Mode) -> Net {
    let mut net = Net::new();
    let host = net.host(host_config(mode));
    let device = net.device(device_config(mode, vec![function(DEVICE), function(0x0D02)]));
    net.join(host, device);
    net
}

/// As [`net`], enumerated.
fn ready(mode: Mode) -> Net {
    let mut net = net(mode);
    net.enumerate(0);
    net
}

#[test]
fn the_host_finds_the_device_and_its_functions() {
    for mode in MODES {
        let mut net = Net::new();
        let host = net.host(host_config(mode));
        let mut functions = vec![function(DEVICE), function(0x0D02)];
        functions[0].spec.multi_function = true;
        let device = net.device(device_config(mode, functions));
        net.join(host, device);
        net.enumerate(0);
        let tree = net.hosts[0].0.tree().unwrap();
        assert_eq!(tree.problems, []);
        let found: Vec<_> = tree.iter().map(|node| (node.bdf, node.device)).collect();
        let want = [(Bdf::new(0, 0, 0), 0x0100), (BDF, DEVICE), (Bdf::new(1, 0, 1), 0x0D02)];
        assert_eq!(found, want, "{mode:?}");
        assert_eq!(net.devices[0].0.id(1), Ok(Bdf::new(1, 0, 1)), "captured");
        assert!(tree.iter().all(|node| node.bars.iter().all(|bar| bar.address.is_some())));
    }
}

/// PCIe 6.0 section 2.3.1: a device that is not ready answers with retry status, and is found all the same.
#[test]
fn a_device_that_is_not_ready_is_asked_again() {
    let mut net = Net::new();
    let host = net.host(host_config(Mode::Flit));
    let mut config = device_config(Mode::Flit, vec![function(DEVICE)]);
    config.busy = 5;
    let device = net.device(config);
    net.join(host, device);
    net.enumerate(0);
    assert_eq!(net.hosts[0].0.tree().unwrap().iter().count(), 2);
    assert_eq!(net.devices[0].0.counts().0.retried, 5);
}

#[test]
fn bars_and_io_are_read_and_written_at_any_byte() {
    for mode in MODES {
        let mut net = ready(mode);
        let (bar0, io, bar3) =
            (net.bar(0, DEVICE, 0), net.bar(0, DEVICE, 2), net.bar(0, DEVICE, 3));
        let mut rng = Rng::new(0xBA5);
        let mut want = vec![0; 1 << 16];
        for bar in [bar0, bar3] {
            want.fill(0);
            for round in 0..60 {
                let len =
                    usize::try_from(rng.below(if round % 4 == 0 { 9_000 } else { 70 })).unwrap();
                let at = usize::try_from(rng.below((1 << 16) - len as u64)).unwrap();
                let data = pattern(round, len);
                want[at..at + len].copy_from_slice(&data);
                net.hosts[0].0.write(Hpa(bar + at as u64), &data);
                let from = at.saturating_sub(5);
                let until = (at + len + 5).min(1 << 16);
                let got = net.read(0, bar + from as u64, until - from).unwrap();
                assert!(got == want[from..until], "{mode:?} {len} at {at:#x}");
            }
        }
        let port = u32::try_from(io).unwrap();
        for (offset, data) in [(0, vec![1, 2, 3, 4]), (5, vec![9]), (10, vec![7, 8])] {
            let op = net.hosts[0].0.submit(Operation::IoWrite { port: port + offset, data });
            assert_eq!(net.wait(0, op), Ok(vec![]));
        }
        let op = net.hosts[0].0.submit(Operation::IoRead { port, len: 12 });
        assert_eq!(net.wait(0, op), Ok(vec![1, 2, 3, 4, 0, 9, 0, 0, 0, 0, 7, 8]));
        net.steps(4);
        assert_eq!(net.used(), 0);
    }
}

/// Requests split at 4 KiB and by their largest sizes, completions at 64 bytes.
#[test]
fn large_transfers_are_split_and_put_together() {
    for mode in MODES {
        let mut net = ready(mode);
        let bar = net.bar(0, DEVICE, 0);
        let data = pattern(3, 20_000);
        net.hosts[0].0.write(Hpa(bar + 4_090), &data);
        let before = net.hosts[0].0.counts().1;
        assert_eq!(before.sent, before.answered, "{mode:?}: enumeration is over");
        assert_eq!(net.read(0, bar + 4_090, data.len()), Ok(data));
        let after = net.hosts[0].0.counts().1;
        // writes of 256 bytes, reads of 512: from 4090 to 24089
        assert_eq!(after.sent - before.sent, 80 + 41, "{mode:?}");
        assert_eq!(after.completions - before.completions, 1 + 39 * 2 + 1, "{mode:?}");
    }
}

#[test]
fn the_device_reads_and_writes_host_memory() {
    for mode in MODES {
        let mut net = ready(mode);
        let data = pattern(9, 5_000);
        let write = Operation::Write { addr: Hpa(RAM + 0x1003), data: data.clone() };
        net.devices[0].0.submit(0, write).unwrap();
        let read = Operation::Read { addr: Hpa(RAM + 0x1000), len: 5_010 };
        let op = net.devices[0].0.submit(0, read).unwrap();
        let got = net.device_wait(0, op).result.unwrap();
        assert_eq!((&got[..3], &got[5_003..]), (&[0; 3][..], &[0; 7][..]), "{mode:?}");
        assert!(got[3..5_003] == data, "{mode:?}");
        let mut bytes = vec![0; 5_000];
        assert!(net.hosts[0].0.memory().read(RAM + 0x1003, &mut bytes) && bytes == data);
        // a read of zero length flushes, and brings nothing
        let op = net.devices[0]
            .0
            .submit(0, Operation::Read { addr: Hpa(RAM + 0x1003), len: 0 })
            .unwrap();
        assert_eq!(net.device_wait(0, op).result, Ok(vec![]));
        // beyond the end, and across it
        for addr in [RAM + RAM_LEN, RAM + RAM_LEN - 4, 0] {
            let op =
                net.devices[0].0.submit(0, Operation::Read { addr: Hpa(addr), len: 8 }).unwrap();
            let refused = Err(Failure::Status(Status::UnsupportedRequest));
            assert_eq!(net.device_wait(0, op).result, refused, "{mode:?} {addr:#x}");
        }
        let write = Operation::Write { addr: Hpa(RAM + RAM_LEN - 4), data: vec![1; 8] };
        net.devices[0].0.submit(0, write).unwrap();
        net.steps(4);
        assert_eq!(net.hosts[0].0.counts().0.tlps.unsupported, 4);
        let mut last = [9; 4];
        net.hosts[0].0.memory().read(RAM + RAM_LEN - 4, &mut last);
        assert_eq!(last, [1; 4], "what lies below the boundary is a TLP of its own");
    }
}

#[test]
fn a_device_without_the_right_sends_nothing_and_messages_arrive() {
    let mut net = ready(Mode::Flit);
    let command = |net: &mut Net, value| {
        let (reg, enables) = (Reg::at(4), ByteEnables::of(4, 2));
        let what = Operation::ConfigWrite { dest: BDF, reg, type1: false, value, enables };
        let op = net.hosts[0].0.submit(what);
        net.wait(0, op).unwrap();
    };
    command(&mut net, 3);
    let write = Operation::Write { addr: Hpa(RAM), data: vec![1; 4] };
    assert_eq!(net.devices[0].0.submit(0, write), Err(Refusal::NotMaster(0)));
    assert_eq!(
        net.devices[0].0.submit(7, Operation::Read { addr: Hpa(0), len: 1 }),
        Err(Refusal::NoFunction(7))
    );
    // an interrupt: MSI at 5:0 of its capability, found in the tree
    command(&mut net, 7);
    let msi = net.hosts[0].0.tree().unwrap().get(BDF).unwrap().msi.unwrap();
    for (offset, value) in [(4, 0xFEE0_0000), (8, 0), (12, 0x1234), (0, 1 << 16)] {
        let (reg, enables) = (Reg::at(msi + offset), ByteEnables::ALL);
        let what = Operation::ConfigWrite { dest: BDF, reg, type1: false, value, enables };
        let op = net.hosts[0].0.submit(what);
        net.wait(0, op).unwrap();
    }
    assert_eq!(net.devices[0].0.interrupt(0), Ok(true));
    let msi = net.until(0, |event| match event {
        Event::Msi { addr, data, from } => Some((addr, data, from)),
        _ => None,
    });
    assert_eq!(msi, (Hpa(0xFEE0_0000), 0x1234, BDF));
    net.hosts[0].0.turn_off();
    net.until(0, |event| (event == Event::TurnedOff).then_some(()));
}

/// PCIe 6.0 section 2.8: no answer in time is reported, and what comes late finds nobody.
#[test]
fn a_request_without_answer_times_out_and_the_late_answer_is_unexpected() {
    let mut net = ready(Mode::NonFlit);
    let bar = net.bar(0, DEVICE, 0);
    let held = net.devices[0].1.take();
    let op = net.hosts[0].0.read(Hpa(bar), 64);
    let start = net.now;
    assert_eq!(net.wait(0, op), Err(Failure::Timeout));
    let took = net.now.as_ns() - start.as_ns();
    assert!((50_000..51_000).contains(&took), "{took} ns");
    net.devices[0].1 = held;
    net.steps(4);
    let counts = net.hosts[0].0.counts().1;
    assert_eq!((counts.timeouts, counts.unexpected), (1, 1));
    assert_eq!(net.read(0, bar, 64), Ok(vec![0; 64]), "later requests are not disturbed");
    // a link that goes down gives up what is under way
    let held = net.devices[0].1.take();
    let op = net.hosts[0].0.read(Hpa(bar), 64);
    net.steps(2);
    held.unwrap().set_link(false);
    assert_eq!(net.wait(0, op), Err(Failure::GivenUp));
}

#[test]
fn unsupported_requests_are_answered_and_reported() {
    let mut net = ready(Mode::Flit);
    // behind the device's BARs, within the bridge's windows
    let bar = net.bar(0, DEVICE, 0);
    let refused = Err(Failure::Status(Status::UnsupportedRequest));
    assert_eq!(net.read(0, bar + (1 << 20), 8), refused);
    let config = Operation::ConfigRead { dest: Bdf::new(1, 0, 5), reg: Reg::at(0), type1: false };
    let op = net.hosts[0].0.submit(config);
    assert_eq!(net.wait(0, op), refused);
    // once software wants to hear of it, a posted one is reported as an error
    let express = net.hosts[0].0.tree().unwrap().get(BDF).unwrap().express.unwrap().1;
    let (reg, enables) = (Reg::at(express + 8), ByteEnables::of(express + 8, 2));
    let what = Operation::ConfigWrite { dest: BDF, reg, type1: false, value: 0x281F, enables };
    let op = net.hosts[0].0.submit(what);
    net.wait(0, op).unwrap();
    net.hosts[0].0.write(Hpa(bar + (1 << 20)), &[1; 4]);
    let error = net.until(0, |event| match event {
        Event::Error { from, message } => Some((from, message)),
        _ => None,
    });
    assert_eq!(error, (BDF, ErrorMessage::NonFatal));
    assert_eq!(net.devices[0].0.counts().0.tlps.unsupported, 3);
    // non-flit links have no UIO
    let mut net = ready(Mode::NonFlit);
    let op = net.hosts[0].0.uio_read(Hpa(bar), 64, None);
    assert_eq!(net.wait(0, op), Err(Failure::NoForm));
}

/// PCIe 6.0 section 6.6.2: FLR forgets one function's settings; a link that was down, all of them.
#[test]
fn resets_forget_what_software_set() {
    let mut net = ready(Mode::Flit);
    let express = net.hosts[0].0.tree().unwrap().get(BDF).unwrap().express.unwrap().1;
    let bar = net.bar(0, DEVICE, 0);
    net.hosts[0].0.write(Hpa(bar), &[7; 4]);
    assert_eq!(net.read(0, bar, 4), Ok(vec![7; 4]));
    let (reg, enables) = (Reg::at(express + 8), ByteEnables::of(express + 8, 2));
    let what = Operation::ConfigWrite { dest: BDF, reg, type1: false, value: 0x8000, enables };
    let op = net.hosts[0].0.submit(what);
    net.wait(0, op).unwrap();
    net.device_until(0, |event| (event == DeviceEvent::Reset(Some(0))).then_some(()));
    assert!(!net.devices[0].0.function(0).unwrap().is_master());
    assert_eq!(net.read(0, bar, 4), Err(Failure::Status(Status::UnsupportedRequest)));
    net.enumerate(0);
    assert_eq!(net.read(0, bar, 4), Ok(vec![7; 4]), "memory keeps its bytes");
    net.part(crate::rig::Place::Host(0));
    net.steps(2);
    assert!(!net.devices[0].0.function(0).unwrap().is_master());
    net.hosts[0].1.as_ref().unwrap().set_link(true);
    net.steps(2);
    net.device_until(0, |event| (event == DeviceEvent::Reset(None)).then_some(()));
    assert!(!net.devices[0].0.function(0).unwrap().is_master());
    net.now += Span::from_ns(1_000);
    net.enumerate(0);
    assert_eq!(net.read(0, bar, 4), Ok(vec![7; 4]));
}
