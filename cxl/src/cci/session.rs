//! Who sends requests.
//!
//! [`Session`], one value for each way that requests come in by.
//!
//! Source: docs/spec/wire-formats.md §4.4; docs/spec/cxl-fabric.md "Tables of an edge and who may write them"; CXL 3.1
//! section 7.7.12.2.

use weft_parsers::fabric::Pid;

/// One way that requests come in by; what it may do is its [`super::Rank`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Session {
    /// A connection of a fabric manager, in the process or over a stream: whoever drives it numbers them, and none
    /// of two at a time, or one after the other without [`super::Ownership::forget`], have one number.
    Fm(u32),
    /// Messages out of the fabric, as by Fabric Crawl Out. What they may do is the port's that they came in by: a PID is
    /// only what the sender calls itself.
    InBand {
        /// Number of the port.
        port: u8,
        /// SPID.
        pid: Pid,
    },
    /// The host of a virtual switch, by the mailbox of its GAE or of a vPPB.
    Host {
        /// The virtual switch.
        vcs: u8,
    },
    /// Commands of a host that its GAE forwards to a GFD: known by the PID of the host's edge.
    Proxy(Pid),
}

impl Session {
    /// The virtual switch of a host.
    #[must_use]
    pub const fn vcs(self) -> Option<u8> {
        match self {
            Self::Host { vcs } => Some(vcs),
            _ => None,
        }
    }
}
