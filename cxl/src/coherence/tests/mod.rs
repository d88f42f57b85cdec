//! The two halves of coherence, each by itself and both in every order that there is.
//!
//! Source: docs/spec/cxl-fabric.md "Back-invalidate".

mod cache;
mod explore;
mod filter;
pub(crate) mod worlds;
