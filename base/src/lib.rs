//! What all parts stand on, and what knows nothing of frames.
//!
//! Shape: `sync` has the machine's atomics or the model checker's; `ring`, `free` and `counters` pass things between
//! threads with them; `eventfd` wakes one that sleeps, `threads` tells of one that is gone; `rng` is seeded; `files` are
//! those that weft writes; `causes` tells of an error with all that caused it.
//! Units: as each module says.
//! Source: ARCHITECTURE.md "Layout of the tree".

pub mod causes;
pub mod counters;
#[expect(unsafe_code, reason = "eventfd")]
pub mod eventfd;
pub mod files;
pub mod free;
#[expect(unsafe_code, reason = "slots handed between two threads")]
pub mod ring;
pub mod rng;
pub mod sync;
#[expect(unsafe_code, reason = "gettid, tgkill")]
pub mod threads;
