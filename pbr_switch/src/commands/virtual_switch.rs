//! Get Virtual CXL Switch Info (5200h) and Generate AER Event (5203h).
//!
//! Codes are those of CXL 3.1 table 7-28.
//!
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 section 7.6.7.2.

use weft_cxl::cci::{Done, Reply};
use weft_cxl::pci::Uncorrectable;
use weft_cxl::pci::bridge::BridgeEffects;
use weft_dataplane::types::PortId;
use weft_parsers::cci::pbr::Vppb;
use weft_parsers::cci::vcs::{GenerateAer, GetVcsInfo, VcsInfo, VcsInfos, VppbState};
use weft_parsers::cci::{List, Response, ReturnCode};

use super::{DONE, NONE_SUCH};
use crate::switch::Switch;
use crate::vcs::Bound;

/// State of a VCS that is enabled.
const ENABLED: u8 = 1;
/// `FFh` in a port or LD field: there is no such port or LD.
const NOBODY: u8 = 255;

impl Switch {
    pub(super) fn vcs_info(&self, request: &GetVcsInfo<'_>, reply: &mut Reply) -> Done {
        let mut all: Vec<(u8, Vec<VppbState>)> = Vec::new();
        for vcs in request.vcss.iter() {
            let state = self.vcs_of(vcs)?;
            let vppbs = (0..=u8::MAX).zip(&state.vppbs);
            let wanted = vppbs.skip(request.start.into()).take(request.limit.into());
            all.push((
                vcs,
                wanted.map(|(vppb, it)| self.vppb_state(Vppb { vcs, vppb }, it.bound)).collect(),
            ));
        }
        let usp = |vcs| self.vcs(vcs).and_then(|it| it.usp).map_or(NOBODY, PortId::get);
        let infos: Vec<VcsInfo<'_>> = all
            .iter()
            .map(|(vcs, vppbs)| VcsInfo {
                vcs: *vcs,
                state: ENABLED,
                usp: usp(*vcs),
                vppbs: List::of(vppbs),
            })
            .collect();
        reply.send(&Response::GetVcsInfo(VcsInfos::of(&infos)))
    }

    fn vppb_state(&self, at: Vppb, bound: Bound) -> VppbState {
        // Binding states of table 7-28: 0 unbound, 1 in progress, 2 port, 3 LD, 4 PID.
        let (status, port, ld) = match bound {
            Bound::No => (0, NOBODY, NOBODY),
            Bound::Port(port) => (2, port.get(), NOBODY),
            Bound::Ld(port, ld) => (3, port.get(), u8::try_from(ld).unwrap_or(NOBODY)),
            Bound::Pid(_) => (4, NOBODY, NOBODY),
        };
        let busy = self.work.as_ref().is_some_and(|work| work.at() == at);
        VppbState { status: if busy { 1 } else { status }, port, ld }
    }

    pub(super) fn generate_aer(&mut self, request: &GenerateAer) -> Done {
        // Request and AER register number uncorrectable errors alike; an unknown bit is refused.
        let error = Uncorrectable::ALL.into_iter().find(|it| it.bit() == request.error);
        let error = error.ok_or(ReturnCode::InvalidInput)?;
        let mut header = [0; 4];
        // The AER header log holds the TLP in its order on the wire.
        for (word, bytes) in header.iter_mut().zip(request.tlp.as_chunks::<4>().0) {
            *word = u32::from_be_bytes(*bytes);
        }
        if request.vppb == 0 && self.vcs_of(request.vcs)?.gae_is_alone() {
            return Err(ReturnCode::InvalidInput); // there is no bridge to tell it
        }
        let at = Vppb { vcs: request.vcs, vppb: request.vppb };
        let message = self.vppb_mut(at).ok_or(NONE_SUCH)?.bridge.report(error, true, header);
        self.note(at, BridgeEffects { message, ..BridgeEffects::default() });
        DONE
    }
}
