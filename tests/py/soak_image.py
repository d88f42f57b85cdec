#!/usr/bin/env python3
"""The image of weft itself: it holds together, and a container of it is a switch; for `make soak`.

soak_image.py IMAGE -> run as the first process of namespaces with the image as its root, as a container's is, and by
podman where that works; exit code 0 when all holds.

Units: seconds.
Source: docs/lab.md "The image"; chroot(2), pid_namespaces(7).
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import weftlive
from weftimage import Image

# Only the process that has the tests has arguments of its own.
IS_MAIN = __name__ == "__main__"
PATH = pathlib.Path(sys.argv.pop(1)).resolve() if IS_MAIN and len(sys.argv) > 1 else None
WAIT_S = 60
PINGS = 20


def until(what, look):
    """Waits until `look` has something."""
    end = time.monotonic() + WAIT_S
    while not (found := look()):
        assert time.monotonic() < end, f"not in time: {what}"
        time.sleep(0.05)
    return found


def joined(number):
    """Adds interface `ethN` here, at the other end of which is a host in a namespace of its own."""
    weftlive.plug(f"eth{number}", f"h{number}", f"10.82.0.{number}/24")


def run_as_root_of(root, kind):
    """In namespaces: the image's command as process 1, with `root` as `/` and interfaces that come while it waits."""
    with open(os.path.join(root, "image.json"), encoding="ascii") as file:
        entrypoint, command = json.load(file)
    command = [*entrypoint, command[0], "--ports", f"{kind}:eth[1-9]*"] if kind else [*entrypoint, *command]
    for name in ("proc", "dev", "sys"):
        os.makedirs(os.path.join(root, name), exist_ok=True)
    inside = f'mount -t proc proc {root}/proc && mount -t sysfs sysfs {root}/sys && exec chroot {root} "$@"'
    first = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "sh", "-c", inside, "sh"]
    environment = {"CLAB_INTFS": "2"}
    path = {**environment, "PATH": os.environ["PATH"]}

    def start():
        return subprocess.Popen([*first, *command], env=path, stderr=subprocess.PIPE, text=True)

    def told(process, text):
        while text not in (line := process.stderr.readline()):
            assert line, f"it ended with {process.wait()}"

    def first_of(process):
        """Process 1 of the container."""
        (child,) = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        return child

    def tell(process):
        """Asks process 1 of the container to stop: a signal that it does not catch would be lost."""
        os.kill(int(first_of(process)), signal.SIGTERM)

    def show(process, *what):
        """What a command in the container says."""
        enter = ["nsenter", "--target", first_of(process), "--pid", "--root", *entrypoint, "show", *what]
        return subprocess.run(enter, check=True, stdout=subprocess.PIPE).stdout.decode()

    waiting = start()
    told(waiting, "0 of 2 ")
    tell(waiting)
    assert waiting.wait(WAIT_S) == 0
    process = start()
    for number in (1, 2):
        told(process, f"{number - 1} of 2 ")
        joined(number)
    told(process, "is up")
    ports = json.loads(show(process, "ports", "--json"))["ports"]
    assert [port["name"] for port in ports] == ["eth1", "eth2"], ports
    print(kind, [port["kind"] for port in ports])
    assert not kind or {port["kind"] for port in ports} == {kind}, ports
    assert weftlive.pings("h1", "10.82.0.2", PINGS) == PINGS
    weftlive.sh("ip link set eth2 down && ip link set eth2 up")
    print(show(process, "process"))
    tell(process)
    assert process.wait(WAIT_S) == 0, process.stderr.read()


def podman(*arguments):
    """Runs podman with storage of its own; its answer."""
    where = ["--root", "/run/images", "--runroot", "/run/containers", "--storage-driver", "vfs"]
    return subprocess.run(["podman", *where, *arguments], capture_output=True, text=True, check=False)


# As podman does by itself; and where limits cannot be raised, or control groups are those of version 1.
RUNS = ([], ["--runtime", "runc"])
LIMITS = ["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=512:512"]


def run_by_podman(image):
    """In namespaces: a container that gets its interfaces after its start, as containerlab's do."""
    loaded = podman("load", "-i", image)
    assert loaded.returncode == 0 and "weft:latest" in loaded.stdout, loaded
    options = ["--network=none", "--cap-add=NET_ADMIN,NET_RAW", "--env=CLAB_INTFS=2", *LIMITS]
    for runtime in RUNS:
        ran = podman(*runtime, "run", "--detach", "--name=sw", *options, "weft:latest")
        if ran.returncode == 0:
            break
        print(runtime, ran.stderr)
        podman("rm", "--force", "sw")
    assert ran.returncode == 0, "podman runs no container here"
    try:
        pid = podman(*runtime, "inspect", "--format={{.State.Pid}}", "sw").stdout.strip()
        for number in (1, 2):
            host = f"h{number}"
            weftlive.sh(f"ip netns add {host} && ip link add eth{number} netns {pid} type veth peer eth0 netns {host}")
            weftlive.sh(f"ip -n {host} link set eth0 up && ip -n {host} addr add 10.82.0.{number}/24 dev eth0")
            weftlive.sh(f"nsenter --net=/proc/{pid}/ns/net ip link set eth{number} up")
        until("the switch answers", lambda: podman(*runtime, "exec", "sw", "/weft", "show", "ports").returncode == 0)
        assert weftlive.pings("h1", "10.82.0.2", PINGS) == PINGS
        assert podman(*runtime, "stop", "sw").returncode == 0
        code = podman(*runtime, "inspect", "--format={{.State.ExitCode}}", "sw").stdout.strip()
        assert code == "0", podman("logs", "sw")
    finally:
        podman(*runtime, "rm", "--force", "sw")


class OfWeft(unittest.TestCase):
    """The image that `make image` has written."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="weft-image-")
        self.addCleanup(self.scratch.cleanup)
        self.root = pathlib.Path(self.scratch.name) / "root"
        self.image = Image(PATH)
        self.image.unpack(self.root)
        self.root.joinpath("image.json").write_text(json.dumps(self.image.command()), encoding="ascii")

    def test_a_container_is_a_switch(self):
        """Its first process waits for interfaces, forwards, and stops when told."""
        for kind in ("", "af_packet", "af_xdp"):
            with self.subTest(kind=kind):
                weftlive.inside("soak_image", "run_as_root_of", str(self.root), kind, timeout=4 * WAIT_S)

    def test_podman_runs_it(self):
        """Loaded under its name, it is a switch."""
        if shutil.which("podman") is None:
            self.skipTest("podman missing")
        weftlive.inside("soak_image", "run_by_podman", str(PATH), timeout=4 * WAIT_S)


if IS_MAIN:
    unittest.main()
