"""Cases of queues: which one a frame is in, how they share an output, what is marked, and what a held output sends.

CASES, name -> function(bench); each leaves the outputs to Bench.fresh.

Units: frames, octets without FCS.
Source: docs/spec/pipeline.md §2, §3, §7, §8.
"""

import math
import struct

from saibench import connect, tx_enable
from saicommon import Drops, GROUP_PACKETS, LOSSY
from saiswitch import DSCP_TO_PRI, PCP_TO_PRI, PRI_TO_PG
from switch_sai_thrift import sai_headers as sai

ECN_FRAMES = 1200
NOT_ECT, ECT_1, ECT_0, CE = range(4)
SHARE_FRAMES, SHARE_SIZE = 150, 1000
# What a scheduler shares is an output's rate. It is so low that what is in an egress queue lasts longer than a thread of the
# switch waits for a processor.
SHARE_GBPS = 0.04
HOLDS, BEHIND = 8, 100
CASES = {}


def case(function):
    """Makes a function one of the cases."""
    CASES[function.__name__] = function
    return function


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
    """Of DSCP n come n + 1 frames: none can be in another place without changing two sums."""
    queues, groups = bench.queues(3, sai.SAI_QUEUE_STAT_PACKETS), bench.groups(0, GROUP_PACKETS)
    bench.send(0, [bench.frame(0, 3, dscp) for dscp in range(64) for _ in range(dscp + 1)])
    bench.delivered(3, sum(range(65)))
    for dscp, pri in enumerate(DSCP_TO_PRI):
        queues[pri] += dscp + 1
        groups[PRI_TO_PG[pri]] += dscp + 1
    bench.wait("frames counted by queue", lambda: bench.queues(3, sai.SAI_QUEUE_STAT_PACKETS), queues)
    bench.wait("frames counted by group", lambda: bench.groups(0, GROUP_PACKETS), groups)


@case
def each_pcp_has_its_queue_and_group(bench):
    """Of a tagged frame the PCP decides, whatever its DSCP."""
    found = where_from(bench, {pcp: bench.frame(0, 3, 46, size=68, pcp=pcp) for pcp in range(8)})
    assert found == {pcp: (pri, PRI_TO_PG[pri]) for pcp, pri in enumerate(PCP_TO_PRI)}


def ecn_of(number, all_ect):
    """ECN of each frame in turn: all of them ECT, or half."""
    return (ECT_0, ECT_1, ECT_0, ECT_1)[number % 4] if all_ect else (ECT_0, NOT_ECT, ECT_1, CE)[number % 4]


def ecn_field(data):
    """ECN of a received frame without a tag, and whether an IPv4 header's checksum holds."""
    if data[12:14] == b"\x86\xdd":
        return data[15] >> 4 & 3, True
    total = sum(struct.unpack_from(">10H", data, 14))
    return data[15] & 3, (total & 0xFFFF) + (total >> 16) in (0xFFFF, 0x1FFFE)


@case
def marks_follow_the_depth_of_the_queue(bench):
    """Frames leave a queue which nothing fills any more, so each one's depth is known: a slope, then a step to the frame."""
    cell = bench.oracle.cell
    for version, size, percent in ((4, 64, 40), (6, 70, 0)):
        keys = {
            "ecn_enabled": True,
            "ecn_threshold_low": 20,
            "ecn_threshold_high": 70,
            "max_percent": percent,
        }
        oracle = bench.reload(ecn=keys, buffer={"queue_capacity_bytes": ECN_FRAMES * cell})
        given = [ecn_of(number, percent == 0) for number in range(ECN_FRAMES)]
        bench.hold(3)
        bench.send(0, [bench.frame(0, 3, 0, size=size, ecn=ecn, version=version) for ecn in given])
        bench.wait("all queued", lambda: bench.depth(3, LOSSY), ECN_FRAMES)
        bench.free(3)
        seen = [ecn_field(data) for data in bench.delivered(3, ECN_FRAMES)]
        assert all(good for _, good in seen), "checksum"
        marks = 0
        for number, (sent, (ecn, _)) in enumerate(zip(given, seen)):
            depth = (ECN_FRAMES - number) * cell
            if sent in (NOT_ECT, CE):
                assert ecn == sent, (number, sent, ecn)
                continue
            assert ecn in (sent, CE), (number, sent, ecn)
            chance = oracle.mark_probability(depth)
            assert chance not in (0, 1) or (ecn == CE) == chance, (number, depth, chance, ecn)
            marks += ecn == CE
        mean, variance = oracle.marks(
            cell, ECN_FRAMES, lambda number, given=given: given[number] in (ECT_0, ECT_1)
        )
        print(f"IPv{version}: {marks} marks, {float(mean):.1f} expected")
        assert abs(marks - mean) <= 6 * math.sqrt(variance), (marks, float(mean), float(variance))


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


def off(weights, pri, count, want):
    """Whether a share is more than a round of deficits and a frame away from what it should be, and more than a tenth."""
    quantum = 2 * weights[pri]  # frames: a weight of 1 is at least the longest frame, here 1.5 of these
    return abs(count - want) > max(quantum + 2, want / 10)


@case
def shares_are_by_weight_and_change_with_a_reload(bench):
    """Frames that wait already go by the new weights. A crossbar whose thread does not run for a while, beside busy
    neighbours, leaves the egress queue of the largest weight empty: so the shares have to come out in one of three looks."""
    for weights in ([1, 1, 2, 2, 3, 3, 4, 4], [4, 1, 1, 1, 1, 1, 1, 2], [8, 7, 6, 5, 4, 3, 2, 1]):
        for _ in range(3):
            got = shares(bench, weights)
            print(f"weights {weights}: {[count for count, _ in got]}")
            wrong = [
                (pri, count, float(want)) for pri, (count, want) in enumerate(got) if off(weights, pri, count, want)
            ]
            if not wrong:
                break
        assert not wrong, (weights, wrong)


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
def holding_twice_is_holding_once_for_all_testers(bench):
    """A port is held until anybody frees it, whoever held it and whether that tester is still there."""
    bench.hold(3)
    bench.hold(3)
    bench.fill(0, 3, LOSSY, 5)
    bench.free(3)
    bench.delivered(3, 5)
    bench.free(3)
    bench.send(0, [bench.frame(0, 3)])
    bench.delivered(3, 1)
    other, transport = connect(bench.address)
    other.sai_thrift_set_port_attribute(bench.port_ids[3], tx_enable(False))
    transport.close()
    bench.fill(0, 3, LOSSY, 2)
    bench.free(3)
    bench.delivered(3, 2)
