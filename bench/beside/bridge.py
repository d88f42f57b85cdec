"""The Linux bridge between f0 and f1.

`with Bridge(bench, targets)`, inside a Wires block.

Source: ip-link(8), bridge(8). It forwards on the core that the frames come in on.
"""

from .wires import FORWARDER


class Bridge:
    """A bridge with both ends; `targets` are known to be behind f1."""

    name = "Linux bridge"

    def __init__(self, bench, targets=()):
        self.processes, self.targets = bench.processes, targets

    def __enter__(self):
        self._ip("link", "add", "br0", "type", "bridge")
        for device in ("f0", "f1"):
            self._ip("link", "set", device, "master", "br0")
        self._ip("link", "set", "br0", "up")
        for target in self.targets:
            add = ["bridge", "-n", FORWARDER, "fdb", "add", target, "dev", "f1", "master", "static"]
            self.processes.run(add)
        return self

    def _ip(self, *words):
        self.processes.run(["ip", "-n", FORWARDER, *words])

    def __exit__(self, *_):
        self._ip("link", "del", "br0")
