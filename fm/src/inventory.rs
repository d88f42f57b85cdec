//! What there is in a fabric, as its components told it.
//!
//! Switches with ports, PID targets and virtual switches; GFDs; links between fabric ports, each once.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.3 to §4.5.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Uuid;
use weft_parsers::cci::pbr::{LinkPartner, PidTarget, PidTargetKind};
use weft_parsers::fabric::Pid;

use super::cci::Way;
use super::graph::{Graph, GraphError, Key, PortRef, SwitchId};

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
    /// Its UUID.
    #[serde(with = "uuid_text")]
    pub uuid: Uuid,
    /// Its PID; it is at the entry switch.
    #[serde(with = "pid_number")]
    pub pid: Pid,
}

/// What a port of a switch is configured as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Off, or in transition.
    Off,
    /// Edge, upstream.
    Usp,
    /// Edge, downstream.
    Dsp,
    /// Towards another PBR switch.
    Fabric,
}

/// Who is at the other end of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Partner {
    /// Nobody, or the link is down.
    Nobody,
    /// A host.
    Host,
    /// A device that is no PBR component; the type as its switch tells it (5101h byte 4).
    Device(u8),
    /// A GFD, by its place in [`Inventory::gfds`].
    Gfd(usize),
    /// A PBR switch.
    Switch(PortRef),
    /// Somebody that the FM does not manage; a finding says why.
    Foreign,
}

/// A physical port of a PBR switch, as the switch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its number.
    pub number: u8,
    /// What it is.
    pub role: Role,
    /// Whether its link is up.
    pub up: bool,
    /// Lanes in use.
    pub width: u8,
    /// Code of the speed in use.
    pub speed: u8,
    /// Who is there.
    pub partner: Partner,
    /// Logical devices of it; 0 where it has none.
    #[serde(default)]
    pub lds: u8,
    /// PERST# is asserted at it: what is there is held in reset, and its link is down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub perst: bool,
}

/// Kind of a PID target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetKind {
    /// A port to another PBR switch.
    Fabric,
    /// A host edge.
    Host,
    /// A downstream edge.
    Downstream,
}

/// A PID target of a switch (5703h): what can be given a PID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Its id at the switch.
    pub id: u16,
    /// What it is.
    pub kind: TargetKind,
    /// Which of its PIDs.
    pub instance: u8,
    /// VCS of a host edge.
    pub vcs: u8,
    /// Physical port.
    pub port: u8,
    /// The PID, or FFF.
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

/// A bridge of a virtual switch, and what it is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vppb {
    /// 0 unbound, 1 in progress, 2 bound to a port, 3 to an LD, 4 by PID.
    pub status: u8,
    /// Port that it is bound to.
    pub port: u8,
    /// LD that it is bound to.
    pub ld: u8,
}

/// A virtual switch (VCS) of a PBR switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcs {
    /// Its number.
    pub id: u8,
    /// Physical port of its upstream port; of no use where it is virtual.
    pub usp: u8,
    /// Its bridges.
    pub vppbs: Vec<Vppb>,
}

/// The link that a component was found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReachedFrom {
    /// By this port of another switch.
    pub from: PortRef,
    /// At this port of its own.
    pub at: u8,
}

/// A PBR switch, as it told of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Its UUID; that of the entry switch is not known before a neighbour has told it.
    #[serde(with = "some_uuid_text", default)]
    pub uuid: Option<Uuid>,
    /// Its serial number.
    pub serial: u64,
    /// Its PID.
    #[serde(with = "pid_number")]
    pub pid: Pid,
    /// How it was found; the entry switch was not.
    pub came: Option<ReachedFrom>,
    /// Modes of routing groups that it has, a bit each.
    pub modes: u8,
    /// Routing group tables that it has.
    pub rgts: u8,
    /// Its ports.
    pub ports: Vec<Port>,
    /// What can have a PID.
    pub targets: Vec<Target>,
    /// Its virtual switches.
    pub vcss: Vec<Vcs>,
    /// Whether it was read to the end.
    pub whole: bool,
}

impl Switch {
    /// A port by its number.
    #[must_use]
    pub fn port(&self, number: u8) -> Option<&Port> {
        self.ports.iter().find(|port| port.number == number)
    }

    /// What somebody at a downstream port calls itself, where the port has PIDs and that is none of them.
    #[must_use]
    pub fn pid_mismatch(&self, told: &LinkPartner) -> Option<Pid> {
        let pid = told.far.pid;
        let of_port = |t: &&Target| t.kind == TargetKind::Downstream && t.port == told.port;
        let mut has = self.targets.iter().filter(of_port).map(|target| target.pid);
        let has_any = has.clone().any(|own| !own.is_none());
        (has_any && !pid.is_none() && has.all(|own| own != pid)).then_some(pid)
    }

    /// The way of CCI requests to it.
    #[must_use]
    pub const fn way(&self) -> Way {
        if self.came.is_none() { Way::Entry } else { Way::Pid(self.pid) }
    }
}

/// A G-FAM device, as it told of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gfd {
    /// Its UUID.
    #[serde(with = "uuid_text")]
    pub uuid: Uuid,
    /// Its PID.
    #[serde(with = "pid_number")]
    pub pid: Pid,
    /// Where it is.
    pub at: PortRef,
    /// Its capacity in units of 256 MiB.
    pub capacity: u64,
    /// Groups that it has.
    pub groups: u16,
}

/// All components of a fabric, and the links between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Who manages it.
    pub manager: Manager,
    /// Switches, the entry switch first, by [`SwitchId`].
    pub switches: Vec<Switch>,
    /// GFDs.
    pub gfds: Vec<Gfd>,
    /// Links between fabric ports, each once, the lower end first.
    pub links: BTreeSet<[PortRef; 2]>,
    /// Those of them that are down.
    pub down: BTreeSet<[PortRef; 2]>,
}

impl Inventory {
    /// A switch.
    #[must_use]
    pub fn switch(&self, id: SwitchId) -> Option<&Switch> {
        self.switches.get(id.index())
    }

    /// What can have PIDs at a switch, in its order; nothing where the switch is not known.
    #[must_use]
    pub fn targets(&self, id: SwitchId) -> &[Target] {
        self.switch(id).map_or(&[], |switch| &switch.targets)
    }

    /// All switches with their ids.
    pub fn by_id(&self) -> impl Iterator<Item = (SwitchId, &Switch)> {
        self.switches.iter().enumerate().map(|(at, switch)| (SwitchId::at(at), switch))
    }

    /// The switch with a UUID.
    #[must_use]
    pub fn find(&self, uuid: &Uuid) -> Option<SwitchId> {
        self.by_id().find(|(_, switch)| switch.uuid.as_ref() == Some(uuid)).map(|(id, _)| id)
    }

    /// All PIDs in use, with the switch and the port; a switch's own and a fabric port's at [`OWN_PORT`].
    pub fn pids(&self) -> impl Iterator<Item = (Pid, PortRef)> {
        let targets = move |(id, switch): (SwitchId, &Switch)| {
            let own = (switch.pid, PortRef::new(id, OWN_PORT));
            let rest = switch.targets.iter().filter_map(move |target| {
                let port = if target.kind == TargetKind::Fabric { OWN_PORT } else { target.port };
                let at = PortRef::new(id, port);
                (!self.is_gfds(at, target.pid)).then_some((target.pid, at))
            });
            std::iter::once(own).chain(rest).collect::<Vec<_>>()
        };
        let manager = (self.manager.pid, PortRef::new(SwitchId(0), OWN_PORT));
        let gfds = self.gfds.iter().map(|gfd| (gfd.pid, gfd.at));
        let all = std::iter::once(manager).chain(gfds).chain(self.by_id().flat_map(targets));
        all.filter(|(pid, _)| !pid.is_none())
    }

    /// Whether a port has a PID because it is that of its GFD: the edge lets the GFD speak with no other.
    #[must_use]
    pub fn is_gfds(&self, at: PortRef, pid: Pid) -> bool {
        self.gfds.iter().any(|gfd| (gfd.at, gfd.pid) == (at, pid))
    }

    /// UUIDs and PIDs of all components, to find the same again.
    #[must_use]
    pub fn known(&self) -> BTreeMap<Uuid, Pid> {
        let switches = self.switches.iter().filter_map(|switch| Some((switch.uuid?, switch.pid)));
        switches.chain(self.gfds.iter().map(|gfd| (gfd.uuid, gfd.pid))).collect()
    }

    /// The link at a port.
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

/// A UUID as text; stores of earlier versions have lists of 16 numbers, which are read too.
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

/// Serialises a UUID as text.
pub mod uuid_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use weft_parsers::cci::Uuid;

    /// Writes it.
    ///
    /// # Errors
    /// The serializer's.
    pub fn serialize<S: Serializer>(uuid: &Uuid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&crate::text::UuidText(*uuid))
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
        super::StoredUuid::deserialize(from)?.uuid()
    }
}

/// The same where there may be none.
mod some_uuid_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use weft_parsers::cci::Uuid;

    #[expect(clippy::ref_option, reason = "serde gives it so")]
    pub fn serialize<S: Serializer>(uuid: &Option<Uuid>, to: S) -> Result<S::Ok, S::Error> {
        uuid.map(|uuid| crate::text::UuidText(uuid).to_string()).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Uuid>, D::Error> {
        Option::<super::StoredUuid>::deserialize(from)?.map(super::StoredUuid::uuid).transpose()
    }
}
