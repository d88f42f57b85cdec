//! Hands frames that are not express to the port's socket, each with its number in front; counts those without a
//! socket.
//!
//! Source: docs/express.md "Order"; Linux `bpf_xdp_adjust_meta`.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::xdp_action;
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_xdp_adjust_meta};
use aya_ebpf::programs::XdpContext;

use crate::counts::{self, Place};
use crate::frame::Tag;
use crate::layout::{Meta, PortStats, checksum, note};
use crate::maps;

/// While a queue drains, one in this many frames still goes to user space: a frame behind lost ones tells it of the
/// gap.
const DRAINED: u32 = 64;

/// Facts about a frame that are not in its data.
#[derive(Clone, Copy)]
pub struct Beside {
    /// VLAN tag that the driver took out of the data.
    pub tag: Option<Tag>,
    /// State of the checksum ([`checksum`]).
    pub left: u64,
}

impl Beside {
    /// Flags of a note, and where a partial checksum goes and starts.
    #[inline(always)]
    fn note(self) -> (u32, u32) {
        let tag = if self.tag.is_some() { note::TAG } else { 0 };
        match self.left {
            checksum::COMPLETE => (tag | note::SEES, 0),
            left if left >> 32 == checksum::PARTIAL >> 32 => {
                (tag | note::SEES | note::PARTIAL, left as u32)
            }
            _ => (tag, 0),
        }
    }
}

/// Hands the frame to user space. It never goes to the host's own stack.
#[inline(always)]
pub fn hand_over(ctx: &XdpContext, at: &Place, beside: Beside, len: usize) -> u32 {
    let Some(cells) = maps::cells(at.port, at.queue, at.bucket) else {
        return drop_it(at, |stats| stats.no_socket += 1);
    };
    // Before the frame is numbered: a number without a frame would look like a loss.
    if !maps::to_socket(at.port, at.queue) {
        return drop_it(at, |stats| stats.no_socket += 1);
    }
    // SAFETY: the context is the one that the program was called with.
    if unsafe { bpf_xdp_adjust_meta(ctx.as_ptr().cast(), -(Meta::LEN as i32)) } != 0 {
        return drop_it(at, |stats| stats.no_meta += 1);
    }
    let start = ctx.metadata();
    if start + Meta::LEN > ctx.data() {
        return xdp_action::XDP_ABORTED; // cannot happen; the verifier needs the check
    }
    let (flags, left) = beside.note();
    let meta = Meta {
        // Last of the steps that can fail: from here on the frame counts as handed over, and the group waits for it.
        count: cells.hand(),
        tag: Meta::TAG,
        bucket: at.bucket as u8,
        pri: at.pri,
        format: at.format as u8,
        port: at.port as u8,
        flags,
        tpid: beside.tag.map_or(0, |tag| tag.tpid),
        tci: beside.tag.map_or(0, |tag| tag.tci),
        csum_start: left as u16,
        csum_offset: (left >> 16) as u16,
        spare: 0,
    };
    // SAFETY: the bytes from `start` to the frame are ours, as many as were just checked.
    unsafe { (start as *mut Meta).write_unaligned(meta) };
    counts::passed(at, len);
    xdp_action::XDP_REDIRECT
}

/// Handles a frame that would be express if earlier frames of its flow were not in user space: it follows them, or is
/// dropped if so many wait that some are lost anyway.
#[inline(always)]
pub fn follow(ctx: &XdpContext, at: &Place, output: u32, beside: Beside, len: usize) -> u32 {
    // Dropping only helps if the flow can become express, which takes an interface that accepts redirected frames. Here
    // `redirect` only asks: a dropped frame goes nowhere, and `hand_over` notes another target.
    // SAFETY: takes nothing.
    if maps::drains(at.port, at.queue)
        && maps::redirect(output)
        && unsafe { bpf_get_prandom_u32() } % DRAINED != 0
    {
        return drop_it(at, |stats| stats.drained += 1);
    }
    hand_over(ctx, at, beside, len)
}

#[inline(always)]
fn drop_it(at: &Place, count: impl FnOnce(&mut PortStats)) -> u32 {
    if let Some(stats) = maps::stats(at.stats, at.port) {
        count(stats);
    }
    xdp_action::XDP_DROP
}
