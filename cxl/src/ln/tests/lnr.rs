//! The device's side.
//!
//! One requester `01:00.0`, its requests taken as values.
//!
//! Units: bytes; lines.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use super::super::lnr::Effect;
use super::super::registers::Supported;
use super::*;

const LINE: u64 = 0x1_2345_6780;
const ME: Bdf = Bdf::new(1, 0, 0);

/// On, lines of `size`, 2^`limit` of them.
fn lnr_of(size: LineSize, limit: u16) -> Lnr {
    let mut lnr = Lnr::new(ME, LnrRegisters::new(Supported::Only(size), 8), false);
    lnr.write_control(limit << 8 | 1);
    lnr
}

fn lnr() -> Lnr {
    lnr_of(LineSize::B64, 8)
}

fn start(lnr: &mut Lnr, addr: u64) -> Ticket {
    lnr.ln_read(Hpa(addr), &mut Vec::new()).unwrap()
}

/// Reads the line at `addr` and gets 64 times `byte`.
fn cache(lnr: &mut Lnr, addr: u64, byte: u8) {
    let ticket = start(lnr, addr);
    assert_eq!(lnr.on_completion(ticket, true, CplData::Good(&[byte; 64])), Outcome::Cached);
}

fn directed(nr: u8, addr: u64) -> LnMessage {
    LnMessage { to: Route::Directed(ME), nr, addr: Hpa(addr) }
}

fn broadcast(nr: u8, addr: u64) -> LnMessage {
    LnMessage { to: Route::Broadcast, nr, addr: Hpa(addr) }
}

/// The completion's data is the copy, until a message comes.
#[test]
fn a_copy_lives_from_completion_to_message() {
    for (name, message) in [
        ("directed, updated", directed(0, LINE)),
        ("directed, evicted", directed(1, LINE)),
        ("directed, all", directed(2, 0)),
        ("broadcast, updated", broadcast(0, LINE)),
        ("broadcast, evicted", broadcast(1, LINE)),
        ("broadcast, all", broadcast(2, 0)),
    ] {
        let mut lnr = lnr();
        let mut out = Vec::new();
        let ticket = lnr.ln_read(Hpa(LINE + 8), &mut out).unwrap();
        assert_eq!(out, [LnrRequest::Read { ticket, line: LineSize::B64.line(Hpa(LINE)) }]);
        assert_eq!(lnr.copy(Hpa(LINE)), None, "not before the completion");
        lnr.on_completion(ticket, true, CplData::Good(&[7; 64]));
        assert_eq!(lnr.copy(Hpa(LINE + 63)), Some(&[7; 64][..]));
        assert_eq!(lnr.copy(Hpa(LINE + 64)), None);
        assert_eq!(lnr.on_message(&message), Effect::Dropped(1), "{name}");
        assert_eq!(lnr.copy(Hpa(LINE)), None, "{name}");
        assert_eq!(lnr.on_message(&message), Effect::Dropped(0), "{name}: again");
    }
}

/// NR 00 and 01 drop one line, NR 10 drops all.
#[test]
fn one_line_or_all_are_dropped() {
    for (nr, want) in [(0, 2), (1, 2), (2, 0)] {
        let mut lnr = lnr();
        for line in 0..3 {
            cache(&mut lnr, LINE + 64 * line, 1);
        }
        lnr.on_message(&directed(nr, LINE + 64));
        assert_eq!(lnr.copies().count(), want, "NR {nr}");
    }
}

/// NR 11 is reserved: the message is counted as malformed, and has no other effect.
#[test]
fn the_reserved_reason_is_malformed() {
    let mut lnr = lnr();
    cache(&mut lnr, LINE, 1);
    assert_eq!(lnr.on_message(&directed(3, LINE)), Effect::Malformed);
    assert_eq!(lnr.on_message(&broadcast(3, LINE)), Effect::Malformed);
    let other = LnMessage { to: Route::Directed(Bdf::new(1, 0, 1)), ..directed(0, LINE) };
    assert_eq!(lnr.on_message(&other), Effect::Misrouted);
    assert_eq!((lnr.counters().malformed, lnr.counters().misrouted), (2, 1));
    assert!(lnr.copy(Hpa(LINE)).is_some());
}

/// Address bits 5:0 are ignored, and bit 6 with lines of 128 bytes.
#[test]
fn low_address_bits_of_a_message_are_ignored() {
    for (size, low, want) in [
        (LineSize::B64, 0x3F, true),
        (LineSize::B64, 0x40, false),
        (LineSize::B128, 0x7F, true),
        (LineSize::B128, 0x80, false),
    ] {
        let mut lnr = lnr_of(size, 8);
        let ticket = start(&mut lnr, 0x1000);
        lnr.on_completion(ticket, true, CplData::Good(&vec![1; size.bytes()]));
        lnr.on_message(&directed(0, 0x1000 + low));
        assert_eq!(lnr.copy(Hpa(0x1000)).is_none(), want, "{size:?} {low:#x}");
    }
}

/// A message may belong to a read under way, so that such a read leaves no copy.
#[test]
fn a_message_dooms_the_copies_of_reads_under_way() {
    for message in [directed(0, LINE), directed(1, LINE), directed(2, 0), broadcast(0, LINE)] {
        let mut lnr = lnr();
        let ticket = start(&mut lnr, LINE);
        let other = start(&mut lnr, LINE + 64);
        lnr.on_message(&message);
        assert_eq!(lnr.on_completion(ticket, true, CplData::Good(&[1; 64])), Outcome::Once);
        assert_eq!(lnr.copy(Hpa(LINE)), None, "{message:?}");
        let kept = if message.nr == 2 { Outcome::Once } else { Outcome::Cached };
        assert_eq!(lnr.on_completion(other, true, CplData::Good(&[1; 64])), kept, "{message:?}");
        cache(&mut lnr, LINE, 2); // a read sent after the message is good
    }
}

/// A write leaves a copy if the page is known to accept registrations (no completion tells) and the whole line is
/// known.
#[test]
fn a_write_keeps_a_copy_where_registrations_are_taken() {
    let mut lnr = lnr();
    lnr.ln_write(Hpa(LINE), &[1; 64], &mut Vec::new()).unwrap();
    assert_eq!(lnr.copy(Hpa(LINE)), None, "nothing is known of the page");
    let ticket = lnr.probe(Hpa(LINE), &mut Vec::new()).unwrap();
    assert_eq!(lnr.on_completion(ticket, true, CplData::Good(&[])), Outcome::Probed(true));
    let mut out = Vec::new();
    lnr.ln_write(Hpa(LINE), &[2; 64], &mut out).unwrap();
    assert_eq!(out, [LnrRequest::Write { addr: Hpa(LINE), data: vec![2; 64] }]);
    assert_eq!(lnr.copy(Hpa(LINE)), Some(&[2; 64][..]));
    lnr.ln_write(Hpa(LINE + 63), &[3], &mut out).unwrap();
    assert_eq!(lnr.copy(Hpa(LINE)).map(|copy| (copy[62], copy[63])), Some((2, 3)), "a part of it");
    lnr.ln_write(Hpa(LINE + 64), &[4; 8], &mut out).unwrap();
    assert_eq!(lnr.copy(Hpa(LINE + 64)), None, "a part of a line that has no copy");
    let ticket = lnr.probe(Hpa(LINE), &mut Vec::new()).unwrap();
    assert_eq!(lnr.on_completion(ticket, false, CplData::Good(&[])), Outcome::Probed(false));
    lnr.ln_write(Hpa(LINE), &[5; 64], &mut out).unwrap();
    assert_eq!(lnr.copy(Hpa(LINE)), None, "the page takes none any more");
}

/// A write that crosses a line is refused.
#[test]
fn a_write_across_lines_is_not_sent() {
    let mut lnr = lnr();
    let mut out = Vec::new();
    for (offset, len) in [(0, 65), (1, 64), (63, 2), (0, 0)] {
        let write = lnr.ln_write(Hpa(LINE + offset), &vec![0; len], &mut out);
        assert!(matches!(write, Err(Refused::Extent { .. })), "{offset} {len}");
    }
    assert_eq!(out, []);
    lnr.ln_write(Hpa(u64::MAX), &[0], &mut out).unwrap();
}

/// The device's own writes make the data of a read under way too old to keep; a plain write drops the copy, too.
#[test]
fn own_writes_doom_reads_under_way() {
    let mut lnr = lnr();
    cache(&mut lnr, LINE, 1);
    let ticket = start(&mut lnr, LINE);
    lnr.ln_write(Hpa(LINE), &[2; 64], &mut Vec::new()).unwrap();
    assert_eq!(lnr.on_completion(ticket, true, CplData::Good(&[1; 64])), Outcome::Once);
    assert_eq!(lnr.copy(Hpa(LINE)), Some(&[2; 64][..]), "the older data does not replace it");
    let ticket = start(&mut lnr, LINE + 64);
    lnr.on_own_write(Hpa(LINE + 60), 8);
    assert_eq!(lnr.copy(Hpa(LINE)), None);
    assert_eq!(lnr.on_completion(ticket, true, CplData::Good(&[1; 64])), Outcome::Once);
}

/// A completion without LN, with an error status, or with poisoned or too little data leaves no copy.
#[test]
fn only_a_good_ln_completion_leaves_a_copy() {
    #[rustfmt::skip] // columns: name, LN, data, outcome, may be registered
    let cases: [(&str, bool, CplData<'_>, Outcome, bool); 7] = [
        ("good",           true,  CplData::Good(&[1; 64]), Outcome::Cached, true),
        ("no LN",          false, CplData::Good(&[1; 64]), Outcome::Once,   false),
        ("bad data",       true,  CplData::Poisoned,       Outcome::Failed, true),
        ("bad, no LN",     false, CplData::Poisoned,       Outcome::Failed, false),
        ("failed",         true,  CplData::Failed,         Outcome::Failed, false),
        ("lost",           false, CplData::Lost,           Outcome::Failed, true),
        ("short",          true,  CplData::Good(&[1; 63]), Outcome::Failed, true),
    ];
    for (name, ln, data, outcome, registered) in cases {
        let mut lnr = lnr();
        let ticket = start(&mut lnr, LINE);
        assert_eq!(lnr.on_completion(ticket, ln, data), outcome, "{name}");
        assert_eq!(lnr.copy(Hpa(LINE)).is_some(), outcome == Outcome::Cached, "{name}");
        assert_eq!(lnr.may_be_registered(Hpa(LINE)), registered, "{name}");
        assert_eq!(lnr.on_completion(ticket, ln, data), Outcome::Unknown, "{name}: again");
    }
}

/// At the limit the line used longest ago is deregistered first, and shells without a copy before it.
#[test]
fn at_the_limit_the_oldest_makes_way() {
    let mut lnr = lnr_of(LineSize::B64, 2);
    for line in 0..4 {
        cache(&mut lnr, LINE + 64 * line, 1);
    }
    cache(&mut lnr, LINE, 2); // no longer the oldest
    let victims = |lnr: &mut Lnr, line: u64| {
        let mut out = Vec::new();
        let ticket = lnr.ln_read(Hpa(LINE + 64 * line), &mut out).unwrap();
        lnr.on_completion(ticket, true, CplData::Good(&[1; 64]));
        let lines = out.iter().filter_map(|request| match request {
            LnrRequest::Deregister { line } => Some((line.addr().0 - LINE) / 64),
            _ => None,
        });
        lines.collect::<Vec<_>>()
    };
    assert_eq!(victims(&mut lnr, 4), [1], "oldest");
    lnr.on_message(&directed(0, LINE + 64 * 3));
    assert_eq!(victims(&mut lnr, 3), [0u64; 0], "still counted: reading it again costs nothing");
    lnr.on_message(&directed(0, LINE + 64 * 4));
    assert_eq!(victims(&mut lnr, 5), [4], "a shell before an older copy");
    assert_eq!(lnr.copies().count(), 4);
}

/// Reads under way count against the limit, and are not deregistered, as they might register again.
#[test]
fn reads_under_way_count_against_the_limit() {
    let mut lnr = lnr_of(LineSize::B64, 1);
    let mut out = Vec::new();
    let first = lnr.ln_read(Hpa(LINE), &mut out).unwrap();
    lnr.ln_read(Hpa(LINE + 64), &mut out).unwrap();
    lnr.ln_read(Hpa(LINE), &mut out).unwrap(); // the same line again takes no more room
    assert_eq!(lnr.ln_read(Hpa(LINE + 128), &mut out), Err(Refused::Limit { limit: 2 }));
    let write = lnr.ln_write(Hpa(LINE + 128), &[0; 4], &mut out);
    assert_eq!(write, Err(Refused::Limit { limit: 2 }));
    let refused = Err(Refused::UnderWay { addr: Hpa(LINE) });
    assert_eq!(lnr.deregister(Hpa(LINE), &mut out), refused);
    assert_eq!(out.len(), 3, "nothing was sent for what was refused");
    lnr.on_completion(first, true, CplData::Good(&[1; 64]));
    assert_eq!(lnr.deregister(Hpa(LINE), &mut out), refused, "the second one is under way");
    lnr.probe(Hpa(LINE), &mut out).unwrap();
}

/// The device gives up a line by a write of zero length.
#[test]
fn a_line_is_given_back() {
    let mut lnr = lnr();
    cache(&mut lnr, LINE, 1);
    let mut out = Vec::new();
    lnr.deregister(Hpa(LINE + 9), &mut out).unwrap();
    assert_eq!(out, [LnrRequest::Deregister { line: LineSize::B64.line(Hpa(LINE)) }]);
    assert!(lnr.copy(Hpa(LINE)).is_none() && !lnr.may_be_registered(Hpa(LINE)));
}

/// Disabling LN drops all state, and completions of reads under way are ignored.
#[test]
fn switched_off_it_forgets() {
    let mut lnr = lnr();
    cache(&mut lnr, LINE, 1);
    let ticket = start(&mut lnr, LINE + 64);
    lnr.write_control(0x0800);
    assert_eq!(lnr.copy(Hpa(LINE)), None);
    let mut out = Vec::new();
    assert_eq!(lnr.ln_read(Hpa(LINE), &mut out), Err(Refused::Off));
    assert_eq!(lnr.ln_write(Hpa(LINE), &[0], &mut out), Err(Refused::Off));
    assert_eq!(lnr.probe(Hpa(LINE), &mut out), Err(Refused::Off));
    assert_eq!(lnr.deregister(Hpa(LINE), &mut out), Err(Refused::Off));
    assert_eq!(lnr.on_message(&directed(0, LINE)), Effect::Off);
    lnr.write_control(0x0801);
    assert_eq!(lnr.on_completion(ticket, true, CplData::Good(&[1; 64])), Outcome::Unknown);
    assert_eq!((lnr.copies().count(), out.len()), (0, 0), "on again, still empty");
}

/// In flit mode there is no LN (docs/spec/cxl-fabric.md "Lightweight Notification").
#[test]
fn in_flit_mode_nothing_is_sent() {
    let mut lnr = Lnr::new(ME, LnrRegisters::new(Supported::Both, 8), true);
    lnr.write_control(0x0801);
    assert_eq!(lnr.ln_read(Hpa(LINE), &mut Vec::new()), Err(Refused::Off));
    assert_eq!(lnr.on_message(&directed(0, LINE)), Effect::Off);
}
