//! UIO through an HBR switch: requests by the decoders of the upstream port, completions by the segment that they name;
//! all other UIO TLPs are left to the bridges.
//!
//! Source: CXL 3.1 sections 8.2.4.20, 9.16; PCIe 6.0 sections 2.2.4.2, 2.2.6.2; docs/spec/cxl-fabric.md "UIO through
//! HBR switches".

use weft_dataplane::pbr::vcs::Route;
use weft_parsers::tlp::{Kind, Tlp};

use super::{HbrSwitch, registers};
use crate::pci::regs;
use crate::vdm::link_reset::ResetOrders;

/// A UIO TLP that is refused.
pub(super) struct NoWay;

impl HbrSwitch {
    /// Link to which decoders or the segment route a UIO TLP; `None` if the bridges route it.
    pub(super) fn uio_way(
        &self,
        from: usize,
        tlp: &Tlp<'_>,
        route: Route,
    ) -> Option<Result<usize, NoWay>> {
        if !tlp.is_uio() {
            return None;
        }
        match route {
            Route::Memory(hpa) if !tlp.is_completion() => {
                let hdm = self.component.hdm()?;
                let to = usize::from(hdm.target(hpa, tlp.access_len(), true)?);
                Some(if self.may_go(from, to) { Ok(to) } else { Err(NoWay) })
            }
            // The requester is in another hierarchy, even if a bus here has the same number: the way up is the only
            // one.
            Route::Id(_) if tlp.dest_segment().is_some_and(|segment| segment != self.segment) => {
                Some(if from == 0 { Err(NoWay) } else { Ok(0) })
            }
            _ => None,
        }
    }

    /// Whether a request from the link `from` may go down by `to`: not back to its source, and from below only if the
    /// bridge of `from` is bus master.
    fn may_go(&self, from: usize, to: usize) -> bool {
        let open = self.resets.get(to).is_some_and(ResetOrders::is_open);
        let is_up = open && self.up.get(to).copied().unwrap_or_default();
        let master = self
            .bridges
            .get(from)
            .is_some_and(|bridge| bridge.space().get16(regs::COMMAND) & regs::command::MASTER != 0);
        let usable = self.bridges.get(to).is_some_and(|it| registers::is_usable(it, is_up));
        to != from && to != 0 && usable && (from == 0 || master)
    }

    /// Learns the PCIe segment from a configuration write, as every function does.
    pub(super) const fn learn_segment(&mut self, tlp: &Tlp<'_>) {
        if let (Kind::CfgWrite { .. }, Some(segment)) = (tlp.kind(), tlp.dest_segment()) {
            self.segment = segment;
        }
    }
}
