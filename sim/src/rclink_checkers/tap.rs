//! A port between an endpoint and its own port, which notes the frames that pass.
//!
//! Source: docs/spec/model.md §4.

use weft_dataplane::batch::Batch;
use weft_dataplane::desc::Desc;
use weft_dataplane::pool::Bufs;
use weft_dataplane::port::{Port, PortCaps, PortCounters, PortError};
use weft_dataplane::time::Instant;

use crate::rclink_heard::{Frame, Heard, Reader};

/// A port that notes all frames, and passes them on.
pub struct Tap<'a, P> {
    /// The endpoint's own port.
    pub port: &'a mut P,
    /// Reader of its frames.
    pub reader: &'a Reader,
    /// Observations in order, to which frames are added.
    pub heard: &'a mut Vec<(Instant, Heard)>,
}

impl<P> Tap<'_, P> {
    fn read(&self, bufs: &Bufs, desc: &Desc, is_sent: bool) -> Frame {
        self.reader.read(bufs.head(desc), desc.len(), bufs.bytes(desc), is_sent)
    }
}

impl<P: Port> Port for Tap<'_, P> {
    fn caps(&self) -> &PortCaps {
        self.port.caps()
    }

    fn rx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        let before = batch.len();
        let had = self.port.rx(now, bufs, batch);
        for desc in batch.iter().skip(before) {
            let frame = self.read(bufs, desc, false);
            self.heard.push((now, Heard::Came(frame)));
        }
        had
    }

    fn tx_room(&mut self, now: Instant) -> usize {
        self.port.tx_room(now)
    }

    fn tx(&mut self, now: Instant, bufs: &mut Bufs, batch: &mut Batch) -> usize {
        // Read before they are handed over: the port gives their chunks back.
        let frames: Vec<Frame> = batch.iter().map(|desc| self.read(bufs, desc, true)).collect();
        let sent = self.port.tx(now, bufs, batch);
        let frames = frames.into_iter().take(sent);
        self.heard.extend(frames.map(|frame| (now, Heard::Sent(frame))));
        sent
    }

    fn service(&mut self, now: Instant, bufs: &mut Bufs) -> Result<(), PortError> {
        self.port.service(now, bufs)
    }

    fn link_up(&self) -> bool {
        self.port.link_up()
    }

    fn counters(&self) -> PortCounters {
        self.port.counters()
    }

    fn next_event(&self) -> Option<Instant> {
        self.port.next_event()
    }

    fn idle_at(&self) -> Option<Instant> {
        self.port.idle_at()
    }

    fn release(&mut self, bufs: &mut Bufs) {
        self.port.release(bufs);
    }
}
