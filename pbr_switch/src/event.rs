//! Events at a switch on which its driver must act: the agent, in a running switch.

use weft_cxl::pci::BridgeEffects;
use weft_dataplane::types::PortId;
use weft_parsers::cci::switch::PortOp;
use weft_parsers::fabric::{Hpa, Pid};

/// An event at the switch's bridges or edges on which the switch's driver must act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Effects of a register write or an event at a bridge: interrupt, error message, reset, power.
    Bridge { vcs: u8, vppb: u8, effects: BridgeEffects },
    /// A vPPB was bound to the other end of a virtual link, or unbound from it: link and reset VDMs follow.
    PidBinding {
        vcs: u8,
        vppb: u8,
        /// False for an unbind.
        bound: bool,
        /// PID of this end, `FFF` while there is none.
        own: Pid,
        /// PID of the other end.
        far: Pid,
    },
    /// The set of targets that a host may reach has changed: its GAE interrupts.
    AccessChanged { vcs: u8 },
    /// A logical device must be reset: its host has gone, or it is about to get another one.
    LdReset {
        port: PortId,
        /// LD-ID, below the number of LDs that the device reported.
        ld: u16,
    },
    /// A device at a port has lost its host or gets another one, so it must be reset.
    PortReset { port: PortId },
    /// The manager resets the device at a port (5102h).
    PortControl { port: PortId, op: PortOp },
    /// A command of a GAE's mailbox is done: its interrupt must be sent.
    GaeInterrupt { vcs: u8 },
    /// A host's command must be forwarded to a GFD.
    Proxy {
        vcs: u8,
        /// PID of the GFD.
        pid: Pid,
        /// Sequence number among the commands to that GFD, 3 bits.
        seq: u8,
        /// Address of the command in the host's memory.
        request: Hpa,
        /// Length of the command in bytes.
        len: u16,
        /// Address in the host's memory for the response.
        response: Hpa,
        /// Room for the response in bytes.
        response_max: u16,
    },
    /// Forwarding of a command must stop.
    CancelProxy {
        vcs: u8,
        /// PID of the GFD.
        pid: Pid,
        /// Sequence number among the commands to that GFD, 3 bits.
        seq: u8,
    },
}
