//! The commands of a device, 4900 to 4914, as methods of [`Gfd`]: plain values in; a plain answer or a [`ReturnCode`]
//! out. A refused command has changed nothing.
//!
//! Lists are returned as pages: from `start` on, at most `count` entries. A start at the end gives an empty page; one
//! beyond it is Invalid Input.
//!
//! Source: docs/spec/wire-formats.md §4.7, conflicts C8 and C9; CXL 3.1 section 7.7.13.

use weft_dataplane::time::Instant;
use weft_parsers::fabric::Pid;

use super::capacity::{Capacity, Choice, EXTENTS_MAX, Extent, Part, TAGS_MAX, Tag, Wipes};
use super::code::ReturnCode;
use super::decode::{DECODERS, Decoder};
use super::device::{Gfd, LinkStatus};
use super::dmp::{BLOCK_SIZES, Dmp, Region, UNIT};
use super::events::{Event, Kind};
use super::protect::{DMPS, GrpId};
use super::qos::Control;

/// Notify bit of the 32-bit `GrpAccVec` of commands 490C and 490D; bits 0 to 30 are groups.
const NOTIFY: u32 = 1 << 31;

/// Answer to Identify GFD (4900). Capacities are in units of 256 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Partitions that can be set.
    pub dmps: u8,
    /// Regions that can be set.
    pub regions: u8,
    /// Groups that can be set.
    pub groups: u16,
    /// Policies of 4907, one bit each.
    pub add_policies: u32,
    /// Policies of 4908, one bit each.
    pub release_policies: u16,
    /// `QoS`: bit 0 backpressure average, bit 1 temporary reduction (not offered).
    pub qos: u8,
    /// Regions that can be wiped, one bit each.
    pub sanitize: u8,
    /// Size of the memory.
    pub capacity: u64,
    /// Block sizes that a region can have, bit n for 2^n bytes.
    pub region_blocks: [u64; 8],
    /// Block sizes that a partition can have.
    pub dmp_blocks: [u64; DMPS],
    /// Memory in volatile partitions.
    pub volatile: u64,
    /// Memory in persistent partitions.
    pub persistent: u64,
}

/// A part of a long list in the answer to a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T> {
    /// Index of the first entry in the whole list.
    pub start: usize,
    /// Length of the whole list.
    pub total: usize,
    /// Counts up with each change of the list; 0 for lists without generation.
    pub generation: u32,
    pub list: Vec<T>,
}

impl<T> Page<T> {
    /// Up to `count` entries of a list, from `start` on.
    ///
    /// # Errors
    /// Invalid Input: a start beyond the end.
    pub fn of(
        all: impl IntoIterator<Item = T>,
        generation: u32,
        start: usize,
        count: usize,
    ) -> Result<Self, ReturnCode> {
        let (mut total, mut list) = (0, Vec::new());
        for (at, item) in all.into_iter().enumerate() {
            total = at + 1;
            if at >= start && list.len() < count {
                list.push(item);
            }
        }
        if start > total {
            return Err(ReturnCode::InvalidInput);
        }
        Ok(Self { start, total, generation, list })
    }
}

/// The totals in the answer to Get DC Region Configuration (4902).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Most extents of the device.
    pub extents: u32,
    /// Extents that can still be added.
    pub extents_left: u32,
    /// Most tags of the device.
    pub tags: u32,
    /// Tags that can still be added.
    pub tags_left: u32,
}

impl Totals {
    /// Totals of `capacity`, for the answer to 4902.
    #[must_use]
    pub fn of(capacity: &Capacity) -> Self {
        let (extents, tags) = (capacity.extent_count(), capacity.tags().0.len());
        Self {
            extents: count32(EXTENTS_MAX),
            extents_left: count32(EXTENTS_MAX.saturating_sub(extents)),
            tags: count32(TAGS_MAX),
            tags_left: count32(TAGS_MAX.saturating_sub(tags)),
        }
    }
}

/// A count as messages carry it, 2^32 - 1 at most.
#[must_use]
pub fn count32(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Gfd {
    fn group(&self, number: u16) -> Result<GrpId, ReturnCode> {
        let known = GrpId::new(number).filter(|group| group.number() < self.config.groups);
        known.ok_or(ReturnCode::InvalidInput)
    }

    #[must_use]
    pub fn identify(&self) -> Identity {
        let dmps = self.capacity.dmps().iter().flatten();
        let kept = |keeps: bool| {
            let of_kind = dmps.clone().filter(|dmp| dmp.media.non_volatile == keeps);
            of_kind.map(|dmp| dmp.len / UNIT).sum()
        };
        let masks = |count: u8, k: usize| if k < usize::from(count) { BLOCK_SIZES } else { 0 };
        Identity {
            dmps: self.config.dmps,
            regions: self.config.regions,
            groups: self.config.groups,
            add_policies: 0b1111,
            release_policies: 0b11,
            qos: 1,
            sanitize: u8::try_from((1_u16 << self.config.regions) - 1).unwrap_or(u8::MAX),
            capacity: self.capacity.size() / UNIT,
            region_blocks: core::array::from_fn(|k| masks(self.config.regions, k)),
            dmp_blocks: core::array::from_fn(|k| masks(self.config.dmps, k)),
            volatile: kept(false),
            persistent: kept(true),
        }
    }

    /// Get the link status (4901).
    #[must_use]
    pub const fn status(&self) -> LinkStatus {
        self.link
    }

    /// Sets the link status that 4901 returns.
    pub const fn set_status(&mut self, link: LinkStatus) {
        self.link = link;
    }

    /// Get DC Region Configuration (4902): regions that are set, by id.
    ///
    /// # Errors
    /// Invalid Input: a start beyond the end.
    pub fn regions(
        &self,
        start: usize,
        count: usize,
    ) -> Result<(Page<Region>, Totals), ReturnCode> {
        let page = Page::of(self.capacity.regions().iter().flatten().copied(), 0, start, count)?;
        Ok((page, Totals::of(&self.capacity)))
    }

    /// Set DC Region Configuration (4903); length 0 removes the region.
    ///
    /// # Errors
    /// As [`super::capacity::Capacity::set_region`]; Invalid Input also for a region number that the device does not
    /// have.
    pub fn set_region(&mut self, region: Region) -> Result<(), ReturnCode> {
        if region.id >= self.config.regions {
            return Err(ReturnCode::InvalidInput);
        }
        self.capacity.set_region(region)
    }

    /// Get Extent List of a group (4904).
    ///
    /// # Errors
    /// Invalid Input: no such group, or a start beyond the end.
    pub fn extents(
        &self,
        group: u16,
        start: usize,
        count: usize,
    ) -> Result<Page<Extent>, ReturnCode> {
        let (list, generation) = self.capacity.extents(self.group(group)?);
        Page::of(list, generation, start, count)
    }

    /// Get DMP Configuration (4905): partitions that are set, by index.
    ///
    /// # Errors
    /// Invalid Input: a start beyond the end.
    pub fn dmps(&self, start: usize, count: usize) -> Result<Page<Dmp>, ReturnCode> {
        Page::of(self.capacity.dmps().iter().flatten().copied(), 0, start, count)
    }

    /// Set DMP Configuration (4906); length 0 removes a partition.
    ///
    /// # Errors
    /// As [`super::capacity::Capacity::set_dmps`]; Invalid Input also for a partition number that the device does not
    /// have.
    pub fn set_dmps(&mut self, dmps: &[Dmp]) -> Result<(), ReturnCode> {
        if dmps.iter().any(|dmp| dmp.index >= self.config.dmps) {
            return Err(ReturnCode::InvalidInput);
        }
        self.capacity.set_dmps(dmps)
    }

    /// Dynamic Capacity Add (4907): returns the new extents, `count` at most, and notifies the group's hosts. Capacity
    /// that the device chose reads as zeros; capacity named by address keeps the old contents.
    ///
    /// # Errors
    /// As [`super::capacity::Capacity::add`]; Invalid Input also for a group that the device does not have. Internal
    /// Error: the memory could not be zeroed; the group did not get it.
    pub fn add_capacity(
        &mut self,
        now: Instant,
        group: u16,
        tag: Tag,
        choice: Choice,
        count: usize,
    ) -> Result<Page<Extent>, ReturnCode> {
        // Named by address: the requester knows what it asks for, as a manager does that restores an allocation after a
        // restart.
        let chosen = matches!(choice, Choice::Free { .. } | Choice::Contiguous { .. });
        self.give(now, group, tag, choice, chosen, count)
    }

    /// Like [`Self::add_capacity`], for the owner of the device at start-up: the memory keeps its contents, whatever
    /// the choice.
    ///
    /// # Errors
    /// As [`Self::add_capacity`].
    pub fn grant_capacity(
        &mut self,
        group: u16,
        tag: Tag,
        choice: Choice,
    ) -> Result<Page<Extent>, ReturnCode> {
        self.give(Instant::ZERO, group, tag, choice, false, 1)
    }

    fn give(
        &mut self,
        now: Instant,
        group: u16,
        tag: Tag,
        choice: Choice,
        wipes: bool,
        count: usize,
    ) -> Result<Page<Extent>, ReturnCode> {
        let group = self.group(group)?;
        // On copies, so that a failed wipe leaves everything as it was; the wiped bytes were free and belong to no
        // group.
        let (mut next, mut remains) = (self.capacity.clone(), self.remains.clone());
        let added = next.add(group, tag, choice)?;
        for extent in &added {
            let left = remains.take(extent.start.0, extent.len);
            if wipes {
                self.wipe(&left)?;
            }
        }
        (self.capacity, self.remains) = (next, remains);
        self.tell(now, group);
        let (_, generation) = self.capacity.extents(group);
        Page::of(added, generation, 0, count)
    }

    /// Dynamic Capacity Release (4908): returns the extents released, `count` at most, and notifies the group's hosts.
    ///
    /// # Errors
    /// As [`super::capacity::Capacity::release`]; Invalid Input also for a group that the device does not have.
    /// Internal Error: the memory could not be zeroed; the group keeps its capacity.
    pub fn release_capacity(
        &mut self,
        now: Instant,
        group: u16,
        part: Part,
        sanitize: bool,
        count: usize,
    ) -> Result<Page<Extent>, ReturnCode> {
        let group = self.group(group)?;
        let mut next = self.capacity.clone();
        let (lost, wipes) = next.release(group, part, sanitize)?;
        self.wipe(&wipes)?;
        self.capacity = next;
        for extent in &lost {
            self.remains.add(extent.start.0, extent.len);
        }
        for &(start, len) in &wipes {
            self.remains.take(start, len);
        }
        self.tell(now, group);
        let (_, generation) = self.capacity.extents(group);
        Page::of(lost, generation, 0, count)
    }

    /// Add Reference (4909).
    ///
    /// # Errors
    /// As [`super::capacity::Capacity::add_reference`].
    pub fn add_reference(&mut self, tag: Tag) -> Result<(), ReturnCode> {
        self.capacity.add_reference(tag)
    }

    /// Remove Reference (490A).
    ///
    /// # Errors
    /// As [`super::capacity::Capacity::remove_reference`]. Internal Error: the memory could not be zeroed; the
    /// reference stays.
    pub fn remove_reference(&mut self, tag: Tag) -> Result<(), ReturnCode> {
        let mut next = self.capacity.clone();
        let wipes = next.remove_reference(tag)?;
        self.wipe(&wipes)?;
        self.capacity = next;
        Ok(())
    }

    /// List Tags (490B): each with whether the FM refers to it.
    ///
    /// # Errors
    /// Invalid Input: a start beyond the end.
    pub fn tags(&self, start: usize, count: usize) -> Result<Page<(Tag, bool)>, ReturnCode> {
        let (list, generation) = self.capacity.tags();
        Page::of(list, generation, start, count)
    }

    /// Get SAT (490C): groups 0..=30 of each requester, bit 31 Notify.
    ///
    /// # Errors
    /// Invalid Input: a start beyond the end.
    pub fn sat(&self, start: usize, count: usize) -> Result<Page<u32>, ReturnCode> {
        let vector = |rpid: Pid| {
            let notify = if self.sat.notify(rpid) { NOTIFY } else { 0 };
            // Groups 31 and up have no bit here (conflict C9); `group_access` returns them.
            let low = self.sat.groups(rpid) & u64::from(!NOTIFY);
            u32::try_from(low).unwrap_or(0) | notify
        };
        Page::of(pids().map(vector), 0, start, count)
    }

    /// Set SAT (490D): all entries or none. Groups 31 and up stay as they are.
    ///
    /// # Errors
    /// Invalid Input: PID `0xFFF`, or a group that the device does not have.
    pub fn set_sat(&mut self, entries: &[(Pid, u32)]) -> Result<(), ReturnCode> {
        let known = self.known_groups();
        let fits = |(rpid, vector): &(Pid, u32)| {
            !rpid.is_none() && u64::from(vector & !NOTIFY) & !known == 0
        };
        // All entries first: the command applies whole or not at all.
        if !entries.iter().all(fits) {
            return Err(ReturnCode::InvalidInput);
        }
        for &(rpid, vector) in entries {
            let high = self.sat.groups(rpid) & !u64::from(!NOTIFY);
            self.sat.set_groups(rpid, high | u64::from(vector & !NOTIFY));
            self.sat.set_notify(rpid, vector & NOTIFY != 0);
        }
        Ok(())
    }

    /// All groups of a requester, one bit each; 490C has room for 31 of them. Not a command of the standard.
    #[must_use]
    pub fn group_access(&self, rpid: Pid) -> u64 {
        self.sat.groups(rpid)
    }

    /// Sets all groups of requesters, all entries or none, Notify untouched. Not a command of the standard.
    ///
    /// # Errors
    /// Invalid Input: PID `0xFFF`, or a group that the device does not have.
    pub fn set_group_access(&mut self, entries: &[(Pid, u64)]) -> Result<(), ReturnCode> {
        let known = self.known_groups();
        if entries.iter().any(|(rpid, groups)| rpid.is_none() || groups & !known != 0) {
            return Err(ReturnCode::InvalidInput);
        }
        for &(rpid, groups) in entries {
            self.sat.set_groups(rpid, groups);
        }
        Ok(())
    }

    const fn known_groups(&self) -> u64 {
        u64::MAX >> (64 - self.config.groups) // 1..=64 groups
    }

    /// Get `QoS` Control (490E).
    #[must_use]
    pub const fn qos_control(&self) -> Control {
        self.qos.control()
    }

    /// Set `QoS` Control (490F).
    ///
    /// # Errors
    /// As [`super::qos::Qos::set_control`].
    pub fn set_qos_control(&mut self, control: Control) -> Result<(), ReturnCode> {
        self.qos.set_control(control)
    }

    /// Get `QoS` Status (4910): average backpressure in percent.
    #[must_use]
    pub fn qos_status(&self) -> u8 {
        self.qos.backpressure_percent()
    }

    /// Get `QoS` BW Limit (4911): 1/256 of the bandwidth, by RPID; 0 is no limit.
    ///
    /// # Errors
    /// Invalid Input: a start beyond the end.
    pub fn bandwidth_limits(&self, start: usize, count: usize) -> Result<Page<u8>, ReturnCode> {
        Page::of(pids().map(|rpid| self.qos.limit(rpid)), 0, start, count)
    }

    /// Set `QoS` BW Limit (4912) of requesters from `start` on, all or none.
    ///
    /// # Errors
    /// Invalid Input: beyond PID `0xFFE`.
    pub fn set_bandwidth_limits(&mut self, start: usize, limits: &[u8]) -> Result<(), ReturnCode> {
        if start.checked_add(limits.len()).is_none_or(|end| end > Pid::COUNT - 1) {
            return Err(ReturnCode::InvalidInput);
        }
        pids().skip(start).zip(limits).for_each(|(rpid, limit)| self.qos.set_limit(rpid, *limit));
        Ok(())
    }

    /// Get GDT (4913): the decoders of a requester by index, `None` for one that is not valid.
    ///
    /// # Errors
    /// Invalid Input: PID `0xFFF`, or a start beyond the end.
    pub fn decoders(
        &self,
        rpid: Pid,
        start: usize,
        count: usize,
    ) -> Result<Page<Option<Decoder>>, ReturnCode> {
        if rpid.is_none() {
            return Err(ReturnCode::InvalidInput);
        }
        Page::of(self.gdt.get(rpid), 0, start, count.min(DECODERS))
    }

    /// Set GDT (4914), all entries or none.
    ///
    /// # Errors
    /// As [`super::decode::Gdt::set`].
    pub fn set_decoders(
        &mut self,
        rpid: Pid,
        start: usize,
        decoders: &[Option<Decoder>],
    ) -> Result<(), ReturnCode> {
        self.gdt.set(rpid, start, decoders)
    }

    fn wipe(&mut self, wipes: &Wipes) -> Result<(), ReturnCode> {
        for &(start, len) in wipes {
            self.memory.clear(start, len).map_err(|_| ReturnCode::InternalError)?;
        }
        Ok(())
    }

    /// Notifies the FM, and the hosts of the group that want it, that the group's extents changed.
    fn tell(&mut self, now: Instant, group: GrpId) {
        let event = Event {
            kind: Kind::ExtentsChanged,
            trigger: 0,
            rpid: Pid::NONE,
            by_request: false,
            dpa: None,
            hpa: None,
            group: Some(group),
            opcode: None,
        };
        // The event has no RPID, so hosts are notified one by one below.
        self.events.raise(now, event, false);
        for rpid in pids() {
            if self.sat.notify(rpid) && self.sat.groups(rpid) & group.bit() != 0 {
                self.events.raise_at_host(now, Event { rpid, ..event });
            }
        }
    }
}

/// Every PID that can be a requester's, in order.
fn pids() -> impl Iterator<Item = Pid> {
    (0..0xFFF).map(Pid::from_low_bits)
}
