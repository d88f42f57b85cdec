//! The other endpoints. Each has an address; those that a frame came from or a message was for also have a state.
//!
//! [`Peers::meet`] makes the state of a peer and [`Peers::find`] finds it. Its index, the place, names the peer inside
//! an endpoint: so tables are as long as the number of peers in use.
//!
//! Source: docs/spec/model.md §4.

use std::sync::Arc;

use weft_dataplane::time::Instant;
use weft_parsers::AddrKey;

use super::backlog::NONE;
use crate::frames::{FrameSpec, Kind, Station};
use crate::rclink::dcqcn::Dcqcn;
use crate::rclink::queue_pair::RxQp;
use crate::rclink::rate::RateWindow;

/// Memory for peers grows in steps of this many.
const GROWTH: usize = 16;

/// The message that a peer is sending at the moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Incoming {
    /// Bytes of payload received of it.
    pub bytes: u64,
    /// When its first frame was first sent; meaningful if `has_first` is set.
    pub first: Instant,
    /// Id that its sender gave it.
    pub id: u32,
    /// Index of the frame that is expected next.
    pub next: u32,
}

/// The answer that a peer is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ack,
    Nak,
    NotReady,
}

/// Rate limit of frames to one endpoint, and its controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerRate {
    pub window: RateWindow,
    pub dcqcn: Option<Dcqcn>,
}

impl PeerRate {
    /// Sets the limit to the controller's rate; true if that changes it.
    pub fn follow(&mut self) -> bool {
        let Some(rate) = self.dcqcn.map(|dcqcn| dcqcn.rate()) else { return false };
        rate != self.window.threshold() && self.window.set_threshold(rate).is_ok()
    }
}

/// State of one peer, for both directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// The message that it is sending at the moment.
    pub incoming: Incoming,
    /// First and last message to it that is not completely in slots, as indices of the backlog.
    pub first: u32,
    pub last: u32,
    /// Receiver's state of its queue pair.
    pub rx: RxQp,
    pub number: u16,
    /// The answer that it is to get, if one is due.
    pub answer: Option<Answer>,
    /// Whether the first frame of `incoming` has come, with its send time.
    pub has_first: bool,
}

const _: () = assert!(size_of::<Peer>() <= 40, "an endpoint may have 1,023 of them");

/// All other endpoints, and the state of those in use.
#[derive(Debug)]
pub(super) struct Peers {
    stations: Arc<[Station]>,
    /// Kind of the frames that they send.
    kind: Kind,
    own: u16,
    rate: Option<PeerRate>,
    /// Place of each peer plus 1, by number up to the highest in use; 0 if it has no state.
    places: Vec<u16>,
    met: Vec<Peer>,
    /// Rate limits by place; empty if there are none.
    rates: Vec<PeerRate>,
}

impl Peers {
    /// No peer has a state; all send frames of the endpoint's own kind.
    pub const fn new(
        stations: Arc<[Station]>,
        kind: Kind,
        own: u16,
        rate: Option<PeerRate>,
    ) -> Self {
        Self { stations, kind, own, rate, places: Vec::new(), met: Vec::new(), rates: Vec::new() }
    }

    /// Address of another endpoint; `None` for this endpoint itself and for numbers not in use.
    #[inline]
    pub fn station(&self, number: u16) -> Option<&Station> {
        self.stations.get(usize::from(number)).filter(|_| number != self.own)
    }

    /// Whether frames of endpoint `number` come from address `key`.
    #[inline]
    pub fn is_source(&self, number: u16, key: AddrKey) -> bool {
        self.station(number).is_some_and(|station| {
            FrameSpec::key_of(self.kind, station).is_some_and(|source| source == key)
        })
    }

    /// Place of a peer, if it has a state.
    #[inline]
    pub fn find(&self, number: u16) -> Option<u16> {
        self.places.get(usize::from(number))?.checked_sub(1)
    }

    /// State of the peer at `place`.
    #[inline]
    pub fn at(&self, place: u16) -> Option<&Peer> {
        self.met.get(usize::from(place))
    }

    /// Like [`Self::at`], for changes.
    #[inline]
    pub fn at_mut(&mut self, place: u16) -> Option<&mut Peer> {
        self.met.get_mut(usize::from(place))
    }

    /// Number of the peer at `place`.
    #[inline]
    pub fn number(&self, place: u16) -> u16 {
        self.at(place).map_or(self.own, |peer| peer.number)
    }

    /// Rate limit of frames to the peer at `place`, if there is one.
    #[inline]
    pub fn rate(&mut self, place: u16) -> Option<&mut PeerRate> {
        self.rates.get_mut(usize::from(place))
    }

    /// Place of a peer, whose state is made if necessary; `None` if [`Self::station`] has no address of it.
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
            // Exactly as long as needed: up to 1,024 endpoints have such a table each.
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

    /// Bytes on the heap; the addresses, which all endpoints share, are left out.
    #[cfg(test)]
    pub fn heap_bytes(&self) -> usize {
        self.places.capacity() * size_of::<u16>()
            + self.met.capacity() * size_of::<Peer>()
            + self.rates.capacity() * size_of::<PeerRate>()
    }

    /// Number of peers with a state.
    pub const fn met(&self) -> usize {
        self.met.len()
    }
}
