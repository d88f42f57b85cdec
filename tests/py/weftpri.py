"""Default priority maps: from PCP, DSCP, Traffic Class and EXP to the switch-internal class.

Shape: pri_of_pcp/dscp/tc/exp(value, priorities) and pri_of_frame(bytes, mode, priorities).
Units: priorities 0 (lowest) .. 3 or 7, for `priorities` = 4 or 8.
Source: docs/spec/pipeline.md §2 (trust list); docs/spec/wire-formats.md §1.4b, §1.8.
"""

import struct

from weftbuild import ETH_IPV4, ETH_IPV6, FLOW_ACK, FLOW_REQ, MAC_TYPE1, MAC_TYPE2, TPID, split_traffic_class


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


ETH_MPLS = (0x8847, 0x8848)
TRUST = ("pcp", "dscp", "tc")


def pri_of_frame(frame, mode, priorities, order="slap", tpid=TPID, default_pri=0, trust=TRUST):
    """Priority by the trust list; cheap, for frames known to be well formed."""
    if mode == "lite":
        return pri_of_tc(frame[6 if order == "slap" else 0], priorities) if "tc" in trust else default_pri
    carried = {}
    ethertype, at = struct.unpack_from(">H", frame, 12)[0], 14
    if ethertype == tpid:
        carried["pcp"] = pri_of_pcp(frame[14] >> 5, priorities)
        ethertype, at = struct.unpack_from(">H", frame, 16)[0], 18
    if ethertype == ETH_IPV4:
        carried["dscp"] = pri_of_dscp(frame[at + 1] >> 2, priorities)
    elif ethertype == ETH_IPV6:
        carried["dscp"] = pri_of_dscp((frame[at] << 8 | frame[at + 1]) >> 6 & 63, priorities)
    elif ethertype in (MAC_TYPE1, MAC_TYPE2) and mode != "ethernet":
        gen2 = mode == "gen2" or mode == "auto" and is_gen2(frame)
        carried["tc"] = pri_of_tc(frame[0 if gen2 and order == "as_documented" else 6], priorities)
    elif ethertype in ETH_MPLS and len(frame) >= at + 4:
        carried["exp"] = pri_of_exp(int.from_bytes(frame[at : at + 4], "big") >> 9 & 7, priorities)
    return next((carried[source] for source in trust if source in carried), default_pri)
