"""Whether reads and writes of a register can be put into one order in which each read finds the value written last
(linearizability), where each value is written once.

Register().wrote() and read() with the time from call to answer of each; check() raises `Wrong`.

Units: any clock that all callers share.
Source: Gibbons and Korach, "Testing Shared Memories", SIAM Journal on Computing 26 (1997), section 4.2 (read-mapping known).
"""

import bisect
import math

NEVER = math.inf


class Wrong(Exception):
    """What no order explains."""


class Register:
    """All accesses to one register, which begins with `initial`."""

    def __init__(self, initial=0):
        self.writes, self.reads = {initial: (-NEVER, -NEVER)}, {}

    def wrote(self, value, start, end):
        """A write; its end is `NEVER` if it failed: it may have been done, then or later."""
        assert value not in self.writes, f"{value} is written twice"
        self.writes[value] = start, end

    def read(self, value, start, end):
        """A read that found `value`."""
        self.reads.setdefault(value, []).append((start, end))

    def zones(self):
        """(first end, last start, value) of all accesses of each value that took effect: the register has that value from
        the first end to the last start, or the write lies within the time between last start and first end."""
        for value in self.reads:
            if value not in self.writes:
                raise Wrong(f"{value} was read, and never written")
        for value, (start, end) in self.writes.items():
            reads = self.reads.get(value, [])
            early = [read for read in reads if read[1] < start]
            if early:
                raise Wrong(f"{value} was read at {early[0]}, before it was written at {start}")
            if reads or end != NEVER:
                ends, starts = [read[1] for read in reads], [read[0] for read in reads]
                yield min([end, *ends]), max([start, *starts]), value

    def check(self):
        """Raises `Wrong` unless there is an order."""
        zones = list(self.zones())
        forward = sorted(zone for zone in zones if zone[0] < zone[1])
        for one, two in zip(forward, forward[1:], strict=False):
            if two[0] < one[1]:
                raise Wrong(
                    f"{one[2]} was there at {one[0]} and at {one[1]}, and {two[2]} at {two[0]} and {two[1]}"
                )
        begins = [zone[0] for zone in forward]
        for end, start, value in zones:
            if end < start:
                continue
            at = bisect.bisect_left(begins, start) - 1
            if at >= 0 and end < forward[at][1]:
                raise Wrong(
                    f"{value} was there between {start} and {end}, where {forward[at][2]} was before and afterwards"
                )
