"""ECN through the whole pipeline: three depth bins of 10,000 frames and more, held against the formula.

Two senders to one output in `weft replay`; the second one lifts the queue, the first one then
keeps it where it is. check_ecn.py reads the captures (checksums by scapy) and the depths of the trace.

Units: bytes without FCS, ns.
Source: docs/spec/pipeline.md §8.
"""

import json
import subprocess

import pytest

import check_ecn
import weftbuild as w
from test_replay_conformance import REPLAY_TIMEOUT_S
from weftlive import weft
from weftpcap import write_pcap

LOW, HIGH = 100_000, 300_000  # bytes: 25 % and 75 % of the capacity below
CONFIG = """
[port_defaults]
port_bandwidth_gbps = 100
afh = "none"

[buffer]
buffer_size_mb = 8
cell_bytes = 64
queue_capacity_bytes = 400000

[ecn]
ecn_threshold_low = 25
ecn_threshold_high = 75

[pfc]
pfc_enabled = false

[[port]]
name = "p0"

[[port]]
name = "p1"

[[port]]
name = "p2"

[[static_entry]]
addr = "02:00:00:00:00:03"
port = "p2"
"""
FRAME_LEN = 1024
WIRE_NS = (FRAME_LEN + 24) * 8 / 100  # FCS, preamble and gap; at 100 Gbit/s
PHASE = 11_700  # frames of the first sender, 8 of 9 of them ECT
NOT_ECT_EVERY = 9


def sender(number):
    """A function that makes the sender's frames: ECT(0) and ECT(1) in turn, some Not-ECT."""
    made = 0

    def make():
        nonlocal made
        made += 1
        ecn = 0 if made % NOT_ECT_EVERY == 0 else 1 + made % 2
        payload = made.to_bytes(8, "big") + bytes(FRAME_LEN - 14 - 20 - 8 - 8 - 8)
        return w.build_standard(3, number, payload, ecn=ecn, ident=made & 0xFFFF)

    return make


def write_load(folder):
    """Writes both inputs: below LOW at 80 % load, slowly from LOW to HIGH, then above HIGH."""
    steady, lift = sender(1), sender(2)
    first, second = [], []
    now = 0.0
    for _ in range(PHASE):
        first.append((round(now), steady()))
        now += WIRE_NS / 0.8
    ramp = (HIGH - LOW) // FRAME_LEN  # frames more than drain, spread over the phase

    def burst(count):
        for n in range(count):
            second.append((round(now + n * WIRE_NS), lift()))

    burst(LOW // FRAME_LEN + 1)
    for n in range(PHASE):
        first.append((round(now), steady()))
        if n * ramp // PHASE != (n + 1) * ramp // PHASE and n > 2 * LOW // FRAME_LEN:
            second.append((round(now), lift()))
        now += WIRE_NS
    burst(LOW // FRAME_LEN)
    for _ in range(PHASE):
        first.append((round(now), steady()))
        now += WIRE_NS
    for name, frames in (("p0", first), ("p1", second)):
        write_pcap(folder / f"{name}.pcap", frames)


@pytest.fixture(scope="module", name="ran")
def ran_fixture(tmp_path_factory):
    """Folder with inputs, outputs and trace of one run."""
    folder = tmp_path_factory.mktemp("ecn")
    write_load(folder)
    (folder / "switch.toml").write_text(CONFIG, encoding="ascii")
    switch(folder)
    return folder


def switch(folder, *more):
    """One run over the load in `folder`."""
    inputs = [part for name in ("p0", "p1") for part in ("--in", f"{name}={folder / name}.pcap")]
    command = [weft(), "replay", "-c", folder / "switch.toml", *inputs, "--out", folder / "out"]
    command += ["--trace", folder / "trace.jsonl", *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=REPLAY_TIMEOUT_S, check=False)
    assert ended.returncode == 0, ended.stderr


def captures(folder):
    """The arguments of check_ecn.py for a run."""
    return [f"{folder / 'p0'}.pcap,{folder / 'p1'}.pcap", str(folder / "out" / "p2.pcap")]


def test_marks_follow_the_formula_in_each_bin(ran, capsys):
    """10,000 ECT frames and more in each bin, within 2 points; scapy finds each checksum right."""
    want = ["--min", "10000", "--points", "2", "--exact-ends", "--min-marked", "10000"]
    ended = check_ecn.main([*captures(ran), str(ran / "trace.jsonl"), *want])
    report = json.loads(capsys.readouterr().out)
    assert ended == 0, report
    assert {row["bin"] for row in report["bins"]} == {"below", "mid0", "above"}
    assert report["captures"]["in_ecn"]["not_ect"] == report["captures"]["out_ecn"]["not_ect"]


def test_a_profile_that_is_off_is_found(ran, tmp_path):
    """The checker can fail: the same trace against thresholds 5 points of the capacity away."""
    moved = tmp_path / "moved.jsonl"
    with open(ran / "trace.jsonl", encoding="utf-8") as trace, open(moved, "w", encoding="utf-8") as out:
        for line in trace:
            event = json.loads(line)
            if event.get("ev") == "deq":
                event["low"], event["high"] = event["low"] + 20_000, event["high"] + 20_000
            out.write(json.dumps(event) + "\n")
    assert check_ecn.main(["-", "-", str(moved), "--points", "2"]) == 1


def test_max_percent_ends_the_line(ran, tmp_path, capsys):
    """Half of the frames at most below the high threshold, all of them above; the line of 100 % does not fit."""
    for name in ("p0.pcap", "p1.pcap", "switch.toml"):
        (tmp_path / name).symlink_to(ran / name)
    switch(tmp_path, "--set", "ecn.max_percent=50")
    want = ["--min", "10000", "--points", "2", "--exact-ends", "--min-marked", "10000"]
    ended = check_ecn.main([*captures(tmp_path), str(tmp_path / "trace.jsonl"), *want])
    report = json.loads(capsys.readouterr().out)
    assert ended == 0, report
    middle = next(row for row in report["bins"] if row["bin"] == "mid0")
    assert 0.1 < middle["ratio"] < 0.4, report
    text = (tmp_path / "trace.jsonl").read_text(encoding="utf-8")
    (tmp_path / "trace.jsonl").write_text(text.replace('"max_percent":50', '"max_percent":100'))
    assert check_ecn.main(["-", "-", str(tmp_path / "trace.jsonl"), "--points", "2"]) == 1
