"""Reads frames of the four AI formats, MAC control and RoCEv2: scapy layers and parse().

parse(frame, mode) -> dict; Afh*/RcRh/Pfc/... are scapy Packets; builders and priorities are re-exported.

Units: bytes; frames without FCS unless fcs=True.
Source: docs/spec/wire-formats.md §1.2 to §1.8, §2; docs/spec/pipeline.md §1; `python3 weftfmt.py selftest` checks the
worked bytes.
"""

import struct
import sys

from scapy.fields import (
    BitField,
    ByteField,
    FieldListField,
    MACField,
    ShortField,
    StrFixedLenField,
    XBitField,
    XByteField,
    XShortField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, bind_layers

from weftbuild import *  # noqa: F403 - one module for users of the formats
from weftpri import *  # noqa: F403

# scapy layers ------------------------------------------------------------------------------------


class EthernetHead(Packet):
    """Addresses and the two bytes behind them, also when those are an 802.3 length."""

    name = "Ethernet"
    fields_desc = [MACField("dst", None), MACField("src", None), XShortField("type", 0)]


class RcRh(Packet):
    """RC Link RH, 8 bytes (wire-formats 1.5)."""

    name = "RC-RH"
    fields_desc = [
        BitField("opcode", 0, 2),
        BitField("fack", 0, 1),
        BitField("pad", 0, 2),
        BitField("rsv", 0, 2),
        BitField("ts_en", 0, 1),
        XBitField("timestamp", 0, 16),
        XBitField("p_key", 0, 8),
        BitField("len_syn", 0, 7),
        BitField("psn", 0, 12),
        BitField("dest_qp", 0, 13),
    ]


class SueRh(Packet):
    """Broadcom SUE RH, 8 bytes (wire-formats 1.7)."""

    name = "SUE-RH"
    fields_desc = [
        BitField("ver", 0, 2),
        BitField("op", 0, 2),
        BitField("rsv0", 0, 2),
        BitField("xpu_id", 0, 10),
        BitField("npsn", 0, 16),
        BitField("vc", 0, 2),
        BitField("rsv1", 0, 4),
        BitField("partition", 0, 10),
        BitField("apsn", 0, 16),
    ]


_KEY_WORDS = [
    BitField("w", 1, 1),
    BitField("v", 0, 1),
    BitField("rsv", 0, 2),
    BitField("zy", 0, 2),
    BitField("x", 1, 1),
    BitField("m", 0, 1),
]
_TC = [BitField("vc", 0, 3), BitField("flow", 0, 3), BitField("tc_low", 0, 2)]


class AfhGen1(Packet):
    """AFH_GEN1 with its EtherType, 14 bytes (wire-formats 1.3)."""

    name = "AFH-GEN1"
    fields_desc = [MACField("dst", None), *_TC, XBitField("src", 0, 40), XShortField("type", MAC_TYPE1)]


def _gen2_fields(first, second):
    return [
        *first,
        XBitField("payload_hi", 0, 24),
        XShortField("dst", 0),
        *second,
        XBitField("payload_lo", 0, 24),
        XShortField("src", 0),
    ]


def _lite_fields(first, second):
    return [
        *first,
        XBitField("zero_hi", 0, 24),
        XShortField("dst", 0),
        *second,
        XShortField("xpu_id", 0),
        XByteField("zero_lo", 0),
        XShortField("src", 0),
    ]


class AfhGen2Slap(Packet):
    """AFH_GEN2_16b, Key_words in byte 0, with its EtherType (wire-formats 1.4)."""

    name = "AFH-GEN2 slap"
    fields_desc = [*_gen2_fields(_KEY_WORDS, _TC), XShortField("type", MAC_TYPE1)]


class AfhGen2Doc(Packet):
    """AFH_GEN2_16b, Traffic Class in byte 0, with its EtherType (wire-formats 1.4)."""

    name = "AFH-GEN2 as documented"
    fields_desc = [*_gen2_fields(_TC, _KEY_WORDS), XShortField("type", MAC_TYPE1)]


class AfhLiteSlap(Packet):
    """AFH_Lite, Key_words in byte 0, 12 bytes (wire-formats 1.4a)."""

    name = "AFH-Lite slap"
    fields_desc = _lite_fields(_KEY_WORDS, _TC)


class AfhLiteDoc(Packet):
    """AFH_Lite, Traffic Class in byte 0, 12 bytes (wire-formats 1.4a)."""

    name = "AFH-Lite as documented"
    fields_desc = _lite_fields(_TC, _KEY_WORDS)


class Pfc(Packet):
    """PFC after the EtherType: opcode, vector, 8 times, pad (wire-formats 2.3)."""

    name = "PFC"
    fields_desc = [
        XShortField("opcode", OP_PFC),
        XByteField("vector_hi", 0),
        XByteField("vector", 0),
        FieldListField("times", [0] * 8, ShortField("", 0), count_from=lambda _: 8),
        StrFixedLenField("zeros", bytes(26), 26),
    ]


class Pause(Packet):
    """802.3x PAUSE after the EtherType (wire-formats 2.3)."""

    name = "PAUSE"
    fields_desc = [
        XShortField("opcode", OP_PAUSE),
        XShortField("quanta", 0),
        StrFixedLenField("zeros", bytes(42), 42),
    ]


class CcUpdate(Packet):
    """UEC CC_Update after the EtherType (wire-formats 1.6)."""

    name = "CC_Update"
    fields_desc = [
        XShortField("opcode", OP_EXT),
        XBitField("cid", 0xFA7ACB, 24),
        ByteField("msg_type", 1),
        *[XBitField(f"vc{vc}", 0, 20) for vc in range(16)],
    ]


class Bth(Packet):
    """InfiniBand BTH, 12 bytes (wire-formats 2.1)."""

    name = "BTH"
    fields_desc = [
        XByteField("opcode", 0),
        BitField("se", 0, 1),
        BitField("migreq", 0, 1),
        BitField("pad", 0, 2),
        BitField("tver", 0, 4),
        XShortField("p_key", 0xFFFF),
        BitField("fecn", 0, 1),
        BitField("becn", 0, 1),
        BitField("rsv6", 0, 6),
        BitField("dest_qp", 0, 24),
        BitField("ackreq", 0, 1),
        BitField("rsv7", 0, 7),
        BitField("psn", 0, 24),
    ]


class Aeth(Packet):
    """InfiniBand AETH, 4 bytes."""

    name = "AETH"
    fields_desc = [XByteField("syndrome", 0), BitField("msn", 0, 24)]


class Reth(Packet):
    """InfiniBand RETH, 16 bytes."""

    name = "RETH"
    fields_desc = [XBitField("va", 0, 64), XBitField("rkey", 0, 32), BitField("length", 0, 32)]


for _lower in (AfhGen1, AfhGen2Slap, AfhGen2Doc):
    bind_layers(_lower, Dot1Q, type=TPID)
    for _type in (MAC_TYPE2, MAC_TYPE1):  # the last one bound is what a build takes
        bind_layers(_lower, RcRh, type=_type)
for _type in (MAC_TYPE2, MAC_TYPE1):
    bind_layers(Dot1Q, RcRh, type=_type)
    bind_layers(Ether, RcRh, type=_type)
bind_layers(UDP, RcRh, dport=UDP_TYPE1)

GEN2_LAYER = {"slap": AfhGen2Slap, "as_documented": AfhGen2Doc}
LITE_LAYER = {"slap": AfhLiteSlap, "as_documented": AfhLiteDoc}

# Readers -----------------------------------------------------------------------------------------


def _take(layer, frame, at, length):
    if len(frame) < at + length:
        raise FormatError(f"{layer.name}: needs {length} bytes at {at}, had {max(0, len(frame) - at)}")
    packet = layer(frame[at : at + length])
    return {field.name: packet.getfieldval(field.name) for field in layer.fields_desc if field.name}


def _afh_common(out):
    out["tc"] = out["vc"] << 5 | out["flow"] << 2 | out.pop("tc_low")
    if "m" in out:
        keys = ("w", "v", "rsv", "zy", "x", "m")
        bits = [out.pop(key) for key in keys]
        out["key_words"] = bits[0] << 7 | bits[1] << 6 | bits[2] << 4 | bits[3] << 2 | bits[4] << 1 | bits[5]
        out["group"] = bool(bits[5])


def _split_tail(out, body, length, icrc):
    """Cuts payload, ICRC and pad; `length` is payload + ICRC, or None when the frame does not say."""
    length = len(body) if length is None else length
    if length > len(body):
        raise FormatError(f"payload: needs {length} bytes, had {len(body)}")
    cut = length - 4 if icrc else length
    if cut < 0:
        raise FormatError(f"ICRC: needs 4 bytes, had {length}")
    out["payload"], out["pad_bytes"] = body[:cut], body[length:]
    if icrc:
        out["icrc"] = body[cut:length]


def _parse_afh(frame, at, out, icrc):
    out["rh"] = _take(RcRh, frame, at, RH_LEN)
    at += RH_LEN
    length = out["rh"]["len_syn"]
    if out["rh"]["opcode"] == 0:
        # A request's Pkt_len counts RH and payload; 0 means that it is above 127 and not said.
        length = length - RH_LEN + (4 if icrc else 0) if length >= RH_LEN else None
    else:
        length = 4 if icrc else 0  # ACK, NAK and CNP have no payload
    _split_tail(out, frame[at:], length, icrc)
    if icrc:
        out["icrc_ok"] = out["icrc"] == icrc_afh(frame[at - RH_LEN : at], out["payload"])


def _parse_ip(frame, at, out, version, udp2, rdma, icrc):
    """What is not a whole header of that version counts as none: the frame is plain Ethernet."""
    if version == 4:
        ip = IP(frame[at : at + 20]) if len(frame) >= at + 20 else None
        if ip is None or ip.version != 4 or len(frame) < at + ip.ihl * 4:
            return
        header_len, total, tos, proto, ident = ip.ihl * 4, ip.len, ip.tos, ip.proto, ip.id
        fragment = bool(ip.frag or int(ip.flags) & 1)
        checksum_ok = header_len >= 20 and ones_sum(frame[at : at + header_len]) == 0xFFFF
        out["ip"] = {
            "version": 4,
            "ihl": ip.ihl,
            "len": total,
            "id": ident,
            "flags": int(ip.flags),
            "frag": ip.frag,
            "ttl": ip.ttl,
            "proto": proto,
            "chksum": ip.chksum,
            "chksum_ok": checksum_ok,
            "src": ip.src,
            "dst": ip.dst,
        }
    else:
        ip = IPv6(frame[at : at + 40]) if len(frame) >= at + 40 else None
        if ip is None or ip.version != 6:
            return
        header_len, total, tos, proto, fragment = 40, 40 + ip.plen, ip.tc, ip.nh, False
        out["ip"] = {
            "version": 6,
            "len": ip.plen,
            "fl": ip.fl,
            "ttl": ip.hlim,
            "proto": proto,
            "src": ip.src,
            "dst": ip.dst,
        }
    out["dscp"], out["ecn"], out["ip_offset"] = tos >> 2, tos & 3, at
    if proto != 17 or fragment or header_len != (20 if version == 4 else 40):
        return
    udp_at = at + header_len
    if len(frame) < udp_at + 8 or total < header_len + 8:
        return
    sport, dport, udp_len, checksum = struct.unpack_from(">HHHH", frame, udp_at)
    out["udp"] = {"sport": sport, "dport": dport, "len": udp_len, "chksum": checksum}
    if dport not in (UDP_TYPE1, udp2):
        return
    out["format"] = "standard" if version == 4 else "rocev2_ipv6"
    rest_at, rest_len = udp_at + 8, udp_len - 8
    layer, layer_len = (Bth, 12) if rdma == "bth" or version == 6 else (RcRh, RH_LEN)
    out["bth" if layer is Bth else "rh"] = _take(layer, frame, rest_at, layer_len)
    if rest_len < layer_len:
        raise FormatError(f"UDP: length {udp_len} is below its headers")
    has_icrc = icrc or layer is Bth
    _split_tail(out, frame[rest_at + layer_len :], rest_len - layer_len, has_icrc)
    if has_icrc:
        rest = frame[rest_at : rest_at + rest_len - 4]
        want = icrc_ip(frame[at:udp_at], frame[udp_at:rest_at], rest, bth=layer is Bth)
        out["icrc_ok"] = out["icrc"] == want


def _parse_mac_control(frame, out):
    out["format"] = "mac_control"
    if len(frame) < 16:
        raise FormatError(f"MAC control: needs 16 bytes, had {len(frame)}")
    out["opcode"] = struct.unpack_from(">H", frame, 14)[0]
    if out["opcode"] == OP_PFC:
        if len(frame) < 34:
            raise FormatError(f"PFC: needs 34 bytes, had {len(frame)}")
        fields = _take(Pfc, frame + bytes(MIN_FRAME), 14, 46)
        times = fields["times"]
        out["quanta"] = {cls: times[cls] for cls in range(8) if fields["vector"] >> cls & 1}
        out.update(kind="pfc", vector=fields["vector"], times=times)
    elif out["opcode"] == OP_PAUSE:
        out.update(kind="pause", quanta=_take(Pause, frame + bytes(MIN_FRAME), 14, 46)["quanta"])
    elif out["opcode"] == OP_EXT and frame[16:19] == CC_UPDATE_CID:
        fields = _take(CcUpdate, frame, 14, 46)
        out.update(
            kind="cc_update", msg_type=fields["msg_type"], counters=[fields[f"vc{n}"] for n in range(16)]
        )
    else:
        out["kind"] = "other"


def parse(
    frame,
    mode="ethernet",
    *,
    order="slap",
    fcs=False,
    icrc=False,
    rdma="rh",
    tpids=(TPID,),
    mac_type1=MAC_TYPE1,
    mac_type2=MAC_TYPE2,
    udp2=None,
    own_mac=None,
):
    """Reads one frame into a dict by the order of wire-formats 1.8; raises FormatError when malformed.

    `mode` is the port's AFH mode, one of MODES. `fcs`: the last 4 bytes are FCS; key fcs_ok tells if
    it is right. `icrc`: frames of Standard and AFH end with an ICRC. `rdma`: "rh" or "bth" after UDP.
    """
    if mode not in MODES or order not in ORDERS:
        raise FormatError(f"mode {mode!r} or order {order!r} unknown")
    frame, out = bytes(frame), {}
    if fcs:
        if len(frame) < 18:
            raise FormatError(f"FCS: needs 18 bytes, had {len(frame)}")
        out["fcs_ok"] = crc_le(frame[:-4]) == frame[-4:]
        frame = frame[:-4]
    if mode == "lite":
        if frame[:6] == MAC_CONTROL_DA and frame[12:14] == b"\x88\x08":
            out.update(_take(EthernetHead, frame, 0, 14))
            _parse_mac_control(frame, out)
            return out
        out.update(_take(LITE_LAYER[order], frame, 0, 12))
        _afh_common(out)
        out.update(format="lite", payload=frame[12:])
        return out
    out.update(_take(EthernetHead, frame, 0, 14))
    ethertype, at = out["type"], 14
    if ethertype == ETH_MAC_CONTROL:
        own = own_mac is not None and frame[:6] == mac(own_mac)
        out["to_us"] = own or frame[:6] == MAC_CONTROL_DA
        _parse_mac_control(frame, out)
        return out
    if ethertype in tpids:
        tag = _take(Dot1Q, frame, 14, 4)
        out["vlan"] = {"pcp": tag["prio"], "dei": tag["dei"], "vid": tag["vlan"]}
        ethertype, at = tag["type"], 18
    out["type"] = ethertype
    out["format"] = "ethernet"
    if ethertype in (mac_type1, mac_type2) and mode != "ethernet":
        gen2 = mode == "gen2" or mode == "auto" and is_gen2(frame)
        head = _take(GEN2_LAYER[order] if gen2 else AfhGen1, frame, 0, 14)
        head["type"] = ethertype
        out.update(head, format="gen2" if gen2 else "gen1")
        out["group"] = bool(frame[0] & 1)
        _afh_common(out)
        _parse_afh(frame, at, out, icrc)
    elif ethertype in (ETH_IPV4, ETH_IPV6):
        _parse_ip(frame, at, out, 4 if ethertype == ETH_IPV4 else 6, udp2, rdma, icrc)
    out.setdefault("group", bool(frame[0] & 1))
    return out


def main(argv):
    """`selftest` checks every worked byte string; `parse HEX [MODE [ORDER]]` prints the fields."""
    if argv[:1] == ["selftest"]:
        from weftvectors import check_all

        return check_all()
    if argv[:1] == ["parse"] and 2 <= len(argv) <= 4:
        mode, order = (argv[2:] + ["ethernet", "slap"][len(argv) - 2 :])[:2]
        for key, value in parse(bytes.fromhex(argv[1]), mode, order=order).items():
            print(f"{key}: {value.hex(' ') if isinstance(value, bytes) else value}")
        return 0
    print("usage: weftfmt.py selftest | parse HEX [MODE [ORDER]]", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
