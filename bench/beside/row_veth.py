"""veth to veth: one interface in, one out, the forwarder on a core of its own.

run(bench) adds a line a size and peer.

Units: Mpps; bytes without FCS.
Source: Linux veth: redirected frames need NAPI at the far end, and the cheapest sink is
a last veth without program that foreign frames come to.
"""

import contextlib
import time

from .bench import take_turns
from .captures import mac, text
from .processes import rate
from .ovs import Ovs
from .result import Line
from .testpmd import Testpmd
from .weft import Weft, veth_ports
from .wires import FORWARDER, SINK, Wires

SIZES = (60, 64, 1_406)
NAMES = ("veth-af_xdp", "veth-af_packet", "veth-express")
TARGETS = (text(mac(2, 0)),)
SETTLE_S = 0.4


class Veth:
    """Contenders between the same two interfaces."""

    def __init__(self, bench):
        self.bench, self.notes = bench, {}

    def sizes(self, frames):
        """Mpps by size, counted by `frames`."""
        figures = {}
        for size in SIZES:
            with self.bench.kit.generating(size):
                time.sleep(SETTLE_S)
                figures[size] = rate(frames, self.bench.seconds) / 1e6
        return figures

    def weft(self, kind):
        """weft with ports of a kind; a frame's target is known, as the express path wants it."""
        self.bench.needs_two_cores()
        ports, settings = veth_ports(kind)
        with Wires(self.bench.processes) as wires, contextlib.ExitStack() as stack:
            frames = self._sink(stack, wires, kind == "express")
            weft = stack.enter_context(Weft(self.bench, ports, TARGETS, FORWARDER, settings))
            figures = self.sizes(frames)
            self.notes[kind] = weft.notes()
            return figures

    def _sink(self, stack, wires, redirected):
        """What counts: the bare interface, or for frames that the kernel redirects a program, as NAPI needs one."""
        if not redirected:
            return wires.frames
        return stack.enter_context(self.bench.kit.attached(SINK, "sink", "s1")).frames

    def testpmd(self, kind):
        """testpmd between net_af_xdp or net_af_packet devices."""
        self.bench.needs_two_cores()
        self.bench.needs_huge_pages(128)
        with Wires(self.bench.processes) as wires:
            devices = [f"net_{kind}{number},iface=f{number}" for number in (0, 1)]
            with Testpmd(self.bench, devices, FORWARDER):
                return self.sizes(wires.frames)

    def open_vswitch(self):
        """OVS with afxdp ports in native mode."""
        self.bench.needs_two_cores()
        options = ("type=afxdp", "options:n_rxq=1", "options:xdp-mode=native")
        with Wires(self.bench.processes) as wires, Ovs(self.bench, FORWARDER) as ovs:
            ovs.ports(("f0", *options), ("f1", *options), TARGETS)
            figures = self.sizes(wires.frames)
            self.notes["OVS afxdp"] = [f"OVS: {line}" for line in ovs.caches()]
            return figures

    def redirect(self):
        """The kernel's own redirect by a devmap, without reading the frame."""
        with Wires(self.bench.processes), contextlib.ExitStack() as stack:
            sink = stack.enter_context(self.bench.kit.attached(SINK, "sink", "s1"))
            stack.enter_context(self.bench.kit.attached(FORWARDER, "redirect", "f0", "f1"))
            return self.sizes(sink.frames)


def lines(bench, turns, veth, row, ours, peers):
    """A line for each size and peer: `peers` has name, must and goal."""
    for size in SIZES:
        for peer, must, goal in peers:
            line = Line(row, f"veth to veth, {ours}, {size:,} B", peer, "Mpps", must, goal)
            line.notes = veth.notes.get(ours, []) + veth.notes.get(peer, [])
            bench.lines.append(turns.settle(line, ours, peer, size))


def run(bench, wanted):
    """The three ways from veth to veth."""
    if "veth-af_xdp" in wanted:
        veth = Veth(bench)
        contenders = {
            "af_xdp": lambda: veth.weft("af_xdp"),
            "testpmd net_af_xdp": lambda: veth.testpmd("af_xdp"),
            "OVS afxdp": veth.open_vswitch,
        }
        turns = take_turns(bench, "veth-af_xdp", contenders)
        peers = (("testpmd net_af_xdp", 0.9, 0.95), ("OVS afxdp", 0.95, 1.0))
        lines(bench, turns, veth, "veth-af_xdp", "af_xdp", peers)
    if "veth-af_packet" in wanted:
        veth = Veth(bench)
        contenders = {
            "af_packet": lambda: veth.weft("af_packet"),
            "testpmd net_af_packet": lambda: veth.testpmd("af_packet"),
        }
        turns = take_turns(bench, "veth-af_packet", contenders)
        lines(bench, turns, veth, "veth-af_packet", "af_packet", (("testpmd net_af_packet", 0.8, 0.9),))
    if "veth-express" in wanted:
        veth = Veth(bench)
        contenders = {"express": lambda: veth.weft("express"), "raw devmap redirect": veth.redirect}
        turns = take_turns(bench, "veth-express", contenders)
        lines(bench, turns, veth, "veth-express", "express", (("raw devmap redirect", 0.75, 0.85),))
