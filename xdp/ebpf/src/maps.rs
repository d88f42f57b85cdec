//! The maps of the program, and lookups in them.
//!
//! One static per map, named as in `layout::map`; lookups return references or values.
//!
//! Source: Linux `Documentation/bpf/maps.rst`.

use aya_ebpf::bindings::{BPF_F_MMAPABLE, xdp_action};
use aya_ebpf::macros::map;
use aya_ebpf::maps::{Array, DevMap, PerCpuArray, XskMap};

use crate::layout::{
    BANKS, BUCKETS, Bucket, Control, Counts, Edge, IDT as IDT_LEN, NO_PORT, OutputWord, PIDS,
    PORTS, PortRules, PortStats, QUEUES, SEGMENTS as SEGMENTS_LEN, Station, VIDS, WAYS, homes,
    port_queue,
};

#[map]
static RULES: Array<PortRules> = Array::with_max_entries((BANKS * PORTS) as u32, 0);
#[map]
static MEMBERS: Array<u64> = Array::with_max_entries((BANKS * VIDS) as u32, 0);
#[map]
static CONTROL: Array<u64> = Array::with_max_entries(1, BPF_F_MMAPABLE);
#[map]
static OPEN: Array<OutputWord> = Array::with_max_entries(PORTS as u32, BPF_F_MMAPABLE);
#[map]
static HANDED: Array<Counts> = Array::with_max_entries((PORTS * QUEUES) as u32, BPF_F_MMAPABLE);
#[map]
static DONE: Array<Counts> = Array::with_max_entries((PORTS * QUEUES) as u32, BPF_F_MMAPABLE);
#[map]
static DRAIN: Array<u64> = Array::with_max_entries((PORTS * QUEUES) as u32, BPF_F_MMAPABLE);
#[map]
static STATIONS: Array<Bucket> = Array::with_max_entries(1, BPF_F_MMAPABLE); // the loader says how many
#[map]
static EDGES: Array<Edge> = Array::with_max_entries((BANKS * PORTS) as u32, 0);
#[map]
static SEGMENTS: Array<u64> =
    Array::with_max_entries((BANKS * SEGMENTS_LEN / 2) as u32, BPF_F_MMAPABLE);
#[map]
static IDT: Array<u64> = Array::with_max_entries((BANKS * IDT_LEN / 4) as u32, BPF_F_MMAPABLE);
#[map]
static GMV: Array<u64> =
    Array::with_max_entries((BANKS * PORTS * PIDS / 64) as u32, BPF_F_MMAPABLE);
#[map]
static DRT: Array<u64> = Array::with_max_entries((BANKS * PIDS / 4) as u32, BPF_F_MMAPABLE);
#[map]
static PARTNERS: Array<u64> = Array::with_max_entries(PORTS as u32, BPF_F_MMAPABLE);
#[map]
static OUTPUTS: DevMap = DevMap::with_max_entries(PORTS as u32, 0);
#[map]
static SOCKETS: XskMap = XskMap::with_max_entries((PORTS * QUEUES) as u32, 0);
#[map]
static STATS: PerCpuArray<PortStats> = PerCpuArray::with_max_entries((BANKS * PORTS) as u32, 0);

/// The control word of user space: banks in force, and the time.
#[inline(always)]
pub fn control() -> Control {
    let word = CONTROL.get_ptr(0).map_or(0, |at| shared(at));
    Control::from_word(word)
}

/// Reads a word that user space may be writing.
#[inline(always)]
fn shared(at: *const u64) -> u64 {
    // SAFETY: `at` is an aligned word of a map's value, which lives as long as the program. Volatile,
    // because BPF before its version 4 has no atomic loads; the machine's loads of words are.
    unsafe { at.read_volatile() }
}

/// A port's part of the configuration in `bank`.
#[inline(always)]
pub fn rules(bank: u32, port: u32) -> Option<&'static PortRules> {
    // SAFETY: user space writes the bank that is not in force, so that this value stands still; map
    // values live as long as the program.
    RULES.get_ptr(bank * PORTS as u32 + port).map(|at| unsafe { &*at })
}

/// Ports of a VLAN, as bits.
#[inline(always)]
pub fn members(bank: u32, vid: u16) -> u64 {
    MEMBERS.get(bank * VIDS as u32 + (u32::from(vid) & (VIDS as u32 - 1))).copied().unwrap_or(0)
}

/// A port's part of the fabric's tables in bank `fabric`.
#[inline(always)]
pub fn edge(fabric: u32, port: u32) -> Option<&'static Edge> {
    // SAFETY: as in `rules`.
    EDGES.get_ptr(fabric * PORTS as u32 + port).map(|at| unsafe { &*at })
}

/// Entry `at` of the segments. The loader gives no port entries beyond the table.
#[inline(always)]
pub fn segment(fabric: u32, at: u32) -> u32 {
    const WORDS: u32 = SEGMENTS_LEN as u32 / 2;
    // Masked, as an index beyond the table would be one of the other bank, which the map's own bounds allow.
    let word =
        SEGMENTS.get_ptr(fabric * WORDS + (at >> 1 & (WORDS - 1))).map_or(0, |at| shared(at));
    (word >> ((at & 1) * 32)) as u32
}

/// Entry `at` of the interleave DPID tables.
#[inline(always)]
pub fn idt(fabric: u32, at: u32) -> u16 {
    const WORDS: u32 = IDT_LEN as u32 / 4;
    // Masked as in `segment`.
    let word = IDT.get_ptr(fabric * WORDS + (at >> 2 & (WORDS - 1))).map_or(0, |at| shared(at));
    (word >> ((at & 3) * 16)) as u16
}

/// Whether the host behind `port` may reach `pid` as G-FAM.
#[inline(always)]
pub fn reaches(fabric: u32, port: u32, pid: u16) -> bool {
    const WORDS: u32 = PIDS as u32 / 64;
    let pid = u32::from(pid) & (PIDS as u32 - 1);
    let at = (fabric * PORTS as u32 + port) * WORDS + (pid >> 6);
    GMV.get_ptr(at).is_some_and(|at| shared(at) >> (pid & 63) & 1 != 0)
}

/// DRT entry of `dpid`.
#[inline(always)]
pub fn route(fabric: u32, dpid: u16) -> u16 {
    let dpid = u32::from(dpid) & (PIDS as u32 - 1);
    let at = fabric * (PIDS as u32 / 4) + (dpid >> 2);
    DRT.get_ptr(at).map_or(0, |at| (shared(at) >> ((dpid & 3) * 16)) as u16)
}

/// MAC address of the component at the other end of the link of `port`.
#[inline(always)]
pub fn partner(port: u32) -> u64 {
    PARTNERS.get_ptr(port).map_or(0, |at| shared(at))
}

/// Whether frames of `pri` may be sent by `output` at once.
#[inline(always)]
pub fn is_open(output: u32, pri: u8) -> bool {
    OPEN.get_ptr(output).is_some_and(|at| shared(at.cast()) >> (pri & 7) & 1 != 0)
}

/// The two counters of a group of flows: frames handed to user space, and frames that it is done with.
#[derive(Clone, Copy)]
pub struct Cells {
    handed: *mut u64,
    done: *const u64,
}

/// Counters of group `bucket` at (port, queue); `None` for a queue that cannot have a socket.
#[inline(always)]
pub fn cells(port: u32, queue: u32, bucket: usize) -> Option<Cells> {
    let at = at(port, queue)?;
    let (handed, done) = (HANDED.get_ptr_mut(at)?, DONE.get_ptr(at)?);
    // Masked for the verifier, which has to see that the cell lies within the map's value.
    let bucket = bucket & (BUCKETS - 1);
    // SAFETY: `Counts` is as many words, and the index is below.
    Some(unsafe {
        Cells { handed: handed.cast::<u64>().add(bucket), done: done.cast::<u64>().add(bucket) }
    })
}

impl Cells {
    /// Whether user space is done with all frames that it was handed.
    #[inline(always)]
    pub fn at_rest(self) -> bool {
        shared(self.handed) == shared(self.done)
    }

    /// Counts one more frame handed to user space and returns its number. A driver serves a queue on one processor at a
    /// time. Generic XDP may not, and no frame is express there.
    #[inline(always)]
    pub fn hand(self) -> u64 {
        let count = shared(self.handed) + 1;
        // SAFETY: as in `shared`; only this program writes the map.
        unsafe { self.handed.write_volatile(count) };
        count
    }
}

/// Whether the queue must drain: too many frames wait in user space.
#[inline(always)]
pub fn drains(port: u32, queue: u32) -> bool {
    at(port, queue).and_then(|at| DRAIN.get_ptr(at)).is_some_and(|at| shared(at) != 0)
}

#[inline(always)]
fn at(port: u32, queue: u32) -> Option<u32> {
    // A higher queue number would name entries of another port.
    (queue < QUEUES as u32).then(|| port_queue(port, queue))
}

/// Pointer to the word of a station.
#[derive(Clone, Copy)]
pub struct StationCell(*mut u64);

/// Looks up a station in a table of `mask` + 1 buckets.
#[inline(always)]
pub fn station(key: u64, mask: u32) -> Option<StationCell> {
    let (first, second) = homes(key, mask);
    match held(first, key) {
        Some(station) => Some(station),
        None => held(second, key),
    }
}

/// Looks up a station in one bucket.
#[inline(always)]
fn held(bucket: u32, key: u64) -> Option<StationCell> {
    let bucket = STATIONS.get_ptr_mut(bucket)?;
    for way in 0..WAYS {
        // SAFETY: a place of the bucket, which lives as long as the program.
        let at = unsafe { (&raw const (*bucket).keys).cast::<u64>().add(way) };
        // Empty entries have key 0, which `fdb_key` never gives.
        if shared(at) == key {
            // SAFETY: as above.
            return Some(StationCell(unsafe {
                (&raw mut (*bucket).stations).cast::<u64>().add(way)
            }));
        }
    }
    None
}

impl StationCell {
    /// Reads the station's word at once.
    #[inline(always)]
    pub fn read(self) -> Station {
        Station::from_word(shared(self.0))
    }

    /// Notes that the station is no longer at its port. If user space has just moved it elsewhere, it finds this note
    /// and moves it there again.
    #[inline(always)]
    pub fn lose(self) {
        // SAFETY: its port, two aligned bytes of a map's value.
        unsafe { (&raw mut (*self.0.cast::<Station>()).port).write_volatile(NO_PORT) };
    }

    /// Notes that the station was seen at `tick`.
    #[inline(always)]
    pub fn mark_seen(self, tick: u32) {
        // SAFETY: as above, four aligned bytes.
        unsafe { (&raw mut (*self.0.cast::<Station>()).last_seen).write_volatile(tick) };
    }
}

/// Has the kernel send the frame by `output`; false if there is no such interface.
#[inline(always)]
pub fn redirect(output: u32) -> bool {
    // With an empty entry the helper returns the lower bits of its flags, here `XDP_ABORTED`, and drops the target
    // of an earlier call.
    OUTPUTS.redirect(output, u64::from(xdp_action::XDP_ABORTED)).is_ok()
}

/// Has the kernel deliver the frame to the socket of (port, queue); false if there is none.
#[inline(always)]
pub fn to_socket(port: u32, queue: u32) -> bool {
    let Some(at) = at(port, queue) else { return false };
    // As in `redirect`; the last call for a frame decides where it goes.
    SOCKETS.redirect(at, u64::from(xdp_action::XDP_ABORTED)).is_ok()
}

/// This processor's counters of a port.
#[inline(always)]
pub fn stats(bank: u32, port: u32) -> Option<&'static mut PortStats> {
    // SAFETY: values of this processor are only touched in its softirq, one program at a time.
    STATS.get_ptr_mut(bank * PORTS as u32 + port).map(|at| unsafe { &mut *at })
}
