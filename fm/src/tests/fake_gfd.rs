//! A GFD in memory: groups with extents, requesters with decoders and rights.
//!
//! [`GfdState::carry_out`] carries a request out and answers it.
//!
//! Units: bytes; blocks of 256 MiB.
//! Source: docs/spec/wire-formats.md §4.7.

use std::collections::BTreeMap;

use weft_parsers::cci::dcd::{AddPolicy, Extent, ExtentList, ReleasePolicy};
use weft_parsers::cci::gfd::{self, DcRegion, DcRegions, DcTotals, DmpEntry, GfdIdentity};
use weft_parsers::cci::gfd_access::{self, GdtEntry};
use weft_parsers::cci::{List, Request, Response, ReturnCode};
use weft_parsers::fabric::{Dpa, Pid};

use super::fake::Reply;

pub const BLOCK: u64 = 256 << 20;

#[derive(Clone, Debug, Default)]
pub struct GfdState {
    /// Capacity in blocks.
    pub blocks: u64,
    /// Extents by group.
    pub extents: BTreeMap<u16, Vec<Extent>>,
    pub sat: BTreeMap<Pid, u32>,
    pub gdt: BTreeMap<(Pid, u8), GdtEntry>,
    /// Whether it refuses set commands.
    pub stubborn: bool,
    /// Whether it refuses decoders, but accepts capacity.
    pub no_decoders: bool,
    /// Number of releases that asked for no wiping.
    pub left: u32,
}

impl GfdState {
    pub fn new(blocks: u64) -> Self {
        Self { blocks, ..Self::default() }
    }

    fn free(&self) -> Vec<u64> {
        let taken = |block: &u64| {
            let at = block * BLOCK;
            self.extents.values().flatten().any(|e| e.start.0 <= at && at < e.start.0 + e.len)
        };
        (0..self.blocks).filter(|block| !taken(block)).collect()
    }

    fn list(&self, owner: u16) -> Reply {
        let empty = Vec::new();
        let extents = self.extents.get(&owner).unwrap_or(&empty);
        let total = u32::try_from(extents.len()).unwrap();
        let list = ExtentList { owner, start: 0, total, generation: 0, extents: List::of(extents) };
        let mut out = vec![0; 4_096];
        let len = Response::GetGfdExtents(list).emit(&mut out).ok_or(ReturnCode::InternalError)?;
        out.truncate(len);
        Ok(out)
    }

    #[expect(clippy::too_many_lines, reason = "one arm a command")]
    pub fn carry_out(&mut self, request: &Request<'_>) -> Reply {
        let invalid = ReturnCode::InvalidInput;
        let reply = |response: &Response<'_>| -> Reply {
            let mut out = vec![0; 40_000];
            let len = response.emit(&mut out).ok_or(ReturnCode::InternalError)?;
            out.truncate(len);
            Ok(out)
        };
        match request {
            Request::IdentifyGfd => reply(&Response::IdentifyGfd(GfdIdentity {
                partitions: 1,
                regions: 1,
                groups: 31,
                add_policies: 3,
                qos: 0,
                release_policies: 3,
                sanitize: 1,
                capacity: self.blocks,
                region_blocks: [BLOCK; 8],
                partition_blocks: [BLOCK; 4],
                volatile_only: self.blocks,
                persistent_only: 0,
            })),
            Request::GetDmps(range) => {
                let one = DmpEntry {
                    base: Dpa(0),
                    decode_len: self.blocks * BLOCK,
                    len: self.blocks * BLOCK,
                    block: BLOCK,
                    flags: DmpEntry::DC_MANAGED,
                    index: 0,
                    sanitize: false,
                };
                let entries = if range.start == 0 { vec![one] } else { Vec::new() };
                reply(&Response::GetDmps(gfd::Dmps { available: 1, entries: List::of(&entries) }))
            }
            Request::GetDcRegions(range) => {
                let (len, block) = (self.blocks * BLOCK, BLOCK);
                let (base, decode_len) = (Dpa(0), self.blocks);
                let flags = 0;
                let one = DcRegion { base, decode_len, len, block, flags, sanitize: false };
                let regions = if range.start == 0 { vec![one] } else { Vec::new() };
                let (extents, tags) = (64, 64);
                let totals = DcTotals { extents, extents_free: extents, tags, tags_free: tags };
                let (available, regions) = (1, List::of(&regions));
                reply(&Response::GetDcRegions(DcRegions { available, regions, totals }))
            }
            Request::GetGfdExtents(get) => self.list(get.owner),
            _ if self.stubborn
                && matches!(
                    request,
                    Request::DcAdd(_) | Request::SetSat(_) | Request::SetGdt(_)
                ) =>
            {
                Err(ReturnCode::ResourcesExhausted)
            }
            Request::SetGdt(_) if self.no_decoders => Err(ReturnCode::ResourcesExhausted),
            Request::DcAdd(add) => {
                let wanted = usize::try_from(add.len / BLOCK).unwrap();
                let free = self.free();
                if wanted == 0 || add.len % BLOCK != 0 || add.group >= 31 {
                    return Err(invalid);
                }
                let run = free.windows(wanted).find(|w| w[wanted - 1] - w[0] == wanted as u64 - 1);
                let run = run.ok_or(ReturnCode::ResourcesExhausted)?;
                if add.policy != AddPolicy::Contiguous && add.policy != AddPolicy::Free {
                    return Err(invalid);
                }
                let (start, len) = (Dpa(run[0] * BLOCK), add.len);
                let extent = Extent { start, len, tag: add.tag, shared_seq: 0 };
                self.extents.entry(add.group).or_default().push(extent);
                self.list(add.group)
            }
            Request::DcRelease(release) => {
                if release.flags.policy != ReleasePolicy::Tag {
                    return Err(invalid);
                }
                let list = self.extents.get_mut(&release.group).ok_or(invalid)?;
                let had = list.len();
                self.left += u32::from(!release.flags.sanitize);
                list.retain(|extent| extent.tag != release.tag);
                if list.len() == had { Err(invalid) } else { self.list(release.group) }
            }
            Request::GetSat(range) => {
                let pids = (range.start.bits()..).take(usize::from(range.count));
                let of = |pid| self.sat.get(&Pid::from_low_bits(pid)).copied().unwrap_or(0);
                let vectors: Vec<u32> = pids.map(of).collect();
                let (start, vectors) = (range.start, List::of(&vectors));
                reply(&Response::GetSat(gfd_access::SatEntries { start, vectors }))
            }
            Request::SetSat(set) => {
                for update in set.updates.iter() {
                    self.sat.insert(update.rpid, update.vector);
                }
                Ok(Vec::new())
            }
            Request::GetGdt(range) => {
                let indices = range.start..8.min(range.start.saturating_add(range.count));
                let of = |index| {
                    let none = GdtEntry { index, decoder: None };
                    self.gdt.get(&(range.rpid, index)).copied().unwrap_or(none)
                };
                let entries: Vec<_> = indices.map(of).collect();
                let (rpid, start) = (range.rpid, range.start);
                let gdt = gfd_access::Gdt { rpid, start, total: 8, entries: List::of(&entries) };
                reply(&Response::GetGdt(gdt))
            }
            Request::SetGdt(set) => {
                if usize::from(set.start) + set.entries.len() > 8 {
                    return Err(invalid);
                }
                for entry in set.entries.iter() {
                    self.gdt.insert((set.rpid, entry.index), entry);
                }
                Ok(Vec::new())
            }
            _ => Err(ReturnCode::Unsupported),
        }
    }
}
