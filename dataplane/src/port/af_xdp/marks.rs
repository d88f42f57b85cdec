//! Marks on numbered frames: which the port has received, and up to which the pipeline is done.
//!
//! The XDP program numbers the frames that it hands over, by queue and group of flows. A gap between two numbers is the
//! count of frames lost on the way.
//!
//! Source: docs/express.md "Order".

use super::steering::{BUCKETS, Number};

/// More than any ring holds: a larger gap is no loss but a number that did not come from the program's count.
const GAP_MAX: u64 = 1 << 40;

/// Numbers seen on all queues of a port.
pub(super) struct Marks {
    queues: Vec<Queue>,
}

/// Numbers seen on one queue, by group of flows.
struct Queue {
    /// Last number received.
    seen: [u64; BUCKETS],
    /// `seen` at the last mark.
    marked: [u64; BUCKETS],
    /// Bit set of groups with frames since the last mark.
    fresh: u64,
    /// Bit set of groups that are marked and not settled.
    waiting: u64,
}

impl Marks {
    pub(super) fn new(queues: usize) -> Self {
        let queue = |_| Queue { seen: [0; BUCKETS], marked: [0; BUCKETS], fresh: 0, waiting: 0 };
        Self { queues: (0..queues).map(queue).collect() }
    }

    /// Notes a received frame; returns how many of its group were lost before it.
    #[inline]
    pub(super) fn note(&mut self, queue: usize, number: Number) -> u64 {
        let Some(queue) = self.queues.get_mut(queue) else { return 0 };
        let Some(seen) = queue.seen.get_mut(usize::from(number.bucket)) else { return 0 };
        let gap = number.count.wrapping_sub(*seen).wrapping_sub(1);
        *seen = number.count;
        queue.fresh |= 1 << number.bucket;
        if gap < GAP_MAX { gap } else { 0 }
    }

    /// Marks all frames received so far.
    pub(super) fn mark(&mut self) {
        for queue in &mut self.queues {
            for bucket in bits(core::mem::take(&mut queue.fresh)) {
                if let (Some(marked), Some(seen)) =
                    (queue.marked.get_mut(bucket), queue.seen.get(bucket))
                {
                    *marked = *seen;
                }
                queue.waiting |= 1 << bucket;
            }
        }
    }

    /// Calls `tell` for each marked group and clears all marks.
    pub(super) fn settle(&mut self, mut tell: impl FnMut(u32, Number)) {
        for (at, queue) in (0..).zip(&mut self.queues) {
            for bucket in bits(core::mem::take(&mut queue.waiting)) {
                if let (Some(&count), Ok(bucket)) = (queue.marked.get(bucket), bucket.try_into()) {
                    tell(at, Number { count, bucket });
                }
            }
        }
    }
}

/// Indices of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        // 64 for an empty word, which ends the iteration.
        let at = word.trailing_zeros();
        word &= word.wrapping_sub(1);
        (at < 64).then_some(at as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn number(bucket: u8, count: u64) -> Number {
        Number { count, bucket }
    }

    fn settled(marks: &mut Marks) -> Vec<(u32, Number)> {
        let mut told = Vec::new();
        marks.settle(|queue, number| told.push((queue, number)));
        told
    }

    #[test]
    fn what_is_marked_is_told_once_and_no_more_than_was_seen_then() {
        let mut marks = Marks::new(2);
        assert_eq!(marks.note(0, number(63, 1)), 0);
        assert_eq!(marks.note(1, number(0, 1)), 0);
        assert!(settled(&mut marks).is_empty(), "nothing is marked");
        marks.mark();
        assert_eq!(marks.note(1, number(0, 2)), 0);
        assert_eq!(settled(&mut marks), [(0, number(63, 1)), (1, number(0, 1))]);
        assert!(settled(&mut marks).is_empty());
        marks.mark();
        assert_eq!(settled(&mut marks), [(1, number(0, 2))]);
    }

    #[test]
    fn a_gap_is_what_was_lost() {
        let mut marks = Marks::new(1);
        assert_eq!(marks.note(0, number(5, 4)), 3, "1 to 3");
        assert_eq!(marks.note(0, number(5, 5)), 0);
        assert_eq!(marks.note(0, number(6, 1)), 0, "another group");
        assert_eq!(marks.note(0, number(5, 70)), 64);
        assert_eq!(marks.note(0, number(5, 1)), 0, "begun anew");
        assert_eq!(marks.note(0, number(5, u64::MAX)), 0, "none that was counted");
        assert_eq!(marks.note(9, number(5, 9)), 0, "no such queue");
    }
}
