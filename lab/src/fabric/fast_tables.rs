//! FAST of an edge port, as a host's software sets it so that the host or one of its devices reaches memory of the
//! fabric.
//!
//! [`commands`] turns the [`Region`]s that the fabric manager gave a host into commands for the mailbox of its GAE.
//! Addresses are bytes, segments 64 GiB.
//!
//! Source: docs/spec/cxl-fabric.md "Tables of an edge and who may write them"; docs/spec/wire-formats.md §4.6 (5804h to
//! 5808h), §5.1.

use std::collections::BTreeMap;

use weft_parsers::cci::gae::{PrefixFlags, SetFast};
use weft_parsers::cci::tables::{SetEntries, SetIdt};
use weft_parsers::cci::{List, Opcode, Request};
use weft_parsers::fabric::{FastEntry, Hpa, Interleave, Pid, Target};

use weft_fm::components::memory::map::SEGMENT;

/// Segments of a window at most.
const SEGMENTS_MAX: usize = 4_096;
/// Entries in one command, which must fit a small mailbox.
const ENTRIES_MAX: usize = 192;
/// The bridge whose FAST serves the host's own requests. A device's requests are served by that of the bridge above it.
pub const UPSTREAM: u8 = 0;

/// Fabric memory that a host or device may access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address at the host.
    pub hpa: u64,
    /// Length in bytes.
    pub len: u64,
    /// Bytes of an interleave granule, if there are several targets.
    pub granularity: u32,
    /// GFDs in interleave order, or the host or device that owns the memory.
    pub targets: Vec<Pid>,
    /// Memory of a host or device (GIM), reached by UIO only.
    pub gim: bool,
}

/// Reasons why regions do not fit in a FAST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// Bad number of targets, or bad granularity.
    #[error("region at {0:#x}: 1, 2, 4, ... or 256 ways of 256, 512, ... or 16,384 bytes")]
    Interleave(u64),
    /// Two regions need different entries for one segment.
    #[error("region at {0:#x}: its segment of 64 GiB has an entry for other targets or granules")]
    Segment(u64),
    /// A window over all regions would be longer than the table.
    #[error(
        "region at {0:#x}: expected at most 4,096 segments of 64 GiB from the first region to the last"
    )]
    Far(u64),
    /// More targets than the interleave table has room for.
    #[error("region at {0:#x}: the interleave table is full")]
    Full(u64),
}

/// A mailbox command: opcode and payload.
pub type Command = (Opcode, Vec<u8>);

/// Commands that map `regions`, and nothing else, for requests that arrive through bridge `vppb` (0 for the host's
/// own). Without a region they turn the window off. `prefix` has the directions of `VendPrefixL0` to enable, at most
/// those that the fabric manager allows.
///
/// # Errors
/// See [`MapError`].
pub fn commands(
    vppb: u8,
    regions: &[Region],
    prefix: PrefixFlags,
) -> Result<Vec<Command>, MapError> {
    let mut sorted: Vec<&Region> = regions.iter().collect();
    sorted.sort_by_key(|region| region.hpa);
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else {
        let off = SetFast { vppb, segment_size: 0, prefix, base: Hpa(0), limit: Hpa(0) };
        return Ok(vec![command(&Request::SetFast(off))]);
    };
    // A window of whole segments: FabricLimit is the first byte of the segment behind the last region.
    let base = first.hpa / SEGMENT * SEGMENT;
    let limit = (last_segment(last) + 1).checked_mul(SEGMENT).ok_or(MapError::Far(last.hpa))?;
    let window = SetFast { vppb, segment_size: 0, prefix, base: Hpa(base), limit: Hpa(limit) };
    let mut all = vec![command(&Request::SetFast(window))];
    let mut entries: Vec<Option<FastEntry>> = Vec::new();
    let mut idt: Vec<Pid> = Vec::new();
    let mut lists: BTreeMap<&[Pid], u16> = BTreeMap::new(); // the same GFDs need their list once only
    for region in sorted {
        let interleave = interleave(region).ok_or(MapError::Interleave(region.hpa))?;
        let target = if let [pid] = region.targets[..] {
            Target::Direct(pid)
        } else {
            let at = if let Some(&at) = lists.get(region.targets.as_slice()) {
                at
            } else {
                let at = u16::try_from(idt.len()).ok().filter(|&at| at < 4_096);
                idt.extend_from_slice(&region.targets);
                at.ok_or(MapError::Full(region.hpa))?
            };
            lists.insert(&region.targets, at);
            Target::Interleaved(at)
        };
        let entry = FastEntry { gim: region.gim, interleave, target };
        for segment in region.hpa / SEGMENT..=last_segment(region) {
            let index = usize::try_from(segment - base / SEGMENT).unwrap_or(usize::MAX);
            if index >= SEGMENTS_MAX {
                return Err(MapError::Far(region.hpa));
            }
            entries.resize(entries.len().max(index + 1), None);
            match entries.get_mut(index) {
                Some(place) if place.is_none_or(|other| other == entry) => *place = Some(entry),
                _ => return Err(MapError::Segment(region.hpa)),
            }
        }
    }
    // The interleave table first, so that no entry ever points to stale targets.
    for (at, pids) in (0_u16..).step_by(ENTRIES_MAX).zip(idt.chunks(ENTRIES_MAX)) {
        let set = SetIdt { vppb, start: at, entries: List::of(pids) };
        all.push(command(&Request::SetIdt(set)));
    }
    for (at, part) in (0_u16..).step_by(ENTRIES_MAX).zip(entries.chunks(ENTRIES_MAX)) {
        let set = SetEntries { vppb, start: at, entries: List::of(part) };
        all.push(command(&Request::SetFastSegments(set)));
    }
    Ok(all)
}

const fn last_segment(region: &Region) -> u64 {
    region.hpa.saturating_add(region.len.saturating_sub(1)) / SEGMENT
}

fn interleave(region: &Region) -> Option<Interleave> {
    let ways = region.targets.len();
    if ways == 1 {
        return Some(Interleave::NONE);
    }
    let granule = region.granularity;
    if !ways.is_power_of_two() || !granule.is_power_of_two() || granule < 256 {
        return None;
    }
    // Granularity codes count from 256 bytes = code 0 (docs/spec/wire-formats.md §5.1).
    let code = |log: u32| u8::try_from(log).ok();
    Interleave::from_codes(code(ways.trailing_zeros())?, code(granule.trailing_zeros() - 8)?)
}

fn command(request: &Request<'_>) -> Command {
    // A list begins at byte 6 or 8 of the payload and has at most 8 bytes for each entry.
    let mut payload = vec![0; 32 + 8 * ENTRIES_MAX];
    let len = request.emit(&mut payload).unwrap_or(0);
    payload.truncate(len);
    (request.opcode(), payload)
}

/// Applies commands to a table as a switch does.
#[cfg(test)]
pub(crate) fn table(commands: &[Command]) -> weft_dataplane::pbr::Fast {
    let mut fast = weft_dataplane::pbr::Fast::new(4_096, 4_096).unwrap();
    for (opcode, payload) in commands {
        match Request::parse(*opcode, payload).unwrap() {
            Request::SetFast(set) => fast.configure(set.segment_size, set.base, set.limit),
            Request::SetIdt(set) => {
                fast.set_idt(set.start.into(), &set.entries.iter().collect::<Vec<_>>())
            }
            Request::SetFastSegments(set) => {
                fast.set(set.start.into(), &set.entries.iter().collect::<Vec<_>>())
            }
            other => panic!("{other:?}"),
        }
        .unwrap();
    }
    fast
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::pbr::segments::Found;

    fn pids(count: u16) -> Vec<Pid> {
        (0..count).map(|n| Pid::from_low_bits(0x100 + n)).collect()
    }

    fn region(hpa: u64, targets: Vec<Pid>) -> Region {
        Region { hpa, len: 1 << 30, granularity: 4_096, targets, gim: false }
    }

    fn mapped(regions: &[Region]) -> Result<Vec<Command>, MapError> {
        commands(UPSTREAM, regions, PrefixFlags::default())
    }

    #[test]
    fn regions_are_found_by_address_and_way() {
        let tera = 1 << 40;
        let regions =
            [region(tera + 3 * SEGMENT, pids(256)), region(tera + 4_096, vec![pids(7)[6]])];
        let all = mapped(&regions).unwrap();
        assert_eq!(all.len(), 4, "window, two parts of the interleave table, entries");
        assert!(all.iter().all(|(_, payload)| payload.len() <= 2_048 && !payload.is_empty()));
        let fast = table(&all);
        let at = |hpa| fast.lookup(Hpa(hpa));
        let hit = |dpid| Found::Hit { flag: false, dpid };
        assert_eq!(at(tera + 4_096), hit(pids(7)[6]));
        for way in [0, 1, 200, 255] {
            let hpa = tera + 3 * SEGMENT + (5 * 256 + way) * 4_096 + 77;
            assert_eq!(at(hpa), hit(Pid::from_low_bits(0x100 + u16::try_from(way).unwrap())));
        }
        assert_eq!((at(tera + SEGMENT), at(tera - 1)), (Found::Invalid, Found::Miss));
    }

    /// Shares of the same GFDs use one list, whatever their granularity. Tables of a device are set at its bridge.
    #[test]
    fn regions_of_the_same_targets_share_their_list() {
        let tera = 1 << 40;
        let granule =
            |n: u64, granularity| Region { granularity, ..region(tera + n * SEGMENT, pids(4)) };
        let all = commands(
            3,
            &[granule(0, 256), granule(1, 16_384), region(tera + 2 * SEGMENT, pids(2))],
            PrefixFlags::default(),
        );
        let all = all.unwrap();
        let idt = all.iter().find_map(|(opcode, payload)| {
            match Request::parse(*opcode, payload).unwrap() {
                Request::SetIdt(set) => Some((set.vppb, set.entries.len())),
                _ => None,
            }
        });
        assert_eq!(idt, Some((3, 6)), "4 and 2 ways");
        let fast = table(&all);
        let second = Found::Hit { flag: false, dpid: pids(4)[1] };
        assert_eq!(fast.lookup(Hpa(tera + 256)), second);
        assert_eq!(fast.lookup(Hpa(tera + SEGMENT + 16_384)), second);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let tera = 1 << 40;
        let three = mapped(&[region(tera, pids(3))]);
        assert_eq!(three, Err(MapError::Interleave(tera)));
        let fine = Region { granularity: 128, ..region(tera, pids(2)) };
        assert_eq!(mapped(&[fine]), Err(MapError::Interleave(tera)));
        let beside = tera + (1 << 30);
        for other in [
            region(beside, pids(2)),
            Region { targets: vec![pids(2)[1]], ..region(beside, pids(1)) },
            Region { gim: true, ..region(beside, pids(1)) },
        ] {
            let twice = [region(tera, pids(1)), other];
            assert_eq!(mapped(&twice), Err(MapError::Segment(beside)));
        }
        let granules =
            [region(tera, pids(2)), Region { granularity: 256, ..region(beside, pids(2)) }];
        assert_eq!(mapped(&granules), Err(MapError::Segment(beside)));
        let far = [region(tera, pids(1)), region(tera + 4_096 * SEGMENT, pids(1))];
        assert_eq!(mapped(&far), Err(MapError::Far(tera + 4_096 * SEGMENT)));
        let last = region(u64::MAX - 4_095, pids(1));
        assert_eq!(mapped(&[last]), Err(MapError::Far(u64::MAX - 4_095)));
    }

    /// Regions with the same targets may share a segment, and a region may have several segments.
    #[test]
    fn alike_regions_share_a_segment_and_one_may_have_several() {
        let tera = 1 << 40;
        let all = [
            region(tera, pids(2)),
            region(tera + (1 << 30), pids(2)),
            Region { len: 2 * SEGMENT, ..region(tera + SEGMENT + 8_192, pids(2)) },
        ];
        let fast = table(&mapped(&all).unwrap());
        let odd = Found::Hit { flag: false, dpid: pids(2)[1] };
        for at in
            [4_096, (1 << 30) + 4_096, SEGMENT + 12_288, 2 * SEGMENT + 4_096, 3 * SEGMENT + 4_096]
        {
            assert_eq!(fast.lookup(Hpa(tera + at)), odd, "{at:#x}");
        }
    }

    #[test]
    fn no_region_turns_the_window_off() {
        let [(opcode, payload)] = &mapped(&[]).unwrap()[..] else { panic!() };
        let Ok(Request::SetFast(set)) = Request::parse(*opcode, payload) else { panic!() };
        assert_eq!((set.base, set.limit), (Hpa(0), Hpa(0)));
    }
}
