//! Explains where an address or a PID leads: each step of the lookup, for people.
//!
//! The verdicts are those of [`Tables::ingress`] and [`Routes::lookup`](super::Routes::lookup) themselves.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge: which DPID", "Inside: DRT"; docs/spec/wire-formats.md §5.1,
//! §5.3.

use weft_parsers::fabric::{DrtEntry, Hpa, Pid, RgtEntry, Target};

use super::drt::Dispatch;
use super::edge::Role;
use super::ingress::{Kind, Request, Verdict};
use super::refusal::Refusal;
use super::segments::{Found, Segment, Segments};
use super::tables::{Assigned, Tables};
use super::vcs::{Route, Side};
use crate::types::PortId;

/// Address bits inside of a segment of size code 0 (64 GiB).
const SHIFT: u32 = 36;

/// Lookup of the way in an interleave DPID table (IDT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayStep {
    /// Way that the address belongs to.
    pub way: u8,
    /// Index in the IDT.
    pub place: usize,
    /// PID at that index; `None` beyond the table or where it has no PID.
    pub dpid: Option<Pid>,
}

/// Lookup of one address in a FAST or LDST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentSteps {
    /// Segment size code: 64 GiB << code.
    pub size: u8,
    /// First address of the window.
    pub base: Hpa,
    /// Last address of the window; the window is off if this or the base is 0.
    pub limit: Hpa,
    /// Command index of the entry; `None` outside of the window.
    pub index: Option<usize>,
    /// The entry; `None` if it is not valid.
    pub entry: Option<Segment>,
    /// Lookup in the IDT; `None` unless the entry is interleaved.
    pub way: Option<WayStep>,
    /// Result of the lookup.
    pub found: Found,
}

/// Lookups of one address at an edge port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EdgeSteps {
    /// Kind of component at the port.
    pub role: Role,
    /// SPID of TLPs that come in there.
    pub pid: Pid,
    /// Its virtual switch, and the port's place in it.
    pub vcs: Option<(u8, Side)>,
    /// Lookup in FAST and its IDT.
    pub fast: SegmentSteps,
    /// Whether GMV allows the PID that FAST gives; `None` if it gives none.
    pub gmv: Option<bool>,
    /// Whether VTV allows the PID that FAST gives.
    pub vtv: Option<bool>,
    /// Lookup in LDST and its IDT; used for UIO outside of FAST's window.
    pub ldst: SegmentSteps,
    /// Whether LAV allows the PID that LDST gives.
    pub lav: Option<bool>,
    /// Verdict on a memory request for the address.
    pub memory: Verdict,
    /// Verdict on a UIO request for the address.
    pub uio: Verdict,
}

/// Lookup of one PID inside of the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteSteps {
    /// Owner of the PID in this switch, if any.
    pub assigned: Option<Assigned>,
    /// DRT entry of the PID.
    pub entry: DrtEntry,
    /// Routing group that the entry names.
    pub group: Option<RgtEntry>,
    /// Result of the lookup.
    pub found: Result<Dispatch, Refusal>,
}

/// Steps of looking up `hpa` in `table`.
#[must_use]
pub fn segment(table: &Segments, hpa: Hpa) -> SegmentSteps {
    let (size, base, limit) = table.config();
    let found = table.lookup(hpa);
    let mut steps = SegmentSteps { size, base, limit, index: None, entry: None, way: None, found };
    if found == Found::Miss {
        return steps;
    }
    let index = hpa.0.wrapping_sub(base.0) >> (SHIFT + u32::from(size));
    steps.index = usize::try_from(index).ok();
    steps.entry = steps.index.and_then(|index| table.get(index));
    if let Some(Segment { interleave, target: Target::Interleaved(first), .. }) = steps.entry {
        let way = interleave.way(hpa.0);
        let place = usize::from(first) + usize::from(way);
        let dpid = table.idt(place).filter(|pid| !pid.is_none());
        steps.way = Some(WayStep { way, place, dpid });
    }
    steps
}

/// Steps by which edge `port` handles a request for `hpa`; `None` if it is no edge port.
#[must_use]
pub fn edge(tables: &Tables, port: PortId, hpa: Hpa) -> Option<EdgeSteps> {
    let edge = tables.edge(port)?;
    let (fast, ldst) = (segment(edge.fast().segments(), hpa), segment(edge.ldst().segments(), hpa));
    let allowed = |found: Found, vector: &super::AccessVector| match found {
        Found::Hit { dpid, .. } => Some(vector.contains(dpid)),
        Found::Miss | Found::Invalid => None,
    };
    let access = edge.access();
    let verdict = |kind| {
        let route = Route::Memory(hpa);
        tables.ingress(
            port,
            &Request {
                kind,
                route,
                prefix: None,
                segment: None,
                requester: None,
                ld: None,
                ln: None,
            },
        )
    };
    Some(EdgeSteps {
        role: edge.role,
        pid: edge.pid,
        vcs: edge.vcs,
        fast,
        gmv: allowed(fast.found, &access.gmv),
        vtv: allowed(fast.found, &access.vtv),
        ldst,
        lav: allowed(ldst.found, &access.lav),
        // The two kinds differ in steps 2 and 3: GIM segments and LDST are for UIO only.
        memory: verdict(Kind::MemoryRequest),
        uio: verdict(Kind::UioRequest),
    })
}

/// Steps by which `dpid` is routed inside of the switch.
#[must_use]
pub fn route(tables: &Tables, dpid: Pid) -> RouteSteps {
    let routes = tables.routes();
    let entry = routes.drt(dpid);
    let group = match entry {
        DrtEntry::Group(index) => routes.rgt(index.into()),
        _ => None,
    };
    let assigned = tables.assigned().find(|&(pid, _)| pid == dpid).map(|(_, to)| to);
    RouteSteps { assigned, entry, group, found: routes.lookup(dpid) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_base::rng::Rng;
    use weft_parsers::fabric::{FastEntry, Interleave};

    use super::*;
    use crate::pbr::{Access, EdgePort, Fast, Ldst};
    use crate::types::PortSet;

    fn pid(bits: u16) -> Pid {
        Pid::from_low_bits(bits)
    }

    fn tables() -> Tables {
        let port = PortId::new(0).unwrap();
        let mut fast = Fast::new(16, 8).unwrap();
        fast.configure(0, Hpa(1 << 40), Hpa((1 << 40) + (8 << 36))).unwrap();
        let four = Interleave::from_codes(2, 0).unwrap();
        let direct = |bits| Target::Direct(pid(bits));
        let entries = [
            Some(FastEntry { gim: false, interleave: Interleave::NONE, target: direct(0x11) }),
            Some(FastEntry { gim: true, interleave: Interleave::NONE, target: direct(0x12) }),
            Some(FastEntry { gim: false, interleave: four, target: Target::Interleaved(4) }),
            None,
            Some(FastEntry { gim: false, interleave: Interleave::NONE, target: direct(0x13) }),
        ];
        fast.set(0, &entries).unwrap();
        fast.set_idt(4, &[pid(0x21), pid(0x22), Pid::NONE, pid(0x24)]).unwrap();
        let mut edge = EdgePort::new(Role::Usp, pid(7), fast, Ldst::new(1, 0).unwrap());
        let mut access = Access::default();
        for bits in [0x11, 0x21, 0x22, 0x24] {
            access.gmv.allow(pid(bits)).unwrap();
        }
        edge.set_access(Arc::new(access));
        let mut tables = Tables::new(PortSet::first(3), 2).unwrap();
        tables.set_edge(port, Some(edge)).unwrap();
        let group = RgtEntry { ports: [1, 2, 0, 0, 0, 0, 0, 0], highest: 1, ..RgtEntry::default() };
        tables.set_rgt(1, &[group]).unwrap();
        tables.set_drt(0x11, &[DrtEntry::Port(2), DrtEntry::Group(1)]).unwrap();
        tables.assign(pid(0x30), Assigned::Switch).unwrap();
        tables
    }

    #[test]
    fn each_step_of_an_address_is_told() {
        let (tables, port) = (tables(), PortId::new(0).unwrap());
        let at = |hpa| edge(&tables, port, Hpa(hpa)).unwrap();
        let first = at((1 << 40) + 5);
        assert_eq!((first.fast.index, first.gmv, first.vtv), (Some(0), Some(true), Some(false)));
        assert!(matches!(first.memory, Verdict::Fabric { header, .. } if header.dpid == pid(0x11)));
        let way = at((1 << 40) + (2 << 36) + 0x100);
        assert_eq!(way.fast.way, Some(WayStep { way: 1, place: 5, dpid: Some(pid(0x22)) }));
        let hole = at((1 << 40) + (2 << 36) + 0x200);
        assert_eq!(hole.fast.way, Some(WayStep { way: 2, place: 6, dpid: None }));
        assert_eq!(hole.fast.found, Found::Invalid);
        let none = at((1 << 40) + (3 << 36));
        assert_eq!((none.fast.index, none.fast.entry), (Some(3), None));
        assert_eq!(none.memory, Verdict::UnsupportedRequest(Refusal::NoFastEntry));
        let barred = at((1 << 40) + (4 << 36));
        assert_eq!(
            (barred.gmv, barred.uio),
            (Some(false), Verdict::UnsupportedRequest(Refusal::NotInGmv))
        );
        assert_eq!(at(1 << 39).fast.index, None);
        assert!(edge(&tables, PortId::new(1).unwrap(), Hpa(0)).is_none());
    }

    #[test]
    fn each_step_of_a_pid_is_told() {
        let tables = tables();
        let port = route(&tables, pid(0x11));
        assert_eq!(port.found, Ok(Dispatch::Port(PortId::new(2).unwrap())));
        let group = route(&tables, pid(0x12));
        assert_eq!(
            (group.entry, group.group.map(|group| group.ports[1])),
            (DrtEntry::Group(1), Some(2))
        );
        let own = route(&tables, pid(0x30));
        assert_eq!((own.assigned, own.found), (Some(Assigned::Switch), Ok(Dispatch::Here)));
        assert_eq!(route(&tables, pid(0x99)).found, Err(Refusal::NoDrtEntry));
    }

    /// The steps, followed one after the other, lead to the result of the lookup itself.
    #[test]
    fn steps_lead_to_what_the_lookup_finds() {
        let (tables, mut rng) = (tables(), Rng::new(5));
        let fast = tables.edge(PortId::new(0).unwrap()).unwrap().fast().segments();
        for _ in 0..10_000 {
            let hpa = Hpa((1 << 40) - (1 << 36) + rng.next_u64() % (11 << 36));
            let steps = segment(fast, hpa);
            let told = match (steps.index, steps.entry, steps.way) {
                (None, ..) => Found::Miss,
                (_, Some(entry), Some(WayStep { dpid: Some(dpid), .. })) => {
                    Found::Hit { flag: entry.flag, dpid }
                }
                (_, Some(Segment { flag, target: Target::Direct(dpid), .. }), _) => {
                    Found::Hit { flag, dpid }
                }
                _ => Found::Invalid,
            };
            assert_eq!((told, steps.found), (fast.lookup(hpa), fast.lookup(hpa)), "{hpa:?}");
        }
    }
}
