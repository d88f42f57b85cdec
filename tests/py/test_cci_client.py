"""Tests of the CCI client against a toy component that answers with bytes written by hand.

Toy(script) serves one connection on loopback; a script maps a frame to the bytes that go back.

Units: bytes; seconds.
Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.1, §4.5 (5701).
"""

import socket
import threading
import time

import pytest

import cci
from cci import CciError, Client, Tunnel

IDENTITY = "01 {tag:02x} 00 00 57 0c 00 00 00 00 00 00 03 00 00 00 00 00 00 00 01 02 00 03"


def framed(text, mctp="07"):
    """A frame of bytes written by hand."""
    body = bytes.fromhex(mctp + text)
    return len(body).to_bytes(2, "little") + body


class Toy:
    """A component: `script(frame)` gives what goes back for each frame that came in."""

    def __init__(self, script):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port, self.script, self.seen = self.listener.getsockname()[1], script, []
        self.thread = threading.Thread(target=self.serve)

    def serve(self):
        conn, _ = self.listener.accept()
        conn.settimeout(10)
        with conn, conn.makefile("rb") as read:
            while len(head := read.read(2)) == 2:
                body = read.read(int.from_bytes(head, "little"))
                self.seen.append(body)
                for part in self.script(body) or ():
                    conn.sendall(part)
                    time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        self.client = Client("127.0.0.1", self.port, timeout=5)
        return self

    def __exit__(self, *_):
        self.client.close()
        self.thread.join(10)
        self.listener.close()


def test_a_call_sends_and_reads_the_bytes_of_the_page():
    def script(body):
        whole = framed(IDENTITY.format(tag=body[2]))
        return whole[:1], whole[1:5], whole[5:]  # a frame may come in pieces

    with Toy(script) as toy:
        got = toy.client.get(0x5700)
        assert toy.seen[0].hex(" ") == "07 00 00 00 00 57 00 00 00 00 00 00 00"
        assert (got["gae_map"], got["drts"], got["rgts"], got["random"], got["ca"]) == (3, 1, 2, 1, 1)
        toy.client.get(0x5700)
        assert toy.seen[1][2] == 1, "the next request has the next tag"


def test_answers_find_their_requests_by_tag():
    held = []

    def script(body):
        held.append(body[2])
        if len(held) == 2:
            return [b"".join(framed(f"01 {tag:02x} 00 04 57 00 00 00 {tag + 2:02x} 00 00 00") for tag in held[::-1])]
        return []

    with Toy(script) as toy:
        first, second = toy.client.start(0x5704, b""), toy.client.start(0x5704, b"")
        assert toy.client.wait(first).return_code == first + 2
        assert toy.client.wait(second).return_code == second + 2
        with pytest.raises(CciError, match="no request"):
            toy.client.wait(first)


def test_an_answer_that_is_late_is_not_taken_for_another():
    late = []

    def script(body):
        if not late:
            late.append(body[2])
            return []
        return [framed(f"01 {late[0]:02x} 00 00 57 00 00 00 06 00 00 00"), framed(IDENTITY.format(tag=body[2]))]

    with Toy(script) as toy:
        tag = toy.client.start(0x5700)
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="5700"):
            toy.client.wait(tag, timeout=0.1)
        assert time.monotonic() - began < 3
        assert toy.client.stale == {tag}
        assert toy.client.get(0x5700)["drts"] == 1
        assert not toy.client.stale


def test_no_tag_is_used_twice_at_a_time():
    with Toy(lambda body: []) as toy:
        assert [toy.client.start(0x5700) for _ in range(256)] == list(range(256))
        with pytest.raises(CciError, match="256"):
            toy.client.start(0x5700)


def test_events_are_kept_apart():
    event = "02 00 00 07 01 00 00 00 00 00 00 00"
    with Toy(lambda body: [framed(event), framed(IDENTITY.format(tag=body[2]))]) as toy:
        toy.client.get(0x5700)
        assert [message.opcode for message in toy.client.events] == [0x0107]


# name, answer ({tag} is that of the request), MCTP type
WRONG = [
    ("other opcode", "01 {tag:02x} 00 01 57 00 00 00 00 00 00 00", "07"),
    ("other tag", "01 77 00 00 57 00 00 00 00 00 00 00", "07"),
    ("a request", "00 {tag:02x} 00 00 57 00 00 00 00 00 00 00", "07"),
    ("other type", IDENTITY, "08"),
    ("length of the header", "01 {tag:02x} 00 00 57 0b 00 00 00 00 00 00" + "00" * 12, "07"),
    ("one byte short", IDENTITY[:-3].replace("57 0c", "57 0b"), "07"),
    ("refused with a payload", IDENTITY.replace("0c 00 00 00", "0c 00 00 02"), "07"),
    ("reserved bit", IDENTITY.replace("00 00 57", "01 00 57"), "07"),
]


@pytest.mark.parametrize(("name", "answer", "mctp"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_answers_are_not_taken(name, answer, mctp):
    with Toy(lambda body: [framed(answer.format(tag=body[2]), mctp)]) as toy, pytest.raises(CciError):
        toy.client.call(0x5700)


def test_a_refusal_has_its_code():
    with Toy(lambda body: [framed(f"01 {body[2]:02x} 00 00 57 00 00 00 03 00 00 00")]) as toy:
        assert toy.client.call(0x5700) == (cci.UNSUPPORTED, None)
        with pytest.raises(cci.Refused, match="5700 answered Unsupported"):
            toy.client.get(0x5700)


def test_a_closed_connection_is_said():
    listener = socket.create_server(("127.0.0.1", 0))
    client = Client("127.0.0.1", listener.getsockname()[1], timeout=5)
    conn, _ = listener.accept()
    with listener, client:
        tag = client.start(0x5700)
        conn.sendall(b"\x0d\x00\x07")
        conn.close()
        with pytest.raises(ConnectionError):
            client.wait(tag)


# name, tunnel's target, bytes in front of the inner request
TUNNELS = [
    ("crawl by port", {"port": 5}, "01 57", "05 00 00 00 0c 00"),
    ("crawl by PID", {"pid": 0xFFF}, "01 57", "ff 0f 01 00 0c 00"),
    ("tunnel to a port", {"ld": 2}, "00 53", "02 00 0c 00"),
]


@pytest.mark.parametrize(("name", "target", "opcode", "lead"), TUNNELS, ids=[row[0] for row in TUNNELS])
def test_a_tunnel_wraps_and_unwraps(name, target, opcode, lead):
    inner = IDENTITY.format(tag=0)

    def script(body):
        return [framed(f"01 {body[2]:02x} 00 {opcode} 1c 00 00 00 00 00 00 18 00 00 00 " + inner)]

    with Toy(script) as toy:
        assert Tunnel(toy.client, **target).get(0x5700)["rgts"] == 2
        want = bytes.fromhex(lead + "00 00 00 00 57 00 00 00 00 00 00 00")
        assert toy.seen[0][13:] == want, name
        assert toy.seen[0][4:6] == bytes.fromhex(opcode)


def test_tunnels_stack():
    inner = IDENTITY.format(tag=0)
    middle = "01 00 00 01 57 1c 00 00 00 00 00 00 18 00 00 00 " + inner

    def script(body):
        return [framed(f"01 {body[2]:02x} 00 01 57 2c 00 00 00 00 00 00 28 00 00 00 " + middle)]

    with Toy(script) as toy:
        assert Tunnel(Tunnel(toy.client, port=1), pid=0x22).get(0x5700)["drts"] == 1
        want = "01 00 00 00 1e 00" + "00 00 00 01 57 12 00 00 00 00 00 00" + "22 00 01 00 0c 00"
        assert toy.seen[0][13:].startswith(bytes.fromhex(want))


def test_a_tunnel_says_which_hop_refused():
    with Toy(lambda body: [framed(f"01 {body[2]:02x} 00 01 57 00 00 00 02 00 00 00")]) as toy:
        with pytest.raises(cci.Refused, match="5701 answered Invalid Input"):
            Tunnel(toy.client, port=99).get(0x5700)
        with pytest.raises(CciError, match="one of"):
            Tunnel(toy.client)
