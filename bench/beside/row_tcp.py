"""TCP between kernel hosts, plain and in VXLAN: through weft, the Linux bridge and testpmd.

run(bench, wanted) adds a line a direction, and in VXLAN for each kind of port.

Units: Gbit/s of payload at the receiver.
Source: iperf3(1), veth(4), ip-link(8) `vxlan`.
"""

import contextlib
import itertools
import json
import subprocess

from .bench import take_turns
from .result import Line
from .testpmd import Testpmd
from .weft import Weft, dpdk_ports, port
from .wires import IPV6_OFF

NAMES = ("tcp", "tcp-vxlan")
SECONDS = 3
SWITCH = "weft-bench-sw"
WAYS = ((1, 2), (2, 1))
SINGLE = "no TSO/GSO"
WHOLE = "no offloads"
XDP = "NAPI, XDP"
TESTPMD = "testpmd io"
# What ethtool sets at the devices of a host.
SET = {"": (), "NAPI": ("gro", "on"), SINGLE: ("tso", "off", "gso", "off"), WHOLE: ("tx", "off", "tso", "off", "gso", "off")}
# Kinds of port: device, its keys and settings; what the hosts' devices do. XDP redirects to NAPI only, as GRO switches it on.
KINDS = {
    "af_packet": ("af_packet", "", ""),
    "auto": ("", "", ""),
    "af_xdp": ("af_xdp", "[express]\nenabled = false\n", "NAPI"),
    "express": ("af_xdp", "", "NAPI"),
    "auto, NAPI": ("", "", "NAPI"),
    "dpdk": ("dpdk", "", WHOLE),
}


def host(number):
    """Namespace of a host."""
    return f"weft-bench-h{number}"


class Hosts:
    """Two hosts, each on a cable to the namespace of the switch, where its end is t1 or t2.

    `offloads` is what their devices do other than by default; in a tunnel, iperf3 talks over a VXLAN device on top.
    """

    def __init__(self, processes, offloads="", tunnel=False):
        self.processes, self.offloads, self.tunnel = processes, offloads, tunnel

    def _ip(self, *words):
        self.processes.run(["ip", *map(str, words)], note=False)

    def __enter__(self):
        try:
            for netns in (SWITCH, host(1), host(2)):
                self._ip("netns", "add", netns)
                self.processes.run(["sysctl", "-qw", *IPV6_OFF], netns=netns, note=False)
            for number in (1, 2):
                self._add(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _add(self, number):
        own, near = host(number), f"t{number}"
        cable = ["netns", SWITCH, "type", "veth", "peer", "name", "eth0", "netns", own]
        self._ip("link", "add", near, *cable)
        self._ip("-n", SWITCH, "link", "set", near, "up")
        self._ip("-n", own, "link", "set", "lo", "up")
        self._ip("-n", own, "link", "set", "eth0", "up")
        self._ip("-n", own, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
        words = SET[self.offloads]
        if words:
            self.processes.run(["ethtool", "-K", "eth0", *words], netns=own)
        if self.tunnel:
            ends = ["local", f"10.77.0.{number}", "remote", f"10.77.0.{3 - number}"]
            vxlan = ["type", "vxlan", "id", 42, "dstport", 4789, "dev", "eth0", *ends]
            self._ip("-n", own, "link", "add", "vx0", *vxlan)
            self._ip("-n", own, "addr", "add", f"10.78.0.{number}/24", "dev", "vx0")
            if self.offloads == WHOLE:
                self.processes.run(["ethtool", "-K", "vx0", *words], netns=own)
            self._ip("-n", own, "link", "set", "vx0", "up")

    def __exit__(self, *_):
        for netns in (SWITCH, host(1), host(2)):
            with contextlib.suppress(RuntimeError):  # it was never made
                self._ip("netns", "del", netns)

    def bridge(self):
        """A Linux bridge between them."""
        self.processes.run(["ip", "-n", SWITCH, "link", "add", "br0", "type", "bridge"])
        for device in ("t1", "t2"):
            self.processes.run(["ip", "-n", SWITCH, "link", "set", device, "master", "br0"])
        self.processes.run(["ip", "-n", SWITCH, "link", "set", "br0", "up"])

    def tcp(self, source, target):
        """Gbit/s that the receiver got."""
        serve = ["iperf3", "-s", "-1", "--forceflush"]
        server = self.processes.start(serve, netns=host(target), stdout=subprocess.PIPE)
        try:
            while b"listening" not in server.stdout.readline():
                if server.poll() is not None:
                    raise RuntimeError(f"iperf3 -s: {self.processes.said(server)}")
            address = f"10.{78 if self.tunnel else 77}.0.{target}"
            client = ["iperf3", "-c", address, "-t", SECONDS, "-J"]
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
            shown = self.processes.run(["cat", "/proc/net/snmp"], netns=host(number), note=False).split("\n")
            for protocol in ("Tcp:", "Udp:"):
                names, values = (line.split() for line in shown if line.startswith(protocol))
                wrong = int(values[names.index("InCsumErrors")])
                if wrong:
                    raise RuntimeError(f"{protocol} {wrong} wrong checksums at host {number}")
        return figures


def bridge(bench, offloads="", tunnel=False):
    """Through a Linux bridge; with XDP, between veths whose program passes all frames on to the host's stack."""
    is_xdp = offloads == XDP
    with Hosts(bench.processes, "NAPI" if is_xdp else offloads, tunnel) as hosts:
        hosts.bridge()
        passer = bench.kit.attached(SWITCH, "pass", "t1", "t2") if is_xdp else contextlib.nullcontext()
        with passer:
            return hosts.ways()


def plain(bench):
    """Both switches, both ways."""

    def weft():
        # Packet sockets pass on TSO super-frames whole; XDP makes the hosts turn TSO off.
        ports = [port(f"p{number}", "af_packet", f"t{number}") for number in (1, 2)]
        with Hosts(bench.processes) as hosts, Weft(bench, ports, netns=SWITCH, poll="adaptive"):
            return hosts.ways()

    turns = take_turns(bench, "tcp", {"weft": weft, "bridge": lambda: bridge(bench, SINGLE)})
    for source, target in WAYS:
        work = f"iperf3 TCP, host {source} to {target}, default offloads"
        line = Line("tcp", work, f"Linux bridge, {SINGLE}", "Gbit/s", 0.8, 1.0)
        bench.lines.append(turns.settle(line, "weft", "bridge", f"{source} to {target}"))


def beside(offloads):
    """Name of the bridge between veths that do this, or of testpmd."""
    return offloads if offloads == TESTPMD else f"bridge {offloads}".strip()


def peers(offloads):
    """Who a kind of port is held against, and the least and the wished ratio to each.

    A bridge on the same veths is one whose veths and hosts do the same: any XDP program turns the hosts' TSO off. DPDK's
    driver sends no faster, whichever program forwards, so testpmd is the bound there.
    """
    if offloads == WHOLE:
        return {TESTPMD: (0.8, 1.0), WHOLE: (None, None)}
    same = XDP if offloads == "NAPI" else offloads
    return {same: (0.5, 0.8)} | ({"": (None, None)} if same else {})


def devices():
    """DPDK's devices on the two veths; frames of their rings fit the chunks of the default `max_frame` (docs/dpdk.md)."""
    return [f"net_af_packet{number},iface=t{number},blocksz=102400,framesz=1600" for number in (1, 2)]


def testpmd(bench):
    """Through testpmd, which looks at no frame."""
    bench.needs_huge_pages(256)
    with Hosts(bench.processes, WHOLE, tunnel=True) as hosts, Testpmd(bench, devices(), netns=SWITCH):
        return hosts.ways()


def in_vxlan(bench):
    """Each kind of port beside its peers."""
    notes = {}

    def weft(kind):
        device, settings, offloads = KINDS[kind]
        if device == "dpdk":
            bench.needs_huge_pages(256)
            ports, settings = dpdk_ports(*devices())
        else:
            ports = [port(f"p{number}", device, f"t{number}") for number in (1, 2)]
        with Hosts(bench.processes, offloads, tunnel=True) as hosts:
            with Weft(bench, ports, netns=SWITCH, settings=settings, poll="adaptive") as switch:
                figures = hosts.ways()
                notes[kind] = switch.notes()
                return figures

    def measure(peer):
        return testpmd(bench) if peer == TESTPMD else bridge(bench, peer, tunnel=True)

    contenders = {}
    for kind, (_, _, offloads) in KINDS.items():  # peers before the kind: they see the machine alike
        for peer in peers(offloads):
            contenders.setdefault(beside(peer), lambda peer=peer: measure(peer))
        contenders[kind] = lambda kind=kind: weft(kind)
    turns = take_turns(bench, "tcp-vxlan", contenders)
    for kind, (_, _, offloads) in KINDS.items():
        for (source, target), (peer, bounds) in itertools.product(WAYS, peers(offloads).items()):
            work = f"iperf3 TCP in VXLAN, {kind}, host {source} to {target}"
            against = TESTPMD if peer == TESTPMD else f"Linux bridge, {peer or 'default offloads'}"
            line = Line("tcp-vxlan", work, against, "Gbit/s", *bounds)
            line.notes = notes.get(kind, [])
            bench.lines.append(turns.settle(line, kind, beside(peer), f"{source} to {target}"))


def run(bench, wanted):
    """The rows that are wanted."""
    if "tcp" in wanted:
        plain(bench)
    if "tcp-vxlan" in wanted:
        in_vxlan(bench)
