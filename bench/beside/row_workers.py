"""Two workers against one, on weft's own null ports, by `weft bench pipeline`.

run(bench) measures both in turn; only rounds in which the cores were as near as usual count.

Units: Mpps; ns of core distance.
"""

import json
import subprocess

from .bench import FAULTS
from .result import Line

NAMES = ("workers",)
NEAR_NS = (80, 150)
MUST, GOAL = 1.4, 1.7


def mpps(bench, workers):
    """Million frames a second of so many workers, one on each core."""
    cores = ",".join(str(core) for core in dict.fromkeys(reversed(bench.cores)))
    argv = [bench.weft, "bench", "pipeline", "--json", "--rounds", "5", "--round-ms", str(int(bench.seconds * 200))]
    argv += ["--workers", str(workers), "--cores", cores]
    if (command := " ".join(argv)) not in bench.processes.commands:
        bench.processes.commands.append(command)
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
    return json.loads(done.stdout)["frames_per_s"]["median"] / 1e6


def is_near(distance):
    """Whether the median round trip is as between cores of their own, close together."""
    return NEAR_NS[0] <= distance[1] <= NEAR_NS[1]


def run(bench, _wanted):
    """Rounds until enough count, at most three times as many as asked for."""
    line = Line("workers", "2 workers on null ports, 64 B, 16 ports", "weft, 1 worker", "Mpps", MUST, GOAL)
    line.peer = []
    bench.lines.append(line)
    if bench.cores[0] == bench.cores[1]:
        line.reason = "one processor: two workers need two"
        return
    far = 0
    for number in range(3 * bench.rounds):
        before = bench.distance()
        try:
            one, two = mpps(bench, 1), mpps(bench, 2)
        except (*FAULTS, subprocess.CalledProcessError) as fault:
            line.reason, line.failed = f"{type(fault).__name__}: {fault}", True
            return
        after = bench.distance()
        bench.distances.append((f"workers, round {number + 1}", before, after))
        counts = is_near(before) and is_near(after)
        said = "" if counts else f": not counted, outside {NEAR_NS[0]} to {NEAR_NS[1]} ns"
        distance = f"core distance {before[1]}/{after[1]} ns{said}"
        bench.say(f"workers, round {number + 1}: one {one:.1f}, two {two:.1f} Mpps ({distance})")
        if counts:
            line.weft.append(two)
            line.peer.append(one)
        else:
            far += 1
        if len(line.weft) == bench.rounds:
            break
    if far:
        line.notes.append(f"{far} rounds were not counted: the cores were too close to or too far from each other")
    if not line.weft:
        line.reason = f"in none of {far} rounds was the core distance {NEAR_NS[0]} to {NEAR_NS[1]} ns"
