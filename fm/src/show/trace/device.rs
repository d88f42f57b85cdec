//! Trace at a GFD: decoders of the requester, partition, block, group and right.
//!
//! No command reads the MGT block by block. It is made of the extent lists of the groups, so these are read.
//!
//! Source: docs/spec/wire-formats.md §4.7 (4900h, 4904h, 4905h, 490Ch, 4913h), §5.2.

use weft_parsers::cci::Request;
use weft_parsers::cci::dcd::{ExtentList, GetExtents};
use weft_parsers::cci::gfd::{Dmps, GfdIdentity, GfdRange};
use weft_parsers::cci::gfd_access::{Gdt, GdtRange, SatEntries, SatRange};
use weft_parsers::fabric::Pid;

use super::{End, Stop, TraceWalk, refused};
use crate::cci::Way;
use crate::components::media::{Media, short};
use crate::components::memory::{DECODERS, GROUPS_MAX, group_bit};

/// Largest number of partitions in a GFD.
const DMPS: u8 = 4;
/// Extents read at once.
const EXTENTS: u32 = 64;
/// Extents of a group read in all.
const EXTENTS_MAX: u32 = 65_536;

impl TraceWalk<'_> {
    pub(super) fn device(&mut self, gfd: Pid) -> Result<End, Stop> {
        let dpa = self.decode(gfd)?;
        self.trace.dpa = Some(dpa);
        self.partition(gfd, dpa)?;
        let groups = self.groups(gfd, dpa)?;
        self.right(gfd, &groups)
    }

    fn decode(&mut self, gfd: Pid) -> Result<u64, Stop> {
        let (rpid, hpa) = (self.host.pid, self.hpa.0);
        let range = GdtRange { rpid, count: DECODERS, start: 0 };
        let answer = self.asked.fabric.call(Way::Pid(gfd), &Request::GetGdt(range))?;
        let mut hits = Vec::new();
        for entry in answer.read::<Gdt<'_>>()?.entries.iter() {
            let Some(decoder) = entry.decoder else { continue };
            let Some(offset) = hpa.checked_sub(decoder.hpa.0) else { continue };
            let inside = decoder.interleave.compact(offset);
            if inside >= decoder.dpa_len {
                // Behind the decoder's length: not a hit.
                continue;
            }
            let dpa = decoder.dpa.0.wrapping_add(inside);
            let text = format!(
                "decoder {} of {rpid}: from {:#x} on, way {} of {}, offset {inside:#x}, DPA {dpa:#x}",
                entry.index,
                decoder.hpa.0,
                decoder.way,
                decoder.interleave.ways()
            );
            hits.push((dpa, text));
        }
        for (_, text) in &hits {
            self.say(gfd, "GDT", text.clone());
        }
        // Exactly one decoder must hit (docs/spec/wire-formats.md §5.2).
        match hits[..] {
            [(dpa, _)] => Ok(dpa),
            [] => {
                self.say(gfd, "GDT", format!("no decoder of {rpid} matches the address"));
                refused("the GFD refuses: no decoder")
            }
            _ => refused("the GFD refuses: several decoders"),
        }
    }

    fn partition(&mut self, gfd: Pid, dpa: u64) -> Result<(), Stop> {
        let request = Request::GetDmps(GfdRange { count: DMPS, start: 0 });
        let answer = self.asked.fabric.call(Way::Pid(gfd), &request)?;
        let has = |dmp: &weft_parsers::cci::gfd::DmpEntry| dpa.wrapping_sub(dmp.base.0) < dmp.len;
        let Some(dmp) = answer.read::<Dmps<'_>>()?.entries.iter().find(has) else {
            self.say(gfd, "DMP", "no partition has the DPA");
            return refused("the GFD refuses: no partition has the DPA");
        };
        let block = dpa.wrapping_sub(dmp.base.0).checked_div(dmp.block).unwrap_or(0);
        let (index, media) = (dmp.index, Media::of(dmp.flags));
        let text = format!("{index} ({media}): block {block} of {}", short(dmp.block));
        self.say(gfd, "DMP", text);
        Ok(())
    }

    /// Groups whose extents contain the DPA.
    fn groups(&mut self, gfd: Pid, dpa: u64) -> Result<Vec<u16>, Stop> {
        let way = Way::Pid(gfd);
        let answer = self.asked.fabric.call(way, &Request::IdentifyGfd)?;
        let count = answer.read::<GfdIdentity>()?.groups;
        let mut groups = Vec::new();
        for group in 0..count {
            let mut start = 0;
            while start < EXTENTS_MAX {
                let range = GetExtents { owner: group, count: EXTENTS, start };
                let answer = self.asked.fabric.call(way, &Request::GetGfdExtents(range))?;
                let list = answer.read::<ExtentList<'_>>()?;
                if list.extents.iter().any(|e| dpa.wrapping_sub(e.start.0) < e.len) {
                    groups.push(group);
                    break;
                }
                start += EXTENTS;
                if start >= list.total {
                    break;
                }
            }
        }
        let text = if groups.is_empty() {
            "no group has the block".to_owned()
        } else {
            let all: Vec<String> = groups.iter().map(u16::to_string).collect();
            format!("group {}", all.join(", "))
        };
        self.say(gfd, "MGT", text);
        if groups.is_empty() {
            refused("the GFD refuses: no group has the block")
        } else {
            Ok(groups)
        }
    }

    fn right(&mut self, gfd: Pid, groups: &[u16]) -> Result<End, Stop> {
        let rpid = self.host.pid;
        let request = Request::GetSat(SatRange { count: 1, start: rpid });
        let answer = self.asked.fabric.call(Way::Pid(gfd), &request)?;
        let vector = answer.read::<SatEntries<'_>>()?.vectors.get(0).unwrap_or(0);
        let may = groups.iter().any(|&group| vector & group_bit(group) != 0);
        let said = if may { "set" } else { "not set" };
        self.say(gfd, "SAT", format!("[{rpid}]: {vector:#010x}, the group's bit is {said}"));
        if may {
            return Ok(End::Memory);
        }
        // 490Ch reports 31 groups only: the refusal would be a guess.
        if groups.iter().any(|&group| group >= GROUPS_MAX) {
            return Err(Stop::End(End::Unknown(format!(
                "no command reports access rights above group {GROUPS_MAX}"
            ))));
        }
        refused("the GFD refuses: the requester has no right to the group")
    }
}
