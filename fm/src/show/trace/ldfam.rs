//! Trace to a memory device: the manager's P2P grant, and the completion's way back by the re-router.
//!
//! Source: CXL 3.1 section 7.7.9; docs/spec/wire-formats.md §4.5 (5712h, 5715h).

use weft_parsers::cci::Request;
use weft_parsers::cci::tables::{EdgeRange, Entries};
use weft_parsers::fabric::{Pid, ReRouterEntry};

use super::{Edge, End, Reached, Stop, Target, TraceWalk, Via, refused};
use crate::cci::{CallError, CciSession, Way};
use crate::components::edge::has_lav;
use crate::state::names::Requester;

/// Number of entries of a re-router.
const ENTRIES: u16 = 256;
/// Entries read by one command.
const ENTRIES_AT_ONCE: u16 = 64;

impl TraceWalk<'_> {
    /// The target by the manager's P2P, where LDST cannot be read.
    pub(super) fn by_direct(&mut self) -> Result<Option<Target>, Stop> {
        let (host, hpa) = (self.host, self.hpa);
        let has = |grant: &&crate::components::p2p::Grant| {
            grant.members.contains(&host) && hpa.0.wrapping_sub(grant.hpa) < grant.len
        };
        let Some(grant) = self.asked.p2p.grants.iter().find(has) else { return Ok(None) };
        let (dpid, name) = (grant.owner.pid, grant.name.clone());
        let text = format!("only the host's GAE reports it; by the FM's P2P {name:?}: DPID {dpid}");
        self.note(host.switch, "LDST", false, text);
        self.may_ldst(dpid)?;
        Ok(Some(Target { dpid, kind: Reached::MemoryDevice }))
    }

    /// Traces a request at the edge of the memory device of `pid`, and its completion.
    pub(super) fn memory_device(&mut self, pid: Pid) -> Result<End, Stop> {
        let found = self.asked.edges.iter().find(|one| one.at.edge.pid == pid).cloned();
        let found = found.map_or_else(|| self.logical_device(pid), Ok)?;
        let Edge { at: device, gae: host, host: owner } = found;
        let (spid, at, vcs) = (self.host.pid, device.edge.switch, device.edge.vcs);
        if self.via == Via::CxlMem {
            let whose = owner.map_or("no host".to_owned(), |host| format!("host {host}"));
            self.note(at, "hierarchy", false, format!("the device is in that of {whose}"));
            if owner != Some(spid) {
                return self.unsupported(at, "a memory device takes CXL.mem of its own host alone");
            }
        }
        let back = has_lav(self.asked.fabric, self.asked.inventory, at, vcs, spid)?;
        let said = if back { "set" } else { "not set" };
        self.say(at, "LAV", format!("VCS {vcs}, PID {spid}, for the completion: {said}"));
        if !back {
            return refused(format!(
                "no completion comes straight back from {at}: LAV there does not have {spid}"
            ));
        }
        if self.via == Via::CxlMem {
            return Ok(End::Memory); // its answers need no re-router: they go to its host
        }
        let gae = host.and_then(|host| self.asked.gaes.remove(&host));
        let Some(gae) = gae else {
            self.note(at, "re-router", false, "only the host's GAE reports it");
            return Ok(End::Memory);
        };
        let entries = re_routers(gae, device)?;
        let Some((index, entry)) = entries.iter().find(|(_, entry)| entry.dpid == spid) else {
            self.say(at, "re-router", format!("no entry leads to {spid}"));
            return refused(format!(
                "no completion comes straight back from {at}: no re-router entry leads to {spid}"
            ));
        };
        let segment = entry.segment.map_or(String::new(), |it| format!("segment {it:#04x}, "));
        let text = format!("[{index}]: {segment}{} goes to {spid}", entry.requester);
        self.say(at, "re-router", text);
        Ok(End::Memory)
    }
}

impl TraceWalk<'_> {
    /// Finds the logical device that the device's edge chooses for a request: that of the loading or storing host, or
    /// the one whose completion goes straight back.
    //= docs/spec/cxl-fabric.md Logical devices
    fn logical_device(&mut self, pid: Pid) -> Result<Edge, Stop> {
        let of_device = |(one, _): &&(Edge, u16)| one.at.edge.pid == pid;
        let all: Vec<(Edge, u16)> = self.asked.lds.iter().filter(of_device).cloned().collect();
        let Some(at) = all.first().map(|(one, _)| one.at.edge.switch) else {
            let text = format!("no device that a host has bound has PID {pid}");
            return Err(Stop::End(End::Unknown(text)));
        };
        let mut unknown = 0;
        let mut found = Vec::new();
        for (one, ld) in &all {
            match self.answers(one)? {
                Some(true) => found.push((one.clone(), *ld)),
                Some(false) => {}
                None => unknown += 1,
            }
        }
        if unknown > 0 && found.is_empty() {
            return self.given_logical_device(pid, &all);
        }
        // Exactly one, and no unknown ones: a second one would make the edge refuse.
        let ([(one, ld)], 0) = (found.as_slice(), unknown) else {
            let known = found.len();
            return match (self.via, known, unknown) {
                (_, 2.., _) => self.unsupported(
                    at,
                    format_args!("several-lds: {known} logical devices of PID {pid} would answer"),
                ),
                (Via::CxlMem, ..) => {
                    self.unsupported(at, "none of the device's logical devices is this host's")
                }
                (Via::Uio, _, 0) => refused(format!(
                    "no completion comes straight back from {at}: no logical device of PID {pid} has LAV and a re-router entry for {}",
                    self.host.pid
                )),
                _ => Err(only_gaes_tell()),
            };
        };
        let (one, text) = (one.clone(), format!("the request is for LD {ld} of PID {pid}"));
        self.note(at, "LD", true, text);
        Ok(one)
    }

    /// The logical device by the manager's records, where the GAEs that know cannot be asked.
    fn given_logical_device(&mut self, pid: Pid, all: &[(Edge, u16)]) -> Result<Edge, Stop> {
        let host = self.host;
        let has = |grant: &&crate::components::p2p::Grant| {
            grant.owner.pid == pid && grant.members.contains(&host)
        };
        let Some(grant) = self.asked.p2p.grants.iter().find(has) else {
            return Err(only_gaes_tell());
        };
        let (ld, name) = (grant.policy.ld, grant.name.clone());
        let one = all.iter().find(|(_, number)| Some(*number) == ld).map(|(one, _)| one.clone());
        let one = one.ok_or_else(only_gaes_tell)?;
        let ld = ld.unwrap_or_default();
        let text = format!(
            "only the hosts' GAEs report it; by the FM's P2P {name:?} the request is for LD {ld} of PID {pid}"
        );
        self.note(one.at.edge.switch, "LD", false, text);
        Ok(one)
    }

    /// Whether a logical device would answer; `None` if the GAE that knows cannot be asked.
    fn answers(&mut self, one: &Edge) -> Result<Option<bool>, Stop> {
        let spid = self.host.pid;
        if self.via == Via::CxlMem {
            return Ok(Some(one.host == Some(spid)));
        }
        let (at, vcs) = (one.at.edge.switch, one.at.edge.vcs);
        // LAV first: the switch itself tells it, so the host's GAE is needed only if the bit is set.
        if !has_lav(self.asked.fabric, self.asked.inventory, at, vcs, spid)? {
            return Ok(Some(false));
        }
        let gae = one.gae.as_ref().and_then(|host| self.asked.gaes.get_mut(host));
        let Some(gae) = gae else { return Ok(None) };
        let entries = re_routers(gae, one.at)?;
        Ok(Some(entries.iter().any(|(_, entry)| entry.dpid == spid)))
    }
}

fn only_gaes_tell() -> Stop {
    Stop::End(End::Unknown("only the hosts' GAEs report which logical device answers".to_owned()))
}

/// Entries in use of the re-router of a memory device's bridge.
fn re_routers(
    gae: &mut CciSession,
    device: Requester,
) -> Result<Vec<(u16, ReRouterEntry)>, CallError> {
    let mut all = Vec::new();
    for start in (0..ENTRIES).step_by(ENTRIES_AT_ONCE.into()) {
        let range = EdgeRange { vppb: device.vppb, count: ENTRIES_AT_ONCE, start };
        let answer = gae.call(Way::Entry, &Request::GetReRouter(range))?;
        let entries = answer.read::<Entries<'_, ReRouterEntry>>()?.entries;
        // The re-router has no valid bit: an entry of all zeros is unused.
        let is_one = |(_, entry): &(u16, ReRouterEntry)| {
            entry.dpid.bits() != 0 || entry.segment.is_some() || entry.requester.bits() != 0
        };
        all.extend((start..).zip(entries.iter()).filter(is_one));
    }
    Ok(all)
}
