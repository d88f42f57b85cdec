//! How long an access of several lines has waited for caches.

use weft_parsers::cxl_mem::LINE;

/// Waits of one access: others may take its lines, of which it has up to 64, away again.
const TURNS_MAX: u8 = 128;

/// How often an access has waited, and the end of the line that it has waited for last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Waited {
    turns: u8,
    end: u64,
}

impl Waited {
    /// One that has not waited yet.
    pub const NEVER: Self = Self { turns: 0, end: 0 };

    /// Whether the line at `at` is clear: memory had its value once. For a write that has to be so now.
    #[must_use]
    pub const fn is_clear(self, at: u64, writes: bool) -> bool {
        at.saturating_add(LINE as u64) == self.end || (!writes && at < self.end)
    }

    /// The same once it has waited for the line at `at`, too; `None` where it has waited too often.
    #[must_use]
    pub fn for_line(self, at: u64) -> Option<Self> {
        let end = at.saturating_add(LINE as u64);
        (self.turns < TURNS_MAX).then_some(Self { turns: self.turns + 1, end })
    }
}
