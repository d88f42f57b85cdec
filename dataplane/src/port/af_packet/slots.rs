//! Rings of slots that a packet socket shares with the kernel: whole frames, one after the other.
//!
//! A slot is a `tpacket2_hdr` in host order: status (32 bits, says whether kernel or port owns the slot), length (32),
//! bytes present (32), where they start (16), network offset (16), time (64), VLAN TCI (16) and TPID (16). Behind it
//! come an address or a virtio-net header, and the frame.
//!
//! Source: Linux `Documentation/networking/packet_mmap.rst`, `TPACKET_V2`; `net/packet/af_packet.c`.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::BorrowedFd;

use super::super::field::put;
use super::super::gauge;
use super::super::sys::{self, Mapping, VNET_LEN};
use super::super::tag::{self, Tag};
use crate::pool::prefetch;

/// A ring is made of blocks, contiguous in the kernel; no slot crosses a block's end. Those of super-frames are larger,
/// so that little of them is left over.
const BLOCK_LEN: usize = 64 << 10;
const SUPER_BLOCK_LEN: usize = 1 << 20;
/// Longest super-frame that is accepted: 64 KiB of IP and all headers in front.
const SUPER_LEN_MAX: usize = 66 << 10;
/// A block of super-frames is there for this many frames of the other ring, and at most this many blocks: the kernel
/// keeps their memory whether super-frames come or not.
const FRAMES_A_BLOCK: usize = 512;
const SUPER_BLOCKS_MAX: usize = 16;
const LINE: usize = 64;
/// The kernel's header in a slot; a frame to send starts right behind it.
const HEADER_LEN: usize = size_of::<libc::tpacket2_hdr>();
const _: () = assert!(HEADER_LEN == 32);
/// Where the kernel puts a received frame: behind header, address and virtio-net header, placed so that the packet
/// inside the frame is aligned.
const RX_FRAME_AT: usize = 76;
/// Slots between the one that is read and the one that is prefetched.
const AHEAD: usize = 6;

const KERNEL: u32 = libc::TP_STATUS_KERNEL;
const AVAILABLE: u32 = libc::TP_STATUS_AVAILABLE;

/// Slots, each owned by the kernel or by the port in turn.
struct Slots {
    memory: Mapping,
    /// Start of each slot, in bytes from the start of the memory.
    offsets: Box<[u32]>,
    len: usize,
    /// Index of the slot that is handled next.
    next: usize,
}

/// Size of a ring's slots, and of its blocks.
#[derive(Clone, Copy)]
struct Layout {
    slot: usize,
    block: usize,
}

impl Layout {
    /// For frames of up to `frame_len_max`.
    const fn of_frames(frame_len_max: usize) -> Self {
        Self { slot: slot_len(frame_len_max), block: BLOCK_LEN }
    }

    const fn of_supers() -> Self {
        Self { slot: slot_len(SUPER_LEN_MAX), block: SUPER_BLOCK_LEN }
    }

    const fn in_block(self) -> usize {
        self.block / self.slot
    }
}

/// Bytes of a slot for frames of up to `frame_len_max`: an odd number of cache lines, so that the heads of slots spread
/// over all sets of the caches.
const fn slot_len(frame_len_max: usize) -> usize {
    ((RX_FRAME_AT + frame_len_max).div_ceil(LINE) | 1) * LINE
}

impl Slots {
    /// A ring of at least `frames` slots, rounded up to whole blocks; `name` is `PACKET_RX_RING` or `PACKET_TX_RING`.
    fn map(fd: BorrowedFd<'_>, name: i32, frames: usize, layout: Layout) -> io::Result<Self> {
        let Layout { slot, block } = layout;
        let blocks = frames.div_ceil(layout.in_block());
        let word =
            |n: usize| u32::try_from(n).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL));
        let request = libc::tpacket_req {
            tp_block_size: word(block)?,
            tp_block_nr: word(blocks)?,
            tp_frame_size: word(slot)?,
            tp_frame_nr: word(blocks * layout.in_block())?,
        };
        sys::set_option(fd, libc::SOL_PACKET, name, request)?;
        Ok(Self::over(Mapping::shared(fd, 0, (blocks * block) as u64)?, layout))
    }

    fn over(memory: Mapping, layout: Layout) -> Self {
        let (in_block, Layout { slot: len, block }) = (layout.in_block(), layout);
        let slots = memory.len() / block * in_block;
        let offset = |slot: usize| slot / in_block * block + slot % in_block * len;
        let offsets = (0..slots).map(|slot| u32::try_from(offset(slot)).unwrap_or(u32::MAX));
        Self { offsets: offsets.collect(), memory, len, next: 0 }
    }

    const fn count(&self) -> usize {
        self.offsets.len()
    }

    /// Index of the slot `ahead` of the next one; `ahead` is below the number of slots.
    #[inline]
    const fn index(&self, ahead: usize) -> usize {
        // A compare instead of a remainder: the count is not a power of two, and this runs per frame.
        let index = self.next + ahead;
        if index < self.count() { index } else { index - self.count() }
    }

    #[inline]
    fn at(&self, index: usize) -> NonNull<u8> {
        let offset = self.offsets.get(index).map_or(0, |offset| *offset as usize);
        // SAFETY: `over` made it: inside the memory, with `len` bytes after it; there is a slot 0.
        unsafe { self.memory.base().add(offset) }
    }

    #[inline]
    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: aligned, as slots are; in memory that `self` keeps, which is only used atomically.
        unsafe { self.at(index).cast::<AtomicU32>().as_ref() }
    }

    /// Memory of a slot behind its status.
    #[inline]
    fn behind_status(&self, index: usize) -> (NonNull<u8>, usize) {
        // SAFETY: inside the slot.
        (unsafe { self.at(index).add(size_of::<u32>()) }, self.len - size_of::<u32>())
    }

    /// One of the first three cache lines of a slot, to prefetch it; kernel or port may own the slot.
    #[inline]
    fn line(&self, index: usize, line: usize) -> &AtomicU32 {
        const { assert!(slot_len(0) > 2 * LINE, "the least slot has three") };
        // SAFETY: inside the slot.
        let at = unsafe { self.at(index).add(line.min(2) * LINE) };
        // SAFETY: as for `status`; the value is not used.
        unsafe { at.cast::<AtomicU32>().as_ref() }
    }

    /// All bytes of a slot but its status.
    ///
    /// # Safety
    /// The slot's status says that the port owns it.
    #[inline]
    unsafe fn bytes(&self, index: usize) -> &[u8] {
        let (at, len) = self.behind_status(index);
        // SAFETY: the slot has `len` bytes, and the kernel does not write a slot that the port owns.
        unsafe { core::slice::from_raw_parts(at.as_ptr(), len) }
    }

    /// As [`Self::bytes`], for writing.
    ///
    /// # Safety
    /// As for [`Self::bytes`].
    #[inline]
    unsafe fn bytes_mut(&mut self, index: usize) -> &mut [u8] {
        let (at, len) = self.behind_status(index);
        // SAFETY: as there, and borrowed mutably.
        unsafe { core::slice::from_raw_parts_mut(at.as_ptr(), len) }
    }
}

/// Reads 32 bits at offset `at` of a slot; `bytes` starts behind the status, 4 bytes into it.
#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at - 4..at).and_then(|o| o.first_chunk()).map_or(0, |o| u32::from_ne_bytes(*o))
}

#[inline]
fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at - 4..at - 2).and_then(|o| o.first_chunk()).map_or(0, |o| u16::from_ne_bytes(*o))
}

/// When the kernel put a frame into its slot, by its clock of wall time: if that is set back, frames that wait in two
/// rings just then may change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp {
    pub seconds: u32,
    pub ns: u32,
}

/// A frame that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filled<'a> {
    /// Length of the frame in bytes: more than `frame` has if it is longer than a slot.
    pub len: usize,
    pub frame: &'a [u8],
    /// Its virtio-net header.
    pub lead: [u8; VNET_LEN],
    /// The VLAN tag that the kernel took out of the data.
    pub tag: Option<Tag>,
}

impl<'a> Filled<'a> {
    /// Reads a slot that the kernel has filled; `bytes` is all of it but the status.
    #[inline]
    fn parse(status: u32, bytes: &'a [u8]) -> Self {
        let (len, there, at) = (word(bytes, 4), word(bytes, 8), usize::from(half(bytes, 12)));
        let tpid = half(bytes, 26);
        let tpid = if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 { 0x8100 } else { tpid };
        let tag = status & libc::TP_STATUS_VLAN_VALID != 0;
        let frame = bytes.get(at.saturating_sub(4)..).unwrap_or_default();
        let lead = bytes.get(at.saturating_sub(4 + VNET_LEN)..).and_then(|o| o.first_chunk());
        Self {
            len: len as usize,
            frame: frame.get(..there as usize).unwrap_or_default(),
            lead: lead.copied().unwrap_or_default(),
            tag: tag.then(|| Tag { tpid, tci: half(bytes, 24) }),
        }
    }
}

/// Slots of a receive ring, which the kernel fills.
pub(super) struct RxSlots(Slots);

impl RxSlots {
    /// Makes the receive ring of a socket for `frames` of up to `frame_len_max`.
    pub(super) fn map(fd: BorrowedFd<'_>, frames: usize, frame_len_max: usize) -> io::Result<Self> {
        Slots::map(fd, libc::PACKET_RX_RING, frames, Layout::of_frames(frame_len_max)).map(Self)
    }

    /// Makes the receive ring of a socket for super-frames, beside a ring of `frames`.
    pub(super) fn map_supers(fd: BorrowedFd<'_>, frames: usize) -> io::Result<Self> {
        let blocks = frames.div_ceil(FRAMES_A_BLOCK).min(SUPER_BLOCKS_MAX);
        let layout = Layout::of_supers();
        Slots::map(fd, libc::PACKET_RX_RING, blocks * layout.in_block(), layout).map(Self)
    }

    /// Status of a slot if the kernel has filled it.
    #[inline]
    fn filled(&self, index: usize) -> Option<u32> {
        let status = self.0.status(index).load(Ordering::Acquire); // pairs with the kernel's barrier
        (status & libc::TP_STATUS_USER != 0).then_some(status)
    }

    /// The oldest received frame that was not [released](Self::release).
    #[inline]
    pub(super) fn front(&self) -> Option<Filled<'_>> {
        let status = self.filled(self.0.next)?;
        // SAFETY: a filled slot is the port's until `release`, which needs `&mut self` and cannot run while this is
        // borrowed.
        Some(Filled::parse(status, unsafe { self.0.bytes(self.0.next) }))
    }

    /// When the kernel put the oldest frame into its slot, in an order that holds over the rings of one interface.
    #[inline]
    pub(super) fn stamp(&self) -> Option<Stamp> {
        self.filled(self.0.next)?;
        // SAFETY: as in `front`.
        let bytes = unsafe { self.0.bytes(self.0.next) };
        Some(Stamp { seconds: word(bytes, 16), ns: word(bytes, 20) })
    }

    /// Puts the tag that the kernel took out back into the oldest frame, in its slot.
    pub(super) fn put_tag(&mut self, tag: Tag) {
        if self.filled(self.0.next).is_none() {
            return;
        }
        // SAFETY: as in `front`, and borrowed mutably.
        let bytes = unsafe { self.0.bytes_mut(self.0.next) };
        let (len, there, at) = (word(bytes, 4), word(bytes, 8), usize::from(half(bytes, 12)));
        if at < HEADER_LEN + VNET_LEN {
            return; // the kernel leaves that much
        }
        // The virtio-net header in front of the frame, which has been read, makes room.
        let start = tag::put_tag(bytes, at - 4, tag) + 4;
        // `bytes` begins behind the status, 4 bytes into the slot.
        put(bytes, 0, (len + 4).to_ne_bytes());
        put(bytes, 4, (there + 4).to_ne_bytes());
        put(bytes, 8, u16::try_from(start).unwrap_or(0).to_ne_bytes());
    }

    /// Prefetches the slot [`AHEAD`] of the next.
    #[inline]
    pub(super) fn prefetch(&self) {
        let index = self.0.index(AHEAD.min(self.0.count() - 1));
        for line in 0..3 {
            prefetch(self.0.line(index, line));
        }
    }

    /// Gives the slot of [`Self::front`] back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.0.status(self.0.next).store(KERNEL, Ordering::Release); // we are done with the bytes
        self.0.next = self.0.index(1);
    }

    /// How full the ring is, for the gauge; valid for as long as `self` lives.
    pub(super) fn gauged(&self) -> gauge::Ring {
        let count = self.0.count();
        let probes = gauge::PROBES.min(count);
        // The kernel fills slots in order, so a few at even distances tell how much of the ring is full.
        let word = |n: usize| NonNull::from(self.0.status(n * count / probes));
        gauge::Ring::Slots { words: (0..probes).map(word).collect(), bit: libc::TP_STATUS_USER }
    }

    /// Number of received frames that wait in the ring.
    pub(super) fn waiting(&self) -> usize {
        (0..self.0.count()).take_while(|n| self.filled(self.0.index(*n)).is_some()).count()
    }
}

/// Outcome of a call that has the kernel send a transmit ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Number of frames, from the first, that the kernel took.
    pub sent: usize,
    /// The kernel will never take the next one (`TP_STATUS_WRONG_FORMAT`).
    pub refused: bool,
}

/// Slots of a transmit ring, which the kernel sends.
pub(super) struct TxSlots {
    slots: Slots,
    /// Filled slots that the kernel was not called for yet, from `next` on.
    put: usize,
    /// Slots in front of `next` whose frames a device may still have.
    under_way: usize,
}

impl TxSlots {
    /// Makes the transmit ring of a socket for `frames` of up to `frame_len_max`.
    pub(super) fn map(fd: BorrowedFd<'_>, frames: usize, frame_len_max: usize) -> io::Result<Self> {
        Slots::map(fd, libc::PACKET_TX_RING, frames, Layout::of_frames(frame_len_max))
            .map(Self::over)
    }

    const fn over(slots: Slots) -> Self {
        Self { slots, put: 0, under_way: 0 }
    }

    /// Frames handed to the device and not sent yet.
    #[inline]
    pub(super) fn under_way(&mut self) -> usize {
        let count = self.slots.count();
        while self.under_way > 0 {
            let oldest = self.slots.index(count - self.under_way);
            if self.slots.status(oldest).load(Ordering::Acquire) != AVAILABLE {
                break; // a device sends in order: those after it are under way too
            }
            self.under_way -= 1;
        }
        self.under_way
    }

    /// Fills the next slot, for the kernel to send at the next call; false if no slot is free or the frame does not
    /// fit.
    #[inline]
    pub(super) fn put(&mut self, lead: [u8; VNET_LEN], frame: &[u8]) -> bool {
        let index = self.slots.index(self.put);
        let len = VNET_LEN + frame.len();
        if self.put + self.under_way >= self.slots.count() || HEADER_LEN + len > self.slots.len {
            return false;
        }
        // SAFETY: neither put nor under way, so the kernel has nothing to do with it.
        let bytes = unsafe { self.slots.bytes_mut(index) };
        if let Some((tp_len, rest)) = bytes.split_first_chunk_mut::<4>()
            // `rest` starts 8 bytes into the slot, behind status and length; a frame to send follows the header
            // directly.
            && let Some(data) = rest.get_mut(HEADER_LEN - 8..)
            && let Some((header, data)) = data.split_first_chunk_mut()
            && let Some(data) = data.get_mut(..frame.len())
        {
            *tp_len = u32::try_from(len).unwrap_or(0).to_ne_bytes();
            *header = lead;
            data.copy_from_slice(frame);
        }
        // Release: the kernel must see the frame's bytes once it sees this status.
        self.slots.status(index).store(libc::TP_STATUS_SEND_REQUEST, Ordering::Release);
        self.put += 1;
        true
    }

    /// Reads the outcome of a call; frames that were not sent are taken back out of the ring.
    pub(super) fn settle(&mut self) -> Settled {
        let mut settled = Settled::default();
        for n in 0..self.put {
            match self.slots.status(self.slots.index(n)).load(Ordering::Acquire) {
                // The kernel takes slots in order, so those behind it were not looked at either.
                libc::TP_STATUS_SEND_REQUEST => break,
                libc::TP_STATUS_WRONG_FORMAT => {
                    settled.refused = true;
                    break;
                }
                _ => settled.sent += 1,
            }
        }
        // The kernel's own index stands at the first of these, so the next `put` must start there. Relaxed: the kernel
        // looks at the ring only inside a call of this thread.
        for n in settled.sent..self.put {
            self.slots.status(self.slots.index(n)).store(AVAILABLE, Ordering::Relaxed);
        }
        self.slots.next = self.slots.index(settled.sent);
        (self.put, self.under_way) = (0, self.under_way + settled.sent);
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_LEN_MAX: usize = 1_518;

    fn slots(blocks: u64) -> Slots {
        let memory = Mapping::private(blocks * BLOCK_LEN as u64).unwrap();
        Slots::over(memory, Layout::of_frames(FRAME_LEN_MAX))
    }

    /// Fills a slot as the kernel does: as much of `frame` as fits `room`.
    fn fill(slots: &mut Slots, index: usize, status: u32, frame: &[u8], room: usize) {
        assert_eq!(slots.status(index).load(Ordering::Relaxed), KERNEL, "the kernel's");
        // SAFETY: the test is the kernel.
        let bytes = unsafe { slots.bytes_mut(index) };
        let there = frame.len().min(room);
        let (len, snap) = (u32::try_from(frame.len()).unwrap(), u32::try_from(there).unwrap());
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..8].copy_from_slice(&snap.to_ne_bytes());
        bytes[8..10].copy_from_slice(&76_u16.to_ne_bytes());
        bytes[20..22].copy_from_slice(&0x6005_u16.to_ne_bytes());
        bytes[22..24].copy_from_slice(&0x88A8_u16.to_ne_bytes());
        bytes[62..72].copy_from_slice(&[9; VNET_LEN]);
        bytes[72..72 + there].copy_from_slice(&frame[..there]);
        slots.status(index).store(status, Ordering::Release);
    }

    #[test]
    fn frames_come_in_order_round_and_round_and_a_full_ring_has_no_slot_for_more() {
        let mut rx = RxSlots(slots(2));
        let count = rx.0.count();
        assert_eq!(count, 2 * (BLOCK_LEN / 1_600), "slots of 25 lines, none across a block");
        let (mut given, mut taken) = (0_usize, 0_usize);
        for round in 0..400 {
            let room = count - (given - taken);
            for _ in 0..(round % 50).min(room) {
                let frame = vec![u8::try_from(given % 251).unwrap(); 60 + given % 1_459];
                fill(&mut rx.0, given % count, libc::TP_STATUS_USER, &frame, 9_999);
                given += 1;
            }
            assert_eq!(rx.waiting(), given - taken);
            for _ in 0..round % 47 {
                let Some(front) = rx.front() else { break };
                assert_eq!((front.len, front.frame.len()), (60 + taken % 1_459, front.len));
                assert!(front.frame.iter().all(|o| usize::from(*o) == taken % 251), "{taken}");
                assert_eq!((front.lead, front.tag), ([9; VNET_LEN], None));
                rx.prefetch();
                rx.release();
                taken += 1;
            }
        }
        assert!(taken > 3 * count, "{taken}: it went round");
        while given - taken < count {
            fill(&mut rx.0, given % count, libc::TP_STATUS_USER, &[0; 60], 60);
            given += 1;
        }
        assert_eq!(rx.waiting(), count);
        let next = rx.0.status(given % count).load(Ordering::Relaxed);
        assert_ne!(next, KERNEL, "a full ring has no slot for the kernel");
        rx.release();
        assert_eq!(rx.0.status(given % count).load(Ordering::Relaxed), KERNEL);
    }

    #[test]
    fn what_is_beside_a_frame_is_read() {
        let user = libc::TP_STATUS_USER;
        let (tag, tpid) = (libc::TP_STATUS_VLAN_VALID, libc::TP_STATUS_VLAN_TPID_VALID);
        #[rustfmt::skip] // columns: name, status, bytes of 2,000 that are there, tag
        let cases = [
            ("plain",        user,              2_000, None),
            ("tag",          user | tag | tpid, 2_000, Some((0x88A8, 0x6005))),
            ("without TPID", user | tag,        2_000, Some((0x8100, 0x6005))),
            ("only TPID",    user | tpid,       2_000, None),
            ("cut",          user,              1_000, None),
        ];
        for (name, status, there, tag) in cases {
            let tag = tag.map(|(tpid, tci)| Tag { tpid, tci });
            let layout = Layout::of_frames(2_000);
            let mut rx = RxSlots(Slots::over(slots(1).memory, layout));
            fill(&mut rx.0, 0, status, &[3; 2_000], there);
            let front = rx.front().unwrap();
            assert_eq!((front.len, front.frame.len(), front.tag), (2_000, there, tag), "{name}");
        }
    }

    #[test]
    fn a_tag_is_put_back_in_the_slot() {
        let mut rx = RxSlots(slots(1));
        let frame: Vec<u8> = (0..100).collect();
        fill(&mut rx.0, 0, libc::TP_STATUS_USER, &frame, 9_999);
        rx.put_tag(Tag { tpid: 0x88A8, tci: 0x6005 });
        let front = rx.front().unwrap();
        assert_eq!((front.len, front.frame.len()), (104, 104));
        assert_eq!(front.frame[..12], frame[..12]);
        assert_eq!(front.frame[12..16], [0x88, 0xA8, 0x60, 0x05]);
        assert_eq!(front.frame[16..], frame[12..]);
    }

    #[test]
    fn stamps_say_which_ring_was_filled_first() {
        let mut rings = [RxSlots(slots(1)), RxSlots(slots(1))];
        assert_eq!(rings[0].stamp(), None);
        for (ring, (seconds, ns)) in rings.iter_mut().zip([(7, 999_999_999_u32), (8, 5)]) {
            fill(&mut ring.0, 0, libc::TP_STATUS_USER, &[0; 60], 60);
            // SAFETY: the test is the kernel.
            let bytes = unsafe { ring.0.bytes_mut(0) };
            bytes[12..16].copy_from_slice(&u32::to_ne_bytes(seconds));
            bytes[16..20].copy_from_slice(&ns.to_ne_bytes());
        }
        assert!(rings[0].stamp() < rings[1].stamp());
        assert_eq!(rings[1].stamp(), Some(Stamp { seconds: 8, ns: 5 }));
    }

    #[test]
    fn slots_of_super_frames_fill_their_blocks() {
        let memory = Mapping::private(2 * SUPER_BLOCK_LEN as u64).unwrap();
        let layout = Layout::of_supers();
        let ring = Slots::over(memory, layout);
        assert_eq!(ring.count(), 2 * 15);
        assert!(layout.slot >= RX_FRAME_AT + SUPER_LEN_MAX);
        let ends = ring.offsets.iter().map(|&at| at as usize % SUPER_BLOCK_LEN + layout.slot);
        assert!(ends.max().is_some_and(|end| end <= SUPER_BLOCK_LEN), "none across a block");
    }

    #[test]
    fn lengths_and_places_outside_the_slot_give_no_frame() {
        let bytes = vec![0xFF; slot_len(FRAME_LEN_MAX) - 4];
        let filled = Filled::parse(u32::MAX, &bytes);
        assert_eq!((filled.len, filled.frame), (u32::MAX as usize, &[][..]));
        for len in 0..80 {
            Filled::parse(u32::MAX, &bytes[..len]);
            Filled::parse(libc::TP_STATUS_USER, &vec![0; len]);
        }
    }

    /// Sends from a ring as the kernel does, with these statuses; stops where there is nothing to send.
    fn kernel(tx: &mut TxSlots, head: &mut usize, statuses: &[u32]) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        for status in statuses {
            let index = *head % tx.slots.count();
            if tx.slots.status(index).load(Ordering::Acquire) != libc::TP_STATUS_SEND_REQUEST {
                break;
            }
            // SAFETY: the test is the kernel.
            let bytes = unsafe { tx.slots.bytes(index) };
            let len = u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize;
            assert_eq!(bytes[28..38], [5; VNET_LEN]);
            frames.push(bytes[38..28 + len].to_vec());
            tx.slots.status(index).store(*status, Ordering::Release);
            if *status == libc::TP_STATUS_WRONG_FORMAT {
                break;
            }
            *head += 1;
        }
        frames
    }

    #[test]
    fn what_the_kernel_does_not_take_comes_back_and_the_next_frame_goes_in_its_slot() {
        const SENT: u32 = AVAILABLE;
        const BUSY: u32 = libc::TP_STATUS_SENDING;
        const BAD: u32 = libc::TP_STATUS_WRONG_FORMAT;
        #[rustfmt::skip] // columns: name, frames put, statuses, sent, refused, under way after it
        let cases: [(_, _, &[u32], _, _, _); 6] = [
            ("all",        3, &[SENT; 3],         3, false, 0),
            ("the first",  3, &[SENT],            1, false, 0),
            ("none",       3, &[],                0, false, 0),
            ("one is bad", 3, &[SENT, BAD],       1, true,  0),
            ("first bad",  3, &[BAD],             0, true,  0),
            ("on its way", 3, &[SENT, BUSY, SENT], 3, false, 2),
        ];
        let (mut tx, mut head) = (TxSlots::over(slots(1)), 0);
        for round in 0..100_u8 {
            for (name, put, statuses, sent, refused, under_way) in &cases {
                let frames: Vec<_> = (0..*put).map(|n: u8| vec![round ^ n; 60]).collect();
                assert!(frames.iter().all(|frame| tx.put([5; VNET_LEN], frame)), "{name}");
                let seen = kernel(&mut tx, &mut head, statuses);
                assert_eq!(seen, frames[..statuses.len()], "{name} {round}");
                let want = Settled { sent: *sent, refused: *refused };
                assert_eq!(tx.settle(), want, "{name} {round}");
                assert_eq!(tx.under_way(), *under_way, "{name} {round}");
                for index in 0..tx.slots.count() {
                    tx.slots.status(index).store(AVAILABLE, Ordering::Relaxed); // it is sent
                }
                assert_eq!(tx.under_way(), 0);
            }
        }
        assert!(head > 5 * tx.slots.count(), "it went round");
    }

    #[test]
    fn a_full_ring_takes_no_more_and_no_slot_a_frame_that_is_too_long() {
        let mut tx = TxSlots::over(slots(1));
        assert!(!tx.put([5; VNET_LEN], &[0; 1_600 - 32 - VNET_LEN + 1]));
        assert!(tx.put([5; VNET_LEN], &[0; 1_600 - 32 - VNET_LEN]));
        let count = tx.slots.count();
        assert!((1..count).all(|_| tx.put([5; VNET_LEN], &[0; 60])));
        assert!(!tx.put([5; VNET_LEN], &[0; 60]), "full");
        let mut head = 0;
        kernel(&mut tx, &mut head, &vec![libc::TP_STATUS_SENDING; count]);
        assert_eq!(tx.settle().sent, count);
        assert_eq!(tx.under_way(), count);
        assert!(!tx.put([5; VNET_LEN], &[0; 60]), "all are on their way");
        tx.slots.status(0).store(AVAILABLE, Ordering::Release);
        assert_eq!(tx.under_way(), count - 1);
        assert!(tx.put([5; VNET_LEN], &[0; 60]));
        assert!(!tx.put([5; VNET_LEN], &[0; 60]));
    }
}
