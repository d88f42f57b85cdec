//! The front of a frame, copied to the stack: the verifier accepts the shared parser's slices there, but refuses packet
//! pointers with variable offsets.
//!
//! A [`Frame`] has the first 64 bytes, zeros behind a shorter frame, and the length.
//!
//! Source: Linux `bpf_xdp_load_bytes` (5.18); `Documentation/networking/xdp-rx-metadata.rst`.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_xdp_load_bytes;
use aya_ebpf::programs::XdpContext;
use weft_parsers::partial::{TCP_FIELD, UDP_FIELD};
use weft_parsers::{HEAD_LEN, Head, ethernet, ipv4, ipv6, parse_head, vlan};

use crate::layout::{PortRules, placeholder};

/// Shortest frame on a wire in bytes, without FCS: the most common length below that of a head.
const SHORTEST: usize = 60;

/// A frame before it is parsed.
pub struct Frame<'a> {
    /// Its first bytes, zeros behind a shorter frame.
    pub bytes: &'a [u8; HEAD_LEN],
    /// Length in bytes, without FCS.
    pub len: usize,
}

impl<'a> Frame<'a> {
    /// Reads the front of the current frame, which is in one piece, into `front`.
    #[inline(always)]
    pub fn read(ctx: &XdpContext, front: &'a mut Front) -> Self {
        let (start, end) = (ctx.data(), ctx.data_end());
        let len = end - start;
        let to = front.0.as_mut_ptr().cast::<[u8; HEAD_LEN]>();
        // Nearly all frames have 64 bytes or more, or exactly 60. These are read by direct loads: the helper costs a
        // call, and clearing the room before it costs more.
        if start + HEAD_LEN <= end {
            front.copy(start, HEAD_LEN);
        } else if start + SHORTEST <= end {
            front.copy(start, SHORTEST);
            if len > SHORTEST && !load(ctx, 0, to, len) {
                front.clear(); // cannot happen: the bounds were checked above
            }
        } else {
            front.clear();
            if !load(ctx, 0, to, len) {
                front.clear(); // an empty frame, which no driver delivers
            }
        }
        // SAFETY: all 64 bytes were read, or cleared before.
        Self { bytes: unsafe { &*to }, len }
    }

    /// Parses the frame by the pipeline's own parser; `None` if it is malformed.
    #[inline(always)]
    pub fn parse(&self, rules: &PortRules) -> Option<Head> {
        let head = parse_head(self.bytes, self.len, &rules.parse_config()).ok()?;
        // Otherwise the verifier follows the rest of the program once per path through the parser, some fifty times.
        Some(head.with_rest(head.rest().map(forgotten)))
    }
}

/// Room for the front of a frame. Cleared by words: an array of bytes becomes a loop, which took longer than the
/// parser.
pub struct Front(MaybeUninit<[u64; HEAD_LEN / 8]>);

impl Front {
    /// Uninitialised room.
    #[inline(always)]
    pub const fn new() -> Self {
        Self(MaybeUninit::uninit())
    }

    #[inline(always)]
    fn clear(&mut self) {
        let words = self.0.as_mut_ptr().cast::<u64>();
        for n in 0..HEAD_LEN / 8 {
            // SAFETY: within the room; volatile, so that it stays eight stores.
            unsafe { words.add(n).write_volatile(0) };
        }
    }

    /// Copies `len` bytes from `start` on, whose presence the caller has checked: 60 or 64, a constant.
    #[inline(always)]
    fn copy(&mut self, start: usize, len: usize) {
        let (from, to) = (start as *const u64, self.0.as_mut_ptr().cast::<u64>());
        for n in 0..len / 8 {
            // SAFETY: within the frame, and within the room. Volatile for words instead of bytes: a
            // machine on which BPF needs them aligned refuses the program.
            unsafe { to.add(n).write(from.add(n).read_volatile()) };
        }
        if len % 8 != 0 {
            // SAFETY: as above, the last four bytes.
            let rest = unsafe { from.add(len / 8).cast::<u32>().read_volatile() };
            // SAFETY: as above; zeros behind them.
            unsafe { to.add(len / 8).write(u64::from(rest)) };
        }
    }
}

/// Copies `len` bytes (1 to N, a power of two) of the frame from `offset` on; returns false, and copies nothing, if
/// they are not in the frame.
#[inline(always)]
pub fn load<const N: usize>(ctx: &XdpContext, offset: usize, to: *mut [u8; N], len: usize) -> bool {
    // The compiler may know the bounds and leave the mask out, but the verifier needs to see them.
    let len = (core::hint::black_box(len).wrapping_sub(1) & (N - 1)) + 1;
    // SAFETY: the kernel writes `len` bytes, which the verifier sees to be at most N.
    unsafe { bpf_xdp_load_bytes(ctx.as_ptr().cast(), offset as u32, to.cast(), len as u32) == 0 }
}

/// Returns the same word, but makes the verifier forget its value: it does not track the upper half of a word on the
/// stack.
#[inline(always)]
fn forgotten(word: u32) -> u32 {
    let mut room = 0_u64;
    let at = &raw mut room;
    // SAFETY: a word of ours. Volatile, so that it goes to the stack and comes back.
    unsafe { at.write_volatile(u64::from(word) << 32 | 1) };
    // SAFETY: its upper half: the target is little-endian.
    unsafe { at.cast::<u32>().add(1).read_volatile() }
}

/// Two bytes of the frame at one of the offsets where a checksum can be; `None` if the frame ends before.
///
/// The verifier wants a constant offset, so each has instructions of its own: a helper that takes any offset costs half
/// as much as the parser.
#[inline(always)]
pub fn field(ctx: &XdpContext, at: usize) -> Option<u16> {
    const UDP_V4: usize = ethernet::LEN + ipv4::LEN + UDP_FIELD;
    const TCP_V4: usize = ethernet::LEN + ipv4::LEN + TCP_FIELD;
    const UDP_V6: usize = ethernet::LEN + ipv6::LEN + UDP_FIELD;
    const TCP_V6: usize = ethernet::LEN + ipv6::LEN + TCP_FIELD;
    const TAGGED_UDP_V4: usize = vlan::LEN + UDP_V4;
    const TAGGED_TCP_V4: usize = vlan::LEN + TCP_V4;
    const TAGGED_UDP_V6: usize = vlan::LEN + UDP_V6;
    const TAGGED_TCP_V6: usize = vlan::LEN + TCP_V6;
    let bytes = match at {
        UDP_V4 => bytes::<UDP_V4>(ctx),
        TCP_V4 => bytes::<TCP_V4>(ctx),
        UDP_V6 => bytes::<UDP_V6>(ctx),
        TCP_V6 => bytes::<TCP_V6>(ctx),
        TAGGED_UDP_V4 => bytes::<TAGGED_UDP_V4>(ctx),
        TAGGED_TCP_V4 => bytes::<TAGGED_TCP_V4>(ctx),
        TAGGED_UDP_V6 => bytes::<TAGGED_UDP_V6>(ctx),
        TAGGED_TCP_V6 => bytes::<TAGGED_TCP_V6>(ctx),
        _ => None,
    };
    bytes.map(u16::from_be_bytes)
}

/// The two bytes at offset `AT`.
#[inline(always)]
fn bytes<const AT: usize>(ctx: &XdpContext) -> Option<[u8; 2]> {
    let (start, end) = (ctx.data(), ctx.data_end());
    // SAFETY: within the frame, as was just seen.
    (start + AT + 2 <= end).then(|| unsafe { ((start + AT) as *const [u8; 2]).read_volatile() })
}

/// A VLAN tag that the driver took out of the data.
#[derive(Clone, Copy)]
pub struct Tag {
    /// TPID, in network order.
    pub tpid: u16,
    /// TCI, in the machine's order.
    pub tci: u16,
}

/// Reads the tag that the driver took out of the data; `None` if there is none, or this program cannot ask.
#[inline(always)]
pub fn tag(ctx: &XdpContext) -> Option<Tag> {
    let mut tag = Tag { tpid: 0, tci: 0 };
    // SAFETY: a number, in whose place the loader puts a function of the kernel that takes these.
    let ask: extern "C" fn(*mut core::ffi::c_void, *mut u16, *mut u16) -> i32 =
        unsafe { core::mem::transmute(placeholder::VLAN_TAG) };
    (ask(ctx.as_ptr(), &raw mut tag.tpid, &raw mut tag.tci) == 0).then_some(tag)
}

/// State of the frame's checksum, as a value of [`checksum`].
#[inline(always)]
pub fn left(ctx: &XdpContext) -> u64 {
    // SAFETY: as in `tag`, or a constant.
    let ask: extern "C" fn(*mut core::ffi::c_void) -> u64 =
        unsafe { core::mem::transmute(placeholder::CHECKSUM) };
    ask(ctx.as_ptr())
}

/// Number of buckets of stations, less one.
#[inline(always)]
pub fn stations() -> u32 {
    // SAFETY: as in `port`.
    let ask: extern "C" fn() -> u32 = unsafe { core::mem::transmute(placeholder::STATIONS) };
    ask()
}

/// Number of the port that this program is for.
#[inline(always)]
pub fn port() -> u32 {
    // SAFETY: a number, in whose place the loader puts a constant.
    let ask: extern "C" fn() -> u32 = unsafe { core::mem::transmute(placeholder::PORT) };
    // The loader's constant is in range; the mask lets the verifier bound indices into maps.
    ask() & (crate::layout::PORTS as u32 - 1)
}
