//! Expectations: a metric of the results, the value it should have, and a tolerance.
//!
//! Values are in the metric's unit, with which its name ends.
//!
//! Source: docs/spec/model.md §3.

/// A decimal number, exact: parts of 10^-9.
pub use crate::results::decimal::Decimal as Number;

/// How far the value found may be off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// By this much in the metric's unit; 0: not at all.
    Absolute(Number),
    /// By this part of the value: 0.01 is 1 %.
    Relative(Number),
    /// Upwards only: the value is the least that passes.
    AtLeast,
    /// Downwards only: the value is the largest that passes.
    AtMost,
}

/// An expectation of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// Name of the metric.
    pub metric: String,
    /// Value that the metric should have.
    pub value: Number,
    /// How far the value found may be off.
    pub tolerance: Tolerance,
    /// Source of the value: a formula, a page, another simulator.
    pub source: String,
}
