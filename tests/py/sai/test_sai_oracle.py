"""The oracle against worked numbers, and against the rules of the specification carried out frame by frame.

Random configurations; a literal model of admit, headroom and release.

Units: frames, cells.
Source: docs/spec/pipeline.md §4, §8.
"""

import random
from fractions import Fraction

import pytest

from saioracle import Oracle


def config(ports=4, mib=16, cell=2048, headroom=131_072, alpha=None, offset=20_000, **more):
    """A configuration of 8 priorities, 3 and 4 lossless."""
    buffer = {
        "buffer_size_mb": mib,
        "cell_bytes": cell,
        "headroom_bytes": headroom,
        "dt_alpha": alpha or [1, 1, 1, 0.125, 0.125, 1, 1, 1],
        "xon_offset_bytes": offset,
    }
    ports = [{"name": f"p{n}"} for n in range(ports)]
    base = {
        "switch": {"num_priorities": 8},
        "buffer": buffer,
        "pfc": {"pfc_priorities": [3, 4]},
        "port": ports,
    }
    return base | more


def test_worked_numbers():
    """8,192 cells; eight groups with 64 of headroom and a reserve of 2 leave 7,664 to share."""
    oracle = Oracle(config())
    assert oracle.shared_cells == 8192 - 8 * 66 == 7664
    assert oracle.xoff(3) == 853  # 2 + 7665 / 9
    assert oracle.ingress_drop(3) == 917
    assert oracle.egress_drop(0) == 3832  # 7665 / 2
    assert oracle.xoff(3) + 1 - oracle.xon(3) == 10  # 2 + (958 - 10) / 1.125 = 844
    # The next groups, each at its XOFF when the next one begins.
    used, points = 0, []
    for _ in range(3):
        points.append(oracle.xoff(3, shared_used=used))
        used += oracle.shared(3, points[-1])
    assert points == [853, 759, 675]
    assert oracle.xoff(3, octets=2049) == 426  # two cells each
    assert abs(Oracle(config(port_defaults={"port_bandwidth_gbps": 1})).refresh_s() - 0.016777) < 1e-6


class Model:
    """One queue, carried out literally: admit, headroom first out, release."""

    def __init__(self, oracle, pri, c, others):
        self.oracle, self.s, self.a, self.c, self.others = (
            oracle,
            oracle.reserve(pri),
            oracle.alpha[pri],
            c,
            others,
        )
        self.used = self.headroom = 0

    def limit(self):
        shared_used = self.others + max(0, self.used - self.s)
        return self.s + self.a * (self.oracle.shared_cells - shared_used)

    def admit(self):
        """Takes a frame into the queue, if it may come in."""
        free = self.oracle.shared_cells - self.others - max(0, self.used - self.s)
        more = max(0, self.used + self.c - self.s) - max(0, self.used - self.s)
        if self.used + self.c > self.limit() or more > free:
            return False
        self.used += self.c
        return True

    def to_headroom(self):
        if self.headroom + self.c > self.oracle.headroom_cells:
            return False
        self.headroom += self.c
        return True

    def depart(self):
        if self.headroom:
            self.headroom -= self.c
        else:
            self.used -= self.c

    def released(self):
        xon = max(self.s, self.limit() - self.oracle.xon_offset_cells)
        return self.headroom == 0 and self.used <= xon


def fill(model):
    """Frames that were admitted, and those that headroom took behind them."""
    admitted = headroom = 0
    while model.admit():
        admitted += 1
    while model.to_headroom():
        headroom += 1
    return admitted, headroom


@pytest.mark.parametrize("seed", range(40))
def test_closed_forms_are_the_rules(seed):
    rng = random.Random(seed)
    cell = rng.choice([256, 1024, 2048])
    octets = rng.choice([64, 300, 1500, 2048])
    alpha = [rng.choice([0.125, 0.25, 0.5, 1, 2, 4, 8]) for _ in range(8)]
    oracle = Oracle(
        config(
            ports=rng.randrange(2, 5),
            mib=rng.randrange(2, 5),
            cell=cell,
            headroom=rng.randrange(0, 50_000),
            alpha=alpha,
            offset=rng.randrange(0, 60_000),
        )
    )
    others = rng.randrange(0, oracle.shared_cells)
    for pri in (3, 0):
        model = Model(oracle, pri, oracle.cells(octets), others)
        admitted, headroom = fill(model)
        assert admitted == oracle.admitted(pri, octets, others), (pri, vars(model))
        if pri == 0:
            continue
        assert admitted + headroom == oracle.ingress_drop(pri, octets, others)
        left = admitted + headroom
        while not model.released():
            model.depart()
            left -= 1
        assert left == min(oracle.xon(pri, octets, others), admitted), vars(model)


def test_marks_follow_the_depth():
    """Below low none, from high on all, between them a line up to max_percent."""
    ecn = {"ecn_threshold_low": 25, "ecn_threshold_high": 75, "max_percent": 10}
    settings = config(ecn=ecn)
    settings["buffer"]["queue_capacity_bytes"] = 100_000
    oracle = Oracle(settings)
    assert [oracle.mark_probability(d) for d in (24_999, 25_000, 50_000, 75_000)] == [
        0,
        0,
        Fraction(1, 20),
        1,
    ]
    mean, variance = oracle.marks(1000, 100)
    assert mean == 26 + sum(Fraction(k, 500) for k in range(50)) and 0 < variance < mean
    assert oracle.marks(1000, 100, lambda number: number % 2 == 0)[0] < mean


def test_shares_are_by_weight():
    settings = config(port_defaults={"weights": [1, 2, 3, 4, 5, 6, 7, 8], "strict": []})
    oracle = Oracle(settings)
    assert oracle.share(3, range(8)) == Fraction(4, 36) and oracle.share(0, [0, 1]) == Fraction(1, 3)
