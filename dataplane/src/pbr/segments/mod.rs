//! Segment tables: equal segments of an address window, with the interleave DPID table (IDT) behind them; FAST and
//! LDST.
//!
//! An HPA in the window selects an entry of 4 bytes. This holds a PID, or for an interleaved segment the start of its
//! ways in the IDT, entries of 2 bytes. Segment sizes are 64 GiB << code, with codes 0 to 7.
//!
//! Source: docs/spec/wire-formats.md §5.1; CXL 3.1 sections 7.7.2.2, 7.7.2.4.

use std::marker::PhantomData;
use std::sync::Arc;

use weft_parsers::fabric::{Hpa, Interleave, Pid, Target};

use super::error::TableError;

/// Largest segment size code: 8 TiB.
const SIZE_MAX: u8 = 7;
/// Address bits inside of a segment of size code 0.
const SHIFT: u32 = 36;
/// Maximum number of entries: the largest power of two in the commands' 16-bit counts.
const ENTRIES_MAX: usize = 1 << 15;

const VALID: u32 = 1;
const FLAG: u32 = 2;
const WAYS_AT: u32 = 4; // 4 bits, the code
const SHIFT_AT: u32 = 8; // 5 bits: lowest address bit of the way
const FIELD_AT: u32 = 16; // 12 bits: PID, or first place in the IDT

/// Result of looking up an address in a segment table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The address is outside of the window.
    Miss,
    /// Inside of the window, without a valid entry.
    Invalid,
    /// A valid entry with a target.
    Hit {
        /// GIM in a FAST, "insert the segment" in an LDST.
        flag: bool,
        /// PID of the target, never `0xFFF`.
        dpid: Pid,
    },
}

/// One valid entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// GIM in a FAST, "insert the segment" in an LDST.
    pub flag: bool,
    /// Ways and granularity of interleaving.
    pub interleave: Interleave,
    /// A PID, or the first way in the IDT.
    pub target: Target,
}

/// A table of segments with its IDT.
///
/// Clones share the entries until one of them changes. A lookup reads this header, one line of entries, and for an
/// interleaved segment one line of the IDT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segments {
    base: u64,
    /// Length of the window in bytes; 0 while it is off.
    bytes: u64,
    limit: u64,
    /// By hardware index: the low bits of an address above the segment's.
    entries: Arc<[u32]>,
    idt: Arc<[u16]>,
    shift: u32,
}

impl Segments {
    /// An empty table with its window off.
    ///
    /// # Errors
    /// `entries` is no power of two up to 32,768, or `idt` is above 4,096.
    pub fn new(entries: usize, idt: usize) -> Result<Self, TableError> {
        // The hardware index is a mask of address bits (docs/spec/wire-formats.md, 5.1).
        if !entries.is_power_of_two() || entries > ENTRIES_MAX {
            return Err(TableError::Entries(entries));
        }
        if idt > Pid::COUNT {
            return Err(TableError::Entries(idt));
        }
        Ok(Self {
            base: 0,
            bytes: 0,
            limit: 0,
            entries: vec![0; entries].into(),
            idt: vec![Pid::NONE.bits(); idt].into(),
            shift: SHIFT,
        })
    }

    /// Number of entries, valid or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no entry is valid.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.iter().all(|word| word & VALID == 0)
    }

    /// Number of entries of the IDT.
    #[must_use]
    pub fn idt_len(&self) -> usize {
        self.idt.len()
    }

    /// Segment size code, base and limit as last set.
    #[must_use]
    pub fn config(&self) -> (u8, Hpa, Hpa) {
        let code = u8::try_from(self.shift - SHIFT).unwrap_or(SIZE_MAX);
        (code, Hpa(self.base), Hpa(self.limit))
    }

    /// Number of address bits inside of a segment.
    #[must_use]
    pub const fn shift(&self) -> u32 {
        self.shift
    }

    /// Sets the window, up to and including `limit`; off if `base` or `limit` is 0.
    ///
    /// Entries are indexed by address bits. With another segment size or base they would apply to other addresses than
    /// they were set for, so all become invalid. If only the limit changes, they stay.
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn configure(&mut self, size: u8, base: Hpa, limit: Hpa) -> Result<(), TableError> {
        let (Hpa(base), Hpa(limit)) = (base, limit);
        if size > SIZE_MAX {
            return Err(TableError::SegmentSize(size));
        }
        let shift = SHIFT + u32::from(size);
        for (what, address) in [("base", base), ("limit", limit)] {
            if address & ((1 << shift) - 1) != 0 {
                return Err(TableError::Alignment { what, address });
            }
        }
        let mut bytes = 0;
        // A base or limit of 0 switches the window off (docs/spec/wire-formats.md, 5.1).
        if base != 0 && limit != 0 {
            if limit <= base {
                return Err(TableError::Order { base, limit });
            }
            let segments = (limit - base) >> shift;
            if segments > self.entries.len() as u64 {
                return Err(TableError::Window { segments, entries: self.entries.len() });
            }
            bytes = limit - base + 1; // base is not 0, so this fits
        }
        if (shift, base) != (self.shift, self.base) {
            self.entries = vec![0; self.entries.len()].into();
        }
        (self.base, self.limit, self.bytes, self.shift) = (base, limit, bytes, shift);
        Ok(())
    }

    /// Finds the target of a request for `hpa`.
    #[inline]
    #[must_use]
    pub fn lookup(&self, hpa: Hpa) -> Found {
        // Below the base this wraps to a huge offset, so one comparison checks both bounds; an off window has 0 bytes.
        let offset = hpa.0.wrapping_sub(self.base);
        if offset >= self.bytes {
            return Found::Miss;
        }
        let word = self.entry(hpa.0);
        // The byte at the limit of a window as large as the table has no entry of its own.
        if word & VALID == 0 || offset >> self.shift >= self.entries.len() as u64 {
            return Found::Invalid;
        }
        let ways = (word >> WAYS_AT) & 0xF;
        let field = (word >> FIELD_AT) & 0xFFF;
        let bits = if ways == 0 {
            field
        } else {
            let way = (hpa.0 >> ((word >> SHIFT_AT) & 0x1F)) & ((1 << ways) - 1);
            let place = field as usize + low_usize(way);
            u32::from(self.idt.get(place).copied().unwrap_or(Pid::NONE.bits()))
        };
        let dpid = Pid::from_low_bits(low_u16(bits));
        if dpid.is_none() {
            return Found::Invalid;
        }
        Found::Hit { flag: word & FLAG != 0, dpid }
    }

    /// The entry for `address`.
    #[inline]
    fn entry(&self, address: u64) -> u32 {
        let place = low_usize(address >> self.shift) & (self.entries.len().wrapping_sub(1));
        self.entries.get(place).copied().unwrap_or(0)
    }

    /// Hardware index of command index `index`, where command index 0 is the segment at the base.
    #[must_use]
    pub fn hardware_index(&self, index: usize) -> usize {
        (low_usize(self.base >> self.shift).wrapping_add(index)) & (self.entries.len() - 1)
    }

    /// Sets entries from command index `start` on; all of them or none.
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn set(&mut self, start: usize, segments: &[Option<Segment>]) -> Result<(), TableError> {
        range(start, segments.len(), self.entries.len())?;
        // All are checked first: a command is applied completely or not at all.
        for segment in segments.iter().flatten() {
            self.check(*segment)?;
        }
        let first = self.hardware_index(start);
        let mask = self.entries.len() - 1;
        let entries = Arc::make_mut(&mut self.entries);
        for (at, segment) in segments.iter().enumerate() {
            if let Some(entry) = entries.get_mut((first + at) & mask) {
                *entry = segment.map_or(0, word);
            }
        }
        Ok(())
    }

    /// The entry at command index `index`; `None` if it is not valid or beyond the table.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Segment> {
        if index >= self.entries.len() {
            return None;
        }
        self.entries.get(self.hardware_index(index)).copied().and_then(segment)
    }

    /// Sets PIDs of the IDT from `start` on; all of them or none. `0xFFF` clears an entry.
    ///
    /// # Errors
    /// The range leaves the table; nothing has changed then.
    pub fn set_idt(&mut self, start: usize, pids: &[Pid]) -> Result<(), TableError> {
        range(start, pids.len(), self.idt.len())?;
        let idt = Arc::make_mut(&mut self.idt);
        for (place, pid) in idt.iter_mut().skip(start).zip(pids) {
            *place = pid.bits();
        }
        Ok(())
    }

    /// The PID at `index` of the IDT; `0xFFF` if it is empty, `None` beyond the table.
    #[must_use]
    pub fn idt(&self, index: usize) -> Option<Pid> {
        self.idt.get(index).map(|&bits| Pid::from_low_bits(bits))
    }

    /// Checks that `segment` can be an entry of this table.
    fn check(&self, segment: Segment) -> Result<(), TableError> {
        let ways = segment.interleave.ways();
        match segment.target {
            Target::Direct(_) if ways != 1 => Err(TableError::Target(ways)),
            Target::Interleaved(_) if ways == 1 => Err(TableError::Target(ways)),
            Target::Direct(pid) if pid.is_none() => Err(TableError::NoPid),
            Target::Interleaved(index)
                if usize::from(index) + usize::from(ways) > self.idt.len() =>
            {
                Err(TableError::Idt { index, ways, len: self.idt.len() })
            }
            _ => Ok(()),
        }
    }
}

/// Checks that `count` entries from `start` on are in a table of length `len`.
pub(super) fn range(start: usize, count: usize, len: usize) -> Result<(), TableError> {
    match start.checked_add(count) {
        Some(end) if end <= len => Ok(()),
        _ => Err(TableError::Range { start, count, len }),
    }
}

/// Packs an entry for the table.
fn word(segment: Segment) -> u32 {
    let field = match segment.target {
        Target::Direct(pid) => pid.bits(),
        Target::Interleaved(index) => index,
    };
    VALID
        | if segment.flag { FLAG } else { 0 }
        | u32::from(segment.interleave.ways_code()) << WAYS_AT
        // Kept as the lowest address bit of the way (256 bytes << code), so that a lookup only shifts.
        | (8 + u32::from(segment.interleave.granularity_code())) << SHIFT_AT
        | u32::from(field) << FIELD_AT
}

/// Unpacks an entry of the table.
fn segment(word: u32) -> Option<Segment> {
    if word & VALID == 0 {
        return None;
    }
    let code = |at: u32, mask: u32| u8::try_from((word >> at) & mask).unwrap_or(0);
    let (ways, granularity) = (code(WAYS_AT, 0xF), code(SHIFT_AT, 0x1F) - 8);
    let field = low_u16(word >> FIELD_AT);
    Some(Segment {
        flag: word & FLAG != 0,
        interleave: Interleave::from_codes(ways, granularity)?,
        target: match ways {
            0 => Target::Direct(Pid::from_low_bits(field)),
            _ => Target::Interleaved(field),
        },
    })
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "low bits are what is asked for")]
const fn low_usize(bits: u64) -> usize {
    bits as usize
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "low bits are what is asked for")]
const fn low_u16(bits: u32) -> u16 {
    bits as u16
}

/// A command's form of a [`Segment`].
pub trait Entry: Copy {
    /// Converts to a segment.
    fn segment(self) -> Segment;
    /// Converts from a segment.
    fn of(segment: Segment) -> Self;
}

/// [`Segments`] whose entries are of type `E` in commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table<E>(Segments, PhantomData<E>);

impl<E: Entry> Table<E> {
    /// An empty table with its window off; sizes as for [`Segments::new`].
    ///
    /// # Errors
    /// A size that cannot be indexed.
    pub fn new(entries: usize, idt: usize) -> Result<Self, TableError> {
        Ok(Self(Segments::new(entries, idt)?, PhantomData))
    }

    /// Sets the window: [`Segments::configure`].
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn configure(&mut self, size: u8, base: Hpa, limit: Hpa) -> Result<(), TableError> {
        self.0.configure(size, base, limit)
    }

    /// Finds the target of a request for `hpa`.
    #[inline]
    #[must_use]
    pub fn lookup(&self, hpa: Hpa) -> Found {
        self.0.lookup(hpa)
    }

    /// Sets entries from command index `start` on; all of them or none. The caller must have checked the targets
    /// against the access vectors, as [`super::edge::EdgePort`] does.
    ///
    /// # Errors
    /// See [`TableError`]; nothing has changed then.
    pub fn set(&mut self, start: usize, entries: &[Option<E>]) -> Result<(), TableError> {
        let segments: Vec<_> = entries.iter().map(|entry| entry.map(E::segment)).collect();
        self.0.set(start, &segments)
    }

    /// The entry at command index `index`; `None` if it is not valid or beyond the table.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<E> {
        self.0.get(index).map(E::of)
    }

    /// Sets PIDs of the IDT from `start` on; `0xFFF` clears an entry.
    ///
    /// # Errors
    /// The range leaves the table; nothing has changed then.
    pub fn set_idt(&mut self, start: usize, pids: &[Pid]) -> Result<(), TableError> {
        self.0.set_idt(start, pids)
    }

    /// The table without its entry type: sizes, window, IDT.
    #[must_use]
    pub const fn segments(&self) -> &Segments {
        &self.0
    }
}

#[cfg(test)]
mod tests;
