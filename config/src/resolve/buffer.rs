//! The shared buffer: its cells, its headroom, and the capacity that percentages of a queue refer to.
//!
//! `[buffer]` becomes a [`BufferConfig`]. Headroom that is not set follows from rate, cable, latencies, longest frame
//! and the response time of the peer. Sizes become cells.
//!
//! Source: docs/spec/pipeline.md §4.

use weft_dataplane::buffer::{Headroom, live_cells};
use weft_dataplane::config::{BufferConfig, PfcConfig, PortConfig};
use weft_dataplane::snapshot::{plan_buffer, without_idle_headroom};
use weft_dataplane::time::Span;
use weft_dataplane::types::{Alpha, PerPri, PriSet};

use super::run::InVirtualTime;
use super::{Problem, Resolver, RunConfig, RunPort, Timing, Value, scale, to_u32};
use crate::quantity::parse_ratio;
use crate::table::{Key, key};

const MIB: u64 = 1 << 20;
/// Bytes of the shared part where no key gives a size; headroom and reserves are added to them.
const SHARED_BYTES: u64 = 32 * MIB;
/// How long a peer may take to obey a PAUSE, live: the scheduler of its machine decides, not the cable.
const RESPONSE_LIVE: Span = Span::from_ms(10);
/// Response time of the peer and latency of the switch together, in virtual time.
const BOTH_ENDS: Span = Span::from_us(1);
/// Most cells of a buffer: as many as a pool has chunks at most.
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
        // Without PFC no priority is lossless: none has headroom or a group's reserve.
        let lossless = if pfc.enabled { pfc.lossless } else { PriSet::EMPTY };
        let frame_cells = (run.frame_len_max as u64).div_ceil(cell);
        // In whole cells, as a group counts those: two frames of maximum size below XOFF.
        let xon_offset = self.int(key!(HERE, "xon_offset_bytes")).unwrap_or(2 * frame_cells * cell);
        self.derive(key!(HERE, "xon_offset_bytes"), xon_offset);
        let mut config = BufferConfig {
            cell_bytes: to_u32(cell),
            total_cells: 0,
            sharing: self.choice(key!(HERE, "buffer_sharing")),
            alpha: self.alpha(),
            voq_reserve_cells: cells(self.int(key!(HERE, "voq_reserve_bytes")).unwrap_or(0)),
            pg_reserve_cells: cells(self.int(key!(HERE, "pg_reserve_bytes")).unwrap_or(0)),
            headroom_cells: self.headrooms(ports, run, cell),
            xon_offset_cells: cells(xon_offset),
        };
        let fixed = |config: &BufferConfig, pris| fixed_cells(config, ports, pris, lossless);
        let sizes = (self.int(key!(HERE, "shared_cells")), self.int(key!(HERE, "buffer_size_mb")));
        let total = match sizes {
            (Some(shared), size) => {
                let total = shared + fixed(&config, self.pris);
                let mib = (total * cell).div_ceil(MIB);
                // `weft config show` prints both keys, and its output is a configuration: a size that agrees is
                // accepted.
                if size.is_some_and(|size| size != mib) {
                    self.refuse_size(mib);
                }
                total
            }
            (None, Some(mib)) => {
                let total = (mib * MIB) / cell;
                // Headroom for whole receive rings may leave little of a buffer whose size is set. Then it covers
                // fewer frames of the rings whose length is not set.
                let is_tight = fixed(&config, self.pris) > total / 2;
                if self.timing == Timing::Live && is_tight && self.cover_less(run) {
                    config.headroom_cells = self.headrooms(ports, run, cell);
                }
                total
            }
            (None, None) => SHARED_BYTES / cell + fixed(&config, self.pris),
        };
        if total > CELLS_MAX {
            // Each of the three can be the cause: the message stands at the first one that is set.
            let place = self.place_of(&[
                key!(HERE, "buffer_size_mb"),
                key!(HERE, "shared_cells"),
                key!(HERE, "headroom_bytes"),
            ]);
            let message = format!(
                "expected at most {CELLS_MAX} cells of {cell} bytes, found {total}; headroom and reserves count too"
            );
            self.refuse(place, "buffer.buffer_size_mb", message);
        }
        self.derive(key!(HERE, "buffer_size_mb"), (total * cell).div_ceil(MIB));
        // After the rings were settled above: the warning names the bytes that follow without `headroom_bytes`.
        self.warn_of_small_headroom(ports, run, pfc, cell);
        config.total_cells = to_u32(total);
        config
    }

    /// Refuses a `buffer_size_mb` other than the `mib` MiB that follow from `shared_cells`.
    fn refuse_size(&mut self, mib: u64) {
        let place = self.place(key!("buffer", "buffer_size_mb"));
        let shared = self.place(key!("buffer", "shared_cells"));
        let message = format!(
            "expected {mib}, what buffer.shared_cells ({shared}) needs with headroom and reserves; leave out one of both"
        );
        self.refuse(place, "buffer.buffer_size_mb", message);
    }

    /// Cells of headroom of one ingress group, by port; as set, else as needed.
    fn headrooms(&mut self, ports: &[PortConfig], run: &RunConfig, cell: u64) -> Vec<u32> {
        let needed = self.needed_headrooms(ports, run, cell);
        let cells = match self.int(key!("buffer", "headroom_bytes")) {
            Some(bytes) => vec![to_u32(bytes.div_ceil(cell)); ports.len()],
            None => needed,
        };
        // One value is shown for all ports: the largest, which none of them exceeds.
        if let Some(&most) = cells.iter().max() {
            self.derive(key!("buffer", "headroom_bytes"), u64::from(most) * cell);
        }
        cells
    }

    /// Cells of headroom that one ingress group needs, by port.
    fn needed_headrooms(&mut self, ports: &[PortConfig], run: &RunConfig, cell: u64) -> Vec<u32> {
        // Each AF_XDP queue has a ring of its own (`rx_ring_frames` each).
        let rings = |device: &RunPort| device.covered_frames * device.xdp.queues.unwrap_or(1);
        let each = ports.iter().zip(&run.ports);
        each.map(|(port, device)| {
            self.headroom(port, rings(device) as u64, run.in_virtual_time, cell)
        })
        .collect()
    }

    /// Warns where the headroom that is set does not cover the frames that can arrive after XOFF.
    fn warn_of_small_headroom(
        &mut self,
        ports: &[PortConfig],
        run: &RunConfig,
        pfc: &PfcConfig,
        cell: u64,
    ) {
        let Some(found) = self.int(key!("buffer", "headroom_bytes")) else { return };
        if !pfc.enabled || pfc.lossless.is_empty() {
            return;
        }
        let needed = self.needed_headrooms(ports, run, cell);
        let short = needed
            .into_iter()
            .zip(ports)
            .filter(|(cells, port)| port.pfc && u64::from(*cells) > found.div_ceil(cell));
        // The first port of those that need the most: `max_by_key` would find the last one.
        let most = short.fold(None, |most: Option<(u32, &PortConfig)>, row| match most {
            Some(most) if most.0 >= row.0 => Some(most),
            _ => Some(row),
        });
        let Some((cells, port)) = most else { return };
        let follows = match self.timing {
            Timing::Live => "peer_response_us and rx_ring_frames",
            Timing::Virtual => "peer_response_us, cable_m and fixed_latency_ns",
        };
        let message = format!(
            "a lossless priority may lose frames: {} bytes can come to {} after its XOFF, found {found}; without this key headroom follows from {follows}",
            u64::from(cells) * cell,
            port.name,
        );
        let place = self.place(key!("buffer", "headroom_bytes"));
        self.warnings.push(Problem { place, key: "buffer.headroom_bytes".to_owned(), message });
    }

    fn derive(&mut self, key: Key, value: u64) {
        let value = Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
        self.derived.insert(key.slot(0), value);
    }

    fn cell_bytes(&mut self, frame_len_max: usize) -> u64 {
        let derived = match self.timing {
            // A cell is a chunk of the pool, which holds free room in front, the longest frame and its FCS.
            Timing::Live => (weft_dataplane::pool::HEADROOM + frame_len_max + 4)
                .next_power_of_two()
                .max(512) as u64,
            Timing::Virtual => 256,
        };
        self.derive(key!("buffer", "cell_bytes"), derived);
        self.int(key!("buffer", "cell_bytes")).unwrap_or(derived)
    }

    fn alpha(&mut self) -> PerPri<Alpha> {
        let value = self.get(key!("buffer", "dt_alpha")).unwrap_or(Value::Int(1));
        let place = self.place(key!("buffer", "dt_alpha"));
        self.per_pri(&value, &place, "buffer.dt_alpha", Alpha::ONE, |value| {
            // By its decimal text, which gives the fraction exactly; a float would round 0.1 before the dataplane
            // sees it.
            let (num, den) = match value {
                Value::Text(text) => parse_ratio(text),
                number => parse_ratio(&number.to_string()),
            }?;
            Alpha::ratio(num, den)
        })
    }

    /// Cells of headroom that one ingress group of `port` needs.
    fn headroom(
        &mut self,
        port: &PortConfig,
        rx_ring_frames: u64,
        in_virtual_time: InVirtualTime,
        cell: u64,
    ) -> u32 {
        let response = match self.timing {
            Timing::Live => RESPONSE_LIVE,
            Timing::Virtual => response_by_default(in_virtual_time.fixed_latency),
        };
        self.derived
            .insert(key!("buffer", "peer_response_us").slot(0), Value::Num(in_us(response)));
        let set = self.num(key!("buffer", "peer_response_us"));
        let response = set.map_or(response, |us| Span::from_ps(scale(us, 1e6)));
        match self.timing {
            Timing::Live => {
                // Frames in the peer's transmit ring leave in spite of a PAUSE. Its length is not known here: the
                // switch's own stands for it.
                let rings =
                    self.int(key!("switch", "tx_ring_frames")).unwrap_or(0) + rx_ring_frames;
                live_cells(port.rate, response, rings, port.frame_len_max, to_u32(cell))
            }
            Timing::Virtual => {
                let cable_m = self.num(key!("buffer", "cable_m")).unwrap_or(0.0);
                let headroom = Headroom {
                    rate: port.rate,
                    frame_len_max: port.frame_len_max,
                    overhead: in_virtual_time.wire_overhead,
                    latency: in_virtual_time.fixed_latency,
                    propagation: Span::from_ps(scale(cable_m, 5e3)), // 5 ns/m
                    response,
                };
                headroom.cells(to_u32(cell))
            }
        }
    }

    /// Capacity in bytes that percentages of a queue (output, priority) refer to; `None` if the buffer is refused.
    pub(super) fn queue_capacity(
        &mut self,
        buffer: &BufferConfig,
        ports: &[PortConfig],
        pfc: &PfcConfig,
    ) -> Option<u64> {
        let lossless = if pfc.enabled { pfc.lossless } else { PriSet::EMPTY };
        match plan_buffer(buffer, ports, self.pris, lossless) {
            Ok((_, plan)) => {
                self.derive(key!("buffer", "shared_cells"), plan.shared);
                let shared = plan.shared * u64::from(buffer.cell_bytes);
                // docs/spec/pipeline.md §8: the shared part / (2 x ports).
                let derived = (shared / (2 * ports.len() as u64)).max(1);
                self.derive(key!("buffer", "queue_capacity_bytes"), derived);
                Some(self.int(key!("buffer", "queue_capacity_bytes")).unwrap_or(derived))
            }
            Err(error) => {
                let place = self.place_of(&[
                    key!("buffer", "buffer_size_mb"),
                    key!("buffer", "headroom_bytes"),
                    key!("buffer", "pg_reserve_bytes"),
                    key!("buffer", "voq_reserve_bytes"),
                ]);
                let message =
                    format!("expected room to share; {error}, of {} bytes", buffer.cell_bytes);
                self.refuse(place, "buffer.buffer_size_mb", message);
                None
            }
        }
    }
}

/// Time that headroom grants a peer for obeying a PAUSE in virtual time, at a switch of this latency, unless a longer
/// one is known.
pub(crate) fn response_by_default(fixed_latency: Span) -> Span {
    Span::from_ps(BOTH_ENDS.as_ps().saturating_sub(fixed_latency.as_ps()))
}

#[expect(
    clippy::float_arithmetic,
    clippy::cast_precision_loss,
    reason = "control reads decimal units"
)]
pub(crate) fn in_us(span: Span) -> f64 {
    span.as_ps() as f64 / 1e6
}

/// Cells of headroom and reserves, which no queue shares.
fn fixed_cells(config: &BufferConfig, ports: &[PortConfig], pris: usize, lossless: PriSet) -> u64 {
    let (count, lossless) = (ports.len() as u64, lossless.len() as u64);
    // As `plan_buffer` counts it: ports without PFC have no headroom.
    let counted = without_idle_headroom(config, ports);
    let headroom: u64 = counted.headroom_cells.iter().map(|&cells| u64::from(cells)).sum();
    headroom * lossless
        + count * lossless * u64::from(config.pg_reserve_cells)
        + count
            * count
            * (pris as u64 - lossless.min(pris as u64))
            * u64::from(config.voq_reserve_cells)
}
