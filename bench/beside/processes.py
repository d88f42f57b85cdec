"""Processes of the bench: each is started here, ended by its id, and remembered with its command.

Processes.start(argv) -> Popen, Processes.stop(popen), Processes.run(argv) -> text; Processes.commands, in order.

Units: seconds.
"""

import shlex
import subprocess
import time


class Skip(Exception):
    """A row cannot be run here; says why."""


class Processes:
    """Starts processes, and ends them."""

    def __init__(self, folder):
        self.folder, self.commands, self._running, self._number = folder, [], [], 0

    def _note(self, argv):
        text = shlex.join(argv)
        if text not in self.commands:
            self.commands.append(text)

    def start(self, argv, netns=None, core=None, stdout=None):
        """Starts `argv`, in a namespace and on a core if given; what it writes goes to files of the folder."""
        argv = [str(word) for word in argv]
        argv = (["taskset", "-c", str(core)] if core is not None else []) + argv
        argv = (["ip", "netns", "exec", netns] if netns else []) + argv
        self._note(argv)
        self._number += 1
        path = f"{self.folder}/{self._number}.log"
        with open(path, "wb") as log:
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=stdout or log, stderr=log)
        process.log_path, process.what = path, argv
        self._running.append(process)
        return process

    def said(self, process, lines=4):
        """The last lines that a process wrote."""
        with open(process.log_path, encoding="utf-8", errors="replace") as log:
            return " / ".join(line.strip() for line in log.readlines()[-lines:] if line.strip())

    def wait_for(self, process, ready, seconds=10):
        """Waits until `ready()` is true; raises when the process ends or time is over."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if process.poll() is not None:
                raise RuntimeError(f"{process.what[-1]} ended ({process.returncode}): {self.said(process)}")
            try:
                if ready():
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise RuntimeError(f"{shlex.join(process.what)}: not ready after {seconds} s: {self.said(process)}")

    def stop(self, process, seconds=10):
        """Ends a process: by SIGTERM, then by SIGKILL."""
        if process.stdin:
            process.stdin.close()
        if process.poll() is None:
            process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process in self._running:
            self._running.remove(process)

    def stop_all(self):
        """Ends what still runs, the newest first."""
        for process in reversed(list(self._running)):
            self.stop(process, 3)

    def run(self, argv, netns=None, core=None, note=True, seconds=60):
        """Runs a command to its end; returns what it printed, raises when it failed."""
        argv = [str(word) for word in argv]
        argv = (["taskset", "-c", str(core)] if core is not None else []) + argv
        argv = (["ip", "netns", "exec", netns] if netns else []) + argv
        if note:
            self._note(argv)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(argv)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout


def rate(count, seconds):
    """Frames a second of `count()`, a pair of frames and ns, over some seconds."""
    frames, at_ns = count()
    time.sleep(seconds)
    frames_after, after_ns = count()
    return (frames_after - frames) / (after_ns - at_ns) * 1e9
