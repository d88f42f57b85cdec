//! Cables between components.
//!
//! Components and their ports, then [`Cables::lay`] for each cable; a [`super::Schedule`] takes all.
//!
//! Units: picoseconds, frames.
//! Source: docs/spec/model.md §1.

use weft_base::sync::Arc;
use weft_dataplane::port::wire::{Departures, HEADER_LEN, WireEnd, cable};
use weft_dataplane::time::{LinkRate, Span};
use weft_dataplane::types::PortId;

/// No frame is shorter: an Ethernet header.
const FRAME_LEN_LEAST: usize = 14;
/// Frames that all cables can hold together at most: some gigabytes.
const FRAMES_MAX: u64 = 1 << 26;

/// A port of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Which component.
    pub component: usize,
    /// Which of its ports.
    pub port: PortId,
}

/// What a cable is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CableSpec {
    /// Rate of the link, each way.
    pub rate: LinkRate,
    /// From a bit sent to that bit in.
    pub propagation: Span,
    /// Whether frames take their true wire time ([`LinkRate::wire_time`]).
    pub overhead: bool,
}

impl CableSpec {
    /// The least time from the start of a frame to its last bit in: above 0, whatever the rate.
    #[must_use]
    pub const fn delay(&self) -> Span {
        Span::from_ps(self.least_frame().as_ps() + self.propagation.as_ps())
    }

    /// As [`Self::delay`], to the last bit of the header.
    const fn header_delay(&self) -> Span {
        let header = self.rate.bit_time(HEADER_LEN as u64 * 8).as_ps();
        let least = self.least_frame().as_ps();
        Span::from_ps(if header < least { header } else { least } + self.propagation.as_ps())
    }

    const fn least_frame(&self) -> Span {
        self.rate.wire_time(FRAME_LEN_LEAST, self.overhead)
    }

    /// Frames that fit into the cable, each way, while its ends take `latency` more for each, and who sends is ahead of who
    /// receives by no more than what is sent to it takes.
    fn frames(&self, latency: Span) -> u64 {
        let ps = |span: Span| u128::from(span.as_ps());
        let least = ps(self.least_frame()).max(1);
        let span = 2 * (ps(self.propagation) + ps(latency)) + least;
        u64::try_from(span.div_ceil(least) + 2).unwrap_or(u64::MAX)
    }
}

/// What a component takes for each frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// From a frame's last bit in to when the component is due for it.
    pub receive: Span,
    /// From when a component is stepped to the first bit of what it sends then.
    pub send: Span,
    /// Whether it is due for a frame when the header is in, not the last bit.
    pub early: bool,
}

impl Latency {
    /// So much each way, from a frame's last bit in.
    #[must_use]
    pub const fn both_ways(span: Span) -> Self {
        Self { receive: span, send: span, early: false }
    }
}

/// A cable cannot be laid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CableError {
    /// An end of it.
    #[error("port {port} of component {component} is not there, or taken", port = .0.port.index(), component = .0.component)]
    Port(Place),
    /// It is so long, or its ends are so slow, that there is no room for what it carries.
    #[error("a cable can hold {frames} frames: expected {most} at most of all cables together")]
    Room {
        /// Frames that it can hold, both ways.
        frames: u64,
        /// Most of all.
        most: u64,
    },
}

/// A component while cables are laid.
struct Socket {
    departures: Arc<Departures>,
    ports: Vec<Option<(WireEnd, Peer)>>,
    latency: Latency,
}

/// What is at the far end of a port's cable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub component: usize,
    /// Which of its ports.
    pub port: PortId,
    /// From a frame's last bit in to when the component is due.
    pub latency: Span,
    /// The least time from now to when it is due for a frame that is sent now.
    pub delay: Span,
}

/// How a component is joined to others.
pub(super) struct Links {
    pub departures: Arc<Departures>,
    /// By port.
    pub peers: Box<[Option<Peer>]>,
}

/// Components and the cables between them.
#[derive(Default)]
pub struct Cables {
    components: Vec<Socket>,
    /// Frames that they can hold.
    frames: u64,
}

impl Cables {
    /// No components.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a component of so many ports; returns its number.
    pub fn add(&mut self, ports: usize, latency: Latency) -> usize {
        let departures = Arc::new(Departures::new(ports));
        let ports = (0..ports).map(|_| None).collect();
        self.components.push(Socket { departures, ports, latency });
        self.components.len() - 1
    }

    /// Lays a cable.
    ///
    /// # Errors
    /// A port that is not there or has a cable; no room for what it carries.
    pub fn lay(&mut self, a: Place, b: Place, spec: &CableSpec) -> Result<(), CableError> {
        let latencies = [self.free(a)?, self.free(b)?];
        self.lay_with(a, b, spec, latencies)
    }

    /// Lays a cable on which components send and take at once what is no frame to them: their latency does not count.
    ///
    /// # Errors
    /// As [`Self::lay`].
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

    /// The latency of a component whose port has no cable yet.
    fn free(&self, place: Place) -> Result<Latency, CableError> {
        let socket = self.components.get(place.component);
        let free = socket
            .filter(|socket| socket.ports.get(place.port.index()).is_some_and(Option::is_none));
        free.map(|socket| socket.latency).ok_or(CableError::Port(place))
    }

    /// How each component is joined to others, and the ends of its cables, by port; `None` where there is no cable.
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
