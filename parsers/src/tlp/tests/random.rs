//! Random TLPs of every kind: emitted, read, translated, answered.

use super::malformed::short_is_refused;
use super::*;
use crate::testing::Rng;

const MESSAGES: [Routing; 6] = [
    Routing::ToRoot,
    Routing::Address,
    Routing::Id,
    Routing::Broadcast,
    Routing::Local,
    Routing::Gather,
];

fn below(rng: &mut Rng, bound: u16) -> u16 {
    rng.u16() % bound
}

/// A random kind, with random values of its fields.
fn kind(rng: &mut Rng) -> Kind {
    let coin = rng.bool();
    let routing = MESSAGES[usize::from(below(rng, 6))];
    match rng.below(18) {
        0 => Kind::Nop,
        1 => Kind::MemRead,
        2 => Kind::MemReadLocked,
        3 => Kind::MemWrite,
        4 => Kind::DeferrableMemWrite,
        5 => Kind::IoRead,
        6 => Kind::IoWrite,
        7 => Kind::CfgRead { type1: coin },
        8 => Kind::CfgWrite { type1: coin },
        9 => Kind::Completion { locked: coin, data: rng.bool() },
        10 | 11 => Kind::Message { routing, data: coin },
        12 => Kind::FetchAdd,
        13 => Kind::Swap,
        14 => Kind::Cas,
        15 => Kind::UioRead,
        16 => Kind::UioWrite,
        _ if coin => Kind::UioWriteCompletion,
        _ => Kind::UioReadCompletion { data: rng.bool() },
    }
}

fn status(rng: &mut Rng) -> Status {
    Status::from_low_bits([0, 1, 2, 4][usize::from(below(rng, 4))])
}

fn address(kind: Kind, rng: &mut Rng) -> Body {
    let wide = !kind.is_io() && (kind.is_uio() || rng.bool());
    let length_dw = match kind {
        Kind::FetchAdd | Kind::Swap => 1 << rng.below(2),
        Kind::Cas => 2 << rng.below(3),
        kind if kind.is_io() => 1,
        _ if rng.below(8) == 0 => 1_024,
        _ => 1 + below(rng, 64),
    };
    let bytes = u64::from(length_dw) * 4;
    // aligned to the operand of an atomic, and within 4 KiB; of CAS there are two in the payload
    let bytes = if kind == Kind::Cas { bytes / 2 } else { bytes };
    let step = if kind.is_atomic() { bytes } else { 4 };
    let page = if wide { rng.u64() } else { u64::from(rng.u32()) } & !0xFFF;
    let addr = Hpa(page + rng.below((4_096 - bytes) / step + 1) * step);
    let (first_be, last_be) = match length_dw {
        _ if kind.is_atomic() => (0xF, if length_dw > 1 { 0xF } else { 0 }),
        1 => (rng.u8() & 0xF, 0),
        _ => (
            [0x8, 0xC, 0xE, 0xF][usize::from(below(rng, 4))],
            [1, 3, 7, 0xF][usize::from(below(rng, 4))],
        ),
    };
    let at = if kind.is_io() {
        At::Untranslated
    } else {
        [At::Untranslated, At::TranslationRequest, At::Translated][usize::from(below(rng, 3))]
    };
    let no_write = at == At::TranslationRequest && rng.bool();
    Body::Address { addr, wide, at, no_write, length_dw, first_be, last_be }
}

fn body(kind: Kind, segment: Option<u8>, rng: &mut Rng) -> Body {
    let completer = Bdf::from_bits(rng.u16());
    let completer_segment = segment.map(|_| rng.u8());
    match kind {
        Kind::Nop => Body::Nop,
        Kind::Message { .. } => Body::Message { code: rng.u8(), dw2: rng.u32(), dw3: rng.u32() },
        Kind::Completion { .. } => Body::Completion {
            completer,
            completer_segment,
            status: status(rng),
            byte_count: 1 + below(rng, 4_096),
            lower_address: rng.u8() & 0x7F,
        },
        kind if kind.is_uio_completion() => Body::UioCompletion {
            completer,
            completer_segment,
            status: status(rng),
            dev_load: DevLoad::from_low_bits(rng.u8()),
            offset_dw: below(rng, 1_024),
        },
        kind if kind.is_config() => {
            Body::Config { dest: completer, register: rng.u16() & 0xFFC, first_be: rng.u8() & 0xF }
        }
        kind => address(kind, rng),
    }
}

/// A TLP that `mode` has; everything in it is random.
fn tlp<'a>(mode: Mode, data: &'a [u8], rng: &mut Rng) -> TlpRepr<'a> {
    let kind = loop {
        let kind = kind(rng);
        if kind.byte(mode, false).is_some() {
            break kind;
        }
    };
    if kind == Kind::Nop {
        return TlpRepr::new(mode, kind, Bdf::default(), 0, Body::Nop);
    }
    let flit = mode == Flit;
    let is_message = matches!(kind, Kind::Message { .. });
    let segment = (flit && !kind.is_memory() && !kind.is_io() && rng.bool()).then(|| rng.u8());
    let body = body(kind, segment, rng);
    let payload = match body {
        _ if !kind.has_data() => 0,
        Body::Address { length_dw, .. } => usize::from(length_dw),
        Body::Config { .. } => 1,
        _ => 1 + usize::from(below(rng, 32)),
    };
    let pasid = (kind.is_memory() || is_message) && rng.bool();
    let execute = rng.bool() && !(flit && is_message);
    let pasid = pasid.then(|| Pasid { pasid: rng.u32() >> 12, privileged: rng.bool(), execute });
    let takes_ln = matches!(kind, Kind::MemRead | Kind::MemWrite | Kind::Completion { .. });
    let prefix = VendPrefixL0::from_bytes(rng.bytes());
    TlpRepr {
        vend_prefix: rng.bool().then_some(prefix),
        tc: rng.u8() & 7,
        attr: Attr::from_low_bits(if kind.is_uio() { 0 } else { rng.u8() }),
        ln: !flit && takes_ln && rng.bool(),
        ep: rng.bool(),
        pasid,
        requester_segment: (flit && rng.bool()).then(|| rng.u8()),
        dest_segment: segment,
        payload: &data[..payload * 4],
        ..TlpRepr::new(
            mode,
            kind,
            Bdf::from_bits(rng.u16()),
            if flit && is_message { 0 } else { rng.u16() & if flit { 0x3FFF } else { 0x3FF } },
            body,
        )
    }
}

fn data(rng: &mut Rng) -> [u8; 4_096] {
    rng.bytes()
}

#[test]
fn parse_undoes_emit_in_both_modes() {
    let mut rng = Rng::new(33);
    let data = data(&mut rng);
    let mut out = [0; 4_200];
    for round in 0..20_000 {
        let mode = if rng.bool() { Flit } else { NonFlit };
        let want = tlp(mode, &data, &mut rng);
        let len = want.emit(&mut out).unwrap_or_else(|error| panic!("{error}: {want:?}"));
        let found = Tlp::parse(mode, &out).unwrap();
        assert_eq!((found.repr(), found.len()), (want, len));
        let room = EmitError::Room { need: len, had: len - 1 };
        assert_eq!(want.emit(&mut out[..len - 1]), Err(room));
        if round % 64 == 0 {
            want.emit(&mut out).unwrap();
            short_is_refused(mode, &out[..len]);
        }
    }
}

#[test]
fn translation_there_and_back_changes_nothing() {
    let mut rng = Rng::new(34);
    let data = data(&mut rng);
    let (mut one, mut two, mut three) = ([0; 4_200], [0; 4_200], [0; 4_200]);
    let mut refused = [0; 3];
    for _ in 0..20_000 {
        let mut old = tlp(NonFlit, &data, &mut rng);
        let len = old.emit(&mut one).unwrap();
        let there = to_flit(&Tlp::parse(NonFlit, &one[..len]).unwrap(), &mut two).unwrap();
        let back = to_non_flit(&Tlp::parse(Flit, &two[..there]).unwrap(), &mut three).unwrap();
        // LN does not survive, nor do a message's tag and ER
        old.ln = false;
        if let Kind::Message { .. } = old.kind {
            old.tag = 0;
            old.pasid = old.pasid.map(|pasid| Pasid { execute: false, ..pasid });
        }
        assert_eq!(Tlp::parse(NonFlit, &three[..back]).unwrap().repr(), old);

        let new = tlp(Flit, &data, &mut rng);
        let len = new.emit(&mut one).unwrap();
        let there = to_non_flit(&Tlp::parse(Flit, &one[..len]).unwrap(), &mut two);
        let has_segment = new.dest_segment.or(new.requester_segment).is_some();
        let is_flit_only = new.kind.is_uio() || new.kind == Kind::Nop;
        let want = match there {
            Err(ConvertError::Kind) => (is_flit_only, 0),
            Err(ConvertError::Segment) => (has_segment, 1),
            Err(ConvertError::Tag) => (new.tag > 0x3FF, 2),
            Err(other) => panic!("{other}: {new:?}"),
            Ok(there) => {
                assert!(!is_flit_only && !has_segment && new.tag <= 0x3FF, "{new:?}");
                let found = Tlp::parse(NonFlit, &two[..there]).unwrap();
                let back = to_flit(&found, &mut three).unwrap();
                assert_eq!(Tlp::parse(Flit, &three[..back]).unwrap().repr(), new);
                continue;
            }
        };
        assert!(want.0, "{there:?}: {new:?}");
        refused[want.1] += 1;
    }
    assert!(refused.iter().all(|&count| count > 100), "all kinds of refusal: {refused:?}");
}

#[test]
fn what_non_flit_mode_cannot_carry_is_named() {
    #[rustfmt::skip] // columns: name, bytes, error
    let cases = [
        ("IDE",    "03 04 00 01 00 00 00 00 00 00 00 00 00 00 00 01", ConvertError::Ide),
        ("MAC",    "03 00 A0 01 00 00 00 00 00 00 00 00", ConvertError::Ide),
        ("OHC-E",  "03 08 00 01 00 00 00 00 00 00 00 00", ConvertError::Extension),
        ("UIO",    "22 00 00 02 00 00 00 00 00 00 00 00", ConvertError::Kind),
        ("tag",    "03 00 00 01 00 00 04 00 00 00 00 00", ConvertError::Tag),
    ];
    let mut out = [0; 64];
    for (name, text, want) in cases {
        let bytes = hex_and_zeros(text, 32);
        let tlp = Tlp::parse(Flit, &bytes).unwrap();
        assert_eq!(to_non_flit(&tlp, &mut out), Err(want), "{name}");
    }
    let vendor = hex_and_zeros("9E 00 00 00 00 00 00 01 00 00 00 0F", 4);
    let tlp = Tlp::parse(NonFlit, &vendor).unwrap();
    assert_eq!(to_flit(&tlp, &mut out), Err(ConvertError::Extension));
    assert_eq!(to_non_flit(&tlp, &mut out), Err(ConvertError::Mode));
}

#[test]
fn prefixes_come_and_go_in_place() {
    let mut rng = Rng::new(35);
    let data = data(&mut rng);
    for _ in 0..2_000 {
        let mode = if rng.bool() { Flit } else { NonFlit };
        let want = TlpRepr { vend_prefix: None, ..tlp(mode, &data, &mut rng) };
        let (mut plain, mut buffer) = ([0; 4_200], [0; 4_200]);
        let len = want.emit(&mut plain).unwrap();
        buffer[..len].copy_from_slice(&plain[..len]);
        let prefix = VendPrefixL0::from_pid(Pid::from_low_bits(rng.u16()));
        assert!(convert::insert_prefix(&mut buffer[..len + 3], len, prefix).is_err());
        let longer = convert::insert_prefix(&mut buffer, len, prefix).unwrap();
        let found = Tlp::parse(mode, &buffer[..longer]).unwrap();
        assert_eq!(found.repr(), TlpRepr { vend_prefix: Some(prefix), ..want });
        assert_eq!(found.without_local_prefixes(), &plain[..len]);
        assert_eq!(convert::remove_local_prefixes(mode, &mut buffer), Ok(len));
        assert_eq!(buffer[..len], plain[..len]);
    }
}

/// Byte count and lower address of every pair of byte enables, against counting bytes one by one.
#[test]
fn completions_count_bytes() {
    let mut rng = Rng::new(36);
    let data = data(&mut rng);
    let mut out = [0; 4_200];
    for _ in 0..5_000 {
        let mode = if rng.bool() { Flit } else { NonFlit };
        let request = tlp(mode, &data, &mut rng);
        let Body::Address { addr, length_dw, first_be, last_be, .. } = request.body else {
            continue;
        };
        let len = request.emit(&mut out).unwrap();
        let parsed = Tlp::parse(mode, &out[..len]).unwrap();
        let Some(answer) = Completion::of(&parsed, Status::CompleterAbort, Bdf::new(9, 0, 0))
        else {
            assert_eq!(request.kind, Kind::MemWrite);
            continue;
        };
        assert_eq!(
            (answer.requester, answer.tag, answer.tc),
            (request.requester, request.tag, request.tc)
        );
        assert_eq!(answer.kind.is_uio(), request.kind.is_uio());
        let Body::Completion { byte_count, lower_address, .. } = answer.body else { continue };
        let bytes = usize::from(length_dw) * 4;
        let enabled = |at: usize| match at / 4 {
            0 => first_be >> (at % 4) & 1 == 1,
            dw if dw + 1 == usize::from(length_dw) => last_be >> (at % 4) & 1 == 1,
            _ => true,
        };
        let first = (0..bytes).find(|&at| enabled(at));
        let last = (0..bytes).rev().find(|&at| enabled(at));
        let low = usize::from(addr.0.to_be_bytes()[7] & 0x7F);
        let want = match (request.kind, first, last) {
            (Kind::MemRead | Kind::MemReadLocked, Some(first), Some(last)) => {
                (last - first + 1, (low + first) & 0x7F)
            }
            (Kind::MemRead | Kind::MemReadLocked, ..) => (1, low),
            (Kind::FetchAdd | Kind::Swap, ..) => (bytes, 0),
            (Kind::Cas, ..) => (bytes / 2, 0),
            _ => (4, 0),
        };
        assert_eq!((usize::from(byte_count), usize::from(lower_address)), want, "{request:?}");
    }
}

#[test]
fn data_comes_back_in_parts() {
    let read = ln::read(Bdf::new(1, 0, 0), 7, Hpa(0x1_0000_0042 & !3), 16);
    let Body::Address { addr, wide, at, no_write, length_dw, .. } = read.body else { panic!() };
    let body = Body::Address { addr, wide, at, no_write, length_dw, first_be: 0xC, last_be: 0x3 };
    let read = TlpRepr { body, ln: false, ..read };
    let mut out = [0; 64];
    let len = read.emit(&mut out).unwrap();
    let parsed = Tlp::parse(NonFlit, &out[..len]).unwrap();
    let part = |from, bytes| {
        let answer = Completion::with_data(&parsed, Bdf::default(), from, bytes)?;
        let Body::Completion { byte_count, lower_address, .. } = answer.body else { return None };
        Some((byte_count, lower_address))
    };
    assert_eq!(part(0, &[0; 16]), Some((60, 0x42)), "first byte enabled is the third");
    assert_eq!(part(4, &[0; 48]), Some((46, 0x50)));
    assert_eq!(part(15, &[0; 4]), Some((2, 0x7C)));
    assert_eq!(part(15, &[0; 8]), None, "more than was asked for");
    assert_eq!(part(0, &[]), None);
}

#[test]
fn what_does_not_fit_is_not_emitted() {
    let mut out = [0; 64];
    let good = ln::read(Bdf::new(1, 0, 0), 7, Hpa(0x4000), 1);
    let flit = TlpRepr { mode: Flit, ln: false, ..good };
    let of = |repr: TlpRepr<'_>, out: &mut [u8]| repr.emit(out).err();
    #[rustfmt::skip] // columns: name, fields, error
    let cases = [
        ("good",                  good, None),
        ("tag of 11 bits",        TlpRepr { tag: 0x400, ..good }, Some(EmitError::Field)),
        ("TC of 4 bits",          TlpRepr { tc: 8, ..good }, Some(EmitError::Field)),
        ("segment, no flits",     TlpRepr { requester_segment: Some(1), ..good }, Some(EmitError::Field)),
        ("LN in flits",           TlpRepr { ln: true, ..flit }, Some(EmitError::Field)),
        ("UIO without flits",     TlpRepr { kind: Kind::UioRead, ..good }, Some(EmitError::Kind)),
        ("payload of a read",     TlpRepr { payload: &[0; 4], ..good }, Some(EmitError::Body)),
        ("write of nothing",      TlpRepr { kind: Kind::MemWrite, ..good }, Some(EmitError::Body)),
        ("body of another kind",  TlpRepr { body: Body::Message { code: 0, dw2: 0, dw3: 0 }, ..good }, Some(EmitError::Field)),
    ];
    for (name, repr, want) in cases {
        let error = of(repr, &mut out);
        match want {
            // a body of another kind may also come out malformed
            Some(EmitError::Field) => assert!(
                matches!(error, Some(EmitError::Field | EmitError::Malformed(_) | EmitError::Body)),
                "{name}: {error:?}"
            ),
            want => assert_eq!(error, want, "{name}"),
        }
    }
}
