//! Cables: what joins a wire to whatever is at the other end.
//!
//! [`cable`] → two [`WireEnd`]s, each of which sends [`WireFrame`]s and receives the other's; [`Departures`] tells who
//! steps a component which of its ports frames have left by.
//!
//! Units: bytes without FCS, picoseconds: each frame carries the instant at which its last bit is in.
//! Source: docs/spec/model.md §1, §2.

use weft_base::growing::{Rx, Tx, queue};
use weft_base::sync::{Arc, AtomicBool, AtomicU64, Ordering};

use crate::pool::FRONT_LEN;
use crate::port::disturbance::{Errors, Outages};
use crate::stats::DropReason;
use crate::time::{Instant, LinkRate, Span};
use crate::types::{PortId, PortSet};

/// Bytes on the wire after which the header of a frame is in, preamble included: what a switch looks at.
pub const HEADER_LEN: usize = 72;

/// What is wrong with a frame on a cable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing.
    #[default]
    None,
    /// Its FCS does not match.
    Fcs,
    /// The capture that it comes from holds only its front.
    Truncated,
    /// The capture that it comes from says that it was under 64 bytes on the wire.
    Runt,
}

impl Flaw {
    /// Why a port drops a frame with it before it looks at what is in it.
    #[must_use]
    pub const fn reason(self) -> Option<DropReason> {
        match self {
            Self::None => None,
            Self::Fcs => Some(DropReason::Fcs),
            Self::Truncated => Some(DropReason::Truncated),
            Self::Runt => Some(DropReason::Runt),
        }
    }
}

/// Frames in flight that a cable has room for at first.
const FIRST: usize = 16;

/// A frame on a cable: two cache lines.
#[derive(Debug)]
#[repr(align(64))]
pub struct WireFrame {
    /// When its last bit is in at the end that receives it.
    pub at: Instant,
    len: u32,
    kept: u8,
    /// What is wrong with it.
    pub flaw: Flaw,
    front: [u8; FRONT_LEN],
    /// All bytes, where there are more than fit into `front`.
    whole: Option<Box<[u8]>>,
}

const _: () = assert!(size_of::<WireFrame>() == 128 && FRONT_LEN < 256);

impl WireFrame {
    /// A frame of `len` bytes, of which those of `kept` are carried.
    #[inline]
    fn new(at: Instant, flaw: Flaw, kept: &[u8], len: usize) -> Self {
        Self::filled(at, flaw, kept.len(), len, |bytes| {
            match (bytes.first_chunk_mut::<FRONT_LEN>(), kept.first_chunk::<FRONT_LEN>()) {
                (Some(to), Some(from)) if kept.len() == FRONT_LEN => *to = *from, // of known size: no call
                _ => bytes.copy_from_slice(kept),
            }
        })
    }

    /// A frame of `len` bytes, of which `kept` are carried: `fill` writes them, over zeros.
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
        match (frame.front.get_mut(..kept), u8::try_from(kept)) {
            (Some(front), Ok(count)) => {
                fill(front);
                frame.kept = count;
            }
            _ => fill(frame.whole.insert(vec![0; kept].into())),
        }
        frame
    }

    /// Bytes that it has, without FCS.
    #[inline]
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether it has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its bytes, or the front of them, where nobody reads the rest.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.whole {
            None => self.front.get(..usize::from(self.kept)).unwrap_or(&self.front),
            Some(whole) => whole,
        }
    }
}

/// Which ports of one component frames have left by, and when the first of each is in at the far end.
#[derive(Debug)]
pub struct Departures {
    ports: AtomicU64,
    /// By port: picoseconds, of meaning where its bit is set.
    at: Box<[AtomicU64]>,
}

impl Departures {
    /// Of a component of so many ports.
    #[must_use]
    pub fn new(ports: usize) -> Self {
        Self { ports: AtomicU64::new(0), at: (0..ports).map(|_| AtomicU64::new(0)).collect() }
    }

    /// A frame leaves by `port`. Stamps of a cable do not go back: the first is the earliest.
    #[inline]
    fn note(&self, port: PortId, at: Instant) {
        let (ports, bit) = (self.ports.load(Ordering::Relaxed), PortSet::only(port).bits());
        if ports & bit == 0
            && let Some(slot) = self.at.get(port.index())
        {
            slot.store(at.as_ps(), Ordering::Relaxed);
            self.ports.store(ports | bit, Ordering::Relaxed); // one thread steps a component and asks what left
        }
    }

    /// By which ports frames have left since this was last asked, and when the first of each is in.
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

/// How much earlier than the whole frame its header is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    pub(super) rate: LinkRate,
    pub(super) overhead: bool,
}

impl Early {
    /// From the last bit of the header in to that of a frame of `len` bytes.
    #[inline]
    pub(super) const fn lead(self, len: usize) -> Span {
        let whole = self.rate.wire_time(len, self.overhead).as_ps();
        Span::from_ps(whole.saturating_sub(self.rate.bit_time(HEADER_LEN as u64 * 8).as_ps()))
    }
}

/// One end of a cable: full duplex, first in first out, with room for so many frames in flight.
pub struct WireEnd {
    pub(super) tx: Tx<WireFrame>,
    pub(super) rx: Rx<WireFrame>,
    up: Arc<AtomicBool>,
    /// Who wants to know of frames that leave by this end, and as which port.
    departures: Option<(Arc<Departures>, PortId)>,
    /// The far end takes frames when their header is in.
    early: Option<Early>,
    /// What goes wrong with frames that leave, and when the link is down.
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
    /// Whether there is room for one more frame in flight.
    #[inline]
    pub fn has_room(&mut self) -> bool {
        self.tx.has_room()
    }

    /// Frames on their way to the far end, or waiting there.
    pub fn in_flight(&mut self) -> usize {
        self.tx.len()
    }

    /// Sends a frame whose last bit is in at `at` at the far end; stamps must not go back. False, and
    /// nothing is sent, when the cable is full.
    #[inline]
    pub fn send(&mut self, at: Instant, flaw: Flaw, frame: &[u8]) -> bool {
        self.send_front(at, flaw, frame, frame.len())
    }

    /// As [`Self::send`], a frame of `len` bytes of which `front` is what anybody reads.
    #[inline]
    pub fn send_front(&mut self, at: Instant, flaw: Flaw, front: &[u8], len: usize) -> bool {
        if !self.has_room() {
            return false;
        }
        let flaw = self.leaves(at, len, flaw);
        self.tx.push(WireFrame::new(at, flaw, front, len)).is_ok()
    }

    /// Notes that a frame of `len` bytes leaves; returns what is wrong with it then.
    #[inline]
    pub(super) fn leaves(&mut self, at: Instant, len: usize, flaw: Flaw) -> Flaw {
        if let Some((departures, port)) = &self.departures {
            let lead = self.early.map_or(Span::ZERO, |early| early.lead(len));
            departures.note(*port, at - lead);
        }
        let struck = self.errors.as_mut().is_some_and(|errors| errors.strike(len));
        if struck && flaw == Flaw::None { Flaw::Fcs } else { flaw }
    }

    /// Has frames that leave by this end damaged at random.
    pub fn set_errors(&mut self, errors: Errors) {
        self.errors = Some(Box::new(errors));
    }

    /// Has the link go down and up, as this end sees it: the other one is to have the same.
    pub fn set_outages(&mut self, outages: Outages) {
        self.outages = Some(Box::new(outages));
    }

    /// Has frames that leave by this end noted as those of `port`.
    pub fn note_departures(&mut self, departures: Arc<Departures>, port: PortId) {
        self.departures = Some((departures, port));
    }

    /// Has departures noted for when a frame's header is in at the far end, which takes it then.
    pub const fn note_headers(&mut self, rate: LinkRate, overhead: bool) {
        self.early = Some(Early { rate, overhead });
    }

    /// When the last bit of the next frame is in here; `None` while the cable is empty.
    #[inline]
    pub fn next_arrival(&mut self) -> Option<Instant> {
        self.rx.front().map(|frame| frame.at)
    }

    /// Takes the next frame if its last bit is in by `now`.
    #[inline]
    pub fn receive(&mut self, now: Instant) -> Option<WireFrame> {
        if self.rx.front()?.at > now {
            return None;
        }
        self.rx.pop()
    }

    /// Plugs the cable in or pulls it; both ends see it.
    pub fn set_link(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed); // one thread drives a virtual-time world
    }

    /// Whether the cable is plugged in.
    #[inline]
    #[must_use]
    pub fn link_up(&self) -> bool {
        self.up.load(Ordering::Relaxed)
    }

    /// Loses what is in flight towards this end; returns how many frames that was.
    pub fn lose(&mut self) -> u64 {
        let mut lost = 0;
        while self.rx.pop().is_some() {
            lost += 1;
        }
        lost
    }
}
