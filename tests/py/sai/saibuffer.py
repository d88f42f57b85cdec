"""Cases of the buffer: XOFF, XON, headroom, drops and watermarks, each against the closed forms of saioracle.py.

CASES, name -> function(bench); each leaves the outputs to Bench.fresh.

Units: frames of one cell, cells, octets without FCS.
Source: docs/spec/pipeline.md §4, §9, §10.
"""

from saibench import pfc_quanta
from saicommon import (
    Drops,
    GROUP_DROPPED,
    GROUP_OCCUPANCY,
    GROUP_PACKETS,
    GROUP_SHARED,
    GROUP_XOFF_ROOM,
    LOSSLESS,
    LOSSLESS_TOO,
    LOSSY,
    QUANTA_MAX,
    REFRESHES,
)
from switch_sai_thrift import sai_headers as sai

CASES = {}


def case(function):
    """Makes a function one of the cases."""
    CASES[function.__name__] = function
    return function


def to_xoff(bench, src, dst, pri, shared_used=0):
    """Fills a group to the frame that asks for a PAUSE, which must be that of the closed form; returns its number."""
    point, base = bench.oracle.xoff(pri, shared_used=shared_used), bench.pfc(src, pri)
    bench.group(src, pri, GROUP_XOFF_ROOM)  # its watermark begins again
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
        heard = []

        def released(pri=pri, heard=heard):
            heard.extend(pfc_quanta(data) for data in bench.taken(0, pfc=True))
            return bool(heard) and heard[-1][pri] == 0

        bench.wait("the release", released, True)
        bench.hold(3)
        assert len(heard) > REFRESHES and all(set(one) == {pri} for one in heard), heard
        assert all(one[pri] == QUANTA_MAX for one in heard[:-1]), heard
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
    bench.wait(
        "PAUSE one frame above XON", lambda: bench.pfc(0, LOSSLESS), lambda now: now >= above + REFRESHES
    )
    assert all(
        pfc_quanta(data)[LOSSLESS] == QUANTA_MAX for data in bench.taken(0, pfc=True)
    ), "XON came early"
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
    room = bench.client.sai_thrift_get_buffer_pool_stats(
        pool, [sai.SAI_BUFFER_POOL_STAT_XOFF_ROOM_WATERMARK_BYTES]
    )
    assert room == [len(groups) * oracle.headroom_cells * oracle.cell]
    for src, pri in groups:
        bench.send(src, [bench.frame(src, 3, pri)])
    bench.wait("a drop of each group", drops.since, {(src, "in"): 2 for src in (0, 1, 2)})
    bench.free(3)
    bench.delivered(3, queued)


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
    bench.wait(
        "empty groups", lambda: [sum(bench.groups(port, GROUP_OCCUPANCY)) for port in bench.ports], [0] * 4
    )
    watermark = sai.SAI_QUEUE_STAT_SHARED_WATERMARK_BYTES
    assert [bench.group(0, LOSSLESS, GROUP_SHARED) for _ in range(2)] == [40 * cell, 0]
    assert [bench.group(1, LOSSLESS, GROUP_SHARED) for _ in range(2)] == [20 * cell, 0]
    assert [bench.group(2, LOSSLESS_TOO, GROUP_XOFF_ROOM) for _ in range(2)] == [6 * cell, 0]
    assert [bench.group(2, LOSSLESS_TOO, GROUP_SHARED) for _ in range(2)] == [point * cell, 0]
    assert [bench.queue(3, LOSSLESS, watermark) for _ in range(2)] == [60 * cell, 0]
    assert bench.queue(3, LOSSLESS_TOO, watermark) == (point + 6) * cell
    sent = bench.queue(3, LOSSY, sai.SAI_QUEUE_STAT_PACKETS)
    bench.clear_queue(3, LOSSY, watermark)
    assert bench.queue(3, LOSSY, watermark) == 0
    assert bench.queue(3, LOSSY, sai.SAI_QUEUE_STAT_PACKETS) == sent > 0
    assert [bench.pool() for _ in range(2)] == [
        [used * cell, 6 * cell]
    ] * 2, "only its clear restarts a pool's"
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
