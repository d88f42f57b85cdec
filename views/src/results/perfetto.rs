//! Results as Trace Event JSON, which Perfetto's viewer shows.
//!
//! A flow is a slice at its sender (async, `b` and `e`, as flows of a host overlap). Queue depth, pause and
//! throughput are counters of their switch or host; `M` events give these their names. Times (`ts`) are microseconds,
//! to the picosecond.
//!
//! Source: "Trace Event Format" (Google); docs/results.md "Perfetto".

use std::io::{self, Write};

use serde_json::{Value, json};
use weft_sim::results::decimal::Decimal;
use weft_sim::results::{Results, SeriesKind, SeriesResult};

/// Most flows in the trace, with two events each.
pub const FLOWS_MAX: usize = 50_000;
/// Most points of all series together.
pub const POINTS_MAX: usize = 200_000;

/// Writes the trace, its events in the order of time.
///
/// # Errors
/// The writer's.
pub fn write(results: &Results, out: &mut dyn Write) -> io::Result<()> {
    let (events, flows_left_out, series_left_out) = events(results);
    let about = json!({
        "scenario": results.scenario,
        "seed": results.seed,
        "weft": results.weft,
        "flows_left_out": flows_left_out,
        "series_left_out": series_left_out,
    });
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[")?;
    for (at, event) in events.iter().enumerate() {
        out.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut *out, event)?;
    }
    writeln!(out, "\n]}}")
}

/// The events, and the numbers of flows and of series that are left out.
fn events(results: &Results) -> (Vec<Value>, usize, usize) {
    let names = results.hosts.iter().map(|host| &host.name);
    let names = names.chain(results.switches.iter().map(|switch| &switch.name));
    let names: Vec<&String> = names.collect();
    let mut events: Vec<Value> = (1u64..)
        .zip(&names)
        .map(|(pid, name)| {
            json!({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}})
        })
        .collect();
    let mut timed: Vec<(u64, Value)> = Vec::new();
    for flow in results.flows.iter().take(FLOWS_MAX) {
        let Some(start) = flow.start_ps else { continue };
        // A flow that was not delivered lasts until the end of the run.
        let end = flow.delivered_ps.unwrap_or(results.end_ps).max(start);
        let (from, to) = (results.host(flow.from), results.host(flow.to));
        let name = format!("flow {} from {from} to {to}", flow.id);
        for (ph, at) in [("b", start), ("e", end)] {
            let mut event = json!({
                "ph": ph, "cat": "flow", "id": flow.id, "name": name, "pid": u64::from(flow.from) + 1,
                "tid": 0, "ts": Decimal::us_of_ps(at),
            });
            if ph == "b"
                && let Some(event) = event.as_object_mut()
            {
                let args = json!({
                    "bytes": flow.bytes, "slowdown": flow.slowdown, "resent_frames": flow.resent_frames,
                    "delivered": flow.delivered_ps.is_some(),
                });
                event.insert("args".to_owned(), args);
            }
            timed.push((at, event));
        }
    }
    let (mut room, mut left_out) = (POINTS_MAX, 0);
    for series in &results.series {
        let Some(at) = names.iter().position(|name| **name == series.node) else { continue };
        // Whole series only: one that is cut off would look as if it had ended. The one more is its last event.
        match room.checked_sub(series.mean.len() + 1) {
            Some(rest) => {
                room = rest;
                counter(series, at as u64 + 1, results.end_ps, &mut timed);
            }
            None => left_out += 1,
        }
    }
    // Stable, so that a flow which begins and ends at one time keeps `b` before `e`.
    timed.sort_by_key(|&(at, _)| at);
    events.extend(timed.into_iter().map(|(_, event)| event));
    (events, results.flows.len().saturating_sub(FLOWS_MAX), left_out)
}

/// Adds a series as a counter, with an event only where its value changes.
fn counter(series: &SeriesResult, pid: u64, end: u64, timed: &mut Vec<(u64, Value)>) {
    let (what, unit) = match series.kind {
        SeriesKind::QueueDepthBytes => ("queue depth", "bytes"),
        SeriesKind::ThroughputBps => ("throughput", "bits a second"),
        SeriesKind::PausedPs => ("paused in an interval", "ps"),
    };
    let at = series.place();
    let place = at.strip_prefix(series.node.as_str()).unwrap_or_default().trim_start();
    let name = if place.is_empty() { what.to_owned() } else { format!("{place}: {what}") };
    let values = if series.max.is_empty() { &series.mean } else { &series.max };
    let mut last = None;
    let mut tell = |at: u64, value: u64| {
        if last.replace(value) != Some(value) {
            let event = json!({
                "ph": "C", "name": name, "pid": pid, "ts": Decimal::us_of_ps(at), "args": {unit: value},
            });
            timed.push((at, event));
        }
    };
    for (at, &value) in (0u64..).zip(values) {
        tell(at.saturating_mul(series.interval_ps), value);
    }
    // A viewer keeps drawing the last value of a counter.
    tell(end, 0);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::example;

    fn trace(results: &Results) -> Value {
        let mut out = Vec::new();
        write(results, &mut out).unwrap();
        serde_json::from_slice(&out).expect("JSON")
    }

    #[test]
    fn events_are_in_order_and_in_microseconds() {
        let results = example::results();
        let trace = trace(&results);
        let events = trace["traceEvents"].as_array().unwrap();
        let times: Vec<f64> = events.iter().filter_map(|event| event["ts"].as_f64()).collect();
        assert!(times.len() > 15 && times.is_sorted(), "{times:?}");
        assert!(times.last() <= Some(&100.0), "the run ends at 100 us");
        let of = |ph: &str, id: u64| {
            let mut of = events.iter().filter(|event| event["ph"] == ph && event["id"] == id);
            (of.next().unwrap(), of.next().is_none())
        };
        let ((begin, one), (end, other)) = (of("b", 1), of("e", 1));
        assert!(one && other, "each flow begins and ends once");
        assert_eq!((&begin["ts"], &end["ts"]), (&json!(0.1), &json!(62)));
        assert_eq!((&begin["pid"], &begin["args"]["bytes"]), (&json!(2), &json!(2_000_000)));
        assert_eq!(begin["name"], end["name"]);
        let named = events.iter().filter(|event| event["ph"] == "M").count();
        assert_eq!(named, 3, "two hosts and a switch");
    }

    #[test]
    fn counters_begin_end_and_have_the_values_of_their_series() {
        let results = example::results();
        let trace = trace(&results);
        let of = |what: &str| -> Vec<(f64, u64)> {
            let events = trace["traceEvents"].as_array().unwrap().iter();
            let of =
                events.filter(|e| e["ph"] == "C" && e["name"].as_str().unwrap().ends_with(what));
            let value =
                |e: &Value| e["args"].as_object().unwrap().values().next().unwrap().as_u64();
            of.map(|e| (e["ts"].as_f64().unwrap(), value(e).unwrap())).collect()
        };
        let depth = of("queue depth");
        assert!(depth.contains(&(2.0, 23_040)) || depth.contains(&(3.0, 23_040)), "{depth:?}");
        assert_eq!(depth.last().map(|last| last.1), Some(0));
        assert!(of("paused in an interval").iter().any(|&(_, ps)| ps > 0));
        assert!(of("throughput").iter().any(|&(_, bps)| bps == 400_000_000_000));
    }

    #[test]
    fn a_large_run_is_cut_and_says_so() {
        let mut results = example::results();
        results.flows = vec![results.flows[0].clone(); FLOWS_MAX + 5];
        results.series =
            vec![results.series[0].clone(); 2 * POINTS_MAX / results.series[0].mean.len()];
        let trace = trace(&results);
        assert_eq!(trace["otherData"]["flows_left_out"], 5);
        assert!(trace["otherData"]["series_left_out"].as_u64().unwrap() > 0);
        assert!(trace["traceEvents"].as_array().unwrap().len() <= 2 * FLOWS_MAX + POINTS_MAX + 3);
    }
}
