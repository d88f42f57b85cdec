"""What a switch of a given configuration must do, in closed form: when it pauses, drops, releases, marks and shares.

Oracle(CONFIG), with a configuration as tomllib reads it; each method is one formula, solved for frames.

Units: frames of one size; cells where the name says so, else octets without FCS.
Source: docs/spec/pipeline.md §4 (thresholds), §7 (shares), §8 (marks), §9 (PFC); never the program.
"""

from fractions import Fraction
from math import floor

MIB = 1 << 20
QUANTUM_BITS = 512  # IEEE 802.3, Annex 31B: a pause time is counted in times of 512 bits
QUANTA_MAX = 0xFFFF


class Oracle:
    """A configuration with [switch], [buffer], [pfc], [ecn] and ports; what it leaves out must have a fixed default."""

    def __init__(self, config):
        buffer, pfc = config["buffer"], config["pfc"]
        self.priorities = config["switch"]["num_priorities"]
        self.ports = len(config["port"])
        self.cell = buffer["cell_bytes"]
        self.lossless = frozenset(pfc["pfc_priorities"])
        assert not buffer.get("voq_reserve_bytes", 0), "reserves of VOQs are in no closed form here"
        self.reserve_cells = self.cells(buffer.get("pg_reserve_bytes", 4096))
        self.headroom_cells = self.cells(buffer["headroom_bytes"])
        self.xon_offset_cells = self.cells(buffer["xon_offset_bytes"])
        alpha = buffer["dt_alpha"]
        self.alpha = [Fraction(a) for a in (alpha if isinstance(alpha, list) else [alpha] * self.priorities)]
        groups = self.ports * len(self.lossless)
        total = buffer["buffer_size_mb"] * MIB // self.cell
        self.shared_cells = total - groups * (self.headroom_cells + self.reserve_cells)
        assert self.shared_cells > 0, "headroom and reserves leave nothing"
        defaults = config.get("port_defaults", {})
        self.rate_gbps = defaults.get("port_bandwidth_gbps", 1)
        self.weights = defaults.get("weights", [1] * self.priorities)
        self.strict = defaults.get("strict", [6, 7])
        self.queue_capacity = buffer.get(
            "queue_capacity_bytes", self.shared_cells * self.cell // (2 * self.ports)
        )
        ecn = config.get("ecn", {})
        self.ecn_low = Fraction(ecn.get("ecn_threshold_low", 50) * self.queue_capacity, 100)
        self.ecn_high = Fraction(ecn.get("ecn_threshold_high", 80) * self.queue_capacity, 100)
        self.ecn_max = Fraction(ecn.get("max_percent", 100), 100)

    def cells(self, octets):
        """Cells that so many octets take."""
        return -(-octets // self.cell)

    def reserve(self, pri):
        """Reserve of the queue that a frame of `pri` is counted in, in cells."""
        return self.reserve_cells if pri in self.lossless else 0

    def admitted(self, pri, octets=64, shared_used=0):
        """The frames that a queue takes up to its limit while `shared_used` cells of the rest stay as they are.

        Frame n comes to used = (n - 1) c cells, of which max(0, used - S) are shared with what others use, and is
        admitted iff n c <= S + alpha (T - shared). Above its reserve that is n c <= S + alpha (T - others + c) / (1 + alpha);
        and what exceeds the reserve must exist.
        """
        c, s, a = self.cells(octets), self.reserve(pri), self.alpha[pri]
        free = self.shared_cells - shared_used
        by_limit = s + a * (free + c) / (1 + a)
        return max(s // c, min(floor(by_limit / c), (s + free) // c), 0)

    def xoff(self, pri, octets=64, shared_used=0):
        """Frames of a lossless group without a PAUSE: the next one asks for it."""
        assert pri in self.lossless
        return self.admitted(pri, octets, shared_used)

    def ingress_drop(self, pri, octets=64, shared_used=0):
        """Frames of a lossless group without a drop: what its headroom takes follows the XOFF point."""
        return self.xoff(pri, octets, shared_used) + self.headroom_cells // self.cells(octets)

    def egress_drop(self, pri, octets=64, shared_used=0):
        """Frames of a lossy VOQ without a drop."""
        assert pri not in self.lossless
        return self.admitted(pri, octets, shared_used)

    def xon(self, pri, octets=64, shared_used=0):
        """The most frames with which a paused group is released: its XOFF, less the offset, or its reserve.

        Released iff n c <= max(S, limit(n c) - offset), and limit(u) = S + alpha (T - others - (u - S)).
        """
        c, s, a = self.cells(octets), self.reserve(pri), self.alpha[pri]
        free = self.shared_cells - shared_used
        by_limit = s + (a * free - self.xon_offset_cells) / (1 + a)
        return max(s // c, floor(by_limit / c))

    def shared(self, pri, frames, octets=64):
        """Cells of the shared part that so many frames of one queue use."""
        return max(0, frames * self.cells(octets) - self.reserve(pri))

    def refresh_s(self):
        """Seconds between two PAUSE frames while a threshold is exceeded: half of the longest pause."""
        return QUANTA_MAX * QUANTUM_BITS / (self.rate_gbps * 1e9) / 2

    def mark_probability(self, depth):
        """Probability that an ECT frame is marked which leaves a queue with `depth` octets, its own included."""
        if depth >= self.ecn_high:
            return Fraction(1)
        if depth < self.ecn_low:
            return Fraction(0)
        return self.ecn_max * (depth - self.ecn_low) / (self.ecn_high - self.ecn_low)

    def marks(self, octets, frames, chosen=lambda number: True):
        """Mean and variance of the marks while `frames` frames drain from a queue; `chosen` are the ECT ones, from 0."""
        each = [
            self.mark_probability((frames - number) * octets) for number in range(frames) if chosen(number)
        ]
        return sum(each), sum(p * (1 - p) for p in each)

    def share(self, pri, active):
        """Share of an output that `pri` has while all of `active`, none of them strict, have frames."""
        assert not set(active) & set(self.strict)
        return Fraction(self.weights[pri], sum(self.weights[one] for one in active))
