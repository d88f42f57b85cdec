"""Memory to memory through DPDK's virtual devices: net_pcap plays a capture in a loop, net_null accepts all.

run(bench) adds a line a load.

Units: Mpps; bytes without FCS; MiB.
Source: DPDK 22.11 net_pcap and net_null guides.
"""

from .bench import take_turns
from .captures import Load
from .processes import rate
from .ovs import Ovs
from .result import Line
from .testpmd import Testpmd
from .weft import Weft, dpdk_ports

# name, load, must, goal
LOADS = (
    ("memory-64", "64 B, 256 flows", Load(64, 256, 2), 1.0, 1.2),
    ("memory-macs", "64 B, 10,000 MACs", Load(64, 10_000, 10_000), 1.5, 2.0),
    ("memory-1406", "1,406 B, 256 flows", Load(1_406, 256, 2), 1.0, 1.2),
)
NAMES = tuple(name for name, *_ in LOADS)
MEMORY_MIB, SETTLE_S = 700, 1.0
SINK = "net_null0,no-rx=1"  # without it, the device makes frames too


def source(path):
    """The device that plays."""
    return f"net_pcap0,rx_pcap={path},infinite_rx=1"


class Loaded:
    """The contenders under one load."""

    def __init__(self, bench, load, path):
        self.bench, self.load, self.path = bench, load, path
        self.known, self.notes = {}, {}

    def forwarded(self, peer):
        """Mpps of a peer, once it is warm."""
        rate(peer.count, SETTLE_S)
        return rate(peer.count, self.bench.seconds) / 1e6

    def weft(self):
        """weft's turn."""
        self.bench.needs_huge_pages(MEMORY_MIB)
        ports, settings = dpdk_ports(source(self.path), SINK)
        with Weft(self.bench, ports, self.load.targets(), settings=settings) as weft:
            figure = self.forwarded(weft)
            ours = {"p0": "in", "p1": "out"}
            self.known["weft"] = {(mac, ours.get(port, port)) for mac, port in weft.known()}
            self.notes["weft"] = weft.notes()
            return figure

    def testpmd(self):
        """testpmd's turn."""
        self.bench.needs_huge_pages(MEMORY_MIB)
        with Testpmd(self.bench, [source(self.path), SINK]) as testpmd:
            return self.forwarded(testpmd)

    def open_vswitch(self):
        """OVS's turn."""
        self.bench.needs_huge_pages(MEMORY_MIB)
        ports = [
            (name, "type=dpdk", f'options:dpdk-devargs="{device}"', "options:n_rxq=1")
            for name, device in (("in", source(self.path)), ("out", SINK))
        ]
        with Ovs(self.bench) as ovs:
            ovs.ports(*ports, targets=self.load.targets())
            rate(ovs.count, SETTLE_S)
            ovs.forget()
            figure = rate(ovs.count, self.bench.seconds) / 1e6
            self.notes["OVS"] = [f"OVS: {line}" for line in ovs.caches()]
            self.known["OVS"] = ovs.known()
            return figure

    def all_known(self):
        """Whether both have learned exactly the stations of the load; notes how many otherwise."""
        wanted = {(mac, "in") for mac in self.load.sources()} | {(mac, "out") for mac in self.load.targets()}
        notes, good = [], True
        for name, known in self.known.items():
            lacks, has = len(wanted - known), len(known)
            good &= lacks == 0
            notes.append(f"{name} knows {has} stations; {lacks} of the load's {len(wanted)} are missing")
        return good, notes


def run(bench, wanted):
    """All loads, one after the other."""
    for name, what, load, must, goal in LOADS:
        if name not in wanted:
            continue
        loaded = Loaded(bench, load, load.write(f"{bench.folder}/{name}.pcap"))
        contenders = {"weft": loaded.weft, "OVS": loaded.open_vswitch, "testpmd": loaded.testpmd}
        turns = take_turns(bench, name, contenders)
        work = f"net_pcap to net_null, {what}"
        line = turns.settle(Line(name, work, "OVS-DPDK NORMAL", "Mpps", must, goal), "weft", "OVS")
        good, line.notes = loaded.all_known()
        line.notes += [note for notes in loaded.notes.values() for note in notes]
        if not good:
            line.failed, line.reason = True, "; ".join(line.notes[: len(loaded.known)])
        reference = Line(name, work, "testpmd io (no switching)", "Mpps")
        bench.lines += [line, turns.settle(reference, "weft", "testpmd")]
