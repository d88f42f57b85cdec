//! Virtual switch commands 5200h to 5203h.
//!
//! [`VcsInfos`] is a list of blocks, each of 4 bytes and 4 more for each virtual bridge.
//!
//! Source: docs/spec/wire-formats.md §4.3; CXL 3.1 section 7.6.7.2.

use core::fmt;

use super::layout::{codes, message, record};
use super::wire::{List, Payload, Wire, exact, get, room, set};
use crate::{Layer, ParseError};

message! {
    /// Request of Get Virtual CXL Switch Info (5200h).
    struct GetVcsInfo: 3 {
        /// First vPPB of each VCS to report.
        0 => start: u8,
        /// vPPBs of each VCS to report at most.
        1 => limit: u8,
    }
    /// Numbers of the virtual switches to report.
    2 as u8 => vcss: [u8]
}

record! {
    /// State of a virtual bridge.
    struct VppbState: 4 {
        /// 0 unbound, 1 bind or unbind in progress, 2 bound to a port, 3 bound to an LD, 4 bound by PID.
        0 => status: u8,
        /// Physical port that it is bound to; 255 without one.
        1 => port: u8,
        /// LD that it is bound to; 255 without one.
        2 => ld: u8,
    }
}

/// A virtual switch and some of its bridges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcsInfo<'a> {
    /// Number of the virtual switch.
    pub vcs: u8,
    /// 0 disabled, 1 enabled, 255 invalid id.
    pub state: u8,
    /// Physical port of its upstream port.
    pub usp: u8,
    /// Its bridges from the first one asked for, at most as many as the limit says.
    pub vppbs: List<'a, VppbState>,
}

impl<'a> VcsInfo<'a> {
    /// Bytes before the bridges.
    const HEAD: usize = 4;

    /// Splits a block off the front.
    fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), ParseError> {
        let [vcs, state, usp, count] = get(bytes, 0)?;
        let need = Self::HEAD + usize::from(count) * VppbState::LEN;
        let short = || ParseError::short(Layer::CciPayload, need, bytes.len());
        let (block, rest) = bytes.split_at_checked(need).ok_or_else(short)?;
        let list = block.get(Self::HEAD..).unwrap_or_default();
        let vppbs = List::parse(list, Self::HEAD, usize::from(count))?;
        Ok((Self { vcs, state, usp, vppbs }, rest))
    }
}

/// Response of Get Virtual CXL Switch Info (5200h), as bytes or about to be sent.
///
/// Byte 3 of a block is taken as the number of bridges that follow, so that a response can be read
/// without its request.
#[derive(Clone, Copy)]
pub struct VcsInfos<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    /// As many whole blocks as `count`.
    Bytes {
        count: u8,
        blocks: &'a [u8],
    },
    Items(&'a [VcsInfo<'a>]),
}

impl<'a> VcsInfos<'a> {
    /// Bytes before the blocks.
    const HEAD: usize = 4;

    /// A response to be sent.
    #[must_use]
    pub const fn of(items: &'a [VcsInfo<'a>]) -> Self {
        Self(Source::Items(items))
    }

    /// Virtual switches in the response.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.0 {
            Source::Bytes { count, .. } => usize::from(count),
            Source::Items(items) => items.len(),
        }
    }

    /// Whether the response has no virtual switch.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The virtual switches in the order of the message.
    pub fn iter(&self) -> impl Iterator<Item = VcsInfo<'a>> + use<'a> {
        let (mut bytes, items) = match self.0 {
            // one chain of two halves, of which one is empty, gives both sources one iterator type
            Source::Bytes { blocks, .. } => (blocks, &[][..]),
            Source::Items(items) => (&[][..], items),
        };
        let read = core::iter::from_fn(move || {
            let (block, rest) = VcsInfo::split(bytes).ok()?;
            bytes = rest;
            Some(block)
        });
        read.chain(items.iter().copied())
    }
}

impl<'a> Payload<'a> for VcsInfos<'a> {
    fn parse(payload: &'a [u8]) -> Result<Self, ParseError> {
        let [count, _, _, _]: [u8; 4] = get(payload, 0)?;
        let blocks = payload.get(Self::HEAD..).unwrap_or_default();
        // every block is read once here, so that `iter` meets no error later
        let mut rest = blocks;
        for _ in 0..count {
            (_, rest) = VcsInfo::split(rest)?;
        }
        exact(rest, 0)?;
        Ok(Self(Source::Bytes { count, blocks }))
    }

    fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let head = room(out, Self::HEAD)?;
        set(head, 0, &u8::try_from(self.len()).ok()?);
        let mut end = Self::HEAD;
        for block in self.iter() {
            let count = u8::try_from(block.vppbs.len()).ok()?;
            let head = room(out.get_mut(end..)?, VcsInfo::HEAD)?;
            set(head, 0, &[block.vcs, block.state, block.usp, count]);
            end = block.vppbs.emit(out, end + VcsInfo::HEAD)?;
        }
        Some(end)
    }
}

impl PartialEq for VcsInfos<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl Eq for VcsInfos<'_> {}

impl fmt::Debug for VcsInfos<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

record! {
    /// Request of Bind vPPB (5201h); the command goes on in the background.
    struct BindVppb: 6 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// Number of the vPPB in it.
        1 => vppb: u8,
        /// Number of the physical port.
        2 => port: u8,
        /// LD-ID behind the port; 65535 for a device that is no MLD.
        4 => ld: u16,
    }
}

codes! {
    /// Way in which a port leaves its host when its vPPB is unbound.
    enum UnbindOption: Operation, 0xF {
        /// Waits until the host has taken the link down.
        0 => WaitLinkDown,
        /// Managed hot removal: the host is asked first.
        1 => Managed,
        /// Surprise removal: at once, without asking.
        2 => Surprise,
    }
}

record! {
    /// Request of Unbind vPPB (5202h); the command goes on in the background.
    struct UnbindVppb: 3 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// Number of the vPPB in it.
        1 => vppb: u8,
        /// Way in which the device leaves the host.
        2 => option: UnbindOption,
    }
}

record! {
    /// Request of Generate AER Event (5203h).
    struct GenerateAer: 40 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// Number of the vPPB in it.
        1 => vppb: u8,
        /// Error bits as in the AER capability.
        4 => error: u32,
        /// Header of the TLP that is at fault.
        8 => tlp: [u8; 32],
    }
}
