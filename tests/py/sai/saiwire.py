"""Thrift's binary protocol by hand, for messages that no stub sends.

call(NAME, FIELDS) makes the bytes of a message; Wire(ADDRESS) is a connection that sends bytes and reads replies.

Units: octets; seconds.
Source: Apache Thrift, "Thrift Binary protocol encoding": strict and old headers, big-endian numbers.
"""

import contextlib
import socket
import struct

VERSION = 0x80010000
CALL, REPLY, EXCEPTION, ONEWAY = 1, 2, 3, 4
STOP, BOOL, BYTE, DOUBLE, I16, I32, I64, STRING, STRUCT, MAP, SET, LIST = (
    0,
    2,
    3,
    4,
    6,
    8,
    10,
    11,
    12,
    13,
    14,
    15,
)
UNKNOWN_METHOD = 1
NUMBERS = {BOOL: ">?", BYTE: ">b", DOUBLE: ">d", I16: ">h", I32: ">i", I64: ">q"}
TIMEOUT_S = 20


def text(words):
    """A string: its length, then its octets."""
    raw = words if isinstance(words, bytes) else words.encode()
    return struct.pack(">i", len(raw)) + raw


def field(kind, number, raw):
    """A field of a struct."""
    return struct.pack(">bh", kind, number) + raw


def number(kind, value):
    """A number of a type."""
    return struct.pack(NUMBERS[kind], value)


def struct_of(*fields):
    """A struct: its fields and the stop."""
    return b"".join(fields) + bytes([STOP])


def list_of(kind, *items, count=None):
    """A list or set; with a count, one that lies about its length."""
    return struct.pack(">bi", kind, len(items) if count is None else count) + b"".join(items)


def header(name, sequence=1, kind=CALL, strict=True):
    """The head of a message: strict ones begin with a version, old ones with the name's length."""
    if strict:
        return struct.pack(">I", VERSION | kind) + text(name) + struct.pack(">i", sequence)
    return text(name) + struct.pack(">bi", kind, sequence)


def call(name, *fields, sequence=1, kind=CALL, strict=True):
    """A whole message with a struct of arguments."""
    return header(name, sequence, kind, strict) + struct_of(*fields)


class Wire:
    """A connection to a service."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.settimeout(TIMEOUT_S)

    def close(self):
        """Ends it."""
        self.socket.close()

    def send(self, raw):
        """Sends octets; a server that has closed its end refuses them, which is no fault."""
        try:
            self.socket.sendall(raw)
        except TimeoutError:
            raise
        except OSError:
            return False
        return True

    def end(self):
        """Says that no more octets follow; a server that has closed its end need not hear it."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def is_over(self):
        """Whether the server ends the connection within the time limit; what it still says is not looked at."""
        try:
            while self.socket.recv(4096):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def take(self, count):
        """Exactly `count` octets; EOFError when the server ends before."""
        raw = b""
        while len(raw) < count:
            try:
                more = self.socket.recv(count - len(raw))
            except ConnectionResetError:
                more = b""
            if not more:
                raise EOFError(f"{len(raw)} of {count} octets")
            raw += more
        return raw

    def unpack(self, form):
        """A number."""
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, kind):
        """A value of a type; structs are {field id: value}."""
        if kind in NUMBERS:
            return self.unpack(NUMBERS[kind])
        if kind == STRING:
            return self.take(self.unpack(">i"))
        if kind in (LIST, SET):
            inner, count = self.unpack(">b"), self.unpack(">i")
            return [self.value(inner) for _ in range(count)]
        assert kind == STRUCT, f"type {kind} in a reply"
        found = {}
        while (inner := self.unpack(">b")) != STOP:
            key = self.unpack(">h")
            found[key] = self.value(inner)
        return found

    def reply(self):
        """(message type, name, sequence, result) of the next message, with a strict or an old header."""
        first = self.unpack(">i")
        if first < 0:
            assert first & 0xFFFF0000 == VERSION, hex(first & 0xFFFFFFFF)
            kind, name = first & 0xFF, self.value(STRING)
        else:
            name = self.take(first)
            kind = self.unpack(">b")
        return kind, name.decode(), self.unpack(">i"), self.value(STRUCT)
