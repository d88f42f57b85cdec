"""weft-kit's tools at the ends of the wires.

Kit.generate, .probe end by themselves; Kit.attached(...) answers `ask()` until its block ends.

Units: bytes without FCS, frames a second, seconds, ns.
Source: bench/src/bin/weft-kit.rs.
"""

import contextlib
import json
import subprocess

from .wires import GENERATOR


class Attached:
    """A tool that runs on an interface and reports its counts on request."""

    def __init__(self, process):
        self.process = process

    def ask(self):
        """Its counts now."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        return self.next_line()

    def next_line(self):
        """The next line that it prints."""
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{' '.join(self.process.what)} ended")
        return json.loads(line)

    def frames(self):
        """Frames counted, and when."""
        said = self.ask()
        return said["frames"], said["now_ns"]


class Kit:
    """Where weft-kit is, and where its tools run."""

    def __init__(self, path, processes, core):
        self.path, self.processes, self.core = path, processes, core

    @contextlib.contextmanager
    def attached(self, netns, *words):
        """Sink, redirector or receiver of probes, ready when the block begins."""
        process = self.processes.start([self.path, *words], netns=netns, core=self.core, stdout=subprocess.PIPE)
        tool = Attached(process)
        try:
            try:
                tool.next_line()
            except RuntimeError as err:
                process.wait(5)
                raise RuntimeError(self.processes.said(process)) from err
            yield tool
        finally:
            process.stdin.close()  # it ends with its input
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                pass
            self.processes.stop(process)
            process.stdout.close()

    @contextlib.contextmanager
    def generating(self, size, flows=256, rate=None, seconds=600, nice=False):
        """Frames into g0 while the block runs; with `nice`, who else is on its core comes first."""
        words = ["generate", "g0", "--size", size, "--flows", flows, "--seconds", seconds]
        words += ["--rate", rate] if rate else []
        argv = ["nice", "-n", "19"] if nice else []
        process = self.processes.start([*argv, self.path, *words], netns=GENERATOR, core=self.core)
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"generator: {self.processes.said(process)}")
        finally:
            self.processes.stop(process)

    def probe(self, device, size, rate, seconds):
        """Sends probes by a device; returns how many the device accepted."""
        words = ["probe", device, "--size", size, "--rate", rate, "--seconds", seconds]
        return json.loads(self.processes.run([self.path, *words], netns=GENERATOR, core=self.core))["frames"]

    def distance(self, cores):
        """Round trip between two cores in ns: least, median, most."""
        said = json.loads(self.processes.run([self.path, "distance", *cores]))
        return [said["min_ns"], said["median_ns"], said["max_ns"]]
