//! Steering: the XDP program that hands an interface's frames to the sockets of its port.
//!
//! [`Steering`] is the interface of any such program to the port. [`Builtin`] is a program of our own that needs no
//! compiler: it hands every frame to the socket of its queue, and notes its VLAN tag and its partial checksum in front.
//!
//! Source: docs/express.md; docs/spec/pipeline.md §11; Linux `Documentation/networking/xdp-rx-metadata.rst`,
//! `Documentation/bpf/kfuncs.rst`, `drivers/net/veth.c` (`struct veth_xdp_buff`).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::btf::{self, BufferPlaces};
use crate::pool::PartialCsum;
use crate::port::bpf::asm::{
    ADD, ADD_REG, AND, CALL, EXIT, JEQ, JGT_REG, JNE, KERNEL_FUNCTION, LOAD_IMM64, LOAD8, LOAD16,
    LOAD32, LOAD64, MAP_FD, MOV, MOV_REG, OR, OR_REG, OWN_FUNCTION, SHIFT_LEFT, STORE32_REG,
    STORE64, SUB_REG, op,
};
use crate::port::bpf::{self, Link, Program};
use crate::port::tag::Tag;
use crate::types::PriSet;

/// Where an XDP program runs: in the driver, or before the host's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// In the driver, before the kernel allocates a buffer for the frame.
    Native,
    /// Before the host's stack: works with any driver, but slowly; frames are copied and metadata is not available.
    Generic,
}

/// The interface that an XDP program is attached to.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Index of the interface (ifindex).
    pub index: u32,
    /// Number of its receive queues.
    pub queues: u32,
    /// Whether its driver shows VLAN tags to programs.
    pub shows_tags: bool,
    /// Whether it is a veth, whose driver keeps the sender's buffer (`struct sk_buff`) beside the frame.
    pub is_veth: bool,
}

impl Target {
    /// BTF number of the kernel function that tells a program a frame's VLAN tag; `None` if this interface's driver has
    /// none.
    #[must_use]
    pub fn vlan_tag(&self, how: Attach) -> Option<u32> {
        if how == Attach::Native && self.shows_tags { btf::rx_vlan_tag() } else { None }
    }

    /// Instructions that read the state of a frame's checksum from the kernel; `None` if that is not possible at this
    /// interface.
    #[must_use]
    pub fn left_checksum(&self, how: Attach) -> Option<LeftChecksum> {
        if how == Attach::Native && self.is_veth {
            btf::buffer_places().map(LeftChecksum::new)
        } else {
            None
        }
    }
}

/// Bytes of a [`Note`], which the program writes right before a frame.
pub const NOTE_LEN: usize = 16;

/// A program's note on a frame: a word of [`flags`](note), TPID in network order, TCI in the machine's, where the
/// checksum starts and where it goes, and a word of 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// A VLAN tag that the driver took out of the data.
    pub tag: Option<Tag>,
    /// State of the checksum: partial or (inner `None`) complete; outer `None` where the program cannot see it.
    pub left: Option<Option<PartialCsum>>,
}

/// Flags of a [`Note`].
pub mod note {
    /// The note holds a VLAN tag.
    pub const TAG: u32 = 1;
    /// The program can tell partial checksums from complete ones.
    pub const SEES: u32 = 2;
    /// The frame's checksum is partial.
    pub const PARTIAL: u32 = 4;
}

impl Note {
    /// Reads the bytes that the program wrote.
    #[inline]
    #[must_use]
    pub fn parse(bytes: [u8; NOTE_LEN]) -> Self {
        let [f0, f1, f2, f3, t0, t1, c0, c1, s0, s1, o0, o1, ..] = bytes;
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let is = |flag: u32| flags & flag != 0;
        let partial = PartialCsum {
            start: u16::from_ne_bytes([s0, s1]),
            offset: u16::from_ne_bytes([o0, o1]),
        };
        let tag = Tag { tpid: u16::from_be_bytes([t0, t1]), tci: u16::from_ne_bytes([c0, c1]) };
        Self {
            tag: is(note::TAG).then_some(tag),
            left: is(note::SEES).then(|| is(note::PARTIAL).then_some(partial)),
        }
    }
}

/// What the attached program can see beside the data, and writes into a [`Note`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sees {
    /// VLAN tags that the driver took out.
    pub tags: bool,
    /// Whether a checksum is partial.
    pub checksums: bool,
}

/// Bytes of a [`Number`], which stands before the [`Note`].
pub const NUMBER_LEN: usize = 16;
/// Groups of flows whose order a program keeps.
pub const BUCKETS: usize = 64;

/// A number that a program with a fast path writes before the frames that it hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// How many frames of this queue and group were handed over, this one included.
    pub count: u64,
    /// The group of flows, below [`BUCKETS`].
    pub bucket: u8,
}

impl Number {
    /// Marks a number; other bytes may stand there by chance.
    pub const MAGIC: u32 = 0x7765_6674;

    /// Reads a number; `None` if the program wrote none.
    #[inline]
    #[must_use]
    pub fn parse(bytes: [u8; NUMBER_LEN]) -> Option<Self> {
        let [c0, c1, c2, c3, c4, c5, c6, c7, m0, m1, m2, m3, bucket, ..] = bytes;
        let is_number = u32::from_ne_bytes([m0, m1, m2, m3]) == Self::MAGIC;
        let count = u64::from_ne_bytes([c0, c1, c2, c3, c4, c5, c6, c7]);
        (is_number && usize::from(bucket) < BUCKETS).then_some(Self { count, bucket })
    }
}

/// A program that hands frames to sockets, for one interface.
///
/// Dropping it detaches the program; the kernel detaches it if the process is killed.
pub trait Steering: Send {
    /// Attaches to an interface, and detaches from the previous one.
    ///
    /// # Errors
    /// The kernel's answer; nothing is attached then.
    fn attach(&mut self, target: Target, how: Attach) -> io::Result<()>;

    /// Hands the frames of `queue` to `socket`, until the socket is closed.
    ///
    /// # Errors
    /// Nothing is attached, there is no such queue, or the kernel's answer.
    fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()>;

    /// Whether the program is still where it was attached.
    fn is_attached(&self) -> bool;

    /// Detaches; the sockets get no more frames.
    fn detach(&mut self);

    /// What the program writes into a [`Note`]; `None` if it writes none.
    fn sees(&self) -> Option<Sees>;

    /// Whether a program of this kind may send frames on by itself.
    fn has_fast_path(&self) -> bool {
        false
    }

    /// Whether the attached program writes a [`Number`] before the frames that it hands over.
    fn numbers(&self) -> bool {
        false
    }

    /// Lets the program send frames of `pris`, and no others, to this interface by itself.
    fn set_gate(&mut self, pris: PriSet) {
        let _ = pris;
    }

    /// Tells the program that all frames up to `number` of `queue` have left the switch, or were dropped or lost.
    /// Returns whether it has handed over none since.
    fn set_done(&mut self, queue: u32, number: Number) -> bool {
        let _ = (queue, number);
        true
    }

    /// Has the program drop the frames of the first `queues` queues until these are empty, or take all frames again.
    fn set_drain(&mut self, queues: u32, on: bool) {
        let _ = (queues, on);
    }
}

/// The built-in program: hands all frames to the sockets.
#[derive(Default)]
pub struct Builtin {
    attached: Option<Attached>,
}

struct Attached {
    // Dropped in this order: the program is detached before its map is closed.
    link: Link,
    map: OwnedFd,
    sees: Option<Sees>,
}

impl Builtin {
    /// A program that is not attached yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Steering for Builtin {
    fn attach(&mut self, target: Target, how: Attach) -> io::Result<()> {
        self.detach();
        let map = bpf::socket_map(target.queues)?;
        let (vlan_tag, left) = (target.vlan_tag(how), target.left_checksum(how));
        // First with all notes that the driver offers. Reading checksums takes CAP_PERFMON, and either may be refused
        // by the kernel, so try less each time.
        let wishes = [(vlan_tag, left), (vlan_tag, None)];
        let noting = wishes.into_iter().filter(|wish| *wish != (None, None)).find_map(|wish| {
            let (vlan_tag, left) = wish;
            // The kernel lets only a program bound to its device call the driver's metadata functions.
            let bound_to = vlan_tag.map(|_| target.index);
            let program = Program::load(&program(map.as_fd(), vlan_tag, left.as_ref()), bound_to);
            let sees = Sees { tags: vlan_tag.is_some(), checksums: left.is_some() };
            program.ok().map(|program| (program, Some(sees)))
        });
        let (program, sees) = match noting {
            Some(noting) => noting,
            None => (Program::load(&program(map.as_fd(), None, None), None)?, None),
        };
        let link = Link::attach(&program, target.index, how == Attach::Native)?;
        self.attached = Some(Attached { link, map, sees });
        Ok(())
    }

    fn set_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        match &self.attached {
            Some(attached) => bpf::set_socket(attached.map.as_fd(), queue, socket),
            None => Err(io::Error::from_raw_os_error(libc::ENOTCONN)),
        }
    }

    fn is_attached(&self) -> bool {
        self.attached.as_ref().is_some_and(|attached| attached.link.is_attached())
    }

    fn detach(&mut self) {
        self.attached = None;
    }

    fn sees(&self) -> Option<Sees> {
        self.attached.as_ref()?.sees
    }
}

// Instructions ----------------------------------------------------------------------------------

const ADJUST_META: i32 = 54;
const REDIRECT_MAP: i32 = 51;
/// Offsets of fields of `xdp_md`.
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const RX_QUEUE: i16 = 16;
/// Register that points to the end of the stack.
const FP: u8 = 10;
/// Verdict for frames of a queue without a socket, and for frames without room for a note: the port would take whatever
/// bytes stand there for one.
const XDP_DROP: i32 = 1;

/// Hands the frame whose context is in register 6 to the socket of its queue.
fn steer(map: BorrowedFd<'_>) -> [u64; 6] {
    [
        op(LOAD32, 2, 6, RX_QUEUE, 0),
        op(LOAD_IMM64, 1, MAP_FD, 0, map.as_raw_fd()),
        0, // the upper half of the constant
        op(MOV, 3, 0, 0, XDP_DROP),
        op(CALL, 0, 0, 0, REDIRECT_MAP),
        op(EXIT, 0, 0, 0, 0),
    ]
}

/// The program over the sockets in `map`. With `vlan_tag` (number of `bpf_xdp_metadata_rx_vlan_tag`) or `left` it
/// writes a [`Note`] before each frame.
fn program(map: BorrowedFd<'_>, vlan_tag: Option<u32>, left: Option<&LeftChecksum>) -> Vec<u64> {
    const LEN: i32 = 16;
    /// Distance of the call to the function behind the program.
    const TO_LEFT: i32 = 21;
    const { assert!(LEN as usize == NOTE_LEN) };
    if vlan_tag.is_none() && left.is_none() {
        return [&[op(MOV_REG, 6, 1, 0, 0)][..], &steer(map)].concat();
    }
    // A note that is not available becomes a constant, so that the code has one shape and jump distances do not change.
    // The checksum takes several steps, in a function behind the program.
    let ask_tag = vlan_tag.map_or(op(MOV, 0, 0, 0, -1), kernel_function);
    let ask_left = left.map_or(op(MOV, 0, 0, 0, 0), |_| op(CALL, 0, OWN_FUNCTION, 0, TO_LEFT));
    let sees = if left.is_some() { note::SEES } else { 0 };
    #[rustfmt::skip] // columns: instruction, where to if it jumps
    let note = [
        op(MOV_REG, 6, 1, 0, 0),
        op(MOV, 2, 0, 0, -LEN),
        op(CALL, 0, 0, 0, ADJUST_META),
        op(JNE, 0, 0, 31, 0),                   // to drop
        op(STORE64, FP, 0, -8, 0),
        op(MOV_REG, 1, 6, 0, 0),
        op(MOV_REG, 2, FP, 0, 0),
        op(ADD, 2, 0, 0, -8),                   // TPID goes there,
        op(MOV_REG, 3, FP, 0, 0),
        op(ADD, 3, 0, 0, -6),                   // TCI there
        ask_tag,
        op(MOV, 7, 0, 0, sees.cast_signed()),   // flags
        op(JNE, 0, 0, 1, 0),
        op(OR, 7, 0, 0, note::TAG.cast_signed()),
        op(MOV_REG, 1, 6, 0, 0),
        ask_left,
        op(JEQ, 0, 0, 1, 0),
        op(OR, 7, 0, 0, note::PARTIAL.cast_signed()),
        op(LOAD32, 2, 6, DATA_META, 0),
        op(LOAD32, 3, 6, DATA, 0),
        op(MOV_REG, 4, 2, 0, 0),
        op(ADD, 4, 0, 0, LEN),
        op(JGT_REG, 4, 3, 12, 0),               // to drop
        op(STORE32_REG, 2, 7, 0, 0),
        op(LOAD32, 5, FP, -8, 0),
        op(STORE32_REG, 2, 5, 4, 0),
        op(STORE32_REG, 2, 0, 8, 0),            // the lower half: start, and where it goes
        op(MOV, 5, 0, 0, 0),
        op(STORE32_REG, 2, 5, 12, 0),
    ];
    let mut code = note.to_vec();
    code.extend(steer(map));
    // drop:
    code.extend([op(MOV, 0, 0, 0, XDP_DROP), op(EXIT, 0, 0, 0, 0)]);
    if let Some(left) = left {
        code.extend(left.instructions());
    }
    code
}

const fn kernel_function(number: u32) -> u64 {
    op(CALL, 0, KERNEL_FUNCTION, 0, number.cast_signed())
}

/// A function that reads the state of a frame's checksum from the kernel: takes the context, returns 0 if the checksum
/// is complete, else 1 in the upper word and, in the lower one's halves, where it goes and where it starts.
///
/// veth gives a program the bytes of the sender's buffer, but not its `ip_summed`. The buffer itself stands behind the
/// program's context, for the driver's own functions; a program under the GPL with `CAP_PERFMON` may read it. A frame
/// that another program redirected here has no buffer; the kernel takes its checksum to be complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftChecksum([u64; 24]);

impl LeftChecksum {
    fn new(places: &BufferPlaces) -> Self {
        // Values of `ip_summed`: include/linux/skbuff.h.
        const PARTIAL: i32 = 3; // CHECKSUM_PARTIAL
        let (state, bit) = places.state;
        let [partial, mask] = [PARTIAL << bit, 3 << bit];
        let at = |place: u16| i16::try_from(place).unwrap_or(i16::MAX); // no struct is so long
        #[rustfmt::skip] // columns: instruction, where to if it jumps
        let code = [
            kernel_function(places.to_kernel),
            op(LOAD64, 6, 0, at(places.data), 0),
            op(MOV_REG, 1, 0, 0, 0),
            op(ADD, 1, 0, 0, places.buffer.into()),
            op(MOV, 2, 0, 0, places.pointer.cast_signed()),
            kernel_function(places.read_only),
            op(LOAD64, 7, 0, 0, 0),
            op(MOV, 0, 0, 0, 0),
            op(JEQ, 7, 0, 14, 0),               // to the end: no buffer
            op(LOAD8, 1, 7, at(state), 0),
            op(AND, 1, 0, 0, mask),
            op(JNE, 1, 0, 11, partial),         // to the end: complete
            op(LOAD64, 1, 7, at(places.head), 0),
            op(LOAD16, 2, 7, at(places.csum_start), 0),
            op(ADD_REG, 1, 2, 0, 0),
            op(SUB_REG, 1, 6, 0, 0),
            op(AND, 1, 0, 0, 0xFFFF),
            op(LOAD16, 0, 7, at(places.csum_offset), 0),
            op(SHIFT_LEFT, 0, 0, 0, 16),
            op(OR_REG, 0, 1, 0, 0),
            op(MOV, 1, 0, 0, 1),
            op(SHIFT_LEFT, 1, 0, 0, 32),
            op(OR_REG, 0, 1, 0, 0),
            op(EXIT, 0, 0, 0, 0),
        ];
        Self(code)
    }

    /// The function's code, which the loader puts behind a program.
    #[must_use]
    pub const fn instructions(&self) -> &[u64; 24] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_its_flags_say() {
        let [c0, c1] = 0x6005_u16.to_ne_bytes();
        let ([s0, s1], [o0, o1]) = (84_u16.to_ne_bytes(), 16_u16.to_ne_bytes());
        let tag = Tag { tpid: 0x88A8, tci: 0x6005 };
        let partial = PartialCsum { start: 84, offset: 16 };
        #[rustfmt::skip] // columns: name, flags, tag, what is left
        let cases = [
            ("nothing seen", 0,                              None,      None),
            ("tag",          note::TAG,                      Some(tag), None),
            ("complete",     note::SEES,                     None,      Some(None)),
            ("partial",      note::SEES | note::PARTIAL,     None,      Some(Some(partial))),
            ("all",          7,                              Some(tag), Some(Some(partial))),
            ("not seen",     note::PARTIAL,                  None,      None),
        ];
        for (name, flags, tag, left) in cases {
            let [f0, f1, f2, f3] = u32::to_ne_bytes(flags);
            let bytes = [f0, f1, f2, f3, 0x88, 0xA8, c0, c1, s0, s1, o0, o1, 9, 9, 9, 9];
            assert_eq!(Note::parse(bytes), Note { tag, left }, "{name}");
        }
    }

    /// A jump that leads elsewhere would be found by the verifier only where there is a kernel to ask.
    #[test]
    fn jumps_lead_where_they_should() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let left = LeftChecksum([0; 24]);
        let to = |code: &[u64], at: usize| {
            let word = code[at];
            let offset = (word >> 16 & 0xFFFF) as u16;
            at + 1 + usize::from(offset)
        };
        for vlan_tag in [None, Some(7)] {
            let code = program(file.as_fd(), vlan_tag, Some(&left));
            let end = code.len() - left.instructions().len();
            assert_eq!(code[end - 2], op(MOV, 0, 0, 0, XDP_DROP));
            assert_eq!([to(&code, 3), to(&code, 22)], [end - 2; 2], "to drop");
            assert_eq!([to(&code, 12), to(&code, 16)], [14, 18], "over one");
            let call = (code[15] >> 32) as usize;
            assert_eq!(16 + call, end, "to the function");
        }
    }

    #[test]
    fn what_is_not_attached_takes_no_socket() {
        let mut steering = Builtin::new();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!steering.is_attached() && steering.sees().is_none());
        assert!(steering.set_socket(0, file.as_fd()).is_err());
        steering.detach();
    }
}
