//! A switch that routes TLPs: roles of ports, virtual switches, and the configuration of the switch's own functions.
//!
//! `[fabric]`, `[[vcs]]` and the roles in `[[port]]` become a [`FabricConfig`] and one more port, the CPU port, which
//! leads to these functions.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles"; CXL 3.1 sections 7.7.2.6, 7.7.5.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use weft_dataplane::config::{PortConfig, PortRole, TlpConfig, TlpLink};
use weft_dataplane::time::Span;
use weft_dataplane::types::{PORTS_MAX, PortId, Pri};
use weft_parsers::tlp::{Mode, Oui};
use weft_pbr_switch::{self as pbr_switch, Role, Sizes, VcsConfig};

use super::{Item, Place, Problem, Resolver, Value};
use crate::choice::{CciOwner, RoleName};
use crate::places::{Listen, MctpPlace, listen_place, mctp_place};
use crate::table::{Key, key};
use crate::value::{parse_oui, parse_uuid};

/// Name of the CPU port, which leads to the switch's own functions. No other port may have it.
pub const CPU_PORT: &str = "agent";
/// Most bytes of a frame beside the payload: addresses, tag, link header, prefix, PTH, and a header of 7 words with
/// all that may follow it.
const OVERHEAD: usize = 96;

/// Configuration of a switch that routes TLPs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricConfig {
    /// Configuration of the switch's own functions.
    pub switch: pbr_switch::SwitchConfig,
    /// Listener for managers; `None` for no such access.
    pub cci: Option<CciConfig>,
    /// Listener for managers that speak MCTP; `None` for no such access.
    pub mctp: Option<MctpConfig>,
    /// Number of the CPU port.
    pub cpu_port: PortId,
}

const PUBLIC_MCTP: &str = "expected an address of loopback, such as \"127.0.0.1:2508\", as MCTP has neither users nor \
    encryption; or cci_mctp_insecure = true, and whoever reaches it may command the switch";
const PRIVATE_IS_ENOUGH: &str = "expected an address other than loopback, or the kernel's MCTP, in cci_mctp beside it, which is where it says something";
const NO_MCTP: &str =
    "expected an address in cci_mctp beside it: it says who may command the switch there";
const INSECURE_MCTP: &str = "whoever reaches cci_mctp may command the switch: MCTP knows no users";
const BARE_TCP: &str = "expected the path of a Unix socket; or TCP with all of cci_ca, cci_cert and cci_key \
    (`weft tls init DIR` makes them); or TCP with cci_insecure = true, and whoever reaches it commands the switch";
const UNIX_IS_ENOUGH: &str = "expected neither cci_insecure nor cci_ca, cci_cert and cci_key at a Unix socket: \
    the kernel tells who connects";
const TLS_IS_ENOUGH: &str =
    "expected either cci_insecure or cci_ca, cci_cert and cci_key, found both";
const NO_PLACE: &str =
    "expected a place where cci_insecure, cci_ca, cci_cert or cci_key is set, found none";
const INSECURE: &str =
    "whoever reaches cci may do all that the primary manager may: there is no TLS";

/// Address for managers, and who may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CciConfig {
    pub place: Listen,
    pub guard: CciGuard,
}

/// Address for managers that speak MCTP, and who may command the switch there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MctpConfig {
    pub place: MctpPlace,
    /// Manager that may command the switch there.
    pub owner: CciOwner,
}

/// Files of one end of a mutual TLS connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authorities that may vouch for the other end; PEM.
    pub ca: PathBuf,
    /// Certificate of this end, and those between it and the authority; PEM.
    pub cert: PathBuf,
    /// Private key of the certificate, which only its owner may read; PEM.
    pub key: PathBuf,
}

/// How a switch decides whether a client of its CCI may command it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CciGuard {
    /// Root and the switch's own user may, over a Unix socket.
    OwnUser,
    /// Clients whose certificate grants it may.
    Tls(TlsFiles),
    /// Every client that reaches the address may.
    Insecure,
}

impl fmt::Display for CciGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OwnUser => "root and the switch's own user",
            Self::Tls(_) => "TLS 1.3, by certificate",
            Self::Insecure => "INSECURE: whoever reaches it may command the switch",
        })
    }
}

impl Resolver<'_> {
    /// Listener for managers, with the problems of its keys.
    fn cci(&mut self) -> Option<CciConfig> {
        let place = self.text(key!("fabric", "cci")).and_then(|text| listen_place(&text));
        let is_insecure = self.get(key!("fabric", "cci_insecure")) == Some(Value::Bool(true));
        let files =
            [key!("fabric", "cci_ca"), key!("fabric", "cci_cert"), key!("fabric", "cci_key")];
        let files = files.map(|key| self.text(key));
        let set = files.iter().flatten().count();
        let guard = match (&place, set, is_insecure) {
            (None, 0, false) => return None,
            (None, _, _) => Err(NO_PLACE),
            (Some(Listen::Unix(_)), 0, false) => Ok(CciGuard::OwnUser),
            (Some(Listen::Unix(_)), _, _) => Err(UNIX_IS_ENOUGH),
            (Some(Listen::Tcp(_)), 0, true) => Ok(CciGuard::Insecure),
            (Some(Listen::Tcp(_)), 1.., true) => Err(TLS_IS_ENOUGH),
            // TCP takes all three files; `BARE_TCP` says what to do where one is missing.
            (Some(Listen::Tcp(_)), _, false) => {
                let [ca, cert, key] = files.map(|file| file.map(PathBuf::from));
                let all = ca.zip(cert).zip(key);
                all.map(|((ca, cert), key)| CciGuard::Tls(TlsFiles { ca, cert, key }))
                    .ok_or(BARE_TCP)
            }
        };
        let at = self.place_of(&[
            key!("fabric", "cci"),
            key!("fabric", "cci_insecure"),
            key!("fabric", "cci_ca"),
        ]);
        match guard {
            Err(message) => self.refuse(at, "fabric.cci", message),
            Ok(CciGuard::Insecure) => {
                let place = self.place(key!("fabric", "cci_insecure"));
                let (key, message) = ("fabric.cci_insecure".into(), INSECURE.to_owned());
                self.warnings.push(Problem { place, key, message });
            }
            Ok(_) => {}
        }
        Some(CciConfig { place: place?, guard: guard.ok()? })
    }

    /// Listener for managers that speak MCTP, with the problems of its keys.
    fn mctp(&mut self) -> Option<MctpConfig> {
        let at = self.text(key!("fabric", "cci_mctp")).and_then(|text| mctp_place(&text));
        let is_insecure = self.get(key!("fabric", "cci_mctp_insecure")) == Some(Value::Bool(true));
        let owner = self.choice(key!("fabric", "cci_owner"));
        // The kernel's MCTP counts as public: its EIDs take messages of local processes with raw sockets, and of all
        // devices on the bus.
        let is_public = at.is_some_and(|at| match at {
            MctpPlace::Tcp(addr) => !addr.ip().is_loopback(),
            MctpPlace::Kernel(_) => true,
        });
        let wrong = match (at, is_public, is_insecure) {
            (_, true, false) => Some((key!("fabric", "cci_mctp"), PUBLIC_MCTP)),
            (_, false, true) => Some((key!("fabric", "cci_mctp_insecure"), PRIVATE_IS_ENOUGH)),
            (None, ..) if owner == CciOwner::First => Some((key!("fabric", "cci_owner"), NO_MCTP)),
            _ => None,
        };
        if let Some((key, message)) = wrong {
            self.refuse(self.place(key), &key.path(), message);
        } else if is_insecure {
            let place = self.place(key!("fabric", "cci_mctp_insecure"));
            let (key, message) = ("fabric.cci_mctp_insecure".into(), INSECURE_MCTP.to_owned());
            self.warnings.push(Problem { place, key, message });
        }
        Some(MctpConfig { place: at?, owner })
    }

    /// Whether any port carries TLPs.
    pub(super) fn has_roles(&self) -> bool {
        self.settings.items("port").iter().any(|item| self.has_role(item))
    }

    fn has_role(&self, item: &Item) -> bool {
        self.port_choice::<RoleName>(item, key!("port", "role")) != RoleName::L2
    }

    pub(super) fn role(&mut self, item: &Item, frame_len_max: usize) -> PortRole {
        let payload =
            self.port_get(item, key!("port", "max_payload")).and_then(|value| value.as_int());
        let payload_max = payload.and_then(|bytes| u16::try_from(bytes).ok()).unwrap_or(512);
        let mode = self.port_choice(item, key!("port", "tlp"));
        let link = TlpLink { mode, payload_max };
        let role = match self.port_choice(item, key!("port", "role")) {
            RoleName::Usp => PortRole::Usp(link),
            RoleName::Dsp => PortRole::Dsp(link),
            RoleName::Fport => PortRole::Fport(link),
            // No TLPs: `tlp` and `max_payload` are not checked (`refuse_idle` refuses them).
            RoleName::L2 => return PortRole::L2,
        };
        // PBR TLPs, which an fport carries, exist in flit mode only.
        if matches!(role, PortRole::Fport(_)) && mode == Mode::NonFlit {
            let place = self.port_place(item, key!("port", "tlp"));
            self.refuse(place, "port.tlp", "expected flit where the role is fport, found non-flit");
        }
        let need = usize::from(payload_max) + OVERHEAD;
        if frame_len_max < need {
            let place = self.port_place(item, key!("port", "max_payload"));
            let message = format!(
                "expected a max_frame of at least {need} bytes for {payload_max}, found {frame_len_max}"
            );
            self.refuse(place, "port.max_payload", message);
        }
        role
    }

    /// The CPU port of a switch that routes TLPs, which has the last number; `None` for a switch without roles.
    pub(super) fn cpu_port(&mut self, ports: &[PortConfig]) -> Option<PortConfig> {
        if ports.iter().all(|port| port.role == PortRole::L2) {
            return None;
        }
        let items = self.settings.items("port");
        // `ports` accepts PORTS_MAX; the CPU port takes one of them.
        if items.len() >= PORTS_MAX {
            let place = items.last().map_or(Place::Default, |item| item.place.clone());
            let most = PORTS_MAX - 1;
            let message =
                format!("expected at most {most} ports beside the agent's, found {}", items.len());
            self.refuse(place, "port", message);
        }
        let named = items.iter().zip(ports).find(|(_, port)| port.name == CPU_PORT);
        if let Some((item, _)) = named {
            let message = format!(
                "expected another name: {CPU_PORT:?} is the port that a switch with roles adds"
            );
            self.refuse(self.port_place(item, key!("port", "name")), "port.name", message);
        }
        // Resolved like a port of which nothing is set: keys of `[port_defaults]` hold for it, too.
        let item = Item { place: Place::Default, set: BTreeMap::new() };
        let port = self.port(items.len(), &item, CPU_PORT);
        Some(PortConfig { role: PortRole::Cpu, pfc: false, ..port })
    }

    /// Priorities and OUI of TLPs.
    pub(super) fn tlp(&mut self) -> TlpConfig {
        let mut tlp = TlpConfig::for_pris(self.pris);
        let mut pris = |key: Key| {
            let (value, place) = (self.get(key), self.place(key));
            self.pri_list(value.as_ref(), &place, &key.path())
        };
        let of_tc = pris(key!("fabric", "tc_to_pri"));
        let request = pris(key!("fabric", "uio_req_pri"));
        let completion = pris(key!("fabric", "uio_cpl_pri"));
        for (slot, pri) in tlp.tc_to_pri.iter_mut().zip(of_tc) {
            *slot = Pri::from_low_bits(pri);
        }
        for (slot, pri) in [(&mut tlp.uio_req_pri, request), (&mut tlp.uio_cpl_pri, completion)] {
            *slot = pri.first().map_or(*slot, |&pri| Pri::from_low_bits(pri));
        }
        // A request that waits for room would hold the completion behind it: routes could deadlock
        // (docs/spec/cxl-fabric.md).
        if tlp.uio_req_pri == tlp.uio_cpl_pri {
            let place =
                self.place_of(&[key!("fabric", "uio_cpl_pri"), key!("fabric", "uio_req_pri")]);
            let message = format!(
                "expected another priority than uio_req_pri, found {} for both",
                tlp.uio_cpl_pri.get()
            );
            self.refuse(place, "fabric.uio_cpl_pri", message);
        }
        if let Some(oui) = self.text(key!("fabric", "oui")).and_then(|text| parse_oui(&text)) {
            tlp.oui = Oui(oui);
        }
        tlp
    }

    /// Configuration of the switch's own functions; `None` where no port has a role.
    pub(super) fn fabric(&mut self, ports: &[PortConfig]) -> Option<FabricConfig> {
        let cpu_port =
            ports.iter().position(|port| port.role == PortRole::Cpu).and_then(PortId::new);
        let Some(cpu_port) = cpu_port else {
            if let Some(item) = self.settings.items("vcs").first() {
                let message =
                    "expected a port of role usp, dsp or fport in a switch with virtual switches";
                self.refuse(item.place.clone(), "vcs", message);
            }
            return None;
        };
        let uuid = self.text(key!("fabric", "uuid")).and_then(|text| parse_uuid(&text));
        if uuid.is_none() {
            let items = self.settings.items("port").iter();
            let first = items
                .filter(|item| self.has_role(item))
                .map(|item| self.port_place(item, key!("port", "role")))
                .next();
            let message = "expected a UUID for a switch whose ports have roles, found none";
            self.refuse(first.unwrap_or(Place::Default), "fabric.uuid", message);
        }
        let uuid = uuid.unwrap_or_default();
        // 63 bits, as `weft config show` prints the serial number as a TOML integer.
        let low = u128::from_be_bytes(uuid) & u128::from(u64::MAX >> 1);
        let serial =
            self.int(key!("fabric", "serial")).unwrap_or(u64::try_from(low).unwrap_or_default());
        let shown = Value::Int(i64::try_from(serial).unwrap_or(i64::MAX));
        self.derived.insert(key!("fabric", "serial").slot(0), shown);
        let size = |key| self.int(key).map_or(0, super::to_usize);
        let number = |key| self.int(key).and_then(|int| u16::try_from(int).ok());
        let sizes = Sizes {
            fast: size(key!("fabric", "fast")),
            fast_idt: size(key!("fabric", "fast_idt")),
            ldst: size(key!("fabric", "ldst")),
            ldst_idt: size(key!("fabric", "ldst_idt")),
        };
        let (groups, threads) = (
            number(key!("fabric", "groups")).unwrap_or(256),
            number(key!("fabric", "threads")).unwrap_or(2),
        );
        let switch = pbr_switch::SwitchConfig {
            ports: self.component_ports(ports),
            groups,
            sizes,
            bind_time: Span::from_ms(self.int(key!("fabric", "bind_time_ms")).unwrap_or(1)),
            threads,
            vcses: self.vcses(ports),
            static_init: self.static_init(),
            ..pbr_switch::SwitchConfig::new(uuid, serial)
        };
        let (cci, mctp) = (self.cci(), self.mctp());
        // Last, as the switch's own check knows no places: whatever a key can be blamed for has been refused above.
        if self.problems.is_empty()
            && let Err(error) = pbr_switch::Switch::new(switch.clone())
        {
            let sizes = [key!("fabric", "fast"), key!("fabric", "ldst"), key!("fabric", "uuid")];
            let place = match error {
                pbr_switch::ConfigError::StaticInit(_) => self.place_of(&[key!("fabric", "pid")]),
                _ => self.place_of(&sizes),
            };
            self.refuse(place, "fabric", error.to_string());
        }
        Some(FabricConfig { switch, cci, mctp, cpu_port })
    }

    fn component_ports(&self, ports: &[PortConfig]) -> Vec<pbr_switch::PortConfig> {
        let items = self.settings.items("port").iter().zip(ports).enumerate();
        let of = |(index, (item, port)): (usize, (&Item, &PortConfig))| {
            let role = match port.role {
                PortRole::L2 | PortRole::Cpu => return None,
                PortRole::Usp(_) => Role::Usp,
                PortRole::Dsp(_) => Role::Dsp,
                PortRole::Fport(_) => Role::Fabric,
            };
            let pids = self.port_get(item, key!("port", "pids")).and_then(|value| value.as_int());
            let pids = pids.and_then(|int| u8::try_from(int).ok()).unwrap_or(1);
            Some(pbr_switch::PortConfig { port: PortId::new(index)?, role, pids })
        };
        items.filter_map(of).collect()
    }

    fn vcses(&mut self, ports: &[PortConfig]) -> Vec<VcsConfig> {
        const KEY: &str = "vcs.usp";
        let mut taken: BTreeMap<PortId, Place> = BTreeMap::new();
        let mut vcses = Vec::new();
        let items = self.settings.items("vcs");
        if let Some(extra) = items.get(255) {
            let message = format!("expected at most 255 virtual switches, found {}", items.len());
            self.refuse(extra.place.clone(), "vcs", message);
        }
        for item in items {
            let get = |key: Key| {
                let own = item.get(key).map(|set| set.value.clone());
                own.or_else(|| self.default_of(key.section, key.name))
            };
            let vppbs = get(key!("vcs", "vppbs")).and_then(|value| value.as_int());
            let vppbs = vppbs.and_then(|count| u8::try_from(count).ok()).unwrap_or(4);
            let gae = get(key!("vcs", "gae")) != Some(Value::Bool(false));
            let Some(set) = item.get(key!("vcs", "usp")) else {
                vcses.push(VcsConfig { usp: None, vppbs, gae });
                continue;
            };
            let name = set.value.as_text().unwrap_or_default();
            let Some(usp) = self.port_named(name, &set.place, KEY) else { continue };
            let role = ports.get(usp.index()).map_or(PortRole::L2, |port| port.role);
            if !matches!(role, PortRole::Usp(_)) {
                let message =
                    format!("expected a port of role usp, found {name:?} of role {}", role.name());
                self.refuse(set.place.clone(), KEY, message);
            }
            if let Some(first) = taken.insert(usp, set.place.clone()) {
                let message =
                    format!("expected each port once, found {name:?} here and at {first}");
                self.refuse(set.place.clone(), KEY, message);
            }
            vcses.push(VcsConfig { usp: Some(usp), vppbs, gae });
        }
        vcses
    }
}
