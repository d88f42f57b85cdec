//! Running switches that are measured: nothing else runs beside these tests.
//!
//! A module for each subject; `tools/test.py` runs this binary alone.
//!
//! Units: as each module says.
//! Source: ARCHITECTURE.md "Layout of the tree".

mod bench;
mod express;
mod soak;
