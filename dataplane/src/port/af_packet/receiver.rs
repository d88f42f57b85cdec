//! The receiving side: copies each slot's frame into a chunk; super-frames, and frames longer than a slot, pass through
//! scratch memory.
//!
//! VLAN tags that the kernel took out are put back, and super-frames are split into the frames that the sender's TCP
//! meant, so that queues and rates see only these.
//!
//! Source: packet(7); docs/spec/pipeline.md §11.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use super::super::csum;
use super::super::gso::{GSO_NONE, Splitter};
use super::super::tag::{Tag, put_tag};
use super::super::vnet::VnetHeader;
use super::messages::{MESSAGES, RxMessages, Scratch};
use super::slots::RxSlots;
use crate::batch::Batch;
use crate::desc::Desc;
use crate::pool::Bufs;
use crate::port::PortCounters;
use crate::stats::DropReason;

/// A super-frame that is being split.
struct Splitting {
    frame: Scratch,
    splitter: Splitter,
}

/// A receiving socket and its ring.
pub(super) struct Ring {
    // Fields drop in this order: the ring is unmapped, then the socket closed. The kernel keeps the pages until then.
    pub slots: RxSlots,
    pub socket: OwnedFd,
}

/// Moves frames from a ring into bursts.
pub(super) struct Receiver {
    frame_len_max: usize,
    messages: RxMessages,
    splitting: Option<Splitting>,
    pub super_frames: u64,
    pub system_calls: u64,
}

/// A slot's header for a frame that does not fit the slot.
#[derive(Clone, Copy)]
struct CutFrame {
    /// Length of the whole frame in bytes, tag not included.
    len: usize,
    tag: Option<Tag>,
    /// The whole frame waits as a message of the socket.
    queued: bool,
}

/// Why a burst ends before it is full.
pub(super) enum Stop {
    /// The ring has no more frames, or the call is to be tried again later.
    Empty,
    /// The kernel refused a call.
    Refused(io::Error),
}

impl Receiver {
    pub(super) fn new(frame_len_max: usize) -> Self {
        Self {
            frame_len_max,
            messages: RxMessages::new(),
            splitting: None,
            super_frames: 0,
            system_calls: 0,
        }
    }

    /// Forgets frames that were received and not handed on.
    pub(super) fn clear(&mut self) {
        self.splitting = None;
        self.forget_messages();
    }

    /// Forgets messages whose slots are gone. The super-frame being split stays: its bytes are in scratch memory.
    pub(super) fn forget_messages(&mut self) {
        self.messages.clear();
    }

    /// Fills `batch`, first from the super-frame being split, then from `ring`, if the interface is there.
    pub(super) fn receive(
        &mut self,
        ring: Option<&mut Ring>,
        bufs: &mut Bufs,
        batch: &mut Batch,
        counters: &mut PortCounters,
    ) -> io::Result<()> {
        let mut ring = ring;
        while !batch.is_full() {
            if let Some(splitting) = &self.splitting {
                // The sender joins segments again only within one burst. So end this burst early if the rest of the
                // super-frame fits a whole one.
                let (left, room) = (splitting.splitter.left(), batch.remaining_capacity());
                if room < left && left <= batch.capacity() {
                    break;
                }
                self.deliver_parts(bufs, batch, counters);
                continue;
            }
            let Some(ring) = &mut ring else { break };
            match self.deliver_front(ring, bufs, batch, counters) {
                Ok(()) => {}
                Err(Stop::Empty) => break,
                Err(Stop::Refused(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Hands on the frame of the first slot, or counts why not.
    #[inline]
    fn deliver_front(
        &mut self,
        ring: &mut Ring,
        bufs: &mut Bufs,
        batch: &mut Batch,
        counters: &mut PortCounters,
    ) -> Result<(), Stop> {
        let front = ring.slots.front().ok_or(Stop::Empty)?;
        ring.slots.prefetch();
        // Fewer bytes in the slot than the frame has: it was longer than the slot.
        if front.frame.len() < front.len {
            let cut = CutFrame { len: front.len, tag: front.tag, queued: front.queued };
            return self.deliver_message(ring, cut, bufs, batch, counters);
        }
        // The kernel counts csum_start in the data without the tag; putting the tag back moves it by 4 bytes.
        let header = VnetHeader::parse(front.lead, if front.tag.is_some() { 4 } else { 0 });
        if header.gso_type == GSO_NONE {
            match self.copied(front.frame, front.tag, bufs) {
                Ok(mut desc) => {
                    csum::received(bufs, &mut desc, header.partial);
                    batch.push(desc);
                }
                Err(reason) => counters.rx_drop(reason),
            }
        } else if let Some(kept) = self.messages.keep(front.frame) {
            self.split(kept, front.tag, header, counters);
        }
        ring.slots.release();
        Ok(())
    }

    /// Copies a frame into a chunk and puts its tag back.
    #[inline]
    fn copied(&self, frame: &[u8], tag: Option<Tag>, bufs: &mut Bufs) -> Result<Desc, DropReason> {
        let whole = frame.len() + if tag.is_some() { 4 } else { 0 };
        // Shorter than two addresses and an EtherType: the pipeline could not parse it.
        if frame.len() < 14 {
            return Err(DropReason::Malformed);
        }
        if whole > self.frame_len_max || frame.len() > bufs.room() {
            return Err(DropReason::TooLong);
        }
        let mut desc = bufs.alloc_from(frame).ok_or(DropReason::Pool)?;
        if let Some(tag) = tag
            && let Some((chunk, start)) = bufs.chunk_mut(&mut desc)
        {
            let start = put_tag(chunk, start, tag);
            bufs.set_bounds(&mut desc, start, whole);
        }
        Ok(desc)
    }

    /// Hands on a frame that does not fit its slot; if its receive buffer had room, the kernel queued the frame as a
    /// message.
    #[cold]
    fn deliver_message(
        &mut self,
        ring: &mut Ring,
        CutFrame { len, tag, queued }: CutFrame,
        bufs: &mut Bufs,
        batch: &mut Batch,
        counters: &mut PortCounters,
    ) -> Result<(), Stop> {
        if queued && self.messages.is_empty() {
            self.system_calls += 1;
            let count = ring.slots.queued(4 * MESSAGES).min(MESSAGES);
            match self.messages.receive(ring.socket.as_fd(), count) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::EAGAIN) => {}
                Err(e) if e.raw_os_error() == Some(libc::EINTR) => return Err(Stop::Empty),
                Err(e) => return Err(Stop::Refused(e)), // the message is still there
            }
        }
        let message = if queued { self.messages.take() } else { None };
        // Only now: had the call failed, the slot would have to stay in front of its message for the next try.
        ring.slots.release();
        let Some((lead, frame)) = message else {
            counters.kernel_rx += 1; // its buffer for such frames was full
            return Ok(());
        };
        // The message was cut (longer than SUPER_LEN_MAX), or is not the one that the slot announced.
        let Some(frame) = frame.filter(|frame| frame.len == len) else {
            counters.rx_drop(DropReason::TooLong);
            return Ok(());
        };
        let header = VnetHeader::parse(lead, if tag.is_some() { 4 } else { 0 });
        if header.gso_type != GSO_NONE {
            self.split(frame, tag, header, counters);
            return Ok(());
        }
        match self.copied(self.messages.frame(frame), tag, bufs) {
            Ok(mut desc) => {
                csum::received(bufs, &mut desc, header.partial);
                batch.push(desc);
            }
            Err(reason) => counters.rx_drop(reason),
        }
        Ok(())
    }

    /// Begins to split a super-frame.
    fn split(
        &mut self,
        frame: Scratch,
        tag: Option<Tag>,
        header: VnetHeader,
        counters: &mut PortCounters,
    ) {
        let frame = tag.map_or(frame, |tag| self.messages.put_tag(frame, tag));
        let bytes = self.messages.frame(frame);
        let sum = header.partial.map(|p| p.start);
        match Splitter::new(bytes, header.gso_type, header.gso_size, sum) {
            Ok(splitter) if splitter.is_worth_it() => {
                self.super_frames += 1;
                self.splitting = Some(Splitting { frame, splitter });
            }
            _ => counters.rx_drop(DropReason::BadGso),
        }
    }

    /// Hands on the segments of the super-frame; those that find no room in `batch` wait for the next call.
    fn deliver_parts(&mut self, bufs: &mut Bufs, batch: &mut Batch, counters: &mut PortCounters) {
        let Some(Splitting { frame, mut splitter }) = self.splitting.take() else { return };
        let bytes = self.messages.frame(frame);
        while splitter.left() > 0 && !batch.is_full() {
            if splitter.next_len() > self.frame_len_max.min(bufs.room()) {
                counters.rx_drop(DropReason::TooLong);
                // A dropped segment must advance sequence number and IP id for the ones behind it, like a sent one.
                splitter.skip();
                continue;
            }
            let Some(mut desc) = bufs.alloc() else {
                counters.rx_drop(DropReason::Pool);
                splitter.skip();
                continue;
            };
            let made = bufs.space_mut(&mut desc).and_then(|into| splitter.emit(bytes, into));
            let Some((len, partial)) = made else {
                bufs.free(desc);
                counters.rx_drop(DropReason::BadGso);
                splitter.skip();
                continue;
            };
            bufs.set_len(&mut desc, len);
            bufs.set_partial_csum(&mut desc, Some(partial));
            batch.push(desc);
        }
        self.splitting = (splitter.left() > 0).then_some(Splitting { frame, splitter });
    }
}
