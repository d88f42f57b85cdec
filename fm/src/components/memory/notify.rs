//! Notifications of GFDs to hosts (GAM VDMs): one bit for each requester at a GFD, whatever the number of its shares.
//!
//! Setting and clearing the bit are steps with an undo, like those on rights.
//!
//! Source: CXL 3.1 section 7.7.2.7; docs/spec/wire-formats.md §4.7 (490Ch, 490Dh: Notify).

use weft_parsers::fabric::Pid;

use super::steps::{NOTIFY, Step, UndoLog};
use super::{Host, Memory, MemoryError, Share};
use crate::cci::CciSession;
use crate::model::inventory::Inventory;

impl Memory {
    /// Switches on notifications of a share's GFDs to a host, where no other share has done so.
    pub(super) fn notify(
        &self,
        fabric: &mut CciSession,
        inventory: &Inventory,
        done: &mut UndoLog,
        share: &Share,
        host: Host,
    ) -> Result<(), MemoryError> {
        let gfds = share.parts.iter().map(|part| part.gfd).filter(|_| share.notify);
        for gfd in gfds.filter(|gfd| !self.notifies(host, *gfd)) {
            done.take(fabric, inventory, Step::Right { gfd, rpid: host.pid, group: NOTIFY })?;
        }
        Ok(())
    }

    /// Whether some share has a GFD notify a host.
    pub(super) fn notifies(&self, host: Host, gfd: Pid) -> bool {
        let mut shares = self.shares.iter().filter(|it| it.notify && it.hosts.contains(&host));
        shares.any(|it| it.parts.iter().any(|part| part.gfd == gfd))
    }
}
