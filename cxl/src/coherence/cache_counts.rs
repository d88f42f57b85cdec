//! What a host's cache counts.
//!
//! [`CacheCounts`], of which `status` of a host shows each.
//!
//! Units: accesses, lines, snoops.
//! Source: docs/endpoint.md "Transfers".

/// Counts of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CacheCounts {
    /// Accesses that found their line.
    pub hits: u64,
    /// Accesses that had to wait for it.
    pub misses: u64,
    /// Snoops that were answered.
    pub snoops: u64,
    /// Of these, how many met a request of the host for the same line.
    pub conflicts: u64,
    /// Changed lines that were written back.
    pub written_back: u64,
    /// Lines that gave up their place unchanged.
    pub evicted: u64,
    /// Lines that were to be used when their lease was over: they were asked for again.
    pub lapsed: u64,
    /// Changed lines that were lost: the device had given them up, or their write-back was not answered.
    pub lost: u64,
}

impl core::hash::Hash for CacheCounts {
    /// What was counted decides nothing.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}
