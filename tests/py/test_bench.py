"""The parts of `make bench` that need no other switch: its loads, its verdicts, what it reads.

pytest.

Units: bytes, ratios.
Source: docs/bench.md; scapy reads the frames independently.
"""

import pathlib
import sys

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))

from beside import machine  # noqa: E402 - needs the path above
from beside.bench import TRIES, take_turns  # noqa: E402
from beside.captures import Load  # noqa: E402
from beside.result import Line, table  # noqa: E402
from beside.row_memory import LOADS  # noqa: E402
from beside.row_own import PRINTED  # noqa: E402


@pytest.mark.parametrize("name, load", [(name, load) for name, _, load, *_ in LOADS])
def test_loads_are_what_they_say(tmp_path, name, load):
    """Sizes, flows and stations as an independent reader counts them, and IPv4 checksums that hold."""
    frames = rdpcap(str(load.write(tmp_path / f"{name}.pcap")))
    assert {len(frame) for frame in frames} == {load.size}
    flows = {(frame[Ether].src, frame[Ether].dst, frame[IP].src, frame[UDP].sport) for frame in frames}
    assert len(frames) == len(flows) == load.flows
    assert {frame[Ether].src for frame in frames} == set(load.sources())
    assert {frame[Ether].dst for frame in frames} == set(load.targets())
    assert len(load.sources()) + len(load.targets()) == load.stations
    for frame in frames[:100]:
        again = frame[IP].copy()
        del again.chksum
        assert IP(bytes(again)).chksum == frame[IP].chksum


def test_ten_thousand_macs_are_ten_thousand_pairs():
    """No pair of stations comes twice: a cache of flows finds no two frames alike."""
    load = Load(64, 10_000, 10_000)
    assert len({load.frame(number)[:12] for number in range(load.flows)}) == 10_000


@pytest.mark.parametrize(
    "name, least, weft, peer, must, verdict",
    [
        ("at the bound", True, [2.0], [2.0], 1.0, "ok"),
        ("below it", True, [1.98], [2.0], 1.0, "MISS"),
        ("less is better", False, [150.0], [100.0], 1.5, "ok"),
        ("less is better, more came", False, [151.0], [100.0], 1.5, "MISS"),
        ("the median of the rounds' ratios", True, [1.0, 9.0, 3.0], [2.0, 3.0, 3.0], 1.0, "ok"),
        ("a bound of its own", False, [301.0], None, 300, "MISS"),
        ("no peer", True, [1.0], [], 1.0, "skip"),
        ("nothing asked", True, [1.0], [2.0], None, ""),
    ],
)
def test_verdicts(name, least, weft, peer, must, verdict):
    """What a line amounts to."""
    line = Line("row", "work", "peer", "Mpps", must, least=least, weft=weft, peer=peer)
    assert line.verdict() == verdict, name


def test_a_failure_is_never_ok():
    """A row that broke is missed, whatever figures it left."""
    assert Line("row", "work", "peer", "Mpps", 1.0, weft=[2.0], peer=[1.0], failed=True).verdict() == "MISS"


def test_the_table_tells_reasons_once():
    """Lines of one row share their reason."""
    lines = [Line("row", "work", "peer", "Mpps", 1.0, reason="not installed") for _ in range(3)]
    assert table(lines).count("not installed") == 1


def test_lines_of_weft_bench_are_read():
    """As bench/src/main.rs prints them."""
    match = PRINTED.match("MISS iSLIP, 64 ports: 2 iterations: 1205 ns a slot (wanted: 1000 ns or less)")
    assert match.groups() == ("MISS", "iSLIP, 64 ports: 2 iterations", "1205 ns a slot", "1000 ns or less")


class Quiet:
    """A bench of two rounds that says nothing and measures no cores."""

    rounds = 2

    def __init__(self):
        self.said, self.distances = [], []

    @staticmethod
    def distance():
        return []

    def say(self, text):
        self.said.append(text)


def test_a_fault_is_told_and_tried_again():
    """A contender that fails now and then keeps its place in every round; one that always fails loses it."""
    bench, calls = Quiet(), {"now and then": 0, "never": 0}

    def now_and_then():
        calls["now and then"] += 1
        if calls["now and then"] % TRIES:
            raise RuntimeError("a neighbour")
        return 1.0

    def never():
        calls["never"] += 1
        raise RuntimeError("broken")

    turns = take_turns(bench, "row", {"now and then": now_and_then, "never": never})
    assert turns.figures == {"now and then": [1.0, 1.0], "never": []}
    assert turns.failed == {"never"} and turns.reasons == {"never": "RuntimeError: broken"}
    assert calls == {"now and then": 2 * TRIES, "never": TRIES}
    assert sum("a neighbour" in line for line in bench.said) == 2 * (TRIES - 1)
    assert all("others used" in line for line in bench.said if line.startswith("row, round"))


def test_what_others_use_is_no_less_than_nothing():
    """The share is one of all processors; own work is not in it."""
    others = machine.Others()
    assert sum(range(2_000_000)) > 0  # work of our own
    assert 0 <= others.share() <= 1
