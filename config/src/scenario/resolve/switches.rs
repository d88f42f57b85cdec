//! The configuration of each switch: the sections of a switch, with a port for each of its links.
//!
//! The settings of all switches and those of named ones become a [`Plan`], which makes a [`SwitchPlan`] for each site
//! of the network.
//!
//! Source: docs/spec/model.md §3; docs/configuration.md.

use std::collections::BTreeMap;

use weft_dataplane::config::{PortConfig, PriMaps};
use weft_dataplane::time::{LinkRate, Span};
use weft_hosts::frames::Kind;
use weft_sim::scenario::{Site, SwitchPlan};
use weft_sim::switch::SwitchTiming;
use weft_sim::topology::{LinkSpec, NodeKind, Topology};

use super::delay::host_delay;
use super::{Keys, ScenarioReader, problem};
use crate::resolve::{Config, Timing, in_us, response_by_default};
use crate::scenario::table::{ELSEWHERE, SWITCH_SECTIONS};
use crate::settings::{Item, Setting};
use crate::table::{CONFIG, section};
use crate::value::Value;
use crate::{ConfigError, Place, Problem, Settings};

/// Entries of an FDB unless it is set: twice as many as a network has hosts at most.
const FDB_CAPACITY: i64 = 2_048;

/// Settings of `[[switch]]` items, by name.
type Named = BTreeMap<String, Vec<(&'static str, Setting)>>;

/// The properties of the frames of endpoints that all switches must be configured for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    /// Format of the frames.
    pub kind: Kind,
    /// Longest frame in bytes, without FCS.
    pub len_max: usize,
}

/// The keys that are set for one named switch.
type OwnKeys<'a> = Vec<(&'a str, &'a Value)>;

/// The settings from which the configuration of each switch is made.
#[derive(Debug)]
pub(super) struct Plan {
    /// Settings of all switches.
    all: Settings,
    /// Settings of named switches, which override those of all.
    named: Named,
    seed: u64,
    /// Longest time that a neighbour of any switch takes to obey a PAUSE.
    response: Span,
}

fn derived(value: Value) -> Setting {
    Setting { value, place: Place::Derived }
}

impl Plan {
    /// The configuration of the switch at a site, with its warnings.
    fn config(&self, site: &Site<'_>) -> Result<Config, ConfigError> {
        let mut settings = self.settings(site);
        self.peers(&mut settings);
        let mut config = Config::resolve(&settings, Timing::Virtual)?;
        config.warnings.extend(self.warn_of_quick_peers(&settings));
        Ok(config)
    }

    /// The settings of the switch at a site, with those that follow from its links.
    fn settings(&self, site: &Site<'_>) -> Settings {
        let mut settings = self.all.clone();
        for (key, setting) in self.named.get(site.name).into_iter().flatten() {
            settings.put("switch", key, setting.clone());
        }
        settings.put("switch", "name", derived(Value::Text(site.name.to_owned())));
        if settings.table("switch", "seed").is_none() {
            // Another seed for each switch, or all would draw the same numbers at the same time; 63 bits, as TOML
            // integers have.
            let seed = self.seed.wrapping_add(site.node as u64) & i64::MAX.unsigned_abs();
            settings.put("switch", "seed", derived(Value::Int(seed.cast_signed())));
        }
        if settings.table("buffer", "cable_m").is_none() {
            // Headroom of all ports is planned for the longest cable.
            let longest = site.links.iter().map(|link| link.propagation.as_ps()).max().unwrap_or(0);
            settings.put("buffer", "cable_m", derived(Value::Num(metres(longest))));
        }
        for (number, link) in site.links.iter().enumerate() {
            // Ports are numbered as the links of the node, which is how the network connects them.
            settings.push("port", port(number, link));
        }
        settings
    }

    /// Sets `peer_response_us` to the time that neighbours take to obey a PAUSE, where headroom does not cover that
    /// by default.
    fn peers(&self, settings: &mut Settings) {
        let own = Span::from_ns(fixed_latency_ns(|key| settings.table("switch", key)));
        let default = response_by_default(own);
        if settings.table("buffer", "peer_response_us").is_none() && self.response > default {
            settings.put("buffer", "peer_response_us", derived(Value::Num(in_us(self.response))));
        }
    }

    /// The warning about a `peer_response_us` that is set below the time that neighbours take.
    fn warn_of_quick_peers(&self, settings: &Settings) -> Option<Problem> {
        let set = settings.table("buffer", "peer_response_us")?;
        let has_own = settings.table("buffer", "headroom_bytes").is_some(); // another warning looks at that
        let needed = in_us(self.response);
        let found = set.value.as_num().filter(|&found| found < needed && !has_own)?;
        let message = format!(
            "a lossless priority may lose frames: neighbours take {needed} us to obey a PAUSE, found {found}; leave the key out, and headroom covers that"
        );
        Some(problem(set.place.clone(), "buffer.peer_response_us", message))
    }

    /// Whether preamble, gap and the least size of a frame take time on the wire.
    pub fn overhead(&self) -> bool {
        let set = self.all.table("switch", "wire_overhead");
        set.is_none_or(|set| set.value != Value::Bool(false))
    }

    /// Priority maps of all switches, and a port with the defaults that they share.
    pub fn port(&self) -> Result<(PriMaps, PortConfig), ConfigError> {
        // Rate and length of this link do not change the classification, for which it is made.
        let links = [LinkSpec { rate: LinkRate::gbps(100), propagation: Span::from_ns(50) }];
        // Not a switch of the network: `settings` and not `config`, as there are no neighbours to warn of.
        let settings = self.settings(&Site { node: 0, name: "sw", links: &links });
        let config = Config::resolve(&settings, Timing::Virtual)?.switch;
        let maps = config.maps;
        config.ports.into_iter().next().map(|port| (maps, port)).ok_or_else(|| {
            let message = "expected a port".to_owned();
            ConfigError(vec![Problem { place: Place::Default, key: "port".to_owned(), message }])
        })
    }

    /// The configuration of the switch at a site, and the times around it.
    pub fn at(&self, site: &Site<'_>) -> Result<SwitchPlan, ConfigError> {
        let config = self.config(site)?;
        let around = SwitchTiming {
            latency: config.run.in_virtual_time.fixed_latency,
            overhead: config.run.in_virtual_time.wire_overhead,
            cut_through: config.run.in_virtual_time.cut_through,
            propagation: site
                .links
                .first()
                .map_or(SwitchTiming::default().propagation, |it| it.propagation),
            ..SwitchTiming::default()
        };
        Ok(SwitchPlan { config: config.switch, around })
    }
}

/// The port at a link.
fn port(number: usize, link: &LinkSpec) -> Item {
    let text = |text: &str| derived(Value::Text(text.to_owned()));
    let set = [
        ("name", text(&format!("p{number}"))),
        ("kind", text("null")),
        ("port_bandwidth_gbps", derived(Value::Num(gbps(link)))),
    ];
    Item { place: Place::Derived, set: set.into() }
}

#[expect(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "control reads decimal units"
)]
fn gbps(link: &LinkSpec) -> f64 {
    link.rate.as_bps() as f64 / 1e9
}

#[expect(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "control reads decimal units"
)]
fn metres(ps: u64) -> f64 {
    ps as f64 / 5_000.0
}

/// The fixed latency of a switch in ns, from the keys that are set for it.
fn fixed_latency_ns<'a>(set: impl Fn(&'static str) -> Option<&'a Setting>) -> u64 {
    let int = |key| set(key)?.value.as_int().and_then(|ns| u64::try_from(ns).ok());
    let parts = || Some(int("t_ingress_ns")? + int("t_crossbar_ns")?);
    let default = || Keys::default_of("switch", "fixed_latency_ns");
    // Where both are set they agree, or `Resolver::fixed_latency_ns` refuses them.
    int("fixed_latency_ns").or_else(parts).or_else(default).unwrap_or(0)
}

impl ScenarioReader<'_> {
    /// Longest time that any neighbour of a switch takes to obey a PAUSE: a host for the PAUSE and for the frame that
    /// it sends last, a switch for the PAUSE as for any frame.
    fn response(&self, all: &Settings, named: &Named) -> Span {
        let host = host_delay(&Keys::table(self.settings, "endpoint"));
        let of_all = fixed_latency_ns(|key| all.table("switch", key));
        let of_named = named.values().map(|own| {
            let own = |key| own.iter().find(|(of, _)| *of == key).map(|(_, set)| set);
            fixed_latency_ns(|key| own(key).or_else(|| all.table("switch", key)))
        });
        let switch = of_named.max().unwrap_or(0).max(of_all);
        (host.receive + host.send).max(Span::from_ns(switch))
    }

    /// The plan of all switches, with the problems of their sections.
    pub(super) fn switches(&mut self, seed: u64, frames: Frames) -> Plan {
        let mut all = Settings::of(&CONFIG);
        // [switch] of a scenario is the section of a configuration; [[switch]] names switches.
        for name in SWITCH_SECTIONS.into_iter().chain(["port_defaults"]) {
            let keys = Keys::table(self.settings, name);
            for (key, setting) in keys.all_set() {
                self.refuse_elsewhere(name, key, setting);
                if let Some(section) = section(name) {
                    all.put(section.name, key, setting.clone());
                }
            }
        }
        let shared = Keys::table(self.settings, "switch_defaults");
        let mut named = Named::new();
        for item in Keys::items(self.settings, "switch") {
            // The name belongs to the site; `settings` puts it in.
            let own = item.all_set().filter(|(key, _)| *key != "name");
            let own: Vec<_> = own.map(|(key, set)| (key, set.clone())).collect();
            for (key, setting) in &own {
                self.refuse_elsewhere("switch", key, setting);
            }
            named.insert(item.text("name").unwrap_or_default(), own);
        }
        for (key, setting) in shared.all_set() {
            self.refuse_elsewhere("switch", key, setting);
            // Without [[switch]] the keys would stand in two places, [switch] and [switch_defaults].
            if named.is_empty() {
                self.refuse(&shared, key, "expected [[switch]] beside it; without, the keys of all switches stand in [switch]");
            }
            all.put("switch", key, setting.clone());
        }
        self.add_latencies(&all, &mut named);
        if all.table("fdb", "capacity").is_none() {
            all.put("fdb", "capacity", derived(Value::Int(FDB_CAPACITY)));
        }
        // Nothing in a frame marks it as Lite: ports have to be told (docs/spec/pipeline.md §1).
        if frames.kind == Kind::Lite && all.table("port_defaults", "afh").is_none() {
            all.put("port_defaults", "afh", derived(Value::Text("lite".to_owned())));
        }
        // The default of the table, in case nothing is set.
        let most = Keys::table(self.settings, "switch").count("max_frame").unwrap_or(0);
        let set = all.table("switch", "max_frame");
        let most = set
            .and_then(|set| set.value.as_int())
            .and_then(|int| usize::try_from(int).ok())
            .unwrap_or(most);
        if most < frames.len_max {
            let place = set.map_or(Place::Default, |set| set.place.clone());
            let message = format!(
                "expected at least {}, which frames of endpoints have, found {most}",
                frames.len_max
            );
            self.refuse_at(place, "switch.max_frame", message);
        }
        let response = self.response(&all, &named);
        Plan { all, named, seed, response }
    }

    /// Gives switches the latencies of an imported network, unless the scenario sets one.
    fn add_latencies(
        &mut self,
        all: &Settings,
        named: &mut BTreeMap<String, Vec<(&'static str, Setting)>>,
    ) {
        let latencies = core::mem::take(&mut self.latencies);
        let own = ["fixed_latency_ns", "t_ingress_ns", "t_crossbar_ns"];
        let own = own.into_iter().find_map(|key| Some((key, all.table("switch", key)?)));
        match own {
            Some((key, set)) if !latencies.is_empty() => {
                let message = "it is that of all switches, and Switch_Latency_ns of the imported network is not used";
                self.warnings.push(problem(set.place.clone(), format!("switch.{key}"), message));
            }
            Some(_) => {}
            None => {
                for (name, ns) in latencies {
                    let latency = derived(Value::Int(ns.cast_signed()));
                    named.entry(name).or_default().push(("fixed_latency_ns", latency));
                }
            }
        }
    }

    /// Refuses a key that a scenario sets elsewhere, or that counts only live.
    fn refuse_elsewhere(&mut self, section: &str, key: &str, setting: &Setting) {
        let row = ELSEWHERE.iter().find(|(of, keys, _)| *of == section && keys.contains(&key));
        if let Some((_, _, message)) = row {
            self.refuse_at(setting.place.clone(), format!("{section}.{key}"), *message);
        }
    }

    /// Reports the problems of switches before they are built, once for switches that are alike.
    pub(super) fn check_switches(&mut self, topology: &Topology, plan: &Plan) {
        let mut seen: Vec<(Vec<LinkSpec>, OwnKeys<'_>)> = Vec::new();
        for (node, it) in topology.nodes().iter().enumerate() {
            if it.kind != NodeKind::Switch {
                continue;
            }
            let links: Vec<LinkSpec> =
                it.ports.iter().filter_map(|&link| topology.links().get(link)?.spec).collect();
            let named = plan.named.get(&it.name).into_iter().flatten();
            let named: OwnKeys<'_> = named.map(|(key, set)| (*key, &set.value)).collect();
            // A fat tree has dozens of switches with the same links and keys, and so the same problems.
            if seen.contains(&(links.clone(), named.clone())) {
                continue;
            }
            match plan.config(&Site { node, name: &it.name, links: &links }) {
                Ok(config) => self.warn(config.warnings),
                Err(error) => self.problems.extend(error.0),
            }
            seen.push((links, named));
        }
    }

    fn warn(&mut self, warnings: Vec<Problem>) {
        for warning in warnings {
            // Switches that differ in their links can still have the same warning.
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}
