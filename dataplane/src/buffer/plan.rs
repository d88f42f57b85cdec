//! How the shared buffer is laid out, and the thresholds that follow from it.
//!
//! [`BufferPlan`] divides the cells of a [`BufferConfig`] into headroom, reserves and the shared
//! part; [`Thresholds`] are the limits that admission compares with.
//!
//! Units: cells.
//! Source: Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches"
//! (1998); docs/spec/pipeline.md §4.

use crate::config::{BufferConfig, Sharing};
use crate::types::{Alpha, PerPri, PortId, Pri, PriSet};

/// A buffer that cannot be laid out as asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BufferError {
    /// Headroom and reserves leave nothing to share.
    #[error(
        "buffer: {total} cells less {headroom} of headroom and {reserves} of reserves leave nothing to share"
    )]
    NothingShared {
        /// Cells of the whole buffer.
        total: u64,
        /// Cells of headroom of all lossless groups together.
        headroom: u64,
        /// Cells reserved for VOQs and groups together.
        reserves: u64,
    },
    /// Static shares are too small to be of use.
    #[error("buffer: a static share is {share} cells, and one largest frame takes {frame}")]
    ShareBelowFrame {
        /// Cells that a VOQ would get.
        share: u64,
        /// Cells of the longest frame that a port accepts.
        frame: u64,
    },
}

/// How many cells of the shared buffer are headroom, reserved, and shared, as a configuration has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlan {
    /// Cells of the whole buffer: B.
    pub total: u64,
    /// Cells of headroom, all groups together: H.
    pub headroom: u64,
    /// Cells of reserves, all queues together: sum of S.
    pub reserves: u64,
    /// Cells of the shared part: B - H - sum of S.
    pub shared: u64,
    /// Static mode: the share of a VOQ.
    pub static_share: u64,
    /// Static mode: the share of an ingress group, that of all VOQs of its input and priority.
    pub static_group: u64,
}

impl BufferPlan {
    /// Lays out the buffer of a switch. Frames of each of `ports` go to `outputs` ports: one less than
    /// `ports` where no frame leaves by its input.
    ///
    /// # Errors
    /// When nothing is left to share, or a static share does not take one largest frame.
    pub fn new(
        config: &BufferConfig,
        ports: usize,
        outputs: usize,
        pris: usize,
        lossless: PriSet,
        frame_cells: u32,
    ) -> Result<Self, BufferError> {
        let (ports, pris) = (ports as u64, pris as u64);
        let outputs = outputs.max(1) as u64;
        // A configuration that names priorities the switch does not have is refused by name, but resolved
        // to its end first: `pris - lossless` must not underflow meanwhile.
        let lossless = (lossless.len() as u64).min(pris);
        let total = u64::from(config.total_cells);
        let per_port: u64 = config.headroom_cells.iter().map(|&cells| u64::from(cells)).sum();
        let headroom = per_port * lossless;
        let reserves = ports * ports * (pris - lossless) * u64::from(config.voq_reserve_cells)
            + ports * lossless * u64::from(config.pg_reserve_cells);
        let shared = total.saturating_sub(headroom).saturating_sub(reserves);
        // Of a shared part of 0 cells alpha times what is free is 0, too: queues without a reserve
        // could never admit a frame.
        if shared == 0 {
            return Err(BufferError::NothingShared { total, headroom, reserves });
        }
        let static_share = (total - headroom) / (ports * outputs * pris);
        // A VOQ whose share is below a longest frame would drop that frame even when it is empty.
        if config.sharing == Sharing::Static && static_share < u64::from(frame_cells) {
            let frame = u64::from(frame_cells);
            return Err(BufferError::ShareBelowFrame { share: static_share, frame });
        }
        let static_group = static_share * outputs;
        Ok(Self { total, headroom, reserves, shared, static_share, static_group })
    }
}

/// Limits of queues and ingress groups in the shared buffer. A reload may replace them while frames
/// are queued.
#[derive(Clone, Debug)]
pub struct Thresholds {
    pub(super) sharing: Sharing,
    pub(super) alpha: PerPri<Alpha>,
    pub(super) voq_reserve: u32,
    pub(super) pg_reserve: u32,
    pub(super) headroom: Vec<u32>,
    pub(super) xon_offset: u32,
    pub(super) shared: u64,
    pub(super) static_share: u32,
    pub(super) static_group: u32,
}

impl Thresholds {
    /// The thresholds of `config` in a buffer laid out as `plan`.
    #[must_use]
    pub fn new(config: &BufferConfig, plan: &BufferPlan) -> Self {
        Self {
            sharing: config.sharing,
            alpha: config.alpha,
            voq_reserve: config.voq_reserve_cells,
            pg_reserve: config.pg_reserve_cells,
            headroom: config.headroom_cells.clone(),
            xon_offset: config.xon_offset_cells,
            shared: plan.shared,
            static_share: u32::try_from(plan.static_share).unwrap_or(u32::MAX),
            static_group: u32::try_from(plan.static_group).unwrap_or(u32::MAX),
        }
    }

    /// The dynamic threshold S + alpha x free, saturating.
    #[inline]
    pub(super) fn dynamic(&self, reserve: u32, pri: Pri, free: u64) -> u32 {
        let quota = self.alpha[pri].of(free);
        u32::try_from(quota.saturating_add(u64::from(reserve))).unwrap_or(u32::MAX)
    }

    /// The limit of an ingress group of `pri`, its XOFF, while `free` cells of the shared part are
    /// unused.
    #[inline]
    #[must_use]
    pub fn group_limit_with(&self, pri: Pri, free: u64) -> u32 {
        match self.sharing {
            Sharing::Dt => self.dynamic(self.pg_reserve, pri, free),
            Sharing::Static => self.static_group,
        }
    }

    /// The limit of a VOQ of `pri` while `free` cells of the shared part are unused.
    #[inline]
    #[must_use]
    pub fn voq_limit_with(&self, pri: Pri, free: u64) -> u32 {
        match self.sharing {
            Sharing::Dt => self.dynamic(self.voq_reserve, pri, free),
            Sharing::Static => self.static_share,
        }
    }

    /// Cells that a VOQ may hold without drawing on the shared part; with static shares, its whole
    /// share.
    #[inline]
    #[must_use]
    pub const fn voq_reserve(&self) -> u32 {
        match self.sharing {
            Sharing::Dt => self.voq_reserve,
            Sharing::Static => self.static_share,
        }
    }

    /// Whether [`Buffer::admit_all`](super::Buffer::admit_all) can succeed: only with dynamic
    /// thresholds.
    #[inline]
    #[must_use]
    pub fn admit_bursts(&self) -> bool {
        self.sharing == Sharing::Dt
    }

    /// Cells that a group may hold without drawing on the shared part; with static shares, its
    /// whole share.
    #[inline]
    #[must_use]
    pub const fn group_reserve(&self) -> u32 {
        match self.sharing {
            Sharing::Dt => self.pg_reserve,
            Sharing::Static => self.static_group,
        }
    }

    /// Cells of headroom of each lossless group of `input`; 0 for a port that is not configured.
    #[inline]
    #[must_use]
    pub fn headroom(&self, input: PortId) -> u32 {
        self.headroom.get(input.index()).copied().unwrap_or(0)
    }

    /// Cells at or below which a paused group resumes (XON), with its XOFF at `limit`.
    #[inline]
    #[must_use]
    pub fn xon(&self, limit: u32) -> u32 {
        // Not below the reserve, which nothing else can use: a group whose limit has shrunk under
        // the offset would otherwise have to be empty before it resumes.
        limit.saturating_sub(self.xon_offset).max(self.pg_reserve)
    }

    /// Cells of the shared part, in use or not.
    #[must_use]
    pub const fn shared(&self) -> u64 {
        self.shared
    }
}
