#!/usr/bin/env python3
"""Checks ECN marking: captures before and after the switch, and the depths that a trace shows.

CAPTURE_IN and CAPTURE_OUT (comma-separated lists), optional trace of JSON lines (ev "deq").

Units: frames; depth, low and high of the trace in one unit (bytes); ratios 0..1.
Source: docs/spec/pipeline.md §8; docs/spec/wire-formats.md §2.4; RFC 3168 5, RFC 1624.
"""

import argparse
import json
import sys
from hashlib import blake2b

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.utils import checksum as scapy_checksum

import weftbuild as w
from weftpcap import CaptureError, iter_capture


def ip_place(frame):
    """(version, offset) of an IP header over at most one tag; None when there is none."""
    at = w.ipv4_offset(frame)
    if at is not None:
        return 4, at
    start = 16 if frame[12:14] == b"\x81\x00" else 12
    if frame[start : start + 2] == b"\x86\xdd" and len(frame) >= start + 42:
        return 6, start + 2
    return None


def split_ecn(frame):
    """(bytes with ECN and IPv4 checksum cleared, ECN); ECN None when it is not IP."""
    place = ip_place(frame)
    if place is None:
        return w.pad60(frame), None
    version, at = place
    data = bytearray(w.pad60(frame))
    if version == 4:
        ecn = data[at + 1] & 3
        data[at + 1] &= 0xFC
        data[at + 10] = data[at + 11] = 0
    else:
        ecn = data[at + 1] >> 4 & 3
        data[at + 1] &= 0xCF
    return bytes(data), ecn


def checksum_right(frame):
    """True if scapy finds the IPv4 header checksum right; True also without IPv4."""
    place = ip_place(frame)
    if place is None or place[0] == 6:
        return True
    at = place[1]
    return scapy_checksum(frame[at : at + (frame[at] & 15) * 4]) == 0


def scapy_agrees(frame):
    """Rebuilds the header with scapy and compares checksum and ECN; for the marked frames."""
    version, at = ip_place(frame)
    if version == 6:
        return IPv6(frame[at:]).tc & 3 == 3
    packet = IP(frame[at : at + (frame[at] & 15) * 4])
    want = packet.chksum
    del packet.chksum
    return IP(bytes(packet)).chksum == want and packet.tos & 3 == 3


def read_all(paths):
    """Yields the frames of a comma-separated list of captures."""
    for path in paths.split(","):
        for frame in iter_capture(path):
            yield frame.data


NOT_IP = 4  # place in a row of counts, after the four ECN values


def check_captures(sent, got, allow_loss, problems):
    """Holds both sides against each other; returns counts.

    Frames are paired by all their bytes but ECN and IPv4 checksum; per such group the numbers of
    each ECN value before and after are compared, so that equal frames do not disturb.
    """
    rows, before, after, odd, received = {}, [0] * 5, [0] * 5, 0, 0
    for number, frame in enumerate(sent):
        key, ecn = split_ecn(frame)
        row = rows.setdefault(blake2b(key, digest_size=16).digest(), [number] + [0] * 10)
        row[1 + (NOT_IP if ecn is None else ecn)] += 1
        before[NOT_IP if ecn is None else ecn] += 1
    for number, frame in enumerate(got):
        received += 1
        if not checksum_right(frame):
            problems.append(f"out frame {number}: IPv4 header checksum is wrong: {frame[:40].hex(' ')}")
        key, ecn = split_ecn(frame)
        after[NOT_IP if ecn is None else ecn] += 1
        row = rows.get(blake2b(key, digest_size=16).digest())
        if row is None:
            odd += 1
            problems.append(f"out frame {number}: nothing like it was sent: {frame[:40].hex(' ')}")
            continue
        row[6 + (NOT_IP if ecn is None else ecn)] += 1
        if ecn == 3 and not row[4] and not scapy_agrees(frame):
            problems.append(f"out frame {number}: scapy builds the marked header otherwise")
    marked = lost = 0
    for first, *counts in rows.values():
        were, are = counts[:5], counts[5:]
        text = f"in frame {first} and its equals: in {name_counts(were)}, out {name_counts(are)}"
        new_ce = max(0, are[3] - were[3])
        missing = sum(were) - sum(are)
        if missing < 0:
            problems.append(f"more came out than went in: {text}")
        if any(are[ecn] > were[ecn] for ecn in (0, 1, 2, NOT_IP)):
            problems.append(f"an ECN field changed to other than CE: {text}")
        if new_ce > were[1] + were[2] - are[1] - are[2]:
            problems.append(f"more CE than ECT frames that could be marked (Not-ECT marked?): {text}")
        if not allow_loss and (are[0] < were[0] or are[3] < were[3] or missing > 0):
            problems.append(f"Not-ECT or CE frames changed, or frames lost: {text}")
        marked += new_ce
        lost += max(0, missing)
    return {
        "in": sum(before),
        "out": received,
        "marked": marked,
        "lost": lost,
        "unknown": odd,
        "in_ecn": name_counts(before),
        "out_ecn": name_counts(after),
    }


def name_counts(counts):
    """Counts by ECN with names."""
    return {name: count for name, count in zip(("not_ect", "ect1", "ect0", "ce", "not_ip"), counts) if count}


def probability(depth, low, high, max_percent=100):
    """Marking probability of the formula."""
    if depth < low:
        return 0.0
    return 1.0 if depth >= high else max_percent / 100 * (depth - low) / (high - low)


def check_trace(lines, mid_bins, least, points, exact_ends, problems):
    """Holds marking per depth bin against the formula; returns a row per bin."""
    bins = {name: [0, 0, 0.0] for name in ["below", *[f"mid{n}" for n in range(mid_bins)], "above"]}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            event = json.loads(line)
            if event.get("ev") != "deq" or "ect" not in event:
                continue
            depth, low, high, ect, marked = (event[key] for key in ("depth", "low", "high", "ect", "marked"))
        except (ValueError, KeyError, AttributeError) as err:
            problems.append(f"trace line {number}: {err!r} in {line[:120]!r}")
            continue
        if not ect:
            if marked:
                problems.append(f"trace line {number}: a frame that is not ECT was marked")
            continue
        share = probability(depth, low, high, event.get("max_percent", 100))
        if depth < low:
            name = "below"
        elif depth >= high:
            name = "above"
        else:
            name = f"mid{min(mid_bins - 1, int((depth - low) / (high - low) * mid_bins))}"
        if exact_ends and (name == "below" and marked or name == "above" and not marked):
            problems.append(f"trace line {number}: depth {depth} {name} the thresholds, marked {marked}")
        row = bins[name]
        row[0] += 1
        row[1] += bool(marked)
        row[2] += share
    rows = []
    for name, (samples, marked, share) in bins.items():
        ratio, want = (marked / samples, share / samples) if samples else (0.0, 0.0)
        rows.append(
            {
                "bin": name,
                "samples": samples,
                "marked": marked,
                "ratio": round(ratio, 5),
                "formula": round(want, 5),
            }
        )
        if samples < least:
            problems.append(f"bin {name}: {samples} ECT samples, at least {least} wanted")
        elif abs(ratio - want) > points / 100:
            problems.append(
                f"bin {name}: {ratio:.4f} marked, formula {want:.4f}, more than {points} points apart"
            )
    return rows


def main(argv=None):
    """Command line; exit 1 on any problem, 2 when files cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture_in", help="what was sent, comma-separated when several; - for none")
    parser.add_argument("capture_out", help="what came out, comma-separated when several; - for none")
    parser.add_argument("trace", nargs="?", help="JSON lines with ev deq")
    parser.add_argument("--min", type=int, default=10_000, help="least ECT samples per bin (default 10000)")
    parser.add_argument(
        "--points", type=float, default=2.0, help="allowed difference per bin in points (default 2)"
    )
    parser.add_argument("--mid-bins", type=int, default=1, help="bins between low and high (default 1)")
    parser.add_argument(
        "--exact-ends", action="store_true", help="below low never a mark, from high on always"
    )
    parser.add_argument("--allow-loss", action="store_true", help="frames may be missing in CAPTURE_OUT")
    parser.add_argument(
        "--min-marked", type=int, default=0, help="least marked frames in the captures (default 0)"
    )
    parser.add_argument("--show", type=int, default=10, help="problems shown (default 10)")
    args = parser.parse_args(argv)
    if (
        (args.capture_in == "-") != (args.capture_out == "-")
        or args.capture_in == "-"
        and not args.trace
        or args.mid_bins < 1
    ):
        parser.error("give both captures, or - - and a trace; at least one middle bin")
    problems, result = [], {}
    try:
        if args.capture_in != "-":
            sent, got = read_all(args.capture_in), read_all(args.capture_out)
            result["captures"] = check_captures(sent, got, args.allow_loss, problems)
            marked, out = result["captures"]["marked"], result["captures"]["out"]
            if not out or marked < args.min_marked:
                problems.append(f"{marked} marked of {out} frames, at least {args.min_marked} wanted")
        if args.trace:
            with open(args.trace, encoding="utf-8") as file:
                result["bins"] = check_trace(
                    file, args.mid_bins, args.min, args.points, args.exact_ends, problems
                )
    except (CaptureError, OSError) as err:
        print(f"check_ecn: {err}", file=sys.stderr)
        return 2
    result.update(ok=not problems, problems=len(problems), first=problems[: args.show])
    print(json.dumps(result, indent=1))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
