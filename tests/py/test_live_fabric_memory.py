"""The client of docs/fabric-memory.md on a running fabric: a KV-cache moves between all pairs of ends, and a changed byte is
found.

`weft fabric up` in one process, in a directory of the test; lab/examples/kv_cache.py as a program and as a module.

Units: bytes; seconds.
Source: docs/fabric-memory.md "A client in Python".
"""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

import weftlive

ROOT = pathlib.Path(weftlive.ROOT)
CLIENT = ROOT / "lab" / "examples" / "kv_cache.py"
sys.path.insert(0, str(CLIENT.parent))

import kv_cache  # noqa: E402
import soak_fabric_memory as soak  # noqa: E402


MIB = 1 << 20

# Bytes that move between each pair of ends; 1073741824 takes some minutes.
BYTES = int(os.environ.get("WEFT_FABRIC_MEMORY_BYTES", str(3 << 20)))

# Where the client puts the cache: memory of the host, G-FAM, behind the BAR of an accelerator.
BAR = 0x4000000000
ENDS = {
    "host": ((), ()),
    "fabric": (("--source-memory", "fabric:0x10000000000"), ("--target-memory", "fabric:0x10001000000")),
    "device": (("--source-memory", f"npu0:{BAR:#x}"), ("--target-memory", f"npu1:{BAR:#x}")),
}


@pytest.fixture(name="fabric", scope="module")
def running_fabric():
    """The directory of a fabric's sockets."""
    yield from running("fabric-memory")


@pytest.fixture(name="devices", scope="module")
def running_devices():
    """The same of a fabric with devices."""
    yield from running("fabric-memory-devices")


def running(name):
    """The directory of the sockets of a fabric while it runs."""
    with tempfile.TemporaryDirectory(prefix="wfm") as folder:
        file = ROOT / "pcaps" / "fabric" / f"{name}.toml"
        command = [weftlive.weft(), "fabric", "up", str(file), "--dir", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            try:
                assert any(line.startswith("fabric is up") for line in running.stdout), "it does not come up"
                yield pathlib.Path(folder)
            finally:
                running.terminate()
                running.stdout.read()


def client(fabric, *words):
    """Output of the client."""
    command = [sys.executable, str(CLIENT), "--dir", str(fabric), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=3600, check=False)


def test_a_cache_moves_and_is_verified(fabric):
    """Larger than the staging area, and no multiple of it."""
    size = (4 << 20) + 12_345
    done = client(fabric, "--size", str(size), "--stage", "2MiB", "--block", "512KiB")
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    assert "verified" in done.stdout and f"{size} bytes in" in done.stdout
    hashes = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("sha256")]
    assert len(set(hashes)) == 1
    # It has given everything back: the next one finds hosts as they were.
    again = client(fabric, "--size", "512KiB", "--source", "h1", "--target", "h0")
    assert again.returncode == 0, again.stderr


def moved(fabric, *words):
    """The hash of a cache that was moved, the same at both ends."""
    done = client(fabric, "--size", str(BYTES), "--stage", "8MiB", *words)
    print(done.stdout)
    assert done.returncode == 0, done.stderr
    hashes = [line.split()[-1] for line in done.stdout.splitlines() if line.startswith("sha256")]
    assert len(hashes) == 2 and len(set(hashes)) == 1
    return hashes[0]


@pytest.mark.parametrize("target", ENDS)
@pytest.mark.parametrize("source", ENDS)
def test_a_cache_moves_between_each_pair_of_ends(devices, source, target):
    """All nine pairs of host memory, G-FAM and memory of a device; WEFT_FABRIC_MEMORY_BYTES says how much."""
    moved(devices, *ENDS[source][0], *ENDS[target][1])


@pytest.mark.parametrize("target", ("host", "device"))
def test_a_device_moves_its_cache_itself(devices, target):
    """The accelerator begins the transfers (D2RH, D2D)."""
    moved(devices, "--source", "npu0", "--source-memory", f"npu0:{BAR:#x}", *ENDS[target][1])


# No multiple of a granule, of a transfer's request, of a reader's block or of a double word.
SOAK_BYTES = MIB + 12_345


@pytest.fixture(name="soaked", scope="module")
def running_soak():
    """Sources and targets of the soak's fabric."""
    with soak.fabric(SOAK_BYTES, weftlive.weft()) as found:
        yield found


@pytest.mark.parametrize("target", soak.KINDS)
@pytest.mark.parametrize("source", soak.KINDS)
def test_both_ends_hold_equal_bytes(soaked, source, target):
    """As `make soak` does with 1 GiB: the hashes are of bytes read back from both ends, here HDM among them."""
    seed = 1 + 3 * soak.KINDS.index(source) + soak.KINDS.index(target)
    here, there, _ = soak.move(soaked[0][source], soaked[1][target], SOAK_BYTES, seed)
    assert here == there


@pytest.mark.parametrize("kind", soak.KINDS)
def test_the_hash_of_a_soak_is_of_each_byte(soaked, kind):
    """A byte that changes at either side of the bound between two readers' blocks, or at the end, changes it."""
    target = soaked[1][kind]
    target.fill(SOAK_BYTES, 1)
    hashes = {soak.sha256(target, SOAK_BYTES)}
    for at in (MIB - 1, MIB, SOAK_BYTES - 1):
        flipped = bytes([target.read(at & -MIB, SOAK_BYTES % MIB if at >= MIB else MIB)[at % MIB] ^ 1]).hex()
        cmd = "write" if kind == "fabric" else "store"
        target.owner.ask(cmd=cmd, addr=target.first + at, data=flipped, **target.place)
        hashes.add(soak.sha256(target, SOAK_BYTES))
    assert len(hashes) == 4


class Flipped(kv_cache.Endpoint):
    """A target whose memory has another byte at one place."""

    def peek(self, addr, length, cmd="peek", **place):
        data = bytearray(super().peek(addr, length, cmd, **place))
        data[length // 2] ^= 1
        return bytes(data)


def test_a_changed_byte_is_found(fabric, monkeypatch, capsys):
    """The hash is that of what the target has, not of what was sent."""
    monkeypatch.setattr(kv_cache, "Endpoint", Flipped)
    assert kv_cache.main(["--dir", str(fabric), "--size", "256KiB"]) == 1
    assert "the caches differ" in capsys.readouterr().err


def test_what_is_refused_is_said(fabric):
    """A host that is not there; a staging area that its memory has no room for; sizes that are none."""
    done = client(fabric, "--target", "h9")
    assert done.returncode == 1 and "kv_cache:" in done.stderr
    done = client(fabric, "--size", "1GiB", "--stage", "1GiB")
    assert done.returncode == 1 and "expected memory of the host" in done.stderr, done.stderr
    assert client(fabric, "--size", "0").returncode == 2
    assert client(fabric, "--stage", "3MiB", "--block", "2MiB").returncode == 2
    assert os.access(CLIENT, os.X_OK)
