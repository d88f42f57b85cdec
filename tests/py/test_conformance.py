"""Tests of make_conformance.py and check_conformance.py: the frames, and that each seeded fault is found.

A naive switch in Python makes right captures; each fault changes one thing in them.

Units: bytes without FCS.
Source: docs/spec/wire-formats.md §1.1; docs/spec/pipeline.md §2.
"""

import json
import os
import random
from collections import Counter

import pytest

import check_conformance
import make_conformance
import weftfmt as w
from weftpcap import PcapngWriter, read_capture, write_pcap

COUNT = 1200
SETS = [row[0] for row in make_conformance.SETS]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """All sets, made once."""
    folder = tmp_path_factory.mktemp("made")
    assert make_conformance.main([str(folder), "--count", str(COUNT), "--seed", "7"]) == 0
    return folder


def load(folder, name):
    with open(folder / f"{name}.expect.json", encoding="ascii") as file:
        expect = json.load(file)
    return expect, read_capture(folder / expect["capture"])


def switch(expect, frames, priorities=4, seed=3):
    """Naive switch: right ports, padding; shuffles what may be reordered; marks some ECT frames."""
    rng = random.Random(seed)
    out = {port: {} for port in expect["ports"]}
    for row, frame in zip(expect["frames"], frames):
        data = w.pad60(frame.data)
        if rng.random() < 0.3:
            data = w.mark_ce(data)
        for port in row["out"]:
            out[port].setdefault((row["in"], row[f"pri{priorities}"]), []).append((frame.ts_ns, data))
    merged = {}
    for port, queues in out.items():
        merged[port] = []
        while queues:
            key = rng.choice(sorted(queues))
            merged[port].append(queues[key].pop(0))
            if not queues[key]:
                del queues[key]
    return merged


def write_out(folder, name, out, ng=False):
    for port, frames in out.items():
        stem = os.path.join(folder, name)
        os.makedirs(stem, exist_ok=True)
        if ng:
            with PcapngWriter(os.path.join(stem, port + ".pcapng"), port) as writer:
                for ts_ns, data in frames:
                    writer.write(ts_ns, data)
        else:
            write_pcap(os.path.join(stem, port + ".pcap"), frames)


def check(made, indir, name, *options):
    return check_conformance.main([str(indir), str(made / f"{name}.expect.json"), *options])


@pytest.mark.parametrize("name", SETS)
def test_frames_are_what_the_expectation_says(made, name):
    expect, frames = load(made, name)
    assert len(frames) == COUNT == len(expect["frames"])
    for row, frame in zip(expect["frames"], frames):
        icrc = row["size"] in ("typical_icrc", "largest", "largest+1") and expect["format"] != "lite"
        got = w.parse(frame.data, expect["port_mode"], order=expect["gen2_order"], icrc=icrc)
        assert got["format"] == expect["format"], row
        assert got.get("icrc_ok", True) and got.get("ip", {}).get("chksum_ok", True), row
        assert len(frame.data) == row["len"] and got["group"] == (len(row["out"]) == 3), row
        assert row["in"] not in row["out"], row
        for count in (4, 8):
            assert (
                w.pri_of_frame(frame.data, expect["port_mode"], count, expect["gen2_order"])
                == row[f"pri{count}"]
            ), row
        src, dst = got["src"], got["dst"]
        src = f"02:5a:00:00:01:{src & 0xFF:02x}" if expect["format"] == "gen1" else str(src)
        assert expect["stations"][src] == row["in"], row
        assert row["learning"] or [expect["stations"][str(dst)]] == row["out"], row
        assert not got.get("pad_bytes"), row


def test_sets_cover_classes_sizes_and_traps(made):
    rows = {
        "standard": ("dscp", 64, 50),
        "standard_vlan": ("pcp", 8, 54),
        "gen1": ("tc", 64, 22),
        "gen2": ("tc", 64, 22),
        "gen2_vlan": ("pcp", 8, 26),
        "gen2_doc": ("tc", 64, 22),
        "lite": ("tc", 64, 12),
        "lite_doc": ("tc", 64, 12),
    }
    for name, (key, classes, header) in rows.items():
        expect, frames = load(made, name)
        parsed = [w.parse(frame.data, expect["port_mode"], order=expect["gen2_order"]) for frame in frames]
        seen = {
            (fields["vlan"]["pcp"] if key == "pcp" else fields[key], row["size"])
            for fields, row in zip(parsed[4:], expect["frames"][4:])
        }
        assert len({cls for cls, _ in seen}) == classes, name
        assert len(seen) == classes * 7, f"{name}: every class at every size"
        largest = header + 1344 + (0 if expect["format"] == "lite" else 4)
        assert {60, largest, largest + 1} <= {row["len"] for row in expect["frames"]}, name
        assert min(row["len"] for row in expect["frames"]) < 60, name
        if expect["format"] == "lite":
            assert {fields["payload"][:2] for fields in parsed} >= {
                b"\x88\x08",
                b"\x81\x00",
                b"\x08\x00",
                b"\x88\xb5",
            }
        if expect["format"] == "gen2":
            assert len({fields["payload_hi"] for fields in parsed}) > COUNT * 0.9, "payload bits change"
        if name == "standard":
            assert len({(fields["dscp"], fields["ecn"]) for fields in parsed}) > 200, (
                "every ECN with every DSCP"
            )


# Totals of wire-formats 1.1 count FCS: 1402, 1406 with VLAN, 1378 for GEN1/2 with VLAN and ICRC, 1360 for Lite.
@pytest.mark.parametrize(
    ("name", "total"),
    [("standard", 1402), ("standard_vlan", 1406), ("gen1_vlan", 1378), ("gen2_vlan", 1378), ("lite", 1360)],
)
def test_largest_is_the_total_of_the_document(made, name, total):
    expect, _ = load(made, name)
    assert {row["len"] for row in expect["frames"] if row["size"] == "largest"} == {total - 4}


def test_counts_add_up(made):
    for name in SETS:
        expect, _ = load(made, name)
        for priorities in ("4", "8"):
            counts = expect["counts"][priorities]
            assert sum(counts["in"].values()) == COUNT
            per_port = Counter()
            for row in counts["out_per_port"].values():
                per_port.update(row)
            assert dict(per_port) == counts["out"] and sum(per_port.values()) == COUNT + 8


def test_same_seed_same_bytes_and_inputs_split(made, tmp_path):
    make_conformance.main([str(tmp_path), "--count", str(COUNT), "--seed", "7", "--sets", "lite,gen2"])
    for name in ("lite", "gen2"):
        assert (tmp_path / f"{name}.pcap").read_bytes() == (made / f"{name}.pcap").read_bytes()
        expect, frames = load(made, name)
        for port, path in expect["inputs"].items():
            mine = [frame for row, frame in zip(expect["frames"], frames) if row["in"] == port]
            assert read_capture(made / path) == mine


def test_multicast_option_floods_type2(tmp_path):
    make_conformance.main([str(tmp_path), "--count", "200", "--sets", "gen2", "--multicast"])
    expect, frames = load(tmp_path, "gen2")
    for row, frame in zip(expect["frames"], frames):
        got = w.parse(frame.data, "gen2")
        assert got["group"] == (got["flow"] == w.FLOW_TYPE2) == (len(row["out"]) == 3)


@pytest.mark.parametrize("priorities", [4, 8])
@pytest.mark.parametrize("ng", [False, True])
def test_right_captures_pass(made, tmp_path, priorities, ng):
    for name in SETS:
        expect, frames = load(made, name)
        write_out(tmp_path, name, switch(expect, frames, priorities), ng)
    paths = [str(made / f"{name}.expect.json") for name in SETS]
    assert check_conformance.main([str(tmp_path), *paths, "--priorities", str(priorities)]) == 0


def swap_in_one_queue(out, expect):
    """Exchanges two frames of one (input, output, priority)."""
    seqs = {}
    at = expect["seq_offset"]
    for index, (_, data) in enumerate(out["p1"]):
        row = expect["frames"][int.from_bytes(data[at + 1 : at + 4], "big")]
        if (row["in"], row["pri4"]) in seqs:
            first = seqs[row["in"], row["pri4"]]
            out["p1"][first], out["p1"][index] = out["p1"][index], out["p1"][first]
            return
        seqs[row["in"], row["pri4"]] = index


def edit(out, index, change):
    ts_ns, data = out["p1"][index]
    data = bytearray(data)
    change(data)
    out["p1"][index] = (ts_ns, bytes(data))


def flip(data):
    data[3] ^= 0x10


def flip_last(data):
    data[-1] ^= 1


def ecn_row(out, value):
    return next(n for n, (_, data) in enumerate(out["p1"]) if data[15] & 3 == value)


def mark_not_ect(out, _):
    edit(out, ecn_row(out, 0), lambda data: data.__setitem__(slice(None), remark(data)))


def remark(data):
    """Not-ECT turned into CE with a right checksum: still forbidden."""
    data[15] |= 3
    data[24:26] = w.ipv4_checksum(bytes(data[14:34])).to_bytes(2, "big")
    return data


def mark_bad_checksum(out, _):
    def change(data):
        data[:] = w.mark_ce(bytes(data))
        data[25] ^= 1

    edit(out, ecn_row(out, 1), change)


def clear_ce(out, _):
    edit(out, ecn_row(out, 3), lambda data: data.__setitem__(15, data[15] & ~3))


# name, fault, kind that must be reported
FAULTS = [
    ("swapped", swap_in_one_queue, "order"),
    ("lost", lambda out, _: out["p1"].pop(77), "lost"),
    ("last lost", lambda out, _: out["p1"].pop(), "lost"),
    ("duplicate", lambda out, _: out["p1"].append(out["p1"][9]), "duplicate"),
    ("flipped in the header", lambda out, _: edit(out, 50, flip), "bytes differ"),
    ("flipped last byte", lambda out, _: edit(out, 51, flip_last), "bytes differ"),
    ("wrong port", lambda out, _: out["p2"].append(out["p1"].pop(60)), "wrong port"),
    (
        "back to its input",
        lambda out, _: out["p0"].append(next(f for f in out["p1"] if f[1][6:12] == b"\2\0\0\0\0\1")),
        "wrong port",
    ),
    ("one byte more", lambda out, _: edit(out, 20, lambda data: data.append(0)), "bytes differ"),
    ("cut", lambda out, _: edit(out, 20, lambda data: data.pop()), "bytes differ"),
    ("not ours", lambda out, _: out["p1"].append((0, bytes(60))), "unknown frame"),
    ("not-ECT marked", mark_not_ect, "bytes differ"),
    ("marked, bad checksum", mark_bad_checksum, "bytes differ"),
    ("CE cleared", clear_ce, "bytes differ"),
    (
        "DSCP rewritten",
        lambda out, _: edit(out, 30, lambda data: data.__setitem__(15, data[15] ^ 0x80)),
        "counts",
    ),
]


@pytest.mark.parametrize(("name", "fault", "kind"), FAULTS, ids=[row[0] for row in FAULTS])
def test_every_seeded_fault_is_found(made, tmp_path, capsys, name, fault, kind):
    expect, frames = load(made, "standard")
    out = switch(expect, frames)
    fault(out, expect)
    write_out(tmp_path, "standard", out)
    assert check(made, tmp_path, "standard", "--json") == 1, name
    assert kind in json.loads(capsys.readouterr().out)["differences"], name


def test_unpadded_frames_are_found(made, tmp_path, capsys):
    expect, frames = load(made, "gen1")
    out = switch(expect, frames)
    at = next(n for n, (_, data) in enumerate(out["p1"]) if data.endswith(bytes(17)))
    edit(out, at, lambda data: data.__delitem__(slice(59, None)))
    write_out(tmp_path, "gen1", out)
    assert check(made, tmp_path, "gen1") == 1
    assert "length 59, expected 60" in capsys.readouterr().out


def test_foreign_frames_pass_only_when_asked(made, tmp_path):
    expect, frames = load(made, "gen2")
    out = switch(expect, frames)
    out["p3"].insert(5, (0, bytes.fromhex("333300000002020000000001" + "86dd" + "60" + "00" * 60)))
    write_out(tmp_path, "gen2", out)
    assert check(made, tmp_path, "gen2") == 1
    assert check(made, tmp_path, "gen2", "--allow-foreign") == 0


def test_order_of_8_priorities_is_finer(made, tmp_path):
    """Frames of one of 4 priorities but two of 8 may pass each other in a switch with 8 only."""
    expect, frames = load(made, "standard")
    write_out(tmp_path, "standard", switch(expect, frames, priorities=8))
    assert check(made, tmp_path, "standard", "--priorities", "8") == 0
    assert check(made, tmp_path, "standard", "--priorities", "4") == 1


def test_missing_and_cut_files_exit_2(made, tmp_path):
    assert check(made, tmp_path, "lite") == 2
    expect, frames = load(made, "lite")
    write_out(tmp_path, "lite", switch(expect, frames))
    path = tmp_path / "lite" / "p2.pcap"
    path.write_bytes(path.read_bytes()[:-3])
    assert check(made, tmp_path, "lite") == 2
