//! A burst of frames: the unit that ports and stages pass to each other.
//!
//! Up to [`BURST`] descriptors, in order, on the stack.
//!
//! Units: frames.
//! Source: ARCHITECTURE.md "The path of a frame".

use arrayvec::ArrayVec;

use crate::desc::Desc;

/// Most frames in one burst.
pub const BURST: usize = 64;

/// Up to [`BURST`] frames, first in first out.
pub type Batch = ArrayVec<Desc, BURST>;
