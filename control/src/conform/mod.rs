//! Conformance of buffer and PFC: the frames at which a switch with the thresholds in force pauses, drops and resumes.
//!
//! [`Params::of`] takes a configuration in force and a frame length, and returns a row for each (port, priority). The
//! cases of `weft conform run` compare a switch with them.
//!
//! Source: docs/spec/pipeline.md §4 and §9; docs/conform.md.

use serde::{Deserialize, Serialize};
use weft_dataplane::buffer::{LEASED_MAX, Thresholds};
use weft_dataplane::config::{PfcMode, PortConfig};
use weft_dataplane::snapshot::Snapshot;
use weft_dataplane::time::LinkRate;
use weft_dataplane::types::{PortId, Pri};

use crate::sai::objects::Object;

/// Frames of one length at which each threshold is crossed, with all else empty and their output held; and the facts
/// about the switch that a test needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    pub cell_size: u64,
    /// Length of a frame in bytes, without FCS.
    pub packet_size: u64,
    pub packet_cells: u64,
    /// Object id of the buffer pool in the SAI service.
    pub buf_pool_roid: String,
    /// By PCP.
    #[serde(default)]
    pub pcp_to_pri: Vec<u8>,
    /// By DSCP.
    #[serde(default)]
    pub dscp_to_pri: Vec<u8>,
    /// Thresholds of ECN marks; `None` if the switch sets none.
    #[serde(default)]
    pub ecn: Option<Ecn>,
    /// One entry for each port, without the CPU port.
    #[serde(default)]
    pub ports: Vec<Port>,
    /// One entry for each (port, priority).
    pub rows: Vec<Row>,
}

/// Thresholds of ECN marks: depth of the queue as the frame leaves it, itself included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ecn {
    /// Bytes below which no frame is marked.
    pub low_bytes: u64,
    /// Bytes from which on every frame is marked.
    pub high_bytes: u64,
}

/// How a port assigns priorities, and shares its output among them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    pub port: String,
    /// Fields that decide a frame's priority, of which the first that it has counts: `pcp`, `dscp`, `tc`, `exp`.
    pub trust: Vec<String>,
    /// Priorities that go before all others, the highest first.
    pub strict: Vec<u8>,
    /// By priority, the shares of the others.
    pub weights: Vec<u32>,
    /// Limit of its rate in bit/s; `None` without one.
    pub max_rate_bps: Option<u64>,
    /// Longest frame in bytes, without FCS.
    pub max_frame: u64,
}

/// Thresholds of one (port, priority), as numbers of frames. A number at which something happens counts the frame that
/// triggers it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    pub port: String,
    pub pri: u8,
    /// Priority group that counts it.
    pub pg: u8,
    /// Whether it must not lose frames.
    pub lossless: bool,
    /// Lossless: PFC classes that a PAUSE for it names.
    #[serde(default)]
    pub pfc_classes: Vec<u8>,
    /// Frames that fit into the reserve.
    pub fill_min: u64,
    /// Lossless: the first frame for which PAUSE is sent.
    pub trig_pfc: Option<u64>,
    /// Lossless: the first frame that is dropped at the input.
    pub trig_ingr_drp: Option<u64>,
    /// Lossless: frames that have to leave after `trig_pfc` until the pause is released.
    pub dismiss_pfc: Option<u64>,
    /// Lossless: frames that fit into the headroom.
    pub headroom: Option<u64>,
    /// Lossy: the first frame that is dropped, counted at the output.
    pub trig_egr_drp: Option<u64>,
    /// Frames by which each number may be off: other workers that carry traffic lease cells of the buffer ahead.
    pub margin: u64,
}

/// A queue that is filled with frames of `cells` each, all else empty.
#[derive(Clone, Copy)]
struct Filling<'a> {
    thresholds: &'a Thresholds,
    pri: Pri,
    cells: u64,
    /// True for an ingress group, false for a VOQ.
    group: bool,
}

impl Filling<'_> {
    fn reserve(&self) -> u64 {
        let reserve = if self.group {
            self.thresholds.group_reserve()
        } else {
            self.thresholds.voq_reserve()
        };
        reserve.into()
    }

    /// Its limit while it has `used` cells.
    fn limit(&self, used: u64) -> u64 {
        let free = self.thresholds.shared().saturating_sub(used.saturating_sub(self.reserve()));
        let limit = if self.group {
            self.thresholds.group_limit_with(self.pri, free)
        } else {
            self.thresholds.voq_limit_with(self.pri, free)
        };
        limit.into()
    }

    /// Whether another frame is admitted while it has `used` cells.
    fn admits(&self, used: u64) -> bool {
        let after = used + self.cells;
        after <= self.limit(used)
            && after.saturating_sub(self.reserve()) <= self.thresholds.shared()
    }

    /// Frames that are admitted one after the other. The limit falls as the queue grows, so the first refusal is the
    /// end, and bisection finds it.
    fn fits(&self) -> u64 {
        let (mut fits, mut refused) =
            (0, self.thresholds.shared() / self.cells + self.reserve() / self.cells + 2);
        while fits < refused {
            let frames = u64::midpoint(fits, refused);
            if self.admits(frames * self.cells) {
                fits = frames + 1;
            } else {
                refused = frames;
            }
        }
        fits
    }
}

impl Params {
    /// Numbers for the configuration in force, frames of `packet_size` bytes, and a switch with `workers` workers.
    #[must_use]
    pub fn of(snapshot: &Snapshot, packet_size: u64, workers: usize) -> Self {
        let cell_size = u64::from(snapshot.config.buffer.cell_bytes);
        // Shorter frames are padded to 60 bytes before they are stored.
        let cells = packet_size.max(60).div_ceil(cell_size);
        let ports = (0..).filter_map(PortId::new).zip(&snapshot.config.ports);
        let own = ports.filter(|(id, _)| snapshot.cpu_port != Some(*id));
        let rows = own.flat_map(|(id, port)| {
            snapshot.pris.iter().map(move |pri| {
                let row = Row {
                    port: port.name.clone(),
                    pri: pri.get(),
                    pg: snapshot.config.maps.pri_to_pg[pri],
                    lossless: snapshot.is_lossless(id, pri),
                    margin: margin(snapshot, pri, cells, workers),
                    ..Row::default()
                };
                if row.lossless {
                    lossless(snapshot, id, pri, cells, row)
                } else {
                    lossy(snapshot, pri, cells, row)
                }
            })
        });
        let config = &snapshot.config;
        let numbers = |pris: &[Pri]| pris.iter().map(|pri| pri.get()).collect();
        let own = (0..).filter_map(PortId::new).zip(&config.ports);
        let own = own.filter(|(id, _)| snapshot.cpu_port != Some(*id));
        Self {
            cell_size,
            packet_size,
            packet_cells: cells,
            buf_pool_roid: format!("{:#x}", Object::BufferPool.id()),
            pcp_to_pri: numbers(&config.maps.pcp_to_pri),
            dscp_to_pri: numbers(&config.maps.dscp_to_pri),
            ecn: config.ecn.enabled.then_some(Ecn {
                low_bytes: config.ecn.low_bytes,
                high_bytes: config.ecn.high_bytes,
            }),
            ports: own.map(|(_, port)| Port::of(port, config.pris)).collect(),
            rows: rows.collect(),
        }
    }

    /// Facts about the port called `port`.
    #[must_use]
    pub fn port(&self, port: &str) -> Option<&Port> {
        self.ports.iter().find(|of| of.port == port)
    }
}

impl Port {
    fn of(port: &PortConfig, pris: usize) -> Self {
        let egress = &port.egress;
        let existing = || Pri::ALL.into_iter().take(pris);
        Self {
            port: port.name.clone(),
            trust: port.trust.iter().map(|source| source.name().to_owned()).collect(),
            strict: existing()
                .filter(|&pri| egress.strict.contains(pri))
                .map(Pri::get)
                .rev()
                .collect(),
            weights: existing().map(|pri| egress.weights[pri]).collect(),
            max_rate_bps: egress.port_max_rate.map(LinkRate::as_bps),
            max_frame: port.frame_len_max as u64,
        }
    }
}

fn margin(snapshot: &Snapshot, pri: Pri, cells: u64, workers: usize) -> u64 {
    // The receiving worker's own lease is used by the counted frames, so it is not in the margin.
    let ahead = LEASED_MAX * (workers as u64).saturating_sub(1);
    snapshot.config.buffer.alpha[pri].of(ahead).div_ceil(cells)
}

fn lossless(snapshot: &Snapshot, input: PortId, pri: Pri, cells: u64, row: Row) -> Row {
    let thresholds = &snapshot.thresholds;
    let group = Filling { thresholds, pri, cells, group: true };
    let (fits, headroom) = (group.fits(), u64::from(thresholds.headroom(input)) / cells);
    let frame = cells * u64::from(snapshot.config.buffer.cell_bytes);
    let (trig_pfc, dismiss_pfc) = match snapshot.config.pfc.mode {
        PfcMode::IngressPg => (fits + 1, dismissed(&group, fits)),
        PfcMode::EgressQueue { xoff_bytes, xon_bytes } => {
            // The queue pauses when it is above XOFF, and resumes below XON: both count the frame that crosses it.
            let above = xoff_bytes / frame + 1;
            (above, above.saturating_sub(xon_bytes.div_ceil(frame).saturating_sub(1)))
        }
    };
    let classes = snapshot.config.pfc.classes[pri];
    Row {
        pfc_classes: (0..8).filter(|class| classes >> class & 1 != 0).collect(),
        fill_min: group.reserve() / cells,
        trig_pfc: Some(trig_pfc),
        trig_ingr_drp: Some(fits + headroom + 1),
        dismiss_pfc: Some(dismiss_pfc),
        headroom: Some(headroom),
        ..row
    }
}

/// Frames that have to leave until the group is at its XON, when `fits` are in it and one is in its headroom.
fn dismissed(group: &Filling<'_>, fits: u64) -> u64 {
    // Frames leave one by one, and the first one frees headroom.
    let is_released = |left: u64| {
        let used = (fits + 1).saturating_sub(left) * group.cells;
        let shared = used.min(fits * group.cells);
        let limit = u32::try_from(group.limit(shared)).unwrap_or(u32::MAX);
        used <= u64::from(group.thresholds.xon(limit))
    };
    (0..=fits + 1).find(|&left| is_released(left)).unwrap_or(fits + 1)
}

fn lossy(snapshot: &Snapshot, pri: Pri, cells: u64, row: Row) -> Row {
    let voq = Filling { thresholds: &snapshot.thresholds, pri, cells, group: false };
    Row { fill_min: voq.reserve() / cells, trig_egr_drp: Some(voq.fits() + 1), ..row }
}

#[cfg(test)]
mod tests;
