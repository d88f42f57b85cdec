//! Notifications of events: a link that changes at either switch is reported to the manager, and a flood of changes
//! causes few messages.
//!
//! The two switches are those of [`agent_rig`](crate::agent_rig); messages come from [`Agent::next_notice`].
//!
//! Source: docs/spec/wire-formats.md §4.2 ("Events"); docs/spec/cxl-fabric.md "Dynamic change".
//!
//! [`Agent::next_notice`]: weft_pbr_switch::Agent::next_notice

use crate::agent_rig::manager::SECOND;
use crate::agent_rig::{DEVICE, FABRIC, FM, Fabric, GFD, HOST, message, port};
use weft_dataplane::time::Span;
use weft_parsers::cci::events::{
    INFO, PORT_EVENT, PortEvent, REFUSAL_EVENT, RefusalEvent, WARNING,
};
use weft_parsers::cci::generic::{ClearEvents, EventRecords};
use weft_parsers::cci::pbr::{CrawlOut, CrawlTarget};
use weft_parsers::cci::{Category, Header, List, Opcode, Payload, Request, ReturnCode, Wire};

/// Least time between two batches.
const GAP: Span = Span::from_ms(10);

/// A claimed fabric, in which both switches notify of changed links.
fn up() -> Fabric {
    let mut fabric = Fabric::new(256, 256);
    fabric.crawl();
    for way in [&[][..], &SECOND] {
        let policy = fabric.ok(way, &Request::SetMctpEvents(0xFFFE));
        assert_eq!(policy, [1 << WARNING, 0], "of the logs that there are");
        let all = ClearEvents { log: WARNING, all: true, handles: List::of(&[]) };
        fabric.ok(way, &Request::ClearEvents(all));
    }
    fabric.rest(Span::from_ms(50));
    notices(&mut fabric);
    fabric
}

/// Takes the manager's messages: for each the component, `None` for the first switch, and its changed logs.
fn notices(fabric: &mut Fabric) -> Vec<(Option<CrawlTarget>, u16)> {
    let messages = core::iter::from_fn(|| fabric.nodes[0].agent.next_notice());
    let read = |message: Vec<u8>| {
        let (header, payload) = Header::parse(&message).unwrap();
        assert_eq!(header.category, Category::Event);
        if header.opcode == Opcode::EVENT {
            return (None, u16::parse(payload).unwrap());
        }
        assert_eq!(header.opcode, Opcode::CRAWL_OUT);
        let crawl = CrawlOut::parse(payload).unwrap();
        let (inner, logs) = Header::parse(crawl.message.bytes()).unwrap();
        assert_eq!((inner.category, inner.opcode), (Category::Event, Opcode::EVENT));
        (Some(crawl.target), u16::parse(logs).unwrap())
    };
    messages.map(read).collect()
}

/// Unplugs the device of a switch, or plugs it in.
fn plug(fabric: &mut Fabric, at: usize, on: bool) {
    let (now, link) = (fabric.net.now, on.then(weft_cxl::pci::Link::default));
    fabric.nodes[at].agent.set_link(now, port(DEVICE[at]), link);
}

fn clear(log: u8, handles: &[u16]) -> ClearEvents<'_> {
    ClearEvents { log, all: false, handles: List::of(handles) }
}

/// Reads the records of a log.
fn records(fabric: &mut Fabric, way: &[CrawlTarget], log: u8) -> Vec<(u16, [u8; 16], [u8; 80])> {
    let payload = fabric.ok(way, &Request::GetEvents(log));
    let records = EventRecords::parse(&payload).unwrap().records;
    records.iter().map(|record| (record.handle, record.kind, record.data)).collect()
}

#[test]
fn a_link_that_changes_anywhere_is_notified_of() {
    let mut fabric = up();
    plug(&mut fabric, 0, false);
    assert_eq!(notices(&mut fabric), [(None, 1 << WARNING)], "at once, by the entry switch");
    plug(&mut fabric, 1, false);
    let far = fabric.until("the far switch's notification", |fabric| notices(fabric).pop());
    assert_eq!(far, (Some(SECOND[0]), 1 << WARNING), "by the way that it is asked");
    for (at, way) in [&[][..], &SECOND].into_iter().enumerate() {
        let all = records(&mut fabric, way, WARNING);
        let [(handle, PORT_EVENT, data)] = all[..] else { panic!("{all:?}") };
        let event = PortEvent::read(&data).unwrap();
        let want = (u8::try_from(DEVICE[at]).unwrap(), 0, 0, 0);
        assert_eq!((event.port, event.event, event.ltssm, event.width), want);
        let wrong = fabric.ask(way, &Request::ClearEvents(clear(WARNING, &[handle, handle + 9])));
        assert_eq!(wrong.0, ReturnCode::InvalidHandle);
        assert_eq!(records(&mut fabric, way, WARNING).len(), 1, "nothing is cleared");
        fabric.ok(way, &Request::ClearEvents(clear(WARNING, &[handle])));
        assert_eq!(records(&mut fabric, way, WARNING), []);
    }
    fabric.check();
}

/// A switch learns its partner only after the link is up; that is a second event.
#[test]
fn a_new_partner_is_notified_of() {
    let mut fabric = up();
    fabric.wire.set_link(false);
    fabric.until("both ends see it", |fabric| {
        let is_down = |(at, number): (usize, usize)| {
            fabric.nodes[at].agent.switch().port(port(number)).unwrap().link.is_none()
        };
        [(0, FABRIC[0]), (1, FABRIC[1])].into_iter().all(is_down).then_some(())
    });
    assert_eq!(notices(&mut fabric), [(None, 1 << WARNING)], "the far switch's is lost");
    fabric.wire.set_link(true);
    fabric.rest(Span::from_ms(100));
    let told = notices(&mut fabric);
    assert!(told.contains(&(None, 1 << WARNING)), "{told:?}");
    let kinds: Vec<u8> = records(&mut fabric, &[], WARNING)
        .iter()
        .map(|(.., data)| PortEvent::read(data).unwrap())
        .filter(|event| event.port == u8::try_from(FABRIC[0]).unwrap() && event.ltssm == 4)
        .map(|event| event.partner_type)
        .collect();
    assert_eq!(kinds.last(), Some(&6), "a PBR component is at the other end: {kinds:?}");
}

/// docs/security.md: a flood costs the manager one batch for each [`GAP`] at most.
#[test]
fn floods_are_bounded() {
    let mut fabric = up();
    for _ in 0..1_000 {
        plug(&mut fabric, 0, false);
        plug(&mut fabric, 0, true);
    }
    assert_eq!(notices(&mut fabric).len(), 1, "one batch at a time");
    fabric.rest(GAP);
    fabric.rest(GAP);
    assert!(notices(&mut fabric).len() <= 2);
    let log = fabric.ok(&[], &Request::GetEvents(WARNING));
    let log = EventRecords::parse(&log).unwrap();
    assert_eq!((log.records.len(), log.flags), (64, 1), "the log is full, and says so");
    assert!(log.lost >= 1_900, "{}", log.lost);
}

/// A switch notifies only if the manager has asked for it.
#[test]
fn a_manager_that_does_not_ask_is_not_notified() {
    let mut fabric = up();
    for way in [&[][..], &SECOND] {
        assert_eq!(fabric.ok(way, &Request::SetMctpEvents(0)), [0, 0]);
        assert_eq!(fabric.ok(way, &Request::GetMctpEvents), [0, 0]);
    }
    plug(&mut fabric, 0, false);
    plug(&mut fabric, 1, false);
    fabric.rest(Span::from_ms(50));
    assert_eq!(notices(&mut fabric), [], "nobody has asked for it");
    // Asking later brings the events that occurred meanwhile.
    fabric.ok(&[], &Request::SetMctpEvents(1 << WARNING));
    assert_eq!(notices(&mut fabric), [(None, 1 << WARNING)]);
}

/// Each port and rule has one record with the count so far. The handle of an older state clears nothing.
#[test]
fn refused_accesses_are_records_of_the_informational_log() {
    let mut fabric = up();
    let now = fabric.net.now;
    let agent = &mut fabric.nodes[0].agent;
    for (number, rule, count) in
        [(HOST, "not-in-gmv", 1), (GFD, "not-from-gfd", 7), (HOST, "not-in-gmv", 5)]
    {
        agent.log_refusals(now, port(number), rule, count);
    }
    let all = records(&mut fabric, &[], INFO);
    let read = |(_, kind, data): &(u16, [u8; 16], [u8; 80])| {
        assert_eq!(*kind, REFUSAL_EVENT);
        let event = RefusalEvent::read(data).unwrap();
        (event.port, event.pid, event.rule().collect::<String>(), event.count)
    };
    let told: Vec<_> = all.iter().map(read).collect();
    let want = [(1, 0xFFF, "not-from-gfd".to_owned(), 7), (0, 0x0A1, "not-in-gmv".to_owned(), 5)];
    assert_eq!(told, want);
    assert_eq!(notices(&mut fabric), [], "any host could have that told");
    let now = fabric.net.now;
    fabric.nodes[0].agent.log_refusals(now, port(HOST), "not-in-gmv", 6);
    let old: Vec<u16> = all.iter().map(|(handle, ..)| *handle).collect();
    assert_eq!(
        fabric.ask(&[], &Request::ClearEvents(clear(INFO, &old))).0,
        ReturnCode::InvalidHandle
    );
    assert_eq!(records(&mut fabric, &[], INFO).iter().map(read).next_back().unwrap().3, 6);
    for (log, code) in
        [(2, ReturnCode::Success), (4, ReturnCode::Success), (5, ReturnCode::InvalidInput)]
    {
        assert_eq!(fabric.ask(&[], &Request::GetEvents(log)).0, code, "log {log}");
    }
}

/// When a link goes down, requests over it fail at once, and new ones as well.
#[test]
fn requests_over_a_lost_link_are_given_up_at_once() {
    let mut fabric = up();
    let identify = message(&Request::IdentifyPbrComponent);
    let crawl = CrawlOut { target: SECOND[0], message: List::of(&identify) };
    let start = fabric.net.now;
    fabric.nodes[0].agent.cci(start, FM, &message(&Request::CrawlOut(crawl)));
    fabric.wire.set_link(false);
    let (code, _) = fabric.answer();
    assert_eq!(code, ReturnCode::RetryRequired);
    assert_eq!(fabric.ask(&SECOND, &Request::IdentifyPbrComponent).0, ReturnCode::RetryRequired);
    assert!(fabric.net.now.since(start) < GAP, "{:?}", fabric.net.now.since(start));
    fabric.wire.set_link(true);
    fabric.rest(Span::from_ms(100));
    assert_eq!(fabric.ask(&SECOND, &Request::IdentifyPbrComponent).0, ReturnCode::Success);
}
