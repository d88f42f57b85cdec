//! One decision of the CXL stage in memory: HPA → FAST → IDT → access vector → DRT → port, on one core.
//!
//! An edge with 4,096 [`Segments`] and 4,095 DPIDs; [`measure`] looks random addresses up and
//! returns a [`PbrFigure`].
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside".

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_base::rng::Rng;
use weft_dataplane::pbr::{
    Access, Arrival, EdgePort, Fast, Flow, Kind, Ldst, Load, Refusal, Request, Role, Route, Side,
    TableError, Tables, Verdict,
};
use weft_dataplane::types::{PortId, PortSet};
use weft_dataplane::worker::tsc;
use weft_parsers::fabric::{DrtEntry, FastEntry, Hpa, Interleave, Pid, Target};

use crate::path::ALLOCATIONS;

/// Most nanoseconds that a decision may take.
pub const MUST_NS: f64 = 30.0;

/// Segments of the FAST, 64 GiB each.
const SEGMENTS: usize = 4_096;
/// Ports of the switch.
const PORTS: usize = 16;
/// Addresses that are looked up over and over: far more than any predictor remembers.
const ADDRESSES: usize = 1 << 16;
/// Rounds that are timed: short ones, so that not all are disturbed.
const ROUNDS: usize = 45;
const BASE: u64 = 1 << 50;

/// Figures of one kind of request, each a TLP where not said otherwise.
#[derive(Clone, Debug)]
pub struct PbrFigure {
    /// Time of a decision in the least disturbed round, and in the median one.
    pub ns: (f64, f64),
    /// The same where each address waits for the decision before: the delay of a TLP alone.
    pub alone_ns: (f64, f64),
    /// Ticks of the time-stamp counter a decision, in the least and the median round.
    pub tsc: Option<(f64, f64)>,
    /// Allocations during all rounds.
    pub allocations: u64,
}

/// Queues that are empty.
struct Idle;

impl Load for Idle {
    fn queued_bytes(&self, _port: PortId) -> u64 {
        0
    }

    fn is_full(&self, _port: PortId) -> bool {
        false
    }
}

/// Interleaving of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segments {
    /// All dealt out over 2 to 256 DPIDs: each decision reads the IDT.
    Interleaved,
    /// Every other one, at random, has a single DPID: no processor can tell beforehand.
    Mixed,
}

/// A switch whose port 0 is a host's edge, with all DPIDs allowed and routed.
fn tables(rng: &mut Rng, segments: Segments) -> Result<Tables, TableError> {
    let mut tables = Tables::new(PortSet::first(PORTS), 0)?;
    let mut draw = |bound: u64| u16::try_from(rng.below(bound)).unwrap_or(0);
    let fast = Fast::new(SEGMENTS, Pid::COUNT)?;
    let mut edge = EdgePort::new(Role::Usp, Pid::from_low_bits(0x0A1), fast, Ldst::new(1, 0)?);
    edge.vcs = Some((0, Side::Above));
    let mut access = Access::default();
    for bits in 0..0xFFF {
        access.gmv.allow(Pid::from_low_bits(bits))?;
    }
    edge.set_access(Arc::new(access));
    edge.configure_fast(0, Hpa(BASE), Hpa(BASE + ((SEGMENTS as u64) << 36)))?;
    let mut entries = Vec::with_capacity(SEGMENTS);
    let mut dpids = Vec::with_capacity(Pid::COUNT);
    for _ in 0..SEGMENTS {
        let ways = 1 + u8::try_from(draw(8)).unwrap_or(0);
        let granularity = u8::try_from(draw(7)).unwrap_or(0);
        let interleave = Interleave::from_codes(ways, granularity).unwrap_or_default();
        let target = Target::Interleaved(draw(1 + (1 << 12) - (1 << ways)));
        entries.push(Some(match (segments, draw(2)) {
            (Segments::Mixed, 0) => {
                let target = Target::Direct(Pid::from_low_bits(draw(0xFFF)));
                FastEntry { gim: false, interleave: Interleave::NONE, target }
            }
            _ => FastEntry { gim: false, interleave, target },
        }));
        dpids.push(Pid::from_low_bits(draw(0xFFF)));
    }
    edge.set_fast(0, &entries)?;
    edge.set_fast_idt(0, &dpids)?;
    tables.set_edge(PortId::default(), Some(edge))?;
    let routes: Vec<DrtEntry> =
        (0..0xFFF).map(|_| DrtEntry::Port(u8::try_from(draw(PORTS as u64)).unwrap_or(0))).collect();
    tables.set_drt(0, &routes)?;
    Ok(tables)
}

/// Decision of the stage for one TLP or CXL.mem message: DPID, then output port.
#[inline]
fn decide(tables: &Tables, kind: Kind, hpa: u64) -> Result<Option<PortId>, Refusal> {
    let route = Route::Memory(Hpa(hpa));
    let request =
        Request { kind, route, prefix: None, segment: None, requester: None, ld: None, ln: None };
    let Verdict::Fabric { header, .. } = tables.ingress(PortId::default(), &request) else {
        return Err(Refusal::NoFastEntry);
    };
    match tables.forward(header.spid, header.dpid, header.hie)? {
        Arrival::Out(to) => tables.pick(to, Flow::Dynamic, PortSet::first(PORTS), hpa, &Idle),
        Arrival::Here | Arrival::Vcs(..) => Ok(None),
    }
}

/// Decides about `tlps` TLPs, each when the one before is decided if `WAIT`; returns how many were refused, which must
/// be none.
#[inline(never)] // a profiler finds it by name
fn run<const WAIT: bool>(tables: &Tables, kind: Kind, addresses: &[u64], tlps: usize) -> u64 {
    let (mut refused, mut last) = (0, 0);
    for &hpa in addresses.iter().cycle().take(tlps) {
        // A port is below 256: the low bits of an address, those of a byte in a granule, change no way.
        let hpa = if WAIT { hpa ^ last } else { hpa };
        match decide(tables, kind, hpa) {
            Ok(Some(port)) if WAIT => last = u64::from(port.get()),
            Ok(Some(port)) => last = last.wrapping_add(u64::from(port.get())),
            _ => refused += 1,
        }
    }
    black_box(last);
    refused
}

/// Looks random addresses of the whole window up for requests of a kind, about `tlps` of them.
///
/// # Panics
/// When the tables cannot be built, or an address is refused: both are constants of this file.
#[must_use]
#[expect(clippy::float_arithmetic, reason = "a figure for people")]
#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
pub fn measure(segments: Segments, kind: Kind, tlps: u64) -> PbrFigure {
    let mut rng = Rng::new(0xFA57);
    let tables = tables(&mut rng, segments).expect("tables of constants");
    let window = (SEGMENTS as u64) << 36;
    let addresses: Vec<u64> = (0..ADDRESSES).map(|_| BASE + rng.below(window)).collect();
    let per_round = usize::try_from(tlps).unwrap_or(0) / ROUNDS;
    let per_round = per_round.max(ADDRESSES);
    let (mut free, mut alone, mut ticks) =
        (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
    let mut refused = run::<false>(&tables, kind, &addresses, ADDRESSES); // all caches warm
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        let (start, from) = (std::time::Instant::now(), tsc());
        refused += run::<false>(&tables, kind, &addresses, per_round);
        free.push(start.elapsed().as_nanos() as f64 / per_round as f64);
        if let (Some(from), Some(to)) = (from, tsc()) {
            ticks.push(to.wrapping_sub(from) as f64 / per_round as f64);
        }
        let start = std::time::Instant::now();
        refused += run::<true>(&tables, kind, &addresses, per_round);
        alone.push(start.elapsed().as_nanos() as f64 / per_round as f64);
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(refused, 0, "each address has a port");
    let middle = |figures: &mut Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures.first().copied().zip(figures.get(figures.len() / 2).copied())
    };
    // no round: fails the goal
    let no = (f64::INFINITY, f64::INFINITY);
    PbrFigure {
        ns: middle(&mut free).unwrap_or(no),
        alone_ns: middle(&mut alone).unwrap_or(no),
        tsc: middle(&mut ticks),
        allocations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The measured decision against the entries that it was set from, read back as commands do.
    #[test]
    fn measured_decisions_are_those_of_the_entries() {
        let mut rng = Rng::new(1);
        let tables = tables(&mut rng, Segments::Mixed).unwrap();
        let fast = tables.edge(PortId::default()).unwrap().fast();
        for _ in 0..10_000 {
            let offset = rng.below((SEGMENTS as u64) << 36);
            let entry = fast.get(usize::try_from(offset >> 36).unwrap()).unwrap();
            let way = usize::from(entry.interleave.way(BASE + offset));
            let dpid = match entry.target {
                Target::Direct(pid) => pid,
                Target::Interleaved(at) => fast.segments().idt(usize::from(at) + way).unwrap(),
            };
            let DrtEntry::Port(port) = tables.routes().drt(dpid) else { panic!("{dpid}") };
            let want = PortId::new(usize::from(port));
            for kind in [Kind::UioRequest, Kind::CxlMemRequest] {
                assert_eq!(decide(&tables, kind, BASE + offset), Ok(want), "{offset:#x}");
            }
        }
    }
}
