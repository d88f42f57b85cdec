#!/usr/bin/env python3
"""Moves a KV-cache between two hosts of a running fabric by transfers of fabric memory, and verifies it by hash.

kv_cache.py --dir DIR --size SIZE: a staging area in each host, blocks of a layer as one transfer each.

Units: bytes; seconds.
Source: docs/fabric-memory.md. Standard library only.

The cache is made up from a seed and goes through a staging area of each host, so that it can be larger than their memory.
"""

import argparse
import contextlib
import hashlib
import json
import pathlib
import random
import socket
import sys
import time

UNITS = {"KiB": 10, "MiB": 20, "GiB": 30}
OWN = 0x100000  # where the memory of a fabric's host begins
STORE = 30 << 10  # a command has at most 64 KiB, two digits a byte
PEEK = 512 << 10
STREAMS = 4  # transfers at a time


class Refused(Exception):
    """An endpoint refuses a command."""


class Endpoint:
    """A host's control socket: a command and its answer are a line of JSON each."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def ask(self, **command):
        """The answer to a command."""
        self.socket.sendall(json.dumps(command).encode() + b"\n")
        line = self.lines.readline()
        if not line:
            raise Refused("the endpoint has ended")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(f"{command.get('op', command['cmd'])}: {answer['error']['message']}")
        return answer["ok"]

    def mem(self, **command):
        """The answer to a command for fabric memory."""
        answer = self.ask(cmd="mem", **command)
        return answer["mem"] if isinstance(answer, dict) else answer

    def store(self, addr, data, cmd="store", **place):
        """Writes the host's own memory, as its CPU would; with another command or place, other memory."""
        for at in range(0, len(data), STORE):
            self.ask(cmd=cmd, addr=addr + at, data=data[at : at + STORE].hex(), **place)

    def peek(self, addr, length, cmd="peek", **place):
        """Reads it."""
        data = b""
        while len(data) < length:
            part = min(PEEK, length - len(data))
            answer = self.ask(cmd=cmd, addr=addr + len(data), len=part, **place)
            data += bytes.fromhex(answer["transfer"]["data"])
        return data


class Area:
    """Where the staging area of a host is: in its memory, behind BAR 0 of a device of it, or in G-FAM."""

    def __init__(self, folder, host, where):
        name, _, addr = (where or f"host:{OWN:#x}").partition(":")
        self.base = int(addr, 0)
        self.host = host
        self.store_cmd, self.peek_cmd, self.memory, self.first, self.place = "store", "peek", host, self.base, {}
        if name == "fabric":
            self.store_cmd, self.peek_cmd = "write", "read"
        elif name != "host":
            self.memory, self.first, self.place = Endpoint(folder / name / "endpoint.sock"), 0, {"bar": 0}

    def store(self, offset, data):
        """Writes bytes, as who has the memory does."""
        self.memory.store(self.first + offset, data, self.store_cmd, **self.place)

    def peek(self, length):
        """Reads the first bytes."""
        return self.memory.peek(self.first, length, self.peek_cmd, **self.place)


def size(text):
    """A number of bytes: 4096, 64MiB."""
    digits = text.rstrip("KMGiB")
    number = int(digits) << UNITS[text[len(digits) :]] if digits != text else int(text)
    if number < 1:
        raise ValueError(text)
    return number


def blocks(total, block, seed):
    """The cache, block by block."""
    rng = random.Random(seed)
    for at in range(0, total, block):
        yield rng.randbytes(min(block, total - at))


def copy(source, peer, pieces, bases, timeout_s):
    """Writes all pieces (offset, length) to the same places at the peer, some transfers at a time."""
    own, other = bases
    begun = []
    pieces = list(pieces)
    while pieces or begun:
        while pieces and len(begun) < STREAMS:
            at, length = pieces.pop(0)
            op = {"local": own + at, "remote": other + at, "len": length}
            told = source.mem(op="write", peer=peer, ops=[op], wait=False, timeout_ms=timeout_s * 1000)
            begun.append(told["transfer"]["transfer"])
        told = source.mem(op="status", transfer=begun[0])["transfer"]
        if told["status"] == "waiting":
            time.sleep(0.001)
            continue
        if told["status"] != "completed":
            raise Refused(f"a transfer has {told['status']}: {told.get('reason', '')}")
        begun.pop(0)


def ranges(near, far, stage):
    """What each side registers: its own area, and of G-FAM what the other one has there, too."""
    areas = {near.host: [near], far.host: [far]}
    for area, other in ((near, far.host), (far, near.host)):
        if area.peek_cmd == "read":
            areas[other].append(area)
    return [(host, area.base, stage) for host, held in areas.items() for area in held]


def move(near, far, args):
    """Moves the cache; its hash at the source and at the target, and the seconds that transfers took."""
    source, target = near.host, far.host
    stage = min(args.stage, args.size)
    window = target.mem(op="list")["list"]["window"]
    if window is None:
        raise Refused(f"{args.target} shows no memory to others: give it [[gim]] and enable_use_fabric_mem")
    here, there, seconds = hashlib.sha256(), hashlib.sha256(), 0.0
    with contextlib.ExitStack() as held:
        for host, base, length in ranges(near, far, stage):
            handle = host.mem(op="register", addr=base, len=length)["registered"]["handle"]
            held.callback(host.mem, op="deregister", handle=handle)
        peer = source.mem(op="connect", mailbox=window["base"])["peer"]
        held.callback(source.mem, op="disconnect", peer=peer)
        made = blocks(args.size, args.block, args.seed)
        for at in range(0, args.size, stage):
            length = min(stage, args.size - at)
            pieces = [(offset, min(args.block, length - offset)) for offset in range(0, length, args.block)]
            for offset, _ in pieces:
                data = next(made)
                here.update(data)
                near.store(offset, data)
            began = time.monotonic()
            copy(source, peer, pieces, (near.base, far.base), args.timeout)
            seconds += time.monotonic() - began
            there.update(far.peek(length))
    return here.hexdigest(), there.hexdigest(), seconds


def arguments(words=None):
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/run/weft/fabric", type=pathlib.Path, help="directory of the fabric's sockets")
    parser.add_argument("--source", default="h0", help="host that has the cache, or a device that begins transfers")
    parser.add_argument("--target", default="h1", help="host that gets it")
    where = "DEVICE:ADDR: behind BAR 0 of a device, at ADDR for its host; fabric:ADDR: in G-FAM; else in its own memory"
    parser.add_argument("--source-memory", metavar="WHERE:ADDR", help=f"where the source has it: {where}")
    parser.add_argument("--target-memory", metavar="WHERE:ADDR", help="where the target gets it: the same")
    parser.add_argument("--size", default="64MiB", type=size, help="bytes of the cache")
    parser.add_argument("--block", default="1MiB", type=size, help="bytes of a transfer")
    parser.add_argument("--stage", default="16MiB", type=size, help="bytes of the staging area, a multiple of --block")
    parser.add_argument("--seed", default=1, type=int, help="what the cache is made of")
    parser.add_argument("--timeout", default=60, type=int, help="seconds that a transfer may take")
    args = parser.parse_args(words)
    if args.stage % args.block:
        parser.error("--stage must be a multiple of --block")
    return args


def main(words=None):
    """Moves it and says how it went: exit code 0, or 1 where the hashes differ or something is refused."""
    args = arguments(words)
    try:
        hosts = [Endpoint(args.dir / name / "endpoint.sock") for name in (args.source, args.target)]
        places = (args.source_memory, args.target_memory)
        areas = [Area(args.dir, host, where) for host, where in zip(hosts, places)]
        here, there, seconds = move(*areas, args)
    except (OSError, ValueError, Refused) as error:
        print(f"kv_cache: {error}", file=sys.stderr)
        return 1
    print(f"sha256 at {args.source}: {here}")
    print(f"sha256 at {args.target}: {there}")
    print(f"{args.size} bytes in {seconds:.3f} s of transfers: {args.size / seconds / 1e6:.1f} MB/s")
    if here != there:
        print("kv_cache: the caches differ", file=sys.stderr)
        return 1
    print("verified")
    return 0


if __name__ == "__main__":
    sys.exit(main())
