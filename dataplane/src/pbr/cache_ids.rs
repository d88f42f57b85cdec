//! `CacheID`s: which caches a host has at which ports, and which of them what is below a port may be.
//!
//! [`CacheRoutes`] in a host's virtual switch, [`CacheDecoding`] at an edge port below; both hold what software has had
//! committed, and start empty.
//!
//! Units: `CacheID`s of 4 bits, PIDs of 12.
//! Source: docs/spec/cxl-fabric.md "CXL.cache"; CXL 3.1 sections 8.2.4.28, 8.2.4.29.
//!
//! A device's word counts for nothing here: its `CacheID` is that of the port that it is behind.

use weft_parsers::fabric::Pid;

/// `CacheID`s of a hierarchy.
pub const CACHE_IDS: u8 = 16;

/// Which port has which `CacheID`, as the edge of a host knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRoutes {
    /// By `CacheID`: PID of the port, of this switch or of another.
    ports: [Pid; CACHE_IDS as usize],
}

impl Default for CacheRoutes {
    fn default() -> Self {
        Self { ports: [Pid::NONE; CACHE_IDS as usize] }
    }
}

impl CacheRoutes {
    /// PID of the port that has a `CacheID`.
    #[inline]
    #[must_use]
    pub fn port(&self, cache_id: u8) -> Option<Pid> {
        self.ports.get(usize::from(cache_id)).copied().filter(|pid| !pid.is_none())
    }

    /// Has `cache_id` be at the port of this PID; one that there is not changes nothing.
    pub fn set(&mut self, cache_id: u8, port: Pid) {
        if let Some(place) = self.ports.get_mut(usize::from(cache_id)) {
            *place = port;
        }
    }
}

/// Which `CacheID`s what is below a port may have: its decoder in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheDecoding {
    /// All below has this one.
    assigns: Option<u8>,
    /// Those that the switch below has set, and that the route table in force leads to this port.
    forwards: u16,
}

impl CacheDecoding {
    /// A decoder that assigns `assigns`, and forwards the `CacheID`s of `forwards`.
    #[must_use]
    pub fn new(assigns: Option<u8>, forwards: impl IntoIterator<Item = u8>) -> Self {
        let bits = forwards.into_iter().filter(|id| *id < CACHE_IDS);
        Self { assigns, forwards: bits.fold(0, |all, id| all | 1 << id) }
    }

    /// The `CacheID` of a message from below that says `told`; `None` where it may have none.
    #[inline]
    #[must_use]
    pub fn of_message(self, told: u8) -> Option<u8> {
        self.assigns.or_else(|| self.has_forwarded(told).then_some(told))
    }

    /// Whether a message for `cache_id` may go below the port.
    #[inline]
    #[must_use]
    pub fn has(self, cache_id: u8) -> bool {
        self.assigns == Some(cache_id) || self.has_forwarded(cache_id)
    }

    #[inline]
    const fn has_forwarded(self, cache_id: u8) -> bool {
        cache_id < CACHE_IDS && self.forwards >> cache_id & 1 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    //= docs/spec/cxl-fabric.md "CXL.cache": Assign decides, whatever the message says; with Forward alone the table does
    #[test]
    fn the_decoder_says_which_cache_a_message_is_of() {
        let none: [u8; 0] = [];
        #[rustfmt::skip] // columns: name, decoder, CacheID of the message, CacheID that it goes on with, may it come from above
        let cases = [
            ("nothing committed",      CacheDecoding::default(),               0, None,    false),
            ("its own",                CacheDecoding::new(Some(5), none),      5, Some(5), true),
            ("another device's",       CacheDecoding::new(Some(5), none),      4, Some(5), false),
            ("0 is one as any other",  CacheDecoding::new(Some(0), none),     15, Some(0), false),
            ("forwarded, first",       CacheDecoding::new(None, [0, 15]),      0, Some(0), true),
            ("forwarded, last",        CacheDecoding::new(None, [0, 15]),     15, Some(15), true),
            ("not led there, 1",       CacheDecoding::new(None, [0, 15]),      1, None,    false),
            ("not led there, 14",      CacheDecoding::new(None, [0, 15]),     14, None,    false),
            ("assigned and forwarded", CacheDecoding::new(Some(5), [6]),       6, Some(5), true),
            ("none such",              CacheDecoding::new(None, [16, 255]),   16, None,    false),
        ];
        for (name, decoder, told, want, comes) in cases {
            assert_eq!((decoder.of_message(told), decoder.has(told)), (want, comes), "{name}");
        }
    }

    #[test]
    fn routes_hold_16_ports() {
        let (mut routes, pid) = (CacheRoutes::default(), Pid::from_low_bits(0x123));
        for cache_id in [0, 15, 16, 255] {
            assert_eq!(routes.port(cache_id), None);
            routes.set(cache_id, pid);
            assert_eq!(routes.port(cache_id), (cache_id < 16).then_some(pid), "{cache_id}");
        }
        routes.set(0, Pid::NONE);
        assert_eq!((routes.port(0), routes.port(1), routes.port(15)), (None, None, Some(pid)));
    }
}
