//! Commands of a GAE (58xxh) and of a VCS's GAE (59xxh) that are not table entries.
//!
//! Fixed records; lists of PIDs and of segment counts. The tables that a GAE holds are in
//! [`super::tables`].
//!
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
        /// First vPPB to report.
        0 => start: u8,
        /// vPPBs to report at most.
        1 => count: u8,
    }
}

record! {
    /// Request of Identify VCS GAE (5900h).
    struct VcsGaeRange: 3 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// vPPBs of it to report.
        1 => range: GaeRange,
    }
}

/// Capabilities of a GAE: the first two bytes of [`GaeIdentity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaeCaps {
    /// PIDs that can be enabled at once; bits 11:0.
    pub pids_max: u16,
    /// Bit 12: VendPrefixL0 can be on for requests that leave and completions that enter.
    pub prefix_out: bool,
    /// Bit 13: VendPrefixL0 can be on for requests that enter.
    pub prefix_in: bool,
    /// Bit 14: GIM can be set up.
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
    /// Size of one vPPB's FAST.
    struct VppbFast: 4 {
        /// Segments that its FAST can hold.
        0 => segments: u16,
    }
}

message! {
    /// Response of Identify GAE (5800h) and Identify VCS GAE (5900h).
    struct GaeIdentity: 8 {
        /// Capabilities of the GAE.
        0 => caps: GaeCaps,
        /// Proxy threads, which forward commands of the host to GFDs.
        2 => threads: u16,
        /// Proxy threads that are idle.
        4 => free: u16,
        /// First vPPB of the list.
        6 => start: u8,
    }
    /// FAST sizes from `start` on, one a vPPB.
    7 as u8 => vppbs: [VppbFast]
}

record! {
    /// Request of Get PID Interrupt Vector (5801h).
    struct GetInterrupts: 9 {
        /// Bytes of the vector to return.
        0 => range: VectorRange,
        /// Bit 0: clear the bits that are returned.
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
        /// Number of the vPPB.
        0 => vppb: u8,
    }
}

message! {
    /// Response of Get FAST/IDT Capabilities (5803h).
    struct FastCaps: 26 {
        /// Number of the vPPB.
        0 => vppb: u8,
        /// Segments that the FAST can hold.
        1 => segments: u16,
        /// Code of the segment size, 64 GB << n.
        3 => segment_size: u8,
        /// DPIDs that the interleave table can hold.
        4 => idt: u16,
        /// Where VendPrefixL0 is on.
        7 => prefix: PrefixFlags,
        /// First HPA of the range that FAST decodes; 0 while it is off.
        10 => base: Hpa,
        /// `FabricLimit`: the last HPA that FAST decodes; 0 while it is off.
        18 => limit: Hpa,
    }
    /// PIDs of this edge port.
    6 as u8 => pids: [Pid]
}

record! {
    /// Request of Set FAST/IDT Configuration (5804h).
    struct SetFast: 20 {
        /// Number of the vPPB.
        0 => vppb: u8,
        /// Code of the segment size, 64 GB << n.
        1 => segment_size: u8,
        /// Where VendPrefixL0 is on.
        2 => prefix: PrefixFlags,
        /// First HPA of the range; 0 turns FAST off.
        4 => base: Hpa,
        /// Last HPA of the range; 0 turns FAST off.
        12 => limit: Hpa,
    }
}

record! {
    /// Request of Proxy GFD Management Command (5809h).
    struct ProxyCommand: 22 {
        /// PID of the GFD that gets the command.
        0 => pid: Pid,
        /// Address of the command in the host's memory.
        2 => request: Hpa,
        /// Length of the command in bytes.
        10 => len: u16,
        /// Address in the host's memory where the response goes.
        12 => response: Hpa,
        /// Bytes that the host has reserved for the response.
        20 => response_max: u16,
    }
}

record! {
    /// Response of Proxy GFD Management Command (5809h).
    struct ProxyStarted: 3 {
        /// `CmdSeq` of the command, by which 580Ah and 580Bh name its thread.
        0 => seq: Bits<3>,
        /// Proxy threads that are idle.
        1 => free: u16,
    }
}

/// A proxy thread, by the GFD's PID and its `CmdSeq`: request of 580Ah and 580Bh.
pub type ProxyThread = PidOp<Bits<3>>;

record! {
    /// Response of Get Proxy Thread Status (580Ah).
    struct ProxyStatus: 4 {
        /// The thread still waits for the GFD.
        0 => running: bool,
        /// Proxy threads that are idle.
        2 => free: u16,
    }
}

codes! {
    /// Change of a PID's bits in the access vectors of a VCS.
    enum AccessOp: Operation, 0x7 {
        /// Sets the bit in the GMV: G-FAM of the PID may be reached.
        0 => EnableGmv,
        /// Clears the bit in the GMV.
        1 => DisableGmv,
        /// Sets the bit in the VTV: the PID is a valid target for GIM.
        2 => EnableVtv,
        /// Clears the bit in the VTV.
        3 => DisableVtv,
        /// Changes neither vector, and takes over latency and bandwidth.
        4 => UpdateCost,
    }
}

record! {
    /// Request of Configure VCS PID Access (5902h).
    struct ConfigureAccess: 24 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// PID in bits 11:0, operation in bits 14:12.
        2 => access: PidOp<AccessOp>,
        /// Latency and bandwidth of the path to the PID, for [`AccessOp::UpdateCost`].
        4 => cost: PathCost,
    }
}

record! {
    /// Request of Set VendPrefixL0 State (5904h).
    struct SetPrefix: 3 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// Directions in which VendPrefixL0 is turned on.
        2 => prefix: PrefixFlags,
    }
}
