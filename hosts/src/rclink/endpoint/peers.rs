//! The other endpoints: those that a frame came from or a message went to have a state, the others an address.
//!
//! Shape: [`Peers::meet`] makes the state of a peer, which [`Peers::get`] then finds.
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §4.

use std::sync::Arc;

use weft_dataplane::time::Instant;
use weft_parsers::AddrKey;

use crate::frames::{FrameSpec, Station};
use crate::rclink::dcqcn::Dcqcn;
use crate::rclink::queue_pair::RxQp;
use crate::rclink::rate::RateWindow;

/// Peers that memory is taken for at a time.
const GROWTH: usize = 16;

/// A message that is coming.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Incoming {
    /// Its number.
    pub id: u32,
    /// Which of its frames is next.
    pub next: u32,
    /// Bytes of those that came.
    pub bytes: u64,
    /// When its first frame was first sent; `None` if that one has not come.
    pub first: Option<Instant>,
}

/// What a request is answered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ack,
    Nak,
    NotReady,
}

/// The rate of what is sent to one endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerRate {
    pub window: RateWindow,
    pub dcqcn: Option<Dcqcn>,
}

impl PeerRate {
    /// Takes over what the controller says; true if the rate has changed.
    pub fn follow(&mut self) -> bool {
        let Some(rate) = self.dcqcn.map(|dcqcn| dcqcn.rate()) else { return false };
        rate != self.window.threshold() && self.window.set_threshold(rate).is_ok()
    }
}

/// State of what is sent to one endpoint, and of what comes from it.
#[derive(Debug)]
pub(super) struct Peer {
    /// Its rate, where there is one.
    pub rate: Option<Box<PeerRate>>,
    /// Which frame from it is next.
    pub rx: RxQp,
    /// The message from it that is coming.
    pub incoming: Incoming,
    /// When an ACK is to be sent.
    pub ack_due: Option<Instant>,
    /// What as.
    pub answer: Answer,
}

/// All peers of an endpoint.
#[derive(Debug)]
pub(super) struct Peers {
    stations: Arc<[Station]>,
    /// A frame of the endpoint's own kind, from which a peer's key follows.
    frame: FrameSpec,
    own: u16,
    rate: Option<PeerRate>,
    /// By number: place among those that were met, from 1; 0 for none.
    place: Box<[u16]>,
    met: Vec<Peer>,
}

impl Peers {
    /// Nobody was met.
    pub fn new(
        stations: Arc<[Station]>,
        frame: FrameSpec,
        own: u16,
        rate: Option<PeerRate>,
    ) -> Self {
        let place = vec![0; stations.len()].into_boxed_slice();
        Self { stations, frame, own, rate, place, met: Vec::new() }
    }

    /// The address of another endpoint; `None` for the endpoint itself and for numbers that nobody has.
    pub fn station(&self, number: u16) -> Option<Station> {
        self.stations.get(usize::from(number)).copied().filter(|_| number != self.own)
    }

    /// Whether `key` is where frames of endpoint `number` come from.
    pub fn is_source(&mut self, number: u16, key: AddrKey) -> bool {
        let Some(station) = self.station(number) else { return false };
        self.frame.src = station;
        self.frame.source_key().is_some_and(|(source, _)| source == key)
    }

    /// The state of a peer that was met.
    pub fn get(&self, number: u16) -> Option<&Peer> {
        let place = usize::from(*self.place.get(usize::from(number))?);
        self.met.get(place.checked_sub(1)?)
    }

    /// As [`Self::get`], to be changed.
    pub fn get_mut(&mut self, number: u16) -> Option<&mut Peer> {
        let place = usize::from(*self.place.get(usize::from(number))?);
        self.met.get_mut(place.checked_sub(1)?)
    }

    /// The state of a peer, which is made where there is none; `None` as [`Self::station`].
    pub fn meet(&mut self, number: u16) -> Option<&mut Peer> {
        self.station(number)?;
        let place = self.place.get_mut(usize::from(number))?;
        if *place == 0 {
            if self.met.len() == self.met.capacity() {
                self.met.reserve_exact(GROWTH);
            }
            self.met.push(Peer {
                rate: self.rate.map(Box::new),
                rx: RxQp::default(),
                incoming: Incoming::default(),
                ack_due: None,
                answer: Answer::Ack,
            });
            *place = u16::try_from(self.met.len()).unwrap_or(0);
        }
        self.get_mut(number)
    }

    /// Bytes on the heap, without the addresses, which all endpoints share.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        let rates = self.met.iter().filter(|peer| peer.rate.is_some()).count();
        self.place.len() * size_of::<u16>()
            + self.met.capacity() * size_of::<Peer>()
            + rates * (size_of::<PeerRate>() + 16)
    }

    /// Peers that were met.
    pub const fn met(&self) -> usize {
        self.met.len()
    }
}
