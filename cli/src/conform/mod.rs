//! Cases that hold a switch against what it should do: buffer, PFC, queues, ECN.
//!
//! [`Bench::new`] opens the interfaces; [`run`] → an [`Outcome`] of each case, in order; a case that fails does not keep the next ones from running.
//!
//! Units: frames, milliseconds.
//! Source: docs/conform.md.

mod bench;
mod cases;
mod links;

use serde::Serialize;
use weft_base::causes::with_causes;
use weft_control::sai::client::SaiError;
use weft_lab::clock::now;
use weft_lab::netdev::OpenError;

pub use self::bench::Bench;
use self::cases::CASES;

/// A port of the switch, and the interface by which this machine reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its name there.
    pub port: String,
    /// `[KIND:]DEVICE` here.
    pub interface: String,
}

/// Why a case has not passed.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// The switch does something else.
    #[error("{what}: expected {expected}, found {found}")]
    Differs {
        /// What was looked at.
        what: String,
        /// What it should be.
        expected: String,
        /// What it was.
        found: String,
    },
    /// Something has not come to be so.
    #[error("{0}: not within the limit")]
    Late(String),
    /// It cannot be asked of this switch, or from here; says why.
    #[error("{0}")]
    Skip(String),
    /// There is no such port.
    #[error("the switch has no port {0:?}")]
    NoPort(String),
    /// No field of a frame leads to a priority.
    #[error("no DSCP or PCP that the port trusts leads to priority {0}")]
    NoTag(u8),
    /// An interface is not opened.
    #[error("interface {interface:?}")]
    Open {
        /// Which.
        interface: String,
        /// Why.
        source: Box<OpenError>,
    },
    /// An interface does not do its work.
    #[error("{0}")]
    Device(String),
    /// The switch does not answer.
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

/// Whether a value is what it should be.
fn same<T: PartialEq + ToString>(what: &str, expected: T, found: T) -> Result<(), CaseError> {
    if expected == found { Ok(()) } else { Err(CaseError::differs(what, expected, found)) }
}

/// What a case does; it returns what was found, for people.
type Case = fn(&mut Bench) -> Result<String, CaseError>;

/// How a case ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The switch does what it should.
    Passed,
    /// It does not.
    Failed,
    /// It cannot be asked.
    Skipped,
}

/// What became of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Its name.
    pub case: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was found, or what is wrong.
    pub detail: String,
    /// How long it took, in milliseconds.
    pub ms: u64,
}

/// Names of all cases, and what each looks at.
pub fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    CASES.iter().map(|(name, what, _)| (*name, *what))
}

/// Runs the cases of these names, or all if there are none; `told` hears of each case as it ends.
///
/// # Errors
/// The switch cannot be brought to its defaults; no case has run then.
pub fn run(
    bench: &mut Bench,
    names: &[String],
    mut told: impl FnMut(&Outcome),
) -> Result<Vec<Outcome>, CaseError> {
    bench.fresh()?;
    let wanted =
        CASES.iter().filter(|(name, ..)| names.is_empty() || names.iter().any(|of| of == name));
    let mut outcomes = Vec::new();
    for (name, _, case) in wanted {
        let begun = now();
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
    bench.fresh()?;
    Ok(outcomes)
}
