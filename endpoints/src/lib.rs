//! Hosts and traffic that hang on a switch's ports.
//!
//! Shape: [`frames`] build octets, [`stamp`] marks and checks them, [`stream`] paces and
//! judges a sequence of them.
//! Units: octets without FCS, picoseconds.
//! Source: issue 2, item 6 (`weft traffic`); wire-formats.md §1, §2.

pub mod classes;
pub mod frames;
pub mod pace;
pub mod sizes;
pub mod stamp;
pub mod stream;
