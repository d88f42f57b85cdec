//! Watermarks: the highest fill of queues, groups and the buffer since a reader last restarted them.
//!
//! A [`Mark`] names one; values are in cells. The workers keep one maximum for all readers. So that a restart by one
//! [`Reader`] takes nothing from another, [`Watermarks`] keeps the value of that moment for the other.
//!
//! Source: docs/spec/pipeline.md §10.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use weft_dataplane::pipeline::Core;
use weft_dataplane::stats::{Counter, WorkerStats};
use weft_dataplane::types::{PortId, Pri};

use super::ShowTopic;

/// One watermark; ports by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// Depth of (output, priority).
    Depth(u8, u8),
    /// Ingress group of (input, priority), without headroom.
    Group(u8, u8),
    /// Headroom of (input, priority).
    Headroom(u8, u8),
    /// Lossy frames of (input, priority group), where they are counted.
    Lossy(u8, u8),
    /// The shared part of the buffer.
    Shared,
    /// The headroom of all groups together.
    HeadroomPool,
}

/// A reader of watermarks; each restarts them for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// `weft show` and metrics.
    Show,
    /// Clients of the SAI service.
    Sai,
}

impl Mark {
    /// All watermarks of a switch with so many ports and priorities.
    pub fn all(ports: usize, pris: usize) -> impl Iterator<Item = Self> {
        let queues = move |of: fn(u8, u8) -> Self| {
            let port = move |port: PortId| {
                Pri::ALL.into_iter().take(pris).map(move |pri| of(port.get(), pri.get()))
            };
            (0..ports).filter_map(PortId::new).flat_map(port)
        };
        let of_groups =
            queues(Self::Group).chain(queues(Self::Headroom)).chain(queues(Self::Lossy));
        queues(Self::Depth).chain(of_groups).chain([Self::Shared, Self::HeadroomPool])
    }

    /// Whether `topic` shows it.
    #[must_use]
    pub const fn is_of(self, topic: ShowTopic) -> bool {
        match topic {
            ShowTopic::All => true,
            ShowTopic::Queues => matches!(self, Self::Depth(..)),
            ShowTopic::Pfc => {
                matches!(self, Self::Group(..) | Self::Headroom(..) | Self::Lossy(..))
            }
            ShowTopic::Buffer => matches!(self, Self::Shared | Self::HeadroomPool),
            _ => false,
        }
    }

    /// The counter that a worker keeps of it; `None` if there is no such port or priority.
    fn counter(self, stats: &WorkerStats) -> Option<&Counter> {
        let queue = |port: u8, pri: u8| {
            let port = PortId::new(port.into())?;
            let pri = Pri::ALL.into_iter().find(|known| known.get() == pri)?;
            Some(&stats.port[port].pri[pri])
        };
        Some(match self {
            Self::Depth(port, pri) => &queue(port, pri)?.depth_watermark,
            Self::Group(port, pri) => &queue(port, pri)?.pg_watermark,
            Self::Headroom(port, pri) => &queue(port, pri)?.headroom_watermark,
            Self::Lossy(port, group) => &queue(port, group)?.lossy_watermark,
            Self::Shared => &stats.shared_watermark,
            Self::HeadroomPool => &stats.headroom_watermark,
        })
    }

    /// Fill at this moment; 0 if there is no such port or priority.
    fn level(self, core: &Core) -> u64 {
        let (buffer, snapshot) = (&core.buffer, core.snapshot.load());
        let (ports, pris) = (snapshot.config.ports.len(), snapshot.config.pris);
        let place = |port: u8, pri: u8| {
            let port = PortId::new(port.into()).filter(|port| port.index() < ports)?;
            let mut known = Pri::ALL.into_iter().take(pris);
            Some((port, known.find(|known| known.get() == pri)?))
        };
        let of = |port, pri, used: &dyn Fn(PortId, Pri) -> u32| {
            place(port, pri).map_or(0, |(port, pri)| u64::from(used(port, pri)))
        };
        match self {
            Self::Depth(port, pri) => of(port, pri, &|port, pri| buffer.depth(port, pri)),
            Self::Group(port, pri) => of(port, pri, &|port, pri| buffer.group_used(port, pri)),
            Self::Headroom(port, pri) => {
                of(port, pri, &|port, pri| buffer.headroom_used(port, pri))
            }
            Self::Lossy(port, group) => {
                // SAI counts by priority group, the buffer by priority: the group's lossy priorities are added up.
                let members = Pri::ALL
                    .into_iter()
                    .take(pris)
                    .filter(|&pri| snapshot.config.maps.pri_to_pg[pri] == group);
                let port = PortId::new(port.into()).filter(|port| port.index() < ports);
                let lossy = |port| {
                    let lossy = members.filter(|&pri| !snapshot.is_lossless(port, pri));
                    lossy.map(|pri| buffer.lossy_used(port, pri)).sum()
                };
                port.map_or(0, lossy)
            }
            Self::Shared => buffer.shared_used(&snapshot.thresholds),
            Self::HeadroomPool => buffer.headroom_in_all(),
        }
    }

    /// Highest fill since the workers restarted.
    fn highest(self, core: &Core) -> u64 {
        let counters = core.stats.iter().filter_map(|stats| self.counter(stats));
        let noted = counters.map(Counter::get).max().unwrap_or(0);
        // A worker notes the depth when a frame leaves; until then a queue only grows, so its fill now may be higher.
        if matches!(self, Self::Depth(..)) { noted.max(self.level(core)) } else { noted }
    }

    /// Restarts the workers' maximum from the fill at this moment. No worker may be in a step meanwhile.
    pub fn begin_again(self, core: &Core) {
        let level = self.level(core);
        for (worker, stats) in core.stats.iter().enumerate() {
            if let Some(counter) = self.counter(stats) {
                // One worker takes the level, as `highest` is the maximum over all of them.
                counter.set(if worker == 0 { level } else { 0 });
            }
        }
    }
}

/// By watermark, a reader's highest value from before another reader's restart.
type Kept = BTreeMap<Mark, u64>;

/// Watermarks of a running switch, for readers that do not know of each other.
#[derive(Debug, Default)]
pub struct Watermarks {
    show: Mutex<Kept>,
    sai: Mutex<Kept>,
}

impl Watermarks {
    fn of(&self, reader: Reader) -> MutexGuard<'_, Kept> {
        let kept = match reader {
            Reader::Show => &self.show,
            Reader::Sai => &self.sai,
        };
        kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Highest fill of `mark` since `reader` restarted it.
    #[must_use]
    pub fn read(&self, reader: Reader, core: &Core, mark: Mark) -> u64 {
        self.since_restart(reader, mark, mark.highest(core))
    }

    /// As [`Self::read`], where the workers' highest is `highest`.
    #[must_use]
    pub fn since_restart(&self, reader: Reader, mark: Mark, highest: u64) -> u64 {
        self.of(reader).get(&mark).copied().unwrap_or(0).max(highest)
    }

    /// Restarts `marks` for `reader` alone. No worker may be in a step meanwhile.
    pub fn restart(&self, reader: Reader, core: &Core, marks: &[Mark]) {
        let other = match reader {
            Reader::Show => Reader::Sai,
            Reader::Sai => Reader::Show,
        };
        // Both locks together are taken only here, under the quiesced workers, so two readers cannot wait for each
        // other.
        let (mut own, mut others) = (self.of(reader), self.of(other));
        for &mark in marks {
            own.remove(&mark);
            // Kept for the other reader before the workers' maximum is lost.
            let kept = others.entry(mark).or_default();
            *kept = (*kept).max(mark.highest(core));
            mark.begin_again(core);
        }
    }
}
