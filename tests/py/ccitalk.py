"""A TCP connection on which CCI messages are exchanged, as frames: cut into segments anywhere.

Talk(port).ask(data, size), .answer(data, size) append frames of at most `size` bytes of data each; .frames is
[(ts_ns, bytes)].

Units: ns, 1 ms between two frames; bytes.
Source: docs/spec/cxl-fabric.md "The fabric manager"; docs/spec/wire-formats.md §4.1; RFC 9293.
"""

import struct

import cci
import weftbuild as w

MANAGER, COMPONENT = "10.0.0.1", "10.0.0.2"
STEP_NS = 1_000_000
PUSH_ACK = 0x18


def message(opcode, payload=b"", tag=0, answers=False, code=0):
    """A message of the FM API as it goes over TCP."""
    category = cci.RESPONSE if answers else cci.REQUEST
    made = cci.Message(opcode, payload, tag=tag, category=category, return_code=code)
    return cci.frame(cci.MCTP_FM_API, made.encode())


class Talk:
    """The frames of a connection between a manager and a component."""

    def __init__(self, port=4000, client=50_000):
        self.ports = {MANAGER: client, COMPONENT: port}
        self.seq = {MANAGER: 1, COMPONENT: 1}
        self.frames = []

    def _send(self, src, dst, data, size):
        for at in range(0, len(data), size):
            part = data[at : at + size]
            head = struct.pack(
                ">HHIIBBHHH",
                self.ports[src], self.ports[dst], self.seq[src], self.seq[dst], 5 << 4, PUSH_ACK, 8192, 0, 0,
            )  # fmt: skip
            ip = w.build_ipv4(len(head) + len(part), src, dst, proto=6)
            ether = w.mac("02:00:00:00:00:02") + w.mac("02:00:00:00:00:01") + b"\x08\x00"
            self.frames.append((len(self.frames) * STEP_NS, ether + ip + head + part))
            self.seq[src] += len(part)

    def ask(self, data, size=1400):
        """The manager sends `data`."""
        self._send(MANAGER, COMPONENT, data, size)
        return self

    def answer(self, data, size=1400):
        """The component sends `data`."""
        self._send(COMPONENT, MANAGER, data, size)
        return self

    def say_everything(self, size):
        """All of `everything`, in segments of at most `size` bytes."""
        for say, data in ((self.answer if answers else self.ask, data) for answers, data in everything()):
            say(data, size)
        return self


def everything():
    """Every kind of message, as pairs of whether the component says it and bytes: two at once, a tunnel, a refusal."""
    crawl = cci.Message(0x5700, tag=9).encode()
    told = cci.Message(0x5700, bytes(12), tag=9, category=cci.RESPONSE).encode()
    return [
        (False, message(0x5700, tag=1)),
        (True, message(0x5700, bytes(12), 1, True)),
        (False, message(0x5708, bytes(6), 2) + message(0x0700, tag=3)),
        (True, message(0x5708, bytes(3000), 2, True) + message(0x0700, bytes(38), 3, True)),
        (False, message(0x5701, b"\2\0\0\0" + len(crawl).to_bytes(2, "little") + crawl, 4)),
        (True, message(0x5701, len(told).to_bytes(2, "little") + bytes(2) + told, 4, True)),
        (False, message(0x5704, bytes(9), 5)),
        (True, message(0x5704, b"", 5, True, cci.INVALID_INPUT)),
    ]
