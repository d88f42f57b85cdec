//! Commands of Lightweight Notification, with host and device back to back and through an HBR switch.

use super::*;
use crate::endpoint::ln_report::{LnAccess, LnOutcome, LnReport, LncReport, LnrFunction};

/// Address of a line in the host's memory.
const LINE: u64 = RAM + 0x4000;

fn host(lines: usize) -> HostSpec {
    let mut spec = HostSpec { ln_lines: Some(lines), ..HostSpec::default() };
    spec.common.mode = Some("non-flit".to_owned());
    spec
}

fn device(exponent: u8) -> DeviceSpec {
    let mut spec = DeviceSpec { lnr: Some(exponent), ..DeviceSpec::default() };
    spec.common.mode = Some("non-flit".to_owned());
    spec
}

fn line(addr: u64) -> LnAccess {
    LnAccess { addr: Num(addr), ..LnAccess::default() }
}

fn bytes(byte: u8, len: usize) -> Hex {
    Hex(vec![byte; len])
}

/// A host (runner 0), an HBR switch (runner 1) and devices below it (runners 2 and up).
fn tree(host: &HostSpec, devices: &[DeviceSpec]) -> Net {
    let mut hbr = HbrSpec::default();
    hbr.common.mode = Some("non-flit".to_owned());
    let mut ends = Vec::new();
    let mut runners = Vec::new();
    let (root, up) = wire();
    ends.push(up);
    runners.push(runner(host.build(&[]).unwrap(), vec![root]));
    let mut below = Vec::new();
    for device in devices {
        let (down, port) = wire();
        ends.push(down);
        below.push(runner(device.build(&[]).unwrap(), vec![port]));
    }
    runners.push(runner(hbr.build(devices.len() + 1, &[]).unwrap(), ends));
    runners.extend(below);
    Net::new(runners)
}

impl Net {
    fn ln(&mut self, at: usize, command: &Command) -> LnReport {
        match self.ask(at, command) {
            Ok(Answer::Ln(report)) => *report,
            other => panic!("{command:?}: {other:?}"),
        }
    }

    fn ln_read(&mut self, at: usize, addr: u64) -> LnReport {
        self.ln(at, &Command::LnRead(line(addr)))
    }

    fn copy(&mut self, at: usize, addr: u64) -> Option<Hex> {
        self.ln(at, &Command::LnCopy(line(addr))).data
    }

    fn watched(&mut self) -> LncReport {
        match self.ask(0, &Command::LnStatus {}) {
            Ok(Answer::LnCompleter(report)) => *report,
            other => panic!("{other:?}"),
        }
    }

    fn requester(&mut self, at: usize) -> LnrFunction {
        match self.ask(at, &Command::LnStatus {}) {
            Ok(Answer::LnRequesters { functions }) => functions[0].clone(),
            other => panic!("{other:?}"),
        }
    }

    fn store(&mut self, addr: u64, byte: u8) {
        let data = Some(bytes(byte, 64));
        let place = OwnRange { addr: Num(addr), data, ..OwnRange::default() };
        assert!(self.transfer(0, &Command::Store(place)).ok);
        self.steps(16);
    }

    fn found(&mut self) -> Vec<String> {
        let answer = self.ask(0, &Command::Enumerate { timeout_ms: 10_000 });
        let Ok(Answer::Tree { tree, .. }) = answer else { panic!("{answer:?}") };
        serde_json::from_value(tree["problems"].clone()).unwrap()
    }
}

/// PCIe 5.0 section 6.21, step by step: read a line, be notified of its change, probe it, write it, give it back.
#[test]
fn a_device_keeps_lines_and_the_host_tells_who_watches_them() {
    let mut net = Net::pair(&host(16), &device(2));
    let early = net.refusal(1, &Command::LnRead(line(LINE)));
    assert!(early.starts_with("LN is off: a host with --ln-lines switches it on"), "{early}");
    assert_eq!(net.found(), [""; 0]);
    let known = net.requester(1);
    assert_eq!(
        (known.on, known.line, known.limit, &known.sizes[..]),
        (true, 64, 4, &[64, 128][..])
    );

    net.store(LINE, 1);
    let read = net.ln_read(1, LINE + 5);
    assert_eq!((read.line, read.outcome, read.data), (LINE, LnOutcome::Cached, Some(bytes(1, 64))));
    let watched = net.watched();
    assert_eq!((watched.watched, watched.lines[0].addr), (1, LINE));
    assert_eq!(watched.lines[0].watchers.join(" "), known.id);
    assert_eq!((watched.requesters[0].limit, watched.requesters[0].watches), (Some(4), 1));

    net.store(LINE, 2);
    assert_eq!(net.copy(1, LINE), None, "it was told of the change");
    assert_eq!(net.watched().watched, 0, "once");
    assert!(net.runners[1].events().0.iter().any(|it| it.text.contains("updated, copy dropped")));

    let probe = net.ln(1, &Command::LnProbe(line(LINE)));
    assert_eq!(probe.outcome, LnOutcome::Takes);
    let written = LnAccess { data: Some(bytes(3, 64)), ..line(LINE) };
    let report = net.ln(1, &Command::LnWrite(written));
    assert_eq!((report.outcome, report.copy), (LnOutcome::Written, true));
    let peek = OwnRange { addr: Num(LINE), data: Some(bytes(3, 64)), ..OwnRange::default() };
    assert!(net.transfer(0, &Command::Peek(peek)).ok, "it has arrived");
    assert_eq!(net.watched().watched, 1);
    let given = net.ln(1, &Command::LnDrop(line(LINE)));
    assert_eq!((given.outcome, given.copy, net.watched().watched), (LnOutcome::Dropped, false, 0));

    let counts = net.watched().counts;
    assert_eq!((counts["registered"].as_u64(), counts["directed"].as_u64()), (Some(2), Some(1)));
}

/// The host sets no function's limit above its own number of lines. A function drops lines to stay within its limit.
#[test]
fn a_device_keeps_to_the_limit_that_the_host_has_set() {
    let mut net = Net::pair(&host(5), &device(6));
    net.found();
    assert_eq!(net.requester(1).limit, 4);
    for at in 0..6 {
        assert_eq!(net.ln_read(1, LINE + 64 * at).outcome, LnOutcome::Cached);
    }
    assert_eq!((net.requester(1).copies, net.watched().watched), (4, 4));
    assert_eq!(
        (net.copy(1, LINE + 64), net.watched().counts["declined"].as_u64()),
        (None, Some(0))
    );
}

/// Directed messages reach the watchers through the switch. With more than `ln_watchers` of them, the host sends a
/// broadcast to all devices below.
#[test]
fn notifications_pass_an_hbr_switch_directed_and_as_broadcasts() {
    for (watchers, broadcasts) in [(4, 0), (1, 1), (0, 1)] {
        let host = HostSpec { ln_watchers: Some(watchers), ..host(16) };
        let mut net = tree(&host, &[device(4), device(4), device(4)]);
        assert_eq!(net.found(), [""; 0]);
        net.store(LINE, 1);
        for at in [2, 3] {
            assert_eq!(net.ln_read(at, LINE).outcome, LnOutcome::Cached, "{watchers}");
        }
        assert_eq!(net.ln_read(4, LINE + 64).outcome, LnOutcome::Cached, "{watchers}");
        let lines = net.watched().lines;
        assert_eq!((lines[0].broadcast, lines.len()), (broadcasts == 1, 2), "{watchers}");
        net.store(LINE, 2);
        let copies = [(2, LINE), (3, LINE), (4, LINE + 64)].map(|(at, addr)| net.copy(at, addr));
        assert_eq!(copies.map(|it| it.is_some()), [false, false, true], "{watchers}");
        let counts = net.watched().counts;
        assert_eq!(counts["broadcast"].as_u64(), Some(broadcasts), "{watchers}");
        assert_eq!(counts["directed"].as_u64(), Some(2 - 2 * broadcasts), "{watchers}");
    }
}

/// A system has one line size. The host sets its own on all functions that support it, and reports the others, whose LN
/// stays off.
#[test]
fn the_host_sets_its_line_size_and_leaves_off_who_has_another() {
    for (size, name, other) in [(64, "64", "128"), (128, "128", "64")] {
        let host = HostSpec { ln_line: Some(Num(size)), ..host(16) };
        let one = |sizes: &str| DeviceSpec { lnr_line: Some(sizes.to_owned()), ..device(4) };
        let mut net = tree(&host, &[one(name), one(other), one("both")]);
        let problems = net.found();
        let text = format!("has no lines of {size} bytes: its Lightweight Notification is off");
        assert!(problems.len() == 1 && problems[0].ends_with(&text), "{problems:?}");
        for (at, on) in [(2, true), (3, false), (4, true)] {
            let known = net.requester(at);
            assert_eq!((known.on, known.on && known.line as u64 == size), (on, on), "{size} {at}");
        }
        assert_eq!(
            net.watched().requesters.iter().map(|it| it.on).collect::<Vec<_>>(),
            [true, false, true]
        );
        let refused = net.refusal(3, &Command::LnRead(line(LINE)));
        assert!(refused.starts_with("LN is off"), "{refused}");
        let read = net.ln_read(4, LINE + 100);
        let len = usize::try_from(size).unwrap();
        assert_eq!((read.outcome, read.data.unwrap().0.len()), (LnOutcome::Cached, len));
        // The line size is read-only while LN is on, so software cannot change it.
        net.store(LINE + 64, 9);
        assert_eq!(net.copy(4, LINE + 100), None, "{size}: bytes 64 to 127 are of its line");
    }
}

/// A new enumeration may change the numbers of functions: it drops all copies, and lines registered after it are
/// notified of.
#[test]
fn enumerating_again_drops_all_copies() {
    let mut net = tree(&host(16), &[device(4), device(4)]);
    net.found();
    net.store(LINE, 1);
    assert_eq!(net.ln_read(3, LINE).outcome, LnOutcome::Cached);
    net.found();
    assert_eq!((net.copy(3, LINE), net.watched().watched), (None, 0));
    assert_eq!(net.ln_read(3, LINE).outcome, LnOutcome::Cached);
    net.store(LINE, 2);
    assert_eq!(net.copy(3, LINE), None);
}

/// Impossible commands are refused with advice.
#[test]
fn without_lightweight_notification_commands_say_what_to_do() {
    let mut net = Net::pair(&host_spec(), &DeviceSpec::default());
    net.found();
    let flit = "flit mode has no Lightweight Notification: start the device with --mode non-flit";
    for command in [Command::LnRead(line(LINE)), Command::LnStatus {}, Command::LnCopy(line(LINE))]
    {
        let said = net.refusal(1, &command);
        assert!(said.starts_with(flit), "{said}");
    }
    let said = net.refusal(0, &Command::LnStatus {});
    assert!(said.contains("start it with --mode non-flit --ln-lines N"), "{said}");
    let mut plain = DeviceSpec::default();
    plain.common.mode = Some("non-flit".to_owned());
    let mut net = Net::pair(&host(4), &plain);
    net.found();
    let said = net.refusal(1, &Command::LnRead(line(LINE)));
    assert_eq!(said, "the device has no LN requester: start it with --lnr N");
    let said = net.refusal(0, &Command::LnRead(line(LINE)));
    assert!(said.contains("a host has no command"), "{said}");

    let mut net = Net::pair(&host(4), &device(2));
    net.found();
    let crossing = LnAccess { data: Some(bytes(1, 65)), ..line(LINE) };
    let said = net.refusal(1, &Command::LnWrite(crossing));
    assert!(said.contains("crosses a line"), "{said}");
    let said = net.refusal(1, &Command::LnWrite(line(LINE)));
    assert!(said.contains("is empty"), "{said}");
    let said = net.refusal(1, &Command::LnRead(LnAccess { function: 3, ..line(LINE) }));
    assert_eq!(said, "no function has the number 3");
    let nowhere = net.ln_read(1, 0x10);
    assert_eq!((nowhere.outcome, nowhere.failure.as_deref()), (LnOutcome::Failed, Some("UR")));
}
