"""Four hosts cache lines of two coherent G-FAM devices on a running fabric: every byte is the last one stored, and an
independent model explains every frame of both devices' links.

`weft fabric up --processes` of pcaps/fabric/hdm-db.toml in a namespace; random loads and stores by the sockets of
`weft endpoint` against a plain array; captures at both ends of each device's link against `coherence_model`.

Units: bytes.
Source: docs/spec/cxl-fabric.md "Back-invalidate"; docs/endpoint.md "Control socket".
"""

import json
import os
import random
import socket
import threading
import time
import tomllib

import pytest

import coherence_model
import tagmeta
import weftlive
from weftlive import ROOT, sh

MISSING = weftlive.missing()
DIR = "/run/weft/fabric"
FILE = os.path.join(ROOT, "pcaps", "fabric", "hdm-db.toml")
BASE, SHARED = 0x10000000000, 64 * 64
OPERATIONS = int(os.environ.get("WEFT_COHERENCE_OPERATIONS", "2000"))
HOSTS, GFDS = ("h0", "h1", "h2", "h3"), ("g0", "g1")
SEED = 20_261_127
ETHER_TYPE = bytes.fromhex("88B7")


class Endpoint:
    """The control socket of one."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(f"{DIR}/{name}/endpoint.sock")
        self.lines = self.socket.makefile()

    def ask(self, **request):
        """The answer to a command; it must not be refused."""
        self.socket.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.lines.readline())
        assert "ok" in answer, (request, answer)
        (said,) = answer["ok"].values()
        return said

    def transfer(self, write, at, data):
        """Stores bytes, or loads and compares them."""
        place = {"addr": BASE + at, "len": len(data), "data": data.hex(), "via": "cxl_mem"}
        return self.ask(cmd="write" if write else "read", **place)


class Tap(threading.Thread):
    """Keeps what comes in at an interface: (stamp, frame)."""

    def __init__(self, interface):
        super().__init__(daemon=True)
        self.port, self.frames, self.ends = tagmeta.RawPort(interface), [], False

    def run(self):
        while not self.ends:
            got = self.port.recv(0.1)
            if got is not None and got.data[12:14] == ETHER_TYPE:
                self.frames.append((got.ts_ns, got.data))


def link_of(gfd):
    """Both ends of a device's link: the switch's and its own."""
    folder = f"{DIR}/{gfd}"
    for name in os.listdir(folder):
        if not name.endswith(".toml"):
            continue
        with open(os.path.join(folder, name), "rb") as file:
            port = tomllib.load(file).get("port")
        if port:
            own = (port if isinstance(port, str) else port[0]).rpartition(":")[2]
            shown = json.loads(sh(f"ip -j link show {own}"))[0]
            return shown["link"], own
    raise AssertionError(f"no port in {folder}: {os.listdir(folder)}")


def explain(taps):
    """Every frame of one device's link, in order; what the model counted."""
    far, own = taps
    # What comes in at the switch's end left the device; of equal stamps, requests are first.
    frames = sorted([(at, 1, data) for at, data in far.frames] + [(at, 0, data) for at, data in own.frames])
    model = coherence_model.Model()
    for number, (_, is_out, data) in enumerate(frames):
        try:
            model.take(bool(is_out), data)
        except coherence_model.Wrong as wrong:
            raise AssertionError(f"frame {number} of {len(frames)}, {data.hex()}: {wrong}") from None
    model.finish()
    return model.counts


def operate(ends):
    """Random loads and stores against a plain array: one by one, then all hosts at once at bytes of their own."""
    rng, want = random.Random(SEED), bytearray(SHARED)
    for number in range(OPERATIONS):
        at = rng.randrange(SHARED - 1)
        size, write = min(rng.randrange(1, 200), SHARED - at), rng.random() < 0.5
        if write:
            want[at : at + size] = rng.randbytes(size)
        end = rng.choice(ends)
        done = end.transfer(write, at, bytes(want[at : at + size]))
        assert done["ok"] and not done.get("mismatched"), (number, at, size, write, done)
    wrong = []

    def own(nth):
        chance = random.Random(SEED + nth)
        try:
            for _ in range(OPERATIONS // 10):
                place, data = 64 * chance.randrange(SHARED // 64) + 16 * nth, chance.randbytes(16)
                for write in (True, False):
                    done = ends[nth].transfer(write, place, data)
                    assert done["ok"] and not done.get("mismatched"), (nth, place, write, done)
        except (AssertionError, OSError) as err:
            wrong.append(err)

    threads = [threading.Thread(target=own, args=(nth,)) for nth in range(len(ends))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not wrong and not any(thread.is_alive() for thread in threads), wrong


def run_fabric():
    """The fabric, its operations, and what its links showed."""
    sh("ip link set lo up")
    file = weftlive.with_snoop_ms(FILE, "coherent = true", weftlive.PATIENT_SNOOP_MS)
    with weftlive.FabricUp(file, "--dir", DIR, "--processes", *weftlive.PATIENT):
        taps = {gfd: [Tap(end) for end in link_of(gfd)] for gfd in GFDS}
        for tap in (tap for pair in taps.values() for tap in pair):
            tap.start()
        tagmeta.kernel_stamps()
        operate([Endpoint(host) for host in HOSTS])
        time.sleep(0.5)  # the taps read what has come
        counts = [end.ask(cmd="status")["counts"] for end in map(Endpoint, (*HOSTS, *GFDS))]
        for gfd in GFDS:
            for tap in taps[gfd]:
                tap.ends = True
                tap.join(10)
                assert tap.port.lost() == 0, f"{gfd}: the capture has lost frames"
        for gfd, count in zip(GFDS, counts[len(HOSTS) :], strict=True):
            found = explain(taps[gfd])
            print(gfd, dict(found))
            snoops = sum(found[kind] for kind in coherence_model.LEAVES)
            assert snoops == count["coherence"]["snoops"] > 0 and found["for room"] > 0
            assert found["stale"] == count["coherence"]["stale_writes"] == 0
            assert found["lines"] > 0 and found["written"] > 0
        assert sum(count["cache"]["counts"]["hits"] for count in counts[: len(HOSTS)]) > 0


@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_every_frame_of_a_running_fabric_is_explained():
    weftlive.inside("test_live_coherence", "run_fabric", timeout=600)
