//! What the manager is asked to bring about, what it remembers, and how both name the parts of a fabric.

pub mod desired;
pub mod names;
pub mod store;
