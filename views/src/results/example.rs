//! Made-up results for tests of views: two hosts and a switch, with names that would break a careless page.
//!
//! [`results`] has a host and an expectation whose texts need escaping.

use weft_dataplane::pipeline::{Ledger, PortLedger, QueueLedger};
use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_hosts::stream::rx::Latency;
use weft_sim::results::flow::FlowResult;
use weft_sim::results::network::{
    CreditResult, HostResult, LatencyParts, LinkEnd, LinkResult, LinkWay, Percentiles, SwitchResult,
};
use weft_sim::results::series::{Amount, Level};
use weft_sim::results::{Ending, ExpectResult, Results, SeriesKind, SeriesResult, Setting};

/// A host's name that would break a careless page, table or file.
pub const HOSTILE: &str = "<script>alert(1)</script>&\"',\n=1";

const fn us(us: u64) -> Instant {
    Instant::from_ns(us * 1_000)
}

fn flow(id: u32, from: u32, to: u32, bytes: u64, fct_us: u64) -> FlowResult {
    let mut flow = FlowResult { id, from, to, bytes, ..FlowResult::default() };
    flow.ideal_fct_ps = 30_000_000;
    flow.start(Instant::from_ns(u64::from(id) * 100));
    flow.sent(Instant::from_ns(u64::from(id) * 100 + 60));
    flow.delivered(us(fct_us));
    flow.acknowledged(us(fct_us + 1), 0);
    flow
}

fn host(name: &str, latency_ns: u64) -> HostResult {
    let mut latency = Latency::default();
    latency.record(Span::from_ns(latency_ns));
    let parts = LatencyParts {
        frames: 1,
        endpoint_ps: 120_000,
        serialisation_ps: 56_880,
        wire_ps: 600_000,
        voq_ps: latency_ns * 1_000 - 776_880,
        total_ps: latency_ns * 1_000,
        ..LatencyParts::default()
    };
    HostResult {
        name: name.to_owned(),
        counters: [("tx_frames".to_owned(), 1_500), ("resent".to_owned(), 3)].into(),
        latency: Percentiles::from(&latency),
        parts: Some(parts),
        credits: vec![CreditResult { vc: 3, used: 44, returned: 33 }],
        ..HostResult::default()
    }
}

fn link(host: &str, port: u8, frames: u64) -> LinkResult {
    let way = |frames| LinkWay::new(frames, frames * 1_398, Span::from_us(30), us(100));
    LinkResult {
        a: LinkEnd { node: host.to_owned(), port: 0 },
        b: LinkEnd { node: "s1".to_owned(), port },
        rate_bps: LinkRate::gbps(400).as_bps(),
        propagation_ps: 50_000,
        a_to_b: way(frames),
        b_to_a: way(frames / 2),
    }
}

/// The results, the same at each call.
///
/// # Panics
/// Never: all numbers in it are numbers.
#[must_use]
pub fn results() -> Results {
    let end = us(100);
    let mut results = Results::new("made up", 7, Ending::Until, end);
    results.settings = vec![Setting { key: "switch.dt_alpha".into(), value: "1/8".into() }];
    results.hosts = vec![host("h0", 1_200), host(HOSTILE, 955)];
    let queue = QueueLedger {
        ecn_marked: 12,
        paused_ps: 4_000_000,
        depth_watermark: 90,
        ..QueueLedger::default()
    };
    let port = PortLedger {
        rx_frames: 1_500,
        tx_frames: 1_500,
        pfc_tx: 4,
        pri: vec![queue],
        ..PortLedger::default()
    };
    let ledger =
        Ledger { port: vec![port.clone(), port], rx: 3_000, tx: 3_000, ..Ledger::default() };
    results.switches = vec![SwitchResult::new("s1", 256, &ledger)];
    results.links = vec![link("h0", 0, 1_500), link(HOSTILE, 1, 700)];
    results.flows =
        vec![flow(0, 0, 1, 1_000_000, 31), flow(1, 1, 0, 2_000_000, 62), flow(2, 1, 0, 3_000, 93)];
    results.flows.push(FlowResult { id: 3, to: 1, bytes: 9, ..FlowResult::default() });
    let mut level = Level::new(Span::from_us(1), 64);
    level.set(us(3), 23_040);
    level.set(us(30), 0);
    let mut sent = Amount::new(Span::from_us(1), 64);
    sent.add_over(us(1), us(60), 2_950_000);
    let mut paused = Amount::new(Span::from_us(1), 64);
    paused.add_over(us(5), us(9), 4_000_000);
    let series = [
        (SeriesKind::QueueDepthBytes, level.finish(end)),
        (SeriesKind::ThroughputBps, sent.rate(end, 8)),
        (SeriesKind::PausedPs, paused.sums(end)),
    ];
    results.series = series
        .into_iter()
        .filter_map(|(kind, points)| Some(SeriesResult::new(kind, "s1", Some(1), Some(0), points?)))
        .collect();
    results.expectations = vec![ExpectResult {
        metric: "fct_last_us".into(),
        found: "93".parse().ok(),
        wanted: "92.9".parse().expect("a bound"),
        tolerance: "0.3%".into(),
        least: "92.6213".parse().ok(),
        most: "93.1787".parse().ok(),
        passed: true,
        source: "closed form <of> somebody".into(),
    }];
    results.finish();
    results
}
