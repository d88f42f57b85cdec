#!/usr/bin/env python3
"""Captures the frames that come in by an interface, VLAN tags of metadata put back, into pcapng.

capture.py IFACE OUT.pcapng [--count N] [--timeout S]; prints "ready", then one line of JSON.

Units: nanosecond stamps; bytes without FCS; seconds.
Source: Linux packet(7); needs CAP_NET_RAW. Ends on count, timeout, SIGINT or SIGTERM, file whole.
"""

import argparse
import json
import signal
import sys
import time

from tagmeta import RawPort
from weftpcap import PcapngWriter


class Stop(Exception):
    """A signal asked to end."""


def _stop(*_):
    raise Stop


def receive(port, count, timeout, idle, keep):
    """Passes frames to `keep` until it took `count`, or `timeout` or `idle` seconds without one are over.

    `keep` tells if it took the frame; `idle` (0: off) starts with the first frame. Frames go to a
    list first and to the file afterwards, so that the socket is emptied quickly.
    """
    end, last, number = time.monotonic() + timeout, None, 0
    while count is None or number < count:
        now = time.monotonic()
        until = min(end, last + idle) if idle and last is not None else end
        if now >= until:
            return
        first = port.recv(until - now)
        if first is None:
            continue
        number += keep(first)
        while count is None or number < count:
            got = port.recv_now()
            if got is None:
                break
            number += keep(got)
        last = time.monotonic()


def drain(port, keep, limit=5.0):
    """Passes frames to `keep` that had come before the end was asked for, for at most `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end and (got := port.recv_now()) is not None:
        keep(got)


def main(argv=None):
    """Command line; exit 1 when fewer than --count frames came or the kernel lost some."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("iface")
    parser.add_argument("out")
    parser.add_argument("--count", type=int, help="end after this many frames; fewer is exit 1")
    parser.add_argument("--timeout", type=float, default=10.0, help="seconds in all (default 10)")
    parser.add_argument(
        "--idle", type=float, default=0.0, help="end after this many seconds without a frame (default off)"
    )
    parser.add_argument(
        "--ethertype",
        type=lambda text: int(text, 0),
        action="append",
        help="keep frames of this outer EtherType only (repeatable); others do not count",
    )
    args = parser.parse_args(argv)
    frames, others = [], 0

    def keep(got):
        nonlocal others
        if args.ethertype and int.from_bytes(got.data[12:14], "big") not in args.ethertype:
            others += 1
            return False
        frames.append(got)
        return True

    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    stopped = False
    try:
        with RawPort(args.iface) as port:
            print("ready", flush=True)
            try:
                receive(port, args.count, args.timeout, args.idle, keep)
            except Stop:
                stopped = True
                drain(port, keep)
            lost = port.lost()
    except OSError as err:
        print(f"capture: {args.iface}: {err}", file=sys.stderr)
        return 2
    with PcapngWriter(args.out, args.iface) as writer:
        for got in frames:
            writer.write(got.ts_ns, got.data)
    tags = sum(got.meta_tag is not None for got in frames)
    print(
        json.dumps(
            {
                "iface": args.iface,
                "frames": len(frames),
                "others": others,
                "meta_tags": tags,
                "kernel_lost": lost,
                "stopped": stopped,
            }
        )
    )
    return 1 if lost or args.count is not None and len(frames) < args.count else 0


if __name__ == "__main__":
    sys.exit(main())
