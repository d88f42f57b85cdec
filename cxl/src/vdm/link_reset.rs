//! Reset of a link, both ends: the upper end repeats an order until the lower end has answered.
//!
//! [`ResetOrders`] is the upper end: its owner says which reset is to hold, and sends its messages.
//! [`ResetReceiver`] is the lower end: it takes messages, and tells its owner when a reset begins and ends.
//!
//! Source: docs/spec/wire-formats.md §3.7b; PCIe 6.0 section 6.6.1 (conventional reset).
//!
//! An order is repeated until it is answered, and the end of a reset waits for the answer to its begin: so a reset
//! of any length reaches the lower end. The lower end leaves a reset by itself if the upper end falls silent. A
//! lower end that has never answered does not know these messages, and the link opens without it.

use weft_dataplane::time::{Instant, Span};
use weft_parsers::tlp::{LinkReset, ResetWord};

use super::reset::Reset;
use super::{RETRY_INTERVAL, TRIES_MAX};

/// Interval of repeats of an order that holds and has been answered.
pub const REPEAT_INTERVAL: Span = Span::from_ms(1_000);
/// Interval of repeats after [`TRIES_MAX`] tries without an answer.
pub const PATIENT_INTERVAL: Span = Span::from_ms(100);
/// Number of such repeats to a lower end that has answered nothing since the link came up.
const PATIENCE: u8 = 30;
/// Time after which the lower end leaves a reset without further orders.
pub const HOLD_MAX: Span = Span::from_ms(3_000);

const fn word(reset: Reset) -> ResetWord {
    match reset {
        Reset::Hot => ResetWord::AssertHot,
        Reset::Fundamental => ResetWord::AssertPerst,
    }
}

/// The upper end of a link: resets the lower end.
#[derive(Clone, Debug, Default)]
pub struct ResetOrders {
    up: bool,
    /// Reset that is to hold at present.
    level: Option<Reset>,
    /// Reset whose begin the lower end has not confirmed.
    begins: Option<Reset>,
    /// Whether the lower end has not confirmed the end of the last reset.
    waits: bool,
    number: u8,
    due: Option<Instant>,
    left: u8,
    lower: Lower,
    /// Number of repeats after the first tries.
    patience: u8,
}

/// State of the lower end since the link came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Lower {
    /// It has answered no order yet.
    #[default]
    Silent,
    /// It has answered an order.
    Answers,
    /// The link is open because it never answered, and the owner has not been told yet.
    GivenUp,
}

impl ResetOrders {
    /// Whether TLPs may pass: no reset holds, and the end of the last one is confirmed.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.level.is_none() && self.begins.is_none() && !self.waits
    }

    /// Whether a reset is to hold.
    #[must_use]
    pub const fn is_holding(&self) -> bool {
        self.level.is_some()
    }

    /// Whether the first tries of a reset are over and its end is not confirmed: they went unanswered, or a confirmed
    /// reset still holds.
    #[must_use]
    pub const fn is_unanswered(&self) -> bool {
        (self.begins.is_some() || self.waits) && self.left == 0 && self.due.is_some()
    }

    /// The link came up: sends the order that holds.
    pub fn link_up(&mut self, now: Instant) {
        self.up = true;
        if !self.is_open() {
            self.order(now);
        }
    }

    /// The link went down, which resets the lower end anyway; only a reset that still holds is sent when the link
    /// is up again.
    pub const fn link_down(&mut self) {
        (self.up, self.due, self.lower) = (false, None, Lower::Silent);
        if self.level.is_none() {
            (self.begins, self.waits) = (None, false);
        }
    }

    /// Sets the reset that is to hold from now on; `None` ends it.
    pub fn hold(&mut self, now: Instant, level: Option<Reset>) {
        if level == self.level {
            return;
        }
        // `Option` orders `None` below every reset, and a hot reset below PERST#.
        let rises = level > self.level;
        self.level = level;
        match level {
            Some(reset) if rises => self.begin(now, reset),
            None if self.begins.is_none() => self.order(now),
            _ => {} // the begin has to be confirmed first, or PERST# continues as hot reset
        }
    }

    /// Begins a reset that ends at once; does nothing while one holds or the link is down.
    pub fn pulse(&mut self, now: Instant) {
        if self.level.is_none() && self.up {
            self.begin(now, Reset::Hot);
        }
    }

    /// Receives an answer; returns whether the lower end is now out of reset. An answer to nothing returns false.
    pub fn receive(&mut self, now: Instant, message: LinkReset) -> bool {
        // The number tells a late answer to an earlier order from that to the current one.
        let awaited = self.due.is_some() && message.number == self.number;
        if message.word != ResetWord::Done || !awaited {
            return false;
        }
        self.lower = Lower::Answers;
        // The begin is confirmed and nothing holds any more: only now may the end be ordered.
        if self.begins.take().is_some() && self.level.is_none() {
            self.order(now);
            return false;
        }
        if self.level.is_some() {
            // Confirmed, but repeated: the lower end would leave the reset after HOLD_MAX of silence.
            (self.due, self.left) = (Some(now + REPEAT_INTERVAL), 0);
            return false;
        }
        self.due = None;
        core::mem::take(&mut self.waits)
    }

    /// The order that is due, if any.
    pub fn poll(&mut self, now: Instant) -> Option<LinkReset> {
        self.due.filter(|&due| due <= now)?;
        // A reset that holds is never given up, as the link stays closed anyway.
        if self.left == 0 && self.lower != Lower::Answers && self.level.is_none() {
            self.patience += 1;
            if self.patience > PATIENCE {
                (self.begins, self.waits, self.due) = (None, false, None);
                self.lower = Lower::GivenUp;
                return None;
            }
        }
        let word = self.begins.or(self.level).map_or(ResetWord::Deassert, word);
        let tries_left = self.left.saturating_sub(1);
        let interval = match (self.left, self.begins.is_some() || self.level.is_none()) {
            (1.., _) => RETRY_INTERVAL,
            (0, true) => PATIENT_INTERVAL,
            (0, false) => REPEAT_INTERVAL,
        };
        (self.due, self.left) = (Some(now + interval), tries_left);
        Some(LinkReset { word, number: self.number })
    }

    /// Whether the link has opened since the last call because the lower end never answered.
    pub fn take_given_up(&mut self) -> bool {
        let given_up = self.lower == Lower::GivenUp;
        if given_up {
            self.lower = Lower::Silent;
        }
        given_up
    }

    /// Time of the next poll; `None` without an order to repeat.
    #[must_use]
    pub const fn next_due(&self) -> Option<Instant> {
        self.due
    }

    fn begin(&mut self, now: Instant, reset: Reset) {
        // PERST# replaces a hot reset that has not begun, but not the other way round.
        self.begins = self.begins.max(Some(reset));
        self.waits = true;
        self.order(now);
    }

    fn order(&mut self, now: Instant) {
        self.number = self.number.wrapping_add(1);
        // With the link down the order waits for `link_up`, which numbers it anew.
        if self.up {
            (self.due, self.left, self.patience) = (Some(now), TRIES_MAX, 0);
        }
    }
}

/// Effect of an order on the component at the lower end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ordered {
    /// It is reset, and stays in reset.
    Begins,
    /// It leaves reset.
    Ends,
}

/// The lower end of a link: carries out orders.
#[derive(Clone, Debug, Default)]
pub struct ResetReceiver {
    held: Option<(Reset, Instant)>,
}

impl ResetReceiver {
    /// Whether a reset holds; the component then answers nothing but orders.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Time at which the reset ends by itself.
    #[must_use]
    pub const fn next_due(&self) -> Option<Instant> {
        match self.held {
            Some((_, until)) => Some(until),
            None => None,
        }
    }

    /// Receives an order; returns its effect and the answer, or `None` if the message is no order.
    pub fn receive(
        &mut self,
        now: Instant,
        message: LinkReset,
    ) -> Option<(Option<Ordered>, LinkReset)> {
        let change = match message.word {
            ResetWord::AssertHot => self.begin(now, Reset::Hot),
            ResetWord::AssertPerst => self.begin(now, Reset::Fundamental),
            ResetWord::Deassert => self.end(),
            ResetWord::Done => return None,
        };
        // Answered even if nothing changes: the upper end repeats an order because it has missed the answer.
        Some((change, LinkReset { word: ResetWord::Done, ..message }))
    }

    /// Ends a reset whose time is over, or which holds while the link is down.
    pub fn tick(&mut self, now: Instant, is_up: bool) -> Option<Ordered> {
        let over = self.held.is_some_and(|(_, until)| until <= now || !is_up);
        if over { self.end() } else { None }
    }

    fn begin(&mut self, now: Instant, reset: Reset) -> Option<Ordered> {
        let was = self.held.map(|(held, _)| held);
        // A repeated order extends the time; a weaker one does not weaken the reset.
        self.held = Some((was.map_or(reset, |was| was.max(reset)), now + HOLD_MAX));
        (was < Some(reset)).then_some(Ordered::Begins)
    }

    fn end(&mut self) -> Option<Ordered> {
        self.held.take().map(|_| Ordered::Ends)
    }
}

#[cfg(test)]
mod tests {
    use weft_base::rng::Rng;

    use super::super::testing::ms;
    use super::*;

    const HOT: Option<Reset> = Some(Reset::Hot);

    /// An upper end whose link is up, and a lower end.
    fn pair() -> (ResetOrders, ResetReceiver) {
        let mut upper = ResetOrders::default();
        upper.link_up(ms(0));
        assert_eq!((upper.poll(ms(0)), upper.is_open()), (None, true), "nothing holds: no word");
        (upper, ResetReceiver::default())
    }

    /// Carries all orders down and answers up without loss; returns the effects at the lower end.
    fn exchange(upper: &mut ResetOrders, lower: &mut ResetReceiver, now: Instant) -> Vec<Ordered> {
        let mut all = Vec::new();
        while let Some(order) = upper.poll(now) {
            let (change, answer) = lower.receive(now, order).unwrap();
            all.extend(change);
            upper.receive(now, answer);
        }
        all
    }

    #[test]
    fn a_pulse_begins_and_ends_below_before_it_is_open() {
        let (mut upper, mut lower) = pair();
        upper.pulse(ms(1));
        assert!(!upper.is_open());
        let all = exchange(&mut upper, &mut lower, ms(1));
        assert_eq!(all, [Ordered::Begins, Ordered::Ends]);
        assert_eq!((upper.is_open(), upper.next_due()), (true, None), "and is silent then");
    }

    /// A reset of any length: its end is ordered once its begin has been answered.
    #[test]
    fn a_reset_that_ends_at_once_is_one_all_the_same() {
        let (mut upper, mut lower) = pair();
        upper.hold(ms(1), HOT);
        upper.hold(ms(1), None);
        assert_eq!(upper.poll(ms(1)).unwrap().word, ResetWord::AssertHot, "lost");
        assert_eq!(upper.poll(ms(5)), None);
        let all = exchange(&mut upper, &mut lower, ms(11));
        assert_eq!((all, upper.is_open()), (vec![Ordered::Begins, Ordered::Ends], true));
    }

    #[test]
    fn what_holds_is_said_again_and_ends_when_nobody_says_it() {
        let (mut upper, mut lower) = pair();
        upper.hold(ms(0), Some(Reset::Fundamental));
        assert_eq!(exchange(&mut upper, &mut lower, ms(0)), [Ordered::Begins]);
        for second in 1..=9 {
            assert_eq!(lower.tick(ms(1_000 * second), true), None, "{second}");
            assert_eq!(exchange(&mut upper, &mut lower, ms(1_000 * second)), []);
        }
        assert!(lower.is_held());
        assert_eq!(lower.tick(ms(11_999), true), None);
        assert_eq!(lower.next_due(), Some(ms(12_000)));
        assert_eq!(lower.tick(ms(12_000), true), Some(Ordered::Ends), "the one above is gone");
        // Loss of the link ends the reset as well, and the upper end orders it again when the link is back.
        upper.link_down();
        assert_eq!(upper.next_due(), None);
        upper.link_up(ms(13_000));
        assert_eq!(exchange(&mut upper, &mut lower, ms(13_000)), [Ordered::Begins]);
        assert_eq!(lower.tick(ms(13_001), false), Some(Ordered::Ends));
    }

    /// PERST# within a hot reset resets once more; a hot reset within PERST# changes nothing, and remains when
    /// PERST# ends.
    #[test]
    fn levels_are_of_two_kinds() {
        let (mut upper, mut lower) = pair();
        upper.hold(ms(0), HOT);
        assert_eq!(exchange(&mut upper, &mut lower, ms(0)), [Ordered::Begins]);
        upper.hold(ms(1), Some(Reset::Fundamental));
        assert_eq!(exchange(&mut upper, &mut lower, ms(1)), [Ordered::Begins]);
        upper.pulse(ms(2));
        upper.hold(ms(2), HOT);
        assert_eq!(exchange(&mut upper, &mut lower, ms(2)), []);
        assert!(lower.is_held() && !upper.is_open());
        upper.hold(ms(3), None);
        assert_eq!(exchange(&mut upper, &mut lower, ms(3)), [Ordered::Ends]);
    }

    /// A lower end that never answers gets ten tries, then ten a second; after three seconds it is taken for one
    /// without resets, unless a reset is to hold.
    #[test]
    fn who_knows_no_resets_is_left_alone() {
        let (mut upper, _) = pair();
        for begin in [0, 10_000] {
            upper.pulse(ms(begin));
            let tries = begin..begin + 100;
            let sent = tries.filter(|&at| upper.poll(ms(at)).is_some()).count();
            assert_eq!((sent, upper.is_unanswered()), (usize::from(TRIES_MAX), true));
            let tries = begin + 100..begin + 5_000;
            let sent = tries.filter(|&at| upper.poll(ms(at)).is_some()).count();
            assert_eq!((sent, upper.is_open(), upper.next_due()), (30, true, None));
            assert_eq!((upper.take_given_up(), upper.take_given_up()), (true, false));
        }
        upper.hold(ms(20_000), HOT);
        assert_eq!((20_000..30_000).filter(|&at| upper.poll(ms(at)).is_some()).count(), 109);
        assert!(!upper.is_open(), "it holds");
        upper.hold(ms(30_000), None);
        assert!((30_000..35_000).any(|at| upper.poll(ms(at)).is_none() && upper.take_given_up()));
        assert!(upper.is_open());
    }

    /// A lower end that has answered before and stops: the link opens only after it has been down.
    #[test]
    fn who_does_not_answer_any_more_stays_closed() {
        let (mut upper, mut lower) = pair();
        upper.pulse(ms(0));
        exchange(&mut upper, &mut lower, ms(0));
        upper.pulse(ms(0));
        let sent = (0..5_000).filter(|&at| upper.poll(ms(at)).is_some()).count();
        assert_eq!((sent, upper.is_open(), upper.take_given_up()), (59, false, false));
        upper.link_down();
        upper.link_up(ms(6_000));
        assert_eq!((upper.is_open(), upper.poll(ms(6_000))), (true, None));
    }

    #[test]
    fn answers_to_other_orders_and_orders_from_below_do_nothing() {
        let (mut upper, mut lower) = pair();
        let done = |number| LinkReset { word: ResetWord::Done, number };
        assert!(!upper.receive(ms(0), done(0)), "nothing is asked");
        upper.pulse(ms(0));
        let order = upper.poll(ms(0)).unwrap();
        for number in (0..=u8::MAX).filter(|&number| number != order.number) {
            assert!(!upper.receive(ms(0), done(number)) && upper.begins.is_some(), "{number}");
        }
        for word in [ResetWord::AssertHot, ResetWord::AssertPerst, ResetWord::Deassert] {
            assert!(!upper.receive(ms(0), LinkReset { word, ..order }) && upper.begins.is_some());
        }
        assert_eq!(lower.receive(ms(0), done(order.number)), None);
        assert!(!lower.is_held());
    }

    /// With messages lost and doubled, each ordered reset begins at least once after its order, and in the end the
    /// lower end is in the ordered state.
    #[test]
    fn no_reset_is_lost() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let (mut upper, mut lower) = pair();
            let (mut owed, mut wanted) = (false, None);
            for at in 1..4_000 {
                let now = ms(at);
                if at < 2_000 && rng.chance(1, 40) {
                    match rng.below(3) {
                        0 => {
                            owed |= wanted.is_none();
                            wanted = HOT;
                            upper.hold(now, HOT);
                        }
                        1 => {
                            wanted = None;
                            upper.hold(now, None);
                        }
                        _ => {
                            owed |= wanted.is_none();
                            upper.pulse(now);
                        }
                    }
                }
                while let Some(order) = upper.poll(now) {
                    for _ in 0..rng.below(3) {
                        let (change, answer) = lower.receive(now, order).unwrap();
                        owed &= change != Some(Ordered::Begins);
                        // An end that was in reset all along has no state from before the order.
                        owed &= !(lower.is_held() && change.is_none());
                        if rng.chance(2, 3) {
                            upper.receive(now, answer);
                        }
                    }
                }
            }
            assert!(!owed, "seed {seed}");
            assert_eq!((lower.is_held(), upper.is_open()), (wanted.is_some(), wanted.is_none()));
        }
    }
}
