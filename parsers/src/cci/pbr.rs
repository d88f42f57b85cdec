//! PBR switch commands 5700h to 5707h: identity, crawl, partners, PIDs and bindings.
//!
//! Fixed records; lists of partners 54, targets 8, assignments 5, descriptors 39 bytes.
//!
//! Units: bytes; latency and bandwidth as entry times base, as in a CDAT.
//! Source: docs/spec/wire-formats.md §4.5, §4.8; CXL 3.1 sections 7.7.13.2 to 7.7.13.9.

use super::layout::{codes, message, record};
use super::wire::{Uuid, Wire, front, put_front, refused};
use crate::fabric::Pid;
use crate::{Field, ParseError};

record! {
    /// Response of Identify PBR Switch (5700h).
    struct PbrSwitchIdentity: 12 {
        /// Bit per VCS whose host edge has a GAE.
        0 => gae_map: u64,
        /// DRTs.
        8 => drts: u8,
        /// RGTs.
        9 => rgts: u8,
        /// Modes of routing groups: bit 0 random, 1 congestion avoiding, 2 advanced, 6 and 7 the vendor's.
        11 => modes: u8,
    }
}

/// The component that Fabric Crawl Out (5701h) leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrawlTarget {
    /// Whoever is at the other end of a physical port.
    Port(u8),
    /// A component that has a PID.
    Pid(Pid),
}

impl Wire for CrawlTarget {
    const LEN: usize = 3;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [low, high, kind] = front(bytes)?;
        match kind & 0xF {
            0 => Ok(Self::Port(low)),
            1 => Ok(Self::Pid(Pid::from_low_bits(u16::from_le_bytes([low, high])))),
            other => Err(refused(Field::Kind, u16::from(other))),
        }
    }

    fn write(&self, bytes: &mut [u8]) {
        let (target, kind) = match *self {
            Self::Port(port) => (u16::from(port), 0),
            Self::Pid(pid) => (pid.bits(), 1),
        };
        let [low, high] = target.to_le_bytes();
        put_front(bytes, [low, high, kind]);
    }
}

message! {
    /// Request of Fabric Crawl Out (5701h); the response is a [`crate::cci::mld::TunnelResponse`].
    struct CrawlOut: 6 {
        /// Where to.
        0 => target: CrawlTarget,
    }
    /// A CCI message.
    4 as u16 => message: [u8]
}

/// A PID with 4 bits above it, whose meaning is the command's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidAndKind {
    /// The PID.
    pub pid: Pid,
    /// Bits 15:12.
    pub kind: u8,
}

impl PidAndKind {
    /// A switch.
    pub const SWITCH: u8 = 0;
    /// A GFD.
    pub const GFD: u8 = 1;
}

impl Wire for PidAndKind {
    const LEN: usize = 2;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let [low, high] = front(bytes)?;
        Ok(Self { pid: Pid::from_low_bits(u16::from_le_bytes([low, high])), kind: high >> 4 })
    }

    fn write(&self, bytes: &mut [u8]) {
        (self.pid.bits() | (u16::from(self.kind & 0xF) << 12)).write(bytes);
    }
}

/// A PID, or 0: whoever carries the command out finds one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen(pub Option<Pid>);

/// Bit of a PID that is said: PID 000h is one, too.
const SAID: u16 = 0x8000;

impl Wire for Chosen {
    const LEN: usize = 2;

    fn read(bytes: &[u8]) -> Result<Self, ParseError> {
        let bits = u16::read(bytes)?;
        Ok(Self((bits & SAID != 0).then(|| Pid::from_low_bits(bits))))
    }

    fn write(&self, bytes: &mut [u8]) {
        self.0.map_or(0, |pid| pid.bits() | SAID).write(bytes);
    }
}

record! {
    /// Who is at the other end of a link.
    struct LinkPartner: 54 {
        /// Own port.
        0 => port: u8,
        /// Port at the other end.
        1 => far_port: u8,
        /// PID of the other end, and [`PidAndKind::SWITCH`] or [`PidAndKind::GFD`].
        2 => far: PidAndKind,
        /// UUID of the other end.
        4 => uuid: Uuid,
        /// Bit per virtual channel with standard flow control.
        20 => standard_vcs: u8,
        /// Bit per virtual channel with UIO flow control.
        21 => uio_vcs: u8,
        /// UUID of its primary fabric manager.
        22 => primary_uuid: Uuid,
        /// UUID of its secondary fabric manager.
        38 => secondary_uuid: Uuid,
    }
}

message! {
    /// Response of Get PBR Link Partner Info (5702h).
    struct LinkPartners: 4 {}
    /// One for each port that was asked for.
    0 as u8 => partners: [LinkPartner]
}

record! {
    /// Request of Get PID Target List (5703h).
    struct GetPidTargets: 4 {
        /// First target.
        0 => start: u16,
        /// Most targets.
        2 => count: u16,
    }
}

codes! {
    /// What a PID target is.
    enum PidTargetKind: Kind, 0x7 {
        /// A port to another PBR switch.
        0 => FabricPort,
        /// A host edge.
        1 => HostEdge,
        /// A downstream edge.
        2 => DownstreamEdge,
    }
}

record! {
    /// What can be given a PID.
    struct PidTarget: 8 {
        /// Its id.
        0 => id: u16,
        /// What it is.
        2 => kind: PidTargetKind,
        /// Which of its PIDs.
        3 => instance: u8,
        /// Virtual switch of a host edge.
        4 => vcs: u8,
        /// Physical port.
        5 => port: u8,
        /// Its PID, or `FFF`.
        6 => pid: Pid,
    }
}

message! {
    /// Response of Get PID Target List (5703h).
    struct PidTargets: 4 {
        /// Targets there are in all.
        0 => total: u16,
    }
    /// Those that were asked for.
    2 as u16 => targets: [PidTarget]
}

codes! {
    /// What Configure PID Assignment is to do.
    enum AssignOp: Operation, 0x7 {
        /// Gives PIDs.
        0 => Assign,
        /// Takes them back.
        1 => Clear,
    }
}

record! {
    /// A PID and its target.
    struct PidAssignment: 5 {
        /// The PID.
        0 => pid: Pid,
        /// Id of the target.
        2 => target: u16,
        /// Which of its PIDs.
        4 => instance: u8,
    }
}

message! {
    /// Request of Configure PID Assignment (5704h).
    struct AssignPids: 4 {
        /// What to do.
        0 => op: AssignOp,
    }
    /// What is assigned or cleared.
    2 as u16 => assignments: [PidAssignment]
}

record! {
    /// A virtual bridge: request of Get PID Binding (5705h).
    struct Vppb: 2 {
        /// The VCS.
        0 => vcs: u8,
        /// The bridge.
        1 => vppb: u8,
    }
}

record! {
    /// What a path adds, as in a CDAT: value times base.
    struct PathCost: 20 {
        /// Base of the latency, ps.
        0 => latency_base: u64,
        /// Latency.
        8 => latency: u16,
        /// Base of the bandwidth, MB/s.
        10 => bandwidth_base: u64,
        /// Bandwidth.
        18 => bandwidth: u16,
    }
}

record! {
    /// Response of Get PID Binding (5705h).
    struct PidBinding: 24 {
        /// PID that the bridge is bound to, or `FFF`.
        0 => pid: Pid,
        /// PID that manages the host edge.
        2 => host_edge: Pid,
        /// What the path adds.
        4 => cost: PathCost,
    }
}

codes! {
    /// What Configure PID Binding is to do.
    enum BindOp: Operation, 0x7 {
        /// Binds.
        0 => Bind,
        /// Unbinds.
        1 => Unbind,
    }
}

record! {
    /// Request of Configure PID Binding (5706h); the command goes on in the background.
    struct BindPid: 28 {
        /// What to do.
        0 => op: BindOp,
        /// The VCS.
        1 => vcs: u8,
        /// The bridge.
        2 => vppb: u8,
        /// PID that it is bound to.
        4 => pid: Pid,
        /// PID of this end, of those that the bridge may have.
        6 => own: Chosen,
        /// What the path adds.
        8 => cost: PathCost,
    }
}

record! {
    /// Request of Get PBR Switch Table Descriptors (5707h).
    struct GetTables: 4 {
        /// First descriptor.
        0 => start: u16,
        /// Most descriptors.
        2 => count: u16,
    }
}

codes! {
    /// Which kind of table.
    enum TableKind: Kind, 0x3 {
        /// DPID routing table.
        0 => Drt,
        /// Routing group table.
        1 => Rgt,
    }
}

record! {
    /// A table and the ports that use it.
    struct TableDescriptor: 39 {
        /// Its kind.
        0 => kind: TableKind,
        /// Which one of its kind.
        1 => index: u8,
        /// Bit per port; port 0 is bit 0 of byte 0.
        3 => ports: [u8; 32],
    }
}

message! {
    /// Response of Get PBR Switch Table Descriptors (5707h).
    struct TableDescriptors: 4 {
        /// First descriptor.
        0 => start: u16,
    }
    /// The descriptors.
    2 as u16 => tables: [TableDescriptor]
}
