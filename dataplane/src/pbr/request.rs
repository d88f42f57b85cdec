//! What of a TLP decides where it goes.
//!
//! Shape: [`Tlp`] → [`Kind`], [`Route`] and, of both, [`Request`].
//! Units: none.
//! Source: wire-formats.md 3.1, 3.4 to 3.8; seed 002 section 5.2.

use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::{self, AddressSpace, PbrVdm, Tlp, VdmOp, VendPrefixL0};

use super::ingress::{Kind, Request};
use super::vcs::{Implicit, Route};

impl Kind {
    /// Of a TLP.
    #[inline]
    #[must_use]
    pub fn of(tlp: &Tlp<'_>) -> Self {
        let kind = tlp.kind();
        if kind.is_uio_request() {
            Self::UioRequest
        } else if kind.is_uio_completion() {
            Self::UioCompletion
        } else if kind.is_memory() {
            Self::MemoryRequest
        } else if tlp.is_completion() {
            Self::Completion
        } else if is_for_gae(tlp) {
            Self::Gam
        } else {
            Self::Other
        }
    }
}

/// A GFD's notification, or its part in a command that a GAE has forwarded.
fn is_for_gae(tlp: &Tlp<'_>) -> bool {
    use VdmOp::{Gam, UcPull, UcRsp, UcRspFail, UcRspLast};
    tlp.message_code() == Some(tlp::view::CODE_VDM_TYPE0)
        && PbrVdm::parse(tlp)
            .is_ok_and(|vdm| matches!(vdm.op, Gam | UcPull | UcRsp | UcRspLast | UcRspFail))
}

impl Route {
    /// Of a TLP; `None` for a NOP, which goes nowhere.
    #[inline]
    #[must_use]
    pub fn of(tlp: &Tlp<'_>) -> Option<Self> {
        let to =
            |bdf: Bdf, type1: bool| if type1 { Self::Config1(bdf) } else { Self::Config0(bdf) };
        Some(match (tlp.kind(), tlp.route()) {
            (tlp::Kind::Nop, _) => return None,
            (tlp::Kind::CfgRead { type1 } | tlp::Kind::CfgWrite { type1 }, tlp::Route::Id(bdf)) => {
                to(bdf, type1)
            }
            (_, tlp::Route::Address { space: AddressSpace::Io, addr, .. }) => Self::Io(addr.0),
            (_, tlp::Route::Address { addr, .. }) => Self::Memory(addr),
            (_, tlp::Route::Id(bdf)) => Self::Id(bdf),
            (_, tlp::Route::Implicit(how)) => Self::Implicit(match how {
                tlp::Implicit::ToRoot => Implicit::ToRoot,
                tlp::Implicit::Broadcast => Implicit::Broadcast,
                tlp::Implicit::Local => Implicit::Local,
                tlp::Implicit::Gather => Implicit::Gather,
            }),
        })
    }
}

impl Request {
    /// Of a TLP, at a port whose device has several logical devices or not; `None` for a NOP.
    #[inline]
    #[must_use]
    pub fn of(tlp: &Tlp<'_>, has_lds: bool) -> Option<Self> {
        let vend = tlp.vend_prefix();
        Some(Self {
            kind: Kind::of(tlp),
            route: Route::of(tlp)?,
            prefix: vend.filter(|_| !has_lds).map(VendPrefixL0::pid),
            segment: tlp.dest_segment(),
            ld: vend.filter(|_| has_lds).map(VendPrefixL0::ld_id),
        })
    }
}
