//! The rows: the effect of each key of a scenario.
//!
//! Lists of [`Row`], and the scenarios that they change.
//!
//! Source: docs/spec/model.md §2, §3, §4.

mod endpoint;
mod moves;
mod net;
mod switch;

pub use net::GRAPH;

use super::{Look, Row, Want};
use Look::{At, Hosts, Pris, Work};
use Want::{Is, Less, More, Other, Refused};

/// All rows.
pub fn rows() -> Vec<Row> {
    [net::rows(), switch::rows(), endpoint::rows(), moves::rows()].into_iter().flatten().collect()
}

/// Time at which the last flow is delivered.
pub const LAST: Look = At("/summary/fct_ps/max");
/// Time at which the last flow is acknowledged.
const ACKNOWLEDGED: Look = At("/summary/fct_sender_ps/max");
const MARKED: Look = At("/summary/ecn_marked_frames");
const DROPPED: Look = At("/summary/dropped_frames");
const PFC_TX: Look = At("/summary/pfc_tx_frames");
const PAUSED: Look = At("/summary/host_paused_ps");

const fn row(
    key: &'static str,
    value: &'static str,
    base: &'static str,
    look: Look,
    want: Want,
) -> Row {
    Row { key, value, base, beside: &[], look, want }
}

/// Ten frames over one switch, S = 28.44 ns each: 11 S + 2 x 50 + 500 + 2 x 60 = 1,032.84 ns.
pub const PAIR: &str = "
[net]
generate = 'single'
hosts = 2
[[workload]]
kind = 'point-to-point'
from = 'h0'
to = 'h1'
bytes = 13440
";

/// Eight to one with little buffer, so that inputs are paused and frames marked.
const INCAST: &str = "
[net]
generate = 'single'
hosts = 9
[buffer]
buffer_size_mb = 4
queue_capacity_bytes = 200000
[[workload]]
kind = 'incast'
to = 'h0'
bytes = 268800
";

/// The same with as much buffer as there is by default.
const UNSIZED: &str = "
[net]
generate = 'single'
hosts = 9
[[workload]]
kind = 'incast'
to = 'h0'
bytes = 268800
";

/// The same without PFC and without priorities that are spared.
const LOSSY: &str = "
[net]
generate = 'single'
hosts = 9
[buffer]
buffer_size_mb = 1
[pfc]
pfc_enabled = false
[[workload]]
kind = 'incast'
to = 'h0'
bytes = 268800
";
