#!/usr/bin/env python3
"""Sends the frames of a capture out of an interface at a steady rate.

send_pcap.py IFACE PCAP [--pps N] -> one line of JSON when done.

Units: frames per second; bytes without FCS, sent as they are in the file (not padded).
Source: Linux packet(7); needs CAP_NET_RAW.
"""

import argparse
import json
import sys
import time

from tagmeta import MetaTag, RawPort
from weftpcap import CaptureError, read_capture

BURST_S = 0.002  # frames due within this time go out together, so that sleeping stays exact


def send_all(port, frames, pps):
    """Sends `frames` (bytes) at `pps` frames a second, 0 for as fast as it goes; returns the seconds it took."""
    start = time.perf_counter()
    for number, data in enumerate(frames):
        if pps:
            ahead = start + number / pps - time.perf_counter()
            if ahead > BURST_S:
                time.sleep(ahead)
        port.send(data)
    return time.perf_counter() - start


def main(argv=None):
    """Command line; exit 1 when a frame cannot be sent, 2 when the file cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("iface")
    parser.add_argument("pcap")
    parser.add_argument("--pps", type=float, default=5000, help="0: as fast as it goes (default 5000)")
    parser.add_argument("--skip", type=int, default=0, help="frames left out at the start (default 0)")
    parser.add_argument("--count", type=int, help="frames to send (default all)")
    parser.add_argument("--repeat", type=int, default=1, help="times the file is sent (default 1)")
    parser.add_argument("--meta-tag", metavar="VID:PCP", help="push this tag into metadata behind the socket")
    args = parser.parse_args(argv)
    try:
        frames = [frame.data for frame in read_capture(args.pcap)][args.skip :]
        frames = frames[: args.count] * args.repeat if args.count is not None else frames * args.repeat
    except CaptureError as err:
        print(f"send_pcap: {err}", file=sys.stderr)
        return 2
    tag, sent = None, 0
    try:
        if args.meta_tag:
            vid, pcp = (int(text) for text in args.meta_tag.split(":"))
            tag = MetaTag(args.iface, vid, pcp)
        with RawPort(args.iface, receive=False) as port:
            seconds = send_all(port, frames, args.pps)
        sent = len(frames)
    except (OSError, ValueError) as err:
        print(f"send_pcap: {args.iface}: {err}", file=sys.stderr)
        return 1
    finally:
        if tag:
            tag.close()
    print(json.dumps({"iface": args.iface, "sent": sent, "seconds": round(seconds, 6)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
