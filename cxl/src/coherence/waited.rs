//! Bounds how long an access of several lines waits for caches.
//!
//! A TLP covers up to 64 lines and waits for one after the other, while other requesters can take back lines that it
//! has waited for. So the number of its waits is bounded, and it remembers the line it waited for last.

use weft_parsers::cxl_mem::LINE;

/// Waits of one access: twice its 64 lines, as others may take lines away that it has waited for.
const TURNS_MAX: u8 = 128;

/// Number of waits so far, and the address behind the line of the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Waited {
    turns: u8,
    end: u64,
}

impl Waited {
    /// State of an access that has not waited yet.
    pub const NEVER: Self = Self { turns: 0, end: 0 };

    /// Whether the access need not wait for the line at `at` again. A read is content that memory had the current value
    /// at some time since the access began; a write needs it now, so only the line it waited for last is clear.
    #[must_use]
    pub const fn is_clear(self, at: u64, writes: bool) -> bool {
        at.saturating_add(LINE as u64) == self.end || (!writes && at < self.end)
    }

    /// State after another wait, for the line at `at`; `None` when the access has used up its waits and must fail.
    #[must_use]
    pub fn for_line(self, at: u64) -> Option<Self> {
        let end = at.saturating_add(LINE as u64);
        (self.turns < TURNS_MAX).then_some(Self { turns: self.turns + 1, end })
    }
}
