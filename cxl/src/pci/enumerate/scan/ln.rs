//! Requesters of Lightweight Notification: switched on with the one line size of the system, or left off.
//!
//! A [`Node`] with an LNR capability -> its control register.
//!
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use super::Scanner;
use crate::pci::enumerate::wire::Done;
use crate::pci::regs::lnr;
use crate::pci::tree::{Node, ProblemKind};

impl Scanner {
    /// Switches a function's LN requester off, which ends what it has registered by another number, and on.
    pub(super) fn switch_on_ln(&mut self, node: &Node) -> Done<()> {
        let (Some(at), Some(settings)) = (node.lnr, self.host.ln) else { return Ok(()) };
        let at = at + lnr::CONTROL;
        //= PCIe 5.0 section 6.21: line size and limit may not change while it is on
        self.wire.write16(node.bdf, at, 0)?;
        let Some(control) = settings.control(node.lnr_capability) else {
            self.problem(node.bdf, ProblemKind::LineSize(settings.line));
            return Ok(());
        };
        self.wire.write16(node.bdf, at, control & !lnr::ENABLE)?;
        if (self.wire.read16(node.bdf, at)? ^ control) & (lnr::CLS_128 | lnr::LIMIT) != 0 {
            self.problem(node.bdf, ProblemKind::LineSize(settings.line));
            return Ok(());
        }
        self.wire.write16(node.bdf, at, control)
    }
}
