//! Each level of protection by itself: one command removes access and another restores it, in a fabric at work.
//!
//! Host - switch with its agent - switch with its agent - second host and GFD; a device is at the first switch. Writes
//! and reads of each possible kind are sent before, during and after the removal.
//!
//! Source: CXL 3.1 sections 7.7.2.5 (figure 7-33), 7.7.3.3, 7.7.9; docs/spec/cxl-fabric.md "Ingress at an edge", "GFD
//! (endpoint)"; docs/spec/wire-formats.md §4.5 to §4.7, §5.4.
//!
//! The fabric manager sets tables on its connection and through tunnels, and the host through the mailbox of its GAE.
//! The effects of a refused request are checked by all counters that changed.

use crate::agent_rig::manager::{GFD_PID, HOST_EDGE, NEAR_VPPB, SECOND};
use crate::agent_rig::{BLOCK, pid};
use crate::guarded::{
    ALL, DEALT, DIRECT, GIM, Guarded, LDFAM, NEAR_EDGE, OFF, OTHER_GROUP, Order, PEER_EDGE, PLAIN,
    PREFIXED, Probe, Told, UIO, WINDOW, decoder, gfam, gim, ldfam, no_decoders, up,
};
use weft_cxl::requester::{Failure, Operation};
use weft_dataplane::pbr::Refusal;
use weft_dataplane::time::Span;
use weft_parsers::cci::gae::{AccessOp, PrefixFlags};
use weft_parsers::cci::gfd_access::{GdtEntry, SAT_NOTIFY, SetGdt};
use weft_parsers::cci::notify::trigger;
use weft_parsers::cci::tables::LdstAccess;
use weft_parsers::cci::{List, Request};
use weft_parsers::fabric::{Bdf, Dpa, Hpa, Pid, ReRouterEntry};
use weft_parsers::tlp::Status;

/// A level of protection: commands that remove and restore access, the guarded access, the effect of a refusal, and an
/// access that goes on.
struct Level {
    take: fn(&mut Guarded),
    give: fn(&mut Guarded),
    guards: Probe,
    told: Told,
    other: Probe,
}

impl Level {
    /// Checks that the guarded access works, is refused, and works again, while the other access works all the time.
    fn hold(&self) {
        let mut fabric = up();
        self.hold_in(&mut fabric);
        fabric.check();
    }

    fn hold_in(&self, fabric: &mut Guarded) {
        let Self { take, give, guards, told, other } = self;
        fabric.works(guards);
        fabric.never(guards);
        take(fabric);
        fabric.refused(guards, guards.kinds, told);
        fabric.never(guards);
        fabric.works(other);
        fabric.refused(guards, guards.kinds, told);
        give(fabric);
        fabric.works(guards);
        fabric.never(guards);
        fabric.works(other);
    }
}

const fn edge(switch: usize, port: usize, refusal: Refusal) -> Told {
    Told::Edge { switch, port, refusal }
}

const fn device(trigger: u8, dpa: Option<Dpa>, group: Option<u16>) -> Told {
    Told::Device { trigger, dpa, group, host: true }
}

/// CXL 3.1 section 7.7.2.5, second level: FAST must lead to the GFD. The host sets it by Set FAST Segment (5806h).
#[test]
fn no_fast_entry() {
    Level {
        take: |fabric| fabric.put_fast(0, None),
        give: |fabric| fabric.put_fast(0, Some(gfam())),
        guards: DIRECT,
        told: edge(0, 0, Refusal::NoFastEntry),
        other: DEALT,
    }
    .hold();
}

/// The same for an interleaved segment. The host sets its targets by Set IDT DPID (5808h).
#[test]
fn no_idt_entry() {
    Level {
        take: |fabric| fabric.put_idt([GFD_PID, 0xFFF].map(pid)),
        give: |fabric| fabric.put_idt([GFD_PID; 2].map(pid)),
        guards: DEALT,
        told: edge(0, 0, Refusal::NoFastEntry),
        other: DIRECT,
    }
    .hold();
}

/// CXL 3.1 section 7.7.2.5, second level: GMV must have the GFD, also for interleaved segments. Only the FM sets GMV
/// (5902h), and the host is told the PID that has changed.
#[test]
fn not_in_gmv() {
    for (guards, told) in [DIRECT, DEALT].map(|at| (at, edge(0, 0, Refusal::NotInGmv))) {
        let take: fn(&mut Guarded) = |fabric| {
            let told = fabric.interrupts_by(|fabric| fabric.allow_gfd(AccessOp::DisableGmv));
            assert_eq!(told, (1, vec![usize::from(GFD_PID)]), "the host's GAE tells it");
        };
        let give: fn(&mut Guarded) = |fabric| fabric.allow_gfd(AccessOp::EnableGmv);
        Level { take, give, guards, told, other: GIM }.hold();
    }
}

/// CXL 3.1 section 7.7.2.5, third level: a decoder of the requester must map the address. The FM sets decoders by Set
/// GDT (4914h).
#[test]
fn no_gdt_hit() {
    Level {
        take: |fabric| fabric.put_decoder(0, None),
        give: |fabric| fabric.put_decoder(0, Some(decoder(WINDOW, 0))),
        guards: DIRECT,
        told: device(trigger::NO_HPA_MAP, None, None),
        other: DEALT,
    }
    .hold();
}

/// docs/spec/wire-formats.md §5.2: an address has exactly one hit. The GFD refuses a decoder (4914h) that overlaps
/// another one of the same requester, and the older one stays in force. Decoders of other requesters may overlap it.
#[test]
fn a_second_decoder_for_an_address_is_refused() {
    let mut fabric = up();
    fabric.works(&DIRECT);
    let meets = [WINDOW, WINDOW + 2 * BLOCK - 1, WINDOW - 2 * BLOCK + 1];
    for (at, dpa) in meets.into_iter().flat_map(|at| [(at, 0), (at, 2 * BLOCK)]) {
        let entries = [GdtEntry { index: 2, decoder: Some(decoder(at, dpa)) }];
        let entries = List::of(&entries);
        fabric.bad_at_gfd(&Request::SetGdt(SetGdt { rpid: pid(HOST_EDGE), start: 2, entries }));
        fabric.works(&DIRECT);
    }
    fabric.put_decoder(2, Some(decoder(WINDOW + 2 * BLOCK, 0)));
    fabric.works(&DIRECT);
    fabric.put_decoder(2, None);
    fabric.decoder_of(PEER_EDGE, 0, Some(decoder(WINDOW, 0)));
    fabric.works(&DIRECT);
    fabric.decoder_of(PEER_EDGE, 0, None);
    fabric.check();
}

/// Figure 7-33: the requester's `GrpAccVec` must have bit `GrpID`. The FM sets it by Set SAT (490Dh).
#[test]
fn sat_bit_clear() {
    Level {
        take: |fabric| fabric.put_sat(1 << 1 | SAT_NOTIFY),
        give: |fabric| fabric.put_sat(1 | SAT_NOTIFY),
        guards: DIRECT,
        told: device(trigger::SAT_DENIED, Some(Dpa(0x1000)), Some(0)),
        other: GIM,
    }
    .hold();
}

/// The same for the next block: the bit of one group gives no access to the memory of another group.
#[test]
fn sat_bit_of_another_group() {
    let mut fabric = up();
    let dpa = Some(Dpa(BLOCK + 0x40));
    let told = device(trigger::SAT_DENIED, dpa, Some(1));
    fabric.refused(&OTHER_GROUP, ALL, &told);
    fabric.put_sat(0b11 | SAT_NOTIFY);
    fabric.works(&OTHER_GROUP);
    fabric.works(&DIRECT);
    fabric.put_sat(1 | SAT_NOTIFY);
    fabric.refused(&OTHER_GROUP, ALL, &told);
    fabric.works(&DIRECT);
    fabric.check();
}

/// docs/spec/wire-formats.md §4.7: without the Notify bit the GFD notifies the FM, but not the host.
#[test]
fn sat_bit_clear_without_notify() {
    Level {
        take: |fabric| fabric.put_sat(0),
        give: |fabric| fabric.put_sat(1),
        guards: DIRECT,
        told: Told::Device {
            trigger: trigger::SAT_DENIED,
            dpa: Some(Dpa(0x1000)),
            group: Some(0),
            host: false,
        },
        other: GIM,
    }
    .hold();
}

/// CXL 3.1 section 7.7.2.5: no requester reaches a block that is in no group. 4908h and 4907h release and add capacity.
#[test]
fn block_of_no_group() {
    Level {
        take: |fabric| fabric.capacity(Order::Release),
        give: |fabric| fabric.capacity(Order::Add),
        guards: DIRECT,
        told: device(trigger::NO_GROUP, Some(Dpa(0x1000)), None),
        other: GIM,
    }
    .hold();
}

/// CXL 3.1 section 7.7.3.3 and docs/spec/cxl-fabric.md "Ingress", 2: the target must be in VTV (5902h). Plain requests
/// never reach GIM.
#[test]
fn gim_not_in_vtv() {
    Level {
        take: |fabric| {
            let told =
                fabric.interrupts_by(|fabric| fabric.access(&[], PEER_EDGE, AccessOp::DisableVtv));
            assert_eq!(told, (1, vec![usize::from(PEER_EDGE)]), "the host's GAE tells it");
        },
        give: |fabric| fabric.access(&[], PEER_EDGE, AccessOp::EnableVtv),
        guards: GIM,
        told: edge(0, 0, Refusal::GimNotInVtv),
        other: DIRECT,
    }
    .hold();
}

/// The same for GIM without a FAST entry: the host must set one, although the FM allows the target.
#[test]
fn gim_without_a_fast_entry() {
    let mut fabric = up();
    fabric.works(&GIM);
    fabric.put_fast(2, None);
    fabric.refused(&GIM, ALL, &edge(0, 0, Refusal::NoFastEntry));
    fabric.works(&DIRECT);
    fabric.put_fast(2, Some(gim()));
    fabric.works(&GIM);
    fabric.never(&GIM);
    fabric.check();
}

/// CXL 3.1 section 7.7.3.3, ingress: a prefix is UR unless the FM has enabled prefixes (5904h).
#[test]
fn prefix_not_enabled() {
    Level {
        take: |fabric| fabric.prefixes(&[], OFF),
        give: |fabric| fabric.prefixes(&[], PrefixFlags { out: false, into: true }),
        guards: PREFIXED,
        told: edge(0, 0, Refusal::PrefixNotEnabled),
        other: GIM,
    }
    .hold();
}

/// The same if the FM allows prefixes, but the host has turned them off (5804h).
#[test]
fn prefix_not_turned_on_by_the_host() {
    Level {
        take: |fabric| fabric.set_window(OFF),
        give: |fabric| fabric.set_window(PrefixFlags { out: false, into: true }),
        guards: PREFIXED,
        told: edge(0, 0, Refusal::PrefixNotEnabled),
        other: GIM,
    }
    .hold();
}

/// docs/spec/cxl-fabric.md "Ingress", 1: the PID of the prefix must be in VTV.
#[test]
fn prefix_not_in_vtv() {
    Level {
        take: |fabric| fabric.access(&[], PEER_EDGE, AccessOp::DisableVtv),
        give: |fabric| fabric.access(&[], PEER_EDGE, AccessOp::EnableVtv),
        guards: PREFIXED,
        told: edge(0, 0, Refusal::PrefixNotInVtv),
        other: DIRECT,
    }
    .hold();
}

/// CXL 3.1 section 7.7.3.3, egress: PIF = 1 is UR unless the FM has enabled prefixes there, in both flows.
#[test]
fn prefix_not_enabled_at_the_far_edge() {
    for guards in [GIM, PREFIXED] {
        Level {
            take: |fabric| fabric.prefixes(&SECOND, OFF),
            give: |fabric| fabric.prefixes(&SECOND, PrefixFlags { out: true, into: false }),
            guards,
            told: edge(1, 0, Refusal::EgressPrefixNotEnabled),
            other: DIRECT,
        }
        .hold();
    }
}

/// docs/spec/cxl-fabric.md "Ingress", 1: a completion whose prefix is not in VTV is dropped and counted as unexpected,
/// without a notification.
#[test]
fn prefix_of_a_completion_not_in_vtv() {
    let mut fabric = up();
    for guards in [GIM, PREFIXED] {
        fabric.works(&guards);
        fabric.access(&SECOND, HOST_EDGE, AccessOp::DisableVtv);
        for (seed, &how) in (1..).zip(UIO) {
            let before = fabric.books();
            assert_eq!(fabric.send(&guards, how, seed), Err(Failure::Timeout), "{how:?}");
            let changed = fabric.changes(&before);
            let want = [
                ("host timeouts", 1),
                ("peer requests", 1),
                ("peer served", 1),
                ("switch 1 port 2 dropped unexpected_completion", 1),
                ("switch 1 port 2 refused prefix-not-in-vtv", 1),
            ];
            assert_eq!(changed, want.map(|(name, by)| (name.to_owned(), by)), "{how:?}");
        }
        fabric.access(&SECOND, HOST_EDGE, AccessOp::EnableVtv);
        fabric.works(&guards);
    }
    fabric.check();
}

/// CXL 3.1 section 7.7.9: the target of an LDST segment must be in LAV, which only the FM sets (5716h). Plain requests
/// do not use LDST, and the virtual switch has no window for them.
#[test]
fn lav_clear() {
    Level {
        take: |fabric| fabric.lav(NEAR_EDGE, LdstAccess::Disable),
        give: |fabric| fabric.lav(NEAR_EDGE, LdstAccess::Enable),
        guards: LDFAM,
        told: edge(0, 0, Refusal::LavClear),
        other: DIRECT,
    }
    .hold();
}

/// docs/spec/cxl-fabric.md "Ingress", 3: a UIO request without an LDST entry goes to the virtual switch, which has no
/// window for it.
#[test]
fn no_ldst_entry() {
    Level {
        take: |fabric| fabric.put_ldst(None),
        give: |fabric| fabric.put_ldst(Some(ldfam())),
        guards: LDFAM,
        told: edge(0, 0, Refusal::UpstreamClaimsNot),
        other: DIRECT,
    }
    .hold();
}

/// CXL 3.1 section 7.7.9: LAV guards the re-router, too. A wrong entry sends completions to another host until LAV is
/// cleared; then they are routed by their ID.
#[test]
fn lav_clear_for_a_completion() {
    let mut fabric = up();
    let none = ReRouterEntry { dpid: pid(0), segment: None, requester: Bdf::from_bits(0) };
    let requester = Bdf::new(0, 0, 0);
    let astray = ReRouterEntry { dpid: pid(PEER_EDGE), segment: None, requester };
    fabric.works(&LDFAM);
    fabric.lav(PEER_EDGE, LdstAccess::Enable);
    fabric.put_re_router(NEAR_VPPB, astray);
    for (seed, &how) in (1..).zip(UIO) {
        let before = fabric.books();
        assert_eq!(fabric.send(&LDFAM, how, seed), Err(Failure::Timeout), "{how:?}");
        let changed = fabric.changes(&before);
        let names = ["host timeouts", "near requests", "near served", "peer unexpected"];
        assert_eq!(changed, names.map(|name| (name.to_owned(), 1)), "{how:?}");
    }
    fabric.lav(PEER_EDGE, LdstAccess::Disable);
    fabric.works(&LDFAM);
    fabric.put_re_router(NEAR_VPPB, none);
    fabric.lav(HOST_EDGE, LdstAccess::Enable);
    fabric.put_re_router(NEAR_VPPB, ReRouterEntry { dpid: pid(HOST_EDGE), ..astray });
    fabric.works(&LDFAM);
    fabric.check();
}

/// Each table refuses a target that the FM does not allow, and keeps its entries.
#[test]
fn tables_take_no_target_that_is_not_allowed() {
    let mut fabric = up();
    fabric.allow_gfd(AccessOp::DisableGmv);
    fabric.access(&[], PEER_EDGE, AccessOp::DisableVtv);
    fabric.lav(NEAR_EDGE, LdstAccess::Disable);
    fabric.prefixes(&[], OFF);
    fabric.bad_tables();
    fabric.refused(&DIRECT, ALL, &edge(0, 0, Refusal::NotInGmv));
    fabric.refused(&GIM, UIO, &edge(0, 0, Refusal::GimNotInVtv));
    fabric.refused(&LDFAM, UIO, &edge(0, 0, Refusal::LavClear));
    fabric.refused(&PREFIXED, UIO, &edge(0, 0, Refusal::PrefixNotEnabled));
    fabric.refused(&PREFIXED, PLAIN, &edge(0, 0, Refusal::PrefixNeedsUio));
    fabric.check();
}

/// A requester gets no access from the decoders and groups of another one.
#[test]
fn protection_is_each_requesters_own() {
    let mut fabric = up();
    fabric.works(&DIRECT);
    fabric.decoder_of(PEER_EDGE, 0, Some(decoder(WINDOW, 0)));
    fabric.sat_of(PEER_EDGE, 0b11 | SAT_NOTIFY);
    fabric.put_sat(SAT_NOTIFY);
    let told = device(trigger::SAT_DENIED, Some(Dpa(0x1000)), Some(0));
    fabric.refused(&DIRECT, ALL, &told);
    fabric.decoder_of(PEER_EDGE, 0, None);
    fabric.put_sat(1 | SAT_NOTIFY);
    fabric.works(&DIRECT);
    let unknown = Request::SetGdt(no_decoders(Pid::NONE));
    fabric.bad_at_gfd(&unknown);
    fabric.works(&DIRECT);
    fabric.check();
}

/// CXL 3.1 section 7.7.2.7: the GFD refuses a device as it refuses a host, and the device's edge drops the
/// notification.
#[test]
fn a_device_is_refused_and_never_told() {
    let mut fabric = up();
    let ways = [Operation::UioWrite { addr: Hpa(WINDOW), data: vec![7; 64] }, {
        Operation::UioRead { addr: Hpa(WINDOW), len: 64 }
    }];
    let plain = Operation::Read { addr: Hpa(WINDOW), len: 64 };
    let refused = Err(Failure::Status(Status::UnsupportedRequest));
    fabric.put_fast_at(NEAR_VPPB, gfam());
    fabric.decoder_of(NEAR_EDGE, 0, Some(decoder(WINDOW, 0)));
    for round in 0..2 {
        fabric.sat_of(NEAR_EDGE, 1 | SAT_NOTIFY);
        for (what, want) in ways.clone().into_iter().zip([vec![], vec![7; 64]]) {
            assert_eq!(fabric.dma(0, what), Ok(want), "{round}");
        }
        assert_eq!(fabric.dma(0, plain.clone()), Ok(vec![7; 64]), "{round}");
        fabric.sat_of(NEAR_EDGE, SAT_NOTIFY);
        for what in ways.iter().chain([&plain]) {
            fabric.rest(Span::from_ms(2));
            let before = fabric.books();
            assert_eq!(fabric.dma(0, what.clone()), refused, "{what:?}");
            fabric.rest(Span::from_ms(2));
            let names = [
                "gfd gam",
                "gfd refused",
                "switch 0 port 2 dropped tlp_refused",
                "switch 0 port 2 refused gam-to-peer",
            ];
            let want = names.map(|name| (name.to_owned(), 1));
            assert_eq!(fabric.changes(&before), want, "{what:?}");
        }
    }
    fabric.sat_of(NEAR_EDGE, 1 | SAT_NOTIFY);
    fabric.allow_gfd(AccessOp::DisableGmv);
    fabric.rest(Span::from_ms(1)); // for the interrupt to arrive at the host
    let before = fabric.books();
    assert_eq!(fabric.dma(0, plain), refused, "GMV is its virtual switch's");
    let names = ["switch 0 port 1 answered", "switch 0 port 1 refused not-in-gmv"];
    assert_eq!(fabric.changes(&before), names.map(|name| (name.to_owned(), 1)));
    fabric.check();
}
