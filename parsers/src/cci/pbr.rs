//! PBR switch commands 5700h to 5707h: identity, crawl, partners, PIDs and bindings.
//!
//! Latency and bandwidth are an entry times a base, as in a CDAT.
//!
//! Source: docs/spec/wire-formats.md §4.5, §4.8; CXL 3.1 sections 7.7.13.2 to 7.7.13.9.

use super::layout::{codes, message, record};
use super::wire::{Uuid, Wire, front, put_front, refused};
use crate::fabric::Pid;
use crate::{Field, ParseError};

record! {
    /// Response of Identify PBR Switch (5700h).
    struct PbrSwitchIdentity: 12 {
        /// Virtual switches whose host edge has a GAE: bit n for VCS n.
        0 => gae_map: u64,
        /// Number of DPID routing tables.
        8 => drts: u8,
        /// Number of routing group tables.
        9 => rgts: u8,
        /// Supported modes of routing groups: bit 0 random, 1 congestion avoidance, 2 advanced
        /// congestion avoidance, 6 and 7 vendor-specific.
        11 => modes: u8,
    }
}

/// The component that Fabric Crawl Out (5701h) leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrawlTarget {
    /// The component at the other end of a physical port.
    Port(u8),
    /// The component with this PID.
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
        /// Receiver of the message.
        0 => target: CrawlTarget,
    }
    /// The CCI message to forward.
    4 as u16 => message: [u8]
}

/// A PID with 4 bits above it, whose meaning depends on the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PidAndKind {
    /// PID in bits 11:0.
    pub pid: Pid,
    /// Bits 15:12; in link partner information [`PidAndKind::SWITCH`] or [`PidAndKind::GFD`].
    pub kind: u8,
}

impl PidAndKind {
    /// The partner is a switch.
    pub const SWITCH: u8 = 0;
    /// The partner is a GFD.
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

/// PID of the switch's own end of a binding, or 0 to let the switch choose one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen(pub Option<Pid>);

/// Bit 15: the PID is given. PID 000h is a valid one, so 0 in bits 11:0 cannot mean "choose".
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
    /// Component at the other end of a link.
    struct LinkPartner: 54 {
        /// Number of the switch's port.
        0 => port: u8,
        /// Number of the port at the other end.
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
        /// Index of the first target, from 0.
        0 => start: u16,
        /// Targets to return at most.
        2 => count: u16,
    }
}

codes! {
    /// Kind of port that can have PIDs.
    enum PidTargetKind: Kind, 0x7 {
        /// A port to another PBR switch.
        0 => FabricPort,
        /// Upstream edge of a virtual switch, to a host.
        1 => HostEdge,
        /// Downstream edge, to a device.
        2 => DownstreamEdge,
    }
}

record! {
    /// A port, or host edge, that PIDs can be assigned to.
    struct PidTarget: 8 {
        /// Id by which 5704h names the target.
        0 => id: u16,
        /// Kind of the target.
        2 => kind: PidTargetKind,
        /// Which of the target's PIDs this entry is, from 0.
        3 => instance: u8,
        /// Virtual switch, where the target is a host edge.
        4 => vcs: u8,
        /// Number of the physical port.
        5 => port: u8,
        /// Assigned PID, or `FFF`.
        6 => pid: Pid,
    }
}

message! {
    /// Response of Get PID Target List (5703h).
    struct PidTargets: 4 {
        /// Targets there are in all.
        0 => total: u16,
    }
    /// Targets of the requested range, one entry a PID.
    2 as u16 => targets: [PidTarget]
}

codes! {
    /// Operation of Configure PID Assignment. Neither changes routes.
    enum AssignOp: Operation, 0x7 {
        /// Assigns each PID to its target.
        0 => Assign,
        /// Clears each assignment.
        1 => Clear,
    }
}

record! {
    /// A PID and the target that it is assigned to.
    struct PidAssignment: 5 {
        /// PID to assign or clear.
        0 => pid: Pid,
        /// Id of the target, as in [`PidTarget::id`].
        2 => target: u16,
        /// Which of the target's PIDs, from 0.
        4 => instance: u8,
    }
}

message! {
    /// Request of Configure PID Assignment (5704h).
    struct AssignPids: 4 {
        /// Assign or clear, for the whole list.
        0 => op: AssignOp,
    }
    /// Assignments to make or clear.
    2 as u16 => assignments: [PidAssignment]
}

record! {
    /// A virtual PCI-to-PCI bridge of a virtual switch: request of Get PID Binding (5705h).
    #[derive(PartialOrd, Ord)]
    struct Vppb: 2 {
        /// Number of the virtual switch.
        0 => vcs: u8,
        /// Number of the vPPB in it.
        1 => vppb: u8,
    }
}

record! {
    /// Latency and bandwidth of a path, each a value times a base, as in a CDAT.
    struct PathCost: 20 {
        /// Base of the latency in ps.
        0 => latency_base: u64,
        /// Latency in units of the base.
        8 => latency: u16,
        /// Base of the bandwidth in MB/s.
        10 => bandwidth_base: u64,
        /// Bandwidth in units of the base.
        18 => bandwidth: u16,
    }
}

record! {
    /// Response of Get PID Binding (5705h).
    struct PidBinding: 24 {
        /// PID that the vPPB is bound to, or `FFF` when unbound.
        0 => pid: Pid,
        /// PID of the host edge's management.
        2 => host_edge: Pid,
        /// Latency and bandwidth of the path to the bound PID.
        4 => cost: PathCost,
    }
}

codes! {
    /// Operation of Configure PID Binding.
    enum BindOp: Operation, 0x7 {
        /// Binds the vPPB to the PID.
        0 => Bind,
        /// Unbinds the vPPB.
        1 => Unbind,
    }
}

record! {
    /// Request of Configure PID Binding (5706h); the command goes on in the background.
    struct BindPid: 28 {
        /// Bind or unbind.
        0 => op: BindOp,
        /// Number of the virtual switch.
        1 => vcs: u8,
        /// Number of the vPPB in it.
        2 => vppb: u8,
        /// PID to bind to.
        4 => pid: Pid,
        /// PID of this end of the virtual link; one that the vPPB may have.
        6 => own: Chosen,
        /// Latency and bandwidth of the path to the PID.
        8 => cost: PathCost,
    }
}

record! {
    /// Request of Get PBR Switch Table Descriptors (5707h).
    struct GetTables: 4 {
        /// Index of the first descriptor, from 0.
        0 => start: u16,
        /// Descriptors to return at most.
        2 => count: u16,
    }
}

codes! {
    /// Kind of a routing table.
    enum TableKind: Kind, 0x3 {
        /// DPID routing table: port or RGT entry by DPID.
        0 => Drt,
        /// Routing group table: up to 8 ports an entry.
        1 => Rgt,
    }
}

record! {
    /// A table and the ports that use it.
    struct TableDescriptor: 39 {
        /// DRT or RGT; bits 1:0.
        0 => kind: TableKind,
        /// Number of the table among those of its kind.
        1 => index: u8,
        /// Bit per port; port 0 is bit 0 of byte 0.
        3 => ports: [u8; 32],
    }
}

message! {
    /// Response of Get PBR Switch Table Descriptors (5707h).
    struct TableDescriptors: 4 {
        /// Index of the first descriptor of the list.
        0 => start: u16,
    }
    /// Descriptors from `start` on.
    2 as u16 => tables: [TableDescriptor]
}
