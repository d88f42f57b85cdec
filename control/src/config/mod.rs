//! Configuration: the table of parameters, reading TOML and flags against it, and what results.
//!
//! Text to [`Settings`] (values with places) to [`Config`] (what the switch takes); one table
//! ([`table::SECTIONS`]) drives reading, `weft config defaults` and the documentation.
//!
//! Units: as the table says.
//! Source: docs/spec/pipeline.md §12.

pub mod args;
pub mod choice;
pub mod document;
pub mod param;
pub mod places;
pub mod problem;
pub mod profiles;
pub mod quantity;
pub mod resolve;
pub mod settings;
pub mod sources;
pub mod table;
pub mod value;

pub use args::SettingsArgs;
pub use problem::{ConfigError, Place, Problem};
pub use resolve::{Config, Effective, RunConfig, RunPort, Timing, TrafficConfig};
pub use settings::Settings;
pub use sources::Sources;
