//! Steering: the XDP program that hands an interface's frames to the sockets of its port.
//!
//! Shape: [`Steering`] is what the port asks of any such program; [`Builtin`] is one of our own that
//! needs no compiler: to the socket of the frame's queue, whatever the frame, its tag noted before it.
//! Units: bytes, queues.
//! Source: docs/express.md; docs/spec/pipeline.md §11; Linux `Documentation/networking/xdp-rx-metadata.rst`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::bpf::{self, Link, Program};
use super::btf;
use crate::types::PriSet;

/// Where an XDP program runs: in the driver, or before the host's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// In the driver, before the kernel has made anything of a frame.
    Native,
    /// Before the host's stack: any driver, but slow; frames are copied, and no metadata is seen.
    Generic,
}

/// The interface that an XDP program is attached to.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its index.
    pub index: u32,
    /// How many queues it receives by.
    pub queues: u32,
    /// Whether its driver shows VLAN tags to programs.
    pub shows_tags: bool,
}

impl Target {
    /// The number of the kernel's function that tells a program of a frame's tag, if this interface's
    /// driver has it.
    #[must_use]
    pub fn vlan_tag(&self, how: Attach) -> Option<u32> {
        if how == Attach::Native && self.shows_tags { btf::rx_vlan_tag() } else { None }
    }
}

/// Bytes of a [`TagNote`].
pub const TAG_NOTE_LEN: usize = 8;

/// What a program writes about a frame's VLAN tag: a word that is 0 if there is none, TPID in network
/// order, TCI in the machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagNote {
    /// Tag protocol.
    pub tpid: u16,
    /// Priority, DEI and VID.
    pub tci: u16,
}

impl TagNote {
    /// The tag that is noted, if there is one.
    #[inline]
    #[must_use]
    pub fn parse(bytes: [u8; TAG_NOTE_LEN]) -> Option<Self> {
        let [f0, f1, f2, f3, t0, t1, c0, c1] = bytes;
        let (tpid, tci) = (u16::from_be_bytes([t0, t1]), u16::from_ne_bytes([c0, c1]));
        ([f0, f1, f2, f3] != [0; 4]).then_some(Self { tpid, tci })
    }
}

/// Bytes of a [`Number`], which stands before the [`TagNote`].
pub const NUMBER_LEN: usize = 16;
/// Groups of flows that a program keeps in order.
pub const BUCKETS: usize = 64;

/// What a program that sends frames on by itself writes about those that it hands over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// Frames of this queue and group of flows that were handed over, this one included.
    pub count: u64,
    /// The group, below [`BUCKETS`].
    pub bucket: u8,
}

impl Number {
    /// Tells it from what may stand there by chance.
    pub const MAGIC: u32 = 0x7765_6674;

    /// The number that is noted, if there is one.
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
/// What is dropped is detached; so is, by the kernel, what a killed process had attached.
pub trait Steering: Send {
    /// Attaches to an interface in place of what this one was attached to.
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

    /// How many bytes before each frame a [`TagNote`] stands, if this program writes any.
    fn tag_note(&self) -> Option<usize>;

    /// Whether a program of this kind may send frames on by itself.
    fn has_fast_path(&self) -> bool {
        false
    }

    /// Whether the program that is attached writes a [`Number`] before the frames that it hands over.
    fn numbers(&self) -> bool {
        false
    }

    /// Lets the program send frames of `pris` to this interface by itself, and no others.
    fn set_gate(&mut self, pris: PriSet) {
        let _ = pris;
    }

    /// All frames up to `number` of `queue` have left the switch, or were dropped or lost; whether none
    /// was handed over since.
    fn set_done(&mut self, queue: u32, number: Number) -> bool {
        let _ = (queue, number);
        true
    }

    /// Has the first `queues` queues come to rest, or take all frames again.
    fn set_drain(&mut self, queues: u32, on: bool) {
        let _ = (queues, on);
    }
}

/// The smallest program that hands all frames to the sockets.
#[derive(Default)]
pub struct Builtin {
    attached: Option<Attached>,
}

struct Attached {
    // In this order: nothing is steered into a map that is gone.
    link: Link,
    map: OwnedFd,
    notes_tags: bool,
}

impl Builtin {
    /// Not attached yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Steering for Builtin {
    fn attach(&mut self, target: Target, how: Attach) -> io::Result<()> {
        self.detach();
        let map = bpf::socket_map(target.queues)?;
        let mut noting = None;
        if let Some(vlan_tag) = target.vlan_tag(how) {
            let program = program(map.as_fd(), Some(vlan_tag));
            noting = Program::load(&program, Some(target.index)).ok();
        }
        let notes_tags = noting.is_some();
        let program = match noting {
            Some(program) => program,
            None => Program::load(&program(map.as_fd(), None), None)?,
        };
        let link = Link::attach(&program, target.index, how == Attach::Native)?;
        self.attached = Some(Attached { link, map, notes_tags });
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

    fn tag_note(&self) -> Option<usize> {
        self.attached.as_ref().is_some_and(|a| a.notes_tags).then_some(TAG_NOTE_LEN)
    }
}

// Instructions ----------------------------------------------------------------------------------

const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const MOV: u8 = 0xB7;
const MOV_REG: u8 = 0xBF;
const ADD: u8 = 0x07;
const JEQ: u8 = 0x15;
const JNE: u8 = 0x55;
const JGT_REG: u8 = 0x2D;
const LOAD_IMM64: u8 = 0x18;
const LOAD32: u8 = 0x61;
const STORE32_REG: u8 = 0x63;
const STORE64: u8 = 0x7A;
/// Source "register" of a load that means a map, and of a call that means a kernel function.
const MAP_FD: u8 = 1;
const KERNEL_FUNCTION: u8 = 2;
const ADJUST_META: i32 = 54;
const REDIRECT_MAP: i32 = 51;
/// Fields of `xdp_md`.
const DATA: i16 = 0;
const DATA_META: i16 = 8;
const RX_QUEUE: i16 = 16;
/// Register that holds the stack's end.
const FP: u8 = 10;
/// Verdict for frames of a queue without a socket, and where there is no room for a note: without one,
/// what stands there would be read as one.
const XDP_DROP: i32 = 1;

/// One instruction: operation, destination and source register, offset, constant.
const fn op(code: u8, to: u8, from: u8, offset: i16, constant: i32) -> u64 {
    let registers = (to | from << 4) as u64;
    let (offset, constant) = (offset.cast_unsigned() as u64, constant.cast_unsigned() as u64);
    code as u64 | registers << 8 | offset << 16 | constant << 32
}

/// Hands the frame, whose context is in register 6, to the socket of its queue.
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

/// The program over the sockets in `map`; with the number of `bpf_xdp_metadata_rx_vlan_tag` it notes
/// the tag of each frame.
fn program(map: BorrowedFd<'_>, vlan_tag: Option<u32>) -> Vec<u64> {
    let mut code = vec![op(MOV_REG, 6, 1, 0, 0)];
    if let Some(vlan_tag) = vlan_tag {
        const LEN: i32 = 8;
        const { assert!(LEN as usize == TAG_NOTE_LEN) };
        #[rustfmt::skip] // columns: instruction, where to if it jumps
        let note = [
            op(MOV, 2, 0, 0, -LEN),
            op(CALL, 0, 0, 0, ADJUST_META),
            op(JNE, 0, 0, 24, 0),                   // to drop
            op(STORE64, FP, 0, -8, 0),
            op(MOV_REG, 1, 6, 0, 0),
            op(MOV_REG, 2, FP, 0, 0),
            op(ADD, 2, 0, 0, -8),                   // TPID goes there,
            op(MOV_REG, 3, FP, 0, 0),
            op(ADD, 3, 0, 0, -6),                   // TCI there
            op(CALL, 0, KERNEL_FUNCTION, 0, vlan_tag.cast_signed()),
            op(LOAD32, 2, 6, DATA_META, 0),
            op(LOAD32, 3, 6, DATA, 0),
            op(MOV_REG, 4, 2, 0, 0),
            op(ADD, 4, 0, 0, LEN),
            op(JGT_REG, 4, 3, 12, 0),               // to drop
            op(MOV, 5, 0, 0, 1),
            op(JEQ, 0, 0, 1, 0),                    // a tag was found: over the next one
            op(MOV, 5, 0, 0, 0),
            op(STORE32_REG, 2, 5, 0, 0),
            op(LOAD32, 5, FP, -8, 0),
            op(STORE32_REG, 2, 5, 4, 0),
        ];
        code.extend(note);
    }
    code.extend(steer(map));
    // drop:
    if vlan_tag.is_some() {
        code.extend([op(MOV, 0, 0, 0, XDP_DROP), op(EXIT, 0, 0, 0, 0)]);
    }
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_without_a_tag_is_none() {
        let tag = |bytes| TagNote::parse(bytes).map(|note| (note.tpid, note.tci));
        let [c0, c1] = 0x6005_u16.to_ne_bytes();
        assert_eq!(tag([0, 0, 0, 0, 0x88, 0xA8, c0, c1]), None);
        for word in [[1, 0, 0, 0], [0, 0, 0, 1]] {
            let [w0, w1, w2, w3] = word;
            let bytes = [w0, w1, w2, w3, 0x88, 0xA8, c0, c1];
            assert_eq!(tag(bytes), Some((0x88A8, 0x6005)));
        }
    }

    #[test]
    fn what_is_not_attached_takes_no_socket() {
        let mut steering = Builtin::new();
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(!steering.is_attached() && steering.tag_note().is_none());
        assert!(steering.set_socket(0, file.as_fd()).is_err());
        steering.detach();
    }
}
