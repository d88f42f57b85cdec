//! The fast path in the kernel: forwards frames that the whole pipeline would forward at once and unchanged.
//!
//! Each port has a copy of the program `weft`. Frames that an output refuses after all are counted by another object,
//! `xmit`. Maps and their values: `layout`.
//!
//! Source: docs/express.md; docs/spec/pipeline.md §1 to §3, §11.
// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
#![no_std]
#![no_main]

mod counts;
mod express;
#[path = "../../src/fabric.rs"]
mod fabric;
mod frame;
#[allow(dead_code, reason = "names of maps and programs are for the loader")]
#[path = "../../src/layout.rs"]
mod layout;
mod maps;
mod pass;
#[path = "../../src/rules.rs"]
mod rules;
mod tlp;

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use weft_parsers::Head;

use crate::counts::Place;
use crate::express::Action;
use crate::frame::{Frame, Front};
use crate::layout::{Control, role};
use crate::pass::Beside;

/// License of the parser and all else in this object: functions that read a driver's metadata are for GPL programs
/// only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

/// Sends an express frame to its output, and any other frame to user space.
#[xdp]
pub fn weft(ctx: XdpContext) -> u32 {
    let port = frame::port();
    let control = maps::control();
    let Control { bank, stats, .. } = control;
    let Some(rules) = maps::rules(bank, port) else { return xdp_action::XDP_ABORTED };
    let mut front = Front::new();
    let frame = Frame::read(&ctx, &mut front);
    // Ports for TLPs carry nothing else; the Ethernet parser would only cost time.
    if rules.tlp.role != role::L2 {
        return tlp::weft(&ctx, &frame, port, rules, control);
    }
    let head = frame.parse(rules);
    let pri = rules.pri(head.as_ref());
    let format = head.as_ref().map_or(weft_parsers::Format::Other, weft_parsers::Head::format);
    let bucket = head.as_ref().map_or(0, |head| bucket(head, pri));
    let at = Place { port, queue: ctx.rx_queue_index(), pri, format, bucket, stats };
    let beside = Beside { tag: frame::tag(&ctx), left: frame::left(&ctx) };
    // Redirecting drops the metadata, and with it the tag, so the pipeline has to put it back.
    if beside.tag.is_none()
        && let Some(head) = &head
    {
        match express::action(&ctx, &frame, head, beside.left, &at, rules, control) {
            // Counted only if there is such an interface; without one the pipeline sends the frame.
            Action::Express(output) if maps::redirect(output) => {
                counts::express(&at, output, frame.len, frame.len);
                return xdp_action::XDP_REDIRECT;
            }
            Action::Follow(output) => return pass::follow(&ctx, &at, output, beside, frame.len),
            Action::Express(_) | Action::Pass => {}
        }
    }
    pass::hand_over(&ctx, &at, beside, frame.len)
}

/// Group of flows whose frames stay in order: by addresses and priority.
#[inline(always)]
fn bucket(head: &Head, pri: u8) -> usize {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let pair = head.src().to_bits().rotate_left(17) ^ head.dst().to_bits() ^ u64::from(pri) << 61;
    (pair.wrapping_mul(SPREAD) >> 58) as usize & (layout::BUCKETS - 1)
}

/// Required by the compiler; nothing here panics.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
