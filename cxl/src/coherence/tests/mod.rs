//! Tests of the two halves of coherence: each alone, and both in every order of messages.
//!
//! Source: docs/spec/cxl-fabric.md "Back-invalidate".

mod cache;
mod explore;
mod filter;
pub(crate) mod worlds;
