//! Requests that give and take memory, and bits of access vectors.
//!
//! [`MemoryRequests`] resolves names and checks addresses of all kinds of memory. Memory of GFDs is here, GIM in
//! [`super::gim`], P2P in [`super::p2p`], and single bits in [`super::access`].
//!
//! Source: docs/spec/cxl-fabric.md "Memory"; docs/fm.md.

use weft_parsers::cci::Uuid;
use weft_parsers::fabric::{Hpa, Pid};
use weft_rpc::Refused;

use super::board::StatusBoard;
use super::costs::PathCosts;
use super::partitions::Partitions;
use super::request::Request;
use super::{refuse, with_causes};
use crate::cci::CciSession;
use crate::components::edge::AccessBit;
use crate::components::grants::Grants;
use crate::components::memory::{self, Host, MemoryError, OtherRanges};
use crate::discover::change::Running;
use crate::model::text::{is_word, tag};
use crate::state::desired::{DesiredMemory, DesiredState};
use crate::state::names::Names;

/// Requests about memory of a fabric that is up.
pub(super) struct MemoryRequests<'a> {
    pub cci: &'a mut CciSession,
    pub desired: &'a DesiredState,
    pub running: &'a mut Running,
    pub grants: &'a mut Grants,
    pub costs: &'a mut PathCosts,
    pub partitions: &'a Partitions,
    pub board: &'a StatusBoard,
    /// Present problems, for the status.
    pub errors: &'a mut Vec<String>,
}

impl MemoryRequests<'_> {
    pub fn names<T>(&self, of: impl FnOnce(Names<'_>) -> Result<T, String>) -> Result<T, Refused> {
        of(Names::new(self.desired, self.running)).map_err(Refused::bad_request)
    }

    /// Gives or takes memory of either kind; returns lines for the answer.
    pub fn change(&mut self, request: &Request) -> Result<Vec<String>, Refused> {
        // Release, revoke and grant are requests of P2P, GIM or memory by the kind of the name they have.
        if self.is_p2p(request) {
            return self.p2p_request(request);
        }
        Ok(match request {
            Request::Share(wanted) => {
                self.is_free(&wanted.name)?;
                let request = self.resolve(wanted).map_err(Refused::bad_request)?;
                // Checked and resolved completely before the first command, so a refusal leaves nothing behind.
                self.share(&request).map_err(refuse)?;
                let (name, hosts) = (&wanted.name, wanted.hosts.len());
                vec![
                    format!("memory {name:?} is granted to {hosts} hosts"),
                    "each of them has to map it: weft fabric map FILE does so for hosts of weft"
                        .to_owned(),
                ]
            }
            Request::ShowGim(wanted) => vec![self.show_gim(wanted)?],
            Request::Release { name } if self.grants.gim.find(name).is_some() => {
                vec![self.hide_gim(name)?]
            }
            Request::Revoke { name, host } if self.grants.gim.find(name).is_some() => {
                self.revoke_gim(name, host)?
            }
            Request::Release { name } => {
                let tag = self.tag_of(name)?;
                self.grants
                    .memory
                    .release(self.cci, &self.running.inventory, &tag)
                    .map_err(refuse)?;
                vec![format!("memory {name:?} is released")]
            }
            Request::Revoke { name, host } => {
                let (tag, host) = (self.tag_of(name)?, self.names(|names| names.host(host))?);
                self.grants
                    .memory
                    .revoke(self.cci, &self.running.inventory, &tag, host)
                    .map_err(refuse)?;
                vec![format!("host {} does not have memory {name:?} any more", host.pid)]
            }
            Request::Grant { name, .. } if self.grants.gim.find(name).is_some() => {
                return Err(given_at_once(name));
            }
            Request::Grant { name, host } => {
                let (tag, host) = (self.tag_of(name)?, self.names(|names| names.host(host))?);
                self.grant(&tag, host).map_err(refuse)?;
                vec![format!("host {} has memory {name:?}", host.pid)]
            }
            _ => return Err(Refused::bad_request("the request is a query: it changes nothing")),
        })
    }

    /// Checks that a name is valid, and that no memory, GIM or P2P has it.
    pub fn is_free(&self, name: &str) -> Result<(), Refused> {
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

    /// The tag of existing memory.
    fn tag_of(&self, name: &str) -> Result<Uuid, Refused> {
        let found = self.grants.tag_of(name);
        found.ok_or_else(|| Refused::because(format!("there is no memory {name:?}")))
    }

    /// Gives memory of the wanted state, or says how present memory of the name differs from it.
    pub fn apply_desired_memory(&mut self, wanted: &DesiredMemory) -> Result<(), String> {
        let request = self.resolve(wanted)?;
        let Some(share) = self.grants.memory.find(&request.tag) else {
            self.share(&request).map_err(|error| with_causes(&error))?;
            self.board.record_event(format!("memory {:?} given", wanted.name));
            return Ok(());
        };
        let gfds: Vec<Pid> = share.parts.iter().map(|part| part.gfd).collect();
        let named = !wanted.gfds.is_empty();
        let other_gfds =
            if named { gfds != request.gfds } else { gfds.len() != request.gfds.len() };
        // A share in use is never changed to fit the file: hosts would lose its content.
        if share.len != request.len
            || other_gfds
            || share.hosts.iter().any(|h| !request.hosts.contains(h))
        {
            return Err("it exists, but differs from the wanted state: release it first".to_owned());
        }
        if let Some(host) = request.hosts.iter().find(|host| !share.hosts.contains(host)) {
            let pid = host.pid;
            return Err(format!("host {pid} does not have it: grant it, or release it first"));
        }
        if let Some(media) = wanted.media
            && let Some(other) =
                share.parts.iter().find(|one| self.partitions.media_of(one) != Some(media))
        {
            let has = self
                .partitions
                .media_of(other)
                .map_or_else(|| "another kind".to_owned(), |m| m.to_string());
            let gfd = other.gfd;
            return Err(format!(
                "its part in GFD {gfd} is of {has}, not of {media}: release it first"
            ));
        }
        if share.hpa != request.hpa.0 {
            return Err(format!("it is at {:#x}: release it first", share.hpa));
        }
        Ok(())
    }

    /// Resolves a wanted share in the fabric.
    fn resolve(&self, wanted: &DesiredMemory) -> Result<memory::Request, String> {
        let running = &*self.running;
        let names = Names::new(self.desired, running);
        let hosts =
            wanted.hosts.iter().map(|host| names.host(host)).collect::<Result<Vec<_>, _>>()?;
        let gfds = wanted.gfds.iter().map(|gfd| names.gfd(gfd)).collect::<Result<Vec<_>, _>>()?;
        let gfds = match wanted.ways {
            Some(ways) if gfds.is_empty() => {
                let all = running.inventory.gfds.iter().map(|gfd| gfd.pid);
                let some: Vec<Pid> = all.take(usize::from(ways)).collect();
                if some.len() < usize::from(ways) {
                    return Err(format!("{ways} ways need as many GFDs; there are {}", some.len()));
                }
                some
            }
            Some(ways) if gfds.len() != usize::from(ways) => {
                return Err(format!("{} GFDs are named for {ways} ways", gfds.len()));
            }
            None if gfds.is_empty() => {
                return Err("expected GFDs, one for each way (gfds), or how many (ways)".to_owned());
            }
            _ => gfds,
        };
        let (tag, hpa) = (tag(&wanted.name)?, Hpa(wanted.hpa));
        let (len, granularity) = (wanted.size, wanted.granularity);
        let (media, notify) = (wanted.media, wanted.notify);
        Ok(memory::Request { tag, hosts, gfds, len, granularity, hpa, media, notify })
    }

    /// Gives memory, and tells the hosts' edges the costs of the paths.
    fn share(&mut self, request: &memory::Request) -> Result<(), MemoryError> {
        let running = &*self.running;
        let names = Names::new(self.desired, running);
        let Grants { memory, gim, p2p, .. } = &mut *self.grants;
        let more = |host| [gim.ranges(host), p2p.ranges(host)].concat();
        let beside = OtherRanges { more: &more, own: &|host| names.own(host) };
        memory.share(self.cci, &running.inventory, beside, request)?;
        for host in &request.hosts {
            self.update_path_costs(*host, &request.gfds);
        }
        Ok(())
    }

    /// Gives an existing share to one more host, and tells its edge the costs of the paths.
    fn grant(&mut self, tag: &Uuid, host: Host) -> Result<(), MemoryError> {
        let running = &*self.running;
        let names = Names::new(self.desired, running);
        let Grants { memory, gim, p2p, .. } = &mut *self.grants;
        let more = |host| [gim.ranges(host), p2p.ranges(host)].concat();
        let beside = OtherRanges { more: &more, own: &|host| names.own(host) };
        memory.grant(self.cci, &running.inventory, beside, tag, host)?;
        let parts =
            self.grants.memory.find(tag).map(|share| share.parts.iter().map(|part| part.gfd));
        let gfds: Vec<Pid> = parts.into_iter().flatten().collect();
        self.update_path_costs(host, &gfds);
        Ok(())
    }

    fn update_path_costs(&mut self, host: Host, gfds: &[Pid]) {
        for &gfd in gfds {
            let bit = AccessBit::Gmv(host.switch, host.vcs, gfd);
            let told = self.costs.tell(self.cci, self.running, self.desired.figures(), bit);
            if let Err(error) = told {
                let (pid, why) = (host.pid, error.with_causes());
                self.errors
                    .push(format!("{pid} was not told the latency and bandwidth to {gfd}: {why}"));
            }
        }
    }
}

fn given_at_once(gim: &str) -> Refused {
    Refused::because(format!(
        "GIM is given to all at once: weft fm gim release {gim}, and gim add with one --from more"
    ))
}
