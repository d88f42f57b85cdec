//! Counts express frames that their output refused after all, which only tracepoints see.
//!
//! Counts arguments of `xdp_devmap_xmit` and `xdp_redirect_err` as [`Refusals`] by port. An object of its own, as it is
//! optional: where the kernel has no BTF or refuses the tracepoints, the fast path runs without these counts.
//!
//! Tracepoints see all namespaces, where interface indices repeat. An interface can have only one XDP program, so
//! frames redirected between two ports of our namespace are weft's.
//!
//! Source: Linux `include/trace/events/xdp.h`.
// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
#![no_std]
#![no_main]

#[allow(dead_code, reason = "most of it is for the other object and the loader")]
#[path = "../../src/layout.rs"]
mod layout;

use aya_ebpf::bindings::bpf_map_type::BPF_MAP_TYPE_DEVMAP;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::macros::{map, raw_tracepoint};
use aya_ebpf::maps::{HashMap, PerCpuArray};
use aya_ebpf::programs::RawTracePointContext;

use crate::layout::{PORTS, Places, Refusals};

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";

/// Offsets in the kernel's structs, and our namespace; the loader sets them.
#[unsafe(no_mangle)]
static PLACES: Places = Places { ifindex: 0, net: 0, inum: 0, ours: 0 };

#[map]
static NAMED: HashMap<u32, u32> = HashMap::with_max_entries(PORTS as u32, 0);
#[map]
static REFUSALS: PerCpuArray<Refusals> = PerCpuArray::with_max_entries(PORTS as u32, 0);

/// An output took some frames of a burst: `xdp_devmap_xmit(from_dev, to_dev, sent, drops, err)`. Nearly always it takes
/// all, and then nothing is looked up: that takes longer than sending a frame.
#[raw_tracepoint]
pub fn weft_xmit(ctx: RawTracePointContext) -> i32 {
    let drops: u64 = ctx.arg(3);
    // The argument is an `int` in a 64-bit register; a burst has at most 16 frames.
    if drops & 0xFFFF != 0 {
        refuse(port_at(ctx.arg(0)), port_at(ctx.arg(1)), drops & 0xFFFF);
    }
    0
}

/// A frame was refused before it reached its output, which is `index`: `xdp_redirect_err(dev, xdp, tgt, err, map_type,
/// map_id, index)`.
#[raw_tracepoint]
pub fn weft_redirect_err(ctx: RawTracePointContext) -> i32 {
    let (kind, index): (u64, u64) = (ctx.arg(4), ctx.arg(6));
    if kind as u32 == BPF_MAP_TYPE_DEVMAP && index < PORTS as u64 {
        refuse(port_at(ctx.arg(0)), Some(index as u32), 1);
    }
    0
}

/// Counts `count` frames as lost between `input` and `output`.
#[inline(always)]
fn refuse(input: Option<u32>, output: Option<u32>, count: u64) {
    let (Some(input), Some(output)) = (input, output) else { return };
    if let Some(refusals) = refusals(output) {
        refusals.refused_out += count;
    }
    if let Some(refusals) = refusals(input) {
        refusals.refused_in += count;
    }
}

/// This processor's counters of a port.
#[inline(always)]
fn refusals(port: u32) -> Option<&'static mut Refusals> {
    // SAFETY: values of this processor are only touched in its softirq, one program at a time.
    REFUSALS.get_ptr_mut(port).map(|at| unsafe { &mut *at })
}

/// The port of the `struct net_device` at `device`, if it is in our namespace.
#[inline(always)]
fn port_at(device: u64) -> Option<u32> {
    // SAFETY: a read-only value that the loader sets before it loads us.
    let places = unsafe { core::ptr::read_volatile(&raw const PLACES) };
    if device == 0 || places.ifindex == 0 {
        return None;
    }
    let net: u64 = read(device + places.net)?;
    let namespace: u32 = read(net + places.inum)?;
    if u64::from(namespace) != places.ours {
        return None;
    }
    let index: u32 = read(device + places.ifindex)?;
    // SAFETY: an entry lives as long as the interface is a port; a stale value is a port, too.
    unsafe { NAMED.get(index) }.map(|port| *port & (PORTS as u32 - 1))
}

#[inline(always)]
fn read<T>(at: u64) -> Option<T> {
    // SAFETY: the helper reads what it can and fails otherwise.
    unsafe { bpf_probe_read_kernel(at as *const T) }.ok()
}

/// Required by the compiler; nothing here panics.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
