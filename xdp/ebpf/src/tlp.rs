//! TLPs: forwards those that the pipeline would send by one port with only a new front.
//!
//! A frame gets a [`Plan`], and is then rewritten; without a plan the pipeline decides.
//!
//! Source: docs/spec/cxl-fabric.md "Ingress at an edge", "Inside", "Egress at an edge";
//! `dataplane::pipeline::tlp::brisk`.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::xdp_action;
use aya_ebpf::helpers::generated::{bpf_xdp_adjust_head, bpf_xdp_adjust_tail};
use aya_ebpf::programs::XdpContext;
use weft_parsers::Format;
use weft_parsers::fabric::Pid;
use weft_parsers::tlp::fast_frame::{Front, HBR_AT, LinkWords, PBR_AT, fast_frame};
use weft_parsers::tlp::{FastKind, FastTlp, Mode, Oui, Pth};

use crate::counts::{self, Place};
use crate::express::LEN_MIN;
use crate::frame::{self, Frame};
use crate::layout::{Control, Edge, PortRules, checksum, edge, role, route};
use crate::maps;
use crate::pass::{self, Beside};

/// Length of the shortest frame that is sent, in 32-bit words.
const SHORT: usize = LEN_MIN / 4;
/// Offset of a TLP in words: without PTH (HBR), and behind one (PBR).
const HBR: usize = HBR_AT / 4;
const PBR: usize = PBR_AT / 4;

/// How a frame is sent.
struct Plan {
    output: u32,
    pri: u8,
    /// Whether the TLP has a PTH now, and whether it gets one.
    had: bool,
    has: bool,
    /// Length of the frame as it is sent, without padding.
    went: usize,
    /// Words in front of the TLP as it is sent, in wire order; the PTH last.
    front: [u32; PBR],
}

/// Sends a frame to its output if the pipeline would do no more than that, and to user space otherwise.
#[inline(always)]
pub fn weft(
    ctx: &XdpContext,
    frame: &Frame<'_>,
    port: u32,
    rules: &PortRules,
    control: Control,
) -> u32 {
    // TLP frames carry no IP, so a host leaves no checksum partial.
    let beside = Beside { tag: frame::tag(ctx), left: checksum::COMPLETE };
    let queue = ctx.rx_queue_index();
    // All TLPs of a port are one group: the fast parse cannot tell every TLP's flow.
    let mut at = Place {
        port,
        queue,
        pri: rules.tlp.tc_to_pri[0] & 7,
        format: Format::Pbr,
        bucket: 0,
        stats: control.stats,
    };
    let plan = if beside.tag.is_none() { plan(frame, port, rules, control) } else { None };
    if let Some(plan) = plan {
        at.pri = plan.pri;
        match maps::cells(port, queue, 0) {
            Some(cells) if cells.at_rest() => {
                // Before the frame is rewritten: without such an output it goes to user space as it came.
                if maps::redirect(plan.output) {
                    return match carry_out(ctx, frame, &plan) {
                        Some(true) => {
                            counts::express(&at, plan.output, frame.len, plan.went);
                            xdp_action::XDP_REDIRECT
                        }
                        Some(false) => pass::hand_over(ctx, &at, beside, frame.len),
                        None => xdp_action::XDP_ABORTED,
                    };
                }
            }
            Some(_) => return pass::follow(ctx, &at, plan.output, beside, frame.len),
            None => {}
        }
    }
    pass::hand_over(ctx, &at, beside, frame.len)
}

/// The plan for a frame that the pipeline would send at once with only a new front.
#[inline(always)]
fn plan(frame: &Frame<'_>, port: u32, rules: &PortRules, control: Control) -> Option<Plan> {
    let Control { bank, fabric, .. } = control;
    let own = &rules.tlp;
    let fits = frame.len >= LEN_MIN && frame.len <= rules.frame_len_max as usize;
    if !fits || own.role == role::CPU {
        return None;
    }
    let input = maps::edge(fabric, port)?;
    let behind = match input.kind {
        edge::FABRIC => Front::Pbr,
        edge::USP | edge::DSP if own.mode() == Mode::Flit => Front::Hbr,
        _ => return None,
    };
    let words = LinkWords::new(Oui(own.oui));
    let seen = fast_frame(frame.bytes, frame.len, &words, behind, own.payload_max)?;
    let pri = own.pri(&seen);
    let may = rules.express_pris >> pri & 1 != 0;
    // The pipeline has to learn a new sender's address.
    if !may || mac(frame.bytes, 6) != maps::partner(port) {
        return None;
    }
    let pth = match seen.pth {
        Some(pth) => pth,
        None => by_fast(input, &seen.tlp, fabric, port)?,
    };
    let route = maps::route(fabric, pth.dpid.bits());
    // A group needs the pipeline's pick; a hierarchical TLP for a port of this switch ends at a vPPB.
    if route & route::PLAIN == 0 || pth.hie && route & route::OURS != 0 {
        return None;
    }
    let output = u32::from(route) & (crate::layout::PORTS as u32 - 1);
    let (other, exit) = (maps::rules(bank, output)?, maps::edge(fabric, output)?);
    let kept = match (exit.kind, other.tlp.role) {
        (edge::FABRIC, role::FPORT) => Some(pth),
        (edge::GFD, role::USP | role::DSP | role::FPORT) => Some(Pth { dsar: true, ..pth }),
        (edge::USP | edge::DSP, role::USP | role::DSP)
            if other.tlp.mode() == Mode::Flit && !pth.pif =>
        {
            None
        }
        _ => return None,
    };
    let len = usize::from(seen.tlp.len);
    let went = len + if kept.is_some() { PBR_AT } else { HBR_AT };
    // Checked with the new front: a PTH makes the frame 4 bytes longer.
    let fits = went <= other.frame_len_max as usize;
    if !fits || output == port || !maps::is_open(output, pri) {
        return None;
    }
    let link = if kept.is_some() { words.pbr } else { words.hbr };
    let (to, from) = (maps::partner(output), mac(&other.port_mac, 0));
    let pth = kept.map_or([0; 4], Pth::emit);
    let front = front(to, from, link, pth);
    Some(Plan { output, pri, had: seen.pth.is_some(), has: kept.is_some(), went, front })
}

/// PTH of a request whose address the fabric window leads to a G-FAM device.
#[inline(always)]
fn by_fast(input: &Edge, tlp: &FastTlp, fabric: u32, port: u32) -> Option<Pth> {
    if !matches!(tlp.kind, FastKind::Uio | FastKind::Memory) {
        return None;
    }
    let segments = |at| maps::segment(fabric, at);
    let dpid = input.lookup(tlp.address, segments, |at| maps::idt(fabric, at))?;
    let (spid, dsar) = (Pid::from_low_bits(input.pid), input.kind == edge::USP);
    maps::reaches(fabric, port, dpid)
        .then(|| Pth { dsar, ..Pth::new(spid, Pid::from_low_bits(dpid)) })
}

/// The MAC address at offset `at`, in the low 48 bits.
#[inline(always)]
fn mac(bytes: &[u8], at: usize) -> u64 {
    let mut bits = 0;
    for n in at..at + 6 {
        bits = bits << 8 | bytes.get(n).map_or(0, |&byte| u64::from(byte));
    }
    bits
}

/// Words in front of a TLP, in wire order.
#[inline(always)]
fn front(to: u64, from: u64, link: u64, pth: [u8; 4]) -> [u32; PBR] {
    let words = [
        (to >> 16) as u32,
        (to << 16) as u32 | (from >> 32) as u32 & 0xFFFF,
        from as u32,
        (link >> 32) as u32,
        link as u32,
        u32::from_be_bytes(pth),
    ];
    words.map(u32::to_be)
}

/// Rewrites the frame by its plan. Returns false, with the frame unchanged, if there is no room for the new front;
/// `None` if the kernel failed at something that always works.
#[inline(always)]
fn carry_out(ctx: &XdpContext, frame: &Frame<'_>, plan: &Plan) -> Option<bool> {
    if plan.went <= LEN_MIN { short(ctx, frame, plan) } else { long(ctx, frame, plan) }
}

/// Rewrites a frame that becomes 60 bytes with its padding; all of its TLP is in `frame`.
#[inline(always)]
fn short(ctx: &XdpContext, frame: &Frame<'_>, plan: &Plan) -> Option<bool> {
    if frame.len > LEN_MIN {
        let by = LEN_MIN as i32 - frame.len as i32;
        // SAFETY: the context is the one that the program was called with.
        if unsafe { bpf_xdp_adjust_tail(ctx.as_ptr().cast(), by) } != 0 {
            return Some(false);
        }
    }
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + LEN_MIN > end {
        return None;
    }
    let to = start as *mut u32;
    match (plan.had, plan.has) {
        (false, false) => write::<HBR, HBR>(to, frame, plan),
        (false, true) => write::<HBR, PBR>(to, frame, plan),
        (true, false) => write::<PBR, HBR>(to, frame, plan),
        (true, true) => write::<PBR, PBR>(to, frame, plan),
    }
    Some(true)
}

/// Writes the 60 bytes of a frame whose TLP moves from word `FROM` to word `TO`, with zeros behind the TLP.
#[inline(always)]
fn write<const FROM: usize, const TO: usize>(to: *mut u32, frame: &Frame<'_>, plan: &Plan) {
    let from = frame.bytes.as_ptr().cast::<u32>();
    for (n, &word) in plan.front.iter().enumerate().take(TO) {
        // SAFETY: the caller has seen 60 bytes to be there.
        unsafe { to.add(n).write_volatile(word) };
    }
    let went = core::hint::black_box(plan.went) as i64;
    for n in TO..SHORT {
        // SAFETY: below word 16 of 64 bytes, which stand at a word's place.
        let word = unsafe { from.add(n - TO + FROM).read() };
        let keep = ((n * 4) as i64 - went) >> 63; // all ones below the TLP's end
        // SAFETY: as above. Volatile, so that it stays as many stores.
        unsafe { to.add(n).write_volatile(word & keep as u32) };
    }
}

/// Rewrites a longer frame: its TLP stays in place, and bytes behind it are cut off.
#[inline(always)]
fn long(ctx: &XdpContext, frame: &Frame<'_>, plan: &Plan) -> Option<bool> {
    let by = match (plan.had, plan.has) {
        (false, true) => -4,
        (true, false) => 4,
        _ => 0,
    };
    // SAFETY: the context is the one that the program was called with.
    if by != 0 && unsafe { bpf_xdp_adjust_head(ctx.as_ptr().cast(), by) } != 0 {
        return Some(false);
    }
    // After the head has moved there is no way back, so a refusal from here on is `None`, and the frame is lost.
    let more = (frame.len as i32 - by) - plan.went as i32;
    // SAFETY: as above.
    if more > 0 && unsafe { bpf_xdp_adjust_tail(ctx.as_ptr().cast(), -more) } != 0 {
        return None;
    }
    let (start, end) = (ctx.data(), ctx.data_end());
    if start + PBR_AT > end {
        return None;
    }
    let to = start as *mut u32;
    for (n, &word) in plan.front.iter().enumerate().take(HBR) {
        // SAFETY: as many bytes were just seen to be there.
        unsafe { to.add(n).write_volatile(word) };
    }
    if plan.has {
        // SAFETY: as above.
        unsafe { to.add(HBR).write_volatile(plan.front[HBR]) };
    }
    Some(true)
}
