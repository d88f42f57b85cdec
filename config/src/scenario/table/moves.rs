//! Keys of workloads, faults and expectations.
//!
//! Each section has one array of [`Param`].
//!
//! Source: docs/spec/model.md §3.

use crate::param::{Initial, Param, restart};
use crate::value::Kind;

use super::net::RATE;
use Initial::{Derived, Fixed, Required, Unset};

/// Words of `kind` of a workload.
pub(crate) const WORKLOADS: &[&str] = &[
    "incast",
    "permutation",
    "uniform",
    "all-to-all",
    "ring-all-reduce",
    "point-to-point",
    "flows",
    "capture",
    "tcp",
];
/// Congestion controls that TCP connections can use.
pub(crate) const CONGESTION: &[&str] = &["cubic", "reno"];
/// Words of `kind` of a fault.
pub(crate) const FAULTS: &[&str] =
    &["bit-error", "frame-error", "link-down", "slow-receiver", "pause-storm"];

/// A list of names of hosts, as long as a network can have hosts.
const HOSTS: Kind = Kind::List(&Kind::Name, 1, 1_024);

pub(super) const WORKLOAD: &[Param] = &[
    restart(
        "kind",
        Kind::Word(WORKLOADS),
        "",
        Required,
        "incast: many to one. permutation: each host sends to one other and receives from one other, as the seed has it. uniform: messages to others drawn at random, at random times (Poisson). all-to-all: each to each other. ring-all-reduce: 2 (N - 1) steps around a ring, a host sends a chunk of bytes / N when it has that of the step before. point-to-point: one to one, one message after the other. flows: a CSV file. capture: a capture file. tcp: TCP connections to one host, beside RC Link on the same switches (docs/tcp.md).",
    ),
    restart(
        "name",
        Kind::Name,
        "",
        Derived("the kind, with a number where there are several"),
        "Its name in results.",
    ),
    restart(
        "hosts",
        HOSTS,
        "",
        Derived("all hosts"),
        "Who takes part; for permutation, uniform, all-to-all and ring-all-reduce (the ring, in its order).",
    ),
    restart(
        "from",
        Kind::OneOr(&Kind::Name, 1, 1_024),
        "",
        Derived("all but the receiver, for incast and tcp"),
        "Senders of an incast or of tcp, or the sender of point-to-point.",
    ),
    restart(
        "to",
        Kind::Name,
        "",
        Unset(
            "it must be given for incast, point-to-point and tcp; of a capture each destination address is another host",
        ),
        "The receiver.",
    ),
    restart(
        "bytes",
        Kind::Size,
        "bytes of payload",
        Unset("it must be given for all kinds but flows and capture, and tcp with a duration"),
        "Of each message: from each sender (incast), of each pair (all-to-all), that are reduced (ring-all-reduce); of each connection (tcp).",
    ),
    restart(
        "count",
        Kind::Int(1, 10_000_000),
        "messages",
        Fixed("1"),
        "Messages one after the other; for point-to-point.",
    ),
    restart(
        "load_gbps",
        RATE,
        "Gbit/s of payload",
        Unset("it must be given for uniform"),
        "Mean rate that each host offers; for uniform.",
    ),
    restart(
        "duration",
        Kind::Time,
        "time",
        Unset("it must be given for uniform, and for tcp without bytes"),
        "For so long messages arrive (uniform), or each connection sends what it can (tcp).",
    ),
    restart(
        "one_by_one",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether a host sends to one after the other, each when the one before is acknowledged; for all-to-all.",
    ),
    restart(
        "file",
        Kind::Path,
        "file",
        Unset("it must be given for flows and capture"),
        "Beside the scenario file. flows: CSV with the columns from, to, bytes and start_us; or `flow.txt` of HPCC, or `.cm` of htsim. capture: pcap or pcapng, also packed by gzip or zstd, or one interface of it (FILE#NUMBER, FILE#NAME), whose frames become messages of their lengths at their times, from `from` to `to`, or to the hosts beside it by number, one for each destination address in the order in which they come.",
    ),
    restart("start", Kind::Time, "time", Fixed("\"0s\""), "When its first messages begin."),
    restart(
        "connections",
        Kind::Int(1, 64_512),
        "",
        Fixed("1"),
        "TCP connections of each sender, all at once; for tcp.",
    ),
    restart(
        "congestion",
        Kind::Word(CONGESTION),
        "",
        Fixed("\"cubic\""),
        "Congestion control: CUBIC (RFC 9438) or Reno (RFC 5681); for tcp.",
    ),
    restart(
        "mss",
        Kind::Int(536, 8_960),
        "bytes of payload",
        Fixed("1460"),
        "Most of a segment, whose frame has 54 bytes more; for tcp.",
    ),
    restart(
        "dscp",
        Kind::Int(0, 63),
        "",
        Fixed("0"),
        "DSCP of all packets, which classify maps to a priority; for tcp.",
    ),
    restart(
        "receive_buffer",
        Kind::Size,
        "bytes",
        Fixed("\"1MiB\""),
        "What the receiver's window tells, 17920 to 1GiB; for tcp.",
    ),
    restart(
        "send_buffer",
        Kind::Size,
        "bytes",
        Fixed("\"1MiB\""),
        "What a sender keeps until it is acknowledged, 17920 to 1GiB; for tcp.",
    ),
    restart(
        "rto_min",
        Kind::Time,
        "time",
        Fixed("\"1ms\""),
        "Least time without an acknowledgement after which a segment is sent again, the first one included, 1us to 60s; for tcp.",
    ),
    restart(
        "ack_delay",
        Kind::Time,
        "time",
        Fixed("\"0s\""),
        "For so long an acknowledgement of one segment waits for the next one; 0 acknowledges each; for tcp.",
    ),
];

pub(super) const FAULT: &[Param] = &[
    restart(
        "kind",
        Kind::Word(FAULTS),
        "",
        Required,
        "bit-error, frame-error: frames on a link, both ways, are damaged at random. link-down: what is on a link is lost. slow-receiver: a host takes frames out of its receive buffer slowly. pause-storm: a host sends PAUSE without end.",
    ),
    restart(
        "link",
        Kind::List(&Kind::Name, 2, 2),
        "",
        Unset("it must be given for bit-error, frame-error and link-down"),
        "Names of the nodes at its ends; of several links between them it is the first one.",
    ),
    restart(
        "host",
        Kind::Name,
        "",
        Unset("it must be given for slow-receiver and pause-storm"),
        "Which host.",
    ),
    restart(
        "rate",
        Kind::Num(1e-18, 1.0),
        "",
        Unset("it must be given for bit-error and frame-error"),
        "Chance that a bit (bit-error) or frame (frame-error) is damaged, as 1e-12.",
    ),
    restart(
        "drain_gbps",
        RATE,
        "Gbit/s",
        Unset("it must be given for slow-receiver"),
        "How fast frames are taken out; for slow-receiver.",
    ),
    restart(
        "classes",
        Kind::List(&Kind::Int(0, 7), 1, 8),
        "PFC classes",
        Derived("all"),
        "Which classes are stopped; for pause-storm.",
    ),
    restart(
        "from",
        Kind::Time,
        "time",
        Fixed("\"0s\""),
        "From when; for link-down and pause-storm.",
    ),
    restart(
        "until",
        Kind::Time,
        "time",
        Derived("the end of the run"),
        "Until when; for link-down and pause-storm.",
    ),
];

pub(super) const EXPECT: &[Param] = &[
    restart("metric", Kind::Line, "", Required, "Name of a metric, as `weft sim run` lists them."),
    restart("value", Kind::Num(-1e15, 1e15), "the metric's", Required, "Its value."),
    restart(
        "tolerance",
        Kind::Tolerance,
        "",
        Fixed("0"),
        "How far off it may be: a part of the value, or in its unit; or the value is the least or the most.",
    ),
    restart(
        "source",
        Kind::Line,
        "",
        Unset("not said"),
        "Where the value is from: a formula, a page, another simulator's run.",
    ),
];
