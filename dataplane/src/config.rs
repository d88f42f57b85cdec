//! What a switch is told: plain data, in base units, already checked for range.
//!
//! [`SwitchConfig`] holds a [`PortConfig`] per port and one part per function. Fields marked
//! (restart) are fixed when the switch is built; all others may change while it runs.
//!
//! Units: bytes, cells, frames, bit/s, [`Span`]; no percentages.
//! Source: docs/spec/pipeline.md §1 to §12.

use weft_parsers::ParseConfig;
pub use weft_parsers::PriSource;
use weft_parsers::tlp::{Mode, Oui};

use crate::egress::EgressConfig;
use crate::islip::Discipline;
use crate::time::{LinkRate, Span};
use crate::types::{Alpha, PerPri, PortId, PortSet, Pri, PriSet};

/// Configuration of a whole switch: ports, priorities, buffer, scheduling and flow control.
#[derive(Clone, Debug)]
pub struct SwitchConfig {
    /// The ports, by number (restart).
    pub ports: Vec<PortConfig>,
    /// Priorities: 4 or 8 (restart).
    pub pris: usize,
    /// Priority maps.
    pub maps: PriMaps,
    /// Shared buffer.
    pub buffer: BufferConfig,
    /// Crossbar.
    pub crossbar: CrossbarConfig,
    /// ECN marking.
    pub ecn: EcnConfig,
    /// By priority: early drops of its lossy frames, if there are any.
    pub wred: PerPri<Option<WredConfig>>,
    /// Priority-based flow control.
    pub pfc: PfcConfig,
    /// Forwarding.
    pub forward: ForwardConfig,
    /// Ports that are one link (restart).
    pub lags: Vec<crate::lag::Lag>,
    /// Copies of one set of ports' traffic to another port.
    pub mirror: Option<MirrorConfig>,
    /// Outputs that send nothing but PFC frames: their queues are held.
    pub tx_off: PortSet,
    /// Whether watermarks of priority groups are kept for lossy frames, too.
    pub lossy_watermarks: bool,
    /// Seed of all that is random (restart).
    pub seed: u64,
    /// Frames that one call of a port's `tx` is offered at most; live, its ring (restart).
    pub tx_ring_frames: usize,
    /// TLPs.
    pub tlp: TlpConfig,
}

/// Configuration of one port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Its name in every output (restart).
    pub name: String,
    /// Rate of its link (restart).
    pub rate: LinkRate,
    /// How frames are read here; also the format that it may send.
    pub parse: ParseConfig,
    /// Which fields decide a frame's priority, first to last.
    pub trust: Vec<PriSource>,
    /// Priority of a frame that carries none of them.
    pub default_pri: Pri,
    /// VLANs.
    pub vlan: crate::vlan::PortMode,
    /// Most addresses learnt here.
    pub learned_max: u32,
    /// Limits of flooding.
    pub storm: crate::storm::StormLimits,
    /// Egress scheduling.
    pub egress: EgressConfig,
    /// Longest frame received or sent, without FCS.
    pub frame_len_max: usize,
    /// Whether PAUSE is sent and obeyed here.
    pub pfc: bool,
    /// What the link carries (restart).
    pub role: PortRole,
}

/// What a port's link carries, and who is at its other end (docs/spec/cxl-fabric.md "Port roles").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortRole {
    /// Ethernet.
    #[default]
    L2,
    /// TLPs without PTH, from and to a host's root port.
    Usp(TlpLink),
    /// TLPs without PTH, from and to a device or an HBR switch; with PTH, a GFD's.
    Dsp(TlpLink),
    /// TLPs with PTH, from and to another switch.
    Fport(TlpLink),
    /// Within the process: the CPU port, behind which are the functions that the switch itself has.
    Cpu,
}

impl PortRole {
    /// Name used in configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::Usp(_) => "usp",
            Self::Dsp(_) => "dsp",
            Self::Fport(_) => "fport",
            Self::Cpu => "cpu",
        }
    }

    /// The link's settings, where it carries TLPs.
    #[inline]
    #[must_use]
    pub const fn link(self) -> Option<TlpLink> {
        match self {
            Self::Usp(link) | Self::Dsp(link) | Self::Fport(link) => Some(link),
            Self::L2 | Self::Cpu => None,
        }
    }
}

/// Settings of a link that carries TLPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlpLink {
    /// Header layout of TLPs without PTH; those with one are in flit mode.
    pub mode: Mode,
    /// `Max_Payload_Size`, bytes: 128 to 4,096, a power of two.
    pub payload_max: u16,
}

impl Default for TlpLink {
    fn default() -> Self {
        Self { mode: Mode::Flit, payload_max: 512 }
    }
}

/// What holds for all TLPs of a switch (docs/spec/pipeline.md §2, docs/spec/wire-formats.md §3.7a).
#[derive(Clone, Debug)]
pub struct TlpConfig {
    /// OUI of their frames.
    pub oui: Oui,
    /// Priority by Traffic Class.
    pub tc_to_pri: [Pri; 8],
    /// Priority of UIO requests, and of their completions: different ones, for routes without deadlock.
    pub uio_req_pri: Pri,
    /// See above.
    pub uio_cpl_pri: Pri,
}

impl TlpConfig {
    /// The defaults for 4 or 8 priorities, all of them lossless by default: UIO completions have one of
    /// their own; UIO requests, too, where there are eight, and classes 4 to 7 go before classes 0 to 3.
    #[must_use]
    pub fn for_pris(pris: usize) -> Self {
        let pri = Pri::from_low_bits;
        let of_tc = |tc: usize| pri(if pris > 4 && tc >= 4 { 2 } else { 1 });
        let (uio_req_pri, uio_cpl_pri) =
            if pris <= 4 { (pri(1), pri(2)) } else { (pri(3), pri(4)) };
        let tc_to_pri = core::array::from_fn(of_tc);
        Self { oui: Oui::DEFAULT, tc_to_pri, uio_req_pri, uio_cpl_pri }
    }
}

impl PortConfig {
    /// In what this and another port differ that cannot be one link, by its name in the configuration.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<&'static str> {
        #[rustfmt::skip] // columns: name, alike
        let all = [
            ("port_bandwidth_gbps", self.rate == other.rate),
            ("max_frame",           self.frame_len_max == other.frame_len_max),
            ("afh",                 self.parse.afh == other.parse.afh),
            ("vlan",                self.vlan == other.vlan),
            ("flow_control",        self.pfc == other.pfc),
            ("role",                self.role == other.role),
        ];
        all.into_iter().find(|(_, alike)| !alike).map(|(name, _)| name)
    }
}

/// From wire fields to priorities (docs/spec/pipeline.md §2).
#[derive(Clone, Debug)]
pub struct PriMaps {
    /// By PCP; a received PFC class goes the same way.
    pub pcp_to_pri: [Pri; 8],
    /// By DSCP.
    pub dscp_to_pri: [Pri; 64],
    /// By bits 7:2 of the Traffic Class byte.
    pub tc_to_pri: [Pri; 64],
    /// By EXP of the top MPLS label.
    pub exp_to_pri: [Pri; 8],
    /// By priority: number of the priority group that its frames are counted in at their input. A lossless priority has one to
    /// itself.
    pub pri_to_pg: PerPri<u8>,
}

impl PriMaps {
    /// The defaults for 4 or 8 priorities.
    #[must_use]
    pub fn for_pris(pris: usize) -> Self {
        let of_pcp = |pcp: u8| {
            Pri::from_low_bits(match (pris <= 4, pcp) {
                (true, 5..) => 3,
                (true, 3 | 4) => 2,
                (true, 1) => 1,
                (true, _) => 0,
                (false, pcp) => pcp,
            })
        };
        let of_tc = |tc: u8| {
            Pri::from_low_bits(match (pris <= 4, tc & 7) {
                (true, 1) => 3,
                (true, 0) => 2,
                (true, _) => 0,
                (false, _) => tc >> 3,
            })
        };
        let mut maps = Self {
            pcp_to_pri: core::array::from_fn(|i| of_pcp(low(i))),
            dscp_to_pri: [Pri::default(); 64],
            tc_to_pri: core::array::from_fn(|i| of_tc(low(i))),
            exp_to_pri: [Pri::default(); 8],
            pri_to_pg: PerPri(Pri::ALL.map(Pri::get)),
        };
        for source in PriSource::ALL {
            maps.derive_from_pcp(source);
        }
        maps
    }

    /// The map of one source, by its code.
    #[inline]
    #[must_use]
    pub const fn of(&self, source: PriSource) -> &[Pri] {
        match source {
            PriSource::Pcp => &self.pcp_to_pri,
            PriSource::Dscp => &self.dscp_to_pri,
            PriSource::Tc => &self.tc_to_pri,
            PriSource::Exp => &self.exp_to_pri,
        }
    }

    /// Sets the map of `source` to what follows from PCP's, where it does: an EXP is taken as a PCP, and so are the top
    /// three bits of a DSCP.
    pub fn derive_from_pcp(&mut self, source: PriSource) {
        let shift = match source {
            PriSource::Dscp => 3,
            PriSource::Exp => 0,
            PriSource::Pcp | PriSource::Tc => return,
        };
        let pcp = self.pcp_to_pri;
        for (code, pri) in self.of_mut(source).iter_mut().enumerate() {
            *pri = pcp.get(code >> shift).copied().unwrap_or_default();
        }
    }

    /// The map of one source, to change.
    #[must_use]
    pub const fn of_mut(&mut self, source: PriSource) -> &mut [Pri] {
        match source {
            PriSource::Pcp => &mut self.pcp_to_pri,
            PriSource::Dscp => &mut self.dscp_to_pri,
            PriSource::Tc => &mut self.tc_to_pri,
            PriSource::Exp => &mut self.exp_to_pri,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "indices of arrays of up to 64")]
const fn low(index: usize) -> u8 {
    index as u8
}

/// How queues share the packet buffer: by dynamic thresholds, or in fixed shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Dynamic thresholds.
    Dt,
    /// The same fixed share for every VOQ.
    Static,
}

/// Settings of the shared packet buffer (docs/spec/pipeline.md §4).
#[derive(Clone, Debug)]
pub struct BufferConfig {
    /// Bytes of a cell (restart).
    pub cell_bytes: u32,
    /// All cells, headroom included (restart).
    pub total_cells: u32,
    /// How it is shared (restart).
    pub sharing: Sharing,
    /// DT factor.
    pub alpha: PerPri<Alpha>,
    /// Reserve of a VOQ (restart).
    pub voq_reserve_cells: u32,
    /// Reserve of an ingress group of a lossless priority (restart).
    pub pg_reserve_cells: u32,
    /// Headroom of an ingress group of a lossless priority, by port (restart).
    pub headroom_cells: Vec<u32>,
    /// How far below XOFF an ingress group is released.
    pub xon_offset_cells: u32,
}

/// Settings of the crossbar between inputs and outputs (docs/spec/pipeline.md §6).
#[derive(Clone, Debug)]
pub struct CrossbarConfig {
    /// Iterations of request, grant, accept in a slot: 1 to 4.
    pub iterations: u32,
    /// How priorities are served.
    pub discipline: Discipline,
    /// In virtual time: a match takes its input and its output for the frame's wire time, at the port's
    /// own rate, divided by this.
    pub speedup: u32,
    /// Whether that wire time has the 64-byte minimum, preamble and gap in it, as on a true wire, or the FCS alone
    /// ([`LinkRate::wire_time`]); the simulator sets it to what its wires do.
    pub wire_overhead: bool,
    /// Frames that one match moves at most.
    pub burst: usize,
    /// Frames that an egress queue holds (restart).
    pub egress_queue_frames: usize,
}

/// Settings of ECN marking (docs/spec/pipeline.md §8).
#[derive(Clone, Copy, Debug)]
pub struct EcnConfig {
    /// Whether frames are marked.
    pub enabled: bool,
    /// Depth of (output, pri) from which on some are, in bytes.
    pub low_bytes: u64,
    /// Depth from which on all are.
    pub high_bytes: u64,
    /// Share that is marked just below that depth, in percent.
    pub max_percent: u8,
    /// Which frames may be.
    pub mark: EcnMark,
}

/// Early drops of lossy frames that ECN does not mark (docs/spec/pipeline.md §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WredConfig {
    /// Depth of (output, pri) from which on some are dropped, in bytes.
    pub low_bytes: u64,
    /// Depth from which on all are.
    pub high_bytes: u64,
    /// Share that is dropped just below that depth, in percent.
    pub max_percent: u8,
}

/// Which frames may carry ECN marks, if their senders say ECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnMark {
    /// All of IPv4 and IPv6, behind a tag or none.
    Ip,
    /// UDP over either to a Standard port.
    Standard,
}

/// What decides that PAUSE is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfcMode {
    /// An ingress group above its limit.
    IngressPg,
    /// An egress queue's depth over all VOQs.
    EgressQueue {
        /// Depth at which PAUSE is sent, in bytes.
        xoff_bytes: u64,
        /// Depth at which it is released.
        xon_bytes: u64,
    },
}

/// What the watchdog does with frames that a PAUSE storm holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StormAction {
    /// Drops them.
    Drop,
    /// Sends them in spite of PAUSE.
    Forward,
}

/// Settings of priority-based flow control (docs/spec/pipeline.md §9).
#[derive(Clone, Debug)]
pub struct PfcConfig {
    /// Whether anything of it is done.
    pub enabled: bool,
    /// Priorities that must not lose frames (restart).
    pub lossless: PriSet,
    /// Classes that a PAUSE for a priority names, as a bit set.
    pub classes: PerPri<u8>,
    /// What decides.
    pub mode: PfcMode,
    /// A pause of this length is a storm; zero for never.
    pub watchdog_detect: Span,
    /// Quiet time after which a storm is over.
    pub watchdog_restore: Span,
    /// What is done meanwhile.
    pub watchdog_action: StormAction,
}

/// Settings of forwarding: learning, ageing, flooding, loops, groups (docs/spec/pipeline.md §3).
#[derive(Clone, Debug)]
pub struct ForwardConfig {
    /// FDB entries (restart).
    pub fdb_capacity: usize,
    /// Learned entries live this long without use; zero for ever.
    pub ageing: Span,
    /// Unknown unicast is flooded; else dropped.
    pub flood_unknown: bool,
    /// Reserved groups that are forwarded like any other group: bit n is 01-80-C2-00-00-0n. Never 1, PAUSE's own.
    pub reserved_groups: u16,
    /// Whether a suspected loop is proved by probes, live; else stations that move prove it.
    pub loop_probes: bool,
    /// What the numbers of probes are made from: live, a secret of each run (restart).
    pub probe_key: [u64; 2],
    /// How long a port is blocked that is part of a loop; `None` for not at all.
    pub loop_block: Option<Span>,
    /// How long a station that moved too often stays where it was before; zero for not at all.
    pub sticky: Span,
    /// Static entries.
    pub static_entries: Vec<crate::fdb::StaticEntry>,
    /// Multicast groups.
    pub groups: Vec<crate::groups::Group>,
}

/// Mirroring within the switch.
#[derive(Clone, Copy, Debug)]
pub struct MirrorConfig {
    /// Frames that enter or leave by one of these …
    pub from: PortSet,
    /// … are copied to this one.
    pub to: PortId,
}

/// Names, rates and sizes from which [`SwitchConfig::live`] makes the rest.
#[derive(Clone, Debug)]
pub struct LiveSizes {
    /// Names of the ports.
    pub names: Vec<String>,
    /// Rate of all of them.
    pub rate: LinkRate,
    /// Priorities: 4 or 8.
    pub pris: usize,
    /// Chunks that the buffer may fill; a cell is a chunk.
    pub cells: u32,
    /// Bytes of a chunk's cell.
    pub cell_bytes: u32,
    /// Headroom of each lossless group.
    pub headroom_cells: u32,
    /// Longest frame, without FCS.
    pub frame_len_max: usize,
}

impl ForwardConfig {
    /// The defaults.
    fn live() -> Self {
        Self {
            fdb_capacity: crate::fdb::CAPACITY,
            ageing: crate::fdb::AGEING,
            flood_unknown: true,
            reserved_groups: 0,
            loop_probes: false,
            probe_key: [0; 2],
            loop_block: Some(crate::fdb::LOOP_BLOCK),
            sticky: crate::fdb::STICKY,
            static_entries: Vec::new(),
            groups: Vec::new(),
        }
    }
}

impl SwitchConfig {
    /// The defaults of docs/spec/pipeline.md for a live switch of these sizes.
    #[must_use]
    pub fn live(sizes: &LiveSizes) -> Self {
        let maps = PriMaps::for_pris(sizes.pris);
        let count = sizes.names.len();
        let lossless = if sizes.pris == 4 { 0b0110 } else { 0b1_1110 };
        let cell = u64::from(sizes.cell_bytes);
        let lossless = PriSet::from_bits(lossless);
        let headroom = u64::from(sizes.headroom_cells) * count as u64 * lossless.len() as u64;
        let capacity =
            (u64::from(sizes.cells).saturating_sub(headroom) * cell) / (2 * count.max(1) as u64);
        let port = |name: &String| PortConfig {
            name: name.clone(),
            rate: sizes.rate,
            parse: ParseConfig::DEFAULT,
            trust: PriSource::DEFAULT_TRUST.to_vec(),
            default_pri: Pri::default(),
            vlan: crate::vlan::PortMode::default(),
            learned_max: u32::MAX,
            storm: crate::storm::StormLimits::default(),
            egress: EgressConfig::for_pris(sizes.pris),
            frame_len_max: sizes.frame_len_max,
            pfc: true,
            role: PortRole::L2,
        };
        Self {
            ports: sizes.names.iter().map(port).collect(),
            pris: sizes.pris,
            buffer: BufferConfig {
                cell_bytes: sizes.cell_bytes,
                total_cells: sizes.cells,
                sharing: Sharing::Dt,
                alpha: PerPri::default(),
                voq_reserve_cells: 0,
                pg_reserve_cells: 4_096_u32.div_ceil(sizes.cell_bytes.max(1)),
                headroom_cells: vec![sizes.headroom_cells; count],
                xon_offset_cells: 16,
            },
            crossbar: CrossbarConfig {
                iterations: 2,
                discipline: Discipline::Strict,
                speedup: 2,
                wire_overhead: true,
                burst: 32,
                egress_queue_frames: 32,
            },
            ecn: EcnConfig {
                enabled: true,
                low_bytes: capacity / 2,
                high_bytes: capacity / 5 * 4,
                max_percent: 100,
                mark: EcnMark::Ip,
            },
            wred: PerPri::default(),
            pfc: PfcConfig {
                enabled: true,
                lossless,
                classes: crate::pfc::default_classes(&maps.pcp_to_pri),
                mode: PfcMode::IngressPg,
                watchdog_detect: crate::pfc::Watchdog::DETECT,
                watchdog_restore: crate::pfc::Watchdog::RESTORE,
                watchdog_action: StormAction::Drop,
            },
            forward: ForwardConfig::live(),
            lags: Vec::new(),
            maps,
            mirror: None,
            tx_off: PortSet::EMPTY,
            lossy_watermarks: false,
            seed: 1,
            tx_ring_frames: 64,
            tlp: TlpConfig::for_pris(sizes.pris),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_maps_are_those_of_the_design() {
        let four = PriMaps::for_pris(4);
        assert_eq!(four.pcp_to_pri.map(Pri::get), [0, 1, 0, 2, 2, 3, 3, 3]);
        assert_eq!(four.dscp_to_pri[46].get(), 3);
        assert_eq!(four.dscp_to_pri[8].get(), 1);
        #[rustfmt::skip] // columns: TC byte, 4 priorities, 8 priorities
        let cases = [(0x20, 2, 1), (0x24, 3, 1), (0x48, 0, 2), (0x40, 2, 2), (0xE4, 3, 7)];
        let eight = PriMaps::for_pris(8);
        for (tc, want4, want8) in cases {
            assert_eq!(four.tc_to_pri[tc >> 2].get(), want4, "{tc:#x}");
            assert_eq!(eight.tc_to_pri[tc >> 2].get(), want8, "{tc:#x}");
        }
        assert_eq!(eight.pcp_to_pri.map(Pri::get), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
