"""Default priority maps: from PCP, DSCP, Traffic Class and EXP to the switch-internal class.

pri_of_pcp/dscp/tc/exp(value, priorities), pri_of_frame(bytes, mode, priorities) and is_malformed(bytes, mode).

Units: priorities 0 (lowest) .. 3 or 7, for `priorities` = 4 or 8.
Source: docs/spec/pipeline.md §2 (trust list); docs/spec/wire-formats.md §1.4b, §1.8.
"""

import struct

from weftbuild import (
    ETH_IPV4,
    ETH_IPV6,
    ETH_MAC_CONTROL,
    FLOW_ACK,
    FLOW_REQ,
    MAC_CONTROL_DA,
    MAC_TYPE1,
    MAC_TYPE2,
    RH_LEN,
    TPID,
    UDP_TYPE1,
    split_traffic_class,
)


def is_gen2(frame):
    """The rule that tells GEN2 from GEN1 on an `auto` port (wire-formats 1.4)."""
    return frame[0] & 0xCE == 0x82 or frame[6] & 0xCE == 0x82


PCP_TO_PRI4 = (0, 1, 0, 2, 2, 3, 3, 3)


def pri_of_pcp(pcp, priorities):
    """Default pcp_to_pri of docs/spec/pipeline.md §2."""
    return PCP_TO_PRI4[pcp] if priorities == 4 else pcp


def pri_of_dscp(dscp, priorities):
    """Default dscp_to_pri: the top three bits taken as a PCP."""
    return pri_of_pcp(dscp >> 3, priorities)


def pri_of_tc(tc, priorities):
    """Default tc_to_pri: by flow with 4 priorities, by VC with 8."""
    vc, flow, _ = split_traffic_class(tc)
    return {FLOW_ACK: 3, FLOW_REQ: 2}.get(flow, 0) if priorities == 4 else vc


def pri_of_exp(exp, priorities):
    """Default exp_to_pri: EXP (Traffic Class, RFC 5462) of the top MPLS label, taken as a PCP."""
    return pri_of_pcp(exp, priorities)


def is_afh(frame, mode, order):
    """Whether a port reads a frame with an EtherType of AFH as that; GEN2_32b is plain Ethernet (wire-formats 1.4)."""
    return mode != "ethernet" and (mode != "gen2" or frame[0 if order == "slap" else 6] & 0x80 != 0)


def has_ipv4(frame, at):
    """Whether an IPv4 header stands at `at`, whole with its options (docs/spec/pipeline.md §1)."""
    return len(frame) >= at + 20 and frame[at] >> 4 == 4 and len(frame) >= at + (frame[at] & 15) * 4


ETH_MPLS = (0x8847, 0x8848)
TRUST = ("pcp", "dscp", "tc")


def pri_of_frame(frame, mode, priorities, order="slap", tpids=(TPID,), default_pri=0, trust=TRUST):
    """Priority by the trust list; cheap, for frames that are not malformed."""
    if mode == "lite":
        return pri_of_tc(frame[6 if order == "slap" else 0], priorities) if "tc" in trust else default_pri
    carried = {}
    ethertype, at = struct.unpack_from(">H", frame, 12)[0], 14
    if ethertype in tpids:
        carried["pcp"] = pri_of_pcp(frame[14] >> 5, priorities)
        ethertype, at = struct.unpack_from(">H", frame, 16)[0], 18
    if ethertype == ETH_IPV4:
        if has_ipv4(frame, at):
            carried["dscp"] = pri_of_dscp(frame[at + 1] >> 2, priorities)
    elif ethertype == ETH_IPV6 and len(frame) >= at + 40 and frame[at] >> 4 == 6:
        carried["dscp"] = pri_of_dscp((frame[at] << 8 | frame[at + 1]) >> 6 & 63, priorities)
    elif ethertype in (MAC_TYPE1, MAC_TYPE2) and is_afh(frame, mode, order):
        gen2 = mode == "gen2" or mode == "auto" and is_gen2(frame)
        carried["tc"] = pri_of_tc(frame[0 if gen2 and order == "as_documented" else 6], priorities)
    elif ethertype in ETH_MPLS and len(frame) >= at + 4:
        carried["exp"] = pri_of_exp(int.from_bytes(frame[at : at + 4], "big") >> 9 & 7, priorities)
    return next((carried[source] for source in trust if source in carried), default_pri)


def is_malformed(frame, mode, order="slap", tpids=(TPID,)):
    """Whether a port drops a frame as malformed, as it ends in what the switch reads (docs/spec/pipeline.md §1)."""
    if len(frame) < 14:
        return True
    ethertype, at = struct.unpack_from(">H", frame, 12)[0], 14
    if ethertype == ETH_MAC_CONTROL and (mode != "lite" or frame[:6] == MAC_CONTROL_DA):
        return len(frame) < 16
    if mode == "lite":
        return False
    if ethertype in tpids:
        if len(frame) < 18:
            return True
        ethertype, at = struct.unpack_from(">H", frame, 16)[0], 18
    if ethertype in (MAC_TYPE1, MAC_TYPE2):
        return is_afh(frame, mode, order) and len(frame) < at + RH_LEN
    if ethertype == ETH_IPV4 and has_ipv4(frame, at) and len(frame) >= at + 28 and frame[at] == 0x45:
        total, fragment = (struct.unpack_from(">H", frame, at + n)[0] for n in (2, 6))
        port, length = (struct.unpack_from(">H", frame, at + n)[0] for n in (22, 24))
        is_udp = frame[at + 9] == 17 and fragment & 0x3FFF == 0 and total >= 28
        return is_udp and port == UDP_TYPE1 and length >= 16 and len(frame) < at + 28 + RH_LEN
    return False
