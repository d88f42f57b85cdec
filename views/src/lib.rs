//! Views: figures in words, plots and pages, for whoever has results to show.
//!
//! [`figures`] → text, [`svg`] → plots, [`page`] → HTML that needs nothing else, under a [`policy`].
//!
//! Units: as each says.

pub mod figures;
pub mod page;
pub mod policy;
pub mod results;
pub mod svg;
