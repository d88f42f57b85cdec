//! Rewrite: changes a frame's bytes when it is sent.
//!
//! It sets ECN marks, and adds a VLAN tag, removes it or changes its VID.
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

/// Changes a frame's bytes as it is sent: ECN mark and tag. `Err` with the frame when it is shared
/// and the pool has no chunk for a copy.
pub(in crate::pipeline) fn rewrite(
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
    // Other outputs may still send the same chunk: the change must not be seen there.
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

/// The change of a frame's tag.
#[derive(Clone, Copy)]
struct TagChange {
    op: TagOp,
    vid: Vid,
    /// The tag that the frame has now, if any.
    old: Option<Tci>,
}

/// Adds a tag, removes it or changes its VID.
fn retag(
    bufs: &mut Bufs,
    snapshot: &Snapshot,
    port: PortId,
    pri: Pri,
    TagChange { op, vid, old }: TagChange,
    desc: &mut Desc,
) {
    let Some(config) = snapshot.config.ports.get(port.index()) else { return };
    // A tag that stays keeps its PCP and DEI. A new one carries the frame's priority, so that the
    // next switch classifies it alike.
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
        // Everything behind the addresses has moved against the frame's start, and with it the place
        // where the checksum starts.
        let start = (usize::from(partial.start) + at.len).saturating_sub(before);
        let start = u16::try_from(start).unwrap_or(partial.start);
        bufs.set_partial_csum(desc, Some(PartialCsum { start, ..partial }));
    }
}
