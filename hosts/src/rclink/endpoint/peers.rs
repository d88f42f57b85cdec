//! The other endpoints: those that a frame came from or a message went to have a state, the others an address.
//!
//! [`Peers::meet`] makes the state of a peer, which [`Peers::find`] then finds: its place is what it is named by in the
//! endpoint.
//!
//! Units: picoseconds, bytes of payload.
//! Source: docs/spec/model.md §4.

use std::sync::Arc;

use weft_dataplane::time::Instant;
use weft_parsers::AddrKey;

use super::backlog::NONE;
use crate::frames::{FrameSpec, Kind, Station};
use crate::rclink::dcqcn::Dcqcn;
use crate::rclink::queue_pair::RxQp;
use crate::rclink::rate::RateWindow;

/// Peers that memory is taken for at a time.
const GROWTH: usize = 16;

/// A message that is coming.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Incoming {
    /// Bytes of its frames that came.
    pub bytes: u64,
    /// When its first frame was first sent; of meaning where `has_first`.
    pub first: Instant,
    /// Its number.
    pub id: u32,
    /// Which of its frames is next.
    pub next: u32,
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
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// The message from it that is coming.
    pub incoming: Incoming,
    /// Messages to it that are not all in slots: the first and the last one.
    pub first: u32,
    pub last: u32,
    /// Which frame from it is next.
    pub rx: RxQp,
    pub number: u16,
    /// What it is to be answered by, if it is.
    pub answer: Option<Answer>,
    /// Whether the first frame of `incoming` has come, with a time.
    pub has_first: bool,
}

const _: () = assert!(size_of::<Peer>() <= 40, "an endpoint may have 1,023 of them");

/// All peers of an endpoint.
#[derive(Debug)]
pub(super) struct Peers {
    stations: Arc<[Station]>,
    /// Kind of the frames that come from them.
    kind: Kind,
    own: u16,
    rate: Option<PeerRate>,
    /// By number, up to the highest one that was met: place among those that were, from 1; 0 for none.
    places: Vec<u16>,
    met: Vec<Peer>,
    /// By place, where there is a rate.
    rates: Vec<PeerRate>,
}

impl Peers {
    /// Nobody was met; all send frames of the endpoint's own kind.
    pub const fn new(
        stations: Arc<[Station]>,
        kind: Kind,
        own: u16,
        rate: Option<PeerRate>,
    ) -> Self {
        Self { stations, kind, own, rate, places: Vec::new(), met: Vec::new(), rates: Vec::new() }
    }

    /// The address of another endpoint; `None` for the endpoint itself and for numbers that nobody has.
    #[inline]
    pub fn station(&self, number: u16) -> Option<&Station> {
        self.stations.get(usize::from(number)).filter(|_| number != self.own)
    }

    /// Whether `key` is where frames of endpoint `number` come from.
    #[inline]
    pub fn is_source(&self, number: u16, key: AddrKey) -> bool {
        self.station(number).is_some_and(|station| {
            FrameSpec::key_of(self.kind, station).is_some_and(|source| source == key)
        })
    }

    /// The place of a peer that was met.
    #[inline]
    pub fn find(&self, number: u16) -> Option<u16> {
        self.places.get(usize::from(number))?.checked_sub(1)
    }

    /// A peer by its place.
    #[inline]
    pub fn at(&self, place: u16) -> Option<&Peer> {
        self.met.get(usize::from(place))
    }

    /// As [`Self::at`], to be changed.
    #[inline]
    pub fn at_mut(&mut self, place: u16) -> Option<&mut Peer> {
        self.met.get_mut(usize::from(place))
    }

    /// The number of the peer at `place`.
    #[inline]
    pub fn number(&self, place: u16) -> u16 {
        self.at(place).map_or(self.own, |peer| peer.number)
    }

    /// The rate of what is sent to the peer at `place`, where there is one.
    #[inline]
    pub fn rate(&mut self, place: u16) -> Option<&mut PeerRate> {
        self.rates.get_mut(usize::from(place))
    }

    /// The place of a peer, whose state is made where there is none; `None` as [`Self::station`].
    #[inline]
    pub fn meet(&mut self, number: u16) -> Option<u16> {
        match self.find(number) {
            Some(place) => Some(place),
            None => self.make(number),
        }
    }

    #[cold]
    fn make(&mut self, number: u16) -> Option<u16> {
        self.station(number)?;
        let (index, place) = (usize::from(number), u16::try_from(self.met.len()).ok()?);
        if self.places.len() <= index {
            self.places.reserve_exact(index + 1 - self.places.len());
            self.places.resize(index + 1, 0);
        }
        *self.places.get_mut(index)? = place + 1;
        if self.met.len() == self.met.capacity() {
            self.met.reserve_exact(GROWTH);
        }
        self.met.push(Peer {
            incoming: Incoming::default(),
            first: NONE,
            last: NONE,
            rx: RxQp::default(),
            number,
            answer: None,
            has_first: false,
        });
        self.rates.extend(self.rate);
        Some(place)
    }

    /// Bytes on the heap, without the addresses, which all endpoints share.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u16>()
            + self.met.capacity() * size_of::<Peer>()
            + self.rates.capacity() * size_of::<PeerRate>()
    }

    /// Peers that were met.
    pub const fn met(&self) -> usize {
        self.met.len()
    }
}
