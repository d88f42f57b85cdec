//! Frames lost before a port saw them.
//!
//! Two sums count the same frames: the sockets' and the interface's. Drivers count frames that a socket did not take
//! among their own drops, so the larger sum is the loss.
//!
//! Source: docs/spec/pipeline.md §10 (`kernel_rx`); proc(5), `/proc/PID/net/dev`.

use std::fs::File;
use std::io::{Read, Seek};

use crate::time::{Instant, Span};

/// Interval between reads of the interface's counters.
const ASK_EVERY: Span = Span::from_ms(500);

/// Base for an interface whose own count is left out: no count ever exceeds it.
const NOT_OURS: u64 = u64::MAX;

/// Counts of frames lost, over all lives of an interface.
pub(super) struct Losses {
    device: String,
    /// Counters of the interfaces in the namespace in which the port was opened.
    file: Option<File>,
    text: Vec<u8>,
    ask_at: Instant,
    /// Losses counted by closed sockets, and by the open ones.
    sockets: (u64, u64),
    /// Frames that arrived while no socket was open, or waited in a socket that was closed. No driver counts these.
    unread: u64,
    /// Drops of the interface in earlier lives, in this one, and its counter when this life began.
    interface: (u64, u64, u64),
    /// The interface's receive counter when the sockets were closed.
    received: u64,
}

impl Losses {
    pub(super) fn new(device: &str) -> Self {
        Self {
            device: device.to_owned(),
            file: File::open("/proc/thread-self/net/dev").ok(),
            text: Vec::with_capacity(64 << 10),
            ask_at: Instant::ZERO,
            sockets: (0, 0),
            unread: 0,
            interface: (0, 0, NOT_OURS),
            received: 0,
        }
    }

    /// Frames lost since the port was opened.
    pub(super) fn total(&self) -> u64 {
        let (closed, open) = self.sockets;
        let (before, now, _) = self.interface;
        self.unread + (closed + open).max(before + now)
    }

    /// Notes that the open sockets have lost `count` in all; returns how many of these are new.
    pub(super) const fn of_sockets(&mut self, count: u64) -> u64 {
        let before = core::mem::replace(&mut self.sockets.1, count);
        count.saturating_sub(before)
    }

    /// Begins a life: sockets of ours get the interface's frames from now on. `held`: the interface was ours before,
    /// without sockets. `by_interface`: its own count is used, too.
    pub(super) fn begin(&mut self, held: bool, by_interface: bool) {
        let (received, dropped) = self.read().unwrap_or((0, NOT_OURS));
        if held {
            // The program dropped these, as no socket was there.
            self.unread += received.saturating_sub(self.received);
            self.received = received;
        }
        self.interface.2 = if by_interface { dropped } else { NOT_OURS };
    }

    /// Ends a life: the sockets are closed, with `unread` frames left in their rings.
    pub(super) fn end(&mut self, unread: u64) {
        self.received = self.read().map_or(u64::MAX, |(received, _)| received);
        self.unread += unread;
        let ((closed, open), (before, now, _)) = (self.sockets, self.interface);
        self.sockets = (closed + open, 0);
        self.interface = (before + now, 0, NOT_OURS);
    }

    /// Reads the interface's counters, if it is time.
    pub(super) fn ask(&mut self, now: Instant) {
        if now < self.ask_at {
            return;
        }
        self.ask_at = now + ASK_EVERY;
        if let Some((_, dropped)) = self.read() {
            // Never down, whatever a driver does to its counters: losses are a total.
            self.interface.1 = self.interface.1.max(dropped.saturating_sub(self.interface.2));
        }
    }

    /// The interface's counters: frames received, frames dropped at receive.
    fn read(&mut self) -> Option<(u64, u64)> {
        let file = self.file.as_mut()?;
        file.rewind().ok()?;
        self.text.clear();
        // Bounded by the buffer's capacity, so that this does not allocate in the worker.
        file.take(64 << 10).read_to_end(&mut self.text).ok()?;
        counts(&self.text, self.device.as_bytes())
    }
}

/// The second and the fourth number of a device's line: received; dropped or missed at receive.
fn counts(text: &[u8], device: &[u8]) -> Option<(u64, u64)> {
    text.split(|&byte| byte == b'\n').find_map(|line| {
        let numbers = line.trim_ascii_start().strip_prefix(device)?.strip_prefix(b":")?;
        let mut words = numbers.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        let number = |word| core::str::from_utf8(word).ok()?.parse().ok();
        Some((number(words.nth(1)?)?, number(words.nth(1)?)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_device_are_found() {
        let text = b"Inter-|   Receive\n face |bytes    packets errs drop fifo\n\
            \x20   lo:  10  2 0 7 0 0\n    sw0: 11 3 1 8 0 0\n  sw: 12 4 0 9 1 0\n";
        let cases =
            [("lo", Some((2, 7))), ("sw", Some((4, 9))), ("sw0", Some((3, 8))), ("s", None)];
        for (device, want) in cases {
            assert_eq!(counts(text, device.as_bytes()), want, "{device}");
        }
        for len in 0..text.len() {
            let cut = counts(&text[..len], b"lo");
            assert!(matches!(cut, None | Some((2, 7))), "cut to {len}");
        }
    }

    #[test]
    fn the_larger_sum_holds_over_all_lives() {
        let mut losses = Losses::new("no-such-if0");
        losses.of_sockets(3);
        losses.interface.1 = 5;
        assert_eq!(losses.total(), 5);
        losses.end(0);
        losses.of_sockets(4);
        assert_eq!(losses.total(), 7);
        losses.interface.1 = 1;
        assert_eq!(losses.total(), 7);
        losses.ask(Instant::ZERO); // no such interface: nothing changes
        assert_eq!(losses.total(), 7);
        losses.end(2);
        assert_eq!(losses.total(), 9, "the larger sum and what nobody took");
        assert_eq!(
            losses.interface.2, NOT_OURS,
            "what is asked between two lives counts for neither"
        );
        losses.begin(true, true);
        assert_eq!(losses.total(), 9);
    }
}
