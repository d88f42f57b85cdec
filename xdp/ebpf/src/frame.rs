//! The front of a frame, copied to the stack: there the shared parser's slices satisfy the verifier,
//! which refuses packet pointers with variable offsets.
//!
//! Shape: [`Frame`]: the first 64 octets, zeros behind a shorter frame, and the length.
//! Units: octets, without FCS.
//! Source: Linux `bpf_xdp_load_bytes` (5.18), `bpf_xdp_get_buff_len`.

use core::mem::MaybeUninit;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::helpers::generated::{bpf_xdp_get_buff_len, bpf_xdp_load_bytes};
use aya_ebpf::programs::XdpContext;
use weft_parsers::{HEAD_LEN, Head, parse_head};

use crate::layout::PortRules;

/// What is known of a frame before it is parsed.
pub struct Frame {
    /// Its first octets.
    pub octets: [u8; HEAD_LEN],
    /// All of it.
    pub len: usize,
}

impl Frame {
    /// Reads the front of the frame at hand.
    #[inline(always)]
    pub fn read<const FRAGS: bool>(ctx: &XdpContext) -> Self {
        let len = if FRAGS {
            // SAFETY: the context is the one that the program was called with.
            unsafe { bpf_xdp_get_buff_len(ctx.as_ptr().cast()) as usize }
        } else {
            ctx.data_end() - ctx.data()
        };
        let mut front = Front(MaybeUninit::uninit());
        let to = front.0.as_mut_ptr().cast::<[u8; HEAD_LEN]>();
        if len < HEAD_LEN {
            front.clear();
        }
        let part = if len < HEAD_LEN { len } else { HEAD_LEN };
        if !load(ctx, 0, to, part) {
            front.clear(); // an empty frame, which no driver delivers
        }
        // SAFETY: all 64 octets were read, or cleared before.
        Self { octets: unsafe { to.read() }, len }
    }

    /// What the pipeline's own parser says; `None` when malformed.
    #[inline(always)]
    pub fn parse(&self, rules: &PortRules) -> Option<Head> {
        parse_head(&self.octets, self.len, &rules.parse_config()).ok()
    }
}

/// Room for the front of a frame. It is cleared by words: what the compiler makes of an array of
/// octets is a loop, and took longer than the parser.
struct Front(MaybeUninit<[u64; HEAD_LEN / 8]>);

impl Front {
    #[inline(always)]
    fn clear(&mut self) {
        let words = self.0.as_mut_ptr().cast::<u64>();
        for n in 0..HEAD_LEN / 8 {
            // SAFETY: within the room; volatile, so that it stays eight stores.
            unsafe { words.add(n).write_volatile(0) };
        }
    }
}

/// Copies `len` octets of the frame from `offset` on; false, and nothing, when they are not there.
#[inline(always)]
pub fn load<const N: usize>(ctx: &XdpContext, offset: usize, to: *mut [u8; N], len: usize) -> bool {
    if len == 0 || len > N {
        return false;
    }
    // SAFETY: the kernel writes `len` octets, which the verifier sees to be at most N.
    unsafe { bpf_xdp_load_bytes(ctx.as_ptr().cast(), offset as u32, to.cast(), len as u32) == 0 }
}
