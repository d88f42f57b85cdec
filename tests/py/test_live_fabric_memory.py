"""The client of docs/fabric-memory.md on a running fabric: a KV-cache moves between two hosts, and a changed byte is found.

Shape: `weft fabric up` in one process, in a directory of the test; lab/examples/kv_cache.py as a program and as a module.
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


@pytest.fixture(name="fabric", scope="module")
def running_fabric():
    """The directory of a fabric's sockets."""
    with tempfile.TemporaryDirectory(prefix="wfm") as folder:
        file = ROOT / "pcaps" / "fabric" / "fabric-memory.toml"
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
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


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


class Flipped(kv_cache.Endpoint):
    """A target whose memory has another byte at one place."""

    def peek(self, addr, length):
        data = bytearray(super().peek(addr, length))
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
