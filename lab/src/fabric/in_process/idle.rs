//! Which parts of a fabric have nothing to do, so that a step passes them over.
//!
//! [`IdleState`] of a part: told what came of each poll, asked before the next one.
//!
//! Units: time as `Instant`.
//! Source: docs/spec/cxl-fabric.md.

use weft_dataplane::port::pipe::Inbox;
use weft_dataplane::time::{Instant, Span};

/// How long a part that has nothing to do is not looked at: as long as a runner in a process of its own may sleep.
const REST_MAX: Span = Span::from_ms(5);

/// What a part waits for, so that one that has nothing to do is passed over.
pub(super) struct IdleState {
    inboxes: Vec<(Inbox, bool)>,
    /// Nothing moved when it was last polled, and nothing waits for room.
    still: bool,
    until: Instant,
}

impl IdleState {
    /// A part that takes frames out of these, and is polled first.
    pub fn new(inboxes: Vec<Inbox>) -> Self {
        let inboxes = inboxes.into_iter().map(|inbox| (inbox, false)).collect();
        Self { inboxes, still: false, until: Instant::ZERO }
    }

    /// Has it polled with the next step, whatever there is.
    pub const fn wake(&mut self) {
        self.still = false;
    }

    /// Whether there is nothing to be done at `now`.
    pub fn is_idle(&self, now: Instant) -> bool {
        let same = |(inbox, up): &(Inbox, bool)| !inbox.is_waiting() && inbox.link_up() == *up;
        self.still && now < self.until && self.inboxes.iter().all(same)
    }

    /// It was polled: whether anything moved or waits for room, and when something is due.
    pub fn polled(&mut self, now: Instant, busy: bool, next: Option<Instant>) {
        self.still = !busy;
        let latest = now + REST_MAX;
        self.until = next.map_or(latest, |next| next.min(latest));
        for (inbox, up) in &mut self.inboxes {
            *up = inbox.link_up();
        }
    }
}
