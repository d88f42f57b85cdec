//! Routing of TLPs that takes only one look at each table, a second time besides the pipeline's; compiled for both
//! sides.
//!
//! `None` means that the pipeline decides.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge" step 2; docs/spec/wire-formats.md §5.1; tests compare it with
//! `dataplane::pbr`.

use weft_parsers::tlp::fast_frame::FastFrame;
use weft_parsers::tlp::{FastKind, Mode};

use crate::layout::{Edge, NO_PID, TlpRules, segment};

impl Edge {
    /// DPID for a request to `address`; `segments` and `idt` read an entry of the tables of all edges.
    #[inline]
    #[must_use]
    pub fn lookup(
        &self,
        address: u64,
        segments: impl FnOnce(u32) -> u32,
        idt: impl FnOnce(u32) -> u16,
    ) -> Option<u16> {
        // Below the base this wraps to a huge offset, so one comparison checks both bounds.
        let offset = address.wrapping_sub(self.base);
        let shift = self.shift & 63;
        if offset >= self.bytes || offset >> shift > u64::from(self.mask) {
            return None;
        }
        let word = segments(self.first + low(address >> shift, self.mask));
        if word & segment::VALID == 0 {
            return None;
        }
        let ways = word >> segment::WAYS_AT & 0xF;
        let field = word >> segment::FIELD_AT & 0xFFF;
        let dpid = if ways == 0 {
            field
        } else {
            let way = low(address >> (word >> segment::SHIFT_AT & 0x1F), (1 << ways) - 1);
            // Tables of all edges lie in one map: an index beyond this edge's would read another one's PIDs.
            if field + way >= self.idt_len {
                return None;
            }
            u32::from(idt(self.idt + field + way))
        };
        let dpid = (dpid & 0xFFF) as u16;
        (dpid != NO_PID).then_some(dpid)
    }
}

impl TlpRules {
    /// Priority of a TLP, by its kind or Traffic Class.
    #[inline]
    #[must_use]
    #[expect(clippy::indexing_slicing, reason = "a Traffic Class is below 8")]
    pub fn pri(&self, frame: &FastFrame) -> u8 {
        let pri = match frame.tlp.kind {
            FastKind::Uio => self.uio_req_pri,
            FastKind::UioCompletion => self.uio_cpl_pri,
            FastKind::Memory | FastKind::Completion => self.tc_to_pri[frame.tlp.tc as usize & 7],
        };
        pri & 7
    }

    /// Layout of TLPs without PTH on the link.
    #[inline]
    #[must_use]
    pub const fn mode(&self) -> Mode {
        if self.flit == 0 { Mode::NonFlit } else { Mode::Flit }
    }
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the mask takes the lower bits")]
const fn low(bits: u64, mask: u32) -> u32 {
    bits as u32 & mask
}
