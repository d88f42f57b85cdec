//! The one reason of every drop: its counter's name, where it is counted, what it means and what to do.
//!
//! Shape: [`DropReason`], `repr(u8)`; the number is the counter's index and is never given anew.
//! Units: none.
//! Source: docs/spec/pipeline.md §10; ARCHITECTURE.md "Time, errors, unsafe". `weft drops` makes docs/drops.md of this.

/// What a drop is counted at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropPlace {
    /// The port that the frame came in by.
    Input,
    /// The same, and its priority there.
    InputPri,
    /// The same, and its priority if that was known already.
    InputMaybePri,
    /// The port that the frame was to leave by: it was counted as sent, and is not any more.
    Output,
}

/// Which switch can drop for a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropWhere {
    /// Every switch.
    Any,
    /// One that runs on devices.
    Live,
    /// One in virtual time: replay and models.
    Virtual,
    /// One whose ports carry TLPs.
    Fabric,
}

macro_rules! drop_reasons {
    ($($name:ident = $index:literal, $text:literal, $place:ident, $at:ident,
        $meaning:literal, $remedy:literal;)*) => {
        /// Why a frame was dropped. The number is the counter's index and is never given anew.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum DropReason {
            $(#[doc = $meaning] $name = $index,)*
        }

        impl DropReason {
            /// All reasons, by index.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The name in every output.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }

            /// What it is counted at.
            #[must_use]
            pub const fn place(self) -> DropPlace {
                match self {
                    $(Self::$name => DropPlace::$place,)*
                }
            }

            /// Which switch can drop for it.
            #[must_use]
            pub const fn at(self) -> DropWhere {
                match self {
                    $(Self::$name => DropWhere::$at,)*
                }
            }

            /// What it means, for people.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
                }
            }

            /// What to do about it, for people.
            #[must_use]
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$name => $remedy,)*
                }
            }
        }
    };
}

drop_reasons! {
    Malformed = 0, "malformed", InputMaybePri, Any,
        "Too short for its Ethernet header, or for a field that it claims; on a port that carries TLPs also one that \
         cannot be read, or whose payload is over `max_payload`.",
        "Look at what the neighbour sends: `weft trace drop=malformed --out FILE.pcapng` keeps such frames, of those \
         that came to the pipeline. If frames of one format are hit, look at `afh`, and at `[formats]` for the \
         EtherTypes and ports; on a port for TLPs, at `tlp` and `max_payload` of both ends.";
    Truncated = 1, "truncated", Input, Any,
        "Cut off by the capture that it was read from: the file has fewer bytes than the frame had.",
        "Capture whole frames (`tcpdump -s 0`).";
    Runt = 2, "runt", Input, Virtual,
        "Under 60 bytes without FCS, and `weft replay --drop-runts` drops these as a wire does.",
        "Leave `--drop-runts` out: captures of a sender's own frames have them unpadded.";
    TooLong = 3, "too_long", InputMaybePri, Any,
        "Longer than `max_frame` of the port that it came in by, than that of each port that it could leave by, with the \
         tag that it would get there, or than a chunk of the pool; on a link that carries TLPs, too long in the form \
         that it has at its output.",
        "Raise `switch.max_frame` (restart) and the ports' `max_frame`, or lower the hosts' MTU. For TLPs `max_frame` \
         must leave 96 bytes beside `max_payload`.";
    Fcs = 4, "fcs", Input, Virtual,
        "Its frame check sequence is wrong: it is so in the capture, or the model damaged it on the wire. Live, devices \
         drop such frames before weft sees them.",
        "Look at the link where the capture was taken. In models it is what was asked for.";
    FormatFiltered = 5, "format_filtered", InputPri, Any,
        "No port that it could leave by may carry its format: GEN1 and GEN2 leave only by ports whose `afh` is the same \
         or `auto`, Lite only by `lite` ones, and those take nothing else.",
        "Give the ports that are to carry this format the `afh` for it. `auto` never means Lite.";
    VlanFiltered = 6, "vlan_filtered", InputPri, Any,
        "The port that it came in by does not take its VLAN: a tag that is not allowed there, or no VID on a trunk \
         without `native`.",
        "Add the VLAN to `allowed` of a trunk, set its `native`, or have the neighbour send the right tag. On an access \
         port only its `pvid` is taken.";
    ReservedGroup = 7, "reserved_group", InputPri, Any,
        "For 01-80-C2-00-00-00 to 0F (STP, LLDP, LACP, 802.1X, ...): no bridge passes these on, and weft has nobody for \
         them.",
        "Nothing: neighbours send them all the time. PAUSE and PFC frames are not among these drops.";
    SamePort = 8, "same_port", InputPri, Any,
        "Its station is behind the port or LAG that it came in by, and behind no other.",
        "Nothing where stations talk behind one port (a hub, a bridge): the frame has reached its station there. Else \
         look at `weft show fdb` for where the station is, and at `weft show events` for stations that move.";
    NoOutput = 9, "no_output", InputPri, Any,
        "No port is left to send it to: its VLAN has no other port, the port of its station is not in its VLAN, or its \
         group has no other port. Also what the agent of a fabric switch sends to a port that carries no TLPs.",
        "Look at `vlan`, `pvid` and `allowed` of the ports, at `ports` of the `[[group]]`, and at `weft show fdb`.";
    UnknownUnicast = 10, "unknown_unicast", InputPri, Any,
        "Its station is not known, and `fdb.unknown_unicast` is `drop`.",
        "Have the station send first, make it a static entry (`weft fdb add`, `[[static_entry]]`), or flood such frames. A \
         full FDB knows no new stations: `weft show fdb`, `fdb.capacity`, `max_learned`.";
    StormBroadcast = 11, "storm_broadcast", InputPri, Any,
        "Broadcast above `storm_broadcast` or `storm_broadcast_mbps` of the port that it came in by.",
        "Find who sends so much; a loop is an event (`weft show events`). If it is right, raise the limit.";
    StormUnknown = 12, "storm_unknown_unicast", InputPri, Any,
        "To an unknown station, above `storm_unknown_unicast` or `storm_unknown_unicast_mbps` of the port that it came \
         in by.",
        "See why the station is not known: it is silent, `fdb.ageing_s` is short, or the FDB is full. If it is right, \
         raise the limit.";
    StormMulticast = 13, "storm_multicast", InputPri, Any,
        "To a group, above `storm_multicast` or `storm_multicast_mbps` of the port that it came in by.",
        "Find who sends so much. If it is right, raise the limit; `[[group]]` keeps groups to the ports that want them.";
    Dt = 14, "dt", InputPri, Any,
        "Congestion: with it the queue of (input, output, priority) would be above its threshold: `dt_alpha` times what \
         is free of the buffer, or with `buffer_sharing = \"static\"` its share. A frame to several ports is counted \
         for each of them that it is not queued for.",
        "More comes for the output than it sends: see `weft show queues`. Lossy priorities are meant to drop then; ECN \
         has senders slow down before, PFC stops them for lossless ones (`pfc_priorities`). For bursts raise `dt_alpha` \
         or `buffer_size_mb`.";
    Headroom = 15, "headroom", InputPri, Any,
        "Lossless, and the headroom of its group is full: the neighbour sent on after the PAUSE for longer than was \
         allowed for, or does not obey. A frame to several ports is counted for each.",
        "See that the neighbour obeys PFC of that class (`weft show pfc`: `pause_tx` rises and frames go on), that \
         `pri_to_pfc` names the classes it sends. Raise `headroom_bytes`, or `peer_response_us` and `cable_m` from which \
         it is worked out.";
    Pool = 16, "pool", InputMaybePri, Any,
        "No chunk or descriptor was free: for the frame itself, for a copy of one that leaves changed by several ports \
         (tag, ECN mark), or for its place in a queue.",
        "See `chunks` in `weft show buffer`: there is one for each cell, and some more for devices and copies. Raise \
         `buffer_size_mb` if they are used up; keep floods small where tags change on the way (`[[group]]`, static \
         entries), as each port then needs a copy.";
    Watchdog = 17, "watchdog", InputPri, Any,
        "A PAUSE storm: the neighbour of its output stopped this priority for longer than `watchdog_detect_ms`, and \
         `watchdog_action` is `drop`.",
        "See `storms` in `weft show pfc` for output and priority; mend or restart the neighbour. `watchdog_action = \
         \"forward\"` sends in spite of the PAUSE, `watchdog_detect_ms = 0` waits for ever.";
    PortDown = 18, "port_down", InputPri, Any,
        "The link of each port that it could leave by is down, or went down while it was queued.",
        "See `weft show ports` and `weft show events` for the link; ageing (`fdb.ageing_s`) forgets stations that are \
         gone.";
    TxError = 19, "tx_error", Output, Any,
        "The device of its output took it and did not send it: an error of the system call or driver, a frame above the \
         interface's MTU, or one that was still in the device's ring when it was let go.",
        "Raise the interface's MTU to `max_frame`; look at the interface's own counters (`ip -s link`, `ethtool -S`) and \
         at `weft show ports` for what is wrong with the device.";
    Shutdown = 20, "shutdown", InputPri, Any,
        "Still queued when the switch stopped.",
        "Nothing. To stop without loss, stop the senders first.";
    BadGso = 21, "bad_gso", Input, Live,
        "A super-frame (GSO) that was not split: of a kind that is not (UFO, tunnels), with headers that do not fit it, \
         or in segments of under 536 bytes.",
        "Turn the kind off at the sender (`ethtool -K DEVICE tx-udp_tnl-segmentation off`, `tso off`, `gso off`), or \
         take AF_XDP for the port.";
    Unsupported = 22, "unsupported", InputPri, Any,
        "A MAC control frame at a port that has no sending side for it to act upon. Every port has one: it does not \
         occur.",
        "Report it with the configuration.";
    XskRing = 23, "xsk_ring", Input, Live,
        "Lost between weft's program in the kernel and the port: the ring of its AF_XDP socket was full or not there, or \
         frames were dropped so that a queue comes to rest (docs/express.md).",
        "The worker does not keep up: see `weft show workers`, raise `run.workers` or `rx_ring_frames`, and see why \
         frames are not express in `weft show ports`. Some at start, stop or reload of a port are usual.";
    ExpressXmit = 24, "express_xmit", Input, Live,
        "An express frame that its output's driver refused after the program had sent it on: its ring was full, its \
         link went down, or the far end of a veth takes no redirected frames any more.",
        "On veth keep NAPI on at the far end (`ethtool -K FAR-END gro on`). Else the output is slower than what comes \
         for it: express has no queues of its own; `express.enabled = false` gives these frames to the pipeline.";
    UnsupportedRequest = 25, "unsupported_request", InputPri, Fabric,
        "A TLP that asks for no answer, or whose answer has no way back, and that nobody claims or that may not go \
         where it wants to. With an answer it becomes a completion with UR, and is no drop.",
        "The line `refused` of that port in `weft show fabric` says why; `weft fm trace` follows an address through the \
         fabric.";
    UnexpectedCompletion = 26, "unexpected_completion", InputPri, Fabric,
        "A completion that leads nowhere: no route or binding for its requester, or no form on the link that it would go \
         out by (CXL 3.1 section 7.7.3.3).",
        "Usual for a moment when a host or device is unbound or restarted with requests under way. Else see the line \
         `refused` of that port in `weft show fabric`, and the routes there.";
    NotTlp = 27, "not_tlp", InputPri, Fabric,
        "On a port for TLPs: a frame that holds none, only NOPs, or one with another header layout than its link's.",
        "Set `role` and `tlp` to suit both ends of the link, and the same `fabric.oui`. Hosts' own Ethernet \
         (ARP, IPv6, LLDP) on such a link ends here, too: turn it off, or leave it.";
    TlpRefused = 28, "tlp_refused", InputPri, Fabric,
        "A TLP that is refused without a word: a PTH where the role has none, a sender with a PID that is not its own, \
         a kind of TLP that does not belong on the link, a message in the wrong direction.",
        "The line `refused` of that port in `weft show fabric` says which (docs/security.md). One that goes up again \
         and again is a neighbour with the wrong role, or one that tries.";
    LoopBlocked = 29, "loop_blocked", InputPri, Any,
        "Came in by a port that is blocked for a loop, or all ports that it could leave by are.",
        "Find the loop: `weft show events` names ports and station. A port is open again after `fdb.loop_block_s`; \
         `fdb.loop_action = \"alarm\"` tells without blocking.";
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
