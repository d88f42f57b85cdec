//! Dynamic capacity of multi-headed devices: 5603h to 5607h, and the extents that GFDs use as well.
//!
//! [`Extent`] 40 bytes; lists of them.
//!
//! Units: bytes.
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 section 7.6.7.6 (tables 7-67 to 7-72).

use super::layout::{codes, message, record};
use super::wire::{Uuid, Wire, front, put_front};
use crate::ParseError;
use crate::fabric::Dpa;

record! {
    /// A piece of dynamic capacity.
    struct Extent: 40 {
        /// First byte.
        0 => start: Dpa,
        /// Bytes.
        8 => len: u64,
        /// Whose allocation it is.
        16 => tag: Uuid,
        /// Place among the extents of a shared tag, from 1; 0 when it is not shared.
        32 => shared_seq: u16,
    }
}

record! {
    /// Request of Get DC Region Extent Lists (5603h); of the GFD's command (4904h) too.
    struct GetExtents: 12 {
        /// Host (5603h) or group (4904h).
        0 => owner: u16,
        /// Most extents.
        4 => count: u32,
        /// First extent.
        8 => start: u32,
    }
}

message! {
    /// Response of 5603h, and of 4904h, 4907h and 4908h.
    struct ExtentList: 24 {
        /// Host (5603h) or group.
        0 => owner: u16,
        /// First extent.
        4 => start: u32,
        /// Extents there are in all.
        12 => total: u32,
        /// Changes with the list.
        16 => generation: u32,
    }
    /// The extents.
    8 as u32 => extents: [Extent]
}

codes! {
    /// How capacity that is added is chosen.
    enum AddPolicy: Policy, 0xF {
        /// Any.
        0 => Free,
        /// One extent.
        1 => Contiguous,
        /// The extents that are given.
        2 => Prescriptive,
        /// What the tag names already.
        3 => EnableShared,
    }
}

/// How capacity that is released is chosen, and what becomes of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseFlags {
    /// How it is chosen.
    pub policy: ReleasePolicy,
    /// Bit 4: it is taken away without asking the host. Reserved in 4908h, where groups have no host.
    pub forced: bool,
    /// Bit 5: it is overwritten.
    pub sanitize: bool,
}

codes! {
    /// How capacity that is released is chosen.
    enum ReleasePolicy: Policy, 0xF {
        /// All of the tag.
        0 => Tag,
        /// The extents that are given.
        1 => Prescriptive,
    }
}

impl Wire for ReleaseFlags {
    const LEN: usize = 1;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [byte] = front(bytes)?;
        let policy = ReleasePolicy::read(bytes)?;
        Ok(Self { policy, forced: byte & 0x10 != 0, sanitize: byte & 0x20 != 0 })
    }

    fn write(&self, bytes: &mut [u8]) {
        let flags = u8::from(self.forced) << 4 | u8::from(self.sanitize) << 5;
        put_front(bytes, [self.policy as u8 | flags]);
    }
}

message! {
    /// Request of Initiate Dynamic Capacity Add (5604h).
    struct InitiateAdd: 32 {
        /// The host.
        0 => host: u16,
        /// How it is chosen.
        2 => policy: AddPolicy,
        /// Of which region.
        3 => region: u8,
        /// Bytes, with [`AddPolicy::Free`] and [`AddPolicy::Contiguous`].
        4 => len: u64,
        /// What it is called.
        12 => tag: Uuid,
    }
    /// The extents, with [`AddPolicy::Prescriptive`].
    28 as u32 => extents: [Extent]
}

message! {
    /// Request of Initiate Dynamic Capacity Release (5605h).
    struct InitiateRelease: 32 {
        /// The host.
        0 => host: u16,
        /// How it is chosen.
        2 => flags: ReleaseFlags,
        /// Bytes.
        4 => len: u64,
        /// What it is called.
        12 => tag: Uuid,
    }
    /// The extents, with [`ReleasePolicy::Prescriptive`].
    28 as u32 => extents: [Extent]
}
