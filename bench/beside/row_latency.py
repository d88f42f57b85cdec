"""Latency that a switch adds at a tenth of the bridge's load, and the time from start to the first frame.

run(bench) adds lines for p50 and p99 of each way of weft's, and one for the start.

Units: us added beside a plain cable; ms from the start of the process.
Source: what the probe measures and why is said in bench/src/kit/latency.rs.
"""

import time

from .bench import take_turns
from .bridge import Bridge
from .captures import mac, text
from .processes import rate
from .result import Line
from .weft import Weft, veth_ports
from .wires import FORWARDER, SINK, Wires

NAMES = ("latency", "start")
TARGETS = (text(mac(2, 0)),)
SIZE, SHARE, SKIP_S = 64, 0.1, 0.2
# Probes that may be lost: a neighbour can hold up a receiver for as long as its ring lasts.
LOST_MAX, LOST_SHARE_MAX = 5, 0.001
WAYS = (("express", 1.5, 1.2, 2.0, 1.5), ("af_xdp", None, None, None, None), ("af_packet", None, None, None, None))


class Latency:
    """Probes through each contender, at one rate for all."""

    def __init__(self, bench):
        self.bench = bench
        with Wires(bench.processes) as wires, Bridge(bench, TARGETS), bench.kit.generating(SIZE):
            time.sleep(0.4)
            self.rate_fps = int(rate(wires.frames, bench.seconds) * SHARE)
        bench.say(f"latency: probes at {self.rate_fps}/s, a tenth of what the bridge forwards")

    def probe(self, out="g0", into="s1"):
        """p50 and p99 of the ages, in us, and how many were lost; so many that they move p99 are a fault."""
        skip = int(self.rate_fps * SKIP_S)
        kit, seconds = self.bench.kit, self.bench.seconds + SKIP_S
        with kit.attached(SINK, "ages", into, "--skip", str(skip)) as ages:
            kit.probe(out, SIZE, min(self.rate_fps, 10_000), 0.1)  # who is where, and that it is all up
            time.sleep(0.1)
            before = ages.ask()["frames"]
            taken = kit.probe(out, SIZE, self.rate_fps, seconds)
            time.sleep(0.1)
            said = ages.ask()
        arrived = said["frames"] - before
        lost = max(taken - arrived, 0)
        if lost > max(LOST_MAX, taken * LOST_SHARE_MAX):
            raise RuntimeError(f"{arrived} of {taken} probes arrived")
        return {"p50": said["p50_ns"] / 1e3, "p99": said["p99_ns"] / 1e3, "lost": lost}

    def cable(self):
        """Without a switch."""
        with Wires(self.bench.processes) as wires:
            wires.bypass()
            return self.probe("d0", "d1")

    def bridge(self):
        """Through the Linux bridge."""
        with Wires(self.bench.processes), Bridge(self.bench, TARGETS):
            return self.probe()

    def weft(self, kind):
        """Through weft."""
        self.bench.needs_two_cores()
        ports, settings = veth_ports(kind)
        with Wires(self.bench.processes), Weft(self.bench, ports, TARGETS, FORWARDER, settings):
            return self.probe()


def latency(bench):
    """What each adds to a cable."""
    probes = Latency(bench)
    contenders = {"cable": probes.cable, "bridge": probes.bridge}
    contenders |= {kind: lambda kind=kind: probes.weft(kind) for kind, *_ in WAYS}
    turns = take_turns(bench, "latency", contenders)
    for kind, must50, goal50, must99, goal99 in WAYS:
        for key, must, goal in (("p50", must50, goal50), ("p99", must99, goal99)):
            work = f"latency added at {probes.rate_fps:,} fps, {kind}, busy, {key}"
            line = Line("latency", work, "Linux bridge", "us", must, goal, least=False)
            turns.settle(line, kind, "bridge", key)
            cable = turns.of("cable", key)
            line.weft = [ours - plain for ours, plain in zip(line.weft, cable)]
            line.peer = [theirs - plain for theirs, plain in zip(line.peer, cable)]
            lost = ", ".join(str(count) for count in turns.of(kind, "lost"))
            line.notes.append(f"probes lost by round: {lost}")
            line.notes.append(f"the cable alone: {', '.join(f'{plain:.2f}' for plain in cable)} us")
            bench.lines.append(line)


def start(bench):
    """From the start of `weft run` to its first frame at the sink, while the generator sends all the time."""

    def first_frame():
        ports = [f'[[port]]\nname = "p{number}"\ndevice = "f{number}"\n' for number in (0, 1)]
        with Wires(bench.processes), bench.kit.attached(SINK, "sink", "s1") as sink, bench.kit.generating(SIZE, rate=10_000):
            weft = Weft(bench, ports, TARGETS, FORWARDER)
            began_ns = time.monotonic_ns()
            try:
                weft.start()
                bench.processes.wait_for(weft.process, lambda: sink.ask()["frames"] > 0)
                return (sink.ask()["first_ns"] - began_ns) / 1e6
            finally:
                weft.__exit__()

    turns = take_turns(bench, "start", {"weft": first_frame})
    line = Line("start", "start to first frame, default kind", "-", "ms", 300, 200, least=False)
    line.weft, line.reason = turns.of("weft"), turns.reasons.get("weft", "")
    line.failed = "weft" in turns.failed
    bench.lines.append(line)


def run(bench, wanted):
    """Both rows."""
    if "latency" in wanted:
        latency(bench)
    if "start" in wanted:
        start(bench)
