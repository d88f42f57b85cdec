"""A plain CXL switch for tests of who commands one: it knows 5100h, 5101h and 5200h to 5203h, and nothing else.

PlainSwitch() listens at .address; framing "mctp" (packets of 68 bytes) or "length" (length, type, message).

Units: bytes, little-endian.
Source: docs/spec/wire-formats.md §4.1, §4.3; docs/mctp.md "On the wire".
"""

import socket
import struct
import threading

import mctp

PORTS, VPPBS = 4, 3  # port 0 is the host's
IN_PROGRESS_POLLS = 2  # looks at a bridge before a bind is done


class PlainSwitch:
    """The switch; a context that listens."""

    def __init__(self, framing):
        self.framing, self.asked, self.bound, self.busy, self.errors = framing, [], {}, {}, []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = self.listener.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()

    def accept(self):
        """A thread for each connection."""
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        """Serves a connection until it ends."""
        with sock, sock.makefile("rb") as stream:
            serve = self.serve_mctp if self.framing == "mctp" else self.serve_length
            serve(sock, stream)

    def serve_mctp(self, sock, stream):
        """Messages in packets."""
        assembly = mctp.Assembly()
        while len(packet := stream.read(mctp.PACKET)) == mctp.PACKET:
            done = assembly.push(packet)
            if done:
                (kind, *_), fields = done
                answer = bytes([kind]) + self.answer(done[0][1:])
                back = {"dest": fields["source"], "source": fields["dest"], "tag": fields["tag"]}
                sock.sendall(b"".join(mctp.split(answer, owner=False, **back)))

    def serve_length(self, sock, stream):
        """Messages with their lengths."""
        while len(size := stream.read(2)) == 2:
            message = stream.read(struct.unpack("<H", size)[0])
            answer = message[:1] + self.answer(message[1:])
            sock.sendall(struct.pack("<H", len(answer)) + answer)

    def answer(self, message):
        """The response to a request."""
        _, tag, opcode, _, payload = mctp.parse_cci(message)
        self.asked.append(opcode)
        known = {0x5100: self.identify, 0x5101: self.ports, 0x5200: self.vcs}
        known |= {0x5201: self.bind, 0x5202: self.unbind, 0x5203: self.generate_aer}
        code, out = known[opcode](payload) if opcode in known else (mctp.UNSUPPORTED, b"")
        return mctp.cci(opcode, out, tag, category=1, code=code)

    def identify(self, _):
        """5100h."""
        masks = (2**PORTS - 1).to_bytes(32, "little") + (1).to_bytes(32, "little")
        return 0, struct.pack("<BBBB", 2, 0, PORTS, 1) + masks + struct.pack("<HHB", VPPBS, len(self.bound), 8)

    def ports(self, payload):
        """5101h."""
        blocks = b""
        for port in payload[1:]:
            state = 4 if port == 0 else 3
            blocks += bytes([port, state, 2, 0, 5, 7, 16, 8, 0x3F, 5, 4, 0x11, 0, 1, 0, 0])
        return 0, bytes([len(payload) - 1, 0, 0, 0]) + blocks

    def vcs(self, payload):
        """5200h."""
        start, limit = payload[:2]
        vppbs = b""
        for vppb in range(start, min(VPPBS, start + limit)):
            if self.busy.get(vppb, 0):
                self.busy[vppb] -= 1
                vppbs += bytes([1, 255, 255, 0])
            elif vppb in self.bound:
                vppbs += bytes([2, self.bound[vppb], 255, 0])
            else:
                vppbs += bytes([0, 255, 255, 0])
        return 0, bytes([1, 0, 0, 0, 0, 1, 0, len(vppbs) // 4]) + vppbs

    def bind(self, payload):
        """5201h."""
        vcs, vppb, port, _, _ = struct.unpack("<BBBBH", payload)
        if vcs or not 0 < vppb < VPPBS or not 0 < port < PORTS or vppb in self.bound:
            return mctp.INVALID_INPUT, b""
        self.bound[vppb], self.busy[vppb] = port, IN_PROGRESS_POLLS
        return mctp.BACKGROUND, b""

    def unbind(self, payload):
        """5202h."""
        if payload[0] or payload[1] not in self.bound:
            return mctp.INVALID_INPUT, b""
        del self.bound[payload[1]]
        self.busy[payload[1]] = IN_PROGRESS_POLLS
        return mctp.BACKGROUND, b""

    def generate_aer(self, payload):
        """5203h: knows the errors of PCIe 3.0."""
        vcs, vppb, _, error = struct.unpack_from("<BBHI", payload)
        if len(payload) != 40 or vcs or vppb >= VPPBS or error.bit_count() != 1 or error > 1 << 20:
            return mctp.INVALID_INPUT, b""
        self.errors.append((vppb, error, payload[8:].hex()))
        return 0, b""
