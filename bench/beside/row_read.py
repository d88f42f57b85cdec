"""What it costs to be read: throughput with a page open and SAI's counters polled, and how long a call takes meanwhile.

run(bench) adds for each way of weft's a line of the ratio to the same switch left alone, and one of the calls' p99.

Units: Mpps; us.
Source: docs/sai.md; docs/page.md.
"""

import contextlib
import json
import os
import sys
import time

from .bench import take_turns
from .captures import mac, text
from .processes import rate
from .result import Line
from .row_veth import SETTLE_S
from .weft import Weft, veth_ports
from .wires import FORWARDER, SINK, Wires

NAMES = ("read",)
TARGETS = (text(mac(2, 0)),)
SIZE, WAYS = 64, ("express", "af_xdp", "af_packet")
SERVED = '[sai]\nlisten = "127.0.0.1:9092"\n'
METRICS = "127.0.0.1:9464"
READER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "reader.py")


class Read:
    """The same switch, left alone or read."""

    def __init__(self, bench):
        self.bench = bench

    def measure(self, kind, is_read):
        """Mpps, and p99 of the calls in us if it is read."""
        self.bench.needs_two_cores()
        ports, settings = veth_ports(kind)
        settings += SERVED
        processes = self.bench.processes
        with Wires(processes) as wires, contextlib.ExitStack() as stack:
            frames = wires.frames
            if kind == "express":
                frames = stack.enter_context(self.bench.kit.attached(SINK, "sink", "s1")).frames
            stack.enter_context(Weft(self.bench, ports, TARGETS, FORWARDER, settings, flags=("--metrics", METRICS)))
            # It stands for other machines: a reader that waits for its turn beside it would measure the generator.
            with self.bench.kit.generating(SIZE, nice=True):
                time.sleep(SETTLE_S)
                reader = None
                if is_read:
                    processes.run(["ip", "-n", FORWARDER, "link", "set", "lo", "up"])
                    seconds = str(self.bench.seconds + SETTLE_S)
                    argv = [sys.executable, READER, "127.0.0.1:9092", METRICS, seconds]
                    reader = processes.start(argv, netns=FORWARDER)
                    time.sleep(SETTLE_S / 2)
                figure = {"mpps": rate(frames, self.bench.seconds) / 1e6}
                if reader:
                    reader.wait(timeout=30)
                    with open(reader.log_path, encoding="utf-8") as log:
                        said = json.loads(log.read())
                    figure |= {"p99": said["p99_us"], "events": float(said["events"])}
                return figure


def run(bench, _wanted):
    """Each way, alone and read, in turn."""
    reads = Read(bench)
    contenders = {
        f"{kind} {how}": lambda kind=kind, how=how: reads.measure(kind, how == "read")
        for kind in WAYS
        for how in ("alone", "read")
    }
    turns = take_turns(bench, "read", contenders)
    for kind in WAYS:
        line = Line("read", f"{SIZE} bytes, {kind}, page open and SAI read 10/s", "left alone", "Mpps", 0.99, 1.0)
        turns.settle(line, f"{kind} read", f"{kind} alone", "mpps")
        bench.lines.append(line)
        line = Line("read", f"SAI get_queue_stats under full load, {kind}, p99", "-", "us", 1_000, 500, least=False)
        line.weft, line.reason = turns.of(f"{kind} read", "p99"), turns.reasons.get(f"{kind} read", "")
        line.failed = f"{kind} read" in turns.failed
        bench.lines.append(line)
