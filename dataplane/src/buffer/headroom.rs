//! Headroom: the most that an ingress group can receive after it crossed XOFF.
//!
//! In virtual time every delay is known, so [`Headroom`] is a bound that holds for any lengths of
//! frames. It counts from the frame that crosses XOFF, which is charged to the headroom already:
//!
//! 1. that frame;
//! 2. frames that came in behind it while the switch looked it up (its fixed latency): none of them
//!    is admitted yet;
//! 3. frames that come in until the peer has the PAUSE: while our transmitter finishes a longest
//!    frame that it has just begun, while it sends the PFC frame itself, and while that is on the
//!    cable;
//! 4. frames that the peer sends until it obeys, and those on the cable then;
//! 5. a longest frame that the peer has just begun.
//!
//! Live, [`live_cells`] is an estimate: the scheduler of the peer's machine decides when it obeys.
//!
//! Units: bytes on the wire, cells that hold them, picoseconds.
//! Source: IEEE 802.1Q-2022 Annex O, which has no place for item 1 (its threshold is a depth that
//! the buffer exceeds) and calls the delays of items 2 and 4 interface and higher-layer delay;
//! docs/spec/model-reference.md §8.

use crate::time::{LinkRate, Span};

/// Bytes of a PFC frame on the wire: 64 bytes, preamble, gap.
const PFC_WIRE: u64 = 84;
/// FCS, preamble and gap.
const OVERHEAD: u64 = 24;
/// Bytes on the wire of the shortest frame.
const WIRE_MIN: u64 = 84;
/// Bytes that a frame takes on the wire beside its own when `wire_overhead = false`.
const FCS: u64 = 4;
/// Bytes on the wire of the shortest frame then: an Ethernet header and its FCS.
const BARE_MIN: u64 = 14 + FCS;

/// Parameters of a link in virtual time that determine how much can arrive at a port after XOFF was
/// crossed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headroom {
    /// Rate of the link, the same in both directions.
    pub rate: LinkRate,
    /// Longest frame without FCS, on either side.
    pub frame_len_max: usize,
    /// Whether the least size, preamble and gap take time on the wire, beside the FCS.
    pub overhead: bool,
    /// From a frame's last bit in to its admission: the switch's fixed latency.
    pub latency: Span,
    /// From a bit sent to that bit in, one way.
    pub propagation: Span,
    /// Time for which the peer goes on sending after the last bit of a PAUSE is in, without the
    /// frame that it has just begun.
    pub response: Span,
}

impl Headroom {
    /// Delay of light in a cable: 5 ns a metre.
    #[must_use]
    pub const fn propagation(cable_m: u64) -> Span {
        Span::from_ns(5 * cable_m)
    }

    /// Bytes of the longest frame on the wire.
    const fn frame(&self) -> u64 {
        self.frame_len_max as u64 + if self.overhead { OVERHEAD } else { FCS }
    }

    /// Bytes that arrive behind the frame that crosses XOFF, in the worst case, without the last frame (items 2 to 4).
    fn window(&self) -> u64 {
        // The cable counts twice: the PAUSE travels to the peer, and the frames that it then stops
        // were sent up to that moment and travel back.
        let delays = [self.latency, self.propagation, self.propagation, self.response];
        let ps: u128 = delays.iter().map(|span| u128::from(span.as_ps())).sum();
        // In 128 bits: a second at 10 Tbit/s is 10^25, more than a u64 holds.
        let bytes = (ps * u128::from(self.rate.as_bps())).div_ceil(8_000_000_000_000);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        bytes.saturating_add(self.frame() + PFC_WIRE)
    }

    /// Bytes on the wire that can arrive behind the frame that crosses XOFF, in the worst case.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.window().saturating_add(self.frame())
    }

    /// Cells of `cell_bytes` that cover all of it, whatever the lengths of the frames.
    ///
    /// The frame that crosses XOFF and the last one count as longest frames. Between them frames take the most cells for their
    /// time on the wire when they are the shortest, or one byte longer than a cell.
    #[must_use]
    pub fn cells(&self, cell_bytes: u32) -> u32 {
        let cell = u64::from(cell_bytes.max(1));
        let (overhead, least) = if self.overhead { (OVERHEAD, WIRE_MIN) } else { (FCS, BARE_MIN) };
        let short = self.window().div_ceil(least);
        // A frame one byte longer than a cell takes two cells: below a certain cell size that is
        // more cells for its time on the wire than the shortest frame needs.
        let split = self.window().saturating_mul(2).div_ceil((cell + 1 + overhead).max(least));
        let whole = (self.frame_len_max as u64).div_ceil(cell);
        u32::try_from(short.max(split).saturating_add(2 * whole)).unwrap_or(u32::MAX)
    }
}

/// Cells of headroom of an ingress group of a live port: frames of one cell each that a peer of
/// `rate` sends until it obeys a PAUSE, and the cells of a longest frame for each place in the
/// rings of both ends.
#[must_use]
pub fn live_cells(
    rate: LinkRate,
    response: Span,
    ring_frames: u64,
    frame_len_max: usize,
    cell_bytes: u32,
) -> u32 {
    let cell = u64::from(cell_bytes.max(1));
    let bits = u128::from(rate.as_bps()) * u128::from(response.as_ps()) / 1_000_000_000_000;
    let sent = u64::try_from(bits / 8).unwrap_or(u64::MAX).div_ceil(cell);
    let rings = ring_frames.saturating_mul((frame_len_max as u64).div_ceil(cell));
    u32::try_from(sent.saturating_add(rings)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Headroom = Headroom {
        rate: LinkRate::gbps(100),
        frame_len_max: 1_518,
        overhead: true,
        latency: Span::ZERO,
        propagation: Headroom::propagation(100),
        response: Span::from_us(1),
    };

    /// 100G, 100 m, 1,518 bytes and FCS, 1 µs: 2 × 12,336 + 672 + 2 × 50,000 + 100,000 bits.
    #[test]
    fn bytes_are_the_sum_of_annex_o_and_the_fixed_latency() {
        assert_eq!(BASE.bytes(), (2 * 12_336 + 672 + 2 * 50_000 + 100_000) / 8);
        let slow = Headroom { latency: Span::from_us(5), ..BASE };
        assert_eq!(slow.bytes() - BASE.bytes(), 5_000 * 100 / 8);
        let none = Headroom { propagation: Span::ZERO, response: Span::ZERO, ..BASE };
        assert_eq!(none.bytes(), (2 * 12_336 + 672) / 8);
        let bare = Headroom { overhead: false, ..none };
        assert_eq!(bare.bytes(), 2 * 1_522 + 84);
    }

    #[test]
    fn cells_hold_the_densest_frames_between_two_longest_ones() {
        let window = BASE.bytes() - 1_542;
        #[rustfmt::skip] // columns: cell, bytes on the wire that fill a cell at least, cells of a longest frame
        let cases = [(64, 44, 24), (128, 76, 12), (143, 84, 11), (256, 84, 6), (2_048, 84, 1)];
        for (cell, dense, whole) in cases {
            // Two cells for cell + 25 bytes, where that is denser than one for 84.
            let split = (2 * window).div_ceil((cell + 25).max(84));
            let want = split.max(window.div_ceil(84)) + 2 * whole;
            assert_eq!(u64::from(BASE.cells(u32::try_from(cell).unwrap())), want, "{cell}");
            assert!(want >= window / dense, "{cell}");
        }
        let bare = Headroom { overhead: false, ..BASE };
        assert_eq!(u64::from(bare.cells(256)), (bare.bytes() - 1_522).div_ceil(18) + 2 * 6);
    }

    #[test]
    fn nothing_overflows() {
        let all = Headroom {
            rate: LinkRate::gbps(10_000),
            frame_len_max: 9_728,
            latency: Span::from_ms(1),
            propagation: Span::from_us(500),
            response: Span::from_ms(1_000),
            ..BASE
        };
        assert_eq!(all.cells(256), u32::MAX);
        assert!(all.bytes() > 1_250_000_000_000);
        assert_eq!(live_cells(all.rate, all.response, u64::MAX, 9_728, 64), u32::MAX);
    }

    /// At 1 Gbit/s 10 ms are 1,250,000 bytes: 611 cells of 2 KiB; and a cell for each frame in a ring.
    #[test]
    fn live_headroom_is_response_and_rings() {
        let of = |cell| live_cells(LinkRate::gbps(1), Span::from_ms(10), 64 + 2_048, 1_522, cell);
        assert_eq!((of(2_048), of(512)), (611 + 2_112, 2_442 + 3 * 2_112));
    }
}
