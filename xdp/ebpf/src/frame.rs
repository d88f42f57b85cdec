//! The front of a frame, copied to the stack: there the shared parser's slices satisfy the verifier,
//! which refuses packet pointers with variable offsets.
//!
//! [`Frame`]: the first 64 bytes, zeros behind a shorter frame, and the length.
//!
//! Units: bytes, without FCS.
//! Source: Linux `bpf_xdp_load_bytes` (5.18); `Documentation/networking/xdp-rx-metadata.rst`.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::bpf_xdp_load_bytes;
use aya_ebpf::programs::XdpContext;
use weft_parsers::partial::{TCP_FIELD, UDP_FIELD};
use weft_parsers::{HEAD_LEN, Head, ethernet, ipv4, ipv6, parse_head, vlan};

use crate::layout::{PortRules, placeholder};

/// Shortest frame on a wire, without FCS: the most usual of those that are shorter than a head.
const SHORTEST: usize = 60;

/// What is known of a frame before it is parsed.
pub struct Frame<'a> {
    /// Its first bytes.
    pub bytes: &'a [u8; HEAD_LEN],
    /// All of it.
    pub len: usize,
}

impl<'a> Frame<'a> {
    /// Reads the front of the frame at hand, which is in one piece, to `front`.
    #[inline(always)]
    pub fn read(ctx: &XdpContext, front: &'a mut Front) -> Self {
        let (start, end) = (ctx.data(), ctx.data_end());
        let len = end - start;
        let to = front.0.as_mut_ptr().cast::<[u8; HEAD_LEN]>();
        if start + HEAD_LEN <= end {
            front.copy(start, HEAD_LEN);
        } else if start + SHORTEST <= end {
            front.copy(start, SHORTEST);
            if len > SHORTEST && !load(ctx, 0, to, len) {
                front.clear(); // cannot be: they were just seen to be there
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

    /// What the pipeline's own parser says; `None` when malformed.
    #[inline(always)]
    pub fn parse(&self, rules: &PortRules) -> Option<Head> {
        let head = parse_head(self.bytes, self.len, &rules.parse_config()).ok()?;
        Some(head.with_rest(head.rest().map(forgotten)))
    }
}

/// Room for the front of a frame. It is cleared by words: what the compiler makes of an array of
/// bytes is a loop, and took longer than the parser.
pub struct Front(MaybeUninit<[u64; HEAD_LEN / 8]>);

impl Front {
    /// Room that nothing was written to.
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

    /// Copies `len` bytes from `start` on, which the caller has seen to be there: 60 or 64, a constant.
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

/// Copies `len` bytes of the frame from `offset` on, 1 to N, a power of two; false, and nothing, when
/// they are not there.
#[inline(always)]
pub fn load<const N: usize>(ctx: &XdpContext, offset: usize, to: *mut [u8; N], len: usize) -> bool {
    // The verifier wants to see the bounds, which the compiler may know and leave out.
    let len = (core::hint::black_box(len).wrapping_sub(1) & (N - 1)) + 1;
    // SAFETY: the kernel writes `len` bytes, which the verifier sees to be at most N.
    unsafe { bpf_xdp_load_bytes(ctx.as_ptr().cast(), offset as u32, to.cast(), len as u32) == 0 }
}

/// The same word, of which the verifier knows nothing any more: it does not follow the upper half of a
/// word on the stack.
#[inline(always)]
fn forgotten(word: u32) -> u32 {
    let mut room = 0_u64;
    let at = &raw mut room;
    // SAFETY: a word of ours. Volatile, so that it goes to the stack and comes back.
    unsafe { at.write_volatile(u64::from(word) << 32 | 1) };
    // SAFETY: its upper half: the target is little-endian.
    unsafe { at.cast::<u32>().add(1).read_volatile() }
}

/// Two bytes of the frame at one of the places where a checksum can be; `None` when it ends before.
///
/// Each place has instructions of its own, as the verifier wants a constant offset: a helper that takes
/// any costs as much as half of the parser.
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

/// The two bytes from `AT` on.
#[inline(always)]
fn bytes<const AT: usize>(ctx: &XdpContext) -> Option<[u8; 2]> {
    let (start, end) = (ctx.data(), ctx.data_end());
    // SAFETY: within the frame, as was just seen.
    (start + AT + 2 <= end).then(|| unsafe { ((start + AT) as *const [u8; 2]).read_volatile() })
}

/// A VLAN tag that is not in the data.
#[derive(Clone, Copy)]
pub struct Tag {
    /// TPID, in network order.
    pub tpid: u16,
    /// TCI, in the machine's order.
    pub tci: u16,
}

/// The tag that the driver took out of the data, if this program can ask for it.
#[inline(always)]
pub fn tag(ctx: &XdpContext) -> Option<Tag> {
    let mut tag = Tag { tpid: 0, tci: 0 };
    // SAFETY: a number, in whose place the loader puts a function of the kernel that takes these.
    let ask: extern "C" fn(*mut core::ffi::c_void, *mut u16, *mut u16) -> i32 =
        unsafe { core::mem::transmute(placeholder::VLAN_TAG) };
    (ask(ctx.as_ptr(), &raw mut tag.tpid, &raw mut tag.tci) == 0).then_some(tag)
}

/// What the host left of the frame's checksum, as [`checksum`] has it.
#[inline(always)]
pub fn left(ctx: &XdpContext) -> u64 {
    // SAFETY: as in `tag`, or a constant.
    let ask: extern "C" fn(*mut core::ffi::c_void) -> u64 =
        unsafe { core::mem::transmute(placeholder::CHECKSUM) };
    ask(ctx.as_ptr())
}

/// Buckets of stations, less one.
#[inline(always)]
pub fn stations() -> u32 {
    // SAFETY: as in `port`.
    let ask: extern "C" fn() -> u32 = unsafe { core::mem::transmute(placeholder::STATIONS) };
    ask()
}

/// The port that this program is for.
#[inline(always)]
pub fn port() -> u32 {
    // SAFETY: a number, in whose place the loader puts a constant.
    let ask: extern "C" fn() -> u32 = unsafe { core::mem::transmute(placeholder::PORT) };
    ask() & (crate::layout::PORTS as u32 - 1)
}
