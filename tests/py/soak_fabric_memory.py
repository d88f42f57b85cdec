#!/usr/bin/env python3
"""Moves 1 GiB between each pair of kinds of memory on a running fabric and compares SHA-256 of both ends; for `make soak`.

soak_fabric_memory.py WEFT [SOURCE-TARGET]...: all pairs, or some (host-fabric device-device); prints both hashes of
    each; exit code 1 if a transfer failed or hashes differ. WEFT_SOAK_FABRIC_BYTES sets another size than 1 GiB.

Units: bytes; seconds.
Source: docs/fabric-memory.md "Pairs of ends".

The kinds are a host's DRAM, G-FAM and a device's memory: behind the BAR of an accelerator as the source, HDM as the
target. Each hash is of bytes read back from the memory by its owner, G-FAM's by DPA from each GFD, so that no hash
depends on the requests under test.
"""

import collections
import concurrent.futures
import contextlib
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import weftlive

sys.path.insert(0, str(pathlib.Path(weftlive.ROOT) / "lab" / "examples"))

from kv_cache import OWN, Endpoint, Refused  # noqa: E402

MIB = 1 << 20
SIZE = int(os.environ.get("WEFT_SOAK_FABRIC_BYTES", str(1 << 30)))
KINDS = ("host", "fabric", "device")
POOL = 0x10000000000
WINDOW = 0x21000000000
GRANULE = 4096
GFDS = ("g0", "g1")
PEEK = MIB  # the most that a command returns
READERS = 4  # an endpoint serves one command of each client at a time
TRANSFER_MS = 3_600_000

TOPOLOGY = """
about = "1 GiB between all pairs of ends: two hosts, an accelerator, HDM and two GFDs"

switch = [{{ name = "sw0" }}, {{ name = "sw1" }}]
link = [{{ ends = ["sw0", "sw1"], count = 2 }}]
host = [
    {{ name = "h0", at = "sw0", memory_mib = {host_mib}, enable_use_fabric_mem = true, bind = ["npu0"] }},
    {{ name = "h1", at = "sw1", memory_mib = {host_mib}, enable_use_fabric_mem = true, bind = ["hbr1"] }},
]
hbr = [{{ name = "hbr1", at = "sw1" }}]
device = [
    {{ name = "npu0", at = "sw0", kind = "accelerator", bar_mib = {bar_mib} }},
    {{ name = "mem1", at = "hbr1", kind = "memory", capacity_mib = {hdm_mib} }},
]
gfd = [{{ name = "g", at = ["sw0", "sw1"], count = 2, capacity_mib = {gfd_mib} }}]
memory = [{{ name = "pool", hosts = ["h0", "h1"], gfds = ["g"], len = {pool_bytes}, granularity = {granule}, hpa = {pool} }}]
gim = [{{ of = "h1", from = ["h0"], hpa = {window} }}]
p2p = [{{ name = "own1", from = ["h1"], to = "mem1" }}]
"""


def rounded(count, unit):
    """The next multiple of `unit`."""
    return -(-count // unit) * unit


def half_of_pool(size):
    """Bytes of the pool that the source has; the target's follow. A pool is of whole blocks, 16 MiB of each GFD."""
    return rounded(size, 16 * MIB * len(GFDS))


def topology(size):
    """The file of a fabric whose ends have room for `size` bytes each."""
    mib = rounded(size, MIB) // MIB
    half_mib = half_of_pool(size) // MIB
    return TOPOLOGY.format(
        # Its window (GIM) is as long as its memory, and has the mailbox, too. Host memory ends at 2 GiB, so that h1
        # cannot show its DRAM and its HDM at a time, and `size` is less than 2 GiB.
        host_mib=mib + 16,
        bar_mib=1 << (mib - 1).bit_length(),
        hdm_mib=rounded(mib, 256),
        gfd_mib=rounded(2 * half_mib // len(GFDS), 256),
        pool_bytes=2 * half_mib * MIB,
        granule=GRANULE,
        pool=POOL,
        window=WINDOW,
    )


class Part:
    """An endpoint. Each command has a connection of its own: one that is silent for 300 s, as in a long transfer between
    others, is closed."""

    def __init__(self, folder, name):
        self.path = folder / name / "endpoint.sock"

    def ask(self, **command):
        """The answer to a command."""
        return self.once("ask", command)

    def mem(self, **command):
        """The answer to a command for fabric memory."""
        return self.once("mem", command)

    def once(self, method, command):
        """Connects, asks and closes."""
        endpoint = Endpoint(self.path)
        with contextlib.closing(endpoint.socket), contextlib.closing(endpoint.lines):
            return getattr(endpoint, method)(**command)

    def bytes_at(self, addr, length, place):
        """Up to 1 MiB of the part's own memory."""
        data = bytes.fromhex(self.ask(cmd="peek", addr=addr, len=length, **place)["transfer"]["data"])
        assert len(data) == length
        return data


class End:
    """A range of memory: who transfers from or to it (`host`, by `addr`), and who has it (`owner`, by `first`)."""

    def __init__(self, host, addr, owner, first, place):
        self.host, self.addr, self.owner, self.first, self.place = host, addr, owner, first, place

    def fill(self, size, seed):
        """Stores bytes made of a seed."""
        self.check_stored(size, self.owner.ask(cmd="store", addr=self.first, len=size, seed=seed, **self.place))

    @staticmethod
    def check_stored(size, answer):
        """Asserts that an answer says that all bytes were stored."""
        assert answer["transfer"]["ok"] and answer["transfer"]["written"] == size, answer

    def read(self, offset, length):
        """Reads up to 1 MiB back."""
        return self.owner.bytes_at(self.first + offset, length, self.place)


class FabricEnd(End):
    """G-FAM: filled by its host, because GFDs have no store of their own, and read back from the GFDs."""

    def __init__(self, host, addr, gfds):
        super().__init__(host, addr, host, addr, {})
        self.gfds = gfds

    def fill(self, size, seed):
        """Writes bytes made of a seed by requests of the host."""
        self.check_stored(size, self.host.ask(cmd="write", addr=self.addr, len=size, seed=seed, timeout_ms=TRANSFER_MS))

    def read(self, offset, length):
        """Takes the granules of each GFD by DPA and puts them in order; the pool begins at DPA 0 of each."""
        stride = GRANULE * len(self.gfds)
        at = self.addr - POOL + offset
        assert at % stride == 0
        share = rounded(length, stride) // len(self.gfds)
        parts = [memoryview(gfd.bytes_at(at // len(self.gfds), share, {})) for gfd in self.gfds]
        granules = (part[start : start + GRANULE] for start in range(0, share, GRANULE) for part in parts)
        return b"".join(granules)[:length]


def sha256(end, size):
    """SHA-256 of what an end holds, read by several clients at a time."""
    digest = hashlib.sha256()
    with concurrent.futures.ThreadPoolExecutor(READERS) as readers:
        under_way = collections.deque()
        for at in range(0, size, PEEK):
            under_way.append(readers.submit(end.read, at, min(PEEK, size - at)))
            if len(under_way) > 2 * READERS:  # else all of it may lie in memory
                digest.update(under_way.popleft().result())
        for block in under_way:
            digest.update(block.result())
    return digest.hexdigest()


@contextlib.contextmanager
def fabric(size, weft):
    """Runs a fabric with such ends; the sources and targets by kind."""
    with tempfile.TemporaryDirectory(prefix="wsm") as folder:
        folder = pathlib.Path(folder)
        file = folder / "fabric.toml"
        file.write_text(topology(size), encoding="ascii")
        # Goes before the rest of the machine: hosts in one process wait a second for an answer, by the clock, whether
        # or not the process had a processor in that second.
        command = [*weftlive.FIRST, weft, "fabric", "up", str(file), "--dir", str(folder / "up")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            try:
                assert any(line.startswith("fabric is up") for line in running.stdout), "it does not come up"
                yield ends(folder / "up", size)
            finally:
                running.terminate()
                running.stdout.read()


def ends(folder, size):
    """The sources, which h0 transfers from, and the targets, of h1, by kind."""
    h0, h1, npu0, mem1, *gfds = (Part(folder, name) for name in ("h0", "h1", "npu0", "mem1", *GFDS))
    bar = address_in_tree(h0, r"BAR0 pref64 ([0-9a-f]+)\+")
    hdm = address_in_tree(h1, r"HDM ([0-9a-f]+)-[0-9a-f]+ dpa 0 committed")
    sources = {
        "host": End(h0, OWN, h0, OWN, {}),
        "fabric": FabricEnd(h0, POOL, gfds),
        "device": End(h0, bar, npu0, 0, {"bar": 0}),
    }
    targets = {
        "host": End(h1, OWN, h1, OWN, {}),
        "fabric": FabricEnd(h1, POOL + half_of_pool(size), gfds),
        "device": End(h1, hdm, mem1, 0, {}),
    }
    return sources, targets


def address_in_tree(host, pattern):
    """Where a host has put a device's memory."""
    return int(re.search(pattern, host.ask(cmd="tree")["tree"]["text"])[1], 16)


@contextlib.contextmanager
def registered(source, target, size):
    """Registers both ranges and connects; the peer's number."""
    h0, h1 = source.host, target.host
    # Of a peer's G-FAM only what the host has registered as well can be named.
    ranges = [(h0, source.addr), (h1, target.addr), *([(h0, target.addr)] if isinstance(target, FabricEnd) else [])]
    with contextlib.ExitStack() as held:
        for host, addr in ranges:
            handle = host.mem(op="register", addr=addr, len=size)["registered"]["handle"]
            held.callback(host.mem, op="deregister", handle=handle)
        peer = h0.mem(op="connect", mailbox=WINDOW)["peer"]
        held.callback(disconnect, h0, h1, peer)
        yield peer


def disconnect(h0, h1, peer):
    """Disconnects, and waits until both hosts have forgotten the connection and can make the next one."""
    h0.mem(op="disconnect", peer=peer)
    end = time.monotonic() + 30
    while any(host.mem(op="list")["list"]["peers"] for host in (h0, h1)):
        assert time.monotonic() < end, "the connection stays"
        time.sleep(0.05)


def move(source, target, size, seed):
    """Transfers `size` bytes of `seed`: SHA-256 of the source before and of the target after, and seconds of transfer.

    Raises Refused if the transfer fails.
    """
    # The source is read before the transfer: one that went the wrong way would leave both ends alike.
    source.fill(size, seed)
    target.fill(size, seed + 1000)
    here = sha256(source, size)
    with registered(source, target, size) as peer:
        began = time.monotonic()
        op = {"local": source.addr, "remote": target.addr, "len": size}
        told = source.host.mem(op="write", peer=peer, ops=[op], timeout_ms=TRANSFER_MS)["transfer"]
        seconds = time.monotonic() - began
    if told["status"] != "completed":
        raise Refused(f"the transfer has {told['status']} after {seconds:.1f} s: {told.get('reason', '')}")
    return here, sha256(target, size), seconds


def main():
    """Moves between the pairs; one that fails does not keep the others from their turn."""
    pairs = [f"{source}-{target}" for source in KINDS for target in KINDS]
    weft, *asked = sys.argv[1:]
    unknown = set(asked) - set(pairs)
    if unknown:
        sys.exit(f"no such pair: {', '.join(sorted(unknown))}; pairs are {' '.join(pairs)}")
    bad, seen = [], set()
    print(f"{SIZE} bytes from and to each end", flush=True)
    with fabric(SIZE, os.path.abspath(weft)) as (sources, targets):
        for pair in asked or pairs:
            source, target = pair.split("-")
            began = time.monotonic()
            try:
                here, there, seconds = move(sources[source], targets[target], SIZE, 1 + pairs.index(pair))
            except Refused as error:
                print(f"{pair}: {error}", flush=True)
                bad.append(pair)
                continue
            # Seeds differ, so a hash that was there before is of bytes that were left over.
            equal = here == there and here not in seen
            seen.add(here)
            took = f"{seconds:.1f} s of transfer, {time.monotonic() - began:.1f} s in all"
            print(f"{pair}: {'equal' if equal else 'DIFFERENT'}, {took}")
            print(f"    source sha256 {here}\n    target sha256 {there}", flush=True)
            if not equal:
                bad.append(pair)
    print(f"failed: {', '.join(bad)}" if bad else f"all {len(asked or pairs)} pairs are equal")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
