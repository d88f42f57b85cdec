//! LAGs, and the ports that static entries name.
//!
//! Each `[[lag]]` becomes a [`Lag`]. Where a key may name a port or a LAG, the name becomes one port: that of a LAG
//! is its lowest one, which stands for all of them in the FDB.
//!
//! Source: IEEE 802.1AX-2020 clause 6; docs/spec/pipeline.md §3.

use std::collections::BTreeMap;

use weft_dataplane::config::{PortConfig, PortRole};
use weft_dataplane::lag::Lag;
use weft_dataplane::types::{PortId, PortSet};

use super::{Item, Place, Resolver, Setting, Value};
use crate::table::key;

/// The name of a listed port that carries TLPs, if one does.
fn of_role<'a>(ports: &'a [PortConfig], listed: &Setting) -> Option<&'a str> {
    let is_listed = |port: &&PortConfig| {
        listed.value.members().iter().any(|name| name.as_text() == Some(&port.name))
    };
    let found = ports.iter().filter(is_listed).find(|port| port.role != PortRole::L2);
    found.map(|port| port.name.as_str())
}

impl Resolver<'_> {
    pub(super) fn lags(&mut self, ports: &[PortConfig]) -> Vec<Lag> {
        let mut taken: BTreeMap<PortId, String> = BTreeMap::new();
        let mut lags: Vec<Lag> = Vec::new();
        for item in self.settings.items("lag") {
            let (name_key, ports_key) = (key!("lag", "name"), key!("lag", "ports"));
            let (Some(name), Some(members)) = (item.get(name_key), item.get(ports_key)) else {
                let missing = if item.get(name_key).is_none() { name_key } else { ports_key };
                let message = "expected a name and ports of this LAG";
                self.refuse(item.place.clone(), &missing.path(), message);
                continue;
            };
            let text = name.value.as_text().unwrap_or_default();
            // Static entries and groups name ports and LAGs by the same keys: one name for both would be ambiguous.
            let is_port = ports.iter().any(|port| port.name == text);
            if is_port || lags.iter().any(|lag| lag.name == text) {
                let message = format!("expected a name of its own, found {text:?} twice");
                self.refuse(name.place.clone(), "lag.name", message);
            }
            if let Some(port) = of_role(ports, members) {
                let message = format!(
                    "expected ports of role l2, found {port:?}; several links to one switch are a routing group"
                );
                self.refuse(members.place.clone(), "lag.ports", message);
            }
            let of = self.members(members, ports, text, &mut taken);
            lags.push(Lag { name: text.to_owned(), ports: of });
        }
        lags
    }

    /// The ports that a LAG lists. Refuses a port that is in two LAGs, and ports that differ.
    fn members(
        &mut self,
        listed: &Setting,
        ports: &[PortConfig],
        lag: &str,
        taken: &mut BTreeMap<PortId, String>,
    ) -> PortSet {
        const KEY: &str = "lag.ports";
        let mut members = PortSet::EMPTY;
        for name in listed.value.members().iter().filter_map(Value::as_text) {
            let Some(port) = self.port_named(name, &listed.place, KEY) else { continue };
            if let Some(other) = taken.insert(port, lag.to_owned()) {
                let message = format!("expected each port once, found {name:?} in {other:?} too");
                self.refuse(listed.place.clone(), KEY, message);
            }
            members.insert(port);
        }
        // Any member may receive a frame of a flow, so all must treat it alike: compare each with the first.
        let mut all = members.iter().filter_map(|port| ports.get(port.index()));
        if let Some(first) = all.next()
            && let Some((other, what)) =
                all.find_map(|other| Some((other, first.difference(other)?)))
        {
            let message = format!(
                "expected ports that are alike, found {:?} and {:?} with another {what}",
                first.name, other.name
            );
            self.refuse(listed.place.clone(), KEY, message);
        }
        members
    }

    /// The ports of a static entry, where a LAG counts as its lowest port; `None` if the entry is refused.
    pub(super) fn entry_ports(&mut self, item: &Item) -> Option<PortSet> {
        const ONE: &str = "static_entry.port";
        const MANY: &str = "static_entry.ports";
        match (item.get(key!("static_entry", "port")), item.get(key!("static_entry", "ports"))) {
            (Some(one), None) => {
                let name = one.value.as_text().unwrap_or_default();
                let port = self.port_or_lag(name, &one.place, ONE)?;
                Some(PortSet::only(port))
            }
            (None, Some(many)) => {
                let mut ports = PortSet::EMPTY;
                for name in many.value.members().iter().filter_map(Value::as_text) {
                    let port = self.port_or_lag(name, &many.place, MANY)?;
                    if ports.contains(port) {
                        let message = format!("expected each port once, found {name:?} again");
                        self.refuse(many.place.clone(), MANY, message);
                    }
                    ports.insert(port);
                }
                Some(ports)
            }
            (None, None) => {
                self.refuse(item.place.clone(), ONE, "expected the name of a port");
                None
            }
            (Some(_), Some(many)) => {
                self.refuse(many.place.clone(), MANY, "expected this or port, found both");
                None
            }
        }
    }

    /// Whether `name` is that of a LAG.
    pub(super) fn is_lag(&self, name: &str) -> bool {
        let is_named = |item: &Item| item.text(key!("lag", "name")) == Some(name);
        self.settings.items("lag").iter().any(is_named)
    }

    /// The port called `name`, or the lowest port of the LAG of that name.
    pub(super) fn port_or_lag(&mut self, name: &str, place: &Place, key: &str) -> Option<PortId> {
        let lags = self.settings.items("lag");
        let name_of = |item: &Item| item.text(key!("lag", "name")).map(str::to_owned);
        let ports_of = |item: &Item| -> PortSet {
            let listed = item.get(key!("lag", "ports")).map_or(&[][..], |set| set.value.members());
            let id = |name: &Value| {
                let is_named = |port: &Item| port.text(key!("port", "name")) == name.as_text();
                self.settings.items("port").iter().position(is_named).and_then(PortId::new)
            };
            listed.iter().filter_map(id).collect()
        };
        if let Some(lag) = lags.iter().find(|lag| lag.text(key!("lag", "name")) == Some(name)) {
            return ports_of(lag).lowest(); // none: the LAG has been refused
        }
        let port = self.port_named(name, place, key)?;
        // The tables name a LAG by its lowest port: an entry at another member would not be one of the LAG.
        let within = |lag: &&Item| {
            let ports = ports_of(lag);
            ports.contains(port) && ports.lowest() != Some(port)
        };
        if let Some(lag) = lags.iter().find(within).and_then(name_of) {
            let message =
                format!("expected {lag:?}, the LAG that {name:?} is in, or its first port");
            self.refuse(place.clone(), key, message);
        }
        Some(port)
    }
}
