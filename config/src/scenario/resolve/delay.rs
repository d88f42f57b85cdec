//! The delay of an endpoint for each frame, in each direction.
//!
//! The keys of `[endpoint]` become a [`Latency`].
//!
//! Source: docs/spec/model.md §4.

use weft_dataplane::time::Span;
use weft_sim::engine::Latency;

use super::Keys;

/// Keys of the parts of the delay of a sent frame, and of a received one.
pub(super) const SENDING: [&str; 3] = ["t_paxi_tx", "t_rclink_tx", "t_cesoc_tx"];
pub(super) const RECEIVING: [&str; 3] = ["t_paxi_rx", "t_rclink_rx", "t_cesoc_rx"];

/// The delay of an endpoint for each frame: in each direction the sum of its parts, or `delay` where no part of that
/// direction is set.
pub(super) fn host_delay(keys: &Keys<'_>) -> Latency {
    let delay = keys.time("delay").unwrap_or(Span::ZERO);
    let of = |parts: [&'static str; 3]| {
        let is_set = parts.iter().any(|key| keys.set(key).is_some());
        let sum = parts.iter().filter_map(|key| keys.time(key));
        // Beside parts that are set, the others are 0 (docs/spec/model.md §4).
        if is_set { sum.fold(Span::ZERO, |sum, part| sum + part) } else { delay }
    };
    Latency { receive: of(RECEIVING), send: of(SENDING), early: false }
}
