"""Tests of check_ecn.py: right captures and traces pass, each seeded fault is found.

Captures made with weftbuild, traces drawn from the formula with a seeded generator.

Units: depths in bytes.
Source: docs/spec/wire-formats.md §2.4.
"""

import json
import random

import pytest

import check_ecn
import weftbuild as w
from weftpcap import write_pcap

A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"


def frames():
    made = []
    for n in range(400):
        payload = n.to_bytes(4, "big") + bytes(n % 100)
        vlan = w.build_vlan(3, 5) if n % 3 == 0 else b""
        made.append(w.build_standard(B, A, payload, vlan=vlan, ecn=n % 4, dscp=n % 64, icrc=n % 5 == 0))
    made.append(w.build_gen1(B, A, 0x20, b"abcd"))
    six = {"src_ip": bytes(15) + b"\1", "dst_ip": bytes(15) + b"\2", "ipv6": True}
    made += [w.build_rocev2(B, A, w.build_bth(4, 1, ecn), tos=ecn, **six) for ecn in range(4)]
    return made


def mark6(frame):
    return frame[:15] + bytes([frame[15] | 0x30]) + frame[16:]


def switched():
    rng = random.Random(4)
    out = []
    for frame in frames():
        if frame[12:14] == b"\x86\xdd" and frame[15] >> 4 & 3 in (1, 2):
            frame = mark6(frame)
        out.append(w.pad60(w.mark_ce(frame) if rng.random() < 0.5 else frame))
    rng.shuffle(out)
    return out


def edited(pick, change):
    """The switched frames with the first for which pick(ecn) holds changed."""
    out = switched()
    at = next(n for n, frame in enumerate(out) if frame[12:14] == b"\x08\x00" and pick(frame[15] & 3))
    data = bytearray(out[at])
    change(data)
    out[at] = bytes(data)
    return out


def fix(data):
    data[24:26] = w.ipv4_checksum(bytes(data[14:34])).to_bytes(2, "big")


def set_ecn(ecn):
    def change(data):
        data[15] = data[15] & 0xFC | ecn
        fix(data)

    return change


def break_checksum(data):
    data[25] ^= 1


def rewrite_ttl(data):
    data[22] -= 1
    fix(data)


# name, what came out, exit
CAPTURES = [
    ("right", switched(), 0),
    ("untouched", [w.pad60(frame) for frame in frames()], 0),
    ("Not-ECT marked", edited(lambda ecn: ecn == 0, set_ecn(3)), 1),
    ("CE cleared to Not-ECT", edited(lambda ecn: ecn == 3, set_ecn(0)), 1),
    ("CE cleared to ECT", edited(lambda ecn: ecn == 3, set_ecn(1)), 1),
    ("ECT(1) to ECT(0)", edited(lambda ecn: ecn == 1, set_ecn(2)), 1),
    ("ECT to Not-ECT", edited(lambda ecn: ecn == 2, set_ecn(0)), 1),
    ("bad checksum, unmarked", edited(lambda ecn: ecn == 0, break_checksum), 1),
    ("bad checksum, marked", edited(lambda ecn: ecn == 3, break_checksum), 1),
    ("TTL changed", edited(lambda ecn: ecn == 1, rewrite_ttl), 1),
    ("lost", switched()[1:], 1),
    ("duplicate", [*switched(), switched()[0]], 1),
    (
        "IPv6 Not-ECT marked",
        [mark6(frame) if frame[12:14] == b"\x86\xdd" else frame for frame in switched()],
        1,
    ),
    ("nothing", [], 1),
]


@pytest.mark.parametrize(("name", "out", "want"), CAPTURES, ids=[row[0] for row in CAPTURES])
def test_captures(tmp_path, capsys, name, out, want):
    half = len(frames()) // 2
    write_pcap(tmp_path / "in1.pcap", [(0, frame) for frame in frames()[:half]])
    write_pcap(tmp_path / "in2.pcap", [(0, frame) for frame in frames()[half:]])
    write_pcap(tmp_path / "out.pcap", [(0, frame) for frame in out])
    inputs = f"{tmp_path}/in1.pcap,{tmp_path}/in2.pcap"
    assert check_ecn.main([inputs, f"{tmp_path}/out.pcap"]) == want, name
    result = json.loads(capsys.readouterr().out)
    if name == "right":
        assert result["captures"]["marked"] > 50 and result["captures"]["in_ecn"]["not_ip"] == 1
        assert check_ecn.main([inputs, f"{tmp_path}/out.pcap", "--min-marked", "100000"]) == 1
    if name == "lost":
        assert check_ecn.main([inputs, f"{tmp_path}/out.pcap", "--allow-loss"]) == 0


def trace(rule, count=9000, low=1000, high=1600):
    """Lines of `count` ECT frames, depths over three bins; `rule(depth, share, rng)` decides."""
    rng = random.Random(9)
    for n in range(count):
        depth = [rng.randrange(low), rng.randrange(low, high), rng.randrange(high, 3000)][n % 3]
        marked = rule(depth, check_ecn.probability(depth, low, high), rng)
        yield json.dumps(
            {
                "ev": "deq",
                "port": "p1",
                "pri": 2,
                "depth": depth,
                "low": low,
                "high": high,
                "ect": True,
                "marked": bool(marked),
            }
        )
        yield json.dumps(
            {"ev": "deq", "depth": depth, "low": low, "high": high, "ect": False, "marked": False}
        )
        yield json.dumps({"ev": "enq", "depth": depth})


# name, marking rule, options, exit
TRACES = [
    (
        "right",
        lambda depth, share, rng: rng.random() < share,
        ["--mid-bins", "3", "--min", "900", "--points", "4"],
        0,
    ),
    ("right, ends exact", lambda depth, share, rng: rng.random() < share, ["--exact-ends"], 0),
    ("one mark below low", lambda depth, share, rng: rng.random() < share or depth == 5, ["--exact-ends"], 1),
    ("never above", lambda depth, share, rng: depth < 1600 and rng.random() < share, [], 1),
    ("step at low", lambda depth, share, rng: depth >= 1000, [], 1),
    ("3 points too few", lambda depth, share, rng: rng.random() < share * 0.93, [], 1),
    (
        "flat half in the middle",
        lambda depth, share, rng: rng.random() < (share if share in (0, 1) else 0.5),
        ["--mid-bins", "3", "--min", "900", "--points", "4"],
        1,
    ),
]


@pytest.mark.parametrize(("name", "rule", "options", "want"), TRACES, ids=[row[0] for row in TRACES])
def test_trace(tmp_path, capsys, name, rule, options, want):
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(trace(rule)) + "\n")
    assert check_ecn.main(["-", "-", str(path), "--min", "3000", *options]) == want, name
    assert json.loads(capsys.readouterr().out)["bins"][0]["bin"] == "below"


def test_trace_needs_samples_and_good_lines(tmp_path):
    path = tmp_path / "trace.jsonl"
    right = "\n".join(trace(lambda depth, share, rng: rng.random() < share))
    path.write_text(right)
    assert check_ecn.main(["-", "-", str(path), "--min", "3000"]) == 0
    assert check_ecn.main(["-", "-", str(path)]) == 1, "10,000 are the default"
    for bad in (
        "{",
        '{"ev":"deq","ect":true}',
        '{"ev":"deq","ect":false,"marked":true,"depth":1,"low":2,"high":3}',
    ):
        path.write_text(right + "\n" + bad)
        assert check_ecn.main(["-", "-", str(path), "--min", "3000"]) == 1, bad


def test_missing_file_exits_2(tmp_path):
    assert check_ecn.main([str(tmp_path / "none"), str(tmp_path / "none")]) == 2
