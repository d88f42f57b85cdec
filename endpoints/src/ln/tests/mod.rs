//! Rules of the seed, one test each.
//! Shape: tables, name first.
//! Units: octets.
//! Source: seed 001; wire-formats.md 3.3.

use super::*;

mod lnc;
mod lnr;
mod random;
mod registers;
