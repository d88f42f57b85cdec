"""Managers on a bus of the kernel's MCTP command a running switch; a library stands in for a kernel that has MCTP.

Pytest; `weft run` with tests/py/mctp_bus.c before the C library, and endpoints as Unix sockets.

Units: seconds.
Source: docs/mctp.md "The kernel's MCTP"; DMTF DSP0236 8.
"""

import os
import random
import socket
import struct
import subprocess

import pytest

import mctp
import mctplive
import weftlive
from mctp import CCI, FM_API

PLACE = "mctp"
INSECURE = "cci_mctp_insecure = true"
ANSWER_S = 20
OWNER = 8
AF_MCTP = 45
MUTATED = int(os.environ.get("WEFT_SOAK_MESSAGES", "20000"))


class End:
    """An endpoint of a network."""

    def __init__(self, bus, eid, network=1):
        self.bus = bus
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(f"{bus}/end-{network}-{eid}")
        self.sock.settimeout(ANSWER_S)

    def send(self, kind, message, tag=3, to=None):
        """Sends a message to the switch, to the socket of its type unless `to` names another."""
        self.sock.sendto(bytes([kind, tag]) + message, f"{self.bus}/type-{kind if to is None else to:02x}")

    def receive(self):
        """Type, tag and body of what comes next."""
        data = self.sock.recv(1 << 17)
        return data[0], data[1], data[2:]

    def cci(self, opcode, payload=b"", kind=FM_API, tag=3):
        """The return code of a request, and the payload of its response."""
        self.send(kind, mctp.cci(opcode, payload, 0x21), OWNER | tag)
        got, back, body = self.receive()
        assert (got, back) == (kind, tag), "the type and tag of the request, without the tag owner"
        category, number, answered, code, out = mctp.parse_cci(body)
        assert (category, number, answered) == (1, 0x21, opcode)
        return code, out


class Rig:
    """A switch on a bus."""

    def __init__(self, folder, fabric):
        self.bus = f"{folder}/bus"
        os.mkdir(self.bus)
        library = f"{folder}/mctp_bus.so"
        source = os.path.join(weftlive.ROOT, "tests", "py", "mctp_bus.c")
        flags = ["-Wall", "-Wextra", "-Werror", "-O2", "-shared", "-fPIC"]
        subprocess.run([mctplive.compiler(), *flags, "-o", library, source, "-ldl"], check=True)
        env = {**os.environ, "LD_PRELOAD": library, "WEFT_TEST_BUS": self.bus}
        self.switch = mctplive.Switch(fabric, place=PLACE, env=env)


@pytest.fixture(name="first", scope="module")
def a_switch_that_the_first_owns(tmp_path_factory):
    """One that whoever sends commands."""
    rig = Rig(tmp_path_factory.mktemp("first"), f'{INSECURE}\ncci_owner = "first"')
    with rig.switch:
        yield rig


def test_both_types_of_all_endpoints_are_answered(first):
    """Each answer goes to who asked, by its type and tag, whoever else is on the bus."""
    one, other, elsewhere = End(first.bus, 9), End(first.bus, 10), End(first.bus, 9, network=2)
    code, identity = one.cci(0x5100, tag=1)
    assert code == mctp.SUCCESS and identity[2] == 4, "four ports"
    assert other.cci(0x0001, kind=CCI, tag=7)[0] == mctp.SUCCESS
    assert elsewhere.cci(0x5100, tag=0)[0] == mctp.SUCCESS
    for end in (one, other, elsewhere):
        end.send(FM_API, mctp.cci(0x5100, b"", 1), OWNER | 5)
    assert [end.receive()[:2] for end in (one, other, elsewhere)] == [(FM_API, 5)] * 3
    shown = first.switch.show()
    assert shown["mctp_at"] == "mctp" and "until a manager claims it" in shown["mctp_guard"]


def test_the_bus_owns_until_a_manager_claims(tmp_path):
    """Binds, and is fenced on all its endpoints by a claim at the Unix socket."""
    rig = Rig(tmp_path, f'{INSECURE}\ncci_owner = "first"')
    with rig.switch as switch:
        one, other = End(rig.bus, 20), End(rig.bus, 21)
        assert one.cci(0x5201, bytes([0, 1, 1, 0, 0xFF, 0xFF]))[0] == mctp.BACKGROUND
        owner, code = mctplive.claim_elsewhere(switch.cci)
        assert code == mctp.SUCCESS
        for end in (one, other):
            assert end.cci(0x5100)[0] == mctp.UNSUPPORTED
            assert end.cci(0x0001)[0] == mctp.SUCCESS
        owner.close()


def test_requests_that_wait_are_answered_and_others_go_on(first):
    """Fabric Crawl Out to nobody, from 40 endpoints with the same tags: each gets its own answer, and others are served."""
    inner = mctp.cci(0x0001, b"", 1)
    crawl = mctp.cci(0x5701, struct.pack("<HBBH", 3, 0, 0, len(inner)) + inner, 9)
    ends, other = [End(first.bus, 100 + number) for number in range(40)], End(first.bus, 99)
    for end in ends:
        end.send(FM_API, crawl, OWNER | 6)
    assert other.cci(0x0001, kind=CCI)[0] == mctp.SUCCESS, "while they wait"
    for end in ends:
        kind, tag, body = end.receive()
        category, number, opcode, code, _ = mctp.parse_cci(body)
        assert (kind, tag, category, number, opcode) == (FM_API, 6, 1, 9, 0x5701) and code != mctp.SUCCESS


def test_what_is_no_request_is_counted_and_the_bus_goes_on(first):
    """Answers, other types, messages that are too long, senders that are gone, and bytes without sense."""
    before = first.switch.counts()
    end = End(first.bus, 30)
    end.send(FM_API, mctp.cci(0x5100), 3)
    end.send(0x7E, mctp.cci(0x5100), OWNER, to=FM_API)
    end.send(FM_API | 0x80, mctp.cci(0x5100), OWNER, to=FM_API)
    end.send(FM_API, b"", OWNER)
    end.send(CCI, bytes(70_000), OWNER)
    gone = End(first.bus, 31)
    gone.send(FM_API, mctp.cci(0x5100), OWNER)
    gone.sock.close()
    os.unlink(f"{first.bus}/end-1-31")
    assert end.cci(0x5100)[0] == mctp.SUCCESS
    assert end.cci(0x5100, kind=CCI)[0] == mctp.SUCCESS, "both sockets have been emptied"
    after = first.switch.counts()
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert grown.pop("unsent", 0) <= 1, "the sender was gone, or not yet"
    assert grown == {"requests": 3, "no_request": 2, "unknown_type": 2, "too_long": 1}, grown


def test_mutated_messages_leave_others_served(first):
    """Messages with bytes changed (WEFT_SOAK_MESSAGES of them): each is answered or counted, and memory does not grow."""
    rng = random.Random(19)
    noise, works = End(first.bus, 40), End(first.bus, 41)
    noise.sock.setblocking(False)
    good = [mctp.cci(opcode, bytes(payload), 1) for opcode, payload in ((1, 0), (0x5100, 0), (0x5101, 5), (0x5200, 4))]
    assert works.cci(0x0001)[0] == mctp.SUCCESS
    held, sent, before = None, 0, first.switch.counts()
    while sent < MUTATED:
        message = bytearray(rng.choice(good))
        for _ in range(rng.randrange(4)):
            message[rng.randrange(len(message))] = rng.randrange(256)
        try:
            noise.send(FM_API, bytes(message[: rng.randrange(len(message) + 1)]), rng.randrange(16))
            sent += 1
        except BlockingIOError:
            assert works.cci(0x0001)[0] == mctp.SUCCESS
        try:
            while True:
                noise.receive()
        except BlockingIOError:
            pass
        if sent == MUTATED // 10:
            held = first.switch.memory_kib()
    assert works.cci(0x0001)[0] == mctp.SUCCESS
    assert first.switch.memory_kib() < held + 32 * 1024
    after = first.switch.counts()
    seen = sum(after[name] - before[name] for name in ("requests", "no_request"))
    assert seen >= MUTATED, "all have come"


def has_mctp():
    """Whether this kernel has MCTP."""
    try:
        socket.socket(AF_MCTP, socket.SOCK_DGRAM).close()
    except OSError:
        return False
    return True


def test_a_kernel_without_mctp_and_a_bus_without_consent_are_refused(tmp_path):
    """The error says what to write instead."""
    cases = [("", 2, "or cci_mctp_insecure = true")]
    if not has_mctp():
        cases.append((INSECURE, 3, 'say an address in fabric.cci_mctp, such as "127.0.0.1:2508"'))
    for fabric, code, part in cases:
        with open(tmp_path / "t.toml", "w", encoding="ascii") as file:
            file.write(mctplive.CONFIG.format(folder=tmp_path, fabric=fabric, place="mctp:1"))
        command = [weftlive.weft(), "run", "-c", str(tmp_path / "t.toml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == code and part in done.stderr, (done.returncode, done.stderr)
