//! CXL.cache messages: reads the fields that routing needs.
//!
//! A message becomes a [`ParsedTlp`] with the `CacheID` that it is sent with.
//!
//! Units: bytes; places are counted from the frame's first byte.
//! Source: docs/spec/cxl-fabric.md "CXL.cache"; docs/spec/wire-formats.md §3.12.

use weft_parsers::cxl_cache::CacheMessage;
use weft_parsers::tlp::{Mode, Protocol, Pth};

use super::parsed::{ParsedTlp, Read, behind_pth, pri};
use crate::config::TlpConfig;
use crate::pbr::source::admit_cache;
use crate::pbr::{EdgePort, Kind, Refusal, Request, Role, Route};
use crate::stats::DropReason;

/// Reads the message at `start`, which came in at a port whose tables are `edge`.
pub(super) fn read(
    rest: &[u8],
    start: usize,
    edge: Option<&EdgePort>,
    protocol: Protocol,
    config: &TlpConfig,
) -> Result<Read, DropReason> {
    let is_pbr = protocol == Protocol::PbrCache;
    let (pth, at, bytes) = behind_pth(rest, start, edge, is_pbr)?;
    let message = CacheMessage::parse(bytes).map_err(|_| DropReason::Malformed)?;
    if let Some((edge, pth)) = edge.zip(pth)
        && let Err(refusal) = admit_cache(edge, pth)
    {
        // Before any of its fields is used: the sender may not use this PTH.
        return Ok(Read::Refused(refusal));
    }
    let to_host = message.head.op.class().is_to_host();
    let kind = if to_host { Kind::CacheToHost } else { Kind::CacheToDevice };
    let told = message.head.cache_id;
    // A device's own CacheID has no authority: the edge replaces it by the one of its port.
    let cache_id = match edge.filter(|edge| edge.role == Role::Dsp && to_host) {
        Some(edge) => edge.cache_ids.of_message(told),
        None => Some(told),
    };
    let Some(cache_id) = cache_id else { return Ok(Read::Refused(Refusal::NoCacheId)) };
    Ok(Read::Tlp(ParsedTlp {
        request: Request {
            kind,
            route: Route::CacheId(cache_id),
            prefix: None,
            segment: None,
            requester: None,
            ld: None,
            ln: None,
        },
        wants_completion: false,
        pth: pth.map(|pth| Pth { pif: false, ..pth }),
        mode: Mode::Flit,
        at,
        end: at + message.len(),
        tc: 0,
        pri: pri(kind, 0, config),
        mem: None,
    }))
}
