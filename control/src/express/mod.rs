//! The fast path in the kernel, as the switch's configuration has it.
//!
//! Shape: [`rules`]: a configuration in force to what the XDP program looks up.
//! Units: octets, VIDs, priorities.
//! Source: architecture.md, "The fast path in the kernel".

pub mod rules;

use weft_dataplane::fdb::FdbKey;
use weft_xdp::layout;

/// Key of a station in the kernel.
#[must_use]
pub fn station_key(key: FdbKey) -> u64 {
    layout::fdb_key(key.vid().get(), key.addr().to_bits())
}
