//! What the program in the kernel and its loader share: maps by name, and their values.
//!
//! `repr(C)` values without padding or pointers, compiled by both sides; sizes of the maps.
//!
//! Units: bytes, frames; indices are of ports (0..64), priorities (0..8), queues (0..64).
//! Source: docs/express.md.

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only

use weft_parsers::PriSource;
use weft_parsers::vlan::Tpids;

/// Ports of a switch.
pub const PORTS: usize = 64;
/// Receive queues of a port that can have a socket.
pub const QUEUES: usize = 64;
const QUEUE_BITS: u32 = QUEUES.ilog2();
/// Switch-internal priorities.
pub const PRIS: usize = 8;
/// VLAN identifiers.
pub const VIDS: usize = 4096;
/// Cells of a table by priority and format: `pri * 8 + format`.
pub const KINDS: usize = 64;
/// Size bins, as in RFC 2819.
pub const SIZES: usize = 7;
/// Generations of the configuration and of counters: one is in use, the other is written or read.
pub const BANKS: usize = 2;
/// Groups of flows that are kept in order, of a (port, queue): frames of one address pair and priority
/// are in one group.
pub const BUCKETS: usize = 64;
/// PIDs of a fabric.
pub const PIDS: usize = 4_096;
/// Segments of all edges of a switch together; an edge that finds no room is the pipeline's.
pub const SEGMENTS: usize = 65_536;
/// Places of all interleave DPID tables together, as above.
pub const IDT: usize = 16_384;
/// Stations that are kept unless the loader says otherwise.
pub const FDB: usize = 65_536;

/// Names of the maps.
pub mod map {
    /// [`super::PortRules`], two banks of ports.
    pub const RULES: &str = "RULES";
    /// Ports of a VLAN as bits, two banks of VIDs.
    pub const MEMBERS: &str = "MEMBERS";
    /// One [`super::Control`] word, mapped.
    pub const CONTROL: &str = "CONTROL";
    /// [`super::OutputWord`] by output, mapped.
    pub const OPEN: &str = "OPEN";
    /// [`super::Counts`] of frames handed to user space, by port and queue, mapped.
    pub const HANDED: &str = "HANDED";
    /// [`super::Counts`] of those that user space is done with, mapped.
    pub const DONE: &str = "DONE";
    /// Not 0: too many frames wait at (port, queue), which has to come to rest; mapped.
    pub const DRAIN: &str = "DRAIN";
    /// Where stations are: [`super::Bucket`] by [`super::homes`], mapped.
    pub const STATIONS: &str = "STATIONS";
    /// [`super::Edge`], two banks of ports.
    pub const EDGES: &str = "EDGES";
    /// [`super::segment`] words of all edges, two to a word, two banks; mapped.
    pub const SEGMENTS: &str = "SEGMENTS";
    /// PIDs of all interleave DPID tables, four to a word, two banks; mapped.
    pub const IDT: &str = "IDT";
    /// PIDs that the host behind a port may reach as G-FAM, as bits, two banks of ports; mapped.
    pub const GMV: &str = "GMV";
    /// [`super::route`]s by DPID, four to a word, two banks; mapped.
    pub const DRT: &str = "DRT";
    /// By port: address of who is at the other end of a link for TLPs, mapped.
    pub const PARTNERS: &str = "PARTNERS";
    /// Output to interface.
    pub const OUTPUTS: &str = "OUTPUTS";
    /// Port and queue to socket.
    pub const SOCKETS: &str = "SOCKETS";
    /// [`super::PortStats`], two banks of ports, one per processor.
    pub const STATS: &str = "STATS";
    /// Of the tracepoints: interface index to port.
    pub const NAMED: &str = "NAMED";
    /// Of the tracepoints: [`super::Refusals`] by port, one per processor.
    pub const REFUSALS: &str = "REFUSALS";
}

/// Names of the programs.
pub mod program {
    /// On interfaces.
    pub const WEFT: &str = "weft";
    /// On the tracepoint `xdp_devmap_xmit`.
    pub const XMIT: &str = "weft_xmit";
    /// On the tracepoint `xdp_redirect_err`.
    pub const REDIRECT_ERR: &str = "weft_redirect_err";
}

/// Numbers of helpers that there are not: what the loader puts in their place.
pub mod placeholder {
    /// The port that the program is for.
    pub const PORT: usize = 0x7EF1;
    /// `bpf_xdp_metadata_rx_vlan_tag`, or a constant that says that there is no tag.
    pub const VLAN_TAG: usize = 0x7EF2;
    /// Buckets of `STATIONS`, less one.
    pub const STATIONS: usize = 0x7EF3;
    /// A function that finds what the host left of a frame's checksum, or a constant ([`super::checksum`]).
    pub const CHECKSUM: usize = 0x7EF4;
}

/// What is known of the checksum that a host left of a frame: the answer to [`placeholder::CHECKSUM`].
pub mod checksum {
    /// All are complete.
    pub const COMPLETE: u64 = 0;
    /// Partial: where it goes and where it starts are the two halves of the lower word.
    pub const PARTIAL: u64 = 1 << 32;
    /// Frames come from a wire: what looks partial may be, and nothing is hidden in tunnels.
    pub const OF_WIRE: i32 = -1;
    /// It may be partial anywhere, and nothing says so.
    pub const UNSEEN: i32 = -2;
}

/// Where a port and a queue meet in `HANDED`, `DONE`, `DRAIN` and `SOCKETS`.
#[must_use]
pub const fn port_queue(port: u32, queue: u32) -> u32 {
    port << QUEUE_BITS | queue
}

/// Key of a station, never 0: bit 63, VID in bits 61:50, address space and address below.
#[must_use]
pub const fn fdb_key(vid: u16, addr: u64) -> u64 {
    (1 << 13 | vid as u64) << 50 | addr
}

/// The two buckets that can hold `key`, of `mask` + 1, a power of two: the second is looked at when the
/// first has not got it.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the mask takes the lower bits")]
pub const fn homes(key: u64, mask: u32) -> (u32, u32) {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let hash = (key ^ key >> 29).wrapping_mul(SPREAD);
    let (first, second) = ((hash >> 40) as u32 & mask, (hash >> 16) as u32 & mask);
    (first, if first == second { first ^ 1 } else { second })
}

/// The word by which user space tells the program which tables are in force, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Bank of the configuration in force.
    pub bank: u32,
    /// Bank of the tables of TLPs in force.
    pub fabric: u32,
    /// Bank that is counted in.
    pub stats: u32,
    /// Time of user space's own making, written to stations that are seen.
    pub tick: u32,
}

impl Control {
    /// Both in one word, so that they are read at once.
    #[must_use]
    pub const fn word(self) -> u64 {
        let banks = (self.fabric as u64) << 2 | (self.stats as u64) << 1 | self.bank as u64;
        banks << 32 | self.tick as u64
    }

    /// From [`Self::word`]; banks that there are.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
    pub const fn from_word(word: u64) -> Self {
        let (bank, stats) = ((word >> 32) as u32 & 1, (word >> 33) as u32 & 1);
        Self { bank, stats, fabric: (word >> 34) as u32 & 1, tick: word as u32 }
    }
}

/// One word by output on a cache line of its own: bit n opens priority n to express frames.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub struct OutputWord {
    /// Open priorities.
    pub open: u64,
    spare: [u64; 7],
}

/// Frames by group of flows of one (port, queue), on cache lines of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Counts(pub [u64; BUCKETS]);

/// Where a MAC address is, and when it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Station {
    /// Its port, or [`NO_PORT`] after it was seen elsewhere, until user space has learnt where.
    pub port: u16,
    /// Not 0: set by configuration; it neither ages nor moves.
    pub fixed: u16,
    /// [`Control::tick`] when it was last the source of an express frame.
    pub last_seen: u32,
}

impl Station {
    /// All of it, so that it is read and written at once.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.port as u64 | (self.fixed as u64) << 16 | (self.last_seen as u64) << 32
    }

    /// From [`Self::word`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub const fn from_word(word: u64) -> Self {
        Self { port: word as u16, fixed: (word >> 16) as u16, last_seen: (word >> 32) as u32 }
    }
}

/// Stations of a [`Bucket`].
pub const WAYS: usize = 4;

/// Four places of the table of stations, on a cache line.
///
/// User space fills a place, key last, and clears it, key last; a place that was in use is not filled
/// again before all programs that may have seen it have ended. Where no key is, the station is [`NO_PORT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Bucket {
    /// [`fdb_key`]; 0: none.
    pub keys: [u64; WAYS],
    /// The stations of these.
    pub stations: [Station; WAYS],
}

/// No port.
pub const NO_PORT: u16 = 0xFFFF;
/// No VLAN.
pub const NO_VID: u16 = 0xFFFF;
/// The port's default decides a priority.
pub const NO_SOURCE: u8 = 0xFF;

/// What an output does to tags.
pub mod tags {
    /// Leaves them, where they name the VLAN.
    pub const AS_ARRIVED: u8 = 0;
    /// Takes them out.
    pub const NEVER: u8 = 1;
    /// All frames carry one but those of the native VLAN.
    pub const ALL_BUT_NATIVE: u8 = 2;
}

/// What a port's link carries.
pub mod role {
    /// Ethernet.
    pub const L2: u8 = 0;
    /// TLPs of a host.
    pub const USP: u8 = 1;
    /// TLPs of a device.
    pub const DSP: u8 = 2;
    /// TLPs with PTH, of another switch.
    pub const FPORT: u8 = 3;
    /// TLPs of the switch's own functions.
    pub const CPU: u8 = 4;
}

/// Rules for the TLPs of one port, as the configuration has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TlpRules {
    /// Priority by Traffic Class.
    pub tc_to_pri: [u8; 8],
    /// OUI of their frames.
    pub oui: [u8; 3],
    /// What the link carries ([`role`]).
    pub role: u8,
    /// Most bytes of payload.
    pub payload_max: u16,
    /// Priority of UIO requests.
    pub uio_req_pri: u8,
    /// Priority of UIO completions.
    pub uio_cpl_pri: u8,
    /// Not 0: TLPs without PTH are in flit mode.
    pub flit: u8,
    /// Zero.
    pub spare: [u8; 7],
}

/// What the fabric knows of an edge port.
pub mod edge {
    /// It is none: TLPs have a PTH.
    pub const FABRIC: u8 = 0;
    /// A host's.
    pub const USP: u8 = 1;
    /// A device's.
    pub const DSP: u8 = 2;
    /// A G-FAM device's.
    pub const GFD: u8 = 3;
    /// Of a device with logical devices: the pipeline finds out which.
    pub const LDS: u8 = 4;
}

/// One port of a fabric, and where its tables are in those of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Edge {
    /// First byte of the fabric window.
    pub base: u64,
    /// Bytes of it; 0: the pipeline looks everything up.
    pub bytes: u64,
    /// First of its segments.
    pub first: u32,
    /// Its segments, a power of two, less one.
    pub mask: u32,
    /// First place of its interleave DPID table.
    pub idt: u32,
    /// Places of it.
    pub idt_len: u32,
    /// Address bits inside of a segment.
    pub shift: u32,
    /// SPID of what comes in.
    pub pid: u16,
    /// What is behind it ([`edge`]).
    pub kind: u8,
    /// Zero.
    pub spare: u8,
}

/// A segment as a word of 32 bits.
pub mod segment {
    /// It is set, and for G-FAM: the pipeline looks after all others.
    pub const VALID: u32 = 1;
    /// Number of ways, as a power of two, 4 bits.
    pub const WAYS_AT: u32 = 4;
    /// Lowest address bit of the way, 5 bits.
    pub const SHIFT_AT: u32 = 8;
    /// PID, or first place in the interleave DPID table, 12 bits.
    pub const FIELD_AT: u32 = 16;
}

/// Where a DPID leads, as a word of 16 bits; the port in the lowest 6.
pub mod route {
    /// To one port. Without it the pipeline decides.
    pub const PLAIN: u16 = 1 << 8;
    /// It belongs to a port of this switch.
    pub const OURS: u16 = 1 << 9;
}

/// No PID.
pub const NO_PID: u16 = 0xFFF;

/// Rules for the frames of one port, as the configuration has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PortRules {
    /// Priority by source ([`PriSource`]) and code.
    pub maps: [[u8; PriSource::CODES_MAX]; PriSource::SLOTS],
    /// What decides, by what a frame carries (`Head::carries`): the source's number, or
    /// [`NO_SOURCE`].
    pub by: [u8; PriSource::SETS],
    /// The port's own address, which PFC may be sent to.
    pub port_mac: [u8; 6],
    /// What the `EtherType` of the tag can be (`Tpids::lanes`).
    pub tpids: [u16; Tpids::MAX],
    /// `EtherType` of AFH frames.
    pub mac_type1: u16,
    /// The second of them.
    pub mac_type2: u16,
    /// UDP destination port of Standard frames.
    pub udp_type1: u16,
    /// The second of them; 0 for none.
    pub udp_type2: u16,
    /// VLAN of frames without a VID; [`NO_VID`] for none.
    pub untagged: u16,
    /// Longest frame, without FCS.
    pub frame_len_max: u16,
    /// Priority of frames that carry nothing that decides.
    pub default_pri: u8,
    /// `AfhMode` as a number.
    pub afh: u8,
    /// `Gen2Order` as a number.
    pub gen2_order: u8,
    /// As an output: what becomes of tags ([`tags`]).
    pub tags: u8,
    /// As an output: formats that it may send, as bits.
    pub carries: u8,
    /// As an input: priorities whose frames may be express, as bits.
    pub express_pris: u8,
    /// What holds for TLPs.
    pub tlp: TlpRules,
}

/// A counter of frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tally {
    /// Frames.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
}

/// What one processor counts about one port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PortStats {
    /// As an input: handed to the socket, by priority and format.
    pub passed: [Tally; KINDS],
    /// As an input: express, by priority and format.
    pub express_in: [Tally; KINDS],
    /// As an output: express, by priority and format.
    pub express_out: [Tally; KINDS],
    /// As an input: express, by size.
    pub sizes: [u64; SIZES],
    /// As an input: dropped because no socket is there.
    pub no_socket: u64,
    /// As an input: dropped for want of room before the frame.
    pub no_meta: u64,
    /// As an input: dropped so that its queue comes to rest.
    pub drained: u64,
}

/// What one processor counts about a port's express frames after they were given to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Refusals {
    /// As an input: refused by their output.
    pub refused_in: u64,
    /// As an output: refused by it.
    pub refused_out: u64,
}

/// Bytes from the start of a struct of the kernel to a member, and the namespace that is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Places {
    /// `net_device.ifindex`; 0: not known.
    pub ifindex: u64,
    /// `net_device.nd_net`.
    pub net: u64,
    /// `net.ns.inum`.
    pub inum: u64,
    /// Number of the namespace.
    pub ours: u64,
}

/// Metadata before a frame that the program hands to user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Meta {
    /// Frames of this (port, queue, group of flows) handed over, this one included.
    pub count: u64,
    /// [`Meta::TAG`].
    pub tag: u32,
    /// The group of flows.
    pub bucket: u8,
    /// The priority.
    pub pri: u8,
    /// The format.
    pub format: u8,
    /// The port.
    pub port: u8,
    /// What of the rest is said ([`note`]).
    pub flags: u32,
    /// TPID of a VLAN tag that is not in the frame's data, in network order.
    pub tpid: u16,
    /// Its TCI, in the machine's order.
    pub tci: u16,
    /// Byte of the frame where its partial checksum starts.
    pub csum_start: u16,
    /// Byte after that where it goes.
    pub csum_offset: u16,
    /// Zero.
    pub spare: u32,
}

/// Flags in [`Meta`].
pub mod note {
    /// There is a tag.
    pub const TAG: u32 = 1;
    /// The program sees what a host leaves of checksums.
    pub const SEES: u32 = 2;
    /// The checksum is partial.
    pub const PARTIAL: u32 = 4;
}

impl Meta {
    /// Bytes of it.
    pub const LEN: usize = 32;
    /// Tells it from what may lie there by chance.
    pub const TAG: u32 = 0x7765_6674;
}

const _: () = assert!(size_of::<Meta>() == Meta::LEN, "no padding");
const _: () = assert!(
    size_of::<PortRules>() == PriSource::SLOTS * PriSource::CODES_MAX + PriSource::SETS + 56,
    "no padding"
);
const _: () = assert!(size_of::<TlpRules>() == 24, "no padding");
const _: () = assert!(size_of::<Edge>() == 40, "no padding");
const _: () = assert!(size_of::<Station>() == 8, "no padding");
const _: () = assert!(size_of::<Bucket>() == 64, "a cache line");
const _: () = assert!(size_of::<Counts>() == 8 * BUCKETS, "cache lines");
const _: () = assert!(size_of::<OutputWord>() == 64, "a cache line");
