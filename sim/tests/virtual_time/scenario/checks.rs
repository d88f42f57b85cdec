//! The checks of a run notice faults: a run, or its results, changed in one place makes one of them fail.
//!
//! Source: docs/spec/model.md §3, §6.

use weft_dataplane::types::PortId;
use weft_sim::scenario::expect::{Expect, Number, Tolerance};
use weft_sim::scenario::flow::Flow;

use super::*;

fn expect(metric: &str, value: &str, tolerance: Tolerance) -> Expect {
    let (metric, source) = (metric.to_owned(), "closed form".to_owned());
    Expect { metric, value: value.parse().unwrap(), tolerance, source }
}

fn scenario(expects: Vec<Expect>) -> Scenario {
    let mut bench = Bench::new(100, Kind::Standard);
    bench.endpoint = |spec| spec.frame.icrc = true;
    let mut scenario = bench.scenario(chain(1), flows(vec![Flow::new(0, 1, 1_344)]));
    scenario.expects = expects;
    scenario
}

/// One frame over one switch takes 627.52 ns.
#[test]
fn expectations_pass_and_fail() {
    let percent = Tolerance::Relative(Number(10_000_000));
    let exact = Tolerance::Absolute(Number(0));
    #[rustfmt::skip] // columns: metric, value, tolerance, passes
    let cases = [
        ("fct_last_us",        "0.62752",  exact,                true),
        ("fct_last_us",        "0.627521", exact,                false),
        ("fct_last_us",        "0.63",     percent,              true),
        ("fct_last_us",        "0.64",     percent,              false),
        ("flow.0.fct_last_us", "0.6",      Tolerance::AtMost,    false),
        ("all.goodput_gbps",   "17",       Tolerance::AtLeast,   true),
        ("dropped_frames",     "0",        exact,                true),
        ("hosts.rx_frames",    "2",        exact,                false),
        ("slowdown_last",      "1",        exact,                true),
    ];
    let all = cases.map(|(metric, value, tolerance, _)| expect(metric, value, tolerance));
    let results = run(&scenario(all.to_vec()));
    for (had, (metric, value, _, passes)) in results.expectations.iter().zip(cases) {
        assert_eq!(had.passed, passes, "{metric} {value}: {had:?}");
    }
    assert!(!results.passed());
}

#[test]
fn metrics_that_there_are_not_are_refused_before_the_run() {
    let unknown = expect("fct_lsat_us", "1", Tolerance::AtLeast);
    let error = try_run(&scenario(vec![unknown]), 1).unwrap_err().to_string();
    assert!(error.starts_with("metric \"fct_lsat_us\" is not known: expected one of "), "{error}");
    assert!(error.contains("fct_last_us") && error.contains("WORKLOAD of all"), "{error}");
}

/// A frame that a switch counts as sent and did not send unbalances its ledger.
#[test]
fn books_that_are_wrong_are_uneven() {
    let mut network = weft_sim::run::build(&scenario(Vec::new())).unwrap();
    network.run(Instant::from_ns(100_000), 1).unwrap();
    assert!(network.is_idle());
    assert_eq!(network.ledgers()[0].imbalance(), 0);
    let core = network.switches().next().unwrap().core().clone();
    let port = PortId::new(1).unwrap();
    core.stats[0].port[port].rx_frames.add(1);
    assert_eq!(network.ledgers()[0].imbalance(), 1);
}
