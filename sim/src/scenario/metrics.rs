//! Metrics: values of results by name, and the comparison with expectations.
//!
//! A name and [`Results`] give a [`Decimal`]; [`evaluate`] compares all expectations of a scenario. Each name ends with
//! its unit.
//!
//! Source: docs/spec/model.md §3; docs/results.md.

use super::Scenario;
use super::expect::{Expect, Tolerance};
use super::workload::Workload;
use crate::results::decimal::Decimal;
use crate::results::flow::{FlowResult, Ranks, Summary};
use crate::results::{ExpectResult, Results};

/// An expectation of a metric that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("metric {name:?} is not known: expected one of {known}")]
pub struct MetricError {
    /// Name of the metric.
    pub name: String,
    /// Names of all metrics that exist.
    pub known: String,
}

/// Metrics of flows: of a workload after `WORKLOAD.`, of one flow after `flow.NUMBER.`, or of all flows.
const OF_FLOWS: &[&str] = &[
    "flows",
    "flows_delivered",
    "flows_open",
    "delivered_bytes",
    "goodput_gbps",
    "makespan_us",
    "fct_first_us",
    "fct_p50_us",
    "fct_p90_us",
    "fct_p95_us",
    "fct_p99_us",
    "fct_p999_us",
    "fct_last_us",
    "fct_sender_first_us",
    "fct_sender_p50_us",
    "fct_sender_p99_us",
    "fct_sender_last_us",
    "slowdown_first",
    "slowdown_p50",
    "slowdown_p99",
    "slowdown_last",
];

/// Metrics of the whole run.
const OF_ALL: &[&str] = &[
    "dropped_frames",
    "dropped_frames.REASON",
    "ecn_marked_frames",
    "pfc_tx_frames",
    "resent_frames",
    "switch_paused_us",
    "host_paused_us",
    "pfc_paused_us",
    "queue_depth_max_bytes",
    "imbalance_frames",
    "latency_min_ns",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "latency_max_ns",
    "end_us",
];

/// Metrics of a link, one way: `link.FROM.TO.METRIC`.
const OF_LINK: &[&str] = &["frames", "frame_mean_ns", "utilisation"];

/// Result of looking a metric up.
enum Found {
    /// There is no such metric.
    Unknown,
    /// The metric has no value in this run.
    Nothing,
    Value(Decimal),
}

impl From<Option<Decimal>> for Found {
    fn from(value: Option<Decimal>) -> Self {
        value.map_or(Self::Nothing, Self::Value)
    }
}

/// Checks that all metrics that are expected exist; `results` may be those of any moment of the run.
///
/// # Errors
/// The first metric that does not exist.
pub fn check(scenario: &Scenario, results: &Results) -> Result<(), MetricError> {
    let unknown = scenario.expects.iter().find(|expect| {
        matches!(find(&scenario.workloads, results, &expect.metric), Found::Unknown)
    });
    unknown.map_or(Ok(()), |expect| {
        Err(MetricError { name: expect.metric.clone(), known: known(scenario, results) })
    })
}

/// Names of all metrics, as text for a refusal.
fn known(scenario: &Scenario, results: &Results) -> String {
    let mut names: Vec<String> =
        OF_FLOWS.iter().chain(OF_ALL).map(|&name| name.to_owned()).collect();
    let workloads = scenario.workloads.iter().map(|workload| workload.name.as_str());
    let workloads = workloads.collect::<Vec<_>>().join(", ");
    names.push(format!("WORKLOAD.METRIC of flows with WORKLOAD of {workloads}"));
    names.push("flow.NUMBER.METRIC of flows".to_owned());
    if let Some(host) = results.hosts.first() {
        let counters = host.counters.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
        names.push(format!("host.NAME.COUNTER and hosts.COUNTER with COUNTER of {counters}"));
    }
    names.push("switch.NAME.dropped_frames".to_owned());
    names.push(format!("link.FROM.TO.METRIC with METRIC of {}", OF_LINK.join(", ")));
    names.join(", ")
}

/// Compares all expectations with results.
#[must_use]
pub fn evaluate(scenario: &Scenario, results: &Results) -> Vec<ExpectResult> {
    let one = |expect: &Expect| {
        let found = match find(&scenario.workloads, results, &expect.metric) {
            Found::Value(value) => Some(value),
            Found::Nothing | Found::Unknown => None,
        };
        let (least, most, tolerance) = bounds(expect);
        let passed = found.is_some_and(|found| {
            least.is_none_or(|least| least <= found) && most.is_none_or(|most| found <= most)
        });
        let (metric, wanted, source) = (expect.metric.clone(), expect.value, expect.source.clone());
        ExpectResult { metric, found, wanted, tolerance, least, most, passed, source }
    };
    scenario.expects.iter().map(one).collect()
}

/// Least and largest value that pass, and the tolerance as text.
fn bounds(expect: &Expect) -> (Option<Decimal>, Option<Decimal>, String) {
    let value = expect.value;
    let around = |off: i128, words| {
        let least = Decimal(value.0.saturating_sub(off));
        (Some(least), Some(Decimal(value.0.saturating_add(off))), words)
    };
    match expect.tolerance {
        Tolerance::Absolute(Decimal(0)) => around(0, "exact".to_owned()),
        Tolerance::Absolute(off) => around(off.0.abs(), format!("± {off}")),
        Tolerance::Relative(part) => {
            let off = value.0.saturating_mul(part.0) / Decimal::ONE.0;
            around(off.abs(), format!("{}%", Decimal(part.0.saturating_mul(100))))
        }
        Tolerance::AtLeast => (Some(value), None, "at least".to_owned()),
        Tolerance::AtMost => (None, Some(value), "at most".to_owned()),
    }
}

fn find(workloads: &[Workload], results: &Results, name: &str) -> Found {
    // First metrics that need no prefix; what is left begins with a prefix or the name of a workload.
    if OF_FLOWS.contains(&name) {
        return of_flows(&Summary::of(&results.flows), name);
    }
    if let found @ (Found::Value(_) | Found::Nothing) = of_all(results, name) {
        return found;
    }
    let Some((first, rest)) = name.split_once('.') else { return Found::Unknown };
    match first {
        "flow" => {
            let Some((number, metric)) = rest.split_once('.') else { return Found::Unknown };
            let number = number.parse().ok().filter(|_| OF_FLOWS.contains(&metric));
            let flow = number.and_then(|number: usize| results.flows.get(number));
            flow.map_or(Found::Unknown, |flow| {
                of_flows(&Summary::of(core::slice::from_ref(flow)), metric)
            })
        }
        "host" => {
            // From the right: a host's name may have dots, a counter's has none.
            let Some((host, counter)) = rest.rsplit_once('.') else { return Found::Unknown };
            let host = results.hosts.iter().find(|it| it.name == host);
            let count = host.and_then(|host| host.counters.get(counter));
            count.map_or(Found::Unknown, |&count| Found::Value(Decimal::whole(count)))
        }
        "hosts" => {
            let counts = results.hosts.iter().filter_map(|host| host.counters.get(rest));
            let all: Vec<u64> = counts.copied().collect();
            if all.is_empty() {
                Found::Unknown
            } else {
                Found::Value(Decimal::whole(all.iter().sum()))
            }
        }
        "switch" => {
            let Some(name) = rest.strip_suffix(".dropped_frames") else { return Found::Unknown };
            let switch = results.switches.iter().find(|switch| switch.name == name);
            switch.map_or(Found::Unknown, |switch| {
                Found::Value(Decimal::whole(switch.ledger.dropped_frames))
            })
        }
        "link" => of_link(results, rest),
        "dropped_frames" => dropped(results, rest),
        _ => of_workload(workloads, results, name),
    }
}

/// A metric by `FROM.TO.METRIC`; names of nodes may have dots.
fn of_link(results: &Results, name: &str) -> Found {
    let Some((ends, metric)) = name.rsplit_once('.') else { return Found::Unknown };
    let way = results.links.iter().find_map(|link| {
        // Both orders are tried whole, as a dot does not tell where the first name ends.
        let (a, b) = (&link.a.node, &link.b.node);
        if ends == format!("{a}.{b}") {
            Some(&link.a_to_b)
        } else {
            (ends == format!("{b}.{a}")).then_some(&link.b_to_a)
        }
    });
    let Some(way) = way else { return Found::Unknown };
    match metric {
        "frames" => Found::Value(Decimal::whole(way.frames)),
        "frame_mean_ns" => {
            // The quotient is in thousandths, so that the ratio's 6 places are those of nanoseconds.
            let mean = Decimal::ratio(way.busy_ps, way.frames.saturating_mul(1_000));
            mean.into()
        }
        "utilisation" => Found::Value(way.utilisation),
        _ => Found::Unknown,
    }
}

/// A metric by `WORKLOAD.METRIC`; names of workloads may have dots.
fn of_workload(workloads: &[Workload], results: &Results, name: &str) -> Found {
    let Some((workload, metric)) = name.rsplit_once('.') else { return Found::Unknown };
    let place = workloads.iter().position(|it| it.name == workload);
    let Some(place) = place.filter(|_| OF_FLOWS.contains(&metric)) else { return Found::Unknown };
    let flows = results.flows.iter().filter(|flow| usize::from(flow.workload) == place);
    let flows: Vec<FlowResult> = flows.cloned().collect();
    of_flows(&Summary::of(&flows), metric)
}

/// Frames that switches dropped for this reason.
fn dropped(results: &Results, reason: &str) -> Found {
    if !weft_dataplane::stats::DropReason::ALL.iter().any(|it| it.name() == reason) {
        return Found::Unknown;
    }
    let ports = results.switches.iter().flat_map(|switch| &switch.ports);
    let drops = ports.filter_map(|port| port.drops.get(reason));
    Found::Value(Decimal::whole(drops.sum()))
}

fn of_flows(summary: &Summary, name: &str) -> Found {
    let fct = |of: fn(&Ranks<u64>) -> u64| summary.fct_ps.as_ref().map(|it| us(of(it))).into();
    let sender =
        |of: fn(&Ranks<u64>) -> u64| summary.fct_sender_ps.as_ref().map(|it| us(of(it))).into();
    let slowdown = |of: fn(&Ranks<Decimal>) -> Decimal| summary.slowdown.as_ref().map(of).into();
    let whole = |count| Found::Value(Decimal::whole(count));
    match name {
        "flows" => whole(summary.flows),
        "flows_delivered" => whole(summary.flows_delivered),
        "flows_open" => whole(summary.flows.saturating_sub(summary.flows_delivered)),
        "delivered_bytes" => whole(summary.delivered_bytes),
        "goodput_gbps" => Found::Value(Decimal(summary.goodput_bps.into())),
        "makespan_us" => Found::Value(us(summary.makespan_ps)),
        "fct_first_us" => fct(|it| it.min),
        "fct_p50_us" => fct(|it| it.p50),
        "fct_p90_us" => fct(|it| it.p90),
        "fct_p95_us" => fct(|it| it.p95),
        "fct_p99_us" => fct(|it| it.p99),
        "fct_p999_us" => fct(|it| it.p999),
        "fct_last_us" => fct(|it| it.max),
        "fct_sender_first_us" => sender(|it| it.min),
        "fct_sender_p50_us" => sender(|it| it.p50),
        "fct_sender_p99_us" => sender(|it| it.p99),
        "fct_sender_last_us" => sender(|it| it.max),
        "slowdown_first" => slowdown(|it| it.min),
        "slowdown_p50" => slowdown(|it| it.p50),
        "slowdown_p99" => slowdown(|it| it.p99),
        "slowdown_last" => slowdown(|it| it.max),
        _ => Found::Unknown,
    }
}

fn of_all(results: &Results, name: &str) -> Found {
    let (summary, latency) = (&results.summary, &results.latency);
    let whole = |count| Found::Value(Decimal::whole(count));
    let ns = |ps: u64| match latency.frames {
        0 => Found::Nothing, // a latency of 0 would come true whatever is expected at most
        _ => Found::Value(Decimal(i128::from(ps) * 1_000_000)),
    };
    let paused = summary.switch_paused_ps.saturating_add(summary.host_paused_ps);
    match name {
        "dropped_frames" => whole(summary.dropped_frames),
        "ecn_marked_frames" => whole(summary.ecn_marked_frames),
        "pfc_tx_frames" => whole(summary.pfc_tx_frames),
        "resent_frames" => whole(summary.resent_frames),
        "switch_paused_us" => Found::Value(us(summary.switch_paused_ps)),
        "host_paused_us" => Found::Value(us(summary.host_paused_ps)),
        "pfc_paused_us" => Found::Value(us(paused)),
        "queue_depth_max_bytes" => whole(summary.queue_depth_max_bytes),
        "imbalance_frames" => {
            let off = results.switches.iter().map(|switch| switch.ledger.imbalance_frames);
            whole(off.map(i64::unsigned_abs).sum())
        }
        "latency_min_ns" => ns(latency.min_ps),
        "latency_mean_ns" => ns(latency.mean_ps),
        "latency_p50_ns" => ns(latency.p50_ps),
        "latency_p90_ns" => ns(latency.p90_ps),
        "latency_p99_ns" => ns(latency.p99_ps),
        "latency_p999_ns" => ns(latency.p999_ps),
        "latency_max_ns" => ns(latency.max_ps),
        "end_us" => Found::Value(us(results.end_ps)),
        _ => Found::Unknown,
    }
}

fn us(ps: u64) -> Decimal {
    Decimal::us_of_ps(ps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::network::{LinkEnd, LinkResult, LinkWay};

    fn results() -> Results {
        let flow = |id, workload, bytes, fct| FlowResult {
            id,
            workload,
            bytes,
            start_ps: Some(1_000_000),
            delivered_ps: Some(1_000_000 + fct),
            fct_ps: Some(fct),
            ..FlowResult::default()
        };
        let open = FlowResult { id: 2, workload: 1, bytes: 7, ..FlowResult::default() };
        let mut results = Results {
            flows: vec![flow(0, 0, 1_000, 2_000_000), flow(1, 1, 4_000, 8_000_000), open],
            end_ps: 9_000_000,
            ..Results::default()
        };
        let end = |name: &str| LinkEnd { node: name.to_owned(), port: 0 };
        let way = LinkWay { frames: 3, bytes: 0, busy_ps: 337_440, ..LinkWay::default() };
        let (a, b) = (end("h.0"), end("sw"));
        results.links = vec![LinkResult { a, b, b_to_a: way, ..LinkResult::default() }];
        (results.latency.frames, results.latency.p99_ps) = (1, 1_500);
        results.summary.dropped_frames = 3;
        results
    }

    fn workloads() -> Vec<Workload> {
        ["in.cast", "rest"]
            .map(|name| Workload {
                name: name.to_owned(),
                kind: super::super::workload::Pattern::Flows(Vec::new()),
                start: weft_dataplane::time::Instant::ZERO,
                vc: None,
            })
            .to_vec()
    }

    #[test]
    fn names_find_figures() {
        #[rustfmt::skip] // columns: name, figure; none for no value, ? for no such metric
        let cases = [
            ("flows",                    "3"),
            ("flows_open",               "1"),
            ("fct_last_us",              "8"),
            ("fct_first_us",             "2"),
            ("goodput_gbps",             "5"),     // 5,000 bytes in 8 us
            ("in.cast.fct_last_us",      "2"),
            ("rest.flows_delivered",     "1"),
            ("flow.1.goodput_gbps",      "4"),
            ("flow.2.fct_last_us",       "none"),
            ("flow.3.fct_last_us",       "?"),
            ("latency_p99_ns",           "1.5"),
            ("dropped_frames",           "3"),
            ("dropped_frames.pool",      "0"),
            ("dropped_frames.spite",     "?"),
            ("end_us",                   "9"),
            ("rest.latency_p99_ns",      "?"),
            ("host.h0.resent",           "?"),
            ("link.sw.h.0.frames",       "3"),
            ("link.sw.h.0.frame_mean_ns", "112.48"),
            ("link.h.0.sw.frame_mean_ns", "none"), // no frame has no mean
            ("link.h.0.sw.frames",       "0"),
            ("link.h.0.sw.load",         "?"),
            ("link.h.0.h1.frames",       "?"),
            ("fct_lasst_us",             "?"),
            ("",                         "?"),
        ];
        for (name, want) in cases {
            let had = match find(&workloads(), &results(), name) {
                Found::Unknown => "?".to_owned(),
                Found::Nothing => "none".to_owned(),
                Found::Value(value) => value.to_string(),
            };
            assert_eq!(had, want, "{name}");
        }
    }

    #[test]
    fn every_name_that_is_told_is_one() {
        let mut results = results();
        results.flows.truncate(2);
        for name in OF_FLOWS.iter().chain(OF_ALL).filter(|name| !name.ends_with("REASON")) {
            let found = find(&[], &results, name);
            let is_none = name.starts_with("slowdown") || name.starts_with("fct_sender");
            assert_eq!(matches!(found, Found::Nothing), is_none, "{name}");
            assert!(!matches!(found, Found::Unknown), "{name}");
        }
    }

    /// Where no frame was taken there is no latency, rather than one of 0 that every bound admits.
    #[test]
    fn latencies_of_no_frame_are_none() {
        let mut results = results();
        results.latency = crate::results::network::Percentiles::default();
        for name in OF_ALL.iter().filter(|name| name.starts_with("latency_")) {
            assert!(matches!(find(&[], &results, name), Found::Nothing), "{name}");
        }
        assert!(matches!(find(&[], &results, "latency_p98_ns"), Found::Unknown));
    }

    #[test]
    fn bounds_are_those_of_the_tolerance() {
        let of = |text: &str| text.parse::<Decimal>().unwrap();
        #[rustfmt::skip] // columns: tolerance, least, most, in words
        let cases = [
            (Tolerance::Absolute(of("0")),      Some("200"),   Some("200"),   "exact"),
            (Tolerance::Absolute(of("0.5")),    Some("199.5"), Some("200.5"), "± 0.5"),
            (Tolerance::Relative(of("0.003")),  Some("199.4"), Some("200.6"), "0.3%"),
            (Tolerance::AtLeast,                Some("200"),   None,          "at least"),
            (Tolerance::AtMost,                 None,          Some("200"),   "at most"),
        ];
        for (tolerance, least, most, words) in cases {
            let (metric, source) = ("flows".to_owned(), String::new());
            let expect = Expect { metric, value: of("200"), tolerance, source };
            let want = (least.map(of), most.map(of), words.to_owned());
            assert_eq!(bounds(&expect), want, "{tolerance:?}");
        }
    }
}
