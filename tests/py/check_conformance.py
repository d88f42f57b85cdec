#!/usr/bin/env python3
"""Checks what came out of the switch against the expectations of make_conformance.py.

INDIR/<set>/<port>.pcap[ng], INDIR/<set>.<port>.pcap[ng] or, for one set, INDIR/<port>.pcap[ng].

Units: bytes without FCS; a frame is right when equal to the sent one after zero padding to 60.
Source: docs/spec/pipeline.md §2, §8; RFC 1624 for marked frames.
"""

import argparse
import json
import os
import sys
from collections import Counter, defaultdict

import weftbuild as w
from weftpcap import CaptureError, find_capture, read_capture
from weftpri import pri_of_frame


class Findings:
    """Differences by kind; the first few of each are kept as text."""

    def __init__(self, show):
        self.show, self.counts, self.texts = show, Counter(), []

    def add(self, kind, text):
        """Notes one difference."""
        self.counts[kind] += 1
        if self.counts[kind] <= self.show:
            self.texts.append(f"{kind}: {text}")


def is_marked_copy(want, got):
    """True if `got` is ECT frame `want` marked CE with a valid IPv4 checksum, and nothing else."""
    at = w.ipv4_offset(want)
    if (
        at is None
        or len(got) != len(want)
        or want[at + 1] & 3 not in (1, 2)
        or got[at + 1] != want[at + 1] | 3
    ):
        return False
    same = (
        got[: at + 1] == want[: at + 1]
        and got[at + 2 : at + 10] == want[at + 2 : at + 10]
        and got[at + 12 :] == want[at + 12 :]
    )
    header = got[at : at + (got[at] & 15) * 4]
    return (
        same
        and w.ones_sum(header) == 0xFFFF
        and w.ipv4_checksum(header) == int.from_bytes(header[10:12], "big")
    )


def difference(want, got):
    """One line about the first byte that differs."""
    if len(want) != len(got):
        return f"length {len(got)}, expected {len(want)}"
    at = next(n for n, (a, b) in enumerate(zip(want, got)) if a != b)
    lo = max(0, at - 4)
    return f"byte {at}: got {got[lo : at + 8].hex(' ')}, expected {want[lo : at + 8].hex(' ')} (from byte {lo})"


class SetCheck:
    """Checks the captures of one set."""

    def __init__(self, expect, sent, priorities, findings, allow_foreign=False):
        self.expect, self.priorities, self.findings, self.allow_foreign = (
            expect,
            priorities,
            findings,
            allow_foreign,
        )
        self.rows = expect["frames"]
        self.sent = [w.pad60(frame.data) for frame in sent]
        self.marked = self.foreign = self.right = 0
        if len(self.sent) != len(self.rows):
            raise CaptureError(
                f"{expect['capture']}: {len(self.sent)} frames, expectation has {len(self.rows)}"
            )

    def sequence(self, data):
        """Number of the sent frame that `data` claims to be, or None."""
        at = self.expect["seq_offset"]
        if len(data) < at + 4 or data[at] != self.expect["seq_code"]:
            return None
        seq = int.from_bytes(data[at + 1 : at + 4], "big")
        return seq if seq < len(self.rows) else None

    def port(self, port, frames):
        """Checks the frames that left by `port`, in their order."""
        name, seen, last, counts = self.expect["set"], Counter(), {}, Counter()
        mode, order = self.expect["port_mode"], self.expect["gen2_order"]
        for number, frame in enumerate(frames):
            where = f"{name} {port} frame {number}"
            seq = self.sequence(frame.data)
            if seq is None:
                if self.allow_foreign:
                    self.foreign += 1
                else:
                    self.findings.add(
                        "unknown frame", f"{where}: {len(frame.data)} bytes {frame.data[:32].hex(' ')}"
                    )
                continue
            row, want = self.rows[seq], self.sent[seq]
            seen[seq] += 1
            if port not in row["out"]:
                self.findings.add(
                    "wrong port", f"{where}: number {seq} from {row['in']} belongs to {','.join(row['out'])}"
                )
                continue
            if seen[seq] > 1:
                self.findings.add("duplicate", f"{where}: number {seq} a second time")
                continue
            if frame.truncated:
                self.findings.add("truncated", f"{where}: number {seq} is cut in the capture")
            elif frame.data == want:
                self.right += 1
            elif is_marked_copy(want, frame.data):
                self.right += 1
                self.marked += 1
            else:
                self.findings.add(
                    "bytes differ",
                    f"{where}: number {seq}, size {row['size']}: {difference(want, frame.data)}",
                )
            pri = row[f"pri{self.priorities}"]
            before = last.get((row["in"], pri), -1)
            if seq < before:
                self.findings.add(
                    "order", f"{where}: number {seq} after {before}, both {row['in']} priority {pri}"
                )
            last[row["in"], pri] = max(seq, before)
            if len(frame.data) >= 20:
                counts[str(pri_of_frame(frame.data, mode, self.priorities, order))] += 1
        for seq, row in enumerate(self.rows):
            if port in row["out"] and not seen[seq]:
                self.findings.add(
                    "lost", f"{name}: number {seq} from {row['in']}, size {row['size']}, never left by {port}"
                )
        want_counts = self.expect["counts"][str(self.priorities)]["out_per_port"][port]
        if dict(counts) != want_counts:
            self.findings.add(
                "counts",
                f"{name} {port}: per priority {dict(sorted(counts.items()))}, expected {want_counts}",
            )
        return counts


def captures_of(indir, expect, alone):
    """Paths of the captures of one set by port; raises CaptureError when one is missing."""
    found = {}
    for port in expect["ports"]:
        stems = [os.path.join(indir, expect["set"], port), os.path.join(indir, f"{expect['set']}.{port}")]
        stems += [os.path.join(indir, port)] if alone else []
        path = next((path for path in map(find_capture, stems) if path), None)
        if path is None:
            raise CaptureError(
                f"no capture for port {port} of {expect['set']}: looked for {', '.join(stems)}.pcap[ng]"
            )
        found[port] = path
    return found


def check_set(indir, expect_path, alone, priorities, findings, allow_foreign=False):
    """Checks one set; returns its summary."""
    with open(expect_path, encoding="ascii") as file:
        expect = json.load(file)
    sent = read_capture(os.path.join(os.path.dirname(expect_path), expect["capture"]))
    check = SetCheck(expect, sent, priorities, findings, allow_foreign)
    total = defaultdict(int)
    for port, path in captures_of(indir, expect, alone).items():
        for pri, count in check.port(port, read_capture(path)).items():
            total[pri] += count
    want = sum(expect["counts"][str(priorities)]["out"].values())
    return {
        "set": expect["set"],
        "expected": want,
        "right": check.right,
        "marked": check.marked,
        "foreign": check.foreign,
        "per_priority": dict(sorted(total.items())),
    }


def main(argv=None):
    """Command line; exit 1 on any difference, 2 when files cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("indir", help="folder with a capture per output port (see the head of this file)")
    parser.add_argument("expect", nargs="+", help="SET.expect.json, beside the captures that were sent")
    parser.add_argument("--priorities", type=int, choices=(4, 8), default=4)
    parser.add_argument(
        "--allow-foreign", action="store_true", help="pass over frames without our number (live hosts)"
    )
    parser.add_argument("--show", type=int, default=10, help="differences shown of each kind (default 10)")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON object")
    args = parser.parse_args(argv)
    findings, summaries = Findings(args.show), []
    try:
        for path in args.expect:
            alone = len(args.expect) == 1
            summaries.append(
                check_set(args.indir, path, alone, args.priorities, findings, args.allow_foreign)
            )
    except (CaptureError, OSError, json.JSONDecodeError, KeyError) as err:
        print(
            f"check_conformance: {err!r}" if isinstance(err, KeyError) else f"check_conformance: {err}",
            file=sys.stderr,
        )
        return 2
    ok = not findings.counts
    if args.json:
        print(
            json.dumps(
                {"ok": ok, "sets": summaries, "differences": dict(findings.counts), "first": findings.texts}
            )
        )
        return 0 if ok else 1
    for row in summaries:
        print(
            f"{row['set']}: {row['right']} of {row['expected']} frames right, {row['marked']} marked CE, "
            f"per priority {row['per_priority']}"
        )
    for text in findings.texts:
        print(text)
    if not ok:
        print(
            "differences: " + ", ".join(f"{count} {kind}" for kind, count in sorted(findings.counts.items()))
        )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
