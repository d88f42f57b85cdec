//! Tests of [`leave`] and [`Bindings`]: a test for each rule.

use weft_base::rng::Rng;

use super::*;
use crate::pbr::{Fast, Ldst, Prefixes, Vppb};
use crate::types::PortId;

fn pid(bits: u16) -> Pid {
    Pid::from_low_bits(bits)
}

fn port(role: Role, prefixes: u8) -> EdgePort {
    let mut port =
        EdgePort::new(role, pid(0x0A1), Fast::new(1, 0).unwrap(), Ldst::new(1, 0).unwrap());
    port.prefixes = Prefixes::from_bits(prefixes);
    port
}

const KINDS: [Kind; 6] = [
    Kind::UioRequest,
    Kind::UioCompletion,
    Kind::MemoryRequest,
    Kind::Completion,
    Kind::Gam,
    Kind::Other,
];

fn out(port: &EdgePort, kind: Kind, pif: bool) -> Out {
    leave(port, &Leaving { kind, spid: pid(0x123), pif })
}

/// CXL 3.1 section 7.7.3.3, egress: PIF = 1 puts the source PID in front, where the port may.
#[test]
fn uio_request_with_pif_gets_a_prefix_where_the_port_may() {
    for role in [Role::Usp, Role::Dsp] {
        for prefixes in 0..4 {
            let want = match prefixes & 1 {
                1 => Out::Strip { prefix: Some(pid(0x123)) },
                _ => Out::UnsupportedRequest(Refusal::EgressPrefixNotEnabled),
            };
            assert_eq!(
                out(&port(role, prefixes), Kind::UioRequest, true),
                want,
                "{role:?} {prefixes}"
            );
        }
    }
}

/// CXL 3.1 section 7.7.3.3, egress: PIF = 0 never gets a prefix, whether the port may or not.
#[test]
fn uio_request_without_pif_never_gets_a_prefix() {
    for prefixes in 0..4 {
        let bare = out(&port(Role::Usp, prefixes), Kind::UioRequest, false);
        assert_eq!(bare, Out::Strip { prefix: None }, "{prefixes}");
    }
}

/// docs/spec/wire-formats.md §3.7: completions, and all that is no UIO request, never get a prefix.
#[test]
fn nothing_but_a_uio_request_gets_a_prefix() {
    for kind in [Kind::UioCompletion, Kind::MemoryRequest, Kind::Completion, Kind::Other] {
        for (prefixes, pif) in [(0, false), (0, true), (3, false), (3, true)] {
            let bare = out(&port(Role::Dsp, prefixes), kind, pif);
            assert_eq!(bare, Out::Strip { prefix: None }, "{kind:?} {prefixes} {pif}");
        }
    }
}

/// docs/spec/cxl-fabric.md "Egress at an edge": to a GFD the PTH stays, with DSAR set; PIF does not matter.
#[test]
fn to_a_gfd_the_pth_stays() {
    for (kind, pif) in KINDS.into_iter().zip([false, true].into_iter().cycle()) {
        assert_eq!(out(&port(Role::Gfd, 0), kind, pif), Out::Keep, "{kind:?}");
    }
}

/// CXL 3.1 section 7.7.2.7: a GFD's notification goes to the host's GAE, and to no other device.
#[test]
fn a_notification_goes_to_the_gae_and_to_no_peer() {
    assert_eq!(out(&port(Role::Usp, 0), Kind::Gam, false), Out::Internal(Function::Gae));
    assert_eq!(out(&port(Role::Dsp, 0), Kind::Gam, false), Out::Drop(Refusal::GamToPeer));
}

fn vppb(spid: u16, dpid: u16) -> Vppb {
    let binding = Binding::Fabric { spid: pid(spid), dpid: pid(dpid) };
    Vppb { binding, ..Vppb::default() }
}

/// CXL 3.1 section 7.7.6.4: a TLP that comes in for a vDSP or vUSP has the binding's PIDs exchanged, and both must
/// match.
#[test]
fn hie_matches_both_pids() {
    let local = Vppb { binding: Binding::Port(PortId::default()), ..Vppb::default() };
    let host = Vcs::new(local, None, &[local, vppb(0x10, 0x20), vppb(0x10, 0x21)]).unwrap();
    let far = Vcs::new(vppb(0x30, 0x40), None, &[local]).unwrap();
    let bindings = Bindings::of([(0, &host), (4, &far)].into_iter()).unwrap();
    #[rustfmt::skip] // columns: SPID, DPID, want
    let cases = [
        (0x20, 0x10, Some((0, Side::Below(1)))),
        (0x21, 0x10, Some((0, Side::Below(2)))),
        (0x40, 0x30, Some((4, Side::Above))),
        (0x22, 0x10, None), (0x20, 0x11, None), (0x10, 0x20, None), (0x30, 0x40, None),
    ];
    for (spid, dpid, want) in cases {
        assert_eq!(bindings.find(pid(spid), pid(dpid)), want, "{spid:x} {dpid:x}");
    }
    let twice = Vcs::new(vppb(0x10, 0x20), None, &[]).unwrap();
    let want = TableError::BoundTwice { spid: pid(0x20), dpid: pid(0x10) };
    assert_eq!(Bindings::of([(0, &host), (1, &twice)].into_iter()), Err(want));
}

/// Random bindings against a scan.
#[test]
fn random_bindings_match_a_scan() {
    let mut rng = Rng::new(6);
    let draw = |rng: &mut Rng| u16::try_from(rng.below(40)).unwrap();
    let (mut found, mut refused) = (0, 0);
    for _ in 0..300 {
        let ends: Vec<Vppb> = (0..10).map(|_| vppb(draw(&mut rng), draw(&mut rng))).collect();
        let vcs = Vcs::new(ends[0], None, &ends[1..]).unwrap();
        let Ok(bindings) = Bindings::of([(2, &vcs)].into_iter()) else {
            let twice = (1..10).any(|at| ends[..at].iter().any(|e| e.binding == ends[at].binding));
            assert!(twice, "{ends:?}");
            refused += 1;
            continue;
        };
        for _ in 0..50 {
            let (spid, dpid) = (draw(&mut rng), draw(&mut rng));
            let at = ends.iter().position(|end| end.binding == vppb(dpid, spid).binding);
            let side = at.map(|at| match at.checked_sub(1) {
                None => Side::Above,
                Some(below) => Side::Below(u8::try_from(below).unwrap()),
            });
            assert_eq!(bindings.find(pid(spid), pid(dpid)), side.map(|side| (2, side)));
            found += u32::from(at.is_some());
        }
    }
    assert!(found > 20 && refused > 2, "{found} {refused}");
}
