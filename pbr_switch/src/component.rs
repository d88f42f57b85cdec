//! A PBR switch as a component: its commands, who may send them, and what follows when it gets an owner.
//!
//! [`Component`] for [`Switch`]; tables are made anew after each command and each tick.
//!
//! Units: PIDs of 12 bits; time as `Instant`.
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
        if self.config.static_init.is_some() { STATIC_COMMANDS.as_slice() } else { Self::COMMANDS }
    }

    fn execute(
        &mut self,
        now: Instant,
        session: Session,
        request: &Request<'_>,
        reply: &mut Reply,
    ) -> Done {
        let done = self.command(now, session, request, reply);
        self.refresh();
        done
    }

    fn can_be(&self, pid: Pid) -> bool {
        let other = |&(taken, to): &(Pid, Assigned)| taken == pid && to != Assigned::Switch;
        // One that is set up from the start keeps its PID, by which others have routes to it.
        let own = self.common.ownership.pid();
        let keeps = self.config.static_init.is_none() || own.is_none() || pid == own;
        keeps && !pid.is_none() && !self.tables.assigned().any(|it| other(&it))
    }

    fn owned(&mut self) {
        let ownership = &self.common.ownership;
        let pid = ownership.pid();
        // A fabric manager that has a connection to this switch is reached here.
        let fm = ownership.primary().filter(|_| ownership.is_local()).map(|fm| fm.pid);
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
            // One whose PID is a port's gets no answers from further out until it takes another.
            let _ = self.tables.assign(fm, Assigned::Switch);
        }
        self.changed();
    }

    fn tick(&mut self, now: Instant) {
        self.common.tick(now);
        self.finish_work(now);
        self.refresh();
    }
}
