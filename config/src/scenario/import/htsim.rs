//! htsim: `.topo` (folded Clos of two or three tiers) and `.cm` (connections).
//!
//! The text of a file becomes a [`Topology`] or [`Flow`]s. Hosts are called h0, h1, ..., switches tor0, agg0, core0,
//! ... Rates are Gbit/s, delays nanoseconds, starts of connections picoseconds.
//!
//! Source: Broadcom/csg-htsim, `sim/datacenter/fat_tree_topology.cpp` and `connection_matrix.cpp`.
//!
//! Keys are of any case. Queue sizes of a `.topo` belong in the sections of the scenario, and are refused here with
//! that advice; so are failures, and triggers of a `.cm` that flows cannot follow. A connection of size 0 has no end.

use std::collections::BTreeMap;

use weft_dataplane::time::{Instant, LinkRate, Span};
use weft_sim::scenario::flow::{Flow, FlowId};
use weft_sim::topology::{LinkSpec, NodeId, NodeKind, Topology, TopologyError};

use super::line::{Line, at_end, lines};
use super::{FLOWS_MAX, Imported, Network};
use crate::quantity::TIME_PS_MAX;
use crate::scenario::problem;
use crate::{Place, Problem};

/// A tier of switches: its links down, their rate and delay, and the number of links up. Zero until the file gives a
/// value.
#[derive(Clone, Copy, Debug, Default)]
struct Tier {
    rate_gbps: u64,
    latency_ns: u64,
    /// Latency of its switches, where the file gives one.
    switch_latency_ns: Option<u64>,
    down: usize,
    up: usize,
    bundle: usize,
}

/// Reads a `.topo` file.
///
/// # Errors
/// The first problem.
pub(super) fn topology(file: &str, text: &str) -> Result<Network, Problem> {
    let (mut nodes, mut count, mut pod) = (0, 0, 0);
    let mut tiers: Vec<Tier> = Vec::new();
    for line in lines(file, text, char::is_whitespace) {
        let number = |what: &str, most| {
            line.number(1, what, 1..=most).map(|n| usize::try_from(n).unwrap_or(0))
        };
        let key = line.word(0).to_ascii_lowercase();
        match (key.as_str(), tiers.last_mut()) {
            ("nodes", _) => nodes = number("hosts", 1 << 20)?,
            ("tiers", _) => count = line.number(1, "tiers", 2..=3).map(|n| usize::try_from(n).unwrap_or(0))?,
            ("podsize", _) => pod = number("hosts of a pod", 1 << 20)?,
            ("tier", _) => {
                let next = tiers.len() as u64;
                line.number(1, "the number of the next tier", next..=next)?;
                tiers.push(Tier { bundle: 1, ..Tier::default() });
            }
            ("downlink_speed_gbps", Some(tier)) => tier.rate_gbps = line.number(1, "Gbit/s", 1..=10_000)?,
            ("downlink_latency_ns", Some(tier)) => tier.latency_ns = line.number(1, "ns", 1..=1 << 40)?,
            ("radix_down", Some(tier)) => tier.down = number("links down", 64)?,
            ("radix_up", Some(tier)) => tier.up = number("links up", 64)?,
            ("bundle", Some(tier)) => tier.bundle = number("links of a bundle", 64)?,
            ("oversubscribed", Some(_)) => drop(line.number(1, "a ratio; the numbers of links say it", 1..=64)?),
            ("queue_up" | "queue_down", Some(_)) => return Err(line.refuse(0, "no queues here: say buffer.buffer_size_mb in the scenario, and leave them out")),
            ("switch_latency_ns", Some(tier)) => tier.switch_latency_ns = Some(line.number(1, "ns", 0..=1_000_000)?),
            _ => return Err(line.refuse(0, "Nodes, Tiers, Podsize, Tier, or of a tier Downlink_speed_Gbps, Downlink_Latency_ns, Switch_Latency_ns, Radix_Down, Radix_Up, Bundle or Oversubscribed")),
        }
        line.at_most(2, "the end of the line after the value")?;
    }
    if tiers.len() != count || count == 0 || nodes == 0 {
        return Err(at_end(
            file,
            text,
            format_args!(
                "Nodes, Tiers and a Tier for each (Tiers is {count}, and there are {})",
                tiers.len()
            ),
        ));
    }
    if let Some(at) =
        tiers.iter().position(|tier| tier.rate_gbps == 0 || tier.latency_ns == 0 || tier.down == 0)
    {
        return Err(at_end(
            file,
            text,
            format_args!("Downlink_speed_Gbps, Downlink_Latency_ns and Radix_Down of tier {at}"),
        ));
    }
    // Two tiers are one pod, whatever Podsize says.
    let topology = build(nodes, if pod == 0 || count == 2 { nodes } else { pod }, &tiers)
        .map_err(|expected| at_end(file, text, expected))?;
    let mut switch_latency_ns = BTreeMap::new();
    for node in topology.nodes() {
        let tier = TIERS.iter().position(|name| {
            node.name.strip_prefix(name).is_some_and(|rest| rest.parse::<u64>().is_ok())
        });
        if let Some(ns) = tier.and_then(|tier| tiers.get(tier)?.switch_latency_ns) {
            switch_latency_ns.insert(node.name.clone(), ns);
        }
    }
    Ok(Network { topology, switch_latency_ns })
}

/// First part of the names of switches, by tier.
const TIERS: [&str; 3] = ["tor", "agg", "core"];

fn divide(what: &str, had: usize, by: usize) -> Result<usize, String> {
    match had.checked_rem(by) {
        Some(0) if had > 0 => Ok(had / by),
        _ => Err(format!("{what} that divide evenly: {had} by {by}")),
    }
}

fn build(nodes: usize, pod: usize, tiers: &[Tier]) -> Result<Topology, String> {
    let [tor, agg, core @ ..] = tiers else { return Err("two or three tiers".to_owned()) };
    let pods = divide("hosts and pods", nodes, pod)?;
    let tors = divide("hosts of a pod and Radix_Down of tier 0", pod, tor.down)?;
    let aggs = divide("links up of a pod and Bundle of tier 1", tor.up, agg.bundle)?;
    // Every switch of a pod has a bundle to each switch of the tier above: the numbers of the file must agree.
    if agg.down != tors * agg.bundle {
        return Err(format!(
            "Radix_Down of tier 1 to be {}: {tors} switches below in bundles of {}",
            tors * agg.bundle,
            agg.bundle
        ));
    }
    let mut net = Topology::default();
    let error = |error: TopologyError| error.to_string();
    let many =
        |net: &mut Topology, name: &str, count: usize| -> Result<Vec<NodeId>, TopologyError> {
            (0..count).map(|index| net.add(&format!("{name}{index}"), NodeKind::Switch)).collect()
        };
    let all_tors = many(&mut net, "tor", tors * pods).map_err(error)?;
    let all_aggs = many(&mut net, "agg", aggs * pods).map_err(error)?;
    for host in 0..nodes {
        let id = net.add(&format!("h{host}"), NodeKind::Host).map_err(error)?;
        join(&mut net, all_tors.get(host / tor.down).copied(), Some(id), tor)?;
    }
    for (index, &below) in all_tors.iter().enumerate() {
        for up in 0..aggs {
            join(&mut net, Some(below), all_aggs.get(index / tors * aggs + up).copied(), agg)?;
        }
    }
    if let [core] = core {
        let each = divide("Radix_Up of tier 1 and Bundle of tier 2", agg.up, core.bundle)?;
        if core.down != pods * core.bundle {
            return Err(format!(
                "Radix_Down of tier 2 to be {}: {pods} pods in bundles of {}",
                pods * core.bundle,
                core.bundle
            ));
        }
        let all_cores = many(&mut net, "core", aggs * each).map_err(error)?;
        for (index, &below) in all_aggs.iter().enumerate() {
            for up in 0..each {
                join(
                    &mut net,
                    Some(below),
                    // Switch i of each pod has the same cores, which no other switch of its pod has.
                    all_cores.get(index % aggs * each + up).copied(),
                    core,
                )?;
            }
        }
    }
    Ok(net)
}

/// Adds the links of a bundle between two nodes, with rate and delay of the upper tier `tier`. A host has one link.
fn join(
    net: &mut Topology,
    a: Option<NodeId>,
    b: Option<NodeId>,
    tier: &Tier,
) -> Result<(), String> {
    let (Some(a), Some(b)) = (a, b) else {
        return Err("as many switches as links lead to".to_owned());
    };
    // Bundles are between switches: hosts with several links are not modelled.
    let is_host = net.nodes().get(b).is_some_and(|node| node.kind == NodeKind::Host);
    for _ in 0..if is_host { 1 } else { tier.bundle } {
        let link = net.link(a, b).map_err(|error| error.to_string())?;
        let rate = LinkRate::gbps(tier.rate_gbps);
        net.specify(link, LinkSpec { rate, propagation: Span::from_ns(tier.latency_ns) });
    }
    Ok(())
}

/// Reads a `.cm` file. `host` knows the numbers of hosts by name; connections without an end get `endless` bytes.
///
/// # Errors
/// The first problem.
pub(super) fn flows(
    file: &str,
    text: &str,
    host: &dyn Fn(&str) -> Option<u16>,
    endless: u64,
) -> Result<Imported<Vec<Flow>>, Problem> {
    let mut flows: Vec<(Flow, Option<(u64, Line<'_>)>)> = Vec::new();
    let mut fired: BTreeMap<u64, Vec<FlowId>> = BTreeMap::new();
    let (mut connections, mut triggers): (Option<u64>, Vec<Trigger<'_>>) = (None, Vec::new());
    for line in lines(file, text, char::is_whitespace) {
        match line.word(0).to_ascii_lowercase().as_str() {
            // The network has the hosts; this line is only checked.
            "nodes" => drop(line.number(1, "nodes", 1..=1 << 20)?),
            "connections" => {
                connections = Some(line.number(1, "connections", 0..=FLOWS_MAX as u64)?);
            }
            "triggers" => drop(line.number(1, "triggers", 0..=FLOWS_MAX as u64)?), // their lines say as much
            "failures" => drop(line.number(1, "no failures: say them in [[fault]]", 0..=0)?),
            "trigger" => triggers.push(trigger(&line)?),
            _ => {
                let number = FlowId::try_from(flows.len()).unwrap_or(FlowId::MAX);
                if flows.len() == FLOWS_MAX {
                    return Err(line.refuse(0, format_args!("at most {FLOWS_MAX} connections")));
                }
                flows.push(connection(&line, host, number, &mut fired)?);
            }
        }
    }
    let found = flows.len() as u64;
    if connections.is_none_or(|wanted| wanted != found) {
        let wanted = connections
            .map_or_else(|| "Connections".to_owned(), |wanted| format!("{wanted} connections"));
        return Err(at_end(file, text, format_args!("{wanted}, read {found}")));
    }
    let mut waiting: BTreeMap<u64, usize> = BTreeMap::new();
    for (trigger, _) in flows.iter().filter_map(|(_, waits)| waits.as_ref()) {
        *waiting.entry(*trigger).or_default() += 1;
    }
    for trigger in &triggers {
        let fire = fired.get(&trigger.id).map_or(0, Vec::len);
        trigger.check(fire, waiting.get(&trigger.id).copied().unwrap_or(0))?;
    }
    let mut warnings = Vec::new();
    let open = flows.iter_mut().filter(|(flow, _)| flow.bytes == 0);
    let open = open.map(|(flow, _)| flow.bytes = endless).count();
    if open > 0 {
        let place = Place::WholeFile(file.to_owned());
        let message = format!(
            "{open} connections of size 0 have no end: they go on until the run ends (`until`), and are not delivered then"
        );
        warnings.push(problem(place, "", message));
    }
    // At the end, as a connection may wait for a trigger that a later one fires.
    let resolved = flows.into_iter().map(|(mut flow, waits)| match waits {
        Some((trigger, line)) => match fired.get(&trigger) {
            Some(after) => {
                flow.after.clone_from(after);
                Ok(flow)
            }
            None => Err(line.refuse(0, format_args!("a connection that fires trigger {trigger}"))),
        },
        None => Ok(flow),
    });
    let what = resolved.collect::<Result<_, _>>()?;
    Ok(Imported { what, warnings })
}

/// A line `trigger id T oneshot|multishot|barrier [count n]`.
struct Trigger<'a> {
    id: u64,
    count: Option<u64>,
    line: Line<'a>,
}

fn trigger<'a>(line: &Line<'a>) -> Result<Trigger<'a>, Problem> {
    if line.word(1) != "id" {
        return Err(line.refuse(1, "id"));
    }
    let id = line.number(2, "the number of a trigger", 0..=u64::MAX)?;
    if !matches!(line.word(3), "oneshot" | "barrier" | "multishot") {
        return Err(line.refuse(3, "oneshot, barrier or multishot"));
    }
    let count = match line.word(4) {
        "" => None,
        "count" => Some(line.number(5, "a count", 0..=u64::MAX)?),
        _ => return Err(line.refuse(4, "count or the end of the line")),
    };
    line.at_most(6, "the end of the line after the count")?;
    Ok(Trigger { id, count, line: line.clone() })
}

impl Trigger<'_> {
    /// Refuses a trigger that flows cannot follow: `fire` connections fire it and `wait` wait for it, and a flow
    /// begins once, when all flows that it waits for are done.
    fn check(&self, fire: usize, wait: usize) -> Result<(), Problem> {
        match self.line.word(3) {
            // In htsim the first connection that fires starts the first that waits, the second the second, and so on.
            "multishot" if fire != 1 || wait != 1 => Err(self.line.refuse(3, format_args!("oneshot or barrier: multishot is read where one connection fires and one waits; {fire} and {wait} do"))),
            "barrier" if self.count.is_some_and(|count| count != fire as u64) => {
                Err(self.line.refuse(5, format_args!("the number of connections that fire it, {fire}")))
            }
            _ => Ok(()),
        }
    }
}

/// A start in ps. htsim reads it as a number with a fraction, but writes microseconds: a fraction other than 0 could
/// mean either, and is refused.
fn start_ps(line: &Line<'_>, at: usize) -> Result<u64, Problem> {
    let (whole, fraction) = line.word(at).split_once('.').unwrap_or((line.word(at), ""));
    let number = whole.parse().ok().filter(|ps| *ps <= TIME_PS_MAX);
    let number = number.filter(|_| fraction.bytes().all(|digit| digit == b'0'));
    number.ok_or_else(|| line.refuse(at, format_args!("a start in ps, 0 to {TIME_PS_MAX}")))
}

/// `src->dst [id i] (start PS | trigger T) size B [send_done_trigger T] [recv_done_trigger T] [prio P]`.
fn connection<'a>(
    line: &Line<'a>,
    host: &dyn Fn(&str) -> Option<u16>,
    number: FlowId,
    fired: &mut BTreeMap<u64, Vec<FlowId>>,
) -> Result<(Flow, Option<(u64, Line<'a>)>), Problem> {
    let node = |text: &str| text.parse::<u32>().ok().and_then(|id| host(&format!("h{id}")));
    let ends = line.word(0).split_once("->").and_then(|(from, to)| Some((node(from)?, node(to)?)));
    let (from, to) = ends
        .filter(|(from, to)| from != to)
        .ok_or_else(|| line.refuse(0, "SRC->DST, two hosts (h0, h1, ...) by number"))?;
    let (mut bytes, mut start, mut waits) = (None, None, None);
    // Words come in pairs of a key and its value, in any order.
    for at in (1..line.len()).step_by(2) {
        let value = |what: &str| line.number(at + 1, what, 0..=u64::MAX);
        match line.word(at) {
            "id" => drop(value("the number of the connection")?),
            "start" => start = Some(start_ps(line, at + 1)?),
            "trigger" => waits = Some((value("the number of a trigger")?, line.clone())),
            "size" => bytes = Some(line.number(at + 1, "bytes", 0..=u64::MAX)?),
            // No need to tell these apart: a flow that waits begins once the one before is done as far as its own
            // sender can know (docs/spec/model.md §3).
            "send_done_trigger" | "recv_done_trigger" => {
                fired.entry(value("the number of a trigger")?).or_default().push(number);
            }
            _ => return Err(line.refuse(at, "id, start, trigger, size, send_done_trigger or recv_done_trigger; prio is endpoint.request_vc")),
        }
    }
    let bytes = bytes.ok_or_else(|| line.refuse(line.len(), "size and bytes"))?;
    if start.is_none() && waits.is_none() {
        return Err(line.refuse(line.len(), "start and a time in ps, or trigger and a number"));
    }
    let start = Instant::from_ps(start.unwrap_or(0));
    Ok((Flow { start, ..Flow::new(from, to, bytes) }, waits))
}
