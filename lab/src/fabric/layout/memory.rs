//! Checks shares of GFD memory: their owners, GFDs and addresses.
//!
//! It works on the finished parts of a [`LayoutBuilder`] and reports the first rule that is broken.
//!
//! Source: docs/fabric.md; CXL 3.1 sections 7.7.2, 7.7.12.1.

use std::collections::BTreeSet;

use weft_fm::components::memory::DECODERS;
use weft_fm::components::memory::map::{self, Kind, Range};
use weft_fm::model::text;

use super::super::topology::Memory;
use super::build::LayoutBuilder;
use super::{LayoutError, Part, gim};
use weft_fm::service::status::StartMode;

impl LayoutBuilder<'_> {
    /// Refuses G-FAM, GIM and P2P in a static fabric (CXL 3.1 section 7.7.12.1).
    pub(super) fn check_start(&self) -> Result<(), LayoutError> {
        let gfds = self.layout.gfds.iter().map(|gfd| &gfd.name);
        let memory = self.topology.memory.iter().map(|memory| &memory.name);
        let gim = self.layout.gim.iter().map(|gim| &gim.name);
        let p2p = self.layout.p2p.iter().map(|p2p| &p2p.name);
        let mut given = gfds.chain(memory).chain(gim).chain(p2p);
        match given.next() {
            Some(name) if self.topology.start == StartMode::Static => {
                Err(LayoutError::Static(name.clone()))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn check_memory(&self) -> Result<(), LayoutError> {
        let mut names = BTreeSet::new();
        for memory in &self.topology.memory {
            let by = format!("memory {}", memory.name);
            if !names.insert(&memory.name) {
                return Err(LayoutError::Twice(by));
            }
            // The manager stores the name as a tag of 16 bytes.
            if let Err(why) = text::tag(&memory.name) {
                return Err(LayoutError::Misfit { name: memory.name.clone(), why });
            }
            if memory.hosts.is_empty() && memory.devices.is_empty() {
                let (what, want) = ("hosts and devices that have it", "1 or more");
                return Err(LayoutError::Count { name: by, what, want, had: 0 });
            }
            let no_such = |what, name: &str| {
                let (by, name) = (by.clone(), name.to_owned());
                LayoutError::NoSuch { by, what, name }
            };
            for name in &memory.hosts {
                if !matches!(self.find(&by, name, "host")?, Part::Host(_)) {
                    return Err(no_such("host", name));
                }
            }
            for name in &memory.devices {
                let Part::Device(device) = self.find(&by, name, "device")? else {
                    return Err(no_such("device", name));
                };
                // A device sends by the tables of its own port, which only its host can set.
                let mut hosts = 0..self.layout.hosts.len();
                let own = Some(Part::Device(device));
                if !hosts.any(|host| self.layout.edges(host).iter().any(|one| one.part == own)) {
                    return Err(LayoutError::NoTables { by, device: name.clone() });
                }
            }
            for name in &memory.gfds {
                if !self.layout.sets.contains_key(name) {
                    return Err(no_such("GFD", name));
                }
            }
        }
        self.check_addresses()
    }

    /// Checks that each host and device with several shares has room for all of them.
    fn check_addresses(&self) -> Result<(), LayoutError> {
        let mut all: Vec<(&Memory, Range<usize>)> = Vec::new();
        for memory in &self.topology.memory {
            let Memory { name, len, granularity, hpa, .. } = memory;
            let (len, granularity, hpa) = (*len, *granularity, *hpa);
            let targets = self.layout.gfds(&memory.gfds).unwrap_or_default();
            if let Some(why) = map::misfit(targets.len(), granularity, hpa, len) {
                return Err(LayoutError::Misfit { name: name.clone(), why });
            }
            if let Some(at) = targets
                .iter()
                .enumerate()
                .find_map(|(n, at)| targets.iter().take(n).any(|other| other == at).then_some(*at))
            {
                let gfd = self.layout.name(Part::Gfd(at));
                return Err(LayoutError::Twice(format!("memory {name}: {gfd}")));
            }
            self.check_media(memory, &targets)?;
            let (kind, called) = (Kind::Memory, format!("memory {name}"));
            let new = Range { name: called, hpa, len, targets, granularity, kind };
            // Addresses and decoders belong to one requester each, so only its own shares can conflict.
            for who in memory.hosts.iter().chain(&memory.devices) {
                let has = |other: &&(&Memory, _)| {
                    other.0.hosts.contains(who) || other.0.devices.contains(who)
                };
                let others: Vec<_> = all.iter().filter(has).map(|one| one.1.clone()).collect();
                let shares = |gfd| others.iter().filter(|one| one.targets.contains(gfd)).count();
                // A GFD has 8 GDT decoders for each requester.
                if let Some(gfd) = new.targets.iter().find(|gfd| shares(gfd) >= DECODERS.into()) {
                    let gfd = self.layout.name(Part::Gfd(*gfd));
                    let why = format!(
                        "{who} has {DECODERS} shares on {gfd} already, as many as that has decoders for it"
                    );
                    return Err(LayoutError::Misfit { name: name.clone(), why });
                }
                map::fits(&new, &others, &gim::OWN).map_err(|source| LayoutError::Taken {
                    name: name.clone(),
                    who: who.clone(),
                    source,
                })?;
            }
            all.push((memory, new));
        }
        Ok(())
    }
}
