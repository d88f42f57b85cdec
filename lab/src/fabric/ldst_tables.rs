//! LDST and re-router, as a host's software sets them so that an accelerator accesses a memory device directly.
//!
//! The commands go to the mailbox of the virtual switch that has the bridge. Addresses are bytes, segments 64 GiB.
//!
//! Source: docs/spec/wire-formats.md §4.5 (570Dh, 570Fh, 5713h), §5.1; CXL 3.1 section 7.7.9.

use weft_fm::components::memory::map::SEGMENT;
use weft_parsers::cci::tables::{SetEntries, SetLdst};
use weft_parsers::cci::{List, Request};
use weft_parsers::fabric::{Bdf, Hpa, Interleave, LdstEntry, Pid, ReRouterEntry, Target};

use super::fast_tables::{Command, MapError};

/// Segments of a window at most.
const SEGMENTS_MAX: usize = 4_096;
/// Entries in one command.
const ENTRIES_MAX: usize = 64;
/// Entries of a re-router.
const RE_ROUTERS: usize = 256;
/// An unused re-router entry.
pub const NO_ROUTE: ReRouterEntry =
    ReRouterEntry { dpid: Pid::from_low_bits(0), segment: None, requester: Bdf::from_bits(0) };

/// A memory device that an accelerator accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direct {
    /// First address at the accelerator.
    pub hpa: u64,
    /// Length in bytes.
    pub len: u64,
    /// PID of the port that leads to the memory device.
    pub target: Pid,
    /// Another hierarchy's device: requests carry the requester's PCIe segment.
    pub across: bool,
}

/// Commands that make bridge `vppb` of an accelerator find these memory devices, and no others. Without any they turn
/// the window off.
///
/// # Errors
/// See [`MapError`].
pub fn ldst(vppb: u8, all: &[Direct]) -> Result<Vec<Command>, MapError> {
    let last = |one: &Direct| one.hpa.saturating_add(one.len.saturating_sub(1)) / SEGMENT;
    let (first, limit) =
        (all.iter().map(|one| one.hpa / SEGMENT).min(), all.iter().max_by_key(|one| last(one)));
    let (Some(first), Some(end)) = (first, limit) else {
        let off = SetLdst { vppb, segment_size: 0, base: Hpa(0), limit: Hpa(0) };
        return Ok(vec![command(&Request::SetLdst(off))]);
    };
    let base = first * SEGMENT;
    let limit = (last(end) + 1).checked_mul(SEGMENT).ok_or(MapError::Far(end.hpa))?;
    let mut entries: Vec<Option<LdstEntry>> = Vec::new();
    for one in all {
        let (segment, interleave, target) =
            (one.across, Interleave::NONE, Target::Direct(one.target));
        let entry = LdstEntry { segment, interleave, target };
        for at in one.hpa / SEGMENT..=last(one) {
            let index = usize::try_from(at - first).unwrap_or(usize::MAX);
            if index >= SEGMENTS_MAX {
                return Err(MapError::Far(one.hpa));
            }
            entries.resize(entries.len().max(index + 1), None);
            match entries.get_mut(index) {
                Some(place) if place.is_none_or(|other| other == entry) => *place = Some(entry),
                _ => return Err(MapError::Segment(one.hpa)),
            }
        }
    }
    let window = SetLdst { vppb, segment_size: 0, base: Hpa(base), limit: Hpa(limit) };
    let mut commands = vec![command(&Request::SetLdst(window))];
    for (start, part) in (0_u16..).step_by(ENTRIES_MAX).zip(entries.chunks(ENTRIES_MAX)) {
        let set = SetEntries { vppb, start, entries: List::of(part) };
        commands.push(command(&Request::SetLdstSegments(set)));
    }
    Ok(commands)
}

/// Commands that make bridge `vppb` of a memory device send completions straight to these requesters, and to no others;
/// those beyond the size of a re-router are left out.
#[must_use]
pub fn re_router(vppb: u8, back: &[ReRouterEntry]) -> Vec<Command> {
    let mut all: Vec<ReRouterEntry> = back.iter().copied().take(RE_ROUTERS).collect();
    // All entries are written: the ones that are left out here would keep requesters of an earlier map.
    all.resize(RE_ROUTERS, NO_ROUTE);
    let empty = [NO_ROUTE; RE_ROUTERS];
    // An entry that moved from one command's range to another's would exist twice meanwhile, which a re-router refuses.
    let passes: &[&[ReRouterEntry]] =
        if back.len() > ENTRIES_MAX { &[&empty, &all] } else { &[&all] };
    let mut commands = Vec::new();
    for pass in passes {
        for (start, part) in (0_u16..).step_by(ENTRIES_MAX).zip(pass.chunks(ENTRIES_MAX)) {
            let set = SetEntries { vppb, start, entries: List::of(part) };
            commands.push(command(&Request::SetReRouter(set)));
        }
    }
    commands
}

/// Encodes a request as a mailbox command.
#[must_use]
pub fn command(request: &Request<'_>) -> Command {
    let mut payload = vec![0; 32 + 8 * ENTRIES_MAX];
    let len = request.emit(&mut payload).unwrap_or(0);
    payload.truncate(len);
    (request.opcode(), payload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::pbr::segments::Found;
    use weft_dataplane::pbr::{Ldst, ReRouter};

    const BASE: u64 = 1 << 40;

    fn pid(bits: u16) -> Pid {
        Pid::from_low_bits(bits)
    }

    fn direct(hpa: u64, target: u16, across: bool) -> Direct {
        Direct { hpa, len: 16 << 20, target: pid(target), across }
    }

    /// Applies commands to a table as a switch does.
    fn table(commands: &[Command]) -> Ldst {
        let mut ldst = Ldst::new(4_096, 16).unwrap();
        for (opcode, payload) in commands {
            match Request::parse(*opcode, payload).unwrap() {
                Request::SetLdst(set) => ldst.configure(set.segment_size, set.base, set.limit),
                Request::SetLdstSegments(set) => {
                    ldst.set(set.start.into(), &set.entries.iter().collect::<Vec<_>>())
                }
                other => panic!("{other:?}"),
            }
            .unwrap();
        }
        ldst
    }

    #[test]
    fn each_device_is_found_in_its_segments_and_nothing_between() {
        let long = Direct { len: 2 * SEGMENT, ..direct(BASE + 100 * SEGMENT + 4_096, 9, false) };
        let all = ldst(3, &[long, direct(BASE, 7, true), direct(BASE + 2 * SEGMENT, 8, false)]);
        let ldst = table(&all.unwrap());
        let at = |hpa| ldst.lookup(Hpa(hpa));
        let hit = |dpid, flag| Found::Hit { flag, dpid: pid(dpid) };
        assert_eq!((at(BASE), at(BASE + 2 * SEGMENT)), (hit(7, true), hit(8, false)));
        assert_eq!((at(BASE + SEGMENT), at(BASE - 1)), (Found::Invalid, Found::Miss));
        for segment in 100..=102 {
            assert_eq!(at(BASE + segment * SEGMENT), hit(9, false), "{segment}");
        }
        assert_eq!(at(BASE + 103 * SEGMENT + 1), Found::Miss);
    }

    #[test]
    fn nothing_turns_it_off_and_what_does_not_fit_is_refused() {
        let off = table(&ldst(1, &[]).unwrap());
        assert_eq!(off.lookup(Hpa(BASE)), Found::Miss);
        let beside = BASE + (1 << 30);
        let twice = [direct(BASE, 7, true), direct(beside, 8, true)];
        assert_eq!(ldst(1, &twice), Err(MapError::Segment(beside)));
        let far = [direct(BASE, 7, true), direct(BASE + 4_096 * SEGMENT, 8, true)];
        assert_eq!(ldst(1, &far), Err(MapError::Far(BASE + 4_096 * SEGMENT)));
        let last = direct(u64::MAX - 4_095, 7, false);
        assert_eq!(ldst(1, &[last]), Err(MapError::Far(u64::MAX - 4_095)));
    }

    /// Commands lead from any former entries to the wanted ones, and each step is valid.
    #[test]
    fn re_routers_have_what_they_are_to_have() {
        let many = |count: u16, from: u16| -> Vec<ReRouterEntry> {
            let one = |n| ReRouterEntry {
                dpid: pid(0x100 + n),
                segment: Some(1),
                requester: Bdf::from_bits(from + n),
            };
            (0..count).map(one).collect()
        };
        let mut router = ReRouter::default();
        for wanted in [many(2, 8), many(200, 1), many(256, 9), many(1, 40), Vec::new()] {
            for (opcode, payload) in re_router(2, &wanted) {
                let Request::SetReRouter(set) = Request::parse(opcode, &payload).unwrap() else {
                    panic!("{opcode:?}")
                };
                let entries: Vec<_> =
                    set.entries.iter().map(|it| (it != NO_ROUTE).then_some(it)).collect();
                router.set(set.start.into(), &entries).unwrap();
            }
            let has: Vec<ReRouterEntry> = (0..256).filter_map(|at| router.get(at)).collect();
            assert_eq!(has, wanted);
        }
    }
}
