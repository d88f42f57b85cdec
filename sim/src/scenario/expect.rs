//! Expectations: a metric of the results, the value that it should have, and how far off it may be.
//!
//! [`Expect`].
//!
//! Units: the metric's, which its name ends with; numbers in parts of 10^-9.
//! Source: docs/spec/model.md §3.

/// A decimal number, exact: parts of 10^-9.
pub use crate::results::decimal::Decimal as Number;

/// How far off a value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// So much, in the metric's unit; 0 for none.
    Absolute(Number),
    /// This part of the value: 0.01 is 1 %.
    Relative(Number),
    /// The value is the least.
    AtLeast,
    /// The value is the most.
    AtMost,
}

/// What is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// Name of the metric.
    pub metric: String,
    /// Its value.
    pub value: Number,
    /// How far off it may be.
    pub tolerance: Tolerance,
    /// Where the value is from.
    pub source: String,
}
