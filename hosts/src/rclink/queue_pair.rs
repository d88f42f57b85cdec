//! Receiver's side of a queue pair: Go-Back-N accepts frames in order only. PSNs count modulo 4096.
//!
//! Source: docs/spec/model.md §4 "Go-Back-N".

/// Number of PSNs, 12 bits.
pub const PSNS: u16 = 1 << 12;
/// PSNs up to this far ahead of the expected one mean a gap; all others are behind it.
const AHEAD: u16 = PSNS / 2;

/// `a - b` modulo 4096.
#[inline]
#[must_use]
pub const fn psn_since(a: u16, b: u16) -> u16 {
    a.wrapping_sub(b) & (PSNS - 1)
}

/// Decision about a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxVerdict {
    /// It is the next frame: take it.
    Accept,
    /// It was taken before: drop it, and acknowledge it again, as the ACK may have been lost.
    Duplicate,
    /// A frame before it is missing: drop it.
    Gap {
        /// Whether to send a NAK; one for each gap.
        nak: bool,
    },
}

/// Receiver's state of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxQp {
    expected: u16,
    nak_sent: bool,
}

impl RxQp {
    /// Decides about a frame with `psn`.
    pub const fn receive(&mut self, psn: u16) -> RxVerdict {
        match psn_since(psn, self.expected) {
            0 => {
                self.expected = (self.expected + 1) & (PSNS - 1);
                self.nak_sent = false;
                RxVerdict::Accept
            }
            1..AHEAD => {
                // One NAK until the gap closes: further ones would have the sender go back again (docs/spec/model.md
                // §4).
                let nak = !self.nak_sent;
                self.nak_sent = true;
                RxVerdict::Gap { nak }
            }
            _ => RxVerdict::Duplicate,
        }
    }

    /// Accepts a frame with `psn` where lost frames are not sent again: the gap before it is final. False if the frame
    /// is behind the expected one.
    pub const fn skip_to(&mut self, psn: u16) -> bool {
        let is_next = psn_since(psn, self.expected) < AHEAD;
        if is_next {
            self.expected = (psn + 1) & (PSNS - 1);
        }
        is_next
    }

    /// The expected frame came and cannot be taken, and an RNR NAK tells the sender. Frames after it are dropped
    /// without another NAK.
    pub const fn refuse(&mut self) {
        self.nak_sent = true;
    }

    /// The expected PSN, which a NAK carries.
    #[must_use]
    pub const fn expected(&self) -> u16 {
        self.expected
    }

    /// The PSN of an ACK: the last one before which no frame is missing.
    #[must_use]
    pub const fn acknowledged(&self) -> u16 {
        psn_since(self.expected, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_taken_in_order_and_a_gap_is_said_once() {
        use RxVerdict::{Accept, Duplicate, Gap};
        let mut qp = RxQp { expected: 4_094, nak_sent: false };
        #[rustfmt::skip] // columns: name, PSN, verdict, expected then
        let cases = [
            ("next",                  4_094, Accept,             4_095),
            ("gap over the wrap",         1, Gap { nak: true },  4_095),
            ("said already",              0, Gap { nak: false }, 4_095),
            ("furthest ahead",        2_046, Gap { nak: false }, 4_095),
            ("one more is behind",    2_047, Duplicate,          4_095),
            ("just taken",            4_094, Duplicate,          4_095),
            ("the missing one",       4_095, Accept,             0),
            ("a new gap",                 1, Gap { nak: true },  0),
            ("and what it missed",        0, Accept,             1),
            ("again",                     0, Duplicate,          1),
        ];
        for (name, psn, verdict, expected) in cases {
            assert_eq!(qp.receive(psn), verdict, "{name}");
            assert_eq!(qp.expected(), expected, "{name}");
        }
        assert_eq!(qp.acknowledged(), 0);
        assert_eq!(RxQp::default().acknowledged(), 4_095);
    }
}
