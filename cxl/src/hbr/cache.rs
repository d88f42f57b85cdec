//! CXL.cache through an HBR switch: up with the `CacheID` of the port, down by the route table of the upstream port.
//!
//! For a message and the link that it came in by, this file finds the link that it goes out by, or the reason why it is
//! dropped; and it commits the registers that the host has written.
//!
//! Source: CXL 3.1 sections 8.2.4.28, 8.2.4.29; docs/spec/cxl-fabric.md "CXL.cache".

use weft_dataplane::pbr::CacheDecoding;
use weft_parsers::cxl_cache::CacheMessage;

use super::HbrSwitch;
use crate::cache::Outgoing;
use crate::pci::Component;
use crate::pci::component::cache_id::{CacheIdDecoder, Decoding, commit_decoders, regs};

/// Counts of CXL.cache messages at an HBR switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HbrCacheCounts {
    /// Messages that went up.
    pub to_host: u64,
    /// Messages that went down.
    pub to_device: u64,
    /// Messages from a port without `CacheID`, or for a `CacheID` that no port has: dropped.
    pub no_cache_id: u64,
    /// Messages for or from a port whose link is down, disabled or held in reset: dropped.
    pub no_link: u64,
    /// H2D from below, and D2H from above: dropped.
    pub wrong_direction: u64,
}

/// Port behind which each `CacheID` is, as committed last; 0 for none.
pub(super) type CacheRoutes = [u8; regs::TARGET_COUNT as usize];

/// A received message, and the link that it came in by.
pub(super) struct CacheTransit {
    pub from: usize,
    message: Outgoing,
}

impl CacheTransit {
    pub(super) fn new(from: usize, message: &CacheMessage<'_>) -> Self {
        Self { from, message: message.into() }
    }
}

impl HbrSwitch {
    /// Sends a message on, or drops it: CXL.cache cannot refuse one.
    pub(super) fn route_cache(&mut self, mut transit: CacheTransit) {
        let (from, head) = (transit.from, &mut transit.message.head);
        let to_host = head.op.class().is_to_host();
        let reason = if to_host != (from > 0) {
            &mut self.counts.cache.wrong_direction
        } else if let Some((to, cache_id)) = self.cache_way(from, head.cache_id) {
            head.cache_id = cache_id;
            // Also where the message came from: a port that is held in reset or disabled must not be heard.
            if self.is_open(from) && self.pass_cache(&transit.message, to) {
                let counts = &mut self.counts.cache;
                *(if to_host { &mut counts.to_host } else { &mut counts.to_device }) += 1;
                self.counts.passed += 1;
                return;
            }
            &mut self.counts.cache.no_link
        } else {
            &mut self.counts.cache.no_cache_id
        };
        *reason += 1;
        self.counts.dropped += 1;
    }

    /// Link by which a message from the link `from` goes out, and its `CacheID` there.
    fn cache_way(&self, from: usize, told: u8) -> Option<(usize, u8)> {
        if from > 0 {
            // Up: the port decides, whatever the message says, so that no device speaks for another's cache.
            return self.cache_decoding(from).of_message(told).map(|cache_id| (0, cache_id));
        }
        let to = self.cache_routes.get(usize::from(told)).map(|port| usize::from(*port))?;
        // Down: by the table in force, if the port's decoder still lets it have that CacheID.
        self.cache_decoding(to).has(told).then_some((to, told))
    }

    fn pass_cache(&mut self, message: &Outgoing, to: usize) -> bool {
        let end = self.open_end(to);
        end.is_some_and(|end| end.outbox().send_cache(&message.message()).is_ok())
    }

    fn decoder_in_force(&self, port: usize) -> Decoding {
        let component = port.checked_sub(1).and_then(|below| self.decoders.get(below));
        let decoder = component.and_then(Component::cache_id_decoder);
        decoder.map_or(Decoding::default(), CacheIdDecoder::in_force)
    }

    /// The `CacheID`s that devices below a downstream port may have.
    fn cache_decoding(&self, port: usize) -> CacheDecoding {
        let in_force = self.decoder_in_force(port);
        let routes = (0..regs::TARGET_COUNT).zip(self.cache_routes);
        let here = routes.filter(|(_, to)| in_force.forwards && usize::from(*to) == port);
        CacheDecoding::new(in_force.assigns, here.map(|(cache_id, _)| cache_id))
    }

    //= docs/spec/cxl-fabric.md "CacheID": a commit at an HBR switch ends at once
    /// Checks the commits that the host has requested, and applies the valid ones.
    pub(super) fn commit_cache_ids(&mut self) {
        // Decoders first: the table below is checked against those in force.
        let decoders = self.decoders.iter_mut().filter_map(Component::cache_id_decoder_mut);
        commit_decoders(&mut decoders.collect::<Vec<_>>());
        let Some(table) = self.component.cache_id_table_mut() else { return };
        let Some(number) = table.commit.take() else { return };
        // Copied, as the check reads the decoders while `table` borrows the component.
        let wanted: Vec<(u8, u8)> = table.wanted().collect();
        let has =
            |(cache_id, port): &(u8, u8)| self.decoder_in_force(usize::from(*port)).has(*cache_id);
        let is_done = wanted.iter().all(has);
        if is_done {
            // As a whole or not at all: a refused commit leaves the old table in force.
            self.cache_routes = CacheRoutes::default();
            for (cache_id, port) in wanted {
                if let Some(place) = self.cache_routes.get_mut(usize::from(cache_id)) {
                    *place = port;
                }
            }
        }
        if let Some(table) = self.component.cache_id_table_mut() {
            table.commit.end(number, is_done);
        }
    }
}
