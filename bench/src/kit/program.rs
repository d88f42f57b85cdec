//! The kit's XDP programs.
//!
//! One function a program. Each returns its instructions; its doc lists the words of its memory, an
//! array of 64-bit words that user space reads. Times are ns of `CLOCK_MONOTONIC`.
//!
//! Source: Linux `struct xdp_md` and `enum xdp_action`.

use super::frame::{DST_NUMBER, ETHER_TYPE, MARK, MARK_VALUE, SRC_NUMBER, SRC_PORT, STAMP};
use super::insn::{Asm, Helper, If, Jump, Op, Reg, Width};

/// `XDP_DROP` of `enum xdp_action`.
const DROP: i32 = 1;
/// `XDP_PASS` of `enum xdp_action`.
const PASS: i32 = 2;
/// IPv4 as a little-endian load sees it.
const IPV4_LOADED: i32 = 0x0008;

/// Fields that a generator counts through, frame by frame; 1 leaves a field as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    /// UDP source ports, from 1024 up.
    pub flows: u16,
    /// Source MACs, by their last two bytes.
    pub src_macs: u16,
    /// Destination MACs, by their last two bytes.
    pub dst_macs: u16,
}

/// Loads the frame's bounds into `R6` and `R7` and jumps if it is shorter than `len`.
fn bounds(asm: &mut Asm, len: i32) -> Jump {
    asm.load(Width::Word, Reg::R6, Reg::R1, 0).load(Width::Word, Reg::R7, Reg::R1, 4);
    // the verifier admits loads from the frame only behind this comparison with its end
    asm.op_reg(Op::Move, Reg::R2, Reg::R6).op(Op::Add, Reg::R2, len);
    asm.jump_reg(If::Greater, Reg::R2, Reg::R7)
}

/// `*(frame + at) = be16(first + count % of)`, with the count in `R8`.
fn count_through(asm: &mut Asm, at: i16, first: i32, of: u16) {
    if of > 1 {
        asm.op_reg(Op::Move, Reg::R3, Reg::R8).op(Op::Modulo, Reg::R3, of.into());
        asm.op(Op::Add, Reg::R3, first).to_be16(Reg::R3);
        asm.store(Width::Half, Reg::R6, at, Reg::R3);
    }
}

/// Writes the fields of `spread` and sends the frame out of interface `ifindex`. Memory: word 0 counts.
#[must_use]
pub fn generator(memory_fd: i32, ifindex: i32, spread: Spread) -> Asm {
    let mut asm = Asm::default();
    let short = bounds(&mut asm, 60);
    // One processor runs it, so a plain count will do.
    asm.map_memory(Reg::R9, memory_fd).load(Width::Double, Reg::R8, Reg::R9, 0);
    asm.op_reg(Op::Move, Reg::R3, Reg::R8).op(Op::Add, Reg::R3, 1);
    asm.store(Width::Double, Reg::R9, 0, Reg::R3);
    count_through(&mut asm, SRC_PORT, 1_024, spread.flows);
    count_through(&mut asm, SRC_NUMBER, 0, spread.src_macs);
    count_through(&mut asm, DST_NUMBER, 0, spread.dst_macs);
    asm.op(Op::Move, Reg::R1, ifindex).op(Op::Move, Reg::R2, 0).call(Helper::Redirect).exit();
    asm.land(short).op(Op::Move, Reg::R0, DROP).exit();
    asm
}

/// Counts and drops IPv4, passes all else. Memory: word 0 counts, word 1 is the time of the first
/// frame.
#[must_use]
pub fn sink(memory_fd: i32) -> Asm {
    let mut asm = Asm::default();
    let short = bounds(&mut asm, 14);
    asm.load(Width::Half, Reg::R3, Reg::R6, ETHER_TYPE);
    let other = asm.jump(If::NotEqual, Reg::R3, IPV4_LOADED);
    asm.map_memory(Reg::R8, memory_fd).op(Op::Move, Reg::R2, 1).fetch_add(Reg::R8, 0, Reg::R2);
    // only the first frame reads the clock: `R2` is the count before it
    let again = asm.jump(If::NotEqual, Reg::R2, 0);
    asm.call(Helper::KtimeGetNs).store(Width::Double, Reg::R8, 8, Reg::R0);
    asm.land(again).op(Op::Move, Reg::R0, DROP).exit();
    asm.land(short).land(other).op(Op::Move, Reg::R0, PASS).exit();
    asm
}

/// Sends every frame to the first interface of a devmap, and looks at nothing.
#[must_use]
pub fn redirector(devmap_fd: i32) -> Asm {
    let mut asm = Asm::default();
    asm.map(Reg::R1, devmap_fd).op(Op::Move, Reg::R2, 0).op(Op::Move, Reg::R3, 0);
    asm.call(Helper::RedirectMap).exit();
    asm
}

/// Passes every frame on to the host's stack, and looks at nothing.
#[must_use]
pub fn passer() -> Asm {
    let mut asm = Asm::default();
    asm.op(Op::Move, Reg::R0, PASS).exit();
    asm
}

/// Notes the age of each of the prober's frames and drops it, passes all else. Memory: word 0
/// counts, the `samples` words behind it are ages in the order of arrival.
#[must_use]
pub fn latency(memory_fd: i32, samples: i32) -> Asm {
    let mut asm = Asm::default();
    let short = bounds(&mut asm, 60);
    asm.load(Width::Double, Reg::R3, Reg::R6, MARK.into()).constant(Reg::R4, MARK_VALUE);
    let other = asm.jump_reg(If::NotEqual, Reg::R3, Reg::R4);
    // the clock before the count, whose cache line may be away; `R9` survives the call
    asm.load(Width::Double, Reg::R9, Reg::R6, STAMP.into()).call(Helper::KtimeGetNs);
    asm.op_reg(Op::Sub, Reg::R0, Reg::R9);
    asm.map_memory(Reg::R8, memory_fd).op(Op::Move, Reg::R2, 1).fetch_add(Reg::R8, 0, Reg::R2);
    // frames beyond the samples are counted and not kept
    let full = asm.jump(If::GreaterOrEqual, Reg::R2, samples);
    asm.op(Op::ShiftLeft, Reg::R2, 3).op_reg(Op::Add, Reg::R8, Reg::R2);
    asm.store(Width::Double, Reg::R8, 8, Reg::R0);
    asm.land(full).op(Op::Move, Reg::R0, DROP).exit();
    asm.land(short).land(other).op(Op::Move, Reg::R0, PASS).exit();
    asm
}
