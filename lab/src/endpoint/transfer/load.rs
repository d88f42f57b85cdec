//! A load: writes a range and reads it back, round after round.
//!
//! Each round is a [`Plan`] with a seed of its own; the result is a [`LoadReport`].
//!
//! Source: docs/endpoint.md "Transfers".

use weft_dataplane::time::{Instant, Span};

use super::plan::{Plan, Source};
use super::{Submit, Transfer};
use crate::endpoint::command::{LoadReport, TransferReport};

/// Pause of a load after a failed or refused round.
const LOAD_PAUSE: Span = Span::from_ms(10);

impl LoadReport {
    /// Adds the counts of a round.
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

/// A load in progress, or ended.
pub(super) struct Load {
    pub(super) plan: Plan,
    pub(super) round: u64,
    pub(super) rounds: u64,
    pub(super) pause: Span,
    pub(super) stopping: bool,
    pub(super) pause_until: Option<Instant>,
    pub(super) transfer: Option<Transfer>,
    pub(super) report: LoadReport,
    /// Number of correct answers at the last one, and its time.
    pub(super) last_answer: Option<(u64, Instant)>,
}

impl Load {
    /// Counts so far, the current round included.
    pub(super) fn report(&self) -> LoadReport {
        let mut report = self.report.clone();
        if let Some(round) = &self.transfer {
            report.add(&round.report);
            report.under_way = round.under_way.len() as u64;
        }
        report
    }

    /// Measures the gap between correct answers.
    fn note_answers(&mut self, now: Instant) {
        let round = self.transfer.as_ref().map_or(0, |it| it.report.answered);
        // Both: a round's count starts at zero, and moves to `report` when it ends.
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
            // Without a pause, a target that refuses at once would be counted as thousands of failed rounds.
            let pause = if round.ok { self.pause } else { self.pause.max(LOAD_PAUSE) };
            self.pause_until = Some(now + pause);
        }
        if self.transfer.is_none() {
            self.report.running = !self.stopping && (self.rounds == 0 || self.round < self.rounds);
            if !self.report.running || self.pause_until.is_some_and(|until| now < until) {
                return 0;
            }
            // Another seed for each round: data left by an earlier round must not pass the comparison.
            let seed = match self.plan.source {
                Source::Seed(seed) => seed.wrapping_add(self.round),
                _ => self.round,
            };
            let plan = Plan { source: Source::Seed(seed), ..self.plan.clone() };
            self.transfer = Some(Transfer::new(plan, now));
        }
        let pumped = self.transfer.as_mut().map_or(Ok(0), |it| it.pump(submit));
        // A refusal ends the round early; the requests in flight are given up with it.
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
