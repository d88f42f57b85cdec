//! Everything that is not express goes to the port's socket, with its number before it.
//!
//! Shape: a frame to [`Meta`] and the socket of (port, queue); a drop that is counted without one.
//! Units: frames.
//! Source: architecture.md, "No reordering"; Linux `bpf_xdp_adjust_meta`.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::xdp_action;
use aya_ebpf::helpers::generated::bpf_xdp_adjust_meta;
use aya_ebpf::programs::XdpContext;

use crate::counts::{self, Place};
use crate::layout::Meta;
use crate::maps;

/// Hands the frame to user space. It is never given to the host's own stack.
#[inline(always)]
pub fn hand_over(ctx: &XdpContext, at: &Place, len: usize) -> u32 {
    if !maps::to_socket(at.port, at.queue) {
        if let Some(stats) = maps::stats(at.port) {
            stats.no_socket += 1;
        }
        return xdp_action::XDP_DROP;
    }
    let count = maps::hand(at.port, at.queue, at.pri).unwrap_or(0);
    counts::passed(at, len);
    let meta = Meta {
        count,
        tag: Meta::TAG,
        port: at.port as u8,
        queue: at.queue as u8,
        pri: at.pri,
        format: at.format as u8,
    };
    if !write(ctx, meta)
        && let Some(stats) = maps::stats(at.port)
    {
        stats.no_meta += 1; // express stays closed here: the count is never reached
    }
    xdp_action::XDP_REDIRECT
}

/// Writes `meta` before the frame; false when the driver leaves no room.
#[inline(always)]
fn write(ctx: &XdpContext, meta: Meta) -> bool {
    // SAFETY: the context is the one that the program was called with.
    if unsafe { bpf_xdp_adjust_meta(ctx.as_ptr().cast(), -(Meta::LEN as i32)) } != 0 {
        return false;
    }
    let start = ctx.metadata();
    if start + Meta::LEN > ctx.data() {
        return false; // cannot be; the verifier wants to see it
    }
    // SAFETY: the octets from `start` to the frame are ours, as many as were just checked.
    unsafe { (start as *mut Meta).write_unaligned(meta) };
    true
}
