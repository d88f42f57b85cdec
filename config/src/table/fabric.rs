//! Parameters of a switch that routes TLPs: its name to managers, its tables, its virtual switches.
//!
//! Each section has one array of [`Param`]; one more has the keys of ports with a role other than `l2`.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles", "Tables of an edge", "The fabric manager"; docs/spec/wire-formats.md
//! §3.7a, §4.1.

use weft_parsers::fabric::RgtMode;
use weft_parsers::tlp::Mode;

use super::super::choice::{CciOwner, Choice, RoleName};
use super::super::param::{Initial, Param, hot, restart};
use super::super::value::Kind;
use super::PRI;

use Initial::{ByPris, Derived, Fixed, Required, Unset};

const FAST: Kind = Kind::Power(1, 32_768);
const IDT: Kind = Kind::Int(0, 4_096);
const PID: Kind = Kind::Int(0, 4_094);
const BYTE: Kind = Kind::Int(0, 255);
const WORD: Kind = Kind::Int(0, 65_535);

pub(super) const LINK: &[Param] = &[
    restart(
        "role",
        Kind::Word(RoleName::NAMES),
        "",
        Fixed("\"l2\""),
        "What the link carries: Ethernet, or TLPs from and to a host (usp), a device (dsp) or another switch (fport).",
    ),
    restart(
        "tlp",
        Kind::Word(Mode::NAMES),
        "",
        Fixed("\"flit\""),
        "Header layout of TLPs at a usp or dsp; those of an fport are always flit.",
    ),
    restart(
        "max_payload",
        Kind::IntOf(&[128, 256, 512, 1_024, 2_048, 4_096]),
        "bytes",
        Fixed("512"),
        "Max_Payload_Size of a link that carries TLPs.",
    ),
    restart(
        "pids",
        Kind::Int(1, 255),
        "",
        Fixed("1"),
        "PIDs that a port which carries TLPs can have.",
    ),
];

pub(super) const FABRIC: &[Param] = &[
    restart(
        "uuid",
        Kind::Uuid,
        "",
        Unset("there are no TLPs: required where any port has a role"),
        "What the switch is called by fabric managers and link partners, such as \"5ed8a1c0-0000-4000-8000-000000000001\".",
    ),
    restart(
        "serial",
        Kind::Int(0, i64::MAX),
        "",
        Derived("the low 63 bits of uuid"),
        "Serial number in the answer to Identify.",
    ),
    restart(
        "cci",
        Kind::Listen,
        "address:port or file",
        Unset("no manager can connect"),
        "Where managers command the switch by CCI: a Unix socket, for root and the user that runs the switch; or TCP, with cci_ca, cci_cert and cci_key.",
    ),
    restart(
        "cci_ca",
        Kind::Path,
        "",
        Unset("no TLS"),
        "Certificates (PEM) of the authorities that sign certificates of managers, where cci is TCP: mutual TLS 1.3.",
    ),
    restart("cci_cert", Kind::Path, "", Unset("no TLS"), "Certificate (PEM) of the switch for it."),
    restart("cci_key", Kind::Path, "", Unset("no TLS"), "Private key (PEM, mode 0600) of that."),
    restart(
        "cci_insecure",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether cci may be TCP without TLS: whoever reaches it may then do all that the primary manager may.",
    ),
    restart(
        "cci_mctp",
        Kind::MctpPlace,
        "address:port",
        Unset("no manager can connect by MCTP"),
        "Where managers that speak MCTP command the switch (docs/mctp.md): CCI in packets of 68 bytes over TCP, where a port alone is one of loopback; or `mctp`, the networks of a kernel that has MCTP, `mctp:N` for one of them.",
    ),
    restart(
        "cci_mctp_insecure",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether cci_mctp may be another address than one of loopback, or the kernel's MCTP: whoever reaches it may command the switch, as MCTP knows no users.",
    ),
    restart(
        "cci_owner",
        Kind::Word(CciOwner::NAMES),
        "",
        Fixed("\"claim\""),
        "Who may command the switch by cci_mctp: who claims it, or (first) whoever connects, as one manager, until a manager claims it elsewhere.",
    ),
    restart(
        "pid",
        PID,
        "PID",
        Unset("fabric managers set the switch up"),
        "PID of a switch that is set up from the start, by `[[pid]]`, `[[routing_group]]`, `[[route]]` and `[[bind]]`, and by no manager.",
    ),
    restart("oui", Kind::Oui, "", Fixed("\"02:57:46\""), "OUI of frames that carry TLPs."),
    hot(
        "tc_to_pri",
        Kind::List(&PRI, 8, 8),
        "priority",
        ByPris("[1, 1, 1, 1, 1, 1, 1, 1]", "[1, 1, 1, 1, 2, 2, 2, 2]"),
        "Priority of each Traffic Class of TLPs.",
    ),
    hot("uio_req_pri", PRI, "priority", ByPris("1", "3"), "Priority of UIO requests."),
    hot(
        "uio_cpl_pri",
        PRI,
        "priority",
        ByPris("2", "4"),
        "Priority of UIO completions; not that of the requests, or routes may deadlock.",
    ),
    restart("groups", Kind::Int(0, 256), "entries", Fixed("256"), "Routing groups (RGT)."),
    restart("fast", FAST, "entries", Fixed("4096"), "FAST of each vPPB."),
    restart("fast_idt", IDT, "entries", Fixed("1024"), "IDT of each FAST."),
    restart("ldst", FAST, "entries", Fixed("4096"), "LDST of each vPPB."),
    restart("ldst_idt", IDT, "entries", Fixed("1024"), "IDT of each LDST."),
    restart(
        "bind_time_ms",
        Kind::Int(0, 60_000),
        "ms",
        Fixed("1"),
        "How long a bind or unbind takes.",
    ),
    restart(
        "threads",
        Kind::Int(1, 8),
        "",
        Fixed("2"),
        "GFD commands that a GAE forwards at a time.",
    ),
];

pub(super) const VCS: &[Param] = &[
    restart(
        "usp",
        Kind::Name,
        "",
        Unset("its upstream vPPB is a vUSP, to be bound by PID"),
        "Port of the host, of role usp.",
    ),
    restart(
        "vppbs",
        Kind::Int(0, 254),
        "",
        Fixed("4"),
        "Downstream vPPBs; with none, the GAE is the only function that the host sees.",
    ),
    restart("gae", Kind::Bool, "", Fixed("true"), "Whether it has a G-FAM access endpoint."),
];

pub(super) const PIDS: &[Param] = &[
    restart("port", Kind::Name, "", Required, "The port, of a role but l2."),
    restart("instance", Kind::Int(0, 254), "", Fixed("0"), "Which of the port's PIDs."),
    restart("pid", PID, "PID", Required, "The PID that it has."),
];

pub(super) const ROUTING_GROUP: &[Param] = &[
    restart("number", BYTE, "", Required, "Its place in the RGT."),
    restart(
        "ports",
        Kind::List(&Kind::Name, 1, 8),
        "",
        Required,
        "Its ports, primary ones first; the first one takes static messages.",
    ),
    restart(
        "mode",
        Kind::Word(RgtMode::NAMES),
        "",
        Fixed("\"random\""),
        "How messages that are not static choose a port: at random, or the shortest queue of this switch (not advanced: switches do not tell each other of theirs).",
    ),
    restart("primary", Kind::Int(1, 8), "ports", Derived("all ports"), "How many are primary."),
    restart(
        "mix",
        Kind::Int(0, 7),
        "",
        Fixed("0"),
        "Share of the primary ports: 7 less this, in eighths; with 7 they are used until they are full.",
    ),
];

pub(super) const ROUTE: &[Param] = &[
    restart("pid", PID, "PID", Required, "Where it leads to."),
    restart("port", Kind::Name, "", Unset("by a routing group"), "By which port."),
    restart("routing_group", BYTE, "", Unset("by a port"), "By which routing group."),
];

pub(super) const BIND: &[Param] = &[
    restart("vcs", Kind::Int(0, 254), "", Fixed("0"), "The virtual switch, by its order."),
    restart("vppb", Kind::Int(0, 254), "", Required, "The bridge: 0 is the upstream one."),
    restart("port", Kind::Name, "", Unset("to a virtual link"), "The port that it is bound to."),
    restart("own", PID, "PID", Unset("to a port"), "Own PID of a virtual link."),
    restart("far", PID, "PID", Unset("to a port"), "PID of the other end of a virtual link."),
    restart(
        "latency_base",
        Kind::Int(0, i64::MAX),
        "ps",
        Fixed("0"),
        "Base of the latency that the path adds, as in a CDAT.",
    ),
    restart("latency", WORD, "", Fixed("0"), "The latency, times its base."),
    restart(
        "bandwidth_base",
        Kind::Int(0, i64::MAX),
        "MB/s",
        Fixed("0"),
        "Base of the bandwidth of the path.",
    ),
    restart("bandwidth", WORD, "", Fixed("0"), "The bandwidth, times its base."),
];
