//! Settings without effect: a key that counts only beside another setting is refused without it.
//!
//! [`NEEDS`] and [`PORT_NEEDS`] name such keys, the condition under which they count, and the advice for the user. A
//! key that is set to its default passes, so that the output of `weft config show` is accepted as a configuration.
//!
//! Source: docs/spec/pipeline.md §12 (a key that is accepted acts).

use super::{Item, Resolver, Value};
use crate::table::{Key, key};

/// Keys of a table that count only under a condition.
struct Need {
    section: &'static str,
    keys: &'static [&'static str],
    counts: fn(&Resolver<'_>) -> bool,
    /// Advice for the user, as the message.
    instead: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        section: "crossbar",
        keys: &["weights"],
        counts: |all| all.is(key!("crossbar", "discipline"), "weighted"),
        instead: "expected crossbar.discipline = \"weighted\" beside it: strict takes no weights; or leave it out",
    },
    Need {
        section: "pfc",
        keys: &["pfc_threshold", "pfc_release"],
        counts: |all| all.is(key!("pfc", "mode"), "egress-queue"),
        instead: "expected pfc.mode = \"egress-queue\" beside it: in ingress-pg the limits are those of buffer.dt_alpha and buffer.xon_offset_bytes; or leave it out",
    },
    Need {
        section: "wred",
        keys: &["wred_priorities", "wred_threshold_low", "wred_threshold_high", "max_percent"],
        counts: |all| all.get(key!("wred", "wred_enabled")) == Some(Value::Bool(true)),
        instead: "expected wred.wred_enabled = true beside it; or leave it out",
    },
    Need {
        section: "fdb",
        keys: &["loop_block_s"],
        counts: |all| all.is(key!("fdb", "loop_action"), "block"),
        instead: "expected fdb.loop_action = \"block\" beside it; or leave it out",
    },
];

/// Keys of ports that count only under a condition; in `port_defaults` it is enough that one port meets it.
struct PortNeed {
    keys: &'static [&'static str],
    counts: fn(&Resolver<'_>, &Item) -> bool,
    /// Advice for the user, as the message.
    instead: &'static str,
}

const PORT_NEEDS: &[PortNeed] = &[
    PortNeed {
        keys: &["pvid"],
        counts: |all, item| !all.port_is(item, key!("port", "vlan"), &["trunk"]),
        instead: "expected vlan = \"transparent\" or \"access\" beside it: the untagged VLAN of a trunk is native",
    },
    PortNeed {
        keys: &["allowed", "native"],
        counts: |all, item| all.port_is(item, key!("port", "vlan"), &["trunk"]),
        instead: "expected vlan = \"trunk\" beside it: the VLAN of other ports is pvid",
    },
    PortNeed {
        keys: &["rate_burst_ms"],
        counts: |all, item| {
            [key!("port", "max_rate_gbps"), key!("port", "pri_max_rate_gbps")]
                .into_iter()
                .any(|key| all.port_get(item, key).is_some())
        },
        instead: "expected max_rate_gbps or pri_max_rate_gbps beside it, whose bucket it is",
    },
    PortNeed {
        keys: &["tlp", "max_payload", "pids"],
        counts: |all, item| !all.port_is(item, key!("port", "role"), &["l2"]),
        instead: "expected a role but l2 beside it: a port of role l2 carries no TLPs",
    },
    PortNeed {
        keys: &["dpdk_queues", "dpdk_tx_descriptors"],
        counts: |all, item| all.port_is(item, key!("port", "kind"), &["dpdk"]),
        instead: "expected kind = \"dpdk\" beside it",
    },
    PortNeed {
        keys: &["loss_per_million"],
        counts: |all, item| {
            !all.port_is(item, key!("port", "kind"), &["auto", "af_xdp"])
                || all.get(key!("express", "enabled")) == Some(Value::Bool(false))
        },
        instead: "expected express.enabled = false, or kind = \"af_packet\" beside it: express would send frames on past the port",
    },
    PortNeed {
        keys: &["loss_seed"],
        counts: |all, item| {
            let lost =
                all.port_get(item, key!("port", "loss_per_million")).and_then(|lost| lost.as_int());
            lost.is_some_and(|lost| lost > 0)
        },
        instead: "expected loss_per_million beside it, whose seed it is",
    },
    PortNeed {
        keys: &["xdp_queues", "xdp_mode", "xdp_zero_copy", "xdp_busy_poll_us"],
        counts: |all, item| all.port_is(item, key!("port", "kind"), &["auto", "af_xdp"]),
        instead: "expected kind = \"auto\" or \"af_xdp\" beside it",
    },
];

impl Resolver<'_> {
    /// Whether a port's `key` is one of `words`.
    fn port_is(&self, item: &Item, key: Key, words: &[&str]) -> bool {
        let value = self.port_get(item, key);
        value.as_ref().and_then(Value::as_text).is_some_and(|text| words.contains(&text))
    }

    /// Whether `value` is only the default.
    fn is_default(&self, section: &'static str, key: &'static str, value: &Value) -> bool {
        // The table has no value for a derived default. This key needs it, so it is worked out here.
        let derived = if key == "dpdk_tx_descriptors" {
            self.get(key!("switch", "tx_ring_frames"))
        } else {
            None
        };
        self.default_of(section, key).or(derived).as_ref() == Some(value)
    }

    /// Refuses settings that would have no effect.
    pub(super) fn refuse_idle(&mut self) {
        for need in NEEDS {
            for &key in need.keys {
                if let Some(set) = self.settings.table(need.section, key)
                    && !(need.counts)(self)
                    && !self.is_default(need.section, key, &set.value)
                {
                    let place = set.place.clone();
                    self.refuse(place, &format!("{}.{key}", need.section), need.instead);
                }
            }
        }
        let items = self.settings.items("port");
        for need in PORT_NEEDS {
            for &key in need.keys {
                // Once for each port: both the own keys of ports and `port_defaults` are judged by it.
                let idle: Vec<bool> = items.iter().map(|item| !(need.counts)(self, item)).collect();
                for (item, _) in items.iter().zip(&idle).filter(|(_, idle)| **idle) {
                    if let Some(set) = item.set.get(key)
                        && !self.is_default("port", key, &set.value)
                    {
                        let place = set.place.clone();
                        self.refuse(place, &format!("port.{key}"), need.instead);
                    }
                }
                // `port_defaults` counts for a port that meets the condition and does not override the key.
                let counts = |(item, idle): (&Item, &bool)| !idle && !item.set.contains_key(key);
                if let Some(set) = self.settings.table("port_defaults", key)
                    // Without ports there is nothing to judge by; `Config::resolve` refuses a switch without any.
                    && !items.is_empty()
                    && !self.is_default("port", key, &set.value)
                    && !items.iter().zip(&idle).any(counts)
                {
                    let place = set.place.clone();
                    self.refuse(place, &format!("port_defaults.{key}"), need.instead);
                }
            }
        }
    }
}
