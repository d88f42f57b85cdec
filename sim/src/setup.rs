//! Makes a whole switch configuration from a few figures.
//!
//! Source: docs/spec/pipeline.md §2, §4, §7, §8, §9.

use weft_dataplane::buffer::Headroom;
use weft_dataplane::config::{
    BufferConfig, EcnConfig, EcnMark, ForwardConfig, LiveSizes, PfcConfig, PortConfig, SwitchConfig,
};
use weft_dataplane::time::{LinkRate, Span};
use weft_dataplane::types::PriSet;
use weft_parsers::{MacAddr, ParseConfig};

/// A switch in a few figures; [`Setup::config`] takes the rest from the defaults of a live switch.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Number of ports, which are named p0, p1, …
    pub ports: usize,
    /// Number of priorities, 4 or 8.
    pub pris: usize,
    /// Rate of every port, unless `rates` has another.
    pub rate: LinkRate,
    /// Rates of single ports: (index, rate).
    pub rates: Vec<(usize, LinkRate)>,
    /// Length of every cable in metres, at 5 ns/m.
    pub cable_m: u64,
    /// Fixed latency of a frame in the switch.
    pub latency: Span,
    /// Time from a PAUSE arriving at a peer until the peer is silent.
    pub peer_response: Span,
    /// Longest frame in bytes, without FCS.
    pub frame_len_max: usize,
    /// Size of the whole buffer in bytes.
    pub buffer_bytes: u64,
    /// Size of a buffer cell in bytes.
    pub cell_bytes: u32,
    /// Whether PFC is on, for the lossless priorities.
    pub pfc: bool,
    /// Whether the switch sets ECN marks.
    pub ecn: bool,
    /// Seed of everything that is random in the switch.
    pub seed: u64,
}

impl Setup {
    /// A switch of 100G ports with 10 m of cable, 300 ns latency and 4 MiB of buffer, PFC and ECN on.
    #[must_use]
    pub const fn new(ports: usize, pris: usize) -> Self {
        Self {
            ports,
            pris,
            rate: LinkRate::gbps(100),
            rates: Vec::new(),
            cable_m: 10,
            latency: Span::from_ns(300),
            peer_response: Span::from_ns(500),
            frame_len_max: 1_518,
            buffer_bytes: 4 << 20,
            cell_bytes: 256,
            pfc: true,
            ecn: true,
            seed: 1,
        }
    }

    /// Rate of port `index`, in `rates` or the common one.
    #[must_use]
    pub fn rate_of(&self, index: usize) -> LinkRate {
        self.rates.iter().find(|(port, _)| *port == index).map_or(self.rate, |&(_, rate)| rate)
    }

    /// Headroom that an ingress group of port `index` needs.
    #[must_use]
    pub fn headroom(&self, index: usize) -> Headroom {
        Headroom {
            rate: self.rate_of(index),
            frame_len_max: self.frame_len_max,
            overhead: true,
            latency: self.latency,
            propagation: Headroom::propagation(self.cable_m),
            response: self.peer_response,
        }
    }

    /// The configuration of this switch.
    #[must_use]
    pub fn config(&self) -> SwitchConfig {
        let lossless = lossless_default(self.pris);
        let total_cells = u32::try_from(self.buffer_bytes / u64::from(self.cell_bytes.max(1)));
        let live = SwitchConfig::live(&LiveSizes {
            names: (0..self.ports).map(|index| format!("p{index}")).collect(),
            rate: self.rate,
            pris: self.pris,
            cells: total_cells.unwrap_or(u32::MAX),
            cell_bytes: self.cell_bytes,
            headroom_cells: 0, // each port's own is below
            frame_len_max: self.frame_len_max,
        });
        let buffer = BufferConfig {
            headroom_cells: (0..self.ports)
                .map(|port| self.headroom(port).cells(self.cell_bytes))
                .collect(),
            // Two frames below XOFF, so that one frame does not pause and release a group in turn.
            xon_offset_cells: 2 * cells_of(self.frame_len_max, self.cell_bytes),
            ..live.buffer
        };
        let ports = live.ports.into_iter().enumerate();
        SwitchConfig {
            ports: ports.map(|(index, port)| self.port(index, port)).collect(),
            ecn: self.ecn(&buffer, lossless),
            pfc: PfcConfig { enabled: self.pfc, lossless, ..live.pfc },
            buffer,
            forward: ForwardConfig { fdb_capacity: 4_096, ..live.forward },
            seed: self.seed,
            ..live
        }
    }

    /// The settings of a port: those of a live switch by default, with the figures of this setup.
    fn port(&self, index: usize, live: PortConfig) -> PortConfig {
        PortConfig {
            rate: self.rate_of(index),
            parse: ParseConfig { port_mac: port_mac(index), ..ParseConfig::DEFAULT },
            learned_max: 4_096,
            pfc: self.pfc,
            ..live
        }
    }

    /// ECN thresholds at 50 % and 80 % of a queue's capacity, which is the shared buffer / (2 × outputs).
    fn ecn(&self, buffer: &BufferConfig, lossless: PriSet) -> EcnConfig {
        let groups = lossless.len() as u64;
        let headroom: u64 = buffer.headroom_cells.iter().map(|&cells| u64::from(cells)).sum();
        let reserves = self.ports as u64 * u64::from(buffer.pg_reserve_cells);
        // Headroom and reserves of lossless groups are not part of what is shared (docs/spec/pipeline.md §4).
        let lossless_cells = if self.pfc { (headroom + reserves) * groups } else { 0 };
        let shared = u64::from(buffer.total_cells).saturating_sub(lossless_cells);
        let capacity = shared * u64::from(self.cell_bytes) / (2 * self.ports.max(1) as u64);
        EcnConfig {
            enabled: self.ecn,
            low_bytes: capacity / 2,
            high_bytes: capacity / 5 * 4,
            max_percent: 100,
            mark: EcnMark::Ip,
        }
    }
}

/// Lossless priorities by default: 1 and 2 of 4, 1 to 4 of 8 (docs/spec/pipeline.md §2).
#[must_use]
pub const fn lossless_default(pris: usize) -> PriSet {
    PriSet::from_bits(if pris <= 4 { 0b0110 } else { 0b1_1110 })
}

/// MAC address of switch port `index`, in a range that no station uses.
#[must_use]
pub fn port_mac(index: usize) -> MacAddr {
    MacAddr([0x02, 0xEE, 0, 0, 0, u8::try_from(index).unwrap_or(u8::MAX)])
}

/// Cells that a frame of `len` bytes takes.
fn cells_of(len: usize, cell_bytes: u32) -> u32 {
    u32::try_from(len.div_ceil(cell_bytes.max(1) as usize)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_dataplane::snapshot::Snapshot;

    #[test]
    fn default_setups_compile() {
        for (ports, pris) in [(1, 4), (4, 8), (8, 4), (64, 8)] {
            let mut setup = Setup::new(ports, pris);
            setup.buffer_bytes = 64 << 20;
            assert!(Snapshot::compile(setup.config(), 0).is_ok(), "{ports} ports, {pris}");
        }
    }
}
