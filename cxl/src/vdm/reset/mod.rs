//! Virtual links, both ends: reset and Link Up between a `vDSP` and the `vUSP` that it is bound to.
//!
//! [`VirtualDsp`] sends Assert PERST#, Assert Reset and Deassert Reset, [`VirtualUsp`] sends Link Up; both keep a
//! [`LinkState`] and report [`LinkEvent`]s.
//!
//! Units: picoseconds.
//! Source: docs/spec/wire-formats.md §3.7 (`vDSP` and `vUSP` match both PIDs), §3.8; CXL 3.1 sections 7.7.6.4,
//! 7.7.11.1.
//!
//! Each order is sent ten times, 10 ms apart, or until it is answered or replaced. Link Up answers Deassert Reset.
//! There is no answer to an Assert, so it is sent all ten times while it holds. Link Up has no answer either:
//! [`VirtualUsp::heard`] ends it, as any TLP of the binding shows that the other end has received it. When the
//! tries of a Deassert run out the link is down; a late Link Up still brings it up. When those of a Link Up run out
//! nothing changes: a `vDSP` that is bound later asks for another one by a Deassert.
//!
//! Neither end notices an Assert of which all ten tries are lost: the standard has no answer for it.

mod dsp;
mod link;
#[cfg(test)]
mod tests;
mod usp;

pub use dsp::VirtualDsp;
pub use link::{Binding, LinkCounts, LinkEvent, LinkState, Reset};
pub use usp::VirtualUsp;
