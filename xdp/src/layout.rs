//! Layout shared by the program in the kernel and its loader: maps by name, and their values.
//!
//! Values are `repr(C)` without padding or pointers, compiled by both sides. Indices are ports (0..64), priorities
//! (0..8) and queues (0..64).
//!
//! Source: docs/express.md.

// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only

use weft_parsers::PriSource;
use weft_parsers::vlan::Tpids;

pub const PORTS: usize = 64;
/// Receive queues of a port that can have a socket.
pub const QUEUES: usize = 64;
const QUEUE_BITS: u32 = QUEUES.ilog2();
pub const PRIS: usize = 8;
pub const VIDS: usize = 4096;
/// Cells of a table by priority and format; the index is `pri * 8 + format`.
pub const KINDS: usize = 64;
/// Size bins, as in RFC 2819.
pub const SIZES: usize = 7;
/// Generations of the configuration and of counters: one is in use while the other is written or read.
pub const BANKS: usize = 2;
/// Groups of flows per (port, queue) that are kept in order; frames of one address pair and priority share a group.
pub const BUCKETS: usize = 64;
pub const PIDS: usize = 4_096;
/// Segments of all edges of a switch together; TLPs of an edge that finds no room are handled by the pipeline.
pub const SEGMENTS: usize = 65_536;
/// Entries of all interleave DPID tables together, with the same rule.
pub const IDT: usize = 16_384;
/// Default capacity for stations.
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
    /// [`super::Counts`] of frames that user space is done with, mapped.
    pub const DONE: &str = "DONE";
    /// Not 0 if too many frames wait at (port, queue), which must drain; mapped.
    pub const DRAIN: &str = "DRAIN";
    /// Ports of stations: [`super::Bucket`] by [`super::homes`], mapped.
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
    /// MAC address of the component at the other end of a link for TLPs, by port; mapped.
    pub const PARTNERS: &str = "PARTNERS";
    /// Interface of each output.
    pub const OUTPUTS: &str = "OUTPUTS";
    /// Socket of each (port, queue).
    pub const SOCKETS: &str = "SOCKETS";
    /// [`super::PortStats`], two banks of ports, one per processor.
    pub const STATS: &str = "STATS";
    /// Port by interface index; used by the tracepoints.
    pub const NAMED: &str = "NAMED";
    /// [`super::Refusals`] by port, one per processor; used by the tracepoints.
    pub const REFUSALS: &str = "REFUSALS";
}

pub mod program {
    /// The XDP program on interfaces.
    pub const WEFT: &str = "weft";
    /// The program on the tracepoint `xdp_devmap_xmit`.
    pub const XMIT: &str = "weft_xmit";
    /// The program on the tracepoint `xdp_redirect_err`.
    pub const REDIRECT_ERR: &str = "weft_redirect_err";
}

/// Numbers of helpers that do not exist. The loader replaces the program's calls of them.
pub mod placeholder {
    /// Number of the port that the program is for.
    pub const PORT: usize = 0x7EF1;
    /// `bpf_xdp_metadata_rx_vlan_tag`, or a constant that says that there is no tag.
    pub const VLAN_TAG: usize = 0x7EF2;
    /// Number of buckets of `STATIONS`, less one.
    pub const STATIONS: usize = 0x7EF3;
    /// A function that reads the state of a frame's checksum, or a constant ([`super::checksum`]).
    pub const CHECKSUM: usize = 0x7EF4;
}

/// State of a frame's checksum: the answer to [`placeholder::CHECKSUM`].
pub mod checksum {
    /// All checksums of the frame are complete.
    pub const COMPLETE: u64 = 0;
    /// Partial; where it goes and where it starts are the two halves of the lower word.
    pub const PARTIAL: u64 = 1 << 32;
    /// The frame comes from a wire: a value that looks partial is taken for it, and tunnels hide none.
    pub const OF_WIRE: i32 = -1;
    /// Any checksum may be partial, and the kernel does not say which.
    pub const UNSEEN: i32 = -2;
}

/// Index of (port, queue) in `HANDED`, `DONE`, `DRAIN` and `SOCKETS`.
#[must_use]
pub const fn port_queue(port: u32, queue: u32) -> u32 {
    port << QUEUE_BITS | queue
}

/// Key of a station, never 0: bit 63, VID in bits 61:50, address space and address below.
#[must_use]
pub const fn fdb_key(vid: u16, addr: u64) -> u64 {
    (1 << 13 | vid as u64) << 50 | addr
}

/// The two buckets that can hold `key`, of `mask` + 1, a power of two. The second is used if the first is full.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the mask takes the lower bits")]
pub const fn homes(key: u64, mask: u32) -> (u32, u32) {
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let hash = (key ^ key >> 29).wrapping_mul(SPREAD);
    let (first, second) = ((hash >> 40) as u32 & mask, (hash >> 16) as u32 & mask);
    // Two different buckets, so that every key has eight places.
    (first, if first == second { first ^ 1 } else { second })
}

/// The word by which user space tells the program the tables in force, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Bank of the configuration in force.
    pub bank: u32,
    /// Bank of the TLP tables in force.
    pub fabric: u32,
    /// Bank of counters in use.
    pub stats: u32,
    /// User space's time, which the program writes to stations that it sees.
    pub tick: u32,
}

impl Control {
    /// Packs everything into one word, which is read and written at once.
    #[must_use]
    pub const fn word(self) -> u64 {
        let banks = (self.fabric as u64) << 2 | (self.stats as u64) << 1 | self.bank as u64;
        banks << 32 | self.tick as u64
    }

    /// Unpacks [`Self::word`]; banks are 0 or 1.
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
    /// Priorities that are open, as bits.
    pub open: u64,
    spare: [u64; 7],
}

/// Counts of frames by group of flows of one (port, queue), on cache lines of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Counts(pub [u64; BUCKETS]);

/// Port of a MAC address, and when it was last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Station {
    /// Its port, or [`NO_PORT`] from when it was seen elsewhere until user space has learned its new port.
    pub port: u16,
    /// Not 0: a static entry, which neither ages nor moves.
    pub fixed: u16,
    /// [`Control::tick`] when it was last the source of an express frame.
    pub last_seen: u32,
}

impl Station {
    /// Packs the station into one word, which is read and written at once.
    #[must_use]
    pub const fn word(self) -> u64 {
        self.port as u64 | (self.fixed as u64) << 16 | (self.last_seen as u64) << 32
    }

    /// Unpacks [`Self::word`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub const fn from_word(word: u64) -> Self {
        Self { port: word as u16, fixed: (word >> 16) as u16, last_seen: (word >> 32) as u32 }
    }
}

/// Number of stations in a [`Bucket`].
pub const WAYS: usize = 4;

/// Four entries of the table of stations, on one cache line.
///
/// User space fills an entry, key last, and clears it, key last. An entry that was in use is not filled again until all
/// programs that may have seen it have ended. The station of an empty entry has port [`NO_PORT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(64))]
pub struct Bucket {
    /// [`fdb_key`]s; 0 for an empty entry.
    pub keys: [u64; WAYS],
    /// The stations of these keys.
    pub stations: [Station; WAYS],
}

pub const NO_PORT: u16 = 0xFFFF;
pub const NO_VID: u16 = 0xFFFF;
/// Marks that the port's default priority applies.
pub const NO_SOURCE: u8 = 0xFF;

/// Treatment of tags by an output.
pub mod tags {
    /// Tags that name the VLAN stay.
    pub const AS_ARRIVED: u8 = 0;
    /// Tags are removed.
    pub const NEVER: u8 = 1;
    /// All frames are tagged except those of the native VLAN.
    pub const ALL_BUT_NATIVE: u8 = 2;
}

/// Traffic on a port's link.
pub mod role {
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

/// Rules for the TLPs of one port, from the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TlpRules {
    /// Priority by Traffic Class.
    pub tc_to_pri: [u8; 8],
    /// OUI of frames with TLPs.
    pub oui: [u8; 3],
    /// Traffic on the link ([`role`]).
    pub role: u8,
    /// Largest payload in bytes.
    pub payload_max: u16,
    pub uio_req_pri: u8,
    pub uio_cpl_pri: u8,
    /// Not 0 if TLPs without PTH are in flit mode.
    pub flit: u8,
    /// Always 0: padding that both sides can compare.
    pub spare: [u8; 7],
}

/// Kind of component behind a port of a fabric.
pub mod edge {
    /// Another PBR switch: TLPs have a PTH.
    pub const FABRIC: u8 = 0;
    /// A host behind an edge port.
    pub const USP: u8 = 1;
    /// A device behind an edge port.
    pub const DSP: u8 = 2;
    /// A G-FAM device behind an edge port.
    pub const GFD: u8 = 3;
    /// A device with logical devices: the pipeline finds out which.
    pub const LDS: u8 = 4;
}

/// One port of a fabric, and the place of its tables in those of all ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Edge {
    /// First byte of the fabric window.
    pub base: u64,
    /// Length of the window in bytes; 0 if the pipeline does all lookups.
    pub bytes: u64,
    /// Index of its first segment.
    pub first: u32,
    /// Number of its segments, a power of two, less one.
    pub mask: u32,
    /// Index of the first entry of its interleave DPID table.
    pub idt: u32,
    /// Number of entries of that table.
    pub idt_len: u32,
    /// Number of address bits inside of a segment.
    pub shift: u32,
    /// SPID of TLPs that come in.
    pub pid: u16,
    /// Kind of component behind it ([`edge`]).
    pub kind: u8,
    pub spare: u8,
}

/// A segment, packed into 32 bits.
pub mod segment {
    /// The segment is valid and leads to G-FAM; the pipeline handles all others.
    pub const VALID: u32 = 1;
    /// Position of the number of ways: log2, 4 bits.
    pub const WAYS_AT: u32 = 4;
    /// Position of the way's lowest address bit, 5 bits.
    pub const SHIFT_AT: u32 = 8;
    /// Position of the PID, or of the first index in the interleave DPID table, 12 bits.
    pub const FIELD_AT: u32 = 16;
}

/// A DRT entry, packed into 16 bits; the port is in the lowest 6.
pub mod route {
    /// The DPID leads to one port; without this the pipeline decides.
    pub const PLAIN: u16 = 1 << 8;
    /// The DPID belongs to a port of this switch.
    pub const OURS: u16 = 1 << 9;
}

pub const NO_PID: u16 = 0xFFF;

/// Rules for the frames of one port, from the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PortRules {
    /// Priority by source ([`PriSource`]) and code.
    pub maps: [[u8; PriSource::CODES_MAX]; PriSource::SLOTS],
    /// Number of the source that decides, by the sources that a frame carries (`Head::carries`), or [`NO_SOURCE`].
    pub by: [u8; PriSource::SETS],
    /// The port's own MAC address, to which PFC may be sent.
    pub port_mac: [u8; 6],
    /// `EtherType`s of the tag (`Tpids::lanes`).
    pub tpids: [u16; Tpids::MAX],
    /// `EtherType` of AFH frames.
    pub mac_type1: u16,
    /// Second `EtherType` of AFH frames.
    pub mac_type2: u16,
    /// UDP destination port of Standard frames.
    pub udp_type1: u16,
    /// Second UDP destination port of Standard frames; 0 for none.
    pub udp_type2: u16,
    /// VLAN of frames without a VID; [`NO_VID`] for none.
    pub untagged: u16,
    /// Longest frame, without FCS.
    pub frame_len_max: u16,
    /// Priority of frames that carry none of the trusted sources.
    pub default_pri: u8,
    /// `AfhMode` as a number.
    pub afh: u8,
    /// `Gen2Order` as a number.
    pub gen2_order: u8,
    /// As an output: treatment of tags ([`tags`]).
    pub tags: u8,
    /// As an output: formats that it may send, as bits.
    pub carries: u8,
    /// As an input: priorities whose frames may be express, as bits.
    pub express_pris: u8,
    /// Rules for TLPs.
    pub tlp: TlpRules,
}

/// A counter of frames and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tally {
    pub frames: u64,
    /// Bytes of the frames, without FCS.
    pub bytes: u64,
}

/// One processor's counters of one port.
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
    /// As an input: dropped because there was no socket.
    pub no_socket: u64,
    /// As an input: dropped because there was no room for metadata in front of the frame.
    pub no_meta: u64,
    /// As an input: dropped to drain its queue.
    pub drained: u64,
}

/// One processor's counters of a port's express frames that the kernel accepted and then lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Refusals {
    /// As an input: frames that their output refused.
    pub refused_in: u64,
    /// As an output: frames that it refused.
    pub refused_out: u64,
}

/// Offsets of members in the kernel's structs, in bytes, and weft's network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Places {
    /// `net_device.ifindex`; 0 if not known.
    pub ifindex: u64,
    /// `net_device.nd_net`.
    pub net: u64,
    /// `net.ns.inum`.
    pub inum: u64,
    /// Inode number of weft's network namespace.
    pub ours: u64,
}

/// Metadata in front of a frame that the program hands to user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Meta {
    /// Number of the frame: how many of this (port, queue, group of flows) were handed over, this one included.
    pub count: u64,
    pub tag: u32,
    pub bucket: u8,
    pub pri: u8,
    pub format: u8,
    pub port: u8,
    /// Which of the following fields are valid ([`note`]).
    pub flags: u32,
    /// TPID of a VLAN tag that the driver took out of the data, in network order.
    pub tpid: u16,
    /// TCI of that tag, in the machine's order.
    pub tci: u16,
    /// Offset in the frame at which its partial checksum starts.
    pub csum_start: u16,
    /// Offset from there to the checksum field.
    pub csum_offset: u16,
    pub spare: u32,
}

/// Flags of [`Meta`].
pub mod note {
    /// The metadata holds a VLAN tag.
    pub const TAG: u32 = 1;
    /// The program can tell partial checksums from complete ones.
    pub const SEES: u32 = 2;
    /// The frame's checksum is partial.
    pub const PARTIAL: u32 = 4;
}

impl Meta {
    /// Length of the metadata in bytes.
    pub const LEN: usize = 32;
    /// Marks metadata; other bytes may stand there by chance.
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
