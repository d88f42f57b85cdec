//! Fast path of CXL.mem messages: from a host to a G-FAM device and back.
//!
//! The front of a frame becomes a [`FastMem`], and that a queue. Messages that it does not take go
//! the full path, which would give the same result.
//!
//! Units: bytes.
//! Source: docs/spec/cxl-fabric.md "CXL.mem".

use weft_parsers::HEAD_LEN;
use weft_parsers::cxl_mem::{self, MemOp, fast_mem};
use weft_parsers::fabric::Hpa;
use weft_parsers::tlp::fast_frame::{HBR_AT, LinkWords, MACS_LEN, PBR_AT};
use weft_parsers::tlp::{Protocol, Pth, TlpLink, link};

use super::bytes;
use super::fast_out::{macs_out, port_behind, queue_out, to_gfd};
use crate::config::PortRole;
use crate::desc::Desc;
use crate::pbr::egress::may_answer;
use crate::pbr::source::admit_mem;
use crate::pbr::{EdgePort, Role, Tables};
use crate::pipeline::context::Context;
use crate::queues::QueueId;
use crate::types::PortId;

/// Bits of a PTH's first byte that must be 0 on the fast path: Hie, PIF, and the reserved ones.
const PTH_BITS: u8 = 0x3D;

/// A link header of TLPs as a word, with its protocol replaced.
#[inline]
const fn with(word: u64, protocol: Protocol) -> u64 {
    word & !(0xFFFF << 8) | (protocol as u64) << 8
}

/// A message that the fast path may forward.
pub(super) struct FastMem {
    op: MemOp,
    addr: Hpa,
    pth: Option<Pth>,
    at: usize,
    len: usize,
}

/// Reads a frame of `len` bytes; `None` if the full path has to.
#[inline]
pub(super) fn read(head: &[u8; HEAD_LEN], len: usize, words: &LinkWords) -> Option<FastMem> {
    let (_, rest) = head.split_first_chunk::<MACS_LEN>()?;
    let (word, rest) = rest.split_first_chunk::<{ link::LEN }>()?;
    let word = u64::from_be_bytes(*word);
    let (pth, at, rest) = if word == with(words.hbr, Protocol::HbrMem) {
        (None, HBR_AT, rest)
    } else if word == with(words.pbr, Protocol::PbrMem) {
        // A message with Hie, PIF or a reserved bit set is refused or ignored by rules of the full
        // path.
        let is_plain = rest.first().is_some_and(|first| first & PTH_BITS == 0);
        let (pth, rest) = Pth::parse(rest).ok()?;
        if !is_plain || pth.dpid.is_none() {
            return None;
        }
        (Some(pth), PBR_AT, rest)
    } else {
        return None;
    };
    let (op, addr, message_len) = fast_mem(rest.first_chunk::<{ cxl_mem::HEAD_LEN }>()?)?;
    // Snoops and their answers take the full path, which checks them against the host's tables.
    let is_routed = op.class().is_request() || op.class().is_response();
    let message = FastMem { op, addr, pth, at, len: message_len };
    (is_routed && at + message_len <= len).then_some(message)
}

/// The PTH of a message behind the edge; `None` if it is refused there or the full path has to
/// decide.
#[inline]
fn behind(edge: Option<&EdgePort>, message: &FastMem) -> Option<Pth> {
    let class = message.op.class();
    match (edge, message.pth) {
        (None, pth) => pth,
        (Some(edge), Some(pth)) => admit_mem(edge, pth, class).is_ok().then_some(pth),
        (Some(edge), None) if edge.role == Role::Usp && class.is_request() => {
            to_gfd(edge, message.addr)
        }
        _ => None,
    }
}

/// The queue of a message that only needs a new front, which it has on return; `None` if it
/// needs more.
#[inline]
pub(super) fn forward_mem(
    ctx: &mut Context,
    tables: &Tables,
    input: PortId,
    edge: Option<&EdgePort>,
    desc: &mut Desc,
    message: &FastMem,
) -> Option<QueueId> {
    let pth = behind(edge, message)?;
    let asks = message.op.class().is_request();
    let port = port_behind(ctx, tables, pth)?;
    let config = ctx.snapshot.config.ports.get(port.index())?;
    let out = tables.edge(port);
    let front = match (out.map(|edge| edge.role), config.role) {
        (None, PortRole::Fport(_)) => Some(pth),
        // A G-FAM device has a PBR link: it keeps the PTH, with DSAR set by the edge.
        (Some(Role::Gfd), PortRole::Dsp(_)) if asks => Some(Pth { dsar: true, ..pth }),
        (Some(Role::Usp), PortRole::Usp(_))
            if !asks && out.is_some_and(|host| may_answer(host, pth.spid)) =>
        {
            None
        }
        _ => return None,
    };
    let macs = macs_out(ctx, port, front.is_some(), message.len)?;
    let tlp = &ctx.snapshot.config.tlp;
    let protocol = if front.is_some() { Protocol::PbrMem } else { Protocol::HbrMem };
    let pri = if asks { tlp.uio_req_pri } else { tlp.uio_cpl_pri };
    let link = TlpLink { oui: tlp.oui, protocol, ln: false };
    bytes::put_front(&mut ctx.bufs, desc, message.at, message.len, macs, front, link)?;
    Some(queue_out(ctx, input, desc, port, pri))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_parsers::tlp::Oui;

    #[test]
    fn words_are_what_the_emitter_writes() {
        for oui in [Oui::DEFAULT, Oui([0xFF, 0, 0x81])] {
            let words = LinkWords::new(oui);
            for (word, protocol) in [(words.pbr, Protocol::PbrMem), (words.hbr, Protocol::HbrMem)] {
                let mut bytes = [0; link::LEN];
                TlpLink { oui, protocol, ln: false }.emit(&mut bytes).unwrap();
                assert_eq!(with(word, protocol).to_be_bytes(), bytes, "{oui:?} {protocol:?}");
            }
        }
    }
}
