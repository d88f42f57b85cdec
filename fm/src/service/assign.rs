//! PID assignment by command: a target gets another PID, and routes to it.
//!
//! The assignment is refused while something uses the old PID.
//!
//! Source: docs/fm.md; docs/spec/wire-formats.md §4.5 (5703h, 5704h).

use std::collections::BTreeSet;

use weft_base::causes::with_causes;
use weft_parsers::fabric::Pid;
use weft_rpc::Refused;

use super::{Fm, refuse};
use crate::cci::send::send;
use crate::components::bind::Remote;
use crate::model::graph::{PortRef, SwitchId};
use crate::model::inventory::Target;
use crate::plan::{self, Assignment};

impl Fm {
    /// Assigns a PID to a target, the first free one if none is given, and sends the routes.
    pub(super) fn assign(
        &mut self,
        at: SwitchId,
        target: u16,
        instance: u8,
        pid: Option<Pid>,
    ) -> Result<String, Refused> {
        let running = self.up()?;
        let mut inventory = running.inventory.clone();
        let taken: BTreeSet<Pid> = inventory.pids().map(|(pid, _)| pid).collect();
        let free = || (0..).map_while(Pid::assignable).find(|pid| !taken.contains(pid));
        let Some(pid) = pid.or_else(free) else { return Err(Refused::because("no PID is left")) };
        if taken.contains(&pid) {
            return Err(Refused::because(format!("PID {pid} is assigned already")));
        }
        let place = usize::from(at.0);
        let targets = inventory.switches.get_mut(place).map(|switch| switch.targets.iter_mut());
        let is_it = |t: &Target| (t.id, t.instance) == (target, instance);
        let Some(found) = targets.and_then(|mut all| all.find(|t| is_it(t))) else {
            return Err(Refused::bad_request(format!(
                "{at} has no target {target}, instance {instance}"
            )));
        };
        let old = std::mem::replace(&mut found.pid, pid);
        let here = PortRef::new(at, found.port);
        // The edge lets the GFD send by this PID only, which the component itself has.
        if inventory.is_gfds(here, old) {
            return Err(Refused::because(format!("PID {old} is that of the GFD at {here}")));
        }
        if let Some(user) = self.user_of(old) {
            return Err(Refused::because(format!("{user} uses PID {old}")));
        }
        let running = self.up()?;
        let plan = plan::make(&inventory, &running.options, Some(&running.plan)).map_err(refuse)?;
        let instead_of = (!old.is_none()).then_some(old);
        let assignment = Assignment { at, target, instance, pid, instead_of };
        let (drain, fabric) = (self.session.drain, &mut self.session.cci);
        let Some(running) = &mut self.running else { return Err(Refused::unavailable("not up")) };
        let standing = &mut running.standing;
        let sent = send(fabric, &inventory, &[assignment], &plan, standing, drain);
        self.record_withdrawn();
        let sent = match sent {
            Ok(sent) => sent,
            Err(error) => {
                let why = with_causes(&error);
                // Part of it may be in force: the switches are read again rather than guessed at.
                let left = self.rediscover().map_err(refuse);
                self.show();
                left?;
                return Err(Refused::because(format!("{why}; the fabric was read again")));
            }
        };
        if let Some(running) = &mut self.running {
            (running.inventory, running.plan) = (inventory, plan);
        }
        Ok(format!("target {target} of {at} has PID {pid}; {} entries were sent", sent.entries))
    }

    /// The user of a PID, which keeps it from being changed.
    fn user_of(&self, pid: Pid) -> Option<String> {
        let running = self.running.as_ref().filter(|_| !pid.is_none())?;
        let ends = |link: &&Remote| link.host.pid == pid || link.below.pid == pid;
        if let Some(link) = running.bindings.remote.iter().find(ends) {
            return Some(format!("the virtual link at {}", link.host.bridge));
        }
        self.grants.user_of_pid(pid)
    }
}
