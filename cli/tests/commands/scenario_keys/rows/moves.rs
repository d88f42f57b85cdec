//! Keys of workloads, faults and expectations.
//!
//! Source: docs/spec/model.md §3.

use super::*;

/// Each to each other, one after the other or at once.
const ALL: &str = "
[net]
generate = 'single'
hosts = 4
[[workload]]
kind = 'all-to-all'
bytes = 13440
";

const UNIFORM: &str = "
[net]
generate = 'single'
hosts = 4
[[workload]]
kind = 'uniform'
bytes = 1344
load_gbps = 100
duration = '10us'
";

const SEVERAL: &str = "
[net]
generate = 'single'
hosts = 4
[[workload]]
kind = 'incast'
to = 'h0'
from = ['h1', 'h2']
bytes = 13440
";

const FILE: &str = "
[net]
generate = 'single'
hosts = 2
[[workload]]
kind = 'flows'
file = 'one.csv'
";

/// Frames are damaged on a link, one in 50.
const DAMAGED: &str = "
[net]
generate = 'single'
hosts = 3
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 1344000
[[fault]]
kind = 'frame-error'
link = ['h0', 'sw']
rate = 0.02
";

const DOWN: &str = "
[net]
generate = 'single'
hosts = 2
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 1344000
[[fault]]
kind = 'link-down'
link = ['h0', 'sw']
from = '10us'
until = '20us'
";

const SLOW: &str = "
[net]
generate = 'single'
hosts = 3
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 1344000
[[fault]]
kind = 'slow-receiver'
host = 'h1'
drain_gbps = 100
";

const STORM: &str = "
[net]
generate = 'single'
hosts = 2
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 134400
[[fault]]
kind = 'pause-storm'
host = 'h1'
from = '0s'
until = '50us'
";

/// One TCP connection of 200,000 bytes over 400 Gbit/s.
const TCP: &str = "
[net]
generate = 'single'
hosts = 3
link_m = 1000
[[workload]]
kind = 'tcp'
from = 'h1'
to = 'h0'
bytes = 200000
";

/// TCP connections that lose frames.
const TCP_LOSSES: &str = "
[net]
generate = 'single'
hosts = 2
[[workload]]
kind = 'tcp'
to = 'h0'
bytes = 2000000
[[fault]]
kind = 'frame-error'
link = ['h1', 'sw']
rate = 0.02
";

const EXPECTED: &str = "
[net]
generate = 'single'
hosts = 2
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 13440
[[expect]]
metric = 'dropped_frames'
value = 1
source = 'one'
";

pub fn rows() -> Vec<Row> {
    [workload(), tcp(), fault(), expect()].into_iter().flatten().collect()
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn workload() -> Vec<Row> {
    const FLOWS: Look = At("/summary/flows");
    vec![
        row("workload.kind", "'permutation'", ALL, FLOWS, Is("4")),
        row("workload.name", "'mine'", EXPECTED, At("/expectations/0/found"), Is("1")).beside(&["expect.metric='mine.flows'"]),
        row("workload.hosts", "['h1', 'h3']", ALL, FLOWS, Is("2")),
        row("workload.from", "['h1', 'h2', 'h3']", SEVERAL, FLOWS, Is("3")),
        row("workload.to", "'h3'", SEVERAL, At("/flows/0/to"), Is("3")),
        row("workload.bytes", "1344", PAIR, LAST, Is("776880")), // 2 x (28.44 + 50) + 500 + 2 x 60 ns
        row("workload.count", "3", PAIR, FLOWS, Is("3")),
        row("workload.load_gbps", "200", UNIFORM, FLOWS, More),
        row("workload.duration", "'20us'", UNIFORM, FLOWS, More),
        row("workload.one_by_one", "true", ALL, LAST, Less), // nobody waits at an output
        row("workload.file", "'two.csv'", FILE, FLOWS, Is("2")),
        row("workload.start", "'3us'", PAIR, At("/flows/0/start_ps"), Is("3000000")),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn tcp() -> Vec<Row> {
    vec![
        row("workload.connections", "3", TCP, At("/summary/flows"), Is("3")),
        row("workload.congestion", "'reno'", TCP_LOSSES, LAST, Other),
        row("workload.mss", "536", TCP, Hosts("tcp_tx_segments"), More),
        row("workload.dscp", "40", TCP, Look::Pris(0), Is("[3]")), // VC 5
        row("workload.receive_buffer", "20000", TCP, LAST, More), // 13 segments a round trip
        row("workload.send_buffer", "20000", TCP, LAST, More),
        row("workload.rto_min", "'5ms'", TCP_LOSSES, LAST, More),
        row("workload.ack_delay", "'500us'", TCP, Hosts("tcp_rx_segments"), Less),
        row("workload.from", "['h1', 'h2']", TCP, At("/summary/flows"), Is("2")),
        row("workload.duration", "'20us'", TCP, LAST, Refused("expected none beside bytes")),
        row("workload.rto_min", "'0us'", TCP, LAST, Refused("expected 1us to 60s")),
        row("workload.send_buffer", "1000", TCP, LAST, Refused("expected 17920 to 1073741824 bytes")),
        row("workload.ack_delay", "'1ms'", TCP, LAST, Refused("expected less than rto_min")),
        row("workload.mss", "1000", PAIR, LAST, Refused("expected none with kind = \"point-to-point\": it is for tcp")),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn fault() -> Vec<Row> {
    vec![
        row("fault.kind", "'bit-error'", DAMAGED, Hosts("resent"), More), // one in 50 bits: nearly none is whole
        row("fault.link", "['h2', 'sw']", DAMAGED, Hosts("resent"), Is("0")),
        row("fault.rate", "0.1", DAMAGED, Hosts("resent"), More),
        row("fault.host", "'h2'", SLOW, LAST, Is("29188440")), // 1,001 S + 720 ns: nobody sends to it
        row("fault.drain_gbps", "200", SLOW, LAST, Less),
        row("fault.classes", "[7]", STORM, LAST, Is("3592440")), // 101 S + 720 ns: requests are of class 3
        row("fault.from", "'15us'", DOWN, LAST, Other),
        row("fault.until", "'40us'", DOWN, LAST, More),
    ]
}

#[rustfmt::skip] // columns: key, value, scenario, what is looked at, what it becomes
fn expect() -> Vec<Row> {
    const PASSED: Look = At("/expectations/0/passed");
    vec![
        row("expect.metric", "'flows'", EXPECTED, PASSED, Is("true")),
        row("expect.value", "0", EXPECTED, PASSED, Is("true")),
        row("expect.tolerance", "'at most'", EXPECTED, PASSED, Is("true")),
        row("expect.source", "'two'", EXPECTED, At("/expectations/0/source"), Is("two")),
    ]
}
