//! Cables between the ports of components.
//!
//! Components are added with their numbers of ports, then [`Cables::lay`] lays each cable; a [`super::Schedule`] takes
//! the result.
//!
//! Source: docs/spec/model.md §1.

use weft_base::sync::Arc;
use weft_dataplane::port::wire::{Departures, HEADER_LEN, WireEnd, cable};
use weft_dataplane::time::{LinkRate, Span};
use weft_dataplane::types::PortId;

/// Least length of a frame: an Ethernet header without padding.
const FRAME_LEN_LEAST: usize = 14;
/// Most frames that all cables together may hold, which is some gigabytes.
const FRAMES_MAX: u64 = 1 << 26;

/// A port of a component, as the end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the component.
    pub component: usize,
    /// Port of the component.
    pub port: PortId,
}

/// Properties of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableSpec {
    /// Rate of the link, the same both ways.
    pub rate: LinkRate,
    /// Time that a bit takes along the cable.
    pub propagation: Span,
    /// Whether frames take their true wire time ([`LinkRate::wire_time`]), with preamble and gap.
    pub overhead: bool,
}

impl CableSpec {
    /// Least time from the start of a frame to the arrival of its last bit; above 0 at any rate.
    #[must_use]
    pub const fn delay(&self) -> Span {
        Span::from_ps(self.least_frame().as_ps() + self.propagation.as_ps())
    }

    /// Least time from the start of a frame to the arrival of its header's last bit.
    const fn header_delay(&self) -> Span {
        let header = self.rate.bit_time(HEADER_LEN as u64 * 8).as_ps();
        let least = self.least_frame().as_ps();
        Span::from_ps(if header < least { header } else { least } + self.propagation.as_ps())
    }

    const fn least_frame(&self) -> Span {
        self.rate.wire_time(FRAME_LEN_LEAST, self.overhead)
    }

    /// Frames that the cable holds each way if its ends take `latency` for each, while the sender is ahead of the
    /// receiver by no more than the way back takes.
    fn frames(&self, latency: Span) -> u64 {
        let ps = |span: Span| u128::from(span.as_ps());
        let least = ps(self.least_frame()).max(1);
        // The formula is that of docs/spec/model.md §1.
        let span = 2 * (ps(self.propagation) + ps(latency)) + least;
        u64::try_from(span.div_ceil(least) + 2).unwrap_or(u64::MAX)
    }
}

/// Time that a component takes for each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// From the arrival of a frame's last bit until the component is due for it.
    pub receive: Span,
    /// From a step of the component to the first bit of a frame that it sends in it.
    pub send: Span,
    /// Whether it is due for a frame when its header has arrived, for cut-through.
    pub early: bool,
}

impl Latency {
    /// The same latency each way, counted from a frame's last bit.
    #[must_use]
    pub const fn both_ways(span: Span) -> Self {
        Self { receive: span, send: span, early: false }
    }
}

/// Why a cable cannot be laid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CableError {
    /// A port that does not exist or has a cable.
    #[error("port {port} of component {component} is not there, or taken", port = .0.port.index(), component = .0.component)]
    Port(Place),
    /// The cable would have to hold too many frames, as it is too long or its ends are too slow.
    #[error("a cable can hold {frames} frames: expected {most} at most of all cables together")]
    Room {
        /// Frames that it would hold, both ways together.
        frames: u64,
        /// Most that all cables together may hold.
        most: u64,
    },
}

/// A component while cables are being laid.
struct Socket {
    departures: Arc<Departures>,
    ports: Vec<Option<(WireEnd, Peer)>>,
    latency: Latency,
}

/// The component at the far end of a port's cable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub component: usize,
    /// Its port at that end.
    pub port: PortId,
    /// From the arrival of a frame's last bit until the component is due.
    pub latency: Span,
    /// Least time from now until it is due for a frame that is sent now.
    pub delay: Span,
}

/// Connections of a component.
pub(super) struct Links {
    pub departures: Arc<Departures>,
    /// Far ends, by port.
    pub peers: Box<[Option<Peer>]>,
}

/// Components and the cables between them, before a run.
#[derive(Default)]
pub struct Cables {
    components: Vec<Socket>,
    /// Frames that the cables laid so far can hold.
    frames: u64,
}

impl Cables {
    /// No components and no cables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a component with `ports` ports; returns its number.
    pub fn add(&mut self, ports: usize, latency: Latency) -> usize {
        let departures = Arc::new(Departures::new(ports));
        let ports = (0..ports).map(|_| None).collect();
        self.components.push(Socket { departures, ports, latency });
        self.components.len() - 1
    }

    /// Lays a cable between two ports.
    ///
    /// # Errors
    /// A port that does not exist or has a cable; a cable that would have to hold too many frames.
    pub fn lay(&mut self, a: Place, b: Place, spec: &CableSpec) -> Result<(), CableError> {
        let latencies = [self.free(a)?, self.free(b)?];
        self.lay_with(a, b, spec, latencies)
    }

    /// Lays a cable for messages that components send and take at once, like credits beside the data: their latencies
    /// do not count.
    ///
    /// # Errors
    /// Those of [`Self::lay`].
    pub fn lay_beside(&mut self, a: Place, b: Place, spec: &CableSpec) -> Result<(), CableError> {
        self.free(a)?;
        self.free(b)?;
        self.lay_with(a, b, spec, [Latency::default(); 2])
    }

    fn lay_with(
        &mut self,
        a: Place,
        b: Place,
        spec: &CableSpec,
        [latency_a, latency_b]: [Latency; 2],
    ) -> Result<(), CableError> {
        if a == b {
            return Err(CableError::Port(b));
        }
        let ways = [(latency_a, latency_b), (latency_b, latency_a)];
        // The greater latency of the two ways counts (docs/spec/model.md §1).
        let latency = ways.map(|(from, to)| from.send + to.receive);
        let latency = latency[0].max(latency[1]);
        let each_way = spec.frames(latency);
        let both = each_way.saturating_mul(2);
        self.frames = self.frames.saturating_add(both);
        if self.frames > FRAMES_MAX {
            return Err(CableError::Room { frames: both, most: FRAMES_MAX });
        }
        let (end_a, end_b) = cable(usize::try_from(each_way).unwrap_or(usize::MAX));
        let ends = [(a, end_a, b), (b, end_b, a)];
        for ((place, mut end, far), (from, to)) in ends.into_iter().zip(ways) {
            let Some(socket) = self.components.get_mut(place.component) else { continue };
            end.note_departures(socket.departures.clone(), place.port);
            let mut delay = spec.delay();
            // A component that cuts through is due for a header, so the lookahead is shorter.
            if to.early {
                end.note_headers(spec.rate, spec.overhead);
                delay = spec.header_delay();
            }
            let (component, latency) = (far.component, to.receive);
            let peer =
                Peer { component, port: far.port, latency, delay: delay + from.send + latency };
            if let Some(slot) = socket.ports.get_mut(place.port.index()) {
                *slot = Some((end, peer));
            }
        }
        Ok(())
    }

    /// Latency of a component whose port `place` has no cable yet.
    fn free(&self, place: Place) -> Result<Latency, CableError> {
        let socket = self.components.get(place.component);
        let free = socket
            .filter(|socket| socket.ports.get(place.port.index()).is_some_and(Option::is_none));
        free.map(|socket| socket.latency).ok_or(CableError::Port(place))
    }

    /// For each component its connections and the ends of its cables, by port; `None` where there is no cable.
    pub(super) fn finish(self) -> (Vec<Links>, Vec<Vec<Option<WireEnd>>>) {
        let mut links = Vec::with_capacity(self.components.len());
        let mut all = Vec::with_capacity(self.components.len());
        for Socket { departures, ports, .. } in self.components {
            let (ends, peers): (_, Vec<_>) = ports.into_iter().map(Option::unzip).unzip();
            links.push(Links { departures, peers: peers.into() });
            all.push(ends);
        }
        (links, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cables_hold_what_is_on_them() {
        // 14 bytes at 100 Gb/s take 84 bytes' time, 6.72 ns.
        let spec = |propagation| {
            let (rate, overhead) = (LinkRate::gbps(100), true);
            CableSpec { rate, propagation, overhead }
        };
        let lay = |cables: &mut Cables, spec: &CableSpec, latency: Latency| {
            let [a, b] = [0, 1]
                .map(|_| Place { component: cables.add(1, latency), port: PortId::default() });
            cables.lay(a, b, spec).map_err(|error| match error {
                CableError::Room { frames, .. } => frames,
                CableError::Port(place) => panic!("{place:?}"),
            })
        };
        let none = Latency::default();
        let mut cables = Cables::new();
        assert_eq!(lay(&mut cables, &spec(Span::from_ps(67_200)), none), Ok(()));
        assert_eq!(cables.frames, 2 * (21 + 2));
        // 100 days each way.
        let far = spec(Span::from_us(8_640_000_000_000));
        let frames = 2 * 8_640_000_000_000_000_000_u64.div_ceil(3_360) + 6;
        assert_eq!(lay(&mut cables, &far, none), Err(frames));
        let slow = Latency { receive: Span::from_us(1_000_000), ..none };
        assert!(lay(&mut Cables::new(), &spec(Span::ZERO), slow).is_err());
    }
}
