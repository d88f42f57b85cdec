//! Lightweight Notification through PBR switches, in one process: a device at the host's own switch, one behind two
//! others, and two below an HBR switch there.
//!
//! `pcaps/fabric/ln.toml` in virtual time.
//!
//! Units: bytes.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3, §3.7a.

use weft_dataplane::time::Span;
use weft_fm::service::Request;
use weft_lab::endpoint::Answer;
use weft_lab::endpoint::command::{Command, OwnRange};
use weft_lab::endpoint::ln_report::{LnAccess, LnOutcome, LnReport, LncReport};
use weft_lab::endpoint::number::{Hex, Num};
use weft_lab::fabric::layout::Part;
use weft_lab::fabric::managed::ManagedFabric;
use weft_tests::fabric_here::{books, file, transfer, up, up_text};

const HOST: Part = Part::Host(0);
/// At the host's switch, behind two others, and twice below an HBR switch there.
const DEVICES: [Part; 4] = [Part::Device(0), Part::Device(1), Part::Device(2), Part::Device(3)];
const LINE: u64 = 0x10_4000;

fn ln(fabric: &ManagedFabric, by: Part, command: &Command) -> LnReport {
    match fabric.ask(by, command) {
        Ok(Answer::Ln(report)) => *report,
        other => panic!("{by:?} {command:?}: {other:?}"),
    }
}

fn line(addr: u64) -> LnAccess {
    LnAccess { addr: Num(addr), ..LnAccess::default() }
}

fn read(fabric: &ManagedFabric, by: Part, addr: u64) -> LnReport {
    ln(fabric, by, &Command::LnRead(line(addr)))
}

fn has_copy(fabric: &ManagedFabric, by: Part, addr: u64) -> bool {
    ln(fabric, by, &Command::LnCopy(line(addr))).outcome == LnOutcome::Copy
}

fn watched(fabric: &ManagedFabric) -> LncReport {
    match fabric.ask(HOST, &Command::LnStatus {}) {
        Ok(Answer::LnCompleter(report)) => *report,
        other => panic!("{other:?}"),
    }
}

fn store(fabric: &ManagedFabric, addr: u64, byte: u8) {
    let data = Some(Hex(vec![byte; 64]));
    let place = OwnRange { addr: Num(addr), data, ..OwnRange::default() };
    assert!(transfer(fabric, HOST, &Command::Store(place)).ok);
    // What the host has said is on its way; a request behind it comes back when it has arrived.
    for by in DEVICES {
        ln(fabric, by, &Command::LnProbe(line(addr)));
    }
}

/// PCIe 5.0 section 6.21 over one switch, over three, and below an HBR switch at the third: each reads, is told of the
/// change by a message to it alone, writes, and gives back.
#[test]
fn lines_are_watched_through_one_switch_through_three_and_below_an_hbr_switch() {
    let fabric = up("ln");
    let requesters = watched(&fabric).requesters;
    assert_eq!((requesters.len(), requesters.iter().all(|it| it.on)), (4, true), "{requesters:?}");
    for (number, by) in (1_u8..).zip(DEVICES) {
        store(&fabric, LINE, number);
        let got = read(&fabric, by, LINE);
        assert_eq!(got.outcome, LnOutcome::Cached, "{by:?}");
        assert_eq!(got.data, Some(Hex(vec![number; 64])), "{by:?}");
        assert_eq!(watched(&fabric).lines[0].watchers.len(), 1, "{by:?}");
        store(&fabric, LINE, 0x55);
        assert!(!has_copy(&fabric, by, LINE), "{by:?} was not told");
        assert_eq!(watched(&fabric).watched, 0, "{by:?}");
        let data = Some(Hex(vec![number; 64]));
        let wrote = ln(&fabric, by, &Command::LnWrite(LnAccess { data, ..line(LINE) }));
        assert_eq!((wrote.outcome, wrote.copy), (LnOutcome::Written, true), "{by:?}");
        assert_eq!(watched(&fabric).watched, 1, "{by:?}");
        assert_eq!(ln(&fabric, by, &Command::LnDrop(line(LINE))).outcome, LnOutcome::Dropped);
        assert_eq!(watched(&fabric).watched, 0, "{by:?}");
    }
    assert_eq!(watched(&fabric).counts["broadcast"], 0);
    books(&fabric);
}

/// A line that one of them writes is no longer what the others have; beyond the limit of watchers all are told by one
/// broadcast, which goes below each virtual link and to nobody twice.
#[test]
fn a_change_by_one_device_is_told_to_all_others_and_broadcasts_reach_all() {
    let few = file("ln").replace("ln_lines = 64", "ln_lines = 64\nln_watchers = 2");
    for (name, text, broadcast) in [("directed", file("ln"), 0), ("broadcast", few, 1)] {
        let fabric = up_text(name, &text);
        store(&fabric, LINE, 1);
        for by in DEVICES {
            assert_eq!(read(&fabric, by, LINE).outcome, LnOutcome::Cached, "{name} {by:?}");
        }
        assert_eq!(read(&fabric, DEVICES[3], LINE + 64).outcome, LnOutcome::Cached, "{name}");
        assert_eq!(watched(&fabric).lines[0].broadcast, broadcast == 1, "{name}");
        store(&fabric, LINE, 2);
        let copies = DEVICES.map(|by| has_copy(&fabric, by, LINE));
        assert_eq!(copies, [false; 4], "{name}");
        assert!(
            has_copy(&fabric, DEVICES[3], LINE + 64),
            "{name}: another line is nobody's business"
        );
        let counts = watched(&fabric).counts;
        let want = if broadcast == 1 { (1, 0) } else { (0, 4) };
        assert_eq!(
            (counts["broadcast"].as_u64(), counts["directed"].as_u64()),
            (Some(want.0), Some(want.1)),
            "{name}"
        );
        for by in DEVICES {
            let status = fabric.ask(by, &Command::Status {}).unwrap();
            let Answer::Status(status) = status else { panic!("{status:?}") };
            assert_eq!(status.counts["device"]["notified"], 1, "{name} {by:?}");
        }
        books(&fabric);
    }
}

/// Unbound, a device is gone with its registrations; bound again, it is switched on by the host's hot plug.
#[test]
fn a_device_that_is_bound_again_is_switched_on_by_hot_plug() {
    let mut fabric = up("ln");
    assert_eq!(read(&fabric, DEVICES[0], LINE).outcome, LnOutcome::Cached);
    let bridge = "entry/0/1".to_owned();
    let local = &fabric.fm().state().unwrap().bindings.local;
    let to = format!("port:{}", local.iter().find(|it| it.bridge.vppb == 1).unwrap().port);
    fabric.fm().request(&Request::Unbind { bridge: bridge.clone() }).unwrap();
    fabric.parts().until(Span::from_ms(200), |_| false);
    assert_eq!((watched(&fabric).watched, watched(&fabric).requesters.len()), (0, 3));
    fabric.fm().request(&Request::Bind { bridge, to }).unwrap();
    fabric.parts().until(Span::from_ms(500), |_| false);
    assert_eq!(watched(&fabric).requesters.len(), 4);
    assert!(!has_copy(&fabric, DEVICES[0], LINE), "what it had from before is gone");
    assert_eq!(read(&fabric, DEVICES[0], LINE).outcome, LnOutcome::Cached);
    store(&fabric, LINE, 3);
    assert!(!has_copy(&fabric, DEVICES[0], LINE));
}
