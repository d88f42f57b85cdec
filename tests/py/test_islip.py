"""Tests of the iSLIP reference: equal to a naive model cell by cell, known figures, and the comparison.

Naive model with lists and loops, fed the same arrivals.

Units: slots.
Source: McKeown 1999; docs/spec/pipeline.md §6 (0.991 / 0.993 / 0.993 at N = 16, load 1.0).
"""

import json
import sys
from collections import deque

import numpy as np
import pytest

import islip_compare
import islip_ref


def naive(ports, iterations, slots_of_arrivals, warmup, pointers="islip"):
    """iSLIP as the paper words it; `pointers` "always" moves grant pointers without an accept (RRM)."""
    voq = [[deque() for _ in range(ports)] for _ in range(ports)]
    grant, accept = [0] * ports, [0] * ports
    cells = delay = 0
    for slot, to in enumerate(slots_of_arrivals):
        for i, j in enumerate(to):
            if j >= 0:
                voq[i][j].append(slot)
        match_of_input, match_of_output = {}, {}
        for iteration in range(iterations):
            granted = {}
            for j in range(ports):
                if j in match_of_output:
                    continue
                for step in range(ports):
                    i = (grant[j] + step) % ports
                    if i not in match_of_input and voq[i][j]:
                        granted.setdefault(i, []).append(j)
                        if pointers == "always":
                            grant[j] = (i + 1) % ports
                        break
            for i, offers in granted.items():
                j = min(offers, key=lambda j, i=i: (j - accept[i]) % ports)
                match_of_input[i], match_of_output[j] = j, i
                if iteration == 0:
                    grant[j], accept[i] = (i + 1) % ports, (j + 1) % ports
        for i, j in match_of_input.items():
            came = voq[i][j].popleft()
            if slot >= warmup:
                cells, delay = cells + 1, delay + slot - came
    return cells, delay


@pytest.mark.parametrize(
    ("ports", "iterations", "load", "replicas"),
    [
        (1, 1, 0.9, 1),
        (2, 1, 1.0, 2),
        (3, 2, 0.9, 3),
        (8, 1, 0.95, 2),
        (8, 2, 0.8, 1),
        (8, 4, 1.0, 2),
        (13, 3, 0.7, 1),
        (32, 2, 0.9, 1),
        (64, 4, 0.95, 1),
    ],
)
def test_equal_to_the_naive_model(ports, iterations, load, replicas):
    slots = 400
    draws = islip_ref.arrivals(np.random.default_rng(ports), replicas, ports, load, slots)
    run = islip_ref.Run(ports, iterations, replicas)
    for to in draws:
        run.slot(to)
    cells, delay = run.result(slots // 10)
    for replica in range(replicas):
        want = naive(ports, iterations, draws[:, replica, :].tolist(), slots // 10)
        assert (int(cells[replica]), int(delay[replica])) == want, replica
    assert (run.length >= 0).all()


def test_arrivals_are_uniform_bernoulli():
    draws = islip_ref.arrivals(np.random.default_rng(5), 1, 8, 0.7, 40_000)
    assert abs((draws >= 0).mean() - 0.7) < 0.005
    counts = np.bincount(draws[draws >= 0], minlength=8) / (draws >= 0).sum()
    assert np.abs(counts - 0.125).max() < 0.005


@pytest.mark.parametrize(("iterations", "want"), [(1, 0.991), (2, 0.993), (4, 0.993)])
def test_throughput_at_full_load(iterations, want):
    """docs/spec/pipeline.md §6 has 200,000 slots; queues fill slowly, so 6,000 slots and 4 replicas stay below by a little."""
    got = islip_ref.simulate(16, iterations, 1.0, 6_000, 1, 4)["throughput"]
    assert want - 0.03 < got < want + 0.003


def test_pointer_bug_would_show():
    """With grant pointers that always move (RRM), one iteration falls far below."""
    draws = islip_ref.arrivals(np.random.default_rng(5), 1, 16, 1.0, 2000)[:, 0, :].tolist()
    right, wrong = (naive(16, 1, draws, 200, pointers)[0] / (16 * 1800) for pointers in ("islip", "always"))
    assert right > 0.9 and wrong < 0.7


def test_single_port_has_no_delay():
    made = islip_ref.simulate(1, 1, 1.0, 1000, 1)
    assert made["throughput"] == 1.0 and made["mean_delay_slots"] == 0.0


def test_command_prints_json(capsys):
    arguments = "--ports 4 --iterations 1 --load 0.5 --slots 2000 --seed=3"
    assert islip_ref.main(arguments.split()) == 0
    first = json.loads(capsys.readouterr().out)
    assert islip_ref.main(arguments.split()) == 0
    second = json.loads(capsys.readouterr().out)
    assert first["throughput"] == second["throughput"] and abs(first["throughput"] - 0.5) < 0.03
    with pytest.raises(SystemExit):
        islip_ref.main("--ports 65 --iterations 1 --load 0.5".split())


FAKE = """#!{python} -SE
import json, random, sys
assert sys.argv[1:3] == ["model", "islip"] and sys.argv[-1] == "--json"
asked = dict(zip(sys.argv[3:-1:2], sys.argv[4::2]))
noise = random.Random(int(asked["--seed"])).uniform(0.98, 1.02)
key = " ".join(asked[name] for name in ("--ports", "--iterations", "--load", "--slots"))
throughput, delay = {answers!r}[key]
print(json.dumps({{"throughput": throughput * {throughput}, "mean_delay_slots": delay * noise * {delay}}}))
sys.exit({code})
"""


@pytest.fixture(scope="module")
def answers():
    """What a right binary answers: the model's own means at two points."""
    made = {load: islip_ref.simulate(4, 1, load, 2000, 77, 32) for load in (0.5, 0.8)}
    return {f"4 1 {load} 2000": (row["throughput"], row["mean_delay_slots"]) for load, row in made.items()}


def fake_weft(folder, answers, throughput=1.0, delay=1.0, code=0):
    path = folder / "weft"
    path.write_text(
        FAKE.format(python=sys.executable, answers=answers, throughput=throughput, delay=delay, code=code)
    )
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("name", "throughput", "delay", "code", "want"),
    [
        ("equal", 1, 1, 0, 0),
        ("delay off", 1, 1.1, 0, 1),
        ("throughput off", 0.9, 1, 0, 1),
        ("fails", 1, 1, 3, 2),
    ],
)
def test_compare(tmp_path, capsys, answers, name, throughput, delay, code, want):
    fake = fake_weft(tmp_path, answers, throughput, delay, code)
    options = "--ports 4 --iterations 1 --loads 0.5,0.8 --slots 2000 --noise 1 --tolerance 6 --runs-max 200 --jobs 1"
    assert islip_compare.main([fake, *options.split()]) == want, capsys.readouterr()
    printed = capsys.readouterr()
    if want < 2:
        assert ("2 of 2 points" in printed.out) == (want == 0), name
    else:
        assert "exit 3" in printed.err, name


def test_compare_calls_too_noisy_a_miss(tmp_path, capsys, answers):
    fake = fake_weft(tmp_path, answers)
    options = "--ports 4 --iterations 1 --loads 0.8 --slots 2000 --noise 0.001 --tolerance 90 --runs-max 4 --jobs 1 --json"
    assert islip_compare.main([fake, *options.split()]) == 1
    assert not json.loads(capsys.readouterr().out)["ok"]


def test_compare_refuses_other_keys(tmp_path, capsys):
    fake = tmp_path / "weft"
    fake.write_text("#!/bin/sh\necho '{\"accepted\": 1}'\n")
    fake.chmod(0o755)
    options = "--ports 4 --iterations 1 --loads 0.5 --slots 100 --jobs 1"
    assert islip_compare.main([str(fake), *options.split()]) == 2
    assert "no throughput and mean_delay_slots" in capsys.readouterr().err
