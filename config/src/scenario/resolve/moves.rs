//! Workloads, faults, and expectations.
//!
//! `[[workload]]`, `[[fault]]` and `[[expect]]` become [`Workload`]s, [`Fault`]s and [`Expect`]s. Sizes are bytes of
//! payload; numbers are parts of 10^-9.
//!
//! Source: docs/spec/model.md §3.

use std::collections::BTreeMap;

use weft_dataplane::time::{Instant, Span};
use weft_dataplane::types::{Pri, PriSet};
use weft_hosts::frames::Kind;
use weft_hosts::tcp::{BUFFER_MAX, BUFFER_MIN, Congestion, ConnectionSpec, HEADERS_LEN, RTO_MIN};
use weft_parsers::Dscp;
use weft_sim::network::MESSAGE_FRAMES_MAX;
use weft_sim::scenario::expect::{Expect, Number, Tolerance};
use weft_sim::scenario::fault::Fault;
use weft_sim::scenario::workload::{Pattern, TcpLoad, Workload};
use weft_sim::topology::{NodeKind, Topology};

use super::{Hosts, Keys, ScenarioReader, Takes};
use crate::quantity::{self, parse_tolerance};
use crate::scenario::import::{self, Imported};
use crate::value::Value;

/// Parts of 1 that a [`Number`] counts.
const PARTS: i128 = 1_000_000_000;

const NONE: Takes = Takes { kind: "", must: &[], may: &[] };
const WORKLOADS: &[Takes] = &[
    Takes { kind: "incast", must: &["to", "bytes"], may: &["from"] },
    Takes { kind: "permutation", must: &["bytes"], may: &["hosts"] },
    Takes { kind: "uniform", must: &["bytes", "load_gbps", "duration"], may: &["hosts"] },
    Takes { kind: "all-to-all", must: &["bytes"], may: &["hosts", "one_by_one"] },
    Takes { kind: "ring-all-reduce", must: &["bytes"], may: &["hosts"] },
    Takes { kind: "point-to-point", must: &["from", "to", "bytes"], may: &["count"] },
    Takes { kind: "flows", must: &["file"], ..NONE },
    Takes { kind: "capture", must: &["file", "from"], may: &["to"] },
    Takes {
        kind: "tcp",
        must: &["to"],
        may: &[
            "from",
            "bytes",
            "duration",
            "connections",
            "congestion",
            "mss",
            "dscp",
            "receive_buffer",
            "send_buffer",
            "rto_min",
            "ack_delay",
        ],
    },
];
const FAULTS: &[Takes] = &[
    Takes { kind: "bit-error", must: &["link", "rate"], ..NONE },
    Takes { kind: "frame-error", must: &["link", "rate"], ..NONE },
    Takes { kind: "link-down", must: &["link"], may: &["from", "until"] },
    Takes { kind: "slow-receiver", must: &["host", "drain_gbps"], ..NONE },
    Takes { kind: "pause-storm", must: &["host"], may: &["classes", "from", "until"] },
];

impl ScenarioReader<'_> {
    /// The number of the host that `key` names.
    fn host(&mut self, keys: &Keys<'_>, key: &'static str, hosts: &Hosts) -> Option<u16> {
        let name = keys.text(key)?;
        let found = hosts.number(&name);
        if found.is_none() {
            self.refuse(keys, key, hosts.unknown(&name));
        }
        found
    }

    /// The numbers of the hosts that `key` names; refuses a host that is named twice. Empty where it is not set.
    fn hosts(&mut self, keys: &Keys<'_>, key: &'static str, hosts: &Hosts) -> Vec<u16> {
        let mut all = Vec::new();
        for name in keys.texts(key) {
            match hosts.number(&name) {
                Some(number) if all.contains(&number) => {
                    self.refuse(
                        keys,
                        key,
                        format!("expected each host once, found {name:?} twice"),
                    );
                }
                Some(number) => all.push(number),
                None => self.refuse(keys, key, hosts.unknown(&name)),
            }
        }
        all
    }

    pub(super) fn workloads(&mut self, hosts: &Hosts) -> Vec<Workload> {
        let mut all: Vec<Workload> = Vec::new();
        let items: Vec<Keys<'_>> = Keys::items(self.settings, "workload").collect();
        if items.is_empty() {
            let place = Keys::table(self.settings, "").here();
            self.refuse_at(
                place,
                "workload",
                "expected a [[workload]] at least, found none: nothing would move",
            );
        }
        // A workload without a name is called after its kind, with a number only where there are several.
        let kinds: Vec<String> = items.iter().filter_map(|keys| keys.text("kind")).collect();
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        for keys in &items {
            if !self.requires(keys, &["kind"]) {
                continue;
            }
            let kind = keys.text("kind").unwrap_or_default();
            let number = numbers.entry(kind.clone()).or_default();
            *number += 1;
            let is_alone = kinds.iter().filter(|other| **other == kind).count() == 1;
            let made = if is_alone { kind.clone() } else { format!("{kind}-{number}") };
            let name = keys.text("name").unwrap_or(made);
            if all.iter().any(|other| other.name == name) {
                self.refuse(keys, "name", format!("expected each name once, found {name:?} twice"));
            }
            let Some(pattern) = self.pattern(keys, &kind, hosts) else { continue };
            let start = Instant::ZERO + keys.time("start").unwrap_or(Span::ZERO);
            all.push(Workload { name, kind: pattern, start, vc: None });
        }
        all
    }

    fn pattern(&mut self, keys: &Keys<'_>, kind: &str, hosts: &Hosts) -> Option<Pattern> {
        if !self.check_takes(keys, WORKLOADS, "kind", kind) {
            return None;
        }
        // Checks below report and go on, so that a workload shows all its problems; the pattern counts only if there
        // were none.
        let before = self.problems.len();
        let bytes = keys.size("bytes").unwrap_or(0);
        let some = self.hosts(keys, "hosts", hosts);
        if kind == "flows" || kind == "capture" {
            return self.in_file(keys, kind, hosts);
        }
        if kind == "tcp" {
            let pattern = self.tcp(keys, hosts)?;
            return (before == self.problems.len()).then_some(pattern);
        }
        if keys.set("hosts").is_some() && some.len() < 2 {
            self.refuse(keys, "hosts", format!("expected 2 hosts or more, found {}", some.len()));
        }
        self.check_bytes(keys, bytes);
        let pattern = match kind {
            "incast" => {
                let (from, to) = self.many_to_one(keys, hosts)?;
                Pattern::Incast { from, to, bytes }
            }
            "permutation" => Pattern::Permutation { hosts: some, bytes },
            "uniform" => {
                let duration = keys.time("duration")?;
                if duration == Span::ZERO {
                    self.refuse(keys, "duration", "expected a time above 0");
                }
                Pattern::Uniform { hosts: some, bytes, load: keys.rate("load_gbps")?, duration }
            }
            "all-to-all" => {
                Pattern::AllToAll { hosts: some, bytes, one_by_one: keys.flag("one_by_one") }
            }
            "ring-all-reduce" => {
                // Each host of the ring sends chunks of bytes / hosts, which may not be empty.
                let ring = if some.is_empty() { hosts.len() } else { some.len() } as u64;
                if bytes < ring {
                    let message =
                        format!("expected {ring} bytes or more, one for each chunk, found {bytes}");
                    self.refuse(keys, "bytes", message);
                }
                Pattern::RingAllReduce { hosts: some, bytes }
            }
            _ => {
                let (from, to) = self.pair(keys, hosts)?;
                let count =
                    keys.int("count").and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
                Pattern::PointToPoint { from, to, bytes, count }
            }
        };
        (before == self.problems.len()).then_some(pattern)
    }

    /// The senders and the receiver; without senders all other hosts send.
    fn many_to_one(&mut self, keys: &Keys<'_>, hosts: &Hosts) -> Option<(Vec<u16>, u16)> {
        let from = self.hosts(keys, "from", hosts);
        let to = self.host(keys, "to", hosts)?;
        if from.contains(&to) {
            let message = "expected senders beside the receiver, found it among them";
            self.refuse(keys, "from", message);
        }
        Some((from, to))
    }

    fn tcp(&mut self, keys: &Keys<'_>, hosts: &Hosts) -> Option<Pattern> {
        let (from, to) = self.many_to_one(keys, hosts)?;
        let load = match (keys.size("bytes"), keys.time("duration")) {
            (Some(bytes), None) => TcpLoad::Bytes(bytes),
            (None, Some(Span::ZERO)) => {
                self.refuse(keys, "duration", "expected a time above 0");
                return None;
            }
            (None, Some(lasts)) => TcpLoad::Lasts(lasts),
            (Some(_), Some(_)) => {
                self.refuse(keys, "duration", "expected none beside bytes: one of them");
                return None;
            }
            (None, None) => {
                let message = "expected bytes or duration with kind = \"tcp\", found none of them";
                self.refuse_at(keys.here(), keys.name("bytes"), message);
                return None;
            }
        };
        let connection = self.connection(keys)?;
        let connections = keys.int("connections").and_then(|count| u32::try_from(count).ok());
        Some(Pattern::Tcp { from, to, load, connections: connections.unwrap_or(1), connection })
    }

    /// The parameters of TCP connections.
    fn connection(&mut self, keys: &Keys<'_>) -> Option<ConnectionSpec> {
        let mut buffer = |key| {
            let bytes = usize::try_from(keys.size(key)?).unwrap_or(usize::MAX);
            if !(BUFFER_MIN..=BUFFER_MAX).contains(&bytes) {
                let message = format!("expected {BUFFER_MIN} to {BUFFER_MAX} bytes, found {bytes}");
                self.refuse(keys, key, message);
            }
            Some(bytes)
        };
        let (receive_buffer, send_buffer) = (buffer("receive_buffer")?, buffer("send_buffer")?);
        let rto_min = keys.time("rto_min")?;
        let (least, most) = RTO_MIN;
        if rto_min < least || rto_min > most {
            self.refuse(keys, "rto_min", "expected 1us to 60s");
        }
        let ack_delay = keys.time("ack_delay")?;
        if ack_delay > Span::ZERO && ack_delay >= rto_min {
            let message =
                "expected less than rto_min, after which each segment would be sent again";
            self.refuse(keys, "ack_delay", message);
        }
        let dscp = keys.int("dscp").and_then(|dscp| u8::try_from(dscp).ok()).and_then(Dscp::new)?;
        Some(ConnectionSpec {
            congestion: Congestion::from_name(&keys.text("congestion")?)?,
            mss: keys.count("mss")?,
            dscp,
            receive_buffer,
            send_buffer,
            rto_min,
            ack_delay,
            give_up: None,
        })
    }

    /// Longest frame of TCP connections, in bytes without FCS; 0 without such a workload.
    pub(super) fn tcp_len_max(&self) -> usize {
        let all = Keys::items(self.settings, "workload");
        let all = all.filter(|keys| keys.text("kind").as_deref() == Some("tcp"));
        let longest = all.filter_map(|keys| Some(keys.count("mss")? + HEADERS_LEN));
        longest.max().unwrap_or(0)
    }

    /// Refuses settings that have no effect on TCP connections, or exclude them.
    pub(super) fn check_tcp(&mut self, kind: Kind, workloads: &[Workload], faults: &[Fault]) {
        let tcp = |pattern: &Pattern| matches!(pattern, Pattern::Tcp { .. });
        if !workloads.iter().any(|workload| tcp(&workload.kind)) {
            return;
        }
        let endpoint = Keys::table(self.settings, "endpoint");
        if kind == Kind::Lite {
            let key = if endpoint.set("pkt_format").is_some() { "pkt_format" } else { "lite_mode" };
            let message = "expected standard, gen1 or gen2 beside a workload of kind tcp: a link that carries lite carries nothing else";
            self.refuse(&endpoint, key, message);
        }
        if endpoint.set("drain_gbps").is_some() {
            let message = "expected none beside a workload of kind tcp, whose receivers read at once; leave it out";
            self.refuse(&endpoint, "drain_gbps", message);
        }
        // A slow receiver slows the buffer of RC Link, which TCP frames do not go through.
        let all = Keys::items(self.settings, "fault");
        for (keys, fault) in all.zip(faults).collect::<Vec<_>>() {
            if let Fault::SlowReceiver { host, .. } = *fault
                && workloads.iter().any(|it| receives(&it.kind, host))
            {
                let message = "expected a host that no TCP connection goes to: it would slow down RC Link alone";
                self.refuse(&keys, "host", message);
            }
        }
    }

    /// Most bytes of a message, with frames of `payload_bytes`.
    fn longest(&self) -> u64 {
        let payload = Keys::table(self.settings, "endpoint").count("payload_bytes").unwrap_or(1);
        (payload as u64).saturating_mul(MESSAGE_FRAMES_MAX)
    }

    /// Refuses messages with more frames than a stamp can number.
    fn check_bytes(&mut self, keys: &Keys<'_>, bytes: u64) {
        let most = self.longest();
        if bytes > most {
            let message = format!(
                "expected at most {most}, as a message has 2^31 frames of payload_bytes at most, found {bytes}"
            );
            self.refuse(keys, "bytes", message);
        }
    }

    /// The sender, where `from` names exactly one host.
    fn sender(&mut self, keys: &Keys<'_>, hosts: &Hosts) -> Option<u16> {
        let from = self.hosts(keys, "from", hosts);
        if let &[from] = &from[..] {
            return Some(from);
        }
        if !from.is_empty() {
            self.refuse(keys, "from", format!("expected one sender, found {}", from.len()));
        }
        None
    }

    /// The sender and the receiver, where each is one host.
    fn pair(&mut self, keys: &Keys<'_>, hosts: &Hosts) -> Option<(u16, u16)> {
        let from = self.sender(keys, hosts);
        let to = self.host(keys, "to", hosts)?;
        if from == Some(to) {
            self.refuse(keys, "to", "expected another host than the sender");
            return None;
        }
        Some((from?, to))
    }

    /// Returns the contents of an imported file, and keeps its warnings.
    pub(super) fn imported_with<T>(&mut self, read: Imported<T>) -> T {
        self.warnings.extend(read.warnings);
        read.what
    }

    fn in_file(&mut self, keys: &Keys<'_>, kind: &str, hosts: &Hosts) -> Option<Pattern> {
        let file = keys.text("file")?;
        let read = if kind == "capture" {
            let ends = if keys.set("to").is_some() {
                self.pair(keys, hosts).map(|(from, to)| (from, Some(to)))
            } else {
                self.sender(keys, hosts).map(|from| (from, None))
            };
            let (from, to) = ends?;
            match self.source.capture(&file) {
                Ok((bytes, choice)) => {
                    let read = import::capture(&file, bytes, choice, from, to, hosts.len());
                    read.map(|read| self.imported_with(read)).map_err(|it| vec![it])
                }
                Err(message) => Err(vec![crate::scenario::problem(
                    keys.place("file"),
                    keys.name("file"),
                    message,
                )]),
            }
        } else {
            match self.source.file(&file) {
                Ok(text) => {
                    let read =
                        import::flows(&file, &text, &|name| hosts.number(name), self.longest());
                    read.map(|read| self.imported_with(read))
                }
                Err(message) => Err(vec![crate::scenario::problem(
                    keys.place("file"),
                    keys.name("file"),
                    message,
                )]),
            }
        };
        match read {
            Ok(flows) if flows.is_empty() => {
                self.refuse(
                    keys,
                    "file",
                    format!("expected a flow at least in {file}, found none"),
                );
                None
            }
            Ok(flows) => Some(Pattern::Flows(flows)),
            Err(problems) => {
                self.problems.extend(problems);
                None
            }
        }
    }

    pub(super) fn faults(
        &mut self,
        topology: &Topology,
        hosts: &Hosts,
        end: Instant,
    ) -> Vec<Fault> {
        let items: Vec<Keys<'_>> = Keys::items(self.settings, "fault").collect();
        // A host has one drain rate: two faults for it would contradict each other.
        let mut slow = Vec::new();
        let faults = items.iter().filter_map(|keys| {
            if !self.requires(keys, &["kind"]) {
                return None;
            }
            let kind = keys.text("kind")?;
            self.check_takes(keys, FAULTS, "kind", &kind).then_some(())?;
            let fault = self.fault(keys, &kind, topology, hosts, end)?;
            if let Fault::SlowReceiver { host, .. } = fault {
                if slow.contains(&host) {
                    let message = "expected one slow-receiver a host, found another one before";
                    self.refuse(keys, "host", message);
                }
                slow.push(host);
            }
            Some(fault)
        });
        faults.collect()
    }

    fn fault(
        &mut self,
        keys: &Keys<'_>,
        kind: &str,
        topology: &Topology,
        hosts: &Hosts,
        end: Instant,
    ) -> Option<Fault> {
        let from = Instant::ZERO + keys.time("from").unwrap_or(Span::ZERO);
        let until = keys.time("until").map(|until| Instant::ZERO + until);
        // Before the kind is looked at, as several kinds take both keys.
        if until.is_some_and(|until| until <= from) {
            self.refuse(keys, "until", "expected a time after `from`");
            return None;
        }
        Some(match kind {
            "slow-receiver" => Fault::SlowReceiver {
                host: self.host(keys, "host", hosts)?,
                drain: keys.rate("drain_gbps")?,
            },
            "pause-storm" => {
                let all = keys
                    .get("classes")
                    .unwrap_or_else(|| Value::List((0..8).map(Value::Int).collect()));
                let classes = all.members().iter().filter_map(Value::as_int);
                let classes: PriSet = classes
                    .filter_map(|class| Some(Pri::from_low_bits(u8::try_from(class).ok()?)))
                    .collect();
                let host = self.host(keys, "host", hosts)?;
                // A storm ends with a PAUSE of 0 quanta (docs/spec/model.md §3), and so needs an end.
                Fault::PauseStorm { host, classes, from, until: until.unwrap_or(end) }
            }
            "link-down" => Fault::LinkDown { link: self.link_named(keys, topology)?, from, until },
            _ => {
                let link = self.link_named(keys, topology)?;
                let one_in = one_in(keys.num("rate")?);
                if kind == "bit-error" {
                    Fault::BitError { link, one_in_bits: one_in }
                } else {
                    Fault::FrameError { link, one_in }
                }
            }
        })
    }

    /// The link between the nodes that `link` names; the first one, where there are several.
    fn link_named(&mut self, keys: &Keys<'_>, topology: &Topology) -> Option<usize> {
        let names = keys.texts("link");
        let nodes: Vec<usize> =
            names.iter().filter_map(|name| self.node(topology, keys, name)).collect();
        let &[a, b] = &nodes[..] else { return None };
        // A scenario names the ends of a link in any order.
        let joins = |ends: [usize; 2]| ends == [a, b] || ends == [b, a];
        let found = topology.links().iter().position(|link| joins(link.ends.map(|(node, _)| node)));
        if found.is_none() {
            let shown = |node: usize| {
                topology.nodes().get(node).map_or(String::new(), |node| {
                    let kind = if node.kind == NodeKind::Host { "host" } else { "switch" };
                    format!("{kind} {:?}", node.name)
                })
            };
            let message = format!(
                "expected two nodes that a link joins, found {} and {}, which none does",
                shown(a),
                shown(b)
            );
            self.refuse(keys, "link", message);
        }
        found
    }

    pub(super) fn expects(&mut self) -> Vec<Expect> {
        let items: Vec<Keys<'_>> = Keys::items(self.settings, "expect").collect();
        let expects = items.iter().filter_map(|keys| {
            if !self.requires(keys, &["metric", "value"]) {
                return None;
            }
            let value = number(&keys.get("value")?)?;
            let tolerance = match keys.get("tolerance")? {
                Value::Text(text) => match parse_tolerance(&text)? {
                    quantity::Tolerance::Parts(parts) => {
                        Tolerance::Relative(Number(i128::from(parts)))
                    }
                    quantity::Tolerance::AtLeast => Tolerance::AtLeast,
                    quantity::Tolerance::AtMost => Tolerance::AtMost,
                },
                // A bare number is in the unit of the metric.
                absolute => Tolerance::Absolute(number(&absolute)?),
            };
            let (metric, source) = (keys.text("metric")?, keys.text("source").unwrap_or_default());
            Some(Expect { metric, value, tolerance, source })
        });
        expects.collect()
    }
}

/// Whether TCP connections of a workload go to `host`.
fn receives(pattern: &Pattern, host: u16) -> bool {
    matches!(pattern, Pattern::Tcp { to, .. } if *to == host)
}

/// Turns a chance of 10^-18 to 1 into a one in n.
#[expect(
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "control reads decimal numbers; the table bounds them"
)]
fn one_in(rate: f64) -> u64 {
    (1.0 / rate).round() as u64
}

/// A number as it was written, exact to 10^-9; digits beyond that are cut off.
fn number(value: &Value) -> Option<Number> {
    let text = match value {
        Value::Int(int) => return Some(Number(i128::from(*int) * PARTS)),
        Value::Num(num) => num.to_string(), // the shortest text that reads as it: what was written
        _ => return None,
    };
    let (sign, text) = text.strip_prefix('-').map_or((1, text.as_str()), |rest| (-1, rest));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    // In integers, as 650.3 in binary is not 650.3: tolerances are compared exactly.
    let fraction: String = format!("{fraction:0<9}").chars().take(9).collect();
    let parts = whole.parse::<i128>().ok()?.checked_mul(PARTS)? + fraction.parse::<i128>().ok()?;
    Some(Number(sign * parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_they_were_written() {
        #[rustfmt::skip] // columns: value, parts of 10^-9
        let cases = [
            (Value::Int(650), 650_000_000_000), (Value::Num(650.3), 650_300_000_000), (Value::Num(-0.001), -1_000_000),
            (Value::Num(0.1), 100_000_000), (Value::Num(1e-9), 1), (Value::Num(162.56), 162_560_000_000),
        ];
        for (value, parts) in cases {
            assert_eq!(number(&value), Some(Number(parts)), "{value}");
        }
        assert_eq!([1e-3, 1e-12, 1.0].map(one_in), [1_000, 1_000_000_000_000, 1]);
    }
}
