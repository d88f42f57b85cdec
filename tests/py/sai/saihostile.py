"""What broken and hostile clients do to the SAI service, each beside a witness who goes on being answered.

CASES, name -> function(bench); each uses connections of its own.

Units: octets.
Source: Apache Thrift, "Thrift Binary protocol encoding" and "Thrift RPC"; the bounds are the server's own.
"""

import contextlib
import os
import random
import struct
import threading
import time

import saiwire as w
from saiwire import Wire, call, field, list_of, number, struct_of, text
from switch_sai_thrift import sai_headers as sai

PORTS = "sai_thrift_get_switch_attribute"
STATS = "sai_thrift_get_port_stats"
SET = "sai_thrift_set_port_attribute"
GROUP_STATS = "sai_thrift_get_pg_stats"
CASES = {}
BIG = 0x7FFFFFFF
CONNECTIONS = 300
REFUSED_COUNTER, REFUSED_ARGUMENTS = 6, 7  # application exceptions: internal error, protocol error
LARGEST = 16 << 10  # of a message (docs/sai.md)
GROWTH_KIB = 16 << 10
MUTATIONS = int(os.environ.get("WEFT_SOAK_MESSAGES", "2000"))


def case(function):
    """Makes a function one of the cases; afterwards the first connection and a new one are answered."""

    def checked(bench):
        function(bench)
        witness(bench)

    CASES[function.__name__] = checked
    return function


def witness(bench):
    """The tester's own connection, open since the start, and a new one are answered correctly."""
    attributes = bench.client.sai_thrift_get_switch_attribute().attr_list
    assert {one.id for one in attributes} >= {sai.SAI_SWITCH_ATTR_PORT_NUMBER, sai.SAI_SWITCH_ATTR_PORT_LIST}
    with wire(bench):
        pass


def served(bench):
    """A new connection that has been answered, or None if there is no room for it yet."""
    made = Wire(bench.address)
    try:
        if answered(made):
            return made
    except (OSError, EOFError):
        pass
    made.close()
    return None


@contextlib.contextmanager
def wire(bench):
    """A connection that is served, as soon as those that have just been closed leave room; closed afterwards.

    The tester calls before: where there are too many connections, the one that waits longest has to go.
    """
    bench.client.sai_thrift_get_switch_attribute()
    made = bench.wait("a connection that is served", lambda: served(bench), lambda one: one is not None)
    try:
        yield made
    finally:
        made.close()


def answered(one, sequence=77):
    """Whether a connection still answers a correct call."""
    one.send(call(PORTS, sequence=sequence))
    kind, name, number_, result = one.reply()
    assert (kind, name, number_) == (w.REPLY, PORTS, sequence)
    return 0 in result and len(result[0][1]) >= 2


def ids(*counters, count=None):
    """A list of counters as an argument."""
    return field(w.LIST, 2, list_of(w.I32, *(number(w.I32, one) for one in counters), count=count))


def port_id(bench, port=0):
    """The id of a port as an argument."""
    return field(w.I64, 1, number(w.I64, bench.port_ids[port]))


def count_of(value):
    """The third argument of most calls for counters."""
    return field(w.I32, 3, number(w.I32, value))


def nested(depth):
    """A struct in a struct in a struct."""
    return field(w.STRUCT, 1, b"") * depth + bytes([w.STOP]) * depth


EVERY_TYPE = struct_of(
    field(w.BOOL, 1, b"\x01"),
    field(w.BYTE, 2, b"\xff"),
    field(w.DOUBLE, 3, number(w.DOUBLE, 1.5)),
    field(w.I16, 4, number(w.I16, -1)),
    field(w.I64, 5, number(w.I64, -(1 << 63))),
    field(w.STRING, 6, text(b"\xff\x00\xfe")),
    field(w.STRUCT, 7, struct_of(field(w.I32, -1, number(w.I32, 1)))),
    field(w.MAP, 8, struct.pack(">bbi", w.STRING, w.LIST, 1) + text("k") + list_of(w.I32, number(w.I32, 1))),
    field(w.SET, 9, list_of(w.STRING, text("a"), text("b"))),
    field(w.LIST, 10, list_of(w.BOOL)),
    field(w.MAP, 11, struct.pack(">bbi", 0, 0, 0)),
)


LATE = {}


def begin(bench):
    """Opens connections whose messages never become whole; the last case looks at what became of them."""
    half = call(STATS, port_id(bench), ids(1), count_of(1))
    LATE.update(half=Wire(bench.address), slow=Wire(bench.address))
    LATE["half"].send(half[: len(half) // 2])

    def drip():
        for octet in w.header(STATS) + field(w.STRING, 5, text(bytes(2_000))):
            if not LATE["slow"].send(bytes([octet])):
                break
            time.sleep(0.2)

    threading.Thread(target=drip, daemon=True).start()


@case
def an_unknown_method_is_refused_by_name_and_the_connection_kept(bench):
    for arguments in (b"", EVERY_TYPE[:-1]):
        for strict in (True, False):
            with wire(bench) as one:
                for sequence in (0, -5, 1 << 30):
                    one.send(
                        w.header("sai_thrift_create_vlan", sequence, strict=strict) + arguments + b"\x00"
                    )
                    kind, name, got, result = one.reply()
                    assert (kind, name, got) == (w.EXCEPTION, "sai_thrift_create_vlan", sequence)
                    assert result[2] == w.UNKNOWN_METHOD and b"create_vlan" in result[1], result
                    assert answered(one)


@case
def arguments_that_are_not_known_are_skipped(bench):
    """Thrift's way to add arguments: whoever does not know them passes over them."""
    with wire(bench) as one:
        extra = field(w.STRUCT, 99, EVERY_TYPE)
        one.send(call(STATS, extra, port_id(bench), ids(1, 2), count_of(2), extra))
        kind, _, _, result = one.reply()
        assert kind == w.REPLY and len(result[0]) == 2, result


@case
def old_headers_are_understood(bench):
    with wire(bench) as one:
        one.send(call(STATS, port_id(bench), ids(1, 14, 9), count_of(3), sequence=3, strict=False))
        kind, name, sequence, result = one.reply()
        assert (kind, name, sequence) == (w.REPLY, STATS, 3) and len(result[0]) == 3


@case
def calls_may_come_in_any_pieces(bench):
    """Octet by octet, and several at once: each is answered, in order."""
    with wire(bench) as one:
        for octet in call(PORTS, sequence=9):
            one.send(bytes([octet]))
        assert one.reply()[:3] == (w.REPLY, PORTS, 9)
        one.send(b"".join(call(PORTS, sequence=number_) for number_ in range(50)))
        assert [one.reply()[2] for _ in range(50)] == list(range(50))


@case
def wrong_arguments_are_refused_and_change_nothing(bench):
    """An exception, a status or an empty list, as docs/sai.md says; never a wrong answer."""
    no_port = field(w.I64, 1, number(w.I64, 0x1234))
    tx = sai.SAI_PORT_ATTR_PKT_TX_ENABLE

    def attribute(*value, name=tx):
        return field(w.STRUCT, 2, struct_of(field(w.I32, 1, number(w.I32, name)), *value))

    off = field(w.STRUCT, 2, struct_of(field(w.BOOL, 1, b"\x00")))
    queue = field(w.I64, 1, number(w.I64, bench.queue_ids[0][0]))
    types, missing = REFUSED_ARGUMENTS, sai.SAI_STATUS_ITEM_NOT_FOUND
    calls = {
        "no port": ([], call(STATS, no_port, ids(1), count_of(1))),
        "a queue as a port": ([], call(STATS, queue, ids(1), count_of(1))),
        "a port as a group": ([], call(GROUP_STATS, port_id(bench), ids(0), count_of(1))),
        "no arguments": (types, call(STATS)),
        "an id that is text": (types, call(STATS, field(w.STRING, 1, text("p0")), ids(1), count_of(1))),
        "no list": (types, call(STATS, port_id(bench), count_of(1))),
        "a list of text": (
            types,
            call(STATS, port_id(bench), field(w.LIST, 2, list_of(w.STRING, text("1")))),
        ),
        "no such counter": (REFUSED_COUNTER, call(STATS, port_id(bench), ids(1, 999_999), count_of(2))),
        "a negative counter": (REFUSED_COUNTER, call(STATS, port_id(bench), ids(-1), count_of(1))),
        "an attribute of no port": (missing, call(SET, no_port, attribute(off))),
        "no attribute": (types, call(SET, port_id(bench))),
        "an attribute without a value": (types, call(SET, port_id(bench), attribute())),
        "an empty value": (
            sai.SAI_STATUS_INVALID_PARAMETER,
            call(SET, port_id(bench), attribute(field(w.STRUCT, 2, struct_of()))),
        ),
        "a number for a truth": (
            sai.SAI_STATUS_INVALID_PARAMETER,
            call(SET, port_id(bench), attribute(field(w.STRUCT, 2, struct_of(field(w.I32, 7, bytes(4)))))),
        ),
        "no id": (types, call(SET, port_id(bench), field(w.STRUCT, 2, struct_of(off)))),
        "no such attribute": (
            sai.SAI_STATUS_NOT_SUPPORTED,
            call(SET, port_id(bench), attribute(off, name=4_000)),
        ),
    }
    with wire(bench) as one:
        for name, (want, message) in calls.items():
            one.send(message)
            kind, _, _, result = one.reply()
            got = result[2] if kind == w.EXCEPTION else result[0]
            assert got == want, (name, kind, result)
            assert answered(one), name
    # Neither port 0 nor any other is held.
    for dst in bench.ports:
        bench.send((dst + 1) % 4, [bench.frame((dst + 1) % 4, dst)])
        bench.delivered(dst, 1)


@case
def what_is_no_message_ends_the_connection_only(bench):
    head = w.header(STATS)
    broken = {
        "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(64),
        "another version": struct.pack(">I", 0x80020001) + text(PORTS) + bytes(5),
        "a name of 2 GiB": struct.pack(">Ii", w.VERSION | w.CALL, BIG) + b"x" * 64,
        "an old name of 2 GiB": struct.pack(">i", BIG) + b"x" * 64,
        "a name of negative length": struct.pack(">Ii", w.VERSION | w.CALL, -1) + bytes(16),
        "a string of 2 GiB": head + field(w.STRING, 5, struct.pack(">i", BIG)) + b"x" * 64,
        "a string of negative length": head + field(w.STRING, 5, struct.pack(">i", -2)) + bytes(64),
        "a list of 2 Gi numbers": head + port_id(bench) + ids(1, count=BIG),
        "a list of 2 Gi nothings": head + field(w.LIST, 5, list_of(w.STOP, count=BIG)) + bytes(64),
        "a list of 2 Gi truths": head + field(w.LIST, 5, list_of(w.BOOL, count=BIG)) + bytes(64),
        "a list of negative length": head + port_id(bench) + ids(1, count=-1) + count_of(1) + b"\x00",
        "a map of 2 Gi pairs": head
        + field(w.MAP, 5, struct.pack(">bbi", w.STRUCT, w.STRUCT, BIG))
        + bytes(64),
        "lists of lists": head + field(w.LIST, 5, struct.pack(">bi", w.LIST, 1) * 100_000),
        "a type that does not exist": head + field(77, 1, bytes(8)) + b"\x00",
        "structs 17 deep": head + nested(17) + b"\x00",
        "structs 100,000 deep": head + nested(100_000) + b"\x00",
        "a message that is too long": head + field(w.STRING, 5, text(bytes(LARGEST))) + b"\x00",
    }
    rng = random.Random(19)
    broken |= {f"noise {n}": b"\xff" + rng.randbytes(400) for n in range(10)}
    for name, raw in broken.items():
        with wire(bench) as one:
            one.send(raw)
            one.end()
            assert one.is_over(), name
        witness(bench)


@case
def a_client_may_leave_at_any_octet(bench):
    message = call(SET, port_id(bench, 2), field(w.STRUCT, 2, struct_of(field(w.I32, 1, number(w.I32, 34)))))
    for end in range(len(message)):
        with wire(bench) as one:
            one.send(message[:end])
    # One that asks and does not wait for the answers.
    for _ in range(20):
        with wire(bench) as one:
            one.send(call(PORTS) * 20)


@case
def one_who_does_not_read_holds_up_nobody(bench):
    """Its answers fill its connection; others are served, and the memory does not grow without bound."""
    before = bench.memory_kib()
    with wire(bench) as one:
        one.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError):
            for _ in range(2_000):
                one.send(call(PORTS) * 50)
        witness(bench)
        assert bench.memory_kib() - before < GROWTH_KIB


@case
def mutated_messages_neither_end_the_switch_nor_hold_a_port(bench):
    """Messages with some octets changed; calls that would hold an output are not among what is mutated."""
    rng = random.Random(20)
    seeds = [
        call(PORTS),
        call("sai_thrift_get_port_id_by_front_port", field(w.STRING, 1, text("p0"))),
        call(STATS, port_id(bench), ids(1, 2, 3, 9, 10), count_of(5)),
        call(
            GROUP_STATS,
            field(w.I64, 1, number(w.I64, bench.group_ids[0][3])),
            ids(0, 2, 5, 7, 8),
            count_of(5),
        ),
        call("sai_thrift_flush_fdb_entries", field(w.LIST, 1, list_of(w.STRUCT, EVERY_TYPE))),
    ]
    one, before = Wire(bench.address), bench.memory_kib()
    for round_ in range(MUTATIONS):
        raw = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 4)):
            raw[rng.randrange(len(raw))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        if not one.send(bytes(raw)) or round_ % 20 == 0:
            one.end()
            assert one.is_over(), raw
            one.close()
            one = Wire(bench.address)
    one.close()
    assert bench.memory_kib() - before < GROWTH_KIB


@case
def a_message_that_does_not_become_whole_ends_its_connection(bench):
    """Whether its octets stay away or come one by one; those who say nothing may do so for minutes."""
    bench.client.sai_thrift_get_switch_attribute()
    for one in LATE.values():
        assert one.is_over()
        one.close()


@case
def many_connections_leave_an_active_tester_served(bench):
    """Who waits longest has to go when there are too many, never who is at work; then there is room again."""
    kept, before = [], bench.memory_kib()
    try:
        for _ in range(CONNECTIONS):
            with contextlib.suppress(OSError):
                kept.append(Wire(bench.address))
                kept[-1].send(call(PORTS)[:-1])
            assert bench.client.sai_thrift_get_switch_attribute().attr_list
        assert bench.memory_kib() - before < GROWTH_KIB
    finally:
        for one in kept:
            one.close()
