//! A burst of frames: what ports and stages hand to each other.
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
