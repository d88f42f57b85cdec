"""The wires of a measurement: generator g0 = f0 [forwarder] f1 = s1 sink, each part in a namespace.

`with Wires(processes) as wires`; wires.frames() counts at the sink.

Units: frames, ns of CLOCK_MONOTONIC.
Source: veth(4), ip-netns(8). veth takes redirected frames only where the far end has NAPI: XDP, or GRO switched on.
"""

import json
import time

GENERATOR, FORWARDER, SINK = "weft-bench-g", "weft-bench-f", "weft-bench-s"
IPV6_OFF = "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"


class Wires:
    """Two cables and three namespaces, which go when the block ends."""

    def __init__(self, processes):
        self.processes = processes

    def _ip(self, *words):
        return self.processes.run(["ip", *words], note=False)

    def __enter__(self):
        try:
            for netns in (GENERATOR, FORWARDER, SINK):
                self._ip("netns", "add", netns)
                self.processes.run(["sysctl", "-qw", *IPV6_OFF], netns=netns, note=False)
                self._ip("-n", netns, "link", "set", "lo", "up")
            for near, at, far in (("g0", GENERATOR, "f0"), ("s1", SINK, "f1")):
                cable = ["netns", at, "type", "veth", "peer", "name", far, "netns", FORWARDER]
                self._ip("link", "add", near, *cable)
            for netns, device in ((GENERATOR, "g0"), (FORWARDER, "f0"), (FORWARDER, "f1"), (SINK, "s1")):
                self._ip("-n", netns, "link", "set", device, "up")
            self.napi(FORWARDER, "f0")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for netns in (GENERATOR, FORWARDER, SINK):
            try:
                self._ip("netns", "del", netns)
            except RuntimeError:
                pass  # it was never made

    def napi(self, netns, device):
        """Lets a device take redirected frames without a program of its own."""
        self.processes.run(["ethtool", "-K", device, "gro", "on"], netns=netns, note=False)

    def bypass(self):
        """A cable from the generator to the sink that passes no forwarder: d0 = d1."""
        self._ip("link", "add", "d0", "netns", GENERATOR, "type", "veth", "peer", "name", "d1", "netns", SINK)
        self._ip("-n", GENERATOR, "link", "set", "d0", "up")
        self._ip("-n", SINK, "link", "set", "d1", "up")

    def frames(self, netns=SINK, device="s1"):
        """Frames that have come in at the sink, and when that was."""
        start = time.monotonic_ns()
        shown = self._ip("-n", netns, "-s", "-j", "link", "show", "dev", device)
        frames = json.loads(shown)[0]["stats64"]["rx"]["packets"]
        return frames, (start + time.monotonic_ns()) // 2
