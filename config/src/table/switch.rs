//! Parameters of the switch as a whole: threads, formats, classes, forwarding.
//!
//! Each section has one array of [`Param`].
//!
//! Source: docs/spec/pipeline.md §1 to §3, §11 and §12; docs/spec/wire-formats.md §1.

use weft_parsers::Gen2Order;
use weft_parsers::vlan::Tpids;

use super::super::choice::{
    Choice, ForwardingMode, LogFormat, LogLevel, LoopAction, Poll, UnknownUnicast,
};
use super::super::param::{Initial, Param, hot, restart};
use super::super::value::Kind;
use super::PRI;

use Initial::{ByPris, Derived, Fixed, Required, Unset};

pub(crate) const SWITCH: &[Param] = &[
    restart("name", Kind::Name, "", Fixed("\"weft\""), "Name of the switch; names its socket too."),
    restart(
        "num_priorities",
        Kind::IntOf(&[4, 8]),
        "",
        Fixed("4"),
        "Switch-internal priorities; 0 is the lowest.",
    ),
    restart(
        "forwarding_mode",
        Kind::Word(ForwardingMode::NAMES),
        "",
        Fixed("\"store-and-forward\""),
        "When a frame is forwarded: when it is completely received or, in virtual time, when its header is in and its output can start.",
    ),
    restart(
        "allow_store_and_forward",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether a live switch, whose ports pass whole frames only, takes forwarding_mode = \"cut-through\" as store-and-forward; without it, it refuses it.",
    ),
    restart(
        "fixed_latency_ns",
        Kind::Int(0, 1_000_000),
        "ns",
        Fixed("500"),
        "Time of a frame from its last received bit to the crossbar, in virtual time.",
    ),
    restart(
        "t_ingress_ns",
        Kind::Int(0, 1_000_000),
        "ns",
        Unset("part of fixed_latency_ns"),
        "With t_crossbar_ns, in place of fixed_latency_ns: time in parser and look-up; usual are 50 to 200.",
    ),
    restart(
        "t_crossbar_ns",
        Kind::Int(0, 1_000_000),
        "ns",
        Unset("part of fixed_latency_ns"),
        "With t_ingress_ns, in place of fixed_latency_ns: time from there to the crossbar; usual are 10 to 50.",
    ),
    restart(
        "wire_overhead",
        Kind::Bool,
        "",
        Fixed("true"),
        "Whether the least size, preamble and gap take time on a wire, in virtual time; without, only a frame's bytes with its FCS do.",
    ),
    restart(
        "max_frame",
        Kind::Int(64, 9_728),
        "bytes without FCS",
        Fixed("1522"),
        "Longest frame of any port; decides the size of the pool's chunks.",
    ),
    restart(
        "tx_ring_frames",
        Kind::Int(1, 64),
        "frames",
        Fixed("64"),
        "Frames that are handed to a device in advance; a PAUSE does not stop them any more.",
    ),
    restart(
        "seed",
        Kind::Int(0, i64::MAX),
        "",
        Fixed("1"),
        "Seed of all random decisions: ECN marks, hashes.",
    ),
];

pub(super) const RUN: &[Param] = &[
    restart(
        "workers",
        Kind::Int(1, 64),
        "threads",
        Fixed("1"),
        "Poll-mode threads; ports are assigned to them in turn.",
    ),
    restart(
        "cores",
        Kind::List(&Kind::Int(0, 1_023), 0, 64),
        "CPU numbers",
        Fixed("[]"),
        "Processors that workers are bound to, in order, each once; empty: the last ones that the process may use. One that the machine does not have is refused, one that the process may not use is a warning.",
    ),
    restart(
        "priority",
        Kind::Priority,
        "nice value",
        Unset("that of the process"),
        "Priority of workers: a nice value, or \"rr\", the policy SCHED_RR, which comes before all processes of the normal one. Below the nice value of the process, and for \"rr\", it takes CAP_SYS_NICE or a limit (docs/privileges.md).",
    ),
    restart(
        "pause_guard",
        Kind::Bool,
        "",
        Fixed("true"),
        "Whether a thread of its own pauses the peers of lossless ports while a worker is away and their receive rings fill, so that these do not run over (docs/running.md).",
    ),
    restart(
        "poll",
        Kind::Word(Poll::NAMES),
        "",
        Fixed("\"adaptive\""),
        "Whether an idle worker sleeps until there is work, or polls without a pause.",
    ),
    restart(
        "socket",
        Kind::Path,
        "file",
        Derived("/run/weft/NAME/mgmt.sock, or below $XDG_RUNTIME_DIR when not root"),
        "Management socket; its directory is made with mode 0700.",
    ),
    restart(
        "metrics",
        Kind::Socket,
        "address:port",
        Unset("no metrics server"),
        "Where Prometheus reads metrics over HTTP, such as \"127.0.0.1:9460\", or \"9460\" on loopback.",
    ),
    restart(
        "user",
        Kind::Path,
        "USER or USER:GROUP",
        Unset("the user that starts it"),
        "User, by name or number, that the switch changes to; only root may set it. The directories of its sockets become this user's, and every file that it reads again or writes must be within this user's reach.",
    ),
    restart(
        "sandbox",
        Kind::Bool,
        "",
        Fixed("true"),
        "Whether the process drops all privileges that it does not need to open its devices again (docs/privileges.md).",
    ),
    restart(
        "log",
        Kind::Word(LogLevel::NAMES),
        "",
        Fixed("\"info\""),
        "Lowest level of events that are written to standard error.",
    ),
    restart(
        "log_format",
        Kind::Word(LogFormat::NAMES),
        "",
        Fixed("\"text\""),
        "Format of events on standard error: lines of text, or JSON objects, one a line.",
    ),
];

pub(super) const SAI: &[Param] = &[restart(
    "listen",
    Kind::Socket,
    "address:port",
    Unset("no SAI service"),
    "Where SAI's RPC is served, such as \"127.0.0.1:9092\", or \"9092\" on loopback. Whoever can connect can hold ports and read counters.",
)];

pub(super) const EXPRESS: &[Param] = &[restart(
    "enabled",
    Kind::Bool,
    "",
    Fixed("true"),
    "Whether the kernel may forward frames by itself that the whole pipeline would forward at once and unchanged.",
)];

pub(super) const DPDK: &[Param] = &[restart(
    "eal_args",
    Kind::List(&Kind::Path, 0, 64),
    "",
    Fixed("[\"--in-memory\", \"--no-telemetry\"]"),
    "Arguments of DPDK's environment; a core (-l) and \"-a 0000:00:00.0\", so that DPDK opens only devices of ports, are added unless they are given.",
)];

pub(super) const FORMATS: &[Param] = &[
    hot(
        "gen2_order",
        Kind::Word(Gen2Order::NAMES),
        "",
        Fixed("\"slap\""),
        "Which bytes of AFH_GEN2 and Lite carry Key_words and Traffic Class.",
    ),
    hot(
        "tpid",
        Kind::OneOr(&Kind::EtherType, 1, Tpids::MAX),
        "EtherType",
        Fixed("0x8100"),
        "EtherType of VLAN tags, or a list of up to four: [0x8100, 0x88A8] reads service tags, too. All name VLANs of one space; a tag that is added has the first, one that is kept or gets another VID has its own.",
    ),
    hot(
        "mac_type1",
        Kind::EtherType,
        "EtherType",
        Fixed("0x88B5"),
        "EtherType of AFH frames of TYPE1.",
    ),
    hot(
        "mac_type2",
        Kind::EtherType,
        "EtherType",
        Fixed("0x88B6"),
        "EtherType of AFH frames of TYPE2.",
    ),
    hot(
        "udp_type1_port",
        Kind::Int(1, 65_535),
        "UDP port",
        Fixed("4791"),
        "Destination port of Standard frames of TYPE1.",
    ),
    hot(
        "udp_type2_port",
        Kind::Int(0, 65_535),
        "UDP port",
        Fixed("0"),
        "Destination port of Standard frames of TYPE2; 0 for none.",
    ),
];

pub(super) const CLASSIFY: &[Param] = &[
    hot(
        "pcp_to_pri",
        Kind::List(&PRI, 8, 8),
        "priority",
        ByPris("[0, 1, 0, 2, 2, 3, 3, 3]", "[0, 1, 2, 3, 4, 5, 6, 7]"),
        "Priority of each PCP; a class of a received PAUSE is mapped the same way, whatever pri_to_pfc says.",
    ),
    hot(
        "dscp_to_pri",
        Kind::List(&PRI, 64, 64),
        "priority",
        Derived("the top three bits of the DSCP, taken as a PCP"),
        "Priority of each DSCP.",
    ),
    hot(
        "tc_to_pri",
        Kind::List(&PRI, 64, 64),
        "priority",
        Derived("with 4 priorities by flow TC[4:2]: 1 to 3, 0 to 2, others to 0; with 8: TC[7:5]"),
        "Priority of each AFH Traffic Class, by TC[7:2].",
    ),
    hot(
        "exp_to_pri",
        Kind::List(&PRI, 8, 8),
        "priority",
        Derived("the EXP, taken as a PCP"),
        "Priority of each EXP (Traffic Class) of the top MPLS label.",
    ),
    hot(
        "pri_to_pg",
        Kind::List(&Kind::Int(0, 7), 4, 8),
        "priority group",
        Derived("the number of the priority"),
        "For each priority, the priority group (PG) that its frames are counted in at their input, by the SAI service and in reports. A lossless priority has a group to itself.",
    ),
];

pub(super) const FDB: &[Param] = &[
    restart(
        "capacity",
        Kind::Int(64, 1 << 20),
        "entries",
        Fixed("65536"),
        "Capacity of the FDB, with static entries.",
    ),
    hot(
        "ageing_s",
        Kind::Int(0, 1_000_000),
        "s",
        Fixed("300"),
        "Life of a learned entry after its station's last frame, at most 1.1 s longer: ages are counted in ticks of 0.55 s. 0 is for ever.",
    ),
    hot(
        "unknown_unicast",
        Kind::Word(UnknownUnicast::NAMES),
        "",
        Fixed("\"flood\""),
        "What happens to frames to unknown stations.",
    ),
    hot(
        "reserved_groups",
        Kind::List(&Kind::ReservedGroup, 0, 15),
        "groups",
        Fixed("[]"),
        "Reserved groups (IEEE 802.1Q, 8.6.3) that are forwarded like other groups instead of dropped: \"lldp\", \"lacp\", \"eapol\", \"stp\", or an address 01:80:c2:00:00:00 to 0f, but not that of PAUSE (01).",
    ),
    hot(
        "loop_action",
        Kind::Word(LoopAction::NAMES),
        "",
        Fixed("\"block\""),
        "What is done against a loop: the port by which it comes in is blocked, or the loop is only reported.",
    ),
    hot(
        "loop_probe",
        Kind::Bool,
        "",
        Derived("true; false with sai.listen, whose tests count every frame"),
        "Whether a running switch proves a loop that it suspects: it sends up to three probes (EtherType 0x9000) by the ports in question, and the port by which one comes in is part of a loop. Without, and at lite ports, a station that moves between two ports more than 10 times within a second is the proof, which a neighbour can forge.",
    ),
    hot(
        "loop_block_s",
        Kind::Int(1, 86_400),
        "s",
        Fixed("10"),
        "How long a port is blocked; for loop_action block only.",
    ),
    hot(
        "sticky_s",
        Kind::Int(0, 86_400),
        "s",
        Fixed("10"),
        "How long a station that moves so often is held where it was before; 0 turns this off.",
    ),
];

pub(super) const STATIC_ENTRY: &[Param] = &[
    hot("addr", Kind::Addr, "", Required, "Address of the station, in its own space."),
    hot("port", Kind::Name, "", Unset("`ports` is given"), "Port or LAG that it is behind."),
    hot(
        "ports",
        Kind::List(&Kind::Name, 2, 64),
        "",
        Unset("`port` is given"),
        "Ports or LAGs that it is behind, instead of `port`: each flow takes one, by its hash.",
    ),
    hot("vid", Kind::Int(1, 4_094), "VLAN", Fixed("1"), "Its VLAN."),
];

pub(super) const LAG: &[Param] = &[
    restart(
        "name",
        Kind::Name,
        "",
        Required,
        "Name of the LAG; static entries and groups may name it.",
    ),
    restart(
        "ports",
        Kind::List(&Kind::Name, 2, 64),
        "",
        Required,
        "Its ports; alike in rate, longest frame, AFH mode, VLANs and flow control.",
    ),
];

pub(super) const GROUP: &[Param] = &[
    hot(
        "addr",
        Kind::Addr,
        "",
        Required,
        "Address of the group as `weft decode` shows it; of GEN1 all 48 bits, of 16-bit ids its id.",
    ),
    hot(
        "ports",
        Kind::List(&Kind::Name, 0, 64),
        "",
        Required,
        "Ports or LAGs that its frames go to; none drops them.",
    ),
    hot("vid", Kind::Int(1, 4_094), "VLAN", Fixed("1"), "Its VLAN."),
];
