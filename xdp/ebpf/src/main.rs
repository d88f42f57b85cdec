//! The fast path in the kernel: frames that the whole pipeline would pass on at once, unchanged.
//!
//! Shape: `weft` (frames in one piece) and `weft_frags` (in several) on interfaces; two tracepoints
//! that count what an output refused after all. Maps and their values: `layout`.
//! Units: octets, frames.
//! Source: architecture.md, "The fast path in the kernel"; pipeline.md §1 to §3, §11.
#![no_std]
#![no_main]

mod counts;
mod express;
mod frame;
#[allow(dead_code, reason = "names of maps and programs are for the loader")]
#[path = "../../src/layout.rs"]
mod layout;
mod maps;
mod pass;
#[path = "../../src/rules.rs"]
mod rules;
mod xmit;

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::macros::{raw_tracepoint, xdp};
use aya_ebpf::programs::{RawTracePointContext, XdpContext};

use crate::frame::Frame;
use crate::layout::Control;

/// What the kernel asks of a program that reads its memory (the tracepoints do).
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

/// Frames in one piece.
#[xdp]
pub fn weft(ctx: XdpContext) -> u32 {
    decide::<false>(&ctx)
}

/// Frames in one piece or several.
#[xdp(frags)]
pub fn weft_frags(ctx: XdpContext) -> u32 {
    decide::<true>(&ctx)
}

/// An output took some frames of a burst.
#[raw_tracepoint]
pub fn weft_xmit(ctx: RawTracePointContext) -> i32 {
    xmit::burst(&ctx);
    0
}

/// A frame was refused before it came to its output.
#[raw_tracepoint]
pub fn weft_redirect_err(ctx: RawTracePointContext) -> i32 {
    xmit::refused(&ctx);
    0
}

/// Sends the frame to its output if it is express, and to user space if not.
#[inline(always)]
fn decide<const FRAGS: bool>(ctx: &XdpContext) -> u32 {
    // An interface without a port is none of ours; the kernel counts an exception.
    let Some(port) = maps::port_of(ctx.ingress_ifindex() as u32) else {
        return xdp_action::XDP_ABORTED;
    };
    let Control { bank, tick } = maps::control();
    let Some(rules) = maps::rules(bank, port) else { return xdp_action::XDP_ABORTED };
    let frame = Frame::read::<FRAGS>(ctx);
    let head = frame.parse(rules);
    let pri = rules.pri(head.as_ref());
    let format = head.as_ref().map_or(weft_parsers::Format::Other, weft_parsers::Head::format);
    let at = counts::Place { port, queue: ctx.rx_queue_index(), pri, format };
    if let Some(head) = &head
        && let Some(output) = express::output(ctx, &frame, head, &at, rules, (bank, tick))
        && maps::redirect(output)
    {
        counts::express(&at, output, frame.len);
        return xdp_action::XDP_REDIRECT;
    }
    pass::hand_over(ctx, &at, frame.len)
}

/// Nothing here panics; the compiler wants to know what would be done.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
