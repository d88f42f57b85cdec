//! Switches whose ports are a test's own, in memory: what they claim, and a configuration for them.
//!
//! [`caps`] of such a port, [`config`] of a switch of so many.
//!
//! Units: bytes, cells.
#![expect(clippy::redundant_pub_crate, reason = "shared by several tests")]

use weft_dataplane::config::{LiveSizes, SwitchConfig};
use weft_dataplane::port::PortCaps;
use weft_dataplane::time::{LinkRate, Span};

/// Rate that the ports claim.
const RATE: LinkRate = LinkRate::gbps(10);
/// Longest frame.
pub(crate) const FRAME_LEN_MAX: usize = 1_518;
/// Bytes of a cell that is a chunk of the pool.
pub(crate) const CHUNK: u32 = 1_728;

/// What a port in memory says of itself.
pub(crate) fn caps() -> PortCaps {
    PortCaps {
        kind: "test",
        device: String::new(),
        frame_len_max: FRAME_LEN_MAX,
        rate: RATE,
        tx_partial_csum: true,
        virtual_time: false,
    }
}

/// A live switch of `ports` ports with so many priorities, for `cells` cells of frames, of `cell_bytes` each,
/// and so many of headroom for each lossless group.
pub(crate) fn config(
    ports: usize,
    pris: usize,
    cells: u32,
    cell_bytes: u32,
    headroom_cells: u32,
) -> SwitchConfig {
    let mut config = SwitchConfig::live(&LiveSizes {
        names: (0..ports).map(|port| format!("p{port}")).collect(),
        rate: RATE,
        pris,
        cells,
        cell_bytes,
        headroom_cells,
        frame_len_max: FRAME_LEN_MAX,
    });
    // Stations of these tests are everywhere: nothing is done against loops but where a test is about them.
    config.forward.loop_block = None;
    config.forward.sticky = Span::ZERO;
    config
}
