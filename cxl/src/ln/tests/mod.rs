//! Rules of Lightweight Notification, one test each.
//!
//! Tables, name first.
//!
//! Units: bytes.
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use super::*;

mod lnc;
mod lnr;
mod random;
mod registers;
