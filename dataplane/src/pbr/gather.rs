//! Answers that go up once all components below have given theirs: `PME_TO_Ack`.
//!
//! A broadcast starts a [`Gather`]; each answer then says whether to send one up.
//!
//! Source: PCIe 6.0 section 2.2.8 (routing 101); docs/spec/wire-formats.md §3.4.

use super::vcs::Vcs;

/// Bit set of the vPPBs of a virtual switch that have not answered. It changes, so it is kept beside the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gather {
    waiting: [u64; 4],
}

impl Gather {
    /// Starts waiting for all bound vPPBs, as a broadcast went below them. Returns whether there is none, so that the
    /// answer goes up at once.
    pub fn start(&mut self, vcs: &Vcs) -> bool {
        self.waiting = [0; 4];
        for (vppb, _) in vcs.bound() {
            if let Some(word) = self.waiting.get_mut(usize::from(vppb / 64)) {
                *word |= 1 << (vppb % 64);
            }
        }
        self.waiting == [0; 4]
    }

    /// Notes that `vppb` answered, or that its link went down. Returns whether it was the last: then one answer goes
    /// up.
    pub fn answer(&mut self, vppb: u8) -> bool {
        let Some(word) = self.waiting.get_mut(usize::from(vppb / 64)) else { return false };
        let bit = 1 << (vppb % 64);
        if *word & bit == 0 {
            return false; // it has answered, or was not asked
        }
        *word &= !bit;
        self.waiting == [0; 4]
    }
}
