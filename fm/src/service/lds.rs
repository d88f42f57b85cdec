//! Logical devices by request: their resources, their hosts, and changes.
//!
//! Source: CXL 3.1 sections 7.6.7.4 and 7.6.7.6; docs/fm.md.

use std::collections::{BTreeMap, BTreeSet};

use weft_parsers::cci::dcd::Extent;
use weft_rpc::Refused;

use super::board::StatusBoard;
use super::request::{CapacityChange, CapacityExtent, CapacityRow, LdChange, LdRow};
use super::{refuse, with_causes};
use crate::cci::{CciSession, Way};
use crate::components::ld_capacity::{Addition, BlockWanted, CapacityWanted, Removal};
use crate::components::lds::{LdDevice, LdWanted};
use crate::discover::change::Running;
use crate::model::graph::PortRef;
use crate::model::inventory::{DiscoveredSwitch, Partner, Port};
use crate::model::text::{name_of, tag};
use crate::state::desired::{DesiredState, DeviceName};
use crate::state::names::Names;

/// The way to the switch of a device with logical devices; `None` if there is none at the port.
fn running_switch(running: &Running, at: PortRef) -> Option<Way> {
    let switch = running.inventory.switch(at.switch)?;
    switch.port(at.port).filter(|port| port.lds > 0).map(|_| switch.way())
}

/// Requests about logical devices of a fabric that is up.
pub(super) struct LdRequests<'a> {
    pub cci: &'a mut CciSession,
    pub desired: &'a DesiredState,
    pub running: &'a mut Running,
    pub board: &'a StatusBoard,
}

impl LdRequests<'_> {
    fn names<T>(&self, of: impl FnOnce(Names<'_>) -> Result<T, String>) -> Result<T, Refused> {
        of(Names::new(self.desired, self.running)).map_err(Refused::bad_request)
    }

    /// All devices with logical devices, and the ways to their switches.
    fn devices(&self) -> Vec<(PortRef, Way)> {
        let of = |(id, switch): (_, &DiscoveredSwitch)| {
            let with_lds = switch.ports.iter().filter(|port| port.lds > 0);
            let way = switch.way();
            with_lds.map(|port| (PortRef::new(id, port.number), way)).collect::<Vec<_>>()
        };
        self.running.inventory.by_id().flat_map(of).collect()
    }

    /// Rows of all logical devices.
    pub fn rows(&mut self) -> Result<Vec<LdRow>, Refused> {
        let mut rows = Vec::new();
        for (at, way) in self.devices() {
            let called = self.device_name(at)?;
            let mut device = LdDevice { fabric: self.cci, way, port: at.port };
            let shares = device.shares().map_err(refuse)?;
            for (ld, share) in (0_u8..).zip(shares) {
                let local = self.running.bindings.local.iter();
                let mut shown = local.filter(|local| {
                    let place = PortRef::new(local.bridge.switch, local.port);
                    (place, local.ld) == (at, Some(ld.into()))
                });
                rows.push(LdRow {
                    device: called.clone(),
                    ld,
                    memory: share.memory,
                    bandwidth: share.bandwidth,
                    limit: share.limit,
                    bridge: shown.next().map(|local| local.bridge.to_string()),
                });
            }
        }
        Ok(rows)
    }

    /// Name of a device, or its place.
    fn device_name(&self, at: PortRef) -> Result<String, Refused> {
        self.names(|names| {
            let is_it = |device: &&DeviceName| {
                device.port == at.port && names.switch(&device.switch) == Ok(at.switch)
            };
            let named = names.desired.devices.iter().find(is_it);
            Ok(named.map_or_else(|| at.to_string(), |device| device.name.clone()))
        })
    }

    /// Memory of a logical device named `DEVICE.LD`; `None` if `ld` is.
    pub fn memory_of(&mut self, name: &str, ld: Option<u16>) -> Result<Option<u64>, Refused> {
        let named = name.rsplit_once('.').zip(ld.and_then(|ld| u8::try_from(ld).ok()));
        let Some(((device, _), ld)) = named else { return Ok(None) };
        let at = self.names(|names| names.device(device))?;
        let called = self.device_name(at)?;
        let rows = self.rows()?;
        let own = rows.into_iter().find(|row| row.device == called && row.ld == ld);
        Ok(own.map(|row| row.memory))
    }

    /// Port of a logical device, and the way to its switch.
    fn place(&self, device: &str, ld: u8) -> Result<(PortRef, Way), Refused> {
        let at = self.names(|names| names.device(device))?;
        let switch = self.running.inventory.switch(at.switch);
        let port = switch.and_then(|switch| switch.port(at.port));
        let (Some(switch), Some(port)) = (switch, port.filter(|port| port.lds > 0)) else {
            return Err(Refused::because(format!(
                "{device} has told its switch of no logical devices"
            )));
        };
        let last = port.lds - 1;
        if ld > last {
            let text = format!("{device} has no logical device {ld}: they are 0 to {last}");
            return Err(Refused::bad_request(text));
        }
        Ok((at, switch.way()))
    }

    /// Rows of all devices with dynamic capacity.
    pub fn capacity(&mut self) -> Result<Vec<CapacityRow>, Refused> {
        let mut rows = Vec::new();
        for (at, way) in self.devices() {
            let device = self.device_name(at)?;
            let mut known = LdDevice { fabric: self.cci, way, port: at.port };
            let Some(capacity) = known.capacity().map_err(refuse)? else { continue };
            let shown = |(ld, extent): (u8, &Extent)| CapacityExtent {
                ld,
                start: extent.start.0,
                len: extent.len,
                tag: (extent.tag != [0; 16]).then(|| name_of(&extent.tag)),
            };
            let all = (0_u8..).zip(&capacity.extents);
            let extents = all.flat_map(|(ld, list)| list.iter().map(move |it| (ld, it)));
            rows.push(CapacityRow {
                device,
                base: capacity.base,
                size: capacity.size,
                free: capacity.free(),
                block: capacity.block,
                extents: extents.map(shown).collect(),
                kept: capacity.kept.iter().map(name_of).collect(),
            });
        }
        Ok(rows)
    }

    /// Changes dynamic capacity; returns the text of the answer.
    pub fn set_capacity(
        &mut self,
        device: &str,
        ld: u8,
        change: &CapacityChange,
    ) -> Result<String, Refused> {
        let (at, way) = self.place(device, ld)?;
        let mut known = LdDevice { fabric: self.cci, way, port: at.port };
        let named = |name: &str| tag(name).map_err(Refused::bad_request);
        let of = |name: &Option<String>| name.as_deref().map_or(Ok([0; 16]), named);
        let (done, what) = match change {
            CapacityChange::Add { size, tag, at, contiguous } => {
                let (tag, what) = (of(tag)?, format!("{} KiB more", size >> 10));
                let add = Addition { size: *size, tag, at: *at, contiguous: *contiguous };
                (known.add_capacity(ld, &add), what)
            }
            CapacityChange::Release { size, tag, at, force } => {
                let what =
                    size.map_or("less".to_owned(), |size| format!("{} KiB less", size >> 10));
                let remove = Removal { size: *size, tag: of(tag)?, at: *at, force: *force };
                (known.release_capacity(ld, &remove), what)
            }
            CapacityChange::Share { tag } => {
                (known.share_capacity(ld, named(tag)?), format!("{tag}, as others have it, as"))
            }
            CapacityChange::Keep { tag } => {
                (known.keep_capacity(ld, named(tag)?), format!("{tag}, whose content is kept, as"))
            }
            CapacityChange::Block { size } => {
                known.set_block(*size).map_err(refuse)?;
                let blocks = &mut self.running.bindings.blocks;
                blocks.retain(|wanted| wanted.at != at);
                blocks.push(BlockWanted { at, block: *size });
                let text = format!("{device} deals dynamic capacity out in {} KiB", size >> 10);
                return Ok(text);
            }
            CapacityChange::Forget { tag } => {
                known.forget_capacity(named(tag)?).map_err(refuse)?;
                return Ok(format!("{tag} of {device} is kept no more"));
            }
        };
        done.map_err(refuse)?;
        // Read back rather than computed: the device chose the places.
        let now = known.capacity().map_err(refuse)?;
        if let Some(now) = now {
            let wanted = &mut self.running.bindings.capacity;
            wanted.retain(|piece| (piece.at, piece.ld) != (at, ld));
            let all = now.extents.get(usize::from(ld)).into_iter().flatten();
            wanted.extend(all.map(|extent| {
                let (start, len, tag) = (extent.start.0, extent.len, extent.tag);
                CapacityWanted { at, ld, start, len, tag }
            }));
        }
        Ok(format!("LD {ld} of {device} has {what} dynamic capacity"))
    }

    /// Adds dynamic capacity again where a device has lost it; returns errors.
    pub fn restore_capacity(&mut self) -> Vec<String> {
        let all = self.running.bindings.capacity.clone();
        let blocks = self.running.bindings.blocks.clone();
        let places = all.iter().map(|wanted| wanted.at).chain(blocks.iter().map(|it| it.at));
        let places: BTreeSet<PortRef> = places.collect();
        let mut errors = Vec::new();
        for at in places {
            let switch = running_switch(self.running, at);
            let Some(way) = switch else { continue }; // its device is away: when it is back
            let wanted: Vec<CapacityWanted> =
                all.iter().filter(|it| it.at == at).copied().collect();
            let mut device = LdDevice { fabric: self.cci, way, port: at.port };
            let block = blocks.iter().find(|it| it.at == at).map(|it| it.block);
            // The block size first: extents are multiples of it.
            let shaped = block.map_or(Ok(()), |block| device.set_block(block));
            match shaped.and_then(|()| device.restore_capacity(&wanted)) {
                Ok(0) => {}
                Ok(count) => self.board.record_event(format!(
                    "{count} pieces of dynamic capacity of {at} are added again"
                )),
                Err(error) => {
                    errors.push(format!("dynamic capacity of {at}: {}", with_causes(&error)));
                }
            }
        }
        errors
    }

    /// Changes a setting of a logical device; returns the text of the answer.
    pub fn set(&mut self, device: &str, ld: u8, change: LdChange) -> Result<String, Refused> {
        let (at, way) = self.place(device, ld)?;
        let mut device_at = LdDevice { fabric: self.cci, way, port: at.port };
        let (done, what) = match change {
            LdChange::Memory(bytes) => {
                (device_at.set_memory(ld, bytes), format!("{} MiB of memory", bytes >> 20))
            }
            LdChange::Bandwidth(part) => {
                (device_at.set_bandwidth(ld, part), format!("{part}/256 of the bandwidth"))
            }
            LdChange::Limit(0) => (device_at.set_limit(ld, 0), "no limit of bandwidth".to_owned()),
            LdChange::Limit(part) => {
                (device_at.set_limit(ld, part), format!("at most {part}/256 of the bandwidth"))
            }
        };
        done.map_err(refuse)?;
        // Recorded only after success: a refused value must not come back after a restart of the device.
        self.want_ld(at, ld, change);
        Ok(format!("LD {ld} of {device} has {what}"))
    }

    /// Records a wanted setting, so that it can be restored.
    fn want_ld(&mut self, at: PortRef, ld: u8, change: LdChange) {
        let lds = &mut self.running.bindings.lds;
        let place = lds.iter().position(|it| (it.at, it.ld) == (at, ld));
        let place = place.unwrap_or_else(|| {
            lds.push(LdWanted::new(at, ld));
            lds.len() - 1
        });
        let Some(wanted) = lds.get_mut(place) else { return };
        match change {
            LdChange::Memory(bytes) => wanted.memory = Some(bytes),
            LdChange::Bandwidth(part) => wanted.bandwidth = Some(part),
            LdChange::Limit(part) => wanted.limit = Some(part),
        }
    }

    /// Takes over the wanted state's settings of logical devices; returns errors.
    fn follow_desired_lds(&mut self) -> Vec<String> {
        let running = &mut *self.running;
        let (mut errors, mut said) = (Vec::new(), BTreeMap::new());
        for wanted in &self.desired.lds {
            let (device, ld) = (&wanted.device, wanted.ld);
            let at = match Names::new(self.desired, running).device(device) {
                Ok(at) => at,
                Err(why) => {
                    errors.push(format!("LD {ld} of {device:?}: {why}"));
                    continue;
                }
            };
            let port = running.inventory.switch(at.switch).and_then(|it| it.port(at.port));
            // While the device is away its number of LDs is unknown: no error yet.
            let whole = |port: &Port| port.partner != Partner::Nobody && port.lds == 0;
            if port.is_some_and(whole) {
                errors.push(format!(
                    "LD {ld} of {device:?}: the device has told its switch of no logical devices"
                ));
            } else if said.insert((at, ld), wanted.amounts()).is_some() {
                errors.push(format!("LD {ld} of {device:?} is in the wanted state twice"));
            }
        }
        let lds = &mut running.bindings.lds;
        for wanted in lds.iter_mut() {
            // Settings that the file no longer has become `None` there, and the LD keeps its present ones.
            wanted.follow(said.remove(&(wanted.at, wanted.ld)).unwrap_or_default());
        }
        lds.extend(said.into_iter().map(|((at, ld), amounts)| {
            let mut wanted = LdWanted::new(at, ld);
            wanted.follow(amounts);
            wanted
        }));
        errors
    }

    /// Sets wanted resources of logical devices that have others; returns errors.
    pub fn restore(&mut self) -> Vec<String> {
        let mut errors = self.follow_desired_lds();
        let all = self.running.bindings.lds.clone();
        let places: BTreeSet<PortRef> = all.iter().map(|wanted| wanted.at).collect();
        for at in places {
            let switch = running_switch(self.running, at);
            let Some(way) = switch else { continue }; // its device is away: when it is back
            let wanted: Vec<LdWanted> = all.iter().filter(|it| it.at == at).copied().collect();
            let mut device = LdDevice { fabric: self.cci, way, port: at.port };
            match device.set_all(&wanted) {
                Ok(0) => {}
                Ok(count) => self.board.record_event(format!(
                    "{count} logical devices of {at} are given what they are to have"
                )),
                Err(error) => {
                    errors.push(format!("logical devices of {at}: {}", with_causes(&error)));
                }
            }
        }
        errors
    }
}
