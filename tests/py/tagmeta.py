"""Raw frames on a Linux interface: AF_PACKET sockets that see VLAN tags in metadata, and a tag pusher.

RawPort(ifname).send(bytes) / recv(timeout) -> Received; MetaTag(ifname, vid, pcp) while open.

Units: bytes without FCS; time stamps in nanoseconds since 1970; timeouts in seconds.
Source: Linux uapi if_packet.h, bpf.h; needs CAP_NET_RAW (tags: CAP_BPF, CAP_NET_ADMIN, Linux 6.6).
"""

import argparse
import ctypes
import errno
import os
import platform
import select
import signal
import socket
import struct
import sys
import time
from typing import NamedTuple

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP, PACKET_MR_PROMISC = 1, 1
PACKET_STATISTICS, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 6, 8, 23
TP_STATUS_VLAN_VALID, TP_STATUS_VLAN_TPID_VALID = 1 << 4, 1 << 6
SO_TIMESTAMPNS, SO_RCVBUFFORCE, SO_SNDBUFFORCE = 35, 33, 32
# tpacket_auxdata: status, len, snaplen, mac, net, vlan_tci, vlan_tpid
AUXDATA = struct.Struct("=IIIHHHH")
FRAME_MAX = 65536 + 64


class Received(NamedTuple):
    """One frame; the tag that came as metadata is put back into `data`."""

    ts_ns: int
    data: bytes
    meta_tag: tuple | None  # (tpid, tci) if the tag was in metadata
    truncated: bool


def with_tag(data, tpid, tci):
    """Puts a tag after the addresses."""
    return data[:12] + struct.pack("!HH", tpid, tci) + data[12:]


def stamp_of(controls):
    """When a frame came in, by its control messages: ns, or 0."""
    for level, kind, body in controls:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanos = struct.unpack_from("=qq", body)
            return seconds * 10**9 + nanos
    return 0


def kernel_stamps(limit_s=10, unread_s=0.02):
    """Waits until frames are stamped as they come in; loopback must be up.

    The kernel begins with that some time after the first socket asks for it, and stamps what came before when it is read:
    stamps of two interfaces then say nothing of the order.
    """
    end = time.monotonic() + limit_s
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.bind(("127.0.0.1", 0))
        sock.settimeout(limit_s)
        while True:
            sock.sendto(b"?", sock.getsockname())
            time.sleep(unread_s)
            before_read = time.time_ns()
            stamp = stamp_of(sock.recvmsg(1, 256)[1])
            if 0 < stamp < before_read:
                return
            assert time.monotonic() < end, "the kernel stamps no frames"


class RawPort:
    """A promiscuous AF_PACKET socket on one interface; own transmissions are not seen."""

    def __init__(self, ifname, receive=True, buffer_bytes=64 << 20):
        self.ifname = ifname
        self.small_buffers = False  # some 100 frames: a sender must keep to a rate
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        try:
            self._force(SO_SNDBUFFORCE, socket.SO_SNDBUF, buffer_bytes)
            if receive:
                self._force(SO_RCVBUFFORCE, socket.SO_RCVBUF, buffer_bytes)
                self.sock.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
                self.sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
                self.sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
                member = struct.pack("=iHH8s", socket.if_nametoindex(ifname), PACKET_MR_PROMISC, 0, b"")
                self.sock.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, member)
            # Bound last: no frame comes in before every option is set.
            self.sock.bind((ifname, ETH_P_ALL if receive else 0))
        except OSError:
            self.sock.close()
            raise

    def _force(self, forced, plain, value):
        try:
            self.sock.setsockopt(socket.SOL_SOCKET, forced, value)
        except PermissionError:
            # In a user namespace only the limit of the machine can be had.
            self.sock.setsockopt(socket.SOL_SOCKET, plain, value)
            self.small_buffers = True

    def mark(self, mark):
        """Gives frames that are sent from now on a mark (SO_MARK)."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)

    def send(self, data):
        """Sends one frame; waits while the queue is full."""
        while True:
            try:
                self.sock.send(data)
                return
            except OSError as err:
                if err.errno not in (errno.ENOBUFS, errno.EAGAIN):
                    raise
                time.sleep(0.0002)

    def recv(self, timeout=None):
        """The next frame, or None after `timeout` seconds without one."""
        if timeout is not None and not select.select([self.sock], [], [], max(0, timeout))[0]:
            return None
        return self._take(0)

    def take(self, count, timeout=10):
        """The next frames, `count` of them or those that came before `timeout` seconds without one."""
        got = []
        while len(got) < count and (frame := self.recv(timeout)):
            got.append(frame)
        return got

    def recv_now(self):
        """The next frame if one is there, else None."""
        return self._take(socket.MSG_DONTWAIT)

    def _take(self, flags):
        try:
            data, controls, msg_flags, _ = self.sock.recvmsg(FRAME_MAX, 256, flags)
        except BlockingIOError:
            return None
        tag = None
        for level, kind, body in controls:
            if level == SOL_PACKET and kind == PACKET_AUXDATA:
                status, _, _, _, _, tci, tpid = AUXDATA.unpack_from(body)
                if status & TP_STATUS_VLAN_VALID:
                    tag = (tpid if status & TP_STATUS_VLAN_TPID_VALID else 0x8100, tci)
        if tag:
            data = with_tag(data, *tag)
        return Received(stamp_of(controls) or time.time_ns(), data, tag, bool(msg_flags & socket.MSG_TRUNC))

    def lost(self):
        """Frames that the kernel dropped for want of room since the last call."""
        return struct.unpack("=II", self.sock.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]

    def close(self):
        """Closes the socket."""
        self.sock.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# Tag in metadata ---------------------------------------------------------------------------------

BPF_PROG_LOAD, BPF_LINK_CREATE = 5, 28
BPF_PROG_TYPE_SCHED_CLS = 3
BPF_TCX_INGRESS, BPF_TCX_EGRESS = 46, 47
BPF_FUNC_SKB_VLAN_PUSH, BPF_FUNC_SKB_VLAN_POP = 18, 19
BPF_SYSCALL = {"x86_64": 321, "aarch64": 280}


def _instruction(code, dst=0, src=0, offset=0, immediate=0):
    return struct.pack("=BBhi", code, src << 4 | dst, offset, immediate)


def push_program(tci, ethertype):
    """BPF bytes: push an 802.1Q tag on frames of `ethertype` (None: all), then let the frame go on.

    Without a TCI it is that of the frame's mark (SO_MARK).
    """
    mark_offset, protocol_offset = 8, 16  # of __sk_buff; the protocol is in wire order
    program = [_instruction(0xBF, 6, 1)]  # r6 = ctx
    if ethertype is not None:
        program += [
            _instruction(0x61, 2, 6, protocol_offset),  # r2 = ctx->protocol
            _instruction(0x55, 2, 0, 4, socket.htons(ethertype)),
        ]  # if r2 != ethertype: skip the push
    program += [
        _instruction(0xBF, 1, 6),
        _instruction(0xB7, 2, 0, 0, socket.htons(0x8100)),
        _instruction(0x61, 3, 6, mark_offset) if tci is None else _instruction(0xB7, 3, 0, 0, tci),
        _instruction(0x85, immediate=BPF_FUNC_SKB_VLAN_PUSH),
    ]
    program += [
        _instruction(0xB7, immediate=-1),  # TCX_NEXT
        _instruction(0x95),
    ]
    return b"".join(program)


def pop_program():
    """BPF bytes: take the tag off, then let the frame go on."""
    return b"".join(
        [
            _instruction(0x85, immediate=BPF_FUNC_SKB_VLAN_POP),
            _instruction(0xB7, immediate=-1),
            _instruction(0x95),
        ]
    )


class TcxProgram:
    """A BPF program on an interface, ingress or egress, for as long as this object is open."""

    def __init__(self, ifname, raw, attach):
        number = BPF_SYSCALL.get(platform.machine())
        if number is None:
            raise OSError(errno.ENOSYS, f"no bpf syscall number known for {platform.machine()}")
        self._number, self._libc = number, ctypes.CDLL(None, use_errno=True)
        program = ctypes.create_string_buffer(raw)
        license_name = ctypes.create_string_buffer(b"GPL")
        count = (len(program) - 1) // 8
        self._log = ctypes.create_string_buffer(65536)
        load = struct.pack(
            "=IIQQIIQ",
            BPF_PROG_TYPE_SCHED_CLS,
            count,
            ctypes.addressof(program),
            ctypes.addressof(license_name),
            1,
            len(self._log),
            ctypes.addressof(self._log),
        )
        prog_fd = self._bpf(BPF_PROG_LOAD, load + bytes(80), "BPF_PROG_LOAD")
        try:
            link = struct.pack("=IIII", prog_fd, socket.if_nametoindex(ifname), attach, 0)
            self._link_fd = self._bpf(BPF_LINK_CREATE, link + bytes(48), "BPF_LINK_CREATE tcx")
        finally:
            os.close(prog_fd)

    def _bpf(self, command, attributes, what):
        buffer = ctypes.create_string_buffer(attributes, len(attributes))
        fd = self._libc.syscall(self._number, command, buffer, len(attributes))
        if fd < 0:
            number = ctypes.get_errno()
            log = self._log.value.decode(errors="replace").strip()[-300:]
            raise OSError(number, f"{what}: {os.strerror(number)} {log}".strip())
        return fd

    def close(self):
        """Takes the program off."""
        if self._link_fd >= 0:
            os.close(self._link_fd)
            self._link_fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class MetaTag(TcxProgram):
    """While open, frames that leave `ifname` carry an 802.1Q tag in metadata (tcx egress program).

    The tag is pushed after the AF_PACKET send path, so that the receiver sees it in metadata only,
    as from a VLAN device with offload.
    """

    def __init__(self, ifname, vid, pcp=0, ethertype=None, dei=0):
        if not (0 <= vid < 4096 and 0 <= pcp < 8 and 0 <= dei < 2):
            raise ValueError(f"VID {vid}, PCP {pcp} or DEI {dei} out of range")
        super().__init__(ifname, push_program(pcp << 13 | dei << 12 | vid, ethertype), BPF_TCX_EGRESS)


class MarkTag(TcxProgram):
    """While open, frames that leave `ifname` carry a tag in metadata whose TCI is their mark: for many tags, as to put a
    program on an interface or take it off waits for the whole kernel.
    """

    def __init__(self, ifname):
        super().__init__(ifname, push_program(None, None), BPF_TCX_EGRESS)


class Untag(TcxProgram):
    """While open, frames that come in by `ifname` lose their tag, so that the host's stack takes them."""

    def __init__(self, ifname):
        super().__init__(ifname, pop_program(), BPF_TCX_INGRESS)


def main(argv=None):
    """Holds a tag pusher and popper on an interface until SIGTERM, SIGINT or the end of stdin."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("iface")
    parser.add_argument("--push", metavar="VID:PCP", help="tag what leaves, in metadata")
    parser.add_argument("--ethertype", type=lambda text: int(text, 0), help="push on this EtherType only")
    parser.add_argument("--pop", action="store_true", help="untag what comes in")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    held = []
    try:
        if args.push:
            vid, pcp = (int(text) for text in args.push.split(":"))
            held.append(MetaTag(args.iface, vid, pcp, args.ethertype))
        if args.pop:
            held.append(Untag(args.iface))
        print("ready", flush=True)
        sys.stdin.read()
    except KeyboardInterrupt:
        pass
    except (OSError, ValueError) as err:
        print(f"tagmeta: {args.iface}: {err}", file=sys.stderr)
        return 1
    finally:
        for program in held:
            program.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
