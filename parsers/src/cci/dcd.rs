//! Dynamic capacity of multi-headed devices: 5603h to 5607h, and the extents that GFDs use as well.
//!
//! Lists of [`Extent`], 40 bytes each, which MLDs and GFDs answer in the same layout.
//!
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 section 7.6.7.6 (tables 7-67 to 7-72).

use super::layout::{codes, message, record};
use super::wire::{Uuid, Wire, front, put_front};
use crate::ParseError;
use crate::fabric::Dpa;

record! {
    /// A piece of dynamic capacity.
    struct Extent: 40 {
        /// Address of the first byte in the device.
        0 => start: Dpa,
        /// Length in bytes, whole blocks of its region.
        8 => len: u64,
        /// Tag of the allocation that it belongs to; all zeros for none.
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
        /// Extents to return at most.
        4 => count: u32,
        /// Index of the first extent to return, from 0.
        8 => start: u32,
    }
}

message! {
    /// Response of 5603h, and of 4904h, 4907h and 4908h.
    struct ExtentList: 24 {
        /// Host (5603h) or group.
        0 => owner: u16,
        /// Index of the first extent of the list, from 0.
        4 => start: u32,
        /// Extents there are in all.
        12 => total: u32,
        /// Number that the device changes with each change of the whole list, so that a reader of
        /// several pages notices one.
        16 => generation: u32,
    }
    /// Extents from `start` on.
    8 as u32 => extents: [Extent]
}

codes! {
    /// How the device chooses the capacity that it adds.
    enum AddPolicy: Policy, 0xF {
        /// The device takes any free blocks.
        0 => Free,
        /// The device takes free blocks that make one extent.
        1 => Contiguous,
        /// The extents of the request, which must be free.
        2 => Prescriptive,
        /// All extents that bear the tag already: the owner shares them with those who have them.
        3 => EnableShared,
    }
}

/// How a release selects its capacity, and whether its content is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseFlags {
    /// Bits 3:0: by tag or by extents.
    pub policy: ReleasePolicy,
    /// Bit 4: take the capacity without asking the host. Reserved in 4908h, where groups have no
    /// host.
    pub forced: bool,
    /// Bit 5: overwrite the content.
    pub sanitize: bool,
}

codes! {
    /// How a release selects its capacity.
    enum ReleasePolicy: Policy, 0xF {
        /// All extents that bear the tag.
        0 => Tag,
        /// The extents of the request.
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
        /// Host that gets the capacity; of an MLD the LD-ID.
        0 => host: u16,
        /// How the device chooses the capacity.
        2 => policy: AddPolicy,
        /// Region that it is taken from, 0..=7.
        3 => region: u8,
        /// Bytes, with [`AddPolicy::Free`] and [`AddPolicy::Contiguous`].
        4 => len: u64,
        /// Tag that the extents bear; zeros for none.
        12 => tag: Uuid,
    }
    /// The extents, with [`AddPolicy::Prescriptive`].
    28 as u32 => extents: [Extent]
}

message! {
    /// Request of Initiate Dynamic Capacity Release (5605h).
    struct InitiateRelease: 32 {
        /// Host that loses the capacity; of an MLD the LD-ID.
        0 => host: u16,
        /// Selection of the capacity, and whether its content is overwritten.
        2 => flags: ReleaseFlags,
        /// Bytes to release; beside extents 0 or their sum.
        4 => len: u64,
        /// Tag of the extents, with [`ReleasePolicy::Tag`].
        12 => tag: Uuid,
    }
    /// The extents, with [`ReleasePolicy::Prescriptive`].
    28 as u32 => extents: [Extent]
}
