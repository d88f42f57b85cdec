//! The configuration of a switch as plain data, in base units, already checked for range.
//!
//! [`SwitchConfig`] has a [`PortConfig`] for each port and one part for each function. Fields
//! marked (restart) are fixed when the switch is built; all others may change while it runs.
//!
//! Units: bytes, cells, frames, bit/s, [`Span`]; no percentages of sizes.
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
    /// The ports, by number; 1 to 64 (restart).
    pub ports: Vec<PortConfig>,
    /// Priorities: 4 or 8 (restart).
    pub pris: usize,
    /// Maps from wire fields to priorities, for all ports.
    pub maps: PriMaps,
    /// Size, reserves and thresholds of the shared buffer.
    pub buffer: BufferConfig,
    /// Slots, bursts and egress queues of the crossbar.
    pub crossbar: CrossbarConfig,
    /// ECN marks on frames that leave.
    pub ecn: EcnConfig,
    /// By priority: early drops of its lossy frames; `None` for none.
    pub wred: PerPri<Option<WredConfig>>,
    /// Priority-based flow control and its watchdog.
    pub pfc: PfcConfig,
    /// Learning, flooding, loops and groups.
    pub forward: ForwardConfig,
    /// Groups of ports that act as one link (restart).
    pub lags: Vec<crate::lag::Lag>,
    /// Ports whose traffic is copied to another port; `None` for no mirror.
    pub mirror: Option<MirrorConfig>,
    /// Outputs whose queues are held by command: they send nothing but PFC frames.
    pub tx_off: PortSet,
    /// Whether watermarks of priority groups are kept for lossy frames, too.
    pub lossy_watermarks: bool,
    /// Seed of all random decisions (restart).
    pub seed: u64,
    /// Most frames that are offered to one call of a port's `tx`; live, the size of its ring (restart).
    pub tx_ring_frames: usize,
    /// Settings for ports that carry TLPs.
    pub tlp: TlpConfig,
}

/// Configuration of one port.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Its name in every output (restart).
    pub name: String,
    /// Rate of its link, the same in both directions (restart).
    pub rate: LinkRate,
    /// How received frames are parsed; its AFH mode also decides which formats may be sent.
    pub parse: ParseConfig,
    /// Fields that decide a frame's priority; the first one that the frame carries does.
    pub trust: Vec<PriSource>,
    /// Priority of a frame that carries none of them.
    pub default_pri: Pri,
    /// The port's VLANs and its treatment of tags.
    pub vlan: crate::vlan::PortMode,
    /// Most stations that the port may learn.
    pub learned_max: u32,
    /// Limits of broadcast, unknown unicast and multicast that come in here.
    pub storm: crate::storm::StormLimits,
    /// Strict priorities, weights and rates of its egress scheduler.
    pub egress: EgressConfig,
    /// Longest frame received or sent, without FCS.
    pub frame_len_max: usize,
    /// Whether PAUSE is sent and obeyed here.
    pub pfc: bool,
    /// Ethernet or TLPs, and the kind of its link partner (restart).
    pub role: PortRole,
}

/// The kind of frames on a port's link, and of its link partner (docs/spec/cxl-fabric.md "Port
/// roles").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortRole {
    /// Ethernet frames, forwarded by the FDB.
    #[default]
    L2,
    /// TLPs without PTH, from and to a host's root port.
    Usp(TlpLink),
    /// TLPs without PTH, from and to a device or an HBR switch; TLPs with PTH, from and to a GFD.
    Dsp(TlpLink),
    /// TLPs with PTH, from and to another switch.
    Fport(TlpLink),
    /// The CPU port, within the process: it leads to the functions that the switch itself has.
    Cpu,
}

impl PortRole {
    /// The role's name in the configuration.
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

    /// The settings of the link, if it carries TLPs to another component.
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

/// Settings for all TLPs of a switch (docs/spec/pipeline.md §2, docs/spec/wire-formats.md §3.7a).
#[derive(Clone, Debug)]
pub struct TlpConfig {
    /// OUI of frames that carry TLPs.
    pub oui: Oui,
    /// Priority of a TLP, by its Traffic Class.
    pub tc_to_pri: [Pri; 8],
    /// Priority of UIO requests, CXL.mem requests and CXL.cache messages to hosts.
    pub uio_req_pri: Pri,
    /// Priority of their completions and responses, of snoops, and of CXL.cache messages to devices. Another
    /// one, so that routes are free of deadlock.
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
    /// The first setting, by its name in the configuration, in which this and another port differ
    /// although ports of one link must not.
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

/// Maps from wire fields to priorities (docs/spec/pipeline.md §2).
#[derive(Clone, Debug)]
pub struct PriMaps {
    /// Priority by PCP; a received PFC class pauses the priority that it has here.
    pub pcp_to_pri: [Pri; 8],
    /// Priority by DSCP, of IPv4 and IPv6.
    pub dscp_to_pri: [Pri; 64],
    /// Priority by bits 7:2 of the Traffic Class byte of AFH.
    pub tc_to_pri: [Pri; 64],
    /// Priority by EXP of the top MPLS label.
    pub exp_to_pri: [Pri; 8],
    /// By priority: number of the priority group in which its frames are counted at their input. A lossless
    /// priority has a number to itself.
    pub pri_to_pg: PerPri<u8>,
}

impl PriMaps {
    /// The defaults for 4 or 8 priorities, as docs/spec/pipeline.md §2 has them.
    #[must_use]
    pub fn for_pris(pris: usize) -> Self {
        let of_pcp = |pcp: u8| {
            // With 4 priorities: 5 to 7 are ACK and CNP, 3 and 4 requests, 1 responses
            // (docs/spec/pipeline.md §2).
            Pri::from_low_bits(match (pris <= 4, pcp) {
                (true, 5..) => 3,
                (true, 3 | 4) => 2,
                (true, 1) => 1,
                (true, _) => 0,
                (false, pcp) => pcp,
            })
        };
        let of_tc = |tc: u8| {
            // The flow bits TC[4:2]: 1 is ACK and CNP, 0 are requests.
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

    /// The map of one source, indexed by its code.
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

    /// Derives the map of `source` from PCP's, if it follows from that: an EXP is taken as a PCP,
    /// and so are the top three bits of a DSCP.
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

    /// The map of one source, to be changed by the caller.
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
    /// Dynamic thresholds: alpha times the free part, by priority.
    Dt,
    /// Every VOQ has the same fixed share.
    Static,
}

/// Settings of the shared packet buffer (docs/spec/pipeline.md §4).
#[derive(Clone, Debug)]
pub struct BufferConfig {
    /// Bytes of a cell; live, one chunk by default (restart).
    pub cell_bytes: u32,
    /// Cells of the whole buffer, headroom included (restart).
    pub total_cells: u32,
    /// Dynamic thresholds or fixed shares (restart).
    pub sharing: Sharing,
    /// DT factor of each priority.
    pub alpha: PerPri<Alpha>,
    /// Reserve of a VOQ of a lossy priority (restart).
    pub voq_reserve_cells: u32,
    /// Reserve of an ingress group of a lossless priority (restart).
    pub pg_reserve_cells: u32,
    /// Headroom of an ingress group of a lossless priority, by port (restart).
    pub headroom_cells: Vec<u32>,
    /// Distance from XOFF down to XON of an ingress group, in cells.
    pub xon_offset_cells: u32,
}

/// Settings of the crossbar between inputs and outputs (docs/spec/pipeline.md §6).
#[derive(Clone, Debug)]
pub struct CrossbarConfig {
    /// Iterations of request, grant, accept in a slot: 1 to 4.
    pub iterations: u32,
    /// Order in which outputs serve priorities.
    pub discipline: Discipline,
    /// In virtual time: a match holds its input and its output for the frame's wire time, at the
    /// port's own rate, divided by this.
    pub speedup: u32,
    /// Whether that wire time includes the 64-byte minimum, preamble and gap, as on a real wire, or
    /// only the FCS ([`LinkRate::wire_time`]). The simulator sets it as for its wires.
    pub wire_overhead: bool,
    /// Most frames that one match moves; 1 in virtual time.
    pub burst: usize,
    /// Capacity of an egress queue, in frames (restart).
    pub egress_queue_frames: usize,
}

/// Settings of ECN marking (docs/spec/pipeline.md §8).
#[derive(Clone, Copy, Debug)]
pub struct EcnConfig {
    /// Whether frames are marked at all.
    pub enabled: bool,
    /// Depth of (output, pri) from which on some frames are marked, in bytes.
    pub low_bytes: u64,
    /// Depth from which on all frames are marked, in bytes.
    pub high_bytes: u64,
    /// Share of frames that is marked just below `high_bytes`, in percent.
    pub max_percent: u8,
    /// Kind of frames that may be marked.
    pub mark: EcnMark,
}

/// Early drops of lossy frames that ECN does not mark (docs/spec/pipeline.md §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WredConfig {
    /// Depth of (output, pri) from which on some frames are dropped, in bytes.
    pub low_bytes: u64,
    /// Depth from which on all frames are dropped, in bytes.
    pub high_bytes: u64,
    /// Share of frames that is dropped just below `high_bytes`, in percent.
    pub max_percent: u8,
}

/// Kind of frames that may be marked, if their senders use ECN (ECT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EcnMark {
    /// All frames of IPv4 and IPv6, tagged or not.
    Ip,
    /// Frames of UDP over IPv4 or IPv6 to a Standard port.
    Standard,
}

/// The condition under which PAUSE is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PfcMode {
    /// An ingress group is above its limit.
    IngressPg,
    /// The depth of (output, pri) is above a threshold, VOQs and egress queue together.
    EgressQueue {
        /// Depth above which PAUSE is sent, in bytes.
        xoff_bytes: u64,
        /// Depth below which it is released, in bytes.
        xon_bytes: u64,
    },
}

/// Treatment of frames that a PAUSE storm holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StormAction {
    /// The frames are dropped until the storm is over.
    Drop,
    /// The frames are sent despite the PAUSE.
    Forward,
}

/// Settings of priority-based flow control (docs/spec/pipeline.md §9).
#[derive(Clone, Debug)]
pub struct PfcConfig {
    /// Whether PFC frames are sent and obeyed at all (restart).
    pub enabled: bool,
    /// Priorities that must not lose frames (restart).
    pub lossless: PriSet,
    /// By priority: PFC classes that a PAUSE for it names, as a bit set.
    pub classes: PerPri<u8>,
    /// The condition under which PAUSE is sent.
    pub mode: PfcMode,
    /// A pause without a break of this length is a storm; zero turns the watchdog off.
    pub watchdog_detect: Span,
    /// Time without a pause after which a storm is over.
    pub watchdog_restore: Span,
    /// Treatment of frames during a storm.
    pub watchdog_action: StormAction,
}

/// Settings of forwarding: learning, ageing, flooding, loops, groups (docs/spec/pipeline.md §3).
#[derive(Clone, Debug)]
pub struct ForwardConfig {
    /// Entries that the FDB has room for (restart).
    pub fdb_capacity: usize,
    /// Time after which a learned station without frames is removed; zero for never.
    pub ageing: Span,
    /// Whether unknown unicast is flooded instead of dropped.
    pub flood_unknown: bool,
    /// Reserved groups that are forwarded like any other group: bit n is 01-80-C2-00-00-0n. Bit 1,
    /// PAUSE's own address, has no effect.
    pub reserved_groups: u16,
    /// Whether probes prove a suspected loop (live); otherwise stations that move prove it.
    pub loop_probes: bool,
    /// Key from which the numbers of probes are computed: live, a secret of each run (restart).
    pub probe_key: [u64; 2],
    /// How long a port is blocked because of a loop; `None` if loops are only reported.
    pub loop_block: Option<Span>,
    /// How long a station that moved too often is held at the port where it was before; zero for not at all.
    pub sticky: Span,
    /// Stations that are configured; they neither age nor move.
    pub static_entries: Vec<crate::fdb::StaticEntry>,
    /// Multicast groups with a set of ports; all others flood their VLAN.
    pub groups: Vec<crate::groups::Group>,
}

/// Mirroring: copies of frames that enter or leave by some ports, for another port.
#[derive(Clone, Copy, Debug)]
pub struct MirrorConfig {
    /// Ports whose received and sent frames are copied.
    pub from: PortSet,
    /// Port that sends the copies.
    pub to: PortId,
}

/// Names, rates and sizes from which [`SwitchConfig::live`] derives all other settings.
#[derive(Clone, Debug)]
pub struct LiveSizes {
    /// Names of the ports, by number.
    pub names: Vec<String>,
    /// Rate of all ports.
    pub rate: LinkRate,
    /// Priorities: 4 or 8.
    pub pris: usize,
    /// Chunks that the buffer may fill; a cell is a chunk.
    pub cells: u32,
    /// Bytes of a cell; live, a cell is a chunk.
    pub cell_bytes: u32,
    /// Headroom of each lossless group, in cells.
    pub headroom_cells: u32,
    /// Longest frame of all ports, in bytes without FCS.
    pub frame_len_max: usize,
}

impl ForwardConfig {
    /// The defaults; control turns probes on and sets their key.
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
        // Priorities 1 and 2 of 4, 1 to 4 of 8 (docs/spec/pipeline.md §2).
        let lossless = if sizes.pris == 4 { 0b0110 } else { 0b1_1110 };
        let cell = u64::from(sizes.cell_bytes);
        let lossless = PriSet::from_bits(lossless);
        let headroom = u64::from(sizes.headroom_cells) * count as u64 * lossless.len() as u64;
        // The default of `queue_capacity_bytes`, from which ECN takes its marks
        // (docs/spec/pipeline.md §8).
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
