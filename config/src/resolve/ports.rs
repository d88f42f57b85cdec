//! Ports, priority maps and forwarding tables.
//!
//! Each `[[port]]` becomes a [`PortConfig`]. Static entries and groups name ports, and become port numbers here.
//! Rates become bit/s or frames/s; lengths are bytes without FCS.
//!
//! Source: docs/spec/pipeline.md §1 to §3, §7.

use std::collections::BTreeMap;

use weft_dataplane::config::{ForwardConfig, PortConfig, PriMaps, PriSource};
use weft_dataplane::egress::EgressConfig;
use weft_dataplane::fdb::{FdbKey, StaticEntry};
use weft_dataplane::groups::Group;
use weft_dataplane::storm::{StormLimit, StormLimits};
use weft_dataplane::time::{LinkRate, Span};
use weft_dataplane::types::{PORTS_MAX, PerPri, PortId, PortSet, Pri, PriSet};
use weft_dataplane::vlan::PortMode;
use weft_parsers::vlan::Tpids;
use weft_parsers::{AddrKey, AddrSpace, AfhMode, MacAddr, ParseConfig, Vid};

use super::{Item, Place, Resolver, Timing, Value, chosen, scale, to_u32, to_usize};
use crate::choice::{DeviceIs, DeviceKind, LoopAction, UnknownUnicast, VlanMode};
use crate::table::{Key, key};
use crate::value::{parse_addr, parse_reserved_group, vid_range};

/// Bit/s of a Gbit/s.
const GBPS: f64 = 1e9;
const MBPS: f64 = 1e6;

/// The key of the map from a wire field to priorities.
const fn map_of(source: PriSource) -> Key {
    Key::of("classify", source.map_key())
}

/// The table has the key of every source: fails to compile otherwise, like `key!`.
const _: () = {
    let mut sources: &[PriSource] = &PriSource::ALL;
    while let [source, rest @ ..] = sources {
        map_of(*source);
        sources = rest;
    }
};

impl Resolver<'_> {
    pub(super) fn maps(&mut self) -> PriMaps {
        let mut maps = PriMaps::for_pris(self.pris);
        // The map of PCP comes first in `ALL`: those of DSCP and EXP are derived from it by default.
        for source in PriSource::ALL {
            let key = map_of(source);
            let (value, place) = (self.get(key), self.place(key));
            let given = self.pri_list(value.as_ref(), &place, &key.path());
            // The map of PCP is complete by now: changes of it carry over to the maps that derive from it.
            maps.derive_from_pcp(source);
            let map = maps.of_mut(source);
            overwrite(map, &given);
            // That of PCP has a default in the table; the others are shown as derived.
            if source != PriSource::Pcp {
                let shown = map.iter().map(|pri| Value::Int(pri.get().into())).collect();
                self.derived.insert(key.slot(0), Value::List(shown));
            }
        }
        maps.pri_to_pg = self.priority_groups();
        maps
    }

    /// Number of each priority's ingress group; by default each has its own.
    fn priority_groups(&mut self) -> PerPri<u8> {
        const KEY: &str = "classify.pri_to_pg";
        let mut groups = PerPri(Pri::ALL.map(Pri::get));
        if let Some(given) = self.get(key!("classify", "pri_to_pg")) {
            let place = self.place(key!("classify", "pri_to_pg"));
            let read = |value: &Value| u8::try_from(value.as_int()?).ok();
            groups = self.per_pri(&given, &place, KEY, 0, read);
        }
        let shown = groups.0.iter().take(self.pris).map(|&group| Value::Int(group.into()));
        self.derived.insert(key!("classify", "pri_to_pg").slot(0), Value::List(shown.collect()));
        groups
    }

    /// Refuses lossless priorities that share a group: a PAUSE would depend on frames of the other priority.
    pub(super) fn check_priority_groups(&mut self, groups: PerPri<u8>, lossless: PriSet) {
        let all = || Pri::ALL.into_iter().take(self.pris);
        let shared = lossless.iter().find_map(|pri| {
            let other = all().find(|&other| other != pri && groups[other] == groups[pri])?;
            Some((pri.get(), other.get(), groups[pri]))
        });
        if let Some((pri, other, group)) = shared {
            let place =
                self.place_of(&[key!("classify", "pri_to_pg"), key!("pfc", "pfc_priorities")]);
            let message = format!(
                "expected a group of its own for lossless priority {pri}, found {group} for {pri} and {other}"
            );
            self.refuse(place, "classify.pri_to_pg", message);
        }
    }

    pub(super) fn ports(&mut self) -> Vec<PortConfig> {
        let items = self.settings.items("port");
        if let Some(extra) = items.get(PORTS_MAX) {
            let message = format!("expected at most {PORTS_MAX} ports, found {}", items.len());
            self.refuse(extra.place.clone(), "port", message);
        }
        let mut names: BTreeMap<String, Place> = BTreeMap::new();
        let mut devices: BTreeMap<(Option<DeviceKind>, String), String> = BTreeMap::new();
        let mut ports = Vec::new();
        for (index, item) in items.iter().enumerate() {
            let Some(name) = item.text(key!("port", "name")) else {
                self.refuse(item.place.clone(), "port.name", "expected a name for this port");
                continue;
            };
            let place = self.port_place(item, key!("port", "name"));
            if let Some(first) = names.insert(name.to_owned(), place.clone()) {
                let message =
                    format!("expected each port once, found {name:?} here and at {first}");
                self.refuse(place, "port.name", message);
            }
            let kind: DeviceKind = self.port_choice(item, key!("port", "kind"));
            let device = item.text(key!("port", "device")).unwrap_or(name);
            // An interface is the same device whatever the kind of port; taps, files and DPDK devices have names of
            // their own.
            let of = (kind.device() != DeviceIs::Interface).then_some(kind);
            if kind.device() != DeviceIs::Nothing
                && let Some(other) = devices.insert((of, device.to_owned()), name.to_owned())
            {
                let message =
                    format!("expected a device of its own, found {device:?} at port {other:?} too");
                self.refuse(self.port_place(item, key!("port", "device")), "port.device", message);
            }
            ports.push(self.port(index, item, name));
        }
        ports
    }

    pub(super) fn port(&mut self, index: usize, item: &Item, name: &str) -> PortConfig {
        let text = |me: &Self, key| {
            me.port_get(item, key).and_then(|value| value.as_text().map(str::to_owned))
        };
        let frame_len_max = self.frame_len(index, item);
        let default_pri = self.port_get(item, key!("port", "default_pri"));
        let place = self.port_place(item, key!("port", "default_pri"));
        let default_pri = self.pri_list(default_pri.as_ref(), &place, "port.default_pri");
        if text(self, key!("port", "flow_control")).as_deref() == Some("cbfc") {
            let message = "expected \"pfc\" or \"none\", found \"cbfc\": credits pass the switch from end to end and ask nothing of its ports; take \"none\"";
            self.refuse(
                self.port_place(item, key!("port", "flow_control")),
                "port.flow_control",
                message,
            );
        }
        // By default no port can fill the FDB for the others.
        let learned_max =
            self.port_int(item, key!("port", "max_learned")).or_else(|| self.fair_share());
        let learned_max = learned_max.unwrap_or(0);
        let shown = i64::try_from(learned_max).unwrap_or(i64::MAX);
        self.derived.insert(key!("port", "max_learned").slot(index), Value::Int(shown));
        let parse = self.parse(index, item);
        PortConfig {
            name: name.to_owned(),
            rate: self.rate(item, key!("port", "port_bandwidth_gbps")).unwrap_or(LinkRate::gbps(1)),
            trust: self.trust(item, parse.afh),
            parse,
            default_pri: Pri::from_low_bits(default_pri.first().copied().unwrap_or(0)),
            vlan: self.vlan(item),
            learned_max: to_u32(learned_max),
            storm: StormLimits {
                broadcast: self.storm(
                    item,
                    key!("port", "storm_broadcast"),
                    key!("port", "storm_broadcast_mbps"),
                ),
                unknown_unicast: self.storm(
                    item,
                    key!("port", "storm_unknown_unicast"),
                    key!("port", "storm_unknown_unicast_mbps"),
                ),
                multicast: self.storm(
                    item,
                    key!("port", "storm_multicast"),
                    key!("port", "storm_multicast_mbps"),
                ),
            },
            egress: self.egress(item, frame_len_max),
            frame_len_max,
            pfc: text(self, key!("port", "flow_control")).as_deref() == Some("pfc"),
            role: self.role(item, frame_len_max),
        }
    }

    /// Entries that each port may learn so that all ports together fit the FDB.
    fn fair_share(&self) -> Option<u64> {
        let ports = self.settings.items("port").len().max(1) as u64;
        Some((self.int(key!("fdb", "capacity"))? / ports).max(1))
    }

    fn frame_len(&mut self, index: usize, item: &Item) -> usize {
        let most = self.int(key!("switch", "max_frame")).unwrap_or(1_522);
        let len = self.port_int(item, key!("port", "max_frame")).unwrap_or(most);
        if len > most {
            let place = self.port_place(item, key!("port", "max_frame"));
            let message = format!("expected at most switch.max_frame, {most}, found {len}");
            self.refuse(place, "port.max_frame", message);
        }
        let shown = i64::try_from(len).unwrap_or(i64::MAX);
        self.derived.insert(key!("port", "max_frame").slot(index), Value::Int(shown));
        to_usize(len)
    }

    fn port_int(&self, item: &Item, key: Key) -> Option<u64> {
        self.port_get(item, key)?.as_int().and_then(|int| u64::try_from(int).ok())
    }

    fn rate(&self, item: &Item, key: Key) -> Option<LinkRate> {
        LinkRate::bps(scale(self.port_get(item, key)?.as_num()?, GBPS))
    }

    fn parse(&mut self, index: usize, item: &Item) -> ParseConfig {
        let tpids = self.tpids();
        let number =
            |key| self.int(key).and_then(|int| u16::try_from(int).ok()).unwrap_or_default();
        let given = item.text(key!("port", "mac")).and_then(|text| text.parse().ok());
        let config = ParseConfig {
            afh: self.port_choice(item, key!("port", "afh")),
            gen2_order: self.choice(key!("formats", "gen2_order")),
            tpids,
            mac_type1: number(key!("formats", "mac_type1")),
            mac_type2: number(key!("formats", "mac_type2")),
            udp_type1: number(key!("formats", "udp_type1_port")),
            udp_type2: number(key!("formats", "udp_type2_port")),
            port_mac: match (given, self.timing) {
                (Some(mac), _) => mac,
                (None, Timing::Live) => MacAddr::ZERO, // until its device is open
                (None, Timing::Virtual) => {
                    made_mac(&self.text(key!("switch", "name")).unwrap_or_default(), index)
                }
            },
        };
        // The address of an interface is not known yet: show none.
        if config.port_mac != MacAddr::ZERO {
            let shown = Value::Text(config.port_mac.to_string());
            self.derived.insert(key!("port", "mac").slot(index), shown);
        }
        config
    }

    /// TPIDs of VLAN tags. Each port asks; the problems of a bad list are the same, and one of them is left.
    fn tpids(&mut self) -> Tpids {
        let value = self.get(key!("formats", "tpid"));
        let members = value.iter().flat_map(Value::members).filter_map(Value::as_int);
        let tpids: Vec<u16> = members.filter_map(|int| u16::try_from(int).ok()).collect();
        let twice = tpids
            .iter()
            .enumerate()
            .find(|(at, tpid)| tpids.iter().take(*at).any(|before| before == *tpid));
        if let Some((_, twice)) = twice {
            let message = format!("expected each EtherType once, found {twice:#06x} twice");
            self.refuse(self.place(key!("formats", "tpid")), "formats.tpid", message);
        }
        Tpids::new(&tpids).unwrap_or(Tpids::CTAG)
    }

    pub(super) fn trust(&mut self, item: &Item, afh: AfhMode) -> Vec<PriSource> {
        let value = self.port_get(item, key!("port", "trust"));
        let mut trust = Vec::new();
        for word in value.iter().flat_map(Value::members) {
            let source = chosen(word);
            if trust.contains(&source) {
                let place = self.port_place(item, key!("port", "trust"));
                let message = format!("expected each field once, found {word} twice");
                self.refuse(place, "port.trust", message);
            }
            // A lite port reads no EtherType, and finds no label (docs/spec/pipeline.md §2).
            if source == PriSource::Exp && afh == AfhMode::Lite {
                let place = self.port_place(item, key!("port", "trust"));
                let message =
                    format!("expected a field that a frame can carry, found {word} on a lite port");
                self.refuse(place, "port.trust", message);
            }
            trust.push(source);
        }
        trust
    }

    fn vlan(&self, item: &Item) -> PortMode {
        let vid = |key| {
            let vid = self.port_int(item, key)?;
            Vid::new(u16::try_from(vid).ok()?)
        };
        let pvid = vid(key!("port", "pvid")).unwrap_or(Vid::from_low_bits(1));
        match self.port_choice(item, key!("port", "vlan")) {
            VlanMode::Access => PortMode::Access { pvid },
            VlanMode::Trunk => {
                let allowed = self.port_get(item, key!("port", "allowed"));
                let ranges =
                    allowed.iter().flat_map(Value::members).filter_map(|vids| match vids {
                        Value::Int(vid) => u16::try_from(*vid).ok().map(|vid| vid..=vid),
                        vids => vid_range(vids.as_text()?).map(|(first, last)| first..=last),
                    });
                PortMode::Trunk { allowed: ranges.collect(), native: vid(key!("port", "native")) }
            }
            VlanMode::Transparent => PortMode::Transparent { pvid },
        }
    }

    fn storm(&mut self, item: &Item, frames: Key, mbps: Key) -> Option<StormLimit> {
        let by_frames = self.port_int(item, frames).map(StormLimit::FramesPerSecond);
        let by_bits = self.port_get(item, mbps).and_then(|value| value.as_num());
        let by_bits = by_bits.map(|num| StormLimit::BitsPerSecond(scale(num, MBPS)));
        // A storm meter counts frames or bits, not both.
        if by_frames.is_some() && by_bits.is_some() {
            let place = self.port_place(item, mbps);
            self.refuse(
                place,
                &mbps.path(),
                format!("expected this or {}, found both", frames.name),
            );
        }
        by_frames.or(by_bits)
    }

    fn egress(&mut self, item: &Item, frame_len_max: usize) -> EgressConfig {
        let strict_value = self.port_get(item, key!("port", "strict"));
        let place = self.port_place(item, key!("port", "strict"));
        let strict = self.pri_list(strict_value.as_ref(), &place, "port.strict");
        let weights = self.port_get(item, key!("port", "weights")).unwrap_or(Value::Int(1));
        let place = self.port_place(item, key!("port", "weights"));
        let read = |value: &Value| u32::try_from(value.as_int()?).ok();
        let weights = self.per_pri(&weights, &place, "port.weights", 1, read);
        let pri_rates = self.port_get(item, key!("port", "pri_max_rate_gbps"));
        let place = self.port_place(item, key!("port", "pri_max_rate_gbps"));
        let pri_max_rate = match pri_rates {
            Some(rates) => {
                let read = |value: &Value| Some(LinkRate::bps(scale(value.as_num()?, GBPS)));
                self.per_pri(&rates, &place, "port.pri_max_rate_gbps", None, read)
            }
            None => PerPri([None; 8]),
        };
        let burst_ms =
            self.port_get(item, key!("port", "rate_burst_ms")).and_then(|value| value.as_num());
        EgressConfig {
            strict: strict.into_iter().map(Pri::from_low_bits).collect::<PriSet>(),
            mode: self.port_choice(item, key!("port", "scheduler")),
            weights,
            pri_max_rate,
            port_max_rate: self.rate(item, key!("port", "max_rate_gbps")),
            burst: Span::from_us(scale(burst_ms.unwrap_or(2.0), 1e3)),
            frame_max: to_u32(frame_len_max as u64),
        }
    }

    pub(super) fn forward(&mut self) -> ForwardConfig {
        let capacity = to_usize(self.int(key!("fdb", "capacity")).unwrap_or(65_536));
        let static_entries = self.static_entries();
        // Static entries take room of the FDB, and never age.
        if static_entries.len() > capacity {
            let place = self.place(key!("fdb", "capacity"));
            let message = format!(
                "expected room for {} static entries, found {capacity}",
                static_entries.len()
            );
            self.refuse(place, "fdb.capacity", message);
        }
        let loop_probes = self.loop_probes();
        let reserved_groups = self.reserved_groups();
        let groups = self.groups(reserved_groups);
        let seconds =
            |key, unset| Span::from_ms(self.int(key).unwrap_or(unset).saturating_mul(1_000));
        ForwardConfig {
            fdb_capacity: capacity,
            ageing: seconds(key!("fdb", "ageing_s"), 300),
            flood_unknown: self.choice::<UnknownUnicast>(key!("fdb", "unknown_unicast"))
                == UnknownUnicast::Flood,
            reserved_groups,
            loop_probes,
            probe_key: [0; 2], // drawn when it starts
            loop_block: (self.choice::<LoopAction>(key!("fdb", "loop_action"))
                == LoopAction::Block)
                .then(|| seconds(key!("fdb", "loop_block_s"), 10)),
            sticky: seconds(key!("fdb", "sticky_s"), 10),
            static_entries,
            groups,
        }
    }

    /// Whether probes prove loops. In virtual time they do not: a probe would not come back from the files that play
    /// the neighbours.
    fn loop_probes(&mut self) -> bool {
        let given = self.get(key!("fdb", "loop_probe"));
        let wanted = given.map_or_else(
            // The conformance tests that speak SAI count every frame, probes included.
            || self.text(key!("sai", "listen")).is_none(),
            |value| value == Value::Bool(true),
        );
        self.derived.insert(key!("fdb", "loop_probe").slot(0), Value::Bool(wanted));
        wanted && self.timing == Timing::Live
    }

    /// The port called `name`; refuses the name at `place` if there is none.
    pub(super) fn port_named(&mut self, name: &str, place: &Place, key: &str) -> Option<PortId> {
        let ports = self.settings.items("port");
        let named = |item: &Item| item.text(key!("port", "name")) == Some(name);
        let found = ports.iter().position(named).and_then(PortId::new);
        if found.is_none() {
            self.refuse(place.clone(), key, format!("expected the name of a port, found {name:?}"));
        }
        found
    }

    /// VLAN, address, and its place, of a static entry or group; `None` if it is refused.
    fn address(&mut self, item: &Item, addr: Key, vid: Key) -> Option<(Vid, AddrKey, Place)> {
        let Some(set) = item.get(addr) else {
            self.refuse(item.place.clone(), &addr.path(), "expected an address");
            return None;
        };
        // VLAN 1 is the default of the table; an item keeps only the keys that are set.
        let vid = item.get(vid).and_then(|set| set.value.as_int()).unwrap_or(1);
        let vid = u16::try_from(vid).ok().and_then(Vid::new)?;
        Some((vid, parse_addr(set.value.as_text()?)?, set.place.clone()))
    }

    fn static_entries(&mut self) -> Vec<StaticEntry> {
        const KEY: &str = "static_entry.addr";
        let mut seen: BTreeMap<FdbKey, Place> = BTreeMap::new();
        let mut entries = Vec::new();
        for item in self.settings.items("static_entry") {
            let Some(ports) = self.entry_ports(item) else { continue };
            let (addr, vid) = (key!("static_entry", "addr"), key!("static_entry", "vid"));
            let Some((vid, addr, place)) = self.address(item, addr, vid) else { continue };
            let key = FdbKey::new(vid, addr);
            if is_group(addr) {
                self.refuse(place, KEY, "expected a station's address, found a group's");
            } else if let Some(first) = seen.insert(key, place.clone()) {
                let message =
                    format!("expected each address once, found {key} here and at {first}");
                self.refuse(place, KEY, message);
            }
            entries.extend(StaticEntry::over(key, ports));
        }
        entries
    }

    /// Reserved groups that are forwarded: bit n is 01-80-C2-00-00-0n.
    fn reserved_groups(&mut self) -> u16 {
        let mut bits = 0;
        for text in self.texts(key!("fdb", "reserved_groups")) {
            let bit = parse_reserved_group(&text).map_or(0, |digit| 1 << digit);
            if bits & bit != 0 {
                let place = self.place(key!("fdb", "reserved_groups"));
                let message = format!("expected each group once, found {text:?} again");
                self.refuse(place, "fdb.reserved_groups", message);
            }
            bits |= bit;
        }
        bits
    }

    fn groups(&mut self, forwarded: u16) -> Vec<Group> {
        const KEY: &str = "group.addr";
        let mut seen: BTreeMap<FdbKey, Place> = BTreeMap::new();
        let mut groups = Vec::new();
        for item in self.settings.items("group") {
            let Some(names) = item.get(key!("group", "ports")) else {
                self.refuse(item.place.clone(), "group.ports", "expected names of ports");
                continue;
            };
            let mut ports = PortSet::EMPTY;
            for name in names.value.members().iter().filter_map(Value::as_text) {
                let named = if self.is_lag(name) {
                    self.port_or_lag(name, &names.place, "group.ports") // one of its ports stands for all
                } else {
                    self.port_named(name, &names.place, "group.ports")
                };
                if let Some(port) = named {
                    ports.insert(port);
                }
            }
            let (addr, vid) = (key!("group", "addr"), key!("group", "vid"));
            let Some((vid, addr, place)) = self.address(item, addr, vid) else { continue };
            let key = FdbKey::new(vid, addr);
            // An id may be either: in GEN2 and Lite a bit of the frame says which (docs/spec/pipeline.md §3).
            if addr.space() != AddrSpace::Id16 && !is_group(addr) {
                self.refuse(place, KEY, "expected a group's address, found a station's");
            } else if let Some(first) = seen.insert(key, place.clone()) {
                let message = format!("expected each group once, found {key} here and at {first}");
                self.refuse(place, KEY, message);
            }
            // Frames to a reserved group are not forwarded (docs/spec/pipeline.md §3): the group would have no
            // effect.
            let mac = MacAddr::from_bits(addr.address());
            if addr.space() == AddrSpace::Ethernet
                && mac.is_reserved_group()
                && forwarded >> (addr.address() & 0xF) & 1 == 0
            {
                let place = item.place_of(key!("group", "addr")).clone();
                let message = format!(
                    "expected a group that is forwarded, found {mac}, which is reserved: add it to fdb.reserved_groups, unless it is PAUSE's"
                );
                self.refuse(place, KEY, message);
            }
            groups.push(Group { vid, addr, ports });
        }
        groups
    }
}

/// The I/G bit of the address. A 16-bit id does not show whether it is a group.
fn is_group(addr: AddrKey) -> bool {
    addr.space() != AddrSpace::Id16 && MacAddr::from_bits(addr.address()).is_group()
}

fn overwrite(map: &mut [Pri], pris: &[u8]) {
    for (slot, pri) in map.iter_mut().zip(pris) {
        *slot = Pri::from_low_bits(*pri);
    }
}

/// A locally administered address for port `index` of the switch called `name`, the same in every run.
fn made_mac(name: &str, index: usize) -> MacAddr {
    // FNV-1a with 64 bits: offset basis and prime.
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    // 0x02 is the U/L bit (IEEE 802, locally administered, not a group). The last octet has the port, of 64 at most.
    MacAddr::from_bits(0x0200_0000_0000 | (hash & 0xFFFF_FFFF) << 8 | (index as u64 & 0x3F))
}
