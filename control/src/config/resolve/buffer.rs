//! The shared buffer: cells, headroom, and what percentages of a queue are taken of.
//!
//! Shape: [`BufferConfig`]; headroom from rate, cable, longest frame and the peer's response.
//! Units: cells and bytes; times in ns.
//! Source: docs/spec/pipeline.md §4; IEEE 802.1Q-2022 Annex O (what arrives after a PAUSE was sent).

use weft_dataplane::config::{BufferConfig, PfcConfig, PortConfig};
use weft_dataplane::snapshot::{plan_buffer, without_idle_headroom};
use weft_dataplane::time::LinkRate;
use weft_dataplane::types::PriSet;

use super::{Resolver, RunConfig, Timing, Value, scale, to_u32};

const MIB: u64 = 1 << 20;
/// What is there to share unless the size is given.
const SHARED_BYTES: u64 = 32 * MIB;
/// Bytes of a PFC frame on the wire, with preamble, FCS and gap.
const PFC_WIRE_BYTES: u64 = 84;
/// Preamble, FCS and gap of a frame, bytes.
const WIRE_OVERHEAD: u64 = 24;
/// Shortest frame on the wire, bytes.
const WIRE_MIN: u64 = 84;
/// Cells that a buffer can have: the pool's most chunks.
const CELLS_MAX: u64 = 1 << 24;

impl Resolver<'_> {
    pub(super) fn buffer(
        &mut self,
        ports: &[PortConfig],
        pfc: &PfcConfig,
        run: &mut RunConfig,
    ) -> BufferConfig {
        const HERE: &str = "buffer";
        let cell = self.cell_bytes(run.frame_len_max);
        let cells = |bytes: u64| to_u32(bytes.div_ceil(cell));
        let lossless = if pfc.enabled { pfc.lossless } else { PriSet::EMPTY };
        let frame_cells = (run.frame_len_max as u64).div_ceil(cell);
        let xon_offset = self.int(HERE, "xon_offset_bytes").unwrap_or(2 * frame_cells * cell);
        self.derive(HERE, "xon_offset_bytes", xon_offset);
        let mut config = BufferConfig {
            cell_bytes: to_u32(cell),
            total_cells: 0,
            sharing: self.choice(HERE, "buffer_sharing"),
            alpha: self.alpha(),
            voq_reserve_cells: cells(self.int(HERE, "voq_reserve_bytes").unwrap_or(0)),
            pg_reserve_cells: cells(self.int(HERE, "pg_reserve_bytes").unwrap_or(0)),
            headroom_cells: self.headrooms(ports, run, cell),
            xon_offset_cells: cells(xon_offset),
        };
        let fixed = |config: &BufferConfig, pris| fixed_cells(config, ports, pris, lossless);
        let total = match (self.int(HERE, "shared_cells"), self.int(HERE, "buffer_size_mb")) {
            (Some(shared), size) => {
                let total = shared + fixed(&config, self.pris);
                let mib = (total * cell).div_ceil(MIB);
                if size.is_some_and(|size| size != mib) {
                    self.refuse_size(mib);
                }
                total
            }
            (None, Some(mib)) => {
                let total = (mib * MIB) / cell;
                let is_tight = fixed(&config, self.pris) > total / 2;
                if self.timing == Timing::Live && is_tight && self.shrink_rings(run) {
                    config.headroom_cells = self.headrooms(ports, run, cell);
                }
                total
            }
            (None, None) => SHARED_BYTES / cell + fixed(&config, self.pris),
        };
        if total > CELLS_MAX {
            let keys = ["buffer_size_mb", "shared_cells", "headroom_bytes"];
            let place = self.place_of(&keys.map(|key| (HERE, key)));
            let message = format!(
                "expected at most {CELLS_MAX} cells of {cell} bytes, found {total}; headroom and reserves count too"
            );
            self.refuse(place, "buffer.buffer_size_mb", message);
        }
        self.derive(HERE, "buffer_size_mb", (total * cell).div_ceil(MIB));
        config.total_cells = to_u32(total);
        config
    }

    /// Refuses a size that is not the one of `mib` MiB which the cells to share need.
    fn refuse_size(&mut self, mib: u64) {
        let place = self.place("buffer", "buffer_size_mb");
        let shared = self.place("buffer", "shared_cells");
        let message = format!(
            "expected {mib}, what buffer.shared_cells ({shared}) needs with headroom and reserves; leave out one of both"
        );
        self.refuse(place, "buffer.buffer_size_mb", message);
    }

    /// Cells of headroom of an ingress group of each port.
    fn headrooms(&mut self, ports: &[PortConfig], run: &RunConfig, cell: u64) -> Vec<u32> {
        const HERE: &str = "buffer";
        let mut cells = Vec::with_capacity(ports.len());
        for (port, device) in ports.iter().zip(&run.ports) {
            let of_port = if let Some(bytes) = self.int(HERE, "headroom_bytes") {
                bytes.div_ceil(cell)
            } else {
                let rings = device.rx_ring_frames * device.xdp.queues.unwrap_or(1);
                self.headroom(port, rings as u64, cell)
            };
            cells.push(to_u32(of_port));
        }
        if let Some(&most) = cells.iter().max() {
            self.derive(HERE, "headroom_bytes", u64::from(most) * cell);
        }
        cells
    }

    fn derive(&mut self, section: &'static str, key: &'static str, value: u64) {
        let value = Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
        self.derived.insert((section, 0, key), value);
    }

    fn cell_bytes(&mut self, frame_len_max: usize) -> u64 {
        let derived = match self.timing {
            // A chunk of the pool: the frame, what is kept free before it, FCS.
            Timing::Live => (weft_dataplane::pool::HEADROOM + frame_len_max + 4)
                .next_power_of_two()
                .max(512) as u64,
            Timing::Virtual => 256,
        };
        self.derive("buffer", "cell_bytes", derived);
        self.int("buffer", "cell_bytes").unwrap_or(derived)
    }

    fn alpha(&mut self) -> weft_dataplane::types::PerPri<i8> {
        const SHIFTS: [(f64, i8); 7] =
            [(0.125, -3), (0.25, -2), (0.5, -1), (1.0, 0), (2.0, 1), (4.0, 2), (8.0, 3)];
        let value = self.get("buffer", "dt_alpha").unwrap_or(Value::Int(1));
        let place = self.place("buffer", "dt_alpha");
        self.per_pri(&value, &place, "buffer.dt_alpha", 0, |value| {
            let alpha = value.as_num()?;
            SHIFTS.iter().find(|(of, _)| of.total_cmp(&alpha).is_eq()).map(|(_, shift)| *shift)
        })
    }

    /// Cells of headroom of one ingress group of `port`.
    ///
    /// In virtual time: round trip of the cable, the peer's response, a longest frame that is under
    /// way at each end and the PFC frame itself, all of it in the frames that take the most cells for
    /// their time on the wire. Live, the peer's response outweighs all else: its bytes at the
    /// link's rate, and a cell or more for each frame that the rings of both ends can hold.
    fn headroom(&mut self, port: &PortConfig, rx_ring_frames: u64, cell: u64) -> u64 {
        let frame = port.frame_len_max as u64;
        let response_us = self.num("buffer", "peer_response_us");
        let (derived_us, cable_m) = match self.timing {
            Timing::Live => (10_000, 0.0),
            Timing::Virtual => (1, self.num("buffer", "cable_m").unwrap_or(0.0)),
        };
        self.derive("buffer", "peer_response_us", derived_us);
        let response_ns = response_us.map_or(derived_us * 1_000, |us| scale(us, 1e3));
        let round_trip_ns = scale(cable_m, 10.0); // 5 ns/m there and back
        let bytes = bytes_in(port.rate, response_ns + round_trip_ns);
        match self.timing {
            Timing::Live => {
                let rings = self.int("switch", "tx_ring_frames").unwrap_or(0) + rx_ring_frames;
                bytes.div_ceil(cell) + rings * frame.div_ceil(cell)
            }
            Timing::Virtual => {
                let wire = bytes + 2 * (frame + WIRE_OVERHEAD) + PFC_WIRE_BYTES;
                // Densest: frames of the shortest length, or one byte longer than a cell.
                let short = wire.div_ceil(WIRE_MIN) * 60_u64.div_ceil(cell);
                let long = (wire * 2).div_ceil((cell + 1 + WIRE_OVERHEAD).max(WIRE_MIN));
                short.max(long)
            }
        }
    }

    /// Bytes that percentages of a queue (output, priority) are taken of.
    pub(super) fn queue_capacity(
        &mut self,
        buffer: &BufferConfig,
        ports: &[PortConfig],
        pfc: &PfcConfig,
    ) -> Option<u64> {
        let lossless = if pfc.enabled { pfc.lossless } else { PriSet::EMPTY };
        match plan_buffer(buffer, ports, self.pris, lossless) {
            Ok((_, plan)) => {
                self.derive("buffer", "shared_cells", plan.shared);
                let shared = plan.shared * u64::from(buffer.cell_bytes);
                let derived = (shared / (2 * ports.len() as u64)).max(1);
                self.derive("buffer", "queue_capacity_bytes", derived);
                Some(self.int("buffer", "queue_capacity_bytes").unwrap_or(derived))
            }
            Err(error) => {
                let keys =
                    ["buffer_size_mb", "headroom_bytes", "pg_reserve_bytes", "voq_reserve_bytes"];
                let place = self.place_of(&keys.map(|key| ("buffer", key)));
                let message =
                    format!("expected room to share; {error}, of {} bytes", buffer.cell_bytes);
                self.refuse(place, "buffer.buffer_size_mb", message);
                None
            }
        }
    }
}

/// Headroom and reserves.
fn fixed_cells(config: &BufferConfig, ports: &[PortConfig], pris: usize, lossless: PriSet) -> u64 {
    let (count, lossless) = (ports.len() as u64, lossless.len() as u64);
    let counted = without_idle_headroom(config, ports);
    let headroom: u64 = counted.headroom_cells.iter().map(|&cells| u64::from(cells)).sum();
    headroom * lossless
        + count * lossless * u64::from(config.pg_reserve_cells)
        + count
            * count
            * (pris as u64 - lossless.min(pris as u64))
            * u64::from(config.voq_reserve_cells)
}

/// Bytes that a link carries in `ns`.
fn bytes_in(rate: LinkRate, ns: u64) -> u64 {
    let bytes = u128::from(rate.as_bps()) * u128::from(ns) / 8_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX / 4)
}
