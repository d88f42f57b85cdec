//! Parameters of a port.
//!
//! Keys that identify a port stand apart from those that it can also take from `[port_defaults]`.
//!
//! Source: docs/spec/pipeline.md §1 to §3, §7, §11.

use weft_dataplane::egress::Weighted;
use weft_dataplane::port::af_xdp::AttachTo;
use weft_parsers::{AfhMode, PriSource};

use super::super::choice::{Choice, DeviceKind, FlowControl, VlanMode};
use super::super::param::{Initial, Param, hot, restart};
use super::super::value::Kind;
use super::PRI;

use Initial::{ByPris, Derived, Fixed, Required, Unset};

/// Keys that only `[[port]]` has, not `[port_defaults]`.
pub const PORT_KEYS: &[&str] = &["name", "kind", "device", "mac"];

pub(super) const IDENTITY: &[Param] = &[
    restart("name", Kind::Name, "", Required, "Name of the port in every command and output."),
    restart(
        "kind",
        Kind::Word(DeviceKind::NAMES),
        "",
        Fixed("\"auto\""),
        "Kind of port: an interface by AF_XDP, by a packet socket, or (auto) by the better one that works; a tap, a sink, capture files, or a DPDK device.",
    ),
    restart(
        "device",
        Kind::Path,
        "",
        Derived("the port's name"),
        "Interface, tap, capture files (IN, IN#INTERFACE, IN:OUT or :OUT, IN played once at its stamps), or DPDK's virtual device with arguments or PCI address.",
    ),
    restart(
        "mac",
        Kind::Mac,
        "",
        Derived("the interface's own when live, else one made from switch name and port number"),
        "Address that PFC frames come from and may be sent to.",
    ),
];

const RATE: Kind = Kind::Num(0.001, 10_000.0);
const WEIGHT: Kind = Kind::Int(1, 1_000_000);

pub(super) const SETTINGS: &[Param] = &[
    restart(
        "port_bandwidth_gbps",
        RATE,
        "Gbit/s",
        Fixed("1"),
        "Rate of the link: for pause times, headroom, and wire time in virtual time.",
    ),
    hot(
        "afh",
        Kind::Word(AfhMode::NAMES),
        "",
        Fixed("\"auto\""),
        "AFH format beside Ethernet and Standard; auto tells gen1 from gen2 by bytes 0 and 6 (Key_words: 0x82, 0x83) and is never lite. A lite port classifies every frame as Lite, and sends no others.",
    ),
    hot(
        "trust",
        Kind::List(&Kind::Word(PriSource::NAMES), 0, PriSource::COUNT),
        "",
        Fixed("[\"pcp\", \"dscp\", \"tc\"]"),
        "Fields that can decide the priority; the first one that a frame carries decides. exp is that of the top MPLS label (EtherType 0x8847 or 0x8848); lite ports have none.",
    ),
    hot("default_pri", PRI, "priority", Fixed("0"), "Priority of frames that carry none of them."),
    restart(
        "flow_control",
        Kind::Word(FlowControl::NAMES),
        "",
        Fixed("\"pfc\""),
        "PFC on this port, or none. cbfc is refused: its credits are end to end, and the switch has none.",
    ),
    hot(
        "max_frame",
        Kind::Int(64, 9_728),
        "bytes without FCS",
        Derived("switch.max_frame"),
        "Longest frame received or sent here. A tag that is added counts, one that is removed does not.",
    ),
    hot(
        "vlan",
        Kind::Word(VlanMode::NAMES),
        "",
        Fixed("\"transparent\""),
        "How tags are treated: unchanged, in every VLAN; one untagged VLAN; or several tagged ones. A tag that is added has the lowest PCP of the frame's priority.",
    ),
    hot(
        "pvid",
        Kind::Int(1, 4_094),
        "VLAN",
        Fixed("1"),
        "VLAN of frames without a VID; for transparent and access only.",
    ),
    hot("allowed", Kind::Vids, "VLANs", Fixed("[\"1-4094\"]"), "VLANs of a trunk; for trunk only."),
    hot(
        "native",
        Kind::Int(1, 4_094),
        "VLAN",
        Unset("frames without a VID are dropped"),
        "Untagged VLAN of a trunk; for trunk only.",
    ),
    hot(
        "max_learned",
        Kind::Int(0, 1 << 20),
        "entries",
        Derived("a fair share: fdb.capacity / ports"),
        "Maximum number of addresses learned here, from any frame, also from those to 01-80-C2-00-00-0X; a LAG learns as many as its ports together.",
    ),
    hot(
        "storm_broadcast",
        Kind::Int(0, 1_000_000_000),
        "frames/s",
        Unset("no limit"),
        "Maximum rate of broadcast frames accepted.",
    ),
    hot(
        "storm_unknown_unicast",
        Kind::Int(0, 1_000_000_000),
        "frames/s",
        Unset("no limit"),
        "Maximum rate of frames to unknown stations accepted.",
    ),
    hot(
        "storm_multicast",
        Kind::Int(0, 1_000_000_000),
        "frames/s",
        Unset("no limit"),
        "Maximum rate of multicast frames accepted.",
    ),
    hot(
        "storm_broadcast_mbps",
        Kind::Num(0.0, 10_000_000.0),
        "Mbit/s",
        Unset("no limit"),
        "Maximum rate of broadcast accepted; instead of storm_broadcast.",
    ),
    hot(
        "storm_unknown_unicast_mbps",
        Kind::Num(0.0, 10_000_000.0),
        "Mbit/s",
        Unset("no limit"),
        "Maximum rate of unknown unicast accepted; instead of storm_unknown_unicast.",
    ),
    hot(
        "storm_multicast_mbps",
        Kind::Num(0.0, 10_000_000.0),
        "Mbit/s",
        Unset("no limit"),
        "Maximum rate of multicast accepted; instead of storm_multicast.",
    ),
    hot(
        "strict",
        Kind::List(&PRI, 0, 8),
        "priority",
        ByPris("[3]", "[6, 7]"),
        "Priorities that are sent before all others, the highest first.",
    ),
    hot(
        "scheduler",
        Kind::Word(Weighted::NAMES),
        "",
        ByPris("\"wrr\"", "\"dwrr\""),
        "How the other priorities share: by frames, or by bytes without FCS, as received.",
    ),
    hot(
        "weights",
        Kind::List(&WEIGHT, 4, 8),
        "",
        ByPris("[10, 40, 50, 1]", "[1, 1, 1, 1, 1, 1, 1, 1]"),
        "Share of each priority, lowest first; those of strict ones do not count.",
    ),
    hot(
        "max_rate_gbps",
        RATE,
        "Gbit/s",
        Unset("no limit but the link"),
        "Maximum rate of the port, in time on the wire: FCS, preamble and gap count, a tag that is added does not.",
    ),
    hot(
        "pri_max_rate_gbps",
        Kind::List(&Kind::Num(0.0, 10_000.0), 4, 8),
        "Gbit/s",
        Unset("no limits"),
        "Maximum rate of each priority, lowest first; 0 is no limit.",
    ),
    hot(
        "rate_burst_ms",
        Kind::Num(2.0, 3_600_000.0),
        "ms",
        Fixed("2"),
        "Depth of the token buckets of these rates.",
    ),
    restart(
        "rx_ring_frames",
        Kind::Int(64, 65_536),
        "frames",
        Derived("2048"),
        "Frames that may wait in the kernel, or in each receive queue of a DPDK device, until a worker takes them; beside 512 frames a packet socket has 1 MiB for 15 super-frames. Headroom covers the frames: where it is not set, 512 if more would take over half of the buffer_size_mb that is set.",
    ),
    restart(
        "loss_per_million",
        Kind::Int(0, 1_000_000),
        "frames",
        Fixed("0"),
        "For tests: of a million frames that are received here live, so many are dropped at random (drop `injected`). They must come to the port: express.enabled = false, or a kind without AF_XDP.",
    ),
    restart(
        "loss_seed",
        Kind::Int(0, i64::MAX),
        "",
        Fixed("1"),
        "For tests: which frames loss_per_million drops.",
    ),
    restart(
        "dpdk_queues",
        Kind::Int(1, 64),
        "",
        Fixed("1"),
        "Receive queues of a DPDK device, over which it spreads flows.",
    ),
    restart(
        "dpdk_tx_descriptors",
        Kind::Int(8, 32_768),
        "frames",
        Derived("switch.tx_ring_frames"),
        "Frames that a DPDK device may hold until they are sent, if its driver allows so few; a PAUSE does not stop them any more.",
    ),
    restart(
        "xdp_queues",
        Kind::Int(1, 64),
        "",
        Unset("all that the interface has"),
        "AF_XDP: queues that are received from, with rx_ring_frames each; frames of others are lost.",
    ),
    restart(
        "xdp_mode",
        Kind::Word(AttachTo::NAMES),
        "",
        Fixed("\"native\""),
        "AF_XDP: where the program runs: in the driver, before the host's stack, or the first that works.",
    ),
    restart(
        "xdp_zero_copy",
        Kind::Bool,
        "",
        Fixed("true"),
        "AF_XDP: no copy between device and pool where driver and huge pages allow that.",
    ),
    restart(
        "xdp_busy_poll_us",
        Kind::Int(0, 1_000_000),
        "us",
        Fixed("0"),
        "AF_XDP: the worker polls the queues for this long at each call; 0 uses interrupts.",
    ),
];
