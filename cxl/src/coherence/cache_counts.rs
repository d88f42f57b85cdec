//! Counts of a host's cache; `status` of the host shows each.
//!
//! Source: docs/endpoint.md "Transfers".

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct CacheCounts {
    /// Accesses that found their line.
    pub hits: u64,
    /// Accesses that had to wait for it.
    pub misses: u64,
    /// Snoops that were answered.
    pub snoops: u64,
    /// Snoops that met a read of the host for the same line.
    pub conflicts: u64,
    /// Changed lines that were written back.
    pub written_back: u64,
    /// Lines that gave up their place unchanged.
    pub evicted: u64,
    /// Lines whose lease was over when an access needed them: read again.
    pub lapsed: u64,
    /// Changed lines that were lost: the device had given them up, or their write-back was not answered.
    pub lost: u64,
}

impl core::hash::Hash for CacheCounts {
    /// Counts change no decision, so the exploration of all orders takes states that differ only in them as one.
    fn hash<H: core::hash::Hasher>(&self, _: &mut H) {}
}
