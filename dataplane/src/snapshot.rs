//! Snapshot: a configuration compiled into the tables that workers look things up in.
//!
//! It is immutable; a worker uses one for a whole step, and takes the next one at the start of a
//! step.
//!
//! Units: as in `config`.
//! Source: ARCHITECTURE.md "Control"; docs/spec/pipeline.md §3, §4, §8, §9.

use weft_parsers::vlan::TAG_LEN;
use weft_parsers::{AfhMode, Ecn, Format, Head, MacAddr};

use crate::buffer::{BufferError, BufferPlan, Thresholds};
use crate::classify::Classifier;
use crate::config::{BufferConfig, EcnMark, PortConfig, PortRole, PriSource, SwitchConfig};
use crate::ecn::{RedError, RedProfile};
use crate::groups::{GroupError, GroupTable};
use crate::lag::{LagError, Links};
use crate::pfc::{ClassError, check_classes};
use crate::types::{PORTS_MAX, PerPort, PerPri, PortId, PortSet, Pri, PriSet};
use crate::vlan::{PortMode, VlanError, VlanTable};

/// A reason why a configuration cannot be compiled into tables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SnapshotError {
    /// The number of ports is not 1 to 64.
    #[error("a switch has 1 to 64 ports, not {0}")]
    Ports(usize),
    /// The number of priorities is not 4 or 8.
    #[error("a switch has 4 or 8 priorities, not {0}")]
    Pris(usize),
    /// A map names a priority that does not exist.
    #[error("{what} names priority {pri}, the highest is {highest}")]
    Pri {
        /// The map or setting, by its name in the configuration.
        what: &'static str,
        /// The priority that it names.
        pri: u8,
        /// The highest priority of the switch.
        highest: u8,
    },
    /// The buffer cannot be laid out.
    #[error(transparent)]
    Buffer(#[from] BufferError),
    /// A port's VLAN settings contradict each other or the standard.
    #[error(transparent)]
    Vlan(#[from] VlanError),
    /// A multicast group is listed twice, or is no group.
    #[error(transparent)]
    Group(#[from] GroupError),
    /// A LAG, or a station behind several ports, cannot be built.
    #[error(transparent)]
    Lag(#[from] LagError),
    /// PFC classes overlap, or a lossless priority has none.
    #[error(transparent)]
    Classes(#[from] ClassError),
    /// Thresholds of ECN or WRED are the wrong way round.
    #[error(transparent)]
    Red(#[from] RedError),
    /// A running switch cannot take the change.
    #[error("{0} can only change with a restart")]
    Restart(&'static str),
}

/// A configuration, compiled into the tables that workers look things up in.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Its number: 0 at start, one more with each reload.
    pub epoch: u64,
    /// The configuration that it was compiled from.
    pub config: SwitchConfig,
    /// Layout of the shared buffer: headroom, reserves, shared part.
    pub plan: BufferPlan,
    /// Thresholds by which the buffer admits frames.
    pub thresholds: Thresholds,
    /// VLAN members, and changes of tags by port.
    pub vlan: VlanTable,
    /// Whether no port ever changes a tag.
    pub tags_stay: bool,
    /// Static multicast groups; all others flood their VLAN.
    pub groups: GroupTable,
    /// LAGs and stations behind several ports.
    pub links: Links,
    /// By port: the rules that give a frame its priority.
    pub classifiers: Vec<Classifier>,
    /// By format: ports that may send its frames.
    pub carriers: [PortSet; Format::COUNT],
    /// The ports that exist.
    pub ports: PortSet,
    /// Ports that carry TLPs, and the CPU port.
    pub tlp_ports: PortSet,
    /// Ports at which probes prove a loop: Ethernet ports with an address of their own. On a Lite
    /// port nothing marks a frame as a probe.
    pub probed: PortSet,
    /// Port that leads to the switch's own functions.
    pub cpu_port: Option<PortId>,
    /// The priorities that exist.
    pub pris: PriSet,
    /// Priorities that must not lose frames; none while PFC is off.
    pub lossless: PriSet,
    /// Ports on which PFC is sent and obeyed.
    pub pfc_ports: PortSet,
    /// By output: priorities whose frames the configuration allows to leave without being queued.
    /// No rate holds them back, no mirror takes a copy, no other link could be chosen, and no frame
    /// in an empty queue is marked or dropped early.
    pub unshaped: PerPort<PriSet>,
    /// A frame received with up to this length fits every port, with a tag that is added, too.
    pub frame_len_safe: usize,
    /// ECN profile in bytes; `None` while marking is off.
    pub ecn: Option<RedProfile>,
    /// Priorities whose lossy frames may be dropped early.
    pub wred_pris: PriSet,
    /// By priority: profile of early drops, in bytes.
    pub wred: PerPri<Option<RedProfile>>,
    /// By priority: PCP of a tag that is added.
    pub pcp_of_pri: PerPri<u8>,
}

impl Snapshot {
    /// Compiles `config` as number `epoch`.
    ///
    /// # Errors
    /// When it contradicts itself.
    pub fn compile(config: SwitchConfig, epoch: u64) -> Result<Self, SnapshotError> {
        let count = config.ports.len();
        if !(1..=PORTS_MAX).contains(&count) {
            return Err(SnapshotError::Ports(count));
        }
        if config.pris != 4 && config.pris != 8 {
            return Err(SnapshotError::Pris(config.pris));
        }
        let pris = PriSet::first(config.pris);
        check_pris(&config, pris)?;
        // Without PFC no peer could be stopped, so frames of these priorities are admitted like
        // lossy ones.
        let lossless = if config.pfc.enabled { config.pfc.lossless } else { PriSet::EMPTY };
        check_classes(&config.pfc.classes, lossless)?;
        let shortest = config.ports.iter().map(|p| p.frame_len_max).min().unwrap_or(0);
        let (buffer, plan) = plan_buffer(&config.buffer, &config.ports, config.pris, lossless)?;
        let ids = || (0..count).filter_map(PortId::new).zip(&config.ports);
        let carriers = Format::ALL.map(|format| {
            ids().filter(|(_, port)| carries(port, format)).map(|(id, _)| id).collect()
        });
        let marks = &config.ecn;
        let ecn = RedProfile::new(marks.low_bytes, marks.high_bytes, marks.max_percent)?;
        let ecn = config.ecn.enabled.then_some(ecn);
        let wred = wred(&config, pris)?;
        let classifiers = config
            .ports
            .iter()
            .map(|port| Classifier::new(&port.trust, port.default_pri, &config.maps));
        let links = links(&config)?;
        Ok(Self {
            epoch,
            plan,
            thresholds: Thresholds::new(&buffer, &plan),
            vlan: VlanTable::build(ids().map(|(id, port)| (id, &port.vlan)))?,
            tags_stay: tags_stay(&config),
            groups: GroupTable::build(&config.forward.groups)?,
            unshaped: PerPort::from_fn(|port| {
                if marks_alone(&config, ecn, port) || drops_alone(&config, &wred, port) {
                    PriSet::EMPTY
                } else {
                    unshaped(&config, &links, pris, port)
                }
            }),
            links,
            classifiers: classifiers.collect(),
            carriers,
            ports: PortSet::first(count),
            tlp_ports: ids().filter(|(_, p)| p.role != PortRole::L2).map(|(id, _)| id).collect(),
            probed: ids().filter(|(_, p)| is_probed(&config, p)).map(|(id, _)| id).collect(),
            cpu_port: ids().find(|(_, p)| p.role == PortRole::Cpu).map(|(id, _)| id),
            pris,
            lossless,
            pfc_ports: ids()
                .filter(|(_, p)| p.pfc && config.pfc.enabled)
                .map(|(id, _)| id)
                .collect(),
            frame_len_safe: shortest.saturating_sub(tag_len_added(&config)),
            ecn,
            wred_pris: pris.iter().filter(|&pri| wred[pri].is_some()).collect(),
            wred,
            pcp_of_pri: PerPri(Pri::ALL.map(|pri| {
                // The lowest PCP that maps to the priority: the next switch with the same map gives
                // the frame the same priority.
                let of = config.maps.pcp_to_pri.iter().position(|&p| p == pri);
                of.map_or(pri.get(), |pcp| u8::try_from(pcp).unwrap_or(0))
            })),
            config,
        })
    }

    /// Compiles the successor of `self`, with the next epoch.
    ///
    /// # Errors
    /// As [`Self::compile`], and when `config` has a change that needs a restart.
    pub fn succeed(&self, config: SwitchConfig) -> Result<Self, SnapshotError> {
        let (old, new) = (&self.config, &config);
        let same = |what, same: bool| if same { Ok(()) } else { Err(SnapshotError::Restart(what)) };
        // Parts that lanes, rings and the buffer's counters were sized by, or that queued frames
        // depend on.
        same("the list of ports", {
            let names =
                |c: &SwitchConfig| c.ports.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
            names(old) == names(new)
        })?;
        same("a port's rate", {
            let rates = |c: &SwitchConfig| c.ports.iter().map(|p| p.rate).collect::<Vec<_>>();
            rates(old) == rates(new)
        })?;
        same("a LAG", old.lags == new.lags)?;
        same("a port's role", {
            let roles = |c: &SwitchConfig| c.ports.iter().map(|p| p.role).collect::<Vec<_>>();
            roles(old) == roles(new)
        })?;
        same("num_priorities", old.pris == new.pris)?;
        same("the seed", old.seed == new.seed)?;
        same("tx_ring_frames", old.tx_ring_frames == new.tx_ring_frames)?;
        let (a, b) = (&old.buffer, &new.buffer);
        same("the buffer's size", (a.cell_bytes, a.total_cells) == (b.cell_bytes, b.total_cells))?;
        same("buffer_sharing", a.sharing == b.sharing)?;
        let reserves = |c: &crate::config::BufferConfig| (c.voq_reserve_cells, c.pg_reserve_cells);
        same("a reserve", reserves(a) == reserves(b))?;
        same("headroom", a.headroom_cells == b.headroom_cells)?;
        same("pfc_priorities", old.pfc.lossless == new.pfc.lossless)?;
        same("pfc_enabled", old.pfc.enabled == new.pfc.enabled)?;
        same("a port's pfc", {
            let pfc = |c: &SwitchConfig| c.ports.iter().map(|p| p.pfc).collect::<Vec<_>>();
            pfc(old) == pfc(new)
        })?;
        let (a, b) = (old.crossbar.egress_queue_frames, new.crossbar.egress_queue_frames);
        same("egress_queue_frames", a == b)?;
        same("fdb_capacity", old.forward.fdb_capacity == new.forward.fdb_capacity)?;
        Self::compile(config, self.epoch + 1)
    }

    /// Whether a frame with `head` may be marked: its format may be, and its sender uses ECN.
    #[inline]
    #[must_use]
    pub fn may_mark(&self, head: &Head) -> bool {
        let is_of_kind = match self.config.ecn.mark {
            EcnMark::Ip => head.ip_valid(),
            EcnMark::Standard => head.to_standard_port(),
        };
        is_of_kind && head.ecn().is_some_and(Ecn::is_ect)
    }

    /// Whether a frame that finds its queue at `output` empty could be marked.
    #[must_use]
    pub fn marks_alone(&self, output: PortId) -> bool {
        marks_alone(&self.config, self.ecn, output)
    }

    /// Whether a frame that finds its queue at `output` empty could be dropped early.
    #[must_use]
    pub fn drops_alone(&self, output: PortId) -> bool {
        drops_alone(&self.config, &self.wred, output)
    }

    /// Cells of a frame of `len` bytes.
    #[inline]
    #[must_use]
    pub const fn cells(&self, len: usize) -> u32 {
        let cell = self.config.buffer.cell_bytes as usize;
        if len <= cell {
            return 1; // the usual case without a division
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a frame is at most FRAME_LEN_MAX bytes"
        )]
        let cells = len.div_ceil(cell) as u32;
        cells
    }

    /// Whether frames of `pri` from `input` are lossless: admitted by their ingress group, with
    /// PFC.
    #[inline]
    #[must_use]
    pub const fn is_lossless(&self, input: PortId, pri: Pri) -> bool {
        self.lossless.contains(pri) && self.pfc_ports.contains(input)
    }
}

/// Whether `port` may send frames of `format`.
const fn carries(port: &PortConfig, format: Format) -> bool {
    if !matches!(port.role, PortRole::L2) {
        return matches!(format, Format::Pbr);
    }
    let afh = port.parse.afh;
    match format {
        Format::Pbr => false,
        Format::AfhLite => matches!(afh, AfhMode::Lite),
        Format::AfhGen1 => matches!(afh, AfhMode::Gen1 | AfhMode::Auto),
        Format::AfhGen2 => matches!(afh, AfhMode::Gen2 | AfhMode::Auto),
        // On a Lite port everything but MAC control would be read as Lite.
        _ => !matches!(afh, AfhMode::Lite),
    }
}

/// Whether probes may be sent and received by `port`.
fn is_probed(config: &SwitchConfig, port: &PortConfig) -> bool {
    let parse = &port.parse;
    config.forward.loop_probes
        && port.role == PortRole::L2
        && parse.afh != AfhMode::Lite
        && parse.port_mac != MacAddr::ZERO
}

/// Whether all ports are transparent in one VLAN, so that no tag is ever added or removed.
fn tags_stay(config: &SwitchConfig) -> bool {
    let mut pvids = config.ports.iter().map(|port| match port.vlan {
        PortMode::Transparent { pvid } => Some(pvid),
        _ => None,
    });
    let first = pvids.next().flatten();
    first.is_some() && pvids.all(|pvid| pvid == first)
}

/// Lays out a buffer among `ports`; also returns `buffer` without headroom that no port uses.
///
/// # Errors
/// See [`BufferPlan::new`].
pub fn plan_buffer(
    buffer: &BufferConfig,
    ports: &[PortConfig],
    pris: usize,
    lossless: PriSet,
) -> Result<(BufferConfig, BufferPlan), BufferError> {
    let buffer = without_idle_headroom(buffer, ports);
    let longest = ports.iter().map(|port| port.frame_len_max).max().unwrap_or(0);
    let longest = u32::try_from(longest).unwrap_or(u32::MAX);
    // A TLP may be answered by the port where it came in, while a frame never returns there: a port has a
    // VOQ to itself only if TLPs are routed.
    let back = usize::from(ports.iter().any(|port| port.role != PortRole::L2));
    let outputs = ports.len().saturating_sub(1) + back;
    let frame_cells = longest.div_ceil(buffer.cell_bytes.max(1));
    let plan = BufferPlan::new(&buffer, ports.len(), outputs, pris, lossless, frame_cells)?;
    Ok((buffer, plan))
}

/// `buffer` without headroom of ports that have no PFC, which would never use it.
#[must_use]
pub fn without_idle_headroom(buffer: &BufferConfig, ports: &[PortConfig]) -> BufferConfig {
    let mut counted = buffer.clone();
    for (cells, port) in counted.headroom_cells.iter_mut().zip(ports) {
        *cells = if port.pfc { *cells } else { 0 };
    }
    counted
}

/// Bytes by which a tag may lengthen a frame between input and output.
fn tag_len_added(config: &SwitchConfig) -> usize {
    let untagged = |mode: &PortMode| match *mode {
        PortMode::Transparent { pvid } | PortMode::Access { pvid } => Some(pvid),
        PortMode::Trunk { native, .. } => native,
    };
    let adds = |output: &PortMode| match output {
        PortMode::Access { .. } => false,
        PortMode::Transparent { pvid } => {
            // Only frames without a VID whose VLAN is not this port's get a tag (`VlanTable::egress`).
            config.ports.iter().filter_map(|input| untagged(&input.vlan)).any(|vid| vid != *pvid)
        }
        PortMode::Trunk { .. } => true,
    };
    if config.ports.iter().any(|port| adds(&port.vlan)) { TAG_LEN } else { 0 }
}

/// Whether a frame that finds its queue at `output` empty could be marked: the depth includes the
/// frame itself.
fn marks_alone(config: &SwitchConfig, ecn: Option<RedProfile>, output: PortId) -> bool {
    ecn.is_some_and(|ecn| ecn.may_mark(longest_alone(config, output)))
}

/// Whether a frame that finds its queue at `output` empty could be dropped early.
fn drops_alone(config: &SwitchConfig, wred: &PerPri<Option<RedProfile>>, output: PortId) -> bool {
    let longest = longest_alone(config, output);
    wred.0.iter().flatten().any(|profile| profile.may_mark(longest))
}

/// Depth of a queue at `output` with one longest frame, in bytes of cells.
fn longest_alone(config: &SwitchConfig, output: PortId) -> u64 {
    let cell = u64::from(config.buffer.cell_bytes.max(1));
    let len = config.ports.get(output.index()).map_or(0, |port| port.frame_len_max as u64);
    len.div_ceil(cell) * cell
}

fn wred(config: &SwitchConfig, pris: PriSet) -> Result<PerPri<Option<RedProfile>>, RedError> {
    let mut wred = PerPri::default();
    for pri in pris.iter() {
        if let Some(of) = config.wred[pri] {
            wred[pri] = Some(RedProfile::new(of.low_bytes, of.high_bytes, of.max_percent)?);
        }
    }
    Ok(wred)
}

fn unshaped(config: &SwitchConfig, links: &Links, pris: PriSet, output: PortId) -> PriSet {
    let is_mirrored = config.mirror.is_some_and(|mirror| mirror.from.contains(output));
    let is_lag = links.members(output).len() > 1;
    match config.ports.get(output.index()) {
        Some(port) if !is_mirrored && !is_lag && port.egress.port_max_rate.is_none() => {
            let limits = &port.egress.pri_max_rate;
            pris.iter().filter(|&pri| limits[pri].is_none()).collect()
        }
        _ => PriSet::EMPTY,
    }
}

/// Compiles links, and checks that all members of a LAG may do the same with a frame.
fn links(config: &SwitchConfig) -> Result<Links, LagError> {
    let stations = config.forward.static_entries.iter().map(|entry| {
        let ports = entry.spread.or(PortSet::only(entry.port));
        (entry.key.vid(), entry.key.addr(), ports)
    });
    let ports = PortSet::first(config.ports.len());
    let links = Links::build(&config.lags, stations, ports, config.seed)?;
    for lag in &config.lags {
        let mut members = lag.ports.iter().filter_map(|port| config.ports.get(port.index()));
        let Some(first) = members.next() else { continue };
        if let Some(what) = members.find_map(|other| first.difference(other)) {
            return Err(LagError::Unlike { lag: lag.name.clone(), what });
        }
    }
    Ok(links)
}

fn check_pris(config: &SwitchConfig, pris: PriSet) -> Result<(), SnapshotError> {
    let highest = pris.highest().unwrap_or_default().get();
    let within =
        |what, mut all: &mut dyn Iterator<Item = Pri>| match Iterator::find(&mut all, |&pri| {
            !pris.contains(pri)
        }) {
            Some(pri) => Err(SnapshotError::Pri { what, pri: pri.get(), highest }),
            None => Ok(()),
        };
    for source in PriSource::ALL {
        within(source.map_key(), &mut config.maps.of(source).iter().copied())?;
    }
    within("default_pri", &mut config.ports.iter().map(|port| port.default_pri))?;
    let tlp = &config.tlp;
    within("tlp_tc_to_pri", &mut tlp.tc_to_pri.iter().copied())?;
    within("uio_req_pri", &mut core::iter::once(tlp.uio_req_pri))?;
    within("uio_cpl_pri", &mut core::iter::once(tlp.uio_cpl_pri))?;
    within("pfc_priorities", &mut config.pfc.lossless.iter())
}
