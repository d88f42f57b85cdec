//! Reads and writes of requesters: every part of an access is checked before any byte moves.
//!
//! An access is split where its decoder, its granule of an interleaved set, or its block ends. A part that falls on
//! another way than the first is refused: those bytes are another device's, and decoding them here would reach the
//! wrong ones. A refused access returns a [`Fault`], with its [`Refusal`] and where it happened.
//!
//! Source: docs/spec/wire-formats.md §4.6 (notification type 2), §5.2; docs/spec/cxl-fabric.md "GFD (endpoint)".

use weft_parsers::fabric::{Dpa, Hpa, Pid};

use super::decode::{Gdt, Hit, Miss};
use super::events::Kind;
use super::memory::Memory;
use super::protect::{self, Denied, GrpId, Mgt, Sat};

/// Why an access was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Not exactly one decoder of the requester maps the address.
    #[error("{0}")]
    Miss(#[from] Miss),
    /// The access continues into a granule of another device of the interleave set.
    #[error("the access crosses into another device's granule")]
    OtherWay,
    /// A DPA has no address at the requester.
    #[error("the device's address has no host address: {0}")]
    NoWayBack(Miss),
    /// The requester has no right to the memory behind the address.
    #[error("{0}")]
    Denied(#[from] Denied),
    /// Byte enables do not fit the data.
    #[error("the byte enables do not fit the data")]
    Enables,
    /// The memory failed, or the line is poisoned.
    #[error("the memory failed")]
    Memory,
}

impl Refusal {
    /// Type and trigger of its notification.
    ///
    /// A write to read-only memory is an unrecognised request: the pages have no trigger for it.
    #[must_use]
    pub const fn notice(self) -> (Kind, u8) {
        match self {
            Self::Miss(_) | Self::OtherWay => (Kind::AccessError, 1),
            Self::NoWayBack(_) => (Kind::AccessError, 1 << 1),
            Self::Denied(Denied::NoGroup) => (Kind::AccessError, 1 << 2),
            Self::Denied(Denied::Group(_)) => (Kind::AccessError, 1 << 3),
            Self::Denied(Denied::ReadOnly) => (Kind::UnrecognisedRequest, 0),
            Self::Enables => (Kind::InvalidInput, 0),
            Self::Memory => (Kind::Failure, 0),
        }
    }

    /// The group that the requester has no right to.
    #[must_use]
    pub const fn group(self) -> Option<GrpId> {
        if let Self::Denied(Denied::Group(group)) = self { Some(group) } else { None }
    }
}

/// A refusal, and the first address refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub refusal: Refusal,
    /// The address for the requester.
    pub hpa: Hpa,
    /// The address in the device, if decoding got that far.
    pub dpa: Option<Dpa>,
}

/// Byte enables of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Enables {
    /// Every byte is written.
    #[default]
    All,
    /// As in a TLP: 4 bits for the first doubleword, 4 for the last; all bytes between are written. Data is whole
    /// doublewords from a doubleword's address on; of a single one, `last` is 0.
    Ends {
        /// Enables of the first doubleword.
        first: u8,
        /// Enables of the last doubleword; 0 if there is only one.
        last: u8,
    },
    /// One bit a byte, of at most 64 bytes.
    Mask(u64),
}

impl Enables {
    /// Whether they fit `len` bytes at `hpa`.
    const fn fit(self, hpa: Hpa, len: usize) -> bool {
        match self {
            Self::All => true,
            Self::Ends { first, last } => {
                let whole = len >= 4 && len.is_multiple_of(4) && hpa.0.is_multiple_of(4);
                whole && first < 16 && last < 16 && (len > 4 || last == 0)
            }
            Self::Mask(mask) => len >= 64 || (len <= 64 && mask >> len == 0),
        }
    }

    /// Whether byte `at` of `len` is written.
    const fn has(self, at: usize, len: usize) -> bool {
        match self {
            Self::All => true,
            Self::Ends { first, last: _ } if at < 4 => first >> at & 1 == 1,
            Self::Ends { first: _, last } if at + 4 >= len => last >> (at + 4 - len) & 1 == 1,
            Self::Ends { .. } => true,
            Self::Mask(mask) => at < 64 && mask >> at & 1 == 1,
        }
    }

    /// Whether all of `len` bytes are written.
    const fn all(self, len: usize) -> bool {
        match self {
            Self::All => true,
            Self::Ends { first, last } => first == 15 && (last == 15 || len == 4),
            Self::Mask(_) => false,
        }
    }
}

/// A part of an access that is contiguous in the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// First byte of the part.
    pub dpa: Dpa,
    /// Most bytes that the part can have; 1 or more.
    pub room: u64,
    way: u8,
}

/// The tables that decide whether an access is allowed.
#[derive(Clone, Copy, Debug)]
pub struct Guard<'a> {
    pub gdt: &'a Gdt,
    pub mgt: &'a Mgt,
    pub sat: &'a Sat,
}

impl Guard<'_> {
    /// Decodes and checks the byte at `hpa`; the result also has the number of bytes that this holds for.
    ///
    /// # Errors
    /// [`Fault`].
    #[inline]
    pub fn part(self, rpid: Pid, hpa: Hpa, writes: bool) -> Result<Part, Fault> {
        let Hit { dpa, room, way } = match self.gdt.decode(rpid, hpa) {
            Ok(hit) => hit,
            Err(miss) => return Err(Fault { refusal: miss.into(), hpa, dpa: None }),
        };
        match protect::check(self.mgt, self.sat, rpid, dpa, writes) {
            Ok(block) => Ok(Part { dpa, room: room.min(block), way }),
            Err(denied) => Err(Fault { refusal: denied.into(), hpa, dpa: Some(dpa) }),
        }
    }

    /// The part at `done` bytes behind `hpa`, of an access that began on `way`.
    fn later(self, rpid: Pid, hpa: Hpa, done: usize, way: u8, writes: bool) -> Result<Part, Fault> {
        // No decoder window wraps, so an access beyond 2^64 leaves every one.
        let at = hpa.0.checked_add(done as u64).map(Hpa);
        let at = at.ok_or(Fault { refusal: Miss::None.into(), hpa, dpa: None })?;
        let part = self.part(rpid, at, writes)?;
        if part.way == way {
            Ok(part)
        } else {
            Err(Fault { refusal: Refusal::OtherWay, hpa: at, dpa: None })
        }
    }

    /// Checks all of `len` bytes at `hpa`; returns the first part. An access of 0 bytes is checked like one of 1.
    ///
    /// # Errors
    /// [`Fault`] of the first byte that is refused.
    #[inline]
    pub fn check(self, rpid: Pid, hpa: Hpa, len: usize, writes: bool) -> Result<Part, Fault> {
        let first = self.part(rpid, hpa, writes)?;
        let mut done = fitting(first.room, len);
        while done < len {
            let part = self.later(rpid, hpa, done, first.way, writes)?;
            done += fitting(part.room, len - done);
        }
        Ok(first)
    }

    /// Calls `each` with the address and byte range of every part, after checking all.
    ///
    /// # Errors
    /// As [`Guard::check`], before any call; or the refusal that `each` returns.
    #[inline]
    pub fn each(
        self,
        rpid: Pid,
        hpa: Hpa,
        len: usize,
        writes: bool,
        mut each: impl FnMut(Dpa, core::ops::Range<usize>) -> Result<(), Refusal>,
    ) -> Result<(), Fault> {
        // All parts first: a refused access must not have moved some of its bytes.
        let first = self.check(rpid, hpa, len, writes)?;
        let (mut part, mut done) = (first, 0);
        loop {
            let now = fitting(part.room, len - done);
            let told = each(part.dpa, done..done + now);
            told.map_err(|refusal| Fault { refusal, hpa, dpa: Some(part.dpa) })?;
            done += now;
            if done >= len {
                return Ok(());
            }
            part = self.later(rpid, hpa, done, first.way, writes)?;
        }
    }
}

#[inline]
fn fitting(room: u64, len: usize) -> usize {
    usize::try_from(room).map_or(len, |room| room.min(len))
}

/// Reads `out.len()` bytes at `hpa`.
///
/// # Errors
/// [`Fault`]; `out` is as before, unless the memory itself failed.
#[inline]
pub fn read(
    guard: Guard,
    memory: &Memory,
    rpid: Pid,
    hpa: Hpa,
    out: &mut [u8],
) -> Result<(), Fault> {
    guard.each(rpid, hpa, out.len(), false, |dpa, range| {
        let out = out.get_mut(range).unwrap_or_default();
        memory.read(dpa.0, out).map_err(|_| Refusal::Memory)
    })
}

/// Writes the bytes of `data` that `enables` names at `hpa`. All of the range must be writable.
///
/// # Errors
/// [`Fault`]; nothing was written, unless the memory itself failed.
#[inline]
pub fn write(
    guard: Guard,
    memory: &mut Memory,
    rpid: Pid,
    hpa: Hpa,
    data: &[u8],
    enables: Enables,
) -> Result<(), Fault> {
    if !enables.fit(hpa, data.len()) {
        return Err(Fault { refusal: Refusal::Enables, hpa, dpa: None });
    }
    let all = enables.all(data.len());
    guard.each(rpid, hpa, data.len(), true, |dpa, range| {
        // The common case: one copy for each part.
        if all {
            let data = data.get(range).unwrap_or_default();
            return memory.write(dpa.0, data).map_err(|_| Refusal::Memory);
        }
        let (begin, mut at) = (range.start, range.start);
        while at < range.end {
            // In runs of enabled bytes, as the memory writes contiguous bytes only.
            let has = enables.has(at, data.len());
            let from = at;
            while at < range.end && enables.has(at, data.len()) == has {
                at += 1;
            }
            if has {
                let data = data.get(from..at).unwrap_or_default();
                let place = dpa.0 + (from - begin) as u64;
                memory.write(place, data).map_err(|_| Refusal::Memory)?;
            }
        }
        Ok(())
    })
}
