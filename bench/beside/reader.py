#!/usr/bin/env python3
"""Who reads a running switch: a live page, and a tester that polls SAI's counters ten times a second.

reader.py SAI METRICS SECONDS -> JSON: p99_us of the calls, their number, events of the page.

Units: us, seconds.
Source: docs/sai.md; docs/page.md.
"""

import json
import socket
import struct
import sys
import threading
import time

POLL_S, QUEUES = 0.1, 4
QUEUE, KIND_SHIFT, PRIS = 21, 48, 8
COUNTERS = (0, 24, 27)  # packets, occupancy, watermark


def address(words):
    """Host and port of HOST:PORT."""
    host, port = words.rsplit(":", 1)
    return host, int(port)


def call(number, port, pri):
    """A strict call of get_queue_stats."""
    name = b"sai_thrift_get_queue_stats"
    queue = QUEUE << KIND_SHIFT | (port * PRIS + pri + 1)
    args = struct.pack(">BhqBhBi", 10, 1, queue, 15, 2, 8, len(COUNTERS))
    args += struct.pack(f">{len(COUNTERS)}i", *COUNTERS) + struct.pack(">BhiB", 8, 3, len(COUNTERS), 0)
    return struct.pack(">HHi", 0x8001, 1, len(name)) + name + struct.pack(">i", number) + args


def answer(stream, number):
    """Reads an answer, which must be a reply of as many counters."""
    head = stream.read(4 + 4 + 26 + 4)
    (seq,) = struct.unpack(">i", head[-4:])
    body = stream.read(3 + 5 + 8 * len(COUNTERS) + 1)
    assert head[3] == 2 and seq == number and body[:4] == b"\x0f\0\0\x0a", (head, body)


def events(where, counted, ready):
    """Keeps a page open, and counts what it is told."""
    with socket.create_connection(address(where), timeout=10) as page:
        page.sendall(f"GET /api/events HTTP/1.1\r\nHost: {where}\r\n\r\n".encode())
        stream = page.makefile("rb")
        status = stream.readline()
        assert b" 200 " in status, status
        ready.set()
        for line in stream:
            counted[0] += line.startswith(b"data:")


def main(sai, metrics, seconds):
    """Reads for as long as told."""
    counted, ready = [0], threading.Event()
    threading.Thread(target=events, args=(metrics, counted, ready), daemon=True).start()
    assert ready.wait(10), "no page"
    times, number, end = [], 0, time.monotonic() + float(seconds)
    with socket.create_connection(address(sai), timeout=10) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = client.makefile("rb")
        while time.monotonic() < end:
            for pri in range(QUEUES):
                number += 1
                began = time.perf_counter()
                client.sendall(call(number, 1, pri))
                answer(stream, number)
                times.append((time.perf_counter() - began) * 1e6)
            time.sleep(POLL_S)
    times.sort()
    print(json.dumps({"p99_us": times[int(len(times) * 0.99)], "calls": len(times), "events": counted[0]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
