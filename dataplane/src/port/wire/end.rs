//! Cables: join a wire to the component at the other end.
//!
//! [`cable`] makes two [`WireEnd`]s; each sends [`WireFrame`]s and receives the other's. [`Departures`] tells a
//! scheduler by which ports of a component frames have left. Each frame carries the instant at which its last bit
//! arrives.
//!
//! Source: docs/spec/model.md §1, §2.

use weft_base::growing::{Rx, Tx, queue};
use weft_base::sync::{Arc, AtomicBool, AtomicU64, Ordering};

use crate::pool::FRONT_LEN;
use crate::port::disturbance::{Errors, Outages};
use crate::port::flaw::Flaw;
use crate::time::{Instant, LinkRate, Span};
use crate::types::{PortId, PortSet};

/// Bytes on the wire, preamble included, after which a switch has the whole header of a frame.
pub const HEADER_LEN: usize = 72;

/// Frames for which a cable has memory at first; its ring grows up to its depth.
const FIRST: usize = 16;

/// A frame on a cable: two cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub struct WireFrame {
    /// Time at which its last bit arrives at the receiving end.
    pub at: Instant,
    len: u32,
    kept: u8,
    /// Damage on the way so far.
    pub flaw: Flaw,
    front: [u8; FRONT_LEN],
    /// All bytes, if there are more than fit into `front`.
    whole: Option<Box<[u8]>>,
}

const _: () = assert!(size_of::<WireFrame>() == 128 && FRONT_LEN < 256);

impl WireFrame {
    /// A frame of `len` bytes, of which only `kept` are carried.
    #[inline]
    fn new(at: Instant, flaw: Flaw, kept: &[u8], len: usize) -> Self {
        Self::filled(at, flaw, kept.len(), len, |bytes| {
            match (bytes.first_chunk_mut::<FRONT_LEN>(), kept.first_chunk::<FRONT_LEN>()) {
                (Some(to), Some(from)) if kept.len() == FRONT_LEN => *to = *from, // constant size: moves, no call
                _ => bytes.copy_from_slice(kept),
            }
        })
    }

    /// A frame of `len` bytes, of which `kept` are carried; `fill` writes them, over zeros.
    #[inline]
    pub(super) fn filled(
        at: Instant,
        flaw: Flaw,
        kept: usize,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Self {
        let len = u32::try_from(len).unwrap_or(u32::MAX); // no frame comes near it
        let mut frame = Self { at, len, kept: 0, flaw, front: [0; FRONT_LEN], whole: None };
        // In virtual time nearly all frames are fronts: they fit the ring's slot and need no allocation.
        match (frame.front.get_mut(..kept), u8::try_from(kept)) {
            (Some(front), Ok(count)) => {
                fill(front);
                frame.kept = count;
            }
            _ => fill(frame.whole.insert(vec![0; kept].into())),
        }
        frame
    }

    /// Length in bytes, without FCS.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether its length is 0.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The frame's bytes, or its front if no receiver reads the rest.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.whole {
            None => self.front.get(..usize::from(self.kept)).unwrap_or(&self.front),
            Some(whole) => whole,
        }
    }
}

/// Ports of one component by which frames have left, and when the first of each arrives at the far end.
#[derive(Debug)]
pub struct Departures {
    ports: AtomicU64,
    /// Arrival by port in picoseconds; valid while the port's bit in `ports` is set.
    at: Box<[AtomicU64]>,
}

impl Departures {
    /// Departures of a component with `ports` ports.
    #[must_use]
    pub fn new(ports: usize) -> Self {
        Self { ports: AtomicU64::new(0), at: (0..ports).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Notes a frame that leaves by `port`. Arrivals on a cable are in order, so the first is the earliest.
    #[inline]
    fn note(&self, port: PortId, at: Instant) {
        let (ports, bit) = (self.ports.load(Ordering::Relaxed), PortSet::only(port).bits());
        if ports & bit == 0
            && let Some(slot) = self.at.get(port.index())
        {
            slot.store(at.as_ps(), Ordering::Relaxed);
            self.ports.store(ports | bit, Ordering::Relaxed); // Relaxed: the thread that steps the component also asks
        }
    }

    /// Ports by which frames have left since the last call, and when the first of each arrives.
    #[inline]
    pub fn take(&self) -> impl Iterator<Item = (PortId, Instant)> + '_ {
        let ports = self.ports.load(Ordering::Relaxed);
        if ports != 0 {
            self.ports.store(0, Ordering::Relaxed);
        }
        PortSet::from_bits(ports).iter().filter_map(|port| {
            let at = self.at.get(port.index())?.load(Ordering::Relaxed);
            Some((port, Instant::from_ps(at)))
        })
    }
}

/// Computes by how much a frame's header arrives before its last bit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    pub(super) rate: LinkRate,
    pub(super) overhead: bool,
}

impl Early {
    /// Time from the arrival of the header's last bit to that of a frame of `len` bytes.
    #[inline]
    pub(super) const fn lead(self, len: usize) -> Span {
        let whole = self.rate.wire_time(len, self.overhead).as_ps();
        Span::from_ps(whole.saturating_sub(self.rate.bit_time(HEADER_LEN as u64 * 8).as_ps()))
    }
}

/// One end of a cable: full duplex, first in first out, with a bound on the frames in flight.
pub struct WireEnd {
    pub(super) tx: Tx<WireFrame>,
    pub(super) rx: Rx<WireFrame>,
    up: Arc<AtomicBool>,
    /// Where departures by this end are noted, and as which port.
    departures: Option<(Arc<Departures>, PortId)>,
    /// Set if the far end takes frames when their header has arrived.
    early: Option<Early>,
    /// Random damage to frames that leave, and times at which the link is down.
    pub(super) errors: Option<Box<Errors>>,
    pub(super) outages: Option<Box<Outages>>,
}

/// A cable that holds up to `depth` frames each way; its link is up.
///
/// # Panics
/// When `depth` is 0.
#[must_use]
pub fn cable(depth: usize) -> (WireEnd, WireEnd) {
    let (a_tx, b_rx) = queue(FIRST, depth);
    let (b_tx, a_rx) = queue(FIRST, depth);
    let up = Arc::new(AtomicBool::new(true));
    let end = |tx, rx| WireEnd {
        tx,
        rx,
        up: up.clone(),
        departures: None,
        early: None,
        errors: None,
        outages: None,
    };
    (end(a_tx, a_rx), end(b_tx, b_rx))
}

impl WireEnd {
    /// Whether one more frame can be in flight.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.tx.has_room()
    }

    /// Frames on their way to the far end, or waiting there.
    pub fn in_flight(&mut self) -> usize {
        self.tx.len()
    }

    /// Sends a frame whose last bit arrives at `at` at the far end; arrivals must be in order. Returns false, and sends
    /// nothing, if the cable is full.
    #[inline]
    pub fn send(&mut self, at: Instant, flaw: Flaw, frame: &[u8]) -> bool {
        self.send_front(at, flaw, frame, frame.len())
    }

    /// Like [`Self::send`], for a frame of `len` bytes of which receivers read only `front`.
    #[inline]
    pub fn send_front(&mut self, at: Instant, flaw: Flaw, front: &[u8], len: usize) -> bool {
        // Before `leaves`: a frame that is not sent must neither be noted nor use up a random number.
        if !self.has_room() {
            return false;
        }
        let flaw = self.leaves(at, len, flaw);
        self.tx.push(WireFrame::new(at, flaw, front, len)).is_ok()
    }

    /// Notes that a frame of `len` bytes leaves; returns its damage, which may be new.
    #[inline]
    pub(super) fn leaves(&mut self, at: Instant, len: usize, flaw: Flaw) -> Flaw {
        if let Some((departures, port)) = &self.departures {
            // A cut-through receiver is due when the header arrives, before the last bit.
            let lead = self.early.map_or(Span::ZERO, |early| early.lead(len));
            departures.note(*port, at - lead);
        }
        let struck = self.errors.as_mut().is_some_and(|errors| errors.strike(len));
        if struck && flaw == Flaw::None { Flaw::Fcs } else { flaw }
    }

    /// Damages frames that leave by this end at random.
    pub fn set_errors(&mut self, errors: Errors) {
        self.errors = Some(Box::new(errors));
    }

    /// Takes the link down and up, as this end sees it; the other end must get the same outages.
    pub fn set_outages(&mut self, outages: Outages) {
        self.outages = Some(Box::new(outages));
    }

    /// Notes frames that leave by this end as departures of `port`.
    pub fn note_departures(&mut self, departures: Arc<Departures>, port: PortId) {
        self.departures = Some((departures, port));
    }

    /// Notes departures by the arrival of a frame's header, for a far end that takes frames then (cut-through).
    pub const fn note_headers(&mut self, rate: LinkRate, overhead: bool) {
        self.early = Some(Early { rate, overhead });
    }

    /// Time at which the last bit of the next frame arrives; `None` while the cable is empty.
    #[inline]
    pub fn next_arrival(&mut self) -> Option<Instant> {
        self.rx.front().map(|frame| frame.at)
    }

    /// Takes the next frame if its last bit has arrived by `now`.
    #[inline]
    pub fn receive(&mut self, now: Instant) -> Option<WireFrame> {
        if self.rx.front()?.at > now {
            return None;
        }
        self.rx.pop()
    }

    /// Plugs the cable in or pulls it; both ends see it.
    pub fn set_link(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed); // Relaxed: no data depends on it
    }

    /// Whether the cable is plugged in.
    #[inline]
    #[must_use]
    pub fn link_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Discards frames in flight towards this end; returns how many.
    pub fn lose(&mut self) -> u64 {
        let mut lost = 0;
        while self.rx.pop().is_some() {
            lost += 1;
        }
        lost
    }
}
