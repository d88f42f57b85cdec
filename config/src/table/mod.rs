//! The table of all parameters of a switch.
//!
//! [`SECTIONS`] stand in the order of the documentation; the sub-modules have their parameters. A [`Schema`] is the
//! set of sections of one kind of file: [`CONFIG`], or that of scenarios.
//!
//! Source: docs/spec/pipeline.md §12 and §1 to §11.

mod fabric;
mod port;
mod queueing;
mod switch;
mod traffic;

use std::sync::LazyLock;

use super::param::{Form, Param, Section};
use super::value::Kind;

pub use port::PORT_KEYS;
pub(crate) use switch::SWITCH as SWITCH_PARAMS;

/// Priorities: `num_priorities` may allow 0 to 3 only, which the resolver checks.
const PRI: Kind = Kind::Int(0, 7);
const CLASS: Kind = Kind::Int(0, 7);

pub static SECTIONS: &[Section] = &[
    Section {
        name: "switch",
        form: Form::Table,
        doc: "The switch as a whole.",
        groups: &[switch::SWITCH],
    },
    Section {
        name: "run",
        form: Form::Table,
        doc: "Threads, management and logging of `weft run`.",
        groups: &[switch::RUN],
    },
    Section {
        name: "sai",
        form: Form::Table,
        doc: "The SAI service, for programs that test switch chips (docs/sai.md).",
        groups: &[switch::SAI],
    },
    Section {
        name: "express",
        form: Form::Table,
        doc: "The fast path in the kernel, for ports by AF_XDP (docs/express.md).",
        groups: &[switch::EXPRESS],
    },
    Section {
        name: "dpdk",
        form: Form::Table,
        doc: "DPDK, for ports of its kind: weft must be built with the cargo feature `dpdk`.",
        groups: &[switch::DPDK],
    },
    Section {
        name: "formats",
        form: Form::Table,
        doc: "Numbers by which frame formats are told apart (docs/spec/wire-formats.md §1).",
        groups: &[switch::FORMATS],
    },
    Section {
        name: "classify",
        form: Form::Table,
        doc: "From wire fields to priorities (docs/spec/pipeline.md §2).",
        groups: &[switch::CLASSIFY],
    },
    Section {
        name: "fdb",
        form: Form::Table,
        doc: "Forwarding by address (docs/spec/pipeline.md §3).",
        groups: &[switch::FDB],
    },
    Section {
        name: "buffer",
        form: Form::Table,
        doc: "The shared buffer (docs/spec/pipeline.md §4).",
        groups: &[queueing::BUFFER],
    },
    Section {
        name: "crossbar",
        form: Form::Table,
        doc: "The iSLIP crossbar (docs/spec/pipeline.md §6).",
        groups: &[queueing::CROSSBAR],
    },
    Section {
        name: "ecn",
        form: Form::Table,
        doc: "Congestion marks (docs/spec/pipeline.md §8): frames that are ECT leave a deep queue as CE. What stands behind two tags, in LLC/SNAP or in a tunnel is not looked at, and a header that RFC 1812 section 5.2.2 refuses is not IP.",
        groups: &[queueing::ECN],
    },
    Section {
        name: "wred",
        form: Form::Table,
        doc: "Early drops (docs/spec/pipeline.md §4): lossy frames that ECN does not mark are dropped at random as their queue gets deep, each with its profile.",
        groups: &[queueing::WRED],
    },
    Section {
        name: "pfc",
        form: Form::Table,
        doc: "Priority-based flow control (docs/spec/pipeline.md §9).",
        groups: &[queueing::PFC],
    },
    Section {
        name: "port_defaults",
        form: Form::Table,
        doc: "What holds for every port that does not say otherwise.",
        groups: &[port::SETTINGS, fabric::LINK],
    },
    Section {
        name: "port",
        form: Form::Repeated,
        doc: "A port; their order gives the port numbers, their number is `port_count` (1 to 64).",
        groups: &[port::IDENTITY, port::SETTINGS, fabric::LINK],
    },
    Section {
        name: "lag",
        form: Form::Repeated,
        doc: "Static link aggregation (IEEE 802.1AX without LACP): ports to one neighbour that are one link; each flow takes one of them, by its hash.",
        groups: &[switch::LAG],
    },
    Section {
        name: "static_entry",
        form: Form::Repeated,
        doc: "A static FDB entry: it never ages and never moves.",
        groups: &[switch::STATIC_ENTRY],
    },
    Section {
        name: "group",
        form: Form::Repeated,
        doc: "A multicast group; groups that are not listed flood their VLAN.",
        groups: &[switch::GROUP],
    },
    Section {
        name: "fabric",
        form: Form::Table,
        doc: "A switch that routes TLPs by port, which it is when any port has a role but l2 (docs/fabric.md).",
        groups: &[fabric::FABRIC],
    },
    Section {
        name: "vcs",
        form: Form::Repeated,
        doc: "A virtual switch, with a host at a port or, without one, at another switch; their order gives their numbers.",
        groups: &[fabric::VCS],
    },
    Section {
        name: "pid",
        form: Form::Repeated,
        doc: "A PID of a port, of a switch that is set up from the start.",
        groups: &[fabric::PIDS],
    },
    Section {
        name: "routing_group",
        form: Form::Repeated,
        doc: "A routing group (RGT) of a switch that is set up from the start.",
        groups: &[fabric::ROUTING_GROUP],
    },
    Section {
        name: "route",
        form: Form::Repeated,
        doc: "A route (DRT) of a switch that is set up from the start: by a port or by a routing group.",
        groups: &[fabric::ROUTE],
    },
    Section {
        name: "bind",
        form: Form::Repeated,
        doc: "What a bridge of a virtual switch is bound to from the start: a port, or the other end of a virtual link.",
        groups: &[fabric::BIND],
    },
    Section {
        name: "traffic",
        form: Form::Table,
        doc: "Hosts that weft plays itself: `weft traffic` and `weft gen` (docs/spec/pipeline.md §12).",
        groups: &[traffic::TRAFFIC],
    },
];

/// A kind of file, as the sections that it may have.
pub struct Schema {
    sections: LazyLock<Vec<&'static Section>>,
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.sections().map(|section| section.name)).finish()
    }
}

/// The configuration file of a switch.
pub static CONFIG: Schema = Schema { sections: LazyLock::new(|| SECTIONS.iter().collect()) };

impl Schema {
    /// A kind of file with these sections. The keys of the section without a name stand before all others in the
    /// file.
    #[must_use]
    pub const fn new(sections: fn() -> Vec<&'static Section>) -> Self {
        Self { sections: LazyLock::new(sections) }
    }

    /// Sections that have a name, in the order of the documentation.
    pub fn sections(&self) -> impl Iterator<Item = &'static Section> + Clone {
        self.sections.iter().copied().filter(|section| !section.name.is_empty())
    }

    /// The section without a name, whose keys stand before all others; `None` if the file has no such keys.
    #[must_use]
    pub fn root(&self) -> Option<&'static Section> {
        self.sections.iter().copied().find(|section| section.name.is_empty())
    }

    /// The section called `name` of form `form`: a name may be a table and a repeated section, as `switch` in
    /// scenarios.
    #[must_use]
    pub fn section(&self, name: &str, form: Form) -> Option<&'static Section> {
        self.sections().find(|section| section.name == name && section.form == form)
    }
}

/// Names a parameter that the table has. [`key!`] makes one when weft is compiled, and a key that the table does not
/// have fails there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub section: &'static str,
    /// Key within the section.
    pub name: &'static str,
}

impl Key {
    /// The parameter `name` of `section`.
    ///
    /// # Panics
    /// The table has no such parameter.
    pub const fn of(section: &'static str, name: &'static str) -> Self {
        assert!(has(section, name), "the table of parameters has no such key");
        Self { section, name }
    }

    /// The slot of its value in what is derived: `index` counts the items of a repeated section, and is 0 in a table.
    pub const fn slot(self, index: usize) -> (&'static str, usize, &'static str) {
        (self.section, index, self.name)
    }

    /// How messages name it: `buffer.dt_alpha`.
    pub fn path(self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

/// A [`Key`], checked when weft is compiled.
macro_rules! key {
    ($section:expr, $name:expr) => {{
        const KEY: $crate::table::Key = $crate::table::Key::of($section, $name);
        KEY
    }};
}

pub(crate) use key;

/// Whether the table has this parameter. Iterators do not run in constants, so that this takes slices apart.
const fn has(section: &str, name: &str) -> bool {
    let mut sections = SECTIONS;
    while let [first, rest @ ..] = sections {
        let mut groups = if is_same(first.name, section) { first.groups } else { &[] };
        while let [group, rest @ ..] = groups {
            let mut params: &[Param] = group;
            while let [param, rest @ ..] = params {
                if is_same(param.name, name) {
                    return true;
                }
                params = rest;
            }
            groups = rest;
        }
        sections = rest;
    }
    false
}

const fn is_same(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.as_bytes(), other.as_bytes());
    while let ([a, one_rest @ ..], [b, other_rest @ ..]) = (one, other) {
        if *a != *b {
            return false;
        }
        (one, other) = (one_rest, other_rest);
    }
    one.is_empty() && other.is_empty()
}

/// The section called `name`.
#[must_use]
pub fn section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

/// The parameter at `path`, such as `buffer.dt_alpha`.
#[must_use]
pub fn param(path: &str) -> Option<(&'static Section, &'static Param)> {
    let (section_name, name) = path.split_once('.')?;
    let section = section(section_name)?;
    Some((section, section.param(name)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::Initial;
    use toml::de::DeValue;

    #[test]
    fn every_default_is_accepted_by_its_own_parameter() {
        for section in SECTIONS {
            for param in section.params() {
                for text in [4, 8].iter().filter_map(|&pris| param.initial.toml(pris)) {
                    let raw = DeValue::parse(text).unwrap();
                    let got = param.kind.check(&raw);
                    assert!(got.is_ok(), "{}.{} = {text}: {got:?}", section.name, param.name);
                }
            }
        }
    }

    #[test]
    fn names_are_found_once_and_documented() {
        for section in SECTIONS {
            for param in section.params() {
                let name = format!("{}.{}", section.name, param.name);
                let same = section.params().filter(|p| p.name == param.name).count();
                assert_eq!(same, 1, "{name}");
                assert!(param.doc.ends_with('.') && param.doc.len() > 8, "{name}");
                assert!(
                    param
                        .name
                        .bytes()
                        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'),
                    "{name}"
                );
            }
            assert_eq!(SECTIONS.iter().filter(|s| s.name == section.name).count(), 1);
        }
        assert!(param("buffer.dt_alpha").is_some());
        assert!(param("buffer.nothing").is_none() && param("buffer").is_none());
    }

    /// `key!` evaluates the same when weft is compiled.
    #[test]
    #[should_panic(expected = "the table of parameters has no such key")]
    fn a_misspelt_key_is_none() {
        #[rustfmt::skip] // columns: section, key, whether the table has it
        let cases = [
            ("buffer", "dt_alpha", true), ("port", "pvid", true), ("traffic", "num_vc", true),
            ("buffer", "dt_alfa", false), ("buffer", "dt_alph", false), ("buffer", "dt_alphas", false),
            ("buffers", "dt_alpha", false), ("pfc", "dt_alpha", false), ("", "", false),
        ];
        for (section, name, want) in cases {
            assert_eq!(has(section, name), want, "{section}.{name}");
        }
        assert_eq!(key!("buffer", "dt_alpha").path(), "buffer.dt_alpha");
        Key::of("buffer", "dt_alfa");
    }

    #[test]
    fn only_parts_of_lists_ask_for_values() {
        let required: Vec<_> = SECTIONS
            .iter()
            .flat_map(|s| s.params().map(move |p| (s, p)))
            .filter(|(_, p)| p.initial == Initial::Required)
            .map(|(s, p)| format!("{}.{}", s.name, p.name))
            .collect();
        let want = [
            "port.name",
            "lag.name",
            "lag.ports",
            "static_entry.addr",
            "group.addr",
            "group.ports",
            "pid.port",
            "pid.pid",
            "routing_group.number",
            "routing_group.ports",
            "route.pid",
            "bind.vppb",
        ];
        assert_eq!(required, want);
    }

    #[test]
    fn names_of_the_seed_are_kept() {
        #[rustfmt::skip]
        let names = [
            "port_bandwidth_gbps", "forwarding_mode", "buffer_size_mb", "buffer_sharing", "dt_alpha",
            "ecn_enabled", "ecn_threshold_low", "ecn_threshold_high", "pfc_enabled", "pfc_threshold",
            "num_priorities", "fixed_latency_ns", "pkt_format", "max_frame_size", "flow_control_mode",
            "lite_mode", "vlan_enabled", "ecn_capable", "num_vc", "vc_pcp_mapping",
        ];
        for name in names {
            assert!(SECTIONS.iter().any(|section| section.param(name).is_some()), "{name}");
        }
    }
}
