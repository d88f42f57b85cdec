//! Leases: how long a host may use the lines that a device has granted it.
//!
//! A device gives up on a host that leaves a snoop unanswered, and the host may not know: it was stopped, or frames
//! were lost. So a host uses a line only for a term that ends, on its own clock, before the device can have given up.
//! [`Leases::renew`] takes the number that a response names; [`Leases::is_valid`] is asked before each use of a line.
//! Terms are in units of 100 µs.
//!
//! Source: docs/spec/cxl-fabric.md "A host that does not answer"; Gray and Cheriton, "Leases", SOSP 1989.

use std::collections::BTreeMap;

use weft_dataplane::time::{Instant, Span};
use weft_parsers::cxl_mem::Lease;

/// Most leases at once: one for each device, and another after a device has given up on the host. Lines granted by a
/// lease beyond that are used once.
const LEASES_MAX: usize = 1_024;

/// End of each valid lease by its number: one for each device, and those that devices have replaced until they run out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Leases {
    now: Instant,
    ends: BTreeMap<u64, Instant>,
}

impl Leases {
    /// Advances to `now` and drops leases that are over. The caller reads the clock after the loads and stores to be
    /// served were submitted.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
        self.ends.retain(|_, end| *end > now);
    }

    /// Extends a lease by a response to the request that was sent at `sent`.
    pub fn renew(&mut self, lease: Lease, sent: Instant) {
        // Counted from the request, not the response: the device counts its own half of the time limit from later than
        // that, so the host's term always ends first.
        let end = sent + Span::from_us(u64::from(lease.term) * Lease::UNIT_US);
        let has_room = self.ends.len() < LEASES_MAX || self.ends.contains_key(&lease.number);
        if lease.number == 0 || end <= self.now || !has_room {
            return;
        }
        // Responses overtake each other: an older one must not shorten a lease that a newer one has extended.
        let known = self.ends.entry(lease.number).or_insert(end);
        *known = end.max(*known);
    }

    /// Whether a line that was granted with lease `number` may be used now.
    #[must_use]
    pub fn is_valid(&self, number: u64) -> bool {
        // `set_now` has removed all leases that are over. Number 0, no lease, is never inserted.
        self.ends.contains_key(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Span::from_us(us)
    }

    /// A lease counts from the request and ends for good; a lease with another number does not renew it.
    #[test]
    fn a_lease_counts_from_when_it_was_asked_for() {
        let mut leases = Leases::default();
        let lease = |number, term| Lease { number, term };
        leases.set_now(at(500));
        leases.renew(lease(7, 3), at(200)); // already over when it comes
        assert!(!leases.is_valid(7));
        leases.renew(lease(7, 3), at(300));
        leases.renew(lease(7, 3), at(250)); // an answer that was overtaken shortens nothing
        leases.renew(lease(0, 9), at(500));
        assert!(leases.is_valid(7) && !leases.is_valid(0) && !leases.is_valid(8));
        leases.set_now(at(599));
        assert!(leases.is_valid(7));
        leases.set_now(at(600));
        leases.renew(lease(8, 3), at(600));
        assert!(!leases.is_valid(7) && leases.is_valid(8));
    }
}
