"""Three accelerators cache the memory of one host on a running fabric: at its own switch, across switches, and below an HBR
switch. Host and accelerators load and store the same few lines at the same time; no load finds an old value.

`registers` looks for an order that explains what each cell was found to hold. The same with accelerators that are stopped for
longer than the host waits for the answer to a snoop: then loads may also find a line poisoned, or run into their time limit.

Source: docs/spec/cxl-fabric.md "CXL.cache"; docs/endpoint.md "Transfers".
"""

import json
import os
import random
import time

import pytest

import weftlive
from registers import NEVER
from test_live_coherence import DIR, Endpoint
from test_live_coherence_stopped import CELL, LINE, LINES, Cells, Stopper, counts, failure, parallel
from weftlive import ROOT, sh

MISSING = weftlive.missing()
OPERATIONS = int(os.environ.get("WEFT_CACHE_OPERATIONS", "4000"))
SEED = int(os.environ.get("WEFT_CACHE_SEED", "20261129"))
FILE = os.path.join(ROOT, "pcaps", "fabric", "cxl-cache.toml")
BASE = 0x200000
XPUS = ("xpu0", "xpu1", "xpu2")
# How a load or store may fail where somebody is stopped.
POISONED, LATE = {"poisoned", "CA"}, {"timeout"}


class Client:
    """Loads and stores cells at one endpoint."""

    def __init__(self, name, cells, seed, may_fail=False):
        self.end, self.cells, self.rng = Endpoint(name), cells, random.Random(seed)
        self.name, self.may_fail, self.done = name, may_fail, 0

    def host(self, write, at, data):
        """A processor of the host; how it failed."""
        place = {"addr": BASE + at, "len": len(data)}
        if write:
            place["data"] = data.hex()
        self.end.socket.sendall(json.dumps({"cmd": "store" if write else "peek", **place}).encode() + b"\n")
        answer = json.loads(self.end.lines.readline())
        if "ok" not in answer:
            assert "poisoned" in str(answer), answer
            return {"ok": False, "failures": {"poisoned": 1}}
        (said,) = answer["ok"].values()
        return said

    def transfer(self, write, at, data, via):
        """A transfer, and the time of its call and its end."""
        start = time.monotonic()
        if self.name == "h0":
            done = self.host(write, at, data)
        else:
            place = {"addr": BASE + at, "len": len(data), "via": via}
            if write:
                place["data"] = data.hex()
            done = self.end.ask(cmd="dma_write" if write else "dma_read", **place)
        return done, start, time.monotonic()

    def access(self, write, first, count, via):
        """Loads or stores so many cells; how that failed."""
        values = self.cells.values(count)
        data = b"".join(value.to_bytes(CELL, "little") for value in values)
        done, start, end = self.transfer(write, first * CELL, data, via)
        how = failure(done)
        assert how is None or self.may_fail, (self.name, via, write, first, done)
        if write:
            for cell, value in enumerate(values, first):
                self.cells.registers[cell].wrote(value, start, NEVER if how else end)
        elif how is None:
            found = bytes.fromhex(done["data"])
            for nth in range(count):
                value = int.from_bytes(found[nth * CELL : (nth + 1) * CELL], "little")
                self.cells.registers[first + nth].read(value, start, end)
        if how:
            assert how in POISONED or how in LATE, (self.name, how)
            with self.cells.lock:
                self.cells.poisoned += how in POISONED
                self.cells.late += how in LATE
        return how

    def operate(self):
        """One load or store of a cell, a few cells or a line."""
        rng, each = self.rng, LINE // CELL
        line, count = rng.randrange(LINES), rng.choice((1, 1, 1, 1, 2, each))
        first = line * each + rng.randrange(each - count + 1)
        via = "cxl_cache" if rng.random() < 0.8 else "uio"
        how = self.access(rng.random() < 0.5, first, count, via)
        if how in POISONED and rng.random() < 0.3:
            self.access(True, line * each, each, via)

    def run(self):
        """Operations until all are done."""
        while self.cells.take():
            self.operate()
            self.done += 1


def heal(cells):
    """Afterwards everybody finds the same in all lines, which are stored anew where they are poisoned."""
    clients = [Client(name, cells, SEED, may_fail=True) for name in ("h0", *XPUS)]
    each = LINE // CELL
    for line in range(LINES):
        if clients[0].access(False, line * each, each, "cxl_cache"):
            assert clients[0].access(True, line * each, each, "cxl_cache") is None
        for client in clients:
            assert client.access(False, line * each, each, "cxl_cache") is None, (client.name, line)


def run_fabric():
    """All at once, and nobody is stopped."""
    sh("ip link set lo up")
    file = weftlive.with_snoop_ms(FILE, 'name = "h0"', weftlive.PATIENT_SNOOP_MS)
    with weftlive.FabricUp(file, "--dir", DIR, "--processes", *weftlive.PATIENT):
        cells = Cells()
        cells.left = OPERATIONS
        clients = [Client(name, cells, SEED + nth) for nth, name in enumerate(("h0", *XPUS))]
        parallel([client.run for client in clients])
        heal(cells)
        home, caches = counts("h0")["home"], [counts(xpu)["cache"]["counts"] for xpu in XPUS]
        print(json.dumps({"done": [client.done for client in clients], "home": home, "caches": caches}))
        cells.check()
        assert cells.poisoned == cells.late == 0
        assert home["silent"] == home["lost"] == home["stale_writes"] == home["overrun"] == home["unexpected"] == 0, home
        assert home["snoops"] > OPERATIONS / 10, home
        assert all(cache["hits"] > 0 and cache["snoops"] > 0 and cache["lost"] == 0 for cache in caches), caches
        assert all(client.done > OPERATIONS / 50 for client in clients), "all had a part in it"


def run_stopped():
    """One accelerator is stopped again and again."""
    sh("ip link set lo up")
    topology = weftlive.with_snoop_ms(FILE, 'name = "h0"', 100)
    with weftlive.FabricUp(topology, "--dir", DIR, "--processes"):
        with open(f"{DIR}/xpu1/pid", encoding="ascii") as file:
            stopper = Stopper(int(file.read()), SEED)
        cells = Cells()
        cells.left = OPERATIONS
        clients = [Client(name, cells, SEED + nth, may_fail=True) for nth, name in enumerate(("h0", *XPUS))]
        stopper.start()
        try:
            parallel([client.run for client in clients])
            while stopper.count < 4 or counts("h0")["home"]["silent"] == 0:
                cells.left = 100
                parallel([client.run for client in clients])
        finally:
            stopper.over.set()
            stopper.join()
        heal(cells)
        home = counts("h0")["home"]
        events = [event["text"] for event in Endpoint("h0").ask(cmd="events")["events"]]
        print(json.dumps({"stops": stopper.count, "poisoned": cells.poisoned, "late": cells.late, "home": home}))
        cells.check()
        # It was a test: the host gave up on the device, and said so.
        assert home["silent"] > 0 and any("has not answered" in text for text in events), (home, events[:5])


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_accelerators_find_no_old_byte_in_their_hosts_memory():
    weftlive.inside("test_live_cxl_cache", "run_fabric", timeout=1800)


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_a_stopped_accelerator_finds_no_old_byte():
    weftlive.inside("test_live_cxl_cache", "run_stopped", timeout=1800)
