#!/usr/bin/env python3
"""Independent iSLIP model: accepted throughput and mean delay under uniform Bernoulli arrivals.

R replicas side by side; per output a bit mask of asking inputs, per slot vectors of R x N.

Units: slots; delay 0 = served in the slot of arrival; throughput in cells per output and slot.
Source: N. McKeown, "The iSLIP scheduling algorithm for input-queued switches", 1999.
"""

import argparse
import json
import math
import sys
import time

import numpy as np

PORTS_MAX = 64
CHUNK = 2048  # slots whose arrivals are drawn at once
ONE = np.uint64(1)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


class Crossbar:
    """iSLIP matching of R independent switches of N ports; bit i of asking[r, j] is VOQ (i, j) non-empty."""

    def __init__(self, replicas, ports, iterations):
        self.shape, self.iterations = (replicas, ports), iterations
        self.grant_ptr = np.zeros(self.shape, np.uint64)
        self.accept_ptr = np.zeros(self.shape, np.uint64)
        self.full = np.uint64((1 << ports) - 1)
        self.ports = np.uint64(ports)
        self.bit = np.broadcast_to(ONE << np.arange(ports, dtype=np.uint64), self.shape)

    @staticmethod
    def first_from(mask, pointer):
        """Number of the first set bit of each non-zero mask at or after its pointer, cyclic."""
        upper = mask & (ALL << pointer)
        pick = np.where(upper != 0, upper, mask)
        # Lowest set bit alone; the ones below it are its number.
        return np.bitwise_count((pick & (~pick + ONE)) - ONE).astype(np.uint64)

    def match(self, asking):
        """One slot: gives (r, i, j) of all matched pairs and moves the pointers."""
        replicas, ports = self.shape
        free_in = np.full((replicas, 1), self.full, np.uint64)
        free_out = np.full(self.shape, True)
        flat = replicas * ports
        matched_r, matched_i, matched_j = [], [], []
        for iteration in range(self.iterations):
            request = np.where(free_out, asking & free_in, np.uint64(0))
            out_r, out_j = np.nonzero(request)
            if not len(out_r):
                break
            # Grant: each free output picks one asking input.
            chosen_i = self.first_from(request[out_r, out_j], self.grant_ptr[out_r, out_j])
            grants = np.zeros(flat, np.uint64)
            np.bitwise_or.at(grants, out_r * ports + chosen_i.astype(np.int64), self.bit[out_r, out_j])
            # Accept: each granted input picks one output.
            at = np.nonzero(grants)[0]
            in_r, in_i = at // ports, at % ports
            chosen_j = self.first_from(grants[at], self.accept_ptr.ravel()[at])
            j = chosen_j.astype(np.int64)
            if iteration == 0:
                # Pointers move only for what the first iteration matched, to one past it.
                self.accept_ptr[in_r, in_i] = (chosen_j + ONE) % self.ports
                self.grant_ptr[in_r, j] = (in_i.astype(np.uint64) + ONE) % self.ports
            free_out[in_r, j] = False
            np.bitwise_and.at(free_in[:, 0], in_r, ~self.bit[0, in_i])
            matched_r.append(in_r)
            matched_i.append(in_i)
            matched_j.append(j)
        if not matched_r:
            empty = np.empty(0, np.int64)
            return empty, empty, empty
        return np.concatenate(matched_r), np.concatenate(matched_i), np.concatenate(matched_j)


def arrivals(rng, replicas, ports, load, slots):
    """Draws `slots` slots of arrivals: destination per input, or -1."""
    to = rng.integers(0, ports, (slots, replicas, ports), dtype=np.int16)
    to[rng.random((slots, replicas, ports)) >= load] = -1
    return to


class Run:
    """Queues of R switches, and what is measured."""

    def __init__(self, ports, iterations, replicas=1, crossbar=None):
        self.ports, self.replicas = ports, replicas
        self.crossbar = crossbar or Crossbar(replicas, ports, iterations)
        self.length = np.zeros(replicas * ports * ports, np.int32)  # of VOQ (r, i, j)
        self.asking = np.zeros((replicas, ports), np.uint64)
        self.arrived, self.left = [], []  # per slot: numbers of the VOQs
        self.rows = (np.arange(replicas)[:, None] * ports + np.arange(ports)) * ports

    def slot(self, to):
        """One slot: arrivals `to[r, i]`, then matching, then departures."""
        ports = self.ports
        r, i = np.nonzero(to >= 0)
        j = to[r, i].astype(np.int64)
        voq = (r * ports + i) * ports + j
        self.length[voq] += 1  # one arrival per input: no VOQ twice
        np.bitwise_or.at(self.asking, (r, j), self.crossbar.bit[0, i])
        self.arrived.append(voq.astype(np.int32))
        r, i, j = self.crossbar.match(self.asking)
        voq = (r * ports + i) * ports + j
        self.length[voq] -= 1
        empty = self.length[voq] == 0
        self.asking[r[empty], j[empty]] &= ~self.crossbar.bit[0, i[empty]]
        self.left.append(voq.astype(np.int32))

    def result(self, warmup):
        """Per replica: cells that left from slot `warmup` on, and the sum of their delays.

        VOQs are FIFO, so that the k-th cell to leave a VOQ is the k-th that arrived there.
        """
        came, came_slot = _flatten(self.arrived)
        gone, gone_slot = _flatten(self.left)
        came_order, gone_order = np.argsort(came, kind="stable"), np.argsort(gone, kind="stable")
        voqs = self.length.size
        came_start = np.concatenate(([0], np.cumsum(np.bincount(came, minlength=voqs))))
        gone_start = np.concatenate(([0], np.cumsum(np.bincount(gone, minlength=voqs))))
        sorted_gone = gone[gone_order]
        rank = np.arange(len(gone)) - gone_start[sorted_gone]
        delay = gone_slot[gone_order] - came_slot[came_order][came_start[sorted_gone] + rank]
        measured = gone_slot[gone_order] >= warmup
        replica = sorted_gone[measured] // (self.ports * self.ports)
        cells = np.bincount(replica, minlength=self.replicas)
        return cells, np.bincount(replica, weights=delay[measured], minlength=self.replicas)


def _flatten(per_slot):
    counts = [len(voqs) for voqs in per_slot]
    return np.concatenate(per_slot), np.repeat(np.arange(len(per_slot), dtype=np.int32), counts)


def simulate(ports, iterations, load, slots, seed, replicas=1):
    """Runs `replicas` switches for `slots` slots each; discards the first tenth of the slots.

    Errors are one standard error over the replicas, None with one.
    """
    rng = np.random.default_rng(seed)
    run, done = Run(ports, iterations, replicas), 0
    while done < slots:
        now = min(CHUNK, slots - done)
        for to in arrivals(rng, replicas, ports, load, now):
            run.slot(to)
        done += now
    warmup = slots // 10
    cells, delay = run.result(warmup)
    throughput = cells / (ports * (slots - warmup))
    mean = delay / np.maximum(cells, 1)
    error = (
        (lambda values: float(values.std(ddof=1) / math.sqrt(replicas))) if replicas > 1 else lambda _: None
    )
    return {
        "ports": ports,
        "iterations": iterations,
        "load": load,
        "slots": slots,
        "seed": seed,
        "replicas": replicas,
        "throughput": float(throughput.mean()),
        "mean_delay_slots": float(delay.sum() / max(1, cells.sum())),
        "throughput_error": error(throughput),
        "delay_error": error(mean),
        "departures": int(cells.sum()),
    }


def main(argv=None):
    """Command line; see --help."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ports", type=int, required=True)
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--load", type=float, required=True, help="cells per input and slot, 0..1")
    parser.add_argument("--slots", type=int, default=100_000, help="per replica (default 100000)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replicas", type=int, default=1, help="independent switches, averaged (default 1)")
    args = parser.parse_args(argv)
    if not (
        1 <= args.ports <= PORTS_MAX
        and args.iterations >= 1
        and 0 <= args.load <= 1
        and args.slots >= 10
        and args.replicas >= 1
    ):
        parser.error(f"ports 1..{PORTS_MAX}, iterations from 1, load 0..1, slots from 10, replicas from 1")
    start = time.monotonic()
    result = simulate(args.ports, args.iterations, args.load, args.slots, args.seed, args.replicas)
    result["seconds"] = round(time.monotonic() - start, 3)
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
