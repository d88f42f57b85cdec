"""Speaks MCTP over TCP in packets of 68 bytes: control messages, and CCI inside; a client and what a server needs.

split(message) -> packets, Assembly.push(packet) -> message; Bus(address).control(...), .cci(...) -> (code, payload).

Units: bytes; seconds; CCI is little-endian.
Source: DMTF DSP0236 8 (transport header), 11 and 12 (control messages); DSP0234, DSP0281 (types 7 and 8);
docs/spec/wire-formats.md §4.1, §4.3 (CCI). Written from those alone, beside what weft and cci.py do.
"""

import socket
import struct

UNIT, HEAD, PACKET = 64, 4, 68
CONTROL, FM_API, CCI = 0, 7, 8
SOM, EOM, OWNER = 0x80, 0x40, 0x08
SET_EID, GET_EID, GET_UUID, GET_VERSIONS, GET_TYPES = 1, 2, 3, 4, 5
OWN_EID = 9
TIMEOUT_S = 30
SUCCESS, BACKGROUND, INVALID_INPUT, UNSUPPORTED, BAD_LENGTH = 0, 1, 2, 3, 0x16


def head(dest=0, source=OWN_EID, *, som=True, eom=True, seq=0, owner=True, tag=0, version=1):
    """The 4 bytes in front of a packet's payload."""
    flags = som * SOM | eom * EOM | (seq & 3) << 4 | owner * OWNER | tag & 7
    return bytes([version, dest, source, flags])


def split(message, **fields):
    """The packets of a message, type first; the fields are those of head(), SOM and EOM and sequence aside."""
    parts = [message[at : at + UNIT] for at in range(0, len(message), UNIT)]
    last = len(parts) - 1
    return [
        head(som=at == 0, eom=at == last, seq=at % 4, **fields) + part.ljust(UNIT, b"\0")
        for at, part in enumerate(parts)
    ]


class Assembly:
    """Puts packets together; raises ValueError for what a well-behaved sender does not send."""

    def __init__(self):
        self.parts, self.next = b"", None

    def push(self, packet):
        """The message, with its padding, that `packet` completes, and the packet's fields; None before."""
        version, dest, source, flags = packet[:HEAD]
        if version != 1:
            raise ValueError(f"version {version}")
        seq = flags >> 4 & 3
        if flags & SOM:
            if self.next is not None:
                raise ValueError("a message begins in another one")
            self.parts, self.next = b"", seq
        if seq != self.next:
            raise ValueError(f"sequence {seq}, not {self.next}")
        self.parts, self.next = self.parts + packet[HEAD:], (seq + 1) % 4
        if not flags & EOM:
            return None
        self.next = None
        return self.parts, {"dest": dest, "source": source, "owner": bool(flags & OWNER), "tag": flags & 7}


def cci(opcode, payload=b"", tag=0, *, category=0, code=0, length=None):
    """A CCI message: header of 12 bytes and payload."""
    length = len(payload) if length is None else length
    return struct.pack("<BBBHHBHH", category, tag, 0, opcode, length & 0xFFFF, length >> 16, code, 0) + payload


def parse_cci(message):
    """Category, tag, opcode, return code and payload of a message with padding behind it."""
    category, tag, _, opcode, low, high, code, _ = struct.unpack_from("<BBBHHBHH", message)
    length = low | (high & 0x1F) << 16
    payload, padding = message[12 : 12 + length], message[12 + length :]
    if len(payload) != length or any(padding) or len(padding) >= UNIT:
        raise ValueError(f"{len(message)} bytes for a payload of {length}")
    return category & 15, tag, opcode, code, payload


class Bus:
    """A connection to an endpoint; one request at a time."""

    def __init__(self, address):
        self.sock = socket.create_connection(address, timeout=TIMEOUT_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.dest, self.tag, self.instance, self.cci_tag = 0, 0, 0, 0

    def close(self):
        """Ends it."""
        self.sock.close()

    def send(self, *packets):
        """Sends bytes as they are."""
        self.sock.sendall(b"".join(packets))

    def packet(self):
        """Waits for a packet; None at the end of the connection."""
        got = b""
        while len(got) < PACKET:
            try:
                more = self.sock.recv(PACKET - len(got))
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            got += more
        return got

    def receive(self):
        """Waits for a message; its type, its body and the fields of its packets."""
        assembly = Assembly()
        while True:
            packet = self.packet()
            if packet is None:
                raise ConnectionError("the endpoint has closed the connection")
            done = assembly.push(packet)
            if done:
                return done[0][0], done[0][1:], done[1]

    def ask(self, kind, body):
        """Sends a request and waits for what answers it."""
        self.tag = (self.tag + 1) % 8
        self.send(*split(bytes([kind]) + body, dest=self.dest, tag=self.tag))
        got, answer, fields = self.receive()
        want = {"dest": OWN_EID, "source": self.dest, "owner": False, "tag": self.tag}
        if got != kind or fields != want:
            raise ValueError(f"type {got} with {fields} answers type {kind} with {want}")
        return answer

    def control(self, command, data=b""):
        """A control message; the completion code and what follows it."""
        self.instance = (self.instance + 1) % 32
        answer = self.ask(CONTROL, bytes([0x80 | self.instance, command]) + data)
        if answer[:2] != bytes([self.instance, command]):
            raise ValueError(f"{answer[:2].hex()} answers instance {self.instance}, command {command}")
        return answer[2], answer[3:]

    def cci(self, opcode, payload=b"", kind=FM_API):
        """A CCI request; its return code and payload."""
        self.cci_tag = (self.cci_tag + 1) % 256
        answer = parse_cci(self.ask(kind, cci(opcode, payload, self.cci_tag)))
        if answer[:3] != (1, self.cci_tag, opcode):
            raise ValueError(f"{answer[:3]} answers {opcode:04x}")
        return answer[3], answer[4]


def vcs_info(payload):
    """5200h: {VCS: (state, upstream port, [(status, port, LD) of each vPPB])}."""
    found, at = {}, 4
    for _ in range(payload[0]):
        vcs, state, usp, count = payload[at : at + 4]
        at += 4
        vppbs = [tuple(payload[at + 4 * n : at + 4 * n + 3]) for n in range(count)]
        found[vcs], at = (state, usp, vppbs), at + 4 * count
    return found
