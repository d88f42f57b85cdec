//! Loading the program, attaching it to interfaces, and telling it what the switch is told.
//!
//! Shape: [`Xdp`] owns programs, maps and links: all end with it, also when the process is killed.
//! Units: interface indices, ports 0..64, queues 0..64.
//! Source: bpf(2); Linux `Documentation/bpf/redirect.rst`, `map_devmap.rst`, `map_xskmap.rst`.
//! Needs: Linux 5.18, `CAP_BPF`, `CAP_NET_ADMIN` and `CAP_PERFMON`.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use aya::maps::{Array, DevMap, HashMap, Map, MapData, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{ProgramError, Xdp as Program, XdpMode};
use aya::{Ebpf, EbpfLoader};

use crate::layout::{
    BANKS, Control, FDB, PORTS, PortRules, QUEUES, VIDS, map, port_queue, program,
};
use crate::sys::{Mapped, grace};
use crate::words::Words;
use crate::xmit::Xmit;
use crate::{Objects, XdpError, object};

/// How the program runs on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the host's stack, for drivers that cannot: to sockets only, no frame is express.
    Generic,
}

/// What is fixed when the program is loaded.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Stations that can be known.
    pub stations: u32,
    /// Frames may come in several pieces.
    pub frags: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { stations: u32::try_from(FDB).unwrap_or(u32::MAX), frags: false }
    }
}

/// One loaded program for all ports of a switch.
#[derive(Debug)]
pub struct Xdp {
    pub(crate) ebpf: Ebpf,
    words: Arc<Words>,
    name: &'static str,
    links: BTreeMap<u8, (u32, FdLink)>,
    pub(crate) xmit: Option<Xmit>,
}

impl Xdp {
    /// Loads program and maps; nothing is attached yet, no priority is open.
    ///
    /// # Errors
    /// No program in this build, no capability, or a kernel that is too old.
    pub fn load(options: &Options) -> Result<Self, XdpError> {
        let Objects { main, xmit } = object()?;
        let mut ebpf = EbpfLoader::new()
            .btf(None)
            .map_max_entries(map::STATIONS, options.stations.max(1))
            .load(main)
            .map_err(Box::new)?;
        let name = if options.frags { program::WEFT_FRAGS } else { program::WEFT };
        main_program(&mut ebpf, name)?.load().map_err(XdpError::program(name))?;
        let words = Words {
            control: mapped(&ebpf, map::CONTROL, Words::CONTROL)?,
            open: mapped(&ebpf, map::OPEN, Words::OPEN)?,
            handed: mapped(&ebpf, map::HANDED, Words::COUNTS)?,
            done: mapped(&ebpf, map::DONE, Words::COUNTS)?,
        };
        let xmit = Xmit::load(xmit).ok();
        Ok(Self { ebpf, words: Arc::new(words), name, links: BTreeMap::new(), xmit })
    }

    /// The words that workers steer by.
    #[must_use]
    pub const fn words(&self) -> &Arc<Words> {
        &self.words
    }

    /// Whether frames that an output refuses are counted: the kernel describes its types, and lets us
    /// follow two tracepoints.
    #[must_use]
    pub const fn counts_refusals(&self) -> bool {
        self.xmit.is_some()
    }

    /// Makes the interface `port`, and runs the program on it.
    ///
    /// # Errors
    /// The driver cannot, another program is there, or the kernel has no links.
    pub fn attach(&mut self, port: u8, ifindex: u32, mode: Mode) -> Result<(), XdpError> {
        self.detach(port)?;
        self.name(port, ifindex)?;
        let how = match mode {
            Mode::Native => XdpMode::Driver,
            Mode::Generic => XdpMode::Skb,
        };
        let link = self.link(ifindex, how);
        match link {
            Ok(link) => {
                self.links.insert(port, (ifindex, link));
                Ok(())
            }
            Err(why) => {
                self.forget(ifindex)?;
                Err(why)
            }
        }
    }

    /// Says which port an interface is, without running the program on it.
    ///
    /// # Errors
    /// A port out of range.
    pub fn name(&mut self, port: u8, ifindex: u32) -> Result<(), XdpError> {
        in_range("port", u64::from(port), PORTS as u64, "0 to 63")?;
        if let Some(xmit) = &mut self.xmit {
            xmit.name(port, ifindex)?;
        }
        let mut ports: HashMap<_, u32, u32> = map_of(&mut self.ebpf, map::PORT_OF)?;
        ports.insert(ifindex, u32::from(port), 0).map_err(XdpError::map(map::PORT_OF))
    }

    fn link(&mut self, ifindex: u32, mode: XdpMode) -> Result<FdLink, XdpError> {
        let refused = |source: ProgramError| XdpError::Attach { ifindex, source: Box::new(source) };
        let program = main_program(&mut self.ebpf, self.name)?;
        let link = program.attach_to_if_index(ifindex, mode).map_err(refused)?;
        let link = program.take_link(link).map_err(refused)?;
        // What is attached by netlink would stay after a kill.
        FdLink::try_from(link).map_err(|_| XdpError::NoLinks(ifindex))
    }

    fn forget(&mut self, ifindex: u32) -> Result<(), XdpError> {
        if let Some(xmit) = &mut self.xmit {
            xmit.forget(ifindex)?;
        }
        let mut ports: HashMap<_, u32, u32> = map_of(&mut self.ebpf, map::PORT_OF)?;
        drop(ports.remove(&ifindex)); // the interface may be gone, and its entry with it
        Ok(())
    }

    /// Takes the program off the port's interface, if it is on one.
    ///
    /// # Errors
    /// The kernel refuses a map.
    pub fn detach(&mut self, port: u8) -> Result<(), XdpError> {
        let Some((ifindex, link)) = self.links.remove(&port) else { return Ok(()) };
        drop(link);
        self.forget(ifindex)
    }

    /// Where frames of (port, queue) go that are not express; `None`: nowhere.
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
        drop(all.unset(at)); // gone with the socket already
        Ok(())
    }

    /// Where express frames to `port` go; an interface that vanishes takes its entry along.
    ///
    /// # Errors
    /// No such interface.
    pub fn set_output(&mut self, port: u8, ifindex: u32) -> Result<(), XdpError> {
        in_range("port", u64::from(port), PORTS as u64, "0 to 63")?;
        let mut all: DevMap<_> = map_of(&mut self.ebpf, map::OUTPUTS)?;
        all.set(u32::from(port), ifindex, None, 0)
            .map_err(|source| XdpError::Output { ifindex, source: Box::new(source) })
    }

    /// Puts a configuration in force, whole: `rules` by port, `members` by VID.
    ///
    /// # Errors
    /// The kernel refuses a map.
    ///
    /// # Panics
    /// With more than 64 ports or 4,096 VIDs.
    pub fn configure(&mut self, rules: &[PortRules], members: &[u64]) -> Result<(), XdpError> {
        assert!(rules.len() <= PORTS && members.len() <= VIDS, "ports and VLANs of a switch");
        let Control { bank, tick } = self.words.control();
        let next = (bank + 1) % u32::try_from(BANKS).unwrap_or(1);
        // Whoever still reads that bank began before the last change.
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
        self.words.set_control(Control { bank: next, tick });
        Ok(())
    }

    /// Sets the time that is written to stations which are heard from now on.
    pub fn set_tick(&mut self, tick: u32) {
        let bank = self.words.control().bank;
        self.words.set_control(Control { bank, tick });
    }

    /// Waits until no program runs that could have seen what was before.
    ///
    /// # Errors
    /// A kernel without membarrier(2).
    pub fn grace(&self) -> std::io::Result<()> {
        grace()
    }

    pub(crate) const fn program_name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn program(&mut self) -> Result<&mut Program, XdpError> {
        main_program(&mut self.ebpf, self.name)
    }
}

fn main_program<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Program, XdpError> {
    let found = ebpf.program_mut(name).ok_or(XdpError::Missing(name))?;
    found.try_into().map_err(XdpError::program(name))
}

pub(crate) fn map_of<'a, T>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<T, XdpError>
where
    T: TryFrom<&'a mut Map, Error = aya::maps::MapError>,
{
    let found = ebpf.map_mut(name).ok_or(XdpError::Missing(name))?;
    T::try_from(found).map_err(XdpError::map(name))
}

fn mapped(ebpf: &Ebpf, name: &'static str, words: usize) -> Result<Mapped, XdpError> {
    let Some(Map::Array(data)) = ebpf.map(name) else { return Err(XdpError::Missing(name)) };
    let data: &MapData = data;
    Mapped::new(data.fd().as_fd(), words).map_err(|source| XdpError::Mmap { name, source })
}

const fn in_range(
    what: &'static str,
    had: u64,
    bound: u64,
    want: &'static str,
) -> Result<(), XdpError> {
    if had < bound { Ok(()) } else { Err(XdpError::Range { what, had, want }) }
}
