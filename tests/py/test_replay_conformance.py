"""Every conformance set through `weft replay`: right port, right bytes, equal counts per priority.

Captures of make_conformance.py in, output captures held by check_conformance.py.

Units: frames without FCS; WEFT_BIN names the binary, WEFT_CONFORMANCE_COUNT the frames of a set.
Source: docs/spec/pipeline.md §13.
"""

import json
import os
import subprocess

import pytest

import check_conformance
import make_conformance
from weftlive import ROOT, weft

NAMES = [row[0] for row in make_conformance.SETS]
COUNT = int(os.environ.get("WEFT_CONFORMANCE_COUNT", "10000"))
REPLAY_TIMEOUT_S = 300


def replay(name, made, out, *more):
    """Runs one set through the switch; returns result.json."""
    config = os.path.join(ROOT, "pcaps", "conformance", f"{name}.toml")
    inputs = [
        part
        for port in make_conformance.PORTS
        for part in ("--in", f"{port}={os.path.join(made, f'{name}.in.{port}.pcap')}")
    ]
    command = [weft(), "replay", "-c", config, *inputs, "--out", str(out), *more]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=REPLAY_TIMEOUT_S, check=False)
    assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stderr}"
    with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
        return json.load(file)


@pytest.fixture(scope="module", name="made")
def made_fixture(tmp_path_factory):
    """Folder with all sets."""
    folder = str(tmp_path_factory.mktemp("conformance"))
    assert make_conformance.main([folder, "--count", str(COUNT)]) == 0
    return folder


def expectation(made, name):
    """What make_conformance.py wrote about a set."""
    with open(os.path.join(made, f"{name}.expect.json"), encoding="ascii") as file:
        return json.load(file)


@pytest.mark.parametrize("priorities", [4, 8])
@pytest.mark.parametrize("name", NAMES)
def test_every_frame_comes_out_right(name, priorities, made, tmp_path):
    """Bytes, ports, order and counts on the wire; queue counters and conservation in result.json."""
    result = replay(name, made, tmp_path, "--set", f"switch.num_priorities={priorities}")
    expect_path = os.path.join(made, f"{name}.expect.json")
    assert check_conformance.main([str(tmp_path), expect_path, "--priorities", str(priorities)]) == 0
    expect = expectation(made, name)
    for port in result["ports"]:
        got = {str(pri["pri"]): pri["dequeued"] for pri in port["priorities"] if pri["dequeued"]}
        assert got == expect["counts"][str(priorities)]["out_per_port"][port["name"]], port["name"]
    sent = sum(expect["counts"][str(priorities)]["out"].values())
    sums = result["conservation"]
    assert (sums["rx"], sums["tx"], sums["imbalance"], sums["queued"]) == (COUNT, sent, 0, 0)
    assert (result["drops"], result["violation_count"]) == ({}, 0)


def test_a_wrong_byte_order_is_found(made, tmp_path):
    """The checker can fail: GEN2 frames read in the other order do not come out right."""
    replay("gen2", made, tmp_path, "--set", "formats.gen2_order=as_documented")
    assert check_conformance.main([str(tmp_path), os.path.join(made, "gen2.expect.json")]) == 1
