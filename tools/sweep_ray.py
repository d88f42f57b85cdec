#!/usr/bin/env python3
"""Runs the jobs of `weft sim sweep` on Ray: one remote task a job.

sweep_ray.py [--weft FILE] [--address ADDRESS] [--cpus N] FILE --vary ... --seeds ... --out DIR; all that is not
    an option of its own goes to `weft sim sweep`, which says what the jobs are (--list) and makes the table (--collect).
    Needs ray (tools/requirements-ray.txt), and scenario and weft at the same paths on all machines.

Source: docs/sweep.md.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile


def run_job(weft, args, folder):
    """Runs one job, on whichever machine; its results, or None and why there are none."""
    with tempfile.TemporaryDirectory(prefix="weft-job-") as scratch:
        results = pathlib.Path(scratch, "results.json")
        ran = subprocess.run([weft, *args, "--json", str(results)], cwd=folder, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        said = ran.stderr.decode(errors="replace").strip()[:2000]
        # Exit code 1 beside whole results: something was not as expected, which its row tells.
        if ran.returncode not in (0, 1) or not results.is_file():
            return None, f"exit code {ran.returncode}: {said}"
        return results.read_bytes(), None


def keep(results, path):
    """Writes results beside their name first, so that a file of that name is always whole."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.part")
    beside.write_bytes(results)
    os.replace(beside, path)


def sweep(weft, rest, *more):
    """`weft sim sweep` with the caller's arguments and some more."""
    return [weft, "sim", "sweep", *rest, *more]


def main():
    """Lists, runs, collects; exit code 1 when a job failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--weft", default="weft", help="the binary, at the same path on all machines")
    parser.add_argument("--address", help="a Ray cluster; without, one is started on this machine")
    parser.add_argument("--cpus", type=int, help="workers of a cluster that is started here")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder of the results")
    own, rest = parser.parse_known_args()
    rest += ["--out", str(own.out)]
    listed = subprocess.run(sweep(own.weft, rest, "--list"), stdout=subprocess.PIPE, check=False)
    if listed.returncode != 0:
        return listed.returncode
    jobs = [json.loads(line) for line in listed.stdout.splitlines()]
    todo = [job for job in jobs if not job["finished"]]
    folder = own.out / "jobs"
    folder.mkdir(parents=True, exist_ok=True)
    if todo:
        run_all(own, todo, folder)
    return subprocess.run(sweep(own.weft, rest, "--collect"), check=False).returncode


def run_all(own, todo, folder):
    """Runs jobs as Ray tasks, and keeps the results of each as soon as it has ended."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would tell its makers of each cluster
    import ray  # only here: what is finished is collected without it

    ray.init(address=own.address, num_cpus=None if own.address else own.cpus, include_dashboard=None if own.address
             else False, log_to_driver=False, logging_level="warning")
    try:
        task = ray.remote(num_cpus=1, max_retries=2)(run_job)
        waiting = {task.remote(own.weft, job["args"], os.getcwd()): job for job in todo}
        while waiting:
            ended, _ = ray.wait(list(waiting), num_returns=1)
            for ref in ended:
                job = waiting.pop(ref)
                try:
                    results, why = ray.get(ref)
                except ray.exceptions.RayError as error:
                    results, why = None, str(error).splitlines()[0]
                if results is None:
                    print(f"failed: {job['words']}: {why}", file=sys.stderr)
                else:
                    keep(results, folder / f"{job['job']}.json")
    finally:
        ray.shutdown()


if __name__ == "__main__":
    sys.exit(main())
