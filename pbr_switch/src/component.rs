//! A PBR switch as a CCI component: its commands, their senders, and the consequences of a change of owner.
//!
//! [`Component`] for [`Switch`]. The tables are rebuilt after each command and each tick.
//!
//! Source: docs/spec/cxl-fabric.md "Port roles"; docs/spec/wire-formats.md §4.2 to §4.6.

use weft_cxl::cci::{Command, Common, Component, Done, Reply, Session};
use weft_dataplane::pbr::tables::Assigned;
use weft_dataplane::time::Instant;
use weft_parsers::cci::Request;
use weft_parsers::fabric::Pid;

use super::commands::STATIC_COMMANDS;
use super::switch::Switch;

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
        let other = |&(taken, to): &(Pid, Assigned)| taken == pid && to != Assigned::Switch;
        // A statically configured switch keeps its PID, because other switches already have routes to it.
        let own = self.common.ownership.pid();
        let keeps = self.config.static_init.is_none() || own.is_none() || pid == own;
        keeps && !pid.is_none() && !self.tables.assigned().any(|it| other(&it))
    }

    fn owned(&mut self) {
        let ownership = &self.common.ownership;
        let pid = ownership.pid();
        // A fabric manager with a connection to this switch is reached here: its PID routes to the switch itself.
        let fm = ownership.primary().filter(|_| ownership.is_local()).map(|fm| fm.pid);
        // The PIDs that the switch and its manager had before. Collected first, as the loop changes the table.
        let own: Vec<Pid> = self
            .tables
            .assigned()
            .filter(|&(taken, to)| to == Assigned::Switch && taken != pid && Some(taken) != fm)
            .map(|(taken, _)| taken)
            .collect();
        for other in own {
            let cleared = self.tables.clear(other);
            debug_assert!(cleared.is_ok(), "it was assigned");
        }
        if !pid.is_none() {
            let assigned = self.tables.assign(pid, Assigned::Switch);
            debug_assert!(assigned.is_ok(), "`can_be` has said so");
        }
        if let Some(fm) = fm {
            // If a port already has the manager's PID, its answers from further out are lost until it claims with
            // another one.
            let _ = self.tables.assign(fm, Assigned::Switch);
        }
        self.changed();
    }

    fn tick(&mut self, now: Instant) {
        // Time limits first: work that they end must show in the tables of the same tick.
        self.common.tick(now);
        self.finish_work(now);
        self.refresh();
    }
}
