"""What cases of the SAI service have in common: priorities of the configuration, counters, drops.

Constants; Drops tells what was dropped, and by whom.

Units: frames.
Source: docs/spec/pipeline.md §4; public interface of SAI.
"""

from switch_sai_thrift import sai_headers as sai

LOSSLESS, LOSSLESS_TOO, LOSSY = 3, 4, 1
REFRESHES = 3  # so many more PAUSE frames show that they are sent again and again
QUANTA_MAX = 0xFFFF
GROUP = "SAI_INGRESS_PRIORITY_GROUP_STAT_"
GROUP_PACKETS = getattr(sai, f"{GROUP}PACKETS")
GROUP_OCCUPANCY = getattr(sai, f"{GROUP}CURR_OCCUPANCY_BYTES")
GROUP_SHARED = getattr(sai, f"{GROUP}SHARED_WATERMARK_BYTES")
GROUP_XOFF_ROOM = getattr(sai, f"{GROUP}XOFF_ROOM_WATERMARK_BYTES")
GROUP_DROPPED = getattr(sai, f"{GROUP}DROPPED_PACKETS")
IN_DROPS = (sai.SAI_PORT_STAT_IF_IN_DISCARDS, sai.SAI_PORT_STAT_IN_DROPPED_PKTS)
OUT_DROPS = (sai.SAI_PORT_STAT_IF_OUT_DISCARDS, sai.SAI_PORT_STAT_OUT_DROPPED_PKTS)


class Drops:
    """Drops of all ports since it was made, by what SAI calls them."""

    def __init__(self, bench):
        self.bench, self.base = bench, self.read(bench)

    @staticmethod
    def read(bench):
        return [bench.port(port, *IN_DROPS, *OUT_DROPS) for port in bench.ports]

    def since(self):
        """{(port, "in" or "out"): drops}, those that are not 0."""
        found = {}
        for port, (now, base) in enumerate(zip(self.read(self.bench), self.base)):
            grown = [new - old for new, old in zip(now, base)]
            assert grown[0] == grown[1] and grown[2] == grown[3], (port, grown)
            found |= {(port, way): count for way, count in (("in", grown[0]), ("out", grown[2])) if count}
        return found
