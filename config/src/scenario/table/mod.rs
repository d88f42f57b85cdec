//! The table of all keys of a scenario file.
//!
//! [`SCENARIO`] also has the sections of a switch's configuration that count in virtual time.
//!
//! Source: docs/spec/model.md §3.

mod endpoint;
mod moves;
mod net;

use crate::param::{Form, Section};
use crate::table::{self, Schema};

/// Sections of a switch's configuration that a scenario takes over for its switches; [`ELSEWHERE`] has the
/// exceptions.
pub const SWITCH_SECTIONS: [&str; 9] =
    ["switch", "formats", "classify", "fdb", "buffer", "crossbar", "ecn", "wred", "pfc"];

/// Section, keys and advice: keys of these sections that a scenario sets elsewhere, or that count only live.
pub const ELSEWHERE: &[(&str, &[&str], &str)] = &[
    (
        "switch",
        &["name"],
        "expected names in [[switch]]: this table holds for all switches; leave it out",
    ),
    ("switch", &["tx_ring_frames", "allow_store_and_forward"], LIVE),
    ("crossbar", &["burst"], LIVE),
    ("port_defaults", &["port_bandwidth_gbps"], "expected net.rate_gbps, or rate_gbps in [[link]]"),
    (
        "port_defaults",
        &[
            "rx_ring_frames",
            "dpdk_queues",
            "dpdk_tx_descriptors",
            "xdp_queues",
            "xdp_mode",
            "xdp_zero_copy",
            "xdp_busy_poll_us",
        ],
        LIVE,
    ),
    (
        "port_defaults",
        &["role", "tlp", "max_payload", "pids"],
        "expected a network of Ethernet switches: a scenario has no fabric of TLPs; leave it out",
    ),
];

const LIVE: &str =
    "counts only for a live switch, expected it in the configuration of weft run; leave it out";

static OWN: [Section; 9] = [
    Section { name: "", form: Form::Table, doc: "Before all sections.", groups: &[net::ROOT] },
    Section {
        name: "net",
        form: Form::Table,
        doc: "Hosts, switches and the links between them: made by a generator, imported, or named one by one in [[switch]], [[host]] and [[link]].",
        groups: &[net::NET],
    },
    Section { name: "host", form: Form::Repeated, doc: "A host.", groups: &[net::HOST] },
    Section {
        name: "link",
        form: Form::Repeated,
        doc: "A link between two switches, or a switch and a host; ports are numbered in the order of the links.",
        groups: &[net::LINK],
    },
    Section {
        name: "switch",
        form: Form::Repeated,
        doc: "A switch that is named, with any key of [switch] but tx_ring_frames. What all of them have in common is in [switch_defaults], as [switch] cannot stand beside these.",
        groups: &[net::SWITCH_NAME, net::SWITCH_SHARED],
    },
    Section {
        name: "endpoint",
        form: Form::Table,
        doc: "The RC Link endpoint of every host (docs/spec/model.md §4).",
        groups: &[endpoint::ENDPOINT],
    },
    Section {
        name: "workload",
        form: Form::Repeated,
        doc: "Who sends how much to whom, and when.",
        groups: &[moves::WORKLOAD],
    },
    Section {
        name: "fault",
        form: Form::Repeated,
        doc: "What goes wrong, and when.",
        groups: &[moves::FAULT],
    },
    Section {
        name: "expect",
        form: Form::Repeated,
        doc: "What is expected of the results; `weft sim run` and `weft sim check` fail without it.",
        groups: &[moves::EXPECT],
    },
];

/// The keys of `[switch]` that named switches have in common.
static SWITCH_DEFAULTS: Section = Section {
    name: "switch_defaults",
    form: Form::Table,
    doc: "Keys of [switch] that all of [[switch]] have that do not say otherwise.",
    groups: &[net::SWITCH_SHARED],
};

/// Sections of a scenario file.
pub static SCENARIO: Schema = Schema::new(|| {
    // The tables of the configuration themselves, so that a new key of a switch is a key of scenarios at once.
    let of_switch = SWITCH_SECTIONS.iter().chain(&["port_defaults"]);
    let of_switch = of_switch.filter_map(|name| table::section(name));
    let [root, net, host, link, switch, rest @ ..] = &OWN;
    let mut all = vec![root, net, host, link, switch, &SWITCH_DEFAULTS];
    all.extend(of_switch);
    all.extend(rest);
    all
});

#[cfg(test)]
mod tests {
    use super::*;
    use toml::de::DeValue;

    #[test]
    fn every_default_is_accepted_by_its_own_key() {
        for section in SCENARIO.sections().chain(SCENARIO.root()) {
            for param in section.params() {
                let name = format!("{}.{}", section.name, param.name);
                assert!(param.doc.ends_with('.') && param.doc.len() > 8, "{name}");
                let same = section.params().filter(|other| other.name == param.name).count();
                assert_eq!(same, 1, "{name}");
                for text in [4, 8].iter().filter_map(|&pris| param.initial.toml(pris)) {
                    let raw = DeValue::parse(text).unwrap();
                    assert!(param.kind.check(&raw).is_ok(), "{name} = {text}");
                }
            }
        }
    }

    #[test]
    fn a_named_switch_has_its_name_once() {
        assert_eq!(table::SWITCH_PARAMS[0].name, "name");
    }

    #[test]
    fn what_is_said_elsewhere_is_a_key_of_a_switch() {
        for (section, keys, _) in ELSEWHERE {
            let section = table::section(section).unwrap();
            for key in *keys {
                assert!(section.param(key).is_some(), "{}.{key}", section.name);
            }
        }
    }
}
