//! The sources of requests at a component: managers, hosts, and messages from the fabric.
//!
//! Source: docs/spec/wire-formats.md §4.4; docs/spec/cxl-fabric.md "Tables of an edge and who may write them"; CXL 3.1
//! section 7.7.12.2.

use weft_parsers::fabric::Pid;

/// A source of requests; its rights are those of its [`super::Rank`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Session {
    /// A connection of a fabric manager, in the process or over a stream. The owner of the connections numbers
    /// them: a number is unique at any time, and used again only after [`super::Ownership::forget`].
    Fm(u32),
    /// Messages from the fabric, as by Fabric Crawl Out. Their rights are those of the port by which they came,
    /// since a sender can claim any PID.
    InBand {
        /// Number of the port by which the message came.
        port: u8,
        /// SPID of the message.
        pid: Pid,
    },
    /// The host of a virtual switch, by the mailbox of its GAE or of a vPPB.
    Host {
        /// Number of the virtual switch.
        vcs: u8,
    },
    /// Commands of a host that its GAE forwards to a GFD, by the PID of the host's edge.
    Proxy(Pid),
}

impl Session {
    /// Number of the virtual switch, for a host.
    #[must_use]
    pub const fn vcs(self) -> Option<u8> {
        match self {
            Self::Host { vcs } => Some(vcs),
            _ => None,
        }
    }
}
