//! What a fabric consists of: components, links, PIDs, and rules about them.
//!
//! Nothing here asks a component; every other folder builds on this one.

pub mod graph;
pub mod inventory;
pub mod lineage;
pub mod rules;
pub mod text;
pub mod way;
