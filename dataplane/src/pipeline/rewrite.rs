//! Rewrite: changes a frame's bytes on its way out.
//!
//! ECN mark; a VLAN tag put in, taken out or given another VID.
//!
//! Units: bytes.
//! Source: docs/spec/pipeline.md §2, §8.

use weft_parsers::{Tci, Vid, mark_ce};

use crate::desc::{Desc, Flag};
use crate::pool::{Bufs, PartialCsum};
use crate::snapshot::Snapshot;
use crate::stats::WorkerStats;
use crate::types::{PortId, Pri};
use crate::vlan::{Arrival, Extent, TagOp};

/// Changes a frame's bytes on the way out: ECN mark, tag. Gives the frame back when it is shared and
/// the pool has no room for a copy.
pub(super) fn rewrite(
    bufs: &mut Bufs,
    snapshot: &Snapshot,
    stats: &WorkerStats,
    port: PortId,
    pri: Pri,
    desc: Desc,
    mark: bool,
) -> Result<Desc, Desc> {
    let tci = desc.has(Flag::Tagged).then(|| {
        let bytes = bufs.head(&desc);
        Tci(u16::from_be_bytes([bytes[14], bytes[15]]))
    });
    let vid = Vid::from_low_bits(desc.vid());
    let op = snapshot.vlan.egress(port, vid, Arrival::of(tci));
    if !mark && op == TagOp::Keep {
        return Ok(desc);
    }
    let mut desc = bufs.make_sole(desc)?;
    if mark {
        let ip = if desc.has(Flag::Tagged) { 18 } else { 14 };
        let marked = bufs.bytes_mut(&mut desc).is_some_and(|bytes| mark_ce(bytes, ip));
        stats.port[port].pri[pri].ecn_marked.add(u64::from(marked));
    }
    if op != TagOp::Keep {
        retag(bufs, snapshot, port, pri, TagChange { op, vid, old: tci }, &mut desc);
    }
    Ok(desc)
}

/// How a frame's tag changes on its way out.
#[derive(Clone, Copy)]
struct TagChange {
    op: TagOp,
    vid: Vid,
    /// What the tag holds, if there is one.
    old: Option<Tci>,
}

/// Puts a tag in, takes it out or changes its VID.
fn retag(
    bufs: &mut Bufs,
    snapshot: &Snapshot,
    port: PortId,
    pri: Pri,
    TagChange { op, vid, old }: TagChange,
    desc: &mut Desc,
) {
    let Some(config) = snapshot.config.ports.get(port.index()) else { return };
    let kept = old.map_or(u16::from(snapshot.pcp_of_pri[pri]) << 13, |tci| tci.0 & 0xF000);
    let tci = Tci(kept | vid.get());
    let partial = bufs.partial_csum(desc);
    let before = desc.len();
    let Some((chunk, start)) = bufs.chunk_mut(desc) else { return };
    let extent = Extent { start, len: before };
    let Some(at) = op.apply(chunk, extent, tci, config.parse.tpids.first()) else { return };
    bufs.set_bounds(desc, at.start, at.len);
    desc.set(Flag::Tagged, op != TagOp::Strip);
    if let Some(partial) = partial {
        // What lies behind the addresses has moved against the frame's start.
        let start = (usize::from(partial.start) + at.len).saturating_sub(before);
        let start = u16::try_from(start).unwrap_or(partial.start);
        bufs.set_partial_csum(desc, Some(PartialCsum { start, ..partial }));
    }
}
