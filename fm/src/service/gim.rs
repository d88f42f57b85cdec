//! Requests that give and take memory: of GFDs, and of hosts and devices (GIM).
//!
//! Names are resolved to a [`Grant`] for [`crate::components::gim::Gim`]; rows show the present grants.
//!
//! Source: docs/spec/cxl-fabric.md "Memory"; CXL 3.1 section 7.7.3; docs/fm.md.

use weft_rpc::Refused;

use super::access::at_edges;
use super::request::{GimRow, NamedPid, Request};
use super::{Fm, refuse, with_causes};
use crate::components::edge::EdgeContext;
use crate::components::gim::{Gim, GimError, Grant};
use crate::components::memory::map::Beside;
use crate::components::memory::{Host, Memory};
use crate::model::text::is_word;
use crate::state::desired::{DesiredGim, DesiredMemory};
use crate::state::names::Names;

impl Fm {
    /// Rows of all GIM.
    pub(super) fn shown(&self) -> Vec<GimRow> {
        let Some(running) = &self.running else { return Vec::new() };
        let names = Names::new(&self.desired, running);
        let who = |edge: &Host| NamedPid { name: names.name_of(*edge), pid: edge.pid.bits() };
        let row = |grant: &Grant| GimRow {
            name: grant.name.clone(),
            of: who(&grant.of),
            from: grant.from.iter().map(who).collect(),
            prefix: grant.by_prefix,
            hpa: grant.hpa,
            size: grant.len,
        };
        self.grants.gim.grants.iter().map(row).collect()
    }

    fn as_grant(&self, wanted: &DesiredGim) -> Result<Grant, String> {
        let running = self.running.as_ref().ok_or("the fabric is not up")?;
        let names = Names::new(&self.desired, running);
        let edge = |text: &String| names.host(text);
        let from = wanted.from.iter().map(edge).collect::<Result<Vec<_>, _>>()?;
        let (name, of) = (wanted.name.clone(), edge(&wanted.of)?);
        // A virtual link makes two virtual switches one domain, whose bridges lead to the memory already.
        let own = names.virtual_hierarchy(of);
        let same = |one: &&Host| own.is_some() && names.virtual_hierarchy(**one) == own;
        if let Some(one) = from.iter().find(same) {
            return Err(GimError::own_domain(one.pid).to_string());
        }
        let DesiredGim { prefix: by_prefix, hpa, size: len, .. } = *wanted;
        Ok(Grant { name, of, from, by_prefix, hpa, len })
    }

    /// Gives or takes memory of either kind; returns lines for the answer.
    pub(super) fn change_memory(&mut self, request: &Request) -> Result<Vec<String>, Refused> {
        Ok(match request {
            Request::Share { name, hosts, gfds, ways, size, granularity, hpa, media, notify } => {
                let wanted = DesiredMemory {
                    name: name.clone(),
                    hosts: hosts.clone(),
                    gfds: gfds.clone(),
                    ways: *ways,
                    size: *size,
                    granularity: *granularity,
                    hpa: *hpa,
                    media: *media,
                    notify: *notify,
                };
                self.up()?;
                self.is_free(name)?;
                let request = self.resolve(&wanted).map_err(Refused::bad_request)?;
                // Checked and resolved completely before the first command, so a refusal leaves nothing behind.
                self.share(&request).map_err(refuse)?;
                vec![
                    format!("memory {name:?} is granted to {} hosts", hosts.len()),
                    "each of them has to map it: weft fabric map FILE does so for hosts of weft"
                        .to_owned(),
                ]
            }
            Request::ShowGim { name, of, from, prefix, size, hpa } => {
                let wanted = DesiredGim {
                    name: name.clone(),
                    of: of.clone(),
                    from: from.clone(),
                    prefix: *prefix,
                    size: *size,
                    hpa: *hpa,
                };
                vec![self.show_gim(&wanted)?]
            }
            Request::Release { name } if self.grants.gim.find(name).is_some() => {
                vec![self.hide_gim(name)?]
            }
            Request::Revoke { name, host } if self.grants.gim.find(name).is_some() => {
                self.revoke_gim(name, host)?
            }
            Request::Release { name } => {
                let tag = self.tag_of(name)?;
                let inventory = self.up()?.inventory.clone();
                self.grants.memory.release(&mut self.fabric, &inventory, &tag).map_err(refuse)?;
                vec![format!("memory {name:?} is released")]
            }
            Request::Revoke { name, host } => {
                let (tag, host) = (self.tag_of(name)?, self.names(|names| names.host(host))?);
                let inventory = self.up()?.inventory.clone();
                self.grants
                    .memory
                    .revoke(&mut self.fabric, &inventory, &tag, host)
                    .map_err(refuse)?;
                vec![format!("host {} does not have memory {name:?} any more", host.pid)]
            }
            Request::Grant { name, .. } if self.grants.gim.find(name).is_some() => {
                let text = format!(
                    "GIM is given to all at once: weft fm gim release {name}, and gim add with one --from more"
                );
                return Err(Refused::because(text));
            }
            Request::Grant { name, host } => {
                let (tag, host) = (self.tag_of(name)?, self.names(|names| names.host(host))?);
                self.grant(&tag, host).map_err(refuse)?;
                vec![format!("host {} has memory {name:?}", host.pid)]
            }
            _ => return Err(Refused::bad_request("the request is a query: it changes nothing")),
        })
    }

    /// Changes GIM with the means to reach the edges.
    fn change_gim(
        &mut self,
        f: impl FnOnce(&mut Gim, &mut EdgeContext<'_>, &Memory) -> Result<(), GimError>,
    ) -> Result<(), GimError> {
        let Some(running) = &self.running else {
            return Err(GimError::Misfit("the fabric is not up".to_owned()));
        };
        let (figures, drain) = (self.desired.figures(), self.drain);
        at_edges(&mut self.fabric, running, figures, drain, |means| {
            f(&mut self.grants.gim, means, &self.grants.memory)
        })
    }

    /// Ranges of requesters beside memory of GFDs and GIM, in their order.
    fn beside(&self, from: &[Host]) -> Vec<Beside> {
        let Some(running) = &self.running else { return Vec::new() };
        let names = Names::new(&self.desired, running);
        let of = |one: &Host| Beside { others: self.grants.p2p.ranges(*one), own: names.own(*one) };
        from.iter().map(of).collect()
    }

    /// Checks that a name is valid, and that no memory, GIM or P2P has it.
    pub(super) fn is_free(&self, name: &str) -> Result<(), Refused> {
        if !is_word(name) {
            let why = "expected a name of letters, digits, -, _ and .";
            return Err(Refused::bad_request(format!("{why}, found {name:?}")));
        }
        if self.grants.has_name(name) {
            let why = "expected a name that no other memory, GIM or P2P has";
            return Err(Refused::because(format!("{why}, found {name:?}")));
        }
        Ok(())
    }

    fn show_gim(&mut self, wanted: &DesiredGim) -> Result<String, Refused> {
        self.up()?;
        self.is_free(&wanted.name)?;
        let grant = self.as_grant(wanted).map_err(Refused::bad_request)?;
        let count = grant.from.len();
        let beside = self.beside(&grant.from);
        self.change_gim(|gim, means, memory| gim.show(means, memory, &beside, grant))
            .map_err(refuse)?;
        Ok(format!("memory of {} is shown to {count} as {:?}", wanted.of, wanted.name))
    }

    fn hide_gim(&mut self, name: &str) -> Result<String, Refused> {
        self.change_gim(|gim, means, _| gim.release(means, name)).map_err(refuse)?;
        Ok(format!("GIM {name:?} is released"))
    }

    /// Revokes GIM; a second line tells if the edge still passes requests.
    fn revoke_gim(&mut self, name: &str, from: &str) -> Result<Vec<String>, Refused> {
        let running = self.up()?;
        let names = Names::new(&self.desired, running);
        let edge = names.host(from).map_err(Refused::bad_request)?;
        self.change_gim(|gim, means, _| gim.revoke(means, name, edge)).map_err(refuse)?;
        let mut said = vec![format!("GIM {name:?} is revoked from {from}")];
        // VTV belongs to a virtual switch, not to one of its ports.
        let of = self.grants.gim.find(name).map(|grant| grant.of.pid);
        let still = of.and_then(|of| self.grants.gim.still_allows(of, edge));
        if let Some(why) = still {
            said.push(format!(
                "its edge still lets its requests through, as {why}: the owner of the memory must refuse them"
            ));
        }
        Ok(said)
    }

    pub(super) fn apply_desired_gim(&mut self, wanted: &DesiredGim) -> Result<(), String> {
        let grant = self.as_grant(wanted)?;
        let Some(own) = self.grants.gim.find(&wanted.name) else {
            let beside = self.beside(&grant.from);
            self.change_gim(|gim, means, memory| gim.show(means, memory, &beside, grant))
                .map_err(|error| with_causes(&error))?;
            self.board.record_event(format!("GIM {:?} shown", wanted.name));
            return Ok(());
        };
        // A running grant is never changed to fit the file: its requesters would lose memory in use.
        if let Some(lacks) = grant.from.iter().find(|edge| !own.from.contains(edge)) {
            return Err(format!("PID {} has no access to it: release it first", lacks.pid));
        }
        let same = Grant { from: grant.from.clone(), ..own.clone() } == grant;
        if own.from.len() != grant.from.len() || !same {
            return Err("it exists, but differs from the wanted state: release it first".to_owned());
        }
        Ok(())
    }
}
