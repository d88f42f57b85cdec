//! The receiving half of a host.
//!
//! It takes frames off the port, and feeds PFC state, stream checkers and the buffer of a slow receiver.
//!
//! Source: docs/spec/pipeline.md §1 (which MAC Control frames act), §9.

use super::{ANNOUNCE, BURST, Batch, Bufs, Format, HEAD_LEN, Host, Instant, LinkRate, Port};
use weft_parsers::mac_control::opcode;
use weft_parsers::{Head, Pfc};

use crate::frames::receive;
use crate::stamp::Reading;
use crate::stream::rx::{Arrival, StreamRx, count};

/// Most bursts that one poll takes in, so that sending is not starved.
const RX_BURSTS: usize = 16;

impl Host {
    /// Receives what the port has; returns how many frames came, and whether more may wait.
    pub(super) fn take_in(
        &mut self,
        now: Instant,
        rate: LinkRate,
        port: &mut dyn Port,
        bufs: &mut Bufs,
    ) -> (usize, bool) {
        let mut batch = Batch::new();
        let mut received = 0;
        // in virtual time a burst is one frame, and asking again costs no system call
        let full = if port.caps().virtual_time { 1 } else { BURST };
        for _ in 0..RX_BURSTS {
            let had = port.rx(now, bufs, &mut batch);
            // Read after the frames were taken, so that no frame seems to arrive before it was sent.
            let now = self.arrival_clock.filter(|_| had > 0).map_or(now, |clock| clock());
            for desc in batch.drain(..) {
                self.take(now, rate, bufs.head(&desc), bufs.bytes(&desc));
                bufs.free(desc);
            }
            received += had;
            if had < full {
                return (received, false);
            }
        }
        (received, true)
    }

    fn take(&mut self, now: Instant, rate: LinkRate, head: &[u8; HEAD_LEN], frame: &[u8]) {
        let Ok(received) = receive(head, frame, &self.parse) else {
            self.other.malformed += 1;
            return;
        };
        let head = received.head;
        // MAC Control ends at a link: it has no priority and takes no room in the slow receiver.
        if head.format() == Format::MacControl {
            self.take_control(now, rate, &head, frame);
            return;
        }
        let pri = self.classes.pri(&head);
        self.rx_table.add(head.format(), pri, frame.len());
        match received.reading {
            Reading::Foreign => self.other.foreign += 1,
            Reading::Broken => self.other.broken += 1,
            Reading::Mark(mark) if mark.stream == ANNOUNCE => self.other.announcements += 1,
            Reading::Mark(mark) => {
                let arrival = Arrival {
                    now,
                    len: frame.len(),
                    format: head.format(),
                    pri,
                    ecn: head.ecn(),
                    flaw: received.flaw,
                };
                let keep = self.keep_arrivals;
                let new = || StreamRx::keeping_arrivals(keep);
                self.streams_rx.entry(mark.stream).or_insert_with(new).record(&mark, &arrival);
            }
        }
        // Whatever was wrong with it, a frame takes up buffer.
        if let Some(slow) = &mut self.slow {
            slow.push(now, pri, frame.len());
        }
    }

    fn take_control(&mut self, now: Instant, rate: LinkRate, head: &Head, frame: &[u8]) {
        match head.mac_control_opcode() {
            // A PFC frame to another address does not act (docs/spec/pipeline.md §1), and counts as other MAC Control.
            Some(opcode::PFC) if head.pfc_da() => match Pfc::parse(frame) {
                Ok(pfc) => {
                    self.control.pfc_rx += 1;
                    note_classes(&pfc, &mut self.control.stop_rx, &mut self.control.go_rx);
                    if self.honour_pfc {
                        self.pauses.receive(now, &pfc, rate);
                    }
                }
                Err(_) => self.control.pfc_malformed += 1,
            },
            // PAUSE of IEEE 802.3 stops nothing, here as at the switch (docs/spec/pipeline.md §9).
            Some(opcode::PAUSE) => self.control.pause_rx += 1,
            _ => self.control.other_rx += 1,
        }
    }
}

/// Counts for each class whether a PFC frame stops or releases it.
pub(super) fn note_classes(pfc: &Pfc, stop: &mut [u64; 8], go: &mut [u64; 8]) {
    for class in 0..8u8 {
        match pfc.class(class) {
            Some(0) => count(go, usize::from(class)),
            Some(_) => count(stop, usize::from(class)),
            None => {}
        }
    }
}
