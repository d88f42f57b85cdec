//! The host's side.
//!
//! One completer, requests of functions `01:00.0` and so on at two root ports.
//!
//! Units: bytes; nanoseconds.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use weft_dataplane::time::{Instant, Span};

use super::super::lnc::AddressType;
use super::*;

const PAGE: u64 = 0x1_2345_6000;
const LINE: u64 = 0x1_2345_6780;

fn spec() -> LncSpec {
    let mut regions = Regions::new();
    regions.add(Hpa(PAGE), 0x2000).unwrap();
    LncSpec {
        line: LineSize::B64,
        lines_max: 4,
        watchers_max: 2,
        translated: false,
        regions,
        broadcast_gap: Span::ZERO,
        pending_max: 64,
    }
}

/// Function 0 of bus `bus`; buses of 16 and more are at root port 1.
fn at(bus: u8) -> Origin {
    Origin { port: RootPort(bus >> 4), requester: Bdf::new(bus, 0, 0) }
}

fn whole(from: Origin, addr: u64) -> MemRequest {
    MemRequest {
        from,
        flit: false,
        ln: true,
        addr: Hpa(addr),
        dwords: 16,
        first_be: 0xF,
        last_be: 0xF,
        at: AddressType::Untranslated,
    }
}

fn zero(from: Origin, addr: u64) -> MemRequest {
    MemRequest { dwords: 1, first_be: 0, last_be: 0, ..whole(from, addr) }
}

fn read(lnc: &mut Lnc, request: &MemRequest) -> ReadAnswer {
    lnc.on_read(request, || Access::Done)
}

fn write(lnc: &mut Lnc, request: &MemRequest) -> WriteAnswer {
    lnc.on_write(request, || Access::Done)
}

fn sent(lnc: &mut Lnc) -> Vec<(u8, LnMessage)> {
    std::iter::from_fn(|| lnc.next_message(Instant::ZERO)).map(|(port, m)| (port.0, m)).collect()
}

fn directed(from: Origin, nr: u8, addr: u64) -> (u8, LnMessage) {
    (from.port.0, LnMessage { to: Route::Directed(from.requester), nr, addr: Hpa(addr) })
}

fn broadcast(port: u8, nr: u8, addr: u64) -> (u8, LnMessage) {
    (port, LnMessage { to: Route::Broadcast, nr, addr: Hpa(addr) })
}

/// A read is completed with LN = 1 and registers; an update then notifies the reader.
#[test]
fn an_ln_read_registers_and_an_update_is_told() {
    let mut lnc = Lnc::new(spec());
    assert_eq!(read(&mut lnc, &whole(at(1), LINE)), ReadAnswer::Complete { ln: true });
    assert!(lnc.watches(at(1), Hpa(LINE + 63)) && !lnc.watches(at(1), Hpa(LINE + 64)));
    lnc.on_update(Hpa(LINE + 60), 1);
    assert_eq!(sent(&mut lnc), [directed(at(1), 0, LINE)]);
}

/// A write registers as well, also on a line with other watchers, which it notifies.
#[test]
fn an_ln_write_registers_and_tells_the_others() {
    let mut lnc = Lnc::new(spec());
    read(&mut lnc, &whole(at(1), LINE));
    assert_eq!(write(&mut lnc, &whole(at(2), LINE)), WriteAnswer::Done);
    assert_eq!(sent(&mut lnc), [directed(at(1), 0, LINE)]);
    assert!(lnc.watches(at(2), Hpa(LINE)) && !lnc.watches(at(1), Hpa(LINE)));
    write(&mut lnc, &whole(at(2), LINE));
    assert_eq!(sent(&mut lnc), [], "its own registration is renewed without a message");
    assert!(lnc.watches(at(2), Hpa(LINE)));
}

/// Any write by a device, with or without LN, is an update, also for the writer itself.
#[test]
fn a_plain_write_is_an_update_and_registers_nobody() {
    let mut lnc = Lnc::new(spec());
    read(&mut lnc, &whole(at(1), LINE));
    read(&mut lnc, &whole(at(2), LINE));
    let plain = MemRequest { ln: false, ..whole(at(2), LINE - 32) };
    assert_eq!(write(&mut lnc, &plain), WriteAnswer::Done, "may cross lines");
    assert_eq!(sent(&mut lnc), [directed(at(1), 0, LINE), directed(at(2), 0, LINE)]);
    assert_eq!(lnc.lines(), 0);
    let plain = MemRequest { ln: false, ..whole(at(2), LINE) };
    assert_eq!(read(&mut lnc, &plain), ReadAnswer::Complete { ln: false });
    assert_eq!(lnc.lines(), 0);
}

/// Several functions may register one line; each gets a message of its own.
#[test]
fn several_functions_register_one_line() {
    let mut lnc = Lnc::new(spec());
    read(&mut lnc, &whole(at(1), LINE));
    read(&mut lnc, &whole(at(0x11), LINE));
    lnc.on_update(Hpa(LINE), 4);
    assert_eq!(sent(&mut lnc), [directed(at(1), 0, LINE), directed(at(0x11), 0, LINE)]);
}

/// One registration yields one notification.
#[test]
fn a_registration_is_told_once() {
    let mut lnc = Lnc::new(spec());
    read(&mut lnc, &whole(at(1), LINE));
    read(&mut lnc, &whole(at(1), LINE));
    lnc.on_update(Hpa(LINE), 4);
    lnc.on_update(Hpa(LINE), 4);
    assert_eq!(sent(&mut lnc), [directed(at(1), 0, LINE)]);
    read(&mut lnc, &whole(at(1), LINE));
    lnc.on_update(Hpa(LINE), 4);
    assert_eq!(sent(&mut lnc), [directed(at(1), 0, LINE)], "a new request, a new one");
}

/// Messages are directed up to the limit of watchers and broadcast beyond it; limit 0 always broadcasts.
#[test]
fn beyond_the_limit_a_broadcast_is_sent() {
    #[rustfmt::skip] // columns: limit, watchers, broadcast
    let cases = [(2, 2, false), (2, 3, true), (1, 1, false), (1, 2, true), (0, 1, true)];
    for (limit, watchers, want) in cases {
        let mut lnc = Lnc::new(LncSpec { watchers_max: limit, ..spec() });
        for bus in 1..=watchers {
            read(&mut lnc, &whole(at(bus), LINE));
        }
        lnc.on_update(Hpa(LINE), 4);
        let messages = sent(&mut lnc);
        let count = if want { 1 } else { usize::from(watchers) };
        assert_eq!(messages.len(), count, "{watchers} of {limit}");
        assert_eq!(messages[0] == broadcast(0, 0, LINE), want, "{watchers} of {limit}");
    }
}

/// A broadcast goes to the hierarchy domains that have watchers, and to no other.
#[test]
fn a_broadcast_stays_in_the_domains_of_its_watchers() {
    let mut lnc = Lnc::new(LncSpec { watchers_max: 1, ..spec() });
    for bus in [0x11, 0x12, 0x31] {
        read(&mut lnc, &whole(at(bus), LINE));
    }
    lnc.on_update(Hpa(LINE), 4);
    assert_eq!(sent(&mut lnc), [broadcast(1, 0, LINE), broadcast(3, 0, LINE)]);
}

/// Broadcasts at a port keep the minimum gap; directed messages do not wait for it.
#[test]
fn broadcasts_are_spaced() {
    let mut lnc =
        Lnc::new(LncSpec { watchers_max: 1, broadcast_gap: Span::from_ns(100), ..spec() });
    let update = |lnc: &mut Lnc, line: u64, buses: &[u8]| {
        for bus in buses {
            read(lnc, &whole(at(*bus), line));
        }
        lnc.on_update(Hpa(line), 4);
    };
    update(&mut lnc, LINE, &[1, 2]);
    update(&mut lnc, LINE + 64, &[1, 2]);
    update(&mut lnc, LINE + 128, &[0x11, 0x12]);
    update(&mut lnc, LINE + 192, &[1]);
    let mut times = Vec::new();
    for ns in 0..=150 {
        let now = Instant::from_ns(ns);
        while let Some((port, message)) = lnc.next_message(now) {
            times.push((ns, port.0, message.to == Route::Broadcast));
        }
        let due = (ns < 100).then_some(Instant::from_ns(100));
        assert_eq!(lnc.next_due(), due, "at {ns} ns");
    }
    assert_eq!(times, [(0, 0, true), (0, 1, true), (0, 0, false), (100, 0, true)]);
}

/// A broadcast that is still queued covers a second change.
#[test]
fn a_waiting_broadcast_is_not_doubled() {
    let mut lnc = Lnc::new(LncSpec { watchers_max: 0, ..spec() });
    for _ in 0..2 {
        read(&mut lnc, &whole(at(1), LINE));
        lnc.on_update(Hpa(LINE), 4);
    }
    assert_eq!(sent(&mut lnc), [broadcast(0, 0, LINE)]);
}

/// A full completer evicts the oldest line, with NR 01.
#[test]
fn a_full_completer_evicts_the_oldest() {
    let mut lnc = Lnc::new(spec());
    for line in 0..4 {
        read(&mut lnc, &whole(at(1), PAGE + 64 * line));
    }
    read(&mut lnc, &whole(at(1), PAGE));
    assert_eq!(sent(&mut lnc), [], "renewed, no longer the oldest");
    assert_eq!(read(&mut lnc, &whole(at(2), LINE)), ReadAnswer::Complete { ln: true });
    assert_eq!(sent(&mut lnc), [directed(at(1), 1, PAGE + 64)]);
    assert_eq!((lnc.lines(), lnc.watches(at(1), Hpa(PAGE))), (4, true));
    let mut none = Lnc::new(LncSpec { lines_max: 0, ..spec() });
    assert_eq!(read(&mut none, &whole(at(1), LINE)), ReadAnswer::Complete { ln: false });
}

/// One message ends all registrations, directed to a function or broadcast.
#[test]
fn one_message_lets_go_of_all() {
    let mut lnc = Lnc::new(LncSpec { watchers_max: 1, ..spec() });
    let register = |lnc: &mut Lnc| {
        for (bus, line) in [(1, 0), (1, 1), (0x11, 2), (1, 3), (2, 3), (0x11, 3)] {
            read(lnc, &whole(at(bus), PAGE + 64 * line));
        }
    };
    register(&mut lnc);
    lnc.deregister_function(at(1));
    assert_eq!(sent(&mut lnc), [directed(at(1), 2, 0)]);
    assert_eq!(lnc.lines(), 2);
    register(&mut lnc);
    lnc.deregister_port(RootPort(0));
    assert_eq!(sent(&mut lnc), [broadcast(0, 2, 0)]);
    assert!(!lnc.watches(at(2), Hpa(PAGE + 192)) && lnc.watches(at(0x11), Hpa(PAGE + 192)));
    lnc.port_down(RootPort(1));
    assert_eq!((sent(&mut lnc), lnc.lines()), (vec![], 0));
}

/// Against a flood, all queued messages for a port become one.
#[test]
fn too_many_messages_become_one() {
    let mut lnc = Lnc::new(LncSpec { pending_max: 2, ..spec() });
    for line in 0..4 {
        read(&mut lnc, &whole(at(1), PAGE + 64 * line));
    }
    lnc.on_update(Hpa(PAGE), 192);
    assert_eq!((lnc.counts().collapsed, lnc.lines()), (1, 0));
    assert_eq!(sent(&mut lnc), [broadcast(0, 2, 0)]);
}

/// Only regions that accept registrations are answered with LN = 1.
#[test]
fn other_memory_is_completed_without_ln() {
    let mut lnc = Lnc::new(spec());
    for (addr, want) in
        [(PAGE, true), (PAGE + 0x1FC0, true), (PAGE - 64, false), (PAGE + 0x2000, false)]
    {
        assert_eq!(read(&mut lnc, &whole(at(1), addr)), ReadAnswer::Complete { ln: want });
        assert_eq!(read(&mut lnc, &zero(at(1), addr)), ReadAnswer::Complete { ln: want });
        assert_eq!(lnc.watches(at(1), Hpa(addr)), want, "{addr:#x}");
    }
    assert_eq!(write(&mut lnc, &whole(at(1), PAGE - 64)), WriteAnswer::Done);
    assert!(!lnc.watches(at(1), Hpa(PAGE - 64)), "written but not registered");
}

/// A read of zero length probes: it neither registers nor accesses memory.
#[test]
fn a_probe_registers_nothing() {
    let mut lnc = Lnc::new(spec());
    let answer = lnc.on_read(&zero(at(1), LINE), || panic!("a probe reads nothing"));
    assert_eq!((answer, lnc.lines()), (ReadAnswer::Complete { ln: true }, 0));
}

/// A write of zero length deregisters; without a registration it changes nothing.
#[test]
fn a_write_of_zero_length_deregisters() {
    let mut lnc = Lnc::new(spec());
    assert_eq!(write(&mut lnc, &zero(at(1), LINE)), WriteAnswer::Done);
    assert_eq!(lnc.lines(), 0, "still not registered");
    read(&mut lnc, &whole(at(1), LINE));
    read(&mut lnc, &whole(at(2), LINE));
    let answer = lnc.on_write(&zero(at(1), LINE), || panic!("it writes nothing"));
    assert_eq!(answer, WriteAnswer::Done);
    lnc.on_update(Hpa(LINE), 4);
    assert_eq!(sent(&mut lnc), [directed(at(2), 0, LINE)], "who has left is not told");
    read(&mut lnc, &whole(at(1), LINE));
    write(&mut lnc, &zero(at(1), LINE));
    assert_eq!(lnc.lines(), 0);
}

/// A request that crosses a line is a completer abort, for both line sizes, reads and writes.
#[test]
fn crossing_a_line_is_a_completer_abort() {
    #[rustfmt::skip] // columns: line size, offset, double words, aborted
    let cases = [
        (LineSize::B64,   0,   16, false),
        (LineSize::B64,   60,  1,  false),
        (LineSize::B64,   4,   16, true),
        (LineSize::B64,   60,  2,  true),
        (LineSize::B64,   0,   17, true),
        (LineSize::B64,   0, 1024, true),
        (LineSize::B128,  0,   32, false),
        (LineSize::B128,  64,  16, false),
        (LineSize::B128,  64,  17, true),
    ];
    for (line, offset, dwords, aborted) in cases {
        let mut lnc = Lnc::new(LncSpec { line, ..spec() });
        let last_be = u8::from(dwords != 1);
        let request = MemRequest { dwords, last_be, ..whole(at(1), PAGE + offset) };
        let want =
            if aborted { ReadAnswer::CompleterAbort } else { ReadAnswer::Complete { ln: true } };
        assert_eq!(read(&mut lnc, &request), want, "{line:?} {offset} {dwords}");
        assert_eq!((lnc.lines() == 0, lnc.counts().aborted), (aborted, u64::from(aborted)));
        let want = if aborted { WriteAnswer::CompleterAbort } else { WriteAnswer::Done };
        let answer = lnc.on_write(&request, || {
            assert!(!aborted, "what is aborted is not written");
            Access::Done
        });
        assert_eq!(answer, want, "{line:?} {offset} {dwords}");
    }
    let mut lnc = Lnc::new(spec());
    let plain = MemRequest { ln: false, dwords: 1024, ..whole(at(1), LINE + 4) };
    assert_eq!(read(&mut lnc, &plain), ReadAnswer::Complete { ln: false }, "without LN it may");
    let end = MemRequest { dwords: 1024, ..whole(at(1), u64::MAX) };
    assert_eq!(read(&mut lnc, &end), ReadAnswer::CompleterAbort, "beyond 64 bits");
}

/// The address type must be translated if translation is in use, and untranslated otherwise; else CA.
#[test]
fn the_address_type_is_what_the_system_uses() {
    for translated in [false, true] {
        for (at_field, of_translated) in [
            (AddressType::Untranslated, Some(false)),
            (AddressType::TranslationRequest, None),
            (AddressType::Translated, Some(true)),
            (AddressType::Reserved, None),
        ] {
            let mut lnc = Lnc::new(LncSpec { translated, ..spec() });
            let good = of_translated == Some(translated);
            for request in [whole(at(1), LINE), zero(at(1), LINE)] {
                let request = MemRequest { at: at_field, ..request };
                let aborted = read(&mut lnc, &request) == ReadAnswer::CompleterAbort;
                assert_eq!(aborted, !good, "read {translated} {at_field:?}");
                let aborted = write(&mut lnc, &request) == WriteAnswer::CompleterAbort;
                assert_eq!(aborted, !good, "write {translated} {at_field:?}");
            }
            let plain = MemRequest { ln: false, at: at_field, ..whole(at(1), LINE) };
            assert_eq!(read(&mut lnc, &plain), ReadAnswer::Complete { ln: false });
        }
    }
}

/// A failed read registers nothing; one with poisoned data completes with status SC and registers.
#[test]
fn a_read_in_error_registers_nothing() {
    let mut lnc = Lnc::new(spec());
    assert_eq!(lnc.on_read(&whole(at(1), LINE), || Access::Failed), ReadAnswer::Failed);
    assert_eq!(lnc.lines(), 0);
    let answer = lnc.on_read(&whole(at(1), LINE), || Access::Poisoned);
    assert_eq!((answer, lnc.lines()), (ReadAnswer::Complete { ln: true }, 1));
}

/// A poisoned or failed write registers nothing; it notifies others only if memory changed.
#[test]
fn a_bad_write_registers_nothing() {
    for (access, answer, told) in
        [(Access::Poisoned, WriteAnswer::Done, true), (Access::Failed, WriteAnswer::Failed, false)]
    {
        let mut lnc = Lnc::new(spec());
        read(&mut lnc, &whole(at(1), LINE));
        assert_eq!(lnc.on_write(&whole(at(2), LINE), || access), answer);
        assert!(!lnc.watches(at(2), Hpa(LINE)));
        assert_eq!(!sent(&mut lnc).is_empty(), told, "{access:?}");
    }
}

/// In flit mode the LN bit is reserved and ignored (docs/spec/cxl-fabric.md "Lightweight Notification").
#[test]
fn in_flit_mode_the_bit_is_ignored() {
    let mut lnc = Lnc::new(spec());
    read(&mut lnc, &whole(at(1), LINE));
    let wide = MemRequest { flit: true, dwords: 64, ..whole(at(2), LINE) };
    assert_eq!(read(&mut lnc, &wide), ReadAnswer::Complete { ln: false });
    let zero = MemRequest { flit: true, ..zero(at(1), LINE) };
    assert_eq!(read(&mut lnc, &zero), ReadAnswer::Complete { ln: false });
    assert_eq!(write(&mut lnc, &zero), WriteAnswer::Done);
    assert!(lnc.watches(at(1), Hpa(LINE)), "not deregistered");
    assert_eq!(write(&mut lnc, &wide), WriteAnswer::Done);
    assert_eq!((sent(&mut lnc), lnc.lines()), (vec![directed(at(1), 0, LINE)], 0));
}

/// Malformed requests are dropped, and none panics.
#[test]
fn malformed_requests_are_dropped() {
    let mut lnc = Lnc::new(spec());
    for (dwords, first_be, last_be) in
        [(0, 0xF, 0), (1, 0xF, 1), (2, 0xF, 0), (2, 0, 0xF), (1_025, 0xF, 0xF)]
    {
        let request = MemRequest { dwords, first_be, last_be, ..whole(at(1), PAGE) };
        assert_eq!(
            read(&mut lnc, &request),
            ReadAnswer::Malformed,
            "{dwords} {first_be} {last_be}"
        );
        assert_eq!(write(&mut lnc, &request), WriteAnswer::Malformed);
    }
    lnc.on_update(Hpa(u64::MAX), u64::MAX);
    lnc.on_update(Hpa(0), 0);
    assert_eq!((lnc.lines(), sent(&mut lnc)), (0, vec![]));
}
