"""Two hosts cache lines of a coherent G-FAM device, and one of them is stopped again and again for longer than the device waits
for an answer: no load is stale, and no store that was acknowledged is lost unless its line is poisoned.

`weft fabric up --processes` in a namespace; clients of both hosts load and store cells of 8 bytes at the same time, each
store a value of its own; `registers` looks for an order that explains all that each cell was found to hold.

Units: bytes, seconds.
Source: docs/spec/cxl-fabric.md "Back-invalidate", "A host that does not answer"; docs/endpoint.md "Control socket".
"""

import json
import os
import random
import signal
import threading
import time

import pytest

import weftlive
from registers import NEVER, Register, Wrong
from test_live_coherence import DIR, Endpoint
from weftlive import sh

MISSING = weftlive.missing()
OPERATIONS = int(os.environ.get("WEFT_STOPPED_OPERATIONS", "4000"))
STOPS_MIN = 4
SEED = int(os.environ.get("WEFT_STOPPED_SEED", "20261128"))
BASE, LINE, CELL, LINES = 0x10000000000, 64, 8, 12
FILE = "/run/stopped.toml"
SNOOP_MS = 100
FABRIC = f"""
about = "two hosts cache the memory of a coherent GFD"
switch = [{{ name = "sw" }}]
gfd = [{{ name = "g", at = "sw", coherent = true, filter_lines = 10, snoop_ms = {SNOOP_MS} }}]

[[host]]
name = "h0"
at = "sw"
cache_lines = 8

[[host]]
name = "h1"
at = "sw"
cache_lines = 8

[[memory]]
name = "shared"
hosts = ["h0", "h1"]
gfds = ["g"]
len = 0x1000000
hpa = {BASE:#x}
"""
# How a load or store may fail: its line is poisoned, or nothing came in time, which one that was stopped may find.
POISONED, LATE = {"poisoned", "CA"}, {"timeout"}


class Cells:
    """All cells of the lines, and what was found there."""

    def __init__(self):
        self.registers = [Register() for _ in range(LINES * LINE // CELL)]
        self.lock, self.next, self.left = threading.Lock(), 0, OPERATIONS
        self.poisoned, self.late = 0, 0

    def take(self):
        """Whether there is an operation left to be done."""
        with self.lock:
            self.left -= 1
            return self.left >= 0

    def check(self):
        """Every cell held what was stored last, whenever it was looked at."""
        wrong = []
        for number, register in enumerate(self.registers):
            try:
                register.check()
            except Wrong as why:
                wrong.append(f"line {number * CELL // LINE} cell {number}: {why}")
        assert not wrong, f"{len(wrong)} cells: {wrong[:5]}"

    def values(self, count):
        """Values that nobody has stored yet."""
        with self.lock:
            self.next += count
            return [self.next - nth for nth in range(count)]


def failure(done):
    """How a transfer failed, None if it did not."""
    if done["ok"]:
        return None
    (how,) = done["failures"]
    return how


class Client:
    """A client of one host, which loads and stores cells and lines."""

    def __init__(self, host, cells, seed, stops=False):
        self.end, self.cells, self.rng = Endpoint(host), cells, random.Random(seed)
        self.host, self.stops, self.ends = host, stops, 0

    def transfer(self, cmd, at, data, via):
        """A transfer, and the time of its call and its end."""
        place = {"addr": BASE + at, "len": len(data), "via": via}
        if cmd == "write":
            place["data"] = data.hex()
        start = time.monotonic()
        done = self.end.ask(cmd=cmd, **place)
        return done, start, time.monotonic()

    def note(self, how):
        """Counts a failure, which has to be one of those that there may be."""
        assert how in POISONED or how in LATE, (self.host, how)
        with self.cells.lock:
            self.cells.poisoned += how in POISONED
            self.cells.late += how in LATE

    def store(self, first, count, via):
        """Stores so many cells; how that failed."""
        values = self.cells.values(count)
        data = b"".join(value.to_bytes(CELL, "little") for value in values)
        done, start, end = self.transfer("write", first * CELL, data, via)
        how = failure(done)
        for cell, value in enumerate(values, first):
            self.cells.registers[cell].wrote(value, start, NEVER if how else end)
        return how

    def load(self, first, count, via):
        """Loads so many cells; how that failed."""
        done, start, end = self.transfer("read", first * CELL, bytes(count * CELL), via)
        how = failure(done)
        if how is None:
            data = bytes.fromhex(done["data"])
            for nth in range(count):
                value = int.from_bytes(data[nth * CELL : (nth + 1) * CELL], "little")
                self.cells.registers[first + nth].read(value, start, end)
        return how

    def operate(self):
        """One load or store of a cell, a few cells or a line; what is poisoned is sometimes stored anew, whole."""
        rng, cells = self.rng, LINE // CELL
        line = rng.randrange(LINES)
        count = rng.choice((1, 1, 1, 1, 2, cells))
        first = line * cells + rng.randrange(cells - count + 1)
        via = "cxl_mem" if self.stops or rng.random() < 0.6 else "uio"
        how = self.store(first, count, via) if rng.random() < 0.5 else self.load(first, count, via)
        if how:
            self.note(how)
        if how in POISONED and rng.random() < 0.3:
            how = self.store(line * cells, cells, via)
            if how:
                self.note(how)

    def run(self):
        """Operations until all are done."""
        while self.cells.take():
            self.operate()


class Stopper(threading.Thread):
    """Stops a process again and again, for longer than its snoops may take."""

    def __init__(self, pid, seed):
        super().__init__(daemon=True)
        self.pid, self.rng, self.over, self.count = pid, random.Random(seed), threading.Event(), 0

    def run(self):
        while not self.over.wait(self.rng.uniform(0.02, 0.3)):
            os.kill(self.pid, signal.SIGSTOP)
            time.sleep(SNOOP_MS / 1000 * self.rng.uniform(0.8, 4))
            os.kill(self.pid, signal.SIGCONT)
            self.count += 1


def parallel(calls):
    """All calls at once; the first of their failures is raised."""
    failures = []

    def one(call):
        try:
            call()
        except BaseException as err:  # noqa: BLE001 - raised below
            failures.append(err)

    threads = [threading.Thread(target=one, args=(call,), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def counts(name):
    """Counters of an endpoint."""
    return Endpoint(name).ask(cmd="status")["counts"]


def heal(cells):
    """Afterwards every line is stored anew where it is poisoned, and both hosts find the same, through their caches and past them."""
    clients = [Client(host, cells, SEED) for host in ("h0", "h1")]
    each = LINE // CELL
    for line in range(LINES):
        if clients[0].load(line * each, each, "cxl_mem"):
            assert clients[0].store(line * each, each, "cxl_mem") is None
        for client in clients:
            for via in ("cxl_mem", "uio"):
                assert client.load(line * each, each, via) is None, (client.host, line, via)


def run_fabric():
    """The fabric, its operations and its stops."""
    sh("ip link set lo up")
    with open(FILE, "w", encoding="ascii") as file:
        file.write(FABRIC)
    with weftlive.FabricUp(FILE, "--dir", DIR, "--processes"):
        with open(f"{DIR}/h1/pid", encoding="ascii") as file:
            stopper = Stopper(int(file.read()), SEED)
        cells = Cells()
        clients = [Client("h0", cells, SEED + 1), Client("h0", cells, SEED + 2), Client("h1", cells, SEED + 3, stops=True)]
        stopper.start()
        try:
            parallel([client.run for client in clients])
            while stopper.count < STOPS_MIN:
                cells.left = 100
                parallel([client.run for client in clients])
        finally:
            stopper.over.set()
            stopper.join()
        heal(cells)
        device, hosts = counts("g")["coherence"], [counts(host)["cache"]["counts"] for host in ("h0", "h1")]
        events = [event["text"] for event in Endpoint("g").ask(cmd="events")["events"]]
        print(json.dumps({"stops": stopper.count, "poisoned": cells.poisoned, "late": cells.late, "device": device, "hosts": hosts}))
        cells.check()
        # It was a test: the device gave up on the host, and said so.
        assert device["silent"] > 0, device
        assert device["lost"] == 0 or any("Failure" in text for text in events), events[:5]


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_stopped_host_finds_no_stale_byte_and_loses_no_store_unseen():
    weftlive.inside("test_live_coherence_stopped", "run_fabric", timeout=1800)
