//! GIM by request: memory of hosts and devices for others.
//!
//! Names are resolved to a [`Grant`] for [`crate::components::gim::Gim`]; rows show the present grants.
//!
//! Source: CXL 3.1 section 7.7.3; docs/fm.md.

use weft_rpc::Refused;

use super::costs::at_edges;
use super::memory::MemoryRequests;
use super::request::{GimRow, NamedPid};
use super::{refuse, with_causes};
use crate::components::edge::EdgeContext;
use crate::components::gim::{Addressing, Gim, Grant, own_domain};
use crate::components::grants::Grants;
use crate::components::memory::map::Beside;
use crate::components::memory::{Host, Memory};
use crate::components::window::WindowError;
use crate::state::desired::DesiredGim;
use crate::state::names::Names;

/// Rows of all GIM.
pub(super) fn rows(names: &Names<'_>, gim: &Gim) -> Vec<GimRow> {
    let who = |edge: &Host| NamedPid::of(names, *edge);
    let row = |grant: &Grant| GimRow {
        name: grant.name.clone(),
        of: who(&grant.owner),
        from: grant.members.iter().map(who).collect(),
        prefix: grant.policy.by_prefix,
        hpa: grant.hpa,
        size: grant.len,
    };
    gim.grants.iter().map(row).collect()
}

impl MemoryRequests<'_> {
    fn as_grant(&self, wanted: &DesiredGim) -> Result<Grant, String> {
        let names = Names::new(self.desired, self.running);
        let edge = |text: &String| names.host(text);
        let members = wanted.from.iter().map(edge).collect::<Result<Vec<_>, _>>()?;
        let (name, owner) = (wanted.name.clone(), edge(&wanted.of)?);
        // A virtual link makes two virtual switches one domain, whose bridges lead to the memory already.
        let own = names.virtual_hierarchy(owner);
        let same = |one: &&Host| own.is_some() && names.virtual_hierarchy(**one) == own;
        if let Some(one) = members.iter().find(same) {
            return Err(own_domain(one.pid).to_string());
        }
        let DesiredGim { prefix: by_prefix, hpa, size: len, .. } = *wanted;
        Ok(Grant { name, owner, members, hpa, len, policy: Addressing { by_prefix } })
    }

    /// Changes GIM with the means to reach the edges.
    fn change_gim(
        &mut self,
        f: impl FnOnce(&mut Gim, &mut EdgeContext<'_>, &Memory) -> Result<(), WindowError>,
    ) -> Result<(), WindowError> {
        let Grants { gim, memory, .. } = &mut *self.grants;
        at_edges(self.cci, self.running, self.desired.figures(), |means| f(gim, means, memory))
    }

    /// Ranges of requesters beside memory of GFDs and GIM, in their order.
    fn beside(&self, from: &[Host]) -> Vec<Beside> {
        let names = Names::new(self.desired, self.running);
        let of = |one: &Host| Beside { others: self.grants.p2p.ranges(*one), own: names.own(*one) };
        from.iter().map(of).collect()
    }

    pub fn show_gim(&mut self, wanted: &DesiredGim) -> Result<String, Refused> {
        self.is_free(&wanted.name)?;
        let grant = self.as_grant(wanted).map_err(Refused::bad_request)?;
        let count = grant.members.len();
        let beside = self.beside(&grant.members);
        self.change_gim(|gim, means, memory| gim.show(means, memory, &beside, grant))
            .map_err(refuse)?;
        Ok(format!("memory of {} is shown to {count} as {:?}", wanted.of, wanted.name))
    }

    pub fn hide_gim(&mut self, name: &str) -> Result<String, Refused> {
        self.change_gim(|gim, means, _| gim.release(means, name)).map_err(refuse)?;
        Ok(format!("GIM {name:?} is released"))
    }

    /// Revokes GIM; a second line tells if the edge still passes requests.
    pub fn revoke_gim(&mut self, name: &str, from: &str) -> Result<Vec<String>, Refused> {
        let edge = self.names(|names| names.host(from))?;
        self.change_gim(|gim, means, _| gim.revoke(means, name, edge)).map_err(refuse)?;
        let mut said = vec![format!("GIM {name:?} is revoked from {from}")];
        // VTV belongs to a virtual switch, not to one of its ports.
        let of = self.grants.gim.find(name).map(|grant| grant.owner.pid);
        let still = of.and_then(|of| self.grants.gim.still_allows(of, edge));
        if let Some(why) = still {
            said.push(format!(
                "its edge still lets its requests through, as {why}: the owner of the memory must refuse them"
            ));
        }
        Ok(said)
    }

    pub fn apply_desired_gim(&mut self, wanted: &DesiredGim) -> Result<(), String> {
        let grant = self.as_grant(wanted)?;
        let Some(own) = self.grants.gim.find(&wanted.name) else {
            let beside = self.beside(&grant.members);
            self.change_gim(|gim, means, memory| gim.show(means, memory, &beside, grant))
                .map_err(|error| with_causes(&error))?;
            self.board.record_event(format!("GIM {:?} shown", wanted.name));
            return Ok(());
        };
        own.check_wanted(&grant)
    }
}
