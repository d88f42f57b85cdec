//! Conformance tests of a switch: buffer, PFC, queues, ECN.
//!
//! [`Bench::new`] opens the interfaces, and [`run`] returns an [`Outcome`] of each case, in order. A failed case does
//! not stop the next ones.
//!
//! Source: docs/conform.md.

mod bench;
mod cases;
mod links;

use serde::Serialize;
use weft_base::causes::with_causes;
use weft_control::sai_client::SaiError;
use weft_lab::clock::now;
use weft_lab::netdev::OpenError;

pub use self::bench::Bench;
use self::cases::CASES;

/// A port of the switch, and this machine's interface at the other end of its cable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Name in the switch.
    pub port: String,
    /// `[KIND:]DEVICE` on this machine.
    pub interface: String,
}

/// Why a case failed or was skipped.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The switch behaves differently.
    #[error("{what}: expected {expected}, found {found}")]
    Differs {
        /// The quantity that was compared.
        what: String,
        expected: String,
        found: String,
    },
    /// A condition was not met within the limit; names the condition.
    #[error("{0}: not within the limit")]
    Late(String),
    /// The case does not apply to this switch, or cannot be run from here; the text says why.
    #[error("{0}")]
    Skip(String),
    /// The switch has no port of this name.
    #[error("the switch has no port {0:?}")]
    NoPort(String),
    /// No DSCP or PCP maps to this priority.
    #[error("no DSCP or PCP that the port trusts leads to priority {0}")]
    NoTag(u8),
    /// An interface cannot be opened.
    #[error("interface {interface:?}")]
    Open { interface: String, source: Box<OpenError> },
    /// The parameters name no buffer pool.
    #[error("buf_pool_roid: expected an object ID such as 0x18000000000001, found {0:?}")]
    NoPool(String),
    /// An interface failed, or a test frame could not be made.
    #[error("{0}")]
    Device(String),
    /// The switch does not answer, or refuses a call.
    #[error(transparent)]
    Sai(#[from] SaiError),
}

impl CaseError {
    #[expect(clippy::needless_pass_by_value, reason = "numbers and texts, made for this")]
    fn differs(what: impl Into<String>, expected: impl ToString, found: impl ToString) -> Self {
        let (expected, found) = (expected.to_string(), found.to_string());
        Self::Differs { what: what.into(), expected, found }
    }
}

/// Compares a value with the expected one; `what` names it in the error.
fn same<T: PartialEq + ToString>(what: &str, expected: T, found: T) -> Result<(), CaseError> {
    if expected == found { Ok(()) } else { Err(CaseError::differs(what, expected, found)) }
}

/// The code of a case. Returns a sentence about the figures that it found.
type Case = fn(&mut Bench) -> Result<String, CaseError>;

/// Result of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The switch behaves as specified.
    Passed,
    /// The switch behaves differently, or does not answer.
    Failed,
    /// The case does not apply: see `detail`.
    Skipped,
}

/// Result of a case, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    pub case: &'static str,
    pub verdict: Verdict,
    /// Figures that were found, or the reason of a failure or skip.
    pub detail: String,
    pub ms: u64,
}

/// Names of all cases, each with its description.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    CASES.iter().map(|(name, what, _)| (*name, *what))
}

/// Results of a run.
pub struct Ran {
    pub outcomes: Vec<Outcome>,
    /// Whether the switch was left with all ports sending and its queues empty. The outcomes count all the same.
    pub restored: Result<(), CaseError>,
}

/// Runs the cases of these names, or all if `names` is empty; calls `told` as each case ends.
///
/// # Errors
/// Before the first case, the switch does not answer or its queues do not drain.
pub fn run(
    bench: &mut Bench,
    names: &[String],
    mut told: impl FnMut(&Outcome),
) -> Result<Ran, CaseError> {
    // Fails early: if queues don't drain before any case, every case would fail for the same reason.
    bench.fresh()?;
    let wanted =
        CASES.iter().filter(|(name, ..)| names.is_empty() || names.iter().any(|of| of == name));
    let mut outcomes = Vec::new();
    for (name, _, case) in wanted {
        let begun = now();
        // Thresholds are exact for an empty buffer only, and the case before may have left ports held.
        let done = bench.fresh().and_then(|()| case(bench));
        let (verdict, detail) = match done {
            Ok(detail) => (Verdict::Passed, detail),
            Err(CaseError::Skip(why)) => (Verdict::Skipped, why),
            Err(error) => (Verdict::Failed, with_causes(&error)),
        };
        let ms = now().since(begun).as_ns() / 1_000_000;
        let outcome = Outcome { case: name, verdict, detail, ms };
        told(&outcome);
        outcomes.push(outcome);
    }
    // Leaves the switch with all ports sending, as docs/conform.md promises.
    Ok(Ran { outcomes, restored: bench.fresh() })
}
