//! Keys of the whole scenario, its network and its links.
//!
//! Each section has one array of [`Param`].
//!
//! Source: docs/spec/model.md §3.

use crate::param::{Initial, Param, restart};
use crate::table::SWITCH_PARAMS;
use crate::value::Kind;

use Initial::{Derived, Fixed, Required, Unset};

/// Words of `generate`: the generators of networks.
pub(crate) const GENERATORS: &[&str] =
    &["direct", "single", "leaf-spine", "fat-tree", "mesh", "ring", "torus"];

pub(crate) const RATE: Kind = Kind::Num(0.001, 10_000.0);
const LENGTH: Kind = Kind::Num(0.001, 100_000.0);

pub(super) const ROOT: &[Param] = &[
    restart(
        "title",
        Kind::Line,
        "",
        Derived("the name of the file"),
        "What the scenario is called in results.",
    ),
    restart(
        "seed",
        Kind::Int(0, i64::MAX),
        "",
        Fixed("1"),
        "Seed of all that is random: workloads, faults, marks, hashes.",
    ),
    restart(
        "until",
        Kind::Time,
        "time",
        Fixed("\"100ms\""),
        "When the run ends at the latest; it ends before when nothing moves and nothing is to come.",
    ),
];

pub(super) const NET: &[Param] = &[
    restart(
        "generate",
        Kind::Word(GENERATORS),
        "",
        Unset("the network is imported, or named in [[switch]], [[host]] and [[link]]"),
        "Generator of the network: two hosts at one link; one switch; leaves and spines; a fat tree of three stages; a mesh, ring or torus of switches. Hosts are called h0, h1, ..., at one switch neighbours; switches sw, or leaf0, spine0, edge0, agg0, core0, sw0, ...",
    ),
    restart(
        "import",
        Kind::Path,
        "file",
        Unset("the network is generated, or named in [[switch]], [[host]] and [[link]]"),
        "A topology of another simulator, beside the scenario file: `.topo` of htsim or `topology.txt` of HPCC, told apart by what it begins with.",
    ),
    restart(
        "hosts",
        Kind::Int(2, 1_024),
        "",
        Unset("it must be given for all generators but direct, which has 2"),
        "Number of hosts; for generate.",
    ),
    restart(
        "leaves",
        Kind::Int(1, 64),
        "",
        Unset("it must be given for leaf-spine"),
        "Number of leaves; for leaf-spine.",
    ),
    restart(
        "spines",
        Kind::Int(1, 63),
        "",
        Unset("it must be given for leaf-spine"),
        "Number of spines; for leaf-spine.",
    ),
    restart(
        "switches",
        Kind::Int(1, 4_096),
        "",
        Unset("it must be given for mesh and ring"),
        "Number of switches; for mesh and ring.",
    ),
    restart(
        "dimensions",
        Kind::List(&Kind::Int(2, 4_096), 1, 4),
        "switches",
        Unset("it must be given for torus"),
        "Switches along each dimension; for torus.",
    ),
    restart(
        "rate_gbps",
        RATE,
        "Gbit/s",
        Fixed("400"),
        "Rate of every link that does not say otherwise.",
    ),
    restart(
        "link_m",
        LENGTH,
        "m",
        Fixed("10"),
        "Length of every link that does not say otherwise, at 5 ns/m.",
    ),
    restart(
        "switch_rate_gbps",
        RATE,
        "Gbit/s",
        Derived("rate_gbps"),
        "Rate of links between two switches; for generate.",
    ),
    restart(
        "switch_link_m",
        LENGTH,
        "m",
        Derived("link_m"),
        "Length of links between two switches; for generate.",
    ),
    restart(
        "allow_pfc_circles",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether to run though PFC can wait for itself in a circle of links; each circle is named otherwise.",
    ),
    restart(
        "full_frames",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether frames are moved whole, with payload and ICRC, and checked; else only what is read of them. Results are the same.",
    ),
    restart(
        "latency_parts",
        Kind::Bool,
        "",
        Fixed("false"),
        "Whether results say what latencies are made of: waits in queues and for PFC, credits and rates, sending, cables. It takes memory for each frame at each hop. Results are the same beside.",
    ),
    restart(
        "sampling",
        Kind::Time,
        "time",
        Fixed("\"1us\""),
        "Time between two samples of the depths of queues; doubled whenever there are more than samples_max.",
    ),
    restart(
        "samples_max",
        Kind::Int(16, 65_536),
        "",
        Fixed("1024"),
        "Most samples of a series over time.",
    ),
];

pub(super) const HOST: &[Param] = &[
    restart(
        "request_vc",
        Kind::Int(0, 7),
        "VC",
        Derived("endpoint.request_vc"),
        "Virtual channel of its requests.",
    ),
    restart("name", Kind::Name, "", Required, "Its name in links, workloads, faults and results."),
];

pub(super) const LINK: &[Param] = &[
    restart(
        "ends",
        Kind::List(&Kind::Name, 2, 2),
        "",
        Required,
        "Names of the two nodes that it joins; a host has one link.",
    ),
    restart("rate_gbps", RATE, "Gbit/s", Derived("net.rate_gbps"), "Its rate."),
    restart(
        "link_m",
        LENGTH,
        "m",
        Derived("net.link_m"),
        "Its length, at 5 ns/m; instead of delay.",
    ),
    restart(
        "delay",
        Kind::Time,
        "time",
        Derived("5 ns for each metre of link_m"),
        "Time that light takes over it, 1 ps or above; instead of link_m.",
    ),
];

/// The key that `[[switch]]` has beside those of [`SWITCH_SHARED`].
pub(super) const SWITCH_NAME: &[Param] =
    &[restart("name", Kind::Name, "", Required, "Its name in links, faults and results.")];
/// The keys of `[switch]` without the first one, which is the name.
pub(super) const SWITCH_SHARED: &[Param] = SWITCH_PARAMS.split_at(1).1;
