//! Decides which frames are express: those that the whole pipeline would forward at once and unchanged.
//!
//! Source: docs/express.md; docs/spec/pipeline.md §3 and §11.

use aya_ebpf::programs::XdpContext;
use weft_parsers::partial::{self, Place as Field};
use weft_parsers::{Format, Head};

use crate::counts::Place;
use crate::frame::{self, Frame};
use crate::layout::{Control, NO_PORT, NO_VID, PORTS, PortRules, checksum, fdb_key};
use crate::maps;

/// Shortest express frame: shorter ones are padded when sent, which only the pipeline does.
pub const LEN_MIN: usize = 60;

/// Decision about a frame.
pub enum Action {
    /// Send to this output at once.
    Express(u32),
    /// Send to this output behind earlier frames of its flow, which are still in user space.
    Follow(u32),
    /// User space decides.
    Pass,
}

/// Decides about a frame.
#[inline(always)]
pub fn action(
    ctx: &XdpContext,
    frame: &Frame<'_>,
    head: &Head,
    left: u64,
    at: &Place,
    rules: &PortRules,
    control: Control,
) -> Action {
    let to = output(frame, head, at, rules, control);
    let Some(to) = to.filter(|_| is_complete(ctx, frame, head, left)) else { return Action::Pass };
    // Earlier frames of the flow may still be in user space: this one must not overtake them.
    match maps::cells(at.port, at.queue, at.bucket) {
        Some(cells) if cells.at_rest() => Action::Express(to),
        Some(_) => Action::Follow(to),
        None => Action::Pass,
    }
}

/// Output of a frame that the pipeline would forward at once; `None` if the pipeline must decide.
#[inline(always)]
fn output(
    frame: &Frame<'_>,
    head: &Head,
    at: &Place,
    rules: &PortRules,
    Control { bank, tick, .. }: Control,
) -> Option<u32> {
    let len = frame.len;
    let may = rules.express_pris >> (at.pri & 7) & 1 != 0;
    let fits = len >= LEN_MIN && len <= rules.frame_len_max as usize;
    // The pipeline consumes MAC control, and routes PBR frames by other tables.
    let plain = !matches!(head.format(), Format::MacControl | Format::Pbr);
    if !may || !fits || !plain || !head.individual() || !head.source_valid() {
        return None;
    }
    let vid = rules.vid(head.tci());
    if vid == NO_VID {
        return None;
    }
    let members = maps::members(bank, vid);
    let to = known(vid, head, at.port, tick)?;
    // Both ends must be members of the VLAN, as the pipeline filters at input and output.
    let both = 1 << to | 1 << at.port;
    let other = maps::rules(bank, to)?;
    let stays =
        members & both == both && other.keeps_tag(vid, head.tci()) && other.takes(head, len);
    let open = maps::is_open(to, at.pri);
    (to != at.port && stays && open).then_some(to)
}

/// Port of the destination, if the source is known at `port`; the source then counts as seen.
#[inline(always)]
fn known(vid: u16, head: &Head, port: u32, tick: u32) -> Option<u32> {
    let mask = frame::stations();
    let source = maps::station(fdb_key(vid, head.src().to_bits()), mask)?;
    let station = source.read();
    if station.fixed == 0 && u32::from(station.port) != port {
        // The station has moved: no frame may go to its old port until user space has learned the new one. Written only
        // once, as user space may be about to write the new port.
        if station.port != NO_PORT {
            source.lose();
        }
        return None;
    }
    // At most one write per tick: the cache line is shared by all processors that look the station up.
    if station.fixed == 0 && station.last_seen != tick {
        source.mark_seen(tick);
    }
    let destination = maps::station(fdb_key(vid, head.dst().to_bits()), mask)?;
    let to = u32::from(destination.read().port);
    (to < PORTS as u32).then_some(to)
}

/// Whether the frame's checksums are complete, including those inside of tunnels.
#[inline(always)]
fn is_complete(ctx: &XdpContext, frame: &Frame<'_>, head: &Head, left: u64) -> bool {
    const UNSEEN: u64 = checksum::UNSEEN as i64 as u64;
    const OF_WIRE: u64 = checksum::OF_WIRE as i64 as u64;
    match left {
        checksum::COMPLETE => true,
        // The kernel does not say which checksums are partial, and inside of a tunnel the parser would not find one.
        UNSEEN if partial::may_carry(head) => false,
        UNSEEN | OF_WIRE => looks_complete(ctx, frame, head),
        _ => false,
    }
}

/// Whether the checksum of the frame's transport header, if there is one, is complete, judged by its value.
#[inline(always)]
fn looks_complete(ctx: &XdpContext, frame: &Frame<'_>, head: &Head) -> bool {
    match partial::place(head) {
        Field::Nowhere => true,
        Field::Hidden => false,
        Field::At { field, .. } => frame::field(ctx, field)
            // A partial checksum is the pseudo-header's sum; a complete one equals it with a chance of 1 in 65,536, and
            // then the pipeline forwards the frame.
            .is_some_and(|found| found != partial::pseudo_sum(frame.bytes, head)),
    }
}
