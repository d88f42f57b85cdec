//! Parameters of buffer, crossbar, ECN, WRED and PFC.
//!
//! Each section has one array of [`Param`].
//!
//! Source: docs/spec/pipeline.md §4, §6, §8 and §9.

use weft_dataplane::config::{EcnMark, Sharing, StormAction};

use super::super::choice::{Choice, DisciplineName, PfcModeName};
use super::super::param::{Initial, Param, hot, restart};
use super::super::value::Kind;
use super::{CLASS, PRI};

use Initial::{ByPris, Derived, Fixed};

const PERCENT: Kind = Kind::Int(0, 100);
const ALPHA: Kind = Kind::Ratio(1_024, 64);
const OF_QUEUE: &str = "% of buffer.queue_capacity_bytes";

pub(super) const BUFFER: &[Param] = &[
    restart(
        "buffer_size_mb",
        Kind::Int(1, 65_536),
        "MiB",
        Derived("32 MiB to share, with all headroom and reserves on top"),
        "Size of the whole buffer, with headroom and reserves.",
    ),
    restart(
        "shared_cells",
        Kind::Int(1, 1 << 24),
        "cells",
        Derived("what buffer_size_mb leaves"),
        "Cells to share, exactly, with all headroom and reserves on top: buffer_size_mb follows from it.",
    ),
    restart(
        "cell_bytes",
        Kind::Int(64, 16_384),
        "bytes",
        Derived("one chunk of the pool when live, 256 in virtual time"),
        "Unit in which the buffer is accounted for; it changes no time.",
    ),
    restart(
        "buffer_sharing",
        Kind::Word(Sharing::NAMES),
        "",
        Fixed("\"dt\""),
        "Dynamic thresholds, or the same fixed share for each VOQ; a port has no VOQ to itself, unless TLPs are switched.",
    ),
    hot(
        "dt_alpha",
        Kind::OneOr(&ALPHA, 4, 8),
        "",
        Fixed("1"),
        "How much a queue may take beyond its reserve, as a multiple of the free part of the buffer: for all priorities, or one for each.",
    ),
    restart(
        "voq_reserve_bytes",
        Kind::Int(0, 1 << 30),
        "bytes",
        Fixed("0"),
        "Reserve of each VOQ of a lossy priority.",
    ),
    restart(
        "pg_reserve_bytes",
        Kind::Int(0, 1 << 30),
        "bytes",
        Fixed("4096"),
        "Reserve of each ingress group (input, lossless priority).",
    ),
    restart(
        "headroom_bytes",
        Kind::Int(0, 1 << 40),
        "bytes",
        Derived("what a port's peer can send until a PAUSE has stopped it"),
        "Headroom of each ingress group, for frames received after XOFF.",
    ),
    restart(
        "peer_response_us",
        Kind::Num(0.0, 1_000_000.0),
        "us",
        Derived(
            "10000 when live; in virtual time 1 less fixed_latency_ns, or what neighbours take if that is more",
        ),
        "Longest time from a PAUSE's arrival at the peer to its last frame; for headroom.",
    ),
    restart(
        "cable_m",
        Kind::Num(0.0, 100_000.0),
        "m",
        Fixed("10"),
        "Length of the longest cable at 5 ns/m, in virtual time; for headroom.",
    ),
    hot(
        "xon_offset_bytes",
        Kind::Int(0, 1 << 40),
        "bytes",
        Derived("two largest frames"),
        "How far below its XOFF an ingress group is released; checked after each burst was sent, in virtual time after each frame.",
    ),
    hot(
        "queue_capacity_bytes",
        Kind::Int(1, 1 << 40),
        "bytes",
        Derived("what is shared / (2 x ports)"),
        "Queue size (output, priority) that ECN and PFC percentages refer to.",
    ),
];

pub(super) const CROSSBAR: &[Param] = &[
    hot(
        "iterations",
        Kind::Int(1, 4),
        "",
        Fixed("2"),
        "Rounds of request, grant and accept in a slot.",
    ),
    hot(
        "discipline",
        Kind::Word(DisciplineName::NAMES),
        "",
        Fixed("\"strict\""),
        "Higher priorities always first, or by weights.",
    ),
    hot(
        "weights",
        Kind::List(&Kind::Int(1, 1_000_000), 4, 8),
        "matches in a round",
        ByPris("[1, 2, 4, 8]", "[1, 1, 2, 2, 4, 4, 8, 8]"),
        "Weight of each priority, lowest first; for discipline weighted only.",
    ),
    hot(
        "speedup",
        Kind::Int(1, 8),
        "",
        Fixed("2"),
        "In virtual time, a match takes its input and its output for the frame's wire time at the port's own rate, divided by this.",
    ),
    hot(
        "burst",
        Kind::Int(1, 64),
        "frames",
        Derived("64 when live, 1 in virtual time"),
        "Maximum number of frames that one match moves.",
    ),
    restart(
        "egress_queue_frames",
        Kind::Int(1, 4_096),
        "frames",
        Derived("64 when live, 32 in virtual time"),
        "Capacity of an egress queue (output, priority).",
    ),
];

pub(super) const ECN: &[Param] = &[
    hot("ecn_enabled", Kind::Bool, "", Fixed("true"), "Whether ECN marks frames."),
    hot("ecn_threshold_low", PERCENT, OF_QUEUE, Fixed("50"), "Depth at which marking begins."),
    hot(
        "ecn_threshold_high",
        PERCENT,
        OF_QUEUE,
        Fixed("80"),
        "Depth from which all frames are marked.",
    ),
    hot(
        "max_percent",
        PERCENT,
        "%",
        Fixed("100"),
        "Share of frames that is marked just below ecn_threshold_high; it rises from 0 at ecn_threshold_low.",
    ),
    hot(
        "mark",
        Kind::Word(EcnMark::NAMES),
        "",
        Fixed("\"ip\""),
        "Which frames may be marked if they are ECT: all of IPv4 and IPv6 behind one tag or none, or only UDP to a Standard port.",
    ),
];

const PERCENT_OF_PRI: Kind = Kind::OneOr(&PERCENT, 4, 8);

pub(super) const WRED: &[Param] = &[
    hot(
        "wred_enabled",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether lossy frames are dropped early that ECN does not mark: of senders without ECN, what is not IP, and all where ecn_enabled is off.",
    ),
    hot(
        "wred_priorities",
        Kind::List(&PRI, 1, 8),
        "priority",
        Derived("all that are lossy"),
        "Lossy priorities of which they are.",
    ),
    hot(
        "wred_threshold_low",
        PERCENT_OF_PRI,
        OF_QUEUE,
        Derived("ecn_threshold_low"),
        "Depth of (output, priority) at which early drops begin: for all priorities, or one for each.",
    ),
    hot(
        "wred_threshold_high",
        PERCENT_OF_PRI,
        OF_QUEUE,
        Derived("ecn_threshold_high"),
        "Depth from which all such frames are dropped: for all priorities, or one for each.",
    ),
    hot(
        "max_percent",
        PERCENT_OF_PRI,
        "%",
        Derived("ecn.max_percent"),
        "Share that is dropped just below wred_threshold_high; it rises from 0 at wred_threshold_low: for all priorities, or one for each.",
    ),
];

pub(super) const PFC: &[Param] = &[
    restart(
        "pfc_enabled",
        Kind::Bool,
        "",
        Fixed("true"),
        "Whether PAUSE is sent and obeyed; a port can opt out.",
    ),
    restart(
        "pfc_priorities",
        Kind::List(&PRI, 0, 8),
        "priority",
        ByPris("[1, 2]", "[1, 2, 3, 4]"),
        "Lossless priorities; they have headroom.",
    ),
    hot(
        "pri_to_pfc",
        Kind::List(&Kind::List(&CLASS, 0, 8), 4, 8),
        "PFC classes",
        Derived("every PCP that pcp_to_pri sends to the priority"),
        "For each priority, the classes that the switch's own PAUSE names. A received PAUSE is mapped by classify.pcp_to_pri.",
    ),
    hot(
        "mode",
        Kind::Word(PfcModeName::NAMES),
        "",
        Fixed("\"ingress-pg\""),
        "What decides about PAUSE: an ingress group's limit, or an output queue's depth.",
    ),
    hot(
        "pfc_threshold",
        PERCENT,
        OF_QUEUE,
        Fixed("85"),
        "XOFF: when a frame raises the depth above it, PAUSE is sent to all inputs that have frames there, VOQ and egress queue together; for mode egress-queue only.",
    ),
    hot(
        "pfc_release",
        PERCENT,
        OF_QUEUE,
        Fixed("65"),
        "XON: when a frame lowers the depth below it, the release is sent; for mode egress-queue only.",
    ),
    hot(
        "watchdog_detect_ms",
        Kind::Int(0, 3_600_000),
        "ms",
        Fixed("200"),
        "A pause of this length is a storm; 0 turns detection off.",
    ),
    hot(
        "watchdog_restore_ms",
        Kind::Int(1, 3_600_000),
        "ms",
        Fixed("400"),
        "Time without pause after which a storm is over.",
    ),
    hot(
        "watchdog_action",
        Kind::Word(StormAction::NAMES),
        "",
        Fixed("\"drop\""),
        "What happens to frames that a storm blocks.",
    ),
];
