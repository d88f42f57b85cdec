//! A load: a range that is written and read back, again and again.
//!
//! A [`Plan`] for each round, with a seed of its own → a [`LoadReport`].
//!
//! Units: bytes; time as a parameter.
//! Source: docs/endpoint.md "Transfers".

use weft_dataplane::time::{Instant, Span};

use super::plan::{Plan, Source};
use super::{Submit, Transfer};
use crate::endpoint::command::{LoadReport, TransferReport};

/// How long a load that is refused waits before it tries again.
const LOAD_PAUSE: Span = Span::from_ms(10);

impl LoadReport {
    /// Counts what requests of a round have brought.
    fn add(&mut self, round: &TransferReport) {
        self.mismatched += round.mismatched;
        self.bytes += round.written + round.read;
        self.requests += round.requests;
        self.answered += round.answered;
        self.wrong += round.wrong;
        self.posted += round.posted;
        for (how, count) in &round.failures {
            *self.failures.entry(how.clone()).or_default() += count;
        }
    }
}

/// A range that is written and read back, again and again.
pub(super) struct Load {
    pub(super) plan: Plan,
    pub(super) round: u64,
    pub(super) rounds: u64,
    pub(super) pause: Span,
    pub(super) stopping: bool,
    pub(super) pause_until: Option<Instant>,
    pub(super) transfer: Option<Transfer>,
    pub(super) report: LoadReport,
    /// Correct answers when the last one came, and when that was.
    pub(super) last_answer: Option<(u64, Instant)>,
}

impl Load {
    /// What is counted so far, with what the round under way has brought.
    pub(super) fn report(&self) -> LoadReport {
        let mut report = self.report.clone();
        if let Some(round) = &self.transfer {
            report.add(&round.report);
            report.under_way = round.under_way.len() as u64;
        }
        report
    }

    /// Measures the time between answers.
    fn note_answers(&mut self, now: Instant) {
        let round = self.transfer.as_ref().map_or(0, |it| it.report.answered);
        let answered = self.report.answered + round;
        let (count, since) = *self.last_answer.get_or_insert((answered, now));
        let gap = now.since(since).as_ns();
        self.report.longest_gap_ns = self.report.longest_gap_ns.max(gap);
        if count != answered {
            self.last_answer = Some((answered, now));
        }
    }

    pub(super) fn pump(&mut self, now: Instant, submit: &mut Submit<'_>) -> usize {
        if self.report.running {
            self.note_answers(now);
        }
        if let Some(round) = self.transfer.as_mut().and_then(|it| it.end(now)) {
            let open = self.transfer.take().map_or(0, |it| it.under_way.len() as u64);
            self.report.unanswered += open;
            self.report.done += u64::from(round.ok);
            self.report.failed += u64::from(round.failed > 0 || round.timed_out);
            self.report.add(&round);
            self.round += 1;
            // What fails at once does not fail as often as there is time for.
            let pause = if round.ok { self.pause } else { self.pause.max(LOAD_PAUSE) };
            self.pause_until = Some(now + pause);
        }
        if self.transfer.is_none() {
            self.report.running = !self.stopping && (self.rounds == 0 || self.round < self.rounds);
            if !self.report.running || self.pause_until.is_some_and(|until| now < until) {
                return 0;
            }
            let seed = match self.plan.source {
                Source::Seed(seed) => seed.wrapping_add(self.round),
                _ => self.round,
            };
            let plan = Plan { source: Source::Seed(seed), ..self.plan.clone() };
            self.transfer = Some(Transfer::new(plan, now));
        }
        let pumped = self.transfer.as_mut().map_or(Ok(0), |it| it.pump(submit));
        pumped.unwrap_or_else(|_| {
            if let Some(round) = self.transfer.take() {
                self.report.unanswered += round.under_way.len() as u64;
                self.report.add(&round.report);
            }
            self.round += 1;
            self.report.failed += 1;
            *self.report.failures.entry("refused".to_owned()).or_default() += 1;
            self.pause_until = Some(now + LOAD_PAUSE);
            0
        })
    }
}
