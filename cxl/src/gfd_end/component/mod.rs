//! The device as a CCI component: commands for its tables and its capacity, besides those that all components have.
//!
//! [`Device`] is [`Gfd`] and [`Common`]; each request of 49xxh, decoded by the parsers, leads to one method of [`Gfd`].
//! On the wire, decode lengths of regions and capacities of 4900h are in units of 256 MiB.
//!
//! Decided here, where the page says nothing: tables of fixed size (regions, partitions, SAT, limits, decoders) refuse
//! a start behind their end, lists one beyond it; a decoder's index is its place. Lists that can be requested in parts
//! are cut to the response limit, so that no command that has changed something fails because of its answer.
//!
//! Source: docs/spec/wire-formats.md §4.4, §4.7; docs/spec/cxl-fabric.md "Tables of an edge and who may write them".

mod cdat;

use weft_dataplane::time::Instant;
use weft_parsers::cci::component::{Cdat, ReadCdat};
use weft_parsers::cci::dcd::{self, GetExtents};
use weft_parsers::cci::generic::Identity;
use weft_parsers::cci::gfd::{
    DcAdd, DcRegion, DcRegions, DcRelease, DmpEntry, Dmps, GetTags, GfdIdentity, GfdRange,
    GfdStatus, SetDcRegion, SetDmps, TagEntry, Tags,
};
use weft_parsers::cci::gfd_access::{
    Gdt, GdtDecoder, GdtEntry, GdtRange, LimitRange, Limits, QosControl, SatEntries, SatRange,
    SetGdt, SetSat,
};
use weft_parsers::cci::wire::Wire;
use weft_parsers::cci::{List, Request, Response, ReturnCode, header};
use weft_parsers::fabric::{Dpa, Pid};

use crate::cci::{Command, Common, Component, Done, Outcome, Reply, Session, who};
use crate::gfd::capacity::Extent;
use crate::gfd::commands::Page;
use crate::gfd::decode::DECODERS;
use crate::gfd::dmp::{Dmp, Media, Region, UNIT};
use crate::gfd::extent_lists::{
    choice, code, extent_list, from_wire, index, part, region_to_wire, to_wire, totals_to_wire,
};
use crate::gfd::qos::Control;
use crate::gfd::{self, Decoder, Gfd};

/// Senders that may command the memory: the primary FM, or a host through its GAE.
const WHO: u8 = who::PRIMARY | who::PROXY;
/// Bytes in front of the list of [`ExtentList`]; `TAGS_HEAD` of [`Tags`], `TABLE_HEAD` of fixed tables at most.
const EXTENTS_HEAD: usize = 24;
const TAGS_HEAD: usize = 12;
const TABLE_HEAD: usize = 8;

/// Component type of a GFD in Identify (0001h).
const COMPONENT: u8 = 4;

/// A G-FAM device as a CCI component.
#[derive(Debug)]
pub struct Device {
    pub gfd: Gfd,
    common: Common,
    owners_changed: bool,
}

impl Device {
    /// A component around `gfd`, which keeps its PID; no manager owns it.
    #[must_use]
    pub fn new(gfd: Gfd, serial: u64) -> Self {
        let identity = Identity {
            vendor: 0,
            device: 0,
            subsystem_vendor: 0,
            subsystem: 0,
            serial,
            message_max_log2: 0, // all components': set by `Common`
            component: COMPONENT,
        };
        let mut common = Common::new(identity);
        common.ownership.set_pid(gfd.pid());
        Self { gfd, common, owners_changed: false }
    }

    /// Sets the PID without a fabric manager.
    pub const fn set_pid(&mut self, pid: Pid) {
        self.gfd.set_pid(pid);
        self.common.ownership.set_pid(pid);
    }

    /// State that commands have set, and the owners.
    #[must_use]
    pub fn settings(&self) -> (gfd::device::Settings, Common) {
        (self.gfd.settings(), self.common.clone())
    }

    /// Conventional reset: restores `settings`; memory keeps its bytes.
    pub fn reset(&mut self, settings: &(gfd::device::Settings, Common)) {
        self.gfd.reset(&settings.0);
        self.common = settings.1.clone();
    }

    /// Whether PID or owners have changed since the last call.
    pub(super) const fn take_change(&mut self) -> bool {
        core::mem::replace(&mut self.owners_changed, false)
    }

    /// Number of items of `len` bytes that fit into a response behind `head` bytes.
    fn room(&self, head: usize, len: usize) -> usize {
        // The requester's limit (Set Response Message Limit) and this component's own buffer.
        let most = self.common.response_limit().min(header::LEN + crate::cci::reply::PAYLOAD_MAX);
        most.saturating_sub(header::LEN + head) / len
    }

    fn regions(&self, range: GfdRange, reply: &mut Reply) -> Done {
        let (set, totals) = self.gfd.regions(0, usize::MAX).map_err(code)?;
        let available = self.gfd.identify().regions;
        // A table of fixed size: regions that are not set are entries of length 0.
        let entry = |id: u8| {
            let region = set.list.iter().find(|region| region.id == id);
            region.map_or(EMPTY_REGION, region_to_wire)
        };
        let regions: Vec<DcRegion> = fixed(available, range)?.map(entry).collect();
        let totals = totals_to_wire(&totals);
        reply.send(&Response::GetDcRegions(DcRegions {
            available,
            regions: List::of(&regions),
            totals,
        }))
    }

    fn dmps(&self, range: GfdRange, reply: &mut Reply) -> Done {
        let set = self.gfd.dmps(0, usize::MAX).map_err(code)?;
        let available = self.gfd.identify().dmps;
        let entry = |index: u8| {
            let dmp = set.list.iter().find(|dmp| dmp.index == index);
            dmp.map_or(DmpEntry { index, ..EMPTY_DMP }, dmp_entry)
        };
        let entries: Vec<DmpEntry> = fixed(available, range)?.map(entry).collect();
        reply.send(&Response::GetDmps(Dmps { available, entries: List::of(&entries) }))
    }

    fn set_dmps(&mut self, set: &SetDmps<'_>) -> Done {
        let places = u16::from(set.start)..;
        // An entry names its index as well: one in the wrong place could be meant for either partition.
        if set.entries.iter().zip(places).any(|(entry, place)| u16::from(entry.index) != place) {
            return Err(ReturnCode::InvalidInput);
        }
        let dmps: Vec<Dmp> = set.entries.iter().map(|entry| dmp(&entry)).collect();
        done(self.gfd.set_dmps(&dmps))
    }

    fn extents(&self, get: &GetExtents, reply: &mut Reply) -> Done {
        let count = self.room(EXTENTS_HEAD, dcd::Extent::LEN).min(index(get.count));
        let page = self.gfd.extents(get.owner, index(get.start), count).map_err(code)?;
        send_extents(get.owner, &page, reply)
    }

    fn add(&mut self, now: Instant, add: &DcAdd<'_>, reply: &mut Reply) -> Done {
        let count = self.room(EXTENTS_HEAD, dcd::Extent::LEN).min(index(add.response_max));
        let extents = from_wire(add.extents);
        let choice = choice(add.policy, add.region, add.len, &extents).map_err(code)?;
        // `count` is cut to the response before anything changes: an answer that does not fit must not fail a command
        // that was carried out.
        let page = self.gfd.add_capacity(now, add.group, add.tag, choice, count).map_err(code)?;
        send_extents(add.group, &page, reply)
    }

    fn release(&mut self, now: Instant, release: &DcRelease<'_>, reply: &mut Reply) -> Done {
        let count = self.room(EXTENTS_HEAD, dcd::Extent::LEN).min(index(release.response_max));
        let extents = from_wire(release.extents);
        let flags = release.flags;
        let part = part(flags.policy, release.tag, release.len, &extents).map_err(code)?;
        let page = self.gfd.release_capacity(now, release.group, part, flags.sanitize, count);
        send_extents(release.group, &page.map_err(code)?, reply)
    }

    fn tags(&self, get: GetTags, reply: &mut Reply) -> Done {
        let count = self.room(TAGS_HEAD, TagEntry::LEN).min(index(get.max));
        let page = self.gfd.tags(index(get.start), count).map_err(code)?;
        let entry = |&(tag, fm_reference): &(_, _)| TagEntry { tag, fm_reference };
        let tags: Vec<TagEntry> = page.list.iter().map(entry).collect();
        reply.send(&Response::DcListTags(Tags {
            generation: page.generation,
            total: u32::try_from(page.total).unwrap_or(u32::MAX),
            tags: List::of(&tags),
        }))
    }

    fn sat(&self, range: SatRange, reply: &mut Reply) -> Done {
        let count = self.room(TABLE_HEAD, u32::LEN).min(usize::from(range.count));
        let page = self.gfd.sat(range.start.index(), count).map_err(code)?;
        // A fixed table refuses a start at its end as well (docs/fabric-rules.md "What the standards leave open").
        if range.start.index() >= page.total {
            return Err(ReturnCode::InvalidInput);
        }
        let vectors = List::of(&page.list);
        reply.send(&Response::GetSat(SatEntries { start: range.start, vectors }))
    }

    fn set_sat(&mut self, set: &SetSat<'_>) -> Done {
        let entries: Vec<(Pid, u32)> =
            set.updates.iter().map(|update| (update.rpid, update.vector)).collect();
        done(self.gfd.set_sat(&entries))
    }

    fn set_qos(&mut self, set: QosControl, reply: &mut Reply) -> Done {
        let control = Control {
            flags: set.control,
            moderate_percent: set.moderate_percent,
            severe_percent: set.severe_percent,
            interval: set.interval,
            req_cmp_basis: set.compare_basis,
            completion_interval: set.completion_interval,
        };
        self.gfd.set_qos_control(control).map_err(code)?;
        reply.send(&Response::SetQosControl(self.qos()))
    }

    const fn qos(&self) -> QosControl {
        let control = self.gfd.qos_control();
        QosControl {
            control: control.flags,
            moderate_percent: control.moderate_percent,
            severe_percent: control.severe_percent,
            interval: control.interval,
            compare_basis: control.req_cmp_basis,
            completion_interval: control.completion_interval,
        }
    }

    fn limits(&self, range: LimitRange, reply: &mut Reply) -> Done {
        let count = self.room(TABLE_HEAD, 1).min(usize::from(range.count));
        let page = self.gfd.bandwidth_limits(range.start.index(), count).map_err(code)?;
        if range.start.index() >= page.total {
            return Err(ReturnCode::InvalidInput);
        }
        let fractions = List::of(&page.list);
        reply.send(&Response::GetQosLimit(Limits { start: range.start, fractions }))
    }

    fn set_limits(&mut self, set: &Limits<'_>, reply: &mut Reply) -> Done {
        if set.fractions.len() > self.room(TABLE_HEAD, 1) {
            return Err(ReturnCode::ResourcesExhausted); // the answer repeats the list
        }
        let fractions: Vec<u8> = set.fractions.iter().collect();
        self.gfd.set_bandwidth_limits(set.start.index(), &fractions).map_err(code)?;
        reply.send(&Response::SetQosLimit(*set))
    }

    fn gdt(&self, range: GdtRange, reply: &mut Reply) -> Done {
        let (start, count) = (usize::from(range.start), usize::from(range.count));
        let page = self.gfd.decoders(range.rpid, start, count).map_err(code)?;
        if start >= page.total {
            return Err(ReturnCode::InvalidInput);
        }
        let entries = (range.start..).zip(&page.list);
        let entries: Vec<GdtEntry> =
            entries.map(|(index, decoder)| gdt_entry(index, decoder.as_ref())).collect();
        reply.send(&Response::GetGdt(Gdt {
            rpid: range.rpid,
            start: range.start,
            total: u8::try_from(page.total).unwrap_or(u8::MAX),
            entries: List::of(&entries),
        }))
    }

    fn set_gdt(&mut self, set: &SetGdt<'_>) -> Done {
        let places = usize::from(set.start)..;
        // As in `set_dmps`: entries also name their index.
        let is_out_of_place = |(place, entry): (usize, GdtEntry)| usize::from(entry.index) != place;
        if usize::from(set.start) >= DECODERS || places.zip(set.entries.iter()).any(is_out_of_place)
        {
            return Err(ReturnCode::InvalidInput);
        }
        let decoders: Vec<Option<Decoder>> =
            set.entries.iter().map(|entry| entry.decoder.as_ref().map(decoder)).collect();
        done(self.gfd.set_decoders(set.rpid, usize::from(set.start), &decoders))
    }

    fn read_cdat(&self, read: &ReadCdat, reply: &mut Reply) -> Done {
        // A GFD knows its own CDAT alone; a GAE asks each component for its own.
        let known = read.target == self.gfd.pid();
        let start = usize::try_from(read.start).map_err(|_| ReturnCode::InvalidInput)?;
        let cdat = cdat::of_partitions(self.gfd.capacity().dmps().iter().flatten());
        let rest = cdat.get(start..).filter(|_| known).ok_or(ReturnCode::InvalidInput)?;
        let len = usize::try_from(read.len).unwrap_or(usize::MAX).min(rest.len());
        let len = len.min(self.room(2 * TABLE_HEAD, 1));
        let data = List::of(rest.get(..len).unwrap_or_default());
        reply.send(&Response::ReadCdat(Cdat { total: cdat.len() as u64, data }))
    }

    fn identify(&self) -> GfdIdentity {
        let id = self.gfd.identify();
        GfdIdentity {
            partitions: id.dmps,
            regions: id.regions,
            groups: id.groups,
            add_policies: u16::try_from(id.add_policies).unwrap_or(u16::MAX),
            qos: id.qos,
            release_policies: id.release_policies,
            sanitize: id.sanitize,
            capacity: id.capacity,
            region_blocks: id.region_blocks,
            partition_blocks: id.dmp_blocks,
            volatile_only: id.volatile,
            persistent_only: id.persistent,
        }
    }

    const fn status(&self) -> GfdStatus {
        let link = self.gfd.status();
        GfdStatus {
            flags: link.flags,
            link_mode: link.mode,
            width_max: link.width_max,
            width: link.width,
            speeds: link.speeds,
            speed_max: link.speed_max,
            speed: link.speed,
            ltssm: link.ltssm,
            first_lane: link.first_lane,
            link_state: link.link_flags,
        }
    }

    #[rustfmt::skip] // columns: who may send it, what it does, opcode, request, what carries it out
    crate::command_table! {
        /// Commands of a GFD, besides those of every component.
        const COMMANDS;
        /// Carries out `request`; Unsupported where there is no such command.
        fn carry_out(&mut self, request, now: Instant, reply: &mut Reply) asked by u8;
        WHO get READ_CDAT ReadCdat(read) => self.read_cdat(&read, reply);
        WHO get IDENTIFY_GFD IdentifyGfd => reply.send(&Response::IdentifyGfd(self.identify()));
        WHO get GET_GFD_STATUS GetGfdStatus => reply.send(&Response::GetGfdStatus(self.status()));
        WHO get GET_DC_REGIONS GetDcRegions(range) => self.regions(range, reply);
        WHO set SET_DC_REGION SetDcRegion(set) => done(self.gfd.set_region(region(&set)?));
        WHO get GET_GFD_EXTENTS GetGfdExtents(get) => self.extents(&get, reply);
        WHO get GET_DMPS GetDmps(range) => self.dmps(range, reply);
        WHO set SET_DMPS SetDmps(set) => self.set_dmps(&set);
        WHO set DC_ADD DcAdd(add) => self.add(now, &add, reply);
        WHO set_with_data DC_RELEASE DcRelease(release) => self.release(now, &release, reply);
        WHO set DC_ADD_REFERENCE DcAddReference(tag) => done(self.gfd.add_reference(tag));
        WHO set_with_data DC_REMOVE_REFERENCE DcRemoveReference(tag) => done(self.gfd.remove_reference(tag));
        WHO get DC_LIST_TAGS DcListTags(get) => self.tags(get, reply);
        WHO get GET_SAT GetSat(range) => self.sat(range, reply);
        WHO set SET_SAT SetSat(set) => self.set_sat(&set);
        WHO get GET_QOS_CONTROL GetQosControl => reply.send(&Response::GetQosControl(self.qos()));
        WHO policy SET_QOS_CONTROL SetQosControl(set) => self.set_qos(set, reply);
        WHO get GET_QOS_STATUS GetQosStatus => reply.send(&Response::GetQosStatus(self.gfd.qos_status()));
        WHO get GET_QOS_LIMIT GetQosLimit(range) => self.limits(range, reply);
        WHO policy SET_QOS_LIMIT SetQosLimit(set) => self.set_limits(&set, reply);
        WHO get GET_GDT GetGdt(range) => self.gdt(range, reply);
        WHO set SET_GDT SetGdt(set) => self.set_gdt(&set);
    }
}

impl Component for Device {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn commands(&self) -> &'static [Command] {
        Self::COMMANDS
    }

    fn execute(
        &mut self,
        now: Instant,
        _session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done {
        self.carry_out(request, now, reply, who::ALL)
    }

    fn owned(&mut self) {
        self.gfd.set_pid(self.common.ownership.pid());
        // The next poll announces the new PID and owners to the partner.
        self.owners_changed = true;
    }
}

const EMPTY_REGION: DcRegion =
    DcRegion { base: Dpa(0), decode_len: 0, len: 0, block: 0, flags: 0, sanitize: false };
const EMPTY_DMP: DmpEntry = DmpEntry {
    base: Dpa(0),
    decode_len: 0,
    len: 0,
    block: 0,
    flags: DmpEntry::DC_MANAGED,
    index: 0,
    sanitize: false,
};

fn done(result: Result<(), gfd::ReturnCode>) -> Done {
    result.map_or_else(|error| Err(code(error)), |()| Ok(Outcome::Done))
}

/// Indices requested of a table of `available` entries.
fn fixed(available: u8, range: GfdRange) -> Result<core::ops::Range<u8>, ReturnCode> {
    if range.start >= available {
        return Err(ReturnCode::InvalidInput);
    }
    Ok(range.start..available.min(range.start.saturating_add(range.count)))
}

fn region(set: &SetDcRegion) -> Result<Region, ReturnCode> {
    let decode_len = set.decode_len.checked_mul(UNIT).ok_or(ReturnCode::InvalidInput)?;
    Ok(Region {
        id: set.region,
        block: set.block,
        sanitize: set.sanitize,
        base: set.base,
        decode_len,
        len: set.len,
    })
}

fn dmp_entry(dmp: &Dmp) -> DmpEntry {
    let Media { non_volatile, sharable, coherent, read_only, sanitize } = dmp.media;
    let flags = [
        (non_volatile, DmpEntry::NON_VOLATILE),
        (sharable, DmpEntry::SHARABLE),
        (coherent, DmpEntry::COHERENT),
        (true, DmpEntry::DC_MANAGED),
        (read_only, DmpEntry::READ_ONLY),
    ];
    DmpEntry {
        base: dmp.base,
        decode_len: dmp.decode_len,
        len: dmp.len,
        block: dmp.block,
        flags: flags.iter().filter(|(set, _)| *set).map(|(_, bit)| bit).sum(),
        index: dmp.index,
        sanitize,
    }
}

fn dmp(entry: &DmpEntry) -> Dmp {
    let has = |bit| entry.flags & bit != 0;
    Dmp {
        index: entry.index,
        base: entry.base,
        decode_len: entry.decode_len,
        len: entry.len,
        block: entry.block,
        media: Media {
            non_volatile: has(DmpEntry::NON_VOLATILE),
            sharable: has(DmpEntry::SHARABLE),
            coherent: has(DmpEntry::COHERENT),
            read_only: has(DmpEntry::READ_ONLY),
            sanitize: entry.sanitize,
        },
    }
}

fn send_extents(owner: u16, page: &Page<Extent>, reply: &mut Reply) -> Done {
    let extents: Vec<dcd::Extent> = page.list.iter().map(to_wire).collect();
    // 4904h, 4907h and 4908h have the same response.
    reply.send(&Response::GetGfdExtents(extent_list(owner, page, &extents)))
}

const fn decoder(decoder: &GdtDecoder) -> Decoder {
    let GdtDecoder { coherent, hpa, dpa, dpa_len, interleave, way } = *decoder;
    Decoder { coherent, hpa_base: hpa, dpa_base: dpa, dpa_len, interleave, way }
}

fn gdt_entry(index: u8, decoder: Option<&Decoder>) -> GdtEntry {
    let decoder = decoder.map(|decoder| GdtDecoder {
        coherent: decoder.coherent,
        hpa: decoder.hpa_base,
        dpa: decoder.dpa_base,
        dpa_len: decoder.dpa_len,
        interleave: decoder.interleave,
        way: decoder.way,
    });
    GdtEntry { index, decoder }
}

#[cfg(test)]
mod tests;
