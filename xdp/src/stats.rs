//! The program's counters, summed over processors.
//!
//! Source: docs/spec/pipeline.md §10.

use aya::maps::PerCpuArray;

use crate::XdpError;
use crate::layout::{BANKS, Control, PORTS, PortStats, Refusals, SIZES, Tally, map};
use crate::load::Xdp;

/// Counters of one port, summed over all processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortCounts {
    /// Counted by the program.
    pub stats: PortStats,
    /// Counted by the tracepoints; zero without them.
    pub refusals: Refusals,
}

impl Tally {
    const fn add(&mut self, other: Self) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }

    /// Adds up `of`.
    #[must_use]
    pub fn sum(of: &[Self]) -> Self {
        of.iter().fold(Self::default(), |mut sum, tally| {
            sum.add(*tally);
            sum
        })
    }
}

impl PortStats {
    /// All counters at 0.
    pub const ZERO: Self = Self {
        passed: [Tally { frames: 0, bytes: 0 }; crate::layout::KINDS],
        express_in: [Tally { frames: 0, bytes: 0 }; crate::layout::KINDS],
        express_out: [Tally { frames: 0, bytes: 0 }; crate::layout::KINDS],
        sizes: [0; SIZES],
        no_socket: 0,
        no_meta: 0,
        drained: 0,
    };

    /// Adds another processor's counters.
    pub fn add(&mut self, other: &Self) {
        let tables = [
            (&mut self.passed, &other.passed),
            (&mut self.express_in, &other.express_in),
            (&mut self.express_out, &other.express_out),
        ];
        for (sums, more) in tables {
            sums.iter_mut().zip(more).for_each(|(sum, tally)| sum.add(*tally));
        }
        self.sizes.iter_mut().zip(other.sizes).for_each(|(sum, n)| *sum += n);
        self.no_socket += other.no_socket;
        self.no_meta += other.no_meta;
        self.drained += other.drained;
    }
}

impl Xdp {
    /// Counters of `port`, as of some moment in the past: no frame is half counted.
    ///
    /// # Errors
    /// The kernel refuses the map.
    pub fn counts(&self, port: u8) -> Result<PortCounts, XdpError> {
        let mut sum = PortStats::ZERO;
        for bank in 0..BANKS {
            sum.add(&self.bank(bank, port)?);
        }
        Ok(PortCounts { stats: sum, refusals: self.refusals(port)? })
    }

    /// Makes programs count in the other bank; returns the bank that no program writes to any more.
    ///
    /// # Errors
    /// A kernel without membarrier(2).
    pub fn turn(&mut self) -> Result<usize, XdpError> {
        let control = self.shared().control();
        self.shared().set_control(Control { stats: control.stats ^ 1, ..control });
        // A program that began before still counts in the old bank; after this none does.
        self.grace().map_err(|source| XdpError::Mmap { name: map::CONTROL, source })?;
        Ok(control.stats as usize)
    }

    /// Counters of `port` in `bank`, summed over processors.
    ///
    /// # Errors
    /// The kernel refuses the map.
    pub fn bank(&self, bank: usize, port: u8) -> Result<PortStats, XdpError> {
        let all = self.ebpf.map(map::STATS).ok_or(XdpError::Missing(map::STATS))?;
        let all = PerCpuArray::<_, PortStats>::try_from(all).map_err(XdpError::map(map::STATS))?;
        let at = u32::try_from(bank * PORTS).unwrap_or(0) + u32::from(port);
        let each = all.get(&at, 0).map_err(XdpError::map(map::STATS))?;
        let mut sum = PortStats::ZERO;
        each.iter().for_each(|stats| sum.add(stats));
        Ok(sum)
    }

    /// Express frames of `port` that outputs refused, and frames that it refused as an output.
    ///
    /// # Errors
    /// The kernel refuses the map.
    pub fn refusals(&self, port: u8) -> Result<Refusals, XdpError> {
        self.xmit.as_ref().map_or(Ok(Refusals::default()), |xmit| xmit.counts(port))
    }
}
