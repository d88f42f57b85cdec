//! Loads the maps, makes the program of each port, and passes configuration and state on to it.
//!
//! [`Xdp`] owns the maps. [`Xdp::program`] returns the instructions that a port loads and attaches: a program that
//! reads a driver's metadata must be bound to one interface.
//!
//! Source: bpf(2); Linux `Documentation/bpf/redirect.rst`, `map_devmap.rst`, `map_xskmap.rst`,
//! `Documentation/networking/xdp-rx-metadata.rst`. Needs: Linux 5.18, `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`.

use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use aya::maps::{Array, DevMap, Map, MapData, XskMap};
use aya::{Ebpf, EbpfLoader};
use aya_obj::Object;

use crate::code::{self, Put};
use crate::layout::{
    BANKS, Control, FDB, PORTS, PortRules, QUEUES, Station, VIDS, checksum, map, placeholder,
    port_queue, program,
};
use crate::maps::{map_of, mapped};
use crate::shared_state::SharedState;
use crate::stations::{self, Stations};
use crate::sys::grace;
use crate::tables::{Fabric, FabricTables};
use crate::xmit::Xmit;
use crate::{Objects, XdpError, object};

/// `-ENODATA`: the answer for a frame without a tag.
const NO_DATA: i32 = -libc::ENODATA;

/// Sizes of maps, fixed when they are created.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Capacity for stations.
    pub stations: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { stations: u32::try_from(FDB).unwrap_or(u32::MAX) }
    }
}

/// How a program learns the state of a frame's checksums at an interface.
#[derive(Clone, Copy, Debug)]
pub enum Checksum<'a> {
    /// By these instructions, a function: given the context, it returns a value of [`checksum`].
    Seen(&'a [u64]),
    /// All are complete, as the frames come from a wire.
    OfWire,
    /// Any may be partial, and the kernel does not say which.
    Unseen,
}

/// The fast path of a switch in the kernel: its BPF maps, and the XDP program of each port.
#[derive(Debug)]
pub struct Xdp {
    pub(crate) ebpf: Ebpf,
    shared: Arc<SharedState>,
    stations: Stations,
    fabric: Fabric,
    /// The program's instructions, with placeholders.
    code: Vec<u64>,
    pub(crate) xmit: Option<Xmit>,
}

impl Xdp {
    /// Creates the maps; no priority is open.
    ///
    /// # Errors
    /// This build has no program, a capability is missing, or the kernel is too old.
    pub fn load(options: &Options) -> Result<Self, XdpError> {
        let Objects { main, xmit } = object()?;
        let buckets = stations::buckets(options.stations);
        let ebpf = EbpfLoader::new()
            .btf(None)
            .map_max_entries(map::STATIONS, buckets)
            .load(main)
            .map_err(Box::new)?;
        let shared = SharedState {
            control: mapped(&ebpf, map::CONTROL, SharedState::CONTROL)?,
            open: mapped(&ebpf, map::OPEN, SharedState::OPEN)?,
            handed: mapped(&ebpf, map::HANDED, SharedState::COUNTS)?,
            done: mapped(&ebpf, map::DONE, SharedState::COUNTS)?,
            drain: mapped(&ebpf, map::DRAIN, SharedState::DRAIN)?,
        };
        let stations = mapped(&ebpf, map::STATIONS, buckets as usize * Stations::BUCKET)?;
        let stations = Stations::new(stations, buckets);
        let code = instructions(&ebpf, main)?;
        let (fabric, shared) = (Fabric::new(&ebpf)?, Arc::new(shared));
        Ok(Self { ebpf, shared, stations, fabric, code, xmit: Xmit::load(xmit).ok() })
    }

    /// The words that workers and the program share.
    #[must_use]
    pub const fn shared(&self) -> &Arc<SharedState> {
        &self.shared
    }

    /// Whether frames that an output refuses are counted: that takes the kernel's BTF and two tracepoints.
    #[must_use]
    pub const fn counts_refusals(&self) -> bool {
        self.xmit.is_some()
    }

    /// The program of `port`. With the BTF number of `bpf_xdp_metadata_rx_vlan_tag` it reads tags that are not in the
    /// data, and must be bound to the port's interface. Without, it treats a frame as having no such tag.
    #[must_use]
    pub fn program(&self, port: u8, vlan_tag: Option<u32>, checksum: Checksum<'_>) -> Vec<u64> {
        let tag = vlan_tag.map_or_else(|| code::constant(NO_DATA), code::kernel_function);
        let checksum = match checksum {
            Checksum::Seen(function) => Put::Function(function),
            Checksum::OfWire => Put::One(code::constant(checksum::OF_WIRE)),
            Checksum::Unseen => Put::One(code::constant(checksum::UNSEEN)),
        };
        let put = [
            (placeholder::PORT, Put::One(code::constant(i32::from(port)))),
            (placeholder::VLAN_TAG, Put::One(tag)),
            (placeholder::STATIONS, Put::One(code::constant(self.stations.mask().cast_signed()))),
            (placeholder::CHECKSUM, checksum),
        ];
        // Only a program that calls the driver's metadata function is bound, and needs slack.
        code::filled(&self.code, &put, vlan_tag.is_some())
    }

    /// Counts frames that the interface refuses, or that were refused coming from it, as those of `port`.
    ///
    /// # Errors
    /// A port out of range.
    pub fn name(&mut self, port: u8, ifindex: u32) -> Result<(), XdpError> {
        in_range("port", u64::from(port), PORTS as u64, "0 to 63")?;
        self.xmit.as_mut().map_or(Ok(()), |xmit| xmit.name(port, ifindex))
    }

    /// Ends this for an interface that is no longer a port.
    ///
    /// # Errors
    /// The kernel refuses the map.
    pub fn forget(&mut self, ifindex: u32) -> Result<(), XdpError> {
        self.xmit.as_mut().map_or(Ok(()), |xmit| xmit.forget(ifindex))
    }

    /// Sets the socket for frames of (port, queue) that are not express; `None` for no socket.
    ///
    /// # Errors
    /// Not an AF_XDP socket.
    pub fn set_socket(
        &mut self,
        port: u8,
        queue: u8,
        socket: Option<BorrowedFd<'_>>,
    ) -> Result<(), XdpError> {
        in_range("port", u64::from(port), PORTS as u64, "0 to 63")?;
        in_range("queue", u64::from(queue), QUEUES as u64, "0 to 63")?;
        let at = port_queue(u32::from(port), u32::from(queue));
        let all = self.ebpf.map_mut(map::SOCKETS).ok_or(XdpError::Missing(map::SOCKETS))?;
        let mut all = XskMap::try_from(all).map_err(XdpError::map(map::SOCKETS))?;
        if let Some(socket) = socket {
            return all.set(at, socket.as_raw_fd(), 0).map_err(XdpError::map(map::SOCKETS));
        }
        drop(all.unset(at)); // the entry may have gone with the socket
        Ok(())
    }

    /// Sets the interface for express frames to `port`; an interface that is deleted takes its entry along.
    ///
    /// # Errors
    /// No such interface.
    pub fn set_output(&mut self, port: u8, ifindex: u32) -> Result<(), XdpError> {
        in_range("port", u64::from(port), PORTS as u64, "0 to 63")?;
        let mut all: DevMap<_> = map_of(&mut self.ebpf, map::OUTPUTS)?;
        all.set(u32::from(port), ifindex, None, 0)
            .map_err(|source| XdpError::Output { ifindex, source: Box::new(source) })
    }

    /// Removes the interface for express frames to `port`.
    ///
    /// # Errors
    /// The kernel refuses the map.
    pub fn unset_output(&mut self, port: u8) -> Result<(), XdpError> {
        let mut all: DevMap<_> = map_of(&mut self.ebpf, map::OUTPUTS)?;
        // Interface index 0 clears the entry of a devmap.
        all.set(u32::from(port), 0, None, 0)
            .map_err(|source| XdpError::Output { ifindex: 0, source: Box::new(source) })
    }

    /// Writes a configuration to the bank that is not in force: `rules` by port, `members` by VID.
    ///
    /// # Errors
    /// The kernel refuses a map.
    ///
    /// # Panics
    /// With more than 64 ports or 4,096 VIDs.
    pub fn prepare(&mut self, rules: &[PortRules], members: &[u64]) -> Result<(), XdpError> {
        assert!(rules.len() <= PORTS && members.len() <= VIDS, "ports and VLANs of a switch");
        let control = self.shared.control();
        let next = (control.bank + 1) % u32::try_from(BANKS).unwrap_or(1);
        // A program that still reads that bank began before the last change: wait until it has ended.
        grace().map_err(|source| XdpError::Mmap { name: map::CONTROL, source })?;
        let entries =
            |count: usize, at: usize| u32::try_from(next as usize * count + at).unwrap_or(u32::MAX);
        let mut all: Array<_, PortRules> = map_of(&mut self.ebpf, map::RULES)?;
        for (port, rule) in rules.iter().enumerate() {
            all.set(entries(PORTS, port), rule, 0).map_err(XdpError::map(map::RULES))?;
        }
        let mut all: Array<_, u64> = map_of(&mut self.ebpf, map::MEMBERS)?;
        for (vid, ports) in members.iter().enumerate() {
            all.set(entries(VIDS, vid), ports, 0).map_err(XdpError::map(map::MEMBERS))?;
        }
        Ok(())
    }

    /// Puts the configuration that was prepared last in force, as a whole.
    pub fn commit(&mut self) {
        let control = self.shared.control();
        self.shared.set_control(Control { bank: control.bank ^ 1, ..control });
    }

    /// Sets the time that the program writes to stations from now on.
    pub fn set_tick(&mut self, tick: u32) {
        let control = self.shared.control();
        self.shared.set_control(Control { tick, ..control });
    }

    /// Adds or changes a station; returns false, and changes nothing, if its two buckets are full.
    ///
    /// # Errors
    /// A kernel without membarrier(2).
    pub fn put_station(&mut self, key: u64, port: u8, is_fixed: bool) -> Result<bool, XdpError> {
        let last_seen = self.shared.control().tick;
        let station = Station { port: u16::from(port), fixed: u16::from(is_fixed), last_seen };
        let put = self.stations.put(key, station, grace);
        put.map_err(|source| XdpError::Mmap { name: map::STATIONS, source })
    }

    #[must_use]
    pub fn station(&self, key: u64) -> Option<Station> {
        self.stations.get(key)
    }

    /// Removes a station; true if there was one.
    pub fn remove_station(&mut self, key: u64) -> bool {
        self.stations.remove(key)
    }

    /// All stations with their keys, in arbitrary order.
    pub fn stations(&self) -> impl Iterator<Item = (u64, Station)> + '_ {
        self.stations.iter()
    }

    /// Puts tables in force, as a whole: no TLP is routed by a mix of these and the former ones.
    ///
    /// # Errors
    /// The kernel refuses a map.
    ///
    /// # Panics
    /// When a table exceeds its map.
    pub fn set_fabric(&mut self, tables: &FabricTables) -> Result<(), XdpError> {
        let control = self.shared.control();
        let next = control.fabric ^ 1;
        // A program that still reads that bank began before the last change: wait until it has ended.
        grace().map_err(|source| XdpError::Mmap { name: map::CONTROL, source })?;
        self.fabric.write(&mut self.ebpf, next as usize, tables)?;
        self.shared.set_control(Control { fabric: next, ..control });
        Ok(())
    }

    /// Reads back the tables in force, with the lengths of `like`.
    ///
    /// # Errors
    /// The kernel refuses a map.
    pub fn fabric_like(&self, like: &FabricTables) -> Result<FabricTables, XdpError> {
        self.fabric.read(&self.ebpf, self.shared.control().fabric as usize, like)
    }

    /// Sets the MAC address, 48 bits, of the component at the other end of a link for TLPs.
    ///
    /// # Panics
    /// With a port beyond 63.
    pub fn set_partner(&self, port: u8, mac: u64) {
        self.fabric.set_partner(port, mac);
    }

    /// Waits until every program that may have read earlier values has ended.
    ///
    /// # Errors
    /// A kernel without membarrier(2).
    pub fn grace(&self) -> std::io::Result<()> {
        grace()
    }
}

/// The program's instructions over the maps of `ebpf`. aya loads a program once and unchanged, which is not enough
/// here.
fn instructions(ebpf: &Ebpf, object: &[u8]) -> Result<Vec<u64>, XdpError> {
    let refused = |source: aya::EbpfError| XdpError::Load(Box::new(source));
    let mut object = Object::parse(object).map_err(|e| refused(e.into()))?;
    let mut maps = Vec::new();
    for (name, map) in object.maps.clone() {
        let found = ebpf.map(&name).ok_or(XdpError::Missing("one of its maps"))?;
        maps.push((name, data_of(found).ok_or(XdpError::Missing("a kind of map"))?, map));
    }
    let sections: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
    let maps =
        maps.iter().map(|(name, data, map)| (name.as_str(), data.fd().as_fd().as_raw_fd(), map));
    object.relocate_maps(maps, &sections).map_err(|e| refused(e.into()))?;
    object.relocate_calls(&sections).map_err(|e| refused(e.into()))?;
    let found = object.programs.get(program::WEFT).ok_or(XdpError::Missing(program::WEFT))?;
    let function = object.functions.get(&found.function_key());
    let function = function.ok_or(XdpError::Missing(program::WEFT))?;
    Ok(function.instructions.iter().copied().map(code::word).collect())
}

/// The data of a map of a kind that the program has.
const fn data_of(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) | Map::DevMap(data) | Map::XskMap(data) | Map::PerCpuArray(data) => {
            Some(data)
        }
        _ => None,
    }
}

const fn in_range(
    what: &'static str,
    had: u64,
    bound: u64,
    want: &'static str,
) -> Result<(), XdpError> {
    if had < bound { Ok(()) } else { Err(XdpError::Range { what, had, want }) }
}
