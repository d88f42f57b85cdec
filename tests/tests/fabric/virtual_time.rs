//! A saturated fabric in virtual time: weft's own switches, with PFC on every link, never come to a stand on the
//! FM's routes; on shortest paths round a ring they do.
//!
//! Graph and tables → `weft_sim::fabric`; every endpoint writes to random others, then all must drain.
//!
//! Units: virtual time.
//! Source: docs/spec/cxl-fabric.md "Routes"; CXL 3.1 section 7.7.5 (figures 7-43 and 7-44).

#![expect(clippy::unwrap_used, reason = "a test fails that way")]

use weft_base::rng::Rng;
use weft_dataplane::config::TlpConfig;
use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::PortId;
use weft_fm::model::graph::{Graph, PortRef, SwitchId, generate};
use weft_fm::plan::proof::{Fault, Proof, Traffic};
use weft_fm::plan::routes::{Options, route};
use weft_fm::plan::tables::Tables;
use weft_parsers::fabric::{DrtEntry, Pid};
use weft_sim::engine::Place;
use weft_sim::fabric::{Fabric, Plan, Routes};
use weft_sim::setup::Setup;

const PRIS: usize = 8;

/// What `tables` make of `graph`, in switches with little buffer: they are soon full.
fn plan(graph: &Graph, tables: &Tables, window: usize) -> Plan {
    let place = |at: PortRef| Place {
        component: usize::from(at.switch.0),
        port: PortId::new(usize::from(at.port)).unwrap(),
    };
    let ports = graph.switches().map(|switch| {
        graph.ports(switch).map(|(port, _)| usize::from(port) + 1).max().unwrap_or(1)
    });
    let routes = graph.switches().map(|switch| {
        let of = tables.get(switch).unwrap();
        let pids = (0..0xFFF).map(Pid::from_low_bits);
        let entries = pids.map(|pid| (pid, of.drt(pid)));
        Routes {
            drt: entries.filter(|(_, entry)| *entry != DrtEntry::Invalid).collect(),
            rgt: of.groups().map(|(index, entry)| (index, *entry)).collect(),
        }
    });
    Plan {
        setup: Setup { buffer_bytes: 200 << 10, ..Setup::new(1, PRIS) },
        ports: ports.collect(),
        links: graph.links().map(|(_, link)| (place(link.ends[0]), place(link.ends[1]))).collect(),
        seats: graph.endpoints().map(|end| (end.pid, place(end.at))).collect(),
        routes: routes.collect(),
        window,
        payload_max: 512,
    }
}

/// How a run ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Everything was answered.
    Drained,
    /// Nothing was answered for a long time, and something waits.
    Stuck,
}

/// Saturates for `busy`, then waits for all answers as long as there are any.
fn run(plan: &Plan, busy: Span, threads: usize) -> (End, Fabric) {
    let mut fabric = Fabric::new(plan).unwrap();
    fabric.run(Instant::ZERO + busy, threads).unwrap();
    fabric.set_sending(false);
    loop {
        let before = fabric.answered();
        if fabric.outstanding() == 0 {
            break (End::Drained, fabric);
        }
        let end = fabric.now() + Span::from_us(500);
        fabric.run(end, threads).unwrap();
        if fabric.answered() == before {
            break (End::Stuck, fabric);
        }
    }
}

fn traffic() -> Traffic {
    let config = TlpConfig::for_pris(PRIS);
    let hierarchical = config.tc_to_pri[0].get();
    Traffic::new(config.uio_req_pri.get(), config.uio_cpl_pri.get(), hierarchical)
}

/// The books are even, nothing was lost or refused, and every endpoint has had its share.
fn check(name: &str, fabric: &Fabric) {
    for ledger in fabric.ledgers() {
        assert_eq!((ledger.imbalance(), ledger.dropped, ledger.queued), (0, 0, 0), "{name}");
    }
    for seat in fabric.seats() {
        assert_eq!(seat.refused, 0, "{name}: {}", seat.pid());
        assert!(seat.answered > 0 && seat.taken > 0, "{name}: {} starves", seat.pid());
    }
}

/// Rings, a mesh, a torus, a fat tree and a random fabric under all-to-all, with more on the way than the buffers
/// hold.
#[test]
fn saturated_fabrics_drain_on_our_routes() {
    let fabrics = [
        ("ring of 5", generate::ring(5, 2)),
        ("ring of 8", generate::ring(8, 1)),
        ("mesh of 4", generate::mesh(4, 3)),
        ("torus 3 x 3", generate::torus(&[3, 3], 1)),
        ("fat tree 4", generate::fat_tree(4)),
        ("random", generate::random(&mut Rng::new(7), 8, 6, 2)),
    ];
    for (name, graph) in fabrics {
        let graph = graph.unwrap();
        let routed = route(&graph, &Options::default(), None);
        let tables = routed.whole().unwrap();
        Proof::find(&graph, tables, &traffic()).unwrap();
        let (end, fabric) = run(&plan(&graph, tables, 1_500), Span::from_us(60), 1);
        println!("{name}: {} writes answered by {:?}", fabric.answered(), fabric.now());
        assert_eq!(end, End::Drained, "{name}");
        check(name, &fabric);
    }
}

/// On several threads the same happens: every counter of every switch and of every endpoint is the same.
#[test]
fn threads_decide_nothing() {
    let graph = generate::torus(&[3, 3], 1).unwrap();
    let routed = route(&graph, &Options::default(), None);
    let plan = plan(&graph, routed.whole().unwrap(), 300);
    let seen = |threads| {
        let (end, fabric) = run(&plan, Span::from_us(10), threads);
        assert_eq!(end, End::Drained, "{threads} threads");
        let seats: Vec<_> = fabric.seats().map(|seat| (seat.answered, seat.taken)).collect();
        (fabric.now(), seats, serde_json::to_value(fabric.ledgers()).unwrap())
    };
    let want = seen(1);
    for threads in [2, 3] {
        assert_eq!(seen(threads), want, "{threads} threads");
    }
}

/// Every destination by the shorter way round, whatever waits for what.
fn shorter_way_round(graph: &Graph) -> Tables {
    let count = graph.switch_count();
    let mut tables = Tables::new(count);
    for end in graph.endpoints() {
        let to = usize::from(end.at.switch.0);
        for at in 0..count {
            let ahead = (to + count - at) % count;
            let here = SwitchId(u16::try_from(at).unwrap());
            let port = if ahead == 0 {
                end.at.port
            } else {
                let next = if ahead <= count / 2 { at + 1 } else { at + count - 1 } % count;
                let leads = |&(port, _): &(u8, _)| {
                    let far = graph.far(PortRef::new(here, port));
                    far.is_some_and(|far| usize::from(far.switch.0) == next)
                };
                graph.ports(here).find(leads).unwrap().0
            };
            tables.get_mut(here).set_drt(end.pid, DrtEntry::Port(port));
        }
    }
    tables
}

/// The test can fail: with routes whose channels wait for each other in a circle, the same fabric under the same
/// load comes to a stand, and the proof says so beforehand.
#[test]
fn a_ring_on_shortest_paths_comes_to_a_stand() {
    let graph = generate::ring(5, 2).unwrap();
    let tables = shorter_way_round(&graph);
    assert!(matches!(Proof::find(&graph, &tables, &traffic()), Err(Fault::Circle(_))));
    let (end, fabric) = run(&plan(&graph, &tables, 1_500), Span::from_us(60), 1);
    assert_eq!(end, End::Stuck, "{} answered", fabric.answered());
    let waiting: u64 = fabric.ledgers().iter().map(|ledger| ledger.queued).sum();
    println!("stuck with {waiting} frames in switches, {} answered", fabric.answered());
    assert!(waiting > 100);
    for ledger in fabric.ledgers() {
        assert_eq!((ledger.imbalance(), ledger.dropped), (0, 0), "and nothing is lost");
    }
}
