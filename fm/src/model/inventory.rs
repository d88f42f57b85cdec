//! Inventory of a fabric, as its components report it.
//!
//! Switches with ports, PID targets and virtual switches; GFDs; links between fabric ports, each once.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.3 to §4.5.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Uuid;
use weft_parsers::cci::pbr::{LinkPartner, PidTarget, PidTargetKind};
use weft_parsers::fabric::Pid;

use super::graph::{Graph, GraphError, Key, PortRef, SwitchId};
use super::way::Way;

/// Port number that stands for a switch itself in a [`Graph`]; no switch has a port of this number.
pub const OWN_PORT: u8 = 255;

/// Serialises a [`Pid`] as a number.
pub mod pid_number {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use weft_parsers::fabric::Pid;

    /// Writes the 12 bits.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(pid: &Pid, to: S) -> Result<S::Ok, S::Error> {
        pid.bits().serialize(to)
    }

    /// Reads the 12 bits.
    ///
    /// # Errors
    /// The deserializer's.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pid, D::Error> {
        u16::deserialize(from).map(Pid::from_low_bits)
    }
}

/// The fabric manager's own identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manager {
    #[serde(with = "uuid_text")]
    pub uuid: Uuid,
    /// Packets to it end at the entry switch, at [`OWN_PORT`].
    #[serde(with = "pid_number")]
    pub pid: Pid,
}

/// Configured role of a switch port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Off, or in transition.
    Off,
    /// Upstream edge port: a host is behind it.
    Usp,
    /// Downstream edge port: a device, a GFD or an HBR switch is behind it.
    Dsp,
    /// Towards another PBR switch.
    Fabric,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Partner {
    /// The link is down, or the far end has not announced itself.
    Nobody,
    Host,
    /// A device that is no PBR component; the type as its switch tells it (5101h byte 4).
    Device(u8),
    /// A GFD, by its place in [`Inventory::gfds`].
    Gfd(usize),
    /// A PBR switch, by the port of it at the far end.
    Switch(PortRef),
    /// A component that the manager does not own; a finding says why.
    Foreign,
}

/// A physical port of a PBR switch, as the switch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub number: u8,
    pub role: Role,
    pub up: bool,
    /// Negotiated lanes.
    pub width: u8,
    /// Negotiated speed, as the code of 5101h (see [`crate::components::cdat`]).
    pub speed: u8,
    pub partner: Partner,
    /// Number of logical devices at the port; 0 for a device that is no MLD.
    #[serde(default)]
    pub lds: u8,
    /// PERST# is asserted at the port: its partner is held in reset, and the link is down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub perst: bool,
}

/// Kind of a PID target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetKind {
    /// A port to another PBR switch.
    Fabric,
    Host,
    Downstream,
}

/// A PID target of a switch (5703h): a port or switch function that can be given a PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Target id, unique at this switch.
    pub id: u16,
    pub kind: TargetKind,
    /// Number of this PID among those of the port.
    pub instance: u8,
    /// Virtual switch of a host edge; meaningless for other kinds.
    pub vcs: u8,
    pub port: u8,
    /// FFF while unassigned.
    #[serde(with = "pid_number")]
    pub pid: Pid,
}

impl From<PidTarget> for Target {
    fn from(target: PidTarget) -> Self {
        let kind = match target.kind {
            PidTargetKind::FabricPort => TargetKind::Fabric,
            PidTargetKind::HostEdge => TargetKind::Host,
            PidTargetKind::DownstreamEdge => TargetKind::Downstream,
        };
        let PidTarget { id, instance, vcs, port, pid, .. } = target;
        Self { id, kind, instance, vcs, port, pid }
    }
}

/// A bridge of a virtual switch, and its binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vppb {
    /// 0 unbound, 1 in progress, 2 bound to a port, 3 to an LD, 4 by PID.
    pub status: u8,
    /// Only where `status` is 2 or 3.
    pub port: u8,
    /// LD of that port; only where `status` is 3.
    pub ld: u8,
}

/// A virtual switch (VCS) of a PBR switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcs {
    pub id: u8,
    /// Physical port of its upstream bridge; meaningless for a vUSP, which is at no port.
    pub usp: u8,
    /// Bridges by number; 0 is the upstream one.
    pub vppbs: Vec<Vppb>,
}

/// The link that a component was found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedFrom {
    /// Port of the switch that was known before.
    pub from: PortRef,
    /// Port of the component itself.
    pub at: u8,
}

/// A PBR switch, as it reports itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiscoveredSwitch {
    /// For the entry switch `None` until a neighbour has told it: a switch cannot be asked for its own UUID.
    #[serde(with = "some_uuid_text", default)]
    pub uuid: Option<Uuid>,
    pub serial: u64,
    #[serde(with = "pid_number")]
    pub pid: Pid,
    /// `None` for the entry switch, which is reached directly.
    pub came: Option<ReachedFrom>,
    /// Modes of routing groups that it offers (5700h byte B), a bit each.
    pub modes: u8,
    /// Number of routing group tables.
    pub rgts: u8,
    pub ports: Vec<Port>,
    /// All that can be given a PID here.
    pub targets: Vec<Target>,
    pub vcss: Vec<Vcs>,
    /// Whether all of it could be read; a part of it may be from an earlier look otherwise.
    pub whole: bool,
}

impl DiscoveredSwitch {
    #[must_use]
    pub fn port(&self, number: u8) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// PID that the partner of a downstream port announces, where the port has PIDs and none of them is this one.
    #[must_use]
    pub fn pid_mismatch(&self, told: &LinkPartner) -> Option<Pid> {
        let pid = told.far.pid;
        // Only downstream edges: elsewhere the far end announces a PID of its own, which is not one of this switch's.
        let of_port = |t: &&Target| t.kind == TargetKind::Downstream && t.port == told.port;
        let mut has = self.targets.iter().filter(of_port).map(|target| target.pid);
        let has_any = has.clone().any(|own| !own.is_none());
        (has_any && !pid.is_none() && has.all(|own| own != pid)).then_some(pid)
    }

    /// How CCI requests reach it.
    #[must_use]
    pub const fn way(&self) -> Way {
        if self.came.is_none() { Way::Entry } else { Way::Pid(self.pid) }
    }
}

/// A G-FAM device, as it reports itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gfd {
    #[serde(with = "uuid_text")]
    pub uuid: Uuid,
    #[serde(with = "pid_number")]
    pub pid: Pid,
    pub at: PortRef,
    /// In units of 256 MiB.
    pub capacity: u64,
    pub groups: u16,
}

/// All components of a fabric, and the links between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// The manager that owns them.
    pub manager: Manager,
    /// Switches, the entry switch first, by [`SwitchId`].
    pub switches: Vec<DiscoveredSwitch>,
    pub gfds: Vec<Gfd>,
    /// Links between fabric ports, each once, the lower end first.
    pub links: BTreeSet<[PortRef; 2]>,
    /// The links of `links` that are down.
    pub down: BTreeSet<[PortRef; 2]>,
}

impl Inventory {
    #[must_use]
    pub fn switch(&self, id: SwitchId) -> Option<&DiscoveredSwitch> {
        self.switches.get(id.index())
    }

    /// PID targets of a switch, in its own order; empty where the switch is not known.
    #[must_use]
    pub fn targets(&self, id: SwitchId) -> &[Target] {
        self.switch(id).map_or(&[], |switch| &switch.targets)
    }

    pub fn by_id(&self) -> impl Iterator<Item = (SwitchId, &DiscoveredSwitch)> {
        self.switches.iter().enumerate().map(|(at, switch)| (SwitchId::at(at), switch))
    }

    #[must_use]
    pub fn find(&self, uuid: &Uuid) -> Option<SwitchId> {
        self.by_id().find(|(_, switch)| switch.uuid.as_ref() == Some(uuid)).map(|(id, _)| id)
    }

    /// All PIDs in use, with the switch and the port; a switch's own and a fabric port's at [`OWN_PORT`].
    pub fn pids(&self) -> impl Iterator<Item = (Pid, PortRef)> {
        let targets = move |(id, switch): (SwitchId, &DiscoveredSwitch)| {
            let own = (switch.pid, PortRef::new(id, OWN_PORT));
            let rest = switch.targets.iter().filter_map(move |target| {
                // Packets to a fabric port's PID end inside the switch, not at the port's partner.
                let port = if target.kind == TargetKind::Fabric { OWN_PORT } else { target.port };
                let at = PortRef::new(id, port);
                // The GFD itself brings this PID in below; a PID may be attached to one place only.
                (!self.is_gfds(at, target.pid)).then_some((target.pid, at))
            });
            std::iter::once(own).chain(rest).collect::<Vec<_>>()
        };
        let manager = (self.manager.pid, PortRef::new(SwitchId(0), OWN_PORT));
        let gfds = self.gfds.iter().map(|gfd| (gfd.pid, gfd.at));
        let all = std::iter::once(manager).chain(gfds).chain(self.by_id().flat_map(targets));
        all.filter(|(pid, _)| !pid.is_none())
    }

    /// Whether a PID of a downstream port is that of its GFD: the edge lets the GFD send by no other.
    #[must_use]
    pub fn is_gfds(&self, at: PortRef, pid: Pid) -> bool {
        self.gfds.iter().any(|gfd| (gfd.at, gfd.pid) == (at, pid))
    }

    /// UUIDs and PIDs of all components, so that a later discovery gives them the same PIDs.
    #[must_use]
    pub fn known(&self) -> BTreeMap<Uuid, Pid> {
        let switches = self.switches.iter().filter_map(|switch| Some((switch.uuid?, switch.pid)));
        switches.chain(self.gfds.iter().map(|gfd| (gfd.uuid, gfd.pid))).collect()
    }

    #[must_use]
    pub fn link_at(&self, at: PortRef) -> Option<[PortRef; 2]> {
        self.links.iter().find(|ends| ends.contains(&at)).copied()
    }

    /// The graph that routes are made for.
    ///
    /// # Errors
    /// A PID is at two places, or there are too many switches.
    pub fn graph(&self) -> Result<Graph, GraphError> {
        let mut graph = Graph::default();
        for _ in &self.switches {
            graph.add_switch()?;
        }
        for &[a, b] in &self.links {
            let link = graph.link(a, b)?;
            graph.set_link(link, !self.down.contains(&[a, b]))?;
        }
        for (pid, at) in self.pids() {
            if at.port == OWN_PORT {
                graph.attach_own(pid, at)?;
            } else {
                graph.attach(pid, at)?;
            }
        }
        Ok(graph)
    }
}

/// A UUID as text, or as a list of 16 numbers, as some stores have it.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredUuid {
    Text(String),
    Bytes(Uuid),
}

impl StoredUuid {
    fn uuid<E: serde::de::Error>(self) -> Result<Uuid, E> {
        match self {
            Self::Text(text) => super::text::parse_uuid(&text).map_err(E::custom),
            Self::Bytes(bytes) => Ok(bytes),
        }
    }
}

pub mod uuid_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use weft_parsers::cci::Uuid;

    /// Writes a UUID in groups of hexadecimal digits.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(uuid: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&crate::model::text::UuidText(*uuid))
    }

    /// Reads a UUID from text, or from a list of 16 numbers.
    ///
    /// # Errors
    /// The text is no UUID.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
        super::StoredUuid::deserialize(from)?.uuid()
    }
}

/// Serialises a UUID that may be missing.
mod some_uuid_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use weft_parsers::cci::Uuid;

    #[expect(clippy::ref_option, reason = "serde gives it so")]
    pub fn serialize<S: Serializer>(uuid: &Option<Uuid>, to: S) -> Result<S::Ok, S::Error> {
        uuid.map(|uuid| crate::model::text::UuidText(uuid).to_string()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Uuid>, D::Error> {
        Option::<super::StoredUuid>::deserialize(from)?.map(super::StoredUuid::uuid).transpose()
    }
}
