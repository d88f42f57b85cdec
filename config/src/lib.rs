//! Configuration: the table of parameters, the reader of TOML and flags, and the configuration that results.
//!
//! Text becomes [`Settings`] (checked values, each with the place where it was set), and these become a [`Config`],
//! which the switch takes. One table ([`table::SECTIONS`]) drives reading, `weft config defaults` and the
//! documentation.
//!
//! Source: docs/spec/pipeline.md §12.
#![forbid(unsafe_code)]

pub mod choice;
pub mod document;
pub mod param;
pub mod places;
pub mod profiles;
pub mod quantity;
pub mod read;
pub mod resolve;
pub mod scenario;
pub mod settings;
pub mod sources;
pub mod table;
pub mod value;

pub use read::{ReadError, SettingsFlags};
pub use resolve::{Config, Effective, RunConfig, RunPort, Timing, TrafficConfig};
pub use settings::Settings;
pub use sources::Sources;
pub use weft_toml::{ConfigError, Place, Problem};
