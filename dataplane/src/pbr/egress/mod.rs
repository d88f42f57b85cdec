//! Decision about a TLP that leaves the fabric: at an edge port, or at the vPPB that ends a virtual link.
//!
//! [`leave`] decides at an edge port; [`Bindings`] finds the virtual switch and side for (SPID, DPID).
//!
//! Source: docs/spec/cxl-fabric.md "Egress at an edge"; CXL 3.1 sections 7.7.2.7, 7.7.3.3, 7.7.6.4;
//! docs/spec/wire-formats.md §3.7.

use std::sync::Arc;

use weft_parsers::fabric::{Hpa, Pid};

use super::edge::{EdgePort, Role};
use super::error::TableError;
use super::ingress::Kind;
use super::refusal::Refusal;
use super::segments::Found;
use super::vcs::{Binding, Function, Side, Vcs};

/// The fields of a TLP with a PTH that decide how it leaves at an edge port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaving {
    /// Kind of the TLP.
    pub kind: Kind,
    /// SPID in its PTH.
    pub spid: Pid,
    /// PIF bit of its PTH.
    pub pif: bool,
}

/// How a TLP leaves at an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Out {
    /// Without its PTH.
    Strip {
        /// PID of a `VendPrefixL0` to put in front; `None` for no prefix.
        prefix: Option<Pid>,
    },
    /// With its PTH, DSAR set: to a GFD.
    Keep,
    /// To the GAE of the host behind the port, not to the link.
    Internal(Function),
    /// Refused, and answered with UR.
    UnsupportedRequest(Refusal),
    /// Dropped without an answer.
    Drop(Refusal),
}

/// Decides how a TLP that came from edge to edge leaves at `port`.
#[inline]
#[must_use]
pub fn leave(port: &EdgePort, leaving: &Leaving) -> Out {
    if port.resetting {
        // The device drops everything during a reset, so without an answer from here a requester would time out.
        return match leaving.kind {
            Kind::UioRequest | Kind::MemoryRequest | Kind::CxlMemRequest => {
                Out::UnsupportedRequest(Refusal::Unbound)
            }
            _ => Out::Drop(Refusal::Unbound),
        };
    }
    match (port.role, leaving.kind) {
        (Role::Gfd | Role::Dsp, Kind::CxlMemResponse | Kind::CxlMemStatus | Kind::CxlMemSnoop)
        | (Role::Usp | Role::Dsp, Kind::CxlMemSnoopAnswer) => Out::Drop(Refusal::WrongRole),
        // Tags can be guessed: a device that the host may not ask could answer the host's loads in place of another
        // one.
        (Role::Usp, Kind::CxlMemResponse | Kind::CxlMemStatus)
            if !may_answer(port, leaving.spid) =>
        {
            Out::Drop(Refusal::NotInGmv)
        }
        (Role::Usp, Kind::CxlMemRequest) => Out::UnsupportedRequest(Refusal::WrongRole),
        (Role::Gfd, _) => Out::Keep,
        (Role::Usp, Kind::Gam) => Out::Internal(Function::Gae),
        (Role::Dsp, Kind::Gam) => Out::Drop(Refusal::GamToPeer),
        (_, Kind::UioRequest) if leaving.pif => {
            if port.prefixes.egress_request {
                Out::Strip { prefix: Some(leaving.spid) }
            } else {
                Out::UnsupportedRequest(Refusal::EgressPrefixNotEnabled)
            }
        }
        _ => Out::Strip { prefix: None },
    }
}

/// Whether a device may answer the host behind `port` by CXL.mem: only a GFD or memory device that the host may ask.
#[inline]
#[must_use]
pub fn may_answer(port: &EdgePort, device: Pid) -> bool {
    port.access().gmv.contains(device) || port.access().lav.contains(device)
}

/// Whether a GFD may snoop `line` of the host behind `port`: only if the host reaches that GFD by that address.
///
/// # Errors
/// [`Refusal::NotInGmv`] or [`Refusal::ForeignSnoop`].
#[inline]
pub fn may_snoop(port: &EdgePort, gfd: Pid, line: Hpa) -> Result<(), Refusal> {
    if !port.access().gmv.contains(gfd) {
        return Err(Refusal::NotInGmv);
    }
    match port.fast().lookup(line) {
        Found::Hit { flag: false, dpid } if dpid == gfd => Ok(()),
        _ => Err(Refusal::ForeignSnoop),
    }
}

/// One end of a virtual link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    /// DPID and SPID of TLPs that come in, 12 bits each.
    key: u32,
    vcs: u8,
    /// 0 for the vUSP, n + 1 for vDSP n.
    place: u16,
}

/// PID pairs of each vDSP and vUSP of a switch. They own no PID, so SPID and DPID must both match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// Sorted by key.
    ends: Arc<[End]>,
}

const fn key(spid: Pid, dpid: Pid) -> u32 {
    (dpid.bits() as u32) << 12 | spid.bits() as u32
}

impl Bindings {
    /// Collects the virtual links that end in `switches`.
    ///
    /// # Errors
    /// [`TableError::BoundTwice`]: TLPs with one pair of PIDs can end at one vPPB only.
    pub fn of<'a>(switches: impl Iterator<Item = (u8, &'a Vcs)>) -> Result<Self, TableError> {
        let mut ends = Vec::new();
        for (vcs, switch) in switches {
            let all = core::iter::once(switch.upstream()).chain(switch.below());
            for (place, vppb) in (0..).zip(all) {
                if let Binding::Fabric { spid: ours, dpid: theirs } = vppb.binding {
                    // A binding has the PIDs of TLPs that leave; those that come in have them exchanged.
                    ends.push((End { key: key(theirs, ours), vcs, place }, theirs, ours));
                }
            }
        }
        ends.sort_unstable();
        for pair in ends.windows(2) {
            if let &[(a, spid, dpid), (b, _, _)] = pair
                && a.key == b.key
            {
                return Err(TableError::BoundTwice { spid, dpid });
            }
        }
        Ok(Self { ends: ends.into_iter().map(|(end, _, _)| end).collect() })
    }

    /// Place at which a TLP with these PIDs and Hie set enters a virtual switch.
    #[inline]
    #[must_use]
    pub fn find(&self, spid: Pid, dpid: Pid) -> Option<(u8, Side)> {
        let key = key(spid, dpid);
        let at = self.ends.binary_search_by_key(&key, |end| end.key).ok()?;
        let &End { vcs, place, .. } = self.ends.get(at)?;
        let below = place.checked_sub(1).and_then(|vppb| u8::try_from(vppb).ok());
        Some((vcs, below.map_or(Side::Above, Side::Below)))
    }
}

#[cfg(test)]
mod tests;
