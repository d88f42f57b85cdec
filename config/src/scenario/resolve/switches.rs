//! What each switch is like: the sections of a configuration, with ports after the links of the switch.
//!
//! Settings of all switches and of named ones → [`Plan`], which makes a [`SwitchPlan`] for a site.
//!
//! Units: bit/s, metres, bytes.
//! Source: docs/spec/model.md §3; docs/configuration.md.

use std::collections::BTreeMap;

use weft_dataplane::config::{PortConfig, PriMaps};
use weft_dataplane::time::{LinkRate, Span};
use weft_hosts::frames::Kind;
use weft_sim::scenario::{Site, SwitchPlan};
use weft_sim::switch::Around;
use weft_sim::topology::{LinkSpec, NodeKind, Topology};

use super::delay::host_delay;
use super::{Keys, Reader, problem};
use crate::resolve::{Config, Timing, in_us, response_by_default};
use crate::scenario::table::{ELSEWHERE, SWITCH_SECTIONS};
use crate::settings::{Item, Setting};
use crate::table::{CONFIG, section};
use crate::value::Value;
use crate::{ConfigError, Place, Problem, Settings};

/// Entries of an FDB unless it is set: routes to all hosts, twice.
const FDB_CAPACITY: i64 = 2_048;

/// What named switches have of their own.
type Named = BTreeMap<String, Vec<(&'static str, Setting)>>;

/// What the frames of endpoints want of all switches.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frames {
    /// Their kind.
    pub kind: Kind,
    /// Longest one, without FCS.
    pub len_max: usize,
}

/// What one switch has that others may not have.
type OwnKeys<'a> = Vec<(&'a str, &'a Value)>;

/// How to make switches.
#[derive(Debug)]
pub(super) struct Plan {
    /// What all have in common.
    all: Settings,
    /// What named ones have.
    named: Named,
    seed: u64,
    /// The longest that a neighbour of any takes to obey a PAUSE.
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

    /// What is set of the switch at a site, and what follows from its links.
    fn settings(&self, site: &Site<'_>) -> Settings {
        let mut settings = self.all.clone();
        for (key, setting) in self.named.get(site.name).into_iter().flatten() {
            settings.put("switch", key, setting.clone());
        }
        settings.put("switch", "name", derived(Value::Text(site.name.to_owned())));
        if settings.table("switch", "seed").is_none() {
            let seed = self.seed.wrapping_add(site.node as u64) & i64::MAX.unsigned_abs();
            settings.put("switch", "seed", derived(Value::Int(seed.cast_signed())));
        }
        if settings.table("buffer", "cable_m").is_none() {
            let longest = site.links.iter().map(|link| link.propagation.as_ps()).max().unwrap_or(0);
            settings.put("buffer", "cable_m", derived(Value::Num(metres(longest))));
        }
        for (number, link) in site.links.iter().enumerate() {
            settings.push("port", port(number, link));
        }
        settings
    }

    /// Has headroom cover what neighbours take to obey a PAUSE, where that is more than it covers by default.
    fn peers(&self, settings: &mut Settings) {
        let own = Span::from_ns(fixed_latency_ns(|key| settings.table("switch", key)));
        let default = response_by_default(own);
        if settings.table("buffer", "peer_response_us").is_none() && self.response > default {
            settings.put("buffer", "peer_response_us", derived(Value::Num(in_us(self.response))));
        }
    }

    /// What is doubtful about a `peer_response_us` that is set.
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

    /// Whether frames take their true wire time.
    pub fn overhead(&self) -> bool {
        let set = self.all.table("switch", "wire_overhead");
        set.is_none_or(|set| set.value != Value::Bool(false))
    }

    /// How ports of all switches are by default.
    pub fn port(&self) -> Result<(PriMaps, PortConfig), ConfigError> {
        let links = [LinkSpec { rate: LinkRate::gbps(100), propagation: Span::from_ns(50) }];
        // No switch of the network: nobody is at its ports.
        let settings = self.settings(&Site { node: 0, name: "sw", links: &links });
        let config = Config::resolve(&settings, Timing::Virtual)?.switch;
        let maps = config.maps;
        config.ports.into_iter().next().map(|port| (maps, port)).ok_or_else(|| {
            let message = "expected a port".to_owned();
            ConfigError(vec![Problem { place: Place::Default, key: "port".to_owned(), message }])
        })
    }

    /// What the switch at a site is like.
    pub fn at(&self, site: &Site<'_>) -> Result<SwitchPlan, ConfigError> {
        let config = self.config(site)?;
        let around = Around {
            latency: config.run.in_virtual_time.fixed_latency,
            overhead: config.run.in_virtual_time.wire_overhead,
            cut_through: config.run.in_virtual_time.cut_through,
            propagation: site
                .links
                .first()
                .map_or(Around::default().propagation, |it| it.propagation),
            ..Around::default()
        };
        Ok(SwitchPlan { config: config.switch, around })
    }
}

/// A port after its link.
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

/// The fixed latency of a switch by the keys that are set of it, in ns.
fn fixed_latency_ns<'a>(set: impl Fn(&'static str) -> Option<&'a Setting>) -> u64 {
    let int = |key| set(key)?.value.as_int().and_then(|ns| u64::try_from(ns).ok());
    let parts = || Some(int("t_ingress_ns")? + int("t_crossbar_ns")?);
    let default = || Keys::default_of("switch", "fixed_latency_ns");
    int("fixed_latency_ns").or_else(parts).or_else(default).unwrap_or(0)
}

impl Reader<'_> {
    /// The longest that any neighbour of a switch takes to obey a PAUSE: a host for the PAUSE and for the frame that it sends
    /// last, a switch for the PAUSE as for any frame.
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

    /// What switches are like.
    pub(super) fn switches(&mut self, seed: u64, frames: Frames) -> Plan {
        let mut all = Settings::of(&CONFIG);
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
            let own = item.all_set().filter(|(key, _)| *key != "name");
            let own: Vec<_> = own.map(|(key, set)| (key, set.clone())).collect();
            for (key, setting) in &own {
                self.refuse_elsewhere("switch", key, setting);
            }
            named.insert(item.text("name").unwrap_or_default(), own);
        }
        for (key, setting) in shared.all_set() {
            self.refuse_elsewhere("switch", key, setting);
            if named.is_empty() {
                self.refuse(&shared, key, "expected [[switch]] beside it; without, the keys of all switches stand in [switch]");
            }
            all.put("switch", key, setting.clone());
        }
        self.add_latencies(&all, &mut named);
        if all.table("fdb", "capacity").is_none() {
            all.put("fdb", "capacity", derived(Value::Int(FDB_CAPACITY)));
        }
        if frames.kind == Kind::Lite && all.table("port_defaults", "afh").is_none() {
            all.put("port_defaults", "afh", derived(Value::Text("lite".to_owned())));
        }
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

    /// Gives switches the latencies that an imported network says, unless the scenario says one.
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

    /// What is said elsewhere.
    fn refuse_elsewhere(&mut self, section: &str, key: &str, setting: &Setting) {
        let row = ELSEWHERE.iter().find(|(of, keys, _)| *of == section && keys.contains(&key));
        if let Some((_, _, message)) = row {
            self.refuse_at(setting.place.clone(), format!("{section}.{key}"), *message);
        }
    }

    /// Tells what is wrong with switches before they are built: once for those that are alike.
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
            if !self.warnings.contains(&warning) {
                self.warnings.push(warning);
            }
        }
    }
}
