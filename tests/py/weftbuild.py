"""Builds the frames of docs/spec/wire-formats.md §1 and §2, from plain bytes (no scapy).

build_*() -> bytes without FCS; fcs(), icrc_*(), checksums; weftfmt.py reads them back.

Units: bytes; multi-byte fields big-endian; times of PFC in quanta of 512 bit times.
Source: docs/spec/wire-formats.md §0 to §2; IEEE 802.3 31/802.1Q 9, 36; RFC 791, 768, 1624, 3168; IBTA A17 (RoCEv2).
"""

import struct
import zlib

MAC_TYPE1 = 0x88B5
MAC_TYPE2 = 0x88B6
UDP_TYPE1 = 4791
TPID = 0x8100
ETH_IPV4 = 0x0800
ETH_IPV6 = 0x86DD
ETH_MAC_CONTROL = 0x8808
MAC_CONTROL_DA = bytes.fromhex("0180c2000001")
OP_PAUSE, OP_PFC, OP_EXT = 0x0001, 0x0101, 0xFFFE
CC_UPDATE_CID = bytes.fromhex("fa7acb")
KEY_UNICAST, KEY_MULTICAST = 0x82, 0x83
ORDERS = ("slap", "as_documented")
MODES = ("ethernet", "gen1", "gen2", "lite", "auto")
MIN_FRAME = 60  # without FCS
MAX_PAYLOAD = 1344
RH_LEN = 8
HEADER_LEN = {"standard": 50, "gen1": 22, "gen2": 22, "lite": 12}

# Traffic Class flows, wire-formats 1.4b.
FLOW_REQ, FLOW_ACK, FLOW_TYPE2, FLOW_TYPE3 = 0, 1, 2, 3


class FormatError(ValueError):
    """A frame or a field does not fit the format."""


def _fit(name, value, bits):
    if not 0 <= value < 1 << bits:
        raise FormatError(f"{name} = {value:#x} does not fit {bits} bits")
    return value


def mac(value):
    """Gives 6 bytes from 'aa:bb:..', an integer or 6 bytes."""
    if isinstance(value, str):
        value = bytes.fromhex(value.replace(":", "").replace("-", ""))
    if isinstance(value, int):
        value = _fit("mac", value, 48).to_bytes(6, "big")
    if len(value) != 6:
        raise FormatError(f"a MAC has 6 bytes, not {len(value)}")
    return bytes(value)


def ip4(value):
    """Gives 4 bytes from 'a.b.c.d', an integer or 4 bytes."""
    if isinstance(value, str):
        return bytes(int(part) for part in value.split("."))
    if isinstance(value, int):
        return value.to_bytes(4, "big")
    return bytes(value)


# Checks ------------------------------------------------------------------------------------------


def crc_le(data):
    """CRC-32 of Ethernet in wire order (least significant byte first)."""
    return struct.pack("<I", zlib.crc32(data))


def fcs(frame):
    """FCS of a frame of any length; the caller pads first."""
    return crc_le(frame)


def pad60(frame):
    """Zero-pads to the smallest frame without FCS."""
    return frame + bytes(MIN_FRAME - len(frame)) if len(frame) < MIN_FRAME else frame


def with_fcs(frame):
    """The frame as it is on the wire: padded, with FCS."""
    frame = pad60(frame)
    return frame + fcs(frame)


def ones_sum(data):
    """16-bit one's complement sum (RFC 1071), folded, not inverted."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def ipv4_checksum(header):
    """Header checksum for a header whose checksum field is taken as zero."""
    return ~ones_sum(header[:10] + b"\0\0" + header[12:]) & 0xFFFF


def rfc1624(checksum, old, new):
    """HC' = ~(~HC + ~m + m') of RFC 1624 equation 3."""
    return ~ones_sum(struct.pack(">HHH", ~checksum & 0xFFFF, ~old & 0xFFFF, new)) & 0xFFFF


def icrc_ip(ip_header, udp_header, rest, bth=False):
    """ICRC of RoCEv2 (bth=True) or of Standard with the RH (bth=False); wire order.

    Masks ToS, TTL and checksum (IPv6: traffic class, flow label, hop limit), the UDP checksum and,
    with a BTH, its byte 4.
    """
    head = bytearray(ip_header)
    if head[0] >> 4 == 4:
        head[1] = head[8] = head[10] = head[11] = 0xFF
    else:
        head[0] |= 0x0F
        head[1:4] = b"\xff\xff\xff"
        head[7] = 0xFF
    body = bytearray(rest)
    if bth:
        body[4] = 0xFF
    return crc_le(b"\xff" * 8 + bytes(head) + udp_header[:6] + b"\xff\xff" + bytes(body))


def icrc_afh(rh, payload):
    """ICRC of AFH: 8 bytes of FF, RH, payload with pad; wire order."""
    return crc_le(b"\xff" * 8 + rh + payload)


# Builders ----------------------------------------------------------------------------------------


def traffic_class(vc, flow=FLOW_REQ, ecn=0):
    """Traffic Class byte: VC 7:5, flow 4:2, ECN 1:0 (00 in AFH)."""
    return _fit("vc", vc, 3) << 5 | _fit("flow", flow, 3) << 2 | _fit("ecn", ecn, 2)


def split_traffic_class(tc):
    """Gives (vc, flow, low two bits)."""
    return tc >> 5, tc >> 2 & 7, tc & 3


def rh_length(payload_len):
    """Pkt_len of a request: RH + payload if that is 127 or less, else 0."""
    return RH_LEN + payload_len if RH_LEN + payload_len <= 127 else 0


def build_rh(opcode=0, fack=0, pad=0, ts=None, p_key=0, len_syn=0, psn=0, dest_qp=0):
    """RC Link RH, 8 bytes; `ts` None clears Timestamp_en."""
    word = _fit("opcode", opcode, 2) << 62 | _fit("fack", fack, 1) << 61 | _fit("pad", pad, 2) << 59
    word |= (ts is not None) << 56 | _fit("timestamp", ts or 0, 16) << 40 | _fit("p_key", p_key, 8) << 32
    word |= _fit("len_syn", len_syn, 7) << 25 | _fit("psn", psn, 12) << 13 | _fit("dest_qp", dest_qp, 13)
    return word.to_bytes(8, "big")


def build_sue_rh(ver=0, op=0, xpu_id=0, npsn=0, vc=0, partition=0, apsn=0):
    """SUE RH, 8 bytes, for the dissector only."""
    first = _fit("ver", ver, 2) << 30 | _fit("op", op, 2) << 28 | _fit("xpu_id", xpu_id, 10) << 16
    second = _fit("vc", vc, 2) << 30 | _fit("partition", partition, 10) << 16
    return struct.pack(">II", first | _fit("npsn", npsn, 16), second | _fit("apsn", apsn, 16))


def build_vlan(pcp=0, vid=0, dei=0, tpid=TPID):
    """802.1Q tag, 4 bytes, TPID first."""
    tci = _fit("pcp", pcp, 3) << 13 | _fit("dei", dei, 1) << 12 | _fit("vid", vid, 12)
    return struct.pack(">HH", tpid, tci)


def build_ipv4(length, src, dst, tos=0, ident=1, ttl=64, proto=17, flags=0x4000):
    """IPv4 header of 20 bytes with its checksum; `length` is what follows it."""
    head = struct.pack(">BBHHHBBH", 0x45, tos, 20 + length, ident, flags, ttl, proto, 0)
    head += ip4(src) + ip4(dst)
    return head[:10] + struct.pack(">H", ipv4_checksum(head)) + head[12:]


def build_standard(
    dst,
    src,
    payload,
    rh=None,
    *,
    vlan=b"",
    tos=None,
    dscp=0,
    ecn=0,
    src_ip="10.0.0.1",
    dst_ip="10.0.0.2",
    sport=0xC000,
    dport=UDP_TYPE1,
    ident=1,
    ttl=64,
    icrc=False,
):
    """Standard frame: Ethernet, optional tag, IPv4, UDP, RH, payload, optional ICRC; no FCS."""
    tos = _fit("dscp", dscp, 6) << 2 | _fit("ecn", ecn, 2) if tos is None else tos
    rh = build_rh(len_syn=rh_length(len(payload))) if rh is None else rh
    rest = rh + payload
    udp_len = 8 + len(rest) + (4 if icrc else 0)
    head = build_ipv4(udp_len, src_ip, dst_ip, tos, ident, ttl)
    udp = struct.pack(">HHHH", sport, dport, udp_len, 0xFFFF)
    tail = icrc_ip(head, udp, rest) if icrc else b""
    return mac(dst) + mac(src) + vlan + struct.pack(">H", ETH_IPV4) + head + udp + rest + tail


def build_gen1(dst, src, tc, payload, rh=None, *, vlan=b"", ethertype=MAC_TYPE1, icrc=False):
    """AFH_GEN1: DA 48, Traffic Class 8, SA 40 (the low 40 bits of `src`), EtherType, RH, payload."""
    rh = build_rh(len_syn=rh_length(len(payload))) if rh is None else rh
    tail = icrc_afh(rh, payload) if icrc else b""
    head = mac(dst) + bytes([_fit("tc", tc, 8)]) + mac(src)[1:] + vlan + struct.pack(">H", ethertype)
    return head + rh + payload + tail


def _afh2(key_words, hi, dst, tc, lo, src, order):
    if order not in ORDERS:
        raise FormatError(f"gen2_order {order!r} is none of {ORDERS}")
    first, second = (key_words, tc) if order == "slap" else (tc, key_words)
    da = bytes([_fit("byte 0", first, 8)]) + _fit("payload_hi", hi, 24).to_bytes(3, "big")
    sa = bytes([_fit("byte 6", second, 8)]) + _fit("payload_lo", lo, 24).to_bytes(3, "big")
    return da + struct.pack(">H", _fit("dst", dst, 16)) + sa + struct.pack(">H", _fit("src", src, 16))


def build_gen2(
    dst,
    src,
    tc,
    payload,
    rh=None,
    *,
    hi=0,
    lo=0,
    key_words=KEY_UNICAST,
    order="slap",
    vlan=b"",
    ethertype=MAC_TYPE1,
    icrc=False,
):
    """AFH_GEN2_16b with 16-bit addresses and 24 + 24 payload bits in the header."""
    rh = build_rh(len_syn=rh_length(len(payload))) if rh is None else rh
    tail = icrc_afh(rh, payload) if icrc else b""
    head = _afh2(key_words, hi, dst, tc, lo, src, order) + vlan + struct.pack(">H", ethertype)
    return head + rh + payload + tail


def build_lite(dst, src, tc, payload, *, xpu_id=0, key_words=KEY_UNICAST, order="slap"):
    """AFH_Lite: 12 bytes of header, then payload; no EtherType, RH, tag or ICRC."""
    return _afh2(key_words, 0, dst, tc, _fit("xpu_id", xpu_id, 16) << 8, src, order) + payload


def multicast_id(group):
    """16-bit destination of a multicast group 0..7."""
    return 0x8000 | _fit("group", group, 3)


def build_pfc(src, quanta, dst=MAC_CONTROL_DA):
    """PFC frame, 60 bytes; `quanta` maps class 0..7 to its time, and enables it."""
    times = [_fit("quanta", quanta.get(cls, 0), 16) for cls in range(8)]
    vector = sum(1 << _fit("class", cls, 3) for cls in quanta)
    body = struct.pack(">HHH8H", ETH_MAC_CONTROL, OP_PFC, vector, *times)
    return pad60(mac(dst) + mac(src) + body)


def build_pause(src, quanta, dst=MAC_CONTROL_DA):
    """802.3x PAUSE frame, 60 bytes."""
    body = struct.pack(">HHH", ETH_MAC_CONTROL, OP_PAUSE, _fit("quanta", quanta, 16))
    return pad60(mac(dst) + mac(src) + body)


def build_cc_update(src, counters, msg_type=1, dst=MAC_CONTROL_DA):
    """UEC CC_Update: 16 counters of 20 bits, VC order, most significant bit first; 60 bytes."""
    if len(counters) > 16:
        raise FormatError("CC_Update has 16 counters")
    word = 0
    for value in list(counters) + [0] * (16 - len(counters)):
        word = word << 20 | _fit("counter", value, 20)
    head = struct.pack(">HH", ETH_MAC_CONTROL, OP_EXT) + CC_UPDATE_CID + bytes([msg_type])
    return mac(dst) + mac(src) + head + word.to_bytes(40, "big")


def build_cf_update(vc1, count1, vc2, count2):
    """UEC CF_Update ordered set, 8 bytes of the xMII view; counts modulo 2^15."""
    a, b = count1 & 0x7FFF, count2 & 0x7FFF
    first = (_fit("vc1", vc1, 5) << 15 | a) << 4 | 0x6
    second = (_fit("vc2", vc2, 5) << 15 | b) << 4
    return b"\x5c\x10" + first.to_bytes(3, "big") + second.to_bytes(3, "big")


def build_bth(
    opcode, dest_qp, psn=0, *, se=0, migreq=0, pad=0, tver=0, p_key=0xFFFF, fecn=0, becn=0, ackreq=0
):
    """InfiniBand BTH, 12 bytes."""
    return struct.pack(
        ">BBHII",
        opcode,
        se << 7 | migreq << 6 | pad << 4 | tver,
        p_key,
        fecn << 31 | becn << 30 | _fit("dest_qp", dest_qp, 24),
        ackreq << 31 | _fit("psn", psn, 24),
    )


def build_cnp_bth(dest_qp):
    """BTH of a CNP and its 16 reserved bytes."""
    return build_bth(0x81, dest_qp, becn=1) + bytes(16)


def build_rocev2(
    dst,
    src,
    bth,
    payload=b"",
    *,
    vlan=b"",
    tos=0,
    src_ip="10.0.0.1",
    dst_ip="10.0.0.2",
    sport=0xC000,
    ident=1,
    ttl=64,
    ipv6=False,
    flow=0,
):
    """RoCEv2 frame over IPv4 or IPv6 with its ICRC; `bth` holds BTH and what follows up to the payload."""
    rest = bth + payload
    udp_len = 8 + len(rest) + 4
    udp = struct.pack(">HHHH", sport, UDP_TYPE1, udp_len, 0)
    if ipv6:
        head = struct.pack(">IHBB", 6 << 28 | tos << 20 | flow, udp_len, 17, ttl) + src_ip + dst_ip
        udp = udp[:6] + struct.pack(">H", udp6_checksum(head, udp, rest))
        # The ICRC masks the UDP checksum, but a UDP checksum over IPv6 covers the ICRC.
        tail = icrc_ip(head, udp, rest, bth=True)
        udp = udp[:6] + struct.pack(">H", udp6_checksum(head, udp, rest + tail))
    else:
        head = build_ipv4(udp_len, src_ip, dst_ip, tos, ident, ttl)
        tail = icrc_ip(head, udp, rest, bth=True)
    ethertype = ETH_IPV6 if ipv6 else ETH_IPV4
    return mac(dst) + mac(src) + vlan + struct.pack(">H", ethertype) + head + udp + rest + tail


def udp6_checksum(ip6, udp, rest):
    """UDP checksum over IPv6 (RFC 8200 8.1); 0 is sent as FFFF."""
    pseudo = ip6[8:40] + struct.pack(">IHBB", 8 + len(rest), 0, 0, 17)
    return ~ones_sum(pseudo + udp[:6] + b"\0\0" + rest) & 0xFFFF or 0xFFFF


def ipv4_offset(frame, tpid=TPID):
    """Offset of an IPv4 header of at least 20 bytes, over at most one tag; None without one."""
    at = 16 if frame[12:14] == struct.pack(">H", tpid) else 12
    if frame[at : at + 2] != b"\x08\x00" or len(frame) < at + 22 or frame[at + 2] >> 4 != 4:
        return None
    ihl = (frame[at + 2] & 15) * 4
    return at + 2 if ihl >= 20 and len(frame) >= at + 2 + ihl else None


def mark_ce(frame):
    """The frame as a switch marks it: ECN 11, checksum by RFC 1624; Not-ECT and CE as they are."""
    at = ipv4_offset(frame)
    if at is None or frame[at + 1] & 3 in (0, 3):
        return frame
    old, checksum = struct.unpack_from(">H", frame, at)[0], struct.unpack_from(">H", frame, at + 10)[0]
    out = bytearray(frame)
    out[at + 1] |= 3
    struct.pack_into(">H", out, at + 10, rfc1624(checksum, old, old | 3))
    return bytes(out)
