//! Keys of the RC Link endpoints.
//!
//! [`ENDPOINT`] has the keys of `[endpoint]`.
//!
//! Source: docs/spec/model.md §4.

use crate::choice::{Choice, FlowControl};
use crate::param::{Initial, Param, restart};
use crate::value::Kind;

use super::net::RATE;
use Initial::{Derived, Fixed, Unset};

/// Words of `pkt_format`: the formats of frames that carry RC Link.
pub(crate) const FORMATS: &[&str] = &["standard", "gen1", "gen2", "lite"];

/// Words of `pkt_type`: the delivery services.
pub(crate) const TYPES: &[&str] = &["type1", "type2", "type3"];

/// Words of `controller`: the controllers of rates.
pub(crate) const CONTROLLERS: &[&str] = &["static", "dcqcn"];

const VC: Kind = Kind::Int(0, 7);

/// The key of a part of the delay of an endpoint.
const fn part(name: &'static str, doc: &'static str) -> Param {
    restart(
        name,
        Kind::Time,
        "time",
        Unset("0 beside other parts of its direction, else part of delay"),
        doc,
    )
}

pub(super) const ENDPOINT: &[Param] = &[
    restart("pkt_format", Kind::Word(FORMATS), "", Fixed("\"standard\""), "Format of the frames."),
    restart(
        "pkt_type",
        Kind::Word(TYPES),
        "",
        Fixed("\"type1\""),
        "How frames get there. type1: acknowledged, and what is lost is sent again. type2: acknowledged, so that few are outstanding, and never sent again; gen1 or gen2, without ICRC. type3: raw Ethernet without an RC Link header, sent once; pkt_format is left out. With pkt_format lite it stays type1.",
    ),
    restart(
        "outstanding",
        Kind::Int(1, 512),
        "frames",
        Fixed("16"),
        "Frames of type2 that wait for an ACK at once; for no other type.",
    ),
    restart(
        "local_credits",
        Kind::Int(1, 1 << 20),
        "",
        Fixed("2048"),
        "Credits of 128 bytes that frames of type2 take at their sender until they are acknowledged, beside those of their virtual channel; for no other type.",
    ),
    restart(
        "payload_bytes",
        Kind::Int(24, 1_344),
        "bytes",
        Fixed("1344"),
        "Most bytes of payload in a frame; a message is cut into as many frames as it takes.",
    ),
    restart(
        "flow_control_mode",
        Kind::Word(FlowControl::NAMES),
        "",
        Fixed("\"pfc\""),
        "What stops an endpoint: PAUSE of a class, or credits from endpoint to endpoint, which are not beside PFC (pfc.pfc_enabled = false, where there are switches). none is refused: an endpoint obeys each PAUSE; pfc.pfc_enabled = false has switches send none.",
    ),
    restart(
        "lite_mode",
        Kind::Bool,
        "",
        Derived("true for pkt_format lite"),
        "LITE mode: frames are sent once, without ACK, in any format of type1; what is lost fails a run. In formats with an RC Link header CNPs still answer marks. Without pkt_format it is that of lite.",
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
        "Whether frames are sent as ECT(0); standard only.",
    ),
    restart(
        "icrc",
        Kind::Bool,
        "",
        Derived("true for all formats but lite"),
        "Whether data frames end with an ICRC of 4 bytes; not possible with lite.",
    ),
    restart(
        "num_vc",
        Kind::Int(1, 8),
        "",
        Fixed("8"),
        "Virtual channels that request_vc and ack_vc may name: those below it.",
    ),
    restart(
        "request_vc",
        VC,
        "VC",
        Fixed("3"),
        "Virtual channel of requests that say no other; classify maps it to a priority, by the top bits of DSCP and Traffic Class and the PCP of a tag.",
    ),
    restart("ack_vc", VC, "VC", Fixed("5"), "Virtual channel of ACKs and CNPs."),
    restart(
        "controller",
        Kind::Word(CONTROLLERS),
        "",
        Fixed("\"static\""),
        "What changes the rate of a queue pair: nothing, or CNPs (DCQCN), up to length_thr; not with pkt_format lite.",
    ),
    restart(
        "dcqcn_gain",
        Kind::Int(1, 1_023),
        "1/1024",
        Fixed("4"),
        "How fast alpha follows; for dcqcn.",
    ),
    restart(
        "dcqcn_shift",
        Kind::Int(0, 6),
        "",
        Fixed("1"),
        "A CNP takes alpha / 2^this of the rate; for dcqcn.",
    ),
    restart(
        "dcqcn_timer",
        Kind::Time,
        "time",
        Fixed("\"55us\""),
        "After so long without a CNP the rate is raised, 1 to 256 us; for dcqcn.",
    ),
    restart(
        "dcqcn_fast_rounds",
        Kind::Int(0, 255),
        "",
        Fixed("5"),
        "Periods that halve the way back to the rate before the cut, before the target rises; for dcqcn.",
    ),
    restart(
        "dcqcn_additive_bytes",
        Kind::Int(0, 4_194_303),
        "bytes a window",
        Fixed("20"),
        "By how much the target rises in a period; for dcqcn.",
    ),
    restart(
        "dcqcn_hyper_bytes",
        Kind::Int(0, 4_194_303),
        "bytes a window",
        Fixed("204"),
        "By how much it rises after as many periods again; for dcqcn.",
    ),
    restart(
        "dcqcn_least_bytes",
        Kind::Int(1, 4_194_303),
        "bytes a window",
        Fixed("51"),
        "Least rate; for dcqcn.",
    ),
    restart(
        "banks",
        Kind::Int(1, 4),
        "",
        Fixed("1"),
        "Banks of requests: those to host n are of bank n modulo this, on the virtual channel so much below request_vc.",
    ),
    restart(
        "bank_turns",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether the bank that was granted last waits for the others; with 2 banks or more.",
    ),
    restart(
        "rnr_timer",
        Kind::Int(0, 31),
        "code",
        Unset("a request that finds no room in a receive buffer is dropped"),
        "A request that finds no room is answered by an RNR NAK with this code of a time, after which it is sent again; not in LITE mode.",
    ),
    restart(
        "slots",
        Kind::Int(1, 512),
        "frames",
        Fixed("512"),
        "Frames that may wait for a grant or an ACK at once.",
    ),
    restart(
        "credit_limit",
        Kind::Int(1, 32_767),
        "credits",
        Unset("it must be given for flow_control_mode cbfc"),
        "Credits of each virtual channel to each peer; for cbfc.",
    ),
    restart(
        "credit_size",
        Kind::IntOf(&[32, 64, 128, 256, 512, 1_024, 2_048]),
        "bytes",
        Fixed("128"),
        "Size of a credit; for cbfc.",
    ),
    restart(
        "credit_overhead_bytes",
        Kind::Int(0, 255),
        "bytes",
        Fixed("0"),
        "Bytes that are counted beside a frame's own; for cbfc.",
    ),
    restart(
        "uf_limit",
        Kind::Int(1, 7),
        "frames",
        Fixed("1"),
        "A frame goes while there are credits for so many of the longest; for cbfc.",
    ),
    restart(
        "dyn_uf",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether requests go while there are credits for one of the longest; for cbfc.",
    ),
    restart(
        "drain_gbps",
        RATE,
        "Gbit/s",
        Unset("frames are taken out as they come"),
        "Rate on the wire at which a host takes frames out of its buffer and gives their credits back; for cbfc. With PFC: a [[fault]] of kind slow-receiver.",
    ),
    restart(
        "delay",
        Kind::Time,
        "time",
        Fixed("\"60ns\""),
        "What an endpoint takes for each frame, each way; for directions without parts of their own (t_paxi_tx and so on).",
    ),
    part(
        "t_paxi_tx",
        "PAXI's part of what an endpoint takes for a frame that it sends. Parts of a direction add up, in place of delay there; those that are not said are 0.",
    ),
    part("t_rclink_tx", "RC Link's part of that."),
    part("t_cesoc_tx", "The MAC's part of that (CESOC)."),
    part(
        "t_paxi_rx",
        "PAXI's part of what an endpoint takes for a frame that it receives, as t_paxi_tx.",
    ),
    part("t_rclink_rx", "RC Link's part of that."),
    part("t_cesoc_rx", "The MAC's part of that (CESOC)."),
    restart(
        "ack_delay",
        Kind::Time,
        "time",
        Fixed("\"0ns\""),
        "From a frame that is taken to its ACK; not in LITE mode.",
    ),
    restart(
        "cnp_delay",
        Kind::Time,
        "time",
        Fixed("\"0ns\""),
        "From a frame with CE to its CNP; not with pkt_format lite.",
    ),
    restart(
        "cnp_merge_us",
        Kind::Int(0, 1_000_000),
        "us",
        Fixed("50"),
        "CNPs of one queue pair that come within so long of one that was passed on are held back; not with pkt_format lite.",
    ),
    restart(
        "ack_timeout",
        Kind::Int(0, 31),
        "",
        Fixed("8"),
        "Time without an ACK of anything new, pauses by PFC not counted, after which frames are sent again: 4.096 us x 2^this; not in LITE mode.",
    ),
    restart(
        "rate_window",
        Kind::Int(0, 4),
        "",
        Fixed("0"),
        "Length of the window of the rate limit: 4.096 us x 2^this; for length_thr only.",
    ),
    restart(
        "cc_window_ns",
        Kind::Int(4_096, 65_536),
        "ns",
        Derived("by rate_window"),
        "The same in ns (CC_WINDOW), in place of rate_window; for length_thr only.",
    ),
    restart(
        "length_thr",
        Kind::Int(1, 4_194_303),
        "bytes",
        Unset("no limit"),
        "Bytes of frames that a queue pair may send in a window.",
    ),
];
