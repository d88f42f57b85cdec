//! Static initialisation of a switch: PIDs, routing groups, routes and bindings from its configuration.
//!
//! `[fabric] pid`, `[[pid]]`, `[[routing_group]]`, `[[route]]` and `[[bind]]` become a [`StaticInit`], which takes
//! the place of a fabric manager; `Switch::new` checks that it holds together.
//!
//! Source: CXL 3.1 section 7.7.12.1; docs/spec/cxl-fabric.md "Start-up"; docs/spec/wire-formats.md §4.5, §5.3.

use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::PathCost;
use weft_parsers::fabric::{DrtEntry, Pid, RgtEntry, RgtMode};
use weft_pbr_switch::{BindingEnd, StaticBinding, StaticInit, StaticPid};

use super::{Item, Resolver, Value, chosen};
use crate::table::{Key, key};

/// Sections that only a switch with static initialisation has.
const SECTIONS: [&str; 4] = ["pid", "routing_group", "route", "bind"];

impl Resolver<'_> {
    /// The static initialisation; `None` where a fabric manager sets the switch up.
    pub(super) fn static_init(&mut self) -> Option<StaticInit> {
        let own = self.int(key!("fabric", "pid")).and_then(|bits| u16::try_from(bits).ok());
        // The switch's own PID is the key that asks for static initialisation.
        let Some(pid) = own.map(Pid::from_low_bits) else {
            for section in SECTIONS {
                if let Some(item) = self.settings.items(section).first() {
                    let message = "expected a pid in [fabric], by which the switch is set up from the start, found none";
                    self.refuse(item.place.clone(), section, message);
                }
            }
            return None;
        };
        let settings = self.settings;
        let mut fixed = StaticInit {
            pid,
            targets: Vec::new(),
            groups: Vec::new(),
            routes: Vec::new(),
            binds: Vec::new(),
        };
        for item in settings.items("pid") {
            let port = self.fixed_port(item, key!("pid", "port"));
            let (pid, instance) = (
                self.fixed_int(item, key!("pid", "pid")),
                Self::or_zero(item, key!("pid", "instance")),
            );
            if let (Some(port), Some(pid)) = (port, pid) {
                let pid = Pid::from_low_bits(pid);
                fixed.targets.push(StaticPid { port, instance, pid });
            }
        }
        for item in settings.items("routing_group") {
            if let Some(group) = self.fixed_group(item) {
                fixed.groups.push(group);
            }
        }
        for item in settings.items("route") {
            if let Some(route) = self.fixed_route(item) {
                fixed.routes.push(route);
            }
        }
        for item in settings.items("bind") {
            if let Some(bind) = self.fixed_bind(item) {
                fixed.binds.push(bind);
            }
        }
        Some(fixed)
    }

    /// The number of a required key; refuses the item without it.
    fn fixed_int<T: TryFrom<i64>>(&mut self, item: &Item, key: Key) -> Option<T> {
        let found = Self::int_of(item, key);
        if found.is_none() {
            let message = format!("expected {}, found none", key.name);
            self.refuse(item.place.clone(), &key.path(), message);
        }
        found
    }

    fn int_of<T: TryFrom<i64>>(item: &Item, key: Key) -> Option<T> {
        item.get(key).and_then(|set| T::try_from(set.value.as_int()?).ok())
    }

    fn or_zero<T: TryFrom<i64> + Default>(item: &Item, key: Key) -> T {
        Self::int_of(item, key).unwrap_or_default()
    }

    /// The port of a required `port`; refuses the item without it.
    fn fixed_port(&mut self, item: &Item, key: Key) -> Option<PortId> {
        let Some(set) = item.get(key) else {
            let message = "expected the name of a port, found none";
            self.refuse(item.place.clone(), &key.path(), message);
            return None;
        };
        self.port_named(set.value.as_text().unwrap_or_default(), &set.place, &key.path())
    }

    fn fixed_group(&mut self, item: &Item) -> Option<(u8, RgtEntry)> {
        let number = self.fixed_int(item, key!("routing_group", "number"))?;
        let Some(set) = item.get(key!("routing_group", "ports")) else {
            let message = "expected names of ports, found none";
            self.refuse(item.place.clone(), "routing_group.ports", message);
            return None;
        };
        let mut entry = RgtEntry::default();
        let names: Vec<&str> = set.value.members().iter().filter_map(Value::as_text).collect();
        for (slot, name) in entry.ports.iter_mut().zip(&names) {
            *slot = self.port_named(name, &set.place, "routing_group.ports")?.get();
        }
        let count = u8::try_from(names.len()).unwrap_or(1).clamp(1, 8);
        // By default all ports are primary.
        let primary = Self::int_of(item, key!("routing_group", "primary")).unwrap_or(count);
        if primary > count {
            let place = item.place_of(key!("routing_group", "primary")).clone();
            let message =
                format!("expected at most the {count} ports of the group, found {primary}");
            self.refuse(place, "routing_group.primary", message);
            return None;
        }
        // `RgtEntry` has the indices of the last port and of the last primary one; the keys count ports.
        (entry.highest, entry.primary) = (count - 1, primary - 1);
        entry.mode = match item.get(key!("routing_group", "mode")) {
            Some(set) => chosen(&set.value),
            None => RgtMode::Random,
        };
        entry.mix = Self::or_zero(item, key!("routing_group", "mix"));
        Some((number, entry))
    }

    fn fixed_route(&mut self, item: &Item) -> Option<(Pid, DrtEntry)> {
        let to = Pid::from_low_bits(self.fixed_int(item, key!("route", "pid"))?);
        let port = key!("route", "port");
        let entry = match (item.get(port), Self::int_of(item, key!("route", "routing_group"))) {
            (Some(_), None) => DrtEntry::Port(self.fixed_port(item, port)?.get()),
            (None, Some(group)) => DrtEntry::Group(group),
            _ => {
                let message = "expected either a port or a routing_group";
                self.refuse(item.place.clone(), "route", message);
                return None;
            }
        };
        Some((to, entry))
    }

    fn fixed_bind(&mut self, item: &Item) -> Option<StaticBinding> {
        let vcs = Self::or_zero(item, key!("bind", "vcs"));
        let vppb = self.fixed_int(item, key!("bind", "vppb"))?;
        let own = Self::int_of(item, key!("bind", "own"));
        let far = Self::int_of(item, key!("bind", "far"));
        let port = key!("bind", "port");
        let to = match (item.get(port), own, far) {
            (Some(_), None, None) => BindingEnd::Port(self.fixed_port(item, port)?),
            (None, Some(own), Some(far)) => BindingEnd::Link {
                own: Pid::from_low_bits(own),
                far: Pid::from_low_bits(far),
                cost: PathCost {
                    latency_base: Self::or_zero(item, key!("bind", "latency_base")),
                    latency: Self::or_zero(item, key!("bind", "latency")),
                    bandwidth_base: Self::or_zero(item, key!("bind", "bandwidth_base")),
                    bandwidth: Self::or_zero(item, key!("bind", "bandwidth")),
                },
            },
            _ => {
                let message = "expected either a port, or own and far of a virtual link";
                self.refuse(item.place.clone(), "bind", message);
                return None;
            }
        };
        Some(StaticBinding { vcs, vppb, to })
    }
}
