"""What all rows share: paths, cores, rounds, processes; and how contenders take turns.

Bench; take_turns(bench, row, {name: measure}) -> Turns with the figures of each, by round.

Units: seconds; figures as each contender returns them.
Source: median of interleaved rounds, core distance before and after.
"""

import dataclasses
import subprocess

from . import machine
from .processes import Processes, Skip
from .kit import Kit

# Other load on the machine may delay a daemon's start, or a probe: this is printed, and the round repeated, this often.
TRIES = 3
FAULTS = (RuntimeError, OSError, ValueError, KeyError, IndexError, StopIteration, subprocess.TimeoutExpired)


class Bench:
    """One run of the bench."""

    def __init__(self, folder, weft, tools, cores, rounds, seconds, huge_mib):
        self.folder, self.weft, self.cores = folder, weft, cores
        self.rounds, self.seconds, self.huge_mib = rounds, seconds, huge_mib
        self.weft_bench = f"{tools}/weft-bench"
        self.processes = Processes(folder)
        self.kit = Kit(f"{tools}/weft-kit", self.processes, cores[0])
        self.huge_dir, self.configs, self.distances, self.lines = f"{folder}/huge", {}, [], []

    def distance(self):
        """Core distance now; nothing to measure on one core."""
        return self.kit.distance(self.cores) if self.cores[0] != self.cores[1] else []

    def say(self, text):
        """A line on the terminal, at once."""
        print(f"     {text}", flush=True)

    def needs_huge_pages(self, mib):
        """Raises Skip when DPDK would have too few."""
        if self.huge_mib < mib:
            raise Skip(f"{self.huge_mib} MiB of huge pages are available, {mib} needed")

    def needs_two_cores(self):
        """Raises Skip where generator and forwarder would share one."""
        if self.cores[0] == self.cores[1]:
            raise Skip("one processor: generator and forwarder need one each")


@dataclasses.dataclass
class Turns:
    """Figures of each contender, a list by round, and the reason where there are none."""

    figures: dict
    reasons: dict
    failed: set

    def of(self, name, key=None):
        """Figures of a contender, or one of the figures that it returns by key."""
        figures = self.figures[name]
        return figures if key is None else [figure[key] for figure in figures]

    def settle(self, line, ours, peer, key=None):
        """Puts the figures of two contenders into a line, and why there are none."""
        line.weft, line.peer = self.of(ours, key), self.of(peer, key)
        reasons = [f"{name}: {self.reasons[name]}" for name in (ours, peer) if name in self.reasons]
        line.reason = "; ".join(reasons)
        line.failed = bool({ours, peer} & self.failed)
        return line


def measured(bench, what, measure):
    """What `measure` returns; an error is printed and `measure` tried again, up to TRIES times in all."""
    for tried in range(1, TRIES):
        try:
            return measure()
        except FAULTS as fault:
            bench.say(f"{what}: try {tried} of {TRIES} failed: {type(fault).__name__}: {fault}")
    return measure()


def take_turns(bench, row, contenders):
    """Runs all contenders once a round; one that cannot run, after several tries, is left out from then on."""
    turns = Turns({name: [] for name in contenders}, {}, set())
    for number in range(bench.rounds):
        before, said, others = bench.distance(), [], machine.Others()
        for name, measure in contenders.items():
            if name in turns.reasons:
                continue
            try:
                figure = measured(bench, f"{row}, {name}", measure)
            except Skip as reason:
                turns.reasons[name] = str(reason)
                bench.say(f"{row}: {name} skipped: {reason}")
                continue
            except FAULTS as fault:
                turns.reasons[name] = f"{type(fault).__name__}: {fault}"
                turns.failed.add(name)
                turns.figures[name].clear()
                bench.say(f"{row}: {name} failed: {turns.reasons[name]}")
                continue
            turns.figures[name].append(figure)
            said.append(f"{name} {text(figure)}")
        disturbed, after = others.share(), bench.distance()
        bench.distances.append((f"{row}, round {number + 1}, others used {disturbed:.1%}", before, after))
        median = "/".join(str(distance[1]) for distance in (before, after) if distance)
        told = f"core distance {median or '-'} ns, others used {disturbed:.1%}"
        bench.say(f"{row}, round {number + 1}: {', '.join(said)} ({told})")
    return turns


def text(figure):
    """A figure, or several by key."""
    if isinstance(figure, dict):
        return " ".join(f"{key}: {value:.3f}" for key, value in figure.items())
    return f"{figure:.3f}"
