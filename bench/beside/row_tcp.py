"""TCP between kernel hosts: through weft with their default offloads, and through the bridge without TSO and GSO.

Shape: run(bench) adds a line a direction.
Units: Gbit/s of payload at the receiver.
Source: iperf3(1), veth(4).
"""

import contextlib
import json
import subprocess

from .bench import take_turns
from .result import Line
from .weft import Weft, port
from .wires import IPV6_OFF

NAMES = ("tcp",)
SECONDS = 3
SWITCH = "weft-bench-sw"
WAYS = ((1, 2), (2, 1))


def host(number):
    """Namespace of a host."""
    return f"weft-bench-h{number}"


class Hosts:
    """Two hosts, each on a cable to the namespace of the switch, where its end is t1 or t2."""

    def __init__(self, processes, segment):
        self.processes, self.segment = processes, segment

    def _ip(self, *words):
        self.processes.run(["ip", *map(str, words)], note=False)

    def __enter__(self):
        try:
            for netns in (SWITCH, host(1), host(2)):
                self._ip("netns", "add", netns)
                self.processes.run(["sysctl", "-qw", *IPV6_OFF], netns=netns, note=False)
            for number in (1, 2):
                own, near = host(number), f"t{number}"
                cable = ["netns", SWITCH, "type", "veth", "peer", "name", "eth0", "netns", own]
                self._ip("link", "add", near, *cable)
                self._ip("-n", SWITCH, "link", "set", near, "up")
                self._ip("-n", own, "link", "set", "lo", "up")
                self._ip("-n", own, "link", "set", "eth0", "up")
                self._ip("-n", own, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
                if not self.segment:
                    self.processes.run(["ethtool", "-K", "eth0", "tso", "off", "gso", "off"], netns=own)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for netns in (SWITCH, host(1), host(2)):
            with contextlib.suppress(RuntimeError):  # it was never made
                self._ip("netns", "del", netns)

    def tcp(self, source, target):
        """Gbit/s that the receiver got."""
        serve = ["iperf3", "-s", "-1", "--forceflush"]
        server = self.processes.start(serve, netns=host(target), stdout=subprocess.PIPE)
        try:
            while b"listening" not in server.stdout.readline():
                if server.poll() is not None:
                    raise RuntimeError(f"iperf3 -s: {self.processes.said(server)}")
            client = ["iperf3", "-c", f"10.77.0.{target}", "-t", SECONDS, "-J"]
            said = json.loads(self.processes.run(client, netns=host(source), seconds=SECONDS + 30))
            if "sum_received" not in said["end"]:
                raise RuntimeError(f"iperf3: {said.get('error')}")
            return said["end"]["sum_received"]["bits_per_second"] / 1e9
        finally:
            self.processes.stop(server)
            server.stdout.close()

    def ways(self):
        """Both directions; wrong checksums at a host are a fault."""
        figures = {f"{source} to {target}": self.tcp(source, target) for source, target in WAYS}
        for number in (1, 2):
            lines = self.processes.run(["cat", "/proc/net/snmp"], netns=host(number), note=False).split("\n")
            names, values = (line.split() for line in lines if line.startswith("Tcp:"))
            wrong = int(values[names.index("InCsumErrors")])
            if wrong:
                raise RuntimeError(f"{wrong} segments with wrong checksums at host {number}")
        return figures


def run(bench, _wanted):
    """Both switches, both ways."""

    def weft():
        # Packet sockets pass on TSO super-frames whole; XDP makes the hosts turn TSO off.
        ports = [port(f"p{number}", "af_packet", f"t{number}") for number in (1, 2)]
        with Hosts(bench.processes, True) as hosts, Weft(bench, ports, netns=SWITCH, poll="adaptive"):
            return hosts.ways()

    def bridge():
        with Hosts(bench.processes, False) as hosts:
            bench.processes.run(["ip", "-n", SWITCH, "link", "add", "br0", "type", "bridge"])
            for device in ("t1", "t2"):
                bench.processes.run(["ip", "-n", SWITCH, "link", "set", device, "master", "br0"])
            bench.processes.run(["ip", "-n", SWITCH, "link", "set", "br0", "up"])
            return hosts.ways()

    turns = take_turns(bench, "tcp", {"weft": weft, "bridge": bridge})
    for source, target in WAYS:
        work = f"iperf3 TCP, host {source} to {target}, default offloads"
        line = Line("tcp", work, "Linux bridge, no TSO/GSO", "Gbit/s", 0.8, 1.0)
        bench.lines.append(turns.settle(line, "weft", "bridge", f"{source} to {target}"))
