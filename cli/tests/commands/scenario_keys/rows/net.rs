//! Keys before all sections, of the network, its hosts and its links.
//!
//! Source: docs/spec/model.md §2 (store-and-forward), §3.

use super::*;

/// Messages from each host to another.
const PERMUTATION: &str = "
seed = 1
until = '1ms'
title = 'one'
[net]
generate = 'single'
hosts = 8
sampling = '100ns'
samples_max = 1024
[[workload]]
kind = 'permutation'
bytes = 134400
";

/// Hosts at switches of their own; PFC would have a circle.
const RING: &str = "
[net]
generate = 'ring'
hosts = 6
switches = 6
[pfc]
pfc_enabled = false
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h3'
bytes = 13440
";

const LEAVES: &str = "
[net]
generate = 'leaf-spine'
hosts = 8
leaves = 4
spines = 1
[[workload]]
kind = 'all-to-all'
bytes = 13440
";

const TORUS: &str = "
[net]
generate = 'torus'
hosts = 8
dimensions = [2, 4]
[pfc]
pfc_enabled = false
[[workload]]
kind = 'all-to-all'
bytes = 1344
";

pub const GRAPH: &str = "
[[switch]]
name = 's'
[[switch]]
name = 't'
[[host]]
name = 'a'
[[host]]
name = 'b'
[[link]]
ends = ['a', 's']
[[link]]
ends = ['s', 't']
[[link]]
ends = ['t', 'b']
[[workload]]
kind = 'point-to-point'
from = 'a'
to = 'b'
bytes = 1344
";

const IMPORTED: &str = "
[net]
import = 'near.txt'
[[workload]]
kind = 'point-to-point'
from = 'n0'
to = 'n1'
bytes = 1344
";

pub fn rows() -> Vec<Row> {
    [general(), net(), graph()].into_iter().flatten().collect()
}

fn general() -> Vec<Row> {
    vec![
        row("title", "'two'", PERMUTATION, At("/scenario"), Is("two")),
        row("seed", "2", PERMUTATION, At("/matrix"), Other),
        row("until", "'2us'", PERMUTATION, At("/end_ps"), Is("2000000")),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn net() -> Vec<Row> {
    const SAME: &str = "sim/tests/virtual_time/scenario/same.rs::what_is_behind_the_front_of_a_frame_decides_nothing";
    vec![
        row("net.generate", "'direct'", PAIR, LAST, Refused("net.hosts: expected none with generate = \"direct\"")),
        row("net.generate", "'mesh'", RING, LAST, Less), // two switches, not four
        row("net.import", "'far.txt'", IMPORTED, LAST, Is("1676880")), // 2 (28.44 + 500) + 500 + 2 x 60 ns
        row("net.hosts", "6", PERMUTATION, At("/summary/flows"), Is("6")),
        row("net.leaves", "2", LEAVES, LAST, More), // fewer ways to the spine
        row("net.spines", "4", LEAVES, LAST, Less),
        row("net.switches", "3", RING, LAST, Less),
        row("net.dimensions", "[8]", TORUS, At("/latency/max_ps"), More),
        row("net.rate_gbps", "100", PAIR, LAST, Is("1971360")), // 11 x 113.76 + 720 ns
        row("net.link_m", "100", PAIR, LAST, Is("1932840")), // 2 x 450 ns more
        row("net.switch_rate_gbps", "50", LEAVES, LAST, More),
        row("net.switch_link_m", "1000", LEAVES, At("/latency/max_ps"), More),
        row("net.allow_pfc_circles", "true", RING, At("/ending/why"), Is("done")).beside(&["pfc.pfc_enabled=true"]),
        row("net.full_frames", "true", PAIR, Work(|scenario| scenario.options.full_frames.to_string(), SAME), Is("true")),
        row("net.latency_parts", "true", PAIR, At("/parts"), Other),
        row("net.sampling", "'400ns'", PERMUTATION, At("/series/0/interval_ps"), Is("400000")),
        row("net.samples_max", "16", PERMUTATION, At("/series/0/interval_ps"), Other),
    ]
}

/// One frame over three links and two switches: 3 (28.44 + 50) + 2 x 500 + 2 x 60 = 1,355.32 ns.
#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn graph() -> Vec<Row> {
    vec![
        row("host.name", "'c'", GRAPH, At("/hosts/0/name"), Refused("link.ends: expected the name of a host or switch, found \"a\"")),
        row("host.request_vc", "1", GRAPH, Pris(1), Is("[1]")),
        row("link.ends", "['a', 't']", GRAPH, LAST, Is("776880")), // past one switch
        row("link.rate_gbps", "100", GRAPH, LAST, Is("1440640")), // 113.76 for 28.44 ns
        row("link.link_m", "100", GRAPH, LAST, Is("1805320")),
        row("link.delay", "'1us'", GRAPH, LAST, Is("2305320")),
    ]
}
