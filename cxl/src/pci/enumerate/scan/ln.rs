//! Requesters of Lightweight Notification: enabled with the line size of the system, or left disabled.
//!
//! Source: PCIe 5.0 section 6.21; docs/spec/wire-formats.md §3.3.

use super::Scanner;
use crate::pci::enumerate::wire::Done;
use crate::pci::regs::lnr;
use crate::pci::tree::{Node, ProblemKind};

impl Scanner {
    /// Disables a function's LN requester, which ends registrations under its old bus number, and enables it.
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
        // A requester with one line size has CLS read-only; one that does not keep the setting is not enabled.
        if (self.wire.read16(node.bdf, at)? ^ control) & (lnr::CLS_128 | lnr::LIMIT) != 0 {
            self.problem(node.bdf, ProblemKind::LineSize(settings.line));
            return Ok(());
        }
        // Line size and limit were written before: they lock as the enable is set.
        self.wire.write16(node.bdf, at, control)
    }
}
