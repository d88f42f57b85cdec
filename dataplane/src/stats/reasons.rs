//! The one reason of every drop: its counter's name, where it is counted, its meaning and a remedy.
//!
//! [`DropReason`] is `repr(u8)`; its number is the counter's index and is never reused.
//!
//! Source: docs/spec/pipeline.md §10; ARCHITECTURE.md "Time, errors, unsafe". `weft drops` makes
//! docs/drops.md of this.

/// The place at which a drop is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPlace {
    /// The port that the frame came in by.
    Input,
    /// The port that the frame came in by, and its priority there.
    InputPri,
    /// The port that the frame came in by, and its priority if it was classified by then.
    InputMaybePri,
    /// The port that the frame was to leave by; it is no longer counted as sent there.
    Output,
}

/// The switches that can drop for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropWhere {
    /// Any switch, live or in virtual time.
    Any,
    /// Switches that run on devices.
    Live,
    /// Switches in virtual time (replay and models), or with ports of kind `pcap`.
    Virtual,
    /// Switches whose ports carry TLPs.
    Fabric,
}

macro_rules! drop_reasons {
    ($($name:ident = $index:literal, $text:literal, $place:ident, $at:ident,
        $meaning:literal, $remedy:literal;)*) => {
        /// The reason for which a frame was dropped. The number is the counter's index and is never
        /// reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $meaning] $name = $index,)*
        }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The reason's name in every output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// The place at which it is counted.
            #[must_use]
            pub const fn place(self) -> DropPlace {
                match self {
                    $(Self::$name => DropPlace::$place,)*
                }
            }

            /// The switches that can drop for it.
            #[must_use]
            pub const fn at(self) -> DropWhere {
                match self {
                    $(Self::$name => DropWhere::$at,)*
                }
            }

            /// Its meaning, as text for users.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }

            /// The remedy, as text for users.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)*
                }
            }
        }
    };
}

/// Reasons of drops whose output is known: these are counted by output and priority, too.
pub const OUTPUT_REASONS: [DropReason; 8] = [
    DropReason::Dt,
    DropReason::Headroom,
    DropReason::Pool,
    DropReason::Watchdog,
    DropReason::PortDown,
    DropReason::Shutdown,
    DropReason::NoOutput,
    DropReason::Wred,
];

drop_reasons! {
    Malformed = 0, "malformed", InputMaybePri, Any,
        "It ends inside what the switch has to read: the 14 bytes of its Ethernet header, its VLAN tag, the opcode of \
         MAC control, or the RC Link header that a Standard or AFH frame announces. On a port that carries TLPs also a \
         TLP that cannot be parsed, or whose payload is longer than `max_payload`.",
        "Look at what the neighbour sends: `weft trace drop=malformed --out FILE.pcapng` writes such frames to a \
         file, as far as they came to the pipeline. If only frames of one format are affected, look at `afh`, and at \
         `[formats]` for the EtherTypes and ports; on a port for TLPs, at `tlp` and `max_payload` of both ends.";
    Truncated = 1, "truncated", Input, Any,
        "Cut off by the capture that it was read from: the file has fewer bytes than the original frame.",
        "Capture whole frames (`tcpdump -s 0`).";
    Runt = 2, "runt", Input, Virtual,
        "Under 60 bytes without FCS; `weft replay --drop-runts` drops such frames, as a real link does. Also a frame \
         that its capture says was too short on the wire (flags of a pcapng packet).",
        "Do not use `--drop-runts`: a capture taken at the sender has frames without padding. Look at the link where \
         the capture was taken.";
    TooLong = 3, "too_long", InputMaybePri, Any,
        "Longer than `max_frame` of the port that it came in by, or (with the tag that it would get there) than that \
         of each port that it could leave by, or than a chunk of the pool; for a TLP, too long in the form that it \
         has at its output.",
        "Raise `switch.max_frame` (restart) and the ports' `max_frame`, or lower the hosts' MTU. For TLPs `max_frame` \
         must be at least `max_payload` plus 96 bytes.";
    Fcs = 4, "fcs", Input, Virtual,
        "Its frame check sequence is wrong: in the capture, or because the model damaged the frame on the wire. Also a \
         frame that its capture says was damaged: flags of a pcapng packet with a CRC, symbol, alignment or start \
         delimiter error. Live, devices drop such frames before weft sees them, but a port of kind `pcap` does not.",
        "Look at the link where the capture was taken. In models this is intended.";
    FormatFiltered = 5, "format_filtered", InputPri, Any,
        "No port that it could leave by may carry its format: GEN1 and GEN2 leave only by ports whose `afh` is the \
         same or `auto`, Lite only by `lite` ports, and these send nothing else.",
        "Set `afh` of the ports that should carry this format. `auto` never means Lite.";
    VlanFiltered = 6, "vlan_filtered", InputPri, Any,
        "The port that it came in by does not accept its VLAN: its tag is not allowed there, or it has no VID and the \
         port is a trunk without `native`.",
        "Add the VLAN to `allowed` of a trunk, set its `native`, or let the neighbour send the right tag. An access \
         port accepts only its `pvid`.";
    ReservedGroup = 7, "reserved_group", InputPri, Any,
        "For 01-80-C2-00-00-00 to 0F (STP, LLDP, LACP, 802.1X, ...): bridges must not forward these, and weft does \
         not use these protocols.",
        "Nothing: neighbours send such frames regularly. Where the two ends of a link are to see each other as if no \
         switch were between them, name the groups in `fdb.reserved_groups`. PAUSE and PFC frames are not counted here.";
    SamePort = 8, "same_port", InputPri, Any,
        "Its destination is behind the port or LAG that it came in by.",
        "Nothing if several stations are behind one port (a hub, a bridge): the frame has reached its destination \
         there. Otherwise look in `weft show fdb` for the port of the station, and at `weft show events` for stations \
         that move.";
    NoOutput = 9, "no_output", InputPri, Any,
        "No port is left to send it to: its VLAN has no other port, the port of its station is not in its VLAN, or \
         its group has no other port. Also a frame from the CPU port of a fabric switch to a port that carries no \
         TLPs.",
        "Look at `vlan`, `pvid` and `allowed` of the ports, at `ports` of the `[[group]]`, and at `weft show fdb`.";
    UnknownUnicast = 10, "unknown_unicast", InputPri, Any,
        "Its destination is not in the FDB, and `fdb.unknown_unicast` is `drop`.",
        "Let the station send a frame first, add a static entry (`weft fdb add`, `[[static_entry]]`), or flood such \
         frames. A full FDB learns no new stations: `weft show fdb`, `fdb.capacity`, `max_learned`.";
    StormBroadcast = 11, "storm_broadcast", InputPri, Any,
        "Broadcast above `storm_broadcast` or `storm_broadcast_mbps` of the port that it came in by.",
        "Find the sender; a loop is reported as an event (`weft show events`). If the traffic is legitimate, raise \
         the limit.";
    StormUnknown = 12, "storm_unknown_unicast", InputPri, Any,
        "To an unknown destination, above `storm_unknown_unicast` or `storm_unknown_unicast_mbps` of the port that it \
         came in by.",
        "Find out why the station is not in the FDB: it sends nothing, `fdb.ageing_s` is short, or the FDB is full. \
         If the traffic is legitimate, raise the limit.";
    StormMulticast = 13, "storm_multicast", InputPri, Any,
        "To a multicast group, above `storm_multicast` or `storm_multicast_mbps` of the port that it came in by.",
        "Find the sender. If the traffic is legitimate, raise the limit; `[[group]]` limits groups to the ports that \
         need them.";
    Dt = 14, "dt", InputPri, Any,
        "Congestion: with this frame the queue of (input, output, priority) would exceed its threshold: `dt_alpha` \
         times the free part of the buffer, or with `buffer_sharing = \"static\"` its share. A frame to several ports \
         is counted for each port that it is not queued for.",
        "The output receives more than it can send: see `weft show queues`. Lossy priorities drop in this case; ECN \
         makes senders slow down earlier, and PFC pauses them for lossless priorities (`pfc_priorities`). For bursts \
         raise `dt_alpha` or `buffer_size_mb`.";
    Headroom = 15, "headroom", InputPri, Any,
        "Lossless, and the headroom of its group is full: after the PAUSE the neighbour sent for longer than the \
         headroom allows, or does not obey PFC. A frame to several ports is counted for each.",
        "Check that the neighbour obeys PFC of that class (it does not if `pause_tx` of `weft show pfc` rises and \
         frames keep coming), and that `pri_to_pfc` names the classes that it sends. Raise `headroom_bytes`, or \
         `peer_response_us` and `cable_m`, from which it is computed.";
    Pool = 16, "pool", InputMaybePri, Any,
        "No chunk or descriptor was free: for the frame itself, for a copy of a frame that is changed differently at \
         several ports (tag, ECN mark), or for its queue entry.",
        "See `chunks` in `weft show buffer`: there is one for each cell, and some more for devices and copies. If \
         they are used up, raise `buffer_size_mb`; limit flooding where tags change (`[[group]]`, static entries), as \
         each port then needs a copy.";
    Watchdog = 17, "watchdog", InputPri, Any,
        "A PAUSE storm: the neighbour at its output paused this priority for longer than `watchdog_detect_ms`, and \
         `watchdog_action` is `drop`.",
        "See `storms` in `weft show pfc` for output and priority; repair or restart the neighbour. `watchdog_action = \
         \"forward\"` sends despite the PAUSE, `watchdog_detect_ms = 0` waits for ever.";
    PortDown = 18, "port_down", InputPri, Any,
        "The link of each port that it could leave by is down, or went down while it was queued.",
        "See `weft show ports` and `weft show events` for the link; ageing (`fdb.ageing_s`) removes stations that are \
         gone.";
    TxError = 19, "tx_error", Output, Any,
        "The device of its output accepted it but did not send it: an error of the system call or driver, a frame \
         above the interface's MTU, or a frame still in the device's ring when the device was closed.",
        "Raise the interface's MTU to `max_frame`; look at the interface's own counters (`ip -s link`, `ethtool -S`) \
         and at `weft show ports` for the device's error.";
    Shutdown = 20, "shutdown", InputPri, Any,
        "Still queued when the switch stopped.",
        "Nothing. To stop without loss, stop the senders first.";
    BadGso = 21, "bad_gso", Input, Live,
        "A super-frame (GSO) that weft cannot split: of an unsupported kind (UFO, a tunnel that Linux does not have), with \
         headers that do not match it, or with segments of under 536 bytes.",
        "Turn this offload off at the sender (`ethtool -K DEVICE tx-udp_tnl-segmentation off`, `tso off`, `gso off`), \
         or use AF_XDP for the port.";
    Unsupported = 22, "unsupported", InputPri, Any,
        "A MAC control frame at a port without a transmitter that it could pause. Every port has one, so this does \
         not occur.",
        "Report it, with the configuration.";
    XskRing = 23, "xsk_ring", Input, Live,
        "Lost between weft's program in the kernel and the port: the ring of its AF_XDP socket was full or missing, \
         or frames were dropped to let a queue drain (docs/express.md).",
        "The worker is too slow: see `weft show workers`, raise `run.workers` or `rx_ring_frames`, and see in `weft \
         show ports` why frames are not express. A few at start, stop or reload of a port are normal.";
    ExpressXmit = 24, "express_xmit", Input, Live,
        "An express frame that its output's driver refused after the program had forwarded it: its ring was full, its \
         link went down, or the far end of a veth no longer accepts redirected frames.",
        "On veth keep NAPI on at the far end (`ethtool -K FAR-END gro on`). Otherwise the output is too slow for its \
         traffic: express has no queues of its own; with `express.enabled = false` these frames go to the pipeline.";
    UnsupportedRequest = 25, "unsupported_request", InputPri, Fabric,
        "A TLP that needs no answer, or whose answer has no route back, and that no component claims or that may not \
         go to its destination. If it can be answered, it gets a completion with UR, and is not a drop.",
        "The line `refused` of that port in `weft show fabric` says why; `weft fm trace` follows an address through the \
         fabric.";
    UnexpectedCompletion = 26, "unexpected_completion", InputPri, Fabric,
        "A completion that cannot be delivered: there is no route or binding for its requester, or the output link \
         cannot carry it (CXL 3.1 section 7.7.3.3).",
        "Normal for a short time when a host or device is unbound or restarted with outstanding requests. Otherwise \
         see the line `refused` of that port in `weft show fabric`, and the routes there.";
    NotTlp = 27, "not_tlp", InputPri, Fabric,
        "On a port for TLPs: a frame without a TLP, with NOPs only, or with a TLP of another header layout than its \
         link's.",
        "Set `role` and `tlp` to suit both ends of the link, and the same `fabric.oui`. Hosts' own Ethernet (ARP, \
         IPv6, LLDP) on such a link is counted here, too: turn it off, or ignore it.";
    TlpRefused = 28, "tlp_refused", InputPri, Fabric,
        "A TLP that is refused without an answer: a PTH where the role has none, a sender with a PID that is not its \
         own, a kind of TLP that does not belong on the link, a message in the wrong direction.",
        "The line `refused` of that port in `weft show fabric` says which (docs/security.md). If the count keeps \
         rising, the neighbour has the wrong role, or is hostile.";
    LoopBlocked = 29, "loop_blocked", InputPri, Any,
        "It came in by a port that is blocked because of a loop, or all ports that it could leave by are blocked.",
        "Find the loop: `weft show events` names ports and station. A port is open again after `fdb.loop_block_s`; \
         `fdb.loop_action = \"alarm\"` reports without blocking.";
    Injected = 30, "injected", Input, Live,
        "Dropped at random where it came in, as `loss_per_million` of that port says.",
        "This is for tests of what sends frames again. Remove `loss_per_million` from ports that carry real traffic.";
    Wred = 31, "wred", InputPri, Any,
        "Dropped early, so that its sender slows down: the queue of its output and priority is deeper than \
         `wred_threshold_low`, the priority is lossy, and ECN does not mark the frame (its sender does not use ECN, it \
         is not IP, or `ecn_enabled` is off). A frame to several ports is counted for each that it is not queued for.",
        "The output receives more than it can send: see `weft show queues`. Senders that use ECN are marked instead; \
         for bursts raise `wred_threshold_low` and `wred_threshold_high`, or take the priority out of `wred_priorities`.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_index_and_name() {
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index, "{reason:?}");
            assert_eq!(DropReason::ALL.iter().filter(|r| r.name() == reason.name()).count(), 1);
        }
    }
}
