"""What QoS tests of a switch check, each against the closed forms of saioracle.py, through SAI's service alone.

Shape: CASES, name -> function(bench); each leaves the outputs to Bench.fresh.
Units: frames of one cell, cells, octets without FCS.
Source: docs/spec/pipeline.md §2, §4, §7 to §9.
"""

import math
import struct

from saibench import pfc_quanta
from saiswitch import DSCP_TO_PRI, PCP_TO_PRI, PRI_TO_PG
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
UNICAST = (sai.SAI_PORT_STAT_IF_IN_UCAST_PKTS, sai.SAI_PORT_STAT_IF_OUT_UCAST_PKTS)
OTHERS = (sai.SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS, sai.SAI_PORT_STAT_IF_OUT_NON_UCAST_PKTS)
CASES = {}


def case(function):
    """Makes a function one of the cases."""
    CASES[function.__name__] = function
    return function


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


def to_xoff(bench, src, dst, pri, shared_used=0):
    """Fills a group to the frame that asks for a PAUSE, which must be that of the closed form; returns its number."""
    point, base = bench.oracle.xoff(pri, shared_used=shared_used), bench.pfc(src, pri)
    bench.fill(src, dst, pri, point)
    assert bench.group(src, pri, GROUP_OCCUPANCY, GROUP_XOFF_ROOM) == [point * bench.oracle.cell, 0]
    assert bench.pfc(src, pri) == base, f"PAUSE within {point} frames"
    bench.fill(src, dst, pri, 1)
    # This frame, and no other, is in the headroom: the threshold was not passed before.
    assert bench.group(src, pri, GROUP_XOFF_ROOM) == bench.oracle.cell
    bench.wait(f"a PAUSE of port {src}", lambda: bench.pfc(src, pri), lambda now: now > base)
    return point + 1


@case
def xoff_comes_at_the_closed_form(bench):
    drops = Drops(bench)
    bench.hold(3)
    for pri in (LOSSLESS, LOSSLESS_TOO):
        frames = to_xoff(bench, 0, 3, pri)
        print(f"priority {pri}: PAUSE at frame {frames}")
        begun = bench.pfc(0, pri)
        bench.wait("PAUSE again and again", lambda: bench.pfc(0, pri), lambda now: now >= begun + REFRESHES)
        bench.free(3)
        bench.delivered(3, frames)
        heard = [pfc_quanta(data) for data in bench.taken(0, pfc=True)]
        bench.hold(3)
        assert len(heard) > REFRESHES and all(set(one) == {pri} for one in heard), heard
        assert all(one[pri] == QUANTA_MAX for one in heard[:-1]) and heard[-1][pri] == 0, heard
    assert drops.since() == {}
    others = [klass for klass in range(8) if klass not in (LOSSLESS, LOSSLESS_TOO)]
    assert not any(bench.pfc(port, klass) for port in bench.ports for klass in others)


@case
def xon_comes_at_the_closed_form(bench):
    """A paused group stays so with one frame above its XON, and rests at it, while another group is paused.

    All outputs are held, so it is also shown that a held port sends PFC of its own.
    """
    oracle, drops = bench.oracle, Drops(bench)
    bench.hold(*bench.ports)
    # PAUSE frames of another group are the clock by which the first one is seen to rest.
    clock = to_xoff(bench, 1, 0, LOSSLESS_TOO)
    used = oracle.shared(LOSSLESS_TOO, clock - 1)
    stay = oracle.xon(LOSSLESS, shared_used=used)
    rest = oracle.xoff(LOSSLESS, shared_used=used) + 1 - stay - 1
    before = bench.pfc(0, LOSSLESS)
    for dst, frames in ((1, stay), (2, 1), (3, rest)):
        bench.fill(0, dst, LOSSLESS, frames)
    bench.wait("a PAUSE", lambda: bench.pfc(0, LOSSLESS), lambda now: now > before)
    bench.free(3)
    bench.delivered(3, rest)
    bench.taken(0, pfc=True)
    above = bench.pfc(0, LOSSLESS)
    bench.wait("PAUSE one frame above XON", lambda: bench.pfc(0, LOSSLESS), lambda now: now >= above + REFRESHES)
    assert all(pfc_quanta(data)[LOSSLESS] == QUANTA_MAX for data in bench.taken(0, pfc=True)), "XON came early"
    bench.free(2)
    bench.delivered(2, 1)
    released = bench.wait(
        "the release",
        lambda: [pfc_quanta(data)[LOSSLESS] for data in bench.taken(0, pfc=True)],
        lambda quanta: 0 in quanta,
    )
    assert released[-1] == 0, released
    rested, ticks = bench.pfc(0, LOSSLESS), bench.pfc(1, LOSSLESS_TOO)
    bench.wait("the clock", lambda: bench.pfc(1, LOSSLESS_TOO), lambda now: now >= ticks + REFRESHES)
    assert bench.pfc(0, LOSSLESS) == rested, "PFC after XON"
    bench.free(0, 1)
    bench.delivered(0, clock)
    bench.delivered(1, stay)
    assert drops.since() == {}


@case
def headroom_takes_its_cells_then_frames_drop_at_the_input(bench):
    oracle, drops, more = bench.oracle, Drops(bench), 5
    point = oracle.ingress_drop(LOSSLESS)
    came, dropped = bench.group(0, LOSSLESS, GROUP_PACKETS, GROUP_DROPPED)
    bench.hold(3)
    bench.fill(0, 3, LOSSLESS, point)
    assert drops.since() == {}
    for count in range(1, more + 1):
        bench.send(0, [bench.frame(0, 3, LOSSLESS)])
        bench.wait("a drop at the input", drops.since, {(0, "in"): count})
    assert bench.depth(3, LOSSLESS) == point
    now = bench.group(0, LOSSLESS, GROUP_PACKETS, GROUP_DROPPED, GROUP_XOFF_ROOM)
    assert now == [came + point + more, dropped + more, oracle.headroom_cells * oracle.cell]
    bench.free(3)
    bench.delivered(3, point)


@case
def a_lossy_queue_drops_at_the_output_and_pauses_nobody(bench):
    oracle, drops, more = bench.oracle, Drops(bench), 5
    point = oracle.egress_drop(LOSSY)
    paused = [bench.pfc(0, klass) for klass in range(8)]
    bench.hold(3)
    bench.fill(0, 3, LOSSY, point)
    assert drops.since() == {}
    for count in range(1, more + 1):
        bench.send(0, [bench.frame(0, 3, 0)])
        bench.wait("a drop at the output", drops.since, {(3, "out"): count})
    assert bench.depth(3) == bench.depth(3, LOSSY) == point
    assert [bench.pfc(0, klass) for klass in range(8)] == paused
    bench.free(3)
    bench.delivered(3, point)


@case
def groups_share_what_is_left_and_have_headroom_each(bench):
    """The XOFF point of each further group is that of the closed form with what those before it use."""
    oracle, drops, used, queued = bench.oracle, Drops(bench), 0, 0
    pool = bench.pool_id()
    bench.clear_pool()
    bench.hold(3)
    groups = [(src, pri) for src in (0, 1, 2) for pri in (LOSSLESS, LOSSLESS_TOO)]
    for src, pri in groups:
        frames = to_xoff(bench, src, 3, pri, shared_used=used)
        used += oracle.shared(pri, frames - 1)
        queued += frames
    for src, pri in groups:
        bench.fill(src, 3, pri, oracle.headroom_cells - 1)
        queued += oracle.headroom_cells - 1
    assert drops.since() == {}
    room = bench.client.sai_thrift_get_buffer_pool_stats(pool, [sai.SAI_BUFFER_POOL_STAT_XOFF_ROOM_WATERMARK_BYTES])
    assert room == [len(groups) * oracle.headroom_cells * oracle.cell]
    for src, pri in groups:
        bench.send(src, [bench.frame(src, 3, pri)])
    bench.wait("a drop of each group", drops.since, {(src, "in"): 2 for src in (0, 1, 2)})
    bench.free(3)
    bench.delivered(3, queued)


def where_from(bench, send):
    """For each of `send`'s frames: the queue of port 3 and the group of port 0 that it is counted in."""
    found = {}
    queues, groups = bench.queues(3, sai.SAI_QUEUE_STAT_PACKETS), bench.groups(0, GROUP_PACKETS)
    for code, data in send.items():
        bench.send(0, [data])
        bench.delivered(3, 1)
        bench.wait("a frame sent", lambda: sum(bench.queues(3, sai.SAI_QUEUE_STAT_PACKETS)), sum(queues) + 1)
        now = bench.queues(3, sai.SAI_QUEUE_STAT_PACKETS), bench.groups(0, GROUP_PACKETS)
        rows = [[after - before for after, before in zip(*pair)] for pair in zip(now, (queues, groups))]
        assert [sorted(row) for row in rows] == [[0] * 7 + [1]] * 2, (code, rows)
        found[code] = tuple(row.index(1) for row in rows)
        queues, groups = now
    return found


@case
def each_dscp_has_its_queue_and_group(bench):
    found = where_from(bench, {dscp: bench.frame(0, 3, dscp) for dscp in range(64)})
    assert found == {dscp: (pri, PRI_TO_PG[pri]) for dscp, pri in enumerate(DSCP_TO_PRI)}


@case
def each_pcp_has_its_queue_and_group(bench):
    """Of a tagged frame the PCP decides, whatever its DSCP."""
    found = where_from(bench, {pcp: bench.frame(0, 3, 46, size=68, pcp=pcp) for pcp in range(8)})
    assert found == {pcp: (pri, PRI_TO_PG[pri]) for pcp, pri in enumerate(PCP_TO_PRI)}


ECN_FRAMES = 1200
NOT_ECT, ECT_1, ECT_0, CE = range(4)


def ecn_of(number):
    """ECN of each frame in turn, half of them ECT."""
    return (ECT_0, NOT_ECT, ECT_1, CE)[number % 4]


def ecn_field(data):
    """ECN of a received frame without a tag, and whether an IPv4 header's checksum holds."""
    if data[12:14] == b"\x86\xdd":
        return data[15] >> 4 & 3, True
    total = sum(struct.unpack_from(">10H", data, 14))
    return data[15] & 3, (total & 0xFFFF) + (total >> 16) in (0xFFFF, 0x1FFFE)


@case
def marks_follow_the_depth_of_the_queue(bench):
    """Frames that leave a queue which nothing fills any more: each one's depth is known."""
    cell = bench.oracle.cell
    keys = {"ecn_enabled": True, "ecn_threshold_low": 20, "ecn_threshold_high": 70, "max_percent": 40}
    oracle = bench.reload(ecn=keys, buffer={"queue_capacity_bytes": ECN_FRAMES * cell})
    for version, size in ((4, 64), (6, 70)):
        bench.hold(3)
        frames = [
            bench.frame(0, 3, 0, size=size, ecn=ecn_of(number), version=version) for number in range(ECN_FRAMES)
        ]
        bench.send(0, frames)
        bench.wait("all queued", lambda: bench.depth(3, LOSSY), ECN_FRAMES)
        bench.free(3)
        seen = [ecn_field(data) for data in bench.delivered(3, ECN_FRAMES)]
        assert all(good for _, good in seen), "checksum"
        marked = []
        for number, (ecn, _) in enumerate(seen):
            sent, depth = ecn_of(number), (ECN_FRAMES - number) * cell
            if sent in (NOT_ECT, CE):
                assert ecn == sent, (number, sent, ecn)
                continue
            assert ecn in (sent, CE), (number, sent, ecn)
            chance = oracle.mark_probability(depth)
            assert chance not in (0, 1) or (ecn == CE) == chance, (number, depth, chance, ecn)
            marked.append(ecn == CE)
        mean, variance = oracle.marks(cell, ECN_FRAMES, lambda number: ecn_of(number) in (ECT_0, ECT_1))
        print(f"IPv{version}: {sum(marked)} marks, {float(mean):.1f} expected")
        assert abs(sum(marked) - mean) <= 6 * math.sqrt(variance), (sum(marked), float(mean), float(variance))


SHARE_FRAMES, SHARE_SIZE = 200, 1000
SHARE_GBPS = 0.2  # what its scheduler shares is an output's rate: without one, the receiver's speed decides


def shares(bench, weights):
    """Frames of each priority that came while all priorities had frames, from eight queues; and what they should be."""
    bench.hold(3)
    pris = range(len(weights))
    for pri in pris:
        bench.fill(0, 3, pri, SHARE_FRAMES, size=SHARE_SIZE)
    oracle = bench.reload(port_defaults={"weights": weights, "max_rate_gbps": SHARE_GBPS})
    bench.free(3)
    got = bench.delivered(3, SHARE_FRAMES * len(weights))
    order = [DSCP_TO_PRI[data[15] >> 2] for data in got]
    assert sorted(order) == sorted(list(pris) * SHARE_FRAMES)
    # The crossbar fills the egress queues from the highest priority on: shares begin when each has come.
    begin = max(order.index(pri) for pri in pris)
    shared = order[begin : min(len(order) - order[::-1].index(pri) for pri in pris)]
    assert len(shared) > len(order) // 4, (begin, len(shared))
    return [(shared.count(pri), len(shared) * oracle.share(pri, pris)) for pri in pris]


@case
def shares_are_by_weight_and_change_with_a_reload(bench):
    """Frames that wait already go by the new weights: within a round of deficits, and a frame."""
    for weights in ([1, 1, 2, 2, 3, 3, 4, 4], [7, 1, 1, 1, 1, 1, 1, 2], [8, 7, 6, 5, 4, 3, 2, 1]):
        got = shares(bench, weights)
        print(f"weights {weights}: {[count for count, _ in got]}")
        for pri, (count, want) in enumerate(got):
            quantum = 2 * weights[pri]  # frames: a weight of 1 is at least the longest frame, here 1.5 of these
            assert abs(count - want) <= max(quantum + 2, want / 10), (weights, pri, count, float(want))


@case
def each_watermark_restarts_alone(bench):
    """By its own reader, and to what is used then: nothing else's watermark does."""
    cell = bench.oracle.cell
    bench.forget_watermarks()
    bench.hold(3)
    for src, pri, frames in ((0, LOSSLESS, 40), (0, LOSSY, 30), (1, LOSSLESS, 20), (1, LOSSY, 10)):
        bench.fill(src, 3, pri, frames)
    used = bench.oracle.shared(LOSSLESS, 40) + bench.oracle.shared(LOSSLESS, 20) + 30 + 10
    point = bench.oracle.xoff(LOSSLESS_TOO, shared_used=used)
    bench.fill(2, 3, LOSSLESS_TOO, point + 6)
    used += bench.oracle.shared(LOSSLESS_TOO, point)
    # What is used now is where a watermark restarts.
    assert [bench.group(0, LOSSLESS, GROUP_SHARED) for _ in range(2)] == [40 * cell] * 2
    bench.free(3)
    bench.delivered(3, 100 + point + 6)
    bench.wait("empty groups", lambda: [sum(bench.groups(port, GROUP_OCCUPANCY)) for port in bench.ports], [0] * 4)
    watermark = sai.SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES
    assert [bench.group(0, LOSSLESS, GROUP_SHARED) for _ in range(2)] == [40 * cell, 0]
    assert [bench.group(1, LOSSLESS, GROUP_SHARED) for _ in range(2)] == [20 * cell, 0]
    assert [bench.group(2, LOSSLESS_TOO, GROUP_XOFF_ROOM) for _ in range(2)] == [6 * cell, 0]
    assert [bench.group(2, LOSSLESS_TOO, GROUP_SHARED) for _ in range(2)] == [point * cell, 0]
    assert bench.queue(3, LOSSLESS, watermark) == 60 * cell
    sent = bench.queue(3, LOSSLESS, sai.SAI_QUEUE_STAT_PACKETS)
    bench.clear_queue(3, LOSSLESS, watermark)
    assert bench.queue(3, LOSSLESS, watermark) == 0
    assert bench.queue(3, LOSSLESS, sai.SAI_QUEUE_STAT_PACKETS) == sent
    assert bench.queue(3, LOSSY, watermark) == 40 * cell
    assert bench.queue(3, LOSSLESS_TOO, watermark) == (point + 6) * cell
    assert [bench.pool() for _ in range(2)] == [[used * cell, 6 * cell]] * 2, "only its clear restarts a pool's"
    bench.clear_pool(sai.SAI_BUFFER_POOL_STAT_WATERMARK_BYTES)
    assert bench.pool() == [0, 6 * cell]
    bench.clear_pool()
    assert bench.pool() == [0, 0]


@case
def watermarks_of_all_ports_are_their_own(bench):
    cell, frames = bench.oracle.cell, {}
    bench.forget_watermarks()
    bench.hold(*bench.ports)
    for src in bench.ports:
        for dst in (port for port in bench.ports if port != src):
            for pri in (LOSSY, LOSSLESS):
                frames[src, dst, pri] = 3 + 5 * src + 2 * dst + pri
                bench.fill(src, dst, pri, frames[src, dst, pri])

    def held(wanted):
        return sum(count for key, count in frames.items() if wanted(*key)) * cell

    queues = [[held(lambda _, d, p: (d, p) == (dst, pri)) for pri in range(8)] for dst in bench.ports]
    for counter in (sai.SAI_QUEUE_STAT_CURR_OCCUPANCY_BYTES, sai.SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES):
        assert [bench.queues(port, counter) for port in bench.ports] == queues
    groups = [held(lambda s, _, p: (s, p) == (src, LOSSLESS)) for src in bench.ports]
    for counter in (GROUP_OCCUPANCY, GROUP_SHARED):
        assert [bench.group(port, LOSSLESS, counter) for port in bench.ports] == groups
    bench.free(*bench.ports)
    for dst in bench.ports:
        bench.delivered(dst, sum(queues[dst]) // cell)


@case
def every_pair_of_ports_passes_every_priority(bench):
    drops, each, number = Drops(bench), 6, 0
    sent = {port: {} for port in bench.ports}
    bases = [bench.queues(port, sai.SAI_QUEUE_STAT_PACKETS) for port in bench.ports]
    ways = [(src, dst) for src in bench.ports for dst in bench.ports if src != dst]
    for src in bench.ports:
        frames = []
        for pri, dst in ((pri, dst) for pri in range(8) for dst in bench.ports if dst != src):
            for _ in range(each):
                frames.append(bench.frame(src, dst, DSCP_TO_PRI.index(pri), number=number))
                sent[dst].setdefault((src, pri), []).append(frames[-1])
                number += 1
        bench.send(src, frames)
    for dst in bench.ports:
        came = {}
        for data in bench.delivered(dst, len(ways) // 4 * 8 * each):
            came.setdefault((data[11], DSCP_TO_PRI[data[15] >> 2]), []).append(data)
        assert came == sent[dst], f"frames out of port {dst}, by source and priority, in order"
        grown = [now - old for now, old in zip(bench.queues(dst, sai.SAI_QUEUE_STAT_PACKETS), bases[dst])]
        assert grown == [3 * each] * 8
    assert drops.since() == {}


HOLDS, BEHIND = 8, 100


@case
def a_held_output_leaks_nothing_after_the_answer(bench):
    """Under load: no frame that is sent after the answer, and none at all once one of them waits; others go on."""
    drops, counts = Drops(bench), {}
    ends = {dst: bench.interfaces[dst] for dst in (1, 3)}

    def make(number):
        return bench.frame(0, 3 if number % 2 else 1, (0, 8, 5)[number // 2 % 3], number=number)

    with bench.stream(0, make) as told:
        for _ in range(HOLDS):
            flowing = bench.out_of(3)
            bench.wait("frames out of port 3", lambda: bench.out_of(3), lambda now: now >= flowing + 20)
            bench.hold(3)
            last = told()
            bench.wait("a later frame held", lambda: bench.depth(3), lambda depth: depth > 8)
            counts = {dst: bench.out_of(dst) for dst in ends}
            waiting = bench.depth(3)
            bench.wait("later frames held", lambda: bench.depth(3), lambda depth: depth >= waiting + BEHIND)
            assert bench.out_of(3) == counts[3], "a held output sends"
            assert bench.out_of(1) > counts[1], "the other output is held, too"
            bench.settled(3)
            numbers = [struct.unpack(">I", data[-4:])[0] for data in bench.kept[False][3]]
            assert max(numbers) <= last, (max(numbers), last)
            bench.free(3)
        sent = told
    total = sent()
    for dst in ends:
        got = bench.delivered(dst, (total + (dst == 1)) // 2)
        flows = {}
        for data in got:
            flows.setdefault(data[15], []).append(struct.unpack(">I", data[-4:])[0])
        assert all(flow == sorted(flow) for flow in flows.values()), "order"
    assert drops.since() == {}


@case
def holding_twice_is_holding_once(bench):
    bench.hold(3)
    bench.hold(3)
    bench.fill(0, 3, LOSSY, 5)
    bench.free(3)
    bench.delivered(3, 5)
    bench.free(3)
    bench.send(0, [bench.frame(0, 3)])
    bench.delivered(3, 1)


@case
def unicast_and_other_frames_are_counted_apart(bench):
    """At the input once each, at the outputs one of each copy."""
    before = {port: bench.port(port, *UNICAST, *OTHERS, sai.SAI_PORT_STAT_IF_OUT_OCTETS) for port in bench.ports}
    bench.send(0, [bench.frame(0, 2)] * 11)
    bench.send(0, [bench.frame(0, 0, to="ff:ff:ff:ff:ff:ff")] * 7 + [bench.frame(0, 0, to="01:00:5e:01:02:03")] * 5)
    for port in (1, 2, 3):
        bench.delivered(port, 12 + 11 * (port == 2))
    expected = {0: [11, 0, 12, 0], 1: [0, 0, 0, 12], 2: [0, 11, 0, 12], 3: [0, 0, 0, 12]}
    for port in bench.ports:

        def grown(port=port):
            now = bench.port(port, *UNICAST, *OTHERS, sai.SAI_PORT_STAT_IF_OUT_OCTETS)
            return [new - old for new, old in zip(now, before[port])]

        out = (expected[port][1] + expected[port][3]) * 64
        bench.wait(f"counters of port {port}", grown, [*expected[port], out])


@case
def the_switch_names_its_ports(bench):
    """Number and list of ports, lists of queues and groups of eight, every object once; what is not there is refused."""
    got = {one.id: one.value for one in bench.client.sai_thrift_get_switch_attribute().attr_list}
    assert got[sai.SAI_SWITCH_ATTR_PORT_NUMBER].u32 == len(bench.ports)
    listed = got[sai.SAI_SWITCH_ATTR_PORT_LIST].objlist
    front = bench.client.sai_thrift_get_port_list_by_front_port()
    assert front.id == sai.SAI_SWITCH_ATTR_PORT_LIST
    assert listed.object_id_list == front.value.objlist.object_id_list == bench.port_ids
    assert listed.count == front.value.objlist.count == len(bench.ports)
    objects = [*bench.port_ids, *sum(bench.queue_ids, []), *sum(bench.group_ids, []), bench.pool_id()]
    assert len(set(objects)) == len(objects) == 4 + 32 + 32 + 1
