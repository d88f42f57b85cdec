"""Tests of builders and readers: worked bytes, scapy as second opinion, round trips, short frames.

Tables of cases, name first.

Units: bytes.
Source: docs/spec/wire-formats.md §1, §2; scapy's own IP, Dot1Q, mac_control and roce layers.
"""

import random

import pytest
from scapy.contrib import mac_control, roce
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

import weftfmt as w
from weftvectors import PAYLOAD, RH1, STANDARD, STD, TAG, VECTORS, A, B

REQ = {"hi": 0xA1A2A3, "lo": 0xB1B2B3}


@pytest.mark.parametrize(("name", "built", "want"), VECTORS, ids=[row[0] for row in VECTORS])
def test_worked_bytes(name, built, want):
    assert built == bytes.fromhex(want), name


def test_selftest_command_reports_a_difference(monkeypatch, capsys):
    import weftvectors

    assert w.main(["selftest"]) == 0
    monkeypatch.setattr(weftvectors, "VECTORS", [("broken", b"\x00", "01")])
    assert w.main(["selftest"]) == 1
    assert "FAIL broken" in capsys.readouterr().out


# name, frame, the same frame made of scapy layers
LAYERS = [
    (
        "standard",
        w.build_standard(B, A, PAYLOAD, RH1, **STANDARD),
        Ether(dst=B, src=A)
        / IP(tos=0x21, id=1, flags="DF", src="10.0.0.1", dst="10.0.0.2")
        / UDP(sport=0xC000, dport=4791, chksum=0xFFFF)
        / w.RcRh(RH1)
        / Raw(PAYLOAD),
    ),
    (
        "standard vlan",
        w.build_standard(B, A, PAYLOAD, RH1, vlan=TAG, **STANDARD),
        Ether(dst=B, src=A)
        / Dot1Q(prio=3, vlan=100)
        / IP(tos=0x21, id=1, flags="DF", src="10.0.0.1", dst="10.0.0.2")
        / UDP(sport=0xC000, dport=4791, chksum=0xFFFF)
        / w.RcRh(RH1)
        / Raw(PAYLOAD),
    ),
    (
        "gen1",
        w.build_gen1(B, A, 0x24, PAYLOAD, RH1),
        w.AfhGen1(dst=B, vc=1, flow=1, src=1) / w.RcRh(RH1) / Raw(PAYLOAD),
    ),
    (
        "gen1 vlan",
        w.build_gen1(B, A, 0x24, PAYLOAD, RH1, vlan=TAG, ethertype=w.MAC_TYPE2),
        w.AfhGen1(dst=B, vc=1, flow=1, src=1, type=0x8100)
        / Dot1Q(prio=3, vlan=100, type=0x88B6)
        / w.RcRh(RH1)
        / Raw(PAYLOAD),
    ),
    (
        "gen2 slap",
        w.build_gen2(2, 1, 0x48, PAYLOAD, RH1, **REQ),
        w.AfhGen2Slap(payload_hi=0xA1A2A3, dst=2, vc=2, flow=2, payload_lo=0xB1B2B3, src=1)
        / w.RcRh(RH1)
        / Raw(PAYLOAD),
    ),
    (
        "gen2 doc multicast",
        w.build_gen2(0x8005, 1, 0x48, PAYLOAD, RH1, order="as_documented", key_words=0x83, **REQ),
        w.AfhGen2Doc(payload_hi=0xA1A2A3, dst=0x8005, vc=2, flow=2, m=1, payload_lo=0xB1B2B3, src=1)
        / w.RcRh(RH1)
        / Raw(PAYLOAD),
    ),
    (
        "lite",
        w.build_lite(2, 1, 0x40, PAYLOAD, xpu_id=0x2A),
        w.AfhLiteSlap(dst=2, vc=2, xpu_id=0x2A, src=1) / Raw(PAYLOAD),
    ),
    (
        "lite doc",
        w.build_lite(2, 1, 0x40, PAYLOAD, xpu_id=0x2A, order="as_documented"),
        w.AfhLiteDoc(dst=2, vc=2, xpu_id=0x2A, src=1) / Raw(PAYLOAD),
    ),
    (
        "pfc",
        w.build_pfc(A, {3: 0xFFFF, 5: 7}),
        Ether(dst="01:80:c2:00:00:01", src=A, type=0x8808)
        / w.Pfc(vector=0x28, times=[0, 0, 0, 0xFFFF, 0, 7, 0, 0]),
    ),
    (
        "pause",
        w.build_pause(A, 0x1234),
        Ether(dst="01:80:c2:00:00:01", src=A, type=0x8808) / w.Pause(quanta=0x1234),
    ),
    (
        "cc_update",
        w.build_cc_update(A, [0x12345, 0x10]),
        Ether(dst="01:80:c2:00:00:01", src=A, type=0x8808) / w.CcUpdate(vc0=0x12345, vc1=0x10),
    ),
    (
        "bth",
        w.build_bth(0x04, 0x123456, 0xABCDEF, se=1, pad=2, becn=1, ackreq=1),
        w.Bth(opcode=4, se=1, pad=2, becn=1, dest_qp=0x123456, ackreq=1, psn=0xABCDEF),
    ),
    (
        "sue rh",
        w.build_sue_rh(1, 2, 0x3FF, 0xAB, 3, 5, 0xAA),
        w.SueRh(ver=1, op=2, xpu_id=0x3FF, npsn=0xAB, vc=3, partition=5, apsn=0xAA),
    ),
]


@pytest.mark.parametrize(("name", "built", "layers"), LAYERS, ids=[row[0] for row in LAYERS])
def test_layers_build_the_same_bytes(name, built, layers):
    assert bytes(layers) == built, name
    assert bytes(type(layers)(built)) == built, name


def test_scapys_own_pfc_layer_reads_ours():
    pfc = mac_control.MACControlClassBasedFlowControl(w.build_pfc(A, {3: 0xFFFF, 5: 7})[14:])
    assert [getattr(pfc, f"c{n}_enabled") for n in range(8)] == [0, 0, 0, 1, 0, 1, 0, 0]
    assert [getattr(pfc, f"c{n}_pause_time") for n in range(8)] == [0, 0, 0, 0xFFFF, 0, 7, 0, 0]


@pytest.mark.parametrize("ipv6", [False, True])
def test_scapys_own_roce_layer_agrees_on_icrc(ipv6):
    bth = w.build_bth(0x04, 0x123, 5)
    src_ip, dst_ip = (bytes([0xFD] + [0] * 14 + [n]) for n in (1, 2)) if ipv6 else ("10.0.0.1", "10.0.0.2")
    ours = w.build_rocev2(B, A, bth, PAYLOAD, tos=0x22, src_ip=src_ip, dst_ip=dst_ip, ipv6=ipv6)
    ip = (
        IPv6(tc=0x22, hlim=64, src="fd00::1", dst="fd00::2")
        if ipv6
        else IP(tos=0x22, id=1, flags="DF", src="10.0.0.1", dst="10.0.0.2")
    )
    udp = UDP(sport=0xC000, dport=4791) if ipv6 else UDP(sport=0xC000, dport=4791, chksum=0)
    layers = Ether(dst=B, src=A) / ip / udp / roce.BTH(opcode=4, dqpn=0x123, psn=5, migreq=0) / Raw(PAYLOAD)
    assert ours[-4:] == bytes(layers)[-4:]
    assert ours[:54] == bytes(layers)[:54]
    got = w.parse(ours, rdma="bth")
    assert got["icrc_ok"] and got["bth"]["psn"] == 5 and got["payload"] == PAYLOAD
    assert not w.parse(ours[:-5] + bytes([ours[-5] ^ 1]) + ours[-4:], rdma="bth")["icrc_ok"]
    if ipv6:
        layers = IPv6(ours[14:])
        want = layers[UDP].chksum
        del layers[UDP].chksum
        assert IPv6(bytes(layers))[UDP].chksum == want


def test_checksums_agree_with_scapy_on_random_headers():
    rng = random.Random(1)
    for _ in range(300):
        frame = w.build_standard(
            B,
            A,
            rng.randbytes(rng.randrange(64)),
            tos=rng.randrange(256),
            ident=rng.randrange(1 << 16),
            ttl=rng.randrange(1, 256),
            src_ip=rng.getrandbits(32),
            dst_ip=rng.getrandbits(32),
        )
        for candidate in (frame, w.mark_ce(frame)):
            ip = IP(candidate[14:34])
            want = ip.chksum
            del ip.chksum
            assert IP(bytes(ip)).chksum == want
            assert w.ones_sum(candidate[14:34]) == 0xFFFF


@pytest.mark.parametrize(("ecn", "marked"), [(0, 0), (1, 3), (2, 3), (3, 3)])
def test_mark_ce_marks_ect_only(ecn, marked):
    for vlan in (b"", TAG):
        frame = w.build_standard(B, A, PAYLOAD, RH1, vlan=vlan, dscp=8, ecn=ecn, icrc=True)
        out = w.mark_ce(frame)
        assert out == w.build_standard(B, A, PAYLOAD, RH1, vlan=vlan, dscp=8, ecn=marked, icrc=True)
        assert w.parse(out, icrc=True)["icrc_ok"]


# name, frame, mode, options, fields that must come back
PARSE = [
    (
        "standard",
        STD,
        "ethernet",
        {"icrc": True},
        {
            "format": "standard",
            "dscp": 8,
            "ecn": 1,
            "payload": PAYLOAD,
            "icrc_ok": True,
            "group": False,
            "pad_bytes": b"",
        },
    ),
    (
        "standard fcs",
        w.with_fcs(STD),
        "ethernet",
        {"icrc": True, "fcs": True},
        {"fcs_ok": True, "payload": PAYLOAD},
    ),
    (
        "standard bad fcs",
        w.with_fcs(STD)[:-1] + b"\0",
        "ethernet",
        {"icrc": True, "fcs": True},
        {"fcs_ok": False},
    ),
    (
        "standard padded",
        w.pad60(w.build_standard(B, A, b"1234")),
        "ethernet",
        {},
        {"payload": b"1234", "pad_bytes": bytes(6)},
    ),
    (
        "standard vlan",
        w.build_standard(B, A, PAYLOAD, RH1, vlan=TAG),
        "ethernet",
        {},
        {"format": "standard", "vlan": {"pcp": 3, "dei": 0, "vid": 100}},
    ),
    (
        "second udp port",
        w.build_standard(B, A, PAYLOAD, RH1, dport=5000),
        "ethernet",
        {"udp2": 5000},
        {"format": "standard"},
    ),
    (
        "other udp port",
        w.build_standard(B, A, PAYLOAD, RH1, dport=5000),
        "ethernet",
        {},
        {"format": "ethernet", "dscp": 0},
    ),
    ("fragment", STD[:20] + b"\x20\x00" + STD[22:], "ethernet", {}, {"format": "ethernet", "ecn": 1}),
    ("options", STD[:14] + b"\x46" + STD[15:], "ethernet", {}, {"format": "ethernet"}),
    (
        "gen1",
        w.build_gen1(B, A, 0x24, PAYLOAD, RH1, icrc=True),
        "gen1",
        {"icrc": True},
        {
            "format": "gen1",
            "dst": B,
            "src": 1,
            "tc": 0x24,
            "vc": 1,
            "flow": 1,
            "icrc_ok": True,
            "payload": PAYLOAD,
        },
    ),
    (
        "gen1 on a plain port",
        w.build_gen1(B, A, 0x24, PAYLOAD, RH1),
        "ethernet",
        {},
        {"format": "ethernet", "type": 0x88B5},
    ),
    ("gen1 auto", w.build_gen1(B, A, 0x24, PAYLOAD, RH1), "auto", {}, {"format": "gen1"}),
    (
        "gen2 auto",
        w.build_gen2(2, 1, 0x24, PAYLOAD, RH1, **REQ),
        "auto",
        {},
        {
            "format": "gen2",
            "dst": 2,
            "src": 1,
            "payload_hi": 0xA1A2A3,
            "payload_lo": 0xB1B2B3,
            "key_words": 0x82,
        },
    ),
    (
        "gen2 doc auto",
        w.build_gen2(2, 1, 0x24, PAYLOAD, RH1, order="as_documented", **REQ),
        "auto",
        {"order": "as_documented"},
        {"format": "gen2", "dst": 2, "tc": 0x24, "group": False},
    ),
    (
        "gen2 doc group",
        w.build_gen2(0x8005, 1, 0x48, PAYLOAD, RH1, order="as_documented", key_words=0x83),
        "gen2",
        {"order": "as_documented"},
        {"group": True, "key_words": 0x83},
    ),
    (
        "gen2 ack padded",
        w.pad60(w.build_gen2(1, 2, 0x24, b"", w.build_rh(opcode=1, len_syn=0x1F))),
        "gen2",
        {},
        {"payload": b"", "pad_bytes": bytes(38)},
    ),
    (
        "gen2 long",
        w.build_gen2(2, 1, 0x20, bytes(1344), icrc=True),
        "gen2",
        {"icrc": True},
        {"payload": bytes(1344), "icrc_ok": True},
    ),
    (
        "gen1 vlan",
        w.build_gen1(B, A, 0x24, PAYLOAD, RH1, vlan=TAG),
        "gen1",
        {},
        {"format": "gen1", "type": 0x88B5},
    ),
    (
        "lite",
        w.build_lite(2, 1, 0x40, b"\x88\x08" + PAYLOAD, xpu_id=0x2A),
        "lite",
        {},
        {"format": "lite", "dst": 2, "src": 1, "tc": 0x40, "xpu_id": 0x2A, "payload": b"\x88\x08" + PAYLOAD},
    ),
    ("lite group", w.build_lite(0x8001, 1, 0x48, PAYLOAD, key_words=0x83), "lite", {}, {"group": True}),
    ("pfc on lite", w.build_pfc(A, {1: 5}), "lite", {}, {"kind": "pfc", "quanta": {1: 5}}),
    ("8808 on lite, other da", w.build_pfc(A, {1: 5}, dst=B), "lite", {}, {"format": "lite"}),
    (
        "pfc",
        w.build_pfc(A, {0: 0, 7: 0xFFFF}),
        "ethernet",
        {},
        {"kind": "pfc", "vector": 0x81, "quanta": {0: 0, 7: 0xFFFF}},
    ),
    ("pfc other da", w.build_pfc(A, {1: 5}, dst=B), "ethernet", {}, {"to_us": False}),
    ("pfc own mac", w.build_pfc(A, {1: 5}, dst=B), "ethernet", {"own_mac": B}, {"to_us": True}),
    ("pause", w.build_pause(A, 9), "ethernet", {}, {"kind": "pause", "quanta": 9}),
    (
        "cc_update",
        w.build_cc_update(A, list(range(16))),
        "ethernet",
        {},
        {"kind": "cc_update", "counters": list(range(16))},
    ),
    (
        "tagged 8808 is data",
        w.build_pfc(A, {1: 5})[:12] + TAG + w.build_pfc(A, {1: 5})[12:],
        "ethernet",
        {},
        {"format": "ethernet", "type": 0x8808},
    ),
]


@pytest.mark.parametrize(("name", "frame", "mode", "options", "want"), PARSE, ids=[row[0] for row in PARSE])
def test_parse(name, frame, mode, options, want):
    got = w.parse(frame, mode, **options)
    assert {key: got.get(key) for key in want} == want, name


@pytest.mark.parametrize(
    ("name", "frame", "mode", "refused"),
    [
        ("standard", w.build_standard(B, A, b""), "ethernet", [*range(14), *range(42, 50)]),
        ("standard vlan", w.build_standard(B, A, b"", vlan=TAG), "ethernet", [*range(18), *range(46, 54)]),
        ("gen1", w.build_gen1(B, A, 0, b""), "gen1", range(22)),
        ("gen2", w.build_gen2(2, 1, 0, b""), "gen2", range(22)),
        ("gen2 vlan", w.build_gen2(2, 1, 0, b"", vlan=TAG), "gen2", range(26)),
        ("lite", w.build_lite(2, 1, 0, b""), "lite", range(12)),
        ("pfc", w.build_pfc(A, {3: 1})[:34], "ethernet", range(34)),
    ],
)
def test_every_length_that_is_too_short_is_refused(name, frame, mode, refused):
    for length in range(len(frame) + 1):
        if length in refused:
            with pytest.raises(w.FormatError):
                w.parse(frame[:length], mode)
        else:
            assert w.parse(frame[:length], mode), (name, length)


@pytest.mark.parametrize("reserved", [0x01, 0x80, 0xFF])
def test_reserved_bits_of_a_pfc_vector_are_ignored(reserved):
    frame = bytearray(w.build_pfc(A, {3: 1}))
    want = w.parse(bytes(frame))
    frame[16] = reserved
    assert w.parse(bytes(frame)) == want


@pytest.mark.parametrize(
    "field", [{"opcode": 4}, {"psn": 4096}, {"dest_qp": 8192}, {"len_syn": 128}, {"ts": 65536}]
)
def test_rh_field_out_of_range(field):
    with pytest.raises(w.FormatError):
        w.build_rh(**field)


def test_rh_round_trip():
    rng = random.Random(2)
    for _ in range(200):
        fields = {
            "opcode": rng.getrandbits(2),
            "fack": rng.getrandbits(1),
            "pad": rng.getrandbits(2),
            "p_key": rng.getrandbits(8),
            "len_syn": rng.getrandbits(7),
            "psn": rng.getrandbits(12),
            "dest_qp": rng.getrandbits(13),
        }
        got = w.RcRh(w.build_rh(ts=fields["psn"], **fields))
        assert {key: getattr(got, key) for key in fields} == fields
        assert (got.timestamp, got.ts_en, got.rsv) == (fields["psn"], 1, 0)


# name, frame, mode, order, priority of 4, priority of 8
PRIORITIES = [
    ("pcp over dscp", w.build_standard(B, A, b"", vlan=w.build_vlan(5, 1), dscp=8), "ethernet", "slap", 3, 5),
    ("pcp 2 is lowest of 4", w.build_standard(B, A, b"", vlan=w.build_vlan(2, 1)), "ethernet", "slap", 0, 2),
    ("pcp 4", w.build_gen1(B, A, 0x24, b"", vlan=w.build_vlan(4, 1)), "gen1", "slap", 2, 4),
    ("dscp 46", w.build_standard(B, A, b"", dscp=46), "ethernet", "slap", 3, 5),
    ("dscp 8", w.build_standard(B, A, b"", dscp=8, ecn=3), "ethernet", "slap", 1, 1),
    (
        "ipv6 dscp 33",
        w.build_rocev2(B, A, bytes(12), tos=33 << 2, src_ip=bytes(16), dst_ip=bytes(16), ipv6=True),
        "ethernet",
        "slap",
        2,
        4,
    ),
    ("tc req", w.build_gen1(B, A, w.traffic_class(7, 0), b""), "gen1", "slap", 2, 7),
    ("tc ack", w.build_gen2(2, 1, w.traffic_class(1, 1), b""), "gen2", "slap", 3, 1),
    (
        "tc ack doc",
        w.build_gen2(2, 1, w.traffic_class(1, 1), b"", order="as_documented"),
        "gen2",
        "as_documented",
        3,
        1,
    ),
    ("tc type2", w.build_lite(2, 1, w.traffic_class(6, 2), PAYLOAD), "lite", "slap", 0, 6),
    (
        "tc lite doc",
        w.build_lite(2, 1, w.traffic_class(6, 0), PAYLOAD, order="as_documented"),
        "lite",
        "as_documented",
        2,
        6,
    ),
    ("afh on a plain port", w.build_gen1(B, A, 0x24, b""), "ethernet", "slap", 0, 0),
]


@pytest.mark.parametrize(
    ("name", "frame", "mode", "order", "of4", "of8"), PRIORITIES, ids=[row[0] for row in PRIORITIES]
)
def test_priorities(name, frame, mode, order, of4, of8):
    assert [w.pri_of_frame(frame, mode, count, order) for count in (4, 8)] == [of4, of8], name


def test_parse_refuses_or_reads_whatever_comes():
    """Random bytes and cut or flipped frames: a dict or FormatError, nothing else."""
    rng = random.Random(11)
    seeds = [row[1] for row in PARSE]
    for n in range(4000):
        data = bytearray(rng.choice(seeds) if n % 4 else rng.randbytes(rng.randrange(100)))
        for _ in range(rng.randrange(4)):
            if data:
                data[rng.randrange(min(len(data), 60))] = rng.randrange(256)
        data = bytes(data[: rng.randrange(len(data) + 1)]) if n % 3 == 0 else bytes(data)
        options = {
            "order": rng.choice(w.ORDERS),
            "icrc": n % 2 == 0,
            "fcs": n % 5 == 0,
            "rdma": rng.choice(("rh", "bth")),
        }
        try:
            got = w.parse(data, rng.choice(w.MODES), **options)
        except w.FormatError:
            continue
        assert got["format"] in ("standard", "gen1", "gen2", "lite", "mac_control", "ethernet", "rocev2_ipv6")
