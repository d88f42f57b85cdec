//! Registered memory: the ranges that may be transferred, and their places on the fabric.
//!
//! Ranges are kept by address, each with one [`Handle`]. Host memory, and memory of devices below the host, gets a
//! place in the window for exports; other device memory and fabric memory has a place of its own. Places have the same
//! offset within 4 KiB as their addresses.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers".

use std::collections::{BTreeMap, BTreeSet};

use super::error::Error;
use super::options::REQUEST_LEN_MAX;
use super::port::{MemKind, Memory, Place};
use super::{Handle, PeerId};

/// A range of memory, by its owner's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemDesc {
    pub addr: u64,
    pub len: u64,
}

impl MemDesc {
    /// # Errors
    /// The range is empty or ends beyond 64 bits.
    pub fn checked(self) -> Result<Self, Error> {
        let Self { addr, len } = self;
        match addr.checked_add(len) {
            Some(_) if len > 0 => Ok(self),
            _ => Err(Error::Extent { addr, len }),
        }
    }
}

/// Share handle: the description of a registration that peers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Range by the owner's addresses.
    pub mem: MemDesc,
    pub kind: MemKind,
    /// Place on the fabric.
    pub place: Place,
}

/// Part of the segment that leads to this host; its memory is shown there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// PID of the segment, and offset of the window in it, a multiple of 4 KiB.
    pub place: Place,
    pub len: u64,
}

struct Registration {
    handle: Handle,
    share: Share,
    by_requests: bool,
    users: usize,
}

/// Pages of the window whose memory was deregistered while peers still refer to it.
struct Retired {
    mem: MemDesc,
    start: u64,
    end: u64,
    known_to: BTreeSet<PeerId>,
}

/// All registrations of an engine.
pub struct Registry {
    window: Window,
    /// Registrations by first address; disjoint.
    ranges: BTreeMap<u64, Registration>,
    /// First address by handle.
    handles: BTreeMap<Handle, u64>,
    /// First address by offset in the window's segment, for memory without a place of its own.
    shown: BTreeMap<u64, u64>,
    /// Pages not used again while a peer knows them: it would take other memory for the old one.
    retired: Vec<Retired>,
    count: u64,
}

const fn page_up(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(REQUEST_LEN_MAX)
}

/// The pages of `len` bytes from `offset` on: first byte, and the byte behind the last.
const fn pages_at(offset: u64, len: u64) -> (u64, u64) {
    let end = match page_up(offset.saturating_add(len)) {
        Some(end) => end,
        None => u64::MAX,
    };
    (offset - offset % REQUEST_LEN_MAX, end)
}

impl Registry {
    /// A registry without registrations.
    #[must_use]
    pub const fn new(window: Window) -> Self {
        Self {
            window,
            ranges: BTreeMap::new(),
            handles: BTreeMap::new(),
            shown: BTreeMap::new(),
            retired: Vec::new(),
            count: 0,
        }
    }

    /// Registers a range of memory of one kind.
    ///
    /// # Errors
    /// The range is empty or too long, overlaps another, is of another kind, or has no place on the fabric.
    pub fn add(
        &mut self,
        mem: MemDesc,
        kind: MemKind,
        memory: &dyn Memory,
    ) -> Result<Handle, Error> {
        let MemDesc { addr, len } = mem.checked()?;
        // Ranges are disjoint, so only the last one that begins in front of the end can overlap.
        let before = self.ranges.range(..addr + len).next_back();
        if let Some((_, with)) = before.filter(|(start, r)| **start + r.share.mem.len > addr) {
            return Err(Error::Overlap { addr, with: with.handle });
        }
        if memory.kind(addr, len) != Some(kind) {
            return Err(Error::Kind { addr, kind });
        }
        let by_requests = memory.by_requests(addr);
        let place = match kind {
            MemKind::Host => self.show(mem)?,
            MemKind::Device | MemKind::Fabric => match memory.place(addr, len) {
                Some(place) => place,
                None if kind == MemKind::Device && by_requests => self.show(mem)?,
                None => return Err(Error::NoPlace { addr }),
            },
        };
        self.count += 1;
        let handle = Handle(self.count);
        self.handles.insert(handle, addr);
        let share = Share { mem, kind, place };
        self.ranges.insert(addr, Registration { handle, share, by_requests, users: 0 });
        Ok(handle)
    }

    /// Removes a registration that the peers `known_to` were told of; their requests to it are refused from now on.
    ///
    /// # Errors
    /// It is unknown, or in use.
    pub fn remove(&mut self, handle: Handle, known_to: BTreeSet<PeerId>) -> Result<(), Error> {
        let addr = *self.handles.get(&handle).ok_or(Error::UnknownHandle(handle))?;
        let users = self.ranges.get(&addr).map_or(0, |registration| registration.users);
        if users > 0 {
            return Err(Error::Busy { handle, transfers: users });
        }
        self.handles.remove(&handle);
        let removed = self.ranges.remove(&addr);
        let offset =
            self.shown.iter().find_map(|(offset, shown)| (*shown == addr).then_some(*offset));
        // Peers may still send requests to these pages. Other memory shown there would be read or written by them.
        if let Some((offset, registration)) = offset.zip(removed) {
            self.shown.remove(&offset);
            let (start, end) = pages_at(offset, registration.share.mem.len);
            self.retired.push(Retired { mem: registration.share.mem, start, end, known_to });
            self.retired.retain(|it| !it.known_to.is_empty());
        }
        Ok(())
    }

    /// A peer is gone, and with it all that it knew of the window.
    pub fn forget(&mut self, peer: PeerId) {
        for retired in &mut self.retired {
            retired.known_to.remove(&peer);
        }
        self.retired.retain(|it| !it.known_to.is_empty());
    }

    /// Changes the window in which host memory is shown.
    ///
    /// # Errors
    /// Host memory is registered, and the window is another one.
    pub fn set_window(&mut self, window: Window) -> Result<(), Error> {
        if window != self.window && !self.shown.is_empty() {
            return Err(Error::WindowInUse);
        }
        self.window = window;
        Ok(())
    }

    /// The registration that contains the whole range, and whether its bytes are moved by requests.
    #[must_use]
    pub fn find(&self, mem: MemDesc) -> Option<(Handle, bool)> {
        let (start, found) = self.ranges.range(..=mem.addr).next_back()?;
        let behind = mem.addr.checked_add(mem.len)?;
        let is_within = behind <= *start + found.share.mem.len;
        is_within.then_some((found.handle, found.by_requests))
    }

    /// Counts a transfer that begins (`by` = 1) or has ended (-1).
    pub fn count_user(&mut self, handle: Handle, by: isize) {
        let range = self.handles.get(&handle).and_then(|addr| self.ranges.get_mut(addr));
        if let Some(registration) = range {
            registration.users = registration.users.saturating_add_signed(by);
        }
    }

    /// Handles of registrations, with the shares that peers are sent.
    pub fn handles(&self) -> impl Iterator<Item = (Handle, Share)> {
        self.ranges.values().map(|registration| (registration.handle, registration.share))
    }

    /// The shares of all registrations.
    pub fn shares(&self) -> impl Iterator<Item = Share> {
        self.ranges.values().map(|registration| registration.share)
    }

    /// Own address of the memory shown in `len` bytes at `offset` of the window's segment.
    #[must_use]
    pub fn shown_at(&self, offset: u64, len: u64) -> Option<u64> {
        let (_, addr) = self.shown.range(..=offset).next_back()?;
        let share = self.ranges.get(addr)?.share;
        let within = offset.checked_sub(share.place.offset)?;
        (within.checked_add(len)? <= share.mem.len).then(|| addr + within)
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether nothing is registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Drops all registrations, in use or not.
    pub fn clear(&mut self) {
        self.ranges.clear();
        self.handles.clear();
        self.shown.clear();
        self.retired.clear();
    }

    /// Finds whole pages for a range in the window: where the same range was shown before, or else the first that fit.
    fn show(&mut self, mem: MemDesc) -> Result<Place, Error> {
        let MemDesc { addr, len } = mem;
        let full = Error::WindowFull { len };
        // The same offset in a page as the address: a request that crosses no 4 KiB boundary at one end crosses none at
        // the other.
        let in_page = addr % REQUEST_LEN_MAX;
        let pages = in_page.checked_add(len).and_then(page_up).ok_or(full.clone())?;
        let start = self.window.place.offset;
        let end = start.checked_add(self.window.len).ok_or(full.clone())?;
        let mut free = page_up(start).ok_or(full.clone())?;
        let is_here = |it: &Retired| it.mem == mem && it.start >= free && it.end <= end;
        // The same range at its old place is what peers take to be there.
        if let Some(at) = self.retired.iter().position(is_here) {
            free = self.retired.swap_remove(at).start;
        }
        let shown = self.shown.iter().map(|(offset, shown)| {
            pages_at(*offset, self.ranges.get(shown).map_or(0, |r| r.share.mem.len))
        });
        let retired = self.retired.iter().map(|it| (it.start, it.end));
        let mut taken: Vec<(u64, u64)> = shown.chain(retired).collect();
        taken.sort_unstable();
        for (page, behind) in taken {
            // First fit: the gap in front of this range is long enough.
            if free.checked_add(pages).is_some_and(|end| end <= page) {
                break;
            }
            free = free.max(behind);
        }
        if free.checked_add(pages).is_none_or(|behind| behind > end) {
            // Where retired pages take up room, disconnecting a peer helps, and the error names one.
            let known_to: BTreeSet<PeerId> =
                self.retired.iter().flat_map(|it| it.known_to.iter().copied()).collect();
            return Err(match known_to.first() {
                None => full,
                Some(&peer) => Error::WindowRetired { len, peer },
            });
        }
        let place = Place { pid: self.window.place.pid, offset: free + in_page };
        self.shown.insert(place.offset, addr);
        Ok(place)
    }
}
