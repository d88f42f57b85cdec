//! Idle parts of a fabric, which a step skips.
//!
//! An [`IdleState`] learns the result of each poll, and is asked before the next one.
//!
//! Source: docs/spec/cxl-fabric.md.

use weft_dataplane::port::pipe::Inbox;
use weft_dataplane::time::{Instant, Span};

/// Longest time for which an idle part is skipped, the same as the longest sleep of a runner in its own process.
const REST_MAX: Span = Span::from_ms(5);

/// The inboxes and times that can end a part's idleness.
pub(super) struct IdleState {
    inboxes: Vec<(Inbox, bool)>,
    /// Nothing moved at the last poll, and nothing waits for room.
    still: bool,
    until: Instant,
}

impl IdleState {
    /// For a part that receives from `inboxes`; it is polled at the first step.
    pub fn new(inboxes: Vec<Inbox>) -> Self {
        let inboxes = inboxes.into_iter().map(|inbox| (inbox, false)).collect();
        Self { inboxes, still: false, until: Instant::ZERO }
    }

    /// Makes the next step poll it in any case.
    pub const fn wake(&mut self) {
        self.still = false;
    }

    /// Whether it has nothing to do at `now`.
    pub fn is_idle(&self, now: Instant) -> bool {
        // A link that came up or went down is work as well.
        let same = |(inbox, up): &(Inbox, bool)| !inbox.is_waiting() && inbox.link_up() == *up;
        self.still && now < self.until && self.inboxes.iter().all(same)
    }

    /// Records a poll: whether anything moved or waits for room, and the time of the next action.
    pub fn polled(&mut self, now: Instant, busy: bool, next: Option<Instant>) {
        self.still = !busy;
        let latest = now + REST_MAX;
        self.until = next.map_or(latest, |next| next.min(latest));
        for (inbox, up) in &mut self.inboxes {
            *up = inbox.link_up();
        }
    }
}
