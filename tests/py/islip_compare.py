#!/usr/bin/env python3
"""Holds `weft model islip` against the independent iSLIP model, point by point.

Per (ports, iterations, load): means over seeds on both sides, table, exit 1 on a miss.

Units: throughput in cells per output and slot, delay in slots, differences in percent.
Source: docs/bench.md.

Both sides run the same number of slots a run, so that what is left of the start after the first
tenth is equal. Runs are added on each side, with new seeds, until the standard error of its mean
delay is below --noise percent (default 0.6), or --runs-max is reached (then the point fails as
noisy). With the default 50,000 slots this takes from 8 runs (low load) to about 64 (N = 8, L =
0.95): the difference has a standard error below 0.85 %, 3 % is more than 3.5 of them. The
reference side takes some 9 minutes of one core for the default points.
"""

import argparse
import json
import math
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from islip_ref import simulate

SEED_STEP = 1000


def mean_and_error(values):
    """Mean and its standard error."""
    mean = sum(values) / len(values)
    if len(values) < 2:
        return mean, math.inf
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


def run_weft(weft, ports, iterations, load, slots, seed):
    """One run of the binary; raises RuntimeError with its words when it fails."""
    command = [
        weft,
        "model",
        "islip",
        "--ports",
        str(ports),
        "--iterations",
        str(iterations),
        "--load",
        str(load),
        "--slots",
        str(slots),
        "--seed",
        str(seed),
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()[-400:]}")
    try:
        answer = json.loads(done.stdout)
        return float(answer["throughput"]), float(answer["mean_delay_slots"])
    except (ValueError, KeyError, TypeError) as err:
        raise RuntimeError(
            f"{' '.join(command)}: no throughput and mean_delay_slots in {done.stdout[:200]!r}"
        ) from err


def weft_point(weft, point, slots, noise, runs_max, pool):
    """(throughput, delay, delay error, runs) of the binary."""
    runs = []
    while True:
        seeds = range(len(runs) + 1, len(runs) + 9)
        runs += pool.map(lambda seed: run_weft(weft, *point, slots, seed), seeds)
        delay, error = mean_and_error([run[1] for run in runs])
        if error <= noise * abs(delay) or len(runs) >= runs_max:
            return sum(run[0] for run in runs) / len(runs), delay, error, len(runs)


def reference_point(point, slots, noise, runs_max):
    """(throughput, delay, delay error, runs) of the independent model; batches of replicas."""
    ports, iterations, load = point
    batch = max(8, 128 // ports)
    throughput, delay, variance, runs = [], [], [], 0
    while True:
        made = simulate(ports, iterations, load, slots, SEED_STEP + len(delay), batch)
        throughput.append(made["throughput"])
        delay.append(made["mean_delay_slots"])
        variance.append(made["delay_error"] ** 2)
        runs += batch
        error = math.sqrt(sum(variance)) / len(variance)
        mean = sum(delay) / len(delay)
        if error <= noise * mean or runs >= runs_max:
            return sum(throughput) / len(throughput), mean, error, runs


def percent(got, want):
    """Difference in percent of `want`."""
    return 100 * (got - want) / want if want else (0.0 if got == want else math.inf)


def main(argv=None):
    """Command line; exit 1 on a miss, 2 when the binary fails."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("weft", help="path of the weft binary")
    parser.add_argument("--ports", default="8,32")
    parser.add_argument("--iterations", default="1,2,4")
    parser.add_argument("--loads", default="0.5,0.7,0.8,0.9,0.95")
    parser.add_argument("--slots", type=int, default=50_000, help="of each run (default 50000)")
    parser.add_argument("--tolerance", type=float, default=3.0, help="percent (default 3)")
    parser.add_argument(
        "--noise", type=float, default=0.6, help="standard error of each mean delay, percent (default 0.6)"
    )
    parser.add_argument("--runs-max", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    args = parser.parse_args(argv)
    points = [
        (int(ports), int(iterations), float(load))
        for ports in args.ports.split(",")
        for iterations in args.iterations.split(",")
        for load in args.loads.split(",")
    ]
    noise, rows, missed = args.noise / 100, [], 0
    if not args.json:
        print(
            f"{'N':>3} {'I':>2} {'load':>5} | {'thr ref':>8} {'thr weft':>8} {'diff %':>7} | {'delay ref':>10} "
            f"{'delay weft':>10} {'diff %':>7} | {'noise %':>7} {'runs':>9}",
            flush=True,
        )
    with ProcessPoolExecutor(args.jobs) as ref_pool, ThreadPoolExecutor(args.jobs) as weft_pool:
        references = [
            ref_pool.submit(reference_point, point, args.slots, noise, args.runs_max) for point in points
        ]
        try:
            for point, reference in zip(points, references):
                weft = weft_point(args.weft, point, args.slots, noise, args.runs_max, weft_pool)
                ref = reference.result()
                thr_diff, delay_diff = percent(weft[0], ref[0]), percent(weft[1], ref[1])
                noisy = max(weft[2] / max(weft[1], 1e-12), ref[2] / max(ref[1], 1e-12)) > noise
                ok = abs(thr_diff) <= args.tolerance and abs(delay_diff) <= args.tolerance and not noisy
                missed += not ok
                error = 100 * math.hypot(weft[2], ref[2]) / max(ref[1], 1e-12)
                rows.append(
                    {
                        "ports": point[0],
                        "iterations": point[1],
                        "load": point[2],
                        "throughput_ref": ref[0],
                        "throughput": weft[0],
                        "throughput_diff_percent": thr_diff,
                        "delay_ref": ref[1],
                        "delay": weft[1],
                        "delay_diff_percent": delay_diff,
                        "noise_percent": error,
                        "ok": ok,
                    }
                )
                if not args.json:
                    note = "" if ok else "  NOISY" if noisy else "  MISS"
                    print(
                        f"{point[0]:3} {point[1]:2} {point[2]:5} | {ref[0]:8.4f} {weft[0]:8.4f} {thr_diff:+7.2f} | "
                        f"{ref[1]:10.4f} {weft[1]:10.4f} {delay_diff:+7.2f} | {error:7.2f} {ref[3]:4}/{weft[3]:<4}{note}",
                        flush=True,
                    )
        except (RuntimeError, OSError, subprocess.TimeoutExpired) as err:
            for reference in references:
                reference.cancel()
            print(f"islip_compare: {err}", file=sys.stderr)
            return 2
    if args.json:
        print(
            json.dumps(
                {"ok": not missed, "tolerance_percent": args.tolerance, "slots": args.slots, "points": rows}
            )
        )
    else:
        print(
            f"{len(rows) - missed} of {len(rows)} points within {args.tolerance} %, {args.slots} slots a run"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
