//! States of a run for its page: taken as it goes, or made from the results of a simulation.
//!
//! [`Looks`] at the switch of a replay → [`SwitchRun`]; [`of_results`] → one for each switch. Times are nanoseconds
//! since the start of the run.
//!
//! Source: docs/page.md.

use serde::Serialize;
use serde_json::Value;
use weft_dataplane::pipeline::Core;
use weft_dataplane::time::{Instant, Span};
use weft_sim::results::network::{PortResult, SwitchResult};
use weft_sim::results::{Results, SeriesKind, SeriesResult};

use super::feed::{PageState, open_pauses};
use crate::report::gather::Source;
use crate::report::pauses::{PauseReport, Pauses};
use crate::report::{BufferReport, DropsReport, PfcReport, PortReport, QueueReport, StatsSnapshot};

/// States of a switch on a page at most. Even, so that halving them keeps the first and the last.
pub const STATES: usize = 240;
/// Pauses of a switch on a page at most.
pub const PAUSES: usize = 20_000;
/// Time between two states at the beginning of a run; it doubles as the run goes on.
const EVERY: Span = Span::from_us(10);

/// The run of one switch.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SwitchRun {
    pub name: String,
    /// States in order, the last of them at the end of the run.
    pub states: Vec<PageState>,
}

/// Takes states of a switch while its run goes on. When there are more than [`STATES`], every second one is dropped,
/// and the time between two doubles.
pub struct Looks {
    name: String,
    every: Span,
    next: Instant,
    seen: usize,
    pauses: Pauses,
    states: Vec<PageState>,
}

impl Looks {
    #[must_use]
    pub fn new(name: &str) -> Self {
        let (pauses, states) = (Pauses::default(), Vec::new());
        Self { name: name.to_owned(), every: EVERY, next: Instant::ZERO, seen: 0, pauses, states }
    }

    /// Takes a state, if one is due.
    pub fn look(&mut self, now: Instant, core: &Core) {
        if now >= self.next {
            self.take(now, core);
            self.next = now + self.every;
        }
    }

    fn take(&mut self, now: Instant, core: &Core) {
        let source =
            Source { name: &self.name, core, port_info: &[], now, stuck: None, watermarks: None };
        let stats = source.stats();
        self.pauses.read(core, now);
        let mut pauses = self.pauses.take_ended();
        let left = PAUSES.saturating_sub(self.seen);
        let over = pauses.len().saturating_sub(left) as u64;
        pauses.truncate(left);
        self.seen += pauses.len();
        let number = self.states.last().map_or(1, |last| last.number + 1);
        // Lost edges are a running total, so `finish` adds them to the last state.
        self.states.push(PageState::new(number, &stats, pauses, over));
        if self.states.len() > STATES {
            self.thin();
        }
    }

    /// Keeps every second state, including the first and the last; pauses of a dropped state move to the next one that
    /// is kept.
    fn thin(&mut self) {
        self.every = self.every + self.every;
        let (mut pauses, mut lost) = (Vec::new(), 0);
        for (place, mut state) in core::mem::take(&mut self.states).into_iter().enumerate() {
            pauses.append(&mut state.pauses);
            lost += state.pauses_lost;
            if place % 2 == 0 {
                state.pauses = core::mem::take(&mut pauses);
                state.pauses_lost = core::mem::take(&mut lost);
                self.states.push(state);
            }
        }
    }

    /// The run, which ended at `now`.
    #[must_use]
    pub fn finish(mut self, now: Instant, core: &Core) -> SwitchRun {
        self.take(now, core);
        let source =
            Source { name: &self.name, core, port_info: &[], now, stuck: None, watermarks: None };
        let open = open_pauses(&self.pauses, &source.stats());
        if let Some(last) = self.states.last_mut() {
            last.pauses.extend(open);
            last.pauses_lost += self.pauses.lost();
        }
        SwitchRun { name: self.name, states: self.states }
    }
}

/// Runs of the switches of a simulation, from its time series; the last state has all final counters, too.
#[must_use]
pub fn of_results(results: &Results) -> Vec<SwitchRun> {
    let of = |switch: &SwitchResult| {
        let series: Vec<&SeriesResult> =
            results.series.iter().filter(|series| series.node == switch.name).collect();
        let count = if series.is_empty() { 1 } else { STATES as u64 };
        let mut states: Vec<PageState> = Vec::new();
        let mut after = 0;
        for number in 1..=count {
            let to = at(results.end_ps, number, count);
            let state = Moment { results, switch, series: &series, after, to };
            let is_last = number == count;
            states.push(state.page(number, is_last));
            after = to;
        }
        SwitchRun { name: switch.name.clone(), states }
    };
    results.switches.iter().map(of).collect()
}

/// End of part `number` of `count` equal parts of `end`.
fn at(end: u64, number: u64, count: u64) -> u64 {
    // In 128 bits: picoseconds of a long run times the number of states do not fit in 64.
    u64::try_from(u128::from(end) * u128::from(number) / u128::from(count.max(1))).unwrap_or(end)
}

/// A switch of a simulation at one moment.
struct Moment<'a> {
    results: &'a Results,
    switch: &'a SwitchResult,
    series: &'a [&'a SeriesResult],
    /// Time of the state before; this state covers (after, to].
    after: u64,
    to: u64,
}

impl Moment<'_> {
    fn of(&self, kind: SeriesKind, port: usize, pri: Option<usize>) -> Option<&SeriesResult> {
        let is = |series: &&&SeriesResult| {
            series.kind == kind
                && series.port.map(usize::from) == Some(port)
                && pri.is_none_or(|pri| series.pri.map(usize::from) == Some(pri))
        };
        self.series.iter().find(is).copied()
    }

    /// Points of a series, each with its begin and end.
    fn spans<'s>(
        &self,
        series: &'s SeriesResult,
        values: &'s [u64],
    ) -> impl Iterator<Item = (u64, u64, u64)> + use<'s> {
        let (end, interval) = (self.results.end_ps, series.interval_ps.max(1));
        (0..).zip(values).map(move |(number, &value): (u64, &u64)| {
            let from = number.saturating_mul(interval);
            (from, from.saturating_add(interval).min(end), value)
        })
    }

    /// Points of a series that end in (after, to].
    fn points<'s>(
        &self,
        series: &'s SeriesResult,
        values: &'s [u64],
    ) -> impl Iterator<Item = (u64, u64, u64)> + use<'s> {
        let (after, to) = (self.after, self.to);
        self.spans(series, values).filter(move |&(_, ends, _)| after < ends && ends <= to)
    }

    /// Integral of a series from the start until now: each mean times its picoseconds. A point that goes on counts as
    /// far as it has gone.
    fn sum(&self, series: &SeriesResult) -> u128 {
        let part = |(from, ends, value): (u64, u64, u64)| {
            u128::from(ends.min(self.to).saturating_sub(from)) * u128::from(value)
        };
        self.spans(series, &series.mean).map(part).sum()
    }

    fn stats(&self) -> StatsSnapshot {
        let (mut ports, mut queues, mut pfc) = (Vec::new(), Vec::new(), Vec::new());
        let mut drops = DropsReport::default();
        for (number, port) in self.switch.ports.iter().enumerate() {
            let name = format!("port {number}");
            ports.push(self.port(number, name.clone(), port));
            for reason in &port.drops {
                *drops.total.entry(reason.0.clone()).or_default() += reason.1;
            }
            if !port.drops.is_empty() {
                drops.ports.insert(name.clone(), port.drops.clone());
            }
            for (pri, queue) in port.queues.iter().enumerate() {
                let number_of = u8::try_from(pri).unwrap_or(u8::MAX);
                let cells = u64::from(self.switch.cell_bytes.max(1));
                let depth = self.of(SeriesKind::QueueDepthBytes, number, Some(pri));
                let depth = depth.map_or(0, |series| {
                    // An interval that is longer than the time between two states stands for the whole of that time.
                    let now = usize::try_from((self.to.max(1) - 1) / series.interval_ps.max(1));
                    let now = now.ok().and_then(|at| series.max.get(at)).copied().unwrap_or(0);
                    let ended = self.points(series, &series.max);
                    ended.map(|(_, _, value)| value).fold(now, u64::max)
                });
                let paused = self.of(SeriesKind::PausedPs, number, Some(pri));
                let paused_ps: u64 = paused.map_or(0, |series| {
                    let ended =
                        self.spans(series, &series.mean).filter(|&(_, ends, _)| ends <= self.to);
                    ended.map(|(_, _, value)| value).sum()
                });
                queues.push(QueueReport {
                    port: name.clone(),
                    pri: number_of,
                    enqueued: queue.enqueued_frames,
                    dequeued: queue.dequeued_frames,
                    tx_bytes: queue.tx_bytes,
                    dropped: queue.drops.values().sum(),
                    ecn_marked: queue.ecn_marked_frames,
                    depth_cells: depth.div_ceil(cells),
                    depth_watermark_cells: queue.depth_max_cells,
                    ..QueueReport::default()
                });
                pfc.push(PfcReport {
                    port: name.clone(),
                    pri: number_of,
                    xoff: queue.xoff,
                    xon: queue.xon,
                    pause_tx: queue.pause_tx_frames,
                    pause_rx: queue.pause_rx_frames,
                    paused_ns: paused_ps / 1_000,
                    storms: queue.storms,
                    group_watermark_cells: queue.input_max_cells,
                    headroom_watermark_cells: queue.headroom_max_cells,
                    ..PfcReport::default()
                });
            }
        }
        StatsSnapshot {
            switch: self.switch.name.clone(),
            version: self.results.weft.clone(),
            uptime_ns: self.to / 1_000,
            ports,
            queues,
            pfc,
            drops,
            buffer: BufferReport {
                cell_bytes: self.switch.cell_bytes.into(),
                shared_cells: self.switch.shared_cells,
                ..BufferReport::default()
            },
            ..StatsSnapshot::default()
        }
    }

    fn port(&self, number: usize, name: String, port: &PortResult) -> PortReport {
        let sent = self.of(SeriesKind::ThroughputBps, number, None);
        let bits = sent.map_or(0, |series| self.sum(series));
        let here = |end: &weft_sim::results::network::LinkEnd| {
            end.node == self.switch.name && usize::from(end.port) == number
        };
        let link = self.results.links.iter().find(|link| here(&link.a) || here(&link.b));
        PortReport {
            port: u8::try_from(number).unwrap_or(u8::MAX),
            name,
            link_up: link.is_some(),
            rate_bps: link.map_or(0, |link| link.rate_bps),
            rx_frames: port.rx_frames,
            rx_bytes: port.rx_bytes,
            tx_frames: port.tx_frames,
            // Bit/s times ps, by 8 bits and 10^12 ps: bytes.
            tx_bytes: u64::try_from(bits / 8_000_000_000_000).unwrap_or(u64::MAX),
            pfc_rx: port.pfc_rx_frames,
            pfc_tx: port.pfc_tx_frames,
            ..PortReport::default()
        }
    }

    /// Pauses in the intervals of the series: each is shown as one pause at the beginning of its interval, as the
    /// series has only its sum.
    fn pauses(&self, number: u64) -> Vec<PauseReport> {
        let mut pauses = Vec::new();
        for series in self.series.iter().filter(|series| series.kind == SeriesKind::PausedPs) {
            let (Some(port), Some(pri)) = (series.port, series.pri) else { continue };
            for (from, _, ps) in self.points(series, &series.mean) {
                if ps > 0 {
                    pauses.push(PauseReport {
                        // The state's number in the upper bits makes the numbers unique over all states.
                        number: number << 24 | pauses.len() as u64,
                        port: format!("port {port}"),
                        pri,
                        side: "obeyed".to_owned(),
                        from_ns: from / 1_000,
                        to_ns: Some((from + ps) / 1_000),
                    });
                }
            }
        }
        pauses
    }

    fn page(&self, number: u64, is_last: bool) -> PageState {
        let mut pauses = self.pauses(number);
        let most = PAUSES / STATES;
        let over = pauses.len().saturating_sub(most) as u64;
        pauses.truncate(most);
        let mut state = PageState::new(number, &self.stats(), pauses, over);
        if !is_last {
            without_final(&mut state.switch);
        }
        without(&mut state.switch, &UNKNOWN);
        state
    }
}

/// The objects of list `name` in `of`.
fn list<'a>(
    of: &'a mut Value,
    name: &str,
) -> impl Iterator<Item = &'a mut serde_json::Map<String, Value>> {
    let list = of.get_mut(name).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

/// Keys of rows, by the list that has the rows.
type Keys<'a> = (&'a str, &'a [&'a str]);

/// Keys that results do not have; a zero would look like a count.
const UNKNOWN: [Keys<'_>; 3] = [
    ("ports", &["rx_bytes"]),
    ("queues", &["output_dropped", "voq_limit_cells"]),
    ("pfc", &["classes", "xoff_now", "paused_now", "storm_now", "resume_tx", "resume_rx"]),
];

/// Keys that are only known at the end of a run.
const FINAL: [Keys<'_>; 3] = [
    ("ports", &["rx_frames", "tx_frames"]),
    ("queues", &["enqueued", "dequeued", "dropped", "ecn_marked", "depth_watermark_cells"]),
    ("pfc", &["xoff", "xon", "pause_tx", "pause_rx", "storms"]),
];

fn without(switch: &mut Value, keys: &[Keys<'_>]) {
    for (part, keys) in keys {
        for row in list(switch, part) {
            for &key in *keys {
                row.remove(key);
            }
        }
    }
}

/// Removes the keys that are only known at the end.
fn without_final(switch: &mut Value) {
    without(switch, &FINAL);
    if let Some(switch) = switch.as_object_mut() {
        switch.remove("drops");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_views::results::example;

    /// Sums of the states are those of the series: nothing is told twice, nothing is left out.
    #[test]
    fn states_of_a_simulation_have_the_sums_of_its_series() {
        let results = example::results();
        let runs = of_results(&results);
        assert_eq!(runs.len(), 1);
        let states = &runs[0].states;
        assert_eq!(states.len(), STATES);
        let last = &states.last().unwrap().switch;
        assert_eq!(last["uptime_ns"], results.end_ps / 1_000);
        let bytes = |state: &PageState| state.switch["ports"][1]["tx_bytes"].as_u64().unwrap();
        for pair in states.windows(2) {
            let ns = results.end_ps / 1_000 / STATES as u64 + 1;
            assert!((bytes(&pair[1]) - bytes(&pair[0])) * 8 <= 400 * ns, "the link has 400 Gb/s");
        }
        let sent = &last["ports"][1]["tx_bytes"];
        assert_eq!(sent.as_u64().unwrap().abs_diff(2_950_000), 0, "{sent}");
        let paused: u64 = states
            .iter()
            .flat_map(|state| &state.pauses)
            .map(|pause| pause.to_ns.unwrap() - pause.from_ns)
            .sum();
        assert_eq!(paused, 4_000, "ns");
        let depths = |state: &PageState| state.switch["queues"][1]["depth_cells"].as_u64().unwrap();
        assert_eq!(states.iter().map(depths).max(), Some(90), "23,040 bytes in cells of 256");
        assert_eq!(states.first().map(depths), Some(0));
        assert!(states[0].switch["ports"][0].get("rx_frames").is_none(), "not known then");
        assert!(states[0].switch.get("drops").is_none(), "which is not the same as none");
        assert_eq!(last["ports"][0]["rx_frames"], 1_500);
        assert!(last["drops"].is_object() && last["pfc"][0].get("xoff").is_some());
        assert!(last["pfc"][0].get("classes").is_none(), "no results tell it");
    }
}
