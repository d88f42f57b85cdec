"""Speaks CCI: the 12-byte header, return codes, MCTP over TCP, a client with tags and tunnels, 0700 to 0702.

Message <-> bytes; frame(mctp, message) -> bytes; Client(host, port).call(opcode, **values) -> (code, values);
Tunnel(client, ...) has the same calls one hop further; importing cci fills COMMANDS with all command sets.

Units: bytes, little-endian; timeouts in seconds; PIDs of 12 bits, 0xFFF none.
Source: docs/spec/wire-formats.md §4.1, §4.4, §4.5 (5701); docs/spec/cxl-fabric.md "The fabric manager" (length u16 of
what follows, type byte, message).
"""

import socket
import time
from dataclasses import dataclass

import cci_gae
import cci_gfd
import cci_switch
from ccilayout import COMMANDS, CciError, Layout, command

__all__ = ["COMMANDS", "CciError", "Client", "Layout", "Message", "Tunnel", "cci_gae", "cci_gfd", "cci_switch"]

HEADER = Layout(
    "(category=0+4):1 tag:1 -:1 opcode:2 (length=0+21,background=23+1):3 return_code:2 vendor_status:2"
)
HEADER_SIZE = 12
LENGTH_MAX = (1 << 21) - 1
REQUEST, RESPONSE, EVENT = 0, 1, 2
MCTP_FM_API, MCTP_COMPONENT = 0x07, 0x08
PID_NONE = 0xFFF

RETURN_CODES = (
    "Success",
    "Background started",
    "Invalid Input",
    "Unsupported",
    "Internal Error",
    "Retry Required",
    "Busy",
    "Media Disabled",
    "FW in progress",
    "FW out of order",
    "FW auth",
    "Invalid slot",
    "FW rolled back",
    "Cold reset required",
    "Invalid handle",
    "Invalid physical address",
    "Poison limit",
    "Media failure",
    "Aborted",
    "Invalid security state",
    "Bad passphrase",
    "Unsupported mailbox",
    "Invalid payload length",
    "Invalid log",
    "Interrupted",
    "Unsupported feature version",
    "Unsupported feature selection",
    "Feature transfer in progress",
    "Feature transfer out of order",
    "Resources Exhausted",
    "Invalid extent list",
    "Transfer out of order",
    "Background not abortable",
)
SUCCESS, BACKGROUND_STARTED, INVALID_INPUT, UNSUPPORTED = 0, 1, 2, 3
BUSY, INVALID_LENGTH, EXHAUSTED = 6, 0x16, 0x1D

REGISTER_PRIMARY, REGISTER_SECONDARY, UPDATE_PID, PROMOTE = 0, 1, 2, 3

command(
    0x0700,
    "Identify PBR Component",
    "",
    "pid:2.12 primary_pid:2.12 primary_uuid:x16 secondary_pid:2.12 secondary_uuid:x16",
)
command(
    0x0701,
    "Claim Ownership",
    "op:1 fm_pid:2.12 fm_uuid:x16 assigned_pid:2.12",
    "primary_pid:2.12 primary_uuid:x16 secondary_pid:2.12 secondary_uuid:x16",
)
command(0x0702, "Read CDAT", "pid:2.12 -:2 start:8 count:8", "total:8 count:8 data[count]:x")


def code_name(code):
    """A return code as the page names it."""
    return RETURN_CODES[code] if code < len(RETURN_CODES) else f"return code {code:#x}"


@dataclass(frozen=True)
class Message:
    """A CCI message."""

    opcode: int
    payload: bytes = b""
    tag: int = 0
    category: int = REQUEST
    return_code: int = 0
    background: int = 0
    vendor_status: int = 0

    def encode(self):
        """Header and payload."""
        if len(self.payload) > LENGTH_MAX:
            raise CciError(f"{len(self.payload)} bytes of payload, at most {LENGTH_MAX}")
        fields = dict(vars(self), length=len(self.payload))
        payload = fields.pop("payload")
        return HEADER.encode(**fields) + bytes(payload)

    @classmethod
    def decode(cls, data):
        """The message of exactly these bytes."""
        fields = HEADER.decode(data[:HEADER_SIZE])
        length = fields.pop("length")
        if length != len(data) - HEADER_SIZE:
            raise CciError(f"header says {length} bytes of payload, there are {len(data) - HEADER_SIZE}")
        if fields["category"] > EVENT:
            raise CciError(f"message category {fields['category']} is none of 0 to 2")
        return cls(payload=bytes(data[HEADER_SIZE:]), **fields)


def frame(mctp, message):
    """A message as it goes over TCP: length of what follows, MCTP message type, message."""
    if len(message) + 1 > 0xFFFF:
        raise CciError(f"a message of {len(message)} bytes does not fit a frame")
    return (len(message) + 1).to_bytes(2, "little") + bytes([mctp]) + message


def unframe(data):
    """(MCTP type, message, what is left) of the first frame in `data`; None while it is not whole."""
    if len(data) < 2 or len(data) < 2 + (size := int.from_bytes(data[:2], "little")):
        return None
    if size < 1 + HEADER_SIZE:
        raise CciError(f"a frame of {size} bytes has no room for a message type and a header")
    if data[2] not in (MCTP_FM_API, MCTP_COMPONENT):
        raise CciError(f"MCTP message type {data[2]:#04x} is neither 07 nor 08")
    return data[2], bytes(data[3 : 2 + size]), bytes(data[2 + size :])


class Refused(Exception):
    """A hop of a tunnel answered with an error."""

    def __init__(self, opcode, code):
        super().__init__(f"{opcode:04x} answered {code_name(code)}")
        self.opcode, self.code = opcode, code


class Caller:
    """What a client and a tunnel have in common: requests by opcode."""

    def exchange(self, opcode, payload):
        """Sends a request, returns the response Message."""
        raise NotImplementedError

    def raw(self, opcode, payload=b""):
        """(return code, payload bytes); nothing about them is checked but the header."""
        answer = self.exchange(opcode, payload)
        return answer.return_code, answer.payload

    def call(self, opcode, **values):
        """(return code, values of the response); None for values when the command was refused."""
        row = COMMANDS[opcode]
        code, payload = self.raw(opcode, row.request.encode(**values))
        if code not in (SUCCESS, BACKGROUND_STARTED):
            if payload:
                raise CciError(f"{opcode:04x} refused ({code_name(code)}) with {len(payload)} bytes of payload")
            return code, None
        return code, row.decode(payload)

    def get(self, opcode, **values):
        """Values of a response; raises Refused for any other return code than Success."""
        code, found = self.call(opcode, **values)
        if code != SUCCESS:
            raise Refused(opcode, code)
        return found


def check_answer(sent, answer):
    """A response has the opcode and the tag of its request."""
    if answer.category != RESPONSE:
        raise CciError(f"{sent.opcode:04x}: message category {answer.category}, not a response")
    if (answer.opcode, answer.tag) != (sent.opcode, sent.tag):
        raise CciError(f"sent {sent.opcode:04x} tag {sent.tag}, got {answer.opcode:04x} tag {answer.tag}")
    return answer


def place(text):
    """Host and port of HOST:PORT; path and None of unix:PATH."""
    kind, _, path = text.partition(":")
    if kind == "unix":
        return path, None
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class Client(Caller):
    """One connection: TCP, or a Unix socket where `port` is None and `host` its path. Several requests may be on their way, each with a tag of its own.

    A tag whose answer never came stays taken: its late answer must not be read as that of another request.
    """

    def __init__(self, host, port, mctp=MCTP_FM_API, timeout=5.0):
        self.mctp, self.timeout = mctp, timeout
        if port is None:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.sock.settimeout(timeout)
            self.sock.connect(host)
        else:
            self.sock = socket.create_connection((host, port), timeout=timeout)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left, self.next_tag = b"", 0
        self.waiting, self.stale, self.answers, self.events = {}, set(), {}, []

    def close(self):
        """Closes the connection."""
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def start(self, opcode, payload=b""):
        """Sends a request and returns its tag."""
        for step in range(256):
            tag = (self.next_tag + step) % 256
            if tag not in self.waiting and tag not in self.stale and tag not in self.answers:
                break
        else:
            raise CciError("all 256 tags are taken")
        self.next_tag = (tag + 1) % 256
        sent = Message(opcode, payload, tag)
        self.sock.settimeout(self.timeout)
        self.sock.sendall(frame(self.mctp, sent.encode()))
        self.waiting[tag] = sent
        return tag

    def wait(self, tag, timeout=None):
        """The response to the request of this tag; TimeoutError when it does not come in time."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        while tag not in self.answers:
            if tag not in self.waiting:
                raise CciError(f"no request of tag {tag} is on its way")
            try:
                self.receive(end - time.monotonic())
            except TimeoutError:
                sent = self.waiting.pop(tag)
                self.stale.add(tag)
                raise TimeoutError(f"{sent.opcode:04x} tag {tag}: no answer in time") from None
        return self.answers.pop(tag)

    def receive(self, timeout):
        """Takes one frame and files it under its tag."""
        end = time.monotonic() + timeout
        while (got := unframe(self.left)) is None:
            rest = end - time.monotonic()
            if rest <= 0:
                raise TimeoutError
            self.sock.settimeout(rest)
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError("the component closed the connection")
            self.left += data
        mctp, content, self.left = got
        message = Message.decode(content)
        if message.category == EVENT:
            self.events.append(message)
            return
        if message.tag in self.stale:
            self.stale.discard(message.tag)
            return
        if message.tag not in self.waiting:
            raise CciError(f"an answer of tag {message.tag} to no request: opcode {message.opcode:04x}")
        if mctp != self.mctp:
            raise CciError(f"asked with MCTP type {self.mctp:#04x}, answered with {mctp:#04x}")
        self.answers[message.tag] = check_answer(self.waiting.pop(message.tag), message)

    def exchange(self, opcode, payload=b""):
        return self.wait(self.start(opcode, payload))


class Tunnel(Caller):
    """The component behind `via`: by port or PID with Fabric Crawl Out, or by 5300h to a port or LD.

    Tunnels stack: `via` may be a tunnel itself.
    """

    def __init__(self, via, port=None, pid=None, ld=None):
        if sum(target is not None for target in (port, pid, ld)) != 1:
            raise CciError("a tunnel leads to one of port, pid and ld")
        self.via, self.next_tag = via, 0
        if ld is None:
            self.opcode = 0x5701
            self.target = {"target": port if pid is None else pid, "type": int(pid is not None)}
        else:
            self.opcode, self.target = 0x5300, {"id": ld, "type": 0}

    def exchange(self, opcode, payload=b""):
        sent = Message(opcode, payload, self.next_tag)
        self.next_tag = (self.next_tag + 1) % 256
        row = COMMANDS[self.opcode]
        code, answer = self.via.raw(self.opcode, row.request.encode(message=sent.encode(), **self.target))
        if code != SUCCESS:
            raise Refused(self.opcode, code)
        return check_answer(sent, Message.decode(row.response.decode(answer)["message"]))
