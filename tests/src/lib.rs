//! What the conformance and end-to-end tests share.
//!
//! Shape: `tidy` holds the source tree to the map, `fuzz` holds bodies of fuzz targets, `netns` makes
//! networks of kernel hosts, `talk` has them talk.
//! Units: as each module says.
//! Source: style.md C1, C12, C14; architecture.md, "The house".
#![forbid(unsafe_code)]
#![expect(clippy::indexing_slicing, reason = "a test fails that way")]

pub mod fuzz;
pub mod netns;
pub mod talk;
pub mod tidy;
