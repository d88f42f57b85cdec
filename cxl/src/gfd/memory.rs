//! The memory behind a device: a sparse file, or anonymous memory in chunks of 2 MiB that are taken when first written.
//! Bytes that were never written read as zero and cost nothing.
//!
//! A file is read and written by position and not mapped: mapping one is unsafe in every maintained crate (`memmap2`,
//! `rustix::mm`), because another process can change the bytes behind a reference. The bytes are those that a mapping
//! of the file shows to others.
//!
//! Source: docs/spec/cxl-fabric.md "GFD (endpoint)"; ARCHITECTURE.md "Time, errors, unsafe".

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

use rustix::fs::FallocateFlags;
use weft_dataplane::pool::prefetch;
use weft_parsers::cxl_mem;

use super::chunk::{CHUNK, Chunk};
use super::poison::Poison;

const LINE: u64 = cxl_mem::LINE as u64;
/// Bytes of zeros per write, for file systems without holes.
const ZEROS: usize = 64 << 10;

/// A device's memory, bytes 0 to its size.
#[derive(Debug)]
pub struct Memory {
    size: u64,
    /// Ranges that exist, as first byte and the byte behind the last, in order; empty if all of it exists.
    ranges: Vec<(u64, u64)>,
    kind: Kind,
    /// Poisoned lines, apart from those of the shared part.
    poisoned: Poison,
    /// Length of its file when it was opened.
    kept: u64,
    /// The part that is shared with other memories.
    common: Option<Common>,
}

/// Memory shared by several, at the same addresses: each sees the part of it that its own ranges contain.
#[derive(Clone, Debug)]
struct Common {
    /// Address from which on the memory is shared.
    from: u64,
    memory: Arc<Mutex<Memory>>,
}

impl Common {
    /// Calls `each` with the memory; fails if another thread panicked while it held the lock.
    fn with<T>(&self, each: impl FnOnce(&mut Memory) -> io::Result<T>) -> io::Result<T> {
        let mut memory = self.memory.lock().map_err(|_| io::Error::other("the memory is lost"))?;
        each(&mut memory)
    }
}

#[derive(Debug)]
enum Kind {
    Anonymous(Vec<Option<Chunk>>),
    File(File),
}

/// The part of an access that lies in one chunk: chunk number, offset in it, length.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the place is below 2 MiB; the number is checked"
)]
fn part(at: u64, len: usize) -> (usize, usize, usize) {
    let place = at as usize % CHUNK;
    ((at / CHUNK as u64) as usize, place, len.min(CHUNK - place))
}

fn beyond() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the address is beyond the device's memory")
}

impl Memory {
    /// `size` bytes in this process, at most 2^48; untouched chunks take no memory.
    #[must_use]
    pub fn anonymous(size: u64) -> Self {
        let size = size.min(1 << 48);
        let chunks = usize::try_from(size.div_ceil(CHUNK as u64)).unwrap_or(0);
        let mut table = Vec::new();
        table.resize_with(chunks, || None);
        Self::of(size, Kind::Anonymous(table), 0)
    }

    const fn of(size: u64, kind: Kind, kept: u64) -> Self {
        Self { size, ranges: Vec::new(), kind, poisoned: Poison::new(), kept, common: None }
    }

    /// `size` bytes in `file`, which is grown to that size and keeps its contents.
    ///
    /// # Errors
    /// The file cannot be grown.
    pub fn in_file(file: File, size: u64) -> io::Result<Self> {
        let kept = file.metadata()?.len().min(size);
        if kept < size {
            file.set_len(size)?;
        }
        Ok(Self::of(size, Kind::File(file), kept))
    }

    /// From `from` on, shares the bytes of `memory` at the same addresses from now on. Only the owner of `memory`
    /// clears them or takes them away.
    pub(crate) fn join(&mut self, from: u64, memory: &Arc<Mutex<Self>>) {
        self.common = Some(Common { from, memory: memory.clone() });
    }

    /// The shared part of an access, and the number of its bytes in front of that.
    fn common_of(&self, at: u64, len: usize) -> Option<(Common, usize)> {
        let common = self.common.as_ref().filter(|it| at.saturating_add(len as u64) > it.from)?;
        Some((common.clone(), usize::try_from(common.from.saturating_sub(at)).unwrap_or(len)))
    }

    /// Size in bytes, gaps between ranges included.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Bytes from address 0 on that may hold old contents of a file.
    pub(super) const fn kept(&self) -> u64 {
        self.kept
    }

    /// Whether all of `at..at + len` exists.
    #[inline]
    #[must_use]
    pub fn holds(&self, at: u64, len: u64) -> bool {
        at <= self.size
            && len <= self.size - at
            && (self.ranges.is_empty() || {
                // Ranges that touch were joined in `set_ranges`, so an access that exists lies in one.
                let before = self.ranges.partition_point(|(start, _)| *start <= at);
                let range = before.checked_sub(1).and_then(|number| self.ranges.get(number));
                range.is_some_and(|(_, end)| at + len <= *end)
            })
    }

    /// Poisons the line at `at`: it cannot be read until all of it is written.
    ///
    /// # Errors
    /// Beyond the end.
    pub fn poison(&mut self, at: u64) -> io::Result<()> {
        if !self.holds(at, 1) {
            return Err(beyond());
        }
        if let Some((common, 0)) = self.common_of(at, 1) {
            return common.with(|memory| memory.poison(at));
        }
        self.poisoned.set(at / LINE);
        Ok(())
    }

    /// Whether a byte of `at..at + len` is poisoned.
    #[inline]
    #[must_use]
    pub fn is_poisoned(&self, at: u64, len: u64) -> bool {
        self.own_poisoned(at, len)
            || self.common.as_ref().is_some_and(|common| {
                at.saturating_add(len) > common.from
                    // A lock that failed counts as poison.
                    && !common.with(|memory| Ok(memory.own_poisoned(at, len))).is_ok_and(|is| !is)
            })
    }

    #[inline]
    fn own_poisoned(&self, at: u64, len: u64) -> bool {
        !self.poisoned.is_empty() && len > 0 && {
            let last = at.saturating_add(len - 1) / LINE;
            self.poisoned.any(at / LINE, last + 1)
        }
    }

    /// `at..at + len` was written: ends the poison of each line that lies whole in it.
    #[inline]
    fn heal(&mut self, at: u64, len: u64) {
        if !self.poisoned.is_empty() {
            self.poisoned.heal(at.div_ceil(LINE), at.saturating_add(len) / LINE);
        }
    }

    /// Prefetches the line at `at` into the processor's cache, if it is in this process.
    #[inline]
    pub fn prefetch(&self, at: u64) {
        if let Kind::Anonymous(chunks) = &self.kind {
            let (number, place, _) = part(at, 1);
            let chunk = chunks.get(number).and_then(Option::as_ref);
            chunk.and_then(|chunk| chunk.get(place, 1)?.first()).into_iter().for_each(prefetch);
        }
    }

    /// Reads from `at` on.
    ///
    /// # Errors
    /// Beyond the end, poisoned, or the file fails.
    #[inline]
    pub fn read(&self, mut at: u64, mut out: &mut [u8]) -> io::Result<()> {
        if !self.holds(at, out.len() as u64) {
            return Err(beyond());
        }
        if self.own_poisoned(at, out.len() as u64) {
            return Err(io::ErrorKind::InvalidData.into()); // the shared part checks its own poison in `read` below
        }
        if let Some((common, in_front)) = self.common_of(at, out.len()) {
            let (own, rest) = out.split_at_mut_checked(in_front).ok_or_else(beyond)?;
            common.with(|memory| memory.read(at + own.len() as u64, rest))?;
            out = own;
        }
        let chunks = match &self.kind {
            Kind::Anonymous(chunks) => chunks,
            Kind::File(file) => return file.read_exact_at(out, at),
        };
        while !out.is_empty() {
            let (number, place, len) = part(at, out.len());
            let (now, later) = out.split_at_mut_checked(len).ok_or_else(beyond)?;
            match chunks.get(number).ok_or_else(beyond)? {
                Some(chunk) => {
                    now.copy_from_slice(chunk.get(place, len).ok_or_else(beyond)?);
                }
                None => now.fill(0),
            }
            (at, out) = (at + len as u64, later);
        }
        Ok(())
    }

    /// Writes from `at` on.
    ///
    /// # Errors
    /// Beyond the end, no memory, or the file fails.
    #[inline]
    pub fn write(&mut self, mut at: u64, mut data: &[u8]) -> io::Result<()> {
        if !self.holds(at, data.len() as u64) {
            return Err(beyond());
        }
        self.heal(at, data.len() as u64);
        if let Some((common, in_front)) = self.common_of(at, data.len()) {
            let (own, rest) = data.split_at_checked(in_front).ok_or_else(beyond)?;
            common.with(|memory| memory.write(at + own.len() as u64, rest))?;
            data = own;
        }
        let chunks = match &mut self.kind {
            Kind::Anonymous(chunks) => chunks,
            Kind::File(file) => return file.write_all_at(data, at),
        };
        while !data.is_empty() {
            let (number, place, len) = part(at, data.len());
            let (now, later) = data.split_at_checked(len).ok_or_else(beyond)?;
            let slot = chunks.get_mut(number).ok_or_else(beyond)?;
            let chunk = slot.get_or_insert_with(Chunk::fresh);
            chunk.get_mut(place, len).ok_or_else(beyond)?.copy_from_slice(now);
            (at, data) = (at + len as u64, later);
        }
        Ok(())
    }

    /// Makes `at..at + len` zero, and frees its memory or disk space where possible.
    ///
    /// # Errors
    /// Beyond the end, or the file fails.
    pub fn clear(&mut self, mut at: u64, mut len: u64) -> io::Result<()> {
        if !self.holds(at, len) {
            return Err(beyond());
        }
        self.heal(at, len);
        let chunks = match &mut self.kind {
            Kind::Anonymous(chunks) => chunks,
            Kind::File(file) => return clear_file(file, at, len),
        };
        while len > 0 {
            let most = usize::try_from(len).unwrap_or(usize::MAX);
            let (number, place, now) = part(at, most);
            let slot = chunks.get_mut(number).ok_or_else(beyond)?;
            // A whole chunk goes back to the system, and reads as zeros again.
            if now == CHUNK {
                *slot = None;
            } else if let Some(chunk) = slot {
                chunk.get_mut(place, now).ok_or_else(beyond)?.fill(0);
            }
            (at, len) = (at + now as u64, len - now as u64);
        }
        Ok(())
    }

    /// Makes exactly `ranges` exist, each a first byte and a length, below 2^48. Bytes outside them are lost, and zero
    /// when they exist again.
    ///
    /// # Errors
    /// It is in a file.
    pub fn set_ranges(&mut self, ranges: impl IntoIterator<Item = (u64, u64)>) -> io::Result<()> {
        if matches!(self.kind, Kind::File(_)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let end = |start: u64, len| start.saturating_add(len).min(1 << 48);
        let all = ranges.into_iter().map(|(start, len)| (start, end(start, len)));
        let mut new: Vec<(u64, u64)> = all.filter(|(start, end)| start < end).collect();
        new.sort_unstable();
        // Joined where they touch or overlap: `holds` looks for a single range.
        new.dedup_by(|next, last| {
            let joins = next.0 <= last.1;
            last.1 = if joins { last.1.max(next.1) } else { last.1 };
            joins
        });
        let mut old = core::mem::take(&mut self.ranges);
        // No ranges means that all of it existed.
        if old.is_empty() {
            old.push((0, self.size));
        }
        for (mut at, end) in old {
            // Clears the gaps between new ranges within each old one: bytes that exist before and after stay.
            let first = new.partition_point(|(_, end)| *end <= at);
            for &(start, stop) in new.iter().skip(first).take_while(|(start, _)| *start < end) {
                if start > at {
                    self.clear(at, start - at)?;
                }
                at = stop;
            }
            if end > at {
                self.clear(at, end - at)?;
            }
        }
        self.size = new.last().map_or(0, |(_, end)| *end);
        let count = usize::try_from(self.size.div_ceil(CHUNK as u64)).map_err(|_| beyond())?;
        if let Kind::Anonymous(chunks) = &mut self.kind {
            chunks.resize_with(count, || None);
        }
        // One range from 0 on is described by `size` alone, which keeps `holds` short for most memories.
        let is_whole = matches!(new.as_slice(), [] | [(0, _)]);
        self.ranges = if is_whole { Vec::new() } else { new };
        let mut poisoned = core::mem::take(&mut self.poisoned);
        // Taken out of `self` above, as `holds` borrows it.
        poisoned.retain(|line| self.holds(line * LINE, 1));
        self.poisoned = poisoned;
        Ok(())
    }

    /// Number of chunks that take memory.
    #[cfg(test)]
    pub(crate) fn taken(&self) -> usize {
        match &self.kind {
            Kind::Anonymous(chunks) => chunks.iter().flatten().count(),
            Kind::File(_) => 0,
        }
    }
}

/// Punches a hole, or writes zeros if the file system has no holes.
fn clear_file(file: &File, mut at: u64, mut len: u64) -> io::Result<()> {
    if len == 0 {
        return Ok(());
    }
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if rustix::fs::fallocate(file, flags, at, len).is_ok() {
        return Ok(());
    }
    let zeros = vec![0; ZEROS];
    while len > 0 {
        let now = usize::try_from(len).map_or(ZEROS, |len| len.min(ZEROS));
        file.write_all_at(zeros.get(..now).unwrap_or_default(), at)?;
        (at, len) = (at + now as u64, len - now as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::*;
    use std::os::unix::fs::MetadataExt;

    /// A file that is removed from its directory at once.
    fn nameless(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("weft-gfd-{}-{name}", std::process::id()));
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    /// A poisoned line cannot be read until all of it is written.
    #[test]
    fn a_poisoned_line_is_bad_until_it_is_written_whole() {
        let mut memory = Memory::anonymous(1 << 20);
        memory.write(0, &[1; 256]).unwrap();
        memory.poison(70).unwrap();
        let bad = |memory: &Memory, at, len| memory.read(at, &mut vec![0; len]).is_err();
        for (at, len, want) in [
            (0, 64, false),
            (0, 65, true),
            (64, 64, true),
            (127, 1, true),
            (128, 64, false),
            (70, 0, false),
        ] {
            assert_eq!(bad(&memory, at, len), want, "{at} {len}");
        }
        for at in [64, 65, 100] {
            memory.write(at, &[2; 63]).unwrap();
            assert!(bad(&memory, 64, 64), "only a part of it was written: {at}");
        }
        memory.write(0, &[3; 128]).unwrap();
        assert!(!bad(&memory, 0, 256));
        memory.poison(0).unwrap();
        memory.clear(0, 64).unwrap();
        assert!(!bad(&memory, 0, 64), "cleared");
        assert!(memory.poison(1 << 20).is_err(), "beyond");
    }

    /// Each poisoned line is bad and no other, however many there are.
    #[test]
    fn each_poisoned_line_is_bad_however_many_are() {
        let mut memory = Memory::anonymous(256 << 20);
        for line in 0..(2 << 20) {
            memory.poison(line * 64).unwrap();
        }
        assert!(memory.is_poisoned((128 << 20) - 64, 64) && !memory.is_poisoned(128 << 20, 64));
        for line in [0, 1 << 20, (2 << 20) - 1] {
            memory.write(line * 64, &[1; 64]).unwrap();
            memory.read(line * 64, &mut [0; 64]).unwrap();
        }
        assert!(memory.is_poisoned(64, 64));
        memory.clear(0, 256 << 20).unwrap();
        assert!(memory.poisoned.is_empty());
    }

    /// Both kinds against a plain vector, at random places around the ends of chunks.
    #[test]
    fn both_kinds_hold_what_a_vector_holds() {
        let size = 3 * CHUNK as u64 + 100;
        let file = Memory::in_file(nameless("vector"), size).unwrap();
        for mut memory in [Memory::anonymous(size), file] {
            let mut want = vec![0; usize::try_from(size).unwrap()];
            let mut rng = Rng::new(0xF11E);
            for _ in 0..400 {
                let near = rng.below(4) * CHUNK as u64;
                let at = (near + rng.below(200)).saturating_sub(100).min(size);
                let longest = if rng.chance(1, 20) { 2 * CHUNK as u64 } else { 200 };
                let len = rng.below(longest).min(size - at);
                let range = usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap();
                if rng.chance(1, 6) {
                    memory.clear(at, len).unwrap();
                    want[range].fill(0);
                    continue;
                }
                let mut out = vec![0xEE; range.len()];
                memory.read(at, &mut out).unwrap();
                assert_eq!(out, want[range.clone()], "{at:#x} {len}");
                out.fill_with(|| rng.next_u64().to_le_bytes()[0]);
                memory.write(at, &out).unwrap();
                want[range].copy_from_slice(&out);
            }
        }
    }

    /// Ranges change at random, against a vector of units that exist or not.
    #[test]
    fn what_is_taken_is_gone_and_what_is_between_is_not_there() {
        const UNIT: u64 = CHUNK as u64 / 2;
        let mut memory = Memory::anonymous(8 * UNIT);
        let (mut there, mut rng) = ([true; 8], Rng::new(0x4A9E));
        let mut has = [0_u8; 8];
        for round in 1..=200_u8 {
            for unit in 0..8 {
                let (at, len) = (unit as u64 * UNIT, usize::try_from(UNIT).unwrap());
                assert_eq!(memory.holds(at, UNIT), there[unit], "{round}: {unit}");
                let is_pair = unit < 7 && there[unit] && there[unit + 1];
                assert_eq!(memory.holds(at + UNIT - 1, 2), is_pair, "{round}: {unit} and the next");
                let mut out = vec![0xEE; len];
                assert_eq!(memory.read(at, &mut out).is_ok(), there[unit], "{round}: {unit}");
                assert!(!there[unit] || out.iter().all(|b| *b == has[unit]), "{round}: {unit}");
                if rng.chance(1, 4) {
                    assert_eq!(memory.write(at, &vec![round; len]).is_ok(), there[unit]);
                    has[unit] = if there[unit] { round } else { 0 };
                }
            }
            there = core::array::from_fn(|_| rng.chance(1, 2));
            let ranges = (0..8).filter(|unit| there[*unit]);
            memory.set_ranges(ranges.map(|unit| (unit as u64 * UNIT, UNIT))).unwrap();
            has = core::array::from_fn(|unit| if there[unit] { has[unit] } else { 0 });
        }
        memory.set_ranges([(0, 64), (128, 64)]).unwrap();
        memory.poison(128).unwrap();
        assert!(memory.poison(64).is_err() && memory.holds(0, 64) && !memory.holds(0, 65));
        memory.set_ranges([(0, 64)]).unwrap();
        memory.set_ranges([(64, 192)]).unwrap();
        assert!(!memory.is_poisoned(128, 64), "what comes again is fresh");
        assert!(Memory::in_file(nameless("ranges"), 4096).unwrap().set_ranges([(0, 1)]).is_err());
    }

    #[test]
    fn the_end_is_the_end() {
        let file = Memory::in_file(nameless("end"), 4096).unwrap();
        for mut memory in [Memory::anonymous(4096), file] {
            #[rustfmt::skip] // columns: at, len, holds
            let cases = [
                (4095, 1, true), (4096, 0, true), (4095, 2, false), (4096, 1, false),
                (u64::MAX, 1, false), (u64::MAX, 0, false), (0, 4097, false),
            ];
            for (at, len, holds) in cases {
                let mut out = vec![0; len];
                assert_eq!(memory.read(at, &mut out).is_ok(), holds, "read {at} {len}");
                assert_eq!(memory.write(at, &out).is_ok(), holds, "write {at} {len}");
                assert_eq!(memory.clear(at, len as u64).is_ok(), holds, "clear {at} {len}");
            }
        }
    }

    /// 256 devices of 64 GB in one process: 16 TB that were never written.
    #[test]
    fn untouched_memory_costs_nothing() {
        let mut all: Vec<Memory> = (0..256).map(|_| Memory::anonymous(64 << 30)).collect();
        let mut out = [1; 64];
        for memory in &mut all {
            memory.read((64 << 30) - 64, &mut out).unwrap();
            assert_eq!((out, memory.taken()), ([0; 64], 0));
        }
        let one = &mut all[255];
        one.write(CHUNK as u64 - 1, &[1, 2]).unwrap();
        assert_eq!(one.taken(), 2);
        one.clear(0, 2 * CHUNK as u64).unwrap();
        assert_eq!(one.taken(), 0);
    }

    #[test]
    fn a_file_keeps_its_bytes_and_its_holes() {
        let file = nameless("holes");
        file.write_all_at(b"kept", 10).unwrap();
        let mut memory = Memory::in_file(file.try_clone().unwrap(), 1 << 30).unwrap();
        let mut out = [0; 4];
        memory.read(10, &mut out).unwrap();
        assert_eq!(&out, b"kept");
        memory.write(1 << 20, &vec![0xAA; 1 << 20]).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 < 4 << 20, "1 GiB takes what was written");
        memory.clear(1 << 20, 1 << 20).unwrap();
        memory.read((2 << 20) - 4, &mut out).unwrap();
        assert_eq!(out, [0; 4]);
    }
}
