//! Rate limit of a queue pair: bytes of frames in a window of time.
//!
//! [`RateWindow::may_send`] is asked before a grant, [`RateWindow::granted`] is told after it. Bytes beyond the
//! threshold are carried into the next windows as debt, so that the rate of a long run is exact to one frame. A window
//! begins at each multiple of its length.
//!
//! Source: docs/spec/model.md §4 "Rate".

use weft_dataplane::time::{Instant, Span};

/// Lengths of windows in ns, or clock cycles of 1 ns: shortest and longest.
pub const WINDOW_NS: core::ops::RangeInclusive<u64> = 4_096..=65_536;
/// Highest threshold: the register has 22 bits.
pub const THRESHOLD_MAX: u32 = (1 << 22) - 1;

/// Why a rate limit cannot be made as specified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RateError {
    /// A window that is too short or too long, or no whole number of ns.
    #[error("rate window of {} ns: expected 4096 to 65536", .0.as_ns())]
    Window(Span),
    /// A threshold out of range.
    #[error("length threshold {0} bytes: expected 1 to 4194303")]
    Threshold(u32),
}

/// Rate limit of a queue pair, and bytes sent against it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateWindow {
    length: Span,
    threshold: u32,
    /// Bytes sent in this window, and the debt of those before.
    sent: u64,
    /// Number of the window that `sent` is of.
    window: u64,
}

impl RateWindow {
    /// `threshold` bytes in each window of `length`, which is within [`WINDOW_NS`] and whole ns.
    ///
    /// # Errors
    /// A window or threshold out of range.
    pub const fn new(length: Span, threshold: u32) -> Result<Self, RateError> {
        let (ns, rest) = (length.as_ps() / 1_000, length.as_ps() % 1_000);
        if ns < *WINDOW_NS.start() || ns > *WINDOW_NS.end() || rest > 0 {
            return Err(RateError::Window(length));
        }
        if threshold == 0 || threshold > THRESHOLD_MAX {
            return Err(RateError::Threshold(threshold));
        }
        Ok(Self { length, threshold, sent: 0, window: 0 })
    }

    /// Length of the windows.
    #[must_use]
    pub const fn length(&self) -> Span {
        self.length
    }

    /// Bytes allowed in a window.
    #[must_use]
    pub const fn threshold(&self) -> u32 {
        self.threshold
    }

    /// The rate in bits a second over a long time, rounded down.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "2^22 bytes in 4 us are 8.2 Tb/s")]
    pub const fn bits_per_second(&self) -> u64 {
        let bits = self.threshold as u128 * 8 * 1_000_000_000_000;
        (bits / self.length().as_ps() as u128) as u64
    }

    /// Changes the threshold; debt is kept.
    ///
    /// # Errors
    /// A threshold out of range.
    pub const fn set_threshold(&mut self, threshold: u32) -> Result<(), RateError> {
        if threshold == 0 || threshold > THRESHOLD_MAX {
            return Err(RateError::Threshold(threshold));
        }
        self.threshold = threshold;
        Ok(())
    }

    /// Ends windows that are over by `now`, each of which pays off a threshold of debt.
    fn advance(&mut self, now: Instant) {
        let window = now.as_ps() / self.length().as_ps();
        let ended = window.saturating_sub(self.window);
        // Windows without traffic pay nothing in advance: the debt ends at 0, so no burst follows a pause.
        if ended > 0 {
            let paid = u64::from(self.threshold).saturating_mul(ended);
            self.sent = self.sent.saturating_sub(paid);
            self.window = window;
        }
    }

    /// Whether a frame may be granted at `now`: one may, however long, while anything of the threshold is left.
    #[must_use]
    pub fn may_send(&mut self, now: Instant) -> bool {
        self.advance(now);
        self.sent < u64::from(self.threshold)
    }

    /// Counts a frame of `len` bytes granted at `now`.
    pub fn granted(&mut self, now: Instant, len: usize) {
        self.advance(now);
        self.sent += len as u64;
    }

    /// When the queue pair may send again; `now` if it may already.
    #[must_use]
    pub fn free_at(&mut self, now: Instant) -> Instant {
        if self.may_send(now) {
            return now;
        }
        // the least n with sent - n * threshold < threshold
        let windows = self.sent / u64::from(self.threshold);
        Instant::from_ps((self.window + windows).saturating_mul(self.length().as_ps()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ns: u64) -> Instant {
        Instant::from_ns(ns)
    }

    #[test]
    fn a_queue_pair_is_masked_at_the_threshold_and_pays_with_later_windows() {
        let mut rate = RateWindow::new(Span::from_ns(4_096), 0x30).unwrap();
        #[rustfmt::skip] // columns: at ns, may send, bytes granted
        let cases = [
            (    0, true,  0x20), // 0x20 is below 0x30
            (   10, true,  0x20), // 0x40: masked
            (4_095, false, 0),
            (4_096, true,  0x80), // 0x10 was left: 0x90
            (8_192, false, 0),    // 0x60
        ];
        for (ns, may, granted) in cases {
            assert_eq!(rate.may_send(at(ns)), may, "{ns}");
            if granted > 0 {
                rate.granted(at(ns), granted);
            }
        }
        assert_eq!(rate.free_at(at(8_192)), at(16_384));
        assert!(!rate.may_send(at(16_383)));
        assert!(rate.may_send(at(16_384)));
    }

    #[test]
    fn the_long_run_is_exact_to_a_frame() {
        #[rustfmt::skip] // columns: ns of a window, threshold, bytes of a frame, bits a second
        let cases = [
            ( 4_096,         1,    64,         1_953_125),
            (65_536,         1,    64,           122_070),
            ( 4_096,         8,    64,        15_625_000),
            (65_536,         8,    64,           976_562),
            ( 4_096,   204_800, 1_402,   400_000_000_000),
            (65_536, 3_276_800, 1_402,   400_000_000_000),
            (16_384,   100_000, 1_374,    48_828_125_000),
            (65_536, 4_194_303, 1_402,   511_999_877_929),
            ( 5_000,   125_000, 1_402,   200_000_000_000),
            (10_001,       997,    64,       797_520_247),
        ];
        for (ns, threshold, len, rate) in cases {
            let mut window = RateWindow::new(Span::from_ns(ns), threshold).unwrap();
            assert_eq!(window.bits_per_second(), rate, "{ns} {threshold}");
            let (mut now, mut sent) = (Instant::ZERO, 0_u64);
            let windows = 1_000;
            let end = Instant::from_ps(window.length().as_ps() * windows);
            while now < end {
                if window.may_send(now) {
                    window.granted(now, len);
                    sent += len as u64;
                } else {
                    let free = window.free_at(now);
                    assert!(free > now, "{ns} {threshold}");
                    now = free;
                }
            }
            let want = u64::from(threshold) * windows;
            assert!(
                (want..want + len as u64).contains(&sent),
                "{ns} {threshold}: {sent}, not {want}"
            );
        }
    }

    #[test]
    fn what_the_registers_do_not_hold_is_refused() {
        for ps in [4_095_000, 4_096_001, 65_537_000, 0] {
            let length = Span::from_ps(ps);
            assert_eq!(RateWindow::new(length, 1), Err(RateError::Window(length)), "{ps}");
        }
        let least = Span::from_ns(4_096);
        assert_eq!(RateWindow::new(least, 0), Err(RateError::Threshold(0)));
        assert_eq!(RateWindow::new(least, 1 << 22), Err(RateError::Threshold(1 << 22)));
        let mut rate = RateWindow::new(Span::from_ns(65_536), THRESHOLD_MAX).unwrap();
        assert_eq!(rate.set_threshold(0), Err(RateError::Threshold(0)));
        assert_eq!(rate.threshold(), THRESHOLD_MAX);
    }
}
