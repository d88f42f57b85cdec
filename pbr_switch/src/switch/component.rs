//! A PBR switch as a CCI component: its commands, their senders, and the consequences of a change of owner.
//!
//! [`Component`] for [`Switch`]. The tables are rebuilt after each command and each tick.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles"; docs/spec/wire-formats.md §4.2 to §4.6.

use weft_cxl::cci::{Command, Common, Component, Done, Reply, Session};
use weft_dataplane::time::Instant;
use weft_parsers::cci::Request;
use weft_parsers::fabric::Pid;

use super::Switch;
use super::static_init::STATIC_COMMANDS;

impl Component for Switch {
    fn common(&self) -> &Common {
        &self.common
    }

    fn common_mut(&mut self) -> &mut Common {
        &mut self.common
    }

    fn commands(&self) -> &'static [Command] {
        // A statically configured switch refuses whatever would change its set-up, as no manager is there to undo it.
        if self.config.static_init.is_some() { STATIC_COMMANDS.as_slice() } else { Self::COMMANDS }
    }

    fn execute(
        &mut self,
        now: Instant,
        session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done {
        // Rebuild before answering: the driver publishes the tables before it sends the response.
        let done = self.command(now, session, request, reply);
        self.refresh();
        done
    }

    fn can_be(&self, pid: Pid) -> bool {
        // A statically configured switch keeps its PID, because other switches already have routes to it.
        let own = self.common.ownership.pid();
        let keeps = self.config.static_init.is_none() || own.is_none() || pid == own;
        keeps && !pid.is_none() && !self.routing.is_of_port(pid)
    }

    fn owned(&mut self) {
        let ownership = &self.common.ownership;
        let pid = ownership.pid();
        // A fabric manager with a connection to this switch is reached here: its PID routes to the switch itself.
        let fm = ownership.primary().filter(|_| ownership.is_local()).map(|fm| fm.pid);
        self.routing.set_own(pid, fm);
    }

    fn tick(&mut self, now: Instant) {
        // Time limits first: work that they end must show in the tables of the same tick.
        self.common.tick(now);
        self.finish_work(now);
        self.refresh();
    }
}
