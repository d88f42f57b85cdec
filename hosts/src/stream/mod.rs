//! Streams: sequences of frames that are paced where they start and judged where they arrive.
//!
//! [`tx::StreamTx`] says when the next frame is due and builds it; [`rx::StreamRx`] finds loss, reordering, duplicates,
//! corruption and latency of one stream.

pub mod rx;
pub mod tx;

pub use rx::StreamRx;
pub use tx::{Gaps, StreamError, StreamSpec, StreamTx};
