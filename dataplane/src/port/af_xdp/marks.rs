//! Marks: which of the frames that a program numbers have been seen, and up to where they are done with.
//!
//! Numbers by queue and group of flows; a gap between two is what was lost on the way.
//!
//! Units: frames.
//! Source: docs/express.md "Order".

use super::steering::{BUCKETS, Number};

/// More than any ring holds: a number that jumps further is none that was counted.
const GAP_MAX: u64 = 1 << 40;

/// All queues of a port.
pub(super) struct Marks {
    queues: Vec<Queue>,
}

/// One queue.
struct Queue {
    /// The last number seen, by group.
    seen: [u64; BUCKETS],
    /// What it was when it was marked.
    marked: [u64; BUCKETS],
    /// Groups seen since they were marked, and those that are marked.
    fresh: u64,
    waiting: u64,
}

impl Marks {
    pub(super) fn new(queues: usize) -> Self {
        let queue = |_| Queue { seen: [0; BUCKETS], marked: [0; BUCKETS], fresh: 0, waiting: 0 };
        Self { queues: (0..queues).map(queue).collect() }
    }

    /// Notes a frame; returns how many of its group before it never came.
    #[inline]
    pub(super) fn note(&mut self, queue: usize, number: Number) -> u64 {
        let Some(queue) = self.queues.get_mut(queue) else { return 0 };
        let Some(seen) = queue.seen.get_mut(usize::from(number.bucket)) else { return 0 };
        let gap = number.count.wrapping_sub(*seen).wrapping_sub(1);
        *seen = number.count;
        queue.fresh |= 1 << number.bucket;
        if gap < GAP_MAX { gap } else { 0 }
    }

    /// Marks what was seen so far.
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

    /// Tells of all that is marked, by queue; then nothing is.
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

/// Places of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
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
