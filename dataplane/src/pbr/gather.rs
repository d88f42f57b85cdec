//! Answers that go up once, after all below have given theirs: `PME_TO_Ack`.
//! [`Gather`]: a broadcast starts it; each answer in, whether to send one up out.
//!
//! Source: PCIe 6.0 section 2.2.8 (routing 101); docs/spec/wire-formats.md §3.4.

use super::vcs::Vcs;

/// Which vPPBs of a virtual switch have not answered yet; it changes, so it stands beside the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gather {
    waiting: [u64; 4],
}

impl Gather {
    /// A broadcast went below all bound vPPBs. Returns whether there is none, so that the answer goes up at once.
    pub fn start(&mut self, vcs: &Vcs) -> bool {
        self.waiting = [0; 4];
        for (vppb, _) in vcs.bound() {
            if let Some(word) = self.waiting.get_mut(usize::from(vppb / 64)) {
                *word |= 1 << (vppb % 64);
            }
        }
        self.waiting == [0; 4]
    }

    /// `vppb` answered, or its link went down. Returns whether it was the last: then one answer goes up.
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
