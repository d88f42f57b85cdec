//! Wanted state of a fabric, read from a TOML file.
//!
//! A [`DesiredState`] has names, hosts, bindings and memory; [`super::names`] resolves them in a fabric.
//!
//! Source: docs/spec/cxl-fabric.md "The fabric manager"; TOML 1.0.

mod lds;

use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};
use weft_base::files::{self, OpenedBy};
use weft_parsers::cci::Uuid;
use weft_parsers::fabric::Pid;
use weft_toml::ConfigError;

pub use self::lds::DesiredLd;
use crate::cci::GaePeer;
use crate::components::cdat::Figures;
use crate::components::media::{self, Media, Partition};
use crate::components::memory::map::{self, Kind, LocalRange, Range};
use crate::model::graph::SwitchId;
use crate::model::inventory::{Inventory, Manager};
use crate::model::lineage::Lineage;
use crate::model::text::{is_name, is_word, parse_address, parse_pid, parse_size, parse_uuid, tag};

/// UUID of a manager without `fm.uuid`.
const UUID: Uuid = *b"weft fabric mgr\0";
/// PID of a manager without `fm.pid`.
const PID: u16 = 0xFFE;
/// Longest file that is read, in bytes.
const LEN_MAX: u64 = 16 << 20;

/// Why a file is no wanted state.
#[derive(Debug, thiserror::Error)]
pub enum DesiredStateError {
    #[error("read {0}")]
    File(String, #[source] std::io::Error),
    /// The file is longer than any sensible one.
    #[error("{0} is larger than 16 MiB")]
    Long(String),
    /// It is no TOML, or has unknown keys.
    #[error(transparent)]
    Text(#[from] ConfigError),
    /// It contradicts itself, or a rule that can be checked without a fabric.
    #[error("{0}")]
    Bad(String),
}

/// The `[fm]` section: the manager, and figures that components do not tell.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Management {
    #[serde(default, deserialize_with = "some_uuid")]
    pub uuid: Option<Uuid>,
    #[serde(default, deserialize_with = "some_pid")]
    pub pid: Option<Pid>,
    /// Name of the entry switch, whose UUID only its neighbours tell, if it has any.
    pub entry: Option<String>,
    /// Serial number of the switch that `entry` names, with several managers; otherwise `entry` is the manager's own
    /// entry switch.
    #[serde(skip)]
    pub entry_serial: Option<u64>,
    /// Manager that may take over.
    pub secondary: Option<Secondary>,
    /// With several managers, their UUIDs towards components, and the present term.
    #[serde(skip)]
    pub lineage: Option<Lineage>,
    /// Latency from one port of a switch to another.
    pub switch_ns: Option<u64>,
    /// Latency from one end of a link to the other.
    pub link_ns: Option<u64>,
}

impl Management {
    /// The switch that the wanted state calls its entry; `None` if it is not found, or several have its serial number.
    #[must_use]
    pub fn entry_in(&self, inventory: &Inventory) -> Option<SwitchId> {
        // Without a serial number `entry` is this manager's own entry switch.
        let Some(serial) = self.entry_serial else { return Some(SwitchId(0)) };
        let mut found = inventory.by_id().filter(|(_, switch)| switch.serial == serial);
        found.next().map(|(id, _)| id).filter(|_| found.next().is_none())
    }
}

/// The `[fm.secondary]` section: the manager that may take over.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secondary {
    #[serde(deserialize_with = "uuid")]
    pub uuid: Uuid,
    #[serde(deserialize_with = "pid")]
    pub pid: Pid,
}

/// A `[[switch]]` section: the name of a switch, by UUID.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedComponent {
    pub name: String,
    #[serde(deserialize_with = "uuid")]
    pub uuid: Uuid,
}

/// A `[[gfd]]` section: the name of a GFD, by UUID, and its partitions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredGfd {
    pub name: String,
    #[serde(deserialize_with = "uuid")]
    pub uuid: Uuid,
    /// Media partitions, in order; the GFD keeps its own if `None`.
    pub partitions: Option<Vec<Partition>>,
}

/// A `[[host]]` section: the name of a host, by switch and port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostName {
    pub name: String,
    pub switch: String,
    pub port: u8,
    /// Address of its GAE: `endpoint:PATH`, or, in a session of the host, `tcp:HOST:PORT` or `unix:PATH`.
    #[serde(default, deserialize_with = "some_gae")]
    pub gae: Option<GaePeer>,
    /// Addresses that it uses itself, which fabric memory must not take: its memory, and windows of its bridges. Those
    /// of weft's hosts if `None`.
    pub own_addresses: Option<Vec<OwnAddresses>>,
}

/// Addresses that a host uses itself, `BASE:SIZE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnAddresses(pub LocalRange);

impl<'de> Deserialize<'de> for OwnAddresses {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let bad = || serde::de::Error::custom(format!("expected BASE:SIZE, found {text:?}"));
        let (base, len) = text.split_once(':').ok_or_else(bad)?;
        let base = parse_address(base).map_err(serde::de::Error::custom)?;
        let len = parse_size(len).or_else(|_| parse_address(len)).map_err(|_| bad())?;
        let is_all = len > 0 && base.checked_add(len - 1).is_some();
        if is_all { Ok(Self(LocalRange { base, len })) } else { Err(bad()) }
    }
}

impl HostName {
    /// The addresses that the host uses itself.
    #[must_use]
    pub fn own(&self) -> Vec<LocalRange> {
        let said = self.own_addresses.as_ref();
        said.map_or_else(
            || LocalRange::WEFT_HOST.to_vec(),
            |all| all.iter().map(|one| one.0).collect(),
        )
    }
}

/// A `[[device]]` section: the name of a device other than a GFD, by switch and port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceName {
    pub name: String,
    pub switch: String,
    pub port: u8,
    /// Bytes of memory that its host manages (HDM); 0 for none.
    #[serde(default, deserialize_with = "some_size")]
    pub memory: Option<u64>,
}

/// Memory of a host or device that others may access (GIM): a `[[gim]]` section, and what a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct DesiredGim {
    /// Name of the GIM
    pub name: String,
    /// Owner of the memory: a host, a device, SWITCH/port:N or a PID
    #[cfg_attr(feature = "clap", arg(long))]
    pub of: String,
    /// Host or device that may access the memory; may be given several times
    #[cfg_attr(feature = "clap", arg(long, required = true))]
    pub from: Vec<String>,
    /// Have requesters name the target themselves (`VendPrefixL0`); by default, FAST decodes the address
    #[serde(default)]
    #[cfg_attr(feature = "clap", arg(long))]
    pub prefix: bool,
    /// Size of the memory, such as 16MiB
    #[serde(deserialize_with = "size")]
    #[cfg_attr(feature = "clap", arg(long, value_parser = parse_size))]
    pub size: u64,
    /// Host physical address at which all of them access the memory
    #[serde(deserialize_with = "address")]
    #[cfg_attr(feature = "clap", arg(long, value_parser = parse_address))]
    pub hpa: u64,
}

/// Direct access of devices to a memory device (direct P2P to HDM): a `[[p2p]]` section, and what a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct DesiredP2p {
    /// Name of the P2P access
    pub name: String,
    /// Device to give access to; may be given several times
    #[cfg_attr(feature = "clap", arg(long, required = true))]
    pub from: Vec<String>,
    /// Memory device: its name, SWITCH/port:N or a PID
    #[cfg_attr(feature = "clap", arg(long))]
    pub to: String,
    /// Size of the memory, such as 16MiB
    #[serde(deserialize_with = "size")]
    #[cfg_attr(feature = "clap", arg(long, value_parser = parse_size))]
    pub size: u64,
    /// Address at which all of them, and the memory device itself, access the memory
    #[serde(deserialize_with = "address")]
    #[cfg_attr(feature = "clap", arg(long, value_parser = parse_address))]
    pub hpa: u64,
}

/// A `[[bind]]` section: a bridge, and the device or bridge that it gets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bind {
    pub bridge: String,
    /// `port:N`, `port:N.LD` or SWITCH/VCS/VPPB.
    pub to: String,
}

/// Memory of GFDs that hosts and bound devices share: a `[[memory]]` section, and what a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[serde(deny_unknown_fields)]
pub struct DesiredMemory {
    /// Name of the memory, 1 to 16 bytes
    // The tag of its extents.
    pub name: String,
    /// Host that may access the memory; may be given several times
    #[cfg_attr(feature = "clap", arg(long = "host", value_name = "HOST", required = true))]
    pub hosts: Vec<String>,
    /// GFD to interleave over, in interleaving order; given 1, 2, 4, ... or 256 times
    #[serde(default)]
    #[cfg_attr(feature = "clap", arg(long = "gfd", value_name = "GFD"))]
    pub gfds: Vec<String>,
    /// Interleave over this many GFDs, in discovery order, instead of --gfd
    #[cfg_attr(feature = "clap", arg(long))]
    pub ways: Option<u16>,
    /// Total size, such as 4GiB
    #[serde(deserialize_with = "size")]
    #[cfg_attr(feature = "clap", arg(long, value_parser = parse_size))]
    pub size: u64,
    /// Size of an interleave granule, such as 4KiB
    #[serde(default = "granularity_default", deserialize_with = "small_size")]
    #[cfg_attr(feature = "clap", arg(long, value_parser = parse_granularity, default_value = "4KiB"))]
    pub granularity: u32,
    /// Host physical address at which all hosts access the memory
    #[serde(deserialize_with = "address")]
    #[cfg_attr(feature = "clap", arg(long, value_parser = parse_address))]
    pub hpa: u64,
    /// Kind of memory, dram or pm; by default, the first partitions with room
    #[cfg_attr(feature = "clap", arg(long))]
    pub media: Option<Media>,
    /// Have the GFDs notify the hosts of refused accesses; `weft endpoint ctl HOST ring` reads the notifications
    #[serde(default)]
    #[cfg_attr(feature = "clap", arg(long))]
    pub notify: bool,
}

/// The wanted state of a fabric, as its file has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DesiredState {
    #[serde(default)]
    pub fm: Management,
    #[serde(default, rename = "switch")]
    pub switches: Vec<NamedComponent>,
    #[serde(default, rename = "gfd")]
    pub gfds: Vec<DesiredGfd>,
    #[serde(default, rename = "host")]
    pub hosts: Vec<HostName>,
    #[serde(default, rename = "device")]
    pub devices: Vec<DeviceName>,
    #[serde(default, rename = "bind")]
    pub binds: Vec<Bind>,
    #[serde(default, rename = "memory")]
    pub memory: Vec<DesiredMemory>,
    /// GIM: memory that hosts and devices show each other.
    #[serde(default)]
    pub gim: Vec<DesiredGim>,
    /// P2P: memory devices that other devices access directly.
    #[serde(default)]
    pub p2p: Vec<DesiredP2p>,
    /// Settings of logical devices.
    #[serde(default, rename = "ld")]
    pub lds: Vec<DesiredLd>,
}

impl DesiredState {
    /// Reads a wanted state from a file.
    ///
    /// # Errors
    /// See [`DesiredStateError`].
    pub fn load(path: &Path) -> Result<Self, DesiredStateError> {
        Self::load_with_text(path).map(|(desired, _)| desired)
    }

    /// Reads a wanted state from a file, and returns its text, too.
    ///
    /// # Errors
    /// See [`DesiredStateError`].
    pub fn load_with_text(path: &Path) -> Result<(Self, String), DesiredStateError> {
        use std::io::Read;
        let name = path.display().to_string();
        let mut text = String::new();
        let file = files::open(path, OpenedBy::Command);
        // One byte more than allowed tells a file that is too long from one that just fits.
        let read = file.and_then(|file| file.take(LEN_MAX + 1).read_to_string(&mut text));
        match read {
            Err(error) => Err(DesiredStateError::File(name, error)),
            Ok(_) if text.len() as u64 > LEN_MAX => Err(DesiredStateError::Long(name)),
            Ok(_) => match Self::parse(&text) {
                Ok(desired) => Ok((desired, text)),
                Err(DesiredStateError::Text(error)) => {
                    Err(DesiredStateError::Text(error.in_file(&name)))
                }
                Err(DesiredStateError::Bad(why)) => {
                    Err(DesiredStateError::Bad(format!("{name}: {why}")))
                }
                Err(other) => Err(other),
            },
        }
    }

    /// Reads a wanted state from text.
    ///
    /// # Errors
    /// The text is no such TOML, or names something twice.
    pub fn parse(text: &str) -> Result<Self, DesiredStateError> {
        let desired: Self = weft_toml::read("wanted state", text)?;
        let named = desired.switches.iter().map(|one| one.name.as_str());
        let named = named.chain(desired.gfds.iter().map(|gfd| gfd.name.as_str()));
        let named = named.chain(desired.devices.iter().map(|device| device.name.as_str()));
        let mut names: Vec<&str> =
            named.chain(desired.hosts.iter().map(|host| host.name.as_str())).collect();
        // One name space for all components: commands take any of them by name.
        names.extend(desired.fm.entry.as_deref());
        names.sort_unstable();
        let twice =
            names.windows(2).find(|two| two.first() == two.last()).and_then(|two| two.first());
        if let Some(name) = twice {
            return Err(DesiredStateError::Bad(format!("{name:?} is the name of two components")));
        }
        if let Some(name) = names.iter().find(|name| !is_name(name)) {
            let why = "expected a name of letters, digits, '-', '_' and '.' that is no PID";
            return Err(DesiredStateError::Bad(format!("{why}, found {name:?}")));
        }
        let memory = desired.memory.iter().map(|one| &one.name);
        let gim = desired.gim.iter().map(|one| &one.name);
        let p2p = desired.p2p.iter().map(|one| &one.name);
        if let Some(name) = memory.chain(gim).chain(p2p).find(|name| !is_word(name)) {
            let why = "expected a name of memory of letters, digits, '-', '_' and '.'";
            return Err(DesiredStateError::Bad(format!("{why}, found {name:?}")));
        }
        // GFDs know a share by its tag, so equal names would be one share.
        let mut tags = Vec::new();
        for share in &desired.memory {
            let tag = tag(&share.name).map_err(DesiredStateError::Bad)?;
            if tags.contains(&tag) {
                return Err(DesiredStateError::Bad(format!(
                    "memory {:?} is listed twice",
                    share.name
                )));
            }
            if share.hosts.is_empty() {
                let why = "expected at least one host in `hosts` of memory";
                return Err(DesiredStateError::Bad(format!("{why} {:?}", share.name)));
            }
            tags.push(tag);
        }
        for (at, gim) in desired.gim.iter().enumerate() {
            let before = desired.gim.iter().take(at).map(|other| &other.name);
            let mut others = before.chain(desired.memory.iter().map(|share| &share.name));
            if gim.name.is_empty() || others.any(|other| *other == gim.name) {
                let why = "expected a name that no other memory and no GIM has";
                return Err(DesiredStateError::Bad(format!("{why}, found {:?}", gim.name)));
            }
        }
        // `revoke` and `grant` take memory, GIM and P2P by name alone.
        let gim = desired.gim.iter().map(|gim| &gim.name);
        let mut taken: Vec<&String> = desired.memory.iter().map(|it| &it.name).chain(gim).collect();
        for p2p in &desired.p2p {
            if p2p.name.is_empty() || taken.contains(&&p2p.name) {
                let why = "expected a name that no other memory, GIM or P2P has";
                return Err(DesiredStateError::Bad(format!("{why}, found {:?}", p2p.name)));
            }
            taken.push(&p2p.name);
        }
        desired.check_partitions()?;
        lds::check(&desired.lds).map_err(DesiredStateError::Bad)?;
        desired.check_addresses()?;
        Ok(desired)
    }

    /// Checks that GFDs can have their partitions, and that wanted memory fits them where both are given.
    fn check_partitions(&self) -> Result<(), DesiredStateError> {
        for gfd in &self.gfds {
            if let Some(Err(why)) = gfd.partitions.as_deref().map(media::total) {
                return Err(DesiredStateError::Bad(format!("GFD {:?}: {why}", gfd.name)));
            }
        }
        for one in &self.memory {
            for gfd in self.gfds.iter().filter(|gfd| one.gfds.contains(&gfd.name)) {
                // Parts of memory are equal; a GFD without `partitions` is checked when it is asked.
                let each = one.size / u64::try_from(one.gfds.len()).unwrap_or(u64::MAX);
                let lacks =
                    gfd.partitions.as_deref().and_then(|all| media::lacks(all, each, one.media));
                if let Some(why) = lacks {
                    let why = format!("memory {:?}: GFD {:?} has {why}", one.name, gfd.name);
                    return Err(DesiredStateError::Bad(why));
                }
            }
        }
        Ok(())
    }

    /// Checks that requesters of the same name have room for all their ranges. Who they are, and which GFDs are used,
    /// is known in the fabric only.
    fn check_addresses(&self) -> Result<(), DesiredStateError> {
        let mut all: Vec<(&[String], Range<&str>)> = Vec::new();
        for one in &self.memory {
            let ways = one.ways.map_or(one.gfds.len(), usize::from);
            let name = format!("memory {:?}", one.name);
            if ways == 0 {
                let which = "expected gfds, one for each way and in their order, or ways";
                return Err(DesiredStateError::Bad(format!("{name}: {which}")));
            }
            if let Some(why) = map::misfit(ways, one.granularity, one.hpa, one.size) {
                return Err(DesiredStateError::Bad(format!("{name}: {why}")));
            }
            let (hpa, len, granularity) = (one.hpa, one.size, one.granularity);
            // The GFDs may not be known yet: any two shares of as many ways count as alike here.
            let (kind, targets) = (Kind::Memory, vec![""; ways]);
            all.push((&one.hosts, Range { name, hpa, len, targets, granularity, kind }));
        }
        for one in &self.gim {
            let kind = if one.prefix { Kind::GimByPrefix } else { Kind::Gim };
            let (name, targets) = (format!("GIM {:?}", one.name), vec![one.of.as_str()]);
            let (hpa, len, granularity) = (one.hpa, one.size, 0);
            all.push((&one.from, Range { name, hpa, len, targets, granularity, kind }));
        }
        for one in &self.p2p {
            let (name, targets) = (format!("P2P {:?}", one.name), vec![one.to.as_str()]);
            let (hpa, len, granularity, kind) = (one.hpa, one.size, 0, Kind::P2p);
            all.push((&one.from, Range { name, hpa, len, targets, granularity, kind }));
        }
        for (at, (who, new)) in all.iter().enumerate() {
            for name in *who {
                let before = all.iter().take(at).filter(|(others, _)| others.contains(name));
                let others: Vec<Range<&str>> = before.map(|(_, range)| range.clone()).collect();
                let host = self.hosts.iter().find(|host| host.name == *name);
                let own = host.map_or_else(Vec::new, HostName::own);
                map::fits(new, &others, &own).map_err(|why| {
                    DesiredStateError::Bad(format!("{}: {name:?}: {why}", new.name))
                })?;
            }
        }
        Ok(())
    }

    /// The manager's UUID and PID.
    #[must_use]
    pub fn manager(&self) -> Manager {
        let pid = self.fm.pid.unwrap_or(Pid::from_low_bits(PID));
        Manager { uuid: self.fm.uuid.unwrap_or(UUID), pid }
    }

    /// Latencies of switches and links, which components do not tell.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let ps = |ns: Option<u64>| ns.unwrap_or(0).saturating_mul(1_000);
        Figures { switch_ps: ps(self.fm.switch_ns), link_ps: ps(self.fm.link_ns) }
    }
}

const fn granularity_default() -> u32 {
    4_096
}

/// A TOML value that is a number or text.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a whole number, 0 or above, or text")]
enum Value {
    Number(u64),
    Text(String),
}

impl Value {
    fn read<'de, D: Deserializer<'de>>(
        from: D,
        parse: fn(&str) -> Result<u64, String>,
    ) -> Result<u64, D::Error> {
        match Self::deserialize(from)? {
            Self::Number(number) => Ok(number),
            Self::Text(text) => parse(&text).map_err(serde::de::Error::custom),
        }
    }
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Value::read(from, parse_size)
}

fn some_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    size(from).map(Some)
}

fn small_size<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    as_granularity(Value::read(from, parse_size)?).map_err(serde::de::Error::custom)
}

/// The size of an interleave granule as people write it, in bytes.
#[cfg(feature = "clap")]
fn parse_granularity(text: &str) -> Result<u32, String> {
    parse_size(text).and_then(as_granularity)
}

fn as_granularity(bytes: u64) -> Result<u32, String> {
    u32::try_from(bytes).map_err(|_| "an interleave granule has at most 16 KiB".to_owned())
}

fn address<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Value::read(from, parse_address)
}

fn uuid<'de, D: Deserializer<'de>>(from: D) -> Result<Uuid, D::Error> {
    parse_uuid(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn some_uuid<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Uuid>, D::Error> {
    uuid(from).map(Some)
}

fn pid<'de, D: Deserializer<'de>>(from: D) -> Result<Pid, D::Error> {
    parse_pid(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn some_pid<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Pid>, D::Error> {
    pid(from).map(Some)
}

fn some_gae<'de, D: Deserializer<'de>>(from: D) -> Result<Option<GaePeer>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests;
