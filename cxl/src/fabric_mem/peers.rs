//! Peers: their shares, and the fabric addresses of the shares. [`Message`]s carry [`Share`]s; [`Imports`] maps the
//! owner's addresses to fabric addresses.
//!
//! Source: docs/spec/cxl-fabric.md "Fabric memory transfers"; docs/spec/wire-formats.md §5.1 (segments).

use std::collections::BTreeMap;

use weft_parsers::fabric::{Hpa, Pid};

use super::PeerId;
use super::error::Error;
use super::registry::{MemDesc, Share};

/// Message between two engines. A transport carries messages in order; none outlives its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Begins a connection, and is answered by a welcome.
    Hello {
        /// PID that the sender's requests come from.
        pid: Pid,
        /// All registrations of the sender.
        shares: Vec<Share>,
    },
    Welcome {
        /// PID that the sender's requests come from.
        pid: Pid,
        /// All registrations of the sender.
        shares: Vec<Share>,
    },
    Goodbye,
}

/// Addresses of this host that lead to one PID: one or more entries of its fabric address table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    pub base: Hpa,
    pub len: u64,
}

/// A peer's memory, as mapped here.
pub struct Imports {
    /// Length and fabric address by the owner's first address. Disjoint.
    ranges: BTreeMap<u64, (u64, Hpa)>,
}

impl Imports {
    /// Maps all `shares` of `peer`, or none.
    ///
    /// # Errors
    /// There are too many shares, or one is empty, overlaps another, or does not lie in a known segment.
    pub fn map(
        peer: PeerId,
        shares: &[Share],
        shares_max: usize,
        segments: &BTreeMap<Pid, Segment>,
    ) -> Result<Self, Error> {
        let mut ranges = BTreeMap::new();
        for (index, share) in shares.iter().enumerate() {
            let bad = |why| Error::BadShare { peer, index, why };
            let MemDesc { addr, len } =
                share.mem.checked().map_err(|_| bad("is empty or ends beyond 64 bits"))?;
            if index >= shares_max {
                return Err(bad("is one too many"));
            }
            let before: Option<(&u64, &(u64, Hpa))> = ranges.range(..addr + len).next_back();
            if before.is_some_and(|(start, (before_len, _))| start + before_len > addr) {
                return Err(bad("overlaps another"));
            }
            let pid = share.place.pid;
            let segment = segments.get(&pid).ok_or(Error::NoSegment(pid))?;
            // The share comes from the peer: whatever it names, a request must not leave the segment that leads to it.
            let behind = share.place.offset.checked_add(len);
            if behind.is_none_or(|behind| behind > segment.len) {
                return Err(bad("ends behind its segment"));
            }
            let fabric = segment.base.0.checked_add(share.place.offset);
            let fabric = fabric.filter(|fabric| fabric.checked_add(len).is_some());
            let fabric = fabric.ok_or(bad("ends beyond 64 bits of fabric address"))?;
            ranges.insert(addr, (len, Hpa(fabric)));
        }
        Ok(Self { ranges })
    }

    /// Fabric address of a range that lies within one share.
    #[must_use]
    pub fn find(&self, mem: MemDesc) -> Option<Hpa> {
        let (start, (len, fabric)) = self.ranges.range(..=mem.addr).next_back()?;
        let behind = mem.addr.checked_add(mem.len)?;
        (behind <= start + len).then(|| Hpa(fabric.0 + (mem.addr - start)))
    }

    /// Mapped ranges by the owner's addresses, with their fabric addresses.
    pub fn ranges(&self) -> impl Iterator<Item = (MemDesc, Hpa)> {
        self.ranges.iter().map(|(&addr, &(len, hpa))| (MemDesc { addr, len }, hpa))
    }

    /// Number of mapped shares.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Whether the peer shares nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// State of a connection.
pub enum Peer {
    /// A hello was sent and is not answered yet.
    Connecting,
    /// Both have each other's shares.
    Connected {
        /// PID that its requests come from.
        pid: Pid,
        imports: Imports,
    },
}
