//! Media partitions of GFDs: whether a GFD can have them, and whether a share finds memory of its kind.
//!
//! It works on `[[gfd]]` and `[[memory]]`, and reports the first rule that is broken. Lengths are bytes; names say
//! where they are MiB.
//!
//! Source: docs/fabric.md; CXL 3.1 section 7.7.2.3.

use weft_fm::components::media::{self, Media, Partition};
use weft_fm::components::memory::map;

use super::super::topology::Memory;
use super::build::LayoutBuilder;
use super::{LayoutError, Part};

impl LayoutBuilder<'_> {
    /// Checks that each GFD of a share has a large enough partition of its kind. A GFD without partitions has one of
    /// DRAM with its whole capacity.
    pub(super) fn check_media(&self, memory: &Memory, gfds: &[usize]) -> Result<(), LayoutError> {
        let each = memory.len / u64::try_from(gfds.len().max(1)).unwrap_or(u64::MAX);
        for &at in gfds {
            let Some(gfd) = self.layout.gfds.get(at) else { continue };
            let len = u64::from(gfd.capacity_mib) << 20;
            let whole = Partition::new(Media::Dram, len, None);
            // `capacity_mib` refuses a bad capacity; here it only must not fail.
            let whole = [whole.unwrap_or(Partition { media: Media::Dram, len, block: 1 })];
            let all = gfd.partitions.as_deref().unwrap_or(&whole);
            let lacks = media::lacks(all, each, memory.media);
            let used_up = || {
                let mut kinds = [memory.media, None].into_iter();
                kinds.find_map(|kind| self.used_up(memory, at, all, kind))
            };
            let name = || memory.name.clone();
            if let Some(what) = lacks.or_else(used_up) {
                let gfd = self.layout.name(Part::Gfd(at));
                return Err(LayoutError::Misfit { name: name(), why: format!("{gfd} has {what}") });
            }
            // The manager picks the partition when it gives the memory; the smallest block must divide the share in any
            // case.
            let is_kind = |one: &&Partition| memory.media.is_none_or(|media| media == one.media);
            let block = all.iter().filter(is_kind).map(|one| one.block).min().unwrap_or(1);
            let ways = u64::try_from(gfds.len()).unwrap_or(u64::MAX);
            if let Some(why) = map::off_blocks(ways, block, memory.len) {
                return Err(LayoutError::Misfit { name: name(), why });
            }
        }
        Ok(())
    }

    /// The shortage of a GFD if it had to hold `memory` and all shares before it, of one kind or in all; `None` if it
    /// suffices.
    fn used_up(
        &self,
        memory: &Memory,
        at: usize,
        partitions: &[Partition],
        kind: Option<Media>,
    ) -> Option<String> {
        let is_kind = |media: Option<Media>| kind.is_none() || media == kind;
        let own = partitions.iter().filter(|one| is_kind(Some(one.media)));
        let has = own.fold(0_u64, |sum, one| sum.saturating_add(one.len));
        let last = self.topology.memory.iter().position(|one| one.name == memory.name)?;
        let mut takes = 0_u64;
        for one in self.topology.memory.iter().take(last + 1).filter(|one| is_kind(one.media)) {
            let gfds = self.layout.gfds(&one.gfds).unwrap_or_default();
            if gfds.contains(&at) {
                let ways = u64::try_from(gfds.len()).unwrap_or(u64::MAX);
                takes = takes.saturating_add(one.len / ways);
            }
        }
        let of = kind.map_or_else(String::new, |kind| format!(" of {kind}"));
        (takes > has).then(|| {
            format!("{has:#x} bytes{of}, and this and the memory before it take {takes:#x} of them")
        })
    }
}
