//! Memory of GFDs for hosts: capacity, decoders, rights, and access at the hosts' edges.
//!
//! [`Memory::share`] turns a [`Request`] into a [`Share`]; [`Memory::revoke`] and [`Memory::release`] undo that;
//! [`Memory::grant`] adds a host, [`Memory::repair`] restores the part of a GFD that has lost it.
//!
//! Each change is all or nothing: the steps made are kept with their undo steps, and undone from the last when one
//! fails. Their order never gives a host memory that it may not touch: capacity, decoders (GDT), access at the edge
//! (GMV), rights (SAT) last. Revoking goes the other way: the right at the GFD goes first, so that the next request is
//! refused. The segment table (FAST) belongs to the host and is not touched.
//!
//! A share that would take addresses in use by a requester, or a segment whose entry leads elsewhere, is refused before
//! anything is sent ([`map`]).
//!
//! Source: CXL 3.1 sections 7.7.2.3 to 7.7.2.5; docs/spec/wire-formats.md §4.6, §4.7, §5.1, §5.2.

pub mod map;
mod notify;
mod steps;
pub mod withdraw;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use weft_parsers::cci::Uuid;
use weft_parsers::fabric::{Hpa, Interleave, Pid};

use self::map::{Conflict, Kind, LocalRange, Range, fits, misfit, off_blocks};
pub(crate) use self::steps::group_bit;
use self::steps::{NOTIFY, Place, Step, UndoLog};
use super::edge::AccessBit;
use super::media::{self, Media};
use crate::cci::{CallError, CciSession};
use crate::model::graph::SwitchId;
use crate::model::inventory::{Inventory, TargetKind, pid_number, uuid_text};
use crate::model::text::name_of;

/// Groups that rights can name (490Dh): bit 31 of the vector is Notify.
pub const GROUPS_MAX: u16 = 31;
/// Number of decoders that a requester has at a GFD.
pub const DECODERS: u8 = 8;
/// Unit of a GFD's capacity in bytes (4900h).
const CAPACITY_UNIT: u64 = 256 << 20;

/// A requester of memory: a host's edge port, or that of a device bound to a virtual switch there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Host {
    pub switch: SwitchId,
    /// Virtual switch there, whose vectors limit its reach.
    pub vcs: u8,
    #[serde(with = "pid_number")]
    pub pid: Pid,
}

/// A request for memory of GFDs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Tag of the extents, different for each share.
    pub tag: Uuid,
    /// Requesters that get it.
    pub hosts: Vec<Host>,
    /// GFDs in the order of the ways: 1, 2, 4, ... 256 of them.
    pub gfds: Vec<Pid>,
    /// Bytes in all.
    pub len: u64,
    /// Bytes of an interleave granule, 256 to 16,384; ignored with one way.
    pub granularity: u32,
    /// Address at which all hosts see it.
    pub hpa: Hpa,
    /// Kind of memory; `None` for the first partitions that have room.
    pub media: Option<Media>,
    /// Whether its GFDs notify hosts of refused accesses, by GAM VDMs.
    pub notify: bool,
}

/// Memory of GFDs that some hosts have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Tag of its extents: its name.
    #[serde(with = "uuid_text")]
    pub tag: Uuid,
    /// Requesters that have it, sorted.
    pub hosts: Vec<Host>,
    /// Its parts in the GFDs, by way.
    pub parts: Vec<Part>,
    /// Bytes in all.
    pub len: u64,
    /// Address at which all hosts see it.
    pub hpa: u64,
    /// Bytes of an interleave granule; meaningless with one way, 0 if unknown.
    #[serde(default)]
    pub granularity: u32,
    /// Whether its GFDs notify hosts of refused accesses.
    #[serde(default)]
    pub notify: bool,
}

/// Part of a share in one GFD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    #[serde(with = "pid_number")]
    pub gfd: Pid,
    pub group: u16,
    /// Decoder number, the same for all hosts.
    pub decoder: u8,
    /// Start in the GFD.
    pub dpa: u64,
}

/// Why memory of GFDs is not given or taken back.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// Numbers of ways, sizes or addresses do not fit.
    #[error("{0}")]
    Misfit(String),
    /// A GFD or host is listed twice.
    #[error("PID {0} is listed twice")]
    Twice(Pid),
    /// The requester has something else at these addresses.
    #[error("for PID {pid}: {conflict}")]
    Taken {
        pid: Pid,
        /// The rule, and the range in the way.
        conflict: Conflict,
    },
    #[error("there is no GFD with PID {0}")]
    NoGfd(Pid),
    /// The PID is no requester at that virtual switch.
    #[error("PID {0} is neither the host edge of that virtual switch nor a downstream edge")]
    NoHost(Pid),
    /// The host has this memory already.
    #[error("host {0} has this memory already")]
    Has(Pid),
    /// The tag is in use, or unknown.
    #[error("no memory has this tag, or another one has it already")]
    Tag,
    /// A GFD has no group or decoder left.
    #[error("GFD {gfd} has no {what} left")]
    Exhausted {
        gfd: Pid,
        /// The resource: a group or a decoder.
        what: &'static str,
    },
    /// A step failed; all before it were undone.
    #[error("{failed}; undone: {} steps", .undone.len())]
    Undone { failed: String, undone: Vec<String>, source: Box<CallError> },
    /// A step failed, and some before it could not be undone.
    #[error("{failed}; left: {}", .left.join("; "))]
    Left {
        failed: String,
        undone: Vec<String>,
        /// Steps that were not undone, and why.
        left: Vec<String>,
        source: Box<CallError>,
    },
}

/// Ranges of requesters beside memory of GFDs, which no share may take.
#[derive(Clone, Copy)]
pub struct OtherRanges<'a> {
    /// Ranges of a requester in memory of hosts and devices.
    pub more: &'a dyn Fn(Host) -> Vec<Range<Pid>>,
    /// Addresses that the host of a requester uses itself.
    pub own: &'a dyn Fn(Host) -> Vec<LocalRange>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The shares, sorted by tag.
    pub shares: Vec<Share>,
}

impl Memory {
    /// Gives memory to hosts, all of it or none.
    ///
    /// # Errors
    /// See [`MemoryError`].
    pub fn share(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        beside: OtherRanges<'_>,
        wanted: &Request,
    ) -> Result<&Share, MemoryError> {
        let interleave = self.check(inventory, beside, wanted)?;
        let ways = u64::try_from(wanted.gfds.len()).unwrap_or(u64::MAX);
        let each = wanted.len / ways;
        let media = wanted.media;
        let mut block = None;
        for &gfd in &wanted.gfds {
            // A GFD that does not tell its regions is asked for capacity all the same, and refuses it itself.
            let Ok(regions) = media::regions(fabric, gfd) else { continue };
            let smallest = steps::block(gfd, &regions, each, media).map_err(MemoryError::Misfit)?;
            block = block.max(Some(smallest));
        }
        // Refused with the sizes that would do, before the first GFD refuses in its own words.
        if let Some(why) = off_blocks(ways, block.unwrap_or(1), wanted.len) {
            return Err(MemoryError::Misfit(why));
        }
        // All found before the first step: a GFD that has none left must not end a share half made.
        let mut places = Vec::new();
        for &gfd in &wanted.gfds {
            let group = self.free_group(inventory, gfd)?;
            places.push((gfd, group, self.free_decoder(gfd, &wanted.hosts)?));
        }
        let mut done = UndoLog::default();
        let mut parts = Vec::new();
        for (way, (gfd, group, decoder)) in (0..=u8::MAX).zip(places) {
            let (tag, place) = (wanted.tag, Place::Free(media));
            let step = Step::Capacity { gfd, group, len: each, tag, place };
            let dpa = done.take(fabric, inventory, step)?;
            for host in &wanted.hosts {
                let step = Step::Decoder {
                    gfd,
                    rpid: host.pid,
                    index: decoder,
                    hpa: wanted.hpa,
                    dpa,
                    len: each,
                    interleave,
                    way,
                };
                done.take(fabric, inventory, step)?;
            }
            parts.push(Part { gfd, group, decoder, dpa });
        }
        // After all decoders: a request that passes the edge earlier would be an access error at the GFD.
        for host in &wanted.hosts {
            for part in parts.iter().filter(|part| !self.reaches(*host, part.gfd)) {
                done.take(fabric, inventory, Step::Edge { host: *host, gfd: part.gfd })?;
            }
        }
        // Rights last: only now may a request be carried out.
        for host in &wanted.hosts {
            for part in &parts {
                let step = Step::Right { gfd: part.gfd, rpid: host.pid, group: part.group };
                done.take(fabric, inventory, step)?;
            }
        }
        let Request { tag, mut hosts, len, hpa, notify, .. } = wanted.clone();
        let granularity = interleave.granularity();
        hosts.sort_unstable();
        let share = Share { tag, hosts, parts, len, hpa: hpa.0, granularity, notify };
        for &host in &share.hosts {
            self.notify(fabric, inventory, &mut done, &share, host)?;
        }
        self.shares.push(share);
        self.shares.sort_by_key(|share| share.tag);
        self.find(&tag).ok_or(MemoryError::Tag)
    }

    /// Gives an existing share to one more host.
    ///
    /// # Errors
    /// The host has it, or lacks room for it; a step failed: the steps before it are undone then, or the error says
    /// which are left.
    pub fn grant(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        beside: OtherRanges<'_>,
        tag: &Uuid,
        host: Host,
    ) -> Result<(), MemoryError> {
        let share = self.find(tag).ok_or(MemoryError::Tag)?.clone();
        if share.hosts.contains(&host) {
            return Err(MemoryError::Has(host.pid));
        }
        check_host(inventory, host)?;
        self.has_room(beside, host, &share.range())?;
        let interleave = interleave(share.parts.len(), share.granularity)?;
        let others = || self.shares.iter().filter(|other| other.hosts.contains(&host));
        // One decoder number for all hosts of a part: `Part` has only one, and `revoke` clears it for each.
        for part in &share.parts {
            let same = |other: &Part| (other.gfd, other.decoder) == (part.gfd, part.decoder);
            if others().any(|other| other.parts.iter().any(same)) {
                let what = "decoder of the number that the other hosts use";
                return Err(MemoryError::Exhausted { gfd: part.gfd, what });
            }
        }
        let mut done = UndoLog::default();
        for (way, part) in (0..=u8::MAX).zip(&share.parts) {
            let step = share.decoder(way, part, host, interleave);
            done.take(fabric, inventory, step)?;
        }
        for part in share.parts.iter().filter(|part| !self.reaches(host, part.gfd)) {
            done.take(fabric, inventory, Step::Edge { host, gfd: part.gfd })?;
        }
        for part in &share.parts {
            let step = Step::Right { gfd: part.gfd, rpid: host.pid, group: part.group };
            done.take(fabric, inventory, step)?;
        }
        self.notify(fabric, inventory, &mut done, &share, host)?;
        if let Some(share) = self.shares.iter_mut().find(|share| share.tag == *tag) {
            share.hosts.push(host);
            share.hosts.sort_unstable();
        }
        Ok(())
    }

    /// Restores the part of a share that a GFD has lost. The edges of hosts have kept their access.
    ///
    /// # Errors
    /// There is no such part, or a step failed: the steps before it are undone then, or the error says which are left.
    pub fn repair(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        tag: &Uuid,
        gfd: Pid,
    ) -> Result<(), MemoryError> {
        let share = self.find(tag).ok_or(MemoryError::Tag)?.clone();
        let interleave = interleave(share.parts.len(), share.granularity)?;
        let each = share.len / u64::from(interleave.ways());
        let ways = (0..=u8::MAX).zip(&share.parts);
        let (way, part) =
            ways.into_iter().find(|(_, part)| part.gfd == gfd).ok_or(MemoryError::NoGfd(gfd))?;
        let mut done = UndoLog::default();
        let (group, place) = (part.group, Place::Again(part.dpa));
        let step = Step::Capacity { gfd, group, len: each, tag: *tag, place };
        // The GFD may have given other capacity; the decoders must name the new place.
        let part = Part { dpa: done.take(fabric, inventory, step)?, ..*part };
        for host in &share.hosts {
            let step = share.decoder(way, &part, *host, interleave);
            done.take(fabric, inventory, step)?;
        }
        for host in &share.hosts {
            let step = Step::Right { gfd, rpid: host.pid, group: part.group };
            done.take(fabric, inventory, step)?;
            if share.notify {
                done.take(fabric, inventory, Step::Right { gfd, rpid: host.pid, group: NOTIFY })?;
            }
        }
        let own = self.shares.iter_mut().find(|share| share.tag == *tag);
        if let Some(place) = own.and_then(|share| share.parts.get_mut(usize::from(way))) {
            *place = part;
        }
        Ok(())
    }

    /// Revokes a share from one host; others keep it.
    ///
    /// # Errors
    /// The host does not have it, or a step failed: the steps before it are undone then, or the error says which are
    /// left.
    pub fn revoke(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        tag: &Uuid,
        host: Host,
    ) -> Result<(), MemoryError> {
        let place = self.shares.iter().position(|share| share.tag == *tag);
        let place = place.ok_or(MemoryError::Tag)?;
        let Some(mut share) = self.shares.get(place).cloned() else { return Err(MemoryError::Tag) };
        let had = share.hosts.len();
        share.hosts.retain(|one| *one != host);
        if share.hosts.len() == had {
            return Err(MemoryError::NoHost(host.pid));
        }
        let mut done = UndoLog::default();
        // The rights go first, so that the very next request is refused.
        for part in &share.parts {
            let step = Step::NoRight { gfd: part.gfd, rpid: host.pid, group: part.group };
            done.take(fabric, inventory, step)?;
        }
        // The shares as they will be decide whether another share still needs the edge or the notifications.
        let mut rest = self.clone();
        rest.shares.insert(place, share.clone());
        rest.shares.remove(place + 1);
        for part in &share.parts {
            if !rest.reaches(host, part.gfd) {
                done.take(fabric, inventory, Step::NoEdge { host, gfd: part.gfd })?;
            }
            let (gfd, rpid, index) = (part.gfd, host.pid, part.decoder);
            if share.notify && !rest.notifies(host, gfd) {
                done.take(fabric, inventory, Step::NoRight { gfd, rpid, group: NOTIFY })?;
            }
            done.take(fabric, inventory, Step::NoDecoder { gfd, rpid, index })?;
        }
        *self = rest;
        Ok(())
    }

    /// Revokes a share from all hosts, and releases its capacity.
    ///
    /// # Errors
    /// There is none, or a step failed. Hosts that it was revoked from stay without it, the share stays known, and
    /// releasing it again continues.
    pub fn release(
        &mut self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        tag: &Uuid,
    ) -> Result<Share, MemoryError> {
        let hosts = self.find(tag).ok_or(MemoryError::Tag)?.hosts.clone();
        for host in hosts {
            self.revoke(fabric, inventory, tag, host)?;
        }
        // Part by part, so that a share of which some GFDs have released their part is known by the rest.
        while let Some(part) = self.find(tag).and_then(|share| share.parts.last().copied()) {
            let (gfd, group) = (part.gfd, part.group);
            let step = Step::NoCapacity { gfd, group, tag: *tag, sanitize: true };
            // An undo log of its own: released capacity cannot be brought back, so there is nothing to undo.
            UndoLog::default().take(fabric, inventory, step)?;
            if let Some(share) = self.shares.iter_mut().find(|share| share.tag == *tag) {
                share.parts.pop();
            }
        }
        let place = self.shares.iter().position(|share| share.tag == *tag);
        Ok(self.shares.remove(place.ok_or(MemoryError::Tag)?))
    }

    /// All access bits that the shares need at hosts' edges.
    #[must_use]
    pub fn access_bits(&self) -> BTreeSet<AccessBit> {
        let mut bits = BTreeSet::new();
        for share in &self.shares {
            for host in &share.hosts {
                let gfds = share.parts.iter().map(|part| part.gfd);
                bits.extend(gfds.map(|gfd| AccessBit::Gmv(host.switch, host.vcs, gfd)));
            }
        }
        bits
    }

    /// All ranges of GFD memory of a requester.
    #[must_use]
    pub fn ranges(&self, host: Host) -> Vec<Range<Pid>> {
        let own = self.shares.iter().filter(|share| share.hosts.contains(&host));
        own.map(Share::range).collect()
    }

    fn has_room(
        &self,
        beside: OtherRanges<'_>,
        host: Host,
        new: &Range<Pid>,
    ) -> Result<(), MemoryError> {
        let mut others = self.ranges(host);
        others.extend((beside.more)(host));
        let fits = fits(new, &others, &(beside.own)(host));
        fits.map_err(|conflict| MemoryError::Taken { pid: host.pid, conflict })
    }

    #[must_use]
    pub fn find(&self, tag: &Uuid) -> Option<&Share> {
        self.shares.iter().find(|share| share.tag == *tag)
    }

    fn check(
        &self,
        inventory: &Inventory,
        beside: OtherRanges<'_>,
        wanted: &Request,
    ) -> Result<Interleave, MemoryError> {
        if self.find(&wanted.tag).is_some() {
            return Err(MemoryError::Tag);
        }
        if wanted.hosts.is_empty() {
            let text = "expected at least one host; `weft fm grant` gives it to others later";
            return Err(MemoryError::Misfit(text.to_owned()));
        }
        let count = wanted.gfds.len();
        if let Some(pid) = twice(wanted.gfds.iter().copied()) {
            return Err(MemoryError::Twice(pid));
        }
        if let Some(pid) = twice(wanted.hosts.iter().map(|host| host.pid)) {
            return Err(MemoryError::Twice(pid));
        }
        if let Some(why) = misfit(count, wanted.granularity, wanted.hpa.0, wanted.len) {
            return Err(MemoryError::Misfit(why));
        }
        let interleave = interleave(count, wanted.granularity)?;
        for &gfd in &wanted.gfds {
            let known = inventory.gfds.iter().find(|known| known.pid == gfd);
            let has = known.ok_or(MemoryError::NoGfd(gfd))?.capacity.saturating_mul(CAPACITY_UNIT);
            let each = wanted.len / u64::from(interleave.ways());
            if each > has {
                let ways = interleave.ways();
                let text = format!(
                    "GFD {gfd} has {has:#x} bytes in all: {:#x} over {ways} ways are {each:#x} of each",
                    wanted.len
                );
                return Err(MemoryError::Misfit(text));
            }
        }
        let range = wanted.range(interleave.granularity());
        for host in &wanted.hosts {
            check_host(inventory, *host)?;
            self.has_room(beside, *host, &range)?;
        }
        Ok(interleave)
    }

    /// Whether some share gives a host's virtual switch access to a GFD.
    fn reaches(&self, host: Host, gfd: Pid) -> bool {
        let has = |share: &Share| {
            share.parts.iter().any(|part| part.gfd == gfd)
                // GMV belongs to the virtual switch: shares of its other requesters count as well.
                && share.hosts.iter().any(|one| (one.switch, one.vcs) == (host.switch, host.vcs))
        };
        self.shares.iter().any(has)
    }

    fn free_group(&self, inventory: &Inventory, gfd: Pid) -> Result<u16, MemoryError> {
        let has = inventory.gfds.iter().find(|known| known.pid == gfd).map_or(0, |g| g.groups);
        let parts = || self.shares.iter().flat_map(|share| &share.parts);
        let free = |group: &u16| !parts().any(|part| part.gfd == gfd && part.group == *group);
        let group = (0..has.min(GROUPS_MAX)).find(free);
        group.ok_or(MemoryError::Exhausted { gfd, what: "group" })
    }

    fn free_decoder(&self, gfd: Pid, hosts: &[Host]) -> Result<u8, MemoryError> {
        let takes = |share: &&Share| share.hosts.iter().any(|host| hosts.contains(host));
        let parts = || self.shares.iter().filter(takes).flat_map(|share| &share.parts);
        let free = |index: &u8| !parts().any(|part| part.gfd == gfd && part.decoder == *index);
        (0..DECODERS).find(free).ok_or(MemoryError::Exhausted { gfd, what: "decoder" })
    }
}

impl Request {
    fn range(&self, granularity: u32) -> Range<Pid> {
        Range {
            name: format!("memory {:?}", name_of(&self.tag)),
            hpa: self.hpa.0,
            len: self.len,
            targets: self.gfds.clone(),
            granularity,
            kind: Kind::Memory,
        }
    }
}

impl Share {
    fn range(&self) -> Range<Pid> {
        Range {
            name: format!("memory {:?}", name_of(&self.tag)),
            hpa: self.hpa,
            len: self.len,
            targets: self.parts.iter().map(|part| part.gfd).collect(),
            granularity: self.granularity,
            kind: Kind::Memory,
        }
    }

    /// The step that sets the decoder of a part for a host.
    fn decoder(&self, way: u8, part: &Part, host: Host, interleave: Interleave) -> Step {
        Step::Decoder {
            gfd: part.gfd,
            rpid: host.pid,
            index: part.decoder,
            hpa: Hpa(self.hpa),
            dpa: part.dpa,
            len: self.len / u64::from(interleave.ways()),
            interleave,
            way,
        }
    }
}

/// Interleaving of `count` GFDs in granules of `granule` bytes, as codes of the wire.
fn interleave(count: usize, granule: u32) -> Result<Interleave, MemoryError> {
    // A count that is no power of two is refused by `misfit` before; zeros count the ways' log2.
    let ways = u8::try_from(count.trailing_zeros()).unwrap_or(u8::MAX);
    let granularity = match granule {
        _ if count == 1 => 0,
        granule if granule.is_power_of_two() && granule >= 256 => granule.trailing_zeros() - 8,
        granule => {
            let text = format!(
                "an interleave granule is a power of two from 256 bytes to 16 KiB, not {granule}"
            );
            return Err(MemoryError::Misfit(text));
        }
    };
    let granularity = u8::try_from(granularity).unwrap_or(u8::MAX);
    let interleave = Interleave::from_codes(ways, granularity);
    interleave
        .ok_or_else(|| MemoryError::Misfit(format!("{count} GFDs in granules of {granule} bytes")))
}

/// The first PID that appears twice.
fn twice(all: impl Iterator<Item = Pid>) -> Option<Pid> {
    let mut seen = BTreeSet::new();
    all.into_iter().find(|pid| !seen.insert(*pid))
}

fn check_host(inventory: &Inventory, host: Host) -> Result<(), MemoryError> {
    let is_it = |t: &crate::model::inventory::Target| {
        let own = t.kind == TargetKind::Host && t.vcs == host.vcs;
        t.pid == host.pid && (own || t.kind == TargetKind::Downstream)
    };
    if inventory.targets(host.switch).iter().any(is_it) {
        return Ok(());
    }
    Err(MemoryError::NoHost(host.pid))
}
