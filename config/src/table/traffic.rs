//! Parameters of the hosts that weft plays itself.
//!
//! The keys of `[traffic]` are one array of [`Param`].
//!
//! Source: docs/spec/pipeline.md §12; docs/spec/wire-formats.md §1.1.

use super::super::choice::{Choice, FlowControl, HostFormat};
use super::super::param::{Initial, Param, restart};
use super::super::value::Kind;
use super::PRI;

use Initial::{Derived, Fixed};

pub(super) const TRAFFIC: &[Param] = &[
    restart(
        "pkt_format",
        Kind::Word(HostFormat::NAMES),
        "",
        Fixed("\"standard\""),
        "Format of the frames that a host sends.",
    ),
    restart(
        "max_frame_size",
        Kind::Int(60, 9_728),
        "bytes without FCS",
        Derived("1344 bytes of payload between the format's header and its ICRC"),
        "Longest frame that a host sends, ICRC included.",
    ),
    restart(
        "flow_control_mode",
        Kind::Word(FlowControl::NAMES),
        "",
        Fixed("\"pfc\""),
        "What stops a host: PAUSE of a class, or nothing. cbfc is refused: the hosts of weft have no credits.",
    ),
    restart(
        "lite_mode",
        Kind::Bool,
        "",
        Derived("true for pkt_format lite"),
        "Whether frames are Lite, without retransmission: true is pkt_format lite, and goes with no other.",
    ),
    restart(
        "vlan_enabled",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether frames carry a VLAN tag; not possible with lite.",
    ),
    restart(
        "ecn_capable",
        Kind::Bool,
        "",
        Derived("true for pkt_format standard"),
        "Whether frames are sent as ECT(0); Standard only.",
    ),
    restart(
        "num_vc",
        Kind::Int(1, 8),
        "",
        Fixed("8"),
        "Virtual channels of a host: the numbers that --vc takes.",
    ),
    restart(
        "vc_pcp_mapping",
        Kind::List(&PRI, 8, 8),
        "PCP",
        Fixed("[0, 1, 2, 3, 4, 5, 6, 7]"),
        "PCP of each virtual channel, in frames with a tag.",
    ),
];
