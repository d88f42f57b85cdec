//! Everything that is not express goes to the port's socket, with its number before it.
//!
//! A frame to [`Meta`] and the socket of (port, queue); a drop that is counted without one.
//!
//! Units: frames.
//! Source: docs/express.md "Order"; Linux `bpf_xdp_adjust_meta`.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::xdp_action;
use aya_ebpf::helpers::generated::{bpf_get_prandom_u32, bpf_xdp_adjust_meta};
use aya_ebpf::programs::XdpContext;

use crate::counts::{self, Place};
use crate::frame::Tag;
use crate::layout::{Meta, PortStats, checksum, note};
use crate::maps;

/// Of frames to a queue that has to come to rest, one in so many goes on: those that follow what was
/// lost tell user space of it.
const DRAINED: u32 = 64;

/// What is known of a frame beside its data.
#[derive(Clone, Copy)]
pub struct Beside {
    /// The tag that the driver took out.
    pub tag: Option<Tag>,
    /// What the host left of the checksum ([`checksum`]).
    pub left: u64,
}

impl Beside {
    /// The flags of a note, and where a partial checksum goes and starts.
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

/// Hands the frame to user space. It is never given to the host's own stack.
#[inline(always)]
pub fn hand_over(ctx: &XdpContext, at: &Place, beside: Beside, len: usize) -> u32 {
    let Some(cells) = maps::cells(at.port, at.queue, at.bucket) else {
        return drop_it(at, |stats| stats.no_socket += 1);
    };
    if !maps::to_socket(at.port, at.queue) {
        return drop_it(at, |stats| stats.no_socket += 1);
    }
    // SAFETY: the context is the one that the program was called with.
    if unsafe { bpf_xdp_adjust_meta(ctx.as_ptr().cast(), -(Meta::LEN as i32)) } != 0 {
        return drop_it(at, |stats| stats.no_meta += 1);
    }
    let start = ctx.metadata();
    if start + Meta::LEN > ctx.data() {
        return xdp_action::XDP_ABORTED; // cannot be; the verifier wants to see it
    }
    let (flags, left) = beside.note();
    let meta = Meta {
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

/// What becomes of a frame that would be express, but that others of its flow are in user space: it
/// follows them, or is dropped where so many wait that some are lost anyway.
#[inline(always)]
pub fn follow(ctx: &XdpContext, at: &Place, output: u32, beside: Beside, len: usize) -> u32 {
    // Only where it helps: there is no express to an interface that takes no redirected frames.
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
