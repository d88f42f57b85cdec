//! Values that every part of a CXL fabric uses: port ids, addresses, interleaving, table entries.
//!
//! Newtypes over integers, and entries of fixed size with one decode and one emit each. Entries are
//! little-endian, as in the commands that carry them.
//!
//! Source: docs/spec/wire-formats.md §3.7, §4.5, §4.6, §5.1, §5.2; CXL 3.1 sections 7.7.2, 7.7.6,
//! 7.7.13.

pub mod entries;
pub mod ids;
pub mod interleave;

pub use entries::{DrtEntry, FastEntry, LdstEntry, ReRouterEntry, RgtEntry, RgtMode, Target};
pub use ids::{Bdf, Dpa, Hpa, Pid};
pub use interleave::Interleave;
