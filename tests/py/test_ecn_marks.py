"""Which frames carry ECN marks: every IP frame that is ECT and nothing else, byte by byte.

One frame of each kind through `weft replay` with marks due at once (both thresholds 0); what comes out
is held against the bytes that the standards ask for, made here without a look at what weft does.

Units: bytes without FCS; stamps in ns.
Source: docs/spec/pipeline.md §8; RFC 3168 5, RFC 1624, RFC 1812 5.2.2, RFC 8200 3, IEEE 802.1Q 9.
"""

import struct
import subprocess

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6

import weftbuild as w
from test_replay_conformance import REPLAY_TIMEOUT_S
from weftlive import weft
from weftpcap import read_capture, write_pcap

CONFIG = """
[port_defaults]
port_bandwidth_gbps = 100
max_frame = 1522

[ecn]
ecn_threshold_low = 0
ecn_threshold_high = 0

[[port]]
name = "p0"

[[port]]
name = "p1"

[[static_entry]]
addr = "02:00:00:00:00:02"
port = "p1"
"""
DST, SRC = w.mac(2), w.mac(1)
SIX = (bytes(15) + b"\1", bytes(15) + b"\2")
NEVER, IF_IP, ALWAYS = "never", "ip", "always"  # marked: not at all, with ecn.mark ip, with standard too
QINQ = w.build_vlan(3, 5, tpid=0x88A8)
TAG = w.build_vlan(3, 5)


def ethernet(kind, body, tags=b""):
    """A frame to the station behind p1, padded."""
    return w.pad60(DST + SRC + tags + struct.pack(">H", kind) + body)


def v4(ecn, body, proto=6, **fields):
    """An IPv4 packet; `options`, `first`, `total`, `checksum` say what is other than usual."""
    options = fields.pop("options", b"")
    first, total, checksum = (fields.pop(key, None) for key in ("first", "total", "checksum"))
    head = bytearray(w.build_ipv4(len(body), "10.0.0.1", "10.0.0.2", tos=0x20 | ecn, proto=proto, **fields))
    head += options
    head[0] = 0x40 | len(head) // 4 if first is None else first
    head[2:4] = struct.pack(">H", len(head) + len(body) if total is None else total)
    head[10:12] = struct.pack(">H", w.ipv4_checksum(bytes(head)) if checksum is None else checksum)
    return bytes(head) + body


def v6(ecn, body, nxt=6, version=6):
    """An IPv6 packet."""
    return struct.pack(">IHBB", version << 28 | ecn << 20 | 0x23456, len(body), nxt, 64) + b"".join(SIX) + body


def tcp(pseudo=None):
    """A TCP header with payload; with `pseudo` its checksum field holds that sum, as a host leaves it."""
    return struct.pack(">HHIIBBHHH", 80, 81, 7, 8, 0x50, 0x10, 999, pseudo or 0x1234, 0) + b"payload of it"


def kinds():
    """(name, frame, offset of the IP header, when it is marked) for each ECN value."""
    rows = []
    udp = struct.pack(">HHHH", 5000, 5001, 8 + 12, 0) + bytes(12)
    pseudo = w.ones_sum(w.ip4("10.0.0.1") + w.ip4("10.0.0.2") + struct.pack(">HH", 6, len(tcp())))
    fragment = struct.pack(">HHI", 0x2C06, 0x0001, 9) + tcp()
    for ecn in range(4):
        standard = w.build_standard(2, 1, bytes(40), ecn=ecn, icrc=True)
        roce6 = w.build_rocev2(
            2, 1, w.build_bth(4, 1, 2), tos=ecn, src_ip=SIX[0], dst_ip=SIX[1], ipv6=True, vlan=TAG
        )
        rows += [
            ("standard", standard, 14, ALWAYS),
            ("standard tagged", w.build_standard(2, 1, bytes(40), ecn=ecn, vlan=TAG), 18, ALWAYS),
            ("roce over ipv6, tagged", roce6, 18, ALWAYS),
            ("tcp", ethernet(0x0800, v4(ecn, tcp())), 14, IF_IP),
            ("tcp tagged", ethernet(0x0800, v4(ecn, tcp()), TAG), 18, IF_IP),
            ("tcp with a partial checksum", ethernet(0x0800, v4(ecn, tcp(pseudo))), 14, IF_IP),
            ("udp elsewhere", ethernet(0x0800, v4(ecn, udp, 17)), 14, IF_IP),
            ("icmp", ethernet(0x0800, v4(ecn, b"\x08\0\0\0" + bytes(30), 1)), 14, IF_IP),
            ("esp", ethernet(0x0800, v4(ecn, bytes(60), 50)), 14, IF_IP),
            ("options", ethernet(0x0800, v4(ecn, tcp(), options=b"\x01" * 8)), 14, IF_IP),
            ("longest options, tagged", ethernet(0x0800, v4(ecn, tcp(), options=b"\1" * 40), TAG), 18, IF_IP),
            ("first fragment", ethernet(0x0800, v4(ecn, tcp(), flags=0x2000)), 14, IF_IP),
            ("later fragment", ethernet(0x0800, v4(ecn, bytes(40), flags=0x0010)), 14, IF_IP),
            ("fragment to the Standard port", ethernet(0x0800, standard[14:20] + b"\x20\0" + standard[22:]), 14, IF_IP),
            ("wrong checksum", ethernet(0x0800, v4(ecn, tcp(), checksum=0xBEEF)), 14, IF_IP),
            ("claims more than is there", ethernet(0x0800, v4(ecn, tcp(), total=1_400)), 14, IF_IP),
            ("bare header, padded", ethernet(0x0800, v4(ecn, b"", 59)), 14, IF_IP),
            ("ipv6 tcp", ethernet(0x86DD, v6(ecn, tcp())), 14, IF_IP),
            ("ipv6 tcp tagged", ethernet(0x86DD, v6(ecn, tcp()), TAG), 18, IF_IP),
            ("ipv6 hop by hop", ethernet(0x86DD, v6(ecn, b"\x06\0" + bytes(6) + tcp(), 0)), 14, IF_IP),
            ("ipv6 fragment", ethernet(0x86DD, v6(ecn, fragment, 44)), 14, IF_IP),
            ("two tags", ethernet(0x0800, v4(ecn, tcp()), TAG + TAG), None, NEVER),
            ("service tag", ethernet(0x0800, v4(ecn, tcp()), QINQ), None, NEVER),
            ("service tag before a tag", ethernet(0x0800, v4(ecn, tcp()), QINQ + TAG), None, NEVER),
            ("version 5", ethernet(0x0800, v4(ecn, tcp(), first=0x55)), None, NEVER),
            ("version 6 as IPv4", ethernet(0x0800, v6(ecn, tcp())), None, NEVER),
            ("version 4 as IPv6", ethernet(0x86DD, v4(ecn, bytes(60))), None, NEVER),
            ("version 7 as IPv6", ethernet(0x86DD, v6(ecn, tcp(), version=7)), None, NEVER),
            ("IHL 4", ethernet(0x0800, v4(ecn, tcp(), first=0x44)), None, NEVER),
            ("IHL 0", ethernet(0x0800, v4(ecn, tcp(), first=0x40)), None, NEVER),
            ("total length 19", ethernet(0x0800, v4(ecn, tcp(), total=19)), None, NEVER),
            ("total length 0", ethernet(0x0800, v4(ecn, tcp(), total=0)), None, NEVER),
            ("total length in the options", ethernet(0x0800, v4(ecn, tcp(), options=bytes(8), total=27)), None, NEVER),
            ("length field, IP behind SNAP", ethernet(60, b"\xaa\xaa\3\0\0\0\x08\0" + v4(ecn, tcp())), None, NEVER),
            ("ARP that looks like IP", ethernet(0x0806, v4(ecn, tcp())), None, NEVER),
            ("PPPoE", ethernet(0x8864, struct.pack(">BBHHH", 0x11, 0, 1, 60, 0x21) + v4(ecn, tcp())), None, NEVER),
            ("MPLS", ethernet(0x8847, b"\0\0\x11\x40" + v4(ecn, tcp())), None, NEVER),
            ("gen1 whose payload is IP", w.build_gen1(2, 1, 0x20, v4(ecn, tcp())), None, NEVER),
        ]
    return rows


def marked(frame, at):
    """The frame with CE at the IP header at byte `at`, built anew by scapy; a wrong checksum stays as wrong."""
    if frame[at] >> 4 == 6:
        packet = IPv6(frame[at:])
        packet.tc |= 3
        return frame[:at] + bytes(packet)[:40] + frame[at + 40 :]
    length = (frame[at] & 15) * 4
    packet = IP(frame[at : at + length])
    was = packet.chksum
    del packet.chksum
    right = IP(bytes(packet)).chksum
    packet.tos |= 3
    now = IP(bytes(packet)).chksum
    off = w.ones_sum(struct.pack(">HH", was, ~right & 0xFFFF))  # 0xFFFF when it was right
    if off != 0xFFFF:
        now = w.ones_sum(struct.pack(">HH", now, off))
    packet.chksum = now
    return frame[:at] + bytes(packet)[:length] + frame[at + length :]


def expected(frame, at, when, mode):
    """What is to come out."""
    is_due = when == ALWAYS or when == IF_IP and mode == "ip"
    if not is_due:
        return frame
    ecn = frame[at + 1] >> 4 & 3 if frame[at] >> 4 == 6 else frame[at + 1] & 3
    return marked(frame, at) if ecn in (1, 2) else frame


def run(folder, frames, *more):
    """The frames that leave p1."""
    (folder / "switch.toml").write_text(CONFIG, encoding="ascii")
    write_pcap(folder / "in.pcap", [(n * 10_000, frame) for n, frame in enumerate(frames)])
    command = [weft(), "replay", "-c", folder / "switch.toml", "--in", f"p0={folder / 'in.pcap'}"]
    command += ["--out", folder / "out", *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=REPLAY_TIMEOUT_S, check=False)
    assert ended.returncode == 0, ended.stderr
    return [frame.data for frame in read_capture(folder / "out" / "p1.pcap")]


@pytest.mark.parametrize("mode", ["ip", "standard"])
def test_all_of_ip_that_is_ect_is_marked_and_nothing_else(mode, tmp_path):
    """Both modes; with `ip`, the default, nothing is set."""
    rows = kinds()
    more = [] if mode == "ip" else ["--set", "ecn.mark=standard"]
    got = run(tmp_path, [frame for _, frame, _, _ in rows], *more)
    assert len(got) == len(rows)
    changed = 0
    for (name, frame, at, when), out in zip(rows, got):
        want = expected(frame, at, when, mode)
        assert out == want, f"{name}: {frame[:60].hex(' ')}\n{out[:60].hex(' ')}\n{want[:60].hex(' ')}"
        changed += out != frame
    due = [when for _, _, _, when in rows if when == ALWAYS or when == IF_IP and mode == "ip"]
    assert changed == len(due) // 2, "the two ECT values of each kind"


def test_cut_frames_are_marked_whole_or_left_alone(tmp_path):
    """No length of a frame makes weft write to what is no longer an IP header."""
    whole = [
        (ethernet(0x0800, v4(1, tcp(), options=b"\1" * 8), TAG), 18, 28),
        (ethernet(0x86DD, v6(2, tcp())), 14, 40),
    ]
    cuts = [(frame, at, need, length) for frame, at, need in whole for length in range(at, len(frame))]
    got = run(tmp_path, [frame[:length] for frame, _, _, length in cuts])
    for (frame, at, need, length), out in zip(cuts, got, strict=True):
        want = marked(frame, at) if length >= at + need else frame
        assert out == w.pad60(want[:length]), f"cut to {length}: {out.hex(' ')}"
