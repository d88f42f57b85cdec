//! What was lost before a port saw it.
//!
//! Two sums of the same frames, those that the sockets counted and those that the interface
//! did: drivers count what a socket did not take among their own drops, so the larger one holds.
//!
//! Units: frames.
//! Source: docs/spec/pipeline.md §10 (`kernel_rx`); proc(5), `/proc/PID/net/dev`.

use std::fs::File;
use std::io::{Read, Seek};

use crate::time::{Instant, Span};

/// How often the interface is asked.
const ASK_EVERY: Span = Span::from_ms(500);

/// What an interface that is not ours had lost before: all that it ever will.
const NOT_OURS: u64 = u64::MAX;

/// Counts of frames lost, over all lives of an interface.
pub(super) struct Losses {
    device: String,
    /// Interfaces of the namespace in which the port was opened.
    file: Option<File>,
    text: Vec<u8>,
    ask_at: Instant,
    /// Of sockets that are closed; of those that are open.
    sockets: (u64, u64),
    /// What no socket took because there was none, or because it was closed: no driver counts that.
    unread: u64,
    /// Of earlier lives; of this one; what it had lost before it was ours.
    interface: (u64, u64, u64),
    /// What the interface had received when the sockets were closed.
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

    /// Frames lost so far.
    pub(super) fn total(&self) -> u64 {
        let (closed, open) = self.sockets;
        let (before, now, _) = self.interface;
        self.unread + (closed + open).max(before + now)
    }

    /// The sockets that are open have lost `count` in all; returns how many are new.
    pub(super) const fn of_sockets(&mut self, count: u64) -> u64 {
        let before = core::mem::replace(&mut self.sockets.1, count);
        count.saturating_sub(before)
    }

    /// Sockets of ours get the interface's frames from now on; `held` if it was ours before, without them.
    /// Its own count holds, too, if `by_interface`.
    pub(super) fn begin(&mut self, held: bool, by_interface: bool) {
        let (received, dropped) = self.read().unwrap_or((0, NOT_OURS));
        if held {
            self.unread += received.saturating_sub(self.received);
            self.received = received;
        }
        self.interface.2 = if by_interface { dropped } else { NOT_OURS };
    }

    /// The sockets are closed, with `unread` frames that nobody had taken out of them.
    pub(super) fn end(&mut self, unread: u64) {
        self.received = self.read().map_or(u64::MAX, |(received, _)| received);
        self.unread += unread;
        let ((closed, open), (before, now, _)) = (self.sockets, self.interface);
        self.sockets = (closed + open, 0);
        self.interface = (before + now, 0, NOT_OURS);
    }

    /// Asks the interface, if it is time.
    pub(super) fn ask(&mut self, now: Instant) {
        if now < self.ask_at {
            return;
        }
        self.ask_at = now + ASK_EVERY;
        if let Some((_, dropped)) = self.read() {
            self.interface.1 = self.interface.1.max(dropped.saturating_sub(self.interface.2));
        }
    }

    /// What the interface has received, and what it has dropped of it.
    fn read(&mut self) -> Option<(u64, u64)> {
        let file = self.file.as_mut()?;
        file.rewind().ok()?;
        self.text.clear();
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
