//! Views: figures in words, plots and pages for all crates that show results.
//!
//! [`figures`] formats numbers, [`svg`] draws plots, [`page`] makes HTML files that load nothing else, and [`policy`]
//! limits what they may do in a browser. [`results`] shows the results of a run.

pub mod figures;
pub mod page;
pub mod policy;
pub mod results;
pub mod svg;
