//! Extracts the fields of a TLP that decide its route.
//!
//! Source: docs/spec/wire-formats.md §3.1, §3.4 to §3.8; PCIe 6.0 section 2.2.4.

use weft_parsers::fabric::Bdf;
use weft_parsers::tlp::{self, AddressSpace, PbrVdm, Tlp, VdmOp, VendPrefixL0};

use super::ingress::{Kind, Request};
use super::ln::LnTlp;
use super::vcs::{Implicit, Route};

impl Kind {
    /// Classifies a TLP.
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

/// Whether it is a GFD's notification, or its part in a command that a GAE has forwarded.
fn is_for_gae(tlp: &Tlp<'_>) -> bool {
    use VdmOp::{Gam, UcPull, UcRsp, UcRspFail, UcRspLast};
    tlp.message_code() == Some(tlp::view::CODE_VDM_TYPE0)
        && PbrVdm::parse(tlp)
            .is_ok_and(|vdm| matches!(vdm.op, Gam | UcPull | UcRsp | UcRspLast | UcRspFail))
}

impl Route {
    /// Destination that a TLP names; `None` for a NOP, which has none.
    #[inline]
    #[must_use]
    pub fn of(tlp: &Tlp<'_>) -> Option<Self> {
        let to =
            |bdf: Bdf, type1: bool| if type1 { Self::Config1(bdf) } else { Self::Config0(bdf) };
        Some(match (tlp.kind(), tlp.route()) {
            // A NOP fills a link and is not routed (docs/spec/wire-formats.md, 3.7).
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
    /// Extracts the fields at a port whose device has several logical devices or not; `None` for a NOP. `ln`: LN is
    /// set, or was where the TLP entered the fabric.
    #[inline]
    #[must_use]
    pub fn of(tlp: &Tlp<'_>, has_lds: bool, ln: bool) -> Option<Self> {
        let vend = tlp.vend_prefix();
        Some(Self {
            kind: Kind::of(tlp),
            requester: (tlp.is_uio() && !tlp.is_completion()).then(|| tlp.requester()),
            route: Route::of(tlp)?,
            // On a link to logical devices the same prefix carries the LD-ID instead of a PID (docs/spec/wire-formats.md, 3.2).
            prefix: vend.filter(|_| !has_lds).map(VendPrefixL0::pid),
            segment: tlp.dest_segment(),
            ld: vend.filter(|_| has_lds).map(VendPrefixL0::ld_id),
            ln: LnTlp::of(tlp, ln),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_parsers::fabric::Hpa;
    use weft_parsers::tlp::Mode;

    /// PCIe 6.0 section 2.2.4: memory and I/O by address, configuration, completions and messages by id by bus, other
    /// messages by their route field (table 5-4).
    #[test]
    fn each_tlp_has_its_kind_of_routing() {
        let (memory, to) = (|at| Some(Route::Memory(Hpa(at))), Bdf::new(2, 0, 0));
        let implicit = |how| Some(Route::Implicit(how));
        let message = |byte: u8| [&[byte, 0, 0, 0, 1, 0, 0, 0x19], &[0; 8][..]].concat();
        let by_id =
            |byte: u8| [&[byte, 0, 0, 0, 1, 0, 0, 0x7F, 2, 0, 0x1E, 0x98], &[0; 4][..]].concat();
        #[rustfmt::skip] // columns: name, bytes of a flit-mode header, route
        let cases: [(&str, Vec<u8>, Option<Route>); 17] = [
            ("MRd32",   vec![0x03, 0, 0, 1, 1, 0, 0, 5, 0xE0, 0, 0x10, 0],             memory(0xE000_1000)),
            ("MRd64",   vec![0x20, 0, 0, 1, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0],    memory(0x0100_0000_1000)),
            ("MWr32",   vec![0x40, 0, 0, 1, 1, 0, 0, 5, 0xE0, 0, 0x10, 0, 1, 2, 3, 4], memory(0xE000_1000)),
            ("UIOMRd",  vec![0x22, 0, 0, 2, 1, 0, 0, 5, 0, 0, 1, 0, 0, 0, 0x10, 0],    memory(0x0100_0000_1000)),
            ("IORd",    vec![0x02, 1, 0, 1, 1, 0, 0, 5, 0, 0, 0x20, 0, 0, 0, 0, 0xF],  Some(Route::Io(0x2000))),
            ("CfgRd0",  vec![0x04, 1, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0xF],     Some(Route::Config0(to))),
            ("CfgRd1",  vec![0x05, 1, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0xF],     Some(Route::Config1(to))),
            ("CfgWr1",  vec![0x45, 1, 0, 1, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0xF, 1, 2, 3, 4], Some(Route::Config1(to))),
            ("Cpl",     vec![0x0A, 0, 0, 0, 1, 0, 0, 5, 2, 0, 0, 4],                   Some(Route::Id(to))),
            ("CplD",    vec![0x4A, 0, 0, 1, 1, 0, 0, 5, 2, 0, 0, 4, 1, 2, 3, 4],       Some(Route::Id(to))),
            ("VDM, 010", by_id(0x32),                                                  Some(Route::Id(to))),
            ("000",     message(0x30),                                                 implicit(Implicit::ToRoot)),
            ("001",     [&message(0x31)[..12], &[0, 0, 0x10, 0]].concat(),             memory(0x1000)),
            ("011",     message(0x33),                                                 implicit(Implicit::Broadcast)),
            ("100",     message(0x34),                                                 implicit(Implicit::Local)),
            ("101",     message(0x35),                                                 implicit(Implicit::Gather)),
            ("NOP",     vec![0, 0, 0, 0],                                              None),
        ];
        for (name, bytes, want) in cases {
            let tlp = Tlp::parse(Mode::Flit, &bytes).expect(name);
            assert_eq!(Route::of(&tlp), want, "{name}");
        }
        for reserved in [0x36, 0x37] {
            assert!(Tlp::parse(Mode::Flit, &message(reserved)).is_err(), "{reserved:#x}");
        }
    }
}
