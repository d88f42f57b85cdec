//! CXL.mem messages: reads the fields that routing needs, and answers refused requests.
//!
//! A message becomes a [`ParsedTlp`] with its fields. A refused request becomes an S2M response
//! without data of its own.
//!
//! Units: bytes; places are counted from the frame's first byte.
//! Source: docs/spec/cxl-fabric.md "CXL.mem"; docs/spec/wire-formats.md §3.9.

use weft_parsers::cxl_mem::{LEN_MAX, LINE, MemClass, MemHead, MemMessage};
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::{Mode, Protocol, Pth};

use super::parsed::{ParsedTlp, Read, behind_pth, pri};
use crate::config::TlpConfig;
use crate::pbr::source::admit_mem;
use crate::pbr::vcs::Implicit;
use crate::pbr::{EdgePort, Kind, Refusal, Request, Route};
use crate::stats::DropReason;

/// Reads the message at `start`, which came in at a port whose tables are `edge`.
pub(super) fn read(
    rest: &[u8],
    start: usize,
    edge: Option<&EdgePort>,
    protocol: Protocol,
    config: &TlpConfig,
) -> Result<Read, DropReason> {
    let is_pbr = protocol == Protocol::PbrMem;
    let (pth, at, bytes) = behind_pth(rest, start, edge, is_pbr)?;
    let message = MemMessage::parse(bytes).map_err(|_| DropReason::Malformed)?;
    let (head, class) = (message.head, message.head.op.class());
    let (kind, route) = match class {
        MemClass::Req | MemClass::RwD => (Kind::CxlMemRequest, Route::Memory(head.addr)),
        MemClass::Ndr => (Kind::CxlMemStatus, Route::Implicit(Implicit::ToRoot)),
        MemClass::Drs => (Kind::CxlMemResponse, Route::Implicit(Implicit::ToRoot)),
        MemClass::BiSnp => (Kind::CxlMemSnoop, Route::Memory(head.addr)),
        MemClass::BiRsp => (Kind::CxlMemSnoopAnswer, Route::Implicit(Implicit::ToRoot)),
    };
    if let Some((edge, pth)) = edge.zip(pth)
        && let Err(refusal) = admit_mem(edge, pth, class)
    {
        // Before any of its fields is used: the sender may not use this PTH.
        return Ok(Read::Refused(refusal));
    }
    if head.op.is_block() {
        return Ok(Read::Refused(Refusal::NoBackInvalidate));
    }
    let names_gfd = pth.is_none() && class == MemClass::BiRsp;
    let prefix = names_gfd.then_some(Pid::from_low_bits(head.bi_id));
    let has_lds = edge.is_some_and(|edge| pth.is_none() && edge.has_lds());
    Ok(Read::Tlp(ParsedTlp {
        request: Request {
            kind,
            route,
            prefix,
            segment: None,
            requester: None,
            ld: has_lds.then_some(head.ld.into()),
            ln: None,
        },
        wants_completion: head.op.refusal().is_some(),
        pth: pth.map(|pth| Pth { pif: false, ..pth }),
        mode: Mode::Flit,
        at,
        end: at + message.len(),
        tc: head.tc,
        pri: pri(kind, head.tc, config),
        mem: Some(head),
    }))
}

/// Writes the response to a refused request; returns its length. `None` if the request wants none.
pub(super) fn refused(request: &MemHead, space: &mut [u8]) -> Option<usize> {
    let op = request.op.refusal()?;
    let head = MemHead { ld: request.ld, ..MemHead::new(op, request.tag) };
    // CXL.mem has no status for a refusal: a read returns ones, as from an address without memory.
    let message = MemMessage { head, data: Some(&[0xFF; LINE]), enables: None };
    message.emit(space.get_mut(..LEN_MAX)?).ok()
}
