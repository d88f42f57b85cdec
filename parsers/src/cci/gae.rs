//! Commands of a GAE (58xxh) and of a VCS's GAE (59xxh) that are not table entries.
//!
//! Fixed records; lists of PIDs and of segment counts. Tables are in [`super::tables`].
//!
//! Units: bytes; entries.
//! Source: docs/spec/wire-formats.md §4.6; CXL 3.1 sections 7.7.14 and 7.7.15.

use super::layout::{codes, message, record};
use super::pbr::PathCost;
use super::tables::{PidOp, VectorRange};
use super::wire::{Bits, Wire, front, put_front};
use crate::ParseError;
use crate::fabric::{Hpa, Pid};

record! {
    /// Request of Identify GAE (5800h).
    struct GaeRange: 2 {
        /// First bridge.
        0 => start: u8,
        /// Bridges.
        1 => count: u8,
    }
}

record! {
    /// Request of Identify VCS GAE (5900h).
    struct VcsGaeRange: 3 {
        /// The VCS.
        0 => vcs: u8,
        /// Which bridges.
        1 => range: GaeRange,
    }
}

/// Capabilities of a GAE: the first two bytes of [`GaeIdentity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaeCaps {
    /// PIDs that can be enabled, 12 bits.
    pub pids_max: u16,
    /// VendPrefixL0 on requests that leave and completions that enter.
    pub prefix_out: bool,
    /// VendPrefixL0 on requests that enter.
    pub prefix_in: bool,
    /// GIM can be set up.
    pub gim: bool,
}

impl Wire for GaeCaps {
    const LEN: usize = 2;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let word = u16::read(bytes)?;
        Ok(Self {
            pids_max: word & 0xFFF,
            prefix_out: word & 0x1000 != 0,
            prefix_in: word & 0x2000 != 0,
            gim: word & 0x4000 != 0,
        })
    }

    fn write(&self, bytes: &mut [u8]) {
        let prefixes = (u16::from(self.prefix_out) << 12) | (u16::from(self.prefix_in) << 13);
        ((self.pids_max & 0xFFF) | prefixes | (u16::from(self.gim) << 14)).write(bytes);
    }
}

record! {
    /// What a bridge has of FAST.
    struct VppbFast: 4 {
        /// Entries of its FAST.
        0 => segments: u16,
    }
}

message! {
    /// Response of Identify GAE (5800h) and Identify VCS GAE (5900h).
    struct GaeIdentity: 8 {
        /// What it can do.
        0 => caps: GaeCaps,
        /// Threads that forward commands to GFDs.
        2 => threads: u16,
        /// Those that are free.
        4 => free: u16,
        /// First bridge.
        6 => start: u8,
    }
    /// One for each bridge.
    7 as u8 => vppbs: [VppbFast]
}

record! {
    /// Request of Get PID Interrupt Vector (5801h).
    struct GetInterrupts: 9 {
        /// Which part.
        0 => range: VectorRange,
        /// Clears what was read.
        8 => clear: bool,
    }
}

/// Where VendPrefixL0 is on, or can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixFlags {
    /// Bit 0: requests that leave, completions that enter.
    pub out: bool,
    /// Bit 1: requests that enter.
    pub into: bool,
}

impl Wire for PrefixFlags {
    const LEN: usize = 1;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [byte] = front(bytes)?;
        Ok(Self { out: byte & 1 != 0, into: byte & 2 != 0 })
    }

    fn write(&self, bytes: &mut [u8]) {
        put_front(bytes, [u8::from(self.out) | (u8::from(self.into) << 1)]);
    }
}

record! {
    /// Request of Get FAST/IDT Capabilities (5803h).
    struct GetFastCaps: 4 {
        /// The bridge.
        0 => vppb: u8,
    }
}

message! {
    /// Response of Get FAST/IDT Capabilities (5803h).
    struct FastCaps: 26 {
        /// The bridge.
        0 => vppb: u8,
        /// Entries of the FAST.
        1 => segments: u16,
        /// Code of the segment size, 64 GB << n.
        3 => segment_size: u8,
        /// Entries of the interleave DPID table.
        4 => idt: u16,
        /// Where VendPrefixL0 is on.
        7 => prefix: PrefixFlags,
        /// First address.
        10 => base: Hpa,
        /// Last address.
        18 => limit: Hpa,
    }
    /// Own PIDs.
    6 as u8 => pids: [Pid]
}

record! {
    /// Request of Set FAST/IDT Configuration (5804h).
    struct SetFast: 20 {
        /// The bridge.
        0 => vppb: u8,
        /// Code of the segment size, 64 GB << n.
        1 => segment_size: u8,
        /// Where VendPrefixL0 is on.
        2 => prefix: PrefixFlags,
        /// First address; 0 turns it off.
        4 => base: Hpa,
        /// Last address; 0 turns it off.
        12 => limit: Hpa,
    }
}

record! {
    /// Request of Proxy GFD Management Command (5809h).
    struct ProxyCommand: 22 {
        /// The GFD.
        0 => pid: Pid,
        /// Where in the host's memory the command is.
        2 => request: Hpa,
        /// Bytes of the command.
        10 => len: u16,
        /// Where the response is to be put.
        12 => response: Hpa,
        /// Bytes there are for it.
        20 => response_max: u16,
    }
}

record! {
    /// Response of Proxy GFD Management Command (5809h).
    struct ProxyStarted: 3 {
        /// What the thread goes by.
        0 => seq: Bits<3>,
        /// Threads that are free.
        1 => free: u16,
    }
}

/// A thread: request of 580Ah and 580Bh.
pub type ProxyThread = PidOp<Bits<3>>;

record! {
    /// Response of Get Proxy Thread Status (580Ah).
    struct ProxyStatus: 4 {
        /// It is not done yet.
        0 => running: bool,
        /// Threads that are free.
        2 => free: u16,
    }
}

codes! {
    /// What becomes of a PID in the vectors of a VCS.
    enum AccessOp: Operation, 0x7 {
        /// Sets it in the GMV.
        0 => EnableGmv,
        /// Clears it in the GMV.
        1 => DisableGmv,
        /// Sets it in the VTV.
        2 => EnableVtv,
        /// Clears it in the VTV.
        3 => DisableVtv,
        /// Leaves both, and takes latency and bandwidth.
        4 => UpdateCost,
    }
}

record! {
    /// Request of Configure VCS PID Access (5902h).
    struct ConfigureAccess: 24 {
        /// The VCS.
        0 => vcs: u8,
        /// Which PID, and what becomes of it.
        2 => access: PidOp<AccessOp>,
        /// What the path adds.
        4 => cost: PathCost,
    }
}

record! {
    /// Request of Set VendPrefixL0 State (5904h).
    struct SetPrefix: 3 {
        /// The VCS.
        0 => vcs: u8,
        /// Where it is on.
        2 => prefix: PrefixFlags,
    }
}
