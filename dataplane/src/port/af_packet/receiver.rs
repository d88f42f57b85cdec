//! The receiving side: copies each frame from its slot into a chunk, and splits super-frames, which have a ring of their
//! own, into the frames that the sender's TCP meant, so that queues and rates see only these.
//!
//! A super-frame that need not wait in a queue is handed on from its slot as it is ([`Receiver::whole`]). VLAN tags that
//! the kernel took out are put back.
//!
//! Source: packet(7); docs/spec/pipeline.md §11.

use std::os::fd::OwnedFd;

use super::super::csum;
use super::super::gso::{GSO_NONE, Splitter};
use super::super::super_frames::SuperFrame;
use super::super::tag::{Tag, put_tag};
use super::super::vnet::VnetHeader;
use super::slots::{Filled, RxSlots, Stamp};
use crate::batch::Batch;
use crate::desc::Desc;
use crate::pool::Bufs;
use crate::port::PortCounters;
use crate::stats::DropReason;

/// Room in front of a kept super-frame for a tag.
const TAG_ROOM: usize = 4;

/// A receiving socket and its ring.
pub(super) struct Ring {
    // Fields drop in this order: the ring is unmapped, then the socket closed. The kernel keeps the pages until then.
    pub slots: RxSlots,
    pub socket: OwnedFd,
}

/// What an interface is received by: a ring for frames of the port's length, and one for longer ones.
pub(super) struct Rings {
    pub frames: Ring,
    pub supers: Ring,
}

/// A super-frame that is being split.
struct Splitting {
    splitter: Splitter,
    from: Source,
}

/// Where the bytes of a super-frame are.
#[derive(Clone, Copy)]
enum Source {
    /// In the first slot of its ring.
    Slot(VnetHeader),
    /// In the receiver's memory, from here on: it came in a slot for frames, as it is no longer than these.
    Kept(usize),
}

/// Moves frames from rings into bursts.
pub(super) struct Receiver {
    frame_len_max: usize,
    splitting: Option<Splitting>,
    /// A super-frame that is no longer than a frame.
    kept: Vec<u8>,
    pub super_frames: u64,
}

impl Receiver {
    pub(super) const fn new(frame_len_max: usize) -> Self {
        Self { frame_len_max, splitting: None, kept: Vec::new(), super_frames: 0 }
    }

    /// Forgets the super-frame that is being split.
    pub(super) fn clear(&mut self) {
        self.splitting = None;
    }

    /// Fills `batch`, first from the super-frame being split, then from `rings`, if the interface is there. Unless it
    /// begins with a super-frame, it ends before the next one, which the caller may take whole.
    pub(super) fn receive(
        &mut self,
        rings: Option<&mut Rings>,
        bufs: &mut Bufs,
        batch: &mut Batch,
        counters: &mut PortCounters,
    ) {
        let Some(rings) = rings else { return };
        let begins_with_super = self.splitting.is_some() || First::of(rings) == First::Super;
        while !batch.is_full() {
            if let Some(splitting) = &self.splitting {
                // The sender joins segments again only within one burst. So end this burst early if the rest of the
                // super-frame fits a whole one.
                let (left, room) = (splitting.splitter.left(), batch.remaining_capacity());
                if room < left && left <= batch.capacity() {
                    break;
                }
                self.deliver_parts(&mut rings.supers, bufs, batch, counters);
                continue;
            }
            match First::of(rings) {
                First::Frame => self.deliver_front(&mut rings.frames, bufs, batch, counters),
                First::Super if begins_with_super => {
                    self.begin_super(&mut rings.supers, counters);
                }
                First::Super | First::None => break,
            }
        }
    }

    /// The super-frame that comes next, if no part of it has been handed on.
    pub(super) fn whole<'a>(
        &'a mut self,
        rings: &'a mut Rings,
        counters: &mut PortCounters,
    ) -> Option<SuperFrame<'a>> {
        while self.splitting.is_none() && First::of(rings) == First::Super {
            self.begin_super(&mut rings.supers, counters);
        }
        let Splitting { splitter, from: Source::Slot(header) } = self.splitting.as_ref()? else {
            return None;
        };
        if !splitter.is_at_start() {
            return None;
        }
        let bytes = rings.supers.slots.front()?.frame;
        Some(SuperFrame { bytes, header: *header, splitter })
    }

    /// Ends the reception of the super-frame that [`Self::whole`] returned.
    pub(super) fn end_whole(&mut self, rings: &mut Rings) {
        if self.splitting.take().is_some() {
            rings.supers.slots.release();
        }
    }

    /// Hands on the first frame of its ring, or counts why not.
    #[inline]
    fn deliver_front(
        &mut self,
        ring: &mut Ring,
        bufs: &mut Bufs,
        batch: &mut Batch,
        counters: &mut PortCounters,
    ) {
        let Some(front) = ring.slots.front() else { return };
        ring.slots.prefetch();
        // The kernel counts csum_start in the data without the tag; putting the tag back moves it by 4 bytes.
        let header = VnetHeader::parse(front.lead, if front.tag.is_some() { 4 } else { 0 });
        if front.frame.len() < front.len {
            counters.rx_drop(DropReason::TooLong); // for its slot; the socket's filter lets none through
        } else if header.gso_type == GSO_NONE {
            match self.copied(front.frame, front.tag, bufs) {
                Ok(mut desc) => {
                    csum::received(bufs, &mut desc, header.partial);
                    batch.push(desc);
                }
                Err(reason) => counters.rx_drop(reason),
            }
        } else {
            self.keep(front.frame, front.tag, header, counters);
        }
        ring.slots.release();
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

    /// Copies a super-frame aside, as its slot is for frames, and begins to split it.
    fn keep(
        &mut self,
        frame: &[u8],
        tag: Option<Tag>,
        header: VnetHeader,
        counters: &mut PortCounters,
    ) {
        self.kept.clear();
        self.kept.resize(TAG_ROOM, 0);
        self.kept.extend_from_slice(frame);
        let start = tag.map_or(TAG_ROOM, |tag| put_tag(&mut self.kept, TAG_ROOM, tag));
        if let Err(reason) = self.split(Source::Kept(start), header, &[]) {
            counters.rx_drop(reason);
        }
    }

    /// Begins to split the first super-frame of its ring, or counts why not.
    fn begin_super(&mut self, ring: &mut Ring, counters: &mut PortCounters) {
        let Some(Filled { len, frame, lead, tag }) = ring.slots.front() else { return };
        let header = VnetHeader::parse(lead, if tag.is_some() { 4 } else { 0 });
        let found = if frame.len() < len || header.gso_type == GSO_NONE {
            Err(DropReason::TooLong)
        } else {
            if let Some(tag) = tag {
                ring.slots.put_tag(tag);
            }
            let bytes = ring.slots.front().map_or(&[][..], |front| front.frame);
            self.split(Source::Slot(header), header, bytes)
        };
        if let Err(reason) = found {
            counters.rx_drop(reason);
            ring.slots.release();
        }
    }

    /// Begins to split a super-frame, which is in `slot` unless it is kept; or says why it is dropped.
    fn split(&mut self, from: Source, header: VnetHeader, slot: &[u8]) -> Result<(), DropReason> {
        let bytes = match from {
            Source::Kept(start) => self.kept.get(start..).unwrap_or_default(),
            Source::Slot(_) => slot,
        };
        let sum = header.partial.map(|partial| partial.start);
        match Splitter::new(bytes, header.gso_type, header.gso_size, sum) {
            Ok(splitter) if splitter.is_worth_it() => {
                self.super_frames += 1;
                self.splitting = Some(Splitting { splitter, from });
                Ok(())
            }
            _ => Err(DropReason::BadGso),
        }
    }

    /// Hands on segments of the super-frame; those that find no room in `batch` wait for the next call.
    fn deliver_parts(
        &mut self,
        supers: &mut Ring,
        bufs: &mut Bufs,
        batch: &mut Batch,
        counters: &mut PortCounters,
    ) {
        let Some(Splitting { mut splitter, from }) = self.splitting.take() else { return };
        let bytes = match from {
            Source::Kept(start) => self.kept.get(start..),
            Source::Slot(_) => supers.slots.front().map(|front| front.frame),
        };
        let bytes = bytes.unwrap_or_default();
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
        if splitter.left() > 0 {
            self.splitting = Some(Splitting { splitter, from });
        } else if matches!(from, Source::Slot(_)) {
            supers.slots.release();
        }
    }
}

/// Which of the frames that wait came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Frame,
    Super,
    None,
}

impl First {
    fn of(rings: &Rings) -> Self {
        Self::decide(|| rings.frames.slots.stamp(), || rings.supers.slots.stamp())
    }

    /// Decides by looks at both rings, which the kernel fills meanwhile. Frames of one flow become visible in their order,
    /// so a frame may only be taken if the other ring was looked at after it was seen: what came before it was visible then.
    #[inline]
    fn decide(frame: impl Fn() -> Option<Stamp>, super_frame: impl Fn() -> Option<Stamp>) -> Self {
        let has_frame = frame().is_some();
        match super_frame() {
            Some(found) if frame().is_none_or(|other| found <= other) => Self::Super,
            // A frame that only the second look has found came before the super-frame.
            Some(_) => Self::Frame,
            None if has_frame => Self::Frame,
            None => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use weft_base::rng::Rng;

    use super::*;

    /// A frame becomes visible when this many looks have been made.
    #[derive(Clone, Copy)]
    struct Arrival {
        at: u32,
        is_super: bool,
    }

    #[test]
    fn frames_of_both_rings_are_taken_in_order_whenever_the_kernel_fills_them() {
        let mut rng = Rng::new(1);
        for round in 0..20_000 {
            let mut at = 0;
            let arrivals: Vec<_> = (0..8)
                .map(|_| {
                    at += u32::try_from(rng.below(3)).unwrap();
                    Arrival { at, is_super: rng.below(2) == 0 }
                })
                .collect();
            let looks = Cell::new(0);
            let taken = Cell::new(0);
            let look = |is_super| {
                looks.set(looks.get() + 1);
                let waits = |(n, arrival): &(u32, &Arrival)| {
                    *n >= taken.get() && arrival.is_super == is_super && arrival.at < looks.get()
                };
                let found = (0..).zip(&arrivals).find(waits);
                found.map(|(n, _)| Stamp { seconds: 7, ns: n })
            };
            while let Some(next) = arrivals.get(taken.get() as usize) {
                match First::decide(|| look(false), || look(true)) {
                    First::None => continue,
                    first => assert_eq!(first == First::Super, next.is_super, "{round}"),
                }
                taken.set(taken.get() + 1);
            }
        }
    }
}
