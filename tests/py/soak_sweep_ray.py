#!/usr/bin/env python3
"""A sweep over a cluster of Ray's with two workers gives the bytes of one without; for `make soak`.

soak_sweep_ray.py WEFT, with the Python that has ray (.venv-ray); exit code 0 when all holds.

Source: docs/sweep.md.
"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WEFT = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else ROOT / "target/release/weft"
SCENARIO = """
until = "1ms"
[net]
generate = "single"
hosts = 4
rate_gbps = 400
link_m = 10
[endpoint]
pkt_format = "standard"
[[workload]]
kind = "permutation"
bytes = "64KiB"
"""
VARIED = ["s.toml", "--vary", "net.link_m=10,100", "--seeds", "1..3"]


class SweepOnRay(unittest.TestCase):
    """Each test has a folder with the scenario."""

    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="weft-ray-")
        self.addCleanup(self.scratch.cleanup)
        self.folder = pathlib.Path(self.scratch.name)
        (self.folder / "s.toml").write_text(SCENARIO)

    def run_in_folder(self, *command):
        """Runs a command; its exit code and what it said."""
        ran = subprocess.run([str(part) for part in command], cwd=self.folder, capture_output=True, text=True,
                             timeout=300, check=False)
        return ran.returncode, ran.stdout + ran.stderr

    def on_ray(self, *more):
        """The sweep on two workers."""
        return self.run_in_folder(sys.executable, ROOT / "tools/sweep_ray.py", "--weft", WEFT, "--cpus", "2",
                                  *VARIED, *more)

    def files(self, out):
        """Bytes of all results in a folder, by name."""
        return {path.name: path.read_bytes() for path in (self.folder / out).rglob("*") if path.is_file()}

    def test_two_workers_give_the_bytes_of_one_machine(self):
        """Results, table and page are equal; what is finished is not run again."""
        code, said = self.run_in_folder(WEFT, "sim", "sweep", *VARIED, "--out", "here")
        self.assertEqual(code, 0, said)
        code, said = self.on_ray("--out", "there")
        self.assertEqual(code, 0, said)
        here, there = self.files("here"), self.files("there")
        self.assertEqual(len(here), 6 + 2)
        self.assertEqual(here, there)
        job = next((self.folder / "there/jobs").iterdir())
        marked = job.read_bytes().replace(b'"weft": "', b'"weft": "kept ')
        job.write_bytes(marked)
        self.assertEqual(self.on_ray("--out", "there")[0], 0)
        self.assertEqual(job.read_bytes(), marked, "it was not run again")

    def test_a_job_that_fails_is_told_of_and_others_run_on(self):
        """A weft that ends without results for some jobs."""
        crippled = self.folder / "weft"
        crippled.write_text(f'#!/bin/sh\ncase "$*" in *"sim run"*seed=2*) echo no luck >&2; exit 3;; esac\n'
                            f'exec {WEFT} "$@"\n')
        crippled.chmod(0o755)
        code, said = self.on_ray("--weft", crippled, "--out", "out")
        self.assertEqual(code, 1, said)
        self.assertIn("exit code 3: no luck", said)
        self.assertIn("2 of 6 jobs failed", said)
        self.assertEqual(len(list((self.folder / "out/jobs").iterdir())), 4)


if __name__ == "__main__":
    unittest.main(verbosity=2)
