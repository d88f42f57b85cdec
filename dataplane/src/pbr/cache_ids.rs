//! `CacheID`s: the port of each cache of a host, and the `CacheID`s that devices below a port may use.
//!
//! A host's virtual switch has [`CacheRoutes`], an edge port below has a [`CacheDecoding`]. Both hold the values that
//! software has committed, and start empty. A device does not choose its `CacheID`: the port that it is behind decides.
//!
//! Source: docs/spec/cxl-fabric.md "CXL.cache"; CXL 3.1 sections 8.2.4.28, 8.2.4.29.

use weft_parsers::fabric::Pid;

/// `CacheID`s of a hierarchy; they have 4 bits.
pub const CACHE_IDS: u8 = 16;

/// Ports by `CacheID`, as known to the edge of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRoutes {
    /// By `CacheID`: PID of the port, on this switch or another; `0xFFF` if there is none.
    ports: [Pid; CACHE_IDS as usize],
}

impl Default for CacheRoutes {
    fn default() -> Self {
        Self { ports: [Pid::NONE; CACHE_IDS as usize] }
    }
}

impl CacheRoutes {
    /// PID of the port with the cache `cache_id`; `None` if there is none.
    #[inline]
    #[must_use]
    pub fn port(&self, cache_id: u8) -> Option<Pid> {
        self.ports.get(usize::from(cache_id)).copied().filter(|pid| !pid.is_none())
    }

    /// Sets the port of `cache_id` by PID; ignored if there is no such `CacheID`.
    pub fn set(&mut self, cache_id: u8, port: Pid) {
        if let Some(place) = self.ports.get_mut(usize::from(cache_id)) {
            *place = port;
        }
    }
}

/// `CacheID`s that devices below a port may use: its committed decoder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheDecoding {
    /// The `CacheID` assigned to all devices below.
    assigns: Option<u8>,
    /// Bit set of `CacheID`s that the switch below may set, because the committed route table leads them to this port.
    forwards: u16,
}

impl CacheDecoding {
    /// A decoder that assigns `assigns` and forwards the `CacheID`s of `forwards`.
    #[must_use]
    pub fn new(assigns: Option<u8>, forwards: impl IntoIterator<Item = u8>) -> Self {
        let bits = forwards.into_iter().filter(|id| *id < CACHE_IDS);
        Self { assigns, forwards: bits.fold(0, |all, id| all | 1 << id) }
    }

    /// `CacheID` of a message from below that carries `told`; `None` if it may not use any.
    #[inline]
    #[must_use]
    pub fn of_message(self, told: u8) -> Option<u8> {
        // An assigned CacheID replaces the message's own: no device can use another one's (docs/spec/cxl-fabric.md, "CXL.cache").
        self.assigns.or_else(|| self.has_forwarded(told).then_some(told))
    }

    /// Whether a message for `cache_id` may leave by the port.
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
