//! Express frames that their output refused after all: seen only in tracepoints.
//!
//! Shape: arguments of `xdp_devmap_xmit` and `xdp_redirect_err` to `refused_in` and `refused_out`.
//! Units: frames.
//! Source: Linux `include/trace/events/xdp.h`.
//!
//! Interface indices repeat in other namespaces, where others may redirect frames, too. An output's
//! burst ends within the poll that began it, on one processor: so what is reported while nothing of
//! ours is under way to that output is not ours.

use aya_ebpf::bindings::bpf_map_type::BPF_MAP_TYPE_DEVMAP;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::programs::RawTracePointContext;

use crate::layout::PORTS;
use crate::maps;

/// Octets from the start of the kernel's `struct net_device` to its `ifindex`; set by the loader.
#[unsafe(no_mangle)]
static IFINDEX_AT: u64 = 0;

/// `xdp_devmap_xmit(from_dev, to_dev, sent, drops, err)`.
#[inline(always)]
pub fn burst(ctx: &RawTracePointContext) {
    let (sent, drops): (u64, u64) = (ctx.arg(2), ctx.arg(3));
    let sent = if (sent as i32) < 0 { 0 } else { sent & 0xFFFF };
    settle(port_at(ctx.arg(0)), port_at(ctx.arg(1)), sent + (drops & 0xFFFF), drops & 0xFFFF);
}

/// `xdp_redirect_err(dev, xdp, tgt, err, map_type, map_id, index)`: `index` is the output.
#[inline(always)]
pub fn refused(ctx: &RawTracePointContext) {
    let (kind, index): (u64, u64) = (ctx.arg(4), ctx.arg(6));
    if kind as u32 == BPF_MAP_TYPE_DEVMAP && index < PORTS as u64 {
        settle(port_at(ctx.arg(0)), Some(index as u32), 1, 1);
    }
}

/// Takes `count` frames off those under way to `output`, `drops` of them lost.
#[inline(always)]
fn settle(input: Option<u32>, output: Option<u32>, count: u64, drops: u64) {
    let (Some(input), Some(output)) = (input, output) else { return };
    let Some(stats) = maps::stats(output) else { return };
    if stats.given.wrapping_sub(stats.settled) < count {
        return; // not ours
    }
    stats.settled += count;
    stats.refused_out += drops;
    if let Some(stats) = maps::stats(input) {
        stats.refused_in += drops;
    }
}

/// The port of the `struct net_device` at `device`.
#[inline(always)]
fn port_at(device: u64) -> Option<u32> {
    // SAFETY: a read-only value that the loader sets before it loads us.
    let at = unsafe { core::ptr::read_volatile(&raw const IFINDEX_AT) };
    if device == 0 || at == 0 {
        return None;
    }
    // SAFETY: the helper reads what it can and fails otherwise.
    let index = unsafe { bpf_probe_read_kernel((device + at) as *const u32) }.ok()?;
    maps::port_of(index)
}
