"""Tests of check_pfc.py: each field of a PFC frame, and PAUSE without XON.

A right sequence, and one change to it per case.

Units: quanta.
Source: docs/spec/wire-formats.md §2.3.
"""

import json

import pytest

import check_pfc
import weftbuild as w
from weftpcap import write_pcap

A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
DATA = w.build_standard(B, A, bytes(64))
RIGHT = [
    DATA,
    w.build_pfc(A, {3: 0xFFFF}),
    w.build_pfc(A, {3: 0xFFFF, 4: 0xFFFF}),
    DATA,
    w.build_pfc(A, {3: 0}),
    w.build_pfc(A, {4: 0}),
    w.build_pfc(A, {3: 0xFFFF}),
    w.build_pfc(A, {3: 0, 4: 0}),
]


def patched(at, value):
    data = bytearray(RIGHT[1])
    data[at : at + len(value)] = value
    return [*RIGHT, bytes(data), RIGHT[-1]]


# name, frames, options, exit, text of the first problem
CASES = [
    ("right", RIGHT, [], 0, ""),
    ("right sa", RIGHT, ["--sa", A], 0, ""),
    ("other sa", RIGHT, ["--sa", B], 1, "SA 02:00:00:00:00:01, not 02:00:00:00:00:02"),
    ("da", patched(0, b"\x01\x80\xc2\x00\x00\x02"), [], 1, "DA 01:80:c2:00:00:02"),
    ("group sa", patched(6, b"\x03"), [], 1, "group address"),
    ("pause opcode", patched(14, b"\x00\x01"), [], 1, "opcode 0x0001"),
    ("vector high byte", patched(16, b"\x01"), [], 1, "high byte"),
    ("vector without class", patched(16, b"\x00\x00" + bytes(16)), [], 1, "enables no class"),
    ("quanta", patched(24, b"\x12\x34"), [], 1, "quanta 0x1234"),
    ("quanta allowed", patched(24, b"\x12\x34"), ["--quanta", "any"], 0, ""),
    ("time without enable bit", patched(26, b"\xff\xff"), [], 1, "enable bit is clear"),
    ("pad", patched(34, b"\x01"), [], 1, "pad is not zero"),
    ("last byte", patched(59, b"\x01"), [], 1, "pad is not zero"),
    ("61 bytes", patched(60, b"\x00"), [], 1, "61 bytes"),
    ("59 bytes", [*RIGHT, RIGHT[1][:59], RIGHT[-1]], [], 1, "59 bytes"),
    ("tagged", [*RIGHT, RIGHT[1][:12] + w.build_vlan(3, 1) + RIGHT[1][12:]], [], 1, "VLAN tag"),
    ("open", RIGHT[:-1], [], 1, "never had its XON"),
    ("open allowed", RIGHT[:-1], ["--allow-open"], 0, ""),
    ("xon before pause only", [RIGHT[4], RIGHT[1]], [], 1, "never had its XON"),
    ("xon of another class", [RIGHT[1], w.build_pfc(A, {4: 0})], [], 1, "never had its XON"),
    ("xon from another sender", [RIGHT[1], w.build_pfc(B, {3: 0})], [], 1, "never had its XON"),
    ("none", [DATA], [], 1, "0 PAUSE"),
    ("none wanted", [DATA], ["--min-pauses", "0"], 0, ""),
]


@pytest.mark.parametrize(("name", "frames", "options", "want", "text"), CASES, ids=[row[0] for row in CASES])
def test_cases(tmp_path, capsys, name, frames, options, want, text):
    write_pcap(tmp_path / "c.pcap", [(n * 1000, frame) for n, frame in enumerate(frames)])
    assert check_pfc.main([str(tmp_path / "c.pcap"), *options]) == want, name
    first = json.loads(capsys.readouterr().out)["captures"][0]["first"]
    assert bool(first) == bool(want) and (not text or any(text in line for line in first)), first


def test_counts(tmp_path, capsys):
    write_pcap(tmp_path / "c.pcap", [(n * 1000, frame) for n, frame in enumerate(RIGHT)])
    assert check_pfc.main([str(tmp_path / "c.pcap")]) == 0
    row = json.loads(capsys.readouterr().out)["captures"][0]
    assert (row["frames"], row["mac_control"], row["pauses"], row["refreshes"], row["xons"]) == (
        8,
        6,
        3,
        1,
        3,
    )
    three, four = row["classes"]
    assert (three["class"], three["pause"], three["refresh"], three["xon"], three["paused_ns"]) == (
        3,
        2,
        1,
        2,
        4000,
    )
    assert (four["class"], four["pause"], four["xon"], four["xon_without_pause"], four["paused_ns"]) == (
        4,
        1,
        1,
        1,
        3000,
    )


def test_short_pfc_does_not_crash(tmp_path, capsys):
    for length in range(14, 60):
        write_pcap(tmp_path / "c.pcap", [(0, RIGHT[1][:length])])
        assert check_pfc.main([str(tmp_path / "c.pcap")]) == 1
        assert f"{length} bytes" in capsys.readouterr().out
    assert check_pfc.main([str(tmp_path / "none.pcap")]) == 2
