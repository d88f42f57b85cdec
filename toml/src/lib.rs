//! TOML files that people write: configurations, topologies, specifications.
//!
//! A [`Document`] is a parsed text that knows the line and column of every key and value. Readers report each mistake as
//! a [`Problem`] with its [`Place`], and go on, so that one run shows all mistakes of a file ([`ConfigError`]). [`read()`]
//! does so for any type that serde can read.
//!
//! The crate is below all that read files (the fabric manager, the lab, the switch's configuration) and knows no key of
//! theirs.
#![forbid(unsafe_code)]

pub mod document;
pub mod problem;
pub mod quantity;
pub mod read;
pub mod words;

pub use document::{Document, Findings};
pub use problem::{ConfigError, Place, Problem};
pub use read::read;
