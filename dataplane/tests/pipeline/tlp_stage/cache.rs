//! CXL.cache messages through the pipeline, byte for byte, and what is refused.
//!
//! The switch of [`super`]; its device has `CacheID` 5, a device behind the fabric has 6.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "CXL.cache"; docs/spec/wire-formats.md §3.12.

use super::*;
use weft_dataplane::pbr::{CacheDecoding, CacheRoutes};
use weft_dataplane::pipeline::PortLedger;

const PBR: u8 = 7;
const HBR: u8 = 8;
const OWN: u8 = 5;
const FAR: u8 = 6;
const FAR_DEVICE: u16 = 0x0F6;

/// What a switch below a virtual link is: the host of its devices is [`FAR_HOST`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    HostsEdge,
    BelowLink,
}

fn rig_of(place: Where, decoder: CacheDecoding) -> Rig {
    let rig = Rig::new();
    let mut tables = Tables::clone(&rig.lane.core().tables.load());
    let old = tables.vcs(0).unwrap();
    let mut upstream = *old.upstream();
    let mut routes = CacheRoutes::default();
    match place {
        Where::HostsEdge => {
            routes.set(OWN, pid(DEVICE_PID));
            routes.set(FAR, pid(FAR_DEVICE));
        }
        Where::BelowLink => {
            upstream.binding = Binding::Fabric { spid: pid(LINK_NEAR), dpid: pid(FAR_HOST) };
        }
    }
    let vcs = Vcs::new(upstream, None, &old.below()[..1]).unwrap().with_cache_routes(routes);
    tables.set_vcs(0, Some(vcs)).unwrap();
    let mut device = tables.edge(id(DEVICE)).unwrap().clone();
    device.cache_ids = decoder;
    tables.set_edge(id(DEVICE), Some(device)).unwrap();
    let fabric = u8::try_from(FABRIC).unwrap();
    tables.set_drt(usize::from(FAR_DEVICE), &[DrtEntry::Port(fabric)]).unwrap();
    rig.lane.core().tables.store(Arc::new(tables));
    rig
}

fn assigned() -> CacheDecoding {
    CacheDecoding::new(Some(OWN), [])
}

fn forwarded(all: &[u8]) -> CacheDecoding {
    CacheDecoding::new(None, all.iter().copied())
}

/// A message: class and opcode, `CacheID`, CQID or UQID 123, and an address; with a line where its class has one.
fn message(op: u8, cache_id: u8) -> Vec<u8> {
    let head = [&[op, 0, cache_id << 4 | 1, 0x23, 0, 0, 0, 0][..], &0x1040_u64.to_be_bytes()];
    let line: &[u8] = if matches!(op >> 5, 3 | 6) { &[0xAB; 64] } else { &[] };
    [&head.concat()[..], line].concat()
}

fn behind(header: Pth, message: &[u8]) -> Vec<u8> {
    [&header.emit()[..], message].concat()
}

/// D2H Req, Rsp, Data; and H2D.
const TO_HOST: [u8; 3] = [0x22, 0x4F, 0x60];
const TO_DEVICE: [u8; 3] = [0x82, 0xA4, 0xC0];

//= docs/spec/cxl-fabric.md "CXL.cache" Routing: at a host's own edge, both ways
#[test]
fn device_and_host_at_one_switch_exchange_messages() {
    for op in TO_HOST {
        // The device writes what it likes: the edge says whose cache it is. Padding is cut off.
        for told in [OWN, FAR, 0, 15] {
            let mut rig = rig_of(Where::HostsEdge, assigned());
            let padded = [message(op, told), vec![0; 30]].concat();
            let out = rig.frame(DEVICE, &from_partner(DEVICE, HBR, &padded));
            let want = wire(MacAddr::BROADCAST, mac(HOST), HBR, &message(op, OWN));
            assert_eq!(out, [(HOST, want)], "{op:x} {told}");
            let sent = &rig.ledger().port[HOST].pri;
            assert!(sent[3].tx_bytes > 0 && sent[4].tx_bytes == 0, "the priority of UIO requests");
        }
    }
    for op in TO_DEVICE {
        let mut rig = rig_of(Where::HostsEdge, assigned());
        let out = rig.frame(HOST, &from_partner(HOST, HBR, &message(op, OWN)));
        let want = wire(MacAddr::BROADCAST, mac(DEVICE), HBR, &message(op, OWN));
        assert_eq!(out, [(DEVICE, want)], "{op:x}");
        let sent = &rig.ledger().port[DEVICE].pri;
        assert!(sent[4].tx_bytes > 0 && sent[3].tx_bytes == 0, "the priority of UIO completions");
    }
}

//= docs/spec/cxl-fabric.md "CXL.cache" Routing: over fabric links, with the PIDs of both ports
#[test]
fn messages_cross_fabric_links_with_the_pids_of_both_ports() {
    for op in TO_HOST {
        // Out of a downstream edge to the host's PID.
        let mut rig = rig_of(Where::BelowLink, assigned());
        let out = rig.frame(DEVICE, &from_partner(DEVICE, HBR, &message(op, 0)));
        let sent = behind(pth(DEVICE_PID, FAR_HOST), &message(op, OWN));
        assert_eq!(out, [(FABRIC, wire(MacAddr::BROADCAST, mac(FABRIC), PBR, &sent))], "{op:x}");
        // Into a host's edge.
        let mut rig = rig_of(Where::HostsEdge, assigned());
        let came = behind(Pth { pif: true, ..pth(FAR_DEVICE, HOST_PID) }, &message(op, FAR));
        let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &came));
        let want = wire(MacAddr::BROADCAST, mac(HOST), HBR, &message(op, FAR));
        assert_eq!(out, [(HOST, want)], "{op:x}");
    }
    for op in TO_DEVICE {
        let mut rig = rig_of(Where::HostsEdge, assigned());
        let out = rig.frame(HOST, &from_partner(HOST, HBR, &message(op, FAR)));
        let sent = behind(Pth { dsar: true, ..pth(HOST_PID, FAR_DEVICE) }, &message(op, FAR));
        assert_eq!(out, [(FABRIC, wire(MacAddr::BROADCAST, mac(FABRIC), PBR, &sent))], "{op:x}");
        let mut rig = rig_of(Where::BelowLink, assigned());
        let came = behind(Pth { dsar: true, ..pth(FAR_HOST, DEVICE_PID) }, &message(op, OWN));
        let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &came));
        let want = wire(MacAddr::BROADCAST, mac(DEVICE), HBR, &message(op, OWN));
        assert_eq!(out, [(DEVICE, want)], "{op:x}");
    }
    // In transit nothing of it changes, whoever's caches they are.
    let mut rig = rig_of(Where::HostsEdge, assigned());
    let mut tables = Tables::clone(&rig.lane.core().tables.load());
    tables.set_edge(id(GFD), None).unwrap();
    rig.lane.core().tables.store(Arc::new(tables));
    let transit = behind(Pth { dsar: true, ..pth(FAR_HOST, GFD_PID) }, &message(0x82, 15));
    let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &transit));
    assert_eq!(out, [(GFD, wire(MacAddr::BROADCAST, mac(GFD), PBR, &transit))]);
}

/// An HBR switch says which of its devices has sent a message, as far as the table leads that `CacheID` to it.
#[test]
fn a_switch_below_names_the_caches_that_lead_to_it() {
    let mut rig = rig_of(Where::BelowLink, forwarded(&[0, 7]));
    for (told, there) in [(0, true), (7, true), (OWN, false), (15, false)] {
        let before = rig.refused(DEVICE, Refusal::NoCacheId);
        let out = rig.frame(DEVICE, &from_partner(DEVICE, HBR, &message(0x22, told)));
        assert_eq!(out.len(), usize::from(there), "{told}");
        assert_eq!(rig.refused(DEVICE, Refusal::NoCacheId) - before, u64::from(!there), "{told}");
        let came = behind(pth(FAR_HOST, DEVICE_PID), &message(0x82, told));
        let out = rig.frame(FABRIC, &from_partner(FABRIC, PBR, &came));
        assert_eq!(out.len(), usize::from(there), "{told}");
    }
}

//= docs/spec/cxl-fabric.md "CXL.cache" Routing: anything else is dropped and counted
#[test]
fn nobody_speaks_for_another_cache() {
    use Where::{BelowLink, HostsEdge};
    let (up, down) = (message(0x22, OWN), message(0x82, OWN));
    let hie = |pth: Pth| Pth { hie: true, ..pth };
    #[rustfmt::skip] // columns: switch, decoder, port, protocol, what, refusal
    let cases = [
        (HostsEdge, assigned(), HOST,   HBR, up.clone(),                                  Refusal::WrongRole),
        (HostsEdge, assigned(), DEVICE, HBR, down.clone(),                                Refusal::WrongRole),
        (HostsEdge, assigned(), HOST,   HBR, message(0x82, 7),                            Refusal::NoCacheId),
        (HostsEdge, CacheDecoding::default(), DEVICE, HBR, up.clone(),                    Refusal::NoCacheId),
        (HostsEdge, CacheDecoding::new(Some(7), []), DEVICE, HBR, up.clone(),             Refusal::NoCacheId),
        (HostsEdge, CacheDecoding::new(Some(FAR), []), DEVICE, HBR, up.clone(),           Refusal::NoCacheId),
        (HostsEdge, CacheDecoding::new(Some(7), []), HOST, HBR, down.clone(),             Refusal::NoCacheId),
        (BelowLink, assigned(), HOST,   HBR, down.clone(),                                Refusal::NoCacheId),
        (HostsEdge, assigned(), HOST,   PBR, behind(pth(HOST_PID, FAR_DEVICE), &down),    Refusal::PthAtEdge),
        (HostsEdge, assigned(), DEVICE, PBR, behind(pth(DEVICE_PID, HOST_PID), &up),      Refusal::PthAtEdge),
        (HostsEdge, assigned(), DEVICE, PBR, behind(pth(FAR_DEVICE, HOST_PID), &message(0x22, FAR)), Refusal::PthAtEdge),
        (HostsEdge, assigned(), GFD,    PBR, behind(pth(GFD_PID, HOST_PID), &up),         Refusal::NotFromGfd),
        (HostsEdge, assigned(), GFD,    PBR, behind(pth(DEVICE_PID, HOST_PID), &up),      Refusal::ForeignSpid),
        (HostsEdge, assigned(), GFD,    PBR, behind(pth(HOST_PID, DEVICE_PID), &down),    Refusal::ForeignSpid),
        // Into a host's edge: another's CacheID, a guessed SPID, none that it knows, and what hosts send.
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_DEVICE, HOST_PID), &up),      Refusal::NoCacheId),
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_HOST, HOST_PID), &message(0x22, FAR)), Refusal::NoCacheId),
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(0xFFF, HOST_PID), &message(0x22, 7)), Refusal::NoCacheId),
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_HOST, HOST_PID), &down),      Refusal::WrongRole),
        // Out to a device: another host's, a CacheID that it has not, and what devices send.
        (BelowLink, assigned(), FABRIC, PBR, behind(pth(HOST_PID, DEVICE_PID), &down),    Refusal::ForeignHost),
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_HOST, DEVICE_PID), &down),    Refusal::ForeignHost),
        (BelowLink, assigned(), FABRIC, PBR, behind(pth(FAR_HOST, DEVICE_PID), &message(0x82, 4)), Refusal::NoCacheId),
        (BelowLink, CacheDecoding::default(), FABRIC, PBR, behind(pth(FAR_HOST, DEVICE_PID), &message(0x82, 0)), Refusal::NoCacheId),
        (BelowLink, assigned(), FABRIC, PBR, behind(pth(FAR_HOST, DEVICE_PID), &up),      Refusal::WrongRole),
        // To a GFD, to the switch itself, hierarchical, and to the partner alone.
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_HOST, GFD_PID), &down),       Refusal::WrongRole),
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_DEVICE, GFD_PID), &up),       Refusal::WrongRole),
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_DEVICE, 0x010), &up),         Refusal::WrongRole),
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_DEVICE, 0x999), &up),         Refusal::NoDrtEntry),
        (HostsEdge, assigned(), FABRIC, PBR, behind(hie(pth(FAR_DEVICE, HOST_PID)), &message(0x22, FAR)), Refusal::NoCacheId),
        (HostsEdge, assigned(), FABRIC, PBR, behind(hie(pth(LINK_FAR, LINK_NEAR)), &up),  Refusal::NoCacheId),
        (HostsEdge, assigned(), FABRIC, PBR, behind(pth(FAR_DEVICE, 0xFFF), &message(0x22, FAR)), Refusal::NoCacheId),
    ];
    for (number, (place, decoder, port, protocol, sent, refusal)) in cases.into_iter().enumerate() {
        let mut rig = rig_of(place, decoder);
        let out = rig.frame(port, &from_partner(port, protocol, &sent));
        assert_eq!(out, [], "case {number}: nothing is answered");
        assert_eq!(rig.refused(port, refusal), 1, "case {number}");
        assert_eq!(rig.drops(port, DropReason::TlpRefused), 1, "case {number}");
    }
    // No link with a PTH has messages without, and none is cut short.
    let mut rig = rig_of(HostsEdge, assigned());
    for (port, protocol, sent, reason) in [
        (GFD, HBR, up.clone(), DropReason::NotTlp),
        (FABRIC, HBR, up.clone(), DropReason::NotTlp),
        (DEVICE, HBR, message(0x60, OWN)[..79].to_vec(), DropReason::Malformed),
        (DEVICE, HBR, message(0x3F, OWN), DropReason::Malformed),
        (FABRIC, PBR, up, DropReason::Malformed),
    ] {
        let before = rig.drops(port, reason);
        assert_eq!(rig.frame(port, &from_partner(port, protocol, &sent)), []);
        assert_eq!(rig.drops(port, reason), before + 1, "{port} {protocol} {reason:?}");
    }
}

/// Logical devices have no `CacheID`, and nothing passes a port that is being reset.
#[test]
fn logical_devices_and_ports_in_reset_take_nothing() {
    for (resetting, refusals) in [
        (false, [Refusal::NoCacheId; 2]), // with logical devices
        (true, [Refusal::NoCacheId, Refusal::Unbound]),
    ] {
        let mut rig = rig_of(Where::HostsEdge, assigned());
        let mut tables = Tables::clone(&rig.lane.core().tables.load());
        let (fast, ldst) = (Fast::new(16, 16).unwrap(), Ldst::new(16, 16).unwrap());
        let mut edge = EdgePort::new(Role::Dsp, pid(DEVICE_PID), fast, ldst);
        let whole = tables.edge(id(DEVICE)).unwrap().clone();
        if resetting {
            edge.resetting = true;
        } else {
            edge.set_ld(0, Some(whole)).unwrap();
        }
        tables.set_edge(id(DEVICE), Some(edge)).unwrap();
        rig.lane.core().tables.store(Arc::new(tables));
        assert_eq!(rig.frame(DEVICE, &from_partner(DEVICE, HBR, &message(0x22, OWN))), []);
        assert_eq!(rig.frame(HOST, &from_partner(HOST, HBR, &message(0x82, OWN))), []);
        assert_eq!(rig.refused(DEVICE, refusals[0]), 1);
        assert_eq!(rig.refused(HOST, refusals[1]), 1);
    }
}

/// Messages of one direction keep their order while a route is down; none passes another by a second route.
#[test]
fn what_waits_for_a_route_keeps_its_order() {
    for traced in [false, true] {
        let mut rig = rig_of(Where::HostsEdge, assigned());
        if traced {
            rig.trace = Some(Trace::new(Deaf));
        }
        let numbered = |n: u8| {
            let mut one = message(TO_DEVICE[usize::from(n % 3)], FAR);
            one[3] = n;
            one
        };
        let put = |rig: &mut Rig, n: u8| {
            rig.rx[HOST].lock().unwrap().push_back(from_partner(HOST, HBR, &numbered(n)));
            rig.step();
        };
        let sent = |n: u8, port: usize| {
            let sent = behind(Pth { dsar: true, ..pth(HOST_PID, FAR_DEVICE) }, &numbered(n));
            (port, wire(MacAddr::BROADCAST, mac(port), PBR, &sent))
        };
        rig.states[FABRIC].is_down.store(true, Ordering::Relaxed);
        rig.step();
        (0..20).for_each(|n| put(&mut rig, n));
        assert_eq!((rig.ledger().queued, rig.ledger().imbalance()), (20, 0));
        rig.states[FABRIC].is_down.store(false, Ordering::Relaxed);
        (20..24).for_each(|n| put(&mut rig, n));
        (0..4).for_each(|_| rig.step());
        assert_eq!(rig.out(), (0..24).map(|n| sent(n, FABRIC)).collect::<Vec<_>>());
        // Queued for a link that goes down, where another one leads there by then.
        rig.states[FABRIC].is_full.store(true, Ordering::Relaxed);
        (0..20).for_each(|n| put(&mut rig, n));
        let mut tables = Tables::clone(&rig.lane.core().tables.load());
        let other = u8::try_from(GFD).unwrap();
        tables.set_drt(usize::from(FAR_DEVICE), &[DrtEntry::Port(other)]).unwrap();
        tables.set_edge(id(GFD), None).unwrap(); // a second fabric port
        rig.lane.core().tables.store(Arc::new(tables));
        rig.states[FABRIC].is_down.store(true, Ordering::Relaxed);
        rig.step();
        rig.step();
        assert_eq!(rig.out(), (0..20).map(|n| sent(n, GFD)).collect::<Vec<_>>());
        // What is not led anywhere for 900 ms is dropped, and nobody is told.
        rig.states[GFD].is_down.store(true, Ordering::Relaxed);
        rig.step();
        put(&mut rig, 0);
        rig.now = Instant::from_ns(rig.now.as_ns() + 901_000_000);
        (0..2).for_each(|_| rig.step());
        assert_eq!((rig.out(), rig.refused(HOST, Refusal::RouteDown)), (Vec::new(), 1));
        assert_eq!(rig.drops(HOST, DropReason::TlpRefused), 1);
    }
}

/// Any bytes behind either protocol, at every port: the books stay even, with a trace the same comes out, and whatever reaches host
/// or device has the `CacheID` of its port.
#[test]
fn any_bytes_are_forwarded_or_counted() {
    let make = || rig_of(Where::HostsEdge, assigned());
    let (mut rig, mut traced) = (make(), make());
    traced.trace = Some(Trace::new(Deaf));
    let mut rng = Rng::new(21);
    let pids = [HOST_PID, DEVICE_PID, GFD_PID, FAR_DEVICE, FAR_HOST, LINK_NEAR, LINK_FAR, 0xFFF];
    let mut out_of = 0;
    for _ in 0..20_000 {
        let port = usize::try_from(rng.below(PORTS as u64)).unwrap();
        if port == AGENT {
            continue; // nobody but the process itself sends there
        }
        let protocol = if rng.below(2) == 0 { PBR } else { HBR };
        let op = [TO_HOST, TO_DEVICE].concat()[usize::try_from(rng.below(6)).unwrap()];
        let mut bytes = message(op, [OWN, FAR, 0, 15][usize::try_from(rng.below(4)).unwrap()]);
        bytes.extend((0..rng.below(20)).map(|_| u8::try_from(rng.below(256)).unwrap()));
        if rng.below(3) == 0 {
            let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
            bytes[at] ^= 1 << rng.below(8);
        }
        if protocol == PBR {
            let mut pick = || pids[usize::try_from(rng.below(8)).unwrap()];
            let (spid, dpid) = (pick(), pick());
            bytes = behind(Pth { hie: rng.below(8) == 0, ..pth(spid, dpid) }, &bytes);
        }
        let frame = from_partner(port, protocol, &bytes);
        let out = rig.frame(port, &frame);
        out_of += out.len();
        assert_eq!(traced.frame(port, &frame), out);
        for (to, frame) in out.into_iter().filter(|(to, _)| [HOST, DEVICE].contains(to)) {
            let cache_id = frame[22] >> 4;
            assert_eq!(frame[18], HBR, "a PID left the fabric: {frame:02x?}");
            assert!(cache_id == OWN || to == HOST && cache_id == FAR, "{frame:02x?}");
        }
    }
    assert!(out_of > 500, "{out_of}");
    for (port, (short, long)) in rig.ledger().port.iter().zip(&traced.ledger().port).enumerate() {
        let drops = |port: &PortLedger| (port.drops, port.answered);
        assert_eq!((&short.refused, drops(short)), (&long.refused, drops(long)), "port {port}");
    }
    assert!(rig.ledger().port.iter().all(|port| port.answered == 0));
}
