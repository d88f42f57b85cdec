//! The fast path in the kernel: frames that the whole pipeline would pass on at once, unchanged.
//!
//! Shape: `weft` (frames in one piece) and `weft_frags` (in several) on interfaces; what an output
//! refused after all is counted by another object, `xmit`. Maps and their values: `layout`.
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

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;

use crate::frame::Frame;
use crate::layout::Control;

/// Of the parser and all else in here. Nothing is called that the kernel keeps for GPL programs.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 11] = *b"Apache-2.0\0";

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
