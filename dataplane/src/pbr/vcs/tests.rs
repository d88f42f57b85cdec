//! Tests of [`Vcs`]: a switch with one upstream and two downstream bridges, each kind of routing, and a naive model.
//!
//! P-P1 is the upstream bridge between buses 0 and 1..=3; EP1 sits below P-P2 on bus 2, EP2 below P-P3 on bus 3.

use weft_base::rng::Rng;

use super::*;
use crate::pbr::Gather;

const EP1: u8 = 0;
const EP2: u8 = 1;

fn port(index: usize) -> Binding {
    Binding::Port(PortId::new(index).unwrap())
}

fn bridge(primary: u8, secondary: u8, subordinate: u8) -> Bridge {
    Bridge { command: Bridge::ALL_ON, primary, secondary, subordinate, ..Bridge::default() }
}

/// P-P1 with its two bridges; memory at `E000_0000` and `E010_0000`, prefetchable at `10_0000_0000`, I/O at `2000` and
/// `3000`; the upstream windows reach further than both.
fn bridges() -> (Vppb, [Vppb; 2]) {
    let upstream = Bridge {
        memory: Window::memory(0xE000, 0xE020),
        prefetchable: Window::prefetchable(1, 0xFFF1, 0x10, 0x13),
        io: Window::io(0x20, 0x40, 0, 0),
        ..bridge(0, 1, 3)
    };
    let first = Bridge {
        memory: Window::memory(0xE000, 0xE000),
        prefetchable: Window::prefetchable(1, 0xFFF1, 0x10, 0x10),
        io: Window::io(0x20, 0x20, 0, 0),
        ..bridge(1, 2, 2)
    };
    let second = Bridge {
        memory: Window::memory(0xE010, 0xE010),
        io: Window::io(0x30, 0x30, 0, 0),
        ..bridge(1, 3, 3)
    };
    let vppb =
        |function, bridge, at| Vppb { function, bridge, binding: port(at), bar: Window::OFF };
    (vppb(0, upstream, 0), [vppb(0, first, 1), vppb(8, second, 2)])
}

fn switch() -> Vcs {
    let (upstream, below) = bridges();
    Vcs::new(upstream, None, &below).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "as cases want it")]
fn down(vppb: u8) -> Result<Hop, Refusal> {
    Ok(Hop::Down { vppb, binding: port(usize::from(vppb) + 1), type1_to_0: false })
}

#[expect(clippy::unnecessary_wraps, reason = "as cases want it")]
fn up() -> Result<Hop, Refusal> {
    Ok(Hop::Up(port(0)))
}

fn check(switch: &Vcs, cases: &[(&str, Side, Route, Result<Hop, Refusal>)]) {
    for &(name, side, route, want) in cases {
        assert_eq!(switch.route(side, route), want, "{name}: {side:?} {route:?}");
    }
}

const fn memory(address: u64) -> Route {
    Route::Memory(Hpa(address))
}

const fn id(bus: u8, device: u8) -> Bdf {
    Bdf::new(bus, device, 0)
}

/// PCIe 6.0 section 2.2.4.1, TLP 1: from the root through P-P1 and P-P2 to EP1.
#[test]
fn address_from_the_root_goes_where_both_windows_claim_it() {
    use Refusal::{NobodyClaims, UpstreamClaimsNot};
    let (above, switch) = (Side::Above, switch());
    #[rustfmt::skip]
    check(&switch, &[
        ("TLP 1",            above, memory(0xE000_1234),      down(EP1)),
        ("last of EP1",      above, memory(0xE00F_FFFF),      down(EP1)),
        ("first of EP2",     above, memory(0xE010_0000),      down(EP2)),
        ("prefetchable",     above, memory(0x10_0000_0000),   down(EP1)),
        ("below all",        above, memory(0xDFFF_FFFF),      Err(UpstreamClaimsNot)),
        ("above all",        above, memory(0xE030_0000),      Err(UpstreamClaimsNot)),
        ("P-P1 alone",       above, memory(0xE020_0000),      Err(NobodyClaims)),
        ("prefetchable gap", above, memory(0x11_0000_0000),   Err(NobodyClaims)),
        ("I/O of EP1",       above, Route::Io(0x2FFF),        down(EP1)),
        ("I/O of EP2",       above, Route::Io(0x3000),        down(EP2)),
        ("I/O of P-P1",      above, Route::Io(0x4000),        Err(NobodyClaims)),
        ("no I/O",           above, Route::Io(0x5000),        Err(UpstreamClaimsNot)),
        ("memory is no I/O", above, Route::Io(0xE000_0000),   Err(UpstreamClaimsNot)),
    ]);
}

/// PCIe 6.0 section 2.2.4.1, TLP 2: from EP2 to the root, as its address is in the window of no bridge.
#[test]
fn address_from_below_goes_up_where_nobody_below_claims_it() {
    let (from, switch) = (Side::Below(EP2), switch());
    #[rustfmt::skip]
    check(&switch, &[
        ("TLP 2",             from, memory(0x1000),      up()),
        ("I/O",               from, Route::Io(0x9000),   up()),
        ("its own windows",   from, memory(0xE010_0000), Err(Refusal::OwnRange)),
        ("its own I/O",       from, Route::Io(0x3000),   Err(Refusal::OwnRange)),
        ("inside P-P1 alone", from, memory(0xE020_0000), Err(Refusal::NobodyClaims)),
    ]);
}

/// PCIe 6.0 section 2.2.4.1, TLP 3: from EP2 to EP1.
#[test]
fn address_from_below_goes_to_the_peer_that_claims_it() {
    let switch = switch();
    #[rustfmt::skip]
    check(&switch, &[
        ("TLP 3",        Side::Below(EP2), memory(0xE000_1234),    down(EP1)),
        ("and back",     Side::Below(EP1), memory(0xE010_0000),    down(EP2)),
        ("prefetchable", Side::Below(EP2), memory(0x10_0000_0000), down(EP1)),
        ("I/O",          Side::Below(EP2), Route::Io(0x2000),      down(EP1)),
    ]);
}

/// docs/spec/wire-formats.md §3.4 and the command register: a window that is not enabled claims nothing, and no request
/// passes up a bridge that is no bus master.
#[test]
fn enables_gate_requests_and_not_completions() {
    let (upstream, below) = bridges();
    let with = |at: usize, command: u16| {
        let (mut upstream, mut below) = (upstream, below);
        match at {
            0 => upstream.bridge.command = command,
            _ => below[at - 1].bridge.command = command,
        }
        Vcs::new(upstream, None, &below).unwrap()
    };
    let (above, from) = (Side::Above, Side::Below(EP2));
    #[rustfmt::skip] // columns: name, bridge, command, side, route, want
    let cases = [
        ("P-P1 memory off", 0, 0b101, above, memory(0xE000_0000), Err(Refusal::UpstreamClaimsNot)),
        ("P-P1 I/O off",    0, 0b110, above, Route::Io(0x2000),   Err(Refusal::UpstreamClaimsNot)),
        ("P-P1 no master",  0, 0b011, from,  memory(0x1000),      Err(Refusal::BusMasterOff)),
        ("... peer",        0, 0b011, from,  memory(0xE000_0000), down(EP1)),
        ("... completion",  0, 0b011, from,  Route::Id(id(0, 5)), up()),
        ("P-P2 memory off", 1, 0b101, above, memory(0xE000_0000), Err(Refusal::NobodyClaims)),
        ("... to a peer",   1, 0b101, from,  memory(0xE000_0000), Err(Refusal::NobodyClaims)),
        ("P-P3 no master",  2, 0b011, from,  memory(0x1000),      Err(Refusal::BusMasterOff)),
        ("... I/O",         2, 0b011, from,  Route::Io(0x9000),   Err(Refusal::BusMasterOff)),
        ("... completion",  2, 0b011, from,  Route::Id(id(2, 0)), down(EP1)),
        ("all off, id",     0, 0,     above, Route::Id(id(2, 0)), down(EP1)),
    ];
    for (name, at, command, side, route, want) in cases {
        assert_eq!(with(at, command).route(side, route), want, "{name}");
    }
}

/// PCIe 6.0 section 2.2.4.2: configuration from the root; Type 0 ends at the switch, Type 1 becomes Type 0 on its bus.
#[test]
fn configuration_is_converted_on_its_bus_and_passed_on_before_it() {
    let above = Side::Above;
    let internal = |function| Ok(Hop::Internal(function));
    let converted =
        |vppb| Ok(Hop::Down { vppb, binding: port(usize::from(vppb) + 1), type1_to_0: true });
    let (upstream, mut below) = bridges();
    below[1].bridge.subordinate = 5;
    let upstream = Vppb { bridge: Bridge { subordinate: 6, ..upstream.bridge }, ..upstream };
    let gae = Gae { function: 1, bar: Window::OFF };
    let switch = Vcs::new(upstream, Some(gae), &below).unwrap();
    #[rustfmt::skip]
    check(&switch, &[
        ("type 0: P-P1",         above, Route::Config0(id(0, 0)),         internal(Function::Upstream)),
        ("type 0: the GAE",      above, Route::Config0(Bdf::new(0, 0, 1)), internal(Function::Gae)),
        ("type 0: nobody",       above, Route::Config0(id(0, 1)),         Err(Refusal::NoFunction)),
        ("type 0: never across", above, Route::Config0(id(2, 3)),         Err(Refusal::NoFunction)),
        ("bus 1: P-P2",          above, Route::Config1(id(1, 0)),         internal(Function::Below(0))),
        ("bus 1: P-P3",          above, Route::Config1(id(1, 1)),         internal(Function::Below(1))),
        ("bus 1: nobody",        above, Route::Config1(id(1, 2)),         Err(Refusal::NoFunction)),
        ("worked CfgRd1 02:00.0", above, Route::Config1(id(2, 0)),        converted(EP1)),
        ("one device a link",    above, Route::Config1(id(2, 1)),         Err(Refusal::NoFunction)),
        ("bus 3",                above, Route::Config1(Bdf::new(3, 0, 7)), converted(EP2)),
        ("bus 4: unchanged",     above, Route::Config1(id(4, 31)),        down(EP2)),
        ("bus 6: nobody",        above, Route::Config1(id(6, 0)),         Err(Refusal::NobodyClaims)),
        ("bus 7: not below",     above, Route::Config1(id(7, 0)),         Err(Refusal::UpstreamClaimsNot)),
        ("bus 0: not below",     above, Route::Config1(id(0, 0)),         Err(Refusal::UpstreamClaimsNot)),
        ("only from the root",   Side::Below(EP1), Route::Config1(id(3, 0)), Err(Refusal::ConfigFromBelow)),
        ("only from the root",   Side::Below(EP1), Route::Config0(id(0, 0)), Err(Refusal::ConfigFromBelow)),
    ]);
    below[0].bridge.ari = true;
    let with_ari = Vcs::new(upstream, None, &below).unwrap();
    assert_eq!(with_ari.route(above, Route::Config1(id(2, 1))), converted(EP1));
}

/// PCIe 6.0 section 2.2.4.2: completions and messages by id, from EP2 to EP1 or the root, and from the root.
#[test]
fn ids_go_to_the_bus_that_claims_them_else_up() {
    let (above, from, switch) = (Side::Above, Side::Below(EP2), switch());
    let internal = |function| Ok(Hop::Internal(function));
    #[rustfmt::skip]
    check(&switch, &[
        ("root to EP1",       above, Route::Id(id(2, 0)), down(EP1)),
        ("root to EP2",       above, Route::Id(id(3, 9)), down(EP2)),
        ("root to P-P1",      above, Route::Id(id(0, 0)), internal(Function::Upstream)),
        ("root to P-P3",      above, Route::Id(id(1, 1)), internal(Function::Below(1))),
        ("bus 1, nobody",     above, Route::Id(id(1, 7)), Err(Refusal::NoFunction)),
        ("not below",         above, Route::Id(id(4, 0)), Err(Refusal::UpstreamClaimsNot)),
        ("EP2 to EP1",        from,  Route::Id(id(2, 0)), down(EP1)),
        ("EP2 to the root",   from,  Route::Id(id(9, 0)), up()),
        ("EP2 to bus 0",      from,  Route::Id(id(0, 3)), up()),
        ("EP2 to P-P1",       from,  Route::Id(id(0, 0)), internal(Function::Upstream)),
        ("EP2 to P-P2",       from,  Route::Id(id(1, 0)), internal(Function::Below(0))),
        ("back to its bus",   from,  Route::Id(id(3, 0)), Err(Refusal::OwnRange)),
    ]);
}

/// PCIe 6.0 section 2.2.8: messages without an address or id, which their routing field directs.
#[test]
fn messages_go_up_to_all_or_end_here_by_their_route() {
    let (above, from, switch) = (Side::Above, Side::Below(EP1), switch());
    let route = |bits| Route::Implicit(Implicit::from_bits(bits).unwrap());
    #[rustfmt::skip]
    check(&switch, &[
        ("000 to the root",       from,  route(0), up()),
        ("011 from the root",     above, route(3), Ok(Hop::Broadcast)),
        ("100 ends here",         above, route(4), Ok(Hop::Here)),
        ("100 ends here",         from,  route(4), Ok(Hop::Here)),
        ("101 gathered",          from,  route(5), Ok(Hop::Gather)),
        ("000 from the root",     above, route(0), Err(Refusal::MessageDirection)),
        ("011 not from the root", from,  route(3), Err(Refusal::MessageDirection)),
        ("101 from the root",     above, route(5), Err(Refusal::MessageDirection)),
    ]);
    for bits in [1, 2, 6, 7] {
        assert_eq!(Implicit::from_bits(bits), None, "{bits}: by address, by id, reserved");
    }
}

/// PCIe 6.0 section 2.2.8: a broadcast goes to all downstream ports, and `PME_TO_Ack` goes up once, after all answered.
#[test]
fn a_broadcast_reaches_all_that_are_bound_and_their_answers_go_up_once() {
    let (upstream, below) = bridges();
    let mut many = vec![below[0]; 200];
    many[70].binding = Binding::Unbound;
    many[71].binding = Binding::Fabric { spid: Pid::from_low_bits(1), dpid: Pid::from_low_bits(2) };
    let switch = Vcs::new(upstream, None, &many).unwrap();
    let targets: Vec<u8> = switch.bound().map(|(vppb, _)| vppb).collect();
    assert_eq!(targets, (0..200).filter(|&vppb| vppb != 70).collect::<Vec<_>>());
    let mut gather = Gather::default();
    assert!(!gather.answer(0), "nobody asked");
    assert!(!gather.start(&switch));
    for (at, &vppb) in targets.iter().enumerate() {
        assert_eq!(gather.answer(vppb), at + 1 == targets.len(), "{vppb}");
        assert!(!gather.answer(vppb), "{vppb} answers twice");
    }
    assert!(Gather::default().start(&Vcs::new(upstream, None, &[]).unwrap()), "nobody to wait for");
}

/// CXL 3.1 section 7.7.6.4: bound or not, the host sees a bridge. TLPs for an unbound one are refused.
#[test]
fn bindings_say_where_a_vppb_leads() {
    let (mut upstream, mut below) = bridges();
    let fabric = Binding::Fabric { spid: Pid::from_low_bits(0x10), dpid: Pid::from_low_bits(0x20) };
    let ld = Binding::Ld { port: PortId::new(5).unwrap(), ld: 3 };
    (below[0].binding, below[1].binding) = (ld, fabric);
    upstream.binding = Binding::Unbound;
    let switch = Vcs::new(upstream, None, &below).unwrap();
    let to = |vppb, binding| Ok(Hop::Down { vppb, binding, type1_to_0: false });
    assert_eq!(switch.route(Side::Above, memory(0xE000_0000)), to(0, ld));
    assert_eq!(switch.route(Side::Above, Route::Id(id(3, 0))), to(1, fabric));
    assert_eq!(switch.route(Side::Below(0), memory(0x1000)), Err(Refusal::Unbound));
    below[1].binding = Binding::Unbound;
    let switch = Vcs::new(upstream, None, &below).unwrap();
    assert_eq!(switch.route(Side::Above, Route::Id(id(3, 0))), Err(Refusal::Unbound));
    let function = switch.route(Side::Above, Route::Config1(id(1, 1)));
    assert_eq!(function, Ok(Hop::Internal(Function::Below(1))), "its own registers are there");
    assert_eq!(switch.route(Side::Below(9), memory(0x1000)), Err(Refusal::NoVcs));
}

/// CXL 3.1 figures 7-34 and 7-35: registers of bridges and GAE in memory; a GAE alone.
#[test]
fn registers_in_memory_are_internal() {
    let (mut upstream, mut below) = bridges();
    upstream.bar = Window::new(0xD000_0000, 0xD000_FFFF);
    below[1].bar = Window::new(0xE020_0000, 0xE020_FFFF);
    let gae = Gae { function: 1, bar: Window::new(0xD001_0000, 0xD001_FFFF) };
    let switch = Vcs::new(upstream, Some(gae), &below).unwrap();
    let internal = |function| Ok(Hop::Internal(function));
    #[rustfmt::skip]
    check(&switch, &[
        ("P-P1", Side::Above, memory(0xD000_0000), internal(Function::Upstream)),
        ("GAE",  Side::Above, memory(0xD001_FFFF), internal(Function::Gae)),
        ("P-P3", Side::Above, memory(0xE020_0010), internal(Function::Below(1))),
        ("peer", Side::Below(EP1), memory(0xE020_0010), internal(Function::Below(1))),
    ]);
    let alone = Vcs::new(Vppb::default(), Some(Gae { function: 0, ..gae }), &[]).unwrap();
    let config = alone.route(Side::Above, Route::Config0(id(0, 0)));
    assert_eq!(config, internal(Function::Gae));
    assert_eq!(alone.route(Side::Above, Route::Config1(id(0, 0))), Err(Refusal::UpstreamClaimsNot));
    assert_eq!(alone.route(Side::Above, memory(0xD001_0000)), internal(Function::Gae));
}

#[test]
fn more_vppbs_than_can_be_named_are_refused() {
    let (upstream, below) = bridges();
    assert!(Vcs::new(upstream, None, &vec![below[0]; 255]).is_ok());
    assert_eq!(Vcs::new(upstream, None, &vec![below[0]; 256]), Err(TableError::Vppb(256)));
}

/// PCIe 6.0 section 2.2.4 bridge by bridge, without any table: which of them takes the TLP on the internal bus?
fn naive(upstream: &Vppb, below: &[Vppb], side: Side, route: Route) -> Result<Hop, Refusal> {
    let inside = |vppb: &Vppb| match route {
        Route::Memory(Hpa(at)) => vppb.bridge.has_memory(at),
        Route::Io(at) => vppb.bridge.has_io(at),
        Route::Id(id) => vppb.bridge.has_bus(id.bus()),
        _ => false,
    };
    let gated = !matches!(route, Route::Id(_));
    if let Side::Below(from) = side {
        let from = &below[usize::from(from)];
        if gated && !from.bridge.master_on() {
            return Err(Refusal::BusMasterOff);
        }
        if inside(from) && below.iter().find(|vppb| inside(vppb)).unwrap() == from {
            return Err(Refusal::OwnRange);
        }
        if !gated && inside(from) {
            return Err(Refusal::OwnRange);
        }
    } else if !inside(upstream) {
        return Err(Refusal::UpstreamClaimsNot);
    }
    let taker = below.iter().position(inside);
    match (taker, side) {
        (Some(at), _) if gated || inside(upstream) => {
            let vppb = u8::try_from(at).unwrap();
            Ok(Hop::Down { vppb, binding: below[at].binding, type1_to_0: false })
        }
        (_, Side::Above) => Err(Refusal::NobodyClaims),
        _ if inside(upstream) => Err(Refusal::NobodyClaims),
        _ if gated && !upstream.bridge.master_on() => Err(Refusal::BusMasterOff),
        _ => Ok(Hop::Up(upstream.binding)),
    }
}

/// Random bridges, some overlapping, against the naive walk.
#[test]
fn random_switches_match_a_walk_over_the_bridges() {
    let mut rng = Rng::new(0x2002);
    let byte = |rng: &mut Rng, bound| u8::try_from(rng.below(bound)).unwrap();
    let mut downs = 0;
    for _ in 0..300 {
        let mut draw = |at: usize, span: u64| {
            let window = |rng: &mut Rng| {
                let base = rng.below(64) << 20;
                Window::new(base, base + (rng.below(span) << 20))
            };
            let secondary = byte(&mut rng, 30) + 2;
            let bridge = Bridge {
                command: [7, 7, 7, 3, 5, 6][usize::from(byte(&mut rng, 6))],
                primary: 0,
                secondary,
                subordinate: secondary + byte(&mut rng, span),
                ari: false,
                io: window(&mut rng),
                memory: window(&mut rng),
                prefetchable: window(&mut rng),
            };
            Vppb { function: byte(&mut rng, 32) << 3, bridge, bar: Window::OFF, binding: port(at) }
        };
        let upstream = Vppb { function: 0xFF, ..draw(0, 60) };
        // Functions of bus 0 and of the internal bus are asked for by their own tests.
        let upstream = Vppb { bridge: Bridge { secondary: 1, ..upstream.bridge }, ..upstream };
        let below: Vec<Vppb> = (1..=6).map(|at| draw(at, 12)).collect();
        let switch = Vcs::new(upstream, None, &below).unwrap();
        for _ in 0..100 {
            let side = match rng.below(7) {
                6 => Side::Above,
                from => Side::Below(u8::try_from(from).unwrap()),
            };
            let route = match rng.below(3) {
                0 => Route::Memory(Hpa(rng.below(80 << 20))),
                1 => Route::Io(rng.below(80 << 20)),
                _ => Route::Id(id(byte(&mut rng, 100) + 2, 0)),
            };
            let want = naive(&upstream, &below, side, route);
            assert_eq!(
                switch.route(side, route),
                want,
                "{side:?} {route:?} {upstream:?} {below:?}"
            );
            downs += u32::from(matches!(want, Ok(Hop::Down { .. })));
        }
    }
    assert!(downs > 3_000, "{downs}");
}
