#!/usr/bin/env python3
"""weft beside other switches: the table of speeds, on the terminal and in bench/results.

side_by_side.py [ROW...] [--quick] [--rounds N] [--seconds S] -> table, JSON, markdown; exit 1 when a must is
missed, 2 when it cannot run.

Units: as the table says; seconds.
Runs as root in namespaces of its own (net, mount, pid), which are removed with it.
"""

import argparse
import os
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path[:0] = [os.path.join(ROOT, "tools"), HERE]

from beside import machine, result, row_latency, row_memory, row_own, row_read, row_tcp, row_veth, row_workers  # noqa: E402
from beside.bench import FAULTS, Bench  # noqa: E402
from beside.processes import Skip  # noqa: E402
from namespaces import enter, sh  # noqa: E402 - needs the path above

INSIDE = "WEFT_BENCH_INSIDE"
ROWS = (row_memory, row_veth, row_tcp, row_latency, row_workers, row_read, row_own)
HUGE_MIB = 1_280
BUSY_MAX = 0.05


def names():
    """All rows by name, in order."""
    return [name for row in ROWS for name in row.NAMES]


def chosen(words):
    """Rows that are named, or begin with what is named; all without a name."""
    found = [name for name in names() if not words or any(name.startswith(word) for word in words)]
    unknown = [word for word in words if not any(name.startswith(word) for name in names())]
    if unknown:
        raise SystemExit(f"side_by_side: no row {', '.join(unknown)}; there are {', '.join(names())}")
    return found


def arguments(argv):
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"or its beginning: {', '.join(names())}")
    built = os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "release")
    parser.add_argument("--tools", default=built, help="where weft-bench and weft-kit are")
    parser.add_argument("--weft", default=os.environ.get("WEFT_BIN"), help="default: beside the tools")
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement (default 1.5)")
    parser.add_argument("--results", default=os.path.join(HERE, "results"), help="folder for the result")
    parser.add_argument("--huge-mib", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    args.tools = os.path.abspath(args.tools)
    args.weft = os.path.abspath(args.weft or os.path.join(args.tools, "weft"))
    return args


def warn(bench, busy, when):
    """Warns that the figures are not reliable when others used the machine."""
    if busy > BUSY_MAX:
        bench.say(f"{when} the rows, others used {busy:.0%} of this machine: the figures are not reliable")


def run_row(bench, row, mine):
    """Runs rows of a module; where they cannot begin, a line gives the reason instead."""
    # Threads that are not pinned inherit the generator's core, except where hosts run freely.
    os.sched_setaffinity(0, set(bench.cores) if row in (row_tcp, row_own, row_workers) else {bench.cores[0]})
    try:
        row.run(bench, mine)
    except Skip as reason:
        bench.lines += [result.Line(name, name, "-", "", reason=str(reason)) for name in mine]
    except FAULTS as fault:
        reason = f"{type(fault).__name__}: {fault}"
        bench.lines += [result.Line(name, name, "-", "", reason=reason, failed=True) for name in mine]


def measure(args):
    """Inside: runs the rows; returns the exit code."""
    folder = "/run/weft-bench"
    os.makedirs(f"{folder}/huge")
    sh(f"mount -t hugetlbfs hugetlbfs {folder}/huge")
    facts = machine.facts(args.weft)
    cores = machine.cores()
    rounds = 1 if args.quick else args.rounds
    bench = Bench(folder, args.weft, args.tools, cores, rounds, args.seconds, args.huge_mib)
    warn(bench, facts["busy_at_start"], "before")
    before = bench.distance()
    wanted = chosen(args.rows)
    try:
        for row in ROWS:
            mine = [name for name in row.NAMES if name in wanted]
            if mine:
                run_row(bench, row, mine)
    finally:
        bench.processes.stop_all()
    facts |= {"rounds": rounds, "seconds": args.seconds, "cores": list(cores), "busy_at_end": machine.busy()}
    facts |= {"distances": [("the whole run", before, bench.distance()), *bench.distances]}
    facts |= {"configurations": list(bench.configs), "commands": bench.processes.commands}
    warn(bench, facts["busy_at_end"], "after")
    print(result.table(bench.lines), flush=True)
    paths = result.write(args.results, facts, bench.lines)
    verdicts = [line.verdict() for line in bench.lines]
    counts = ", ".join(f"{verdicts.count(word)} {word}" for word in ("ok", "MISS", "skip"))
    print(f"{counts}; written to {' and '.join(os.path.relpath(path) for path in paths)}")
    return 1 if "MISS" in verdicts else 0


def main(argv):
    """Command line; outside, takes huge pages and enters namespaces."""
    args = arguments(argv)
    chosen(args.rows)
    for path in (args.weft, f"{args.tools}/weft-bench", f"{args.tools}/weft-kit"):
        if not os.access(path, os.X_OK):
            print(f"side_by_side: {path} is missing; `make bench` builds it", file=sys.stderr)
            return 2
    if os.geteuid() != 0:
        print("side_by_side: needs root: huge pages, BPF, namespaces", file=sys.stderr)
        return 2
    # SIGTERM ends it as Ctrl-C does: huge pages are freed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.environ.get(INSIDE) == "1":
        return measure(args)
    with machine.huge_pages(HUGE_MIB) as mib:
        return enter(INSIDE, *argv, f"--huge-mib={mib}")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
