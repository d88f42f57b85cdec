#!/usr/bin/env python3
"""Checks every MAC control frame of a capture field by field, and that each PAUSE has its XON.

CAPTURE -> JSON with counts per class; exit 1 with the first problems when one is wrong.

Units: quanta of 512 bit times; bytes without FCS.
Source: docs/spec/wire-formats.md §2.3; docs/spec/pipeline.md §9; IEEE 802.3 31B/31D, 802.1Q 36.
"""

import argparse
import json
import sys

import weftbuild as w
from weftpcap import CaptureError, iter_capture

PAD_AT = 34  # first byte of the pad


def problems_of(data, sa, quanta_set):
    """Every field of a PFC frame that is not as the standard or `sa` and `quanta_set` want it."""
    found = []
    if data[:6] != w.MAC_CONTROL_DA:
        found.append(f"DA {data[:6].hex(':')}, not 01:80:c2:00:00:01")
    if sa is not None and data[6:12] != sa:
        found.append(f"SA {data[6:12].hex(':')}, not {sa.hex(':')}")
    if data[6] & 1:
        found.append(f"SA {data[6:12].hex(':')} is a group address")
    if len(data) != w.MIN_FRAME:
        found.append(f"{len(data)} bytes, not {w.MIN_FRAME}")
    opcode = int.from_bytes(data[14:16], "big")
    if opcode != w.OP_PFC:
        return [*found, f"opcode {opcode:#06x}, not 0x0101"]
    if len(data) < PAD_AT:
        return [*found, "too short for its times"]
    if data[16]:
        found.append(f"high byte of the vector is {data[16]:#04x}")
    if not data[17]:
        found.append("vector enables no class")
    for cls, quanta in enumerate(times_of(data)):
        if data[17] >> cls & 1 and quanta_set and quanta not in quanta_set:
            found.append(
                f"class {cls}: quanta {quanta:#06x}, allowed {', '.join(hex(q) for q in sorted(quanta_set))}"
            )
        if not data[17] >> cls & 1 and quanta:
            found.append(f"class {cls}: time {quanta:#06x} but its enable bit is clear")
    if any(data[PAD_AT:]):
        found.append("pad is not zero")
    return found


def times_of(data):
    """The 8 times of a PFC frame."""
    return [int.from_bytes(data[18 + 2 * cls : 20 + 2 * cls], "big") for cls in range(8)]


class Classes:
    """What happened to each class of each sender."""

    def __init__(self):
        self.rows = {}

    def frame(self, number, ts_ns, data):
        """Takes one valid PFC frame."""
        for cls, quanta in enumerate(times_of(data)):
            if not data[17] >> cls & 1:
                continue
            row = self.rows.setdefault(
                (data[6:12].hex(":"), cls),
                {
                    "pause": 0,
                    "refresh": 0,
                    "xon": 0,
                    "xon_without_pause": 0,
                    "open_since": None,
                    "paused_ns": 0,
                    "start": 0,
                },
            )
            opened = row["open_since"] is not None
            if quanta:
                row["refresh" if opened else "pause"] += 1
                if not opened:
                    row["open_since"], row["start"] = number, ts_ns
            elif opened:
                row["xon"] += 1
                row["paused_ns"] += ts_ns - row["start"]
                row["open_since"] = None
            else:
                row["xon_without_pause"] += 1

    def summary(self):
        """Rows for printing, and a line for each PAUSE that was left open."""
        rows, left = [], []
        for (sa, cls), row in sorted(self.rows.items()):
            rows.append(
                {
                    "sa": sa,
                    "class": cls,
                    **{
                        key: row[key] for key in ("pause", "refresh", "xon", "xon_without_pause", "paused_ns")
                    },
                    "open": row["open_since"] is not None,
                }
            )
            if row["open_since"] is not None:
                left.append(f"{sa} class {cls}: PAUSE of frame {row['open_since']} never had its XON")
        return rows, left


def check(frames, sa=None, quanta_set=frozenset({0, 0xFFFF}), min_pauses=1, allow_open=False):
    """Checks frames in their order; returns the result as a dict with key `problems`."""
    problems, classes, control, count = [], Classes(), 0, 0
    for number, frame in enumerate(frames):
        count += 1
        data = frame.data
        if data[12:14] == b"\x81\x00" and data[16:18] == b"\x88\x08":
            problems.append(f"frame {number}: MAC control with a VLAN tag")
        if data[12:14] != b"\x88\x08":
            continue
        control += 1
        bad = problems_of(data, sa, quanta_set)
        if frame.truncated:
            bad.append("cut in the capture")
        problems += [f"frame {number}: {text}" for text in bad]
        if len(data) >= PAD_AT and data[14:16] == b"\x01\x01":
            classes.frame(number, frame.ts_ns, data)
    rows, left = classes.summary()
    if not allow_open:
        problems += left
    pauses = sum(row["pause"] for row in rows)
    if pauses < min_pauses:
        problems.append(f"{pauses} PAUSE, at least {min_pauses} wanted")
    return {
        "frames": count,
        "mac_control": control,
        "pauses": pauses,
        "refreshes": sum(row["refresh"] for row in rows),
        "xons": sum(row["xon"] for row in rows),
        "classes": rows,
        "problems": problems,
    }


def main(argv=None):
    """Command line; exit 1 on any problem, 2 when the file cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("capture", nargs="+", help="captures of one direction each, checked one by one")
    parser.add_argument("--sa", help="address that the frames must come from (the port's MAC)")
    parser.add_argument("--quanta", default="0,0xffff", help="allowed times, or any (default 0,0xffff)")
    parser.add_argument("--min-pauses", type=int, default=1, help="least number of PAUSEs (default 1)")
    parser.add_argument("--allow-open", action="store_true", help="a PAUSE may be open at the end")
    parser.add_argument("--show", type=int, default=10, help="problems shown of each capture (default 10)")
    args = parser.parse_args(argv)
    try:
        quanta = (
            frozenset()
            if args.quanta == "any"
            else frozenset(int(text, 0) for text in args.quanta.split(","))
        )
        sa = w.mac(args.sa) if args.sa else None
    except ValueError as err:
        parser.error(str(err))
    ok, results = True, []
    try:
        for path in args.capture:
            result = check(iter_capture(path), sa, quanta, args.min_pauses, args.allow_open)
            ok &= not result["problems"]
            problems = result.pop("problems")
            results.append(
                {"capture": path, **result, "problem_count": len(problems), "first": problems[: args.show]}
            )
    except CaptureError as err:
        print(f"check_pfc: {err}", file=sys.stderr)
        return 2
    print(json.dumps({"ok": ok, "captures": results}, indent=1))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
